//! What the replay found, as Arrow tables.
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt8Array, UInt16Array, UInt32Array,
};

use super::{FairThread, Point, Tally};
use crate::columns::{PerThread, table};
use crate::error::Result;

/// One row per thread that was asked about and has any state.
pub fn summary(known: &[FairThread], tallies: &[Tally]) -> Result<RecordBatch> {
    let rows = PerThread::new(tallies, |utid, tally| {
        known.get(utid).is_some_and(|of| of.wanted) && tally.seen
    });
    table(vec![
        ("utid", rows.utids()),
        ("weight", rows.ints(|t| t.weight)),
        ("lag", rows.ints(|t| t.last.map(|(_, lag)| lag))),
        ("ts_lag", rows.ints(|t| t.last.map(|(ts, _)| ts))),
        ("lag_max", rows.ints(|t| t.most.map(|(_, lag)| lag))),
        ("ts_lag_max", rows.ints(|t| t.most.map(|(ts, _)| ts))),
        ("lag_min", rows.ints(|t| t.least.map(|(_, lag)| lag))),
        ("ts_lag_min", rows.ints(|t| t.least.map(|(ts, _)| ts))),
        ("picks", rows.counts(|t| t.picks)),
        ("picks_eligible", rows.counts(|t| t.eligible)),
        ("competed", rows.ints(|t| Some(t.competed))),
        ("unplaced", rows.ints(|t| Some(t.unplaced))),
        ("ts_settled", rows.ints(|t| t.settled)),
        ("n", rows.counts(|t| t.n)),
        ("n_censored", rows.counts(|t| t.n_censored)),
        ("n_excluded", rows.counts(|t| t.n_excluded)),
    ])
}

/// One row per turn of a thread.
pub fn series(points: &[Point]) -> Result<RecordBatch> {
    let ints = |get: &dyn Fn(&Point) -> i64| -> ArrayRef {
        Arc::new(points.iter().map(|p| Some(get(p))).collect::<Int64Array>())
    };
    let utid: UInt32Array = points.iter().map(|p| Some(p.utid)).collect();
    let cpu: UInt16Array = points.iter().map(|p| Some(p.cpu)).collect();
    let turn: UInt8Array = points.iter().map(|p| Some(p.turn as u8)).collect();
    let flags = |get: &dyn Fn(&Point) -> bool| -> ArrayRef {
        Arc::new(
            points
                .iter()
                .map(|p| Some(get(p)))
                .collect::<BooleanArray>(),
        )
    };
    table(vec![
        ("ts", ints(&|p| p.ts)),
        ("utid", Arc::new(utid)),
        ("cpu", Arc::new(cpu)),
        ("turn", Arc::new(turn)),
        ("weight", ints(&|p| p.weight)),
        ("lag", ints(&|p| p.lag)),
        ("vlag", ints(&|p| p.vlag)),
        ("eligible", flags(&|p| p.eligible)),
        ("settled", flags(&|p| p.settled)),
    ])
}
