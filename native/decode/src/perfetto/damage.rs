//! What shows that a bundle was damaged after it was written: a file has no checksums.
//!
//! traced_probes writes the events of a bundle in the order in which the kernel's buffer had them,
//! which is that of their times, and says in each bundle when the CPU's previous one ended; the
//! columns of its compact form have a number for each event, in the shortest form. There, each
//! thread has its name beside its number.

use super::wire::varint;

/// More than one event in so many is not written in order, or not by traced_probes.
const ONE_IN: usize = 20;

/// The times of a bundle's full events, in their order in the file.
#[derive(Debug, Default)]
pub struct Order {
    times: Vec<u64>,
    unordered: bool,
    last: u64,
}

impl Order {
    pub fn clear(&mut self) {
        self.times.clear();
        (self.unordered, self.last) = (false, 0);
    }

    /// An FtraceEvent, whose first field is its time.
    #[inline]
    pub fn add(&mut self, event: &[u8]) {
        let mut rest = event.get(1..).unwrap_or_default();
        let ts = (event.first() == Some(&0x08)).then(|| varint(&mut rest));
        // None: what cannot be read is counted elsewhere, and has no place.
        let ts = ts.flatten().unwrap_or(self.last);
        self.unordered |= ts < self.last;
        self.last = ts;
        self.times.push(ts);
    }

    /// Which events cannot have had the time that they have now, by their numbers in the file.
    /// `begin`, `end`: the bundle's own, where they are known.
    pub fn misplaced(&self, begin: Option<u64>, end: Option<u64>) -> Misplaced {
        let (begin, end) = (begin.unwrap_or(0), end.unwrap_or(u64::MAX));
        let inside = |ts: &u64| (begin..=end).contains(ts);
        let border = |ts: Option<&u64>| ts.is_none_or(inside);
        if !self.unordered && border(self.times.first()) && border(self.times.last()) {
            return Misplaced::None;
        }
        let mut found = Vec::new();
        // Those that are in order so far.
        let mut kept: Vec<usize> = Vec::new();
        for (at, ts) in self.times.iter().enumerate() {
            if !inside(ts) {
                found.push(at as u32);
            } else if let Some(before) = kept.pop_if(|before| self.times[*before] > *ts) {
                // One of the two, but which is unknown.
                found.extend([before as u32, at as u32]);
            } else {
                kept.push(at);
            }
        }
        if found.len() > 2 + self.times.len() / ONE_IN {
            return Misplaced::Most;
        }
        found.sort_unstable();
        Misplaced::Some(found)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Misplaced {
    None,
    Some(Vec<u32>),
    /// So many that nothing can be said of a single one.
    Most,
}

/// How many numbers a column has; None if a writer does not write them so.
pub fn numbers(column: &[u8]) -> Option<usize> {
    let last = column.last().is_none_or(|&byte| byte < 0x80);
    let shortest = !column
        .windows(2)
        .any(|pair| pair[0] >= 0x80 && pair[1] == 0);
    (last && shortest).then(|| column.iter().filter(|&&byte| byte < 0x80).count())
}

/// Have the columns of one kind of event as many numbers as that of their times, or none?
pub fn agree(times: &[u8], columns: &[&[u8]]) -> bool {
    let count = numbers(times);
    count.is_some()
        && columns
            .iter()
            .all(|column| column.is_empty() || numbers(column) == count)
}

/// Threads that a CPU's compact events named last, as many as have a place of their own.
#[derive(Debug, Default)]
pub struct Seen(Vec<Thread>);

#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    tid: u32,
    name: u32,
    /// Waits for a CPU, according to this CPU's events.
    waits: bool,
}

/// A child has its parent's name until it is renamed, and a number not far behind.
const CHILDREN: u32 = 64;
/// No thread has a number with more bits.
const BITS: u32 = 22;

impl Seen {
    const PLACES: usize = 256;

    fn place(&mut self, tid: u32) -> &mut Thread {
        if self.0.is_empty() {
            self.0.resize(Self::PLACES, Thread::default());
        }
        &mut self.0[tid as usize % Self::PLACES]
    }

    fn known(&mut self, tid: u32) -> Option<&mut Thread> {
        Some(self.place(tid)).filter(|known| known.tid == tid)
    }

