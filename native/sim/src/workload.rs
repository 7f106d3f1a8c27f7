//! What runs: threads and the programs they go through.
use super::error::{Error, Result};
use super::machine::CpuSet;

/// A simulated thread, 0 being the workload's first.
pub type Tid = u32;

/// One step of a program. Times are ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Use this much CPU time (of a full-speed CPU).
    Run(i64),
    /// Sleep this long. `disk`: uninterruptible, as waiting for a device does.
    Sleep {
        ns: i64,
        disk: bool,
    },
    /// Sleep until the last clock tick within this time, or else the next one, as on a timer that
    /// counts ticks (kernel/time/timer.c); for this time where the policy has no ticks.
    SleepTicks(i64),
    /// Sleep until this instant; nothing if it has passed.
    WaitUntil(i64),
    /// Read the clock, from which the thread counts the instants until which it sleeps later on:
    /// they move by as much as it is later than this now, or earlier.
    ReadClock(i64),
    /// Wait until `channel` has carried its `count`-th signal (from 1), or, with
    /// count 0, one signal that this thread has not yet taken. `cost`: CPU time of
    /// going to sleep and coming back, used only if it does sleep.
    WaitFor {
        channel: u32,
        count: u32,
        cost: u32,
        disk: bool,
    },
    /// Send one signal along each of `pair` and `inbox` and wake their reader
    /// if that is what it waits for. `sync`: the sender is about to sleep.
    /// `meet`: the sender first waits until the reader waits for it on `pair`, unless
    /// the reader does the same to it: a signal does not really wait for anyone.
    /// `cost`: CPU time that raising the wake takes, used only if one is raised.
    Signal {
        to: Tid,
        pair: u32,
        cost: u32,
        sync: bool,
        meet: bool,
    },
    /// Put `amount` into a pipe, first sleeping while it is full, and wake a reader
    /// that sleeps there. `cost`: CPU time that raising the wake takes, used only
    /// if one is raised.
    Put {
        pipe: u32,
        amount: u32,
        cost: u32,
        sync: bool,
    },
    /// Take `amount` out of a pipe, sleeping whenever it is empty. `cost`: CPU time
    /// of going to sleep and coming back, used only if it does sleep.
    Take {
        pipe: u32,
        amount: u32,
        cost: u32,
        disk: bool,
    },
    /// Take a mutex, sleeping while another thread has it. `cost`: CPU time of going to
    /// sleep and coming back, used each time that it does sleep.
    Lock {
        mutex: u32,
        cost: u32,
    },
    /// Release a mutex and wake the first that sleeps for it. `cost`: CPU time that
    /// raising the wake takes, used only if one is raised.
    Unlock {
        mutex: u32,
        cost: u32,
    },
    /// Release a mutex, sleep until the condition is signalled, and take the mutex again.
    CondWait {
        condition: u32,
        mutex: u32,
        cost: u32,
    },
    /// Wake the first thread that waits on a condition, or all.
    CondSignal {
        condition: u32,
        all: bool,
        cost: u32,
    },
    /// Sleep until `count` threads have come here, this one among them.
    Barrier {
        barrier: u32,
        count: u32,
        cost: u32,
    },
    /// Put a job into a queue and wake the first that sleeps there. `job`: an index into
    /// `Workload::jobs`, or `NO_JOB`. `cost`: CPU time that raising the wake takes, used only
    /// if one is raised.
    Post {
        queue: u32,
        job: u32,
        cost: u32,
    },
    /// Take the first job out of a queue and do it, sleeping while there is none. `cost`: CPU
    /// time of going to sleep and coming back, used each time that it does sleep.
    Serve {
        queue: u32,
        cost: u32,
    },
    /// Start a thread that has no start time of its own.
    Fork(Tid),
    /// Give up the CPU but stay runnable.
    Yield,
    /// Change the priority of `of`.
    SetPriority {
        of: Tid,
        class: Class,
        nice: i8,
        rt_prio: u8,
    },
    /// Change the CPUs that `of` may use; an index into `Workload::masks`.
    SetAffinity {
        of: Tid,
        mask: u32,
    },
    /// Jump back to step `to` `times` more times; without end if `None`.
    Repeat {
        to: u32,
        times: Option<u32>,
        counter: u16,
    },
    /// Sleep to the end of the simulation; what a trace that ends leaves behind.
    Park,
    Exit,
}

