//! Who ran on the CPU on whose queue a thread waited?
//!
//! Each CPU keeps a log of its last runs. When that is full, all who waited meanwhile are charged
//! what it has of their waits: one CPU at a time, for their cells are few then and stay near. A
//! thread that waited through a whole log and waits on is charged by the sums of how long each
//! group ran from then on: those of its end, less those of now.
//!
//! Where all victims and groups are too many pairs at a time, the changes are gone through again
//! for some victims after the others, and of each its longest parts are kept.
mod cells;
mod log;

use std::cmp::Reverse;

use rustc_hash::FxHashSet;

use std::ops::Range;

use self::cells::{Cells, MOST_SMALL, Most};
use self::log::{Cpu, EARLIEST, Ended, Log, Run, Stretch, Waiter};

pub use self::cells::Parts;

use super::changes::{Changes, Position, Presence, Sweep};
use super::cpu_index::CpuIndex;
use super::wait_cursor::WaitCursor;
use crate::error::Result;
use crate::model::event::Cause;

const UNKNOWN_CAUSE: u8 = Cause::Unknown as u8;

/// The selected waits, and the groups that divide their time.
pub struct InterferenceQuery<'a> {
    /// By utid; none: not asked for.
    pub victim: Vec<Option<u32>>,
    /// Where given, only waits of a thread on these CPUs (none: on no known queue).
    pub only: Option<FxHashSet<(u32, Option<u16>)>>,
    /// By utid.
    pub group: Vec<u32>,
    pub ngroups: u32,
    pub lanes: CpuIndex,
    pub ledger: WaitCursor<'a>,
    /// The number of groups reported for each victim; the others are summed.
    pub parts: usize,
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
    /// Runs in all logs, of many groups: as many as there are groups then, if this allows it.
    logs: usize,
    /// Pairs of a CPU and a group that have a place each: else those that meet have one.
    places: usize,
    cells: Most,
    /// Passes over the changes for rows of all groups: else the cells are kept that are needed.
    passes: usize,
    /// So many groups for each that a wait can meet, and most of a row would stay empty: the cells
    /// are kept that are needed.
    empty: usize,
}

const LIMITS: Limits = Limits {
    log: 1 << 9,
    // 32 MB.
    logs: 1 << 20,
    // 16 MB.
    places: 1 << 22,
    cells: Most {
        // 268 MB, unless many do not fit into a small cell.
        cells: 1 << 25,
        // Some 200 MB.
        sparse: 1 << 22,
        small: MOST_SMALL,
    },
    passes: 64,
    // A cell by itself is some 50 bytes and a look-up, one of a row is 8.
    empty: 16,
};

/// The wait that a thread is in, as far as it is reported.
#[derive(Default, Clone)]
struct Life {
    number: Option<usize>,
    /// Groups counted in it, on queues that it left.
    seen: Vec<u32>,
    /// `seen` is complete.
    kept: bool,
    waiter: Option<Waiter>,
}

struct Blame<'q, 'a> {
    question: &'q mut InterferenceQuery<'a>,
    cpus: Vec<Cpu>,
    lives: Vec<Life>,
    cells: Cells,
    /// By victim, from the first one of the cells on.
    totals: Vec<Total>,
    /// Waits so far, each part of one by itself.
    begun: u64,
    /// Runs that a log holds.
    log: usize,
    /// Keep the observed part of every wait, for one may come in parts; else only of those that end
    /// without a run.
    careful: bool,
    /// That was not enough.
    missed: bool,
}

impl Blame<'_, '_> {
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
        let victims = self.cells.victims();
        let total = &mut self.totals[(victim - victims.start) as usize];
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
                row: self.cells.row(victim, cause),
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
        self.totals[(victim - cells.victims().start) as usize].wait += t - stretch.begin;
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
        let victim = self.question.victim.get(utid as usize).copied().flatten();
        victim.filter(|victim| self.cells.victims().contains(victim))
    }
}

