//! What was the CPU doing while a thread waited for it, by what its time went to?
//!
//! Every instant of a wait belongs to one part: the CPU on whose queue the thread is ran a thread
//! of better, the same or worse priority, handled interrupts, idled, was not allowed to run the
//! thread (its group's quota was used up), or is unknown. Parts of a wait sum up to it.
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

/// A stretch of time on a CPU, in ns after the start of the window.
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
    /// By utid: its group has a quota and was throttled, at unrecorded times. Then a CPU that idles
    /// longer than `dispatch` beside the thread could not have run it.
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

/// One wait; ns after the start of the window.
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

/// Times by rank, each with those of all better ones.
struct ByRank(Vec<i64>);

impl ByRank {
    #[inline]
    fn add(&mut self, rank: Rank, time: i64) {
        for sum in &mut self.0[usize::from(rank) + 1..] {
            *sum += time;
        }
    }

    /// Of all ranks before, and of those up to this one.
    #[inline]
    fn before_and_up_to(&self, rank: Rank) -> (i64, i64) {
        let rank = usize::from(rank);
        (self.0[rank], self.0[rank + 1])
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runner {
    Unknown,
    Idle,
    Thread(u32),
}

/// Place of a priority among all of the trace, the best first.
type Rank = u16;
/// The priority is not known.
const UNRANKED: Rank = Rank::MAX;
/// Systems know 256 priorities at most. In a trace that has more the worst count as not known.
const RANKS: usize = 1024;

/// A CPU and its clocks: how its time was spent, from the start of the window on. Each change there
/// moves one of them, however many wait; a waiter reads them when it comes and when it goes.
struct Cpu {
    runner: Runner,
    /// Of the thread that runs.
    rank: Rank,
    /// Up to then the clocks are set.
    settled: i64,
    handled: i64,
    idle: i64,
    unknown: i64,
    ran: ByRank,
    /// Who waits here and may be throttled.
    watched: Vec<u32>,
    /// Groups that may not run here now.
    throttled: Vec<u32>,
    interrupts: Stretches,
}

impl Cpu {
    /// Sets the clocks to `t`.
    #[inline]
    fn settle(&mut self, t: i64) {
        let since = self.settled;
        if since >= t {
            return;
        }
        self.settled = t;
        let handled = self.interrupts.pass(since, t);
        self.handled += handled;
        let rest = t - since - handled;
        match self.runner {
            Runner::Idle => self.idle += rest,
            Runner::Thread(_) if self.rank != UNRANKED => self.ran.add(self.rank, rest),
            _ => self.unknown += rest,
        }
    }

    /// What all time until now is to one who would have waited for it: the sum is that time.
    #[inline]
    fn reading(&self, own: Rank, throttled: bool) -> Parts {
        let rest = self.settled - self.handled;
        let mut parts = [0; PARTS];
        parts[Part::Interrupts as usize] = self.handled;
        if throttled {
            parts[Part::Throttled as usize] = rest;
            return parts;
        }
        parts[Part::Idle as usize] = self.idle;
        if own == UNRANKED {
            parts[Part::Unknown as usize] = rest - self.idle;
            return parts;
        }
        let (better, as_good) = self.ran.before_and_up_to(own);
        parts[Part::Better as usize] = better;
        parts[Part::Same as usize] = as_good - better;
        parts[Part::Worse as usize] = rest - self.idle - self.unknown - as_good;
        parts[Part::Unknown as usize] = self.unknown;
        parts
    }
}

/// The wait that a thread is in.
#[derive(Clone, Copy)]
struct Open {
    begin: i64,
    /// How much of `Part::Idle` is of the time since the CPU last began to idle; of those who are
    /// watched.
    idles: i64,
    /// Its place among those watched on the CPU.
    place: usize,
}

/// What is known of a thread.
#[derive(Clone, Copy)]
struct Thread {
    /// The last one's for good of SCHED_IDLE.
    rank: Rank,
    /// It may be throttled.
    watched: bool,
    victim: Option<u32>,
    /// Where its parts are summed up.
    account: u32,
    place: Position,
}

struct Breakdown<'a> {
    asked: &'a BreakdownQuery,
    cpus: Vec<Cpu>,
    /// All priorities, the best first.
    ranks: Vec<i16>,
    /// By utid, as `open`.
    threads: Vec<Thread>,
    open: Vec<Open>,
    /// Of each victim, or of each thread's wait if the longest are asked for. While a thread waits
    /// for a CPU, what it read there when it came is subtracted, here and of `idles`: both are
    /// right again by what it reads in the end.
    accounts: Vec<Parts>,
    prios: std::iter::Peekable<std::slice::Iter<'a, Reprio>>,
    throttles: Vec<(i64, usize, u32, bool)>,
    next_throttle: usize,
    /// Until then neither a priority changes nor a quota.
    quiet: i64,
    totals: Vec<Total>,
    longest: BinaryHeap<Reverse<Wait>>,
}

const NOT_OPEN: Open = Open {
    begin: 0,
    idles: 0,
    place: 0,
};

impl<'a> Breakdown<'a> {
    fn new(asked: &'a BreakdownQuery, prios: &'a [Reprio], threads: usize) -> Self {
        let is_idle = |utid: usize| asked.is_idle.get(utid) == Some(&true);
        let mut ranks: Vec<i16> = prios.iter().filter_map(|change| change.prio).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks.truncate(RANKS);
        ranks.retain(|prio| *prio != LAST);
        ranks.push(LAST);
        let mut cpus: Vec<Cpu> = (0..asked.lanes.count())
            .map(|_| Cpu {
                runner: Runner::Unknown,
                rank: UNRANKED,
                settled: 0,
                handled: 0,
                idle: 0,
                unknown: 0,
                ran: ByRank(vec![0; ranks.len() + 1]),
                watched: Vec::new(),
                throttled: Vec::new(),
                interrupts: Stretches::default(),
            })
            .collect();
        for one in &asked.interrupts {
            cpus[one.lane].interrupts.add(one.begin, one.end);
        }
        let mut throttles: Vec<(i64, usize, u32, bool)> = (asked.throttles.iter())
            .filter(|(_, one)| one.begin < one.end)
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
        let last = (ranks.len() - 1) as Rank;
        let group = |utid: usize| asked.group.get(utid).copied().flatten();
        let victim = |utid: usize| asked.victim.get(utid).copied().flatten();
        let single = asked.longest > 0;
        let accounts = if single { threads } else { asked.nvictims };
        let threads: Vec<Thread> = (0..threads)
            .map(|utid| Thread {
                rank: if is_idle(utid) { last } else { UNRANKED },
                watched: group(utid).is_some() || asked.held.get(utid) == Some(&true),
                victim: victim(utid),
                account: if single {
                    utid as u32
                } else {
                    victim(utid).unwrap_or(0)
                },
                place: away,
            })
            .collect();
        Self {
            asked,
            cpus,
            ranks,
            open: vec![NOT_OPEN; threads.len()],
            accounts: vec![[0; PARTS]; accounts],
            threads,
            prios: prios.iter().peekable(),
            throttles,
            next_throttle: 0,
            quiet: i64::MIN,
            totals: vec![Total::default(); asked.nvictims],
            longest: BinaryHeap::new(),
        }
    }