// Programs lie in memory step by step, and a step of each is a likely cache miss.
const _: () = assert!(size_of::<Step>() == 16);

/// In place of a thread: the one that takes the step.
pub const SELF: Tid = u32::MAX;

/// In place of a channel: the inbox of the thread that takes the step, so that
/// threads may share a program.
pub const INBOX: u32 = u32::MAX - 1;

/// No channel: no thread waits for the signal by its sender.
pub const NO_CHANNEL: u32 = u32::MAX;

/// In place of a job: nothing to do, the next step follows.
pub const NO_JOB: u32 = u32::MAX;

/// Scheduling class, strictest first. `Batch` is fair without wake preemption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// SCHED_DEADLINE; where a policy has none, SCHED_FIFO of its `rt_prio`.
    Deadline,
    /// An interrupt thread of FreeBSD; elsewhere SCHED_FIFO of its `rt_prio`.
    Interrupt,
    /// A kernel thread of FreeBSD, which keeps its priority; elsewhere SCHED_FIFO of its `rt_prio`.
    Kernel,
    Fifo,
    RoundRobin,
    Fair,
    Batch,
    Idle,
}

impl Class {
    /// Strict order between classes: a lower level always runs first.
    pub fn level(self) -> u8 {
        match self {
            Class::Deadline
            | Class::Interrupt
            | Class::Kernel
            | Class::Fifo
            | Class::RoundRobin => 0,
            Class::Fair | Class::Batch => 1,
            Class::Idle => 2,
        }
    }

    /// Whether its threads run until they sleep or something better comes.
    pub fn runs_on(self) -> bool {
        matches!(
            self,
            Class::Deadline | Class::Interrupt | Class::Kernel | Class::Fifo
        )
    }

    pub fn is_realtime(self) -> bool {
        self.level() == 0
    }
}

/// CPU time within a deadline, once in each period (sched_attr of SCHED_DEADLINE), ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    pub runtime: i64,
    pub deadline: i64,
    pub period: i64,
}

impl Reservation {
    /// As `sched_setattr` demands it.
    pub fn is_valid(self) -> bool {
        0 < self.runtime
            && self.runtime <= self.deadline
            && self.deadline <= self.period
            && self.period < MAX_TIME
    }
}

/// What a thread had done before it starts, all in ns, of which schedulers that remember make its
/// first priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Past {
    /// CPU time in the last 10 s.
    pub used: i64,
    /// CPU time and sleep in the last seconds, those of ended children included in the former.
    pub ran: i64,
    pub slept: i64,
    /// CPU time charged and not yet forgotten.
    pub charged: i64,
}

#[derive(Debug, Clone)]
pub struct ThreadSpec {
    pub name: String,
    /// Thread and process number to show in the output; made up when `None`.
    pub tid: Option<i64>,
    pub pid: Option<i64>,
    pub class: Class,
    /// -20..=19; counts for `Fair` and `Batch`.
    pub nice: i8,
    /// 1..=99, higher is better (as in sched_setscheduler); counts for real time.
    pub rt_prio: u8,
    /// Index into `Workload::masks`.
    pub mask: u32,
    /// When it becomes runnable; `None` for one that another thread forks.
    pub start: Option<i64>,
    /// It is asleep when it appears: its first step, a sleep or wait, takes no CPU.
    pub asleep: bool,
    /// CPU it is on when it starts, for a trace that begins with it there.
    pub cpu: Option<u16>,
    /// Index into `Workload::groups`; `None` for one in no group.
    pub group: Option<u32>,
    /// A slice of its own, ns (sched_attr.sched_runtime of a fair thread).
    pub slice: Option<i64>,
    /// What SCHED_DEADLINE gives it, if that is known; counts for `Deadline`.
    pub reservation: Option<Reservation>,
    /// What it had done before; `None`: nothing, as far as is known. A thread that another forks
    /// has what its parent has then.
    pub past: Option<Past>,
    /// CPU time after which it is on its way out of the kernel, ns: Linux's `PF_EXITING`.
    pub exits_after: Option<i64>,
    /// Its program: `steps[first..first + len]`, which threads may share.
    pub first: u32,
    pub len: u32,
}

