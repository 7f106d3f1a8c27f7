//! Exact order statistics of values that are added one by one, in bounded memory.
//!
//! Values are held until the caller finds them too many. Then they are counted in buckets, and
//! those near the expected ranks, as those held so far let expect, are held still. Where a rank
//! turns out to lie elsewhere, the buckets show where, and all values are added again: those of
//! that bucket are held then, or are still so many that its parts are counted first.

/// So many of so many values are not greater than the one that is sought: a part of a whole.
pub type Share = (u64, u64);

/// The finest buckets: there are `1 << FINE` to an octave.
const FINE: u32 = 11;
/// Near a rank is only foreseen from so many values.
const FORESEEN: usize = 1 << 14;
/// How far from the rank among those is still near: the standard error of a share of 10,000 values,
/// so many times.
const ERRORS: f64 = 4.0;
const OF: f64 = 10_000.0;

/// Values in any order, those of less than 32 bits (4.3 s in ns, so nearly all) in half the memory.
#[derive(Debug, Default)]
struct Values {
    short: Vec<u32>,
    /// Greater ones, and what is negative in a forged file.
    long: Vec<i64>,
}

impl Values {
    fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }

    #[inline]
    fn push(&mut self, value: i64) {
        match u32::try_from(value) {
            Ok(short) => self.short.push(short),
            Err(_) => self.long.push(value),
        }
    }

    fn iter(&self) -> impl Iterator<Item = i64> {
        let short = self.short.iter().map(|short| i64::from(*short));
        short.chain(self.long.iter().copied())
    }

    /// The one that `rank` others come before.
    fn ranked(&mut self, rank: usize) -> Option<i64> {
        let negative = self.long.iter().filter(|value| **value < 0).count();
        match rank.checked_sub(negative) {
            Some(at) if at < self.short.len() => {
                Some(i64::from(*self.short.select_nth_unstable(at).1))
            }
            Some(_) => {
                let at = rank - self.short.len();
                (at < self.long.len()).then(|| *self.long.select_nth_unstable(at).1)
            }
            None => Some(*self.long.select_nth_unstable(rank).1),
        }
    }
}

/// Which bucket a value is in, with `1 << fine` to an octave.
#[derive(Debug, Clone, Copy)]
struct Buckets {
    fine: u32,
}

impl Buckets {
    fn len(self) -> usize {
        (64 - self.fine as usize) << self.fine
    }

    /// The finest of which there are no more than so many.
    fn within(most: usize) -> Self {
        let fits = |fine: &u32| Self { fine: *fine }.len() <= most;
        let fine = (0..=FINE).rev().find(fits).unwrap_or(0);
        Self { fine }
    }

    /// The first has 0 and what is less.
    #[inline]
    fn of(self, value: i64) -> usize {
        let value = value.max(0) as u64;
        let shift = (63 - self.fine).saturating_sub((value | 1).leading_zeros());
        ((shift as usize) << self.fine) + (value >> shift) as usize
    }

    /// The least and the greatest value that a bucket has room for.
    fn ends(self, bucket: usize) -> (i64, i64) {
        let shift = (bucket >> self.fine).saturating_sub(1);
        let low = ((bucket - (shift << self.fine)) as i64) << shift;
        let high = low + ((1 << shift) - 1);
        (if bucket == 0 { i64::MIN } else { low }, high)
    }
}

/// In which of them the value is below which `rank` others are, how many of those are in it, and
/// how many there are in it.
fn ranked(counts: &[u64], rank: usize) -> (usize, usize, usize) {
    let mut below = rank as u64;
    for (at, n) in counts.iter().enumerate() {
        if below < *n {
            return (at, below as usize, *n as usize);
        }
        below -= n;
    }
    (counts.len() - 1, 0, 0)
}

/// Values near where a rank is expected: in `low..=high`, where `below` are less.
#[derive(Debug)]
struct Near {
    low: i64,
    high: i64,
    below: usize,
    held: Values,
    /// Nothing is held any more once there are more than so many.
    most: usize,
}

