//! The CPUs of one trace put together: a [`Source`].

use std::sync::Arc;

use crate::chores::Chores;
use crate::error::{Error, Result};
use crate::ftrace::clock::Clock;
use crate::ftrace::cpu_stats::CpuStats;
use crate::ftrace::fields::u64_at;
use crate::ftrace::marks::{Marks, commit_word, used};
use crate::ftrace::pages::{HEADER, Pages};
use crate::ftrace::read_ahead::{self, ReadAhead};
use crate::ftrace::records::Mapper;
use crate::ftrace::stream::{CpuStream, Plan, Shared, Tail};
use crate::merge::merge;
use crate::model::event::{
    Comm, Event, EventSink, Extent, LossReason, Source, SourceEnd, SourceInfo,
};

/// One CPU's part of a trace.
pub struct CpuPart {
    pub cpu: u16,
    /// A second one has events of chosen processes, which were recorded in a buffer of their own.
    pub buffer: u8,
    pub clock: Clock,
    pub pages: Box<dyn Pages>,
    /// The file ends before this CPU's data does.
    pub cut: bool,
    /// The recorder did not come to the end of this CPU: more may have happened.
    pub unfinished: bool,
    /// It begins with the oldest event that was kept: what came before is unknown.
    pub late: bool,
}

/// An ftrace trace, opened: everything but the events.
pub struct FtraceTrace {
    pub info: SourceInfo,
    pub big_endian: bool,
    pub plan: Plan,
    pub cpus: Vec<CpuPart>,
    pub stats: Vec<CpuStats>,
    pub warnings: Vec<String>,
    /// Names the kernel knew when the trace was saved.
    pub last_names: Vec<(u32, Comm)>,
    /// Of the control groups, if it was chosen.
    pub hierarchy: Option<i64>,
}

/// No event is farther from the window of its recording than that is long, however the CPUs'
/// clocks differ; but for short and long windows, ns.
const APART: (i64, i64) = (1_000_000_000, 5_000_000_000);

/// A recorder reads the clock a while before or after it records, ns.
const LATE: i64 = 500_000_000;

/// Bytes of each CPU looked at to see which wake steps were recorded.
const SAMPLED: u64 = 2 << 20;

impl FtraceTrace {
    /// Formats are described whether recorded or not: looks at the first events to find which wake
    /// steps there are.
    pub fn sample_wakes(&mut self) -> Result<()> {
        let describes = |name| self.plan.catalogue.describes(name);
        let described = (describes("sched_waking"), describes("sched_wakeup"));
        let mut left = SAMPLED;
        let mut seen = (false, false);
        for part in &self.cpus {
            let Some(head) = part.pages.head()? else {
                continue;
            };
            left = left.saturating_sub(head.total().min(SAMPLED));
            let counts = match self.big_endian {
                true => self.count::<true>(part, head)?,
                false => self.count::<false>(part, head)?,
            };
            for (known, &count) in self.plan.catalogue.events().iter().zip(&counts) {
                seen.0 |= count > 0 && known.name == "sched_waking";
                seen.1 |= count > 0 && known.name == "sched_wakeup";
            }
            if left == 0 || seen == (true, true) {
                break;
            }
        }
        (self.info.has_waking, self.info.has_enqueued) = if seen == (false, false) {
            described
        } else {
            seen
        };
        Ok(())
    }

    fn count<const BIG: bool>(&self, part: &CpuPart, head: Box<dyn Pages>) -> Result<Vec<u64>> {
        let stream = self.run_alone::<BIG>(part, head);
        Ok(stream.counts().to_vec())
    }

    /// Reads a few sub-buffers for themselves; damage is left to the real pass.
    fn run_alone<const BIG: bool>(&self, part: &CpuPart, pages: Box<dyn Pages>) -> CpuStream<BIG> {
        let mut stream =
            CpuStream::<BIG>::new(part.cpu, self.plan.clone(), part.clock.clone(), pages);
        let mut shared = Shared::default();
        let _ = stream
            .prime(&mut shared, &mut Deaf)
            .and_then(|()| merge(std::slice::from_mut(&mut stream), &mut shared, &mut Deaf));
        stream
    }

