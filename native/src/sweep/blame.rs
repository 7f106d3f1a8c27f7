//! Who ran on the CPU on whose queue a thread waited?
//!
//! Each CPU keeps a log of its last runs. When that is full, the waits that ended meanwhile are
//! charged what it has of them: all of one CPU at once, for their cells are few then and
//! stay near. Whoever waits on is charged by the sums of how long each group ran: those of
//! its end, less those of now.
use rustc_hash::{FxHashMap, FxHashSet};

use super::changes::{Changes, Doing, Place, Sweep};
use super::lanes::Lanes;
use super::ledger::Ledger;
use crate::error::Result;
use crate::model::event::Cause;

/// How a wait began.
pub const CAUSES: usize = Cause::TEXTS.len();
const UNKNOWN_CAUSE: u8 = Cause::Unknown as u8;

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

/// Of a victim, one cause and a group: time (ns), and waits in which it ran.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    time: i64,
    n: u32,
}

impl Cell {
    #[inline]
    fn add(&mut self, other: Self) {
        self.time += other.time;
        self.n += other.n;
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Total {
    pub wait: i64,
    pub n: u32,
}

/// A group's run on a CPU, or a part of one, that is over.
#[derive(Clone, Copy)]
struct Run {
    group: u32,
    since: i64,
    until: i64,
    /// When the group's run before this one ended.
    before: i64,
}

/// Never yet.
const EARLIEST: i64 = i64::MIN;

/// What is kept at a time.
#[derive(Clone, Copy)]
struct Limits {
    /// Runs in a log. Fewer, and more waits go by sums, which costs some passes over all
    /// groups; more, and the log leaves the processor's cache.
    log: usize,
    /// Cells of a table, up to which there is one.
    table: usize,
}

const LIMITS: Limits = Limits {
    log: 1 << 12,
    // 64 MB.
    table: 1 << 22,
};

#[derive(Default)]
struct Cpu {
    /// Groups that run here, and since when they are not in the log: one, unless the trace
    /// contradicts itself.
    on: Vec<(u32, i64)>,
    /// The same while nobody is known to.
    unknown: i64,
    log: Vec<Run>,
    /// By group: when the last run ended that was in the log, and how long all took.
    last: Vec<i64>,
    sums: Vec<i64>,
    /// Those who began to wait here and may be charged by the log, by utid.
    young: Vec<u32>,
    /// Those who are yet to be charged by it.
    ended: Vec<Ended>,
}

impl Cpu {
    /// What runs is in the log up to `t`; `unknown` is the group of what is not known.
    #[inline]
    fn settle(&mut self, t: i64, unknown: u32) {
        let Self {
            on,
            log,
            last,
            sums,
            unknown: blind,
            ..
        } = self;
        let mut ran = |group: u32, since: &mut i64| {
            if t > *since {
                log.push(Run {
                    group,
                    since: *since,
                    until: t,
                    before: last[group as usize],
                });
                last[group as usize] = t;
                sums[group as usize] += t - *since;
            }
            *since = t;
        };
        if on.is_empty() {
            ran(unknown, blind);
        }
        for (group, since) in on {
            ran(*group, since);
        }
    }

    /// Groups that ran after `t`, as far as they are in the log.
    fn after(&self, t: i64) -> impl Iterator<Item = u32> {
        let ran = (0..).zip(&self.last).filter(move |(_, last)| **last > t);
        ran.map(|(group, _)| group)
    }
}

/// A stretch of waiting on one queue.
#[derive(Clone, Copy)]
struct Waiter {
    begin: i64,
    lane: usize,
    /// Victim and cause as one number: a row of the table of cells.
    row: u32,
    /// Where in the log it began.
    from: usize,
    /// It goes by sums.
    summed: bool,
}

/// A wait that is over, and where in the log it ended.
struct Ended {
    waiter: Waiter,
    to: usize,
}

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

/// A row for each victim and cause, a column for each group; or, where that were too many,
/// those that are needed.
struct Cells {
    groups: usize,
    table: Vec<Cell>,
    sparse: FxHashMap<(u32, u32), Cell>,
}

impl Cells {
    fn new(rows: usize, groups: usize, most: usize) -> Self {
        let size = Some(rows.saturating_mul(groups)).filter(|size| *size <= most);
        Self {
            groups,
            table: vec![Cell::default(); size.unwrap_or(0)],
            sparse: FxHashMap::default(),
        }
    }

    /// Of one victim and cause; none where there is no table.
    fn row(&mut self, row: u32) -> Option<&mut [Cell]> {
        let begin = row as usize * self.groups;
        self.table.get_mut(begin..begin + self.groups)
    }

    /// Charges a wait with its part of `runs`, and counts those groups that ran in it for the
    /// first time; `seen` are others.
    fn charge(&mut self, waiter: &Waiter, seen: &[u32], runs: &[Run]) {
        let parts = runs.iter().map(|run| {
            let time = run.until - run.since.max(waiter.begin);
            let fresh = time > 0
                && run.before <= waiter.begin
                && (seen.is_empty() || !seen.contains(&run.group));
            let n = u32::from(fresh);
            (run.group, Cell { time, n })
        });
        if let Some(row) = self.row(waiter.row) {
            for (group, part) in parts {
                row[group as usize].add(part);
            }
        } else {
            for (group, part) in parts {
                let cell = self.sparse.entry((waiter.row, group)).or_default();
                cell.add(part);
            }
        }
    }

    /// From now on the wait goes by sums: it had its part of `runs`, and of what the `sums`
    /// will be at its end, the sums of now are not its own. Whether there is a table for it.
    fn begin(&mut self, waiter: &Waiter, runs: &[Run], sums: &[i64]) -> bool {
        let Some(row) = self.row(waiter.row) else {
            return false;
        };
        for run in runs {
            row[run.group as usize].time += run.until - run.since.max(waiter.begin);
        }
        for (cell, sum) in row.iter_mut().zip(sums) {
            cell.time -= sum;
        }
        true
    }

    fn end(&mut self, waiter: &Waiter, seen: &[u32], cpu: &Cpu) {
        let Some(row) = self.row(waiter.row) else {
            return;
        };
        for ((cell, sum), last) in row.iter_mut().zip(&cpu.sums).zip(&cpu.last) {
            cell.time += sum;
            cell.n += u32::from(*last > waiter.begin);
        }
        for group in seen {
            row[*group as usize].n -= u32::from(cpu.last[*group as usize] > waiter.begin);
        }
    }

    /// By victim and group.
    fn blamed(self) -> Vec<(u32, u32, Blamed)> {
        let mut found = Vec::new();
        for (victim, rows) in (0..).zip(self.table.chunks(self.groups * CAUSES)) {
            let mut all = vec![Blamed::default(); self.groups];
            for (cause, row) in rows.chunks(self.groups).enumerate() {
                for (blamed, cell) in all.iter_mut().zip(row) {
                    blamed.time[cause] = cell.time;
                    blamed.n += cell.n;
                }
            }
            let some = (0..).zip(all).filter(|(_, blamed)| blamed.any());
            found.extend(some.map(|(group, blamed)| (victim, group, blamed)));
        }
        let mut few: FxHashMap<(u32, u32), Blamed> = FxHashMap::default();
        for ((row, group), cell) in self.sparse {
            let (victim, cause) = (row / CAUSES as u32, row as usize % CAUSES);
            let blamed = few.entry((victim, group)).or_default();
            blamed.time[cause] = cell.time;
            blamed.n += cell.n;
        }
        let some = few.into_iter().filter(|(_, blamed)| blamed.any());
        found.extend(some.map(|((victim, group), blamed)| (victim, group, blamed)));
        found
    }
}

struct Blame<'a> {
    question: &'a mut Question,
    cpus: Vec<Cpu>,
    lives: Vec<Life>,
    cells: Cells,
    /// By victim.
    totals: Vec<Total>,
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
        if self.cpus[lane].log.len() >= self.log {
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
            sums,
            ..
        } = &mut cpus[lane];
        for Ended { waiter, to } in ended.drain(..) {
            cells.charge(&waiter, &[], &log[waiter.from..to]);
        }
        // Some waited several times.
        young.sort_unstable();
        young.dedup();
        young.retain(|utid| {
            let Life { waiter, seen, .. } = &mut lives[*utid as usize];
            let Some(waiter) = waiter.as_mut().filter(|waiter| waiter.lane == lane) else {
                return false;
            };
            if !waiter.summed {
                let runs = &log[waiter.from..];
                waiter.summed = cells.begin(waiter, runs, sums);
                if !waiter.summed {
                    cells.charge(waiter, seen, runs);
                }
                waiter.from = 0;
            }
            !waiter.summed
        });
        log.clear();
    }

