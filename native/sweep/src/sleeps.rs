//! When did the sleep begin that a wakeup ended?
use std::collections::VecDeque;

use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{Array, RecordBatch};

use crate::columns::{column, full};
use crate::error::{Error, Result};
use crate::model::event::End;
use crate::states::{Row, Want, each};
use crate::store::Source;

/// Finds for each row of `asked` (utid, ts_ready; null where nothing is asked) the start of the
/// interval that a wakeup ended at that instant, and the state in it.
pub struct Sleeps {
    /// By utid the instants asked for and the row of each, in order of time.
    of: Vec<Vec<(i64, u32)>>,
    /// Rows of a thread are in order of time, wherever reconstruction wrote them: the next
    /// answer is at the place of the last one or behind it.
    next: Vec<usize>,
    /// In the order of the rows.
    pub found: Vec<Option<(i64, u8)>>,
}

impl Sleeps {
    pub fn new(asked: &[RecordBatch]) -> Result<Self> {
        let rows: usize = asked.iter().map(RecordBatch::num_rows).sum();
        if u32::try_from(rows).is_err() {
            return Err(Error::usage(
                format!("{rows} rows"),
                "fewer than 2^32",
                "cut the trace",
            ));
        }
        let mut of: Vec<Vec<(i64, u32)>> = Vec::new();
        let mut row = 0;
        for batch in asked {
            let utid = full::<UInt32Type>(batch, "utid")?;
            let ready = column::<Int64Type>(batch, "ts_ready")?;
            for (i, utid) in utid.iter().enumerate() {
                if ready.is_valid(i) {
                    if of.len() <= *utid as usize {
                        of.resize_with(*utid as usize + 1, Vec::new);
                    }
                    of[*utid as usize].push((ready.value(i), row));
                }
                row += 1;
            }
        }
        for rows in &mut of {
            if !rows.is_sorted() {
                rows.sort_unstable();
            }
        }
        Ok(Self {
            next: vec![0; of.len()],
            of,
            found: vec![None; rows],
        })
    }

    /// More rows of `states`: ts, dur, utid, state and end.
    pub fn read(&mut self, batch: &RecordBatch) -> Result<()> {
        each_woken(batch, |row| {
            self.woken(row.utid, row.ts, row.until, row.state)
        })
    }

    fn woken(&mut self, utid: u32, ts: i64, until: i64, state: u8) {
        let Some(rows) = self.of.get(utid as usize) else {
            return;
        };
        let mut at = self.next[utid as usize];
        if at > 0 && rows[at - 1].0 >= until {
            at = rows.partition_point(|(ready, _)| *ready < until);
        }
        while rows.get(at).is_some_and(|(ready, _)| *ready < until) {
            at += 1;
        }
        while let Some((_, row)) = rows.get(at).filter(|(ready, _)| *ready == until) {
            self.found[*row as usize] = Some((ts, state));
            at += 1;
        }
        self.next[utid as usize] = at;
    }
}

/// The rows of `states` that a wakeup ended.
#[inline(always)]
fn each_woken(batch: &RecordBatch, mut take: impl FnMut(Row)) -> Result<()> {
    let want = Want {
        end: true,
        ..Want::default()
    };
    each(batch, 0, want, |row| {
        if row.end == End::Woken as u8 {
            take(row);
        }
        Ok(())
    })
}

/// A sleep that ended.
#[derive(Debug, Clone, Copy)]
struct Sleep {
    ts: i64,
    until: i64,
    state: u8,
}

/// Of a thread: the sleeps that ended after the last wait asked for, and when that began.
struct Recent {
    sleeps: VecDeque<Sleep>,
    asked: i64,
}

/// The same answers for a pass over the waits in order of time: `states` is read along with them,
/// and only the sleeps whose waits are still to come are held.
pub struct Follower {
    states: Source<'static>,
    /// The part of `states` that comes next.
    next: usize,
    /// When the last sleep that was read ended.
    reached: i64,
    /// By utid.
    threads: Vec<Recent>,
    ordered: bool,
}

impl Follower {
    /// `states` has ts, dur, utid, state and end.
    pub fn new(states: Source<'static>) -> Self {
        Self {
            states,
            next: 0,
            reached: i64::MIN,
            threads: Vec::new(),
            ordered: true,
        }
    }

    fn thread(threads: &mut Vec<Recent>, utid: u32) -> &mut Recent {
        let at = utid as usize;
        if threads.len() <= at {
            threads.resize_with(at + 1, || Recent {
                sleeps: VecDeque::new(),
                asked: i64::MIN,
            });
        }
        &mut threads[at]
    }

