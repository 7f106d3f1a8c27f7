//! The table of states as turns: the end of each row, with what its thread does next.
use arrow_array::types::UInt8Type;

use super::{Doing, Known, Tally};
use crate::columns::full;
use crate::error::{Error, Result};
use crate::model::event::End;
use crate::store::python::Source;
use crate::sweep::rows::{NOWHERE, each};
use crate::sweep::weights::{EQUAL, LEVELS, Weights, class_of, level_of};

/// No row.
const NONE: u32 = u32::MAX;

/// Codes of what a row says that its thread does; `Doing` has the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Running,
    Waiting,
    Unplaced,
    Elsewhere,
    Asleep,
    Off,
    Unknown,
    /// Nothing that is known: the window closed the row before.
    Closed,
}

impl What {
    /// Of a code of `State`, in the order of the trace model.
    fn new(state: u8, fair: bool, cpu: u16) -> Self {
        match state {
            0 | 1 if !fair => Self::Elsewhere,
            0 | 1 if cpu == NOWHERE => Self::Unplaced,
            0 => Self::Running,
            1 => Self::Waiting,
            2 | 3 => Self::Asleep,
            4..=6 => Self::Off,
            _ => Self::Unknown,
        }
    }
}

/// What a thread does, on whose queue, and the level of its weight.
#[derive(Debug, Clone, Copy)]
pub struct Does {
    cpu: u16,
    level: u8,
    what: What,
}

/// The table of states, and what is needed to read it.
pub struct Table<'a> {
    pub rows: &'a Source<'a>,
    pub known: &'a [Known],
    pub weights: &'a Weights,
    /// By the number of a class, whether it shares by weight as the fair one does.
    pub fair: &'a [bool],
    /// Threads below are left out.
    pub idle: u32,
}

/// One row of it.
struct Interval {
    ts: i64,
    end: i64,
    utid: u32,
    does: Does,
    /// The window closed it, nothing that happened.
    open: bool,
    /// Its weight is an assumption.
    assumed: bool,
}

impl Table<'_> {
    fn each(&self, mut take: impl FnMut(Interval)) -> Result<()> {
        for batch in self.rows.batches() {
            let batch = batch?;
            let mut ended = full::<UInt8Type>(&batch, "end")?.iter();
            let mut stranger = None;
            each(&batch, 0, true, |row| {
                let open = ended.next() == Some(&(End::Window as u8));
                if row.utid < self.idle {
                    return;
                }
                let known = self.known.get(row.utid as usize);
                if !known.is_some_and(|known| known.listed) {
                    stranger = stranger.or(Some(row.utid));
                    return;
                }
                let tag = self.weights.tag(row.utid, row.prio);
                let level = level_of(tag);
                let fair = self.fair.get(class_of(tag)).copied().unwrap_or(false);
                take(Interval {
                    ts: row.ts,
                    end: row.until,
                    utid: row.utid,
                    does: Does {
                        cpu: row.cpu,
                        level: level as u8,
                        what: What::new(row.state, fair, row.cpu),
                    },
                    open,
                    assumed: level == usize::from(EQUAL),
                });
            })?;
            if let Some(who) = stranger {
                return Err(Error::format(
                    format!("a state of thread {who}, which the table of threads does not have"),
                    "every thread in that table",
                    "convert the trace again",
                ));
            }
        }
        Ok(())
    }
}

/// The end of a row, and what its thread does then.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub end: i64,
    pub utid: u32,
    pub then: Does,
}

impl Ended {
    /// The window closed the row, nothing that happened.
    pub fn is_open(&self) -> bool {
        self.then.what == What::Closed
    }
}

/// The begin of a row that adjoins no other of its thread before it.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    pub ts: i64,
    pub utid: u32,
    pub does: Does,
}

