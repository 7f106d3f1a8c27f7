//! The lines of events, put together again where a thread's name holds the end of a line.
//!
//! A line with a name ends with its own start time, which no thread can predict when it chooses its
//! name. In captures of the first version, which end with the name, text after it that is not a
//! line belongs to the name.

use std::collections::VecDeque;
use std::io::{BufRead, Read, Result};

use super::line::{Fields, LINE_END, Start};

/// A thread's name.
const NAME_MAX: usize = 15;

/// No line of the script is as long. A file may have one without an end, which takes no room there if
/// it is a hole: such a line comes in pieces of this size.
pub const PIECE: u64 = 1 << 16;

pub struct WholeLines<R> {
    reader: R,
    /// Lines that were read to see whether they go on with another.
    ahead: VecDeque<Vec<u8>>,
    /// Lines with a name end with their time.
    pub names_end_with_times: bool,
    /// Number of the line last given, from 1.
    pub number: u64,
    /// Lines that the last one took.
    took: u64,
}

impl<R: BufRead> WholeLines<R> {
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            ahead: VecDeque::new(),
            names_end_with_times: false,
            number: 0,
            took: 1,
        }
    }

    /// The next line, with its end if it has one, and the bytes that it took; 0 at the end.
    pub fn next(&mut self, line: &mut Vec<u8>) -> Result<u64> {
        line.clear();
        match self.ahead.pop_front() {
            Some(next) => *line = next,
            None => drop(self.read(line)?),
        }
        self.number += self.took;
        self.took = 1;
        let read = line.len() as u64;
        let Some(named) = Named::of(line) else {
            return Ok(read);
        };
        if self.names_end_with_times {
            self.until_time(line, named)
        } else {
            self.until_line(line, named)
        }
    }

    fn read(&mut self, line: &mut Vec<u8>) -> Result<usize> {
        self.reader.by_ref().take(PIECE).read_until(b'\n', line)
    }

    fn peek(&mut self, at: usize) -> Result<Option<&[u8]>> {
        while self.ahead.len() <= at {
            let mut next = Vec::new();
            if self.read(&mut next)? == 0 {
                return Ok(None);
            }
            self.ahead.push_back(next);
        }
        Ok(self.ahead.get(at).map(Vec::as_slice))
    }

    /// Takes `count` lines ahead, so that they and the line are one.
    fn join(&mut self, line: &mut Vec<u8>, count: usize) {
        for next in self.ahead.drain(..count) {
            line.pop();
            line.push(LINE_END);
            line.extend_from_slice(&next);
        }
        self.took += count as u64;
    }

    /// Up to the time that ends the line, without it. As it is, where there is none: it was cut.
    fn until_time(&mut self, line: &mut Vec<u8>, named: Named) -> Result<u64> {
        let time = [b" ", &line[2..2 + named.digits]].concat();
        let most = named.name + NAME_MAX + time.len();
        let (mut count, mut length) = (0, line.len());
        let mut ends = without_end(line).ends_with(&time);
        while !ends && length <= most {
            let Some(next) = self.peek(count)? else { break };
            length += next.len();
            ends = without_end(next).ends_with(&time);
            count += 1;
        }
        if !ends {
            return Ok(line.len() as u64);
        }
        self.join(line, count);
        let read = line.len() as u64;
        let end = without_end(line).len();
        line.drain(end - time.len()..end);
        Ok(read)
    }

    /// With the lines behind it that are none of the script's, as far as a name may reach.
    fn until_line(&mut self, line: &mut Vec<u8>, named: Named) -> Result<u64> {
        let (mut count, mut at) = (0, 0);
        let mut length = line.len() - named.name;
        while length <= NAME_MAX
            && let Some(next) = self.peek(at)?
            && !is_line(next)
        {
            at += 1;
            length += next.len();
            // An empty line may be bpftrace's own, unless the name goes on behind it.
            if length <= NAME_MAX + 1 && next != b"\n" {
                count = at;
            }
        }
        self.join(line, count);
        Ok(line.len() as u64)
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// Is it a line of the script, or of bpftrace itself?
fn is_line(line: &[u8]) -> bool {
    let text = without_end(line);
    matches!(text.first(), Some(b'#' | b'@'))
        || text.starts_with(b"Lost ")
        || Start::read(&mut Fields(text)).is_some()
}

/// A line with a name: where that begins, and how long the line's time is.
#[derive(Clone, Copy)]
struct Named {
    name: usize,
    digits: usize,
}

impl Named {
    fn of(line: &[u8]) -> Option<Self> {
        // Fields before the name, with the letter.
        let fields = match line.first()? {
            b'S' => 10,
            b'F' => 8,
            b'C' => 6,
            b'R' => 5,
            _ => return None,
        };
        let mut spaces = line.iter().enumerate().filter(|&(_, &byte)| byte == b' ');
        let digits = line
            .get(2..)?
            .iter()
            .position(|byte| !byte.is_ascii_digit())?;
        let name = spaces.nth(fields - 1)?.0 + 1;
        let plain = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b' ' | b'-');
        line[2..name]
            .iter()
            .all(plain)
            .then_some(Self { name, digits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, times: bool) -> Vec<String> {
        let mut lines = WholeLines::new(text.as_bytes());
        lines.names_end_with_times = times;
        let (mut line, mut found) = (Vec::new(), Vec::new());
        while lines.next(&mut line).unwrap() > 0 {
            found.push(String::from_utf8(line.clone()).unwrap());
        }
        found
    }

    #[test]
    fn a_name_reaches_to_the_lines_time() {
        let text = "R 1234 0 1 7 a\nX 9 0 9 7 7 1234\nS 5678 1 2 0 1 120 7 120 8 \n 5678\nX 9999 0 3 7 7\n";
        let found = [
            "R 1234 0 1 7 a\0X 9 0 9 7 7\n",
            "S 5678 1 2 0 1 120 7 120 8 \0\n",
            "X 9999 0 3 7 7\n",
        ];
        assert_eq!(lines(text, true), found);
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_memory_than_its_pieces() {
        let hole = std::io::repeat(0).take(40 * PIECE);
        let mut lines = WholeLines::new(std::io::BufReader::new(hole));
        let (mut line, mut read) = (Vec::new(), 0);
        while lines.next(&mut line).unwrap() > 0 {
            read += line.len() as u64;
            assert!(line.len() as u64 <= PIECE);
        }
        assert_eq!(read, 40 * PIECE);
    }

    #[test]
    fn a_line_that_was_cut_stays_as_it_is() {
        let text = "R 1234 0 1 7 a\nX 9 0 9 7 7\nX 10 0 10 7 7\nX 11 0 11 7 7\n";
        assert_eq!(lines(text, true).len(), 4);
        assert_eq!(lines("R 1234 0 1 7 ab", true), ["R 1234 0 1 7 ab"]);
    }

    #[test]
    fn what_is_no_line_belongs_to_the_name_before_it() {
        let text = "R 1234 0 1 7 a\nb\n\nc\nX 9 0 9 7 7\n\n\n@n[0]: 7\n";
        let found = lines(text, false);
        assert_eq!(found[..2], ["R 1234 0 1 7 a\0b\0\0c\n", "X 9 0 9 7 7\n"]);
        let text = "R 1234 0 1 7 a\n\n\n@n[0]: 7\n";
        assert_eq!(lines(text, false)[0], "R 1234 0 1 7 a\n");
    }
}