    fn counts(&self, utid: u32, lane: usize) -> bool {
        let only = self.asked.only.as_ref();
        only.is_none_or(|only| only.contains(&(utid, self.asked.lanes.number(lane))))
    }

    #[inline]
    fn reads(&self, utid: u32, lane: usize) -> Parts {
        let Thread { rank, watched, .. } = self.threads[utid as usize];
        let cpu = &self.cpus[lane];
        cpu.reading(rank, watched && self.is_throttled(utid, cpu))
    }

    fn is_throttled(&self, utid: u32, cpu: &Cpu) -> bool {
        !cpu.throttled.is_empty()
            && (self.asked.group.get(utid as usize).copied().flatten())
                .is_some_and(|group| cpu.throttled.contains(&group))
    }

    fn account(&mut self, utid: u32) -> &mut Parts {
        &mut self.accounts[self.threads[utid as usize].account as usize]
    }

    /// From now on a thread waits by the clocks of a CPU, which are set.
    #[inline]
    fn starts(&mut self, utid: u32, lane: usize) {
        let read = self.reads(utid, lane);
        for (part, read) in self.account(utid).iter_mut().zip(read) {
            *part -= read;
        }
        self.open[utid as usize].idles -= read[Part::Idle as usize];
    }

    /// Until now it did.
    #[inline]
    fn stops(&mut self, utid: u32, lane: usize) {
        let read = self.reads(utid, lane);
        for (part, read) in self.account(utid).iter_mut().zip(read) {
            *part += read;
        }
        self.open[utid as usize].idles += read[Part::Idle as usize];
    }

