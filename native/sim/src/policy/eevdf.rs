//! EEVDF, Linux's fair scheduler since 6.6: earliest eligible virtual deadline.
//!
//! Models kernel/sched/fair.c of 6.6, with the features of 6.12 and 6.17 as
//! switches. Per CPU a tree by virtual deadline; a thread is eligible if it has
//! had no more than its share (its lag is not negative), and of the eligible the
//! one with the earliest deadline runs, undisturbed until its request (slice) is
//! done or it is no longer eligible. Lag survives sleep; from 6.12 a thread that
//! sleeps with negative lag stays in the queue until it has worked it off.
//!
//! Slices end at ticks, as HRTICK is off by default up to 6.18; in 7.2 it is on, and a timer ends
//! those of threads that took the CPU from another one at the virtual deadline (hrtick_start_fair).
//! A thread may have a slice of its own from 6.12 on: `eevdf_slices`. What real-time threads leave
//! to others: `linux_fair_server` from 6.12 on, before it `linux_rt_bandwidth`. Deadline threads:
//! `linux_deadline`. Left out besides: core scheduling, of 7.2 also NI_RATE, and that its timer
//! runs longer the more of a CPU interrupts take. Control groups: `linux_groups`,
//! `linux_bandwidth`, `eevdf_groups`. Settings: `eevdf_spec`.
//! CPU choice: `linux_wake`, `linux_util`; loads: `linux_load`; balancing: `linux_domains`, which
//! pulls the thread that was queued or picked longest ago (detach_tasks), unless it ran on that CPU
//! a moment ago (task_hot).
use super::super::error::Result;
use super::super::machine::{Cpu, Machine};
use super::super::tree::Nodes;
use super::super::workload::Tid;
use super::super::world::{RescheduleReason, State, World};
use super::eevdf_queue::{Counts, Features, Rq, Rqs, SHORTEST_HRTICK, Se};
use super::linux_bandwidth::SLICE;
use super::linux_domains::{Balancer, Knobs, fallback_cpu};
use super::linux_fair::{log2_factor, virtual_ns, weight_of};
use super::linux_fair_server::FairServers;
use super::linux_groups::{self, Groups, Levels, Queue};
use super::linux_newidle::Newidle;
use super::linux_rt::RtQueues;
use super::linux_wake::{FLIPS, Placer, idlest_cpu};
use super::{Clocks, EnqueueReason, Policy, SelectReason, Settings, SwitchOutReason, Wake};
use crate::prefetch::near;

const IMBALANCE_PCT: i64 = Knobs::BY_GROUPS.imbalance_pct;

pub(super) fn make(s: &Settings, machine: &Machine, nthreads: usize) -> Result<Box<dyn Policy>> {
    let ncpu = machine.ncpu();
    let f = if s.is_on("scaling") {
        log2_factor(ncpu, 8)
    } else {
        1
    };
    let hz = s.int("hz");
    let knobs = Knobs {
        on: s.is_on("balance"),
        newidle: Newidle {
            on: s.is_on("balance_newidle"),
            least_idle: 0,
            cost: s.ns("newidle_cost"),
            raises_cost: s.is_on("newidle_raises_cost"),
            by_success: s.is_on("newidle_by_success"),
            migration_cost: s.ns("migration_cost"),
        },
        busy_spreads: false,
        looks_by_use: s.is_on("sis_util"),
        ..Knobs::BY_GROUPS
    };
    let k = Features {
        slice: s.ns("base_slice") * f,
        parity: s.is_on("run_to_parity"),
        place_lag: s.is_on("place_lag"),
        initial: s.is_on("place_deadline_initial"),
        relative: s.is_on("place_rel_deadline"),
        delay: s.is_on("delay_dequeue"),
        zero: s.is_on("delay_zero"),
        delay_keeps_lag: s.is_on("delay_keeps_lag"),
        preempt: s.is_on("wakeup_preemption"),
        skips_clock: s.is_on("skip_clock_update"),
        lazy: s.is_on("lazy_preemption"),
        own_slices: s.is_on("own_slices"),
        util_by_weight: s.is_on("util_by_weight"),
        short: s.is_on("preempt_short"),
        shortest: s.is_on("protect_shortest"),
        hrtick: s.is_on("hrtick"),
        eligible_first: s.is_on("balance_eligible"),
        migration_cost: s.ns("migration_cost"),
        jiffy: 1_000_000_000 / hz,
        hz: hz as u32,
    };
    Ok(Box::new(Eevdf {
        q: Rqs {
            k,
            bandwidth_slice: s.ns(SLICE.name),
            groups: Groups::default(),
            rqs: vec![Rq::default(); ncpu],
            counts: vec![Counts::default(); ncpu],
            se: vec![Se::default(); nthreads],
            nodes: Nodes::new(nthreads),
            own: Vec::new(),
            touches: 0,
            servers: FairServers::new(s, ncpu),
        },
        rt: RtQueues::new(ncpu, nthreads, s),
        placer: Placer::new(
            nthreads,
            s.int(FLIPS.name),
            IMBALANCE_PCT,
            s.is_on("wa_weight"),
        ),
        balancer: Balancer::new(machine, knobs, hz),
    }))
}

