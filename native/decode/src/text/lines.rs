//! Lines of a text file through a bounded window, with their numbers.
//!
//! A thread's name may hold the end of a line, which breaks an event in two or more: they are put
//! together again.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::fields::is_unfinished;
use super::kind::Kind;
use super::line;
use crate::BYTE_ORDER_MARK;
use crate::error::{Error, Result};
use crate::hooks::check_interrupt;
use crate::regular_file::open_regular;

const WINDOW: usize = 1 << 20;
/// HTML reports have scripts of megabytes on one line; nothing of ours is in them.
const LONGEST: usize = 1 << 16;
/// Two names of 15 bytes are all that can hold the ends of lines in one event.
const MOST_BREAKS: u64 = 30;

pub struct Lines {
    file: File,
    name: String,
    buffer: Vec<u8>,
    at: usize,
    filled: usize,
    ended: bool,
    /// Number of the line last given, from 1.
    pub number: u64,
    /// Bytes read so far.
    pub done: u64,
}

impl Lines {
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = open_regular(path)?;
        Ok(Self {
            file,
            name,
            buffer: vec![0; WINDOW],
            at: 0,
            filled: 0,
            ended: false,
            number: 0,
            done: 0,
        })
    }

    fn fill(&mut self) -> Result<()> {
        check_interrupt()?;
        self.buffer.copy_within(self.at..self.filled, 0);
        self.filled -= self.at;
        self.at = 0;
        let got = self
            .file
            .read(&mut self.buffer[self.filled..])
            .map_err(|error| Error::io(format!("read {}", self.name), &error))?;
        self.filled += got;
        if self.done == 0 && self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.at = BYTE_ORDER_MARK.len();
        }
        self.done += got as u64;
        self.ended = got == 0;
        Ok(())
    }

    /// The next line without its end, or the lines of one event whose names hold ends of lines;
    /// over-long ones are cut.
    pub fn next(&mut self) -> Result<Option<&[u8]>> {
        let Some(line) = self.next_line()? else {
            return Ok(None);
        };
        let (begin, end) = self.finish(line)?;
        Ok(Some(trimmed(&self.buffer[begin..end])))
    }

    /// A line that ends within an event, with those after it that finish the event; any other
    /// line as it is.
    fn finish(&mut self, (mut begin, mut end): (usize, usize)) -> Result<(usize, usize)> {
        if !is_broken(trimmed(&self.buffer[begin..end])) {
            return Ok((begin, end));
        }
        let (alone, number) = (end - begin, self.number);
        let after = self.at - begin;
        for breaks in 1..=MOST_BREAKS {
            // `at` is what `fill` keeps.
            let next = self.at - begin;
            self.at = begin;
            while !self.buffer[begin + next..self.filled].contains(&b'\n')
                && !self.ended
                && self.filled - begin - next <= LONGEST
            {
                self.fill()?;
                begin = 0;
            }
            let rest = &self.buffer[begin + next..self.filled];
            let len = rest.iter().position(|&byte| byte == b'\n');
            let part = &rest[..len.unwrap_or(rest.len())];
            if part.is_empty() && len.is_none()
                || part.len() > LONGEST
                || matches!(line::parse(part), Some(Ok(_)))
            {
                break;
            }
            end = begin + next + part.len();
            self.at = end + usize::from(len.is_some());
            if !is_broken(trimmed(&self.buffer[begin..end])) {
                self.number = number + breaks;
                return Ok((begin, end));
            }
        }
        self.at = begin + after;
        Ok((begin, begin + alone))
    }

    /// Where the next line lies in the buffer.
    fn next_line(&mut self) -> Result<Option<(usize, usize)>> {
        let mut cut = None;
        loop {
            let rest = &self.buffer[self.at..self.filled];
            if let Some(len) = rest.iter().position(|&byte| byte == b'\n') {
                let begin = self.at;
                self.at += len + 1;
                self.number += 1;
                // The window was emptied meanwhile: only the cut is known.
                let len = if cut.is_some() { 0 } else { len };
                return Ok(Some((begin, begin + len)));
            }
            if self.ended {
                if rest.is_empty() {
                    return Ok(None);
                }
                let (begin, end) = (self.at, self.filled);
                self.at = end;
                self.number += 1;
                return Ok(Some((begin, if cut.is_some() { begin } else { end })));
            }
            if rest.len() > LONGEST {
                cut = Some(());
                self.at = self.filled;
            }
            self.fill()?;
        }
    }
}

/// The last words of most whole events.
const LAST_WORDS: [&[u8]; 4] = [b"target_cpu=", b"next_prio=", b"dest_cpu=", b"CPU:"];

/// An event without its last fields.
fn is_broken(text: &[u8]) -> bool {
    let last = text
        .iter()
        .rposition(|&byte| byte == b' ')
        .map_or(0, |at| at + 1);
    if LAST_WORDS.iter().any(|word| text[last..].starts_with(word)) {
        return false;
    }
    let Some(Ok(line)) = line::parse(text) else {
        return false;
    };
    Kind::named(line.event).is_some_and(|kind| is_unfinished(kind, line.fields))
}

/// Without what ends a line in a file of DOS, and in the text constant of a page of 2012 (`\n\`).
fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    line.strip_suffix(b"\\n\\").unwrap_or(line)
}
