//! The output of the collectors' DTrace scripts, FreeBSD's and Linux's: one
//! line grammar (collectors/lines.md), two meanings.

mod compact;
mod freebsd;
mod hold;
mod line;
mod linux;
mod scan;
mod stream;
mod told;

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::capture_folder::{self, CaptureFolder};
use crate::error::{Error, Result};
use crate::input::Input;
use crate::merge::merge;
use crate::model::event::{
    Event, EventSink, KnownProcess, LossReason, Source, SourceEnd, SourceInfo,
};
use crate::{Options, rewritten};
use freebsd::FreeBsd;
use linux::Linux;
use scan::{Header, Os, Scan, discarded, drop_report};
use stream::{LastLine, Reader, RunStream, Shared};

/// Memory for the windows of all runs that overlap in time, and the least of one.
const WINDOWS: usize = 16 << 20;
const LEAST_WINDOW: usize = 16 << 10;
const MOST_WINDOW: usize = 256 << 10;

/// Files only: the scripts' output by itself.
pub fn recognise_text(path: &Path, head: &[u8]) -> bool {
    !path.is_dir() && head.starts_with(b"#sched\t")
}

/// Capture folders whose recorder was dtrace.
pub fn recognise_capture(path: &Path, _: &[u8]) -> bool {
    path.is_dir() && capture_folder::recorder(path).as_deref() == Some("dtrace")
}

struct DtraceSource {
    input: Arc<Input>,
    header: Header,
    scan: Scan,
    info: SourceInfo,
    /// Records dropped per CPU; what dtrace could not assign is under None.
    drops: Vec<(Option<u16>, u64)>,
    /// Records of clauses that found no memory for a variable.
    discarded: u64,
}

pub fn open_text(path: &Path, _: &Options) -> Result<Box<dyn Source>> {
    let input = Input::open(path)?;
    let scan = Scan::read(&input, None)?;
    let header = need_header(&scan, &input)?;
    let drops = scan
        .drops
        .iter()
        .map(|&(cpu, count)| (Some(cpu), count))
        .collect();
    let mut about = about(&header, &scan);
    scan.told.add_to(&mut about);
    let info = SourceInfo {
        about: about.to_string(),
        ..SourceInfo::default()
    };
    Ok(Box::new(DtraceSource::new(
        input, header, scan, info, drops,
    )))
}

pub fn open_capture(path: &Path, _: &Options) -> Result<Box<dyn Source>> {
    let folder = CaptureFolder::open(path)?;
    let input = Input::open(&path.join("events.txt"))?;
    let interact = folder
        .get(&["scheduler", "tunables", "kern.sched.interact"])
        .and_then(|value| value.as_str()?.parse().ok());
    let scan = Scan::read(&input, interact)?;
    let header = need_header(&scan, &input)?;
    let mut info = folder.info()?;
    if header.os == Os::FreeBsd {
        adapt_threads(&mut info, &folder);
    }
    if header.version == 2
        && let Ok(mut about) = serde_json::from_str::<Value>(&info.about)
    {
        scan.told.add_to(&mut about);
        info.about = about.to_string();
    }
    let drops = drops_of(&folder, &scan)?;
    let mut source = DtraceSource::new(input, header, scan, info, drops);
    source.discarded = discarded_of(&messages_of(&folder)?);
    Ok(Box::new(source))
}

fn need_header(scan: &Scan, input: &Input) -> Result<Header> {
    if let Some(header) = scan.header {
        return Ok(header);
    }
    let mut head = [0; 3];
    let len = input.read_at(&mut head, 0)?;
    Err(rewritten(input.name(), &head[..len]).unwrap_or_else(|| {
        Error::format(
            format!("{} has no #sched line", input.name()),
            "the first line of the collectors' DTrace scripts",
            "dtrace may have failed at once: look at its messages (stderr.txt in a capture)",
        )
    }))
}

