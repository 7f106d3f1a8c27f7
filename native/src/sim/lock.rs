//! Who has each mutex, and who sleeps for it, at a condition or at a barrier.

use std::collections::VecDeque;

use super::workload::Tid;

#[derive(Debug, Clone, Default)]
pub(super) struct Mutex {
    pub(super) holder: Option<Tid>,
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
}

/// The lock of this number, which comes into being with its first use.
pub(super) fn of<T: Clone + Default>(all: &mut Vec<T>, number: u32) -> &mut T {
    let at = number as usize;
    if at >= all.len() {
        all.resize(at + 1, T::default());
    }
    &mut all[at]
}
