//! One CPU's sub-buffers, wherever they come from, and those that do not stand in the file in
//! order of time, or stand there twice.
//!
//! A CPU fills its sub-buffers one after the other, so each begins later than the one
//! before it. What was copied together wrongly is put in order by those stamps.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::error::Result;
use crate::hooks::check_interrupt;
use crate::input::Input;

/// Supplies the bytes of one CPU's sub-buffers in order.
pub trait Pages: Send {
    /// Appends more bytes to `window`: at least one unless the end is reached.
    fn fill(&mut self, window: &mut Vec<u8>) -> Result<usize>;

    /// Bytes of the file used up so far by this CPU.
    fn consumed(&self) -> u64;

    /// Bytes of the file there are for this CPU.
    fn total(&self) -> u64;

    /// In words, where in the file the stream's byte `at` is.
    fn place(&self, at: u64) -> String;

    /// The first bytes on their own, or None if there are none.
    fn head(&self) -> Result<Option<Box<dyn Pages>>>;

    /// The last few sub-buffers of `page` bytes on their own.
    fn tail(&self, page: usize) -> Result<Option<Box<dyn Pages>>>;

    /// All of it, from its beginning.
    fn whole(&self) -> Result<Box<dyn Pages>>;

    /// The sub-buffers from the last one on that begins before what `is_before`
    /// says of a sub-buffer's first bytes; some more where they cannot be jumped to.
    fn since(&self, page: usize, is_before: &dyn Fn(&[u8]) -> bool) -> Result<Box<dyn Pages>> {
        let _ = (page, is_before);
        self.whole()
    }

    /// The sub-buffers of `page` bytes in order of time and each once, if the file has them
    /// otherwise. `stamp` reads it from a sub-buffer's first bytes: None of one without events.
    /// Those that cannot be jumped to stay as they are.
    fn in_order(&self, page: usize, stamp: &Stamp<'_>) -> Result<Option<Reordered>> {
        let _ = (page, stamp);
        Ok(None)
    }
}

/// When a sub-buffer begins, read from its first bytes.
pub type Stamp<'a> = dyn Fn(&[u8]) -> Option<u64> + 'a;

/// Bytes that hold a sub-buffer's time stamp and commit word.
pub const HEADER: usize = 64;

/// So many sub-buffers after each other without an event are refused: the kernel hands out none.
/// A hole of a terabyte takes no room in a file, but minutes to read.
const MOST_EMPTY: u64 = 1 << 16;

/// Sub-buffers between two looks for a signal.
const STEP: u64 = 1 << 12;

/// The sub-buffers of one CPU, in an order of their own.
pub struct Reordered {
    input: Arc<Input>,
    end: u64,
    page: usize,
    /// Where each begins in the file.
    offsets: Arc<[u64]>,
    next: usize,
    /// Sub-buffers that began before one that stood ahead of them.
    pub moved: usize,
    /// Sub-buffers that stood there twice.
    pub repeated: usize,
}