impl Near {
    /// Around those that `sorted` has just before and after the share.
    fn new(sorted: &[i64], (part, whole): Share, most: usize) -> Self {
        let share = part as f64 / whole as f64;
        let near = ERRORS * (share * (1.0 - share) / OF).sqrt();
        let last = sorted.len() - 1;
        let at = |share: f64| sorted[((sorted.len() as f64 * share) as usize).min(last)];
        Self {
            low: at(share - near),
            high: at(share + near),
            below: 0,
            held: Values::default(),
            most,
        }
    }

    #[inline]
    fn add(&mut self, value: i64) {
        if value < self.low {
            self.below += 1;
        } else if value <= self.high {
            self.hold(value);
        }
    }

    fn hold(&mut self, value: i64) {
        self.held.push(value);
        if self.held.len() > self.most {
            // None is here, nor can be: all are below.
            (self.low, self.high) = (i64::MIN, i64::MIN);
            (self.below, self.held) = (usize::MAX, Values::default());
        }
    }

    fn ranked(&mut self, rank: usize) -> Option<i64> {
        self.held.ranked(rank.checked_sub(self.below)?)
    }
}

/// A value that is looked for: it is in `low..=high`, where `below` others are less and `n` are.
#[derive(Debug)]
struct Sought {
    below: usize,
    low: i64,
    high: i64,
    n: usize,
    there: There,
}

/// The values there.
#[derive(Debug)]
enum There {
    /// They are few.
    Held(Values),
    /// How many there are in each part of `step`.
    Counted(u64, Vec<u64>),
}

impl Sought {
    fn new(below: usize, (low, high): (i64, i64), n: usize) -> Self {
        Self {
            below,
            low,
            high,
            n,
            there: There::Held(Values::default()),
        }
    }

    fn found(value: i64) -> Self {
        Self::new(0, (value, value), 1)
    }

    fn is_found(&self) -> bool {
        self.low == self.high
    }

    /// Makes room for what is there.
    fn prepare(&mut self, room: Room) {
        if !self.is_found() && self.n > room.held {
            let parts = room.parts.max(2);
            let step = self.high.abs_diff(self.low) / parts as u64 + 1;
            self.there = There::Counted(step, vec![0; parts]);
        }
    }

    #[inline]
    fn add(&mut self, value: i64) {
        if self.low < self.high && (self.low..=self.high).contains(&value) {
            match &mut self.there {
                There::Held(values) => values.push(value),
                There::Counted(step, parts) => {
                    parts[(value.abs_diff(self.low) / *step) as usize] += 1;
                }
            }
        }
    }

    /// All values were added: the rank's place.
    fn settle(&mut self) {
        if self.is_found() {
            return;
        }
        let found = match &mut self.there {
            There::Held(values) => values.ranked(self.below).map(Self::found),
            There::Counted(step, parts) => {
                let step = *step;
                let (part, below, n) = ranked(parts, self.below);
                let low = self.low.wrapping_add_unsigned(part as u64 * step);
                let most = self.high.abs_diff(low);
                let high = low.wrapping_add_unsigned(most.min(step - 1));
                Some(Self::new(below, (low, high), n))
            }
        };
        if let Some(found) = found {
            *self = found;
        }
    }
}

/// The memory for sought ranks when all values are added again.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Values of each that are held.
    pub held: usize,
    /// Where there are more: parts that are counted.
    pub parts: usize,
}

#[derive(Debug)]
enum Known {
    Held(Values),
    Counted(Buckets, Vec<u64>, Vec<Near>),
    /// One for each share.
    Sought(Vec<Sought>),
}

/// How many values there are, their sum, the greatest, and those of some ranks.
///
/// All are passed to `add`, and then once more as long as `seek` finds a rank to seek.
#[derive(Debug)]
pub struct Ranks {
    n: usize,
    total: i64,
    max: i64,
    known: Known,
}

impl Default for Ranks {
    fn default() -> Self {
        Self {
            n: 0,
            total: 0,
            max: i64::MIN,
            known: Known::Held(Values::default()),
        }
    }
}

