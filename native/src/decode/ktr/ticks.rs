//! From time stamps to nanoseconds: the frequency of the counter that KTR
//! stamps its lines with.

use crate::decode::Options;
use crate::error::{Error, Result};

/// `statclock` points of one CPU further apart than this share of the shortest
/// gap are those of a CPU that stopped its clock when idle.
const SAME_TICK: f64 = 1.2;

/// Cycles per second of any counter.
const CYCLES: std::ops::RangeInclusive<f64> = 1e3..=1e11;

/// Nanoseconds per unit of time, as a fraction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    hz: f64,
    /// How the frequency became known, for trace.json.
    pub source: &'static str,
}

/// A statclock point: CPU, time, stathz.
pub type Tick = (u16, u64, u32);

impl Scale {
    /// schedgraph.d's lines are in nanoseconds; those of ktrdump count cycles,
    /// whose frequency is the option `tsc_hz` or follows from statclock ticks.
    pub fn find(numbered: bool, ticks: &[Tick], options: &Options, name: &str) -> Result<Self> {
        if let Some(text) = options.get("tsc_hz") {
            return match text.parse::<f64>() {
                Ok(hz) if CYCLES.contains(&hz) => Ok(Self {
                    hz,
                    source: "given",
                }),
                _ => Err(Error::usage(
                    format!("tsc_hz is {text:?}"),
                    "cycles per second, such as 2394454000",
                    "`sysctl -n machdep.tsc_freq` on the traced host prints it",
                )),
            };
        }
        if !numbered {
            return Ok(Self {
                hz: 1e9,
                source: "nanoseconds",
            });
        }
        match fit(ticks) {
            // schedgraph.d's lines, numbered by make_ktr.sh.
            Some(hz) if (hz / 1e9 - 1.0).abs() < 0.02 => Ok(Self {
                hz: 1e9,
                source: "nanoseconds",
            }),
            Some(hz) => Ok(Self {
                hz,
                source: "statclock",
            }),
            None => Err(Error::format(
                format!("{name} is stamped in cycles, and has no statclock points to fit"),
                "a frequency",
                "give the option tsc_hz with the number that `sysctl -n machdep.tsc_freq` prints on the traced host",
            )),
        }
    }

    /// Nanoseconds from `base` to `time`.
    pub fn ns(&self, base: u64, time: u64) -> i64 {
        ((time - base) as f64 * 1e9 / self.hz).round() as i64
    }

    pub fn hz(&self) -> f64 {
        self.hz
    }
}

/// The median distance of neighbouring ticks, times stathz. Each CPU has its
/// own clock interrupt; idle CPUs skip some.
fn fit(ticks: &[Tick]) -> Option<f64> {
    let mut by_cpu: Vec<Tick> = ticks.to_vec();
    by_cpu.sort_unstable();
    let mut frequencies: Vec<f64> = by_cpu
        .windows(2)
        .filter(|pair| pair[0].0 == pair[1].0 && pair[1].1 > pair[0].1 && pair[0].2 == pair[1].2)
        .map(|pair| (pair[1].1 - pair[0].1) as f64 * f64::from(pair[0].2))
        .collect();
    if frequencies.len() < 3 {
        return None;
    }
    frequencies.sort_by(f64::total_cmp);
    // A tick delayed by another interrupt makes one gap short, the next long:
    // the lower quartile stands for one tick.
    let one_tick = frequencies[frequencies.len() / 4];
    let single: Vec<f64> = frequencies
        .into_iter()
        .filter(|gap| *gap > one_tick / SAME_TICK && *gap < one_tick * SAME_TICK)
        .collect();
    let hz = single.get(single.len() / 2).copied()?;
    CYCLES.contains(&hz).then_some(hz)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fit_ignores_the_ticks_that_idle_cpus_skip() {
        let step = 2_394_454_000u64 / 127;
        let mut ticks: Vec<Tick> = (0..20)
            .map(|n| (0, n * step + (n % 3) * 900, 127))
            .collect();
        ticks.extend((0..5).map(|n| (1, n * step * 7, 127)));
        let hz = fit(&ticks).unwrap();
        assert!((hz / 2_394_454_000.0 - 1.0).abs() < 0.001, "{hz}");
    }

    #[test]
    fn ticks_that_no_clock_makes_fit_no_frequency() {
        for (step, hz) in [(1, 0), (1, 1), (u64::MAX / 8, u32::MAX)] {
            let ticks: Vec<Tick> = (0..8).map(|n| (0, n * step, hz)).collect();
            assert_eq!(fit(&ticks), None);
        }
    }

    #[test]
    fn without_ticks_or_frequency_the_error_says_how_to_get_it() {
        let error = Scale::find(true, &[], &Options::default(), "x")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("tsc_hz") && error.contains("machdep.tsc_freq"),
            "{error}"
        );
        assert_eq!(
            Scale::find(false, &[], &Options::default(), "x")
                .unwrap()
                .hz(),
            1e9
        );
    }
}
