//! What a policy sees and may ask for: time, threads, CPUs, timers, chance.
//!
//! `World` is owned by the engine and lent to every hook. A policy reads all of
//! it and changes it only through the methods here.
use super::error::Error;
use super::heap::SlotHeap;
use super::machine::{Cpu, CpuSet, Machine};
use super::output::{Discard, Record, Sink};
use super::rng::Rng;
use super::workload::{Class, GroupSpec, Past, Reservation, Tid};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not started yet.
    Unborn,
    Running,
    /// Runnable and held in the policy's queues.
    Queued,
    Sleeping,
    Dead,
}

/// What a sleeping thread waits for, as far as schedulers care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SleepKind {
    Interruptible,
    /// Uninterruptible: a device or a kernel lock.
    Disk,
}

/// Why a CPU is asked to choose again, in rising order of strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RescheduleReason {
    Preempted,
    SliceEnd,
    Yielded,
}

/// A thread as the policies see it: one cache line, since nearly every event is a
/// thread's that has not run for long.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub struct Thread {
    pub state: State,
    pub class: Class,
    pub nice: i8,
    pub rt_prio: u8,
    /// Where it runs, or the CPU whose queue holds it, or where it slept.
    pub cpu: Cpu,
    /// Where it ran last; `None` before its first run.
    pub last_cpu: Option<Cpu>,
    /// When it last left a CPU (0 before its first run).
    pub last_ran: i64,
    /// When it entered its present state.
    pub since: i64,
    /// How long its last sleep was; set when it wakes.
    pub slept: i64,
    pub sleep_kind: SleepKind,
    pub(super) mask: u32,
    /// Work left of the present `run` step, in units of 1/1024 ns at full speed.
    pub(super) work: i64,
    /// Wall ns of costs to pay before work goes on.
    pub(super) owed: i64,
    /// Begin and end of its program: places in the workload's steps.
    pub(super) first: u32,
    pub(super) end: u32,
    pub(super) yielding: bool,
}

const _: () = assert!(size_of::<Thread>() == 64);

/// Whether a CPU chooses by the clock of its queue as a wakeup has left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClockStands {
    No,
    /// When it next chooses.
    Asked,
    /// It chooses now.
    Now,
}

#[derive(Debug, Clone)]
pub struct CpuState {
    pub curr: Option<Tid>,
    /// When `curr` was last picked here (being picked again counts).
    pub picked_at: i64,
    /// Runnable threads assigned to this CPU, without the running one.
    pub nr_queued: u32,
    /// When it last became idle, if it is.
    pub idle_since: i64,
    pub(super) resched: Option<RescheduleReason>,
    /// Until when its threads are charged: the moment at which the clock of its queue was last set.
    pub(super) charged_at: i64,
    pub(super) clock: i64,
    pub(super) clock_stands: ClockStands,
    pub(super) settled_at: i64,
    /// Work units done per wall ns.
    pub(super) rate: i64,
}

impl CpuState {
    /// Idle since time 0; `rate` as in the field.
    pub(super) fn idle(rate: i64) -> Self {
        Self {
            curr: None,
            picked_at: 0,
            nr_queued: 0,
            idle_since: 0,
            resched: None,
            charged_at: 0,
            clock: 0,
            clock_stands: ClockStands::No,
            settled_at: 0,
            rate,
        }
    }

    /// Runnable threads of this CPU, the running one among them.
    pub fn nr_running(&self) -> u32 {
        self.nr_queued + u32::from(self.curr.is_some())
    }
}

/// Order among events of one instant. Within a rank CPUs go in CPU order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    Completion = 0,
    ThreadTimer = 1,
    PolicyTimer = 2,
    StatTick = 3,
    Tick = 4,
    Ipi = 5,
    GroupMove = 6,
    CpuChange = 7,
}

pub(super) fn tie(rank: Rank, order: u64) -> u64 {
    ((rank as u64) << 56) | (order & ((1 << 56) - 1))
}

