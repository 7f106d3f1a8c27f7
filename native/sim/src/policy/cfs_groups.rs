//! CFS's queues of control groups: entities that come, go, run and change their weight.
//!
//! What a group's entity does follows from the threads in the group (enqueue_task_fair,
//! dequeue_task_fair, put_prev_task_fair, set_next_entity and reweight_entity of
//! kernel/sched/fair.c, 5.10 and 6.1). A group comes back to the queue above as a sleeper does
//! (place_entity). From 3.15 on what of the path to a thread runs on, or the thread itself, is not
//! picked again (pick_next_task_fair), so that a slice that is over is over at each tick.
use super::super::machine::Cpu;
use super::super::tree::{Nodes, Tree};
use super::super::workload::Tid;
use super::super::world::World;
use super::cfs_queue::{Rq, Rqs, Se};
use super::linux_groups::{Entity, Groups, Levels, Queue};

impl Rqs {
    /// The queues and entities of the workload's groups.
    pub(super) fn init_groups(&mut self, w: &World) {
        self.groups = Groups::new(w, self.bandwidth_slice, self.averages, false);
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
        if self.rqs[q as usize].nr == 1 {
            self.admit(w, q);
        }
        self.raise(w, q);
    }

    /// `t` has left the tree of `q`.
    #[inline]
    pub(super) fn gone(&mut self, w: &mut World, q: Queue, t: Tid) {
        self.groups.goes(w.now(), t, q);
        if self.groups.any() {
            self.lower(w, q);
        }
    }

    /// What ran in `q` does so no more: the groups above come off their CPU, too.
    #[inline]
    pub(super) fn put_back_above(&mut self, w: &mut World, mut q: Queue) {
        while let Some(e) = self.groups.entity(q) {
            let up = self.groups.above(q);
            if self.rqs[q as usize].nr == 0 {
                self.groups.give_back(w, q);
                self.rq(up).curr = None;
                self.account_in(up, e, -1);
                self.groups.goes(w.now(), e, up);
                self.rq(up).forget(e);
                self.se[e as usize].on = false;
            } else {
                self.put_back(up, e);
                self.weigh(w, q);
            }
            self.raise_min(up);
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
        let min = self.rqs[up as usize].min_vruntime;
        let se = &mut self.se[e as usize];
        se.vruntime = self.place.woken(se.vruntime, min);
        se.on = true;
        let weight = se.weight;
        self.account_in(up, e, 1);
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

    fn is_asleep(&self, _: Tid) -> bool {
        false
    }

    fn raise(&mut self, w: &mut World, mut q: Queue) {
        while let Some(e) = self.groups.entity(q) {
            if self.groups.is_held(q) {
                return;
            }
            let up = self.groups.above(q);
            if self.se[e as usize].on {
                self.weigh(w, q);
            } else {
                self.join_above(w, q, e, up);
                self.insert(up, e);
                if self.rqs[up as usize].nr == 1 {
                    self.admit(w, up);
                }
            }
            q = up;
        }
    }

    fn lower(&mut self, w: &mut World, mut q: Queue) {
        while let Some(e) = self.groups.entity(q) {
            let up = self.groups.above(q);
            let is_empty = self.rqs[q as usize].nr == 0;
            if is_empty {
                self.groups.give_back(w, q);
            }
            if !self.se[e as usize].on {
                return;
            }
            if is_empty || self.groups.is_held(q) {
                if self.rqs[up as usize].prev == Some(e) {
                    self.forget_prev(up);
                }
                self.take_out(up, e);
                self.account_in(up, e, -1);
                self.groups.goes(w.now(), e, up);
                self.se[e as usize].on = false;
                self.raise_min(up);
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
        if !(again && self.oldest) {
            let se = &mut self.se[e as usize];
            se.ran_at_pick = se.ran;
        }
    }

    fn weigh(&mut self, w: &World, q: Queue) {
        let Some(e) = self.groups.entity(q) else {
            return;
        };
        let new = self.groups.share(w.now(), q);
        let se = &mut self.se[e as usize];
        let old = std::mem::replace(&mut se.weight, new);
        if se.on && new != old {
            let up = self.groups.above(q);
            self.rq(up).load += new - old;
            self.groups.weighs(w.now(), e, up, new);
        }
    }

    fn count(&mut self, c: Cpu, more: i64) {
        let n = &mut self.rqs[c as usize].threads;
        *n = (i64::from(*n) + more) as u32;
    }
}
