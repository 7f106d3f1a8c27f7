//! The control group of each thread, in files whose samples have it (`perf record --all-cgroups`):
//! the number of the running thread's group, and records that name numbers.
//!
//! The numbers are those of `perf_event`'s hierarchy, which is cgroup 2 unless the host has mounted
//! that controller as one of cgroup 1.

use rustc_hash::FxHashMap;

use super::bytes::text;
use super::records::{FORK, Record, SAMPLE};
use super::session::Session;
use crate::ftrace::plan::Action;
use crate::group_moves::GroupMoves;
use crate::model::event::{GroupMove, KnownProcess};

/// cgroup 2, as the kernel's own events name it.
const UNIFIED: i64 = 0;

/// Names and processes are kept for so many.
const MOST: usize = 1 << 20;

/// What the first pass learns.
#[derive(Debug, Default)]
pub struct Groups {
    paths: FxHashMap<u64, String>,
    /// By process, the time and the group of its earliest sample.
    first: FxHashMap<u32, (u64, u64)>,
}

impl Groups {
    /// CGROUP: number, path.
    pub fn name(&mut self, record: Record<'_>) {
        let (Some(id), Some(path)) = (record.0.u64_at(8), record.0.data.get(16..)) else {
            return;
        };
        let path = text(path);
        if !path.is_empty() && self.paths.len() < MOST {
            self.paths.insert(id, path);
        }
    }

    #[inline]
    pub fn sample(&mut self, pid: u32, ts: u64, group: u64) {
        if pid == 0 || pid == u32::MAX {
            return;
        }
        if let Some(first) = self.first.get_mut(&pid) {
            *first = (*first).min((ts, group));
        } else if self.first.len() < MOST {
            self.first.insert(pid, (ts, group));
        }
    }

    /// Each process in the group of its first sample.
    pub fn processes(&self) -> Vec<KnownProcess> {
        let named = self.first.iter().filter_map(|(&pid, (_, group))| {
            Some(KnownProcess {
                pid,
                cgroup: Some(self.paths.get(group)?.as_str().into()),
                ..KnownProcess::default()
            })
        });
        let mut all: Vec<_> = named.collect();
        all.sort_unstable_by_key(|process| process.pid);
        all
    }
}

/// Follows samples in time order.
pub struct Moves<'a> {
    groups: &'a Groups,
    /// By thread, the group of its last sample.
    last: FxHashMap<u32, u64>,
}

impl<'a> Moves<'a> {
    /// None where no sample has a group, or events report the moves.
    pub fn of(groups: &'a Groups, session: &Session) -> Option<Self> {
        let told = session.records(|action| matches!(action, Action::GroupMove { .. }));
        (!groups.first.is_empty() && !told).then(|| Self {
            groups,
            last: FxHashMap::default(),
        })
    }

    /// `event`: whose sample it is, if it is one.
    pub fn record(
        &mut self,
        session: &Session,
        record: Record<'_>,
        event: usize,
        ts: i64,
        into: &mut GroupMoves,
    ) {
        match record.kind() {
            SAMPLE => {
                if let Some((whose, group)) = session.events[event].layout.group(record) {
                    self.sample(whose, ts, group, into);
                }
            }
            // FORK: pid, ppid, tid, ptid. A child is where its parent is; its number may have been
            // another's.
            FORK => {
                let parent = record
                    .0
                    .u32_at(20)
                    .and_then(|tid| self.last.get(&tid).copied());
                if let (Some(group), Some(tid)) = (parent, record.0.u32_at(16)) {
                    self.last.insert(tid, group);
                }
            }
            _ => {}
        }
    }

    /// Is the thread in another group than at its last sample, or than its process was first?
    fn sample(&mut self, (pid, tid): (u32, u32), ts: i64, group: u64, into: &mut GroupMoves) {
        let Some((_, first)) = self.groups.first.get(&pid) else {
            return;
        };
        let before = self.last.insert(tid, group).unwrap_or(*first);
        if before == group {
            return;
        }
        if let Some(path) = self.groups.paths.get(&group) {
            let cgroup = path.clone();
            into.push(Some(UNIFIED), GroupMove { ts, tid, cgroup });
        }
    }
}
