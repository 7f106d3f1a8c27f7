//! The sleeps that wakeups ended.

use std::sync::Arc;

use arrow_array::{Int64Array, UInt8Array};
use arrow_select::concat::concat_batches;
use pyo3::prelude::*;

use super::arrow::{ArrowTable, read_stream};
use super::tables::{each_batch, source_of, table};
use crate::error::{Error, Result};
use schedscope_sweep::sleeps::{Follower, Sleeps};
use schedscope_trace::store::Source;

/// The sleep that each wakeup ended: its start `ts` and `state`, null where none ended then.
///
/// `states` has ts, dur, utid, state and end, `asked` utid and ts_ready.
#[pyfunction]
pub fn sleeps_before(states: &Bound<'_, PyAny>, asked: &Bound<'_, PyAny>) -> Result<ArrowTable> {
    let mut sleeps = Sleeps::new(&read_stream(asked)?.1)?;
    each_batch(states, |batch| sleeps.read(&batch))?;
    told(&sleeps.found)
}

/// The same, asked as the waits follow each other.
#[pyclass(module = "schedscope._native")]
pub struct SleepsBefore(Follower);

#[pymethods]
impl SleepsBefore {
    /// `states` has ts, dur, utid, state and end.
    #[new]
    fn new(states: &Bound<'_, PyAny>) -> Result<Self> {
        let states = match source_of(states, "states")? {
            Source::Stored(scan) => Source::Stored(scan),
            Source::Held(_, batches) => Source::Held("states", batches),
        };
        Ok(Self(Follower::new(states)))
    }

    /// Of the next waits (utid, ts_ready; null where nothing is asked).
    fn of(&mut self, py: Python<'_>, asked: &Bound<'_, PyAny>) -> Result<ArrowTable> {
        let (schema, batches) = read_stream(asked)?;
        let asked = concat_batches(&schema, &batches)
            .map_err(|error| Error::internal(error.to_string()))?;
        let found = py.detach(|| self.0.follow(&asked))?;
        told(&found)
    }

    /// After the last wait: whether all rows were in order of time. Else answers may be missing.
    fn ordered(&mut self, py: Python<'_>) -> Result<bool> {
        Ok(py.detach(|| self.0.ordered())?)
    }
}

fn told(found: &[Option<(i64, u8)>]) -> Result<ArrowTable> {
    let ts: Int64Array = found.iter().map(|sleep| sleep.map(|(ts, _)| ts)).collect();
    let states = found.iter().map(|sleep| sleep.map(|(_, state)| state));
    let state: UInt8Array = states.collect();
    table(vec![("ts", Arc::new(ts)), ("state", Arc::new(state))])
}
