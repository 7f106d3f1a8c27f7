//! One CPU's sub-buffers as a window of bytes that slides over a file: plain,
//! or decompressed chunk by chunk.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::Result;
use crate::ftrace::pages::{HEADER, Pages, Reordered, Stamp, reordered};
use crate::input::Input;
use crate::tracedat::compression::Codec;

/// Bytes read at a time: enough to make the system call cheap, little enough to
/// be in the nearer caches still when they are decoded, for many CPUs.
const WINDOW: usize = 64 << 10;

/// Sub-buffers that stand in the file as the kernel gave them.
pub struct Plain {
    input: Arc<Input>,
    begin: u64,
    at: u64,
    end: u64,
}

impl Plain {
    /// The file's bytes `begin..end`.
    pub fn new(input: Arc<Input>, begin: u64, end: u64) -> Self {
        Self {
            input,
            begin,
            at: begin,
            end,
        }
    }
}

impl Pages for Plain {
    fn fill(&mut self, window: &mut Vec<u8>) -> Result<usize> {
        let wanted = (self.end - self.at).min(WINDOW as u64) as usize;
        let old = window.len();
        window.resize(old + wanted, 0);
        let got = self.input.read_at(&mut window[old..], self.at)?;
        window.truncate(old + got);
        self.at = if got < wanted {
            self.end
        } else {
            self.at + got as u64
        };
        Ok(got)
    }

    fn consumed(&self) -> u64 {
        self.at - self.begin
    }

    fn total(&self) -> u64 {
        self.end - self.begin
    }

    fn place(&self, at: u64) -> String {
        format!("{}, byte {}", self.input.name(), self.begin + at)
    }

    fn head(&self) -> Result<Option<Box<dyn Pages>>> {
        let end = self.end.min(self.begin + WINDOW as u64);
        Ok(Some(Box::new(Self::new(
            Arc::clone(&self.input),
            self.begin,
            end,
        ))))
    }

    fn tail(&self, page: usize) -> Result<Option<Box<dyn Pages>>> {
        // The very last sub-buffers may be empty or torn.
        let pages = (self.end - self.begin) / page as u64;
        let begin = self.begin + pages.saturating_sub(4) * page as u64;
        Ok(Some(Box::new(Self::new(
            Arc::clone(&self.input),
            begin,
            self.end,
        ))))
    }

    fn whole(&self) -> Result<Box<dyn Pages>> {
        let input = Arc::clone(&self.input);
        Ok(Box::new(Self::new(input, self.begin, self.end)))
    }

    fn since(&self, page: usize, is_before: &dyn Fn(&[u8]) -> bool) -> Result<Box<dyn Pages>> {
        // Sub-buffers stand in order of time: `low` begins before, `high` does not.
        let (mut low, mut high) = (0, (self.end - self.begin).div_ceil(page as u64));
        let mut head = [0; HEADER];
        while low + 1 < high {
            let middle = low.midpoint(high);
            let at = self.begin + middle * page as u64;
            let got = self.input.read_at(&mut head, at)?;
            if got == HEADER && is_before(&head) {
                low = middle;
            } else {
                high = middle;
            }
        }
        let begin = self.begin + low * page as u64;
        let input = Arc::clone(&self.input);
        Ok(Box::new(Self::new(input, begin.min(self.end), self.end)))
    }

    fn in_order(&self, page: usize, stamp: &Stamp<'_>) -> Result<Option<Reordered>> {
        reordered(&self.input, (self.begin, self.end), page, stamp)
    }
}

/// Sub-buffers in compressed chunks (trace.dat version 7): a count, then for
/// each chunk its compressed size, its size, its bytes.
pub struct Chunks {
    input: Arc<Input>,
    codec: Codec,
    big_endian: bool,
    begin: u64,
    at: u64,
    end: u64,
    left: u32,
    /// What a chunk may grow to however little it is compressed.
    room: u32,
    chunk_at: u64,
    /// The last chunks: their first byte once decompressed, and where they are in the file.
    places: VecDeque<(u64, u64)>,
    /// Bytes decompressed so far.
    expanded: u64,
    compressed: Vec<u8>,
}

/// Chunks whose place their users may still ask for: the next ones may have been read ahead.
const REMEMBERED: usize = 8;

