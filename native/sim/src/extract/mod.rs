//! From a trace to a workload: what each thread did, without what the scheduler did.
//!
//! One pass over the fact rows in time order. Running time between two waits
//! becomes `run`; a wake by a thread becomes a `signal` at the waker's progress
//! point (CPU time used so far) and a `wait_for` in the wakee; a wake from an
//! idle CPU or interrupt becomes a sleep. Every doubtful case has a rule here
//! and a counter in `Report`. All dependencies point forward in the trace's
//! time, so the programs cannot deadlock under any policy.
mod call_costs;
mod charges;
mod conditions;
mod conversations;
mod cpu_clock;
mod free_takes;
mod holds;
mod jobs;
mod missed;
mod mutexes;
mod outside;
mod pipes;
mod queues;
mod report;
mod table;
mod takes;
mod thread;
mod timers;

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use super::load::op;
use crate::error::Result;
use crate::model::event::{State, WakeKind};
use crate::model::tables::{Switch, Wakeup};
use crate::reconstruct::facts::{Facts, TableIn};
pub use conditions::futex_rows;
use holds::Hold;
pub use mutexes::FutexRow;
use mutexes::{release_all, sleeps_for_mutex};
pub use pipes::{CallRow, Pipe, call_rows};
use pipes::{push_call, sleeps_in_pipe};
use queues::{sleeps_at_barrier, waits_on};
pub use report::Report;
pub use table::steps_of;
pub use thread::{Enters, Made, ThreadOut};
use thread::{
    NOBODY, Now, Pending, changes_on_cpu, end_with_wake, external, flush, gap, push, ran_on,
};

/// A thread changes its own mask to the one of this number, or its nice value.
#[derive(Debug, Clone, Copy)]
pub struct ChangeRow {
    pub ts: i64,
    pub utid: u32,
    op: u8,
    /// The number of the mask, or Linux's priority of the nice value.
    value: i64,
}

/// The changes out of the tables `masks` and `nices`, in time order.
pub fn change_rows(masks: &TableIn, nices: &TableIn) -> Result<Vec<ChangeRow>> {
    let mut rows = Vec::new();
    for (table, name, op, zero) in [
        (masks, "mask", op::SET_AFFINITY, 0),
        (nices, "nice", op::SET_PRIORITY, 120),
    ] {
        if table.rows() == 0 {
            continue;
        }
        let (ts, utid, value) = (table.whole("ts")?, table.whole("utid")?, table.whole(name)?);
        for ((ts, utid), value) in ts.into_iter().zip(utid).zip(value) {
            rows.push(ChangeRow {
                ts,
                utid: utid as u32,
                op,
                value: value + zero,
            });
        }
    }
    rows.sort_by_key(|row| row.ts);
    Ok(rows)
}

/// What the caller decides.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Wakes from outside happen at their own time, however late the thread is.
    pub absolute: bool,
    /// A thread that wants a CPU when the window ends goes on wanting one.
    pub extend_cut: bool,
    /// Priorities are Linux's numbers: a change of them is a `set_priority`.
    pub linux_priorities: bool,
    /// Bytes of a page of memory.
    pub page: u64,
    /// The host's tick, if the trace shows it: ticks per second, and when one falls, ns after the
    /// start.
    pub clock: Option<(i64, i64)>,
}

pub struct Extractor {
    ncpu: u32,
    begin: i64,
    rules: Rules,
    /// Index by utid.
    index: Vec<u32>,
    pub threads: Vec<ThreadOut>,
    current: Vec<u32>,
    seen: Vec<bool>,
    sent: HashMap<(u32, u32), u64, rustc_hash::FxBuildHasher>,
    /// Which wake rows begin a wake: `waking` where it was recorded.
    first_kind: WakeKind,
    /// Utids to leave out.
    dropped: Vec<bool>,
    charges: charges::Charges,
    calls: Vec<pipes::Call>,
    holds: Vec<Hold>,
    call_costs: call_costs::CallCosts,
    pub pipes: Vec<Pipe>,
    /// By hidden job its number, once it was put, and by futile wake (its thread and instant) the
    /// hidden job that it was for.
    hidden: Vec<u64>,
    in_vain: FxHashMap<(u32, i64), u32>,
    /// What is to be done for each job.
    pub job_steps: Vec<Vec<Made>>,
    pub report: Report,
}

