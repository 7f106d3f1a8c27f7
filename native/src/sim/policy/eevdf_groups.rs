//! EEVDF's queues of control groups: entities that come, go, run and change their weight.
//!
//! What a group's entity does follows from the threads in the group (enqueue_task_fair,
//! dequeue_entities, put_prev_task_fair, set_next_task_fair and reweight_entity of
//! kernel/sched/fair.c, 6.6 to 6.18). An entity whose group has nobody runnable left may
//! stay in its queue as a sleeper does. Left out: in 6.12 a changed weight ends the
//! protection of what runs (it does so no more in 6.17).
use super::super::machine::Cpu;
use super::super::tree::{Nodes, Tree};
use super::super::workload::Tid;
use super::super::world::World;
use super::eevdf::{Rq, Rqs, Se};
use super::linux_groups::{Entity, Groups, Levels, Queue};

impl Rqs {
    /// The queues and entities of the workload's groups.
    pub(super) fn init_groups(&mut self, w: &World) {
        self.groups = Groups::new(w, self.bandwidth_slice);
        if self.groups.any() {
            self.rqs.resize(self.groups.n_queues(), Rq::default());
            self.se.resize(self.groups.n_entities(), Se::default());
            self.nodes = Nodes::new(self.groups.n_entities());
        }
    }

    /// `t` has joined `q`, and its groups follow.
    #[inline]
    pub(super) fn come(&mut self, w: &mut World, q: Queue, t: Tid) {
        if !self.groups.any() {
            return;
        }
        let weight = self.se[t as usize].weight;
        self.groups.comes(w.now(), t, q, weight);
        self.put_aside_if_held(w, q, t);
        if self.rqs[q as usize].tree.len() == 1 && self.rqs[q as usize].curr.is_none() {
            self.admit(w, q);
        }
        self.raise(w, q);
    }

    /// What has become runnable in `q` may not run if a quota is used up.
    #[inline]
    pub(super) fn put_aside_if_held(&mut self, w: &mut World, q: Queue, t: Tid) {
        if self.groups.any() && self.groups.is_under_hold(q) {
            self.count(self.groups.cpu_of(q), -1);
            w.set_aside(t);
        }
    }

    /// The queued `t` is about to leave `q`: it counts again.
    #[inline]
    pub(super) fn release(&mut self, w: &mut World, q: Queue, t: Tid) {
        if self.groups.any() && self.groups.is_under_hold(q) {
            self.count(self.groups.cpu_of(q), 1);
            w.bring_back(t);
        }
    }

    /// `e` has left the tree of `q`.
    #[inline]
    pub(super) fn gone(&mut self, w: &mut World, q: Queue, e: Entity) {
        if !self.groups.any() {
            return;
        }
        self.groups.goes(w.now(), e, q);
        if self.is_empty(q) {
            self.lower(w, q);
        } else {
            self.follow_from(w, q);
        }
    }

    fn is_empty(&self, q: Queue) -> bool {
        let rq = &self.rqs[q as usize];
        rq.tree.is_empty() && rq.curr.is_none()
    }

    /// The running `e` goes back into the tree of `q`.
    #[inline]
    pub(super) fn put_back(&mut self, q: Queue, e: Entity) {
        let rq = self.rq(q);
        rq.curr = None;
        rq.prev = Some(e);
        self.insert(q, e);
    }

    /// The running `e`, whose lag is noted, no longer runs in `q`; whether it stays in its
    /// tree although it is not runnable.
    #[inline]
    pub(super) fn come_off(&mut self, q: Queue, e: Entity, sleeps: bool) -> bool {
        let eligible = self.average(q).is_eligible(self.se[e as usize].vruntime);
        self.rq(q).curr = None;
        let stays = sleeps && self.k.delay && !eligible;
        if stays {
            let c = self.groups.cpu_of(q);
            let se = &mut self.se[e as usize];
            se.delayed = true;
            se.home = c;
            self.insert(q, e);
        }
        stays
    }

    /// What ran in `q` does so no more: the groups above come off their CPU, too.
    #[inline]
    pub(super) fn put_back_above(&mut self, w: &mut World, mut q: Queue, sleeps: bool) {
        while let Some(e) = self.groups.entity(q) {
            let up = self.groups.above(q);
            if self.is_empty(q) {
                self.groups.give_back(w, q);
                self.note_lag(up, e);
                let stays = self.come_off(up, e, sleeps);
                if !stays {
                    self.groups.goes(w.now(), e, up);
                    let se = &mut self.se[e as usize];
                    se.on = false;
                    se.rest = None;
                }
                self.raise_origin(up);
            } else {
                self.put_back(up, e);
                self.weigh(w, q);
            }
            q = up;
        }
    }

    /// `t` in `q`, and the groups above, run from now on; what of them ran just before goes
    /// on as it was.
    #[inline]
    pub(super) fn go_on(&mut self, root: Queue, q: Queue, t: Tid) {
        let mut at = (q, t);
        loop {
            let (q, e) = at;
            self.take_out(q, e);
            let again = self.rqs[q as usize].prev == Some(e);
            if !again {
                let se = &mut self.se[e as usize];
                se.protected = se.deadline;
            }
            if self.rqs[q as usize].prev.is_some() && !again {
                self.forget_prev(q);
            }
            let rq = self.rq(q);
            rq.curr = Some(e);
            rq.prev = None;
            if q == root {
                return;
            }
            let Some(up) = self.groups.entity(q) else {
                return;
            };
            at = (self.groups.above(q), up);
        }
    }

