//! scx_simple: the example scheduler of sched_ext, a machine-wide virtual time.
//!
//! Models scx_simple.bpf.c with the default idle-CPU picker of the sched_ext
//! core. A waking thread goes straight to an idle CPU if there is one, else to
//! one queue for all by virtual time (or arrival, with `fifo`). No preemption on
//! wakeup; the slice is checked at ticks. Real-time threads run above, as in
//! Linux (`linux_rt`). Left out: NUMA preference of the idle picker, the ext
//! watchdog, cgroup weights.
use super::super::error::Result;
use super::super::machine::{Cpu, Machine};
use super::super::queue::{Fifo, Links};
use super::super::workload::Tid;
use super::super::world::{RescheduleReason, State, World};
use super::keyed_queue::KeyedQueue;
use super::linux_fair::{idle_in_cache, weight_of};
use super::linux_rt::RtQueues;
use super::tunables::{CLOCK_HZ, SPAN, int, switch, time};
use super::{
    Clocks, EnqueueReason, Policy, Preset, PriorityScale, Role, SelectReason, Series, Settings,
    Spec, SwitchOutReason, Wake,
};

pub const SPEC: Spec = Spec {
    family: "scx-simple",
    summary: "sched_ext's example: one queue by weighted virtual time, 20 ms slices, no wake preemption",
    models: "scx_simple of the Linux 6.12 tools with the core's default idle picker.",
    tunables: &[
        time("slice", "20ms", SPAN, "SCX_SLICE_DFL"),
        switch("fifo", "off", "order by arrival (scx_simple -f)"),
        int(
            "hz",
            "250",
            "1/s",
            CLOCK_HZ,
            "clock ticks; slices end at them",
        ),
        time("rr_timeslice", "100ms", SPAN, "slice of SCHED_RR"),
    ],
    presets: &[Preset {
        name: "scx-simple",
        doc: "Linux 6.12",
        values: &[],
    }],
    series: &[Series {
        name: "vtime",
        unit: "ns",
        doc: "weighted CPU time",
    }],
    work_conserving: false,
    strict_classes: 1,
    role: Role::Kernel,
    priorities: PriorityScale::Linux,
    interactivity: None,
    lag: None,
    groups: false,
    make,
};

