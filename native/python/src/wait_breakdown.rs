//! What waits consisted of.

use arrow_array::Array;
use arrow_array::types::{Int64Type, UInt16Type};
use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::quotas::GivenQuotas;
use super::tables::{counts, cpus, ints, source_of, table};
use super::victims::{Victims, victims_of};
use crate::error::Result;
use schedscope_model::columns::{column, full};
use schedscope_sweep::cpu_index::CpuIndex;
use schedscope_sweep::history::History;
use schedscope_sweep::quotas::Closed;
use schedscope_sweep::wait_breakdown::{BreakdownQuery, OnCpu, PARTS, Parts, Wait, breakdown};

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
    /// `ts`, `dur` and `cpu`, in order of ts.
    interrupts: Bound<'py, PyAny>,
    quotas: Option<GivenQuotas<'py>>,
    /// By utid: its group was throttled, at unrecorded times.
    held: Vec<bool>,
    dispatch: i64,
}

fn on_cpus(rows: &Bound<'_, PyAny>, lanes: &CpuIndex, begin: i64) -> Result<Vec<OnCpu>> {
    let mut found = Vec::new();
    for batch in source_of(rows, "interrupts")?.batches() {
        let batch = batch?;
        let (ts, dur) = (
            full::<Int64Type>(&batch, "ts")?,
            full::<Int64Type>(&batch, "dur")?,
        );
        let cpu = column::<UInt16Type>(&batch, "cpu")?;
        for i in 0..batch.num_rows() {
            let lane = match cpu.is_null(i) {
                true => lanes.nowhere(),
                false => lanes.of(cpu.value(i)),
            };
            // No thread waits on a CPU of which nothing else is known, nor on no known one.
            if lane == lanes.nowhere() {
                continue;
            }
            let since = ts[i].saturating_sub(begin);
            found.push(OnCpu {
                lane,
                begin: since,
                end: since.saturating_add(dur[i].max(0)),
            });
        }
    }
    found.sort_by_key(|one| one.begin);
    Ok(found)
}

/// On CPUs of which something else is known, by their places.
fn throttles(closed: Vec<Closed>, lanes: &CpuIndex) -> Vec<(u32, OnCpu)> {
    let on_cpu = closed.into_iter().map(|one| {
        let lane = lanes.of(one.cpu);
        let (begin, end) = (one.begin, one.end);
        (one.group, OnCpu { lane, begin, end })
    });
    on_cpu
        .filter(|(_, one)| one.lane != lanes.nowhere())
        .collect()
}

pub fn wait_breakdown(
    read: &History,
    py: Python<'_>,
    asked: &Bound<'_, PyAny>,
    nvictims: usize,
    obstacles: &Obstacles<'_>,
    longest: usize,
) -> Result<(ArrowTable, ArrowTable)> {
    let Victims { victim, only } = victims_of(asked, read.changes.threads)?;
    let lanes = CpuIndex::new(read.changes.cpus.clone());
    let begin = read.begin;
    let interrupts = on_cpus(&obstacles.interrupts, &lanes, begin)?;
    let (throttles, group) = match &obstacles.quotas {
        Some(quotas) => (
            throttles(quotas.closed(begin)?, &lanes),
            quotas.group.clone(),
        ),
        None => (Vec::new(), Vec::new()),
    };
    let query = BreakdownQuery {
        victim,
        nvictims,
        only,
        lanes,
        is_idle: read.weights()?.is_idle.clone(),
        interrupts,
        throttles,
        group,
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
