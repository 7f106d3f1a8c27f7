//! Writes a run as a trace: fact tables, and the reconstruction beside them.
//!
//! The engine's rows come in causal order, so the reconstruction is fed as they
//! come; a reader that merges the tables later has only their times.
use std::any::Any;

use serde_json::{Map, Value, json};

use super::error::{Error, Result};
use super::machine::{Cpu, CpuSet, Machine};
use super::output::{LeftAs, Record, Sink, Switch, WakeStep, Wakeup};
use super::workload::{Class, Tid, Workload};
use crate::model::event::{PriorityCause, SchedClass, State, WakeKind};
use crate::model::tables::{
    self, Cpus, Migrations, Priorities, SCHEMA_VERSION, Switches, Threads, Wakeups, Yields,
};
use crate::reconstruct::Reconstructor;
use crate::store::Store;
use crate::summary;

/// Internal series, as columns.
#[derive(Debug, Default)]
pub struct Series {
    pub ts: Vec<i64>,
    pub series: Vec<u16>,
    pub utid: Vec<Option<u32>>,
    pub cpu: Vec<Option<u16>>,
    pub value: Vec<f64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Life {
    start: Option<i64>,
    parent: Option<Tid>,
    exit: Option<i64>,
}

pub struct TraceSink<S> {
    ncpu: u32,
    store: S,
    reconstruction: Reconstructor,
    lives: Vec<Life>,
    switches: Switches,
    wakeups: Wakeups,
    migrations: Migrations,
    yields: Yields,
    priorities: Priorities,
    pub series: Series,
    counts: Vec<[u64; 4]>,
    /// Who runs on each CPU.
    current: Vec<Option<Tid>>,
    /// CPUs that are offline.
    offline: Vec<bool>,
    failure: Option<Error>,
}

const COUNTED: [&str; 4] = [
    "sched_switch",
    "sched_waking",
    "sched_wakeup",
    "sched_migrate_task",
];

impl<S: Store> TraceSink<S> {
    pub fn new(ncpu: usize, nthreads: usize, store: S) -> Self {
        let mut reconstruction = Reconstructor::new(ncpu as u16, 0);
        reconstruction.begin_idle(0..ncpu as u16);
        Self {
            ncpu: ncpu as u32,
            store,
            reconstruction,
            lives: vec![Life::default(); nthreads],
            switches: Switches::default(),
            wakeups: Wakeups::default(),
            migrations: Migrations::default(),
            yields: Yields::default(),
            priorities: Priorities::default(),
            series: Series::default(),
            counts: vec![[0; 4]; ncpu],
            current: vec![None; ncpu],
            offline: vec![false; ncpu],
            failure: None,
        }
    }

    fn utid(&self, cpu: Cpu, t: Option<Tid>) -> u32 {
        t.map_or(u32::from(cpu), |t| t + self.ncpu)
    }

    fn flush(&mut self, at_least: usize) {
        if let Err(e) = self.try_flush(at_least) {
            self.failure.get_or_insert(e);
        }
    }

    fn try_flush(&mut self, at_least: usize) -> Result<()> {
        let store = &mut self.store;
        let r = &mut self.reconstruction;
        macro_rules! hand_on {
            ($($table:expr, $kind:ty);+ $(;)?) => {$(
                if $table.len() >= at_least {
                    store.write(<$kind as tables::Table>::NAME, $table.take())?;
                }
            )+};
        }
        hand_on!(
            self.switches, Switches;
            self.wakeups, Wakeups;
            self.migrations, Migrations;
            self.yields, Yields;
            self.priorities, Priorities;
            r.states, tables::States;
            r.waits, tables::Waits;
        );
        Ok(())
    }

    /// Closes the trace at `end`; answers the store and what trace.json says of
    /// the tables.
    pub fn finish(
        mut self,
        end: i64,
        load: &Workload,
        machine: &Machine,
        prios: &[i16],
    ) -> Result<(S, Map<String, Value>, Series)> {
        self.reconstruction.finish(end);
        self.try_flush(0)?;
        if let Some(e) = self.failure.take() {
            return Err(e);
        }
        self.store
            .write("threads", self.threads(load, prios, end))?;
        self.store.write("cpus", cpus(machine))?;
        let losses = self.reconstruction.sorted_losses();
        self.store.write("losses", losses)?;
        let mut events = Map::new();
        for (i, name) in COUNTED.iter().enumerate() {
            let per_cpu: Map<String, Value> = self
                .counts
                .iter()
                .enumerate()
                .filter(|(_, n)| n[i] > 0)
                .map(|(c, n)| (c.to_string(), json!(n[i])))
                .collect();
            events.insert((*name).into(), Value::Object(per_cpu));
        }
        let mut about = Map::new();
        about.insert("schema_version".into(), json!(SCHEMA_VERSION));
        about.insert("ncpu".into(), json!(self.ncpu));
        about.insert("window".into(), json!([0, end]));
        about.insert("has_waking".into(), json!(true));
        about.insert("has_enqueued".into(), json!(true));
        about.insert("events".into(), Value::Object(events));
        about.insert("per_cpu".into(), summary::cpus(&self.reconstruction));
        let offline = offline(machine, end);
        if !offline.is_empty() {
            about.insert("offline".into(), Value::Array(offline));
        }
        let moves = group_moves(load, end);
        if !moves.is_empty() {
            about.insert("group_moves".into(), Value::Array(moves));
        }
        about.insert(
            "reconstruction".into(),
            summary::counters(&self.reconstruction.counters),
        );
        Ok((self.store, about, self.series))
    }

