//! The native engine of schedscope: decoders, reconstruction, simulation.
//!
//! Data goes one way: `decode` (a Source sends events) -> `pipeline` (tids to
//! utids, fact tables) -> `reconstruct` (states, waits) -> `store`.

pub mod arrow_ffi;
mod columns;
pub mod decode;
pub mod definitions;
pub mod encode;
pub mod error;
pub mod export;
pub mod interactivity;
mod interrupt;
pub mod model;
pub mod pipeline;
mod python;
mod realign;
pub mod reconstruct;
mod regular_file;
pub mod sim;
pub mod store;
pub mod summary;
pub mod sweep;
mod touch;
pub mod virtual_lag;

use pyo3::prelude::*;

/// Decoders, reconstruction and simulation; `schedscope` is the Python face.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::arrow_ffi::ArrowTable;
    #[pymodule_export]
    use crate::decode::python::count_events;
    #[pymodule_export]
    use crate::definitions::python::{definition_figures, definition_waits, ledger_figures};
    #[pymodule_export]
    use crate::encode::python::{synthesize_trace_dat, write_trace_dat};
    #[pymodule_export]
    use crate::interactivity::python::interactivity;
    #[pymodule_export]
    use crate::python::{
        as_table, convert, decode_path, empty_tables, formats, recognise, reconstruct,
        write_perfetto,
    };

    #[pymodule_export]
    use crate::sim::agreement::discordance;

    #[pymodule_export]
    use crate::store::plausible::check_table;
    #[pymodule_export]
    use crate::store::python::StoredTable;

    #[pymodule_export]
    use crate::virtual_lag::python::virtual_lag;

    #[pymodule_export]
    use crate::sweep::doors::{
        lengths::run_lengths,
        occupancy::Occupancy,
        path::{critical_path, sleeps_before},
        run_sums::run_sums,
        tiles::tiling,
        weights::levels_of,
    };

    #[pymodule_export]
    use crate::sim::python::{extract, policies, simulate};

    /// The version of the table schemas; caches of another version are rebuilt.
    #[pymodule_export]
    const SCHEMA_VERSION: u32 = crate::model::tables::SCHEMA_VERSION;
}
