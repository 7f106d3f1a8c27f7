//! 4BSD: FreeBSD's traditional scheduler, one queue and decaying CPU usage.
//!
//! Models sched_4bsd.c of FreeBSD 14 (bodies read). One machine-wide queue of 64
//! lists, 4 priorities in each; beside it a queue per CPU for threads that may
//! not run everywhere. A thread's priority worsens with `estcpu`, which counts
//! the statistics clock ticks it was charged and decays once a second at a rate
//! set by the load average. Nothing balances: any CPU takes the head.
//!
//! Accounting is by sampling, as in the original: a thread that always sleeps
//! before the tick is never charged. A better thread that wakes preempts the CPU
//! where it is woken, or finds an idle one; other busy CPUs are not looked at,
//! so it may wait while a worse one runs elsewhere.
//!
//! Left out: interrupt threads, priority lending, the boundary between kernel
//! and user mode (preemption takes effect at once), runq_fuzz.
use super::super::error::Result;
use super::super::machine::{Cpu, Machine};
use super::super::queue::{Levels, Links};
use super::super::workload::{Class, Tid};
use super::super::world::{State, Why, World};
use super::tunables::{CLOCK_HZ, COUNT_OR_ZERO, int, real, switch};
use super::{Clocks, How, Left, Place, Policy, Preset, Series, Settings, Spec, Wake, kick_idle};

pub const SPEC: Spec = Spec {
    family: "4bsd",
    summary: "one queue for all CPUs, priority by decaying CPU usage, 100 ms round robin",
    models: "FreeBSD 14 sched_4bsd.c; also close to 5.x and 8.x, whose differences are tunables. Left out: interrupt threads, priority lending, runq_fuzz.",
    tunables: &[
        int(
            "stathz",
            "128",
            "1/s",
            CLOCK_HZ,
            "statistics clock: charges estcpu and counts slices",
        ),
        int(
            "slice",
            "0",
            "stat ticks",
            COUNT_OR_ZERO,
            "round-robin slice; 0 = stathz / 10",
        ),
        int(
            "inverse_estcpu_weight",
            "0",
            "stat ticks",
            COUNT_OR_ZERO,
            "ticks of estcpu that worsen the priority by 1; 0 = 8 * CPUs (8 in 5.2.1)",
        ),
        int(
            "nice_weight",
            "1",
            "priorities",
            COUNT_OR_ZERO,
            "priorities per step of nice",
        ),
        int(
            "min_timeshare",
            "88",
            "priority",
            (80.0, 223.0),
            "best timeshare priority: 88 in 14, 120 in 9 to 13, 160 in 5 to 8; the worst is 223",
        ),
        switch(
            "kernel_sleep_prio",
            "on",
            "a thread that wakes is queued above all user-mode threads until it is dispatched",
        ),
        real(
            "load_average",
            "-1",
            "threads",
            (-1.0, 1e6),
            "fixed load average for the decay; -1 = sampled every 5 s, from 0",
        ),
    ],
    presets: &[Preset {
        name: "4bsd",
        doc: "FreeBSD 14",
        values: &[],
    }],
    series: &[
        Series {
            name: "estcpu",
            unit: "stat ticks",
            doc: "estimated recent CPU usage",
        },
        Series {
            name: "priority",
            unit: "priority",
            doc: "user priority, lower is better",
        },
    ],
    // A thread with a mask waits in the queue of one CPU of it.
    work_conserving: false,
    // A better thread may wait while a worse one runs on another CPU, and the
    // machine-wide queue has no CPU of its own.
    strict_classes: 0,
    make,
};

const ESTCPU: u16 = 0;
const PRIORITY: u16 = 1;

const LISTS: usize = 64;
/// Priorities per list.
const RQ_PPQ: i64 = 4;
const MAX_TIMESHARE: i64 = 223;
/// Where a thread woken in the kernel is queued: below real time, above users.
const KERNEL_PRIO: i64 = 84;
const IDLE_CLASS: i64 = 240;
const MIN_REALTIME: i64 = 48;
/// Fixed-point one of the load average and the decay.
const FSCALE: i64 = 2048;
const SECOND: i64 = 1_000_000_000;

