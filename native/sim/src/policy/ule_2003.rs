//! ULE as it began: FreeBSD 5.2.1, current, next and idle queues.
//!
//! Models sched_ule.c of late 2003 (read), with the rules of the 2005 file as
//! switches. Per CPU two rows of 64 lists for timeshare threads, `current` and
//! `next`, and a row for the idle class. Interactive threads go to current,
//! others to next; when current is empty the two change places. Slices depend on
//! nice: 19 and more above the nicest of the CPU a thread does not run.
//!
//! Run time is charged by the statistics clock, slices count it. Left out:
//! interrupt threads, priority lending, the CPU groups of 2005 and its balancer.
//! Real-time threads: the current queue, better than all others.
use super::super::error::Result;
use super::super::machine::{Cpu, Machine};
use super::super::queue::{Levels, Links};
use super::super::workload::{Class, Tid};
use super::super::world::{RescheduleReason, State, World};
use super::tunables::{CLOCK_HZ, COUNT_OR_ZERO, SPAN_OR_ZERO, int, switch, time};
use super::ule_2003_score::{History, Scale};
use super::ule_score::{INTERACT, SLP_RUN_FORK, SLP_RUN_MAX};
use super::{
    Clocks, EnqueueReason, InteractivityRule, Policy, Preset, PriorityScale, Role, SelectReason,
    Series, Settings, Spec, SwitchOutReason, Wake,
};

pub const SPEC: Spec = Spec {
    family: "ule-2003",
    summary: "ULE's first form: current, next and idle queues per CPU, slices by nice",
    models: "FreeBSD 5.2.1 sched_ule.c, modelled on the late-2003 text; rules of 2005 as switches. Left out: interrupt threads, CPU groups.",
    tunables: &[
        int(
            "hz",
            "100",
            "1/s",
            CLOCK_HZ,
            "ticks in which sleep and slices are expressed",
        ),
        int(
            "stathz",
            "128",
            "1/s",
            CLOCK_HZ,
            "statistics clock: charges run time and slices",
        ),
        int(
            "slice_min",
            "0",
            "stat ticks",
            COUNT_OR_ZERO,
            "least slice; 0 = hz / 100",
        ),
        int(
            "slice_max",
            "0",
            "stat ticks",
            COUNT_OR_ZERO,
            "longest slice; 0 = hz / 7",
        ),
        INTERACT,
        SLP_RUN_MAX,
        SLP_RUN_FORK,
        switch(
            "rules_2005",
            "off",
            "2005: longest slice for interactive threads, gentle forgetting, preempted threads stay in current, least slice beyond the nice window",
        ),
        switch(
            "steal",
            "on",
            "an idle CPU takes one thread from the most loaded",
        ),
        time(
            "balance_interval",
            "1s",
            SPAN_OR_ZERO,
            "time between balancer runs; 0 = never",
        ),
    ],
    presets: &[Preset {
        name: "ule-2003",
        doc: "FreeBSD 5.2.1",
        values: &[],
    }],
    series: &[
        Series {
            name: "score",
            unit: "0..100",
            doc: "interactivity score; below 30 is interactive",
        },
        Series {
            name: "priority",
            unit: "priority",
            doc: "priority, lower is better",
        },
        Series {
            name: "slice",
            unit: "stat ticks",
            doc: "slice given at queueing",
        },
    ],
    work_conserving: false,
    strict_classes: 2,
    role: Role::Kernel,
    priorities: PriorityScale::Own,
    interactivity: Some(InteractivityRule::Ule2003),
    lag: None,
    groups: false,
    make,
};

const SCORE: u16 = 0;
const PRIORITY: u16 = 1;
const SLICE: u16 = 2;

const LISTS: usize = 64;
const RQ_PPQ: i64 = 4;
const MIN_TIMESHARE: i64 = 160;
const MAX_TIMESHARE: i64 = 223;
const IDLE_PRIO: i64 = 240;
/// The distance in nice over which slices shrink to nothing.
const NICE_WINDOW: i64 = 19;
const BALANCE: u32 = 0;

