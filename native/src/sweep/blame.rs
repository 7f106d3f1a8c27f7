//! Who ran on the CPU on whose queue a thread waited?
use rustc_hash::{FxHashMap, FxHashSet};

use super::changes::{Changes, Doing, Place, Sweep};
use super::lanes::Lanes;
use super::ledger::Ledger;
use crate::error::Result;

/// How a wait began, as many as the trace model has.
pub const CAUSES: usize = 5;
pub const UNKNOWN_CAUSE: u8 = 4;

/// Whose waits, and by which groups their time is told apart.
pub struct Question {
    /// By utid; none: not asked for.
    pub victim: Vec<Option<u32>>,
    /// Where given, only waits of a thread on these CPUs (none: on no known queue).
    pub only: Option<FxHashSet<(u32, Option<u16>)>>,
    /// By utid.
    pub group: Vec<u32>,
    pub ngroups: u32,
    pub lanes: Lanes,
    pub ledger: Ledger,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Cell {
    /// By the cause of the wait, ns.
    pub time: [i64; CAUSES],
    /// Waits.
    pub n: u32,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Total {
    pub wait: i64,
    pub n: u32,
}

struct Waiter {
    utid: u32,
    victim: u32,
    cause: u8,
    begin: i64,
}

#[derive(Default)]
struct Cpu {
    waiters: Vec<Waiter>,
    /// Groups that run here and since when: one, unless the trace contradicts itself.
    on: Vec<(u32, i64)>,
    /// Since when nobody is known to.
    unknown: i64,
    /// When the last run of a group ended that is over.
    ended: FxHashMap<u32, i64>,
}

/// The wait that a thread is in, as far as it is told.
#[derive(Default, Clone)]
struct Life {
    number: Option<u32>,
    /// Groups counted in it.
    seen: Vec<u32>,
}

struct Blame<'a> {
    question: &'a mut Question,
    cpus: Vec<Cpu>,
    lives: Vec<Life>,
    dense: Vec<Cell>,
    sparse: FxHashMap<u64, Cell>,
    totals: FxHashMap<u32, Total>,
    width: usize,
}

/// Cells of a table, up to which there is one: 48 MB.
const DENSE: usize = 1 << 20;

impl Blame<'_> {
    fn cell(&mut self, victim: u32, group: u32) -> &mut Cell {
        let at = victim as usize * self.width + group as usize;
        if self.dense.is_empty() { self.sparse.entry(at as u64).or_default() } else { &mut self.dense[at] }
    }

    fn charge(&mut self, waiter: &Waiter, group: u32, time: i64, first: bool) {
        let counts = first && {
            let seen = &mut self.lives[waiter.utid as usize].seen;
            let fresh = !seen.contains(&group);
            if fresh {
                seen.push(group);
            }
            fresh
        };
        let cause = usize::from(waiter.cause).min(CAUSES - 1);
        let cell = self.cell(waiter.victim, group);
        cell.time[cause] += time;
        cell.n += u32::from(counts);
    }

    /// A group had the CPU in `[since, t)`: so much did everybody wait for it who still waits.
    fn over(&mut self, lane: usize, group: u32, since: i64, t: i64) {
        if t <= since {
            return;
        }
        let waiters = std::mem::take(&mut self.cpus[lane].waiters);
        let before = self.cpus[lane].ended.insert(group, t).unwrap_or(i64::MIN);
        for waiter in &waiters {
            let time = t - since.max(waiter.begin);
            if time > 0 {
                self.charge(waiter, group, time, before <= waiter.begin);
            }
        }
        self.cpus[lane].waiters = waiters;
    }

    fn runs(&mut self, t: i64, lane: usize, group: u32, begins: bool) {
        if begins {
            if self.cpus[lane].on.is_empty() {
                self.over(lane, self.question.ngroups + 1, self.cpus[lane].unknown, t);
            }
            self.cpus[lane].on.push((group, t));
            return;
        }
        let on = &mut self.cpus[lane].on;
        let Some(at) = on.iter().position(|(running, _)| *running == group) else { return };
        let (_, since) = on.swap_remove(at);
        if on.is_empty() {
            self.cpus[lane].unknown = t;
        }
        self.over(lane, group, since, t);
    }

