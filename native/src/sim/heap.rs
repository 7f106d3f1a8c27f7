//! The event queue: a 4-ary heap over slots, each slot holding at most one event.
//!
//! A slot is a thing that can have one appointment (a thread's timer, a CPU's
//! tick). Re-arming moves the entry in place, so there are no dead entries and
//! nothing is allocated while the simulation runs.

/// When an event is due, and its place among those due at the same instant.
pub type Key = (i64, u64);

const ABSENT: u32 = u32::MAX;

#[derive(Debug, Clone, Default)]
pub struct SlotHeap {
    entries: Vec<(Key, u32)>,
    place: Vec<u32>,
}

impl SlotHeap {
    pub fn with_slots(n: usize) -> Self {
        Self {
            entries: Vec::with_capacity(n.min(1 << 16)),
            place: vec![ABSENT; n],
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Make slots `0..n` exist.
    pub fn grow(&mut self, n: usize) {
        if n > self.place.len() {
            self.place.resize(n, ABSENT);
        }
    }

    pub fn peek(&self) -> Option<(Key, u32)> {
        self.entries.first().copied()
    }

    pub fn is_armed(&self, slot: u32) -> bool {
        self.place[slot as usize] != ABSENT
    }

    /// When `slot` is due, if it is armed.
    pub fn due(&self, slot: u32) -> Option<i64> {
        let at = self.place[slot as usize];
        (at != ABSENT).then(|| self.entries[at as usize].0.0)
    }

    /// Set `slot`'s appointment, replacing the one it had.
    pub fn arm(&mut self, slot: u32, key: Key) {
        let at = self.place[slot as usize];
        if at == ABSENT {
            self.entries.push((key, slot));
            self.up(self.entries.len() - 1);
        } else {
            let at = at as usize;
            let sooner = key < self.entries[at].0;
            self.entries[at].0 = key;
            if sooner {
                self.up(at);
            } else {
                self.down(at);
            }
        }
    }

    /// Cancel `slot`'s appointment; nothing happens when it has none.
    pub fn disarm(&mut self, slot: u32) {
        let at = self.place[slot as usize];
        if at == ABSENT {
            return;
        }
        let at = at as usize;
        self.place[slot as usize] = ABSENT;
        let last = self.entries.len() - 1;
        if at == last {
            self.entries.pop();
            return;
        }
        let old = self.entries[at].0;
        self.entries.swap_remove(at);
        self.place[self.entries[at].1 as usize] = at as u32;
        if self.entries[at].0 < old {
            self.up(at);
        } else {
            self.down(at);
        }
    }

    fn up(&mut self, mut at: usize) {
        let moving = self.entries[at];
        while at > 0 {
            let parent = (at - 1) / 4;
            if self.entries[parent].0 <= moving.0 {
                break;
            }
            self.entries[at] = self.entries[parent];
            self.place[self.entries[at].1 as usize] = at as u32;
            at = parent;
        }
        self.entries[at] = moving;
        self.place[moving.1 as usize] = at as u32;
    }

    fn down(&mut self, mut at: usize) {
        let moving = self.entries[at];
        let n = self.entries.len();
        loop {
            let first = at * 4 + 1;
            if first >= n {
                break;
            }
            let mut best = first;
            for child in first + 1..(first + 4).min(n) {
                if self.entries[child].0 < self.entries[best].0 {
                    best = child;
                }
            }
            if moving.0 <= self.entries[best].0 {
                break;
            }
            self.entries[at] = self.entries[best];
            self.place[self.entries[at].1 as usize] = at as u32;
            at = best;
        }
        self.entries[at] = moving;
        self.place[moving.1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::super::rng::Rng;
    use super::*;
    use std::collections::BTreeMap;

    /// The oracle: a map from slot to key, searched whole.
    #[test]
    fn agrees_with_a_plain_map_under_random_arming() {
        let mut rng = Rng::new(11);
        let mut heap = SlotHeap::with_slots(40);
        let mut naive: BTreeMap<u32, Key> = BTreeMap::new();
        for seq in 0..20_000u64 {
            let slot = rng.below(40) as u32;
            match rng.below(4) {
                0 => {
                    heap.disarm(slot);
                    naive.remove(&slot);
                }
                1 => {
                    if let Some((key, slot)) = heap.peek() {
                        assert_eq!(naive.remove(&slot), Some(key));
                        heap.disarm(slot);
                    }
                }
                _ => {
                    let key = (rng.below(100) as i64, seq);
                    heap.arm(slot, key);
                    naive.insert(slot, key);
                }
            }
            let least = naive.iter().map(|(s, k)| (*k, *s)).min();
            assert_eq!(heap.peek(), least);
            assert_eq!(heap.len(), naive.len());
        }
    }
}
