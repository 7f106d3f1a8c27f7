//! The records of one CPU: sub-buffers in, merged-to-be events out.
//!
//! A sub-buffer is a time stamp, a commit word (bytes used, and whether events
//! were lost before it) and records. A record's header is 32 bits: 5 of type or
//! length, 27 of nanoseconds since the record before (ring_buffer.h).

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::ftrace::catalogue::Catalogue;
use crate::ftrace::clock::Clock;
use crate::ftrace::cpu_stats::CpuStats;
use crate::ftrace::fields::{u32_at, u64_at};
use crate::ftrace::format::PageLayout;
use crate::ftrace::marks::{commit_word, lost_before, used};
use crate::ftrace::pages::Pages;
use crate::ftrace::records::{Mapped, Mapper};
use crate::merge::{Head, Stream};
use crate::model::event::{Event, EventSink, LossReason};

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Absolute stamps carry 59 bits; the rest comes from the stamp before.
const STAMP_BITS: u32 = 59;
/// 146 years in ns: beyond it a stamp is damage, below it sums cannot overflow.
const LATEST: u64 = 1 << 62;

/// Clocks step back by little, if at all: by more ns than this, a stamp is damaged.
const OVERLAP: i64 = 1_000_000;

/// A loss comes behind all that happened at the instant where it begins, on
/// every CPU: that was still seen.
const LOSS_RANK: u8 = 4;

/// What the streams of a trace share while they are read.
#[derive(Default)]
pub struct Shared {
    pub mapper: Mapper,
    pub done: u64,
    pub total: u64,
    /// End of the trace where known: how far a loss at a stream's end reaches.
    pub end: Option<i64>,
}

/// What the streams of a trace know from the start.
#[derive(Clone)]
pub struct Plan {
    pub layout: PageLayout,
    pub catalogue: Arc<Catalogue>,
    /// Go on after damage, with a loss in its place.
    pub salvage: bool,
    /// Events outside are left out: of a ring that records on, each CPU is read to another time.
    pub within: Option<(i64, i64)>,
}

/// What is known of the events behind a CPU's last one.
#[derive(Debug, Clone, Copy)]
pub enum Tail {
    /// There are none.
    Whole,
    /// The file ends before them.
    Truncated,
    /// The recorder was stopped before it came to them.
    Unfinished,
    /// The kernel counted; what is missing in the file may be they.
    Counted(CpuStats),
}

/// The loss before the next record.
#[derive(Debug, Clone, Copy)]
struct Gap {
    count: Option<u64>,
    reason: LossReason,
}

struct Record {
    start: usize,
    len: usize,
    event: u16,
    head: Head,
}

/// One CPU's records, in order.
pub struct CpuStream<const BIG: bool> {
    cpu: u16,
    plan: Plan,
    clock: Clock,
    pages: Box<dyn Pages>,
    /// Bytes of the stream from `base` on.
    window: Vec<u8>,
    base: u64,
    /// The next sub-buffer, the next record and the end of this sub-buffer's
    /// records, in the window.
    next_page: usize,
    at: usize,
    end: usize,
    /// This sub-buffer goes on beyond the end of the file.
    torn: bool,
    tail: Tail,
    raw_ts: u64,
    /// Stamp of the last record of any kind.
    last: Option<i64>,
    first: Option<i64>,
    gap: Option<Gap>,
    /// To be sent before `record`.
    loss: Option<(i64, i64, Gap)>,
    record: Option<Record>,
    counts: Vec<u64>,
    backwards: u64,
    /// Sum of the losses that the sub-buffers count, and how many give no number.
    told_lost: u64,
    uncounted_gaps: u64,
    damaged: u64,
    /// How many events the only loss without a number must have.
    only_gap: Option<u64>,
}

