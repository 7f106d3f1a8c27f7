//! The source-neutral event: every decoder ends here.
//!
//! A decoder knows tids, names and the source's own clock; it knows nothing of
//! utids, intervals or tables. It hands events to an [`EventSink`] in time
//! order (ties: per-CPU order of the source; across CPUs switch, then wakeup,
//! then migration).

use std::sync::Arc;

use crate::chores::Chores;
use crate::error::Result;

/// How names of Linux's own threads begin.
const KERNEL_NAMES: [&[u8]; 17] = [
    b"kworker/",
    b"ksoftirqd/",
    b"rcu_",
    b"rcuo",
    b"migration/",
    b"cpuhp/",
    b"irq/",
    b"kcompactd",
    b"khugepaged",
    b"khungtaskd",
    b"kswapd",
    b"kauditd",
    b"kthreadd",
    b"ktimers/",
    b"jbd2/",
    b"oom_reaper",
    b"watchdog",
];

/// A thread's name, zero-padded. Linux: at most 15 bytes; FreeBSD: 19.
#[derive(Clone, Copy, Eq, Default)]
pub struct Comm(pub [u8; 24]);

impl PartialEq for Comm {
    /// Word by word, as names are made: a load that is wider than the stores
    /// before it waits until those have reached the cache.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let ((a, _), (b, _)) = (self.0.as_chunks::<8>(), other.0.as_chunks::<8>());
        let differ = |at: usize| u64::from_ne_bytes(a[at]) ^ u64::from_ne_bytes(b[at]);
        differ(0) | differ(1) | differ(2) == 0
    }
}

/// A name of a function of the kernel, zero-padded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function([u8; 48]);

impl Function {
    /// None for a longer name: a cut one is another function's.
    pub fn new(name: &[u8]) -> Option<Self> {
        let mut bytes = [0; 48];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        (!name.is_empty()).then_some(Self(bytes))
    }

    /// The name in `filemap_fault+0x1a8/0x4c0`; an address is no name, nor is one as `%pS` leaves
    /// it (`ffffff80081a2b3cS`).
    pub fn of_text(text: &[u8]) -> Option<Self> {
        let end = text
            .iter()
            .position(|&byte| !(byte.is_ascii_alphanumeric() || b"_.$".contains(&byte)))
            .unwrap_or(text.len());
        let name = &text[..end];
        let named = name.first().is_some_and(|first| !first.is_ascii_digit());
        let digits = name.strip_suffix(b"S").unwrap_or(name);
        let address = digits.iter().all(u8::is_ascii_hexdigit) && digits.len() >= 8;
        Self::new(name).filter(|_| named && !address)
    }

    pub fn to_text(self) -> String {
        let end = self.0.iter().position(|&byte| byte == 0);
        String::from_utf8_lossy(&self.0[..end.unwrap_or(self.0.len())]).into_owned()
    }
}

