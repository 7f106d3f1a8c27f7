//! Which service was due to each thread, by weight among those it competed with?
//!
//! Generalised processor sharing: the service due to a weight of one is a function of
//! time for each competing set, so what was due to a thread is its weight times how far that
//! function grew while it was there (Parekh and Gallager, 1993).
use rustc_hash::FxHashMap;

use super::changes::{Changes, Position, Presence, Sweep};
use super::group_shares::{Grouped, Groups};
use super::quotas::{self, Quotas};
use super::weights::{EQUAL, LEVELS, class_of, level_of};
use crate::error::Result;
use crate::states::NOWHERE;

/// More than one CPU, and not only by the last digit of a quotient.
const ONE: f64 = 1.0 + 1e-9;

pub struct SharingQuery {
    /// Weight by level.
    pub table: [i64; LEVELS],
    pub classes: usize,
    /// All of a class compete, on whichever CPU; else those of one CPU and its queue.
    pub machine: bool,
    /// What there is to share: the service that the class got, or (some) all that so many CPUs
    /// could give while a thread competed for it.
    pub capacity: Option<i64>,
    /// Sums by CPU, too.
    pub by_cpu: bool,
    /// Groups that share a CPU before the threads of this class do.
    pub groups: Option<Groups>,
    pub fair: usize,
    /// Nothing is due to threads that these hold back.
    pub quotas: Option<Quotas>,
}

impl SharingQuery {
    /// How many competing sets there are.
    pub fn sets(&self, changes: &Changes) -> usize {
        let cpus = changes.cpus.last().map_or(0, |cpu| usize::from(*cpu) + 1);
        self.classes * if self.machine { 1 } else { cpus }
    }

    /// The queues of so many sets, where groups share them.
    pub fn grouped(&self, sets: usize, threads: usize) -> Option<Grouped<'_>> {
        let groups = self.groups.as_ref().filter(|_| !self.machine)?;
        Some(Grouped::new(groups, sets, threads))
    }

    /// The number of the present competing set; none for threads that do not compete.
    pub fn set(&self, place: Position) -> Option<usize> {
        let class = class_of(place.tag);
        if place.doing == Presence::Away {
            None
        } else if self.machine {
            Some(class)
        } else if place.cpu == NOWHERE {
            None
        } else {
            Some(usize::from(place.cpu) * self.classes + class)
        }
    }
}

/// Sums of a thread in one class (on one CPU); times in ns.
#[derive(Debug, Clone, Copy)]
pub struct Sum {
    pub utid: u32,
    pub class: usize,
    /// Where sums are by CPU; `NOWHERE` for no known queue.
    pub cpu: u16,
    pub running: i64,
    pub waiting: i64,
    pub unplaced: i64,
    pub due: f64,
    pub served: i64,
    /// Whether it ever competed, and the range of its weights.
    pub competed: bool,
    pub heaviest: i64,
    pub lightest: i64,
    pub equal: bool,
}

/// Threads that share one queue's service.
pub struct Set {
    at: i64,
    weight: i64,
    members: i64,
    /// CPUs that run one of them.
    serving: i64,
    /// Service due to a weight of one up to `at`, while no thread was due more than one CPU.
    due: f64,
    /// Service due at each level while a thread was.
    capped: Option<Box<[f64; LEVELS]>>,
    served: i64,
    present: [u32; LEVELS],
    /// Weight of the heaviest member, if that was asked for since the last one left.
    heaviest: Option<i64>,
}

impl Default for Set {
    fn default() -> Self {
        Self {
            at: 0,
            weight: 0,
            members: 0,
            serving: 0,
            due: 0.0,
            capped: None,
            served: 0,
            present: [0; LEVELS],
            heaviest: None,
        }
    }
}

impl Set {
    pub fn add(&mut self, level: usize, runs: bool, table: &[i64; LEVELS]) {
        self.weight += table[level];
        self.heaviest = self.heaviest.map(|most| most.max(table[level]));
        self.present[level] += 1;
        self.members += 1;
        self.serving += i64::from(runs);
    }

    pub fn remove(&mut self, level: usize, runs: bool, table: &[i64; LEVELS]) {
        self.weight -= table[level];
        self.present[level] = self.present[level].wrapping_sub(1);
        self.members -= 1;
        self.serving -= i64::from(runs);
        if self.present[level] == 0 {
            self.heaviest = self.heaviest.filter(|most| *most != table[level]);
        }
    }

