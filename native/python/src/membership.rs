//! Control groups of threads over time.

use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt32Type};
use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::arrow::read_stream;
use crate::error::Result;
use schedscope_model::columns::column;
use schedscope_model::membership::{Lifetime, Move, lines};

/// A stretch of a thread in a group: utid, since (None: its start), group.
type Stretch = (u32, Option<i64>, Option<String>);

/// Of threads (tid, pid, parent_utid, start_ts, exit_ts, in order of utid) with the group that each
/// is in without moves (`known`): those of threads that the moves (ts, tid, from, cgroup) concern,
/// each thread's in order of time.
#[pyfunction]
pub fn memberships(
    threads: &Bound<'_, PyAny>,
    known: Vec<Option<String>>,
    moves: Vec<(i64, u32, Option<String>, String)>,
) -> Result<Vec<Stretch>> {
    let mut all = Vec::new();
    for batch in &read_stream(threads)?.1 {
        let numbers = |name| column::<UInt32Type>(batch, name);
        let times = |name| column::<Int64Type>(batch, name);
        let (tid, pid, parent) = (numbers("tid")?, numbers("pid")?, numbers("parent_utid")?);
        let (start, exit) = (times("start_ts")?, times("exit_ts")?);
        for ((((tid, pid), parent), start), exit) in
            tid.iter().zip(pid).zip(parent).zip(start).zip(exit)
        {
            all.push(Lifetime {
                tid,
                pid,
                parent,
                start,
                exit,
            });
        }
    }
    let known: Vec<Option<Arc<str>>> = known
        .into_iter()
        .map(|group| group.map(Arc::from))
        .collect();
    // What is known of a thread that moves is where it was last.
    let at_start = |utid: u32, moved: &FxHashSet<u32>| {
        let thread = all[utid as usize];
        let parent = thread.parent.filter(|_| thread.start.is_some());
        let unmoved = parent.filter(|parent| !moved.contains(parent))?;
        known.get(unmoved as usize).cloned().flatten()
    };
    let moves: Vec<Move> = moves
        .into_iter()
        .map(|(ts, tid, from, cgroup)| Move {
            ts,
            tid,
            from: from.map(Arc::from),
            cgroup: cgroup.into(),
        })
        .collect();
    let text = |group: &Option<Arc<str>>| group.as_deref().map(str::to_owned);
    let mut found: Vec<Stretch> = lines(&all, at_start, &moves)
        .iter()
        .flat_map(|(&utid, line)| line.iter().map(move |one| (utid, one)))
        .map(|(utid, (since, group))| (utid, (*since > i64::MIN).then_some(*since), text(group)))
        .collect();
    found.sort_by_key(|&(utid, since, _)| (utid, since));
    Ok(found)
}
