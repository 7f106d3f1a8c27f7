//! What `check` asks of `states`.

use std::sync::Arc;

use arrow_array::Int64Array;
use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::tables::{counts, each_batch, ints, table};
use crate::error::Result;
use schedscope_sweep::accounting::Tally;

/// What `check` asks of `states` (ts, dur, utid, state, cpu): running and idle time by CPU,
/// running time of the threads `own`, rows about threads, the ends that no interval
/// adjoins, whether each thread's rows are in order, and whether running time is disjoint.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn accounting(
    states: &Bound<'_, PyAny>,
    window: (i64, i64),
    idle: u32,
    own: Vec<u32>,
) -> Result<(
    Vec<(Option<u16>, i64, i64)>,
    i64,
    u64,
    ArrowTable,
    bool,
    bool,
)> {
    let mut is_own = vec![false; own.iter().max().map_or(0, |most| *most as usize + 1)];
    for utid in own {
        is_own[utid as usize] = true;
    }
    let mut tiler = Tally::new(window, idle, is_own);
    each_batch(states, |batch| tiler.read(&batch))?;
    let found = tiler.finish();
    let ends = table(vec![
        ("utid", counts(found.ends.iter().map(|end| end.utid))),
        ("until", ints(found.ends.iter().map(|end| end.until))),
        (
            "following",
            Arc::new(
                found
                    .ends
                    .iter()
                    .map(|end| end.following)
                    .collect::<Int64Array>(),
            ),
        ),
    ])?;
    let per_cpu = found
        .per_cpu
        .iter()
        .map(|(cpu, (run, idle))| (*cpu, *run, *idle))
        .collect();
    Ok((
        per_cpu,
        found.own,
        found.intervals,
        ends,
        found.ordered,
        found.disjoint,
    ))
}
