//! CFS, the Completely Fair Scheduler, as of Linux 2.6.31, 2.6.32, 5.10 and 6.1.
//!
//! Models sched_fair.c of 2.6.32.y and of the 20 ms-latency era before it
//! (2.6.30/31), and kernel/sched/fair.c of the 5.10 and 6.1 stable series. Per CPU
//! a tree by virtual run time; the leftmost runs. A slice is the thread's share of
//! a period that all runnable threads fit in; it is checked at ticks. A waking
//! thread preempts when it is behind by more than the wakeup granularity; a sleeper
//! comes back with a bounded credit.
//!
//! Where 5.10 and 6.1 differ from 2.6.32, by function of fair.c:
//!
//! * wakeup_gran: no ADAPTIVE_GRAN, the granularity is that of the wakee's weight.
//! * check_preempt_wakeup: who preempts becomes `next`, and whom it preempts `last`
//!   where at least sched_nr_latency threads are runnable. pick_next_entity prefers
//!   next to last; set_next_entity forgets only the buddy that it picks.
//! * yield_task_fair: who yields is `skip`, passed over if that is not too unfair.
//! * task_fork_fair: a new thread gets its place in the queue of its parent's CPU and
//!   takes it along to another, as one that is moved does.
//! * sched_slice: no slice is shorter than the least granularity (BASE_SLICE, 5.13).
//! * select_task_rq_fair: `linux_wake`; 6.1 looks for idle CPUs as far as `linux_util`
//!   says (SIS_UTIL, 6.0), 5.10 on these machines everywhere (SIS_PROP: four at least).
//! * cpu_load, task_h_load: `linux_load`, decaying averages (5.7).
//! * load_balance: `linux_domains` by groups (5.5). detach_tasks takes the thread that
//!   was picked or queued longest ago (the list is kept so since 4.14), and task_hot
//!   lets go of one that has not run since it moved, and of buddies if the CPU idles.
//! * newidle_balance: `linux_newidle`; by the rate of success (NI_RANDOM) in late
//!   releases of the 6.1 series, 6.1.192 among them.
//!
//! Control groups: `linux_groups`, `linux_bandwidth`, `cfs_groups`; 2.6 has no quotas, and
//! its groups have the averages of the newer releases here (update_shares_cpu divided
//! them by loads sampled at balancing).
//!
//! Left out: HRTICK, power saving, the cost of balancing; of 5.10 and 6.1 besides: that a
//! CPU with SCHED_IDLE threads alone counts as idle, and 6.3's limit of a slice to the
//! latency. Real-time threads: `linux_rt`. Load balancing and CPU choice:
//! `linux_domains`, with the loads that lag behind as 2.6's did.
use super::super::error::Result;
use super::super::machine::{Cpu, Machine};
use super::super::tree::{Nodes, Tree};
use super::super::workload::{Class, Tid};
use super::super::world::{RescheduleReason, State, World};
use super::cfs_place::Placing;
use super::linux_bandwidth::SLICE;
use super::linux_domains::{BALANCE, BALANCE_NEWIDLE, Balancer, Knobs, Queues, Style, Want};
use super::linux_fair::{idle_in_cache, log2_factor, virtual_ns, weight_of};
use super::linux_groups::{self, Entity, Groups, Levels, Queue};
use super::linux_newidle::Newidle;
use super::linux_rt::{RR_TIMESLICE, RtQueues};
use super::linux_rt_bandwidth as rt_bandwidth;
use super::linux_util::Utilisation;
use super::linux_wake::{self, Placer};
use super::tunables::{CLOCK_HZ, COUNT, SPAN, SPAN_OR_ZERO, choice, int, switch, time};
use super::{
    Clocks, EnqueueReason, LagRule, Policy, Preset, PriorityScale, Role, SelectReason, Series,
    Settings, Spec, SwitchOutReason, Wake,
};

