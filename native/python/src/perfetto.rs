//! Traces for Perfetto.

use std::path::PathBuf;

use pyo3::prelude::*;

use super::tables::{Frames, rows_in};
use crate::error::Result;
use schedscope_encode::perfetto;

/// Writes a Perfetto trace from the frames that `schedscope.export` prepares.
///
/// `host`: release, machine, version; `clock`: (begin of the window, a pair of our clock and the
/// time of day); `blocks`: one after another, each the frames by name, of which absent ones are
/// empty, and the texts that their columns index, in addition to those of the blocks before.
#[pyfunction]
pub fn write_perfetto(
    py: Python<'_>,
    path: PathBuf,
    host: (String, String, String),
    ncpu: u16,
    clock: (i64, Option<(i64, i64)>),
    blocks: &Bound<'_, PyAny>,
) -> Result<()> {
    let mut writer = perfetto::Writer::new(
        &path,
        &perfetto::Host {
            release: &host.0,
            machine: &host.1,
            version: &host.2,
            ncpu,
            wall: clock.1,
            begin: clock.0,
        },
    )?;
    for block in blocks.try_iter()? {
        let (frames, names): (Frames<'_>, Vec<String>) = block?.extract()?;
        let read = |name| rows_in(&frames, name);
        let ftrace = read("ftrace")?;
        let (processes, threads) = (read("processes")?, read("threads")?);
        let (tracks, points, cpus) = (read("tracks")?, read("points")?, read("cpus")?);
        py.detach(|| {
            writer.push(
                names,
                &perfetto::Frames {
                    ftrace: &ftrace,
                    cpus: &cpus,
                    processes: &processes,
                    threads: &threads,
                    tracks: &tracks,
                    points: &points,
                },
            )
        })?;
    }
    Ok(writer.finish()?)
}
