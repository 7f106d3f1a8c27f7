//! How long did CPUs idle while threads waited for other ones?
//!
//! The rules are those of docs/definitions/work-conservation.md: a CPU is *spare* while it idles
//! with an empty queue, as far as known, *picks up* the first of its queue while it idles, or may
//! do so unrecorded, and is *busy* otherwise.
use super::changes::{Approach, Changes, Position, Presence, Sweep};
use super::clock::Clock;
use super::cpu_index::CpuIndex;
use super::episodes::{Readings, Watch};
use super::matching::{Masks, Matching};
use super::quotas::{self, Quotas, Throttled};
use crate::error::Result;

/// Class of threads with one allowed CPU only.
pub const PINNED: u16 = u16::MAX;

/// Who may run where, and what to look for.
pub struct IdleQuery {
    pub masks: Masks,
    /// By utid; class 0 beyond its end.
    pub class: Vec<u16>,
    pub lanes: CpuIndex,
    /// By lane, none for that of no known queue.
    pub atom: Vec<Option<usize>>,
    /// Threads that these hold back could not have run elsewhere.
    pub quotas: Option<Quotas>,
}

impl IdleQuery {
    pub fn class(&self, utid: u32) -> u16 {
        self.class.get(utid as usize).copied().unwrap_or(0)
    }
}

/// Threads of one class on one CPU's queue.
#[derive(Default, Clone)]
struct OfClass {
    waiting: u32,
    /// Of them, as of the last instant, those that the CPU is not about to pick up; and the
    /// reading of the class's clock from which on they are so many.
    extra: u32,
    waited_from: i64,
    /// Time busy while another CPU was usable, and the reading at which that began.
    behind: i64,
    from: i64,
}

/// One CPU; the last one stands for no known queue.
#[derive(Default)]
pub struct Lane {
    idle: u32,
    running: u32,
    pinned: u32,
    /// A thread of which nothing is known may be on its queue.
    approached: bool,
    /// Threads waiting by class, and together.
    classes: Vec<OfClass>,
    all: u32,
    /// As of the last instant: the class of which it is about to pick up a thread.
    picks: Option<usize>,
    busy: bool,
    extra_pinned: u32,
    touched: bool,
    pub spare: Clock,
    pub idles: Clock,
    pub blind: Clock,
    waited: i64,
    available: i64,
    available_from: i64,
    waits: i64,
}

/// One thread.
#[derive(Default, Clone, Copy)]
pub struct Thread {
    begin: i64,
    mark: i64,
    pub waiting: i64,
    pub avoidable: i64,
    pub n: u32,
    is_pinned: bool,
}

/// Sums of the machine.
#[derive(Default)]
pub struct Sums {
    pub wasted: i64,
    pub wasted_any: i64,
    pub unplaced: i64,
    pub pinned: i64,
    pub n_pinned: u32,
    /// The longest stretch in which anything was wasted all along, the first of that length.
    pub longest: i64,
    pub longest_begin: Option<i64>,
}

pub struct IdleSweep<'a> {
    pub question: &'a IdleQuery,
    pub lanes: Vec<Lane>,
    pub threads: Vec<Thread>,
    pub sums: Sums,
    /// It is taken out for each call that looks at the sweep itself.
    pub watch: Option<Watch<'a>>,
    /// By atom; by class, on queues and on no known one; by atom and class.
    spare: Vec<u32>,
    placed: Vec<u32>,
    nowhere: Vec<u32>,
    picked: Vec<u32>,
    pinned: u32,
    /// By class, last those pinned: how many of its atoms have a CPU to spare, and the
    /// clock that runs while any does.
    usable_atoms: Vec<u32>,
    usable: Vec<Clock>,
    /// By atom: how many classes wait that may use it.
    wanted_classes: Vec<u32>,
    wanted: Vec<Clock>,
    classes_of: Vec<Vec<usize>>,
    matching: Matching,
    wasted: u32,
    unplaced: u32,
    /// Since when anything is wasted.
    wasting: Option<i64>,
    since: i64,
    touched: Vec<usize>,
    /// Still to come.
    approaches: std::slice::Iter<'a, Approach>,
}

