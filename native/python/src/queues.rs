//! How many threads wanted each CPU: levels and parts of the window.

use std::sync::Arc;

use arrow_array::UInt32Array;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::arrow::ArrowTable;
use super::tables::{counts, cpus, ints, table};
use crate::error::Result;
use schedscope_sweep::history::History;
use schedscope_sweep::levels;

pub fn levels(
    read: &History,
    py: Python<'_>,
    numbers: Vec<u16>,
    machine: bool,
) -> Result<ArrowTable> {
    let all = [numbers, read.changes.cpus.clone()].concat();
    let rows = py.detach(|| levels::depths(&read.changes, all, machine))?;
    let running = rows
        .iter()
        .map(|(_, _, running, _)| *running)
        .collect::<UInt32Array>();
    table(vec![
        ("cpu", cpus(rows.iter().map(|row| row.0))),
        ("waiting", counts(rows.iter().map(|row| row.1))),
        ("running", Arc::new(running)),
        ("dur", ints(rows.iter().map(|row| row.3.dur))),
        ("ts", ints(rows.iter().map(|row| row.3.first + read.begin))),
    ])
}

pub fn parts(
    read: &History,
    py: Python<'_>,
    numbers: Vec<u16>,
    machine: bool,
    step: i64,
) -> Result<ArrowTable> {
    let all = [numbers, read.changes.cpus.clone()].concat();
    let found = py.detach(|| levels::parts(&read.changes, all, machine, step))?;
    let rows = || {
        found
            .iter()
            .flat_map(|(cpu, of)| of.iter().enumerate().map(move |(n, part)| (*cpu, n, part)))
    };
    let edge = |n| levels::edge(read.changes.length, n, step);
    table(vec![
        ("cpu", cpus(rows().map(|(cpu, _, _)| cpu))),
        ("ts", ints(rows().map(|(_, n, _)| edge(n) + read.begin))),
        ("dur", ints(rows().map(|(_, n, _)| edge(n + 1) - edge(n)))),
        ("unknown", ints(rows().map(|(_, _, part)| part.unknown))),
        ("waiting", ints(rows().map(|(_, _, part)| part.waiting))),
        ("running", ints(rows().map(|(_, _, part)| part.running))),
        (
            "waiting_unknown",
            ints(rows().map(|(_, _, part)| part.waiting_unknown)),
        ),
        (
            "waiting_max",
            counts(rows().map(|(_, _, part)| part.most_waiting)),
        ),
        ("depth_max", counts(rows().map(|(_, _, part)| part.most))),
    ])
}

/// The key of a lane (a CPU, or none: the machine) and, as the bytes of i64, u32 and u32: threads'
/// time that they ran or waited where that is known, the time in which it is, and the most at once.
pub type LaneSums<'py> = (Option<u16>, [Bound<'py, PyBytes>; 3]);

/// Every lane of queue depth, over buckets of `step` ns of the window, in one pass.
pub fn depth_sums<'py>(
    read: &History,
    py: Python<'py>,
    numbers: Vec<u16>,
    step: i64,
) -> Result<Vec<LaneSums<'py>>> {
    let all = [numbers, read.changes.cpus.clone()].concat();
    let (cpus, machine) = py.detach(|| levels::all_parts(&read.changes, all, step))?;
    let of_cpus = cpus.into_iter().filter(|(cpu, _)| cpu.is_some());
    let lanes = of_cpus.chain([(None, machine)]);
    Ok(lanes
        .map(|(cpu, parts)| (cpu, sums_of(py, read.changes.length, step, &parts)))
        .collect())
}

fn sums_of<'py>(
    py: Python<'py>,
    length: i64,
    step: i64,
    parts: &[levels::Part],
) -> [Bound<'py, PyBytes>; 3] {
    let edge = |n| levels::edge(length, n, step);
    let known = |(n, part): (usize, &levels::Part)| {
        u32::try_from(edge(n + 1) - edge(n) - part.unknown).unwrap_or(u32::MAX)
    };
    let sums = parts.iter().map(|part| part.waiting + part.running);
    [
        bytes(py, sums.map(i64::to_le_bytes)),
        bytes(
            py,
            parts.iter().enumerate().map(known).map(u32::to_le_bytes),
        ),
        bytes(py, parts.iter().map(|part| part.most.to_le_bytes())),
    ]
}

fn bytes<const N: usize>(
    py: Python<'_>,
    values: impl Iterator<Item = [u8; N]>,
) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &values.flatten().collect::<Vec<u8>>())
}