impl ThreadSpec {
    /// A fair thread of nice 0, allowed the CPUs of the first mask, that starts at 0.
    pub fn fair(name: impl Into<String>, first: u32, len: u32) -> Self {
        Self {
            name: name.into(),
            tid: None,
            pid: None,
            class: Class::Fair,
            nice: 0,
            rt_prio: 0,
            mask: 0,
            start: Some(0),
            asleep: false,
            cpu: None,
            group: None,
            slice: None,
            reservation: None,
            past: None,
            exits_after: None,
            first,
            len,
        }
    }
}

/// A channel carries signals to one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channel {
    pub to: Tid,
    /// The sender it listens to; `None` hears everyone.
    pub from: Option<Tid>,
}

/// A pipe, a socket, a queue: what writers put into it whichever reader comes takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipeSpec {
    /// What it holds; a writer whose amount does not fit sleeps, unless it is empty.
    pub capacity: u64,
    /// Sleeping writers are woken once it holds no more than this.
    pub low: u64,
    /// What is in it at the beginning.
    pub filled: u64,
    /// Of a pipe: its content lies in pages of this many bytes; room is what whole free
    /// pages hold, and the rest of the last. 0: whatever is free is room, as in a socket.
    pub page: u64,
}

/// A control group: its threads share what it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSpec {
    pub name: String,
    /// The group that it lies in, which stands before it.
    pub parent: Option<u32>,
    /// Its weight beside threads and groups in its parent: 1024 is a thread's of nice 0.
    pub shares: i64,
    pub quota: Option<Quota>,
}

/// CPU time that a group may use in each period, all CPUs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub ns: i64,
    pub period: i64,
    /// When a period begins: at this instant and whole periods from it.
    pub phase: i64,
}

/// A thread moves to another control group, whichever thread moved it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupMove {
    /// The instant, ns.
    pub at: i64,
    pub thread: Tid,
    /// Index into `Workload::groups`; `None`: into none.
    pub group: Option<u32>,
}

#[derive(Debug, Clone, Default)]
pub struct Workload {
    pub pipes: Vec<PipeSpec>,
    pub groups: Vec<GroupSpec>,
    /// In order of time.
    pub moves: Vec<GroupMove>,
    pub threads: Vec<ThreadSpec>,
    pub steps: Vec<Step>,
    /// Of each job its steps: the first, and how many.
    pub jobs: Vec<(u32, u32)>,
    pub masks: Vec<CpuSet>,
    pub channels: Vec<Channel>,
    /// For each thread the channel that hears everyone, or `NO_CHANNEL`.
    pub inboxes: Vec<u32>,
}

impl Workload {
    pub fn program(&self, t: Tid) -> &[Step] {
        let spec = &self.threads[t as usize];
        &self.steps[spec.first as usize..(spec.first + spec.len) as usize]
    }

    /// Whether some thread's program has no end: it loops forever, and no queue that it serves on
    /// the way will hold it up one day.
    pub fn endless(&self) -> Option<Tid> {
        let endless = |s: &Step| matches!(s, Step::Repeat { times: None, .. });
        let any = self.steps.iter().any(endless);
        if !any {
            return None;
        }
        let serves = |s: &Step| matches!(s, Step::Serve { .. });
        (0..self.threads.len() as Tid).find(|t| {
            let steps = self.program(*t);
            steps.iter().enumerate().any(|(at, step)| match step {
                Step::Repeat {
                    to, times: None, ..
                } => !steps
                    .get(*to as usize..at)
                    .is_some_and(|l| l.iter().any(serves)),
                _ => false,
            })
        })
    }

