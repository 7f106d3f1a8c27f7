//! Control groups in Linux's fair class (CONFIG_FAIR_GROUP_SCHED): which threads compete.
//!
//! Each group has a queue on every CPU, and an entity that stands for it in the queue of its
//! parent there; queues and entities of CPUs and threads come first in the numbering. The
//! entity's weight is the group's shares times the part of the group's load that is on that
//! CPU (calc_group_shares of kernel/sched/fair.c, 4.14 to 6.18):
//!
//! ```text
//! shares * load / (average load of the group's other queues + load)
//! ```
//!
//! where `load` is the queue's load of the moment or its average (`linux_load`), whichever is
//! larger. It is worked out when an entity comes or goes and at ticks (update_cfs_group).
//!
//! Averages of the other CPUs are summed again once a millisecond, as often as the kernel brings
//! its sum up to date (update_tg_load_avg, 6.7). Left out: averages of groups in groups do not
//! follow a thread at once to another CPU but over their 32 ms; idle groups (cpu.idle); weights
//! have no fractions, where the kernel's have ten bits.
//!
//! A thread that changes its group leaves one queue for another on its CPU (sched_move_task,
//! task_change_group_fair) and takes its average along.
use super::super::machine::Cpu;
use super::super::tree::{Nodes, Tree};
use super::super::workload::{GroupSpec, Tid};
use super::super::world::{RescheduleReason, State, World};
use super::linux_bandwidth::Bandwidth;
use super::linux_load::Loads;
pub(super) use super::linux_load::{Entity, Queue};
use super::linux_util::Utilisation;

/// MIN_SHARES.
const LEAST: i64 = 2;
/// How often the sum over all CPUs is renewed, ns.
const RENEWED: i64 = 1_000_000;

struct Group {
    parent: Option<u32>,
    shares: i64,
    /// The sum of its queues' averages, and since when.
    sum: f64,
    summed_at: Option<i64>,
}

#[derive(Default)]
pub(super) struct Groups {
    ncpu: u32,
    nthreads: u32,
    groups: Vec<Group>,
    group_of: Vec<Option<u32>>,
    pub(super) loads: Loads,
    pub(super) utilisation: Utilisation,
    /// What each group's queue contributed to the sum of its group.
    contributed: Vec<f64>,
    pub(super) bandwidth: Bandwidth,
    /// Of each CPU the queues that may have used up their quota.
    pub(super) exhausted: Vec<Vec<Queue>>,
}

/// The least number of a timer that is neither a CPU's nor of quotas.
pub(super) fn timers(w: &World) -> u32 {
    (w.ncpu() + 2 * w.groups().len()) as u32
}

impl Groups {
    /// `placed`: loads are asked for where there are several CPUs, too; `by_weight`: see
    /// `Utilisation`.
    pub(super) fn new(w: &World, slice: i64, placed: bool, by_weight: bool) -> Self {
        let (ncpu, nthreads) = (w.ncpu() as u32, w.nthreads() as u32);
        let group = |spec: &GroupSpec| Group {
            parent: spec.parent,
            shares: spec.shares,
            sum: 0.0,
            summed_at: None,
        };
        let groups: Vec<Group> = w.groups().iter().map(group).collect();
        let any = !groups.is_empty();
        let of_groups = groups.len() * w.ncpu();
        Self {
            ncpu,
            nthreads,
            group_of: if any {
                (0..nthreads).map(|t| w.first_group(t)).collect()
            } else {
                Vec::new()
            },
            loads: if any || (placed && w.ncpu() > 1) {
                Loads::new(w.nthreads(), w.nthreads() + of_groups, w.ncpu() + of_groups)
            } else {
                Loads::default()
            },
            utilisation: if placed && w.ncpu() > 1 {
                Utilisation::new(w.nthreads(), w.ncpu(), by_weight)
            } else {
                Utilisation::default()
            },
            contributed: vec![0.0; of_groups],
            bandwidth: Bandwidth::new(w, slice),
            exhausted: vec![Vec::new(); if any { w.ncpu() } else { 0 }],
            groups,
        }
    }

