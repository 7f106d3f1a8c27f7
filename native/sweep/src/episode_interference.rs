//! Who had the CPUs while some threads waited, episode by episode?
//!
//! Each CPU keeps a log of what ran on it since the first of those began to wait there who
//! still do. A stretch of waiting is charged with its part of the log when it ends, and
//! before that whenever the log is full.
use std::collections::BTreeSet;

use super::changes::{Changes, Position, Presence, Sweep};
use super::charges::{Charges, Charging, Run, Share, Wait};
use super::clock::Clock;
use super::cpu_index::CpuIndex;
use crate::error::Result;

/// What a thread waited in; ns after the start of the window.
pub struct Episode {
    pub utid: u32,
    pub ts: i64,
    pub until: i64,
    /// CPUs that the thread may run on.
    pub allowed: Vec<u16>,
}

/// Where the time of one episode went.
#[derive(Debug, Default, PartialEq)]
pub struct Found {
    /// Queues on which the thread waited (none: no known one), and how long.
    pub waited: Vec<(Option<u16>, i64)>,
    /// Its last known priority while it waited.
    pub prio: Option<i16>,
    /// Who ran on the queues of one CPU, and on one that all allowed CPUs share, by utid.
    pub ran: [Vec<Share>; 2],
    /// Other CPUs that the thread may run on, and how long each idled.
    pub idle: Vec<(u16, i64)>,
}

/// What is kept at a time.
#[derive(Clone, Copy)]
struct Limits {
    /// Runs in a log: as many as stay in the processor's cache.
    log: usize,
    /// Sums in tables of all threads.
    sums: usize,
}

const LIMITS: Limits = Limits {
    log: 1 << 9,
    // 64 MB.
    sums: 1 << 21,
};

#[derive(Default)]
struct Cpu {
    /// Who runs: one, unless the trace contradicts itself. Up to its `since`, each is in the log.
    on: Vec<Run>,
    /// In order of their ends.
    log: Vec<Run>,
    /// Stretches that are going to be charged by the log.
    asked: usize,
}

impl Cpu {
    /// Whatever runs is in the log up to `t`.
    #[inline]
    fn settle(&mut self, t: i64) {
        for run in &mut self.on {
            if self.asked > 0 && t > run.since {
                self.log.push(Run { until: t, ..*run });
                run.since = t;
            }
        }
    }

    fn release(&mut self) {
        self.asked -= 1;
        if self.asked == 0 {
            self.log.clear();
        }
    }
}

/// A stretch of waiting that is going on.
struct Stretch {
    lane: usize,
    wait: Wait,
    /// No CPU's own queue, but one of all that the thread may run on.
    shared: bool,
}

/// An episode that is going on.
struct Open {
    /// Of the CPUs that the thread may run on.
    allowed: Vec<usize>,
    stretch: Option<Stretch>,
    /// Of the CPUs that serve its queue.
    serving: Vec<usize>,
    /// By threads on queues of one CPU, and on shared ones.
    charges: [Charges; 2],
    /// As `allowed`; what the clocks showed when the stretch at hand began is taken off.
    idle: Vec<i64>,
    /// By lane, how long it waited there, and its last known priority meanwhile.
    waited: Vec<i64>,
    prio: Option<i16>,
}

impl Open {
    fn new(allowed: Vec<usize>, lanes: usize) -> Self {
        Self {
            idle: vec![0; allowed.len()],
            allowed,
            stretch: None,
            serving: Vec::new(),
            charges: Default::default(),
            waited: vec![0; lanes],
            prio: None,
        }
    }

    /// What the clocks of the CPUs but the one of `lane` show at `t` is added, or taken off.
    #[inline]
    fn idled(&mut self, t: i64, lane: usize, clocks: &[Clock], sign: i64) {
        for (time, other) in self.idle.iter_mut().zip(&self.allowed) {
            let sign = if *other == lane { 0 } else { sign };
            *time += sign * clocks[*other].read(t);
        }
    }

    /// Charges the stretch at hand with what a CPU's log has of it.
    fn charge(&mut self, cpu: &Cpu, charging: &mut Charging) {
        if let Some(Stretch { wait, shared, .. }) = &self.stretch {
            self.charges[usize::from(*shared)].add(wait, &cpu.log, charging);
        }
    }
}

struct Culprits<'a> {
    changes: &'a Changes,
    lanes: CpuIndex,
    log: usize,
    /// By lane, without that of no known queue.
    cpus: Vec<Cpu>,
    /// How long each has idled.
    idled: Vec<Clock>,
    episodes: &'a [Episode],
    /// When an episode begins (or ends), the last one first.
    edges: Vec<(i64, bool, usize)>,
    /// By episode, and their numbers.
    open: Vec<Option<Open>>,
    going: BTreeSet<usize>,
    /// By utid, its open episodes.
    of: Vec<Vec<usize>>,
    /// By utid, the lane and the priority in which it waits.
    waits: Vec<Option<(usize, Option<i16>)>>,
    /// How many of the changes of priority are in `prios`.
    noted: usize,
    /// By utid, from now on.
    prios: Vec<Option<i16>>,
    /// Until then, of all changes only those of the sweep.
    until: i64,
    charging: Charging,
    found: Vec<Found>,
}

