//! Who has each mutex, and who sleeps for it, at a condition, a barrier or a queue.

use std::collections::VecDeque;

use super::workload::Tid;

#[derive(Debug, Clone, Default)]
pub(super) struct Mutex {
    pub(super) holder: Option<Tid>,
    pub(super) sleepers: VecDeque<Tid>,
}

/// Jobs that are not started, and threads that sleep until there is one.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    pub(super) jobs: VecDeque<u32>,
    pub(super) sleepers: VecDeque<Tid>,
}

/// The locks of a run, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Locks {
    pub(super) mutexes: Vec<Mutex>,
    /// Who waits on each condition.
    pub(super) conditions: Vec<VecDeque<Tid>>,
    /// Who waits at each barrier.
    pub(super) barriers: Vec<Vec<Tid>>,
    /// By thread, whether it has waited on a condition and has yet to take its mutex again.
    pub(super) waited: Vec<bool>,
    pub(super) queues: Vec<Queue>,
    /// By thread, where it goes on after each job that it is in, and where that program ends.
    pub(super) after: Vec<Vec<(u32, u32)>>,
}

/// The lock of this number, which comes into being with its first use.
pub(super) fn of<T: Clone + Default>(all: &mut Vec<T>, number: u32) -> &mut T {
    let at = number as usize;
    if at >= all.len() {
        all.resize(at + 1, T::default());
    }
    &mut all[at]
}
