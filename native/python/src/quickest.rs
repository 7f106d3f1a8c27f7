//! The quickest wakeups from one CPU to another.

use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::tables::{counts, cpus, ints, source_of, table};
use crate::error::Result;
use schedscope_sweep::quickest::Quickest;

/// Of the whole waits in `waits` that another CPU's wakeup began, by that CPU, the one that ran the
/// thread and the equal part of the window in which it did: the `shown` shortest times (ns) from
/// waking to running. `waits` has `waker_cpu`, `cpu`, `ts_waking`, `ts_ready`, `ts_run`,
/// `censored`.
#[pyfunction]
pub fn quickest_wakeups(
    waits: &Bound<'_, PyAny>,
    window: (i64, i64),
    parts: u32,
    shown: usize,
) -> Result<ArrowTable> {
    let source = source_of(waits, "waits")?;
    let mut quickest = Quickest::new(window, parts.max(1), shown);
    waits.py().detach(|| {
        source
            .batches()
            .try_for_each(|batch| quickest.read(&batch?))
    })?;
    let rows = quickest.rows();
    table(vec![
        (
            "waker_cpu",
            cpus(rows.iter().map(|((waker, ..), _)| Some(*waker))),
        ),
        ("cpu", cpus(rows.iter().map(|((_, cpu, _), _)| Some(*cpu)))),
        ("part", counts(rows.iter().map(|((.., part), _)| *part))),
        ("took", ints(rows.iter().map(|(_, took)| *took))),
    ])
}
