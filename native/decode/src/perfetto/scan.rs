//! The first pass over a Perfetto trace: where each CPU's bundles of ftrace
//! events lie, and everything else that must be known before the first event.

use std::fs::File;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::clocks::Clocks;
use super::input::{Next, Packets, Span};
use super::wire::Fields;
use crate::error::Result;
use crate::model::event::{Comm, Function, KnownProcess, KnownThread};

/// A CPU number beyond this is damage, not a machine.
const CPU_MAX: u64 = 1 << 14;

pub mod field {
    //! Field numbers of TracePacket.
    pub const FTRACE_EVENTS: u32 = 1;
    pub const PROCESS_TREE: u32 = 2;
    pub const CLOCK_SNAPSHOT: u32 = 6;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE_ID: u32 = 10;
    pub const FTRACE_STATS: u32 = 34;
    pub const TRACE_CONFIG: u32 = 33;
    pub const TRACE_STATS: u32 = 35;
    pub const PREVIOUS_PACKET_DROPPED: u32 = 42;
    pub const INTERNED_DATA: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const SYSTEM_INFO: u32 = 45;
    pub const COMPRESSED: u32 = 50;
    pub const CPU_INFO: u32 = 67;
    pub const SERVICE_EVENT: u32 = 69;
    pub const MACHINE_ID: u32 = 98;
    pub const ZSTD_COMPRESSED: u32 = 133;
}

/// A thread's process, as in the process tree at one time.
#[derive(Debug, Clone, Copy)]
pub struct Membership {
    pub ts: u64,
    pub tid: u32,
    pub pid: u32,
}

/// A bundle in the file.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub span: Span,
    /// When the CPU's bundle before it ended, on the clock of its events.
    pub previous_end: Option<u64>,
    /// The writer of its packet: each data source has its own.
    pub sequence: u64,
    /// How often packets of its sequence had been lost before it.
    pub drops: u32,
    /// Its names of functions: number in `Scan::symbols`.
    pub symbols: Option<usize>,
}

/// Counters that traced_probes reads per CPU at the beginning and at the end.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuStats {
    /// Overwritten before they were read: the next bundle says that it comes after a loss.
    pub overrun: u64,
    /// Never committed or dropped: nothing marks the place.
    pub never_written: u64,
}

impl CpuStats {
    /// What was counted since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            overrun: self.overrun.saturating_sub(before.overrun),
            never_written: self.never_written.saturating_sub(before.never_written),
        }
    }

    pub fn lost(self) -> u64 {
        self.overrun.saturating_add(self.never_written)
    }
}

#[derive(Default)]
pub struct Scan {
    /// Bundles of each CPU, in the order of the file.
    pub bundles: Vec<Vec<Place>>,
    /// Names of functions, by the numbers that packets have for them.
    pub symbols: Vec<FxHashMap<u64, Function>>,
    /// Which of these the packets of each sequence mean.
    symbols_of: FxHashMap<u64, usize>,
    /// How often packets of each sequence were lost, as far as the file was read.
    drops: FxHashMap<u64, u32>,
    pub bytes: u64,
    pub threads: Vec<KnownThread>,
    pub processes: Vec<KnownProcess>,
    /// Told after the first events: these may be new threads.
    pub memberships: Vec<Membership>,
    pub clocks: Clocks,
    pub version: String,
    pub release: String,
    pub machine: String,
    pub service: String,
    pub capacities: Vec<Option<u32>>,
    pub cpus_said: u16,
    pub stats_begin: FxHashMap<u16, CpuStats>,
    pub stats_end: FxHashMap<u16, CpuStats>,
    pub service_buffers: ServiceBuffers,
    /// What was counted of each of the service's buffers, and into which ones ftrace's events went,
    /// as far as the configuration says.
    buffers: Vec<(u64, u64)>,
    ftrace_buffers: Vec<usize>,
    /// When the service says that tracing started, if events of before may be in the kernel's
    /// buffer by chance only.
    pub started: Option<i64>,
    /// The session was to take what was in the kernel's buffer, on the clock that it had.
    pub preserved: bool,
    pub truncated_at: Option<u64>,
    pub other_machines: u64,
    pub damaged: u64,
    pub packets: u64,
}

/// What the service counted of its own buffers, which hold what producers like traced_probes wrote.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServiceBuffers {
    /// Chunks that newer ones replaced, in a ring: the trace begins after them.
    pub overwritten: u64,
    /// Chunks that came when a buffer was full: the trace ends before them.
    pub discarded: u64,
    /// At the end, not every producer handed in what it still had.
    pub not_flushed: bool,
}

