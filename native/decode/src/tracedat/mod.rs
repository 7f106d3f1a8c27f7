//! trace.dat, the file of trace-cmd, versions 6 and 7 (docs/formats/trace-dat.md).

pub mod compression;
pub mod cursor;
pub mod header;
pub mod options;
mod v6;
mod v7;

use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use crate::Options;
use crate::error::{Error, Result};
use crate::ftrace::catalogue::Builder;
use crate::ftrace::clock::{Clock, cycles};
use crate::ftrace::file_pages::{Chunks, Plain};
use crate::ftrace::format::PageLayout;
use crate::ftrace::pages::Pages;
use crate::ftrace::saved_cmdlines;
use crate::ftrace::source::{CpuPart, FtraceTrace};
use crate::ftrace::stream::Plan;
use crate::group_moves;
use crate::input::Input;
use crate::model::event::{Origin, Source, SourceInfo};
use crate::tracedat::compression::{Codec, Kind};
use crate::tracedat::header::{FormatText, Header, MAGIC};
use crate::tracedat::options::{Buffer, Facts};

/// Everything in the file but the events.
struct Contents {
    header_page: String,
    formats: Vec<FormatText>,
    cmdlines: String,
    facts: Facts,
}

pub fn recognise(_path: &Path, head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// Options: `buffer` (an instance's name; empty for the top one), `salvage`
/// (read what is intact of a cut or damaged file), `tsc_hz` (for traces whose
/// clock counts cycles).
pub fn open(path: &Path, options: &Options) -> Result<Box<dyn Source>> {
    let input = Arc::new(Input::open(path)?);
    let header = Header::read(&input)?;
    let contents = match header.version {
        6 => v6::read(&input, &header)?,
        _ => v7::read(&input, &header)?,
    };
    let facts = &contents.facts;
    let buffer = choose(&input, facts, options.get("buffer"))?;
    let release = facts.uname.split_whitespace().nth(2).unwrap_or("");
    let mut builder = Builder::new(release);
    for format in &contents.formats {
        let place = format_args!("{}: {format}", input.name());
        builder.add(&format.system, &format.text, place)?;
    }
    let place = format!("{}: header_page", input.name());
    let mut layout = PageLayout::parse(
        &contents.header_page,
        &place,
        header.long_bytes,
        header.page_bytes,
    )?;
    // header_page is that of the top instance; an instance may have larger ones.
    if let Some(bytes) = buffer.page_bytes {
        layout = layout.with_bytes(bytes as usize, &place)?;
    }

    let salvage = options.asked("salvage");
    let scale = scale(&input, facts, buffer, options)?;
    let mut cpus = Vec::new();
    let mut warnings = Vec::new();
    check_apart(&input, buffer)?;
    let room = chunk_room(input.len(), buffer.cpus.len());
    for &(cpu, begin, size) in &buffer.cpus {
        let Ok(cpu) = u16::try_from(cpu) else {
            continue;
        };
        if size == 0 {
            continue;
        }
        let whole = begin.checked_add(size).filter(|&end| end <= input.len());
        let end = match whole {
            Some(end) => end,
            None if salvage && begin < input.len() => {
                warnings.push(format!("CPU {cpu}: the file ends inside its data"));
                input.len()
            }
            None if salvage => {
                warnings.push(format!("CPU {cpu}: the file ends before its data"));
                continue;
            }
            None => return Err(input.ends_early(begin, size, &format!("the data of CPU {cpu}"))),
        };
        let pages: Box<dyn Pages> = if buffer.compressed && header.compression != Kind::None {
            let codec = Codec::new(header.compression)?;
            // trace-cmd's size leaves out the 4 bytes of the number of chunks.
            let end = end.saturating_add(4).min(input.len());
            Box::new(Chunks::open(
                Arc::clone(&input),
                codec,
                header.big_endian,
                begin,
                end,
                room,
            )?)
        } else {
            Box::new(Plain::new(Arc::clone(&input), begin, end))
        };
        let shift = facts
            .shifts
            .get(usize::from(cpu))
            .filter(|shift| !shift.samples.is_empty());
        let clock = Clock {
            shift: shift.cloned(),
            scale,
            offset: facts.offset,
        };
        cpus.push(CpuPart {
            cpu,
            buffer: 0,
            clock,
            pages,
            cut: whole.is_none(),
            unfinished: false,
            late: false,
        });
    }
    let most = cpus.iter().map(|part| part.cpu + 1).max().unwrap_or(0);
    let count = facts.cpu_count.unwrap_or(0).min(options::MAX_CPUS) as u16;
    let info = SourceInfo {
        ncpu: most.max(count),
        counts_cpus: count > 0,
        linux_priorities: true,
        origin: origin(&facts.uname),
        about: about(&header, facts, buffer),
        ..SourceInfo::default()
    };
    let stats = facts
        .stats
        .iter()
        .filter(|(name, _)| *name == buffer.name)
        .map(|&(_, stats)| stats);
    let mut trace = FtraceTrace {
        info,
        big_endian: header.big_endian,
        plan: Plan {
            layout,
            catalogue: Arc::new(builder.finish()),
            salvage,
            within: None,
        },
        cpus,
        stats: stats.collect(),
        warnings,
        last_names: saved_cmdlines(&contents.cmdlines),
        hierarchy: group_moves::chosen(options)?,
    };
    trace.sample_wakes()?;
    trace.into_source()
}

/// Memory that the chunks of all CPUs may take together, however large the file is.
const CHUNKS: u64 = 128 << 20;

/// What one CPU's chunk may grow to, however little it is compressed: the chunks of all
/// CPUs are in memory at a time.
fn chunk_room(bytes: u64, cpus: usize) -> u32 {
    let room = bytes.saturating_mul(8).saturating_add(CHUNKS) / cpus.max(1) as u64;
    u32::try_from(room).unwrap_or(u32::MAX)
}

/// Refuses a file whose CPUs share bytes: it would be read as often as there are CPUs.
fn check_apart(input: &Input, buffer: &Buffer) -> Result<()> {
    let mut places: Vec<(u64, u64)> = buffer
        .cpus
        .iter()
        .filter(|&&(.., size)| size > 0)
        .map(|&(_, begin, size)| (begin, size))
        .collect();
    places.sort_unstable();
    for pair in places.windows(2) {
        let [(begin, size), (next, _)] = *pair else {
            continue;
        };
        if begin.saturating_add(size) > next {
            return Err(input.wrong(
                next,
                "the data of one CPU lie within those of another",
                "the data of each CPU in a place of their own",
            ));
        }
    }
    Ok(())
}

/// The instance asked for, or the only one that holds events.
fn choose<'a>(input: &Input, facts: &'a Facts, wanted: Option<&str>) -> Result<&'a Buffer> {
    let filled: Vec<&Buffer> = facts
        .buffers
        .iter()
        .filter(|buffer| buffer.cpus.iter().any(|&(.., size)| size > 0))
        .collect();
    let names = || {
        let size = |buffer: &Buffer| {
            buffer
                .cpus
                .iter()
                .map(|&(.., size)| size as f64)
                .sum::<f64>()
        };
        filled
            .iter()
            .map(|buffer| format!("{:?} ({:.1} MB)", buffer.name, size(buffer) / 1e6))
            .collect::<Vec<_>>()
            .join(", ")
    };
    if let Some(wanted) = wanted {
        return facts
            .buffers
            .iter()
            .find(|buffer| buffer.name == wanted && !buffer.text)
            .ok_or_else(|| {
                Error::usage(
                    format!("{} has no buffer {wanted:?}", input.name()),
                    format!("one of those with events: {}", names()),
                    "name it with -O buffer=NAME",
                )
            });
    }
    match filled.as_slice() {
        [only] => Ok(only),
        [] if facts.buffers.iter().any(|buffer| buffer.text) => Err(Error::format(
            format!(
                "{} holds the text of a latency tracer, not events",
                input.name()
            ),
            "events recorded with `trace-cmd record -e sched` or `trace-cmd extract`",
            "record again without -p LATENCY_TRACER",
        )),
        [] => facts.buffers.first().ok_or_else(|| {
            Error::format(
                format!("{} has no buffer of events", input.name()),
                "at least the top one",
                "`trace-cmd restore -c` makes such a file, to be joined with those of the CPUs: \
                 `trace-cmd restore -i FILE CPUFILE...`. Any other was cut: copy or record it again",
            )
        }),
        _ => Err(Error::usage(
            format!(
                "{} holds several buffers with events: {}",
                input.name(),
                names()
            ),
            "one of them to be chosen",
            "name it with -O buffer=NAME (an empty name is the top one)",
        )),
    }
}

