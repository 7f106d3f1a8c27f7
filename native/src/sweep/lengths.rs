//! How long did threads run before they left the CPU, group by group?
use arrow_array::types::{Int64Type, UInt8Type, UInt16Type, UInt32Type};
use arrow_array::{Array, RecordBatch};
use rustc_hash::{FxHashMap, FxHashSet};

use super::pulse;
use super::rows::{RUNNING, column, full};
use crate::error::Result;

/// Ends of a run that were not seen: a loss, and the window's.
const LOST: u8 = 4;
const WINDOW: u8 = 5;

/// What is asked.
pub struct Question {
    pub window: (i64, i64),
    /// Idle threads have utids below.
    pub idle: u32,
    /// By utid; none: not asked for.
    pub group: Vec<Option<u32>>,
    pub by_cpu: bool,
    pub by_end: bool,
    /// Switch-ins (CPU, instant, thread) up to `sure`; each run from later on began with one.
    pub ins: FxHashSet<(u16, i64, u32)>,
    pub sure: i64,
    /// Quantiles, as fractions.
    pub shares: Vec<(u64, u64)>,
}

/// A group of threads, on a CPU and with an end, if they are told apart.
pub type Key = (u32, Option<u16>, Option<u8>);

/// Runs of one group.
#[derive(Default)]
pub struct Runs {
    lengths: Vec<i64>,
    pub n_censored: u64,
    pub total_censored: i64,
}

impl Runs {
    pub fn n(&self) -> usize {
        self.lengths.len()
    }

    pub fn total(&self) -> i64 {
        self.lengths.iter().sum()
    }

    /// The longest, and the shortest that is not exceeded by at least each share of them.
    pub fn quantiles(&mut self, shares: &[(u64, u64)]) -> Option<(i64, Vec<i64>)> {
        let n = self.lengths.len() as u64;
        self.lengths.sort_unstable();
        let longest = *self.lengths.last()?;
        let of = |(part, whole): &(u64, u64)| {
            let rank = (u128::from(n) * u128::from(*part)).div_ceil(u128::from(*whole)) as usize;
            self.lengths[rank.clamp(1, n as usize) - 1]
        };
        Some((longest, shares.iter().map(of).collect()))
    }
}

/// `states` has ts, dur, utid, state, cpu and end.
pub fn lengths(states: &[RecordBatch], question: &Question) -> Result<Vec<(Key, Runs)>> {
    let (begin, end) = question.window;
    let mut of: FxHashMap<Key, usize> = FxHashMap::default();
    let mut found: Vec<(Key, Runs)> = Vec::new();
    // Of groups that are of threads only, where each is.
    let plain = !question.by_cpu && !question.by_end;
    let mut places: Vec<usize> = Vec::new();
    for batch in states {
        pulse()?;
        let (ts, dur) = (
            full::<Int64Type>(batch, "ts")?,
            full::<Int64Type>(batch, "dur")?,
        );
        let utid = full::<UInt32Type>(batch, "utid")?;
        let (state, ended) = (
            full::<UInt8Type>(batch, "state")?,
            full::<UInt8Type>(batch, "end")?,
        );
        let cpu = column::<UInt16Type>(batch, "cpu")?;
        for i in 0..ts.len() {
            if state[i] != RUNNING || utid[i] < question.idle {
                continue;
            }
            let Some(group) = question.group.get(utid[i] as usize).copied().flatten() else {
                continue;
            };
            let (since, until) = (ts[i], ts[i].wrapping_add(dur[i]));
            let length = until.min(end) - since.max(begin);
            if length <= 0 {
                continue;
            }
            let number = cpu.is_valid(i).then(|| cpu.value(i));
            let key = (
                group,
                number.filter(|_| question.by_cpu),
                question.by_end.then_some(ended[i]),
            );
            let at = if plain
                && places
                    .get(group as usize)
                    .is_some_and(|at| *at != usize::MAX)
            {
                places[group as usize]
            } else {
                let at = *of.entry(key).or_insert_with(|| {
                    found.push((key, Runs::default()));
                    found.len() - 1
                });
                if plain {
                    if places.len() <= group as usize {
                        places.resize(group as usize + 1, usize::MAX);
                    }
                    places[group as usize] = at;
                }
                at
            };
            let runs = &mut found[at].1;
            let begun = since > question.sure
                || number.is_some_and(|cpu| question.ins.contains(&(cpu, since, utid[i])));
            if begun && since >= begin && until <= end && ended[i] != LOST && ended[i] != WINDOW {
                runs.lengths.push(length);
            } else {
                runs.n_censored += 1;
                runs.total_censored += length;
            }
        }
    }
    Ok(found)
}
