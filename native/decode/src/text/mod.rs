//! ftrace text: `trace` and `trace_pipe`, `trace-cmd report` (plain, -R, -t,
//! -l), systrace HTML and atrace, `perf script`.
//!
//! Two passes: the first learns the number of CPUs, the kinds of events and
//! where events were lost; the second decodes. What one line says is in `line`
//! and `fields`. Stamps of µs keep the order of the lines.

mod damage;
mod fields;
mod kind;
mod line;
mod lines;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::ftrace::interrupts::OpenInterrupts;
use crate::ftrace::states::{SeenStates, StateTable};
use crate::group_moves::GroupMoves;
use crate::model::event::{Event, EventSink, Extent, LossReason, Source, SourceEnd, SourceInfo};
use crate::perfdata::command;
use damage::{Damage, is_cut};
use fields::{Said, cpus_named, left, said};
use kind::{EVENTS, Kind};
use line::Bad;
use lines::Lines;

/// `trace_pipe` gives what it finds: an event that another CPU finished late
/// may stand this many events behind its place.
const WINDOW: usize = 1 << 14;
/// A file that lacks more than one in so many of the events that its header counts is an excerpt.
const EXCERPT: u64 = 10;
/// More letters of a fact in a header are not kept.
const LONGEST_FACT: usize = 200;
/// A CPU records an event per 250 ns at most (docs/trace-model.md, Losses without a place). So many
/// events that come ten times as fast on average were not timed.
const ENOUGH: u64 = 1000;
const FASTEST: i64 = 25;

pub struct FtraceText {
    path: PathBuf,
    info: SourceInfo,
    bytes: u64,
    html: bool,
    states: StateTable,
    /// First and last line of each CPU that has any.
    extents: Vec<Extent>,
    /// (line of the report, cpu, begin, end, count), in order of begin.
    losses: Vec<Lost>,
    header: Option<Counted>,
    /// What lies outside the lines, by the header's times of first and last event.
    outside: Option<String>,
    joined: Option<String>,
    /// Of the control groups, if it was chosen.
    hierarchy: Option<i64>,
    /// What stands before the CPU ends with the thread's number.
    tids: bool,
}

#[derive(Debug, Clone, Copy)]
struct Lost {
    cpu: Option<u16>,
    begin: i64,
    end: i64,
    count: Option<u64>,
    reason: LossReason,
}

/// What the header of tracefs's `trace` counts, and how it compares with the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    /// Events that were in the buffer, and those of them that are not in the file.
    entries: u64,
    missing: u64,
    /// Events that were overwritten, each before the first one of its CPU in the file.
    overwritten: u64,
}

/// Which lines of the file are trace: all, or those in a report's scripts; until 2013 they were the
/// text constant of one.
struct Gate {
    html: bool,
    open: bool,
}

/// What precedes the lines in such a page.
const CONSTANT: &[u8] = b"linuxPerfData = \"";

impl Gate {
    fn new(html: bool) -> Self {
        Self { html, open: !html }
    }

    /// Is this line one of the trace?
    fn passes(&mut self, line: &[u8]) -> bool {
        if self.html {
            let ends = line.starts_with(b"</script>") || line.starts_with(b"\";");
            if self.open && ends || line.ends_with(b"</script>") {
                self.open = false;
            } else if contains(line, b"class=\"trace-data\"") || contains(line, CONSTANT) {
                self.open = true;
                return false;
            }
        }
        self.open
    }
}

/// Text whose first lines look like one of the variants.
pub fn is_ftrace_text(head: &[u8]) -> bool {
    if head.starts_with(b"TRACE:") || is_html(head) || head.starts_with(b"# tracer:") {
        return true;
    }
    // Threads may have any byte but this in their names.
    if head.is_empty() || head.contains(&0) {
        return false;
    }
    // The last line may be cut.
    head.split(|&byte| byte == b'\n')
        .any(|text| line::parse(text).is_some() || line::perf_record(text).is_some())
        || head.starts_with(b"cpus=")
        || head.starts_with(b"# ========\n# captured on")
}

