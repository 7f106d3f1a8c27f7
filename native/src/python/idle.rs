//! CPUs that idled while threads waited: sums and episodes.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{BooleanArray, UInt8Array};
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use super::arrow::ArrowTable;
use super::tables::{counts, cpus, ints, source_of, table};
use crate::error::{Error, Result};
use crate::sweep::cpu_index::CpuIndex;
use crate::sweep::episodes::{Participant, Watch};
use crate::sweep::history::History;
use crate::sweep::idle::{self, IdleSweep};
use crate::sweep::matching::Masks;
use crate::sweep::wait_starts::WaitStarts;

fn masks(atoms: Vec<Vec<usize>>, atom: &HashMap<u16, usize>) -> Result<Masks> {
    let natoms = atom.values().max().map_or(1, |most| most + 1);
    if atoms.is_empty() || atoms.iter().flatten().any(|atom| *atom >= natoms) {
        return Err(Error::internal(
            "a class of threads that may use no group of CPUs",
        ));
    }
    Ok(Masks { atoms, natoms })
}

/// Classes of threads by the CPUs they may use, as analysis/idle_steps.py makes them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Allowed {
    /// Of each class the groups of CPUs that it may use.
    atoms: Vec<Vec<usize>>,
    /// The group of each CPU.
    atom: HashMap<u16, usize>,
    /// By utid; -1 for threads with one allowed CPU only.
    kind: Vec<i32>,
}

impl Allowed {
    fn question(self, nclasses: usize) -> Result<idle::IdleQuery> {
        let masks = masks(self.atoms, &self.atom)?;
        let class = self.kind.iter().map(|kind| match u16::try_from(*kind) {
            Ok(class) if usize::from(class) < nclasses => class,
            Ok(_) => 0,
            Err(_) => idle::PINNED,
        });
        let lanes = CpuIndex::new(self.atom.keys().copied().collect());
        let atom = (0..lanes.count())
            .map(|lane| Some(*self.atom.get(&lanes.number(lane)?)?))
            .collect();
        Ok(idle::IdleQuery {
            masks,
            class: class.collect(),
            lanes,
            atom,
        })
    }
}

pub fn idle(
    read: &History,
    py: Python<'_>,
    allowed: Allowed,
) -> PyResult<(HashMap<&'static str, i64>, ArrowTable, ArrowTable)> {
    let nclasses = allowed.atoms.len();
    let question = allowed.question(nclasses)?;
    let mut sweep = IdleSweep::new(&question, read.changes.threads, None);
    py.detach(|| sweep.run(&read.changes))?;
    let of_cpus = sweep.of_cpus(read.changes.length);
    let sums = &sweep.sums;
    let mut machine = HashMap::from([
        ("wasted", sums.wasted),
        ("wasted_any", sums.wasted_any),
        ("unplaced", sums.unplaced),
        ("pinned", sums.pinned),
        ("n_pinned", i64::from(sums.n_pinned)),
        ("longest", sums.longest),
    ]);
    if let Some(begin) = sums.longest_begin {
        machine.insert("ts_longest", begin + read.begin);
    }
    let by_cpu = table(vec![
        ("cpu", cpus(of_cpus.iter().map(|row| row.cpu))),
        ("idle", ints(of_cpus.iter().map(|row| row.idle))),
        ("unknown", ints(of_cpus.iter().map(|row| row.unknown))),
        ("spare", ints(of_cpus.iter().map(|row| row.spare))),
        ("available", ints(of_cpus.iter().map(|row| row.available))),
        ("waiting", ints(of_cpus.iter().map(|row| row.waiting))),
        ("waited", ints(of_cpus.iter().map(|row| row.waited))),
    ])?;
    let waited = || {
        (0..)
            .zip(&sweep.threads)
            .filter(|(_, thread)| thread.waiting > 0)
    };
    let by_thread = table(vec![
        ("utid", counts(waited().map(|(utid, _)| utid))),
        ("waiting", ints(waited().map(|(_, thread)| thread.waiting))),
        (
            "avoidable",
            ints(waited().map(|(_, thread)| thread.avoidable)),
        ),
        ("n", counts(waited().map(|(_, thread)| thread.n))),
    ])?;
    Ok((machine, by_cpu, by_thread))
}

