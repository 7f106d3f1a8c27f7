//! EEVDF's arithmetic of lag: the average of virtual times, and the lag that
//! survives a sleep.
//!
//! Nothing here knows of the simulated world: `crate::virtual_lag` follows
//! recorded threads by the same rules.
use super::linux_fair::virtual_ns;

/// The average virtual time of a queue, as sums over its threads: of weights, and of
/// weight * (virtual time - origin).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Average {
    pub moment: i128,
    pub weight: i64,
    pub origin: i64,
}

impl Average {
    /// Whether a virtual time is at or before the average.
    pub(crate) fn is_eligible(&self, v: i64) -> bool {
        self.moment >= i128::from(v - self.origin) * i128::from(self.weight)
    }

    /// Rounded down; the origin if the queue is empty.
    #[inline]
    pub(crate) fn vruntime(&self) -> i64 {
        if self.weight == 0 {
            return self.origin;
        }
        let above = match i64::try_from(self.moment) {
            Ok(moment) => moment.div_euclid(self.weight),
            Err(_) => self.moment.div_euclid(i128::from(self.weight)) as i64,
        };
        self.origin + above
    }

    /// The virtual time of a thread that is to have `lag` once it is counted,
    /// which moves the average: the lag is stretched so that it comes out right.
    pub(crate) fn placed(&self, lag: i64, weight: i64) -> i64 {
        if self.weight == 0 {
            return self.vruntime();
        }
        let all = self.weight + weight;
        // Almost always small enough, and then several times as fast.
        let stretched = match lag.checked_mul(all) {
            Some(small) => small / self.weight,
            None => (i128::from(lag) * i128::from(all) / i128::from(self.weight)) as i64,
        };
        self.vruntime() - stretched
    }
}

/// The most lag, either way, that a thread leaves a queue with.
pub(crate) fn lag_limit(slice: i64, jiffy: i64, weight: i64) -> i64 {
    virtual_ns((2 * slice).max(jiffy), weight)
}
