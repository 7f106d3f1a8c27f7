//! A workload out of its tables of threads and steps.
use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Schema};

use super::error::{Error, Result};
use super::machine::{Cpu, CpuSet};
use super::workload::{
    Channel, Class, GroupMove, GroupSpec, INBOX, NO_CHANNEL, NO_JOB, Past, PipeSpec, Quota,
    Reservation, SELF, Step, ThreadSpec, Tid, Workload,
};

/// The columns of both tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Col {
    Program,
    Op,
    Ns,
    Thread,
    Count,
    Step,
    Disk,
    Sync,
    Meet,
    Class,
    Nice,
    RtPrio,
    Mask,
    Tid,
    Pid,
    Start,
    Asleep,
    Cpu,
    Pipe,
    Group,
    Mutex,
    Condition,
    Barrier,
    Queue,
    Job,
    Slice,
    DlRuntime,
    DlDeadline,
    DlPeriod,
    PastUsed,
    PastRun,
    PastSleep,
    PastCharged,
    ExitsAfter,
}

const NAMES: [&str; 34] = [
    "program",
    "op",
    "ns",
    "thread",
    "count",
    "step",
    "disk",
    "sync",
    "meet",
    "class",
    "nice",
    "rt_prio",
    "mask",
    "tid",
    "pid",
    "start",
    "asleep",
    "cpu",
    "pipe",
    "group",
    "mutex",
    "condition",
    "barrier",
    "queue",
    "job",
    "slice",
    "dl_runtime",
    "dl_deadline",
    "dl_period",
    "past_used",
    "past_run",
    "past_sleep",
    "past_charged",
    "exits_after",
];

/// A table of integers. A million steps are
/// nothing rare, so that columns are found by place, and not copied if whole.
pub struct Numbers {
    columns: [Option<Int64Array>; NAMES.len()],
    rows: usize,
}

impl Numbers {
    pub fn read(schema: &Schema, batches: &[RecordBatch]) -> Result<Self> {
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let mut columns = [const { None }; NAMES.len()];
        for (i, field) in schema.fields().iter().enumerate() {
            let mut parts = Vec::with_capacity(batches.len());
            for batch in batches {
                let Some(array) = whole(batch.column(i)) else {
                    return Err(Error::usage(
                        format!("column {} of type {}", field.name(), field.data_type()),
                        "a column of integers or truth values",
                        "use schedscope.simulate, which prepares the tables",
                    ));
                };
                parts.push(array);
            }
            if let Some(at) = NAMES.iter().position(|n| n == field.name()) {
                columns[at] = Some(match parts[..] {
                    [ref whole] => whole.clone(),
                    _ => parts.iter().flatten().collect(),
                });
            }
        }
        Ok(Self { columns, rows })
    }

    fn get(&self, column: Col, row: usize) -> Option<i64> {
        let array = self.columns[column as usize].as_ref()?;
        (row < array.len() && array.is_valid(row)).then(|| array.value(row))
    }

    /// A value that must be there and fit its type.
    fn need<T: TryFrom<i64>>(&self, what: &str, column: Col, row: usize) -> Result<T> {
        let value = self.get(column, row);
        value.and_then(|v| T::try_from(v).ok()).ok_or_else(|| {
            Error::usage(
                format!(
                    "{what} {row}: {} is {}",
                    NAMES[column as usize],
                    value.map_or("missing".to_string(), |v| v.to_string())
                ),
                "a value in the column's range",
                "help(schedscope.workload) lists what each step needs",
            )
        })
    }
}

/// Integers of any width, and truth values as 0 and 1.
fn whole(column: &ArrayRef) -> Option<Int64Array> {
    Some(match column.data_type() {
        DataType::Int64 => column.as_primitive::<Int64Type>().clone(),
        DataType::UInt32 => column.as_primitive::<UInt32Type>().unary(i64::from),
        DataType::UInt8 => column.as_primitive::<UInt8Type>().unary(i64::from),
        DataType::Int8 => column.as_primitive::<Int8Type>().unary(i64::from),
        DataType::Boolean => {
            let values = column.as_boolean().iter();
            values.map(|value| value.map(i64::from)).collect()
        }
        _ => return None,
    })
}

fn pipe([capacity, low, filled, page]: [u64; 4]) -> PipeSpec {
    PipeSpec {
        capacity,
        low,
        filled,
        page,
    }
}

fn group((name, parent, shares, quota): &GroupRow) -> GroupSpec {
    GroupSpec {
        name: name.clone(),
        parent: *parent,
        shares: *shares,
        quota: quota.map(|(ns, period, phase)| Quota { ns, period, phase }),
    }
}

