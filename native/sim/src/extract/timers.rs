//! Which sleeps are a periodic timer's, and which last for a time.
//!
//! A thread that sleeps until instants that it has fixed before (`clock_nanosleep` with
//! `TIMER_ABSTIME`, a timerfd, a device at a steady rate) wakes at a steady distance however long
//! it ran or waited; one that sleeps for a time wakes later by as much as it was late. The trace
//! shows which: of the first the distances between wakes are steadier than the sleeps, of the
//! second it is the other way round. If both are equally steady the thread took the same time in
//! each period, and the kind is unknown: it keeps sleeps of the recorded length.
//!
//! A thread that is its own clock fixes these instants by a look at the time, which it takes when
//! it gets a CPU for the first of its rounds. Under another policy it gets it at another moment,
//! and all its wakes move along. The trace shows this, too: the instants, taken back by whole
//! periods, are just behind the moment at which the thread came onto a CPU out of an earlier sleep.
//!
//! Instants that had passed when the thread came to them it did not sleep until: `missed`.
//!
//! Timers of the kernel's own count clock ticks, and a thread that sleeps on one wakes at a tick,
//! when a thread's slice may end, too: one that is replayed to wake between two ticks takes the CPU
//! from a thread in the middle of its slice. One that each tick wakes looks like one with a
//! periodic timer.
use super::super::load::op;
use super::missed::{Missed, Rounds, rounds, rounds_of_period};
use super::outside::{CLOSE, ENOUGH, LATE, OutsideSleep, STEADIER};
use super::{Extractor, Made, NOBODY, ThreadOut, median};

/// So many at ticks mean a timer that counts ticks: a few thousandths occur by chance.
const ENOUGH_AT_TICKS: usize = 3;

/// A thread that reads the clock as the first thing that it does is woken at the latest so long
/// after the same moment of a later period, ns: 50 us, by which Linux puts off timers of fair
/// threads (`timer_slack_ns`), and what it takes from the switch to the look and from the timer to
/// the wake. On the slowest of our machines, whose four CPUs share one, that is 190 us in all.
const READ_LATE: i64 = 200_000;

impl Extractor {
    /// Sleeps of periodic timers become waits until the instants of the trace, those of timers
    /// that count ticks last for as many.
    pub(super) fn find_timers(&mut self) {
        let missing = if self.rules.absolute {
            Vec::new()
        } else {
            self.missing_instants()
        };
        let mut missing = missing.into_iter();
        for th in &mut self.threads {
            let timer = missing.next().flatten();
            let mut timer = timer.unwrap_or_else(|| Timer::of_sleeps(&th.outside));
            let clock = self.rules.clock;
            let ticked = clock.map_or_else(Vec::new, |(hz, phase)| {
                ticked(&th.outside, hz, self.begin + phase)
            });
            if clock.is_some_and(|(hz, _)| !ticked.is_empty() && timer.is_tick(hz)) {
                timer = Timer::default();
            }
            if self.rules.absolute {
                timer.read = None;
            } else if let Some(read) = &timer.read {
                timer.timed.clone_from(&read.timed);
            }
            self.report.periodic_threads += u64::from(!timer.timed.is_empty());
            self.report.periodic_waits += timer.timed.len() as u64;
            self.report.instants_missed += timer.missed.len() as u64;
            if timer.timed.is_empty() {
                self.report.ticking_threads += u64::from(!ticked.is_empty());
                self.report.ticking_sleeps += ticked.len() as u64;
                for (sleep, ns) in ticked {
                    becomes(th, sleep.step, op::SLEEP_TICKS, ns);
                }
            }
            let begin = self.begin;
            for missed in timer.missed.iter().filter(|m| m.after.is_none()) {
                becomes(th, missed.step, op::WAIT_UNTIL, missed.instant - begin);
            }
            for sleep in timer.timed {
                becomes(th, sleep.step, op::WAIT_UNTIL, sleep.woken - begin);
            }
            // From the last to the first, so that steps keep their places.
            let read = timer.read.map(|read| {
                self.report.clocks_read += 1;
                let step = made(op::READ_CLOCK, read.came - begin);
                (read.after.step + 1, 0, step)
            });
            let missed = timer.missed.iter().filter_map(|m| {
                let step = made(op::WAIT_UNTIL, m.instant - begin);
                Some((m.step, m.after?, step))
            });
            let mut more: Vec<(u32, i64, Made)> = missed.chain(read).collect();
            more.sort_by_key(|(step, after, _)| (*step, *after));
            for (at, after, step) in more.into_iter().rev() {
                insert(th, at as usize, after, step);
            }
            th.outside = Vec::new();
            th.self_wakes = Vec::new();
        }
    }
}

