//! Staircase, Con Kolivas' scheduler of the -ck patches for Linux 2.6.10.
//!
//! Modelled on the text of v7.F (read whole) with the wake rule of the versions around it
//! (`burst_rule`); v10.5 itself was not found. One array per CPU. A thread starts at the priority
//! of its nice value and goes down a step for each round-robin interval it runs, to the bottom;
//! when its whole slice is used it climbs back. A thread that sleeps enough earns bursts: longer
//! stays on the top step. No bonus arithmetic, and no starvation: every other thread comes down.
//!
//! Modes as the originals' sysctls: `interactive` (bursts), `compute` (intervals
//! of 100 ms, delayed preemption). Left out: SCHED_BATCH, SCHED_ISO. CPU choice
//! and balancing are O(1)'s: `linux_prio`, `linux_domains`.
use super::super::error::Result;
use super::super::machine::{Cpu, Machine};
use super::super::workload::Tid;
use super::super::world::{RescheduleReason, SleepKind, State, World};
use super::linux_domains::{Balancer, fallback_cpu};
use super::linux_prio::{
    BALANCE, CACHE_HOT_TIME, HZ, PrioQueues, balancer, realtime_level, static_prio,
};
use super::tunables::{SPAN, SPAN_OR_ZERO, choice, switch, time};
use super::{
    Clocks, EnqueueReason, Policy, Preset, PriorityScale, Role, SelectReason, Series, Settings,
    Spec, SwitchOutReason, Wake,
};

pub const SPEC: Spec = Spec {
    family: "staircase",
    summary: "priorities fall by a step per interval of running and are regained by sleep",
    models: "Staircase on Linux 2.6.10, modelled on v7.F with the wake rule of v10 to v11 (v10.5 was not found). Left out: SCHED_BATCH, SCHED_ISO.",
    tunables: &[
        time(
            "rr_interval",
            "10ms",
            SPAN,
            "time on a step; ten times this in compute mode",
        ),
        switch("interactive", "on", "sleepers earn bursts on the top step"),
        switch(
            "compute",
            "off",
            "long intervals and delayed preemption; overrides interactive",
        ),
        time(
            "cache_delay",
            "10ms",
            SPAN_OR_ZERO,
            "in compute mode a thread runs this long before it is preempted",
        ),
        choice(
            "burst_rule",
            &["sleep", "v7"],
            "sleep",
            "how sleep renews slice and burst: against the time run (v10, v11) or by each sleep (v7.F)",
        ),
        switch(
            "requeue_head",
            "off",
            "a preempted thread goes to the head of its list (v7.4)",
        ),
        CACHE_HOT_TIME,
        BALANCE,
        HZ,
    ],
    presets: &[
        Preset {
            name: "staircase",
            doc: "the default: interactive",
            values: &[],
        },
        Preset {
            name: "staircase-server",
            doc: "interactive off: no bursts",
            values: &[("interactive", "off")],
        },
        Preset {
            name: "staircase-compute",
            doc: "compute mode",
            values: &[("compute", "on")],
        },
    ],
    series: &[
        Series {
            name: "burst",
            unit: "intervals",
            doc: "extra intervals on the top step",
        },
        Series {
            name: "priority",
            unit: "priority",
            doc: "present step, lower is better",
        },
    ],
    work_conserving: false,
    strict_classes: 1,
    role: Role::Kernel,
    priorities: PriorityScale::Own,
    interactivity: None,
    lag: None,
    groups: false,
    make,
};

const BURST: u16 = 0;
const PRIORITY: u16 = 1;
const LOWEST: i64 = 139;

fn make(s: &Settings, machine: &Machine, nthreads: usize) -> Result<Box<dyn Policy>> {
    let ncpu = machine.ncpu();
    let hz = s.int("hz");
    let jiffy = 1_000_000_000 / hz;
    let compute = s.is_on("compute");
    let factor = if compute { 10 } else { 1 };
    Ok(Box::new(Staircase {
        jiffy,
        hz: hz as u32,
        interval: (s.ns("rr_interval") * factor / jiffy).max(1),
        bursts: s.is_on("interactive") && !compute,
        compute,
        cache_delay: s.ns("cache_delay"),
        by_sleep: s.choice("burst_rule") == 0,
        requeue_head: s.is_on("requeue_head"),
        threads: vec![Task::default(); nthreads],
        q: PrioQueues::new(ncpu, nthreads, s.ns("cache_hot_time")),
        balancer: balancer(s, machine),
    }))
}