fn group_move(&(at, thread, group): &MoveRow) -> GroupMove {
    GroupMove { at, thread, group }
}

const CLASSES: [Class; 8] = [
    Class::Fifo,
    Class::RoundRobin,
    Class::Fair,
    Class::Batch,
    Class::Idle,
    Class::Deadline,
    Class::Interrupt,
    Class::Kernel,
];

fn class(code: u8) -> Result<Class> {
    CLASSES.get(code as usize).copied().ok_or_else(|| {
        Error::usage(
            format!("scheduling class number {code}"),
            "one of fifo, rr, fair, batch, idle, deadline, interrupt, kernel",
            "",
        )
    })
}

/// Codes of the `op` column, in the order of `schedscope.simulator.workloads.workload.OPS`.
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
    pub const PUT: u8 = 12;
    pub const TAKE: u8 = 13;
    pub const LOCK: u8 = 14;
    pub const UNLOCK: u8 = 15;
    pub const COND_WAIT: u8 = 16;
    pub const COND_SIGNAL: u8 = 17;
    pub const COND_BROADCAST: u8 = 18;
    pub const BARRIER: u8 = 19;
    pub const POST: u8 = 20;
    pub const SERVE: u8 = 21;
    pub const SLEEP_TICKS: u8 = 22;
    pub const READ_CLOCK: u8 = 23;
}

/// The channel from one thread to another.
type Pairs = HashMap<(u32, u32), u32, rustc_hash::FxBuildHasher>;

pub struct Input {
    pub threads: Numbers,
    pub steps: Numbers,
    pub masks: Vec<Vec<Cpu>>,
    pub names: Vec<String>,
    /// Of each pipe its capacity, the level at which writers are woken, what is in it,
    /// and the size of its pages.
    pub pipes: Vec<[u64; 4]>,
    /// Of each control group its name, the number of its parent, its shares, and of its quota
    /// (if it has one) time, period and phase, ns.
    pub groups: Vec<GroupRow>,
    /// In order of time, of each move between groups when it is, ns, which thread goes, and the
    /// number of the group that it is then in.
    pub moves: Vec<MoveRow>,
}

pub type GroupRow = (String, Option<u32>, i64, Option<(i64, i64, i64)>);
pub type MoveRow = (i64, Tid, Option<u32>);

impl Input {
    pub fn workload(&self, ncpu: usize) -> Result<Workload> {
        let mut load = Workload {
            pipes: self.pipes.iter().map(|p| pipe(*p)).collect(),
            groups: self.groups.iter().map(group).collect(),
            moves: self.moves.iter().map(group_move).collect(),
            ..Workload::default()
        };
        for mask in &self.masks {
            let mut set = CpuSet::empty(ncpu);
            for c in mask.iter().filter(|c| (**c as usize) < ncpu) {
                set.insert(*c);
            }
            load.masks.push(set);
        }
        let programs = self.programs()?;
        let jobs = self.jobs(&mut load, &programs)?;
        for row in 0..self.threads.rows {
            let of = |column: Col| self.threads.get(column, row);
            let program: u32 = self.threads.need("thread", Col::Program, row)?;
            let (first, len) = programs.get(&program).copied().unwrap_or((0, 0));
            load.threads.push(ThreadSpec {
                name: self.names.get(row).cloned().unwrap_or_default(),
                tid: of(Col::Tid),
                pid: of(Col::Pid),
                class: class(self.threads.need("thread", Col::Class, row)?)?,
                nice: self.threads.need("thread", Col::Nice, row)?,
                rt_prio: self.threads.need("thread", Col::RtPrio, row)?,
                mask: self.threads.need("thread", Col::Mask, row)?,
                start: of(Col::Start),
                asleep: of(Col::Asleep).unwrap_or(0) != 0,
                cpu: of(Col::Cpu).and_then(|c| Cpu::try_from(c).ok()),
                group: of(Col::Group).and_then(|g| u32::try_from(g).ok()),
                slice: of(Col::Slice),
                reservation: of(Col::DlRuntime).map(|runtime| Reservation {
                    runtime,
                    deadline: of(Col::DlDeadline).unwrap_or(0),
                    period: of(Col::DlPeriod).unwrap_or(0),
                }),
                past: of(Col::PastRun).map(|ran| Past {
                    used: of(Col::PastUsed).unwrap_or(0),
                    ran,
                    slept: of(Col::PastSleep).unwrap_or(0),
                    charged: of(Col::PastCharged).unwrap_or(0),
                }),
                exits_after: of(Col::ExitsAfter),
                first,
                len,
            });
        }
        self.channels(&mut load, &programs, &jobs)?;
        Ok(load)
    }

