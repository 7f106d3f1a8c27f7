//! How fast Linux's averages (PELT, kernel/sched/pelt.c) forget.
//!
//! The past counts half as much every 32 periods of 1024 us.

/// A period, ns.
pub(super) const PERIOD: i64 = 1 << 20;
/// Periods in which the past loses half its weight.
const HALF_LIFE: usize = 32;

/// What is left of the past after so many periods. Made of square roots and
/// products, which are the same on every machine.
pub(super) struct Decay([f64; HALF_LIFE + 1]);

impl Default for Decay {
    fn default() -> Self {
        let mut one = 0.5f64;
        for _ in 0..HALF_LIFE.ilog2() {
            one = one.sqrt();
        }
        let mut left = [1.0; HALF_LIFE + 1];
        for i in 1..=HALF_LIFE {
            left[i] = left[i - 1] * one;
        }
        Self(left)
    }
}

impl Decay {
    /// What is left after `ns`.
    pub(super) fn left(&self, ns: i64) -> f64 {
        let (periods, rest) = (ns / PERIOD, ns % PERIOD);
        let halves = (periods / HALF_LIFE as i64).min(62);
        let at = (periods % HALF_LIFE as i64) as usize;
        let between = rest as f64 / PERIOD as f64;
        let left = self.0[at] + (self.0[at + 1] - self.0[at]) * between;
        left / (1u64 << halves) as f64
    }
}