impl Extractor {
    pub fn new(ncpu: u32, begin: i64, rules: Rules, has_waking: bool, drop: &[u32]) -> Self {
        let mut dropped = vec![false; drop.iter().max().map_or(0, |m| *m as usize + 1)];
        drop.iter().for_each(|u| dropped[*u as usize] = true);
        Self {
            ncpu,
            begin,
            rules,
            index: Vec::new(),
            threads: Vec::new(),
            current: vec![NOBODY; ncpu as usize],
            seen: vec![false; ncpu as usize],
            sent: HashMap::default(),
            first_kind: if has_waking {
                WakeKind::Waking
            } else {
                WakeKind::Enqueued
            },
            dropped,
            charges: charges::Charges::default(),
            calls: Vec::new(),
            holds: Vec::new(),
            call_costs: call_costs::CallCosts::default(),
            pipes: Vec::new(),
            hidden: Vec::new(),
            in_vain: FxHashMap::default(),
            job_steps: Vec::new(),
            report: Report::default(),
        }
    }

    /// Whether the thread belongs to the workload: no idle thread, not left out.
    fn counts(&self, utid: u32) -> bool {
        utid >= self.ncpu && !self.dropped.get(utid as usize).copied().unwrap_or(false)
    }

    /// Feeds all rows, and lets go of them; `end` is that of the window.
    pub fn run(
        mut self,
        facts: Facts,
        calls: &[CallRow],
        futexes: &[FutexRow],
        changes: &[ChangeRow],
        end: i64,
    ) -> Self {
        let ends = self.find_pipes(&facts, calls);
        let moments = self.find_mutexes(&facts, futexes, calls, end);
        let mut ends_of_futexes = self.find_queues(futexes);
        let hidden = self.hidden_jobs(&facts, futexes, &ends_of_futexes, end);
        ends_of_futexes.extend(hidden);
        ends_of_futexes.sort_by_key(|end| end.ts);
        let (mut s, mut w, mut y, mut c, mut m, mut f, mut a) = (0, 0, 0, 0, 0, 0, 0);
        loop {
            let at = [
                facts.switches.get(s).map_or(i64::MAX, |r| r.ts),
                facts.wakeups.get(w).map_or(i64::MAX, |r| r.ts),
                facts.yields.get(y).map_or(i64::MAX, |r| r.ts),
            ];
            // A thread is on its CPU as it changes its mask, and at both ends of a call.
            if let Some(&ChangeRow {
                ts,
                utid,
                op,
                value,
            }) = changes.get(a)
                && at.iter().all(|t| ts <= *t)
            {
                if self.counts(utid) {
                    let t = self.thread(utid);
                    self.progress(t, ts);
                    let th = &mut self.threads[t as usize];
                    push(th, op, NOBODY, value, 0, false);
                }
                a += 1;
                continue;
            }
            if let Some(&(ts, hold, what)) = moments.get(m)
                && at.iter().all(|t| ts <= *t)
            {
                self.hold(ts, hold, what);
                m += 1;
                continue;
            }
            if let Some(end) = ends_of_futexes.get(f)
                && at.iter().all(|t| end.ts <= *t)
            {
                self.futex_end(end);
                f += 1;
                continue;
            }
            if let Some(&(ts, call, entry)) = ends.get(c)
                && at.iter().all(|t| ts <= *t)
            {
                self.call(ts, call, entry);
                c += 1;
                continue;
            }
            if at == [i64::MAX; 3] {
                break;
            }
            // A yield precedes its switch. In a simulation a thread may wake
            // others, be woken and be switched at one and the same instant.
            if at[2] <= at[0] && at[2] <= at[1] {
                self.yielded(facts.yields[y].utid);
                y += 1;
            } else if at[1] < at[0]
                || (at[1] == at[0] && self.wakes_first(&facts.switches[s], &facts.wakeups[w]))
            {
                self.wakeup(&facts.wakeups[w]);
                w += 1;
            } else {
                self.switch(&facts.switches[s]);
                s += 1;
            }
        }
        drop(facts);
        self.finish(end);
        self.unname_signals();
        self.charge_sleeps();
        self.settle_whom_waits_are_for();
        self.find_timers();
        self.part_jobs();
        self
    }

