//! ULE's choice of CPUs: where a thread goes, who is most and least loaded.
//!
//! CPU groups form a tree: hardware threads of a core, cores of a cache, the
//! caches of a node, the machine. Searches go down the tree and weigh whole
//! groups first. Ties are broken by chance, as in the original.
use super::super::machine::{Cpu, Machine};
use super::super::workload::Tid;
use super::super::world::World;
use super::linux_domains::{Domain, Level, domains};

/// What a CPU shows to others: runnable threads, and its best priority.
pub(super) struct Seen {
    pub load: Vec<u32>,
    pub lowpri: Vec<i64>,
}

impl Seen {
    pub(super) fn new(ncpu: usize) -> Self {
        Self {
            load: vec![0; ncpu],
            lowpri: vec![255; ncpu],
        }
    }
}

const MAX_TIMESHARE: i64 = 223;
/// Load units: a thread, and the bonus of the CPU where it ran last.
const UNIT: i64 = 256;
const PREFER: i64 = 128;

pub(super) struct Placer {
    /// From the smallest groups to the whole machine.
    tree: Vec<Domain>,
    affinity: i64,
    modern: bool,
}

/// What the least-loaded search asks.
struct Search<'a> {
    w: &'a mut World,
    seen: &'a Seen,
    t: Tid,
    prefer: Cpu,
    /// Only CPUs whose best priority is worse than this.
    worse_than: i64,
    /// Only CPUs with at most this load.
    most: u32,
}

impl Search<'_> {
    /// The least loaded of `cpus`: within the group of least total load.
    fn least(&mut self, tree: &[Domain], at: usize, cpus: &[Cpu]) -> (i64, Option<(Cpu, i64)>) {
        if at == 0 {
            return self.least_of(cpus);
        }
        let groups = &tree[at - 1].span(cpus[0]).groups;
        if groups.len() == cpus.len() {
            return self.least_of(cpus);
        }
        if groups.len() < 2 {
            return self.least(tree, at - 1, cpus);
        }
        let (mut total, mut best, mut found) = (0, i64::MAX, None);
        for group in groups.iter().rev() {
            let (load, cpu) = self.least(tree, at - 1, group);
            total += load;
            if let Some((c, own)) = cpu
                && (load < best || (load == best && found.is_none_or(|(_, o)| own < o)))
            {
                best = load;
                found = Some((c, own));
            }
        }
        (total, found)
    }

    fn least_of(&mut self, cpus: &[Cpu]) -> (i64, Option<(Cpu, i64)>) {
        let (mut total, mut best, mut found) = (0, i64::MAX, None);
        let unbound = self.w.unbound(self.t);
        for c in cpus.iter().rev().copied() {
            let threads = self.seen.load[c as usize];
            let bonus = if c == self.prefer { PREFER } else { 0 };
            let load = i64::from(threads) * UNIT - bonus;
            total += load;
            // Chance takes off 0 to 127: it cannot help those too far behind.
            if load - 127 >= best
                || threads > self.most
                || self.seen.lowpri[c as usize] <= self.worse_than
                || !(unbound || self.w.allowed(self.t, c))
            {
                continue;
            }
            let load = load - (self.w.rng.next_u64() >> 57) as i64;
            if load < best {
                best = load;
                found = Some((c, load));
            }
        }
        (total, found)
    }
}

impl Placer {
    pub(super) fn new(m: &Machine, affinity: i64, modern: bool) -> Self {
        Self {
            tree: domains(m),
            affinity,
            modern,
        }
    }

    pub(super) fn levels(&self) -> usize {
        self.tree.len()
    }

    pub(super) fn is_core(&self, level: usize) -> bool {
        self.tree[level].level == Level::Smt
    }

    /// How long a thread is at home in a group of this level.
    fn warmth(&self, level: usize) -> i64 {
        match self.tree[level].level {
            Level::Smt => 2 * self.affinity,
            Level::Cache => 3 * self.affinity,
            Level::Package | Level::Numa => 0,
        }
    }

