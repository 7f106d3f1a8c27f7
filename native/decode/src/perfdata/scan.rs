//! The first pass over a perf.data stream: it finds the stretches that are in
//! time order, places the losses, and learns the threads that already existed.
//!
//! perf writes one ring buffer after the other, so the file as a whole is not
//! in order, but each buffer's part of it nearly is. An index of the ordered
//! stretches costs 32 bytes each and lets the second pass merge them through
//! small windows, however large the buffers were.

use std::fs::File;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::bytes::{ByteOrder, Bytes, damaged};
use super::features::{Features, TRACING_DATA};
use super::groups::Groups;
use super::header::Attr;
use super::records::{
    AUXTRACE, CGROUP, COMM, COMPRESSED, COMPRESSED2, FORK, HEADER_ATTR, HEADER_FEATURE,
    HEADER_TRACING_DATA, ID_INDEX, LOST, LOST_SAMPLES, MISC_LOST_SAMPLES_BPF, Peek, Record,
    RecordReader, SAMPLE,
};
use super::session::{RecordPosition, Session};
use crate::error::Result;
use crate::model::event::{Comm, KnownThread};

/// Small enough to stay in the cache between reading and scanning.
const WINDOW: usize = 1 << 17;
/// A CPU number beyond this is damage, not a machine.
const CPU_MAX: u32 = 1 << 14;

/// Records `[begin, end)` of the file, in time order from `first` on.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    pub begin: u64,
    pub end: u64,
    pub first: u64,
    pub last: u64,
}

/// Records that a ring buffer had no room for.
#[derive(Debug, Clone, Copy)]
pub struct Lost {
    pub cpu: Option<u16>,
    pub begin: i64,
    /// None: to the end of the recording.
    pub end: Option<i64>,
    pub count: u64,
}

/// What the first pass learned.
pub struct Scan {
    pub session: Session,
    pub runs: Vec<Run>,
    pub lost: Vec<Lost>,
    /// Lost at an unknown time: per CPU.
    pub lost_unplaced: Vec<(Option<u16>, u64)>,
    pub threads: Vec<KnownThread>,
    pub groups: Groups,
    /// Per event and CPU.
    pub counts: Vec<Vec<u64>>,
    pub cpus: u16,
    /// First and last sample of each CPU; 0 of one without any.
    pub extents: Vec<(u64, u64)>,
    /// Time of the last sample.
    pub last_sample: u64,
    /// Time of the first sample. perf follows forks and renames a little
    /// earlier than it switches the tracepoints on.
    pub first_sample: u64,
    pub truncated_at: Option<u64>,
    /// Records with an unknown sample id.
    pub unknown_ids: u64,
    /// Samples that a BPF filter left out.
    pub filtered: u64,
    /// Events of threads that have no sample, because not every one was to be sampled.
    pub skipped: u64,
    /// Did an idle thread switch? It does so in no recording of one program.
    pub saw_idle: bool,
    /// Switches, and those among them that were rewritten with another period.
    pub rewritten: (u64, u64),
    pub malformed: u64,
}

pub enum Scanned {
    Done(Box<Scan>),
    /// Compressed records turned up: expand the stream first.
    Compressed,
}

/// The first kernel thread, parent of all others.
const KTHREADD: u32 = 2;

impl Scan {
    /// Do the records show that all threads were recorded, whatever the command line says (that of
    /// perf inject names no CPUs)? Then perf lists kernel threads among those that already ran.
    pub fn is_of_all(&self) -> bool {
        self.saw_idle || self.threads.iter().any(|thread| thread.tid == KTHREADD)
    }
}

/// Bytes that follow a record outside its own size.
pub fn trailing_len(record: Record<'_>) -> u64 {
    match record.kind() {
        HEADER_TRACING_DATA => u64::from(record.0.u32_at(8).unwrap_or(0)).next_multiple_of(8),
        AUXTRACE => record.0.u64_at(8).unwrap_or(0),
        _ => 0,
    }
}

