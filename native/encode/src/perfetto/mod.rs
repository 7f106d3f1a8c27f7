//! A Perfetto trace out of prepared rows: ftrace events in bundles by CPU, a
//! process tree, counter and slice tracks.
//!
//! Full events, not compact ones: only those name the thread that leaves.

mod columns;

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;

use self::columns::{int64, uint32};
use crate::error::{Error, Result};

/// Events in one bundle; keeps packets well below what readers buffer.
const BUNDLE: usize = 2048;
/// One packet sequence: all that we write comes from one writer.
const SEQUENCE: u64 = 1;
/// `common_flags` of an event raised in a hard interrupt.
const HARDIRQ: i64 = 0x08;

/// Stands for null in the columns of priorities and CPUs.
const UNKNOWN: i64 = i64::MIN;

/// Kinds of rows of the ftrace frame, and their fields in FtraceEvent.
const FIELDS: [u32; 8] = [4, 20, 17, 114, 491, 235, 236, 238];
const SWITCH: u32 = 0;
const MIGRATE: u32 = 4;
const NEWTASK: u32 = 5;
const RENAME: u32 = 6;
const EXIT: u32 = 7;
/// Events were lost behind this row: no event, but a mark on the CPU's next bundle.
const LOST: u32 = 8;

/// A protobuf message in the making.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    /// int32 and int64: negative numbers take ten bytes.
    fn signed(&mut self, field: u32, value: i64) {
        self.number(field, value.cast_unsigned());
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A number that may be unknown: then the field is left out.
    fn known(&mut self, field: u32, value: i64) {
        if value != UNKNOWN {
            self.signed(field, value);
        }
    }

    fn message(&mut self, field: u32, message: &Message) {
        self.bytes(field, &message.0);
    }
}

/// What the trace says of its host.
pub struct Host<'a> {
    /// Linux's own release, or a modern one for other systems: readers choose
    /// the letters of `prev_state` by it.
    pub release: &'a str,
    pub machine: &'a str,
    /// What the system really was, and who translated it.
    pub version: &'a str,
    pub ncpu: u16,
    /// (our clock, time of day), where known.
    pub wall: Option<(i64, i64)>,
    pub begin: i64,
}

/// A block of the frames to write, each a list of batches.
pub struct Frames<'a> {
    /// Sorted by cpu, then time: ts, cpu, kind, current, interrupt, tid, prio,
    /// comm, state, tid2, prio2, comm2, to.
    pub ftrace: &'a [RecordBatch],
    /// pid, ppid, comm.
    pub processes: &'a [RecordBatch],
    /// In order of their numbers: processor (a text, by number), capacity.
    pub cpus: &'a [RecordBatch],
    /// tid, pid, comm.
    pub threads: &'a [RecordBatch],
    /// uuid, parent, name, kind (0 group, 1 counter, 2 thread), tid, pid.
    pub tracks: &'a [RecordBatch],
    /// Sorted by time: ts, track, kind (1 begin, 2 end, 4 counter), value, name.
    pub points: &'a [RecordBatch],
}

/// Writes a trace, block after block; the rows of each CPU and track come in order of time.
pub struct Writer {
    out: BufWriter<File>,
    path: PathBuf,
    begin: i64,
    /// What `comm` and `name` columns index.
    names: Vec<String>,
    /// CPUs of which events were lost since their last bundle.
    lost: HashSet<u32>,
}

impl Writer {
    /// Writes what is known of the host to `path`, which is created or emptied.
    pub fn new(path: &Path, host: &Host<'_>) -> Result<Self> {
        let file = File::create(path).map_err(|error| failed(path, &error))?;
        let mut writer = Self {
            out: BufWriter::with_capacity(1 << 20, file),
            path: path.to_path_buf(),
            begin: host.begin,
            names: Vec::new(),
            lost: HashSet::new(),
        };
        writer.head(host)?;
        Ok(writer)
    }

    /// Writes a block, whose columns index all `names` so far.
    pub fn push(&mut self, names: Vec<String>, frames: &Frames<'_>) -> Result<()> {
        self.names.extend(names);
        self.cpus(frames.cpus)?;
        self.process_tree(frames)?;
        self.tracks(frames.tracks)?;
        self.ftrace(frames.ftrace)?;
        self.points(frames.points)
    }

    pub fn finish(mut self) -> Result<()> {
        self.out.flush().map_err(|error| failed(&self.path, &error))
    }
}

fn no_rows(batches: &[RecordBatch]) -> bool {
    batches.iter().all(|batch| batch.num_rows() == 0)
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::io(format!("write {}", path.display()), error)
}

impl Writer {
    fn name(&self, index: u32) -> &str {
        self.names.get(index as usize).map_or("", String::as_str)
    }

