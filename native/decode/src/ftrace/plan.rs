//! What the kernel's description of an event makes of its records: which fields are read, and where
//! they lie.

use crate::error::Result;
use crate::ftrace::fields::{Addresses, Int, Layout, Name};
use crate::ftrace::format::EventFormat;
use crate::ftrace::states::StateTable;
use crate::model::event::{
    CallStep, DiskStep, IrqKind, LockStep, Party, QueueStep, TIDS, UNKNOWN_TID, WakeKind,
};

/// What is done with a record of one event.
#[derive(Debug, Clone)]
pub struct Plan {
    pub action: Action,
    /// Shorter records are damaged.
    pub min_len: usize,
    /// Names and numbers of the frequent events lie as on every kernel so far:
    /// 16 bytes in place, four signed bytes. They are then read without a look
    /// at each field's own shape, which costs more than the reading.
    pub(super) usual: bool,
}

#[derive(Debug, Clone)]
pub enum Action {
    /// Counted only.
    Ignore,
    Switch(Box<Switch>),
    Wake {
        kind: WakeKind,
        common: Common,
        who: Who,
        target: Option<Int>,
    },
    Migrate {
        who: Who,
        from: Int,
        to: Int,
    },
    Fork {
        parent_comm: Name,
        parent: Int,
        child_comm: Name,
        child: Int,
    },
    NewTask {
        common: Common,
        child: Int,
        comm: Name,
        flags: Int,
    },
    Exec {
        pid: Int,
        old_pid: Option<Int>,
    },
    Exit {
        who: Who,
    },
    Rename {
        pid: Int,
        comm: Name,
    },
    Priority {
        who: Who,
        new: Int,
    },
    Yield {
        common: Common,
    },
    IrqEntry {
        kind: IrqKind,
        id: Int,
    },
    IrqExit {
        kind: IrqKind,
        id: Int,
    },
    QuotaRefill {
        timer: Int,
    },
    /// `hierarchy` None: that which shares CPU time out, as our recorder chose it.
    GroupMove {
        hierarchy: Option<Int>,
        pid: Int,
        path: Name,
    },
    /// A line of what the kernel writes when it ends a scheduler of sched_ext.
    SchedulerDump {
        line: Name,
    },
    SystemCall {
        common: Common,
        step: CallStep,
        id: Int,
        value: Option<Int>,
        args: Option<[Int; 3]>,
    },
    Lock {
        common: Common,
        step: LockStep,
        address: Int,
        flags: Option<Int>,
        value: Option<Int>,
    },
    DiskRequest {
        common: Common,
        step: DiskStep,
        device: Int,
        sector: Int,
        sectors: Int,
    },
    /// `io_wait` None: the event itself says that it is one.
    SleepReason {
        pid: Int,
        io_wait: Option<Int>,
    },
    DispatchQueue(Box<DispatchQueue>),
    Kick {
        target: Int,
        flags: Int,
    },
    /// Of a thread that leaves its CPU to sleep, as our recorder asked for it.
    SleepStack {
        common: Common,
        depth: Int,
        callers: Addresses,
    },
}

#[derive(Debug, Clone)]
pub struct Switch {
    pub(super) running: Int,
    pub(super) prev_comm: Name,
    pub(super) prev_pid: Int,
    pub(super) prev_prio: Int,
    pub(super) prev_state: Int,
    pub(super) next_comm: Name,
    pub(super) next_pid: Int,
    pub(super) next_prio: Int,
    pub(super) states: StateTable,
}

/// A probe of our recorder in sched_ext.
#[derive(Debug, Clone)]
pub struct DispatchQueue {
    pub(super) step: QueueStep,
    pub(super) pid: Int,
    pub(super) cpu: Int,
    pub(super) id: Int,
    pub(super) queued: Int,
    /// Slice, virtual time and flags of what goes in.
    pub(super) given: Option<[Int; 3]>,
    /// What the scheduler asks of the watchdog; 0 if nothing.
    pub(super) timeout_ms: Option<Int>,
}

/// The fields that every event begins with.
#[derive(Debug, Clone, Copy)]
pub struct Common {
    pub(super) pid: Int,
    pub(super) flags: Int,
}