impl Comm {
    /// Cuts at the first NUL, or at 23 bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let mut comm = [0; 24];
        let length = bytes.len().min(23);
        comm[..length].copy_from_slice(&bytes[..length]);
        let end = Self(comm).len();
        if end < length {
            comm[end..].fill(0);
        }
        Self(comm)
    }

    /// `Comm::new` of the first `length` bytes, where at least 24 can be read.
    #[inline]
    pub fn from_padded(bytes: &[u8; 24], length: usize) -> Self {
        let length = length.min(23);
        let mut comm = [0; 24];
        let (words, _) = bytes.as_chunks::<8>();
        for (index, word) in words.iter().enumerate() {
            let keep = length.saturating_sub(index * 8).min(8) as u32;
            let mask = u64::MAX.checked_shr(64 - 8 * keep).unwrap_or(0);
            let word = u64::from_le_bytes(*word) & mask;
            comm[index * 8..index * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        if Self(comm).len() < length {
            Self::new(&bytes[..length])
        } else {
            Self(comm)
        }
    }

    /// Bytes before the first NUL.
    #[inline]
    fn len(&self) -> usize {
        let (words, _) = self.0.as_chunks::<8>();
        for (index, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            // The lowest byte found is zero for certain.
            let zeros = word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080;
            if zeros != 0 {
                return index * 8 + (zeros.trailing_zeros() / 8) as usize;
            }
        }
        self.0.len()
    }

    /// From a fixed 16-byte kernel field; bytes after the first NUL are dropped.
    #[inline]
    pub fn from_16(bytes: &[u8; 16]) -> Self {
        // Keep the bytes before the first zero: kernel buffers may hold rests
        // of a longer, older name behind it.
        let word = u128::from_le_bytes(*bytes);
        let zeros = word.wrapping_sub(0x0101_0101_0101_0101_0101_0101_0101_0101)
            & !word
            & 0x8080_8080_8080_8080_8080_8080_8080_8080;
        // All bits below the first zero byte's highest: everything if there is none.
        let word = word & zeros.wrapping_sub(1) & !zeros;
        let mut comm = [0; 24];
        comm[..16].copy_from_slice(&word.to_le_bytes());
        Self(comm)
    }

    /// Is it what Linux calls a thread of its own?
    pub fn is_of_kernel(&self) -> bool {
        let name = self.as_bytes();
        KERNEL_NAMES.iter().any(|known| name.starts_with(known))
    }

    pub fn is_empty(&self) -> bool {
        self.0[0] == 0
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0[..self.len()]
    }

    pub fn to_text(self) -> String {
        String::from_utf8_lossy(self.as_bytes()).into_owned()
    }
}

impl std::fmt::Debug for Comm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.to_text())
    }
}

macro_rules! categories {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// The category texts, in code order: the Polars Enum's categories.
            pub const TEXTS: &'static [&'static str] = &[$($text),+];
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub fn text(self) -> &'static str { Self::TEXTS[self as usize] }

            pub fn from_text(text: &str) -> Option<Self> {
                Self::TEXTS.iter().position(|&t| t == text).map(|i| Self::ALL[i])
            }

            pub fn from_code(code: u8) -> Option<Self> { Self::ALL.get(usize::from(code)).copied() }
        }
    };
}

categories! {
    /// What a thread is doing (docs/trace-model.md, States).
    State {
        Running = "running",
        Runnable = "runnable",
        Sleeping = "sleeping",
        Blocked = "blocked",
        Stopped = "stopped",
        Parked = "parked",
        Dead = "dead",
        Unknown = "unknown",
    }
}

impl State {
    /// Whether a thread neither runs nor waits, nor is dead or unknown: it is to be woken.
    pub fn is_at_rest(self) -> bool {
        matches!(
            self,
            Self::Sleeping | Self::Blocked | Self::Stopped | Self::Parked
        )
    }
}

categories! {
    /// The steps of a wakeup.
    WakeKind {
        /// The decision, on the waker's CPU (Linux sched_waking).
        Waking = "waking",
        /// On the target's queue (Linux sched_wakeup, FreeBSD enqueue).
        Enqueued = "enqueued",
        /// First enqueue of a new thread (sched_wakeup_new, fork, thr_new).
        New = "new",
    }
}

categories! {
    /// Why events of a CPU may be missing.
    LossReason {
        Overrun = "overrun",
        ChainBreak = "chain_break",
        LateStart = "late_start",
        EarlyEnd = "early_end",
        Truncated = "truncated",
        ExitHole = "exit_hole",
        /// Other CPUs hand it threads, and no line of its own is there.
        Absent = "absent",
        /// The same, and nothing says that any were lost: the CPU was left out on purpose.
        Unrecorded = "unrecorded",
    }
}

categories! {
    /// Why a thread began to wait for a CPU.
    Cause {
        Wake = "wake",
        New = "new",
        Preempt = "preempt",
        Yield = "yield",
        Unknown = "unknown",
    }
}

categories! {
    /// How an interval of a thread's life ended.
    End {
        Switched = "switched",
        Woken = "woken",
        Preempted = "preempted",
        Exited = "exited",
        Lost = "lost",
        Window = "window",
    }
}