/// A line about the trace, whatever else it looks like.
fn is_header(text: &[u8]) -> bool {
    text.starts_with(b"#") || text.starts_with(b"cpus=")
}

/// The first line of what tracefs, `trace-cmd report` and `perf script --header` print. A buffer
/// that starts late on one CPU has a comment, too.
fn begins(text: &[u8]) -> bool {
    [&b"# tracer:"[..], b"# captured on", b"cpus="]
        .iter()
        .any(|line| text.starts_with(line))
}

fn is_html(head: &[u8]) -> bool {
    let start = head.trim_ascii_start();
    let start = &start[..start.len().min(15)].to_ascii_lowercase();
    start.starts_with(b"<!doctype html") || start.starts_with(b"<html")
}

impl FtraceText {
    pub fn open(path: &Path, head: &[u8]) -> Result<Self> {
        let shown = path.display();
        if head.starts_with(b"TRACE:") && !head.starts_with(b"TRACE:\n#") {
            return Err(Error::format(
                format!("{shown} is atrace's compressed output (TRACE: and zlib)"),
                "text",
                "record with `atrace -o FILE` without -z",
            ));
        }
        let bytes = std::fs::metadata(path)
            .map_err(|error| Error::io(format!("open {shown}"), &error))?
            .len();
        let html = is_html(head);
        let mut scan = Scan::default();
        let mut gate = Gate::new(html);
        let mut lines = Lines::open(path)?;
        while let Some(text) = lines.next()? {
            if gate.passes(text) {
                scan.line(text);
            }
        }
        if scan.raw_flags {
            return Err(Error::format(
                format!(
                    "{shown} was printed by `trace-cmd report -R` of a version that prints the \
                     flags in front of the time without a gap, as in `[000]-0x951699164020946:`"
                ),
                "times that cannot be mistaken for flags",
                "read the trace.dat itself, or print it without -R",
            ));
        }
        let lives = |&(kind, ..): &(Kind, _, _)| kind.of_lives() && scan.has(kind);
        if !EVENTS.iter().any(lives) {
            return Err(scan.nothing(path, html));
        }
        if scan.tracer_ticks {
            return Err(Error::format(
                format!(
                    "{shown}: its time stamps are plain numbers: the clock counts ticks (trace_clock counter or x86-tsc)"
                ),
                "time stamps in seconds",
                "record with `echo mono > trace_clock`",
            ));
        }
        let mut losses = if scan.loss_lines {
            find_losses(path, html)?
        } else {
            Vec::new()
        };
        let between = scan.between();
        let joined = joined(&between);
        losses.extend(between);
        losses.sort_by_key(|lost| lost.begin);
        let ncpu = scan.cpus.max(scan.cpus_said).max(scan.named);
        let header = scan.counted();
        let first = scan.extents.iter().flatten().map(|seen| seen.first).min();
        let overwritten = header.map_or(0, |counted| counted.overwritten);
        if let Some(begin) = first.filter(|_| overwritten > 0) {
            let lost = |cpu, end, count| Lost {
                cpu,
                begin,
                end,
                count,
                reason: LossReason::LateStart,
            };
            let late = scan.extents.iter().flatten();
            let late = late.filter(|seen| seen.first > begin);
            let late = late.map(|seen| lost(Some(seen.cpu), seen.first, None));
            let all = std::iter::once(lost(None, begin, Some(overwritten)));
            losses.splice(..0, all.chain(late));
        }
        let text = |text: &str| {
            if text.is_empty() {
                Value::Null
            } else {
                json!(text)
            }
        };
        let filters = [
            command::filters(&scan.command),
            command::targets(&scan.command),
        ]
        .concat();
        let mut remarks = Vec::new();
        if !filters.is_empty() {
            remarks.push(format!(
                "recorded with {}: what that left out is missing, and what the CPUs did in between \
                 is not known",
                filters.join(" and ")
            ));
        }
        let info = SourceInfo {
            ncpu,
            has_waking: scan.has(Kind::Waking),
            has_enqueued: scan.has(Kind::Wakeup),
            linux_priorities: true,
            uncounted: true,
            filtered: !filters.is_empty(),
            remarks,
            about: json!({
                "os": "Linux",
                "release": text(&scan.release),
                "hostname": text(&scan.hostname),
                "recorder": {"name": "ftrace text", "version": Value::Null},
                "header_counts": header.map(|counted| json!({
                    "entries": counted.entries,
                    "missing": counted.missing,
                    "overwritten": counted.overwritten,
                })),
            })
            .to_string(),
            ..SourceInfo::default()
        };
        let states = StateTable::for_text(&scan.release, &scan.states);
        Ok(Self {
            outside: scan.outside(),
            joined,
            path: path.to_owned(),
            info,
            bytes,
            html,
            states,
            extents: scan.extents.into_iter().flatten().collect(),
            losses,
            header,
            hierarchy: None,
            tids: scan.tids.0 >= scan.tids.1,
        })
    }