pub struct World {
    pub(super) now: i64,
    pub(super) threads: Vec<Thread>,
    pub(super) parents: Vec<Option<Tid>>,
    pub(super) cpus: Vec<CpuState>,
    /// What is left of each of the workload's masks while CPUs are offline.
    pub(super) masks: Vec<CpuSet>,
    /// Whether that is every CPU.
    pub(super) whole: Vec<bool>,
    /// Whether the workload's mask is every CPU.
    pub(super) unbound: Vec<bool>,
    pub(super) groups: Vec<GroupSpec>,
    /// Of each thread; empty if there are no groups.
    pub(super) group_of: Vec<Option<u32>>,
    /// Slices of their own, by thread; empty if none has one.
    pub(super) slices: Vec<Option<i64>>,
    pub(super) pasts: Vec<Option<Past>>,
    /// What threads of SCHED_DEADLINE get; only theirs.
    pub(super) reservations: Vec<(Tid, Option<Reservation>)>,
    pub machine: Machine,
    /// The run's only source of chance.
    pub rng: Rng,
    /// CPUs that are online, run nothing and have nothing queued.
    pub(super) idle: CpuSet,
    pub(super) n_idle: usize,
    pub(super) n_online: usize,
    pub(super) n_runnable: u32,
    pub(super) sink: Box<dyn Sink>,
    pub(super) recording: bool,
    /// CPU appointments: completion, stat tick, tick, IPI per CPU, then the next move between
    /// groups, the next CPU that goes offline or comes back, then timers.
    pub(super) cpu_events: SlotHeap,
    pub(super) pending: std::collections::VecDeque<Cpu>,
    /// The CPU whose event is being handled; requests to others take an IPI.
    pub(super) here: Option<Cpu>,
    /// The thread that `put_prev` queued on another CPU, and which.
    pub(super) sent: Option<(Tid, Cpu)>,
    pub(super) n_migrations: u64,
    pub(super) fault: Option<Error>,
}

impl World {
    /// The simulated instant, ns.
    pub fn now(&self) -> i64 {
        self.now
    }

    pub fn ncpu(&self) -> usize {
        self.cpus.len()
    }

    pub fn nthreads(&self) -> usize {
        self.threads.len()
    }

    pub fn thread(&self, t: Tid) -> &Thread {
        &self.threads[t as usize]
    }

    /// The thread that forked `t`; `None` if there is none, or not yet.
    pub fn parent(&self, t: Tid) -> Option<Tid> {
        self.parents[t as usize]
    }

    pub fn cpu(&self, c: Cpu) -> &CpuState {
        &self.cpus[c as usize]
    }

    /// The CPUs `t` may use now.
    pub fn mask(&self, t: Tid) -> &CpuSet {
        &self.masks[self.threads[t as usize].mask as usize]
    }

    pub fn allowed(&self, t: Tid, c: Cpu) -> bool {
        let mask = self.threads[t as usize].mask as usize;
        self.whole[mask] || self.masks[mask].contains(c)
    }

    /// Number of the mask of `t`; equal numbers are equal sets.
    pub fn mask_id(&self, t: Tid) -> u32 {
        self.threads[t as usize].mask
    }

    /// How many masks the workload uses, now or later.
    pub fn nmasks(&self) -> u32 {
        self.masks.len() as u32
    }

    pub fn mask_has(&self, mask: u32, c: Cpu) -> bool {
        self.masks[mask as usize].contains(c)
    }

    /// Whether `t` may use every CPU that is online, and any that comes back.
    pub fn unbound(&self, t: Tid) -> bool {
        self.unbound[self.threads[t as usize].mask as usize]
    }

    pub fn is_online(&self, c: Cpu) -> bool {
        self.machine.online().contains(c)
    }

    /// How many CPUs are online.
    pub fn n_online(&self) -> usize {
        self.n_online
    }

