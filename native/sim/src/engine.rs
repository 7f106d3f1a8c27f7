//! The event loop: moves time, CPUs and threads, and calls the policy.
//!
//! Every event is handled to its end at its instant; then the CPUs that were
//! asked to choose again do so. Units of work are 1/1024 ns of a full-speed CPU,
//! so that slower CPUs and busy SMT siblings keep whole numbers.
use std::mem::discriminant;

use super::error::{Error, Result};
use super::heap::SlotHeap;
use super::lock::Locks;
use super::machine::{Cpu, CpuChange, CpuSet, Machine};
use super::output::Sink;
use super::pipe::Pipe;
use super::policy::{Clocks, Policy, Wake};
use super::rng::Rng;
use super::timers::Timers;
use super::workload::{Class, Step, Tid, Workload};
use super::world::{CpuState, Rank, RescheduleReason, SleepKind, State, Thread, World, tie};
use crate::prefetch::near;

/// When to stop, beside the end of the workload.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Simulated ns.
    pub until: Option<i64>,
    pub max_events: u64,
}

/// What a stretch of simulation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The budget of this call is used up; call again.
    More,
    /// Every thread has ended, or sleeps for good.
    Finished,
    /// `Limits::until` was reached.
    TimeLimit,
    EventLimit,
}

/// Counts of one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Engine events handled: bursts, timers, ticks, IPIs.
    pub events: u64,
    pub switches: u64,
    pub wakeups: u64,
    pub migrations: u64,
    pub preemptions: u64,
    pub ticks: u64,
    pub forks: u64,
    pub exits: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mailbox {
    pub(super) sent: u64,
    pub(super) taken: u64,
}

/// What the thread is blocked in, when it waits for a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) channel: u32,
    pub(super) count: u64,
}

pub struct Engine<'a> {
    pub world: World,
    pub(super) policy: Box<dyn Policy>,
    pub(super) load: &'a Workload,
    pub(super) clocks: Clocks,
    pub(super) limits: Limits,
    pub(super) counts: Counts,
    pub(super) thread_timers: Timers,
    pub(super) seq: u64,
    pub(super) boxes: Vec<Mailbox>,
    pub(super) waiting: Vec<Option<Waiting>>,
    pub(super) pipes: Vec<Pipe>,
    /// What each thread has yet to put or take in its present step; 0: all of it.
    pub(super) left: Vec<u32>,
    pub(super) locks: Locks,
    /// For each channel the sender that waits for its reader to wait.
    pub(super) meeting: Vec<Option<Tid>>,
    /// By CPU: a request to choose again came amid wakes.
    unheard: Vec<bool>,
    /// Counters of `Repeat` steps: a thread's start at `counter_base[t]`.
    pub(super) counters: Vec<u32>,
    pub(super) counter_base: Vec<u32>,
    /// Each thread's next step, a place in the workload's steps: apart from `Thread`,
    /// so that one need not have come near for the other.
    pub(super) next_step: Vec<u32>,
    /// By how much each thread read the clock later than its program says.
    pub(super) clock_shift: Vec<i64>,
    /// The first of the workload's moves between groups that is still to come.
    pub(super) next_move: usize,
    /// CPUs that go offline or come back, and the first of these that is still to come.
    changes: Vec<CpuChange>,
    next_change: usize,
    /// Threads that run, are queued, or have a timer.
    pub(super) live: u64,
    /// Events and steps since time last moved.
    pub(super) standstill: u64,
    pub(super) standstill_limit: u64,
    pub(super) smt: bool,
}

/// Steps a program may take at one instant before it is called a loop of no
/// length, beside what many threads may do at once.
const STEPS_AT_ONE_INSTANT: u64 = 1_000_000;

