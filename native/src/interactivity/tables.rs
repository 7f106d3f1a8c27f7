//! The tables that the rules read, and the pass over them.
use std::collections::HashSet;

use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, RecordBatch};

use super::fold::{Fold, Known, Row};
use super::o1::O1;
use super::ule::Ule;
use super::ule_2003::Ule2003;
use super::{Closed, Doing, Rule, output};
use crate::columns::{column, full};
use crate::error::{Error, Result};
use crate::hooks::check_interrupt;
use crate::sim::policy::{InteractivityRule, Settings, registry};
use crate::store::Source;

fn threads(batches: &[RecordBatch]) -> Result<Vec<Known>> {
    let mut known: Vec<Known> = Vec::new();
    for batch in batches {
        let (utid, nice) = (
            full::<UInt32Type>(batch, "utid")?,
            full::<Int64Type>(batch, "nice")?,
        );
        let start = column::<Int64Type>(batch, "start_ts")?;
        let exit = column::<Int64Type>(batch, "exit_ts")?;
        let parent = column::<UInt32Type>(batch, "parent_utid")?;
        let flags = full::<UInt8Type>(batch, "flags")?;
        for row in 0..batch.num_rows() {
            let at = utid[row] as usize;
            if known.len() <= at {
                known.resize(at + 1, Known::default());
            }
            known[at] = Known {
                start: start.is_valid(row).then(|| start.value(row)),
                exit: exit.is_valid(row).then(|| exit.value(row)),
                parent: parent.is_valid(row).then(|| parent.value(row)),
                nice: nice[row],
                scored: flags[row] & 1 != 0,
                wanted: flags[row] & 2 != 0,
            };
        }
    }
    Ok(known)
}

fn locks(batches: &[RecordBatch]) -> Result<HashSet<(u32, i64)>> {
    let mut found = HashSet::new();
    for batch in batches {
        let (utid, ts) = (
            full::<UInt32Type>(batch, "utid")?,
            full::<Int64Type>(batch, "ts")?,
        );
        found.extend(utid.iter().copied().zip(ts.iter().copied()));
    }
    Ok(found)
}

/// Codes of `State` and `End`, in the order of the trace model.
fn doing(state: u8) -> Option<Doing> {
    Some(match state {
        0 => Doing::Running,
        1 => Doing::Runnable,
        2 | 4 | 5 => Doing::Sleeping,
        3 => Doing::Blocked,
        6 => return None,
        _ => Doing::Unknown,
    })
}

fn closed(end: u8) -> Closed {
    match end {
        3 => Closed::Exited,
        4 => Closed::Lost,
        5 => Closed::Window,
        _ => Closed::Seen,
    }
}

fn feed<R: Rule>(
    mut fold: Fold<'_, R>,
    known: &[Known],
    states: &Source<'_>,
    idle: u32,
    locks: &HashSet<(u32, i64)>,
) -> Result<(RecordBatch, RecordBatch)> {
    for batch in states.batches() {
        let batch = &batch?;
        check_interrupt()?;
        let (ts, dur) = (
            full::<Int64Type>(batch, "ts")?,
            full::<Int64Type>(batch, "dur")?,
        );
        let utid = full::<UInt32Type>(batch, "utid")?;
        let (state, end) = (
            full::<UInt8Type>(batch, "state")?,
            full::<UInt8Type>(batch, "end")?,
        );
        let wakers = batch.column_by_name("waker_utid");
        for i in 0..batch.num_rows() {
            if utid[i] < idle {
                continue;
            }
            let Some(mut doing) = doing(state[i]) else {
                continue;
            };
            if dur[i] < 0 || ts[i].checked_add(dur[i]).is_none() {
                return Err(Error::format(
                    format!("a state of {} ns from {} ns on", dur[i], ts[i]),
                    "a length of 0 ns or more, within 2^62 ns",
                    "convert the trace again",
                ));
            }
            if doing == Doing::Blocked && locks.contains(&(utid[i], ts[i])) {
                doing = Doing::Locked;
            }
            fold.row(&Row {
                utid: utid[i],
                ts: ts[i],
                dur: dur[i],
                doing,
                by_thread: wakers.is_some_and(|waker| waker.is_valid(i)),
                closed: closed(end[i]),
            })?;
        }
    }
    let (tallies, points) = fold.finish();
    Ok((output::summary(known, &tallies)?, output::series(&points)?))
}

/// A preset's name, and settings of its tunables.
pub type Scheduler<'a> = (&'a str, &'a [(String, String)]);

/// What a rule reads.
pub struct Tables<'a> {
    /// utid, ts, dur, codes state and end; and waker_utid for a rule that asks whether a
    /// thread's wakeup began a wait.
    pub states: Source<'a>,
    /// utid, start_ts, exit_ts, parent_utid, nice, flags 1 scored, 2 wanted.
    pub threads: Vec<RecordBatch>,
    /// utid, ts of waits for locks.
    pub locks: Vec<RecordBatch>,
    /// Idle threads have utids below.
    pub ncpu: usize,
    pub window: (i64, i64),
}

/// Scores of recorded threads by the rule of a scheduler: a row per thread, and with `series`
/// one per change. `phase`: an instant at which the clock ticked.
pub fn score(
    (scheduler, given): Scheduler<'_>,
    tables: &Tables<'_>,
    phase: Option<i64>,
    series: bool,
) -> Result<(RecordBatch, RecordBatch)> {
    let (idle, window) = (tables.ncpu as u32, tables.window);
    let (spec, preset) = registry::find(scheduler)?;
    let settings = Settings::new(scheduler, spec.tunables, preset.values, given)?;
    let (known, locked) = (threads(&tables.threads)?, locks(&tables.locks)?);
    match spec.interactivity {
        Some(InteractivityRule::Ule) => {
            let kept = settings.ns("slp_run_max");
            let fold = Fold::new(Ule::new(&settings, phase)?, &known, window, kept, series);
            feed(fold, &known, &tables.states, idle, &locked)
        }
        Some(InteractivityRule::Ule2003) => {
            let kept = settings.ns("slp_run_max");
            let rule = Ule2003::new(&settings, phase);
            feed(
                Fold::new(rule, &known, window, kept, series),
                &known,
                &tables.states,
                idle,
                &locked,
            )
        }
        Some(InteractivityRule::O1) => {
            let kept = settings.ns("max_sleep_avg");
            let fold = Fold::new(
                O1::new(&settings, phase, tables.ncpu),
                &known,
                window,
                kept,
                series,
            );
            feed(fold, &known, &tables.states, idle, &locked)
        }
        None => Err(Error::usage(
            format!("scheduler {scheduler} scores no threads as interactive"),
            format!("one of {}", registry::names(|s| s.interactivity.is_some())),
            "",
        )),
    }
}
