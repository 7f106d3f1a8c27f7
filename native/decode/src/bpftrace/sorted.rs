//! The lines of a file, sorted out by CPU onto disk.
//!
//! bpftrace 0.17 drains one buffer per CPU after the other, so lines of two
//! CPUs may be any distance apart; lines of one CPU come in order. Writing each
//! CPU's lines to a file of its own takes two passes and a window per CPU,
//! whatever the order was.

use std::io::BufReader;
use std::path::Path;

use super::by_cpu::{Reader, Writer};
use super::line::{Fields, Start, since};
use super::whole_lines::{PIECE, WholeLines};
use crate::error::{Error, Result};
use crate::model::event::EventSink;
use crate::regular_file::open_regular;
use crate::{carriage_returns, rewritten};

/// The longest line the script can print is below 200 bytes.
const LONGEST: usize = 1024;
const HEADER: &[u8] = b"#schedscope bpftrace ";

/// A hole in the numbers of a CPU's lines.
#[derive(Debug, Clone, Copy)]
pub struct Gap {
    pub cpu: u16,
    pub ts_begin: i64,
    pub ts_end: i64,
    pub count: u64,
}

/// What one pass over the file finds.
#[derive(Default)]
pub struct Sorted {
    /// Event lines of each CPU that has some, in order, and their bytes.
    pub lines: Vec<(u16, Reader, u64)>,
    /// Hidden switches of each CPU that has some (`since`), in order, as lines
    /// `SINCE TID PRIO`.
    pub hidden: Vec<(u16, Reader, u64)>,
    pub gaps: Vec<Gap>,
    pub recorder_tid: Option<u32>,
    /// All probes are on from here (`#on`): what a few of them said before is no record of the
    /// host.
    pub from: Option<i64>,
    /// The recording's end, if its line arrived.
    pub end: Option<i64>,
    /// Last instant of which all lines of all CPUs arrived, if that is behind the window: what
    /// comes later is one CPU's story only.
    pub until: Option<i64>,
    /// A line without its end: the file was cut.
    pub torn: bool,
    /// Lines that are none of the script's, and the first one's number.
    pub malformed: u64,
    pub first_malformed: u64,
}

#[derive(Clone, Copy, Default)]
struct Last {
    seq: Option<u64>,
    /// Of its last line; before there is one, since ever.
    ts: i64,
    /// Its lines stand in order: what is earlier than the one before it is damaged.
    earliest: Option<i64>,
    /// The one before that one.
    before: Option<i64>,
    /// A line was earlier: which of the two is damaged is not known, and all is certain only up to
    /// the line before both.
    doubt: Option<i64>,
    since: i64,
    /// The recorder was switched in, and no line since has the time of its switch-out.
    recorder_in: Option<i64>,
}

impl Last {
    /// Where lines may be missing from, if they are behind its last line: the first of them may
    /// report the recorder's switch-out, which has no line of its own.
    fn certain(&self) -> i64 {
        self.recorder_in.map_or(self.ts, |ts| ts.min(self.ts))
    }
}

/// Sorts out `path`. `window`: when recording was known to be on.
pub fn sort_out(
    path: &Path,
    ncpu: u16,
    window: (Option<i64>, Option<i64>),
    sink: &mut dyn EventSink,
) -> Result<Sorted> {
    let doing = || format!("read {}", path.display());
    let file = open_regular(path)?;
    let total = file.metadata().map_or(0, |meta| meta.len());
    let mut reader = WholeLines::new(BufReader::with_capacity(1 << 18, file));
    let mut sorted = Sorted::default();
    let mut lines = Writer::new(ncpu)?;
    let mut hidden = Writer::new(ncpu)?;
    let mut last = vec![
        Last {
            ts: i64::MIN,
            ..Last::default()
        };
        usize::from(ncpu)
    ];
    let mut line = Vec::new();
    let (mut number, mut done) = (0u64, 0u64);
    // The earliest line: where nothing else says so, the trace begins there.
    let mut first = i64::MAX;
    loop {
        let read = reader
            .next(&mut line)
            .map_err(|error| Error::io(doing(), &error))?;
        if read == 0 {
            break;
        }
        number = reader.number;
        done += read;
        let ended = line.pop_if(|&mut byte| byte == b'\n').is_some();
        if number.is_multiple_of(1 << 16) || !ended {
            // The first of two passes.
            sink.progress(done / 2, total)?;
        }
        if number == 1
            && let Some(error) = rewritten(&path.display().to_string(), &line)
        {
            return Err(error);
        }
        if !ended && read < PIECE {
            sorted.torn = true;
            break;
        }
        if number == 1 {
            if line.ends_with(b"\r") {
                return Err(carriage_returns(&path.display().to_string()));
            }
            let (version, tid) = header(&line).ok_or_else(|| {
                Error::format(
                    format!("{}, line 1 is not the script's", path.display()),
                    "#schedscope bpftrace 2 tid=TID clock=mono",
                    "bpftrace may have failed at once: look at stderr.txt in the capture",
                )
            })?;
            reader.names_end_with_times = version > 1;
            sorted.recorder_tid = Some(tid);
            continue;
        }
        match line.first() {
            None => continue,
            Some(b'#' | b'@') => {
                note(&line, &mut sorted, window.1, &mut last, &mut hidden)?;
                continue;
            }
            Some(_) if is_told_loss(&line) => continue,
            Some(_) => {}
        }
        let mut fields = Fields(&line);
        let start =
            Start::read(&mut fields).filter(|start| start.cpu < ncpu && line.len() <= LONGEST);
        let start = start.filter(|start| {
            let last = &mut last[usize::from(start.cpu)];
            let ordered = last.earliest.is_none_or(|ts| ts <= start.ts);
            if ordered {
                last.before = Some(last.earliest.unwrap_or(i64::MIN));
                last.earliest = Some(start.ts);
            } else {
                last.doubt = last.doubt.or(last.before);
            }
            ordered
        });
        let Some(start) = start else {
            sorted.malformed += 1;
            if sorted.malformed == 1 {
                sorted.first_malformed = number;
            }
            continue;
        };
        first = first.min(start.ts);
        let cpu = usize::from(start.cpu);
        let before = &mut last[cpu];
        let expected = before.seq.map_or(0, |seq| seq.saturating_add(1));
        if start.seq > expected {
            let ts_begin = match before.doubt.take() {
                Some(doubt) => doubt.min(start.ts),
                None => before.certain().min(start.ts),
            };
            sorted.gaps.push(Gap {
                cpu: start.cpu,
                ts_begin,
                ts_end: start.ts,
                count: start.seq - expected,
            });
        }
        before.seq = Some(start.seq.max(expected));
        before.ts = start.ts;
        if start.letter == b'S' {
            let told = since(Fields(fields.0));
            let next = told.as_ref().and_then(|told| told.next_tid);
            before.recorder_in =
                (next.is_some() && next == sorted.recorder_tid).then_some(start.ts);
            if let Some(told) = told.filter(|told| told.since > before.since) {
                before.since = told.since;
                let text = format!("{} {} {}\n", told.since, told.tid, told.prio);
                hidden.write(cpu, text.as_bytes())?;
            }
        }
        line.push(b'\n');
        lines.write(cpu, &line)?;
    }
    if number == 0 {
        return Err(Error::format(
            format!("{} is empty", path.display()),
            "the lines of the bpftrace script",
            "bpftrace may have failed at once: look at stderr.txt in the capture",
        ));
    }
    // The recorder waits for `#on` before its window begins: a later one is damaged.
    sorted.from = sorted.from.into_iter().chain(window.0).min();
    let from = sorted.from.unwrap_or(first);
    let until = sorted.until.unwrap_or(i64::MAX);
    sorted.gaps.retain_mut(|gap| {
        gap.ts_begin = gap.ts_begin.max(from);
        from < gap.ts_end && gap.ts_begin <= gap.ts_end && gap.ts_begin < until
    });
    sorted.lines = lines.finish()?;
    sorted.hidden = hidden.finish()?;
    Ok(sorted)
}