struct Eevdf {
    q: Rqs,
    rt: RtQueues,
    placer: Placer,
    balancer: Balancer,
}

impl Eevdf {
    fn pick_fair(&mut self, w: &mut World, c: Cpu) -> Option<Tid> {
        let root = Queue::from(c);
        self.q.hold_exhausted(w, c);
        let t = 'choose: loop {
            let mut q = root;
            loop {
                let Some(e) = self.q.best(q) else {
                    self.q.forget_prev(root);
                    return None;
                };
                if self.q.se[e as usize].delayed {
                    self.q.finish_delayed(w, q, e);
                    continue 'choose;
                }
                match self.q.groups.inner(e) {
                    Some(inner) => q = inner,
                    None => break 'choose e,
                }
            }
        };
        self.q.touch(t);
        let its = self.q.groups.queue_of(t, c);
        let goes_on = self.q.rqs[its as usize].prev == Some(t);
        self.q.go_on(root, its, t);
        self.q.groups.runs(w.now(), t, true);
        w.take_run(c);
        if !goes_on {
            self.q.arm(w, c, SHORTEST_HRTICK);
        }
        Some(t)
    }

    fn leave(&mut self, w: &mut World, c: Cpu, t: Tid) {
        if self.q.se[t as usize].realtime {
            self.rt.remove(w, t);
            self.q.counts[c as usize].realtime -= 1;
        } else {
            self.q.update(w, c);
            self.q.remove(w, c, t);
        }
    }

    /// Into the queues of `c`.
    fn join(&mut self, w: &mut World, c: Cpu, t: Tid, new: bool) {
        let realtime = w.thread(t).class.is_realtime();
        self.q.se[t as usize].realtime = realtime;
        if realtime {
            self.rt.push(w, c, t, false);
            self.q.counts[c as usize].realtime += 1;
            return;
        }
        self.q.se[t as usize].weight = weight_of(w, t);
        self.q.update(w, c);
        let q = self.q.groups.queue_of(t, c);
        self.q.place(q, t, new);
        self.q.insert(q, t);
        self.q.account(w, c, 1);
        self.q.touch(t);
        self.q.se[t as usize].home = c;
        self.q.come(w, q, t);
        self.q.arm_if_idle(w, c);
        if w.recording() {
            self.q.show(w, q, t);
        }
    }

    /// A sleeper that may still be in a tree leaves it.
    fn take_sleeper_out(&mut self, w: &mut World, t: Tid) {
        if self.q.se[t as usize].delayed {
            self.q.update(w, self.q.se[t as usize].home);
            let q = self.q.home_of(t);
            self.q.finish_delayed(w, q, t);
        }
    }

    /// A sleeper that is still in the tree wakes where it is. Up to 6.18 its lag is that at the
    /// last update of the CPU's running thread, as in `ttwu_runnable`, which updates nothing before
    /// (core.c and `requeue_delayed_entity` in fair.c): what that has run since is then all in
    /// favour of the sleeper. In 7.2 `requeue_delayed_entity` updates first.
    fn reinstate(&mut self, w: &mut World, c: Cpu, t: Tid) {
        if self.q.k.delay_keeps_lag {
            self.q.update(w, c);
        }
        let q = self.q.groups.queue_of(t, c);
        self.q.requeue_delayed(q, t);
        self.q.account(w, c, 1);
        self.q.put_aside_if_held(w, q, t);
    }
}

impl Policy for Eevdf {
    fn clocks(&self) -> Clocks {
        Clocks {
            hz: self.q.k.hz,
            ..Clocks::default()
        }
    }

    fn init(&mut self, w: &mut World) {
        self.q.init_groups(w);
        let first = linux_groups::timers(w);
        self.q.servers.init(first);
        self.rt.init(w, first + w.ncpu() as u32);
        if self.q.k.own_slices {
            self.q.init_slices(w.slices());
        }
    }

    fn on_fork(&mut self, w: &mut World, parent: Option<Tid>, child: Tid) {
        self.placer.born(parent, child);
        self.q.se[child as usize].weight = weight_of(w, child);
    }

