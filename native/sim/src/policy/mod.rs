//! Scheduling policies: how to write one.
//!
//! A policy owns the order of its queues and the placement of threads. The
//! engine owns time, CPUs, and what the threads do. One policy = one file here,
//! headed by what it models (release, sources), what it leaves out, and its
//! tunables; it ends in a `pub const SPEC: Spec` that `registry.rs` lists. A
//! file may serve several releases: one preset per name that users type.
//!
//! # The life of a thread, and who calls what
//!
//! ```text
//!            on_fork                     pick_next / on_idle
//!  (unborn) ---------> select_cpu, enqueue -----------> running
//!                        ^        ^                        |
//!     wake: select_cpu,  |        | put_prev(SliceEnd,     | put_prev(Blocked)
//!           enqueue      |        |  Preempted, Yielded)   | put_prev(Exited)
//!                     sleeping    +------------------------+--> sleeping / dead
//! ```
//!
//! * `on_fork(parent, child)`: once per thread, before anything else about it.
//!   `parent` is `None` for threads that are there from the start. Charge or
//!   split the parent here. The child is not queued yet.
//! * `select_cpu(t, place)`: answer a CPU that `w.allowed(t, cpu)`. The thread's
//!   old CPU is `w.thread(t).cpu`; `thread.slept` and `sleep_kind` are set.
//! * `enqueue(cpu, t, how)`: put `t` into your queues. `w.thread(t).cpu == cpu`,
//!   its state is `Queued` and the counts (`nr_queued`, `is_idle`) include it.
//! * `check_preempt(cpu, t, wake)`: follows `enqueue` unless `cpu` runs nothing
//!   (then the engine makes `cpu` choose). If `t` should run now, call
//!   `w.resched(some_cpu, RescheduleReason::Preempted)`; it need not be `cpu`.
//! * `put_prev(cpu, t, left)`: the running thread leaves `cpu`. `cpu.curr` still
//!   names it. With `SliceEnd`, `Preempted` and `Yielded` you must queue it
//!   again (on `cpu`); with `Blocked`, `Exited` and `Moved` you must not
//!   (after `Moved` comes an `enqueue` elsewhere). A sleep begins at `Blocked`.
//!   To queue it on another CPU, do so and call `w.send(t, other)`.
//! * `pick_next(cpu)`: take a thread out of your queues and answer it, or `None`.
//!   Right after a `put_prev` it may answer the same thread: then there is no
//!   switch. It must be `Queued` and allowed on `cpu`; taking it from another
//!   CPU's queue is allowed (a global queue, stealing): the engine notes the
//!   migration. Never call `w.migrate` for the thread you answer.
//! * `on_idle(cpu)`: `pick_next` said `None`; steal or answer `None` and idle.
//!   An idle CPU is not asked again until something is queued on it or
//!   `w.resched(cpu, ..)` is called.
//! * `dequeue(cpu, t)`: take the queued `t` out; it must go elsewhere (its mask
//!   changed). `select_cpu` and `enqueue(.., EnqueueReason::Moved)` follow.
//! * `tick(cpu)`, `stat_tick(cpu)`: the clocks `hz` and `stathz` of `clocks()`,
//!   for busy CPUs (idle ones too with `idle_ticks`), on a fixed grid: CPU `c`
//!   ticks at `k / hz + c * skew`. A tick at the instant a burst ends finds the
//!   next thread. Frequency 0 switches a clock off: cheaper, use it.
//! * `timer(id)`: fires once per `w.arm_timer(id, at)`. Arm the first in `init`.
//! * `set_priority(t)`: class, nice or rt_prio of `t` have changed; it may be
//!   running, queued (requeue it) or asleep.
//! * `affinity_changed(t)`: the mask changed and `t` stays where it is.
//! * `online_changed()`: a CPU went offline or came back: `w.is_online(cpu)`. One that is offline
//!   is in no thread's mask, and not idle; its threads are taken out and queued elsewhere
//!   (`SelectReason::Offline`) right after this.
//! * `moves_by_itself()`: then a change of mask leaves a queued thread in its place
//!   if its CPU is still allowed, and a running one where it is: `affinity_changed`
//!   has to ask for its CPU to choose, and `put_prev` to `w.send` it elsewhere.
//! * `steps_before_ipis()`: then a CPU finishes what takes no time before others hear
//!   what was asked of them: it chooses again, and a thread whose burst has no length
//!   takes its next step. Otherwise CPUs choose in the order in which they were asked.
//! * `back_from_kernel(t)`: the running `t` has made a system call that forked, woke a thread, or
//!   changed a priority or mask, and is about to go on.
//! * `leaves_clock(cpu, woken)`: `woken` was queued on `cpu`, which is to choose again. Whether it
//!   then goes by the time of this wakeup: who leaves it is charged up to that, and who comes
//!   from there on, whatever passes in between (`rq_clock_skip_update` of Linux).
//! * `prefetch(t)`: `t` will wake before long. Nothing is to be changed: `near` what
//!   you keep of `t`, so that it is near by then. Worth it for records of many threads.
//! * `prio(t)`: the number shown in the output. Default: Linux's (120 + nice,
//!   99 - rt_prio).
//!
//! Of simultaneous events: bursts that end come first (CPU order), then sleeps
//! that end (in the order they began), then your timers (by id), stat ticks,
//! ticks. After every event all CPUs that were asked to choose do so, in the
//! order they were asked. A running thread that asks for its own preemption by
//! a signal stops between two steps, before its next `run` or sleep.
//!
//! # Time and accounting
//!
//! `w.now()` is in ns. `w.take_run(cpu)` answers the wall ns that the thread on
//! `cpu` ran since the last call: exact accounting; call it in `put_prev`,
//! `tick`, and before you compare the running thread with another. Schedulers
//! that only sample (4BSD, ULE, O(1)) count their ticks instead and never call
//! it. Offer a tunable `accounting` = `tick | exact` where the original
//! sampled. Costs (context switch, cache refill, SMT, IPI, tick) are the
//! engine's: they lengthen the wall time of a burst, and that is all a policy
//! sees of them. `w.burst_left(t)` is the oracle: only srtf and its like use it.
//!
//! # Chance
//!
//! `w.rng` only. Nothing else may differ between two runs: iterate no hash map,
//! break ties by arrival (a sequence number of your own).
//!
//! # Control groups
//!
//! `w.groups()` and `w.first_group(t)`. Linux's fair schedulers alone have them (`SPEC.groups`):
//! `shares_by_groups()`, and `change_group(t, group)` when `t`, which is queued, asleep or not
//! yet born, goes to another one. One that ran was put back just before.
//! A queued thread whose group may not run is not to be answered: `w.set_aside(t)`, and
//! `w.bring_back(t)` when it may again or is about to be dequeued.
//!
//! # Classes
//!
//! Real time before fair before idle, strictly: `Class::level()`. Within real
//! time the higher `rt_prio` first; `Fifo` has no slice, `RoundRobin` has one.
//! `Deadline` is for Linux's (`linux_deadline`); elsewhere it is `Fifo`.
//! `Batch` is fair, and does not preempt when it wakes.
//!
//! # Data structures
//!
//! `queue.rs` has intrusive FIFO lists (`Links`, `Fifo`) and an array of them
//! with a bitmap (`Levels`); a thread is in one list at a time, so all lists of
//! a policy share one `Links`. Nothing on the hot path may allocate or look up
//! by name; per-thread state is a `Vec` indexed by `Tid`, sized in `make` or
//! `init` from `w.nthreads()`. Cost per event: at most logarithmic in threads.
//!
//! # Internal state on show
//!
//! List the series in `SPEC.series` and call `w.record(INDEX, t, value)` (or `record_cpu`) when the
//! value changes. It costs one branch when not requested.
//!
//! # Tunables
//!
//! See `tunables.rs`. Every number of the original that a user might turn is a
//! tunable with the original's name; `settings.ns("slice")` and its like read
//! them in `make`. A derived default (scaled by the number of CPUs, say) is
//! computed in `make`, and the tunable's doc says how.
use super::error::Result;
use super::machine::{Cpu, Machine};
use super::workload::{Class, Tid};
use super::world::{RescheduleReason, World};

