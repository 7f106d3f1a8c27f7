//! EEVDF's queues: threads and groups by virtual deadline, their lag, and what is picked.
use super::super::machine::Cpu;
use super::super::tree::{Nodes, Tree};
use super::super::workload::{Class, Tid};
use super::super::world::{RescheduleReason, State, World};
use super::eevdf_lag::{Average, lag_limit};
use super::linux_fair::{NICE_0, virtual_ns};
use super::linux_fair_server::FairServers;
use super::linux_groups::{Entity, Groups, Levels, Queue};
use super::linux_queues::{MOST_LOOKED_AT, Queues, Want};
use super::linux_util::Use;

/// The kernel's timer of a request is never set shorter.
pub(super) const SHORTEST_HRTICK: i64 = 10_000;

/// What roundings of virtual time may amount to between two settings of that timer.
const ROUNDED: i64 = 1_000;

/// Numbers of the series that `eevdf_spec` declares.
const VRUNTIME: u16 = 0;
const DEADLINE: u16 = 1;
const LAG: u16 = 2;

#[derive(Debug, Clone, Copy)]
pub(super) struct Features {
    pub(super) slice: i64,
    pub(super) parity: bool,
    pub(super) place_lag: bool,
    pub(super) initial: bool,
    pub(super) relative: bool,
    pub(super) delay: bool,
    pub(super) zero: bool,
    pub(super) delay_keeps_lag: bool,
    pub(super) preempt: bool,
    pub(super) skips_clock: bool,
    pub(super) lazy: bool,
    pub(super) own_slices: bool,
    pub(super) util_by_weight: bool,
    pub(super) short: bool,
    pub(super) shortest: bool,
    pub(super) hrtick: bool,
    pub(super) eligible_first: bool,
    pub(super) migration_cost: i64,
    pub(super) jiffy: i64,
    pub(super) hz: u32,
}

/// A thread's scheduling entity, or a group's on one CPU: one cache line.
#[derive(Debug, Clone, Default)]
#[repr(align(64))]
pub(super) struct Se {
    pub(super) vruntime: i64,
    pub(super) deadline: i64,
    pub(super) weight: i64,
    /// The lag it left its queue with.
    pub(super) lag: i64,
    /// The rest of a request, kept over a move between CPUs.
    pub(super) rest: Option<i64>,
    /// The deadline it was picked with: while that stands, it is protected.
    pub(super) protected: i64,
    /// Asleep (a group: no thread in it is runnable), but still in the tree of `home`.
    pub(super) delayed: bool,
    /// Of a group: it is in the queue above, or runs there.
    pub(super) on: bool,
    pub(super) home: Cpu,
    /// When it was last queued or picked, in the order of such moments; wraps around.
    touched: u32,
    pub(super) realtime: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Rq {
    pub(super) tree: Tree,
    pub(super) curr: Option<Entity>,
    /// What was just put back, while the CPU chooses.
    pub(super) prev: Option<Entity>,
    /// Over the tree: sum of weights, and of weight * (vruntime - origin).
    pub(super) weight: i64,
    pub(super) moment: i64,
    origin: i64,
}

/// What the balancer asks of every CPU: apart from the rest, and small.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Runnable threads, the running one included, sleepers not.
    pub(super) nr: u32,
    pub(super) realtime: u32,
}

/// What a thread needs beside the rest where some have slices of their own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    pub(super) slice: i64,
    /// The virtual time up to which it is protected since it was picked.
    pub(super) until: i64,
}

pub(super) struct Rqs {
    pub(super) k: Features,
    pub(super) bandwidth_slice: i64,
    pub(super) groups: Groups,
    /// Of CPUs, then of groups on each.
    pub(super) rqs: Vec<Rq>,
    pub(super) counts: Vec<Counts>,
    /// Of threads, then of groups on each CPU.
    pub(super) se: Vec<Se>,
    pub(super) nodes: Nodes,
    /// By thread, what slices of their own need; empty if none has one.
    pub(super) own: Vec<Own>,
    pub(super) touches: u32,
    pub(super) servers: FairServers,
}

impl Rqs {
    pub(super) fn touch(&mut self, t: Tid) {
        self.touches = self.touches.wrapping_add(1);
        self.se[t as usize].touched = self.touches;
    }

