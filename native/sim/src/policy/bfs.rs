//! BFS, the Brain Fuck Scheduler: one queue, earliest virtual deadline first.
//!
//! Models v0.304 (October 2009) on the text of v0.302, which was read whole;
//! v0.304 itself was not found. One machine-wide queue; each thread has a slice
//! and a deadline. The deadline is renewed only when the slice is refilled, so a
//! sleeper that comes back has an early one. A waking thread preempts the CPU
//! whose thread has the latest deadline anywhere in the machine.
//!
//! Left out: SCHED_ISO (workloads have no such class), the promotion of
//! idle-priority threads that hold kernel locks, `sticky` tasks (v0.35x), and
//! the cost of scanning a long queue under one lock. The queue here is a tree
//! per (mask, cache, nice), so picking costs in those that are in use.
use super::super::error::Result;
use super::super::machine::{Cpu, Distance, Machine};
use super::super::shared_queue::SharedQueue;
use super::super::tree::{Nodes, Tree};
use super::super::workload::{Class, Tid};
use super::super::world::{RescheduleReason, State, World};
use super::tunables::{CLOCK_HZ, SPAN, SPAN_OR_ZERO, choice, int, time};
use super::{
    Clocks, EnqueueReason, Policy, Preset, PriorityScale, Role, SelectReason, Series, Settings,
    Spec, SwitchOutReason, Wake, kick_idle, least_loaded,
};

pub const SPEC: Spec = Spec {
    family: "bfs",
    summary: "one queue for all CPUs, earliest virtual deadline first, no balancer",
    models: "BFS v0.304 for Linux 2.6.31, modelled on the text of v0.302 (v0.304 was not found). Left out: SCHED_ISO, sticky tasks (later releases), lock contention.",
    tunables: &[
        time(
            "rr_interval",
            "6ms",
            SPAN,
            "slice before scaling by the number of CPUs",
        ),
        choice(
            "scale",
            &["log2", "power", "none"],
            "log2",
            "slice factor: log2 = 1 + log2(CPUs) (v0.302), power = 1.5^log2(CPUs) (v0.318 on), none = 1",
        ),
        choice(
            "deadline_form",
            &["linear", "ratio"],
            "linear",
            "deadline offset of a nice value: linear = 2 (nice + 21) slices (v0.302), ratio = 1.1^(nice + 20) slices (v0.31x on)",
        ),
        time(
            "slice_end_below",
            "0",
            SPAN_OR_ZERO,
            "a slice with at most this much left counts as used up (v0.31x: 100us)",
        ),
        int(
            "hz",
            "1000",
            "1/s",
            CLOCK_HZ,
            "clock ticks: slices end at ticks and deadlines count ticks",
        ),
    ],
    presets: &[Preset {
        name: "bfs",
        doc: "v0.302's text, for v0.304",
        values: &[],
    }],
    series: &[
        Series {
            name: "deadline",
            unit: "ns",
            doc: "virtual deadline, as an instant",
        },
        Series {
            name: "slice_left",
            unit: "ns",
            doc: "rest of the slice",
        },
    ],
    work_conserving: true,
    strict_classes: 2,
    role: Role::Kernel,
    priorities: PriorityScale::Linux,
    interactivity: None,
    lag: None,
    groups: false,
    make,
};

const DEADLINE: u16 = 0;
const SLICE: u16 = 1;

/// Classes as BFS queues them: real time, then normal, then idle priority.
const NORMAL: u8 = 1;
const IDLEPRIO: u8 = 2;

fn make(s: &Settings, machine: &Machine, nthreads: usize) -> Result<Box<dyn Policy>> {
    let log2 = machine.ncpu().ilog2();
    let base = s.ns("rr_interval");
    let rr = match s.choice("scale") {
        0 => base * i64::from(1 + log2),
        1 => (base as f64 * 1.5f64.powi(log2 as i32)) as i64,
        _ => base,
    };
    let jiffy = 1_000_000_000 / s.int("hz");
    let ratio = s.choice("deadline_form") == 1;
    // Offsets in ns for nice -20..=19, later counted in ticks.
    let offset = (0..40)
        .map(|p: i32| {
            if ratio {
                (rr as f64 * 1.1f64.powi(p)) as i64
            } else {
                i64::from(p + 1) * rr * 2
            }
        })
        .collect();
    Ok(Box::new(Bfs {
        rr,
        jiffy,
        hz: s.int("hz") as u32,
        end_below: s.ns("slice_end_below"),
        offset,
        deadline: vec![0; nthreads],
        slice: vec![0; nthreads],
        first_slice: vec![false; nthreads],
        realtime: SharedQueue::default(),
        nodes: Nodes::new(nthreads),
        trees: Vec::new(),
        active: Vec::new(),
        place: Vec::new(),
        group: vec![0; nthreads],
        held: vec![0; nthreads],
    }))
}