impl<'a> IdleSweep<'a> {
    pub fn new(question: &'a IdleQuery, changes: &'a Changes, watch: Option<Watch<'a>>) -> Self {
        let (nclasses, natoms) = (question.masks.nclasses(), question.masks.natoms);
        let nowhere = question.lanes.nowhere();
        let lanes = (0..question.lanes.count())
            .map(|number| {
                let mut lane = Lane {
                    classes: vec![OfClass::default(); nclasses],
                    busy: true,
                    ..Lane::default()
                };
                lane.blind.set(0, number != nowhere);
                lane
            })
            .collect();
        let mut classes_of = vec![Vec::new(); natoms];
        for (class, atoms) in question.masks.atoms.iter().enumerate() {
            for atom in atoms {
                classes_of[*atom].push(class);
            }
        }
        Self {
            question,
            lanes,
            threads: vec![Thread::default(); changes.threads],
            sums: Sums::default(),
            watch,
            spare: vec![0; natoms],
            placed: vec![0; nclasses],
            nowhere: vec![0; nclasses],
            picked: vec![0; natoms * nclasses],
            pinned: 0,
            usable_atoms: vec![0; nclasses + 1],
            usable: vec![Clock::default(); nclasses + 1],
            wanted_classes: vec![0; natoms],
            wanted: vec![Clock::default(); natoms],
            classes_of,
            matching: Matching::default(),
            wasted: 0,
            unplaced: 0,
            wasting: None,
            since: 0,
            touched: Vec::new(),
            approaches: changes.approaches.iter(),
        }
    }

    fn nclasses(&self) -> usize {
        self.placed.len()
    }

    fn touch(&mut self, lane: usize) {
        if !std::mem::replace(&mut self.lanes[lane].touched, true) {
            self.touched.push(lane);
        }
    }

    /// A thread begins or ends what it does.
    #[inline]
    fn does(&mut self, t: i64, utid: u32, place: Position, begins: bool) {
        if place.doing == Presence::Away {
            return;
        }
        let lane = self.question.lanes.of(place.cpu);
        if place.doing == Presence::Waiting {
            self.waits(t, utid, lane, begins);
        } else {
            let by = if begins { 1 } else { -1 };
            self.lanes[lane].running = self.lanes[lane].running.wrapping_add_signed(by);
        }
        self.touch(lane);
    }

    fn waits(&mut self, t: i64, utid: u32, lane: usize, begins: bool) {
        let class = self.question.class(utid);
        let by = if begins { 1 } else { -1 };
        if class == PINNED {
            self.lanes[lane].pinned = self.lanes[lane].pinned.wrapping_add_signed(by);
            let thread = &mut self.threads[utid as usize];
            self.sums.n_pinned += u32::from(!std::mem::replace(&mut thread.is_pinned, true));
        } else {
            let class = usize::from(class);
            let queue = &mut self.lanes[lane];
            let waiting = &mut queue.classes[class].waiting;
            *waiting = waiting.wrapping_add_signed(by);
            queue.all = queue.all.wrapping_add_signed(by);
            let reading = self.behind(lane, class, t);
            let thread = &mut self.threads[utid as usize];
            if begins {
                thread.mark = reading;
            } else {
                thread.avoidable += reading - thread.mark;
                thread.n += u32::from(reading > thread.mark);
            }
            if let Some(Watch::Waiters(waiters)) = &mut self.watch {
                if begins {
                    waiters.waits(t, utid, lane, class, reading);
                } else {
                    waiters.gone(utid, reading);
                }
            }
        }
        let thread = &mut self.threads[utid as usize];
        if begins {
            thread.begin = t;
        } else {
            thread.waiting += t - thread.begin;
            self.lanes[lane].waits += t - thread.begin;
        }
    }

