//! How long victims waited for each group, by how the wait began.
use rustc_hash::FxHashMap;

use super::log::{Cpu, Run, Waiter};
use crate::model::event::Cause;

/// How a wait began.
pub const CAUSES: usize = Cause::TEXTS.len();

/// Of a victim, one cause and a group: time (ns), and waits in which it ran.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    time: i64,
    n: u32,
}

impl Cell {
    #[inline]
    fn add(&mut self, other: Self) {
        self.time += other.time;
        self.n += other.n;
    }
}

/// Time that a victim waited for a group (ns), by cause, and waits in which it ran.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Blamed {
    pub time: [i64; CAUSES],
    pub n: u32,
}

impl Blamed {
    fn any(&self) -> bool {
        self.time.iter().any(|time| *time > 0)
    }
}

/// A row for each victim and cause, a column for each group; or, where that were too many,
/// those that are needed.
pub struct Cells {
    groups: usize,
    table: Vec<Cell>,
    sparse: FxHashMap<(u32, u32), Cell>,
}

impl Cells {
    pub fn new(rows: usize, groups: usize, most: usize) -> Self {
        let size = Some(rows.saturating_mul(groups)).filter(|size| *size <= most);
        Self {
            groups,
            table: vec![Cell::default(); size.unwrap_or(0)],
            sparse: FxHashMap::default(),
        }
    }

    /// Of one victim and cause; none where there is no table.
    fn row(&mut self, row: u32) -> Option<&mut [Cell]> {
        let begin = row as usize * self.groups;
        self.table.get_mut(begin..begin + self.groups)
    }

    /// Charges a wait with its part of `runs`, and counts those groups that ran in it for the
    /// first time; `seen` are others.
    pub fn charge(&mut self, waiter: &Waiter, seen: &[u32], runs: &[Run]) {
        let parts = runs.iter().map(|run| {
            let time = run.until - run.since.max(waiter.begin);
            let fresh = time > 0
                && run.before <= waiter.begin
                && (seen.is_empty() || !seen.contains(&run.group));
            let n = u32::from(fresh);
            (run.group, Cell { time, n })
        });
        if let Some(row) = self.row(waiter.row) {
            for (group, part) in parts {
                row[group as usize].add(part);
            }
        } else {
            for (group, part) in parts {
                let cell = self.sparse.entry((waiter.row, group)).or_default();
                cell.add(part);
            }
        }
    }

    /// From now on the wait goes by sums: it had its part of `runs`, and of what the `sums`
    /// will be at its end, the sums of now are not its own. Whether there is a table for it.
    pub fn begin(&mut self, waiter: &Waiter, runs: &[Run], sums: &[i64]) -> bool {
        let Some(row) = self.row(waiter.row) else {
            return false;
        };
        for run in runs {
            row[run.group as usize].time += run.until - run.since.max(waiter.begin);
        }
        for (cell, sum) in row.iter_mut().zip(sums) {
            cell.time -= sum;
        }
        true
    }

    pub fn end(&mut self, waiter: &Waiter, seen: &[u32], cpu: &Cpu) {
        let Some(row) = self.row(waiter.row) else {
            return;
        };
        for ((cell, sum), last) in row.iter_mut().zip(&cpu.sums).zip(&cpu.last) {
            cell.time += sum;
            cell.n += u32::from(*last > waiter.begin);
        }
        for group in seen {
            row[*group as usize].n -= u32::from(cpu.last[*group as usize] > waiter.begin);
        }
    }

    /// By victim and group.
    pub fn blamed(self) -> Vec<(u32, u32, Blamed)> {
        let mut found = Vec::new();
        for (victim, rows) in (0..).zip(self.table.chunks(self.groups * CAUSES)) {
            let mut all = vec![Blamed::default(); self.groups];
            for (cause, row) in rows.chunks(self.groups).enumerate() {
                for (blamed, cell) in all.iter_mut().zip(row) {
                    blamed.time[cause] = cell.time;
                    blamed.n += cell.n;
                }
            }
            let some = (0..).zip(all).filter(|(_, blamed)| blamed.any());
            found.extend(some.map(|(group, blamed)| (victim, group, blamed)));
        }
        let mut few: FxHashMap<(u32, u32), Blamed> = FxHashMap::default();
        for ((row, group), cell) in self.sparse {
            let (victim, cause) = (row / CAUSES as u32, row as usize % CAUSES);
            let blamed = few.entry((victim, group)).or_default();
            blamed.time[cause] = cell.time;
            blamed.n += cell.n;
        }
        let some = few.into_iter().filter(|(_, blamed)| blamed.any());
        found.extend(some.map(|((victim, group), blamed)| (victim, group, blamed)));
        found
    }
}