impl Chunks {
    pub fn open(
        input: Arc<Input>,
        codec: Codec,
        big_endian: bool,
        begin: u64,
        end: u64,
        room: u32,
    ) -> Result<Self> {
        let mut chunks = Self {
            input,
            codec,
            big_endian,
            begin,
            at: begin,
            end,
            left: 0,
            room,
            chunk_at: begin,
            places: VecDeque::new(),
            expanded: 0,
            compressed: Vec::new(),
        };
        if begin < end {
            chunks.left = chunks.number("the number of chunks")?;
        }
        Ok(chunks)
    }

    /// The same data from its start.
    fn again(&self) -> Result<Self> {
        let codec = Codec::new(self.codec.kind())?;
        Self::open(
            Arc::clone(&self.input),
            codec,
            self.big_endian,
            self.begin,
            self.end,
            self.room,
        )
    }

    fn number(&mut self, what: &str) -> Result<u32> {
        self.numbers(what).map(|[number]| number)
    }

    fn numbers<const N: usize>(&mut self, what: &str) -> Result<[u32; N]> {
        let mut raw = [[0; 4]; N];
        let size = raw.as_flattened().len() as u64;
        if self.end - self.at < size {
            return Err(self.input.wrong(
                self.at,
                format!("a CPU's data ends inside {what}"),
                format!("{size} bytes"),
            ));
        }
        self.input
            .read_exact_at(raw.as_flattened_mut(), self.at, what)?;
        self.at += size;
        Ok(raw.map(if self.big_endian {
            u32::from_be_bytes
        } else {
            u32::from_le_bytes
        }))
    }
}

impl Pages for Chunks {
    fn fill(&mut self, window: &mut Vec<u8>) -> Result<usize> {
        let old = window.len();
        while self.left > 0 && window.len() == old {
            // Behind a damaged chunk there is no telling where the next begins.
            let left = std::mem::take(&mut self.left);
            self.chunk_at = self.at;
            if self.places.len() == REMEMBERED {
                self.places.pop_front();
            }
            self.places.push_back((self.expanded, self.chunk_at));
            let [compressed, size] = self.numbers("a chunk's two sizes")?;
            if u64::from(compressed) > self.end - self.at {
                return Err(self.input.wrong(
                    self.chunk_at,
                    format!("a chunk of {compressed} bytes"),
                    format!(
                        "at most the {} that this CPU's data has left",
                        self.end - self.at
                    ),
                ));
            }
            self.codec
                .kind()
                .check_size(size, compressed, self.room)
                .map_err(|(found, expected)| self.input.wrong(self.chunk_at, found, expected))?;
            self.compressed.resize(compressed as usize, 0);
            self.input
                .read_exact_at(&mut self.compressed, self.at, "a compressed chunk")?;
            self.at += u64::from(compressed);
            self.codec
                .decompress(&self.compressed, size as usize, window)
                .map_err(|found| {
                    self.input
                        .wrong(self.chunk_at, found, "a whole compressed chunk")
                })?;
            self.expanded += u64::from(size);
            self.left = left - 1;
        }
        Ok(window.len() - old)
    }

    fn consumed(&self) -> u64 {
        self.at - self.begin
    }

    fn total(&self) -> u64 {
        self.end - self.begin
    }

    fn place(&self, at: u64) -> String {
        let of = |&&(begin, _): &&(u64, u64)| begin <= at;
        let chunk = self.places.iter().rev().find(of);
        format!(
            "{}, near byte {} (byte {at} of the CPU's data once decompressed)",
            self.input.name(),
            chunk.map_or(self.begin, |&(_, chunk_at)| chunk_at)
        )
    }

    fn head(&self) -> Result<Option<Box<dyn Pages>>> {
        let mut head = self.again()?;
        head.left = head.left.min(1);
        Ok(Some(Box::new(head)))
    }

    fn tail(&self, _: usize) -> Result<Option<Box<dyn Pages>>> {
        let mut tail = self.again()?;
        let mut last = tail.at;
        for _ in 0..tail.left {
            last = tail.at;
            let [compressed, _] = tail.numbers("a chunk's two sizes")?;
            let compressed = u64::from(compressed);
            if compressed > tail.end - tail.at {
                break;
            }
            tail.at += compressed;
        }
        tail.at = last;
        tail.left = tail.left.min(1);
        Ok(Some(Box::new(tail)))
    }

    fn whole(&self) -> Result<Box<dyn Pages>> {
        Ok(Box::new(self.again()?))
    }
}
