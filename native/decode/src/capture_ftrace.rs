//! A capture folder of the ftrace recorder: sub-buffers as the kernel gave
//! them in `raw/cpuN` (or `raw/cpuN.zst`), and the kernel's descriptions in `events/`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Options;
use crate::capture_folder::{CaptureFolder, read_text, recorder};
use crate::each::each;
use crate::error::{Error, Result};
use crate::ftrace::catalogue::Builder;
use crate::ftrace::clock::{Clock, cycles};
use crate::ftrace::cpu_stats::CpuStats;
use crate::ftrace::file_pages::Plain;
use crate::ftrace::format::PageLayout;
use crate::ftrace::source::{CpuPart, FtraceTrace};
use crate::ftrace::stacks::Symbols;
use crate::ftrace::stream::Plan;
use crate::input::{Input, make_room_for_files};
use crate::model::event::Source;

pub fn recognise(path: &Path, _head: &[u8]) -> bool {
    path.is_dir() && recorder(path).as_deref() == Some("ftrace")
}

pub fn open(path: &Path, options: &Options) -> Result<Box<dyn Source>> {
    let folder = CaptureFolder::open(path)?;
    let mut info = folder.info()?;
    let big_endian = folder.text(&["endian"]) == Some("big");
    let long_bytes = if folder.number(&["long_bits"]) == Some(32) {
        4
    } else {
        8
    };
    let page_bytes = size(&folder, &["page_size"]).unwrap_or(4096);
    let events = path.join("events");

    let page_file = events.join("header_page");
    let place = page_file.display().to_string();
    let mut layout = PageLayout::parse(&read_text(&page_file)?, &place, long_bytes, page_bytes)?;
    // The instance's sub-buffers may be larger than those of header_page.
    if let Some(bytes) = size(&folder, &["ftrace", "sub_buffer_bytes"]) {
        layout = layout.with_bytes(bytes, &format!("{}/capture.json", path.display()))?;
    }

    let mut builder = Builder::new(folder.text(&["release"]).unwrap_or(""));
    for system in folders(&events)? {
        for event in folders(&system)? {
            let file = event.join("format");
            let name = system.file_name().unwrap_or_default().to_string_lossy();
            builder.add(&name, &read_text(&file)?, &file.display())?;
        }
    }
    let symbols = events.join("sleep/kernel_stack/symbols");
    if symbols.exists() {
        builder = builder.with_symbols(Symbols::parse(&read_text(&symbols)?));
    }
    let catalogue = Arc::new(builder.finish());
    info.has_waking = catalogue.describes("sched_waking");
    info.has_enqueued = catalogue.describes("sched_wakeup");

    let clock = folder.text(&["ftrace", "clock"]).unwrap_or("local");
    let scale = cycles(&path.display().to_string(), clock, options.get("tsc_hz"))?;
    let ring = Ring::of(&folder);
    let mut cpus = Vec::new();
    let mut stats = Vec::new();
    let mut files = Vec::new();
    let mut counts = Vec::new();
    // System calls of chosen processes have a buffer of their own.
    for (buffer, folder) in [(0, path.to_path_buf()), (1, path.join("calls"))] {
        if buffer > 0 && !folder.is_dir() {
            continue;
        }
        for (cpu, file) in numbered(&folder.join("raw"))? {
            files.push((cpu, buffer, file));
        }
        let counted = folder.join("stats");
        if counted.is_dir() {
            for (cpu, file) in numbered(&counted)? {
                counts.push((cpu, buffer, file));
            }
        }
    }
    make_room_for_files(files.len());
    let open = |(.., file): &(u16, u8, PathBuf)| Input::open_expanding(file).map(Arc::new);
    let inputs = each(&files, options.jobs, open)?;
    for ((cpu, buffer, _), input) in files.into_iter().zip(inputs) {
        let end = input.len();
        let clock = Clock {
            scale,
            ..Clock::default()
        };
        cpus.push(CpuPart {
            cpu,
            buffer,
            clock,
            pages: Box::new(Plain::new(input, 0, end)),
            cut: false,
            unfinished: false,
            late: ring.as_ref().is_some_and(|ring| ring.late.contains(&cpu)),
        });
        info.ncpu = info.ncpu.max(cpu.saturating_add(1));
    }
    for (cpu, buffer, file) in counts {
        let counted = CpuStats::parse(cpu, &read_text(&file)?);
        let counted = counted.map(|stats| CpuStats { buffer, ..stats });
        stats.extend(match ring {
            Some(_) => counted.map(CpuStats::of_a_ring),
            None => counted,
        });
    }
    if cpus.is_empty() {
        return Err(Error::format(
            format!("{} has no file of sub-buffers", path.join("raw").display()),
            "raw/cpu0, raw/cpu1, ...",
            "the capture is incomplete: copy it again",
        ));
    }
    let mut warnings = Vec::new();
    // The statistics are the last that a recorder writes.
    let mut without = Vec::new();
    // Each CPU's own stream reports it, with the kernel's counts.
    let ends_early = std::mem::take(&mut info.unfinished);
    for part in &mut cpus {
        let of = (part.cpu, part.buffer);
        let counted = stats.iter().any(|stats| (stats.cpu, stats.buffer) == of);
        part.unfinished = !counted || ends_early;
        if !counted {
            without.push(part.cpu.to_string());
        }
    }
    if info.window.1.is_none() {
        warnings.push(
            "the capture does not say when recording ended: what happened after each CPU's last \
             event is unknown"
                .to_string(),
        );
    } else if !without.is_empty() {
        warnings.push(format!(
            "stats/ lacks the kernel's counts of CPU {}: how many events are missing there is not \
             known, nor what happened after the last one",
            without.join(", ")
        ));
    }

    let salvage = options.asked("salvage");
    let window = info.window;
    let trace = FtraceTrace {
        info,
        big_endian,
        plan: Plan {
            layout,
            catalogue,
            salvage,
            within: ring.and(window.0.zip(window.1)),
        },
        cpus,
        stats,
        warnings,
        last_names: last_names(&path.join("saved_cmdlines"))?,
        hierarchy: None,
    };
    trace.into_source()
}

