//! Captures of the bpftrace recorder: the lines of collectors/linux/sched.bt.

mod by_cpu;
mod line;
mod sorted;
mod whole_lines;

use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use by_cpu::Reader;
use line::{Fields, Start, events};
use sorted::{Gap, Sorted, sort_out};

use crate::Options;
use crate::capture_folder::{self, CaptureFolder};
use crate::error::{Error, Result};
use crate::ftrace::states::StateTable;
use crate::input::Input;
use crate::merge::{Head, Stream, merge};
use crate::model::event::{
    Event, EventSink, LossReason, Party, Source, SourceEnd, SourceInfo, State, UNKNOWN_TID,
};

/// Lines between two reports of progress.
const REPORT: u64 = 1 << 16;
/// Window of one CPU's lines.
const WINDOW: usize = 1 << 14;

pub fn recognise(path: &Path, _: &[u8]) -> bool {
    path.is_dir() && capture_folder::recorder(path).as_deref() == Some("bpftrace")
}

pub fn open(path: &Path, _: &Options) -> Result<Box<dyn Source>> {
    let folder = CaptureFolder::open(path)?;
    let mut info = folder.info()?;
    info.has_waking = true;
    info.has_enqueued = true;
    let lines = path.join("events.txt");
    info.unfinished |= !has_end(&Input::open(&lines)?)?;
    let release = folder.text(&["release"]).unwrap_or_default();
    Ok(Box::new(Bpftrace {
        lines,
        sorted: None,
        states: StateTable::for_release(release),
        info,
    }))
}

/// Does the file end with the lines of a recording that was ended? Behind `#end`
/// come two lines for each CPU.
fn has_end(input: &Input) -> Result<bool> {
    const TAIL: u64 = 1 << 20;
    let begin = input.len().saturating_sub(TAIL);
    let mut tail = vec![0; (input.len() - begin) as usize];
    let got = input.read_at(&mut tail, begin)?;
    Ok(tail[..got]
        .split(|&byte| byte == b'\n')
        .any(|line| line.starts_with(b"#end ")))
}

struct Bpftrace {
    lines: PathBuf,
    /// What the first pass made of the lines.
    sorted: Option<Sorted>,
    states: StateTable,
    info: SourceInfo,
}

/// What the streams have in common.
struct Shared<'a> {
    states: &'a StateTable,
    recorder_tid: u32,
    /// Event lines by CPU and letter (`letter - 'A'`).
    seen: Vec<[u64; 26]>,
    /// Lines that begin like events and are none.
    malformed: u64,
    lines: u64,
    done: u64,
    total: u64,
    /// Nothing earlier or later is reported.
    told: RangeInclusive<i64>,
}

enum Kind {
    /// Event lines.
    Lines(Option<Start>),
    /// Switches that have no line of their own.
    Hidden(Option<(i64, u32, i16)>),
    /// Holes in the numbers, in order of their start.
    Gaps(std::vec::IntoIter<Gap>),
}

/// One CPU's lines, or hidden switches, or the gaps of all.
struct LineStream {
    cpu: u16,
    reader: Option<BufReader<Reader>>,
    line: Vec<u8>,
    kind: Kind,
}

impl LineStream {
    fn new(cpu: u16, lines: Option<(Reader, u64)>, kind: Kind) -> Result<Self> {
        let mut stream = Self {
            cpu,
            reader: None,
            line: Vec::new(),
            kind,
        };
        if let Some((lines, size)) = lines {
            let window = usize::try_from(size).unwrap_or(WINDOW).min(WINDOW);
            stream.reader = Some(BufReader::with_capacity(window, lines));
            stream.advance()?;
        }
        Ok(stream)
    }

    fn advance(&mut self) -> Result<()> {
        let Some(reader) = &mut self.reader else {
            return Ok(());
        };
        self.line.clear();
        reader
            .read_until(b'\n', &mut self.line)
            .map_err(|error| Error::io("read sorted lines", &error))?;
        self.line.pop();
        let mut fields = Fields(&self.line);
        match &mut self.kind {
            Kind::Lines(start) => *start = Start::read(&mut fields),
            Kind::Hidden(hidden) => {
                *hidden = (|| Some((fields.int()?, fields.small()?, fields.small()?)))();
            }
            Kind::Gaps(_) => {}
        }
        Ok(())
    }
}

impl<'a> Shared<'a> {
    fn line(&mut self, start: &Start, line: &[u8], sink: &mut dyn EventSink) -> Result<()> {
        let mut fields = Fields(line);
        let read = Start::read(&mut fields).and_then(|_| events(start, &mut fields, self.states));
        match read {
            Some(told) => {
                self.seen[usize::from(start.cpu)][usize::from(start.letter - b'A')] += 1;
                for event in told.iter().flatten() {
                    sink.event(event)?;
                }
            }
            None => self.malformed += 1,
        }
        Ok(())
    }
}

/// Gives streams with a borrowed `Shared` the owned type that `merge` wants.
struct Merged<'a>(std::marker::PhantomData<&'a ()>, LineStream);

impl<'a> Stream for Merged<'a> {
    type Shared = Shared<'a>;

    fn head(&self) -> Option<Head> {
        match &self.1.kind {
            Kind::Lines(start) => start.map(|start| Head {
                ts: start.ts,
                rank: start.rank(),
            }),
            Kind::Hidden(hidden) => hidden.map(|(ts, ..)| Head { ts, rank: 0 }),
            // After all events of the last instant before the gap.
            Kind::Gaps(gaps) => gaps.as_slice().first().map(|gap| Head {
                ts: gap.ts_begin,
                rank: 9,
            }),
        }
    }

