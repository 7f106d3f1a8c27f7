//! Who ran while threads waited.

use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::tables::{counts, ints, source_of, table};
use super::victims::{Victims, victims_of};
use crate::error::Result;
use crate::model::event::Cause;
use crate::sweep::cpu_index::CpuIndex;
use crate::sweep::history::History;
use crate::sweep::interference;
use crate::sweep::wait_cursor::WaitCursor;

pub fn interference(
    read: &History,
    py: Python<'_>,
    asked: &Bound<'_, PyAny>,
    group: Vec<u32>,
    ngroups: u32,
    numbers: Vec<u16>,
    waits: &Bound<'_, PyAny>,
) -> PyResult<(ArrowTable, ArrowTable)> {
    let waits = source_of(waits, "waits")?;
    let Victims { victim, only } = victims_of(asked, read.changes.threads)?;
    let lanes = CpuIndex::new([numbers, read.changes.cpus.clone()].concat());
    let found = py.detach(|| -> Result<_> {
        let ledger = WaitCursor::read(waits.batches(), read.begin, |utid| {
            victim.get(utid as usize).copied().flatten().is_some()
        })?;
        let mut question = interference::InterferenceQuery {
            victim,
            only,
            group,
            ngroups,
            lanes,
            ledger,
        };
        interference::interference(&read.changes, &mut question)
    })?;
    let totals = table(vec![
        ("victim", counts(found.iter().map(|of| of.victim))),
        ("wait", ints(found.iter().map(|of| of.total.wait))),
        ("n_waits", counts(found.iter().map(|of| of.total.n))),
    ])?;
    let blamed: Vec<_> = found
        .iter()
        .flat_map(|of| {
            of.blamed
                .iter()
                .map(|(group, blamed)| (of.victim, *group, blamed))
        })
        .collect();
    let mut columns = vec![
        ("victim", counts(blamed.iter().map(|(victim, ..)| *victim))),
        ("group", counts(blamed.iter().map(|(_, group, _)| *group))),
        ("n", counts(blamed.iter().map(|(.., blamed)| blamed.n))),
    ];
    for (cause, name) in Cause::TEXTS.iter().enumerate() {
        let time = blamed.iter().map(|(.., blamed)| blamed.time[cause]);
        columns.push((name, ints(time)));
    }
    Ok((totals, table(columns)?))
}
