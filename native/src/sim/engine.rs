//! The event loop: moves time, CPUs and threads, and calls the policy.
//!
//! Every event is handled to its end at its instant; then the CPUs that were
//! asked to choose again do so. Units of work are 1/1024 ns of a full-speed CPU,
//! so that slower CPUs and busy SMT siblings keep whole numbers.
use super::error::{Result, Error};
use super::heap::SlotHeap;
use super::machine::CpuSet;
use super::machine::{Cpu, Distance, Machine};
use super::output::{LeftAs, Sink, Switch, WakeStep, Wakeup};
use super::policy::{Clocks, How, Left, Place, Policy, Wake};
use super::rng::Rng;
use super::workload::{Class, INBOX, SELF, Step, Tid, Workload};
use super::world::{CpuState, Rank, SleepKind, State, Thread, Why, World, tie};

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
struct Mailbox {
    sent: u64,
    taken: u64,
}

/// What the thread is blocked in, when it waits for a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waiting {
    channel: u32,
    count: u64,
}

pub struct Engine<'a> {
    pub world: World,
    policy: Box<dyn Policy>,
    load: &'a Workload,
    clocks: Clocks,
    limits: Limits,
    counts: Counts,
    thread_timers: SlotHeap,
    seq: u64,
    boxes: Vec<Mailbox>,
    waiting: Vec<Option<Waiting>>,
    /// For each channel the sender that waits for its reader to wait.
    meeting: Vec<Option<Tid>>,
    /// Counters of `Repeat` steps: a thread's start at `counter_base[t]`.
    counters: Vec<u32>,
    counter_base: Vec<u32>,
    /// Threads that run, are queued, or have a timer.
    live: u64,
    /// Events and steps since time last moved.
    standstill: u64,
    standstill_limit: u64,
    smt: bool,
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
                "give a time limit: until=\"10s\"",
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
                    parent: None,
                    ran: 0,
                    mask: spec.mask,
                    work: 0,
                    owed: 0,
                    pc: 0,
                    yielding: false,
                }
            })
            .collect();
        let cpus = machine
            .cpus()
            .map(|c| CpuState {
                curr: None,
                picked_at: 0,
                nr_queued: 0,
                idle_since: 0,
                resched: None,
                charged_at: 0,
                settled_at: 0,
                rate: i64::from(machine.info(c).capacity),
            })
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
        let world = World {
            now: 0,
            threads,
            cpus,
            whole: load.masks.iter().map(|m| m.len() == ncpu).collect(),
            masks: load.masks.clone(),
            idle: CpuSet::all(ncpu),
            n_idle: ncpu,
            machine,
            rng: Rng::new(seed),
            n_runnable: 0,
            sink,
            recording,
            cpu_events: SlotHeap::with_slots(4 * ncpu),
            pending: std::collections::VecDeque::with_capacity(ncpu),
            here: None,
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
            thread_timers: SlotHeap::with_slots(n),
            seq: 0,
            boxes: vec![Mailbox::default(); load.channels.len()],
            waiting: vec![None; n],
            meeting: vec![None; load.channels.len()],
            counters: vec![0; counters as usize],
            counter_base,
            live: 0,
            standstill: 0,
            standstill_limit: STEPS_AT_ONE_INSTANT + 64 * n as u64,
            smt,
        };
        engine.policy.init(&mut engine.world);
        for (t, spec) in load.threads.iter().enumerate() {
            if let Some(at) = spec.start {
                engine.live += 1;
                engine.arm_thread(t as Tid, at);
            }
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
                self.thread_timers.disarm(slot);
                self.thread_event(slot);
            } else {
                self.cpu_event(slot);
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

    fn ended(&self) -> Result<Progress> {
        let blocked = self.blocked();
        if blocked.is_empty() {
            return Ok(Progress::Finished);
        }
        Err(Error::usage(
            format!(
                "at {} ns nothing can run any more, and {} for a signal that nobody will send: {}",
                self.world.now,
                waits(blocked.len()),
                list(&blocked, 5)
            ),
            "a sender for every signal that a thread waits for",
            "check the signal steps of the threads named; a thread that may wait for ever ends in a `park` step",
        ))
    }

    /// The threads that wait for a signal now, each with what it waits for.
    pub fn blocked(&self) -> Vec<String> {
        let name = |t: Tid| format!("{t} ({:?})", self.load.threads[t as usize].name);
        let meeting = self.meeting.iter().enumerate().filter_map(|(channel, sender)| {
            let to = self.load.channels[channel].to;
            Some(format!("{} for {} to wait for its signal", name((*sender)?), name(to)))
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

    /// Threads that never started: nobody forked them.
    pub fn unborn(&self) -> usize {
        let of = |t: &&Thread| t.state == State::Unborn;
        self.world.threads.iter().filter(of).count()
    }

    fn no_progress(&self) -> Error {
        let mut at: Vec<String> = self
            .world
            .cpus
            .iter()
            .filter_map(|c| c.curr)
            .map(|t| {
                let th = &self.world.threads[t as usize];
                let name = &self.load.threads[t as usize].name;
                format!("{t} ({name:?}) at step {}", th.pc)
            })
            .collect();
        at.truncate(6);
        Error::usage(
            format!(
                "time stands still at {} ns: {} steps and events without any time used; running: {}",
                self.world.now,
                self.standstill,
                list(&at, 5)
            ),
            "a `run` or `sleep` longer than 0 in every loop of steps",
            "give the loop a `run` step",
        )
    }

    // ---- events -----------------------------------------------------------

    fn thread_event(&mut self, t: Tid) {
        match self.world.threads[t as usize].state {
            State::Unborn => {
                let cpu = self.world.threads[t as usize].cpu;
                self.world.here = Some(cpu);
                self.live -= 1;
                if !(self.load.threads[t as usize].asleep && self.appear_asleep(t)) {
                    self.start(t, None, cpu);
                }
            }
            State::Sleeping => {
                // A timer fires on the CPU that armed it.
                let cpu = self.world.threads[t as usize].cpu;
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

    fn cpu_event(&mut self, slot: u32) {
        let n = self.world.cpus.len() as u32;
        let (kind, c) = (slot / n, (slot % n) as Cpu);
        if kind >= 4 {
            self.world.cpu_events.disarm(slot);
            self.policy.timer(&mut self.world, slot - 4 * n);
            return;
        }
        self.world.here = Some(c);
        match kind {
            0 => {
                self.world.cpu_events.disarm(slot);
                self.settle(c);
                self.advance(c);
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
                self.counts.ticks += 1;
                self.arm_clock(c, kind, hz);
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

    fn settle_pending(&mut self) {
        while let Some(c) = self.world.pending.pop_front() {
            if let Some(why) = self.world.cpus[c as usize].resched {
                self.standstill += 1;
                if self.standstill > self.standstill_limit || self.world.fault.is_some() {
                    return;
                }
                self.world.here = Some(c);
                self.choose_again(c, why);
            }
        }
    }

    fn arm_thread(&mut self, t: Tid, at: i64) {
        self.seq += 1;
        self.thread_timers
            .arm(t, (at, tie(Rank::ThreadTimer, self.seq)));
    }

    fn arm_clocks(&mut self, c: Cpu) {
        let n = self.world.cpus.len() as u32;
        if self.clocks.stathz > 0 && !self.world.cpu_events.is_armed(n + u32::from(c)) {
            self.arm_clock(c, 1, self.clocks.stathz);
        }
        if self.clocks.hz > 0 && !self.world.cpu_events.is_armed(2 * n + u32::from(c)) {
            self.arm_clock(c, 2, self.clocks.hz);
        }
    }

    /// The next tick after now on the grid k / hz + skew.
    fn arm_clock(&mut self, c: Cpu, kind: u32, hz: u32) {
        let n = self.world.cpus.len() as u32;
        let skew = i128::from(self.clocks.skew_ns) * i128::from(c);
        let hz = i128::from(hz);
        let since = i128::from(self.world.now) - skew;
        // ceil(k * 1e9 / hz) is the instant of tick k.
        let mut k = (since * hz).div_euclid(1_000_000_000) + 1;
        let instant = |k: i128| (k * 1_000_000_000 + hz - 1).div_euclid(hz);
        while instant(k) <= since {
            k += 1;
        }
        let at = (instant(k) + skew) as i64;
        let rank = if kind == 1 {
            Rank::StatTick
        } else {
            Rank::Tick
        };
        self.world
            .cpu_events
            .arm(kind * n + u32::from(c), (at, tie(rank, u64::from(c))));
    }

    // ---- the running thread -------------------------------------------------

    /// Bring the progress of the thread on `c` up to now.
    fn settle(&mut self, c: Cpu) {
        let now = self.world.now;
        let cpu = &mut self.world.cpus[c as usize];
        let Some(t) = cpu.curr else { return };
        let elapsed = now - cpu.settled_at;
        cpu.settled_at = now;
        let th = &mut self.world.threads[t as usize];
        th.ran += elapsed;
        let paid = elapsed.min(th.owed);
        th.owed -= paid;
        th.work = (th.work - (elapsed - paid) * cpu.rate).max(0);
    }

    fn owe(&mut self, c: Cpu, ns: i64) {
        self.settle(c);
        if let Some(t) = self.world.cpus[c as usize].curr {
            self.world.threads[t as usize].owed += ns;
            self.arm_completion(c);
        }
    }

    fn arm_completion(&mut self, c: Cpu) {
        let cpu = &self.world.cpus[c as usize];
        let Some(t) = cpu.curr else { return };
        let th = &self.world.threads[t as usize];
        let at = cpu.settled_at + th.owed + (th.work + cpu.rate - 1) / cpu.rate;
        self.world
            .cpu_events
            .arm(u32::from(c), (at, tie(Rank::Completion, u64::from(c))));
    }

    /// The speed of `c` now, in work units per ns.
    fn speed(&self, c: Cpu) -> i64 {
        let m = &self.world.machine;
        let full = i64::from(m.info(c).capacity);
        let shared = m
            .smt(c)
            .iter()
            .any(|s| *s != c && self.world.cpus[*s as usize].curr.is_some());
        if shared {
            (full * m.costs.smt_speed_permille / 1000).max(1)
        } else {
            full
        }
    }

    /// `c` began or ceased to run something: its siblings' speed changes.
    fn siblings_changed(&mut self, c: Cpu) {
        for i in 0..self.world.machine.smt(c).len() {
            let s = self.world.machine.smt(c)[i];
            if s == c || self.world.cpus[s as usize].curr.is_none() {
                continue;
            }
            let rate = self.speed(s);
            if rate != self.world.cpus[s as usize].rate {
                self.settle(s);
                self.world.cpus[s as usize].rate = rate;
                self.arm_completion(s);
            }
        }
    }

    // ---- programs -------------------------------------------------------------

    /// If the next step is a `run`, begin it: saves an event of no length.
    fn fetch_run(&mut self, t: Tid) {
        let spec = &self.load.threads[t as usize];
        let th = &mut self.world.threads[t as usize];
        if th.work == 0
            && th.pc < spec.len
            && let Step::Run(ns) = self.load.steps[(spec.first + th.pc) as usize]
        {
            th.work = ns * 1024;
            th.pc += 1;
        }
    }

    /// The burst of the thread on `c` is over: take its next steps.
    fn advance(&mut self, c: Cpu) {
        let Some(t) = self.world.cpus[c as usize].curr else {
            return;
        };
        let spec = &self.load.threads[t as usize];
        let (first, len) = (spec.first, spec.len);
        loop {
            self.standstill += 1;
            if self.standstill > self.standstill_limit {
                return;
            }
            let now = self.world.now;
            let th = &mut self.world.threads[t as usize];
            if th.pc >= len {
                self.exit(c, t);
                return;
            }
            let step = self.load.steps[(first + th.pc) as usize];
            th.pc += 1;
            match step {
                Step::Run(ns) => {
                    th.work = ns * 1024;
                    if ns > 0 {
                        break;
                    }
                }
                Step::Sleep { ns, disk } => {
                    if ns > 0 {
                        self.live += 1;
                        self.arm_thread(t, now + ns);
                        self.block(c, t, disk);
                        return;
                    }
                }
                Step::WaitUntil(at) => {
                    if at > now {
                        self.live += 1;
                        self.arm_thread(t, at);
                        self.block(c, t, false);
                        return;
                    }
                }
                Step::WaitFor {
                    channel,
                    count,
                    disk,
                } => {
                    let channel = match channel {
                        INBOX => self.load.inboxes[t as usize],
                        named => named,
                    };
                    let wait = Waiting { channel, count };
                    if !self.receive(wait) {
                        self.waiting[t as usize] = Some(wait);
                        if let Some(sender) = self.meeting[channel as usize].take() {
                            let wake = Wake {
                                waker: Some(t),
                                cpu: c,
                                sync: true,
                            };
                            self.wake(sender, wake);
                        }
                        self.block(c, t, disk);
                        return;
                    }
                }
                Step::Signal {
                    to,
                    pair,
                    sync,
                    meet,
                } => {
                    if meet && self.waiting[to as usize].is_none_or(|w| w.channel != pair) {
                        // It sends when its reader has come to wait for it.
                        self.world.threads[t as usize].pc -= 1;
                        self.meeting[pair as usize] = Some(t);
                        self.block(c, t, false);
                        return;
                    }
                    self.signal(c, t, to, pair, sync);
                }
                Step::Fork(child) => {
                    if self.world.threads[child as usize].state == State::Unborn {
                        self.start(child, Some(t), c);
                    } else {
                        self.fail_fork(t, child);
                        return;
                    }
                }
                Step::Yield => {
                    self.world.threads[t as usize].yielding = true;
                    self.world.resched(c, Why::Yielded);
                }
                Step::SetPriority {
                    of,
                    class,
                    nice,
                    rt_prio,
                } => {
                    self.set_priority(if of == SELF { t } else { of }, class, nice, rt_prio);
                }
                Step::SetAffinity { of, mask } => {
                    self.set_affinity(if of == SELF { t } else { of }, mask);
                    if self.world.cpus[c as usize].curr != Some(t) {
                        return;
                    }
                }
                Step::Repeat { to, times, counter } => {
                    let at = self.counter_base[t as usize] as usize + counter as usize;
                    let done = &mut self.counters[at];
                    match times {
                        Some(n) if *done >= n => *done = 0,
                        _ => {
                            // An endless loop may go round more often than u32 counts.
                            *done = done.saturating_add(u32::from(times.is_some()));
                            th.pc = to;
                        }
                    }
                }
                Step::Park => {
                    self.block(c, t, false);
                    return;
                }
                Step::Exit => {
                    self.exit(c, t);
                    return;
                }
            }
            if self.world.cpus[c as usize].resched.is_some() {
                // It will be put back with its next step still to come.
                self.fetch_run(t);
                break;
            }
        }
        self.arm_completion(c);
    }

    fn fail_fork(&mut self, t: Tid, child: Tid) {
        let name = |t: Tid| self.load.threads[t as usize].name.clone();
        self.world.fault = Some(Error::usage(
            format!(
                "thread {t} ({:?}) forks thread {child} ({:?}), which has already started",
                name(t),
                name(child)
            ),
            "one fork for each thread",
            "give each fork its own thread; a fork in a loop runs only once",
        ));
    }

    fn receive(&mut self, wait: Waiting) -> bool {
        let mailbox = &mut self.boxes[wait.channel as usize];
        if wait.count == 0 {
            let any = mailbox.sent > mailbox.taken;
            mailbox.taken += u64::from(any);
            any
        } else {
            let there = mailbox.sent >= wait.count;
            if there {
                mailbox.taken = mailbox.taken.max(wait.count);
            }
            there
        }
    }

    fn signal(&mut self, c: Cpu, from: Tid, to: Tid, pair: u32, sync: bool) {
        let inbox = self.load.inboxes.get(to as usize).copied();
        for channel in [Some(pair), inbox].into_iter().flatten() {
            if let Some(mailbox) = self.boxes.get_mut(channel as usize) {
                mailbox.sent += 1;
            }
        }
        if let Some(wait) = self.waiting[to as usize]
            && self.receive(wait)
        {
            self.waiting[to as usize] = None;
            let wake = Wake {
                waker: Some(from),
                cpu: c,
                sync,
            };
            self.wake(to, wake);
        }
    }

    // ---- changes of state -----------------------------------------------------

    /// `t` is in its first sleep or wait when it appears; false if that step is
    /// over at once, or none.
    fn appear_asleep(&mut self, t: Tid) -> bool {
        let now = self.world.now;
        let (until, wait, disk) = match self.load.program(t).first() {
            Some(Step::Sleep { ns, disk }) if *ns > 0 => (Some(now + ns), None, *disk),
            Some(Step::WaitUntil(at)) if *at > now => (Some(*at), None, false),
            Some(Step::WaitFor { channel, count, disk }) => {
                let channel = match *channel {
                    INBOX => self.load.inboxes[t as usize],
                    named => named,
                };
                let wait = Waiting {
                    channel,
                    count: *count,
                };
                if self.receive(wait) {
                    self.world.threads[t as usize].pc = 1;
                    return false;
                }
                (None, Some(wait), *disk)
            }
            Some(Step::Park) => (None, None, false),
            _ => return false,
        };
        self.counts.forks += 1;
        self.world.sink.start(now, t, None);
        self.policy.on_fork(&mut self.world, None, t);
        let th = &mut self.world.threads[t as usize];
        th.pc = 1;
        th.state = State::Sleeping;
        th.since = now;
        if disk {
            th.sleep_kind = SleepKind::Disk;
        }
        self.waiting[t as usize] = wait;
        if let Some(at) = until {
            self.live += 1;
            self.arm_thread(t, at);
        }
        self.fetch_run(t);
        true
    }

    fn start(&mut self, t: Tid, parent: Option<Tid>, cpu: Cpu) {
        self.counts.forks += 1;
        self.live += 1;
        let now = self.world.now;
        self.world.sink.start(now, t, parent);
        let th = &mut self.world.threads[t as usize];
        th.parent = parent;
        th.since = now;
        // A child begins where its parent is, if it may.
        let home = th.cpu;
        if parent.is_some() && self.world.allowed(t, cpu) {
            self.world.threads[t as usize].cpu = cpu;
        } else {
            self.world.threads[t as usize].cpu = home;
        }
        self.fetch_run(t);
        self.policy.on_fork(&mut self.world, parent, t);
        let wake = Wake {
            waker: parent,
            cpu,
            sync: false,
        };
        self.place(t, Place::Fork(wake), How::New, wake);
    }

    fn wake(&mut self, t: Tid, wake: Wake) {
        self.counts.wakeups += 1;
        self.live += 1;
        let now = self.world.now;
        let prio = self.policy.prio(&self.world, t);
        let row = Wakeup {
            ts: now,
            cpu: wake.cpu,
            waker: wake.waker,
            thread: t,
            step: WakeStep::Waking,
            target: None,
            prio,
        };
        self.world.sink.wakeup(row);
        let th = &mut self.world.threads[t as usize];
        th.slept = now - th.since;
        self.place(t, Place::Wake(wake), How::Wakeup, wake);
    }

    /// Choose a CPU for `t`, which is in no queue, and queue it there.
    fn place(&mut self, t: Tid, place: Place, how: How, wake: Wake) {
        let to = self.policy.select_cpu(&mut self.world, t, place);
        if (to as usize) >= self.world.cpus.len() || !self.world.allowed(t, to) {
            self.broken(format!("placed thread {t} on CPU {to}, outside its mask"));
            return;
        }
        let now = self.world.now;
        let from = self.world.threads[t as usize].cpu;
        if from != to && how != How::New {
            self.world.note_migration(t, from, to);
        }
        let th = &mut self.world.threads[t as usize];
        th.cpu = to;
        th.state = State::Queued;
        th.since = now;
        self.world.n_runnable += 1;
        self.world.count_queued(to);
        self.policy.enqueue(&mut self.world, to, t, how);
        if how != How::Moved {
            let prio = self.policy.prio(&self.world, t);
            let step = if how == How::New {
                WakeStep::New
            } else {
                WakeStep::Enqueued
            };
            self.world.sink.wakeup(Wakeup {
                ts: now,
                cpu: wake.cpu,
                waker: wake.waker,
                thread: t,
                step,
                target: Some(to),
                prio,
            });
        }
        if self.world.cpus[to as usize].curr.is_none() {
            self.world.resched(to, Why::Preempted);
        } else {
            self.policy.check_preempt(&mut self.world, to, t, wake);
        }
    }

    fn block(&mut self, c: Cpu, t: Tid, disk: bool) {
        let now = self.world.now;
        let th = &mut self.world.threads[t as usize];
        th.state = State::Sleeping;
        th.since = now;
        th.sleep_kind = if disk {
            SleepKind::Disk
        } else {
            SleepKind::Interruptible
        };
        self.live -= 1;
        self.fetch_run(t);
        let left_as = if disk { LeftAs::Disk } else { LeftAs::Sleeping };
        self.leave(c, t, Left::Blocked, left_as);
    }

    fn exit(&mut self, c: Cpu, t: Tid) {
        let now = self.world.now;
        let th = &mut self.world.threads[t as usize];
        th.state = State::Dead;
        th.since = now;
        self.live -= 1;
        self.counts.exits += 1;
        self.world.sink.exit(now, t);
        self.leave(c, t, Left::Exited, LeftAs::Dead);
    }

    /// `t` goes off `c` and is no longer runnable here; `c` chooses another.
    fn leave(&mut self, c: Cpu, t: Tid, left: Left, left_as: LeftAs) {
        self.world.n_runnable -= 1;
        self.policy.put_prev(&mut self.world, c, t, left);
        self.off_cpu(c, t);
        self.world.cpus[c as usize].resched = None;
        self.dispatch(c, Some(t), left_as);
    }

    fn off_cpu(&mut self, c: Cpu, t: Tid) {
        let th = &mut self.world.threads[t as usize];
        th.last_cpu = Some(c);
        th.last_ran = self.world.now;
        self.world.cpus[c as usize].curr = None;
    }

    fn choose_again(&mut self, c: Cpu, why: Why) {
        self.world.cpus[c as usize].resched = None;
        let Some(t) = self.world.cpus[c as usize].curr else {
            self.dispatch(c, None, LeftAs::Idle);
            return;
        };
        self.settle(c);
        let th = &mut self.world.threads[t as usize];
        let yielded = std::mem::take(&mut th.yielding);
        th.state = State::Queued;
        let left = match why {
            Why::Yielded => Left::Yielded,
            Why::SliceEnd => Left::SliceEnd,
            Why::Preempted => Left::Preempted,
        };
        self.policy.put_prev(&mut self.world, c, t, left);
        self.off_cpu(c, t);
        self.world.count_queued(c);
        let left_as = if yielded {
            LeftAs::Yielded
        } else {
            LeftAs::Preempted
        };
        self.dispatch(c, Some(t), left_as);
    }

    /// `c` runs nothing: take the policy's next thread.
    fn dispatch(&mut self, c: Cpu, prev: Option<Tid>, left_as: LeftAs) {
        let mut next = self.policy.pick_next(&mut self.world, c);
        if next.is_none() {
            next = self.policy.on_idle(&mut self.world, c);
        }
        // Choosing has answered any request made meanwhile for this CPU.
        self.world.cpus[c as usize].resched = None;
        let now = self.world.now;
        let stayed = left_as == LeftAs::Preempted || left_as == LeftAs::Yielded;
        if let Some(n) = next {
            let th = &self.world.threads[n as usize];
            if th.state != State::Queued || !self.world.allowed(n, c) {
                let state = th.state;
                self.broken(format!("picked thread {n} ({state:?}) on CPU {c}"));
                return;
            }
            let at = th.cpu;
            if at != c {
                self.world.note_migration(n, at, c);
            }
            self.world.uncount_queued(at);
        }
        let same = stayed && next == prev;
        if !same {
            self.note_switch(c, prev, left_as, next);
        }
        if stayed && !same {
            self.counts.preemptions += u64::from(left_as == LeftAs::Preempted);
            if let Some(p) = prev {
                self.world.threads[p as usize].since = now;
            }
        }
        match next {
            Some(n) => self.begin(c, n, same),
            None => {
                self.world.cpus[c as usize].idle_since = now;
                self.world.cpu_events.disarm(u32::from(c));
                self.world.mark_idle_if_so(c);
            }
        }
        if self.smt && (prev.is_some() != next.is_some()) {
            self.siblings_changed(c);
        }
    }

    fn begin(&mut self, c: Cpu, n: Tid, same: bool) {
        let now = self.world.now;
        let rate = if self.smt {
            self.speed(c)
        } else {
            self.world.cpus[c as usize].rate
        };
        let cpu = &mut self.world.cpus[c as usize];
        cpu.curr = Some(n);
        cpu.rate = rate;
        cpu.picked_at = now;
        cpu.charged_at = now;
        cpu.settled_at = now;
        let costs = &self.world.machine.costs;
        let th = &mut self.world.threads[n as usize];
        if !same {
            th.owed += costs.switch_ns;
            if let Some(last) = th.last_cpu {
                th.owed += match self.world.machine.distance(last, c) {
                    Distance::Same => 0,
                    Distance::Smt => costs.migration_ns[0],
                    Distance::Llc => costs.migration_ns[1],
                    Distance::Package => costs.migration_ns[2],
                    Distance::Numa => costs.migration_ns[3],
                };
            }
            th.since = now;
        }
        th.state = State::Running;
        th.cpu = c;
        self.world.mark_busy(c);
        self.arm_completion(c);
        self.arm_clocks(c);
    }

    fn note_switch(&mut self, c: Cpu, prev: Option<Tid>, left_as: LeftAs, next: Option<Tid>) {
        if prev.is_none() && next.is_none() {
            return;
        }
        self.counts.switches += 1;
        let prio = |t: Option<Tid>| t.map_or(120, |t| self.policy.prio(&self.world, t));
        let row = Switch {
            ts: self.world.now,
            cpu: c,
            prev,
            left_as,
            prev_prio: prio(prev),
            next,
            next_prio: prio(next),
        };
        self.world.sink.switch(row);
    }

    fn set_priority(&mut self, of: Tid, class: Class, nice: i8, rt_prio: u8) {
        let th = &mut self.world.threads[of as usize];
        th.class = class;
        th.nice = nice;
        th.rt_prio = rt_prio;
        if matches!(th.state, State::Unborn | State::Dead) {
            return;
        }
        self.policy.set_priority(&mut self.world, of);
        let (now, prio) = (self.world.now, self.policy.prio(&self.world, of));
        self.world.sink.priority(now, of, prio);
    }

    fn set_affinity(&mut self, of: Tid, mask: u32) {
        let (state, at) = {
            let th = &self.world.threads[of as usize];
            (th.state, th.cpu)
        };
        let stays = self.load.masks[mask as usize].contains(at);
        let wake = Wake {
            waker: None,
            cpu: self.world.here.unwrap_or(at),
            sync: false,
        };
        match state {
            State::Queued => {
                // Out and in again: queues may be kept by mask.
                self.policy.dequeue(&mut self.world, at, of);
                self.world.n_runnable -= 1;
                self.world.uncount_queued(at);
                self.world.threads[of as usize].mask = mask;
                if stays {
                    self.world.n_runnable += 1;
                    self.world.count_queued(at);
                    self.policy.enqueue(&mut self.world, at, of, How::Moved);
                    self.policy.affinity_changed(&mut self.world, of);
                } else {
                    self.place(of, Place::Moved, How::Moved, wake);
                }
            }
            State::Running if !stays => {
                self.settle(at);
                self.world.n_runnable -= 1;
                self.policy.put_prev(&mut self.world, at, of, Left::Moved);
                self.off_cpu(at, of);
                self.world.cpus[at as usize].resched = None;
                let th = &mut self.world.threads[of as usize];
                th.mask = mask;
                th.yielding = false;
                self.fetch_run(of);
                // It leaves its CPU before it enters another's queue.
                self.dispatch(at, Some(of), LeftAs::Preempted);
                self.place(of, Place::Moved, How::Moved, wake);
            }
            State::Running | State::Sleeping | State::Unborn | State::Dead => {
                let th = &mut self.world.threads[of as usize];
                th.mask = mask;
                if !stays && state == State::Unborn {
                    th.cpu = self.load.masks[mask as usize].iter().next().unwrap_or(0);
                }
                if matches!(state, State::Running | State::Sleeping) {
                    self.policy.affinity_changed(&mut self.world, of);
                }
            }
        }
    }

    /// A policy broke its contract: a bug in it, told as such.
    fn broken(&mut self, what: String) {
        if self.world.fault.is_none() {
            self.world.fault = Some(Error::usage(
                format!("at {} ns the policy {what}", self.world.now),
                "queued threads, placed and picked inside their masks",
                "this is a bug in the policy: please report it with the workload, or correct your own policy",
            ));
        }
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
