//! Whether a whole table can be a trace's: what `range` asks of every value, and what rows say of
//! one another. Used for tables that another program may have written.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type, UInt16Type, UInt32Type};
use arrow_array::{Array, Int64Array, PrimitiveArray, RecordBatch};

use super::Source;
use super::range::{Bounds, MOST_CPUS, MOST_THREADS, Ranges};
use crate::error::{Error, Result};
use crate::hooks::check_interrupt;
use crate::model::event::{Censored, State};

/// An error unless the rows of `table` can be a trace's: numbers in range, times in the window,
/// facts in order, one state of a thread and one thread on a CPU at a time, intervals that end
/// after they began, lengths that are the differences of their times.
///
/// `table` has the columns of the trace model's table `name` but texts, categories as codes;
/// `file` is how errors call it. `threads`: one more than the highest utid.
pub fn check(
    table: &Source<'_>,
    (name, file): (&str, &str),
    (ncpu, threads): (u16, u32),
    window: Option<(i64, i64)>,
) -> Result<()> {
    let mut bounds = Bounds {
        threads: threads.min(MOST_THREADS),
        // A machine's list may name CPUs that are off.
        cpus: if name == "cpus" { MOST_CPUS } else { ncpu },
        ..Bounds::default()
    };
    // Times of a thread may lie before the recording, or outside a part of it.
    if let Some(window) = window.filter(|_| name != "threads") {
        bounds.times = window;
    }
    let mut ranges = Ranges::new(file, bounds, table.before());
    let mut rows = Rows::new(file, name, table.before());
    table.unchecked().try_for_each(|batch| {
        let batch = batch?;
        check_interrupt()?;
        ranges.check(&batch)?;
        rows.check(&batch)
    })
}

/// Columns of a row of which the second is no earlier than the first, where both are there.
const IN_ORDER: [(&str, &str, &str); 5] = [
    ("waits", "ts_waking", "ts_ready"),
    ("waits", "ts_ready", "ts_enqueued"),
    ("waits", "ts_ready", "ts_run"),
    ("waits", "ts_enqueued", "ts_run"),
    ("losses", "ts_begin", "ts_end"),
];

/// Columns of which the first is the time from the second to the third, where all are there.
const LENGTHS: [(&str, &str, &str, &str); 3] = [
    ("waits", "placement", "ts_ready", "ts_enqueued"),
    ("waits", "queue", "ts_enqueued", "ts_run"),
    ("waits", "wait", "ts_ready", "ts_run"),
];

/// What each row has to do with those before it.
struct Rows<'a> {
    file: &'a str,
    name: &'a str,
    /// The column by which the table is in order.
    sorted: Option<&'static str>,
    rows: usize,
    before: i64,
    /// By utid, when its last state ended.
    ended: Vec<i64>,
    /// By CPU, until when a thread ran there.
    ran: Vec<i64>,
}

impl<'a> Rows<'a> {
    fn new(file: &'a str, name: &'a str, rows: usize) -> Self {
        let sorted = match name {
            "losses" => Some("ts_begin"),
            // Those are in order of their ends.
            "states" | "waits" | "irqs" | "threads" | "cpus" => None,
            _ => Some("ts"),
        };
        Self {
            file,
            name,
            sorted,
            rows,
            before: i64::MIN,
            ended: Vec::new(),
            ran: Vec::new(),
        }
    }

    fn check(&mut self, batch: &RecordBatch) -> Result<()> {
        if let Some(column) = self.sorted
            && let Some(times) = times(batch, column)
        {
            for (row, ts) in times.values().iter().enumerate() {
                if *ts < self.before {
                    let found = format!("column {column} holds {ts} after {}", self.before);
                    return Err(self.wrong(&found, row, &format!("rows in order of {column}")));
                }
                self.before = *ts;
            }
        }
        for (_, first, second) in IN_ORDER.iter().filter(|(name, ..)| *name == self.name) {
            self.in_order(batch, first, second)?;
        }
        for (_, length, from, to) in LENGTHS.iter().filter(|(name, ..)| *name == self.name) {
            self.length(batch, length, from, to)?;
        }
        match self.name {
            "states" => self.states(batch)?,
            "waits" => self.seen(batch)?,
            _ => {}
        }
        self.rows += batch.num_rows();
        Ok(())
    }

    fn in_order(&self, batch: &RecordBatch, first: &str, second: &str) -> Result<()> {
        let (Some(a), Some(b)) = (times(batch, first), times(batch, second)) else {
            return Ok(());
        };
        // Of all rows, what stands in the place of a null included: few have one.
        let pairs = || a.values().iter().zip(b.values());
        if pairs().fold(true, |right, (a, b)| right & (a <= b)) {
            return Ok(());
        }
        let odd =
            |row: &usize| a.is_valid(*row) && b.is_valid(*row) && a.value(*row) > b.value(*row);
        let Some(row) = (0..batch.num_rows()).find(odd) else {
            return Ok(());
        };
        let found = format!("{second} is {}, {first} {}", b.value(row), a.value(row));
        Err(self.wrong(&found, row, &format!("a {second} no earlier than {first}")))
    }

