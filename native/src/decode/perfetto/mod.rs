//! Perfetto traces (`perfetto -o`, traced_probes, Android): ftrace bundles,
//! compact or not, compressed or not.
//!
//! Two passes: `scan` notes where each CPU's bundles lie; then the CPUs are
//! merged in time order, one bundle of each in memory. What a bundle says is in
//! `bundle`.

mod bundle;
mod clocks;
mod expand;
mod generic;
mod input;
mod scan;
mod wire;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::decode::ftrace::states::StateTable;
use crate::error::{Error, Result};
use crate::model::event::{
    CpuInfo, Event, EventSink, LossReason, Party, Source, SourceEnd, SourceInfo,
};
use bundle::{CpuState, NAMES, decode};
use input::{Span, read_at};
use scan::{Scan, Scanned, scan};
use wire::Fields;

/// A Perfetto trace, scanned and ready to run.
pub struct Perfetto {
    info: SourceInfo,
    scan: Scan,
    file: Arc<File>,
    states: StateTable,
    warnings: Vec<String>,
}

/// Is this the beginning of a Perfetto trace: a packet (field 1) whose fields
/// have plausible numbers?
pub fn is_perfetto(head: &[u8]) -> bool {
    let Some((0x0a, mut rest)) = head.split_first().map(|(&tag, rest)| (tag, rest)) else {
        return false;
    };
    let Some(len) = wire::varint(&mut rest).and_then(|len| usize::try_from(len).ok()) else {
        return false;
    };
    if len == 0 {
        return false;
    }
    let whole = len <= rest.len();
    let mut fields = Fields::new(&rest[..len.min(rest.len())]);
    let mut count = 0;
    for (number, _) in &mut fields {
        if number > 1000 {
            return false;
        }
        count += 1;
    }
    // A packet longer than what we see of it ends in the middle of a field;
    // text that begins with an empty line does not get past the first one.
    if whole {
        count > 0 && !fields.damaged()
    } else {
        count > 0 || fields.damaged() && rest.len() > 64
    }
}

impl Perfetto {
    pub fn open(path: &Path) -> Result<Self> {
        let opening = |error| Error::io(format!("open {}", path.display()), &error);
        let file = Arc::new(File::open(path).map_err(opening)?);
        let len = file.metadata().map_err(opening)?.len();
        let mut told = check_signals;
        let mut cut = None;
        let (file, scan) = match scan(&file, len, &mut told)? {
            Scanned::Done(scan) => (file, scan),
            Scanned::Compressed => {
                let (expanded, len, at) = expand::expand(&file, len, &mut told)?;
                cut = at;
                let file = Arc::new(expanded);
                match scan(&file, len, &mut told)? {
                    Scanned::Done(scan) => (file, scan),
                    Scanned::Compressed => return Err(nested()),
                }
            }
        };
        let mut warnings = Vec::new();
        if let Some(at) = cut.or(scan.truncated_at) {
            warnings.push(format!(
                "the file ends inside the packet at byte {at}: what came after is lost"
            ));
        }
        if scan.damaged > 0 {
            warnings.push(format!(
                "{} packets are damaged and were left out",
                scan.damaged
            ));
        }
        if scan.other_machines > 0 {
            warnings.push(format!(
                "{} packets of other machines were left out: this reader knows one machine a trace",
                scan.other_machines
            ));
        }
        if scan.bundles.iter().all(Vec::is_empty) {
            return Err(Error::format(
                format!(
                    "Perfetto trace: its {} packets hold no ftrace events",
                    scan.packets
                ),
                "the data source linux.ftrace with sched/sched_switch and sched/sched_waking",
                "record with `ftrace_config { ftrace_events: \"sched/sched_switch\" ftrace_events: \"sched/sched_waking\" }`",
            ));
        }
        let ncpu = u16::try_from(scan.bundles.len())
            .unwrap_or(0)
            .max(scan.cpus_said);
        let mut perfetto = Self {
            info: SourceInfo {
                ncpu,
                cpus: cpus(&scan, ncpu),
                threads: scan.threads.clone(),
                linux_priorities: true,
                about: about(&scan),
                ..SourceInfo::default()
            },
            states: StateTable::for_release(&scan.release),
            scan: *scan,
            file,
            warnings,
        };
        perfetto.which_wakes()?;
        Ok(perfetto)
    }

    /// Which wake steps were recorded: asked of the first bundles of each CPU.
    fn which_wakes(&mut self) -> Result<()> {
        const SAMPLED: usize = 16;
        let (mut bytes, mut events) = (Vec::new(), Vec::new());
        for cpu in 0..self.scan.bundles.len() {
            let mut state = CpuState::default();
            for &span in self.scan.bundles[cpu].iter().take(SAMPLED) {
                self.bundle(cpu, span, &mut state, &mut bytes, &mut events)?;
            }
            self.info.has_enqueued |= state.counts[1] > 0;
            self.info.has_waking |= state.counts[2] > 0;
        }
        Ok(())
    }