const SCHEDCPU: u32 = 0;
const LOADAVG: u32 = 1;

fn make(s: &Settings, machine: &Machine, nthreads: usize) -> Result<Box<dyn Policy>> {
    let stathz = s.int("stathz");
    let or = |given: i64, auto: i64| if given == 0 { auto } else { given };
    let weight = or(s.int("inverse_estcpu_weight"), 8 * machine.ncpu() as i64);
    let fixed = s.real("load_average");
    let mut policy = Bsd4 {
        stathz: stathz as u32,
        slice: or(s.int("slice"), stathz / 10).max(1),
        weight,
        nice_weight: s.int("nice_weight"),
        user: s.int("min_timeshare"),
        kernel_prio: s.is_on("kernel_sleep_prio"),
        fixed_load: fixed >= 0.0,
        load: (fixed.max(0.0) * FSCALE as f64) as i64,
        threads: vec![Td::default(); nthreads],
        shared: Levels::new(LISTS),
        private: vec![Levels::new(LISTS); machine.ncpu()],
        links: Links::new(nthreads),
        restricted_load: vec![0; machine.ncpu()],
    };
    for td in &mut policy.threads {
        td.slice = policy.slice;
    }
    Ok(Box::new(policy))
}

#[derive(Debug, Clone, Default)]
struct Td {
    estcpu: i64,
    /// What it is queued and compared by, and what it has in user mode.
    prio: i64,
    user_prio: i64,
    slice: i64,
    /// Seconds asleep, as the once-a-second pass counts them.
    slept: i64,
    did_run: bool,
    queued_on: Option<Cpu>,
    level: usize,
    born: bool,
}

struct Bsd4 {
    stathz: u32,
    slice: i64,
    weight: i64,
    nice_weight: i64,
    user: i64,
    kernel_prio: bool,
    fixed_load: bool,
    /// 1-minute load average, fixed point.
    load: i64,
    threads: Vec<Td>,
    shared: Levels,
    private: Vec<Levels>,
    links: Links,
    /// Threads in each private queue.
    restricted_load: Vec<u32>,
}

impl Bsd4 {
    fn td(&mut self, t: Tid) -> &mut Td {
        &mut self.threads[t as usize]
    }

    fn limit(&self, estcpu: i64) -> i64 {
        let most = self.weight * (self.nice_weight * 40 - RQ_PPQ) + self.weight - 1;
        estcpu.min(most.max(0))
    }

    fn decay(&self, estcpu: i64) -> i64 {
        let f = 2 * self.load;
        f * estcpu / (f + FSCALE)
    }

    /// The user priority from class, nice and usage.
    fn renew(&mut self, w: &mut World, t: Tid) {
        let th = w.thread(t);
        let (class, nice, rt) = (th.class, i64::from(th.nice), i64::from(th.rt_prio));
        let by_usage = self.user
            + self.threads[t as usize].estcpu / self.weight
            + self.nice_weight * (nice + 20);
        let prio = match class {
            // 99 real-time levels on FreeBSD's 32.
            Class::Fifo | Class::RoundRobin => MIN_REALTIME + (99 - rt) * 32 / 99,
            Class::Idle => IDLE_CLASS,
            Class::Fair | Class::Batch => by_usage.clamp(self.user, MAX_TIMESHARE),
        };
        self.td(t).user_prio = prio;
        w.record(PRIORITY, t, prio as f64);
    }

    fn queue(&mut self, w: &World, cpu: Cpu, t: Tid, front: bool) {
        let level = (self.threads[t as usize].prio / RQ_PPQ) as usize;
        let on = (!w.unbound(t)).then_some(cpu);
        let td = &mut self.threads[t as usize];
        td.level = level;
        td.queued_on = on;
        let queue = match on {
            Some(c) => {
                self.restricted_load[c as usize] += 1;
                &mut self.private[c as usize]
            }
            None => &mut self.shared,
        };
        if front {
            queue.push_front(&mut self.links, level, t);
        } else {
            queue.push_back(&mut self.links, level, t);
        }
    }

