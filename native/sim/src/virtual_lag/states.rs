//! The table of states as turns: the end of each row, with what its thread does next.
//!
//! What comes next stands in a later row of the table. Of a table that is too long for a list of
//! all ends to be held it is read twice, as in `sweep::changes::blocks`: the replay hears of a
//! block of ends at a time, and what follows the last of a thread in a block was noted by the first
//! reading.
use super::intervals::{Does, Interval, Table, What};
use super::{QueueState, Tally};
use crate::error::Result;
use crate::sweep::changes::LATE;
use crate::sweep::changes::blocks::{Links, ROWS, changed};
use crate::sweep::history::HELD;
use crate::sweep::list::{self, Change, List};
use crate::sweep::weights::LEVELS;

const NO_LEVEL: u8 = u8::MAX;

/// Something happened to the thread: the window did not just close its row.
#[inline]
pub fn is_turn(then: Does) -> bool {
    then.what != What::Closed
}

/// The begin of a row that adjoins no other of its thread before it.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    pub ts: i64,
    pub utid: u32,
    pub does: Does,
    /// When the row ends.
    end: i64,
}

/// What is known of a thread while its rows go by, all of it in one line of the cache.
#[derive(Debug, Clone, Copy)]
struct Thread {
    /// When its last row ended, and where in the list of ends, or with `LATE` in that of late ones.
    end: i64,
    at: usize,
    /// The window closed that row.
    open: bool,
    seen: bool,
    /// Its weight was an assumption in any.
    assumed: bool,
    /// Of its weight as last known.
    level: u8,
    competed: i64,
    unplaced: i64,
    n_excluded: u32,
}

const UNSEEN: Thread = Thread {
    end: i64::MIN,
    at: usize::MAX,
    open: false,
    seen: false,
    assumed: false,
    level: NO_LEVEL,
    competed: 0,
    unplaced: 0,
    n_excluded: 0,
};

impl Thread {
    /// A row's time, for the thread's account. Without a branch on what it does, as in `What::new`.
    #[inline]
    fn count(&mut self, row: &Interval, (begin, end): (i64, i64)) {
        let dur = (row.end.min(end) - row.ts.max(begin)).max(0);
        let (placed, unplaced) = (row.does.is_placed(), row.does.what == What::Unplaced);
        self.seen = true;
        self.assumed |= row.assumed;
        self.competed += if placed { dur } else { 0 };
        self.unplaced += if unplaced { dur } else { 0 };
        self.level = if placed { row.does.level } else { self.level };
        self.n_excluded += u32::from(unplaced | (row.does.what == What::Unknown));
    }
}

/// Goes through the rows.
struct Reader {
    /// The ends of the block at hand, in order of time.
    ends: List,
    /// How many were in blocks before.
    base: usize,
    /// Ends whose rows come after those of later ones: a break in a chain made an interval known
    /// late.
    late: Vec<Change>,
    starts: Vec<Start>,
    /// By utid.
    threads: Vec<Thread>,
    /// One more than the highest number of a CPU on whose queue anybody is.
    ncpus: usize,
    links: Links,
    window: (i64, i64),
    /// The end of the last row that was not late.
    latest: i64,
    /// Rows of each thread were in order of time so far.
    in_order: bool,
    /// Ends in a block, at least: those of one instant stay together.
    rows: usize,
}

impl Reader {
    fn new(table: &Table<'_>, window: (i64, i64), rows: usize) -> Self {
        let mut ends = List::new();
        let room = table.rows.rows();
        // A few more, for the gaps. Memory that is not written to costs nothing.
        ends.reserve((room + room / 64).min(rows));
        let mut links = Links::default();
        links.begin(0);
        Self {
            ends,
            base: 0,
            late: Vec::new(),
            starts: Vec::new(),
            threads: vec![UNSEEN; table.known.len()],
            ncpus: 0,
            links,
            window,
            latest: i64::MIN,
            in_order: true,
            rows,
        }
    }

    /// Whether the row begins the next block: then the one at hand is to be taken first.
    #[inline]
    fn is_full(&self, row: &Interval) -> bool {
        self.ends.len() >= self.rows && row.end > self.latest
    }