    fn bundle(
        &self,
        cpu: usize,
        span: Span,
        state: &mut CpuState,
        bytes: &mut Vec<u8>,
        events: &mut Vec<Event>,
    ) -> Result<bundle::Head> {
        bytes.resize(span.len as usize, 0);
        read_at(&self.file, bytes, span.at)?;
        let cpu = u16::try_from(cpu).unwrap_or(u16::MAX);
        Ok(decode(
            bytes,
            cpu,
            &self.states,
            &self.scan.clocks,
            state,
            events,
        ))
    }
}

/// One CPU's bundles, one of them decoded.
#[derive(Default)]
struct Cursor {
    state: CpuState,
    next: usize,
    events: Vec<Event>,
    at: usize,
    /// Time of the last event handed on.
    last: Option<i64>,
    losses: u64,
    backwards: u64,
}

impl Source for Perfetto {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn run(&mut self, sink: &mut dyn EventSink) -> Result<SourceEnd> {
        let mut cursors: Vec<Cursor> = self
            .scan
            .bundles
            .iter()
            .map(|_| Cursor::default())
            .collect();
        let mut heap: BinaryHeap<Reverse<Key>> = BinaryHeap::new();
        let (mut bytes, mut done) = (Vec::new(), 0);
        let mut late: Vec<(usize, i64)> = Vec::new();
        for (cpu, cursor) in cursors.iter_mut().enumerate() {
            let head = self.load(cpu, cursor, &mut bytes, &mut done)?;
            if let Some(key) = key(cursor, cpu) {
                if head.is_some_and(|head| head.lost || head.previous_end.is_some()) {
                    late.push((cpu, key.0.0));
                }
                heap.push(key);
            }
        }
        if let Some(Reverse((begin, ..))) = heap.peek() {
            late_starts(&late, *begin, sink)?;
        }
        let mut known = Memberships::new(&self.scan);
        while let Some(mut top) = heap.peek_mut() {
            let Reverse((_, _, cpu)) = *top;
            let cursor = &mut cursors[cpu];
            let mut event = cursor.events[cursor.at];
            known.complete(&mut event);
            sink.event(&event)?;
            cursor.last = Some(event.ts());
            cursor.at += 1;
            if cursor.at == cursor.events.len()
                && let Some(head) = self.load(cpu, cursor, &mut bytes, &mut done)?
            {
                sink.progress(done, self.scan.bytes)?;
                if head.lost || head.gap {
                    cursor.losses += 1;
                    sink.event(&loss(cpu, cursor))?;
                }
            }
            match key(cursor, cpu) {
                Some(key) => *top = key,
                None => {
                    std::collections::binary_heap::PeekMut::pop(top);
                }
            }
        }
        Ok(self.end(&cursors))
    }
}

type Key = (i64, u8, usize);

fn key(cursor: &Cursor, cpu: usize) -> Option<Reverse<Key>> {
    let event = cursor.events.get(cursor.at)?;
    let rank = match event {
        Event::Switch { .. } => 0,
        Event::Wakeup { .. } => 1,
        Event::Migrate { .. } => 2,
        _ => 3,
    };
    Some(Reverse((event.ts(), rank, cpu)))
}

/// CPUs that began later than others, where the file says that there were
/// earlier events of them: a ring buffer kept only the newest.
fn late_starts(late: &[(usize, i64)], begin: i64, sink: &mut dyn EventSink) -> Result<()> {
    for &(cpu, first) in late.iter().filter(|&&(_, first)| first > begin) {
        sink.event(&Event::Loss {
            cpu: u16::try_from(cpu).ok(),
            ts_begin: begin,
            ts_end: first,
            count: None,
            reason: LossReason::LateStart,
        })?;
    }
    Ok(())
}

/// Between a CPU's last event and the bundle just loaded.
fn loss(cpu: usize, cursor: &Cursor) -> Event {
    let begin = cursor.last.unwrap_or(0);
    Event::Loss {
        cpu: u16::try_from(cpu).ok(),
        ts_begin: begin,
        ts_end: cursor.events.first().map_or(begin, Event::ts),
        count: None,
        reason: LossReason::Overrun,
    }
}

impl Perfetto {
    /// Decodes the next bundle that holds events; None when there is no more.
    fn load(
        &self,
        cpu: usize,
        cursor: &mut Cursor,
        bytes: &mut Vec<u8>,
        done: &mut u64,
    ) -> Result<Option<bundle::Head>> {
        let mut all = bundle::Head::default();
        while let Some(&span) = self.scan.bundles[cpu].get(cursor.next) {
            cursor.next += 1;
            cursor.at = 0;
            *done += u64::from(span.len);
            let head = self.bundle(cpu, span, &mut cursor.state, bytes, &mut cursor.events)?;
            all.lost |= head.lost;
            all.gap |= head.gap;
            all.previous_end = all.previous_end.or(head.previous_end);
            if let Some(last) = cursor.last {
                let before = cursor.events.len();
                cursor.events.retain(|event| event.ts() >= last);
                cursor.backwards += (before - cursor.events.len()) as u64;
            }
            if !cursor.events.is_empty() {
                return Ok(Some(all));
            }
        }
        cursor.events.clear();
        cursor.at = 0;
        Ok(None)
    }

