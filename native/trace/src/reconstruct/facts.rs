//! Reconstruction from fact tables that already exist: simulated traces,
//! foreign Parquet, tests. Rows are merged in time order with the tie rule of
//! docs/trace-model.md: switch, wakeup, migration, yield, then a loss (its
//! `ts_begin` is the time of the last event before the gap); but a late start,
//! before which nothing was seen, first of all.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;

use super::Reconstructor;
use crate::error::{Error, Result};
use crate::model::event::{LossReason, SchedClass, State, WakeKind};
use crate::model::tables::{Loss, Migration, States, Switch, Table, Waits, Wakeup, Yield};
use crate::model::time::{FAR, check_length};
use crate::store::Store;

/// One column of all batches of a table, as optional integers of 64 bits; and whether these are
/// without a sign.
pub struct IntColumn(pub Vec<Option<i64>>, bool);

fn wrong(table: &str, column: &str, found: impl Into<String>, expected: &str) -> Error {
    Error::usage(
        format!("column {column} of table {table} {}", found.into()),
        expected,
        "schedscope validate lists every column of the schema",
    )
}

fn ints(array: &ArrayRef) -> Option<Vec<Option<i64>>> {
    macro_rules! widen {
        ($kind:ty) => {
            array
                .as_primitive::<$kind>()
                .iter()
                .map(|value| value.map(|v| v as i64))
                .collect()
        };
    }
    Some(match array.data_type() {
        DataType::Int8 => widen!(Int8Type),
        DataType::Int16 => widen!(Int16Type),
        DataType::Int32 => widen!(Int32Type),
        DataType::Int64 => widen!(Int64Type),
        DataType::UInt8 => widen!(UInt8Type),
        DataType::UInt16 => widen!(UInt16Type),
        DataType::UInt32 => widen!(UInt32Type),
        DataType::UInt64 => widen!(UInt64Type),
        DataType::Boolean => array
            .as_boolean()
            .iter()
            .map(|value| value.map(i64::from))
            .collect(),
        DataType::Null => vec![None; array.len()],
        _ => return None,
    })
}

fn texts(array: &ArrayRef) -> Option<Vec<Option<String>>> {
    let own = |value: Option<&str>| value.map(str::to_owned);
    Some(match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().iter().map(own).collect(),
        DataType::LargeUtf8 => array.as_string::<i64>().iter().map(own).collect(),
        DataType::Utf8View => array.as_string_view().iter().map(own).collect(),
        _ => return None,
    })
}

/// A table as it was handed in.
pub struct TableIn<'a> {
    name: &'a str,
    batches: &'a [RecordBatch],
    rows: usize,
    /// The number of its first row, which is not 0 for a part of a table.
    first: usize,
}

/// Rows of a part: what is read of them one column after the other is still in the
/// caches when rows are made of it.
const PART: usize = 2048;

impl<'a> TableIn<'a> {
    pub fn new(name: &'a str, batches: &'a [RecordBatch]) -> Self {
        Self {
            name,
            batches,
            rows: batches.iter().map(RecordBatch::num_rows).sum(),
            first: 0,
        }
    }

    /// The table in parts of at most [`PART`] rows, each with the number of its first.
    fn parts(&self) -> impl Iterator<Item = (usize, RecordBatch)> + use<'a> {
        let mut first = self.first;
        self.batches.iter().flat_map(move |batch| {
            let begin = first;
            first += batch.num_rows();
            // One at least, whose columns are looked at, of an empty batch too.
            (0..batch.num_rows().max(1)).step_by(PART).map(move |at| {
                let rows = PART.min(batch.num_rows() - at);
                (begin + at, batch.slice(at, rows))
            })
        })
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// A column of texts; an absent column is all null.
    pub fn texts(&self, column: &str) -> Result<Vec<Option<String>>> {
        let mut all = Vec::with_capacity(self.rows);
        for batch in self.batches {
            match batch.column_by_name(column) {
                None => all.resize(all.len() + batch.num_rows(), None),
                Some(array) => all.extend(texts(array).ok_or_else(|| {
                    wrong(
                        self.name,
                        column,
                        format!("has type {}", array.data_type()),
                        "texts",
                    )
                })?),
            }
        }
        Ok(all)
    }

