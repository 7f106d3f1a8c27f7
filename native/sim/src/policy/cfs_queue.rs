//! CFS's queues: threads and groups in order of their virtual run time.
use super::super::machine::Cpu;
use super::super::tree::{Nodes, Tree};
use super::super::workload::Tid;
use super::super::world::{State, World};
use super::cfs_place::Placing;
use super::linux_fair::virtual_ns;
use super::linux_groups::{Entity, Groups, Levels, Queue};
use super::linux_queues::{MOST_LOOKED_AT, Queues, Want};
use super::linux_util::Use;

/// Numbers of the series that `cfs_spec` declares.
pub(super) const VRUNTIME: u16 = 0;
const MIN_VRUNTIME: u16 = 1;

/// A thread's scheduling entity, or a group's on one CPU.
#[derive(Debug, Clone, Default)]
pub(super) struct Se {
    pub(super) vruntime: i64,
    pub(super) weight: i64,
    /// Of a group: it is in the queue above, or runs there.
    pub(super) on: bool,
    /// CPU time so far, at the last pick, and at the last wakeup it issued.
    pub(super) ran: i64,
    pub(super) ran_at_pick: i64,
    pub(super) ran_at_wakeup: i64,
    pub(super) avg_wakeup: i64,
    /// The CPU whose virtual time `vruntime` is in.
    pub(super) home: Cpu,
    /// When it was last queued or picked, in the order of such moments.
    pub(super) touched: u64,
    pub(super) realtime: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Rq {
    pub(super) tree: Tree,
    pub(super) curr: Option<Entity>,
    /// What was just put back, while the CPU chooses.
    pub(super) prev: Option<Entity>,
    /// Weights of queued and running threads and groups, and their number.
    pub(super) load: i64,
    pub(super) nr: u32,
    /// Of a CPU's own queue: the runnable threads, in groups or not.
    pub(super) threads: u32,
    pub(super) min_vruntime: i64,
    pub(super) next: Option<Entity>,
    pub(super) last: Option<Entity>,
    pub(super) skip: Option<Entity>,
    /// Loads that follow the true one by halves, quarters.. per tick.
    lagging: [i64; 3],
    lagged_at: i64,
    pub(super) realtime: u32,
}

impl Rq {
    /// `t` is no longer a buddy.
    pub(super) fn forget(&mut self, t: Entity) {
        for buddy in [&mut self.next, &mut self.last, &mut self.skip] {
            if *buddy == Some(t) {
                *buddy = None;
            }
        }
    }
}

pub(super) struct Rqs {
    pub(super) groups: Groups,
    pub(super) bandwidth_slice: i64,
    pub(super) place: Placing,
    /// Of CPUs, then of groups on each.
    pub(super) rqs: Vec<Rq>,
    /// Of threads, then of groups on each CPU.
    pub(super) se: Vec<Se>,
    pub(super) nodes: Nodes,
    pub(super) migration_cost: i64,
    /// Pull the thread that was queued or picked longest ago.
    pub(super) oldest: bool,
    /// Loads are decaying averages.
    pub(super) averages: bool,
    pub(super) touches: u64,
    pub(super) jiffy: i64,
}

impl Rqs {
    pub(super) fn rq(&mut self, q: Queue) -> &mut Rq {
        &mut self.rqs[q as usize]
    }

    /// Charge what runs on `c` up to now: the thread, and the groups that it is in.
    pub(super) fn update(&mut self, w: &mut World, c: Cpu) {
        let mut q = Queue::from(c);
        let Some(mut e) = self.rqs[q as usize].curr else {
            return;
        };
        let ran = w.take_run(c);
        self.charge(q, e, ran);
        while let Some(inner) = self.groups.inner(e) {
            if ran > 0 {
                self.groups.spend(w, inner, ran);
            }
            let Some(next) = self.rqs[inner as usize].curr else {
                return;
            };
            (q, e) = (inner, next);
            self.charge(q, e, ran);
        }
        if ran > 0 {
            w.record(VRUNTIME, e, self.se[e as usize].vruntime as f64);
            let min = self.rqs[c as usize].min_vruntime;
            w.record_cpu(MIN_VRUNTIME, c, min as f64);
        }
    }

    #[inline]
    fn charge(&mut self, q: Queue, e: Entity, ran: i64) {
        let se = &mut self.se[e as usize];
        se.ran += ran;
        se.vruntime += virtual_ns(ran, se.weight);
        self.raise_min(q);
    }

    /// The thread that runs on `c`.
    pub(super) fn running(&self, c: Cpu) -> Option<Tid> {
        let mut e = self.rqs[c as usize].curr;
        while let Some(q) = e.and_then(|e| self.groups.inner(e)) {
            e = self.rqs[q as usize].curr;
        }
        e
    }

