//! perf.data (`perf sched record`, `perf record -e sched:*`): file and pipe
//! mode, compressed or not.
//!
//! Two passes: `scan` indexes the stretches that are in time order, `merge`
//! hands their records on in time order. What a record means is in `session`
//! (events and their ids), `records` (fields of a sample) and, as its tracepoints
//! are ftrace's, in `decode::ftrace::records`.

mod bytes;
pub mod command;
mod compressed;
mod features;
mod groups;
mod header;
mod merge;
mod metadata;
mod records;
mod scan;
mod session;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::error::{Error, Result};
use crate::ftrace::plan::Action;
use crate::ftrace::records::{Mapped, Mapper};
use crate::hooks::check_interrupt;
use crate::model::event::{
    Comm, Event, EventSink, Extent, LossReason, Origin, Party, Source, SourceEnd, SourceInfo,
    WakeKind,
};
use crate::regular_file::open_regular;
use bytes::ByteOrder;
use features::{FormatText, QUOTA};
use header::Header;
pub use header::is_perf_data;
use records::{COMM, EXIT, FORK, MISC_COMM_EXEC, Record, SAMPLE};
use scan::{Scan, Scanned};

/// A perf.data file, scanned and ready to run.
pub struct PerfData {
    info: SourceInfo,
    scan: Scan,
    /// The file, or its expanded records.
    file: Arc<File>,
    order: ByteOrder,
    bytes: u64,
    warnings: Vec<String>,
    /// Of the control groups, if it was chosen.
    hierarchy: Option<i64>,
    /// As errors name it.
    name: String,
}

impl PerfData {
    /// Opens and scans the file.
    pub fn open(path: &Path) -> Result<Self> {
        Self::described(path, Vec::new())
    }

    /// The file of a capture folder. If perf did not get to storing the formats of the events
    /// in it, those that the capture stored are taken. What they are called there says which of the
    /// kernel's timers were recorded.
    pub fn in_folder(folder: &Path) -> Result<Self> {
        let formats = FormatText::in_folder(&folder.join("events"));
        Self::described(&folder.join("perf.data"), formats)
    }

    fn described(path: &Path, formats: Vec<FormatText>) -> Result<Self> {
        let name = path.display().to_string();
        Self::scanned(path, &name, formats).map_err(|error| error.within(&name))
    }

