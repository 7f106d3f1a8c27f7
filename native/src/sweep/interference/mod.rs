//! Who ran on the CPU on whose queue a thread waited?
//!
//! Each CPU keeps a log of its last runs. When that is full, all who waited meanwhile are
//! charged what it has of their waits: one CPU at a time, for their cells are few then and
//! stay near. Whoever waited through a whole log and waits on is charged by the sums of how
//! long each group ran from then on: those of its end, less those of now.
mod cells;
mod log;

use std::cmp::Reverse;

use rustc_hash::FxHashSet;

use self::cells::{Blamed, CAUSES, Cells, MOST_SMALL, Most};
use self::log::{Cpu, EARLIEST, Ended, Log, Run, Stretch, Waiter};

use super::changes::{Changes, Position, Presence, Sweep};
use super::cpu_index::CpuIndex;
use super::wait_cursor::WaitCursor;
use crate::error::Result;
use crate::model::event::Cause;

const UNKNOWN_CAUSE: u8 = Cause::Unknown as u8;

/// Whose waits, and by which groups their time is told apart.
pub struct InterferenceQuery {
    /// By utid; none: not asked for.
    pub victim: Vec<Option<u32>>,
    /// Where given, only waits of a thread on these CPUs (none: on no known queue).
    pub only: Option<FxHashSet<(u32, Option<u16>)>>,
    /// By utid.
    pub group: Vec<u32>,
    pub ngroups: u32,
    pub lanes: CpuIndex,
    pub ledger: WaitCursor,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Total {
    pub wait: i64,
    pub n: u32,
}

/// What is kept at a time.
#[derive(Clone, Copy)]
struct Limits {
    /// Runs in a log. Fewer, and more waits go by sums, which costs some passes over all
    /// groups; more, and the cells of all who waited meanwhile leave the processor's cache.
    log: usize,
    /// Groups that have a place each in the tables of every CPU.
    few: usize,
    cells: Most,
}

const LIMITS: Limits = Limits {
    log: 1 << 9,
    few: 1 << 12,
    cells: Most {
        // 96 MB at the very most.
        cells: 1 << 22,
        small: MOST_SMALL,
    },
};

/// The wait that a thread is in, as far as it is told.
#[derive(Default, Clone)]
struct Life {
    number: Option<usize>,
    /// Groups counted in it, on queues that it left.
    seen: Vec<u32>,
    /// `seen` is complete.
    kept: bool,
    waiter: Option<Waiter>,
}

struct Blame<'a> {
    question: &'a mut InterferenceQuery,
    cpus: Vec<Cpu>,
    lives: Vec<Life>,
    cells: Cells,
    /// By victim.
    totals: Vec<Total>,
    /// Waits so far, each part of one by itself.
    begun: u64,
    /// Runs that a log holds.
    log: usize,
    /// Keep what was seen of every wait, for one may be told in parts; else of those only
    /// that end without a run.
    careful: bool,
    /// That was not enough.
    missed: bool,
}

