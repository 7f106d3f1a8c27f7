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

/// Of a victim, one cause and a group: time (ns), and waits in which it ran.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cell {
    pub time: i64,
    pub n: u32,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Total {
    pub wait: i64,
    pub n: u32,
}

#[derive(Clone, Copy)]
struct Waiter {
    begin: i64,
    /// Victim and cause as one number: a column of the table of cells.
    column: u32,
    utid: u32,
    /// Some groups were counted already, on another queue.
    again: bool,
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
    /// In place of `ended`, by group: when it ran last, and how long in all so far.
    last: Vec<i64>,
    sums: Vec<i64>,
}

impl Cpu {
    /// Bring `last` and `sums` up to `t`; `unknown` is the group of what is not known.
    #[inline]
    fn settle(&mut self, t: i64, unknown: u32) {
        let Self {
            on,
            last,
            sums,
            unknown: since,
            ..
        } = self;
        let mut ran = |group: u32, since: &mut i64| {
            if t > *since {
                last[group as usize] = t;
                sums[group as usize] += t - *since;
                *since = t;
            }
        };
        if on.is_empty() {
            ran(unknown, since);
        }
        for (group, since) in on {
            ran(*group, since);
        }
    }
}

/// The wait that a thread is in, as far as it is told.
#[derive(Default, Clone)]
struct Life {
    number: Option<u32>,
    /// Groups counted in it, on queues that it left.
    seen: Vec<u32>,
    /// `seen` is complete.
    kept: bool,
    /// The stretch at hand, where nobody else has to know of it.
    waiter: Option<Waiter>,
}

struct Blame<'a> {
    question: &'a mut Question,
    cpus: Vec<Cpu>,
    lives: Vec<Life>,
    cells: Cells,
    /// By victim.
    totals: Vec<Total>,
    /// Keep what was seen of every wait, for one may be told in parts; else of those only
    /// that end without a run.
    careful: bool,
    /// That was not enough.
    missed: bool,
}

/// A row for each group, a column for each victim and cause; or, where a wait sees more runs
/// than there are groups, a vector of groups for each victim and cause.
struct Cells {
    columns: usize,
    dense: Vec<Cell>,
    sparse: FxHashMap<(u32, u32), Cell>,
    /// Length of a vector; 0 if there are none.
    width: usize,
    times: Vec<i64>,
    ns: Vec<u32>,
}

/// Cells of a table, up to which there is one: 64 MB.
const DENSE: usize = 1 << 22;
const EARLIEST: i64 = i64::MIN;

impl Cells {
    /// `runs`: those that a wait sees, about.
    fn new(columns: usize, groups: usize, runs: f64) -> Self {
        let size = columns.saturating_mul(groups);
        // What a wait costs is a few passes over a vector, or an addition here and there for
        // each run; the latter takes nine times as long as one place of the former.
        let vectors = size <= DENSE && (groups as f64) < 9.0 * runs;
        let cells = if size <= DENSE && !vectors { size } else { 0 };
        Self {
            columns,
            dense: vec![Cell::default(); cells],
            sparse: FxHashMap::default(),
            width: if vectors { groups } else { 0 },
            times: vec![0; if vectors { size } else { 0 }],
            ns: vec![0; if vectors { size } else { 0 }],
        }
    }

    fn vectors(&self) -> bool {
        self.width > 0
    }

    fn begin(&mut self, column: u32, sums: &[i64]) {
        let row = column as usize * self.width;
        for (time, sum) in self.times[row..row + self.width].iter_mut().zip(sums) {
            *time -= sum;
        }
    }

    fn end(&mut self, waiter: &Waiter, cpu: &Cpu, seen: &[u32]) {
        let row = waiter.column as usize * self.width;
        for (time, sum) in self.times[row..row + self.width].iter_mut().zip(&cpu.sums) {
            *time += sum;
        }
        let ns = &mut self.ns[row..row + self.width];
        for (n, last) in ns.iter_mut().zip(&cpu.last) {
            *n += u32::from(*last > waiter.begin);
        }
        for group in seen {
            ns[*group as usize] -= u32::from(cpu.last[*group as usize] > waiter.begin);
        }
    }

