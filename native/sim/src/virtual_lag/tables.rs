//! The tables that the rules read, and the passes over them.
use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, RecordBatch};

use super::intervals::Table;
use super::replay::Replay;
use super::rules::Rules;
use super::states::States;
use super::{FairThread, output};
use crate::columns::{column, full};
use crate::error::{Error, Result};
use crate::policy::{Settings, registry};
use crate::store::Source;
use crate::sweep::weights::Weights;

fn threads(table: &Source<'_>) -> Result<Vec<FairThread>> {
    let mut known: Vec<FairThread> = Vec::new();
    for batch in table.batches() {
        let batch = &batch?;
        let utid = full::<UInt32Type>(batch, "utid")?;
        let start = column::<Int64Type>(batch, "start_ts")?;
        let parent = column::<UInt32Type>(batch, "parent_utid")?;
        let wanted = full::<UInt8Type>(batch, "wanted")?;
        for row in 0..batch.num_rows() {
            let at = utid[row] as usize;
            if known.len() <= at {
                known.resize(at + 1, FairThread::default());
            }
            known[at] = FairThread {
                start: start.is_valid(row).then(|| start.value(row)),
                parent: parent.is_valid(row).then(|| parent.value(row)),
                wanted: wanted[row] != 0,
                listed: true,
            };
        }
    }
    Ok(known)
}

/// Rows per thread, rows per turn, and of each thread whether its weight was an assumption.
pub type Found = (RecordBatch, RecordBatch, Vec<(u32, bool)>);

/// What the rules read.
pub struct Tables<'a> {
    /// ts, dur, utid, codes state and end, cpu, prio.
    pub states: Source<'a>,
    /// utid, start_ts, parent_utid, wanted.
    pub threads: Source<'a>,
    pub weights: Weights,
    /// By the number of a class, whether it is of the fair kind.
    pub fair: Vec<bool>,
    pub ncpu: usize,
    pub window: (i64, i64),
}

/// What the rules of `scheduler`, a preset's name with settings `given`, owe to each recorded
/// thread. `phase`: an instant at which the clock ticked.
pub fn lags(
    (scheduler, given): (&str, &[(String, String)]),
    tables: &Tables<'_>,
    phase: i64,
    series: bool,
) -> Result<Found> {
    let (spec, preset) = registry::find(scheduler)?;
    let settings = Settings::new(scheduler, spec.tunables, preset.values, given)?;
    let Some(rule) = spec.lag else {
        return Err(Error::usage(
            format!("scheduler {scheduler} keeps no virtual time of threads"),
            format!("one of {}", registry::names(|s| s.lag.is_some())),
            "",
        ));
    };
    let rules = Rules::new(rule, &settings, tables.ncpu, phase);
    let known = threads(&tables.threads)?;
    let table = Table {
        rows: &tables.states,
        known: &known,
        weights: &tables.weights,
        fair: &tables.fair,
        idle: u32::try_from(tables.ncpu).unwrap_or(u32::MAX),
    };
    let states = States::read(&table, tables.window)?;
    let mut replay = Replay::new(rules, &known, &states, series);
    states.each(&table, |turns| replay.run(turns))?;
    let (tallies, points) = replay.finish(tables.window.1);
    Ok((
        output::summary(&known, &tallies)?,
        output::series(&points)?,
        states.equal(),
    ))
}