    fn online_changed(&mut self, w: &mut World) {
        self.balancer.online_changed(w);
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, place: SelectReason) -> Cpu {
        if self.q.se[t as usize].delayed {
            let home = self.q.se[t as usize].home;
            if w.allowed(t, home) && !w.thread(t).class.is_realtime() {
                return home;
            }
            self.take_sleeper_out(w, t);
        }
        if w.thread(t).class.is_realtime() && place != SelectReason::Offline {
            return self.rt.select_cpu(w, t);
        }
        match place {
            SelectReason::Wake(wake) => {
                let now = w.now();
                let wakers = wake
                    .waker
                    .map_or(0, |p| self.q.groups.load_of(now, wake.cpu, p));
                let its = self.q.groups.load_of(now, w.thread(t).cpu, t);
                let weights = (its, wakers);
                let reach = self.balancer.reach.as_ref();
                self.placer.wake(w, &self.q, weights, t, wake, reach)
            }
            SelectReason::Fork(wake) => idlest_cpu(w, &self.q, &self.balancer.domains, t, wake.cpu),
            SelectReason::Moved => super::idle_or_previous(w, t),
            SelectReason::Offline => fallback_cpu(w, t),
        }
    }

    fn enqueue(&mut self, w: &mut World, cpu: Cpu, t: Tid, how: EnqueueReason) {
        if how == EnqueueReason::Wakeup {
            self.balancer.woken(w, cpu);
            self.q.groups.utilisation.wakes(t, cpu);
        }
        if self.q.se[t as usize].delayed {
            self.reinstate(w, cpu, t);
            return;
        }
        let born = how == EnqueueReason::New && w.parent(t).is_some();
        self.join(w, cpu, t, born);
    }

    fn dequeue(&mut self, w: &mut World, cpu: Cpu, t: Tid) {
        self.leave(w, cpu, t);
    }