    /// Of each row of `asked` (utid, ts_ready; null where nothing is asked) the start of the
    /// interval that a wakeup ended at that instant, and the state in it.
    pub fn follow(&mut self, asked: &RecordBatch) -> Result<Vec<Option<(i64, u8)>>> {
        let utid = full::<UInt32Type>(asked, "utid")?;
        let ready = column::<Int64Type>(asked, "ts_ready")?;
        let latest = ready.iter().flatten().max().unwrap_or(i64::MIN);
        while self.reached <= latest && self.read()? {}
        let mut found = vec![None; asked.num_rows()];
        for (row, found) in found.iter_mut().enumerate() {
            if ready.is_null(row) {
                continue;
            }
            let ready = ready.value(row);
            let thread = Self::thread(&mut self.threads, utid[row]);
            self.ordered &= thread.asked <= ready;
            thread.asked = ready;
            let sleeps = &mut thread.sleeps;
            while sleeps.pop_front_if(|sleep| sleep.until < ready).is_some() {}
            let here = sleeps.front().filter(|sleep| sleep.until == ready);
            *found = here.map(|sleep| (sleep.ts, sleep.state));
        }
        Ok(found)
    }

    /// One more part of `states`; false if there is none.
    fn read(&mut self) -> Result<bool> {
        if self.next >= self.states.parts() {
            return Ok(false);
        }
        for batch in self.states.part(self.next)? {
            each_woken(&batch, |row| {
                let Row {
                    ts, until, state, ..
                } = row;
                self.ordered &= self.reached <= until;
                self.reached = self.reached.max(until);
                let thread = Self::thread(&mut self.threads, row.utid);
                thread.sleeps.push_back(Sleep { ts, until, state });
            })?;
        }
        self.next += 1;
        Ok(true)
    }

    /// Whether all sleeps, and each thread's waits, were in order of time: else an answer may be
    /// missing.
    pub fn ordered(&mut self) -> Result<bool> {
        while self.ordered && self.read()? {
            // These are no longer requested.
            for thread in &mut self.threads {
                thread.sleeps.clear();
            }
        }
        Ok(self.ordered)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, UInt8Array, UInt32Array};

    use super::*;

    type Ended = (u32, i64, i64);

    fn states(rows: &[Ended]) -> RecordBatch {
        let columns: [(&str, ArrayRef); 5] = [
            (
                "ts",
                Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1))),
            ),
            (
                "dur",
                Arc::new(Int64Array::from_iter_values(
                    rows.iter().map(|row| row.2 - row.1),
                )),
            ),
            (
                "utid",
                Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.0))),
            ),
            (
                "state",
                Arc::new(UInt8Array::from_iter_values(rows.iter().map(|_| 2))),
            ),
            (
                "end",
                Arc::new(UInt8Array::from_iter_values(
                    rows.iter().map(|_| End::Woken as u8),
                )),
            ),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn asked(rows: &[(u32, Option<i64>)]) -> RecordBatch {
        let utids = UInt32Array::from_iter_values(rows.iter().map(|row| row.0));
        let ready = rows.iter().map(|row| row.1).collect::<Int64Array>();
        let columns: [(&str, ArrayRef); 2] =
            [("utid", Arc::new(utids)), ("ts_ready", Arc::new(ready))];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    /// In batches of `size` rows; and whether all were in order.
    fn followed(
        ended: &[Ended],
        waits: &[(u32, Option<i64>)],
        size: usize,
    ) -> (Vec<Option<(i64, u8)>>, bool) {
        let held = ended.chunks(size).map(states).collect();
        let mut follower = Follower::new(Source::Held("states", held));
        let mut found = Vec::new();
        for waits in waits.chunks(size) {
            found.extend(follower.follow(&asked(waits)).unwrap());
        }
        (found, follower.ordered().unwrap())
    }

    #[test]
    fn one_who_follows_the_waits_finds_what_one_who_holds_them_finds() {
        let mut seed = 3u32;
        let mut any = |n: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % n
        };
        let mut answers = 0;
        for _ in 0..100 {
            let (mut at, mut ended, mut waits) = ([0i64; 4], Vec::new(), Vec::new());
            for step in 1..60 {
                let (utid, now) = (any(4), 10 * step);
                let asleep = &mut at[utid as usize];
                if *asleep >= now {
                    continue;
                }
                if any(5) > 0 {
                    ended.push((utid, *asleep, now));
                }
                // Some waits last longer than others, so that they come later.
                *asleep = now + i64::from(any(60)) + 1;
                waits.push((*asleep, utid, (any(6) > 0).then_some(now)));
            }
            waits.sort_by_key(|wait| wait.0);
            let waits: Vec<_> = waits.iter().map(|wait| (wait.1, wait.2)).collect();
            let mut held = Sleeps::new(&[asked(&waits)]).unwrap();
            held.read(&states(&ended)).unwrap();
            for size in [1, 3, 100] {
                let (found, ordered) = followed(&ended, &waits, size);
                assert!(ordered);
                assert_eq!(found, held.found);
            }
            answers += held.found.iter().flatten().count();
        }
        assert!(answers > 1000, "{answers}");
    }

    #[test]
    fn rows_out_of_order_are_noticed() {
        let ended = [(1, 0, 10), (2, 5, 20)];
        let waits = [(1, Some(10)), (2, Some(20))];
        assert!(followed(&ended, &waits, 1).1);
        assert!(!followed(&[ended[1], ended[0]], &waits, 1).1);
        assert!(!followed(&ended, &[(1, Some(10)), (1, Some(5))], 1).1);
    }
}
