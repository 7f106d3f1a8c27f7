//! How much time, and how many instants, lie in each of the equal parts of a window?
use arrow_array::RecordBatch;
use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};

use crate::columns::full;
use crate::error::Result;
use crate::hooks::check_interrupt;

/// The parts of a window, each `step` long but for the last; times in ns.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    begin: i64,
    end: i64,
    step: i64,
}

impl Parts {
    /// `step` is more than 0.
    pub fn new((begin, end): (i64, i64), step: i64) -> Self {
        Self { begin, end, step }
    }

    fn count(self) -> usize {
        let length = u64::try_from(self.end.saturating_sub(self.begin)).unwrap_or(0);
        usize::try_from(length.div_ceil(self.step.cast_unsigned())).unwrap_or(usize::MAX)
    }

    /// Of an instant that is not before the start.
    fn of(self, ts: i64) -> usize {
        ((ts - self.begin) / self.step) as usize
    }

    fn edge(self, part: usize) -> i64 {
        self.begin + self.step * part as i64
    }
}

/// Rows of `states` that count: those in one state, of threads from one number on.
#[derive(Debug, Clone, Copy)]
pub struct Only {
    pub state: u8,
    pub from: u32,
}

/// Adds up how much of some intervals, which may overlap, lies in each part.
pub struct Time {
    parts: Parts,
    within: Vec<i64>,
    /// Of intervals across whole parts, by how many more there are than in the part before.
    across: Vec<i64>,
}

impl Time {
    pub fn new(parts: Parts) -> Self {
        Self {
            within: vec![0; parts.count()],
            across: vec![0; parts.count() + 1],
            parts,
        }
    }

    /// More intervals: ts and dur; and with `only`, utid and state.
    pub fn read(&mut self, batch: &RecordBatch, only: Option<Only>) -> Result<()> {
        check_interrupt()?;
        let ts = full::<Int64Type>(batch, "ts")?;
        let dur = full::<Int64Type>(batch, "dur")?;
        let Some(only) = only else {
            for (ts, dur) in ts.iter().zip(dur) {
                self.add(*ts, ts.saturating_add(*dur));
            }
            return Ok(());
        };
        let states = full::<UInt8Type>(batch, "state")?;
        let utids = full::<UInt32Type>(batch, "utid")?;
        for (row, (state, utid)) in states.iter().zip(utids).enumerate() {
            if *state == only.state && *utid >= only.from {
                self.add(ts[row], ts[row].saturating_add(dur[row]));
            }
        }
        Ok(())
    }

    fn add(&mut self, since: i64, until: i64) {
        let Self {
            parts,
            within,
            across,
        } = self;
        let (since, until) = (since.max(parts.begin), until.min(parts.end));
        if until <= since {
            return;
        }
        let (first, last) = (parts.of(since), parts.of(until - 1));
        if first == last {
            within[first] += until - since;
            return;
        }
        within[first] += parts.edge(first + 1) - since;
        within[last] += until - parts.edge(last);
        across[first + 1] += 1;
        across[last] -= 1;
    }

    /// Of each part, ns.
    pub fn finish(self) -> Vec<i64> {
        let mut whole = 0;
        let sums = self.within.iter().zip(&self.across).enumerate();
        sums.map(|(part, (within, more))| {
            whole += more;
            let end = self.parts.edge(part + 1).min(self.parts.end);
            within + whole * (end - self.parts.edge(part))
        })
        .collect()
    }
}

/// Counts the instants in each part.
pub struct Instants {
    parts: Parts,
    pub found: Vec<u32>,
}

impl Instants {
    pub fn new(parts: Parts) -> Self {
        Self {
            found: vec![0; parts.count()],
            parts,
        }
    }

    /// More rows: ts.
    pub fn read(&mut self, batch: &RecordBatch) -> Result<()> {
        check_interrupt()?;
        for &ts in full::<Int64Type>(batch, "ts")? {
            if ts >= self.parts.begin && ts < self.parts.end {
                self.found[self.parts.of(ts)] += 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_what_counting_each_ns_gives() {
        let mut seed = 11u32;
        let mut any = |n: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            i64::from((seed >> 16) % n)
        };
        for _ in 0..200 {
            let (begin, length, step) = (any(20) - 10, any(60), any(25) + 1);
            let window = (begin, begin + length);
            let mut time = Time::new(Parts::new(window, step));
            let mut expected = vec![0; usize::try_from((length + step - 1) / step).unwrap()];
            for _ in 0..any(8) {
                let since = any(100) - 30;
                let until = since + any(50);
                time.add(since, until);
                for ns in since.max(window.0)..until.min(window.1) {
                    expected[((ns - begin) / step) as usize] += 1;
                }
            }
            assert_eq!(time.finish(), expected, "{window:?} {step}");
        }
    }
}
