//! EEVDF, Linux's fair scheduler since 6.6: earliest eligible virtual deadline.
//!
//! Models kernel/sched/fair.c of 6.6, with the features of 6.12 and 6.17 as
//! switches. Per CPU a tree by virtual deadline; a thread is eligible if it has
//! had no more than its share (its lag is not negative), and of the eligible the
//! one with the earliest deadline runs, undisturbed until its request (slice) is
//! done or it is no longer eligible. Lag survives sleep; from 6.12 a thread that
//! sleeps with negative lag stays in the queue until it has worked it off.
//!
//! Slices end at ticks, as HRTICK is off by default up to 6.18; in 7.2 it is on, and a
//! timer ends them at the virtual deadline (hrtick_start_fair). A thread may have a slice of
//! its own from 6.12 on: `eevdf_slices`. What real-time threads leave to others: `linux_fair_server`
//! from 6.12 on, before it `linux_rt_bandwidth`. Deadline threads: `linux_deadline`.
//! Left out besides: core scheduling, of 7.2 also NI_RATE, and that its timer runs longer the more of a CPU interrupts take.
//! Control groups: `linux_groups`, `linux_bandwidth`, `eevdf_groups`.
//! CPU choice: `linux_wake`, `linux_util`; loads: `linux_load`; balancing: `linux_domains`, which pulls
//! the thread that was queued or picked longest ago (detach_tasks), unless it ran on
//! that CPU a moment ago (task_hot).
use super::super::error::Result;
use super::super::machine::{Cpu, Machine};
use super::super::tree::{Nodes, Tree};
use super::super::workload::{Class, Tid};
use super::super::world::{RescheduleReason, State, World};
use super::eevdf_lag::{Average, lag_limit};
use super::linux_bandwidth::SLICE;
use super::linux_domains::{BALANCE, BALANCE_NEWIDLE, Balancer, Knobs, Queues, Want};
use super::linux_fair::{NICE_0, log2_factor, virtual_ns, weight_of};
use super::linux_fair_server::{self as fair_server, FairServers};
use super::linux_groups::{self, Entity, Groups, Levels, Queue};
use super::linux_newidle::Newidle;
use super::linux_rt::{RR_TIMESLICE, RtQueues};
use super::linux_rt_bandwidth as rt_bandwidth;
use super::linux_util::Utilisation;
use super::linux_wake::{FLIPS, Placer, fork_cpu};
use super::tunables::{CLOCK_HZ, SPAN, SPAN_OR_ZERO, int, switch, time};
use super::{
    Clocks, EnqueueReason, LagRule, Policy, Preset, PriorityScale, Role, SelectReason, Series,
    Settings, Spec, SwitchOutReason, Tunable, Wake,
};
use crate::prefetch::near;

