//! One folder or file per input format; each ends in `model::event`.
//!
//! A decoder implements [`crate::model::event::Source`]: it reads through
//! bounded windows (no memory maps: a truncated file must be an error, not a
//! signal), merges its per-CPU streams in time order and hands events on.

pub mod ahead;
mod bpftrace;
pub mod capture_folder;
pub mod capture_ftrace;
pub mod capture_perf;
mod checksums;
mod coverage;
pub mod dtrace;
mod foreign;
pub mod ftrace;
mod gaps;
pub mod group_moves;
pub mod input;
pub mod ktr;
pub mod merge;
pub mod perfdata;
pub mod perfetto;
mod spool;
pub mod text;
pub mod tracedat;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use schedscope_ground::{chores, each, error, hooks, regular_file};
use schedscope_model as model;

use crate::checksums::Stored;
use crate::error::{Error, Result};
use crate::group_moves::HIERARCHY;
use crate::model::event::Source;
use crate::model::time::FAR;

/// What the caller asked for.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// By name: `buffer`, `tsc_hz`, ...
    pub given: BTreeMap<String, String>,
    /// Threads that may work at once; what comes out is the same whatever their number.
    pub jobs: usize,
    /// Tids of the threads whose events alone were recorded, once that is known.
    pub chosen: Option<Arc<FxHashSet<u32>>>,
}

impl Options {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str)
    }

    /// Is an option that is yes or no given as yes?
    pub fn asked(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| says(&YES, value))
    }
}

/// How an option that is yes or no may be given.
const YES: [&str; 4] = ["yes", "1", "on", "true"];
const NO: [&str; 5] = ["no", "0", "off", "false", ""];

fn says(words: &[&str], value: &str) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(value))
}

/// One input format.
pub struct Format {
    pub name: &'static str,
    /// What wrote such a file, in a few words.
    pub about: &'static str,
    /// Is this path (its first bytes, for a file) of this format?
    recognise: fn(&Path, &[u8]) -> bool,
    /// Names and meanings of the options that `open` knows.
    pub options: &'static [(&'static str, &'static str)],
    open: fn(&Path, &Options) -> Result<Box<dyn Source>>,
}

const BUFFER: (&str, &str) = ("buffer", "the instance to read; empty for the top one");
const SALVAGE: (&str, &str) = ("salvage", "yes: read what is intact of a damaged file");
const TSC_HZ: (&str, &str) = ("tsc_hz", "ticks per second of a clock that counts cycles");
pub const CLOCKS: (&str, &str) = ("clocks", "yes: take it that the clocks of the CPUs agree");
/// Options that are yes or no.
const YES_OR_NO: [(&str, &str); 2] = [SALVAGE, CLOCKS];
const OSRELDATE: (&str, &str) = ("osreldate", "FreeBSD's kern.osreldate, for priority bands");

