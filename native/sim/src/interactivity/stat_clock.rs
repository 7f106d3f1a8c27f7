//! The clock by which FreeBSD's kernels charge run time, over recorded runs.
const SECOND: i64 = 1_000_000_000;

#[derive(Debug, Clone, Copy)]
pub struct StatClock {
    pub hz: i64,
    /// Instant of a tick, where one is known.
    pub phase: Option<i64>,
}

/// Run of a thread that no tick has charged yet; not used where the phase is known.
#[derive(Debug, Clone, Copy, Default)]
pub struct Uncharged {
    ran: i64,
    /// Parts of a ns, in `1 / hz`, that the ticks so far were too early.
    rest: i64,
}

impl StatClock {
    /// The ticks in `(from, to]`: one at the instant of a switch has charged the
    /// thread that left, for often the tick is what made it leave.
    fn grid(self, phase: i64, from: i64, to: i64) -> impl Iterator<Item = i64> {
        let (hz, second) = (i128::from(self.hz), i128::from(SECOND));
        let instant =
            move |k: i128| (i128::from(phase) + (k * second + hz - 1).div_euclid(hz)) as i64;
        let mut k = ((i128::from(from) - i128::from(phase)) * hz).div_euclid(second);
        while instant(k) <= from {
            k += 1;
        }
        (k..).map(instant).take_while(move |at| *at <= to)
    }

    /// Tells each instant at which a run from `from` to `to` is charged a tick.
    pub fn ticks(self, left: &mut Uncharged, from: i64, to: i64, mut tick: impl FnMut(i64)) {
        if let Some(phase) = self.phase {
            self.grid(phase, from, to).for_each(tick);
            return;
        }
        let (whole, part) = (SECOND / self.hz, SECOND % self.hz);
        let mut at = from;
        loop {
            let carry = i64::from(left.rest + part >= self.hz);
            let missing = whole + carry - left.ran;
            if missing > to - at {
                left.ran += to - at;
                return;
            }
            at += missing;
            left.ran = 0;
            left.rest += part - carry * self.hz;
            tick(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 127 ticks in each second of run, however it is cut up.
    #[test]
    fn run_is_charged_a_tick_for_each_127th_of_a_second() {
        let clock = StatClock {
            hz: 127,
            phase: None,
        };
        for piece in [SECOND, SECOND / 10, 333_333, 7_874_015] {
            let (mut left, mut ticks, mut at) = (Uncharged::default(), 0, 0);
            while at < 10 * SECOND {
                let to = (at + piece).min(10 * SECOND);
                clock.ticks(&mut left, at, to, |_| ticks += 1);
                at = to;
            }
            assert_eq!(ticks, 1270, "in pieces of {piece} ns");
        }
    }

    #[test]
    fn a_tick_at_the_instant_of_a_switch_is_of_the_thread_that_left() {
        let clock = StatClock {
            hz: 127,
            phase: None,
        };
        let first = 7_874_016;
        assert_eq!(clock.grid(0, 0, first).collect::<Vec<_>>(), [first]);
        assert_eq!(clock.grid(0, first, SECOND).count(), 126);
        assert_eq!(clock.grid(5, 5, SECOND + 5).count(), 127);
        assert_eq!(clock.grid(-3, -SECOND, 0).count(), 127);
    }
}
