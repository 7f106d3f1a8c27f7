//! Enqueues whose `waking` was not seen.

use pyo3::prelude::*;

use super::tables::source_of;
use crate::error::Result;
use schedscope_sweep::lone_enqueues::LoneEnqueues;

/// How many rows `enqueued` of `wakeups` (utid, kind) no `waking` of the thread came before, without
/// another step of a wakeup between them.
#[pyfunction]
pub fn lone_enqueues(wakeups: &Bound<'_, PyAny>) -> Result<u64> {
    let source = source_of(wakeups, "wakeups")?;
    let mut lone = LoneEnqueues::default();
    wakeups
        .py()
        .detach(|| source.batches().try_for_each(|rows| lone.read(&rows?)))?;
    Ok(lone.found())
}