#[derive(Debug, Clone, Default)]
struct Task {
    prio: i64,
    burst: i64,
    /// Ticks left of the whole slice, and of the present step.
    slice: i64,
    step: i64,
    /// CPU time since the slice restarted, ns; and since the last wakeup.
    total: i64,
    ran: i64,
    /// It forked: its next wakeup continues its slice.
    forked: bool,
}

struct Staircase {
    jiffy: i64,
    hz: u32,
    /// Ticks of a step.
    interval: i64,
    bursts: bool,
    compute: bool,
    cache_delay: i64,
    by_sleep: bool,
    requeue_head: bool,
    threads: Vec<Task>,
    q: PrioQueues,
    balancer: Balancer,
}

fn best_burst(w: &World, t: Tid) -> i64 {
    LOWEST - static_prio(w, t)
}

impl Staircase {
    fn task(&mut self, t: Tid) -> &mut Task {
        &mut self.threads[t as usize]
    }

    fn full(&self, w: &World, t: Tid) -> i64 {
        self.interval * (1 + best_burst(w, t))
    }

    fn effective(&self, w: &World, t: Tid) -> i64 {
        if let Some(level) = realtime_level(w, t) {
            return level;
        }
        let task = &self.threads[t as usize];
        let used = self.full(w, t) - task.slice;
        let top = if self.bursts {
            self.interval * (1 + task.burst)
        } else {
            self.interval
        };
        let best = static_prio(w, t);
        if used < top {
            best
        } else {
            (best + 1 + (used - top) / self.interval).min(LOWEST)
        }
    }

    fn renew(&mut self, w: &mut World, t: Tid) {
        let prio = self.effective(w, t);
        self.task(t).prio = prio;
        if w.recording() {
            w.record(BURST, t, self.threads[t as usize].burst as f64);
            w.record(PRIORITY, t, prio as f64);
        }
    }

    /// A whole slice from the top step.
    fn restart(&mut self, w: &World, t: Tid, burst: i64) {
        let (full, best, interval) = (self.full(w, t), best_burst(w, t), self.interval);
        let task = self.task(t);
        task.burst = (task.burst + burst).clamp(0, best);
        task.slice = full;
        task.step = interval;
        task.total = 0;
    }

    fn wake(&mut self, w: &World, cpu: Cpu, t: Tid) {
        let full = self.full(w, t) * self.jiffy;
        let interval = self.interval * self.jiffy;
        let disk = w.thread(t).sleep_kind == SleepKind::Disk;
        let slept = w.thread(t).slept;
        let (total, ran, forked) = {
            let task = &self.threads[t as usize];
            (task.total, task.ran, task.forked)
        };
        self.task(t).forked = false;
        self.task(t).ran = 0;
        let step = self.interval;
        if self.by_sleep {
            // Sleep is worth less when others wait.
            let others = (self.q.queued(cpu) as i64 + 1).max(1);
            let slept = slept / others;
            if !forked && total >= full && slept < full {
                self.restart(w, t, -1);
            } else if !forked && slept >= total {
                self.restart(w, t, i64::from(!disk));
            } else {
                let rest = if forked { total } else { total - slept };
                self.go_on(rest, full, t);
            }
        } else {
            let short = ran < self.jiffy || !self.bursts;
            if forked || (short && ran + slept < interval) {
                if total >= full {
                    self.restart(w, t, -1);
                } else {
                    self.go_on(total, full, t);
                }
            } else {
                self.restart(w, t, i64::from(!disk));
            }
        }
        self.task(t).step = step;
    }

    /// Continue the slice with `used` ns of it gone.
    fn go_on(&mut self, used: i64, full: i64, t: Tid) {
        let jiffy = self.jiffy;
        let task = self.task(t);
        task.total = used;
        task.slice = ((full - used) / jiffy).max(1);
    }

    fn preempts(&self, w: &World, c: Cpu, t: Tid) -> bool {
        let Some(r) = w.cpu(c).curr else { return false };
        let (a, b) = (&self.threads[t as usize], &self.threads[r as usize]);
        let better = a.prio < b.prio
            || (a.prio == b.prio && a.slice == self.full(w, t) && a.step > b.step)
                && realtime_level(w, t).is_none();
        let early = self.compute && w.now() - w.cpu(c).picked_at < self.cache_delay;
        better && (!early || realtime_level(w, t).is_some())
    }
}

impl Policy for Staircase {
    fn clocks(&self) -> Clocks {
        Clocks {
            hz: self.hz,
            ..Clocks::default()
        }
    }

