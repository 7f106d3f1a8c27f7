//! CPUs without events while others put threads on their queues: holes that no recorder reports
//! (docs/trace-model.md, Losses).
//!
//! A first pass notes which CPUs name which others; the real one then sends each hole as a loss at
//! its start. A CPU that no event names may have no events: it is idle.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::chores::Chores;
use crate::error::{Error, Result};
use crate::hooks::check_interrupt;
use crate::input::make_room_for_files;
use crate::model::event::{
    Event, EventSink, Extent, LossReason, Source, SourceEnd, SourceInfo, UNKNOWN_TID, WakeKind,
};
use crate::{Options, ahead};

/// A CPU that was handed a thread shows a line within this time, unless its
/// lines are missing: an idle one switches at once, a busy one at one of its
/// next ticks.
const PATIENCE: i64 = 20_000_000;

/// The most CPUs a kernel can be built for; a higher number is damage.
pub const MAX_CPUS: u16 = 8192;

/// Events at the beginning that are asked whether the source's count of CPUs can be right.
const FIRST_LOOK: u32 = 1 << 16;

/// So many of them name a CPU beyond that count, and it is the count that is wrong: a damaged
/// number comes alone.
const BEYOND: u32 = 2;

/// Threads handed to one CPU that are remembered until it shows a line.
const REMEMBERED: usize = 32;

/// `source` with the holes of silent CPUs among its losses, and with the CPUs that only its events
/// name. Where a filter excluded threads, only the selected ones count.
pub fn covered(mut source: Box<dyn Source>, options: &Options) -> Result<Box<dyn Source>> {
    let info = source.info().clone();
    if info.ncpu > MAX_CPUS {
        return Err(Error::format(
            format!("a CPU with the number {}", info.ncpu - 1),
            format!("numbers below {MAX_CPUS}"),
            "the file is damaged: copy or record it again",
        ));
    }
    make_room_for_files(usize::from(info.ncpu));
    let mut survey = Survey {
        jobs: options.jobs,
        chosen: options.chosen.clone(),
        ..Survey::new(&info)
    };
    if info.counts_cpus && FirstLook::finds_more(&info, &mut *source)? {
        survey.limit = MAX_CPUS;
        survey.pass(&mut *source, None, i64::MAX)?;
        return Ok(survey.covering(source, info));
    }
    match source.extents()? {
        Some(extents) => survey.ask(&extents, &mut *source)?,
        None => survey.pass(&mut *source, None, i64::MAX)?,
    }
    Ok(survey.covering(source, info))
}

/// Does a CPU beyond the source's own count wake, take or give threads?
struct FirstLook {
    ncpu: u16,
    /// By CPU beyond the count: events that name it.
    beyond: FxHashMap<u16, u32>,
    left: u32,
}

impl FirstLook {
    fn finds_more(info: &SourceInfo, source: &mut dyn Source) -> Result<bool> {
        let mut look = Self {
            ncpu: info.ncpu,
            beyond: FxHashMap::default(),
            left: FIRST_LOOK,
        };
        match source.run(&mut look) {
            Err(_) if look.left == 0 => {}
            read => drop(read?),
        }
        Ok(look.beyond.values().any(|&events| events >= BEYOND))
    }
}

