//! A list of changes in order of time, as short as it may be: it is by far the longest thing
//! in a sweep, and memory that is written once takes the system's time, too.

/// From `t` on a thread does something else.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    pub t: i64,
    pub utid: u32,
    /// What it does, in two bits that are never both set, and more.
    pub to: u32,
}

/// One change in three words.
#[derive(Debug, Clone, Copy)]
struct Short {
    /// ns since the one before.
    after: u32,
    utid: u32,
    to: u32,
}

/// No change: `utid` times 2^32 ns, or less than none, to the next one.
const GAP: u32 = 3;

#[derive(Default)]
pub struct List {
    all: Vec<Short>,
    latest: i64,
}

impl List {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn reserve(&mut self, more: usize) {
        self.all.reserve(more);
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Starts again, in the same memory.
    pub fn clear(&mut self) {
        self.all.clear();
        self.latest = 0;
    }

    /// Adds one; where it is.
    #[inline]
    pub fn push(&mut self, Change { t, utid, to }: Change) -> usize {
        let since = t.wrapping_sub(self.latest);
        self.latest = t;
        if since >> 32 != 0 {
            self.all.push(Short {
                after: 0,
                utid: (since >> 32) as u32,
                to: GAP,
            });
        }
        self.all.push(Short {
            after: since as u32,
            utid,
            to,
        });
        self.all.len() - 1
    }

    /// What is done from the change `at` on, if the list is that long.
    #[inline]
    pub fn get_to(&mut self, at: usize) -> Option<&mut u32> {
        Some(&mut self.all.get_mut(at)?.to)
    }

    /// In the order in which they came.
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            rest: self.all.iter(),
            t: 0,
        }
    }

    /// When the last one is.
    pub fn latest(&self) -> i64 {
        self.latest
    }
}

/// Goes through a list.
#[derive(Clone)]
pub struct Iter<'a> {
    rest: std::slice::Iter<'a, Short>,
    t: i64,
}

impl Iterator for Iter<'_> {
    type Item = Change;

    #[inline]
    fn next(&mut self) -> Option<Change> {
        loop {
            let short = self.rest.next()?;
            if short.to & GAP == GAP {
                let times = i64::from(short.utid.cast_signed());
                self.t = self.t.wrapping_add(times << 32);
                continue;
            }
            self.t = self.t.wrapping_add(i64::from(short.after));
            return Some(Change {
                t: self.t,
                utid: short.utid,
                to: short.to,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_what_it_was_given() {
        let step = 1 << 32;
        let times = [0, 5, 5, step - 1, step, 3 * step + 7, 2, -4, i64::MAX, 9];
        let changes = times.map(|t| Change {
            t,
            utid: u32::MAX - t as u32,
            to: 4 * (t as u32 % 8) + t as u32 % 3,
        });
        let mut list = List::new();
        let places = changes.map(|change| list.push(change));
        assert!(list.iter().eq(changes));
        *list.get_to(places[4]).expect("a change") |= 1 << 31;
        assert!(list.get_to(2 * times.len()).is_none());
        let mut want = changes;
        want[4].to |= 1 << 31;
        assert!(list.iter().eq(want));
        list.clear();
        assert_eq!(list.push(want[9]), 0);
        assert!(list.iter().eq([want[9]]));
    }
}
