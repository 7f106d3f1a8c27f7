//! Rows of the fact tables, batch by batch.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int64Type, UInt8Type, UInt16Type, UInt32Type};
use arrow_array::{Array, RecordBatch};

use super::rules::Left;
use crate::columns::{column, full};
use crate::error::{Error, Result};
use crate::model::event::{State, WakeKind};
use crate::store::Source;

/// A row of a table.
pub trait Fact: Copy {
    /// Appends the rows of a batch, each with its time.
    fn read(batch: &RecordBatch, rows: &mut Vec<(i64, Self)>) -> Result<()>;
}

#[derive(Clone, Copy)]
pub struct Switch {
    pub prev: u32,
    pub left: Left,
    pub next: u32,
    pub cpu: u16,
    pub prio: Option<i16>,
}

impl Fact for Switch {
    /// ts, cpu, prev_utid, prev_state (its code), preempted, next_utid, next_prio.
    fn read(batch: &RecordBatch, rows: &mut Vec<(i64, Self)>) -> Result<()> {
        let ts = full::<Int64Type>(batch, "ts")?;
        let (cpu, state) = (
            full::<UInt16Type>(batch, "cpu")?,
            full::<UInt8Type>(batch, "prev_state")?,
        );
        let (prev, next) = (
            full::<UInt32Type>(batch, "prev_utid")?,
            full::<UInt32Type>(batch, "next_utid")?,
        );
        let prio = column::<Int16Type>(batch, "next_prio")?;
        let preempted = batch
            .column_by_name("preempted")
            .and_then(|array| array.as_boolean_opt())
            .ok_or_else(|| Error::internal("no column preempted of booleans"))?;
        rows.extend((0..ts.len()).map(|i| {
            let left = if state[i] != State::Runnable as u8 {
                Left::Off
            } else if preempted.is_valid(i) && preempted.value(i) {
                Left::Preempted
            } else {
                Left::Runnable
            };
            let switch = Self {
                prev: prev[i],
                left,
                next: next[i],
                cpu: cpu[i],
                prio: prio.is_valid(i).then(|| prio.value(i)),
            };
            (ts[i], switch)
        }));
        Ok(())
    }
}

#[derive(Clone, Copy)]
pub struct Wakeup {
    pub utid: u32,
    pub kind: WakeKind,
}

impl Fact for Wakeup {
    /// ts, utid, kind (its code).
    fn read(batch: &RecordBatch, rows: &mut Vec<(i64, Self)>) -> Result<()> {
        let (ts, utid) = (
            full::<Int64Type>(batch, "ts")?,
            full::<UInt32Type>(batch, "utid")?,
        );
        let kind = full::<UInt8Type>(batch, "kind")?;
        rows.extend((0..ts.len()).map(|i| {
            let wakeup = Self {
                utid: utid[i],
                kind: WakeKind::from_code(kind[i]).unwrap_or(WakeKind::New),
            };
            (ts[i], wakeup)
        }));
        Ok(())
    }
}

/// The utid of a thread that is created.
#[derive(Clone, Copy)]
pub struct Birth(pub u32);

impl Fact for Birth {
    /// ts, utid.
    fn read(batch: &RecordBatch, rows: &mut Vec<(i64, Self)>) -> Result<()> {
        let (ts, utid) = (
            full::<Int64Type>(batch, "ts")?,
            full::<UInt32Type>(batch, "utid")?,
        );
        rows.extend((0..ts.len()).map(|i| (ts[i], Self(utid[i]))));
        Ok(())
    }
}

/// No clock gets there.
pub const NEVER: i64 = i64::MAX;

/// Where in a table, whose rows are in order of time, the pass stands.
pub struct Cursor<'a, F> {
    batches: Box<dyn Iterator<Item = Result<RecordBatch>> + Send + 'a>,
    /// The batch at hand; none after the last.
    rows: Vec<(i64, F)>,
    at: usize,
}

impl<'a, F: Fact> Cursor<'a, F> {
    pub fn new(table: &'a Source<'_>) -> Result<Self> {
        let mut cursor = Self {
            batches: table.batches(),
            rows: Vec::new(),
            at: 0,
        };
        cursor.turn()?;
        Ok(cursor)
    }

    /// Goes on to the next batch that has rows.
    #[cold]
    fn turn(&mut self) -> Result<()> {
        let latest = self.rows.last().map_or(i64::MIN, |(ts, _)| *ts);
        self.at = 0;
        self.rows.clear();
        while self.rows.is_empty()
            && let Some(batch) = self.batches.next()
        {
            F::read(&batch?, &mut self.rows)?;
        }
        let first = self.rows.first().map_or(latest, |(ts, _)| *ts);
        if first < latest || !self.rows.is_sorted_by_key(|(ts, _)| *ts) {
            return Err(Error::format(
                "events out of order",
                "rows in order of ts",
                "convert the trace again",
            ));
        }
        Ok(())
    }

    /// The next row's time; `NEVER` after the last.
    #[inline]
    pub fn ts(&self) -> i64 {
        self.rows.get(self.at).map_or(NEVER, |(ts, _)| *ts)
    }

    /// Hands out the rows of time `now` that come next.
    #[inline]
    pub fn take(&mut self, now: i64, mut each: impl FnMut(F)) -> Result<()> {
        while let Some((_, row)) = self.rows.get(self.at).filter(|(ts, _)| *ts == now) {
            each(*row);
            self.at += 1;
            if self.at == self.rows.len() {
                self.turn()?;
            }
        }
        Ok(())
    }
}
