//! What waits consisted of.

use arrow_array::Array;
use arrow_array::types::{Int64Type, UInt16Type, UInt32Type};
use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::tables::{Frames, counts, cpus, ints, rows_in, table};
use super::victims::{Victims, victims_of};
use crate::columns::{column, full};
use crate::error::Result;
use crate::sweep::cpu_index::CpuIndex;
use crate::sweep::history::History;
use crate::sweep::wait_breakdown::{BreakdownQuery, OnCpu, PARTS, Parts, Wait, breakdown};

/// Names of the parts, in their order.
const NAMES: [&str; PARTS] = [
    "behind_better",
    "behind_same",
    "behind_worse",
    "interrupted",
    "throttled",
    "cpu_idle",
    "unknown",
];

/// What may keep a thread from its CPU besides other threads.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Obstacles<'py> {
    /// `interrupts` (ts, dur, cpu) and `throttles` (ts, dur, cpu, group), in order of ts.
    tables: Frames<'py>,
    /// By utid: the group that may be throttled.
    group: Vec<Option<u32>>,
    /// By utid: its group was throttled, and nobody recorded when.
    held: Vec<bool>,
    dispatch: i64,
}

fn on_cpus(
    tables: &Frames<'_>,
    name: &str,
    lanes: &CpuIndex,
    begin: i64,
) -> Result<Vec<(u32, OnCpu)>> {
    let mut found = Vec::new();
    for batch in rows_in(tables, name)? {
        let (ts, dur) = (
            full::<Int64Type>(&batch, "ts")?,
            full::<Int64Type>(&batch, "dur")?,
        );
        let cpu = column::<UInt16Type>(&batch, "cpu")?;
        let group = match batch.column_by_name("group") {
            Some(_) => Some(full::<UInt32Type>(&batch, "group")?),
            None => None,
        };
        for i in 0..batch.num_rows() {
            let lane = match cpu.is_null(i) {
                true => lanes.nowhere(),
                false => lanes.of(cpu.value(i)),
            };
            // Nobody waits on a CPU of which nothing else is known, nor on no known one.
            if lane == lanes.nowhere() {
                continue;
            }
            let since = ts[i].saturating_sub(begin);
            let one = OnCpu {
                lane,
                begin: since,
                end: since.saturating_add(dur[i].max(0)),
            };
            found.push((group.map_or(0, |group| group[i]), one));
        }
    }
    found.sort_by_key(|(_, one)| one.begin);
    Ok(found)
}

pub fn wait_breakdown(
    read: &History,
    py: Python<'_>,
    asked: &Bound<'_, PyAny>,
    nvictims: usize,
    obstacles: &Obstacles<'_>,
    longest: usize,
) -> PyResult<(ArrowTable, ArrowTable)> {
    let Victims { victim, only } = victims_of(asked, read.changes.threads)?;
    let lanes = CpuIndex::new(read.changes.cpus.clone());
    let begin = read.begin;
    let interrupts = on_cpus(&obstacles.tables, "interrupts", &lanes, begin)?;
    let throttles = on_cpus(&obstacles.tables, "throttles", &lanes, begin)?;
    let query = BreakdownQuery {
        victim,
        nvictims,
        only,
        lanes,
        is_idle: read.weights()?.is_idle.clone(),
        interrupts: interrupts.into_iter().map(|(_, one)| one).collect(),
        throttles,
        group: obstacles.group.clone(),
        held: obstacles.held.clone(),
        dispatch: obstacles.dispatch,
        longest,
    };
    let (totals, longest) = py.detach(|| breakdown(&query, &read.changes))?;
    let told = || (0u32..).zip(&totals).filter(|(_, total)| total.n > 0);
    let mut sums = vec![
        ("victim", counts(told().map(|(victim, _)| victim))),
        ("n", counts(told().map(|(_, total)| total.n))),
        ("wait", ints(told().map(|(_, total)| total.wait))),
    ];
    sums.extend(parts(told().map(|(_, total)| &total.parts)));
    let number = |wait: &Wait| query.lanes.number(wait.lane);
    let mut waits = vec![
        ("utid", counts(longest.iter().map(|wait| wait.utid))),
        ("ts", ints(longest.iter().map(|wait| wait.begin.0 + begin))),
        ("cpu", cpus(longest.iter().map(number))),
        ("wait", ints(longest.iter().map(|wait| wait.length))),
    ];
    waits.extend(parts(longest.iter().map(|wait| &wait.parts)));
    Ok((table(sums)?, table(waits)?))
}

fn parts<'a>(
    of: impl Iterator<Item = &'a Parts> + Clone,
) -> impl Iterator<Item = (&'static str, arrow_array::ArrayRef)> {
    NAMES.iter().enumerate().map(move |(part, name)| {
        let values = of.clone().map(move |parts| parts[part]);
        (*name, ints(values))
    })
}