fn make(s: &Settings, machine: &Machine, nthreads: usize) -> Result<Box<dyn Policy>> {
    let ncpu = machine.ncpu();
    let hz = s.int("hz");
    Ok(Box::new(ScxSimple {
        slice: s.ns("slice"),
        fifo: s.is_on("fifo"),
        hz: hz as u32,
        jiffy: 1_000_000_000 / hz,
        vtime: vec![0; nthreads],
        left: vec![0; nthreads],
        held: vec![Held::Shared; nthreads],
        vtime_now: 0,
        shared: KeyedQueue::default(),
        arrivals: 0,
        local: vec![Fifo::default(); ncpu],
        links: Links::new(nthreads),
        rt: RtQueues::unlimited(ncpu, nthreads, s),
    }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Realtime,
    Local(Cpu),
    Shared,
}

struct ScxSimple {
    slice: i64,
    fifo: bool,
    hz: u32,
    jiffy: i64,
    vtime: Vec<i64>,
    left: Vec<i64>,
    held: Vec<Held>,
    /// The virtual time of the latest thread to start.
    vtime_now: i64,
    shared: KeyedQueue,
    arrivals: i64,
    local: Vec<Fifo>,
    links: Links,
    rt: RtQueues,
}

impl ScxSimple {
    fn push(&mut self, w: &mut World, c: Cpu, t: Tid, direct: bool, ahead: bool) {
        if w.thread(t).class.is_realtime() {
            self.held[t as usize] = Held::Realtime;
            self.rt.push(w, c, t, ahead);
        } else if direct {
            self.held[t as usize] = Held::Local(c);
            self.local[c as usize].push_back(&mut self.links, t);
        } else {
            self.held[t as usize] = Held::Shared;
            // A sleeper may save up one slice.
            let v = self.vtime[t as usize].max(self.vtime_now - self.slice);
            self.vtime[t as usize] = v;
            self.arrivals += 1;
            let key = if self.fifo { self.arrivals } else { v };
            self.shared.push(w, t, key, ahead);
        }
    }

    fn remove(&mut self, w: &mut World, t: Tid) {
        match self.held[t as usize] {
            Held::Realtime => self.rt.remove(w, t),
            Held::Local(c) => self.local[c as usize].remove(&mut self.links, t),
            Held::Shared => self.shared.remove(t),
        }
    }

    fn charge(&mut self, w: &mut World, c: Cpu, t: Tid) {
        let ran = w.take_run(c);
        let weight = (weight_of(w, t) * 100 / 1024).max(1);
        self.left[t as usize] -= ran;
        self.vtime[t as usize] += ran * 100 / weight;
        w.record(0, t, self.vtime[t as usize] as f64);
    }
}

impl Policy for ScxSimple {
    fn clocks(&self) -> Clocks {
        Clocks {
            hz: self.hz,
            ..Clocks::default()
        }
    }

    fn init(&mut self, w: &mut World) {
        self.shared = KeyedQueue::new(w);
    }

    fn on_fork(&mut self, _: &mut World, _: Option<Tid>, child: Tid) {
        self.vtime[child as usize] = self.vtime_now;
    }

    fn online_changed(&mut self, w: &mut World) {
        self.shared.online_changed(w);
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, _: SelectReason) -> Cpu {
        if w.thread(t).class.is_realtime() {
            return self.rt.select_cpu(w, t);
        }
        // Old CPU, whole idle core of its cache, any of its cache, any.
        let old = w.thread(t).cpu;
        let good = |c: &Cpu| w.is_idle(*c) && w.allowed(t, *c);
        if good(&old) {
            return old;
        }
        let whole = |c: &Cpu| good(c) && w.machine.smt(*c).iter().all(|s| w.is_idle(*s));
        let core = w.machine.llc(old).iter().copied().find(whole);
        core.or_else(|| idle_in_cache(w, t, old))
            .unwrap_or_else(|| super::idle_or_previous(w, t))
    }

    fn enqueue(&mut self, w: &mut World, cpu: Cpu, t: Tid, how: EnqueueReason) {
        let direct = how != EnqueueReason::Moved && w.cpu(cpu).nr_running() == 1;
        self.push(w, cpu, t, direct, false);
    }

    fn dequeue(&mut self, w: &mut World, _: Cpu, t: Tid) {
        self.remove(w, t);
    }

    fn check_preempt(&mut self, w: &mut World, cpu: Cpu, t: Tid, _: Wake) {
        if self.held[t as usize] == Held::Realtime {
            if self.rt.preempts(w, cpu, t) {
                w.resched(cpu, RescheduleReason::Preempted);
            } else {
                self.rt.push_away(w, t);
            }
        }
    }

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        if let Some(t) = self.rt.pop(w, cpu) {
            return Some(t);
        }
        let t = match self.local[cpu as usize].pop_front(&mut self.links) {
            Some(t) => t,
            None => self.shared.pop(cpu)?,
        };
        if self.left[t as usize] <= 0 {
            self.left[t as usize] = self.slice;
        }
        self.vtime_now = self.vtime_now.max(self.vtime[t as usize]);
        Some(t)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        let realtime = w.thread(t).class.is_realtime();
        if !realtime {
            self.charge(w, cpu, t);
            if left == SwitchOutReason::Yielded {
                self.left[t as usize] = 0;
            }
        }
        if left.stays_queued() {
            self.push(w, cpu, t, false, left == SwitchOutReason::Preempted);
            if realtime {
                self.rt.push_away(w, t);
            }
        } else {
            // Every wakeup comes with a whole slice.
            self.left[t as usize] = 0;
        }
    }

    fn tick(&mut self, w: &mut World, cpu: Cpu) {
        let Some(t) = w.cpu(cpu).curr else { return };
        if w.thread(t).class.is_realtime() {
            self.rt.tick(w, cpu, t, self.jiffy);
            return;
        }
        self.charge(w, cpu, t);
        if self.left[t as usize] <= 0 {
            w.resched(cpu, RescheduleReason::SliceEnd);
        }
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        let cpu = w.thread(t).cpu;
        match w.thread(t).state {
            State::Queued => {
                self.remove(w, t);
                self.push(w, cpu, t, false, false);
                let wake = Wake {
                    waker: None,
                    cpu,
                    sync: false,
                };
                self.check_preempt(w, cpu, t, wake);
            }
            State::Running => w.resched(cpu, RescheduleReason::Preempted),
            State::Unborn | State::Sleeping | State::Dead => {}
        }
    }
}
