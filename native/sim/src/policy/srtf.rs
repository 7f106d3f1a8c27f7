//! Shortest remaining time first, by burst: an oracle.
//!
//! Models no kernel: it knows how long each thread will still compute before it
//! next blocks, and runs the shortest, preempting the longest running. Least mean
//! response per burst; long bursts may starve. Classes and real-time priorities
//! are kept strictly. Left out: nice values, slices.
use super::super::error::Result;
use super::super::machine::{Cpu, Machine};
use super::super::workload::Tid;
use super::super::world::{RescheduleReason, State, World};
use super::fifo::{FAIR, Running, level_of};
use super::keyed_queue::KeyedQueue;
use super::{
    EnqueueReason, Policy, Preset, PriorityScale, Role, SelectReason, Series, Settings, Spec,
    SwitchOutReason, Wake, idle_or_previous, kick_idle,
};

pub const SPEC: Spec = Spec {
    family: "srtf",
    summary: "shortest remaining burst first: knows the future; least mean response time",
    models: "No kernel: a reference that knows the future. One machine-wide queue, ordered by the time left in the current burst.",
    tunables: &[],
    presets: &[Preset {
        name: "srtf",
        doc: "the only form",
        values: &[],
    }],
    series: &[Series {
        name: "burst",
        unit: "ns",
        doc: "CPU time left in the current burst, when queued",
    }],
    work_conserving: true,
    strict_classes: 2,
    role: Role::Reference,
    priorities: PriorityScale::Linux,
    interactivity: None,
    lag: None,
    groups: false,
    make,
};

fn make(_: &Settings, machine: &Machine, _: usize) -> Result<Box<dyn Policy>> {
    Ok(Box::new(Srtf {
        queue: KeyedQueue::default(),
        running: Running::new(machine.ncpu()),
    }))
}

struct Srtf {
    queue: KeyedQueue,
    running: Running,
}

impl Srtf {
    fn push(&mut self, w: &mut World, t: Tid, ahead: bool) {
        let left = w.burst_left(t);
        w.record(0, t, left as f64);
        self.queue.push(w, t, left, ahead);
    }

    /// The CPU that `t` should take over: a worse level, else the longest burst.
    fn victim(&self, w: &World, t: Tid) -> Option<Cpu> {
        let level = level_of(w, t);
        if let Some(c) = self.running.victim(w, t, level) {
            return Some(c);
        }
        if level < FAIR {
            return None;
        }
        let mine = w.burst_left(t);
        w.mask(t)
            .iter()
            .filter(|c| !w.needs_resched(*c))
            .filter_map(|c| Some((w.cpu(c).curr?, c)))
            .filter(|(r, _)| level_of(w, *r) == level)
            .map(|(r, c)| (w.burst_left(r), c))
            .filter(|(left, _)| *left > mine)
            .max_by_key(|(left, c)| (*left, std::cmp::Reverse(*c)))
            .map(|(_, c)| c)
    }
}

impl Policy for Srtf {
    fn init(&mut self, w: &mut World) {
        self.queue = KeyedQueue::new(w);
    }

    fn online_changed(&mut self, w: &mut World) {
        self.queue.online_changed(w);
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, _: SelectReason) -> Cpu {
        idle_or_previous(w, t)
    }

    fn enqueue(&mut self, w: &mut World, _: Cpu, t: Tid, _: EnqueueReason) {
        self.push(w, t, false);
    }

    fn dequeue(&mut self, _: &mut World, _: Cpu, t: Tid) {
        self.queue.remove(t);
    }

    fn check_preempt(&mut self, w: &mut World, _: Cpu, t: Tid, _: Wake) {
        if let Some(c) = self.victim(w, t) {
            w.resched(c, RescheduleReason::Preempted);
        }
    }

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        let t = self.queue.pop(cpu)?;
        self.running.set(cpu, Some(level_of(w, t)));
        Some(t)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        self.running.set(cpu, None);
        if left.stays_queued() {
            self.push(w, t, left == SwitchOutReason::Preempted);
            kick_idle(w, t);
        }
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        match w.thread(t).state {
            State::Queued => {
                self.queue.remove(t);
                self.push(w, t, false);
                if let Some(c) = self.victim(w, t) {
                    w.resched(c, RescheduleReason::Preempted);
                }
            }
            State::Running => {
                let cpu = w.thread(t).cpu;
                self.running.set(cpu, Some(level_of(w, t)));
                w.resched(cpu, RescheduleReason::Preempted);
            }
            State::Unborn | State::Sleeping | State::Dead => {}
        }
    }
}
