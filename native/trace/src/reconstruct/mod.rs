//! What the scheduler did, inferred from the facts in one pass.
//!
//! The state machine of docs/trace-model.md, section Reconstruction; rule
//! names in the comments are that page's. Input: fact rows (utids) in time
//! order. Output: `states`, `waits`, chain-break losses and counters. Memory
//! grows with threads and CPUs only; rows leave as soon as they are known.

pub mod apart;
pub mod clocks;
mod evidence;
pub mod facts;
mod holes;
mod ledger;
pub mod recorded;
mod switches;
mod thread;
mod unreported;
mod wakeups;

use crate::model::event::{End, LossReason, State};
use crate::model::tables::{Loss, Losses, Migration, StateRow, States, Waits};
use crate::prefetch::near;
use apart::{Apart, Clocks};
use holes::Holes;
use ledger::Cut;
use recorded::Clues;
use rustc_hash::FxHashMap;
use thread::Thread;
use unreported::Breaks;
pub use unreported::{Habits, Unreported};

/// So long after one step of a wakeup the other has come, where both are recorded.
const HALF_A_WAKE: i64 = 20_000_000;

/// The process that ends a recording runs on some CPU: without an event on any of them for so long
/// before the stated end, the end is missing.
const UNSEEN_END: i64 = 20_000_000;

/// No thread.
const NOBODY: u32 = u32::MAX;

/// How often a rule fired that a person should know of.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    /// Wakes of threads already running or runnable.
    pub spurious_wakeups: u64,
    /// Switch-ins of a sleeping thread whose wake was not recorded.
    pub missing_wakeups: u64,
    /// Wakes raised while the wakee still left its CPU.
    pub wakes_before_switch_out: u64,
    /// Threads seen on a CPU while believed to run on another.
    pub contradictions: u64,
    /// CPUs seen running another thread than the one switched in before.
    pub chain_breaks: u64,
    /// Those of them where one switch is missing, away from a thread whose leaving the kernel never
    /// reports.
    pub unreported_leavings: u64,
    /// Threads seen on a CPU without the switch that put them there.
    pub unseen_switch_ins: u64,
    /// Threads that left a queue, or ran, where they were not queued: a migration is missing.
    pub unseen_moves: u64,
    /// Switch-ins of a thread of which nothing was known.
    pub first_sights: u64,
    /// Switch-ins of non-idle threads.
    pub switch_ins: u64,
    /// Waits cut by a loss, a contradiction or the end of the window.
    pub right_censored: u64,
    /// Ledger rows.
    pub waits: u64,
    /// Sum over threads of running time, ns.
    pub thread_running: i64,
}

/// What one CPU did over the window; `running + idle + unknown` is the window.
#[derive(Debug, Clone, Copy)]
pub struct CpuTotals {
    pub running: i64,
    pub idle: i64,
    pub unknown: i64,
    pub switches: u64,
    pub first_ts: Option<i64>,
    pub last_ts: Option<i64>,
    current: u32,
    /// When `current` began; the loss, or the window's start, if the thread is unknown.
    since: i64,
    /// When `current` was last seen there: its switch-in, or later evidence.
    confirmed: i64,
    /// How often its idle thread was seen to leave.
    idle_left: u64,
    /// When it was last switched to its idle thread.
    idled: i64,
    /// The time of its last event, if `current` was found on another CPU since.
    silent: Option<i64>,
}

/// Rule Habit: a thread had left its CPU `by` then. From `rested` on it was not in its queue.
#[derive(Debug, Clone, Copy)]
struct LeftUnseen {
    by: i64,
    rested: Option<i64>,
}

pub struct Reconstructor {
    ncpu: u32,
    begin: i64,
    cpus: Vec<CpuTotals>,
    threads: Vec<Thread>,
    /// Waits of threads that are unknown since, by utid.
    cut: FxHashMap<u32, Cut>,
    /// Threads that had left their CPUs unseen, by utid, and those of them, with the CPU, which may
    /// be in its queue.
    left_unseen: FxHashMap<u32, LeftUnseen>,
    perhaps_queued: Vec<(u16, u32)>,
    /// Of those that left unseen, how many were woken next, and how many were switched in next.
    woken_next: u64,
    run_next: u64,
    holes: Holes,
    breaks: Breaks,
    clues: Clues,
    /// Threads whose events alone were recorded, by utid; None: all were.
    recorded: Option<Vec<bool>>,
    /// Every wakeup has its `waking`: for one without, an earlier one is missing.
    expects_waking: bool,
    /// Wakeups are recorded when they put the thread on a queue: one was.
    enqueues: bool,
    /// There is no `waking`, and each wake of a sleeper raises one `enqueued`.
    enqueues_once: bool,
    uncounted: bool,
    /// The CPUs' clocks differ: what is known of that.
    apart: Option<Box<Apart>>,
    /// Wakeups enqueued after the switch-in that they led to.
    late_enqueues: u64,
    /// Any thread was woken.
    any_wake: bool,
    pub states: States,
    pub waits: Waits,
    losses: Vec<Loss>,
    pub counters: Counters,
}