    fn runs(&mut self, t: i64, lane: usize, group: u32, begins: bool) {
        if lane == self.question.lanes.nowhere() {
            return;
        }
        self.settle(t, lane);
        let Cpu { on, unknown, .. } = &mut self.cpus[lane];
        if begins {
            on.push((group, t));
        } else if let Some(at) = on.iter().position(|(running, _)| *running == group) {
            on.swap_remove(at);
            *unknown = t;
        }
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
        life.waiter = Some(Waiter {
            begin: t,
            lane,
            row: victim * CAUSES as u32 + u32::from(cause),
            from: log.len(),
            summed: false,
        });
        if lane != self.question.lanes.nowhere() {
            young.push(utid);
        }
    }

    fn ends(&mut self, t: i64, utid: u32, victim: u32, lane: usize, to: Doing) {
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
        self.totals[victim as usize].wait += t - waiter.begin;
        let no_queue = Run {
            group: self.question.ngroups + 2,
            since: waiter.begin,
            until: t,
            before: EARLIEST,
        };
        if nowhere {
            cells.charge(&waiter, &life.seen, &[no_queue]);
        } else if waiter.summed {
            cells.end(&waiter, &life.seen, cpu);
        } else if life.seen.is_empty() {
            let to = cpu.log.len();
            cpu.ended.push(Ended { waiter, to });
        } else {
            cells.charge(&waiter, &life.seen, &cpu.log[waiter.from..]);
        }
        if self.careful || to != Doing::Running {
            life.kept = true;
            if nowhere {
                life.seen.push(no_queue.group);
            } else {
                life.seen.extend(cpu.after(waiter.begin));
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
    fn change(&mut self, t: i64, utid: u32, from: Place, to: Place) {
        let lanes = [
            self.question.lanes.of(from.cpu),
            self.question.lanes.of(to.cpu),
        ];
        match from.doing {
            Doing::Away => {}
            Doing::Running => self.runs(t, lanes[0], self.group(utid), false),
            Doing::Waiting => {
                if let Some(victim) = self.victim(utid) {
                    self.ends(t, utid, victim, lanes[0], to.doing);
                }
            }
        }
        match to.doing {
            Doing::Away => {}
            Doing::Running => self.runs(t, lanes[1], self.group(utid), true),
            Doing::Waiting => {
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

/// Time that a victim waited for a group (ns), by cause, and waits in which it ran.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Blamed {
    pub time: [i64; CAUSES],
    pub n: u32,
}

impl Blamed {
    fn any(&self) -> bool {
        self.time.iter().any(|time| *time > 0)
    }
}

/// What was found: of each victim its waiting; and by victim and group who had the CPU
/// meanwhile: `ngroups` stands for idle, and the next two for not known, and for no known
/// queue.
pub struct Found {
    pub totals: Vec<(u32, Total)>,
    pub blamed: Vec<(u32, u32, Blamed)>,
}

pub fn blame(changes: &Changes, question: &mut Question) -> Result<Found> {
    within(changes, question, LIMITS)
}

fn within(changes: &Changes, question: &mut Question, limits: Limits) -> Result<Found> {
    let victims = question
        .victim
        .iter()
        .flatten()
        .max()
        .map_or(0, |most| *most as usize + 1);
    let groups = question.ngroups as usize + 3;
    let mut careful = false;
    let (cells, totals) = loop {
        let cpu = || Cpu {
            last: vec![EARLIEST; groups],
            sums: vec![0; groups],
            ..Cpu::default()
        };
        let mut sweep = Blame {
            cpus: (0..question.lanes.len()).map(|_| cpu()).collect(),
            lives: vec![Life::default(); changes.threads],
            cells: Cells::new(victims * CAUSES, groups, limits.table),
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
    let totals = (0u32..).zip(totals).filter(|(_, total)| total.n > 0);
    Ok(Found {
        totals: totals.collect(),
        blamed: cells.blamed(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt8Array, UInt16Array, UInt32Array};

    use super::super::changes::Reader;
    use super::*;

    const THREADS: u32 = 7;

    /// Threads at random: some wait in parts, on several queues, or on none; CPUs run several
    /// at once, or nobody knows whom.
    fn world(seed: u32) -> (RecordBatch, RecordBatch) {
        let mut seed = seed;
        let mut random = |n: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % n
        };
        let mut rows = Vec::new();
        let mut waits = Vec::new();
        for utid in 1..=THREADS {
            let mut t = i64::from(random(9));
            while t < 400 {
                let (dur, state) = (i64::from(1 + random(12)), random(3) as u8);
                let cpu = Some(random(4) as u16).filter(|cpu| *cpu < 3 || state == 0);
                if state == 1 && random(3) > 0 {
                    waits.push((utid, t, random(5) as u8));
                }
                rows.push((t + dur, t, dur, utid, state, cpu));
                t += dur;
            }
        }
        rows.sort_unstable();
        let columns: [(&str, ArrayRef); 5] = [
            (
                "ts",
                Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1))),
            ),
            (
                "dur",
                Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.2))),
            ),
            (
                "utid",
                Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.3))),
            ),
            (
                "state",
                Arc::new(UInt8Array::from_iter_values(rows.iter().map(|row| row.4))),
            ),
            (
                "cpu",
                Arc::new(rows.iter().map(|row| row.5).collect::<UInt16Array>()),
            ),
        ];
        let states = RecordBatch::try_from_iter(columns).expect("columns of one length");
        let columns: [(&str, ArrayRef); 3] = [
            (
                "utid",
                Arc::new(UInt32Array::from_iter_values(
                    waits.iter().map(|wait| wait.0),
                )),
            ),
            (
                "ts_ready",
                Arc::new(Int64Array::from_iter_values(
                    waits.iter().map(|wait| wait.1),
                )),
            ),
            (
                "cause",
                Arc::new(UInt8Array::from_iter_values(
                    waits.iter().map(|wait| wait.2),
                )),
            ),
        ];
        (
            states,
            RecordBatch::try_from_iter(columns).expect("columns of one length"),
        )
    }