impl Common {
    /// The thread that was running; -1 is the word of files that do not know.
    #[inline(always)]
    pub(super) fn running<const BIG: bool, const USUAL: bool>(self, data: &[u8]) -> Option<u32> {
        Some(self.pid.tid::<BIG, USUAL>(data)).filter(|&tid| tid != UNKNOWN_TID)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Who {
    pub(super) comm: Name,
    pub(super) pid: Int,
    pub(super) prio: Option<Int>,
}

impl Plan {
    /// Does this event yield anything but a count?
    pub fn wants(system: &str, name: &str) -> bool {
        match system {
            "sched" => name.starts_with("sched_"),
            "task" => matches!(name, "task_newtask" | "task_rename"),
            "irq" => name.starts_with("irq_handler_") || name.starts_with("softirq_"),
            "syscalls" => name == "sys_enter_sched_yield",
            "raw_syscalls" => matches!(name, "sys_enter" | "sys_exit"),
            "lock" => matches!(name, "contention_begin" | "contention_end"),
            "block" => matches!(
                name,
                "block_io_start" | "block_rq_issue" | "block_rq_complete"
            ),
            // Our recorder's name for what it let through of timer/hrtimer_expire_entry.
            "quota" => true,
            // Our recorder's probes on the dispatch queues of sched_ext.
            "scx" => matches!(name, "insert" | "insert_local" | "remove" | "kick"),
            "sched_ext" => name == "sched_ext_dump",
            // Stacks of threads that fall asleep, of all stacks.
            "sleep" => name == "kernel_stack",
            // And for cgroup/cgroup_attach_task of the hierarchy that shares CPU time.
            "group" => true,
            "cgroup" => matches!(name, "cgroup_attach_task" | "cgroup_transfer_tasks"),
            _ => false,
        }
    }

    /// Compiles the format of `system`'s event; `release` stands in for a
    /// sched_switch whose format does not tell the state letters.
    pub fn compile(system: &str, format: &EventFormat, release: &str) -> Result<Self> {
        let mut layout = Layout::new(format);
        let action = action(system, format, release, &mut layout)?;
        Ok(Self {
            usual: action.is_usual(),
            action,
            min_len: layout.min_len(),
        })
    }

    /// For an event of which nothing but the number is wanted.
    pub fn ignore() -> Self {
        Self {
            action: Action::Ignore,
            min_len: 0,
            usual: false,
        }
    }

    /// Order across CPUs of events of one nanosecond: switch, wakeup, migration.
    pub fn rank(&self) -> u8 {
        match self.action {
            Action::Switch(_) => 0,
            Action::Wake { .. } => 1,
            Action::Migrate { .. } => 2,
            _ => 3,
        }
    }
}

impl Action {
    /// See [`Plan::usual`].
    fn is_usual(&self) -> bool {
        let who =
            |who: &Who| who.comm.is_16() && who.pid.is_i32() && who.prio.is_none_or(Int::is_i32);
        match self {
            Self::Switch(switch) => {
                let numbers = [
                    switch.running,
                    switch.prev_pid,
                    switch.prev_prio,
                    switch.next_pid,
                    switch.next_prio,
                ];
                switch.prev_comm.is_16()
                    && switch.next_comm.is_16()
                    && numbers.into_iter().all(Int::is_i32)
            }
            Self::Wake {
                common,
                who: wakee,
                target,
                ..
            } => who(wakee) && common.pid.is_i32() && target.is_none_or(Int::is_i32),
            Self::Migrate {
                who: moved,
                from,
                to,
            } => who(moved) && from.is_i32() && to.is_i32(),
            _ => false,
        }
    }

    /// Can a kernel have written these threads and this state? The thread that a switch takes off
    /// the CPU is the one that ran there. `USUAL` promises [`Plan::usual`].
    #[inline(always)]
    pub(super) fn can_be<const BIG: bool, const USUAL: bool>(&self, data: &[u8]) -> bool {
        let tid = |pid: Int| pid.tid::<BIG, USUAL>(data);
        // UNKNOWN_TID is the word of files that do not know.
        let given = |tid: u32| tid < TIDS || tid == UNKNOWN_TID;
        match self {
            Self::Switch(switch) => {
                let (running, prev) = (tid(switch.running), tid(switch.prev_pid));
                given(prev)
                    && (running == prev || running == UNKNOWN_TID)
                    && given(tid(switch.next_pid))
                    && switch
                        .states
                        .can_be(switch.prev_state.read::<BIG>(data) as u64)
            }
            Self::Wake { who, .. } | Self::Migrate { who, .. } => given(tid(who.pid)),
            _ => true,
        }
    }

    /// Do all names stand inside the record?
    #[inline(always)]
    pub(super) fn names_fit<const BIG: bool>(&self, data: &[u8]) -> bool {
        let fits = |name: Name| name.fits::<BIG>(data);
        match self {
            Self::Switch(switch) => fits(switch.prev_comm) && fits(switch.next_comm),
            Self::Wake { who, .. }
            | Self::Migrate { who, .. }
            | Self::Exit { who }
            | Self::Priority { who, .. } => fits(who.comm),
            Self::Fork {
                parent_comm,
                child_comm,
                ..
            } => fits(*parent_comm) && fits(*child_comm),
            Self::NewTask { comm, .. } | Self::Rename { comm, .. } => fits(*comm),
            Self::GroupMove { path, .. } => fits(*path),
            Self::SchedulerDump { line } => fits(*line),
            _ => true,
        }
    }
}

fn action(
    system: &str,
    format: &EventFormat,
    release: &str,
    layout: &mut Layout,
) -> Result<Action> {
    let action = match (system, format.name.as_str()) {
        ("sched", "sched_switch") => Action::Switch(Box::new(Switch {
            running: layout.int("common_pid")?,
            prev_comm: layout.name("prev_comm")?,
            prev_pid: layout.int("prev_pid")?,
            prev_prio: layout.int("prev_prio")?,
            prev_state: layout.int("prev_state")?,
            next_comm: layout.name("next_comm")?,
            next_pid: layout.int("next_pid")?,
            next_prio: layout.int("next_prio")?,
            states: StateTable::from_print_fmt(&format.print_fmt)
                .unwrap_or_else(|| StateTable::for_release(release)),
        })),
        ("sched", name @ ("sched_waking" | "sched_wakeup" | "sched_wakeup_new")) => Action::Wake {
            kind: match name {
                "sched_waking" => WakeKind::Waking,
                "sched_wakeup" => WakeKind::Enqueued,
                _ => WakeKind::New,
            },
            common: common(layout)?,
            who: who(layout)?,
            target: layout.int_if_present("target_cpu"),
        },
        ("sched", "sched_migrate_task") => Action::Migrate {
            who: who(layout)?,
            from: layout.int("orig_cpu")?,
            to: layout.int("dest_cpu")?,
        },
        ("sched", "sched_process_fork") => Action::Fork {
            parent_comm: layout.name("parent_comm")?,
            parent: layout.int("parent_pid")?,
            child_comm: layout.name("child_comm")?,
            child: layout.int("child_pid")?,
        },
        ("task", "task_newtask") => Action::NewTask {
            common: common(layout)?,
            child: layout.int("pid")?,
            comm: layout.name("comm")?,
            flags: layout.int("clone_flags")?,
        },
        ("sched", "sched_process_exec") => Action::Exec {
            pid: layout.int("pid")?,
            old_pid: layout.int_if_present("old_pid"),
        },
        ("sched", "sched_process_exit") => Action::Exit { who: who(layout)? },
        // Linux 6.17 dropped `pid`: a thread renames itself.
        ("task", "task_rename") => Action::Rename {
            pid: match layout.int_if_present("pid") {
                Some(pid) => pid,
                None => layout.int("common_pid")?,
            },
            comm: layout.name("newcomm")?,
        },
        ("sched", "sched_pi_setprio") => Action::Priority {
            who: who(layout)?,
            new: layout.int("newprio")?,
        },
        ("syscalls", "sys_enter_sched_yield") => Action::Yield {
            common: common(layout)?,
        },
        ("raw_syscalls", "sys_enter") => Action::SystemCall {
            common: common(layout)?,
            step: CallStep::Enter,
            id: layout.int("id")?,
            value: None,
            args: layout.three_of_six("args"),
        },
        ("raw_syscalls", "sys_exit") => Action::SystemCall {
            common: common(layout)?,
            step: CallStep::Exit,
            id: layout.int("id")?,
            value: Some(layout.int("ret")?),
            args: None,
        },
        ("lock", "contention_begin") => Action::Lock {
            common: common(layout)?,
            step: LockStep::Begin,
            address: layout.int("lock_addr")?,
            flags: Some(layout.int("flags")?),
            value: None,
        },
        ("lock", "contention_end") => Action::Lock {
            common: common(layout)?,
            step: LockStep::End,
            address: layout.int("lock_addr")?,
            flags: None,
            value: Some(layout.int("ret")?),
        },
        ("block", name @ ("block_io_start" | "block_rq_issue" | "block_rq_complete")) => {
            Action::DiskRequest {
                common: common(layout)?,
                step: match name {
                    "block_io_start" => DiskStep::Start,
                    "block_rq_issue" => DiskStep::Issue,
                    _ => DiskStep::Complete,
                },
                device: layout.int("dev")?,
                sector: layout.int("sector")?,
                sectors: layout.int("nr_sector")?,
            }
        }
        // Android's; its `caller` is an address.
        ("sched", "sched_blocked_reason") => Action::SleepReason {
            pid: layout.int("pid")?,
            io_wait: Some(layout.int("io_wait")?),
        },
        ("sched", "sched_stat_iowait") => Action::SleepReason {
            pid: layout.int("pid")?,
            io_wait: None,
        },
        ("scx", name @ ("insert" | "insert_local" | "remove")) => {
            let step = match name {
                "remove" => QueueStep::Remove,
                _ => QueueStep::Insert,
            };
            Action::DispatchQueue(Box::new(DispatchQueue {
                step,
                pid: layout.int("pid")?,
                cpu: layout.int("cpu")?,
                id: layout.int("dsq")?,
                queued: layout.int("nr")?,
                given: match step {
                    QueueStep::Remove => None,
                    QueueStep::Insert => Some([
                        layout.int("slice")?,
                        layout.int("vtime")?,
                        layout.int("flags")?,
                    ]),
                },
                timeout_ms: layout.int_if_present("timeout_ms"),
            }))
        }
        ("scx", "kick") => Action::Kick {
            target: layout.int("cpu")?,
            flags: layout.int("flags")?,
        },
        ("sched_ext", "sched_ext_dump") => Action::SchedulerDump {
            line: layout.name("line")?,
        },
        ("sleep", "kernel_stack") => Action::SleepStack {
            common: common(layout)?,
            depth: layout.int("size")?,
            callers: layout.addresses("caller")?,
        },
        ("irq", "irq_handler_entry") => Action::IrqEntry {
            kind: IrqKind::Hard,
            id: layout.int("irq")?,
        },
        ("irq", "irq_handler_exit") => Action::IrqExit {
            kind: IrqKind::Hard,
            id: layout.int("irq")?,
        },
        ("irq", "softirq_entry") => Action::IrqEntry {
            kind: IrqKind::Soft,
            id: layout.int("vec")?,
        },
        ("irq", "softirq_exit") => Action::IrqExit {
            kind: IrqKind::Soft,
            id: layout.int("vec")?,
        },
        ("quota", "hrtimer_expire_entry") => Action::QuotaRefill {
            timer: layout.int("hrtimer")?,
        },
        ("group", "cgroup_attach_task") => Action::GroupMove {
            hierarchy: None,
            pid: layout.int("pid")?,
            path: layout.name("dst_path")?,
        },
        // Old kernels tell the last part of the path alone.
        ("cgroup", _) if format.field("dst_path").is_none() => Action::Ignore,
        ("cgroup", _) => Action::GroupMove {
            hierarchy: Some(layout.int("dst_root")?),
            pid: layout.int("pid")?,
            path: layout.name("dst_path")?,
        },
        _ => Action::Ignore,
    };
    Ok(action)
}

fn common(layout: &mut Layout) -> Result<Common> {
    Ok(Common {
        pid: layout.int("common_pid")?,
        flags: layout.int("common_flags")?,
    })
}

fn who(layout: &mut Layout) -> Result<Who> {
    Ok(Who {
        comm: layout.name("comm")?,
        pid: layout.int("pid")?,
        prio: layout.int_if_present("prio"),
    })
}

impl Who {
    #[inline(always)]
    pub(super) fn read<const BIG: bool, const USUAL: bool>(self, data: &[u8]) -> Party {
        Party {
            tid: self.pid.tid::<BIG, USUAL>(data),
            comm: self.comm.read_as::<BIG, USUAL>(data),
            prio: self.prio.and_then(|prio| prio.prio::<BIG, USUAL>(data)),
            ..Party::default()
        }
    }
}