/// trace.json's facts where there is no capture.json.
fn about(header: &Header, scan: &Scan) -> Value {
    let mut pairs = vec![json!([header.ts, header.wall])];
    pairs.extend(scan.end.map(|(ts, wall)| json!([ts, wall])));
    let release = (header.release != 0).then(|| match header.os {
        Os::FreeBsd => header.release.to_string(),
        Os::Linux => linux_release(header.release),
    });
    json!({
        "os": match header.os { Os::FreeBsd => "FreeBSD", Os::Linux => "Linux" },
        "release": release,
        "recorder": {"name": "dtrace"},
        "clock": {"pairs": pairs},
    })
}

/// `6.18.44` of 61844. The recorder writes 99 for any patch level from there on.
fn linux_release(number: u32) -> String {
    let (major, minor, patch) = (number / 10_000, number / 100 % 100, number % 100);
    match patch {
        99 => format!("{major}.{minor}"),
        _ => format!("{major}.{minor}.{patch}"),
    }
}

/// On FreeBSD no thread has its process's number, and the collector knows
/// processes only: the recorder's threads are those of its processes, also those that
/// began after the table of threads was taken, as dtrace's own do. The idle
/// threads have tids there, but they are each CPU's own and no others.
fn adapt_threads(info: &mut SourceInfo, folder: &CaptureFolder) {
    let pids = folder.get(&["recorder_tids"]).and_then(Value::as_array);
    for pid in pids.into_iter().flatten().filter_map(Value::as_u64) {
        let Ok(pid) = u32::try_from(pid) else {
            continue;
        };
        let known = |process: &&mut KnownProcess| process.pid == pid && !process.at_end;
        match info.processes.iter_mut().find(known) {
            Some(process) => process.recorder = true,
            None => info.processes.push(KnownProcess {
                pid,
                recorder: true,
                ..KnownProcess::default()
            }),
        }
    }
    info.threads.retain(|thread| {
        let name = thread.comm.as_bytes();
        let idle =
            thread.kernel == Some(true) && (name.starts_with(b"idle: cpu") || name == b"idle");
        !(idle || thread.recorder && thread.pid.is_none())
    });
    for thread in &mut info.threads {
        thread.recorder = false;
    }
}

fn messages_of(folder: &CaptureFolder) -> Result<String> {
    let path = folder.path.join("stderr.txt");
    if path.exists() {
        capture_folder::read_text(&path)
    } else {
        Ok(String::new())
    }
}

/// Records that DTrace discarded since it had no memory for a clause's variable.
fn discarded_of(messages: &str) -> u64 {
    let found = messages
        .lines()
        .filter_map(|line| discarded(line.as_bytes()));
    found.fold(0, u64::saturating_add)
}

/// What capture.json says was lost; else what dtrace's messages say.
fn drops_of(folder: &CaptureFolder, scan: &Scan) -> Result<Vec<(Option<u16>, u64)>> {
    let listed = folder
        .get(&["lost"])
        .and_then(Value::as_array)
        .map(Vec::as_slice);
    let mut drops: Vec<(Option<u16>, u64)> = listed
        .unwrap_or_default()
        .iter()
        .map(|loss| {
            let cpu = loss.get("cpu").and_then(Value::as_u64);
            let count = loss.get("count").and_then(Value::as_u64).unwrap_or(0);
            (cpu.and_then(|cpu| u16::try_from(cpu).ok()), count)
        })
        .collect();
    let messages = messages_of(folder)?;
    if drops.is_empty() {
        drops.extend(scan.drops.iter().map(|&(cpu, count)| (Some(cpu), count)));
    }
    if drops.is_empty() {
        drops.extend(
            messages
                .lines()
                .filter_map(|line| drop_report(line.as_bytes()))
                .map(|(cpu, count)| (Some(cpu), count)),
        );
    }
    // A capture's loss without a CPU includes those that other lines report.
    let mut left = discarded_of(&messages);
    for (_, count) in drops.iter_mut().filter(|(cpu, _)| cpu.is_none()) {
        let known = left.min(*count);
        (left, *count) = (left - known, *count - known);
    }
    drops.retain(|&(_, count)| count > 0);
    Ok(drops)
}