    #[inline]
    pub fn woken(&mut self, tid: u32, name: u32) {
        let waits = true;
        *self.place(tid) = Thread { tid, name, waits };
    }

    /// `prev` leaves, and wants to go on or not.
    #[inline]
    pub fn left(&mut self, prev: u32, waits: bool) {
        if let Some(known) = self.known(prev) {
            known.waits = waits;
        }
    }

    /// `tid` comes. Returns the name that it had, if it is known, and whether the number is one bit
    /// off that of a thread of this name that waits: then that one may have come.
    #[inline]
    pub fn came(&mut self, tid: u32, name: u32) -> (Option<u32>, bool) {
        let had = self.known(tid).map(|known| known.name);
        let strange = had != Some(name) && tid != 0 && self.resembles(tid, name);
        let waits = false;
        *self.place(tid) = Thread { tid, name, waits };
        (had, strange)
    }

    #[cold]
    fn resembles(&mut self, tid: u32, name: u32) -> bool {
        (0..BITS).map(|bit| tid ^ 1 << bit).any(|other| {
            let child = tid.wrapping_sub(other) <= CHILDREN;
            !child
                && self
                    .known(other)
                    .is_some_and(|one| one.waits && one.name == name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(times: &[u64]) -> Order {
        let mut order = Order::default();
        for &ts in times {
            let event = [&[0x08][..], &[ts as u8]].concat();
            order.add(&event);
        }
        order
    }

    #[test]
    fn a_time_that_jumps_is_one_of_two() {
        let times: Vec<u64> = (10..60).collect();
        assert_eq!(order(&times).misplaced(Some(10), Some(59)), Misplaced::None);
        let (mut forward, mut back) = (times.clone(), times.clone());
        forward[20] = 50;
        back[20] = 12;
        let forward = order(&forward).misplaced(None, None);
        assert_eq!(forward, Misplaced::Some(vec![20, 21]));
        let back = order(&back).misplaced(None, None);
        assert_eq!(back, Misplaced::Some(vec![19, 20]));
    }

    #[test]
    fn a_time_outside_the_bundle_is_misplaced_alone() {
        let mut times: Vec<u64> = (10..60).collect();
        times[49] = 90;
        let found = order(&times).misplaced(Some(10), Some(60));
        assert_eq!(found, Misplaced::Some(vec![49]));
        times[0] = 3;
        let found = order(&times).misplaced(Some(10), Some(60));
        assert_eq!(found, Misplaced::Some(vec![0, 49]));
    }

    #[test]
    fn a_writer_without_an_order_is_no_damage_of_single_events() {
        assert_eq!(
            order(&[9, 8, 7, 6, 5, 4]).misplaced(None, None),
            Misplaced::Most
        );
    }

    #[test]
    fn a_number_one_bit_off_with_the_name_of_a_thread_that_waits_is_strange() {
        let mut seen = Seen::default();
        seen.woken(1000, 7);
        assert_eq!(seen.came(1000 ^ 8, 7), (None, true));
        // Of another name; two bits off; a child.
        assert_eq!(seen.came(1000 ^ 64, 8), (None, false));
        assert_eq!(seen.came(1000 ^ 12, 7), (None, false));
        assert_eq!(seen.came(1000 ^ 1, 7), (None, false));
        // One that has come waits no more, but one that was preempted does.
        assert_eq!(seen.came(1000, 7), (Some(7), false));
        assert_eq!(seen.came(1000 ^ 128, 7), (None, false));
        seen.left(1000, true);
        assert_eq!(seen.came(1000 ^ 512, 7), (None, true));
        assert_eq!(seen.came(1000 ^ 512, 9), (Some(7), false));
    }

    #[test]
    fn columns_have_as_many_numbers_in_the_shortest_form() {
        assert_eq!(numbers(&[1, 0x81, 1, 0]), Some(3));
        assert_eq!(numbers(&[1, 0x81, 0]), None);
        assert_eq!(numbers(&[1, 0x81]), None);
        assert!(agree(&[1, 2], &[&[5, 6], &[], &[0x85, 1, 7]]));
        assert!(!agree(&[1, 2], &[&[5]]));
        assert!(!agree(&[1, 0x82], &[]));
    }
}
