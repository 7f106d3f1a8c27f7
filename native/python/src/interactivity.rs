//! Scores of recorded threads by a scheduler's rule for interactive ones.

use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::tables::{Frames, rows_in, source_in};
use crate::error::Result;
use schedscope_sim::interactivity::tables::{Tables, score};

/// Scores of recorded threads by the rule of `scheduler`, a preset's name with
/// settings `given`: a row per thread, and with `series` one per change.
///
/// `frames`: `states` (utid, ts, dur, codes state and end, and waker_utid for a rule that asks
/// whether a thread's wakeup began a wait; idle threads have utids below `ncpu`), `threads` (utid,
/// start_ts, exit_ts, parent_utid, nice, flags 1 scored, 2 wanted), `locks` (utid, ts of
/// waits for locks). `phase`: an instant at which the clock ticked.
#[pyfunction]
#[pyo3(signature = (scheduler, given, frames, window, phase=None, series=false, ncpu=1))]
#[expect(clippy::too_many_arguments, reason = "Python's keywords")]
pub fn interactivity(
    py: Python<'_>,
    scheduler: &str,
    given: Vec<(String, String)>,
    frames: Frames<'_>,
    window: (i64, i64),
    phase: Option<i64>,
    series: bool,
    ncpu: usize,
) -> Result<(ArrowTable, ArrowTable)> {
    let tables = Tables {
        states: source_in(&frames, "states")?,
        threads: rows_in(&frames, "threads")?,
        locks: rows_in(&frames, "locks")?,
        ncpu,
        window,
    };
    let (threads, changes) = py.detach(|| score((scheduler, &given), &tables, phase, series))?;
    Ok((threads.into(), changes.into()))
}