impl Reconstructor {
    /// `begin` is the start of the window; no CPU and no thread is known there.
    pub fn new(ncpu: u16, begin: i64) -> Self {
        let cpu = CpuTotals {
            running: 0,
            idle: 0,
            unknown: 0,
            switches: 0,
            first_ts: None,
            last_ts: None,
            current: NOBODY,
            since: begin,
            confirmed: begin,
            idle_left: 0,
            idled: i64::MIN,
            silent: None,
        };
        Self {
            ncpu: u32::from(ncpu),
            begin,
            cpus: vec![cpu; usize::from(ncpu)],
            threads: Vec::new(),
            cut: FxHashMap::default(),
            left_unseen: FxHashMap::default(),
            perhaps_queued: Vec::new(),
            woken_next: 0,
            run_next: 0,
            holes: Holes::new(u32::from(ncpu)),
            breaks: Breaks::default(),
            clues: Clues::default(),
            recorded: None,
            expects_waking: false,
            enqueues: false,
            enqueues_once: false,
            uncounted: false,
            apart: None,
            late_enqueues: 0,
            any_wake: false,
            states: States::default(),
            waits: Waits::default(),
            losses: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// The source records the `waking` of every wakeup.
    #[must_use]
    pub fn expecting_waking(mut self, expected: bool) -> Self {
        self.expects_waking = expected;
        self
    }

    /// The source records `enqueued` only of a thread that was on no queue.
    #[must_use]
    pub fn expecting_one_enqueued(mut self, expected: bool) -> Self {
        self.enqueues_once = expected;
        self
    }

    /// Nothing counts what was lost: where a switch is missing, moves may be, too.
    #[must_use]
    pub fn with_uncounted_losses(mut self, uncounted: bool) -> Self {
        self.uncounted = uncounted;
        self
    }

    /// The source recorded chosen threads only; `choose` names them.
    #[must_use]
    pub fn with_chosen_threads(mut self, chosen: bool) -> Self {
        self.recorded = chosen.then(Vec::new);
        self
    }

    /// The thread is one of those that were recorded.
    pub fn choose(&mut self, utid: u32) {
        let Some(recorded) = &mut self.recorded else {
            return;
        };
        let index = utid as usize;
        if index >= recorded.len() {
            recorded.resize(index + 1, false);
        }
        recorded[index] = true;
    }

    /// Rule Filtered: are switches of the thread missing because it was not chosen?
    fn left_out(&self, utid: u32) -> bool {
        let recorded = self.recorded.as_ref();
        recorded.is_some_and(|chosen| !chosen.get(utid as usize).copied().unwrap_or(false))
    }

    /// Who may have been left out, and how many chains broke between two of these.
    pub fn clues(&self) -> (Vec<u32>, u64) {
        let seen = |utid| self.left(utid);
        self.clues.left_out(|utid| self.is_idle(utid), seen)
    }

    /// Do chains break as often as some of all threads' switches are left out?
    pub fn of_all_break(&self) -> bool {
        self.clues.of_all_break(self.switches())
    }

    /// Whether chains break at all, among enough switches.
    pub fn any_breaks(&self) -> bool {
        self.clues.any_breaks(self.switches())
    }

    /// Do chains break so often that no thread's switches can be whole?
    pub fn nothing_fits(&self) -> bool {
        let cpus = self.switching().len() as u64;
        self.clues.nothing_fits(self.switches(), cpus)
    }

    fn switches(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.switches).sum()
    }

    /// The CPUs' clocks differ, as given.
    #[must_use]
    pub fn with_clocks(mut self, clocks: Option<Clocks>) -> Self {
        self.apart = clocks.map(|clocks| Box::new(Apart::new(clocks)));
        self
    }

    /// How often a thread's events came in an order that clocks that differ explain.
    pub fn out_of_order(&self) -> u64 {
        let counters = &self.counters;
        counters.missing_wakeups
            + counters.contradictions
            + counters.unseen_switch_ins
            + self.late_enqueues
    }

    /// The CPUs that switch.
    pub fn switching(&self) -> Vec<u16> {
        let cpus = (0..).zip(&self.cpus);
        let switching = cpus.filter(|(_, totals)| totals.switches > 0);
        switching.map(|(cpu, _)| cpu).collect()
    }

    /// Where switches are missing that the source does not report, in the window that ended at
    /// `end`.
    pub fn unreported(&self, end: i64) -> Unreported {
        let switches: Vec<_> = self.cpus.iter().map(|cpu| cpu.switches).collect();
        let left = |utid| self.left(utid);
        let unseen = self.counters.unseen_switch_ins;
        let habits = self.breaks.habits(left, |utid| self.is_idle(utid), unseen);
        let mut breaks = self.holes.breaks();
        breaks.extend(self.breaks.presumed_wrongly(&habits));
        Unreported {
            breaks,
            holes: self.breaks.holes(left),
            leaks: self.breaks.leaks((self.begin, end), &switches, left),
            as_presumed: self.breaks.as_presumed(&habits),
            habits,
        }
    }

    /// What is known of threads whose leaving the kernel does not report.
    #[must_use]
    pub fn with_habits(mut self, habits: Habits) -> Self {
        self.breaks.set_habits(habits);
        self
    }

    /// How often a thread was seen to leave a CPU.
    fn left(&self, utid: u32) -> u64 {
        if self.is_idle(utid) {
            return self.cpus[utid as usize].idle_left;
        }
        let thread = self.threads.get(utid as usize);
        thread.map_or(0, |thread| thread.left.into())
    }

    /// What an earlier reading found. A broken chain is known at its end only, and then what ended
    /// inside it has been written.
    #[must_use]
    pub fn with_unreported(mut self, known: &Unreported) -> Self {
        for (cpu, begin, end) in &known.breaks {
            self.holes.break_chain(*cpu, *begin, *end);
        }
        for (cpu, begin, end) in &known.holes {
            self.holes.suspect(*cpu, *begin, *end);
        }
        for leak in &known.leaks {
            self.holes.leak(leak.cpu, leak.begin, leak.end);
            self.losses.push(Loss {
                cpu: Some(leak.cpu),
                ts_begin: leak.begin,
                ts_end: leak.end,
                count: Some(leak.breaks),
                reason: LossReason::ChainBreak,
            });
        }
        self
    }

    /// The CPUs that a thread may use, as a list (`0-3,8`).
    pub fn allow(&mut self, utid: u32, list: &str) {
        self.holes.allow(utid, list);
    }

    /// Whether a thread would have to be woken before it can be switched in.
    pub(crate) fn sleeps(&self, utid: u32) -> bool {
        if self.is_idle(utid) {
            return false;
        }
        self.threads.get(utid as usize).is_none_or(|thread| {
            !thread.born
                || thread.pending.is_none()
                    && !matches!(thread.state, State::Running | State::Runnable)
        })
    }

    /// When the last event of a living thread was; None if it had none.
    pub fn last_event(&self, utid: u32) -> Option<i64> {
        let thread = self.threads.get(utid as usize)?;
        thread.born.then_some(thread.last_event)
    }

    /// Events of the thread come soon: brings its record near.
    pub fn prefetch(&self, utid: u32) {
        let record = self.threads.get(utid as usize);
        near(record.map(|thread| (thread.state, thread.wait.is_some())));
    }

    /// The window starts earlier than the first event that was sent: an interrupt is sent at its
    /// end, with the time of its start.
    pub fn began(&mut self, begin: i64) {
        let missed = (self.begin - begin).max(0);
        self.begin -= missed;
        for cpu in &mut self.cpus {
            cpu.unknown += missed;
        }
    }

    /// These CPUs are known to be idle when the window begins.
    pub fn begin_idle(&mut self, cpus: impl IntoIterator<Item = u16>) {
        for cpu in cpus {
            self.cpus[usize::from(cpu)].current = u32::from(cpu);
        }
    }

    /// An idle CPU goes offline, or comes back and idles.
    pub fn online(&mut self, cpu: u16, at: i64, online: bool) {
        self.release(cpu, at, End::Switched);
        if online {
            self.cpus[usize::from(cpu)].current = u32::from(cpu);
        }
    }

    /// The losses in time order, chain breaks included.
    pub fn sorted_losses(&mut self) -> arrow_array::RecordBatch {
        self.losses.sort_by_key(|loss| (loss.ts_begin, loss.cpu));
        let mut table = Losses::default();
        for loss in self.losses.drain(..) {
            table.push(loss);
        }
        table.take()
    }

    pub fn cpus(&self) -> &[CpuTotals] {
        &self.cpus
    }

    fn is_idle(&self, utid: u32) -> bool {
        utid < self.ncpu
    }

    /// Nothing counts what was lost, or the source did not report all of it.
    fn losses_unreported(&self) -> bool {
        self.uncounted || self.holes.any_suspected()
    }

    /// Makes room for a thread that was never seen.
    #[cold]
    fn admit(&mut self, utid: u32) {
        self.threads.resize(utid as usize + 1, Thread::unborn());
    }

    /// The thread's record; its life starts now if this is its first event.
    fn thread(&mut self, utid: u32, ts: i64) -> &mut Thread {
        let index = utid as usize;
        if index >= self.threads.len() {
            self.admit(utid);
        }
        let thread = &mut self.threads[index];
        if !thread.born {
            let left = thread.left;
            *thread = Thread::first_seen(ts);
            thread.left = left;
        }
        thread
    }

    /// Closes the thread's current interval at `ts`.
    fn close(&mut self, utid: u32, ts: i64, end: End) {
        if !self.cut.is_empty() && self.threads[utid as usize].state == State::Unknown {
            self.end_cut_wait(utid, Some(ts));
        }
        let thread = &mut self.threads[utid as usize];
        if ts > thread.since {
            let dur = ts - thread.since;
            let placed = matches!(thread.state, State::Running | State::Runnable);
            if thread.state == State::Running {
                self.counters.thread_running = self.counters.thread_running.saturating_add(dur);
            }
            self.states.push(StateRow {
                ts: thread.since,
                dur,
                utid,
                state: thread.state,
                cpu: match &thread.wait {
                    Some(wait) if thread.state == State::Runnable => wait.queue_cpu,
                    _ if placed => thread.cpu,
                    _ => None,
                },
                prio: thread.prio,
                waker_utid: match (&thread.wait, thread.state) {
                    (Some(wait), State::Runnable) => wait.waker,
                    _ => None,
                },
                end,
            });
            thread.since = ts;
        }
    }

    /// The CPU's account up to `at`; its current thread, if known, ends its running interval there,
    /// and is unknown afterwards.
    fn release(&mut self, cpu: u16, at: i64, end: End) {
        let ncpu = self.ncpu;
        let totals = &mut self.cpus[usize::from(cpu)];
        let current = std::mem::replace(&mut totals.current, NOBODY);
        let since = std::mem::replace(&mut totals.since, at);
        totals.confirmed = at;
        let leaking = self.holes.leaks_from(cpu, since, at);
        let known = leaking.unwrap_or(at) - since;
        if current == NOBODY {
            totals.unknown += at - since;
            return;
        }
        totals.unknown += at - since - known;
        if current >= ncpu {
            totals.running += known;
            if let Some(from) = leaking {
                self.close(current, from, End::Lost);
                let thread = &mut self.threads[current as usize];
                thread.since = from;
                thread.forget();
            }
            self.close(current, at, end);
        } else {
            totals.idle += known;
            if known > 0 {
                self.states.push(StateRow {
                    ts: since,
                    dur: known,
                    utid: current,
                    state: State::Running,
                    cpu: Some(cpu),
                    prio: None,
                    waker_utid: None,
                    end: if leaking.is_some() { End::Lost } else { end },
                });
            }
        }
    }

    pub fn migrate(&mut self, row: &Migration) {
        // Of a filter, moves that others make need not be there.
        if self.recorded.is_none() {
            self.holes.moved();
        }
        if self.is_idle(row.utid) || self.left_out(row.utid) {
            return;
        }
        let (utid, t) = (row.utid, row.ts);
        self.stamped(utid, row.cpu, t);
        self.thread(utid, t);
        for cpu in [row.from_cpu, row.to_cpu].into_iter().flatten() {
            self.holes.ran(utid, cpu);
        }
        self.settle(utid, t, row.from_cpu);
        self.found_queued(utid, row.from_cpu);
        let thread = &mut self.threads[utid as usize];
        thread.last_event = t;
        match thread.state {
            State::Running => {}
            State::Runnable => {
                let queued = thread.wait.as_mut().is_some_and(|wait| {
                    // Its waker chooses a queue for it; another CPU takes it from one.
                    let taken = wait.waker_cpu.is_some_and(|cpu| cpu != row.cpu);
                    if wait.ts_enqueued.is_none() && taken {
                        wait.queue_cpu = row.from_cpu;
                    }
                    wait.ts_enqueued.is_some() || taken
                });
                if queued {
                    self.close(utid, t, End::Switched);
                }
                let thread = &mut self.threads[utid as usize];
                thread.cpu = row.to_cpu;
                if let Some(wait) = &mut thread.wait {
                    wait.queue_cpu = row.to_cpu;
                }
            }
            _ => thread.cpu = row.to_cpu,
        }
    }

    pub fn yielded(&mut self, utid: u32, ts: i64) {
        if !self.is_idle(utid) {
            let thread = self.thread(utid, ts);
            thread.last_event = ts;
            thread.yielded = true;
        }
    }

    /// Rule Loss: the source says that events of `cpu` may be missing.
    pub fn loss(&mut self, row: &Loss) {
        let cpus: std::ops::Range<usize> = match row.cpu {
            Some(cpu) if usize::from(cpu) < self.cpus.len() => {
                usize::from(cpu)..usize::from(cpu) + 1
            }
            Some(_) => 0..0,
            None => 0..self.cpus.len(),
        };
        for index in cpus {
            let CpuTotals { current, since, .. } = self.cpus[index];
            let b = row.ts_begin.max(since);
            self.release(index as u16, b, End::Lost);
            if current != NOBODY && current >= self.ncpu {
                self.threads[current as usize].forget();
            }
            if row.reason == LossReason::Unrecorded {
                self.holes.leave_out(index, row.ts_begin, row.ts_end);
            } else {
                self.holes.lose(index, row.ts_begin, row.ts_end);
            }
        }
        self.losses.push(row.clone());
    }

    /// Rule Taken down, at the end of the window: the thread is a CPU's stopper. If it was the last
    /// that ran there, the length of its run is unknown.
    pub fn stopper(&mut self, utid: u32) {
        self.breaks.stopper(utid);
        if let Some(cpu) = self.cpus.iter().position(|cpu| cpu.current == utid)
            && !self.is_idle(utid)
        {
            self.lose_current(cpu as u16);
        }
    }

    /// Rule Ended early, at the end of the window: CPUs without further events after a thread had
    /// left them unseen.
    fn end_silent_cpus(&mut self, end: i64) {
        for index in 0..self.cpus.len() {
            if let Some(since) = self.cpus[index].silent.take() {
                self.end_early(index as u16, since, end);
            }
        }
    }

    /// Rule An end without events: a recorder says when recording ended, which it does not do without being
    /// seen on some CPU; the last event of all was at `last`.
    pub fn recorded_until(&mut self, last: i64, end: i64) {
        if end.saturating_sub(last) <= UNSEEN_END {
            return;
        }
        for cpu in self.switching() {
            let told = |loss: &Loss| loss.cpu.is_none_or(|lost| lost == cpu) && loss.ts_end >= end;
            if self.losses.iter().any(told) || self.cpus[usize::from(cpu)].silent.is_some() {
                continue;
            }
            self.end_early(cpu, last, end);
        }
    }

    /// Nothing of the CPU was recorded from then to the end of the window.
    fn end_early(&mut self, cpu: u16, since: i64, end: i64) {
        self.loss(&Loss {
            cpu: Some(cpu),
            ts_begin: since,
            ts_end: end,
            count: None,
            reason: LossReason::EarlyEnd,
        });
    }

    /// Closes everything that is still open at the end of the window.
    pub fn finish(&mut self, end: i64) {
        self.end_silent_cpus(end);
        self.rest_to_the_end(end);
        for utid in self.ncpu..self.threads.len() as u32 {
            if self.threads[utid as usize].born {
                // A file that stops inside a record has a hole that begins with the end.
                self.settle(utid, end.saturating_add(1), None);
            }
        }
        for index in 0..self.cpus.len() {
            let at = end.max(self.cpus[index].since);
            self.release(index as u16, at, End::Window);
        }
        for utid in self.ncpu..self.threads.len() as u32 {
            if !self.threads[utid as usize].born {
                continue;
            }
            let unsure = self.apart.as_ref().is_some_and(|apart| apart.unsure(utid));
            let doubtful = unsure || self.half_woken(utid, end) || self.perhaps_woken(utid);
            if doubtful && self.threads[utid as usize].since < end {
                self.lose_sight(utid);
            }
            self.end_cut_wait(utid, None);
            self.close(utid, end, End::Window);
            if let Some(wait) = self.threads[utid as usize].wait.take() {
                self.write_open_wait(utid, &wait, end);
            }
        }
        let held = self.apart.as_mut().map(|apart| apart.rest());
        for row in held.into_iter().flatten() {
            self.enter_wait(row);
        }
    }
}