mod bfs;
mod bsd4;
mod cfs;
mod cfs_cpu;
mod cfs_groups;
pub(crate) mod cfs_place;
mod cfs_queue;
mod cfs_spec;
mod eevdf;
mod eevdf_groups;
pub(crate) mod eevdf_lag;
mod eevdf_queue;
mod eevdf_slices;
mod eevdf_spec;
mod fifo;
mod freebsd_ast;
mod keyed_queue;
mod linux_bandwidth;
mod linux_cbs;
mod linux_deadline;
mod linux_decay;
mod linux_domains;
pub(crate) mod linux_fair;
mod linux_fair_server;
mod linux_groups;
mod linux_load;
mod linux_newidle;
mod linux_prio;
mod linux_queues;
mod linux_room;
mod linux_rt;
mod linux_rt_bandwidth;
mod linux_util;
mod linux_wake;
mod o1;
pub(crate) mod o1_bonus;
mod ps;
pub mod registry;
mod rr;
mod scx_simple;
mod srtf;
mod staircase;
pub mod tunables;
mod ule;
mod ule_2003;
pub(crate) mod ule_2003_score;
mod ule_2011;
mod ule_balance;
mod ule_clock;
mod ule_place;
mod ule_preempt;
mod ule_queue;
pub(crate) mod ule_score;
mod ule_spec;

