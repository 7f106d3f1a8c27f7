//! The class and functions that Python calls, and the tables it hands in.
use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::{Int16Type, Int64Type, UInt8Type, UInt16Type, UInt32Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int16Array, Int64Array, RecordBatch, UInt8Array,
    UInt16Array, UInt32Array,
};
use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::changes::{Changes, Reader};
use super::episodes::Watch;
use super::idle::{self, IdleSweep};
use super::lanes::Lanes;
use super::ledger::Ledger;
use super::matching::Masks;
use super::rows::NOWHERE;
use super::weights::{CLASSES, LEVELS, Weights};
use super::{blame, culprits, due, lag, lengths, levels, path, sleeps, tiles};
use crate::arrow_ffi::{ArrowTable, read_stream};
use crate::columns::{column, full, table};
use crate::error::{Error, Result};
use crate::model::event::Cause;
use crate::store::python::Source;

fn ints(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn counts(values: impl Iterator<Item = u32>) -> ArrayRef {
    Arc::new(UInt32Array::from_iter_values(values))
}

fn cpus(values: impl Iterator<Item = Option<u16>>) -> ArrayRef {
    Arc::new(values.collect::<UInt16Array>())
}

fn floats(values: impl Iterator<Item = f64>) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(values))
}

/// Hands `take` the rows of `states`: a table on disk, page by page, or one in memory.
fn each_batch(
    states: &Bound<'_, PyAny>,
    mut take: impl FnMut(RecordBatch) -> Result<()> + Send,
) -> PyResult<()> {
    let source = Source::of(states)?;
    Ok(states
        .py()
        .detach(|| source.batches().try_for_each(|batch| take(batch?)))?)
}

/// Who ran on each CPU and who waited for it: `states`, read once, for any number of
/// sweeps.
///
/// `states` has the columns ts, dur, utid, state (codes) and cpu in
/// the order of the table, and prio if `weights` is given.
#[pyclass(frozen, module = "schedscope._native")]
pub struct Occupancy {
    changes: Changes,
    begin: i64,
    weights: Option<Weights>,
}

/// What Python says of weights: threads, the table, whether priorities are Linux's, and the
/// numbers of the classes fair and realtime.
pub type ToldWeights<'py> = (Bound<'py, PyAny>, Vec<i64>, bool, u8, u8);

pub fn told_weights((threads, table, linux, fair, realtime): ToldWeights<'_>) -> Result<Weights> {
    let threads = read_stream(&threads)?.1;
    let table: [i64; LEVELS] = table
        .try_into()
        .map_err(|_| Error::usage("a table of weights of another length", "42 levels", ""))?;
    let (mut class, mut prio, mut is_idle) = (Vec::new(), Vec::new(), Vec::new());
    for batch in &threads {
        class.extend_from_slice(full::<UInt8Type>(batch, "class")?);
        prio.extend(column::<Int16Type>(batch, "prio")?.iter());
        is_idle.extend(
            full::<UInt8Type>(batch, "idle")?
                .iter()
                .map(|flag| *flag != 0),
        );
    }
    let most = class
        .iter()
        .max()
        .copied()
        .unwrap_or(0)
        .max(fair)
        .max(realtime);
    if class.is_empty() || usize::from(most) >= CLASSES {
        return Err(Error::usage(
            format!("{most} scheduling classes"),
            "1 to 127",
            "",
        ));
    }
    Ok(Weights {
        table,
        linux,
        class,
        prio,
        is_idle,
        fair,
        realtime,
    })
}