    fn end(&self, cursors: &[Cursor]) -> SourceEnd {
        let mut end = SourceEnd {
            warnings: self.warnings.clone(),
            ..SourceEnd::default()
        };
        for (cpu, cursor) in (0u16..).zip(cursors) {
            for (name, &count) in NAMES.iter().zip(&cursor.state.counts) {
                if count > 0 {
                    end.counts.push(((*name).to_owned(), cpu, count));
                }
            }
            let mut warn = |count: u64, what: &str| {
                if count > 0 {
                    end.warnings.push(format!("CPU {cpu}: {count} {what}"));
                }
            };
            warn(
                // The first of each CPU is so by design.
                cursor.state.unknown_prev.saturating_sub(1),
                "switches in compact form cannot tell which thread left (the switch before was lost or not traced): what ran there is unknown",
            );
            warn(
                cursor.state.malformed,
                "ftrace events are damaged and were left out",
            );
            warn(
                cursor.state.parse_errors,
                "pages of the kernel's buffer could not be read by traced_probes",
            );
            warn(
                cursor.backwards,
                "events are older than the bundle before them and were left out",
            );
            let before = self.scan.stats_begin.get(&cpu).copied().unwrap_or_default();
            let after = self.scan.stats_end.get(&cpu).copied().unwrap_or(before);
            let lost = after.overrun.saturating_sub(before.overrun)
                + after.dropped.saturating_sub(before.dropped);
            if lost > 0 && cursor.losses == 0 {
                end.unplaced_losses
                    .push((Some(cpu), lost, LossReason::Overrun));
            } else if lost > 0 {
                warn(
                    lost,
                    &format!(
                        "events were overwritten in the kernel, in {} places",
                        cursor.losses
                    ),
                );
            }
        }
        if self.scan.truncated_at.is_some() {
            end.unplaced_losses.push((None, 1, LossReason::Truncated));
        }
        end
    }
}

/// Adds process ids from the process tree to events as it becomes known.
struct Memberships<'a> {
    rest: std::iter::Peekable<std::slice::Iter<'a, scan::Membership>>,
    pending: FxHashMap<u32, u32>,
}

impl<'a> Memberships<'a> {
    fn new(scan: &'a Scan) -> Self {
        Self {
            rest: scan.memberships.iter().peekable(),
            pending: FxHashMap::default(),
        }
    }

    #[inline]
    fn complete(&mut self, event: &mut Event) {
        let now = event.ts();
        while let Some(known) = self.rest.next_if(|known| known.ts.cast_signed() <= now) {
            self.pending.insert(known.tid, known.pid);
        }
        if self.pending.is_empty() {
            return;
        }
        let mut name = |party: &mut Party| {
            if let Some(pid) = self.pending.remove(&party.tid) {
                party.pid = Some(pid);
            }
        };
        match event {
            Event::Switch { prev, next, .. } => {
                name(prev);
                name(next);
            }
            Event::Wakeup { who, .. } => name(who),
            _ => {}
        }
    }
}

fn cpus(scan: &Scan, ncpu: u16) -> Vec<CpuInfo> {
    (0..ncpu)
        .map(|cpu| CpuInfo {
            cpu,
            capacity: scan.capacities.get(usize::from(cpu)).copied().flatten(),
            ..CpuInfo::default()
        })
        .collect()
}

fn about(scan: &Scan) -> String {
    let pairs: Vec<[i64; 2]> = [&scan.clocks.first, &scan.clocks.last]
        .into_iter()
        .flatten()
        .filter_map(|snapshot| {
            Some([
                snapshot.get(clocks::BOOTTIME)?,
                snapshot.get(clocks::REALTIME)?,
            ])
        })
        .collect();
    let text = |text: &str| {
        if text.is_empty() {
            Value::Null
        } else {
            json!(text)
        }
    };
    json!({
        "os": "Linux",
        "release": text(&scan.release),
        "machine": text(&scan.machine),
        "recorder": {"name": "perfetto", "version": text(&scan.service)},
        "clock": {
            "name": "boot",
            "pairs": pairs,
            // Add it to a CLOCK_MONOTONIC time (perf -k, ftrace's mono) to get ours.
            "from_mono": scan.clocks.to_boot(clocks::MONOTONIC),
        },
    })
    .to_string()
}

fn nested() -> Error {
    Error::format(
        "Perfetto trace: a compressed packet lies within another",
        "packets compressed once",
        "copy the file again; it was damaged on the way",
    )
}

/// Ctrl-C ends the scan, where Python runs us.
fn check_signals() -> Result<()> {
    pyo3::Python::try_attach(|py| py.check_signals())
        .unwrap_or(Ok(()))
        .map_err(Error::Python)
}
