//! Do the clocks of the CPUs agree?
//!
//! Events of one thread come in a forced order: it leaves a CPU before it is seen on the
//! next one, it is woken before it runs, and its `waking` precedes its enqueueing. Where
//! that order is broken, an offset between clocks is sought that mends it. Lost events
//! break the order too, but no offset mends what they break.
//!
//! See docs/trace-model.md, section Clocks.
//!
//! **A constant offset.** A CPU's clock is taken to be off by a constant only if an offset repairs
//! at least three breaks, and more than there are broken chains of switches (up to 15 of them; of
//! more, a quarter as many), and, with those of other CPUs, leaves none. Not counted are chains
//! that break at a thread which left that CPU unseen more than three times, and eight times as
//! often as seen (rule Unreported), and breaks of a thread that went to rest more than three
//! times, and eight times as often as it was woken: its wakeups are not recorded. Where there is
//! such a thread, one break in a thousand may be left. A second `waking` of a waiting thread is no
//! break if its next switch shows that its switch-in was not recorded.
//!
//! **A clock that steps or drifts.** If offsets repair at least three quarters of the breaks but
//! not all, or an offset for each eighth of the trace, or a rate, repairs all of three to five
//! breaks or at least half of six and more, `ahead` is null, nothing is moved, no wait is measured
//! (censored at 0), and a thread of which two clocks timed events is `unknown` from its last one
//! to the end of the window.
//!
//! **Another recording.** A CPU whose events are of another recording breaks the order, too. Of
//! the threads that other CPUs wake for it, we count those that run there next, and those that get
//! another `waking` instead, which happens only if the thread ran and slept meanwhile. Not counted
//! is a thread that is already running there, or that may have run there between two switches that
//! do not match; or, of a CPU that runs four or more of those it is handed, before its first
//! switch or after its last one. If there are at least four of the latter and more than of the
//! former, and the CPU switches at all, `ahead` is null, `breaks` and `breaks_left` are their
//! number, and no wait is measured.
//!
//! **Late events.** If no offset repairs the order, clocks differ in another way, or events are
//! missing. A missing event never comes, while one that a wrong clock timed comes too late:
//!
//! * a thread is switched in on a CPU while it runs on another, whose switch-out comes afterwards;
//! * one is woken a second time while it waits, and its run between the two comes afterwards;
//! * one's `wakeup` follows its switch-in;
//! * one runs without a wakeup and is woken by another CPU during that very run, if this is more
//!   frequent than in runs that a wakeup began (one-sided binomial test, p <= 0.001).
//!
//! Two such events, and more of them than broken chains, are taken for clocks that differ: `ahead`
//! is null, and `breaks` and `breaks_left` are their number. If several CPUs are involved, those
//! whose exclusion leaves no such pair are listed, the one with the most first.

mod handed;
mod late;
mod order;
mod search;

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::apart::Clocks;
use crate::error::{Error, Result};
use crate::hooks::Progress;
use crate::model::event::{Event, EventSink, Party, State, UNKNOWN_TID, WakeKind};
use handed::Handed;
use order::{Kind, Seen};

/// So many events of threads that cannot follow on those before, as the reconstruction
/// counts them, and it is worth to read the trace again.
pub const SUSPICIOUS: u64 = 2;
/// Events that are looked at, over all CPUs that are tried: bounds time and memory.
const SAMPLE: usize = 1 << 20;
/// Of a pair of clocks: no offset is believed that mends fewer breaks of order.
const MENDED: u32 = 3;
/// An offset that leaves more than one break in so many is not accepted either.
const LEFT: u32 = 4;
/// Missing switches explain at most so many breaks of order: a clock that differs breaks more.
const EXPLAINED: u32 = 16;
/// A thread that left a CPU unseen more often than this, and so many times as often as seen, is
/// one whose leaving the kernel does not report. Nothing else is missing there.
const HIDDEN: u32 = 3;
const OFTEN: u32 = 8;
/// Where a kernel hides some threads, one in so many breaks of order is theirs.
const THEIRS: u32 = 1000;
/// Losses that are minded.
const LOSSES: usize = 256;

/// How the clock of one CPU differs from those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    pub cpu: u16,
    /// It is ahead by at least and at most so many ns; None where that changes with time.
    pub ahead: Option<(i64, i64)>,
    /// Breaks of order in the trace as it stands, and those that are left.
    pub breaks: u32,
    pub left: u32,
}