    /// A member that waited runs, or the other way round, or neither.
    pub fn turn(&mut self, ran: bool, runs: bool) {
        self.serving += i64::from(runs) - i64::from(ran);
    }

    fn heaviest(&mut self, table: &[i64; LEVELS]) -> i64 {
        let levels = (0..LEVELS).filter(|level| self.present[*level] > 0);
        *self
            .heaviest
            .get_or_insert_with(|| levels.map(|level| table[level]).max().unwrap_or(0))
    }

    /// How many CPUs' time there is to share among those who are here.
    pub fn giving(&self, question: &SharingQuery) -> i64 {
        (question.capacity).map_or(self.serving, |most| self.members.min(most))
    }

    pub fn advance(&mut self, t: i64, question: &SharingQuery) {
        let dur = t - self.at;
        self.at = t;
        let giving = self.giving(question);
        if dur <= 0 || giving == 0 {
            return;
        }
        self.served += dur * giving;
        if self.weight == 0 {
            return;
        }
        let rate = giving as f64 / self.weight as f64;
        if question.machine && rate * self.heaviest(&question.table) as f64 > ONE {
            let rate = filled(rate, giving, self.weight, &self.present, &question.table);
            let capped = self.capped.get_or_insert_with(|| Box::new([0.0; LEVELS]));
            for level in (0..LEVELS).filter(|level| self.present[*level] > 0) {
                capped[level] += dur as f64 * (question.table[level] as f64 * rate).min(1.0);
            }
            return;
        }
        self.due += dur as f64 * rate;
    }

    /// Service due to a weight of this level so far, had it been here from the start on.
    pub fn due(&self, level: usize, table: &[i64; LEVELS]) -> (f64, f64) {
        (
            self.due * table[level] as f64,
            self.capped.as_ref().map_or(0.0, |capped| capped[level]),
        )
    }
}

/// The rate at which no thread is due more than one CPU, and the remainder goes to the rest.
///
/// Water filling: a thread due more gets one CPU and is removed, which raises the rate of the
/// others, until there is none.
fn filled(
    mut rate: f64,
    giving: i64,
    weight: i64,
    present: &[u32; LEVELS],
    table: &[i64; LEVELS],
) -> f64 {
    let mut full = [false; LEVELS];
    loop {
        let mut more = false;
        for level in 0..LEVELS {
            if !full[level] && present[level] > 0 && rate * table[level] as f64 > ONE {
                (full[level], more) = (true, true);
            }
        }
        if !more {
            return rate;
        }
        let (mut left, mut rest) = (giving, weight);
        for level in (0..LEVELS).filter(|level| full[*level]) {
            left -= i64::from(present[level]);
            rest -= i64::from(present[level]) * table[level];
        }
        // No thread due less than a CPU remains.
        rate = if rest > 0 {
            left.max(0) as f64 / rest as f64
        } else {
            1.0
        };
    }
}

/// What is known of a thread.
#[derive(Clone, Copy, Default)]
struct Thread {
    since: i64,
    /// It is in this set, at this level.
    set: usize,
    level: usize,
    /// What the set had by then.
    due: (f64, f64),
    served: i64,
    /// The row of its sums that was last in use.
    sum: Option<usize>,
}

struct Due<'a> {
    question: &'a SharingQuery,
    sets: Vec<Set>,
    threads: Vec<Thread>,
    sums: Vec<Sum>,
    of: FxHashMap<(u32, u8, u16), usize>,
    /// Where groups share: a queue for each set.
    grouped: Option<Grouped<'a>>,
}