    #[inline]
    pub(super) fn any(&self) -> bool {
        !self.groups.is_empty()
    }

    /// The queues of all CPUs and groups.
    pub(super) fn n_queues(&self) -> usize {
        self.ncpu as usize + self.contributed.len()
    }

    pub(super) fn n_entities(&self) -> usize {
        self.nthreads as usize + self.contributed.len()
    }

    /// The queue that the thread `t` is in on `c`.
    #[inline]
    pub(super) fn queue_of(&self, t: Tid, c: Cpu) -> Queue {
        if !self.any() {
            return Queue::from(c);
        }
        match self.group_of[t as usize] {
            None => Queue::from(c),
            Some(g) => self.of_group(g, c),
        }
    }

    fn of_group(&self, g: u32, c: Cpu) -> Queue {
        self.ncpu + g * self.ncpu + Queue::from(c)
    }

    #[inline]
    pub(super) fn cpu_of(&self, q: Queue) -> Cpu {
        (q % self.ncpu) as Cpu
    }

    /// The CPU's own queue beside `q`.
    #[inline]
    pub(super) fn cpu_or_all(&self, q: Queue) -> Queue {
        if self.any() { q % self.ncpu } else { q }
    }

    fn place(&self, q: Queue) -> usize {
        (q - self.ncpu) as usize
    }

    /// What stands for a group's queue in the queue above.
    #[inline]
    pub(super) fn entity(&self, q: Queue) -> Option<Entity> {
        (q >= self.ncpu).then(|| self.nthreads + q - self.ncpu)
    }

    /// The queue that an entity stands for; `None` for a thread.
    #[inline]
    pub(super) fn inner(&self, e: Entity) -> Option<Queue> {
        (e >= self.nthreads).then(|| self.ncpu + e - self.nthreads)
    }

    /// The queue above a group's, in which its entity is.
    pub(super) fn above(&self, q: Queue) -> Queue {
        let g = self.place(q) / self.ncpu as usize;
        let c = self.cpu_of(q);
        match self.groups[g].parent {
            None => Queue::from(c),
            Some(p) => self.of_group(p, c),
        }
    }

    /// Whether threads of `q` on `from` may go to `to` (throttled_lb_pair).
    pub(super) fn may_leave(&self, q: Queue, from: Cpu, to: Cpu) -> bool {
        let there = q - Queue::from(from) + Queue::from(to);
        !self.is_under_hold(q) && !self.is_under_hold(there)
    }

    /// The queues of all groups on `c`.
    pub(super) fn queues_on(&self, c: Cpu) -> impl Iterator<Item = Queue> + use<> {
        let (first, step) = (self.ncpu + Queue::from(c), self.ncpu as usize);
        (first..self.ncpu + self.contributed.len() as u32).step_by(step)
    }

    /// Where the paths of two threads on `c` meet: the queue, and what competes there.
    #[inline]
    pub(super) fn meeting(&self, a: Tid, b: Tid, c: Cpu) -> (Queue, Entity, Entity) {
        if !self.any() {
            return (Queue::from(c), a, b);
        }
        let (mut qa, mut qb) = (self.queue_of(a, c), self.queue_of(b, c));
        let (mut a, mut b) = (a, b);
        // Parents stand before their children.
        while qa != qb {
            let higher = if qa > qb { &mut qa } else { &mut qb };
            let entity = self.entity(*higher).unwrap_or(0);
            let up = self.above(*higher);
            if qa > qb {
                (qa, a) = (up, entity);
            } else {
                (qb, b) = (up, entity);
            }
        }
        (qa, a, b)
    }

