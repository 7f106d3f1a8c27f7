//! CFS, the Completely Fair Scheduler, as of Linux 2.6.31, 2.6.32, 5.10 and 6.1.
//!
//! Models sched_fair.c of 2.6.32.y and of the 20 ms-latency era before it
//! (2.6.30/31), and kernel/sched/fair.c of the 5.10 and 6.1 stable series. Per CPU
//! a tree by virtual run time; the leftmost runs. A slice is the thread's share of
//! a period that all runnable threads fit in; it is checked at ticks. A waking
//! thread preempts when it is behind by more than the wakeup granularity; a sleeper
//! comes back with a bounded credit.
//!
//! Where 5.10 and 6.1 differ from 2.6.32, by function of fair.c:
//!
//! * wakeup_gran: no ADAPTIVE_GRAN, the granularity is that of the wakee's weight.
//! * check_preempt_wakeup: the preempting thread becomes `next`, and the preempted one `last` where
//!   at least sched_nr_latency threads are runnable. pick_next_entity prefers next to last;
//!   set_next_entity forgets only the buddy that it picks.
//! * yield_task_fair: the yielding thread is `skip`, not picked if that is not too unfair.
//! * check_preempt_curr (core.c): who is preempted by a wakeup is charged up to that only, and
//!   its successor from there on (2.6.35).
//! * task_fork_fair: a new thread gets its place in the queue of its parent's CPU and
//!   takes it along to another, as one that is moved does.
//! * sched_slice: no slice is shorter than the least granularity (BASE_SLICE, 5.13).
//! * select_task_rq_fair: `linux_wake`; 6.1 looks for idle CPUs as far as `linux_util`
//!   says (SIS_UTIL, 6.0), 5.10 on these machines everywhere (SIS_PROP: four at least).
//! * cpu_load, task_h_load: `linux_load`, decaying averages (5.7).
//! * load_balance: `linux_domains` by groups (5.5). detach_tasks takes the thread that
//!   was picked or queued longest ago (the list is kept so since 4.14), and task_hot
//!   lets go of one that has not run since it moved, and of buddies if the CPU idles.
//! * newidle_balance: `linux_newidle`; by the rate of success (NI_RANDOM) in late
//!   releases of the 6.1 series, 6.1.192 among them.
//!
//! Control groups: `linux_groups`, `linux_bandwidth`, `cfs_groups`; 2.6 has no quotas, and
//! its groups have the averages of the newer releases here (update_shares_cpu divided
//! them by loads sampled at balancing).
//!
//! Left out: HRTICK, power saving, the cost of balancing; of 5.10 and 6.1 besides: that a
//! CPU with SCHED_IDLE threads alone counts as idle, and 6.3's limit of a slice to the
//! latency. Real-time threads: `linux_rt`. Load balancing and CPU choice:
//! `linux_domains`, with the loads that lag behind as 2.6's did.
use super::super::error::Result;
use super::super::machine::{Cpu, Machine};
use super::super::tree::Nodes;
use super::super::workload::{Class, Tid};
use super::super::world::{RescheduleReason, State, World};
use super::cfs_place::Placing;
use super::cfs_queue::{Rq, Rqs, Se, VRUNTIME};
use super::linux_bandwidth::SLICE;
use super::linux_domains::{Balancer, Knobs, Style, fallback_cpu};
use super::linux_fair::{log2_factor, virtual_ns, weight_of};
use super::linux_groups::{self, Entity, Groups, Levels, Queue};
use super::linux_newidle::Newidle;
use super::linux_rt::RtQueues;
use super::linux_wake::{self, Placer};
use super::{Clocks, EnqueueReason, Policy, SelectReason, Settings, SwitchOutReason, Wake};

