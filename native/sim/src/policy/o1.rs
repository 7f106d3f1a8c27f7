//! The O(1) scheduler of Linux 2.6.10: two arrays and a bonus for sleepers.
//!
//! Models sched.c around 2.6.10 (read as the -mm patches of that release and
//! neighbouring versions; its single-CPU rules are certain, its balancer is
//! approximate). Per CPU an active and an expired array of 140 lists. A thread's
//! dynamic priority is its nice value moved by up to 5 either way by `sleep_avg`;
//! a thread that used its slice goes to the expired array, unless it counts as
//! interactive and the expired ones are not starving.
//!
//! Charging by the clock tick. Left out: exec balancing, pushing a running
//! thread, the distinction of kernel threads. CPU choice and balancing:
//! `linux_prio` and `linux_domains`.
use super::super::error::Result;
use super::super::machine::{Cpu, Machine};
use super::super::workload::{Class, Tid};
use super::super::world::{RescheduleReason, SleepKind, State, World};
use super::linux_domains::{Balancer, fallback_cpu};
use super::linux_prio::{
    BALANCE, CACHE_HOT_TIME, HZ, PrioQueues, balancer, realtime_level, static_prio,
};
use super::o1_bonus::{Past, Sleeping};
use super::tunables::{COUNT_OR_ZERO, SPAN, int, switch, time};
use super::{
    Clocks, EnqueueReason, InteractivityRule, Policy, Preset, PriorityScale, Role, SelectReason,
    Series, Settings, Spec, SwitchOutReason, Wake,
};

pub const SPEC: Spec = Spec {
    family: "o1",
    summary: "active and expired arrays, priority bonus for sleepers",
    models: "Linux 2.6.10 sched.c; certain for one CPU, approximate in balancing. Left out: exec balancing, active balance.",
    tunables: &[
        time(
            "min_timeslice",
            "5ms",
            SPAN,
            "least slice; also the base of the interactive round robin",
        ),
        time(
            "def_timeslice",
            "100ms",
            SPAN,
            "slice at nice 0; four times this below 0, falling linearly to nice 19",
        ),
        time(
            "max_sleep_avg",
            "1s",
            SPAN,
            "sleep that earns the whole bonus",
        ),
        time(
            "starvation_limit",
            "1s",
            SPAN,
            "times the runnable threads: after this the expired array is starving",
        ),
        int(
            "interactive_delta",
            "2",
            "priorities",
            (-20.0, 20.0),
            "bonus beyond which a thread counts as interactive at nice 0",
        ),
        int(
            "on_runqueue_weight",
            "30",
            "%",
            (0.0, 100.0),
            "part of the wait for the CPU that counts as sleep after a wakeup by a thread",
        ),
        int(
            "child_penalty",
            "95",
            "%",
            (0.0, 100.0),
            "part of the parent's bonus that a child gets",
        ),
        int(
            "exit_weight",
            "3",
            "",
            COUNT_OR_ZERO,
            "an exiting child moves its parent's sleep_avg by 1 in this + 1",
        ),
        int(
            "credit_limit",
            "100",
            "",
            COUNT_OR_ZERO,
            "interactive credit that counts as high (or, negative, low)",
        ),
        switch(
            "child_first",
            "on",
            "a forked child runs before its parent (processes, not threads)",
        ),
        CACHE_HOT_TIME,
        BALANCE,
        HZ,
    ],
    presets: &[Preset {
        name: "o1",
        doc: "2.6.10",
        values: &[],
    }],
    series: &[
        Series {
            name: "sleep_avg",
            unit: "ns",
            doc: "sleep credit",
        },
        Series {
            name: "bonus",
            unit: "0..10",
            doc: "priority bonus from sleep_avg; 5 is neutral",
        },
        Series {
            name: "priority",
            unit: "priority",
            doc: "dynamic priority, lower is better",
        },
    ],
    work_conserving: false,
    strict_classes: 1,
    role: Role::Kernel,
    priorities: PriorityScale::Own,
    interactivity: Some(InteractivityRule::O1),
    lag: None,
    groups: false,
    make,
};

const SLEEP_AVG: u16 = 0;
const BONUS: u16 = 1;
const PRIORITY: u16 = 2;

