//! How did the wait begin that a thread is in, for a sweep that asks as it goes?
//!
//! The ledger has a wait where it ended. A first reading finds out how long all but a few waits
//! are, and keeps those few; the others are read again as the sweep comes near them, and are held
//! until it has passed.
use std::collections::VecDeque;

use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, RecordBatch};

use crate::columns::{column, full};
use crate::error::{Error, Result};
use crate::store::Source;

/// One wait: its number among the thread's, when it began (ns after the start of the window), and
/// its cause's code.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    pub number: usize,
    pub ready: i64,
    pub cause: u8,
}

/// Ready and cause in one number: a sweep comes by all threads' waits in turn, and the closer
/// they are, the fewer times it has to fetch them.
#[derive(Debug, Clone, Copy)]
struct Packed(i64);

impl Packed {
    fn new(ready: i64, cause: u8) -> Self {
        // Farther off than 36 years is no time of a trace.
        let ready = ready.clamp(-1 << 60, (1 << 60) - 1);
        Self(ready << 3 | i64::from(cause & 7))
    }

    fn ready(self) -> i64 {
        self.0 >> 3
    }

    fn cause(self) -> u8 {
        (self.0 & 7) as u8
    }
}

/// Waits that are kept, however long they are: 24 MB while they are sought.
const KEPT: usize = 1 << 20;
/// Of a ledger of no more rows than this all are kept, for 100 MB, and it is read once.
const SHORT: usize = 1 << 22;
/// Waits of one thread that were not requested yet, dropped once they are past.
const UNASKED: usize = 32;

/// A row of the ledger with a recorded start.
#[derive(Clone, Copy)]
struct Row {
    utid: u32,
    wait: Packed,
    /// How long it is, as a number of bits, and one more: no wait has less than one.
    bits: u32,
}

/// As `bits` of a row, one without a recorded end.
const ENDLESS: u32 = u64::BITS + 1;

/// Disjoint stretches of time that requests fall into, in order. Needed are the waits in them, and
/// of each thread the last one that started before each.
struct Stretches<'s> {
    all: &'s [(i64, i64)],
    /// The first that ends after the wait at hand began, or then: mostly it is that of the next.
    open: usize,
    /// By utid, the last wait that is in none of them, and the stretch that comes after it.
    before: Vec<Option<(Row, usize)>>,
}

impl<'s> Stretches<'s> {
    fn new(all: &'s [(i64, i64)], threads: usize) -> Self {
        Self {
            all,
            open: 0,
            before: vec![None; threads],
        }
    }

    /// A row of the ledger, of a wait that goes on until then: calls `take` with those that turn
    /// out to be asked for.
    fn row(&mut self, row: Row, until: i64, mut take: impl FnMut(Row)) {
        let ready = row.wait.ready();
        let ended = |at: usize| self.all.get(at).is_some_and(|(_, end)| *end < ready);
        if ended(self.open) || (self.open > 0 && !ended(self.open - 1)) {
            self.open = self.all.partition_point(|(_, end)| *end < ready);
        }
        let begin = self
            .all
            .get(self.open)
            .map_or(i64::MAX, |(begin, _)| *begin);
        let after = self.open + usize::from(begin <= ready);
        let within = begin <= until && self.open < self.all.len();
        let last = &mut self.before[row.utid as usize];
        let other = last.filter(|(_, then)| *then != after);
        match last {
            // It comes late.
            Some((last, _)) if last.wait.ready() > ready => {
                if within || other.is_some() {
                    take(row);
                }
                return;
            }
            _ => {}
        }
        if let Some((other, _)) = other {
            take(other);
        }
        *last = (!within).then_some((row, after));
        if within {
            take(row);
        }
    }

    /// There are no more rows.
    fn finish(self, take: impl FnMut(Row)) {
        let last = self.before.into_iter().flatten();
        let asked = last.filter(|(_, after)| *after < self.all.len());
        asked.map(|(row, _)| row).for_each(take);
    }
}

/// Waits of one thread by the time they began.
#[derive(Default)]
struct OfThread {
    kept: Vec<Packed>,
    /// Where in `kept` the next one is.
    at: usize,
    coming: VecDeque<Packed>,
    /// How many began at the last instant asked for or before, and the last of them.
    past: usize,
    last: Option<Packed>,
}