    /// What was just put back in `q`, and in the groups inside it, is as any other.
    #[inline]
    pub(super) fn forget_prev(&mut self, mut q: Queue) {
        while let Some(inner) = self.rq(q).prev.take().and_then(|e| self.groups.inner(e)) {
            q = inner;
        }
    }

    /// `t` runs in `q` and was of another class: its groups run, too.
    pub(super) fn run_above(&mut self, w: &mut World, mut q: Queue, t: Tid) {
        let weight = self.se[t as usize].weight;
        if self.groups.any() {
            self.groups.comes(w.now(), t, q, weight);
        }
        while let Some(e) = self.groups.entity(q) {
            let up = self.groups.above(q);
            if self.groups.is_held(q) {
                return;
            }
            if self.se[e as usize].on {
                self.se[e as usize].delayed = false;
                self.take_out(up, e);
            } else {
                self.weigh(w, q);
                self.place(up, e, false);
                let weight = self.se[e as usize].weight;
                self.groups.comes(w.now(), e, up, weight);
                self.se[e as usize].on = true;
            }
            self.rq(up).curr = Some(e);
            q = up;
        }
    }

    /// At a tick: the weights of the groups that `t`, running on `c`, is in.
    #[inline]
    pub(super) fn follow_shares(&mut self, w: &World, c: Cpu, t: Tid) {
        let q = self.groups.queue_of(t, c);
        self.follow_from(w, q);
    }

    fn follow_from(&mut self, w: &World, mut q: Queue) {
        while self.groups.entity(q).is_some() {
            self.weigh(w, q);
            q = self.groups.above(q);
        }
    }

    /// Give the entity of `q` the weight that is due to it (reweight_entity).
    fn weigh(&mut self, w: &World, q: Queue) {
        let Some(e) = self.groups.entity(q) else {
            return;
        };
        let new = self.groups.share(w.now(), q);
        let (old, on) = (self.se[e as usize].weight, self.se[e as usize].on);
        if new == old {
            return;
        }
        if old == 0 {
            self.se[e as usize].weight = new;
            return;
        }
        let up = self.groups.above(q);
        if !on {
            self.reweigh(e, new);
            return;
        }
        self.note_lag(up, e);
        let runs = self.rqs[up as usize].curr == Some(e);
        let protected = self.is_protected(e);
        if runs {
            self.rq(up).curr = None;
        } else {
            self.take_out(up, e);
        }
        let se = &mut self.se[e as usize];
        se.rest = Some(se.deadline - se.vruntime);
        self.reweigh(e, new);
        self.place(up, e, false);
        if protected {
            let se = &mut self.se[e as usize];
            se.protected = se.deadline;
        }
        if runs {
            self.rq(up).curr = Some(e);
        } else {
            self.insert(up, e);
        }
        self.groups.weighs(w.now(), e, up, new);
    }
}

impl Levels for Rqs {
    fn groups(&mut self) -> &mut Groups {
        &mut self.groups
    }

    fn tree(&self, q: Queue) -> (&Tree, &Nodes) {
        (&self.rqs[q as usize].tree, &self.nodes)
    }

    fn is_asleep(&self, t: Tid) -> bool {
        self.se[t as usize].delayed
    }

    fn raise(&mut self, w: &mut World, mut q: Queue) {
        while let Some(e) = self.groups.entity(q) {
            if self.groups.is_held(q) {
                return;
            }
            let up = self.groups.above(q);
            if self.se[e as usize].on {
                if self.se[e as usize].delayed {
                    self.requeue_delayed(up, e);
                }
                self.weigh(w, q);
            } else {
                self.weigh(w, q);
                self.place(up, e, false);
                self.insert(up, e);
                self.se[e as usize].on = true;
                let weight = self.se[e as usize].weight;
                self.groups.comes(w.now(), e, up, weight);
                if self.rqs[up as usize].tree.len() == 1 && self.rqs[up as usize].curr.is_none() {
                    self.admit(w, up);
                }
            }
            q = up;
        }
    }

    fn lower(&mut self, w: &mut World, mut q: Queue) {
        while let Some(e) = self.groups.entity(q) {
            let up = self.groups.above(q);
            if self.is_empty(q) {
                self.groups.give_back(w, q);
            }
            if !self.se[e as usize].on {
                return;
            }
            if self.is_empty(q) || self.groups.is_held(q) {
                if self.rqs[up as usize].prev == Some(e) {
                    self.forget_prev(up);
                }
                self.note_lag(up, e);
                self.take_out(up, e);
                let se = &mut self.se[e as usize];
                (se.on, se.delayed) = (false, false);
                se.rest = None;
                self.raise_origin(up);
                self.groups.goes(w.now(), e, up);
            } else {
                self.weigh(w, q);
            }
            q = up;
        }
    }

    fn count(&mut self, c: Cpu, more: i64) {
        let n = &mut self.counts[c as usize].nr;
        *n = (i64::from(*n) + more) as u32;
    }
}