    /// A column of integers; an absent column is all null.
    pub fn ints(&self, column: &str) -> Result<IntColumn> {
        let mut all = Vec::with_capacity(self.rows);
        let mut unsigned = false;
        for batch in self.batches {
            match batch.column_by_name(column) {
                None => all.resize(all.len() + batch.num_rows(), None),
                Some(array) => all.extend({
                    unsigned = array.data_type() == &DataType::UInt64;
                    ints(array).ok_or_else(|| {
                        wrong(
                            self.name,
                            column,
                            format!("has type {}", array.data_type()),
                            "integers",
                        )
                    })?
                }),
            }
        }
        Ok(IntColumn(all, unsigned))
    }

    /// A column of integers in which none is missing; what is null counts as 0.
    pub fn whole(&self, column: &str) -> Result<Vec<i64>> {
        let values = self.ints(column)?.0;
        Ok(values.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// A column of category texts (or of their codes), as codes of `categories`.
    fn codes(&self, column: &str, categories: &[&str]) -> Result<IntColumn> {
        let by_text: HashMap<&str, i64> = categories
            .iter()
            .enumerate()
            .map(|(code, &text)| (text, code as i64))
            .collect();
        let unknown = |text: &str| {
            wrong(
                self.name,
                column,
                format!("holds {text:?}"),
                &format!("one of {}", categories.join(", ")),
            )
        };
        let code = |text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => by_text
                .get(text.as_str())
                .map(|&code| Some(code))
                .ok_or_else(|| unknown(text)),
        };
        let mut all = Vec::with_capacity(self.rows);
        for batch in self.batches {
            let Some(array) = batch.column_by_name(column) else {
                all.resize(all.len() + batch.num_rows(), None);
                continue;
            };
            let of_type = || {
                wrong(
                    self.name,
                    column,
                    format!("has type {}", array.data_type()),
                    "an Enum",
                )
            };
            if let Some(dictionary) = array.as_any_dictionary_opt() {
                let values = texts(dictionary.values()).ok_or_else(of_type)?;
                let keys =
                    ints(&dictionary.keys().slice(0, dictionary.len())).ok_or_else(of_type)?;
                // A category that no row has may be unknown.
                let known: Vec<_> = values.iter().map(|text| code(text).ok()).collect();
                for key in keys {
                    let Some(key) = key.map(|key| key as usize) else {
                        all.push(None);
                        continue;
                    };
                    all.push(match known.get(key) {
                        None => None,
                        Some(Some(code)) => *code,
                        Some(None) => code(&values[key])?,
                    });
                }
            } else if let Some(values) = texts(array) {
                for text in &values {
                    all.push(code(text)?);
                }
            } else {
                all.extend(ints(array).ok_or_else(of_type)?);
            }
        }
        Ok(IntColumn(all, false))
    }

    fn required<T>(&self, value: Option<T>, column: &str, row: usize) -> Result<T> {
        value.ok_or_else(|| {
            wrong(
                self.name,
                column,
                format!("is null in row {}", self.first + row),
                "a value in every row",
            )
        })
    }
}

impl IntColumn {
    fn get<T: TryFrom<i128>>(
        &self,
        table: &TableIn<'_>,
        column: &str,
        row: usize,
    ) -> Result<Option<T>> {
        match self.0[row] {
            None => Ok(None),
            Some(bits) => {
                let value = match self.1 {
                    true => i128::from(bits as u64),
                    false => i128::from(bits),
                };
                T::try_from(value).map(Some).map_err(|_| {
                    wrong(
                        table.name,
                        column,
                        format!("holds {value} in row {}", table.first + row),
                        "a number in the column's range",
                    )
                })
            }
        }
    }
}

/// Reads every row of a table into `rows`: `column: kind` per field, where the
/// kind says how the integers become the field's type.
macro_rules! rows {
    ($table:expr, $row:ident { $($field:ident : $kind:ident $(($category:ident))?),+ $(,)? }) => {{
        let table = $table;
        let mut all = Vec::with_capacity(table.rows);
        for (first, part) in table.parts() {
            let batches = std::slice::from_ref(&part);
            let part = TableIn { first, ..TableIn::new(table.name, batches) };
            $(let $field = rows!(@column part, $field, $kind $(($category))?)?;)+
            for row in 0..part.rows {
                all.push($row {
                    $($field: rows!(@value part, $field, row, $kind $(($category))?)),+
                });
            }
        }
        all
    }};
    (@column $table:ident, $field:ident, $kind:ident) => { $table.ints(stringify!($field)) };
    (@column $table:ident, $field:ident, $kind:ident($category:ident)) => {
        $table.codes(stringify!($field), $category::TEXTS)
    };
    (@value $table:ident, $field:ident, $row:ident, need) => {
        $table.required($field.get(&$table, stringify!($field), $row)?, stringify!($field), $row)?
    };
    (@value $table:ident, $field:ident, $row:ident, maybe) => {
        $field.get(&$table, stringify!($field), $row)?
    };
    (@value $table:ident, $field:ident, $row:ident, flag) => {
        $field.0[$row].map(|value| value != 0)
    };
    (@value $table:ident, $field:ident, $row:ident, category($category:ident)) => {{
        let code = $field.get::<u8>(&$table, stringify!($field), $row)?;
        $table.required(code.and_then($category::from_code), stringify!($field), $row)?
    }};
}

pub fn switches(table: TableIn<'_>) -> Result<Vec<Switch>> {
    Ok(rows!(
        table,
        Switch {
            ts: need,
            cpu: need,
            prev_utid: need,
            prev_state: category(State),
            prev_prio: maybe,
            preempted: flag,
            next_utid: need,
            next_prio: maybe,
        }
    ))
}

pub fn wakeups(table: TableIn<'_>) -> Result<Vec<Wakeup>> {
    Ok(rows!(
        table,
        Wakeup {
            ts: need,
            cpu: need,
            waker_utid: maybe,
            current_utid: maybe,
            utid: need,
            kind: category(WakeKind),
            target_cpu: maybe,
            prio: maybe,
        }
    ))
}

pub fn migrations(table: TableIn<'_>) -> Result<Vec<Migration>> {
    Ok(rows!(
        table,
        Migration {
            ts: need,
            cpu: need,
            utid: need,
            from_cpu: maybe,
            to_cpu: maybe
        }
    ))
}

pub fn yields(table: TableIn<'_>) -> Result<Vec<Yield>> {
    Ok(rows!(
        table,
        Yield {
            ts: need,
            utid: need
        }
    ))
}

pub fn losses(table: TableIn<'_>) -> Result<Vec<Loss>> {
    Ok(rows!(
        table,
        Loss {
            cpu: maybe,
            ts_begin: need,
            ts_end: need,
            count: maybe,
            reason: category(LossReason),
        }
    ))
}

/// The lists of CPUs that threads may use, by utid.
pub fn affinities(threads: &TableIn<'_>) -> Result<Vec<(u32, String)>> {
    let (utids, lists) = (threads.ints("utid")?, threads.texts("affinity")?);
    let mut known = Vec::new();
    for (row, list) in lists.into_iter().enumerate() {
        if let Some(list) = list {
            let utid = utids.get(threads, "utid", row)?;
            known.push((threads.required(utid, "utid", row)?, list));
        }
    }
    Ok(known)
}

/// Threads of the class that takes CPUs offline.
pub fn stoppers(threads: &TableIn<'_>) -> Result<Vec<u32>> {
    let classes = threads.codes("sched_class", SchedClass::TEXTS)?;
    let stop = SchedClass::Stop as i64;
    let utids = threads.ints("utid")?;
    let mut known = Vec::new();
    for (row, class) in classes.0.into_iter().enumerate() {
        if class == Some(stop) {
            let utid = utids.get(threads, "utid", row)?;
            known.push(threads.required(utid, "utid", row)?);
        }
    }
    Ok(known)
}

/// Must this wakeup have come before the switch of the same instant? It is of the
/// thread that the switch brings in, or raised by the one that it takes off that CPU.
pub fn comes_before(wakeup: &Wakeup, switch: &Switch) -> bool {
    let by_leaver = wakeup.cpu == switch.cpu && wakeup.current_utid == Some(switch.prev_utid);
    wakeup.utid == switch.next_utid || by_leaver && wakeup.utid != switch.prev_utid
}

/// Fact rows, each list in time order.
#[derive(Default)]
pub struct Facts {
    pub switches: Vec<Switch>,
    pub wakeups: Vec<Wakeup>,
    pub migrations: Vec<Migration>,
    pub yields: Vec<Yield>,
    pub losses: Vec<Loss>,
}

impl Facts {
    fn heads(&self, at: &[usize; 5]) -> [Option<i64>; 5] {
        [
            self.switches.get(at[0]).map(|row| row.ts),
            self.wakeups.get(at[1]).map(|row| row.ts),
            self.migrations.get(at[2]).map(|row| row.ts),
            self.yields.get(at[3]).map(|row| row.ts),
            self.losses.get(at[4]).map(|row| row.ts_begin),
        ]
    }