categories! {
    /// Which side of a wait the trace could not see.
    Censored {
        None = "none",
        Right = "right",
        Left = "left",
        Both = "both",
    }
}

categories! {
    /// Scheduling class, across operating systems.
    SchedClass {
        Stop = "stop",
        Deadline = "deadline",
        Realtime = "realtime",
        Fair = "fair",
        Batch = "batch",
        Idle = "idle",
        Interrupt = "interrupt",
        Kernel = "kernel",
        Timeshare = "timeshare",
        Unknown = "unknown",
    }
}

categories! {
    /// What a thread that left its CPU to wait is waiting in.
    SleepKind {
        /// A sleep queue: the reason is the wait message.
        Sleep = "sleep",
        /// A contested lock: the reason is the lock's name.
        Lock = "lock",
        /// An interrupt thread with nothing to do.
        Interrupt = "interrupt",
        /// Suspended by a signal or a debugger.
        Suspended = "suspended",
    }
}

categories! {
    /// Why a priority changed.
    PriorityCause {
        ChangePri = "change-pri",
        LendPri = "lend-pri",
        PiSetprio = "pi_setprio",
        Unknown = "unknown",
    }
}

/// A thread as an event names it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Party {
    /// Kernel thread id; 0 is Linux's idle thread.
    pub tid: u32,
    /// True for a CPU's idle thread (tid 0 need not say so).
    pub idle: bool,
    /// The OS's own number.
    pub prio: Option<i16>,
    /// Empty where the event carries no name.
    pub comm: Comm,
    /// Process id, where the event carries it (FreeBSD).
    pub pid: Option<u32>,
    /// Class, where the event has it.
    pub class: Option<SchedClass>,
    /// A thread of the kernel's own, where the event says so.
    pub kernel: Option<bool>,
}

/// Stands for a thread that the source does not name. Its row in `threads` has
/// no tid.
pub const UNKNOWN_TID: u32 = u32::MAX;

/// Linux gives threads numbers below this, whatever `pid_max` says; so, in practice, does FreeBSD,
/// which takes the lowest free one from 100,000 on.
pub const TIDS: u32 = 1 << 22;

impl Party {
    pub fn unknown() -> Self {
        Self {
            tid: UNKNOWN_TID,
            comm: Comm::new(b"<unknown>"),
            ..Self::default()
        }
    }
}

