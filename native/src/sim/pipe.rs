//! What is in one pipe, and who sleeps there.

use std::collections::VecDeque;

use super::workload::{PipeSpec, Tid};

#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) spec: PipeSpec,
    pub(super) level: u64,
    /// Who sleeps until there is something, or room, in the order in which they came.
    pub(super) readers: VecDeque<Tid>,
    pub(super) writers: VecDeque<Tid>,
    /// Writers that were woken and have not yet put anything.
    pub(super) woken: u32,
}

impl Pipe {
    pub(super) fn new(spec: &PipeSpec) -> Self {
        Self {
            spec: *spec,
            level: spec.filled,
            readers: VecDeque::new(),
            writers: VecDeque::new(),
            woken: 0,
        }
    }

    pub(super) fn sleepers(&self) -> impl Iterator<Item = Tid> {
        self.readers.iter().chain(&self.writers).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.level == 0
    }

    /// A reader that is there from the beginning.
    pub(super) fn sleep(&mut self, reader: Tid) {
        self.readers.push_back(reader);
    }

    pub(super) fn has_room(&self, amount: u32) -> bool {
        self.level == 0 || self.level + u64::from(amount) <= self.spec.capacity
    }
}
