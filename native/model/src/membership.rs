//! In which control group was each thread when, where processes were put into others?

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::event::GroupMove;

/// What is known of a thread; instants in ns.
#[derive(Debug, Clone, Copy)]
pub struct Lifetime {
    pub tid: Option<u32>,
    pub pid: Option<u32>,
    pub parent: Option<u32>,
    /// None: it was there from the beginning.
    pub start: Option<i64>,
    /// None: it was there until the end.
    pub exit: Option<i64>,
}

impl Lifetime {
    fn lives(&self, ts: i64) -> bool {
        self.start.is_none_or(|start| start <= ts) && self.exit.is_none_or(|exit| ts <= exit)
    }
}

/// A thread, or the process whose number it is, was put into a group.
#[derive(Debug, Clone)]
pub struct Move {
    pub ts: i64,
    pub tid: u32,
    /// The group that it was in before, where that is known.
    pub from: Option<Arc<str>>,
    pub cgroup: Arc<str>,
}

/// The groups that a thread was in, each with the instant from which on; the first, since
/// `i64::MIN`, is that of its start, if it is known.
pub type Line = Vec<(i64, Option<Arc<str>>)>;

/// By utid the last group of each thread that moved, or that one which had moved started. `known`:
/// the group in which a thread is unless it moves.
pub fn last_groups(
    threads: &[Lifetime],
    known: impl Fn(u32) -> Option<Arc<str>>,
    moves: &[GroupMove],
) -> FxHashMap<u32, Arc<str>> {
    let of = |one: &GroupMove| Move {
        ts: one.ts,
        tid: one.tid,
        from: None,
        cgroup: one.cgroup.as_str().into(),
    };
    let moves: Vec<Move> = moves.iter().map(of).collect();
    let last = |(utid, line): (u32, Line)| Some((utid, line.last()?.1.clone()?));
    let lines = lines(threads, |utid, _| known(utid), &moves);
    lines.into_iter().filter_map(last).collect()
}

/// The groups of each thread that moved, or that one which had moved started. `known`: the group in
/// which a thread starts, where neither its parent nor its first move shows it; asked with the
/// threads that moves name.
///
/// A move names a thread, or by the number of its first thread a whole process. A child starts in
/// the group that its parent is in then.
pub fn lines(
    threads: &[Lifetime],
    known: impl Fn(u32, &FxHashSet<u32>) -> Option<Arc<str>>,
    moves: &[Move],
) -> FxHashMap<u32, Line> {
    let mut lines: FxHashMap<u32, Line> = FxHashMap::default();
    if moves.is_empty() {
        return lines;
    }
    let mut steps = steps(threads, moves);
    let named: FxHashSet<u32> = steps.keys().copied().collect();
    // Parents first.
    let mut order: Vec<u32> = (0..threads.len() as u32).collect();
    order.sort_by_key(|&utid| (threads[utid as usize].start, utid));
    for utid in order {
        let thread = threads[utid as usize];
        let born = thread.start.zip(thread.parent);
        let inherited = born.and_then(|(start, parent)| Some(at(lines.get(&parent)?, start)));
        let own = steps.remove(&utid);
        if inherited.is_none() && own.is_none() {
            continue;
        }
        let own = own.unwrap_or_default();
        let from = own.first().and_then(|one| one.from.clone());
        let first = inherited.unwrap_or_else(|| from.or_else(|| known(utid, &named)));
        let moved = own.iter().map(|one| (one.ts, Some(one.cgroup.clone())));
        let line = std::iter::once((i64::MIN, first)).chain(moved).collect();
        lines.insert(utid, line);
    }
    lines
}

/// The moves of each thread that they name.
fn steps(threads: &[Lifetime], moves: &[Move]) -> FxHashMap<u32, Vec<Move>> {
    let mut of_tid: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    let mut of_pid: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for (utid, thread) in (0..).zip(threads) {
        if let Some(tid) = thread.tid {
            of_tid.entry(tid).or_default().push(utid);
        }
        if let Some(pid) = thread.pid {
            of_pid.entry(pid).or_default().push(utid);
        }
    }
    let none = Vec::new();
    let mut steps: FxHashMap<u32, Vec<Move>> = FxHashMap::default();
    for one in moves {
        for &named in of_tid.get(&one.tid).unwrap_or(&none) {
            if !threads[named as usize].lives(one.ts) {
                continue;
            }
            let whole = threads[named as usize].pid == Some(one.tid);
            let others = of_pid.get(&one.tid).filter(|_| whole);
            for &utid in others.map_or(&[named][..], Vec::as_slice) {
                if threads[utid as usize].lives(one.ts) {
                    steps.entry(utid).or_default().push(one.clone());
                }
            }
        }
    }
    steps
}

fn at(line: &Line, ts: i64) -> Option<Arc<str>> {
    let before = line.iter().rev().find(|(since, _)| *since <= ts);
    before.or(line.first()).and_then(|(_, group)| group.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: u32, pid: u32, parent: Option<u32>, start: Option<i64>) -> Lifetime {
        Lifetime {
            tid: Some(tid),
            pid: Some(pid),
            parent,
            start,
            exit: None,
        }
    }

    #[test]
    fn children_start_where_their_parent_is_then() {
        let gone = Lifetime {
            exit: Some(5),
            ..thread(30, 30, None, None)
        };
        let threads = [
            thread(10, 10, None, None),
            thread(11, 10, Some(0), Some(2)),
            thread(12, 12, Some(0), Some(3)),
            thread(13, 13, Some(0), Some(12)),
            thread(14, 14, Some(3), Some(13)),
            thread(20, 20, None, None),
            gone,
            thread(15, 10, Some(0), Some(14)),
        ];
        let moved = |ts, tid, cgroup: &str| GroupMove {
            ts,
            tid,
            cgroup: cgroup.to_string(),
        };
        let moves = [
            moved(10, 10, "/a"),
            moved(11, 30, "/b"),
            moved(15, 15, "/c"),
            moved(16, 99, "/d"),
        ];
        let found = last_groups(&threads, |_| Some("/".into()), &moves);
        let told: Vec<_> = (0..threads.len() as u32)
            .map(|utid| found.get(&utid).map(|group| &**group))
            .collect();
        let a = Some("/a");
        assert_eq!(told, [a, a, Some("/"), a, a, None, None, Some("/c")]);
    }
}
