//! Where the time of episodes of waiting went.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int16Array};
use pyo3::prelude::*;

use super::occupancy::Occupancy;
use super::{counts, cpus, each_batch, ints};
use crate::arrow_ffi::ArrowTable;
use crate::columns::table;
use crate::sweep::culprits;
use crate::sweep::rows::NOWHERE;

/// Where the time of some episodes went: the stretches of waiting in each, who ran on the
/// queues meanwhile, and how long other CPUs idled that the thread may run on.
///
/// `states`: the table, or the `Occupancy` that was read of it with `weights`.
/// `episodes`: utid, begin, end, and the CPUs that the thread may run on.
#[pyfunction]
pub fn culprits_of(
    py: Python<'_>,
    states: &Bound<'_, PyAny>,
    window: (i64, i64),
    idle: u32,
    strict_to: i16,
    episodes: Vec<(u32, i64, i64, Vec<u16>)>,
) -> PyResult<(ArrowTable, ArrowTable, ArrowTable)> {
    let begin = window.0;
    let asked: Vec<culprits::Episode> = episodes
        .into_iter()
        .map(|(utid, ts, until, allowed)| culprits::Episode {
            utid,
            ts: ts.saturating_sub(begin),
            until: until.saturating_sub(begin),
            allowed,
        })
        .collect();
    let mut near = culprits::Near::new(asked, window, idle);
    match states.cast::<Occupancy>() {
        Ok(read) => {
            let read = read.get();
            read.weights()?;
            py.detach(|| near.replay(&read.changes))?;
        }
        Err(_) => each_batch(states, |batch| near.read(&batch))?,
    }
    let found = py.detach(|| culprits::culprits(near, strict_to))?;
    let (pieces, shares) = (&found.pieces, &found.shares);
    let prio = |values: Vec<Option<i16>>| -> ArrayRef { Arc::new(Int16Array::from(values)) };
    let stretches = table(vec![
        ("episode", counts(pieces.iter().map(|piece| piece.episode))),
        ("ts", ints(pieces.iter().map(|piece| piece.ts + begin))),
        (
            "until",
            ints(pieces.iter().map(|piece| piece.until + begin)),
        ),
        (
            "cpu",
            cpus(
                pieces
                    .iter()
                    .map(|piece| (piece.cpu != NOWHERE).then_some(piece.cpu)),
            ),
        ),
        (
            "prio",
            prio(pieces.iter().map(|piece| piece.prio).collect()),
        ),
    ])?;
    let ran = table(vec![
        ("episode", counts(shares.iter().map(|share| share.episode))),
        ("utid", counts(shares.iter().map(|share| share.utid))),
        ("n", ints(shares.iter().map(|share| i64::from(share.n)))),
        ("time", ints(shares.iter().map(|share| share.sum.time))),
        ("worse", ints(shares.iter().map(|share| share.sum.worse))),
        ("strict", ints(shares.iter().map(|share| share.sum.strict))),
        (
            "prio",
            prio(shares.iter().map(|share| share.sum.prio).collect()),
        ),
    ])?;
    let idled = table(vec![
        (
            "episode",
            counts(found.idle.iter().map(|(episode, _, _)| *episode)),
        ),
        ("cpu", cpus(found.idle.iter().map(|(_, cpu, _)| Some(*cpu)))),
        ("time", ints(found.idle.iter().map(|(_, _, time)| *time))),
    ])?;
    Ok((stretches, ran, idled))
}
