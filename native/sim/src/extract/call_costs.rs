//! What a wake, a sleep and a switch cost threads that send messages, by their calls.
//!
//! A thread that reads or writes messages takes the same time from the beginning of one call to
//! that of the next, but for what the scheduler adds: raising a wake, losing the CPU to the thread
//! that was woken, going to sleep and coming back. How much longer such calls take than those of
//! the same thread with nothing of this is what it costs. In a replay that matters more than the
//! sum: where each wake makes a writer slower than its reader, the reader has a positive lag, and
//! takes the CPU at each message.
use super::super::load::op;
use super::charges::UNPAID;
use super::{Extractor, Made, ThreadOut};

/// The number of calls of a kind that establishes the usual duration.
const ENOUGH: usize = 20;

/// A thread's calls are not used if the middle half of them is further apart than this part (1 in
/// so many) of the median: what it computes between them varies too much.
const STEADY: i64 = 4;

/// From the beginning of one call to that of the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cycle {
    /// The thread's CPU time at the beginning.
    used: i64,
    writes: bool,
    /// Readers woken through the pipe, own sleeps in it, and other wakes and sleeps.
    pub wakes: u32,
    pub sleeps: u32,
    pub others: u32,
    /// How often it was switched in.
    pub comes: u32,
    /// A thread that it woke went to another CPU: that takes longer, by what depends on
    /// whether the CPU sleeps.
    pub far: bool,
}

#[derive(Debug, Clone, Copy)]
struct Took {
    thread: u32,
    writes: bool,
    ns: i64,
}

/// What calls took, by what happened in them.
#[derive(Debug, Clone, Default)]
pub(super) struct CallCosts {
    plain: Vec<Took>,
    woke: Vec<Took>,
    woke_far: Vec<Took>,
    woke_and_lost: Vec<Took>,
    slept: Vec<Took>,
}

/// What the scheduler adds to calls, ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Added {
    pub wake: i64,
    pub sleep: i64,
    /// For each time that the thread comes onto a CPU.
    pub switch: i64,
}

impl CallCosts {
    fn note(&mut self, thread: u32, cycle: Cycle, used: i64) {
        let kind = match (cycle.wakes, cycle.sleeps, cycle.others, cycle.comes) {
            (0, 0, 0, 0) => &mut self.plain,
            (1, 0, 0, 0) if cycle.far => &mut self.woke_far,
            (1, 0, 0, 0) => &mut self.woke,
            (1, 0, 0, 1) if !cycle.far => &mut self.woke_and_lost,
            (0, 1, 0, 1) => &mut self.slept,
            _ => return,
        };
        kind.push(Took {
            thread,
            writes: cycle.writes,
            ns: used - cycle.used,
        });
    }

    /// None if there are too few calls.
    fn added(&self, threads: usize) -> Option<Added> {
        let mut usual: Vec<[Vec<i64>; 2]> = vec![Default::default(); threads];
        for took in &self.plain {
            usual[took.thread as usize][usize::from(took.writes)].push(took.ns);
        }
        let usual: Vec<[Option<i64>; 2]> = usual
            .iter_mut()
            .map(|both| both.each_mut().map(|all| steady(all)))
            .collect();
        let longer = |kind: &[Took]| -> Option<i64> {
            let more = kind.iter().filter_map(|t| {
                let usual = usual[t.thread as usize][usize::from(t.writes)]?;
                Some((t.ns - usual).max(0))
            });
            least_usual(more.collect())
        };
        let near = longer(&self.woke);
        let lost = longer(&self.woke_and_lost);
        let sleep = longer(&self.slept);
        let switch = match (near, lost) {
            (Some(w), Some(l)) => (l - w).max(0),
            _ => 0,
        };
        let switch = sleep.map_or(switch, |s| switch.min(s));
        let far = longer(&self.woke_far);
        Some(Added {
            wake: near.or_else(|| Some(lost? - switch)).or(far)?,
            sleep: sleep? - switch,
            switch,
        })
    }
}

/// The median, if half of the values are close to it.
fn steady(values: &mut [i64]) -> Option<i64> {
    if values.len() < ENOUGH {
        return None;
    }
    values.sort_unstable();
    let at = |quarter: usize| values[values.len() * quarter / 4];
    ((at(3) - at(1)) * STEADY <= at(2)).then(|| at(2))
}

/// The lower quartile: interrupts, and caches that others have used, only add to the cost.
fn least_usual(mut values: Vec<i64>) -> Option<i64> {
    let quarter = values.len() / 4;
    (values.len() >= ENOUGH).then(|| *values.select_nth_unstable(quarter).1)
}

