//! First look at a file of lines: where time jumps back, what the first and
//! last lines say, which CPUs there are.
//!
//! DTrace prints per-CPU buffers one after the other (Linux) or merged by time
//! (FreeBSD). Either way the file is a row of *runs* in which time does not go
//! back; merging the runs puts it in order. Only their positions are kept.

use super::compact::Words;
use super::line::{Fields, is_letter, newline};
use super::told::Told;
use crate::carriage_returns;
use crate::error::{Error, Result};
use crate::hooks::check_interrupt;
use crate::input::Input;

/// Bytes read at a time.
const WINDOW: usize = 1 << 20;

/// More runs than this are not per-CPU buffers but disorder.
const MOST_RUNS: usize = 1 << 22;

/// A stretch of the file with non-decreasing times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub begin: u64,
    pub end: u64,
    pub ts: i64,
    /// Letter of its first event.
    pub letter: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Os {
    FreeBsd,
    Linux,
}

/// The first line: `#sched version os ts wall release ncpu`.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    pub version: u8,
    pub os: Os,
    pub ts: i64,
    pub wall: i64,
    /// kern.osreldate, or Linux's version as one number; 0 unknown.
    pub release: u32,
    /// 0: unknown.
    pub ncpu: u16,
}

/// What the whole file says of itself.
#[derive(Debug, Default)]
pub struct Scan {
    pub header: Option<Header>,
    /// Time and wall time of the `#end` line.
    pub end: Option<(i64, i64)>,
    /// The `#count` lines: events of a letter that were recorded.
    pub counted: Vec<(u8, u64)>,
    /// Lines of each letter.
    lines: [u64; 26],
    pub runs: Vec<Run>,
    /// Calls of sched_yield were recorded, even if there was none.
    pub has_yields: bool,
    /// When the first line of each CPU is stamped: `i64::MAX` where there is none.
    pub first_by_cpu: Vec<i64>,
    pub first_ts: Option<i64>,
    /// When the last of the first lines was printed: a flight recorder repeats it at its end.
    last_header: Option<i64>,
    /// Version 2 says so itself.
    says_ring: bool,
    pub told: Told,
    pub last_ts: Option<i64>,
    /// Lines dtrace itself wrote about drops: CPU, how many.
    pub drops: Vec<(u16, u64)>,
    /// The file ends inside a line.
    pub cut: bool,
}

/// The header, if this is its line.
pub fn header(line: &[u8], name: &str) -> Result<Option<Header>> {
    if !line.starts_with(b"#sched\t") {
        return Ok(None);
    }
    let shown = || {
        String::from_utf8_lossy(&line[..line.len().min(120)])
            .trim_end()
            .to_string()
    };
    let wrong = |expected: &str| {
        Error::format(
            format!("{name}, line 1: {:?}", shown()),
            expected,
            "record with a collector of the same release of schedscope as the reader",
        )
    };
    if line.ends_with(b"\r\n") {
        return Err(carriage_returns(name));
    }
    let mut fields = Fields::new(line, 7);
    let version = fields.small().unwrap_or(0);
    if !matches!(version, 1 | 2) {
        return Err(wrong(
            "version 1 or 2 of the line grammar (collectors/lines.md)",
        ));
    }
    let os = match fields.word() {
        Some(b"freebsd") => Os::FreeBsd,
        Some(b"linux") => Os::Linux,
        _ => return Err(wrong("freebsd or linux as the third word")),
    };
    let rest = (|| {
        Some(Header {
            version,
            os,
            ts: fields.int()?,
            wall: fields.int()?,
            release: fields.small()?,
            ncpu: fields.small()?,
        })
    })();
    rest.map(Some)
        .ok_or_else(|| wrong("#sched, version, system, time, wall time, release, ncpu"))
}