impl<'a> Engine<'a> {
    pub fn new(
        load: &'a Workload,
        machine: Machine,
        policy: Box<dyn Policy>,
        sink: Box<dyn Sink>,
        seed: u64,
        limits: Limits,
        recording: bool,
    ) -> Result<Self> {
        load.check(machine.ncpu())?;
        if limits.until.is_none()
            && let Some(t) = load.endless()
        {
            return Err(Error::usage(
                format!(
                    "thread {t} ({:?}) repeats for ever and no time limit is given",
                    load.threads[t as usize].name
                ),
                "an end: that of all threads, or a time limit",
                "give a time limit: --stop-at 10s, in Python until=\"10s\"",
            ));
        }
        let ncpu = machine.ncpu();
        let n = load.threads.len();
        let threads = load
            .threads
            .iter()
            .map(|spec| {
                let mask = &load.masks[spec.mask as usize];
                let home = spec
                    .cpu
                    .filter(|c| (*c as usize) < ncpu && mask.contains(*c));
                Thread {
                    state: State::Unborn,
                    class: spec.class,
                    nice: spec.nice,
                    rt_prio: spec.rt_prio,
                    cpu: home.or_else(|| mask.iter().next()).unwrap_or(0),
                    last_cpu: home,
                    last_ran: 0,
                    since: 0,
                    slept: 0,
                    sleep_kind: SleepKind::Interruptible,
                    mask: spec.mask,
                    work: 0,
                    owed: 0,
                    first: spec.first,
                    end: spec.first + spec.len,
                    yielding: false,
                }
            })
            .collect();
        let cpus = machine
            .cpus()
            .map(|c| CpuState::idle(i64::from(machine.info(c).capacity)))
            .collect();
        let mut counter_base = Vec::with_capacity(n);
        let mut counters = 0u64;
        for t in 0..n as Tid {
            counter_base.push(counters as u32);
            counters += load
                .program(t)
                .iter()
                .map(|s| match s {
                    Step::Repeat { counter, .. } => u64::from(*counter) + 1,
                    _ => 0,
                })
                .max()
                .unwrap_or(0);
        }
        let smt = machine.costs.smt_speed_permille < 1000;
        let changes = machine.changes();
        let world = World {
            now: 0,
            threads,
            parents: vec![None; n],
            cpus,
            whole: load.masks.iter().map(|m| m.len() == ncpu).collect(),
            unbound: load.masks.iter().map(|m| m.len() == ncpu).collect(),
            masks: load.masks.clone(),
            groups: load.groups.clone(),
            group_of: if load.groups.is_empty() {
                Vec::new()
            } else {
                load.threads.iter().map(|t| t.group).collect()
            },
            slices: if load.threads.iter().all(|t| t.slice.is_none()) {
                Vec::new()
            } else {
                load.threads.iter().map(|t| t.slice).collect()
            },
            pasts: if load.threads.iter().all(|t| t.past.is_none()) {
                Vec::new()
            } else {
                load.threads.iter().map(|t| t.past).collect()
            },
            reservations: (load.threads.iter().zip(0..))
                .filter(|(spec, _)| spec.class == Class::Deadline)
                .map(|(spec, t)| (t, spec.reservation))
                .collect(),
            idle: CpuSet::all(ncpu),
            n_idle: ncpu,
            n_online: ncpu,
            machine,
            rng: Rng::new(seed),
            n_runnable: 0,
            sink,
            recording,
            cpu_events: SlotHeap::with_slots(4 * ncpu + 2),
            pending: std::collections::VecDeque::with_capacity(ncpu),
            here: None,
            sent: None,
            n_migrations: 0,
            fault: None,
        };
        let clocks = policy.clocks();
        let mut engine = Self {
            world,
            policy,
            load,
            clocks,
            limits,
            counts: Counts::default(),
            thread_timers: Timers::new(n),
            seq: 0,
            boxes: vec![Mailbox::default(); load.channels.len()],
            waiting: vec![None; n],
            pipes: load.pipes.iter().map(Pipe::new).collect(),
            left: vec![0; if load.pipes.is_empty() { 0 } else { n }],
            locks: Locks::default(),
            meeting: vec![None; load.channels.len()],
            unheard: vec![false; ncpu],
            counters: vec![0; counters as usize],
            counter_base,
            next_step: load.threads.iter().map(|spec| spec.first).collect(),
            clock_shift: vec![0; n],
            next_move: 0,
            changes,
            next_change: 0,
            live: 0,
            standstill: 0,
            standstill_limit: STEPS_AT_ONE_INSTANT + 64 * n as u64,
            smt,
        };
        engine.policy.init(&mut engine.world);
        while (engine.changes.get(engine.next_change)).is_some_and(|change| change.at <= 0) {
            engine.change_a_cpu();
        }
        engine.arm_change();
        for (t, spec) in load.threads.iter().enumerate() {
            if let Some(at) = spec.start {
                engine.live += 1;
                engine.arm_thread(t as Tid, at);
            }
        }
        if engine.policy.shares_by_groups() {
            engine.arm_move();
        }
        if clocks.idle_ticks {
            for c in engine.world.machine.cpus() {
                engine.arm_clocks(c);
            }
        }
        Ok(engine)
    }

