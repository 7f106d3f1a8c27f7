//! Records into sub-buffers, as the kernel's ring buffer lays them out.

use super::Settings;
use crate::error::{Error, Result};

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// The longest record whose length fits the header.
const SHORT: usize = 28 * 4;
const MISSED: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;

/// The sub-buffers of one CPU, one at a time.
pub struct Pages {
    big_endian: bool,
    long_bytes: usize,
    page_bytes: usize,
    absolute_every: u32,
    discard_every: u32,
    long_records: bool,
    page: Vec<u8>,
    /// Time of the last record in the page.
    ts: u64,
    last: u64,
    records: u32,
    /// Events lost before the page at hand: the outer Option is "any".
    missed: Option<Option<u64>>,
    missed_next: Option<Option<u64>>,
}

impl Pages {
    pub fn new(settings: &Settings) -> Self {
        Self {
            big_endian: settings.big_endian,
            long_bytes: settings.long_bytes,
            page_bytes: settings.page_bytes,
            absolute_every: settings.absolute_every,
            discard_every: settings.discard_every,
            long_records: settings.long_records,
            page: Vec::new(),
            ts: 0,
            last: 0,
            records: 0,
            missed: None,
            missed_next: None,
        }
    }

    fn header(&self) -> usize {
        8 + self.long_bytes
    }

    /// Adds a record; returns the sub-buffers that became full.
    pub fn push(&mut self, ts: i64, record: &[u8]) -> Result<Vec<Vec<u8>>> {
        let time = u64::try_from(ts)
            .ok()
            .filter(|&ts| ts >= self.last)
            .ok_or_else(|| {
                Error::usage(
                    format!("an event at {ts} ns after one at {}", self.last),
                    "events in order of time, from 0 on",
                    "sort the tables by ts",
                )
            })?;
        self.last = time;
        let mut full = Vec::new();
        if self.missed_next.is_some() {
            full.extend(self.finish());
            self.missed = self.missed_next.take();
        }
        self.records = self.records.wrapping_add(1);
        let every = |n: u32| n > 0 && self.records.is_multiple_of(n);
        let (absolute, discard) = (every(self.absolute_every), every(self.discard_every));
        let padded = record.len().next_multiple_of(4);
        let short = padded <= SHORT && !self.long_records;
        let body = if short { 4 + padded } else { 8 + padded };
        // A stamp and a discarded record may come first.
        let room = body + if absolute { 8 } else { 0 } + 8 + if discard { 12 } else { 0 };
        let stored = if self.missed.is_some() {
            self.long_bytes
        } else {
            0
        };
        let limit = self.page_bytes - stored;
        if self.header() + room > limit {
            return Err(Error::usage(
                format!("sub-buffers of {} bytes", self.page_bytes),
                format!("room for a record of {room} bytes"),
                "choose larger ones",
            ));
        }
        if !self.page.is_empty() && self.page.len() + room > limit {
            full.extend(self.finish());
        }
        if self.page.is_empty() {
            self.page.resize(self.header(), 0);
            self.number(0, time, 8);
            self.ts = time;
        }
        // Without time passed, its header would mean "nothing more here".
        if discard && time > self.ts {
            self.word(PADDING, 1);
            self.raw(8);
            self.raw(0xdead_beef);
            self.ts += 1;
        }
        let mut delta = time - self.ts;
        if absolute {
            self.word(TIME_STAMP, (time & 0x07ff_ffff) as u32);
            self.raw(((time >> 27) & 0xffff_ffff) as u32);
            delta = 0;
        } else if delta >= 1 << 27 {
            self.word(TIME_EXTEND, (delta & 0x07ff_ffff) as u32);
            self.raw((delta >> 27) as u32);
            delta = 0;
        }
        if short {
            self.word((padded / 4) as u32, delta as u32);
        } else {
            self.word(0, delta as u32);
            self.raw(padded as u32 + 4);
        }
        self.page.extend(record);
        self.page.resize(self.page.len() + padded - record.len(), 0);
        self.ts = time;
        Ok(full)
    }

    /// Events are missing between the last record and the next.
    pub fn lost(&mut self, count: Option<u64>) {
        let sum = match self.missed_next {
            Some(before) => before.zip(count).map(|(a, b)| a.saturating_add(b)),
            None => count,
        };
        self.missed_next = Some(sum);
    }

    /// The sub-buffer at hand, if it holds anything.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        if self.page.is_empty() {
            return None;
        }
        let mut commit = (self.page.len() - self.header()) as u64;
        if let Some(count) = self.missed.take() {
            commit |= MISSED;
            if let Some(count) = count {
                commit |= MISSED_STORED;
                let at = self.page.len();
                self.page.resize(at + self.long_bytes, 0);
                self.number(at, count, self.long_bytes);
            }
        }
        self.number(8, commit, self.long_bytes);
        self.page.resize(self.page_bytes, 0);
        Some(std::mem::take(&mut self.page))
    }

    fn number(&mut self, at: usize, value: u64, size: usize) {
        let le = value.to_le_bytes();
        for (index, &byte) in le[..size].iter().enumerate() {
            self.page[at
                + if self.big_endian {
                    size - 1 - index
                } else {
                    index
                }] = byte;
        }
    }

    fn raw(&mut self, value: u32) {
        self.page.extend(if self.big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        });
    }

    /// A record header: type or length in 5 bits, time in 27.
    fn word(&mut self, kind: u32, delta: u32) {
        self.raw(if self.big_endian {
            kind << 27 | delta
        } else {
            kind | delta << 5
        });
    }
}
