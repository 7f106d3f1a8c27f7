//! Perfetto traces (`perfetto -o`, traced_probes, Android): ftrace bundles,
//! compact or not, compressed or not.
//!
//! Two passes: `scan` notes where each CPU's bundles lie; then the CPUs are
//! merged in time order, one bundle of each in memory. What a bundle says is in
//! `bundle`.

mod bundle;
mod by_name;
mod clocks;
mod compact;
mod damage;
mod expand;
mod full;
mod idle_first;
mod input;
mod rows;
mod scan;
mod sources;
mod wire;
mod writers;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::ftrace::states::StateTable;
use crate::group_moves::GroupMoves;
use crate::hooks::check_interrupt;
use crate::merge::{Head, Stream, merge};
use crate::model::event::{
    CpuInfo, Event, EventSink, LossReason, Origin, Party, Source, SourceEnd, SourceInfo,
};
use crate::regular_file::open_regular;
use bundle::{CpuState, Known, NAMES, decode};
use input::read_at;
use rows::Bundle;
use scan::{Scan, Scanned, scan};
use wire::Fields;

/// A Perfetto trace, scanned and ready to run.
pub struct Perfetto {
    info: SourceInfo,
    scan: Scan,
    file: Arc<File>,
    states: StateTable,
    warnings: Vec<String>,
    /// Of the control groups, if it was chosen.
    hierarchy: Option<i64>,
    /// CPUs that idled until their first switch, whose compact form does not say so.
    idle_first: Vec<bool>,
    /// The writer put the wakings of all CPUs into the bundles of one.
    wakings_of_all: bool,
    /// The writer does not name the waker.
    no_wakers: bool,
    /// Its times are on a clock that is not known.
    unknown_clock: bool,
}

const UNKNOWN_CLOCK: &str = "the kernel's buffer was taken as it was found \
     (preserve_ftrace_buffer), and the file does not say which clock its times are of: there is \
     no time of day, and the times of other Perfetto traces do not compare";

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
        let file = Arc::new(open_regular(path)?);
        let len = file.metadata().map_err(opening)?.len();
        let mut told = check_interrupt;
        let mut cut = None;
        let (file, scan) = match scan(&file, len, &mut told)? {
            Scanned::Done(scan) => (file, scan),
            Scanned::Compressed => {
                let (expanded, len, at) =
                    expand::expand(&file, (&path.display().to_string(), len), &mut told)?;
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
        let service = scan.service_buffers;
        if service.discarded > 0 {
            warnings.push(format!(
                "Perfetto's buffer was full: it discarded {} chunks of later events, so that the \
                 trace ends before the recording did (record with a larger size_kb)",
                service.discarded
            ));
        }
        if service.not_flushed {
            warnings.push(
                "Perfetto's final flush failed: the last events of CPUs may be missing".into(),
            );
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
                counts_cpus: scan.cpus_said > 0,
                cpus: cpus(&scan, ncpu),
                threads: scan.threads.clone(),
                processes: scan.processes.clone(),
                linux_priorities: true,
                origin: origin(&scan.version),
                unfinished: scan.service_buffers.lack_the_end()
                    || scan.truncated_at.or(cut).is_some(),
                about: about(&scan, true),
                ..SourceInfo::default()
            },
            states: StateTable::for_release(&scan.release),
            scan: *scan,
            file,
            warnings,
            hierarchy: None,
            idle_first: Vec::new(),
            wakings_of_all: false,
            no_wakers: false,
            unknown_clock: false,
        };
        perfetto.one_source()?;
        perfetto.which_wakes()?;
        perfetto.which_writer()?;
        perfetto.who_idles_first()?;
        Ok(perfetto)
    }

    /// Whose moves into control groups are taken, if the caller chose.
    #[must_use]
    pub fn of_hierarchy(self, hierarchy: Option<i64>) -> Self {
        Self { hierarchy, ..self }
    }

    /// Which wake steps were recorded: asked of the first bundles of each CPU,
    /// until both were seen or a small part of the trace was read.
    fn which_wakes(&mut self) -> Result<()> {
        const SAMPLED: usize = 16;
        const ENOUGH: u64 = 1 << 18;
        let (mut bytes, mut events) = (Vec::new(), Bundle::default());
        let cpus = self.scan.bundles.len();
        let mut states: Vec<CpuState> = (0..cpus).map(|_| CpuState::default()).collect();
        let mut read = 0;
        for number in 0..SAMPLED {
            for (cpu, state) in states.iter_mut().enumerate() {
                let Some(place) = self.scan.bundles[cpu].get(number) else {
                    continue;
                };
                self.bundle(cpu, number, state, &mut bytes, &mut events)?;
                self.info.has_enqueued |= state.counts[1] > 0;
                self.info.has_waking |= state.counts[2] > 0;
                read += u64::from(place.span.len);
                if state.unknown_clock && !self.unknown_clock {
                    self.unknown_clock = true;
                    self.info.about = about(&self.scan, false);
                    self.warnings.push(UNKNOWN_CLOCK.into());
                }
                if self.info.has_enqueued && self.info.has_waking {
                    return Ok(());
                }
            }
            if number > 0 && read > ENOUGH {
                return Ok(());
            }
        }
        Ok(())
    }

    /// When the last bundles of all CPUs end, as far as they can be read.
    #[cold]
    fn latest(&self) -> Result<Option<i64>> {
        let (mut bytes, mut events) = (Vec::new(), Bundle::default());
        let mut latest = None;
        for (cpu, places) in self.scan.bundles.iter().enumerate() {
            let mut state = CpuState::default();
            // The one before the last may be the last that can be read.
            for number in places.len().saturating_sub(2)..places.len() {
                self.bundle(cpu, number, &mut state, &mut bytes, &mut events)?;
            }
            latest = latest.max(state.last);
        }
        Ok(latest)
    }

    fn bundle(
        &self,
        cpu: usize,
        number: usize,
        state: &mut CpuState,
        bytes: &mut Vec<u8>,
        events: &mut Bundle,
    ) -> Result<bundle::Head> {
        let places = &self.scan.bundles[cpu];
        let place = places[number];
        let next = places.get(number + 1);
        let known = Known {
            end: next.and_then(|next| next.previous_end),
            symbols: place.symbols.and_then(|at| self.scan.symbols.get(at)),
            followed: next.is_some_and(|next| next.drops == place.drops),
            after_drops: number > 0 && places[number - 1].drops != place.drops,
            started: self.scan.started,
            on_boot_clock: !self.scan.preserved,
            wakings_of_all: self.wakings_of_all,
            no_wakers: self.no_wakers,
        };
        bytes.resize(place.span.len as usize, 0);
        read_at(&self.file, bytes, place.span.at)?;
        let cpu = u16::try_from(cpu).unwrap_or(u16::MAX);
        Ok(decode(
            bytes,
            cpu,
            known,
            (&self.states, &self.scan.clocks),
            state,
            events,
        ))
    }
}