    /// Whether `q`, or a queue above it, has a quota.
    pub(super) fn has_quota(&self, mut q: Queue) -> bool {
        while self.entity(q).is_some() {
            if self.bandwidth.is_limited(self.place(q)) {
                return true;
            }
            q = self.above(q);
        }
        false
    }

    /// Whether `q`, or a queue above it, is held back by a quota.
    pub(super) fn is_under_hold(&self, mut q: Queue) -> bool {
        while q >= self.ncpu {
            if self.bandwidth.is_held(self.place(q)) {
                return true;
            }
            q = self.above(q);
        }
        false
    }

    pub(super) fn is_held(&self, q: Queue) -> bool {
        q >= self.ncpu && self.bandwidth.is_held(self.place(q))
    }

    /// `q` ran for `ns`.
    pub(super) fn spend(&mut self, w: &mut World, q: Queue, ns: i64) {
        let place = self.place(q);
        if self.bandwidth.spend(w, place, ns) {
            let c = self.cpu_of(q);
            if !self.exhausted[c as usize].contains(&q) {
                self.exhausted[c as usize].push(q);
            }
            w.resched(c, RescheduleReason::SliceEnd);
        }
    }

    pub(super) fn give_back(&mut self, w: &mut World, q: Queue) {
        let place = self.place(q);
        self.bandwidth.give_back(w, place);
    }

    /// The entity `e`, of `weight`, is runnable in `q` from now on.
    #[inline]
    pub(super) fn comes(&mut self, now: i64, e: Entity, q: Queue, weight: i64) {
        if e < self.nthreads {
            let loads = &self.loads;
            let part = || weight as f64 / (loads.of_queue(now, q).floor() + 1.0);
            self.utilisation.comes(now, e, (q % self.ncpu) as Cpu, part);
        }
        self.loads.comes(now, e, q, weight);
    }

    /// `t`, in a queue, begins or ceases to run.
    #[inline]
    pub(super) fn runs(&mut self, now: i64, t: Tid, running: bool) {
        self.utilisation.runs(now, t, running);
        self.loads.runs(now, t, running);
    }

    /// `t`, in no queue now, is in `group` from now on, on `c`.
    pub(super) fn change_group(&mut self, now: i64, t: Tid, c: Cpu, group: Option<u32>) {
        self.group_of[t as usize] = group;
        let to = self.queue_of(t, c);
        self.loads.belongs(now, t, Some(to));
    }

    /// `t` has ended.
    pub(super) fn ends(&mut self, now: i64, t: Tid) {
        self.loads.belongs(now, t, None);
        self.utilisation.ends(now, t);
    }

    /// `e` is no longer runnable in its queue.
    #[inline]
    pub(super) fn goes(&mut self, now: i64, e: Entity, q: Queue) {
        self.loads.goes(now, e, q);
        if e < self.nthreads {
            self.utilisation.goes(now, e);
        }
    }

    /// `e`, runnable in `q`, weighs something else.
    pub(super) fn weighs(&mut self, now: i64, e: Entity, q: Queue, weight: i64) {
        self.loads.weighs(now, e, q, weight);
    }

    /// What `t`, last on `c`, adds to that CPU's load: in a group its part of what the group
    /// weighs there (task_h_load, update_cfs_rq_h_load).
    pub(super) fn load_of(&self, now: i64, c: Cpu, t: Tid) -> i64 {
        let mut load = self.loads.of(now, t);
        let mut q = self.queue_of(t, c);
        while let Some(e) = self.entity(q) {
            load = load * self.loads.of(now, e) / (self.loads.of_queue(now, q) + 1.0);
            q = self.above(q);
        }
        load as i64
    }

    /// The load of `c`, that of those who sleep and were last there included (cpu_load).
    pub(super) fn load(&self, now: i64, c: Cpu) -> i64 {
        self.loads.of_queue(now, Queue::from(c)) as i64
    }

