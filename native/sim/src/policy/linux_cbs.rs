//! A constant bandwidth server of kernel/sched/deadline.c: what a thread of SCHED_DEADLINE, or the
//! deadline server of fair threads, has left, and until when.
use super::super::workload::Reservation;

#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    pub(super) runtime: i64,
    pub(super) deadline: i64,
}

impl Default for Budget {
    /// Its last period is over.
    fn default() -> Self {
        Self {
            runtime: 0,
            deadline: i64::MIN / 2,
        }
    }
}

impl Budget {
    /// More of the runtime is left than its part of the time to the deadline (dl_entity_overflow).
    pub(super) fn overflows(&self, given: &Reservation, now: i64) -> bool {
        i128::from(self.deadline - now) * i128::from(given.runtime)
            < i128::from(given.deadline) * i128::from(self.runtime)
    }

    /// From when on all that is left of the period is needed for the runtime.
    pub(super) fn zero_laxity(&self) -> i64 {
        self.deadline - self.runtime
    }

    /// Cut to that part (update_dl_revised_wakeup).
    pub(super) fn revise(&mut self, given: &Reservation, now: i64) {
        let part = i128::from(self.deadline - now) * i128::from(given.runtime);
        self.runtime = (part / i128::from(given.deadline)) as i64;
    }

    /// A period begins now.
    pub(super) fn renew(&mut self, given: &Reservation, now: i64) {
        (self.deadline, self.runtime) = (now + given.deadline, given.runtime);
    }

    /// The next period, or as many as what was run beyond the runtime takes (replenish_dl_entity).
    pub(super) fn replenish(&mut self, given: &Reservation, now: i64) {
        while self.runtime <= 0 {
            self.deadline += given.period;
            self.runtime += given.runtime;
        }
        if self.deadline < now {
            self.renew(given, now);
        }
    }
}