pub(super) fn make(s: &Settings, machine: &Machine, nthreads: usize) -> Result<Box<dyn Policy>> {
    let ncpu = machine.ncpu();
    let f = if s.is_on("scaling") {
        log2_factor(ncpu, 8)
    } else {
        1
    };
    let hz = s.int("hz");
    let newidle = Newidle {
        on: s.is_on("balance_newidle"),
        least_idle: s.ns("newidle_least_idle"),
        cost: s.ns("newidle_cost"),
        by_success: s.is_on("newidle_by_success"),
        migration_cost: s.ns("sched_migration_cost"),
        ..Newidle::ALWAYS
    };
    let by_groups = s.choice("balancer") == 1;
    let knobs = Knobs {
        style: if by_groups {
            Style::Groups
        } else {
            Style::Load
        },
        on: s.is_on("balance"),
        newidle,
        keeps_busy_interval: s.is_on("idle_keeps_busy_interval"),
        busy_idx: 2,
        idle_idx: 1,
        by_least: s.choice("group_load") == 1,
        within_node: s.choice("balance_span") == 1,
        looks_by_use: s.is_on("sis_util"),
        ..if by_groups {
            Knobs::BY_GROUPS
        } else {
            Knobs::OF_2_6
        }
    };
    let k = Constants {
        place: Placing::new(s, ncpu),
        wakeup_granularity: s.ns("sched_wakeup_granularity") * f,
        migration_cost: s.ns("sched_migration_cost"),
        wakeup_preempt: s.is_on("wakeup_preempt"),
        adaptive: s.is_on("adaptive_gran"),
        asym: s.is_on("asym_gran"),
        buddies: match s.choice("buddies") {
            0 => Buddies::Off,
            1 => Buddies::Last,
            2 => Buddies::NextLast,
            _ => Buddies::Preempting,
        },
        yield_skips: s.is_on("yield_skips"),
        place_at_fork: s.is_on("place_at_fork"),
        skips_clock: s.is_on("skip_clock_update"),
        early: s.is_on("early_slice_check"),
        wake_cpu: match s.choice("wake_cpu") {
            0 => WakeCpu::WakeIdle,
            1 => WakeCpu::IdleSibling,
            2 => WakeCpu::LongestIdle,
            _ => WakeCpu::Scan,
        },
        forkexec_idx: s.int("forkexec_idx") as usize,
        jiffy: 1_000_000_000 / hz,
        hz: hz as u32,
    };
    let fresh = Se {
        avg_wakeup: k.wakeup_granularity,
        ..Se::default()
    };
    Ok(Box::new(Cfs {
        k,
        q: Rqs {
            groups: Groups::default(),
            bandwidth_slice: s.ns(SLICE.name),
            place: k.place,
            rqs: vec![Rq::default(); ncpu],
            se: vec![fresh; nthreads],
            nodes: Nodes::new(nthreads),
            migration_cost: k.migration_cost,
            oldest: s.is_on("pull_oldest"),
            averages: k.wake_cpu == WakeCpu::Scan,
            touches: 0,
            jiffy: k.jiffy,
        },
        rt: RtQueues::new(ncpu, nthreads, s),
        placer: Placer::new(
            nthreads,
            s.int(linux_wake::FLIPS.name),
            Knobs::BY_GROUPS.imbalance_pct,
            true,
        ),
        balancer: Balancer::new(machine, knobs, hz),
    }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WakeCpu {
    WakeIdle,
    IdleSibling,
    LongestIdle,
    Scan,
}

/// The threads that pick prefers to the leftmost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Buddies {
    Off,
    Last,
    NextLast,
    Preempting,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Constants {
    place: Placing,
    wakeup_granularity: i64,
    migration_cost: i64,
    wakeup_preempt: bool,
    adaptive: bool,
    asym: bool,
    buddies: Buddies,
    yield_skips: bool,
    place_at_fork: bool,
    skips_clock: bool,
    early: bool,
    pub(super) wake_cpu: WakeCpu,
    pub(super) forkexec_idx: usize,
    jiffy: i64,
    hz: u32,
}

pub(super) struct Cfs {
    pub(super) k: Constants,
    pub(super) q: Rqs,
    rt: RtQueues,
    /// Where wakes go from 5.10 on.
    pub(super) placer: Placer,
    pub(super) balancer: Balancer,
}

impl Cfs {
    fn place(&mut self, c: Cpu, t: Tid, how: EnqueueReason, forked: bool) {
        let q = self.q.groups.queue_of(t, c);
        let min = self.q.rqs[q as usize].min_vruntime;
        let slice = self.q.slice(q, t, true);
        let se = &mut self.q.se[t as usize];
        se.vruntime = if how == EnqueueReason::New {
            self.k
                .place
                .after(se.vruntime, min, forked, slice, se.weight)
        } else {
            self.k.place.woken(se.vruntime, min)
        };
    }

    fn granularity(&self, q: Queue, curr: Entity, t: Entity) -> i64 {
        let mut gran = self.k.wakeup_granularity;
        let (r, s) = (&self.q.se[curr as usize], &self.q.se[t as usize]);
        if self.k.adaptive {
            let ran = r.ran - r.ran_at_pick;
            let until = 2 * s.avg_wakeup * i64::from(self.q.rqs[q as usize].nr);
            gran = gran.min((until - ran).max(0));
        }
        if self.k.asym {
            virtual_ns(gran, s.weight)
        } else {
            gran
        }
    }

    /// Whether `t` beats `other`: 1 by more than the granularity, 0 within it,
    /// -1 not at all.
    fn beats(&self, q: Queue, other: Entity, t: Entity) -> i32 {
        let ahead = self.q.se[other as usize].vruntime - self.q.se[t as usize].vruntime;
        if ahead <= 0 {
            -1
        } else {
            i32::from(ahead > self.granularity(q, other, t))
        }
    }

    /// A thread issues a wakeup: how much it runs between two of them.
    fn note_waker(&mut self, w: &mut World, wake: Wake) {
        if let Some(p) = wake.waker
            && self.q.running(wake.cpu) == Some(p)
        {
            self.q.update(w, wake.cpu);
            let se = &mut self.q.se[p as usize];
            let sample = se.ran - se.ran_at_wakeup;
            se.ran_at_wakeup = se.ran;
            se.avg_wakeup += (sample - se.avg_wakeup) >> 3;
        }
    }

    fn pick_fair(&mut self, w: &mut World, c: Cpu) -> Option<Tid> {
        self.q.hold_exhausted(w, c);
        let root = Queue::from(c);
        let mut q = root;
        let t = loop {
            let Some(e) = self.first_of(q) else {
                self.q.forget_prev(root);
                return None;
            };
            match self.q.groups.inner(e) {
                Some(inner) => q = inner,
                None => break e,
            }
        };
        self.q.touch(t);
        self.q.go_on(root, q, t);
        self.q.groups.runs(w.now(), t, true);
        w.take_run(c);
        Some(t)
    }

    /// What `q` runs next.
    fn first_of(&self, q: Queue) -> Option<Entity> {
        let rq = &self.q.rqs[q as usize];
        let first = rq.tree.first()?;
        let fair = |e: &Entity| self.beats(q, *e, first) < 1;
        let (next, last) = (rq.next.filter(fair), rq.last.filter(fair));
        let buddy = if self.k.buddies == Buddies::Preempting {
            next.or(last)
        } else {
            last.or(next)
        };
        Some(buddy.unwrap_or_else(|| {
            let second = || rq.tree.second(&self.q.nodes).filter(fair);
            let skipped = rq.skip == Some(first);
            skipped.then(second).flatten().unwrap_or(first)
        }))
    }

    /// `set` on the queue of `t` on `c`, and on those above with what stands for it there.
    fn at_every_level(&mut self, c: Cpu, t: Tid, set: impl Fn(&mut Rq, Entity)) {
        let (mut q, mut e) = (self.q.groups.queue_of(t, c), t);
        loop {
            set(self.q.rq(q), e);
            let Some(up) = self.q.groups.entity(q) else {
                return;
            };
            (q, e) = (self.q.groups.above(q), up);
        }
    }

    fn clear_buddies(&mut self, q: Queue) {
        let rq = self.q.rq(q);
        rq.next = None;
        rq.last = None;
    }

    /// Out of whatever holds it on `c`.
    fn leave(&mut self, w: &mut World, c: Cpu, t: Tid) {
        if self.q.se[t as usize].realtime {
            self.rt.remove(w, t);
            self.q.rq(Queue::from(c)).realtime -= 1;
        } else {
            self.q.update(w, c);
            let q = self.q.groups.queue_of(t, c);
            self.q.release(w, q, t);
            self.q.take_out(q, t);
            self.q.account(c, t, -1);
            self.q.gone(w, q, t);
        }
    }

    fn join(&mut self, w: &mut World, c: Cpu, t: Tid) {
        let realtime = w.thread(t).class.is_realtime();
        self.q.se[t as usize].realtime = realtime;
        if realtime {
            self.rt.push(w, c, t, false);
            self.q.rq(Queue::from(c)).realtime += 1;
        } else {
            let q = self.q.groups.queue_of(t, c);
            self.q.insert(q, t);
            self.q.account(c, t, 1);
            self.q.touch(t);
            self.q.come(w, q, t);
        }
    }
}

impl Policy for Cfs {
    fn clocks(&self) -> Clocks {
        Clocks {
            hz: self.k.hz,
            ..Clocks::default()
        }
    }

    fn init(&mut self, w: &mut World) {
        self.q.init_groups(w);
        self.rt.init(w, linux_groups::timers(w));
    }

    fn timer(&mut self, w: &mut World, id: u32) {
        if !self.rt.timer(w, id) {
            self.q.quota_timer(w, id);
        }
    }

    fn on_fork(&mut self, w: &mut World, parent: Option<Tid>, child: Tid) {
        self.placer.born(parent, child);
        let weight = weight_of(w, child);
        let home = w.thread(child).cpu;
        let q = self.q.groups.queue_of(child, home);
        let mut v = self.q.rqs[q as usize].min_vruntime;
        if let Some(p) = parent {
            self.q.update(w, w.thread(p).cpu);
            let se = &self.q.se[p as usize];
            if !se.realtime {
                let from = self.q.groups.queue_of(p, se.home);
                v = se.vruntime + self.q.rqs[q as usize].min_vruntime
                    - self.q.rqs[from as usize].min_vruntime;
            }
            if self.k.place_at_fork {
                self.q.se[child as usize].weight = weight;
                let slice = self.q.slice(q, child, true);
                let min = self.q.rqs[q as usize].min_vruntime;
                v = self.k.place.after(v, min, true, slice, weight);
            }
        }
        let se = &mut self.q.se[child as usize];
        se.vruntime = v;
        se.weight = weight;
        se.home = home;
    }

    fn online_changed(&mut self, w: &mut World) {
        self.balancer.online_changed(w);
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, place: SelectReason) -> Cpu {
        if let SelectReason::Wake(wake) = place {
            self.note_waker(w, wake);
        }
        if w.thread(t).class.is_realtime() && place != SelectReason::Offline {
            return self.rt.select_cpu(w, t);
        }
        match place {
            SelectReason::Wake(wake) => self.wake_cpu(w, t, wake),
            SelectReason::Fork(wake) => self.fork_cpu(w, t, wake.cpu),
            SelectReason::Moved => super::idle_or_previous(w, t),
            SelectReason::Offline => fallback_cpu(w, t),
        }
    }

    fn enqueue(&mut self, w: &mut World, cpu: Cpu, t: Tid, how: EnqueueReason) {
        if how == EnqueueReason::Wakeup {
            self.balancer.woken(w, cpu);
            self.q.groups.utilisation.wakes(t, cpu);
        }
        self.q.update(w, cpu);
        self.q.follow(w, cpu);
        if !w.thread(t).class.is_realtime() {
            self.q.se[t as usize].weight = weight_of(w, t);
            self.q.rebase(cpu, t);
            let parent = w.parent(t);
            let has_place = how == EnqueueReason::New && self.k.place_at_fork && parent.is_some();
            if how != EnqueueReason::Moved && !has_place {
                self.place(cpu, t, how, parent.is_some());
            }
            if how == EnqueueReason::New
                && self.k.place.child_first
                && let Some(p) = self.q.running(cpu)
                && parent == Some(p)
            {
                let (pv, cv) = (
                    self.q.se[p as usize].vruntime,
                    self.q.se[t as usize].vruntime,
                );
                if pv < cv {
                    self.q.se[p as usize].vruntime = cv;
                    self.q.se[t as usize].vruntime = pv;
                    w.resched(cpu, RescheduleReason::Preempted);
                }
            }
            w.record(VRUNTIME, t, self.q.se[t as usize].vruntime as f64);
        }
        self.join(w, cpu, t);
    }

    fn dequeue(&mut self, w: &mut World, cpu: Cpu, t: Tid) {
        self.leave(w, cpu, t);
    }

    fn check_preempt(&mut self, w: &mut World, cpu: Cpu, t: Tid, _: Wake) {
        let Some(curr) = w.cpu(cpu).curr else { return };
        if self.q.se[t as usize].realtime {
            if self.rt.preempts(w, cpu, t) {
                w.resched(cpu, RescheduleReason::Preempted);
            } else {
                self.rt.push_away(w, t);
            }
            return;
        }
        if w.thread(curr).class.is_realtime() {
            return;
        }
        self.q.update(w, cpu);
        let queue = self.q.groups.queue_of(t, cpu);
        if self.q.groups.any() && self.q.groups.is_under_hold(queue) {
            return;
        }
        let own = self.q.groups.queue_of(curr, cpu);
        let many = i64::from(self.q.rqs[own as usize].nr) >= self.k.place.nr_latency;
        if self.k.buddies == Buddies::NextLast {
            if many {
                self.at_every_level(cpu, curr, |rq, e| rq.last = Some(e));
            }
            self.at_every_level(cpu, t, |rq, e| rq.next = Some(e));
        }
        if self.k.buddies == Buddies::Preempting && w.needs_resched(cpu) {
            return; // An earlier wakeup of this instant has preempted it.
        }
        let (its, ours) = (w.thread(t).class, w.thread(curr).class);
        let (q, mine, running) = self.q.groups.meeting(t, curr, cpu);
        // Between groups their entities compete, which are of no class.
        let threads = (mine, running) == (t, curr);
        if its == Class::Batch || (threads && its == Class::Idle) {
            return;
        }
        if threads && ours == Class::Idle {
            w.resched(cpu, RescheduleReason::Preempted);
            return;
        }
        if self.k.wakeup_preempt && self.beats(q, running, mine) == 1 {
            let keeps_last = matches!(self.k.buddies, Buddies::Last | Buddies::Preempting);
            if keeps_last && many && running == curr {
                self.at_every_level(cpu, curr, |rq, e| rq.last = Some(e));
            }
            if self.k.buddies == Buddies::Preempting {
                self.at_every_level(cpu, t, |rq, e| rq.next = Some(e));
            }
            w.resched(cpu, RescheduleReason::Preempted);
        }
    }

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        if let Some(t) = self.rt.pop(w, cpu) {
            let from = w.thread(t).cpu;
            self.q.rq(Queue::from(from)).realtime -= 1;
            self.q.rq(Queue::from(cpu)).realtime += 1;
            self.q.forget_prev(Queue::from(cpu));
            return Some(t);
        }
        self.pick_fair(w, cpu)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        let push = self.balancer.push(w, cpu, t);
        if self.q.se[t as usize].realtime {
            self.rt.put_back(w, cpu, t, left);
            self.q.rq(Queue::from(cpu)).realtime -= 1;
            if left.stays_queued() {
                self.q.rq(Queue::from(cpu)).realtime += 1;
                self.rt.push(w, cpu, t, left == SwitchOutReason::Preempted);
                self.rt.push_away(w, t);
            }
            return;
        }
        self.q.update(w, cpu);
        self.q.groups.runs(w.now(), t, false);
        let q = self.q.groups.queue_of(t, cpu);
        if left.stays_queued() {
            self.q.put_back(q, t);
            if left == SwitchOutReason::Yielded && self.k.yield_skips {
                self.at_every_level(cpu, t, |rq, e| rq.skip = Some(e));
            }
        } else {
            self.q.rq(q).curr = None;
            self.q.account(cpu, t, -1);
            self.q.groups.goes(w.now(), t, q);
            if left == SwitchOutReason::Exited {
                self.q.groups.ends(w.now(), t);
            }
            // A sleeper is not a buddy.
            self.q.rq(q).forget(t);
        }
        self.q.raise_min(q);
        self.q.put_back_above(w, q);
        if let Some(to) = push.filter(|_| left.stays_queued()) {
            self.q.push_to(w, cpu, t, to);
        }
    }

    fn on_idle(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        self.q.follow(w, cpu);
        if self.balancer.newly_idle(w, &mut self.q, cpu) {
            return self.pick_fair(w, cpu);
        }
        None
    }

    fn tick(&mut self, w: &mut World, cpu: Cpu) {
        self.q.follow(w, cpu);
        if let Some(t) = w.cpu(cpu).curr {
            if self.q.se[t as usize].realtime {
                self.rt.tick(w, cpu, t, self.k.jiffy);
            } else {
                self.q.update(w, cpu);
                self.q.follow_shares(w, cpu, t);
                let (mut q, mut e) = (Queue::from(cpu), self.q.rqs[cpu as usize].curr);
                while let Some(runs) = e {
                    self.check_slice(w, cpu, q, runs);
                    let Some(inner) = self.q.groups.inner(runs) else {
                        break;
                    };
                    (q, e) = (inner, self.q.rqs[inner as usize].curr);
                }
            }
        }
        self.balancer.tick(w, &mut self.q, cpu);
        self.after_balance(w, cpu);
    }

    fn leaves_clock(&self, _: &World, _: Cpu, _: Tid) -> bool {
        self.k.skips_clock
    }

    fn shares_by_groups(&self) -> bool {
        self.q.groups.any()
    }

    fn change_group(&mut self, w: &mut World, t: Tid, group: Option<u32>) {
        let cpu = w.thread(t).cpu;
        let state = w.thread(t).state;
        let queued = state == State::Queued && !self.q.se[t as usize].realtime;
        if queued {
            self.q.forget_prev(Queue::from(cpu));
            self.leave(w, cpu, t);
        }
        let home = self.q.se[t as usize].home;
        let from = self.q.groups.queue_of(t, home);
        self.q.groups.change_group(w.now(), t, home, group);
        let to = self.q.groups.queue_of(t, home);
        let (out, into) = (
            self.q.rqs[from as usize].min_vruntime,
            self.q.rqs[to as usize].min_vruntime,
        );
        let se = &mut self.q.se[t as usize];
        if state == State::Sleeping {
            // detach_task_cfs_rq bounds the credit of a sleeper.
            se.vruntime = self.k.place.woken(se.vruntime, out);
        }
        se.vruntime += into - out;
        if queued {
            self.join(w, cpu, t);
        }
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        let cpu = w.thread(t).cpu;
        match w.thread(t).state {
            State::Queued => {
                self.leave(w, cpu, t);
                self.q.se[t as usize].weight = weight_of(w, t);
                if !w.thread(t).class.is_realtime() {
                    self.q.rebase(cpu, t);
                }
                self.join(w, cpu, t);
                let wake = Wake {
                    waker: None,
                    cpu,
                    sync: false,
                };
                self.check_preempt(w, cpu, t, wake);
            }
            State::Running => {
                let realtime = w.thread(t).class.is_realtime();
                let q = self.q.groups.queue_of(t, cpu);
                let was = std::mem::replace(&mut self.q.se[t as usize].realtime, realtime);
                if was {
                    self.q.rq(Queue::from(cpu)).realtime -= 1;
                } else {
                    self.q.update(w, cpu);
                    self.q.account(cpu, t, -1);
                    let rq = self.q.rq(q);
                    rq.curr = None;
                    // __sched_setscheduler dequeues it, which takes it from the buddies.
                    rq.forget(t);
                    if realtime {
                        self.q.groups.goes(w.now(), t, q);
                        self.q.put_back_above(w, q);
                        self.q.forget_prev(Queue::from(cpu));
                    }
                }
                let weight = weight_of(w, t);
                self.q.se[t as usize].weight = weight;
                if realtime {
                    self.q.rq(Queue::from(cpu)).realtime += 1;
                } else {
                    self.q.rebase(cpu, t);
                    w.take_run(cpu);
                    self.q.account(cpu, t, 1);
                    self.q.rq(q).curr = Some(t);
                    if was {
                        self.q.run_above(w, q, t);
                    } else {
                        self.q.groups.weighs(w.now(), t, q, weight);
                    }
                }
                w.resched(cpu, RescheduleReason::Preempted);
            }
            State::Unborn | State::Sleeping | State::Dead => {
                self.q.se[t as usize].realtime = w.thread(t).class.is_realtime();
            }
        }
    }
}

impl Cfs {
    fn check_slice(&mut self, w: &mut World, cpu: Cpu, q: Queue, t: Entity) {
        if self.q.rqs[q as usize].nr < 2 {
            return;
        }
        let se = &self.q.se[t as usize];
        let slice = self.q.slice(q, t, false);
        let ran = se.ran - se.ran_at_pick;
        if ran > slice {
            if self.k.buddies != Buddies::Preempting {
                self.clear_buddies(q);
            }
            w.resched(cpu, RescheduleReason::SliceEnd);
            return;
        }
        if !self.k.early || ran < self.k.place.min_granularity {
            return;
        }
        let first = self.q.rqs[q as usize].tree.first();
        if let Some(f) = first
            && se.vruntime - self.q.se[f as usize].vruntime > slice
        {
            w.resched(cpu, RescheduleReason::SliceEnd);
        }
    }

    /// Pulled threads may be further behind than the running one.
    fn after_balance(&mut self, w: &mut World, cpu: Cpu) {
        let rq = &self.q.rqs[cpu as usize];
        if let (Some(curr), Some(first)) = (rq.curr, rq.tree.first())
            && self.q.groups.inner(first).is_none()
            && w.now() == w.thread(first).since
            && self.beats(Queue::from(cpu), curr, first) == 1
        {
            w.resched(cpu, RescheduleReason::Preempted);
        }
    }
}
