//! Records of a perf.data stream: walking them through a bounded window, and
//! where in a sample each field lies.

use std::fs::File;
use std::sync::Arc;

use super::bytes::{ByteOrder, Bytes, damaged};
use super::header::{
    Attr, SAMPLE_ADDR, SAMPLE_BRANCH_STACK, SAMPLE_CALLCHAIN, SAMPLE_CGROUP, SAMPLE_CPU,
    SAMPLE_DATA_SRC, SAMPLE_ID, SAMPLE_IDENTIFIER, SAMPLE_IP, SAMPLE_PERIOD, SAMPLE_PHYS_ADDR,
    SAMPLE_RAW, SAMPLE_READ, SAMPLE_REGS_INTR, SAMPLE_REGS_USER, SAMPLE_STACK_USER,
    SAMPLE_STREAM_ID, SAMPLE_TID, SAMPLE_TIME, SAMPLE_TRANSACTION, SAMPLE_WEIGHT,
    SAMPLE_WEIGHT_STRUCT, read_at,
};
use crate::error::Result;
use crate::model::time::FAR;

pub const LOST: u32 = 2;
pub const COMM: u32 = 3;
pub const EXIT: u32 = 4;
pub const FORK: u32 = 7;
pub const SAMPLE: u32 = 9;
pub const LOST_SAMPLES: u32 = 13;
pub const CGROUP: u32 = 19;
pub const HEADER_ATTR: u32 = 64;
pub const HEADER_TRACING_DATA: u32 = 66;
pub const ID_INDEX: u32 = 69;
pub const AUXTRACE: u32 = 71;
pub const HEADER_FEATURE: u32 = 80;
pub const COMPRESSED: u32 = 81;
pub const COMPRESSED2: u32 = 83;

/// Set in a COMM record whose name came with an exec.
pub const MISC_COMM_EXEC: u16 = 1 << 13;

/// Set in a LOST_SAMPLES record that counts what a BPF filter excluded: those are not lost.
pub const MISC_LOST_SAMPLES_BPF: u16 = 1 << 15;

/// Sums of times up to it cannot overflow.
pub const LATEST: u64 = FAR.cast_unsigned();

/// Walks the records of a byte range, reading `window` bytes at a time.
pub struct RecordReader {
    file: Arc<File>,
    order: ByteOrder,
    /// File offset of `buffer[0]`.
    base: u64,
    end: u64,
    buffer: Vec<u8>,
    at: usize,
    filled: usize,
}

impl RecordReader {
    pub fn new(file: Arc<File>, order: ByteOrder, (begin, end): (u64, u64), window: usize) -> Self {
        let span = usize::try_from(end - begin).unwrap_or(usize::MAX);
        Self {
            file,
            order,
            base: begin,
            end,
            buffer: vec![0; span.min(window)],
            at: 0,
            filled: 0,
        }
    }

    /// Starts again with another range of the same file.
    pub fn restart(&mut self, (begin, end): (u64, u64), window: usize) {
        let span = usize::try_from(end - begin)
            .unwrap_or(usize::MAX)
            .min(window);
        if self.buffer.len() < span {
            self.buffer.resize(span, 0);
        }
        (self.base, self.end, self.at, self.filled) = (begin, end, 0, 0);
    }

    /// File offset of the next record.
    pub fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Makes `len` bytes available at `self.at`, if the range has them.
    #[cold]
    fn fill(&mut self, len: usize) -> Result<bool> {
        let left = self.end - self.offset();
        if (len as u64) > left {
            return Ok(false);
        }
        self.buffer.copy_within(self.at..self.filled, 0);
        self.base += self.at as u64;
        self.filled -= self.at;
        self.at = 0;
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
        let room = self.buffer.len() - self.filled;
        let more =
            room.min(usize::try_from(self.end - self.base).unwrap_or(usize::MAX) - self.filled);
        read_at(
            &self.file,
            &mut self.buffer[self.filled..self.filled + more],
            self.base + self.filled as u64,
        )?;
        self.filled += more;
        Ok(true)
    }