    /// Whose moves into control groups are taken, if the caller chose.
    #[must_use]
    pub fn of_hierarchy(self, hierarchy: Option<i64>) -> Self {
        Self { hierarchy, ..self }
    }
}

/// What the first pass learns.
#[derive(Default)]
struct Scan {
    cpus: u16,
    cpus_said: u16,
    /// One more than the highest CPU that a field names.
    named: u16,
    /// First and last line that says where a thread is, by CPU.
    extents: Vec<Option<Extent>>,
    /// By kind.
    kinds: [bool; EVENTS.len()],
    loss_lines: bool,
    /// "entries-in-buffer/entries-written" of each header.
    entries: Vec<(u64, u64)>,
    /// Lines that are an event, or may be one.
    rows: u64,
    /// Times of the first and the last event, as `perf script --header` says.
    sampled: Option<(i64, i64)>,
    states: SeenStates,
    /// Switches away from the thread whose number seems to stand before the CPU, and others. All
    /// are, unless there is no such number and a name ends as one.
    tids: (u64, u64),
    /// perf's command line.
    command: Vec<String>,
    release: String,
    hostname: String,
    tracer: String,
    /// tracefs output whose stamps have no decimal point.
    tracer_ticks: bool,
    /// First and last event of each recording, if the lines of several follow each other.
    recordings: Vec<(i64, i64)>,
    /// A header has begun, and no event of its recording was read.
    begun: bool,
    /// A line whose flags run into its stamp.
    raw_flags: bool,
    /// The first line that is no comment and not read.
    stranger: Option<String>,
}

impl Scan {
    fn has(&self, kind: Kind) -> bool {
        self.kinds[kind as usize]
    }

    fn line(&mut self, text: &[u8]) {
        if is_header(text) {
            self.header(text);
            return;
        }
        if text.ends_with(b"EVENTS]") || text.ends_with(b"DROPPED]") {
            self.loss_lines = true;
            return;
        }
        self.rows += u64::from(!text.trim_ascii().is_empty());
        match line::parse(text) {
            Some(Ok(line)) => {
                self.cpus = self.cpus.max(line.cpu + 1);
                match self.recordings.last_mut() {
                    Some((first, last)) if !self.begun => {
                        *first = line.ts.min(*first);
                        *last = line.ts.max(*last);
                    }
                    _ => self.recordings.push((line.ts, line.ts)),
                }
                self.begun = false;
                if let Some(kind) = Kind::named(line.event) {
                    self.kinds[kind as usize] = true;
                    // A clone or a new name is rare: a CPU that shows nothing else is silent.
                    if kind.places() {
                        self.extent(line.cpu, line.ts);
                    }
                    for cpu in cpus_named(kind, line.fields) {
                        self.named = self.named.max(cpu.saturating_add(1));
                    }
                    if kind == Kind::Switch
                        && let Some((prev, state)) = left(line.fields)
                    {
                        self.states.note(state);
                        if let Some(tid) = line.tid {
                            self.tids.0 += u64::from(tid == prev);
                            self.tids.1 += u64::from(tid != prev);
                        }
                    }
                    // Only trace-cmd prints ns without a point.
                    self.tracer_ticks |= !self.tracer.is_empty() && no_point(text, line.event);
                }
            }
            Some(Err(Bad::Flags)) => self.raw_flags = true,
            None if line::perf_record(text).is_some() => {
                self.loss_lines |= line::perf_loss(text).is_some();
            }
            _ if !text.trim_ascii().is_empty() && self.stranger.is_none() => {
                self.stranger =
                    Some(String::from_utf8_lossy(&text[..text.len().min(100)]).into_owned());
            }
            _ => {}
        }
    }