impl Scan {
    /// Reads the file once. `interact`: below which score ULE calls a thread interactive.
    pub fn read(input: &Input, interact: Option<i64>) -> Result<Self> {
        let mut scan = Self::default();
        scan.told.interact = interact;
        let mut buffer = vec![0; WINDOW];
        // Bytes at the front of the buffer: a line not yet complete.
        let (mut kept, mut at) = (0, 0u64);
        loop {
            check_interrupt()?;
            let read = input.read_at(&mut buffer[kept..], at + kept as u64)?;
            let filled = kept + read;
            let window = &buffer[..filled];
            let mut line = 0;
            while let Some(next) = scan.line(window, line, at, input.name())? {
                line = next;
            }
            let ended = read < buffer.len() - kept;
            if ended {
                scan.cut = line < filled;
                at += line as u64;
                break;
            }
            if line == 0 {
                // A megabyte without a newline is not ours: drop all of it.
                line = filled;
            }
            buffer.copy_within(line..filled, 0);
            kept = filled - line;
            at += line as u64;
        }
        // What follows the last newline is no line.
        if let Some(run) = scan.runs.last_mut() {
            run.end = at;
        }
        Ok(scan)
    }

    /// Takes the line that starts at `line` of a window which is at `at` of the
    /// file; answers where the next one starts, None if this one is not whole.
    #[inline]
    fn line(&mut self, window: &[u8], line: usize, at: u64, name: &str) -> Result<Option<usize>> {
        if let Some((ts, cpu, position)) = stamp(window, line, self.base()) {
            // No newline can stand before where the fields have been read to.
            let Some(end) = newline(window, position - 1) else {
                return Ok(None);
            };
            self.event(window[line], ts, cpu, at + line as u64, name)?;
            if matches!(window[line], b'N' | b'V') {
                let _ = self.told.line(window[line], ts, window, position);
            }
            return Ok(Some(end + 1));
        }
        let Some(end) = newline(window, line) else {
            return Ok(None);
        };
        let text = &window[line..=end];
        if text[0] == b'#' {
            self.comment(text, name)?;
        } else if text.starts_with(b"dtrace: ") {
            self.drops.extend(drop_report(text));
        }
        Ok(Some(end + 1))
    }

    #[inline]
    fn event(&mut self, letter: u8, ts: i64, cpu: u16, at: u64, name: &str) -> Result<()> {
        if self.last_ts.is_none_or(|last| ts < last) {
            if let Some(run) = self.runs.last_mut() {
                run.end = at;
            }
            self.runs.push(Run {
                begin: at,
                end: at,
                ts,
                letter,
            });
            if self.runs.len() > MOST_RUNS {
                return Err(Error::format(
                    format!("{name}: time goes back {MOST_RUNS} times by byte {at}"),
                    "lines in order of time per CPU buffer",
                    "use the file as dtrace wrote it, not sorted or mixed with another",
                ));
            }
        }
        self.has_yields |= letter == b'Y';
        self.last_ts = Some(ts);
        self.first_ts = Some(self.first_ts.map_or(ts, |first| first.min(ts)));
        let cpu = usize::from(cpu);
        if cpu >= self.first_by_cpu.len() {
            self.first_by_cpu.resize(cpu + 1, i64::MAX);
        }
        let first = &mut self.first_by_cpu[cpu];
        *first = ts.min(*first);
        self.lines[usize::from(letter - b'A')] += 1;
        Ok(())
    }

    /// What the times of version 2 count from.
    pub fn base(&self) -> Option<i64> {
        self.header
            .filter(|header| header.version == 2)
            .map(|header| header.ts)
    }

    /// A ring of each CPU kept the last lines only: the first line of all was printed again
    /// when recording ended, and fewer lines are here than were recorded.
    pub fn is_ring(&self) -> bool {
        let here = |letter: u8| self.lines.get(usize::from(letter.wrapping_sub(b'A')));
        let gone = |&(letter, recorded): &(u8, u64)| here(letter).is_some_and(|&n| n < recorded);
        self.counted.iter().any(gone)
            && (self.says_ring
                || self
                    .last_header
                    .zip(self.first_ts)
                    .is_some_and(|(header, first)| header > first))
    }

