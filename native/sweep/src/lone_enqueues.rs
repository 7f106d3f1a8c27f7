//! Which threads were put on a queue without the decision to wake them having been seen?
use arrow_array::RecordBatch;
use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use rustc_hash::FxHashMap;

use crate::columns::full;
use crate::error::Result;
use crate::hooks::check_interrupt;
use crate::model::event::WakeKind;

/// Goes through the rows of `wakeups`, batch by batch: a thread's last step is held.
pub struct LoneEnqueues {
    half: i64,
    /// By utid: when its last step was, and whether that was a `waking`.
    last: FxHashMap<u32, (i64, bool)>,
    found: u64,
}

impl LoneEnqueues {
    /// A `waking` that was more than `half` ns before belongs to another wakeup.
    pub fn new(half: i64) -> Self {
        Self {
            half,
            last: FxHashMap::default(),
            found: 0,
        }
    }

    pub fn read(&mut self, batch: &RecordBatch) -> Result<()> {
        check_interrupt()?;
        let utids = full::<UInt32Type>(batch, "utid")?;
        let times = full::<Int64Type>(batch, "ts")?;
        let kinds = full::<UInt8Type>(batch, "kind")?;
        for ((utid, ts), kind) in utids.iter().zip(times).zip(kinds) {
            let waking = *kind == WakeKind::Waking as u8;
            if !waking && *kind != WakeKind::Enqueued as u8 {
                continue;
            }
            let before = self.last.insert(*utid, (*ts, waking));
            let decided =
                before.is_some_and(|(then, waking)| waking && ts.saturating_sub(then) <= self.half);
            self.found += u64::from(!waking && !decided);
        }
        Ok(())
    }

    pub fn found(&self) -> u64 {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, UInt8Array, UInt32Array};

    use super::*;

    #[test]
    fn an_enqueue_is_alone_without_a_waking_just_before() {
        let (waking, enqueued, new) = (
            WakeKind::Waking as u8,
            WakeKind::Enqueued as u8,
            WakeKind::New as u8,
        );
        let rows = [
            (5, 100, enqueued), // alone: the first of all
            (6, 110, waking),
            (5, 120, waking),
            (6, 130, enqueued),
            (6, 131, enqueued), // alone: an enqueue is before it
            (5, 135, new),      // no step of a wakeup
            (5, 170, enqueued), // just in time
            (6, 180, waking),
            (6, 231, enqueued), // alone: too late
        ];
        let mut lone = LoneEnqueues::new(50);
        for rows in rows.chunks(4) {
            let utid: ArrayRef = Arc::new(UInt32Array::from_iter_values(rows.iter().map(|r| r.0)));
            let ts: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.1)));
            let kind: ArrayRef = Arc::new(UInt8Array::from_iter_values(rows.iter().map(|r| r.2)));
            let batch = RecordBatch::try_from_iter([("utid", utid), ("ts", ts), ("kind", kind)]);
            lone.read(&batch.expect("columns of one length"))
                .expect("wakeups");
        }
        assert_eq!(lone.found(), 3);
    }
}
