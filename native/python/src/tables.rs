//! Tables that Python hands in, in memory or on disk, and columns of those that it gets.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, UInt16Array, UInt32Array};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::arrow::{ArrowTable, read_stream};
use crate::error::{EngineResult, Error, Result};
use schedscope_model::columns;
use schedscope_sweep::ranks::{Ranks, Share};
use schedscope_trace::store::{Scan, Source};

/// Some columns of a table in a `.sched` folder, categories as their codes. Native code
/// reads them page by page; to anybody else it is a table in memory.
#[pyclass(frozen, module = "schedscope._native")]
pub struct StoredTable(Arc<Scan>);

#[pymethods]
impl StoredTable {
    /// None if something else than `convert` wrote the file: only its own pages are known here.
    /// `groups`: the first row group that is read, and the first after it that is not.
    #[staticmethod]
    #[pyo3(signature = (folder, table, columns, groups=None))]
    fn open(
        folder: PathBuf,
        table: &str,
        columns: Vec<String>,
        groups: Option<(usize, usize)>,
    ) -> Result<Option<Self>> {
        let scan = Scan::open(&folder, table, &columns)?;
        Ok(scan.map(|scan| {
            Self(Arc::new(match groups {
                Some((first, end)) => scan.within(first..end),
                None => scan,
            }))
        }))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Py<PyAny>>,
    ) -> Result<Bound<'py, PyCapsule>> {
        let stored = Source::Stored(Arc::clone(&self.0));
        let batches = py.detach(|| stored.batches().collect::<EngineResult<_>>())?;
        ArrowTable::new(self.0.schema(), batches).__arrow_c_stream__(py, requested_schema)
    }
}

/// The `table`, which errors call by its `name` if it has no file.
pub fn source_of<'a>(table: &'a Bound<'_, PyAny>, name: &'a str) -> Result<Source<'a>> {
    match table.cast::<StoredTable>() {
        Ok(stored) => Ok(Source::Stored(Arc::clone(&stored.get().0))),
        Err(_) => Ok(Source::Held(name, read_stream(table)?.1)),
    }
}

/// Tables by name; those that are absent are empty.
pub type Frames<'py> = HashMap<String, Bound<'py, PyAny>>;

pub fn source_in<'a>(frames: &'a Frames<'_>, name: &'a str) -> Result<Source<'a>> {
    match frames.get(name) {
        Some(table) => source_of(table, name),
        None => Ok(Source::Held(name, Vec::new())),
    }
}

/// All rows of one of them.
pub fn rows_in(frames: &Frames<'_>, name: &str) -> Result<Vec<RecordBatch>> {
    let rows = source_in(frames, name)?
        .batches()
        .collect::<EngineResult<_>>();
    Ok(rows?)
}

/// A table of columns of one length.
pub fn table(columns: Vec<(impl AsRef<str>, ArrayRef)>) -> Result<ArrowTable> {
    let named = columns
        .iter()
        .map(|(name, array)| (name.as_ref(), Arc::clone(array)));
    Ok(columns::table(named.collect())?.into())
}

/// Quantiles as numerator and denominator.
pub fn shares_of(shares: Vec<Share>) -> Result<Vec<Share>> {
    if shares
        .iter()
        .any(|(part, whole)| *part == 0 || part > whole)
    {
        return Err(Error::internal("a quantile outside of (0, 1]").into());
    }
    Ok(shares)
}

/// How many values each group has, their sum, the greatest, and a column for each of the shares;
/// their names begin with the prefix.
pub fn of_ranks<'a, I: Iterator<Item = &'a Ranks>>(
    prefix: &str,
    shares: usize,
    of_groups: impl Fn() -> I,
) -> Vec<(String, ArrayRef)> {
    let greatest = of_groups().map(Ranks::max).collect::<Int64Array>();
    let mut columns = vec![
        (
            format!("{prefix}n"),
            ints(of_groups().map(|ranks| ranks.n() as i64)),
        ),
        (
            format!("{prefix}total"),
            ints(of_groups().map(Ranks::total)),
        ),
        (format!("{prefix}max"), Arc::new(greatest) as ArrayRef),
    ];
    let found: Vec<_> = of_groups().map(Ranks::found).collect();
    columns.extend((0..shares).map(|share| {
        let values = found
            .iter()
            .map(|of| of.as_ref().map(|values| values[share]));
        let values: ArrayRef = Arc::new(values.collect::<Int64Array>());
        (format!("{prefix}q{share}"), values)
    }));
    columns
}

pub fn ints(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

pub fn counts(values: impl Iterator<Item = u32>) -> ArrayRef {
    Arc::new(UInt32Array::from_iter_values(values))
}

pub fn cpus(values: impl Iterator<Item = Option<u16>>) -> ArrayRef {
    Arc::new(values.collect::<UInt16Array>())
}

pub fn floats(values: impl Iterator<Item = f64>) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(values))
}

/// Hands `take` the rows of `states`: a table on disk, page by page, or one in memory.
pub fn each_batch(
    states: &Bound<'_, PyAny>,
    mut take: impl FnMut(RecordBatch) -> EngineResult<()> + Send,
) -> Result<()> {
    let source = source_of(states, "states")?;
    Ok(states
        .py()
        .detach(|| source.batches().try_for_each(|batch| take(batch?)))?)
}
