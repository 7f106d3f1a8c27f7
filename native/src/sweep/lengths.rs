//! How long did threads run before they left the CPU, group by group?
use arrow_array::RecordBatch;
use rustc_hash::FxHashMap;

use super::switch_ins::SwitchIns;
use crate::error::Result;
use crate::model::event::End;
use crate::states::{NOWHERE, RUNNING, Want, each};
use crate::store::Source;

/// What is asked.
pub struct RunLengthQuery {
    pub window: (i64, i64),
    /// Idle threads have utids below.
    pub idle: u32,
    /// By utid; none: not asked for.
    pub group: Vec<Option<u32>>,
    /// Of threads beyond its end.
    pub beyond: Option<u32>,
    pub by_cpu: bool,
    pub by_end: bool,
    /// Each run from later on began with a switch-in.
    pub sure: i64,
}

impl RunLengthQuery {
    fn group_of(&self, utid: u32) -> Option<u32> {
        let group = self.group.get(utid as usize).copied();
        group.unwrap_or(self.beyond).filter(|_| utid >= self.idle)
    }
}

/// A group of threads, on a CPU and with an end, if they are told apart.
pub type Key = (u32, Option<u16>, Option<u8>);

/// Runs of one group.
#[derive(Default)]
pub struct Runs {
    /// Lengths below 2^32 ns, that is 4.3 s: nearly all, in half the memory.
    short: Vec<u32>,
    long: Vec<i64>,
    pub n_censored: u64,
    pub total_censored: i64,
}

impl Runs {
    pub fn n(&self) -> usize {
        self.short.len() + self.long.len()
    }

    pub fn total(&self) -> i64 {
        let short: i64 = self.short.iter().copied().map(i64::from).sum();
        short + self.long.iter().sum::<i64>()
    }

    fn add(&mut self, length: i64) {
        match u32::try_from(length) {
            Ok(short) => self.short.push(short),
            Err(_) => self.long.push(length),
        }
    }

    /// The longest, and the shortest that is not exceeded by at least each share of them.
    pub fn quantiles(&mut self, shares: &[(u64, u64)]) -> Option<(i64, Vec<i64>)> {
        let n = self.n() as u64;
        let longest = self.long.iter().max().copied();
        let longest = longest.or_else(|| self.short.iter().max().copied().map(i64::from))?;
        let of = |(part, whole): &(u64, u64)| {
            let rank = (u128::from(n) * u128::from(*part)).div_ceil(u128::from(*whole)) as usize;
            let place = rank.clamp(1, n as usize) - 1;
            match place.checked_sub(self.short.len()) {
                None => i64::from(*self.short.select_nth_unstable(place).1),
                Some(place) => *self.long.select_nth_unstable(place).1,
            }
        };
        Some((longest, shares.iter().map(of).collect()))
    }
}

/// The runs of every group: `states` has ts, dur, utid, state, cpu and end, `switches` ts, cpu and
/// next_utid.
pub fn lengths(
    states: &Source<'_>,
    switches: &Source<'_>,
    question: &RunLengthQuery,
) -> Result<Vec<(Key, Runs)>> {
    let read = |ins| -> Result<Lengths<'_>> {
        let mut lengths = Lengths::new(question, ins);
        for batch in states.batches() {
            lengths.read(&batch?)?;
        }
        Ok(lengths)
    };
    let mut lengths = read(SwitchIns::new(switches))?;
    if !lengths.ins.in_order()? {
        lengths = read(SwitchIns::all(switches, |utid| {
            question.group_of(utid).is_some()
        })?)?;
    }
    Ok(lengths.found)
}

/// Goes through the runs, batch by batch.
struct Lengths<'a> {
    question: &'a RunLengthQuery,
    ins: SwitchIns<'a>,
    of: FxHashMap<Key, usize>,
    found: Vec<(Key, Runs)>,
    /// Of groups that are of threads only, where each is.
    places: Vec<usize>,
}

impl<'a> Lengths<'a> {
    fn new(question: &'a RunLengthQuery, ins: SwitchIns<'a>) -> Self {
        Self {
            question,
            ins,
            of: FxHashMap::default(),
            found: Vec::new(),
            places: Vec::new(),
        }
    }

    #[inline]
    fn place(&mut self, key: Key) -> usize {
        let plain = !self.question.by_cpu && !self.question.by_end;
        let group = key.0 as usize;
        if plain {
            match self.places.get(group) {
                Some(at) if *at != usize::MAX => return *at,
                _ => {}
            }
        }
        let Self {
            of, found, places, ..
        } = self;
        let at = *of.entry(key).or_insert_with(|| {
            found.push((key, Runs::default()));
            found.len() - 1
        });
        if plain {
            if places.len() <= group {
                places.resize(group + 1, usize::MAX);
            }
            places[group] = at;
        }
        at
    }

    /// More rows of `states`.
    fn read(&mut self, batch: &RecordBatch) -> Result<()> {
        let (begin, end) = self.question.window;
        let want = Want {
            end: true,
            ..Want::CPU
        };
        each(batch, 0, want, |row| {
            if row.state != RUNNING {
                return Ok(());
            }
            let question = self.question;
            let Some(group) = question.group_of(row.utid) else {
                return Ok(());
            };
            let length = row.until.min(end) - row.ts.max(begin);
            if length <= 0 {
                return Ok(());
            }
            let cpu = Some(row.cpu).filter(|cpu| *cpu != NOWHERE);
            let begun = row.ts > question.sure
                || self
                    .ins
                    .begins(&row, |utid| question.group_of(utid).is_some())?;
            let at = self.place((
                group,
                cpu.filter(|_| question.by_cpu),
                question.by_end.then_some(row.end),
            ));
            let runs = &mut self.found[at].1;
            let seen = row.end != End::Lost as u8 && row.end != End::Window as u8;
            if begun && row.ts >= begin && row.until <= end && seen {
                runs.add(length);
            } else {
                runs.n_censored += 1;
                runs.total_censored += length;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_go_over_short_and_long_ones() {
        let mut runs = Runs::default();
        for length in [1 << 40, 7, 1 << 32, u32::MAX.into(), 3] {
            runs.add(length);
        }
        let shares = [1, 2, 3, 4, 5].map(|part| (part, 5));
        let ranked = vec![3, 7, u32::MAX.into(), 1 << 32, 1 << 40];
        assert_eq!(runs.total(), ranked.iter().sum::<i64>());
        assert_eq!(runs.quantiles(&shares), Some((1 << 40, ranked)));
    }
}