/// What the offsets say of the clocks, once they are taken out; None without any.
pub fn known(offsets: &[Offset], ncpu: u16) -> Option<Clocks> {
    if offsets.is_empty() {
        return None;
    }
    let mut clock = vec![0; usize::from(ncpu)];
    let (mut width, mut moved) = (Some(0_i64), 0_i64);
    for (number, offset) in (1..).zip(offsets) {
        clock[usize::from(offset.cpu)] = number;
        let own = offset.ahead.map(|(least, most)| most - least);
        // Two CPUs may both be off by their own.
        width = width.zip(own).map(|(sum, own)| sum.saturating_add(own));
        let middle = offset.middle().unwrap_or(0);
        moved = moved.saturating_add(middle.saturating_abs());
    }
    Some(Clocks {
        clock,
        width,
        moved,
    })
}

/// What is to be taken from the stamps of each CPU; None if nothing is.
pub fn ahead(offsets: &[Offset], ncpu: u16) -> Option<Vec<i64>> {
    let mut ahead = vec![0; usize::from(ncpu)];
    for offset in offsets {
        ahead[usize::from(offset.cpu)] = offset.middle()?;
    }
    (!offsets.is_empty()).then_some(ahead)
}

impl Offset {
    /// What is taken for the offset.
    fn middle(&self) -> Option<i64> {
        self.ahead.map(|(least, most)| least + (most - least) / 2)
    }
}

/// How often a thread's switch-out was recorded, and how often one must be missing.
#[derive(Debug, Clone, Copy, Default)]
struct Leaves {
    seen: u32,
    unseen: u32,
}

impl Leaves {
    fn hidden(&self) -> bool {
        mostly_unseen(self.unseen, self.seen)
    }
}

/// Is it the rule and no accident that something of a thread is not recorded?
fn mostly_unseen(unseen: u32, seen: u32) -> bool {
    unseen > HIDDEN && unseen / OFTEN > seen
}

/// Gathers what threads did, and where.
pub struct Examiner<'a> {
    progress: &'a mut Progress<'a>,
    seen: Vec<Seen>,
    threads: HashMap<u32, u32>,
    ncpu: u16,
    most: usize,
    both_steps: bool,
    /// By CPU: the thread that was switched in last.
    current: Vec<Option<Party>>,
    /// By CPU and tid.
    leaves: FxHashMap<(u16, u32), Leaves>,
    losses: usize,
    handed: Handed,
    /// Stamps are multiples of so many ns: 1000 in text that gives microseconds.
    resolution: i64,
    /// Threads whose events alone were recorded, by tid; None: all were.
    chosen: Option<Arc<FxHashSet<u32>>>,
    /// CPUs that switch somewhere in the trace; None: that is not known.
    switching: Option<Vec<u16>>,
}

