//! How long threads ran.

use std::sync::Arc;

use arrow_array::{ArrayRef, UInt8Array};
use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::tables::{counts, cpus, ints, of_ranks, shares_of, source_of, table};
use crate::error::Result;
use schedscope_sweep::lengths;

/// Options of `run_lengths`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Grouping {
    group: Vec<Option<u32>>,
    beyond: Option<u32>,
    by_cpu: bool,
    by_end: bool,
    sure: i64,
    shares: Vec<(u64, u64)>,
}

/// How long threads ran, by group (and CPU, and end): `states` has ts, dur, utid, state, cpu
/// and end, `switches` ts, cpu and next_utid. Each run after `sure` began with a switch-in.
#[pyfunction]
pub fn run_lengths(
    py: Python<'_>,
    states: &Bound<'_, PyAny>,
    switches: &Bound<'_, PyAny>,
    window: (i64, i64),
    idle: u32,
    grouping: Grouping,
) -> Result<ArrowTable> {
    let (states, switches) = (
        source_of(states, "states")?,
        source_of(switches, "switches")?,
    );
    let Grouping {
        group,
        beyond,
        by_cpu,
        by_end,
        sure,
        shares,
    } = grouping;
    let question = lengths::RunLengthQuery {
        window,
        idle,
        group,
        beyond,
        by_cpu,
        by_end,
        sure,
        shares: shares_of(shares)?,
    };
    let found = py.detach(|| lengths::lengths(&states, &switches, &question))?;
    let keys = || found.keys.iter();
    let runs = || (0..found.keys.len()).map(|at| found.lengths.of(at));
    let mut columns = vec![
        (
            "group".to_owned(),
            counts(keys().map(|(group, _, _)| *group)),
        ),
        ("cpu".to_owned(), cpus(keys().map(|(_, cpu, _)| *cpu))),
        (
            "end".to_owned(),
            Arc::new(keys().map(|(_, _, end)| *end).collect::<UInt8Array>()) as ArrayRef,
        ),
        (
            "n_censored".to_owned(),
            ints(found.censored.iter().map(|(n, _)| *n as i64)),
        ),
        (
            "total_censored".to_owned(),
            ints(found.censored.iter().map(|(_, time)| *time)),
        ),
    ];
    columns.extend(of_ranks("", question.shares.len(), runs));
    table(columns)
}