impl OfThread {
    fn push(&mut self, wait: Packed) {
        // Of threads that wait once at a time they come in order.
        if self
            .coming
            .back()
            .is_some_and(|last| last.ready() > wait.ready())
        {
            let at = self
                .coming
                .partition_point(|one| one.ready() <= wait.ready());
            self.coming.insert(at, wait);
        } else {
            self.coming.push_back(wait);
        }
    }

    #[inline]
    fn advance(&mut self, t: i64) {
        loop {
            let kept = self
                .kept
                .get(self.at)
                .copied()
                .filter(|wait| wait.ready() <= t);
            let next = self
                .coming
                .front()
                .copied()
                .filter(|wait| wait.ready() <= t);
            self.last = match (kept, next) {
                // Of two that began at once the shorter one is first in the ledger.
                (Some(kept), Some(next)) if next.ready() <= kept.ready() => self.coming.pop_front(),
                (Some(kept), _) => {
                    self.at += 1;
                    Some(kept)
                }
                (None, Some(_)) => self.coming.pop_front(),
                (None, None) => return,
            };
            self.past += 1;
        }
    }

    fn rewind(&mut self) {
        self.coming.clear();
        (self.at, self.past, self.last) = (0, 0, None);
    }
}

/// How many waits are kept.
fn most(ledger: &Source<'_>) -> usize {
    if ledger.rows() <= SHORT { SHORT } else { KEPT }
}

/// Goes through the waits of the threads that are asked for; times in ns after the start of the
/// window.
pub struct WaitCursor<'a> {
    ledger: &'a Source<'a>,
    begin: i64,
    /// By utid: whether anybody asks for the thread.
    wanted: Vec<bool>,
    /// By utid: causes of its waits, a bit for each.
    causes: Vec<u8>,
    /// Waits of more bits are kept: at first all.
    bits: u32,
    /// For each part of the ledger: when it has to be read at the latest, with those after it.
    due: Vec<i64>,
    next: usize,
    of: Vec<OfThread>,
    failed: Option<Error>,
}

impl<'a> WaitCursor<'a> {
    /// Of `ledger` (utid, ts_ready, cause, ts_run) the waits with a recorded start, of threads that
    /// are `wanted`.
    pub fn new(ledger: &'a Source<'a>, begin: i64, wanted: Vec<bool>) -> Result<Self> {
        Self::keeping(most(ledger), ledger, begin, wanted, None)
    }

    /// The same for a sweep to which only those waits matter that are going on in one of some
    /// `stretches` of time, in order: each with its end, ns after the start of the window.
    pub fn within(
        ledger: &'a Source<'a>,
        begin: i64,
        wanted: Vec<bool>,
        stretches: &[(i64, i64)],
    ) -> Result<Self> {
        Self::keeping(most(ledger), ledger, begin, wanted, Some(stretches))
    }

    fn keeping(
        most: usize,
        ledger: &'a Source<'a>,
        begin: i64,
        wanted: Vec<bool>,
        stretches: Option<&[(i64, i64)]>,
    ) -> Result<Self> {
        let mut cursor = Self {
            ledger,
            begin,
            causes: vec![0; wanted.len()],
            of: Vec::new(),
            wanted,
            bits: 0,
            due: Vec::new(),
            next: 0,
            failed: None,
        };
        let threads = cursor.wanted.len();
        cursor.of.resize_with(threads, OfThread::default);
        let mut stretches = stretches.map(|all| Stretches::new(all, threads));
        let mut kept: Vec<Row> = Vec::new();
        // Of each part the first begin of any wait, by how long that is.
        let mut first = Vec::new();
        for part in 0..ledger.parts() {
            let mut by_bits = [i64::MAX; ENDLESS as usize + 1];
            for batch in ledger.part(part)? {
                let bits = cursor.bits;
                cursor.rows(&batch, |causes, row, until| {
                    causes[row.utid as usize] |= 1 << row.wait.cause();
                    // Of all of them: all short ones are going to be read.
                    let first = &mut by_bits[row.bits as usize];
                    *first = row.wait.ready().min(*first);
                    let mut take = |row: Row| {
                        if row.bits > bits {
                            kept.push(row);
                        }
                    };
                    match &mut stretches {
                        Some(stretches) => stretches.row(row, until, take),
                        None => take(row),
                    }
                })?;
                while kept.len() > most && cursor.bits < ENDLESS {
                    cursor.bits += 1;
                    kept.retain(|row| row.bits > cursor.bits);
                }
            }
            first.push(by_bits);
        }
        if let Some(stretches) = stretches {
            stretches.finish(|row| {
                if row.bits > cursor.bits {
                    kept.push(row);
                }
            });
        }
        let mut due = i64::MAX;
        for by_bits in first.iter().rev() {
            let short = by_bits.iter().take(cursor.bits as usize + 1);
            due = short.fold(due, |first, ready| first.min(*ready));
            cursor.due.push(due);
        }
        cursor.due.reverse();
        for row in kept {
            cursor.of[row.utid as usize].kept.push(row.wait);
        }
        for thread in &mut cursor.of {
            thread.kept.sort_by_key(|wait| wait.ready());
            thread.kept.shrink_to_fit();
        }
        Ok(cursor)
    }