    #[test]
    fn how_much_is_kept_changes_nothing() {
        for seed in 0..40 {
            let (states, waits) = world(seed);
            let mut reader = Reader::new((0, 400), 1).expect("a window");
            reader.read(&states, None).expect("a table of states");
            let changes = reader.finish();
            let mut told = Vec::new();
            for log in [1, 2, 5, 40, 1 << 12] {
                for table in [0, 1 << 22] {
                    let mut question = Question {
                        victim: (0..=THREADS).map(|utid| utid.checked_sub(1)).collect(),
                        only: None,
                        group: (0..=THREADS).map(|utid| utid / 2).collect(),
                        ngroups: 1 + THREADS / 2,
                        lanes: Lanes::new(changes.cpus.clone()),
                        ledger: Ledger::read(std::slice::from_ref(&waits), 0, |_| true)
                            .expect("waits"),
                    };
                    let found = within(&changes, &mut question, Limits { log, table });
                    let Found { totals, mut blamed } = found.expect("an answer");
                    let waited: Vec<_> = totals
                        .iter()
                        .map(|(victim, total)| (*victim, total.wait, total.n))
                        .collect();
                    blamed.sort_unstable_by_key(|(victim, group, _)| (*victim, *group));
                    told.push((waited, blamed));
                }
            }
            assert!(!told[0].1.is_empty());
            assert!(told.iter().all(|found| *found == told[0]), "{seed}");
        }
    }
}
