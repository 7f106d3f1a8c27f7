//! How many waits there are and how long they are, exactly, in memory that does not grow with them.
//!
//! Some of them are held. More are counted in buckets, which say where a rank lies, and the waits
//! are told again: those of that bucket are held then, or are still so many that its parts are
//! counted first.

/// How many, and how long: exact order statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    pub n: usize,
    pub total: i64,
    pub p50: Option<i64>,
    pub p99: Option<i64>,
    pub max: Option<i64>,
}

/// Waits that are held: 8 MB.
const HELD: usize = 1 << 20;
/// Of a bucket that has too many: 512 kB.
const PARTS: u64 = 1 << 16;
/// There are `1 << FINE` buckets to an octave: 868 kB.
const FINE: u32 = 11;
const BUCKETS: usize = (64 - FINE as usize) << FINE;

/// The bucket of a wait; the first has those of 0 and what is less.
#[inline]
fn bucket(wait: i64) -> usize {
    let wait = wait.max(0) as u64;
    let shift = (63 - FINE).saturating_sub((wait | 1).leading_zeros());
    ((shift as usize) << FINE) + (wait >> shift) as usize
}

/// The shortest and the longest wait that a bucket has room for.
fn ends(bucket: usize) -> (i64, i64) {
    let shift = (bucket >> FINE).saturating_sub(1);
    let low = ((bucket - (shift << FINE)) as i64) << shift;
    let high = low + ((1 << shift) - 1);
    (if bucket == 0 { i64::MIN } else { low }, high)
}

/// A wait that is looked for: it is in `low..=high`, where `below` waits are shorter.
#[derive(Debug)]
struct Sought {
    below: usize,
    low: i64,
    high: i64,
    there: There,
}

/// The waits there.
#[derive(Debug)]
enum There {
    /// They are few.
    Held(Vec<i64>),
    /// How many there are in each part of `step`.
    Counted(u64, Vec<usize>),
}

impl Sought {
    /// Where `n` waits are.
    fn new(below: usize, (low, high): (i64, i64), n: usize, held: usize) -> Self {
        let there = if n <= held || low == high {
            There::Held(Vec::new())
        } else {
            let step = high.abs_diff(low) / PARTS + 1;
            There::Counted(step, vec![0; PARTS as usize])
        };
        Self {
            below,
            low,
            high,
            there,
        }
    }

    #[inline]
    fn add(&mut self, wait: i64) {
        if self.low < self.high && (self.low..=self.high).contains(&wait) {
            match &mut self.there {
                There::Held(waits) => waits.push(wait),
                There::Counted(step, parts) => {
                    parts[(wait.abs_diff(self.low) / *step) as usize] += 1;
                }
            }
        }
    }

    /// All waits were told: where it is then.
    fn settle(&mut self, held: usize) {
        if self.low == self.high {
            return;
        }
        match &mut self.there {
            There::Held(waits) => {
                let (_, &mut found, _) = waits.select_nth_unstable(self.below);
                *self = Self::new(0, (found, found), 1, held);
            }
            There::Counted(step, parts) => {
                let step = *step;
                let (part, below, n) = ranked(parts, self.below);
                let low = self.low.wrapping_add_unsigned(part as u64 * step);
                let most = self.high.abs_diff(low);
                let high = low.wrapping_add_unsigned(most.min(step - 1));
                *self = Self::new(below, (low, high), n, held);
            }
        }
    }
}

/// In which of them the wait is below which `rank` others are, how many of those are in it, and
/// how many there are in it.
fn ranked(counts: &[usize], rank: usize) -> (usize, usize, usize) {
    let mut below = rank;
    for (at, n) in counts.iter().enumerate() {
        if below < *n {
            return (at, below, *n);
        }
        below -= n;
    }
    (counts.len() - 1, 0, 0)
}

#[derive(Debug)]
enum Known {
    Held(Vec<i64>),
    Counted(Vec<usize>),
    /// The median, and what is longer than 99 of 100.
    Sought([Sought; 2]),
}

/// Waits as they are told, all of them as often as they are asked for.
#[derive(Debug)]
pub struct Tally {
    n: usize,
    total: i64,
    max: i64,
    known: Known,
    held: usize,
}

impl Default for Tally {
    fn default() -> Self {
        Self::holding(HELD)
    }
}

impl Tally {
    fn holding(held: usize) -> Self {
        Self {
            n: 0,
            total: 0,
            max: i64::MIN,
            known: Known::Held(Vec::new()),
            held,
        }
    }