    pub fn counts(&self) -> Counts {
        Counts {
            migrations: self.world.n_migrations,
            ..self.counts
        }
    }

    pub fn into_sink(self) -> Box<dyn Sink> {
        self.world.sink
    }

    /// The number of each thread's priority as the policy shows it.
    pub fn prios(&self) -> Vec<i16> {
        (0..self.load.threads.len() as Tid)
            .map(|t| self.policy.prio(&self.world, t))
            .collect()
    }

    /// Handle up to `budget` events.
    pub fn run(&mut self, budget: u64) -> Result<Progress> {
        for _ in 0..budget {
            if self.counts.events >= self.limits.max_events {
                return Ok(Progress::EventLimit);
            }
            if self.live == 0 {
                return self.ended();
            }
            self.expect_timers();
            let cpu_next = self.world.cpu_events.peek();
            let thread_next = self.thread_timers.peek();
            let (at, from_thread, slot) = match (cpu_next, thread_next) {
                (Some((k, s)), Some((tk, ts))) => {
                    if tk < k {
                        (tk.0, true, ts)
                    } else {
                        (k.0, false, s)
                    }
                }
                (Some((k, s)), None) => (k.0, false, s),
                (None, Some((tk, ts))) => (tk.0, true, ts),
                (None, None) => return self.ended(),
            };
            if self.limits.until.is_some_and(|u| at >= u) {
                self.world.now = self.limits.until.unwrap_or(at);
                return Ok(Progress::TimeLimit);
            }
            if at > self.world.now {
                self.world.now = at;
                self.standstill = 0;
            }
            self.counts.events += 1;
            self.standstill += 1;
            if from_thread {
                self.thread_timers.pop();
                self.thread_event(slot);
            } else {
                self.cpu_event(slot);
            }
            if let Some(c) = self.world.here {
                self.finish_here(c);
            }
            self.settle_pending();
            self.world.here = None;
            if self.standstill > self.standstill_limit && self.world.fault.is_none() {
                self.world.fault = Some(self.no_progress());
            }
            if let Some(e) = self.world.fault.take() {
                return Err(e);
            }
        }
        match self.world.sink.failure() {
            Some(e) => Err(e),
            None => Ok(Progress::More),
        }
    }

    pub(super) fn ended(&self) -> Result<Progress> {
        let name = |t: usize| format!("{t} ({:?})", self.load.threads[t].name);
        let left: Vec<String> = (0..self.world.threads.len())
            .filter(|t| self.world.threads[*t].state == State::Queued)
            .map(name)
            .collect();
        if !left.is_empty() {
            let threads = if left.len() == 1 { "thread" } else { "threads" };
            return Err(Error::usage(
                format!(
                    "at {} ns no event is left, and the policy still has {} {threads} queued: {}",
                    self.world.now,
                    left.len(),
                    list(&left, 5)
                ),
                "pick_next to find every queued thread in the end",
                "correct the queues of your policy",
            ));
        }
        let mut blocked = self.blocked();
        if self.limits.until.is_none() {
            // With an end, a reader of a pipe sleeps there to the end, as in a recording.
            blocked.extend(self.in_pipes());
            blocked.extend(self.in_locks());
        }
        if blocked.is_empty() {
            return Ok(Progress::Finished);
        }
        Err(Error::usage(
            format!(
                "deadlock at {} ns: {} for what no thread will do: {}",
                self.world.now,
                waits(blocked.len()),
                list(&blocked, 5)
            ),
            "a sender for every signal, and a release of every mutex, that a thread waits for",
            "check the steps of the threads named; a thread that may wait for ever ends in a `park` step",
        ))
    }

    /// The threads that wait for a signal now, each with what it waits for.
    pub fn blocked(&self) -> Vec<String> {
        let name = |t: Tid| format!("{t} ({:?})", self.load.threads[t as usize].name);
        let meeting = self
            .meeting
            .iter()
            .enumerate()
            .filter_map(|(channel, sender)| {
                let to = self.load.channels[channel].to;
                Some(format!(
                    "{} for {} to wait for its signal",
                    name((*sender)?),
                    name(to)
                ))
            });
        (0..self.load.threads.len() as Tid)
            .filter_map(|t| {
                let wait = self.waiting[t as usize]?;
                let channel = self.load.channels[wait.channel as usize];
                let sent = self.boxes[wait.channel as usize].sent;
                let which = match wait.count {
                    0 => "its next signal".to_string(),
                    k => format!("signal {k} (of which {sent} came)"),
                };
                let from = channel
                    .from
                    .map_or(String::new(), |f| format!(" from {}", name(f)));
                Some(format!("{} for {which}{from}", name(t)))
            })
            .chain(meeting)
            .collect()
    }

