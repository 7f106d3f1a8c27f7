//! Quotas of control groups: CFS bandwidth control, kernel/sched/fair.c, 3.2 to 6.18.
//!
//! A group has a pool of CPU time, which a timer fills up to its quota at the end of every period.
//! A CPU that runs the group's threads takes a slice of it (assign_cfs_rq_runtime,
//! sched_cfs_bandwidth_slice_us) and uses that up (account_cfs_rq_runtime), as far as it is
//! charged: at clock ticks, wakeups and switches, so that it may run into debt. Where nothing is
//! left its queue is held back (throttle_cfs_rq) until the timer pays its debt and a nanosecond
//! more (distribute_cfs_runtime), in the order in which queues were held back. A queue that becomes
//! empty keeps 1 ms and gives the rest back (return_cfs_rq_runtime); 5 ms later others get it, if
//! the period does not end before (do_sched_cfs_slack_timer). With no queue held back and nothing
//! taken for a period the timer stops.
//!
//! Left out: bursts (cpu.max.burst, 5.14), that a CPU about to take a tick may get a
//! slice that another gave back between two instructions, the jitter of timers.
use std::collections::VecDeque;

use super::super::workload::GroupSpec;
use super::super::world::World;
use super::Tunable;
use super::tunables::{SPAN_OR_ZERO, time};

pub(super) const SLICE: Tunable = time(
    "bandwidth_slice",
    "5ms",
    SPAN_OR_ZERO,
    "what a CPU takes of a group's quota at a time; 0 = quotas are not enforced",
);

/// min_cfs_rq_runtime.
const KEPT: i64 = 1_000_000;
/// cfs_bandwidth_slack_period.
const SLACK: i64 = 5_000_000;
/// min_bandwidth_expiration.
const TOO_LATE: i64 = 2_000_000;

/// The place of a group's queue among all of groups' queues.
pub(super) type Place = usize;

struct Pool {
    quota: i64,
    period: i64,
    phase: i64,
    left: i64,
    /// When the period timer fires, if it runs.
    refill: Option<i64>,
    /// Nothing was taken since the last refill.
    idle: bool,
    slack_started: bool,
    held: VecDeque<Place>,
}

#[derive(Clone, Copy, Default)]
struct Local {
    left: i64,
    held: bool,
}

#[derive(Default)]
pub(super) struct Bandwidth {
    slice: i64,
    ncpu: usize,
    pools: Vec<Option<Pool>>,
    locals: Vec<Local>,
}

impl Bandwidth {
    /// Of the workload's groups; quotas are not enforced with a `slice` of 0.
    pub(super) fn new(w: &World, slice: i64) -> Self {
        let pool = |spec: &GroupSpec| {
            let quota = spec.quota.filter(|_| slice > 0)?;
            Some(Pool {
                quota: quota.ns,
                period: quota.period,
                phase: quota.phase,
                left: quota.ns,
                refill: None,
                idle: false,
                slack_started: false,
                held: VecDeque::new(),
            })
        };
        Self {
            slice,
            ncpu: w.ncpu(),
            pools: w.groups().iter().map(pool).collect(),
            locals: vec![Local::default(); w.groups().len() * w.ncpu()],
        }
    }

    pub(super) fn is_limited(&self, at: Place) -> bool {
        self.pools[at / self.ncpu].is_some()
    }

    pub(super) fn is_held(&self, at: Place) -> bool {
        self.locals[at].held
    }

    /// `at` ran for `ns`; whether it has used up all there is.
    pub(super) fn spend(&mut self, w: &mut World, at: Place, ns: i64) -> bool {
        if !self.is_limited(at) {
            return false;
        }
        self.locals[at].left -= ns;
        if self.locals[at].left > 0 || self.locals[at].held {
            return false;
        }
        !self.take(w, at, self.slice)
    }

    /// Hold `at` back if there is still nothing left for it; whether it is.
    pub(super) fn hold(&mut self, w: &mut World, at: Place) -> bool {
        if !self.is_limited(at) || self.locals[at].held || self.locals[at].left > 0 {
            return false;
        }
        if self.take(w, at, 1) {
            return false;
        }
        self.locals[at].held = true;
        if let Some(pool) = &mut self.pools[at / self.ncpu] {
            pool.held.push_back(at);
        }
        true
    }

    /// Fill `at` up to `target` from its pool; whether it has some time then.
    fn take(&mut self, w: &mut World, at: Place, target: i64) -> bool {
        let group = at / self.ncpu;
        self.start(w, group);
        let local = &mut self.locals[at];
        let Some(pool) = &mut self.pools[group] else {
            return true;
        };
        if pool.left > 0 {
            let amount = pool.left.min(target - local.left);
            pool.left -= amount;
            local.left += amount;
            pool.idle = false;
        }
        local.left > 0
    }

    /// Start the period timer of `group`, if it does not run.
    fn start(&mut self, w: &mut World, group: usize) {
        let Some(pool) = &mut self.pools[group] else {
            return;
        };
        if pool.refill.is_none() {
            let into = (w.now() - pool.phase).rem_euclid(pool.period);
            let at = w.now() + pool.period - into;
            pool.refill = Some(at);
            w.arm_timer(self.timer_of(group), at);
        }
    }

    /// `at` has become empty.
    pub(super) fn give_back(&mut self, w: &mut World, at: Place) {
        let group = at / self.ncpu;
        let slice = self.slice;
        let Some(pool) = &mut self.pools[group] else {
            return;
        };
        let spare = self.locals[at].left - KEPT;
        if spare <= 0 {
            return;
        }
        self.locals[at].left -= spare;
        pool.left += spare;
        let soon = pool.refill.is_some_and(|r| r - w.now() < SLACK + TOO_LATE);
        if pool.left > slice && !pool.held.is_empty() && !pool.slack_started && !soon {
            pool.slack_started = true;
            let at = w.now() + SLACK;
            w.arm_timer(self.timer_of(group) + 1, at);
        }
    }

    /// Timers that are not of quotas have numbers below that of CPUs.
    fn timer_of(&self, group: usize) -> u32 {
        (self.ncpu + 2 * group) as u32
    }

    /// A timer fired; which queues run again, in order.
    pub(super) fn timer(&mut self, w: &mut World, id: u32) -> Vec<Place> {
        let of_groups = id as usize - self.ncpu;
        let (group, is_slack) = (of_groups / 2, of_groups % 2 == 1);
        let next = self.timer_of(group);
        let slice = self.slice;
        let Some(pool) = &mut self.pools[group] else {
            return Vec::new();
        };
        if is_slack {
            pool.slack_started = false;
            let soon = pool.refill.is_some_and(|r| r - w.now() < TOO_LATE);
            if soon || pool.left <= slice {
                return Vec::new();
            }
            return self.distribute(group);
        }
        pool.left = (pool.left + pool.quota).min(pool.quota);
        if pool.held.is_empty() && pool.idle {
            pool.refill = None;
            return Vec::new();
        }
        let at = w.now() + pool.period;
        pool.refill = Some(at);
        pool.idle = pool.held.is_empty();
        w.arm_timer(next, at);
        self.distribute(group)
    }

    fn distribute(&mut self, group: usize) -> Vec<Place> {
        let Some(pool) = &mut self.pools[group] else {
            return Vec::new();
        };
        let mut free = Vec::new();
        let locals = &mut self.locals;
        pool.held.retain(|at| {
            let local = &mut locals[*at];
            let amount = (1 - local.left).min(pool.left).max(0);
            pool.left -= amount;
            local.left += amount;
            local.held = local.left <= 0;
            if !local.held {
                free.push(*at);
            }
            local.held
        });
        free
    }
}