impl EventSink for Examiner<'_> {
    fn event(&mut self, event: &Event) -> Result<()> {
        let Some(event) = &self.of_chosen(event) else {
            return Ok(());
        };
        self.handed.event(event);
        match *event {
            Event::Switch {
                ts,
                cpu,
                ref prev,
                prev_state,
                ref next,
                ..
            } => {
                let kind = match prev_state {
                    State::Runnable => Kind::Ready,
                    state if state.is_at_rest() => Kind::AtRest,
                    _ => Kind::Gone,
                };
                self.follow(ts, cpu, prev, next);
                self.note(ts, prev, cpu, kind);
                self.note(ts, next, cpu, Kind::In);
            }
            Event::Wakeup {
                ts,
                cpu,
                kind,
                ref who,
                ..
            } => {
                // A new thread has no `waking`: it is as if it had not been seen before.
                if kind == WakeKind::New {
                    self.note(ts, who, cpu, Kind::Unborn);
                }
                let kind = match kind {
                    WakeKind::Waking => Kind::Waking,
                    WakeKind::Enqueued | WakeKind::New => Kind::Enqueued,
                };
                self.note(ts, who, cpu, kind);
            }
            Event::Loss {
                cpu,
                ts_begin,
                ts_end,
                ..
            } if self.losses < LOSSES => {
                self.losses += 1;
                for ts in [ts_begin, ts_end] {
                    self.seen.push(Seen {
                        ts,
                        thread: 0,
                        cpu: cpu.unwrap_or(0),
                        kind: Kind::Lost,
                    });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn progress(&mut self, done: u64, total: u64) -> Result<()> {
        if self.has_enough() {
            return Err(Error::enough());
        }
        (self.progress)(done, total)
    }
}

impl<'a> Examiner<'a> {
    /// `both_steps`: the trace has `waking` and `enqueued`.
    pub fn new(ncpu: u16, both_steps: bool, progress: &'a mut Progress<'a>) -> Self {
        Self {
            progress,
            seen: Vec::new(),
            threads: HashMap::new(),
            ncpu,
            most: (SAMPLE / usize::from(ncpu.max(2))).max(1 << 15),
            both_steps,
            current: vec![None; usize::from(ncpu)],
            leaves: FxHashMap::default(),
            losses: 0,
            handed: Handed::default(),
            resolution: 1,
            chosen: None,
            switching: None,
        }
    }

    /// Only these threads were recorded, by tid.
    #[must_use]
    pub fn with_chosen(mut self, chosen: Option<Arc<FxHashSet<u32>>>) -> Self {
        self.chosen = chosen;
        self
    }

    /// These CPUs switch somewhere in the trace: once enough is known of each, the reading may end.
    #[must_use]
    pub fn with_switching(mut self, cpus: Vec<u16>) -> Self {
        self.switching = Some(cpus);
        self
    }

    /// More events would change nothing.
    pub fn has_enough(&self) -> bool {
        let belong = |cpus: &Vec<u16>| self.handed.all_belong(cpus);
        self.full() && self.switching.as_ref().is_some_and(belong)
    }

    /// What an event says of the threads that were recorded: all others are as if idle.
    fn of_chosen(&self, event: &Event) -> Option<Event> {
        let mut event = *event;
        let Some(chosen) = &self.chosen else {
            return Some(event);
        };
        match &mut event {
            Event::Switch { prev, next, .. } => {
                for who in [prev, next] {
                    who.idle |= !chosen.contains(&who.tid);
                }
            }
            Event::Wakeup { who, .. } | Event::Migrate { who, .. } => {
                return chosen.contains(&who.tid).then_some(event);
            }
            _ => {}
        }
        Some(event)
    }

    /// Where many switches are missing, much may be mended by chance; where as many are missing
    /// as events come too late, the one explains the other.
    fn least(&self) -> u32 {
        let chain_breaks = self.chain_breaks();
        let explained = (chain_breaks + 1).min(EXPLAINED);
        MENDED.max(chain_breaks / LEFT).max(explained)
    }

    /// The number of prev/next mismatches, without threads whose switch-out is hardly ever
    /// recorded.
    fn chain_breaks(&self) -> u32 {
        let lost = self.leaves.values().filter(|leaves| !leaves.hidden());
        lost.map(|leaves| leaves.unseen).sum()
    }

    /// The kernel does not report how some threads leave.
    fn hides(&self) -> bool {
        self.leaves.values().any(Leaves::hidden)
    }

    /// Forgets threads that go to rest far more often than they are woken, whatever the order:
    /// their wakeups are not recorded, as a recorder's own are not, and no offset brings them.
    fn leave_out_unwoken(&mut self) {
        let mut rests = vec![(0_u32, 0_u32); self.threads.len()];
        for seen in &self.seen {
            if let Some((rests, wakes)) = rests.get_mut(seen.thread as usize) {
                *rests += u32::from(seen.kind == Kind::AtRest);
                *wakes += u32::from(matches!(seen.kind, Kind::Waking | Kind::Enqueued));
            }
        }
        let unwoken = |&(rests, wakes): &(u32, u32)| mostly_unseen(rests, wakes);
        self.seen.retain(|seen| {
            let counts = rests.get(seen.thread as usize);
            seen.kind == Kind::Lost || !counts.is_some_and(unwoken)
        });
    }

    fn full(&self) -> bool {
        self.seen.len() >= self.most
    }

    /// Who leaves a CPU was switched in there: if not, of neither thread anything is known.
    fn follow(&mut self, ts: i64, cpu: u16, prev: &Party, next: &Party) {
        let Some(current) = self.current.get_mut(usize::from(cpu)) else {
            return;
        };
        let idle = |one: &Party| one.idle || one.tid == 0;
        let Some(believed) = current.replace(*next) else {
            return;
        };
        let tid = if idle(&believed) { 0 } else { believed.tid };
        let leaves = self.leaves.entry((cpu, tid)).or_default();
        if believed.tid == prev.tid || idle(&believed) && idle(prev) {
            leaves.seen += 1;
        } else {
            leaves.unseen += 1;
            self.handed.switches_missing(cpu);
            self.note(ts, &believed, cpu, Kind::Unborn);
            self.note(ts, prev, cpu, Kind::Unborn);
        }
    }

    /// By tid: which of several threads with the same tid is meant depends on the order of events.
    fn note(&mut self, ts: i64, who: &Party, cpu: u16, kind: Kind) {
        let idle = who.idle || who.tid == 0 || who.tid == UNKNOWN_TID;
        if idle || cpu >= self.ncpu || self.full() {
            return;
        }
        let next = self.threads.len() as u32;
        let thread = *self.threads.entry(who.tid).or_insert(next);
        self.seen.push(Seen {
            ts,
            thread,
            cpu,
            kind,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_whose_wakeups_are_not_recorded_says_nothing_of_clocks() {
        let mut silent = |_, _| Ok(());
        let mut examiner = Examiner::new(2, true, &mut silent);
        let who = |tid| Party {
            tid,
            ..Party::default()
        };
        for ts in 0..16 {
            for kind in [Kind::In, Kind::AtRest] {
                examiner.note(ts, &who(7), 0, kind);
                examiner.note(ts, &who(8), 0, kind);
            }
            if ts % 4 == 0 {
                examiner.note(ts, &who(8), 0, Kind::Waking);
            }
        }
        examiner.leave_out_unwoken();
        assert!(examiner.seen.iter().all(|seen| seen.thread == 1));
        assert_eq!(examiner.seen.len(), 36);
    }

    #[test]
    fn the_reading_ends_once_enough_events_were_seen_of_cpus_that_belong_together() {
        let woken = |tid, cpu, target| Event::Wakeup {
            ts: 0,
            cpu,
            kind: WakeKind::Enqueued,
            waker: None,
            current: None,
            who: Party {
                tid,
                ..Party::default()
            },
            target_cpu: Some(target),
        };
        let switches = |cpu, prev, next| Event::Switch {
            ts: 0,
            cpu,
            prev: Party {
                tid: prev,
                ..Party::default()
            },
            prev_state: State::Sleeping,
            preempted: None,
            next: Party {
                tid: next,
                ..Party::default()
            },
        };
        let told = |switching: Option<Vec<u16>>, cpus: u16| {
            let mut silent = |_, _| Ok(());
            let mut examiner = Examiner::new(2, true, &mut silent);
            examiner.most = 400;
            if let Some(cpus) = switching {
                examiner = examiner.with_switching(cpus);
            }
            for round in 1..1000 {
                for cpu in 0..cpus {
                    let tid = 10 + u32::from(cpu);
                    let came = [
                        woken(tid, 1 - cpu, cpu),
                        switches(cpu, 0, tid),
                        switches(cpu, tid, 0),
                    ];
                    for event in &came {
                        examiner.event(event).expect("taken");
                    }
                }
                if examiner.progress(0, 0).is_err() {
                    assert!(examiner.has_enough());
                    return Some(round);
                }
            }
            assert!(!examiner.has_enough());
            None
        };
        let (both, one) = (told(Some(vec![0, 1]), 2), told(Some(vec![0]), 1));
        assert!(both.is_some_and(|rounds| rounds > 50), "{both:?}");
        assert!(one.is_some_and(|rounds| rounds > 100), "{one:?}");
        // Of CPU 1 nothing is seen; or it is not known whether something would be.
        assert_eq!(told(Some(vec![0, 1]), 1), None);
        assert_eq!(told(None, 2), None);
    }

    #[test]
    fn missing_switches_explain_as_many_breaks_of_order() {
        let mut silent = |_, _| Ok(());
        let mut examiner = Examiner::new(2, true, &mut silent);
        let mut least = |(seen, unseen)| {
            examiner.leaves.insert((0, 7), Leaves { seen, unseen });
            examiner.least()
        };
        let breaks = [0, 2, 5, 15, 40, 1000].map(|unseen| (unseen, unseen));
        assert_eq!(breaks.map(&mut least), [3, 3, 6, 16, 16, 250]);
        // The kernel does not report how this one leaves.
        assert_eq!([(0, 3), (0, 8), (10, 1000)].map(least), [4, 3, 3]);
    }
}
