//! Record batches to and from Python through the Arrow C stream interface.
//!
//! The only file with `unsafe` code. Nothing is copied: Polars takes over the
//! buffers, and a Polars frame handed in is read where it lies.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::sync::Arc;

use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::SchemaRef;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::error::{Error, Result};

const STREAM: &CStr = c"arrow_array_stream";

/// A table in memory: give it to `polars.DataFrame(...)`, `pyarrow.table(...)`
/// or anything else that knows `__arrow_c_stream__`.
#[pyclass(frozen, module = "schedscope._native")]
pub struct ArrowTable {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl ArrowTable {
    pub fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, batches }
    }
}

impl From<RecordBatch> for ArrowTable {
    fn from(batch: RecordBatch) -> Self {
        Self::new(batch.schema(), vec![batch])
    }
}

#[pymethods]
impl ArrowTable {
    #[pyo3(signature = (requested_schema=None))]
    pub fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Py<PyAny>>,
    ) -> Result<Bound<'py, PyCapsule>> {
        // The protocol lets a producer ignore a requested schema.
        drop(requested_schema);
        let batches = self.batches.clone();
        let reader =
            RecordBatchIterator::new(batches.into_iter().map(Ok), Arc::clone(&self.schema));
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        Ok(PyCapsule::new_with_value(py, stream, STREAM)?)
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// Reads any object with `__arrow_c_stream__` (a Polars frame, an
/// `ArrowTable`) into record batches.
pub fn read_stream(object: &Bound<'_, PyAny>) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let capsule = object.call_method0("__arrow_c_stream__")?;
    let capsule = capsule
        .cast::<PyCapsule>()
        .map_err(|_| Error::internal("__arrow_c_stream__ gave no capsule"))?;
    let pointer = capsule
        .pointer_checked(Some(STREAM))?
        .cast::<FFI_ArrowArrayStream>();
    // SAFETY: the capsule carries the name that the Arrow PyCapsule protocol reserves for a valid
    // ArrowArrayStream; from_raw moves the stream out and leaves a released one behind, so the
    // capsule's destructor frees nothing twice. We hold the interpreter lock, so no other thread
    // consumes it.
    let reader = unsafe { RecordBatchStreamReader::from_raw(pointer.as_ptr()) }
        .map_err(|error| Error::internal(format!("unreadable Arrow stream: {error}")))?;
    let schema = arrow_array::RecordBatchReader::schema(&reader);
    let batches = reader
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(|error| Error::internal(format!("unreadable Arrow stream: {error}")))?;
    Ok((schema, batches))
}

/// Any object with `__arrow_c_stream__` as an `ArrowTable`: nothing is copied.
#[pyfunction]
pub fn as_table(object: &Bound<'_, PyAny>) -> Result<ArrowTable> {
    let (schema, batches) = read_stream(object)?;
    Ok(ArrowTable::new(Arc::clone(&schema), batches))
}