    /// An error naming the first row that is earlier than the one before it.
    pub fn check_order(&self) -> Result<()> {
        fn check(table: &str, times: impl Iterator<Item = i64>) -> Result<()> {
            let mut before = i64::MIN;
            for (row, ts) in times.enumerate() {
                if ts < before {
                    return Err(Error::usage(
                        format!("row {row} of table {table} has ts {ts} after {before}"),
                        "rows in order of time",
                        "sort the table by ts first",
                    ));
                }
                before = ts;
            }
            Ok(())
        }
        check("switches", self.switches.iter().map(|row| row.ts))?;
        check("wakeups", self.wakeups.iter().map(|row| row.ts))?;
        check("migrations", self.migrations.iter().map(|row| row.ts))?;
        check("yields", self.yields.iter().map(|row| row.ts))?;
        check("losses", self.losses.iter().map(|row| row.ts_begin))
    }

    /// How many rows there are that name threads.
    pub fn rows(&self) -> usize {
        self.switches.len() + self.wakeups.len() + self.migrations.len()
    }

    /// An error naming the first row that no trace of `ncpu` CPUs can hold, of which these are all
    /// `rows`, or the last of so many.
    pub fn check_range(&self, ncpu: u16, rows: usize) -> Result<()> {
        // Utids are numbered without holes, so few rows cannot need a high one;
        // threads that have no events are allowed for generously.
        let utids = u32::try_from(3 * rows + (1 << 20)).unwrap_or(u32::MAX);
        let utid = |table, column, row, utid| {
            if utid < utids {
                return Ok(());
            }
            let found = format!("holds {utid} in row {row}");
            Err(wrong(
                table,
                column,
                found,
                "utids numbered from 0 without holes",
            ))
        };
        let cpu = |table, row, cpu| {
            if cpu < ncpu {
                return Ok(());
            }
            let expected = format!("a CPU below ncpu, {ncpu}");
            Err(wrong(
                table,
                "cpu",
                format!("holds {cpu} in row {row}"),
                &expected,
            ))
        };
        for (row, switch) in self.switches.iter().enumerate() {
            cpu("switches", row, switch.cpu)?;
            utid("switches", "prev_utid", row, switch.prev_utid)?;
            utid("switches", "next_utid", row, switch.next_utid)?;
            for idle in [switch.prev_utid, switch.next_utid] {
                if idle < u32::from(ncpu) && idle != u32::from(switch.cpu) {
                    return Err(wrong(
                        "switches",
                        "next_utid",
                        format!(
                            "or prev_utid holds {idle} on CPU {} in row {row}",
                            switch.cpu
                        ),
                        "the CPU's own idle thread, whose utid is the CPU's number",
                    ));
                }
            }
        }
        for (row, wakeup) in self.wakeups.iter().enumerate() {
            cpu("wakeups", row, wakeup.cpu)?;
            utid("wakeups", "utid", row, wakeup.utid)?;
            for (column, of) in [
                ("waker_utid", wakeup.waker_utid),
                ("current_utid", wakeup.current_utid),
            ] {
                utid("wakeups", column, row, of.unwrap_or(0))?;
            }
        }
        for (row, migration) in self.migrations.iter().enumerate() {
            utid("migrations", "utid", row, migration.utid)?;
        }
        for (row, call) in self.yields.iter().enumerate() {
            utid("yields", "utid", row, call.utid)?;
        }
        for (row, loss) in self.losses.iter().enumerate() {
            if let Some(number) = loss.cpu {
                cpu("losses", row, number)?;
            }
            if loss.ts_end < loss.ts_begin {
                let found = format!("is before ts_begin in row {row}");
                return Err(wrong("losses", "ts_end", found, "ts_begin <= ts_end"));
            }
        }
        // Differences of times must fit 64 bits.
        match self.window() {
            Some((begin, end)) if begin < -FAR || end > FAR => Err(Error::usage(
                format!("times from {begin} to {end} ns"),
                "ns on the capture's clock, within 146 years of 0",
                "check the unit of ts",
            )),
            Some(window) => check_length(window, ncpu),
            None => Ok(()),
        }
    }

