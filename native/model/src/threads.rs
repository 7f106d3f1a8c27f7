//! Who is who: a tid becomes a utid, one per thread incarnation.
//!
//! Tids are reused and names change. A fork, or the switch-out of a dead thread, ends an
//! incarnation: the next event with that tid is of a new thread.

use rustc_hash::{FxHashMap, FxHashSet};

use std::sync::Arc;

use crate::event::{
    Comm, GroupMove, KnownProcess, Party, SchedClass, SourceInfo, TIDS, UNKNOWN_TID,
};
use crate::membership::{Lifetime, last_groups};
use crate::tables::{Rename, Renames, Thread, Threads};

/// Tids below this are looked up in a plain array.
const DIRECT: u32 = TIDS;

/// What nearly every event touches of a thread: one line of cache.
#[derive(Debug, Clone, Default)]
#[repr(align(64))]
struct Sight {
    comm: Comm,
    end_ts: Option<i64>,
    pid: Option<u32>,
    prio: Option<i16>,
    class: Option<SchedClass>,
    kernel: Option<bool>,
    /// Appeared in an event since it was made (by a fork or the thread table).
    seen: bool,
}

/// What few events have.
#[derive(Debug, Clone, Default)]
struct Record {
    tid: Option<u32>,
    comm_first: Comm,
    /// What the recorder knew of it, or of its parent, before any event.
    known_class: Option<SchedClass>,
    affinity: Option<String>,
    recorder: bool,
    at_end: bool,
    start_ts: Option<i64>,
    parent: Option<u32>,
    exit_ts: Option<i64>,
    ppid: Option<u32>,
    cgroup: Option<Arc<str>>,
    cmdline: Option<Arc<str>>,
    /// It called exec while it was recorded.
    execs: bool,
}

/// Every thread of the trace, and the tids that name them now.
pub struct Identity {
    /// One more than the utid; 0: no thread. The system provides zeros where they are looked at, so
    /// that the table costs memory by the tids that there are.
    direct: Vec<u32>,
    sparse: FxHashMap<u32, u32>,
    /// Both by utid.
    sights: Vec<Sight>,
    records: Vec<Record>,
    ncpu: u32,
    /// By CPU: the tid and the utid of the thread that left it dead last.
    dead: Vec<Option<(u32, u32)>>,
    /// What the recorder knew of processes at its start and at its end, by pid.
    first: FxHashMap<u32, KnownProcess>,
    last: FxHashMap<u32, KnownProcess>,
    pub renames: Renames,
}

impl Identity {
    pub fn new(ncpu: u16, info: &SourceInfo) -> Self {
        let by_pid = |at_end: bool| {
            let rows = info.processes.iter().filter(|row| row.at_end == at_end);
            rows.map(|row| (row.pid, row.clone())).collect()
        };
        let mut identity = Self {
            first: by_pid(false),
            last: by_pid(true),
            direct: vec![0; DIRECT as usize],
            sparse: FxHashMap::default(),
            sights: Vec::new(),
            records: Vec::new(),
            ncpu: u32::from(ncpu),
            dead: vec![None; usize::from(ncpu)],
            renames: Renames::default(),
        };
        for cpu in 0..ncpu {
            let comm = Comm::new(format!("idle/{cpu}").as_bytes());
            identity.sights.push(Sight {
                pid: Some(0),
                comm,
                kernel: Some(true),
                class: Some(SchedClass::Idle),
                ..Sight::default()
            });
            identity.records.push(Record {
                tid: Some(0),
                comm_first: comm,
                ..Record::default()
            });
        }
        for thread in info.threads.iter().filter(|thread| thread.tid != 0) {
            let utid = identity.make(thread.tid);
            let sight = &mut identity.sights[utid as usize];
            sight.pid = thread.pid;
            sight.comm = thread.comm;
            sight.kernel = thread.kernel;
            sight.prio = thread.prio;
            let record = &mut identity.records[utid as usize];
            record.comm_first = thread.comm;
            record.known_class = thread.class;
            record.affinity.clone_from(&thread.affinity);
            record.recorder = thread.recorder;
            record.at_end = thread.at_end;
            record.ppid = thread.ppid;
            if let Some(process) = thread.pid.and_then(|pid| identity.first.get(&pid)) {
                record.ppid = record.ppid.or(process.ppid);
                record.cgroup.clone_from(&process.cgroup);
                record.cmdline.clone_from(&process.cmdline);
            }
        }
        identity
    }