    fn unqueue(&mut self, t: Tid) {
        let (on, level) = {
            let td = self.td(t);
            (td.queued_on, td.level)
        };
        match on {
            Some(c) => {
                self.restricted_load[c as usize] -= 1;
                self.private[c as usize].remove(&mut self.links, level, t);
            }
            None => self.shared.remove(&mut self.links, level, t),
        }
    }

    fn prio_of(&self, t: Tid) -> i64 {
        self.threads[t as usize].prio
    }

    /// A better queued thread makes `cpu` choose again.
    fn ask(&self, w: &mut World, cpu: Cpu, t: Tid) {
        if let Some(r) = w.cpu(cpu).curr
            && w.allowed(t, cpu)
            && self.prio_of(t) < self.prio_of(r)
        {
            w.resched(cpu, Why::Preempted);
        }
    }

    fn schedcpu(&mut self, w: &mut World) {
        for t in 0..w.nthreads() as Tid {
            let state = w.thread(t).state;
            if matches!(state, State::Unborn | State::Dead) {
                continue;
            }
            let runnable = matches!(state, State::Running | State::Queued);
            let td = self.td(t);
            if std::mem::take(&mut td.did_run) || runnable {
                td.slept = 0;
            } else {
                td.slept += 1;
                if td.slept > 1 {
                    // Decayed when it wakes.
                    continue;
                }
            }
            let e = self.decay(self.threads[t as usize].estcpu);
            self.td(t).estcpu = e;
            w.record(ESTCPU, t, e as f64);
            if state == State::Queued {
                self.ask(w, w.thread(t).cpu, t);
            }
            self.renew(w, t);
            self.apply(w, t);
        }
        w.arm_timer(SCHEDCPU, w.now() + SECOND);
    }

    /// Take the user priority over, and requeue if the list changes.
    fn apply(&mut self, w: &mut World, t: Tid) {
        let td = self.td(t);
        if td.prio < td.user_prio.min(KERNEL_PRIO + 1) {
            // Still at the priority it slept with.
            return;
        }
        let (new, old_level) = (td.user_prio, td.level);
        td.prio = new;
        if w.thread(t).state == State::Queued && (new / RQ_PPQ) as usize != old_level {
            self.unqueue(t);
            self.queue(w, w.thread(t).cpu, t, false);
        }
    }

    fn sample_load(&mut self, w: &mut World) {
        if !self.fixed_load {
            // exp(-5 / 60) in fixed point.
            const CEXP: i64 = 1884;
            let n = i64::from(w.nr_runnable());
            self.load = (CEXP * self.load + n * FSCALE * (FSCALE - CEXP)) / FSCALE;
        }
        w.arm_timer(LOADAVG, w.now() + 5 * SECOND);
    }
}

impl Policy for Bsd4 {
    fn clocks(&self) -> Clocks {
        Clocks {
            stathz: self.stathz,
            ..Clocks::default()
        }
    }

    fn init(&mut self, w: &mut World) {
        w.arm_timer(SCHEDCPU, SECOND);
        w.arm_timer(LOADAVG, 5 * SECOND);
    }

    fn on_fork(&mut self, w: &mut World, parent: Option<Tid>, child: Tid) {
        if let Some(p) = parent {
            self.td(child).estcpu = self.threads[p as usize].estcpu;
            self.td(child).slice = 1;
        }
        self.renew(w, child);
        let td = self.td(child);
        td.prio = td.user_prio;
        td.born = true;
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, place: Place) -> Cpu {
        let old = w.thread(t).cpu;
        if w.allowed(t, old) && w.is_idle(old) {
            return old;
        }
        if let Some(c) = w.idle_for(t) {
            return c;
        }
        if w.unbound(t) {
            return old;
        }
        // The least of the queues of threads with masks; the waker's or the old
        // CPU at equality.
        let here = match place {
            Place::Wake(wake) | Place::Fork(wake) => wake.cpu,
            Place::Moved => old,
        };
        w.mask(t)
            .iter()
            .min_by_key(|c| (self.restricted_load[*c as usize], *c != old, *c != here, *c))
            .unwrap_or(old)
    }

