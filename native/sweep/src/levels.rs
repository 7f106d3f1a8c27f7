//! For how long did how many threads want each CPU, and the machine?
use rustc_hash::FxHashMap;

use super::changes::{Changes, Position, Presence, Sweep};
use super::cpu_index::CpuIndex;
use crate::error::Result;

/// How long a level was held, and when first.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    pub dur: i64,
    pub first: i64,
}

/// Threads waiting, threads running if that is known.
type Level = (u32, Option<u32>);

#[derive(Default)]
struct Histogram {
    /// By threads waiting; running not known, 0, 1.
    common: Vec<[Held; 3]>,
    rest: FxHashMap<Level, Held>,
}

const NEVER: Held = Held {
    dur: 0,
    first: i64::MAX,
};
const COMMON: u32 = 1 << 20;

impl Histogram {
    #[inline]
    fn add(&mut self, (waiting, running): Level, since: i64, t: i64) {
        let column = running.map_or(0, |n| n as usize + 1);
        let held = if column < 3 && waiting < COMMON {
            let row = waiting as usize;
            if self.common.len() <= row {
                self.common.resize(row + 1, [NEVER; 3]);
            }
            &mut self.common[row][column]
        } else {
            self.rest.entry((waiting, running)).or_insert(NEVER)
        };
        held.dur += t - since;
        held.first = held.first.min(since);
    }

    fn levels(&self) -> Vec<(Level, Held)> {
        let mut found: Vec<(Level, Held)> = self
            .rest
            .iter()
            .map(|(level, held)| (*level, *held))
            .collect();
        for (waiting, row) in (0..).zip(&self.common) {
            for (running, held) in [None, Some(0), Some(1)].into_iter().zip(row) {
                if held.dur > 0 {
                    found.push(((waiting, running), *held));
                }
            }
        }
        found.sort_unstable_by_key(|(level, _)| *level);
        found
    }
}

#[derive(Default)]
struct Lane {
    waiting: u32,
    running: u32,
    /// Intervals that say what it does, idle ones included.
    known: u32,
    since: i64,
    held: Histogram,
    parts: Option<Box<Parts>>,
}

/// Sums over buckets of the window: how long what was so, and the most of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Part {
    pub unknown: i64,
    /// Threads' time waiting and running while it is known what the CPU does, and waiting
    /// while it is not, ns.
    pub waiting: i64,
    pub running: i64,
    pub waiting_unknown: i64,
    pub most_waiting: u32,
    pub most: u32,
}

struct Parts {
    length: i64,
    step: i64,
    all: Vec<Part>,
    /// The one that the lane is in.
    at: usize,
}

/// Start of the n-th bucket of `step` ns; the last one ends with the window.
pub fn edge(length: i64, n: usize, step: i64) -> i64 {
    (step as i128 * n as i128).min(length as i128) as i64
}

impl Parts {
    fn add(&mut self, (waiting, running): Level, mut since: i64, t: i64) {
        while since < t && self.at < self.all.len() {
            let end = edge(self.length, self.at + 1, self.step);
            let dur = t.min(end) - since;
            let part = &mut self.all[self.at];
            match running {
                None => {
                    part.unknown += dur;
                    part.waiting_unknown += dur * i64::from(waiting);
                }
                Some(running) => {
                    part.waiting += dur * i64::from(waiting);
                    part.running += dur * i64::from(running);
                    if dur > 0 {
                        part.most_waiting = part.most_waiting.max(waiting);
                        part.most = part.most.max(waiting + running);
                    }
                }
            }
            since += dur;
            if since >= end {
                self.at += 1;
            }
        }
    }
}

impl Lane {
    #[inline]
    fn flush(&mut self, t: i64, enough: u32) {
        if t > self.since {
            let running = (self.known >= enough).then_some(self.running);
            match &mut self.parts {
                Some(parts) => parts.add((self.waiting, running), self.since, t),
                None => self.held.add((self.waiting, running), self.since, t),
            }
            self.since = t;
        }
    }
}

struct Depths {
    lanes: CpuIndex,
    of: Vec<Lane>,
    machine: Lane,
    /// CPUs of which all must be known for the machine to be.
    ncpu: u32,
    whole: bool,
}

impl Depths {
    #[inline]
    fn step(&mut self, t: i64, cpu: u16, by: i32, place: Presence) {
        let number = self.lanes.of(cpu);
        let lane = &mut self.of[number];
        lane.flush(t, 1);
        match place {
            Presence::Waiting => lane.waiting = lane.waiting.wrapping_add_signed(by),
            Presence::Running => {
                lane.running = lane.running.wrapping_add_signed(by);
                lane.known = lane.known.wrapping_add_signed(by);
            }
            // The idle thread runs.
            Presence::Away => lane.known = lane.known.wrapping_add_signed(by),
        }
        if !self.whole {
            return;
        }
        self.machine.flush(t, self.ncpu);
        let before = if by > 0 {
            lane.known.wrapping_sub(1)
        } else {
            lane.known.wrapping_add(1)
        };
        match place {
            Presence::Waiting => {
                self.machine.waiting = self.machine.waiting.wrapping_add_signed(by);
                return;
            }
            Presence::Running if number != self.lanes.nowhere() => {
                self.machine.running = self.machine.running.wrapping_add_signed(by);
            }
            _ => {}
        }
        if number != self.lanes.nowhere() {
            self.machine.known =
                self.machine.known + u32::from(lane.known > 0) - u32::from(before > 0);
        }
    }
}

