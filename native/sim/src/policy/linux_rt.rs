//! Linux's real-time class, as CFS and EEVDF have it above them.
//!
//! Above it is SCHED_DEADLINE (`linux_deadline`), below it the fair class. One row of 99 FIFO lists
//! per CPU, and one list of deadline threads, of which the earliest runs. A waking thread goes
//! where it preempts the least; a CPU that turns to something worse pulls the best waiting
//! real-time thread of the others. SCHED_RR threads of one level take turns. What they may use of a
//! CPU: `linux_rt_bandwidth`, and from 6.12 on `linux_fair_server`.
//!
//! A CPU on which they may not run keeps its real-time threads: others pull none of them, as
//! pull_rt_task is for a CPU whose real-time thread has just left it, and they are not pushed away,
//! as push_rt_tasks is for one that goes on with a real-time thread.
use super::super::machine::Cpu;
use super::super::queue::{Levels, Links};
use super::super::workload::{Class, Tid};
use super::super::world::{RescheduleReason, State, World};
use super::linux_deadline::Deadlines;
use super::linux_rt_bandwidth::RtBandwidth;
use super::tunables::{SPAN, time};
use super::{Settings, SwitchOutReason, Tunable};

pub(super) const RR_TIMESLICE: Tunable = time("rr_timeslice", "100ms", SPAN, "slice of SCHED_RR");

/// SCHED_DEADLINE, then the 99 priorities.
const LISTS: usize = 100;
const DEADLINE: u8 = 0;
/// How a CPU that runs fair, idle-class or no threads compares.
const FAIR: u8 = 101;
const IDLE_CLASS: u8 = 102;
const NOTHING: u8 = 103;

pub struct RtQueues {
    queues: Vec<Levels>,
    links: Links,
    level: Vec<u8>,
    at: Vec<Cpu>,
    left: Vec<i64>,
    slice: i64,
    queued: usize,
    bandwidth: RtBandwidth,
    deadlines: Deadlines,
    /// Queued threads that do not count as such, since their CPU may not run them.
    aside: Vec<bool>,
}

