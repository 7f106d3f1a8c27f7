//! ULE's choice of CPUs: where a thread goes, and the most and least loaded CPUs.
//!
//! CPU groups form a tree: hardware threads of a core, cores of a cache, the caches
//! of a node, the machine. Searches weigh whole groups first and go from the last CPU
//! to the first. Ties are broken by chance, as in the original, or with `random=off`
//! by that order alone.
use super::super::machine::{Cpu, CpuSet, Machine};
use super::super::workload::Tid;
use super::super::world::World;
use super::linux_domains::{Level, domains};
use super::ule_queue::{MAX_TIMESHARE, NOTHING};

/// What a CPU shows to others.
pub(super) struct Seen {
    /// Runnable threads, the running one among them, and the queued ones.
    pub load: Vec<u32>,
    pub queued: Vec<u32>,
    /// The priority of the last thread chosen there, or of a better one queued since.
    pub lowpri: Vec<i64>,
}

impl Seen {
    pub(super) fn new(ncpu: usize) -> Self {
        Self {
            load: vec![0; ncpu],
            queued: vec![0; ncpu],
            lowpri: vec![NOTHING; ncpu],
        }
    }

    pub(super) fn is_idle(&self, c: Cpu) -> bool {
        self.lowpri[c as usize] > MAX_TIMESHARE
    }
}

/// Load units: a thread, and the bonus of the CPU where it ran last.
const UNIT: i64 = 256;
const PREFER: i64 = 128;
/// Chance takes off up to these in the search for the least and the most loaded.
const LOWER: u64 = 128;
const HIGHER: u64 = 256;
/// Levels of cache that ticks of affinity are counted by.
pub(super) const CACHE_LEVELS: i64 = 3;

/// A group of CPUs.
pub(super) struct Group {
    cpus: Vec<Cpu>,
    children: Vec<usize>,
    parent: Option<usize>,
    level: Level,
}

impl Group {
    pub(super) fn is_core(&self) -> bool {
        self.level == Level::Smt
    }

    pub(super) fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    pub(super) fn children(&self) -> &[usize] {
        &self.children
    }

    pub(super) fn parent(&self) -> Option<usize> {
        self.parent
    }

    /// Levels of cache between a CPU and what the group shares; none where it shares none.
    pub(super) fn cache_levels(&self) -> i64 {
        match self.level {
            Level::Smt => 2,
            Level::Cache => CACHE_LEVELS,
            _ => 0,
        }
    }
}

pub(super) struct Placer {
    groups: Vec<Group>,
    /// The smallest group of each CPU, and the machine.
    leaf: Vec<usize>,
    top: usize,
    /// Ticks of cache affinity per level.
    affinity: i64,
    modern: bool,
    random: bool,
}

/// When a thread is given a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Picked {
    Waking,
    /// It is an interrupt's, which has just come.
    ByInterrupt,
    /// It leaves its CPU right now.
    Running,
}

/// What a search for the least loaded CPU asks.
struct Least<'a> {
    w: &'a mut World,
    seen: &'a Seen,
    /// Only these CPUs, or those that the thread may use.
    among: Result<&'a CpuSet, Tid>,
    prefer: Cpu,
    /// The thread runs on `prefer` now.
    running: bool,
    /// Only CPUs whose best priority is worse than this.
    worse_than: i64,
    /// Only CPUs with at most this load.
    most: u32,
}