/// One fact from a trace. `ts` is ns on the capture's clock.
#[derive(Debug, Clone, Copy)]
pub enum Event {
    Switch {
        ts: i64,
        cpu: u16,
        prev: Party,
        /// State the outgoing thread left in (`Runnable` when still on a queue).
        prev_state: State,
        /// Left against its will? None where the source does not say.
        preempted: Option<bool>,
        next: Party,
    },
    Wakeup {
        ts: i64,
        cpu: u16,
        kind: WakeKind,
        /// tid of the thread that was running where the wake was raised
        /// (0: that CPU's idle thread); None from interrupt context.
        waker: Option<u32>,
        /// tid of the thread that the event itself says was running on `cpu`,
        /// interrupt context or not: evidence against switches that were not
        /// recorded. None where the source does not say (an inferred waker is
        /// no evidence).
        current: Option<u32>,
        who: Party,
        target_cpu: Option<u16>,
    },
    Migrate {
        ts: i64,
        cpu: u16,
        who: Party,
        from_cpu: Option<u16>,
        to_cpu: Option<u16>,
    },
    /// `parent` made `child`; `same_process` when the clone flags show it.
    Fork {
        ts: i64,
        parent: Party,
        child: Party,
        same_process: Option<bool>,
    },
    /// `old_tid` became `tid` (differs only if a non-leader called exec).
    Exec {
        ts: i64,
        tid: u32,
        old_tid: u32,
    },
    Exit {
        ts: i64,
        who: Party,
    },
    Rename {
        ts: i64,
        tid: u32,
        comm: Comm,
    },
    /// Why `tid`, just switched out, waits (FreeBSD's td_wmesg, td_lockname).
    Sleep {
        ts: i64,
        cpu: u16,
        tid: u32,
        kind: SleepKind,
        reason: Comm,
    },
    /// The thread called sched_yield.
    Yield {
        ts: i64,
        tid: u32,
    },
    Priority {
        ts: i64,
        who: Party,
        prio: i16,
        cause: PriorityCause,
    },
    /// The kernel's own queue length.
    QueueLoad {
        ts: i64,
        cpu: Option<u16>,
        load: i32,
    },
    Irq {
        ts: i64,
        cpu: u16,
        kind: IrqKind,
        id: u32,
        dur: i64,
    },
    /// The period timer of a control group's CPU quota fired: the quota is whole again.
    QuotaRefill {
        ts: i64,
        cpu: u16,
        /// Identifies the timer; each group with a quota has one.
        timer: u64,
    },
    /// A thread entered a system call, or came back from it.
    SystemCall {
        ts: i64,
        cpu: u16,
        tid: u32,
        step: CallStep,
        /// The kernel's number of it, which depends on the architecture.
        number: i32,
        /// What it returned, if it came back.
        value: Option<i64>,
        /// Its first three arguments, if it was entered and the source has them.
        args: Option<[u64; 3]>,
    },
    /// A thread began or ended waiting for a lock of the kernel.
    Lock {
        ts: i64,
        cpu: u16,
        tid: u32,
        step: LockStep,
        /// Where the lock is in memory, or what the source prints instead; None where its
        /// identifiers of locks are only temporary.
        address: Option<u64>,
        /// What kind of lock it is; reported when the waiting begins.
        kind: Option<LockKind>,
        /// 0 if the waiting ended with the lock, else a negative error; reported then.
        value: Option<i32>,
    },
    /// A request to a disk was made or given to it, or the disk had done with it.
    DiskRequest {
        ts: i64,
        cpu: u16,
        /// Who asked; None of a completion, and if an interrupt's handler did.
        tid: Option<u32>,
        step: DiskStep,
        /// The kernel's number of the disk.
        device: u32,
        sector: u64,
        sectors: u32,
    },
    /// The kernel's report of a sleep: made when the thread falls asleep, or when it is woken.
    SleepReason {
        ts: i64,
        cpu: u16,
        tid: u32,
        /// It waits for I/O, as the kernel counts it.
        io_wait: bool,
        /// Where in the kernel it sleeps, if the source has a name for it.
        function: Option<Function>,
        /// The system call in which it sleeps, or "page fault", where a stack shows it.
        entry: Option<Comm>,
        told_by: ToldBy,
    },
    /// A thread was put into a dispatch queue of sched_ext, or taken out.
    DispatchQueue {
        ts: i64,
        cpu: u16,
        tid: u32,
        step: QueueStep,
        kind: QueueKind,
        /// Whose, of a queue that every CPU has.
        queue_cpu: Option<u16>,
        /// Of a queue that the scheduler made.
        queue_id: Option<u64>,
        /// Threads in it, by the kernel's count, before this.
        queued: u32,
        given: Option<Dispatch>,
    },
    /// A scheduler of sched_ext asked a CPU to look for a thread to run.
    Kick {
        ts: i64,
        cpu: u16,
        /// Which one; None if there is no such CPU.
        target: Option<u16>,
        /// SCX_KICK_ of the kernel.
        flags: u64,
    },
    /// Events of `cpu` (None: of any CPU) may be missing in
    /// `[ts_begin, ts_end)`. Sent when `ts_begin` is reached.
    Loss {
        cpu: Option<u16>,
        ts_begin: i64,
        ts_end: i64,
        count: Option<u64>,
        reason: LossReason,
    },
}