    fn extent(&mut self, cpu: u16, ts: i64) {
        let index = usize::from(cpu);
        if index >= self.extents.len() {
            self.extents.resize(index + 1, None);
        }
        let seen = self.extents[index].get_or_insert(Extent {
            cpu,
            first: ts,
            last: ts,
        });
        seen.first = seen.first.min(ts);
        seen.last = seen.last.max(ts);
    }

    fn header(&mut self, text: &[u8]) {
        self.begun |= begins(text);
        let text = String::from_utf8_lossy(text);
        let after = |key: &str| text.split_once(key).map(|(_, rest)| rest.trim());
        let digits = |rest: &str| {
            rest.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
                .parse()
                .unwrap_or(0)
        };
        if let Some(rest) = after("#P:")
            .or_else(|| after("cpus="))
            .or_else(|| after("nrcpus avail :"))
        {
            self.cpus_said = self.cpus_said.max(digits(rest)).min(1 << 14);
        }
        for (key, field) in [
            ("os release :", &mut self.release),
            ("hostname :", &mut self.hostname),
            ("# tracer:", &mut self.tracer),
        ] {
            if let Some(rest) = after(key) {
                *field = rest.chars().take(LONGEST_FACT).collect();
            }
        }
        // "# time of first sample : 931.077961"
        let time = |key| {
            after(key)?
                .strip_prefix(':')
                .map(str::trim)
                .and_then(line::seconds)
        };
        if let Some(first) = time("time of first sample") {
            self.sampled = Some((first, first));
        } else if let (Some((first, _)), Some(last)) = (self.sampled, time("time of last sample")) {
            self.sampled = Some((first, last));
        }
        let counts = after("# entries-in-buffer/entries-written:");
        if let Some((entries, written)) = counts.and_then(|rest| rest.split_once('/'))
            && let Ok(entries) = entries.trim().parse()
            && self.entries.len() < 2
        {
            let digits = written.split(|c: char| !c.is_ascii_digit()).next();
            let written = digits.and_then(|digits| digits.parse().ok());
            self.entries.push((entries, written.unwrap_or(0)));
        }
        if let Some(rest) = after("cmdline :") {
            self.command = rest.split_whitespace().map(str::to_owned).collect();
        }
        if let Some(rest) = after("latency trace v").and_then(|rest| rest.split_once(" on ")) {
            rest.1.trim().clone_into(&mut self.release);
        }
    }

    /// The header's counts, if they are of these lines: of one header, of no fewer events than
    /// there are. An event may take several lines, so that lines which are none hide a missing one.
    fn counted(&self) -> Option<Counted> {
        let [(entries, written)] = self.entries[..] else {
            return None;
        };
        let missing = entries.checked_sub(self.rows)?;
        let overwritten = written.checked_sub(entries)?;
        Some(Counted {
            entries,
            missing,
            overwritten,
        })
    }

    /// The times between recordings that were joined, in which none recorded. Those of single CPUs
    /// overlap.
    fn between(&self) -> Vec<Lost> {
        let mut recordings = self.recordings.clone();
        recordings.sort_unstable();
        let mut found = Vec::new();
        let mut until = recordings.first().map_or(0, |one| one.1);
        for (first, last) in recordings {
            if first > until {
                found.push(Lost {
                    cpu: None,
                    begin: until,
                    end: first,
                    count: None,
                    reason: LossReason::Overrun,
                });
            }
            until = until.max(last);
        }
        found
    }