pub const SPEC: Spec = Spec {
    family: "cfs",
    summary: "least virtual run time first, in per-CPU trees",
    models: "Linux 2.6.31 and 2.6.32 sched_fair.c, 5.10 and 6.1 fair.c, with deadline and real-time class and load balancer. Left out: HRTICK, power saving.",
    tunables: &[
        time(
            "sched_latency",
            "5ms",
            SPAN,
            "period in which every thread runs once; scaled by 1 + log2(CPUs)",
        ),
        time("sched_min_granularity", "1ms", SPAN, "least slice; scaled"),
        time(
            "sched_wakeup_granularity",
            "1ms",
            SPAN_OR_ZERO,
            "lag that a waking thread needs to preempt; scaled",
        ),
        int(
            "sched_nr_latency",
            "5",
            "threads",
            COUNT,
            "beyond this many the period grows by the least slice each",
        ),
        time(
            "sched_migration_cost",
            "500us",
            SPAN_OR_ZERO,
            "a thread that ran this recently is not pulled at first",
        ),
        switch(
            "child_runs_first",
            "off",
            "a forked child runs before its parent",
        ),
        switch("scaling", "on", "scale the times by 1 + log2(CPUs)"),
        switch("fair_sleepers", "on", "a sleeper comes back with credit"),
        switch(
            "gentle_fair_sleepers",
            "on",
            "that credit is half the latency, not all",
        ),
        switch("start_debit", "on", "a new thread starts one slice behind"),
        switch("wakeup_preempt", "on", "a waking thread may preempt"),
        switch(
            "adaptive_gran",
            "on",
            "granularity by how often the wakee wakes others",
        ),
        switch(
            "asym_gran",
            "on",
            "granularity scaled by the wakee's weight",
        ),
        choice(
            "buddies",
            &["off", "last", "next_last", "preempting"],
            "last",
            "which thread is picked first: the preempted one (last), also the wakee (next), or the preempting one and then the preempted one (5.10, 6.1)",
        ),
        switch(
            "yield_skips",
            "off",
            "a thread that yields is passed over once, unless that is too unfair (5.10, 6.1)",
        ),
        switch(
            "least_slice",
            "off",
            "no slice is shorter than the least (6.1)",
        ),
        switch(
            "place_at_fork",
            "off",
            "a new thread gets its place in its parent's queue (5.10, 6.1)",
        ),
        switch(
            "early_slice_check",
            "on",
            "end a slice also when the leftmost is a whole slice behind (2.6.32)",
        ),
        choice(
            "wake_cpu",
            &["wake_idle", "idle_sibling", "longest_idle", "scan"],
            "idle_sibling",
            "after wake_affine: idle hardware thread only (2.6.31), any idle CPU of the cache, the one of the machine that idles longest (the repair in Wasted Cores), or the old one, the one before, an idle core, an idle CPU (5.10, 6.1)",
        ),
        linux_wake::FLIPS,
        switch(
            "sis_util",
            "off",
            "wakes look less far for an idle CPU the busier all are, and not at all above 92 % (6.1)",
        ),
        choice(
            "balancer",
            &["load", "groups"],
            "load",
            "compares the loads of groups, or first whether they have idle CPUs (5.10, 6.1)",
        ),
        switch(
            "pull_oldest",
            "off",
            "the thread that ran or was queued longest ago is pulled first (5.10, 6.1)",
        ),
        BALANCE,
        BALANCE_NEWIDLE,
        time(
            "newidle_least_idle",
            "500us",
            SPAN_OR_ZERO,
            "but not if its average idle time is shorter than this (2.6.32; not yet in -rc5); 0 = always",
        ),
        time(
            "newidle_cost",
            "0",
            SPAN_OR_ZERO,
            "the cost of pulling in each domain: a CPU whose average idle time is shorter does not pull; 0 = always",
        ),
        switch(
            "newidle_by_success",
            "off",
            "pulls are tried as often as they succeed (late 6.1)",
        ),
        choice(
            "group_load",
            &["average", "least"],
            "average",
            "what groups of CPUs are compared by: their average load, or their least loaded CPU (the repair in Wasted Cores)",
        ),
        choice(
            "balance_span",
            &["machine", "node"],
            "machine",
            "node: the domain over the nodes is missing, so nothing moves between them (a fault in Wasted Cores)",
        ),
        switch(
            "idle_keeps_busy_interval",
            "on",
            "a CPU that turns idle keeps the time of its next balancing, set while it was busy",
        ),
        int(
            "forkexec_idx",
            "0",
            "",
            (0.0, 2.0),
            "which of the lagging loads places a new thread",
        ),
        SLICE,
        RR_TIMESLICE,
        rt_bandwidth::RUNTIME,
        rt_bandwidth::PERIOD,
        rt_bandwidth::SHARE,
        int("hz", "250", "1/s", CLOCK_HZ, "clock ticks"),
    ],
    presets: &[
        Preset {
            name: "cfs-2.6.32",
            doc: "2.6.32-rc5 and 2.6.32",
            values: &[("bandwidth_slice", "0"), ("rt_runtime_share", "on")],
        },
        Preset {
            name: "cfs-2.6.31",
            doc: "2.6.31: long slices, child first, both buddies, no newidle balancing between cores",
            values: &[
                ("sched_latency", "20ms"),
                ("sched_min_granularity", "4ms"),
                ("sched_wakeup_granularity", "5ms"),
                ("child_runs_first", "on"),
                ("gentle_fair_sleepers", "off"),
                ("buddies", "next_last"),
                ("early_slice_check", "off"),
                ("wake_cpu", "wake_idle"),
                ("balance_newidle", "off"),
                ("forkexec_idx", "1"),
                ("bandwidth_slice", "0"),
                ("rt_runtime_share", "on"),
            ],
        },
        Preset {
            name: "cfs-6.1",
            doc: "6.1 stable, late: pulls by their success",
            values: &OF_6_1,
        },
        Preset {
            name: "cfs-5.10",
            doc: "5.10 stable: no least slice, wakes look everywhere, pulls by the migration cost",
            values: &OF_5_10,
        },
    ],
    series: &[
        Series {
            name: "vruntime",
            unit: "ns",
            doc: "virtual run time",
        },
        Series {
            name: "min_vruntime",
            unit: "ns",
            doc: "the CPU's least virtual run time, which never decreases",
        },
    ],
    work_conserving: false,
    strict_classes: 1,
    role: Role::Kernel,
    priorities: PriorityScale::Linux,
    interactivity: None,
    lag: Some(LagRule::Cfs),
    groups: true,
    make,
};

