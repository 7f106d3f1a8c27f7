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

/// The keys of four siblings, in one cache line; places that hold nothing have
/// the greatest number there is, so that the least of four is the least of those
/// there are.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Keys([u128; 4]);

const NOTHING: u128 = u128::MAX;

/// The top's place: the last of the first four, so that the children of each
/// place are four places of one line.
const TOP: usize = 3;

fn parent(at: usize) -> usize {
    at / 4 + 2
}

/// Which four places are the children of `at`.
fn children(at: usize) -> usize {
    at - 2
}

#[derive(Debug, Clone, Default)]
pub struct SlotHeap {
    keys: Vec<Keys>,
    slots: Vec<[u32; 4]>,
    place: Vec<u32>,
    len: usize,
}

impl SlotHeap {
    pub fn with_slots(n: usize) -> Self {
        Self {
            place: vec![ABSENT; n],
            ..Self::default()
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Make slots `0..n` exist.
    pub fn grow(&mut self, n: usize) {
        if n > self.place.len() {
            self.place.resize(n, ABSENT);
        }
    }

    pub fn peek(&self) -> Option<(Key, u32)> {
        if self.len == 0 {
            return None;
        }
        Some((unpack(self.key(TOP)), self.slot(TOP)))
    }

    pub fn is_armed(&self, slot: u32) -> bool {
        self.place[slot as usize] != ABSENT
    }

    /// When `slot` is due, if it is armed.
    pub fn due(&self, slot: u32) -> Option<i64> {
        let at = self.place[slot as usize];
        (at != ABSENT).then(|| unpack(self.key(at as usize)).0)
    }

    /// Set `slot`'s appointment, replacing the one it had.
    pub fn arm(&mut self, slot: u32, key: Key) {
        let key = pack(key);
        let at = self.place[slot as usize];
        if at == ABSENT {
            let end = TOP + self.len;
            if end / 4 >= self.keys.len() {
                self.keys.push(Keys([NOTHING; 4]));
                self.slots.push([ABSENT; 4]);
            }
            self.len += 1;
            self.up(end, key, slot);
        } else {
            let at = at as usize;
            if key < self.key(at) {
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
        let old = self.key(at);
        self.len -= 1;
        let end = TOP + self.len;
        let (key, last) = (self.key(end), self.slot(end));
        self.keys[end / 4].0[end % 4] = NOTHING;
        if at == end {
            return;
        }
        if key < old {
            self.up(at, key, last);
        } else {
            self.down(at, key, last);
        }
    }

    fn key(&self, at: usize) -> u128 {
        self.keys[at / 4].0[at % 4]
    }

    fn slot(&self, at: usize) -> u32 {
        self.slots[at / 4][at % 4]
    }

    fn put(&mut self, at: usize, key: u128, slot: u32) {
        self.keys[at / 4].0[at % 4] = key;
        self.slots[at / 4][at % 4] = slot;
        self.place[slot as usize] = at as u32;
    }

    /// Put `slot` in the hole at `at`, or above it.
    fn up(&mut self, mut at: usize, key: u128, slot: u32) {
        while at > TOP {
            let above = parent(at);
            if self.key(above) <= key {
                break;
            }
            self.put(at, self.key(above), self.slot(above));
            at = above;
        }
        self.put(at, key, slot);
    }

    /// Put `slot` in the hole at `at`, or below it.
    fn down(&mut self, mut at: usize, key: u128, slot: u32) {
        while let Some(Keys([a, b, c, d])) = self.keys.get(children(at)) {
            let (left, low) = if b < a { (1, b) } else { (0, a) };
            let (right, high) = if d < c { (3, d) } else { (2, c) };
            let (best, &least) = if high < low {
                (right, high)
            } else {
                (left, low)
            };
            if key <= least {
                break;
            }
            let child = 4 * children(at) + best;
            self.put(at, least, self.slot(child));
            at = child;
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