    /// Does the header name an earlier or a later event than there is in the file?
    fn outside(&self) -> Option<String> {
        // The header has microseconds.
        const ROUNDED: i64 = 1000;
        let (begin, end) = self.sampled?;
        let first = self.recordings.iter().map(|one| one.0).min()?;
        let last = self.recordings.iter().map(|one| one.1).max()?;
        let before = first.checked_sub(begin).filter(|&ns| ns > ROUNDED);
        let behind = end.checked_sub(last).filter(|&ns| ns > ROUNDED);
        let parts: Vec<String> = [(before, "before the first"), (behind, "behind the last")]
            .into_iter()
            .filter_map(|(ns, place)| {
                let ms = ns? as f64 / 1e6;
                Some(format!("{ms:.3} ms {place} line"))
            })
            .collect();
        (!parts.is_empty()).then(|| {
            format!(
                "by its header the recording has events up to {}: they are not in the file",
                parts.join(" and ")
            )
        })
    }

    fn nothing(&self, path: &Path, html: bool) -> Error {
        let shown = path.display();
        let found = match (&self.stranger, html) {
            _ if !matches!(self.tracer.as_str(), "" | "nop") => {
                format!(
                    "{shown} is the output of the {} tracer",
                    self.tracer.escape_debug()
                )
            }
            (_, true) => format!("{shown} is HTML without a trace in it"),
            (Some(line), _) if self.cpus == 0 => {
                format!("{shown}: no line reads as an event; the first one is {line:?}")
            }
            _ => format!("{shown} holds events, but none of the scheduler's"),
        };
        Error::format(
            found,
            "lines as `[001] d..2.  4836.436159: sched_switch: prev_comm=... prev_state=S ==> next_comm=...`",
            "read the binary trace.dat or perf.data itself if there is one; else print it with \
             `trace-cmd report`, `perf script` or `cat trace`, without options that change the fields",
        )
    }
}

/// Is the stamp before the event's name a plain number? A thread's name may look like one.
fn no_point(text: &[u8], event: &[u8]) -> bool {
    let named = [b": ", event, b":"].concat();
    let Some(at) = text.windows(named.len()).position(|part| part == named) else {
        return false;
    };
    let begin = text[..at]
        .iter()
        .rposition(|b| !(b.is_ascii_digit() || b".,".contains(b)))
        .map_or(0, |at| at + 1);
    begin < at && text[begin..at].iter().all(u8::is_ascii_digit)
}

/// "CPU:2 [LOST 17 EVENTS]", "CPU:2 [17 EVENTS DROPPED]", "CPU:2 [EVENTS DROPPED]", or a record of
/// perf.
fn loss_line(text: &[u8]) -> Option<(u16, Option<u64>)> {
    if let Some((cpu, count)) = line::perf_loss(text) {
        return Some((cpu, Some(count)));
    }
    let text = std::str::from_utf8(text).ok()?.trim();
    // trace-cmd puts the instance's name before it.
    let rest = &text[text.find("CPU:")? + 4..];
    let (cpu, rest) = rest.split_once(' ')?;
    if !rest.contains("EVENTS") {
        return None;
    }
    let count = rest
        .split(|c: char| !c.is_ascii_digit())
        .find(|digits| !digits.is_empty());
    Some((
        cpu.parse().ok()?,
        count.and_then(|digits| digits.parse().ok()),
    ))
}

/// What is said of a file that holds several recordings.
fn joined(between: &[Lost]) -> Option<String> {
    if between.is_empty() {
        return None;
    }
    let ns: i64 = between.iter().map(|lost| lost.end - lost.begin).sum();
    Some(format!(
        "{} recordings in one file, with {:.3} s between them: what happened then is unknown",
        between.len() + 1,
        ns as f64 / 1e9
    ))
}

