//! Linux's real-time class, as CFS and EEVDF have it above them.
//!
//! One row of 99 FIFO lists per CPU. A waking thread goes where it preempts the
//! least; a CPU that turns to something worse pulls the best waiting real-time
//! thread of the others. SCHED_RR threads of one level take turns.
//! Left out: throttling (950 ms of each second, or the deadline server), which
//! would let fair threads run while real-time ones wait.
use super::super::machine::Cpu;
use super::super::queue::{Levels, Links};
use super::super::workload::{Class, Tid};
use super::super::world::{RescheduleReason, World};
use super::Tunable;
use super::tunables::{SPAN, time};

pub(super) const RR_TIMESLICE: Tunable = time("rr_timeslice", "100ms", SPAN, "slice of SCHED_RR");

const LISTS: usize = 99;
/// How a CPU that runs fair, idle-class or no threads compares.
const FAIR: u8 = 100;
const IDLE_CLASS: u8 = 101;
const NOTHING: u8 = 102;

pub(super) struct RtQueues {
    queues: Vec<Levels>,
    links: Links,
    level: Vec<u8>,
    at: Vec<Cpu>,
    left: Vec<i64>,
    slice: i64,
    queued: usize,
}

fn level_of(w: &World, t: Tid) -> u8 {
    99 - w.thread(t).rt_prio.clamp(1, 99)
}

fn running(w: &World, c: Cpu) -> u8 {
    match w.cpu(c).curr {
        None if w.is_idle(c) => NOTHING,
        None => FAIR,
        Some(t) => match w.thread(t).class.level() {
            0 => level_of(w, t),
            1 => FAIR,
            _ => IDLE_CLASS,
        },
    }
}

impl RtQueues {
    pub(super) fn new(ncpu: usize, nthreads: usize, slice: i64) -> Self {
        Self {
            queues: vec![Levels::new(LISTS); ncpu],
            links: Links::new(nthreads),
            level: vec![0; nthreads],
            at: vec![0; nthreads],
            left: vec![slice; nthreads],
            slice,
            queued: 0,
        }
    }

    /// Real-time threads waiting on `c`.
    pub(super) fn len(&self, c: Cpu) -> usize {
        self.queues[c as usize].len()
    }

    pub(super) fn push(&mut self, w: &World, c: Cpu, t: Tid, front: bool) {
        let level = level_of(w, t);
        self.level[t as usize] = level;
        self.at[t as usize] = c;
        self.queued += 1;
        let queue = &mut self.queues[c as usize];
        if front {
            queue.push_front(&mut self.links, level as usize, t);
        } else {
            queue.push_back(&mut self.links, level as usize, t);
        }
    }

    pub(super) fn remove(&mut self, t: Tid) {
        let (c, level) = (self.at[t as usize], self.level[t as usize]);
        self.queues[c as usize].remove(&mut self.links, level as usize, t);
        self.queued -= 1;
    }

    /// The next real-time thread for `c`, its own or a better one of another CPU.
    pub(super) fn pop(&mut self, w: &World, c: Cpu) -> Option<Tid> {
        if self.queued == 0 {
            return None;
        }
        let mut best = self.queues[c as usize].front();
        if self.queued > self.len(c) {
            for queue in &self.queues {
                for (level, t) in queue.iter(&self.links) {
                    if best.is_some_and(|(b, _)| b <= level) {
                        break;
                    }
                    if w.allowed(t, c) {
                        best = Some((level, t));
                    }
                }
            }
        }
        let (_, t) = best?;
        self.remove(t);
        Some(t)
    }

    /// The old CPU if `t` runs there at once, else where it displaces the least.
    pub(super) fn select_cpu(&self, w: &World, t: Tid) -> Cpu {
        let (level, old) = (level_of(w, t), w.thread(t).cpu);
        let old_ok = w.allowed(t, old);
        if old_ok && running(w, old) > level {
            return old;
        }
        let lowest = w
            .mask(t)
            .iter()
            .max_by_key(|c| (running(w, *c), std::cmp::Reverse(*c)));
        match lowest {
            Some(c) if running(w, c) > level || !old_ok => c,
            _ => old,
        }
    }

    /// `t` waits on a CPU: ask the CPU that runs the worst, if that is worse
    /// than `t`, to choose again.
    pub(super) fn push_away(&self, w: &mut World, t: Tid) {
        let level = level_of(w, t);
        let worst = w
            .mask(t)
            .iter()
            .filter(|c| !w.needs_resched(*c))
            .max_by_key(|c| (running(w, *c), std::cmp::Reverse(*c)));
        if let Some(c) = worst
            && running(w, c) > level
        {
            w.resched(c, RescheduleReason::Preempted);
        }
    }

    /// Whether `t`, queued on `c`, preempts what runs there.
    pub(super) fn preempts(&self, w: &World, c: Cpu, t: Tid) -> bool {
        level_of(w, t) < running(w, c)
    }

    /// A clock tick of the running real-time thread `t`.
    pub(super) fn tick(&mut self, w: &mut World, c: Cpu, t: Tid, tick_ns: i64) {
        if w.thread(t).class != Class::RoundRobin {
            return;
        }
        self.left[t as usize] -= tick_ns;
        if self.left[t as usize] > 0 {
            return;
        }
        self.left[t as usize] = self.slice;
        let level = level_of(w, t) as usize;
        if !self.queues[c as usize].list(level).is_empty() {
            w.resched(c, RescheduleReason::SliceEnd);
        }
    }
}