fn masks(atoms: Vec<Vec<usize>>, atom: &HashMap<u16, usize>) -> Result<Masks> {
    let natoms = atom.values().max().map_or(1, |most| most + 1);
    if atoms.is_empty() || atoms.iter().flatten().any(|atom| *atom >= natoms) {
        return Err(Error::usage(
            "a class that may use no group of CPUs",
            "groups that exist",
            "",
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
    fn question(self, nclasses: usize) -> Result<idle::Question> {
        let masks = masks(self.atoms, &self.atom)?;
        let class = self.kind.iter().map(|kind| match u16::try_from(*kind) {
            Ok(class) if usize::from(class) < nclasses => class,
            Ok(_) => 0,
            Err(_) => idle::PINNED,
        });
        let lanes = Lanes::new(self.atom.keys().copied().collect());
        let atom = (0..lanes.len())
            .map(|lane| Some(*self.atom.get(&lanes.number(lane)?)?))
            .collect();
        Ok(idle::Question {
            masks,
            class: class.collect(),
            lanes,
            atom,
        })
    }
}

/// How threads share: options of `Occupancy.due`, `lag` and `due_in`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Sharing {
    machine: bool,
    capacity: Option<i64>,
    by_cpu: bool,
    shortfall: Option<(f64, Vec<bool>)>,
}

#[pymethods]
impl Occupancy {
    #[new]
    #[pyo3(signature = (states, window, idle, weights=None))]
    fn new(
        states: &Bound<'_, PyAny>,
        window: (i64, i64),
        idle: u32,
        weights: Option<ToldWeights<'_>>,
    ) -> PyResult<Self> {
        let weights = weights.map(told_weights).transpose()?;
        let mut reader = Reader::new(window, idle)?;
        each_batch(states, |batch| reader.read(&batch, weights.as_ref()))?;
        Ok(Self {
            changes: reader.finish(),
            begin: window.0,
            weights,
        })
    }

    /// CPUs on which anybody ran or waited.
    #[getter]
    fn cpus(&self) -> Vec<u16> {
        self.changes.cpus.clone()
    }

    /// One more than the highest utid.
    #[getter]
    fn threads(&self) -> usize {
        self.changes.threads
    }

    /// Threads' time runnable on a queue, and on no known one, ns.
    #[getter]
    fn waiting(&self) -> (i64, i64) {
        (self.changes.placed, self.changes.unplaced)
    }

    /// For how long how many threads wanted each CPU, or the machine.
    fn levels(&self, py: Python<'_>, numbers: Vec<u16>, machine: bool) -> PyResult<ArrowTable> {
        let all = [numbers, self.changes.cpus.clone()].concat();
        let rows = py.detach(|| levels::depths(&self.changes, all, machine))?;
        let running = rows
            .iter()
            .map(|(_, _, running, _)| *running)
            .collect::<UInt32Array>();
        Ok(table(vec![
            ("cpu", cpus(rows.iter().map(|row| row.0))),
            ("waiting", counts(rows.iter().map(|row| row.1))),
            ("running", Arc::new(running)),
            ("dur", ints(rows.iter().map(|row| row.3.dur))),
            ("ts", ints(rows.iter().map(|row| row.3.first + self.begin))),
        ])?)
    }

    /// The same over so many equal parts of the window: sums of time, and the most.
    fn parts(&self, py: Python<'_>, numbers: Vec<u16>, parts: usize) -> PyResult<ArrowTable> {
        let all = [numbers, self.changes.cpus.clone()].concat();
        let found = py.detach(|| levels::parts(&self.changes, all, parts))?;
        let rows = || {
            found
                .iter()
                .flat_map(|(cpu, of)| of.iter().enumerate().map(move |(n, part)| (*cpu, n, part)))
        };
        let edge = |n| levels::edge(self.changes.length, n, parts);
        Ok(table(vec![
            ("cpu", cpus(rows().map(|(cpu, _, _)| cpu))),
            ("ts", ints(rows().map(|(_, n, _)| edge(n) + self.begin))),
            ("dur", ints(rows().map(|(_, n, _)| edge(n + 1) - edge(n)))),
            ("unknown", ints(rows().map(|(_, _, part)| part.unknown))),
            ("waiting", ints(rows().map(|(_, _, part)| part.waiting))),
            ("running", ints(rows().map(|(_, _, part)| part.running))),
            (
                "waiting_unknown",
                ints(rows().map(|(_, _, part)| part.waiting_unknown)),
            ),
            (
                "waiting_max",
                counts(rows().map(|(_, _, part)| part.most_waiting)),
            ),
            ("depth_max", counts(rows().map(|(_, _, part)| part.most))),
        ])?)
    }

    /// How long CPUs idled while threads waited: sums of the machine, of CPUs, of threads.
    fn idle(
        &self,
        py: Python<'_>,
        allowed: Allowed,
    ) -> PyResult<(HashMap<&'static str, i64>, ArrowTable, ArrowTable)> {
        let nclasses = allowed.atoms.len();
        let question = allowed.question(nclasses)?;
        let mut sweep = IdleSweep::new(&question, self.changes.threads, None);
        py.detach(|| sweep.run(&self.changes))?;
        let of_cpus = sweep.of_cpus(self.changes.length);
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
            machine.insert("ts_longest", begin + self.begin);
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

    /// Stretches in which CPU time was wasted all along, of `least` ns and more, the `top` ones
    /// with the most wasted; who waited in them, with the cause of the wait in `waits` (utid,
    /// ts_ready, cause) and whether a CPU was to be had when it began; and which CPUs were spare.
    #[pyo3(signature = (allowed, least, top, waits))]
    fn episodes(
        &self,
        py: Python<'_>,
        allowed: Allowed,
        least: i64,
        top: Option<usize>,
        waits: &Bound<'_, PyAny>,
    ) -> PyResult<(ArrowTable, ArrowTable, ArrowTable)> {
        let nclasses = allowed.atoms.len();
        let question = allowed.question(nclasses)?;
        let waits = read_stream(waits)?.1;
        let changes = &self.changes;
        let watch = Watch::new(least, top.unwrap_or(usize::MAX), changes.threads, nclasses);
        let mut sweep = IdleSweep::new(&question, changes.threads, Some(Box::new(watch)));
        let (told, watch, ledger) = py
            .detach(|| -> Result<_> {
                sweep.run(changes)?;
                let Some(mut watch) = sweep.watch.take() else {
                    return Ok(None);
                };
                let told = watch.take();
                let mut wanted = vec![false; changes.threads];
                for participant in told.iter().flat_map(|told| &told.participants) {
                    wanted[participant.utid as usize] = true;
                }
                let ledger = Ledger::read(&waits, self.begin, |utid| {
                    wanted.get(utid as usize).copied().unwrap_or(false)
                })?;
                Ok(Some((told, watch, ledger)))
            })?
            .ok_or_else(|| Error::usage("a sweep that lost what it found", "", "report this"))?;
        let ranked = || (1u32..).zip(&told);
        let episodes = || told.iter().map(|told| told.episode);
        let found = table(vec![
            ("episode", counts(ranked().map(|(rank, _)| rank))),
            (
                "ts",
                ints(episodes().map(|episode| episode.begin + self.begin)),
            ),
            (
                "dur",
                ints(episodes().map(|episode| episode.end - episode.begin)),
            ),
            ("wasted", ints(episodes().map(|episode| episode.wasted))),
        ])?;
        let rows = || {
            ranked().flat_map(|(rank, told)| told.participants.iter().map(move |row| (rank, row)))
        };
        let began: Vec<Option<(u8, bool)>> = rows()
            .map(|(_, row)| {
                let wait = ledger
                    .at(row.utid, row.begin)
                    .filter(|wait| wait.ready >= 0)?;
                Some((wait.cause, watch.was_usable(row.class, wait.ready)))
            })
            .collect();
        let number = |lane: usize| question.lanes.number(lane);
        let causes: UInt8Array = began
            .iter()
            .map(|began| began.map(|(cause, _)| cause))
            .collect();
        let usable: BooleanArray = began
            .iter()
            .map(|began| began.map(|(_, usable)| usable))
            .collect();
        let who = table(vec![
            ("episode", counts(rows().map(|(rank, _)| rank))),
            ("utid", counts(rows().map(|(_, row)| row.utid))),
            ("class", counts(rows().map(|(_, row)| row.class as u32))),
            ("cpu", cpus(rows().map(|(_, row)| number(row.lane)))),
            ("begin", ints(rows().map(|(_, row)| row.begin))),
            ("waited", ints(rows().map(|(_, row)| row.waited))),
            ("began", Arc::new(causes)),
            ("usable", Arc::new(usable)),
        ])?;
        let spare = || {
            ranked().flat_map(|(rank, told)| {
                told.spare
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

    /// Who ran on the CPU on whose queue the threads in `asked` waited (utid, victim; and cpu,
    /// if only some queues count), by the `group` of each utid; `waits` as for `episodes`.
    /// A row per victim, and a row per victim and group with the time by each cause.
    fn blame(
        &self,
        py: Python<'_>,
        asked: &Bound<'_, PyAny>,
        group: Vec<u32>,
        ngroups: u32,
        numbers: Vec<u16>,
        waits: &Bound<'_, PyAny>,
    ) -> PyResult<(ArrowTable, ArrowTable)> {
        let (asked, waits) = (read_stream(asked)?.1, read_stream(waits)?.1);
        let mut victim: Vec<Option<u32>> = vec![None; self.changes.threads];
        let by_cpu = asked
            .iter()
            .any(|batch| batch.column_by_name("cpu").is_some());
        let mut only = by_cpu.then(FxHashSet::default);
        for batch in &asked {
            let (utid, victims) = (
                full::<UInt32Type>(batch, "utid")?,
                full::<UInt32Type>(batch, "victim")?,
            );
            let cpu = if by_cpu {
                Some(column::<UInt16Type>(batch, "cpu")?)
            } else {
                None
            };
            for i in 0..batch.num_rows() {
                if let Some(slot) = victim.get_mut(utid[i] as usize) {
                    *slot = Some(victims[i]);
                }
                if let (Some(only), Some(cpu)) = (&mut only, cpu) {
                    only.insert((utid[i], cpu.is_valid(i).then(|| cpu.value(i))));
                }
            }
        }
        let lanes = Lanes::new([numbers, self.changes.cpus.clone()].concat());
        let found = py.detach(|| -> Result<_> {
            let ledger = Ledger::read(&waits, self.begin, |utid| {
                victim.get(utid as usize).copied().flatten().is_some()
            })?;
            let mut question = blame::Question {
                victim,
                only,
                group,
                ngroups,
                lanes,
                ledger,
            };
            blame::blame(&self.changes, &mut question)
        })?;
        let totals = table(vec![
            (
                "victim",
                counts(found.totals.iter().map(|(victim, _)| *victim)),
            ),
            (
                "wait",
                ints(found.totals.iter().map(|(_, total)| total.wait)),
            ),
            (
                "n_waits",
                counts(found.totals.iter().map(|(_, total)| total.n)),
            ),
        ])?;
        let blamed = &found.blamed;
        let mut columns = vec![
            (
                "victim",
                counts(blamed.iter().map(|(victim, _, _)| *victim)),
            ),
            ("group", counts(blamed.iter().map(|(_, group, _)| *group))),
            ("n", counts(blamed.iter().map(|(_, _, blamed)| blamed.n))),
        ];
        for (cause, name) in Cause::TEXTS.iter().enumerate() {
            let time = blamed.iter().map(|(_, _, blamed)| blamed.time[cause]);
            columns.push((name, ints(time)));
        }
        Ok((totals, table(columns)?))
    }

    /// Service due to each thread and received, by class (and CPU); and the windows in
    /// which it fell short.
    fn due(&self, py: Python<'_>, sharing: Sharing) -> PyResult<(ArrowTable, ArrowTable)> {
        let question = self.question(sharing)?;
        let (sums, found) = py.detach(|| due::due(&self.changes, &question))?;
        let sums = table(vec![
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
        ])?;
        let begin = self.begin;
        let short = table(vec![
            ("utid", counts(found.iter().map(|row| row.utid))),
            ("ts", ints(found.iter().map(|row| row.begin + begin))),
            ("dur", ints(found.iter().map(|row| row.end - row.begin))),
            ("due", floats(found.iter().map(|row| row.due))),
            ("received", ints(found.iter().map(|row| row.received))),
            ("wait", ints(found.iter().map(|row| row.waited))),
        ])?;
        Ok((sums, short))
    }

    /// What was due to each of the `chosen` threads (by utid) and received since the begin, at
    /// every of its turns or at the `instants`, in order of time; and how many threads that
    /// is of: of more than `most` accounts there are none.
    #[pyo3(signature = (sharing, chosen, instants=None, most=usize::MAX))]
    fn lag(
        &self,
        py: Python<'_>,
        sharing: Sharing,
        chosen: Vec<bool>,
        instants: Option<Vec<i64>>,
        most: usize,
    ) -> PyResult<(usize, ArrowTable)> {
        let (question, changes, begin) = (self.question(sharing)?, &self.changes, self.begin);
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

    /// What was due to each thread in a stretch of time: `stretches` has utid, ts and until.
    fn due_in(
        &self,
        py: Python<'_>,
        sharing: Sharing,
        stretches: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<f64>> {
        let (question, mut asked) = (self.question(sharing)?, Vec::new());
        for batch in read_stream(stretches)?.1 {
            let utid = full::<UInt32Type>(&batch, "utid")?;
            let ts = full::<Int64Type>(&batch, "ts")?;
            let until = full::<Int64Type>(&batch, "until")?;
            let within = |t: i64| t.saturating_sub(self.begin);
            asked.extend((0..utid.len()).map(|i| (utid[i], within(ts[i]), within(until[i]))));
        }
        Ok(py.detach(|| lag::due_in(&self.changes, &question, &asked))?)
    }
}

impl Occupancy {
    fn weights(&self) -> Result<&Weights> {
        let given = self.weights.as_ref();
        given.ok_or_else(|| Error::usage("weights that were not given", "weights", ""))
    }

    fn question(&self, sharing: Sharing) -> Result<due::Question> {
        let weights = self.weights()?;
        let classes = weights.class.iter().max().copied().unwrap_or(0);
        Ok(due::Question {
            table: weights.table,
            classes: usize::from(classes.max(weights.fair).max(weights.realtime)) + 1,
            machine: sharing.machine,
            capacity: sharing.capacity,
            by_cpu: sharing.by_cpu,
            shortfall: sharing.shortfall,
        })
    }
}

/// What `check` asks of `states` (ts, dur, utid, state, cpu): running and idle time by CPU,
/// running time of the threads `own`, rows about threads, the ends that no interval
/// adjoins, whether each thread's rows are in order, and whether running time is disjoint.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn tiling(
    states: &Bound<'_, PyAny>,
    window: (i64, i64),
    idle: u32,
    own: Vec<u32>,
) -> PyResult<(
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
    let mut tiler = tiles::Tiler::new(window, idle, is_own);
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

/// The steps of the path that led thread `utid` to the end of the `interval`, in order of time.
///
/// `states` has ts, dur, utid, state, cpu and end, `waits` utid, ts_ready, ts_run,
/// ts_enqueued, cause and waker_utid; `idle`: the number of idle threads; `parents` by utid.
#[pyfunction]
pub fn critical_path(
    py: Python<'_>,
    states: &Bound<'_, PyAny>,
    waits: &Bound<'_, PyAny>,
    interval: (i64, i64),
    utid: u32,
    idle: u32,
    parents: Vec<Option<u32>>,
) -> PyResult<ArrowTable> {
    let (mut rows, waits) = (Vec::new(), read_stream(waits)?.1);
    each_batch(states, |batch| {
        rows.push(batch);
        Ok(())
    })?;
    let mut steps = py.detach(|| -> Result<_> {
        let lives = path::Lives::new(&rows, &waits, interval)?;
        path::walk(&lives, interval, utid, idle, &parents)
    })?;
    steps.reverse();
    Ok(table(vec![
        ("ts", ints(steps.iter().map(|step| step.ts))),
        ("dur", ints(steps.iter().map(|step| step.until - step.ts))),
        (
            "kind",
            Arc::new(UInt8Array::from_iter_values(
                steps.iter().map(|step| step.kind as u8),
            )),
        ),
        ("utid", counts(steps.iter().map(|step| step.utid))),
        ("cpu", cpus(steps.iter().map(|step| step.cpu))),
        (
            "ended",
            Arc::new(UInt8Array::from_iter_values(
                steps.iter().map(|step| step.ended as u8),
            )),
        ),
        (
            "other_utid",
            Arc::new(steps.iter().map(|step| step.other).collect::<UInt32Array>()),
        ),
    ])?)
}

/// The sleep that each wakeup ended: its begin `ts` and `state`, null where none ended then.
///
/// `states` has ts, dur, utid, state and end, `asked` utid and ts_ready.
#[pyfunction]
pub fn sleeps_before(states: &Bound<'_, PyAny>, asked: &Bound<'_, PyAny>) -> PyResult<ArrowTable> {
    let mut sleeps = sleeps::Sleeps::new(&read_stream(asked)?.1)?;
    each_batch(states, |batch| sleeps.read(&batch))?;
    let found = sleeps.found;
    let ts: Int64Array = found.iter().map(|sleep| sleep.map(|(ts, _)| ts)).collect();
    let state: UInt8Array = found
        .iter()
        .map(|sleep| sleep.map(|(_, state)| state))
        .collect();
    Ok(table(vec![
        ("ts", Arc::new(ts)),
        ("state", Arc::new(state)),
    ])?)
}

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
/// and end; `ins` the switch-ins (ts, cpu, utid) up to `sure`, after which each run has one.
#[pyfunction]
pub fn run_lengths(
    py: Python<'_>,
    states: &Bound<'_, PyAny>,
    ins: &Bound<'_, PyAny>,
    window: (i64, i64),
    idle: u32,
    grouping: Grouping,
) -> PyResult<ArrowTable> {
    let switches = read_stream(ins)?.1;
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
        return Err(Error::usage("a quantile outside of (0, 1]", "part and whole", "").into());
    }
    let mut ins = FxHashSet::default();
    for batch in &switches {
        let (ts, cpu) = (
            full::<Int64Type>(batch, "ts")?,
            full::<UInt16Type>(batch, "cpu")?,
        );
        let utid = full::<UInt32Type>(batch, "utid")?;
        ins.extend((0..ts.len()).map(|i| (cpu[i], ts[i], utid[i])));
    }
    let question = lengths::Question {
        window,
        idle,
        group,
        beyond,
        by_cpu,
        by_end,
        ins,
        sure,
    };
    let mut lengths = lengths::Lengths::new(question);
    each_batch(states, |batch| lengths.read(&batch))?;
    let mut found = lengths.found;
    let told: Vec<_> = py.detach(|| {
        found
            .iter_mut()
            .map(|(_, runs)| runs.quantiles(&shares))
            .collect()
    });
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
        ("n", ints(runs().map(|runs| runs.n() as i64))),
        (
            "n_censored",
            ints(runs().map(|runs| runs.n_censored as i64)),
        ),
        ("total", ints(runs().map(super::lengths::Runs::total))),
        (
            "total_censored",
            ints(runs().map(|runs| runs.total_censored)),
        ),
        (
            "max",
            Arc::new(
                told.iter()
                    .map(|told| told.as_ref().map(|(max, _)| *max))
                    .collect::<Int64Array>(),
            ),
        ),
    ];
    let names: Vec<String> = (0..shares.len()).map(|share| format!("q{share}")).collect();
    for (share, name) in names.iter().enumerate() {
        let values: Int64Array = told
            .iter()
            .map(|told| told.as_ref().map(|(_, values)| values[share]))
            .collect();
        columns.push((name, Arc::new(values)));
    }
    Ok(table(columns)?)
}