impl<const BIG: bool> CpuStream<BIG> {
    pub fn new(cpu: u16, plan: Plan, clock: Clock, pages: Box<dyn Pages>) -> Self {
        let counts = vec![0; plan.catalogue.events().len()];
        Self {
            cpu,
            plan,
            clock,
            pages,
            window: Vec::new(),
            base: 0,
            next_page: 0,
            at: 0,
            end: 0,
            torn: false,
            tail: Tail::Whole,
            raw_ts: 0,
            last: None,
            first: None,
            gap: None,
            loss: None,
            record: None,
            counts,
            backwards: 0,
            told_lost: 0,
            uncounted_gaps: 0,
            damaged: 0,
            only_gap: None,
        }
    }

    pub fn with_only_gap(self, only_gap: Option<u64>) -> Self {
        Self { only_gap, ..self }
    }

    /// What came before the first record is not there: a ring kept the last events alone.
    pub fn with_late_start(mut self, late: bool) -> Self {
        if late {
            self.lose(None, LossReason::LateStart);
        }
        self
    }

    pub fn with_tail(self, tail: Tail) -> Self {
        Self { tail, ..self }
    }

    pub fn cpu(&self) -> u16 {
        self.cpu
    }

    /// Bytes of file this stream is made of.
    pub fn total(&self) -> u64 {
        self.pages.total()
    }