    fn length(&self, batch: &RecordBatch, length: &str, from: &str, to: &str) -> Result<()> {
        let (Some(l), Some(a), Some(b)) =
            (times(batch, length), times(batch, from), times(batch, to))
        else {
            return Ok(());
        };
        let odd = |row: &usize| {
            let there = l.is_valid(*row) && a.is_valid(*row) && b.is_valid(*row);
            // Times are in range, so the difference is.
            there && l.value(*row) != b.value(*row) - a.value(*row)
        };
        let Some(row) = (0..batch.num_rows()).find(odd) else {
            return Ok(());
        };
        let (found, lasted) = (l.value(row), b.value(row) - a.value(row));
        Err(self.wrong(
            &format!("{length} is {found}, and {from} to {to} {lasted}"),
            row,
            &format!("a {length} that is the time from {from} to {to}"),
        ))
    }

    fn states(&mut self, batch: &RecordBatch) -> Result<()> {
        let (Some(ts), Some(dur)) = (times(batch, "ts"), times(batch, "dur")) else {
            return Ok(());
        };
        let Some(utid) = column::<UInt32Type>(batch, "utid") else {
            return Ok(());
        };
        let (state, cpu) = (
            column::<UInt8Type>(batch, "state"),
            column::<UInt16Type>(batch, "cpu"),
        );
        for row in 0..batch.num_rows() {
            let (since, who) = (ts.value(row), utid.value(row) as usize);
            let until = since + dur.value(row);
            if self.ended.len() <= who {
                self.ended.resize(who + 1, i64::MIN);
            }
            if since < self.ended[who] {
                let found = format!(
                    "utid {who} has a state from {since} on and one before until {}",
                    self.ended[who]
                );
                return Err(self.wrong(&found, row, "one state of a thread at a time, in order"));
            }
            self.ended[who] = until;
            let (Some(state), Some(cpu)) = (state, cpu) else {
                continue;
            };
            if state.value(row) != State::Running as u8 {
                continue;
            }
            if cpu.is_null(row) {
                return Err(self.wrong("state running, and no cpu", row, "the CPU that it ran on"));
            }
            let on = usize::from(cpu.value(row));
            if self.ran.len() <= on {
                self.ran.resize(on + 1, i64::MIN);
            }
            if since < self.ran[on] {
                let found = format!(
                    "utid {who} runs on CPU {on} from {since} on and another until {}",
                    self.ran[on]
                );
                return Err(self.wrong(&found, row, "one thread on a CPU at a time, in order"));
            }
            self.ran[on] = until;
        }
        Ok(())
    }

    /// A wait without its beginning or its end is said to be.
    fn seen(&self, batch: &RecordBatch) -> Result<()> {
        let Some(censored) = column::<UInt8Type>(batch, "censored") else {
            return Ok(());
        };
        let columns = ["ts_ready", "ts_run", "wait"].map(|name| times(batch, name));
        let [Some(ready), Some(run), Some(wait)] = columns else {
            return Ok(());
        };
        for row in 0..batch.num_rows() {
            let (begins, ends) = match Censored::from_code(censored.value(row)) {
                Some(Censored::None) => (true, true),
                Some(Censored::Right) => (true, false),
                Some(Censored::Left) => (false, true),
                Some(Censored::Both) | None => (false, false),
            };
            let odd = [
                (ready, begins, "ts_ready"),
                (run, ends, "ts_run"),
                (wait, begins, "wait"),
            ];
            if let Some((_, there, name)) = odd
                .into_iter()
                .find(|(array, there, _)| array.is_valid(row) != *there)
            {
                let found = format!(
                    "censored is {}, and there is {} {name}",
                    Censored::TEXTS[usize::from(censored.value(row)).min(3)],
                    if there { "no" } else { "a" },
                );
                return Err(self.wrong(&found, row, "a wait that says what was not seen of it"));
            }
        }
        Ok(())
    }

    fn wrong(&self, found: &str, row: usize, expected: &str) -> Error {
        Error::format(
            format!("{}, row {}: {found}", self.file, self.rows + row),
            expected,
            "convert the capture again",
        )
    }
}

fn column<'a, T: arrow_array::ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> Option<&'a PrimitiveArray<T>> {
    batch.column_by_name(name)?.as_primitive_opt::<T>()
}

fn times<'a>(batch: &'a RecordBatch, name: &str) -> Option<&'a Int64Array> {
    column::<Int64Type>(batch, name)
}