/// Asked in this order; the strictest recognisers come first.
pub const FORMATS: &[Format] = &[
    Format {
        name: "DTrace capture",
        about: "a folder that schedscope capture recorded with DTrace on FreeBSD or Linux",
        recognise: dtrace::recognise_capture,
        options: &[SALVAGE],
        open: dtrace::open_capture,
    },
    Format {
        name: "DTrace lines",
        about: "the lines that the sched.d scripts print, saved to a file",
        recognise: dtrace::recognise_text,
        options: &[],
        open: dtrace::open_text,
    },
    Format {
        name: "KTR text",
        about: "FreeBSD's kernel trace ring, as ktrdump prints it",
        recognise: ktr::recognise,
        options: &[TSC_HZ, OSRELDATE],
        open: ktr::open,
    },
    Format {
        name: "ftrace capture",
        about: "a folder that schedscope capture recorded with Linux's ftrace",
        recognise: capture_ftrace::recognise,
        options: &[SALVAGE, TSC_HZ, CLOCKS],
        open: capture_ftrace::open,
    },
    Format {
        name: "bpftrace capture",
        about: "a folder that schedscope capture recorded with bpftrace",
        recognise: bpftrace::recognise,
        options: &[SALVAGE],
        open: bpftrace::open,
    },
    Format {
        name: "trace.dat",
        about: "a file of trace-cmd record or trace-cmd extract, versions 6 and 7",
        recognise: tracedat::recognise,
        options: &[BUFFER, SALVAGE, TSC_HZ, HIERARCHY],
        open: tracedat::open,
    },
    Format {
        name: "perf capture",
        about: "a folder that schedscope capture recorded with perf",
        recognise: capture_perf::recognise,
        options: &[SALVAGE],
        open: capture_perf::open,
    },
    Format {
        name: "perf.data",
        about: "a file of perf record or perf sched record, also of perf record -o - (a pipe)",
        recognise: |_, head| perfdata::is_perf_data(head),
        options: &[HIERARCHY],
        open: |path, options| {
            let hierarchy = group_moves::chosen(options)?;
            Ok(Box::new(
                perfdata::PerfData::open(path)?.of_hierarchy(hierarchy),
            ))
        },
    },
    Format {
        name: "perfetto",
        about: "a Perfetto trace with ftrace events",
        recognise: |_, head| perfetto::is_perfetto(head),
        options: &[HIERARCHY],
        open: |path, options| {
            let hierarchy = group_moves::chosen(options)?;
            Ok(Box::new(
                perfetto::Perfetto::open(path)?.of_hierarchy(hierarchy),
            ))
        },
    },
    Format {
        name: "ftrace text",
        about: "text of tracefs's trace file, trace-cmd report or perf script",
        recognise: |_, head| text::is_ftrace_text(head),
        options: &[HIERARCHY],
        open: |path, options| {
            let hierarchy = group_moves::chosen(options)?;
            let text = text::FtraceText::open(path, &read_head(path)?)?;
            Ok(Box::new(text.of_hierarchy(hierarchy)))
        },
    },
];

impl Format {
    /// An option that `open` would pass over is a slip.
    fn check(&self, path: &Path, options: &Options) -> Result<()> {
        let known = |name: &str| self.options.iter().any(|&(option, _)| option == name);
        let Some(unknown) = options.given.keys().find(|name| !known(name)) else {
            return check_values(options);
        };
        let listed: Vec<String> = self
            .options
            .iter()
            .map(|(name, meaning)| format!("{name} ({meaning})"))
            .collect();
        Err(Error::usage(
            format!(
                "{} is read as {}, which has no option {unknown:?}",
                path.display(),
                self.name
            ),
            if listed.is_empty() {
                "no option: this format has none".to_string()
            } else {
                format!("one of: {}", listed.join("; "))
            },
            "correct the name, or leave the option out",
        ))
    }
}

/// A typo is neither yes nor no.
fn check_values(options: &Options) -> Result<()> {
    for (name, meaning) in YES_OR_NO {
        if let Some(value) = options.get(name)
            && !says(&YES, value)
            && !says(&NO, value)
        {
            let found = format!("option {name}={value:?}");
            return Err(Error::usage(found, "yes or no", meaning));
        }
    }
    Ok(())
}

/// Lines that some program gave other ends: the names at their ends are not those of the threads.
fn carriage_returns(name: &str) -> Error {
    Error::format(
        format!("{name}: its lines end with CR LF"),
        "lines as the recorder wrote them, which end with LF",
        "copy the file again as it was, or take the CRs out, as in `sed -i 's/\\r$//' FILE`",
    )
}