    fn scanned(path: &Path, name: &str, formats: Vec<FormatText>) -> Result<Self> {
        let opening = |error| Error::io(format!("open {name}"), &error);
        let file = Arc::new(open_regular(path)?);
        let len = file.metadata().map_err(opening)?.len();
        let refills = formats.iter().any(|format| format.system == QUOTA);
        let header = Header::read(&file, len, formats)?;
        let (mut attrs, mut features) = (header.attrs, header.features);
        if refills {
            features.call_timers_refills();
        }
        let mut warnings = Vec::new();
        // Scanning takes a tenth of the time of what follows: no progress, but
        // Ctrl-C must work in a large file.
        let mut told = |_| check_interrupt();
        let mut cut = None;
        let (file, scan) = match scan::scan(
            &file,
            header.order,
            header.data,
            &mut attrs,
            &mut features,
            &mut told,
        )? {
            Scanned::Done(scan) => (file, scan),
            Scanned::Compressed => {
                let expanded =
                    compressed::expand(&file, header.order, name, header.data, &mut told)?;
                cut = expanded.truncated_at;
                let file = Arc::new(expanded.file);
                // A first pass over a piped file has taken these in already.
                if header.pipe {
                    attrs.clear();
                }
                match scan::scan(
                    &file,
                    header.order,
                    (0, expanded.len),
                    &mut attrs,
                    &mut features,
                    &mut |_| Ok(()),
                )? {
                    Scanned::Done(scan) => (file, scan),
                    Scanned::Compressed => {
                        return Err(bytes::damaged("a compressed record lies within another"));
                    }
                }
            }
        };
        let (switches, rewritten) = scan.rewritten;
        if command::moves_switches(&features.command) || rewritten > switches / 2 {
            return Err(Error::format(
                "a file of `perf inject -s`, which moves each switch to the end of the sleep that it \
                 begins and leaves out the others",
                "switches at the times at which they were",
                "open the file that perf inject read (its option -i)",
            ));
        }
        if let Some(at) = cut.or(scan.truncated_at) {
            warnings.push(format!(
                "the file ends inside the record at byte {at}: what came after is lost (copy it again if it was longer)"
            ));
        }
        if scan.unknown_ids > 0 {
            warnings.push(format!(
                "{} samples belong to no event that the file describes",
                scan.unknown_ids
            ));
        }
        if scan.filtered > 0 {
            warnings.push(format!(
                "a filter of perf record left out {} events: what the CPUs did in between is not known",
                scan.filtered
            ));
        }
        if scan.skipped > 0 {
            warnings.push(format!(
                "perf took samples of its events, not every one: {} switches, wakeups and \
                 migrations are not in the file (record with -c 1)",
                scan.skipped
            ));
        }
        let filters = command::filters(&features.command);
        if !filters.is_empty() {
            warnings.push(format!(
                "recorded with {}: what that left out is missing, and what the CPUs did in between \
                 is not known",
                filters.join(" and ")
            ));
        }
        let of_all = command::is_system_wide(&features.command) || scan.is_of_all();
        let of_one =
            (attrs.iter().any(header::Attr::inherit) || !features.command.is_empty()) && !of_all;
        let filtered = scan.filtered > 0 || !filters.is_empty() || of_one;
        if header.unfinished {
            warnings.push(
                "perf record was killed, or its disk was full, before it could finish the file: \
                 what it had not written is missing"
                    .into(),
            );
        } else if of_one {
            warnings.push(
                "recorded for one program only (perf record without -a): other threads are missing, \
                 and what the CPUs did in between is not known"
                    .into(),
            );
        }
        let possible = features
            .cpus
            .map_or(0, |(_, possible)| u16::try_from(possible).unwrap_or(0));
        let ncpu = scan.cpus.max(possible);
        let info = SourceInfo {
            ncpu,
            counts_cpus: possible > 0,
            cpus: metadata::cpus(&features, ncpu),
            threads: scan.threads.clone(),
            processes: scan.groups.processes(),
            idle_at_first: Vec::new(),
            // A file that stops inside a record is of a perf that was killed, or of a full disk.
            unfinished: header.unfinished || cut.or(scan.truncated_at).is_some(),
            window: (None, None),
            has_waking: scan.session.records(|a| {
                matches!(
                    a,
                    Action::Wake {
                        kind: WakeKind::Waking,
                        ..
                    }
                )
            }),
            has_enqueued: scan.session.records(|a| {
                matches!(
                    a,
                    Action::Wake {
                        kind: WakeKind::Enqueued,
                        ..
                    }
                )
            }),
            linux_priorities: true,
            uncounted: false,
            filtered,
            all_threads: of_all && !filtered && command::targets(&features.command).is_empty(),
            origin: Origin::Linux,
            remarks: Vec::new(),
            about: metadata::about(&features, &attrs),
        };
        let bytes = scan.runs.iter().map(|run| run.end - run.begin).sum();
        Ok(Self {
            info,
            scan: *scan,
            file,
            order: header.order,
            bytes,
            warnings,
            hierarchy: None,
            name: name.to_owned(),
        })
    }
}

impl PerfData {
    /// Whose moves into control groups are taken, if the caller chose.
    #[must_use]
    pub fn of_hierarchy(self, hierarchy: Option<i64>) -> Self {
        Self { hierarchy, ..self }
    }

