//! A thread as far as it has been read: the steps that it has made, and the state it is in.
use super::super::load::op;
use super::mutexes::Locking;
use super::queues::Inside;
use super::{Report, call_costs, missed, outside};

/// One extracted step; the meaning of the numbers depends on `op`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    pub op: u8,
    pub disk: bool,
    /// Of a signal: the sender waits for its reader.
    pub meet: bool,
    /// Thread named (an index into `Extracted::threads`), or `u32::MAX`; or the pipe, mutex,
    /// barrier or queue.
    pub thread: u32,
    /// ns, or the priority number of `set_priority`, or where a `repeat` goes on.
    pub ns: i64,
    /// Of a run: how often its thread came onto a CPU in it; of a post: its job, from 1, or 0.
    pub count: u64,
}

pub(super) const NOBODY: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Now {
    Unseen,
    Running {
        since: i64,
    },
    Runnable,
    Asleep {
        since: i64,
        disk: bool,
    },
    /// Lost from sight at this time.
    Lost {
        since: i64,
    },
    Gone,
}

/// How a thread enters the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enters {
    /// Runnable from this time on (of the window).
    At(i64),
    /// Asleep in its first step from the beginning.
    Asleep,
    /// By another's `fork`.
    Forked,
}

#[derive(Debug, Clone)]
pub struct ThreadOut {
    pub utid: u32,
    pub enters: Enters,
    pub first_cpu: Option<u16>,
    /// CPUs on which it ran, as a bit set of the first 64, and whether others.
    pub ran_on: Vec<u64>,
    pub first_prio: Option<i16>,
    pub steps: Vec<Made>,
    pub(super) now: Now,
    pub(super) ran: i64,
    pub(super) yielded: bool,
    pub(super) prio: Option<i16>,
    /// When it came onto its CPU: how many steps it had, and what it had run since the last one.
    pub(super) came: Option<(usize, i64)>,
    /// A wake raised while it was still running, on its way to sleep.
    pub(super) pending: Option<Pending>,
    /// The wake it is raising: whose, since when, and the step of the signal.
    pub(super) raising: Option<(u32, i64, u32)>,
    /// It sleeps no more and has not run yet.
    pub(super) woken: bool,
    /// Since when it runs after a sleep; `None` after a preemption.
    pub(super) awake: Option<i64>,
    /// Since when it has not slept: its beginning, or that of the window, if it never did.
    pub(super) sleepless: i64,
    /// Sleeps that something outside ended.
    pub(super) outside: Vec<outside::OutsideSleep>,
    /// Wakes by interrupts on its CPU while it ran.
    pub(super) self_wakes: Vec<missed::SelfWake>,
    /// The read or write through a pipe that it is in, and whether its step is written.
    pub(super) call: Option<(u32, bool)>,
    /// CPU time used, up to the moment since which it runs.
    pub(super) used: i64,
    /// How often it came onto a CPU since its last `run` was written.
    pub(super) comes: u32,
    pub(super) cycle: Option<call_costs::Cycle>,
    pub(super) locking: Locking,
    /// The call for a queue or barrier that it is in.
    pub(super) inside: Option<Inside>,
    /// The queue that its pool serves.
    pub(super) pool: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub(super) waker: u32,
    pub(super) count: u64,
    pub(super) at: i64,
    /// The waker's step that signals.
    pub(super) step: u32,
    /// It is a job: its queue and number.
    pub(super) job: Option<(u32, u64)>,
}

/// What a thread does after its last wake takes no longer if that is of its end, ns.
const ENDING: i64 = 100_000;

impl ThreadOut {
    /// Nothing is known of it yet; the window begins at `begin`.
    pub(super) fn new(utid: u32, ncpu: u32, begin: i64) -> Self {
        Self {
            utid,
            enters: Enters::At(0),
            first_cpu: None,
            ran_on: vec![0; (ncpu as usize).div_ceil(64)],
            first_prio: None,
            steps: Vec::new(),
            now: Now::Unseen,
            ran: 0,
            yielded: false,
            prio: None,
            came: None,
            pending: None,
            raising: None,
            woken: false,
            awake: None,
            sleepless: begin,
            outside: Vec::new(),
            self_wakes: Vec::new(),
            call: None,
            used: 0,
            comes: 0,
            cycle: None,
            locking: Locking::default(),
            inside: None,
            pool: None,
        }
    }
}

pub(super) fn ran_on(th: &mut ThreadOut, cpu: u16) {
    if let Some(word) = th.ran_on.get_mut(cpu as usize / 64) {
        *word |= 1 << (cpu % 64);
    }
}

pub(super) fn push(th: &mut ThreadOut, op: u8, thread: u32, ns: i64, count: u64, disk: bool) {
    th.steps.push(Made {
        op,
        disk,
        meet: false,
        thread,
        ns,
        count,
    });
}

/// Writes the running time gathered so far as a `run`.
pub(super) fn flush(th: &mut ThreadOut, report: &mut Report) {
    if th.ran > 0 {
        report.cpu_time += th.ran;
        let ran = std::mem::take(&mut th.ran);
        let comes = std::mem::take(&mut th.comes);
        push(th, op::RUN, NOBODY, ran, u64::from(comes), false);
    }
}

/// No thread preempts one that wakes its parent as it ends: the kernel does not come back to where
/// it looks for requests (`do_exit` of kernel/exit.c). So the wake is its last step, and what it
/// did after it comes before.
pub(super) fn end_with_wake(th: &mut ThreadOut, report: &mut Report) {
    if let [.., before, wake] = &mut th.steps[..]
        && (before.op, wake.op) == (op::RUN, op::SIGNAL)
        && th.comes == 0
        && th.ran <= ENDING
        && wake.ns >= 0
    {
        report.cpu_time += th.ran;
        before.ns += std::mem::take(&mut th.ran) + std::mem::take(&mut wake.ns);
    }
}

/// A thread that leaves its CPU with another priority than it came with is taken to have changed it
/// when it came: programs do so before their work. Where it did something else meanwhile that a
/// step stands for, it is now that the change counts, before it comes again.
pub(super) fn changes_on_cpu(th: &mut ThreadOut, prio: Option<i16>, report: &mut Report) {
    let (Some((steps, ran)), Some(old), Some(new)) = (th.came.take(), th.prio, prio) else {
        return;
    };
    if old == new || steps != th.steps.len() || ran > th.ran {
        return;
    }
    report.priority_changes += 1;
    let since = th.ran - ran;
    th.ran = ran;
    let comes = th.comes;
    th.comes = comes.saturating_sub(1);
    flush(th, report);
    (th.ran, th.comes) = (since, 1);
    push(th, op::SET_PRIORITY, NOBODY, i64::from(new), 0, false);
    th.prio = Some(new);
}

/// A sleep from `since` to `t` that something outside the workload ended.
pub(super) fn external(
    th: &mut ThreadOut,
    since: i64,
    t: i64,
    disk: bool,
    absolute: bool,
    begin: i64,
) {
    if absolute {
        push(th, op::WAIT_UNTIL, NOBODY, t - begin, 0, false);
    } else {
        push(th, op::SLEEP, NOBODY, t - since, 0, disk);
    }
}

/// The time in which the thread is unknown counts as a sleep.
pub(super) fn gap(
    th: &mut ThreadOut,
    report: &mut Report,
    since: i64,
    t: i64,
    absolute: bool,
    begin: i64,
) {
    flush(th, report);
    external(th, since, t, false, absolute, begin);
}
