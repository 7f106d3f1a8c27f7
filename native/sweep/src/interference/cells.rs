//! How long victims waited for each group, by how the wait began.
use std::cmp::Reverse;
use std::ops::Range;

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

    /// With the time of another one; in how many waits either ran is not known.
    fn plus(mut self, other: &Self) -> Self {
        for (time, more) in self.time.iter_mut().zip(other.time) {
            *time += more;
        }
        self
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

    fn used(&self) -> bool {
        !(self.small.is_empty() && self.wide.is_empty())
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
    /// By themselves.
    pub sparse: usize,
    /// In a small cell.
    pub small: Cell,
}

/// A row for each victim and cause, from `first` on; or, where that were too many cells, those
/// that are needed.
pub struct Cells {
    groups: usize,
    most: Most,
    first: u32,
    /// The victim before which it ends.
    end: u32,
    rows: Vec<Row>,
    sparse: FxHashMap<(u32, u32), Cell>,
}

impl Cells {
    /// Of some victims.
    pub fn new(victims: Range<u32>, groups: usize, most: Most, dense: bool) -> Self {
        let rows = if dense { victims.len() * CAUSES } else { 0 };
        Self {
            groups,
            most,
            first: victims.start,
            end: victims.end,
            rows: vec![Row::default(); rows],
            sparse: FxHashMap::default(),
        }
    }

    /// The row of a victim's waits that began so.
    pub fn row(&self, victim: u32, cause: u8) -> u32 {
        (victim - self.first) * CAUSES as u32 + u32::from(cause)
    }

    /// The victims with cells: fewer than at first, where those needed too many.
    pub fn victims(&self) -> Range<u32> {
        self.first..self.end
    }

    /// Lets go half of the victims when all have too many cells.
    #[cold]
    fn narrow(&mut self) {
        self.end = self.first + (self.end - self.first) / 2;
        let rows = (self.end - self.first) * CAUSES as u32;
        self.sparse.retain(|(row, _), _| *row < rows);
        self.sparse.shrink_to_fit();
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
            if row >= (self.end - self.first) * CAUSES as u32 {
                return;
            }
            parts(begin, runs, known, |group, part| {
                let cell = self.sparse.entry((row, group)).or_default();
                *cell = cell.plus(part);
            });
            if self.sparse.len() > self.most.sparse && self.end - self.first > 1 {
                self.narrow();
            }
            return;
        };
        let most = Cell {
            time: (last.until - begin).saturating_mul(at_once as i64),
            n: 1,
        };
        if cells.makes_room(most, self.most.small) {
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

    /// For each victim, the time of the `parts` groups with the most, longest first; and the time
    /// of all others. The last three groups are always reported.
    pub fn blamed(self, parts: usize) -> FxHashMap<u32, Parts> {
        let told = self.groups as u32 - 3;
        let mut found: FxHashMap<u32, Parts> = FxHashMap::default();
        for (victim, rows) in (self.first..).zip(self.rows.chunks(CAUSES)) {
            found.insert(victim, Parts::of(blamed_by(rows), parts, told));
        }
        let mut few: Vec<_> = self.sparse.into_iter().collect();
        few.sort_unstable_by_key(|((row, group), _)| (row / CAUSES as u32, *group));
        for cells in few.chunk_by(|(a, _), (b, _)| a.0 / CAUSES as u32 == b.0 / CAUSES as u32) {
            let victim = self.first + cells[0].0.0 / CAUSES as u32;
            let mut groups: Vec<(u32, Blamed)> = Vec::new();
            for ((row, group), cell) in cells {
                if groups.last().is_none_or(|(last, _)| last != group) {
                    groups.push((*group, Blamed::default()));
                }
                if let Some((_, blamed)) = groups.last_mut() {
                    blamed.add(*row as usize % CAUSES, *cell);
                }
            }
            found.insert(victim, Parts::of(groups, parts, told));
        }
        found
    }
}

/// Every group that has something in a victim's rows: of many groups, few have.
fn blamed_by(rows: &[Row]) -> Vec<(u32, Blamed)> {
    let rows: Vec<_> = rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.used())
        .collect();
    let groups = rows
        .iter()
        .map(|(_, row)| row.small.len().max(row.wide.len()));
    let mut found = Vec::new();
    for group in 0..groups.max().unwrap_or(0) {
        let mut blamed = Blamed::default();
        for (cause, row) in &rows {
            let small = row
                .small
                .get(group)
                .map_or(Cell::default(), |cell| cell.cell());
            let wide = row.wide.get(group).copied().unwrap_or_default();
            blamed.add(*cause, small.plus(wide));
        }
        if blamed.all() > 0 {
            found.push((group as u32, blamed));
        }
    }
    found
}

/// What groups had of a victim's waiting.
#[derive(Default)]
pub struct Parts {
    /// The longest time first.
    pub blamed: Vec<(u32, Blamed)>,
    /// All others together; none if there are none.
    pub others: Option<Blamed>,
}

impl Parts {
    fn of(mut groups: Vec<(u32, Blamed)>, most: usize, told: u32) -> Self {
        groups.retain(|(_, blamed)| blamed.all() > 0);
        groups.sort_by_cached_key(|(group, blamed)| (Reverse(blamed.all()), *group));
        let mut others: Option<Blamed> = None;
        let mut number = 0..;
        groups.retain(|(group, blamed)| {
            let keeps = number.next().is_some_and(|number| number < most) || *group >= told;
            if !keeps {
                others = Some(others.unwrap_or_default().plus(blamed));
            }
            keeps
        });
        groups.shrink_to_fit();
        Self {
            blamed: groups,
            others,
        }
    }
}
