//! What Python calls: `policies` and `simulate`.
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use arrow_array::RecordBatch;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::{Map, Value, json};

use super::engine::{Counts, Engine, Limits, Progress};
use super::error::{Error, Result};
use super::extract::{Enters, Extractor, Rules, ThreadOut, steps_of};
use super::load::{Input, Numbers};
use super::machine::{Costs, Cpu, CpuInfo, Machine};
use super::policy::tunables::Kind;
use super::policy::{InteractivityRule, LagRule, Policy, PriorityScale, registry};
use super::py_policy::PyPolicy;
use super::trace_sink::{Series, TraceSink};
use super::workload::Workload;
use crate::arrow_ffi::ArrowTable;
use crate::model::tables::schemas;
use crate::reconstruct::facts::{self, Facts, TableIn};
use crate::store::python::Source;
use crate::store::{MemoryStore, ParquetStore, Store};

/// Every policy: all that its `Spec` declares.
#[pyfunction]
pub fn policies(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for (spec, preset) in registry::all() {
        let row = PyDict::new(py);
        row.set_item("name", preset.name)?;
        row.set_item("family", spec.family)?;
        row.set_item("summary", spec.summary)?;
        row.set_item("models", spec.models)?;
        row.set_item("preset", preset.doc)?;
        row.set_item("work_conserving", spec.work_conserving)?;
        row.set_item("strict_classes", spec.strict_classes)?;
        row.set_item("role", spec.role.name())?;
        row.set_item("priorities", spec.priorities.name())?;
        row.set_item("scores", spec.interactivity.is_some())?;
        row.set_item(
            "score_limit",
            spec.interactivity.map(InteractivityRule::score_limit),
        )?;
        row.set_item(
            "asks_for_wakers",
            spec.interactivity
                .is_some_and(InteractivityRule::asks_for_wakers),
        )?;
        row.set_item("keeps_virtual_time", spec.lag.is_some())?;
        row.set_item(
            "has_eligibility",
            spec.lag.is_some_and(LagRule::has_eligibility),
        )?;
        let tunables = PyList::empty(py);
        for t in spec.tunables {
            let entry = PyDict::new(py);
            entry.set_item("name", t.name)?;
            let (kind, choices) = match t.kind {
                Kind::Ns => ("time", None),
                Kind::Int => ("integer", None),
                Kind::Real => ("number", None),
                Kind::Bool => ("switch", None),
                Kind::Choice(all) => ("choice", Some(all.to_vec())),
            };
            entry.set_item("kind", kind)?;
            entry.set_item("choices", choices)?;
            let own = preset.values.iter().find(|(n, _)| *n == t.name);
            entry.set_item("default", own.map_or(t.default, |(_, v)| *v))?;
            entry.set_item("unit", t.unit)?;
            entry.set_item("doc", t.doc)?;
            tunables.append(entry)?;
        }
        row.set_item("tunables", tunables)?;
        let series = PyList::empty(py);
        for s in spec.series {
            let entry = PyDict::new(py);
            entry.set_item("name", s.name)?;
            entry.set_item("unit", s.unit)?;
            entry.set_item("doc", s.doc)?;
            series.append(entry)?;
        }
        row.set_item("series", series)?;
        list.append(row)?;
    }
    Ok(list)
}

fn machine(shape: &[[u16; 5]], costs: &HashMap<String, f64>, tick_phase: i64) -> Result<Machine> {
    let cpus = shape
        .iter()
        .map(|[core, llc, package, node, capacity]| CpuInfo {
            core: *core,
            llc: *llc,
            package: *package,
            node: *node,
            capacity: *capacity,
        })
        .collect();
    let ns = |name: &str| costs.get(name).map_or(0, |v| *v as i64);
    let costs = Costs {
        switch_ns: ns("switch"),
        migration_ns: [
            ns("migration_smt"),
            ns("migration_llc"),
            ns("migration_package"),
            ns("migration_numa"),
        ],
        smt_speed_permille: costs
            .get("smt_speed")
            .map_or(1000, |v| (v * 1000.0).round() as i64),
        ipi_ns: ns("ipi"),
        idle_exit_ns: ns("idle_exit"),
        preempt_ns: ns("preempt"),
        tick_ns: ns("tick"),
        tick_phase_ns: tick_phase,
    };
    Machine::new(cpus, costs)
}

fn counts_json(counts: &Counts, progress: Progress, engine: &Engine<'_>) -> Value {
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
        "ended": match progress {
            Progress::Finished => "finished",
            Progress::TimeLimit => "time limit",
            Progress::EventLimit => "event limit",
            Progress::More => "more",
        },
        "blocked": engine.blocked(),
    })
}

/// Either store, to be told apart at the end.
enum Target {
    Memory(MemoryStore),
    Folder(ParquetStore),
}

impl Store for Target {
    const CHUNK: usize = ParquetStore::CHUNK;