    /// The programs that are put into queues, each with its number there.
    fn jobs(
        &self,
        load: &mut Workload,
        programs: &HashMap<u32, (u32, u32)>,
    ) -> Result<HashMap<u32, u32>> {
        let mut jobs = HashMap::new();
        for row in 0..self.steps.rows {
            if self.steps.get(Col::Op, row) != Some(i64::from(op::POST))
                || self.steps.get(Col::Job, row).is_none()
            {
                continue;
            }
            let program: u32 = self.steps.need("step", Col::Job, row)?;
            let next = load.jobs.len() as u32;
            if *jobs.entry(program).or_insert(next) == next {
                load.jobs
                    .push(programs.get(&program).copied().unwrap_or((0, 0)));
            }
        }
        Ok(jobs)
    }

    /// Where each program's steps lie; rows of one program stand together.
    fn programs(&self) -> Result<HashMap<u32, (u32, u32)>> {
        let mut found: HashMap<u32, (u32, u32)> = HashMap::new();
        let mut begin = 0;
        while begin < self.steps.rows {
            let program: u32 = self.steps.need("step", Col::Program, begin)?;
            let mut end = begin + 1;
            while end < self.steps.rows
                && self.steps.get(Col::Program, end) == Some(i64::from(program))
            {
                end += 1;
            }
            let place = (begin as u32, (end - begin) as u32);
            if found.insert(program, place).is_some() {
                return Err(Error::usage(
                    format!("step {begin} belongs to program {program}, whose steps ended before"),
                    "the steps of a program together",
                    "sort the steps by program, keeping their order",
                ));
            }
            begin = end;
        }
        Ok(found)
    }

