//! What the fold found, as Arrow tables.
use std::sync::Arc;

use arrow_array::{BooleanArray, Int64Array, RecordBatch, UInt32Array};

use super::fold::{Point, ScoredThread, Tally};
use crate::columns::{PerThread, table};
use crate::error::Result;

/// One row per thread that was asked about and has any state.
pub fn summary(known: &[ScoredThread], tallies: &[Tally]) -> Result<RecordBatch> {
    let rows = PerThread::new(tallies, |utid, tally| {
        known.get(utid).is_some_and(|of| of.wanted) && tally.seen
    });
    let is_interactive = rows.values(|t| t.score.map(|_| t.is_interactive));
    table(vec![
        ("utid", rows.utids()),
        ("score", rows.ints(|t| t.score)),
        ("score_min", rows.ints(|t| t.score.map(|_| t.min))),
        ("score_max", rows.ints(|t| t.score.map(|_| t.max))),
        (
            "is_interactive",
            Arc::new(is_interactive.collect::<BooleanArray>()),
        ),
        ("ts_interactive", rows.ints(|t| t.first)),
        ("interactive", rows.ints(|t| Some(t.times[1]))),
        ("observed", rows.ints(|t| Some(t.times[0] + t.times[1]))),
        ("unknown", rows.ints(|t| Some(t.unknown))),
        ("transitions", rows.counts(|t| t.transitions)),
        ("ts_settled", rows.ints(|t| t.settled)),
        ("n", rows.counts(|t| t.n)),
        ("n_censored", rows.counts(|t| t.n_censored)),
        ("n_excluded", rows.counts(|t| t.n_excluded)),
    ])
}

/// One row per change of a score.
pub fn series(points: &[Point]) -> Result<RecordBatch> {
    let ts: Int64Array = points.iter().map(|p| Some(p.ts)).collect();
    let utid: UInt32Array = points.iter().map(|p| Some(p.utid)).collect();
    let score: Int64Array = points
        .iter()
        .map(|p| p.score.map(|(score, _)| score))
        .collect();
    let is: BooleanArray = points.iter().map(|p| p.score.map(|(_, is)| is)).collect();
    table(vec![
        ("ts", Arc::new(ts)),
        ("utid", Arc::new(utid)),
        ("score", Arc::new(score)),
        ("interactive", Arc::new(is)),
    ])
}
