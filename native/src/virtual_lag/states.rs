//! The table of states as turns: the end of each row, with what its thread does next.
use super::intervals::{Does, Interval, Table, What};
use super::{QueueState, Tally};
use crate::error::{Error, Result};
use crate::sweep::weights::LEVELS;

/// No row, and no weight.
const NONE: u32 = u32::MAX;
const NO_LEVEL: u8 = u8::MAX;

/// The end of a row, and what its thread does then. There are millions, and their memory is
/// what takes time: three words each.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// ns since the end before.
    after: u32,
    pub utid: u32,
    pub then: Does,
}

impl Ended {
    /// Where more time passes than `after` can say: so many times 2^32 ns.
    fn gap(times: u32) -> Self {
        Self {
            after: 0,
            utid: times,
            then: Does::nothing(What::Gap),
        }
    }

    /// ns since the end before.
    #[inline]
    pub fn since(&self) -> u64 {
        if self.then.what == What::Gap {
            u64::from(self.utid) << 32
        } else {
            u64::from(self.after)
        }
    }

    /// Something happened to the thread: it is no gap, nor did the window close its row.
    #[inline]
    pub fn is_turn(&self) -> bool {
        !matches!(self.then.what, What::Gap | What::Closed)
    }
}

/// The begin of a row that adjoins no other of its thread before it.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    pub ts: i64,
    pub utid: u32,
    pub does: Does,
}

/// What is known of a thread while its rows go by, all of it in one line of the cache.
#[derive(Debug, Clone, Copy)]
struct Thread {
    /// When its last row ended, and where in `ends` that is.
    end: i64,
    at: u32,
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
    at: NONE,
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

/// What the table tells, of all its threads.
pub struct States {
    /// In the order of the table, which is that of time; the first one's is since `FIRST`.
    pub ends: Vec<Ended>,
    /// By time.
    pub starts: Vec<Start>,
    /// By utid.
    threads: Vec<Thread>,
    /// One more than the highest number of a CPU on whose queue anybody is.
    pub ncpus: usize,
    /// Weights by level.
    weights: [i64; LEVELS],
    window: (i64, i64),
    /// The end of the last row, and whether all so far were in order.
    latest: i64,
    in_order: bool,
}

/// From when on the first end is told.
pub const FIRST: i64 = i64::MIN;

impl States {
    pub fn read(table: &Table<'_>, window: (i64, i64)) -> Result<Self> {
        let mut states = Self::new(table, window);
        table.each(|row| states.add(&row))?;
        // In order they are, unless a break in a chain made an interval known late.
        if !states.in_order {
            let mut rows = Vec::new();
            table.each(|row| rows.push(row))?;
            rows.sort_by_key(|row| row.end);
            states = Self::new(table, window);
            rows.iter().for_each(|row| states.add(row));
        }
        if states.ends.len() >= NONE as usize {
            return Err(Error::usage(
                format!("{} intervals", states.ends.len()),
                "fewer than 2^32",
                "cut the trace with --since and --until",
            ));
        }
        states.starts.sort_by_key(|start| start.ts);
        Ok(states)
    }

    fn new(table: &Table<'_>, window: (i64, i64)) -> Self {
        let mut ends = Vec::new();
        // All at once instead of doubled and copied; the system provides what is used. If
        // it does not have so much, it may turn out that less is needed.
        let _ = ends.try_reserve_exact(table.rows.rows());
        Self {
            ends,
            starts: Vec::new(),
            threads: vec![UNSEEN; table.known.len()],
            ncpus: 0,
            weights: table.weights.table,
            window,
            latest: FIRST,
            in_order: true,
        }
    }

    #[inline(always)]
    fn add(&mut self, row: &Interval) {
        self.in_order &= row.end >= self.latest;
        // Out of order it is of no use, but does no harm.
        let since = row.end.wrapping_sub(self.latest).cast_unsigned();
        self.latest = row.end;
        if since >> 32 > 0 {
            self.ends.push(Ended::gap((since >> 32) as u32));
        }
        let thread = &mut self.threads[row.utid as usize];
        thread.count(row, self.window);
        match self.ends.get_mut(thread.at as usize) {
            Some(before) if thread.end == row.ts => {
                if !thread.open {
                    before.then = row.does;
                }
            }
            _ => self.starts.push(Start {
                ts: row.ts,
                utid: row.utid,
                does: row.does,
            }),
        }
        (thread.end, thread.at, thread.open) = (row.end, self.ends.len() as u32, row.open);
        let queues = usize::from(row.does.cpu) + 1;
        let placed = row.does.is_placed();
        self.ncpus = self.ncpus.max(if placed { queues } else { 0 });
        self.ends.push(Ended {
            after: since as u32,
            utid: row.utid,
            // Unless another row adjoins.
            then: Does::nothing(if row.open { What::Closed } else { What::Off }),
        });
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

    /// If thread `t` leaves its queue at the instant `now`, of which the rows from `ahead` on are
    /// yet to come, after an end at `passed`: whether to sleep.
    pub fn leaves(&self, t: u32, now: i64, ahead: usize, passed: i64) -> Option<bool> {
        let mut end = passed;
        let mut yet = self.ends[ahead..].iter().take_while(|row| {
            end = end.wrapping_add_unsigned(row.since());
            end == now
        });
        let row = yet.find(|row| row.utid == t && row.then.what != What::Gap)?;
        match self.doing(row.then) {
            _ if !row.is_turn() => None,
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
            What::Off | What::Closed | What::Gap => QueueState::Off,
            What::Unknown => QueueState::Unknown,
        }
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

    fn read(rows: &[Row]) -> States {
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
        States::read(&table, (0, i64::MAX)).expect("states")
    }

    /// Each end with what its thread does then.
    fn told(states: &States) -> Vec<(i64, u32, QueueState)> {
        let mut now = FIRST;
        let mut turns = Vec::new();
        for row in &states.ends {
            now = now.wrapping_add_unsigned(row.since());
            if row.is_turn() {
                turns.push((now, row.utid, states.doing(row.then)));
            }
        }
        turns
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
            let states = read(&rows);
            assert_eq!(told(&states), plain(&rows, &states));
            let starts = rows
                .iter()
                .filter(|row| !rows.iter().any(|r| (r.1, r.2) == (row.0, row.2)));
            assert_eq!(states.starts.len(), starts.count());
            // Rows that come late are brought into order.
            assert_eq!(told(&read(&late)), told(&states));
        }
    }
}
