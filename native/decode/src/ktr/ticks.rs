//! From time stamps to nanoseconds: the frequency of the counter that KTR
//! stamps its lines with.

use crate::Options;
use crate::error::{Error, Result};

/// With fewer gaps between ticks than this a clock twice as slow cannot be ruled out.
const FEW: usize = 12;

/// Ticks that an interrupt may skip between two of the same CPU.
const MOST_SKIPPED: u32 = 1000;

/// How far a gap may be from a whole number of ticks, in ticks, and how many gaps may be
/// further off: their tick was delayed by another interrupt.
const TOLERANCE: f64 = 0.1;
const OUTLIERS: f64 = 0.1;
/// How far off half of them may be.
const TYPICAL: f64 = 0.03;

/// Cycles per second of any counter.
const CYCLES: std::ops::RangeInclusive<f64> = 1e3..=1e11;

/// Nanoseconds per unit of time, as a fraction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    hz: f64,
    /// How the frequency became known, for trace.json.
    pub source: &'static str,
    /// What to doubt about it.
    pub doubt: Option<&'static str>,
}

/// A statclock point of a thread that is not the idle thread: CPU, time, stathz.
///
/// An idle CPU's clock stands still, and what it prints when it is woken is off the grid
/// of ticks (`cpu_activeclock` in kern_clocksource.c).
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
                    doubt: None,
                }),
                _ => Err(Error::usage(
                    format!("tsc_hz is {text:?}"),
                    "cycles per second, such as 2394454000",
                    "`sysctl -n machdep.tsc_freq` on the traced host prints it",
                )),
            };
        }
        let known = |hz, source, doubt| Ok(Self { hz, source, doubt });
        if !numbered {
            return known(1e9, "nanoseconds", None);
        }
        let gaps = gaps(ticks);
        match fit(&gaps) {
            // schedgraph.d's lines, numbered by make_ktr.sh.
            Some(hz) if (hz / 1e9 - 1.0).abs() < 0.02 => known(1e9, "nanoseconds", None),
            Some(hz) => {
                let few = gaps.len() < FEW;
                known(hz, "statclock", few.then_some(DOUBT))
            }
            None => Err(Error::format(
                format!(
                    "{name} is stamped in cycles, and its {} statclock points of running threads are too few or too irregular to fit",
                    ticks.len()
                ),
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

const DOUBT: &str = "the frequency of the time stamps is fitted to few statclock points of running threads and may be wrong by a factor: give the option tsc_hz with the number that `sysctl -n machdep.tsc_freq` prints on the traced host";

/// Times between neighbouring ticks of a CPU, in cycles times stathz, shortest first.
fn gaps(ticks: &[Tick]) -> Vec<f64> {
    let mut by_cpu: Vec<Tick> = ticks.to_vec();
    by_cpu.sort_unstable();
    let mut gaps: Vec<f64> = by_cpu
        .windows(2)
        .filter(|pair| pair[0].0 == pair[1].0 && pair[1].1 > pair[0].1 && pair[0].2 == pair[1].2)
        .map(|pair| (pair[1].1 - pair[0].1) as f64 * f64::from(pair[0].2))
        .collect();
    gaps.sort_by(f64::total_cmp);
    gaps
}

/// The frequency of which every gap is a whole multiple: the highest such, for any part
/// of it would do, too. CPUs where threads come and go skip many ticks, so not even the
/// shortest gap need be one.
fn fit(gaps: &[f64]) -> Option<f64> {
    if gaps.len() < 3 {
        return None;
    }
    // A tick that was delayed makes one gap short: the base is not the very shortest.
    let base = gaps[gaps.len() / 20];
    let hz = (1..=MOST_SKIPPED).find_map(|n| whole_multiples(gaps, base / f64::from(n)))?;
    CYCLES.contains(&hz).then_some(hz)
}

/// The frequency near `first` that divides the gaps, if one does. The estimate from the short gaps
/// is exact enough to count the ticks in the longer ones.
fn whole_multiples(gaps: &[f64], first: f64) -> Option<f64> {
    let allowed = (gaps.len() as f64 * OUTLIERS) as usize;
    let (mut time, mut ticks, mut outliers) = (0.0, 0.0, 0);
    let mut off = Vec::with_capacity(gaps.len());
    for gap in gaps {
        let hz = if ticks > 0.0 { time / ticks } else { first };
        let n = (gap / hz).round();
        off.push((gap / hz - n).abs());
        if n < 1.0 || (gap / hz - n).abs() > TOLERANCE {
            outliers += 1;
            if outliers > allowed {
                return None;
            }
            continue;
        }
        time += gap;
        ticks += n;
    }
    off.sort_by(f64::total_cmp);
    (off[off.len() / 2] <= TYPICAL && ticks > 0.0).then(|| time / ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_of_many_ticks_are_counted() {
        let step = 2_394_454_000u64 / 127;
        // CPU 0 ticks at every step, a little late now and then, CPU 1 at every seventh.
        let mut ticks: Vec<Tick> = (0..20)
            .map(|n| (0, n * step + (n % 3) * 900, 127))
            .collect();
        ticks.extend((0..5).map(|n| (1, n * step * 7, 127)));
        let hz = fit(&gaps(&ticks)).unwrap();
        assert!((hz / 2_394_454_000.0 - 1.0).abs() < 0.001, "{hz}");
        // No two neighbouring ticks at all: 2, 3, 5, ... steps apart.
        let mut at = 0;
        let sparse: Vec<Tick> = [0u64, 9, 2, 14, 3, 25, 8, 3, 7, 40, 11, 6, 21, 2, 5]
            .iter()
            .map(|skip| {
                at += skip;
                (0, at * step + at % 4 * 1000, 127)
            })
            .collect();
        let hz = fit(&gaps(&sparse)).unwrap();
        assert!((hz / 2_394_454_000.0 - 1.0).abs() < 0.001, "{hz}");
    }

    #[test]
    fn few_ticks_are_doubted() {
        let step = 2_394_454_000u64 / 127;
        let scale = |n: u64| {
            let ticks: Vec<Tick> = (0..n).map(|i| (0, i * 2 * step, 127)).collect();
            Scale::find(true, &ticks, &Options::default(), "x").unwrap()
        };
        assert!(scale(6).doubt.is_some_and(|text| text.contains("tsc_hz")));
        assert_eq!(scale(30).doubt, None);
    }

    #[test]
    fn ticks_that_no_clock_makes_fit_no_frequency() {
        for (step, hz) in [(1, 0), (1, 1), (u64::MAX / 8, u32::MAX)] {
            let ticks: Vec<Tick> = (0..8).map(|n| (0, n * step, hz)).collect();
            assert_eq!(fit(&gaps(&ticks)), None);
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
