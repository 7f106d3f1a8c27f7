//! Writes a trace.dat of version 6 or 7 from events.
//!
//! The file describes itself, as every trace.dat does: its event formats are
//! those of Linux 6.x for the chosen long size, so trace-cmd, libtraceevent and
//! our own reader all read it. Pages are filled CPU by CPU and put aside in
//! files beside the target when they grow, because each CPU's data must stand
//! in one piece: memory is bounded whatever the length.

mod container;
mod formats;
mod pages;
mod records;
mod spool;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::decode::tracedat::compression::Kind;
use crate::error::{Error, Result};
use crate::model::event::{Comm, Event, EventSink, TIDS, UNKNOWN_TID};

use pages::Pages;
use records::{Destination, Encoder};
use spool::Spool;

/// What kind of trace.dat is written.
#[derive(Debug, Clone)]
pub struct Settings {
    /// 6 or 7.
    pub version: u32,
    /// Version 7 only.
    pub compression: Kind,
    pub big_endian: bool,
    /// 4 or 8.
    pub long_bytes: usize,
    /// A power of two from 256 bytes on.
    pub page_bytes: usize,
    /// The buffer instance; empty for the top one.
    pub buffer: String,
    pub clock: String,
    /// uname(1): system, host, release, machine.
    pub uname: String,
    /// Every so many records, an absolute time stamp; 0 for none.
    pub absolute_every: u32,
    /// Every so many records, a discarded one before it; 0 for none.
    pub discard_every: u32,
    /// All records in the long form, as on CPUs that demand 8-byte alignment.
    pub long_records: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            version: 7,
            compression: Kind::Zstd,
            big_endian: false,
            long_bytes: 8,
            page_bytes: 4096,
            buffer: String::new(),
            clock: "mono".to_string(),
            uname: String::new(),
            absolute_every: 0,
            discard_every: 0,
            long_records: false,
        }
    }
}

impl Settings {
    fn check(&self) -> Result<()> {
        let wrong = |found: String, expected: &str| Err(Error::usage(found, expected, ""));
        if !matches!(self.version, 6 | 7) {
            return wrong(format!("trace.dat version {}", self.version), "6 or 7");
        }
        if self.version == 6 && self.compression != Kind::None {
            return wrong(
                "a compressed trace.dat of version 6".into(),
                "version 7, or no compression",
            );
        }
        if !matches!(self.long_bytes, 4 | 8) {
            return wrong(format!("a long of {} bytes", self.long_bytes), "4 or 8");
        }
        if !self.page_bytes.is_power_of_two() || !(256..=1 << 20).contains(&self.page_bytes) {
            return wrong(
                format!("pages of {} bytes", self.page_bytes),
                "a power of two from 256 to 1048576",
            );
        }
        Ok(())
    }
}

/// What a trace.dat has no event for, by kind.
pub type LeftOut = BTreeMap<&'static str, u64>;

/// Takes events in time order and writes them as a trace.dat.
pub struct Writer {
    settings: Settings,
    target: PathBuf,
    cpus: Vec<Cpu>,
    encoder: Encoder,
    names: BTreeMap<u32, Comm>,
    left_out: LeftOut,
}

struct Cpu {
    pages: Pages,
    spool: Spool,
}

impl Writer {
    /// The file appears at `target` when [`Writer::finish`] has succeeded.
    pub fn new(target: &Path, ncpu: u16, settings: Settings) -> Result<Self> {
        settings.check()?;
        let cpus = (0..ncpu.max(1))
            .map(|cpu| Cpu {
                pages: Pages::new(&settings),
                spool: Spool::new(target, cpu, &settings),
            })
            .collect();
        Ok(Self {
            encoder: Encoder::new(&settings, ncpu.max(1)),
            settings,
            target: target.to_path_buf(),
            cpus,
            names: BTreeMap::new(),
            left_out: LeftOut::new(),
        })
    }

    /// Writes what is left, puts the parts together; returns what had no place.
    pub fn finish(mut self) -> Result<LeftOut> {
        for cpu in &mut self.cpus {
            if let Some(page) = cpu.pages.finish() {
                cpu.spool.push(page)?;
            }
            cpu.spool.close()?;
        }
        let mut spools: Vec<Spool> = self.cpus.into_iter().map(|cpu| cpu.spool).collect();
        container::write(&self.target, &self.settings, &self.names, &mut spools)?;
        Ok(self.left_out)
    }

    fn lost(&mut self, cpu: Option<u16>, count: Option<u64>) {
        self.encoder.lost(cpu);
        for (index, part) in self.cpus.iter_mut().enumerate() {
            if cpu.is_none_or(|cpu| usize::from(cpu) == index) {
                part.pages.lost(count);
            }
        }
    }
}

/// The threads that an event names.
fn named(event: &Event) -> [Option<u32>; 2] {
    match event {
        Event::Switch { prev, next, .. } => [Some(prev.tid), Some(next.tid)],
        Event::Wakeup { who, .. } | Event::Migrate { who, .. } => [Some(who.tid), None],
        _ => [None; 2],
    }
}

fn writable(tid: u32) -> bool {
    tid < TIDS || tid == UNKNOWN_TID
}

impl EventSink for Writer {
    fn event(&mut self, event: &Event) -> Result<()> {
        if let Event::Loss { cpu, count, .. } = *event {
            self.lost(cpu, count);
            return Ok(());
        }
        if let Some(tid) = named(event)
            .into_iter()
            .flatten()
            .find(|&tid| !writable(tid))
        {
            return Err(Error::usage(
                format!("a thread with the number {tid}"),
                format!("numbers below {TIDS}, as Linux gives: readers take others for damage"),
                "write another format",
            ));
        }
        let mut records = std::mem::take(&mut self.encoder.records);
        let place = self.encoder.encode(event, &mut records, &mut self.names);
        let done = match place {
            Destination::Nowhere(kind) => {
                *self.left_out.entry(kind).or_default() += 1;
                Ok(())
            }
            Destination::Cpu(cpu, ts) => match self.cpus.get_mut(usize::from(cpu)) {
                Some(part) => records.iter().try_for_each(|record| {
                    for page in part.pages.push(ts, record)? {
                        part.spool.push(page)?;
                    }
                    Ok(())
                }),
                None => Err(Error::usage(
                    format!("an event of CPU {cpu} at {ts}"),
                    format!("CPUs below {}", self.cpus.len()),
                    "open the writer with the number of CPUs of the trace",
                )),
            },
        };
        self.encoder.records = records;
        done
    }

    fn progress(&mut self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
}
