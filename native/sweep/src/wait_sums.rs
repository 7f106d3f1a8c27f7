//! How long did each thread wait in all, how long at most, and when did that wait begin?
use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{Array, RecordBatch};
use rustc_hash::FxHashMap;

use crate::columns::{column, full};
use crate::error::Result;
use crate::hooks::check_interrupt;

/// The waits of one thread of which both the start and the length are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sum {
    pub utid: u32,
    pub wait: i64,
    pub longest: i64,
    /// When the longest began, the first of equals, ns.
    pub ready: i64,
}

/// Goes through the rows of `waits`, batch by batch: a row per thread is held.
#[derive(Default)]
pub struct Sums {
    pub found: Vec<Sum>,
    of: FxHashMap<u32, usize>,
}

impl Sums {
    pub fn read(&mut self, batch: &RecordBatch) -> Result<()> {
        check_interrupt()?;
        let utids = full::<UInt32Type>(batch, "utid")?;
        let starts = column::<Int64Type>(batch, "ts_ready")?;
        let waits = column::<Int64Type>(batch, "wait")?;
        for (i, &utid) in utids.iter().enumerate() {
            if starts.is_null(i) || waits.is_null(i) {
                continue;
            }
            let (ready, wait) = (starts.value(i), waits.value(i));
            let at = *self.of.entry(utid).or_insert_with(|| {
                self.found.push(Sum {
                    utid,
                    wait: 0,
                    longest: wait,
                    ready,
                });
                self.found.len() - 1
            });
            let sum = &mut self.found[at];
            sum.wait = sum.wait.saturating_add(wait);
            if wait > sum.longest || (wait == sum.longest && ready < sum.ready) {
                (sum.longest, sum.ready) = (wait, ready);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, UInt32Array};

    use super::*;

    #[test]
    fn the_longest_is_the_first_of_equals_and_unknown_waits_are_none() {
        let rows = [
            (7, Some(30), Some(5)),
            (7, Some(10), Some(5)),
            (8, Some(1), None),
            (7, None, Some(9)),
            (7, Some(50), Some(2)),
            (9, Some(60), Some(0)),
        ];
        let columns: [(&str, ArrayRef); 3] = [
            (
                "utid",
                Arc::new(UInt32Array::from_iter_values(rows.map(|row| row.0))),
            ),
            (
                "ts_ready",
                Arc::new(rows.map(|row| row.1).into_iter().collect::<Int64Array>()),
            ),
            (
                "wait",
                Arc::new(rows.map(|row| row.2).into_iter().collect::<Int64Array>()),
            ),
        ];
        let mut sums = Sums::default();
        sums.read(&RecordBatch::try_from_iter(columns).unwrap())
            .unwrap();
        let told: Vec<_> = sums
            .found
            .iter()
            .map(|sum| (sum.utid, sum.wait, sum.longest, sum.ready))
            .collect();
        assert_eq!(told, [(7, 12, 5, 10), (9, 0, 0, 60)]);
    }
}
