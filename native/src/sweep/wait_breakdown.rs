//! What was the CPU doing while a thread waited for it, by what its time went to?
//!
//! Every instant of a wait belongs to one part: the CPU on whose queue the thread is ran somebody
//! of better, the same or worse priority, handled interrupts, idled, was not allowed to run the
//! thread (its group's quota was used up), or nobody knows. Parts of a wait sum up to it.
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashSet;

use super::changes::{Changes, Position, Presence, Reprio, Sweep};
use super::cpu_index::CpuIndex;
use crate::error::Result;

/// What a part of a wait went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Part {
    Better,
    Same,
    Worse,
    Interrupts,
    Throttled,
    Idle,
    Unknown,
}

pub const PARTS: usize = 7;
pub type Parts = [i64; PARTS];

/// Priorities of SCHED_IDLE come after all others.
const LAST: i16 = i16::MAX;

/// A stretch of time on a CPU, in ns after the begin of the window.
#[derive(Debug, Clone, Copy)]
pub struct OnCpu {
    pub lane: usize,
    pub begin: i64,
    pub end: i64,
}

pub struct BreakdownQuery {
    /// By utid; none: not asked for.
    pub victim: Vec<Option<u32>>,
    pub nvictims: usize,
    /// Where given, only what a thread waits on these CPUs (none: on no known queue).
    pub only: Option<FxHashSet<(u32, Option<u16>)>>,
    pub lanes: CpuIndex,
    /// By utid: threads of SCHED_IDLE.
    pub is_idle: Vec<bool>,
    /// Interrupts, in order of their begins.
    pub interrupts: Vec<OnCpu>,
    /// When the quota of a group (a number) was used up on a CPU.
    pub throttles: Vec<(u32, OnCpu)>,
    /// By utid: the number of its group, where that may be throttled.
    pub group: Vec<Option<u32>>,
    /// By utid: its group has a quota and was throttled, and nobody recorded when. Then a CPU that
    /// idles longer than `dispatch` beside the thread could not have run it.
    pub held: Vec<bool>,
    pub dispatch: i64,
    /// How many of the longest waits are kept.
    pub longest: usize,
}

/// Sums of a victim's waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    pub n: u32,
    pub wait: i64,
    pub parts: Parts,
}

/// One wait; ns after the begin of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wait {
    pub length: i64,
    pub begin: Reverse<i64>,
    pub utid: u32,
    /// On whose queue it ended, as a number of the index.
    pub lane: usize,
    pub parts: Parts,
}

/// Stretches of time that may overlap, passed in order.
#[derive(Default)]
struct Stretches {
    all: Vec<(i64, i64)>,
    /// Those before are over.
    next: usize,
}

impl Stretches {
    /// Begins are in order.
    fn add(&mut self, begin: i64, end: i64) {
        match self.all.last_mut() {
            Some(last) if begin <= last.1 => last.1 = last.1.max(end),
            _ => self.all.push((begin, end)),
        }
    }

    /// How much of the time from `since` to `t` they cover; not before what was passed already.
    fn pass(&mut self, since: i64, t: i64) -> i64 {
        let mut sum = 0;
        while let Some((begin, end)) = self.all.get(self.next).copied()
            && begin < t
        {
            sum += (end.min(t) - begin.max(since)).max(0);
            if end > t {
                break;
            }
            self.next += 1;
        }
        sum
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runner {
    Unknown,
    Idle,
    Thread(u32),
}

struct Cpu {
    runner: Runner,
    /// Up to then all who wait here are charged.
    settled: i64,
    /// Who waits here.
    waiters: Vec<u32>,
    /// Groups that may not run here now.
    throttled: Vec<u32>,
    interrupts: Stretches,
}

/// The wait that a thread is in.
#[derive(Clone, Copy)]
struct Open {
    begin: i64,
    /// Its place among the waiters of the CPU.
    place: usize,
    /// How much of `Part::Idle` is of the time since the CPU last began to idle.
    idles: i64,
    parts: Parts,
}

struct Breakdown<'a> {
    asked: &'a BreakdownQuery,
    cpus: Vec<Cpu>,
    /// By utid.
    open: Vec<Open>,
    /// `LAST` for good of SCHED_IDLE.
    prio: Vec<Option<i16>>,
    place: Vec<Position>,
    prios: std::iter::Peekable<std::slice::Iter<'a, Reprio>>,
    throttles: Vec<(i64, usize, u32, bool)>,
    next_throttle: usize,
    totals: Vec<Total>,
    longest: BinaryHeap<Reverse<Wait>>,
}

const NOT_OPEN: Open = Open {
    begin: 0,
    place: 0,
    idles: 0,
    parts: [0; PARTS],
};

impl Breakdown<'_> {
    /// Charges all who wait on a CPU up to `t`.
    fn settle(&mut self, t: i64, lane: usize) {
        let since = std::mem::replace(&mut self.cpus[lane].settled, t);
        if since >= t || self.cpus[lane].waiters.is_empty() {
            return;
        }
        let handled = self.cpus[lane].interrupts.pass(since, t);
        let rest = t - since - handled;
        let runner = self.cpus[lane].runner;
        let ahead = match runner {
            Runner::Thread(utid) => self.prio[utid as usize],
            _ => None,
        };
        for at in 0..self.cpus[lane].waiters.len() {
            let utid = self.cpus[lane].waiters[at];
            let part = if self.is_throttled(utid, lane) {
                Part::Throttled
            } else {
                match runner {
                    Runner::Unknown => Part::Unknown,
                    Runner::Idle => Part::Idle,
                    Runner::Thread(_) => match (ahead, self.prio[utid as usize]) {
                        (Some(ahead), Some(own)) if ahead < own => Part::Better,
                        (Some(ahead), Some(own)) if ahead > own => Part::Worse,
                        (Some(_), Some(_)) => Part::Same,
                        _ => Part::Unknown,
                    },
                }
            };
            let open = &mut self.open[utid as usize];
            open.parts[Part::Interrupts as usize] += handled;
            open.parts[part as usize] += rest;
            open.idles += if part == Part::Idle { rest } else { 0 };
        }
    }