/// "Lost 17 events", among the lines, is bpftrace's own word. What is missing there, of which CPU
/// and since when, the numbers of the lines around it say.
fn is_told_loss(line: &[u8]) -> bool {
    let count = line
        .strip_prefix(b"Lost ")
        .and_then(|rest| rest.strip_suffix(b" events"));
    count.is_some_and(|count| !count.is_empty() && count.iter().all(u8::is_ascii_digit))
}

/// The grammar's version and the recorder's tid, from the file's first line.
fn header(line: &[u8]) -> Option<(u32, u32)> {
    let text = std::str::from_utf8(line.strip_prefix(HEADER)?).ok()?;
    let (version, rest) = text.split_once(" tid=")?;
    let version = version
        .parse()
        .ok()
        .filter(|version| (1..=2).contains(version))?;
    Some((version, rest.split(' ').next()?.parse().ok()?))
}

/// Lines about the recording itself.
fn note(
    line: &[u8],
    sorted: &mut Sorted,
    window_end: Option<i64>,
    last: &mut [Last],
    hidden: &mut Writer,
) -> Result<()> {
    let Ok(text) = std::str::from_utf8(line) else {
        return Ok(());
    };
    let told = |name: &str| text.strip_prefix(name)?.trim().parse().ok();
    if let Some(ts) = told("#on ") {
        sorted.from.get_or_insert(ts);
        return Ok(());
    }
    if let Some(ts) = told("#end ") {
        sorted.end = Some(ts);
        return Ok(());
    }
    let indexed = |name: &str| -> Option<(usize, i64)> {
        let (cpu, value) = text.strip_prefix(name)?.split_once("]: ")?;
        Some((cpu.parse().ok()?, value.trim().parse().ok()?))
    };
    if let Some((cpu, made)) = indexed("@n[")
        && let Some(before) = last.get(cpu)
    {
        let arrived = before.seq.map_or(0, |seq| seq.saturating_add(1));
        let missing = u64::try_from(made).unwrap_or(0).saturating_sub(arrived);
        let end = sorted.end.or(window_end);
        if let (Some(ts_begin), Some(ts_end)) = (before.doubt, end)
            && missing > 0
        {
            sorted.gaps.push(Gap {
                cpu: cpu as u16,
                ts_begin: ts_begin.min(ts_end),
                ts_end,
                count: missing,
            });
        } else if missing > 0 && window_end.is_some_and(|end| before.ts > end) {
            // bpftrace leaves its probes one after the other, and reads no more meanwhile.
            sorted.until = Some(sorted.until.map_or(before.ts, |ts| ts.min(before.ts)));
        } else if missing > 0
            && let Some(end) = sorted.end
        {
            sorted.gaps.push(Gap {
                cpu: cpu as u16,
                ts_begin: before.certain().min(end),
                ts_end: end,
                count: missing,
            });
        }
    } else if let Some((cpu, ts)) = indexed("@late[")
        && ts > 0
        && let Some(before) = last.get_mut(cpu)
        && ts > before.since
    {
        before.since = ts;
        // Which thread ran after the recorder left is no longer reported.
        hidden.write(cpu, format!("{ts} {} -1\n", u32::MAX).as_bytes())?;
    }
    Ok(())
}