pub fn episodes(
    read: &History,
    py: Python<'_>,
    allowed: Allowed,
    least: i64,
    top: Option<usize>,
    waits: &Bound<'_, PyAny>,
) -> PyResult<(ArrowTable, ArrowTable, ArrowTable)> {
    let nclasses = allowed.atoms.len();
    let question = allowed.question(nclasses)?;
    let waits = source_of(waits, "waits")?;
    let changes = &read.changes;
    let watch = Watch::new(least, top.unwrap_or(usize::MAX), changes.threads, nclasses);
    let mut sweep = IdleSweep::new(&question, changes.threads, Some(Box::new(watch)));
    let (found_episodes, watch, begun) = py
        .detach(|| -> Result<_> {
            sweep.run(changes)?;
            let Some(mut watch) = sweep.watch.take() else {
                return Ok(None);
            };
            let found_episodes = watch.take();
            let participants = found_episodes.iter().flat_map(|found| &found.participants);
            let asked = participants.map(|row| (row.utid, row.begin));
            let mut begun = WaitStarts::new(changes.threads, asked);
            for batch in waits.batches() {
                begun.read(&batch?, read.begin)?;
            }
            begun.finish();
            Ok(Some((found_episodes, watch, begun)))
        })?
        .ok_or_else(|| Error::internal("a sweep that lost what it found"))?;
    let ranked = || (1u32..).zip(&found_episodes);
    let episodes = || found_episodes.iter().map(|found| found.episode);
    let found = table(vec![
        ("episode", counts(ranked().map(|(rank, _)| rank))),
        (
            "ts",
            ints(episodes().map(|episode| episode.begin + read.begin)),
        ),
        (
            "dur",
            ints(episodes().map(|episode| episode.end - episode.begin)),
        ),
        ("wasted", ints(episodes().map(|episode| episode.wasted))),
    ])?;
    let mut rows = Vec::new();
    for (rank, found) in ranked() {
        // A thread may wait on one queue any number of times in an episode: one row for all that
        // began alike.
        let mut places = FxHashMap::default();
        for row in &found.participants {
            let began = begun
                .at(row.utid, row.begin)
                .filter(|(ready, _)| *ready >= 0)
                .map(|(ready, cause)| (cause, watch.was_usable(row.class, ready)));
            let next = rows.len();
            let at = *places.entry((row.utid, row.lane, began)).or_insert(next);
            if at == next {
                rows.push((rank, *row, began));
            } else {
                let before: &mut Participant = &mut rows[at].1;
                before.begin = before.begin.min(row.begin);
                before.waited += row.waited;
            }
        }
    }
    let number = |lane: usize| question.lanes.number(lane);
    let began = || rows.iter().map(|(_, _, began)| *began);
    let causes: UInt8Array = began().map(|began| Some(began?.0)).collect();
    let usable: BooleanArray = began().map(|began| Some(began?.1)).collect();
    let waited = || rows.iter().map(|(_, row, _)| row);
    let who = table(vec![
        ("episode", counts(rows.iter().map(|(rank, ..)| *rank))),
        ("utid", counts(waited().map(|row| row.utid))),
        ("class", counts(waited().map(|row| row.class as u32))),
        ("cpu", cpus(waited().map(|row| number(row.lane)))),
        ("begin", ints(waited().map(|row| row.begin))),
        ("waited", ints(waited().map(|row| row.waited))),
        ("began", Arc::new(causes)),
        ("usable", Arc::new(usable)),
    ])?;
    let spare = || {
        ranked().flat_map(|(rank, found)| {
            found
                .spare
                .iter()
                .map(move |(lane, time)| (rank, *lane, *time))
        })
    };
    let spare = table(vec![
        ("episode", counts(spare().map(|(rank, _, _)| rank))),
        ("cpu", cpus(spare().map(|(_, lane, _)| number(lane)))),
        ("idle", ints(spare().map(|(_, _, time)| time))),
    ])?;
    Ok((found, who, spare))
}
