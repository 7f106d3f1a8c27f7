//! A workload out of the tables that Python hands in.
use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use pyo3::prelude::*;

use super::error::{Error, Result};
use super::machine::{Cpu, CpuSet};
use super::workload::{Channel, Class, INBOX, NO_CHANNEL, SELF, Step, ThreadSpec, Workload};
use crate::arrow_ffi::read_stream;

/// A table of whole numbers handed in by the Python side.
pub(super) struct Numbers {
    columns: HashMap<String, Vec<Option<i64>>>,
    rows: usize,
}

impl Numbers {
    pub(super) fn read(table: &Bound<'_, PyAny>) -> Result<Self> {
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
        self.columns
            .get(column)
            .and_then(|c| c.get(row).copied().flatten())
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

pub(super) struct Input {
    pub(super) threads: Numbers,
    pub(super) steps: Numbers,
    pub(super) masks: Vec<Vec<Cpu>>,
    pub(super) names: Vec<String>,
}

impl Input {
    pub(super) fn workload(&self, ncpu: usize) -> Result<Workload> {
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
        let cost = || {
            s.get("ns", row)
                .map_or(Ok(0), |_| s.need("step", "ns", row))
        };
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
                    count: s
                        .get("count", row)
                        .map_or(Ok(0), |_| s.need("step", "count", row))?,
                    cost: cost()?,
                    disk: flag("disk"),
                }
            }
            op::SIGNAL => {
                let to = thread()?;
                Step::Signal {
                    to,
                    pair: pairs.get(&(me, to)).copied().unwrap_or(NO_CHANNEL),
                    cost: cost()?,
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
        format!(
            "program {program} is shared by several threads, and step {row} needs to know which of them it is"
        ),
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