impl Ranks {
    #[inline]
    pub fn add(&mut self, value: i64) {
        match &mut self.known {
            Known::Held(values) => values.push(value),
            Known::Counted(buckets, counts, near) => {
                counts[buckets.of(value)] += 1;
                near.iter_mut().for_each(|near| near.add(value));
            }
            Known::Sought(all) => {
                all.iter_mut().for_each(|one| one.add(value));
                return;
            }
        }
        self.n += 1;
        self.total = self.total.saturating_add(value);
        self.max = self.max.max(value);
    }

    pub fn n(&self) -> usize {
        self.n
    }

    pub fn total(&self) -> i64 {
        self.total
    }

    pub fn max(&self) -> Option<i64> {
        (self.n > 0).then_some(self.max)
    }

    /// Values that are held, as many as there are: they are not counted yet.
    #[inline]
    pub fn held(&self) -> usize {
        match &self.known {
            Known::Held(values) => values.len(),
            _ => 0,
        }
    }

    /// Counts from now on: buckets take half of what the values took, and those near the ranks no
    /// more than those did.
    #[cold]
    pub fn count(&mut self, shares: &[Share]) {
        let Known::Held(values) = &self.known else {
            return;
        };
        let held = values.len();
        let buckets = Buckets::within(held / 4);
        let mut counts = vec![0; buckets.len()];
        let mut near = Vec::new();
        if held >= FORESEEN {
            let mut some: Vec<i64> = values.iter().step_by(held / FORESEEN).collect();
            some.sort_unstable();
            let most = held / shares.len().max(1);
            near.extend(shares.iter().map(|share| Near::new(&some, *share, most)));
        }
        for value in values.iter() {
            counts[buckets.of(value)] += 1;
            near.iter_mut().for_each(|near| near.add(value));
        }
        self.known = Known::Counted(buckets, counts, near);
    }

    /// All values were added: finds those of the shares, or their buckets.
    pub fn settle(&mut self, shares: &[Share]) {
        let n = self.n as u64;
        // Nearest rank: the least value such that at least the share is not greater.
        let ranks = shares.iter().map(|(part, whole)| {
            let rank = (u128::from(n) * u128::from(*part)).div_ceil(u128::from(*whole)) as u64;
            (rank.clamp(1, n.max(1)) - 1) as usize
        });
        match &mut self.known {
            Known::Held(values) => {
                let found = ranks.filter_map(|rank| values.ranked(rank));
                self.known = Known::Sought(found.map(Sought::found).collect());
            }
            Known::Counted(buckets, counts, near) => {
                let sought = ranks.enumerate().map(|(at, rank)| {
                    let near = near.get_mut(at).and_then(|near| near.ranked(rank));
                    near.map_or_else(
                        || {
                            let (at, below, n) = ranked(counts, rank);
                            Sought::new(below, buckets.ends(at), n)
                        },
                        Sought::found,
                    )
                });
                self.known = Known::Sought(sought.collect());
            }
            Known::Sought(all) => all.iter_mut().for_each(Sought::settle),
        }
    }

    /// After `settle`, of each value that is sought still, how many it is among.
    pub fn sought(&self) -> impl Iterator<Item = usize> {
        let all = match &self.known {
            Known::Sought(all) => &all[..],
            _ => &[],
        };
        let all = all.iter().filter(|one| !one.is_found());
        all.map(|one| one.n)
    }

    /// Prepares for another pass over all values.
    pub fn seek(&mut self, room: Room) {
        if let Known::Sought(all) = &mut self.known {
            all.iter_mut().for_each(|one| one.prepare(room));
        }
    }

