//! scx_simple: the example scheduler of sched_ext, a machine-wide virtual time.
//!
//! Models scx_simple.bpf.c with the core of sched_ext around it, and its default idle-CPU picker
//! (kernel/sched/ext.c, ext_idle.c of Linux 6.18). A waking thread goes straight to an idle CPU if
//! there is one, else to one queue for all by virtual time (or arrival, with `fifo`). No preemption
//! on wakeup; the slice is checked at ticks. A thread that has used it up runs on only if no thread
//! waits. Real-time threads run above, as in Linux (`linux_rt`). Left out: the ext watchdog, cgroup
//! weights. The crate `scx` runs the same scheduler as a compiled object, and its tests compare the
//! two.
use std::collections::{BTreeSet, VecDeque};

use super::super::error::Result;
use super::super::machine::{Cpu, CpuSet, Machine};
use super::super::workload::Tid;
use super::super::world::{RescheduleReason, State, World};
use super::linux_fair::weight_of;
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
        left: vec![DEFAULT_SLICE; nthreads],
        held: vec![Held::No; nthreads],
        direct: vec![false; nthreads],
        newest: 0,
        shared: BTreeSet::new(),
        weight: vec![100; nthreads],
        is_fair: vec![false; nthreads],
        key: vec![(0, 0); nthreads],
        arrivals: 0,
        local: vec![VecDeque::new(); ncpu],
        previous: vec![None; ncpu],
        realtime: vec![false; ncpu],
        idle: CpuSet::all(ncpu),
        last_taken: vec![0; ncpu],
        rt: RtQueues::unlimited(ncpu, nthreads, s),
    }))
}

/// SCX_SLICE_DFL
const DEFAULT_SLICE: i64 = 20_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    No,
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
    /// By thread: the CPU chosen for it is idle, and it goes to its local queue.
    direct: Vec<bool>,
    /// The virtual time of the latest thread to start.
    newest: i64,
    shared: BTreeSet<(i64, u64, Tid)>,
    /// 100 at nice 0.
    weight: Vec<i64>,
    is_fair: Vec<bool>,
    /// Of each thread in `shared`.
    key: Vec<(i64, u64)>,
    arrivals: u64,
    local: Vec<VecDeque<Tid>>,
    /// The runnable thread that has just left each CPU, until that has chosen.
    previous: Vec<Option<Tid>>,
    /// By CPU: it runs a real-time thread.
    realtime: Vec<bool>,
    /// CPUs that idle, and that no thread was sent to.
    idle: CpuSet,
    /// By CPU: which one it last took of several (distribute_cpu_mask_prev).
    last_taken: Vec<Cpu>,
    rt: RtQueues,
}

impl ScxSimple {
    fn push(&mut self, w: &mut World, c: Cpu, t: Tid) {
        if w.thread(t).class.is_realtime() {
            self.held[t as usize] = Held::Realtime;
            self.rt.push(w, c, t, false);
            return;
        }
        self.left[t as usize] = self.slice;
        if std::mem::take(&mut self.direct[t as usize]) {
            self.held[t as usize] = Held::Local(c);
            self.local[c as usize].push_back(t);
            return;
        }
        self.held[t as usize] = Held::Shared;
        self.arrivals += 1;
        let first = if self.fifo {
            0
        } else {
            // A sleeper may save up one slice.
            let v = self.vtime[t as usize].max(self.newest - self.slice);
            self.vtime[t as usize] = v;
            v
        };
        self.key[t as usize] = (first, self.arrivals);
        self.shared.insert((first, self.arrivals, t));
    }

    fn remove(&mut self, w: &mut World, t: Tid) {
        match self.held[t as usize] {
            Held::No => {}
            Held::Realtime => self.rt.remove(w, t),
            Held::Local(c) => self.local[c as usize].retain(|held| *held != t),
            Held::Shared => {
                let (first, order) = self.key[t as usize];
                self.shared.remove(&(first, order, t));
            }
        }
        self.held[t as usize] = Held::No;
    }

    fn charge(&mut self, w: &mut World, c: Cpu, t: Tid) -> i64 {
        let ran = w.take_run(c);
        let left = &mut self.left[t as usize];
        *left -= ran.min(*left);
        ran
    }