    /// What follows from the changes of an instant for one CPU.
    fn settle(&mut self, t: i64, number: usize) {
        let nclasses = self.nclasses();
        let Self {
            lanes, question, ..
        } = self;
        let lane = &mut lanes[number];
        lane.touched = false;
        let atom = question.atom[number];
        let (idle, unseen) = match atom {
            Some(_) => (lane.idle > 0, lane.idle == 0 && lane.running == 0),
            None => (false, false),
        };
        lane.idles.set(t, idle);
        lane.blind.set(t, unseen);
        // An idle CPU that has a thread of its own to run is on its way to it. So may one be
        // of which nothing is known: then the first of its queue is not counted as waiting.
        let free = idle || unseen;
        let spare = idle && lane.all == 0 && lane.pinned == 0 && !lane.approached;
        // The one that is picked up is taken from the masks in reverse order, all CPUs last.
        let picks = if free && lane.pinned == 0 && lane.all > 0 {
            lane.classes.iter().rposition(|of| of.waiting > 0)
        } else {
            None
        };
        let extra_pinned = lane.pinned - u32::from(free && lane.pinned > 0);
        self.pinned = self.pinned + extra_pinned - lane.extra_pinned;
        lane.extra_pinned = extra_pinned;

        let busy = !spare && picks.is_none();
        if busy != lane.busy {
            for (of, usable) in lane.classes.iter_mut().zip(&self.usable) {
                let reading = usable.read(t);
                if lane.busy {
                    of.behind += reading - of.from;
                } else {
                    of.from = reading;
                }
            }
            lane.busy = busy;
        }
        for (class, of) in lane.classes.iter_mut().enumerate() {
            let extra = of.waiting - u32::from(picks == Some(class));
            let before = of.extra;
            if extra == before {
                continue;
            }
            let reading = self.usable[class].read(t);
            lane.waited += i64::from(before) * (reading - of.waited_from);
            of.waited_from = reading;
            of.extra = extra;
            let was = self.placed[class] + self.nowhere[class] > 0;
            let sum = if atom.is_some() {
                &mut self.placed[class]
            } else {
                &mut self.nowhere[class]
            };
            *sum = *sum + extra - before;
            let is = self.placed[class] + self.nowhere[class] > 0;
            if was != is {
                for atom in &self.question.masks.atoms[class] {
                    let n = &mut self.wanted_classes[*atom];
                    *n = if is { *n + 1 } else { *n - 1 };
                }
            }
        }
        let Some(atom) = atom else { return };
        if picks != lane.picks {
            for (class, by) in [(lane.picks, -1), (picks, 1)] {
                if let Some(class) = class {
                    let n = &mut self.picked[atom * nclasses + class];
                    *n = n.wrapping_add_signed(by);
                }
            }
            lane.picks = picks;
        }
        if spare != lane.spare.on() {
            lane.spare.set(t, spare);
            let reading = self.wanted[atom].read(t);
            if spare {
                lane.available_from = reading;
            } else {
                lane.available += reading - lane.available_from;
            }
            let before = self.spare[atom];
            self.spare[atom] = if spare { before + 1 } else { before - 1 };
            if before == 0 || self.spare[atom] == 0 {
                for class in self.classes_of[atom].iter().chain([&nclasses]) {
                    let n = &mut self.usable_atoms[*class];
                    *n = if spare { *n + 1 } else { *n - 1 };
                }
            }
        }
    }

    /// Add up to `t` what held since the last instant.
    fn gather(&mut self, t: i64) {
        let dur = t - self.since;
        self.since = t;
        self.sums.wasted += i64::from(self.wasted) * dur;
        self.sums.unplaced += i64::from(self.unplaced) * dur;
        if self.wasted > 0 {
            self.sums.wasted_any += dur;
        }
        if self.usable[self.nclasses()].on() {
            self.sums.pinned += i64::from(self.pinned) * dur;
        }
    }

    /// A stretch of wasting begins at `t`, goes on or ends.
    fn stretch(&mut self, t: i64, wasting: bool) {
        if wasting {
            self.wasting.get_or_insert(t);
        } else if let Some(begin) = self.wasting.take()
            && t - begin > self.sums.longest
        {
            (self.sums.longest, self.sums.longest_begin) = (t - begin, Some(begin));
        }
    }

    fn finish(&mut self, t: i64) {
        self.gather(t);
        self.stretch(t, false);
        if let Some(mut watch) = self.watch.take() {
            watch.instant(t, false, self);
            self.watch = Some(watch);
        }
        for lane in &mut self.lanes {
            for (of, usable) in lane.classes.iter().zip(&self.usable) {
                lane.waited += i64::from(of.extra) * (usable.read(t) - of.waited_from);
            }
        }
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if let (Some(atom), true) = (self.question.atom[number], lane.spare.on()) {
                lane.available += self.wanted[atom].read(t) - lane.available_from;
            }
        }
    }
}