impl Extractor {
    /// Thread `t`, which runs, begins a call, with `used` of CPU time used so far.
    pub(super) fn begins_call(&mut self, t: u32, writes: bool, used: i64) {
        let th = &mut self.threads[t as usize];
        let next = Cycle {
            used,
            writes,
            wakes: 0,
            sleeps: 0,
            others: 0,
            comes: 0,
            far: false,
        };
        if let Some(last) = th.cycle.replace(next) {
            self.call_costs.note(t, last, used);
        }
    }

    /// Moves what wakes and sleeps of calls cost out of the running times around them, and takes
    /// what switches cost out of all running times: the replay charges it again. False if there are
    /// too few calls.
    pub(super) fn charge_calls(&mut self) -> bool {
        let Some(added) = self.call_costs.added(self.threads.len()) else {
            return false;
        };
        self.report.switch_cost = added.switch;
        let mut taken = 0;
        for th in &mut self.threads {
            for step in th.steps.iter_mut().filter(|s| s.op == op::RUN) {
                let less = (step.count as i64 * added.switch).min(step.ns);
                step.ns -= less;
                taken += less;
            }
            let moved = charge(th, added);
            self.report.wake_time += moved.0;
            self.report.sleep_time += moved.1;
        }
        self.report.cpu_time -= taken;
        self.report.switch_time = taken;
        true
    }
}

/// Answers what was moved into wakes, and into sleeps.
fn charge(th: &mut ThreadOut, added: Added) -> (i64, i64) {
    let mut moved = (0, 0);
    for i in 0..th.steps.len() {
        let Made { op: what, ns, .. } = th.steps[i];
        let (cost, sum) = match what {
            op::PUT => (added.wake, &mut moved.0),
            op::TAKE => (added.sleep, &mut moved.1),
            _ => continue,
        };
        if ns == UNPAID {
            th.steps[i].ns = cost;
            continue;
        }
        let mut missing = (cost - ns).max(0);
        for near in [i + 1, i.wrapping_sub(1)] {
            if let Some(run) = th.steps.get_mut(near).filter(|s| s.op == op::RUN) {
                let part = missing.min(run.ns);
                run.ns -= part;
                missing -= part;
                *sum += part;
            }
        }
        th.steps[i].ns = cost - missing;
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(calls: &[(u32, u32, u32, bool, i64)]) -> Option<Added> {
        let mut costs = CallCosts::default();
        for (wakes, sleeps, comes, far, took) in calls {
            let cycle = Cycle {
                used: 100,
                writes: *wakes > 0 || *took % 2 == 0,
                wakes: *wakes,
                sleeps: *sleeps,
                others: 0,
                comes: *comes,
                far: *far,
            };
            costs.note(0, cycle, 100 + took);
        }
        costs.added(1)
    }

    /// A write takes 1000 ns, a read 801; a wake 2000 more, losing the CPU then 1500 more,
    /// a sleep 3000 more than a read. Wakes of another CPU do not count.
    fn calls() -> Vec<(u32, u32, u32, bool, i64)> {
        let kinds = [
            (0, 0, 0, false, 1000),
            (0, 0, 0, false, 801),
            (1, 0, 0, false, 3000),
            (1, 0, 0, true, 9000),
            (1, 0, 1, false, 4500),
            (0, 1, 1, false, 3801),
        ];
        kinds.iter().flat_map(|k| [*k; ENOUGH]).collect()
    }

    #[test]
    fn what_the_scheduler_adds_is_what_calls_take_longer() {
        let added = Added {
            wake: 2000,
            sleep: 1500,
            switch: 1500,
        };
        assert_eq!(noted(&calls()), Some(added));
    }

    #[test]
    fn a_few_long_calls_do_not_change_it() {
        let long = [(1, 0, 0, false, 50_000), (1, 0, 1, false, 50_000)];
        let more: Vec<_> = calls().into_iter().chain(long).collect();
        assert_eq!(noted(&more), noted(&calls()));
    }

    #[test]
    fn too_few_calls_or_unsteady_ones_tell_nothing() {
        assert_eq!(noted(&calls()[1..ENOUGH * 6]), None);
        let unsteady: Vec<_> = (0..)
            .zip(calls())
            .map(|(i, (w, s, c, f, took))| (w, s, c, f, took + 2 * (i % 7) * 200))
            .collect();
        assert_eq!(noted(&unsteady), None);
    }
}
