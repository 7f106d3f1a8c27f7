//! One simulation from start to end, and its summary.
use serde_json::{Map, Value, json};

use super::engine::{Counts, Engine, Limits, Progress as Ended};
use super::machine::Machine;
use super::policy::Policy;
use super::trace_sink::{Series, TraceSink};
use super::workload::Workload;
use crate::error::{Error, Result};
use crate::store::Store;

/// Events between two calls of `progress`, which gets the simulated time and the events so far.
const SLICE: u64 = 200_000;

pub struct Options {
    pub seed: u64,
    pub limits: Limits,
    /// Keeps the policy's own series.
    pub record: bool,
}

fn counts_json(counts: &Counts, ended: Ended, engine: &Engine<'_>) -> Value {
    json!({
        "engine_events": counts.events,
        "switches": counts.switches,
        "wakeups": counts.wakeups,
        "migrations": counts.migrations,
        "preemptions": counts.preemptions,
        "ticks": counts.ticks,
        "forks": counts.forks,
        "exits": counts.exits,
        "never_started": engine.unborn(),
        "ended": match ended {
            Ended::Finished => "finished",
            Ended::TimeLimit => "time limit",
            Ended::EventLimit => "event limit",
            Ended::More => "more",
        },
        "blocked": engine.blocked(),
    })
}

/// Runs a workload into `store`; returns that, what trace.json says of the run, and the policy's
/// own series.
pub fn run<S: Store + Send + 'static>(
    load: &Workload,
    machine: Machine,
    policy: Box<dyn Policy>,
    options: &Options,
    store: S,
    progress: &mut dyn FnMut(i64, u64) -> Result<()>,
) -> Result<(S, Map<String, Value>, Series)> {
    let sink = TraceSink::new(machine.ncpu(), load.threads.len(), store);
    let mut engine = Engine::new(
        load,
        machine.clone(),
        policy,
        Box::new(sink),
        options.seed,
        options.limits,
        options.record,
    )?;
    let ended = loop {
        match engine.run(SLICE)? {
            Ended::More => progress(engine.world.now(), engine.counts().events)?,
            other => break other,
        }
    };
    let counts = engine.counts();
    let end = engine.world.now();
    let prios = engine.prios();
    let simulation = counts_json(&counts, ended, &engine);
    let Ok(sink) = engine.into_sink().into_any().downcast::<TraceSink<S>>() else {
        return Err(Error::internal("the simulation lost its output"));
    };
    let (store, mut about, series) = sink.finish(end, load, &machine, &prios)?;
    about.insert("simulation".into(), simulation);
    about.insert("seed".into(), json!(options.seed));
    Ok((store, about, series))
}