impl Readings for IdleSweep<'_> {
    fn wasted(&self) -> i64 {
        self.sums.wasted
    }

    fn lanes(&self) -> usize {
        self.lanes.len()
    }

    #[inline]
    fn behind(&self, lane: usize, class: usize, t: i64) -> i64 {
        let Lane { busy, classes, .. } = &self.lanes[lane];
        let OfClass { behind, from, .. } = classes[class];
        behind
            + if *busy {
                self.usable[class].read(t) - from
            } else {
                0
            }
    }

    fn spare(&self, lane: usize, t: i64) -> i64 {
        self.lanes[lane].spare.read(t)
    }
}

impl Sweep for IdleSweep<'_> {
    fn change(&mut self, t: i64, utid: u32, from: Position, to: Position) {
        self.does(t, utid, from, false);
        self.does(t, utid, to, true);
    }

    fn idle(&mut self, t: i64, cpu: u16, begins: bool) {
        let _ = t;
        let lane = self.question.lanes.of(cpu);
        let by = if begins { 1 } else { -1 };
        self.lanes[lane].idle = self.lanes[lane].idle.wrapping_add_signed(by);
        self.touch(lane);
    }

    fn instant(&mut self, t: i64) {
        let counting = self.watch.as_ref().is_none_or(Watch::asks_what_is_wasted);
        if counting {
            self.gather(t);
        }
        // All of them are at an instant of changes, those of the window's start aside.
        while let Some(edge) = self.approaches.as_slice().first().filter(|at| at.t <= t) {
            self.approaches.next();
            let lane = self.question.lanes.of(edge.cpu);
            self.lanes[lane].approached = edge.begins;
            self.touch(lane);
        }
        while let Some(lane) = self.touched.pop() {
            self.settle(t, lane);
        }
        for class in 0..=self.nclasses() {
            let on = self.usable_atoms[class] > 0;
            if self.usable[class].set(t, on)
                && class < self.nclasses()
                && let Some(Watch::Waiters(waiters)) = &mut self.watch
            {
                waiters.usable(t, class);
            }
        }
        for (clock, classes) in self.wanted.iter_mut().zip(&self.wanted_classes) {
            clock.set(t, *classes > 0);
        }
        if counting {
            self.count(t);
        }
        if let Some(mut watch) = self.watch.take() {
            watch.instant(t, self.wasted > 0, self);
            self.watch = Some(watch);
        }
    }
}

impl IdleSweep<'_> {
    /// How much is wasted from `t` on.
    fn count(&mut self, t: i64) {
        let Self {
            matching,
            question,
            spare,
            placed,
            nowhere,
            picked,
            ..
        } = self;
        let masks = &question.masks;
        let wasted = matching.most(masks, spare, |k| placed[k] + nowhere[k], picked);
        self.unplaced = if nowhere.iter().any(|n| *n > 0) {
            wasted.saturating_sub(matching.most(masks, spare, |k| placed[k], picked))
        } else {
            0
        };
        self.wasted = wasted;
        self.stretch(t, wasted > 0);
    }
}

/// Sums of one CPU, all in ns.
pub struct OfCpu {
    pub cpu: Option<u16>,
    pub idle: i64,
    pub unknown: i64,
    pub spare: i64,
    pub available: i64,
    pub waiting: i64,
    pub waited: i64,
}

impl IdleSweep<'_> {
    /// Goes over all changes, to the end of the window; returns the throttled threads.
    pub fn run(&mut self, changes: &Changes) -> Result<Vec<Throttled>> {
        let throttled = quotas::tell(self.question.quotas.as_ref(), changes, self)?;
        self.finish(changes.length);
        Ok(throttled)
    }

    /// One row per CPU; the last is that of no known queue, if anybody was there.
    pub fn of_cpus(&self, end: i64) -> Vec<OfCpu> {
        let lanes = &self.question.lanes;
        let rows = self.lanes.iter().enumerate().map(|(number, lane)| OfCpu {
            cpu: lanes.number(number),
            idle: lane.idles.read(end),
            unknown: lane.blind.read(end),
            spare: lane.spare.read(end),
            available: lane.available,
            waiting: lane.waits,
            waited: lane.waited,
        });
        rows.filter(|row| row.cpu.is_some() || row.waiting > 0)
            .collect()
    }
}
