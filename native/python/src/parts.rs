//! What lies in each of the equal parts of a window.

use pyo3::prelude::*;

use super::tables::source_of;
use crate::error::Result;
use schedscope_sweep::parts::{Instants, Only, Parts, Time};

/// How much of the intervals in `spans` (ts, dur) lies in each part of the window, ns. `only`: of
/// those in this state (its code), of threads from this utid on; then `spans` has state and utid.
///
/// `step`, the length of a part, is more than 0.
#[pyfunction]
#[pyo3(signature = (spans, window, step, only=None))]
pub fn time_in_parts(
    spans: &Bound<'_, PyAny>,
    window: (i64, i64),
    step: i64,
    only: Option<(u8, u32)>,
) -> Result<Vec<i64>> {
    let source = source_of(spans, "spans")?;
    let only = only.map(|(state, from)| Only { state, from });
    let mut time = Time::new(Parts::new(window, step));
    spans.py().detach(|| {
        source
            .batches()
            .try_for_each(|rows| time.read(&rows?, only))
    })?;
    Ok(time.finish())
}

/// How many rows of a table have their `ts` in each part of the window.
#[pyfunction]
pub fn rows_in_parts(rows: &Bound<'_, PyAny>, window: (i64, i64), step: i64) -> Result<Vec<u32>> {
    let source = source_of(rows, "rows")?;
    let mut instants = Instants::new(Parts::new(window, step));
    rows.py()
        .detach(|| source.batches().try_for_each(|rows| instants.read(&rows?)))?;
    Ok(instants.found)
}