/// One CPU's bundles, one of them decoded.
struct Cursor<'a> {
    trace: &'a Perfetto,
    cpu: usize,
    state: CpuState,
    next: usize,
    events: Bundle,
    /// Time of the last event passed on.
    last: Option<i64>,
    losses: u64,
    backwards: u64,
    /// Events of before tracing started.
    stale: u64,
    /// Events behind the last one are damaged.
    damaged: bool,
}

/// What the CPUs' cursors have in common.
struct Shared<'a> {
    known: Memberships<'a>,
    /// A bundle as it is in the file.
    bytes: Vec<u8>,
    done: u64,
    told: u64,
}

/// Bytes between two reports of progress.
const REPORT: u64 = 4 << 20;

/// How the version of the kernel ends in our exports; it begins with what was recorded.
const OURS: &str = ", written by schedscope";

fn origin(version: &str) -> Origin {
    match version.strip_suffix(OURS) {
        Some("simulation") => Origin::Simulation,
        Some(system) if !system.starts_with("Linux") => Origin::OtherSystem,
        _ => Origin::Linux,
    }
}

impl Source for Perfetto {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn run(&mut self, sink: &mut dyn EventSink) -> Result<SourceEnd> {
        let trace = &*self;
        let mut cursors: Vec<Cursor> = (0..trace.scan.bundles.len())
            .map(|cpu| Cursor::new(trace, cpu))
            .collect();
        let mut shared = Shared::of(trace);
        let mut late: Vec<(usize, i64)> = Vec::new();
        for cursor in &mut cursors {
            let head = cursor.load(&mut shared)?;
            if let Some(first) = cursor.head() {
                let overwritten = trace.scan.service_buffers.overwritten > 0;
                if let Some(until) =
                    head.and_then(|head| missing_until(&head, first.ts, overwritten))
                {
                    late.push((cursor.cpu, until));
                }
            } else if cursor.damaged {
                late.push((cursor.cpu, trace.latest()?.unwrap_or(i64::MIN)));
            }
        }
        if let Some(begin) = cursors
            .iter()
            .filter_map(Cursor::head)
            .map(|head| head.ts)
            .min()
        {
            late_starts(&late, begin, sink)?;
        }
        merge(&mut cursors, &mut shared, sink)?;
        let mut end = trace.end(&cursors);
        let mut moves = GroupMoves::default();
        for cursor in cursors {
            moves.extend(cursor.state.group_moves);
        }
        moves.finish(trace.hierarchy, &mut end);
        Ok(end)
    }
}