pub const SPEC: Spec = Spec {
    family: "eevdf",
    summary: "earliest eligible virtual deadline first: Linux today",
    models: "Linux 6.6, 6.12, 6.17, 6.18 and 7.2 fair.c with deadline and real-time class, wake placement and load balancer. Left out: slices of groups.",
    tunables: &[
        time(
            "base_slice",
            "700us",
            SPAN,
            "slice of a request; scaled by 1 + log2(CPUs, at most 8)",
        ),
        switch("scaling", "on", "scale the slice by 1 + log2(CPUs)"),
        switch(
            "run_to_parity",
            "on",
            "a thread runs until its request is done",
        ),
        switch(
            "place_lag",
            "on",
            "a thread returns with the lag that it left with",
        ),
        switch(
            "place_deadline_initial",
            "on",
            "a new thread's first request is half as long",
        ),
        switch(
            "place_rel_deadline",
            "on",
            "a thread moved to another CPU keeps the rest of its request (6.12)",
        ),
        switch(
            "delay_dequeue",
            "on",
            "a sleeper with negative lag stays queued until the lag is gone (6.12)",
        ),
        switch(
            "delay_zero",
            "on",
            "such a sleeper never leaves with positive lag (6.12)",
        ),
        switch(
            "own_slices",
            "on",
            "threads may have slices of their own (6.12)",
        ),
        switch(
            "preempt_short",
            "on",
            "a waking thread of a shorter slice ends the protection of the running one (6.12)",
        ),
        switch(
            "protect_shortest",
            "on",
            "a thread runs undisturbed for the shortest slice in its queue, not its own (6.17)",
        ),
        switch("wakeup_preemption", "on", "a waking thread may preempt"),
        switch(
            "hrtick",
            "off",
            "a timer ends a request at its deadline, not the next tick (7.2)",
        ),
        switch(
            "sis_util",
            "on",
            "wakes look less far for an idle CPU the busier all are, and not at all above 92 %",
        ),
        switch(
            "wa_weight",
            "on",
            "a wake brings a thread to its waker's CPU if that has less load, where both are busy",
        ),
        FLIPS,
        time(
            "migration_cost",
            "500us",
            SPAN_OR_ZERO,
            "a thread that ran this recently is not pulled at first",
        ),
        BALANCE,
        BALANCE_NEWIDLE,
        time(
            "newidle_cost",
            "2us",
            SPAN_OR_ZERO,
            "the cost of that in each domain: a CPU whose average idle time is shorter does not pull; 0 = always",
        ),
        switch(
            "newidle_raises_cost",
            "on",
            "finding nothing raises that cost by half, up to the migration cost (6.17)",
        ),
        switch(
            "newidle_by_success",
            "off",
            "pulls are tried as often as they succeed (6.18.5)",
        ),
        SLICE,
        RR_TIMESLICE,
        fair_server::RUNTIME,
        fair_server::PERIOD,
        Tunable {
            default: "0",
            doc: "what real-time threads may run on a CPU in each period; 0, or a whole period = no limit (from 6.12 on only with CONFIG_RT_GROUP_SCHED)",
            ..rt_bandwidth::RUNTIME
        },
        rt_bandwidth::PERIOD,
        rt_bandwidth::SHARE,
        int(
            "hz",
            "250",
            "1/s",
            CLOCK_HZ,
            "clock ticks; slices end at them",
        ),
    ],
    presets: &[
        Preset {
            name: "eevdf-6.17",
            doc: "Linux 6.17: base slice 0.7 ms",
            values: &[],
        },
        Preset {
            name: "eevdf-6.18",
            doc: "Linux 6.18.5 and later: pulls by their success",
            values: &[("newidle_raises_cost", "off"), ("newidle_by_success", "on")],
        },
        Preset {
            name: "eevdf-7.2",
            doc: "Linux 7.2: a timer ends requests",
            values: &[
                ("hrtick", "on"),
                ("newidle_raises_cost", "off"),
                ("newidle_by_success", "on"),
            ],
        },
        Preset {
            name: "eevdf-6.12",
            doc: "Linux 6.12: delayed dequeue, relative deadlines",
            values: &[
                ("base_slice", "750us"),
                ("newidle_raises_cost", "off"),
                ("protect_shortest", "off"),
            ],
        },
        Preset {
            name: "eevdf-6.6",
            doc: "Linux 6.6: the first EEVDF",
            values: &[
                ("base_slice", "750us"),
                ("newidle_raises_cost", "off"),
                ("place_rel_deadline", "off"),
                ("delay_dequeue", "off"),
                ("delay_zero", "off"),
                ("own_slices", "off"),
                ("preempt_short", "off"),
                ("protect_shortest", "off"),
                ("fair_server_runtime", "0"),
                ("rt_runtime", "950ms"),
            ],
        },
    ],
    series: &[
        Series {
            name: "vruntime",
            unit: "ns",
            doc: "virtual run time",
        },
        Series {
            name: "deadline",
            unit: "ns",
            doc: "virtual deadline",
        },
        Series {
            name: "lag",
            unit: "ns",
            doc: "virtual time owed to the thread: the CPU's average less its own",
        },
    ],
    work_conserving: false,
    strict_classes: 1,
    role: Role::Kernel,
    priorities: PriorityScale::Linux,
    interactivity: None,
    lag: Some(LagRule::Eevdf),
    groups: true,
    make,
};

