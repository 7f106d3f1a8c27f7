//! Processor sharing: the ideal of fairness, as near as a trace can show it.
//!
//! Models no kernel. In the ideal every runnable thread holds at each instant a
//! share of the machine in proportion to its weight, at most one CPU. A trace has
//! whole threads on whole CPUs, so this runs the least served (by weighted
//! virtual time, machine-wide) for a very small quantum. Weights by nice are
//! Linux's. Classes and real-time priorities are kept strictly.
//!
//! The ideal has no memory: what a thread got while it had a CPU to itself does not count against
//! it, and time that its weight would have earned beyond one CPU does not count for it. A new
//! thread starts at the virtual time of its competitors. So no thread is ever more than some quanta
//! of its neighbours from its ideal.
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
        floor: [0; 2],
        queue: KeyedQueue::default(),
        running: Running::new(machine.ncpu()),
    }))
}

struct Ps {
    quantum: i64,
    served: Vec<i64>,
    weight: Vec<i64>,
    /// Of fair and of idle-class threads: the most that one had when it was picked as the least
    /// served. Those who have a CPU to themselves stand here.
    floor: [i64; 2],
    queue: KeyedQueue,
    running: Running,
}

impl Ps {
    fn charge(&mut self, w: &mut World, cpu: Cpu, t: Tid) {
        let ran = w.take_run(cpu);
        self.served[t as usize] += virtual_ns(ran, self.weight[t as usize]);
        w.record(0, t, self.served[t as usize] as f64);
    }

    /// What a quantum adds to the service of `t`.
    fn step(&self, t: Tid) -> i64 {
        virtual_ns(self.quantum, self.weight[t as usize])
    }

    /// The running `t` keeps no negative lag for time without waiters on its CPU, and no positive
    /// lag beyond what one CPU can give.
    fn level(&mut self, w: &mut World, cpu: Cpu, t: Tid) {
        let class = w.thread(t).class.level();
        if class == 0 {
            return;
        }
        let now = self.served[t as usize];
        let fair = match self.queue.front_of(class, cpu) {
            Some(o) => now.max(self.queue.key(o) - 2 * self.step(o)),
            None => {
                let floor = self.floor[usize::from(class - 1)];
                now.clamp(floor, floor + self.step(t))
            }
        };
        if fair != now {
            self.served[t as usize] = fair;
            w.record(0, t, fair as f64);
        }
    }

    /// Where a thread of this class begins that comes to `cpu`: with the least served there.
    fn start(&mut self, w: &mut World, cpu: Cpu, class: u8) -> i64 {
        let running = w.cpu(cpu).curr;
        let running = running.filter(|r| w.thread(*r).class.level() == class);
        if let Some(r) = running {
            self.charge(w, cpu, r);
            self.level(w, cpu, r);
        }
        let running = running.map(|r| self.served[r as usize]);
        let waiting = self.queue.front_of(class, cpu).map(|o| self.queue.key(o));
        let least = running.into_iter().chain(waiting).min();
        least.unwrap_or(self.floor[usize::from(class - 1)])
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

    fn online_changed(&mut self, w: &mut World) {
        self.queue.online_changed(w);
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, _: SelectReason) -> Cpu {
        idle_or_previous(w, t)
    }

    fn enqueue(&mut self, w: &mut World, cpu: Cpu, t: Tid, how: EnqueueReason) {
        let class = w.thread(t).class.level();
        if how != EnqueueReason::Moved && class > 0 {
            self.weight[t as usize] = weight_of(w, t);
            let start = self.start(w, cpu, class);
            let latest = start + self.step(t);
            let served = &mut self.served[t as usize];
            *served = (*served).clamp(start, latest);
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
        let class = w.thread(t).class.level();
        if class > 0 {
            let floor = &mut self.floor[usize::from(class - 1)];
            *floor = (*floor).max(self.served[t as usize]);
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
        self.level(w, cpu, t);
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
