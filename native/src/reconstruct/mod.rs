//! What the scheduler did, inferred from the facts in one pass.
//!
//! The state machine of docs/trace-model.md, section Reconstruction; rule
//! names in the comments are that page's. Input: fact rows (utids) in time
//! order. Output: `states`, `waits`, chain-break losses and counters. Memory
//! grows with threads and CPUs only; rows leave as soon as they are known.

pub mod apart;
pub mod clocks;
pub mod facts;
mod holes;
pub mod recorded;
mod thread;
mod unreported;

use crate::model::event::{Cause, Censored, End, LossReason, State, WakeKind};
use crate::model::tables::{
    Loss, Losses, Migration, StateRow, States, Switch, Wait, Waits, Wakeup,
};
use crate::prefetch::near;
use apart::{Apart, Clocks};
use holes::Holes;
use recorded::Clues;
use thread::{OpenWait, PendingWake, Thread};
pub use unreported::Unreported;
use unreported::{Break, Breaks};

/// So long after one step of a wakeup the other has come, where both are recorded.
const HALF_A_WAKE: i64 = 20_000_000;

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
    /// When `current` began; the loss, or the window's begin, if nobody is known.
    since: i64,
    /// When `current` was last seen there: its switch-in, or later evidence.
    confirmed: i64,
    /// How often its idle thread was seen to leave.
    idle_left: u64,
    /// When it was last heard of, if `current` was found on another CPU since.
    silent: Option<i64>,
}