    fn write(&mut self, table: &'static str, batch: RecordBatch) -> Result<()> {
        match self {
            Target::Memory(s) => s.write(table, batch),
            Target::Folder(s) => s.write(table, batch),
        }
    }
}

/// Events between two looks at the clock, at Ctrl-C and at the caller.
const SLICE: u64 = 200_000;

/// Options of one run, as Python hands them over.
#[derive(FromPyObject)]
pub struct Options {
    #[pyo3(item)]
    seed: u64,
    #[pyo3(item)]
    until: Option<i64>,
    #[pyo3(item)]
    max_events: u64,
    #[pyo3(item)]
    record: bool,
    #[pyo3(item)]
    set: Vec<(String, String)>,
    #[pyo3(item)]
    shape: Vec<[u16; 5]>,
    #[pyo3(item)]
    costs: HashMap<String, f64>,
    #[pyo3(item)]
    tick_phase: i64,
    #[pyo3(item)]
    folder: Option<PathBuf>,
}

/// Runs a workload under a policy (a name, or an object with the hooks).
///
/// Answers (tables by name, text of trace.json, internal series by column); the
/// tables are empty when they went to `folder`.
#[pyfunction]
#[pyo3(signature = (threads, steps, masks, names, policy, options, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn simulate<'py>(
    py: Python<'py>,
    threads: Bound<'py, PyAny>,
    steps: Bound<'py, PyAny>,
    masks: Vec<Vec<Cpu>>,
    names: Vec<String>,
    policy: Bound<'py, PyAny>,
    options: Options,
    progress: Option<Py<PyAny>>,
) -> PyResult<(
    BTreeMap<&'static str, ArrowTable>,
    String,
    Bound<'py, PyDict>,
)> {
    let input = Input {
        threads: Numbers::read(&threads)?,
        steps: Numbers::read(&steps)?,
        masks,
        names,
    };
    let machine = machine(&options.shape, &options.costs, options.tick_phase)?;
    let load = input.workload(machine.ncpu())?;
    drop(input);
    let (maker, about_policy) = maker(py, &policy, &options, &machine, load.threads.len())?;
    let (target, about, series) = py.detach(|| {
        run(
            &load,
            machine,
            maker,
            &options,
            about_policy,
            progress.as_ref(),
        )
    })?;
    let (tables, rows) = match target {
        Target::Memory(mut store) => {
            let mut tables = BTreeMap::new();
            let mut rows = BTreeMap::new();
            for (name, schema) in schemas() {
                let batches = store.tables.remove(name).unwrap_or_default();
                rows.insert(name, batches.iter().map(|b| b.num_rows() as u64).sum());
                tables.insert(name, ArrowTable::new(schema, batches));
            }
            (tables, rows)
        }
        Target::Folder(store) => (BTreeMap::new(), py.detach(|| store.finish())?),
    };
    let mut about = about;
    about.insert("rows".into(), json!(rows));
    let internals = PyDict::new(py);
    internals.set_item("ts", series.ts)?;
    internals.set_item("series", series.series)?;
    internals.set_item("utid", series.utid)?;
    internals.set_item("cpu", series.cpu)?;
    internals.set_item("value", series.value)?;
    Ok((tables, format!("{:#}", Value::Object(about)), internals))
}

type Described = (Box<dyn Policy>, Map<String, Value>);

fn maker(
    py: Python<'_>,
    policy: &Bound<'_, PyAny>,
    options: &Options,
    machine: &Machine,
    nthreads: usize,
) -> Result<Described> {
    let mut about = Map::new();
    if let Ok(name) = policy.extract::<String>() {
        let made = registry::make(&name, &options.set, machine, nthreads)?;
        let tunables: Map<String, Value> = made
            .settings
            .in_force()
            .map(|(n, v)| (n.to_string(), json!(v)))
            .collect();
        about.insert("name".into(), json!(name));
        about.insert("models".into(), json!(made.spec.models));
        about.insert("tunables".into(), Value::Object(tunables));
        about.insert("priorities".into(), json!(made.spec.priorities.name()));
        return Ok((made.policy, about));
    }
    about.insert(
        "name".into(),
        json!(policy.getattr("name")?.extract::<String>()?),
    );
    about.insert("models".into(), json!("a policy written in Python"));
    // It has no hook for a number of its own.
    about.insert("priorities".into(), json!(PriorityScale::Linux.name()));
    let made = PyPolicy::new(py, policy.clone().unbind())?;
    Ok((Box::new(made), about))
}

