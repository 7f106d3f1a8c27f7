//! Whether a whole table can be a trace's: what `range` asks of every value, and what rows say
//! of one another. Asked once of tables that somebody else wrote.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{Array, Int64Array, RecordBatch};

use super::Source;
use super::range::{Bounds, MOST_CPUS, MOST_THREADS, Ranges};
use crate::error::{Error, Result};
use crate::hooks::check_interrupt;

/// An error unless the rows of `table` can be a trace's: numbers in range, facts in order of
/// time, one state of a thread at a time, waits that end after they began.
///
/// `table` has the columns of the trace model's table `name` but texts, categories as codes;
/// `file` is how errors call it. `threads`: one more than the highest utid.
pub fn check(
    table: &Source<'_>,
    (name, file): (&str, &str),
    (ncpu, threads): (u16, u32),
    window: Option<(i64, i64)>,
) -> Result<()> {
    let bounds = Bounds {
        threads: threads.min(MOST_THREADS),
        // A machine's list may name CPUs that are off.
        cpus: if name == "cpus" { MOST_CPUS } else { ncpu },
    };
    let mut ranges = Ranges::new(file, bounds);
    let mut rows = Rows::new(file, name, window);
    table.unchecked().try_for_each(|batch| {
        let batch = batch?;
        check_interrupt()?;
        ranges.check(&batch)?;
        rows.check(&batch)
    })
}

/// What each row has to do with those before it.
struct Rows<'a> {
    file: &'a str,
    /// The column by which a table of facts is in order.
    sorted: Option<&'static str>,
    states: bool,
    waits: bool,
    window: Option<(i64, i64)>,
    rows: usize,
    before: i64,
    /// By utid, when its last state ended.
    ended: Vec<i64>,
}

impl<'a> Rows<'a> {
    fn new(file: &'a str, name: &str, window: Option<(i64, i64)>) -> Self {
        let sorted = match name {
            "losses" => Some("ts_begin"),
            // Those are in order of their ends.
            "states" | "waits" | "irqs" | "threads" | "cpus" => None,
            _ => Some("ts"),
        };
        Self {
            file,
            sorted,
            states: name == "states",
            waits: name == "waits",
            window: window.filter(|_| matches!(name, "states" | "waits")),
            rows: 0,
            before: i64::MIN,
            ended: Vec::new(),
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
        if self.states {
            self.states(batch)?;
        }
        if self.waits {
            self.waits(batch)?;
        }
        self.rows += batch.num_rows();
        Ok(())
    }

    fn states(&mut self, batch: &RecordBatch) -> Result<()> {
        let utid = batch.column_by_name("utid");
        let utid = utid.and_then(|array| array.as_primitive_opt::<UInt32Type>());
        let (Some(ts), Some(dur), Some(utid)) = (times(batch, "ts"), times(batch, "dur"), utid)
        else {
            return Ok(());
        };
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
            if let Some((begin, end)) = self.window
                && (since < begin || until > end)
            {
                let found = format!("a state from {since} to {until} ns");
                return Err(self.wrong(&found, row, &format!("times from {begin} to {end} ns")));
            }
        }
        Ok(())
    }

    fn waits(&mut self, batch: &RecordBatch) -> Result<()> {
        let (Some(ready), Some(run)) = (times(batch, "ts_ready"), times(batch, "ts_run")) else {
            return Ok(());
        };
        for row in 0..batch.num_rows() {
            let at = |array: &Int64Array| array.is_valid(row).then(|| array.value(row));
            let (ready, run) = (at(ready), at(run));
            if let (Some(ready), Some(run)) = (ready, run)
                && run < ready
            {
                let found = format!("ts_run is {run}, ts_ready {ready}");
                return Err(self.wrong(&found, row, "a wait that ends after it began"));
            }
            if let (Some((begin, end)), Some(ts)) = (self.window, run.or(ready))
                && (ts < begin || ts > end)
            {
                let found = format!("a wait at {ts} ns");
                return Err(self.wrong(&found, row, &format!("times from {begin} to {end} ns")));
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

fn times<'a>(batch: &'a RecordBatch, name: &str) -> Option<&'a Int64Array> {
    batch.column_by_name(name)?.as_primitive_opt::<Int64Type>()
}