    /// The stamp of the last event, from the last sub-buffers of each CPU.
    fn last_stamp<const BIG: bool>(&self) -> Result<Option<i64>> {
        let mut last = None;
        for part in &self.cpus {
            if let Some(tail) = part.pages.tail(self.plan.layout.bytes)? {
                last = last.max(self.run_alone::<BIG>(part, tail).last());
            }
        }
        Ok(last)
    }

    pub fn into_source(mut self) -> Result<Box<dyn Source>> {
        match self.big_endian {
            true => self.put_in_order::<true>()?,
            false => self.put_in_order::<false>()?,
        }
        if !self.plan.salvage {
            self.check_together()?;
        }
        Ok(Box::new(FtraceSource {
            trace: self,
            chores: None,
        }))
    }

    /// A CPU's events lie in the window of the recording, and before the kernel counted them. Where
    /// it did, they may come later than the window: on a busy host recording is switched off only
    /// when the recorder gets a CPU.
    fn check_together(&self) -> Result<()> {
        let extents = match self.big_endian {
            true => self.extents::<true>()?,
            false => self.extents::<false>()?,
        };
        for (part, extent) in extents {
            let stats = self.stats_of(part);
            let counted = stats.and_then(|stats| stats.now);
            let counted = counted.map(|now| part.clock.apply(now));
            let beyond = counted.is_some_and(|now| extent.last > now.saturating_add(APART.1));
            let outside = self
                .info
                .window
                .0
                .zip(self.info.window.1)
                .is_some_and(|(begin, end)| {
                    let apart = end.saturating_sub(begin).clamp(APART.0, APART.1);
                    extent.first < begin.saturating_sub(apart)
                        || extent.last < begin.saturating_sub(LATE)
                        || extent.first > end.saturating_add(LATE)
                        || extent.last > counted.unwrap_or(end).max(end.saturating_add(apart))
                });
            let overwritten = stats.map_or(0, |stats| stats.overrun);
            let end = self.info.window.1.filter(|&end| extent.first > end);
            if let Some(end) = end
                && outside
                && !beyond
                && overwritten > 0
            {
                return Err(Error::format(
                    format!(
                        "{}: of CPU {} only events from {:.1} s after the end of the recording: \
                         the {overwritten} before were overwritten",
                        part.pages.place(0),
                        extent.cpu,
                        (extent.first - end) as f64 / 1e9,
                    ),
                    "events of the recording",
                    "what ends a recording waited that long for a CPU: record with larger buffers \
                     (-b KB), or read what is there with -O salvage=yes",
                ));
            }
            if outside || beyond {
                return Err(Error::format(
                    format!(
                        "{}: events of CPU {} from {} to {} ns, {}",
                        part.pages.place(0),
                        extent.cpu,
                        extent.first,
                        extent.last,
                        match outside {
                            true => "which lie outside the time of the recording",
                            false => "and the kernel had counted them before",
                        }
                    ),
                    "events of one recording",
                    "two recordings were mixed, or a time stamp is damaged: copy the capture \
                     again, or read what is there with -O salvage=yes",
                ));
            }
        }
        Ok(())
    }