impl ServiceBuffers {
    /// The last events of CPUs may be missing.
    pub fn lack_the_end(self) -> bool {
        self.discarded > 0 || self.not_flushed
    }
}

pub enum Scanned {
    Done(Box<Scan>),
    /// Compressed packets turned up: expand the file first.
    Compressed,
}

pub fn scan(
    file: &Arc<File>,
    len: u64,
    progress: &mut dyn FnMut() -> Result<()>,
) -> Result<Scanned> {
    let mut packets = Packets::new(Arc::clone(file), len);
    let mut scan = Scan::default();
    let mut told = 0;
    loop {
        match packets.next()? {
            Next::End => break,
            Next::Truncated(at) => {
                scan.truncated_at = Some(at);
                break;
            }
            Next::Packet(span, bytes) => {
                if !scan.packet(span, bytes) {
                    return Ok(Scanned::Compressed);
                }
            }
        }
        if packets.offset() - told > 16 << 20 {
            told = packets.offset();
            progress()?;
        }
    }
    let mut seen = FxHashSet::default();
    scan.threads.retain(|thread| seen.insert(thread.tid));
    scan.memberships.sort_by_key(|membership| membership.ts);
    scan.count_buffers();
    if scan.preserved {
        scan.started = None;
    }
    Ok(Scanned::Done(Box::new(scan)))
}

impl Scan {
    /// False for a compressed packet.
    fn packet(&mut self, span: Span, bytes: &[u8]) -> bool {
        self.packets += 1;
        let mut timestamp = 0;
        let mut ours = None;
        let mut machine = 0;
        let (mut sequence, mut dropped) = (0, false);
        let (mut interned, mut cleared) = (None, false);
        let mut fields = Fields::new(bytes);
        for (number, value) in &mut fields {
            match number {
                field::COMPRESSED | field::ZSTD_COMPRESSED => return false,
                field::TIMESTAMP => timestamp = value.number(),
                field::SEQUENCE_ID => sequence = value.number(),
                field::PREVIOUS_PACKET_DROPPED => dropped = value.number() != 0,
                field::INTERNED_DATA => interned = Some(value.bytes()),
                field::SEQUENCE_FLAGS => cleared = value.number() & 1 != 0,
                field::MACHINE_ID => machine = value.number(),
                field::FTRACE_EVENTS
                | field::PROCESS_TREE
                | field::CLOCK_SNAPSHOT
                | field::FTRACE_STATS
                | field::TRACE_CONFIG
                | field::TRACE_STATS
                | field::SYSTEM_INFO
                | field::CPU_INFO
                | field::SERVICE_EVENT => ours = Some((number, value.bytes())),
                _ => {}
            }
        }
        self.damaged += u64::from(fields.damaged());
        if machine != 0 && ours.is_some() {
            self.other_machines += 1;
            return true;
        }
        if dropped {
            *self.drops.entry(sequence).or_default() += 1;
        }
        if cleared {
            self.symbols_of.remove(&sequence);
        }
        if let (Some(interned), Some((field::FTRACE_EVENTS, _))) = (interned, ours) {
            self.symbols(sequence, interned);
        }
        match ours {
            Some((field::FTRACE_EVENTS, bundle)) => self.bundle((span, sequence), bytes, bundle),
            Some((field::PROCESS_TREE, tree)) => self.process_tree(timestamp, tree),
            Some((field::CLOCK_SNAPSHOT, snapshot)) => self.clocks.snapshot(snapshot),
            Some((field::FTRACE_STATS, stats)) => self.ftrace_stats(stats),
            Some((field::TRACE_CONFIG, config)) => self.trace_config(config),
            Some((field::TRACE_STATS, stats)) => self.trace_stats(stats),
            Some((field::SERVICE_EVENT, event)) => self.service_event(timestamp, event),
            Some((field::SYSTEM_INFO, info)) => self.system_info(info),
            Some((field::CPU_INFO, info)) => self.cpu_info(info),
            _ => {}
        }
        true
    }

