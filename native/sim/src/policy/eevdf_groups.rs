//! EEVDF's queues of control groups: entities that come, go, run and change their weight.
//!
//! What a group's entity does follows from the threads in the group (enqueue_task_fair,
//! dequeue_entities, put_prev_task_fair, set_next_task_fair and reweight_entity of
//! kernel/sched/fair.c, 6.6 to 6.18). An entity whose group has no runnable thread left may stay in
//! its queue as a sleeper does. Left out: in 6.12 a changed weight ends the protection of what runs
//! (it does so no more in 6.17).
use super::super::machine::Cpu;
use super::super::tree::{Nodes, Tree};
use super::super::workload::Tid;
use super::super::world::World;
use super::eevdf_queue::{Rq, Rqs, Se};
use super::linux_groups::{Entity, Groups, Levels, Queue};

impl Rqs {
    /// The queues and entities of the workload's groups.
    pub(super) fn init_groups(&mut self, w: &World) {
        self.groups = Groups::new(w, self.bandwidth_slice, true, self.k.util_by_weight);
        if self.groups.any() {
            self.rqs.resize(self.groups.n_queues(), Rq::default());
            self.se.resize(self.groups.n_entities(), Se::default());
            self.nodes = Nodes::new(self.groups.n_entities());
        }
    }

    /// `t` has joined `q`, and its groups follow.
    #[inline]
    pub(super) fn come(&mut self, w: &mut World, q: Queue, t: Tid) {
        let weight = self.se[t as usize].weight;
        self.groups.comes(w.now(), t, q, weight);
        if !self.groups.any() {
            return;
        }
        self.put_aside_if_held(w, q, t);
        if self.rqs[q as usize].tree.len() == 1 && self.rqs[q as usize].curr.is_none() {
            self.admit(w, q);
        }
        self.raise(w, q);
    }

    /// `e` has left the tree of `q`.
    #[inline]
    pub(super) fn gone(&mut self, w: &mut World, q: Queue, e: Entity) {
        self.groups.goes(w.now(), e, q);
        if !self.groups.any() {
            return;
        }
        if self.is_empty(q) {
            self.lower(w, q);
        } else {
            self.follow_from(w, q);
        }
    }

    pub(super) fn is_empty(&self, q: Queue) -> bool {
        let rq = &self.rqs[q as usize];
        rq.tree.is_empty() && rq.curr.is_none()
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

    /// `t` runs in `q` and was of another class: its groups run, too.
    pub(super) fn run_above(&mut self, w: &mut World, mut q: Queue, t: Tid) {
        let weight = self.se[t as usize].weight;
        self.groups.comes(w.now(), t, q, weight);
        while let Some(e) = self.groups.entity(q) {
            let up = self.groups.above(q);
            if self.groups.is_held(q) {
                return;
            }
            if self.se[e as usize].on {
                self.se[e as usize].delayed = false;
                self.take_out(up, e);
            } else {
                self.join_above(w, q, e, up);
            }
            self.rq(up).curr = Some(e);
            q = up;
        }
    }

    /// The entity `e` of `q` counts in `up` from now on, with its place there.
    fn join_above(&mut self, w: &World, q: Queue, e: Entity, up: Queue) {
        self.weigh(w, q);
        self.place(up, e, false);
        let se = &mut self.se[e as usize];
        se.on = true;
        let weight = se.weight;
        self.groups.comes(w.now(), e, up, weight);
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
                self.join_above(w, q, e, up);
                self.insert(up, e);
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

    fn running(&mut self, q: Queue) -> (&mut Option<Entity>, &mut Option<Entity>) {
        let rq = self.rq(q);
        (&mut rq.curr, &mut rq.prev)
    }

    fn insert(&mut self, q: Queue, e: Entity) {
        Self::insert(self, q, e);
    }

    fn take_out(&mut self, q: Queue, e: Entity) {
        Self::take_out(self, q, e);
    }

    #[inline]
    fn picked(&mut self, e: Entity, again: bool) {
        if !again {
            let se = &mut self.se[e as usize];
            se.protected = se.deadline;
            if self.own.len() > e as usize {
                self.begin_protection(self.home_of(e), e);
            }
        }
    }

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

    fn count(&mut self, c: Cpu, more: i64) {
        let n = &mut self.counts[c as usize].nr;
        *n = (i64::from(*n) + more) as u32;
    }
}