    #[inline]
    pub fn add(&mut self, wait: i64) {
        match &mut self.known {
            Known::Sought(both) => both.iter_mut().for_each(|one| one.add(wait)),
            Known::Counted(counts) => {
                counts[bucket(wait)] += 1;
                self.sum(wait);
            }
            Known::Held(waits) => {
                waits.push(wait);
                if waits.len() > self.held {
                    let mut counts = vec![0; BUCKETS];
                    waits.iter().for_each(|wait| counts[bucket(*wait)] += 1);
                    self.known = Known::Counted(counts);
                }
                self.sum(wait);
            }
        }
    }

    #[inline]
    fn sum(&mut self, wait: i64) {
        self.n += 1;
        self.total = self.total.saturating_add(wait);
        self.max = self.max.max(wait);
    }

    /// All waits were told: whether they are to be told once more, in any order.
    pub fn again(&mut self) -> bool {
        if self.n == 0 {
            return false;
        }
        // Nearest rank: the shortest wait such that at least the share is not longer.
        let ranks = [50, 99].map(|percent| (self.n * percent).div_ceil(100) - 1);
        let held = self.held;
        match &mut self.known {
            Known::Held(waits) => {
                let found = ranks.map(|rank| *waits.select_nth_unstable(rank).1);
                self.known = Known::Sought(found.map(|wait| Sought::new(0, (wait, wait), 1, held)));
            }
            Known::Counted(counts) => {
                let found = ranks.map(|rank| ranked(counts, rank));
                let sought = found.map(|(at, below, n)| Sought::new(below, ends(at), n, held));
                self.known = Known::Sought(sought);
            }
            Known::Sought(both) => both.iter_mut().for_each(|one| one.settle(held)),
        }
        match &self.known {
            Known::Sought(both) => both.iter().any(|one| one.low < one.high),
            _ => false,
        }
    }

    /// What is known when they need not be told again.
    pub fn figures(&self) -> Figures {
        let Known::Sought([p50, p99]) = &self.known else {
            return Figures::default();
        };
        Figures {
            n: self.n,
            total: self.total,
            p50: Some(p50.low),
            p99: Some(p99.low),
            max: Some(self.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(waits: &[i64], held: usize) -> (Figures, usize) {
        let mut tally = Tally::holding(held);
        for told in 1.. {
            waits.iter().for_each(|wait| tally.add(*wait));
            if !tally.again() {
                return (tally.figures(), told);
            }
        }
        unreachable!("it is told as often as it takes")
    }

    #[test]
    fn figures_are_nearest_ranks() {
        let waits: Vec<i64> = (1..=200).rev().collect();
        let expected = Figures {
            n: 200,
            total: 20_100,
            p50: Some(100),
            p99: Some(198),
            max: Some(200),
        };
        assert_eq!(figures(&waits, HELD), (expected, 1));
        assert_eq!(figures(&[7], HELD).0.p99, Some(7));
        assert_eq!(figures(&[], HELD), (Figures::default(), 1));
    }

    #[test]
    fn every_wait_is_in_the_bucket_whose_ends_it_is_between() {
        let (mut after, mut number) = (i64::MIN, 0);
        while number < BUCKETS {
            let (low, high) = ends(number);
            assert!(low == after && low <= high, "{number}");
            assert_eq!((bucket(low), bucket(high)), (number, number));
            (after, number) = (high.wrapping_add(1), number + 1);
        }
        assert_eq!(after, i64::MIN, "the last one ends with the longest");
    }

    #[test]
    fn how_many_are_held_changes_nothing() {
        let mut seed = 11u64;
        let mut most = 0;
        for round in 0..300 {
            let mut any = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                seed >> 20
            };
            // Of very different lengths, or nearly alike; one may be negative in a forged file.
            let bits = any() % 44;
            let waits: Vec<i64> = (0..1 + any() % 300)
                .map(|_| match round % 3 {
                    0 => (any() & ((1 << bits) - 1)) as i64 - i64::from(any() % 9 == 0),
                    1 => (1i64 << 61) + (any() % 1_000_000) as i64,
                    _ => (any() % 5) as i64 * 1_000_003,
                })
                .collect();
            let mut sorted = waits.clone();
            sorted.sort_unstable();
            let n = sorted.len();
            let expected = Figures {
                n,
                total: sorted
                    .iter()
                    .fold(0, |sum: i64, wait| sum.saturating_add(*wait)),
                p50: Some(sorted[n.div_ceil(2) - 1]),
                p99: Some(sorted[(n * 99).div_ceil(100) - 1]),
                max: sorted.last().copied(),
            };
            for held in [0, 1, 10, HELD] {
                let (found, told) = figures(&waits, held);
                assert_eq!(
                    found,
                    Figures {
                        total: found.total,
                        ..expected
                    },
                    "{waits:?}"
                );
                most = most.max(told);
            }
        }
        assert!((3..=6).contains(&most), "{most}");
    }
}