    fn bundle(&mut self, (span, sequence): (Span, u64), packet: &[u8], bundle: &[u8]) {
        // The writer puts the CPU first; a reader must not count on it.
        let (mut cpu, mut previous_end) = (None, None);
        for (number, value) in Fields::new(bundle) {
            match number {
                1 => cpu = Some(value.number()),
                10 => previous_end = Some(value.number()),
                2 | 4 if cpu.is_some() => break,
                _ => {}
            }
        }
        let cpu = cpu.unwrap_or(0);
        if cpu >= CPU_MAX {
            self.damaged += 1;
            return;
        }
        let cpu = usize::try_from(cpu).unwrap_or(0);
        if cpu >= self.bundles.len() {
            self.bundles.resize(cpu + 1, Vec::new());
        }
        // `bundle` lies within `packet`, so its place in the file is known; unless
        // the field is a number, whose bytes stand nowhere.
        let inside = bundle.as_ptr().addr().checked_sub(packet.as_ptr().addr());
        let Some(inside) = inside.filter(|at| at + bundle.len() <= packet.len()) else {
            self.damaged += 1;
            return;
        };
        let span = Span {
            at: span.at + inside as u64,
            len: u32::try_from(bundle.len()).unwrap_or(0),
        };
        self.bytes += u64::from(span.len);
        self.bundles[cpu].push(Place {
            span,
            previous_end,
            sequence,
            symbols: self.symbols_of.get(&sequence).copied(),
            drops: self.drops.get(&sequence).copied().unwrap_or(0),
        });
    }

    /// InternedData: kernel_symbols = 26 {iid = 1, str = 2}.
    fn symbols(&mut self, sequence: u64, interned: &[u8]) {
        for (_, symbol) in Fields::new(interned).filter(|&(number, _)| number == 26) {
            let (mut number, mut name) = (0, &[][..]);
            for (field, value) in Fields::new(symbol.bytes()) {
                match field {
                    1 => number = value.number(),
                    2 => name = value.bytes(),
                    _ => {}
                }
            }
            let Some(name) = Function::of_text(name) else {
                continue;
            };
            let table = *self.symbols_of.entry(sequence).or_insert_with(|| {
                self.symbols.push(FxHashMap::default());
                self.symbols.len() - 1
            });
            self.symbols[table].insert(number, name);
        }
    }

    fn process_tree(&mut self, timestamp: u64, tree: &[u8]) {
        let early = self.bundles.is_empty();
        let mut ts = timestamp;
        let mut found = Vec::new();
        for (number, value) in Fields::new(tree) {
            match number {
                1 => found.extend(self.process(value.bytes(), early)),
                2 => found.extend(thread(value.bytes())),
                3 => ts = value.number(),
                _ => {}
            }
        }
        for known in found {
            if early || ts == 0 {
                self.threads.push(known);
            } else if let Some(pid) = known.pid {
                self.memberships.push(Membership {
                    ts,
                    tid: known.tid,
                    pid,
                });
            }
        }
    }

    /// ProcessTree.Process: keeps what it says of the process; its main thread has its number.
    fn process(&mut self, bytes: &[u8], early: bool) -> Option<KnownThread> {
        let mut known = KnownThread::default();
        let (mut command, mut is_comm) = (Vec::new(), false);
        for (number, value) in Fields::new(bytes) {
            match number {
                1 => known.tid = u32::try_from(value.number()).ok()?,
                2 => known.ppid = u32::try_from(value.number()).ok(),
                3 => command.push(value.bytes()),
                8 => known.kernel = Some(value.number() != 0),
                9 => is_comm = value.number() != 0,
                _ => {}
            }
        }
        known.pid = Some(known.tid);
        if let Some(first) = command.first() {
            known.comm = main_comm(first, is_comm);
        }
        if known.tid == 0 {
            return None;
        }
        let line = String::from_utf8_lossy(&command.join(&b' ')).into_owned();
        self.processes.push(KnownProcess {
            pid: known.tid,
            ppid: known.ppid,
            cmdline: (!is_comm && !line.is_empty()).then(|| line.into()),
            // Of a process that appears while it is recorded only that is known.
            at_end: !early,
            ..KnownProcess::default()
        });
        Some(known)
    }

    fn ftrace_stats(&mut self, stats: &[u8]) {
        let mut end = false;
        let mut cpus = Vec::new();
        for (number, value) in Fields::new(stats) {
            match number {
                1 => end = value.number() == 2,
                2 => cpus.push(value.bytes()),
                _ => {}
            }
        }
        for bytes in cpus {
            let (mut cpu, mut stats) = (0, CpuStats::default());
            for (number, value) in Fields::new(bytes) {
                match number {
                    1 => cpu = value.number(),
                    3 => stats.overrun = value.number(),
                    4 | 8 => {
                        stats.never_written = stats.never_written.saturating_add(value.number());
                    }
                    _ => {}
                }
            }
            if let Ok(cpu) = u16::try_from(cpu) {
                let map = if end {
                    &mut self.stats_end
                } else {
                    &mut self.stats_begin
                };
                map.insert(cpu, stats);
            }
        }
    }

