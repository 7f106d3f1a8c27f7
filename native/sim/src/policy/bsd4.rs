//! 4BSD: FreeBSD's traditional scheduler, one queue and decaying CPU usage.
//!
//! Models sched_4bsd.c of FreeBSD 14, held run for run against what that file does
//! (`fixtures/freebsd-schedulers.md`). One machine-wide queue of 64 lists, 4
//! priorities in each; beside it a queue per CPU for threads that may not run
//! everywhere. A thread's priority worsens with `estcpu`, which counts the statistics
//! clock ticks it was charged and decays once a second at a rate set by the load
//! average. Nothing balances: any CPU takes the head.
//!
//! Accounting is by sampling, as in the original: a thread that always sleeps
//! before the tick is never charged. A thread that wakes calls all idle CPUs, or
//! else is compared with the one that runs where it is woken, which then leaves at
//! its return to user mode, which is at once here: it goes to the tail of its list
//! (to the head only if it is of the idle class). Other busy CPUs are not looked at,
//! so a better thread may wait while a worse one runs elsewhere.
//!
//! The user priority follows `estcpu` and nice. The active one is that of the sleep
//! from wakeup to the return to user mode.
//!
//! An interrupt thread (class `interrupt`) preempts at once where the interrupt came, also if
//! another CPU idles, and gives the CPU back: who it preempted is at the head of its list.
//!
//! Left out: priority lending, runq_fuzz.
use super::super::error::Result;
use super::super::machine::{Cpu, Machine};
use super::super::queue::{Levels, Links};
use super::super::workload::{Class, Tid};
use super::super::world::{RescheduleReason, State, World};
use super::freebsd_ast::Asked;
use super::tunables::{CLOCK_HZ, COUNT_OR_ZERO, int, real, switch, time};
use super::ule::KERNEL_LEVELS;
use super::{
    Clocks, EnqueueReason, Policy, Preset, PriorityScale, Role, SelectReason, Series, Settings,
    Spec, SwitchOutReason, Wake,
};

pub const SPEC: Spec = Spec {
    family: "4bsd",
    summary: "one queue for all CPUs, priority by decaying CPU usage, 100 ms round robin",
    models: "FreeBSD 14 sched_4bsd.c; also close to 5.x and 8.x, whose differences are tunables. Left out: priority lending, runq_fuzz.",
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
            "ticks of estcpu that make the priority worse by 1; 0 = 8 * CPUs (8 in 5.2.1)",
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
        int(
            "min_realtime",
            "16",
            "priority",
            (0.0, 150.0),
            "best real-time priority, of 32: 16 in 14, 48 in 9 to 13, 128 in 5 to 8",
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
            "fixed load average for the decay; -1 = sampled every 5 s, from first_load",
        ),
        real(
            "first_load",
            "0",
            "threads",
            (0.0, 1e6),
            "load average at the start",
        ),
        time(
            "first_decay",
            "1s",
            (0.0, 1e9),
            "when usage first decays; then once a second",
        ),
    ],
    presets: &[
        Preset {
            name: "4bsd",
            doc: "FreeBSD 14",
            values: &[],
        },
        Preset {
            name: "4bsd-13",
            doc: "FreeBSD 13",
            values: &[
                ("stathz", "127"),
                ("min_timeshare", "120"),
                ("min_realtime", "48"),
            ],
        },
    ],
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
    role: Role::Kernel,
    priorities: PriorityScale::Own,
    interactivity: None,
    lag: None,
    groups: false,
    make,
};

const ESTCPU: u16 = 0;
const PRIORITY: u16 = 1;

