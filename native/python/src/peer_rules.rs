//! What other tools would count as waits.

use std::sync::Arc;

use arrow_array::types::{Int16Type, Int64Type, UInt8Type, UInt16Type, UInt32Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrow::ArrowTable;
use super::tables::{Frames, source_in, source_of, table};
use crate::error::Result;
use schedscope_model::columns::{column, full};
use schedscope_model::event::Censored;
use schedscope_sweep::peer_rules::{Ended, Facts, Figures, Tally, figures_of, waits_of};

fn facts<'a>(frames: &'a Frames<'_>, ncpu: u16) -> Result<Facts<'a>> {
    Ok(Facts {
        switches: source_in(frames, "switches")?,
        wakeups: source_in(frames, "wakeups")?,
        births: source_in(frames, "births")?,
        ncpu: u32::from(ncpu),
    })
}

/// n, total, p50, p99 and max (ns) of the waits that each tool in `names` would count.
///
/// `frames`, in order of ts: `switches` (ts, cpu, prev_utid, code of prev_state, preempted,
/// next_utid, next_prio), `wakeups` (ts, utid, code of kind), `births` (ts, utid).
#[pyfunction]
pub fn definition_figures<'py>(
    py: Python<'py>,
    frames: Frames<'py>,
    ncpu: u16,
    names: Vec<String>,
) -> Result<Vec<Bound<'py, PyDict>>> {
    let facts = facts(&frames, ncpu)?;
    let figures = py.detach(|| figures_of(&facts, &names))?;
    figures.iter().map(|figures| as_dict(py, figures)).collect()
}

/// The same of the complete waits in the ledger: `waits` has wait and the code of censored.
#[pyfunction]
pub fn ledger_figures<'py>(
    py: Python<'py>,
    waits: &Bound<'py, PyAny>,
) -> Result<Bound<'py, PyDict>> {
    let table = source_of(waits, "waits")?;
    let found = py.detach(|| -> Result<Figures> {
        let mut complete = Tally::default();
        loop {
            for batch in table.batches() {
                let batch = batch?;
                let wait = column::<Int64Type>(&batch, "wait")?;
                let censored = full::<UInt8Type>(&batch, "censored")?;
                (0..batch.num_rows())
                    .filter(|i| wait.is_valid(*i) && censored[*i] == Censored::None as u8)
                    .for_each(|i| complete.add(wait.value(i)));
            }
            if !complete.again() {
                return Ok(complete.figures());
            }
        }
    })?;
    as_dict(py, &found)
}

fn as_dict<'py>(py: Python<'py>, figures: &Figures) -> Result<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("n", figures.n)?;
    row.set_item("total", figures.total)?;
    row.set_item("p50", figures.p50)?;
    row.set_item("p99", figures.p99)?;
    row.set_item("max", figures.max)?;
    Ok(row)
}

/// The waits that the tool `name` would count, in order of ts_run: utid,
/// ts_ready, ts_run, cpu, prio, wait. `frames` as for `definition_figures`.
#[pyfunction]
pub fn definition_waits(
    py: Python<'_>,
    frames: Frames<'_>,
    ncpu: u16,
    name: &str,
) -> Result<ArrowTable> {
    let facts = facts(&frames, ncpu)?;
    py.detach(|| waits(&facts, name))
}

fn waits(facts: &Facts<'_>, name: &str) -> Result<ArrowTable> {
    let rows = waits_of(facts, name)?;
    let times = |value: fn(&Ended) -> i64| -> ArrayRef {
        Arc::new(
            rows.iter()
                .map(value)
                .collect::<PrimitiveArray<Int64Type>>(),
        )
    };
    let utid: PrimitiveArray<UInt32Type> = rows.iter().map(|row| row.utid).collect();
    let cpu: PrimitiveArray<UInt16Type> = rows.iter().map(|row| row.cpu).collect();
    let prio: PrimitiveArray<Int16Type> = rows.iter().map(|row| row.prio).collect();
    table(vec![
        ("utid", Arc::new(utid)),
        ("ts_ready", times(|row| row.since)),
        ("ts_run", times(|row| row.ts_run)),
        ("cpu", Arc::new(cpu)),
        ("prio", Arc::new(prio)),
        ("wait", times(|row| row.wait)),
    ])
}
