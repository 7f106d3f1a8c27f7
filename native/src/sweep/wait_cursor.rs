//! How did the wait begin that a thread is in, for a sweep that asks as it goes?
use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, RecordBatch};

use crate::columns::{column, full};
use crate::error::Result;

/// One wait: its number among the thread's, and its cause's.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    pub number: usize,
    pub cause: u8,
}

/// Ready and cause in one number: a sweep comes by all threads' waits in turn, and the closer
/// they are, the fewer times it has to fetch them.
#[derive(Clone, Copy)]
struct Packed(i64);

impl Packed {
    fn new(ready: i64, cause: u8) -> Self {
        // Farther off than 36 years is no time of a trace.
        let ready = ready.clamp(-1 << 60, (1 << 60) - 1);
        Self(ready << 3 | i64::from(cause & 7))
    }

    fn ready(self) -> i64 {
        self.0 >> 3
    }

    fn wait(self, number: usize) -> Wait {
        Wait {
            number,
            cause: (self.0 & 7) as u8,
        }
    }
}

/// The waits of each thread by the time they began; times in ns after the begin of the window.
pub struct WaitCursor {
    of: Vec<Vec<Packed>>,
    /// Of each thread, where `next` is.
    places: Vec<Next>,
}

/// The wait that follows is fetched before anybody asks for it.
#[derive(Clone, Copy)]
struct Next {
    /// How many begin at the last instant asked for or before, and the last of them.
    past: usize,
    last: Packed,
    /// If there is one.
    following: Packed,
}

impl WaitCursor {
    /// Those whose begin was seen; of threads that are `wanted`.
    pub fn read(
        batches: impl Iterator<Item = Result<RecordBatch>>,
        begin: i64,
        wanted: impl Fn(u32) -> bool,
    ) -> Result<Self> {
        let mut of: Vec<Vec<Packed>> = Vec::new();
        for batch in batches {
            crate::hooks::check_interrupt()?;
            let batch = batch?;
            let (utid, cause) = (
                full::<UInt32Type>(&batch, "utid")?,
                full::<UInt8Type>(&batch, "cause")?,
            );
            let ready = column::<Int64Type>(&batch, "ts_ready")?;
            for i in 0..batch.num_rows() {
                if ready.is_valid(i) && wanted(utid[i]) {
                    let who = utid[i] as usize;
                    if of.len() <= who {
                        of.resize_with(who + 1, Vec::new);
                    }
                    let ready = ready.value(i).saturating_sub(begin);
                    of[who].push(Packed::new(ready, cause[i]));
                }
            }
        }
        for waits in &mut of {
            if !waits.is_sorted_by_key(|wait| wait.ready()) {
                waits.sort_by_key(|wait| wait.ready());
            }
        }
        let mut ledger = Self {
            of,
            places: Vec::new(),
        };
        ledger.rewind();
        Ok(ledger)
    }

    /// The last wait of the thread to begin at `t` or before; instants are asked for in order of
    /// time.
    #[inline]
    pub fn next(&mut self, utid: u32, t: i64) -> Option<Wait> {
        let (waits, place) = (
            self.of.get(utid as usize)?,
            self.places.get_mut(utid as usize)?,
        );
        while place.past < waits.len() && place.following.ready() <= t {
            place.past += 1;
            place.last = place.following;
            if let Some(following) = waits.get(place.past) {
                place.following = *following;
            }
        }
        let number = place.past.checked_sub(1)?;
        Some(place.last.wait(number))
    }

    /// Begins anew with `next`.
    pub fn rewind(&mut self) {
        let first = self.of.iter().map(|waits| waits.first().copied());
        self.places = first
            .map(|first| {
                let following = first.unwrap_or(Packed(0));
                Next {
                    past: 0,
                    last: following,
                    following,
                }
            })
            .collect();
    }
}