    /// Turns the steps into the engine's, with a channel for every pair of
    /// threads of which one waits for the other by name, and for every inbox.
    fn channels(
        &self,
        load: &mut Workload,
        programs: &HashMap<u32, (u32, u32)>,
        jobs: &HashMap<u32, u32>,
    ) -> Result<()> {
        let n = load.threads.len();
        let mut users: HashMap<u32, Vec<u32>> = HashMap::new();
        for row in 0..n {
            let program: u32 = self.threads.need("thread", Col::Program, row)?;
            users.entry(program).or_default().push(row as u32);
        }
        let none = Vec::new();
        let mut known = (None, &none);
        // Rows of one program stand together.
        let mut owners = |program: u32| {
            if known.0 != Some(program) {
                known = (Some(program), users.get(&program).unwrap_or(&none));
            }
            known.1
        };
        let mut pairs = Pairs::default();
        let mut hears = vec![false; n];
        load.inboxes = vec![NO_CHANNEL; n];
        for row in 0..self.steps.rows {
            if self.steps.get(Col::Op, row) != Some(i64::from(op::WAIT_FOR)) {
                continue;
            }
            let program: u32 = self.steps.need("step", Col::Program, row)?;
            if self.steps.get(Col::Thread, row).is_none() {
                for t in owners(program) {
                    let inbox = &mut load.inboxes[*t as usize];
                    if *inbox == NO_CHANNEL {
                        *inbox = load.channels.len() as u32;
                        load.channels.push(Channel { to: *t, from: None });
                    }
                }
                continue;
            }
            let from: u32 = self.steps.need("step", Col::Thread, row)?;
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
        load.steps.reserve_exact(self.steps.rows);
        for row in 0..self.steps.rows {
            let program: u32 = self.steps.need("step", Col::Program, row)?;
            let signals = self.steps.get(Col::Op, row) == Some(i64::from(op::SIGNAL));
            let owners = owners(program);
            if signals && owners.len() > 1 {
                // Who of them signals would have to be known to the listener.
                let to: u32 = self.steps.need("step", Col::Thread, row)?;
                if hears.get(to as usize).copied().unwrap_or(false) {
                    return Err(shared(program, row));
                }
            }
            let me = owners.first().copied().unwrap_or(SELF);
            let step = self.step(row, me, &pairs, jobs)?;
            load.steps.push(step);
        }
        number_repeats(load, programs)
    }

    fn step(&self, row: usize, me: u32, pairs: &Pairs, jobs: &HashMap<u32, u32>) -> Result<Step> {
        let s = &self.steps;
        let ns = || s.need::<i64>("step", Col::Ns, row);
        let cost = || {
            s.get(Col::Ns, row)
                .map_or(Ok(0), |_| s.need("step", Col::Ns, row))
        };
        let flag = |column: Col| s.get(column, row).unwrap_or(0) != 0;
        let thread = || s.need::<u32>("step", Col::Thread, row);
        let of = || s.get(Col::Thread, row).map_or(Ok(SELF), |_| thread());
        Ok(match s.need::<u8>("step", Col::Op, row)? {
            op::RUN => Step::Run(ns()?),
            op::SLEEP => Step::Sleep {
                ns: ns()?,
                disk: flag(Col::Disk),
            },
            op::SLEEP_TICKS => Step::SleepTicks(ns()?),
            op::WAIT_UNTIL => Step::WaitUntil(ns()?),
            op::READ_CLOCK => Step::ReadClock(ns()?),
            op::WAIT_FOR => {
                let channel = match s.get(Col::Thread, row) {
                    None => INBOX,
                    Some(_) => pairs.get(&(thread()?, me)).copied().unwrap_or(NO_CHANNEL),
                };
                Step::WaitFor {
                    channel,
                    count: s
                        .get(Col::Count, row)
                        .map_or(Ok(0), |_| s.need("step", Col::Count, row))?,
                    cost: cost()?,
                    disk: flag(Col::Disk),
                }
            }
            op::SIGNAL => {
                let to = thread()?;
                let pair = pairs.get(&(me, to)).copied();
                Step::Signal {
                    to,
                    pair: pair.unwrap_or(NO_CHANNEL),
                    cost: cost()?,
                    sync: flag(Col::Sync),
                    // One that never waits for this thread by name cannot be met.
                    meet: flag(Col::Meet) && pair.is_some(),
                }
            }
            op::FORK => Step::Fork(thread()?),
            op::YIELD => Step::Yield,
            op::SET_PRIORITY => Step::SetPriority {
                of: of()?,
                class: class(s.need("step", Col::Class, row)?)?,
                nice: s.need("step", Col::Nice, row)?,
                rt_prio: s.need("step", Col::RtPrio, row)?,
            },
            op::SET_AFFINITY => Step::SetAffinity {
                of: of()?,
                mask: s.need("step", Col::Mask, row)?,
            },
            op::REPEAT => Step::Repeat {
                to: s.need::<u32>("step", Col::Step, row)?,
                times: match s.get(Col::Count, row) {
                    None => None,
                    Some(_) => Some(s.need("step", Col::Count, row)?),
                },
                counter: 0,
            },
            op::PUT => Step::Put {
                pipe: s.need("step", Col::Pipe, row)?,
                amount: s.need("step", Col::Count, row)?,
                cost: cost()?,
                sync: flag(Col::Sync),
            },
            op::TAKE => Step::Take {
                pipe: s.need("step", Col::Pipe, row)?,
                amount: s.need("step", Col::Count, row)?,
                cost: cost()?,
                disk: flag(Col::Disk),
            },
            op::LOCK => Step::Lock {
                mutex: s.need("step", Col::Mutex, row)?,
                cost: cost()?,
            },
            op::UNLOCK => Step::Unlock {
                mutex: s.need("step", Col::Mutex, row)?,
                cost: cost()?,
            },
            op::COND_WAIT => Step::CondWait {
                condition: s.need("step", Col::Condition, row)?,
                mutex: s.need("step", Col::Mutex, row)?,
                cost: cost()?,
            },
            code @ (op::COND_SIGNAL | op::COND_BROADCAST) => Step::CondSignal {
                condition: s.need("step", Col::Condition, row)?,
                all: code == op::COND_BROADCAST,
                cost: cost()?,
            },
            op::BARRIER => Step::Barrier {
                barrier: s.need("step", Col::Barrier, row)?,
                count: s.need("step", Col::Count, row)?,
                cost: cost()?,
            },
            op::POST => Step::Post {
                queue: s.need("step", Col::Queue, row)?,
                job: match s.get(Col::Job, row) {
                    None => NO_JOB,
                    Some(_) => jobs[&s.need("step", Col::Job, row)?],
                },
                cost: cost()?,
            },
            op::SERVE => Step::Serve {
                queue: s.need("step", Col::Queue, row)?,
                cost: cost()?,
            },
            op::PARK => Step::Park,
            op::EXIT => Step::Exit,
            other => {
                return Err(Error::usage(
                    format!("step {row}: operation {other}"),
                    "an operation number below 22",
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
fn number_repeats(load: &mut Workload, programs: &HashMap<u32, (u32, u32)>) -> Result<()> {
    for (program, (first, len)) in programs {
        let mut next = Some(0u16);
        for step in &mut load.steps[*first as usize..(*first + *len) as usize] {
            if let Step::Repeat { counter, .. } = step {
                *counter = next.ok_or_else(|| {
                    Error::usage(
                        format!("program {program} has more than 65536 `repeat` steps"),
                        "at most that many in one program",
                        "write the repeated steps out, or use more threads",
                    )
                })?;
                next = counter.checked_add(1);
            }
        }
    }
    Ok(())
}