    /// The CPU ends to idle beside a thread that is watched, or that leaves it.
    fn idled(&mut self, utid: u32) {
        let held = self.asked.held.get(utid as usize) == Some(&true);
        let idles = std::mem::take(&mut self.open[utid as usize].idles);
        if held && idles > self.asked.dispatch {
            let parts = self.account(utid);
            parts[Part::Idle as usize] -= idles;
            parts[Part::Throttled as usize] += idles;
        }
    }

    fn stops_idling(&mut self, lane: usize) {
        for at in 0..self.cpus[lane].watched.len() {
            let utid = self.cpus[lane].watched[at];
            self.stops(utid, lane);
            self.idled(utid);
            self.starts(utid, lane);
        }
    }

    fn runs(&mut self, t: i64, lane: usize, runner: Runner, rank: Rank) {
        let cpu = &mut self.cpus[lane];
        cpu.settle(t);
        let was = std::mem::replace(&mut cpu.runner, runner);
        cpu.rank = rank;
        if was == Runner::Idle && runner != was {
            self.stops_idling(lane);
        }
    }

    fn joins(&mut self, t: i64, utid: u32, lane: usize) {
        self.cpus[lane].settle(t);
        self.starts(utid, lane);
        if self.threads[utid as usize].watched {
            let watched = &mut self.cpus[lane].watched;
            self.open[utid as usize].place = watched.len();
            watched.push(utid);
        }
    }

    fn leaves(&mut self, t: i64, utid: u32, lane: usize) {
        self.cpus[lane].settle(t);
        self.stops(utid, lane);
        if self.threads[utid as usize].watched {
            self.idled(utid);
            let place = self.open[utid as usize].place;
            let watched = &mut self.cpus[lane].watched;
            watched.swap_remove(place);
            if let Some(moved) = watched.get(place) {
                self.open[*moved as usize].place = place;
            }
        }
    }

    fn ends(&mut self, t: i64, utid: u32, victim: u32, lane: usize) {
        let begin = self.open[utid as usize].begin;
        let total = &mut self.totals[victim as usize];
        total.n += 1;
        total.wait += t - begin;
        if self.asked.longest > 0 {
            let parts = std::mem::take(&mut self.accounts[utid as usize]);
            for (sum, part) in total.parts.iter_mut().zip(parts) {
                *sum += part;
            }
            self.keep(Wait {
                length: t - begin,
                begin: Reverse(begin),
                utid,
                lane,
                parts,
            });
        }
    }

    /// Sums of each victim's waits, and the longest waits of all, the longest first.
    fn answer(mut self) -> (Vec<Total>, Vec<Wait>) {
        if self.asked.longest == 0 {
            for (total, parts) in self.totals.iter_mut().zip(self.accounts) {
                total.parts = parts;
            }
        }
        let longest = self.longest.into_sorted_vec();
        (self.totals, longest.into_iter().map(|one| one.0).collect())
    }

    /// If it is one of the longest.
    fn keep(&mut self, wait: Wait) {
        if self.longest.len() < self.asked.longest {
            self.longest.push(Reverse(wait));
        } else if let Some(mut least) = self.longest.peek_mut()
            && least.0 < wait
        {
            *least = Reverse(wait);
        }
    }

    /// Priorities and quotas that change at `t` or before, in order of time.
    #[inline]
    fn come_to(&mut self, t: i64) {
        if t >= self.quiet {
            self.catch_up(t);
        }
    }

    #[cold]
    fn catch_up(&mut self, t: i64) {
        loop {
            let prio = self.prios.peek().map_or(i64::MAX, |change| change.t);
            let quota = self.throttles.get(self.next_throttle).copied();
            self.quiet = prio.min(quota.map_or(i64::MAX, |(at, ..)| at));
            if self.quiet > t {
                return;
            }
            match quota {
                Some((at, lane, group, begins)) if at < prio => {
                    self.next_throttle += 1;
                    self.quota_changes(at, lane, group, begins);
                }
                _ => match self.prios.next() {
                    Some(change) => self.prio_changes(change),
                    None => return,
                },
            }
        }
    }