impl<'a> Culprits<'a> {
    fn new(changes: &'a Changes, episodes: &'a [Episode], strict_to: i16, limits: Limits) -> Self {
        let mut edges = Vec::new();
        for (number, Episode { ts, until, .. }) in episodes.iter().enumerate() {
            if ts < until {
                edges.extend([(*ts, true, number), (*until, false, number)]);
            }
        }
        edges.sort_unstable_by(|one, other| other.cmp(one));
        let lanes = CpuIndex::new(changes.cpus.clone());
        let asked = episodes.iter().map(|episode| episode.utid as usize + 1);
        let threads = asked.max().unwrap_or(0).max(changes.threads);
        Self {
            changes,
            log: limits.log,
            cpus: lanes.cpus.iter().map(|_| Cpu::default()).collect(),
            idled: vec![Clock::default(); lanes.cpus.len()],
            lanes,
            edges,
            open: episodes.iter().map(|_| None).collect(),
            going: BTreeSet::new(),
            of: vec![Vec::new(); threads],
            waits: vec![None; threads],
            noted: 0,
            prios: vec![None; threads],
            until: i64::MIN,
            charging: Charging {
                threads,
                strict_to,
                left: limits.sums,
            },
            found: episodes.iter().map(|_| Found::default()).collect(),
            episodes,
        }
    }

    /// What begins, ends and is noted before the changes at `t`.
    #[inline]
    fn proceed(&mut self, t: i64) {
        if t >= self.until {
            self.catch_up(t);
        }
    }

    #[cold]
    fn catch_up(&mut self, t: i64) {
        while self.edges.last().is_some_and(|edge| edge.0 < t) {
            self.edge();
        }
        let prios = &self.changes.prios[self.noted..];
        let noted = prios.partition_point(|now| now.t <= t);
        for now in &prios[..noted] {
            self.prios[now.utid as usize] = now.prio;
        }
        self.noted += noted;
        let edge = self
            .edges
            .last()
            .map_or(i64::MAX, |edge| edge.0.saturating_add(1));
        let prio = prios.get(noted).map_or(i64::MAX, |now| now.t);
        self.until = edge.min(prio);
    }

    fn edge(&mut self) {
        let Some((t, begins, number)) = self.edges.pop() else {
            return;
        };
        let Episode { utid, allowed, .. } = &self.episodes[number];
        let who = *utid as usize;
        if begins {
            let lanes = allowed.iter().map(|cpu| self.lanes.of(*cpu));
            // On the others no thread ever ran or waited.
            let known = lanes.filter(|lane| *lane != self.lanes.nowhere());
            self.open[number] = Some(Open::new(known.collect(), self.lanes.count()));
            self.going.insert(number);
            self.of[who].push(number);
            if let Some((lane, prio)) = self.waits[who] {
                self.begin(number, lane, Wait { ts: t, prio });
            }
        } else {
            self.end(number, t);
            self.going.remove(&number);
            self.of[who].retain(|open| *open != number);
            if let Some(open) = self.open[number].take() {
                self.found[number] = self.told(open);
            }
        }
    }

    fn told(&mut self, open: Open) -> Found {
        let waited = (0..).zip(open.waited).filter(|(_, time)| *time > 0);
        let number = |lane: &usize| self.lanes.number(*lane);
        let idle = open.allowed.iter().filter_map(number).zip(open.idle);
        Found {
            waited: waited.map(|(lane, time)| (number(&lane), time)).collect(),
            prio: open.prio,
            ran: open.charges.map(|charges| charges.told(&mut self.charging)),
            idle: idle.filter(|(_, time)| *time > 0).collect(),
        }
    }

    /// A stretch of waiting begins in an open episode.
    fn begin(&mut self, number: usize, lane: usize, wait: Wait) {
        let Some(open) = &mut self.open[number] else {
            return;
        };
        let shared = lane == self.lanes.nowhere();
        if shared {
            open.serving.clone_from(&open.allowed);
        } else {
            open.serving.push(lane);
            open.idled(wait.ts, lane, &self.idled, -1);
        }
        for lane in &open.serving {
            self.cpus[*lane].asked += 1;
        }
        open.stretch = Some(Stretch { lane, wait, shared });
    }

    /// It ends, if one is going on.
    fn end(&mut self, number: usize, t: i64) {
        let Some(open) = &mut self.open[number] else {
            return;
        };
        for at in 0..open.serving.len() {
            let cpu = &mut self.cpus[open.serving[at]];
            cpu.settle(t);
            open.charge(cpu, &mut self.charging);
            cpu.release();
        }
        open.serving.clear();
        let Some(Stretch { lane, wait, shared }) = open.stretch.take() else {
            return;
        };
        if !shared {
            open.idled(t, lane, &self.idled, 1);
        }
        open.waited[lane] += t - wait.ts;
        if wait.ts < t {
            open.prio = wait.prio.or(open.prio);
        }
    }

