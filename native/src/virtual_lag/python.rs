//! The function that Python calls, and the tables it hands in.
use std::collections::HashMap;

use arrow_array::Array;
use arrow_array::types::{Int16Type, Int64Type, UInt8Type, UInt16Type, UInt32Type};
use pyo3::prelude::*;

use super::replay::Replay;
use super::rules::Rules;
use super::{Doing, Known, Row, output};
use crate::arrow_ffi::ArrowTable;
use crate::error::{Error, Result};
use crate::model::event::End;
use crate::sim::policy::{Settings, registry};
use crate::store::python::Source;
use crate::sweep::pulse;
use crate::sweep::python::{ToldWeights, told_weights};
use crate::sweep::rows::{NOWHERE, column, full};
use crate::sweep::weights::{EQUAL, Weights, class_of, level_of};

/// No row.
const NONE: u32 = u32::MAX;

fn threads(table: &Source<'_>) -> Result<Vec<Known>> {
    let mut known: Vec<Known> = Vec::new();
    for batch in table.batches() {
        let batch = &batch?;
        let utid = full::<UInt32Type>(batch, "utid")?;
        let start = column::<Int64Type>(batch, "start_ts")?;
        let parent = column::<UInt32Type>(batch, "parent_utid")?;
        let wanted = full::<UInt8Type>(batch, "wanted")?;
        for row in 0..batch.num_rows() {
            let at = utid[row] as usize;
            if known.len() <= at {
                known.resize(at + 1, Known::default());
            }
            known[at] = Known {
                start: start.is_valid(row).then(|| start.value(row)),
                parent: parent.is_valid(row).then(|| parent.value(row)),
                wanted: wanted[row] != 0,
                listed: true,
            };
        }
    }
    Ok(known)
}

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

/// A row of `states`, and the next one of its thread if that adjoins.
#[derive(Debug, Clone, Copy)]
struct Interval {
    ts: i64,
    end: i64,
    utid: u32,
    next: u32,
    cpu: u16,
    /// Of the weight.
    level: u8,
    what: What,
    open: bool,
}

/// Rows in order of their end; of threads whose rows are told.
struct States {
    rows: Vec<Interval>,
    /// By utid, where it has rows: whether its weight was an assumption in any.
    equal: Vec<Option<bool>>,
    weights: Weights,
}

