//! Which reads and writes go through one pipe or socket, and what they moved.
//!
//! A system call names a file descriptor, not the pipe behind it. But a thread that
//! is woken inside a read by a thread inside a write reads what that one wrote: each
//! such wake ties the two descriptors (of their processes, which have a table of
//! them each) together. Descriptors without any such wake are those of a process that has
//! the same parent, or is it, since what a parent opened its children have by the same
//! numbers; or of one that agrees with another process on all that both are known of.
//!
//! A thread in uninterruptible sleep waits for the pipe's lock (pipe_lock, a mutex), not for
//! content or room (wait_event_interruptible_exclusive in pipe_read and pipe_write,
//! sock_wait_for_wmem): that wake means neither a message nor that the pipe was full.
use rustc_hash::{FxHashMap, FxHashSet};

use super::super::load::op;
use super::charges::UNPAID;
use super::{Enters, Extractor, Now, ThreadOut, median, push};
use crate::error::Result;
use crate::model::event::{State, WakeKind};
use crate::model::tables::{Switch, Wakeup};
use crate::reconstruct::facts::{Facts, TableIn};

/// One end of a read or write, as recorded; in time order.
#[derive(Debug, Clone, Copy)]
pub struct CallRow {
    pub ts: i64,
    pub utid: u32,
    /// Threads of one process share their descriptors.
    pub process: u32,
    /// The process that forked it, itself if that was not seen.
    pub parent: u32,
    pub enters: bool,
    pub writes: bool,
    /// The descriptor on entry, what was moved on return.
    pub value: i64,
}

/// A read or write that moved something, through `pipe`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub begin: i64,
    pub end: i64,
    pub utid: u32,
    pub writes: bool,
    pub amount: u32,
    pub pipe: u32,
    /// It woke a reader.
    pub woke: bool,
    /// The writer slept in it: the pipe was full.
    pub slept: bool,
}

/// What a pipe of the workload holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pipe {
    /// None: it was never seen to be full.
    pub capacity: Option<u64>,
    pub low: u64,
    pub filled: u64,
    /// Of a pipe whose content lies in pages their size; 0: a socket.
    pub page: u64,
}

#[derive(Debug, Default)]
pub(super) struct Pipes {
    pub calls: Vec<Call>,
    pub pipes: Vec<Pipe>,
    /// Pipes some of whose users are not known.
    pub left_out: u64,
}

const NONE: u32 = u32::MAX;

/// A tie counts if it is at least this part (1 in so many) of its descriptor's.
const TIE: u32 = 20;

/// A pipe is left out if more than this part (1 in so many) of what was read from it
/// was not seen to be written.
const UNSEEN: u64 = 10;

/// The end of a pipe that a process has: process, descriptor, whether it writes.
type End = (u32, i64, bool);

struct Open {
    begin: i64,
    end: i64,
    utid: u32,
    key: u32,
    amount: i64,
    woke: bool,
    slept: bool,
    /// When a reader woke the writer that slept in it.
    woken: i64,
    /// The read that woke it.
    woken_in: u32,
}

#[derive(Default)]
struct Finder {
    keys: FxHashMap<End, u32>,
    ends: Vec<End>,
    /// Of each process the one that forked it.
    parents: FxHashMap<u32, u32>,
    calls: Vec<Open>,
    /// For each thread the call it is in.
    inside: FxHashMap<u32, u32>,
    /// Threads that sleep and cannot be interrupted.
    blocked: FxHashSet<u32>,
    /// How often a write end woke a reader of a read end.
    ties: FxHashMap<(u32, u32), u32>,
}

impl Finder {
    fn key(&mut self, end: End) -> u32 {
        let next = self.ends.len() as u32;
        let key = *self.keys.entry(end).or_insert(next);
        if key == next {
            self.ends.push(end);
        }
        key
    }

    fn row(&mut self, row: &CallRow) {
        if row.enters {
            let key = self.key((row.process, row.value, row.writes));
            self.parents.insert(row.process, row.parent);
            self.inside.insert(row.utid, self.calls.len() as u32);
            self.calls.push(Open {
                begin: row.ts,
                end: i64::MAX,
                utid: row.utid,
                key,
                amount: 0,
                woke: false,
                slept: false,
                woken: 0,
                woken_in: NONE,
            });
        } else if let Some(open) = self.inside.remove(&row.utid) {
            let call = &mut self.calls[open as usize];
            if self.ends[call.key as usize].2 == row.writes {
                call.end = row.ts;
                call.amount = row.value;
            }
        }
    }

