//! One run of lines as a stream of events, read through a bounded window.

use std::sync::Arc;

use super::compact::{Names, Words};
use super::freebsd::FreeBsd;
use super::line::{Fields, LONGEST, is_letter, newline};
use super::linux::Linux;
use super::scan::{Run, stamp};
use crate::error::Result;
use crate::input::Input;
use crate::merge::{Head, Stream};
use crate::model::event::EventSink;

/// Lines between two reports of progress.
const REPORT: u64 = 1 << 16;

/// Who knows what the lines mean.
pub enum Reader {
    FreeBsd(FreeBsd),
    Linux(Linux),
}

/// What the runs of a file have in common.
pub struct Shared {
    pub input: Arc<Input>,
    pub reader: Reader,
    /// What the times of version 2 count from, and what its lines have named; None: version 1.
    pub base: Option<i64>,
    pub names: Names,
    pub ncpu: u16,
    /// Bytes of window per run.
    pub window: usize,
    /// Event lines by CPU and letter (`letter - 'A'`).
    pub seen: Vec<[u64; 26]>,
    /// Lines that begin like events and are none.
    pub malformed: u64,
    pub first_malformed: Option<u64>,
    /// The last line of each CPU, by which one that is in the file twice is known.
    pub last: Vec<LastLine>,
    /// Lines that are in the file twice.
    pub repeated: u64,
    pub lines: u64,
    pub done: u64,
}

/// A CPU's last line: DTrace writes none a second time, nor another at its nanosecond.
#[derive(Default, Clone)]
pub struct LastLine {
    ts: i64,
    text: Vec<u8>,
    /// It came twice.
    twice: bool,
    /// The line before it came twice.
    before_twice: bool,
}

impl LastLine {
    /// Whether `text`, a line with the timestamp `ts`, repeats that one.
    ///
    /// Two lines with a load may be equal: of two changes in a nanosecond the second reverts the
    /// first. They are one line only if the line before was repeated, too.
    #[inline]
    fn repeats(&mut self, ts: i64, text: &[u8], tells_load: bool) -> bool {
        if ts == self.ts && text == self.text {
            self.twice = !tells_load || self.before_twice;
            return self.twice;
        }
        self.ts = ts;
        self.text.clear();
        self.text.extend_from_slice(text);
        self.before_twice = std::mem::take(&mut self.twice);
        false
    }
}

/// The line at the head, its first fields read.
#[derive(Clone, Copy)]
struct Line {
    letter: u8,
    ts: i64,
    cpu: u16,
    /// Where it starts, and where its fields go on behind the CPU.
    start: usize,
    fields: usize,
}

pub struct RunStream {
    run: Run,
    buffer: Vec<u8>,
    /// Bytes of the buffer in use, and the file position behind them.
    filled: usize,
    behind: u64,
    /// Where the next line starts in the buffer.
    at: usize,
    line: Option<Line>,
    opened: bool,
}

/// Order of events at one nanosecond on different CPUs.
fn rank(letter: u8) -> u8 {
    match letter {
        b'S' | b'R' => 0,
        b'E' | b'W' => 1,
        b'M' | b'D' => 2,
        _ => 3,
    }
}

impl RunStream {
    pub fn new(run: Run) -> Self {
        Self {
            run,
            buffer: Vec::new(),
            filled: 0,
            behind: run.begin,
            at: 0,
            line: None,
            opened: false,
        }
    }

    /// Moves what is left to the front and reads more behind it.
    fn fill(&mut self, shared: &Shared) -> Result<()> {
        if self.buffer.is_empty() {
            // Where time jumps back at every line there are as many runs as lines.
            let length = usize::try_from(self.run.end - self.run.begin).unwrap_or(usize::MAX);
            self.buffer = vec![0; length.min(shared.window)];
        }
        self.buffer.copy_within(self.at..self.filled, 0);
        self.filled -= self.at;
        self.at = 0;
        let room = (self.buffer.len() - self.filled) as u64;
        let wanted = room.min(self.run.end - self.behind) as usize;
        let got = shared.input.read_at(
            &mut self.buffer[self.filled..self.filled + wanted],
            self.behind,
        )?;
        if got < wanted {
            return Err(shared
                .input
                .ends_early(self.behind, wanted as u64, "a run of lines"));
        }
        self.filled += got;
        self.behind += got as u64;
        Ok(())
    }