    /// `c` goes offline or comes back; of `asked`, the workload's masks, that is left which is
    /// online. Who might run on CPUs alone that are offline may run on any other, as
    /// `select_fallback_rq` of Linux lets threads.
    pub(super) fn set_online(&mut self, asked: &[CpuSet], c: Cpu, online: bool) {
        self.machine.set_online(c, online);
        let there = self.machine.online();
        self.n_online = there.len();
        for ((mask, whole), asked) in self.masks.iter_mut().zip(&mut self.whole).zip(asked) {
            let left = asked.common(there);
            *mask = if left.is_empty() { there.clone() } else { left };
            *whole = mask.len() == self.cpus.len();
        }
        if online {
            self.mark_idle_if_so(c);
        } else {
            self.mark_busy(c);
        }
    }

    /// The workload's control groups, parents before their children.
    pub fn groups(&self) -> &[GroupSpec] {
        &self.groups
    }

    /// The group that `t` begins in, of `groups`.
    pub fn first_group(&self, t: Tid) -> Option<u32> {
        self.group_of.get(t as usize).copied().flatten()
    }

    /// The slices of their own that threads have, by thread; empty if none has one.
    pub fn slices(&self) -> &[Option<i64>] {
        &self.slices
    }

    /// What `t` had done before it starts, if anything is known of that.
    pub fn past(&self, t: Tid) -> Option<Past> {
        self.pasts.get(t as usize).copied().flatten()
    }

    /// The threads of SCHED_DEADLINE, each with what it gets, if that is known.
    pub fn reservations(&self) -> &[(Tid, Option<Reservation>)] {
        &self.reservations
    }

    /// The queued `t` may not run for now: it no longer counts among those queued on its
    /// CPU, which may idle. Until `bring_back` the policy must not answer it.
    pub fn set_aside(&mut self, t: Tid) {
        let c = self.threads[t as usize].cpu;
        self.uncount_queued(c);
    }

    /// Undoes `set_aside`.
    pub fn bring_back(&mut self, t: Tid) {
        let c = self.threads[t as usize].cpu;
        self.count_queued(c);
    }

    /// Whether `c` is online, runs nothing and has nothing queued.
    pub fn is_idle(&self, c: Cpu) -> bool {
        self.idle.contains(c)
    }

    /// All CPUs for which `is_idle` holds.
    pub fn idle_cpus(&self) -> &CpuSet {
        &self.idle
    }

    pub fn n_idle(&self) -> usize {
        self.n_idle
    }

    /// The lowest idle CPU that `t` may use.
    pub fn idle_for(&self, t: Tid) -> Option<Cpu> {
        if self.n_idle == 0 {
            return None;
        }
        self.idle.first_common(self.mask(t))
    }

    /// Runnable threads in the whole machine, running ones among them.
    pub fn nr_runnable(&self) -> u32 {
        self.n_runnable
    }

    /// CPU time (full speed, ns, rounded up) until `t`'s present burst ends: what
    /// only an oracle can know.
    pub fn burst_left(&self, t: Tid) -> i64 {
        let th = &self.threads[t as usize];
        let mut work = th.work;
        if th.state == State::Running {
            let cpu = &self.cpus[th.cpu as usize];
            let elapsed = (self.now - cpu.settled_at - th.owed).max(0);
            work = (work - elapsed * cpu.rate).max(0);
        }
        (work + 1023) / 1024
    }

    /// Wall ns that the thread on `c` ran since the last call (or since it was
    /// picked). Each ns is handed out once: this is exact accounting.
    pub fn take_run(&mut self, c: Cpu) -> i64 {
        let now = self.now;
        let cpu = &mut self.cpus[c as usize];
        if cpu.clock_stands != ClockStands::Now {
            cpu.clock = now;
        }
        let ran = cpu.clock - cpu.charged_at;
        cpu.charged_at = cpu.clock;
        ran
    }