    /// What the entity of `q` is to weigh now.
    pub(super) fn share(&mut self, now: i64, q: Queue) -> i64 {
        let (place, ncpu) = (self.place(q), self.ncpu as usize);
        let g = place / ncpu;
        if self.groups[g]
            .summed_at
            .is_none_or(|at| now - at >= RENEWED)
        {
            let mut sum = 0.0;
            for place in g * ncpu..(g + 1) * ncpu {
                let average = self.loads.of_queue(now, (ncpu + place) as Queue);
                self.contributed[place] = average;
                sum += average;
            }
            self.groups[g].sum = sum;
            self.groups[g].summed_at = Some(now);
        }
        let contributed = self.contributed[place];
        let group = &self.groups[g];
        let load = (self.loads.of_queue(now, q)).max(self.loads.in_queue(q) as f64);
        let whole = (group.sum - contributed).max(0.0) + load;
        let share = if whole > 0.0 {
            group.shares as f64 * load / whole
        } else {
            group.shares as f64
        };
        (share.round() as i64).clamp(LEAST, group.shares)
    }
}

/// The parts of a policy's queues that holding groups back needs.
pub(super) trait Levels {
    fn groups(&mut self) -> &mut Groups;
    fn tree(&self, q: Queue) -> (&Tree, &Nodes);
    /// Whether a thread in a queue is asleep.
    fn is_asleep(&self, t: Tid) -> bool;
    /// The entity of `q`, which is not empty, joins the queue above it, and so on.
    fn raise(&mut self, w: &mut World, q: Queue);
    /// The entity of `q` leaves the queue above it, and so does that one's if it is then empty.
    fn lower(&mut self, w: &mut World, q: Queue);
    /// So many threads more are runnable on `c`.
    fn count(&mut self, c: Cpu, more: i64);
    /// Who runs in `q`, and who of its tree ran until just now.
    fn running(&mut self, q: Queue) -> (&mut Option<Entity>, &mut Option<Entity>);
    fn insert(&mut self, q: Queue, e: Entity);
    fn take_out(&mut self, q: Queue, e: Entity);
    /// `e` runs from now on; `again`: it ran until just now.
    fn picked(&mut self, e: Entity, again: bool);
    /// Give the entity of `q` the weight that is due to it (reweight_entity).
    fn weigh(&mut self, w: &World, q: Queue);

    /// What has become runnable in `q` may not run if a quota is used up.
    #[inline]
    fn put_aside_if_held(&mut self, w: &mut World, q: Queue, t: Tid) {
        let groups = self.groups();
        if groups.any() && groups.is_under_hold(q) {
            let c = groups.cpu_of(q);
            self.count(c, -1);
            w.set_aside(t);
        }
    }

    /// The queued `t` is about to leave `q`: it counts again.
    #[inline]
    fn release(&mut self, w: &mut World, q: Queue, t: Tid) {
        let groups = self.groups();
        if groups.any() && groups.is_under_hold(q) {
            let c = groups.cpu_of(q);
            self.count(c, 1);
            w.bring_back(t);
        }
    }

    /// The running `e` goes back into the tree of `q`.
    #[inline]
    fn put_back(&mut self, q: Queue, e: Entity) {
        let (curr, prev) = self.running(q);
        (*curr, *prev) = (None, Some(e));
        self.insert(q, e);
    }

    /// `t` in `q`, and the groups above, run from now on; what of them ran just before goes
    /// on as it was.
    #[inline]
    fn go_on(&mut self, root: Queue, q: Queue, t: Tid) {
        let mut at = (q, t);
        loop {
            let (q, e) = at;
            self.take_out(q, e);
            let again = *self.running(q).1 == Some(e);
            self.picked(e, again);
            if !again {
                self.forget_prev(q);
            }
            let (curr, prev) = self.running(q);
            (*curr, *prev) = (Some(e), None);
            if q == root {
                return;
            }
            let groups = self.groups();
            let Some(up) = groups.entity(q) else {
                return;
            };
            at = (groups.above(q), up);
        }
    }

