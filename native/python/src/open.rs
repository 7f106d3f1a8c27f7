//! Which formats there are, and a trace's tables out of a file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread::available_parallelism;

use pyo3::prelude::*;

use super::arrow::ArrowTable;
use crate::error::{EngineResult, Error, Result};
use schedscope_decode::{self as decode, Options};
use schedscope_model::tables::declared;
use schedscope_trace::convert as engine;
use schedscope_trace::store::derived::DERIVED;
use schedscope_trace::store::groups::{self, Group};
use schedscope_trace::store::{MemoryStore, ParquetStore};

/// The name of the format of `path`, recognised by its content.
#[pyfunction]
pub fn recognise(path: PathBuf) -> Result<&'static str> {
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

/// Every table of the trace model: its name, what a row is, the table without rows, and of each
/// column whether it may be null and what it says.
#[pyfunction]
pub fn declared_tables() -> Vec<TableRow> {
    declared()
        .into_iter()
        .map(|table| {
            let fields = table.schema.fields().iter();
            let nullable = fields.map(|field| field.is_nullable());
            let columns = nullable.zip(table.columns).collect();
            let empty = ArrowTable::new(table.schema.clone(), Vec::new());
            (table.name, table.about, empty, columns)
        })
        .collect()
}

type TableRow = (
    &'static str,
    &'static str,
    ArrowTable,
    Vec<(bool, &'static str)>,
);

/// The columns that files hold as what is added to others: table, column, name in the file, and
/// those others with their signs. What one of them is derived from stands before it.
#[pyfunction]
pub fn derived_columns() -> Vec<DerivedRow> {
    DERIVED
        .iter()
        .map(|one| (one.table, one.name, one.stored, one.terms.to_vec()))
        .collect()
}

type DerivedRow = (
    &'static str,
    &'static str,
    &'static str,
    Vec<(&'static str, i64)>,
);

/// Calls `callback(done, total)` now and then, and lets Ctrl-C through.
pub fn reporter<T>(callback: Option<Py<PyAny>>) -> impl FnMut(T, u64) -> EngineResult<()>
where
    T: for<'py> IntoPyObject<'py>,
{
    move |done, total| {
        Python::attach(|py| -> Result<()> {
            py.check_signals()?;
            if let Some(callback) = &callback {
                callback.call1(py, (done, total))?;
            }
            Ok(())
        })
        .map_err(Error::from)
    }
}

/// Threads that may work at once: what was asked for, or as many as the process has CPUs.
fn workers(jobs: Option<i64>) -> EngineResult<usize> {
    let Some(jobs) = jobs else {
        return Ok(available_parallelism().map_or(1, usize::from));
    };
    let number = usize::try_from(jobs).ok().filter(|&number| number > 0);
    number.ok_or_else(|| {
        Error::usage(
            format!("jobs: {jobs}"),
            "a number of threads, 1 or more",
            "leave it out for as many as there are CPUs",
        )
    })
}

/// Decodes and reconstructs `path` into one Parquet file per table in the existing folder
/// `out_dir`, streaming; returns the text of trace.json. `layout`: rows of a row group, filled up
/// to the next page, and whether the files have the columns of the model alone; else some of those
/// are written as what is added to others. `jobs`: threads, as many as there are CPUs if None; the
/// files are the same.
#[pyfunction]
#[pyo3(signature = (path, out_dir, options=None, progress=None, layout=(None, false), jobs=None))]
pub fn convert(
    py: Python<'_>,
    path: PathBuf,
    out_dir: PathBuf,
    options: Option<BTreeMap<String, String>>,
    progress: Option<Py<PyAny>>,
    layout: (Option<usize>, bool),
    jobs: Option<i64>,
) -> Result<String> {
    let options = Options {
        given: options.unwrap_or_default(),
        jobs: workers(jobs)?,
        ..Options::default()
    };
    let mut progress = reporter(progress);
    py.detach(|| {
        let fresh = || ParquetStore::new(&out_dir, layout.0, layout.1);
        let (store, json) = engine::convert(&path, &options, None, fresh, &mut progress)?;
        let rows = store.finish(options.jobs)?;
        Ok(json.text(&rows))
    })
}

/// What is known of each row group of a table's file that `convert` wrote: rows, offset in the
/// file, bytes, CRC-32 of those, first and last instant; and how many rows the file of long ones
/// beside has; see `store/groups.rs`. None if nothing is.
#[pyfunction]
pub fn row_groups(path: PathBuf) -> Result<Option<(Vec<GroupRow>, u64)>> {
    let row = |g: &Group| (g.rows, g.offset, g.bytes, g.crc32, g.first, g.last);
    let told = groups::read(&path)?;
    Ok(told.map(|told| (told.groups.iter().map(row).collect(), told.long)))
}

type GroupRow = (u64, u64, u64, u32, i64, i64);

/// What `convert` writes, in memory: (tables by name, text of trace.json). `only`: names of
/// the tables to build; the others are left out.
#[pyfunction]
#[pyo3(name = "decode", signature = (path, options=None, progress=None, only=None, jobs=None))]
pub fn decode_path(
    py: Python<'_>,
    path: PathBuf,
    options: Option<BTreeMap<String, String>>,
    progress: Option<Py<PyAny>>,
    only: Option<Vec<String>>,
    jobs: Option<i64>,
) -> Result<(BTreeMap<&'static str, ArrowTable>, String)> {
    let options = Options {
        given: options.unwrap_or_default(),
        jobs: workers(jobs)?,
        ..Options::default()
    };
    let mut progress = reporter(progress);
    let (store, json) = py.detach(|| {
        let fresh = || Ok(MemoryStore::default());
        let only = only.as_deref();
        engine::convert(&path, &options, only, fresh, &mut progress)
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

pub fn in_memory(mut store: MemoryStore) -> BTreeMap<&'static str, (u64, ArrowTable)> {
    declared()
        .into_iter()
        .map(|table| {
            let batches = store.tables.remove(table.name).unwrap_or_default();
            let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
            (table.name, (rows, ArrowTable::new(table.schema, batches)))
        })
        .collect()
}