/// Clocks that do not count nanoseconds need a factor, or cannot be used.
fn scale(
    input: &Input,
    facts: &Facts,
    buffer: &Buffer,
    options: &Options,
) -> Result<Option<(u64, u32)>> {
    if let Some((mult, shift)) = facts.tsc.filter(|&(mult, _)| mult != 0) {
        if shift > 63 {
            return Err(Error::format(
                format!("{}: option TSC2NSEC shifts by {shift}", input.name()),
                "at most 63",
                "the file is damaged: copy or record it again",
            ));
        }
        return Ok(Some((u64::from(mult), shift)));
    }
    let clock = buffer
        .clock
        .as_deref()
        .or(facts.clock.as_deref())
        .unwrap_or("local");
    let (tsc_hz, ticks) = (options.get("tsc_hz"), counts_ticks(facts, buffer));
    let scale = cycles(input.name(), clock, tsc_hz)?;
    if scale.is_some() || !ticks {
        return Ok(scale);
    }
    // `trace-cmd extract -B` writes the clock of the top buffer to the file.
    if tsc_hz.is_some() {
        return cycles(input.name(), "x86-tsc", tsc_hz);
    }
    Err(Error::format(
        format!(
            "{}: its clock is called {clock}, but the kernel's statistics count it in ticks",
            input.name()
        ),
        "a clock in nanoseconds, or the option tsc_hz if it counts cycles",
        "record with the clock `mono`; with -B, trace-cmd names the clock of another buffer",
    ))
}