    fn check_preempt(&mut self, w: &mut World, cpu: Cpu, t: Tid, _: Wake) {
        if w.cpu(cpu).curr.is_none() {
            return;
        }
        if self.q.se[t as usize].realtime {
            let first = self.rt.earliest_deadline(cpu);
            let served = self.q.servers.serves(cpu) && self.q.servers.goes_before(cpu, first);
            if self.rt.preempts(w, cpu, t) && !served {
                w.resched(cpu, RescheduleReason::Preempted);
            } else {
                self.rt.push_away(w, t);
            }
            return;
        }
        self.q.may_preempt(w, cpu, t);
    }

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        self.q.servers.turns_busy(w, cpu);
        if self.q.servers.serves(cpu)
            && self
                .q
                .servers
                .goes_before(cpu, self.rt.earliest_deadline(cpu))
        {
            if let Some(t) = self.pick_fair(w, cpu) {
                return Some(t);
            }
            self.q.servers.stop(w, cpu);
        }
        if let Some(t) = self.rt.pop(w, cpu) {
            let from = w.thread(t).cpu;
            self.q.counts[from as usize].realtime -= 1;
            self.q.counts[cpu as usize].realtime += 1;
            self.q.forget_prev(Queue::from(cpu));
            return Some(t);
        }
        self.pick_fair(w, cpu)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        let push = self.balancer.push(w, cpu, t);
        if self.q.se[t as usize].realtime {
            self.rt.put_back(w, cpu, t, left);
            self.q.counts[cpu as usize].realtime -= 1;
            if left.stays_queued() {
                self.q.counts[cpu as usize].realtime += 1;
                self.rt.push(w, cpu, t, left == SwitchOutReason::Preempted);
                self.rt.push_away(w, t);
            }
            return;
        }
        self.q.update(w, cpu);
        self.q.servers.put_back(w, cpu);
        self.q.groups.runs(w.now(), t, false);
        match left {
            SwitchOutReason::Preempted | SwitchOutReason::SliceEnd | SwitchOutReason::Yielded => {
                if left == SwitchOutReason::Yielded {
                    let slice = self.q.slice_of(t);
                    let se = &mut self.q.se[t as usize];
                    se.deadline += virtual_ns(slice, se.weight);
                }
                let q = self.q.groups.queue_of(t, cpu);
                self.q.put_back(q, t);
                self.q.put_back_above(w, q, false);
                if let Some(to) = push {
                    self.q.push_to(w, cpu, t, to);
                }
            }
            SwitchOutReason::Blocked | SwitchOutReason::Moved | SwitchOutReason::Exited => {
                let q = self.q.groups.queue_of(t, cpu);
                self.q.note_lag(q, t);
                self.q.account(w, cpu, -1);
                let sleeps = left == SwitchOutReason::Blocked;
                let stays = self.q.come_off(q, t, sleeps);
                if !stays {
                    let relative = self.q.k.relative;
                    let se = &mut self.q.se[t as usize];
                    se.rest = (left == SwitchOutReason::Moved && relative)
                        .then_some(se.deadline - se.vruntime);
                }
                self.q.raise_origin(q);
                if !stays {
                    self.q.groups.goes(w.now(), t, q);
                }
                if left == SwitchOutReason::Exited {
                    self.q.groups.ends(w.now(), t);
                }
                self.q.put_back_above(w, q, sleeps);
            }
        }
    }

    fn on_idle(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        if self.balancer.newly_idle(w, &mut self.q, cpu) {
            return self.pick_fair(w, cpu);
        }
        self.q.servers.turns_idle(w, cpu);
        if self.q.k.hrtick {
            w.disarm_timer(u32::from(cpu));
        }
        None
    }

    fn tick(&mut self, w: &mut World, cpu: Cpu) {
        if let Some(t) = w.cpu(cpu).curr {
            if self.q.se[t as usize].realtime {
                let jiffy = self.q.k.jiffy;
                self.rt.tick(w, cpu, t, jiffy);
            } else {
                self.q.update(w, cpu);
                self.q.follow_shares(w, cpu, t);
            }
        }
        self.balancer.tick(w, &mut self.q, cpu);
    }

    fn timer(&mut self, w: &mut World, id: u32) {
        if let Some(cpu) = self.q.servers.cpu_of_timer(id) {
            self.q.update(w, cpu);
            self.q.servers.timer(w, cpu);
            return;
        }
        if id as usize >= w.ncpu() {
            if !self.rt.timer(w, id) {
                self.q.quota_timer(w, id);
            }
            return;
        }
        self.q.request_timer(w, id as Cpu);
    }

    fn prefetch(&self, t: Tid) {
        near((self.q.se[t as usize].home, self.q.nodes.key(t)));
    }

    /// As `wakeup_preempt` of core.c has it, which does not count requests that are only to be
    /// heard on the way back to the program (resched_curr_lazy).
    fn leaves_clock(&self, w: &World, cpu: Cpu, woken: Tid) -> bool {
        let lazily = self.q.k.lazy && w.cpu(cpu).curr.is_some();
        self.q.k.skips_clock && (!lazily || self.q.se[woken as usize].realtime)
    }

    fn shares_by_groups(&self) -> bool {
        self.q.groups.any()
    }

    fn change_group(&mut self, w: &mut World, t: Tid, group: Option<u32>) {
        let cpu = w.thread(t).cpu;
        let queued = w.thread(t).state == State::Queued && !self.q.se[t as usize].realtime;
        if queued {
            self.q.forget_prev(Queue::from(cpu));
            self.leave(w, cpu, t);
        } else {
            self.take_sleeper_out(w, t);
        }
        let home = self.q.se[t as usize].home;
        self.q.groups.change_group(w.now(), t, home, group);
        if queued {
            self.join(w, cpu, t, false);
        }
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        let cpu = w.thread(t).cpu;
        let new = weight_of(w, t);
        let realtime = w.thread(t).class.is_realtime();
        match w.thread(t).state {
            State::Queued => {
                self.leave(w, cpu, t);
                self.q.reweigh(t, new);
                self.join(w, cpu, t, false);
                let wake = Wake {
                    waker: None,
                    cpu,
                    sync: false,
                };
                self.check_preempt(w, cpu, t, wake);
            }
            State::Running => {
                if self.q.se[t as usize].realtime {
                    self.q.counts[cpu as usize].realtime -= 1;
                } else {
                    self.q.update(w, cpu);
                    let q = self.q.groups.queue_of(t, cpu);
                    self.q.note_lag(q, t);
                    self.q.account(w, cpu, -1);
                    self.q.rq(q).curr = None;
                    if realtime {
                        self.q.groups.goes(w.now(), t, q);
                        self.q.put_back_above(w, q, false);
                        self.q.forget_prev(Queue::from(cpu));
                    }
                    let se = &mut self.q.se[t as usize];
                    se.rest = Some(se.deadline - se.vruntime);
                }
                self.q.reweigh(t, new);
                let was = std::mem::replace(&mut self.q.se[t as usize].realtime, realtime);
                if realtime {
                    self.q.counts[cpu as usize].realtime += 1;
                    self.q.se[t as usize].rest = None;
                } else {
                    w.take_run(cpu);
                    let q = self.q.groups.queue_of(t, cpu);
                    self.q.place(q, t, false);
                    self.q.account(w, cpu, 1);
                    self.q.rq(q).curr = Some(t);
                    if was {
                        self.q.run_above(w, q, t);
                    } else {
                        self.q.groups.weighs(w.now(), t, q, new);
                    }
                }
                w.resched(cpu, RescheduleReason::Preempted);
            }
            State::Sleeping => {
                self.take_sleeper_out(w, t);
                self.q.reweigh(t, new);
            }
            State::Unborn | State::Dead => {}
        }
    }
}
