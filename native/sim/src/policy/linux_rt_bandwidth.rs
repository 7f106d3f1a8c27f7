//! What real-time threads may use of a CPU: kernel/sched/rt.c, 2.6.25 to 6.11.
//!
//! A CPU whose real-time threads have run for longer than `sched_rt_runtime_us` of a
//! `sched_rt_period_us` runs none of them (sched_rt_runtime_exceeded) until the timer of all CPUs,
//! which takes a runtime off what each has run, finds less than that left
//! (do_sched_rt_period_timer). What they run is counted at clock ticks and switches
//! (update_curr_rt), so that the end comes with a tick. Where nothing else is runnable the CPU
//! idles. With RT_RUNTIME_SHARE, which is off from 5.10 on, a CPU that reaches its runtime first
//! borrows what others have left (do_balance_runtime): then one real-time thread alone on a machine
//! of several CPUs is never stopped.
//!
//! From 6.12 on the deadline server is there instead (`linux_fair_server`), unless the kernel has
//! groups of real-time threads (CONFIG_RT_GROUP_SCHED), whose root group is held to the same.
//!
//! Left out: those groups below the root, boosted threads, that what was borrowed is given back
//! when a CPU goes offline. The timer starts with the first real-time thread (from 4.6 on;
//! before, it fired at whole periods since the start of the machine, of which a trace says
//! nothing).
use super::super::machine::Cpu;
use super::super::world::World;
use super::tunables::{SPAN, SPAN_OR_ZERO, switch, time};
use super::{Settings, Tunable};

pub(super) const RUNTIME: Tunable = time(
    "rt_runtime",
    "950ms",
    SPAN_OR_ZERO,
    "what real-time threads may run on a CPU in each period; 0, or a whole period = no limit",
);
pub(super) const PERIOD: Tunable = time("rt_period", "1s", SPAN, "the period of that limit");
pub(super) const SHARE: Tunable = switch(
    "rt_runtime_share",
    "off",
    "a CPU borrows of that time from others (up to 5.9)",
);

#[derive(Debug, Clone, Copy, Default)]
struct Local {
    /// What was run and not yet taken off.
    ran: i64,
    runtime: i64,
    held: bool,
}

/// None has a limit where `runtime` is 0.
pub(super) struct RtBandwidth {
    runtime: i64,
    period: i64,
    share: bool,
    cpus: Vec<Local>,
    /// The timer's number, and whether it runs.
    timer: u32,
    started: bool,
}

impl RtBandwidth {
    pub(super) fn new(s: &Settings, ncpu: usize) -> Self {
        let (runtime, period) = (s.ns(RUNTIME.name), s.ns(PERIOD.name));
        let runtime = if runtime < period { runtime } else { 0 };
        let local = Local {
            runtime,
            ..Local::default()
        };
        Self {
            runtime,
            period,
            share: s.is_on(SHARE.name),
            cpus: vec![local; ncpu],
            timer: 0,
            started: false,
        }
    }

    /// No limit.
    pub(super) fn none(ncpu: usize) -> Self {
        Self {
            runtime: 0,
            period: 0,
            share: false,
            cpus: vec![Local::default(); ncpu],
            timer: 0,
            started: false,
        }
    }

    /// The number that its timer gets.
    pub(super) fn init(&mut self, timer: u32) {
        self.timer = timer;
    }

    pub(super) fn is_limited(&self) -> bool {
        self.runtime > 0
    }

    /// Whether `c` may run no real-time thread now.
    pub(super) fn is_held(&self, c: Cpu) -> bool {
        self.cpus[c as usize].held
    }

    pub(super) fn is_timer(&self, id: u32) -> bool {
        self.is_limited() && id == self.timer
    }

    /// A real-time thread was queued: the timer fires at once, and again in each period
    /// (do_start_rt_bandwidth).
    pub(super) fn start(&mut self, w: &mut World) {
        if self.is_limited() && !self.started {
            self.started = true;
            for local in &mut self.cpus {
                local.ran -= local.ran.min(local.runtime);
            }
            w.arm_timer(self.timer, w.now() + self.period);
        }
    }

    /// A real-time thread ran on `c`; whether that was too much.
    pub(super) fn spend(&mut self, c: Cpu, ns: i64) -> bool {
        if !self.is_limited() {
            return false;
        }
        self.cpus[c as usize].ran += ns;
        self.borrow(c);
        let local = &mut self.cpus[c as usize];
        local.held |= local.ran > local.runtime;
        local.held
    }

    /// A thread of SCHED_DEADLINE ran on `c`, which counts, but does not end what real-time
    /// threads may use before one of them runs.
    pub(super) fn note(&mut self, c: Cpu, ns: i64) {
        self.cpus[c as usize].ran += ns;
    }

    fn borrow(&mut self, c: Cpu) {
        let local = self.cpus[c as usize];
        if !self.share || local.held || local.ran <= local.runtime {
            return;
        }
        let n = self.cpus.len() as i64;
        let mut runtime = local.runtime;
        for other in 0..self.cpus.len() {
            let lends = &mut self.cpus[other];
            if other == c as usize || lends.runtime <= lends.ran {
                continue;
            }
            let part = ((lends.runtime - lends.ran) / n).min(self.period - runtime);
            lends.runtime -= part;
            runtime += part;
        }
        self.cpus[c as usize].runtime = runtime;
    }

    /// The timer fired; which CPUs may run real-time threads again. `runnable`: whether a CPU has
    /// any.
    pub(super) fn timer(&mut self, w: &mut World, runnable: impl Fn(Cpu) -> bool) -> Vec<Cpu> {
        let mut free = Vec::new();
        let mut idle = true;
        for (c, local) in self.cpus.iter_mut().enumerate() {
            local.ran -= local.ran.min(local.runtime);
            if local.held && local.ran < local.runtime {
                local.held = false;
                free.push(c as Cpu);
            }
            idle &= local.ran == 0 && !local.held && !runnable(c as Cpu);
        }
        self.started = !idle;
        if self.started {
            w.arm_timer(self.timer, w.now() + self.period);
        }
        free
    }
}