    /// The next record, header included, without stepping over it. None at the
    /// end; `Err(Truncated)` inside the value when the range ends in a record.
    #[inline]
    pub fn peek(&mut self) -> Result<Peek<'_>> {
        if self.filled - self.at < 8 && !self.fill(8)? {
            let rest = self.end - self.offset();
            return Ok(if rest == 0 {
                Peek::End
            } else {
                Peek::Truncated { at: self.offset() }
            });
        }
        let buffer = Bytes {
            data: &self.buffer,
            order: self.order,
        };
        let size = usize::from(buffer.u16_at(self.at + 6).unwrap_or(0));
        if size < 8 {
            return Err(damaged(&format!(
                "the record at byte {} says it is {size} bytes long",
                self.offset()
            )));
        }
        if self.filled - self.at < size && !self.fill(size)? {
            return Ok(Peek::Truncated { at: self.offset() });
        }
        Ok(Peek::Record(Record(Bytes {
            data: &self.buffer[self.at..self.at + size],
            order: self.order,
        })))
    }

    /// Steps over a record of `size` bytes that `peek` gave.
    #[inline]
    pub fn step(&mut self, size: usize) {
        self.at += size;
    }

    /// Reads `len` bytes that follow a record outside its own size.
    pub fn trailing(&mut self, len: usize) -> Result<Option<&[u8]>> {
        if self.filled - self.at < len && !self.fill(len)? {
            return Ok(None);
        }
        let at = self.at;
        self.at += len;
        Ok(Some(&self.buffer[at..at + len]))
    }

    /// Skips bytes that follow a record. False when the range ends before.
    pub fn skip(&mut self, len: u64) -> bool {
        if len > self.end - self.offset() {
            return false;
        }
        let inside = (self.filled - self.at) as u64;
        if len <= inside {
            self.at += usize::try_from(len).unwrap_or(0);
        } else {
            self.base = self.offset() + len;
            self.at = 0;
            self.filled = 0;
        }
        true
    }
}

pub enum Peek<'a> {
    Record(Record<'a>),
    Truncated { at: u64 },
    End,
}

/// One record with its header: u32 type, u16 misc, u16 size.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a>(pub Bytes<'a>);

impl<'a> Record<'a> {
    #[inline]
    pub fn kind(self) -> u32 {
        self.0.u32_at(0).unwrap_or(0)
    }

    pub fn misc(self) -> u16 {
        self.0.u16_at(4).unwrap_or(0)
    }

    pub fn body(self) -> Bytes<'a> {
        self.0.after(8).unwrap_or(self.0)
    }
}

/// Where the fields of one event's samples and of its other records lie.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    sample_type: u64,
    read_format: u64,
    id_at: Option<usize>,
    tid_at: Option<usize>,
    time_at: Option<usize>,
    cpu_at: Option<usize>,
    period_at: Option<usize>,
    /// How many events each sample stands for, where it does not say so itself.
    period: u64,
    /// That is so by the event's own description.
    fixed: bool,
    /// How far behind the raw data the number of the control group lies. None: nowhere, or behind
    /// parts whose size is not known.
    group_after: Option<usize>,
    /// Where the parts of variable size begin.
    fixed_end: usize,
    sample_id_all: bool,
}

