//! The functions that Python calls.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrow_ffi::{ArrowTable, read_stream};
use crate::decode::{self, Options};
use crate::error::{Error, Result};
use crate::export::perfetto;
use crate::model::event::WakeKind;
use crate::model::tables::{self, Table, schemas};
use crate::pipeline::Pipeline;
use crate::realign::Realign;
use crate::reconstruct::apart::Clocks;
use crate::reconstruct::clocks::{self, Examiner, Offset};
use crate::reconstruct::facts::{self, Facts, TableIn};
use crate::reconstruct::{Counters, Reconstructor};
use crate::store::{MemoryStore, ParquetStore, Store};
use crate::summary;

/// The name of the format of `path`, told by its content.
#[pyfunction]
pub fn recognise(path: PathBuf) -> PyResult<&'static str> {
    Ok(decode::recognise(&path)?)
}

/// Every format that can be opened, in the order of recognition: name, about, options.
#[pyfunction]
pub fn formats() -> Vec<FormatRow> {
    decode::FORMATS
        .iter()
        .map(|format| (format.name, format.about, format.options.to_vec()))
        .collect()
}

/// Name, what wrote such a file, and the options with a sentence each.
type FormatRow = (
    &'static str,
    &'static str,
    Vec<(&'static str, &'static str)>,
);

/// Every table of the trace model, empty, by name: the native twin of
/// `schedscope.parsers.schema`.
#[pyfunction]
pub fn empty_tables() -> BTreeMap<&'static str, ArrowTable> {
    schemas()
        .into_iter()
        .map(|(name, schema)| (name, ArrowTable::new(schema, Vec::new())))
        .collect()
}

/// Calls `progress(done, total)` now and then, and lets Ctrl-C through.
struct Reporter {
    callback: Option<Py<PyAny>>,
}

impl Reporter {
    fn report(&self, done: u64, total: u64) -> Result<()> {
        Python::attach(|py| {
            py.check_signals()?;
            if let Some(callback) = &self.callback {
                callback.call1(py, (done, total))?;
            }
            Ok(())
        })
        .map_err(Error::Python)
    }
}

/// Runs the whole pass into a new store; returns that and the text of trace.json
/// without the row counts, which only the store knows.
///
/// Where the source lost events and does not tell when, the trace is read again with every
/// place where they may be missing. Where the threads' events come in an order that cannot be,
/// it is read to see whether the CPUs' clocks differ; and if they do, once more, mended.
fn run<S: Store>(
    path: &Path,
    options: &Options,
    only: Option<&[String]>,
    mut store: impl FnMut() -> Result<S>,
    reporter: &Reporter,
) -> Result<(S, summary::TraceJson)> {
    let mut pass = |offsets: &[Offset], anywhere: &[(Option<u16>, u64)]| -> Result<_> {
        let mut store = store()?;
        let (format, mut source) = decode::open_with_gaps(path, options, anywhere)?;
        let info = source.info().clone();
        let mut progress = |done, total| reporter.report(done, total);
        let mut pipeline = Pipeline::new(&info, &mut store, &mut progress);
        if let Some(names) = only {
            pipeline = pipeline.only(names);
        }
        pipeline = pipeline.with_clocks(clocks::known(offsets, info.ncpu));
        let end = match clocks::ahead(offsets, info.ncpu) {
            None => source.run(&mut pipeline)?,
            Some(ahead) => {
                let mut realign = Realign::new(pipeline, ahead);
                let end = source.run(&mut realign)?;
                pipeline = realign.finish()?;
                end
            }
        };
        pipeline.last_names(&end.last_names);
        let summary = pipeline.finish(&info)?;
        let json = summary::TraceJson::new(path, format, &info, &end, &summary, offsets);
        let inferred = summary.reconstruction.is_some();
        let broken = summary.reconstruction.map_or(0, |one| one.out_of_order());
        let anywhere = if inferred { end.anywhere } else { Vec::new() };
        Ok((store, json, broken, anywhere))
    };
    let (mut store, mut json, broken, anywhere) = pass(&[], &[])?;
    // A pipe is read once.
    if !(path.is_file() || path.is_dir()) {
        return Ok((store, json));
    }
    if !anywhere.is_empty() {
        drop(store);
        (store, json, ..) = pass(&[], &anywhere)?;
    }
    if broken < clocks::SUSPICIOUS {
        return Ok((store, json));
    }
    let offsets = offsets(path, options, reporter)?;
    if offsets.is_empty() {
        return Ok((store, json));
    }
    drop(store);
    let (store, json, ..) = pass(&offsets, &anywhere)?;
    Ok((store, json))
}

