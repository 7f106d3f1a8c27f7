//! ULE, FreeBSD's scheduler since 7.1: interactivity score and calendar queue.
//!
//! Models sched_ule.c of FreeBSD 14, held run for run against what that file does
//! (`fixtures/freebsd-schedulers.md`), and, as `ule-2011`, the form of 8 and 9
//! (r227746 is taken to equal a 2009 text that was read): fixed slices, a steal
//! threshold that grows with the CPUs, one pair of CPUs per balancer run. Per CPU
//! three rows of 64 lists: real time (which holds interactive threads too), a
//! calendar for batch threads, idle class. Interactive threads are strictly above
//! batch ones, which can starve.
//!
//! Two priorities: the user priority follows class, history and nice; the active one,
//! which counts in queues and comparisons, takes it over when the thread returns to
//! user mode (`sched_userret`, `ast_sched`). A statistics tick moves the former only.
//!
//! Run time is charged by the statistics clock, sleep in whole `hz` ticks.
//!
//! Left out: priority lending and propagation, CPU groups
//! below the cache other than hardware threads. Settings: `ule_spec`; score and priority:
//! `ule_score`; queues: `ule_queue`; preemption: `ule_preempt`; ticks: `ule_clock`; CPU
//! placement: `ule_place`; stealing and balancing: `ule_balance`.
use super::super::error::Result;
use super::super::machine::{Cpu, Machine};
use super::super::queue::Links;
use super::super::workload::{Class, Tid};
use super::super::world::{RescheduleReason, State, World};
use super::ule_place::{CACHE_LEVELS, Picked, Placer, Seen};
use super::ule_queue::{Enter, MAX_TIMESHARE, NOTHING, QueuePosition as Slot, Tdq};
use super::ule_score::{History, Scale};
use super::{Clocks, EnqueueReason, Policy, SelectReason, Settings, SwitchOutReason, Wake};
use crate::prefetch::near;

/// Numbers of the series that `ule_spec` declares.
const SCORE: u16 = 0;
const PRIORITY: u16 = 1;
const QUEUE_INDEX: u16 = 2;

const IDLE_PRIO: i64 = 240;
/// Priorities of kernel threads, in FreeBSD 9 to 14.
pub(super) const KERNEL_LEVELS: i64 = 40;
/// Groups of CPUs in which a thread that goes to sleep lets its CPU steal before the
/// idle thread does.
const TRYSTEAL_LIMIT: u32 = 2;

/// What a run of the balancer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Balance {
    EveryDonor,
    OnePair,
    Off,
}

pub(super) fn make(s: &Settings, machine: &Machine, nthreads: usize) -> Result<Box<dyn Policy>> {
    let ncpu = machine.ncpu();
    let (hz, stathz) = (s.int("hz"), s.int("stathz"));
    let slice = match s.int("slice") {
        0 => (stathz / 10).max(1),
        given => given,
    };
    let fixed = s.int("steal_thresh");
    let steal = if fixed > 0 {
        fixed
    } else {
        i64::from(ncpu.ilog2().min(3))
    };
    let modern = s.choice("rules") == 0;
    let random = s.is_on("random");
    let ticks = |ns: i64, per_second: i64| ns * per_second / 1_000_000_000;
    let affinity = ticks(s.ns("affinity"), hz);
    Ok(Box::new(Ule {
        scale: Scale::new(s)?,
        batch: s.int("min_timeshare") + s.int("interact_levels"),
        min_realtime: s.int("min_realtime"),
        slice,
        by_load: s.is_on("slice_by_load"),
        modern,
        preempt_thresh: s.int("preempt_thresh"),
        ast: s.choice("wake_preempt") == 0,
        boost: s.is_on("static_boost"),
        // A CPU with one thread has none to give.
        steal_thresh: steal.max(2),
        // With the threshold of 2011, hardware threads of a core steal at load 1.
        steal_thresh_core: if fixed > 0 { fixed.max(2) } else { 1 },
        steals: s.is_on("steal_idle") && ncpu > 1,
        polls: s.is_on("idle_poll") && s.is_on("steal_idle"),
        balancer: [Balance::EveryDonor, Balance::OnePair, Balance::Off][s.choice("balance")],
        interval: ticks(s.ns("balance_interval"), stathz).max(1),
        balance_in: 0,
        random,
        threads: vec![Td::default(); nthreads],
        cpus: vec![Tdq::new(); ncpu],
        seen: Seen::new(ncpu),
        links: Links::new(nthreads),
        placer: Placer::new(machine, affinity.max(1), modern, random),
        before: NOTHING,
        came: NOTHING,
        kept: None,
        leaves: SwitchOutReason::Preempted,
    }))
}

