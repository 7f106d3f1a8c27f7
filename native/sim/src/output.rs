//! Where the engine writes what happened.
use std::any::Any;

use super::error::Error;
use super::machine::Cpu;
use super::workload::Tid;

/// Why a thread left its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftAs {
    /// Still runnable, against its will.
    Preempted,
    /// Still runnable, by `yield`.
    Yielded,
    Sleeping,
    Disk,
    Dead,
    /// There was no thread: the CPU was idle.
    Idle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeStep {
    Waking,
    Enqueued,
    New,
}

/// One row of a policy's own view of a thread or CPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Record {
    pub ts: i64,
    pub series: u16,
    pub cpu: Option<Cpu>,
    pub thread: Option<Tid>,
    pub value: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    pub ts: i64,
    pub cpu: Cpu,
    /// `None` is the idle thread of the CPU.
    pub prev: Option<Tid>,
    pub left_as: LeftAs,
    pub prev_prio: i16,
    pub next: Option<Tid>,
    pub next_prio: i16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wakeup {
    pub ts: i64,
    /// Where the wake was raised.
    pub cpu: Cpu,
    /// `None` when a timer or device raised it.
    pub waker: Option<Tid>,
    pub thread: Tid,
    pub step: WakeStep,
    pub target: Option<Cpu>,
    pub prio: i16,
}

/// Receives the run, in causal order (time never goes back).
pub trait Sink: Send {
    /// What went wrong in writing, if anything; asked for now and then.
    fn failure(&mut self) -> Option<Error> {
        None
    }
    /// Rows of this thread will be among the next: a chance to bring near what they need.
    fn prefetch(&self, _: Tid) {}
    /// Back to the type it was made of.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
    fn switch(&mut self, row: Switch);
    fn wakeup(&mut self, row: Wakeup);
    fn migrate(&mut self, ts: i64, cpu: Cpu, thread: Tid, from: Cpu, to: Cpu);
    fn start(&mut self, ts: i64, thread: Tid, parent: Option<Tid>);
    fn exit(&mut self, ts: i64, thread: Tid);
    fn priority(&mut self, ts: i64, thread: Tid, prio: i16);
    fn record(&mut self, row: Record);
    /// A CPU, which has let go of its threads, goes offline, or comes back.
    fn online(&mut self, _ts: i64, _cpu: Cpu, _online: bool) {}
}

/// Keeps no rows: for timing the engine alone.
#[derive(Debug, Default)]
pub struct Discard;

impl Sink for Discard {
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
    fn switch(&mut self, _: Switch) {}
    fn wakeup(&mut self, _: Wakeup) {}
    fn migrate(&mut self, _: i64, _: Cpu, _: Tid, _: Cpu, _: Cpu) {}
    fn start(&mut self, _: i64, _: Tid, _: Option<Tid>) {}
    fn exit(&mut self, _: i64, _: Tid) {}
    fn priority(&mut self, _: i64, _: Tid, _: i16) {}
    fn record(&mut self, _: Record) {}
}