    /// Threads that were never forked.
    pub fn unborn(&self) -> usize {
        let of = |t: &&Thread| t.state == State::Unborn;
        self.world.threads.iter().filter(of).count()
    }

    pub(super) fn no_progress(&self) -> Error {
        let mut at: Vec<String> = self
            .world
            .cpus
            .iter()
            .filter_map(|c| c.curr)
            .map(|t| {
                let spec = &self.load.threads[t as usize];
                format!(
                    "{t} ({:?}) at step {}",
                    spec.name,
                    self.next_step[t as usize] - spec.first
                )
            })
            .collect();
        at.truncate(6);
        Error::usage(
            format!(
                "simulated time stopped at {} ns: {} steps and events in a row took no time; running: {}",
                self.world.now,
                self.standstill,
                list(&at, 5)
            ),
            "a `run` or `sleep` longer than 0 in every loop of steps",
            "give the loop a `run` step",
        )
    }

    // ---- events -----------------------------------------------------------

    pub(super) fn thread_event(&mut self, t: Tid) {
        match self.world.threads[t as usize].state {
            State::Unborn => {
                let mut cpu = self.world.threads[t as usize].cpu;
                if !self.world.is_online(cpu) {
                    cpu = self.world.mask(t).iter().next().unwrap_or(cpu);
                    self.world.threads[t as usize].cpu = cpu;
                }
                self.world.here = Some(cpu);
                self.live -= 1;
                if !(self.load.threads[t as usize].asleep && self.appear_asleep(t)) {
                    self.start(t, None, cpu);
                }
            }
            State::Sleeping => {
                // A timer fires on the CPU that armed it, and an interrupt comes on one CPU wherever
                // its thread runs. Of one that is offline, the first that is online has the timers
                // (hrtimers_cpu_dying, kernel/time/hrtimer.c).
                let spec = &self.load.threads[t as usize];
                let home = spec.cpu.filter(|c| {
                    spec.class == Class::Interrupt && usize::from(*c) < self.world.cpus.len()
                });
                let mut cpu = home.unwrap_or(self.world.threads[t as usize].cpu);
                if !self.world.is_online(cpu) {
                    cpu = self.world.machine.online().iter().next().unwrap_or(cpu);
                }
                self.world.here = Some(cpu);
                self.live -= 1;
                let wake = Wake {
                    waker: None,
                    cpu,
                    sync: false,
                };
                self.wake(t, wake);
            }
            State::Running | State::Queued | State::Dead => {}
        }
    }

    pub(super) fn cpu_event(&mut self, slot: u32) {
        let n = self.world.cpus.len() as u32;
        let (kind, c) = (slot / n, (slot % n) as Cpu);
        if kind >= 4 {
            self.world.cpu_events.disarm(slot);
            match slot.checked_sub(self.world.change_slot() + 1) {
                Some(id) => self.policy.timer(&mut self.world, id),
                None if slot == self.world.change_slot() => {
                    self.change_a_cpu();
                    self.arm_change();
                }
                None => self.move_a_thread(),
            }
            return;
        }
        self.world.here = Some(c);
        match kind {
            0 => {
                self.world.cpu_events.disarm(slot);
                self.settle(c);
                if !self.is_about_to_choose(c) {
                    self.advance(c);
                }
            }
            1 | 2 => {
                let hz = if kind == 1 {
                    self.clocks.stathz
                } else {
                    self.clocks.hz
                };
                if self.world.cpus[c as usize].curr.is_none() && !self.clocks.idle_ticks {
                    // The clock of an idle CPU stops when it next would tick.
                    self.world.cpu_events.disarm(slot);
                    return;
                }
                self.arm_clock(c, kind, hz);
                if !self.world.is_online(c) {
                    return;
                }
                self.counts.ticks += 1;
                let cost = self.world.machine.costs.tick_ns;
                if cost > 0 && kind == 2 && self.world.cpus[c as usize].curr.is_some() {
                    self.owe(c, cost);
                }
                if kind == 1 {
                    self.policy.stat_tick(&mut self.world, c);
                } else {
                    self.policy.tick(&mut self.world, c);
                }
            }
            _ => {
                self.world.cpu_events.disarm(slot);
                if self.world.cpus[c as usize].resched.is_some() {
                    self.world.pending.push_back(c);
                }
            }
        }
    }