/// A thread: two cache lines.
#[derive(Debug, Clone, Default)]
#[repr(align(64))]
pub(super) struct Td {
    pub(super) history: History,
    /// The active priority, and the one it has in user mode.
    pub(super) prio: i64,
    pub(super) user_prio: i64,
    /// The tick in which it last left a CPU, other than by ending.
    ran: Option<i64>,
    /// Stat ticks of its slice used.
    pub(super) used: i32,
    /// It returns to user mode when it runs next.
    pub(super) in_kernel: bool,
    slot: Slot,
}

pub(super) struct Ule {
    pub(super) scale: Scale,
    /// Best batch priority.
    pub(super) batch: i64,
    min_realtime: i64,
    pub(super) slice: i64,
    pub(super) by_load: bool,
    /// Rules of 14, not of 2011.
    pub(super) modern: bool,
    pub(super) preempt_thresh: i64,
    pub(super) ast: bool,
    boost: bool,
    pub(super) steal_thresh: i64,
    pub(super) steal_thresh_core: i64,
    steals: bool,
    pub(super) polls: bool,
    pub(super) balancer: Balance,
    /// Ticks between balancer runs, and to the next.
    pub(super) interval: i64,
    pub(super) balance_in: i64,
    pub(super) random: bool,
    pub(super) threads: Vec<Td>,
    pub(super) cpus: Vec<Tdq>,
    pub(super) seen: Seen,
    pub(super) links: Links,
    pub(super) placer: Placer,
    /// What the CPU showed before the thread just queued came.
    pub(super) before: i64,
    /// The priority with which that thread came.
    pub(super) came: i64,
    /// A thread that goes on after all, its CPU having been asked to choose.
    kept: Option<Tid>,
    /// How the last thread left its CPU: idle CPUs choose by it.
    leaves: SwitchOutReason,
}

impl Ule {
    pub(super) fn td(&mut self, t: Tid) -> &mut Td {
        &mut self.threads[t as usize]
    }

    pub(super) fn prio_of(&self, t: Tid) -> i64 {
        self.threads[t as usize].prio
    }

    pub(super) fn ticks(&self, w: &World) -> i64 {
        self.scale.ticks_at(w.now())
    }

    /// The user priority from class, history and nice.
    pub(super) fn renew(&mut self, w: &mut World, t: Tid) {
        let th = w.thread(t);
        let (class, nice) = (th.class, i64::from(th.nice));
        let prio = match class {
            // 99 levels on the priorities above real time, whose number differs by release.
            Class::Interrupt => (99 - i64::from(th.rt_prio)) * self.min_realtime / 100,
            // The kernel's priorities are those above timeshare.
            Class::Kernel => {
                let worse = (99 - i64::from(th.rt_prio)) * KERNEL_LEVELS / 100;
                self.scale.min_interactive - KERNEL_LEVELS + worse
            }
            // 99 real-time levels on FreeBSD's 32.
            Class::Deadline | Class::Fifo | Class::RoundRobin => {
                self.min_realtime + (99 - i64::from(th.rt_prio)) * 32 / 99
            }
            Class::Idle => IDLE_PRIO,
            Class::Fair | Class::Batch => {
                let history = &self.threads[t as usize].history;
                let (score, prio) = self.scale.priority(history, nice);
                w.record(SCORE, t, score as f64);
                prio.clamp(self.scale.min_interactive, MAX_TIMESHARE)
            }
        };
        if prio != self.threads[t as usize].user_prio {
            w.record(PRIORITY, t, prio as f64);
        }
        self.td(t).user_prio = prio;
    }

    pub(super) fn is_timeshare(w: &World, t: Tid) -> bool {
        matches!(w.thread(t).class, Class::Fair | Class::Batch)
    }