    /// Hands out the rows of threads that are wanted, with the causes of all, and when each wait
    /// ended.
    fn rows(
        &mut self,
        batch: &RecordBatch,
        mut take: impl FnMut(&mut [u8], Row, i64),
    ) -> Result<()> {
        crate::hooks::check_interrupt()?;
        let (utid, cause) = (
            full::<UInt32Type>(batch, "utid")?,
            full::<UInt8Type>(batch, "cause")?,
        );
        let ready = column::<Int64Type>(batch, "ts_ready")?;
        let ran = column::<Int64Type>(batch, "ts_run")?;
        for i in 0..batch.num_rows() {
            if ready.is_null(i)
                || !self
                    .wanted
                    .get(utid[i] as usize)
                    .is_some_and(|wanted| *wanted)
            {
                continue;
            }
            let ready = ready.value(i);
            // The length of those without a recorded end is unknown.
            let (until, bits) = if ran.is_valid(i) {
                let long = ran.value(i).saturating_sub(ready).max(0) as u64;
                let until = ran.value(i).saturating_sub(self.begin);
                (until, ENDLESS - long.leading_zeros())
            } else {
                (i64::MAX, ENDLESS)
            };
            let row = Row {
                utid: utid[i],
                wait: Packed::new(ready.saturating_sub(self.begin), cause[i]),
                bits,
            };
            take(&mut self.causes, row, until);
        }
        Ok(())
    }

    /// Reads a part before the sweep is at `t`.
    #[cold]
    fn read(&mut self, t: i64) -> Result<()> {
        let (part, bits) = (self.next, self.bits);
        self.next += 1;
        let mut of = std::mem::take(&mut self.of);
        for batch in self.ledger.part(part)? {
            self.rows(&batch, |_, row, _| {
                if row.bits <= bits {
                    let thread = &mut of[row.utid as usize];
                    thread.push(row.wait);
                    if thread.coming.len() > UNASKED {
                        thread.advance(t - 1);
                    }
                }
            })?;
        }
        self.of = of;
        Ok(())
    }

    /// The last wait of a wanted thread to begin at `t` or before; instants are asked for in order
    /// of time.
    #[inline]
    pub fn next(&mut self, utid: u32, t: i64) -> Option<Wait> {
        while self.due.get(self.next).is_some_and(|due| *due <= t) {
            if let Err(error) = self.read(t) {
                self.failed.get_or_insert(error);
                self.next = self.due.len();
            }
        }
        let thread = self.of.get_mut(utid as usize)?;
        thread.advance(t);
        let last = thread.last?;
        Some(Wait {
            number: thread.past - 1,
            ready: last.ready(),
            cause: last.cause(),
        })
    }

    /// Starts again with `next`, for these of the initially requested threads.
    pub fn rewind(&mut self, wanted: impl Fn(u32) -> bool) -> Result<()> {
        self.check()?;
        self.next = 0;
        self.of.iter_mut().for_each(OfThread::rewind);
        for (utid, asked) in (0..).zip(&mut self.wanted) {
            *asked = wanted(utid);
        }
        Ok(())
    }

