//! CPUs that idle until their first switch.
//!
//! A full event names the thread that leaves. A compact switch does not name the thread that
//! leaves, so the thread before a CPU's first one is unknown: it was still runnable, which holds
//! for the idle thread and for a preempted one. A preempted thread waits from then on: it runs
//! again, without a wakeup, before its CPU goes idle, unless another CPU pulls it. If no such
//! thread appears on any CPU until its CPU has been idle for a while, there was none.

use rustc_hash::FxHashSet;

use super::{Cursor, Memberships, Perfetto, Shared, missing_until};
use crate::error::{Error, Result};
use crate::hooks::check_interrupt;
use crate::merge::{Stream, merge};
use crate::model::event::{Event, EventSink, UNKNOWN_TID};

/// A CPU that switches for the first time so late may have idled until then.
const LATE: i64 = 20_000_000;
/// A thread that another CPU took over from it runs there within this time of its going idle.
const TAKEN_OVER: i64 = 100_000_000;

impl Perfetto {
    pub(super) fn who_idles_first(&mut self) -> Result<()> {
        let trace = &*self;
        let cpus = trace.scan.bundles.len();
        let mut shared = Shared::of(trace);
        // Of each CPU, when it first switches, and up to when events of it are missing.
        let (mut begin, mut first) = (i64::MAX, vec![None; cpus]);
        for (cpu, first) in first.iter_mut().enumerate() {
            let mut cursor = Cursor::new(trace, cpu);
            let (mut missing, mut from_idle) = (None, None);
            while let Some(head) = cursor.load(&mut shared)? {
                let ts = cursor.head().map_or(i64::MAX, |head| head.ts);
                begin = begin.min(ts);
                let overwritten = trace.scan.service_buffers.overwritten > 0;
                missing = missing.max(missing_until(&head, ts, overwritten));
                if cursor.state.counts[0] > 0 {
                    from_idle = cursor.events.first_from_idle();
                    break;
                }
            }
            let wanting = cursor.state.left_wanting;
            *first = Some((from_idle, wanting, missing));
        }
        let state = |(from_idle, wanting, missing): (Option<i64>, Option<i64>, Option<i64>)| {
            if missing > Some(begin) {
                return Cpu::Known;
            }
            match (from_idle, wanting) {
                (Some(_), _) => Cpu::Idled,
                (None, Some(ts)) if ts.saturating_sub(begin) > LATE => Cpu::Silent,
                _ => Cpu::Known,
            }
        };
        let cpus: Vec<Cpu> = first.into_iter().flatten().map(state).collect();
        let look = if cpus.contains(&Cpu::Silent) {
            self.look(cpus)?
        } else {
            cpus
        };
        self.idle_first = look.iter().map(Cpu::idled).collect();
        let idle = (0..).zip(&self.idle_first).filter(|&(_, &idle)| idle);
        self.info.idle_at_first = idle.map(|(cpu, _)| cpu).collect();
        Ok(())
    }

    /// Whether a thread was preempted on each of the CPUs that are silent at first.
    fn look(&self, cpus: Vec<Cpu>) -> Result<Vec<Cpu>> {
        let trace = self;
        let mut look = Look {
            cpus,
            seen: FxHashSet::default(),
            done: false,
        };
        let mut cursors: Vec<Cursor> = (0..trace.scan.bundles.len())
            .map(|cpu| Cursor::new(trace, cpu))
            .collect();
        let mut shared = Shared::of(trace);
        for cursor in &mut cursors {
            cursor.load(&mut shared)?;
        }
        match merge(&mut cursors, &mut shared, &mut look) {
            Err(_) if look.done => {}
            read => read?,
        }
        Ok(look.cpus)
    }
}

impl<'a> Shared<'a> {
    pub(super) fn of(trace: &'a Perfetto) -> Self {
        Self {
            known: Memberships::new(&trace.scan),
            bytes: Vec::new(),
            done: 0,
            told: 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cpu {
    /// It need not be asked, or a thread was preempted there.
    Known,
    /// Until its first switch.
    Silent,
    /// From that to when it idles.
    Busy,
    /// Since when it idles.
    Idle(i64),
    /// It idled at first.
    Idled,
}

impl Cpu {
    fn idled(&self) -> bool {
        matches!(self, Self::Idle(_) | Self::Idled)
    }
}

/// Looks for threads that were preempted where they ran at first.
struct Look {
    cpus: Vec<Cpu>,
    /// Threads that ran or were woken.
    seen: FxHashSet<u32>,
    done: bool,
}

impl Look {
    /// A thread runs that was neither seen nor woken before.
    fn appears(&mut self) {
        for cpu in &mut self.cpus {
            if matches!(cpu, Cpu::Busy | Cpu::Idle(_)) {
                *cpu = Cpu::Known;
            }
        }
    }
}

impl EventSink for Look {
    fn event(&mut self, event: &Event) -> Result<()> {
        match *event {
            Event::Wakeup { ref who, .. } => {
                self.seen.insert(who.tid);
            }
            Event::Fork { ref child, .. } => {
                self.seen.insert(child.tid);
            }
            Event::Switch {
                ts,
                cpu,
                ref prev,
                ref next,
                ..
            } => {
                let at = usize::from(cpu);
                if prev.tid != UNKNOWN_TID {
                    self.seen.insert(prev.tid);
                }
                if next.tid != 0 && self.seen.insert(next.tid) {
                    self.appears();
                }
                for cpu in &mut self.cpus {
                    if matches!(*cpu, Cpu::Idle(since) if ts.saturating_sub(since) > TAKEN_OVER) {
                        *cpu = Cpu::Idled;
                    }
                }
                self.cpus[at] = match self.cpus[at] {
                    Cpu::Silent => Cpu::Busy,
                    Cpu::Busy if next.tid == 0 => Cpu::Idle(ts),
                    other => other,
                };
                let asked = |cpu: &Cpu| !matches!(cpu, Cpu::Known | Cpu::Idled);
                if !self.cpus.iter().any(asked) {
                    self.done = true;
                    return Err(Error::usage("enough was read", "", ""));
                }
            }
            // Who was woken or ran meanwhile is not known.
            Event::Loss { .. } => self.cpus.fill(Cpu::Known),
            _ => {}
        }
        Ok(())
    }

    fn progress(&mut self, _: u64, _: u64) -> Result<()> {
        check_interrupt()
    }
}
