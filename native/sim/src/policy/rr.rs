//! Round robin with an exact quantum: a reference and a null model.
//!
//! Models no kernel. One machine-wide queue; a thread that has run its quantum
//! goes to the tail. As the quantum goes to 0 this becomes processor sharing.
//! Classes and real-time priorities are kept strictly, as in `fifo`;
//! SCHED_FIFO threads have no quantum. Left out: nice values.
use super::super::error::Result;
use super::super::machine::{Cpu, Machine};
use super::super::shared_queue::SharedQueue;
use super::super::workload::Tid;
use super::super::world::{RescheduleReason, World};
use super::fifo::{LEVELS, Running, level_of, requeue};
use super::tunables::{POSITIVE, time};
use super::{
    EnqueueReason, Policy, Preset, PriorityScale, Role, SelectReason, Settings, Spec,
    SwitchOutReason, Wake, idle_or_previous, kick_idle,
};
use crate::prefetch::near;

pub const SPEC: Spec = Spec {
    family: "rr",
    summary: "round robin with one exact quantum for all",
    models: "No kernel: a reference. One machine-wide queue by class and real-time priority; the quantum is exact, not counted in ticks.",
    tunables: &[time(
        "quantum",
        "10ms",
        POSITIVE,
        "time a thread may run before it goes to the tail",
    )],
    presets: &[Preset {
        name: "rr",
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

fn make(s: &Settings, machine: &Machine, nthreads: usize) -> Result<Box<dyn Policy>> {
    Ok(Box::new(RoundRobin {
        quantum: s.ns("quantum"),
        left: vec![0; nthreads],
        queue: SharedQueue::default(),
        running: Running::new(machine.ncpu()),
    }))
}

struct RoundRobin {
    quantum: i64,
    /// What each thread has left of its quantum; 0 asks for a new one.
    left: Vec<i64>,
    queue: SharedQueue,
    running: Running,
}

impl Policy for RoundRobin {
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

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        let Some((level, t)) = self.queue.pop(cpu) else {
            w.disarm_timer(u32::from(cpu));
            return None;
        };
        self.running.set(cpu, Some(level));
        if w.thread(t).class.runs_on() {
            w.disarm_timer(u32::from(cpu));
        } else {
            if self.left[t as usize] == 0 {
                self.left[t as usize] = self.quantum;
            }
            w.arm_timer(u32::from(cpu), w.now() + self.left[t as usize]);
        }
        Some(t)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        self.running.set(cpu, None);
        let ran = w.take_run(cpu);
        let rest = &mut self.left[t as usize];
        *rest = (*rest - ran).max(0);
        let level = level_of(w, t);
        match left {
            SwitchOutReason::Preempted
                if self.left[t as usize] > 0 || w.thread(t).class.runs_on() =>
            {
                self.queue.push_front(w, t, level);
            }
            SwitchOutReason::Preempted | SwitchOutReason::SliceEnd | SwitchOutReason::Yielded => {
                self.left[t as usize] = 0;
                self.queue.push_back(w, t, level);
            }
            // A sleeper comes back with a whole quantum.
            SwitchOutReason::Blocked | SwitchOutReason::Exited => self.left[t as usize] = 0,
            SwitchOutReason::Moved => {}
        }
        if left.stays_queued() {
            kick_idle(w, t);
        }
    }

    fn timer(&mut self, w: &mut World, id: u32) {
        let cpu = id as Cpu;
        let Some(t) = w.cpu(cpu).curr else { return };
        let rival = self
            .queue
            .front(cpu)
            .is_some_and(|(l, _)| l <= level_of(w, t));
        if rival {
            w.resched(cpu, RescheduleReason::SliceEnd);
        } else {
            // Alone: it keeps the CPU, with a whole quantum from here.
            w.take_run(cpu);
            self.left[t as usize] = self.quantum;
            w.arm_timer(id, w.now() + self.quantum);
        }
    }

    fn prefetch(&self, t: Tid) {
        self.queue.prefetch(t);
        near(self.left[t as usize]);
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        requeue(w, &mut self.queue, &mut self.running, t);
    }
}