impl Extractor {
    /// By thread the timer whose instants it missed now and then, if it did.
    fn missing_instants(&self) -> Vec<Option<Timer>> {
        let of = |th: &ThreadOut| rounds(&th.outside, &th.self_wakes);
        let own: Vec<Option<Rounds>> = self.threads.iter().map(of).collect();
        // What one thread has made is of one kind.
        let mut parents = vec![NOBODY; self.threads.len()];
        for (parent, th) in (0..).zip(&self.threads) {
            for fork in th.steps.iter().filter(|s| s.op == op::FORK) {
                parents[fork.thread as usize] = parent;
            }
        }
        let of_children = |parent: u32| {
            let its = parents.iter().zip(&own).filter(|(p, _)| **p == parent);
            let periods: Vec<i64> = its.filter_map(|(_, r)| Some(r.as_ref()?.period)).collect();
            median(&periods).filter(|_| parent != NOBODY)
        };
        let found = own.iter().zip(&parents).zip(&self.threads);
        found
            .map(|((own, parent), th)| match own {
                Some(rounds) => Some(Timer::of_rounds(th, rounds)),
                None if th.self_wakes.is_empty() => None,
                None => Timer::of_period(th, of_children(*parent)?),
            })
            .collect()
    }
}

/// What of a thread's sleeps a periodic timer of its own explains.
#[derive(Default)]
struct Timer {
    /// The sleeps that it ended.
    timed: Vec<OutsideSleep>,
    /// Its instants that had passed when the thread came to them.
    missed: Vec<Missed>,
    read: Option<ClockRead>,
}

impl Timer {
    fn of_sleeps(sleeps: &[OutsideSleep]) -> Self {
        let timed = periodic(sleeps);
        let read = usual_distance(&timed).and_then(|p| clock_read(sleeps, &timed, p));
        Self {
            timed,
            read,
            ..Self::default()
        }
    }

    /// The same of a thread that missed instants.
    fn of_rounds(th: &ThreadOut, rounds: &Rounds) -> Self {
        let timed = rounds.timed();
        let read = clock_read(&th.outside, &timed, rounds.period);
        Self {
            timed,
            missed: rounds.missed(read.as_ref().map(|r| r.came)),
            read,
        }
    }

    /// The same if the period is known, and the thread looked at the clock before: only its first
    /// sleeps may be others.
    fn of_period(th: &ThreadOut, period: i64) -> Option<Self> {
        (1..th.outside.len()).find_map(|first| {
            let rounds = rounds_of_period(&th.outside, &th.self_wakes, first, period)?;
            let mut timed = rounds.timed();
            if timed.is_empty() {
                timed.extend(rounds.first());
            }
            let read = clock_read(&th.outside, &timed, period)?;
            let missed = rounds.missed(Some(read.came));
            Some(Self {
                timed,
                missed,
                read: Some(read),
            })
        })
    }

    /// Whether its wakes are usually a clock tick apart: what wakes then is the tick itself, which
    /// comes at other instants in another replay.
    fn is_tick(&self, hz: i64) -> bool {
        let tick = 1_000_000_000 / hz.max(1);
        usual_distance(&self.timed).is_some_and(|d| (d + tick / 2) / tick == 1)
    }
}

fn usual_distance(sleeps: &[OutsideSleep]) -> Option<i64> {
    let distances: Vec<i64> = sleeps.windows(2).map(|w| w[1].woken - w[0].woken).collect();
    median(&distances)
}

fn made(op: u8, ns: i64) -> Made {
    Made {
        op,
        disk: false,
        meet: false,
        thread: NOBODY,
        ns,
        count: 0,
    }
}

/// `step` comes after `ns` of the step `at` if that is a run, else before it.
fn insert(th: &mut ThreadOut, at: usize, ns: i64, step: Made) {
    let at = at.min(th.steps.len());
    let Some(run) = th.steps.get_mut(at).filter(|s| s.op == op::RUN && ns > 0) else {
        th.steps.insert(at, step);
        return;
    };
    let rest = run.ns - ns;
    if rest <= 0 {
        th.steps.insert(at + 1, step);
        return;
    }
    run.ns = ns;
    let rest = made(op::RUN, rest);
    th.steps.splice(at + 1..at + 1, [step, rest]);
}

