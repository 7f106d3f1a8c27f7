//! The checksum of a file.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::error::Result;
use schedscope_trace::store::checksum;

/// CRC-32 of `length` bytes from `offset` on (none: to the end), or of those that there are.
#[pyfunction]
#[pyo3(signature = (path, offset=0, length=None))]
pub fn crc32(py: Python<'_>, path: PathBuf, offset: u64, length: Option<u64>) -> Result<u32> {
    Ok(py.detach(|| checksum::crc32(&path, offset, length.unwrap_or(u64::MAX)))?)
}
