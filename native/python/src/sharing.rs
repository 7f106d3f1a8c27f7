//! What was due to threads, and what they got.

use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{BooleanArray, Float64Array};
use arrow_select::concat::concat_batches;
use pyo3::prelude::*;

use super::arrow::{ArrowTable, read_stream};
use super::quotas::GivenQuotas;
use super::tables::{counts, cpus, floats, ints, table};
use crate::error::{Error, Result};
use schedscope_model::columns::{column, full};
use schedscope_sweep::due_in::{Due, Stretches};
use schedscope_sweep::group_shares::Groups;
use schedscope_sweep::history::History;
use schedscope_sweep::{due, due_in, lag};
use schedscope_trace::states::NOWHERE;

/// How threads share: options of `CpuHistory.due`, `lag` and `due_in`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Sharing<'py> {
    machine: bool,
    capacity: Option<i64>,
    by_cpu: bool,
    groups: Option<Grouping>,
    quotas: Option<GivenQuotas<'py>>,
}

/// Groups that share CPU time, parents before their children: of each thread by utid the innermost
/// one, and of each group its parent and its weight.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Grouping {
    of: Vec<Option<u32>>,
    parent: Vec<Option<u32>>,
    weight: Vec<f64>,
}

pub fn due(read: &History, py: Python<'_>, sharing: Sharing<'_>) -> Result<ArrowTable> {
    let question = question(read, sharing)?;
    let sums = py.detach(|| due::due(&read.changes, &question))?;
    table(vec![
        ("utid", counts(sums.iter().map(|sum| sum.utid))),
        ("class", counts(sums.iter().map(|sum| sum.class as u32))),
        (
            "cpu",
            cpus(
                sums.iter()
                    .map(|sum| (sum.cpu != NOWHERE).then_some(sum.cpu)),
            ),
        ),
        ("running", ints(sums.iter().map(|sum| sum.running))),
        ("waiting", ints(sums.iter().map(|sum| sum.waiting))),
        ("unplaced", ints(sums.iter().map(|sum| sum.unplaced))),
        ("due", floats(sums.iter().map(|sum| sum.due))),
        ("served", ints(sums.iter().map(|sum| sum.served))),
        (
            "competed",
            Arc::new(
                sums.iter()
                    .map(|sum| Some(sum.competed))
                    .collect::<BooleanArray>(),
            ),
        ),
        ("heaviest", ints(sums.iter().map(|sum| sum.heaviest))),
        ("lightest", ints(sums.iter().map(|sum| sum.lightest))),
        (
            "equal",
            Arc::new(
                sums.iter()
                    .map(|sum| Some(sum.equal))
                    .collect::<BooleanArray>(),
            ),
        ),
    ])
}

pub fn shortfalls(
    read: &History,
    py: Python<'_>,
    sharing: Sharing<'_>,
    chosen: Vec<bool>,
    bound: f64,
) -> Result<ArrowTable> {
    let (question, begin) = (question(read, sharing)?, read.begin);
    let found = py.detach(|| lag::shortfalls(&read.changes, &question, &chosen, bound))?;
    table(vec![
        ("utid", counts(found.iter().map(|row| row.utid))),
        ("ts", ints(found.iter().map(|row| row.begin + begin))),
        ("dur", ints(found.iter().map(|row| row.end - row.begin))),
        ("due", floats(found.iter().map(|row| row.due))),
        ("received", ints(found.iter().map(|row| row.received))),
        ("wait", ints(found.iter().map(|row| row.waited))),
    ])
}

pub fn lag(
    read: &History,
    py: Python<'_>,
    sharing: Sharing<'_>,
    chosen: Vec<bool>,
    instants: Option<Vec<i64>>,
    most: usize,
) -> Result<(usize, ArrowTable)> {
    let (question, changes, begin) = (question(read, sharing)?, &read.changes, read.begin);
    let (threads, of) = py.detach(|| match instants {
        None => lag::turns(changes, &question, &chosen).map(|of| (of.len(), of)),
        Some(mut at) => {
            at.iter_mut().for_each(|at| *at = at.saturating_sub(begin));
            lag::sampled(changes, &question, &chosen, &at, most)
        }
    })?;
    let points = || {
        (0..)
            .zip(&of)
            .flat_map(|(utid, of)| of.iter().map(move |p| (utid, p)))
    };
    let accounts = table(vec![
        ("utid", counts(points().map(|(utid, _)| utid))),
        ("ts", ints(points().map(|(_, point)| point.t + begin))),
        ("due", floats(points().map(|(_, point)| point.due))),
        ("received", ints(points().map(|(_, point)| point.received))),
    ])?;
    Ok((threads, accounts))
}

/// Asks `more` for stretches of time, some at a time, and hands it what was `due` in the last ones.
pub fn due_in(
    read: &History,
    py: Python<'_>,
    sharing: Sharing<'_>,
    more: &Py<PyAny>,
) -> Result<()> {
    let question = question(read, sharing)?;
    let more = |due: Option<Due>| Python::attach(|py| Ok(next_stretches(more.bind(py), due)?));
    Ok(py.detach(|| due_in::due_in(&read.changes, &question, read.begin, more))?)
}

fn next_stretches(more: &Bound<'_, PyAny>, due: Option<Due>) -> Result<Option<Stretches>> {
    let due = due
        .map(|due| table(vec![("due", Arc::new(Float64Array::from(due)))]))
        .transpose()?;
    let stretches = more.call1((due,))?;
    if stretches.is_none() {
        return Ok(None);
    }
    let (schema, batches) = read_stream(&stretches)?;
    let whole = match &batches[..] {
        // Its columns are used where they are.
        [one] => one.clone(),
        several => concat_batches(&schema, several).map_err(|error| {
            Error::internal(format!("stretches of time of several kinds: {error}"))
        })?,
    };
    for name in ["ts", "until"] {
        full::<Int64Type>(&whole, name)?;
    }
    full::<UInt32Type>(&whole, "utid")?;
    Ok(Some(Stretches {
        utid: column::<UInt32Type>(&whole, "utid")?.clone(),
        ts: column::<Int64Type>(&whole, "ts")?.clone(),
        until: column::<Int64Type>(&whole, "until")?.clone(),
    }))
}

fn question(read: &History, sharing: Sharing<'_>) -> Result<due::SharingQuery> {
    let weights = read.weights()?;
    let classes = weights.class.iter().max().copied().unwrap_or(0);
    Ok(due::SharingQuery {
        table: weights.table,
        classes: usize::from(classes.max(weights.fair).max(weights.realtime)) + 1,
        machine: sharing.machine,
        capacity: sharing.capacity,
        by_cpu: sharing.by_cpu,
        fair: usize::from(weights.fair),
        quotas: (sharing.quotas)
            .map(|quotas| quotas.into_quotas(read.begin))
            .transpose()?,
        groups: sharing.groups.map(|groups| Groups {
            of: groups.of,
            weight: groups
                .parent
                .iter()
                .enumerate()
                .map(|(at, _)| groups.weight.get(at).copied().unwrap_or(0.0))
                .collect(),
            parent: groups.parent,
        }),
    })
}