impl Layout {
    pub fn new(attr: &Attr) -> Self {
        let mut layout = Self {
            sample_type: attr.sample_type,
            read_format: attr.read_format,
            sample_id_all: attr.sample_id_all(),
            ..Self::default()
        };
        let mut at = 8;
        let mut place = |bit: u64| {
            (attr.sample_type & bit != 0).then(|| {
                at += 8;
                at - 8
            })
        };
        let identifier = place(SAMPLE_IDENTIFIER);
        place(SAMPLE_IP);
        layout.tid_at = place(SAMPLE_TID);
        layout.time_at = place(SAMPLE_TIME);
        place(SAMPLE_ADDR);
        let id = place(SAMPLE_ID);
        layout.id_at = identifier.or(id);
        place(SAMPLE_STREAM_ID);
        layout.cpu_at = place(SAMPLE_CPU);
        layout.period_at = place(SAMPLE_PERIOD);
        layout.period = attr.fixed_period().unwrap_or(1);
        layout.fixed = attr.fixed_period().is_some();
        layout.fixed_end = at;
        let has = |bits: u64| attr.sample_type & bits != 0;
        let sized =
            !has(SAMPLE_BRANCH_STACK | SAMPLE_REGS_USER | SAMPLE_STACK_USER | SAMPLE_REGS_INTR);
        if has(SAMPLE_CGROUP) && has(SAMPLE_TID) && has(SAMPLE_RAW) && sized {
            let words = [
                SAMPLE_WEIGHT | SAMPLE_WEIGHT_STRUCT,
                SAMPLE_DATA_SRC,
                SAMPLE_TRANSACTION,
                SAMPLE_PHYS_ADDR,
            ];
            layout.group_after = Some(8 * words.iter().filter(|&&bits| has(bits)).count());
        }
        layout
    }

    /// Where a sample's id lies, if it has one.
    pub fn id_at(&self) -> Option<usize> {
        self.id_at
    }

    pub fn has_time_and_cpu(&self) -> bool {
        self.time_at.is_some() && self.cpu_at.is_some()
    }

    pub fn has_raw(&self) -> bool {
        self.sample_type & SAMPLE_RAW != 0
    }

    /// None, too, where it is no time (146 years and more): damage.
    #[inline]
    pub fn time(&self, record: Record<'_>) -> Option<u64> {
        record.0.u64_at(self.time_at?).filter(|&ts| ts <= LATEST)
    }

    #[inline]
    pub fn cpu(&self, record: Record<'_>) -> Option<u32> {
        record.0.u32_at(self.cpu_at?)
    }

    /// The thread that ran.
    #[inline]
    pub fn tid(&self, record: Record<'_>) -> Option<u32> {
        record.0.u32_at(self.tid_at? + 4)
    }

    /// Each event of a tracepoint with a fixed period has its own sample, of period 1: another
    /// period was written in later.
    #[inline]
    pub fn is_rewritten(&self, record: Record<'_>) -> bool {
        let told = self.period_at.and_then(|at| record.0.u64_at(at));
        self.fixed && told.is_some_and(|period| period != 1)
    }

    /// How many events of its kind came since the sample before and have none. (The kernel
    /// ignores `-c N` for tracepoints whose samples say their period: each has one.)
    #[inline]
    pub fn skipped(&self, record: Record<'_>) -> u64 {
        let told = self.period_at.and_then(|at| record.0.u64_at(at));
        told.unwrap_or(self.period).saturating_sub(1)
    }

