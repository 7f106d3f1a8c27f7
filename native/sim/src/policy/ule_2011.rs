//! Differences of ULE in FreeBSD 8 and 9, up to 2011: where a thread goes, and which one an idle
//! CPU takes.
//!
//! After the text of 2009. Its searches know neither chance nor a thread's last CPU: of
//! equals the first wins.
use super::super::machine::{Cpu, CpuSet};
use super::super::queue::Links;
use super::super::workload::Tid;
use super::super::world::World;
use super::ule_place::{Placer, Seen};
use super::ule_queue::Tdq;

impl Placer {
    /// Total load of the group, and the least loaded CPU of its least loaded part on which
    /// `t` may run, with a best priority worse than `worse_than`.
    fn least_2011(
        &self,
        (w, seen): (&World, &Seen),
        t: Tid,
        at: usize,
        worse_than: i64,
    ) -> (u32, Option<Cpu>) {
        let group = self.group(at);
        let (mut total, mut found, mut least) = (0, None, u32::MAX);
        for child in group.children() {
            let (load, cpu) = self.least_2011((w, seen), t, *child, worse_than);
            total += load;
            if load < least || found.is_none() {
                (found, least) = (cpu, load);
            }
        }
        if !group.children().is_empty() {
            return (total, found);
        }
        for c in group.cpus().iter().copied() {
            let load = seen.load[c as usize];
            total += load;
            if load < least && seen.lowpri[c as usize] > worse_than && w.allowed(t, c) {
                (found, least) = (Some(c), load);
            }
        }
        (total, found)
    }

    /// The first CPU of `among` with the most threads, at least `needed`, some of them
    /// waiting.
    pub(super) fn most_2011(
        &self,
        seen: &Seen,
        at: usize,
        among: &CpuSet,
        needed: u32,
    ) -> Option<Cpu> {
        let gives = |c: &Cpu| {
            let load = seen.load[*c as usize];
            among.contains(*c) && load >= needed && seen.queued[*c as usize] > 0
        };
        let donors = self.group(at).cpus().iter().copied().filter(gives);
        donors.max_by_key(|c| (seen.load[*c as usize], std::cmp::Reverse(*c)))
    }

    /// Where `t` should go, as `pick` says it.
    pub(super) fn pick_2011(
        &self,
        w: &World,
        seen: &Seen,
        t: Tid,
        prio: i64,
        (here, ran): (Cpu, Option<i64>),
    ) -> Cpu {
        let old = w.thread(t).cpu;
        let low = |c: Cpu| seen.lowpri[c as usize];
        if w.allowed(t, old) && (seen.is_idle(old) || (self.warm(ran, 2) && low(old) > prio)) {
            return old;
        }
        // The smallest group that may still hold what the thread used.
        let mut near = Some(self.leaf(old));
        while let Some(i) = near
            && !self.warm(ran, self.group(i).cache_levels())
        {
            near = self.group(i).parent();
        }
        let found = near
            .and_then(|at| self.least_2011((w, seen), t, at, prio).1)
            .or_else(|| self.least_2011((w, seen), t, self.top(), -1).1);
        let Some(c) = found else {
            return super::least_loaded(w, t);
        };
        // Here, if it can run here at once and the other CPU is busy.
        if w.allowed(t, here) && low(here) > prio && !seen.is_idle(c) {
            return here;
        }
        c
    }

    /// For every group of several CPUs, its most loaded CPU that can give and its least
    /// loaded one.
    pub(super) fn pairs(&self, seen: &Seen) -> Vec<(Cpu, Cpu)> {
        let all = CpuSet::all(seen.load.len());
        let pair = |at: usize| {
            let high = self.most_2011(seen, at, &all, 1)?;
            let least = |c: &Cpu| (seen.load[*c as usize], *c);
            let low = self.group(at).cpus().iter().copied().min_by_key(least)?;
            (high != low).then_some((high, low))
        };
        (0..=self.top()).rev().filter_map(pair).collect()
    }
}

impl Tdq {
    /// The thread that `thief` may take from the calendar: the first thread of the current list is
    /// skipped, and so are all lists after it; then from the first list of all again.
    pub(super) fn stealable_batch_2011(&self, links: &Links, w: &World, thief: Cpu) -> Option<Tid> {
        let (calendar, from) = self.calendar();
        let in_turn = calendar.first_from(from);
        let again = calendar.best().filter(|_| from != 0);
        let lists = in_turn.into_iter().chain(again);
        let threads = lists.flat_map(|list| calendar.list(list).iter(links));
        threads.skip(1).find(|t| w.allowed(*t, thief))
    }
}