/// Places the losses: from the CPU's last event before the line to its next.
fn find_losses(path: &Path, html: bool) -> Result<Vec<Lost>> {
    let mut lines = Lines::open(path)?;
    let mut gate = Gate::new(html);
    let mut last: Vec<Option<i64>> = Vec::new();
    let mut open: Vec<(u16, Option<u64>)> = Vec::new();
    let mut found = Vec::new();
    let mut all: Option<(i64, i64)> = None;
    while let Some(text) = lines.next()? {
        if !gate.passes(text) {
            continue;
        }
        if let Some(Ok(line)) = line::parse(text) {
            let (begin, end) = all.unwrap_or((line.ts, line.ts));
            all = Some((begin.min(line.ts), end.max(line.ts)));
            let cpu = usize::from(line.cpu);
            if cpu >= last.len() {
                last.resize(cpu + 1, None);
            }
            if !open.is_empty() {
                for &(_, count) in open.iter().filter(|(lost, _)| *lost == line.cpu) {
                    let begin = last[cpu].unwrap_or(line.ts).min(line.ts);
                    found.push(Lost {
                        cpu: Some(line.cpu),
                        begin,
                        end: line.ts,
                        count,
                        reason: LossReason::Overrun,
                    });
                }
                open.retain(|(lost, _)| *lost != line.cpu);
            }
            last[cpu] = Some(line.ts);
        } else if let Some(lost) = loss_line(text) {
            open.push(lost);
        }
    }
    // Of CPUs from which nothing came any more.
    if let Some((begin, end)) = all {
        found.extend(open.into_iter().map(|(cpu, count)| {
            Lost {
                cpu: Some(cpu),
                begin: last
                    .get(usize::from(cpu))
                    .copied()
                    .flatten()
                    .unwrap_or(begin),
                end,
                count,
                reason: LossReason::Overrun,
            }
        }));
    }
    found.sort_by_key(|lost| lost.begin);
    Ok(found)
}

impl Source for FtraceText {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn extents(&mut self) -> Result<Option<Vec<Extent>>> {
        Ok(Some(self.extents.clone()))
    }

