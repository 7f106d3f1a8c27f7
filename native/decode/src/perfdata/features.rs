//! The features of a perf.data file: host, clock, topology, event formats.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::bytes::{ByteOrder, Bytes, damaged, text};
use crate::error::Result;
use crate::regular_file::open_regular;

pub const TRACING_DATA: u32 = 1;
const HOSTNAME: u32 = 3;
const OSRELEASE: u32 = 4;
const VERSION: u32 = 5;
const ARCH: u32 = 6;
const NRCPUS: u32 = 7;
const CPUDESC: u32 = 8;
const CMDLINE: u32 = 11;
const CPU_TOPOLOGY: u32 = 13;
const NUMA_TOPOLOGY: u32 = 14;
const CACHE: u32 = 20;
const SAMPLE_TIME: u32 = 21;
const CLOCK_DATA: u32 = 29;

/// A pair of readings taken at once: the trace's clock and the time of day.
#[derive(Debug, Clone, Copy)]
pub struct ClockPair {
    pub clock: i64,
    pub wall: i64,
}

#[derive(Debug, Clone)]
pub struct Cache {
    pub level: u32,
    /// The CPUs that share it, as a list.
    pub cpus: String,
}

/// The text of one tracepoint's format file, with its system ("sched").
#[derive(Debug, Clone)]
pub struct FormatText {
    pub system: String,
    pub text: String,
}

impl FormatText {
    /// Those that a capture keeps in `events/SYSTEM/EVENT/format`.
    pub fn in_folder(events: &Path) -> Vec<Self> {
        let inside = |folder: &Path| {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            paths.sort();
            paths
        };
        let mut formats = Vec::new();
        for system in inside(events) {
            let name = system.file_name().unwrap_or_default();
            for event in inside(&system) {
                let Ok(file) = open_regular(&event.join("format")) else {
                    continue;
                };
                let mut text = String::new();
                if file.take(LONGEST_FORMAT).read_to_string(&mut text).is_ok() {
                    formats.push(Self {
                        system: name.to_string_lossy().into_owned(),
                        text,
                    });
                }
            }
        }
        formats
    }
}

/// Our recorder's name for the system of events of the timers that make CPU quotas whole again, where
/// it recorded no others.
pub const QUOTA: &str = "quota";

#[derive(Debug, Default)]
pub struct Features {
    pub formats: Vec<FormatText>,
    pub hostname: String,
    pub release: String,
    /// perf's own version.
    pub version: String,
    pub arch: String,
    pub cpu_model: String,
    pub command: Vec<String>,
    /// CPUs online and possible.
    pub cpus: Option<(u32, u32)>,
    /// SMT siblings, one list of CPUs per core.
    pub threads: Vec<String>,
    /// Per CPU: core and package.
    pub cores: Vec<(u32, u32)>,
    /// Per NUMA node: number and CPU list.
    pub nodes: Vec<(u32, String)>,
    pub caches: Vec<Cache>,
    pub sample_time: Option<(i64, i64)>,
    pub clock: Option<ClockPair>,
}

/// The kernel's names of events and their systems are far shorter.
const LONGEST_NAME: usize = 256;
/// So are its descriptions of them.
const LONGEST_FORMAT: u64 = 1 << 20;

impl Features {
    /// Of the kernel's timers only those were recorded that make quotas whole.
    pub fn call_timers_refills(&mut self) {
        let timers = self.formats.iter_mut().filter(|format| {
            let mut lines = format.text.lines();
            format.system == "timer" && lines.any(|line| line == "name: hrtimer_expire_entry")
        });
        timers.for_each(|format| QUOTA.clone_into(&mut format.system));
    }

    pub fn wanted(bit: u32) -> bool {
        matches!(
            bit,
            TRACING_DATA | HOSTNAME
                ..=CPUDESC
                    | CMDLINE
                    | CPU_TOPOLOGY
                    | NUMA_TOPOLOGY
                    | CACHE
                    | SAMPLE_TIME
                    | CLOCK_DATA
        )
    }

