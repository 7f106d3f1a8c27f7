//! What the model has of the kernel's types and enumerators: the target of CO-RE relocations, as
//! a kernel's own BTF is elsewhere. Members and values are those of Linux 6.12 to 7.0
//! (include/linux/sched.h, include/linux/sched/ext.h, kernel/sched/ext.c, ext_internal.h,
//! sched.h); their places are the model's own.
use rustc_hash::FxHashMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Member {
    U8,
    U16,
    U32,
    S32,
    U64,
    S64,
    Pointer,
    Bytes(u32),
    Struct(&'static str),
}

/// Of `machine::MAX_CPUS`.
const MASK_BYTES: u32 = (schedscope_sim::machine::MAX_CPUS / 8) as u32;

use Member::{Bytes, Pointer, S32, S64, Struct, U8, U16, U32, U64};

type Declared = (&'static str, &'static [(&'static str, Member)]);

/// A struct stands after those that it contains.
const STRUCTS: &[Declared] = &[
    (
        "sched_ext_entity",
        &[
            ("dsq", Pointer),
            ("dsq_seq", U32),
            ("flags", U32),
            ("weight", U32),
            ("sticky_cpu", S32),
            ("holding_cpu", S32),
            ("selected_cpu", S32),
            ("runnable_at", U64),
            ("ddsp_dsq_id", U64),
            ("ddsp_enq_flags", U64),
            ("slice", U64),
            ("dsq_vtime", U64),
            ("disallow", U8),
        ],
    ),
    (
        "sched_entity",
        &[("exec_start", U64), ("sum_exec_runtime", U64)],
    ),
    ("atomic_t", &[("counter", S32)]),
    ("kuid_t", &[("val", U32)]),
    ("kgid_t", &[("val", U32)]),
    (
        "cred",
        &[
            ("uid", Struct("kuid_t")),
            ("gid", Struct("kgid_t")),
            ("euid", Struct("kuid_t")),
            ("egid", Struct("kgid_t")),
        ],
    ),
    ("upid", &[("nr", S32), ("ns", Pointer)]),
    ("pid", &[("level", U32), ("numbers", Struct("upid"))]),
    ("ns_common", &[("inum", U32)]),
    (
        "pid_namespace",
        &[("ns", Struct("ns_common")), ("level", U32)],
    ),
    ("signal_struct", &[("pids", Bytes(8 * 4))]),
    // What guards keep: nothing is locked here.
    ("class_rcu_t", &[("lock", Pointer)]),
    // Of as many CPUs as the simulator has (MAX_CPUS).
    ("cpumask", &[("bits", Bytes(MASK_BYTES))]),
    ("sched_statistics", &[("wait_start", U64)]),
    ("thread_info", &[("cpu", U32)]),
    (
        "task_struct",
        &[
            ("thread_info", Struct("thread_info")),
            ("__state", U32),
            ("flags", U32),
            ("on_cpu", S32),
            ("on_rq", S32),
            ("wake_cpu", S32),
            ("recent_used_cpu", S32),
            ("prio", S32),
            ("static_prio", S32),
            ("normal_prio", S32),
            ("rt_priority", U32),
            ("policy", U32),
            ("nr_cpus_allowed", S32),
            ("migration_disabled", U16),
            ("pid", S32),
            ("tgid", S32),
            ("cpus_ptr", Pointer),
            ("cpus_mask", Struct("cpumask")),
            ("real_parent", Pointer),
            ("parent", Pointer),
            ("group_leader", Pointer),
            ("cgroups", Pointer),
            // No policy of memory, and counts that the fair class keeps: 0 for threads of ext.
            ("mempolicy", Pointer),
            ("wakee_flips", U32),
            ("wakee_flip_decay_ts", U64),
            ("last_wakee", Pointer),
            ("sched_task_group", Pointer),
            // Recordings know of no users and no namespaces of processes: null.
            ("real_cred", Pointer),
            ("thread_pid", Pointer),
            ("signal", Pointer),
            ("start_time", U64),
            ("start_boottime", U64),
            ("nvcsw", U64),
            ("nivcsw", U64),
            ("comm", Bytes(16)),
            ("se", Struct("sched_entity")),
            ("scx", Struct("sched_ext_entity")),
        ],
    ),
    ("bpf_cpumask", &[("cpumask", Struct("cpumask"))]),
    ("scx_dispatch_q", &[("nr", U32), ("seq", U32), ("id", U64)]),
    // None is there: a pointer to one is null.
    ("cpufreq_cpuinfo", &[("max_freq", U32), ("min_freq", U32)]),
    (
        "cpufreq_policy",
        &[
            ("cpuinfo", Struct("cpufreq_cpuinfo")),
            ("max", U32),
            ("min", U32),
        ],
    ),
    ("scx_rq", &[("nr_running", U32), ("cpuperf_target", U32)]),
    (
        "rq",
        &[
            ("curr", Pointer),
            ("cpu", S32),
            ("nr_running", U32),
            ("scx", Struct("scx_rq")),
            // CPUs always run at their capacity, and no interrupts take time.
            ("clock", U64),
            ("clock_task", U64),
            ("clock_pelt", U64),
            ("lost_idle_time", U64),
        ],
    ),
    (
        "kernfs_node",
        &[
            ("id", U64),
            ("name", Pointer),
            ("parent", Pointer),
            ("__parent", Pointer),
        ],
    ),
    (
        "cgroup_subsys_state",
        &[("cgroup", Pointer), ("parent", Pointer)],
    ),
    (
        "cgroup",
        &[
            ("self", Struct("cgroup_subsys_state")),
            ("level", S32),
            ("kn", Pointer),
            // By controller: none has anything of its own.
            ("subsys", Bytes(8 * 16)),
            // The last, which goes on: as many as the group is deep.
            ("ancestors", Bytes(8)),
        ],
    ),
    (
        "cpuset",
        &[
            ("css", Struct("cgroup_subsys_state")),
            ("cpus_allowed", Pointer),
        ],
    ),
    ("css_set", &[("dfl_cgrp", Pointer)]),
    ("task_group", &[("css", Struct("cgroup_subsys_state"))]),
    (
        "scx_cgroup_init_args",
        &[
            ("weight", U32),
            ("bw_period_us", U64),
            ("bw_quota_us", U64),
            ("bw_burst_us", U64),
        ],
    ),
    ("scx_init_task_args", &[("fork", U8), ("cgroup", Pointer)]),
    ("scx_exit_task_args", &[("cancelled", U8)]),
    (
        "scx_cpu_release_args",
        &[("reason", S32), ("task", Pointer)],
    ),
    ("scx_cpu_acquire_args", &[]),
    (
        "scx_exit_info",
        &[
            ("kind", S32),
            ("exit_code", S64),
            ("reason", Pointer),
            ("msg", Pointer),
            ("dump", Pointer),
        ],
    ),
];

/// Of include/linux/sched.h.
pub const PF_EXITING: u32 = 0x4;

pub const SLICE_DFL: u64 = 20_000_000;
pub const SLICE_INF: u64 = u64::MAX;
pub const DSQ_BUILTIN: u64 = 1 << 63;
pub const DSQ_LOCAL_FLAG: u64 = 1 << 62;
pub const DSQ_INVALID: u64 = DSQ_BUILTIN;
pub const DSQ_GLOBAL: u64 = DSQ_BUILTIN | 1;
pub const DSQ_LOCAL: u64 = DSQ_BUILTIN | 2;
pub const DSQ_LOCAL_ON: u64 = DSQ_BUILTIN | DSQ_LOCAL_FLAG;

pub const ENQ_WAKEUP: u64 = 1;
pub const ENQ_HEAD: u64 = 0x10;
pub const ENQ_CPU_SELECTED: u64 = 0x400;
pub const ENQ_PREEMPT: u64 = 1 << 32;
pub const ENQ_LAST: u64 = 1 << 41;
pub const DEQ_SLEEP: u64 = 1;

pub const WAKE_FORK: u64 = 4;
pub const WAKE_TTWU: u64 = 8;
pub const WAKE_SYNC: u64 = 0x10;

pub const KICK_IDLE: u64 = 1;
pub const KICK_PREEMPT: u64 = 2;
pub const ENQ_REENQ: u64 = 1 << 40;
pub const DSQ_ITER_REV: u64 = 1 << 16;
pub const PICK_IDLE_CORE: u64 = 1;

pub const OPS_KEEP_BUILTIN_IDLE: u64 = 1;
pub const OPS_ENQ_LAST: u64 = 2;
pub const OPS_ENQ_EXITING: u64 = 4;
pub const OPS_SWITCH_PARTIAL: u64 = 8;
pub const OPS_BUILTIN_IDLE_PER_NODE: u64 = 64;
/// ENQ_MIGRATION_DISABLED, ALLOW_QUEUED_WAKEUP, HAS_CGROUP_WEIGHT: nothing that is
/// simulated depends on them.
pub const OPS_WITHOUT_EFFECT: u64 = 16 | 32 | 1 << 16;

pub const TASK_QUEUED: u32 = 1;
pub const TASK_ENABLED: u32 = 3 << 8;

pub const EXIT_UNREG: i32 = 64;
pub const EXIT_UNREG_BPF: i32 = 65;
pub const EXIT_ERROR: i32 = 1024;
pub const EXIT_ERROR_BPF: i32 = 1025;
pub const EXIT_ERROR_STALL: i32 = 1026;

const ENUMERATORS: &[(&str, u64)] = &[
    ("SCX_SLICE_DFL", SLICE_DFL),
    ("SCX_SLICE_BYPASS", 5_000_000),
    ("SCX_SLICE_INF", SLICE_INF),
    ("SCX_DSQ_FLAG_BUILTIN", DSQ_BUILTIN),
    ("SCX_DSQ_FLAG_LOCAL_ON", DSQ_LOCAL_FLAG),
    ("SCX_DSQ_INVALID", DSQ_INVALID),
    ("SCX_DSQ_GLOBAL", DSQ_GLOBAL),
    ("SCX_DSQ_LOCAL", DSQ_LOCAL),
    ("SCX_DSQ_LOCAL_ON", DSQ_LOCAL_ON),
    ("SCX_DSQ_LOCAL_CPU_MASK", 0xffff_ffff),
    ("SCX_ENQ_WAKEUP", ENQ_WAKEUP),
    ("SCX_ENQ_HEAD", ENQ_HEAD),
    ("SCX_ENQ_CPU_SELECTED", ENQ_CPU_SELECTED),
    ("SCX_ENQ_PREEMPT", ENQ_PREEMPT),
    ("SCX_ENQ_REENQ", ENQ_REENQ),
    ("SCX_DSQ_ITER_REV", DSQ_ITER_REV),
    ("SCX_ENQ_LAST", ENQ_LAST),
    ("SCX_ENQ_CLEAR_OPSS", 1 << 56),
    ("SCX_ENQ_DSQ_PRIQ", 1 << 57),
    ("SCX_DEQ_SLEEP", DEQ_SLEEP),
    ("SCX_DEQ_CORE_SCHED_EXEC", 1 << 32),
    ("SCX_WAKE_FORK", WAKE_FORK),
    ("SCX_WAKE_TTWU", WAKE_TTWU),
    ("SCX_WAKE_SYNC", WAKE_SYNC),
    ("SCX_KICK_IDLE", KICK_IDLE),
    ("SCX_KICK_PREEMPT", KICK_PREEMPT),
    ("SCX_KICK_WAIT", 4),
    ("SCX_PICK_IDLE_CORE", PICK_IDLE_CORE),
    ("SCX_PICK_IDLE_IN_NODE", 2),
    ("SCX_OPS_KEEP_BUILTIN_IDLE", OPS_KEEP_BUILTIN_IDLE),
    ("SCX_OPS_ENQ_LAST", OPS_ENQ_LAST),
    ("SCX_OPS_ENQ_EXITING", OPS_ENQ_EXITING),
    ("SCX_OPS_SWITCH_PARTIAL", OPS_SWITCH_PARTIAL),
    ("SCX_OPS_ENQ_MIGRATION_DISABLED", 16),
    ("SCX_OPS_ALLOW_QUEUED_WAKEUP", 32),
    ("SCX_OPS_BUILTIN_IDLE_PER_NODE", OPS_BUILTIN_IDLE_PER_NODE),
    ("SCX_TASK_QUEUED", TASK_QUEUED as u64),
    ("SCX_TASK_RESET_RUNNABLE_AT", 4),
    ("SCX_TASK_DEQD_FOR_SLEEP", 8),
    ("SCX_TASK_STATE_SHIFT", 8),
    ("SCX_TASK_STATE_BITS", 2),
    ("SCX_EXIT_NONE", 0),
    ("SCX_EXIT_DONE", 1),
    ("SCX_EXIT_UNREG", EXIT_UNREG as u64),
    ("SCX_EXIT_UNREG_BPF", EXIT_UNREG_BPF as u64),
    ("SCX_EXIT_UNREG_KERN", 66),
    ("SCX_EXIT_SYSRQ", 67),
    ("SCX_EXIT_ERROR", EXIT_ERROR as u64),
    ("SCX_EXIT_ERROR_BPF", EXIT_ERROR_BPF as u64),
    ("SCX_EXIT_ERROR_STALL", EXIT_ERROR_STALL as u64),
    ("SCX_CPU_PREEMPT_RT", 0),
    ("SCX_CPU_PREEMPT_DL", 1),
    ("SCX_CPU_PREEMPT_STOP", 2),
    ("SCX_CPU_PREEMPT_UNKNOWN", 3),
];

/// The value of an enumerator of the kernel.
pub fn enumerator(name: &str) -> Option<u64> {
    let found = ENUMERATORS.iter().find(|(called, _)| *called == name);
    found.map(|(_, value)| *value)
}

#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub offset: u32,
    pub size: u32,
    pub signed: bool,
    /// The struct that it is.
    pub within: Option<&'static str>,
}

/// The structs laid out.
pub struct KernelTypes {
    members: FxHashMap<(&'static str, &'static str), Place>,
    sizes: FxHashMap<&'static str, u32>,
}

impl KernelTypes {
    pub fn new() -> Self {
        let mut all = Self {
            members: FxHashMap::default(),
            sizes: FxHashMap::default(),
        };
        for (name, members) in STRUCTS {
            let mut at = 0u32;
            for (member, kind) in *members {
                let (size, align, within) = match kind {
                    U8 => (1, 1, None),
                    U16 => (2, 2, None),
                    U32 | S32 => (4, 4, None),
                    U64 | S64 | Pointer => (8, 8, None),
                    Bytes(n) => (*n, 8, None),
                    Struct(of) => (all.sizes.get(of).copied().unwrap_or(0), 8, Some(*of)),
                };
                at = at.next_multiple_of(align);
                let place = Place {
                    offset: at,
                    size,
                    signed: matches!(kind, S32 | S64),
                    within,
                };
                all.members.insert((name, member), place);
                at += size;
            }
            all.sizes.insert(name, at.next_multiple_of(8).max(8));
        }
        all
    }

    pub fn size(&self, name: &str) -> Option<u32> {
        self.sizes.get(name).copied()
    }

    pub fn has(&self, name: &str) -> Option<&'static str> {
        self.sizes.get_key_value(name).map(|(own, _)| *own)
    }

    pub fn member(&self, of: &'static str, name: &str) -> Option<Place> {
        let own = STRUCTS.iter().find(|(called, _)| *called == of)?.1;
        let (own, _) = own.iter().find(|(called, _)| *called == name)?;
        self.members.get(&(of, own)).copied()
    }

    /// Where a member is for the model itself, which has it.
    pub fn offset(&self, of: &'static str, path: &[&'static str]) -> u32 {
        let mut within = Some(of);
        let mut offset = 0;
        for name in path {
            let place = within.and_then(|of| self.member(of, name));
            let Some(place) = place else {
                debug_assert!(false, "{of} has no {path:?}");
                return 0;
            };
            offset += place.offset;
            within = place.within;
        }
        offset
    }
}