    /// Charges each wait what the group ran of it in `[since, t)`; `before`: when the group's run
    /// before this one ended, so that it is counted once.
    #[inline]
    fn charge(
        &mut self,
        waiters: &[Waiter],
        lives: &[Life],
        group: u32,
        (since, t): (i64, i64),
        before: i64,
    ) {
        let row = group as usize * self.columns;
        // None where cells are vectors or too many for a table.
        let mut dense = self
            .dense
            .get_mut(row..row + self.columns)
            .filter(|cells| !cells.is_empty());
        for waiter in waiters {
            let time = t - since.max(waiter.begin);
            let fresh = time > 0
                && before <= waiter.begin
                && !(waiter.again && lives[waiter.utid as usize].seen.contains(&group));
            let cell = match &mut dense {
                Some(cells) => &mut cells[waiter.column as usize],
                None => self.sparse.entry((group, waiter.column)).or_default(),
            };
            cell.time += time;
            cell.n += u32::from(fresh);
        }
    }
}

impl Blame<'_> {
    /// A group had the CPU in `[since, t)`: so much did everybody wait for it who still waits.
    fn over(&mut self, lane: usize, group: u32, since: i64, t: i64) {
        if t > since {
            let cpu = &mut self.cpus[lane];
            let before = cpu.ended.insert(group, t).unwrap_or(EARLIEST);
            self.cells
                .charge(&cpu.waiters, &self.lives, group, (since, t), before);
        }
    }

    fn runs(&mut self, t: i64, lane: usize, group: u32, begins: bool) {
        let vectors = self.cells.vectors();
        if vectors {
            self.cpus[lane].settle(t, self.question.ngroups + 1);
        }
        if begins {
            if !vectors && self.cpus[lane].on.is_empty() {
                self.over(lane, self.question.ngroups + 1, self.cpus[lane].unknown, t);
            }
            self.cpus[lane].on.push((group, t));
            return;
        }
        let on = &mut self.cpus[lane].on;
        let Some(at) = on.iter().position(|(running, _)| *running == group) else {
            return;
        };
        let (_, since) = on.swap_remove(at);
        if on.is_empty() {
            self.cpus[lane].unknown = t;
        }
        if !vectors {
            self.over(lane, group, since, t);
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
        let column = victim * CAUSES as u32 + u32::from(cause);
        let again = !life.seen.is_empty();
        if self.cells.vectors() && lane != self.question.lanes.nowhere() {
            self.cpus[lane].settle(t, self.question.ngroups + 1);
            self.cells.begin(column, &self.cpus[lane].sums);
        }
        let waiter = Waiter {
            begin: t,
            column,
            utid,
            again,
        };
        if self.cells.vectors() {
            self.lives[utid as usize].waiter = Some(waiter);
        } else {
            self.cpus[lane].waiters.push(waiter);
        }
    }

    fn ends(&mut self, t: i64, utid: u32, victim: u32, lane: usize, to: Doing) {
        let ngroups = self.question.ngroups;
        let Self {
            cpus, cells, lives, ..
        } = self;
        let cpu = &mut cpus[lane];
        let waiter = if cells.vectors() {
            lives[utid as usize].waiter.take()
        } else {
            let at = cpu.waiters.iter().position(|waiter| waiter.utid == utid);
            at.map(|at| cpu.waiters.swap_remove(at))
        };
        let Some(waiter) = waiter else { return };
        self.totals[victim as usize].wait += t - waiter.begin;
        let nowhere = lane == self.question.lanes.nowhere();
        let keeps = self.careful || to != Doing::Running;
        let seen = &mut lives[utid as usize].seen;
        if cells.vectors() && !nowhere {
            cpu.settle(t, ngroups + 1);
            cells.end(&waiter, cpu, seen);
            if keeps {
                let ran = (0u32..)
                    .zip(&cpu.last)
                    .filter(|(_, last)| **last > waiter.begin);
                seen.extend(ran.map(|(group, _)| group));
                seen.sort_unstable();
                seen.dedup();
            }
            lives[utid as usize].kept |= keeps;
            return;
        }
        let mut now = |group, since| {
            let before = cpu.ended.get(&group).copied().unwrap_or(EARLIEST);
            cells.charge(&[waiter], lives, group, (i64::min(since, t), t), before);
        };
        if nowhere {
            now(ngroups + 2, waiter.begin);
        } else if cpu.on.is_empty() {
            now(ngroups + 1, cpu.unknown.max(waiter.begin));
        }
        for (group, since) in &cpu.on {
            now(*group, (*since).max(waiter.begin));
        }
        if keeps {
            let life = &mut lives[utid as usize];
            life.kept = true;
            let ran = cpu
                .ended
                .iter()
                .filter(|(_, end)| **end > waiter.begin)
                .map(|(group, _)| *group);
            let on = cpu
                .on
                .iter()
                .filter(|(_, since)| *since < t)
                .map(|(group, _)| *group);
            life.seen.extend(ran.chain(on));
            if nowhere {
                life.seen.push(ngroups + 2);
            } else if cpu.on.is_empty() && cpu.unknown < t {
                life.seen.push(ngroups + 1);
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

/// What was found: of each victim its waiting; and by victim, group and cause who
/// had the CPU meanwhile: `ngroups` stands for idle, and the next two for not known, and for
/// no known queue.
pub struct Found {
    pub totals: Vec<(u32, Total)>,
    pub cells: Vec<(u32, u32, u8, Cell)>,
}

pub fn blame(changes: &Changes, question: &mut Question) -> Result<Found> {
    let victims = question
        .victim
        .iter()
        .flatten()
        .max()
        .map_or(0, |most| *most as usize + 1);
    let (columns, groups) = (victims * CAUSES, question.ngroups as usize + 3);
    let mut careful = false;
    let capacity = changes.length.max(1) as f64 * changes.cpus.len().max(1) as f64;
    let runs = 1.0 + changes.placed as f64 / capacity;
    let (cells, totals) = loop {
        let cells = Cells::new(columns, groups, runs);
        let cpu = || Cpu {
            last: vec![EARLIEST; cells.width],
            sums: vec![0; cells.width],
            ..Cpu::default()
        };
        let mut sweep = Blame {
            cpus: (0..question.lanes.len()).map(|_| cpu()).collect(),
            lives: vec![Life::default(); changes.threads],
            cells,
            totals: vec![Total::default(); victims],
            careful,
            missed: false,
            question,
        };
        changes.tell(&mut sweep)?;
        if !sweep.missed || careful {
            break (sweep.cells, sweep.totals);
        }
        careful = true;
        question.ledger.rewind();
    };
    let mut found: Vec<(u32, u32, u8, Cell)> = Vec::new();
    let mut tell = |group: usize, column: usize, cell: Cell| {
        if cell.time > 0 {
            found.push((
                (column / CAUSES) as u32,
                group as u32,
                (column % CAUSES) as u8,
                cell,
            ));
        }
    };
    for (at, cell) in cells.dense.iter().enumerate() {
        tell(at / columns, at % columns, *cell);
    }
    for (at, time) in cells.times.iter().enumerate() {
        let cell = Cell {
            time: *time,
            n: cells.ns[at],
        };
        tell(at % groups, at / groups, cell);
    }
    for ((group, column), cell) in &cells.sparse {
        tell(*group as usize, *column as usize, *cell);
    }
    let totals = (0u32..).zip(totals).filter(|(_, total)| total.n > 0);
    Ok(Found {
        totals: totals.collect(),
        cells: found,
    })
}
