//! Runs of the simulator.
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Map, Value, json};

use super::arrow::{ArrowTable, read_stream};
use super::open::{in_memory, reporter};
use super::policy::PyPolicy;
use crate::error::{EngineResult, Result};
use schedscope_sim::engine::Limits;
use schedscope_sim::load::{GroupRow, Input, MoveRow, Numbers};
use schedscope_sim::machine::{Costs, Cpu, CpuInfo, Machine, Outage};
use schedscope_sim::policy::{Policy, PriorityScale, Settings, registry};
use schedscope_sim::run;
use schedscope_sim::workload::Workload;
use schedscope_trace::store::{MemoryStore, ParquetStore, Store};

fn machine(options: &Options) -> Result<Machine> {
    let (shape, costs, tick_phase) = (&options.shape, &options.costs, options.tick_phase);
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
        enqueue_ns: ns("enqueue"),
        preempt_ns: ns("preempt"),
        tick_ns: ns("tick"),
        tick_phase_ns: tick_phase,
    };
    let outages = options.outages.iter().map(|(cpu, since, until)| Outage {
        cpu: *cpu,
        since: *since,
        until: *until,
    });
    Ok(Machine::new(cpus, costs)?.with_outages(outages.collect())?)
}

/// Either store, to be distinguished at the end.
enum Target {
    Memory(MemoryStore),
    Folder(ParquetStore),
}

impl Store for Target {
    const CHUNK: usize = ParquetStore::CHUNK;

    fn write(&mut self, table: &'static str, batch: RecordBatch) -> EngineResult<()> {
        match self {
            Target::Memory(s) => s.write(table, batch),
            Target::Folder(s) => s.write(table, batch),
        }
    }
}

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
    outages: Vec<(Cpu, i64, Option<i64>)>,
    #[pyo3(item)]
    tick_phase: i64,
    #[pyo3(item)]
    pipes: Vec<[u64; 4]>,
    #[pyo3(item)]
    groups: Vec<GroupRow>,
    #[pyo3(item)]
    moves: Vec<MoveRow>,
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
) -> Result<(
    BTreeMap<&'static str, ArrowTable>,
    String,
    Bound<'py, PyDict>,
)> {
    let numbers = |table: &Bound<'_, PyAny>| -> Result<Numbers> {
        let (schema, batches) = read_stream(table)?;
        Ok(Numbers::read(&schema, &batches)?)
    };
    let input = Input {
        threads: numbers(&threads)?,
        steps: numbers(&steps)?,
        masks,
        names,
        pipes: options.pipes.clone(),
        groups: options.groups.clone(),
        moves: options.moves.clone(),
    };
    let machine = machine(&options)?;
    let load = input.workload(machine.ncpu())?;
    drop(input);
    let (policy, mut about_policy, outcome) = described(py, &policy, &options, &machine, &load)?;
    let mut progress = reporter(progress);
    let (target, mut about, series) = py.detach(|| {
        let store = match &options.folder {
            Some(folder) => Target::Folder(ParquetStore::new(folder, None, true)?),
            None => Target::Memory(MemoryStore::default()),
        };
        let of_run = run::Options {
            seed: options.seed,
            limits: Limits {
                until: options.until,
                max_events: options.max_events,
            },
            record: options.record,
        };
        run::run(&load, machine, policy, &of_run, store, &mut progress)
    })?;
    let (tables, rows) = match target {
        Target::Memory(store) => {
            let tables = in_memory(store).into_iter();
            tables
                .map(|(name, (rows, table))| ((name, table), (name, rows)))
                .unzip()
        }
        Target::Folder(store) => (BTreeMap::new(), py.detach(|| store.finish(1))?),
    };
    if let Some(outcome) = outcome {
        about_policy.extend(told(&outcome));
    }
    about.insert("scheduler".into(), Value::Object(about_policy));
    about.insert("costs".into(), json!(options.costs));
    about.insert("tick_phase".into(), json!(options.tick_phase));
    about.insert("rows".into(), json!(rows));
    let internals = PyDict::new(py);
    internals.set_item("ts", series.ts)?;
    internals.set_item("series", series.series)?;
    internals.set_item("utid", series.utid)?;
    internals.set_item("cpu", series.cpu)?;
    internals.set_item("value", series.value)?;
    Ok((tables, format!("{:#}", Value::Object(about)), internals))
}

type Told = Arc<Mutex<schedscope_scx::Outcome>>;
type Described = (Box<dyn Policy>, Map<String, Value>, Option<Told>);

/// How the run of a sched_ext scheduler went.
fn told(outcome: &Told) -> Map<String, Value> {
    let mut about = Map::new();
    if let Ok(outcome) = outcome.lock() {
        about.insert("callbacks".into(), json!(outcome.callbacks));
        about.insert("instructions".into(), json!(outcome.instructions));
        if let Some(ended) = &outcome.ended {
            let exit = json!({
                "at": ended.at,
                "kind": ended.kind,
                "code": ended.code,
                "reason": ended.reason,
                "message": ended.message,
            });
            about.insert("exit".into(), exit);
        }
    }
    about
}

fn in_force(settings: &Settings) -> Value {
    let values = settings.in_force().map(|(n, v)| (n.to_string(), json!(v)));
    Value::Object(values.collect())
}

fn described(
    py: Python<'_>,
    policy: &Bound<'_, PyAny>,
    options: &Options,
    machine: &Machine,
    load: &Workload,
) -> Result<Described> {
    let mut about = Map::new();
    if let Ok(name) = policy.extract::<String>() {
        let made = registry::make(&name, &options.set, machine, load.threads.len())?;
        about.insert("name".into(), json!(name));
        about.insert("models".into(), json!(made.spec.models));
        about.insert("tunables".into(), in_force(&made.settings));
        about.insert("priorities".into(), json!(made.spec.priorities.name()));
        return Ok((made.policy, about, None));
    }
    let name = policy.getattr("name")?.extract::<String>()?;
    if let Some(object) = policy.getattr_opt("object")? {
        let object = object.extract::<Vec<u8>>()?;
        let path = policy.getattr("path")?.str()?.to_string();
        let made = schedscope_scx::make(&path, &object, &options.set, machine, load)?;
        about.insert("name".into(), json!(name));
        about.insert("sched_ext_ops".into(), json!(made.name));
        about.insert("models".into(), json!("a compiled scheduler of sched_ext"));
        if made.policy.shares_by_groups() {
            about.insert(
                "groups".into(),
                json!("told to the scheduler, but for quotas"),
            );
        }
        about.insert("tunables".into(), in_force(&made.settings));
        about.insert("priorities".into(), json!(PriorityScale::Linux.name()));
        return Ok((made.policy, about, Some(made.outcome)));
    }
    about.insert("name".into(), json!(name));
    about.insert("models".into(), json!("a policy written in Python"));
    // It has no hook for a number of its own.
    about.insert("priorities".into(), json!(PriorityScale::Linux.name()));
    let made = PyPolicy::new(py, policy.clone().unbind())?;
    Ok((Box::new(made), about, None))
}