fn make(s: &Settings, machine: &Machine, nthreads: usize) -> Result<Box<dyn Policy>> {
    let hz = s.int("hz");
    let or = |given: i64, auto: i64| if given == 0 { auto.max(1) } else { given };
    let ncpu = machine.ncpu();
    let min = or(s.int("slice_min"), hz / 100);
    Ok(Box::new(Ule2003 {
        scale: Scale::new(s),
        min,
        max: or(s.int("slice_max"), hz / 7).max(min),
        later: s.is_on("rules_2005"),
        steals: s.is_on("steal"),
        interval: s.ns("balance_interval"),
        threads: vec![Ke::default(); nthreads],
        cpus: vec![
            Kseq {
                rows: [Levels::new(LISTS), Levels::new(LISTS), Levels::new(LISTS),],
                current: 0,
                load: 0,
                timeshare: 0,
                nices: [0; 40],
            };
            ncpu
        ],
        links: Links::new(nthreads),
    }))
}

#[derive(Debug, Clone, Default)]
struct Ke {
    past: History,
    prio: i64,
    slice: i64,
    row: usize,
    level: usize,
    /// As it is counted in its CPU's load.
    nice: i64,
    counted: bool,
}

const IDLE_ROW: usize = 2;

#[derive(Debug, Clone)]
struct Kseq {
    /// Current and next (which is which changes), and idle.
    rows: [Levels; 3],
    current: usize,
    load: u32,
    timeshare: u32,
    nices: [u32; 40],
}

impl Kseq {
    fn nice_min(&self) -> i64 {
        let least = self.nices.iter().position(|n| *n > 0);
        least.map_or(0, |i| i as i64 - 20)
    }
}

struct Ule2003 {
    scale: Scale,
    min: i64,
    max: i64,
    later: bool,
    steals: bool,
    interval: i64,
    threads: Vec<Ke>,
    cpus: Vec<Kseq>,
    links: Links,
}

impl Ule2003 {
    fn ke(&mut self, t: Tid) -> &mut Ke {
        &mut self.threads[t as usize]
    }

    fn score(&self, t: Tid) -> i64 {
        self.scale.score(&self.threads[t as usize].past)
    }

    fn is_timeshare(w: &World, t: Tid) -> bool {
        matches!(w.thread(t).class, Class::Fair | Class::Batch)
    }

    fn renew(&mut self, w: &mut World, t: Tid) {
        let th = w.thread(t);
        let (class, nice) = (th.class, i64::from(th.nice));
        let prio = match class {
            // 99 real-time levels on 32, below interrupts.
            Class::Deadline
            | Class::Interrupt
            | Class::Kernel
            | Class::Fifo
            | Class::RoundRobin => 128 + (99 - i64::from(th.rt_prio)) * 32 / 99,
            Class::Idle => IDLE_PRIO,
            Class::Fair | Class::Batch => {
                let score = self.score(t);
                w.record(SCORE, t, score as f64);
                (MIN_TIMESHARE + score * 64 / 100 + nice).clamp(MIN_TIMESHARE, MAX_TIMESHARE)
            }
        };
        self.ke(t).prio = prio;
        w.record(PRIORITY, t, prio as f64);
    }

    fn is_interactive(&self, t: Tid) -> bool {
        self.scale.is_interactive(self.score(t))
    }

    /// The slice of `t` on `c`; 0 is "not now".
    fn give_slice(&mut self, w: &mut World, c: Cpu, t: Tid) {
        let q = &self.cpus[c as usize];
        let nice = i64::from(w.thread(t).nice);
        let slice = if !Self::is_timeshare(w, t) {
            self.max
        } else if self.is_interactive(t) {
            if self.later { self.max } else { self.min }
        } else {
            let above = nice - q.nice_min();
            if q.timeshare == 0 || above < 0 {
                self.max
            } else if above <= NICE_WINDOW {
                let range = self.max - self.min + 1;
                // A slice of 0, at the edge of the window, is "not now" in 2003; in
                // 2005 such a thread runs to the next tick.
                (self.max - above * range / NICE_WINDOW).max(i64::from(self.later))
            } else if self.later {
                self.min
            } else {
                0
            }
        };
        self.ke(t).slice = slice;
        w.record(SLICE, t, slice as f64);
    }