impl Blame<'_> {
    /// What runs on a CPU is in its log up to `t`.
    #[inline]
    fn settle(&mut self, t: i64, lane: usize) {
        self.cpus[lane].settle(t, self.question.ngroups + 1);
        if self.cpus[lane].log.runs.len() >= self.log {
            self.empty(lane);
        }
    }

    /// Charges all who waited or wait with what the log has, so that it is not needed any more.
    fn empty(&mut self, lane: usize) {
        let Self {
            cpus, lives, cells, ..
        } = self;
        let Cpu {
            young,
            ended,
            log,
            at_once,
            ..
        } = &mut cpus[lane];
        for Ended { stretch, from, to } in ended.drain(..) {
            let runs = &log.runs[from as usize..to as usize];
            cells.charge(stretch, &[], runs, *at_once);
        }
        young.retain(|(utid, number)| {
            let Life { waiter, seen, .. } = &mut lives[*utid as usize];
            let Some(waiter) = waiter.as_mut().filter(|waiter| waiter.number == *number) else {
                return false;
            };
            let runs = &log.runs[waiter.from as usize..];
            cells.charge(waiter.stretch, seen, runs, *at_once);
            waiter.summed = waiter.from == 0 && cells.begin(waiter.stretch, seen, log);
            waiter.from = 0;
            !waiter.summed
        });
        log.runs.clear();
    }

    fn runs(&mut self, t: i64, lane: usize, group: u32, begins: bool) {
        if lane == self.question.lanes.nowhere() {
            return;
        }
        self.settle(t, lane);
        self.cpus[lane].runs(t, group, begins);
    }

    fn begins(&mut self, t: i64, utid: u32, victim: u32, lane: usize) {
        if let Some(only) = &self.question.only
            && !only.contains(&(utid, self.question.lanes.number(lane)))
        {
            return;
        }
        let wait = self.question.ledger.next(utid, t);
        let life = &mut self.lives[utid as usize];
        let number = wait.map(|wait| wait.number);
        let total = &mut self.totals[victim as usize];
        if number.is_none() || number != life.number {
            // A stretch without a wait is one of its own.
            life.number = number;
            life.seen.clear();
            total.n += 1;
        } else {
            self.missed |= !life.kept;
        }
        life.kept = false;
        let cause = wait.map_or(UNKNOWN_CAUSE, |wait| wait.cause.min(UNKNOWN_CAUSE));
        let Cpu { log, young, .. } = &mut self.cpus[lane];
        self.begun += 1;
        life.waiter = Some(Waiter {
            stretch: Stretch {
                begin: t,
                row: victim * CAUSES as u32 + u32::from(cause),
            },
            from: log.runs.len() as u32,
            number: self.begun,
            summed: false,
        });
        if lane != self.question.lanes.nowhere() {
            young.push((utid, self.begun));
        }
    }

    fn ends(&mut self, t: i64, utid: u32, victim: u32, lane: usize, to: Presence) {
        let nowhere = lane == self.question.lanes.nowhere();
        if !nowhere {
            self.settle(t, lane);
        }
        let Self {
            cpus, cells, lives, ..
        } = self;
        let (cpu, life) = (&mut cpus[lane], &mut lives[utid as usize]);
        let Some(waiter) = life.waiter.take() else {
            return;
        };
        let Waiter { stretch, from, .. } = waiter;
        self.totals[victim as usize].wait += t - stretch.begin;
        let no_queue = Run {
            group: self.question.ngroups + 2,
            since: stretch.begin,
            until: t,
            before: EARLIEST,
        };
        let Log { runs, .. } = &cpu.log;
        if nowhere {
            cells.charge(stretch, &life.seen, &[no_queue], 1);
        } else if waiter.summed {
            cells.end(stretch, &life.seen, &cpu.log);
        } else if life.seen.is_empty() {
            let to = runs.len() as u32;
            cpu.ended.push(Ended { stretch, from, to });
        } else {
            cells.charge(stretch, &life.seen, &runs[from as usize..], cpu.at_once);
        }
        if self.careful || to != Presence::Running {
            life.kept = true;
            if nowhere {
                life.seen.push(no_queue.group);
            } else {
                life.seen.extend(cpu.log.after(stretch.begin));
            }
            life.seen.sort_unstable();
            life.seen.dedup();
        }
    }

    fn group(&self, utid: u32) -> u32 {
        self.question.group.get(utid as usize).copied().unwrap_or(0)
    }

    fn victim(&self, utid: u32) -> Option<u32> {
        self.question.victim.get(utid as usize).copied().flatten()
    }
}

