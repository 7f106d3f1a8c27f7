//! What Python calls: `policies` and `simulate`.
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int8Array, Int64Array, RecordBatch, UInt8Array, UInt32Array,
};
use arrow_schema::{Field, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::{Map, Value, json};

use super::engine::{Counts, Engine, Limits, Progress};
use super::error::{Error, Result};
use super::extract::{Enters, Extractor, Rules, ThreadOut, linux_priority};
use super::machine::{Costs, Cpu, CpuInfo, CpuSet, Machine};
use super::policy::tunables::Kind;
use super::policy::{Policy, registry};
use super::py_policy::PyPolicy;
use super::trace_sink::{Series, TraceSink};
use super::workload::{Channel, Class, INBOX, NO_CHANNEL, SELF, Step, ThreadSpec, Workload};
use crate::arrow_ffi::{ArrowTable, read_stream};
use crate::model::tables::schemas;
use crate::reconstruct::facts::{self, Facts, TableIn};
use crate::store::{MemoryStore, ParquetStore, Store};

/// Every policy: name, family, summary, models, tunables, series.
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

/// A table of whole numbers handed in by the Python side.
struct Numbers {
    columns: HashMap<String, Vec<Option<i64>>>,
    rows: usize,
}

impl Numbers {
    fn read(table: &Bound<'_, PyAny>) -> Result<Self> {
        let (schema, batches) = read_stream(table)?;
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let mut columns = HashMap::new();
        for (i, field) in schema.fields().iter().enumerate() {
            let mut all = Vec::with_capacity(rows);
            for batch in &batches {
                let Some(array) = batch.column(i).as_primitive_opt::<Int64Type>() else {
                    return Err(Error::usage(
                        format!("column {} of type {}", field.name(), field.data_type()),
                        "a column of 64-bit integers",
                        "use schedscope.simulate, which prepares the tables",
                    ));
                };
                if array.null_count() == 0 {
                    all.extend(array.values().iter().map(|v| Some(*v)));
                } else {
                    all.extend(array.iter());
                }
            }
            columns.insert(field.name().clone(), all);
        }
        Ok(Self { columns, rows })
    }

    fn get(&self, column: &str, row: usize) -> Option<i64> {
        self.columns.get(column).and_then(|c| c.get(row).copied().flatten())
    }

    /// A value that must be there and fit its type.
    fn need<T: TryFrom<i64>>(&self, what: &str, column: &str, row: usize) -> Result<T> {
        let value = self.get(column, row);
        value.and_then(|v| T::try_from(v).ok()).ok_or_else(|| {
            Error::usage(
                format!(
                    "{what} {row}: {column} is {}",
                    value.map_or("missing".to_string(), |v| v.to_string())
                ),
                "a value in the column's range",
                "docs/simulator.md lists what each step needs",
            )
        })
    }
}

const CLASSES: [Class; 5] = [
    Class::Fifo,
    Class::RoundRobin,
    Class::Fair,
    Class::Batch,
    Class::Idle,
];

fn class(code: u8) -> Result<Class> {
    CLASSES.get(code as usize).copied().ok_or_else(|| {
        Error::usage(
            format!("scheduling class number {code}"),
            "one of fifo, rr, fair, batch, idle",
            "",
        )
    })
}

/// Codes of the `op` column, in the order of `schedscope.simulator.workload.OPS`.
pub mod op {
    pub const RUN: u8 = 0;
    pub const SLEEP: u8 = 1;
    pub const WAIT_UNTIL: u8 = 2;
    pub const WAIT_FOR: u8 = 3;
    pub const SIGNAL: u8 = 4;
    pub const FORK: u8 = 5;
    pub const YIELD: u8 = 6;
    pub const SET_PRIORITY: u8 = 7;
    pub const SET_AFFINITY: u8 = 8;
    pub const REPEAT: u8 = 9;
    pub const PARK: u8 = 10;
    pub const EXIT: u8 = 11;
}

struct Input {
    threads: Numbers,
    steps: Numbers,
    masks: Vec<Vec<Cpu>>,
    names: Vec<String>,
}

impl Input {
    fn workload(&self, ncpu: usize) -> Result<Workload> {
        let mut load = Workload::default();
        for mask in &self.masks {
            let mut set = CpuSet::empty(ncpu);
            for c in mask.iter().filter(|c| (**c as usize) < ncpu) {
                set.insert(*c);
            }
            load.masks.push(set);
        }
        let programs = self.programs()?;
        for row in 0..self.threads.rows {
            let of = |column: &str| self.threads.get(column, row);
            let program: u32 = self.threads.need("thread", "program", row)?;
            let (first, len) = programs.get(&program).copied().unwrap_or((0, 0));
            load.threads.push(ThreadSpec {
                name: self.names.get(row).cloned().unwrap_or_default(),
                tid: of("tid"),
                pid: of("pid"),
                class: class(self.threads.need("thread", "class", row)?)?,
                nice: self.threads.need("thread", "nice", row)?,
                rt_prio: self.threads.need("thread", "rt_prio", row)?,
                mask: self.threads.need("thread", "mask", row)?,
                start: of("start"),
                asleep: of("asleep").unwrap_or(0) != 0,
                cpu: of("cpu").and_then(|c| Cpu::try_from(c).ok()),
                first,
                len,
            });
        }
        self.channels(&mut load, &programs)?;
        Ok(load)
    }

    /// Where each program's steps lie; rows of one program stand together.
    fn programs(&self) -> Result<HashMap<u32, (u32, u32)>> {
        let mut found: HashMap<u32, (u32, u32)> = HashMap::new();
        let mut last = None;
        for row in 0..self.steps.rows {
            let program: u32 = self.steps.need("step", "program", row)?;
            let entry = found.entry(program).or_insert((row as u32, 0));
            if entry.1 > 0 && last != Some(program) {
                return Err(Error::usage(
                    format!("step {row} belongs to program {program}, whose steps ended before"),
                    "the steps of a program together",
                    "sort the steps by program, keeping their order",
                ));
            }
            entry.1 += 1;
            last = Some(program);
        }
        Ok(found)
    }

    /// Turns the steps into the engine's, with a channel for every pair of
    /// threads of which one waits for the other by name, and for every inbox.
    fn channels(&self, load: &mut Workload, programs: &HashMap<u32, (u32, u32)>) -> Result<()> {
        let n = load.threads.len();
        let mut users: HashMap<u32, Vec<u32>> = HashMap::new();
        for row in 0..n {
            let program: u32 = self.threads.need("thread", "program", row)?;
            users.entry(program).or_default().push(row as u32);
        }
        let none = Vec::new();
        let owners = |program: u32| users.get(&program).unwrap_or(&none);
        let mut pairs: HashMap<(u32, u32), u32> = HashMap::new();
        let mut hears = vec![false; n];
        load.inboxes = vec![NO_CHANNEL; n];
        for row in 0..self.steps.rows {
            if self.steps.get("op", row) != Some(i64::from(op::WAIT_FOR)) {
                continue;
            }
            let program: u32 = self.steps.need("step", "program", row)?;
            if self.steps.get("thread", row).is_none() {
                for t in owners(program) {
                    let inbox = &mut load.inboxes[*t as usize];
                    if *inbox == NO_CHANNEL {
                        *inbox = load.channels.len() as u32;
                        load.channels.push(Channel { to: *t, from: None });
                    }
                }
                continue;
            }
            let from: u32 = self.steps.need("step", "thread", row)?;
            let [me] = owners(program)[..] else {
                if owners(program).is_empty() {
                    continue;
                }
                return Err(shared(program, row));
            };
            hears[me as usize] = true;
            pairs.entry((from, me)).or_insert_with(|| {
                load.channels.push(Channel {
                    to: me,
                    from: Some(from),
                });
                load.channels.len() as u32 - 1
            });
        }
        for row in 0..self.steps.rows {
            let program: u32 = self.steps.need("step", "program", row)?;
            let signals = self.steps.get("op", row) == Some(i64::from(op::SIGNAL));
            if signals && owners(program).len() > 1 {
                // Who of them signals would have to be known to the listener.
                let to: u32 = self.steps.need("step", "thread", row)?;
                if hears.get(to as usize).copied().unwrap_or(false) {
                    return Err(shared(program, row));
                }
            }
            let me = owners(program).first().copied().unwrap_or(SELF);
            let first = programs.get(&program).map_or(0, |p| p.0);
            let step = self.step(row, me, first, &pairs)?;
            load.steps.push(step);
        }
        number_repeats(load, programs);
        Ok(())
    }

    fn step(
        &self,
        row: usize,
        me: u32,
        first: u32,
        pairs: &HashMap<(u32, u32), u32>,
    ) -> Result<Step> {
        let s = &self.steps;
        let ns = || s.need::<i64>("step", "ns", row);
        let flag = |column: &str| s.get(column, row).unwrap_or(0) != 0;
        let thread = || s.need::<u32>("step", "thread", row);
        let of = || s.get("thread", row).map_or(Ok(SELF), |_| thread());
        Ok(match s.need::<u8>("step", "op", row)? {
            op::RUN => Step::Run(ns()?),
            op::SLEEP => Step::Sleep {
                ns: ns()?,
                disk: flag("disk"),
            },
            op::WAIT_UNTIL => Step::WaitUntil(ns()?),
            op::WAIT_FOR => {
                let channel = match s.get("thread", row) {
                    None => INBOX,
                    Some(_) => pairs.get(&(thread()?, me)).copied().unwrap_or(NO_CHANNEL),
                };
                Step::WaitFor {
                    channel,
                    count: s.get("count", row).map_or(Ok(0), |_| s.need("step", "count", row))?,
                    disk: flag("disk"),
                }
            }
            op::SIGNAL => {
                let to = thread()?;
                Step::Signal {
                    to,
                    pair: pairs.get(&(me, to)).copied().unwrap_or(NO_CHANNEL),
                    sync: flag("sync"),
                    meet: flag("meet"),
                }
            }
            op::FORK => Step::Fork(thread()?),
            op::YIELD => Step::Yield,
            op::SET_PRIORITY => Step::SetPriority {
                of: of()?,
                class: class(s.need("step", "class", row)?)?,
                nice: s.need("step", "nice", row)?,
                rt_prio: s.need("step", "rt_prio", row)?,
            },
            op::SET_AFFINITY => Step::SetAffinity {
                of: of()?,
                mask: s.need("step", "mask", row)?,
            },
            op::REPEAT => Step::Repeat {
                to: s.need::<u32>("step", "step", row)?,
                times: match s.get("count", row) {
                    None => None,
                    Some(_) => Some(s.need("step", "count", row)?),
                },
                counter: 0,
            },
            op::PARK => Step::Park,
            op::EXIT => Step::Exit,
            other => {
                return Err(Error::usage(
                    format!("step {row} of program starting at {first}: operation {other}"),
                    "an operation number below 12",
                    "",
                ));
            }
        })
    }
}

fn shared(program: u32, row: usize) -> Error {
    Error::usage(
        format!("program {program} is shared by several threads, and step {row} needs to know which of them it is"),
        "a program of its own for each thread that waits, or is waited for, by name",
        "copy the program, or wait for anyone",
    )
}

/// Gives each `Repeat` of a program a counter of its own.
fn number_repeats(load: &mut Workload, programs: &HashMap<u32, (u32, u32)>) {
    for (first, len) in programs.values() {
        let mut next = 0u32;
        for step in &mut load.steps[*first as usize..(*first + *len) as usize] {
            if let Step::Repeat { counter, .. } = step {
                *counter = next;
                next = next.saturating_add(1);
            }
        }
    }
}

fn machine(shape: &[[u16; 5]], costs: &HashMap<String, f64>) -> Result<Machine> {
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
        smt_speed_permille: costs.get("smt_speed").map_or(1000, |v| (v * 1000.0).round() as i64),
        ipi_ns: ns("ipi"),
        idle_exit_ns: ns("idle_exit"),
        tick_ns: ns("tick"),
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
) -> PyResult<(BTreeMap<&'static str, ArrowTable>, String, Bound<'py, PyDict>)> {
    let input = Input {
        threads: Numbers::read(&threads)?,
        steps: Numbers::read(&steps)?,
        masks,
        names,
    };
    let machine = machine(&options.shape, &options.costs)?;
    let load = input.workload(machine.ncpu())?;
    drop(input);
    load.check(machine.ncpu())?;
    let (maker, about_policy) = maker(py, &policy, &options, &machine, load.threads.len())?;
    let (target, about, series) = py.detach(|| {
        run(&load, machine, maker, &options, about_policy, progress.as_ref())
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
        return Ok((made.policy, about));
    }
    about.insert("name".into(), json!(policy.getattr("name")?.extract::<String>()?));
    about.insert("models".into(), json!("a policy written in Python"));
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
        Some(folder) => Target::Folder(ParquetStore::new(folder)),
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
    let Ok(sink) = engine.into_sink().into_any().downcast::<TraceSink<Target>>() else {
        return Err(Error::usage("the simulation lost its output", "its own sink", "report it"));
    };
    let (store, mut about, series) = sink.finish(end, load, &machine, &prios)?;
    about.insert("scheduler".into(), Value::Object(about_policy));
    about.insert("simulation".into(), simulation);
    about.insert("seed".into(), json!(options.seed));
    about.insert("costs".into(), json!(options.costs));
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
            Some(table) => Ok(read_stream(table)?.1),
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
    threads.set_item("asleep", column(&|t| Some(i64::from(t.enters == Enters::Asleep))))?;
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

fn steps_of(out: &Extractor) -> Result<ArrowTable> {
    let n = out.threads.iter().map(|t| t.steps.len()).sum();
    let mut program = Vec::with_capacity(n);
    let mut ops = Vec::with_capacity(n);
    let mut ns = Vec::with_capacity(n);
    let mut thread = Vec::with_capacity(n);
    let mut count = Vec::with_capacity(n);
    let mut disk = Vec::with_capacity(n);
    let mut meet = Vec::with_capacity(n);
    let mut class = Vec::with_capacity(n);
    let mut nice = Vec::with_capacity(n);
    let mut rt_prio = Vec::with_capacity(n);
    for (i, t) in out.threads.iter().enumerate() {
        for s in &t.steps {
            let timed = matches!(s.op, op::RUN | op::SLEEP | op::WAIT_UNTIL);
            let named = (s.thread != u32::MAX).then_some(s.thread);
            let priority = (s.op == op::SET_PRIORITY).then(|| linux_priority(s.ns as i16));
            program.push(i as u32);
            ops.push(s.op);
            ns.push(timed.then_some(s.ns));
            thread.push(named);
            count.push((s.op == op::WAIT_FOR).then_some(s.count as i64));
            disk.push(matches!(s.op, op::SLEEP | op::WAIT_FOR).then_some(s.disk));
            meet.push((s.op == op::SIGNAL).then_some(s.meet));
            class.push(priority.map(|p| p.0));
            nice.push(priority.map(|p| p.1));
            rt_prio.push(priority.map(|p| p.2));
        }
    }
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("program", Arc::new(UInt32Array::from(program))),
        ("op", Arc::new(UInt8Array::from(ops))),
        ("ns", Arc::new(Int64Array::from(ns))),
        ("thread", Arc::new(UInt32Array::from(thread))),
        ("count", Arc::new(Int64Array::from(count))),
        ("disk", Arc::new(BooleanArray::from(disk))),
        ("meet", Arc::new(BooleanArray::from(meet))),
        ("class", Arc::new(UInt8Array::from(class))),
        ("nice", Arc::new(Int8Array::from(nice))),
        ("rt_prio", Arc::new(UInt8Array::from(rt_prio))),
    ];
    let fields = columns.iter().map(|(name, a)| Field::new(*name, a.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let arrays = columns.into_iter().map(|(_, a)| a).collect();
    let batch = RecordBatch::try_new(schema.clone(), arrays)
        .map_err(|e| Error::usage(format!("steps that do not fit a table: {e}"), "", "report it"))?;
    Ok(ArrowTable::new(schema, vec![batch]))
}
