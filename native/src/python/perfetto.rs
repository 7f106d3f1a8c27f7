//! Traces for Perfetto.

use std::path::PathBuf;

use pyo3::prelude::*;

use super::tables::{Frames, rows_in};
use crate::encode::perfetto;

/// Writes a Perfetto trace from the frames that `schedscope.export` prepares.
///
/// `host`: release, machine, version; `clock`: (begin of the window, a pair of
/// our clock and the time of day).
#[pyfunction]
pub fn write_perfetto(
    py: Python<'_>,
    path: PathBuf,
    host: (String, String, String),
    ncpu: u16,
    clock: (i64, Option<(i64, i64)>),
    frames: Frames<'_>,
    names: Vec<String>,
) -> PyResult<()> {
    let read = |name| rows_in(&frames, name);
    let ftrace = read("ftrace")?;
    let (processes, threads) = (read("processes")?, read("threads")?);
    let (tracks, points, cpus) = (read("tracks")?, read("points")?, read("cpus")?);
    py.detach(|| {
        perfetto::write(
            &path,
            &perfetto::Host {
                release: &host.0,
                machine: &host.1,
                version: &host.2,
                ncpu,
                wall: clock.1,
                begin: clock.0,
            },
            &perfetto::Frames {
                ftrace: &ftrace,
                cpus: &cpus,
                processes: &processes,
                threads: &threads,
                tracks: &tracks,
                points: &points,
                names: &names,
            },
        )
    })?;
    Ok(())
}
