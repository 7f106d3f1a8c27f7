//! What of ULE can be set, and what its releases set.
use super::tunables::{CLOCK_HZ, COUNT_OR_ZERO, SPAN, SPAN_OR_ZERO, choice, int, switch, time};
use super::ule::make;
use super::ule_score::{INTERACT, SLP_RUN_FORK, SLP_RUN_MAX};
use super::{InteractivityRule, Preset, PriorityScale, Role, Series, Spec};

pub const SPEC: Spec = Spec {
    family: "ule",
    summary: "interactive threads first, batch threads in a calendar, per-CPU queues with stealing",
    models: "FreeBSD 14 sched_ule.c, and its form of 8/9 (Nov 2011). Left out: priority lending.",
    tunables: &[
        int(
            "hz",
            "1000",
            "1/s",
            CLOCK_HZ,
            "ticks in which sleep and history count",
        ),
        int(
            "stathz",
            "127",
            "1/s",
            CLOCK_HZ,
            "statistics clock: charges run time and slices",
        ),
        int(
            "slice",
            "0",
            "stat ticks",
            COUNT_OR_ZERO,
            "slice of a CPU with one thread waiting; 0 = stathz / 10",
        ),
        choice(
            "rules",
            &["14", "2011"],
            "14",
            "how CPUs are searched for a thread or for work, whom another CPU preempts, when an idle CPU looks for work, and what a child inherits",
        ),
        switch(
            "slice_by_load",
            "on",
            "the slice shrinks with the load, to a sixth (14); else fixed (8, 9)",
        ),
        INTERACT,
        SLP_RUN_MAX,
        SLP_RUN_FORK,
        int(
            "min_timeshare",
            "88",
            "priority",
            (80.0, 150.0),
            "best timeshare priority (88 in 14, 120 in 9 to 13)",
        ),
        int(
            "interact_levels",
            "48",
            "priorities",
            (1.0, 64.0),
            "of them interactive (48 in 14, 32 in 9 to 13)",
        ),
        int(
            "min_realtime",
            "16",
            "priority",
            (0.0, 150.0),
            "best real-time priority, of 32 (16 in 14, 48 in 9 to 13)",
        ),
        int(
            "preempt_thresh",
            "48",
            "priority",
            (0.0, 255.0),
            "a thread at least this good preempts at once (48 in 14, 80 in 9 to 13)",
        ),
        choice(
            "wake_preempt",
            &["ast", "none"],
            "ast",
            "whether a better timeshare thread that wakes here runs at the return to user mode (FreeBSD) or at the next scheduling point (the Linux port of ATC'18)",
        ),
        switch(
            "static_boost",
            "on",
            "a sleeping batch thread is queued at the best batch priority",
        ),
        time(
            "affinity",
            "1ms",
            SPAN_OR_ZERO,
            "cache affinity per level of cache group",
        ),
        int(
            "steal_thresh",
            "2",
            "threads",
            COUNT_OR_ZERO,
            "least load of a CPU that an idle one steals from; 0 = min(log2(CPUs), 3)",
        ),
        switch(
            "idle_poll",
            "off",
            "an idle CPU tries to steal at every stat tick, not only when it turns idle (the Linux port of ATC'18)",
        ),
        switch("steal_idle", "on", "idle CPUs steal"),
        choice(
            "balance",
            &["every_donor", "one_pair", "off"],
            "every_donor",
            "a balancer run moves one thread from each loaded CPU (14) or evens out one pair per level (8, 9)",
        ),
        time(
            "balance_interval",
            "1s",
            SPAN,
            "mean time between balancer runs, each 0.5 to 1.5 of it by the clock of the first CPU",
        ),
        switch(
            "random",
            "on",
            "chance breaks ties and times the balancer; off: no chance at all, for comparisons run for run",
        ),
    ],
    presets: &[
        Preset {
            name: "ule-14",
            doc: "FreeBSD 14",
            values: &[],
        },
        Preset {
            name: "ule-13",
            doc: "FreeBSD 13: its priorities and threshold; else the rules of 14",
            values: &[
                ("min_timeshare", "120"),
                ("interact_levels", "32"),
                ("min_realtime", "48"),
                ("preempt_thresh", "80"),
            ],
        },
        Preset {
            name: "ule-2011",
            doc: "FreeBSD 8/9, November 2011",
            values: &[
                ("rules", "2011"),
                ("slice_by_load", "off"),
                ("min_timeshare", "120"),
                ("interact_levels", "32"),
                ("min_realtime", "48"),
                ("preempt_thresh", "80"),
                ("steal_thresh", "0"),
                ("balance", "one_pair"),
            ],
        },
    ],
    series: &[
        Series {
            name: "score",
            unit: "0..100",
            doc: "interactivity score with nice; below 30 is interactive",
        },
        Series {
            name: "priority",
            unit: "priority",
            doc: "user priority, lower is better",
        },
        Series {
            name: "queue_index",
            unit: "slot",
            doc: "list in which it was queued (calendar slot for batch threads)",
        },
    ],
    work_conserving: false,
    strict_classes: 2,
    role: Role::Kernel,
    priorities: PriorityScale::Own,
    interactivity: Some(InteractivityRule::Ule),
    lag: None,
    groups: false,
    make,
};
