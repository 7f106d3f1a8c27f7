//! The native engine of schedscope.
use pyo3::prelude::*;

/// Decoders, reconstruction and simulation; see `schedscope` for the Python face.
#[pymodule]
mod _native {}
