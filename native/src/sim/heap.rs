//! The event queue: a 4-ary heap over slots, each slot holding at most one event.
//!
//! A slot is a thing that can have one appointment (a thread's timer, a CPU's
//! tick). Re-arming moves the entry in place, so there are no dead entries and
//! nothing is allocated while the simulation runs.

/// When an event is due, and its place among those due at the same instant.
pub type Key = (i64, u64);

/// A key as one number of the same order: which of four children is least is a
/// matter of chance to a branch predictor, and one comparison needs no branch.
fn pack(key: Key) -> u128 {
    // The sign bit is turned over: negative instants come first.
    let at = (key.0 as u64) ^ (1 << 63);
    (u128::from(at) << 64) | u128::from(key.1)
}

fn unpack(packed: u128) -> Key {
    let at = ((packed >> 64) as u64) ^ (1 << 63);
    (at as i64, packed as u64)
}

const ABSENT: u32 = u32::MAX;

/// Keys and slots lie apart, so that the keys of four children fill a cache line.
#[derive(Debug, Clone, Default)]
pub struct SlotHeap {
    keys: Vec<u128>,
    slots: Vec<u32>,
    place: Vec<u32>,
}

impl SlotHeap {
    pub fn with_slots(n: usize) -> Self {
        Self {
            keys: Vec::with_capacity(n.min(1 << 16)),
            slots: Vec::with_capacity(n.min(1 << 16)),
            place: vec![ABSENT; n],
        }
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Make slots `0..n` exist.
    pub fn grow(&mut self, n: usize) {
        if n > self.place.len() {
            self.place.resize(n, ABSENT);
        }
    }

    pub fn peek(&self) -> Option<(Key, u32)> {
        Some((unpack(*self.keys.first()?), *self.slots.first()?))
    }

    pub fn is_armed(&self, slot: u32) -> bool {
        self.place[slot as usize] != ABSENT
    }

    /// When `slot` is due, if it is armed.
    pub fn due(&self, slot: u32) -> Option<i64> {
        let at = self.place[slot as usize];
        (at != ABSENT).then(|| unpack(self.keys[at as usize]).0)
    }

    /// Set `slot`'s appointment, replacing the one it had.
    pub fn arm(&mut self, slot: u32, key: Key) {
        let key = pack(key);
        let at = self.place[slot as usize];
        if at == ABSENT {
            self.keys.push(key);
            self.slots.push(slot);
            self.up(self.keys.len() - 1, key, slot);
        } else {
            let at = at as usize;
            if key < self.keys[at] {
                self.up(at, key, slot);
            } else {
                self.down(at, key, slot);
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
        let old = self.keys[at];
        let (Some(key), Some(last)) = (self.keys.pop(), self.slots.pop()) else {
            return;
        };
        if at == self.keys.len() {
            return;
        }
        if key < old {
            self.up(at, key, last);
        } else {
            self.down(at, key, last);
        }
    }

    fn put(&mut self, at: usize, key: u128, slot: u32) {
        self.keys[at] = key;
        self.slots[at] = slot;
        self.place[slot as usize] = at as u32;
    }

    /// Put `slot` in the hole at `at`, or above it.
    fn up(&mut self, mut at: usize, key: u128, slot: u32) {
        while at > 0 {
            let parent = (at - 1) / 4;
            if self.keys[parent] <= key {
                break;
            }
            self.put(at, self.keys[parent], self.slots[parent]);
            at = parent;
        }
        self.put(at, key, slot);
    }

    /// Put `slot` in the hole at `at`, or below it.
    fn down(&mut self, mut at: usize, key: u128, slot: u32) {
        loop {
            let first = at * 4 + 1;
            let Some(children) = self.keys.get(first..(first + 4).min(self.keys.len())) else {
                break;
            };
            let Some(&one) = children.first() else {
                break;
            };
            let (mut best, mut least) = (0, one);
            for (i, &child) in children.iter().enumerate().skip(1) {
                let less = child < least;
                best = if less { i } else { best };
                least = if less { child } else { least };
            }
            if key <= least {
                break;
            }
            self.put(at, least, self.slots[first + best]);
            at = first + best;
        }
        self.put(at, key, slot);
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
