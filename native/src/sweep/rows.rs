//! Rows of `states`, from Arrow batches, cut to the window.
use arrow_array::types::{Int16Type, Int64Type, UInt8Type, UInt16Type, UInt32Type};
use arrow_array::{Array, RecordBatch, UInt16Array};
use arrow_buffer::NullBuffer;
use arrow_buffer::bit_chunk_iterator::BitChunkIterator;

use crate::columns::{column, full};
use crate::error::{Error, Result};
use crate::hooks::check_interrupt;

/// Codes of `State` in the order of the trace model.
pub const RUNNING: u8 = 0;
pub const RUNNABLE: u8 = 1;

/// Stands for no known CPU: as an index of lanes it is not a CPU's number.
pub const NOWHERE: u16 = u16::MAX;

/// One row; times in ns after the begin of the window.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub ts: i64,
    pub until: i64,
    pub utid: u32,
    pub state: u8,
    pub cpu: u16,
    pub prio: Option<i16>,
}

impl Row {
    /// Whether the thread runs or waits to.
    #[inline]
    pub fn competes(&self) -> bool {
        self.state <= RUNNABLE
    }
}

/// What every sweep reads of a batch of `states`.
pub struct Columns<'a> {
    pub ts: &'a [i64],
    pub dur: &'a [i64],
    pub utid: &'a [u32],
    pub state: &'a [u8],
    pub cpu: &'a UInt16Array,
}

impl<'a> Columns<'a> {
    pub fn of(batch: &'a RecordBatch) -> Result<Self> {
        Ok(Self {
            ts: full::<Int64Type>(batch, "ts")?,
            dur: full::<Int64Type>(batch, "dur")?,
            utid: full::<UInt32Type>(batch, "utid")?,
            state: full::<UInt8Type>(batch, "state")?,
            cpu: column::<UInt16Type>(batch, "cpu")?,
        })
    }
}

/// Calls `take` with every row in the order of the table, the column `prio` with `prio` only.
#[inline]
pub fn each(batch: &RecordBatch, begin: i64, prio: bool, mut take: impl FnMut(Row)) -> Result<()> {
    check_interrupt()?;
    let Columns {
        ts,
        dur,
        utid,
        state,
        cpu,
    } = Columns::of(batch)?;
    let len = batch.num_rows();
    let (ts, dur, utid, state) = (&ts[..len], &dur[..len], &utid[..len], &state[..len]);
    let (cpus, placed) = (&cpu.values()[..len], cpu.nulls());
    let prios = if prio {
        Some(column::<Int16Type>(batch, "prio")?)
    } else {
        None
    };
    let mut placed = Bits::of(placed);
    let mut told = Bits::of(prios.and_then(|prio| prio.nulls()));
    let prios = prios.map(|prio| &prio.values()[..len]);
    for i in 0..len {
        let since = ts[i].checked_sub(begin);
        let until = since.and_then(|since| since.checked_add(dur[i]));
        let (Some(since), Some(until), 0..) = (since, until, dur[i]) else {
            return Err(Error::format(
                format!("a state of {} ns from {} ns on", dur[i], ts[i]),
                "a length of 0 ns or more, within 2^62 ns",
                "convert the trace again",
            ));
        };
        // All bits where there is none, that is NOWHERE, without a branch: it would be
        // foreseen badly.
        let nowhere = u16::from(placed.next()).wrapping_sub(1);
        let told = told.next();
        take(Row {
            ts: since,
            until,
            utid: utid[i],
            state: state[i],
            cpu: cpus[i] | nowhere,
            prio: prios.filter(|_| told).map(|prio| prio[i]),
        });
    }
    Ok(())
}

/// Whether each row has a value: 64 answers at a time.
struct Bits<'a> {
    words: Option<BitChunkIterator<'a>>,
    rest: Option<u64>,
    word: u64,
    left: u32,
}

impl<'a> Bits<'a> {
    /// All have one where nothing is said.
    fn of(nulls: Option<&'a NullBuffer>) -> Self {
        let chunks = nulls.map(|nulls| nulls.inner().bit_chunks());
        Self {
            rest: chunks.as_ref().map(|chunks| chunks.remainder_bits()),
            words: chunks.as_ref().map(|chunks| chunks.iter()),
            word: 0,
            left: 0,
        }
    }

    #[inline]
    fn next(&mut self) -> bool {
        if self.left == 0 {
            let word = self.words.as_mut().and_then(Iterator::next);
            self.word = word.or(self.rest).unwrap_or(u64::MAX);
            self.left = 64;
        }
        let bit = self.word & 1 == 1;
        self.word >>= 1;
        self.left -= 1;
        bit
    }
}