    fn enqueue(&mut self, w: &mut World, cpu: Cpu, t: Tid, how: How) {
        if how == How::Wakeup {
            let missed = std::mem::take(&mut self.td(t).slept);
            if missed > 1 {
                let mut e = self.threads[t as usize].estcpu;
                for _ in 1..missed {
                    e = self.decay(e);
                    if e == 0 {
                        break;
                    }
                }
                self.td(t).estcpu = e;
                w.record(ESTCPU, t, e as f64);
            }
            self.renew(w, t);
            let slice = self.slice;
            let boost = self.kernel_prio;
            let td = self.td(t);
            td.slice = slice;
            td.prio = if boost && td.user_prio <= MAX_TIMESHARE {
                td.user_prio.min(KERNEL_PRIO)
            } else {
                td.user_prio
            };
        }
        self.queue(w, cpu, t, false);
    }

    fn dequeue(&mut self, _: &mut World, _: Cpu, t: Tid) {
        self.unqueue(t);
    }

    fn check_preempt(&mut self, w: &mut World, cpu: Cpu, t: Tid, wake: Wake) {
        let here = if w.unbound(t) { wake.cpu } else { cpu };
        self.ask(w, here, t);
    }

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        let shared = self.shared.front().map(|(_, t)| t);
        let own = self.private[cpu as usize].front().map(|(_, t)| t);
        let t = match (shared, own) {
            (Some(s), Some(o)) => {
                if self.prio_of(o) < self.prio_of(s) {
                    o
                } else {
                    s
                }
            }
            (s, o) => s.or(o)?,
        };
        self.unqueue(t);
        let td = self.td(t);
        // Back in user mode.
        td.prio = td.user_prio;
        td.did_run = true;
        debug_assert!(w.allowed(t, cpu));
        Some(t)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: Left) {
        self.td(t).did_run = true;
        match left {
            Left::Preempted => self.queue(w, cpu, t, true),
            Left::SliceEnd | Left::Yielded => self.queue(w, cpu, t, false),
            Left::Exited => {
                if let Some(p) = w.parent(t) {
                    let sum = self.threads[p as usize].estcpu + self.threads[t as usize].estcpu;
                    self.td(p).estcpu = self.limit(sum);
                    w.record(ESTCPU, p, self.threads[p as usize].estcpu as f64);
                }
            }
            Left::Blocked | Left::Moved => {}
        }
        if left.stays_queued() {
            kick_idle(w, t);
        }
    }

    fn stat_tick(&mut self, w: &mut World, cpu: Cpu) {
        let Some(t) = w.cpu(cpu).curr else { return };
        let e = self.limit(self.threads[t as usize].estcpu + 1);
        self.td(t).estcpu = e;
        w.record(ESTCPU, t, e as f64);
        if e % self.weight == 0 {
            self.renew(w, t);
            let td = self.td(t);
            td.prio = td.user_prio;
        }
        if w.thread(t).class == Class::Fifo {
            return;
        }
        let slice = self.slice;
        let td = self.td(t);
        td.slice -= 1;
        if td.slice <= 0 {
            td.slice = slice;
            w.resched(cpu, Why::SliceEnd);
        }
    }

    fn timer(&mut self, w: &mut World, id: u32) {
        if id == SCHEDCPU {
            self.schedcpu(w);
        } else {
            self.sample_load(w);
        }
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        self.renew(w, t);
        let td = self.td(t);
        td.prio = td.user_prio;
        match w.thread(t).state {
            State::Queued => {
                self.unqueue(t);
                let cpu = w.thread(t).cpu;
                self.queue(w, cpu, t, false);
                self.ask(w, cpu, t);
            }
            State::Running => {
                let cpu = w.thread(t).cpu;
                let mine = self.prio_of(t);
                let better = |q: &Levels| q.front().is_some_and(|(_, o)| self.prio_of(o) < mine);
                if better(&self.shared) || better(&self.private[cpu as usize]) {
                    w.resched(cpu, Why::Preempted);
                }
            }
            State::Unborn | State::Sleeping | State::Dead => {}
        }
    }

    fn prio(&self, _: &World, t: Tid) -> i16 {
        self.threads[t as usize].prio as i16
    }
}