    fn run(&mut self, sink: &mut dyn EventSink) -> Result<SourceEnd> {
        let mut lines = Lines::open(&self.path)?;
        let mut gate = Gate::new(self.html);
        let mut queue = Queue {
            held: VecDeque::new(),
            losses: self.losses.clone().into(),
            last: i64::MIN,
            late: 0,
        };
        let ncpu = usize::from(self.info.ncpu);
        let mut counts = vec![vec![0u64; ncpu]; EVENTS.len()];
        let mut interrupts = vec![OpenInterrupts::default(); ncpu];
        let mut last = vec![i64::MIN; ncpu];
        let mut moves = GroupMoves::default();
        let mut damage = Damage::default();
        let (mut back, mut first_back) = (0u64, 0);
        let (mut good, mut places) = (0u64, 0u64);
        let (mut bad, mut side) = (Unread::default(), Unread::default());
        let mut earliest = i64::MAX;
        let mut told = 0;
        while let Some(text) = lines.next()? {
            if !gate.passes(text) || is_header(text) {
                continue;
            }
            let read = match line::parse(text) {
                None => {
                    // Which handlers ended in the hole is unknown.
                    let lost = loss_line(text);
                    if let Some(open) =
                        lost.and_then(|(cpu, _)| interrupts.get_mut(usize::from(cpu)))
                    {
                        open.forget();
                    }
                    (lost.is_none() && is_cut(text)).then(|| {
                        damage.found();
                        Err(Kind::Switch)
                    })
                }
                Some(Ok(mut line)) => {
                    line.tid = line.tid.filter(|_| self.tids);
                    let read = Kind::named(line.event).map(|kind| {
                        let said = said(kind, &line, &self.states);
                        if said.is_none() && kind.places() {
                            damage.found();
                        }
                        said.map(|said| (kind, line.cpu, line.ts, said)).ok_or(kind)
                    });
                    if !matches!(read, Some(Err(_)))
                        && let Some((begin, end)) = damage.line(line.ts)
                    {
                        queue.lose(begin, end);
                    }
                    read
                }
                Some(Err(_)) => {
                    damage.found();
                    Some(Err(Kind::Switch))
                }
            };
            match read {
                Some(Ok((kind, cpu, ts, said))) => {
                    good += 1;
                    places += u64::from(kind.places());
                    earliest = earliest.min(ts);
                    counts[kind as usize][usize::from(cpu)] += 1;
                    // Of one CPU, every printer keeps the order.
                    let last = &mut last[usize::from(cpu)];
                    if ts < *last {
                        back += 1;
                        if first_back == 0 {
                            first_back = lines.number;
                        }
                    }
                    *last = ts;
                    let open = &mut interrupts[usize::from(cpu)];
                    let event = match said {
                        Said::Event(event) => Some(event),
                        Said::Entered(kind, id) => {
                            open.enter(kind, id, ts);
                            None
                        }
                        Said::Left(kind, id) => open.leave(kind, id, ts, cpu),
                        Said::Moved(hierarchy, one) => {
                            moves.push(Some(hierarchy), one);
                            None
                        }
                        Said::Nothing => None,
                    };
                    if let Some(event) = event {
                        queue.push(ts, event, sink)?;
                    }
                }
                Some(Err(kind)) => {
                    let unread = if kind.places() { &mut bad } else { &mut side };
                    unread.note(text);
                    if unread.count == 1 {
                        unread.number = lines.number;
                    }
                }
                None => {}
            }
            if lines.done - told > 4 << 20 {
                told = lines.done;
                sink.progress(told, self.bytes)?;
            }
        }
        queue.drain(sink)?;
        // A stray damaged line is data; a variant we cannot read is not.
        if bad.count > 10 + places / 100 {
            return Err(Error::format(
                format!(
                    "{}: {} of {} switches and wakeups cannot be read; the first is {}",
                    self.path.display(),
                    bad.count,
                    places + bad.count,
                    bad.first()
                ),
                "the fields as the kernel, trace-cmd report or perf script print them",
                "print the trace without options that change the fields, or open the binary file itself",
            ));
        }
        // Two traces in one file go back once for each CPU.
        if back > 10 + good / 100 {
            return Err(Error::format(
                format!(
                    "{}: in {back} of {good} scheduler events time goes back within one CPU, first \
                     at line {first_back}: its time stamps may be differences",
                    self.path.display()
                ),
                "the times of events",
                "print it without --deltatime or --ts-diff",
            ));
        }
        let latest = last.iter().copied().max().unwrap_or(earliest);
        let least = i64::try_from(good / ncpu.max(1) as u64).unwrap_or(i64::MAX) * FASTEST;
        if good >= ENOUGH && latest.saturating_sub(earliest) < least {
            return Err(Error::format(
                format!(
                    "{}: {good} scheduler events in {} ns: its time stamps do not count time",
                    self.path.display(),
                    latest.saturating_sub(earliest)
                ),
                "the times of events",
                "record with `echo mono > trace_clock`, not counter or uptime",
            ));
        }
        let mut end = SourceEnd::default();
        moves.finish(self.hierarchy, &mut end);
        if let Some(counted) = self.header {
            counted.told(&mut end);
        }
        end.warnings.extend(self.outside.clone());
        end.warnings.extend(self.joined.clone());
        end.warnings.extend(bad.warning(""));
        end.warnings
            .extend(side.warning(" of events other than switches and wakeups"));
        if back > 0 {
            end.warnings.push(format!(
                "time goes back within one CPU, first at line {first_back}, {back} in all: \
                 two traces in one file, or a clock that was set back"
            ));
        }
        if queue.late > 0 {
            end.warnings.push(format!(
                "{} events come more than {WINDOW} events too late and were excluded: two traces in one file?",
                queue.late
            ));
        }
        for ((_, system, name), counts) in EVENTS.iter().zip(&counts) {
            for (cpu, &count) in (0u16..).zip(counts) {
                if count > 0 {
                    end.counts.push((format!("{system}:{name}"), cpu, count));
                }
            }
        }
        Ok(end)
    }
}

