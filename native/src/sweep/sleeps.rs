//! When did the sleep begin that a wakeup ended?
use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{Array, RecordBatch};

use crate::columns::{column, full};
use crate::error::{Error, Result};
use crate::model::event::End;
use crate::states::{Want, each};

/// Finds for each row of `asked` (utid, ts_ready; null where nothing is asked) the begin of
/// the interval that a wakeup ended at that instant, and the state in it.
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
        let want = Want {
            end: true,
            ..Want::default()
        };
        each(batch, 0, want, |row| {
            if row.end == End::Woken as u8 {
                self.woken(row.utid, row.ts, row.until, row.state);
            }
            Ok(())
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