    /// Refuse what cannot run: bad references, empty masks, times out of range.
    pub fn check(&self, ncpu: usize) -> Result<()> {
        let n = self.threads.len();
        if n == 0 {
            return Err(Error::usage(
                "a workload without threads",
                "at least one thread",
                "was it extracted from a trace in which nothing ran?",
            ));
        }
        if n >= u32::MAX as usize - super::machine::MAX_CPUS {
            return Err(Error::usage(
                format!("a workload of {n} threads"),
                "thread numbers of 32 bits",
                "simulate fewer threads",
            ));
        }
        for (t, spec) in self.threads.iter().enumerate() {
            let who = || self.who(t as Tid);
            let mask = self.masks.get(spec.mask as usize);
            if mask.is_none_or(CpuSet::is_empty) {
                return Err(Error::usage(
                    format!("{} may run on none of the {ncpu} CPUs", who()),
                    "at least one CPU in the mask of each thread",
                    "widen its `cpus`, or simulate a machine that has them",
                ));
            }
            if !(-20..=19).contains(&spec.nice)
                || (spec.class.is_realtime() && !(1..=99).contains(&spec.rt_prio))
            {
                return Err(Error::usage(
                    format!(
                        "{} has nice {} and real-time priority {}",
                        who(),
                        spec.nice,
                        spec.rt_prio
                    ),
                    "nice from -20 to 19, and a real-time priority from 1 to 99 of `fifo` and `rr`",
                    "correct the thread's priority",
                ));
            }
            if spec.start.is_some_and(|s| !(0..MAX_TIME).contains(&s)) {
                return Err(bad_time(&who(), None));
            }
            if spec.slice.is_some_and(|s| !SLICES.contains(&s)) {
                return Err(Error::usage(
                    format!("{} has a slice of {} ns", who(), spec.slice.unwrap_or(0)),
                    "a slice from 100 us to 100 ms",
                    "correct the thread's slice",
                ));
            }
            if spec.reservation.is_some_and(|r| !r.is_valid()) {
                return Err(Error::usage(
                    format!("{} has {:?}", who(), spec.reservation),
                    "a runtime above 0 that is no longer than the deadline, and that no longer than the period",
                    "correct the thread's dl_runtime, dl_deadline and dl_period",
                ));
            }
            if let Some(past) = spec.past
                && [past.used, past.ran, past.slept, past.charged]
                    .iter()
                    .any(|ns| !(0..MAX_TIME).contains(ns))
            {
                return Err(Error::usage(
                    format!("{} has {past:?}", who()),
                    "times from 0 on",
                    "correct the thread's past_used, past_run, past_sleep and past_charged",
                ));
            }
            if spec.group.is_some_and(|g| g as usize >= self.groups.len()) {
                return Err(Error::usage(
                    format!("{} is in a group that is not there", who()),
                    "a group of the workload",
                    "list the group",
                ));
            }
            for (i, step) in self.program(t as Tid).iter().enumerate() {
                self.check_step(t as Tid, i, step)?;
            }
        }
        self.check_jobs()?;
        self.check_groups()?;
        self.check_moves()
    }

    /// Any thread may do a job: its steps cannot depend on who that is.
    fn check_jobs(&self) -> Result<()> {
        for (j, (first, len)) in self.jobs.iter().enumerate() {
            for (at, step) in self.steps[*first as usize..(*first + *len) as usize]
                .iter()
                .enumerate()
            {
                if matches!(step, Step::WaitFor { .. } | Step::Repeat { .. }) {
                    return Err(Error::usage(
                        format!(
                            "job {j}, step {at}: {}",
                            if matches!(step, Step::Repeat { .. }) {
                                "a `repeat`"
                            } else {
                                "a `wait_for`"
                            }
                        ),
                        "no `repeat` and no `wait_for` in a job, which any thread may do",
                        "write repeated steps out; wait for a queue, a pipe or a condition",
                    ));
                }
                self.check_step(SELF, at, step)?;
            }
        }
        Ok(())
    }