    /// The value of each share, once none is sought; none without values.
    pub fn found(&self) -> Option<Vec<i64>> {
        match &self.known {
            Known::Sought(all) if self.n > 0 => Some(all.iter().map(|one| one.low).collect()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARES: [Share; 3] = [(1, 2), (99, 100), (1, 1000)];

    /// Those of the shares, and the number of passes, when so many are held.
    fn found(values: &[i64], held: usize, parts: usize) -> (Vec<i64>, usize) {
        let mut ranks = Ranks::default();
        for told in 1.. {
            for value in values {
                ranks.add(*value);
                if ranks.held() > held {
                    ranks.count(&SHARES);
                }
            }
            ranks.settle(&SHARES);
            ranks.seek(Room { held, parts });
            if ranks.sought().next().is_none() {
                assert_eq!(ranks.n(), values.len());
                assert_eq!(ranks.max(), values.iter().max().copied());
                return (ranks.found().unwrap_or_default(), told);
            }
        }
        unreachable!("they are told as often as it takes")
    }

    /// The same by sorting.
    fn expected(values: &[i64]) -> Vec<i64> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let n = sorted.len();
        let ranks = [n.div_ceil(2), (n * 99).div_ceil(100), n.div_ceil(1000)];
        ranks.map(|rank| sorted[rank - 1]).into()
    }

    #[test]
    fn they_are_nearest_ranks() {
        let values: Vec<i64> = (1..=200).rev().collect();
        assert_eq!(found(&values, 200, 2), (vec![100, 198, 1], 1));
        assert_eq!(found(&[7], 1, 2).0, [7, 7, 7]);
        assert_eq!(found(&[], 1, 2), (vec![], 1));
    }

    #[test]
    fn short_and_long_ones_are_in_one_order() {
        let values = [1 << 40, 7, -5, 1 << 32, u32::MAX.into(), 3, -6];
        let mut held = Values::default();
        values.iter().for_each(|value| held.push(*value));
        let ranked: Vec<i64> = (0..8).filter_map(|rank| held.ranked(rank)).collect();
        assert_eq!(ranked, [-6, -5, 3, 7, u32::MAX.into(), 1 << 32, 1 << 40]);
    }

    #[test]
    fn what_later_ones_are_like_is_foreseen_or_they_are_told_again() {
        let value = |n: i64| (n * 7_919) % 100_003;
        let steady: Vec<i64> = (0..100_003).map(value).collect();
        let (ranks, told) = found(&steady, 20_000, 1 << 16);
        assert_eq!((ranks, told), (vec![50_001, 99_002, 100], 1));
        // What was held first says nothing of the rest; or too many are near to be held.
        let later: Vec<i64> = (0..100_003)
            .map(|n| if n < 30_000 { value(n) } else { 10 * value(n) })
            .collect();
        let alike: Vec<i64> = (0..200_000).map(|n| (1 << 40) + n % 3).collect();
        for (values, held) in [(later, 20_000), (alike, 20_000)] {
            let (ranks, told) = found(&values, held, 1 << 16);
            assert!(told > 1);
            assert_eq!(ranks, expected(&values));
        }
    }

    #[test]
    fn every_value_is_in_the_bucket_whose_ends_it_is_between() {
        for fine in [0, 1, 3, FINE] {
            let buckets = Buckets { fine };
            let (mut after, mut number) = (i64::MIN, 0);
            while number < buckets.len() {
                let (low, high) = buckets.ends(number);
                assert!(low == after && low <= high, "{number}");
                assert_eq!((buckets.of(low), buckets.of(high)), (number, number));
                (after, number) = (high.wrapping_add(1), number + 1);
            }
            assert_eq!(after, i64::MIN, "the last one ends with the greatest");
        }
        assert_eq!(Buckets::within(0).len(), 64);
        assert_eq!(Buckets::within(488).len(), 488);
        assert_eq!(Buckets::within(1 << 20).fine, FINE);
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
            // Of very different sizes, or nearly alike; one may be negative in a forged file.
            let bits = any() % 44;
            let values: Vec<i64> = (0..1 + any() % 300)
                .map(|_| match round % 3 {
                    0 => (any() & ((1 << bits) - 1)) as i64 - i64::from(any() % 9 == 0),
                    1 => (1i64 << 61) + (any() % 1_000_000) as i64,
                    _ => (any() % 5) as i64 * 1_000_003,
                })
                .collect();
            for (held, parts) in [(0, 2), (1, 16), (10, 1 << 16), (1 << 20, 2)] {
                let (ranks, told) = found(&values, held, parts);
                assert_eq!(ranks, expected(&values), "{values:?}");
                if parts >= 16 {
                    most = most.max(told);
                }
            }
        }
        assert!((3..=17).contains(&most), "{most}");
    }
}