    fn counts(&self, utid: u32, lane: usize) -> bool {
        let only = self.asked.only.as_ref();
        only.is_none_or(|only| only.contains(&(utid, self.asked.lanes.number(lane))))
    }

    fn is_throttled(&self, utid: u32, lane: usize) -> bool {
        let throttled = &self.cpus[lane].throttled;
        !throttled.is_empty()
            && (self.asked.group.get(utid as usize).copied().flatten())
                .is_some_and(|group| throttled.contains(&group))
    }

    /// The CPU ends to idle beside the thread, or the thread leaves it.
    fn idled(&mut self, utid: u32) {
        let held = self.asked.held.get(utid as usize).copied();
        let open = &mut self.open[utid as usize];
        let idles = std::mem::take(&mut open.idles);
        if held.unwrap_or(false) && idles > self.asked.dispatch {
            open.parts[Part::Idle as usize] -= idles;
            open.parts[Part::Throttled as usize] += idles;
        }
    }

    fn stops_idling(&mut self, lane: usize) {
        if self.cpus[lane].runner == Runner::Idle {
            for at in 0..self.cpus[lane].waiters.len() {
                self.idled(self.cpus[lane].waiters[at]);
            }
        }
    }

    fn runs(&mut self, t: i64, lane: usize, runner: Runner) {
        self.settle(t, lane);
        if self.cpus[lane].runner != runner {
            self.stops_idling(lane);
            self.cpus[lane].runner = runner;
        }
    }

    fn joins(&mut self, t: i64, utid: u32, lane: usize) {
        self.settle(t, lane);
        let waiters = &mut self.cpus[lane].waiters;
        self.open[utid as usize].place = waiters.len();
        waiters.push(utid);
    }

    fn leaves(&mut self, t: i64, utid: u32, lane: usize) {
        self.settle(t, lane);
        self.idled(utid);
        let place = self.open[utid as usize].place;
        let waiters = &mut self.cpus[lane].waiters;
        waiters.swap_remove(place);
        if let Some(moved) = waiters.get(place) {
            self.open[*moved as usize].place = place;
        }
    }

    fn ends(&mut self, t: i64, utid: u32, victim: u32, lane: usize) {
        let Open { begin, parts, .. } = self.open[utid as usize];
        let total = &mut self.totals[victim as usize];
        total.n += 1;
        total.wait += t - begin;
        for (sum, part) in total.parts.iter_mut().zip(parts) {
            *sum += part;
        }
        let wait = Wait {
            length: t - begin,
            begin: Reverse(begin),
            utid,
            lane,
            parts,
        };
        if self.longest.len() < self.asked.longest {
            self.longest.push(Reverse(wait));
        } else if let Some(mut least) = self.longest.peek_mut()
            && least.0 < wait
        {
            *least = Reverse(wait);
        }
    }