    fn queue(&mut self, w: &World, c: Cpu, t: Tid, to_current: bool) {
        let q = &mut self.cpus[c as usize];
        let ke = &mut self.threads[t as usize];
        ke.row = match w.thread(t).class {
            Class::Idle => IDLE_ROW,
            Class::Deadline
            | Class::Interrupt
            | Class::Kernel
            | Class::Fifo
            | Class::RoundRobin => q.current,
            _ if to_current => q.current,
            _ => 1 - q.current,
        };
        ke.level = (ke.prio / RQ_PPQ) as usize;
        q.rows[ke.row].push_back(&mut self.links, ke.level, t);
    }

    fn unqueue(&mut self, c: Cpu, t: Tid) {
        let (row, level) = {
            let ke = &self.threads[t as usize];
            (ke.row, ke.level)
        };
        self.cpus[c as usize].rows[row].remove(&mut self.links, level, t);
    }

    /// Count `t` in (or out of) the load of `c`.
    fn count(&mut self, w: &World, c: Cpu, t: Tid, joins: bool) {
        let timeshare = Self::is_timeshare(w, t);
        let ke = &mut self.threads[t as usize];
        let q = &mut self.cpus[c as usize];
        if joins {
            ke.nice = i64::from(w.thread(t).nice);
            ke.counted = timeshare;
            q.load += 1;
        } else {
            q.load -= 1;
        }
        if ke.counted {
            let n = &mut q.nices[(ke.nice + 20) as usize];
            if joins {
                q.timeshare += 1;
                *n += 1;
            } else {
                q.timeshare -= 1;
                *n -= 1;
            }
        }
    }

    fn choose(&mut self, w: &mut World, c: Cpu) -> Option<Tid> {
        // Those outside the nice window go round at most once.
        let most = self.cpus[c as usize].rows[0].len() + self.cpus[c as usize].rows[1].len();
        for _ in 0..=most {
            let q = &mut self.cpus[c as usize];
            if q.rows[q.current].is_empty() {
                q.current = 1 - q.current;
            }
            let Some((_, t)) = q.rows[q.current].front() else {
                return q.rows[IDLE_ROW].front().map(|(_, t)| t);
            };
            if self.threads[t as usize].slice > 0 || !Self::is_timeshare(w, t) {
                return Some(t);
            }
            // Outside the window: another slice, or wait in next.
            self.unqueue(c, t);
            self.give_slice(w, c, t);
            self.queue(w, c, t, false);
        }
        None
    }

    /// A waiting thread of `from` that may run on `to`.
    fn stealable(&self, w: &World, from: Cpu, to: Cpu) -> Option<Tid> {
        let q = &self.cpus[from as usize];
        [q.current, 1 - q.current, IDLE_ROW]
            .into_iter()
            .flat_map(|row| q.rows[row].iter(&self.links))
            .map(|(_, t)| t)
            .find(|t| w.allowed(*t, to))
    }

    fn most_loaded(&self, w: &World, but: Option<Cpu>) -> Option<Cpu> {
        let all = w.machine.cpus().filter(|c| Some(*c) != but);
        all.max_by_key(|c| (self.cpus[*c as usize].load, std::cmp::Reverse(*c)))
    }

    fn balance(&mut self, w: &mut World) {
        let least = w
            .machine
            .cpus()
            .min_by_key(|c| (self.cpus[*c as usize].load, *c));
        let (Some(high), Some(low)) = (self.most_loaded(w, None), least) else {
            return;
        };
        // The running thread of the loaded CPU is not counted: 2 against 1 is balanced.
        let spare = self.cpus[high as usize].load.saturating_sub(1);
        let few = self.cpus[low as usize].load;
        for _ in 0..spare.saturating_sub(few).div_ceil(2) {
            let Some(t) = self.stealable(w, high, low) else {
                break;
            };
            self.unqueue(high, t);
            self.count(w, high, t, false);
            self.count(w, low, t, true);
            self.queue(w, low, t, self.is_interactive(t));
            w.migrate(t, low);
            self.ask(w, low, t);
        }
    }

    fn ask(&self, w: &mut World, c: Cpu, t: Tid) {
        if let Some(r) = w.cpu(c).curr
            && self.threads[t as usize].prio < self.threads[r as usize].prio
        {
            w.resched(c, RescheduleReason::Preempted);
        }
    }
}

impl Policy for Ule2003 {
    fn clocks(&self) -> Clocks {
        Clocks {
            stathz: self.scale.stathz as u32,
            ..Clocks::default()
        }
    }