    fn switch(&mut self, row: &Switch) {
        if row.prev_state == State::Blocked {
            self.blocked.insert(row.prev_utid);
        } else {
            self.blocked.remove(&row.prev_utid);
        }
    }

    fn wake(&mut self, row: &Wakeup) {
        let Some(waker) = row.waker_utid else { return };
        if self.blocked.contains(&row.utid) {
            return;
        }
        let (Some(&a), Some(&b)) = (self.inside.get(&waker), self.inside.get(&row.utid)) else {
            return;
        };
        let (of_waker, of_wakee) = (self.calls[a as usize].key, self.calls[b as usize].key);
        let writes = |key: u32| self.ends[key as usize].2;
        match (writes(of_waker), writes(of_wakee)) {
            (true, false) => {
                *self.ties.entry((of_waker, of_wakee)).or_default() += 1;
                self.calls[a as usize].woke = true;
            }
            (false, true) => {
                *self.ties.entry((of_wakee, of_waker)).or_default() += 1;
                let full = &mut self.calls[b as usize];
                (full.slept, full.woken, full.woken_in) = (true, row.ts, a);
            }
            _ => {}
        }
    }

    /// For each end its pipe's number, `NONE` for files and what was never tied.
    fn tied(&self) -> Vec<u32> {
        let n = self.ends.len();
        let mut total = vec![0u32; n];
        for ((write, _), count) in &self.ties {
            total[*write as usize] += count;
        }
        let mut root: Vec<u32> = (0..n as u32).collect();
        let mut known = vec![false; n];
        let mut ties: Vec<_> = self.ties.iter().collect();
        ties.sort_unstable();
        for ((write, read), count) in ties {
            if *count * TIE >= total[*write as usize] {
                let (a, b) = (find(&mut root, *write), find(&mut root, *read));
                root[b.max(a) as usize] = b.min(a);
                known[*write as usize] = true;
                known[*read as usize] = true;
            }
        }
        let mut pipe: Vec<u32> = (0..n)
            .map(|i| {
                if known[i] {
                    find(&mut root, i as u32)
                } else {
                    NONE
                }
            })
            .collect();
        self.share(&mut pipe);
        self.inherit(&mut pipe);
        self.adopt(&mut pipe);
        let mut number = FxHashMap::default();
        for p in pipe.iter_mut().filter(|p| **p != NONE) {
            let next = number.len() as u32;
            *p = *number.entry(*p).or_insert(next);
        }
        pipe
    }

    /// What was written by each end, and what each pipe lacks: was read from it, and not
    /// written by ends that are known to be its.
    fn sums(&self, pipe: &[u32]) -> (Vec<i64>, FxHashMap<u32, i64>) {
        let mut wrote = vec![0i64; self.ends.len()];
        let mut lacks: FxHashMap<u32, i64> = FxHashMap::default();
        for call in self
            .calls
            .iter()
            .filter(|c| c.amount > 0 && c.end < i64::MAX)
        {
            let writes = self.ends[call.key as usize].2;
            wrote[call.key as usize] += call.amount;
            if pipe[call.key as usize] != NONE {
                let signed = if writes { -call.amount } else { call.amount };
                *lacks.entry(pipe[call.key as usize]).or_default() += signed;
            }
        }
        (wrote, lacks)
    }

    /// Writing ends that were never tied: as those of the same number that the parent of
    /// their process or its other children have, if these are of one pipe, and it lacks
    /// what they wrote. A child that opened something else by that number wrote that
    /// elsewhere.
    fn share(&self, pipe: &mut [u32]) {
        let (wrote, mut lacks) = self.sums(pipe);
        let mut same: FxHashMap<(u32, i64), Vec<u32>> = FxHashMap::default();
        for (key, (process, number, writes)) in (0u32..).zip(&self.ends) {
            if !writes {
                continue;
            }
            let parent = self.parents.get(process).unwrap_or(process);
            same.entry((*parent, *number)).or_default().push(key);
            if parent != process {
                same.entry((*process, *number)).or_default().push(key);
            }
        }
        let mut same: Vec<_> = same.into_iter().collect();
        same.sort_unstable();
        for (_, keys) in same {
            let mut known = keys
                .iter()
                .map(|k| pipe[*k as usize])
                .filter(|p| *p != NONE);
            let Some(p) = known.next() else { continue };
            if known.any(|other| other != p) {
                continue;
            }
            for key in keys {
                let lacking = lacks.entry(p).or_default();
                if pipe[key as usize] == NONE && wrote[key as usize] <= *lacking {
                    pipe[key as usize] = p;
                    *lacking -= wrote[key as usize];
                }
            }
        }
    }