impl Placer {
    pub(super) fn new(m: &Machine, affinity: i64, modern: bool, random: bool) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let mut of: Vec<Option<usize>> = vec![None; m.ncpu()];
        let mut leaf = vec![0; m.ncpu()];
        let mut levels = domains(m);
        if levels.is_empty() {
            groups.push(Group {
                cpus: m.cpus().collect(),
                children: Vec::new(),
                parent: None,
                level: Level::Cache,
            });
        }
        for domain in levels.drain(..) {
            for span in domain.spans {
                let mut children: Vec<usize> =
                    span.cpus.iter().filter_map(|c| of[*c as usize]).collect();
                children.dedup();
                if children.len() == 1 && groups[children[0]].cpus.len() == span.cpus.len() {
                    // The same CPUs as below: one group.
                    continue;
                }
                let at = groups.len();
                for child in &children {
                    groups[*child].parent = Some(at);
                }
                for c in &span.cpus {
                    if of[*c as usize].is_none() {
                        leaf[*c as usize] = at;
                    }
                    of[*c as usize] = Some(at);
                }
                groups.push(Group {
                    cpus: span.cpus,
                    children,
                    parent: None,
                    level: domain.level,
                });
            }
        }
        Self {
            top: groups.len() - 1,
            groups,
            leaf,
            affinity,
            modern,
            random,
        }
    }

    pub(super) fn group(&self, at: usize) -> &Group {
        &self.groups[at]
    }

    pub(super) fn leaf(&self, c: Cpu) -> usize {
        self.leaf[c as usize]
    }

    pub(super) fn top(&self) -> usize {
        self.top
    }

    fn below(&self, w: &mut World, n: u64) -> i64 {
        if self.random {
            w.rng.below(n) as i64
        } else {
            0
        }
    }

    /// Ticks of affinity of a level; none where no cache is shared.
    pub(super) fn warmth(&self, levels: i64) -> i64 {
        levels * self.affinity
    }

    /// Whether a thread that ran so many ticks ago still has its cache of this level.
    pub(super) fn warm(&self, ran: Option<i64>, levels: i64) -> bool {
        ran.is_some_and(|ago| ago < self.warmth(levels))
    }

    /// Where a search continues that found no thread in `at`: of two groups the other one first,
    /// which need not be searched again with both. `None` at the end.
    pub(super) fn wider(&self, at: usize, sibling: &mut bool) -> Option<usize> {
        let mut at = at;
        if std::mem::take(sibling) {
            at = self.groups[at].parent?;
        }
        let parent = self.groups[at].parent?;
        let children = &self.groups[parent].children;
        if self.modern && children.len() == 2 {
            *sibling = true;
            return Some(if children[0] == at {
                children[1]
            } else {
                children[0]
            });
        }
        Some(parent)
    }

    /// Total load of the group, and its best CPU with the load that it was weighed by.
    fn search_least(&self, s: &mut Least, at: usize) -> (i64, Option<(Cpu, i64)>) {
        let group = &self.groups[at];
        let (mut total, mut best, mut found) = (0, i64::MAX, None);
        for child in group.children.iter().rev() {
            let (mut load, cpu) = self.search_least(s, *child);
            total += load;
            // A busy core is no better for being the thread's own: cores take turns.
            if s.running && self.groups[*child].is_core() && load >= PREFER && load & PREFER != 0 {
                load += PREFER;
            }
            if let Some((c, own)) = cpu
                && (load < best || (load == best && found.is_some_and(|(_, o)| own < o)))
            {
                best = load;
                found = Some((c, own));
            }
        }
        if !group.children.is_empty() {
            return (total, found);
        }
        for c in group.cpus.iter().rev().copied() {
            let home = c == s.prefer;
            let threads = s.seen.load[c as usize] - u32::from(home && s.running);
            let mut bonus = if home { PREFER } else { 0 };
            let load = i64::from(threads) * UNIT;
            total += load - bonus;
            // Its own priority is no reason against where it runs.
            let good = s.seen.lowpri[c as usize] <= s.worse_than && !(s.running && home);
            let may = match s.among {
                Ok(set) => set.contains(c),
                Err(t) => s.w.allowed(t, c),
            };
            if threads > s.most || good || !may {
                continue;
            }
            if s.running && threads > 0 {
                bonus = 0;
            }
            if load - bonus - LOWER as i64 + 1 >= best {
                // Chance cannot help it.
                continue;
            }
            let load = load - self.below(s.w, LOWER);
            if load - bonus < best {
                best = load - bonus;
                found = Some((c, load));
            }
        }
        (total, found)
    }

    /// Total load of the group, and its most loaded CPU of `among` that has at least
    /// `least` threads and `queued` of them waiting.
    fn search_most(
        &self,
        w: &mut World,
        seen: &Seen,
        at: usize,
        among: &CpuSet,
        least: u32,
        queued: u32,
    ) -> (i64, Option<(Cpu, i64)>) {
        let group = &self.groups[at];
        let (mut total, mut best, mut found) = (0, i64::MIN, None);
        for child in group.children.iter().rev() {
            let (load, cpu) = self.search_most(w, seen, *child, among, least, queued);
            total += load;
            if let Some((c, own)) = cpu
                && (load > best || (load == best && found.is_some_and(|(_, o)| own > o)))
            {
                best = load;
                found = Some((c, own));
            }
        }
        if !group.children.is_empty() {
            return (total, found);
        }
        for c in group.cpus.iter().rev().copied() {
            let threads = seen.load[c as usize];
            let load = i64::from(threads) * UNIT;
            total += load;
            if threads < least || seen.queued[c as usize] < queued || !among.contains(c) {
                continue;
            }
            if load <= best {
                continue;
            }
            let load = load - self.below(w, HIGHER);
            if load > best {
                best = load;
                found = Some((c, load));
            }
        }
        (total, found)
    }

    pub(super) fn most_loaded(
        &self,
        w: &mut World,
        seen: &Seen,
        at: usize,
        among: &CpuSet,
        (least, queued): (u32, u32),
    ) -> Option<Cpu> {
        if !self.modern {
            return self.most_2011(seen, at, among, least);
        }
        let found = self.search_most(w, seen, at, among, least, queued).1;
        found.map(|(c, _)| c)
    }

    /// The least loaded CPU of `among` for a thread that runs on `from`, with at most
    /// `most` threads.
    pub(super) fn receiver(
        &self,
        w: &mut World,
        seen: &Seen,
        from: Cpu,
        most: u32,
        among: &CpuSet,
    ) -> Option<Cpu> {
        let mut s = Least {
            w,
            seen,
            among: Ok(among),
            prefer: from,
            running: true,
            worse_than: -1,
            most,
        };
        self.search_least(&mut s, self.top).1.map(|(c, _)| c)
    }

    /// Where `t`, of priority `prio`, should go; `here` is where it is woken. `ran`: how
    /// many ticks ago it last left a CPU other than by ending.
    pub(super) fn pick(
        &self,
        w: &mut World,
        seen: &Seen,
        t: Tid,
        prio: i64,
        (here, ran, why): (Cpu, Option<i64>, Picked),
    ) -> Cpu {
        let mut old = w.thread(t).cpu;
        if self.leaf.len() == 1 {
            return old;
        }
        if !self.modern {
            return self.pick_2011(w, seen, t, prio, (here, ran));
        }
        // An interrupt's thread belongs where the interrupt comes, or near by.
        let interrupt = why == Picked::ByInterrupt && w.allowed(t, here);
        if interrupt {
            if seen.is_idle(here) {
                return here;
            }
            old = here;
        }
        let leaf = &self.groups[self.leaf(old)];
        let whole = !leaf.is_core() || leaf.cpus.iter().all(|c| seen.is_idle(*c));
        if w.allowed(t, old) && seen.is_idle(old) && self.warm(ran, 2) && whole {
            return old;
        }
        let warm = |levels| interrupt || self.warm(ran, levels);
        // The largest cache that may still hold what the thread used.
        let mut near = None;
        let mut at = Some(self.leaf(old));
        while let Some(i) = at {
            let group = &self.groups[i];
            let shares =
                group.level == Level::Cache && group.children.len() != 1 && group.cpus.len() > 1;
            if shares && warm(CACHE_LEVELS) {
                near = Some(i);
            }
            at = group.parent;
        }
        let near = near.filter(|i| *i != self.top);
        let mut search = |at: usize, worse_than: i64| {
            let mut s = Least {
                w: &mut *w,
                seen,
                among: Err(t),
                prefer: old,
                running: why == Picked::Running,
                worse_than,
                most: u32::MAX,
            };
            self.search_least(&mut s, at).1.map(|(c, _)| c)
        };
        // Near by, an interrupt's thread may also push another aside.
        let idle = if interrupt {
            prio
        } else {
            prio.max(MAX_TIMESHARE)
        };
        let found = near
            .and_then(|at| search(at, idle))
            .or_else(|| search(self.top, prio))
            .or_else(|| search(self.top, -1));
        let Some(c) = found else {
            return super::least_loaded(w, t);
        };
        // Here, if it can run here at once and there is no more to do.
        let loads = (seen.load[here as usize], seen.load[c as usize]);
        if w.allowed(t, here)
            && seen.lowpri[here as usize] > prio
            && !seen.is_idle(c)
            && loads.0 <= loads.1 + 1
        {
            return here;
        }
        c
    }
}