fn run(
    load: &Workload,
    machine: Machine,
    policy: Box<dyn Policy>,
    options: &Options,
    about_policy: Map<String, Value>,
    progress: Option<&Py<PyAny>>,
) -> Result<(Target, Map<String, Value>, Series)> {
    let target = match &options.folder {
        Some(folder) => Target::Folder(ParquetStore::new(folder)?),
        None => Target::Memory(MemoryStore::default()),
    };
    let sink = TraceSink::new(machine.ncpu(), load.threads.len(), target);
    let limits = Limits {
        until: options.until,
        max_events: options.max_events,
    };
    let mut engine = Engine::new(
        load,
        machine.clone(),
        policy,
        Box::new(sink),
        options.seed,
        limits,
        options.record,
    )?;
    let ended = loop {
        match engine.run(SLICE)? {
            Progress::More => {
                let (now, events) = (engine.world.now(), engine.counts().events);
                Python::attach(|py| {
                    py.check_signals()?;
                    match progress {
                        Some(callback) => callback.call1(py, (now, events)).map(|_| ()),
                        None => Ok(()),
                    }
                })
                .map_err(Error::Python)?;
            }
            other => break other,
        }
    };
    let counts = engine.counts();
    let end = engine.world.now();
    let prios = engine.prios();
    let simulation = counts_json(&counts, ended, &engine);
    let Ok(sink) = engine
        .into_sink()
        .into_any()
        .downcast::<TraceSink<Target>>()
    else {
        return Err(Error::internal("the simulation lost its output"));
    };
    let (store, mut about, series) = sink.finish(end, load, &machine, &prios)?;
    about.insert("scheduler".into(), Value::Object(about_policy));
    about.insert("simulation".into(), simulation);
    about.insert("seed".into(), json!(options.seed));
    about.insert("costs".into(), json!(options.costs));
    about.insert("tick_phase".into(), json!(options.tick_phase));
    Ok((store, about, series))
}

/// A workload's steps and threads out of a trace's fact tables.
///
/// `facts`: switches, wakeups and, where recorded, yields. Answers (steps,
/// threads by column, report): steps in order of `program`, which is the
/// thread's row.
#[pyfunction]
#[pyo3(signature = (facts, ncpu, window, absolute, extend_cut, linux_priorities, has_waking, drop))]
#[allow(clippy::too_many_arguments)]
pub fn extract<'py>(
    py: Python<'py>,
    facts: HashMap<String, Bound<'py, PyAny>>,
    ncpu: u32,
    window: (i64, i64),
    absolute: bool,
    extend_cut: bool,
    linux_priorities: bool,
    has_waking: bool,
    drop: Vec<u32>,
) -> PyResult<(ArrowTable, Bound<'py, PyDict>, Bound<'py, PyDict>)> {
    let read = |name: &str| -> PyResult<Vec<RecordBatch>> {
        match facts.get(name) {
            Some(table) => Ok(Source::of(table, name)?.batches().collect::<Result<_>>()?),
            None => Ok(Vec::new()),
        }
    };
    let (switches, wakeups, yields) = (read("switches")?, read("wakeups")?, read("yields")?);
    let (out, steps) = py.detach(|| -> Result<_> {
        let facts = Facts {
            switches: facts::switches(TableIn::new("switches", &switches))?,
            wakeups: facts::wakeups(TableIn::new("wakeups", &wakeups))?,
            yields: facts::yields(TableIn::new("yields", &yields))?,
            ..Facts::default()
        };
        facts.check_order()?;
        facts.check_range(u16::try_from(ncpu).unwrap_or(u16::MAX))?;
        let rules = Rules {
            absolute,
            extend_cut,
            linux_priorities,
        };
        let out = Extractor::new(ncpu, window.0, rules, has_waking, &drop).run(&facts, window.1);
        let steps = steps_of(&out)?;
        Ok((out, steps))
    })?;
    let threads = PyDict::new(py);
    let column = |f: &dyn Fn(&ThreadOut) -> Option<i64>| -> Vec<Option<i64>> {
        out.threads.iter().map(f).collect()
    };
    threads.set_item("utid", column(&|t| Some(i64::from(t.utid))))?;
    threads.set_item(
        "start",
        column(&|t| match t.enters {
            Enters::At(at) => Some(at),
            Enters::Asleep => Some(0),
            Enters::Forked => None,
        }),
    )?;
    threads.set_item(
        "asleep",
        column(&|t| Some(i64::from(t.enters == Enters::Asleep))),
    )?;
    threads.set_item("cpu", column(&|t| t.first_cpu.map(i64::from)))?;
    threads.set_item("prio", column(&|t| t.first_prio.map(i64::from)))?;
    let only = |t: &ThreadOut| {
        let all: u32 = t.ran_on.iter().map(|w| w.count_ones()).sum();
        let at = t.ran_on.iter().position(|w| *w != 0)?;
        (all == 1).then(|| at as i64 * 64 + i64::from(t.ran_on[at].trailing_zeros()))
    };
    threads.set_item("only_cpu", column(&only))?;
    let report = PyDict::new(py);
    for (name, value) in out.report.entries() {
        report.set_item(name, value)?;
    }
    Ok((steps, threads, report))
}