    fn check_moves(&self) -> Result<()> {
        let wrong = |i: usize, found: &str, expected: &str| {
            Err(Error::usage(
                format!("move {i} between groups {found}"),
                expected,
                "help(schedscope.workload) lists what moves have",
            ))
        };
        for (i, one) in self.moves.iter().enumerate() {
            let n = self.groups.len();
            if !(0..MAX_TIME).contains(&one.at) {
                return wrong(i, "has a time out of range", "ns in 0..2^52");
            }
            if one.thread as usize >= self.threads.len() {
                return wrong(i, "names no thread", "a thread of the workload");
            }
            if one.group.is_some_and(|g| g as usize >= n) {
                return wrong(i, "names no group", "a group of the workload");
            }
            if i > 0 && self.moves[i - 1].at > one.at {
                return wrong(i, "is before the one above it", "moves in order of time");
            }
        }
        Ok(())
    }

    fn check_groups(&self) -> Result<()> {
        for (g, spec) in self.groups.iter().enumerate() {
            let wrong = |found: String, expected: &str| {
                Err(Error::usage(
                    format!("group {:?} has {found}", spec.name),
                    expected,
                    "help(schedscope.workload) lists what groups have",
                ))
            };
            if spec.parent.is_some_and(|p| p as usize >= g) {
                return wrong("a parent that comes later".into(), "an earlier one");
            }
            if !(2..=MAX_SHARES).contains(&spec.shares) {
                return wrong(format!("{} shares", spec.shares), "shares from 2 to 262144");
            }
            let Some(quota) = spec.quota else { continue };
            if !(1_000_000..=1_000_000_000).contains(&quota.period) {
                return wrong(
                    format!("a period of {} ns", quota.period),
                    "a period from 1 ms to 1 s",
                );
            }
            if !(1_000_000..MAX_TIME).contains(&quota.ns) {
                return wrong(
                    format!("a quota of {} ns", quota.ns),
                    "a quota from 1 ms on",
                );
            }
            if !(0..quota.period).contains(&quota.phase) {
                return wrong(
                    format!("a phase of {} ns", quota.phase),
                    "a phase within the period",
                );
            }
        }
        Ok(())
    }

    fn who(&self, t: Tid) -> String {
        if t == SELF {
            return "a job".into();
        }
        format!("thread {t} ({:?})", self.threads[t as usize].name)
    }

    fn check_step(&self, t: Tid, at: usize, step: &Step) -> Result<()> {
        let n = self.threads.len() as u32;
        let good = match *step {
            Step::Run(ns)
            | Step::Sleep { ns, .. }
            | Step::SleepTicks(ns)
            | Step::WaitUntil(ns)
            | Step::ReadClock(ns) => {
                if !(0..MAX_TIME).contains(&ns) {
                    return Err(bad_time(&self.who(t), Some(at)));
                }
                true
            }
            Step::Signal { to, pair, meet, .. } => {
                to < n
                    && (if pair == NO_CHANNEL {
                        !meet
                    } else {
                        (pair as usize) < self.channels.len()
                    })
            }
            Step::WaitFor { channel: INBOX, .. } => self
                .inboxes
                .get(t as usize)
                .is_some_and(|i| *i != NO_CHANNEL),
            Step::WaitFor { channel, .. } => (channel as usize) < self.channels.len(),
            Step::Put { pipe, amount, .. } | Step::Take { pipe, amount, .. } => {
                (pipe as usize) < self.pipes.len() && amount > 0
            }
            Step::Lock { mutex, .. } | Step::Unlock { mutex, .. } => mutex < MAX_LOCKS,
            Step::CondWait {
                condition, mutex, ..
            } => condition < MAX_LOCKS && mutex < MAX_LOCKS,
            Step::CondSignal { condition, .. } => condition < MAX_LOCKS,
            Step::Barrier { barrier, count, .. } => barrier < MAX_LOCKS && count > 0,
            Step::Serve { queue, .. } => queue < MAX_LOCKS,
            Step::Post { queue, job, .. } => {
                queue < MAX_LOCKS && (job == NO_JOB || (job as usize) < self.jobs.len())
            }
            Step::Fork(t) => t < n && self.threads[t as usize].start.is_none(),
            Step::SetPriority {
                of,
                nice,
                class,
                rt_prio,
            } => {
                (of < n || of == SELF)
                    && (-20..=19).contains(&nice)
                    && (!class.is_realtime() || (1..=99).contains(&rt_prio))
            }
            Step::SetAffinity { of, mask } => {
                (of < n || of == SELF)
                    && self.masks.get(mask as usize).is_some_and(|m| !m.is_empty())
            }
            Step::Repeat { to, .. } => (to as usize) <= at,
            Step::Yield | Step::Park | Step::Exit => true,
        };
        if good {
            return Ok(());
        }
        let (found, expected) = fault_of(step, n);
        Err(Error::usage(
            format!("{}, step {at}: {found}", self.who(t)),
            expected,
            "correct the step",
        ))
    }
}

