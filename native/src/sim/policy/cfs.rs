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
//! * load_balance: `linux_domains` by groups (5.5). detach_tasks takes the thread that
//!   was picked or queued longest ago (the list is kept so since 4.14), and task_hot
//!   lets go of one that has not run since it moved, and of buddies if the CPU idles.
//! * newidle_balance: `linux_newidle`; by the rate of success (NI_RANDOM) in late
//!   releases of the 6.1 series, 6.1.192 among them.
//!
//! Left out: group scheduling, HRTICK, bandwidth limits, real-time throttling,
//! power saving, the cost of balancing; of 5.10 and 6.1 besides: PELT loads, that a
//! CPU with SCHED_IDLE threads alone counts as idle, and 6.3's limit of a slice to the
//! latency. Real-time threads: `linux_rt`. Load balancing and CPU choice:
//! `linux_domains`, with the loads that lag behind as 2.6's did.
use super::super::error::Result;
use super::super::machine::{Cpu, Machine};
use super::super::tree::{Nodes, Tree};
use super::super::workload::{Class, Tid};
use super::super::world::{RescheduleReason, State, World};
use super::cfs_place::Placing;
use super::linux_domains::{BALANCE, BALANCE_NEWIDLE, Balancer, Knobs, Queues, Style, Want};
use super::linux_fair::{idle_in_cache, log2_factor, virtual_ns, weight_of};
use super::linux_newidle::Newidle;
use super::linux_rt::{RR_TIMESLICE, RtQueues};
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
    models: "Linux 2.6.31 and 2.6.32 sched_fair.c, 5.10 and 6.1 fair.c, with real-time class and load balancer. Left out: groups, HRTICK, throttling, power saving, PELT loads.",
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
        RR_TIMESLICE,
        int("hz", "250", "1/s", CLOCK_HZ, "clock ticks"),
    ],
    presets: &[
        Preset {
            name: "cfs-2.6.32",
            doc: "2.6.32-rc5 and 2.6.32",
            values: &[],
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
            rqs: vec![Rq::default(); ncpu],
            se: vec![fresh; nthreads],
            nodes: Nodes::new(nthreads),
            migration_cost: k.migration_cost,
            oldest: s.is_on("pull_oldest"),
            touches: 0,
            jiffy: k.jiffy,
        },
        rt: RtQueues::new(ncpu, nthreads, s.ns("rr_timeslice")),
        placer: Placer::new(nthreads, Knobs::BY_GROUPS.imbalance_pct),
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

/// A thread's scheduling entity.
#[derive(Debug, Clone, Default)]
struct Se {
    vruntime: i64,
    weight: i64,
    /// CPU time so far, at the last pick, and at the last wakeup it issued.
    ran: i64,
    ran_at_pick: i64,
    ran_at_wakeup: i64,
    avg_wakeup: i64,
    /// The CPU whose virtual time `vruntime` is in.
    home: Cpu,
    /// When it was last queued or picked, in the order of such moments.
    touched: u64,
    realtime: bool,
}

#[derive(Debug, Clone, Default)]
struct Rq {
    tree: Tree,
    curr: Option<Tid>,
    /// Weights of queued and running threads, and their number.
    load: i64,
    nr: u32,
    min_vruntime: i64,
    next: Option<Tid>,
    last: Option<Tid>,
    skip: Option<Tid>,
    /// Loads that follow the true one by halves, quarters.. per tick.
    lagging: [i64; 3],
    lagged_at: i64,
    realtime: u32,
}

impl Rq {
    /// `t` is nobody's buddy any more.
    fn forget(&mut self, t: Tid) {
        for buddy in [&mut self.next, &mut self.last, &mut self.skip] {
            if *buddy == Some(t) {
                *buddy = None;
            }
        }
    }
}

struct Rqs {
    rqs: Vec<Rq>,
    se: Vec<Se>,
    nodes: Nodes,
    migration_cost: i64,
    /// Pull the thread that was queued or picked longest ago.
    oldest: bool,
    touches: u64,
    jiffy: i64,
}

impl Rqs {
    fn rq(&mut self, c: Cpu) -> &mut Rq {
        &mut self.rqs[c as usize]
    }

    /// Charge the running thread of `c` up to now.
    fn update(&mut self, w: &mut World, c: Cpu) {
        let Some(t) = self.rqs[c as usize].curr else {
            return;
        };
        let ran = w.take_run(c);
        let se = &mut self.se[t as usize];
        se.ran += ran;
        se.vruntime += virtual_ns(ran, se.weight);
        let v = se.vruntime;
        self.raise_min(c);
        if ran > 0 {
            w.record(VRUNTIME, t, v as f64);
            let min = self.rqs[c as usize].min_vruntime;
            w.record_cpu(MIN_VRUNTIME, c, min as f64);
        }
    }

    fn raise_min(&mut self, c: Cpu) {
        let rq = &self.rqs[c as usize];
        let first = rq.tree.first().map(|t| self.se[t as usize].vruntime);
        let curr = rq.curr.map(|t| self.se[t as usize].vruntime);
        let least = match (first, curr) {
            (Some(a), Some(b)) => a.min(b),
            (Some(a), None) | (None, Some(a)) => a,
            (None, None) => return,
        };
        let rq = self.rq(c);
        rq.min_vruntime = rq.min_vruntime.max(least);
    }

    fn insert(&mut self, c: Cpu, t: Tid) {
        let v = self.se[t as usize].vruntime;
        let rq = &mut self.rqs[c as usize];
        rq.tree.insert(&mut self.nodes, t, v, 0);
    }

    fn take_out(&mut self, c: Cpu, t: Tid) {
        let rq = &mut self.rqs[c as usize];
        rq.tree.remove(&mut self.nodes, t);
        rq.forget(t);
    }

    fn touch(&mut self, t: Tid) {
        self.touches += 1;
        self.se[t as usize].touched = self.touches;
    }

    /// Who moves from `from` to `to` first.
    fn movable(&self, w: &World, from: Cpu, to: Cpu, want: Want) -> Option<Tid> {
        let rq = &self.rqs[from as usize];
        let to_idle = self.oldest && self.nr(to) == 0;
        let may = |t: Tid| {
            let th = w.thread(t);
            let here = !self.oldest || th.last_cpu == Some(from);
            let recent = w.now() - th.last_ran < self.migration_cost && th.last_cpu.is_some();
            let buddy = !to_idle && (rq.next == Some(t) || rq.last == Some(t));
            let fits = self.se[t as usize].weight >> want.halved <= want.load;
            w.allowed(t, to) && fits && (want.hot || !(recent && here || buddy))
        };
        let mut found: Option<Tid> = None;
        rq.tree.visit(&self.nodes, |t| {
            let older = |f: Tid| self.se[t as usize].touched < self.se[f as usize].touched;
            if may(t) && found.is_none_or(older) {
                found = Some(t);
            }
            self.oldest || found.is_none()
        });
        found
    }

    fn account(&mut self, c: Cpu, t: Tid, sign: i64) {
        let weight = self.se[t as usize].weight;
        let rq = self.rq(c);
        rq.load += sign * weight;
        rq.nr = (i64::from(rq.nr) + sign) as u32;
    }

    /// Carry the virtual time of `t` over to `c`'s.
    fn rebase(&mut self, c: Cpu, t: Tid) {
        let home = self.se[t as usize].home;
        let shift = self.rqs[c as usize].min_vruntime - self.rqs[home as usize].min_vruntime;
        let se = &mut self.se[t as usize];
        se.vruntime += shift;
        se.home = c;
    }

    /// Bring the lagging loads up to the tick before now.
    fn follow(&mut self, w: &World, c: Cpu) {
        let load = self.load(c);
        let tick = w.now() / self.jiffy;
        let rq = self.rq(c);
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
    fn load(&self, c: Cpu) -> i64 {
        let rq = &self.rqs[c as usize];
        // A real-time thread weighs as two of nice -20.
        rq.load + i64::from(rq.realtime) * 2 * 88761
    }

    fn lagged(&self, w: &World, c: Cpu, idx: usize) -> i64 {
        if idx == 0 {
            return self.load(c);
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
        rq.nr + rq.realtime
    }

    fn pull(&mut self, w: &mut World, from: Cpu, to: Cpu, want: Want) -> u32 {
        let mut load = want.load;
        let mut moved = 0;
        while load > 0 && moved < want.tasks {
            let Some(t) = self.movable(w, from, to, Want { load, ..want }) else {
                break;
            };
            self.update(w, to);
            self.take_out(from, t);
            self.account(from, t, -1);
            self.rebase(to, t);
            self.insert(to, t);
            self.account(to, t, 1);
            self.touch(t);
            w.migrate(t, to);
            // Without a bound on the load it is the number of threads that counts.
            if want.load != i64::MAX {
                load -= self.se[t as usize].weight;
            }
            moved += 1;
        }
        moved
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
        let rq = &self.q.rqs[c as usize];
        let (min, others) = (rq.min_vruntime, (i64::from(rq.nr), rq.load));
        let se = &mut self.q.se[t as usize];
        se.vruntime = if how == EnqueueReason::New {
            self.k
                .place
                .born(se.vruntime, min, forked, others, se.weight)
        } else {
            self.k.place.woken(se.vruntime, min)
        };
    }

    fn granularity(&self, c: Cpu, curr: Tid, t: Tid) -> i64 {
        let mut gran = self.k.wakeup_granularity;
        let (r, s) = (&self.q.se[curr as usize], &self.q.se[t as usize]);
        if self.k.adaptive {
            let ran = r.ran - r.ran_at_pick;
            let until = 2 * s.avg_wakeup * i64::from(self.q.rqs[c as usize].nr);
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
    fn beats(&self, c: Cpu, other: Tid, t: Tid) -> i32 {
        let ahead = self.q.se[other as usize].vruntime - self.q.se[t as usize].vruntime;
        if ahead <= 0 {
            -1
        } else {
            i32::from(ahead > self.granularity(c, other, t))
        }
    }

    /// A thread issues a wakeup: how much it runs between two of them.
    fn note_waker(&mut self, w: &mut World, wake: Wake) {
        if let Some(p) = wake.waker
            && self.q.rqs[wake.cpu as usize].curr == Some(p)
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
            let wakers = wake.waker.map_or(0, |p| self.q.se[p as usize].weight);
            let weights = (self.q.se[t as usize].weight, wakers);
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
        if self.q.rqs[target as usize].nr > 1 {
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
        let weight = self.q.se[t as usize].weight;
        let mut here = self.q.load(wake.cpu).max(self.q.lagged(w, wake.cpu, 1));
        if wake.sync
            && let Some(p) = wake.waker
        {
            here = (here - self.q.se[p as usize].weight).max(0);
        }
        let there = self.q.load(prev).min(self.q.lagged(w, prev, 1));
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
                        let (now, old) = (self.q.load(*c), self.q.lagged(w, *c, idx));
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
                .min_by_key(|c| self.q.load(**c));
            here = idlest.copied().unwrap_or(here);
        }
        if w.allowed(t, here) {
            here
        } else {
            super::least_loaded(w, t)
        }
    }

    fn pick_fair(&mut self, w: &mut World, c: Cpu) -> Option<Tid> {
        let rq = &self.q.rqs[c as usize];
        let first = rq.tree.first()?;
        let fair = |t: &Tid| self.beats(c, *t, first) < 1;
        let (next, last) = (rq.next.filter(fair), rq.last.filter(fair));
        let buddy = if self.k.buddies == Buddies::Preempting {
            next.or(last)
        } else {
            last.or(next)
        };
        let t = buddy.unwrap_or_else(|| {
            let second = || rq.tree.second(&self.q.nodes).filter(fair);
            let skipped = rq.skip == Some(first);
            skipped.then(second).flatten().unwrap_or(first)
        });
        self.q.take_out(c, t);
        self.q.touch(t);
        let se = &mut self.q.se[t as usize];
        se.ran_at_pick = se.ran;
        self.q.rq(c).curr = Some(t);
        if let Some(utilisation) = &mut self.utilisation {
            utilisation.runs(w.now(), c, true);
        }
        w.take_run(c);
        Some(t)
    }

    fn clear_buddies(&mut self, c: Cpu) {
        let rq = self.q.rq(c);
        rq.next = None;
        rq.last = None;
    }

    /// Out of whatever holds it on `c`.
    fn leave(&mut self, w: &mut World, c: Cpu, t: Tid) {
        if self.q.se[t as usize].realtime {
            self.rt.remove(t);
            self.q.rq(c).realtime -= 1;
        } else {
            self.q.update(w, c);
            self.q.take_out(c, t);
            self.q.account(c, t, -1);
        }
    }

    fn join(&mut self, w: &mut World, c: Cpu, t: Tid) {
        let realtime = w.thread(t).class.is_realtime();
        self.q.se[t as usize].realtime = realtime;
        if realtime {
            self.rt.push(w, c, t, false);
            self.q.rq(c).realtime += 1;
        } else {
            self.q.insert(c, t);
            self.q.account(c, t, 1);
            self.q.touch(t);
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

    fn on_fork(&mut self, w: &mut World, parent: Option<Tid>, child: Tid) {
        let weight = weight_of(w, child);
        let home = w.thread(child).cpu;
        let mut v = self.q.rqs[home as usize].min_vruntime;
        if let Some(p) = parent {
            self.q.update(w, w.thread(p).cpu);
            let se = &self.q.se[p as usize];
            if !se.realtime {
                v = se.vruntime + self.q.rqs[home as usize].min_vruntime
                    - self.q.rqs[se.home as usize].min_vruntime;
            }
            if self.k.place_at_fork {
                let rq = &self.q.rqs[home as usize];
                let others = (i64::from(rq.nr), rq.load);
                v = self.k.place.born(v, rq.min_vruntime, true, others, weight);
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
                && let Some(p) = self.q.rqs[cpu as usize].curr
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
        let nr = i64::from(self.q.rqs[cpu as usize].nr);
        let many = nr >= self.k.place.nr_latency;
        if self.k.buddies == Buddies::NextLast {
            if many {
                self.q.rq(cpu).last = Some(curr);
            }
            self.q.rq(cpu).next = Some(t);
        }
        if self.k.buddies == Buddies::Preempting && w.needs_resched(cpu) {
            return; // An earlier wakeup of this instant has preempted it.
        }
        let (its, ours) = (w.thread(t).class, w.thread(curr).class);
        if its == Class::Batch || its == Class::Idle {
            return;
        }
        if ours == Class::Idle {
            w.resched(cpu, RescheduleReason::Preempted);
            return;
        }
        if self.k.wakeup_preempt && self.beats(cpu, curr, t) == 1 {
            let keeps_last = matches!(self.k.buddies, Buddies::Last | Buddies::Preempting);
            if keeps_last && many {
                self.q.rq(cpu).last = Some(curr);
            }
            if self.k.buddies == Buddies::Preempting {
                self.q.rq(cpu).next = Some(t);
            }
            w.resched(cpu, RescheduleReason::Preempted);
        }
    }

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        if let Some(t) = self.rt.pop(w, cpu) {
            let from = w.thread(t).cpu;
            self.q.rq(from).realtime -= 1;
            self.q.rq(cpu).realtime += 1;
            return Some(t);
        }
        self.pick_fair(w, cpu)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        if self.q.se[t as usize].realtime {
            self.q.rq(cpu).realtime -= 1;
            if left.stays_queued() {
                self.q.rq(cpu).realtime += 1;
                self.rt.push(w, cpu, t, left == SwitchOutReason::Preempted);
                self.rt.push_away(w, t);
            }
            return;
        }
        self.q.update(w, cpu);
        if let Some(utilisation) = &mut self.utilisation {
            utilisation.runs(w.now(), cpu, false);
        }
        self.q.rq(cpu).curr = None;
        if left.stays_queued() {
            self.q.insert(cpu, t);
            if left == SwitchOutReason::Yielded && self.k.yield_skips {
                self.q.rq(cpu).skip = Some(t);
            }
        } else {
            self.q.account(cpu, t, -1);
            // A sleeper is nobody's buddy.
            self.q.rq(cpu).forget(t);
        }
        self.q.raise_min(cpu);
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
                self.check_slice(w, cpu, t);
            }
        }
        self.balancer.tick(w, &mut self.q, cpu);
        self.after_balance(w, cpu);
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
                if self.q.se[t as usize].realtime {
                    self.q.rq(cpu).realtime -= 1;
                } else {
                    self.q.update(w, cpu);
                    self.q.account(cpu, t, -1);
                    self.q.rq(cpu).curr = None;
                }
                let realtime = w.thread(t).class.is_realtime();
                self.q.se[t as usize].realtime = realtime;
                self.q.se[t as usize].weight = weight_of(w, t);
                if realtime {
                    self.q.rq(cpu).realtime += 1;
                } else {
                    self.q.rebase(cpu, t);
                    w.take_run(cpu);
                    self.q.account(cpu, t, 1);
                    self.q.rq(cpu).curr = Some(t);
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
    fn check_slice(&mut self, w: &mut World, cpu: Cpu, t: Tid) {
        if self.q.rqs[cpu as usize].nr < 2 {
            return;
        }
        let rq = &self.q.rqs[cpu as usize];
        let se = &self.q.se[t as usize];
        let slice = self.k.place.slice(i64::from(rq.nr), rq.load, se.weight);
        let ran = se.ran - se.ran_at_pick;
        if ran > slice {
            if self.k.buddies != Buddies::Preempting {
                self.clear_buddies(cpu);
            }
            w.resched(cpu, RescheduleReason::SliceEnd);
            return;
        }
        if !self.k.early || ran < self.k.place.min_granularity {
            return;
        }
        let first = self.q.rqs[cpu as usize].tree.first();
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
            && w.now() == w.thread(first).since
            && self.beats(cpu, curr, first) == 1
        {
            w.resched(cpu, RescheduleReason::Preempted);
        }
    }
}
