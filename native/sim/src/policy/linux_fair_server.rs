//! The deadline server of fair threads: kernel/sched/deadline.c, from 6.12 on.
//!
//! Each CPU keeps 50 ms of every second for its fair threads, however many real-time threads it
//! has. What they run anyway counts, and what the CPU idles: when 50 ms of that have come together
//! a new period begins (update_curr_dl_se). Only where they have not, that is at the moment from
//! which on they need all that is left of the period (zero laxity: deadline less runtime), does the
//! server run them above all real-time threads (dl_server_timer), until its runtime is used up.
//! That is seen at a tick; what they run between the tick and the switch finds it used up and
//! begins a new period at once, so that the next 50 ms come after 950 ms again.
//!
//! ```text
//!  off ---start---> waits ---zero laxity---> serves ---used up---> used up
//!   ^                ^  |used up by itself      |                     |
//!   |  idle, no one  +--+  <--- fair threads ran since ---------------+---period's end---> serves
//!   +---- no one is runnable -------------------+
//! ```
//!
//! Left out: that 6.12 turns the server off with the last fair thread and not later (6.17,
//! dl_server_timer), the admission of deadline threads beside it, the server of `sched_ext` (7.0).
use super::super::machine::Cpu;
use super::super::workload::Reservation;
use super::super::world::{RescheduleReason, World};
use super::linux_cbs::Budget;
use super::tunables::{SPAN, SPAN_OR_ZERO, time};
use super::{Settings, Tunable};

pub(super) const RUNTIME: Tunable = time(
    "fair_server_runtime",
    "50ms",
    SPAN_OR_ZERO,
    "what fair threads get of a CPU in each period, before real-time ones (6.12); 0 = nothing",
);
pub(super) const PERIOD: Tunable = time("fair_server_period", "1s", SPAN, "that period");

/// dl_server_min_res: the start is not put off by less.
const LEAST: i64 = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Off,
    /// Until zero laxity.
    Waits,
    Serves,
    /// Until the period's end.
    UsedUp,
}

#[derive(Debug, Clone, Copy, Default)]
struct Server {
    phase: Phase,
    budget: Budget,
    /// It served, and no period has started since (dl_defer_running).
    engaged: bool,
    /// A whole runtime of idling has passed (dl_defer_idle).
    idles: bool,
    idle_since: Option<i64>,
}

pub(super) struct FairServers {
    given: Reservation,
    servers: Vec<Server>,
    /// The number of the first one's timer.
    timer: u32,
}

impl FairServers {
    pub(super) fn new(s: &Settings, ncpu: usize) -> Self {
        let (runtime, period) = (s.ns(RUNTIME.name), s.ns(PERIOD.name));
        let given = Reservation {
            runtime: runtime.min(period),
            deadline: period,
            period,
        };
        Self {
            given,
            servers: vec![Server::default(); ncpu],
            timer: 0,
        }
    }

    /// The number of the first CPU's timer.
    pub(super) fn init(&mut self, timer: u32) {
        self.timer = timer;
    }

    fn exist(&self) -> bool {
        self.given.runtime > 0
    }

    /// The CPU whose timer `id` is.
    pub(super) fn cpu_of_timer(&self, id: u32) -> Option<Cpu> {
        let place = id.checked_sub(self.timer)?;
        (self.exist() && (place as usize) < self.servers.len()).then_some(place as Cpu)
    }

    /// Whether fair threads go before real-time ones on `c`.
    pub(super) fn serves(&self, c: Cpu) -> bool {
        self.servers[c as usize].phase == Phase::Serves
    }

    /// Whether its deadline is before that of the first deadline thread, if there is one.
    pub(super) fn goes_before(&self, c: Cpu, deadline: Option<i64>) -> bool {
        deadline.is_none_or(|d| self.servers[c as usize].budget.deadline <= d)
    }

    fn arm(&self, w: &mut World, c: Cpu, at: i64) {
        w.arm_timer(self.timer + u32::from(c), at);
    }

    fn begin_period(&mut self, w: &mut World, c: Cpu) {
        let s = &mut self.servers[c as usize];
        s.budget.renew(&self.given, w.now());
        s.engaged = false;
        s.phase = Phase::Waits;
        let at = s.budget.zero_laxity();
        self.arm(w, c, at);
    }

    /// A fair thread has become runnable on `c` (dl_server_start).
    #[inline]
    pub(super) fn start(&mut self, w: &mut World, c: Cpu) {
        if self.exist() {
            self.servers[c as usize].idles = false;
            if self.servers[c as usize].phase == Phase::Off {
                self.turn_on(w, c);
            }
        }
    }