    pub(super) fn raise_min(&mut self, q: Queue) {
        let rq = &self.rqs[q as usize];
        let first = rq.tree.first().map(|t| self.se[t as usize].vruntime);
        let curr = rq.curr.map(|t| self.se[t as usize].vruntime);
        let least = match (first, curr) {
            (Some(a), Some(b)) => a.min(b),
            (Some(a), None) | (None, Some(a)) => a,
            (None, None) => return,
        };
        let rq = self.rq(q);
        rq.min_vruntime = rq.min_vruntime.max(least);
    }

    pub(super) fn insert(&mut self, q: Queue, t: Entity) {
        let v = self.se[t as usize].vruntime;
        let rq = &mut self.rqs[q as usize];
        rq.tree.insert(&mut self.nodes, t, v, 0);
    }

    pub(super) fn take_out(&mut self, q: Queue, t: Entity) {
        let rq = &mut self.rqs[q as usize];
        rq.tree.remove(&mut self.nodes, t);
        rq.forget(t);
    }

    /// The slice of `e` in `q`, which will have `more` beside what it has (sched_slice).
    pub(super) fn slice(&self, q: Queue, e: Entity, more: bool) -> i64 {
        let weight = self.se[e as usize].weight;
        let rq = &self.rqs[q as usize];
        // ALT_PERIOD, which is as old as the least slice.
        let nr = if self.place.least_slice {
            self.rqs[self.groups.cpu_or_all(q) as usize].threads
        } else {
            rq.nr
        };
        let (nr, load) = if more {
            (nr + 1, rq.load + weight)
        } else {
            (nr, rq.load)
        };
        let mut slice = self.place.part(i64::from(nr), load, weight);
        let mut q = q;
        while let Some(e) = self.groups.entity(q) {
            q = self.groups.above(q);
            let weight = self.se[e as usize].weight;
            slice = slice * weight / self.rqs[q as usize].load.max(weight).max(1);
        }
        self.place.long_enough(slice)
    }

    /// What the balancer takes `t`, in a queue of `c`, to weigh: of a thread in a group
    /// its part of the group's weight (task_h_load).
    pub(super) fn load_of(&self, w: &World, c: Cpu, t: Tid) -> i64 {
        if self.averages {
            return self.groups.load_of(w.now(), c, t);
        }
        let mut load = self.se[t as usize].weight;
        let mut q = self.groups.queue_of(t, c);
        while let Some(e) = self.groups.entity(q) {
            let all = self.rqs[q as usize].load.max(load).max(1);
            load = load * self.se[e as usize].weight / all;
            q = self.groups.above(q);
        }
        load
    }

    pub(super) fn touch(&mut self, t: Tid) {
        self.touches += 1;
        self.se[t as usize].touched = self.touches;
    }

    /// The threads that wait on `c`, in the order of its queues, or the one that was queued or
    /// picked longest ago first, with the one that runs (rq->cfs_tasks).
    fn in_turn(&self, c: Cpu) -> Vec<Tid> {
        let mut found: Vec<Tid> = Vec::new();
        let mut look = |q: Queue| {
            let rq = &self.rqs[q as usize];
            let mut see = |t: Tid| {
                if self.groups.inner(t).is_none() {
                    found.push(t);
                }
                true
            };
            rq.tree.visit(&self.nodes, &mut see);
            if self.oldest {
                rq.curr.map(&mut see);
            }
        };
        look(Queue::from(c));
        self.groups.queues_on(c).for_each(look);
        if self.oldest {
            found.sort_by_key(|t| self.se[*t as usize].touched);
        }
        found
    }

    /// Whether `t` may move from `from` to `to` (can_migrate_task), and is not too much.
    fn may_move(&self, w: &World, t: Tid, from: Cpu, to: Cpu, want: Want) -> bool {
        let th = w.thread(t);
        if th.state != State::Queued || !w.allowed(t, to) {
            return false;
        }
        let q = self.groups.queue_of(t, from);
        if self.groups.any() && !self.groups.may_leave(q, from, to) {
            return false;
        }
        let rq = &self.rqs[q as usize];
        let to_idle = self.oldest && self.nr(to) == 0;
        let here = !self.oldest || th.last_cpu == Some(from);
        let recent = w.now() - th.last_ran < self.migration_cost && th.last_cpu.is_some();
        let buddy = !to_idle && (rq.next == Some(t) || rq.last == Some(t));
        let load = || self.load_of(w, from, t);
        let used = || self.groups.utilisation.of(w.now(), t).ran;
        (want.hot || !(recent && here || buddy)) && want.fits(load, used)
    }

    /// The thread `t` on `c` is counted, or no longer.
    pub(super) fn account(&mut self, c: Cpu, t: Tid, sign: i64) {
        let q = self.groups.queue_of(t, c);
        self.account_in(q, t, sign);
        let rq = self.rq(Queue::from(c));
        rq.threads = (i64::from(rq.threads) + sign) as u32;
    }

