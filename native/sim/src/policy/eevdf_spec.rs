//! What of EEVDF can be set, and what its releases set.
use super::eevdf::make;
use super::linux_bandwidth::SLICE;
use super::linux_domains::{BALANCE, BALANCE_NEWIDLE};
use super::linux_fair_server as fair_server;
use super::linux_rt::RR_TIMESLICE;
use super::linux_rt_bandwidth as rt_bandwidth;
use super::linux_wake::FLIPS;
use super::tunables::{CLOCK_HZ, SPAN, SPAN_OR_ZERO, int, switch, time};
use super::{LagRule, Preset, PriorityScale, Role, Series, Spec, Tunable};

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
            "delay_keeps_lag",
            "off",
            "such a sleeper's lag only shrinks, and the running thread is charged before it wakes (7.2)",
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
            "skip_clock_update",
            "on",
            "who is preempted by a wakeup is charged up to that only, and its successor from there on",
        ),
        switch(
            "lazy_preemption",
            "off",
            "not so of fair threads, which take the CPU lazily (7.2 with preempt=lazy)",
        ),
        switch(
            "hrtick",
            "off",
            "a timer ends the request of a thread that took the CPU from another at its deadline, not the next tick (7.2)",
        ),
        switch(
            "sis_util",
            "on",
            "wakes look less far for an idle CPU the busier all are, and not at all above 85 %",
        ),
        switch(
            "wa_weight",
            "on",
            "a wake brings a thread to its waker's CPU if that has less load, where both are busy",
        ),
        switch(
            "util_by_weight",
            "on",
            "a new thread uses a part of the CPU by its weight, at first, if that is less than half of what is left (6.10)",
        ),
        FLIPS,
        time(
            "migration_cost",
            "500us",
            SPAN_OR_ZERO,
            "a thread that ran this recently is not pulled at first",
        ),
        BALANCE,
        switch(
            "balance_eligible",
            "on",
            "a thread that has had more than its share is only moved after balancing failed (6.14)",
        ),
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
                ("lazy_preemption", "on"),
                ("delay_keeps_lag", "on"),
                ("newidle_raises_cost", "off"),
                ("newidle_by_success", "on"),
            ],
        },
        Preset {
            name: "eevdf-6.12",
            doc: "Linux 6.12: delayed dequeue, relative deadlines",
            values: &[
                ("base_slice", "750us"),
                ("balance_eligible", "off"),
                ("newidle_raises_cost", "off"),
                ("protect_shortest", "off"),
            ],
        },
        Preset {
            name: "eevdf-6.6",
            doc: "Linux 6.6: the first EEVDF",
            values: &[
                ("base_slice", "750us"),
                ("balance_eligible", "off"),
                ("newidle_raises_cost", "off"),
                ("place_rel_deadline", "off"),
                ("delay_dequeue", "off"),
                ("delay_zero", "off"),
                ("own_slices", "off"),
                ("preempt_short", "off"),
                ("protect_shortest", "off"),
                ("util_by_weight", "off"),
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
