//! Threads' timers: the few that are next, in order, and all others.
//!
//! A thread has one timer at most, which is neither moved nor cancelled. The next
//! ones are taken out of the heap several at a time, so that what their threads need
//! can be brought near together (see [`crate::prefetch`]).
use super::heap::{Key, SlotHeap};
use super::workload::Tid;

/// How many are made near at a time.
const BATCH: usize = 16;

/// With more than this many near, the later ones go back: one that comes in between is inserted
/// among them, which should be cheap.
const MOST: usize = 4 * BATCH;

#[derive(Debug, Clone, Default)]
pub struct Timers {
    /// The latest first; all of them are before all of `far`.
    near: Vec<(Key, Tid)>,
    far: SlotHeap,
}

impl Timers {
    pub fn new(nthreads: usize) -> Self {
        Self {
            near: Vec::with_capacity(MOST + 1),
            far: SlotHeap::with_slots(nthreads),
        }
    }

    /// Sets the timer of `t`, which has none.
    pub fn arm(&mut self, t: Tid, key: Key) {
        if self.near.first().is_none_or(|(last, _)| key > *last) {
            self.far.arm(t, key);
            return;
        }
        let at = self.near.partition_point(|(near, _)| *near > key);
        self.near.insert(at, (key, t));
        if self.near.len() > MOST {
            for (key, t) in self.near.drain(..MOST - BATCH) {
                self.far.arm(t, key);
            }
        }
    }

    /// Those that are near, if none was before this call and some are now.
    pub fn approach(&mut self) -> &[(Key, Tid)] {
        if !self.near.is_empty() {
            return &[];
        }
        while self.near.len() < BATCH
            && let Some((key, t)) = self.far.peek()
        {
            self.far.disarm(t);
            self.near.push((key, t));
        }
        self.near.reverse();
        &self.near
    }

    /// The next one; after `approach` there is one if any is set.
    pub fn peek(&self) -> Option<(Key, Tid)> {
        self.near.last().copied()
    }

    /// Takes the next one out.
    pub fn pop(&mut self) {
        self.near.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::super::rng::Rng;
    use super::*;
    use std::collections::BTreeMap;

    /// The oracle: a map in order of time.
    #[test]
    fn come_in_the_order_of_a_plain_map() {
        let n = 300;
        let mut rng = Rng::new(3);
        let mut timers = Timers::new(n as usize);
        let mut naive: BTreeMap<Key, Tid> = BTreeMap::new();
        let mut idle: Vec<Tid> = (0..n).collect();
        let (mut now, mut near) = (0, 0);
        for seq in 0..40_000u64 {
            near += usize::from(!timers.approach().is_empty());
            assert_eq!(
                timers.peek(),
                naive.first_key_value().map(|(k, t)| (*k, *t))
            );
            // Now mostly threads that fall asleep, for short or long, now mostly those that wake.
            let sleeps = rng.below(10) < if seq / 1000 % 2 == 0 { 7 } else { 3 };
            if sleeps && let Some(t) = idle.pop() {
                let most = [10, 1000, 1_000_000][rng.below(3) as usize];
                let key = (now + rng.below(most) as i64, seq);
                timers.arm(t, key);
                naive.insert(key, t);
            } else if let Some((key, t)) = naive.pop_first() {
                timers.pop();
                now = key.0;
                idle.push(t);
            }
        }
        assert!(near > 100, "{near} batches");
    }
}