    fn prio_changes(&mut self, change: &Reprio) {
        let Reprio { t, utid, prio } = *change;
        if self.asked.is_idle.get(utid as usize) == Some(&true) {
            return;
        }
        let rank = prio.and_then(|prio| self.ranks.binary_search(&prio).ok());
        let rank = rank.map_or(UNRANKED, |rank| rank as Rank);
        let Position { doing, cpu, .. } = self.threads[utid as usize].place;
        let lane = self.asked.lanes.of(cpu);
        match doing {
            Presence::Waiting if self.is_counted(utid, lane) => {
                self.cpus[lane].settle(t);
                self.stops(utid, lane);
                self.threads[utid as usize].rank = rank;
                self.starts(utid, lane);
            }
            Presence::Running if self.cpus[lane].runner == Runner::Thread(utid) => {
                self.cpus[lane].settle(t);
                self.cpus[lane].rank = rank;
            }
            _ => {}
        }
        self.threads[utid as usize].rank = rank;
    }

    fn is_counted(&self, utid: u32, lane: usize) -> bool {
        self.threads[utid as usize].victim.is_some() && self.counts(utid, lane)
    }

    fn quota_changes(&mut self, t: i64, lane: usize, group: u32, begins: bool) {
        self.cpus[lane].settle(t);
        let of_group: Vec<u32> = (self.cpus[lane].watched.iter().copied())
            .filter(|utid| self.asked.group.get(*utid as usize) == Some(&Some(group)))
            .collect();
        for utid in &of_group {
            self.stops(*utid, lane);
        }
        let throttled = &mut self.cpus[lane].throttled;
        if begins {
            throttled.push(group);
        } else if let Some(place) = throttled.iter().position(|one| *one == group) {
            throttled.swap_remove(place);
        }
        for utid in &of_group {
            self.starts(*utid, lane);
        }
    }
}

impl Sweep for Breakdown<'_> {
    #[inline]
    fn change(&mut self, t: i64, utid: u32, from: Position, to: Position) {
        self.come_to(t);
        let thread = &mut self.threads[utid as usize];
        thread.place = to;
        let Thread { rank, victim, .. } = *thread;
        let nowhere = self.asked.lanes.nowhere();
        let (left, taken) = (self.asked.lanes.of(from.cpu), self.asked.lanes.of(to.cpu));
        if from.doing == Presence::Running
            && left != nowhere
            && self.cpus[left].runner == Runner::Thread(utid)
        {
            self.runs(t, left, Runner::Unknown, UNRANKED);
        }
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
            self.runs(t, taken, Runner::Thread(utid), rank);
        }
    }

    fn idle(&mut self, t: i64, cpu: u16, begins: bool) {
        self.come_to(t);
        let lane = self.asked.lanes.of(cpu);
        if lane == self.asked.lanes.nowhere() {
            return;
        }
        if begins {
            self.runs(t, lane, Runner::Idle, UNRANKED);
        } else if self.cpus[lane].runner == Runner::Idle {
            self.runs(t, lane, Runner::Unknown, UNRANKED);
        }
    }

    fn instant(&mut self, _t: i64) {}
}