impl Sweep for Blame<'_> {
    fn change(&mut self, t: i64, utid: u32, from: Position, to: Position) {
        let lanes = [
            self.question.lanes.of(from.cpu),
            self.question.lanes.of(to.cpu),
        ];
        match from.doing {
            Presence::Away => {}
            Presence::Running => self.runs(t, lanes[0], self.group(utid), false),
            Presence::Waiting => {
                if let Some(victim) = self.victim(utid) {
                    self.ends(t, utid, victim, lanes[0], to.doing);
                }
            }
        }
        match to.doing {
            Presence::Away => {}
            Presence::Running => self.runs(t, lanes[1], self.group(utid), true),
            Presence::Waiting => {
                if let Some(victim) = self.victim(utid) {
                    self.begins(t, utid, victim, lanes[1]);
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

/// What was found of a victim: its waiting, and by group who had the CPU meanwhile, the longest
/// time first. `ngroups` stands for idle, and the next two for not known, and for no known queue.
pub struct Found {
    pub victim: u32,
    pub total: Total,
    pub blamed: Vec<(u32, Blamed)>,
}

/// Victims with the longest wait first.
pub fn interference(changes: &Changes, question: &mut InterferenceQuery) -> Result<Vec<Found>> {
    within(changes, question, LIMITS)
}

fn within(
    changes: &Changes,
    question: &mut InterferenceQuery,
    limits: Limits,
) -> Result<Vec<Found>> {
    let victims = question
        .victim
        .iter()
        .flatten()
        .max()
        .map_or(0, |most| *most as usize + 1);
    let groups = question.ngroups as usize + 3;
    let mut careful = false;
    let (cells, totals) = loop {
        let mut sweep = Blame {
            cpus: (0..question.lanes.count())
                .map(|_| Cpu::new(groups, limits.few))
                .collect(),
            lives: vec![Life::default(); changes.threads],
            cells: Cells::new(victims * CAUSES, groups, limits.cells),
            begun: 0,
            log: limits.log,
            totals: vec![Total::default(); victims],
            careful,
            missed: false,
            question,
        };
        changes.tell(&mut sweep)?;
        for lane in 0..sweep.cpus.len() {
            sweep.empty(lane);
        }
        if !sweep.missed || careful {
            break (sweep.cells, sweep.totals);
        }
        careful = true;
        question.ledger.rewind();
    };
    let mut blamed = cells.blamed();
    let totals = (0..).zip(totals).filter(|(_, total)| total.n > 0);
    let mut found: Vec<Found> = totals
        .map(|(victim, total)| Found {
            victim,
            total,
            blamed: blamed.remove(&victim).unwrap_or_default(),
        })
        .collect();
    found.sort_by_key(|found| (Reverse(found.total.wait), found.victim));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::changes::Reader;
    use super::super::random_states::{LENGTH, THREADS, world};
    use super::cells::Cell;
    use super::*;

    #[test]
    fn how_much_is_kept_changes_nothing() {
        // One wait is too much for a small cell, some are, or none.
        let small = [(3, 9), (30, 2), (300, 1), (1000, 1000)];
        let mut limits = Vec::new();
        for log in [1, 2, 5, 40, 1 << 12] {
            for (time, n) in small {
                limits.push((log, 1 << 22, Cell { time, n }));
            }
            limits.push((log, 0, MOST_SMALL));
        }
        for seed in 0..40 {
            let (states, waits) = world(seed);
            let mut reader = Reader::new((0, LENGTH), 1).expect("a window");
            reader.read(&states, None).expect("a table of states");
            let changes = reader.finish();
            let mut told = Vec::new();
            for (log, cells, small) in &limits {
                let mut question = InterferenceQuery {
                    victim: (0..=THREADS).map(|utid| utid.checked_sub(1)).collect(),
                    only: None,
                    group: (0..=THREADS).map(|utid| utid / 2).collect(),
                    ngroups: 1 + THREADS / 2,
                    lanes: CpuIndex::new(changes.cpus.clone()),
                    ledger: WaitCursor::read(std::iter::once(Ok(waits.clone())), 0, |_| true)
                        .expect("waits"),
                };
                let limits = Limits {
                    log: *log,
                    few: if log % 2 == 0 { 0 } else { 1 << 12 },
                    cells: Most {
                        cells: *cells,
                        small: *small,
                    },
                };
                let found = within(&changes, &mut question, limits);
                let told_of: Vec<_> = found
                    .expect("an answer")
                    .into_iter()
                    .map(|of| (of.victim, of.total.wait, of.total.n, of.blamed))
                    .collect();
                told.push(told_of);
            }
            assert!(told[0].iter().any(|(.., blamed)| !blamed.is_empty()));
            assert!(told.iter().all(|found| *found == told[0]), "{seed}");
        }
    }
}
