//! The CPUs of one trace put together: a [`Source`].

use crate::decode::ftrace::clock::Clock;
use crate::decode::ftrace::pages::Pages;
use crate::decode::ftrace::stream::{CpuStream, Plan, Shared};
use crate::decode::merge::merge;
use crate::error::{Error, Result};
use crate::model::event::{Comm, Event, EventSink, LossReason, Source, SourceEnd, SourceInfo};

/// One CPU's part of a trace.
pub struct CpuPart {
    pub cpu: u16,
    pub clock: Clock,
    pub pages: Box<dyn Pages>,
    /// The file ends before this CPU's data does.
    pub cut: bool,
}

/// What `per_cpu/cpuN/stats` counted, as far as it concerns losses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuStats {
    pub cpu: u16,
    /// Overwritten before they were read: sub-buffers mark the place.
    pub overrun: u64,
    /// Never written: interrupted while the sub-buffer filled, or it was full.
    pub never_written: u64,
    /// Still in the kernel's buffer when the recording was saved: the last ones.
    pub unread: u64,
}

impl CpuStats {
    /// Reads the text of a `stats` file.
    pub fn parse(cpu: u16, text: &str) -> Self {
        let find = |name: &str| {
            text.lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(key, _)| key.trim() == name)
                .and_then(|(_, value)| value.trim().parse::<u64>().ok())
                .unwrap_or(0)
        };
        Self {
            cpu,
            overrun: find("overrun"),
            never_written: find("commit overrun").saturating_add(find("dropped events")),
            unread: find("entries"),
        }
    }
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
}

/// Bytes of each CPU looked at to see which wake steps were recorded.
const SAMPLED: u64 = 2 << 20;

impl FtraceTrace {
    /// Formats are described whether recorded or not: looks at the first
    /// events to tell which wake steps there are.
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

    pub fn into_source(self) -> Box<dyn Source> {
        Box::new(FtraceSource {
            info: self.info.clone(),
            trace: Some(self),
        })
    }

    fn run<const BIG: bool>(self, sink: &mut dyn EventSink) -> Result<SourceEnd> {
        let window = self.info.window;
        let reaches_end = |stats: &CpuStats| stats.never_written > 0 || stats.unread > 0;
        let to_the_end = self.stats.iter().any(reaches_end);
        let cut = self
            .cpus
            .iter()
            .any(|part| part.cut || part.pages.cut(self.plan.layout.bytes));
        let end = match window.1 {
            None if to_the_end || cut => self.last_stamp::<BIG>()?,
            end => end,
        };
        let mut streams: Vec<CpuStream<BIG>> = self
            .cpus
            .into_iter()
            .map(|part| {
                let unread = self
                    .stats
                    .iter()
                    .find(|stats| stats.cpu == part.cpu && stats.unread > 0);
                let tail = match unread {
                    _ if part.cut => Some((None, LossReason::Truncated)),
                    Some(stats) => Some((Some(stats.unread), LossReason::EarlyEnd)),
                    None => None,
                };
                CpuStream::new(part.cpu, self.plan.clone(), part.clock, part.pages)
                    .with_tail_lost(tail)
            })
            .collect();
        let total = streams.iter().map(CpuStream::total).sum();
        let mut shared = Shared {
            total,
            end,
            ..Shared::default()
        };
        for stream in &mut streams {
            stream.prime(&mut shared, sink)?;
        }
        let begin = window
            .0
            .or_else(|| streams.iter().filter_map(CpuStream::first).min());
        if let Some(begin) = begin {
            for stream in &mut streams {
                stream.began(begin);
            }
            for stats in self.stats.iter().filter(|stats| stats.never_written > 0) {
                sink.event(&Event::Loss {
                    cpu: Some(stats.cpu),
                    ts_begin: begin,
                    ts_end: end.unwrap_or(begin).max(begin),
                    count: Some(stats.never_written),
                    reason: LossReason::Overrun,
                })?;
            }
        }
        merge(&mut streams, &mut shared, sink)?;
        sink.progress(total, total)?;

        let mut done = SourceEnd {
            warnings: self.warnings,
            ..SourceEnd::default()
        };
        done.last_names = self.last_names;
        for stream in &streams {
            report(stream, &self.plan, &self.stats, &mut done);
        }
        Ok(done)
    }
}

/// What one CPU's stream counted, in rows and sentences.
fn report<const BIG: bool>(
    stream: &CpuStream<BIG>,
    plan: &Plan,
    stats: &[CpuStats],
    done: &mut SourceEnd,
) {
    let cpu = stream.cpu();
    for (known, &count) in plan.catalogue.events().iter().zip(stream.counts()) {
        if count > 0 {
            done.counts.push((known.name.clone(), cpu, count));
        }
    }
    if let Some(stats) = stats.iter().find(|stats| stats.cpu == cpu) {
        if stats.never_written > 0 {
            done.unplaced_losses
                .push((Some(cpu), stats.never_written, LossReason::Overrun));
        }
        let unplaced = stats.overrun.saturating_sub(stream.told_lost());
        if unplaced > 0 && !stream.lost_uncounted() {
            done.unplaced_losses
                .push((Some(cpu), unplaced, LossReason::Overrun));
            done.warnings.push(format!(
                "CPU {cpu}: the kernel overwrote {unplaced} events, and the trace does not tell when"
            ));
        }
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
    info: SourceInfo,
    trace: Option<FtraceTrace>,
}

impl Source for FtraceSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn run(&mut self, sink: &mut dyn EventSink) -> Result<SourceEnd> {
        let trace = self.trace.take().ok_or_else(|| {
            Error::usage(
                "this trace was read already",
                "one pass",
                "open the file again",
            )
        })?;
        if trace.big_endian {
            trace.run::<true>(sink)
        } else {
            trace.run::<false>(sink)
        }
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
            overrun: 12,
            never_written: 7,
            unread: 2,
        };
        assert_eq!(CpuStats::parse(5, text), expected);
    }
}