    /// The threads on `c`, the one that was queued or picked longest ago first (rq->cfs_tasks).
    fn by_age(&self, c: Cpu) -> Vec<Tid> {
        let mut found: Vec<(u32, Tid)> = Vec::new();
        let mut look = |q: Queue| {
            let rq = &self.rqs[q as usize];
            let mut see = |t: Tid| {
                if self.groups.inner(t).is_none() {
                    let age = self.touches.wrapping_sub(self.se[t as usize].touched);
                    found.push((age, t));
                }
                true
            };
            rq.tree.visit(&self.nodes, &mut see);
            rq.curr.map(&mut see);
        };
        look(Queue::from(c));
        self.groups.queues_on(c).for_each(look);
        found.sort_unstable_by_key(|(age, _)| std::cmp::Reverse(*age));
        found.into_iter().map(|(_, t)| t).collect()
    }

    /// Whether `t` may move from `from` to `to` (can_migrate_task), and is not too much. From 6.14
    /// on one that is not eligible comes to where others of its group are only after a failure
    /// (task_is_ineligible_on_dst_cpu).
    fn may_move(&self, w: &World, t: Tid, from: Cpu, to: Cpu, want: Want) -> bool {
        let (se, th) = (&self.se[t as usize], w.thread(t));
        if se.delayed || th.state != State::Queued || !w.allowed(t, to) {
            return false;
        }
        let q = self.groups.queue_of(t, from);
        if self.groups.any() && !self.groups.may_leave(q, from, to) {
            return false;
        }
        if self.k.eligible_first
            && want.halved == 0
            && !self.average(q).is_eligible(se.vruntime)
            && !self.is_empty(self.groups.queue_of(t, to))
        {
            return false;
        }
        let hot = th.last_cpu == Some(from) && w.now() - th.last_ran < self.k.migration_cost;
        let load = || self.groups.load_of(w.now(), from, t);
        let used = || self.groups.utilisation.of(w.now(), t).ran;
        (want.hot || !hot) && want.fits(load, used)
    }

    pub(super) fn rq(&mut self, q: Queue) -> &mut Rq {
        &mut self.rqs[q as usize]
    }

    pub(super) fn average(&self, q: Queue) -> Average {
        let rq = &self.rqs[q as usize];
        let mut a = Average {
            moment: i128::from(rq.moment),
            weight: rq.weight,
            origin: rq.origin,
        };
        if let Some(t) = rq.curr {
            let se = &self.se[t as usize];
            a.moment += i128::from(se.weight * (se.vruntime - rq.origin));
            a.weight += se.weight;
        }
        a
    }

    /// The origin follows the least virtual time, so that moments stay small.
    pub(super) fn raise_origin(&mut self, q: Queue) {
        let rq = &self.rqs[q as usize];
        let curr = rq.curr.map(|t| self.se[t as usize].vruntime);
        let least = match (rq.tree.least_value(&self.nodes), curr) {
            (Some(a), Some(b)) => a.min(b),
            (Some(a), None) | (None, Some(a)) => a,
            (None, None) => return,
        };
        let rq = self.rq(q);
        let rise = least - rq.origin;
        if rise > 0 {
            rq.moment -= rq.weight * rise;
            rq.origin = least;
        }
    }

    pub(super) fn insert(&mut self, q: Queue, t: Entity) {
        let se = &self.se[t as usize];
        let rq = &mut self.rqs[q as usize];
        rq.weight += se.weight;
        rq.moment += se.weight * (se.vruntime - rq.origin);
        rq.tree.insert(&mut self.nodes, t, se.deadline, se.vruntime);
    }

    pub(super) fn take_out(&mut self, q: Queue, t: Entity) {
        let se = &self.se[t as usize];
        let rq = &mut self.rqs[q as usize];
        rq.weight -= se.weight;
        rq.moment -= se.weight * (se.vruntime - rq.origin);
        rq.tree.remove(&mut self.nodes, t);
    }

    pub(super) fn account(&mut self, w: &mut World, c: Cpu, sign: i64) {
        if sign > 0 {
            self.servers.start(w, c);
        }
        let n = &mut self.counts[c as usize];
        n.nr = (i64::from(n.nr) + sign) as u32;
    }