    /// A wakeup queues a thread on `c`, and `c` is to choose again: it will not set the clock of
    /// its queue for that. The running thread is charged up to then, and the time until the choice
    /// is charged to the thread that `c` chooses.
    pub(super) fn leave_clock(&mut self, c: Cpu) {
        let cpu = &mut self.cpus[c as usize];
        cpu.clock = self.now + self.machine.costs.enqueue_ns;
        cpu.clock_stands = ClockStands::Asked;
    }

    /// `c` begins to choose.
    pub(super) fn set_clock(&mut self, c: Cpu) {
        let now = self.now;
        let cpu = &mut self.cpus[c as usize];
        if cpu.clock_stands == ClockStands::Asked {
            cpu.clock_stands = ClockStands::Now;
            cpu.clock = cpu.clock.min(now);
        } else {
            cpu.clock = now;
        }
    }

    /// Ask `c` to choose again at this instant (another CPU hears it after the
    /// IPI delay, an idle one chooses after its exit from idling, a busy one after
    /// the time that a preemption takes). The strongest reason given wins.
    pub fn resched(&mut self, c: Cpu, why: RescheduleReason) {
        let remote = self.here.is_some_and(|h| h != c);
        let costs = &self.machine.costs;
        let mut delay = if remote { costs.ipi_ns } else { 0 };
        if self.cpus[c as usize].curr.is_none() {
            delay += costs.idle_exit_ns;
        } else if why == RescheduleReason::Preempted {
            delay += costs.preempt_ns;
        }
        let costs_delays = costs.ipi_ns > 0 || costs.preempt_ns > 0;
        let now = self.now;
        let n = self.cpus.len();
        let cpu = &mut self.cpus[c as usize];
        let asked = cpu.resched.is_some();
        if cpu.resched.is_none_or(|w| w < why) {
            cpu.resched = Some(why);
        }
        if delay > 0 {
            if !asked {
                let slot = 3 * n as u32 + u32::from(c);
                self.cpu_events
                    .arm(slot, (now + delay, tie(Rank::Ipi, u64::from(c))));
            }
        } else if !asked {
            self.pending.push_back(c);
        } else if costs_delays && self.cpu_events.is_armed(3 * n as u32 + u32::from(c)) {
            // A request without delay overtakes the one that is under way.
            self.cpu_events.disarm(3 * n as u32 + u32::from(c));
            self.pending.push_back(c);
        }
    }

    /// Whether `c` has been asked to choose again and has not done so yet.
    pub fn needs_resched(&self, c: Cpu) -> bool {
        self.cpus[c as usize].resched.is_some()
    }

    /// Set the policy's timer `id` (any small number) to fire at `at`, replacing
    /// its earlier setting.
    pub fn arm_timer(&mut self, id: u32, at: i64) {
        let slot = self.change_slot() + 1 + id;
        self.cpu_events.grow(slot as usize + 1);
        let key = (at.max(self.now), tie(Rank::PolicyTimer, u64::from(id)));
        self.cpu_events.arm(slot, key);
    }

    pub fn disarm_timer(&mut self, id: u32) {
        let slot = self.change_slot() + 1 + id;
        self.cpu_events.grow(slot as usize + 1);
        self.cpu_events.disarm(slot);
    }

    /// Whether the policy's timer `id` is still to fire.
    pub fn timer_is_armed(&mut self, id: u32) -> bool {
        let slot = self.change_slot() + 1 + id;
        self.cpu_events.grow(slot as usize + 1);
        self.cpu_events.is_armed(slot)
    }

    /// The appointment of the next move between groups.
    #[inline]
    pub(super) fn move_slot(&self) -> u32 {
        4 * self.cpus.len() as u32
    }

    /// The appointment of the next CPU that goes offline or comes back.
    #[inline]
    pub(super) fn change_slot(&self) -> u32 {
        self.move_slot() + 1
    }

