//! ULE's view of a thread's past: interactivity score and CPU usage.
//!
//! Times are `hz` ticks with 10 fractional bits, as in sched_ule.c. Nothing here
//! knows of the simulated world: `crate::interactivity` scores recorded threads
//! by the same rules.
use super::super::error::{Error, Result};
use super::super::workload::Past;
use super::Tunable;
use super::tunables::{SPAN, Settings, int, time};

/// Tunables of every release.
pub(super) const INTERACT: Tunable = int(
    "interact",
    "30",
    "score",
    (0.0, 100.0),
    "a thread below this score is interactive",
);
pub(super) const SLP_RUN_MAX: Tunable =
    time("slp_run_max", "5s", SPAN, "history of run and sleep kept");
pub(super) const SLP_RUN_FORK: Tunable =
    time("slp_run_fork", "500ms", SPAN, "history a child takes over");

const SHIFT: i64 = 10;
const MAX_SCORE: i64 = 100;
const HALF: i64 = MAX_SCORE / 2;
const MAX_TIMESHARE: i64 = 223;
/// Seconds for which usage counts, and that it may be longer by one.
const WINDOW: i64 = 10;
/// Priorities at each end of the batch range that only nice reaches.
const NICE_LEVELS: i64 = 20;

#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub run: i64,
    pub sleep: i64,
    /// Ticks run in the window, its first and last tick.
    ticks: i64,
    first: i64,
    last: i64,
}

/// The constants of a release.
#[derive(Debug, Clone)]
pub(crate) struct Scale {
    pub hz: i64,
    pub stathz: i64,
    /// History kept and inherited, in ticks.
    pub max: i64,
    pub fork: i64,
    pub threshold: i64,
    pub min_interactive: i64,
    pub levels: i64,
    /// A score is a whole number of priorities above the one before (2011).
    pub whole: bool,
    /// Batch priorities given by CPU usage.
    pub usage_min: i64,
    pub usage_levels: i64,
}

impl Scale {
    /// From the tunables of the `ule` family. An error if interactive priorities
    /// leave none for batch threads.
    pub(crate) fn new(s: &Settings) -> Result<Self> {
        let hz = s.int("hz");
        let (min, levels) = (s.int("min_timeshare"), s.int("interact_levels"));
        let batch = min + levels;
        let usage_levels = MAX_TIMESHARE - 2 * NICE_LEVELS - batch + 1;
        if usage_levels < 1 {
            let most = MAX_TIMESHARE - 2 * NICE_LEVELS;
            return Err(Error::usage(
                format!("min_timeshare = {min} and interact_levels = {levels}"),
                format!(
                    "at most {most} in sum: batch threads have what is left up to {MAX_TIMESHARE}, 2 * {NICE_LEVELS} of it for nice"
                ),
                "lower one of the two",
            ));
        }
        Ok(Self {
            hz,
            stathz: s.int("stathz"),
            max: s.ns("slp_run_max") * hz / 1_000_000_000,
            fork: (s.ns("slp_run_fork") * hz / 1_000_000_000).max(1),
            threshold: s.int("interact"),
            min_interactive: min,
            levels,
            whole: s.choice("rules") == 1,
            usage_min: batch + NICE_LEVELS,
            usage_levels,
        })
    }

    /// The `hz` tick that an instant lies in.
    pub(crate) fn ticks_at(&self, ns: i64) -> i64 {
        const SECOND: i64 = 1_000_000_000;
        if SECOND % self.hz == 0 {
            return ns / (SECOND / self.hz);
        }
        (i128::from(ns) * i128::from(self.hz) / i128::from(SECOND)) as i64
    }

    /// Run time charged by one tick of the statistics clock.
    pub(crate) fn per_stat_tick(&self) -> i64 {
        ((self.hz << SHIFT) / self.stathz).max(1)
    }

    /// A thread that no other forked begins, with what it had done before, if that is known: then
    /// the kernel has counted its usage for the whole window.
    pub(crate) fn start(&self, h: &mut History, now: i64, past: Option<Past>) {
        h.first = now;
        h.last = now;
        if let Some(past) = past {
            let window = WINDOW * self.hz;
            h.first = now - window;
            h.ticks = self.fixed(past.used).min(window << SHIFT);
            h.run = self.fixed(past.ran);
            h.sleep = self.fixed(past.slept);
            self.limit(h);
        }
    }

    /// A time in ticks with their fractional bits.
    fn fixed(&self, ns: i64) -> i64 {
        ((i128::from(ns) * i128::from(self.hz << SHIFT)) / 1_000_000_000) as i64
    }

    /// 0 (always asleep) to 100 (always running).
    pub(crate) fn score(&self, h: &History) -> i64 {
        if self.threshold <= HALF && h.run >= h.sleep {
            return HALF;
        }
        if h.run > h.sleep {
            let part = (h.run / HALF).max(1);
            return HALF + (HALF - h.sleep / part);
        }
        if h.sleep > h.run {
            let part = (h.sleep / HALF).max(1);
            return h.run / part;
        }
        if h.run > 0 { HALF } else { 0 }
    }

    /// Score with nice, which may exceed 100.
    pub(crate) fn score_with_nice(&self, h: &History, nice: i64) -> i64 {
        (self.score(h) + nice).max(0)
    }

    pub(crate) fn is_interactive(&self, score: i64) -> bool {
        score < self.threshold
    }

    /// Score with nice, and the priority that follows.
    pub(crate) fn priority(&self, h: &History, nice: i64) -> (i64, i64) {
        let score = self.score_with_nice(h, nice);
        if self.is_interactive(score) {
            let above = if self.whole {
                self.levels / self.threshold * score
            } else {
                self.levels * score / self.threshold
            };
            return (score, self.min_interactive + above);
        }
        let window = (h.last - h.first).max(self.hz);
        let per_level = (window + self.usage_levels - 1) / self.usage_levels;
        let used = (h.ticks >> SHIFT) / per_level.max(1);
        let usage = used.min(self.usage_levels - 1);
        (score, self.usage_min + usage + nice)
    }