    /// Writing processes none of whose ends was ever tied: as those of one whose
    /// pipes lack just what they wrote.
    fn adopt(&self, pipe: &mut [u32]) {
        let (wrote, mut lacks) = self.sums(pipe);
        let mut by_process: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (key, end) in self.ends.iter().enumerate().filter(|(_, end)| end.2) {
            by_process.entry(end.0).or_default().push(key as u32);
        }
        let mut processes: Vec<_> = by_process.into_iter().collect();
        processes.sort_unstable_by_key(|p| p.0);
        let known = pipe.to_vec();
        for (_, keys) in &processes {
            if keys.iter().any(|k| known[*k as usize] != NONE) {
                continue;
            }
            let like = |other: u32| -> Option<Vec<(u32, u32)>> {
                let mut found = Vec::new();
                for key in keys {
                    let end = (other, self.ends[*key as usize].1, true);
                    let p = self.keys.get(&end).map_or(NONE, |k| known[*k as usize]);
                    if p == NONE {
                        continue;
                    }
                    if wrote[*key as usize] > lacks.get(&p).copied().unwrap_or(0) {
                        return None;
                    }
                    found.push((*key, p));
                }
                (!found.is_empty()).then_some(found)
            };
            let found = processes.iter().find_map(|(other, _)| like(*other));
            for (key, p) in found.unwrap_or_default() {
                pipe[key as usize] = p;
                *lacks.entry(p).or_default() -= wrote[key as usize];
            }
        }
    }

    /// Ends that were never tied: as those of a process that agrees on all that both have.
    fn inherit(&self, pipe: &mut [u32]) {
        let mut by_process: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (key, end) in self.ends.iter().enumerate().filter(|(_, end)| end.2) {
            by_process.entry(end.0).or_default().push(key as u32);
        }
        let known = pipe.to_vec();
        let mut processes: Vec<_> = by_process.iter().collect();
        processes.sort_unstable_by_key(|p| *p.0);
        for (me, keys) in &processes {
            let unknown = keys.iter().any(|k| known[*k as usize] == NONE);
            if !unknown {
                continue;
            }
            let mine: Vec<(i64, u32)> = keys
                .iter()
                .map(|k| (self.ends[*k as usize].1, known[*k as usize]))
                .filter(|(_, p)| *p != NONE)
                .collect();
            let of = |other: u32, fd: i64| {
                let key = self.keys.get(&(other, fd, true))?;
                Some(known[*key as usize]).filter(|p| *p != NONE)
            };
            let mut best = (0, NONE);
            for (other, _) in processes.iter().filter(|(other, _)| other != me) {
                let both = || {
                    mine.iter()
                        .filter_map(|(fd, p)| Some((of(**other, *fd)?, *p)))
                };
                let agree = both().filter(|(a, b)| a == b).count();
                if agree == both().count() && agree > best.0 {
                    best = (agree, **other);
                }
            }
            if best.0 == 0 {
                continue;
            }
            for key in keys.iter().filter(|k| known[**k as usize] == NONE) {
                if let Some(found) = of(best.1, self.ends[*key as usize].1) {
                    pipe[*key as usize] = found;
                }
            }
        }
    }
}

fn find(root: &mut [u32], mut at: u32) -> u32 {
    while root[at as usize] != at {
        let up = root[root[at as usize] as usize];
        root[at as usize] = up;
        at = up;
    }
    at
}