    /// As part of a capture, which knows host, window and threads better.
    #[must_use]
    pub fn within_capture(mut self, capture: SourceInfo) -> Self {
        let own = std::mem::take(&mut self.info);
        self.info = SourceInfo {
            ncpu: capture.ncpu.max(own.ncpu),
            has_waking: own.has_waking,
            has_enqueued: own.has_enqueued,
            unfinished: own.unfinished || capture.unfinished,
            filtered: own.filtered,
            ..capture
        };
        let known: FxHashSet<u32> = self.info.threads.iter().map(|thread| thread.tid).collect();
        self.info
            .threads
            .extend(own.threads.into_iter().filter(|t| !known.contains(&t.tid)));
        self
    }
}

impl Source for PerfData {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn extents(&mut self) -> Result<Option<Vec<Extent>>> {
        if !self.info.counts_cpus {
            return Ok(None);
        }
        let seen = (0u16..).zip(&self.scan.extents);
        let extents = seen.filter(|(_, (_, last))| *last > 0);
        Ok(Some(
            extents
                .map(|(cpu, &(first, last))| Extent {
                    cpu,
                    first: first.max(self.scan.first_sample).cast_signed(),
                    last: last.cast_signed(),
                })
                .collect(),
        ))
    }

    fn run(&mut self, sink: &mut dyn EventSink) -> Result<SourceEnd> {
        let scan = &self.scan;
        let mut malformed = scan.malformed;
        let last = self.info.window.1.unwrap_or(scan.last_sample.cast_signed());
        // Before perf switched its events on, it lost records of forks and mappings: the recording
        // starts with its first sample, unless the capture has its start.
        let first = self
            .info
            .window
            .0
            .unwrap_or(scan.first_sample.cast_signed());
        let loss = |lost: &scan::Lost| loss(lost, (first, last));
        let mut losses = scan.lost.iter().peekable();
        let (mut done, mut told) = (0, 0);
        let mut mapper = Mapper::default();
        let mut groups = groups::Moves::of(&scan.groups, &scan.session);
        merge::merge(
            &self.file,
            self.order,
            &scan.session,
            &scan.runs,
            &mut |place, record| {
                if place.ts < scan.first_sample {
                    return Ok(());
                }
                let ts = place.ts.cast_signed();
                // A loss begins behind the last record before it.
                while let Some(lost) = losses.next_if(|lost| lost.begin < ts) {
                    if let Some(cpu) = lost.cpu {
                        mapper.lost(cpu);
                    }
                    sink.event(&loss(lost))?;
                }
                done += record.0.len() as u64;
                if done - told > 4 << 20 {
                    told = done;
                    sink.progress(done, self.bytes)?;
                }
                if let Some(groups) = &mut groups {
                    groups.record(
                        &scan.session,
                        record,
                        place.event,
                        ts,
                        &mut mapper.group_moves,
                    );
                }
                if !decode(&scan.session, &mut mapper, record, place.event, ts, sink)? {
                    malformed += 1;
                }
                Ok(())
            },
        )
        .map_err(|error| error.within(&self.name))?;
        for lost in losses {
            sink.event(&loss(lost))?;
        }
        let mut end = SourceEnd {
            warnings: self.warnings.clone(),
            ..SourceEnd::default()
        };
        mapper.group_moves.finish(self.hierarchy, &mut end);
        end.scheduler_dump = std::mem::take(&mut mapper.scheduler_dump);
        if malformed > 0 {
            end.warnings.push(format!(
                "{malformed} samples are too short for their event and were left out"
            ));
        }
        if scan.truncated_at.is_some() {
            end.unplaced_losses.push((None, 1, LossReason::Truncated));
        }
        for &(cpu, count) in &scan.lost_unplaced {
            end.unplaced_losses.push((cpu, count, LossReason::Overrun));
            end.anywhere.push((cpu, count));
        }
        for (event, counts) in scan.session.events.iter().zip(&scan.counts) {
            for (cpu, &count) in (0u16..).zip(counts) {
                if count > 0 && !event.name.is_empty() {
                    end.counts.push((event.name.clone(), cpu, count));
                }
            }
        }
        Ok(end)
    }
}

