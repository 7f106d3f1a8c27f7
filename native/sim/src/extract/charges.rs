//! What wakes and sleeps cost, so that a replay does without what it does not need.
//!
//! The running times of a trace contain the kernel's work of raising a wake, and of going to sleep
//! and coming back. Under another policy, or only a little later, the reader of a signal may not be
//! waiting: then there is no wake and no sleep, and a late thread catches up. Without that, a
//! reader once behind its writer would stay behind forever, and the replay of a pipe would have a
//! fraction of the sleeps.
use super::super::load::op;
use super::{Extractor, Now};
use crate::model::tables::Wakeup;

/// In place of the cost of a wake or sleep that did not happen in the trace: if it
/// does in a replay it costs what it usually does.
pub(super) const UNPAID: i64 = -1;

/// What the trace shows of such costs.
#[derive(Debug, Clone, Default)]
pub(super) struct Charges {
    /// Lengths of wakes, ns.
    wakes: Vec<u32>,
    /// Times from coming onto a CPU after a sleep to sleeping again, ns.
    bursts: Vec<u32>,
}

impl Charges {
    pub(super) fn note_burst(&mut self, ns: i64) {
        if let Ok(ns) = u32::try_from(ns) {
            self.bursts.push(ns);
        }
    }

    /// What a sleep costs the sleeper: twice what a wake costs the waker, since it
    /// goes through the scheduler twice, but no more than the shortest bursts (the
    /// hundredth part) took in all.
    fn sleep(&mut self) -> i64 {
        let wake = quantile(&mut self.wakes, 50);
        let burst = quantile(&mut self.bursts, 1);
        (2 * wake).min(burst)
    }
}

/// The value below which `percent` of all lie; 0 if there are none.
fn quantile(values: &mut [u32], percent: usize) -> i64 {
    if values.is_empty() {
        return 0;
    }
    let at = values.len() * percent / 100;
    i64::from(*values.select_nth_unstable(at).1)
}

impl Extractor {
    /// A wake has queued its thread: the waker's time since it began was its cost.
    pub(super) fn raised(&mut self, row: &Wakeup) {
        let Some(&waker) = self.current.get(row.cpu as usize) else {
            return;
        };
        if !self.counts(waker) || row.waker_utid != Some(waker) {
            return;
        }
        let (w, wakee) = (self.thread(waker), self.thread(row.utid));
        let th = &mut self.threads[w as usize];
        if let Some(cycle) = &mut th.cycle {
            cycle.far |= row.target_cpu != Some(row.cpu);
        }
        let Some((to, since, step)) = th.raising.take() else {
            return;
        };
        // Its time is counted from the signal on, unless it has signalled again.
        if to != wakee || th.now != (Now::Running { since }) {
            return;
        }
        let Ok(cost) = u32::try_from(row.ts - since) else {
            return;
        };
        if let Some(made) = th.steps.get_mut(step as usize) {
            made.ns = i64::from(cost);
            th.now = Now::Running { since: row.ts };
            th.used += i64::from(cost);
            self.report.wake_time += i64::from(cost);
            self.report.cpu_time += i64::from(cost);
            self.charges.wakes.push(cost);
        }
    }

    /// Moves the cost of sleeping out of the burst before a wait into the wait.
    pub(super) fn charge_sleeps(&mut self) {
        let measured = self.charge_calls();
        // Coming back is charged as a switch, if that is known.
        let cost = (self.charges.sleep() - self.report.switch_cost).max(0);
        self.report.sleep_cost = cost;
        let wake = quantile(&mut self.charges.wakes, 50);
        for th in &mut self.threads {
            for step in th.steps.iter_mut().filter(|s| s.ns == UNPAID) {
                let wakes = matches!(step.op, op::PUT | op::UNLOCK | op::POST);
                step.ns = if wakes { wake } else { cost };
            }
            if cost == 0 {
                continue;
            }
            for i in 1..th.steps.len() {
                let (before, rest) = th.steps.split_at_mut(i);
                let (burst, wait) = (&mut before[i - 1], &mut rest[0]);
                let waits = matches!(wait.op, op::WAIT_FOR | op::SERVE)
                    || (wait.op == op::TAKE && !measured);
                if waits && burst.op == op::RUN {
                    let moved = (cost - wait.ns).clamp(0, burst.ns);
                    burst.ns -= moved;
                    wait.ns += moved;
                    self.report.sleep_time += moved;
                }
            }
        }
    }
}
