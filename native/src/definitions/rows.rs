//! Rows of the fact tables, batch by batch.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int64Type, UInt8Type, UInt16Type, UInt32Type};
use arrow_array::{Array, ArrowPrimitiveType, BooleanArray, PrimitiveArray, RecordBatch};

use super::rules::Left;
use crate::error::{Error, Result};
use crate::model::event::{State, WakeKind};
use crate::store::python::Source;

pub struct Switch {
    pub prev: u32,
    pub left: Left,
    pub next: u32,
    pub cpu: u16,
    pub prio: Option<i16>,
}

pub struct Wakeup {
    pub utid: u32,
    pub kind: WakeKind,
}

/// The columns of one batch of a table.
pub trait Columns: Sized {
    type Row;
    fn of(batch: &RecordBatch) -> Result<Self>;
    fn ts(&self) -> &[i64];
    fn row(&self, at: usize) -> Self::Row;
}

fn column<T: ArrowPrimitiveType>(batch: &RecordBatch, name: &str) -> Result<PrimitiveArray<T>> {
    batch
        .column_by_name(name)
        .and_then(|array| array.as_primitive_opt::<T>())
        .cloned()
        .ok_or_else(|| {
            Error::usage(
                format!("no column {name} of type {}", T::DATA_TYPE),
                "the column",
                "",
            )
        })
}

/// A column in which every row has a value.
fn full<T: ArrowPrimitiveType>(batch: &RecordBatch, name: &str) -> Result<PrimitiveArray<T>> {
    let array = column::<T>(batch, name)?;
    if array.null_count() > 0 {
        return Err(Error::format(
            format!("column {name} holds a null"),
            "a value in every row",
            "schedscope validate lists every column of the schema",
        ));
    }
    Ok(array)
}

/// ts, cpu, prev_utid, prev_state (its code), preempted, next_utid, next_prio.
pub struct Switches {
    ts: PrimitiveArray<Int64Type>,
    cpu: PrimitiveArray<UInt16Type>,
    prev: PrimitiveArray<UInt32Type>,
    state: PrimitiveArray<UInt8Type>,
    preempted: BooleanArray,
    next: PrimitiveArray<UInt32Type>,
    prio: PrimitiveArray<Int16Type>,
}

impl Columns for Switches {
    type Row = Switch;

    fn of(batch: &RecordBatch) -> Result<Self> {
        Ok(Self {
            ts: full(batch, "ts")?,
            cpu: full(batch, "cpu")?,
            prev: full(batch, "prev_utid")?,
            state: full(batch, "prev_state")?,
            preempted: batch
                .column_by_name("preempted")
                .and_then(|array| array.as_boolean_opt())
                .cloned()
                .ok_or_else(|| Error::usage("no column preempted", "booleans", ""))?,
            next: full(batch, "next_utid")?,
            prio: column(batch, "next_prio")?,
        })
    }

    fn ts(&self) -> &[i64] {
        self.ts.values()
    }

    #[inline]
    fn row(&self, at: usize) -> Switch {
        Switch {
            prev: self.prev.value(at),
            left: if self.state.value(at) != State::Runnable as u8 {
                Left::Off
            } else if self.preempted.is_valid(at) && self.preempted.value(at) {
                Left::Preempted
            } else {
                Left::Runnable
            },
            next: self.next.value(at),
            cpu: self.cpu.value(at),
            prio: self.prio.is_valid(at).then(|| self.prio.value(at)),
        }
    }
}

/// ts, utid, kind (its code).
pub struct Wakeups {
    ts: PrimitiveArray<Int64Type>,
    utid: PrimitiveArray<UInt32Type>,
    kind: PrimitiveArray<UInt8Type>,
}

impl Columns for Wakeups {
    type Row = Wakeup;

    fn of(batch: &RecordBatch) -> Result<Self> {
        Ok(Self {
            ts: full(batch, "ts")?,
            utid: full(batch, "utid")?,
            kind: full(batch, "kind")?,
        })
    }

    fn ts(&self) -> &[i64] {
        self.ts.values()
    }

    #[inline]
    fn row(&self, at: usize) -> Wakeup {
        let kind = WakeKind::from_code(self.kind.value(at)).unwrap_or(WakeKind::New);
        Wakeup {
            utid: self.utid.value(at),
            kind,
        }
    }
}

/// ts, utid of births.
pub struct Births {
    ts: PrimitiveArray<Int64Type>,
    utid: PrimitiveArray<UInt32Type>,
}

impl Columns for Births {
    type Row = u32;

    fn of(batch: &RecordBatch) -> Result<Self> {
        Ok(Self {
            ts: full(batch, "ts")?,
            utid: full(batch, "utid")?,
        })
    }

    fn ts(&self) -> &[i64] {
        self.ts.values()
    }

    fn row(&self, at: usize) -> u32 {
        self.utid.value(at)
    }
}

/// Where in a table, whose rows are in order of time, the pass stands.
pub struct Cursor<'a, C> {
    batches: Box<dyn Iterator<Item = Result<RecordBatch>> + Send + 'a>,
    /// The batch at hand; none after the last.
    now: Option<C>,
    at: usize,
    latest: i64,
}

impl<'a, C: Columns> Cursor<'a, C> {
    pub fn new(table: &'a Source<'_>) -> Result<Self> {
        let mut cursor = Self {
            batches: table.batches(),
            now: None,
            at: 0,
            latest: i64::MIN,
        };
        cursor.turn()?;
        Ok(cursor)
    }

    /// Goes on to the next batch.
    fn turn(&mut self) -> Result<()> {
        self.at = 0;
        let batch = self.batches.find(|batch| {
            let rows = batch.as_ref().map(RecordBatch::num_rows);
            rows.map_or(true, |rows| rows > 0)
        });
        self.now = batch.map(|batch| C::of(&batch?)).transpose()?;
        let ts = self.now.as_ref().map_or(&[][..], C::ts);
        let (first, last) = (ts.first().copied(), ts.last().copied());
        if !ts.is_sorted() || first.is_some_and(|first| first < self.latest) {
            return Err(Error::format(
                "events out of order",
                "rows in order of ts",
                "convert the trace again",
            ));
        }
        self.latest = last.unwrap_or(self.latest);
        Ok(())
    }

    /// The next row's time.
    #[inline]
    pub fn ts(&self) -> Option<i64> {
        self.now.as_ref()?.ts().get(self.at).copied()
    }

    /// Hands out the rows of time `now` that come next.
    #[inline]
    pub fn take(&mut self, now: i64, mut each: impl FnMut(C::Row)) -> Result<()> {
        while let Some(batch) = &self.now {
            let ts = batch.ts();
            if ts[self.at] != now {
                return Ok(());
            }
            each(batch.row(self.at));
            self.at += 1;
            if self.at == ts.len() {
                self.turn()?;
            }
        }
        Ok(())
    }
}
