//! The quickest wakeups from one CPU to another.

use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::tables::{counts, cpus, ints, source_of, table};
use crate::sweep::quickest::Quickest;

/// Times that are kept of each way and part: `SHOWN` of `analysis/_base/clock_doubt.py`.
const SHOWN: usize = 2;

/// Of the whole waits in `waits` that another CPU's wakeup began, by that CPU, the one that ran the
/// thread and the equal part of the window in which it did: the two shortest times (ns) from
/// waking to running. `waits` has `waker_cpu`, `cpu`, `ts_waking`, `ts_ready`, `ts_run`, `censored`.
#[pyfunction]
pub fn quickest_wakeups(
    waits: &Bound<'_, PyAny>,
    window: (i64, i64),
    parts: u32,
) -> PyResult<ArrowTable> {
    let source = source_of(waits, "waits")?;
    let mut quickest = Quickest::<SHOWN>::new(window, parts.max(1));
    waits.py().detach(|| {
        source
            .batches()
            .try_for_each(|batch| quickest.read(&batch?))
    })?;
    let rows = quickest.rows();
    Ok(table(vec![
        (
            "waker_cpu",
            cpus(rows.iter().map(|((waker, ..), _)| Some(*waker))),
        ),
        ("cpu", cpus(rows.iter().map(|((_, cpu, _), _)| Some(*cpu)))),
        ("part", counts(rows.iter().map(|((.., part), _)| *part))),
        ("took", ints(rows.iter().map(|(_, took)| *took))),
    ])?)
}