    /// Stamp of the first record, once read.
    pub fn first(&self) -> Option<i64> {
        self.first
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Stamp of the last record so far.
    pub fn last(&self) -> Option<i64> {
        self.last
    }

    /// Records by place in the catalogue.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Records whose stamp was before that of the one they follow.
    pub fn backwards(&self) -> u64 {
        self.backwards
    }

    /// How many lost events the sub-buffers report.
    pub fn told_lost(&self) -> u64 {
        self.told_lost
    }

    /// Sub-buffers that report losses without their number.
    pub fn uncounted_gaps(&self) -> u64 {
        self.uncounted_gaps
    }

    /// Records of events that were read.
    pub fn records(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Damaged sub-buffers that were left out.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Reads up to the first event.
    pub fn prime(&mut self, shared: &mut Shared, sink: &mut dyn EventSink) -> Result<()> {
        self.advance(shared, sink)
    }

    /// A loss before the very first record began when the trace did.
    pub fn began(&mut self, trace_begin: i64) {
        let Some((begin, end, gap)) = &mut self.loss else {
            return;
        };
        if gap.reason == LossReason::LateStart {
            *begin = trace_begin.min(*end);
            // Of the CPU that the trace begins with, all of it was before: it
            // stands there for its number.
            if *begin == *end && gap.count.is_none() {
                self.loss = None;
            }
        }
    }

    fn advance(&mut self, shared: &mut Shared, sink: &mut dyn EventSink) -> Result<()> {
        loop {
            while self.at < self.end {
                match self.read_record() {
                    Ok(true) => return Ok(()),
                    Ok(false) => {}
                    Err(error) => self.damage(error)?,
                }
            }
            match self.open_page(shared, sink) {
                Ok(true) => {}
                Ok(false) => {
                    self.finish(shared);
                    return Ok(());
                }
                Err(
                    error @ Error::Report {
                        kind: crate::error::Kind::Format,
                        ..
                    },
                ) => {
                    self.damage(error)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Leaves the rest of a damaged sub-buffer out if asked to.
    #[cold]
    fn damage(&mut self, error: Error) -> Result<()> {
        if !self.plan.salvage {
            return Err(error);
        }
        self.damaged += 1;
        self.at = self.end;
        self.lose(None, LossReason::Truncated);
        Ok(())
    }

    fn lose(&mut self, count: Option<u64>, reason: LossReason) {
        let merged = match self.gap {
            Some(gap) => Gap {
                count: gap.count.zip(count).map(|(a, b)| a.saturating_add(b)),
                reason: gap.reason,
            },
            None => Gap { count, reason },
        };
        self.gap = Some(merged);
    }

    /// Reads one record; true if it yields events.
    #[inline(always)]
    fn read_record(&mut self) -> Result<bool> {
        let at = self.at;
        if self.end - at < 4 {
            return self.broken("a record header of less than 4 bytes");
        }
        let header = u32_at::<BIG>(&self.window, at);
        let (kind, delta) = if BIG {
            (header >> 27, header & 0x07ff_ffff)
        } else {
            (header & 0x1f, header >> 5)
        };
        let delta = u64::from(delta);
        let (start, len);
        if (1..PADDING).contains(&kind) {
            (start, len) = (at + 4, kind as usize * 4);
        } else {
            if kind == PADDING && delta == 0 {
                // Nothing was written behind this point.
                self.at = self.end;
                return Ok(false);
            }
            if self.end - at < 8 {
                return self.broken("a record header of less than 8 bytes");
            }
            let extra = u32_at::<BIG>(&self.window, at + 4);
            match kind {
                TIME_EXTEND => {
                    self.raw_ts += (u64::from(extra) << 27) + delta;
                    self.at = at + 8;
                    return self.check_stamp().map(|()| false);
                }
                TIME_STAMP => {
                    let low = (u64::from(extra) << 27) | delta;
                    let mut stamp = (self.raw_ts >> STAMP_BITS << STAMP_BITS) | low;
                    if stamp < self.raw_ts && self.raw_ts >> STAMP_BITS != 0 {
                        stamp += 1 << STAMP_BITS;
                    }
                    self.raw_ts = stamp;
                    self.at = at + 8;
                    return self.check_stamp().map(|()| false);
                }
                PADDING => {
                    // A discarded record; its time has passed all the same.
                    let extra = extra as usize;
                    if extra > self.end - at - 4 || extra < 4 {
                        return self.broken(format!("a discarded record of {extra} bytes"));
                    }
                    self.raw_ts += delta;
                    self.at = at + 4 + extra;
                    return Ok(false);
                }
                _ => {
                    // A long record: its length counts itself.
                    if extra < 4 {
                        return self.broken(format!("a record of {extra} bytes"));
                    }
                    (start, len) = (at + 8, extra as usize - 4);
                }
            }
        }
        if len > self.end - start {
            return self.broken(format!("a record of {len} bytes"));
        }
        self.raw_ts += delta;
        self.at = start + len.next_multiple_of(4).min(self.end - start);
        let data = &self.window[start..start + len];
        let Some(event) = self.plan.catalogue.find::<BIG>(data) else {
            return self.broken(format!("a record of {len} bytes"));
        };
        let mut ts = self.clock.apply(self.raw_ts);
        if let Some((from, until)) = self.plan.within
            && !(from..=until).contains(&ts)
        {
            return Ok(false);
        }
        if let Some(last) = self.last {
            if ts < last {
                self.backwards += 1;
                ts = last;
            }
        } else {
            self.first = Some(ts);
        }
        self.counts[usize::from(event)] += 1;
        if self.gap.is_some() {
            self.close_gap(ts);
        }
        self.last = Some(ts);
        let known = &self.plan.catalogue.events()[usize::from(event)];
        if !known.wanted {
            return Ok(false);
        }
        if len < known.plan.min_len {
            let found = format!("a record of {} of {len} bytes", known.name);
            return self.broken(found);
        }
        self.record = Some(Record {
            start,
            len,
            event,
            head: Head {
                ts,
                rank: known.rank,
            },
        });
        Ok(true)
    }

    /// The loss before the record at `end`. Where that has the very time of the last one before it,
    /// the loss goes on to the next record: a loss of no length would concern no thread, and stands
    /// behind all facts of its instant.
    #[cold]
    fn close_gap(&mut self, end: i64) {
        if self.last == Some(end) {
            return;
        }
        let Some(gap) = self.gap.take() else { return };
        match self.last {
            Some(last) => {
                // Two losses around one uninteresting record become one.
                let begin = self.loss.map_or(last, |(begin, ..)| begin);
                self.loss = Some((begin, end, gap));
            }
            None => {
                self.loss = Some((
                    end,
                    end,
                    Gap {
                        reason: LossReason::LateStart,
                        ..gap
                    },
                ))
            }
        }
    }

    fn check_stamp(&self) -> Result<()> {
        if self.raw_ts < LATEST {
            return Ok(());
        }
        self.broken(format!("the time stamp {}", self.raw_ts))
            .map(|_| ())
    }

    /// A record that cannot be: the end of a torn sub-buffer, or damage.
    #[cold]
    fn broken(&self, found: impl Into<String>) -> Result<bool> {
        Err(Error::format(
            format!(
                "{}: {}",
                self.pages.place(self.base + self.at as u64),
                found.into()
            ),
            format!(
                "a record of the {} bytes this sub-buffer has left",
                self.end - self.at
            ),
            "the file is damaged: copy it again, or read what is intact with -O salvage=yes",
        ))
    }

    /// Moves to the next sub-buffer; false at the end of the stream.
    fn open_page(&mut self, shared: &mut Shared, sink: &mut dyn EventSink) -> Result<bool> {
        let layout = self.plan.layout;
        if self.window.len() - self.next_page < layout.bytes {
            self.slide(shared, sink)?;
        }
        let page = self.next_page;
        let there = self.window.len() - page;
        self.at = page;
        self.end = page;
        if there == 0 {
            return Ok(false);
        }
        self.next_page = page + there.min(layout.bytes);
        self.torn = there < layout.bytes;
        if self.torn {
            self.end = self.window.len();
            if there < layout.data {
                self.at = self.end;
                self.lose(None, LossReason::Truncated);
                return Ok(true);
            }
        }
        let stamp = u64_at::<BIG>(&self.window, page + layout.timestamp);
        let commit = commit_word::<BIG>(&self.window[page..], layout);
        let used = used(commit);
        let data = page + layout.data;
        if used > layout.bytes - layout.data {
            return Err(Error::format(
                format!(
                    "{}: a sub-buffer of {used} bytes",
                    self.pages.place(self.base + page as u64)
                ),
                format!("at most {}", layout.bytes - layout.data),
                "the file is damaged: copy it again, or read what is intact with -O salvage=yes",
            ));
        }
        self.raw_ts = stamp;
        self.check_stamp()?;
        let begins = self.clock.apply(stamp);
        if let Some(last) = self.last
            && used > 0
            && last.saturating_sub(begins) > OVERLAP
        {
            return Err(Error::format(
                format!(
                    "{}: a sub-buffer that begins {} ns before the event ahead of it",
                    self.pages.place(self.base + page as u64),
                    last.saturating_sub(begins)
                ),
                "sub-buffers that follow each other in time",
                "a time stamp is damaged: copy the file again, or read what is intact with -O salvage=yes",
            ));
        }
        if let Some(count) = lost_before::<BIG>(&self.window[page..], commit, layout) {
            let count = count.or(self.only_gap);
            self.told_lost = self.told_lost.saturating_add(count.unwrap_or(0));
            self.uncounted_gaps += u64::from(count.is_none());
            self.lose(count, LossReason::Overrun);
        }
        self.at = data;
        self.end = (data + used).min(self.window.len());
        if self.torn && data + used > self.end {
            // Whole records only: what follows the last one is lost.
            self.end = self.last_whole_record(data);
        } else {
            self.torn = false;
        }
        Ok(true)
    }

    /// Where the last record that is all there ends.
    fn last_whole_record(&self, mut at: usize) -> usize {
        let end = self.window.len();
        while end - at >= 8 {
            let header = u32_at::<BIG>(&self.window, at);
            let kind = if BIG { header >> 27 } else { header & 0x1f };
            let extra = u32_at::<BIG>(&self.window, at + 4) as usize;
            let len = match kind {
                0 | PADDING => extra.saturating_add(4),
                TIME_EXTEND | TIME_STAMP => 8,
                words => 4 + 4 * words as usize,
            };
            if len > end - at {
                break;
            }
            at += len;
        }
        at
    }

    /// Lets go of what was read and reads on until a sub-buffer is there.
    fn slide(&mut self, shared: &mut Shared, sink: &mut dyn EventSink) -> Result<()> {
        self.base += self.next_page as u64;
        let rest = self.window.len() - self.next_page;
        self.window.copy_within(self.next_page.., 0);
        self.window.truncate(rest);
        self.next_page = 0;
        while self.window.len() < self.plan.layout.bytes {
            let before = self.pages.consumed();
            let got = self.pages.fill(&mut self.window)?;
            shared.done += self.pages.consumed() - before;
            sink.progress(shared.done, shared.total)?;
            if got == 0 {
                break;
            }
        }
        Ok(())
    }

    /// The stream is over; a loss at its end lasts until the trace's end.
    fn finish(&mut self, shared: &Shared) {
        self.record = None;
        if self.torn {
            self.lose(None, LossReason::Truncated);
        }
        match self.tail {
            _ if self.torn => {}
            Tail::Whole => {}
            Tail::Truncated => self.lose(None, LossReason::Truncated),
            Tail::Unfinished => self.lose(None, LossReason::EarlyEnd),
            Tail::Counted(stats) => {
                let there = self.records();
                let missing = stats.missing(there);
                // Skipped damage is reported separately.
                let elsewhere = stats.missing_first(there)
                    || stats.missing_inside(there, &self.clock, self.last);
                if missing > 0 && !elsewhere && self.damaged == 0 {
                    self.lose(Some(missing), LossReason::EarlyEnd);
                }
            }
        }
        if let (Some(gap), Some(last)) = (self.gap.take(), self.last) {
            // At the very end of the trace it has no length, and still shows that the end of what
            // was open then is unknown.
            let begin = self.loss.map_or(last, |(begin, ..)| begin);
            self.loss = Some((begin, shared.end.map_or(last, |end| end.max(last)), gap));
        }
    }
}

impl<const BIG: bool> Stream for CpuStream<BIG> {
    type Shared = Shared;

    #[inline]
    fn head(&self) -> Option<Head> {
        match (&self.loss, &self.record) {
            // Nothing was seen before a late start: it comes ahead of its instant.
            (Some((begin, _, gap)), _) if gap.reason == LossReason::LateStart => Some(Head {
                ts: begin.saturating_sub(1),
                rank: LOSS_RANK,
            }),
            (Some((begin, ..)), _) => Some(Head {
                ts: *begin,
                rank: LOSS_RANK,
            }),
            (None, Some(record)) => Some(record.head),
            (None, None) => None,
        }
    }

    #[inline]
    fn pop(&mut self, shared: &mut Shared, sink: &mut dyn EventSink) -> Result<()> {
        if let Some((ts_begin, ts_end, gap)) = self.loss.take() {
            shared.mapper.lost(self.cpu);
            let Gap { count, reason } = gap;
            return sink.event(&Event::Loss {
                cpu: Some(self.cpu),
                ts_begin,
                ts_end,
                count,
                reason,
            });
        }
        let Some(record) = &self.record else {
            return Ok(());
        };
        let data = &self.window[record.start..record.start + record.len];
        let plan = &self.plan.catalogue.events()[usize::from(record.event)].plan;
        let ts = record.head.ts;
        let (found, expected) = match shared.mapper.map::<BIG>(plan, ts, self.cpu, data, sink)? {
            Mapped::Done => return self.advance(shared, sink),
            Mapped::BadName => (
                "a name that stands outside its record",
                format!("an offset below {}", record.len),
            ),
            Mapped::CannotBe => (
                "a thread or state that cannot be",
                "thread ids below 4194304, and switches away from the running thread, in one state"
                    .to_owned(),
            ),
        };
        self.damage(Error::format(
            format!(
                "{}: {found}",
                self.pages.place(self.base + record.start as u64)
            ),
            expected,
            "the file is damaged: copy it again, or read what is intact with -O salvage=yes",
        ))?;
        self.advance(shared, sink)
    }
}