/// What is wrong with a step of a workload of `n` threads, and what would be right.
fn fault_of(step: &Step, n: u32) -> (String, &'static str) {
    const A_THREAD: &str = "the number of a thread of the workload";
    let unknown = |t: Tid| t >= n && t != SELF;
    match *step {
        Step::Signal { to: t, .. }
        | Step::Fork(t)
        | Step::SetPriority { of: t, .. }
        | Step::SetAffinity { of: t, .. }
            if unknown(t) =>
        {
            (format!("it names thread {t}, of {n} there are"), A_THREAD)
        }
        Step::Fork(t) => (
            format!("it forks thread {t}, which has a start time"),
            "a thread without a start time",
        ),
        Step::SetPriority { nice, rt_prio, .. } => (
            format!("it sets nice {nice} and real-time priority {rt_prio}"),
            "nice from -20 to 19, and a real-time priority from 1 to 99 of `fifo` and `rr`",
        ),
        Step::SetAffinity { .. } => (
            "it sets a mask without any CPU of the machine".to_string(),
            "at least one CPU that the machine has",
        ),
        Step::Repeat { to, .. } => (
            format!("it goes back to step {to}, which comes later"),
            "an earlier step",
        ),
        Step::Put { pipe, amount, .. } | Step::Take { pipe, amount, .. } => (
            format!("it moves {amount} through pipe {pipe}"),
            "a pipe of the workload, and an amount above 0",
        ),
        Step::Barrier { count: 0, .. } => (
            "its barrier is for 0 threads".to_string(),
            "as many threads as come to the barrier",
        ),
        Step::Lock { .. }
        | Step::Unlock { .. }
        | Step::CondWait { .. }
        | Step::CondSignal { .. }
        | Step::Barrier { .. }
        | Step::Serve { .. }
        | Step::Post { .. } => (
            format!("its mutex, condition, barrier or queue has a number of {MAX_LOCKS} or more"),
            "numbers that count from 0",
        ),
        Step::Signal { .. } | Step::WaitFor { .. } => (
            "its signal has no channel".to_string(),
            "a sender and a receiver for every signal",
        ),
        _ => (format!("{step:?} is out of range"), "a step as documented"),
    }
}

/// What the kernel makes of any slice that is asked for: __setparam_fair of
/// kernel/sched/syscalls.c.
const SLICES: std::ops::RangeInclusive<i64> = 100_000..=100_000_000;

/// Numbers of mutexes, conditions, barriers and queues: more are a slip of the pen.
const MAX_LOCKS: u32 = 1 << 20;

/// Of a group: kernel/sched/sched.h, MAX_SHARES.
const MAX_SHARES: i64 = 1 << 18;

/// 2^52 ns, 52 days: longer spans would overflow the engine's units.
pub const MAX_TIME: i64 = 1 << 52;

fn bad_time(who: &str, at: Option<usize>) -> Error {
    let place = at.map_or(String::from("start"), |i| format!("step {i}"));
    Error::usage(
        format!("{who}, {place}: the time is negative or longer than 52 days"),
        "ns in 0..2^52",
        "correct the step; are its units ns?",
    )
}