    /// Its class or nice value is another one: sched_weight_to_cgroup, and a thread from a class
    /// above starts with the latest virtual time.
    fn reweigh(&mut self, w: &World, t: Tid) {
        let fair = !w.thread(t).class.is_realtime();
        if fair && !std::mem::replace(&mut self.is_fair[t as usize], fair) {
            self.vtime[t as usize] = self.newest;
        }
        self.is_fair[t as usize] = fair;
        self.weight[t as usize] = ((weight_of(w, t) * 100 + 512) / 1024).max(1);
    }

    /// What is left of the slice is not charged, and nothing beyond it.
    fn stop(&mut self, w: &mut World, t: Tid) {
        if self.fifo {
            return;
        }
        let used = self.slice - self.left[t as usize];
        self.vtime[t as usize] += used * 100 / self.weight[t as usize];
        w.record(0, t, self.vtime[t as usize] as f64);
    }

    /// The runnable `t` leaves `c` to another.
    fn put_back(&mut self, w: &mut World, c: Cpu, t: Tid) {
        self.stop(w, t);
        if self.left[t as usize] > 0 {
            self.held[t as usize] = Held::Local(c);
            self.local[c as usize].push_front(t);
        } else {
            self.push(w, c, t);
        }
    }

    /// One of these CPUs that idles, another one each time.
    fn take_idle(
        &mut self,
        w: &World,
        here: Cpu,
        t: Tid,
        among: &[Cpu],
        core: bool,
    ) -> Option<Cpu> {
        let n = w.ncpu() as Cpu;
        let from = self.last_taken[here as usize] + 1;
        let whole = |c: Cpu| !core || w.machine.smt(c).iter().all(|s| self.idle.contains(*s));
        let good =
            |c: &Cpu| among.contains(c) && self.idle.contains(*c) && w.allowed(t, *c) && whole(*c);
        let found = (0..n).map(|i| (from + i) % n).find(good)?;
        self.last_taken[here as usize] = found;
        self.idle.remove(found);
        Some(found)
    }

    /// scx_select_cpu_dfl
    fn idle_cpu(&mut self, w: &World, t: Tid, wake: Wake) -> Option<Cpu> {
        let (previous, here) = (w.thread(t).cpu, wake.cpu);
        let may_stay = w.allowed(t, previous);
        let all: Vec<Cpu> = w.machine.cpus().collect();
        let mut near: Vec<&[Cpu]> = Vec::new();
        if w.mask(t).len() == w.ncpu() && w.machine.llc_groups().len() > 1 {
            near.push(w.machine.llc(previous));
        }
        if w.mask(t).len() == w.ncpu() && w.machine.node_groups().len() > 1 {
            near.push(w.machine.node(previous));
        }
        near.push(&all);
        let stay = [previous];
        if wake.sync {
            if may_stay && w.machine.llc(here).contains(&previous) && self.idle.contains(previous) {
                self.idle.remove(previous);
                return Some(previous);
            }
            if !self.idle.is_empty() && self.local[here as usize].is_empty() && w.allowed(t, here) {
                return Some(here);
            }
        }
        let smt = w.machine.cpus().any(|c| w.machine.smt(c).len() > 1);
        for core in [true, false] {
            if core && !smt {
                continue;
            }
            let kept = self.last_taken[here as usize];
            if let Some(c) = self.take_idle(w, here, t, &stay, core) {
                self.last_taken[here as usize] = kept;
                return Some(c);
            }
            for among in &near {
                if let Some(c) = self.take_idle(w, here, t, among, core) {
                    return Some(c);
                }
            }
        }
        None
    }