/// The rows of a table `ts, utid, process, parent, enters, writes, value`.
pub fn call_rows(table: &TableIn<'_>) -> Result<Vec<CallRow>> {
    let (utid, process) = (table.whole("utid")?, table.whole("process")?);
    let parent = table.whole("parent")?;
    let (enters, writes) = (table.whole("enters")?, table.whole("writes")?);
    let value = table.whole("value")?;
    let rows = table.whole("ts")?.into_iter().enumerate();
    Ok(rows
        .map(|(i, ts)| CallRow {
            ts,
            utid: utid[i] as u32,
            process: process[i] as u32,
            parent: parent[i] as u32,
            enters: enters[i] != 0,
            writes: writes[i] != 0,
            value: value[i],
        })
        .collect())
}

/// The calls through pipes. `counts`: whether a thread belongs to the workload.
pub(super) fn pipes(
    rows: &[CallRow],
    (switches, wakeups): (&[Switch], &[Wakeup]),
    first_kind: WakeKind,
    begin: i64,
    page: u64,
    counts: impl Fn(u32) -> bool,
) -> Pipes {
    if rows.is_empty() {
        return Pipes::default();
    }
    let mut finder = Finder::default();
    let begun = begun_before(rows, begin);
    begun.iter().for_each(|row| finder.row(row));
    let (mut next, mut switched) = (0, 0);
    for wake in wakeups.iter().filter(|w| w.kind == first_kind) {
        while switched < switches.len() && switches[switched].ts <= wake.ts {
            finder.switch(&switches[switched]);
            switched += 1;
        }
        while next < rows.len() && rows[next].ts <= wake.ts {
            finder.row(&rows[next]);
            next += 1;
        }
        finder.wake(wake);
    }
    rows[next..].iter().for_each(|row| finder.row(row));
    let pipe = finder.tied();
    settle(&finder, &pipe, page, counts)
}

/// Entries, at the beginning, into the calls that were under way then: into the
/// descriptor that the thread's next such call names.
fn begun_before(rows: &[CallRow], begin: i64) -> Vec<CallRow> {
    let mut first: FxHashMap<u32, CallRow> = FxHashMap::default();
    let mut found = Vec::new();
    for row in rows {
        match first.get(&row.utid) {
            None => {
                first.insert(row.utid, *row);
            }
            Some(back) if !back.enters && row.enters && row.writes == back.writes => {
                found.push(CallRow { ts: begin, ..*row });
                first.insert(row.utid, *row);
            }
            Some(_) => {}
        }
    }
    found
}

/// The content of each pipe, as known from the calls; inconsistent pipes are left out.
fn settle(finder: &Finder, pipe: &[u32], page: u64, counts: impl Fn(u32) -> bool) -> Pipes {
    let n = pipe
        .iter()
        .filter(|p| **p != NONE)
        .max()
        .map_or(0, |m| *m as usize + 1);
    let mut sound = vec![true; n];
    let mut moves: Vec<(i64, bool, u32, i64)> = Vec::new();
    for call in &finder.calls {
        let p = pipe[call.key as usize];
        if p == NONE || call.amount <= 0 || call.end == i64::MAX {
            continue;
        }
        sound[p as usize] &= counts(call.utid);
        let writes = finder.ends[call.key as usize].2;
        // What is written may be read before the writer is back.
        let at = if writes && !call.slept {
            call.begin
        } else {
            call.end
        };
        moves.push((
            at,
            !writes,
            p,
            if writes { call.amount } else { -call.amount },
        ));
    }
    moves.sort_unstable();
    let mut level = vec![0i64; n];
    let (mut least, mut most, mut read) = (vec![0i64; n], vec![0i64; n], vec![0i64; n]);
    let mut full = full_at(finder, pipe, n);
    // When writers were woken, in order, to see what the pipe held then.
    let mut wakes: Vec<(i64, u32, i64)> = finder
        .calls
        .iter()
        .filter(|c| c.slept && pipe[c.key as usize] != NONE)
        .map(|c| {
            let taken = finder
                .calls
                .get(c.woken_in as usize)
                .map_or(0, |r| r.amount);
            (c.woken, pipe[c.key as usize], taken.max(0))
        })
        .collect();
    wakes.sort_unstable();
    let mut low: Vec<Option<i64>> = vec![None; n];
    let mut w = 0;
    for (at, _, p, amount) in moves {
        while w < wakes.len() && wakes[w].0 < at {
            let (_, p, taken) = wakes[w];
            let held = level[p as usize] - taken;
            low[p as usize] = Some(low[p as usize].map_or(held, |l| l.max(held)));
            w += 1;
        }
        let p = p as usize;
        full[p].note(at, level[p]);
        level[p] += amount;
        read[p] += (-amount).max(0);
        least[p] = least[p].min(level[p]);
        most[p] = most[p].max(level[p]);
    }
    let conversations = conversations(finder, pipe, n);
    let mut found = Pipes::default();
    let mut number = vec![NONE; n];
    for p in 0..n {
        if conversations[p] {
            continue;
        }
        if !sound[p] || (-least[p]) as u64 * UNSEEN > read[p] as u64 {
            found.left_out += 1;
            continue;
        }
        number[p] = found.pipes.len() as u32;
        let filled = -least[p];
        let most = (most[p] + filled) as u64;
        let low = low[p].map(|l| ((l + filled).max(0) as u64).min(most));
        let capacity = full[p].level().map_or(most, |l| (l + filled).max(1) as u64);
        let mut made = Pipe {
            capacity: low.map(|_| capacity),
            low: low.unwrap_or(most),
            filled: filled as u64,
            page: 0,
        };
        if low.is_some_and(|l| 2 * l > capacity) {
            made.page = page;
            made.capacity = Some(full[p].pages(capacity, page) * page);
        }
        found.pipes.push(made);
    }
    as_the_full_ones(&mut found.pipes);
    found.calls = finder
        .calls
        .iter()
        .filter(|c| c.amount > 0 && c.end != i64::MAX && pipe[c.key as usize] != NONE)
        .map(|c| Call {
            begin: c.begin,
            end: c.end,
            utid: c.utid,
            writes: finder.ends[c.key as usize].2,
            amount: c.amount as u32,
            pipe: number[pipe[c.key as usize] as usize],
            woke: c.woke,
            slept: c.slept,
        })
        .filter(|c| c.pipe != NONE)
        .collect();
    found
}