    /// Sub-buffers that stand in the file twice are read once, and those out of order in order,
    /// if that makes sense of them.
    fn put_in_order<const BIG: bool>(&mut self) -> Result<()> {
        let layout = self.plan.layout;
        let stamp = |head: &[u8]| {
            let holds_events = used(commit_word::<BIG>(head, layout)) > 0;
            holds_events.then(|| u64_at::<BIG>(head, layout.timestamp))
        };
        if layout.timestamp.max(layout.commit) + 8 > HEADER {
            return Ok(());
        }
        for at in 0..self.cpus.len() {
            let part = &self.cpus[at];
            let Some(pages) = part.pages.in_order(layout.bytes, &stamp)? else {
                continue;
            };
            let cpu = part.cpu;
            let mut last = None;
            for one in pages.each() {
                let place = one.place(0);
                let alone = self.run_alone::<BIG>(part, Box::new(one));
                if let (Some(first), Some(before)) = (alone.first(), last)
                    && first < before
                    && !self.plan.salvage
                {
                    return Err(Error::format(
                        format!(
                            "{place}: a sub-buffer of CPU {cpu} whose events begin {} ns before \
                             those of the sub-buffer before it end",
                            before - first
                        ),
                        "sub-buffers that follow each other in time",
                        "a time stamp is damaged, or two recordings were mixed: copy the file \
                         again, or read what is intact with -O salvage=yes",
                    ));
                }
                last = alone.last().or(last);
            }
            let sentence = match (pages.moved, pages.repeated) {
                (0, repeated) => format!("{repeated} sub-buffers are in the file twice"),
                (moved, 0) => format!("{moved} sub-buffers are not in order of time"),
                (moved, repeated) => format!(
                    "{moved} sub-buffers are not in order of time and {repeated} are in the file \
                     twice"
                ),
            };
            self.warnings.push(format!(
                "CPU {cpu}: {sentence}; they were read once and in order, but the file \
                 was changed after recording"
            ));
            self.cpus[at].pages = Box::new(pages);
        }
        Ok(())
    }

    fn stats_of(&self, part: &CpuPart) -> Option<&CpuStats> {
        let of = (part.cpu, part.buffer);
        self.stats
            .iter()
            .find(|stats| (stats.cpu, stats.buffer) == of)
    }

    /// Losses at a CPU's end reach to the trace's. Its last events may lie beyond the window that
    /// the recorder states.
    fn end<const BIG: bool>(&self) -> Result<Option<i64>> {
        Ok(self.info.window.1.max(self.last_stamp::<BIG>()?))
    }

    /// The sub-buffers of `part` that hold events from `from` on.
    fn pages<const BIG: bool>(&self, part: &CpuPart, from: Option<i64>) -> Result<Box<dyn Pages>> {
        let Some(from) = from else {
            return part.pages.whole();
        };
        let at = self.plan.layout.timestamp;
        part.pages.since(self.plan.layout.bytes, &|head| {
            head.len() >= at + 8 && part.clock.apply(u64_at::<BIG>(head, at)) < from
        })
    }

    fn run<const BIG: bool>(
        &self,
        from: Option<i64>,
        chores: Option<&Arc<Chores>>,
        sink: &mut dyn EventSink,
    ) -> Result<SourceEnd> {
        let window = self.info.window;
        let end = self.end::<BIG>()?;
        let mut streams = Vec::with_capacity(self.cpus.len());
        // Switches of chosen processes stand in the second buffer, too, ahead of their stacks.
        let second = self.cpus.iter().any(|part| part.buffer > 0).then(|| Plan {
            catalogue: Arc::new(self.plan.catalogue.without_switches()),
            ..self.plan.clone()
        });
        for part in &self.cpus {
            let mut pages = self.pages::<BIG>(part, from)?;
            if let Some(chores) = chores.filter(|_| streams.len() < read_ahead::MOST) {
                pages = Box::new(ReadAhead::new(pages, chores));
            }
            let tail = if part.cut {
                Tail::Truncated
            } else if part.unfinished {
                Tail::Unfinished
            } else {
                match self.stats_of(part) {
                    Some(stats) if from.is_none() => Tail::Counted(*stats),
                    _ => Tail::Whole,
                }
            };
            let only_gap = match self.stats_of(part) {
                Some(stats) if stats.overrun > 0 && from.is_none() => {
                    let marks = Marks::read::<BIG>(part.pages.whole()?, self.plan.layout)?;
                    (marks.uncounted == 1).then(|| stats.overrun.saturating_sub(marks.counted))
                }
                _ => None,
            };
            let plan = second.as_ref().filter(|_| part.buffer > 0);
            let (plan, clock) = (plan.unwrap_or(&self.plan).clone(), part.clock.clone());
            let stream = CpuStream::<BIG>::new(part.cpu, plan, clock, pages);
            let late = part.late && from.is_none();
            let stream = stream.with_late_start(late).with_tail(tail);
            streams.push(stream.with_only_gap(only_gap));
        }
        let total = streams.iter().map(CpuStream::total).sum();
        let mut shared = Shared {
            mapper: Mapper::with_symbols(self.plan.catalogue.symbols()),
            total,
            end,
            ..Shared::default()
        };
        for stream in &mut streams {
            stream.prime(&mut shared, sink)?;
        }
        // A damaged window may begin after events.
        let first = streams.iter().filter_map(CpuStream::first);
        let begin = first.chain(window.0).min();
        if let Some(begin) = begin {
            for stream in &mut streams {
                stream.began(begin);
            }
            for stats in &self.stats {
                self.whole_window(stats, &streams, (begin, end.unwrap_or(begin)), sink)?;
            }
            for (part, stream) in self.cpus.iter().zip(&streams) {
                if part.unfinished && stream.first().is_none() {
                    sink.event(&Event::Loss {
                        cpu: Some(part.cpu),
                        ts_begin: begin,
                        ts_end: end.unwrap_or(begin).max(begin),
                        count: None,
                        reason: LossReason::Absent,
                    })?;
                }
            }
        }
        merge(&mut streams, &mut shared, sink)?;
        sink.progress(total, total)?;

        let mut done = SourceEnd {
            warnings: self.warnings.clone(),
            ..SourceEnd::default()
        };
        done.last_names.clone_from(&self.last_names);
        let moves = std::mem::take(&mut shared.mapper.group_moves);
        moves.finish(self.hierarchy, &mut done);
        done.scheduler_dump = std::mem::take(&mut shared.mapper.scheduler_dump);
        for (part, stream) in self.cpus.iter().zip(&streams) {
            report(stream, &self.plan, self.stats_of(part), &mut done);
        }
        Ok(done)
    }