    #[inline]
    fn find(&self, tid: u32) -> Option<u32> {
        match self.direct.get(tid as usize) {
            Some(&next) => next.checked_sub(1),
            None => self.sparse.get(&tid).copied(),
        }
    }

    fn set(&mut self, tid: u32, utid: Option<u32>) {
        match (self.direct.get_mut(tid as usize), utid) {
            (Some(next), utid) => *next = utid.map_or(0, |utid| utid + 1),
            (None, Some(utid)) => {
                self.sparse.insert(tid, utid);
            }
            (None, None) => {
                self.sparse.remove(&tid);
            }
        }
    }

    /// A new incarnation of `tid`.
    fn make(&mut self, tid: u32) -> u32 {
        let utid = self.records.len() as u32;
        self.sights.push(Sight::default());
        self.records.push(Record {
            tid: Some(tid),
            ..Record::default()
        });
        self.set(tid, Some(utid));
        utid
    }

    /// The utid of a thread named in an event on `cpu` at `ts`.
    #[inline]
    pub fn resolve(&mut self, ts: i64, cpu: u16, who: &Party) -> u32 {
        if who.tid == 0 || who.idle {
            return self.idle(cpu, who.tid);
        }
        let utid = match self.find(who.tid) {
            Some(utid) => utid,
            None => self.make(who.tid),
        };
        let sight = &mut self.sights[utid as usize];
        if sight.comm != who.comm && !who.comm.is_empty() {
            let named = sight.seen && !sight.comm.is_empty();
            sight.comm = who.comm;
            if named {
                self.renames.push(Rename {
                    ts,
                    utid,
                    comm: who.comm.to_text(),
                });
            } else {
                self.records[utid as usize].comm_first = who.comm;
            }
        }
        sight.seen = true;
        sight.end_ts = Some(ts);
        if who.prio.is_some() {
            sight.prio = who.prio;
        }
        if who.class.is_some() {
            sight.class = who.class;
        }
        if who.pid.is_some() {
            sight.pid = who.pid;
        }
        if who.kernel.is_some() {
            sight.kernel = who.kernel;
        }
        utid
    }

    /// The idle thread of `cpu` (its tid matters where each has its own).
    fn idle(&mut self, cpu: u16, tid: u32) -> u32 {
        if tid != 0
            && let Some(record) = self.records.get_mut(usize::from(cpu))
        {
            record.tid = Some(tid);
        }
        u32::from(cpu)
    }

    /// The utid of the thread that runs on `cpu` under `tid`, or has just left it dead: the stack
    /// of that switch comes after it.
    #[inline]
    pub fn resolve_tid(&mut self, cpu: u16, tid: u32) -> u32 {
        if tid == 0 {
            return u32::from(cpu);
        }
        self.find(tid)
            .or_else(|| self.left_dead(cpu, tid))
            .unwrap_or_else(|| self.make(tid))
    }

    fn left_dead(&self, cpu: u16, tid: u32) -> Option<u32> {
        let &(dead, utid) = self.dead.get(usize::from(cpu))?.as_ref()?;
        (dead == tid).then_some(utid)
    }

    /// The utid of a tid that an event without a CPU names.
    pub fn resolve_known(&mut self, tid: u32) -> u32 {
        self.find(tid).unwrap_or_else(|| self.make(tid))
    }

    /// The list of CPUs that a thread may use, as far as it was recorded.
    pub fn affinity(&self, utid: u32) -> Option<&str> {
        self.records.get(utid as usize)?.affinity.as_deref()
    }

    /// How many there are so far, idle threads included.
    pub fn count(&self) -> u32 {
        self.records.len() as u32
    }

