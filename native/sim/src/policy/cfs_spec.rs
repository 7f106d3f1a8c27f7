//! What of CFS can be set, and what its releases set.
use super::cfs::make;
use super::linux_bandwidth::SLICE;
use super::linux_domains::{BALANCE, BALANCE_NEWIDLE};
use super::linux_rt::RR_TIMESLICE;
use super::linux_rt_bandwidth as rt_bandwidth;
use super::linux_wake;
use super::tunables::{CLOCK_HZ, COUNT, SPAN, SPAN_OR_ZERO, choice, int, switch, time};
use super::{LagRule, Preset, PriorityScale, Role, Series, Spec};

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
            "skip_clock_update",
            "off",
            "who is preempted by a wakeup is charged up to that only, and its successor from there on (5.10, 6.1)",
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
            "wakes look less far for an idle CPU the busier all are, and not at all above 85 % (6.1)",
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

/// Least slice, search for idle CPUs, and when a CPU that turns idle pulls.
const OF_6_1: [(&str, &str); 19] = later([
    ("least_slice", "on"),
    ("sis_util", "on"),
    ("newidle_by_success", "on"),
    ("newidle_least_idle", "0"),
]);
const OF_5_10: [(&str, &str); 19] = later([
    ("least_slice", "off"),
    ("sis_util", "off"),
    ("newidle_by_success", "off"),
    ("newidle_least_idle", "500us"),
]);

/// What 5.10 and 6.1 have in common, and where they differ.
const fn later(
    [a, b, c, d]: [(&'static str, &'static str); 4],
) -> [(&'static str, &'static str); 19] {
    [
        ("sched_latency", "6ms"),
        ("sched_min_granularity", "750us"),
        ("sched_wakeup_granularity", "1ms"),
        ("sched_nr_latency", "8"),
        ("adaptive_gran", "off"),
        ("buddies", "preempting"),
        ("yield_skips", "on"),
        ("place_at_fork", "on"),
        ("skip_clock_update", "on"),
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