    fn waits(&mut self, t: i64, utid: u32, cpu: u16, begins: bool) {
        let Some(victim) = self.question.victim.get(utid as usize).copied().flatten() else { return };
        let lane = self.question.lanes.of(cpu);
        if begins {
            if let Some(only) = &self.question.only {
                if !only.contains(&(utid, self.question.lanes.number(lane))) {
                    return;
                }
            }
            let wait = self.question.ledger.next(utid, t);
            let life = &mut self.lives[utid as usize];
            let number = wait.map(|wait| wait.number);
            let total = self.totals.entry(victim).or_default();
            if number.is_none() || number != life.number {
                // A stretch without a wait is one of its own.
                life.number = number;
                life.seen.clear();
                total.n += 1;
            }
            let cause = wait.map_or(UNKNOWN_CAUSE, |wait| wait.cause);
            self.cpus[lane].waiters.push(Waiter { utid, victim, cause, begin: t });
            return;
        }
        let waiters = &mut self.cpus[lane].waiters;
        let Some(at) = waiters.iter().position(|waiter| waiter.utid == utid) else { return };
        let waiter = waiters.swap_remove(at);
        self.totals.entry(victim).or_default().wait += t - waiter.begin;
        if lane == self.question.lanes.nowhere() {
            self.charge(&waiter, self.question.ngroups + 2, t - waiter.begin, true);
            return;
        }
        let mut now = std::mem::take(&mut self.cpus[lane].on);
        if now.is_empty() {
            now.push((self.question.ngroups + 1, self.cpus[lane].unknown));
        }
        for (group, since) in &now {
            let time = t - waiter.begin.max(*since);
            if time > 0 {
                let before = self.cpus[lane].ended.get(group).copied().unwrap_or(i64::MIN);
                self.charge(&waiter, *group, time, before <= waiter.begin);
            }
        }
        if now[0].0 != self.question.ngroups + 1 {
            self.cpus[lane].on = now;
        }
    }

    fn group(&self, utid: u32) -> u32 {
        self.question.group.get(utid as usize).copied().unwrap_or(0)
    }
}

impl Sweep for Blame<'_> {
    fn change(&mut self, t: i64, utid: u32, from: Place, to: Place) {
        for (place, begins) in [(from, false), (to, true)] {
            match place.doing {
                Doing::Away => {}
                Doing::Waiting => self.waits(t, utid, place.cpu, begins),
                Doing::Running => {
                    let lane = self.question.lanes.of(place.cpu);
                    self.runs(t, lane, self.group(utid), begins);
                }
            }
        }
    }

    fn idle(&mut self, t: i64, cpu: u16, begins: bool) {
        let lane = self.question.lanes.of(cpu);
        self.runs(t, lane, self.question.ngroups, begins);
    }

    fn instant(&mut self, _: i64) {}
}

/// What was found: of each victim (in no order) its waiting, and who had the CPU meanwhile:
/// `ngroups` stands for idle, and the next two for not known, and for no known queue.
pub struct Found {
    pub totals: Vec<(u32, Total)>,
    pub cells: Vec<(u32, u32, Cell)>,
}

pub fn blame(changes: &Changes, question: &mut Question) -> Result<Found> {
    let width = question.ngroups as usize + 3;
    let victims = question.victim.iter().flatten().max().map_or(0, |most| *most as usize + 1);
    let size = victims.saturating_mul(width);
    let mut sweep = Blame {
        cpus: (0..question.lanes.len()).map(|_| Cpu::default()).collect(),
        lives: vec![Life::default(); changes.threads],
        dense: vec![Cell::default(); if size <= DENSE { size } else { 0 }],
        sparse: FxHashMap::default(),
        totals: FxHashMap::default(),
        width,
        question,
    };
    changes.tell(&mut sweep)?;
    let Blame { dense, sparse, totals, .. } = sweep;
    let told = |at: usize, cell: Cell| ((at / width) as u32, (at % width) as u32, cell);
    let mut cells: Vec<(u32, u32, Cell)> = sparse.into_iter().map(|(at, c)| told(at as usize, c)).collect();
    cells.extend(dense.into_iter().enumerate().map(|(at, c)| told(at, c)).filter(|(_, _, c)| c.n > 0 || c.time.iter().any(|t| *t > 0)));
    cells.sort_unstable_by_key(|(victim, group, _)| (*victim, *group));
    Ok(Found { totals: totals.into_iter().collect(), cells })
}
