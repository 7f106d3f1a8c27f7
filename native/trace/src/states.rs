//! The one reader of the table `states`: its rows from Arrow batches, in order or by number.
use arrow_array::types::{Int16Type, Int64Type, UInt8Type, UInt16Type, UInt32Type};
use arrow_array::{Array, RecordBatch, UInt16Array};
use arrow_buffer::NullBuffer;
use arrow_buffer::bit_chunk_iterator::BitChunkIterator;

use crate::columns::{column, full};
use crate::error::{Error, Result};
use crate::hooks::check_interrupt;
use crate::model::event::State;

/// The codes that the sweeps compare with.
pub const RUNNING: u8 = State::Running as u8;
pub const RUNNABLE: u8 = State::Runnable as u8;
pub const UNKNOWN: u8 = State::Unknown as u8;

/// Stands for no known CPU: as an index of CPUs it is not a CPU's number.
pub const NOWHERE: u16 = u16::MAX;

/// Columns that only some readers want; without them, a row has their empty value.
#[derive(Debug, Clone, Copy, Default)]
pub struct Want {
    pub cpu: bool,
    pub prio: bool,
    pub end: bool,
    /// Whether a thread's wakeup began the interval; no such column, no such wakeups.
    pub waker: bool,
}

impl Want {
    pub const CPU: Self = Self {
        cpu: true,
        prio: false,
        end: false,
        waker: false,
    };
}

/// One row; times in ns after the start of the window.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub ts: i64,
    pub until: i64,
    pub utid: u32,
    /// Code of `State`.
    pub state: u8,
    /// Or `NOWHERE`.
    pub cpu: u16,
    pub prio: Option<i16>,
    /// Code of `End`, 0 where it is not wanted.
    pub end: u8,
    pub by_thread: bool,
}

impl Row {
    /// Whether the thread runs or waits to.
    #[inline]
    pub fn competes(&self) -> bool {
        self.state <= RUNNABLE
    }

    pub fn dur(&self) -> i64 {
        self.until - self.ts
    }
}

/// The columns of a batch, for those who look rows up by number.
pub struct Columns<'a> {
    pub ts: &'a [i64],
    pub dur: &'a [i64],
    pub utid: &'a [u32],
    pub state: &'a [u8],
    pub cpu: &'a UInt16Array,
    pub end: &'a [u8],
}

impl<'a> Columns<'a> {
    pub fn of(batch: &'a RecordBatch) -> Result<Self> {
        Ok(Self {
            ts: full::<Int64Type>(batch, "ts")?,
            dur: full::<Int64Type>(batch, "dur")?,
            utid: full::<UInt32Type>(batch, "utid")?,
            state: full::<UInt8Type>(batch, "state")?,
            cpu: column::<UInt16Type>(batch, "cpu")?,
            end: full::<UInt8Type>(batch, "end")?,
        })
    }
}

/// Calls `take` with every row in the order of the table. Always inlined: what is not wanted, which
/// callers know, costs nothing then.
#[inline(always)]
pub fn each(
    batch: &RecordBatch,
    begin: i64,
    want: Want,
    mut take: impl FnMut(Row) -> Result<()>,
) -> Result<()> {
    check_interrupt()?;
    let len = batch.num_rows();
    let ts = &full::<Int64Type>(batch, "ts")?[..len];
    let dur = &full::<Int64Type>(batch, "dur")?[..len];
    let utid = &full::<UInt32Type>(batch, "utid")?[..len];
    let state = &full::<UInt8Type>(batch, "state")?[..len];
    let cpus = if want.cpu {
        Some(column::<UInt16Type>(batch, "cpu")?)
    } else {
        None
    };
    let prios = if want.prio {
        Some(column::<Int16Type>(batch, "prio")?)
    } else {
        None
    };
    let ends = if want.end {
        Some(&full::<UInt8Type>(batch, "end")?[..len])
    } else {
        None
    };
    let wakers = batch.column_by_name("waker_utid").filter(|_| want.waker);
    let mut placed = Bits::of(cpus.and_then(|cpu| cpu.nulls()));
    let mut known = Bits::of(prios.and_then(|prio| prio.nulls()));
    let mut woken = Bits::of(wakers.and_then(|waker| waker.nulls()));
    let cpus = cpus.map(|cpu| &cpu.values()[..len]);
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
        // predicted badly.
        let nowhere = u16::from(want.cpu && placed.next()).wrapping_sub(1);
        let known = want.prio && known.next();
        let woken = want.waker && woken.next();
        take(Row {
            ts: since,
            until,
            utid: utid[i],
            state: state[i],
            cpu: cpus.map_or(NOWHERE, |cpus| cpus[i] | nowhere),
            prio: prios.filter(|_| known).map(|prio| prio[i]),
            end: ends.map_or(0, |end| end[i]),
            by_thread: woken && wakers.is_some(),
        })?;
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
    /// All have one without a list of nulls.
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
