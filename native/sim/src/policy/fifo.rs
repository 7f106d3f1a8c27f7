//! First come, first served: a reference and a null model.
//!
//! Models no kernel. One machine-wide queue; a thread runs until it blocks.
//! Real-time priorities and the three classes (real time, fair, idle) are kept
//! strictly: a thread of a better level preempts the worst one running. Left
//! out: nice values, slices (SCHED_RR runs as SCHED_FIFO).
use super::super::error::Result;
use super::super::machine::{Cpu, Machine};
use super::super::shared_queue::SharedQueue;
use super::super::workload::{Class, Tid};
use super::super::world::{RescheduleReason, State, World};
use super::{
    EnqueueReason, Policy, Preset, PriorityScale, Role, SelectReason, Settings, Spec,
    SwitchOutReason, Wake, idle_or_previous, kick_idle,
};

pub const SPEC: Spec = Spec {
    family: "fifo",
    summary: "first come, first served; no slices, no nice values",
    models: "No kernel: a reference. One machine-wide queue by class and real-time priority; a thread runs until it blocks.",
    tunables: &[],
    presets: &[Preset {
        name: "fifo",
        doc: "the only form",
        values: &[],
    }],
    series: &[],
    work_conserving: true,
    strict_classes: 2,
    role: Role::Baseline,
    priorities: PriorityScale::Linux,
    interactivity: None,
    lag: None,
    groups: false,
    make,
};

fn make(_: &Settings, machine: &Machine, _: usize) -> Result<Box<dyn Policy>> {
    Ok(Box::new(FifoPolicy {
        queue: SharedQueue::default(),
        running: Running::new(machine.ncpu()),
    }))
}

pub(super) const FAIR: u8 = 99;
pub(super) const IDLE: u8 = 100;
pub(super) const LEVELS: usize = 101;

/// 0..=98 real time, best first; then fair; then idle class.
pub(super) fn level_of(w: &World, t: Tid) -> u8 {
    let th = w.thread(t);
    match th.class {
        Class::Deadline | Class::Interrupt | Class::Kernel | Class::Fifo | Class::RoundRobin => {
            99 - th.rt_prio
        }
        Class::Fair | Class::Batch => FAIR,
        Class::Idle => IDLE,
    }
}

/// The level each CPU runs at, to find the thread that a better one may displace.
#[derive(Debug)]
pub(super) struct Running {
    level: Vec<u8>,
    /// CPUs running at each coarse class: real time, fair, idle class.
    count: [u32; 3],
}

fn coarse(level: u8) -> usize {
    usize::from(level >= FAIR) + usize::from(level >= IDLE)
}

impl Running {
    pub(super) fn new(ncpu: usize) -> Self {
        Self {
            level: vec![u8::MAX; ncpu],
            count: [0; 3],
        }
    }

    pub(super) fn set(&mut self, c: Cpu, level: Option<u8>) {
        let old = self.level[c as usize];
        if old != u8::MAX {
            self.count[coarse(old)] -= 1;
        }
        self.level[c as usize] = level.unwrap_or(u8::MAX);
        if let Some(l) = level {
            self.count[coarse(l)] += 1;
        }
    }

    /// The CPU running the worst level, if that is worse than `t`'s and `t` may
    /// run there.
    pub(super) fn victim(&self, w: &World, t: Tid, level: u8) -> Option<Cpu> {
        let worse: u32 = self.count[coarse(level)..].iter().sum();
        if worse == 0 || (level == FAIR && self.count[2] == 0) || level == IDLE {
            return None;
        }
        w.mask(t)
            .iter()
            .filter(|c| {
                let l = self.level[*c as usize];
                l != u8::MAX && l > level && !w.needs_resched(*c)
            })
            .max_by_key(|c| (self.level[*c as usize], std::cmp::Reverse(*c)))
    }
}

struct FifoPolicy {
    queue: SharedQueue,
    running: Running,
}

impl Policy for FifoPolicy {
    fn init(&mut self, w: &mut World) {
        self.queue = SharedQueue::new(w, LEVELS);
    }

    fn online_changed(&mut self, w: &mut World) {
        self.queue.online_changed(w);
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, _: SelectReason) -> Cpu {
        idle_or_previous(w, t)
    }

    fn enqueue(&mut self, w: &mut World, _: Cpu, t: Tid, _: EnqueueReason) {
        self.queue.push_back(w, t, level_of(w, t));
    }

    fn dequeue(&mut self, _: &mut World, _: Cpu, t: Tid) {
        self.queue.remove(t);
    }

    fn check_preempt(&mut self, w: &mut World, _: Cpu, t: Tid, _: Wake) {
        if let Some(c) = self.running.victim(w, t, level_of(w, t)) {
            w.resched(c, RescheduleReason::Preempted);
        }
    }

    fn pick_next(&mut self, _: &mut World, cpu: Cpu) -> Option<Tid> {
        let (level, t) = self.queue.pop(cpu)?;
        self.running.set(cpu, Some(level));
        Some(t)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        self.running.set(cpu, None);
        match left {
            SwitchOutReason::Yielded => self.queue.push_back(w, t, level_of(w, t)),
            SwitchOutReason::Preempted | SwitchOutReason::SliceEnd => {
                self.queue.push_front(w, t, level_of(w, t))
            }
            SwitchOutReason::Blocked | SwitchOutReason::Exited | SwitchOutReason::Moved => {}
        }
        if left.stays_queued() {
            kick_idle(w, t);
        }
    }

    fn prefetch(&self, t: Tid) {
        self.queue.prefetch(t);
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        requeue(w, &mut self.queue, &mut self.running, t);
    }
}

/// After a change of class or priority: to the tail of the new level, and choose
/// again where that may matter.
pub(super) fn requeue(w: &mut World, queue: &mut SharedQueue, running: &mut Running, t: Tid) {
    let level = level_of(w, t);
    let th = w.thread(t);
    let cpu = th.cpu;
    match th.state {
        State::Queued => {
            queue.remove(t);
            queue.push_back(w, t, level);
            if let Some(c) = running.victim(w, t, level) {
                w.resched(c, RescheduleReason::Preempted);
            }
        }
        State::Running => {
            running.set(cpu, Some(level));
            if queue.front(cpu).is_some_and(|(best, _)| best < level) {
                w.resched(cpu, RescheduleReason::Preempted);
            }
        }
        State::Unborn | State::Sleeping | State::Dead => {}
    }
}