impl Sweep for Depths {
    fn change(&mut self, t: i64, _: u32, from: Position, to: Position) {
        if from.doing != Presence::Away {
            self.step(t, from.cpu, -1, from.doing);
        }
        if to.doing != Presence::Away {
            self.step(t, to.cpu, 1, to.doing);
        }
    }

    fn idle(&mut self, t: i64, cpu: u16, begins: bool) {
        self.step(t, cpu, if begins { 1 } else { -1 }, Presence::Away);
    }

    fn instant(&mut self, _: i64) {}
}

/// A row of `depths`: the CPU (none: no known queue), threads waiting, threads running
/// (none: not known), how long, when first.
pub type Row = (Option<u16>, u32, Option<u32>, Held);

/// Goes over all changes, with each CPU's window in buckets of `step` ns, if that is above 0.
fn swept(changes: &Changes, cpus: Vec<u16>, whole: bool, step: i64) -> Result<Depths> {
    let lanes = CpuIndex::new(cpus);
    let ncpu = lanes.cpus.len() as u32;
    let buckets = if step > 0 {
        (changes.length as u64).div_ceil(step as u64)
    } else {
        0
    };
    let lane = || Lane {
        parts: (step > 0).then(|| {
            Box::new(Parts {
                length: changes.length,
                step,
                all: vec![Part::default(); buckets as usize],
                at: 0,
            })
        }),
        ..Lane::default()
    };
    let mut sweep = Depths {
        of: (0..lanes.count()).map(|_| lane()).collect(),
        lanes,
        machine: if whole { lane() } else { Lane::default() },
        ncpu,
        whole,
    };
    changes.tell(&mut sweep)?;
    sweep.machine.flush(changes.length, ncpu);
    for lane in &mut sweep.of {
        lane.flush(changes.length, 1);
    }
    Ok(sweep)
}

/// Of each CPU the levels it had; or of the `whole` machine.
pub fn depths(changes: &Changes, cpus: Vec<u16>, whole: bool) -> Result<Vec<Row>> {
    let Depths {
        lanes, of, machine, ..
    } = swept(changes, cpus, whole, 0)?;
    if whole {
        let levels = machine.held.levels().into_iter();
        return Ok(levels.map(|((w, r), held)| (None, w, r, held)).collect());
    }
    let mut rows = Vec::new();
    for (number, lane) in of.iter().enumerate() {
        let levels = lane.held.levels();
        let nobody = |(waiting, running): &Level| *waiting == 0 && running.unwrap_or(0) == 0;
        // No thread ever waited without a queue: then there is no row.
        if number < lanes.nowhere() || !levels.iter().all(|(level, _)| nobody(level)) {
            let cpu = lanes.number(number);
            rows.extend(levels.into_iter().map(|((w, r), held)| (cpu, w, r, held)));
        }
    }
    Ok(rows)
}

/// Buckets of the window, of each CPU (none: no known queue).
pub type Buckets = Vec<(Option<u16>, Vec<Part>)>;

/// Of each CPU, or of the `whole` machine, the buckets of `step` ns of the window.
pub fn parts(changes: &Changes, cpus: Vec<u16>, whole: bool, step: i64) -> Result<Buckets> {
    let swept = swept(changes, cpus, whole, step)?;
    if whole {
        let parts = swept.machine.parts.map(|parts| (None, parts.all));
        return Ok(parts.into_iter().collect());
    }
    Ok(of_cpus(swept.lanes, swept.of))
}

/// Of each CPU and of the whole machine, in one pass.
pub fn all_parts(changes: &Changes, cpus: Vec<u16>, step: i64) -> Result<(Buckets, Vec<Part>)> {
    let swept = swept(changes, cpus, true, step)?;
    let machine = swept.machine.parts.map_or_else(Vec::new, |parts| parts.all);
    Ok((of_cpus(swept.lanes, swept.of), machine))
}

fn of_cpus(lanes: CpuIndex, of: Vec<Lane>) -> Buckets {
    let nowhere = lanes.nowhere();
    let told = of.into_iter().enumerate().filter_map(|(number, lane)| {
        let all = lane.parts?.all;
        let anybody = all.iter().any(|part| part.waiting_unknown > 0);
        (number < nowhere || anybody).then(|| (lanes.number(number), all))
    });
    told.collect()
}
