//! What the viewer knows of a long trace before it reads its rows.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::arrow::ArrowTable;
use super::run_sums::sums_table;
use super::tables::each_batch;
use crate::error::Result;
use schedscope_sweep::overview::{Overview, Shape};
use schedscope_sweep::run_sums::Sums;

/// ns that each CPU ran and idled per stretch (two arrays of u32), ns of each thread in each state
/// (u32), rows of each thread (u32), five i64 for each `chunk` of rows (when they begin and end,
/// the earliest end, and of the runs begin and end), and a bit per chunk and thread: whether it is
/// there; and what `run_sums` says, in the same pass. `states` has ts, dur, utid, state and cpu.
/// `bins`: stretches for CPUs and threads.
#[pyfunction]
pub fn overview<'py>(
    states: &Bound<'py, PyAny>,
    window: (i64, i64),
    cpus: usize,
    threads: usize,
    idle: u32,
    bins: (usize, usize),
    chunk: usize,
) -> Result<([Bound<'py, PyBytes>; 6], ArrowTable)> {
    let mut all = Overview::new(Shape {
        window,
        cpus,
        threads,
        idle,
        cpu_bins: bins.0,
        thread_bins: bins.1,
        chunk,
    })?;
    let mut sums = Sums::new(window);
    each_batch(states, |batch| {
        all.read(&batch)?;
        sums.read(&batch)
    })?;
    let py = states.py();
    let words = |values: &[u32]| -> Bound<'py, PyBytes> {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        PyBytes::new(py, &bytes)
    };
    let reach: Vec<u8> = all
        .reach
        .iter()
        .flat_map(|r| [r.begin, r.end, r.ends_from, r.run_begin, r.run_end])
        .flat_map(i64::to_le_bytes)
        .collect();
    let bytes = [
        words(&all.running),
        words(&all.idle),
        words(&all.spent),
        words(&all.counts),
        PyBytes::new(py, &reach),
        PyBytes::new(py, &all.present),
    ];
    Ok((bytes, sums_table(&sums, window.0)?))
}