/// What compressed files begin with, by what they are made, and what expands them.
const PACKED: [(&[u8], &str, &str); 6] = [
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd -d"),
    (b"\x1f\x8b", "gzip", "gzip -dk"),
    (b"\xfd7zXZ\0", "xz", "xz -dk"),
    (b"BZh", "bzip2", "bzip2 -dk"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4 -d"),
    (b"PK\x03\x04", "zip", "unzip"),
];

/// What UTF-8 text begins with that some editors saved.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What was done to a file since its recorder wrote it, by its first bytes: it was compressed, or
/// an editor saved it.
pub fn rewritten(name: &str, head: &[u8]) -> Option<Error> {
    let expected = "a trace as its recorder wrote it";
    if let Some((_, packer, expand)) = PACKED.iter().find(|one| head.starts_with(one.0)) {
        let found = format!("{name} is compressed with {packer}");
        let hint = format!("expand it first, as in `{expand} FILE`");
        return Some(Error::format(found, expected, hint));
    }
    if head.starts_with(BYTE_ORDER_MARK) {
        let found = format!("{name} begins with a byte-order mark");
        let hint = "take it out, as in `sed -i '1s/^\\xef\\xbb\\xbf//' FILE`";
        return Some(Error::format(found, expected, hint));
    }
    let wide = head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff");
    wide.then(|| {
        let found = format!("{name} is text in UTF-16");
        let hint = "convert it first, as in `iconv -f UTF-16 -t UTF-8 FILE`";
        Error::format(found, expected, hint)
    })
}

/// A folder that perf record made: with `--kcore`, one file is the recording; with `--threads`,
/// it is spread over several.
fn perf_folder(path: &Path) -> Option<Error> {
    let data = path.join("data");
    let head = read_head(&data).ok()?;
    if !perfdata::is_perf_data(&head) {
        return None;
    }
    let shown = path.display();
    Some(if path.join("data.0").exists() {
        Error::format(
            format!(
                "{shown} is a folder of `perf record --threads`, whose records are in several files"
            ),
            "a recording in one file",
            "record without --threads",
        )
    } else {
        Error::format(
            format!("{shown} is a folder of perf record"),
            "the file in it that is the recording",
            format!("open {}", data.display()),
        )
    })
}

/// Bytes at the head of a file that a recogniser sees.
const HEAD: usize = 4096;

fn find(path: &Path) -> Result<&'static Format> {
    let head = if path.is_dir() {
        Vec::new()
    } else {
        read_head(path)?
    };
    if let Some(error) = foreign::json(&path.display().to_string(), &head) {
        return Err(error);
    }
    FORMATS
        .iter()
        .find(|format| (format.recognise)(path, &head))
        .ok_or_else(|| {
            if path.join("capture.json").exists() {
                return capture_folder::CaptureFolder::refusal(path);
            }
            let shown = path.display();
            if let Some(error) = rewritten(&shown.to_string(), &head) {
                return error;
            }
            if let Some(error) = perf_folder(path).or_else(|| foreign::refusal(path, &head)) {
                return error;
            }
            let found = if path.is_dir() {
                format!("{shown} is a folder, but not a capture: it has no capture.json")
            } else if head.is_empty() {
                format!("{shown} is empty")
            } else {
                format!(
                    "{shown} is of no known format (it starts with {})",
                    foreign::start(&head)
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
    let file = crate::regular_file::open_regular(path)?;
    let mut head = Vec::new();
    file.take(HEAD as u64)
        .read_to_end(&mut head)
        .map_err(|error| Error::io(doing(), &error))?;
    Ok(head)
}

/// The name of the format of `path`, recognised by its content.
pub fn recognise(path: &Path) -> Result<&'static str> {
    find(path).map(|format| format.name)
}

/// Opens `path`, whatever known format it has; also returns the format's name.
pub fn open(path: &Path, options: &Options) -> Result<(&'static str, Box<dyn Source>)> {
    let format = find(path)?;
    format.check(path, options)?;
    let stored = Stored::compare(path, options.jobs)?;
    if let Some(stored) = &stored
        && !options.asked(SALVAGE.0)
    {
        stored.or_error(path)?;
    }
    let mut source = (format.open)(path, options)?;
    if let Some(stored) = stored {
        source = stored.tell(source);
    }
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
    Ok((format.name, coverage::covered(source, options)?))
}

/// The same with every gap among its losses that may hide one of those `anywhere`.
pub fn open_with_gaps(
    path: &Path,
    options: &Options,
    anywhere: &[(Option<u16>, u64)],
) -> Result<(&'static str, Box<dyn Source>)> {
    let (format, source) = open(path, options)?;
    if anywhere.is_empty() {
        return Ok((format, source));
    }
    Ok((format, gaps::marked(source, anywhere, options.jobs)?))
}