    /// The child's utid.
    pub fn fork(
        &mut self,
        ts: i64,
        parent: &Party,
        child: &Party,
        same_process: Option<bool>,
    ) -> Option<u32> {
        if child.tid == 0 {
            return None;
        }
        // Two events may report one creation (sched_process_fork, task_newtask); and a recorder may
        // announce tids of its own that are yet to be born, or have read its table when the thread
        // had been born.
        let twin = self.find(child.tid).filter(|&utid| {
            let record = &self.records[utid as usize];
            let announced = record.recorder && record.comm_first.is_empty();
            (record.start_ts.is_some() || announced || record.at_end)
                && !self.sights[utid as usize].seen
        });
        let parent_tid = parent.tid;
        let parent_utid = (parent.tid != 0).then(|| self.resolve_known(parent.tid));
        let utid = twin.unwrap_or_else(|| self.make(child.tid));
        // `recorder` is not inherited: the workload is the recorder's child.
        let parent = parent_utid.map(|utid| utid as usize);
        let (parent_pid, parent_kernel) = parent
            .map(|at| (self.sights[at].pid, self.sights[at].kernel))
            .unwrap_or_default();
        let of_parent = parent
            .map(|at| self.records[at].clone())
            .unwrap_or_default();
        let sight = &mut self.sights[utid as usize];
        let record = &mut self.records[utid as usize];
        record.start_ts.get_or_insert(ts);
        sight.end_ts = Some(ts);
        record.parent = record.parent.or(parent_utid);
        if !child.comm.is_empty() {
            sight.comm = child.comm;
            record.comm_first = child.comm;
        }
        if let Some(same) = same_process {
            sight.pid = if same { parent_pid } else { Some(child.tid) };
        }
        sight.pid = sight.pid.or(child.pid);
        let ppid = same_process.and_then(|same| if same { of_parent.ppid } else { parent_pid });
        record.ppid = ppid.or(record.ppid);
        // A child starts in the group of its parent and as its copy; exec changes the latter.
        record.cgroup = of_parent.cgroup;
        record.cmdline = of_parent.cmdline;
        sight.kernel = sight.kernel.or(if parent_tid == 2 {
            Some(true)
        } else {
            parent_kernel
        });
        sight.prio = sight.prio.or(child.prio);
        record.affinity = record.affinity.take().or(of_parent.affinity);
        record.known_class = record.known_class.or(of_parent.known_class);
        Some(utid)
    }

    pub fn exec(&mut self, tid: u32, old_tid: u32) {
        if tid != old_tid
            && old_tid != 0
            && let Some(utid) = self.find(old_tid)
        {
            // A thread other than the leader called exec: it takes the
            // leader's tid, and the leader is gone.
            self.set(old_tid, None);
            self.set(tid, Some(utid));
            self.records[utid as usize].tid = Some(tid);
        }
        if let Some(utid) = self.find(tid) {
            let record = &mut self.records[utid as usize];
            record.cmdline = None;
            record.execs = true;
        }
    }

    pub fn exit(&mut self, ts: i64, utid: u32) {
        if utid >= self.ncpu {
            self.records[utid as usize].exit_ts = Some(ts);
        }
    }

    /// The thread left the CPU dead: its tid is free for a new thread.
    pub fn gone(&mut self, ts: i64, cpu: u16, utid: u32) {
        let record = &mut self.records[utid as usize];
        record.exit_ts.get_or_insert(ts);
        if let Some(tid) = record.tid
            && self.find(tid) == Some(utid)
        {
            self.set(tid, None);
            if let Some(dead) = self.dead.get_mut(usize::from(cpu)) {
                *dead = Some((tid, utid));
            }
        }
    }

    pub fn rename(&mut self, ts: i64, tid: u32, comm: Comm) {
        if tid == 0 || comm.is_empty() {
            return;
        }
        let utid = self.resolve_known(tid);
        let sight = &mut self.sights[utid as usize];
        if sight.comm.is_empty() {
            self.records[utid as usize].comm_first = comm;
        }
        if sight.comm != comm {
            sight.comm = comm;
            self.renames.push(Rename {
                ts,
                utid,
                comm: comm.to_text(),
            });
        }
    }

