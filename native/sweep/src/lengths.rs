//! How long did threads run before they left the CPU, group by group?
use arrow_array::RecordBatch;
use rustc_hash::FxHashMap;

use super::switch_ins::SwitchIns;
use crate::error::Result;
use crate::model::event::End;
use crate::ranks::{Ranks, Room, Share};
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

/// Runs of one group.
#[derive(Default)]
pub struct Runs {
    /// Lengths of those that were seen from start to end.
    pub lengths: Ranks,
    pub n_censored: u64,
    pub total_censored: i64,
}

/// Lengths that are held, of all groups: 67 MB of runs below 4.3 s.
const HELD: usize = 1 << 24;
/// A group that has fewer goes on holding them: it takes 4 kB, which buckets would take, too.
const FEW: usize = 1 << 10;
/// Of lengths of which too many are near a rank: the fewest parts that are counted. With these a
/// length is found in 16 more readings at most.
const PARTS: usize = 1 << 4;

/// Does one reading suffice to hold so many lengths near each rank; else, what each may take.
fn room(sought: &[usize]) -> Room {
    if sought.iter().sum::<usize>() <= HELD {
        return Room {
            held: HELD,
            parts: PARTS,
        };
    }
    let each = HELD / 2 / sought.len();
    Room {
        held: each,
        parts: each.clamp(PARTS, 1 << 16),
    }
}

/// The runs of every group: `states` has ts, dur, utid, state, cpu and end, `switches` ts, cpu and
/// next_utid.
pub fn lengths(
    states: &Source<'_>,
    switches: &Source<'_>,
    question: &RunLengthQuery,
) -> Result<Vec<(Key, Runs)>> {
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
    while lengths.seek() {
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
    found: Vec<(Key, Runs)>,
    /// Of groups that are of threads only, where each is.
    places: Vec<usize>,
    /// After so many more runs too many lengths may be held.
    unchecked: usize,
    /// All runs were added: only lengths are added again.
    again: bool,
}

impl<'a> Lengths<'a> {
    fn new(question: &'a RunLengthQuery, ins: SwitchIns<'a>) -> Self {
        Self {
            question,
            ins,
            of: FxHashMap::default(),
            found: Vec::new(),
            places: Vec::new(),
            unchecked: HELD,
            again: false,
        }
    }

    fn read_all(&mut self, states: &Source<'_>) -> Result<()> {
        states.batches().try_for_each(|batch| self.read(&batch?))
    }

    /// All runs were added: whether another pass is needed.
    fn seek(&mut self) -> bool {
        self.again = true;
        let mut sought = Vec::new();
        for (_, runs) in &mut self.found {
            runs.lengths.settle(&self.question.shares);
            sought.extend(runs.lengths.sought());
        }
        let room = room(&sought);
        for (_, runs) in &mut self.found {
            runs.lengths.seek(room);
        }
        !sought.is_empty()
    }

    /// If too many lengths are held, those of large groups are counted from now on.
    #[cold]
    fn check(&mut self) {
        let held = |found: &[(Key, Runs)]| -> usize {
            found.iter().map(|(_, runs)| runs.lengths.held()).sum()
        };
        if held(&self.found) >= HELD {
            for (_, runs) in &mut self.found {
                if runs.lengths.held() >= FEW {
                    runs.lengths.count(&self.question.shares);
                }
            }
        }
        // Many small groups may hold more, but are not looked at too often.
        self.unchecked = HELD.saturating_sub(held(&self.found)).max(HELD / 8);
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
                runs.lengths.add(length);
                self.unchecked -= 1;
                if self.unchecked == 0 {
                    self.check();
                }
            } else if !self.again {
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
    fn what_is_held_in_a_later_reading_is_bounded() {
        let most = |sought: &[usize]| -> usize {
            let Room { held, parts } = room(sought);
            let taken = sought
                .iter()
                .map(|n| if *n <= held { *n } else { 2 * parts });
            taken.sum()
        };
        for sought in [
            vec![],
            vec![HELD],
            vec![HELD + 1],
            vec![HELD; 1000],
            vec![1 << 10; 60_000],
            [vec![1 << 9; 60_000], vec![HELD]].concat(),
        ] {
            assert!(most(&sought) <= HELD, "{}", sought.len());
        }
        // Half a million groups, and three ranks of each.
        assert_eq!(room(&vec![1 << 9; 1_500_000]).parts, PARTS);
    }
}