const VRUNTIME: u16 = 0;
const MIN_VRUNTIME: u16 = 1;

/// Least slice, search for idle CPUs, and when a CPU that turns idle pulls.
const OF_6_1: [(&str, &str); 18] = later([
    ("least_slice", "on"),
    ("sis_util", "on"),
    ("newidle_by_success", "on"),
    ("newidle_least_idle", "0"),
]);
const OF_5_10: [(&str, &str); 18] = later([
    ("least_slice", "off"),
    ("sis_util", "off"),
    ("newidle_by_success", "off"),
    ("newidle_least_idle", "500us"),
]);

/// What 5.10 and 6.1 have in common, and where they differ.
const fn later(
    [a, b, c, d]: [(&'static str, &'static str); 4],
) -> [(&'static str, &'static str); 18] {
    [
        ("sched_latency", "6ms"),
        ("sched_min_granularity", "750us"),
        ("sched_wakeup_granularity", "1ms"),
        ("sched_nr_latency", "8"),
        ("adaptive_gran", "off"),
        ("buddies", "preempting"),
        ("yield_skips", "on"),
        ("place_at_fork", "on"),
        ("wake_cpu", "scan"),
        ("balancer", "groups"),
        ("pull_oldest", "on"),
        ("idle_keeps_busy_interval", "off"),
        ("newidle_cost", "2us"),
        ("balance_newidle", "on"),
        a,
        b,
        c,
        d,
    ]
}