/// How the clocks of a trace's CPUs differ.
fn offsets(path: &Path, options: &Options, reporter: &Reporter) -> Result<Vec<Offset>> {
    let (_, mut source) = decode::open(path, options)?;
    let info = source.info().clone();
    if info.ncpu < 2 || !(info.has_waking || info.has_enqueued) {
        return Ok(Vec::new());
    }
    let mut progress = |done, total| reporter.report(done, total);
    let both_steps = info.has_waking && info.has_enqueued;
    let mut examiner = Examiner::new(info.ncpu, both_steps, &mut progress);
    source.run(&mut examiner)?;
    Ok(examiner.offsets())
}

/// Decodes and reconstructs `path` into one Parquet file per table in the
/// existing folder `out_dir`, streaming; returns the text of trace.json.
#[pyfunction]
#[pyo3(signature = (path, out_dir, options=None, progress=None))]
pub fn convert(
    py: Python<'_>,
    path: PathBuf,
    out_dir: PathBuf,
    options: Option<BTreeMap<String, String>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let options = Options(options.unwrap_or_default());
    let reporter = Reporter { callback: progress };
    py.detach(|| {
        let fresh = || ParquetStore::new(&out_dir);
        let (store, json) = run(&path, &options, None, fresh, &reporter)?;
        let rows = store.finish()?;
        Ok(json.text(&rows))
    })
}

/// The same in memory: (tables by name, text of trace.json). `only`: names of
/// the tables to build; the others are left out.
#[pyfunction]
#[pyo3(name = "decode", signature = (path, options=None, progress=None, only=None))]
pub fn decode_path(
    py: Python<'_>,
    path: PathBuf,
    options: Option<BTreeMap<String, String>>,
    progress: Option<Py<PyAny>>,
    only: Option<Vec<String>>,
) -> PyResult<(BTreeMap<&'static str, ArrowTable>, String)> {
    let options = Options(options.unwrap_or_default());
    let reporter = Reporter { callback: progress };
    let (store, json) = py.detach(|| {
        let fresh = || Ok(MemoryStore::default());
        run(&path, &options, only.as_deref(), fresh, &reporter)
    })?;
    let mut tables = in_memory(store);
    if let Some(names) = &only {
        tables.retain(|&name, _| names.iter().any(|wanted| wanted == name));
    }
    let rows = tables
        .iter()
        .map(|(&name, (rows, _))| (name, *rows))
        .collect();
    Ok((
        tables
            .into_iter()
            .map(|(name, (_, table))| (name, table))
            .collect(),
        json.text(&rows),
    ))
}

fn in_memory(mut store: MemoryStore) -> BTreeMap<&'static str, (u64, ArrowTable)> {
    schemas()
        .into_iter()
        .map(|(name, schema)| {
            let batches = store.tables.remove(name).unwrap_or_default();
            let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
            (name, (rows, ArrowTable::new(schema, batches)))
        })
        .collect()
}