fn make(s: &Settings, machine: &Machine, nthreads: usize) -> Result<Box<dyn Policy>> {
    let ncpu = machine.ncpu();
    let hz = s.int("hz");
    Ok(Box::new(O1 {
        rules: Sleeping::new(s),
        hz: hz as u32,
        ncpu: ncpu as i64,
        starvation: s.ns("starvation_limit"),
        child_first: s.is_on("child_first"),
        threads: vec![Task::default(); nthreads],
        rqs: vec![Rq::default(); ncpu],
        q: PrioQueues::new(ncpu, nthreads, s.ns("cache_hot_time")),
        balancer: balancer(s, machine),
    }))
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Woken {
    /// Dispatched since, or new: a first wait for the CPU earns nothing.
    #[default]
    No,
    ByThread,
    ByInterrupt,
    FromDisk,
}

#[derive(Debug, Clone, Default)]
struct Task {
    past: Past,
    prio: i64,
    /// Ticks left.
    slice: i64,
    woken: Woken,
    first_slice: bool,
}

#[derive(Debug, Clone)]
struct Rq {
    /// When the first thread went to the expired array since the last swap.
    expired_since: Option<i64>,
    best_expired: i64,
    /// The running thread's slice is over: it goes to the expired array.
    expires: bool,
    /// A child that is to run before the running thread.
    child: Option<Tid>,
}

impl Default for Rq {
    fn default() -> Self {
        Self {
            expired_since: None,
            best_expired: 140,
            expires: false,
            child: None,
        }
    }
}

struct O1 {
    rules: Sleeping,
    hz: u32,
    ncpu: i64,
    starvation: i64,
    child_first: bool,
    threads: Vec<Task>,
    rqs: Vec<Rq>,
    q: PrioQueues,
    balancer: Balancer,
}

impl O1 {
    fn task(&mut self, t: Tid) -> &mut Task {
        &mut self.threads[t as usize]
    }

    fn bonus(&self, t: Tid) -> i64 {
        self.rules.bonus(&self.threads[t as usize].past)
    }

    /// A whole slice, in ticks.
    fn full_slice(&self, w: &World, t: Tid) -> i64 {
        self.rules.full_slice(static_prio(w, t))
    }

    fn effective(&self, w: &World, t: Tid) -> i64 {
        if let Some(level) = realtime_level(w, t) {
            return level;
        }
        self.rules
            .priority(&self.threads[t as usize].past, static_prio(w, t))
    }

    fn renew(&mut self, w: &mut World, t: Tid) {
        let prio = self.effective(w, t);
        self.task(t).prio = prio;
        if w.recording() {
            w.record(SLEEP_AVG, t, self.threads[t as usize].past.sleep_avg as f64);
            w.record(BONUS, t, self.bonus(t) as f64);
            w.record(PRIORITY, t, prio as f64);
        }
    }

    fn is_interactive(&self, w: &World, t: Tid) -> bool {
        self.rules
            .is_interactive(self.threads[t as usize].prio, static_prio(w, t))
    }

    /// `t` has slept (or waited for the CPU) for `slept`.
    fn credit_sleep(&mut self, w: &mut World, t: Tid, slept: i64) {
        if realtime_level(w, t).is_none() {
            let task = &mut self.threads[t as usize];
            let from_disk = task.woken == Woken::FromDisk;
            self.rules
                .credit_sleep(&mut task.past, static_prio(w, t), slept, from_disk);
        }
        self.renew(w, t);
    }

    fn charge_run(&mut self, w: &mut World, cpu: Cpu, t: Tid) {
        let ran = w.take_run(cpu);
        self.rules
            .charge_run(&mut self.threads[t as usize].past, ran);
        w.record(SLEEP_AVG, t, self.threads[t as usize].past.sleep_avg as f64);
    }

    fn is_starving(&self, w: &World, c: Cpu, t: Tid) -> bool {
        let rq = &self.rqs[c as usize];
        let nr = self.q.queued(c) as i64 + 1;
        let long = rq
            .expired_since
            .is_some_and(|since| w.now() - since >= self.starvation * nr + self.rules.jiffy);
        long || static_prio(w, t) > rq.best_expired
    }

    fn expire(&mut self, w: &World, c: Cpu, t: Tid) {
        let prio = static_prio(w, t);
        let rq = &mut self.rqs[c as usize];
        rq.best_expired = rq.best_expired.min(prio);
    }

    fn preempts(&self, w: &World, c: Cpu, t: Tid) -> bool {
        w.cpu(c)
            .curr
            .is_some_and(|r| self.threads[t as usize].prio < self.threads[r as usize].prio)
    }
}

impl Policy for O1 {
    fn clocks(&self) -> Clocks {
        Clocks {
            hz: self.hz,
            ..Clocks::default()
        }
    }

    fn on_fork(&mut self, w: &mut World, parent: Option<Tid>, child: Tid) {
        let full = self.full_slice(w, child);
        if let Some(p) = parent {
            let slice = self.threads[p as usize].slice;
            let avg = self.rules.inherited(&self.threads[p as usize].past);
            self.task(p).slice = (slice / 2).max(1);
            let task = self.task(child);
            task.slice = ((slice + 1) / 2).max(1);
            task.past.sleep_avg = avg;
            task.first_slice = true;
        } else {
            self.task(child).slice = full;
        }
        self.renew(w, child);
    }

    fn online_changed(&mut self, w: &mut World) {
        self.balancer.online_changed(w);
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, place: SelectReason) -> Cpu {
        match place {
            SelectReason::Wake(wake) => {
                self.task(t).woken = match (w.thread(t).sleep_kind, wake.waker) {
                    (SleepKind::Disk, _) => Woken::FromDisk,
                    (_, Some(_)) => Woken::ByThread,
                    (_, None) => Woken::ByInterrupt,
                };
                self.q.wake_cpu(w, t, wake)
            }
            // A fork stays; what was there from the start is spread.
            SelectReason::Fork(wake) if wake.waker.is_some() && w.allowed(t, wake.cpu) => wake.cpu,
            SelectReason::Fork(_) => super::least_loaded(w, t),
            SelectReason::Moved => super::idle_or_previous(w, t),
            SelectReason::Offline => fallback_cpu(w, t),
        }
    }

    fn enqueue(&mut self, w: &mut World, cpu: Cpu, t: Tid, how: EnqueueReason) {
        match how {
            EnqueueReason::Wakeup => {
                let slept = w.thread(t).slept;
                self.credit_sleep(w, t, slept);
            }
            EnqueueReason::New => {
                if self.child_first
                    && let Some(p) = w.cpu(cpu).curr
                    && w.parent(t) == Some(p)
                    && realtime_level(w, t).is_none()
                    && realtime_level(w, p).is_none()
                {
                    self.task(t).prio = self.threads[p as usize].prio;
                    self.rqs[cpu as usize].child = Some(t);
                    w.resched(cpu, RescheduleReason::Preempted);
                }
            }
            EnqueueReason::Moved => {}
        }
        let prio = self.threads[t as usize].prio;
        self.q.push(cpu, t, prio, false, false);
    }

    fn dequeue(&mut self, _: &mut World, _: Cpu, t: Tid) {
        self.q.remove(t);
    }

    fn check_preempt(&mut self, w: &mut World, cpu: Cpu, t: Tid, wake: Wake) {
        // A waker about to sleep is left alone, but never by a real-time thread
        // (the original trusted the waker's word even then).
        let wait = wake.sync && cpu == wake.cpu && realtime_level(w, t).is_none();
        if self.preempts(w, cpu, t) && !wait {
            w.resched(cpu, RescheduleReason::Preempted);
        }
    }

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        let t = match self.q.front(cpu) {
            Some(t) => t,
            None => {
                self.q.swap(cpu);
                let rq = &mut self.rqs[cpu as usize];
                rq.expired_since = None;
                rq.best_expired = 140;
                self.q.front(cpu)?
            }
        };
        self.q.remove(t);
        self.q.set_running(cpu, true);
        let woken = std::mem::take(&mut self.task(t).woken);
        let waited = w.now() - w.thread(t).since;
        match woken {
            Woken::ByThread => self.credit_sleep(w, t, self.rules.of_wait(waited)),
            Woken::ByInterrupt => self.credit_sleep(w, t, waited),
            Woken::FromDisk | Woken::No => {}
        }
        Some(t)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        self.q.set_running(cpu, false);
        self.charge_run(w, cpu, t);
        let prio = self.threads[t as usize].prio;
        let expires = std::mem::take(&mut self.rqs[cpu as usize].expires);
        let child = self.rqs[cpu as usize].child.take();
        match left {
            SwitchOutReason::Preempted => {
                self.q.push(cpu, t, prio, false, true);
                if let Some(c) = child
                    && w.thread(c).state == State::Queued
                    && w.thread(c).cpu == cpu
                {
                    self.q.remove(c);
                    self.q.push(cpu, c, prio, false, true);
                }
            }
            SwitchOutReason::SliceEnd => self.q.push(cpu, t, prio, expires, false),
            SwitchOutReason::Yielded => {
                let expired = realtime_level(w, t).is_none();
                if expired {
                    self.expire(w, cpu, t);
                }
                self.q.push(cpu, t, prio, expired, false);
            }
            SwitchOutReason::Exited => {
                if let Some(p) = w.parent(t) {
                    let full = self.full_slice(w, p);
                    let task = &self.threads[t as usize];
                    let rest = if task.first_slice { task.slice } else { 0 };
                    let past = task.past.clone();
                    let task = self.task(p);
                    task.slice = (task.slice + rest).min(full);
                    let task = &mut self.threads[p as usize];
                    self.rules.child_gone(&mut task.past, &past);
                }
            }
            SwitchOutReason::Blocked | SwitchOutReason::Moved => {}
        }
    }

    fn on_idle(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        if self.balancer.newly_idle(w, &mut self.q, cpu) {
            return self.pick_next(w, cpu);
        }
        None
    }

    fn tick(&mut self, w: &mut World, cpu: Cpu) {
        if let Some(t) = w.cpu(cpu).curr {
            self.tick_thread(w, cpu, t);
        }
        self.balancer.tick(w, &mut self.q, cpu);
        if let (Some(t), Some(r)) = (self.q.front(cpu), w.cpu(cpu).curr)
            && self.q.level(t) < self.threads[r as usize].prio
        {
            w.resched(cpu, RescheduleReason::Preempted);
        }
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        self.renew(w, t);
        let cpu = w.thread(t).cpu;
        match w.thread(t).state {
            State::Queued => {
                let expired = self.q.is_expired(t) && realtime_level(w, t).is_none();
                self.q.remove(t);
                let prio = self.threads[t as usize].prio;
                self.q.push(cpu, t, prio, expired, false);
                if self.preempts(w, cpu, t) {
                    w.resched(cpu, RescheduleReason::Preempted);
                }
            }
            State::Running => w.resched(cpu, RescheduleReason::Preempted),
            State::Unborn | State::Sleeping | State::Dead => {}
        }
    }

    fn prio(&self, _: &World, t: Tid) -> i16 {
        self.threads[t as usize].prio as i16
    }
}

impl O1 {
    fn tick_thread(&mut self, w: &mut World, cpu: Cpu, t: Tid) {
        let class = w.thread(t).class;
        if class.runs_on() {
            return;
        }
        let full = self.full_slice(w, t);
        self.task(t).slice -= 1;
        let slice = self.threads[t as usize].slice;
        if slice <= 0 {
            self.renew(w, t);
            let task = self.task(t);
            task.slice = full;
            task.first_slice = false;
            if class != Class::RoundRobin {
                let interactive = self.is_interactive(w, t);
                let rq = &mut self.rqs[cpu as usize];
                rq.expired_since.get_or_insert(w.now());
                if !interactive || self.is_starving(w, cpu, t) {
                    self.rqs[cpu as usize].expires = true;
                    self.expire(w, cpu, t);
                }
            }
            w.resched(cpu, RescheduleReason::SliceEnd);
            return;
        }
        // Interactive threads of one priority take turns more often.
        if class != Class::RoundRobin
            && self.is_interactive(w, t)
            && self
                .rules
                .is_turn(&self.threads[t as usize].past, full, slice, self.ncpu)
        {
            self.renew(w, t);
            w.resched(cpu, RescheduleReason::SliceEnd);
        }
    }
}