fn make(s: &Settings, machine: &Machine, nthreads: usize) -> Result<Box<dyn Policy>> {
    let ncpu = machine.ncpu();
    let f = if s.is_on("scaling") {
        log2_factor(ncpu, 8)
    } else {
        1
    };
    let hz = s.int("hz");
    let newidle = Newidle {
        on: s.is_on("balance_newidle"),
        least_idle: s.ns("newidle_least_idle"),
        cost: s.ns("newidle_cost"),
        by_success: s.is_on("newidle_by_success"),
        migration_cost: s.ns("sched_migration_cost"),
        ..Newidle::ALWAYS
    };
    let by_groups = s.choice("balancer") == 1;
    let knobs = Knobs {
        style: if by_groups {
            Style::Groups
        } else {
            Style::Load
        },
        on: s.is_on("balance"),
        newidle,
        keeps_busy_interval: s.is_on("idle_keeps_busy_interval"),
        busy_idx: 2,
        idle_idx: 1,
        by_least: s.choice("group_load") == 1,
        within_node: s.choice("balance_span") == 1,
        ..if by_groups {
            Knobs::BY_GROUPS
        } else {
            Knobs::OF_2_6
        }
    };
    let k = Constants {
        place: Placing::new(s, ncpu),
        wakeup_granularity: s.ns("sched_wakeup_granularity") * f,
        migration_cost: s.ns("sched_migration_cost"),
        wakeup_preempt: s.is_on("wakeup_preempt"),
        adaptive: s.is_on("adaptive_gran"),
        asym: s.is_on("asym_gran"),
        buddies: match s.choice("buddies") {
            0 => Buddies::Off,
            1 => Buddies::Last,
            2 => Buddies::NextLast,
            _ => Buddies::Preempting,
        },
        yield_skips: s.is_on("yield_skips"),
        place_at_fork: s.is_on("place_at_fork"),
        early: s.is_on("early_slice_check"),
        wake_cpu: match s.choice("wake_cpu") {
            0 => WakeCpu::WakeIdle,
            1 => WakeCpu::IdleSibling,
            2 => WakeCpu::LongestIdle,
            _ => WakeCpu::Scan,
        },
        forkexec_idx: s.int("forkexec_idx") as usize,
        jiffy: 1_000_000_000 / hz,
        hz: hz as u32,
    };
    let fresh = Se {
        avg_wakeup: k.wakeup_granularity,
        ..Se::default()
    };
    Ok(Box::new(Cfs {
        k,
        q: Rqs {
            groups: Groups::default(),
            bandwidth_slice: s.ns(SLICE.name),
            place: k.place,
            rqs: vec![Rq::default(); ncpu],
            se: vec![fresh; nthreads],
            nodes: Nodes::new(nthreads),
            migration_cost: k.migration_cost,
            oldest: s.is_on("pull_oldest"),
            averages: k.wake_cpu == WakeCpu::Scan,
            touches: 0,
            jiffy: k.jiffy,
        },
        rt: RtQueues::new(ncpu, nthreads, s),
        placer: Placer::new(
            nthreads,
            s.int(linux_wake::FLIPS.name),
            Knobs::BY_GROUPS.imbalance_pct,
            true,
        ),
        utilisation: s
            .is_on("sis_util")
            .then(|| Utilisation::new(machine, Knobs::BY_GROUPS.imbalance_pct, k.jiffy)),
        balancer: Balancer::new(machine, knobs, hz),
    }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WakeCpu {
    WakeIdle,
    IdleSibling,
    LongestIdle,
    Scan,
}

/// Whom pick prefers to the leftmost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Buddies {
    Off,
    Last,
    NextLast,
    Preempting,
}

#[derive(Debug, Clone, Copy)]
struct Constants {
    place: Placing,
    wakeup_granularity: i64,
    migration_cost: i64,
    wakeup_preempt: bool,
    adaptive: bool,
    asym: bool,
    buddies: Buddies,
    yield_skips: bool,
    place_at_fork: bool,
    early: bool,
    wake_cpu: WakeCpu,
    forkexec_idx: usize,
    jiffy: i64,
    hz: u32,
}

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
    ran_at_wakeup: i64,
    avg_wakeup: i64,
    /// The CPU whose virtual time `vruntime` is in.
    home: Cpu,
    /// When it was last queued or picked, in the order of such moments.
    touched: u64,
    realtime: bool,
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
    realtime: u32,
}

impl Rq {
    /// `t` is nobody's buddy any more.
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
    migration_cost: i64,
    /// Pull the thread that was queued or picked longest ago.
    pub(super) oldest: bool,
    /// Loads are decaying averages.
    pub(super) averages: bool,
    touches: u64,
    jiffy: i64,
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
    fn running(&self, c: Cpu) -> Option<Tid> {
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
    fn slice(&self, q: Queue, e: Entity, more: bool) -> i64 {
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
    fn load_of(&self, w: &World, c: Cpu, t: Tid) -> i64 {
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

    fn touch(&mut self, t: Tid) {
        self.touches += 1;
        self.se[t as usize].touched = self.touches;
    }

    /// Who moves from `from` to `to` first.
    fn movable(&self, w: &World, from: Cpu, to: Cpu, want: Want) -> Option<Tid> {
        let to_idle = self.oldest && self.nr(to) == 0;
        let mut found: Option<Tid> = None;
        let mut look = |q: Queue| {
            let rq = &self.rqs[q as usize];
            let may = |t: Tid| {
                let th = w.thread(t);
                let here = !self.oldest || th.last_cpu == Some(from);
                let recent = w.now() - th.last_ran < self.migration_cost && th.last_cpu.is_some();
                let buddy = !to_idle && (rq.next == Some(t) || rq.last == Some(t));
                let fits = self.load_of(w, from, t) >> want.halved <= want.load;
                w.allowed(t, to) && fits && (want.hot || !(recent && here || buddy))
            };
            rq.tree.visit(&self.nodes, |t| {
                if self.groups.inner(t).is_some() {
                    return true;
                }
                let older = |f: Tid| self.se[t as usize].touched < self.se[f as usize].touched;
                if may(t) && found.is_none_or(older) {
                    found = Some(t);
                }
                self.oldest || found.is_none()
            });
        };
        look(Queue::from(from));
        if self.groups.any() {
            self.groups.movable_queues(from, to).for_each(&mut look);
        }
        found
    }

    /// The thread `t` on `c` is counted, or no longer.
    fn account(&mut self, c: Cpu, t: Tid, sign: i64) {
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
    fn rebase(&mut self, c: Cpu, t: Tid) {
        let home = self.se[t as usize].home;
        let (from, to) = (self.groups.queue_of(t, home), self.groups.queue_of(t, c));
        let shift = self.rqs[to as usize].min_vruntime - self.rqs[from as usize].min_vruntime;
        let se = &mut self.se[t as usize];
        se.vruntime += shift;
        se.home = c;
    }

    /// Bring the lagging loads up to the tick before now.
    fn follow(&mut self, w: &World, c: Cpu) {
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

    fn pull(&mut self, w: &mut World, from: Cpu, to: Cpu, want: Want) -> u32 {
        let mut load = want.load;
        let mut moved = 0;
        while load > 0 && moved < want.tasks {
            let Some(t) = self.movable(w, from, to, Want { load, ..want }) else {
                break;
            };
            self.update(w, to);
            let weighs = self.load_of(w, from, t);
            let into = self.requeue(w, from, to, t);
            w.migrate(t, to);
            self.come(w, into, t);
            // Without a bound on the load it is the number of threads that counts.
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
        let (out, into) = (self.groups.queue_of(t, from), self.groups.queue_of(t, to));
        self.take_out(out, t);
        self.account(from, t, -1);
        self.gone(w, out, t);
        self.rebase(to, t);
        self.insert(into, t);
        self.account(to, t, 1);
        self.touch(t);
        into
    }

    /// Active balance: `t`, just put back on `c`, goes to `to`.
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
}

struct Cfs {
    k: Constants,
    q: Rqs,
    rt: RtQueues,
    /// Where wakes go from 5.10 on.
    placer: Placer,
    utilisation: Option<Utilisation>,
    balancer: Balancer,
}

impl Cfs {
    fn place(&mut self, c: Cpu, t: Tid, how: EnqueueReason, forked: bool) {
        let q = self.q.groups.queue_of(t, c);
        let min = self.q.rqs[q as usize].min_vruntime;
        let slice = self.q.slice(q, t, true);
        let se = &mut self.q.se[t as usize];
        se.vruntime = if how == EnqueueReason::New {
            self.k
                .place
                .after(se.vruntime, min, forked, slice, se.weight)
        } else {
            self.k.place.woken(se.vruntime, min)
        };
    }

    fn granularity(&self, q: Queue, curr: Entity, t: Entity) -> i64 {
        let mut gran = self.k.wakeup_granularity;
        let (r, s) = (&self.q.se[curr as usize], &self.q.se[t as usize]);
        if self.k.adaptive {
            let ran = r.ran - r.ran_at_pick;
            let until = 2 * s.avg_wakeup * i64::from(self.q.rqs[q as usize].nr);
            gran = gran.min((until - ran).max(0));
        }
        if self.k.asym {
            virtual_ns(gran, s.weight)
        } else {
            gran
        }
    }

    /// Whether `t` beats `other`: 1 by more than the granularity, 0 within it,
    /// -1 not at all.
    fn beats(&self, q: Queue, other: Entity, t: Entity) -> i32 {
        let ahead = self.q.se[other as usize].vruntime - self.q.se[t as usize].vruntime;
        if ahead <= 0 {
            -1
        } else {
            i32::from(ahead > self.granularity(q, other, t))
        }
    }

    /// A thread issues a wakeup: how much it runs between two of them.
    fn note_waker(&mut self, w: &mut World, wake: Wake) {
        if let Some(p) = wake.waker
            && self.q.running(wake.cpu) == Some(p)
        {
            self.q.update(w, wake.cpu);
            let se = &mut self.q.se[p as usize];
            let sample = se.ran - se.ran_at_wakeup;
            se.ran_at_wakeup = se.ran;
            se.avg_wakeup += (sample - se.avg_wakeup) >> 3;
        }
    }

    fn wake_cpu(&mut self, w: &mut World, t: Tid, wake: Wake) -> Cpu {
        if self.k.wake_cpu == WakeCpu::Scan {
            let wakers = wake.waker.map_or(0, |p| self.q.load_of(w, wake.cpu, p));
            let weights = (self.q.load_of(w, w.thread(t).cpu, t), wakers);
            let utilisation = self.utilisation.as_mut();
            return self.placer.wake(w, &self.q, utilisation, weights, t, wake);
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
    fn fork_cpu(&self, w: &World, t: Tid, parent: Cpu) -> Cpu {
        if self.k.wake_cpu == WakeCpu::Scan {
            let (domains, pct) = (&self.balancer.domains, Knobs::BY_GROUPS.imbalance_pct);
            return linux_wake::fork_cpu(w, &self.q, domains, pct, t, parent);
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

    fn pick_fair(&mut self, w: &mut World, c: Cpu) -> Option<Tid> {
        self.q.hold_exhausted(w, c);
        let root = Queue::from(c);
        let mut q = root;
        let t = loop {
            let Some(e) = self.first_of(q) else {
                self.q.forget_prev(root);
                return None;
            };
            match self.q.groups.inner(e) {
                Some(inner) => q = inner,
                None => break e,
            }
        };
        self.q.touch(t);
        self.q.go_on(root, q, t);
        if let Some(utilisation) = &mut self.utilisation {
            utilisation.runs(w.now(), c, true);
        }
        w.take_run(c);
        Some(t)
    }

    /// What `q` runs next.
    fn first_of(&self, q: Queue) -> Option<Entity> {
        let rq = &self.q.rqs[q as usize];
        let first = rq.tree.first()?;
        let fair = |e: &Entity| self.beats(q, *e, first) < 1;
        let (next, last) = (rq.next.filter(fair), rq.last.filter(fair));
        let buddy = if self.k.buddies == Buddies::Preempting {
            next.or(last)
        } else {
            last.or(next)
        };
        Some(buddy.unwrap_or_else(|| {
            let second = || rq.tree.second(&self.q.nodes).filter(fair);
            let skipped = rq.skip == Some(first);
            skipped.then(second).flatten().unwrap_or(first)
        }))
    }

    /// `set` on the queue of `t` on `c`, and on those above with what stands for it there.
    fn at_every_level(&mut self, c: Cpu, t: Tid, set: impl Fn(&mut Rq, Entity)) {
        let (mut q, mut e) = (self.q.groups.queue_of(t, c), t);
        loop {
            set(self.q.rq(q), e);
            let Some(up) = self.q.groups.entity(q) else {
                return;
            };
            (q, e) = (self.q.groups.above(q), up);
        }
    }

    fn clear_buddies(&mut self, q: Queue) {
        let rq = self.q.rq(q);
        rq.next = None;
        rq.last = None;
    }

    /// Out of whatever holds it on `c`.
    fn leave(&mut self, w: &mut World, c: Cpu, t: Tid) {
        if self.q.se[t as usize].realtime {
            self.rt.remove(w, t);
            self.q.rq(Queue::from(c)).realtime -= 1;
        } else {
            self.q.update(w, c);
            let q = self.q.groups.queue_of(t, c);
            self.q.release(w, q, t);
            self.q.take_out(q, t);
            self.q.account(c, t, -1);
            self.q.gone(w, q, t);
        }
    }

    fn join(&mut self, w: &mut World, c: Cpu, t: Tid) {
        let realtime = w.thread(t).class.is_realtime();
        self.q.se[t as usize].realtime = realtime;
        if realtime {
            self.rt.push(w, c, t, false);
            self.q.rq(Queue::from(c)).realtime += 1;
        } else {
            let q = self.q.groups.queue_of(t, c);
            self.q.insert(q, t);
            self.q.account(c, t, 1);
            self.q.touch(t);
            self.q.come(w, q, t);
        }
    }
}

impl Policy for Cfs {
    fn clocks(&self) -> Clocks {
        Clocks {
            hz: self.k.hz,
            ..Clocks::default()
        }
    }

    fn init(&mut self, w: &mut World) {
        self.q.init_groups(w);
        self.rt.init(w, linux_groups::timers(w));
    }

    fn timer(&mut self, w: &mut World, id: u32) {
        if !self.rt.timer(w, id) {
            self.q.quota_timer(w, id);
        }
    }

    fn on_fork(&mut self, w: &mut World, parent: Option<Tid>, child: Tid) {
        self.placer.born(parent, child);
        let weight = weight_of(w, child);
        let home = w.thread(child).cpu;
        let q = self.q.groups.queue_of(child, home);
        let mut v = self.q.rqs[q as usize].min_vruntime;
        if let Some(p) = parent {
            self.q.update(w, w.thread(p).cpu);
            let se = &self.q.se[p as usize];
            if !se.realtime {
                let from = self.q.groups.queue_of(p, se.home);
                v = se.vruntime + self.q.rqs[q as usize].min_vruntime
                    - self.q.rqs[from as usize].min_vruntime;
            }
            if self.k.place_at_fork {
                self.q.se[child as usize].weight = weight;
                let slice = self.q.slice(q, child, true);
                let min = self.q.rqs[q as usize].min_vruntime;
                v = self.k.place.after(v, min, true, slice, weight);
            }
        }
        let se = &mut self.q.se[child as usize];
        se.vruntime = v;
        se.weight = weight;
        se.home = home;
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, place: SelectReason) -> Cpu {
        if let SelectReason::Wake(wake) = place {
            self.note_waker(w, wake);
        }
        if w.thread(t).class.is_realtime() {
            return self.rt.select_cpu(w, t);
        }
        match place {
            SelectReason::Wake(wake) => self.wake_cpu(w, t, wake),
            SelectReason::Fork(wake) => self.fork_cpu(w, t, wake.cpu),
            SelectReason::Moved => super::idle_or_previous(w, t),
        }
    }

    fn enqueue(&mut self, w: &mut World, cpu: Cpu, t: Tid, how: EnqueueReason) {
        if how == EnqueueReason::Wakeup {
            self.balancer.woken(w, cpu);
        }
        self.q.update(w, cpu);
        self.q.follow(w, cpu);
        if !w.thread(t).class.is_realtime() {
            self.q.se[t as usize].weight = weight_of(w, t);
            self.q.rebase(cpu, t);
            let parent = w.parent(t);
            let has_place = how == EnqueueReason::New && self.k.place_at_fork && parent.is_some();
            if how != EnqueueReason::Moved && !has_place {
                self.place(cpu, t, how, parent.is_some());
            }
            if how == EnqueueReason::New
                && self.k.place.child_first
                && let Some(p) = self.q.running(cpu)
                && parent == Some(p)
            {
                let (pv, cv) = (
                    self.q.se[p as usize].vruntime,
                    self.q.se[t as usize].vruntime,
                );
                if pv < cv {
                    self.q.se[p as usize].vruntime = cv;
                    self.q.se[t as usize].vruntime = pv;
                    w.resched(cpu, RescheduleReason::Preempted);
                }
            }
            w.record(VRUNTIME, t, self.q.se[t as usize].vruntime as f64);
        }
        self.join(w, cpu, t);
    }

    fn dequeue(&mut self, w: &mut World, cpu: Cpu, t: Tid) {
        self.leave(w, cpu, t);
    }

    fn check_preempt(&mut self, w: &mut World, cpu: Cpu, t: Tid, _: Wake) {
        let Some(curr) = w.cpu(cpu).curr else { return };
        if self.q.se[t as usize].realtime {
            if self.rt.preempts(w, cpu, t) {
                w.resched(cpu, RescheduleReason::Preempted);
            } else {
                self.rt.push_away(w, t);
            }
            return;
        }
        if w.thread(curr).class.is_realtime() {
            return;
        }
        self.q.update(w, cpu);
        let queue = self.q.groups.queue_of(t, cpu);
        if self.q.groups.any() && self.q.groups.is_under_hold(queue) {
            return;
        }
        let own = self.q.groups.queue_of(curr, cpu);
        let many = i64::from(self.q.rqs[own as usize].nr) >= self.k.place.nr_latency;
        if self.k.buddies == Buddies::NextLast {
            if many {
                self.at_every_level(cpu, curr, |rq, e| rq.last = Some(e));
            }
            self.at_every_level(cpu, t, |rq, e| rq.next = Some(e));
        }
        if self.k.buddies == Buddies::Preempting && w.needs_resched(cpu) {
            return; // An earlier wakeup of this instant has preempted it.
        }
        let (its, ours) = (w.thread(t).class, w.thread(curr).class);
        let (q, mine, running) = self.q.groups.meeting(t, curr, cpu);
        // Between groups their entities compete, which are of no class.
        let threads = (mine, running) == (t, curr);
        if its == Class::Batch || (threads && its == Class::Idle) {
            return;
        }
        if threads && ours == Class::Idle {
            w.resched(cpu, RescheduleReason::Preempted);
            return;
        }
        if self.k.wakeup_preempt && self.beats(q, running, mine) == 1 {
            let keeps_last = matches!(self.k.buddies, Buddies::Last | Buddies::Preempting);
            if keeps_last && many && running == curr {
                self.at_every_level(cpu, curr, |rq, e| rq.last = Some(e));
            }
            if self.k.buddies == Buddies::Preempting {
                self.at_every_level(cpu, t, |rq, e| rq.next = Some(e));
            }
            w.resched(cpu, RescheduleReason::Preempted);
        }
    }

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        if let Some(t) = self.rt.pop(w, cpu) {
            let from = w.thread(t).cpu;
            self.q.rq(Queue::from(from)).realtime -= 1;
            self.q.rq(Queue::from(cpu)).realtime += 1;
            self.q.forget_prev(Queue::from(cpu));
            return Some(t);
        }
        self.pick_fair(w, cpu)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        let push = self.balancer.push(w, cpu, t);
        if self.q.se[t as usize].realtime {
            self.rt.put_back(w, cpu, t, left);
            self.q.rq(Queue::from(cpu)).realtime -= 1;
            if left.stays_queued() {
                self.q.rq(Queue::from(cpu)).realtime += 1;
                self.rt.push(w, cpu, t, left == SwitchOutReason::Preempted);
                self.rt.push_away(w, t);
            }
            return;
        }
        self.q.update(w, cpu);
        if let Some(utilisation) = &mut self.utilisation {
            utilisation.runs(w.now(), cpu, false);
        }
        let q = self.q.groups.queue_of(t, cpu);
        if left.stays_queued() {
            self.q.put_back(q, t);
            if left == SwitchOutReason::Yielded && self.k.yield_skips {
                self.at_every_level(cpu, t, |rq, e| rq.skip = Some(e));
            }
        } else {
            self.q.rq(q).curr = None;
            self.q.account(cpu, t, -1);
            self.q.groups.goes(w.now(), t, q);
            if left == SwitchOutReason::Exited {
                self.q.groups.ends(w.now(), t);
            }
            // A sleeper is nobody's buddy.
            self.q.rq(q).forget(t);
        }
        self.q.raise_min(q);
        self.q.put_back_above(w, q);
        if let Some(to) = push.filter(|_| left.stays_queued()) {
            self.q.push_to(w, cpu, t, to);
        }
    }

    fn on_idle(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        self.q.follow(w, cpu);
        if self.balancer.newly_idle(w, &mut self.q, cpu) {
            return self.pick_fair(w, cpu);
        }
        None
    }

    fn tick(&mut self, w: &mut World, cpu: Cpu) {
        self.q.follow(w, cpu);
        if let Some(t) = w.cpu(cpu).curr {
            if self.q.se[t as usize].realtime {
                self.rt.tick(w, cpu, t, self.k.jiffy);
            } else {
                self.q.update(w, cpu);
                self.q.follow_shares(w, cpu, t);
                let (mut q, mut e) = (Queue::from(cpu), self.q.rqs[cpu as usize].curr);
                while let Some(runs) = e {
                    self.check_slice(w, cpu, q, runs);
                    let Some(inner) = self.q.groups.inner(runs) else {
                        break;
                    };
                    (q, e) = (inner, self.q.rqs[inner as usize].curr);
                }
            }
        }
        self.balancer.tick(w, &mut self.q, cpu);
        self.after_balance(w, cpu);
    }

    fn shares_by_groups(&self) -> bool {
        self.q.groups.any()
    }

    fn change_group(&mut self, w: &mut World, t: Tid, group: Option<u32>) {
        let cpu = w.thread(t).cpu;
        let state = w.thread(t).state;
        let queued = state == State::Queued && !self.q.se[t as usize].realtime;
        if queued {
            self.q.forget_prev(Queue::from(cpu));
            self.leave(w, cpu, t);
        }
        let home = self.q.se[t as usize].home;
        let from = self.q.groups.queue_of(t, home);
        self.q.groups.change_group(w.now(), t, home, group);
        let to = self.q.groups.queue_of(t, home);
        let (out, into) = (
            self.q.rqs[from as usize].min_vruntime,
            self.q.rqs[to as usize].min_vruntime,
        );
        let se = &mut self.q.se[t as usize];
        if state == State::Sleeping {
            // detach_task_cfs_rq bounds the credit of a sleeper.
            se.vruntime = self.k.place.woken(se.vruntime, out);
        }
        se.vruntime += into - out;
        if queued {
            self.join(w, cpu, t);
        }
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        let cpu = w.thread(t).cpu;
        match w.thread(t).state {
            State::Queued => {
                self.leave(w, cpu, t);
                self.q.se[t as usize].weight = weight_of(w, t);
                if !w.thread(t).class.is_realtime() {
                    self.q.rebase(cpu, t);
                }
                self.join(w, cpu, t);
                let wake = Wake {
                    waker: None,
                    cpu,
                    sync: false,
                };
                self.check_preempt(w, cpu, t, wake);
            }
            State::Running => {
                let realtime = w.thread(t).class.is_realtime();
                let q = self.q.groups.queue_of(t, cpu);
                let was = std::mem::replace(&mut self.q.se[t as usize].realtime, realtime);
                if was {
                    self.q.rq(Queue::from(cpu)).realtime -= 1;
                } else {
                    self.q.update(w, cpu);
                    self.q.account(cpu, t, -1);
                    self.q.rq(q).curr = None;
                    if realtime {
                        self.q.groups.goes(w.now(), t, q);
                        self.q.put_back_above(w, q);
                        self.q.forget_prev(Queue::from(cpu));
                    }
                }
                let weight = weight_of(w, t);
                self.q.se[t as usize].weight = weight;
                if realtime {
                    self.q.rq(Queue::from(cpu)).realtime += 1;
                } else {
                    self.q.rebase(cpu, t);
                    w.take_run(cpu);
                    self.q.account(cpu, t, 1);
                    self.q.rq(q).curr = Some(t);
                    if was {
                        self.q.run_above(w, q, t);
                    } else {
                        self.q.groups.weighs(w.now(), t, q, weight);
                    }
                }
                w.resched(cpu, RescheduleReason::Preempted);
            }
            State::Unborn | State::Sleeping | State::Dead => {
                self.q.se[t as usize].realtime = w.thread(t).class.is_realtime();
            }
        }
    }
}

impl Cfs {
    fn check_slice(&mut self, w: &mut World, cpu: Cpu, q: Queue, t: Entity) {
        if self.q.rqs[q as usize].nr < 2 {
            return;
        }
        let se = &self.q.se[t as usize];
        let slice = self.q.slice(q, t, false);
        let ran = se.ran - se.ran_at_pick;
        if ran > slice {
            if self.k.buddies != Buddies::Preempting {
                self.clear_buddies(q);
            }
            w.resched(cpu, RescheduleReason::SliceEnd);
            return;
        }
        if !self.k.early || ran < self.k.place.min_granularity {
            return;
        }
        let first = self.q.rqs[q as usize].tree.first();
        if let Some(f) = first
            && se.vruntime - self.q.se[f as usize].vruntime > slice
        {
            w.resched(cpu, RescheduleReason::SliceEnd);
        }
    }

    /// Pulled threads may be further behind than the running one.
    fn after_balance(&mut self, w: &mut World, cpu: Cpu) {
        let rq = &self.q.rqs[cpu as usize];
        if let (Some(curr), Some(first)) = (rq.curr, rq.tree.first())
            && self.q.groups.inner(first).is_none()
            && w.now() == w.thread(first).since
            && self.beats(Queue::from(cpu), curr, first) == 1
        {
            w.resched(cpu, RescheduleReason::Preempted);
        }
    }
}
