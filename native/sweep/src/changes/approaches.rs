//! When a thread of which nothing is known may be on the queue of a CPU.
//!
//! A thread that a CPU switches to, and of which nothing was known right before, may have been
//! waiting there for all of that time. No other row of the table shows it.
use rustc_hash::FxHashMap;

use crate::states::{NOWHERE, Row};

/// From `t` on such threads may be on this CPU's queue (`begins`), or are no longer, in ns after
/// the start of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Approach {
    pub t: i64,
    pub cpu: u16,
    pub begins: bool,
}

#[derive(Default)]
pub struct Approaches {
    /// By utid: the last stretch of which nothing is known, if it may be still going on.
    unknown: FxHashMap<u32, (i64, i64)>,
    /// By CPU: stretches, each after those before unless rows came late.
    stretches: FxHashMap<u16, Vec<(i64, i64)>>,
}

impl Approaches {
    /// Whether of any thread nothing is known.
    #[inline(always)]
    pub fn any(&self) -> bool {
        !self.unknown.is_empty()
    }

    /// A row that says that nothing is known.
    #[cold]
    pub fn unknown(&mut self, row: Row) {
        match self.unknown.get_mut(&row.utid) {
            Some((_, until)) if *until == row.ts => *until = row.until,
            _ => {
                self.unknown.insert(row.utid, (row.ts, row.until));
            }
        }
    }

    /// A thread runs: if nothing was known of it right before, it may have waited there.
    pub fn runs(&mut self, row: Row) {
        if let Some((begin, until)) = self.unknown.remove(&row.utid)
            && until == row.ts
        {
            self.add(row.cpu, begin, until);
        }
    }

    fn add(&mut self, cpu: u16, mut begin: i64, mut until: i64) {
        if cpu == NOWHERE || begin >= until {
            return;
        }
        let all = self.stretches.entry(cpu).or_default();
        while let Some((b, u)) = all.pop_if(|(b, u)| *u >= begin && *b <= until) {
            (begin, until) = (begin.min(b), until.max(u));
        }
        all.push((begin, until));
    }

    /// All edges in order of time: of each CPU, begins and ends take turns.
    pub fn finish(self) -> Vec<Approach> {
        let mut edges = Vec::new();
        for (cpu, mut all) in self.stretches {
            all.sort_unstable();
            let mut apart: Vec<(i64, i64)> = Vec::new();
            for (begin, until) in all {
                match apart.last_mut() {
                    Some(last) if last.1 >= begin => last.1 = last.1.max(until),
                    _ => apart.push((begin, until)),
                }
            }
            edges.extend(apart.into_iter().flat_map(|(begin, until)| {
                [(begin, true), (until, false)].map(|(t, begins)| Approach { t, cpu, begins })
            }));
        }
        edges.sort_unstable_by_key(|edge| (edge.t, edge.cpu));
        edges
    }
}
