//! The critical path.

use std::sync::Arc;

use arrow_array::{UInt8Array, UInt32Array};
use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::tables::{counts, cpus, each_batch, ints, source_of, table};
use crate::error::{EngineResult, Error, Result};
use schedscope_sweep::path;

/// The steps of the path that led thread `utid` to the end of the `interval`, in order of time.
///
/// `part` is called for part after part of the trace, each time with the instant up to which it is
/// needed, and answers (`states`, `waits`, the instant before it from which on it has all that they
/// have). `states` has ts, dur, utid, state, cpu and end, `waits` utid, ts_ready, ts_run,
/// ts_enqueued, cause and waker_utid; `idle`: the number of idle threads; `parents` by utid.
#[pyfunction]
pub fn critical_path(
    py: Python<'_>,
    part: &Bound<'_, PyAny>,
    interval: (i64, i64),
    utid: u32,
    idle: u32,
    parents: Vec<Option<u32>>,
) -> Result<ArrowTable> {
    let mut walk = path::Walk::new(interval, utid, idle, &parents);
    let mut needed = Some(interval.1);
    while let Some(until) = needed {
        let (states, waits, since) =
            part.call1((until,))?
                .extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>, i64)>()?;
        let waits = source_of(&waits, "waits")?
            .batches()
            .collect::<EngineResult<Vec<_>>>()?;
        let mut rows = Vec::new();
        each_batch(&states, |batch| {
            rows.push(batch);
            Ok(())
        })?;
        needed = py.detach(|| {
            let lives = path::Lives::new(&rows, &waits, (since, until))?;
            walk.go(&lives, since)
        })?;
        if needed.is_some_and(|needed| needed >= until) {
            return Err(Error::internal("a part of a trace that is none").into());
        }
    }
    let mut steps = walk.steps;
    steps.reverse();
    table(vec![
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
    ])
}
