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
    /// The pages in use, if it has any, the oldest first.
    pages: VecDeque<Page>,
}

#[derive(Debug, Clone, Copy)]
struct Page {
    written: u64,
    /// What of it has not been read.
    left: u64,
}

impl Pipe {
    pub(super) fn new(spec: &PipeSpec) -> Self {
        let mut pipe = Self {
            spec: *spec,
            level: 0,
            readers: VecDeque::new(),
            writers: VecDeque::new(),
            pages: VecDeque::new(),
        };
        pipe.fill(spec.filled);
        pipe
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

    pub(super) fn has_pages(&self) -> bool {
        self.spec.page > 0
    }

    /// Whether `amount` fits; `anew` if it has to start a page, as the rest of a writer that slept
    /// does.
    pub(super) fn has_room(&self, amount: u32, anew: bool) -> bool {
        let amount = u64::from(amount);
        if self.level == 0 {
            return true;
        }
        if !self.has_pages() {
            return self.level + amount <= self.spec.capacity;
        }
        if !anew && self.joins_last(amount) {
            return true;
        }
        (self.pages.len() as u64 + amount.div_ceil(self.spec.page)) * self.spec.page
            <= self.spec.capacity
    }

    /// Whether every page is in use.
    pub(super) fn is_full(&self) -> bool {
        (self.pages.len() as u64 + 1) * self.spec.page > self.spec.capacity
    }

    fn joins_last(&self, amount: u64) -> bool {
        let last = self.pages.back();
        last.is_some_and(|p| p.written + amount <= self.spec.page)
    }

    pub(super) fn fill(&mut self, amount: u64) {
        self.level += amount;
        if !self.has_pages() {
            return;
        }
        if self.joins_last(amount) {
            if let Some(last) = self.pages.back_mut() {
                last.written += amount;
                last.left += amount;
            }
            return;
        }
        let mut rest = amount;
        while rest > 0 {
            let part = rest.min(self.spec.page);
            self.pages.push_back(Page {
                written: part,
                left: part,
            });
            rest -= part;
        }
    }

    /// Takes `amount` out, of what is there; answers whether a full pipe has a free page now.
    pub(super) fn drain(&mut self, amount: u64) -> bool {
        self.level -= amount;
        let was_full = self.is_full();
        let mut freed = false;
        let mut rest = amount;
        while rest > 0
            && let Some(first) = self.pages.front_mut()
        {
            let part = rest.min(first.left);
            first.left -= part;
            rest -= part;
            if first.left == 0 {
                self.pages.pop_front();
                freed = true;
            }
        }
        was_full && freed
    }
}