    /// Queue a thread that enters `c`; what `c` showed before is in `before`.
    pub(super) fn queue(&mut self, w: &mut World, c: Cpu, t: Tid, enter: Enter) {
        let prio = self.prio_of(t);
        let low = &mut self.seen.lowpri[c as usize];
        (self.before, self.came) = (*low, prio);
        *low = prio.min(*low);
        self.insert(w, c, t, enter);
        self.seen.load[c as usize] += 1;
    }

    /// Into the row alone: load and shown priority are the caller's.
    fn insert(&mut self, w: &mut World, c: Cpu, t: Tid, enter: Enter) {
        let (prio, batch) = (self.prio_of(t), self.batch);
        let slot = self.cpus[c as usize].insert(&mut self.links, t, prio, batch, enter);
        self.td(t).slot = slot;
        self.seen.queued[c as usize] += 1;
        w.record(QUEUE_INDEX, t, f64::from(slot.level()));
    }

    fn remove(&mut self, c: Cpu, t: Tid) {
        let slot = self.threads[t as usize].slot;
        self.cpus[c as usize].remove(&mut self.links, t, slot);
        self.seen.queued[c as usize] -= 1;
    }

    /// Take `t` off the queue of `c` without running it there.
    pub(super) fn unqueue(&mut self, c: Cpu, t: Tid) {
        self.remove(c, t);
        self.seen.load[c as usize] -= 1;
        if self.prio_of(t) == self.seen.lowpri[c as usize] {
            self.show_exactly(c);
        }
    }

    /// The best of the running and waiting threads of `c`.
    pub(super) fn show_exactly(&mut self, c: Cpu) {
        let q = &self.cpus[c as usize];
        let prio = |t: Tid| self.threads[t as usize].prio;
        let running = q.curr.map_or(NOTHING, prio);
        self.seen.lowpri[c as usize] = q.first().map_or(NOTHING, prio).min(running);
    }

    /// Take the first of the queue of `c`; it runs now.
    fn take(&mut self, w: &mut World, c: Cpu) -> Option<Tid> {
        let Some(t) = self.cpus[c as usize].first() else {
            self.seen.lowpri[c as usize] = NOTHING;
            self.cpus[c as usize].idling = true;
            return None;
        };
        self.remove(c, t);
        self.seen.lowpri[c as usize] = self.prio_of(t);
        self.cpus[c as usize].curr = Some(t);
        self.cpus[c as usize].idling = false;
        let ticks = self.ticks(w);
        let td = &mut self.threads[t as usize];
        if self.leaves != SwitchOutReason::Exited {
            self.scale.age(&mut td.history, ticks, false);
        }
        if std::mem::take(&mut td.in_kernel) {
            self.return_to_user(c, t);
        }
        debug_assert!(w.allowed(t, c));
        Some(t)
    }

    /// `t` goes back into a queue, that of `c` unless it may not or shall not stay.
    fn requeue(&mut self, w: &mut World, c: Cpu, t: Tid, enter: Enter, pick_cpu: bool) {
        if !w.allowed(t, c) || pick_cpu {
            let (prio, ran) = (self.prio_of(t), self.ran_ago(w, t));
            let to = self
                .placer
                .pick(w, &self.seen, t, prio, (c, ran, Picked::Running));
            if to != c {
                self.seen.load[c as usize] -= 1;
                self.queue(w, to, t, enter);
                self.notify(w, to);
                w.send(t, to);
                return;
            }
        }
        self.insert(w, c, t, enter);
    }

    fn ran_ago(&self, w: &World, t: Tid) -> Option<i64> {
        let ran = self.threads[t as usize].ran?;
        Some(self.ticks(w) - ran)
    }
}

impl Policy for Ule {
    fn clocks(&self) -> Clocks {
        Clocks {
            stathz: self.scale.stathz as u32,
            idle_ticks: self.polls,
            ..Clocks::default()
        }
    }

    fn init(&mut self, w: &mut World) {
        // The machine has run for long: its balancer may be anywhere in its interval.
        self.balance_in = if self.random {
            self.next_balance(w)
        } else {
            self.interval
        };
        let ticks = self.ticks_until(w, w.now());
        for q in &mut self.cpus {
            q.ticks = ticks;
        }
    }

