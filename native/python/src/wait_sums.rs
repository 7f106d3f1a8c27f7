//! What threads' waits sum up to.

use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::tables::{counts, ints, source_of, table};
use crate::error::Result;
use schedscope_sweep::wait_sums::Sums;

/// A row per thread of which a wait is known with its start: their sum, the longest, and when
/// that began. `waits` has utid, ts_ready and wait.
#[pyfunction]
pub fn wait_sums(waits: &Bound<'_, PyAny>) -> Result<ArrowTable> {
    let source = source_of(waits, "waits")?;
    let mut sums = Sums::default();
    waits
        .py()
        .detach(|| source.batches().try_for_each(|batch| sums.read(&batch?)))?;
    let found = &sums.found;
    table(vec![
        ("utid", counts(found.iter().map(|sum| sum.utid))),
        ("wait", ints(found.iter().map(|sum| sum.wait))),
        ("longest", ints(found.iter().map(|sum| sum.longest))),
        ("ts_ready", ints(found.iter().map(|sum| sum.ready))),
    ])
}