    /// First and last time of any row.
    pub fn window(&self) -> Option<(i64, i64)> {
        let begin = self.heads(&[0; 5]).into_iter().flatten().min()?;
        let ends = [
            self.switches.last().map(|row| row.ts),
            self.wakeups.last().map(|row| row.ts),
            self.migrations.last().map(|row| row.ts),
            self.yields.last().map(|row| row.ts),
            self.losses.iter().map(|row| row.ts_end).max(),
        ];
        Some((begin, ends.into_iter().flatten().max()?))
    }

    /// Feeds every row, in time order, and passes on finished rows whenever `chunk` of them are
    /// there. Chain breaks among the losses are found again, so given ones are skipped.
    pub fn feed<S: Store>(
        &self,
        reconstruction: &mut Reconstructor,
        chunk: usize,
        store: &mut S,
    ) -> Result<()> {
        let mut at = [0; 5];
        loop {
            if reconstruction.states.len() >= chunk {
                store.write(States::NAME, reconstruction.states.take())?;
            }
            if reconstruction.waits.len() >= chunk {
                store.write(Waits::NAME, reconstruction.waits.take())?;
            }
            let heads = self.heads(&at);
            // The first of equal times wins: that is the tie rule.
            let Some((_, table)) = heads
                .iter()
                .enumerate()
                .filter_map(|(table, head)| head.map(|ts| (ts, table)))
                .min()
            else {
                return Ok(());
            };
            // But the next thread was woken and moved there first, and a waker still runs: a
            // simulation may do all of it at one instant.
            let woken_first = table == 0 && heads[1] == heads[0] && {
                let (switch, wakeup) = (&self.switches[at[0]], &self.wakeups[at[1]]);
                comes_before(wakeup, switch) || reconstruction.sleeps(switch.next_utid)
            };
            let moved_first = table == 0
                && heads[2] == heads[0]
                && self.migrations[at[2]].utid == self.switches[at[0]].next_utid;
            let unseen_first = heads[4] == heads[table]
                && matches!(
                    self.losses[at[4]].reason,
                    LossReason::LateStart | LossReason::Absent | LossReason::Unrecorded
                );
            let table = match (unseen_first, woken_first, moved_first) {
                (true, ..) => 4,
                (false, true, _) => 1,
                (false, false, true) => 2,
                (false, false, false) => table,
            };
            match table {
                0 => reconstruction.switch(&self.switches[at[0]]),
                1 => reconstruction.wakeup(&self.wakeups[at[1]]),
                2 => reconstruction.migrate(&self.migrations[at[2]]),
                3 => {
                    let row = &self.yields[at[3]];
                    reconstruction.yielded(row.utid, row.ts);
                }
                _ => {
                    let row = &self.losses[at[4]];
                    if row.reason != LossReason::ChainBreak {
                        reconstruction.loss(row);
                    }
                }
            }
            at[table] += 1;
        }
    }
}
