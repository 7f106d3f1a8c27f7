//! What Python calls: a file for each question, and the tables it hands in and gets.

pub mod blame;
pub mod culprits;
pub mod idle;
pub mod lengths;
pub mod occupancy;
pub mod path;
pub mod queues;
pub mod run_sums;
pub mod sharing;
pub mod tiles;
pub mod weights;

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, UInt16Array, UInt32Array};
use pyo3::prelude::*;

use crate::error::Result;
use crate::store::python::Source;

fn ints(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn counts(values: impl Iterator<Item = u32>) -> ArrayRef {
    Arc::new(UInt32Array::from_iter_values(values))
}

fn cpus(values: impl Iterator<Item = Option<u16>>) -> ArrayRef {
    Arc::new(values.collect::<UInt16Array>())
}

fn floats(values: impl Iterator<Item = f64>) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(values))
}

/// Hands `take` the rows of `states`: a table on disk, page by page, or one in memory.
fn each_batch(
    states: &Bound<'_, PyAny>,
    mut take: impl FnMut(RecordBatch) -> Result<()> + Send,
) -> PyResult<()> {
    let source = Source::of(states, "states")?;
    Ok(states
        .py()
        .detach(|| source.batches().try_for_each(|batch| take(batch?)))?)
}