    /// What may be missing anywhere in the window: events that were never
    /// written, and all of a CPU whose file holds none of them.
    fn whole_window<const BIG: bool>(
        &self,
        stats: &CpuStats,
        streams: &[CpuStream<BIG>],
        (begin, end): (i64, i64),
        sink: &mut dyn EventSink,
    ) -> Result<()> {
        let there = self.cpus.iter().zip(streams).any(|(part, stream)| {
            (part.cpu, part.buffer) == (stats.cpu, stats.buffer) && stream.first().is_some()
        });
        let gone = stats.missing(0).saturating_add(stats.overrun);
        let (count, reason) = match (there, stats.never_written) {
            (false, never) if gone > 0 => (Some(gone.saturating_add(never)), LossReason::Absent),
            // Their number stands among the losses without a place.
            (_, 1..) => (None, LossReason::Overrun),
            _ => return Ok(()),
        };
        sink.event(&Event::Loss {
            cpu: Some(stats.cpu),
            ts_begin: begin,
            ts_end: end.max(begin),
            count,
            reason,
        })
    }

    fn extents<const BIG: bool>(&self) -> Result<Vec<(&CpuPart, Extent)>> {
        let mut extents = Vec::new();
        for part in &self.cpus {
            let (Some(head), Some(tail)) =
                (part.pages.head()?, part.pages.tail(self.plan.layout.bytes)?)
            else {
                continue;
            };
            let head = self.run_alone::<BIG>(part, head);
            let tail = self.run_alone::<BIG>(part, tail);
            if let (Some(first), Some(last)) = (head.first(), tail.last().max(head.last())) {
                let cpu = part.cpu;
                extents.push((part, Extent { cpu, first, last }));
            }
        }
        Ok(extents)
    }
}

/// What one CPU's stream counted, in rows and sentences.
fn report<const BIG: bool>(
    stream: &CpuStream<BIG>,
    plan: &Plan,
    stats: Option<&CpuStats>,
    done: &mut SourceEnd,
) {
    let cpu = stream.cpu();
    for (known, &count) in plan.catalogue.events().iter().zip(stream.counts()) {
        if count > 0 {
            done.counts.push((known.name.clone(), cpu, count));
        }
    }
    if let Some(stats) = stats
        && stream.first().is_some()
    {
        uncounted(stream, stats, done);
    }
    if stream.backwards() > 0 {
        done.warnings.push(format!(
            "CPU {cpu}: {} time stamps go backwards; each was raised to the one before it",
            stream.backwards()
        ));
    }
    if stream.damaged() > 0 {
        done.warnings.push(format!(
            "CPU {cpu}: {} damaged sub-buffers were left out; a loss stands in their place",
            stream.damaged()
        ));
    }
}

