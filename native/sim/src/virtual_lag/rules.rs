//! Which scheduler's arithmetic, and its constants.
use crate::policy::cfs_place::Placing;
use crate::policy::linux_fair::{log2_factor, virtual_ns};
use crate::policy::{LagRule, Settings};

const SECOND: i128 = 1_000_000_000;

#[derive(Debug, Clone, Copy)]
pub enum Rules {
    Eevdf(Eevdf),
    Cfs(Cfs),
}

#[derive(Debug, Clone, Copy)]
pub struct Eevdf {
    pub slice: i64,
    pub place_lag: bool,
    /// A new thread's first request is half as long.
    pub initial: bool,
    /// The rest of a request survives a move.
    pub relative: bool,
    /// A sleeper with negative lag stays until it has worked it off.
    pub delay: bool,
    /// Such a sleeper never leaves with positive lag.
    pub zero: bool,
    /// A thread that is eligible runs until its request is done.
    pub parity: bool,
    pub clock: Clock,
}

impl Eevdf {
    /// What a thread of that weight asks for at a time, in virtual time.
    pub fn request(&self, weight: i64) -> i64 {
        virtual_ns(self.slice, weight)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Cfs {
    pub placing: Placing,
    pub clock: Clock,
}

/// The instants at which the kernel's clock ticks.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    hz: i64,
    /// Some instant at which it ticked.
    phase: i64,
}

impl Clock {
    pub fn jiffy(self) -> i64 {
        SECOND as i64 / self.hz
    }

    fn instant(self, k: i128) -> i64 {
        let hz = i128::from(self.hz);
        let at = i128::from(self.phase) + (k * SECOND + hz - 1).div_euclid(hz);
        at.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// The first tick at or after an instant.
    pub fn from(self, at: i64) -> i64 {
        let hz = i128::from(self.hz);
        let mut k = ((i128::from(at) - i128::from(self.phase)) * hz).div_euclid(SECOND);
        while self.instant(k) < at {
            k += 1;
        }
        self.instant(k)
    }

    /// The last tick before an instant.
    pub fn before(self, at: i64) -> i64 {
        let hz = i128::from(self.hz);
        let mut k = ((i128::from(at) - i128::from(self.phase)) * hz).div_euclid(SECOND);
        while self.instant(k) >= at {
            k -= 1;
        }
        self.instant(k)
    }
}

impl Rules {
    /// With the settings of a policy that declares `rule`.
    pub fn new(rule: LagRule, s: &Settings, ncpu: usize, phase: i64) -> Self {
        let clock = |s: &Settings| Clock {
            hz: s.int("hz"),
            phase,
        };
        match rule {
            LagRule::Eevdf => {
                let f = if s.is_on("scaling") {
                    log2_factor(ncpu, 8)
                } else {
                    1
                };
                Self::Eevdf(Eevdf {
                    slice: s.ns("base_slice") * f,
                    place_lag: s.is_on("place_lag"),
                    initial: s.is_on("place_deadline_initial"),
                    relative: s.is_on("place_rel_deadline"),
                    delay: s.is_on("delay_dequeue"),
                    zero: s.is_on("delay_zero"),
                    parity: s.is_on("run_to_parity"),
                    clock: clock(s),
                })
            }
            LagRule::Cfs => Self::Cfs(Cfs {
                placing: Placing::new(s, ncpu),
                clock: clock(s),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_lie_on_a_grid() {
        let clock = Clock { hz: 250, phase: 1 };
        assert_eq!(clock.jiffy(), 4_000_000);
        assert_eq!([clock.from(1), clock.from(2)], [1, 4_000_001]);
        assert_eq!([clock.before(1), clock.before(2)], [-3_999_999, 1]);
        assert_eq!(Clock { hz: 300, phase: 0 }.from(1), 3_333_334);
    }
}