impl States {
    /// `fair`: by the number of a class, whether it shares by weight as the fair one does.
    /// Threads below `idle` are left out.
    fn read(
        table: &Source<'_>,
        known: &[Known],
        weights: Weights,
        fair: &[bool],
        idle: u32,
    ) -> Result<Self> {
        let (mut rows, mut equal) = (Vec::with_capacity(table.rows()), vec![None; known.len()]);
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
                    cpu,
                    level: level as u8,
                    what: What::new(state[i], fair, cpu),
                    open: ended[i] == End::Window as u8,
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

    fn row(&self, i: u32) -> Row {
        let row = &self.rows[i as usize];
        Row {
            utid: row.utid,
            ts: row.ts,
            end: row.end,
            doing: self.doing(i),
            open: row.open,
        }
    }

    fn doing(&self, i: u32) -> Doing {
        let Some(Interval {
            cpu, level, what, ..
        }) = self.rows.get(i as usize)
        else {
            return Doing::Off;
        };
        let (cpu, weight) = (*cpu, self.weights.table[usize::from(*level)]);
        match what {
            What::Running => Doing::Running { cpu, weight },
            What::Waiting => Doing::Waiting { cpu, weight },
            What::Unplaced => Doing::Unplaced,
            What::Elsewhere => Doing::Elsewhere,
            What::Asleep => Doing::Asleep,
            What::Off => Doing::Off,
            What::Unknown => Doing::Unknown,
        }
    }

    /// Tells each row of the next one; the rows that adjoin no other, by time.
    fn chain(&mut self) -> Vec<(i64, u32)> {
        let mut last = vec![NONE; self.equal.len()];
        let mut starts = Vec::new();
        for i in 0..self.rows.len() {
            let Interval { utid, ts, .. } = self.rows[i];
            let previous = std::mem::replace(&mut last[utid as usize], i as u32);
            match self.rows.get_mut(previous as usize) {
                Some(previous) if previous.end == ts => previous.next = i as u32,
                _ => starts.push((ts, i as u32)),
            }
        }
        starts.sort_unstable();
        starts
    }
}

/// What the rules of `scheduler`, a preset's name with settings `given`, owe to
/// each recorded thread: a row per thread, and with `series` one per turn of each.
///
/// `frames`: `states` (ts, dur, utid, codes state and end, cpu, prio) and `threads` (utid,
/// start_ts, parent_utid, wanted). `sharing`: what `Occupancy` takes as weights, and by the number of a
/// class whether it is of the fair kind. `phase`: an instant at which the clock ticked. With a
/// row per thread of `states`: whether its weight was an assumption in any.
#[pyfunction]
#[pyo3(signature = (scheduler, given, frames, sharing, window, ncpu, phase=0, series=false))]
#[expect(clippy::too_many_arguments, reason = "Python's keywords")]
pub fn virtual_lag(
    py: Python<'_>,
    scheduler: &str,
    given: Vec<(String, String)>,
    frames: HashMap<String, Bound<'_, PyAny>>,
    sharing: (ToldWeights<'_>, Vec<bool>),
    window: (i64, i64),
    ncpu: usize,
    phase: i64,
    series: bool,
) -> PyResult<(ArrowTable, ArrowTable, Vec<(u32, bool)>)> {
    let read = |name: &str| match frames.get(name) {
        Some(table) => Source::of(table),
        None => Ok(Source::Held(Vec::new())),
    };
    let (intervals, table) = (read("states")?, read("threads")?);
    let (weights, fair) = (told_weights(sharing.0)?, sharing.1);
    let found = py.detach(|| -> Result<_> {
        let (spec, preset) = registry::find(scheduler)?;
        let settings = Settings::new(scheduler, spec.tunables, preset.values, &given)?;
        let rules = Rules::new(spec.family, &settings, ncpu, phase).ok_or_else(|| {
            Error::usage(
                format!("scheduler {scheduler} keeps no virtual time of threads"),
                "one of the families cfs and eevdf",
                "",
            )
        })?;
        let known = threads(&table)?;
        let idle = u32::try_from(ncpu).unwrap_or(u32::MAX);
        let mut states = States::read(&intervals, &known, weights, &fair, idle)?;
        let starts = states.chain();
        let mut replay = Replay::new(rules, &known, series);
        let mut starts = starts.into_iter().peekable();
        let next = |i: u32| states.rows[i as usize].next;
        let announce = |replay: &mut Replay<'_>, i: u32, row: &Row| {
            let leaves = match states.doing(next(i)) {
                Doing::Running { .. } | Doing::Waiting { .. } => None,
                next => Some(next == Doing::Asleep),
            };
            replay.announce(row.utid, row.end, leaves.filter(|_| !row.open));
        };
        for i in 0..states.rows.len() as u32 {
            let row = states.row(i);
            // A thread is created by one that still runs; of others, that are only seen for the
            // first time, what ends at that instant comes first.
            while let Some((ts, first)) = starts.next_if(|(ts, at)| {
                let utid = states.rows[*at as usize].utid as usize;
                *ts < row.end || *ts == row.end && known[utid].start == Some(*ts)
            }) {
                let row = states.row(first);
                announce(&mut replay, first, &row);
                replay.turn(ts, row.utid, row.doing, true);
            }
            replay.count(&row, window);
            if row.open {
                continue;
            }
            let following = next(i);
            if following != NONE {
                announce(&mut replay, following, &states.row(following));
            }
            replay.turn(row.end, row.utid, states.doing(following), false);
        }
        let (tallies, points) = replay.finish(window.1);
        let equal = (0..)
            .zip(&states.equal)
            .filter_map(|(utid, equal)| Some((utid, (*equal)?)));
        Ok((
            output::summary(&known, &tallies)?,
            output::series(&points)?,
            equal.collect(),
        ))
    })?;
    Ok(found)
}