    fn on_fork(&mut self, w: &mut World, parent: Option<Tid>, child: Tid) {
        let ticks = self.ticks(w);
        if let Some(p) = parent {
            let tick = self.scale.per_stat_tick();
            let past = &mut self.threads[p as usize].history;
            self.scale.age(past, ticks, true);
            let mut history = past.clone();
            self.scale.inherit(&mut history);
            self.scale.add_run(past, tick);
            self.td(child).history = history;
            self.renew(w, p);
            self.renew(w, child);
            let c = w.thread(p).cpu;
            let left = if self.modern {
                (self.slice / 6).max(1)
            } else {
                1
            };
            let used = self.slice_of(c) - left;
            self.td(child).used = used.max(0) as i32;
        } else {
            let past = w.past(child);
            self.scale
                .start(&mut self.threads[child as usize].history, ticks, past);
            self.renew(w, child);
        }
        // Until it is in user mode it has its parent's priority.
        let inherited = parent
            .filter(|p| Self::is_timeshare(w, child) && Self::is_timeshare(w, *p))
            .map(|p| self.prio_of(p));
        let td = self.td(child);
        td.prio = inherited.unwrap_or(td.user_prio);
        td.in_kernel = true;
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, place: SelectReason) -> Cpu {
        let ticks = self.ticks(w);
        let mut why = Picked::Waking;
        let here = match place {
            SelectReason::Wake(wake) | SelectReason::Fork(wake) => {
                if wake.waker.is_none() && w.thread(t).class == Class::Interrupt {
                    why = Picked::ByInterrupt;
                }
                if wake.waker.is_none() && self.cpus[wake.cpu as usize].curr.is_none() {
                    self.catch_up(w, wake.cpu);
                    // Whether it finds work or not, it has been woken.
                    w.resched(wake.cpu, RescheduleReason::Preempted);
                }
                wake.cpu
            }
            SelectReason::Moved | SelectReason::Offline => w.here().unwrap_or(w.thread(t).cpu),
        };
        if let SelectReason::Wake(_) = place {
            let slept_from = self.scale.ticks_at(w.now() - w.thread(t).slept);
            let td = &mut self.threads[t as usize];
            td.used = 0;
            if ticks > slept_from {
                self.scale.add_sleep(&mut td.history, ticks - slept_from);
                self.scale.age(&mut td.history, ticks, false);
            }
        }
        self.renew(w, t);
        let (prio, ran) = (self.prio_of(t), self.ran_ago(w, t));
        self.placer.pick(w, &self.seen, t, prio, (here, ran, why))
    }

    fn enqueue(&mut self, w: &mut World, cpu: Cpu, t: Tid, _: EnqueueReason) {
        self.queue(w, cpu, t, Enter::Plain);
    }

    fn dequeue(&mut self, _: &mut World, cpu: Cpu, t: Tid) {
        self.unqueue(cpu, t);
    }