    fn on_fork(&mut self, w: &mut World, parent: Option<Tid>, child: Tid) {
        self.restart(w, child, 0);
        self.task(child).burst = 0;
        self.renew(w, child);
        if let Some(p) = parent {
            self.task(p).forked = true;
        }
    }

    fn online_changed(&mut self, w: &mut World) {
        self.balancer.online_changed(w);
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, place: SelectReason) -> Cpu {
        match place {
            SelectReason::Wake(wake) => self.q.wake_cpu(w, t, wake),
            SelectReason::Fork(wake) if wake.waker.is_some() && w.allowed(t, wake.cpu) => wake.cpu,
            SelectReason::Fork(_) => super::least_loaded(w, t),
            SelectReason::Moved => super::idle_or_previous(w, t),
            SelectReason::Offline => fallback_cpu(w, t),
        }
    }

    fn enqueue(&mut self, w: &mut World, cpu: Cpu, t: Tid, how: EnqueueReason) {
        if how == EnqueueReason::Wakeup {
            self.wake(w, cpu, t);
            self.renew(w, t);
        }
        let prio = self.threads[t as usize].prio;
        self.q.push(cpu, t, prio, false, false);
    }

    fn dequeue(&mut self, _: &mut World, _: Cpu, t: Tid) {
        self.q.remove(t);
    }

    fn check_preempt(&mut self, w: &mut World, cpu: Cpu, t: Tid, _: Wake) {
        if self.preempts(w, cpu, t) {
            w.resched(cpu, RescheduleReason::Preempted);
        }
    }

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        let t = self.q.front(cpu)?;
        self.q.remove(t);
        self.q.set_running(cpu, true);
        // After a yield it is back at its own step.
        let prio = self.effective(w, t);
        self.task(t).prio = prio;
        Some(t)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        self.q.set_running(cpu, false);
        let ran = w.take_run(cpu);
        let task = self.task(t);
        task.total += ran;
        task.ran += ran;
        let prio = task.prio;
        match left {
            SwitchOutReason::Preempted => {
                // Real-time threads keep their place.
                let head = self.requeue_head || realtime_level(w, t).is_some();
                self.q.push(cpu, t, prio, false, head);
            }
            SwitchOutReason::SliceEnd => self.q.push(cpu, t, prio, false, false),
            SwitchOutReason::Yielded => {
                let level = if realtime_level(w, t).is_some() {
                    prio
                } else {
                    self.task(t).burst = 0;
                    LOWEST
                };
                self.q.push(cpu, t, level, false, false);
            }
            SwitchOutReason::Blocked | SwitchOutReason::Moved | SwitchOutReason::Exited => {}
        }
    }

    fn on_idle(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        if self.balancer.newly_idle(w, &mut self.q, cpu) {
            return self.pick_next(w, cpu);
        }
        None
    }

    fn tick(&mut self, w: &mut World, cpu: Cpu) {
        if let Some(t) = w.cpu(cpu).curr
            && !w.thread(t).class.runs_on()
        {
            self.task(t).slice -= 1;
            self.task(t).step -= 1;
            let (slice, step) = {
                let task = &self.threads[t as usize];
                (task.slice, task.step)
            };
            if slice <= 0 {
                w.take_run(cpu);
                self.task(t).ran = 0;
                self.restart(w, t, -1);
            } else if step <= 0 {
                let interval = self.interval;
                self.task(t).step = interval;
            }
            if slice <= 0 || step <= 0 {
                self.renew(w, t);
                w.resched(cpu, RescheduleReason::SliceEnd);
            }
        }
        self.balancer.tick(w, &mut self.q, cpu);
        // What was put off, and what the balancer brought.
        if let (Some(t), Some(r)) = (self.q.front(cpu), w.cpu(cpu).curr)
            && self.q.level(t) < self.threads[r as usize].prio
            && self.preempts(w, cpu, t)
        {
            w.resched(cpu, RescheduleReason::Preempted);
        }
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        let best = best_burst(w, t);
        let full = self.full(w, t);
        let task = self.task(t);
        task.burst = task.burst.min(best);
        task.slice = task.slice.clamp(1, full);
        self.renew(w, t);
        let cpu = w.thread(t).cpu;
        match w.thread(t).state {
            State::Queued => {
                self.q.remove(t);
                let prio = self.threads[t as usize].prio;
                self.q.push(cpu, t, prio, false, false);
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