/// What the lines of a letter count: the probe's name, or the tracepoint's.
fn event_name(os: Os, letter: u8) -> &'static str {
    match (os, letter) {
        (Os::FreeBsd, b'S') => "off-cpu",
        (Os::FreeBsd, b'E') => "enqueue",
        (Os::FreeBsd, b'W') => "wakeup",
        (Os::FreeBsd, b'C') => "change-pri",
        (Os::FreeBsd, b'X') => "lwp-exit",
        (Os::Linux, b'S') => "sched_switch",
        (Os::Linux, b'E') => "sched_wakeup",
        (Os::Linux, b'W') => "sched_waking",
        (Os::Linux, b'C') => "sched_pi_setprio",
        (Os::Linux, b'X') => "sched_process_exit",
        (_, b'Y') => "sys_enter_sched_yield",
        (_, b'M') => "sched_migrate_task",
        (_, b'D') => "dequeue",
        (_, b'L') => "load-change",
        (_, b'P') => "preempt",
        (_, b'R') => "on-cpu",
        (_, b'I') => "interrupt",
        (_, b'V') => "td_sched",
        _ => "unknown",
    }
}

impl DtraceSource {
    fn new(
        input: Input,
        header: Header,
        scan: Scan,
        mut info: SourceInfo,
        drops: Vec<(Option<u16>, u64)>,
    ) -> Self {
        // One damaged line must not make a machine of 65,000 CPUs: CPU numbers in lines count only
        // without another source.
        info.ncpu = info.ncpu.max(header.ncpu);
        if info.ncpu == 0 {
            info.ncpu = u16::try_from(scan.first_by_cpu.len())
                .unwrap_or(u16::MAX)
                .max(1);
        }
        // The probes fire from the first line on, of which a ring kept the last; the last
        // line's clause runs after all others.
        let begin = if scan.is_ring() { scan.first_ts } else { None };
        info.window = (
            begin.or(Some(header.ts)),
            scan.end.map(|(ts, _)| ts).or(info.window.1),
        );
        info.unfinished |= scan.cut || scan.end.is_none();
        info.linux_priorities = header.os == Os::Linux;
        info.has_waking = true;
        info.has_enqueued = true;
        Self {
            input: Arc::new(input),
            header,
            scan,
            info,
            drops,
            discarded: 0,
        }
    }

    /// In a ring every CPU begins where its buffer does.
    fn late_starts(&self, sink: &mut dyn EventSink) -> Result<()> {
        let Some(begin) = self.scan.first_ts else {
            return Ok(());
        };
        for (cpu, &first) in (0..self.info.ncpu).zip(&self.scan.first_by_cpu) {
            if first > begin && first < i64::MAX {
                sink.event(&Event::Loss {
                    cpu: Some(cpu),
                    ts_begin: begin,
                    ts_end: first,
                    count: None,
                    reason: LossReason::LateStart,
                })?;
            }
        }
        Ok(())
    }