    /// Names by tid as the kernel knew them at the end, for living threads that
    /// no event named.
    pub fn name_unnamed(&mut self, names: &[(u32, Comm)]) {
        for &(tid, comm) in names {
            let Some(utid) = self.find(tid) else { continue };
            let sight = &mut self.sights[utid as usize];
            if sight.comm.is_empty() {
                sight.comm = comm;
                self.records[utid as usize].comm_first = comm;
            }
        }
    }

    /// The tid of a thread.
    pub fn tid(&self, utid: u32) -> Option<u32> {
        self.records.get(utid as usize)?.tid
    }

    /// All that had one of these tids, in order.
    pub fn of_tids(&self, tids: &FxHashSet<u32>) -> Vec<u32> {
        let records = (0..).zip(&self.records).skip(self.ncpu as usize);
        let among = records.filter(|(_, record)| record.tid.is_some_and(|tid| tids.contains(&tid)));
        among.map(|(utid, _)| utid).collect()
    }

    /// The tids of the kernel's own threads.
    pub fn of_kernel(&self) -> impl Iterator<Item = u32> {
        let known = self.sights.iter().zip(&self.records);
        known.filter_map(|(sight, record)| {
            let kernel = sight.kernel.unwrap_or_else(|| sight.comm.is_of_kernel());
            record.tid.filter(|_| kernel)
        })
    }

    /// Threads of the class that takes CPUs offline, as `finish` will name it.
    pub fn stoppers(&self, linux: bool) -> Vec<u32> {
        let stops = |(utid, (sight, record)): (usize, (&Sight, &Record))| {
            (class(sight, record, linux) == Some(SchedClass::Stop)).then_some(utid as u32)
        };
        let known = self.sights.iter().zip(&self.records).enumerate();
        known.filter_map(stops).collect()
    }

    /// The `threads` table. Classes that no event named follow from Linux's
    /// priority numbers where `linux` says they are such, else from what was
    /// known at the start. `moves`: those of processes into control groups.
    pub fn finish(&mut self, linux: bool, moves: &[GroupMove]) -> Threads {
        let mut threads = Threads::default();
        let moved = self.moved(moves);
        let mains = self.main_threads();
        let mut ppids = Vec::with_capacity(self.records.len());
        for (utid, (sight, record)) in self.sights.iter().zip(&self.records).enumerate() {
            let process = sight.pid.filter(|_| utid >= self.ncpu as usize);
            let last = process.and_then(|pid| self.at_end(pid, record));
            ppids.push(self.ppid(utid, &ppids));
            threads.push(Thread {
                utid: utid as u32,
                tid: record.tid.filter(|&tid| tid != UNKNOWN_TID),
                pid: sight.pid,
                comm: sight.comm.to_text(),
                comm_first: record.comm_first.to_text(),
                kernel: sight.kernel,
                sched_class: class(sight, record, linux),
                prio: sight.prio,
                affinity: record.affinity.clone(),
                recorder: Some(record.recorder || self.of_recorder(process)),
                start_ts: record.start_ts,
                end_ts: sight.end_ts,
                parent_utid: record.parent,
                exit_ts: record.exit_ts,
                ppid: ppids[utid],
                process_name: process
                    .and_then(|pid| mains.get(&pid))
                    .map(|mains| nearest(mains, utid as u32))
                    .map(|main| self.sights[main as usize].comm.to_text())
                    .filter(|name| !name.is_empty()),
                cgroup: last
                    .and_then(|row| row.cgroup.as_deref())
                    .or(moved.get(&(utid as u32)).map(|group| &**group))
                    .or(record.cgroup.as_deref())
                    .map(str::to_string),
                cmdline: last
                    .and_then(|row| row.cmdline.as_deref())
                    .or(record.cmdline.as_deref())
                    .map(str::to_string),
            });
        }
        threads
    }

    /// The last group of each thread that moves concern, by utid.
    fn moved(&self, moves: &[GroupMove]) -> FxHashMap<u32, Arc<str>> {
        if moves.is_empty() {
            return FxHashMap::default();
        }
        let lifetime = |(sight, record): (&Sight, &Record)| Lifetime {
            tid: record.tid,
            pid: sight.pid,
            parent: record.parent,
            start: record.start_ts,
            exit: record.exit_ts,
        };
        let threads: Vec<_> = self
            .sights
            .iter()
            .zip(&self.records)
            .map(lifetime)
            .collect();
        last_groups(
            &threads,
            |utid| self.records[utid as usize].cgroup.clone(),
            moves,
        )
    }