/// The sub-buffers of the file's bytes `begin..end` in order, if they are not.
pub fn reordered(
    input: &Arc<Input>,
    (begin, end): (u64, u64),
    page: usize,
    stamp: &Stamp<'_>,
) -> Result<Option<Reordered>> {
    let count = (end - begin).div_ceil(page as u64);
    let mut head = [0; HEADER];
    let mut stamp_at = |at: u64| -> Result<Option<u64>> {
        let got = input.read_at(&mut head, at)?;
        Ok((got == HEADER).then(|| stamp(&head)).flatten())
    };
    let offset = |number: u64| begin + number * page as u64;
    let mut last = None;
    let mut in_order = true;
    let mut empty = 0;
    for number in 0..count {
        let stamp = stamp_at(offset(number))?;
        empty = if stamp.is_some() { 0 } else { empty + 1 };
        if number % STEP == 0 {
            check_interrupt()?;
        }
        if empty > MOST_EMPTY {
            return Err(input.wrong(
                offset(number + 1 - empty),
                format!("{empty} sub-buffers after each other without an event"),
                "sub-buffers with events",
            ));
        }
        in_order &= stamp.is_none() || stamp > last;
        last = stamp.or(last);
    }
    if in_order {
        return Ok(None);
    }
    let mut all: Vec<(u64, bool, u64)> = Vec::new();
    for number in 0..count {
        if number % STEP == 0 {
            check_interrupt()?;
        }
        // One without events stays behind the one it follows.
        let (stamp, empty) = match stamp_at(offset(number))? {
            Some(stamp) => (stamp, false),
            None => (all.last().map_or(0, |&(stamp, ..)| stamp), true),
        };
        all.push((stamp, empty, offset(number)));
    }
    all.sort_by_key(|&(stamp, ..)| stamp);
    let before = all.len();
    let digest = |at: u64| -> Result<u64> {
        let mut bytes = vec![0; page];
        let got = input.read_at(&mut bytes, at)?;
        let mut hasher = DefaultHasher::new();
        bytes[..got].hash(&mut hasher);
        Ok(hasher.finish())
    };
    let mut kept: Vec<(u64, bool, u64)> = Vec::with_capacity(before);
    for same in all.chunk_by(|one, next| one.0 == next.0) {
        // A clock that ticks seldom gives several sub-buffers one stamp.
        let mut known = HashSet::new();
        for &one in same {
            if one.1 || same.len() == 1 || known.insert(digest(one.2)?) {
                kept.push(one);
            }
        }
    }
    let repeated = before - kept.len();
    let mut as_they_stood = kept.clone();
    as_they_stood.sort_by_key(|&(.., at)| at);
    let mut latest = 0;
    let moved = as_they_stood.iter().filter(|&&(stamp, empty, _)| {
        let late = !empty && stamp < latest;
        latest = latest.max(stamp);
        late
    });
    let moved = moved.count();
    if moved == 0 && repeated == 0 {
        return Ok(None);
    }
    Ok(Some(Reordered {
        input: Arc::clone(input),
        end,
        page,
        offsets: kept.into_iter().map(|(.., at)| at).collect(),
        next: 0,
        moved,
        repeated,
    }))
}

impl Reordered {
    fn part(&self, from: usize, to: usize) -> Self {
        Self {
            input: Arc::clone(&self.input),
            offsets: self.offsets[from..to].into(),
            next: 0,
            ..*self
        }
    }

    /// Each sub-buffer on its own.
    pub fn each(&self) -> impl Iterator<Item = Self> {
        (0..self.offsets.len()).map(|number| self.part(number, number + 1))
    }
}

impl Pages for Reordered {
    fn fill(&mut self, window: &mut Vec<u8>) -> Result<usize> {
        let Some(&at) = self.offsets.get(self.next) else {
            return Ok(0);
        };
        self.next += 1;
        let wanted = (self.end - at).min(self.page as u64) as usize;
        let old = window.len();
        window.resize(old + wanted, 0);
        let got = self.input.read_at(&mut window[old..], at)?;
        window.truncate(old + got);
        Ok(got)
    }

    fn consumed(&self) -> u64 {
        (self.next * self.page) as u64
    }

    fn total(&self) -> u64 {
        (self.offsets.len() * self.page) as u64
    }

    fn place(&self, at: u64) -> String {
        let number = (at / self.page as u64) as usize;
        let last = self.offsets.last().copied().unwrap_or(0);
        let begin = self.offsets.get(number).copied().unwrap_or(last);
        let inside = at % self.page as u64;
        format!("{}, byte {}", self.input.name(), begin + inside)
    }

    fn head(&self) -> Result<Option<Box<dyn Pages>>> {
        Ok(Some(Box::new(self.part(0, self.offsets.len().min(16)))))
    }

    fn tail(&self, _: usize) -> Result<Option<Box<dyn Pages>>> {
        let count = self.offsets.len();
        Ok(Some(Box::new(self.part(count.saturating_sub(4), count))))
    }

    fn whole(&self) -> Result<Box<dyn Pages>> {
        Ok(Box::new(self.part(0, self.offsets.len())))
    }
}
