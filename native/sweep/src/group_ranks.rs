//! Exact order statistics of the values of groups, in memory that grows with the groups only.
//!
//! All values are added, and added again as long as `seek` says so: up to `HELD` values once is
//! enough, and with more the groups share the memory of so many (`ranks`).

use crate::ranks::{Ranks, Room, Share};

/// Values that are held, of all groups: 67 MB of values below 2^32.
const HELD: usize = 1 << 24;
/// A group that has fewer goes on holding them: it takes 4 kB, which buckets would take, too.
const FEW: usize = 1 << 10;
/// Of values of which too many are near a rank: the fewest parts that are counted. With these a
/// value is found in 16 more readings at most.
const PARTS: usize = 1 << 4;

/// Does one reading suffice to hold so many values near each rank; else, what each may take.
fn room(sought: &[usize], held: usize) -> Room {
    if sought.iter().sum::<usize>() <= held {
        return Room { held, parts: PARTS };
    }
    let each = held / 2 / sought.len();
    Room {
        held: each,
        parts: each.clamp(PARTS, 1 << 16),
    }
}

/// How many values each group has, their sum, the greatest, and those of some ranks.
pub struct GroupRanks {
    shares: Vec<Share>,
    of: Vec<Ranks>,
    held: usize,
    /// After so many more values too many may be held.
    unchecked: usize,
    again: bool,
}

impl GroupRanks {
    pub fn new(shares: Vec<Share>) -> Self {
        Self::within(HELD, shares)
    }

    fn within(held: usize, shares: Vec<Share>) -> Self {
        Self {
            shares,
            of: Vec::new(),
            held,
            unchecked: held,
            again: false,
        }
    }

    /// Makes room for at least so many groups.
    pub fn grow(&mut self, groups: usize) {
        if self.of.len() < groups {
            self.of.resize_with(groups, Ranks::default);
        }
    }

    /// One more value of a group there is room for.
    #[inline]
    pub fn add(&mut self, group: usize, value: i64) {
        self.of[group].add(value);
        self.unchecked -= 1;
        if self.unchecked == 0 {
            self.check();
        }
    }

    /// If too many values are held, those of large groups are counted from now on.
    #[cold]
    fn check(&mut self) {
        let held = |of: &[Ranks]| -> usize { of.iter().map(Ranks::held).sum() };
        if held(&self.of) >= self.held {
            let few = FEW.min(self.held);
            for ranks in self.of.iter_mut().filter(|ranks| ranks.held() >= few) {
                ranks.count(&self.shares);
            }
        }
        // Many small groups may hold more, but are not looked at too often.
        let left = self.held.saturating_sub(held(&self.of));
        self.unchecked = left.max(self.held / 8).max(1);
    }

    /// All values were added: whether they are needed again.
    pub fn seek(&mut self) -> bool {
        self.again = true;
        let mut sought = Vec::new();
        for ranks in &mut self.of {
            ranks.settle(&self.shares);
            sought.extend(ranks.sought());
        }
        let room = room(&sought, self.held);
        self.of.iter_mut().for_each(|ranks| ranks.seek(room));
        !sought.is_empty()
    }

    /// All values were added once, and are being added again.
    pub fn again(&self) -> bool {
        self.again
    }

    pub fn of(&self, group: usize) -> &Ranks {
        &self.of[group]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_in_a_later_reading_is_bounded() {
        let most = |sought: &[usize]| -> usize {
            let Room { held, parts } = room(sought, HELD);
            let taken = sought
                .iter()
                .map(|n| if *n <= held { *n } else { 2 * parts });
            taken.sum()
        };
        for sought in [
            vec![],
            vec![HELD],
            vec![HELD + 1],
            vec![HELD; 1000],
            vec![1 << 10; 60_000],
            [vec![1 << 9; 60_000], vec![HELD]].concat(),
        ] {
            assert!(most(&sought) <= HELD, "{}", sought.len());
        }
        // Half a million groups, and three ranks of each.
        assert_eq!(room(&vec![1 << 9; 1_500_000], HELD).parts, PARTS);
    }

    /// Values of very different sizes, in groups of very different sizes.
    fn values() -> Vec<(usize, i64)> {
        let mut seed = 11u64;
        let mut any = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 20
        };
        let mut value = |_| {
            let (group, bits) = (any() % 20 * (any() % 20) / 19, any() % 44);
            (group as usize, (any() & ((1 << bits) - 1)) as i64)
        };
        (0..5_000).map(&mut value).collect()
    }

    #[test]
    fn how_many_values_are_held_does_not_change_the_ranks() {
        let (shares, values) = (vec![(1, 2), (99, 100), (1, 1)], values());
        let mut most = 0;
        for held in [1, 8, 100, 2_000, HELD] {
            let mut groups = GroupRanks::within(held, shares.clone());
            // The last has no value.
            groups.grow(21);
            let mut readings = 0;
            loop {
                values
                    .iter()
                    .for_each(|(at, value)| groups.add(*at, *value));
                readings += 1;
                if !groups.seek() {
                    break;
                }
            }
            assert_eq!(readings == 1, held == HELD, "{held}");
            most = most.max(readings);
            for group in 0..21 {
                let of_group = values.iter().filter(|(at, _)| *at == group);
                let mut mine: Vec<i64> = of_group.map(|(_, value)| *value).collect();
                mine.sort_unstable();
                let (found, n) = (groups.of(group), mine.len());
                assert_eq!((found.n(), found.max()), (n, mine.last().copied()));
                let ranks = [n.div_ceil(2), (n * 99).div_ceil(100), n];
                let expected = (n > 0).then(|| ranks.map(|rank| mine[rank - 1]).into());
                assert_eq!(found.found(), expected, "{group} of {held}");
            }
        }
        assert!(most > 2);
    }
}
