//! Lines of a text file through a bounded window, with their numbers.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::decode::BYTE_ORDER_MARK;
use crate::error::{Error, Result};
use crate::regular_file::open_regular;

const WINDOW: usize = 1 << 20;
/// HTML reports have scripts of megabytes on one line; nothing of ours is in them.
const LONGEST: usize = 1 << 16;

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

    /// The next line without its end; over-long ones are cut.
    pub fn next(&mut self) -> Result<Option<&[u8]>> {
        let mut cut = None;
        loop {
            let rest = &self.buffer[self.at..self.filled];
            if let Some(len) = rest.iter().position(|&byte| byte == b'\n') {
                let begin = self.at;
                self.at += len + 1;
                self.number += 1;
                return Ok(Some(match cut {
                    // The window was emptied meanwhile: only the cut is known.
                    Some(()) => &[],
                    None => trimmed(&self.buffer[begin..begin + len]),
                }));
            }
            if self.ended {
                if rest.is_empty() {
                    return Ok(None);
                }
                let (begin, end) = (self.at, self.filled);
                self.at = end;
                self.number += 1;
                return Ok(Some(if cut.is_some() {
                    &[]
                } else {
                    trimmed(&self.buffer[begin..end])
                }));
            }
            if rest.len() > LONGEST {
                cut = Some(());
                self.at = self.filled;
            }
            self.fill()?;
        }
    }
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}