/// The kernel's timer of a request is never set shorter.
const SHORTEST_HRTICK: i64 = 10_000;

const VRUNTIME: u16 = 0;
const DEADLINE: u16 = 1;
const LAG: u16 = 2;
const IMBALANCE_PCT: i64 = Knobs::BY_GROUPS.imbalance_pct;

fn make(s: &Settings, machine: &Machine, nthreads: usize) -> Result<Box<dyn Policy>> {
    let ncpu = machine.ncpu();
    let f = if s.is_on("scaling") {
        log2_factor(ncpu, 8)
    } else {
        1
    };
    let hz = s.int("hz");
    let knobs = Knobs {
        on: s.is_on("balance"),
        newidle: Newidle {
            on: s.is_on("balance_newidle"),
            least_idle: 0,
            cost: s.ns("newidle_cost"),
            raises_cost: s.is_on("newidle_raises_cost"),
            by_success: s.is_on("newidle_by_success"),
            migration_cost: s.ns("migration_cost"),
        },
        ..Knobs::BY_GROUPS
    };
    let k = Features {
        slice: s.ns("base_slice") * f,
        parity: s.is_on("run_to_parity"),
        place_lag: s.is_on("place_lag"),
        initial: s.is_on("place_deadline_initial"),
        relative: s.is_on("place_rel_deadline"),
        delay: s.is_on("delay_dequeue"),
        zero: s.is_on("delay_zero"),
        preempt: s.is_on("wakeup_preemption"),
        own_slices: s.is_on("own_slices"),
        short: s.is_on("preempt_short"),
        shortest: s.is_on("protect_shortest"),
        hrtick: s.is_on("hrtick"),
        migration_cost: s.ns("migration_cost"),
        jiffy: 1_000_000_000 / hz,
        hz: hz as u32,
    };
    Ok(Box::new(Eevdf {
        q: Rqs {
            k,
            bandwidth_slice: s.ns(SLICE.name),
            groups: Groups::default(),
            rqs: vec![Rq::default(); ncpu],
            counts: vec![Counts::default(); ncpu],
            se: vec![Se::default(); nthreads],
            nodes: Nodes::new(nthreads),
            own: Vec::new(),
            touches: 0,
            servers: FairServers::new(s, ncpu),
        },
        rt: RtQueues::new(ncpu, nthreads, s),
        utilisation: s
            .is_on("sis_util")
            .then(|| Utilisation::new(machine, IMBALANCE_PCT, 1_000_000_000 / hz)),
        placer: Placer::new(
            nthreads,
            s.int(FLIPS.name),
            IMBALANCE_PCT,
            s.is_on("wa_weight"),
        ),
        balancer: Balancer::new(machine, knobs, hz),
    }))
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Features {
    pub(super) slice: i64,
    pub(super) parity: bool,
    place_lag: bool,
    initial: bool,
    relative: bool,
    pub(super) delay: bool,
    zero: bool,
    preempt: bool,
    own_slices: bool,
    pub(super) short: bool,
    pub(super) shortest: bool,
    hrtick: bool,
    migration_cost: i64,
    jiffy: i64,
    hz: u32,
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
    /// Asleep (a group: nobody in it is runnable), but still in the tree of `home`.
    pub(super) delayed: bool,
    /// Of a group: it is in the queue above, or runs there.
    pub(super) on: bool,
    pub(super) home: Cpu,
    /// When it was last queued or picked, in the order of such moments; wraps around.
    touched: u32,
    realtime: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Rq {
    pub(super) tree: Tree,
    pub(super) curr: Option<Entity>,
    /// What was just put back, while the CPU chooses.
    pub(super) prev: Option<Entity>,
    /// Over the tree: sum of weights, and of weight * (vruntime - origin).
    weight: i64,
    moment: i64,
    origin: i64,
}

/// What the balancer asks of every CPU: apart from the rest, and small.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Runnable threads, the running one included, sleepers not.
    pub(super) nr: u32,
    realtime: u32,
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
    touches: u32,
    servers: FairServers,
}

impl Rqs {
    fn touch(&mut self, t: Tid) {
        self.touches = self.touches.wrapping_add(1);
        self.se[t as usize].touched = self.touches;
    }

    /// Of the threads that may move from `from` to `to`, the one that was queued or picked
    /// longest ago.
    fn movable(&self, w: &World, from: Cpu, to: Cpu, want: Want) -> Option<Tid> {
        let mut found: Option<(u32, Tid)> = None;
        let mut look = |q: Queue| {
            self.rqs[q as usize].tree.visit(&self.nodes, |t| {
                if self.groups.inner(t).is_some() {
                    return true;
                }
                let (se, th) = (&self.se[t as usize], w.thread(t));
                let hot =
                    th.last_cpu == Some(from) && w.now() - th.last_ran < self.k.migration_cost;
                let fits = want.load == i64::MAX
                    || self.groups.load_of(w.now(), from, t) >> want.halved <= want.load;
                let age = self.touches.wrapping_sub(se.touched);
                let oldest = found.is_none_or(|(a, _)| age > a);
                if oldest && !se.delayed && w.allowed(t, to) && fits && (want.hot || !hot) {
                    found = Some((age, t));
                }
                true
            });
        };
        look(Queue::from(from));
        if self.groups.any() {
            self.groups.movable_queues(from, to).for_each(look);
        }
        found.map(|(_, t)| t)
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

    fn account(&mut self, w: &mut World, c: Cpu, sign: i64) {
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
    fn running(&self, c: Cpu) -> (Option<Tid>, bool) {
        let rq = &self.rqs[c as usize];
        let (mut e, mut waits) = (rq.curr, !rq.tree.is_empty());
        while let Some(q) = e.and_then(|e| self.groups.inner(e)) {
            let rq = &self.rqs[q as usize];
            e = rq.curr;
            waits |= !rq.tree.is_empty();
        }
        (e, waits)
    }

    /// Set the timer of `c` to the end of its thread's request, if anybody waits.
    fn arm(&self, w: &mut World, c: Cpu, shortest: i64) {
        if !self.k.hrtick {
            return;
        }
        let (Some(t), true) = self.running(c) else {
            return;
        };
        let se = &self.se[t as usize];
        let left = se.deadline - se.vruntime;
        // Rounded up, so that the deadline is reached then.
        let ns = (left * se.weight + NICE_0 - 1) / NICE_0;
        w.arm_timer(u32::from(c), w.now() + ns.max(shortest));
    }

    fn show(&self, w: &mut World, q: Queue, t: Tid) {
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
    fn best(&self, q: Queue) -> Option<Entity> {
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
    fn finish_delayed(&mut self, w: &mut World, q: Queue, t: Entity) {
        self.note_lag(q, t);
        self.take_out(q, t);
        let zero = self.k.zero;
        let se = &mut self.se[t as usize];
        (se.delayed, se.on) = (false, false);
        if zero {
            se.lag = se.lag.min(0);
        }
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

    fn pull(&mut self, w: &mut World, from: Cpu, to: Cpu, want: Want) -> u32 {
        let mut load = want.load;
        let mut moved = 0;
        while load > 0 && moved < want.tasks {
            let Some(t) = self.movable(w, from, to, Want { load, ..want }) else {
                break;
            };
            let weighs = self.groups.load_of(w.now(), from, t);
            self.update(w, from);
            self.update(w, to);
            let q = self.requeue(w, from, to, t);
            self.arm(w, to, SHORTEST_HRTICK);
            w.migrate(t, to);
            self.come(w, q, t);
            if want.load != i64::MAX {
                load -= weighs;
            }
            moved += 1;
        }
        moved
    }
}

impl Rqs {
    /// Takes `t` from the queues of `from` to those of `to`; returns the one that it is in then.
    fn requeue(&mut self, w: &mut World, from: Cpu, to: Cpu, t: Tid) -> Queue {
        self.remove(w, from, t);
        let into = self.groups.queue_of(t, to);
        self.place(into, t, false);
        self.insert(into, t);
        self.account(w, to, 1);
        self.se[t as usize].home = to;
        self.touch(t);
        into
    }

    /// Active balance: `t`, just put back on `c`, goes to `to` (detach_one_task, attach_one_task).
    fn push_to(&mut self, w: &mut World, c: Cpu, t: Tid, to: Cpu) {
        // Where it comes to may be held back at once, and it does not count as queued yet.
        if self.groups.has_quota(self.groups.queue_of(t, c)) {
            return;
        }
        self.forget_prev(Queue::from(c));
        self.update(w, to);
        let into = self.requeue(w, c, to, t);
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
        if self.k.zero {
            self.note_lag(q, t);
            if self.se[t as usize].lag > 0 {
                self.take_out(q, t);
                self.se[t as usize].lag = 0;
                self.place(q, t, false);
                self.insert(q, t);
            }
        }
    }

    /// Take the queued `t` off `c` to go elsewhere.
    fn remove(&mut self, w: &mut World, c: Cpu, t: Tid) {
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

struct Eevdf {
    q: Rqs,
    rt: RtQueues,
    /// Where wakes go by it.
    utilisation: Option<Utilisation>,
    placer: Placer,
    balancer: Balancer,
}

impl Eevdf {
    fn pick_fair(&mut self, w: &mut World, c: Cpu) -> Option<Tid> {
        let root = Queue::from(c);
        self.q.hold_exhausted(w, c);
        let t = 'choose: loop {
            let mut q = root;
            loop {
                let Some(e) = self.q.best(q) else {
                    self.q.forget_prev(root);
                    return None;
                };
                if self.q.se[e as usize].delayed {
                    self.q.finish_delayed(w, q, e);
                    continue 'choose;
                }
                match self.q.groups.inner(e) {
                    Some(inner) => q = inner,
                    None => break 'choose e,
                }
            }
        };
        self.q.touch(t);
        self.q.go_on(root, self.q.groups.queue_of(t, c), t);
        if let Some(utilisation) = &mut self.utilisation {
            utilisation.runs(w.now(), c, true);
        }
        w.take_run(c);
        self.q.arm(w, c, SHORTEST_HRTICK);
        Some(t)
    }

    fn leave(&mut self, w: &mut World, c: Cpu, t: Tid) {
        if self.q.se[t as usize].realtime {
            self.rt.remove(w, t);
            self.q.counts[c as usize].realtime -= 1;
        } else {
            self.q.update(w, c);
            self.q.remove(w, c, t);
        }
    }

    /// Into the queues of `c`.
    fn join(&mut self, w: &mut World, c: Cpu, t: Tid, new: bool) {
        let realtime = w.thread(t).class.is_realtime();
        self.q.se[t as usize].realtime = realtime;
        if realtime {
            self.rt.push(w, c, t, false);
            self.q.counts[c as usize].realtime += 1;
            return;
        }
        self.q.se[t as usize].weight = weight_of(w, t);
        self.q.update(w, c);
        let q = self.q.groups.queue_of(t, c);
        self.q.place(q, t, new);
        self.q.insert(q, t);
        self.q.account(w, c, 1);
        self.q.touch(t);
        self.q.se[t as usize].home = c;
        self.q.come(w, q, t);
        self.q.arm(w, c, SHORTEST_HRTICK);
        if w.recording() {
            self.q.show(w, q, t);
        }
    }

    /// A sleeper that may still be in a tree leaves it.
    fn take_sleeper_out(&mut self, w: &mut World, t: Tid) {
        if self.q.se[t as usize].delayed {
            self.q.update(w, self.q.se[t as usize].home);
            let q = self.q.home_of(t);
            self.q.finish_delayed(w, q, t);
        }
    }

    /// A sleeper that is still in the tree wakes where it is. Its lag is that at the last update
    /// of the CPU's running thread, as in `ttwu_runnable`, which updates nothing before (core.c
    /// and `requeue_delayed_entity` in fair.c, 6.12 to 6.18): what that has run since is then all
    /// in favour of the sleeper.
    fn reinstate(&mut self, w: &mut World, c: Cpu, t: Tid) {
        let q = self.q.groups.queue_of(t, c);
        self.q.requeue_delayed(q, t);
        self.q.account(w, c, 1);
        self.q.put_aside_if_held(w, q, t);
    }
}

impl Policy for Eevdf {
    fn clocks(&self) -> Clocks {
        Clocks {
            hz: self.q.k.hz,
            ..Clocks::default()
        }
    }

    fn init(&mut self, w: &mut World) {
        self.q.init_groups(w);
        let first = linux_groups::timers(w);
        self.q.servers.init(first);
        self.rt.init(w, first + w.ncpu() as u32);
        if self.q.k.own_slices {
            self.q.init_slices(w.slices());
        }
    }

    fn on_fork(&mut self, w: &mut World, parent: Option<Tid>, child: Tid) {
        self.placer.born(parent, child);
        self.q.se[child as usize].weight = weight_of(w, child);
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, place: SelectReason) -> Cpu {
        if self.q.se[t as usize].delayed {
            let home = self.q.se[t as usize].home;
            if w.allowed(t, home) && !w.thread(t).class.is_realtime() {
                return home;
            }
            self.take_sleeper_out(w, t);
        }
        if w.thread(t).class.is_realtime() {
            return self.rt.select_cpu(w, t);
        }
        match place {
            SelectReason::Wake(wake) => {
                let now = w.now();
                let wakers = wake
                    .waker
                    .map_or(0, |p| self.q.groups.load_of(now, wake.cpu, p));
                let its = self.q.groups.load_of(now, w.thread(t).cpu, t);
                let weights = (its, wakers);
                let utilisation = self.utilisation.as_mut();
                self.placer.wake(w, &self.q, utilisation, weights, t, wake)
            }
            SelectReason::Fork(wake) => fork_cpu(
                w,
                &self.q,
                &self.balancer.domains,
                IMBALANCE_PCT,
                t,
                wake.cpu,
            ),
            SelectReason::Moved => super::idle_or_previous(w, t),
        }
    }

    fn enqueue(&mut self, w: &mut World, cpu: Cpu, t: Tid, how: EnqueueReason) {
        if how == EnqueueReason::Wakeup {
            self.balancer.woken(w, cpu);
        }
        if self.q.se[t as usize].delayed {
            self.reinstate(w, cpu, t);
            return;
        }
        let born = how == EnqueueReason::New && w.parent(t).is_some();
        self.join(w, cpu, t, born);
    }

    fn dequeue(&mut self, w: &mut World, cpu: Cpu, t: Tid) {
        self.leave(w, cpu, t);
    }

    fn check_preempt(&mut self, w: &mut World, cpu: Cpu, t: Tid, _: Wake) {
        let Some(curr) = w.cpu(cpu).curr else { return };
        if self.q.se[t as usize].realtime {
            let first = self.rt.earliest_deadline(cpu);
            let served = self.q.servers.serves(cpu) && self.q.servers.goes_before(cpu, first);
            if self.rt.preempts(w, cpu, t) && !served {
                w.resched(cpu, RescheduleReason::Preempted);
            } else {
                self.rt.push_away(w, t);
            }
            return;
        }
        let (its, ours) = (w.thread(t).class, w.thread(curr).class);
        if ours.is_realtime() || !self.q.k.preempt {
            return;
        }
        let (q, mine, running) = self.q.groups.meeting(t, curr, cpu);
        if self.q.groups.any() && self.q.groups.is_under_hold(self.q.groups.queue_of(t, cpu)) {
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
        self.q.update(w, cpu);
        self.q.end_protection_by(q, mine, running);
        if self.q.best(q) == Some(mine) {
            w.resched(cpu, RescheduleReason::Preempted);
        } else {
            self.q.protect_less(q, running);
        }
    }

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        self.q.servers.turns_busy(w, cpu);
        if self.q.servers.serves(cpu)
            && self
                .q
                .servers
                .goes_before(cpu, self.rt.earliest_deadline(cpu))
        {
            if let Some(t) = self.pick_fair(w, cpu) {
                return Some(t);
            }
            self.q.servers.stop(w, cpu);
        }
        if let Some(t) = self.rt.pop(w, cpu) {
            let from = w.thread(t).cpu;
            self.q.counts[from as usize].realtime -= 1;
            self.q.counts[cpu as usize].realtime += 1;
            self.q.forget_prev(Queue::from(cpu));
            return Some(t);
        }
        self.pick_fair(w, cpu)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        let push = self.balancer.push(w, cpu, t);
        if self.q.se[t as usize].realtime {
            self.rt.put_back(w, cpu, t, left);
            self.q.counts[cpu as usize].realtime -= 1;
            if left.stays_queued() {
                self.q.counts[cpu as usize].realtime += 1;
                self.rt.push(w, cpu, t, left == SwitchOutReason::Preempted);
                self.rt.push_away(w, t);
            }
            return;
        }
        self.q.update(w, cpu);
        self.q.servers.put_back(w, cpu);
        if self.q.k.hrtick {
            w.disarm_timer(u32::from(cpu));
        }
        if let Some(utilisation) = &mut self.utilisation {
            utilisation.runs(w.now(), cpu, false);
        }
        match left {
            SwitchOutReason::Preempted | SwitchOutReason::SliceEnd | SwitchOutReason::Yielded => {
                if left == SwitchOutReason::Yielded {
                    let slice = self.q.slice_of(t);
                    let se = &mut self.q.se[t as usize];
                    se.deadline += virtual_ns(slice, se.weight);
                }
                let q = self.q.groups.queue_of(t, cpu);
                self.q.put_back(q, t);
                self.q.put_back_above(w, q, false);
                if let Some(to) = push {
                    self.q.push_to(w, cpu, t, to);
                }
            }
            SwitchOutReason::Blocked | SwitchOutReason::Moved | SwitchOutReason::Exited => {
                let q = self.q.groups.queue_of(t, cpu);
                self.q.note_lag(q, t);
                self.q.account(w, cpu, -1);
                let sleeps = left == SwitchOutReason::Blocked;
                let stays = self.q.come_off(q, t, sleeps);
                if !stays {
                    let relative = self.q.k.relative;
                    let se = &mut self.q.se[t as usize];
                    se.rest = (left == SwitchOutReason::Moved && relative)
                        .then_some(se.deadline - se.vruntime);
                }
                self.q.raise_origin(q);
                if !stays {
                    self.q.groups.goes(w.now(), t, q);
                }
                if left == SwitchOutReason::Exited {
                    self.q.groups.ends(w.now(), t);
                }
                self.q.put_back_above(w, q, sleeps);
            }
        }
    }

    fn on_idle(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        if self.balancer.newly_idle(w, &mut self.q, cpu) {
            return self.pick_fair(w, cpu);
        }
        self.q.servers.turns_idle(w, cpu);
        None
    }

    fn tick(&mut self, w: &mut World, cpu: Cpu) {
        if let Some(t) = w.cpu(cpu).curr {
            if self.q.se[t as usize].realtime {
                let jiffy = self.q.k.jiffy;
                self.rt.tick(w, cpu, t, jiffy);
            } else {
                self.q.update(w, cpu);
                self.q.follow_shares(w, cpu, t);
            }
        }
        self.balancer.tick(w, &mut self.q, cpu);
    }

    fn timer(&mut self, w: &mut World, id: u32) {
        if let Some(cpu) = self.q.servers.cpu_of_timer(id) {
            self.q.update(w, cpu);
            self.q.servers.timer(w, cpu);
            return;
        }
        if id as usize >= w.ncpu() {
            if !self.rt.timer(w, id) {
                self.q.quota_timer(w, id);
            }
            return;
        }
        let cpu = id as Cpu;
        self.q.update(w, cpu);
        // A tick in between has rounded a nanosecond away.
        if !w.needs_resched(cpu) {
            self.q.arm(w, cpu, 1);
        }
    }

    fn prefetch(&self, t: Tid) {
        near((self.q.se[t as usize].home, self.q.nodes.key(t)));
    }

    fn shares_by_groups(&self) -> bool {
        self.q.groups.any()
    }

    fn change_group(&mut self, w: &mut World, t: Tid, group: Option<u32>) {
        let cpu = w.thread(t).cpu;
        let queued = w.thread(t).state == State::Queued && !self.q.se[t as usize].realtime;
        if queued {
            self.q.forget_prev(Queue::from(cpu));
            self.leave(w, cpu, t);
        } else {
            self.take_sleeper_out(w, t);
        }
        let home = self.q.se[t as usize].home;
        self.q.groups.change_group(w.now(), t, home, group);
        if queued {
            self.join(w, cpu, t, false);
        }
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        let cpu = w.thread(t).cpu;
        let new = weight_of(w, t);
        let realtime = w.thread(t).class.is_realtime();
        match w.thread(t).state {
            State::Queued => {
                self.leave(w, cpu, t);
                self.q.reweigh(t, new);
                self.join(w, cpu, t, false);
                let wake = Wake {
                    waker: None,
                    cpu,
                    sync: false,
                };
                self.check_preempt(w, cpu, t, wake);
            }
            State::Running => {
                if self.q.se[t as usize].realtime {
                    self.q.counts[cpu as usize].realtime -= 1;
                } else {
                    self.q.update(w, cpu);
                    let q = self.q.groups.queue_of(t, cpu);
                    self.q.note_lag(q, t);
                    self.q.account(w, cpu, -1);
                    self.q.rq(q).curr = None;
                    if realtime {
                        self.q.groups.goes(w.now(), t, q);
                        self.q.put_back_above(w, q, false);
                        self.q.forget_prev(Queue::from(cpu));
                    }
                    let se = &mut self.q.se[t as usize];
                    se.rest = Some(se.deadline - se.vruntime);
                }
                self.q.reweigh(t, new);
                let was = std::mem::replace(&mut self.q.se[t as usize].realtime, realtime);
                if realtime {
                    self.q.counts[cpu as usize].realtime += 1;
                    self.q.se[t as usize].rest = None;
                } else {
                    w.take_run(cpu);
                    let q = self.q.groups.queue_of(t, cpu);
                    self.q.place(q, t, false);
                    self.q.account(w, cpu, 1);
                    self.q.rq(q).curr = Some(t);
                    if was {
                        self.q.run_above(w, q, t);
                    } else {
                        self.q.groups.weighs(w.now(), t, q, new);
                    }
                }
                w.resched(cpu, RescheduleReason::Preempted);
            }
            State::Sleeping => {
                self.take_sleeper_out(w, t);
                self.q.reweigh(t, new);
            }
            State::Unborn | State::Dead => {}
        }
    }
}