    /// Whether this wake comes before this switch of the same instant: it does if the switch takes
    /// the waker off its CPU, or switches in a sleeping thread.
    fn wakes_first(&self, row: &Switch, wake: &Wakeup) -> bool {
        if wake.cpu == row.cpu && wake.waker_utid == Some(row.prev_utid) {
            return true;
        }
        if !self.counts(row.next_utid) {
            return false;
        }
        match self.index.get(row.next_utid as usize) {
            Some(&i) if i != NOBODY => matches!(
                self.threads[i as usize].now,
                Now::Unseen | Now::Asleep { .. }
            ),
            _ => true,
        }
    }

    /// The thread's place in the workload; created at its first event.
    fn thread(&mut self, utid: u32) -> u32 {
        let at = utid as usize;
        if at >= self.index.len() {
            self.index.resize(at + 1, NOBODY);
        }
        if self.index[at] == NOBODY {
            self.index[at] = self.threads.len() as u32;
            self.threads
                .push(ThreadOut::new(utid, self.ncpu, self.begin));
        }
        self.index[at]
    }

    fn yielded(&mut self, utid: u32) {
        if self.counts(utid) {
            let i = self.thread(utid);
            self.threads[i as usize].yielded = true;
        }
    }

    fn switch(&mut self, row: &Switch) {
        let c = row.cpu as usize;
        if c >= self.current.len() {
            return;
        }
        self.report.switches += 1;
        let t = row.ts;
        let believed = self.current[c];
        if self.seen[c] && believed != row.prev_utid {
            self.chain_break(believed, t);
        }
        if self.counts(row.prev_utid) {
            self.leaves(row, c);
        }
        self.current[c] = row.next_utid;
        self.seen[c] = true;
        if self.counts(row.next_utid) {
            self.comes(row, c);
        }
    }

    fn chain_break(&mut self, utid: u32, t: i64) {
        self.report.chain_breaks += 1;
        if utid == NOBODY || !self.counts(utid) {
            return;
        }
        let i = self.thread(utid) as usize;
        if let Now::Running { since } = self.threads[i].now {
            // When it left is not known: what it ran since is given up.
            self.report.cpu_time_lost += t - since;
            self.threads[i].now = Now::Lost { since };
        }
    }