/// What was lost, between the recording's beginning and its end.
fn loss(lost: &scan::Lost, (first, last): (i64, i64)) -> Event {
    let ts_begin = lost.begin.max(first);
    Event::Loss {
        cpu: lost.cpu,
        ts_begin,
        ts_end: lost.end.unwrap_or(last).max(ts_begin),
        count: Some(lost.count),
        reason: LossReason::Overrun,
    }
}

/// False when the record is too short for what it says it is.
#[inline]
fn decode(
    session: &session::Session,
    mapper: &mut Mapper,
    record: Record<'_>,
    event: usize,
    ts: i64,
    sink: &mut dyn EventSink,
) -> Result<bool> {
    let event = match record.kind() {
        SAMPLE => return sample(session, mapper, record, event, ts, sink),
        FORK => fork(record, ts),
        EXIT if session.exit_tracepoint => return Ok(true),
        EXIT => exit(record, ts),
        COMM => return comm(session, record, ts, sink),
        _ => return Ok(true),
    };
    match event {
        Some(event) => sink.event(&event).map(|()| true),
        None => Ok(false),
    }
}

#[inline]
fn sample(
    session: &session::Session,
    mapper: &mut Mapper,
    record: Record<'_>,
    event: usize,
    ts: i64,
    sink: &mut dyn EventSink,
) -> Result<bool> {
    let event = &session.events[event];
    let Some(plan) = &event.tracepoint else {
        return Ok(true);
    };
    // A COMM record has the same, with the exec that caused it.
    if session.comm_records && matches!(plan.action, Action::Rename { .. }) {
        return Ok(true);
    }
    let cpu = event
        .layout
        .cpu(record)
        .and_then(|cpu| u16::try_from(cpu).ok());
    let (Some(cpu), Some(raw)) = (cpu, event.layout.raw(record)) else {
        return Ok(false);
    };
    if raw.len() < plan.min_len {
        return Ok(false);
    }
    let mapped = match record.0.order {
        ByteOrder::Little => mapper.map::<false>(plan, ts, cpu, raw, sink)?,
        ByteOrder::Big => mapper.map::<true>(plan, ts, cpu, raw, sink)?,
    };
    Ok(mapped == Mapped::Done)
}

/// FORK: pid, ppid, tid, ptid, time.
fn fork(record: Record<'_>, ts: i64) -> Option<Event> {
    let word = |at| record.0.u32_at(at);
    let (pid, ppid, tid, ptid) = (word(8)?, word(12)?, word(16)?, word(20)?);
    record.0.u64_at(24)?;
    let party = |tid, pid| Party {
        tid,
        pid: Some(pid),
        ..Party::default()
    };
    Some(Event::Fork {
        ts,
        parent: party(ptid, ppid),
        child: party(tid, pid),
        same_process: Some(pid == ppid),
    })
}

fn exit(record: Record<'_>, ts: i64) -> Option<Event> {
    let (pid, tid) = (record.0.u32_at(8)?, record.0.u32_at(16)?);
    Some(Event::Exit {
        ts,
        who: Party {
            tid,
            pid: Some(pid),
            ..Party::default()
        },
    })
}

/// COMM: pid, tid, name. With an exec, the name is the new program's.
fn comm(
    session: &session::Session,
    record: Record<'_>,
    ts: i64,
    sink: &mut dyn EventSink,
) -> Result<bool> {
    let (Some(tid), Some(name)) = (record.0.u32_at(12), record.0.data.get(16..)) else {
        return Ok(false);
    };
    if record.misc() & MISC_COMM_EXEC != 0 && !session.exec_tracepoint {
        sink.event(&Event::Exec {
            ts,
            tid,
            old_tid: tid,
        })?;
    }
    sink.event(&Event::Rename {
        ts,
        tid,
        comm: Comm::new(name),
    })?;
    Ok(true)
}
