//! How did the waits begin that a sweep found, asked when it is over?
use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, RecordBatch};

use crate::columns::{column, full};
use crate::error::Result;

/// Before any wait; times in ns after the begin of the window.
const NEVER: i64 = i64::MIN;

/// An instant, and the last wait of the thread to begin at it or before.
#[derive(Debug, Clone, Copy)]
struct Asked {
    at: i64,
    ready: i64,
    cause: u8,
}

/// What is asked about one thread, in order of time.
#[derive(Default, Clone)]
struct OfThread {
    asked: Vec<Asked>,
    /// The one that the last wait was for: the next is not far.
    near: usize,
}

impl OfThread {
    /// A wait, for the first instant that is not before its begin.
    #[inline]
    fn add(&mut self, ready: i64, cause: u8) {
        let Self { asked, near } = self;
        while *near > 0 && asked[*near - 1].at >= ready {
            *near -= 1;
        }
        while *near < asked.len() && asked[*near].at < ready {
            *near += 1;
        }
        if let Some(asked) = asked.get_mut(*near)
            && asked.ready <= ready
        {
            (asked.ready, asked.cause) = (ready, cause);
        }
    }
}

/// Waits that are asked about by thread and instant. The ledger is gone through once, and of it
/// only these are kept.
pub struct WaitStarts(Vec<OfThread>);

impl WaitStarts {
    /// Threads are by utid, below `threads`; of others nothing is known.
    pub fn new(threads: usize, asked: impl Iterator<Item = (u32, i64)>) -> Self {
        let mut of = vec![OfThread::default(); threads];
        for (utid, at) in asked {
            if let Some(thread) = of.get_mut(utid as usize) {
                thread.asked.push(Asked {
                    at,
                    ready: NEVER,
                    cause: 0,
                });
            }
        }
        for thread in &mut of {
            thread.asked.sort_by_key(|asked| asked.at);
        }
        Self(of)
    }

    /// Rows of the ledger (utid, ts_ready, cause); those whose begin was not seen are left out.
    pub fn read(&mut self, batch: &RecordBatch, begin: i64) -> Result<()> {
        crate::hooks::check_interrupt()?;
        let (utid, cause) = (
            full::<UInt32Type>(batch, "utid")?,
            full::<UInt8Type>(batch, "cause")?,
        );
        let ready = column::<Int64Type>(batch, "ts_ready")?;
        for i in 0..batch.num_rows() {
            if ready.is_valid(i)
                && let Some(thread) = self.0.get_mut(utid[i] as usize)
            {
                thread.add(ready.value(i).saturating_sub(begin), cause[i]);
            }
        }
        Ok(())
    }

    /// All rows were read.
    pub fn finish(&mut self) {
        for thread in &mut self.0 {
            let mut last = (NEVER, 0);
            for asked in &mut thread.asked {
                if asked.ready == NEVER {
                    (asked.ready, asked.cause) = last;
                }
                last = (asked.ready, asked.cause);
            }
        }
    }

    /// When the wait began in which the thread is at an instant that was asked for, and why.
    pub fn at(&self, utid: u32, t: i64) -> Option<(i64, u8)> {
        let asked = &self.0.get(utid as usize)?.asked;
        let at = asked.binary_search_by_key(&t, |asked| asked.at).ok()?;
        let Asked { ready, cause, .. } = asked[at];
        (ready != NEVER).then_some((ready, cause))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, UInt8Array, UInt32Array};

    use super::*;

    /// The same by a look at all waits.
    fn plain(waits: &[(u32, Option<i64>, u8)], utid: u32, t: i64) -> Option<(i64, u8)> {
        let own = waits.iter().filter(|wait| wait.0 == utid);
        let begun = own.filter_map(|wait| Some((wait.1?, wait.2)));
        // Of equals, `max_by_key` takes the last.
        begun.filter(|wait| wait.0 <= t).max_by_key(|wait| wait.0)
    }

    #[test]
    fn finds_what_a_look_at_all_finds() {
        let mut seed = 7u32;
        let mut any = |n: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % n
        };
        let mut found = 0;
        for _ in 0..200 {
            // Not even in order.
            let waits: Vec<(u32, Option<i64>, u8)> = (0..any(40))
                .map(|_| {
                    let ready = (any(9) > 0).then_some(i64::from(any(30)));
                    (any(4), ready, any(5) as u8)
                })
                .collect();
            let asked: Vec<(u32, i64)> = (0..any(20))
                .map(|_| (any(4), i64::from(any(35)) - 2))
                .collect();
            let column = |array: ArrayRef| array;
            let batch = RecordBatch::try_from_iter([
                (
                    "utid",
                    column(Arc::new(UInt32Array::from_iter_values(
                        waits.iter().map(|wait| wait.0),
                    ))),
                ),
                (
                    "ts_ready",
                    column(Arc::new(
                        waits
                            .iter()
                            .map(|wait| Some(wait.1? + 5))
                            .collect::<Int64Array>(),
                    )),
                ),
                (
                    "cause",
                    column(Arc::new(UInt8Array::from_iter_values(
                        waits.iter().map(|wait| wait.2),
                    ))),
                ),
            ])
            .expect("a batch");
            let mut begun = WaitStarts::new(3, asked.iter().copied());
            begun.read(&batch, 5).expect("columns");
            begun.finish();
            for (utid, t) in asked {
                let expected = plain(&waits, utid, t).filter(|_| utid < 3);
                assert_eq!(begun.at(utid, t), expected, "{waits:?} {utid} {t}");
                found += usize::from(expected.is_some());
            }
        }
        assert!(found > 200, "{found}");
    }
}