    fn leaves(&mut self, row: &Switch, c: usize) {
        let t = row.ts;
        let i = self.thread(row.prev_utid) as usize;
        let begin = self.begin;
        let first_of_cpu = !self.seen[c];
        let th = &mut self.threads[i];
        match th.now {
            Now::Running { since } => {
                th.ran += t - since;
                th.used += t - since;
            }
            Now::Unseen => {
                // The CPU's first switch: it ran since the window began. Else it
                // comes out of a loss, and its time there is not known.
                if first_of_cpu {
                    th.ran += t - begin;
                    self.report.running_at_begin += 1;
                }
                th.enters = Enters::At(if first_of_cpu { 0 } else { t - begin });
                th.first_cpu = Some(row.cpu);
            }
            Now::Lost { since } => {
                self.report.gaps += 1;
                gap(th, &mut self.report, since, t, self.rules.absolute, begin);
            }
            Now::Asleep { since, disk } => {
                // Its wakeup and switch-in were not recorded.
                self.report.wakes_missing += 1;
                external(th, since, t, disk, self.rules.absolute, begin);
            }
            Now::Runnable | Now::Gone => {}
        }
        ran_on(th, row.cpu);
        if self.rules.linux_priorities {
            changes_on_cpu(th, row.prev_prio, &mut self.report);
        }
        th.prio = th.prio.or(row.prev_prio);
        th.first_prio = th.first_prio.or(row.prev_prio);
        let yielded = std::mem::take(&mut th.yielded) || row.preempted == Some(false);
        th.raising = None;
        let awake = th.awake.take();
        match row.prev_state {
            State::Runnable => {
                th.now = Now::Runnable;
                if th.pending.take().is_some() {
                    self.report.wakes_spurious += 1;
                }
                if yielded {
                    self.report.yields += 1;
                    flush(th, &mut self.report);
                    push(th, op::YIELD, NOBODY, 0, 0, false);
                } else {
                    self.report.involuntary_dropped += 1;
                }
            }
            State::Dead => {
                self.report.exits += 1;
                release_all(th, &mut self.report);
                end_with_wake(th, &mut self.report);
                flush(th, &mut self.report);
                push(th, op::EXIT, NOBODY, 0, 0, false);
                th.now = Now::Gone;
            }
            state => {
                if let Some(since) = awake {
                    self.charges.note_burst(t - since);
                }
                let disk = state == State::Blocked;
                th.now = Now::Asleep { since: t, disk };
                th.sleepless = t;
                let pending = th.pending.take();
                // Woken before its switch-out: only a thread that has decided to sleep is woken, so
                // it waited already, and the rest is the cost of switching out.
                let leaving = pending.map_or(0, |p| (t - p.at).clamp(0, th.ran));
                if sleeps_for_mutex(th) || sleeps_at_barrier(th, &mut self.report) {
                    if pending.is_some() {
                        self.report.wakes_before_sleep += 1;
                        th.now = Now::Runnable;
                    }
                    return;
                }
                th.ran -= leaving;
                flush(th, &mut self.report);
                let in_pipe = th.call.is_some();
                if let Some(cycle) = &mut th.cycle {
                    cycle.sleeps += u32::from(in_pipe);
                    cycle.others += u32::from(!in_pipe);
                }
                if let Some(call) = sleeps_in_pipe(th, &self.calls) {
                    if let Some(call) = call {
                        let ns = if pending.is_some() { leaving } else { 0 };
                        self.report.sleep_time += ns;
                        self.report.cpu_time += ns;
                        push_call(th, &call, ns, disk);
                    } else {
                        th.ran += leaving;
                    }
                    if pending.is_some() {
                        self.report.wakes_before_sleep += 1;
                        th.now = Now::Runnable;
                    }
                    return;
                }
                match pending {
                    Some(Pending {
                        job: Some((queue, job)),
                        ..
                    }) => {
                        self.report.wakes_before_sleep += 1;
                        self.report.sleep_time += leaving;
                        self.report.cpu_time += leaving;
                        push(th, op::SERVE, queue, leaving, job, disk);
                        th.now = Now::Runnable;
                    }
                    Some(p) if p.waker != NOBODY => {
                        self.report.wakes_before_sleep += 1;
                        self.report.sleep_time += leaving;
                        self.report.cpu_time += leaving;
                        push(th, op::WAIT_FOR, p.waker, leaving, p.count, disk);
                        th.now = Now::Runnable;
                        if let Some(signal) = self.threads[p.waker as usize]
                            .steps
                            .get_mut(p.step as usize)
                        {
                            signal.meet = true;
                        }
                    }
                    Some(_) => {
                        self.report.wakes_before_sleep += 1;
                        th.ran += leaving;
                        th.now = Now::Runnable;
                    }
                    None => {}
                }
            }
        }
    }

    fn comes(&mut self, row: &Switch, c: usize) {
        let t = row.ts;
        let i = self.thread(row.next_utid) as usize;
        let begin = self.begin;
        let th = &mut self.threads[i];
        th.awake = std::mem::take(&mut th.woken).then_some(t);
        if matches!(th.now, Now::Unseen | Now::Asleep { .. } | Now::Lost { .. }) {
            th.sleepless = t;
        }
        match th.now {
            Now::Unseen => {
                th.enters = Enters::At(t - begin);
                if !th.steps.is_empty() {
                    th.enters = Enters::At(0);
                }
                self.report.wakes_missing += 1;
            }
            Now::Asleep { since, disk } => {
                self.report.wakes_missing += 1;
                external(th, since, t, disk, self.rules.absolute, begin);
            }
            Now::Lost { since } => {
                self.report.gaps += 1;
                gap(th, &mut self.report, since, t, self.rules.absolute, begin);
            }
            Now::Running { since } => {
                // Switched in twice: its switch-out was lost.
                self.report.cpu_time_lost += t - since;
            }
            Now::Runnable | Now::Gone => {}
        }
        th.now = Now::Running { since: t };
        th.comes += 1;
        if let Some(cycle) = &mut th.cycle {
            cycle.comes += 1;
        }
        th.first_cpu = th.first_cpu.or(Some(c as u16));
        ran_on(th, row.cpu);
        if self.rules.linux_priorities
            && let Some(prio) = row.next_prio
        {
            th.first_prio = th.first_prio.or(Some(prio));
            if th.prio.is_some_and(|p| p != prio) {
                self.report.priority_changes += 1;
                flush(th, &mut self.report);
                push(th, op::SET_PRIORITY, NOBODY, i64::from(prio), 0, false);
            }
            th.prio = Some(prio);
        }
        th.came = Some((th.steps.len(), th.ran));
        if let Some(last) = th.outside.last_mut() {
            last.came = last.came.or(Some(t));
        }
    }

