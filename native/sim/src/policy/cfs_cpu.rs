//! Where CFS puts waking and new threads.
//!
//! By loads that lag behind, as 2.6's did, and as in `linux_wake` from 5.10 on.
use super::super::machine::Cpu;
use super::super::workload::Tid;
use super::super::world::World;
use super::Wake;
use super::cfs::{Cfs, WakeCpu};
use super::linux_fair::idle_in_cache;
use super::linux_queues::Queues;
use super::linux_wake;

impl Cfs {
    pub(super) fn wake_cpu(&mut self, w: &mut World, t: Tid, wake: Wake) -> Cpu {
        if self.k.wake_cpu == WakeCpu::Scan {
            let wakers = wake.waker.map_or(0, |p| self.q.load_of(w, wake.cpu, p));
            let weights = (self.q.load_of(w, w.thread(t).cpu, t), wakers);
            let reach = self.balancer.reach.as_ref();
            return self.placer.wake(w, &self.q, weights, t, wake, reach);
        }
        let (prev, this) = (w.thread(t).cpu, wake.cpu);
        let prev_ok = w.allowed(t, prev);
        if wake.waker.is_none() && prev_ok && self.k.wake_cpu == WakeCpu::WakeIdle {
            return prev;
        }
        let mut target = prev;
        if this != prev && w.allowed(t, this) && (!prev_ok || self.affine(w, t, prev, wake)) {
            target = this;
        }
        if !w.allowed(t, target) {
            return super::idle_or_previous(w, t);
        }
        if w.is_idle(target) {
            return target;
        }
        match self.k.wake_cpu {
            WakeCpu::WakeIdle | WakeCpu::Scan => {}
            WakeCpu::IdleSibling => return idle_in_cache(w, t, target).unwrap_or(target),
            WakeCpu::LongestIdle => {
                let idle = w.idle_cpus().iter().filter(|c| w.allowed(t, *c));
                let longest = idle.min_by_key(|c| w.cpu(*c).idle_since);
                return longest.unwrap_or(target);
            }
        }
        if self.q.rqs[target as usize].threads > 1 {
            return target;
        }
        let good = |c: &Cpu| w.is_idle(*c) && w.allowed(t, *c);
        w.machine
            .smt(target)
            .iter()
            .copied()
            .find(good)
            .unwrap_or(target)
    }

    /// Whether the waker's CPU may have it: its load, with the wakee's, is not
    /// much above that of the wakee's old CPU.
    fn affine(&self, w: &World, t: Tid, prev: Cpu, wake: Wake) -> bool {
        let in_one_node = w.machine.node(prev).contains(&wake.cpu);
        if !in_one_node {
            return false;
        }
        let weight = self.q.load_of(w, w.thread(t).cpu, t);
        let mut here = self.q.load(w, wake.cpu).max(self.q.lagged(w, wake.cpu, 1));
        if wake.sync
            && let Some(p) = wake.waker
        {
            here = (here - self.q.load_of(w, wake.cpu, p)).max(0);
        }
        let there = self.q.load(w, prev).min(self.q.lagged(w, prev, 1));
        here == 0 || 100 * (here + weight) <= 112 * there
    }

    /// Down the domains to the idlest group and CPU.
    pub(super) fn fork_cpu(&self, w: &World, t: Tid, parent: Cpu) -> Cpu {
        if self.k.wake_cpu == WakeCpu::Scan {
            return linux_wake::idlest_cpu(w, &self.q, &self.balancer.domains, t, parent);
        }
        // Threads that are there from the start are not placed by stale loads.
        let forked = w.parent(t).is_some();
        let idx = if forked { self.k.forkexec_idx } else { 0 };
        let mut here = parent;
        for d in self.balancer.domains.iter().rev() {
            let span = d.span(here);
            let mut best: Option<(i64, &[Cpu])> = None;
            let mut local = i64::MAX;
            for group in span.groups.iter() {
                if !group.iter().any(|c| w.allowed(t, *c)) {
                    continue;
                }
                let is_local = group.contains(&here);
                let total: i64 = group
                    .iter()
                    .map(|c| {
                        let (now, old) = (self.q.load(w, *c), self.q.lagged(w, *c, idx));
                        if is_local { now.max(old) } else { now.min(old) }
                    })
                    .sum();
                let average = total / group.len() as i64;
                if is_local {
                    local = average;
                } else if best.is_none_or(|(b, _)| average < b) {
                    best = Some((average, group));
                }
            }
            // Another group must be idler by half the imbalance.
            let Some((average, group)) = best else {
                continue;
            };
            if local != i64::MAX && 100 * local < 112 * average || local == average {
                continue;
            }
            let idlest = group
                .iter()
                .filter(|c| w.allowed(t, **c))
                .min_by_key(|c| self.q.load(w, **c));
            here = idlest.copied().unwrap_or(here);
        }
        if w.allowed(t, here) {
            here
        } else {
            super::least_loaded(w, t)
        }
    }
}