struct Bfs {
    rr: i64,
    jiffy: i64,
    hz: u32,
    end_below: i64,
    offset: Vec<i64>,
    deadline: Vec<i64>,
    slice: Vec<i64>,
    /// Still in the half slice it got from its parent.
    first_slice: Vec<bool>,
    realtime: SharedQueue,
    nodes: Nodes,
    /// One tree per (class, mask, cache, nice): equal distance, equal offset.
    trees: Vec<Tree>,
    /// The trees that are not empty, and where each stands in that list.
    active: Vec<u32>,
    place: Vec<u32>,
    group: Vec<u32>,
    /// The class as which each thread was queued.
    held: Vec<u8>,
}

fn class_of(w: &World, t: Tid) -> u8 {
    w.thread(t).class.level()
}

fn nice_index(w: &World, t: Tid) -> usize {
    (i64::from(w.thread(t).nice) + 20) as usize
}

impl Bfs {
    fn refill(&mut self, w: &mut World, t: Tid) {
        self.slice[t as usize] = self.rr;
        let level = if class_of(w, t) == IDLEPRIO {
            39
        } else {
            nice_index(w, t)
        };
        let now = w.now() / self.jiffy * self.jiffy;
        self.deadline[t as usize] = now + self.offset[level] / self.jiffy * self.jiffy;
        w.record(DEADLINE, t, self.deadline[t as usize] as f64);
    }

    fn charge(&mut self, w: &mut World, cpu: Cpu, t: Tid) {
        self.slice[t as usize] -= w.take_run(cpu);
        w.record(SLICE, t, self.slice[t as usize] as f64);
    }

    fn queue(&mut self, w: &World, t: Tid) {
        let class = class_of(w, t);
        self.held[t as usize] = class;
        if class == 0 {
            self.realtime.push_back(w, t, 99 - w.thread(t).rt_prio);
            return;
        }
        let caches = w.machine.llc_groups().len();
        let last = w.thread(t).last_cpu.unwrap_or(w.thread(t).cpu);
        let cache = w.machine.info(last).llc as usize;
        let row = (class == IDLEPRIO) as usize * w.nmasks() as usize + w.mask_id(t) as usize;
        let g = (row * caches + cache) * 40 + nice_index(w, t);
        if self.trees[g].is_empty() {
            self.place[g] = self.active.len() as u32;
            self.active.push(g as u32);
        }
        self.group[t as usize] = g as u32;
        self.trees[g].insert(&mut self.nodes, t, self.deadline[t as usize], 0);
    }

    fn unqueue(&mut self, t: Tid) {
        if self.held[t as usize] == 0 {
            self.realtime.remove(t);
            return;
        }
        let g = self.group[t as usize] as usize;
        self.trees[g].remove(&mut self.nodes, t);
        if self.trees[g].is_empty() {
            let at = self.place[g] as usize;
            self.active.swap_remove(at);
            if let Some(moved) = self.active.get(at) {
                self.place[*moved as usize] = at as u32;
            }
        }
    }

    /// The thread that CPU `c` would run.
    fn best(&self, w: &World, c: Cpu) -> Option<Tid> {
        if let Some((_, t)) = self.realtime.front(c) {
            return Some(t);
        }
        let caches = w.machine.llc_groups().len();
        let masks = w.nmasks() as usize;
        let mut best: Option<(u8, i64, u64, Tid)> = None;
        for g in &self.active {
            let g = *g as usize;
            let (nice, cache, row) = (g % 40, g / 40 % caches, g / 40 / caches);
            if !w.mask_has((row % masks) as u32, c) {
                continue;
            }
            let Some(t) = self.trees[g].first() else {
                continue;
            };
            let class = if row >= masks { IDLEPRIO } else { NORMAL };
            let near = w.machine.llc_groups()[cache].first().copied().unwrap_or(c);
            let key = self.nodes.key(t) + self.distance(w, near, c, nice);
            let rival = (class, key, self.nodes.order(t), t);
            if best.is_none_or(|b| rival < b) {
                best = Some(rival);
            }
        }
        best.map(|(_, _, _, t)| t)
    }

    /// What a thread of this nice value loses by going from `a` to `b`.
    fn distance(&self, w: &World, a: Cpu, b: Cpu, nice: usize) -> i64 {
        let far = match w.machine.distance(a, b) {
            Distance::Same | Distance::Smt | Distance::Llc => 0,
            Distance::Package => 1,
            Distance::Numa => 3,
        };
        far * (nice as i64 + 1) * self.rr
    }

    /// The nearest idle CPU to the one where `t` ran last.
    fn idle_near(&self, w: &World, t: Tid) -> Option<Cpu> {
        let any = w.idle_for(t)?;
        let old = w.thread(t).cpu;
        let good = |c: &Cpu| w.allowed(t, *c) && w.is_idle(*c);
        if good(&old) {
            return Some(old);
        }
        let siblings = w.machine.smt(old).iter().copied().find(good);
        let cache = || w.machine.llc(old).iter().copied().find(good);
        let node = || w.machine.node(old).iter().copied().find(good);
        Some(siblings.or_else(cache).or_else(node).unwrap_or(any))
    }