/// The moments at which writers found a pipe full, and what it held then.
#[derive(Default)]
struct Full {
    moments: Vec<i64>,
    next: usize,
    levels: Vec<i64>,
    amounts: Vec<i64>,
}

impl Full {
    /// The pipe holds `level` until `at`.
    fn note(&mut self, at: i64, level: i64) {
        while self.moments.get(self.next).is_some_and(|m| *m <= at) {
            self.levels.push(level);
            self.next += 1;
        }
    }

    fn level(&self) -> Option<i64> {
        median(&self.levels)
    }

    /// How many pages of a pipe are full if they hold `capacity`: of messages of the
    /// usual size as many share a page as fit whole.
    fn pages(&self, capacity: u64, page: u64) -> u64 {
        let usual = median(&self.amounts).map_or(1, |a| a.max(1) as u64);
        let held = if usual < page {
            page / usual * usual
        } else {
            page
        };
        ((capacity + held / 2) / held).max(1)
    }
}

fn full_at(finder: &Finder, pipe: &[u32], n: usize) -> Vec<Full> {
    let mut full: Vec<Full> = (0..n).map(|_| Full::default()).collect();
    for call in finder.calls.iter().filter(|c| c.slept && c.amount > 0) {
        if let Some(of) = full.get_mut(pipe[call.key as usize] as usize) {
            of.moments.push(call.begin);
            of.amounts.push(call.amount);
        }
    }
    full.iter_mut().for_each(|f| f.moments.sort_unstable());
    full
}

/// Pipes by which two threads converse, each with a pipe of its own to the other. There nearly
/// every message has a wake, and `Extractor::settle_whom_waits_are_for` knows what a sender does
/// that its own wakee preempted; a pipe would let the two overtake each other where the policy
/// preempts less.
fn conversations(finder: &Finder, pipe: &[u32], n: usize) -> Vec<bool> {
    // Of each pipe its only writer and its only reader; `NONE` for several.
    let mut users = vec![[None::<u32>; 2]; n];
    for call in finder.calls.iter().filter(|c| c.amount > 0) {
        let p = pipe[call.key as usize];
        if p == NONE {
            continue;
        }
        let reads = usize::from(!finder.ends[call.key as usize].2);
        let one = &mut users[p as usize][reads];
        *one = match *one {
            None => Some(call.utid),
            Some(known) if known == call.utid => Some(known),
            Some(_) => Some(NONE),
        };
    }
    let alone: FxHashMap<(u32, u32), usize> = users
        .iter()
        .enumerate()
        .filter_map(|(p, [w, r])| Some((((*w)?, (*r)?), p)))
        .filter(|((w, r), _)| *w != NONE && *r != NONE && w != r)
        .collect();
    let mut found = vec![false; n];
    for ((writer, reader), p) in &alone {
        found[*p] = alone.contains_key(&(*reader, *writer));
    }
    found
}

