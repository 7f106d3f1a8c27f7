//! Per-CPU arrays of 140 priorities, and how 2.6.10 spread threads over CPUs.
//!
//! Shared by O(1) (two arrays) and Staircase (one): the queues, the choice of a
//! CPU on wakeup, what the balancer may move. Real-time priorities are 0..=98,
//! others 100..=139. Load counts threads, not nice values.
use super::super::machine::{Cpu, Machine};
use super::super::queue::{Levels, Links};
use super::super::workload::{Class, Tid};
use super::super::world::World;
use super::linux_domains::{Balancer, Knobs};
use super::linux_queues::{Amount, Queues, Want};
use super::tunables::{CLOCK_HZ, SPAN_OR_ZERO, int, switch, time};
use super::{Settings, Tunable, Wake};

pub(super) const LEVELS: usize = 140;
/// The load of one thread.
const UNIT: i64 = 128;

/// Tunables of both.
pub(super) const CACHE_HOT_TIME: Tunable = time(
    "cache_hot_time",
    "2500us",
    SPAN_OR_ZERO,
    "a thread that ran this recently is not pulled at first",
);
pub(super) const BALANCE: Tunable = switch("balance", "on", "load balancing");
pub(super) const HZ: Tunable = int(
    "hz",
    "1000",
    "1/s",
    CLOCK_HZ,
    "clock ticks: slices count them",
);

pub(super) fn balancer(s: &Settings, machine: &Machine) -> Balancer {
    let knobs = Knobs {
        on: s.is_on("balance"),
        ..Knobs::OF_2_6
    };
    Balancer::new(machine, knobs, s.int("hz"))
}

#[derive(Debug, Clone, Copy, Default)]
struct At {
    cpu: Cpu,
    array: u8,
    level: u8,
}

pub(super) struct PrioQueues {
    arrays: Vec<[Levels; 2]>,
    active: Vec<u8>,
    running: Vec<bool>,
    links: Links,
    at: Vec<At>,
    hot: i64,
}

/// The level of a real-time thread; `None` for others.
pub(super) fn realtime_level(w: &World, t: Tid) -> Option<i64> {
    let th = w.thread(t);
    th.class.is_realtime().then(|| 99 - i64::from(th.rt_prio))
}

/// 100..=139; there is no idle class, its threads run as nice 19.
pub(super) fn static_prio(w: &World, t: Tid) -> i64 {
    let th = w.thread(t);
    match th.class {
        Class::Idle => 139,
        _ => 120 + i64::from(th.nice),
    }
}

impl PrioQueues {
    pub(super) fn new(ncpu: usize, nthreads: usize, hot: i64) -> Self {
        Self {
            arrays: vec![[Levels::new(LEVELS), Levels::new(LEVELS)]; ncpu],
            active: vec![0; ncpu],
            running: vec![false; ncpu],
            links: Links::new(nthreads),
            at: vec![At::default(); nthreads],
            hot,
        }
    }

    pub(super) fn push(&mut self, c: Cpu, t: Tid, level: i64, expired: bool, front: bool) {
        let array = self.active[c as usize] ^ u8::from(expired);
        self.at[t as usize] = At {
            cpu: c,
            array,
            level: level as u8,
        };
        let levels = &mut self.arrays[c as usize][array as usize];
        if front {
            levels.push_front(&mut self.links, level as usize, t);
        } else {
            levels.push_back(&mut self.links, level as usize, t);
        }
    }

    pub(super) fn remove(&mut self, t: Tid) {
        let at = self.at[t as usize];
        let levels = &mut self.arrays[at.cpu as usize][at.array as usize];
        levels.remove(&mut self.links, at.level as usize, t);
    }

    /// Whether the queued `t` waits in the expired array.
    pub(super) fn is_expired(&self, t: Tid) -> bool {
        let at = self.at[t as usize];
        at.array != self.active[at.cpu as usize]
    }

    pub(super) fn level(&self, t: Tid) -> i64 {
        i64::from(self.at[t as usize].level)
    }

    pub(super) fn front(&self, c: Cpu) -> Option<Tid> {
        let active = self.active[c as usize] as usize;
        self.arrays[c as usize][active].front().map(|(_, t)| t)
    }

    /// The expired array becomes the active one.
    pub(super) fn swap(&mut self, c: Cpu) {
        self.active[c as usize] ^= 1;
    }

    pub(super) fn queued(&self, c: Cpu) -> usize {
        let [a, b] = &self.arrays[c as usize];
        a.len() + b.len()
    }

    pub(super) fn set_running(&mut self, c: Cpu, runs: bool) {
        self.running[c as usize] = runs;
    }

    /// The old CPU, or the waker's when that is the better place.
    pub(super) fn wake_cpu(&self, w: &World, t: Tid, wake: Wake) -> Cpu {
        let (prev, this) = (w.thread(t).cpu, wake.cpu);
        if !w.allowed(t, prev) {
            return super::idle_or_previous(w, t);
        }
        let mut target = prev;
        if this != prev && w.allowed(t, this) && wake.waker.is_some() {
            let mut here = self.load(w, this);
            if wake.sync {
                here -= UNIT;
            }
            let there = self.load(w, prev);
            let cold = w.now() - w.thread(t).last_ran >= self.hot;
            let affine = cold && here <= there;
            let passive = 112 * here <= 100 * there;
            if affine || passive {
                target = this;
            }
        }
        if w.is_idle(target) {
            return target;
        }
        let good = |c: &Cpu| w.is_idle(*c) && w.allowed(t, *c);
        let siblings = w.machine.smt(target);
        siblings.iter().copied().find(good).unwrap_or(target)
    }
}

impl Queues for PrioQueues {
    fn load(&self, _: &World, c: Cpu) -> i64 {
        i64::from(self.nr(c)) * UNIT
    }

    fn nr(&self, c: Cpu) -> u32 {
        self.queued(c) as u32 + u32::from(self.running[c as usize])
    }

    /// Expired threads first, best priority first.
    fn pull(&mut self, w: &mut World, from: Cpu, to: Cpu, want: Want) -> u32 {
        let most = match want.amount {
            Amount::Load(load) => want.most.min((load / UNIT).max(1) as u32),
            Amount::Used(_) | Amount::Threads => want.most,
        };
        let mut moved = 0;
        while moved < most {
            let active = self.active[from as usize] as usize;
            let may = |t: &Tid| {
                let th = w.thread(*t);
                let hot = th.last_cpu.is_some() && w.now() - th.last_ran < self.hot;
                w.allowed(*t, to) && (want.hot || !hot)
            };
            let [a, b] = &self.arrays[from as usize];
            let (expired, current) = if active == 0 { (b, a) } else { (a, b) };
            let in_expired = expired.iter(&self.links).map(|(_, t)| t).find(may);
            let found = match in_expired {
                Some(t) => Some((t, true)),
                None => {
                    let t = current.iter(&self.links).map(|(_, t)| t).find(may);
                    t.map(|t| (t, false))
                }
            };
            let Some((t, _)) = found else { break };
            let level = self.level(t);
            self.remove(t);
            // Pulled threads join the active array.
            self.push(to, t, level, false, false);
            w.migrate(t, to);
            moved += 1;
        }
        moved
    }
}