/// What the kernel counted beyond the losses that the stream could place: sums
/// are the kernel's, and no event stands in them twice.
fn uncounted<const BIG: bool>(stream: &CpuStream<BIG>, stats: &CpuStats, done: &mut SourceEnd) {
    let cpu = stream.cpu();
    let mut add = |count: u64, reason| {
        if count > 0 {
            done.unplaced_losses.push((Some(cpu), count, reason));
        }
    };
    add(stats.never_written, LossReason::Overrun);
    let there = stream.records();
    let missing = stats.missing(there);
    let first = stats.missing_first(there);
    let inside =
        stream.damaged() == 0 && stats.missing_inside(there, stream.clock(), stream.last());
    if first {
        add(missing, LossReason::LateStart);
    }
    if inside {
        add(missing, LossReason::Overrun);
        done.anywhere.push((Some(cpu), missing));
        done.warnings.push(format!(
            "CPU {cpu}: the kernel counted {missing} more events than the file has; the \
             trace does not show where they are missing"
        ));
    }
    if stats.lost_below_zero {
        add(1, LossReason::Overrun);
        // Two at least: of one, what is missing shows.
        done.anywhere.push((Some(cpu), 2));
        done.warnings.push(format!(
            "CPU {cpu}: a count of lost events is below zero: how many were lost, and when, is \
             not known"
        ));
    }
    if stats.written_below_zero {
        done.warnings.push(format!(
            "CPU {cpu}: a count of recorded events is below zero: whether the file has all of \
             them is not known"
        ));
    }
    let more = there.saturating_sub(stats.read.saturating_add(stats.unread));
    if more > 0 && !stats.of_a_part && !stats.written_below_zero {
        done.warnings.push(format!(
            "CPU {cpu}: the file has {more} more events than the kernel counted: the file was \
             changed after recording, or two recordings were mixed"
        ));
    }
    let unplaced = stats.overrun.saturating_sub(stream.told_lost());
    add(unplaced, LossReason::Overrun);
    if unplaced > 0 && stream.uncounted_gaps() == 0 {
        done.anywhere.push((Some(cpu), unplaced));
    }
    if first && missing > 0 {
        done.warnings.push(format!(
            "CPU {cpu}: {missing} events were taken by another reader before the buffer was saved"
        ));
    }
    if unplaced > 0 && stream.uncounted_gaps() > 0 {
        done.warnings.push(format!(
            "CPU {cpu}: of {} events that the kernel overwrote, {unplaced} were lost in {} gaps \
             together; how many in each is not recorded",
            stats.overrun,
            stream.uncounted_gaps()
        ));
    } else if unplaced > 0 {
        done.warnings.push(format!(
            "CPU {cpu}: the kernel overwrote {unplaced} events, and the trace does not show when"
        ));
    }
}

struct Deaf;

impl EventSink for Deaf {
    fn event(&mut self, _: &Event) -> Result<()> {
        Ok(())
    }
    fn progress(&mut self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
}

struct FtraceSource {
    trace: FtraceTrace,
    chores: Option<Arc<Chores>>,
}

impl FtraceSource {
    fn read(&self, from: Option<i64>, sink: &mut dyn EventSink) -> Result<SourceEnd> {
        let chores = self.chores.as_ref();
        match self.trace.big_endian {
            true => self.trace.run::<true>(from, chores, sink),
            false => self.trace.run::<false>(from, chores, sink),
        }
    }
}

impl Source for FtraceSource {
    fn info(&self) -> &SourceInfo {
        &self.trace.info
    }

    fn run(&mut self, sink: &mut dyn EventSink) -> Result<SourceEnd> {
        self.read(None, sink)
    }

