//! Which threads were put on a queue without the decision to wake them having been seen?
use arrow_array::RecordBatch;
use arrow_array::types::{UInt8Type, UInt32Type};
use rustc_hash::FxHashMap;

use crate::columns::full;
use crate::error::Result;
use crate::hooks::check_interrupt;
use crate::model::event::WakeKind;

/// Goes through the rows of `wakeups`, batch by batch: a thread's last step is held.
#[derive(Default)]
pub struct LoneEnqueues {
    /// By utid: whether its last step was a `waking`.
    last: FxHashMap<u32, bool>,
    found: u64,
}

impl LoneEnqueues {
    pub fn read(&mut self, batch: &RecordBatch) -> Result<()> {
        check_interrupt()?;
        let utids = full::<UInt32Type>(batch, "utid")?;
        let kinds = full::<UInt8Type>(batch, "kind")?;
        for (utid, kind) in utids.iter().zip(kinds) {
            let waking = *kind == WakeKind::Waking as u8;
            if !waking && *kind != WakeKind::Enqueued as u8 {
                continue;
            }
            let decided = self.last.insert(*utid, waking) == Some(true);
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

    use arrow_array::{ArrayRef, UInt8Array, UInt32Array};

    use super::*;

    #[test]
    fn an_enqueue_is_alone_without_a_waking_before() {
        let (waking, enqueued, new) = (
            WakeKind::Waking as u8,
            WakeKind::Enqueued as u8,
            WakeKind::New as u8,
        );
        let rows = [
            (5, enqueued), // alone: the first of all
            (6, waking),
            (5, waking),
            (6, enqueued),
            (6, enqueued), // alone: an enqueue is before it
            (5, new),      // no step of a wakeup
            (5, enqueued),
        ];
        let mut lone = LoneEnqueues::default();
        for rows in rows.chunks(4) {
            let utid: ArrayRef = Arc::new(UInt32Array::from_iter_values(rows.iter().map(|r| r.0)));
            let kind: ArrayRef = Arc::new(UInt8Array::from_iter_values(rows.iter().map(|r| r.1)));
            let batch = RecordBatch::try_from_iter([("utid", utid), ("kind", kind)]);
            lone.read(&batch.expect("columns of one length"))
                .expect("wakeups");
        }
        assert_eq!(lone.found(), 2);
    }
}
