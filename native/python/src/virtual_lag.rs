//! What the rules of CFS or EEVDF owe to recorded threads.

use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::tables::{Frames, source_in};
use super::weights::{GivenWeights, weights_of};
use crate::error::Result;
use schedscope_sim::virtual_lag::tables::{Tables, lags};

/// Rows per thread, rows per turn, and of each thread whether its weight was an assumption.
type Found = (ArrowTable, ArrowTable, Vec<(u32, bool)>);

/// What the rules of `scheduler`, a preset's name with settings `given`, owe to
/// each recorded thread: a row per thread, and with `series` one per turn of each.
///
/// `frames`: `states` (ts, dur, utid, codes state and end, cpu, prio) and `threads` (utid,
/// start_ts, parent_utid, wanted). `sharing`: what `CpuHistory` takes as weights, and by the number
/// of a class whether it is of the fair kind. `phase`: an instant at which the clock ticked. With a
/// row per thread of `states`: whether its weight was an assumption in any.
#[pyfunction]
#[pyo3(signature = (scheduler, given, frames, sharing, window, ncpu, phase=0, series=false))]
#[expect(clippy::too_many_arguments, reason = "Python's keywords")]
pub fn virtual_lag(
    py: Python<'_>,
    scheduler: &str,
    given: Vec<(String, String)>,
    frames: Frames<'_>,
    sharing: (GivenWeights<'_>, Vec<bool>),
    window: (i64, i64),
    ncpu: usize,
    phase: i64,
    series: bool,
) -> Result<Found> {
    let tables = Tables {
        states: source_in(&frames, "states")?,
        threads: source_in(&frames, "threads")?,
        weights: weights_of(sharing.0)?,
        fair: sharing.1,
        ncpu,
        window,
    };
    let (threads, turns, assumed) =
        py.detach(|| lags((scheduler, &given), &tables, phase, series))?;
    Ok((threads.into(), turns.into(), assumed))
}