/// A pipe that was never full may hold what the usual of those that were holds, or the most that it
/// held, whichever is more; without any full pipe it is unknown.
fn as_the_full_ones(pipes: &mut [Pipe]) {
    let mut full: Vec<(u64, u64, u64)> = pipes
        .iter()
        .filter_map(|p| Some((p.capacity?, p.low, p.page)))
        .collect();
    if full.is_empty() {
        return;
    }
    full.sort_unstable();
    let (capacity, low, page) = full[full.len() / 2];
    for p in pipes.iter_mut().filter(|p| p.capacity.is_none()) {
        let own = p.low;
        p.capacity = Some(capacity.max(own.next_multiple_of(page.max(1))));
        p.low = if own > capacity { own } else { low };
        p.page = page;
    }
}

impl Extractor {
    /// The calls through pipes, and their ends in time order: when, which, whether it
    /// is the entry.
    pub(super) fn find_pipes(&mut self, facts: &Facts, rows: &[CallRow]) -> Vec<(i64, u32, bool)> {
        let (kind, begin) = (self.first_kind, self.begin);
        let page = self.rules.page;
        let events = (&facts.switches[..], &facts.wakeups[..]);
        let found = pipes(rows, events, kind, begin, page, |u| self.counts(u));
        self.report.pipes = found.pipes.len() as u64;
        self.report.pipes_left_out = found.left_out;
        let sent = || found.calls.iter().filter(|c| c.writes);
        self.report.messages = sent().count() as u64;
        self.report.messages_unnoticed = sent().filter(|c| !c.woke).count() as u64;
        let mut ends: Vec<(i64, u32, bool)> = (0u32..)
            .zip(&found.calls)
            .flat_map(|(i, c)| [(c.begin, i, true), (c.end, i, false)])
            .collect();
        ends.sort_unstable_by_key(|(ts, _, entry)| (*ts, *entry));
        self.pipes = found.pipes;
        self.calls = found.calls;
        ends
    }

    /// A thread enters a read or write, or comes back. A write without a wake counts from its
    /// entry, since it may be read before the writer is back, and what is read without a sleep is
    /// there at the latest when the reader comes back.
    pub(super) fn call(&mut self, ts: i64, call: u32, entry: bool) {
        let c = self.calls[call as usize];
        let t = self.thread(c.utid);
        self.runs(t, ts);
        let made = self.threads[t as usize].call;
        if entry {
            let th = &self.threads[t as usize];
            let now = match th.now {
                Now::Running { since } => ts - since,
                _ => 0,
            };
            self.begins_call(t, c.writes, th.used + now);
            let at_once = c.writes && !c.woke && !c.slept;
            if at_once {
                self.progress(t, ts);
                push_call(&mut self.threads[t as usize], &c, UNPAID, false);
            }
            self.threads[t as usize].call = Some((call, at_once));
            return;
        }
        if made == Some((call, false)) {
            self.progress(t, ts);
            push_call(&mut self.threads[t as usize], &c, UNPAID, false);
        }
        self.threads[t as usize].call = None;
    }

