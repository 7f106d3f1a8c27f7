//! The critical path.

use std::sync::Arc;

use arrow_array::{UInt8Array, UInt32Array};
use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::tables::{counts, cpus, each_batch, ints, source_of, table};
use crate::error::Result;
use crate::sweep::path;

/// The steps of the path that led thread `utid` to the end of the `interval`, in order of time.
///
/// `states` has ts, dur, utid, state, cpu and end, `waits` utid, ts_ready, ts_run,
/// ts_enqueued, cause and waker_utid; `idle`: the number of idle threads; `parents` by utid.
#[pyfunction]
pub fn critical_path(
    py: Python<'_>,
    states: &Bound<'_, PyAny>,
    waits: &Bound<'_, PyAny>,
    interval: (i64, i64),
    utid: u32,
    idle: u32,
    parents: Vec<Option<u32>>,
) -> PyResult<ArrowTable> {
    let waits = source_of(waits, "waits")?
        .batches()
        .collect::<Result<Vec<_>>>()?;
    let mut rows = Vec::new();
    each_batch(states, |batch| {
        rows.push(batch);
        Ok(())
    })?;
    let mut steps = py.detach(|| -> Result<_> {
        let lives = path::Lives::new(&rows, &waits, interval)?;
        path::walk(&lives, interval, utid, idle, &parents)
    })?;
    steps.reverse();
    Ok(table(vec![
        ("ts", ints(steps.iter().map(|step| step.ts))),
        ("dur", ints(steps.iter().map(|step| step.until - step.ts))),
        (
            "kind",
            Arc::new(UInt8Array::from_iter_values(
                steps.iter().map(|step| step.kind as u8),
            )),
        ),
        ("utid", counts(steps.iter().map(|step| step.utid))),
        ("cpu", cpus(steps.iter().map(|step| step.cpu))),
        (
            "ended",
            Arc::new(UInt8Array::from_iter_values(
                steps.iter().map(|step| step.ended as u8),
            )),
        ),
        (
            "other_utid",
            Arc::new(steps.iter().map(|step| step.other).collect::<UInt32Array>()),
        ),
    ])?)
}