fn becomes(th: &mut ThreadOut, step: u32, op: u8, ns: i64) {
    if let Some(step) = th.steps.get_mut(step as usize)
        && step.op == op::SLEEP
    {
        (step.op, step.ns, step.disk) = (op, ns, false);
    }
}

/// Where a thread read the clock that its periodic timer counts from.
struct ClockRead {
    /// It came onto a CPU for it after this sleep.
    after: OutsideSleep,
    came: i64,
    /// The sleeps that its timer ended.
    timed: Vec<OutsideSleep>,
}

/// Of sleeps of which a timer of this period ended those that are `timed`.
fn clock_read(sleeps: &[OutsideSleep], timed: &[OutsideSleep], period: i64) -> Option<ClockRead> {
    let period = period.max(1);
    // How long after an instant of the timer that follows it by whole periods, or before (< 0).
    let first = *timed.first()?;
    let after = |at: i64| {
        let off = (at - first.woken).rem_euclid(period);
        if 2 * off > period { off - period } else { off }
    };
    let offs: Vec<i64> = timed.iter().map(|s| after(s.woken)).collect();
    let phase = median(&offs)?;
    let apart: Vec<i64> = offs.iter().map(|off| (off - phase).abs()).collect();
    let steady = STEADIER * median(&apart)?;
    let (at, came) = sleeps
        .iter()
        .take_while(|s| s.woken < first.woken)
        .enumerate()
        .find_map(|(i, s)| {
            let late = (first.woken + phase - s.came?).rem_euclid(period);
            (late > steady && late <= READ_LATE).then_some((i, s.came?))
        })?;
    let timed = sleeps[at + 1..].iter().copied();
    Some(ClockRead {
        after: sleeps[at],
        came,
        timed: timed
            .filter(|s| (after(s.woken) - phase).abs() * CLOSE <= period)
            .collect(),
    })
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
                    came: Some(now),
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

    /// A sleep of 3 ms that the thread comes out of 2 ms late, then those of a timer of 10 ms that
    /// counts from `look` ns after that.
    fn after_a_look_at_the_clock(look: i64) -> Vec<OutsideSleep> {
        let came = 5_000_000;
        let mut all = vec![OutsideSleep {
            step: 0,
            since: 0,
            woken: 3_000_000,
            came: Some(came),
        }];
        let at = |us: i64| came + look + 1000 * us;
        all.extend(sleeps(&RUNS, true).into_iter().map(|s| OutsideSleep {
            step: s.step + 1,
            since: at(s.since),
            woken: at(s.woken),
            came: s.came.map(at),
        }));
        all
    }

    #[test]
    fn instants_count_from_where_the_thread_came_onto_a_cpu_before() {
        // It came so late that the distance to the first timed wake is not the period.
        let all = after_a_look_at_the_clock(70_000);
        let timed = periodic(&all);
        assert_eq!(timed.len(), RUNS.len() - 1);
        let read = clock_read(&all, &timed, 10_000_000).unwrap();
        assert_eq!((read.after.step, read.came), (0, 5_000_000));
        assert_eq!(read.timed.len(), RUNS.len());
    }

    #[test]
    fn instants_that_nothing_fixed_there_are_the_timers_own() {
        // Before it came, as if it had read the clock while it waited; and long after.
        for look in [-1_000_000, READ_LATE + 1] {
            let all = after_a_look_at_the_clock(look);
            let timed = periodic(&all);
            assert!(!timed.is_empty() && clock_read(&all, &timed, 10_000_000).is_none());
        }
        // A timer set before: the thread comes in time.
        let all = sleeps(&RUNS, true);
        assert!(clock_read(&all, &periodic(&all), 10_000).is_none());
    }

    #[test]
    fn a_timer_of_the_ticks_own_period_is_the_tick() {
        let all = sleeps(&RUNS, true);
        for (hz, tick) in [(100_000, true), (25_000, false), (250_000, false)] {
            assert_eq!(Timer::of_sleeps(&all).is_tick(hz), tick, "{hz}");
        }
        assert!(!Timer::default().is_tick(100_000));
    }

    #[test]
    fn a_few_sleeps_tell_nothing() {
        assert!(periodic(&sleeps(&RUNS[..7], true)).is_empty());
    }
}
