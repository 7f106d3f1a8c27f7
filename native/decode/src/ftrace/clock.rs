//! From a ring buffer's time stamps to nanoseconds.

use crate::error::{Error, Result};

/// How the stamps of one CPU are corrected.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    /// Guest stamps to the host's clock, before anything else.
    pub shift: Option<Shift>,
    /// TSC cycles to ns: multiply, then shift right.
    pub scale: Option<(u64, u32)>,
    /// Added at the end (options DATE and OFFSET).
    pub offset: i64,
}

/// Corrections measured now and then between a guest and its host.
#[derive(Debug, Clone, Default)]
pub struct Shift {
    pub interpolate: bool,
    /// In order of time, no two alike.
    pub samples: Vec<Sample>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    pub time: i64,
    pub offset: i64,
    pub scaling: u64,
    pub fraction: u32,
}

/// The factor of an ftrace clock: none for those in ns. `tsc_hz` is what the
/// caller knows of a cycle counter; a clock that is no time at all is an error.
pub fn cycles(place: &str, clock: &str, tsc_hz: Option<&str>) -> Result<Option<(u64, u32)>> {
    match clock {
        "x86-tsc" | "ppc-tb" | "s390-tod" => match tsc_hz.map(|text| (text, text.parse::<u64>())) {
            Some((_, Ok(hz))) if hz > 0 => {
                let mult = (1_000_000_000u128 << 32) / u128::from(hz);
                Ok(Some((mult as u64, 32)))
            }
            Some((text, _)) => Err(Error::usage(
                format!("tsc_hz is {text:?}"),
                "the clock's frequency, in Hz",
                "see `tsc: Detected ... MHz` in the host's dmesg",
            )),
            None => Err(Error::format(
                format!(
                    "{place}: the clock {clock} counts cycles, and their length is not recorded"
                ),
                "a clock in nanoseconds, or the option tsc_hz",
                "record with the clock `mono`",
            )),
        },
        "counter" | "uptime" => Err(Error::format(
            format!("{place}: the clock {clock} does not count nanoseconds"),
            "a clock in nanoseconds",
            "record with the clock `mono`",
        )),
        _ => Ok(None),
    }
}

impl Clock {
    #[inline(always)]
    pub fn apply(&self, raw: u64) -> i64 {
        if self.shift.is_none() && self.scale.is_none() {
            return (raw as i64).saturating_add(self.offset);
        }
        self.correct(raw)
    }

    #[cold]
    fn correct(&self, raw: u64) -> i64 {
        let mut ts = match &self.shift {
            Some(shift) => shift.apply(raw),
            None => i128::from(raw),
        };
        if let Some((mult, right)) = self.scale {
            ts = (ts * i128::from(mult)) >> right;
        }
        let ts = ts + i128::from(self.offset);
        ts.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }
}

impl Shift {
    fn apply(&self, raw: u64) -> i128 {
        let ts = i128::from(raw);
        let samples = &self.samples;
        match samples.as_slice() {
            [] => return ts,
            [only] => return ts + i128::from(only.offset),
            _ => {}
        }
        // The last sample not after the stamp, and the one that follows it.
        let after = samples.partition_point(|sample| i128::from(sample.time) <= ts);
        let low = after.saturating_sub(1).min(samples.len() - 2);
        let (min, max) = (samples[low], samples[low + 1]);
        let mut offset = i128::from(min.offset);
        if self.interpolate {
            let span = i128::from(max.time) - i128::from(min.time);
            let rise = i128::from(max.offset) - i128::from(min.offset);
            if span > 0 {
                offset += ((ts - i128::from(min.time)) * rise + span / 2).div_euclid(span);
            }
        }
        let scaled = (ts * i128::from(min.scaling)) >> min.fraction.min(127);
        scaled + offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_no_time_is_refused_and_cycles_need_their_rate() {
        assert_eq!(cycles("x", "mono", None).unwrap(), None);
        let scale = cycles("x", "x86-tsc", Some("2000000000")).unwrap();
        assert_eq!(
            Clock {
                scale,
                ..Clock::default()
            }
            .apply(4_000),
            2_000
        );
        for (clock, hz) in [
            ("x86-tsc", None),
            ("x86-tsc", Some("0")),
            ("counter", None),
            ("uptime", None),
        ] {
            assert!(cycles("x", clock, hz).is_err());
        }
    }

    #[test]
    fn stamps_are_shifted_scaled_and_offset_in_this_order() {
        assert_eq!(
            Clock {
                offset: -5,
                ..Clock::default()
            }
            .apply(105),
            100
        );
        let tsc = Clock {
            scale: Some((1 << 31, 32)),
            offset: 7,
            ..Clock::default()
        };
        assert_eq!(tsc.apply(1 << 40), (1 << 39) + 7);
        let sample = |time, offset| Sample {
            time,
            offset,
            scaling: 1,
            fraction: 0,
        };
        let shift = |interpolate, samples| Clock {
            shift: Some(Shift {
                interpolate,
                samples,
            }),
            ..Clock::default()
        };
        assert_eq!(shift(false, vec![sample(0, 50)]).apply(100), 150);
        let three = vec![sample(0, 10), sample(100, 20), sample(200, 40)];
        assert_eq!(shift(false, three.clone()).apply(150), 170);
        assert_eq!(shift(true, three.clone()).apply(150), 180);
        assert_eq!(shift(true, three).apply(250), 300);
        assert_eq!(
            Clock {
                offset: i64::MAX,
                ..Clock::default()
            }
            .apply(1 << 61),
            i64::MAX
        );
    }
}