    fn turn_on(&mut self, w: &mut World, c: Cpu) {
        let now = w.now();
        let mut s = self.servers[c as usize];
        let over = s.budget.deadline < now;
        if over || s.budget.overflows(&self.given, now) {
            if s.engaged && !over {
                s.budget.revise(&self.given, now);
            } else {
                s.budget.renew(&self.given, now);
            }
        }
        let at = s.budget.zero_laxity();
        let waits = !s.engaged && at >= now;
        s.phase = if waits { Phase::Waits } else { Phase::Serves };
        self.servers[c as usize] = s;
        if waits {
            self.arm(w, c, at);
        } else {
            w.resched(c, RescheduleReason::Preempted);
        }
    }

    /// No thread is there to be served (dl_server_stop).
    pub(super) fn stop(&mut self, w: &mut World, c: Cpu) {
        let s = &mut self.servers[c as usize];
        (s.phase, s.idles) = (Phase::Off, false);
        w.disarm_timer(self.timer + u32::from(c));
    }

    /// Fair threads of `c` ran for `ns`.
    #[inline]
    pub(super) fn ran(&mut self, w: &mut World, c: Cpu, ns: i64) {
        if self.servers[c as usize].phase != Phase::Off {
            self.servers[c as usize].idles = false;
            self.spend(w, c, ns, false);
        }
    }

    fn spend(&mut self, w: &mut World, c: Cpu, ns: i64, idle: bool) {
        let s = &mut self.servers[c as usize];
        s.budget.runtime -= ns;
        if s.budget.runtime > 0 {
            return;
        }
        if s.phase != Phase::Serves {
            if s.idles && idle {
                s.budget.runtime = 0;
                return;
            }
            s.idles = idle;
            self.begin_period(w, c);
            return;
        }
        s.phase = Phase::UsedUp;
        let at = s.budget.deadline;
        if at < w.now() {
            self.replenish(w, c);
        } else {
            self.arm(w, c, at);
        }
        w.resched(c, RescheduleReason::SliceEnd);
    }

    /// The fair thread on `c` leaves it: the instants in which it ran since the server was used
    /// up count.
    #[inline]
    pub(super) fn put_back(&mut self, w: &mut World, c: Cpu) {
        let s = &self.servers[c as usize];
        if s.phase == Phase::UsedUp && s.budget.runtime <= 0 {
            self.begin_period(w, c);
        }
    }

    /// `c` turns idle.
    #[inline]
    pub(super) fn turns_idle(&mut self, w: &World, c: Cpu) {
        self.servers[c as usize].idle_since.get_or_insert(w.now());
    }

    /// `c` runs something from now on.
    #[inline]
    pub(super) fn turns_busy(&mut self, w: &mut World, c: Cpu) {
        if let Some(since) = self.servers[c as usize].idle_since.take() {
            self.idled(w, c, w.now() - since);
        }
    }

    /// dl_server_update_idle
    fn idled(&mut self, w: &mut World, c: Cpu, ns: i64) {
        if self.servers[c as usize].phase != Phase::Off && ns > 0 {
            self.spend(w, c, ns, true);
        }
    }

    /// Runtime for another period, in which it serves.
    fn replenish(&mut self, w: &World, c: Cpu) {
        let s = &mut self.servers[c as usize];
        s.budget.replenish(&self.given, w.now());
        s.phase = Phase::Serves;
    }

    /// The timer of `c` fired; what ran there has been charged.
    pub(super) fn timer(&mut self, w: &mut World, c: Cpu) {
        let now = w.now();
        if let Some(since) = self.servers[c as usize].idle_since {
            self.servers[c as usize].idle_since = Some(now);
            self.idled(w, c, now - since);
        }
        let s = self.servers[c as usize];
        if s.idles {
            self.stop(w, c);
            return;
        }
        match s.phase {
            Phase::Off | Phase::Serves => return,
            Phase::Waits => {
                let at = s.budget.zero_laxity();
                if now < at - LEAST {
                    self.arm(w, c, at);
                    return;
                }
                let s = &mut self.servers[c as usize];
                s.engaged = true;
                if s.budget.overflows(&self.given, now) {
                    s.budget.renew(&self.given, now);
                }
                self.replenish(w, c);
            }
            Phase::UsedUp => self.replenish(w, c),
        }
        if self.serves(c) {
            w.resched(c, RescheduleReason::Preempted);
        }
    }
}
