//! How long victims waited for each group, by how the wait began.
use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::log::{Log, Run, Stretch};
use crate::model::event::Cause;

/// How a wait began.
pub const CAUSES: usize = Cause::TEXTS.len();

/// Time that a victim waited for a group (ns), by cause, and waits in which it ran.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Blamed {
    pub time: [i64; CAUSES],
    pub n: u32,
}

impl Blamed {
    fn all(&self) -> i64 {
        self.time.iter().sum()
    }

    fn add(&mut self, cause: usize, cell: Cell) {
        self.time[cause] += cell.time;
        self.n = self.n.wrapping_add(cell.n as u32);
    }
}

/// Of a victim, one cause and a group: time (ns), and waits in which it ran.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cell {
    pub time: i64,
    pub n: i64,
}

impl Cell {
    #[inline]
    fn plus(self, other: Self) -> Self {
        Self {
            time: self.time + other.time,
            n: self.n + other.n,
        }
    }

    #[inline]
    fn within(self, most: Self) -> bool {
        self.time <= most.time && self.n <= most.n
    }
}

/// A cell in one word, the time in its lower bits: the smaller the rows, the more of them are in
/// the processor's cache, and one addition does for both.
#[derive(Debug, Clone, Copy, Default)]
struct Small(u64);

const TIME_BITS: u32 = 40;
/// 18 minutes, and 16 million waits.
pub const MOST_SMALL: Cell = Small(u64::MAX).cell();

impl Small {
    #[inline]
    fn add(&mut self, part: Cell) {
        self.0 += part.time as u64 + ((part.n as u64) << TIME_BITS);
    }

    const fn cell(self) -> Cell {
        Cell {
            time: (self.0 & ((1 << TIME_BITS) - 1)) as i64,
            n: (self.0 >> TIME_BITS) as i64,
        }
    }
}

/// Calls `take` with each group that had a part of a wait in `runs`, one cell for each run.
/// Those that are `known` were counted in the wait.
#[inline]
fn parts(begin: i64, runs: &[Run], known: impl Fn(u32) -> bool, mut take: impl FnMut(u32, Cell)) {
    // Who ran when the wait began is in the log from some time before, and all of them up to
    // one instant.
    let first = runs.first().map_or(begin, |run| run.until);
    let head = runs.iter().take_while(|run| run.until == first).count();
    let (head, whole) = runs.split_at(head);
    let fresh = |run: &Run| run.before <= begin && !known(run.group);
    for run in head {
        let time = run.until - run.since.max(begin);
        let n = i64::from(time > 0 && fresh(run));
        take(run.group, Cell { time, n });
    }
    for run in whole {
        let time = run.until - run.since;
        let n = i64::from(fresh(run));
        take(run.group, Cell { time, n });
    }
}

/// Of one victim and cause, by group; none until there is something in them.
#[derive(Default, Clone)]
struct Row {
    small: Vec<Small>,
    /// No small cell is above.
    bound: Cell,
    /// What is not in small cells.
    wide: Vec<Cell>,
}

impl Row {
    /// Whether small cells take that much: if need be, what is in them becomes wide.
    #[inline]
    fn makes_room(&mut self, part: Cell, most: Cell) -> bool {
        if !part.within(most) {
            return false;
        }
        let full = !self.bound.plus(part).within(most);
        if full {
            self.spill();
        }
        self.bound = self.bound.plus(part);
        true
    }

    #[cold]
    fn spill(&mut self) {
        let small = std::mem::take(&mut self.small);
        for (wide, small) in self.wide(small.len()).iter_mut().zip(small) {
            *wide = wide.plus(small.cell());
        }
        self.bound = Cell::default();
    }

    #[inline]
    fn small(&mut self, groups: usize) -> &mut [Small] {
        if self.small.is_empty() {
            self.small.resize(groups, Small::default());
        }
        &mut self.small
    }

    fn wide(&mut self, groups: usize) -> &mut [Cell] {
        self.wide.resize(groups, Cell::default());
        &mut self.wide
    }

    /// What a group has now is added, or taken away, as of a wait that goes by sums.
    fn sum(&mut self, groups: usize, log: &Log, (begin, seen): (i64, &[u32]), sign: i64) {
        let cells = self.wide(groups);
        let counted = |last: i64| i64::from(last > begin);
        for ran in log.ran() {
            let cell = &mut cells[ran.group as usize];
            cell.time += sign * ran.sum;
            cell.n += sign * counted(ran.last);
        }
        for group in seen {
            cells[*group as usize].n -= sign * counted(log.last(*group));
        }
    }
}

