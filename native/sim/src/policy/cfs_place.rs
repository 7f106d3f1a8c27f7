//! CFS's arithmetic of slices, and of where a thread joins a queue.
//!
//! Nothing here knows of the simulated world: `crate::virtual_lag` follows
//! recorded threads by the same rules.
use super::linux_fair::{log2_factor, virtual_ns};
use super::tunables::Settings;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Placing {
    pub latency: i64,
    pub min_granularity: i64,
    pub nr_latency: i64,
    /// No slice is shorter than `min_granularity`.
    pub least_slice: bool,
    /// A sleeper comes back with credit, of half the latency if `gentle`.
    sleepers: bool,
    gentle: bool,
    /// A new thread begins a slice behind.
    start_debit: bool,
    pub child_first: bool,
}

impl Placing {
    /// From the tunables of the `cfs` family.
    pub(crate) fn new(s: &Settings, ncpu: usize) -> Self {
        let f = if s.is_on("scaling") {
            log2_factor(ncpu, 8)
        } else {
            1
        };
        Self {
            latency: s.ns("sched_latency") * f,
            min_granularity: s.ns("sched_min_granularity") * f,
            nr_latency: s.int("sched_nr_latency"),
            least_slice: s.is_on("least_slice"),
            sleepers: s.is_on("fair_sleepers"),
            gentle: s.is_on("gentle_fair_sleepers"),
            start_debit: s.is_on("start_debit"),
            child_first: s.is_on("child_runs_first"),
        }
    }

    /// The slice of a thread among `nr`, itself included, who weigh `load`.
    pub(crate) fn slice(&self, nr: i64, load: i64, weight: i64) -> i64 {
        self.long_enough(self.part(nr, load, weight))
    }

    /// The same before it is made long enough.
    pub(crate) fn part(&self, nr: i64, load: i64, weight: i64) -> i64 {
        let period = if nr > self.nr_latency {
            nr * self.min_granularity
        } else {
            self.latency
        };
        period * weight / load.max(1)
    }

    pub(crate) fn long_enough(&self, slice: i64) -> i64 {
        let least = if self.least_slice {
            self.min_granularity
        } else {
            0
        };
        slice.max(least)
    }

    /// Where a thread joins that kept `kept` over its sleep; `min` is the queue's.
    pub(crate) fn woken(&self, kept: i64, min: i64) -> i64 {
        let credit = match (self.sleepers, self.gentle) {
            (false, _) => 0,
            (true, true) => self.latency / 2,
            (true, false) => self.latency,
        };
        kept.max(min - credit)
    }

    /// Where a thread begins that has `kept` from its parent, if it has one; the
    /// queue has `nr` others who weigh `load`.
    pub(crate) fn born(
        &self,
        kept: i64,
        min: i64,
        forked: bool,
        (nr, load): (i64, i64),
        weight: i64,
    ) -> i64 {
        self.after(
            kept,
            min,
            forked,
            self.slice(nr + 1, load + weight, weight),
            weight,
        )
    }

    /// The same of a thread whose slice will be `slice`.
    pub(crate) fn after(&self, kept: i64, min: i64, forked: bool, slice: i64, weight: i64) -> i64 {
        let debit = if forked && self.start_debit {
            virtual_ns(slice, weight)
        } else {
            0
        };
        kept.max(min + debit)
    }
}