    fn packet(&mut self, mut packet: Message) -> Result<()> {
        // trusted_packet_sequence_id
        packet.number(10, SEQUENCE);
        let mut trace = Message::default();
        trace.message(1, &packet);
        self.out
            .write_all(&trace.0)
            .map_err(|error| failed(&self.path, &error))
    }

    fn head(&mut self, host: &Host<'_>) -> Result<()> {
        let mut first = Message::default();
        // sequence_flags: incremental state cleared.
        first.number(13, 1);
        let mut snapshot = Message::default();
        let at = host.wall.map_or(host.begin, |(clock, _)| clock);
        for (id, ts) in [(6, Some(at)), (1, host.wall.map(|(_, wall)| wall))] {
            if let Some(ts) = ts {
                let mut clock = Message::default();
                clock.number(1, id);
                clock.signed(2, ts);
                snapshot.message(1, &clock);
            }
        }
        first.message(6, &snapshot);
        self.packet(first)?;
        let mut uts = Message::default();
        for (field, text) in [
            (1, "Linux"),
            (2, host.version),
            (3, host.release),
            (4, host.machine),
        ] {
            uts.bytes(field, text.as_bytes());
        }
        let mut info = Message::default();
        info.message(1, &uts);
        info.number(8, u64::from(host.ncpu));
        let mut packet = Message::default();
        packet.message(45, &info);
        self.packet(packet)
    }

    /// CpuInfo (67): cpus = 1 {processor = 1, capacity = 3}.
    fn cpus(&mut self, batches: &[RecordBatch]) -> Result<()> {
        if no_rows(batches) {
            return Ok(());
        }
        let mut all = Message::default();
        for batch in batches {
            let (processor, capacity) = (uint32(batch, "processor")?, int64(batch, "capacity")?);
            for row in 0..batch.num_rows() {
                let mut cpu = Message::default();
                cpu.bytes(1, self.name(processor[row]).as_bytes());
                cpu.known(3, capacity[row]);
                all.message(1, &cpu);
            }
        }
        let mut packet = Message::default();
        packet.message(67, &all);
        self.packet(packet)
    }

    fn process_tree(&mut self, frames: &Frames<'_>) -> Result<()> {
        if no_rows(frames.processes) && no_rows(frames.threads) {
            return Ok(());
        }
        let mut tree = Message::default();
        for batch in frames.processes {
            let (pid, ppid, comm) = (
                int64(batch, "pid")?,
                int64(batch, "ppid")?,
                uint32(batch, "comm")?,
            );
            for row in 0..batch.num_rows() {
                let mut process = Message::default();
                process.signed(1, pid[row]);
                process.signed(2, ppid[row]);
                process.bytes(3, self.name(comm[row]).as_bytes());
                // cmdline_is_comm
                process.number(9, 1);
                tree.message(1, &process);
            }
        }
        for batch in frames.threads {
            let (tid, pid, comm) = (
                int64(batch, "tid")?,
                int64(batch, "pid")?,
                uint32(batch, "comm")?,
            );
            for row in 0..batch.num_rows() {
                let mut thread = Message::default();
                thread.signed(1, tid[row]);
                thread.bytes(2, self.name(comm[row]).as_bytes());
                thread.signed(3, pid[row]);
                tree.message(2, &thread);
            }
        }
        let mut packet = Message::default();
        packet.signed(8, self.begin);
        packet.message(2, &tree);
        self.packet(packet)
    }

    fn tracks(&mut self, batches: &[RecordBatch]) -> Result<()> {
        for batch in batches {
            let (uuid, parent) = (int64(batch, "uuid")?, int64(batch, "parent")?);
            let (tid, pid) = (int64(batch, "tid")?, int64(batch, "pid")?);
            let (name, kind) = (uint32(batch, "name")?, uint32(batch, "kind")?);
            for row in 0..batch.num_rows() {
                let mut track = Message::default();
                track.signed(1, uuid[row]);
                if parent[row] != 0 {
                    track.signed(5, parent[row]);
                }
                track.bytes(2, self.name(name[row]).as_bytes());
                match kind[row] {
                    1 => track.message(8, &Message::default()),
                    2 => {
                        let mut thread = Message::default();
                        thread.signed(1, pid[row]);
                        thread.signed(2, tid[row]);
                        track.message(4, &thread);
                    }
                    _ => {}
                }
                let mut packet = Message::default();
                packet.message(60, &track);
                self.packet(packet)?;
            }
        }
        Ok(())
    }

