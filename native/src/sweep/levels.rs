//! For how long did how many threads want each CPU, and the machine?
use rustc_hash::FxHashMap;

use super::changes::{Changes, Doing, Place, Sweep};
use super::lanes::Lanes;
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

const NEVER: Held = Held { dur: 0, first: i64::MAX };
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
        let mut found: Vec<(Level, Held)> =
            self.rest.iter().map(|(level, held)| (*level, *held)).collect();
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
}

impl Lane {
    #[inline]
    fn flush(&mut self, t: i64, enough: u32) {
        if t > self.since {
            let running = (self.known >= enough).then_some(self.running);
            self.held.add((self.waiting, running), self.since, t);
            self.since = t;
        }
    }
}

struct Depths {
    lanes: Lanes,
    of: Vec<Lane>,
    machine: Lane,
    /// CPUs of which all must be known for the machine to be.
    ncpu: u32,
    whole: bool,
}

impl Depths {
    #[inline]
    fn step(&mut self, t: i64, cpu: u16, by: i32, place: Doing) {
        let number = self.lanes.of(cpu);
        let lane = &mut self.of[number];
        lane.flush(t, 1);
        match place {
            Doing::Waiting => lane.waiting = lane.waiting.wrapping_add_signed(by),
            Doing::Running => {
                lane.running = lane.running.wrapping_add_signed(by);
                lane.known = lane.known.wrapping_add_signed(by);
            }
            // The idle thread runs.
            Doing::Away => lane.known = lane.known.wrapping_add_signed(by),
        }
        if !self.whole {
            return;
        }
        self.machine.flush(t, self.ncpu);
        let before = if by > 0 { lane.known.wrapping_sub(1) } else { lane.known.wrapping_add(1) };
        match place {
            Doing::Waiting => {
                self.machine.waiting = self.machine.waiting.wrapping_add_signed(by);
                return;
            }
            Doing::Running if number != self.lanes.nowhere() => {
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
    fn change(&mut self, t: i64, _: u32, from: Place, to: Place) {
        if from.doing != Doing::Away {
            self.step(t, from.cpu, -1, from.doing);
        }
        if to.doing != Doing::Away {
            self.step(t, to.cpu, 1, to.doing);
        }
    }

    fn idle(&mut self, t: i64, cpu: u16, begins: bool) {
        self.step(t, cpu, if begins { 1 } else { -1 }, Doing::Away);
    }

    fn instant(&mut self, _: i64) {}
}

/// A row of the answer: the CPU (none: no known queue), threads waiting, threads running
/// (none: not known), how long, when first.
pub type Row = (Option<u16>, u32, Option<u32>, Held);

/// Of each CPU the levels it had; or of the `whole` machine.
pub fn depths(changes: &Changes, cpus: Vec<u16>, whole: bool) -> Result<Vec<Row>> {
    let lanes = Lanes::new(cpus);
    let ncpu = lanes.cpus.len() as u32;
    let mut sweep = Depths {
        of: (0..lanes.len()).map(|_| Lane::default()).collect(),
        lanes,
        machine: Lane::default(),
        ncpu,
        whole,
    };
    changes.tell(&mut sweep)?;
    let Depths { lanes, mut of, mut machine, .. } = sweep;
    let mut rows = Vec::new();
    if whole {
        machine.flush(changes.length, ncpu);
        rows.extend(machine.held.levels().into_iter().map(|((w, r), held)| (None, w, r, held)));
        return Ok(rows);
    }
    let nowhere = lanes.nowhere();
    for (number, lane) in of.iter_mut().enumerate() {
        lane.flush(changes.length, 1);
        let levels = lane.held.levels();
        // Nobody ever waited on no queue: that is no row.
        if number == nowhere && levels.iter().all(|((waiting, running), _)| *waiting == 0 && running.unwrap_or(0) == 0) {
            continue;
        }
        rows.extend(levels.into_iter().map(|((w, r), held)| (lanes.number(number), w, r, held)));
    }
    Ok(rows)
}