impl Event {
    /// The time it stands at: of a loss or an interrupt, when that began.
    #[inline]
    pub fn ts(&self) -> i64 {
        match *self {
            Self::Switch { ts, .. }
            | Self::Wakeup { ts, .. }
            | Self::Migrate { ts, .. }
            | Self::Fork { ts, .. }
            | Self::Exec { ts, .. }
            | Self::Exit { ts, .. }
            | Self::Rename { ts, .. }
            | Self::Sleep { ts, .. }
            | Self::Yield { ts, .. }
            | Self::Priority { ts, .. }
            | Self::QueueLoad { ts, .. }
            | Self::QuotaRefill { ts, .. }
            | Self::SystemCall { ts, .. }
            | Self::Lock { ts, .. }
            | Self::DiskRequest { ts, .. }
            | Self::SleepReason { ts, .. }
            | Self::DispatchQueue { ts, .. }
            | Self::Kick { ts, .. }
            | Self::Irq { ts, .. } => ts,
            Self::Loss { ts_begin, .. } => ts_begin,
        }
    }

    /// The CPU that recorded it, where the event itself says so; a loss is recorded on none.
    #[inline]
    pub fn recorded_on(&self) -> Option<u16> {
        match *self {
            Self::Switch { cpu, .. }
            | Self::Wakeup { cpu, .. }
            | Self::Migrate { cpu, .. }
            | Self::Sleep { cpu, .. }
            | Self::QuotaRefill { cpu, .. }
            | Self::SystemCall { cpu, .. }
            | Self::Lock { cpu, .. }
            | Self::DiskRequest { cpu, .. }
            | Self::SleepReason { cpu, .. }
            | Self::DispatchQueue { cpu, .. }
            | Self::Kick { cpu, .. }
            | Self::Irq { cpu, .. } => Some(cpu),
            Self::QueueLoad { .. }
            | Self::Fork { .. }
            | Self::Exec { .. }
            | Self::Exit { .. }
            | Self::Rename { .. }
            | Self::Yield { .. }
            | Self::Priority { .. }
            | Self::Loss { .. } => None,
        }
    }
}

categories! {
    /// Kind of an interrupt interval.
    IrqKind { Hard = "hard", Soft = "soft" }
}

categories! {
    /// The two ends of a system call.
    CallStep { Enter = "enter", Exit = "exit" }
}

categories! {
    /// The two ends of waiting for a lock of the kernel.
    LockStep { Begin = "begin", End = "end" }
}

categories! {
    /// What became of a request to a disk.
    DiskStep { Start = "start", Issue = "issue", Complete = "complete" }
}

categories! {
    /// Where a reason for a sleep was read: in an event that has it, or in a stack of the kernel.
    ToldBy { Event = "event", Stack = "stack" }
}

categories! {
    /// The two ends of being in a dispatch queue.
    QueueStep { Insert = "insert", Remove = "remove" }
}

categories! {
    /// Dispatch queues of sched_ext, as identified by their ids.
    QueueKind {
        Local = "local",
        Global = "global",
        /// Where threads wait while the scheduler is bypassed (Linux 6.19).
        Bypass = "bypass",
        /// Made by the scheduler.
        User = "user",
        /// Another one of the kernel's own.
        Other = "other",
    }
}

impl QueueKind {
    /// Of a queue's id: the highest bit says that it is the kernel's own (SCX_DSQ_FLAG_BUILTIN).
    pub fn of_id(id: u64) -> Self {
        const BUILTIN: u64 = 1 << 63;
        match id.checked_sub(BUILTIN) {
            None => Self::User,
            Some(1) => Self::Global,
            Some(2) => Self::Local,
            Some(3) => Self::Bypass,
            Some(_) => Self::Other,
        }
    }
}

/// What a thread brings into a dispatch queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dispatch {
    /// How long it may run then, ns.
    pub slice: u64,
    pub vtime: u64,
    /// SCX_ENQ_ and ENQUEUE_ of the kernel.
    pub flags: u64,
    /// After so many ns the watchdog ends a scheduler that lets a thread wait, where recorded.
    pub limit: Option<i64>,
}

categories! {
    /// Kinds of the kernel's locks, as `lock:contention_begin` reports them.
    LockKind {
        Spin = "spinlock",
        Rwlock = "rwlock",
        Mutex = "mutex",
        Rwsem = "rwsem",
        Percpu = "percpu-rwsem",
        Rt = "rt-mutex",
        Other = "other",
    }
}

