//! Rows of the fact tables, read where they lie.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int64Type, UInt8Type, UInt16Type, UInt32Type};
use arrow_array::{Array, ArrowPrimitiveType, PrimitiveArray, RecordBatch};

use super::rules::Left;
use crate::error::{Error, Result};
use crate::model::event::WakeKind;

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

/// ts, cpu, prev_utid, left (0, 1 R, 2 R+), next_utid, next_prio.
pub struct Switches {
    ts: PrimitiveArray<Int64Type>,
    cpu: PrimitiveArray<UInt16Type>,
    prev: PrimitiveArray<UInt32Type>,
    left: PrimitiveArray<UInt8Type>,
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
            left: full(batch, "left")?,
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
            left: match self.left.value(at) {
                0 => Left::Off,
                1 => Left::Runnable,
                _ => Left::Preempted,
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

/// All batches of a table.
pub struct Rows<C>(Vec<C>);

impl<C: Columns> Rows<C> {
    pub fn new(batches: &[RecordBatch]) -> Result<Self> {
        let full = batches.iter().filter(|batch| batch.num_rows() > 0);
        full.map(C::of).collect::<Result<Vec<C>>>().map(Self)
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|batch| batch.ts().len()).sum()
    }

    pub fn cursor(&self) -> Cursor<'_, C> {
        Cursor {
            batches: &self.0,
            ts: self.0.first().map_or(&[], C::ts),
            at: 0,
        }
    }
}

/// Where in a table the pass stands.
pub struct Cursor<'a, C> {
    /// The batch at hand and those after it.
    batches: &'a [C],
    /// Times of the batch at hand.
    ts: &'a [i64],
    at: usize,
}

impl<C: Columns> Cursor<'_, C> {
    /// The next row's time.
    #[inline]
    pub fn ts(&self) -> Option<i64> {
        self.ts.get(self.at).copied()
    }

    /// Takes the rows of time `now` that come next.
    #[inline]
    pub fn take(&mut self, now: i64, into: &mut Vec<C::Row>) {
        while let Some(&ts) = self.ts.get(self.at) {
            if ts != now {
                return;
            }
            if let Some(batch) = self.batches.first() {
                into.push(batch.row(self.at));
            }
            self.at += 1;
            if self.at == self.ts.len() {
                self.batches = self.batches.get(1..).unwrap_or_default();
                self.ts = self.batches.first().map_or(&[], C::ts);
                self.at = 0;
            }
        }
    }
}
