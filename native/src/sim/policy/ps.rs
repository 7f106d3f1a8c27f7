//! Processor sharing: the ideal of fairness, as near as a trace can show it.
//!
//! Models no kernel. In the ideal every runnable thread holds at each instant a
//! share of the machine in proportion to its weight, at most one CPU. A trace has
//! whole threads on whole CPUs, so this runs the least served (by weighted
//! virtual time, machine-wide) for a very small quantum: no thread is ever more
//! than about a quantum from its ideal. Weights by nice are Linux's. Classes and
//! real-time priorities are kept strictly.
use super::super::error::Result;
use super::super::machine::{Cpu, Machine};
use super::super::workload::Tid;
use super::super::world::{RescheduleReason, State, World};
use super::fifo::{Running, level_of};
use super::keyed_queue::KeyedQueue;
use super::linux_fair::{virtual_ns, weight_of};
use super::tunables::{SPAN, time};
use super::{
    EnqueueReason, Policy, Preset, PriorityScale, Role, SelectReason, Series, Settings, Spec,
    SwitchOutReason, Wake, idle_or_previous, kick_idle,
};

pub const SPEC: Spec = Spec {
    family: "ps",
    summary: "processor sharing by weight: the ideal, in very small quanta",
    models: "No kernel: a reference. Machine-wide weighted fair queueing whose quantum stands in for fluid sharing.",
    tunables: &[time(
        "quantum",
        "100us",
        SPAN,
        "time after which the least served runs; towards 0 it is fluid",
    )],
    presets: &[Preset {
        name: "ps",
        doc: "the only form",
        values: &[],
    }],
    series: &[Series {
        name: "vtime",
        unit: "ns",
        doc: "weighted CPU time served",
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

fn make(s: &Settings, machine: &Machine, nthreads: usize) -> Result<Box<dyn Policy>> {
    Ok(Box::new(Ps {
        quantum: s.ns("quantum"),
        served: vec![0; nthreads],
        weight: vec![1024; nthreads],
        floor: 0,
        queue: KeyedQueue::default(),
        running: Running::new(machine.ncpu()),
    }))
}

struct Ps {
    quantum: i64,
    served: Vec<i64>,
    weight: Vec<i64>,
    /// The service of the least served, never falling: where newcomers begin.
    floor: i64,
    queue: KeyedQueue,
    running: Running,
}

impl Ps {
    fn charge(&mut self, w: &mut World, cpu: Cpu, t: Tid) {
        let ran = w.take_run(cpu);
        self.served[t as usize] += virtual_ns(ran, self.weight[t as usize]);
        w.record(0, t, self.served[t as usize] as f64);
    }

    fn push(&mut self, w: &World, t: Tid, ahead: bool) {
        self.weight[t as usize] = weight_of(w, t);
        self.queue.push(w, t, self.served[t as usize], ahead);
    }
}

impl Policy for Ps {
    fn init(&mut self, w: &mut World) {
        self.queue = KeyedQueue::new(w);
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, _: SelectReason) -> Cpu {
        idle_or_previous(w, t)
    }

    fn enqueue(&mut self, w: &mut World, _: Cpu, t: Tid, how: EnqueueReason) {
        if how != EnqueueReason::Moved {
            let served = &mut self.served[t as usize];
            *served = (*served).max(self.floor);
        }
        self.push(w, t, false);
    }

    fn dequeue(&mut self, _: &mut World, _: Cpu, t: Tid) {
        self.queue.remove(t);
    }

    fn check_preempt(&mut self, w: &mut World, _: Cpu, t: Tid, _: Wake) {
        if let Some(c) = self.running.victim(w, t, level_of(w, t)) {
            w.resched(c, RescheduleReason::Preempted);
        }
    }

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        let Some(t) = self.queue.pop(cpu) else {
            w.disarm_timer(u32::from(cpu));
            return None;
        };
        self.running.set(cpu, Some(level_of(w, t)));
        if w.thread(t).class.level() == 1 {
            self.floor = self.floor.max(self.served[t as usize]);
        }
        if w.thread(t).class.runs_on() {
            w.disarm_timer(u32::from(cpu));
        } else {
            w.arm_timer(u32::from(cpu), w.now() + self.quantum);
        }
        Some(t)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        self.running.set(cpu, None);
        self.charge(w, cpu, t);
        if left.stays_queued() {
            self.push(w, t, left == SwitchOutReason::Preempted);
            kick_idle(w, t);
        }
    }

    fn timer(&mut self, w: &mut World, id: u32) {
        let cpu = id as Cpu;
        let Some(t) = w.cpu(cpu).curr else { return };
        self.charge(w, cpu, t);
        let mine = level_of(w, t);
        let rival = self.queue.front(cpu).is_some_and(|o| {
            let its = level_of(w, o);
            its < mine
                || (its == mine
                    && (w.thread(o).class.is_realtime()
                        || self.queue.key(o) <= self.served[t as usize]))
        });
        if rival {
            w.resched(cpu, RescheduleReason::SliceEnd);
        } else {
            w.arm_timer(id, w.now() + self.quantum);
        }
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        match w.thread(t).state {
            State::Queued => {
                self.queue.remove(t);
                self.push(w, t, false);
                if let Some(c) = self.running.victim(w, t, level_of(w, t)) {
                    w.resched(c, RescheduleReason::Preempted);
                }
            }
            State::Running => {
                let cpu = w.thread(t).cpu;
                self.charge(w, cpu, t);
                self.weight[t as usize] = weight_of(w, t);
                self.running.set(cpu, Some(level_of(w, t)));
                w.resched(cpu, RescheduleReason::Preempted);
            }
            State::Unborn | State::Sleeping | State::Dead => {}
        }
    }
}
