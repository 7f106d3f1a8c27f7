//! The first ULE's view of a thread's past.
//!
//! Times are `hz` ticks with 10 fractional bits, as in sched_ule.c of 2003.
//! Nothing here knows of the simulated world: `crate::interactivity` scores
//! recorded threads by the same rules.
use super::tunables::Settings;

const SHIFT: i64 = 10;
const HALF: i64 = 50;

#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub run: i64,
    pub sleep: i64,
}

#[derive(Debug, Clone)]
pub(crate) struct Scale {
    pub hz: i64,
    pub stathz: i64,
    threshold: i64,
    /// History kept and inherited, in ticks with their fraction.
    pub max: i64,
    fork: i64,
    /// Forget gently, as from 2005 on.
    later: bool,
}

impl Scale {
    /// From the tunables of the `ule-2003` family.
    pub(crate) fn new(s: &Settings) -> Self {
        let hz = s.int("hz");
        let ticks = |name: &str| (s.ns(name) * hz / 1_000_000_000).max(1) << SHIFT;
        Self {
            hz,
            stathz: s.int("stathz"),
            threshold: s.int("interact"),
            max: ticks("slp_run_max"),
            fork: ticks("slp_run_fork"),
            later: s.is_on("rules_2005"),
        }
    }

    /// The `hz` tick that an instant lies in.
    pub(crate) fn ticks_at(&self, ns: i64) -> i64 {
        (i128::from(ns) * i128::from(self.hz) / 1_000_000_000) as i64
    }

    /// 0 (always asleep) to 100 (always running); 0 for as much of one as of the other, too.
    pub(crate) fn score(&self, h: &History) -> i64 {
        if h.run > h.sleep {
            let part = (h.run / HALF).max(1);
            HALF + (HALF - h.sleep / part)
        } else if h.sleep > h.run {
            let part = (h.sleep / HALF).max(1);
            h.run / part
        } else {
            0
        }
    }

    pub(crate) fn is_interactive(&self, score: i64) -> bool {
        score < self.threshold
    }

    /// A tick of the statistics clock: a tick of `hz`, though that one may be rarer.
    pub(crate) fn charge_tick(&self, h: &mut History) {
        self.add_run(h, (self.hz / self.stathz).max(1) << SHIFT);
    }

    pub(crate) fn add_run(&self, h: &mut History, run: i64) {
        h.run += run;
        self.limit(h);
    }

    pub(crate) fn add_sleep(&self, h: &mut History, ticks: i64) {
        let slept = ticks << SHIFT;
        if slept >= self.max {
            (h.run, h.sleep) = (1, self.max);
        } else if slept > 0 {
            h.sleep += slept;
            self.limit(h);
        }
    }

    fn limit(&self, h: &mut History) {
        let sum = h.run + h.sleep;
        if sum < self.max {
            return;
        }
        if self.later && sum <= self.max / 5 * 6 {
            h.run = h.run / 5 * 4;
            h.sleep = h.sleep / 5 * 4;
        } else {
            h.run /= 2;
            h.sleep /= 2;
        }
    }

    /// A child's history, and what creating it costs the parent.
    pub(crate) fn fork(&self, parent: &mut History) -> History {
        let sum = parent.run + parent.sleep;
        let ratio = if sum > self.fork { sum / self.fork } else { 1 };
        let child = History {
            run: parent.run / ratio,
            sleep: parent.sleep / ratio,
        };
        self.add_run(parent, 1 << SHIFT);
        child
    }
}