fn level_of(w: &World, t: Tid) -> u8 {
    let th = w.thread(t);
    match th.class {
        Class::Deadline => DEADLINE,
        _ => 100 - th.rt_prio.clamp(1, 99),
    }
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
    pub(super) fn new(ncpu: usize, nthreads: usize, s: &Settings) -> Self {
        Self {
            bandwidth: RtBandwidth::new(s, ncpu),
            ..Self::unlimited(ncpu, nthreads, s)
        }
    }

    /// Without a limit to what they may use.
    pub fn unlimited(ncpu: usize, nthreads: usize, s: &Settings) -> Self {
        let slice = s.ns(RR_TIMESLICE.name);
        Self {
            queues: vec![Levels::new(LISTS); ncpu],
            links: Links::new(nthreads),
            level: vec![0; nthreads],
            at: vec![0; nthreads],
            left: vec![slice; nthreads],
            slice,
            queued: 0,
            bandwidth: RtBandwidth::none(ncpu),
            deadlines: Deadlines::default(),
            aside: vec![false; nthreads],
        }
    }

    /// `timer`: no other timer has this number or a greater one.
    pub(super) fn init(&mut self, w: &World, timer: u32) {
        self.bandwidth.init(timer);
        self.deadlines = Deadlines::new(w, timer + 1);
    }

    /// Real-time threads waiting on `c`.
    pub fn len(&self, c: Cpu) -> usize {
        self.queues[c as usize].len()
    }

    /// `t` is queued on `c`, or about to be again after it ran there.
    pub fn push(&mut self, w: &mut World, c: Cpu, t: Tid, front: bool) {
        let level = level_of(w, t);
        if level == DEADLINE {
            self.deadlines.queued(w, t);
        } else {
            self.bandwidth.start(w);
        }
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

    pub fn remove(&mut self, w: &mut World, t: Tid) {
        if std::mem::take(&mut self.aside[t as usize]) {
            w.bring_back(t);
        }
        let (c, level) = (self.at[t as usize], self.level[t as usize]);
        self.queues[c as usize].remove(&mut self.links, level as usize, t);
        self.queued -= 1;
    }

    /// The best thread queued on `c` that may run, and how it compares: its level, and of
    /// SCHED_DEADLINE its deadline.
    fn best(&self, c: Cpu, may: impl Fn(Tid) -> bool) -> Option<((usize, i64), Tid)> {
        let held = self.bandwidth.is_held(c);
        let mut best: Option<((usize, i64), Tid)> = None;
        for (level, t) in self.queues[c as usize].iter(&self.links) {
            if level != usize::from(DEADLINE) {
                if best.is_none() && !held && may(t) {
                    return Some(((level, 0), t));
                }
                if best.is_some() || held {
                    break;
                }
                continue;
            }
            let key = (level, self.deadlines.of(t));
            if !self.deadlines.is_held(t) && may(t) && best.is_none_or(|(b, _)| key < b) {
                best = Some((key, t));
            }
        }
        best
    }

    /// The deadline of the thread of SCHED_DEADLINE that `c` would run, if it has one.
    pub(super) fn earliest_deadline(&self, c: Cpu) -> Option<i64> {
        let ((level, deadline), _) = self.best(c, |_| true)?;
        (level == usize::from(DEADLINE)).then_some(deadline)
    }

    /// The next real-time thread for `c`, its own or a better one of another CPU.
    pub fn pop(&mut self, w: &mut World, c: Cpu) -> Option<Tid> {
        if self.queued == 0 {
            return None;
        }
        let mut best = self.best(c, |_| true);
        if self.queued > self.len(c) && !self.bandwidth.is_held(c) {
            for other in (0..self.queues.len() as Cpu).filter(|o| *o != c) {
                let theirs = self.best(other, |t| w.allowed(t, c));
                if let Some((key, _)) = theirs
                    && best.is_none_or(|(b, _)| key < b)
                {
                    best = theirs;
                }
            }
        }
        let Some((_, t)) = best else {
            self.set_aside(w, c);
            return None;
        };
        self.remove(w, t);
        Some(t)
    }

    /// What waits on `c`, which may not run it, does not keep it from idling.
    fn set_aside(&mut self, w: &mut World, c: Cpu) {
        for (_, t) in self.queues[c as usize].iter(&self.links) {
            if !std::mem::replace(&mut self.aside[t as usize], true) {
                w.set_aside(t);
            }
        }
    }

    /// The real-time thread `t` on `c` leaves it.
    pub(super) fn put_back(&mut self, w: &mut World, c: Cpu, t: Tid, left: SwitchOutReason) {
        self.spend(w, c, t);
        if left == SwitchOutReason::Yielded && level_of(w, t) == DEADLINE {
            self.deadlines.yields(w, t);
        }
    }

    /// Charge `t` for what it ran on `c`; whether it may go on.
    fn spend(&mut self, w: &mut World, c: Cpu, t: Tid) -> bool {
        let ran = w.take_run(c);
        if level_of(w, t) != DEADLINE {
            return !self.bandwidth.spend(c, ran);
        }
        self.bandwidth.note(c, ran);
        self.deadlines.ran(w, t, ran)
    }

    /// Whether `id` is the timer of what real-time threads may use, which has then been served.
    pub(super) fn timer(&mut self, w: &mut World, id: u32) -> bool {
        if let Some(t) = self.deadlines.timer(w, id) {
            self.is_free(w, t);
            return true;
        }
        if !self.bandwidth.is_timer(id) {
            return false;
        }
        let queues = &self.queues;
        let runnable = |c: Cpu| {
            let runs = w.cpu(c).curr.map(|t| w.thread(t).class.is_realtime());
            !queues[c as usize].is_empty() || runs == Some(true)
        };
        let busy: Vec<bool> = (0..queues.len() as Cpu).map(runnable).collect();
        for c in self.bandwidth.timer(w, |c| busy[c as usize]) {
            for (_, t) in self.queues[c as usize].iter(&self.links) {
                if !self.deadlines.is_held(t) && std::mem::take(&mut self.aside[t as usize]) {
                    w.bring_back(t);
                }
            }
            if self.len(c) > 0 {
                w.resched(c, RescheduleReason::Preempted);
            }
        }
        true
    }

    /// The period of the deadline thread `t` has started.
    fn is_free(&mut self, w: &mut World, t: Tid) {
        if w.thread(t).state != State::Queued {
            return;
        }
        if std::mem::take(&mut self.aside[t as usize]) {
            w.bring_back(t);
        }
        let c = self.at[t as usize];
        if self.preempts(w, c, t) {
            w.resched(c, RescheduleReason::Preempted);
        } else {
            self.push_away(w, t);
        }
    }

    /// The old CPU if `t` runs there at once, else where it displaces the least.
    pub fn select_cpu(&self, w: &World, t: Tid) -> Cpu {
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
    pub fn push_away(&self, w: &mut World, t: Tid) {
        let level = level_of(w, t);
        if !self.may_run(self.at[t as usize], t, level) {
            return;
        }
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

    /// Whether `t` has time left, and its CPU `c` for it.
    fn may_run(&self, c: Cpu, t: Tid, level: u8) -> bool {
        match level {
            DEADLINE => !self.deadlines.is_held(t),
            _ => !self.bandwidth.is_held(c),
        }
    }

    /// Whether `t`, queued on `c`, preempts what runs there.
    pub fn preempts(&self, w: &World, c: Cpu, t: Tid) -> bool {
        let (level, runs) = (level_of(w, t), running(w, c));
        let earlier = || {
            let curr = w.cpu(c).curr;
            curr.is_some_and(|curr| self.deadlines.of(t) < self.deadlines.of(curr))
        };
        let better = level < runs || (level == DEADLINE && runs == DEADLINE && earlier());
        better && self.may_run(c, t, level)
    }

    /// A clock tick of the running real-time thread `t`.
    pub fn tick(&mut self, w: &mut World, c: Cpu, t: Tid, tick_ns: i64) {
        if !self.spend(w, c, t) {
            w.resched(c, RescheduleReason::Preempted);
        }
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