    fn next_block(&mut self) {
        self.base += self.ends.len();
        self.ends.clear();
        self.links.begin(self.base);
    }

    #[inline(always)]
    fn add(&mut self, row: &Interval) {
        let thread = &mut self.threads[row.utid as usize];
        self.in_order &= row.end >= thread.end;
        thread.count(row, self.window);
        if thread.at == usize::MAX || thread.end != row.ts {
            self.starts.push(Start {
                ts: row.ts,
                utid: row.utid,
                does: row.does,
                end: row.end,
            });
        } else if !thread.open {
            let (at, then) = (thread.at, row.does.pack());
            match self.ends.get_to(at.wrapping_sub(self.base)) {
                Some(to) => *to = then,
                None if at & LATE == 0 => self.links.note(at, then),
                None => self.late[at & !LATE].to = then,
            }
        }
        let queues = usize::from(row.does.cpu) + 1;
        let placed = row.does.is_placed();
        self.ncpus = self.ncpus.max(if placed { queues } else { 0 });
        let end = Change {
            t: row.end,
            utid: row.utid,
            // Unless another row adjoins.
            to: Does::nothing(if row.open { What::Closed } else { What::Off }).pack(),
        };
        let thread = &mut self.threads[row.utid as usize];
        (thread.end, thread.open) = (row.end, row.open);
        thread.at = if row.end >= self.latest {
            self.latest = row.end;
            self.base + self.ends.push(end)
        } else {
            self.late.push(end);
            LATE | (self.late.len() - 1)
        };
    }
}

/// The content of the table, for all its threads.
pub struct States {
    /// By time.
    pub starts: Vec<Start>,
    /// One more than the highest number of a CPU on whose queue anybody is.
    pub ncpus: usize,
    /// All ends but the late ones, or what to know when they are read again.
    ends: Ends,
    late: Vec<Change>,
    threads: Vec<Thread>,
    /// Weights by level.
    weights: [i64; LEVELS],
    window: (i64, i64),
}

enum Ends {
    Held(List),
    Again { links: Links, rows: usize },
}

impl States {
    pub fn read(table: &Table<'_>, window: (i64, i64)) -> Result<Self> {
        let long = table.rows.on_disk().is_some() && table.rows.rows() > HELD;
        Self::in_blocks(table, window, if long { ROWS } else { usize::MAX })
    }

    /// The same, with so many ends held at a time.
    fn in_blocks(table: &Table<'_>, window: (i64, i64), rows: usize) -> Result<Self> {
        let mut reader = Reader::new(table, window, rows);
        let mut blocks = 1;
        table.each(|row| {
            if reader.is_full(&row) {
                reader.next_block();
                blocks += 1;
            }
            reader.add(&row);
            Ok(())
        })?;
        // Those of a thread are in order in all that `convert` writes.
        if !reader.in_order {
            let mut all = Vec::new();
            table.each(|row| {
                all.push(row);
                Ok(())
            })?;
            all.sort_by_key(|row| row.end);
            (reader, blocks) = (Reader::new(table, window, usize::MAX), 1);
            all.iter().for_each(|row| reader.add(row));
        }
        let Reader {
            ends,
            mut late,
            mut starts,
            threads,
            ncpus,
            links,
            ..
        } = reader;
        late.sort_by_key(|end| end.t);
        starts.sort_by_key(|start| (start.ts, start.end));
        Ok(Self {
            starts,
            ncpus,
            ends: if blocks == 1 {
                Ends::Held(ends)
            } else {
                Ends::Again { links, rows }
            },
            late,
            threads,
            weights: table.weights.table,
            window,
        })
    }