    #[inline]
    fn waits(&mut self, ts: i64, utid: u32, lane: usize) {
        let who = utid as usize;
        let prio = self.prios[who];
        self.waits[who] = Some((lane, prio));
        for at in 0..self.of[who].len() {
            self.begin(self.of[who][at], lane, Wait { ts, prio });
        }
    }

    #[inline]
    fn stops_waiting(&mut self, t: i64, utid: u32) {
        let who = utid as usize;
        self.waits[who] = None;
        for at in 0..self.of[who].len() {
            self.end(self.of[who][at], t);
        }
    }

    #[inline]
    fn runs(&mut self, t: i64, utid: u32, lane: usize) {
        if let Some(cpu) = self.cpus.get_mut(lane) {
            cpu.on.push(Run {
                since: t,
                until: t,
                utid,
                prio: self.prios[utid as usize],
            });
        }
    }

    #[inline]
    fn stops_running(&mut self, t: i64, utid: u32, lane: usize) {
        let Some(cpu) = self.cpus.get_mut(lane) else {
            return;
        };
        cpu.settle(t);
        // It is nearly always the only one.
        if cpu.on.last().is_some_and(|run| run.utid == utid) {
            cpu.on.pop();
        } else if let Some(at) = cpu.on.iter().position(|run| run.utid == utid) {
            cpu.on.swap_remove(at);
        }
        if cpu.log.len() >= self.log {
            self.empty(lane);
        }
    }

    /// Charges all who wait with what the log has, so that it is not needed any more.
    fn empty(&mut self, lane: usize) {
        let cpu = &mut self.cpus[lane];
        for number in &self.going {
            let open = self.open[*number].as_mut();
            if let Some(open) = open.filter(|open| open.serving.contains(&lane)) {
                open.charge(cpu, &mut self.charging);
            }
        }
        cpu.log.clear();
    }
}

impl Sweep for Culprits<'_> {
    fn change(&mut self, t: i64, utid: u32, from: Position, to: Position) {
        self.proceed(t);
        match from.doing {
            Presence::Away => {}
            Presence::Waiting => self.stops_waiting(t, utid),
            Presence::Running => self.stops_running(t, utid, self.lanes.of(from.cpu)),
        }
        match to.doing {
            Presence::Away => {}
            Presence::Waiting => self.waits(t, utid, self.lanes.of(to.cpu)),
            Presence::Running => self.runs(t, utid, self.lanes.of(to.cpu)),
        }
    }

    /// All idle threads are one here, and that has no priority.
    fn idle(&mut self, t: i64, cpu: u16, begins: bool) {
        self.proceed(t);
        let lane = self.lanes.of(cpu);
        if begins {
            self.runs(t, 0, lane);
        } else {
            self.stops_running(t, 0, lane);
        }
        if let Some(clock) = self.idled.get_mut(lane) {
            clock.set(t, begins);
        }
    }

    fn instant(&mut self, _: i64) {}
}

/// Accounts for every ns of waiting in each episode; the priority decides below `strict_to`.
pub fn episode_interference(
    changes: &Changes,
    episodes: &[Episode],
    strict_to: i16,
) -> Result<Vec<Found>> {
    within(changes, episodes, strict_to, LIMITS)
}

fn within(
    changes: &Changes,
    episodes: &[Episode],
    strict_to: i16,
    limits: Limits,
) -> Result<Vec<Found>> {
    let mut sweep = Culprits::new(changes, episodes, strict_to, limits);
    changes.tell(&mut sweep)?;
    while !sweep.edges.is_empty() {
        sweep.edge();
    }
    Ok(sweep.found)
}

#[cfg(test)]
mod tests {
    use super::super::changes::Reader;
    use super::super::random_states::{LENGTH, THREADS, random, world};
    use super::super::weights::Weights;
    use super::*;

    #[test]
    fn how_much_is_kept_changes_nothing() {
        for seed in 0..40 {
            let mut reader = Reader::new((0, LENGTH), 1).expect("a window");
            reader
                .read(&world(seed).0, Some(&Weights::equal()))
                .expect("a table of states");
            let changes = reader.finish();
            let mut random = random(seed);
            // Several of one thread overlap.
            let episodes: Vec<Episode> = (0..12)
                .map(|_| {
                    let ts = i64::from(random(LENGTH as u32));
                    Episode {
                        utid: 1 + random(THREADS),
                        ts,
                        until: ts + i64::from(random(200)),
                        allowed: (0..5).filter(|_| random(3) > 0).collect(),
                    }
                })
                .collect();
            let mut told = Vec::new();
            for log in [1, 2, 5, 40, 1 << 12] {
                for sums in [0, 2 * THREADS as usize + 2, 1 << 21] {
                    let found = within(&changes, &episodes, 100, Limits { log, sums });
                    told.push(found.expect("an answer"));
                }
            }
            assert!(told[0].iter().any(|found| !found.ran[0].is_empty()));
            assert!(told.iter().all(|found| *found == told[0]), "{seed}");
        }
    }
}