    pub(crate) fn add_run(&self, h: &mut History, run: i64) {
        h.run += run;
        self.limit(h);
    }

    pub(crate) fn add_sleep(&self, h: &mut History, ticks: i64) {
        h.sleep += ticks << SHIFT;
        self.limit(h);
    }

    /// Forget: keep the sum of run and sleep near the maximum.
    fn limit(&self, h: &mut History) {
        let max = self.max << SHIFT;
        let sum = h.run + h.sleep;
        if sum < max {
            return;
        }
        if sum > 2 * max {
            // A single huge interval: only the larger of the two remains.
            if h.run > h.sleep {
                (h.run, h.sleep) = (max, 1);
            } else {
                (h.run, h.sleep) = (1, max);
            }
        } else if sum > max / 5 * 6 {
            h.run /= 2;
            h.sleep /= 2;
        } else {
            h.run = h.run / 5 * 4;
            h.sleep = h.sleep / 5 * 4;
        }
    }

    /// A child takes over the proportions, with little weight.
    pub(crate) fn inherit(&self, h: &mut History) {
        let (sum, max) = (h.run + h.sleep, self.fork << SHIFT);
        if sum > max {
            let ratio = sum / max;
            h.run /= ratio;
            h.sleep /= ratio;
        }
    }

    /// Slide the usage window (10 s, at most 11) up to `now`.
    pub(crate) fn age(&self, h: &mut History, now: i64, running: bool) {
        let (target, most) = (WINDOW * self.hz, (WINDOW + 1) * self.hz);
        if now - h.last >= target {
            h.ticks = 0;
            h.first = now - target;
        } else if now - h.first >= most {
            let span = (h.last - h.first).max(1);
            h.ticks = h.ticks / span * (h.last - (now - target));
            h.first = now - target;
        }
        if running {
            h.ticks += (now - h.last) << SHIFT;
        }
        h.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::machine::Machine;
    use super::super::registry;
    use super::*;

    pub(crate) fn fourteen() -> Scale {
        Scale {
            hz: 1000,
            stathz: 127,
            max: 5000,
            fork: 500,
            threshold: 30,
            min_interactive: 88,
            levels: 48,
            whole: false,
            usage_min: 156,
            usage_levels: 48,
        }
    }

    #[test]
    fn interactive_priorities_leave_some_for_batch_threads() {
        let with = |levels: &str| {
            let set = [("interact_levels".to_string(), levels.to_string())];
            let machine = Machine::flat(1).unwrap();
            registry::make("ule-2011", &set, &machine, 1).map(|_| ())
        };
        with("63").unwrap();
        let error = with("64").unwrap_err().to_string();
        assert!(error.contains("interact_levels = 64"), "{error}");
        assert!(error.contains("at most 183 in sum"), "{error}");
    }

    /// V34: at nice 0 the score reaches 30 at 3/8 of the time running, give or
    /// take the division's rounding (38 % in the fixed-point form).
    #[test]
    fn a_thread_is_interactive_below_three_eighths_of_cpu() {
        let s = fourteen();
        let score = |percent: i64| {
            let total = 4_000 << SHIFT;
            let run = total * percent / 100;
            let h = History {
                run,
                sleep: total - run,
                ..History::default()
            };
            s.score(&h)
        };
        assert_eq!(score(37), 29);
        assert_eq!(score(38), 30);
        assert!((0..=37).all(|p| score(p) < 30));
        assert!((38..=100).all(|p| score(p) >= 30));
    }

    #[test]
    fn the_score_is_half_at_equal_run_and_sleep_and_zero_when_only_asleep() {
        let s = fourteen();
        let of = |run: i64, sleep: i64| {
            let h = History {
                run,
                sleep,
                ..History::default()
            };
            s.score(&h)
        };
        assert_eq!(of(0, 0), 50, "threshold at most 50 and run not below sleep");
        assert_eq!(of(1000, 1000), 50);
        assert_eq!(of(9000, 1000), 50);
        assert_eq!(of(0, 100_000), 0);
        // 1 part running, 4 asleep: 50 * 1/4.
        assert_eq!(of(100_000, 400_000), 12);
    }

    /// 2011: 32 levels over 30 scores are one each; 14: 48 over 30 are 1.6 each.
    #[test]
    fn a_score_is_a_whole_number_of_priorities_in_2011_only() {
        let of = |scale: &Scale| {
            let h = History {
                run: 15 << 20,
                sleep: 50 << 20,
                ..History::default()
            };
            scale.priority(&h, 0)
        };
        let eleven = Scale {
            min_interactive: 120,
            levels: 32,
            whole: true,
            ..fourteen()
        };
        assert_eq!(of(&eleven), (15, 135));
        assert_eq!(of(&fourteen()), (15, 112));
    }

    #[test]
    fn forgetting_keeps_the_proportion() {
        let s = fourteen();
        let mut h = History {
            run: 2_000 << SHIFT,
            sleep: 2_900 << SHIFT,
            ..History::default()
        };
        // 5.0 s of history: times 4/5.
        s.add_sleep(&mut h, 100);
        assert_eq!((h.run, h.sleep), ((1_600 << SHIFT), (2_400 << SHIFT)));
        // One sleep of 20 s on top: nothing else counts.
        s.add_sleep(&mut h, 20_000);
        assert_eq!((h.run, h.sleep), (1, 5_000 << SHIFT));
    }
}