    fn ftrace(&mut self, batches: &[RecordBatch]) -> Result<()> {
        let mut bundle = Message::default();
        let (mut held, mut cpu_of_bundle) = (0, 0);
        for batch in batches {
            let rows = Rows::new(batch)?;
            for row in 0..batch.num_rows() {
                let (cpu, is_loss) = (rows.cpu[row], rows.kind[row] == LOST);
                if held == BUNDLE || held > 0 && (cpu != cpu_of_bundle || is_loss) {
                    self.bundle(&mut bundle)?;
                    held = 0;
                }
                if is_loss {
                    self.lost.insert(cpu);
                    continue;
                }
                if held == 0 {
                    cpu_of_bundle = cpu;
                    bundle.number(1, u64::from(cpu));
                    if self.lost.remove(&cpu) {
                        // lost_events
                        bundle.number(3, 1);
                    }
                }
                bundle.message(2, &self.event(&rows, row));
                held += 1;
            }
        }
        if held > 0 {
            self.bundle(&mut bundle)?;
        }
        Ok(())
    }

    fn bundle(&mut self, bundle: &mut Message) -> Result<()> {
        let mut packet = Message::default();
        packet.message(1, bundle);
        bundle.0.clear();
        self.packet(packet)
    }

    /// FtraceEvent: timestamp = 1, pid = 2, common_flags = 5, and the event.
    fn event(&self, rows: &Rows<'_>, row: usize) -> Message {
        let kind = rows.kind[row];
        let (tid, prio) = (rows.tid[row], rows.prio[row]);
        let comm = self.name(rows.comm[row]).as_bytes();
        let mut inner = Message::default();
        match kind {
            SWITCH => {
                inner.bytes(1, comm);
                inner.signed(2, tid);
                inner.known(3, prio);
                inner.signed(4, rows.state[row]);
                inner.bytes(5, self.name(rows.comm2[row]).as_bytes());
                inner.signed(6, rows.tid2[row]);
                inner.known(7, rows.prio2[row]);
            }
            MIGRATE => {
                inner.bytes(1, comm);
                inner.signed(2, tid);
                inner.known(3, prio);
                inner.known(4, rows.state[row]);
                inner.known(5, rows.to[row]);
            }
            NEWTASK => {
                inner.signed(1, tid);
                inner.bytes(2, comm);
                inner.signed(3, rows.state[row]);
            }
            RENAME => {
                inner.signed(1, tid);
                inner.bytes(3, comm);
            }
            EXIT => {
                inner.bytes(1, comm);
                inner.signed(2, tid);
                inner.known(4, prio);
            }
            _ => {
                inner.bytes(1, comm);
                inner.signed(2, tid);
                inner.known(3, prio);
                inner.number(4, 1);
                inner.known(5, rows.to[row]);
            }
        }
        let mut event = Message::default();
        event.signed(1, rows.ts[row]);
        event.known(2, rows.current[row]);
        if rows.interrupt[row] != 0 {
            event.signed(5, HARDIRQ);
        }
        event.message(
            FIELDS.get(kind as usize).copied().unwrap_or(FIELDS[0]),
            &inner,
        );
        event
    }

    fn points(&mut self, batches: &[RecordBatch]) -> Result<()> {
        for batch in batches {
            let (ts, track, value) = (
                int64(batch, "ts")?,
                int64(batch, "track")?,
                int64(batch, "value")?,
            );
            let (kind, name) = (uint32(batch, "kind")?, uint32(batch, "name")?);
            for row in 0..batch.num_rows() {
                let mut event = Message::default();
                event.number(9, u64::from(kind[row]));
                event.signed(11, track[row]);
                match kind[row] {
                    4 => event.signed(30, value[row]),
                    1 => event.bytes(23, self.name(name[row]).as_bytes()),
                    _ => {}
                }
                let mut packet = Message::default();
                packet.signed(8, ts[row]);
                packet.message(11, &event);
                self.packet(packet)?;
            }
        }
        Ok(())
    }
}

struct Rows<'a> {
    ts: &'a [i64],
    cpu: &'a [u32],
    kind: &'a [u32],
    current: &'a [i64],
    interrupt: &'a [u32],
    tid: &'a [i64],
    prio: &'a [i64],
    comm: &'a [u32],
    state: &'a [i64],
    tid2: &'a [i64],
    prio2: &'a [i64],
    comm2: &'a [u32],
    to: &'a [i64],
}

impl<'a> Rows<'a> {
    fn new(batch: &'a RecordBatch) -> Result<Self> {
        Ok(Self {
            ts: int64(batch, "ts")?,
            cpu: uint32(batch, "cpu")?,
            kind: uint32(batch, "kind")?,
            current: int64(batch, "current")?,
            interrupt: uint32(batch, "interrupt")?,
            tid: int64(batch, "tid")?,
            prio: int64(batch, "prio")?,
            comm: uint32(batch, "comm")?,
            state: int64(batch, "state")?,
            tid2: int64(batch, "tid2")?,
            prio2: int64(batch, "prio2")?,
            comm2: uint32(batch, "comm2")?,
            to: int64(batch, "to")?,
        })
    }
}
