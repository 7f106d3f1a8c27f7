//! Who ran while threads waited.

use std::sync::Arc;

use arrow_array::UInt32Array;
use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::tables::{counts, ints, source_of, table};
use super::victims::{Victims, victims_of};
use crate::error::{EngineResult, Result};
use schedscope_model::event::Cause;
use schedscope_sweep::cpu_index::CpuIndex;
use schedscope_sweep::history::History;
use schedscope_sweep::interference;
use schedscope_sweep::wait_cursor::WaitCursor;

/// Of each victim the `parts` of the groups that had most, and the others together.
#[expect(clippy::too_many_arguments, reason = "Python's keywords")]
pub fn interference(
    read: &History,
    py: Python<'_>,
    asked: &Bound<'_, PyAny>,
    group: Vec<u32>,
    ngroups: u32,
    numbers: Vec<u16>,
    waits: &Bound<'_, PyAny>,
    parts: usize,
) -> Result<(ArrowTable, ArrowTable)> {
    let waits = source_of(waits, "waits")?;
    let Victims { victim, only } = victims_of(asked, read.changes.threads)?;
    let lanes = CpuIndex::new([numbers, read.changes.cpus.clone()].concat());
    let found = py.detach(|| -> EngineResult<_> {
        let wanted = victim.iter().map(Option::is_some).collect();
        let mut question = interference::InterferenceQuery {
            ledger: WaitCursor::new(&waits, read.begin, wanted)?,
            victim,
            only,
            group,
            ngroups,
            lanes,
            parts,
        };
        interference::interference(&read.changes, &mut question)
    })?;
    let totals = table(vec![
        ("victim", counts(found.iter().map(|of| of.victim))),
        ("wait", ints(found.iter().map(|of| of.total.wait))),
        ("n_waits", counts(found.iter().map(|of| of.total.n))),
    ])?;
    let others = ngroups + 3;
    let blamed = || {
        found.iter().flat_map(move |of| {
            let parts = of.parts.blamed.iter().map(|(group, of)| (*group, of));
            let others = of.parts.others.iter().map(move |of| (others, of));
            parts
                .chain(others)
                .map(|(group, part)| (of.victim, group, part))
        })
    };
    let times = blamed().map(|(_, group, part)| (group != others).then_some(part.n));
    let mut columns = vec![
        ("victim", counts(blamed().map(|(victim, ..)| victim))),
        ("group", counts(blamed().map(|(_, group, _)| group))),
        ("n", Arc::new(times.collect::<UInt32Array>())),
    ];
    for (cause, name) in Cause::TEXTS.iter().enumerate() {
        columns.push((name, ints(blamed().map(|(.., part)| part.time[cause]))));
    }
    Ok((totals, table(columns)?))
}