impl Sweep for Blame<'_, '_> {
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

/// The result for a victim: its waiting, and by group the running time during it. `ngroups` stands
/// for idle, and the next two for not known, and for no known queue.
pub struct Found {
    pub victim: u32,
    pub total: Total,
    pub parts: Parts,
}

/// Victims with the longest wait first.
pub fn interference(changes: &Changes, question: &mut InterferenceQuery<'_>) -> Result<Vec<Found>> {
    within(changes, question, LIMITS)
}

fn within(
    changes: &Changes,
    question: &mut InterferenceQuery<'_>,
    limits: Limits,
) -> Result<Vec<Found>> {
    let groups = question.ngroups as usize + 3;
    let numbers = numbered(&mut question.victim);
    let slices = slices(question, limits.cells.cells / groups);
    // No victim meets many more than all changes of a CPU. Of 500,000 threads rows of all take 4 MB
    // for each victim and cause, in some 30 ms of a trace nearly all of it unused.
    let met = changes
        .held()
        .map_or(usize::MAX, |changes| changes / question.lanes.count());
    let dense = slices.len() <= limits.passes && groups / limits.empty <= met;
    let last = slices.last().map_or(0, |slice| slice.end);
    let mut slices = slices.into_iter();
    let mut found = Vec::new();
    let mut careful = false;
    let mut start = 0;
    while start < last {
        let end = if dense {
            slices.next().map_or(last, |slice| slice.end)
        } else {
            last
        };
        let cells = || Cells::new(start..end, groups, limits.cells, dense);
        let (cells, totals) = pass(changes, question, cells, limits, &mut careful)?;
        let done = cells.victims();
        let mut blamed = cells.blamed(question.parts);
        let totals = done.clone().zip(totals).filter(|(_, total)| total.n > 0);
        found.extend(totals.map(|(victim, total)| Found {
            victim: numbers[victim as usize],
            total,
            parts: blamed.remove(&victim).unwrap_or_default(),
        }));
        start = done.end;
    }
    found.sort_by_key(|found| (Reverse(found.total.wait), found.victim));
    Ok(found)
}

/// Renumbers victims consecutively: of half a million threads a few may be asked for, and only
/// those shall cost anything. Which each was before, in the same order.
fn numbered(victims: &mut [Option<u32>]) -> Vec<u32> {
    let mut numbers: Vec<u32> = victims.iter().flatten().copied().collect();
    numbers.sort_unstable();
    numbers.dedup();
    for victim in victims.iter_mut().flatten() {
        *victim = numbers.partition_point(|number| number < victim) as u32;
    }
    numbers
}

/// Victims one after the other, as many as have so many rows.
fn slices(question: &InterferenceQuery<'_>, rows: usize) -> Vec<Range<u32>> {
    let mut asked: Vec<u8> = Vec::new();
    for (utid, victim) in (0..).zip(&question.victim) {
        if let Some(victim) = victim {
            let victim = *victim as usize;
            asked.resize(asked.len().max(victim + 1), 0);
            asked[victim] |= question.ledger.causes(utid);
        }
    }
    let mut found: Vec<Range<u32>> = Vec::new();
    let mut taken = usize::MAX;
    for (victim, causes) in (0..).zip(asked) {
        let own = causes.count_ones().max(1) as usize;
        taken = taken.saturating_add(own);
        match found.last_mut().filter(|_| taken <= rows) {
            Some(slice) => slice.end = victim + 1,
            None => {
                found.push(victim..victim + 1);
                taken = own;
            }
        }
    }
    found
}

/// Goes over all changes to fill some cells. `careful`: as `Blame` wants it, from the first pass on
/// that found out that it is needed.
fn pass(
    changes: &Changes,
    question: &mut InterferenceQuery<'_>,
    cells: impl Fn() -> Cells,
    limits: Limits,
    careful: &mut bool,
) -> Result<(Cells, Vec<Total>)> {
    let groups = question.ngroups as usize + 3;
    let lanes = question.lanes.count();
    let log = groups.min(limits.logs / lanes).max(limits.log);
    let places = groups * lanes <= limits.places;
    loop {
        let cells = cells();
        let victims = cells.victims();
        let of = &question.victim;
        question.ledger.rewind(|utid| {
            let victim = of.get(utid as usize).copied().flatten();
            victim.is_some_and(|victim| victims.contains(&victim))
        })?;
        let mut sweep = Blame {
            cpus: (0..lanes).map(|_| Cpu::new(groups, places)).collect(),
            lives: vec![Life::default(); changes.threads],
            totals: vec![Total::default(); victims.len()],
            cells,
            begun: 0,
            log,
            careful: *careful,
            missed: false,
            question,
        };
        changes.tell(&mut sweep)?;
        for lane in 0..lanes {
            sweep.empty(lane);
        }
        let Blame {
            cells,
            totals,
            missed,
            ..
        } = sweep;
        question.ledger.check()?;
        if !missed || *careful {
            return Ok((cells, totals));
        }
        *careful = true;
    }
}

#[cfg(test)]
mod tests {
    use super::super::changes::Reader;
    use super::super::random_states::{LENGTH, THREADS, world};
    use super::cells::{Blamed, Cell};
    use super::*;
    use crate::store::Source;

    type Told = Vec<(u32, i64, u32, Vec<(u32, Blamed)>, Option<Blamed>)>;

    fn asked<'a>(changes: &Changes, waits: &'a Source<'_>, parts: usize) -> InterferenceQuery<'a> {
        InterferenceQuery {
            victim: (0..=THREADS).map(|utid| utid.checked_sub(1)).collect(),
            only: None,
            group: (0..=THREADS).map(|utid| utid / 2).collect(),
            ngroups: 1 + THREADS / 2,
            lanes: CpuIndex::new(changes.cpus.clone()),
            ledger: WaitCursor::new(waits, 0, vec![true; THREADS as usize + 1]).expect("waits"),
            parts,
        }
    }

