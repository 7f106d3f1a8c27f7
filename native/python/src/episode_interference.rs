//! Where the time of episodes of waiting went.

use std::sync::Arc;

use arrow_array::Int16Array;
use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::tables::{counts, cpus, ints, table};
use crate::error::Result;
use schedscope_sweep::episode_interference::{self, Episode};
use schedscope_sweep::history::History;

/// utid, begin, end, and the CPUs that the thread may run on.
pub type GivenEpisode = (u32, i64, i64, Vec<u16>);

pub fn episode_interference(
    read: &History,
    py: Python<'_>,
    strict_to: i16,
    episodes: Vec<GivenEpisode>,
) -> Result<(ArrowTable, ArrowTable, ArrowTable, Vec<Option<i16>>)> {
    read.weights()?;
    let begin = read.begin;
    let asked: Vec<Episode> = episodes
        .into_iter()
        .map(|(utid, ts, until, allowed)| Episode {
            utid,
            ts: ts.saturating_sub(begin),
            until: until.saturating_sub(begin),
            allowed,
        })
        .collect();
    let found =
        py.detach(|| episode_interference::episode_interference(&read.changes, &asked, strict_to))?;
    let prios = found.iter().map(|found| found.prio).collect();
    let (mut waited, mut ran, mut idle) = (Vec::new(), Vec::new(), Vec::new());
    for ((episode, found), asked) in (0..).zip(found).zip(&asked) {
        waited.extend(found.waited.into_iter().map(|row| (episode, row)));
        for (shares, n) in found.ran.into_iter().zip([1, asked.allowed.len() as i64]) {
            ran.extend(shares.into_iter().map(|share| (episode, n, share)));
        }
        let known = found.idle.into_iter();
        idle.extend(known.map(|(cpu, time)| (episode, (Some(cpu), time))));
    }
    let prio: Int16Array = ran.iter().map(|(_, _, share)| share.prio).collect();
    let ran = table(vec![
        ("episode", counts(ran.iter().map(|(episode, ..)| *episode))),
        ("utid", counts(ran.iter().map(|(_, _, share)| share.utid))),
        ("n", ints(ran.iter().map(|(_, n, _)| *n))),
        ("time", ints(ran.iter().map(|(_, _, share)| share.time))),
        ("worse", ints(ran.iter().map(|(_, _, share)| share.worse))),
        ("strict", ints(ran.iter().map(|(_, _, share)| share.strict))),
        ("prio", Arc::new(prio)),
    ])?;
    Ok((on_cpus(&waited)?, ran, on_cpus(&idle)?, prios))
}

/// Rows of an episode, a CPU, and a time.
fn on_cpus(rows: &[(u32, (Option<u16>, i64))]) -> Result<ArrowTable> {
    table(vec![
        ("episode", counts(rows.iter().map(|(episode, _)| *episode))),
        ("cpu", cpus(rows.iter().map(|(_, (cpu, _))| *cpu))),
        ("time", ints(rows.iter().map(|(_, (_, time))| *time))),
    ])
}