pub use linux_fair::weight_of as linux_weight;
pub use linux_rt::RtQueues;
pub use tunables::{Kind, Preset, Series, Settings, Tunable};

/// How a thread left its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchOutReason {
    SliceEnd,
    Preempted,
    Yielded,
    Blocked,
    Exited,
    /// Sent off this CPU by a change of its mask.
    Moved,
}

impl SwitchOutReason {
    /// Whether the policy has to queue the thread again.
    pub fn stays_queued(self) -> bool {
        matches!(
            self,
            SwitchOutReason::SliceEnd | SwitchOutReason::Preempted | SwitchOutReason::Yielded
        )
    }
}

/// Who raised a wakeup, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wake {
    /// `None`: a timer or device interrupt.
    pub waker: Option<Tid>,
    pub cpu: Cpu,
    /// The waker says that it is about to sleep.
    pub sync: bool,
}

/// What a CPU is being chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelectReason {
    Wake(Wake),
    /// A new thread; `cpu` of the `Wake` is where its parent runs.
    Fork(Wake),
    /// Its old CPU left its mask.
    Moved,
    /// Its old CPU is offline, or it was elsewhere only while its own were.
    Offline,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnqueueReason {
    Wakeup,
    New,
    Moved,
}

/// The clocks a policy wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clocks {
    /// `tick` per second and CPU; 0 = none.
    pub hz: u32,
    /// `stat_tick` per second and CPU; 0 = none.
    pub stathz: u32,
    /// Whether idle CPUs tick too.
    pub idle_ticks: bool,
    /// CPU `c` ticks `c * skew_ns` later than CPU 0.
    pub skew_ns: i64,
}

/// The hooks; see the head of this file.
pub trait Policy: Send {
    fn clocks(&self) -> Clocks {
        Clocks::default()
    }
    fn init(&mut self, _w: &mut World) {}
    fn on_fork(&mut self, _w: &mut World, _parent: Option<Tid>, _child: Tid) {}
    fn select_cpu(&mut self, w: &mut World, t: Tid, place: SelectReason) -> Cpu;
    fn enqueue(&mut self, w: &mut World, cpu: Cpu, t: Tid, how: EnqueueReason);
    fn dequeue(&mut self, w: &mut World, cpu: Cpu, t: Tid);
    fn check_preempt(&mut self, w: &mut World, cpu: Cpu, t: Tid, wake: Wake);
    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid>;
    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason);
    fn on_idle(&mut self, _w: &mut World, _cpu: Cpu) -> Option<Tid> {
        None
    }
    fn tick(&mut self, _w: &mut World, _cpu: Cpu) {}
    fn stat_tick(&mut self, _w: &mut World, _cpu: Cpu) {}
    fn timer(&mut self, _w: &mut World, _id: u32) {}
    fn set_priority(&mut self, w: &mut World, t: Tid);
    fn affinity_changed(&mut self, _w: &mut World, _t: Tid) {}
    fn online_changed(&mut self, _w: &mut World) {}
    fn shares_by_groups(&self) -> bool {
        false
    }
    fn change_group(&mut self, _w: &mut World, _t: Tid, _group: Option<u32>) {}
    fn moves_by_itself(&self) -> bool {
        false
    }
    fn steps_before_ipis(&self) -> bool {
        false
    }
    fn back_from_kernel(&mut self, _w: &mut World, _t: Tid) {}
    fn leaves_clock(&self, _w: &World, _cpu: Cpu, _woken: Tid) -> bool {
        false
    }
    fn prefetch(&self, _t: Tid) {}
    fn prio(&self, w: &World, t: Tid) -> i16 {
        let th = w.thread(t);
        match th.class {
            Class::Deadline => -1,
            Class::Interrupt | Class::Kernel | Class::Fifo | Class::RoundRobin => {
                99 - i16::from(th.rt_prio)
            }
            _ => 120 + i16::from(th.nice),
        }
    }
}

