//! Which sleeps are a periodic timer's, and which last for a time.
//!
//! A thread that sleeps until instants that it has fixed before (`clock_nanosleep`
//! with `TIMER_ABSTIME`, a timerfd, a device at a steady rate) wakes at a steady
//! distance however long it ran or waited; one that sleeps for a time wakes later
//! by as much as it was late. The trace shows which: of the first the distances
//! between wakes are steadier than the sleeps, of the second it is the other way
//! round. If both are as steady the thread took the same time in each period, and
//! nothing tells: it stays with sleeps of the length seen.
//!
//! Timers of the kernel's own count clock ticks, and a thread that sleeps on one wakes
//! at a tick, when a thread's slice may end, too: one that is said to sleep so long
//! that it wakes between two takes the CPU from somebody in the middle of a slice.
use super::super::load::op;
use super::{Extractor, ThreadOut, median};

/// A sleep that something outside ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutsideSleep {
    /// Its step.
    pub step: u32,
    pub since: i64,
    pub woken: i64,
}

/// Fewer sleeps tell nothing.
const ENOUGH: usize = 8;

/// So many at ticks tell of a timer that counts them: a few thousandths by chance.
const ENOUGH_AT_TICKS: usize = 3;

/// What a tick wakes is woken within this time of it, ns (`LATE` of `tick_phase.py`).
const LATE: i64 = 50_000;

/// A wake belongs to the timer if it is off by at most this fraction of the period
/// (1 in so many).
const CLOSE: i64 = 20;

/// The distances must be steadier than the sleeps by this factor.
const STEADIER: i64 = 2;

impl Extractor {
    /// Sleeps of periodic timers become waits until the instants of the trace, those of timers
    /// that count ticks last for as many.
    pub(super) fn find_timers(&mut self) {
        for th in &mut self.threads {
            let timed = periodic(&th.outside);
            self.report.periodic_threads += u64::from(!timed.is_empty());
            self.report.periodic_waits += timed.len() as u64;
            if timed.is_empty()
                && let Some((hz, phase)) = self.rules.clock
            {
                let ticked = ticked(&th.outside, hz, self.begin + phase);
                self.report.ticking_threads += u64::from(!ticked.is_empty());
                self.report.ticking_sleeps += ticked.len() as u64;
                for (sleep, ns) in ticked {
                    becomes(th, sleep, op::SLEEP_TICKS, ns);
                }
            }
            for sleep in timed {
                becomes(th, sleep, op::WAIT_UNTIL, sleep.woken - self.begin);
            }
            th.outside = Vec::new();
        }
    }
}

fn becomes(th: &mut ThreadOut, sleep: OutsideSleep, op: u8, ns: i64) {
    if let Some(step) = th.steps.get_mut(sleep.step as usize)
        && step.op == op::SLEEP
    {
        (step.op, step.ns, step.disk) = (op, ns, false);
    }
}

/// The sleeps that ended at ticks and how long they were in whole periods, if most did; ticks come
/// `hz` times a second, one of them at `phase` or a moment before.
fn ticked(sleeps: &[OutsideSleep], hz: i64, phase: i64) -> Vec<(OutsideSleep, i64)> {
    let period = 1_000_000_000 / hz.max(1);
    let begin = phase - LATE;
    let at_ticks: Vec<(OutsideSleep, i64)> = sleeps
        .iter()
        .filter(|s| (s.woken - begin).rem_euclid(period) <= 2 * LATE)
        .map(|s| {
            let ticks = (s.woken - begin).div_euclid(period) - (s.since - begin).div_euclid(period);
            (*s, ticks * period)
        })
        .collect();
    if at_ticks.len() < ENOUGH_AT_TICKS || at_ticks.len() * 4 < sleeps.len() * 3 {
        return Vec::new();
    }
    at_ticks.into_iter().filter(|(_, ns)| *ns > 0).collect()
}

/// The sleeps that a periodic timer ended.
fn periodic(sleeps: &[OutsideSleep]) -> Vec<OutsideSleep> {
    if sleeps.len() < ENOUGH {
        return Vec::new();
    }
    let distances: Vec<i64> = sleeps.windows(2).map(|w| w[1].woken - w[0].woken).collect();
    let period = median(&distances).unwrap_or(0).max(1);
    // Of a distance: how many periods it is, and how far off.
    let off = |d: i64| {
        let n = (d + period / 2) / period;
        (n, (d - n * period).abs())
    };
    let close = |d: i64| off(d).0 >= 1 && off(d).1 * CLOSE <= period;
    let one = distances.iter().filter(|d| close(**d) && off(**d).0 == 1);
    let all = distances.iter().filter(|d| close(**d));
    if one.count() * 4 < distances.len() * 3 || all.count() * 10 < distances.len() * 9 {
        return Vec::new();
    }
    // Of those that fit: how far off the distances are, and how far apart the lengths.
    let fitting = || {
        distances
            .iter()
            .zip(&sleeps[1..])
            .filter(|(d, _)| close(**d))
    };
    let lengths: Vec<i64> = fitting().map(|(_, s)| s.woken - s.since).collect();
    let usual = median(&lengths).unwrap_or(0);
    let of_distances: i64 = fitting().map(|(d, _)| off(*d).1).sum();
    let of_lengths: i64 = lengths.iter().map(|length| (length - usual).abs()).sum();
    if of_distances * STEADIER >= of_lengths {
        return Vec::new();
    }
    fitting().map(|(_, s)| *s).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that runs for `runs` and then sleeps, until the next full period or for 10 ms.
    fn sleeps(runs: &[i64], absolute: bool) -> Vec<OutsideSleep> {
        let (mut now, mut due) = (0, 0);
        runs.iter()
            .enumerate()
            .map(|(i, run)| {
                let since = now + run;
                due += 10_000;
                now = if absolute { due } else { since + 10_000 };
                let step = i as u32;
                OutsideSleep {
                    step,
                    since,
                    woken: now,
                }
            })
            .collect()
    }

    const RUNS: [i64; 10] = [100, 900, 300, 700, 200, 4_000, 150, 650, 350, 500];

    #[test]
    fn wakes_at_a_steady_distance_are_a_timers() {
        assert_eq!(periodic(&sleeps(&RUNS, true)).len(), RUNS.len() - 1);
    }

    #[test]
    fn sleeps_of_a_steady_length_are_not() {
        assert!(periodic(&sleeps(&RUNS, false)).is_empty());
    }

    #[test]
    fn with_runs_of_one_length_nothing_tells() {
        assert!(periodic(&sleeps(&[500; 10], true)).is_empty());
        assert!(periodic(&sleeps(&[500; 10], false)).is_empty());
    }

    #[test]
    fn a_few_sleeps_tell_nothing() {
        assert!(periodic(&sleeps(&RUNS[..7], true)).is_empty());
    }
}