    /// Raises what kept the ledger from being read.
    pub fn check(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Causes of a thread's waits, a bit for each.
    pub fn causes(&self, utid: u32) -> u8 {
        self.causes.get(utid as usize).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::random_states::{ledger, random};
    use super::*;

    /// The same by a look at all waits: ready and cause.
    fn plain(waits: &[(u32, i64, u8)], utid: u32, t: i64) -> Option<(i64, u8)> {
        let own = waits.iter().filter(|wait| wait.0 == utid && wait.1 <= t);
        // Of equals, `max_by_key` takes the last.
        own.max_by_key(|wait| wait.1).map(|wait| (wait.1, wait.2))
    }

    #[test]
    fn how_many_are_kept_changes_nothing() {
        let mut found = 0;
        for seed in 0..60 {
            let mut random = random(seed);
            let mut at = [0; 4];
            // Each thread waits once at a time: (until, utid, ready, cause).
            let mut waits: Vec<(i64, u32, i64, u8)> = (0..200)
                .map(|_| {
                    let utid = random(4);
                    let ready = at[utid as usize] + i64::from(random(4));
                    let bits = random(9);
                    let until = ready + i64::from(random(1 << bits)) + 1;
                    at[utid as usize] = until;
                    (until, utid, ready, random(5) as u8)
                })
                .collect();
            waits.sort_by_key(|wait| (wait.0, wait.2));
            let rows: Vec<_> = waits.iter().map(|wait| (wait.1, wait.2, wait.3)).collect();
            let batches = waits.chunks(7).map(|waits| {
                let rows = waits
                    .iter()
                    .map(|wait| (wait.1, wait.2, wait.3, wait.0 - wait.2));
                ledger(&rows.collect::<Vec<_>>())
            });
            let source = Source::Held("waits", batches.collect());
            for most in [0, 1, 20, 1000] {
                let mut cursor =
                    WaitCursor::keeping(most, &source, 0, vec![true; 3], None).expect("a ledger");
                for _ in 0..2 {
                    let mut numbers = [None; 4];
                    for t in 0..=waits.last().map_or(0, |wait| wait.0) {
                        for utid in (0..4).filter(|utid| (t + i64::from(*utid)) % 3 > 0) {
                            let wait = cursor.next(utid, t);
                            let told = wait.map(|wait| (wait.ready, wait.cause));
                            let expected = plain(&rows, utid, t).filter(|_| utid < 3);
                            assert_eq!(told, expected, "{seed} {most} {utid} {t}");
                            let number = wait.map(|wait| wait.number);
                            assert!(number >= numbers[utid as usize]);
                            numbers[utid as usize] = number;
                            found += usize::from(told.is_some());
                        }
                    }
                    let held = cursor.of.iter().map(|thread| thread.coming.len());
                    assert_eq!(held.sum::<usize>(), 0);
                    cursor.rewind(|_| true).expect("it was read");
                }
            }
        }
        assert!(found > 1000, "{found}");
    }

    #[test]
    fn what_is_asked_for_in_some_stretches_only_is_as_if_it_were_asked_for_at_any_time() {
        let (mut found, mut fewer) = (0, 0);
        for seed in 0..200 {
            let mut random = random(seed);
            let (mut at, mut waits) = ([0; 3], Vec::new());
            for _ in 0..60 {
                let utid = random(3);
                let ready = at[utid as usize] + i64::from(random(6));
                let until = ready + i64::from(random(9));
                at[utid as usize] = until;
                waits.push((until, utid, ready, random(5) as u8));
            }
            waits.sort_by_key(|wait| (wait.0, wait.2));
            let rows = waits
                .iter()
                .map(|wait| (wait.1, wait.2, wait.3, wait.0 - wait.2));
            let batch = ledger(&rows.collect::<Vec<_>>());
            let source = Source::Held("waits", vec![batch]);
            let (mut stretches, mut t) = (Vec::new(), 0);
            for _ in 0..random(5) {
                let begin = t + i64::from(random(25));
                t = begin + 1 + i64::from(random(12));
                stretches.push((begin, t - 1));
            }
            for most in [0, 2, 1000] {
                let cursor = |stretches| {
                    WaitCursor::keeping(most, &source, 0, vec![true; 3], stretches).expect("waits")
                };
                let (mut all, mut few) = (cursor(None), cursor(Some(&stretches)));
                let kept = |cursor: &WaitCursor<'_>| -> usize {
                    cursor.of.iter().map(|thread| thread.kept.len()).sum()
                };
                if most > waits.len() {
                    fewer += kept(&all) - kept(&few);
                }
                for now in 0..200 {
                    for utid in 0..3 {
                        let told = [&mut all, &mut few].map(|cursor| {
                            let wait = cursor.next(utid, now);
                            wait.map(|wait| (wait.ready, wait.cause))
                        });
                        if stretches
                            .iter()
                            .any(|(begin, end)| (*begin..=*end).contains(&now))
                        {
                            assert_eq!(told[0], told[1], "{seed} {most} {utid} {now}");
                            found += usize::from(told[0].is_some());
                        }
                    }
                }
            }
        }
        assert!(found > 1000 && fewer > 1000, "{found} {fewer}");
    }
}