    fn end(&self, shared: &Shared) -> SourceEnd {
        let mut end = SourceEnd::default();
        let mut by_letter = [0u64; 26];
        for (cpu, letters) in shared.seen.iter().enumerate() {
            for (index, &count) in letters.iter().enumerate().filter(|&(_, &count)| count > 0) {
                by_letter[index] += count;
                if index == usize::from(b'N' - b'A') {
                    continue;
                }
                let name = event_name(self.header.os, b'A' + index as u8);
                end.counts.push((name.to_string(), cpu as u16, count));
            }
        }
        let name = self.input.name();
        if let Some(at) = shared.first_malformed {
            end.warnings.push(format!(
                "{name}: {} lines begin like events but cannot be read, the first at byte {at}",
                shared.malformed
            ));
            end.unplaced_losses
                .push((None, shared.malformed, LossReason::Truncated));
        }
        if shared.repeated > 0 {
            end.warnings.push(format!(
                "{name}: {} lines are in the file twice; they were read once, but the file was \
                 changed after recording",
                shared.repeated
            ));
        }
        if self.scan.cut || self.scan.end.is_none() {
            if self.scan.cut {
                end.unplaced_losses.push((None, 0, LossReason::Truncated));
            }
            end.warnings.push(format!(
                "{name} has no #end line: dtrace was killed or the file was cut, and the last \
                 second or so of each CPU is missing"
            ));
        }
        // DTrace for Linux counts what it then drops; FreeBSD's does not.
        let counts = self.drops.iter().map(|&(_, count)| count);
        let dropped = counts.fold(0, u64::saturating_add);
        let missing = |&&(letter, recorded): &&(u8, u64)| {
            let index = usize::from(letter.wrapping_sub(b'A'));
            recorded.saturating_sub(by_letter.get(index).copied().unwrap_or(0))
        };
        let absent: u64 = self
            .scan
            .counted
            .iter()
            .map(|counted| missing(&counted))
            .fold(0, u64::saturating_add);
        if self.scan.is_ring() {
            end.warnings.push(format!(
                "{name} is a flight recorder's: each CPU kept its last lines, and {absent} earlier ones are gone"
            ));
        } else if absent > dropped {
            end.anywhere.push((None, absent - dropped));
            end.unplaced_losses
                .push((None, absent - dropped, LossReason::Truncated));
            let letters: Vec<String> = self
                .scan
                .counted
                .iter()
                .filter(|counted| missing(counted) > 0)
                .map(|counted| {
                    let name = event_name(self.header.os, counted.0);
                    format!("{} of {} {name}", missing(&counted), counted.1)
                })
                .collect();
            end.warnings
                .push(format!("{name}: lines are missing: {}", letters.join(", ")));
        }
        for &(cpu, count) in &self.drops {
            end.unplaced_losses.push((cpu, count, LossReason::Overrun));
            end.anywhere.push((cpu, count));
        }
        if self.discarded > 0 {
            end.unplaced_losses
                .push((None, self.discarded, LossReason::Overrun));
            end.warnings.push(format!(
                "dtrace discarded {} records since it had no memory for its variables: preemptions, \
                 exits and interrupts are missing, but no switches and wakeups",
                self.discarded
            ));
        }
        if dropped > 0 {
            let placed = match &shared.reader {
                Reader::FreeBsd(reader) => reader.placed_gaps,
                Reader::Linux(_) => 0,
            };
            end.warnings.push(format!(
                "dtrace dropped {dropped} records; {placed} gaps could be placed in time, other \
                 waits may be wrong: record again with larger buffers (-b)"
            ));
        }
        end
    }
}

impl Source for DtraceSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn run(&mut self, sink: &mut dyn EventSink) -> Result<SourceEnd> {
        let ncpu = usize::from(self.info.ncpu);
        let reader = match self.header.os {
            Os::FreeBsd => {
                let mut dropped = vec![false; ncpu];
                for &(cpu, _) in self.drops.iter().filter(|&&(_, count)| count > 0) {
                    match cpu.map(usize::from) {
                        Some(cpu) if cpu < ncpu => dropped[cpu] = true,
                        Some(_) => {}
                        None => dropped.fill(true),
                    }
                }
                Reader::FreeBsd(FreeBsd::new(&dropped))
            }
            Os::Linux => Reader::Linux(Linux::new(ncpu, self.scan.has_yields)),
        };
        let mut streams: Vec<RunStream> = self
            .scan
            .runs
            .iter()
            .map(|&run| RunStream::new(run))
            .collect();
        let mut shared = Shared {
            input: Arc::clone(&self.input),
            reader,
            ncpu: self.info.ncpu,
            base: self.scan.base(),
            names: compact::Names::default(),
            window: (WINDOWS / streams.len().max(1)).clamp(LEAST_WINDOW, MOST_WINDOW),
            seen: vec![[0; 26]; ncpu],
            malformed: 0,
            first_malformed: None,
            last: vec![LastLine::default(); ncpu],
            repeated: 0,
            lines: 0,
            done: 0,
        };
        if self.scan.is_ring() {
            self.late_starts(sink)?;
        }
        merge(&mut streams, &mut shared, sink)?;
        if let Reader::FreeBsd(reader) = &mut shared.reader {
            reader.finish(sink)?;
        }
        Ok(self.end(&shared))
    }
}
