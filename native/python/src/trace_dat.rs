//! Fact tables, or made-up events, as a trace.dat.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use arrow_array::RecordBatch;
use pyo3::prelude::*;

use super::tables::{Frames, rows_in};
use crate::error::{EngineResult, Error, Result};
use schedscope_decode::tracedat::compression::Kind;
use schedscope_encode::synthetic::Machine;
use schedscope_encode::tables::Player;
use schedscope_encode::tracedat::{LeftOut, Settings, Writer};
use schedscope_trace::reconstruct::facts::{self, Facts, TableIn};

/// Settings by name, as texts: `version`, `compression` (none, zlib, zstd),
/// `endian` (little, big), `long_bits`, `page_bytes`, `buffer`, `clock`, `uname`,
/// `absolute_every`, `discard_every`, `long_records`.
fn settings(texts: &BTreeMap<String, String>) -> EngineResult<Settings> {
    let mut settings = Settings::default();
    for (name, text) in texts {
        let wrong = |expected: &str| Error::usage(format!("{name} is {text:?}"), expected, "");
        let number = || text.parse::<u32>().map_err(|_| wrong("a whole number"));
        match name.as_str() {
            "version" => settings.version = number()?,
            "compression" => {
                settings.compression =
                    Kind::from_name(text).ok_or_else(|| wrong("none, zlib or zstd"))?;
            }
            "endian" => {
                settings.big_endian = match text.as_str() {
                    "little" => false,
                    "big" => true,
                    _ => return Err(wrong("little or big")),
                }
            }
            "long_bits" => settings.long_bytes = number()? as usize / 8,
            "page_bytes" => settings.page_bytes = number()? as usize,
            "buffer" => settings.buffer.clone_from(text),
            "clock" => settings.clock.clone_from(text),
            "uname" => settings.uname.clone_from(text),
            "absolute_every" => settings.absolute_every = number()?,
            "discard_every" => settings.discard_every = number()?,
            "long_records" => settings.long_records = number()? != 0,
            _ => {
                return Err(Error::usage(
                    format!("no setting {name:?}"),
                    "a known one",
                    "",
                ));
            }
        }
    }
    if settings.version == 6 && !texts.contains_key("compression") {
        settings.compression = Kind::None;
    }
    Ok(settings)
}

/// Writes fact tables as a trace.dat; returns how many facts of which kind a
/// trace.dat has no event for.
///
/// `blocks`: one after another, each with the tables switches, wakeups, migrations, yields and
/// losses, whose rows are later than those of the blocks before. The first one also has all of
/// threads, renames and priorities. Each is an object with `__arrow_c_stream__`; absent ones
/// are empty.
#[pyfunction]
#[pyo3(signature = (blocks, path, ncpu, options=None))]
pub fn write_trace_dat(
    py: Python<'_>,
    blocks: &Bound<'_, PyAny>,
    path: PathBuf,
    ncpu: u16,
    options: Option<BTreeMap<String, String>>,
) -> Result<LeftOut> {
    let mut writer = Writer::new(&path, ncpu, settings(&options.unwrap_or_default())?)?;
    let mut player = None;
    for block in blocks.try_iter()? {
        let tables: Frames<'_> = block?.extract()?;
        let mut read = HashMap::new();
        for name in tables.keys() {
            read.insert(name.as_str(), rows_in(&tables, name)?);
        }
        py.detach(|| -> EngineResult<()> {
            let none: Vec<RecordBatch> = Vec::new();
            let table = |name: &'static str| TableIn::new(name, read.get(name).unwrap_or(&none));
            let facts = Facts {
                switches: facts::switches(table("switches"))?,
                wakeups: facts::wakeups(table("wakeups"))?,
                migrations: facts::migrations(table("migrations"))?,
                yields: facts::yields(table("yields"))?,
                losses: facts::losses(table("losses"))?,
            };
            let player = match &mut player {
                Some(player) => player,
                empty => empty.insert(Player::new(
                    ncpu,
                    &table("threads"),
                    &table("renames"),
                    &table("priorities"),
                )?),
            };
            player.play(&facts, &mut writer)
        })?;
    }
    Ok(py.detach(|| {
        player.map_or(Ok(()), |player| player.finish(&mut writer))?;
        writer.finish()
    })?)
}

/// Writes a trace.dat of made-up scheduling with at least `events` events.
#[pyfunction]
#[pyo3(signature = (path, events, ncpu=4, threads=200, seed=1, options=None))]
pub fn synthesize_trace_dat(
    py: Python<'_>,
    path: PathBuf,
    events: u64,
    ncpu: u16,
    threads: u32,
    seed: u64,
    options: Option<BTreeMap<String, String>>,
) -> Result<()> {
    let settings = settings(&options.unwrap_or_default())?;
    py.detach(|| {
        let mut writer = Writer::new(&path, ncpu, settings)?;
        Machine::new(ncpu, threads, seed).run(events, &mut writer)?;
        writer.finish().map(|_| ())
    })?;
    Ok(())
}