    /// TraceStats: buffer_stats = 1 {chunks_overwritten = 3, chunks_discarded = 18},
    /// final_flush_outcome = 15 (2: failed).
    fn trace_stats(&mut self, stats: &[u8]) {
        let mut buffer = 0;
        for (number, value) in Fields::new(stats) {
            match number {
                1 => {
                    if buffer == self.buffers.len() {
                        self.buffers.push((0, 0));
                    }
                    // Sent again and again while tracing, as sums: the last one is the whole.
                    let (overwritten, discarded) = &mut self.buffers[buffer];
                    buffer += 1;
                    for (number, value) in Fields::new(value.bytes()) {
                        let count = match number {
                            3 => &mut *overwritten,
                            18 => &mut *discarded,
                            _ => continue,
                        };
                        *count = value.number().max(*count);
                    }
                }
                15 => self.service_buffers.not_flushed |= value.number() == 2,
                _ => {}
            }
        }
    }

    /// Of several buffers, only those count that ftrace's events went into.
    fn count_buffers(&mut self) {
        let held = |at: &usize| self.ftrace_buffers.is_empty() || self.ftrace_buffers.contains(at);
        let buffers = self.buffers.iter().enumerate();
        let sum = |(mut overwritten, mut discarded): (u64, u64), one: &(u64, u64)| {
            overwritten = one.0.saturating_add(overwritten);
            discarded = one.1.saturating_add(discarded);
            (overwritten, discarded)
        };
        let ours = buffers.filter(|(at, _)| held(at)).map(|(_, one)| one);
        let (overwritten, discarded) = ours.fold((0, 0), sum);
        self.service_buffers.overwritten = overwritten;
        self.service_buffers.discarded = discarded;
    }

    /// TraceConfig: data_sources = 2 {config = 1 {name = 1, target_buffer = 2, ftrace_config = 100
    /// {preserve_ftrace_buffer = 23}}}.
    fn trace_config(&mut self, config: &[u8]) {
        let sources = Fields::new(config).filter(|&(number, _)| number == 2);
        let configs = sources
            .flat_map(|(_, source)| Fields::new(source.bytes()).filter(|&(number, _)| number == 1));
        for (_, config) in configs {
            let (mut is_ftrace, mut buffer, mut preserved) = (false, 0, false);
            for (number, value) in Fields::new(config.bytes()) {
                match number {
                    1 => is_ftrace = value.bytes() == b"linux.ftrace",
                    2 => buffer = value.number(),
                    100 => {
                        let told = Fields::new(value.bytes()).find(|&(number, _)| number == 23);
                        preserved = told.is_some_and(|(_, value)| value.number() != 0);
                    }
                    _ => {}
                }
            }
            if is_ftrace {
                self.ftrace_buffers
                    .push(usize::try_from(buffer).unwrap_or(usize::MAX));
                self.preserved |= preserved;
            }
        }
    }

    /// TracingServiceEvent: tracing_started = 2.
    fn service_event(&mut self, timestamp: u64, event: &[u8]) {
        let started = Fields::new(event).any(|(number, value)| number == 2 && value.number() != 0);
        if started && timestamp > 0 {
            self.started = self.started.or(i64::try_from(timestamp).ok());
        }
    }

    fn system_info(&mut self, info: &[u8]) {
        for (number, value) in Fields::new(info) {
            match number {
                1 => {
                    for (number, value) in Fields::new(value.bytes()) {
                        match number {
                            2 => self.version = value.text(),
                            3 => self.release = value.text(),
                            4 => self.machine = value.text(),
                            _ => {}
                        }
                    }
                }
                4 => self.service = value.text(),
                8 => self.cpus_said = u16::try_from(value.number()).unwrap_or(0),
                _ => {}
            }
        }
    }

    fn cpu_info(&mut self, info: &[u8]) {
        self.capacities = Fields::new(info)
            .filter(|&(number, _)| number == 1)
            .map(|(_, cpu)| {
                let capacity = Fields::new(cpu.bytes()).find(|&(number, _)| number == 3);
                capacity.and_then(|(_, value)| u32::try_from(value.number()).ok())
            })
            .collect();
    }
}

/// The name the kernel would show: the program's base name, cut to 15 bytes.
fn main_comm(command: &[u8], is_comm: bool) -> Comm {
    let name = if is_comm {
        command
    } else {
        command
            .rsplit(|&byte| byte == b'/')
            .next()
            .unwrap_or(command)
    };
    Comm::new(&name[..name.len().min(15)])
}

/// ProcessTree.Thread
fn thread(bytes: &[u8]) -> Option<KnownThread> {
    let mut known = KnownThread::default();
    for (number, value) in Fields::new(bytes) {
        match number {
            1 => known.tid = u32::try_from(value.number()).ok()?,
            2 => known.comm = Comm::new(value.bytes()),
            3 => known.pid = u32::try_from(value.number()).ok(),
            _ => {}
        }
    }
    (known.tid != 0).then_some(known)
}
