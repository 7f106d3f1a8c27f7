//! How did the wait begin that a thread is in?
use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, RecordBatch};

use super::rows::{column, full};
use crate::error::Result;

/// One wait: when its thread became ready, the row's number, and the cause's.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    pub ready: i64,
    pub number: u32,
    pub cause: u8,
}

/// The waits of each thread by the time they began; times in ns after the begin of the window.
pub struct Ledger {
    of: Vec<Vec<Wait>>,
    /// Of each thread, how many begin at the last instant asked for by `next` or before.
    past: Vec<usize>,
}

impl Ledger {
    /// Those whose begin was seen; of threads that are `wanted`.
    pub fn read(batches: &[RecordBatch], begin: i64, wanted: impl Fn(u32) -> bool) -> Result<Self> {
        let mut of: Vec<Vec<Wait>> = Vec::new();
        let mut number = 0;
        for batch in batches {
            super::pulse()?;
            let (utid, cause) = (
                full::<UInt32Type>(batch, "utid")?,
                full::<UInt8Type>(batch, "cause")?,
            );
            let ready = column::<Int64Type>(batch, "ts_ready")?;
            for i in 0..batch.num_rows() {
                if ready.is_valid(i) && wanted(utid[i]) {
                    let who = utid[i] as usize;
                    if of.len() <= who {
                        of.resize_with(who + 1, Vec::new);
                    }
                    let ready = ready.value(i).saturating_sub(begin);
                    of[who].push(Wait {
                        ready,
                        number,
                        cause: cause[i],
                    });
                }
                number += 1;
            }
        }
        for waits in &mut of {
            if !waits.is_sorted_by_key(|wait| wait.ready) {
                waits.sort_by_key(|wait| wait.ready);
            }
        }
        Ok(Self {
            past: vec![0; of.len()],
            of,
        })
    }

    /// The last wait of the thread to begin at `t` or before.
    pub fn at(&self, utid: u32, t: i64) -> Option<Wait> {
        let waits = self.of.get(utid as usize)?;
        let after = waits.partition_point(|wait| wait.ready <= t);
        after.checked_sub(1).map(|last| waits[last])
    }

    /// The same for instants that are asked for in order of time.
    #[inline]
    pub fn next(&mut self, utid: u32, t: i64) -> Option<Wait> {
        let (waits, past) = (
            self.of.get(utid as usize)?,
            self.past.get_mut(utid as usize)?,
        );
        while waits.get(*past).is_some_and(|wait| wait.ready <= t) {
            *past += 1;
        }
        past.checked_sub(1).map(|last| waits[last])
    }

    /// Begins anew with `next`.
    pub fn rewind(&mut self) {
        self.past.fill(0);
    }
}
