//! How many threads wanted each CPU: levels and parts of the window.

use std::sync::Arc;

use arrow_array::UInt32Array;
use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::tables::{counts, cpus, ints, table};
use crate::sweep::history::History;
use crate::sweep::levels;

pub fn levels(
    read: &History,
    py: Python<'_>,
    numbers: Vec<u16>,
    machine: bool,
) -> PyResult<ArrowTable> {
    let all = [numbers, read.changes.cpus.clone()].concat();
    let rows = py.detach(|| levels::depths(&read.changes, all, machine))?;
    let running = rows
        .iter()
        .map(|(_, _, running, _)| *running)
        .collect::<UInt32Array>();
    Ok(table(vec![
        ("cpu", cpus(rows.iter().map(|row| row.0))),
        ("waiting", counts(rows.iter().map(|row| row.1))),
        ("running", Arc::new(running)),
        ("dur", ints(rows.iter().map(|row| row.3.dur))),
        ("ts", ints(rows.iter().map(|row| row.3.first + read.begin))),
    ])?)
}

pub fn parts(
    read: &History,
    py: Python<'_>,
    numbers: Vec<u16>,
    machine: bool,
    step: i64,
) -> PyResult<ArrowTable> {
    let all = [numbers, read.changes.cpus.clone()].concat();
    let found = py.detach(|| levels::parts(&read.changes, all, machine, step))?;
    let rows = || {
        found
            .iter()
            .flat_map(|(cpu, of)| of.iter().enumerate().map(move |(n, part)| (*cpu, n, part)))
    };
    let edge = |n| levels::edge(read.changes.length, n, step);
    Ok(table(vec![
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
    ])?)
}