impl Counted {
    fn told(self, end: &mut SourceEnd) {
        if self.overwritten > 0 {
            end.warnings.push(format!(
                "the header counts {} events that the kernel overwrote, all older than the first \
                 one here of their CPU",
                self.overwritten
            ));
        }
        if self.missing > 0 {
            let lost = (None, self.missing, LossReason::Truncated);
            end.unplaced_losses.push(lost);
            // Who copies a tenth less takes an excerpt, which shows no gap inside, or cuts so much
            // out that broken chains show it.
            if self.missing <= self.entries / EXCERPT {
                end.anywhere.push((None, self.missing));
            }
            end.warnings.push(format!(
                "of {} events that the header counts, {} are not in the file",
                self.entries, self.missing
            ));
        }
    }
}

/// Lines that cannot be read.
#[derive(Default)]
struct Unread {
    count: u64,
    /// The first one, and its number.
    text: String,
    number: u64,
}

impl Unread {
    fn note(&mut self, text: &[u8]) {
        self.count += 1;
        if self.count == 1 {
            self.text = String::from_utf8_lossy(&text[..text.len().min(160)]).into_owned();
        }
    }

    fn first(&self) -> String {
        format!("line {}: {:?}", self.number, self.text)
    }

    fn warning(&self, of: &str) -> Option<String> {
        let (lines, were) = if self.count == 1 {
            ("line", "was")
        } else {
            ("lines", "were")
        };
        (self.count > 0).then(|| {
            format!(
                "{} {lines}{of} could not be read and {were} excluded; the first is {}",
                self.count,
                self.first()
            )
        })
    }
}

/// Holds the latest events so that a late line finds its place.
struct Queue {
    held: VecDeque<(i64, Event)>,
    losses: VecDeque<Lost>,
    last: i64,
    late: u64,
}

impl Queue {
    /// Of every CPU, found on the way.
    fn lose(&mut self, begin: i64, end: i64) {
        let place = self.losses.partition_point(|lost| lost.begin <= begin);
        let lost = Lost {
            cpu: None,
            begin,
            end,
            count: None,
            reason: LossReason::Truncated,
        };
        self.losses.insert(place, lost);
    }

    fn push(&mut self, ts: i64, event: Event, sink: &mut dyn EventSink) -> Result<()> {
        if ts < self.last {
            self.late += 1;
            return Ok(());
        }
        // Nearly always at the end: equal stamps keep the order of the lines.
        let place = self
            .held
            .iter()
            .rposition(|&(held, _)| held <= ts)
            .map_or(0, |at| at + 1);
        if place == self.held.len() {
            self.held.push_back((ts, event));
        } else {
            self.held.insert(place, (ts, event));
        }
        if self.held.len() > WINDOW {
            self.emit(sink)?;
        }
        Ok(())
    }

    fn emit(&mut self, sink: &mut dyn EventSink) -> Result<()> {
        let Some((ts, event)) = self.held.pop_front() else {
            return Ok(());
        };
        sink.event(&event)?;
        self.last = ts;
        while let Some(lost) = self.losses.pop_front_if(|lost| lost.begin <= ts) {
            sink.event(&Event::Loss {
                cpu: lost.cpu,
                ts_begin: lost.begin,
                ts_end: lost.end,
                count: lost.count,
                reason: lost.reason,
            })?;
        }
        Ok(())
    }

    fn drain(&mut self, sink: &mut dyn EventSink) -> Result<()> {
        while !self.held.is_empty() {
            self.emit(sink)?;
        }
        Ok(())
    }
}

fn contains(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|window| window == what)
}