    /// Hands `take` all ends, some at a time; those of one instant at once.
    pub fn each(&self, table: &Table<'_>, mut take: impl FnMut(Turns<'_>)) -> Result<()> {
        let mut late = &self.late[..];
        let mut take = |ends: &List| {
            let due = late.partition_point(|end| end.t <= ends.latest());
            let (now, rest) = late.split_at(due);
            late = rest;
            take(Turns {
                ends: ends.iter(),
                late: now,
            });
        };
        let (links, rows) = match &self.ends {
            Ends::Held(ends) => {
                take(ends);
                return Ok(());
            }
            Ends::Again { links, rows } => (links, *rows),
        };
        let mut links = links.by_block();
        let mut reader = Reader::new(table, self.window, rows);
        let mut block = |reader: &mut Reader| {
            for (at, then) in links.next().ok_or_else(changed)? {
                let to = reader.ends.get_to(*at as usize);
                *to.ok_or_else(changed)? = *then;
            }
            take(&reader.ends);
            reader.starts.clear();
            reader.next_block();
            Ok(())
        };
        table.each(|row| {
            if reader.is_full(&row) {
                block(&mut reader)?;
            }
            reader.add(&row);
            Ok(())
        })?;
        block(&mut reader)
    }

    /// By utid, what time its rows are about.
    pub fn tallies(&self) -> Vec<Tally> {
        let tally = |thread: &Thread| Tally {
            seen: thread.seen,
            weight: self.weights.get(usize::from(thread.level)).copied(),
            competed: thread.competed,
            unplaced: thread.unplaced,
            n_excluded: thread.n_excluded,
            ..Tally::default()
        };
        self.threads.iter().map(tally).collect()
    }

    /// If thread `t` leaves its queue at the instant `now`, of which `ahead` is yet to come:
    /// whether to sleep.
    pub fn leaves(&self, t: u32, now: i64, ahead: &Turns<'_>) -> Option<bool> {
        let mut yet = ahead.clone().take_while(|(end, ..)| *end == now);
        let (_, _, then) = yet.find(|(_, utid, _)| *utid == t)?;
        match self.doing(then) {
            _ if !is_turn(then) => None,
            QueueState::Running { .. } | QueueState::Waiting { .. } => None,
            then => Some(then == QueueState::Asleep),
        }
    }

    /// By utid, where it has rows: whether its weight was an assumption in any.
    pub fn equal(&self) -> Vec<(u32, bool)> {
        let seen = (0..).zip(&self.threads).filter(|(_, of)| of.seen);
        seen.map(|(utid, of)| (utid, of.assumed)).collect()
    }

    pub fn doing(&self, Does { cpu, level, what }: Does) -> QueueState {
        let weight = self.weights[usize::from(level)];
        match what {
            What::Running => QueueState::Running { cpu, weight },
            What::Waiting => QueueState::Waiting { cpu, weight },
            What::Unplaced => QueueState::Unplaced,
            What::Elsewhere => QueueState::Elsewhere,
            What::Asleep => QueueState::Asleep,
            What::Off | What::Closed => QueueState::Off,
            What::Unknown => QueueState::Unknown,
        }
    }
}

/// Ends in order of time, of which the late ones come last at their instant: when, whose, and what
/// the thread does then.
#[derive(Clone)]
pub struct Turns<'a> {
    ends: list::Iter<'a>,
    late: &'a [Change],
}