    fn choose(&mut self, w: &mut World, c: Cpu) -> Option<Tid> {
        let previous = self.previous[c as usize].take();
        let goes_on = previous.is_some_and(|t| self.left[t as usize] > 0);
        // Real-time threads that follow each other never come to this class.
        let above = self.realtime[c as usize] && self.rt.len(c) > 0;
        if !above && !goes_on && self.local[c as usize].is_empty() {
            let first = self.shared.iter().find(|(.., t)| w.allowed(*t, c));
            if let Some((first, order, t)) = first.copied() {
                self.shared.remove(&(first, order, t));
                self.held[t as usize] = Held::Local(c);
                self.local[c as usize].push_back(t);
            }
        }
        let realtime = self.rt.pop(w, c);
        self.realtime[c as usize] = realtime.is_some();
        if realtime.is_some() {
            if let Some(p) = previous {
                self.put_back(w, c, p);
            }
            return realtime;
        }
        if goes_on {
            return previous;
        }
        let Some(t) = self.local[c as usize].front().copied() else {
            if let Some(p) = previous {
                self.left[p as usize] = DEFAULT_SLICE;
            }
            return previous;
        };
        if let Some(p) = previous {
            self.put_back(w, c, p);
        }
        self.remove(w, t);
        if !self.fifo {
            self.newest = self.newest.max(self.vtime[t as usize]);
        }
        Some(t)
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
        self.idle = w.machine.online().clone();
    }

    fn on_fork(&mut self, w: &mut World, _: Option<Tid>, child: Tid) {
        self.reweigh(w, child);
    }

    fn online_changed(&mut self, w: &mut World) {
        for c in w.machine.cpus().filter(|c| !w.is_online(*c)) {
            self.idle.remove(c);
        }
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, place: SelectReason) -> Cpu {
        if w.thread(t).class.is_realtime() {
            return self.rt.select_cpu(w, t);
        }
        let (SelectReason::Wake(wake) | SelectReason::Fork(wake)) = place else {
            return w.mask(t).iter().next().unwrap_or(0);
        };
        // A thread of one CPU has no choice (select_task_rq of kernel/sched/core.c).
        if w.mask(t).len() > 1 {
            if let Some(c) = self.idle_cpu(w, t, wake) {
                self.direct[t as usize] = true;
                return c;
            }
            if w.allowed(t, w.thread(t).cpu) {
                return w.thread(t).cpu;
            }
        }
        w.mask(t).iter().next().unwrap_or(0)
    }

    fn enqueue(&mut self, w: &mut World, cpu: Cpu, t: Tid, _: EnqueueReason) {
        self.push(w, cpu, t);
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
        let chosen = self.choose(w, cpu);
        self.idle.set(cpu, chosen.is_none() && w.is_online(cpu));
        if let Some(t) = chosen {
            self.held[t as usize] = Held::No;
        }
        chosen
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        if w.thread(t).class.is_realtime() {
            if left.stays_queued() {
                self.held[t as usize] = Held::Realtime;
                self.rt.push(w, cpu, t, left == SwitchOutReason::Preempted);
                self.rt.push_away(w, t);
            }
            return;
        }
        self.charge(w, cpu, t);
        if left == SwitchOutReason::Yielded {
            self.left[t as usize] = 0;
        }
        if left.stays_queued() {
            self.previous[cpu as usize] = Some(t);
        } else {
            self.stop(w, t);
        }
    }

    fn tick(&mut self, w: &mut World, cpu: Cpu) {
        let Some(t) = w.cpu(cpu).curr else { return };
        if w.thread(t).class.is_realtime() {
            self.rt.tick(w, cpu, t, self.jiffy);
            return;
        }
        let before = self.left[t as usize];
        // A slice that began at a tick began a moment after it: so many ticks later, it is not
        // quite over.
        if self.charge(w, cpu, t) == before && before > 0 {
            self.left[t as usize] = 1;
        }
        if self.left[t as usize] == 0 {
            w.resched(cpu, RescheduleReason::SliceEnd);
        }
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        let cpu = w.thread(t).cpu;
        match w.thread(t).state {
            State::Queued => {
                self.remove(w, t);
                self.reweigh(w, t);
                self.push(w, cpu, t);
                let wake = Wake {
                    waker: None,
                    cpu,
                    sync: false,
                };
                self.check_preempt(w, cpu, t, wake);
            }
            State::Running => {
                if !self.realtime[cpu as usize] {
                    self.charge(w, cpu, t);
                    self.stop(w, t);
                    if !self.fifo {
                        self.newest = self.newest.max(self.vtime[t as usize]);
                    }
                }
                self.reweigh(w, t);
                self.realtime[cpu as usize] = w.thread(t).class.is_realtime();
                w.resched(cpu, RescheduleReason::Preempted);
            }
            State::Unborn | State::Sleeping | State::Dead => self.reweigh(w, t),
        }
    }
}
