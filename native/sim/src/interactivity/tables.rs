//! The tables that the rules read, and the pass over them.
use std::collections::HashSet;

use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, RecordBatch};

use super::fold::{Fold, Interval, ScoredThread};
use super::o1::O1;
use super::ule::Ule;
use super::ule_2003::Ule2003;
use super::{Activity, Closed, Rule, output};
use crate::columns::{column, full};
use crate::error::{Error, Result};
use crate::model::event::{End, State};
use crate::policy::{InteractivityRule, Settings, registry};
use crate::states::{Want, each};
use crate::store::Source;

fn threads(batches: &[RecordBatch]) -> Result<Vec<ScoredThread>> {
    let mut known: Vec<ScoredThread> = Vec::new();
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
                known.resize(at + 1, ScoredThread::default());
            }
            known[at] = ScoredThread {
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

fn activity(state: u8) -> Option<Activity> {
    Some(match State::from_code(state) {
        Some(State::Running) => Activity::Running,
        Some(State::Runnable) => Activity::Runnable,
        Some(State::Sleeping | State::Stopped | State::Parked) => Activity::Sleeping,
        Some(State::Blocked) => Activity::Blocked,
        Some(State::Dead) => return None,
        Some(State::Unknown) | None => Activity::Unknown,
    })
}

fn closed(end: u8) -> Closed {
    match End::from_code(end) {
        Some(End::Exited) => Closed::Exited,
        Some(End::Lost) => Closed::Lost,
        Some(End::Window) => Closed::Window,
        _ => Closed::Seen,
    }
}

fn feed<R: Rule>(
    mut fold: Fold<'_, R>,
    known: &[ScoredThread],
    states: &Source<'_>,
    idle: u32,
    locks: &HashSet<(u32, i64)>,
) -> Result<(RecordBatch, RecordBatch)> {
    let want = Want {
        end: true,
        waker: true,
        ..Want::default()
    };
    for batch in states.batches() {
        each(&batch?, 0, want, |row| {
            if row.utid < idle {
                return Ok(());
            }
            let Some(mut doing) = activity(row.state) else {
                return Ok(());
            };
            if doing == Activity::Blocked && locks.contains(&(row.utid, row.ts)) {
                doing = Activity::Locked;
            }
            fold.row(&Interval {
                utid: row.utid,
                ts: row.ts,
                dur: row.dur(),
                doing,
                by_thread: row.by_thread,
                closed: closed(row.end),
            })
        })?;
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