/// `attrs` and `features` are filled further by records of a piped file.
pub fn scan(
    file: &Arc<File>,
    order: ByteOrder,
    range: (u64, u64),
    attrs: &mut Vec<Attr>,
    features: &mut Features,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Scanned> {
    let mut reader = RecordReader::new(Arc::clone(file), order, range, WINDOW);
    let mut state: Option<State> = None;
    let mut cpus = FxHashMap::default();
    let mut truncated_at = None;
    let mut told = range.0;
    loop {
        let offset = reader.offset();
        let record = match reader.peek()? {
            Peek::End => break,
            Peek::Truncated { at } => {
                truncated_at = Some(at);
                break;
            }
            Peek::Record(record) => record,
        };
        let (kind, size, trailing) = (record.kind(), record.0.len(), trailing_len(record));
        match kind {
            COMPRESSED | COMPRESSED2 => return Ok(Scanned::Compressed),
            HEADER_ATTR => add_attr(record, attrs)?,
            HEADER_FEATURE => add_feature(record, features)?,
            ID_INDEX => cpus.extend(cpus_of_ids(record)),
            SAMPLE | COMM | LOST | LOST_SAMPLES | CGROUP | FORK | super::records::EXIT => {
                // Everything that describes events precedes the first of them.
                if kind == SAMPLE && state.is_none() {
                    state = Some(State::new(Session::new(attrs, features)?));
                }
                match &mut state {
                    Some(state) => state.record(record, offset),
                    None => early(record, attrs, &mut state, features)?,
                }
            }
            _ => {}
        }
        reader.step(size);
        if trailing > 0 {
            let whole = if kind == HEADER_TRACING_DATA {
                let len = usize::try_from(trailing).unwrap_or(usize::MAX);
                match reader.trailing(len)? {
                    Some(block) => {
                        features.add(TRACING_DATA, Bytes { data: block, order })?;
                        true
                    }
                    None => false,
                }
            } else {
                reader.skip(trailing)
            };
            if !whole {
                truncated_at = Some(offset);
                break;
            }
        }
        if offset - told > 16 << 20 {
            told = offset;
            progress(offset)?;
        }
    }
    let state = match state {
        Some(state) => state,
        None => State::new(Session::new(attrs, features)?),
    };
    Ok(Scanned::Done(Box::new(state.finish(
        &cpus,
        truncated_at,
        reader.offset(),
    ))))
}

/// A record about threads before the first sample: the list of what was there.
fn early(
    record: Record<'_>,
    attrs: &[Attr],
    state: &mut Option<State>,
    features: &Features,
) -> Result<()> {
    if attrs.is_empty() {
        return Err(damaged("records come before the description of the events"));
    }
    let mut new = State::new(Session::new(attrs, features)?);
    new.record(record, 0);
    *state = Some(new);
    Ok(())
}

fn add_attr(record: Record<'_>, attrs: &mut Vec<Attr>) -> Result<()> {
    let cut = || damaged("the description of an event is cut");
    let size = record.0.u32_at(12).map_or(0, |size| size as usize);
    let mut body = record.body();
    let bytes = body.take(size).ok_or_else(cut)?;
    let attr = Bytes {
        data: bytes,
        order: body.order,
    };
    let mut attr = Attr::parse(attr).ok_or_else(cut)?;
    while let Some(id) = body.u64() {
        attr.ids.push(id);
    }
    attrs.push(attr);
    Ok(())
}

fn add_feature(record: Record<'_>, features: &mut Features) -> Result<()> {
    let mut body = record.body();
    let Some(bit) = body.u64().and_then(|bit| u32::try_from(bit).ok()) else {
        return Ok(());
    };
    if bit != TRACING_DATA && Features::wanted(bit) {
        features.add(bit, body)?;
    }
    Ok(())
}

struct State {
    session: Session,
    runs: Vec<Run>,
    /// Time of the last placed record, and of the last sample of each CPU.
    last: u64,
    last_of_cpu: Vec<u64>,
    first_of_cpu: Vec<u64>,
    lost: Vec<Lost>,
    /// Totals of lost records, by sample id where there is one.
    lost_samples: Vec<(Option<u64>, u64)>,
    /// The last values of the counters in samples.
    lost_counted: FxHashMap<u64, u64>,
    filtered: u64,
    /// Events without a sample, by CPU.
    skipped: FxHashMap<u32, u64>,
    saw_idle: bool,
    rewritten: (u64, u64),
    threads: Vec<KnownThread>,
    groups: Groups,
    /// Threads forked before the first sample seen so far.
    early: Vec<(u64, KnownThread)>,
    /// The latest name of each of `threads`, and of each of `early`.
    names: FxHashMap<u32, Comm>,
    early_names: FxHashMap<u32, Comm>,
    first_sample: u64,
    counts: Vec<Vec<u64>>,
    unknown_ids: u64,
    malformed: u64,
}

impl State {
    fn new(session: Session) -> Self {
        let counts = vec![Vec::new(); session.events.len()];
        Self {
            session,
            runs: Vec::new(),
            last: 0,
            last_of_cpu: Vec::new(),
            first_of_cpu: Vec::new(),
            lost: Vec::new(),
            lost_samples: Vec::new(),
            lost_counted: FxHashMap::default(),
            filtered: 0,
            skipped: FxHashMap::default(),
            saw_idle: false,
            rewritten: (0, 0),
            threads: Vec::new(),
            groups: Groups::default(),
            early: Vec::new(),
            names: FxHashMap::default(),
            early_names: FxHashMap::default(),
            first_sample: u64::MAX,
            counts,
            unknown_ids: 0,
            malformed: 0,
        }
    }

    #[inline]
    fn record(&mut self, record: Record<'_>, offset: u64) {
        let place = match record.kind() {
            SAMPLE => self.sample(record),
            kind => {
                self.other(kind, record);
                self.session.place(record)
            }
        };
        if let Some(place) = place {
            if place.ts < self.last || self.runs.is_empty() {
                if let Some(run) = self.runs.last_mut() {
                    run.end = offset;
                }
                self.runs.push(Run {
                    begin: offset,
                    end: offset,
                    first: place.ts,
                    last: place.ts,
                });
            }
            if let Some(run) = self.runs.last_mut() {
                run.last = place.ts;
            }
            self.last = place.ts;
        }
    }

    #[cold]
    fn other(&mut self, kind: u32, record: Record<'_>) {
        match kind {
            COMM if self.session.trailer(record).is_none_or(|(ts, _)| ts == 0) => {
                self.known_thread(record);
            }
            FORK => self.early_fork(record),
            LOST => self.lost(record),
            LOST_SAMPLES => self.lost_samples(record),
            CGROUP => self.groups.name(record),
            _ => {}
        }
    }

    #[inline]
    fn sample(&mut self, record: Record<'_>) -> Option<RecordPosition> {
        let Some(event) = self.session.event_of(record) else {
            self.unknown_ids += 1;
            return None;
        };
        let plan = &self.session.events[event];
        let place = plan.place(record, event);
        if plan.layout.counts_lost() {
            let counted = &mut self.lost_counted;
            // A sample that is too short is found out by its reader.
            let _ = plan.layout.lost(record, &mut |id, lost| {
                let most = counted.entry(id).or_default();
                *most = lost.max(*most);
            });
        }
        let (Some(ts), Some(cpu)) = (plan.layout.time(record), plan.layout.cpu(record)) else {
            if plan.tracepoint.is_some() {
                self.malformed += 1;
            }
            return place;
        };
        if cpu >= CPU_MAX {
            self.malformed += 1;
            return place;
        }
        if plan.places {
            let skipped = plan.layout.skipped(record);
            if skipped > 0 {
                let sum = self.skipped.entry(cpu).or_default();
                *sum = sum.saturating_add(skipped);
            }
            if plan.switches() {
                self.rewritten.0 += 1;
                self.rewritten.1 += u64::from(plan.layout.is_rewritten(record));
            }
            if !self.saw_idle {
                self.saw_idle = plan.switches() && plan.layout.tid(record) == Some(0);
            }
        }
        if plan.tracepoint.is_some() {
            self.first_sample = self.first_sample.min(ts);
            if let Some(((pid, _), group)) = plan.layout.group(record) {
                self.groups.sample(pid, ts, group);
            }
        }
        let at = cpu as usize;
        if at >= self.last_of_cpu.len() {
            self.last_of_cpu.resize(at + 1, 0);
            self.first_of_cpu.resize(at + 1, u64::MAX);
        }
        self.first_of_cpu[at] = self.first_of_cpu[at].min(ts);
        self.last_of_cpu[at] = self.last_of_cpu[at].max(ts);
        let counts = &mut self.counts[event];
        if at >= counts.len() {
            counts.resize(at + 1, 0);
        }
        counts[at] += 1;
        place
    }

    /// A COMM record without a time: perf's own list of what ran before.
    fn known_thread(&mut self, record: Record<'_>) {
        let mut body = record.body();
        if let (Some(pid), Some(tid)) = (body.u32(), body.u32()) {
            let comm = Comm::new(body.data);
            self.names.insert(tid, comm);
            self.threads.push(KnownThread {
                tid,
                pid: Some(pid),
                comm,
                ..KnownThread::default()
            });
        }
    }

    /// FORK: pid, ppid, tid, ptid, time. The child has its parent's name. One without a time is of
    /// perf's own list of what ran before, where a COMM record names the thread itself.
    fn early_fork(&mut self, record: Record<'_>) {
        let word = |at| record.0.u32_at(at);
        let (Some(pid), Some(tid), Some(ptid), Some(ts)) =
            (word(8), word(16), word(20), record.0.u64_at(24))
        else {
            return;
        };
        if 0 < ts && ts < self.first_sample {
            let parent = self.early_names.get(&ptid);
            let comm = parent.or_else(|| self.names.get(&ptid));
            let comm = comm.copied().unwrap_or_default();
            self.early_names.insert(tid, comm);
            self.early.push((
                ts,
                KnownThread {
                    tid,
                    pid: Some(pid),
                    comm,
                    ..KnownThread::default()
                },
            ));
        }
    }

    /// LOST: event id, count. Everything since the CPU's last record may be gone.
    fn lost(&mut self, record: Record<'_>) {
        let count = record.0.u64_at(16).unwrap_or(0);
        let Some((ts, cpu)) = self.session.trailer(record) else {
            self.lost_samples.push((None, count));
            return;
        };
        let cpu = cpu.filter(|&cpu| cpu < CPU_MAX);
        let begin = match cpu {
            Some(cpu) => self.last_of_cpu.get(cpu as usize).copied().unwrap_or(0),
            None => self.last,
        };
        // 0: nothing of that CPU came before.
        let begin = begin.min(ts);
        self.lost.push(Lost {
            cpu: cpu.and_then(|cpu| u16::try_from(cpu).ok()),
            begin: begin.cast_signed(),
            end: Some(ts.cast_signed()),
            count,
        });
        if let Some(last) = cpu.and_then(|cpu| self.last_of_cpu.get_mut(cpu as usize)) {
            *last = (*last).max(ts);
        }
    }

    /// LOST_SAMPLES: a total per event and CPU, written at the end. The CPU and the time of such a
    /// record are perf's, and 0: only its id shows whose it is.
    fn lost_samples(&mut self, record: Record<'_>) {
        let count = record.0.u64_at(8).unwrap_or(0);
        if record.misc() & MISC_LOST_SAMPLES_BPF != 0 {
            self.filtered = self.filtered.saturating_add(count);
        } else if count > 0 {
            self.lost_samples
                .push((self.session.trailer_id(record), count));
        }
    }

    /// Counters in samples and LOST_SAMPLES records are totals of the same: the higher holds.
    fn take_counted(&mut self) {
        for (id, counted) in std::mem::take(&mut self.lost_counted) {
            let told = self.lost_samples.iter_mut().find(|(of, _)| *of == Some(id));
            match told {
                Some((_, total)) => *total = counted.max(*total),
                None if counted > 0 => self.lost_samples.push((Some(id), counted)),
                None => {}
            }
        }
        self.lost_samples.sort_unstable();
    }

    fn finish(mut self, cpus: &FxHashMap<u64, u16>, truncated_at: Option<u64>, end: u64) -> Scan {
        if let Some(run) = self.runs.last_mut() {
            run.end = truncated_at.unwrap_or(end);
        }
        self.runs.sort_by_key(|run| run.first);
        let mut lost_unplaced = Vec::new();
        self.take_counted();
        for (cpu, count) in untold(&self.lost, &self.lost_samples, cpus) {
            let last = cpu.and_then(|cpu| self.last_of_cpu.get(usize::from(cpu)));
            if cpu.is_some() {
                // The next record after a loss reports it, so there was none.
                self.lost.push(Lost {
                    cpu,
                    begin: last.copied().unwrap_or(0).cast_signed(),
                    end: None,
                    count,
                });
            } else {
                lost_unplaced.push((cpu, count));
            }
        }
        let skipped = self.skipped.values().copied().fold(0, u64::saturating_add);
        let by_cpu = self
            .skipped
            .iter()
            .map(|(&cpu, &count)| (u16::try_from(cpu).ok(), count));
        lost_unplaced.extend(by_cpu);
        lost_unplaced.sort_unstable();
        let first_sample = self.first_sample;
        // What was lost before a CPU's first sample, or of one without any, may
        // have been anywhere from the beginning on.
        for lost in self.lost.iter_mut().filter(|lost| lost.begin == 0) {
            let begin = first_sample.cast_signed().max(0);
            lost.begin = lost.end.map_or(begin, |end| end.min(begin));
        }
        self.lost.sort_by_key(|lost| lost.begin);
        let early = self.early.into_iter().filter(|&(ts, _)| ts < first_sample);
        self.threads.extend(early.map(|(_, thread)| thread));
        let threads = unique(self.threads);
        Scan {
            session: self.session,
            runs: self.runs,
            lost: self.lost,
            lost_unplaced,
            threads,
            groups: self.groups,
            counts: self.counts,
            first_sample,
            last_sample: self.last_of_cpu.iter().copied().max().unwrap_or(0),
            cpus: u16::try_from(self.last_of_cpu.len()).unwrap_or(0),
            extents: self
                .first_of_cpu
                .iter()
                .zip(&self.last_of_cpu)
                .map(|(&first, &last)| (first, last))
                .collect(),
            truncated_at,
            unknown_ids: self.unknown_ids,
            filtered: self.filtered,
            skipped,
            saw_idle: self.saw_idle,
            rewritten: self.rewritten,
            malformed: self.malformed,
        }
    }
}

/// One entry per tid, the last one: perf lists a thread that it starts itself before and after its
/// exec.
fn unique(threads: Vec<KnownThread>) -> Vec<KnownThread> {
    let mut seen = FxHashSet::default();
    let mut unique: Vec<KnownThread> = threads
        .into_iter()
        .rev()
        .filter(|t| seen.insert(t.tid))
        .collect();
    unique.reverse();
    unique
}

/// The kernel's totals count the same records as the LOST records in between; what they have above
/// those was lost after the last one. By CPU, where the sample ids have it.
fn untold(
    lost: &[Lost],
    totals: &[(Option<u64>, u64)],
    cpus: &FxHashMap<u64, u16>,
) -> Vec<(Option<u16>, u64)> {
    let mut rest: Vec<(Option<u16>, u64)> = Vec::new();
    let cpu_of = |id: Option<u64>| cpus.get(&id?).copied();
    // Of one CPU unknown, only the sum of all can be compared.
    let known = totals.iter().all(|&(id, _)| cpu_of(id).is_some());
    for &(id, count) in totals {
        let cpu = cpu_of(id).filter(|_| known);
        match rest.iter_mut().find(|(known, _)| *known == cpu) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => rest.push((cpu, count)),
        }
    }
    for (cpu, sum) in &mut rest {
        let placed: u64 = lost
            .iter()
            .filter(|lost| cpu.is_none() || lost.cpu == *cpu)
            .map(|lost| lost.count)
            .fold(0, u64::saturating_add);
        *sum = sum.saturating_sub(placed);
    }
    rest.retain(|&(_, sum)| sum > 0);
    rest
}

/// ID_INDEX: how many, then id, index, CPU and thread of each.
fn cpus_of_ids(record: Record<'_>) -> Vec<(u64, u16)> {
    let n = record.0.u64_at(8).unwrap_or(0);
    record.0.after(16).map_or_else(Vec::new, |body| {
        body.data
            .chunks_exact(32)
            .take(usize::try_from(n).unwrap_or(usize::MAX))
            .filter_map(|data| {
                let entry = Bytes { data, ..body };
                let cpu = entry.u64_at(16)?;
                let cpu = u16::try_from(cpu).ok()?;
                (u32::from(cpu) < CPU_MAX).then_some((entry.u64_at(0)?, cpu))
            })
            .collect()
    })
}