impl<'a> Stream for Cursor<'a> {
    type Shared = Shared<'a>;

    #[inline]
    fn head(&self) -> Option<Head> {
        self.events.head()
    }

    #[inline]
    fn pop(&mut self, shared: &mut Shared<'a>, sink: &mut dyn EventSink) -> Result<()> {
        let Some(mut event) = self.events.take() else {
            return Ok(());
        };
        shared.known.complete(&mut event);
        let ts = event.ts();
        self.last = Some(ts);
        sink.event(&event)?;
        while let Some((begin, end)) = self.events.take_hole(ts) {
            self.lose(begin, end, LossReason::Truncated, sink)?;
        }
        if self.events.head().is_some() {
            Ok(())
        } else {
            self.go_on(shared, sink)
        }
    }
}

/// Up to when events of a CPU are missing before the first one, at `first`; None if none are.
///
/// Between the end of the bundle before, as this one has it, and this one there were none.
fn missing_until(head: &bundle::Head, first: i64, overwritten: bool) -> Option<i64> {
    match head.previous_end {
        _ if head.lost || head.damaged => Some(first),
        _ if head.opens => None,
        Some(end) => Some(end.min(first)),
        None => overwritten.then_some(first),
    }
}

/// CPUs that began later than others, where the file says that there were
/// earlier events of them: a ring buffer kept only the newest.
fn late_starts(late: &[(usize, i64)], begin: i64, sink: &mut dyn EventSink) -> Result<()> {
    for &(cpu, until) in late.iter().filter(|&&(_, until)| until > begin) {
        sink.event(&Event::Loss {
            cpu: u16::try_from(cpu).ok(),
            ts_begin: begin,
            ts_end: until,
            count: None,
            reason: LossReason::LateStart,
        })?;
    }
    Ok(())
}

impl<'a> Cursor<'a> {
    fn new(trace: &'a Perfetto, cpu: usize) -> Self {
        let mut state = CpuState::default();
        if trace.idle_first.get(cpu) == Some(&true) {
            state.current = Some(0);
        }
        Self {
            trace,
            cpu,
            state,
            next: 0,
            events: Bundle::default(),
            last: None,
            losses: 0,
            backwards: 0,
            stale: 0,
            damaged: false,
        }
    }

    /// Decodes the next bundle that holds events; None when there is no more.
    fn load(&mut self, shared: &mut Shared<'a>) -> Result<Option<bundle::Head>> {
        let mut all = bundle::Head::default();
        while let Some(place) = self.trace.scan.bundles[self.cpu].get(self.next) {
            shared.done += u64::from(place.span.len);
            let counts = self.state.counts;
            let (state, events) = (&mut self.state, &mut self.events);
            let head = self
                .trace
                .bundle(self.cpu, self.next, state, &mut shared.bytes, events)?;
            self.next += 1;
            all.lost |= head.lost;
            all.gap |= head.gap;
            all.damaged |= head.damaged;
            all.previous_end = all.previous_end.or(head.previous_end);
            all.opens |= head.opens;
            if let Some(started) = self.trace.scan.started {
                let kinds = self.events.kinds_before(started);
                let stale = self.events.skip_before(started);
                self.stale += stale;
                // What was missing was missing before these.
                if stale > 0 {
                    for (at, count) in kinds.into_iter().enumerate() {
                        self.state.counts[at] = self.state.counts[at].saturating_sub(count);
                    }
                    if self.events.head().is_none() {
                        self.state.counts = counts;
                    }
                    all = bundle::Head {
                        opens: true,
                        ..bundle::Head::default()
                    };
                }
            }
            if let Some(last) = self.last {
                let skipped = self.events.skip_before(last);
                self.backwards += skipped;
                all.damaged |= skipped > 0;
            }
            if self.events.head().is_some() {
                return Ok(Some(all));
            }
        }
        self.events.clear();
        self.damaged = all.damaged || self.state.open;
        Ok(None)
    }