const LISTS: usize = 64;
/// Priorities per list.
const RQ_PPQ: i64 = 4;
const MAX_TIMESHARE: i64 = 223;
/// Where a thread woken in the kernel is queued, below the best timeshare priority:
/// PWAIT of FreeBSD 9 to 14. Of 5 to 8, whose kernel priorities are better than real
/// time, it is one number.
const SLEEP_ABOVE: i64 = 12;
const OLD_SLEEP: i64 = 96;
/// The best timeshare priority of 5 to 8.
const OLD_USER: i64 = 160;
const IDLE_CLASS: i64 = 240;
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
    let load = if fixed >= 0.0 {
        fixed
    } else {
        s.real("first_load")
    };
    let user = s.int("min_timeshare");
    let mut policy = Bsd4 {
        stathz: stathz as u32,
        slice: or(s.int("slice"), stathz / 10).max(1),
        weight,
        nice_weight: s.int("nice_weight"),
        user,
        min_realtime: s.int("min_realtime"),
        sleep_prio: s.is_on("kernel_sleep_prio").then_some(if user < OLD_USER {
            user - SLEEP_ABOVE
        } else {
            OLD_SLEEP
        }),
        fixed_load: fixed >= 0.0,
        load: (load * FSCALE as f64) as i64,
        first_decay: s.ns("first_decay").max(1),
        threads: vec![Td::default(); nthreads],
        shared: Levels::new(LISTS),
        private: vec![Levels::new(LISTS); machine.ncpu()],
        links: Links::new(nthreads),
        restricted_load: vec![0; machine.ncpu()],
        asked: vec![Asked::default(); machine.ncpu()],
        idling: vec![true; machine.ncpu()],
        n_idling: machine.ncpu(),
        woken: vec![-1; machine.ncpu()],
        in_schedcpu: false,
        kept: None,
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
    /// It returns to user mode when it runs next.
    in_kernel: bool,
    queued_on: Option<Cpu>,
    level: usize,
}

