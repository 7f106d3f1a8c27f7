//! How many waits there are and how long they are, exactly, in memory that does not grow with them.
//!
//! Some of them are held. More are counted in buckets, and those near the expected ranks, as those
//! held so far let expect, are held still. Where a rank turns out to lie elsewhere, the buckets say
//! where, and the waits are told again: those of that bucket are held then, or are still so many
//! that its parts are counted first.

/// How many, and how long: exact order statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    pub n: usize,
    pub total: i64,
    pub p50: Option<i64>,
    pub p99: Option<i64>,
    pub max: Option<i64>,
}

/// The ranks that are sought, as how many of 100 waits are not longer.
const PERCENT: [usize; 2] = [50, 99];
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

/// Of so many waits that are held one is looked at to foresee where a rank will be.
const EVERY: usize = 64;
/// How far from the rank among those, in waits of 1000, is still near: the share of the waits that
/// is not longer may be off by that.
const NEAR: [usize; 2] = [20, 4];

/// Waits near where a rank is expected: in `low..=high`, where `below` are shorter.
#[derive(Debug)]
struct Near {
    low: i64,
    high: i64,
    below: usize,
    held: Vec<i64>,
}

impl Near {
    /// Around those that `sorted` has `near` of 1000 before and after `percent`.
    fn new(sorted: &[i64], percent: usize, near: usize) -> Self {
        let at = |of_1000: usize| sorted[(sorted.len() * of_1000 / 1000).min(sorted.len() - 1)];
        Self {
            low: at((10 * percent).saturating_sub(near)),
            high: at(10 * percent + near),
            below: 0,
            held: Vec::new(),
        }
    }

    #[inline]
    fn add(&mut self, wait: i64, most: usize) {
        if wait < self.low {
            self.below += 1;
        } else if wait <= self.high && self.held.len() <= most {
            self.held.push(wait);
        }
    }

    /// The wait of a rank, if it is here and all waits here are held.
    fn ranked(&mut self, rank: usize, most: usize) -> Option<i64> {
        let at = rank.checked_sub(self.below)?;
        let known = at < self.held.len() && self.held.len() <= most;
        known.then(|| *self.held.select_nth_unstable(at).1)
    }
}

#[derive(Debug)]
enum Known {
    Held(Vec<i64>),
    Counted(Vec<usize>, [Near; 2]),
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
            Known::Counted(counts, near) => {
                counts[bucket(wait)] += 1;
                near.iter_mut().for_each(|near| near.add(wait, self.held));
                self.sum(wait);
            }
            Known::Held(waits) => {
                waits.push(wait);
                if waits.len() > self.held {
                    let mut counts = vec![0; BUCKETS];
                    let mut some: Vec<i64> = waits.iter().step_by(EVERY).copied().collect();
                    some.sort_unstable();
                    let mut near = [0, 1].map(|n| Near::new(&some, PERCENT[n], NEAR[n]));
                    for wait in waits {
                        counts[bucket(*wait)] += 1;
                        near.iter_mut().for_each(|near| near.add(*wait, self.held));
                    }
                    self.known = Known::Counted(counts, near);
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
        let ranks = PERCENT.map(|percent| (self.n * percent).div_ceil(100) - 1);
        let held = self.held;
        match &mut self.known {
            Known::Held(waits) => {
                let found = ranks.map(|rank| *waits.select_nth_unstable(rank).1);
                self.known = Known::Sought(found.map(|wait| Sought::new(0, (wait, wait), 1, held)));
            }
            Known::Counted(counts, near) => {
                let sought = [0, 1].map(|n| match near[n].ranked(ranks[n], held) {
                    Some(wait) => Sought::new(0, (wait, wait), 1, held),
                    None => {
                        let (at, below, n) = ranked(counts, ranks[n]);
                        Sought::new(below, ends(at), n, held)
                    }
                });
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
    fn what_later_waits_are_like_is_foreseen_or_they_are_told_again() {
        let wait = |n: i64| (n * 7_919) % 100_003;
        let steady: Vec<i64> = (0..100_003).map(wait).collect();
        let expected = |waits: &[i64]| {
            let mut sorted = waits.to_vec();
            sorted.sort_unstable();
            let n = sorted.len();
            (
                sorted[n.div_ceil(2) - 1],
                sorted[(n * 99).div_ceil(100) - 1],
            )
        };
        let (found, told) = figures(&steady, 20_000);
        assert_eq!(told, 1);
        assert_eq!((found.p50, found.p99), (Some(50_001), Some(99_002)));
        // What was held first says nothing of the rest; or too many are near to be held.
        let later: Vec<i64> = (0..100_003)
            .map(|n| if n < 30_000 { wait(n) } else { 10 * wait(n) })
            .collect();
        let alike: Vec<i64> = steady.iter().map(|wait| (1 << 40) + wait).collect();
        for (waits, held) in [(later, 4_000), (alike, 400)] {
            let (found, told) = figures(&waits, held);
            assert!(told > 1);
            let expected = expected(&waits);
            assert_eq!((found.p50, found.p99), (Some(expected.0), Some(expected.1)));
        }
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