    /// On to the next bundle, and what is missing between the two.
    #[cold]
    fn go_on(&mut self, shared: &mut Shared<'a>, sink: &mut dyn EventSink) -> Result<()> {
        let begin = self.last.unwrap_or(0);
        let Some(head) = self.load(shared)? else {
            if self.damaged
                && let Some(end) = self.trace.latest()?
            {
                self.lose(begin, end, LossReason::Truncated, sink)?;
            }
            return Ok(());
        };
        if shared.done - shared.told > REPORT {
            shared.told = shared.done;
            sink.progress(shared.done, self.trace.scan.bytes)?;
        }
        let reason = match (head.damaged, head.lost || head.gap) {
            (true, _) => LossReason::Truncated,
            (false, true) => LossReason::Overrun,
            (false, false) => return Ok(()),
        };
        self.losses += u64::from(reason == LossReason::Overrun);
        let end = self.events.head().map_or(begin, |head| head.ts);
        self.lose(begin, end, reason, sink)
    }

    #[cold]
    fn lose(
        &self,
        begin: i64,
        end: i64,
        reason: LossReason,
        sink: &mut dyn EventSink,
    ) -> Result<()> {
        sink.event(&Event::Loss {
            cpu: u16::try_from(self.cpu).ok(),
            ts_begin: begin,
            ts_end: end.max(begin),
            count: None,
            reason,
        })
    }
}

impl Perfetto {
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
                cursor.state.unknown_prev,
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
                cursor.state.contradictions,
                "bundles of events contradict themselves or the next one: they are damaged and were left out",
            );
            warn(
                cursor.stale,
                "events are of before tracing started (they were left in the kernel's buffer) and were left out",
            );
            warn(
                cursor.backwards,
                "events are older than the bundle before them and were left out",
            );
            let before = self.scan.stats_begin.get(&cpu).copied().unwrap_or_default();
            let after = self.scan.stats_end.get(&cpu).copied().unwrap_or(before);
            let mut counted = after.since(before);
            // A kept bundle reports the loss before it: without one, the loss lies before the start
            // of what a ring kept.
            if self.scan.service_buffers.overwritten > 0 && cursor.losses == 0 {
                counted.overrun = 0;
            }
            let lost = counted.lost();
            if lost > 0 {
                end.unplaced_losses
                    .push((Some(cpu), lost, LossReason::Overrun));
            }
            if lost > 0 && cursor.losses == 0 {
                end.anywhere.push((Some(cpu), lost));
            }
            if lost > 0 && cursor.losses > 0 {
                warn(
                    lost,
                    &format!(
                        "events were lost in the kernel, in {} gaps together; how many in each is not recorded",
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
    /// Bit `tid % 4096` is set for each that was ever pending: most threads of a
    /// process tree never run, and asking the map for every event would cost.
    asked: [u64; 64],
}

impl<'a> Memberships<'a> {
    fn new(scan: &'a Scan) -> Self {
        let rest = scan.memberships.iter().peekable();
        Self {
            rest,
            pending: FxHashMap::default(),
            asked: [0; 64],
        }
    }

    #[inline]
    fn complete(&mut self, event: &mut Event) {
        let now = event.ts();
        while let Some(known) = self.rest.next_if(|known| known.ts.cast_signed() <= now) {
            self.pending.insert(known.tid, known.pid);
            let (word, bit) = place(known.tid);
            self.asked[word] |= 1 << bit;
        }
        if self.pending.is_empty() {
            return;
        }
        let mut name = |party: &mut Party| {
            let (word, bit) = place(party.tid);
            if self.asked[word] >> bit & 1 != 0
                && let Some(pid) = self.pending.remove(&party.tid)
            {
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

/// Of a thread's bit in `asked`: word and bit.
fn place(tid: u32) -> (usize, u32) {
    ((tid >> 6 & 63) as usize, tid & 63)
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

/// `known`: on which clock the events are.
fn about(scan: &Scan, known: bool) -> String {
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
        "clock": known.then(|| json!({
            "name": "boot",
            "pairs": pairs,
            // Add it to a CLOCK_MONOTONIC time (perf -k, ftrace's mono) to get ours.
            "from_mono": scan.clocks.to_boot(clocks::MONOTONIC),
        })),
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