    /// Finds the next event line.
    fn advance(&mut self, shared: &mut Shared) -> Result<()> {
        self.line = None;
        loop {
            // A whole line is in the window, or all that is left of the run.
            if self.filled - self.at < LONGEST && self.behind < self.run.end {
                self.fill(shared)?;
            }
            let bytes = &self.buffer[..self.filled];
            let start = self.at;
            if start >= bytes.len() {
                self.buffer = Vec::new();
                self.filled = 0;
                self.at = 0;
                return Ok(());
            }
            let separator = if shared.base.is_some() { b' ' } else { b'\t' };
            if bytes.len() - start > 2
                && bytes[start + 1] == separator
                && is_letter(bytes[start])
                && (!matches!(bytes[start], b'N' | b'V') || shared.base.is_some())
            {
                if let Some((ts, cpu, fields)) = stamp(bytes, start, shared.base)
                    && cpu < shared.ncpu
                {
                    self.line = Some(Line {
                        letter: bytes[start],
                        ts,
                        cpu,
                        start,
                        fields,
                    });
                    return Ok(());
                }
                self.spoilt(start, shared);
                continue;
            }
            self.skip(start);
        }
    }

    /// Goes on behind the newline after `start`, or behind all there is.
    fn skip(&mut self, start: usize) {
        let bytes = &self.buffer[..self.filled];
        self.at = newline(bytes, start).map_or(self.filled, |end| end + 1);
    }

    fn spoilt(&mut self, start: usize, shared: &mut Shared) {
        let position = self.behind - (self.filled - start) as u64;
        shared.malformed += 1;
        shared.first_malformed = Some(shared.first_malformed.map_or(position, |p| p.min(position)));
        self.skip(start);
    }
}

impl Stream for RunStream {
    type Shared = Shared;

    fn head(&self) -> Option<Head> {
        if !self.opened {
            // The scan knows where a run begins: nothing is read yet.
            return Some(Head {
                ts: self.run.ts,
                rank: rank(self.run.letter),
            });
        }
        self.line.map(|line| Head {
            ts: line.ts,
            rank: rank(line.letter),
        })
    }

    fn pop(&mut self, shared: &mut Shared, sink: &mut dyn EventSink) -> Result<()> {
        if !self.opened {
            let scanned = self.head();
            self.opened = true;
            self.advance(shared)?;
            if self.head() != scanned {
                // Its first line is none after all: the next one has its own place.
                return Ok(());
            }
        }
        let Some(line) = self.line else { return Ok(()) };
        let bytes = &self.buffer[..self.filled];
        let end = newline(bytes, line.start).unwrap_or(self.filled);
        let text = &bytes[line.start..end];
        if shared.last[usize::from(line.cpu)].repeats(line.ts, text, line.letter == b'L') {
            shared.repeated += 1;
            self.skip(line.start);
            return self.advance(shared);
        }
        let Line {
            letter,
            ts,
            cpu,
            start,
            ..
        } = line;
        let (known, behind) = if shared.base.is_some() {
            let mut words = Words::new(bytes, line.fields);
            let (at, names) = ((ts, cpu), &mut shared.names);
            let known = match &mut shared.reader {
                Reader::FreeBsd(reader) => reader.compact(letter, at, &mut words, names, sink)?,
                Reader::Linux(reader) => reader.compact(letter, at, &mut words, names, sink)?,
            };
            (known, words.position())
        } else {
            let mut fields = Fields::new(bytes, line.fields);
            let known = match &mut shared.reader {
                Reader::FreeBsd(reader) => reader.line(letter, ts, cpu, &mut fields, sink)?,
                Reader::Linux(reader) => reader.line(letter, ts, cpu, &mut fields, sink)?,
            };
            (known, fields.position())
        };
        if known {
            self.at = behind;
            shared.done += (self.at - start) as u64;
            shared.seen[usize::from(cpu)][usize::from(letter - b'A')] += 1;
        } else {
            self.spoilt(start, shared);
        }
        shared.lines += 1;
        if shared.lines.is_multiple_of(REPORT) {
            sink.progress(shared.done, shared.input.len())?;
        }
        self.advance(shared)
    }
}
