//! How long did threads run before they left the CPU, group by group?
use arrow_array::RecordBatch;
use rustc_hash::FxHashMap;

use super::switch_ins::SwitchIns;
use crate::error::Result;
use crate::group_ranks::GroupRanks;
use crate::model::event::End;
use crate::ranks::Share;
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
    /// The ranks that are asked for.
    pub shares: Vec<Share>,
}

impl RunLengthQuery {
    fn group_of(&self, utid: u32) -> Option<u32> {
        let group = self.group.get(utid as usize).copied();
        group.unwrap_or(self.beyond).filter(|_| utid >= self.idle)
    }
}

/// A group of threads, by CPU and end where requested.
pub type Key = (u32, Option<u16>, Option<u8>);

/// What was found of every group: where it is in `keys`, it is in the others.
pub struct Found {
    pub keys: Vec<Key>,
    /// Lengths of runs that were seen from start to end.
    pub lengths: GroupRanks,
    /// Of others: how many, and their time.
    pub censored: Vec<(u64, i64)>,
}

/// The runs of every group: `states` has ts, dur, utid, state, cpu and end, `switches` ts, cpu and
/// next_utid.
pub fn lengths(
    states: &Source<'_>,
    switches: &Source<'_>,
    question: &RunLengthQuery,
) -> Result<Found> {
    let (mut lengths, in_order) = {
        let mut lengths = Lengths::new(question, SwitchIns::new(switches));
        lengths.read_all(states)?;
        let in_order = lengths.ins.in_order()?;
        (lengths, in_order)
    };
    let ins = || {
        if in_order {
            return Ok(SwitchIns::new(switches));
        }
        SwitchIns::all(switches, |utid| question.group_of(utid).is_some())
    };
    if !in_order {
        lengths = Lengths::new(question, ins()?);
        lengths.read_all(states)?;
    }
    while lengths.found.lengths.seek() {
        lengths.ins = ins()?;
        lengths.read_all(states)?;
    }
    Ok(lengths.found)
}

/// Goes through the runs, batch by batch.
struct Lengths<'a> {
    question: &'a RunLengthQuery,
    ins: SwitchIns<'a>,
    of: FxHashMap<Key, usize>,
    found: Found,
    /// Of groups that are of threads only, where each is.
    places: Vec<usize>,
}

impl<'a> Lengths<'a> {
    fn new(question: &'a RunLengthQuery, ins: SwitchIns<'a>) -> Self {
        Self {
            question,
            ins,
            of: FxHashMap::default(),
            found: Found {
                keys: Vec::new(),
                lengths: GroupRanks::new(question.shares.clone()),
                censored: Vec::new(),
            },
            places: Vec::new(),
        }
    }

    fn read_all(&mut self, states: &Source<'_>) -> Result<()> {
        states.batches().try_for_each(|batch| self.read(&batch?))
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
            found.keys.push(key);
            found.censored.push((0, 0));
            found.lengths.grow(found.keys.len());
            found.keys.len() - 1
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
            let seen = row.end != End::Lost as u8 && row.end != End::Window as u8;
            if begun && row.ts >= begin && row.until <= end && seen {
                self.found.lengths.add(at, length);
            } else if !self.found.lengths.again() {
                let (n, time) = &mut self.found.censored[at];
                *n += 1;
                *time += length;
            }
            Ok(())
        })
    }
}
