//! Slices of their own that threads of EEVDF may have (sched_attr.sched_runtime, Linux 6.12).
//!
//! kernel/sched/fair.c: a thread's slice is that of its requests (update_deadline,
//! place_entity), and of twice that its lag is bounded (update_entity_lag).
//!
//! PREEMPT_SHORT (6.12, do_preempt_short in check_preempt_wakeup_fair): a waking thread of a
//! shorter slice that is eligible ends the protection of the running one if its deadline is the
//! earlier, or the running one is not eligible. Up to 6.16 a running thread without protection, also
//! one that goes on after its request, is rescheduled when it is charged and not eligible
//! (did_preempt_short in update_curr).
//!
//! From 6.17 on a thread is protected only for the shortest slice in its queue when it is picked
//! (set_protect_slice), and at each wakeup that does not preempt (update_protect_slice); when that
//! is over it is rescheduled whenever it is charged (update_curr), without slices of its own, too.
//!
//! Groups have the default slice here; in the kernel they have the shortest of what is in them.
use super::super::workload::Tid;
use super::eevdf_queue::{Own, Rqs};
use super::linux_fair::virtual_ns;
use super::linux_groups::{Entity, Queue};

impl Rqs {
    pub(super) fn init_slices(&mut self, slices: &[Option<i64>]) {
        let own = |s: &Option<i64>| Own {
            slice: s.unwrap_or(self.k.slice),
            until: i64::MAX,
        };
        self.own = slices.iter().map(own).collect();
    }

    #[inline]
    pub(super) fn slice_of(&self, e: Entity) -> i64 {
        self.own.get(e as usize).map_or(self.k.slice, |o| o.slice)
    }

    /// The shortest slice of what is in `q`, `e` included (cfs_rq_min_slice).
    fn shortest(&self, q: Queue, e: Entity) -> i64 {
        let mut least = self.slice_of(e);
        self.rqs[q as usize].tree.visit(&self.nodes, |t: Tid| {
            least = least.min(self.slice_of(t));
            true
        });
        least
    }

    /// `e` is picked in `q`.
    pub(super) fn begin_protection(&mut self, q: Queue, e: Entity) {
        if !self.k.shortest {
            return;
        }
        let shortest = self.shortest(q, e);
        let se = &self.se[e as usize];
        let until = if shortest < self.slice_of(e) {
            se.deadline
                .min(se.vruntime + virtual_ns(shortest, se.weight))
        } else {
            i64::MAX
        };
        self.own[e as usize].until = until;
    }

    /// A thread woke in `q`, and `running` stays.
    pub(super) fn protect_less(&mut self, q: Queue, running: Entity) {
        if !self.k.shortest || !self.k.parity || self.own.get(running as usize).is_none() {
            return;
        }
        let shortest = self.shortest(q, running);
        if shortest < self.slice_of(running) {
            let se = &self.se[running as usize];
            let until = se.vruntime + virtual_ns(shortest, se.weight);
            let own = &mut self.own[running as usize];
            own.until = own.until.min(until);
        }
    }

    #[inline]
    pub(super) fn protection_is_over(&self, e: Entity) -> bool {
        let own = self.own.get(e as usize);
        own.is_some_and(|o| self.se[e as usize].vruntime >= o.until)
    }

    /// `woken` may end the protection of `running`, both in `q`.
    pub(super) fn end_protection_by(&mut self, q: Queue, woken: Entity, running: Entity) {
        if !self.k.short || self.slice_of(woken) >= self.slice_of(running) {
            return;
        }
        let a = self.average(q);
        let (its, ours) = (&self.se[woken as usize], &self.se[running as usize]);
        let first = its.deadline < ours.deadline || !a.is_eligible(ours.vruntime);
        if a.is_eligible(its.vruntime) && first {
            self.se[running as usize].protected = i64::MIN;
        }
    }

    /// Whether `e`, which runs in `q`, is to be rescheduled before its request is done: from 6.17
    /// on whenever it is charged without protection, as after a request that it goes on after.
    pub(super) fn no_longer_protected(&self, q: Queue, e: Entity) -> bool {
        if self.k.shortest {
            return self.k.parity && !self.is_protected(e);
        }
        let se = &self.se[e as usize];
        self.k.short && se.protected != se.deadline && !self.average(q).is_eligible(se.vruntime)
    }
}