    fn wakeup(&mut self, row: &Wakeup) {
        if !self.counts(row.utid) {
            return;
        }
        if row.kind == WakeKind::New {
            self.new_thread(row);
            return;
        }
        if row.kind != self.first_kind {
            self.raised(row);
            return;
        }
        let begin = self.begin;
        let i = self.thread(row.utid);
        if self.woken_in_pipe(row, i) || self.woken_for_mutex(row, i) || self.woken_in_queue(row, i)
        {
            return;
        }
        match self.threads[i as usize].now {
            Now::Runnable | Now::Gone => self.report.wakes_spurious += 1,
            Now::Running { since } => {
                if row.waker_utid.is_none() && self.current.get(row.cpu as usize) == Some(&row.utid)
                {
                    // An interrupt does not come between its last look and the switch: the thread
                    // goes on, and sleeps later because of something else.
                    self.report.wakes_spurious += 1;
                    let th = &mut self.threads[i as usize];
                    th.self_wakes.push(missed::SelfWake {
                        step: th.steps.len() as u32,
                        after: th.ran + row.ts - since,
                        at: row.ts,
                    });
                    return;
                }
                let waker = self.waker(row, i);
                let count = self.send(waker, i, row.ts, false);
                let step = waker.map_or(0, |w| self.threads[w as usize].steps.len() as u32 - 1);
                self.threads[i as usize].pending = Some(Pending {
                    waker: waker.unwrap_or(NOBODY),
                    count,
                    at: row.ts,
                    step,
                    job: None,
                });
            }
            now => {
                let waker = self.waker(row, i);
                let count = self.send(waker, i, row.ts, true);
                let absolute = self.rules.absolute;
                let th = &mut self.threads[i as usize];
                let (since, disk) = match now {
                    Now::Asleep { since, disk } => (since, disk),
                    Now::Lost { since } => (since, false),
                    _ => {
                        th.enters = Enters::Asleep;
                        (begin, false)
                    }
                };
                match waker {
                    Some(w) => {
                        self.report.wakes_by_threads += 1;
                        push(th, op::WAIT_FOR, w, 0, count, disk);
                    }
                    None => {
                        self.report.wakes_external += 1;
                        external(th, since, row.ts, disk, absolute, begin);
                        if !disk {
                            th.outside.push(outside::OutsideSleep {
                                step: th.steps.len() as u32 - 1,
                                since,
                                woken: row.ts,
                                came: None,
                            });
                        }
                    }
                }
                th.now = Now::Runnable;
                th.woken = true;
                th.sleepless = row.ts;
            }
        }
    }

    /// The thread that raised a wake, if it was one and runs where it says.
    fn waker(&mut self, row: &Wakeup, wakee: u32) -> Option<u32> {
        let utid = row.waker_utid?;
        if !self.counts(utid) {
            return None;
        }
        let w = self.thread(utid);
        let runs = matches!(self.threads[w as usize].now, Now::Running { .. })
            && self.current.get(row.cpu as usize) == Some(&utid);
        // Before a CPU's first switch its thread is known by its wakes only.
        let unseen = self.threads[w as usize].now == Now::Unseen
            && !self.seen.get(row.cpu as usize).copied().unwrap_or(true);
        if unseen {
            let begin = self.begin;
            let th = &mut self.threads[w as usize];
            th.now = Now::Running { since: begin };
            th.enters = Enters::At(0);
            th.first_cpu = Some(row.cpu);
            self.report.running_at_begin += 1;
            self.current[row.cpu as usize] = utid;
            self.seen[row.cpu as usize] = true;
            return (w != wakee).then_some(w);
        }
        if !runs || w == wakee {
            self.report.wakes_unknown_waker += 1;
            return None;
        }
        Some(w)
    }

    /// Whether a wake ends the sleep that a thread is in, in a pipe or for a mutex; `through`:
    /// it came from the other end, so that it also ends one that the thread is on its way to.
    fn ends_sleep(&self, wakee: u32, through: bool) -> bool {
        match self.threads[wakee as usize].now {
            Now::Runnable | Now::Gone => false,
            Now::Running { .. } => through,
            _ => true,
        }
    }