    /// The tracepoint's own bytes.
    #[inline]
    pub fn raw<'a>(&self, record: Record<'a>) -> Option<&'a [u8]> {
        Some(self.raw_and_rest(record)?.0)
    }

    /// The tracepoint's own bytes, and what comes behind them.
    #[inline]
    fn raw_and_rest<'a>(&self, record: Record<'a>) -> Option<(&'a [u8], Bytes<'a>)> {
        let mut rest = record.0.after(self.fixed_end)?;
        if self.sample_type & (SAMPLE_READ | SAMPLE_CALLCHAIN) != 0 {
            self.skip_variable(&mut rest)?;
        }
        let len = rest.len32()?;
        Some((rest.take(len)?, rest))
    }

    /// Process and thread that ran, and the number of its control group.
    #[inline]
    pub fn group(&self, record: Record<'_>) -> Option<((u32, u32), u64)> {
        let after = self.group_after?;
        let at = self.tid_at?;
        let whose = (record.0.u32_at(at)?, record.0.u32_at(at + 4)?);
        let (_, rest) = self.raw_and_rest(record)?;
        Some((whose, rest.u64_at(after)?))
    }

    /// Do samples carry how many of their event were lost so far?
    pub fn counts_lost(&self) -> bool {
        self.sample_type & SAMPLE_READ != 0 && self.read_format >> 4 & 1 != 0
    }

    /// Calls `each` with the id of an event and how many of its samples were lost so far, according
    /// to the counters in the sample.
    pub fn lost(&self, record: Record<'_>, each: &mut dyn FnMut(u64, u64)) -> Option<()> {
        // read_format: TOTAL_TIME_ENABLED, _RUNNING, ID, GROUP, LOST.
        let has = |bit: u32| self.read_format >> bit & 1 != 0;
        let mut rest = record.0.after(self.fixed_end)?;
        let members = if has(3) { rest.u64()? } else { 1 };
        let times = usize::from(has(0)) + usize::from(has(1));
        if has(3) {
            rest.take(8 * times)?;
        }
        for _ in 0..members {
            rest.u64()?;
            if !has(3) {
                rest.take(8 * times)?;
            }
            let id = if has(2) { Some(rest.u64()?) } else { None };
            let lost = rest.u64()?;
            let own = self.id_at.and_then(|at| record.0.u64_at(at));
            if let Some(id) = id.or(own.filter(|_| !has(3))) {
                each(id, lost);
            }
        }
        Some(())
    }

    fn skip_variable(&self, rest: &mut Bytes<'_>) -> Option<()> {
        if self.sample_type & SAMPLE_READ != 0 {
            // read_format: TOTAL_TIME_ENABLED, _RUNNING, ID, GROUP, LOST.
            let has = |bit: u32| usize::from(self.read_format >> bit & 1 != 0);
            let values = if has(3) == 1 {
                usize::try_from(rest.u64()?).ok()?
            } else {
                1
            };
            let words = values
                .checked_mul(1 + has(2) + has(4))?
                .checked_add(has(0) + has(1))?;
            rest.take(words.checked_mul(8)?)?;
        }
        if self.sample_type & SAMPLE_CALLCHAIN != 0 {
            let frames = usize::try_from(rest.u64()?).ok()?;
            rest.take(frames.checked_mul(8)?)?;
        }
        Some(())
    }

    /// The sample id in the trailer.
    pub fn trailer_id(&self, record: Record<'_>) -> Option<u64> {
        if !self.sample_id_all {
            return None;
        }
        let has = |bit: u64| usize::from(self.sample_type & bit != 0) * 8;
        let back = if has(SAMPLE_IDENTIFIER) > 0 {
            8
        } else if has(SAMPLE_ID) > 0 {
            has(SAMPLE_CPU) + has(SAMPLE_STREAM_ID) + 8
        } else {
            return None;
        };
        record.0.u64_at(record.0.len().checked_sub(back)?)
    }

    /// Time and CPU from the trailer that other records carry with sample_id_all.
    pub fn trailer(&self, record: Record<'_>) -> Option<(u64, Option<u32>)> {
        if !self.sample_id_all {
            return None;
        }
        let has = |bit: u64| usize::from(self.sample_type & bit != 0) * 8;
        // From the end: IDENTIFIER, CPU, STREAM_ID, ID, TIME, TID.
        let cpu = has(SAMPLE_IDENTIFIER) + has(SAMPLE_CPU);
        let time = cpu + has(SAMPLE_STREAM_ID) + has(SAMPLE_ID) + has(SAMPLE_TIME);
        self.time_at?;
        let time = record.0.u64_at(record.0.len().checked_sub(time)?)?;
        if time > LATEST {
            return None;
        }
        let cpu = if has(SAMPLE_CPU) > 0 {
            Some(record.0.u32_at(record.0.len().checked_sub(cpu)?)?)
        } else {
            None
        };
        Some((time, cpu))
    }
}