    /// The CPU that `t` should take over: the worst class, then the latest
    /// deadline less its distance from the waker.
    fn victim(&self, w: &World, t: Tid, from: Cpu) -> Option<Cpu> {
        let (class, mut worst) = (class_of(w, t), None);
        let asks_within_class = w.thread(t).class == Class::Fair;
        for c in w.mask(t).iter() {
            let Some(r) = w.cpu(c).curr else { continue };
            if w.needs_resched(c) {
                continue;
            }
            let its = class_of(w, r);
            let key = if its == 0 {
                (0, -i64::from(w.thread(r).rt_prio))
            } else {
                let d = self.deadline[r as usize] - self.distance(w, from, c, nice_index(w, r));
                (its, d)
            };
            if worst.is_none_or(|(k, _)| key > k) {
                worst = Some((key, c));
            }
        }
        let ((its, _), c) = worst?;
        let r = w.cpu(c).curr?;
        let wins = if class != its {
            class < its
        } else if class == 0 {
            w.thread(t).rt_prio > w.thread(r).rt_prio
        } else {
            class == NORMAL
                && asks_within_class
                && self.deadline[t as usize] < self.deadline[r as usize]
        };
        wins.then_some(c)
    }
}

impl Policy for Bfs {
    fn clocks(&self) -> Clocks {
        Clocks {
            hz: self.hz,
            ..Clocks::default()
        }
    }

    fn init(&mut self, w: &mut World) {
        self.realtime = SharedQueue::new(w, 99);
        let caches = w.machine.llc_groups().len();
        let n = 2 * w.nmasks() as usize * caches * 40;
        self.trees = vec![Tree::default(); n];
        self.place = vec![0; n];
    }

    fn online_changed(&mut self, w: &mut World) {
        self.realtime.online_changed(w);
    }

    fn on_fork(&mut self, w: &mut World, parent: Option<Tid>, child: Tid) {
        let Some(p) = parent else {
            self.refill(w, child);
            return;
        };
        if w.thread(p).state == State::Running {
            self.charge(w, w.thread(p).cpu, p);
        }
        // The parent's slice is shared, its deadline inherited.
        let half = self.slice[p as usize].max(0) / 2;
        self.slice[p as usize] -= half;
        self.slice[child as usize] = half;
        self.deadline[child as usize] = self.deadline[p as usize];
        self.first_slice[child as usize] = true;
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, _: SelectReason) -> Cpu {
        if let Some(c) = self.idle_near(w, t) {
            return c;
        }
        let old = w.thread(t).cpu;
        if w.allowed(t, old) {
            old
        } else {
            least_loaded(w, t)
        }
    }

    fn enqueue(&mut self, w: &mut World, _: Cpu, t: Tid, _: EnqueueReason) {
        self.queue(w, t);
    }

    fn dequeue(&mut self, _: &mut World, _: Cpu, t: Tid) {
        self.unqueue(t);
    }

    fn check_preempt(&mut self, w: &mut World, _: Cpu, t: Tid, wake: Wake) {
        if let Some(c) = self.victim(w, t, wake.cpu) {
            w.resched(c, RescheduleReason::Preempted);
        }
    }

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        let t = self.best(w, cpu)?;
        self.unqueue(t);
        Some(t)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        self.charge(w, cpu, t);
        match left {
            SwitchOutReason::SliceEnd | SwitchOutReason::Yielded | SwitchOutReason::Preempted => {
                let ended = self.slice[t as usize] <= self.end_below;
                if left != SwitchOutReason::Preempted || ended {
                    self.first_slice[t as usize] = false;
                    self.refill(w, t);
                }
                self.queue(w, t);
                kick_idle(w, t);
            }
            // A sleeper keeps what is left of its slice, and its deadline.
            SwitchOutReason::Blocked | SwitchOutReason::Moved => {
                if self.slice[t as usize] <= 0 {
                    self.refill(w, t);
                }
            }
            SwitchOutReason::Exited => {
                if self.first_slice[t as usize]
                    && let Some(p) = w.parent(t)
                {
                    let rest = self.slice[t as usize].max(0);
                    let parents = &mut self.slice[p as usize];
                    *parents = (*parents + rest).min(self.rr);
                }
            }
        }
    }

    fn tick(&mut self, w: &mut World, cpu: Cpu) {
        let Some(t) = w.cpu(cpu).curr else { return };
        self.charge(w, cpu, t);
        if self.slice[t as usize] <= self.end_below && !w.thread(t).class.runs_on() {
            w.resched(cpu, RescheduleReason::SliceEnd);
        }
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        match w.thread(t).state {
            State::Queued => {
                self.unqueue(t);
                self.queue(w, t);
                if let Some(c) = self.victim(w, t, w.thread(t).cpu) {
                    w.resched(c, RescheduleReason::Preempted);
                }
            }
            State::Running => w.resched(w.thread(t).cpu, RescheduleReason::Preempted),
            State::Unborn | State::Sleeping | State::Dead => {}
        }
    }
}
