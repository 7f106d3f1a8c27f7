//! How our migrations agree with the moves that the kernel reported.

use std::collections::BTreeMap;

use pyo3::prelude::*;

use super::tables::source_of;
use crate::error::Result;
use schedscope_sweep::agreement::Agreement;

/// Counts by name; none if the rows are not in order of time.
///
/// `waits` has utid, cause, ts_run, prev_cpu, cpu, waker_utid and waker_cpu, `reports` ts, utid and
/// to_cpu; `idle`: the number of idle threads.
#[pyfunction]
pub fn migration_agreement(
    waits: &Bound<'_, PyAny>,
    reports: &Bound<'_, PyAny>,
    idle: u32,
) -> Result<Option<BTreeMap<&'static str, u64>>> {
    let (waits, reports) = (
        source_of(waits, "waits")?,
        source_of(reports, "migrations")?,
    );
    let mut agreement = Agreement::new(reports.batches(), idle);
    waits
        .batches()
        .try_for_each(|batch| agreement.read(&batch?))?;
    let Some(found) = agreement.finish()? else {
        return Ok(None);
    };
    let silent = found.runs_moved - found.reported - (found.forks - found.reported_forks);
    Ok(Some(BTreeMap::from([
        ("n", found.runs_moved),
        ("n_reported", found.reported),
        ("n_fork", found.forks - found.reported_forks),
        ("n_silent", silent),
        ("n_events", found.events),
        ("n_repeated", found.repeated),
        ("n_returned", found.returned),
        ("n_open", found.open),
        ("n_early", found.early),
        ("n_idle", found.idle),
        ("n_elsewhere", found.elsewhere),
        ("n_unseen", found.unseen),
    ])))
}