impl EventSink for FirstLook {
    fn event(&mut self, event: &Event) -> Result<()> {
        if self.left == 0 {
            return Err(Error::usage("enough was read", "", ""));
        }
        self.left -= 1;
        let named = match *event {
            Event::Wakeup { target_cpu, .. } => [target_cpu, None],
            Event::Migrate {
                from_cpu, to_cpu, ..
            } => [from_cpu, to_cpu],
            _ => [None, None],
        };
        for cpu in named.into_iter().flatten() {
            if (self.ncpu..MAX_CPUS).contains(&cpu) {
                *self.beyond.entry(cpu).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Ctrl-C ends the look, where Python runs us.
    fn progress(&mut self, _: u64, _: u64) -> Result<()> {
        check_interrupt()
    }
}

/// `source` with these holes among its losses; they are in order of their starts.
pub(super) fn with_holes(source: Box<dyn Source>, holes: Vec<Hole>) -> Box<dyn Source> {
    let info = source.info().clone();
    Box::new(Covered {
        source,
        info,
        holes,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hole {
    pub cpu: u16,
    pub begin: i64,
    pub end: i64,
    pub reason: LossReason,
}

#[derive(Debug, Clone, Default)]
struct Cpu {
    /// Of its lines, as far as known.
    first: Option<i64>,
    last: Option<i64>,
    /// A line of it was passed.
    begun: bool,
    /// No check is needed: its lines reach from the beginning to the end.
    whole: bool,
    /// Threads that others handed to it since its last line, and when.
    given: Vec<(u32, i64)>,
    /// Lines of it must be missing since its last one.
    proof: bool,
    /// It was in a hole when its first line came.
    late: bool,
    /// Losses that the source itself reports.
    told: Vec<(i64, i64)>,
}

impl Cpu {
    /// Must lines be missing that came before `ts`?
    fn hides(&self, ts: i64) -> bool {
        let waited = |&(_, given): &(u32, i64)| ts.saturating_sub(given) > PATIENCE;
        self.proof || self.given.iter().any(waited)
    }

    fn is_told(&self, begin: i64, end: i64) -> bool {
        self.told.iter().any(|&(b, e)| b <= begin && end <= e)
    }
}

struct Survey {
    cpus: Vec<Cpu>,
    /// One more than the highest CPU of any field.
    named: u16,
    /// CPUs beyond this are damage: the source knows how many there are.
    limit: u16,
    linux: bool,
    has_waking: bool,
    /// Moves are recorded: at least one was.
    moves: bool,
    /// Of threads handed to CPUs: the CPU, and whether a wakeup did it.
    placed: FxHashMap<u32, (u16, bool)>,
    /// The thread last woken by a line of each CPU.
    woken_by: Vec<u32>,
    unfinished: bool,
    window: (Option<i64>, Option<i64>),
    first: i64,
    last: i64,
    /// Times of the first and last lines of CPUs without events at the start or the end: these may
    /// name no thread, or one that is not on the CPU.
    edges: VecDeque<(i64, u16)>,
    /// What is later is of no interest.
    until: i64,
    done: bool,
    /// Threads that read.
    jobs: usize,
    /// Tids of threads whose switches are missing nowhere, if not all.
    chosen: Option<Arc<FxHashSet<u32>>>,
}

impl Survey {
    fn new(info: &SourceInfo) -> Self {
        Self {
            cpus: vec![Cpu::default(); usize::from(info.ncpu)],
            named: 0,
            limit: if info.counts_cpus {
                info.ncpu
            } else {
                MAX_CPUS
            },
            linux: info.linux_priorities,
            has_waking: info.has_waking,
            moves: false,
            placed: FxHashMap::default(),
            woken_by: Vec::new(),
            unfinished: info.unfinished,
            window: info.window,
            first: i64::MAX,
            last: i64::MIN,
            edges: VecDeque::new(),
            until: i64::MAX,
            done: false,
            jobs: 1,
            chosen: None,
        }
    }

    /// Looks at those parts of the trace in which some CPU is silent.
    fn ask(&mut self, extents: &[Extent], source: &mut dyn Source) -> Result<()> {
        for extent in extents {
            self.first = self.first.min(extent.first);
            self.last = self.last.max(extent.last);
            let cpu = self.cpu(extent.cpu);
            (cpu.first, cpu.last) = (Some(extent.first), Some(extent.last));
        }
        if extents.is_empty() {
            return Ok(());
        }
        let (begin, end) = self.window();
        let (mut late, mut early, mut absent) = (None::<i64>, None::<i64>, false);
        for cpu in &mut self.cpus {
            let (Some(first), Some(last)) = (cpu.first, cpu.last) else {
                absent = true;
                continue;
            };
            let is_late = first.saturating_sub(begin) > PATIENCE;
            let is_early = end.saturating_sub(last) > PATIENCE;
            if is_late {
                late = late.max(Some(first));
            }
            if is_early {
                early = Some(early.map_or(last, |early| early.min(last)));
            }
            cpu.whole = !is_late && !is_early;
        }
        let edges = self.edges();
        self.edges = edges.clone();
        if absent {
            return self.pass(source, None, i64::MAX);
        }
        if late.is_some() {
            self.pass(source, None, late.unwrap_or(i64::MAX))?;
        }
        if early.is_some() {
            for cpu in &mut self.cpus {
                cpu.begun = true;
                cpu.given.clear();
                cpu.proof = false;
            }
            self.placed.clear();
            self.edges = edges;
            self.pass(source, early, i64::MAX)?;
        }
        Ok(())
    }

    fn edges(&self) -> VecDeque<(i64, u16)> {
        let silent = (0u16..).zip(&self.cpus).filter(|(_, cpu)| !cpu.whole);
        let ends = silent.flat_map(|(number, cpu)| [(cpu.first, number), (cpu.last, number)]);
        let mut edges: Vec<_> = ends.filter_map(|(ts, cpu)| Some((ts?, cpu))).collect();
        edges.sort_unstable();
        edges.into()
    }

    /// The lines up to `ts` of which it is known only that they are there.
    #[inline]
    fn reach(&mut self, ts: i64) {
        while let Some(&(edge, cpu)) = self.edges.front()
            && edge <= ts
        {
            self.edges.pop_front();
            self.line(cpu, edge);
        }
    }

    /// Reads the source from `from` to `until`.
    fn pass(&mut self, source: &mut dyn Source, from: Option<i64>, until: i64) -> Result<()> {
        self.until = until;
        self.done = false;
        self.edges
            .retain(|&(edge, _)| from.is_none_or(|from| edge >= from));
        match ahead::run_from(source, from, self, self.jobs, &Arc::default()) {
            Err(_) if self.done => {}
            read => drop(read?),
        }
        self.reach(until);
        Ok(())
    }

    /// `source` with what was found of it.
    fn covering(&self, source: Box<dyn Source>, info: SourceInfo) -> Box<dyn Source> {
        let ncpu = info.ncpu.max(self.named);
        let holes = self.holes();
        if holes.is_empty() && ncpu == info.ncpu {
            return source;
        }
        Box::new(Covered {
            source,
            info: SourceInfo { ncpu, ..info },
            holes,
        })
    }

    fn window(&self) -> (i64, i64) {
        let begin = self.window.0.map_or(self.first, |ts| ts.min(self.first));
        let end = self.window.1.map_or(self.last, |ts| ts.max(self.last));
        (begin, end)
    }

    /// What was found, in the order in which it is to be sent.
    fn holes(&self) -> Vec<Hole> {
        let (begin, end) = self.window();
        let mut holes = Vec::new();
        for (number, cpu) in (0u16..).zip(&self.cpus) {
            let mut hole = |begin, end, reason| {
                if begin < end && !cpu.is_told(begin, end) {
                    holes.push(Hole {
                        cpu: number,
                        begin,
                        end,
                        reason,
                    });
                }
            };
            match (cpu.first, cpu.last) {
                (Some(first), Some(last)) => {
                    if cpu.late {
                        hole(begin, first, LossReason::LateStart);
                    }
                    if self.unfinished || cpu.hides(end) {
                        hole(last, end, LossReason::EarlyEnd);
                    }
                }
                _ if self.unfinished => hole(begin, end, LossReason::Absent),
                _ if cpu.proof || !cpu.given.is_empty() => {
                    hole(begin, end, LossReason::Unrecorded);
                }
                _ => {}
            }
        }
        holes.sort_by_key(|hole| (hole.begin, hole.cpu));
        holes
    }

    fn cpu(&mut self, cpu: u16) -> &mut Cpu {
        let index = usize::from(cpu);
        if index >= self.cpus.len() {
            self.cpus.resize(index + 1, Cpu::default());
        }
        &mut self.cpus[index]
    }

    fn name(&mut self, cpu: Option<u16>) {
        if let Some(cpu) = cpu.filter(|&cpu| cpu < self.limit) {
            self.named = self.named.max(cpu + 1);
        }
    }

    /// A line of `cpu`.
    fn line(&mut self, cpu: u16, ts: i64) {
        if cpu >= MAX_CPUS {
            return;
        }
        self.name(Some(cpu));
        let cpu = self.cpu(cpu);
        if !cpu.begun {
            cpu.begun = true;
            cpu.late = cpu.hides(ts);
            cpu.first = Some(cpu.first.map_or(ts, |first| first.min(ts)));
        }
        cpu.last = Some(cpu.last.map_or(ts, |last| last.max(ts)));
        cpu.given.clear();
        cpu.proof = false;
    }

    /// A line of CPU `by` hands the thread to CPU `to`.
    fn give(&mut self, tid: u32, by: u16, to: Option<u16>, ts: i64, woken: bool) {
        let Some(to) = to.filter(|&to| to != by && to < self.limit) else {
            return;
        };
        if self
            .chosen
            .as_ref()
            .is_some_and(|chosen| !chosen.contains(&tid))
        {
            return;
        }
        let cpu = self.cpu(to);
        if cpu.whole || cpu.given.len() >= REMEMBERED {
            return;
        }
        if cpu.given.iter().all(|&(known, _)| known != tid) {
            cpu.given.push((tid, ts));
        }
        self.placed.insert(tid, (to, woken));
    }

    /// The CPU that the thread was handed to and that is silent since.
    fn waits_on(&self, tid: u32) -> Option<(u16, bool)> {
        let &(cpu, woken) = self.placed.get(&tid)?;
        let given = &self.cpus[usize::from(cpu)].given;
        given
            .iter()
            .any(|&(known, _)| known == tid)
            .then_some((cpu, woken))
    }

    /// The thread is not where it was handed to any more.
    fn leave(&mut self, tid: u32, proof: bool) {
        if let Some((cpu, _)) = self.waits_on(tid) {
            let cpu = &mut self.cpus[usize::from(cpu)];
            cpu.proof |= proof;
            if !proof {
                cpu.given.retain(|&(known, _)| known != tid);
            }
        }
        self.placed.remove(&tid);
    }

    /// The thread runs on `cpu`. Without a move, it went through the CPU that it
    /// was handed to; where moves are not recorded, it need not have.
    fn runs(&mut self, tid: u32, cpu: u16) {
        if tid == 0 || tid == UNKNOWN_TID || self.placed.is_empty() {
            return;
        }
        if self.waits_on(tid).is_some_and(|(at, _)| at != cpu) {
            self.leave(tid, self.linux && self.moves);
        }
    }
}

impl EventSink for Survey {
    fn event(&mut self, event: &Event) -> Result<()> {
        let ts = event.ts();
        if ts > self.until {
            self.done = true;
            return Err(Error::usage("enough was read", "", ""));
        }
        self.reach(ts);
        match *event {
            Event::Switch {
                cpu,
                ref prev,
                ref next,
                ..
            } => {
                self.line(cpu, ts);
                self.runs(prev.tid, cpu);
                self.runs(next.tid, cpu);
            }
            Event::Wakeup {
                cpu,
                kind,
                current,
                ref who,
                target_cpu,
                ..
            } => {
                self.line(cpu, ts);
                self.name(target_cpu);
                if let Some(current) = current {
                    self.runs(current, cpu);
                }
                // Linux wakes only sleeping threads: it has run since it was put on that queue.
                let again = match kind {
                    WakeKind::Waking => self.waits_on(who.tid).is_some(),
                    _ if self.has_waking => false,
                    _ => self.waits_on(who.tid).is_some_and(|(_, woken)| woken),
                };
                if again {
                    self.leave(who.tid, self.linux);
                }
                if kind == WakeKind::Waking {
                    let index = usize::from(cpu);
                    if index >= self.woken_by.len() {
                        self.woken_by.resize(index + 1, UNKNOWN_TID);
                    }
                    self.woken_by[index] = who.tid;
                } else {
                    self.give(who.tid, cpu, target_cpu, ts, true);
                }
            }
            Event::Migrate {
                cpu,
                ref who,
                from_cpu,
                to_cpu,
                ..
            } => {
                self.line(cpu, ts);
                self.name(from_cpu);
                self.name(to_cpu);
                // A filter leaves out moves that others make.
                self.moves = self.chosen.is_none();
                let woken = self.woken_by.get(usize::from(cpu)) == Some(&who.tid);
                match self.waits_on(who.tid) {
                    Some((at, _)) if from_cpu.is_none_or(|from| from == at) => {
                        self.leave(who.tid, false);
                    }
                    Some(_) => self.leave(who.tid, self.linux && self.moves),
                    // Taken off that CPU's queue, which was not empty then. Of a
                    // sleeper, it is only where that ran last.
                    None if self.has_waking && !woken => {
                        self.give(who.tid, cpu, from_cpu, ts, false);
                    }
                    None => {}
                }
                self.give(who.tid, cpu, to_cpu, ts, false);
            }
            Event::Loss {
                cpu,
                ts_begin,
                ts_end,
                ..
            } => {
                match cpu {
                    Some(cpu) if cpu < MAX_CPUS => self.cpu(cpu).told.push((ts_begin, ts_end)),
                    Some(_) => {}
                    None => {
                        for cpu in &mut self.cpus {
                            cpu.told.push((ts_begin, ts_end));
                        }
                    }
                }
                self.last = self.last.max(ts_end);
            }
            _ => {
                if let Some(cpu) = event.recorded_on() {
                    self.line(cpu, ts);
                }
            }
        }
        self.first = self.first.min(ts);
        self.last = self.last.max(ts);
        Ok(())
    }

    /// Ctrl-C ends the pass, where Python runs us.
    fn progress(&mut self, _: u64, _: u64) -> Result<()> {
        check_interrupt()
    }
}

/// A source with holes added.
struct Covered {
    source: Box<dyn Source>,
    info: SourceInfo,
    holes: Vec<Hole>,
}

impl Source for Covered {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn run(&mut self, sink: &mut dyn EventSink) -> Result<SourceEnd> {
        let mut marking = Marking {
            sink,
            holes: self.holes.clone().into_iter().peekable(),
        };
        let end = self.source.run(&mut marking)?;
        marking.mark(i64::MAX)?;
        Ok(end)
    }

    fn helped_by(&mut self, chores: &Arc<Chores>) {
        self.source.helped_by(chores);
    }
}

/// Sends each hole when its start is reached.
struct Marking<'a> {
    sink: &'a mut dyn EventSink,
    holes: std::iter::Peekable<std::vec::IntoIter<Hole>>,
}

impl Marking<'_> {
    /// Holes ahead of an event at `ts`. One that begins with the window comes
    /// first of all; what happened when another begins was still seen.
    #[inline]
    fn mark(&mut self, ts: i64) -> Result<()> {
        while let Some(hole) = self.holes.next_if(|hole| match hole.reason {
            LossReason::LateStart | LossReason::Absent | LossReason::Unrecorded => hole.begin <= ts,
            _ => hole.begin < ts,
        }) {
            self.sink.event(&Event::Loss {
                cpu: Some(hole.cpu),
                ts_begin: hole.begin,
                ts_end: hole.end,
                count: None,
                reason: hole.reason,
            })?;
        }
        Ok(())
    }
}

impl EventSink for Marking<'_> {
    #[inline]
    fn event(&mut self, event: &Event) -> Result<()> {
        self.mark(event.ts())?;
        self.sink.event(event)
    }

    fn progress(&mut self, done: u64, total: u64) -> Result<()> {
        self.sink.progress(done, total)
    }
}