/// States, waits and losses of fact tables that already exist.
///
/// `facts`: any of switches, wakeups, migrations, yields, losses, each an
/// object with `__arrow_c_stream__`, in order of time; and `threads`, whose
/// `affinity` says which CPUs a thread may use. `window` defaults to
/// the first and last row. `chunk`: rows of output per batch. `linux`: wakeups are
/// Linux's, each of which begins with a `waking` where these are recorded. `clocks`:
/// the number of each CPU's clock, and by how much stamps of two clocks may be off (None:
/// nobody can tell).
#[pyfunction]
#[pyo3(signature = (facts, ncpu, window=None, chunk=None, linux=true, clocks=None))]
pub fn reconstruct<'py>(
    py: Python<'py>,
    facts: HashMap<String, Bound<'py, PyAny>>,
    ncpu: u16,
    window: Option<(i64, i64)>,
    chunk: Option<usize>,
    linux: bool,
    clocks: Option<(Vec<u16>, Option<i64>)>,
) -> PyResult<Bound<'py, PyDict>> {
    let read = |name: &str| -> PyResult<Vec<RecordBatch>> {
        match facts.get(name) {
            Some(table) => Ok(read_stream(table)?.1),
            None => Ok(Vec::new()),
        }
    };
    let (switches, wakeups, migrations, yields, losses) = (
        read("switches")?,
        read("wakeups")?,
        read("migrations")?,
        read("yields")?,
        read("losses")?,
    );
    let threads = read("threads")?;
    let (store, counters, cpus) = py.detach(|| -> Result<_> {
        let facts = Facts {
            switches: facts::switches(TableIn::new("switches", &switches))?,
            wakeups: facts::wakeups(TableIn::new("wakeups", &wakeups))?,
            migrations: facts::migrations(TableIn::new("migrations", &migrations))?,
            yields: facts::yields(TableIn::new("yields", &yields))?,
            losses: facts::losses(TableIn::new("losses", &losses))?,
        };
        facts.check_order()?;
        facts.check_range(ncpu)?;
        if let Some((begin, end)) = window
            && (begin > end || begin < -facts::FAR || end > facts::FAR)
        {
            return Err(Error::usage(
                format!("a window from {begin} to {end}"),
                "its begin and its end in ns on the capture's clock",
                "",
            ));
        }
        let seen = facts.window();
        let (begin, end) = match (window, seen) {
            (Some(given), Some(seen)) => (given.0.min(seen.0), given.1.max(seen.1)),
            (Some(given), None) => given,
            (None, seen) => seen.unwrap_or((0, 0)),
        };
        facts::check_length((begin, end), ncpu)?;
        let mut store = MemoryStore::default();
        let mut wakeups = facts.wakeups.iter();
        let every_waking = linux && wakeups.any(|row| row.kind == WakeKind::Waking);
        let mut reconstruction = Reconstructor::new(ncpu, begin)
            .expecting_waking(every_waking)
            .with_clocks(clocks.map(|(clock, width)| Clocks { clock, width }));
        for (utid, cpus) in facts::affinities(&TableIn::new("threads", &threads))? {
            reconstruction.allow(utid, &cpus);
        }
        facts.feed(&mut reconstruction, chunk.unwrap_or(usize::MAX), &mut store)?;
        reconstruction.finish(end);
        store.write(tables::States::NAME, reconstruction.states.take())?;
        store.write(tables::Waits::NAME, reconstruction.waits.take())?;
        store.write(tables::Losses::NAME, reconstruction.sorted_losses())?;
        Ok((
            store,
            reconstruction.counters,
            summary::cpus(&reconstruction),
        ))
    })?;
    let result = PyDict::new(py);
    for (name, (_, table)) in in_memory(store) {
        if matches!(name, "states" | "waits" | "losses") {
            result.set_item(name, table)?;
        }
    }
    let json = py.import("json")?;
    result.set_item(
        "counters",
        json.call_method1("loads", (counters_text(&counters),))?,
    )?;
    result.set_item("per_cpu", json.call_method1("loads", (cpus.to_string(),))?)?;
    Ok(result)
}

fn counters_text(counters: &Counters) -> String {
    summary::counters(counters).to_string()
}

/// Any object with `__arrow_c_stream__` as an `ArrowTable`: nothing is copied.
#[pyfunction]
pub fn as_table(object: &Bound<'_, PyAny>) -> PyResult<ArrowTable> {
    let (schema, batches) = read_stream(object)?;
    Ok(ArrowTable::new(Arc::clone(&schema), batches))
}

/// Writes a Perfetto trace from the frames that `schedscope.export` prepares.
///
/// `host`: release, machine, version; `clock`: (begin of the window, a pair of
/// our clock and the time of day).
#[pyfunction]
pub fn write_perfetto(
    py: Python<'_>,
    path: PathBuf,
    host: (String, String, String),
    ncpu: u16,
    clock: (i64, Option<(i64, i64)>),
    frames: HashMap<String, Bound<'_, PyAny>>,
    names: Vec<String>,
) -> PyResult<()> {
    let read = |name: &str| -> PyResult<Vec<RecordBatch>> {
        match frames.get(name) {
            Some(table) => Ok(read_stream(table)?.1),
            None => Ok(Vec::new()),
        }
    };
    let ftrace = read("ftrace")?;
    let (processes, threads) = (read("processes")?, read("threads")?);
    let (tracks, points, cpus) = (read("tracks")?, read("points")?, read("cpus")?);
    py.detach(|| {
        perfetto::write(
            &path,
            &perfetto::Host {
                release: &host.0,
                machine: &host.1,
                version: &host.2,
                ncpu,
                wall: clock.1,
                begin: clock.0,
            },
            &perfetto::Frames {
                ftrace: &ftrace,
                cpus: &cpus,
                processes: &processes,
                threads: &threads,
                tracks: &tracks,
                points: &points,
                names: &names,
            },
        )
    })?;
    Ok(())
}