/// What a flight recorder's snapshot says of itself.
struct Ring {
    /// CPUs of which older events than the file has were overwritten, or left out.
    late: Vec<u16>,
}

impl Ring {
    fn of(folder: &CaptureFolder) -> Option<Self> {
        let held = folder.get(&["ring", "cpus"])?.as_array()?;
        let late = held.iter().filter_map(|held| {
            held.get("begin")?.as_i64()?;
            u16::try_from(held.get("cpu")?.as_u64()?).ok()
        });
        Some(Self {
            late: late.collect(),
        })
    }
}

fn last_names(file: &Path) -> Result<Vec<(u32, crate::model::event::Comm)>> {
    if !file.exists() {
        return Ok(Vec::new());
    }
    Ok(crate::ftrace::saved_cmdlines(&read_text(file)?))
}

fn size(folder: &CaptureFolder, path: &[&str]) -> Option<usize> {
    folder
        .number(path)
        .and_then(|bytes| usize::try_from(bytes).ok())
}

fn entries(path: &Path) -> Result<Vec<PathBuf>> {
    let doing = || format!("list {}", path.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|error| Error::io(doing(), &error))? {
        found.push(entry.map_err(|error| Error::io(doing(), &error))?.path());
    }
    found.sort();
    Ok(found)
}

fn folders(path: &Path) -> Result<Vec<PathBuf>> {
    Ok(entries(path)?
        .into_iter()
        .filter(|path| path.is_dir())
        .collect())
}

/// The files `cpuN` of a folder, in order of N; an error if two are of the same CPU.
fn numbered(path: &Path) -> Result<Vec<(u16, PathBuf)>> {
    let mut found: Vec<(u16, PathBuf)> = entries(path)?
        .into_iter()
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.strip_prefix("cpu")?;
            let number = name.strip_suffix(".zst").unwrap_or(name).parse().ok()?;
            Some((number, path))
        })
        .collect();
    found.sort();
    for pair in found.windows(2) {
        if let [(cpu, one), (next, other)] = pair
            && cpu == next
        {
            let name = |path: &Path| path.file_name().unwrap_or_default().display().to_string();
            return Err(Error::format(
                format!(
                    "{} has two files of CPU {cpu}, {} and {}",
                    path.display(),
                    name(one),
                    name(other)
                ),
                "one file for each CPU",
                "remove the one that is not of this recording, or copy the capture again",
            ));
        }
    }
    Ok(found)
}
