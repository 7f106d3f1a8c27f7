//! How quickly did threads run that another CPU woke: the shortest of each pair of CPUs, each way,
//! in each part of the window?
use arrow_array::types::{Int64Type, UInt8Type, UInt16Type};
use arrow_array::{Array, RecordBatch};
use rustc_hash::FxHashMap;

use crate::columns::{column, full};
use crate::error::Result;
use crate::hooks::check_interrupt;
use crate::model::event::Censored;

/// The CPU that woke, the one that ran the thread, and the part of the window in which it ran.
pub type Way = (u16, u16, u32);

/// Goes through the rows of `waits`, batch by batch: `shown` numbers a way are held.
pub struct Quickest {
    window: (i64, i64),
    parts: u32,
    shown: usize,
    of: FxHashMap<Way, Vec<i64>>,
}

impl Quickest {
    pub fn new(window: (i64, i64), parts: u32, shown: usize) -> Self {
        Self {
            window,
            parts,
            shown,
            of: FxHashMap::default(),
        }
    }

    pub fn read(&mut self, batch: &RecordBatch) -> Result<()> {
        check_interrupt()?;
        let censored = full::<UInt8Type>(batch, "censored")?;
        let wakers = column::<UInt16Type>(batch, "waker_cpu")?;
        let cpus = column::<UInt16Type>(batch, "cpu")?;
        let wakings = column::<Int64Type>(batch, "ts_waking")?;
        let readies = column::<Int64Type>(batch, "ts_ready")?;
        let runs = column::<Int64Type>(batch, "ts_run")?;
        for (i, &censored) in censored.iter().enumerate() {
            if censored != Censored::None as u8
                || wakers.is_null(i)
                || cpus.is_null(i)
                || runs.is_null(i)
                || wakers.value(i) == cpus.value(i)
            {
                continue;
            }
            let begun = if wakings.is_valid(i) {
                wakings.value(i)
            } else if readies.is_valid(i) {
                readies.value(i)
            } else {
                continue;
            };
            let run = runs.value(i);
            let way = (wakers.value(i), cpus.value(i), self.part(run));
            let least = self.of.entry(way).or_default();
            let took = run.saturating_sub(begun);
            let place = least.partition_point(|other| *other <= took);
            if place < self.shown {
                least.truncate(self.shown - 1);
                least.insert(place, took);
            }
        }
        Ok(())
    }

    fn part(&self, t: i64) -> u32 {
        let (begin, end) = self.window;
        let (passed, length) = (t.abs_diff(begin), end.abs_diff(begin).max(1));
        if t < begin {
            return 0;
        }
        let part = u128::from(passed) * u128::from(self.parts) / u128::from(length);
        part.min(u128::from(self.parts - 1)) as u32
    }

    /// A row for each time that is held, in order of way, the shortest first.
    pub fn rows(self) -> Vec<(Way, i64)> {
        let mut rows: Vec<_> = self
            .of
            .into_iter()
            .flat_map(|(way, least)| least.into_iter().map(move |took| (way, took)))
            .collect();
        rows.sort_unstable();
        rows
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, UInt8Array, UInt16Array};

    use super::*;

    #[test]
    fn the_shortest_two_of_each_way_and_part() {
        // Waker, CPU, waking, ready, run, censored.
        type Row = (
            Option<u16>,
            Option<u16>,
            Option<i64>,
            Option<i64>,
            Option<i64>,
            u8,
        );
        let rows: [Row; 10] = [
            (Some(0), Some(1), Some(10), Some(11), Some(17), 0),
            (Some(0), Some(1), None, Some(18), Some(20), 0),
            (Some(0), Some(1), Some(21), Some(21), Some(26), 0),
            (Some(0), Some(1), Some(60), Some(60), Some(99), 0),
            (Some(1), Some(0), Some(70), Some(70), Some(69), 0),
            (Some(1), Some(1), Some(70), Some(70), Some(71), 0),
            (None, Some(1), Some(70), Some(70), Some(71), 0),
            (Some(1), None, Some(70), Some(70), None, 0),
            (Some(1), Some(0), Some(70), Some(70), Some(70), 1),
            (Some(1), Some(0), Some(70), Some(70), Some(100), 0),
        ];
        let array = |of: fn(&Row) -> Option<i64>| -> ArrayRef {
            Arc::new(rows.iter().map(of).collect::<Int64Array>())
        };
        let cpu = |of: fn(&Row) -> Option<u16>| -> ArrayRef {
            Arc::new(rows.iter().map(of).collect::<UInt16Array>())
        };
        let censored: ArrayRef = Arc::new(UInt8Array::from_iter_values(rows.map(|row| row.5)));
        let batch = RecordBatch::try_from_iter([
            ("waker_cpu", cpu(|row| row.0)),
            ("cpu", cpu(|row| row.1)),
            ("ts_waking", array(|row| row.2)),
            ("ts_ready", array(|row| row.3)),
            ("ts_run", array(|row| row.4)),
            ("censored", censored),
        ])
        .expect("columns of one length");
        let mut quickest = Quickest::new((0, 100), 2, 2);
        quickest.read(&batch).expect("waits");
        let expected = [
            ((0, 1, 0), 2),
            ((0, 1, 0), 5),
            ((0, 1, 1), 39),
            ((1, 0, 1), -1),
            ((1, 0, 1), 30),
        ];
        assert_eq!(quickest.rows(), expected);
    }
}
