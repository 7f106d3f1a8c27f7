//! The table of states, row by row, each with what its thread does next.
use arrow_array::Array;
use arrow_array::types::{Int16Type, Int64Type, UInt8Type, UInt16Type, UInt32Type};

use super::{Doing, Known, Row};
use crate::columns::{column, full};
use crate::error::{Error, Result};
use crate::model::event::End;
use crate::store::python::Source;
use crate::sweep::pulse;
use crate::sweep::rows::NOWHERE;
use crate::sweep::weights::{EQUAL, Weights, class_of, level_of};

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
struct Does {
    cpu: u16,
    level: u8,
    what: What,
}

/// Where nothing adjoins.
const NOTHING: Does = Does {
    cpu: NOWHERE,
    level: 0,
    what: What::Off,
};

/// A row of `states`, and the next one of its thread if that adjoins: its place, and
/// what is in it, for rows that lie far apart are slow to reach.
#[derive(Debug, Clone, Copy)]
struct Interval {
    ts: i64,
    end: i64,
    utid: u32,
    next: u32,
    does: Does,
    then: Does,
}

impl Interval {
    fn is_open(&self) -> bool {
        self.then.what == What::Closed
    }
}

/// Rows in order of their end; of threads whose rows are told.
pub struct States {
    rows: Vec<Interval>,
    /// By utid, where it has rows: whether its weight was an assumption in any.
    equal: Vec<Option<bool>>,
    weights: Weights,
}

impl States {
    /// `fair`: by the number of a class, whether it shares by weight as the fair one does.
    /// Threads below `idle` are left out.
    pub fn read(
        table: &Source<'_>,
        known: &[Known],
        weights: Weights,
        fair: &[bool],
        idle: u32,
    ) -> Result<Self> {
        let (mut rows, mut equal) = (Vec::new(), vec![None; known.len()]);
        for batch in table.batches() {
            pulse()?;
            let batch = batch?;
            let (ts, dur) = (
                full::<Int64Type>(&batch, "ts")?,
                full::<Int64Type>(&batch, "dur")?,
            );
            let utid = full::<UInt32Type>(&batch, "utid")?;
            let (state, ended) = (
                full::<UInt8Type>(&batch, "state")?,
                full::<UInt8Type>(&batch, "end")?,
            );
            let (cpu, prio) = (
                column::<UInt16Type>(&batch, "cpu")?,
                column::<Int16Type>(&batch, "prio")?,
            );
            for i in (0..batch.num_rows()).filter(|i| utid[*i] >= idle) {
                let end = ts[i].checked_add(dur[i]).filter(|_| dur[i] >= 0);
                let Some(end) = end else {
                    return Err(Error::format(
                        format!("a state of {} ns from {} ns on", dur[i], ts[i]),
                        "a length of 0 ns or more, within 2^62 ns",
                        "convert the trace again",
                    ));
                };
                let who = utid[i] as usize;
                if !known.get(who).is_some_and(|known| known.listed) {
                    return Err(Error::format(
                        format!(
                            "a state of thread {who}, which the table of threads does not have"
                        ),
                        "every thread in that table",
                        "convert the trace again",
                    ));
                }
                let tag = weights.tag(utid[i], prio.is_valid(i).then(|| prio.value(i)));
                let level = level_of(tag);
                *equal[who].get_or_insert(false) |= level == usize::from(EQUAL);
                let cpu = if cpu.is_valid(i) {
                    cpu.value(i)
                } else {
                    NOWHERE
                };
                let fair = fair.get(class_of(tag)).copied().unwrap_or(false);
                rows.push(Interval {
                    ts: ts[i],
                    end,
                    utid: utid[i],
                    next: NONE,
                    does: Does {
                        cpu,
                        level: level as u8,
                        what: What::new(state[i], fair, cpu),
                    },
                    then: Does {
                        what: if ended[i] == End::Window as u8 {
                            What::Closed
                        } else {
                            What::Off
                        },
                        ..NOTHING
                    },
                });
            }
        }
        if rows.len() >= NONE as usize {
            return Err(Error::usage(
                format!("{} intervals", rows.len()),
                "fewer than 2^32",
                "cut the trace with --since and --until",
            ));
        }
        // In order they are, unless a break in a chain made an interval known late.
        if !rows.is_sorted_by_key(|row| row.end) {
            rows.sort_by_key(|row| row.end);
        }
        Ok(Self {
            rows,
            equal,
            weights,
        })
    }

    pub fn len(&self) -> u32 {
        self.rows.len() as u32
    }

    pub fn row(&self, i: u32) -> Row {
        let row = &self.rows[i as usize];
        Row {
            utid: row.utid,
            ts: row.ts,
            end: row.end,
            doing: self.doing(row.does),
            open: row.is_open(),
        }
    }

    /// The next row of the thread, if it adjoins row `i`; and what the thread does then.
    pub fn next(&self, i: u32) -> (Option<u32>, Doing) {
        let row = &self.rows[i as usize];
        ((row.next != NONE).then_some(row.next), self.doing(row.then))
    }

    /// When row `i` ends; and if the thread leaves its queue then, whether to sleep.
    pub fn end(&self, i: u32) -> (i64, Option<bool>) {
        let row = &self.rows[i as usize];
        let leaves = match self.doing(row.then) {
            _ if row.is_open() => None,
            Doing::Running { .. } | Doing::Waiting { .. } => None,
            then => Some(then == Doing::Asleep),
        };
        (row.end, leaves)
    }

    /// By utid, where it has rows: whether its weight was an assumption in any.
    pub fn equal(&self) -> Vec<(u32, bool)> {
        let known = (0..).zip(&self.equal);
        known
            .filter_map(|(utid, equal)| Some((utid, (*equal)?)))
            .collect()
    }

    fn doing(&self, Does { cpu, level, what }: Does) -> Doing {
        let weight = self.weights.table[usize::from(level)];
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

    /// Tells each row of the next one; the rows that adjoin no other, by time.
    pub fn chain(&mut self) -> Vec<(i64, u32)> {
        let mut last = vec![NONE; self.equal.len()];
        let mut starts = Vec::new();
        for i in 0..self.rows.len() {
            let Interval { utid, ts, does, .. } = self.rows[i];
            let previous = std::mem::replace(&mut last[utid as usize], i as u32);
            match self.rows.get_mut(previous as usize) {
                Some(previous) if previous.is_open() && previous.end == ts => {}
                Some(previous) if previous.end == ts => {
                    (previous.next, previous.then) = (i as u32, does);
                }
                _ => starts.push((ts, i as u32)),
            }
        }
        starts.sort_unstable();
        starts
    }
}
