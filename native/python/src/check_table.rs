//! Whether a table from another program can be a trace's.

use pyo3::prelude::*;

use super::tables::source_of;
use crate::error::Result;
use schedscope_trace::store::{MOST_THREADS, plausible};

/// Raises `FormatError` unless the rows of `table` can be a trace's; `store/plausible.rs` has the
/// rules.
///
/// `table` has the columns of the trace model's table `name` but texts, categories as codes;
/// `file` is how errors call it. `threads`: one more than the highest utid.
#[pyfunction]
#[pyo3(signature = (table, name, file, ncpu, threads=MOST_THREADS, window=None))]
pub fn check_table(
    py: Python<'_>,
    table: &Bound<'_, PyAny>,
    name: &str,
    file: &str,
    ncpu: u16,
    threads: u32,
    window: Option<(i64, i64)>,
) -> Result<()> {
    let table = source_of(table, name)?;
    Ok(py.detach(|| plausible::check(&table, (name, file), (ncpu, threads), window))?)
}
