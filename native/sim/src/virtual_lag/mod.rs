//! CFS's or EEVDF's view of recorded threads: virtual times, and the lag that follows from them.
//!
//! The trace has the threads on each CPU's queue, and how long each ran; from that, and from the
//! weights, the virtual times of the fair class follow by the simulator's own arithmetic
//! (`sim::policy::eevdf_lag`, `cfs_place`). Which thread runs is never decided here. One pass in
//! table order: rows stand in order of their end, each end is one event, and what a thread does
//! next is in its next row.
mod intervals;
mod notes;
mod output;
mod queue;
mod replay;
mod rules;
mod states;
pub mod tables;
mod tally;

/// What the thread table says of one thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct FairThread {
    /// When it was created, if the trace saw that.
    pub start: Option<i64>,
    pub parent: Option<u32>,
    /// It is asked about.
    pub wanted: bool,
    /// It is in the table.
    pub listed: bool,
}

/// What a row of `states` says that its thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueState {
    Running {
        cpu: u16,
        weight: i64,
    },
    Waiting {
        cpu: u16,
        weight: i64,
    },
    /// Runnable, on no known queue.
    Unplaced,
    /// Of another class than the fair one, running or runnable.
    Elsewhere,
    /// Asleep, by its own will.
    Asleep,
    /// Stopped, parked, or not born yet.
    Off,
    Unknown,
}

/// What happened to a thread at an instant at which its lag is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    Joined,
    Began,
    Stopped,
    Left,
    Moved,
    End,
}

/// A thread's lag at a turn; times in ns.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    pub ts: i64,
    pub utid: u32,
    pub cpu: u16,
    pub turn: Turn,
    pub weight: i64,
    /// Its lag, in CPU time.
    pub lag: i64,
    /// The same in virtual time.
    pub vlag: i64,
    pub eligible: bool,
    /// It rests on nothing from before the trace.
    pub settled: bool,
}

/// The result for one thread; times in ns.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub seen: bool,
    pub weight: Option<i64>,
    pub last: Option<(i64, i64)>,
    pub most: Option<(i64, i64)>,
    pub least: Option<(i64, i64)>,
    pub picks: u32,
    pub eligible: u32,
    pub competed: i64,
    pub unplaced: i64,
    pub settled: Option<i64>,
    pub n: u32,
    pub n_censored: u32,
    pub n_excluded: u32,
}