    fn told(changes: &Changes, waits: &Source<'_>, parts: usize, limits: Limits) -> Told {
        within(changes, &mut asked(changes, waits, parts), limits)
            .expect("an answer")
            .into_iter()
            .map(|of| {
                let Parts { blamed, others } = of.parts;
                (of.victim, of.total.wait, of.total.n, blamed, others)
            })
            .collect()
    }

    fn each_world(mut look: impl FnMut(u32, &Changes, &Source<'_>)) {
        for seed in 0..40 {
            let (states, waits) = world(seed);
            let mut reader = Reader::new((0, LENGTH), 1).expect("a window");
            reader.read(&states, None).expect("a table of states");
            look(seed, &reader.finish(), &Source::Held("waits", vec![waits]));
        }
    }

    #[test]
    fn how_much_is_kept_changes_nothing() {
        // One wait is too much for a small cell, some are, or none.
        let small = [(3, 9), (30, 2), (300, 1), (1000, 1000)];
        let mut limits = Vec::new();
        for log in [1, 2, 5, 40, 1 << 12] {
            let mut within = |cells, small, sparse, passes| {
                limits.push(Limits {
                    log,
                    logs: 0,
                    places: if log % 2 == 0 { 0 } else { 1 << 12 },
                    cells: Most {
                        cells,
                        sparse,
                        small,
                    },
                    passes,
                    empty: 1 << 40,
                });
            };
            for (time, n) in small {
                within(1 << 22, Cell { time, n }, 0, 1);
            }
            // One victim at a time, or some.
            for cells in [0, 40, 100] {
                within(cells, MOST_SMALL, 0, 100);
            }
            for sparse in [1, 10, 30, 1000] {
                within(0, MOST_SMALL, sparse, 0);
            }
        }
        each_world(|seed, changes, waits| {
            let all = limits
                .iter()
                .map(|limits| told(changes, waits, 100, *limits));
            let all: Vec<Told> = all.collect();
            assert!(all[0].iter().any(|(.., blamed, _)| !blamed.is_empty()));
            assert!(all[0].iter().all(|(.., others)| others.is_none()));
            assert!(all.iter().all(|found| *found == all[0]), "{seed}");
        });
    }

    #[test]
    fn victims_that_are_not_asked_for_cost_nothing() {
        let waits = Source::Held("waits", Vec::new());
        let mut question = InterferenceQuery {
            victim: vec![None; 50],
            only: None,
            group: Vec::new(),
            ngroups: 1,
            lanes: CpuIndex::new(Vec::new()),
            ledger: WaitCursor::new(&waits, 0, Vec::new()).expect("waits"),
            parts: 1,
        };
        for (utid, victim) in [(3, 40_000_000), (4, 7), (5, 40_000_000), (9, u32::MAX)] {
            question.victim[utid] = Some(victim);
        }
        assert_eq!(numbered(&mut question.victim), [7, 40_000_000, u32::MAX]);
        let asked: Vec<_> = question.victim.iter().flatten().collect();
        assert_eq!(asked, [&1, &0, &1, &2]);
        assert_eq!(slices(&question, 2), [0..2, 2..3]);
        assert_eq!(slices(&question, 3), [Range { start: 0, end: 3 }]);
    }

    #[test]
    fn what_victims_are_called_changes_nothing() {
        each_world(|seed, changes, waits| {
            let plain = told(changes, waits, 100, LIMITS);
            let mut question = asked(changes, waits, 100);
            let far = |victim: u32| u32::MAX - THREADS + victim;
            for victim in question.victim.iter_mut().flatten() {
                *victim = far(*victim);
            }
            let found = within(changes, &mut question, LIMITS).expect("an answer");
            let plain = plain.iter().map(|of| (far(of.0), of.1));
            assert!(
                found.iter().map(|of| (of.victim, of.total.wait)).eq(plain),
                "{seed}"
            );
        });
    }

    #[test]
    fn what_is_not_told_is_added_up() {
        each_world(|_, changes, waits| {
            let all = told(changes, waits, 100, LIMITS);
            let some = told(changes, waits, 2, LIMITS);
            assert_eq!(all.len(), some.len());
            for (all, some) in all.iter().zip(some) {
                let (first, rest) = all.3.split_at(all.3.len().min(2));
                let always = 1 + THREADS / 2;
                let (told, rest): (Vec<_>, Vec<_>) =
                    rest.iter().partition(|(group, _)| *group >= always);
                assert_eq!([first, &told].concat(), some.3);
                let rest = rest.iter().map(|(_, blamed)| blamed.time);
                let sum = rest.reduce(|sum, time| std::array::from_fn(|i| sum[i] + time[i]));
                assert_eq!(some.4.map(|others| others.time), sum);
            }
        });
    }
}