/// What the table tells, of all its threads.
pub struct States {
    /// In the order of the table, which is that of time.
    pub ends: Vec<Ended>,
    /// By time.
    pub starts: Vec<Start>,
    /// By utid: what time its rows are about.
    pub tallies: Vec<Tally>,
    /// By utid, where it has rows: whether its weight was an assumption in any.
    equal: Vec<Option<bool>>,
    /// By utid: the last of its `ends`.
    last: Vec<u32>,
    /// Weights by level.
    weights: [i64; LEVELS],
    window: (i64, i64),
}

impl States {
    pub fn read(table: &Table<'_>, window: (i64, i64)) -> Result<Self> {
        let mut states = Self::new(table, window);
        let (mut latest, mut in_order) = (i64::MIN, true);
        table.each(|row| {
            in_order &= row.end >= latest;
            latest = row.end;
            states.add(&row);
        })?;
        // In order they are, unless a break in a chain made an interval known late.
        if !in_order {
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
        let n = table.known.len();
        Self {
            ends: Vec::new(),
            starts: Vec::new(),
            tallies: vec![Tally::default(); n],
            equal: vec![None; n],
            last: vec![NONE; n],
            weights: table.weights.table,
            window,
        }
    }

    fn add(&mut self, row: &Interval) {
        let who = row.utid as usize;
        *self.equal[who].get_or_insert(false) |= row.assumed;
        self.count(row);
        let last = std::mem::replace(&mut self.last[who], self.ends.len() as u32);
        match self.ends.get_mut(last as usize) {
            Some(before) if before.end == row.ts => {
                if !before.is_open() {
                    before.then = row.does;
                }
            }
            _ => self.starts.push(Start {
                ts: row.ts,
                utid: row.utid,
                does: row.does,
            }),
        }
        self.ends.push(Ended {
            end: row.end,
            utid: row.utid,
            // Unless another row adjoins.
            then: Does {
                cpu: NOWHERE,
                level: 0,
                what: if row.open { What::Closed } else { What::Off },
            },
        });
    }

    /// Time that a row is about, for the thread's account.
    fn count(&mut self, row: &Interval) {
        let (begin, end) = self.window;
        let dur = (row.end.min(end) - row.ts.max(begin)).max(0);
        let tally = &mut self.tallies[row.utid as usize];
        tally.seen = true;
        match row.does.what {
            What::Running | What::Waiting => {
                tally.competed += dur;
                tally.weight = Some(self.weights[usize::from(row.does.level)]);
            }
            What::Unplaced => {
                tally.unplaced += dur;
                tally.n_excluded += 1;
            }
            What::Unknown => tally.n_excluded += 1,
            What::Elsewhere | What::Asleep | What::Off | What::Closed => {}
        }
    }

    /// If thread `t` leaves its queue at the instant `now`, of which the rows from `ahead` on are
    /// yet to come: whether to sleep.
    pub fn leaves(&self, t: u32, now: i64, ahead: usize) -> Option<bool> {
        let mut yet = self.ends[ahead..].iter().take_while(|row| row.end == now);
        let row = yet.find(|row| row.utid == t)?;
        match self.doing(row.then) {
            _ if row.is_open() => None,
            Doing::Running { .. } | Doing::Waiting { .. } => None,
            then => Some(then == Doing::Asleep),
        }
    }

    /// By utid, where it has rows: whether its weight was an assumption in any.
    pub fn equal(&self) -> Vec<(u32, bool)> {
        let known = (0..).zip(&self.equal);
        known
            .filter_map(|(utid, equal)| Some((utid, (*equal)?)))
            .collect()
    }

    pub fn doing(&self, Does { cpu, level, what }: Does) -> Doing {
        let weight = self.weights[usize::from(level)];
        match what {
            What::Running => Doing::Running { cpu, weight },
            What::Waiting => Doing::Waiting { cpu, weight },
            What::Unplaced => Doing::Unplaced,
            What::Elsewhere => Doing::Elsewhere,
            What::Asleep => Doing::Asleep,
            What::Off | What::Closed => Doing::Off,
            What::Unknown => Doing::Unknown,
        }
    }
}