/// Sums of each victim's waits, and the longest waits of all, the longest first.
pub fn breakdown(asked: &BreakdownQuery, changes: &Changes) -> Result<(Vec<Total>, Vec<Wait>)> {
    let mut sweep = Breakdown::new(asked, &changes.prios, changes.threads);
    changes.tell(&mut sweep)?;
    Ok(sweep.answer())
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

    #[test]
    fn times_of_ranks_add_up() {
        let mut ranks = ByRank(vec![0; 5]);
        for (rank, time) in [(2, 5), (0, 7), (3, 11), (2, 1)] {
            ranks.add(rank, time);
        }
        let sums = [0, 1, 2, 3].map(|rank| ranks.before_and_up_to(rank));
        assert_eq!(sums, [(0, 7), (7, 7), (7, 13), (13, 24)]);
    }

    const CPUS: u16 = 3;
    const THREADS: u32 = 9;
    const LENGTH: i64 = 400;
    const DISPATCH: i64 = 4;

    /// A sequence of numbers that is the same in every run.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
            (self.0 >> 33) % n
        }

        fn at(&mut self) -> i64 {
            self.below(LENGTH as u64) as i64
        }
    }

    /// What the threads of a small machine do at each ns, which runs where, and the result.
    struct World {
        asked: BreakdownQuery,
        prios: Vec<Reprio>,
        changes: Vec<(i64, Change)>,
    }

    #[derive(Clone, Copy)]
    enum Change {
        Thread(u32, Position, Position),
        Idle(u16, bool),
    }

    const AWAY: Position = Position {
        doing: Presence::Away,
        cpu: crate::states::NOWHERE,
        tag: 0,
    };

    fn world(chance: &mut Chance) -> World {
        let stretch = |chance: &mut Chance| {
            let (begin, lane) = (chance.at(), chance.below(u64::from(CPUS)) as usize);
            let end = begin + chance.below(40) as i64;
            OnCpu { lane, begin, end }
        };
        let mut interrupts: Vec<OnCpu> = (0..8).map(|_| stretch(chance)).collect();
        interrupts.sort_by_key(|one| one.begin);
        let throttles = (0..8).map(|_| (chance.below(2) as u32, stretch(chance)));
        let throttles: Vec<(u32, OnCpu)> = throttles.collect();
        let asked = BreakdownQuery {
            victim: (0..THREADS)
                .map(|utid| (utid != 4).then_some(utid))
                .collect(),
            nvictims: THREADS as usize,
            only: None,
            lanes: CpuIndex::new((0..CPUS).collect()),
            is_idle: (0..THREADS).map(|utid| utid == 7).collect(),
            interrupts,
            throttles,
            group: (0..THREADS)
                .map(|utid| (utid < 4).then_some(utid % 2))
                .collect(),
            held: (0..THREADS).map(|utid| utid == 5 || utid == 6).collect(),
            dispatch: DISPATCH,
            longest: 1000,
        };
        let mut prios: Vec<Reprio> = (0..30)
            .map(|_| Reprio {
                t: chance.at(),
                utid: chance.below(u64::from(THREADS)) as u32,
                prio: (chance.below(6) > 0).then(|| 118 + chance.below(4) as i16),
            })
            .collect();
        prios.sort_by_key(|change| change.t);
        let mut changes = Vec::new();
        let mut place = [AWAY; THREADS as usize];
        let mut runs: [Option<u32>; CPUS as usize] = [None; CPUS as usize];
        let mut idles = [false; CPUS as usize];
        let mut t = 0;
        while t < LENGTH {
            let cpu = chance.below(u64::from(CPUS)) as u16;
            let utid = chance.below(u64::from(THREADS)) as u32;
            let (lane, who) = (usize::from(cpu), utid as usize);
            let queue = if chance.below(6) > 0 {
                cpu
            } else {
                crate::states::NOWHERE
            };
            let to = match chance.below(4) {
                0 if runs[lane].is_none() => Position {
                    doing: Presence::Running,
                    cpu,
                    tag: 0,
                },
                1 => AWAY,
                _ => Position {
                    doing: Presence::Waiting,
                    cpu: queue,
                    tag: 0,
                },
            };
            if to.doing == Presence::Running {
                if std::mem::take(&mut idles[lane]) {
                    changes.push((t, Change::Idle(cpu, false)));
                }
                runs[lane] = Some(utid);
            }
            let from = std::mem::replace(&mut place[who], to);
            if from.doing == Presence::Running && from != to {
                let left = usize::from(from.cpu);
                runs[left] = runs[left].filter(|one| *one != utid || to.cpu == from.cpu);
                if to.doing != Presence::Running && runs[left] == Some(utid) {
                    runs[left] = None;
                }
            }
            changes.push((t, Change::Thread(utid, from, to)));
            let lane = chance.below(u64::from(CPUS)) as usize;
            if runs[lane].is_none() && chance.below(2) == 0 {
                idles[lane] = !idles[lane];
                changes.push((t, Change::Idle(lane as u16, idles[lane])));
            }
            t += chance.below(12) as i64;
        }
        for utid in 0..THREADS {
            let from = place[utid as usize];
            changes.push((LENGTH, Change::Thread(utid, from, AWAY)));
        }
        World {
            asked,
            prios,
            changes,
        }
    }

    /// The definition, ns by ns: what each thread's waiting went to.
    fn by_the_nanosecond(world: &World) -> Vec<Parts> {
        let asked = &world.asked;
        let mut parts = vec![[0; PARTS]; THREADS as usize];
        let mut place = [AWAY; THREADS as usize];
        let mut idles = [false; CPUS as usize];
        let mut prio: Vec<Option<i16>> = (asked.is_idle.iter())
            .map(|is_idle| is_idle.then_some(LAST))
            .collect();
        // Idle time of the moment beside a thread that may be held back.
        let mut beside = [0; THREADS as usize];
        let end = |beside: &mut i64, parts: &mut Parts| {
            let idle = std::mem::take(beside);
            if idle > DISPATCH {
                parts[Part::Idle as usize] -= idle;
                parts[Part::Throttled as usize] += idle;
            }
        };
        let mut next = world.changes.iter().peekable();
        let mut prios = world.prios.iter().peekable();
        for t in 0..=LENGTH {
            while let Some(change) = prios.next_if(|change| change.t <= t) {
                if !asked.is_idle[change.utid as usize] {
                    prio[change.utid as usize] = change.prio;
                }
            }
            while let Some((_, change)) = next.next_if(|(at, _)| *at <= t) {
                match *change {
                    Change::Thread(utid, from, to) => {
                        let who = utid as usize;
                        place[who] = to;
                        if from.doing == Presence::Waiting {
                            end(&mut beside[who], &mut parts[who]);
                        }
                    }
                    Change::Idle(cpu, begins) => {
                        idles[usize::from(cpu)] = begins;
                        for who in 0..THREADS as usize {
                            if !begins && place[who].cpu == cpu {
                                end(&mut beside[who], &mut parts[who]);
                            }
                        }
                    }
                }
            }
            for (who, own) in place.iter().enumerate() {
                if own.doing != Presence::Waiting || asked.victim[who].is_none() {
                    continue;
                }
                let lane = asked.lanes.of(own.cpu);
                let during = |one: &OnCpu| one.lane == lane && one.begin <= t && t < one.end;
                let runner = (0..THREADS as usize).find(|other| {
                    place[*other].doing == Presence::Running && place[*other].cpu == own.cpu
                });
                let quota =
                    |(group, one): &(u32, OnCpu)| asked.group[who] == Some(*group) && during(one);
                let part = if asked.interrupts.iter().any(during) {
                    Part::Interrupts
                } else if asked.throttles.iter().any(quota) {
                    Part::Throttled
                } else if let Some(runner) = runner {
                    match (prio[runner], prio[who]) {
                        (Some(ahead), Some(own)) if ahead < own => Part::Better,
                        (Some(ahead), Some(own)) if ahead > own => Part::Worse,
                        (Some(_), Some(_)) => Part::Same,
                        _ => Part::Unknown,
                    }
                } else if own.cpu < CPUS && idles[usize::from(own.cpu)] {
                    beside[who] += i64::from(asked.held[who]);
                    Part::Idle
                } else {
                    Part::Unknown
                };
                parts[who][part as usize] += 1;
            }
        }
        parts
    }

    #[test]
    fn clocks_tell_what_every_nanosecond_went_to() {
        let mut seen = [0; PARTS];
        for seed in 0..600 {
            let mut world = world(&mut Chance(seed / 2));
            // The same with an account for each wait, and without.
            world.asked.longest = if seed % 2 == 0 { 1000 } else { 0 };
            let mut sweep = Breakdown::new(&world.asked, &world.prios, THREADS as usize);
            for (t, change) in &world.changes {
                match *change {
                    Change::Thread(utid, from, to) => sweep.change(*t, utid, from, to),
                    Change::Idle(cpu, begins) => sweep.idle(*t, cpu, begins),
                }
            }
            let expected = by_the_nanosecond(&world);
            let (totals, waits) = sweep.answer();
            for (utid, (total, parts)) in totals.iter().zip(&expected).enumerate() {
                assert_eq!(&total.parts, parts, "thread {utid} of seed {seed}");
                assert_eq!(total.wait, parts.iter().sum::<i64>());
                for (sum, part) in seen.iter_mut().zip(parts) {
                    *sum += part;
                }
            }
            for wait in waits {
                assert_eq!(wait.length, wait.parts.iter().sum::<i64>());
            }
        }
        assert!(seen.iter().all(|sum| *sum > 5_000), "{seen:?}");
    }
}