    fn pop(&mut self, shared: &mut Shared<'a>, sink: &mut dyn EventSink) -> Result<()> {
        let head = self.head();
        let told = head.is_none_or(|head| shared.told.contains(&head.ts));
        let stream = &mut self.1;
        shared.lines += 1;
        shared.done += stream.line.len() as u64 + 1;
        if shared.lines.is_multiple_of(REPORT) {
            sink.progress((shared.total + shared.done) / 2, shared.total)?;
        }
        if !told {
            return stream.advance();
        }
        match &mut stream.kind {
            Kind::Lines(Some(start)) => {
                let start = *start;
                shared.line(&start, &stream.line, sink)?;
            }
            Kind::Hidden(Some((ts, tid, prio))) => {
                let next = if *tid == UNKNOWN_TID {
                    Party::unknown()
                } else {
                    Party {
                        tid: *tid,
                        prio: Some(*prio),
                        ..Party::default()
                    }
                };
                sink.event(&Event::Switch {
                    ts: *ts,
                    cpu: stream.cpu,
                    prev: Party {
                        tid: shared.recorder_tid,
                        ..Party::default()
                    },
                    prev_state: State::Sleeping,
                    preempted: Some(false),
                    next,
                })?;
            }
            Kind::Gaps(gaps) => {
                if let Some(gap) = gaps.next() {
                    sink.event(&Event::Loss {
                        cpu: Some(gap.cpu),
                        ts_begin: gap.ts_begin,
                        ts_end: gap.ts_end,
                        count: Some(gap.count),
                        reason: LossReason::Overrun,
                    })?;
                }
            }
            Kind::Lines(None) | Kind::Hidden(None) => {}
        }
        stream.advance()
    }
}

impl Source for Bpftrace {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn run(&mut self, sink: &mut dyn EventSink) -> Result<SourceEnd> {
        if self.sorted.is_none() {
            let mut sorted = sort_out(&self.lines, self.info.ncpu, self.info.window, sink)?;
            sorted.gaps.sort_by_key(|gap| gap.ts_begin);
            self.sorted = Some(sorted);
        }
        let this = &*self;
        let Some(sorted) = &this.sorted else {
            return Ok(SourceEnd::default());
        };
        let mut streams = Vec::new();
        let mut total = 0;
        for (cpu, lines, size) in sorted.lines.clone() {
            total += size;
            let kind = Kind::Lines(None);
            streams.push(LineStream::new(cpu, Some((lines, size)), kind)?);
        }
        for (cpu, lines, size) in sorted.hidden.clone() {
            let kind = Kind::Hidden(None);
            streams.push(LineStream::new(cpu, Some((lines, size)), kind)?);
        }
        // At one time the lower CPU comes first, and of one CPU its lines.
        streams.sort_by_key(|stream| stream.cpu);
        let gaps = Kind::Gaps(sorted.gaps.clone().into_iter());
        streams.push(LineStream::new(0, None, gaps)?);
        let mut shared = Shared {
            states: &this.states,
            recorder_tid: sorted.recorder_tid.unwrap_or(UNKNOWN_TID),
            seen: vec![[0; 26]; usize::from(this.info.ncpu)],
            malformed: sorted.malformed,
            lines: 0,
            done: 0,
            total,
            told: sorted.from.unwrap_or(i64::MIN)..=sorted.until.unwrap_or(i64::MAX),
        };
        let mut merged: Vec<Merged<'_>> = streams
            .into_iter()
            .map(|stream| Merged(std::marker::PhantomData, stream))
            .collect();
        merge(&mut merged, &mut shared, sink)?;
        Ok(this.end(sorted, &shared))
    }
}

impl Bpftrace {
    fn end(&self, sorted: &Sorted, shared: &Shared<'_>) -> SourceEnd {
        let mut end = SourceEnd::default();
        for (cpu, letters) in shared.seen.iter().enumerate() {
            for (index, &count) in letters.iter().enumerate().filter(|&(_, &count)| count > 0) {
                let name = Start::event_name(b'A' + index as u8);
                end.counts.push((name.to_string(), cpu as u16, count));
            }
        }
        let name = self.lines.display();
        if shared.malformed > 0 {
            end.warnings.push(format!(
                "{name}: {} lines are not from the script, the first is line {}",
                shared.malformed,
                sorted.first_malformed.max(1)
            ));
            end.unplaced_losses
                .push((None, shared.malformed, LossReason::Truncated));
        }
        if sorted.torn {
            end.warnings
                .push(format!("{name} ends inside a line: the file was cut"));
            end.unplaced_losses.push((None, 1, LossReason::Truncated));
        }
        if sorted.end.is_none() {
            end.warnings.push(format!(
                "{name} has no #end line: bpftrace was killed or the file was cut, and what was in \
                 its buffers is missing"
            ));
        }
        let counts = sorted.gaps.iter().map(|gap| gap.count);
        let lost = counts.fold(0, u64::saturating_add);
        if lost > 0 {
            end.warnings.push(format!(
                "{lost} lines did not arrive, in {} gaps: record again with larger buffers (-b)",
                sorted.gaps.len()
            ));
        }
        end
    }
}