impl Due<'_> {
    /// The row of a thread's sums for this place.
    #[inline]
    fn sum(&mut self, utid: u32, place: Position) -> usize {
        let cpu = if self.question.by_cpu {
            place.cpu
        } else {
            NOWHERE
        };
        let class = class_of(place.tag);
        match self.threads[utid as usize].sum {
            Some(row) if self.sums[row].class == class && self.sums[row].cpu == cpu => row,
            _ => self.other_sum(utid, class, cpu),
        }
    }

    fn other_sum(&mut self, utid: u32, class: usize, cpu: u16) -> usize {
        let Self { of, sums, .. } = self;
        let row = *of.entry((utid, class as u8, cpu)).or_insert_with(|| {
            sums.push(Sum {
                utid,
                class,
                cpu,
                running: 0,
                waiting: 0,
                unplaced: 0,
                due: 0.0,
                served: 0,
                competed: false,
                heaviest: 0,
                lightest: i64::MAX,
                equal: false,
            });
            sums.len() - 1
        });
        self.threads[utid as usize].sum = Some(row);
        row
    }

    /// What its set had for the thread since it was last asked.
    #[inline]
    fn share(&mut self, t: i64, utid: u32) -> (f64, i64) {
        let thread = &mut self.threads[utid as usize];
        let set = &mut self.sets[thread.set];
        let table = &self.question.table;
        set.advance(t, self.question);
        let now = match &mut self.grouped {
            Some(grouped) => {
                let weight = table[thread.level];
                let giving = set.giving(self.question);
                (grouped.due(thread.set, t, giving, utid, weight), 0.0)
            }
            None => set.due(thread.level, table),
        };
        let due = (now.0 - thread.due.0) + (now.1 - thread.due.1);
        let served = set.served - thread.served;
        (thread.due, thread.served) = (now, set.served);
        (due, served)
    }

    fn enter(&mut self, t: i64, utid: u32, number: usize, to: Position) {
        let row = self.sum(utid, to);
        let (level, table) = (level_of(to.tag), &self.question.table);
        let set = &mut self.sets[number];
        if let Some(grouped) = &mut self.grouped {
            let giving = set.giving(self.question);
            grouped.due(number, t, giving, utid, table[level]);
            let fair = class_of(to.tag) == self.question.fair;
            grouped.enter(number, utid, table[level], fair);
        }
        set.advance(t, self.question);
        set.add(level, to.doing == Presence::Running, table);
        let thread = &mut self.threads[utid as usize];
        (thread.set, thread.level) = (number, level);
        let before = match &mut self.grouped {
            // Nothing was given since it was asked above.
            Some(grouped) => (grouped.due(number, t, 0, utid, table[level]), 0.0),
            None => set.due(level, table),
        };
        (thread.due, thread.served) = (before, set.served);
        let sum = &mut self.sums[row];
        sum.competed = true;
        sum.heaviest = sum.heaviest.max(table[level]);
        sum.lightest = sum.lightest.min(table[level]);
        sum.equal |= level == usize::from(EQUAL);
    }
}

impl Sweep for Due<'_> {
    fn change(&mut self, t: i64, utid: u32, from: Position, to: Position) {
        let who = utid as usize;
        let (before, after) = (self.question.set(from), self.question.set(to));
        let (due, served) = match before {
            Some(_) => self.share(t, utid),
            None => (0.0, 0),
        };
        let dur = t - std::mem::replace(&mut self.threads[who].since, t);
        if from.doing != Presence::Away {
            let row = self.sum(utid, from);
            let sum = &mut self.sums[row];
            sum.due += due;
            sum.served += served;
            match from.doing {
                Presence::Running => sum.running += dur,
                _ if from.cpu == NOWHERE => sum.unplaced += dur,
                _ => sum.waiting += dur,
            }
        }
        let (ran, runs) = (
            from.doing == Presence::Running,
            to.doing == Presence::Running,
        );
        let (old, new) = (level_of(from.tag), level_of(to.tag));
        match (before, after) {
            (Some(set), Some(same)) if set == same && old == new => {
                self.sets[set].turn(ran, runs);
                if let Some(grouped) = &mut self.grouped {
                    grouped.divide(set);
                }
            }
            _ => {
                if let Some(set) = before {
                    if let Some(grouped) = &mut self.grouped {
                        grouped.leave(set, utid, self.question.table[old]);
                    }
                    self.sets[set].remove(old, ran, &self.question.table);
                }
                if let Some(set) = after {
                    self.enter(t, utid, set, to);
                }
                if let (Some(grouped), Some(set)) = (&mut self.grouped, before) {
                    // Its group has the thread's weight elsewhere by now.
                    grouped.divide(set);
                }
            }
        }
    }

    fn idle(&mut self, _: i64, _: u16, _: bool) {}

    fn instant(&mut self, _: i64) {}
}

/// Sums of every thread that ran or waited.
pub fn due(changes: &Changes, question: &SharingQuery) -> Result<Vec<Sum>> {
    let count = question.sets(changes);
    let mut sweep = Due {
        sets: (0..count).map(|_| Set::default()).collect(),
        grouped: question.grouped(count, changes.threads),
        threads: vec![Thread::default(); changes.threads],
        sums: Vec::new(),
        of: FxHashMap::default(),
        question,
    };
    quotas::tell(question.quotas.as_ref(), changes, &mut sweep)?;
    Ok(sweep.sums)
}
