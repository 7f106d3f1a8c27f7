//! The one boundary to Python: what it can call, a file for each question.

mod accounting;
mod agreement;
mod arrow;
mod check_table;
mod checksum;
mod count_events;
mod cpu_history;
mod critical_path;
mod discordance;
mod episode_interference;
mod error;
mod extract;
mod group_times;
mod hooks;
mod idle;
mod interactivity;
mod interference;
mod lone_enqueues;
mod membership;
mod open;
mod overview;
mod parts;
mod peer_rules;
mod perfetto;
mod policies;
mod policy;
mod queues;
mod quickest;
mod quotas;
mod reconstruct;
mod run_lengths;
mod run_sums;
mod sharing;
mod simulate;
mod sleeps;
mod tables;
mod trace_dat;
mod victims;
mod virtual_lag;
mod wait_breakdown;
mod wait_sums;
mod weights;
mod world;

use pyo3::prelude::*;

/// Decoders, reconstruction and simulation; `schedscope` is the Python face.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::accounting::accounting;
    #[pymodule_export]
    use super::agreement::migration_agreement;
    #[pymodule_export]
    use super::arrow::{ArrowTable, as_table};
    #[pymodule_export]
    use super::check_table::check_table;
    #[pymodule_export]
    use super::checksum::crc32;
    #[pymodule_export]
    use super::count_events::count_events;
    #[pymodule_export]
    use super::cpu_history::CpuHistory;
    #[pymodule_export]
    use super::critical_path::critical_path;
    #[pymodule_export]
    use super::discordance::discordance;
    #[pymodule_export]
    use super::extract::extract;
    #[pymodule_export]
    use super::group_times::group_times;
    #[pymodule_export]
    use super::interactivity::interactivity;
    #[pymodule_export]
    use super::lone_enqueues::lone_enqueues;
    #[pymodule_export]
    use super::membership::memberships;
    #[pymodule_export]
    use super::open::{
        convert, declared_tables, decode_path, derived_columns, formats, recognise, row_groups,
    };
    #[pymodule_export]
    use super::overview::overview;
    #[pymodule_export]
    use super::parts::{rows_in_parts, time_in_parts};
    #[pymodule_export]
    use super::peer_rules::{definition_figures, definition_waits, ledger_figures};
    #[pymodule_export]
    use super::perfetto::write_perfetto;
    #[pymodule_export]
    use super::policies::policies;
    #[pymodule_export]
    use super::quickest::quickest_wakeups;
    #[pymodule_export]
    use super::reconstruct::reconstruct;
    #[pymodule_export]
    use super::run_lengths::run_lengths;
    #[pymodule_export]
    use super::run_sums::run_sums;
    #[pymodule_export]
    use super::simulate::simulate;
    #[pymodule_export]
    use super::sleeps::{SleepsBefore, sleeps_before};
    #[pymodule_export]
    use super::tables::StoredTable;
    #[pymodule_export]
    use super::trace_dat::{synthesize_trace_dat, write_trace_dat};
    #[pymodule_export]
    use super::virtual_lag::virtual_lag;
    #[pymodule_export]
    use super::wait_sums::wait_sums;
    #[pymodule_export]
    use super::weights::levels_of;

    /// The version of the table schemas; caches of another version are rebuilt.
    #[pymodule_export]
    const SCHEMA_VERSION: u32 = schedscope_model::tables::SCHEMA_VERSION;

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::hooks::install();
        Ok(())
    }
}
