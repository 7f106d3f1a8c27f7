//! What the fold found, as Arrow tables.
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt32Array};
use arrow_schema::{Field, Schema};

use super::fold::{Known, Point, Tally};
use crate::arrow_ffi::ArrowTable;
use crate::error::{Error, Result};

/// A table of columns of one length.
pub(crate) fn table(columns: Vec<(&str, ArrayRef)>) -> Result<ArrowTable> {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays)
        .map_err(|error| Error::usage(format!("a table that does not fit: {error}"), "", ""))?;
    Ok(ArrowTable::new(schema, vec![batch]))
}

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
        ("score", ints(&|t| t.score)),
        ("score_min", ints(&|t| t.score.map(|_| t.min))),
        ("score_max", ints(&|t| t.score.map(|_| t.max))),
        (
            "is_interactive",
            Arc::new(
                rows.iter()
                    .map(|(_, t)| t.score.map(|_| t.is_interactive))
                    .collect::<BooleanArray>(),
            ),
        ),
        ("ts_interactive", ints(&|t| t.first)),
        ("interactive", ints(&|t| Some(t.times[1]))),
        ("observed", ints(&|t| Some(t.times[0] + t.times[1]))),
        ("unknown", ints(&|t| Some(t.unknown))),
        ("transitions", counts(&|t| t.transitions)),
        ("ts_settled", ints(&|t| t.settled)),
        ("n", counts(&|t| t.n)),
        ("n_censored", counts(&|t| t.n_censored)),
        ("n_excluded", counts(&|t| t.n_excluded)),
    ])
}

/// One row per change of a score.
pub fn series(points: &[Point]) -> Result<ArrowTable> {
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