    /// Takes in one feature. Damage to the event formats is an error; a host
    /// description that cannot be read is left out.
    pub fn add(&mut self, bit: u32, mut block: Bytes<'_>) -> Result<()> {
        if bit == TRACING_DATA {
            self.formats = tracing_data(block)
                .ok_or_else(|| damaged("the descriptions of its tracepoints are cut or damaged"))?;
            return Ok(());
        }
        // A host description is read whole or not at all.
        let _ = self.describe(bit, &mut block);
        Ok(())
    }

    fn describe(&mut self, bit: u32, block: &mut Bytes<'_>) -> Option<()> {
        match bit {
            HOSTNAME => self.hostname = block.perf_string()?,
            OSRELEASE => self.release = block.perf_string()?,
            VERSION => self.version = block.perf_string()?,
            ARCH => self.arch = block.perf_string()?,
            CPUDESC => self.cpu_model = block.perf_string()?,
            // Stored: CPUs the kernel may ever have, then CPUs online.
            NRCPUS => {
                let possible = block.u32()?;
                self.cpus = Some((block.u32()?, possible));
            }
            CMDLINE => self.command = strings(block)?,
            CPU_TOPOLOGY => {
                strings(block)?;
                self.threads = strings(block)?;
                while let (Some(core), Some(package)) = (block.u32(), block.u32()) {
                    self.cores.push((core, package));
                }
            }
            NUMA_TOPOLOGY => {
                for _ in 0..block.u32()? {
                    let node = block.u32()?;
                    block.take(16)?;
                    self.nodes.push((node, block.perf_string()?));
                }
            }
            CACHE => {
                block.u32()?;
                for _ in 0..block.u32()? {
                    let level = block.u32()?;
                    block.take(12)?;
                    let kind = block.perf_string()?;
                    block.perf_string()?;
                    let cpus = block.perf_string()?;
                    if kind != "Instruction" {
                        self.caches.push(Cache { level, cpus });
                    }
                }
            }
            SAMPLE_TIME => {
                let first = block.u64()?;
                self.sample_time = Some((first.cast_signed(), block.u64()?.cast_signed()));
            }
            CLOCK_DATA => {
                block.take(8)?;
                let wall = block.u64()?.cast_signed();
                self.clock = Some(ClockPair {
                    clock: block.u64()?.cast_signed(),
                    wall,
                });
            }
            _ => {}
        }
        Some(())
    }
}

fn strings(block: &mut Bytes<'_>) -> Option<Vec<String>> {
    (0..block.u32()?).map(|_| block.perf_string()).collect()
}

/// The block that trace-cmd and perf share: page and event header, then the
/// format files of the events by system.
fn tracing_data(mut block: Bytes<'_>) -> Option<Vec<FormatText>> {
    if block.take(10)? != b"\x17\x08\x44tracing" {
        return None;
    }
    block.c_str()?;
    block.order = match block.u8()? {
        0 => ByteOrder::Little,
        _ => ByteOrder::Big,
    };
    let _long_size = block.u8()?;
    let _page_size = block.u32()?;
    for name in [b"header_page".as_slice(), b"header_event"] {
        if block.c_str()? != name {
            return None;
        }
        let len = block.len64()?;
        block.take(len)?;
    }
    let mut formats = Vec::new();
    for _ in 0..block.u32()? {
        let len = block.len64()?;
        block.take(len)?;
    }
    for _ in 0..block.u32()? {
        // Each format keeps a copy of it.
        let system = block.c_str().filter(|name| name.len() <= LONGEST_NAME)?;
        let system = String::from_utf8_lossy(system).into_owned();
        for _ in 0..block.u32()? {
            let len = block.len64()?;
            formats.push(FormatText {
                system: system.clone(),
                text: text(block.take(len)?),
            });
        }
    }
    Some(formats)
}