struct Bsd4 {
    stathz: u32,
    slice: i64,
    weight: i64,
    nice_weight: i64,
    user: i64,
    min_realtime: i64,
    /// The priority with which a thread wakes, if not with its user priority.
    sleep_prio: Option<i64>,
    fixed_load: bool,
    /// 1-minute load average, fixed point.
    load: i64,
    first_decay: i64,
    threads: Vec<Td>,
    shared: Levels,
    private: Vec<Levels>,
    links: Links,
    /// Threads in each private queue.
    restricted_load: Vec<u32>,
    /// Why each CPU's thread is to be switched out.
    asked: Vec<Asked>,
    /// CPUs that run their idle thread, how many, and when each last ceased to.
    idling: Vec<bool>,
    n_idling: usize,
    woken: Vec<i64>,
    in_schedcpu: bool,
    /// A thread that goes on after all, its CPU having been asked to choose.
    kept: Option<Tid>,
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
            // 99 levels on the priorities above real time, whose number differs by release.
            Class::Interrupt => (99 - rt) * self.min_realtime / 100,
            // The kernel's priorities are those above timeshare; before FreeBSD 9, above real time.
            Class::Kernel => {
                let last = if self.user < OLD_USER {
                    self.user
                } else {
                    self.min_realtime
                };
                last - KERNEL_LEVELS + (99 - rt) * KERNEL_LEVELS / 100
            }
            // 99 real-time levels on FreeBSD's 32.
            Class::Deadline | Class::Fifo | Class::RoundRobin => {
                self.min_realtime + (99 - rt) * 32 / 99
            }
            Class::Idle => IDLE_CLASS,
            Class::Fair | Class::Batch => by_usage.clamp(self.user, MAX_TIMESHARE),
        };
        self.td(t).user_prio = prio;
        w.record(PRIORITY, t, prio as f64);
    }

    fn is_timeshare(w: &World, t: Tid) -> bool {
        matches!(w.thread(t).class, Class::Fair | Class::Batch)
    }

    /// The CPU whose own queue takes `t`, which last ran on `last`, if the machine's does
    /// not: the shortest.
    fn own_queue(&self, w: &World, t: Tid, last: Option<Cpu>) -> Option<Cpu> {
        if w.unbound(t) {
            return None;
        }
        let length = |c: &Cpu| self.restricted_load[*c as usize];
        w.mask(t)
            .iter()
            .min_by_key(|c| (length(c), Some(*c) != last, *c))
    }

    fn queue(&mut self, t: Tid, on: Option<Cpu>, front: bool) {
        let td = &mut self.threads[t as usize];
        let level = (td.prio / RQ_PPQ) as usize;
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

    /// `t` was queued by what runs on `here`: who takes it?
    fn announce(&mut self, w: &mut World, t: Tid, here: Cpu) {
        let prio = self.prio_of(t);
        let idle = |w: &World, c: Cpu| w.is_online(c) && w.cpu(c).curr.is_none();
        match self.threads[t as usize].queued_on {
            Some(c) if c != here => {
                if idle(w, c) {
                    w.resched(c, RescheduleReason::Preempted);
                } else {
                    self.ask(w, c, prio);
                }
            }
            on => {
                let mut called = false;
                if on.is_none() && self.n_idling > 0 && !idle(w, here) {
                    // All idle CPUs are called; the first that comes has it.
                    for c in w.machine.cpus() {
                        if c != here && idle(w, c) {
                            w.resched(c, RescheduleReason::Preempted);
                            called = true;
                        }
                    }
                }
                if !called {
                    self.preempt_or_ask(w, here, prio);
                }
            }
        }
    }

    /// The thread on `here`, where a thread of priority `prio` has just come, leaves at
    /// once if it is of the idle class or the other an interrupt thread (`maybe_preempt`),
    /// else at its return to user mode.
    fn preempt_or_ask(&mut self, w: &mut World, here: Cpu, prio: i64) {
        if self.in_schedcpu {
            // The kernel thread that runs there is better than any other.
            return;
        }
        let Some(curr) = w.cpu(here).curr else {
            w.resched(here, RescheduleReason::Preempted);
            return;
        };
        let old = self.prio_of(curr);
        if prio < old && (old > MAX_TIMESHARE || prio < self.min_realtime) {
            self.asked[here as usize].preempt = true;
            w.resched(here, RescheduleReason::Preempted);
        } else {
            self.ask(w, here, prio);
        }
    }

    /// The thread on `c` leaves at its return to user mode if `prio` is better.
    fn ask(&mut self, w: &mut World, c: Cpu, prio: i64) {
        if w.cpu(c).curr.is_some_and(|r| prio < self.prio_of(r)) {
            self.asked[c as usize].at_return = true;
            w.resched(c, RescheduleReason::Preempted);
        }
    }

    /// Once a second, for every thread: decay, and a new priority. A kernel thread of the
    /// first CPU does it; that its coming and going makes that CPU choose is left out.
    fn schedcpu(&mut self, w: &mut World) {
        self.in_schedcpu = true;
        for t in 0..w.nthreads() as Tid {
            let state = w.thread(t).state;
            if matches!(state, State::Unborn | State::Dead) {
                continue;
            }
            let running = state == State::Running;
            let td = self.td(t);
            let did_run = td.did_run;
            td.did_run &= running;
            if did_run || running || state == State::Queued {
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
            if Self::is_timeshare(w, t) {
                self.renew(w, t);
            }
            self.apply(w, t, 0);
        }
        self.in_schedcpu = false;
        w.arm_timer(SCHEDCPU, w.now() + SECOND);
    }

    /// Take the user priority over, unless `t` still has that of its sleep, and requeue
    /// it if the list changes; on `here` this happens.
    fn apply(&mut self, w: &mut World, t: Tid, here: Cpu) {
        let old = self.prio_of(t);
        if !(self.user..=MAX_TIMESHARE).contains(&old) {
            return;
        }
        if w.cpu(here).curr != Some(t) && !self.in_schedcpu {
            // The original compares before the priority changes.
            self.ask(w, here, old);
        }
        self.set_active(w, t, here);
    }

    fn set_active(&mut self, w: &mut World, t: Tid, here: Cpu) {
        let td = self.td(t);
        td.prio = td.user_prio;
        let moves = td.level != (td.prio / RQ_PPQ) as usize;
        if w.thread(t).state == State::Queued && moves {
            self.unqueue(t);
            self.add(w, t, here);
        }
    }

    /// Requeue the waiting `t`.
    fn add(&mut self, w: &mut World, t: Tid, here: Cpu) {
        let on = self.own_queue(w, t, w.thread(t).last_cpu);
        self.queue(t, on, false);
        if let Some(c) = on {
            w.migrate(t, c);
        }
        self.announce(w, t, here);
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
        w.arm_timer(SCHEDCPU, self.first_decay);
        w.arm_timer(LOADAVG, 5 * SECOND);
    }

    fn on_fork(&mut self, w: &mut World, parent: Option<Tid>, child: Tid) {
        if let (None, Some(past)) = (parent, w.past(child)) {
            let ticks = i128::from(past.charged) * i128::from(self.stathz) / i128::from(SECOND);
            let estcpu = self.limit(ticks as i64);
            self.td(child).estcpu = estcpu;
        }
        self.renew(w, child);
        let mut prio = self.threads[child as usize].user_prio;
        if let Some(p) = parent {
            let like = |w: &World, t: Tid| (w.thread(t).class, w.thread(t).nice);
            let (estcpu, user_prio) = {
                let of = &self.threads[p as usize];
                (of.estcpu, of.user_prio)
            };
            if like(w, p) == like(w, child) {
                // A copy of its parent: nothing is recomputed.
                prio = self.prio_of(p);
                self.td(child).user_prio = user_prio;
            }
            self.td(child).estcpu = estcpu;
            self.td(child).slice = 1;
        }
        let td = self.td(child);
        td.prio = prio;
        td.in_kernel = true;
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, place: SelectReason) -> Cpu {
        if let Some(c) = self.own_queue(w, t, w.thread(t).last_cpu) {
            return c;
        }
        // The machine's queue has no CPU; shown is the one that will take the thread.
        let here = match place {
            SelectReason::Wake(wake) | SelectReason::Fork(wake) => wake.cpu,
            SelectReason::Moved => w.thread(t).cpu,
            SelectReason::Offline => super::least_loaded(w, t),
        };
        if w.cpu(here).curr.is_none() || w.thread(t).class == Class::Interrupt {
            return here;
        }
        let mut online = w.machine.online().iter();
        let idle = online.find(|c| w.cpu(*c).curr.is_none());
        idle.unwrap_or(here)
    }

    fn enqueue(&mut self, w: &mut World, cpu: Cpu, t: Tid, how: EnqueueReason) {
        if how == EnqueueReason::Wakeup {
            let slept = std::mem::take(&mut self.td(t).slept);
            if slept > 1 {
                let mut e = self.threads[t as usize].estcpu;
                for _ in 2..slept {
                    e = self.decay(e);
                    if e == 0 {
                        break;
                    }
                }
                self.td(t).estcpu = e;
                w.record(ESTCPU, t, e as f64);
                self.renew(w, t);
            }
            self.td(t).slice = self.slice;
            self.sleeps(w, t);
        }
        let on = (!w.unbound(t)).then_some(cpu);
        self.queue(t, on, false);
        let here = w.here().unwrap_or(cpu);
        let interrupt = how == EnqueueReason::Wakeup && w.thread(t).class == Class::Interrupt;
        if interrupt && on.is_none() {
            // No other CPU is called (SRQ_INTR).
            let prio = self.prio_of(t);
            self.preempt_or_ask(w, here, prio);
        } else {
            self.announce(w, t, here);
        }
    }

    fn dequeue(&mut self, _: &mut World, _: Cpu, t: Tid) {
        self.unqueue(t);
    }

    fn check_preempt(&mut self, _: &mut World, _: Cpu, _: Tid, _: Wake) {}

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        if let Some(t) = self.kept.take() {
            return Some(t);
        }
        let shared = self.shared.front().map(|(_, t)| t);
        let shared = shared.filter(|_| w.is_online(cpu));
        let own = self.private[cpu as usize].front().map(|(_, t)| t);
        let t = match (shared, own) {
            (Some(s), Some(o)) if self.prio_of(o) < self.prio_of(s) => Some(o),
            (s, o) => s.or(o),
        };
        let was_idling = std::mem::replace(&mut self.idling[cpu as usize], t.is_none());
        self.n_idling -= usize::from(was_idling);
        self.n_idling += usize::from(t.is_none());
        let t = t?;
        if was_idling {
            self.woken[cpu as usize] = w.now();
        }
        self.unqueue(t);
        let td = self.td(t);
        td.did_run = true;
        if std::mem::take(&mut td.in_kernel) {
            td.prio = td.user_prio;
        }
        debug_assert!(w.allowed(t, cpu));
        Some(t)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        let asked = std::mem::take(&mut self.asked[cpu as usize]);
        let mut front = false;
        match left {
            SwitchOutReason::Preempted | SwitchOutReason::SliceEnd if asked.preempt => {
                front = !asked.slice_end
            }
            SwitchOutReason::Preempted | SwitchOutReason::SliceEnd if asked.at_return => {
                let td = self.td(t);
                td.prio = td.user_prio;
                td.in_kernel = true;
            }
            SwitchOutReason::Preempted | SwitchOutReason::SliceEnd => {
                self.kept = Some(t);
                return;
            }
            SwitchOutReason::Yielded => self.td(t).in_kernel = true,
            SwitchOutReason::Exited => {
                if let Some(p) = w.parent(t) {
                    let sum = self.threads[p as usize].estcpu + self.threads[t as usize].estcpu;
                    self.td(p).estcpu = self.limit(sum);
                    w.record(ESTCPU, p, self.threads[p as usize].estcpu as f64);
                }
            }
            SwitchOutReason::Blocked => {
                self.td(t).slept = 0;
                self.sleeps(w, t);
            }
            SwitchOutReason::Moved => {}
        }
        if left.stays_queued() {
            // Its own CPU is where it last ran.
            let on = self.own_queue(w, t, Some(cpu));
            self.queue(t, on, front);
            match on {
                Some(c) if c != cpu => w.send(t, c),
                _ => {}
            }
            self.announce(w, t, cpu);
        }
    }

    fn stat_tick(&mut self, w: &mut World, cpu: Cpu) {
        let Some(t) = w.cpu(cpu).curr else { return };
        if self.woken[cpu as usize] == w.now() {
            // It was woken at this very instant: the tick was the idle thread's.
            return;
        }
        let e = self.limit(self.threads[t as usize].estcpu + 1);
        self.td(t).estcpu = e;
        w.record(ESTCPU, t, e as f64);
        if e % self.weight == 0 && Self::is_timeshare(w, t) {
            self.renew(w, t);
            let td = self.td(t);
            td.prio = td.user_prio;
        }
        let slice = self.slice;
        let td = self.td(t);
        td.slice -= 1;
        if td.slice <= 0 {
            td.slice = slice;
            let asked = &mut self.asked[cpu as usize];
            asked.slice_end = true;
            asked.at_return = true;
            w.resched(cpu, RescheduleReason::SliceEnd);
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
        let was = self.prio_of(t);
        self.renew(w, t);
        let here = w.here().unwrap_or(w.thread(t).cpu);
        let class_changed =
            !Self::is_timeshare(w, t) || !(self.user..=MAX_TIMESHARE).contains(&was);
        let asleep = w.thread(t).state == State::Sleeping;
        if class_changed && !(asleep && Self::is_timeshare(w, t)) {
            self.set_active(w, t, here);
        } else {
            self.apply(w, t, here);
        }
    }

    fn moves_by_itself(&self) -> bool {
        true
    }

    fn steps_before_ipis(&self) -> bool {
        true
    }

    fn affinity_changed(&mut self, w: &mut World, t: Tid) {
        if w.unbound(t) {
            return;
        }
        let cpu = w.thread(t).cpu;
        match w.thread(t).state {
            State::Queued => {
                let on = self.threads[t as usize].queued_on;
                if on.is_none_or(|c| !w.allowed(t, c)) {
                    self.unqueue(t);
                    let here = w.here().unwrap_or(cpu);
                    self.add(w, t, here);
                }
            }
            State::Running if !w.allowed(t, cpu) => {
                self.asked[cpu as usize].at_return = true;
                w.resched(cpu, RescheduleReason::Preempted);
            }
            _ => {}
        }
    }

    fn back_from_kernel(&mut self, w: &mut World, t: Tid) {
        let cpu = w.thread(t).cpu;
        let preempted = self.asked[cpu as usize].preempt;
        let td = self.td(t);
        if preempted {
            // It is preempted before it gets that far.
            td.in_kernel = true;
        } else {
            td.prio = td.user_prio;
        }
    }

    fn prio(&self, _: &World, t: Tid) -> i16 {
        self.threads[t as usize].prio as i16
    }
}

impl Bsd4 {
    /// `t` goes to sleep, and has the priority of its sleep until it is back in user mode.
    fn sleeps(&mut self, w: &World, t: Tid) {
        let timeshare = Self::is_timeshare(w, t);
        let sleep_prio = self.sleep_prio;
        let td = self.td(t);
        td.in_kernel = true;
        if timeshare && let Some(prio) = sleep_prio {
            td.prio = prio;
        }
    }
}