    pub(super) fn account_in(&mut self, q: Queue, e: Entity, sign: i64) {
        let weight = self.se[e as usize].weight;
        let rq = self.rq(q);
        rq.load += sign * weight;
        rq.nr = (i64::from(rq.nr) + sign) as u32;
    }

    /// Carry the virtual time of `t` over to `c`'s.
    pub(super) fn rebase(&mut self, c: Cpu, t: Tid) {
        let home = self.se[t as usize].home;
        let (from, to) = (self.groups.queue_of(t, home), self.groups.queue_of(t, c));
        let shift = self.rqs[to as usize].min_vruntime - self.rqs[from as usize].min_vruntime;
        let se = &mut self.se[t as usize];
        se.vruntime += shift;
        se.home = c;
    }

    /// Bring the lagging loads up to the tick before now.
    pub(super) fn follow(&mut self, w: &World, c: Cpu) {
        let load = self.load(w, c);
        let tick = w.now() / self.jiffy;
        let rq = self.rq(Queue::from(c));
        let ticks = tick - rq.lagged_at;
        rq.lagged_at = tick;
        for (i, x) in rq.lagging.iter_mut().enumerate() {
            for _ in 0..ticks.min(32) {
                let keep = (1i64 << i) - 1;
                // Round up when rising, so that it arrives.
                let up = if load > *x { keep } else { 0 };
                *x = (*x * keep + load + up) >> i;
            }
        }
    }
}

impl Queues for Rqs {
    fn load(&self, w: &World, c: Cpu) -> i64 {
        let rq = &self.rqs[c as usize];
        let fair = if self.averages {
            self.groups.load(w.now(), c)
        } else {
            rq.load
        };
        // A real-time thread weighs as two of nice -20.
        fair + i64::from(rq.realtime) * 2 * 88761
    }

    fn lagged(&self, w: &World, c: Cpu, idx: usize) -> i64 {
        if idx == 0 {
            return self.load(w, c);
        }
        let rq = &self.rqs[c as usize];
        let mut x = rq.lagging[idx.min(2)];
        // An idle CPU's clock stood still: it would have fallen since.
        let missed = if w.is_idle(c) {
            (w.now() / self.jiffy - rq.lagged_at).min(32)
        } else {
            0
        };
        for _ in 0..missed {
            x = (x * ((1 << idx) - 1)) >> idx;
        }
        x
    }

    fn nr(&self, c: Cpu) -> u32 {
        let rq = &self.rqs[c as usize];
        rq.threads + rq.realtime
    }

    fn used(&self, w: &World, c: Cpu) -> Use {
        self.groups.utilisation.of_cpu(w.now(), c)
    }

    fn pull(&mut self, w: &mut World, from: Cpu, to: Cpu, mut want: Want) -> u32 {
        let mut moving = Vec::new();
        for t in self.in_turn(from).into_iter().take(MOST_LOOKED_AT) {
            if want.is_met() {
                break;
            }
            if !self.may_move(w, t, from, to, want) {
                // It goes to the end of the list.
                self.touch(t);
                continue;
            }
            let load = self.load_of(w, from, t);
            want.moved(load, self.groups.utilisation.of(w.now(), t).ran);
            self.depart(w, from, t);
            moving.push(t);
            if !self.oldest {
                self.arrive(w, to, t);
            }
        }
        // The last one to leave is the first to arrive (attach_tasks).
        if self.oldest {
            for t in moving.iter().rev() {
                self.arrive(w, to, *t);
            }
        }
        moving.len() as u32
    }
}

impl Rqs {
    /// Takes `t` from the queues of `c`.
    fn depart(&mut self, w: &mut World, c: Cpu, t: Tid) {
        let out = self.groups.queue_of(t, c);
        self.take_out(out, t);
        self.account(c, t, -1);
        self.gone(w, out, t);
    }

    /// `t`, which has left another CPU, goes into a queue of `to`.
    fn join(&mut self, w: &mut World, to: Cpu, t: Tid) -> Queue {
        self.update(w, to);
        let into = self.groups.queue_of(t, to);
        self.rebase(to, t);
        self.insert(into, t);
        self.account(to, t, 1);
        self.touch(t);
        into
    }

    fn arrive(&mut self, w: &mut World, to: Cpu, t: Tid) {
        let into = self.join(w, to, t);
        w.migrate(t, to);
        self.come(w, into, t);
    }

    /// Active balance: `t`, just put back on `c`, goes to `to`.
    pub(super) fn push_to(&mut self, w: &mut World, c: Cpu, t: Tid, to: Cpu) {
        // Where it comes to may be held back at once, and it does not count as queued yet.
        if self.groups.has_quota(self.groups.queue_of(t, c)) {
            return;
        }
        self.forget_prev(Queue::from(c));
        self.depart(w, c, t);
        let into = self.join(w, to, t);
        self.come(w, into, t);
        w.send(t, to);
    }
}