    /// A wake of a thread that sleeps in a pipe; answers whether it was one. The pipe
    /// ends its sleep in a replay, too, so that nothing but the message is written.
    pub(super) fn woken_in_pipe(&mut self, row: &Wakeup, wakee: u32) -> bool {
        let Some((call, _)) = self.threads[wakee as usize].call else {
            return false;
        };
        let c = self.calls[call as usize];
        let waker = self.waker(row, wakee);
        let in_call = waker.and_then(|w| Some((w, self.threads[w as usize].call?)));
        let through = in_call.filter(|(_, (i, _))| {
            let other = &self.calls[*i as usize];
            other.pipe == c.pipe && other.writes != c.writes
        });
        if !self.ends_sleep(wakee, through.is_some()) {
            return false;
        }
        if let Some((w, (i, false))) = through
            && !c.writes
        {
            let sent = self.calls[i as usize];
            self.progress(w, row.ts);
            let waker = &mut self.threads[w as usize];
            push_call(waker, &sent, UNPAID, false);
            waker.call = Some((i, true));
            waker.raising = Some((wakee, row.ts, waker.steps.len() as u32 - 1));
        }
        if let Some((w, _)) = in_call
            && let Some(cycle) = &mut self.threads[w as usize].cycle
        {
            let of_reader = through.is_some() && !c.writes;
            cycle.wakes += u32::from(of_reader);
            cycle.others += u32::from(!of_reader);
        }
        let unseen = self.threads[wakee as usize].now == Now::Unseen;
        if !self.sleep_ended(wakee, waker, row.ts) {
            return true;
        }
        let th = &mut self.threads[wakee as usize];
        if unseen {
            th.enters = Enters::Asleep;
        }
        if let Some(call) = sleeps_in_pipe(th, &self.calls).flatten() {
            push_call(th, &call, 0, false);
        }
        true
    }
}

/// Whether `th` is in a call through a pipe, and the call if its step is still to be
/// written, which the caller does now.
pub(super) fn sleeps_in_pipe(th: &mut ThreadOut, calls: &[Call]) -> Option<Option<Call>> {
    let (call, made) = th.call?;
    th.call = Some((call, true));
    Some((!made).then(|| calls[call as usize]))
}

/// The step of a call; `ns` is what its sleep or wake costs.
pub(super) fn push_call(th: &mut ThreadOut, call: &Call, ns: i64, disk: bool) {
    let code = if call.writes { op::PUT } else { op::TAKE };
    let ns = if call.writes { UNPAID } else { ns };
    push(th, code, call.pipe, ns, u64::from(call.amount), disk);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: u32 = 9;

    /// A call of the only thread of `process`, which `PARENT` has forked.
    fn call(finder: &mut Finder, process: u32, writes: bool, number: i64, amount: i64) -> u32 {
        for (enters, value) in [(true, number), (false, amount)] {
            finder.row(&CallRow {
                ts: 0,
                utid: process,
                process,
                parent: PARENT,
                enters,
                writes,
                value,
            });
        }
        finder.keys[&(process, number, writes)]
    }

    /// Processes 1 and 2 write 100 to what they have by the number 7; 3 reads `read`, and is woken
    /// by 1 alone, while 2 wakes 4 by another number. Whether 2 writes to the pipe of 1.
    fn is_shared(read: i64) -> bool {
        let mut finder = Finder::default();
        let (one, two) = (
            call(&mut finder, 1, true, 7, 100),
            call(&mut finder, 2, true, 7, 100),
        );
        let reader = call(&mut finder, 3, false, 5, read);
        finder.ties.insert((one, reader), 1);
        let other = call(&mut finder, 2, true, 8, 100);
        let its_reader = call(&mut finder, 4, false, 6, 100);
        finder.ties.insert((other, its_reader), 1);
        let pipe = finder.tied();
        assert_eq!(pipe[one as usize], pipe[reader as usize]);
        pipe[two as usize] == pipe[one as usize]
    }

    #[test]
    fn children_of_one_parent_have_its_pipe_by_one_number() {
        assert!(is_shared(200));
    }

    #[test]
    fn what_the_pipe_does_not_lack_went_elsewhere() {
        assert!(!is_shared(100));
    }

    #[test]
    fn a_wake_of_who_waits_for_the_lock_ties_nothing() {
        for blocked in [false, true] {
            let mut finder = Finder::default();
            for (process, writes) in [(1, true), (2, false)] {
                finder.row(&CallRow {
                    ts: 0,
                    utid: process,
                    process,
                    parent: process,
                    enters: true,
                    writes,
                    value: 7,
                });
            }
            if blocked {
                finder.blocked.insert(2);
            }
            finder.wake(&Wakeup {
                ts: 0,
                cpu: 0,
                waker_utid: Some(1),
                current_utid: None,
                utid: 2,
                kind: WakeKind::Waking,
                target_cpu: None,
                prio: None,
            });
            assert_eq!(finder.ties.is_empty(), blocked);
        }
    }
}