    fn least(
        &self,
        w: &mut World,
        seen: &Seen,
        t: Tid,
        level: usize,
        worse_than: i64,
    ) -> Option<Cpu> {
        let home = w.thread(t).cpu;
        let span = &self.tree[level].span(home).cpus;
        let mut s = Search {
            w,
            seen,
            t,
            prefer: home,
            worse_than,
            most: u32::MAX,
        };
        s.least(&self.tree, level + 1, span).1.map(|(c, _)| c)
    }

    /// Where `t`, of priority `prio`, should go; `here` is where it is woken.
    pub(super) fn pick(&self, w: &mut World, seen: &Seen, t: Tid, prio: i64, here: Cpu) -> Cpu {
        let old = w.thread(t).cpu;
        if self.tree.is_empty() {
            return old;
        }
        let top = self.tree.len() - 1;
        let old_ok = w.allowed(t, old);
        let ago = if w.thread(t).last_cpu.is_some() {
            w.now() - w.thread(t).last_ran
        } else {
            i64::MAX
        };
        let is_idle = |w: &World, c: Cpu| seen.lowpri[c as usize] > MAX_TIMESHARE && w.is_idle(c);
        if old_ok && self.modern {
            let core = w.machine.smt(old);
            let whole = core.iter().all(|c| is_idle(w, *c));
            if whole && (ago <= 2 * self.affinity || ago == i64::MAX) {
                return old;
            }
        } else if old_ok {
            let affine = ago <= 2 * self.affinity;
            if is_idle(w, old) || (affine && seen.lowpri[old as usize] > prio) {
                return old;
            }
        }
        let warm = (0..top).rev().find(|l| ago <= self.warmth(*l));
        let mut found = None;
        if let Some(level) = warm {
            found = self.least(w, seen, t, level, prio.max(MAX_TIMESHARE));
        }
        let found = found
            .or_else(|| self.least(w, seen, t, top, prio))
            .or_else(|| self.least(w, seen, t, top, i64::MIN));
        let Some(c) = found else {
            return super::least_loaded(w, t);
        };
        // The waker's CPU, if it can run it at once and is no more loaded.
        let loads = (seen.load[here as usize], seen.load[c as usize]);
        if w.allowed(t, here)
            && seen.lowpri[here as usize] > prio
            && seen.lowpri[c as usize] < 224
            && loads.0 <= loads.1 + 1
        {
            return here;
        }
        c
    }

    /// Of the group of `c` at `level`, the most loaded other CPU.
    pub(super) fn most_loaded(&self, seen: &Seen, level: usize, c: Cpu) -> Option<(Cpu, u32)> {
        let others = self.tree[level].span(c).cpus.iter().filter(|o| **o != c);
        others
            .map(|o| (*o, seen.load[*o as usize]))
            .max_by_key(|(o, load)| (*load, *o))
    }

    /// The least loaded CPU, with at most `most` threads, that is no donor.
    pub(super) fn receiver(
        &self,
        w: &mut World,
        seen: &Seen,
        from: Cpu,
        most: u32,
        donors: &[bool],
    ) -> Option<Cpu> {
        let mut best: Option<(i64, Cpu)> = None;
        for c in (0..w.ncpu() as Cpu).rev() {
            let load = seen.load[c as usize];
            if c == from || donors[c as usize] || load > most {
                continue;
            }
            let key = i64::from(load) * UNIT - (w.rng.next_u64() >> 57) as i64;
            if best.is_none_or(|(b, _)| key < b) {
                best = Some((key, c));
            }
        }
        best.map(|(_, c)| c)
    }

    /// In each span of `level`, the most and the least loaded CPU.
    pub(super) fn pairs(&self, seen: &Seen, level: usize) -> Vec<(Cpu, Cpu)> {
        let load = |c: &Cpu| seen.load[*c as usize];
        self.tree[level]
            .spans
            .iter()
            .filter_map(|s| {
                let high = s.cpus.iter().copied().max_by_key(|c| (load(c), *c))?;
                let low = s.cpus.iter().copied().min_by_key(|c| (load(c), *c))?;
                (high != low).then_some((high, low))
            })
            .collect()
    }
}
