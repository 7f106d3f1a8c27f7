//! Tables that Python hands to analyses: in memory, or on disk.

use std::path::PathBuf;

use arrow_array::RecordBatch;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::range::{Bounds, Ranges};
use super::scan::Scan;
use crate::arrow_ffi::{ArrowTable, read_stream};
use crate::error::Result;

/// Some columns of a table in a `.sched` folder, categories as their codes. Native code
/// reads them page by page; to anybody else it is a table in memory.
#[pyclass(frozen, module = "schedscope._native")]
pub struct StoredTable(Scan);

#[pymethods]
impl StoredTable {
    /// None if something else than `convert` wrote the file: only its own pages are known here.
    #[staticmethod]
    fn open(folder: PathBuf, table: &str, columns: Vec<String>) -> PyResult<Option<Self>> {
        Ok(Scan::open(&folder, table, &columns)?.map(Self))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let batches = py.detach(|| Source::Stored(&self.0).batches().collect::<Result<_>>())?;
        ArrowTable::new(self.0.schema(), batches).__arrow_c_stream__(py, requested_schema)
    }
}

/// A table that Python handed in: on disk, or in memory and called so.
pub enum Source<'a> {
    Stored(&'a Scan),
    Held(&'a str, Vec<RecordBatch>),
}

impl<'a> Source<'a> {
    /// The `table`, which errors call by its `name` if it has no file.
    pub fn of(table: &'a Bound<'_, PyAny>, name: &'a str) -> Result<Self> {
        match table.cast::<StoredTable>() {
            Ok(stored) => Ok(Self::Stored(&stored.get().0)),
            Err(_) => Ok(Self::Held(name, read_stream(table)?.1)),
        }
    }

    pub fn rows(&self) -> usize {
        match self {
            Self::Stored(scan) => scan.rows(),
            Self::Held(_, batches) => batches.iter().map(RecordBatch::num_rows).sum(),
        }
    }

    /// All rows, in order; their numbers are in range, or it ends with an error that says which
    /// is not.
    pub fn batches(&self) -> Box<dyn Iterator<Item = Result<RecordBatch>> + Send + '_> {
        let mut ranges = match self {
            Self::Stored(scan) => scan.ranges(),
            Self::Held(name, _) => Ranges::new(format!("table {name}"), Bounds::default()),
        };
        Box::new(self.unchecked().map(move |batch| {
            let batch = batch?;
            ranges.check(&batch)?;
            Ok(batch)
        }))
    }

    /// The same for somebody who checks them.
    pub fn unchecked(&self) -> Box<dyn Iterator<Item = Result<RecordBatch>> + Send + '_> {
        match self {
            Self::Stored(scan) => Box::new(scan.batches()),
            Self::Held(_, batches) => Box::new(batches.iter().cloned().map(Ok)),
        }
    }
}
