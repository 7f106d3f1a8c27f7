//! What threads' runs sum up to.

use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::tables::{counts, cpus, each_batch, ints, table};
use crate::error::Result;
use schedscope_sweep::run_sums::Sums;
use schedscope_trace::states::NOWHERE;

/// A row per thread (idle ones, too) and CPU on which it ran within the window: `states` has ts,
/// dur, utid, state and cpu.
#[pyfunction]
pub fn run_sums(states: &Bound<'_, PyAny>, window: (i64, i64)) -> Result<ArrowTable> {
    let mut sums = Sums::new(window);
    each_batch(states, |batch| sums.read(&batch))?;
    sums_table(&sums, window.0)
}

/// The same as a table, of sums in a window that begins at `begin`.
pub fn sums_table(sums: &Sums, begin: i64) -> Result<ArrowTable> {
    let found = &sums.found;
    let cpu = |cpu: u16| (cpu != NOWHERE).then_some(cpu);
    table(vec![
        ("utid", counts(found.iter().map(|sum| sum.utid))),
        ("cpu", cpus(found.iter().map(|sum| cpu(sum.cpu)))),
        ("running", ints(found.iter().map(|sum| sum.running))),
        ("runs", counts(found.iter().map(|sum| sum.runs))),
        ("ts_first", ints(found.iter().map(|sum| sum.first + begin))),
        ("ts_last", ints(found.iter().map(|sum| sum.last + begin))),
    ])
}
