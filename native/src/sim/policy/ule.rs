//! ULE, FreeBSD's scheduler since 7.1: interactivity score and calendar queue.
//!
//! Models sched_ule.c of FreeBSD 14 (all its scheduling code read) and, as
//! `ule-2011`, the form of 8 and 9 (r227746 is taken to equal a 2009 text that
//! was read): fixed slices, a steal threshold that grows with the CPUs, one pair
//! of CPUs per balancer run. Per CPU three rows of 64 lists: real time (which
//! holds interactive threads too), a calendar for batch threads, idle class.
//! Interactive threads are strictly above batch ones, which can starve.
//!
//! Run time is charged by the statistics clock, sleep in whole `hz` ticks.
//! Preemption by a better timeshare thread on the same CPU waits for the return
//! to user mode, here at once; a thread switched out that way is queued again by
//! its priority, one preempted in the kernel at the head.
//!
//! Left out: interrupt threads, priority lending and propagation, CPU groups
//! below the cache other than hardware threads. CPU placement: `ule_place`.
use super::super::error::Result;
use super::super::machine::{Cpu, Machine};
use super::super::queue::{Levels, Links};
use super::super::workload::{Class, Tid};
use super::super::world::{State, Why, World};
use super::tunables::{CLOCK_HZ, COUNT_OR_ZERO, SPAN, SPAN_OR_ZERO, choice, int, switch, time};
use super::ule_place::{Placer, Seen};
use super::ule_score::{History, INTERACT, SLP_RUN_FORK, SLP_RUN_MAX, Scale};
use super::{Clocks, How, Left, Place, Policy, Preset, Series, Settings, Spec, Wake};
use crate::touch::touch;

