//! What a scheduler's rule for interactive threads would have said of recorded ones.
//!
//! The rules are the simulator's own (`sim::policy`); here they are fed from the
//! `states` table instead of a simulated world. One pass in table order with
//! memory per thread only: a thread's rows are in order of time there, and rows
//! of different threads in order of their end (docs/trace-model.md).
mod fold;
mod o1;
pub(crate) mod output;
mod stat_clock;
pub mod tables;
mod ule;
mod ule_2003;

/// Part of one interval of a thread's life.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    pub from: i64,
    pub to: i64,
    /// Where the whole interval began.
    pub begin: i64,
    pub doing: Activity,
    /// A thread, and no interrupt, woke it for this wait.
    pub by_thread: bool,
    pub nice: i64,
    /// How the interval ended if it ends with this part.
    pub closed: Option<Closed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    Running,
    Runnable,
    Sleeping,
    /// Asleep where no signal ends it.
    Blocked,
    /// For a contested lock, which FreeBSD does not count as sleep.
    Locked,
    Unknown,
}

impl Activity {
    fn is_asleep(self) -> bool {
        matches!(self, Self::Sleeping | Self::Blocked)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    Seen,
    Exited,
    /// The true end was not seen.
    Lost,
    /// Still open when the trace ended.
    Window,
}

/// A scheduler's rule: what it remembers of a thread, and how that makes a score.
pub trait Rule {
    type Memory: Clone + Default;
    /// How long a run can still change the score, in ns.
    fn horizon(&self) -> i64;
    fn fork(&self, parent: &mut Self::Memory, child: &mut Self::Memory);
    /// `child` is gone.
    fn exit(&self, child: &Self::Memory, parent: &mut Self::Memory);
    /// Time passes; `changed` is called at each instant at which the score may have changed.
    fn pass(
        &self,
        memory: &mut Self::Memory,
        part: &Part,
        changed: &mut dyn FnMut(i64, &Self::Memory),
    );
    /// The score with nice, and whether that is interactive.
    fn score(&self, memory: &Self::Memory, nice: i64) -> (i64, bool);
}