    /// Charge what runs on `c` up to now: the thread, and the groups that it is in. When
    /// the request of one is done it gets the next one and the CPU chooses again.
    pub(super) fn update(&mut self, w: &mut World, c: Cpu) {
        let mut q = Queue::from(c);
        let Some(mut e) = self.rqs[q as usize].curr else {
            return;
        };
        let ran = w.take_run(c);
        if ran == 0 {
            return;
        }
        self.servers.ran(w, c, ran);
        self.charge(w, c, q, e, ran);
        while let Some(inner) = self.groups.inner(e) {
            self.groups.spend(w, inner, ran);
            let Some(next) = self.rqs[inner as usize].curr else {
                return;
            };
            (q, e) = (inner, next);
            self.charge(w, c, q, e, ran);
        }
        if w.recording() {
            self.show(w, q, e);
        }
    }

    #[inline]
    fn charge(&mut self, w: &mut World, c: Cpu, q: Queue, e: Entity, ran: i64) {
        let slice = self.slice_of(e);
        let se = &mut self.se[e as usize];
        se.vruntime += virtual_ns(ran, se.weight);
        let done = se.vruntime >= se.deadline;
        if done {
            se.deadline = se.vruntime + virtual_ns(slice, se.weight);
        }
        if (done || self.no_longer_protected(q, e)) && !self.rqs[q as usize].tree.is_empty() {
            w.resched(c, RescheduleReason::SliceEnd);
        }
        self.raise_origin(q);
    }

    /// The thread that runs on `c`, and whether another one waits.
    pub(super) fn running(&self, c: Cpu) -> (Option<Tid>, bool) {
        let rq = &self.rqs[c as usize];
        let (mut e, mut waits) = (rq.curr, !rq.tree.is_empty());
        while let Some(q) = e.and_then(|e| self.groups.inner(e)) {
            let rq = &self.rqs[q as usize];
            e = rq.curr;
            waits |= !rq.tree.is_empty();
        }
        (e, waits)
    }

    /// Set the timer of `c` to the end of its thread's request, if anybody waits: when it takes
    /// the CPU from another one (`hrtick_start_fair` in `set_next_task_fair`). One that is chosen
    /// again sets no timer, and its request then ends at a tick.
    pub(super) fn arm(&self, w: &mut World, c: Cpu, shortest: i64) {
        if !self.k.hrtick {
            return;
        }
        let (Some(t), true) = self.running(c) else {
            return;
        };
        w.arm_timer(u32::from(c), w.now() + self.left(t).max(shortest));
    }

    /// The same when a thread comes, if the timer is not set, for whichever thread it was set
    /// (`hrtick_update`): a switch to a thread without others leaves it as it is.
    pub(super) fn arm_if_idle(&self, w: &mut World, c: Cpu) {
        if self.k.hrtick && !w.timer_is_armed(u32::from(c)) {
            self.arm(w, c, SHORTEST_HRTICK);
        }
    }

    /// How long `t` has to run until its request is done: rounded up, so that it is done then.
    fn left(&self, t: Entity) -> i64 {
        let se = &self.se[t as usize];
        ((se.deadline - se.vruntime) * se.weight + NICE_0 - 1) / NICE_0
    }

    /// The timer of `c` has fired: it chooses again in any case (`entity_tick`).
    pub(super) fn request_timer(&mut self, w: &mut World, c: Cpu) {
        self.update(w, c);
        let (Some(t), true) = Self::running(self, c) else {
            return;
        };
        // Ticks in between have rounded nanoseconds away; the kernel's timer is late, not early.
        if !w.needs_resched(c) && self.left(t) < ROUNDED {
            self.arm(w, c, 1);
        } else {
            w.resched(c, RescheduleReason::SliceEnd);
        }
    }

    pub(super) fn show(&self, w: &mut World, q: Queue, t: Tid) {
        let se = &self.se[t as usize];
        w.record(VRUNTIME, t, se.vruntime as f64);
        w.record(DEADLINE, t, se.deadline as f64);
        let lag = self.average(q).vruntime() - se.vruntime;
        w.record(LAG, t, lag as f64);
    }