    fn threads(&self, load: &Workload, prios: &[i16], end: i64) -> arrow_array::RecordBatch {
        let mut table = Threads::default();
        let row = |utid, comm: String| tables::Thread {
            utid,
            tid: None,
            pid: None,
            comm_first: comm.clone(),
            comm,
            kernel: None,
            sched_class: None,
            prio: None,
            affinity: None,
            recorder: Some(false),
            start_ts: None,
            end_ts: None,
            parent_utid: None,
            exit_ts: None,
            ppid: None,
            process_name: None,
            cgroup: None,
            cmdline: None,
        };
        for cpu in 0..self.ncpu {
            table.push(tables::Thread {
                tid: Some(0),
                pid: Some(0),
                kernel: Some(true),
                sched_class: Some(SchedClass::Idle),
                ..row(cpu, format!("idle/{cpu}"))
            });
        }
        let mut last = vec![None; load.threads.len()];
        for one in load.moves.iter().filter(|m| m.at < end) {
            last[one.thread as usize] = Some(one.group);
        }
        for (t, spec) in load.threads.iter().enumerate() {
            let life = &self.lives[t];
            let utid = self.ncpu + t as u32;
            let tid = tid_of(load, t);
            let cgroup = match last[t] {
                Some(group) => Some(path_of(load, group)),
                None => spec.group.map(|g| path_of(load, Some(g))),
            };
            table.push(tables::Thread {
                tid: Some(tid),
                pid: Some(spec.pid.and_then(|n| u32::try_from(n).ok()).unwrap_or(tid)),
                sched_class: Some(class_of(spec.class)),
                prio: prios.get(t).copied(),
                affinity: Some(list(&load.masks[spec.mask as usize])),
                start_ts: life.start,
                end_ts: life.exit.or(self.reconstruction.last_event(utid)),
                parent_utid: life.parent.map(|p| p + self.ncpu),
                exit_ts: life.exit,
                cgroup,
                ..row(utid, spec.name.clone())
            });
        }
        table.take()
    }
}

/// Made-up tids start here, for threads that have none.
const FIRST_TID: u32 = 1000;

fn tid_of(load: &Workload, t: usize) -> u32 {
    let own = load.threads[t].tid.and_then(|n| u32::try_from(n).ok());
    own.unwrap_or(FIRST_TID + t as u32)
}

/// The path of a group; of no group that of the root.
fn path_of(load: &Workload, group: Option<u32>) -> String {
    group.map_or("/".to_string(), |g| load.groups[g as usize].name.clone())
}

/// When CPUs were offline, within the window.
fn offline(machine: &Machine, end: i64) -> Vec<Value> {
    let within = machine.outages().iter().filter(|o| o.since < end);
    within
        .map(|o| {
            let until = o.until.filter(|until| *until < end);
            json!({"cpu": o.cpu, "begin": o.since.max(0), "end": until.unwrap_or(end)})
        })
        .collect()
}

/// The moves between groups before `end`, as in a recording.
fn group_moves(load: &Workload, end: i64) -> Vec<Value> {
    let mut of: Vec<Option<u32>> = load.threads.iter().map(|spec| spec.group).collect();
    let before = load.moves.iter().filter(|m| m.at < end);
    before
        .map(|m| {
            let t = m.thread as usize;
            let from = std::mem::replace(&mut of[t], m.group);
            json!({
                "ts": m.at,
                "tid": tid_of(load, t),
                "from": path_of(load, from),
                "cgroup": path_of(load, m.group),
            })
        })
        .collect()
}

fn class_of(class: Class) -> SchedClass {
    match class {
        Class::Deadline => SchedClass::Deadline,
        Class::Interrupt => SchedClass::Interrupt,
        Class::Kernel => SchedClass::Kernel,
        Class::Fifo | Class::RoundRobin => SchedClass::Realtime,
        Class::Fair => SchedClass::Fair,
        Class::Batch => SchedClass::Batch,
        Class::Idle => SchedClass::Idle,
    }
}

/// `0-3,8`, as Linux writes CPU lists.
pub fn list(set: &CpuSet) -> String {
    let mut parts: Vec<(Cpu, Cpu)> = Vec::new();
    for c in set.iter() {
        match parts.last_mut() {
            Some((_, to)) if *to + 1 == c => *to = c,
            _ => parts.push((c, c)),
        }
    }
    let part = |(a, b): &(Cpu, Cpu)| {
        if a == b {
            a.to_string()
        } else {
            format!("{a}-{b}")
        }
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

fn cpus(machine: &Machine) -> arrow_array::RecordBatch {
    let mut table = Cpus::default();
    for c in machine.cpus() {
        let info = machine.info(c);
        let mut siblings = CpuSet::empty(machine.ncpu());
        machine.smt(c).iter().for_each(|s| siblings.insert(*s));
        table.push(tables::Cpu {
            cpu: c,
            core: Some(info.core),
            llc: Some(info.llc),
            package: Some(info.package),
            numa_node: Some(info.node),
            smt_siblings: Some(list(&siblings)),
            capacity: Some(u32::from(info.capacity)),
            online: Some(machine.begins_online(c)),
        });
    }
    table.take()
}

impl<S: Store + Send + 'static> Sink for TraceSink<S> {
    fn failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    fn prefetch(&self, thread: Tid) {
        self.reconstruction.prefetch(thread + self.ncpu);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn switch(&mut self, s: Switch) {
        let (prev_state, preempted) = match s.left_as {
            LeftAs::Preempted => (State::Runnable, Some(true)),
            LeftAs::Yielded => (State::Runnable, Some(false)),
            LeftAs::Sleeping => (State::Sleeping, Some(false)),
            LeftAs::Disk => (State::Blocked, Some(false)),
            LeftAs::Dead => (State::Dead, Some(false)),
            LeftAs::Idle => (State::Runnable, None),
        };
        let row = tables::Switch {
            ts: s.ts,
            cpu: s.cpu,
            prev_utid: self.utid(s.cpu, s.prev),
            prev_state,
            prev_prio: Some(s.prev_prio),
            preempted,
            next_utid: self.utid(s.cpu, s.next),
            next_prio: Some(s.next_prio),
        };
        if s.left_as == LeftAs::Yielded {
            self.reconstruction.yielded(row.prev_utid, s.ts);
            self.yields.push(tables::Yield {
                ts: s.ts,
                utid: row.prev_utid,
            });
        }
        self.counts[s.cpu as usize][0] += 1;
        self.current[s.cpu as usize] = s.next;
        self.reconstruction.switch(&row);
        if self.offline[s.cpu as usize] && s.next.is_none() {
            self.reconstruction.online(s.cpu, s.ts, false);
        }
        self.switches.push(row);
        if self.switches.len() >= S::CHUNK {
            self.flush(S::CHUNK);
        }
    }

    fn wakeup(&mut self, w: Wakeup) {
        let kind = match w.step {
            WakeStep::Waking => WakeKind::Waking,
            WakeStep::Enqueued => WakeKind::Enqueued,
            WakeStep::New => WakeKind::New,
        };
        let row = tables::Wakeup {
            ts: w.ts,
            cpu: w.cpu,
            waker_utid: w.waker.map(|t| t + self.ncpu),
            current_utid: Some(self.utid(w.cpu, self.current[w.cpu as usize])),
            utid: w.thread + self.ncpu,
            kind,
            target_cpu: w.target,
            prio: Some(w.prio),
        };
        self.counts[w.cpu as usize][1 + usize::from(w.step != WakeStep::Waking)] += 1;
        self.reconstruction.wakeup(&row);
        self.wakeups.push(row);
        if self.wakeups.len() >= S::CHUNK {
            self.flush(S::CHUNK);
        }
    }

    fn migrate(&mut self, ts: i64, cpu: Cpu, thread: Tid, from: Cpu, to: Cpu) {
        let row = tables::Migration {
            ts,
            cpu,
            utid: thread + self.ncpu,
            from_cpu: Some(from),
            to_cpu: Some(to),
        };
        self.counts[cpu as usize][3] += 1;
        self.reconstruction.migrate(&row);
        self.migrations.push(row);
    }

    fn start(&mut self, ts: i64, thread: Tid, parent: Option<Tid>) {
        let life = &mut self.lives[thread as usize];
        life.start = Some(ts);
        life.parent = parent;
    }

    fn exit(&mut self, ts: i64, thread: Tid) {
        self.lives[thread as usize].exit = Some(ts);
    }

    fn priority(&mut self, ts: i64, thread: Tid, prio: i16) {
        let utid = thread + self.ncpu;
        let cause = PriorityCause::ChangePri;
        self.priorities.push(tables::Priority {
            ts,
            utid,
            prio,
            cause,
        });
    }

    fn online(&mut self, ts: i64, cpu: Cpu, online: bool) {
        let c = usize::from(cpu);
        let was_offline = std::mem::replace(&mut self.offline[c], !online);
        if was_offline == online && self.current[c].is_none() {
            self.reconstruction.online(cpu, ts, online);
        }
    }

    fn record(&mut self, r: Record) {
        let s = &mut self.series;
        s.ts.push(r.ts);
        s.series.push(r.series);
        s.utid.push(r.thread.map(|t| t + self.ncpu));
        s.cpu.push(r.cpu);
        s.value.push(r.value);
    }
}