    /// Whether the thread on `c` is to be preempted on its way out of the kernel, before it gets to
    /// its next call through a pipe or lock: the flag that a request sets is looked at on every
    /// such way, whichever CPU set it (exit_to_user_mode_loop of kernel/entry/common.c), and an
    /// interrupt that signals it stops the thread where it is.
    fn is_about_to_choose(&self, c: Cpu) -> bool {
        let slot = 3 * self.world.cpus.len() as u32 + u32::from(c);
        let cpu = &self.world.cpus[c as usize];
        let (Some(t), Some(_)) = (cpu.curr, cpu.resched) else {
            return false;
        };
        let next = self.next_step[t as usize];
        next < self.world.threads[t as usize].end
            && matches!(
                self.load.steps[next as usize],
                Step::Put { .. }
                    | Step::Take { .. }
                    | Step::Lock { .. }
                    | Step::Unlock { .. }
                    | Step::Post { .. }
                    | Step::Serve { .. }
            )
            && self.world.cpu_events.is_armed(slot)
    }

    /// Whether the thread on `c` is amid wakes of one call, as of all that sleep for an end of a
    /// pipe: less time passes between two of them than half of what one takes. The kernel holds the
    /// lock of the queue that they sleep in (`__wake_up_common_lock` of kernel/sched/wait.c), so
    /// that no request to choose again is heard before the last of them.
    fn is_amid_wakes(&self, c: Cpu) -> bool {
        let Some(t) = self.world.cpus[c as usize].curr else {
            return false;
        };
        let th = &self.world.threads[t as usize];
        let (first, end) = (th.first as usize, th.end as usize);
        let next = self.next_step[t as usize] as usize;
        // Its last step was the former wake, or the time between them.
        [1, 2].into_iter().any(|back| {
            let Some(from) = next.checked_sub(back).filter(|from| *from >= first) else {
                return false;
            };
            match self.load.steps[from..end] {
                [
                    Step::Signal { cost, .. },
                    Step::Run(ns),
                    Step::Signal { .. },
                    ..,
                ] => 2 * ns <= i64::from(cost),
                _ => false,
            }
        })
    }

    /// A request that was not heard amid wakes is made again after the last of them.
    pub(super) fn hears(&mut self, c: Cpu) {
        if self.unheard[c as usize] && !self.is_amid_wakes(c) {
            self.unheard[c as usize] = false;
            if let Some(why) = self.world.cpus[c as usize].resched.take() {
                self.world.resched(c, why);
            }
        }
    }

    pub(super) fn settle_pending(&mut self) {
        while let Some(c) = self.world.pending.pop_front() {
            if let Some(why) = self.world.cpus[c as usize].resched {
                if self.is_amid_wakes(c) {
                    self.unheard[c as usize] = true;
                    continue;
                }
                self.standstill += 1;
                if self.standstill > self.standstill_limit || self.world.fault.is_some() {
                    return;
                }
                self.world.here = Some(c);
                self.choose_again(c, why);
                self.finish_here(c);
            }
        }
    }

    /// For policies that want it: all that `c` does at this instant and takes no time.
    fn finish_here(&mut self, c: Cpu) {
        if !self.policy.steps_before_ipis() {
            return;
        }
        while self.standstill <= self.standstill_limit && self.world.fault.is_none() {
            self.standstill += 1;
            let cpu = &self.world.cpus[c as usize];
            if let Some(why) = cpu.resched
                && !self.is_amid_wakes(c)
            {
                if !self.world.pending.contains(&c) {
                    // It has yet to arrive.
                    return;
                }
                self.choose_again(c, why);
                continue;
            }
            let Some(t) = cpu.curr else { return };
            let th = &self.world.threads[t as usize];
            if th.work > 0 || th.owed > 0 {
                return;
            }
            self.advance(c);
        }
    }

