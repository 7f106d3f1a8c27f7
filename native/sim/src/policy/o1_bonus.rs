//! O(1)'s view of a thread's past: `sleep_avg`, and the bonus that it earns.
//!
//! Nothing here knows of the simulated world: `crate::interactivity` scores
//! recorded threads by the same rules.
use super::tunables::Settings;

pub(crate) const MAX_BONUS: i64 = 10;

#[derive(Debug, Clone)]
pub(crate) struct Sleeping {
    pub max_avg: i64,
    pub def_slice: i64,
    pub min_slice: i64,
    pub jiffy: i64,
    delta: i64,
    credit_limit: i64,
    queue_weight: i64,
    child_penalty: i64,
    exit_weight: i64,
}

/// What is remembered of one thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Past {
    pub sleep_avg: i64,
    credit: i64,
}

impl Sleeping {
    pub(crate) fn new(s: &Settings) -> Self {
        Self {
            max_avg: s.ns("max_sleep_avg"),
            def_slice: s.ns("def_timeslice"),
            min_slice: s.ns("min_timeslice"),
            jiffy: 1_000_000_000 / s.int("hz"),
            delta: s.int("interactive_delta"),
            credit_limit: s.int("credit_limit"),
            queue_weight: s.int("on_runqueue_weight"),
            child_penalty: s.int("child_penalty"),
            exit_weight: s.int("exit_weight"),
        }
    }

    pub(crate) fn bonus(&self, past: &Past) -> i64 {
        (past.sleep_avg * MAX_BONUS / self.max_avg).clamp(0, MAX_BONUS)
    }

    /// The dynamic priority of a thread of static priority `fixed`.
    pub(crate) fn priority(&self, past: &Past, fixed: i64) -> i64 {
        (fixed - (self.bonus(past) - MAX_BONUS / 2)).clamp(100, 139)
    }

    /// Whether a dynamic priority is an interactive thread's.
    pub(crate) fn is_interactive(&self, prio: i64, fixed: i64) -> bool {
        prio <= fixed - self.delta_of(fixed)
    }

    /// A whole slice, in ticks.
    pub(crate) fn full_slice(&self, fixed: i64) -> i64 {
        let base = if fixed < 120 {
            4 * self.def_slice
        } else {
            self.def_slice
        };
        let ns = (base * (140 - fixed) / 20).max(self.min_slice);
        (ns / self.jiffy).max(1)
    }

    /// Whether an interactive thread with `slice` ticks of `full` left is to let others of its
    /// priority run: the more often, the higher its bonus.
    pub(crate) fn is_turn(&self, past: &Past, full: i64, slice: i64, ncpu: i64) -> bool {
        let left = (MAX_BONUS - self.bonus(past)).max(1);
        let turn = (self.min_slice << (left - 1)) * ncpu / self.jiffy;
        (full - slice) % turn.max(1) == 0 && slice >= turn
    }

    /// The bonus that makes a thread interactive, less 5.
    fn delta_of(&self, fixed: i64) -> i64 {
        (fixed - 120) * MAX_BONUS / 40 + self.delta
    }

    /// Sleep longer than this makes a thread interactive at one blow.
    fn interactive_sleep(&self, fixed: i64) -> i64 {
        let steps = MAX_BONUS / 2 + self.delta_of(fixed) + 1;
        self.max_avg * steps / MAX_BONUS - self.jiffy
    }

    fn high(&self, past: &Past) -> bool {
        past.credit > self.credit_limit
    }

    fn low(&self, past: &Past) -> bool {
        past.credit < -self.credit_limit
    }

    /// It has slept (or waited for the CPU) for `slept`.
    pub(crate) fn credit_sleep(&self, past: &mut Past, fixed: i64, slept: i64, from_disk: bool) {
        let mut s = slept.min(self.max_avg);
        if s <= 0 {
            return;
        }
        let limit = self.interactive_sleep(fixed).clamp(0, self.max_avg);
        let high = self.high(past);
        if !from_disk && s > limit {
            past.sleep_avg = (self.max_avg - self.def_slice).max(0);
            past.credit += i64::from(!high);
            return;
        }
        s *= (MAX_BONUS - self.bonus(past)).max(1);
        if self.low(past) {
            s = s.min(self.full_slice(fixed) * self.jiffy);
        }
        if from_disk && !high {
            if past.sleep_avg >= limit {
                s = 0;
            } else if past.sleep_avg + s >= limit {
                past.sleep_avg = limit;
                s = 0;
            }
        }
        past.sleep_avg += s;
        if past.sleep_avg > self.max_avg {
            past.sleep_avg = self.max_avg;
            past.credit += i64::from(!high);
        }
    }

    /// It left its CPU after a run.
    pub(crate) fn charge_run(&self, past: &mut Past, run: i64) {
        let mut ran = run.min(self.max_avg);
        let (high, low) = (self.high(past), self.low(past));
        if high {
            ran /= self.bonus(past).max(1);
        }
        past.sleep_avg -= ran;
        if past.sleep_avg <= 0 {
            past.sleep_avg = 0;
            if !high && !low {
                past.credit -= 1;
            }
        }
    }

    /// The part of a wait for the CPU that counts as sleep after a wakeup by a thread.
    pub(crate) fn of_wait(&self, waited: i64) -> i64 {
        // The kernel's fixed-point form of the percentage.
        let part = self.queue_weight * 128 / 100;
        waited.min(1 << 50) * part / 128
    }

    /// What a child begins with.
    pub(crate) fn inherited(&self, parent: &Past) -> i64 {
        let part = self.bonus(parent) * self.child_penalty / 100;
        part * self.max_avg / MAX_BONUS
    }

    /// A child is gone.
    pub(crate) fn child_gone(&self, parent: &mut Past, child: &Past) {
        let k = self.exit_weight;
        if child.sleep_avg < parent.sleep_avg {
            parent.sleep_avg = (parent.sleep_avg * k + child.sleep_avg) / (k + 1);
        }
    }
}