    /// Notes a wake that ends such a sleep at `at`; false if the thread was on its way to it.
    fn sleep_ended(&mut self, wakee: u32, waker: Option<u32>, at: i64) -> bool {
        self.report.wakes_by_threads += u64::from(waker.is_some());
        self.report.wakes_external += u64::from(waker.is_none());
        let th = &mut self.threads[wakee as usize];
        if let Now::Running { .. } = th.now {
            th.pending = Some(Pending {
                waker: NOBODY,
                count: 0,
                at,
                step: 0,
                job: None,
            });
            return false;
        }
        th.now = Now::Runnable;
        th.woken = true;
        th.sleepless = at;
        true
    }

    /// Notes a signal of `waker` at its progress point; answers its number.
    fn send(&mut self, waker: Option<u32>, to: u32, t: i64, asleep: bool) -> u64 {
        let Some(w) = waker else { return 0 };
        let count = self.sent.entry((w, to)).or_default();
        *count += 1;
        let count = *count;
        self.progress(w, t);
        push(&mut self.threads[w as usize], op::SIGNAL, to, 0, 0, false);
        let waker = &mut self.threads[w as usize];
        waker.raising = Some((to, t, waker.steps.len() as u32 - 1));
        if let Some(cycle) = &mut waker.cycle {
            cycle.others += 1;
        }
        if let Some(made) = waker.steps.last_mut() {
            made.meet = asleep;
        }
        count
    }

    /// Thread `t` makes a call at `ts`: one that was woken, and whose coming onto a CPU the
    /// recording lacks, is there now.
    fn runs(&mut self, t: u32, ts: i64) {
        let th = &mut self.threads[t as usize];
        if th.now == Now::Runnable && th.woken {
            th.now = Now::Running { since: ts };
            th.woken = false;
            self.report.comes_missing += 1;
        }
    }

    /// Brings the running thread `w` up to `t` and writes its `run`.
    fn progress(&mut self, w: u32, t: i64) {
        let th = &mut self.threads[w as usize];
        if let Now::Running { since } = th.now {
            th.ran += t - since;
            th.used += t - since;
            th.now = Now::Running { since: t };
        }
        flush(th, &mut self.report);
    }

    fn new_thread(&mut self, row: &Wakeup) {
        let i = self.thread(row.utid);
        if self.threads[i as usize].now != Now::Unseen {
            self.report.wakes_spurious += 1;
            return;
        }
        self.report.forks += 1;
        let parent = self.waker(row, i);
        let begin = self.begin;
        match parent {
            Some(p) => {
                self.progress(p, row.ts);
                push(&mut self.threads[p as usize], op::FORK, i, 0, 0, false);
                self.threads[i as usize].enters = Enters::Forked;
            }
            None => self.threads[i as usize].enters = Enters::At(row.ts - begin),
        }
        let th = &mut self.threads[i as usize];
        th.now = Now::Runnable;
        th.sleepless = row.ts;
    }

    fn finish(&mut self, end: i64) {
        for th in &mut self.threads {
            if th.now == Now::Gone {
                continue;
            }
            self.report.cut_at_end += 1;
            if let Now::Running { since } = th.now {
                th.ran += end - since;
            }
            if self.rules.extend_cut && matches!(th.now, Now::Running { .. } | Now::Runnable) {
                // How much longer its burst would have been is not known: as long as it has
                // been going on is as likely too much as too little.
                flush(th, &mut self.report);
                push(th, op::RUN, NOBODY, end - th.sleepless, 0, false);
            }
            release_all(th, &mut self.report);
            flush(th, &mut self.report);
            if !waits_on(th) {
                push(th, op::PARK, NOBODY, 0, 0, false);
            }
            if th.now == Now::Unseen {
                // Seen only as a waker that ran nowhere: it never mattered.
                th.enters = Enters::Asleep;
            }
        }
    }
}

/// The value in the middle, the upper one of two.
fn median(values: &[i64]) -> Option<i64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

/// Class (its number), nice value and real-time priority of a Linux priority.
pub fn linux_priority(prio: i16) -> (u8, i8, u8) {
    match prio {
        ..0 => (DEADLINE, 0, 99),
        0..100 => (FIFO, 0, (99 - prio).clamp(1, 99) as u8),
        _ => (FAIR, (prio - 120).clamp(-20, 19) as i8, 0),
    }
}

const DEADLINE: u8 = 5;
const FIFO: u8 = 0;
const FAIR: u8 = 2;