    fn run_from(&mut self, from: i64, sink: &mut dyn EventSink) -> Result<SourceEnd> {
        self.read(Some(from), sink)
    }

    fn helped_by(&mut self, chores: &Arc<Chores>) {
        self.chores = Some(Arc::clone(chores));
    }

    fn extents(&mut self) -> Result<Option<Vec<Extent>>> {
        let extents = match self.trace.big_endian {
            true => self.trace.extents::<true>()?,
            false => self.trace.extents::<false>()?,
        };
        // What chosen processes did says nothing of when a CPU's recording began.
        let first = extents.into_iter().filter(|(part, _)| part.buffer == 0);
        Ok(Some(first.map(|(_, extent)| extent).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_tell_overwritten_events_from_never_written_ones() {
        let text = "entries: 2\noverrun: 12\ncommit overrun: 3\nbytes: 0\n\
                    oldest event ts:  1660.400411\nnow ts:  1660.716206\n\
                    dropped events: 4\nread events: 17179\n";
        let expected = CpuStats {
            cpu: 5,
            buffer: 0,
            overrun: 12,
            never_written: 7,
            unread: 2,
            read: 17179,
            oldest: Some(1_660_400_411_000),
            now: Some(1_660_716_206_000),
            ticks: false,
            of_a_part: false,
            lost_below_zero: false,
            written_below_zero: false,
        };
        assert_eq!(CpuStats::parse(5, text), Some(expected));
        let text = "entries: 2\noldest event ts: 52054\nnow ts: 52122\n";
        let counted = CpuStats::parse(5, text).unwrap();
        assert_eq!(
            (counted.oldest, counted.now, counted.ticks),
            (None, None, true)
        );
        assert_eq!(CpuStats::parse(5, ""), None);
    }

    /// Kernels print -2 as 18446744073709551614.
    #[test]
    fn a_count_below_zero_is_no_count() {
        let text = "entries: 18446744073709551614\noverrun: 3\nread events: 7\n";
        let counted = CpuStats::parse(0, text).unwrap();
        assert_eq!((counted.unread, counted.missing(2)), (0, 0));
        assert!(counted.written_below_zero && !counted.lost_below_zero);
        let text = "entries: 0\ncommit overrun: 9223372036854775808\nread events: 7\n";
        let counted = CpuStats::parse(0, text).unwrap();
        assert_eq!((counted.never_written, counted.missing(2)), (0, 5));
        assert!(!counted.written_below_zero && counted.lost_below_zero);
    }

    #[test]
    fn entries_are_lost_only_if_the_file_lacks_them() {
        let stats = |unread, read| CpuStats {
            unread,
            read,
            ..CpuStats::default()
        };
        // Counted before the buffer was saved, and after it was read.
        assert_eq!(stats(900, 0).missing(900), 0);
        assert_eq!(stats(0, 900).missing(900), 0);
        assert_eq!(stats(4, 900).missing(900), 4);
        assert!(!stats(4, 900).missing_first(900));
        assert_eq!(stats(900, 30).missing(900), 30);
        assert!(stats(900, 30).missing_first(900));
        // All that was read, and is not there, may have been the last.
        assert!(!stats(0, 30).missing_first(0));
    }

    #[test]
    fn a_file_that_reaches_as_far_as_what_was_read_lacks_something_inside() {
        let stats = |unread, read| CpuStats {
            unread,
            read,
            oldest: Some(5_000),
            ..CpuStats::default()
        };
        let inside = |stats: CpuStats, last| stats.missing_inside(880, &Clock::default(), last);
        assert!(inside(stats(0, 900), Some(5_000)));
        // Cut off at its end; nothing there; nothing missing; the rest was not read.
        assert!(!inside(stats(0, 900), Some(4_999)));
        assert!(!inside(stats(0, 900), None));
        assert!(!inside(stats(0, 880), Some(6_000)));
        assert!(!inside(stats(20, 880), Some(6_000)));
        // Read by another reader before.
        assert!(!inside(stats(880, 20), Some(6_000)));
    }
}