/// Do the statistics of this buffer have stamps that are not in ns?
fn counts_ticks(facts: &Facts, buffer: &Buffer) -> bool {
    let mut stats = facts.stats.iter();
    stats.any(|(of, stats)| *of == buffer.name && stats.ticks)
}

/// What our export of a simulation says in place of the host's name.
const SIMULATION: &str = "schedscope-simulation";

/// uname(1): system, then host.
fn origin(uname: &str) -> Origin {
    let mut words = uname.split_whitespace();
    match (words.next(), words.next()) {
        (_, Some(SIMULATION)) => Origin::Simulation,
        (None | Some("Linux"), _) => Origin::Linux,
        _ => Origin::OtherSystem,
    }
}

/// What trace.json says of the file.
fn about(header: &Header, facts: &Facts, buffer: &Buffer) -> String {
    let mut uname = facts.uname.split_whitespace();
    let (os, hostname, release, machine) = (uname.next(), uname.next(), uname.next(), uname.next());
    json!({
        "os": os.unwrap_or("Linux"),
        "hostname": hostname,
        "release": release,
        "machine": machine,
        "endian": if header.big_endian { "big" } else { "little" },
        "clock": {"name": buffer.clock.as_deref().or(facts.clock.as_deref())},
        "recorder": {
            "name": "trace-cmd",
            "version": (!facts.version.is_empty()).then_some(facts.version.trim()),
        },
        "trace_dat": {
            "version": header.version,
            "compression": header.compression.name(),
            "buffer": buffer.name,
            "trace_id": facts.trace_id,
            "ts_offset": facts.offset,
        },
    })
    .to_string()
}
