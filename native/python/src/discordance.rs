//! Whether a simulation has the order of its recording.
use pyo3::prelude::*;

use schedscope_sim::kendall;

/// Of the pairs of instants of `first`, which rises, that are more than `apart` ns from each
/// other: how many there are, and how many come the other way round in `second`.
#[pyfunction]
pub fn discordance(py: Python<'_>, first: Vec<i64>, second: Vec<i64>, apart: i64) -> (u64, u64) {
    py.detach(|| kendall::discordance(&first, &second, apart))
}