impl LockKind {
    /// By the bits of `flags` (LCB_F_* of include/trace/events/lock.h).
    pub fn of_flags(flags: i64) -> Self {
        let has = |bit: i64| flags & (1 << bit) != 0;
        match () {
            () if has(4) => Self::Percpu,
            () if has(5) => Self::Mutex,
            () if has(3) => Self::Rt,
            () if has(0) && (has(1) || has(2)) => Self::Rwlock,
            () if has(0) => Self::Spin,
            () if has(1) || has(2) => Self::Rwsem,
            // Semaphores; mutexes too before Linux 6.0.
            () => Self::Other,
        }
    }
}

/// Takes events in time order.
pub trait EventSink {
    fn event(&mut self, event: &Event) -> Result<()>;

    /// Bytes of input done and in all; called now and then. An error (Ctrl-C)
    /// ends the decoding.
    fn progress(&mut self, done: u64, total: u64) -> Result<()>;
}

/// A thread that existed before the first event.
#[derive(Debug, Clone, Default)]
pub struct KnownThread {
    pub tid: u32,
    pub pid: Option<u32>,
    pub ppid: Option<u32>,
    pub comm: Comm,
    pub prio: Option<i16>,
    pub class: Option<SchedClass>,
    pub kernel: Option<bool>,
    /// Allowed CPUs as a list ("0-3,8").
    pub affinity: Option<String>,
    /// Part of the recorder itself.
    pub recorder: bool,
    /// Seen when recording ended: it may have been born meanwhile.
    pub at_end: bool,
}

/// What the recorder knew of a process, when it started or when it ended.
#[derive(Debug, Clone, Default)]
pub struct KnownProcess {
    pub pid: u32,
    pub ppid: Option<u32>,
    /// Distinguishes two processes of one number: when it was created, in any unit.
    pub created: Option<u64>,
    pub cgroup: Option<Arc<str>>,
    pub cmdline: Option<Arc<str>>,
    /// Seen when recording ended, not when it started.
    pub at_end: bool,
    /// Part of the recorder itself, with all its threads.
    pub recorder: bool,
}

/// One row of the `cpus` table.
#[derive(Debug, Clone, Default)]
pub struct CpuInfo {
    pub cpu: u16,
    pub core: Option<u16>,
    pub llc: Option<u16>,
    pub package: Option<u16>,
    pub numa_node: Option<u16>,
    /// All CPUs of the core, as a list ("0-1").
    pub smt_siblings: Option<String>,
    pub capacity: Option<u32>,
    pub online: Option<bool>,
}

/// What was recorded, where a file in a format of Linux says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Origin {
    /// Or not said.
    #[default]
    Linux,
    /// As our exports of what was recorded on FreeBSD.
    OtherSystem,
    /// All CPUs have one clock.
    Simulation,
}