    /// Priorities and quotas that change at `t` or before.
    fn come_to(&mut self, t: i64) {
        while let Some(change) = self.prios.next_if(|change| change.t <= t) {
            let Position { doing, cpu, .. } = self.place[change.utid as usize];
            if doing != Presence::Away {
                let lane = self.asked.lanes.of(cpu);
                self.settle(change.t.max(self.cpus[lane].settled), lane);
            }
            if self.asked.is_idle.get(change.utid as usize) != Some(&true) {
                self.prio[change.utid as usize] = change.prio;
            }
        }
        while let Some((at, lane, group, begins)) = self.throttles.get(self.next_throttle).copied()
            && at <= t
        {
            self.next_throttle += 1;
            self.settle(at.max(self.cpus[lane].settled), lane);
            let throttled = &mut self.cpus[lane].throttled;
            if begins {
                throttled.push(group);
            } else if let Some(place) = throttled.iter().position(|one| *one == group) {
                throttled.swap_remove(place);
            }
        }
    }
}

impl Sweep for Breakdown<'_> {
    fn change(&mut self, t: i64, utid: u32, from: Position, to: Position) {
        self.come_to(t);
        self.place[utid as usize] = to;
        let nowhere = self.asked.lanes.nowhere();
        let (left, taken) = (self.asked.lanes.of(from.cpu), self.asked.lanes.of(to.cpu));
        if from.doing == Presence::Running
            && left != nowhere
            && self.cpus[left].runner == Runner::Thread(utid)
        {
            self.runs(t, left, Runner::Unknown);
        }
        let victim = self.asked.victim.get(utid as usize).copied().flatten();
        if let Some(victim) = victim {
            let waited = from.doing == Presence::Waiting && self.counts(utid, left);
            let waits = to.doing == Presence::Waiting && self.counts(utid, taken);
            if waited {
                self.leaves(t, utid, left);
            }
            if waited && !waits {
                self.ends(t, utid, victim, left);
            }
            if waits {
                if !waited {
                    self.open[utid as usize] = Open {
                        begin: t,
                        ..NOT_OPEN
                    };
                }
                self.joins(t, utid, taken);
            }
        }
        if to.doing == Presence::Running && taken != nowhere {
            self.runs(t, taken, Runner::Thread(utid));
        }
    }

    fn idle(&mut self, t: i64, cpu: u16, begins: bool) {
        self.come_to(t);
        let lane = self.asked.lanes.of(cpu);
        if lane == self.asked.lanes.nowhere() {
            return;
        }
        if begins {
            self.runs(t, lane, Runner::Idle);
        } else if self.cpus[lane].runner == Runner::Idle {
            self.runs(t, lane, Runner::Unknown);
        }
    }

    fn instant(&mut self, _t: i64) {}
}

/// Sums of each victim's waits, and the longest waits of all, the longest first.
pub fn breakdown(asked: &BreakdownQuery, changes: &Changes) -> Result<(Vec<Total>, Vec<Wait>)> {
    let mut cpus: Vec<Cpu> = (0..asked.lanes.count())
        .map(|_| Cpu {
            runner: Runner::Unknown,
            settled: 0,
            waiters: Vec::new(),
            throttled: Vec::new(),
            interrupts: Stretches::default(),
        })
        .collect();
    for one in &asked.interrupts {
        cpus[one.lane].interrupts.add(one.begin, one.end);
    }
    let mut throttles: Vec<(i64, usize, u32, bool)> = (asked.throttles.iter())
        .flat_map(|(group, one)| {
            [
                (one.begin, one.lane, *group, true),
                (one.end, one.lane, *group, false),
            ]
        })
        .collect();
    // At one instant what ends goes before what begins.
    throttles.sort_by_key(|(at, _, _, begins)| (*at, *begins));
    let away = Position {
        doing: Presence::Away,
        cpu: crate::states::NOWHERE,
        tag: 0,
    };
    let mut sweep = Breakdown {
        asked,
        cpus,
        open: vec![NOT_OPEN; changes.threads],
        prio: (0..changes.threads)
            .map(|utid| (asked.is_idle.get(utid) == Some(&true)).then_some(LAST))
            .collect(),
        place: vec![away; changes.threads],
        prios: changes.prios.iter().peekable(),
        throttles,
        next_throttle: 0,
        totals: vec![Total::default(); asked.nvictims],
        longest: BinaryHeap::new(),
    };
    changes.tell(&mut sweep)?;
    let longest = sweep.longest.into_sorted_vec();
    Ok((
        sweep.totals,
        longest.into_iter().map(|wait| wait.0).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_overlap_count_once() {
        let mut stretches = Stretches::default();
        for (begin, end) in [(10, 20), (12, 14), (18, 25), (40, 50)] {
            stretches.add(begin, end);
        }
        let passed: Vec<i64> = [(0, 11), (11, 11), (11, 30), (30, 45), (45, 60)]
            .map(|(since, t)| stretches.pass(since, t))
            .to_vec();
        assert_eq!(passed, [1, 0, 14, 5, 5]);
    }
}