/// Which cells there are at most.
#[derive(Clone, Copy)]
pub struct Most {
    /// In rows of all groups.
    pub cells: usize,
    /// In a small cell.
    pub small: Cell,
}

/// A row for each victim and cause; or, where that were too many cells, those that are needed.
pub struct Cells {
    groups: usize,
    small: Cell,
    rows: Vec<Row>,
    sparse: FxHashMap<(u32, u32), Cell>,
}

impl Cells {
    pub fn new(rows: usize, groups: usize, most: Most) -> Self {
        let few = rows.saturating_mul(groups) <= most.cells;
        Self {
            groups,
            small: most.small,
            rows: vec![Row::default(); if few { rows } else { 0 }],
            sparse: FxHashMap::default(),
        }
    }

    /// Charges a wait with its part of `runs`, `at_once` of them at most at a time, and counts
    /// those groups that ran in it for the first time; `seen` are others.
    pub fn charge(&mut self, wait: Stretch, seen: &[u32], runs: &[Run], at_once: usize) {
        if seen.is_empty() {
            self.add(wait, runs, at_once, |_| false);
        } else {
            self.add(wait, runs, at_once, |group| seen.contains(&group));
        }
    }

    #[inline]
    fn add(&mut self, wait: Stretch, runs: &[Run], at_once: usize, known: impl Fn(u32) -> bool) {
        let Some(last) = runs.last() else {
            return;
        };
        let Stretch { begin, row } = wait;
        let Some(cells) = self.rows.get_mut(row as usize) else {
            parts(begin, runs, known, |group, part| {
                let cell = self.sparse.entry((row, group)).or_default();
                *cell = cell.plus(part);
            });
            return;
        };
        let most = Cell {
            time: (last.until - begin).saturating_mul(at_once as i64),
            n: 1,
        };
        if cells.makes_room(most, self.small) {
            let small = cells.small(self.groups);
            parts(begin, runs, known, |group, part| {
                small[group as usize].add(part);
            });
        } else {
            let wide = cells.wide(self.groups);
            parts(begin, runs, known, |group, part| {
                let cell = &mut wide[group as usize];
                *cell = cell.plus(part);
            });
        }
    }

    /// From now on the wait goes by sums: of what each group will have in the log at its end,
    /// what it has now is not its own. Whether there is a row for it.
    pub fn begin(&mut self, wait: Stretch, seen: &[u32], log: &Log) -> bool {
        let row = self.rows.get_mut(wait.row as usize);
        let Some(row) = row else {
            return false;
        };
        row.sum(self.groups, log, (wait.begin, seen), -1);
        true
    }

    pub fn end(&mut self, wait: Stretch, seen: &[u32], log: &Log) {
        if let Some(row) = self.rows.get_mut(wait.row as usize) {
            row.sum(self.groups, log, (wait.begin, seen), 1);
        }
    }

    /// Of each victim, what its groups had, the longest time first.
    pub fn blamed(self) -> FxHashMap<u32, Vec<(u32, Blamed)>> {
        let mut found: FxHashMap<u32, Vec<_>> = FxHashMap::default();
        for (victim, rows) in (0..).zip(self.rows.chunks(CAUSES)) {
            let mut all = vec![Blamed::default(); self.groups];
            for (cause, row) in rows.iter().enumerate() {
                for (blamed, small) in all.iter_mut().zip(&row.small) {
                    blamed.add(cause, small.cell());
                }
                for (blamed, wide) in all.iter_mut().zip(&row.wide) {
                    blamed.add(cause, *wide);
                }
            }
            let had = (0..).zip(all).filter(|(_, blamed)| blamed.all() > 0);
            found.insert(victim, had.collect());
        }
        let mut few: FxHashMap<(u32, u32), Blamed> = FxHashMap::default();
        for ((row, group), cell) in self.sparse {
            let (victim, cause) = (row / CAUSES as u32, row as usize % CAUSES);
            few.entry((victim, group)).or_default().add(cause, cell);
        }
        for ((victim, group), blamed) in few {
            found.entry(victim).or_default().push((group, blamed));
        }
        for groups in found.values_mut() {
            groups.retain(|(_, blamed)| blamed.all() > 0);
            groups.sort_by_cached_key(|(group, blamed)| (Reverse(blamed.all()), *group));
        }
        found
    }
}