/// What a policy is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It models a scheduler that people ran.
    Kernel,
    /// An ideal to hold others against.
    Reference,
    /// It knows nothing of threads: what a replay is worth without a model.
    Baseline,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Reference => "reference",
            Self::Baseline => "baseline",
        }
    }
}

/// What the numbers in the `prio` columns of a simulated trace mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorityScale {
    /// Linux's throughout: 120 + nice, 99 - rt_prio. Weights follow from them.
    Linux,
    /// What the policy makes of nice and history (`Policy::prio`).
    Own,
}

impl PriorityScale {
    pub fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Own => "own",
        }
    }
}

/// How interactive threads are distinguished from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InteractivityRule {
    Ule,
    Ule2003,
    O1,
}

impl InteractivityRule {
    /// The largest score there is.
    pub fn score_limit(self) -> u32 {
        match self {
            Self::Ule | Self::Ule2003 => 100,
            Self::O1 => 10,
        }
    }

    /// Whether it asks if a thread or an interrupt began the wait.
    pub fn asks_for_wakers(self) -> bool {
        self == Self::O1
    }
}

/// Whose virtual times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LagRule {
    Eevdf,
    Cfs,
}

impl LagRule {
    /// Whether it runs only threads with a positive lag.
    pub fn has_eligibility(self) -> bool {
        self == Self::Eevdf
    }
}

/// A policy as the registry lists it.
pub struct Spec {
    /// The file's name for the family; users type a preset's name.
    pub family: &'static str,
    /// One sentence: what it does.
    pub summary: &'static str,
    /// What it models, from which source, and what it leaves out.
    pub models: &'static str,
    pub tunables: &'static [Tunable],
    /// At least one; the first is the family's default.
    pub presets: &'static [Preset],
    pub series: &'static [Series],
    /// Whether no CPU may idle while a thread that may run there is queued.
    pub work_conserving: bool,
    /// Class boundaries kept strictly among the threads of one CPU: 2 = real time
    /// before fair before idle class, 1 = real time before the rest, 0 = none.
    /// Checked on random workloads (`invariants.rs`), as is the field above.
    pub strict_classes: u8,
    pub role: Role,
    pub priorities: PriorityScale,
    /// The rule that `interactivity` applies to recorded threads; `None`: it scores none.
    pub interactivity: Option<InteractivityRule>,
    /// The rule that `virtual_lag` applies to recorded threads; `None`: it keeps no virtual times.
    pub lag: Option<LagRule>,
    /// Whether it shares CPU time among control groups first, and keeps their quotas.
    pub groups: bool,
    pub make: fn(&Settings, &Machine, usize) -> Result<Box<dyn Policy>>,
}

/// The usual choice when nothing cleverer is modelled: the old CPU if it is
/// idle, else any idle CPU, else the old one (or the first allowed).
pub fn idle_or_previous(w: &World, t: Tid) -> Cpu {
    let old = w.thread(t).cpu;
    let old_ok = w.allowed(t, old);
    if old_ok && w.is_idle(old) {
        return old;
    }
    if let Some(c) = w.idle_for(t) {
        return c;
    }
    if old_ok {
        return old;
    }
    least_loaded(w, t)
}

/// For machine-wide queues, after a running `t` was queued again: an idle CPU
/// that it may use is asked to choose.
pub fn kick_idle(w: &mut World, t: Tid) {
    if let Some(c) = w.idle_for(t) {
        w.resched(c, RescheduleReason::Preempted);
    }
}

/// Whether some CPU other than one that is choosing now may have a thread
/// waiting: spares idle CPUs a look at all the others.
fn someone_waits(w: &World) -> bool {
    w.nr_runnable() as usize + w.n_idle() + 1 > w.n_online()
}

/// The allowed CPU with the fewest runnable threads, lowest number first.
pub fn least_loaded(w: &World, t: Tid) -> Cpu {
    w.mask(t)
        .iter()
        .min_by_key(|c| w.cpu(*c).nr_running())
        .unwrap_or(0)
}