pub const SPEC: Spec = Spec {
    family: "ule",
    summary: "interactive threads first, batch threads in a calendar, per-CPU queues with stealing",
    models: "FreeBSD 14 sched_ule.c, and its form of 8/9 (Nov 2011). Left out: interrupt threads, priority lending.",
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
            "mean time between balancer runs, each 0.5 to 1.5 of it",
        ),
    ],
    presets: &[
        Preset {
            name: "ule-14",
            doc: "FreeBSD 14",
            values: &[],
        },
        Preset {
            name: "ule-2011",
            doc: "FreeBSD 8/9, November 2011",
            values: &[
                ("slice_by_load", "off"),
                ("min_timeshare", "120"),
                ("interact_levels", "32"),
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
    make,
};

const SCORE: u16 = 0;
const PRIORITY: u16 = 1;
const QUEUE_INDEX: u16 = 2;

const LISTS: usize = 64;
const RQ_PPQ: i64 = 4;
const MAX_TIMESHARE: i64 = 223;
const IDLE_PRIO: i64 = 240;
/// A CPU with nothing.
const NOTHING: i64 = 255;
const BALANCE: u32 = 0;
const BALANCE_EVERY_DONOR: usize = 0;
const BALANCE_OFF: usize = 2;

fn make(s: &Settings, machine: &Machine, nthreads: usize) -> Result<Box<dyn Policy>> {
    let ncpu = machine.ncpu();
    let slice = match s.int("slice") {
        0 => (s.int("stathz") / 10).max(1),
        given => given,
    };
    let fixed = s.int("steal_thresh");
    let steal = if fixed > 0 {
        fixed
    } else {
        i64::from(ncpu.ilog2().min(3))
    };
    let batch = s.int("min_timeshare") + s.int("interact_levels");
    Ok(Box::new(Ule {
        scale: Scale::new(s)?,
        batch,
        slice,
        by_load: s.is_on("slice_by_load"),
        preempt_thresh: s.int("preempt_thresh"),
        ast: s.choice("wake_preempt") == 0,
        boost: s.is_on("static_boost"),
        steal,
        // With the threshold of 2011, hardware threads of a core steal at load 1.
        steal_sibling: if fixed > 0 { fixed } else { 1 },
        steals: s.is_on("steal_idle"),
        polls: s.is_on("idle_poll") && s.is_on("steal_idle"),
        balance: s.choice("balance"),
        interval: s.ns("balance_interval"),
        threads: vec![Td::default(); nthreads],
        cpus: vec![
            Tdq {
                realtime: Levels::new(LISTS),
                calendar: Levels::new(LISTS),
                idle: Levels::new(LISTS),
                idx: 0,
                ridx: 0,
                kernel_preempt: false,
            };
            ncpu
        ],
        seen: Seen::new(ncpu),
        links: Links::new(nthreads),
        placer: Placer::new(machine, s.ns("affinity"), s.is_on("slice_by_load")),
    }))
}

/// A thread: one cache line.
#[derive(Debug, Clone, Default)]
#[repr(align(64))]
struct Td {
    history: History,
    /// What it is queued by, and what it has in user mode.
    prio: i64,
    user_prio: i64,
    /// Stat ticks of its slice used.
    used: i32,
    row: Row,
    level: u16,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Row {
    #[default]
    Realtime,
    Calendar,
    Idle,
}

#[derive(Debug, Clone)]
struct Tdq {
    realtime: Levels,
    calendar: Levels,
    idle: Levels,
    /// Where the calendar inserts, and from where it removes.
    idx: usize,
    ridx: usize,
    /// The next switch is a preemption in the kernel.
    kernel_preempt: bool,
}

struct Ule {
    scale: Scale,
    /// Best batch priority.
    batch: i64,
    slice: i64,
    by_load: bool,
    preempt_thresh: i64,
    ast: bool,
    boost: bool,
    steal: i64,
    steal_sibling: i64,
    steals: bool,
    polls: bool,
    balance: usize,
    interval: i64,
    threads: Vec<Td>,
    cpus: Vec<Tdq>,
    seen: Seen,
    links: Links,
    placer: Placer,
}

impl Ule {
    fn ticks(&self, w: &World) -> i64 {
        self.ticks_at(w.now())
    }

    fn ticks_at(&self, ns: i64) -> i64 {
        self.scale.ticks_at(ns)
    }

    /// The user priority from class, history and nice.
    fn renew(&mut self, w: &mut World, t: Tid) {
        let th = w.thread(t);
        let (class, nice) = (th.class, i64::from(th.nice));
        let prio = match class {
            // 99 real-time levels on FreeBSD's 32.
            Class::Fifo | Class::RoundRobin => 48 + (99 - i64::from(th.rt_prio)) * 32 / 99,
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
        self.threads[t as usize].user_prio = prio;
    }

    fn is_timeshare(w: &World, t: Tid) -> bool {
        matches!(w.thread(t).class, Class::Fair | Class::Batch)
    }

    fn queue(&mut self, w: &mut World, c: Cpu, t: Tid, preempted: bool) {
        let td = &mut self.threads[t as usize];
        let q = &mut self.cpus[c as usize];
        let prio = td.prio;
        let n = LISTS as i64;
        let (row, level) = if prio < self.batch {
            (Row::Realtime, (prio / RQ_PPQ) as usize)
        } else if prio <= MAX_TIMESHARE {
            let slot = if preempted {
                q.ridx
            } else {
                let range = MAX_TIMESHARE - self.batch + 1;
                let slot = ((n * (prio - self.batch) / range + q.idx as i64) % n) as usize;
                // While the removal index lags, its slot is not for new ones.
                if q.ridx != q.idx && slot == q.ridx {
                    (slot + LISTS - 1) % LISTS
                } else {
                    slot
                }
            };
            (Row::Calendar, slot)
        } else {
            (Row::Idle, (prio / RQ_PPQ) as usize)
        };
        (td.row, td.level) = (row, level as u16);
        let list = match row {
            Row::Realtime => &mut q.realtime,
            Row::Calendar => &mut q.calendar,
            Row::Idle => &mut q.idle,
        };
        if preempted {
            list.push_front(&mut self.links, level, t);
        } else {
            list.push_back(&mut self.links, level, t);
        }
        w.record(QUEUE_INDEX, t, level as f64);
        self.seen.load[c as usize] += 1;
        if self.seen.lowpri[c as usize] > prio {
            self.seen.lowpri[c as usize] = prio;
        }
    }

    fn unqueue(&mut self, w: &World, c: Cpu, t: Tid) {
        let td = &self.threads[t as usize];
        let (row, level) = (td.row, usize::from(td.level));
        let q = &mut self.cpus[c as usize];
        match row {
            Row::Realtime => q.realtime.remove(&mut self.links, level, t),
            Row::Calendar => {
                q.calendar.remove(&mut self.links, level, t);
                if q.idx != q.ridx && level == q.ridx && q.calendar.list(level).is_empty() {
                    q.ridx = (q.ridx + 1) % LISTS;
                }
            }
            Row::Idle => q.idle.remove(&mut self.links, level, t),
        }
        self.seen.load[c as usize] -= 1;
        self.set_lowpri(w, c);
    }

    /// The next thread of `c`'s queues.
    fn choose(&self, c: Cpu) -> Option<Tid> {
        let q = &self.cpus[c as usize];
        if let Some((_, t)) = q.realtime.front() {
            return Some(t);
        }
        let slot = q.calendar.first_from(q.ridx).or_else(|| q.calendar.best());
        if let Some(slot) = slot {
            return q.calendar.list(slot).front();
        }
        q.idle.front().map(|(_, t)| t)
    }

    fn set_lowpri(&mut self, w: &World, c: Cpu) {
        let prio = |t: Tid| self.threads[t as usize].prio;
        let queued = self.choose(c).map_or(NOTHING, prio);
        let running = w.cpu(c).curr.map_or(NOTHING, prio);
        self.seen.lowpri[c as usize] = queued.min(running);
    }

    fn slice_of(&self, c: Cpu) -> i64 {
        if !self.by_load {
            return self.slice;
        }
        let load = i64::from(self.seen.load[c as usize]) - 1;
        if load >= 6 {
            (self.slice / 6).max(1)
        } else if load <= 1 {
            self.slice
        } else {
            (self.slice / load).max(1)
        }
    }

    /// Ask `c` to switch to the queued `t` if the rules say so.
    fn ask(&mut self, w: &mut World, c: Cpu, t: Tid, remote: bool) {
        let Some(curr) = w.cpu(c).curr else { return };
        let (new, old) = (
            self.threads[t as usize].prio,
            self.threads[curr as usize].prio,
        );
        if new >= old {
            return;
        }
        let both_timeshare = new >= self.scale.min_interactive && old <= MAX_TIMESHARE;
        let displaces_batch = remote && new < self.batch && old >= self.batch;
        let at_once =
            old > MAX_TIMESHARE || new <= self.preempt_thresh || displaces_batch && self.ast;
        // Real time over anything else is never left waiting in user mode.
        let soon = (!remote && self.ast) || !both_timeshare;
        if at_once || soon {
            self.cpus[c as usize].kernel_preempt = at_once;
            w.resched(c, Why::Preempted);
        }
    }

    /// A thread that `thief` may take from `c`: the best interactive, else of the
    /// calendar the second if there is one, else of the idle class.
    fn stealable(&self, w: &World, c: Cpu, thief: Cpu) -> Option<Tid> {
        let q = &self.cpus[c as usize];
        let may = |t: &Tid| w.allowed(*t, thief);
        let links = &self.links;
        let first = q.realtime.iter(links).map(|(_, t)| t).find(may);
        if first.is_some() {
            return first;
        }
        let mut spare = None;
        let mut slot = q.ridx;
        for _ in 0..LISTS {
            if !q.calendar.list(slot).is_empty() {
                for t in q.calendar.list(slot).iter(links).filter(may) {
                    if spare.is_some() {
                        return Some(t);
                    }
                    spare = Some(t);
                }
            }
            slot = (slot + 1) % LISTS;
        }
        spare.or_else(|| q.idle.iter(links).map(|(_, t)| t).find(may))
    }

    /// Move one waiting thread between two CPUs' queues.
    fn move_one(&mut self, w: &mut World, from: Cpu, to: Cpu) -> bool {
        let Some(t) = self.stealable(w, from, to) else {
            return false;
        };
        self.unqueue(w, from, t);
        self.queue(w, to, t, false);
        w.migrate(t, to);
        self.ask(w, to, t, true);
        true
    }

    fn balance_once(&mut self, w: &mut World) {
        if self.balance == BALANCE_EVERY_DONOR {
            let mut done = vec![false; w.ncpu()];
            let mut gave = vec![false; w.ncpu()];
            loop {
                let donors = w.machine.cpus().filter(|c| !gave[*c as usize]);
                let Some(high) = donors
                    .filter(|c| !done[*c as usize])
                    .max_by_key(|c| (self.seen.load[*c as usize], *c))
                else {
                    break;
                };
                let load = self.seen.load[high as usize];
                gave[high as usize] = true;
                if load <= 1 {
                    break;
                }
                let low = self.placer.receiver(w, &self.seen, high, load - 1, &gave);
                if let Some(low) = low
                    && self.move_one(w, high, low)
                {
                    done[low as usize] = true;
                }
            }
        } else {
            for level in 0..self.placer.levels() {
                for (high, low) in self.placer.pairs(&self.seen, level) {
                    let (a, b) = (self.seen.load[high as usize], self.seen.load[low as usize]);
                    for _ in 0..(a.saturating_sub(b)).div_ceil(2) {
                        if !self.move_one(w, high, low) {
                            break;
                        }
                    }
                }
            }
        }
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
        if self.balance != BALANCE_OFF && w.ncpu() > 1 {
            let at = w.rng.between(self.interval / 2, self.interval * 3 / 2);
            w.arm_timer(BALANCE, at);
        }
    }

    fn on_fork(&mut self, w: &mut World, parent: Option<Tid>, child: Tid) {
        let ticks = self.ticks(w);
        if let Some(p) = parent {
            let mut history = self.threads[p as usize].history.clone();
            self.scale.inherit(&mut history);
            self.threads[child as usize].history = history;
            let tick = self.scale.per_stat_tick();
            self.scale
                .add_run(&mut self.threads[p as usize].history, tick);
            self.renew(w, p);
            let c = w.thread(p).cpu;
            let used = self.slice_of(c) - (self.slice / 6).max(1);
            self.threads[child as usize].used = used.max(0) as i32;
        } else {
            self.scale
                .start(&mut self.threads[child as usize].history, ticks);
        }
        self.renew(w, child);
        let td = &mut self.threads[child as usize];
        td.prio = td.user_prio;
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, place: Place) -> Cpu {
        let ticks = self.ticks(w);
        if let Place::Wake(_) = place {
            let slept_from = self.ticks_at(w.now() - w.thread(t).slept);
            let td = &mut self.threads[t as usize];
            td.used = 0;
            if ticks > slept_from {
                self.scale.add_sleep(&mut td.history, ticks - slept_from);
                self.scale.age(&mut td.history, ticks, false);
            }
            self.renew(w, t);
            let boost = self.boost && Self::is_timeshare(w, t);
            let (td, batch) = (&mut self.threads[t as usize], self.batch);
            // It is queued by what it slept with, the new one counts when it runs.
            td.prio = if boost {
                td.prio.min(batch)
            } else {
                td.user_prio
            };
        }
        let prio = self.threads[t as usize].prio;
        let here = match place {
            Place::Wake(wake) | Place::Fork(wake) => wake.cpu,
            Place::Moved => w.thread(t).cpu,
        };
        self.placer.pick(w, &self.seen, t, prio, here)
    }

    fn enqueue(&mut self, w: &mut World, cpu: Cpu, t: Tid, _: How) {
        self.queue(w, cpu, t, false);
    }

    fn dequeue(&mut self, w: &mut World, cpu: Cpu, t: Tid) {
        self.unqueue(w, cpu, t);
    }

    fn check_preempt(&mut self, w: &mut World, cpu: Cpu, t: Tid, wake: Wake) {
        self.ask(w, cpu, t, cpu != wake.cpu);
    }

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        let t = self.choose(cpu)?;
        self.unqueue(w, cpu, t);
        self.take(w, cpu, t);
        Some(t)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: Left) {
        let ticks = self.ticks(w);
        self.seen.load[cpu as usize] -= 1;
        self.scale
            .age(&mut self.threads[t as usize].history, ticks, true);
        let kernel = std::mem::take(&mut self.cpus[cpu as usize].kernel_preempt);
        match left {
            Left::Preempted => self.queue(w, cpu, t, kernel),
            Left::SliceEnd | Left::Yielded => self.queue(w, cpu, t, false),
            Left::Exited => {
                if let Some(p) = w.parent(t)
                    && w.thread(p).state != State::Dead
                {
                    let run = self.threads[t as usize].history.run;
                    self.scale
                        .add_run(&mut self.threads[p as usize].history, run);
                    self.renew(w, p);
                }
            }
            Left::Blocked | Left::Moved => {}
        }
        let queued = self.choose(cpu);
        self.seen.lowpri[cpu as usize] = queued.map_or(NOTHING, |t| self.threads[t as usize].prio);
    }

    fn on_idle(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        if !self.steals || !super::someone_waits(w) {
            return None;
        }
        for level in 0..self.placer.levels() {
            let Some((c, load)) = self.placer.most_loaded(&self.seen, level, cpu) else {
                continue;
            };
            let needed = if self.placer.is_core(level) {
                self.steal_sibling
            } else {
                self.steal
            };
            if i64::from(load) < needed.max(2) {
                continue;
            }
            if let Some(t) = self.stealable(w, c, cpu) {
                self.unqueue(w, c, t);
                self.take(w, cpu, t);
                return Some(t);
            }
        }
        None
    }

    fn stat_tick(&mut self, w: &mut World, cpu: Cpu) {
        let q = &mut self.cpus[cpu as usize];
        if q.idx == q.ridx {
            q.idx = (q.idx + 1) % LISTS;
            if q.calendar.list(q.ridx).is_empty() {
                q.ridx = q.idx;
            }
        }
        let Some(t) = w.cpu(cpu).curr else {
            if self.polls {
                w.resched(cpu, Why::Preempted);
            }
            return;
        };
        let ticks = self.ticks(w);
        self.scale
            .age(&mut self.threads[t as usize].history, ticks, true);
        if w.thread(t).class == Class::Fifo {
            return;
        }
        if Self::is_timeshare(w, t) {
            let tick = self.scale.per_stat_tick();
            self.scale
                .add_run(&mut self.threads[t as usize].history, tick);
            self.renew(w, t);
            let td = &mut self.threads[t as usize];
            td.prio = td.user_prio;
            self.set_lowpri(w, cpu);
        }
        self.threads[t as usize].used += 1;
        if i64::from(self.threads[t as usize].used) >= self.slice_of(cpu) {
            self.threads[t as usize].used = 0;
            w.resched(cpu, Why::SliceEnd);
        }
    }

    fn timer(&mut self, w: &mut World, _: u32) {
        self.balance_once(w);
        let next = w.rng.between(self.interval / 2, self.interval * 3 / 2);
        w.arm_timer(BALANCE, w.now() + next);
    }

    fn expect(&self, t: Tid) {
        touch(self.threads[t as usize].prio);
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        self.renew(w, t);
        let cpu = w.thread(t).cpu;
        let prio = self.threads[t as usize].user_prio;
        match w.thread(t).state {
            State::Queued => {
                self.unqueue(w, cpu, t);
                self.threads[t as usize].prio = prio;
                self.queue(w, cpu, t, false);
                self.ask(w, cpu, t, false);
            }
            State::Running => {
                self.threads[t as usize].prio = prio;
                self.set_lowpri(w, cpu);
                if self
                    .choose(cpu)
                    .is_some_and(|o| self.threads[o as usize].prio < prio)
                {
                    w.resched(cpu, Why::Preempted);
                }
            }
            State::Sleeping | State::Unborn | State::Dead => {
                self.threads[t as usize].prio = prio;
            }
        }
    }

    fn prio(&self, _: &World, t: Tid) -> i16 {
        self.threads[t as usize].prio as i16
    }
}

impl Ule {
    /// `t`, just out of a queue, will run on `c`: it has its user priority now.
    fn take(&mut self, w: &mut World, c: Cpu, t: Tid) {
        let ticks = self.ticks(w);
        let td = &mut self.threads[t as usize];
        self.scale.age(&mut td.history, ticks, false);
        td.prio = td.user_prio;
        let prio = td.prio;
        self.seen.load[c as usize] += 1;
        let queued = self
            .choose(c)
            .map_or(NOTHING, |o| self.threads[o as usize].prio);
        self.seen.lowpri[c as usize] = queued.min(prio);
        debug_assert!(w.allowed(t, c));
    }
}