pub struct Reconstructor {
    ncpu: u32,
    begin: i64,
    cpus: Vec<CpuTotals>,
    threads: Vec<Thread>,
    holes: Holes,
    breaks: Breaks,
    clues: Clues,
    /// Threads whose events alone were recorded, by utid; None: all were.
    recorded: Option<Vec<bool>>,
    /// Every wakeup has its `waking`: one without had an earlier one, unseen.
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
            silent: None,
        };
        Self {
            ncpu: u32::from(ncpu),
            begin,
            cpus: vec![cpu; usize::from(ncpu)],
            threads: Vec::new(),
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

    /// The source records no `waking`, and `enqueued` only of a thread that was not runnable.
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

    /// Do chains break so often that no thread's switches can be whole?
    pub fn nothing_fits(&self) -> bool {
        let cpus = self.switching().len() as u64;
        self.clues.nothing_fits(self.switches(), cpus)
    }

    fn switches(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.switches).sum()
    }

    /// The CPUs' clocks differ, as told.
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
        Unreported {
            breaks: self.holes.breaks(),
            holes: self.breaks.holes(left),
            leaks: self.breaks.leaks((self.begin, end), &switches, left),
        }
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
    pub(crate) fn last_event(&self, utid: u32) -> Option<i64> {
        let thread = self.threads.get(utid as usize)?;
        thread.born.then_some(thread.last_event)
    }

    /// Events of the thread come soon: brings its record near.
    pub(crate) fn prefetch(&self, utid: u32) {
        let record = self.threads.get(utid as usize);
        near(record.map(|thread| (thread.state, thread.wait.is_some())));
    }

    /// The window began earlier than was thought when the first event came: an
    /// interrupt is told when it ends, and stands at its begin.
    pub fn began(&mut self, begin: i64) {
        let missed = (self.begin - begin).max(0);
        self.begin -= missed;
        for cpu in &mut self.cpus {
            cpu.unknown += missed;
        }
    }

    /// Every CPU is known to be idle when the window begins (simulations).
    pub fn begin_idle(&mut self) {
        for (cpu, totals) in self.cpus.iter_mut().enumerate() {
            totals.current = cpu as u32;
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
                cpu: if placed { thread.cpu } else { None },
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

    fn write_wait(
        &mut self,
        utid: u32,
        wait: &OpenWait,
        ts_run: Option<i64>,
        until: i64,
        censored: Censored,
    ) {
        let thread = &self.threads[utid as usize];
        if censored == Censored::Right {
            self.counters.right_censored += 1;
        }
        let censored = match censored {
            Censored::None if wait.begun_before => Censored::Left,
            Censored::Right if wait.begun_before => Censored::Both,
            seen => seen,
        };
        let ts_ready = (!wait.begun_before).then_some(wait.ts_ready);
        let row = Wait {
            utid,
            cause: wait.cause,
            ts_waking: wait.ts_waking,
            ts_ready,
            ts_enqueued: wait.ts_enqueued,
            ts_run,
            waker_utid: wait.waker,
            waker_cpu: wait.waker_cpu,
            prev_cpu: wait.prev_cpu,
            queue_cpu: wait.queue_cpu,
            cpu: if ts_run.is_some() { thread.cpu } else { None },
            prio: thread.prio,
            placement: match (wait.ts_enqueued, ts_ready) {
                (Some(enqueued), Some(ready)) => Some(enqueued - ready),
                _ => None,
            },
            queue: match (ts_run, wait.ts_enqueued) {
                (Some(run), Some(enqueued)) => Some(run - enqueued),
                _ => None,
            },
            wait: ts_ready.map(|ready| match &self.apart {
                Some(apart) if ts_run.is_none() => apart.least(until - ready),
                _ => until - ready,
            }),
            censored,
        };
        match &mut self.apart {
            Some(apart) if censored == Censored::None => {
                if let Some(doubtful) = apart.hold(row) {
                    self.judge(&doubtful, false);
                }
            }
            _ => self.enter_wait(row),
        }
    }

    fn enter_wait(&mut self, row: Wait) {
        self.counters.waits += 1;
        self.waits.push(row);
    }

    /// Rule One clock: a wait stands as measured, or what is certain of it.
    #[cold]
    fn judge(&mut self, wait: &Wait, measured: bool) {
        match &self.apart {
            Some(apart) if !measured => {
                let parts = apart.parts(wait);
                self.counters.right_censored += 1;
                parts.into_iter().for_each(|row| self.enter_wait(row));
            }
            _ => self.enter_wait(wait.clone()),
        }
    }

    /// An event of the thread, stamped by the clock of `cpu`.
    #[inline]
    fn stamped(&mut self, utid: u32, cpu: u16, t: i64) {
        if let Some(apart) = &mut self.apart
            && utid >= self.ncpu
            && let Some((wait, measured)) = apart.seen(utid, cpu, t)
        {
            self.judge(&wait, measured);
        }
    }

    /// A switch-in whose wait began out of sight.
    fn write_left_wait(&mut self, utid: u32, cpu: u16, ts: i64) {
        let thread = &self.threads[utid as usize];
        self.counters.waits += 1;
        self.waits.push(Wait {
            utid,
            cause: Cause::Unknown,
            ts_waking: None,
            ts_ready: None,
            ts_enqueued: None,
            ts_run: Some(ts),
            waker_utid: None,
            waker_cpu: None,
            prev_cpu: thread.last_cpu,
            queue_cpu: None,
            cpu: Some(cpu),
            prio: thread.prio,
            placement: None,
            queue: None,
            wait: None,
            censored: Censored::Left,
        });
    }

    /// The CPU's account up to `at`; its current thread, if known, closes its
    /// running interval there, and nobody is known afterwards.
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

    /// The CPU's current thread left it unseen, some time after it was last
    /// confirmed there.
    fn lose_current(&mut self, cpu: u16) {
        let CpuTotals {
            current, confirmed, ..
        } = self.cpus[usize::from(cpu)];
        self.release(cpu, confirmed, End::Lost);
        if current != NOBODY && current >= self.ncpu {
            self.threads[current as usize].forget();
        }
    }

    /// Rule Doubt, before an event of the thread at `t`: if it may have run unseen
    /// since its last one, it is `unknown` from the first such instant on. `stayed_on`:
    /// the CPU whose queue the event names as the one it is still on.
    #[inline]
    fn settle(&mut self, utid: u32, t: i64, stayed_on: Option<u16>) {
        if !self.holes.none_after(self.threads[utid as usize].since) {
            self.doubt(utid, t, stayed_on);
        }
    }

    /// The same before an event which proves that the thread ran, unseen, since its last one. Where
    /// the source says what it lost, it ran there. A broken chain alone does not tell where the
    /// other switches are that must be missing, too: then rule Found applies.
    #[cold]
    fn settle_found(&mut self, utid: u32, t: i64) {
        let since = self.threads[utid as usize].since;
        if self.holes.lost_from(utid, since, t).is_some() {
            self.doubt(utid, t, None);
        }
    }

    #[cold]
    fn doubt(&mut self, utid: u32, t: i64, stayed_on: Option<u16>) {
        let thread = &self.threads[utid as usize];
        let since = thread.since;
        let doubt = match (thread.state, stayed_on) {
            (State::Running | State::Unknown, _) => None,
            (State::Runnable, Some(queue))
                if thread.cpu == stayed_on
                    && self.holes.moves_recorded()
                    && thread.wait.as_ref().is_some_and(|wait| !wait.begun_before) =>
            {
                let anywhere = self.uncounted;
                self.holes.doubt_of_queued(utid, queue, since, t, anywhere)
            }
            (State::Runnable, _) => self.holes.doubt_of_runnable(utid, since, t),
            _ => self.holes.doubt_of_absent(utid, since, t),
        };
        let Some(from) = doubt else { return };
        self.close(utid, from, End::Lost);
        let thread = &mut self.threads[utid as usize];
        thread.since = from;
        thread.forget();
        if let Some(wait) = thread.wait.take() {
            let until = from.max(wait.ts_ready);
            self.write_wait(utid, &wait, None, until, Censored::Right);
        }
    }

    /// Rule Evidence: `utid` is on `cpu` at `t`. True if it was known to be.
    fn seen_on(&mut self, cpu: u16, utid: u32, t: i64) -> bool {
        let totals = &mut self.cpus[usize::from(cpu)];
        if totals.current == utid {
            totals.confirmed = t;
            return true;
        }
        let known = totals.current != NOBODY;
        if totals.silent.take().is_some() {
            self.counters.contradictions += 1;
        }
        if known {
            let totals = &self.cpus[usize::from(cpu)];
            let ts_begin = totals.confirmed;
            let found = Break {
                cpu,
                believed: totals.current,
                begin: ts_begin,
                end: t,
                switches: totals.switches,
            };
            let (believed, left) = (found.believed, self.left(found.believed));
            self.breaks.add(found, self.is_idle(believed), left);
            self.clues.broken(believed, utid);
            self.lose_current(cpu);
            self.counters.chain_breaks += 1;
            self.holes.break_chain(cpu, ts_begin, t);
            if self.holes.leaks_from(cpu, ts_begin, t).is_none() {
                self.losses.push(Loss {
                    cpu: Some(cpu),
                    ts_begin,
                    ts_end: t,
                    count: None,
                    reason: LossReason::ChainBreak,
                });
            }
        }
        if !self.is_idle(utid) {
            self.thread(utid, t);
            self.settle_found(utid, t);
            self.unseat(utid, t);
        }
        false
    }

    /// The thread is on a CPU and we did not see it get there: what we believed
    /// since its last event is not to be trusted. Its interval, now `unknown`,
    /// stays open; the event at hand closes it.
    fn unseat(&mut self, utid: u32, t: i64) {
        let thread = &mut self.threads[utid as usize];
        match (thread.state, thread.cpu) {
            (State::Unknown, _) => return,
            (State::Running, Some(cpu)) => {
                self.clues.unseen(utid);
                let since = self.cpus[usize::from(cpu)].confirmed;
                if self.losses_unreported() {
                    self.holes.break_chain(cpu, since, t);
                }
                self.lose_current(cpu);
                self.cpus[usize::from(cpu)].silent = Some(since);
                return;
            }
            _ => self.counters.unseen_switch_ins += 1,
        }
        self.lose_sight(utid);
    }

    /// What the thread, on no CPU, did since its last event is not known any more.
    fn lose_sight(&mut self, utid: u32) {
        let thread = &mut self.threads[utid as usize];
        let (wait, last_event) = (thread.wait.take(), thread.last_event);
        thread.forget();
        if let Some(wait) = wait {
            let until = last_event.max(wait.ts_ready);
            self.write_wait(utid, &wait, None, until, Censored::Right);
        }
    }

    /// Rule Evidence for an event raised on `cpu` while `utid` ran there.
    fn evidence(&mut self, cpu: u16, utid: u32, t: i64) {
        if usize::from(cpu) >= self.cpus.len() || self.seen_on(cpu, utid, t) || self.left_out(utid)
        {
            return;
        }
        self.release(cpu, t, End::Lost);
        self.cpus[usize::from(cpu)].current = utid;
        if !self.is_idle(utid) {
            self.close(utid, t, End::Switched);
            self.threads[utid as usize].run(cpu, t);
            self.holes.ran(utid, cpu);
        }
    }

    pub fn switch(&mut self, row: &Switch) {
        if usize::from(row.cpu) >= self.cpus.len() {
            return;
        }
        let t = row.ts;
        self.stamped(row.prev_utid, row.cpu, t);
        self.stamped(row.next_utid, row.cpu, t);
        if !self.is_idle(row.prev_utid) {
            let thread = self.thread(row.prev_utid, t);
            if row.prev_prio.is_some() {
                thread.prio = row.prev_prio;
            }
        }
        let chained = self.seen_on(row.cpu, row.prev_utid, t);
        let end = match row.prev_state {
            _ if self.is_idle(row.prev_utid) => End::Switched,
            State::Dead => End::Exited,
            State::Runnable => End::Preempted,
            _ => End::Switched,
        };
        self.release(row.cpu, t, end);
        if self.is_idle(row.prev_utid) {
            self.cpus[row.prev_utid as usize].idle_left += u64::from(chained);
        } else {
            if chained {
                let thread = &mut self.threads[row.prev_utid as usize];
                thread.left = thread.left.saturating_add(1);
            } else {
                self.close(row.prev_utid, t, end);
            }
            self.switch_out(row);
            self.forget_left_out(row.prev_utid);
        }
        if !self.is_idle(row.next_utid) {
            self.switch_in(row);
            self.forget_left_out(row.next_utid);
        }
        let unseen = self.left_out(row.next_utid);
        let totals = &mut self.cpus[usize::from(row.cpu)];
        totals.switches += 1;
        totals.first_ts.get_or_insert(t);
        totals.last_ts = Some(t);
        totals.current = if unseen { NOBODY } else { row.next_utid };
    }

    /// Rule Filtered: what a thread that was not chosen does from now on is not recorded.
    fn forget_left_out(&mut self, utid: u32) {
        if self.left_out(utid) {
            let thread = &mut self.threads[utid as usize];
            thread.forget();
            thread.wait = None;
        }
    }

    /// `prev` has closed its interval; what becomes of it?
    fn switch_out(&mut self, row: &Switch) {
        let t = row.ts;
        let thread = &mut self.threads[row.prev_utid as usize];
        thread.since = t;
        thread.last_event = t;
        thread.cpu = Some(row.cpu);
        thread.last_cpu = Some(row.cpu);
        let yielded = std::mem::take(&mut thread.yielded);
        thread.state = row.prev_state;
        match row.prev_state {
            State::Dead => {
                thread.born = false;
                thread.pending = None;
            }
            State::Runnable => {
                if thread.pending.take().is_some() {
                    self.counters.spurious_wakeups += 1;
                }
                let cause = if row.preempted == Some(false) || yielded {
                    Cause::Yield
                } else {
                    Cause::Preempt
                };
                thread.wait = Some(OpenWait {
                    cause,
                    ts_waking: None,
                    ts_ready: t,
                    ts_enqueued: Some(t),
                    waker: None,
                    waker_cpu: None,
                    prev_cpu: Some(row.cpu),
                    queue_cpu: Some(row.cpu),
                    begun_before: false,
                    may_be_woken: row.preempted == Some(true),
                });
            }
            // Nobody runs off a CPU; and a wake says nothing about a state
            // that is not known.
            State::Running | State::Unknown => {
                thread.state = State::Unknown;
                thread.pending = None;
            }
            _ => {}
        }
    }

    fn switch_in(&mut self, row: &Switch) {
        let (utid, t) = (row.next_utid, row.ts);
        self.counters.switch_ins += 1;
        let thread = self.thread(utid, t);
        if row.next_prio.is_some() {
            thread.prio = row.next_prio;
        }
        self.holes.ran(utid, row.cpu);
        self.settle(utid, t, Some(row.cpu));
        let thread = &self.threads[utid as usize];
        if thread.state == State::Running {
            self.unseat(utid, t);
        }
        self.found_queued(utid, Some(row.cpu));
        let thread = &mut self.threads[utid as usize];
        match thread.state {
            State::Runnable => {
                self.close(utid, t, End::Switched);
                let thread = &mut self.threads[utid as usize];
                thread.cpu = Some(row.cpu);
                if let Some(wait) = thread.wait.take() {
                    self.write_wait(utid, &wait, Some(t), t, Censored::None);
                }
            }
            State::Unknown => {
                self.counters.first_sights += 1;
                self.close(utid, t, End::Switched);
                self.write_left_wait(utid, row.cpu, t);
            }
            _ => {
                if let Some(wake) = thread.pending.take() {
                    // The wake was raised on the thread's way off its CPU.
                    let wait = thread.confirm(&wake, None);
                    thread.state = State::Runnable;
                    thread.cpu = wait.queue_cpu;
                    thread.wait = Some(wait);
                    self.counters.wakes_before_switch_out += 1;
                    self.close(utid, t, End::Switched);
                    let thread = &mut self.threads[utid as usize];
                    thread.cpu = Some(row.cpu);
                    if let Some(wait) = thread.wait.take() {
                        self.write_wait(utid, &wait, Some(t), t, Censored::None);
                    }
                } else {
                    // When its sleep ended nobody knows.
                    self.counters.missing_wakeups += 1;
                    thread.forget();
                    self.close(utid, t, End::Switched);
                    self.write_left_wait(utid, row.cpu, t);
                }
            }
        }
        self.threads[utid as usize].run(row.cpu, t);
    }

    pub fn wakeup(&mut self, row: &Wakeup) {
        self.enqueues |= row.kind == WakeKind::Enqueued;
        if let Some(current) = row.current_utid {
            self.evidence(row.cpu, current, row.ts);
        }
        if self.is_idle(row.utid) {
            return;
        }
        let (utid, t) = (row.utid, row.ts);
        self.stamped(utid, row.cpu, t);
        let left_out = self.left_out(utid);
        let thread = self.thread(utid, t);
        if row.prio.is_some() {
            thread.prio = row.prio;
        }
        if left_out {
            return;
        }
        let stayed_on = self.still_queued(utid, row);
        if let Some(target) = row.target_cpu {
            self.holes.ran(utid, target);
        }
        if self.ran_unseen(utid, row) {
            self.settle_found(utid, t);
        } else {
            self.settle(utid, t, stayed_on);
        }
        let mut awake_before = false;
        if row.kind == WakeKind::Waking && self.expects_waking {
            self.woken_elsewhere(utid, t, row.target_cpu);
            awake_before = self.woken_again(utid, t);
        } else if row.kind == WakeKind::Enqueued && self.enqueues_once {
            awake_before = self.enqueued_again(utid, t);
        } else if row.kind == WakeKind::Enqueued && self.halves_of_two(utid, t) {
            self.lose_sight(utid);
        }
        let thread = &mut self.threads[utid as usize];
        thread.last_event = t;
        match (row.kind, thread.state) {
            (WakeKind::Waking, State::Running) => {
                let newer = PendingWake {
                    ts: t,
                    waker: row.waker_utid,
                    waker_cpu: Some(row.cpu),
                    target_cpu: row.target_cpu,
                };
                if thread.pending.replace(newer).is_some() {
                    self.counters.spurious_wakeups += 1;
                }
            }
            (WakeKind::Enqueued | WakeKind::New, State::Running) => {
                let expected = thread.pending.take().is_some();
                self.late_enqueues += u64::from(self.expects_waking && !expected);
                self.counters.spurious_wakeups += 1;
            }
            (WakeKind::Waking, State::Runnable) => self.counters.spurious_wakeups += 1,
            (WakeKind::Enqueued | WakeKind::New, State::Runnable) => match &mut thread.wait {
                Some(wait) if wait.ts_enqueued.is_none() => {
                    wait.ts_enqueued = Some(t);
                    wait.queue_cpu = row.target_cpu;
                    thread.cpu = row.target_cpu;
                }
                _ => self.counters.spurious_wakeups += 1,
            },
            (WakeKind::Enqueued, _) if thread.pending.is_some() => {
                if let Some(wake) = thread.pending.take() {
                    let mut wait = thread.confirm(&wake, Some(t));
                    wait.queue_cpu = row.target_cpu;
                    thread.state = State::Runnable;
                    thread.cpu = wait.queue_cpu;
                    thread.wait = Some(wait);
                    self.counters.wakes_before_switch_out += 1;
                }
            }
            (kind, _) => {
                let spurious = thread.pending.take().is_some();
                if kind == WakeKind::Enqueued && self.expects_waking {
                    // It was awake since its `waking`, which was not seen.
                    thread.forget();
                }
                let waking = kind == WakeKind::Waking;
                let wait = OpenWait {
                    cause: if kind == WakeKind::New {
                        Cause::New
                    } else {
                        Cause::Wake
                    },
                    ts_waking: (waking && !awake_before).then_some(t),
                    ts_ready: t,
                    ts_enqueued: (!waking).then_some(t),
                    waker: row.waker_utid,
                    waker_cpu: Some(row.cpu),
                    prev_cpu: thread.last_cpu,
                    queue_cpu: row.target_cpu,
                    begun_before: awake_before || self.expects_waking && kind == WakeKind::Enqueued,
                    may_be_woken: false,
                };
                self.counters.spurious_wakeups += u64::from(spurious);
                self.close(utid, t, End::Woken);
                let thread = &mut self.threads[utid as usize];
                thread.since = t;
                thread.state = State::Runnable;
                thread.cpu = wait.queue_cpu;
                thread.wait = Some(wait);
            }
        }
    }

    /// The queue that a wake of a waiting thread shows it to be on still: its
    /// `waking` named that CPU, or a migration since, and now it is enqueued there.
    fn still_queued(&self, utid: u32, row: &Wakeup) -> Option<u16> {
        let thread = &self.threads[utid as usize];
        let on_its_way = thread.wait.as_ref()?.ts_enqueued.is_none();
        let here = row.kind == WakeKind::Enqueued && on_its_way;
        row.target_cpu.filter(|_| here)
    }

    /// Rules Woken again and Woken elsewhere: does this wake show that the thread ran, or may have,
    /// since its last event?
    fn ran_unseen(&self, utid: u32, row: &Wakeup) -> bool {
        let thread = &self.threads[utid as usize];
        match row.kind {
            WakeKind::Waking if self.expects_waking => {
                thread.wait.is_some() || self.is_elsewhere(utid, row.target_cpu)
            }
            WakeKind::Enqueued if self.enqueues_once => thread.is_queued(),
            _ => false,
        }
    }

    /// Rule Woken elsewhere: a `waking` names the CPU that the thread is on. If that is not
    /// where it was, it ran there, unseen.
    fn woken_elsewhere(&mut self, utid: u32, t: i64, target: Option<u16>) {
        if self.is_elsewhere(utid, target) {
            self.unseat(utid, t);
        }
    }

    fn is_elsewhere(&self, utid: u32, target: Option<u16>) -> bool {
        let was = self.threads[utid as usize].cpu;
        let elsewhere = was.zip(target).is_some_and(|(was, target)| was != target);
        elsewhere && self.holes.moves_recorded()
    }

    /// Rule Woken again: who waits for a CPU is awake, and a kernel that tells of
    /// every `waking` raises none for it; so it ran, unseen, and slept again. True if
    /// it may have been on its way to sleep instead, and awake ever since. Where nothing counts
    /// losses, it shows that switches of a CPU are missing, nobody knows of which.
    fn woken_again(&mut self, utid: u32, t: i64) -> bool {
        let Some(wait) = &self.threads[utid as usize].wait else {
            return false;
        };
        let may_be_woken = wait.may_be_woken;
        if may_be_woken {
            self.lose_sight(utid);
        } else {
            if self.losses_unreported() {
                let Thread { since, cpu, .. } = self.threads[utid as usize];
                let left = |utid| self.left(utid);
                let hole = cpu.is_some_and(|cpu| self.breaks.explain(cpu, since, t, left));
                if !hole {
                    self.holes.break_chains(utid, since, t);
                }
            }
            self.unseat(utid, t);
        }
        may_be_woken
    }

    /// The same without `waking`: a thread that was woken is not put on a queue once more. One that
    /// was preempted may be, if it was about to sleep and has been awake ever since: true then.
    fn enqueued_again(&mut self, utid: u32, t: i64) -> bool {
        let thread = &self.threads[utid as usize];
        if thread.was_enqueued() {
            return self.woken_again(utid, t);
        }
        let may_be_woken = thread.is_queued();
        if may_be_woken {
            self.lose_sight(utid);
        }
        may_be_woken
    }

    /// Rule Moved unseen: a waiting thread was on the queue of `queue`. If that is not the one
    /// it was put on, nobody knows when it left that, nor, where moves are recorded and losses are
    /// not counted, whether it ran meanwhile: its events are missing.
    fn found_queued(&mut self, utid: u32, queue: Option<u16>) {
        let thread = &mut self.threads[utid as usize];
        let Some(wait) = &mut thread.wait else { return };
        let moved = thread
            .cpu
            .zip(queue)
            .is_some_and(|(known, queue)| known != queue);
        if self.expects_waking && moved && wait.ts_enqueued.is_some() {
            self.counters.unseen_moves += 1;
            thread.cpu = None;
            wait.queue_cpu = None;
            if self.losses_unreported() && self.holes.moves_recorded() {
                self.lose_sight(utid);
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
                if thread
                    .wait
                    .as_ref()
                    .is_some_and(|wait| wait.ts_enqueued.is_some())
                {
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
            self.holes.lose(index, row.ts_begin, row.ts_end);
        }
        self.losses.push(row.clone());
    }

    /// Rule Taken down, at the end of the window: the thread is a CPU's stopper. If it was the
    /// last that ran there, nobody knows how long.
    pub fn stopper(&mut self, utid: u32) {
        self.breaks.stopper(utid);
        if let Some(cpu) = self.cpus.iter().position(|cpu| cpu.current == utid)
            && !self.is_idle(utid)
        {
            self.lose_current(cpu as u16);
        }
    }

    /// Rule Half a wake, at the end of the window: of the wakeup that began the thread's wait, one
    /// step is missing for so long that it does not come any more.
    fn half_woken(&self, utid: u32, end: i64) -> bool {
        let thread = &self.threads[utid as usize];
        self.expects_waking
            && self.enqueues
            && end.saturating_sub(thread.since) > HALF_A_WAKE
            && thread.wait.as_ref().is_some_and(|wait| {
                wait.cause == Cause::Wake
                    && (wait.begun_before || wait.ts_enqueued.is_none())
                    && thread.last_event == thread.since
            })
    }

    /// Rule Half a wake: the thread is enqueued at `t`, so long after its `waking` that it is not
    /// of the same wakeup.
    fn halves_of_two(&self, utid: u32, t: i64) -> bool {
        let thread = &self.threads[utid as usize];
        let waits = thread.wait.as_ref();
        let waking = match (&thread.pending, waits) {
            (Some(wake), _) if thread.state != State::Running => Some(wake.ts),
            (_, Some(wait)) if wait.ts_enqueued.is_none() => wait.ts_waking,
            _ => None,
        };
        waking.is_some_and(|waking| t.saturating_sub(waking) > HALF_A_WAKE)
    }

    /// Rule Ended early, at the end of the window: CPUs that were not heard of any more after a
    /// thread had left them unseen.
    fn end_silent_cpus(&mut self, end: i64) {
        for index in 0..self.cpus.len() {
            if let Some(since) = self.cpus[index].silent.take() {
                self.loss(&Loss {
                    cpu: Some(index as u16),
                    ts_begin: since,
                    ts_end: end,
                    count: None,
                    reason: LossReason::EarlyEnd,
                });
            }
        }
    }

    /// Closes everything that is still open at the end of the window.
    pub fn finish(&mut self, end: i64) {
        self.end_silent_cpus(end);
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
            let doubtful = unsure || self.half_woken(utid, end);
            if doubtful && self.threads[utid as usize].since < end {
                self.lose_sight(utid);
            }
            self.close(utid, end, End::Window);
            if let Some(wait) = self.threads[utid as usize].wait.take() {
                self.write_wait(utid, &wait, None, end.max(wait.ts_ready), Censored::Right);
            }
        }
        let held = self.apart.as_mut().map(|apart| apart.rest());
        for row in held.into_iter().flatten() {
            self.enter_wait(row);
        }
    }
}