impl Iterator for Turns<'_> {
    type Item = (i64, u32, Does);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let end = match self.late.split_first() {
            None => self.ends.next()?,
            Some((late, rest)) => match self.ends.clone().next() {
                Some(end) if end.t <= late.t => self.ends.next()?,
                _ => {
                    self.late = rest;
                    *late
                }
            },
        };
        Some((end.t, end.utid, Does::unpack(end.to)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int16Array, Int64Array, RecordBatch, UInt8Array};
    use arrow_array::{UInt16Array, UInt32Array};

    use super::super::FairThread;
    use super::*;
    use crate::model::event::End;
    use crate::store::Source;
    use crate::sweep::weights::Weights;

    /// Begin, end, thread, state.
    type Row = (i64, i64, u32, u8);

    fn batch(rows: &[Row]) -> RecordBatch {
        let columns: [(&str, ArrayRef); 7] = [
            (
                "ts",
                Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))),
            ),
            (
                "dur",
                Arc::new(Int64Array::from_iter_values(
                    rows.iter().map(|row| row.1 - row.0),
                )),
            ),
            (
                "utid",
                Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.2))),
            ),
            (
                "state",
                Arc::new(UInt8Array::from_iter_values(rows.iter().map(|row| row.3))),
            ),
            (
                "cpu",
                Arc::new(rows.iter().map(|_| Some(3)).collect::<UInt16Array>()),
            ),
            (
                "prio",
                Arc::new(rows.iter().map(|_| None).collect::<Int16Array>()),
            ),
            (
                "end",
                Arc::new(UInt8Array::from_iter_values(
                    rows.iter().map(|_| End::Switched as u8),
                )),
            ),
        ];
        RecordBatch::try_from_iter(columns).expect("a batch")
    }

    /// What the rows say, and each end with what its thread does then, held so many at a time.
    fn read(rows: &[Row], held: usize) -> (States, Vec<(i64, u32, QueueState)>) {
        let known = [FairThread {
            listed: true,
            ..FairThread::default()
        }; 4];
        let table = Table {
            rows: &Source::Held("states", vec![batch(rows)]),
            known: &known,
            weights: &Weights::equal(),
            fair: &[true],
            idle: 0,
        };
        let states = States::in_blocks(&table, (0, i64::MAX), held).expect("states");
        let (mut told, mut last) = (Vec::new(), None);
        let take = |turns: Turns<'_>| {
            let turns: Vec<_> = turns.collect();
            // An instant is never in two blocks.
            assert!(turns.first().is_none_or(|first| Some(first.0) > last));
            last = turns.last().map(|turn| turn.0).or(last);
            let turns = turns.iter().filter(|(_, _, then)| is_turn(*then));
            told.extend(turns.map(|(t, utid, then)| (*t, *utid, states.doing(*then))));
        };
        states.each(&table, take).expect("turns");
        (states, told)
    }

    /// The same by a look at all rows.
    fn plain(rows: &[Row], states: &States) -> Vec<(i64, u32, QueueState)> {
        let then = |end: i64, utid: u32| {
            let next = rows.iter().find(|row| row.0 == end && row.2 == utid);
            let what = next.map_or(What::Off, |row| What::new(row.3, true, 3));
            states.doing(Does {
                cpu: 3,
                level: 0,
                what,
            })
        };
        let turns = rows.iter().map(|row| (row.1, row.2, then(row.1, row.2)));
        turns.collect()
    }

    #[test]
    fn turns_are_what_the_rows_say_however_far_apart() {
        let mut seed = 3u64;
        let mut any = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for _ in 0..100 {
            let mut rows: Vec<Row> = Vec::new();
            for utid in 0..4 {
                let mut ts = any(1 << 20).cast_signed() - (1 << 19);
                for _ in 0..any(20) {
                    let bits = 1 + any(45);
                    let dur = (1 + any(1 << bits.min(30)).cast_signed()) << bits.saturating_sub(30);
                    // Now and then something is missing.
                    ts += i64::from(any(5) == 0);
                    rows.push((ts, ts + dur, utid, any(9) as u8));
                    ts += dur;
                }
            }
            let late = rows.clone();
            rows.sort_by_key(|row| row.1);
            let (states, told) = read(&rows, usize::MAX);
            assert_eq!(told, plain(&rows, &states));
            let starts = rows
                .iter()
                .filter(|row| !rows.iter().any(|r| (r.1, r.2) == (row.0, row.2)));
            assert_eq!(states.starts.len(), starts.count());
            // Rows that come late are brought into order, those of one thread, too.
            let mut mixed = rows.clone();
            for _ in 0..any(20) * u64::from(!rows.is_empty()) {
                let (from, to) = (any(rows.len() as u64), any(rows.len() as u64));
                mixed.swap(from as usize, to as usize);
            }
            for rows in [&rows, &late, &mixed] {
                for held in [1, 7, usize::MAX] {
                    let (other, again) = read(rows, held);
                    assert_eq!(again, told);
                    let starts = |of: &States| -> Vec<_> {
                        let starts = of.starts.iter();
                        starts
                            .map(|start| (start.ts, start.end, start.utid))
                            .collect()
                    };
                    assert_eq!(starts(&other), starts(&states));
                }
            }
        }
    }
}