    /// The CPU whose event is being handled; none for a timer of the policy.
    pub fn here(&self) -> Option<Cpu> {
        self.here
    }

    /// In `put_prev` of a thread that stays queued: it is now in `to`'s queue.
    pub fn send(&mut self, t: Tid, to: Cpu) {
        self.sent = Some((t, to));
    }

    /// Tell that the policy moved the queued thread `t` to `to`'s queue: counts
    /// and the output follow. If `to` is idle it is asked to choose.
    pub fn migrate(&mut self, t: Tid, to: Cpu) {
        let from = self.threads[t as usize].cpu;
        if from == to {
            return;
        }
        self.uncount_queued(from);
        self.note_migration(t, from, to);
        self.threads[t as usize].cpu = to;
        self.count_queued(to);
        if self.cpus[to as usize].curr.is_none() {
            self.resched(to, RescheduleReason::Preempted);
        }
    }

    /// End the simulation with this error.
    pub fn fail(&mut self, error: Error) {
        self.fault.get_or_insert(error);
    }

    /// A world of nothing, to stand in while the real one is lent out.
    pub fn hollow() -> Self {
        Self {
            now: 0,
            threads: Vec::new(),
            parents: Vec::new(),
            cpus: Vec::new(),
            masks: Vec::new(),
            whole: Vec::new(),
            unbound: Vec::new(),
            groups: Vec::new(),
            group_of: Vec::new(),
            slices: Vec::new(),
            pasts: Vec::new(),
            reservations: Vec::new(),
            machine: Machine::hollow(),
            rng: Rng::new(0),
            idle: CpuSet::empty(0),
            n_idle: 0,
            n_online: 0,
            n_runnable: 0,
            sink: Box::new(Discard),
            recording: false,
            cpu_events: SlotHeap::default(),
            pending: std::collections::VecDeque::new(),
            here: None,
            sent: None,
            n_migrations: 0,
            fault: None,
        }
    }

    /// Whether the caller wants internal series; skip costly work if not.
    pub fn recording(&self) -> bool {
        self.recording
    }

    /// Add a point to internal series `series` (its index in the policy's
    /// `SPEC.series`) of thread `t`.
    pub fn record(&mut self, series: u16, t: Tid, value: f64) {
        if self.recording {
            let (ts, cpu) = (self.now, Some(self.threads[t as usize].cpu));
            self.sink.record(Record {
                ts,
                series,
                cpu,
                thread: Some(t),
                value,
            });
        }
    }

    /// The same for a CPU.
    pub fn record_cpu(&mut self, series: u16, c: Cpu, value: f64) {
        if self.recording {
            let ts = self.now;
            self.sink.record(Record {
                ts,
                series,
                cpu: Some(c),
                thread: None,
                value,
            });
        }
    }

    pub(super) fn note_migration(&mut self, t: Tid, from: Cpu, to: Cpu) {
        self.n_migrations += 1;
        let here = self.here.unwrap_or(to);
        self.sink.migrate(self.now, here, t, from, to);
    }

    pub(super) fn count_queued(&mut self, c: Cpu) {
        self.cpus[c as usize].nr_queued += 1;
        self.mark_busy(c);
    }

    pub(super) fn uncount_queued(&mut self, c: Cpu) {
        self.cpus[c as usize].nr_queued -= 1;
        self.mark_idle_if_so(c);
    }

    pub(super) fn mark_busy(&mut self, c: Cpu) {
        if self.idle.contains(c) {
            self.idle.remove(c);
            self.n_idle -= 1;
        }
    }

    pub(super) fn mark_idle_if_so(&mut self, c: Cpu) {
        let cpu = &self.cpus[c as usize];
        let free = cpu.curr.is_none() && cpu.nr_queued == 0;
        if free && !self.idle.contains(c) && self.is_online(c) {
            self.idle.insert(c);
            self.n_idle += 1;
        }
    }
}