    /// What was just put back in `q`, and in the groups inside it, is as any other.
    #[inline]
    fn forget_prev(&mut self, mut q: Queue) {
        while let Some(e) = self.running(q).1.take() {
            let Some(inner) = self.groups().inner(e) else {
                return;
            };
            q = inner;
        }
    }

    /// At a tick: the weights of the groups that `t`, running on `c`, is in.
    #[inline]
    fn follow_shares(&mut self, w: &World, c: Cpu, t: Tid) {
        let q = self.groups().queue_of(t, c);
        self.follow_from(w, q);
    }

    /// The weights of the entity of `q` and of those above it.
    fn follow_from(&mut self, w: &World, mut q: Queue) {
        while self.groups().entity(q).is_some() {
            self.weigh(w, q);
            q = self.groups().above(q);
        }
    }

    /// The runnable threads in `q` and in the queues of groups inside it, but for those that
    /// are held back further down.
    fn threads_under(&mut self, q: Queue) -> Vec<Tid> {
        let mut found = Vec::new();
        let mut queues = vec![q];
        while let Some(q) = queues.pop() {
            let mut inside = Vec::new();
            let (tree, nodes) = self.tree(q);
            tree.visit(nodes, |e| {
                inside.push(e);
                true
            });
            for e in inside {
                match self.groups().inner(e) {
                    Some(inner) => queues.push(inner),
                    None if !self.is_asleep(e) => found.push(e),
                    None => {}
                }
            }
        }
        found
    }

    /// Before `c` chooses: hold back what has used up its quota.
    #[inline]
    fn hold_exhausted(&mut self, w: &mut World, c: Cpu) {
        if !self.groups().any() {
            return;
        }
        let queues = std::mem::take(&mut self.groups().exhausted[c as usize]);
        for q in queues {
            let is_empty = self.tree(q).0.is_empty();
            if !is_empty && self.hold(w, q) {
                self.lower(w, q);
            }
        }
    }

    /// The first entity has come into `q` (check_enqueue_throttle).
    fn admit(&mut self, w: &mut World, q: Queue) {
        let groups = self.groups();
        if q >= groups.ncpu {
            let place = groups.place(q);
            groups.bandwidth.spend(w, place, 0);
            self.hold(w, q);
        }
    }

    /// Hold `q` back if its quota is used up; its entity is still to leave the queue above.
    fn hold(&mut self, w: &mut World, q: Queue) -> bool {
        let groups = self.groups();
        if q < groups.ncpu {
            return false;
        }
        let under = groups.is_under_hold(q);
        let place = groups.place(q);
        if !groups.bandwidth.hold(w, place) {
            return false;
        }
        if !under {
            let threads = self.threads_under(q);
            let c = self.groups().cpu_of(q);
            self.count(c, -(threads.len() as i64));
            threads.into_iter().for_each(|t| w.set_aside(t));
        }
        true
    }

    /// A timer of a quota fired: what it lets run joins its CPU's queues again.
    fn quota_timer(&mut self, w: &mut World, id: u32) {
        let places = self.groups().bandwidth.timer(w, id);
        for place in places {
            let groups = self.groups();
            let q = groups.ncpu + place as Queue;
            let c = groups.cpu_of(q);
            if !self.groups().is_under_hold(q) {
                let threads = self.threads_under(q);
                self.count(c, threads.len() as i64);
                for t in threads {
                    debug_assert_eq!(w.thread(t).state, State::Queued);
                    w.bring_back(t);
                }
            }
            if !self.tree(q).0.is_empty() {
                self.raise(w, q);
            }
            // unthrottle_cfs_rq: an idle CPU chooses, another one when it next does anyway.
            if w.cpu(c).curr.is_none() {
                w.resched(c, RescheduleReason::Preempted);
            }
        }
    }
}