/// What a decoder must declare before the first event, and which numbers go wrong if it does so
/// wrongly. `native/trace/src/declared.rs` has streams for which it matters.
#[derive(Debug, Clone, Default)]
pub struct SourceInfo {
    /// Number of CPUs: idle threads get utids 0..ncpu. Too small, and the events of the CPUs beyond
    /// are dropped; too large, and CPUs that do not exist count as unknown time.
    pub ncpu: u16,
    /// `ncpu` is the host's own count: a single event that names a CPU beyond it is damaged. Set
    /// wrongly, a CPU that was added later is taken for damage; not set, one damaged number adds a
    /// CPU.
    pub counts_cpus: bool,
    /// Rows of the table `cpus`. A CPU without one has no core, cache or node: distances of
    /// migrations to it are unknown.
    pub cpus: Vec<CpuInfo>,
    /// Threads that existed before the first event: names, priorities and affinity until an event
    /// corrects them. A wrong affinity makes waits avoidable or unavoidable that were not.
    pub threads: Vec<KnownThread>,
    /// Command lines and control groups of processes, by their number.
    pub processes: Vec<KnownProcess>,
    /// Nothing counts what was lost, so a broken chain may be any number of missing events. Set
    /// wrongly, every broken chain casts doubt on the waits around it; not set where it should be,
    /// waits across an uncounted loss are measured.
    pub uncounted: bool,
    /// The recorder was stopped before its end: nothing is known of a CPU behind its last event.
    /// Not set where it should be, a CPU whose events are missing ran its last thread to the end.
    pub unfinished: bool,
    /// CPUs that idled until their first event; the others' time until then is unknown.
    pub idle_at_first: Vec<u16>,
    /// When recording was on, where the source says so; else first and last event. Too short, and
    /// idle time at the edges is missing; too long, and it is invented.
    pub window: (Option<i64>, Option<i64>),
    /// The source says that a filter left out events, or that one program alone was recorded. Then
    /// broken chains make us look for which threads were recorded.
    pub filtered: bool,
    /// The source says that all threads of the CPUs that were recorded were. Without it a Linux
    /// trace that lacks all threads of the kernel is taken for a filtered one.
    pub all_threads: bool,
    /// Whose rules hold: threads of FreeBSD and of simulations have no kernel threads to miss, and a
    /// simulation's clocks do not differ.
    pub origin: Origin,
    /// Wakings were recorded. Set wrongly, each wakeup without one is a wakeup whose waking was lost,
    /// and its wait has no start.
    pub has_waking: bool,
    /// Enqueueing wakeups were recorded. Where neither step was, waits have no start at all.
    pub has_enqueued: bool,
    /// Priorities are Linux's numbers, from which classes follow; and the wake rules are Linux's.
    pub linux_priorities: bool,
    /// Sentences a person should read: what the recorder itself says of the recording.
    pub remarks: Vec<String>,
    /// Anything for trace.json, as JSON object text (release, clock, ...). What the reconstruction
    /// measures takes precedence over a key of the same name.
    pub about: String,
}

/// What is known after the last event.
#[derive(Debug, Clone, Default)]
pub struct SourceEnd {
    /// (event name, cpu, how many): what other tools count too.
    pub counts: Vec<(String, u16, u64)>,
    /// Sentences a person should read.
    pub warnings: Vec<String>,
    /// Losses that cannot be placed in time (also sent as events over the
    /// whole window where they matter).
    pub unplaced_losses: Vec<(Option<u16>, u64, LossReason)>,
    /// Of these, what may be missing anywhere and was not sent as an event: CPU (None: any)
    /// and how many.
    pub anywhere: Vec<(Option<u16>, u64)>,
    /// Names by tid as the kernel knew them when the trace was saved: for
    /// threads that no event named.
    pub last_names: Vec<(u32, Comm)>,
    pub group_moves: Vec<GroupMove>,
    /// What the kernel wrote when it ended a scheduler of sched_ext, and when.
    pub scheduler_dump: Vec<(i64, String)>,
}

/// A thread, or the process whose number it is, was put into a control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMove {
    pub ts: i64,
    pub tid: u32,
    pub cgroup: String,
}

/// When a CPU's lines begin and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub cpu: u16,
    pub first: i64,
    pub last: i64,
}

/// A decoder of one input.
pub trait Source: Send {
    fn info(&self) -> &SourceInfo;
    /// Sends every event, in time order. May be called again.
    fn run(&mut self, sink: &mut dyn EventSink) -> Result<SourceEnd>;

    /// Sends the events from `from` on; some before it may come too.
    fn run_from(&mut self, from: i64, sink: &mut dyn EventSink) -> Result<SourceEnd> {
        let _ = from;
        self.run(sink)
    }

    /// What can be done ahead of `run` may be left to threads that do these `chores`.
    fn helped_by(&mut self, chores: &Arc<Chores>) {
        let _ = chores;
    }

    /// When the lines of each CPU begin and end, of those that have any; None where that takes
    /// reading everything.
    fn extents(&mut self) -> Result<Option<Vec<Extent>>> {
        Ok(None)
    }
}
