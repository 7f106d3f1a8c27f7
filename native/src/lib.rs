//! The native engine of schedscope: decoders, reconstruction, simulation.
//!
//! Data goes one way: `decode` (a Source sends events) -> `pipeline` (tids to
//! utids, fact tables) -> `reconstruct` (states, waits) -> `store`.

pub mod arrow_ffi;
pub mod decode;
pub mod error;
pub mod model;
pub mod reconstruct;
pub mod store;

use pyo3::prelude::*;

/// Decoders, reconstruction and simulation; `schedscope` is the Python face.
#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use crate::arrow_ffi::ArrowTable;

    /// The version of the table schemas; caches of another version are rebuilt.
    #[pymodule_export]
    const SCHEMA_VERSION: u32 = crate::model::tables::SCHEMA_VERSION;

    /// Every table of the trace model, empty, by name: the native twin of
    /// `schedscope.parsers.schema`.
    #[pyfunction]
    fn empty_tables() -> Vec<(&'static str, ArrowTable)> {
        crate::model::tables::schemas()
            .into_iter()
            .map(|(name, schema)| (name, ArrowTable::new(schema, Vec::new())))
            .collect()
    }
}
