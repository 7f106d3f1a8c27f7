//! How ULE's CPUs get work from each other: stealing and the balancer.
use super::super::machine::{Cpu, CpuSet};
use super::super::workload::Tid;
use super::super::world::{RescheduleReason, World};
use super::ule::{Balance, Ule};
use super::ule_queue::Enter;

impl Ule {
    /// Move one waiting thread to `to`'s queue.
    fn shift(&mut self, w: &mut World, from: Cpu, to: Cpu) -> Option<Tid> {
        let t = self.cpus[from as usize].stealable(&self.links, w, to, self.modern)?;
        self.unqueue(from, t);
        self.queue(w, to, t, Enter::Plain);
        Some(t)
    }

    /// `cpu` has nothing left: steal into its queue. `groups`: how many groups to try, and whether
    /// to give up at the first CPU without a thread to give.
    pub(super) fn steal(&mut self, w: &mut World, cpu: Cpu, groups: Option<u32>) -> bool {
        let mut among = CpuSet::all(w.ncpu());
        among.remove(cpu);
        let mut at = self.placer.leaf(cpu);
        let (mut tried, mut sibling) = (1, false);
        loop {
            let needed = if self.placer.group(at).is_core() {
                self.steal_thresh_core
            } else {
                self.steal_thresh
            };
            let needed = (needed as u32, 1);
            let found = self.placer.most_loaded(w, &self.seen, at, &among, needed);
            if let Some(from) = found {
                if self.shift(w, from, cpu).is_some() {
                    return true;
                }
                if groups.is_some() {
                    return false;
                }
                among.remove(from);
                continue;
            }
            tried += 1;
            if groups.is_some_and(|most| tried > most) {
                return false;
            }
            match self.placer.wider(at, &mut sibling) {
                Some(next) => at = next,
                None => return false,
            }
        }
    }

    /// The balancer, on the first CPU.
    pub(super) fn balance(&mut self, w: &mut World) {
        match self.balancer {
            Balance::EveryDonor => self.balance_donors(w),
            Balance::OnePair => {
                for (high, low) in self.placer.pairs(&self.seen) {
                    let (a, b) = (self.seen.load[high as usize], self.seen.load[low as usize]);
                    for _ in 0..(a.saturating_sub(b)).div_ceil(2) {
                        if !self.give(w, high, low) {
                            break;
                        }
                    }
                }
            }
            Balance::Off => {}
        }
    }

    /// One thread from each loaded CPU to the least loaded. Who received one gives
    /// none; who gave takes none.
    fn balance_donors(&mut self, w: &mut World) {
        let top = self.placer.top();
        let mut donors = CpuSet::all(w.ncpu());
        'donors: while let Some(high) = self.placer.most_loaded(w, &self.seen, top, &donors, (1, 0))
        {
            donors.remove(high);
            let mut takers = donors.clone();
            if takers.is_empty() {
                return;
            }
            let load = self.seen.load[high as usize];
            if load == 1 {
                // Its only thread runs: it looks for a better CPU by itself.
                if self.cpus[high as usize].curr.is_some() {
                    let asked = &mut self.cpus[high as usize].asked;
                    asked.pick_cpu = true;
                    asked.at_return = true;
                    w.resched(high, RescheduleReason::Preempted);
                }
                return;
            }
            let mut refused = false;
            loop {
                if self.seen.queued[high as usize] == 0 {
                    continue 'donors;
                }
                let least = self.placer.receiver(w, &self.seen, high, load - 1, &takers);
                let Some(low) = least else {
                    if refused {
                        continue 'donors;
                    }
                    return;
                };
                if self.give(w, high, low) {
                    donors.remove(low);
                    continue 'donors;
                }
                // No thread there may run on it.
                takers.remove(low);
                refused = true;
            }
        }
    }

    fn give(&mut self, w: &mut World, high: Cpu, low: Cpu) -> bool {
        if self.seen.load[high as usize] <= self.seen.load[low as usize] {
            return false;
        }
        let Some(t) = self.shift(w, high, low) else {
            return false;
        };
        w.migrate(t, low);
        if !self.modern {
            if self.cpus[low as usize].curr.is_some() {
                self.interrupt(w, low);
            }
        } else if low == 0 {
            // The balancer's own CPU.
            let prio = self.seen.lowpri[0];
            self.preempt_here(w, 0, prio);
        } else {
            self.notify(w, low);
        }
        true
    }
}
