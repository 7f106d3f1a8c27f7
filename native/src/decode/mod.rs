//! One folder or file per input format; each ends in `model::event`.
//!
//! A decoder implements [`crate::model::event::Source`]: it reads through
//! bounded windows (no memory maps: a truncated file must be an error, not a
//! signal), merges its per-CPU streams in time order and hands events on.

mod bpftrace;
pub mod capture_folder;
pub mod capture_ftrace;
pub mod capture_perf;
pub mod dtrace;
pub mod ftrace;
pub mod input;
pub mod ktr;
pub mod merge;
pub mod perfdata;
pub mod perfetto;
pub mod python;
mod spool;
pub mod text;
pub mod tracedat;

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Error, Result};
use crate::model::event::Source;
use crate::reconstruct::facts::FAR;

/// What the caller asked for, by name: `buffer`, `tsc_hz`, ...
#[derive(Debug, Clone, Default)]
pub struct Options(pub BTreeMap<String, String>);

impl Options {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

/// One input format.
struct Format {
    name: &'static str,
    /// Is this path (its first bytes, for a file) of this format?
    recognise: fn(&Path, &[u8]) -> bool,
    open: fn(&Path, &Options) -> Result<Box<dyn Source>>,
}

/// Asked in this order; the strictest recognisers come first.
const FORMATS: &[Format] = &[
    Format {
        name: "DTrace capture",
        recognise: dtrace::recognise_capture,
        open: dtrace::open_capture,
    },
    Format {
        name: "DTrace lines",
        recognise: dtrace::recognise_text,
        open: dtrace::open_text,
    },
    Format {
        name: "KTR text",
        recognise: ktr::recognise,
        open: ktr::open,
    },
    Format {
        name: "ftrace capture",
        recognise: capture_ftrace::recognise,
        open: capture_ftrace::open,
    },
    Format {
        name: "bpftrace capture",
        recognise: bpftrace::recognise,
        open: bpftrace::open,
    },
    Format {
        name: "trace.dat",
        recognise: tracedat::recognise,
        open: tracedat::open,
    },
    Format {
        name: "perf capture",
        recognise: capture_perf::recognise,
        open: capture_perf::open,
    },
    Format {
        name: "perf.data",
        recognise: |_, head| perfdata::is_perf_data(head),
        open: |path, _| Ok(Box::new(perfdata::PerfData::open(path)?)),
    },
    Format {
        name: "perfetto",
        recognise: |_, head| perfetto::is_perfetto(head),
        open: |path, _| Ok(Box::new(perfetto::Perfetto::open(path)?)),
    },
    Format {
        name: "ftrace text",
        recognise: |_, head| text::is_ftrace_text(head),
        open: |path, _| Ok(Box::new(text::FtraceText::open(path, &read_head(path)?)?)),
    },
];

/// Bytes at the head of a file that a recogniser sees.
const HEAD: usize = 4096;

fn find(path: &Path) -> Result<&'static Format> {
    let head = if path.is_dir() {
        Vec::new()
    } else {
        read_head(path)?
    };
    FORMATS
        .iter()
        .find(|format| (format.recognise)(path, &head))
        .ok_or_else(|| {
            let shown = path.display();
            let found = if path.is_dir() {
                format!("{shown} is a folder, but not a capture: it has no capture.json")
            } else if head.is_empty() {
                format!("{shown} is empty")
            } else {
                let start: String = head
                    .iter()
                    .take(8)
                    .map(|byte| format!("{byte:02x} "))
                    .collect();
                format!(
                    "{shown} is of no known format (it starts with bytes {})",
                    start.trim_end()
                )
            };
            Error::format(
                found,
                format!(
                    "one of: {}",
                    FORMATS
                        .iter()
                        .map(|format| format.name)
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
                "check that this is the trace file and that the copy is complete",
            )
        })
}

fn read_head(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let doing = || format!("read {}", path.display());
    let file = std::fs::File::open(path).map_err(|error| Error::io(doing(), &error))?;
    let mut head = Vec::new();
    file.take(HEAD as u64)
        .read_to_end(&mut head)
        .map_err(|error| Error::io(doing(), &error))?;
    Ok(head)
}

/// The name of the format of `path`, told by its content.
pub fn recognise(path: &Path) -> Result<&'static str> {
    find(path).map(|format| format.name)
}

/// Opens `path`, whatever known format it has; also returns the format's name.
pub fn open(path: &Path, options: &Options) -> Result<(&'static str, Box<dyn Source>)> {
    let format = find(path)?;
    let source = (format.open)(path, options)?;
    let (begin, end) = source.info().window;
    if let Some(far) = [begin, end]
        .into_iter()
        .flatten()
        .find(|ts| !(-FAR..=FAR).contains(ts))
    {
        return Err(Error::format(
            format!(
                "{}: its recording is said to begin or end at {far} ns",
                path.display()
            ),
            "a time within 146 years of the clock's zero",
            "the capture is damaged: copy or record it again",
        ));
    }
    Ok((format.name, source))
}
