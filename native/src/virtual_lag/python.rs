//! The function that Python calls, and the tables it hands in.
use std::collections::HashMap;

use arrow_array::Array;
use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use pyo3::prelude::*;

use super::intervals::Table;
use super::replay::Replay;
use super::rules::Rules;
use super::states::States;
use super::{Known, output};
use crate::arrow_ffi::ArrowTable;
use crate::columns::{column, full};
use crate::error::{Error, Result};
use crate::sim::policy::{Settings, registry};
use crate::store::python::Source;
use crate::sweep::doors::weights::{ToldWeights, told_weights};

fn threads(table: &Source<'_>) -> Result<Vec<Known>> {
    let mut known: Vec<Known> = Vec::new();
    for batch in table.batches() {
        let batch = &batch?;
        let utid = full::<UInt32Type>(batch, "utid")?;
        let start = column::<Int64Type>(batch, "start_ts")?;
        let parent = column::<UInt32Type>(batch, "parent_utid")?;
        let wanted = full::<UInt8Type>(batch, "wanted")?;
        for row in 0..batch.num_rows() {
            let at = utid[row] as usize;
            if known.len() <= at {
                known.resize(at + 1, Known::default());
            }
            known[at] = Known {
                start: start.is_valid(row).then(|| start.value(row)),
                parent: parent.is_valid(row).then(|| parent.value(row)),
                wanted: wanted[row] != 0,
                listed: true,
            };
        }
    }
    Ok(known)
}

/// Rows per thread, rows per turn, and of each thread whether its weight was an assumption.
type Told = (ArrowTable, ArrowTable, Vec<(u32, bool)>);

/// What the rules of `scheduler`, a preset's name with settings `given`, owe to
/// each recorded thread: a row per thread, and with `series` one per turn of each.
///
/// `frames`: `states` (ts, dur, utid, codes state and end, cpu, prio) and `threads` (utid,
/// start_ts, parent_utid, wanted). `sharing`: what `Occupancy` takes as weights, and by the number of a
/// class whether it is of the fair kind. `phase`: an instant at which the clock ticked. With a
/// row per thread of `states`: whether its weight was an assumption in any.
#[pyfunction]
#[pyo3(signature = (scheduler, given, frames, sharing, window, ncpu, phase=0, series=false))]
#[expect(clippy::too_many_arguments, reason = "Python's keywords")]
pub fn virtual_lag(
    py: Python<'_>,
    scheduler: &str,
    given: Vec<(String, String)>,
    frames: HashMap<String, Bound<'_, PyAny>>,
    sharing: (ToldWeights<'_>, Vec<bool>),
    window: (i64, i64),
    ncpu: usize,
    phase: i64,
    series: bool,
) -> PyResult<Told> {
    let read = |name: &'static str| match frames.get(name) {
        Some(table) => Source::of(table, name),
        None => Ok(Source::Held(name, Vec::new())),
    };
    let (intervals, listed) = (read("states")?, read("threads")?);
    let (weights, fair) = (told_weights(sharing.0)?, sharing.1);
    let found = py.detach(|| -> Result<_> {
        let (spec, preset) = registry::find(scheduler)?;
        let settings = Settings::new(scheduler, spec.tunables, preset.values, &given)?;
        let Some(rule) = spec.lag else {
            return Err(Error::usage(
                format!("scheduler {scheduler} keeps no virtual time of threads"),
                format!("one of {}", registry::names(|s| s.lag.is_some())),
                "",
            ));
        };
        let rules = Rules::new(rule, &settings, ncpu, phase);
        let known = threads(&listed)?;
        let table = Table {
            rows: &intervals,
            known: &known,
            weights: &weights,
            fair: &fair,
            idle: u32::try_from(ncpu).unwrap_or(u32::MAX),
        };
        let states = States::read(&table, window)?;
        let mut replay = Replay::new(rules, &known, &states, series);
        replay.run();
        let (tallies, points) = replay.finish(window.1);
        Ok((
            output::summary(&known, &tallies)?,
            output::series(&points)?,
            states.equal(),
        ))
    })?;
    Ok(found)
}