    /// The lag with which `t` leaves `q`; it is still counted there.
    pub(super) fn note_lag(&mut self, q: Queue, t: Entity) {
        let v = self.average(q).vruntime();
        let slice = self.slice_of(t);
        let se = &mut self.se[t as usize];
        let most = lag_limit(slice, self.k.jiffy, se.weight);
        se.lag = (v - se.vruntime).clamp(-most, most);
    }

    /// The same of a sleeper that stayed in `q`: what it has worked off counts, and in 7.2 not
    /// that others came or went meanwhile (`update_entity_lag`).
    fn note_lag_of_delayed(&mut self, q: Queue, t: Entity) {
        let before = self.se[t as usize].lag;
        self.note_lag(q, t);
        let se = &mut self.se[t as usize];
        if self.k.delay_keeps_lag {
            se.lag = se.lag.max(before);
        }
        if self.k.zero {
            se.lag = se.lag.min(0);
        }
    }

    /// Give `t`, which is counted nowhere, its place in `q`.
    pub(super) fn place(&mut self, q: Queue, t: Entity, new: bool) {
        let a = self.average(q);
        let own = self.slice_of(t);
        let se = &mut self.se[t as usize];
        let mut slice = virtual_ns(own, se.weight);
        let lag = if self.k.place_lag { se.lag } else { 0 };
        se.vruntime = a.placed(lag, se.weight);
        if let Some(rest) = se.rest.take() {
            se.deadline = se.vruntime + rest;
            return;
        }
        if new && self.k.initial {
            slice /= 2;
        }
        se.deadline = se.vruntime + slice;
    }

    pub(super) fn is_protected(&self, t: Entity) -> bool {
        let se = &self.se[t as usize];
        self.k.parity && se.protected == se.deadline && !self.protection_is_over(t)
    }

    /// What `q` should run, the running one (or the one just put back) among
    /// the candidates.
    pub(super) fn best(&self, q: Queue) -> Option<Entity> {
        let rq = &self.rqs[q as usize];
        let a = self.average(q);
        let ours = rq
            .curr
            .or(rq.prev)
            .filter(|t| a.is_eligible(self.se[*t as usize].vruntime));
        if let Some(t) = ours
            && self.is_protected(t)
        {
            return Some(t);
        }
        let first = rq.tree.first_low(&self.nodes, |v| a.is_eligible(v));
        match (ours, first) {
            (Some(o), Some(f)) => {
                let earlier = self.se[o as usize].deadline < self.se[f as usize].deadline;
                Some(if earlier { o } else { f })
            }
            (o, f) => o.or(f).or_else(|| rq.tree.first()).or(rq.curr),
        }
    }

    /// A sleeper, or a group without anybody runnable, leaves the tree at last.
    pub(super) fn finish_delayed(&mut self, w: &mut World, q: Queue, t: Entity) {
        self.note_lag_of_delayed(q, t);
        self.take_out(q, t);
        let se = &mut self.se[t as usize];
        (se.delayed, se.on) = (false, false);
        self.raise_origin(q);
        self.gone(w, q, t);
    }

    /// The queue in which a sleeper still is.
    pub(super) fn home_of(&self, t: Tid) -> Queue {
        self.groups.queue_of(t, self.se[t as usize].home)
    }
}

impl Queues for Rqs {
    fn load(&self, w: &World, c: Cpu) -> i64 {
        // A real-time thread weighs as two of nice -20.
        let realtime = self.counts[c as usize].realtime;
        self.groups.load(w.now(), c) + i64::from(realtime) * 2 * 88761
    }

    fn nr(&self, c: Cpu) -> u32 {
        let n = &self.counts[c as usize];
        n.nr + n.realtime
    }

    fn used(&self, w: &World, c: Cpu) -> Use {
        self.groups.utilisation.of_cpu(w.now(), c)
    }

    fn pull(&mut self, w: &mut World, from: Cpu, to: Cpu, mut want: Want) -> u32 {
        let mut moving = Vec::new();
        for t in self.by_age(from).into_iter().take(MOST_LOOKED_AT) {
            if want.is_met() {
                break;
            }
            if !self.may_move(w, t, from, to, want) {
                // It goes to the end of the list.
                self.touch(t);
                continue;
            }
            let load = self.groups.load_of(w.now(), from, t);
            want.moved(load, self.groups.utilisation.of(w.now(), t).ran);
            self.update(w, from);
            self.remove(w, from, t);
            moving.push(t);
        }
        // The last one to leave is the first to arrive (attach_tasks).
        for t in moving.iter().rev() {
            let q = self.arrive(w, to, *t);
            self.arm_if_idle(w, to);
            w.migrate(*t, to);
            self.come(w, q, *t);
            self.may_preempt(w, to, *t);
        }
        moving.len() as u32
    }
}

