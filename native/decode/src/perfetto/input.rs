//! Packets of a trace file, one after the other, through a bounded window; and
//! any one of them again by its place.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::wire::varint;
use crate::error::{Error, Result};

const WINDOW: usize = 1 << 18;
/// No writer makes packets near this size; a longer one is damage.
const PACKET_MAX: u64 = 256 << 20;

/// Where a packet lies in the file.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub at: u64,
    pub len: u32,
}

pub enum Next<'a> {
    Packet(Span, &'a [u8]),
    /// The file ends inside a packet that begins here.
    Truncated(u64),
    End,
}

pub struct Packets {
    file: Arc<File>,
    len: u64,
    /// File offset of `buffer[0]`.
    base: u64,
    buffer: Vec<u8>,
    at: usize,
    filled: usize,
}

impl Packets {
    pub fn new(file: Arc<File>, len: u64) -> Self {
        Self {
            file,
            len,
            base: 0,
            buffer: vec![0; WINDOW],
            at: 0,
            filled: 0,
        }
    }

    pub fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Makes `wanted` bytes available, or as many as the file has.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        if self.filled - self.at >= wanted {
            return Ok(());
        }
        self.buffer.copy_within(self.at..self.filled, 0);
        self.base += self.at as u64;
        self.filled -= self.at;
        self.at = 0;
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        let left = self.len - self.base - self.filled as u64;
        let more =
            (self.buffer.len() - self.filled).min(usize::try_from(left).unwrap_or(usize::MAX));
        read_at(
            &self.file,
            &mut self.buffer[self.filled..self.filled + more],
            self.base + self.filled as u64,
        )?;
        self.filled += more;
        Ok(())
    }

    pub fn next(&mut self) -> Result<Next<'_>> {
        loop {
            self.fill(16)?;
            let start = self.offset();
            let mut head = &self.buffer[self.at..self.filled];
            if head.is_empty() {
                return Ok(Next::End);
            }
            let before = head.len();
            let (tag, value) = (varint(&mut head), varint(&mut head));
            let (Some(tag), Some(len)) = (tag, value) else {
                return if before < 16 {
                    Ok(Next::Truncated(start))
                } else {
                    Err(damaged(start))
                };
            };
            if tag & 7 != 2 {
                return Err(damaged(start));
            }
            if len > PACKET_MAX {
                return Err(damaged(start));
            }
            let header = before - head.len();
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            if (header + len) as u64 > self.len - start {
                return Ok(Next::Truncated(start));
            }
            self.fill(header + len)?;
            let begin = self.at + header;
            self.at = begin + len;
            // Field 1 of Trace is the packet; nothing else is defined.
            if tag >> 3 == 1 {
                let span = Span {
                    at: start + header as u64,
                    len: u32::try_from(len).unwrap_or(0),
                };
                return Ok(Next::Packet(span, &self.buffer[begin..begin + len]));
            }
        }
    }
}

pub fn read_at(file: &File, bytes: &mut [u8], at: u64) -> Result<()> {
    file.read_exact_at(bytes, at)
        .map_err(|error| Error::io(format!("read the trace at byte {at}"), &error))
}

pub fn damaged(at: u64) -> Error {
    Error::format(
        format!("Perfetto trace: no packet begins at byte {at}"),
        "a file as perfetto or traced writes it: packet after packet",
        "copy the file again; if it is whole, its first bytes may belong to another format",
    )
}
