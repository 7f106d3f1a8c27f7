//! Which events are read, and what they are called.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Switch,
    Waking,
    Wakeup,
    WakeupNew,
    Migrate,
    Fork,
    Exec,
    Exit,
    NewTask,
    Rename,
    PiSetprio,
    IrqEntry,
    IrqExit,
    SoftirqEntry,
    SoftirqExit,
    SysEnter,
    SysExit,
    IoStart,
    RqIssue,
    RqComplete,
    BlockedReason,
    StatIowait,
    LockBegin,
    LockEnd,
    GroupAttach,
    GroupTransfer,
    Yield,
}

/// Each with its system and its name, in the order of `Kind`.
pub const EVENTS: [(Kind, &str, &str); 27] = [
    (Kind::Switch, "sched", "sched_switch"),
    (Kind::Waking, "sched", "sched_waking"),
    (Kind::Wakeup, "sched", "sched_wakeup"),
    (Kind::WakeupNew, "sched", "sched_wakeup_new"),
    (Kind::Migrate, "sched", "sched_migrate_task"),
    (Kind::Fork, "sched", "sched_process_fork"),
    (Kind::Exec, "sched", "sched_process_exec"),
    (Kind::Exit, "sched", "sched_process_exit"),
    (Kind::NewTask, "task", "task_newtask"),
    (Kind::Rename, "task", "task_rename"),
    (Kind::PiSetprio, "sched", "sched_pi_setprio"),
    (Kind::IrqEntry, "irq", "irq_handler_entry"),
    (Kind::IrqExit, "irq", "irq_handler_exit"),
    (Kind::SoftirqEntry, "irq", "softirq_entry"),
    (Kind::SoftirqExit, "irq", "softirq_exit"),
    (Kind::SysEnter, "raw_syscalls", "sys_enter"),
    (Kind::SysExit, "raw_syscalls", "sys_exit"),
    (Kind::IoStart, "block", "block_io_start"),
    (Kind::RqIssue, "block", "block_rq_issue"),
    (Kind::RqComplete, "block", "block_rq_complete"),
    (Kind::BlockedReason, "sched", "sched_blocked_reason"),
    (Kind::StatIowait, "sched", "sched_stat_iowait"),
    (Kind::LockBegin, "lock", "contention_begin"),
    (Kind::LockEnd, "lock", "contention_end"),
    (Kind::GroupAttach, "cgroup", "cgroup_attach_task"),
    (Kind::GroupTransfer, "cgroup", "cgroup_transfer_tasks"),
    (Kind::Yield, "syscalls", "sys_enter_sched_yield"),
];

impl Kind {
    /// By the name that a line gives.
    #[inline]
    pub fn named(event: &[u8]) -> Option<Self> {
        let found = EVENTS.iter().find(|(.., name)| name.as_bytes() == event);
        found.map(|&(kind, ..)| kind)
    }

    /// Does it say where a thread is?
    pub fn places(self) -> bool {
        self as usize <= Self::Migrate as usize
    }

    /// Is it of threads' lives, and not of what they or the CPUs do meanwhile?
    pub fn of_lives(self) -> bool {
        self as usize <= Self::PiSetprio as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_in_the_order_of_their_kinds() {
        for (number, (kind, _, name)) in EVENTS.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            assert_eq!(Kind::named(name.as_bytes()), Some(kind));
        }
    }
}