    fn init(&mut self, w: &mut World) {
        if self.interval > 0 && w.ncpu() > 1 {
            w.arm_timer(BALANCE, self.interval);
        }
    }

    fn on_fork(&mut self, w: &mut World, parent: Option<Tid>, child: Tid) {
        self.ke(child).slice = 1;
        if let Some(p) = parent {
            self.ke(child).past = self.scale.fork(&mut self.threads[p as usize].past);
        }
        self.renew(w, child);
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, _: SelectReason) -> Cpu {
        let old = w.thread(t).cpu;
        if !w.allowed(t, old) {
            return super::idle_or_previous(w, t);
        }
        let fair = w.thread(t).class.level() > 0;
        if fair && self.cpus[old as usize].load >= 1 {
            return w.idle_for(t).unwrap_or(old);
        }
        old
    }

    fn enqueue(&mut self, w: &mut World, cpu: Cpu, t: Tid, how: EnqueueReason) {
        if how == EnqueueReason::Wakeup {
            let from = w.thread(t).since - w.thread(t).slept;
            let slept = self.scale.ticks_at(w.now()) - self.scale.ticks_at(from);
            self.scale
                .add_sleep(&mut self.threads[t as usize].past, slept);
            self.renew(w, t);
        }
        self.count(w, cpu, t, true);
        if how == EnqueueReason::Wakeup {
            self.give_slice(w, cpu, t);
        }
        self.queue(w, cpu, t, self.is_interactive(t));
    }

    fn dequeue(&mut self, w: &mut World, cpu: Cpu, t: Tid) {
        self.unqueue(cpu, t);
        self.count(w, cpu, t, false);
    }

    fn check_preempt(&mut self, w: &mut World, cpu: Cpu, t: Tid, _: Wake) {
        self.ask(w, cpu, t);
    }

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        let t = self.choose(w, cpu)?;
        self.unqueue(cpu, t);
        Some(t)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        if !left.stays_queued() {
            self.count(w, cpu, t, false);
            if left == SwitchOutReason::Exited
                && let Some(p) = w.parent(t)
            {
                let run = self.threads[t as usize].past.run;
                self.scale.add_run(&mut self.threads[p as usize].past, run);
            }
            return;
        }
        let to_current =
            self.is_interactive(t) || (self.later && left == SwitchOutReason::Preempted);
        self.queue(w, cpu, t, to_current);
    }

    fn on_idle(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        if !self.steals {
            return None;
        }
        let from = self.most_loaded(w, Some(cpu))?;
        if self.cpus[from as usize].load <= 1 {
            return None;
        }
        let t = self.stealable(w, from, cpu)?;
        self.unqueue(from, t);
        self.count(w, from, t, false);
        self.count(w, cpu, t, true);
        Some(t)
    }

    fn stat_tick(&mut self, w: &mut World, cpu: Cpu) {
        let Some(t) = w.cpu(cpu).curr else { return };
        if w.thread(t).class.runs_on() {
            return;
        }
        if Self::is_timeshare(w, t) {
            self.scale.charge_tick(&mut self.threads[t as usize].past);
        }
        self.ke(t).slice -= 1;
        if self.threads[t as usize].slice > 0 {
            return;
        }
        self.renew(w, t);
        self.give_slice(w, cpu, t);
        w.resched(cpu, RescheduleReason::SliceEnd);
    }

    fn timer(&mut self, w: &mut World, _: u32) {
        self.balance(w);
        w.arm_timer(BALANCE, w.now() + self.interval);
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        self.renew(w, t);
        let cpu = w.thread(t).cpu;
        match w.thread(t).state {
            State::Queued => {
                self.unqueue(cpu, t);
                self.count(w, cpu, t, false);
                self.count(w, cpu, t, true);
                self.give_slice(w, cpu, t);
                self.queue(w, cpu, t, self.is_interactive(t));
                self.ask(w, cpu, t);
            }
            State::Running => {
                self.count(w, cpu, t, false);
                self.count(w, cpu, t, true);
                self.give_slice(w, cpu, t);
                w.resched(cpu, RescheduleReason::Preempted);
            }
            State::Unborn | State::Sleeping | State::Dead => {}
        }
    }

    fn prio(&self, _: &World, t: Tid) -> i16 {
        self.threads[t as usize].prio as i16
    }
}
