//! How long threads ran.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, UInt8Array};
use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::tables::{counts, cpus, ints, source_of, table};
use crate::error::{Error, Result};
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
    if shares
        .iter()
        .any(|(part, whole)| *part == 0 || part > whole)
    {
        return Err(Error::internal("a quantile outside of (0, 1]").into());
    }
    let question = lengths::RunLengthQuery {
        window,
        idle,
        group,
        beyond,
        by_cpu,
        by_end,
        sure,
        shares,
    };
    let found = py.detach(|| lengths::lengths(&states, &switches, &question))?;
    let runs = || found.iter().map(|(_, runs)| runs);
    let mut columns = vec![
        (
            "group",
            counts(found.iter().map(|((group, _, _), _)| *group)),
        ),
        ("cpu", cpus(found.iter().map(|((_, cpu, _), _)| *cpu))),
        (
            "end",
            Arc::new(
                found
                    .iter()
                    .map(|((_, _, end), _)| *end)
                    .collect::<UInt8Array>(),
            ) as ArrayRef,
        ),
        ("n", ints(runs().map(|runs| runs.lengths.n() as i64))),
        (
            "n_censored",
            ints(runs().map(|runs| runs.n_censored as i64)),
        ),
        ("total", ints(runs().map(|runs| runs.lengths.total()))),
        (
            "total_censored",
            ints(runs().map(|runs| runs.total_censored)),
        ),
        (
            "max",
            Arc::new(
                runs()
                    .map(|runs| runs.lengths.max())
                    .collect::<Int64Array>(),
            ),
        ),
    ];
    let of_groups: Vec<_> = runs().map(|runs| runs.lengths.found()).collect();
    let names: Vec<String> = (0..question.shares.len())
        .map(|share| format!("q{share}"))
        .collect();
    for (share, name) in names.iter().enumerate() {
        let values = of_groups
            .iter()
            .map(|of_group| of_group.as_ref().map(|values| values[share]));
        columns.push((name, Arc::new(values.collect::<Int64Array>())));
    }
    table(columns)
}
