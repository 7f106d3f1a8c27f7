//! What the replay found, as Arrow tables.
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, UInt8Array, UInt16Array, UInt32Array};

use super::{Known, Point, Tally};
use crate::arrow_ffi::ArrowTable;
use crate::error::Result;
use crate::interactivity::output::table;

/// One row per thread that was asked about and has any state.
pub fn summary(known: &[Known], tallies: &[Tally]) -> Result<ArrowTable> {
    let rows: Vec<(u32, &Tally)> = (0..)
        .zip(known.iter().zip(tallies))
        .filter(|(_, (thread, tally))| thread.wanted && tally.seen)
        .map(|(utid, (_, tally))| (utid, tally))
        .collect();
    let ints = |get: &dyn Fn(&Tally) -> Option<i64>| -> ArrayRef {
        Arc::new(
            rows.iter()
                .map(|(_, tally)| get(tally))
                .collect::<Int64Array>(),
        )
    };
    let counts = |get: &dyn Fn(&Tally) -> u32| -> ArrayRef {
        Arc::new(
            rows.iter()
                .map(|(_, tally)| Some(get(tally)))
                .collect::<UInt32Array>(),
        )
    };
    table(vec![
        (
            "utid",
            Arc::new(
                rows.iter()
                    .map(|(utid, _)| Some(*utid))
                    .collect::<UInt32Array>(),
            ),
        ),
        ("weight", ints(&|t| t.weight)),
        ("lag", ints(&|t| t.last.map(|(_, lag)| lag))),
        ("ts_lag", ints(&|t| t.last.map(|(ts, _)| ts))),
        ("lag_max", ints(&|t| t.most.map(|(_, lag)| lag))),
        ("ts_lag_max", ints(&|t| t.most.map(|(ts, _)| ts))),
        ("lag_min", ints(&|t| t.least.map(|(_, lag)| lag))),
        ("ts_lag_min", ints(&|t| t.least.map(|(ts, _)| ts))),
        ("picks", counts(&|t| t.picks)),
        ("picks_eligible", counts(&|t| t.eligible)),
        ("competed", ints(&|t| Some(t.competed))),
        ("unplaced", ints(&|t| Some(t.unplaced))),
        ("ts_settled", ints(&|t| t.settled)),
        ("n", counts(&|t| t.n)),
        ("n_censored", counts(&|t| t.n_censored)),
        ("n_excluded", counts(&|t| t.n_excluded)),
    ])
}

/// One row per turn of a thread.
pub fn series(points: &[Point]) -> Result<ArrowTable> {
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
