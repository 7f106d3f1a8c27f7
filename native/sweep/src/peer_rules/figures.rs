//! How many waits there are and how long they are, exactly, in memory that does not grow with them.

use crate::ranks::{Ranks, Room, Share};

/// How many, and how long: exact order statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    pub n: usize,
    pub total: i64,
    pub p50: Option<i64>,
    pub p99: Option<i64>,
    pub max: Option<i64>,
}

/// The ranks that are sought.
const SHARES: [Share; 2] = [(50, 100), (99, 100)];
/// Waits that are held: 4 MB of those below 4.3 s.
const HELD: usize = 1 << 20;
/// Of a bucket that has too many: 512 kB.
const PARTS: usize = 1 << 16;

/// Waits as they are added, all of them once per pass.
#[derive(Debug, Default)]
pub struct Tally {
    ranks: Ranks,
}

impl Tally {
    #[inline]
    pub fn add(&mut self, wait: i64) {
        self.ranks.add(wait);
        if self.ranks.held() > HELD {
            self.ranks.count(&SHARES);
        }
    }

    /// All waits were added: whether another pass is needed, in any order.
    pub fn again(&mut self) -> bool {
        self.ranks.settle(&SHARES);
        self.ranks.seek(Room {
            held: HELD,
            parts: PARTS,
        });
        self.ranks.sought().next().is_some()
    }

    /// The result when no further pass is needed.
    pub fn figures(&self) -> Figures {
        let Some(found) = self.ranks.found() else {
            return Figures::default();
        };
        Figures {
            n: self.ranks.n(),
            total: self.ranks.total(),
            p50: Some(found[0]),
            p99: Some(found[1]),
            max: self.ranks.max(),
        }
    }
}
