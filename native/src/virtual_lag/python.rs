//! The function that Python calls, and the tables it hands in.
use std::borrow::Cow;
use std::collections::HashMap;

use arrow_array::types::{Int64Type, UInt8Type, UInt16Type, UInt32Type};
use arrow_array::{Array, ArrowPrimitiveType, RecordBatch};
use pyo3::prelude::*;

use super::replay::Replay;
use super::rules::Rules;
use super::{Doing, Known, Row, output};
use crate::arrow_ffi::{ArrowTable, read_stream};
use crate::error::{Error, Result};
use crate::interactivity::python::{column, full};
use crate::sim::policy::{Settings, registry};

/// No CPU.
const NOWHERE: u16 = u16::MAX;
/// No row.
const NONE: u32 = u32::MAX;

/// A column of all batches together; copied only if there are several.
fn whole<'a, T: ArrowPrimitiveType>(
    batches: &'a [RecordBatch],
    name: &str,
) -> Result<Cow<'a, [T::Native]>> {
    if let [one] = batches {
        return Ok(Cow::Borrowed(full::<T>(one, name)?));
    }
    let mut all = Vec::new();
    for batch in batches {
        all.extend_from_slice(full::<T>(batch, name)?);
    }
    Ok(Cow::Owned(all))
}

fn threads(batches: &[RecordBatch]) -> Result<Vec<Known>> {
    let mut known: Vec<Known> = Vec::new();
    for batch in batches {
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

/// The columns of `states`.
struct States<'a> {
    utid: Cow<'a, [u32]>,
    ts: Cow<'a, [i64]>,
    dur: Cow<'a, [i64]>,
    state: Cow<'a, [u8]>,
    open: Cow<'a, [u8]>,
    cpu: Cow<'a, [u16]>,
    weight: Cow<'a, [u32]>,
}

impl<'a> States<'a> {
    fn read(batches: &'a [RecordBatch]) -> Result<Self> {
        Ok(Self {
            utid: whole::<UInt32Type>(batches, "utid")?,
            ts: whole::<Int64Type>(batches, "ts")?,
            dur: whole::<Int64Type>(batches, "dur")?,
            state: whole::<UInt8Type>(batches, "state")?,
            open: whole::<UInt8Type>(batches, "open")?,
            cpu: whole::<UInt16Type>(batches, "cpu")?,
            weight: whole::<UInt32Type>(batches, "weight")?,
        })
    }

    fn row(&self, i: usize) -> Row {
        let (cpu, weight) = (self.cpu[i], i64::from(self.weight[i]));
        // Codes of `State`, in the order of the trace model.
        let doing = match self.state[i] {
            0 | 1 if weight == 0 => Doing::Elsewhere,
            0 | 1 if cpu == NOWHERE => Doing::Unplaced,
            0 => Doing::Running { cpu, weight },
            1 => Doing::Waiting { cpu, weight },
            2 | 3 => Doing::Asleep,
            4..=6 => Doing::Off,
            _ => Doing::Unknown,
        };
        Row {
            utid: self.utid[i],
            ts: self.ts[i],
            end: self.ts[i] + self.dur[i],
            doing,
            open: self.open[i] != 0,
        }
    }
}

/// By row the next one of its thread, if that adjoins; and the rows that nothing adjoins, by time.
type Chains = (Vec<u32>, Vec<(i64, u32)>);

fn chains(states: &States<'_>, known: &[Known]) -> Result<Chains> {
    let n = states.utid.len();
    if n >= NONE as usize {
        return Err(Error::usage(
            format!("{n} intervals"),
            "fewer than 2^32",
            "cut the trace with --since and --until",
        ));
    }
    let mut next = vec![NONE; n];
    let mut last = vec![NONE; known.len()];
    let mut starts = Vec::new();
    let mut before = i64::MIN;
    for i in 0..n {
        let (utid, ts, dur) = (states.utid[i], states.ts[i], states.dur[i]);
        let end = ts.checked_add(dur).filter(|_| dur >= 0);
        let Some(end) = end else {
            return Err(Error::format(
                format!("a state of {dur} ns from {ts} ns on"),
                "a length of 0 ns or more, within 2^62 ns",
                "convert the trace again",
            ));
        };
        if end < before {
            return Err(Error::format(
                format!("a state that ends at {end} ns after one that ends at {before} ns"),
                "states in order of their end",
                "convert the trace again",
            ));
        }
        before = end;
        let Some(seen) = last
            .get_mut(utid as usize)
            .filter(|_| known[utid as usize].listed)
        else {
            return Err(Error::format(
                format!("a state of thread {utid}, which the table of threads does not have"),
                "every thread in that table",
                "convert the trace again",
            ));
        };
        let previous = std::mem::replace(seen, i as u32);
        if previous != NONE && states.ts[previous as usize] + states.dur[previous as usize] == ts {
            next[previous as usize] = i as u32;
        } else {
            starts.push((ts, i as u32));
        }
    }
    starts.sort_unstable();
    Ok((next, starts))
}

/// What the rules of `scheduler`, a preset's name with settings `given`, owe to
/// each recorded thread: a row per thread, and with `series` one per turn of each.
///
/// `frames`: `states` in order of their end (utid, ts, dur, code state, open 1 where the
/// window closed it, cpu 65535 for none, weight 0 for another class than the fair one),
/// `threads` (utid, start_ts, parent_utid, wanted). `phase`: an instant at which the clock ticked.
#[pyfunction]
#[pyo3(signature = (scheduler, given, frames, window, ncpu, phase=0, series=false))]
#[expect(clippy::too_many_arguments, reason = "Python's keywords")]
pub fn virtual_lag(
    py: Python<'_>,
    scheduler: &str,
    given: Vec<(String, String)>,
    frames: HashMap<String, Bound<'_, PyAny>>,
    window: (i64, i64),
    ncpu: usize,
    phase: i64,
    series: bool,
) -> PyResult<(ArrowTable, ArrowTable)> {
    let read = |name: &str| -> PyResult<Vec<RecordBatch>> {
        match frames.get(name) {
            Some(table) => Ok(read_stream(table)?.1),
            None => Ok(Vec::new()),
        }
    };
    let (intervals, table) = (read("states")?, read("threads")?);
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
        let states = States::read(&intervals)?;
        let (next, starts) = chains(&states, &known)?;
        let mut replay = Replay::new(rules, &known, series);
        let mut starts = starts.into_iter().peekable();
        let doing = |i: usize| match next[i] {
            NONE => Doing::Off,
            at => states.row(at as usize).doing,
        };
        let announce = |replay: &mut Replay<'_>, i: usize, row: &Row| {
            let leaves = match doing(i) {
                Doing::Running { .. } | Doing::Waiting { .. } => None,
                next => Some(next == Doing::Asleep),
            };
            replay.announce(row.utid, row.end, leaves.filter(|_| !row.open));
        };
        for (i, &following) in next.iter().enumerate() {
            let row = states.row(i);
            // A thread is created by one that still runs; of others, that are only seen for the
            // first time, what ends at that instant comes first.
            while let Some((ts, first)) = starts.next_if(|(ts, at)| {
                let utid = states.utid[*at as usize] as usize;
                *ts < row.end || *ts == row.end && known[utid].start == Some(*ts)
            }) {
                let row = states.row(first as usize);
                announce(&mut replay, first as usize, &row);
                replay.turn(ts, row.utid, row.doing, true);
            }
            replay.count(&row, window);
            if row.open {
                continue;
            }
            if following != NONE {
                let at = following as usize;
                announce(&mut replay, at, &states.row(at));
            }
            replay.turn(row.end, row.utid, doing(i), false);
        }
        let (tallies, points) = replay.finish(window.1);
        Ok((output::summary(&known, &tallies)?, output::series(&points)?))
    })?;
    Ok(found)
}