    /// Brings near what the threads need whose timers have come near.
    fn expect_timers(&mut self) {
        for (_, t) in self.thread_timers.approach() {
            let step = self.next_step[*t as usize] as usize;
            let op = |at: usize| self.load.steps.get(at).map(discriminant);
            near(self.world.threads[*t as usize].state);
            // It ends its burst with one step, and the next may be its next burst.
            near((op(step), op(step + 1)));
            self.policy.prefetch(*t);
            self.world.sink.prefetch(*t);
        }
    }

    pub(super) fn arm_thread(&mut self, t: Tid, at: i64) {
        self.seq += 1;
        self.thread_timers
            .arm(t, (at, tie(Rank::ThreadTimer, self.seq)));
    }

    /// The appointment of the next move between groups, if there is one.
    fn arm_move(&mut self) {
        if let Some(one) = self.load.moves.get(self.next_move) {
            let key = (one.at, tie(Rank::GroupMove, self.next_move as u64));
            self.world.cpu_events.arm(self.world.move_slot(), key);
        }
    }

    /// The appointment of the next CPU that goes offline or comes back, if there is one.
    fn arm_change(&mut self) {
        if let Some(one) = self.changes.get(self.next_change) {
            let key = (one.at, tie(Rank::CpuChange, self.next_change as u64));
            self.world.cpu_events.arm(self.world.change_slot(), key);
        }
    }

    /// A CPU goes offline or comes back.
    fn change_a_cpu(&mut self) {
        let CpuChange { cpu, online, .. } = self.changes[self.next_change];
        self.next_change += 1;
        self.world.set_online(&self.load.masks, cpu, online);
        self.policy.online_changed(&mut self.world);
        self.clear_forbidden_cpus();
        self.world.sink.online(self.world.now, cpu, online);
        if online {
            // It looks for something to run.
            self.world.resched(cpu, RescheduleReason::Preempted);
        }
    }

    /// A thread goes to another group.
    fn move_a_thread(&mut self) {
        let one = self.load.moves[self.next_move];
        self.next_move += 1;
        self.change_group(one.thread, one.group);
        self.arm_move();
    }

    pub(super) fn arm_clocks(&mut self, c: Cpu) {
        let n = self.world.cpus.len() as u32;
        if self.clocks.stathz > 0 && !self.world.cpu_events.is_armed(n + u32::from(c)) {
            self.arm_clock(c, 1, self.clocks.stathz);
        }
        if self.clocks.hz > 0 && !self.world.cpu_events.is_armed(2 * n + u32::from(c)) {
            self.arm_clock(c, 2, self.clocks.hz);
        }
    }

    /// Of the grid k / hz + phase + skew the tick that is `more` behind the last one until `at`.
    fn clock_tick(&self, c: Cpu, hz: u32, at: i64, more: i128) -> i64 {
        let hz = i128::from(hz);
        let skew = i128::from(self.clocks.skew_ns) * i128::from(c)
            + i128::from(self.world.machine.costs.tick_phase_ns);
        let k = ((i128::from(at) - skew) * hz).div_euclid(1_000_000_000) + more;
        // Rounded up, so that it is the last one until `at` also where a period is no whole ns.
        ((k * 1_000_000_000 + hz - 1).div_euclid(hz) + skew) as i64
    }

    /// When a timer that counts ticks, set on `c` to `ns` from now, goes off.
    pub(super) fn at_tick(&self, c: Cpu, ns: i64) -> i64 {
        let (now, hz) = (self.world.now, self.clocks.hz);
        if hz == 0 {
            return now + ns;
        }
        let last = self.clock_tick(c, hz, now + ns, 0);
        last.max(self.clock_tick(c, hz, now, 1))
    }

    /// The next tick after now.
    pub(super) fn arm_clock(&mut self, c: Cpu, kind: u32, hz: u32) {
        let n = self.world.cpus.len() as u32;
        let at = self.clock_tick(c, hz, self.world.now, 1);
        let rank = if kind == 1 {
            Rank::StatTick
        } else {
            Rank::Tick
        };
        self.world
            .cpu_events
            .arm(kind * n + u32::from(c), (at, tie(rank, u64::from(c))));
    }
}

fn waits(n: usize) -> String {
    if n == 1 {
        "1 thread waits".into()
    } else {
        format!("{n} threads wait")
    }
}

fn list(items: &[String], most: usize) -> String {
    let shown = items.iter().take(most).cloned().collect::<Vec<_>>();
    let more = items.len().saturating_sub(most);
    let tail = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{}{tail}", shown.join("; "))
}