    fn check_preempt(&mut self, w: &mut World, cpu: Cpu, t: Tid, wake: Wake) {
        if cpu == wake.cpu {
            let prio = self.prio_of(t);
            self.preempt_here(w, cpu, prio);
        } else {
            self.notify(w, cpu);
        }
    }

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        if let Some(t) = self.kept.take() {
            self.cpus[cpu as usize].curr = Some(t);
            return Some(t);
        }
        if self.cpus[cpu as usize].idling {
            self.leaves = SwitchOutReason::Preempted;
            self.catch_up(w, cpu);
        }
        self.take(w, cpu)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        self.leaves = left;
        let asked = std::mem::take(&mut self.cpus[cpu as usize].asked);
        let mut enter = Enter::Plain;
        match left {
            SwitchOutReason::Preempted | SwitchOutReason::SliceEnd => {
                match self.put_off(cpu, t, asked) {
                    Some(how) => enter = how,
                    None => {
                        self.kept = Some(t);
                        return;
                    }
                }
            }
            SwitchOutReason::Yielded => self.td(t).in_kernel = true,
            SwitchOutReason::Blocked => {
                let batch = self.batch;
                let boost = self.boost && Self::is_timeshare(w, t);
                let td = self.td(t);
                td.in_kernel = true;
                if boost {
                    // Who sleeps comes back no worse than the best batch thread.
                    td.prio = td.prio.min(batch);
                }
            }
            SwitchOutReason::Exited | SwitchOutReason::Moved => {}
        }
        let ticks = self.ticks(w);
        self.cpus[cpu as usize].notified = false;
        if left == SwitchOutReason::Exited {
            self.penalize_parent(w, t);
        } else {
            self.scale
                .age(&mut self.threads[t as usize].history, ticks, true);
            let cold = if asked.pick_cpu {
                self.placer.warmth(CACHE_LEVELS)
            } else {
                0
            };
            self.td(t).ran = Some(ticks - cold);
            self.cpus[cpu as usize].switches += 1;
        }
        if left.stays_queued() {
            self.requeue(w, cpu, t, enter, asked.pick_cpu);
        } else {
            self.seen.load[cpu as usize] -= 1;
        }
        self.cpus[cpu as usize].curr = None;
    }

    fn on_idle(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        if !self.steals {
            return None;
        }
        let worth = super::someone_waits(w);
        let slept = self.modern && self.leaves == SwitchOutReason::Blocked;
        if slept && worth && self.steal(w, cpu, Some(TRYSTEAL_LIMIT)) {
            return self.take(w, cpu);
        }
        // The idle thread looks again only if there was a switch since it last did.
        let q = &mut self.cpus[cpu as usize];
        let switches = q.switches + q.old_switches;
        let woken = std::mem::replace(&mut q.waits, true);
        if switches == q.looked && self.modern && !self.polls {
            // Being woken for nothing counts as a switch that it knows of.
            q.switches += i64::from(woken);
            q.looked += i64::from(woken);
            return None;
        }
        q.looked = switches;
        if worth && self.steal(w, cpu, None) {
            self.cpus[cpu as usize].waits = false;
            self.leaves = SwitchOutReason::Preempted;
            return self.take(w, cpu);
        }
        None
    }

    fn stat_tick(&mut self, w: &mut World, cpu: Cpu) {
        self.tick_of(w, cpu);
    }

    fn prefetch(&self, t: Tid) {
        near(self.threads[t as usize].prio);
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        self.renew(w, t);
        let cpu = w.thread(t).cpu;
        let (old, prio) = (self.prio_of(t), self.threads[t as usize].user_prio);
        match w.thread(t).state {
            State::Queued if prio < old => {
                self.unqueue(cpu, t);
                self.td(t).prio = prio;
                let here = w.here().unwrap_or(cpu);
                let ran = self.ran_ago(w, t);
                let to = self
                    .placer
                    .pick(w, &self.seen, t, prio, (here, ran, Picked::Waking));
                self.queue(w, to, t, Enter::Raised);
                w.migrate(t, to);
                if to == here {
                    self.preempt_here(w, to, prio);
                } else {
                    self.notify(w, to);
                }
            }
            State::Running => self.set_active(cpu, t, prio),
            // A worse priority leaves a queued thread where it is.
            _ => self.td(t).prio = prio,
        }
    }

    fn moves_by_itself(&self) -> bool {
        true
    }

    fn steps_before_ipis(&self) -> bool {
        true
    }

    fn affinity_changed(&mut self, w: &mut World, t: Tid) {
        let cpu = w.thread(t).cpu;
        if w.thread(t).state == State::Running && !w.allowed(t, cpu) {
            let asked = &mut self.cpus[cpu as usize].asked;
            asked.at_return = true;
            asked.interrupt |= w.here() != Some(cpu);
            w.resched(cpu, RescheduleReason::Preempted);
        }
    }

    fn back_from_kernel(&mut self, w: &mut World, t: Tid) {
        let cpu = w.thread(t).cpu;
        if self.cpus[cpu as usize].asked.preempt {
            // It is preempted before it gets that far.
            self.td(t).in_kernel = true;
        } else {
            self.return_to_user(cpu, t);
        }
    }

    fn prio(&self, _: &World, t: Tid) -> i16 {
        self.prio_of(t) as i16
    }
}

impl Ule {
    /// The run time of a child that ends is its parent's.
    fn penalize_parent(&mut self, w: &mut World, t: Tid) {
        if let Some(p) = w.parent(t)
            && w.thread(p).state != State::Dead
        {
            let run = self.threads[t as usize].history.run;
            self.scale
                .add_run(&mut self.threads[p as usize].history, run);
            self.renew(w, p);
        }
    }
}
