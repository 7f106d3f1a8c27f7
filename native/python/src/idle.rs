//! CPUs that idled while threads waited: sums and episodes.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, UInt8Array};
use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::quotas::GivenQuotas;
use super::tables::{counts, cpus, ints, source_of, table};
use crate::error::{EngineResult, Error, Result};
use schedscope_model::columns::column;
use schedscope_sweep::cpu_index::CpuIndex;
use schedscope_sweep::episodes::{Episode, Stretches, Waiters, Watch};
use schedscope_sweep::history::History;
use schedscope_sweep::idle::{self, IdleSweep};
use schedscope_sweep::matching::Masks;
use schedscope_sweep::wait_cursor::WaitCursor;

fn masks(atoms: Vec<Vec<usize>>, atom: &HashMap<u16, usize>) -> EngineResult<Masks> {
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
pub struct Allowed<'py> {
    /// Of each class the groups of CPUs that it may use.
    atoms: Vec<Vec<usize>>,
    /// The group of each CPU.
    atom: HashMap<u16, usize>,
    /// By utid; -1 for threads with one allowed CPU only.
    kind: Vec<i32>,
    quotas: Option<GivenQuotas<'py>>,
}

impl Allowed<'_> {
    fn question(self, nclasses: usize, begin: i64) -> Result<idle::IdleQuery> {
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
            quotas: (self.quotas)
                .map(|quotas| quotas.into_quotas(begin))
                .transpose()?,
        })
    }
}

/// Sums of the machine, of its CPUs and of threads, how long which threads were throttled on whose
/// queue, and stretches in which CPU time was wasted.
pub type Idle = (
    HashMap<&'static str, i64>,
    ArrowTable,
    ArrowTable,
    ArrowTable,
    ArrowTable,
);

pub fn idle(
    read: &History,
    py: Python<'_>,
    allowed: Allowed<'_>,
    least: i64,
    top: Option<usize>,
) -> Result<Idle> {
    let nclasses = allowed.atoms.len();
    let question = allowed.question(nclasses, read.begin)?;
    let stretches = Stretches::new(least, top.unwrap_or(usize::MAX));
    let watch = Some(Watch::Stretches(stretches));
    let mut sweep = IdleSweep::new(&question, &read.changes, watch);
    let throttled = py.detach(|| sweep.run(&read.changes))?;
    let stretches = match sweep.watch.take() {
        Some(Watch::Stretches(stretches)) => stretches.take(),
        _ => return Err(lost().into()),
    };
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
    let throttled = table(vec![
        ("utid", counts(throttled.iter().map(|row| row.utid))),
        ("cpu", cpus(throttled.iter().map(|row| Some(row.cpu)))),
        ("throttled", ints(throttled.iter().map(|row| row.time))),
    ])?;
    let stretches = table(episode_columns(stretches.iter().copied(), read.begin))?;
    Ok((machine, by_cpu, by_thread, throttled, stretches))
}

fn episode_columns(
    episodes: impl Iterator<Item = Episode> + Clone,
    begin: i64,
) -> Vec<(&'static str, ArrayRef)> {
    let (begins, durations) = (episodes.clone(), episodes.clone());
    vec![
        ("ts", ints(begins.map(|episode| episode.begin + begin))),
        (
            "dur",
            ints(durations.map(|episode| episode.end - episode.begin)),
        ),
        ("wasted", ints(episodes.map(|episode| episode.wasted))),
    ]
}

/// Of a table with the columns that `episode_columns` gives.
fn episodes_in(rows: &Bound<'_, PyAny>, begin: i64) -> Result<Vec<Episode>> {
    let mut found = Vec::new();
    for batch in source_of(rows, "episodes")?.batches() {
        let batch = batch?;
        let [ts, dur, wasted] =
            ["ts", "dur", "wasted"].map(|name| column::<Int64Type>(&batch, name));
        for ((ts, dur), wasted) in ts?.values().iter().zip(dur?.values()).zip(wasted?.values()) {
            let begin = ts.saturating_sub(begin);
            found.push(Episode {
                begin,
                end: begin.saturating_add(*dur),
                wasted: *wasted,
            });
        }
    }
    Ok(found)
}

fn lost() -> Error {
    Error::internal("a sweep that lost what it found")
}

/// Episodes, who waited in them, how long all others did where there are any, and CPUs spare.
pub type Episodes = (ArrowTable, ArrowTable, ArrowTable, ArrowTable);

pub fn episodes(
    read: &History,
    py: Python<'_>,
    allowed: Allowed<'_>,
    stretches: &Bound<'_, PyAny>,
    waits: &Bound<'_, PyAny>,
    most: Option<usize>,
) -> Result<Episodes> {
    let nclasses = allowed.atoms.len();
    let question = allowed.question(nclasses, read.begin)?;
    let stretches = episodes_in(stretches, read.begin)?;
    let waits = source_of(waits, "waits")?;
    let changes = &read.changes;
    let threads = changes.threads;
    let found_episodes = py.detach(|| -> EngineResult<_> {
        if stretches.is_empty() {
            return Ok(Vec::new());
        }
        let spans: Vec<(i64, i64)> = stretches.iter().map(|one| (one.begin, one.end)).collect();
        for all in [false, true] {
            let utids = 0..threads as u32;
            let wanted = utids.map(|utid| question.class(utid) != idle::PINNED);
            let ledger = WaitCursor::within(&waits, read.begin, wanted.collect(), &spans)?;
            let waiters = Waiters::new(
                stretches.clone(),
                most.unwrap_or(usize::MAX),
                ledger,
                threads,
                nclasses,
                all,
            );
            let watch = Some(Watch::Waiters(Box::new(waiters)));
            let mut sweep = IdleSweep::new(&question, changes, watch);
            sweep.run(changes)?;
            let Some(Watch::Waiters(waiters)) = sweep.watch else {
                break;
            };
            if let Some(found) = waiters.take()? {
                return Ok(found);
            }
        }
        Err(lost())
    })?;
    let ranked = || (1u32..).zip(&found_episodes);
    let episodes = found_episodes.iter().map(|found| found.episode);
    let mut columns = episode_columns(episodes, read.begin);
    columns.push(("episode", counts(ranked().map(|(rank, _)| rank))));
    let found = table(columns)?;
    let number = |lane: usize| question.lanes.number(lane);
    let rows = || {
        ranked().flat_map(|(rank, found)| found.waiters.iter().map(move |waiter| (rank, waiter)))
    };
    let why: UInt8Array = rows().map(|(_, row)| Some(row.why as u8)).collect();
    let who = table(vec![
        ("episode", counts(rows().map(|(rank, _)| rank))),
        ("utid", counts(rows().map(|(_, row)| row.utid))),
        (
            "class",
            counts(rows().map(|(_, row)| u32::from(question.class(row.utid)))),
        ),
        (
            "cpu",
            cpus(rows().map(|(_, row)| number(row.lane as usize))),
        ),
        ("waited", ints(rows().map(|(_, row)| row.waited.0))),
        ("cause", Arc::new(why)),
    ])?;
    let others = || ranked().filter_map(|(rank, found)| Some((rank, found.others?)));
    let others = table(vec![
        ("episode", counts(others().map(|(rank, _)| rank))),
        ("waited", ints(others().map(|(_, waited)| waited))),
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
    Ok((found, who, others, spare))
}