    /// The threads whose tid is their process's number, by that number.
    fn main_threads(&self) -> FxHashMap<u32, Vec<u32>> {
        let mut found: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (utid, (sight, record)) in self.sights.iter().zip(&self.records).enumerate() {
            if utid >= self.ncpu as usize
                && let Some(pid) = sight.pid.filter(|&pid| record.tid == Some(pid))
            {
                found.entry(pid).or_default().push(utid as u32);
            }
        }
        found
    }

    /// The process that created a thread's own one: as it was reported, or, where forks do not say
    /// whether they made a thread or a process (FreeBSD's), that of its parent, or its parent's
    /// own. `before` has the answers for the threads before this one.
    fn ppid(&self, utid: usize, before: &[Option<u32>]) -> Option<u32> {
        let record = &self.records[utid];
        record.ppid.or_else(|| {
            let (own, parent) = (self.sights[utid].pid?, record.parent? as usize);
            match self.sights[parent].pid? {
                pid if pid == own => before.get(parent).copied().flatten(),
                pid => Some(pid),
            }
        })
    }

    /// Whether a process is the recorder's: with all its threads, whenever they began.
    fn of_recorder(&self, process: Option<u32>) -> bool {
        let known = process.and_then(|pid| self.first.get(&pid));
        known.is_some_and(|known| known.recorder)
    }

    /// What the recorder saw at its end of the process of a thread that was created, or called
    /// exec, while it recorded. It does not apply to another process that has the number by then.
    fn at_end(&self, pid: u32, record: &Record) -> Option<&KnownProcess> {
        let last = self.last.get(&pid)?;
        let first = self.first.get(&pid);
        let same = first.is_some_and(|first| first.created == last.created);
        let born = record.start_ts.is_some() && record.exit_ts.is_none();
        ((born && (!same || record.at_end)) || (record.execs && same)).then_some(last)
    }
}

/// Of the main threads that a process number had, in order: the last one not after `utid`.
fn nearest(mains: &[u32], utid: u32) -> u32 {
    let before = mains.partition_point(|&main| main <= utid);
    mains[before.saturating_sub(1)]
}

/// What the events named; else what follows from Linux's priority, or was known at the start.
fn class(sight: &Sight, record: &Record, linux: bool) -> Option<SchedClass> {
    sight.class.or(match sight.prio {
        Some(prio) if linux => Some(linux_class(prio, &sight.comm, record.known_class)),
        _ => record.known_class,
    })
}

/// Linux include/linux/sched/prio.h: negative deadline, 0..99 real-time (0 for the stop class too),
/// 100..139 nice levels, 140 idle threads. SCHED_BATCH and SCHED_IDLE have nice levels, too: only
/// `known` shows them, and it may be out of date where the priority is of another class.
fn linux_class(prio: i16, comm: &Comm, known: Option<SchedClass>) -> SchedClass {
    match prio {
        ..0 => SchedClass::Deadline,
        0 if comm.as_bytes().starts_with(b"migration/") => SchedClass::Stop,
        0..100 => SchedClass::Realtime,
        _ => known
            .filter(|class| matches!(class, SchedClass::Batch | SchedClass::Idle))
            .unwrap_or(SchedClass::Fair),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_policy_tells_what_linux_priorities_cannot() {
        let class = |prio, known| linux_class(prio, &Comm::new(b"x"), known);
        assert_eq!(class(120, None), SchedClass::Fair);
        assert_eq!(class(120, Some(SchedClass::Batch)), SchedClass::Batch);
        assert_eq!(class(139, Some(SchedClass::Idle)), SchedClass::Idle);
        // It became real-time later, or stopped being it.
        assert_eq!(class(49, Some(SchedClass::Batch)), SchedClass::Realtime);
        assert_eq!(class(120, Some(SchedClass::Realtime)), SchedClass::Fair);
        let stop = Comm::new(b"migration/0");
        assert_eq!(
            linux_class(0, &stop, Some(SchedClass::Realtime)),
            SchedClass::Stop
        );
    }
}