    fn comment(&mut self, line: &[u8], name: &str) -> Result<()> {
        if self.header.is_none() {
            self.header = header(line, name)?;
        }
        if let Ok(Some(found)) = header(line, name) {
            self.last_header = Some(found.ts);
        }
        self.has_yields |= line == b"#yields\n";
        self.says_ring |= line == b"#ring\n";
        if line.starts_with(b"#count\t") && line.len() > 9 && line[8] == b'\t' {
            if let Some(count) = Fields::new(line, 9).small() {
                self.counted.push((line[7], count));
            }
        } else if line.starts_with(b"#end\t") {
            let mut fields = Fields::new(line, 5);
            if let (Some(ts), Some(wall)) = (fields.int(), fields.int()) {
                self.end = Some((ts, wall));
            }
        }
        Ok(())
    }
}

/// Time and CPU of the event line at `line`, and where its other fields begin. `base`: what the
/// times of version 2 count from; None for version 1.
#[inline(always)]
pub fn stamp(bytes: &[u8], line: usize, base: Option<i64>) -> Option<(i64, u16, usize)> {
    if bytes.len() - line <= 2 {
        return None;
    }
    let letter = bytes[line];
    if let Some(base) = base {
        if bytes[line + 1] != b' ' || !is_letter(letter) {
            return None;
        }
        let mut words = Words::new(bytes, line + 1);
        let ts = base.checked_add(words.int()?)?;
        return Some((ts, words.small()?, words.position()));
    }
    if bytes[line + 1] != b'\t' || !is_letter(letter) || matches!(letter, b'N' | b'V') {
        return None;
    }
    let mut fields = Fields::new(bytes, line + 2);
    let ts = fields.time()?;
    let cpu = u16::try_from(fields.few_digits()?).ok()?;
    Some((ts, cpu, fields.position()))
}

/// `dtrace: 12 drops on CPU 3`, as dtrace says it on stderr.
pub fn drop_report(line: &[u8]) -> Option<(u16, u64)> {
    let text = std::str::from_utf8(line).ok()?.trim_end();
    let (count, rest) = text.strip_prefix("dtrace: ")?.split_once(' ')?;
    let cpu = rest
        .strip_prefix("drops on CPU ")
        .or_else(|| rest.strip_prefix("drop on CPU "))?;
    Some((cpu.parse().ok()?, count.parse().ok()?))
}

/// `dtrace: 12 dynamic variable drops with non-empty dirty list`: so many clauses were left
/// without a record, on any CPU.
pub fn discarded(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?;
    let (count, rest) = text.strip_prefix("dtrace: ")?.split_once(' ')?;
    rest.starts_with("dynamic variable drop")
        .then(|| count.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_were_discarded_for_want_of_a_variable_are_read() {
        assert_eq!(
            discarded(b"dtrace: 12 dynamic variable drops with non-empty rinsing list"),
            Some(12)
        );
        assert_eq!(discarded(b"dtrace: 1 dynamic variable drop\n"), Some(1));
        assert_eq!(discarded(b"dtrace: 7 aggregation drops on CPU 0"), None);
        assert_eq!(discarded(b"dtrace: 7 drops on CPU 0"), None);
    }

    #[test]
    fn drops_are_read_in_singular_and_plural_and_of_buffers_only() {
        assert_eq!(drop_report(b"dtrace: 1 drop on CPU 0\n"), Some((0, 1)));
        assert_eq!(
            drop_report(b"dtrace: 353101 drops on CPU 12"),
            Some((12, 353_101))
        );
        assert_eq!(drop_report(b"dtrace: 7 aggregation drops on CPU 0"), None);
        assert_eq!(drop_report(b"dtrace: 7 dynamic variable drops"), None);
    }

    #[test]
    fn an_unknown_version_is_an_error_that_names_it() {
        let error = header(b"#sched\t3\tfreebsd\t1\t2\t3\t4\n", "x")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("line 1") && error.contains("version 1"),
            "{error}"
        );
        assert!(header(b"#other\n", "x").unwrap().is_none());
    }
}