impl Rqs {
    /// `t`, which has left another CPU, goes into the queue of `to` that is the answer.
    fn arrive(&mut self, w: &mut World, to: Cpu, t: Tid) -> Queue {
        self.update(w, to);
        let into = self.groups.queue_of(t, to);
        self.place(into, t, false);
        self.insert(into, t);
        self.account(w, to, 1);
        self.se[t as usize].home = to;
        self.touch(t);
        into
    }

    /// The fair thread `t` has come into a queue of `cpu` (check_preempt_wakeup_fair).
    pub(super) fn may_preempt(&mut self, w: &mut World, cpu: Cpu, t: Tid) {
        let Some(curr) = w.cpu(cpu).curr else { return };
        let (its, ours) = (w.thread(t).class, w.thread(curr).class);
        if ours.is_realtime() || !self.k.preempt {
            return;
        }
        let (q, mine, running) = self.groups.meeting(t, curr, cpu);
        if self.groups.any() && self.groups.is_under_hold(self.groups.queue_of(t, cpu)) {
            return;
        }
        // Between groups their entities compete, which are of no class.
        let threads = (mine, running) == (t, curr);
        if threads && its != Class::Idle && ours == Class::Idle {
            w.resched(cpu, RescheduleReason::Preempted);
            return;
        }
        if its == Class::Batch || (threads && its == Class::Idle) {
            return;
        }
        self.update(w, cpu);
        self.end_protection_by(q, mine, running);
        if self.best(q) == Some(mine) {
            w.resched(cpu, RescheduleReason::Preempted);
        } else {
            self.protect_less(q, running);
        }
    }

    /// Active balance: `t`, just put back on `c`, goes to `to` (detach_one_task, attach_one_task).
    pub(super) fn push_to(&mut self, w: &mut World, c: Cpu, t: Tid, to: Cpu) {
        // Where it comes to may be held back at once, and it does not count as queued yet.
        if self.groups.has_quota(self.groups.queue_of(t, c)) {
            return;
        }
        self.forget_prev(Queue::from(c));
        self.remove(w, c, t);
        let into = self.arrive(w, to, t);
        self.come(w, into, t);
        w.send(t, to);
    }

    /// Lag and rest of request in terms of another weight.
    pub(super) fn reweigh(&mut self, t: Entity, new: i64) {
        let se = &mut self.se[t as usize];
        let scale = |x: i64| (i128::from(x) * i128::from(se.weight) / i128::from(new)) as i64;
        let (lag, rest) = (scale(se.lag), se.rest.map(scale));
        se.lag = lag;
        se.rest = rest;
        se.weight = new;
    }

    /// What was delayed is runnable again, in `q` where it still is.
    pub(super) fn requeue_delayed(&mut self, q: Queue, t: Entity) {
        self.se[t as usize].delayed = false;
        let moves = if self.k.delay_keeps_lag {
            self.note_lag_of_delayed(q, t);
            let se = &self.se[t as usize];
            self.average(q).vruntime() - se.lag != se.vruntime
        } else if self.k.zero {
            self.note_lag(q, t);
            let se = &mut self.se[t as usize];
            let moves = se.lag > 0;
            se.lag = se.lag.min(0);
            moves
        } else {
            false
        };
        if moves {
            self.take_out(q, t);
            self.place(q, t, false);
            self.insert(q, t);
        }
    }

    /// Take the queued `t` off `c` to go elsewhere.
    pub(super) fn remove(&mut self, w: &mut World, c: Cpu, t: Tid) {
        let q = self.groups.queue_of(t, c);
        self.release(w, q, t);
        self.note_lag(q, t);
        self.take_out(q, t);
        self.account(w, c, -1);
        let keep = self.k.relative;
        let se = &mut self.se[t as usize];
        se.rest = keep.then_some(se.deadline - se.vruntime);
        self.raise_origin(q);
        self.gone(w, q, t);
    }
}
