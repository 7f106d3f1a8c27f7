//! Work that a decoder will soon need done, for threads that have nothing else to do.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

type Chore = Box<dyn FnOnce() + Send>;

/// Chores in the order in which they will be needed.
#[derive(Default)]
pub struct Chores {
    waiting: Mutex<VecDeque<Chore>>,
    added: Condvar,
}

impl Chores {
    pub fn add(&self, chore: impl FnOnce() + Send + 'static) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(Box::new(chore));
        drop(waiting);
        self.added.notify_one();
    }

    /// Does the one that was added first; false if there is none.
    pub fn one(&self) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let chore = waiting.pop_front();
        drop(waiting);
        chore.map(|chore| chore()).is_some()
    }

    /// Does whatever is added until `ended` is set.
    pub fn until(&self, ended: &AtomicBool) {
        while !ended.load(Ordering::Relaxed) {
            if self.one() {
                continue;
            }
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let nothing = |waiting: &mut VecDeque<Chore>| {
                waiting.is_empty() && !ended.load(Ordering::Relaxed)
            };
            drop(self.added.wait_while(waiting, nothing));
        }
    }

    /// Sets `ended` and wakes those who wait for more.
    pub fn end(&self, ended: &AtomicBool) {
        // Not between a look at it and the wait.
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        ended.store(true, Ordering::Relaxed);
        drop(waiting);
        self.added.notify_all();
    }
}
