//! Threads that start, wake, block, move and end; CPUs that choose.
use super::engine::{Engine, Waiting};
use super::error::Error;
use super::machine::{Cpu, Distance};
use super::output::{LeftAs, Switch, WakeStep, Wakeup};
use super::policy::{EnqueueReason, SelectReason, SwitchOutReason, Wake};
use super::workload::{Class, INBOX, Step, Tid};
use super::world::{ClockStands, RescheduleReason, SleepKind, State};

impl Engine<'_> {
    /// `t` is in its first sleep or wait when it appears; false if that step is
    /// over at once, or none.
    pub(super) fn appear_asleep(&mut self, t: Tid) -> bool {
        let now = self.world.now;
        let mut after = 0;
        let mut again = false;
        let (until, wait, disk) = match self.load.program(t).first() {
            Some(Step::Sleep { ns, disk }) if *ns > 0 => (Some(now + ns), None, *disk),
            Some(Step::SleepTicks(ns)) if *ns > 0 => {
                let cpu = self.world.threads[t as usize].cpu;
                (Some(self.at_tick(cpu, *ns)), None, false)
            }
            Some(Step::WaitUntil(at)) if *at > now => (Some(*at), None, false),
            Some(Step::WaitFor {
                channel,
                count,
                cost,
                disk,
            }) => {
                let channel = match *channel {
                    INBOX => self.load.inboxes[t as usize],
                    named => named,
                };
                let wait = Waiting {
                    channel,
                    count: u64::from(*count),
                };
                if self.receive(wait) {
                    self.next_step[t as usize] += 1;
                    return false;
                }
                after = *cost;
                (None, Some(wait), *disk)
            }
            Some(Step::Take {
                pipe, cost, disk, ..
            }) if self.pipes[*pipe as usize].is_empty() => {
                self.pipes[*pipe as usize].sleep(t);
                again = true;
                after = *cost;
                (None, None, *disk)
            }
            Some(step @ (Step::Lock { cost, .. } | Step::Serve { cost, .. })) => {
                if !self.asleep_at(t, *step) {
                    return false;
                }
                again = true;
                after = *cost;
                (None, None, false)
            }
            Some(Step::Park) => (None, None, false),
            _ => return false,
        };
        self.counts.forks += 1;
        self.world.sink.start(now, t, None);
        self.policy.on_fork(&mut self.world, None, t);
        let th = &mut self.world.threads[t as usize];
        th.state = State::Sleeping;
        th.since = now;
        if disk {
            th.sleep_kind = SleepKind::Disk;
        }
        // Woken in a pipe, for a mutex or in a queue, it looks again.
        self.next_step[t as usize] += u32::from(!again);
        self.waiting[t as usize] = wait;
        if let Some(at) = until {
            self.live += 1;
            self.arm_thread(t, at);
        }
        self.burst(t, after);
        true
    }

    pub(super) fn start(&mut self, t: Tid, parent: Option<Tid>, cpu: Cpu) {
        self.counts.forks += 1;
        self.live += 1;
        let now = self.world.now;
        self.world.sink.start(now, t, parent);
        self.world.parents[t as usize] = parent;
        let th = &mut self.world.threads[t as usize];
        th.since = now;
        // A child begins where its parent is, if it may.
        let home = th.cpu;
        if parent.is_some() && self.world.allowed(t, cpu) {
            self.world.threads[t as usize].cpu = cpu;
        } else {
            self.world.threads[t as usize].cpu = home;
        }
        self.fetch_run(t);
        self.policy.on_fork(&mut self.world, parent, t);
        let wake = Wake {
            waker: parent,
            cpu,
            sync: false,
        };
        self.place(t, SelectReason::Fork(wake), EnqueueReason::New, wake);
    }

    pub(super) fn wake(&mut self, t: Tid, wake: Wake) {
        self.counts.wakeups += 1;
        self.live += 1;
        let now = self.world.now;
        let prio = self.policy.prio(&self.world, t);
        let row = Wakeup {
            ts: now,
            cpu: wake.cpu,
            waker: wake.waker,
            thread: t,
            step: WakeStep::Waking,
            target: None,
            prio,
        };
        self.world.sink.wakeup(row);
        let th = &mut self.world.threads[t as usize];
        th.slept = now - th.since;
        self.place(t, SelectReason::Wake(wake), EnqueueReason::Wakeup, wake);
    }

    /// Choose a CPU for `t`, which is in no queue, and queue it there.
    pub(super) fn place(&mut self, t: Tid, place: SelectReason, how: EnqueueReason, wake: Wake) {
        let to = self.policy.select_cpu(&mut self.world, t, place);
        if (to as usize) >= self.world.cpus.len() || !self.world.allowed(t, to) {
            self.broken(format!("placed thread {t} on CPU {to}, outside its mask"));
            return;
        }
        let now = self.world.now;
        let from = self.world.threads[t as usize].cpu;
        if from != to && how != EnqueueReason::New {
            self.world.note_migration(t, from, to);
        }
        let th = &mut self.world.threads[t as usize];
        th.cpu = to;
        th.state = State::Queued;
        th.since = now;
        self.world.n_runnable += 1;
        self.world.count_queued(to);
        self.policy.enqueue(&mut self.world, to, t, how);
        if how != EnqueueReason::Moved {
            let prio = self.policy.prio(&self.world, t);
            let step = if how == EnqueueReason::New {
                WakeStep::New
            } else {
                WakeStep::Enqueued
            };
            self.world.sink.wakeup(Wakeup {
                ts: now,
                cpu: wake.cpu,
                waker: wake.waker,
                thread: t,
                step,
                target: Some(to),
                prio,
            });
        }
        if self.world.cpus[to as usize].curr.is_none() {
            self.world.resched(to, RescheduleReason::Preempted);
        } else {
            self.policy.check_preempt(&mut self.world, to, t, wake);
        }
        if self.world.needs_resched(to) && self.policy.leaves_clock(&self.world, to, t) {
            self.world.leave_clock(to);
        }
    }

    pub(super) fn block(&mut self, c: Cpu, t: Tid, disk: bool) {
        let now = self.world.now;
        let th = &mut self.world.threads[t as usize];
        th.state = State::Sleeping;
        th.since = now;
        th.sleep_kind = if disk {
            SleepKind::Disk
        } else {
            SleepKind::Interruptible
        };
        self.live -= 1;
        self.fetch_run(t);
        let left_as = if disk { LeftAs::Disk } else { LeftAs::Sleeping };
        self.leave(c, t, SwitchOutReason::Blocked, left_as);
    }

    pub(super) fn exit(&mut self, c: Cpu, t: Tid) {
        let now = self.world.now;
        let th = &mut self.world.threads[t as usize];
        th.state = State::Dead;
        th.since = now;
        self.live -= 1;
        self.counts.exits += 1;
        self.world.sink.exit(now, t);
        self.leave(c, t, SwitchOutReason::Exited, LeftAs::Dead);
    }

    /// `t` goes off `c` and is no longer runnable here; `c` chooses another.
    pub(super) fn leave(&mut self, c: Cpu, t: Tid, left: SwitchOutReason, left_as: LeftAs) {
        self.world.n_runnable -= 1;
        self.world.set_clock(c);
        self.policy.put_prev(&mut self.world, c, t, left);
        self.off_cpu(c, t);
        self.world.cpus[c as usize].resched = None;
        self.dispatch(c, Some(t), left_as);
    }

    pub(super) fn off_cpu(&mut self, c: Cpu, t: Tid) {
        let th = &mut self.world.threads[t as usize];
        th.last_cpu = Some(c);
        th.last_ran = self.world.now;
        self.world.cpus[c as usize].curr = None;
    }

    pub(super) fn choose_again(&mut self, c: Cpu, why: RescheduleReason) {
        self.choose_after(c, why, |_| ());
    }

    /// The same with an action while no thread runs on `c`.
    fn choose_after(&mut self, c: Cpu, why: RescheduleReason, then: impl FnOnce(&mut Self)) {
        self.world.cpus[c as usize].resched = None;
        self.world.set_clock(c);
        let Some(t) = self.world.cpus[c as usize].curr else {
            self.dispatch(c, None, LeftAs::Idle);
            return;
        };
        self.settle(c);
        let th = &mut self.world.threads[t as usize];
        let yielded = std::mem::take(&mut th.yielding);
        th.state = State::Queued;
        let left = match why {
            RescheduleReason::Yielded => SwitchOutReason::Yielded,
            RescheduleReason::SliceEnd => SwitchOutReason::SliceEnd,
            RescheduleReason::Preempted => SwitchOutReason::Preempted,
        };
        self.policy.put_prev(&mut self.world, c, t, left);
        self.off_cpu(c, t);
        let to = self.world.sent.take().map_or(c, |(_, to)| to);
        self.world.threads[t as usize].cpu = to;
        self.world.count_queued(to);
        then(self);
        let left_as = if yielded {
            LeftAs::Yielded
        } else {
            LeftAs::Preempted
        };
        self.dispatch(c, Some(t), left_as);
        if to != c && self.world.threads[t as usize].cpu == to {
            // It left its CPU before it is seen in another's queue.
            self.world.note_migration(t, c, to);
            if self.world.cpus[to as usize].curr.is_none() {
                self.world.resched(to, RescheduleReason::Preempted);
            }
        }
    }

    /// `c` runs nothing: take the policy's next thread.
    pub(super) fn dispatch(&mut self, c: Cpu, prev: Option<Tid>, left_as: LeftAs) {
        let mut next = self.policy.pick_next(&mut self.world, c);
        if next.is_none() {
            next = self.policy.on_idle(&mut self.world, c);
        }
        // Choosing has answered any request made meanwhile for this CPU.
        self.world.cpus[c as usize].resched = None;
        let now = self.world.now;
        let stayed = left_as == LeftAs::Preempted || left_as == LeftAs::Yielded;
        if let Some(n) = next {
            let th = &self.world.threads[n as usize];
            if th.state != State::Queued || !self.world.allowed(n, c) {
                let state = th.state;
                self.broken(format!("picked thread {n} ({state:?}) on CPU {c}"));
                return;
            }
            let at = th.cpu;
            if at != c {
                self.world.note_migration(n, at, c);
            }
            self.world.uncount_queued(at);
        }
        let same = stayed && next == prev;
        if !same {
            self.note_switch(c, prev, left_as, next);
        }
        if stayed && !same {
            self.counts.preemptions += u64::from(left_as == LeftAs::Preempted);
            if let Some(p) = prev {
                self.world.threads[p as usize].since = now;
            }
        }
        match next {
            Some(n) => self.begin(c, n, same),
            None => {
                self.world.cpus[c as usize].idle_since = now;
                self.world.cpu_events.disarm(u32::from(c));
                self.world.mark_idle_if_so(c);
            }
        }
        self.world.cpus[c as usize].clock_stands = ClockStands::No;
        if self.smt && (prev.is_some() != next.is_some()) {
            self.siblings_changed(c);
        }
    }

    pub(super) fn begin(&mut self, c: Cpu, n: Tid, same: bool) {
        let now = self.world.now;
        let rate = if self.smt {
            self.speed(c)
        } else {
            self.world.cpus[c as usize].rate
        };
        let cpu = &mut self.world.cpus[c as usize];
        cpu.curr = Some(n);
        cpu.rate = rate;
        cpu.picked_at = now;
        cpu.charged_at = if cpu.clock_stands == ClockStands::Now {
            cpu.clock
        } else {
            now
        };
        cpu.settled_at = now;
        let costs = &self.world.machine.costs;
        let th = &mut self.world.threads[n as usize];
        if !same {
            th.owed += costs.switch_ns;
            if let Some(last) = th.last_cpu {
                th.owed += match self.world.machine.distance(last, c) {
                    Distance::Same => 0,
                    Distance::Smt => costs.migration_ns[0],
                    Distance::Llc => costs.migration_ns[1],
                    Distance::Package => costs.migration_ns[2],
                    Distance::Numa => costs.migration_ns[3],
                };
            }
            th.since = now;
        }
        th.state = State::Running;
        th.cpu = c;
        self.world.mark_busy(c);
        self.arm_completion(c);
        self.arm_clocks(c);
    }

    pub(super) fn note_switch(
        &mut self,
        c: Cpu,
        prev: Option<Tid>,
        left_as: LeftAs,
        next: Option<Tid>,
    ) {
        if prev.is_none() && next.is_none() {
            return;
        }
        self.counts.switches += 1;
        let prio = |t: Option<Tid>| t.map_or(120, |t| self.policy.prio(&self.world, t));
        let row = Switch {
            ts: self.world.now,
            cpu: c,
            prev,
            left_as,
            prev_prio: prio(prev),
            next,
            next_prio: prio(next),
        };
        self.world.sink.switch(row);
    }

    pub(super) fn set_priority(&mut self, of: Tid, class: Class, nice: i8, rt_prio: u8) {
        let th = &mut self.world.threads[of as usize];
        th.class = class;
        th.nice = nice;
        th.rt_prio = rt_prio;
        if matches!(th.state, State::Unborn | State::Dead) {
            return;
        }
        self.policy.set_priority(&mut self.world, of);
        let (now, prio) = (self.world.now, self.policy.prio(&self.world, of));
        self.world.sink.priority(now, of, prio);
    }

    /// `t` is in another control group from now on. One that runs is put back for that, and its
    /// CPU chooses again (sched_move_task of kernel/sched/core.c).
    pub(super) fn change_group(&mut self, t: Tid, group: Option<u32>) {
        let (state, at) = {
            let th = &self.world.threads[t as usize];
            (th.state, th.cpu)
        };
        if state == State::Dead {
            return;
        }
        if state != State::Running {
            self.policy.change_group(&mut self.world, t, group);
            // Its old group may have been held back, and its CPU idle.
            let cpu = &self.world.cpus[at as usize];
            if state == State::Queued && cpu.curr.is_none() && cpu.nr_queued > 0 {
                self.world.resched(at, RescheduleReason::Preempted);
            }
            return;
        }
        self.world.here = Some(at);
        self.choose_after(at, RescheduleReason::Preempted, |e| {
            e.policy.change_group(&mut e.world, t, group);
        });
    }

    pub(super) fn set_affinity(&mut self, of: Tid, mask: u32) {
        let (state, at) = {
            let th = &self.world.threads[of as usize];
            (th.state, th.cpu)
        };
        let stays = self.world.masks[mask as usize].contains(at);
        let wake = Wake {
            waker: None,
            cpu: self.world.here.unwrap_or(at),
            sync: false,
        };
        match state {
            State::Queued | State::Running
                if self.policy.moves_by_itself() && (stays || state == State::Running) =>
            {
                self.world.threads[of as usize].mask = mask;
                self.policy.affinity_changed(&mut self.world, of);
                let costs = &self.world.machine.costs;
                let late = costs.ipi_ns > 0 || costs.preempt_ns > 0;
                if late && self.world.needs_resched(at) {
                    // No thread runs outside its mask, not even until an IPI arrives.
                    self.choose_again(at, RescheduleReason::Preempted);
                }
            }
            State::Queued => {
                // Out and in again: queues may be kept by mask.
                self.policy.dequeue(&mut self.world, at, of);
                self.world.n_runnable -= 1;
                self.world.uncount_queued(at);
                self.world.threads[of as usize].mask = mask;
                if stays {
                    self.world.n_runnable += 1;
                    self.world.count_queued(at);
                    self.policy
                        .enqueue(&mut self.world, at, of, EnqueueReason::Moved);
                    self.policy.affinity_changed(&mut self.world, of);
                } else {
                    self.place(of, SelectReason::Moved, EnqueueReason::Moved, wake);
                }
            }
            State::Running if !stays => {
                self.settle(at);
                self.world.n_runnable -= 1;
                self.policy
                    .put_prev(&mut self.world, at, of, SwitchOutReason::Moved);
                self.off_cpu(at, of);
                self.world.cpus[at as usize].resched = None;
                let th = &mut self.world.threads[of as usize];
                th.mask = mask;
                th.yielding = false;
                self.fetch_run(of);
                // It leaves its CPU before it enters another's queue.
                self.dispatch(at, Some(of), LeftAs::Preempted);
                self.place(of, SelectReason::Moved, EnqueueReason::Moved, wake);
            }
            State::Running | State::Sleeping | State::Unborn | State::Dead => {
                let th = &mut self.world.threads[of as usize];
                th.mask = mask;
                if !stays && state == State::Unborn {
                    th.cpu = self.world.masks[mask as usize].iter().next().unwrap_or(0);
                }
                if matches!(state, State::Running | State::Sleeping) {
                    self.policy.affinity_changed(&mut self.world, of);
                }
            }
        }
    }

    /// Runnable threads leave the CPUs that went offline, and those that came only because theirs
    /// were offline go back: in the order in which they were queued, and the running one last.
    pub(super) fn clear_forbidden_cpus(&mut self) {
        let world = &self.world;
        let mut out: Vec<Tid> = (0..world.threads.len() as Tid)
            .filter(|t| {
                let th = &world.threads[*t as usize];
                matches!(th.state, State::Running | State::Queued) && !world.allowed(*t, th.cpu)
            })
            .collect();
        out.sort_by_key(|t| {
            let th = &world.threads[*t as usize];
            (th.state == State::Running, th.since, *t)
        });
        for t in out {
            let (state, at) = {
                let th = &self.world.threads[t as usize];
                (th.state, th.cpu)
            };
            if state == State::Running {
                self.settle(at);
                self.world.n_runnable -= 1;
                self.world.set_clock(at);
                self.policy
                    .put_prev(&mut self.world, at, t, SwitchOutReason::Moved);
                self.off_cpu(at, t);
                self.world.threads[t as usize].yielding = false;
                self.dispatch(at, Some(t), LeftAs::Preempted);
            } else {
                self.policy.dequeue(&mut self.world, at, t);
                self.world.n_runnable -= 1;
                self.world.uncount_queued(at);
            }
            let wake = Wake {
                waker: None,
                cpu: at,
                sync: false,
            };
            self.place(t, SelectReason::Offline, EnqueueReason::Moved, wake);
        }
    }

    /// A policy broke its contract: a bug in it, reported as such.
    pub(super) fn broken(&mut self, what: String) {
        if self.world.fault.is_none() {
            self.world.fault = Some(Error::usage(
                format!("at {} ns the policy {what}", self.world.now),
                "queued threads, placed and picked inside their masks",
                "this is a bug in the policy: please report it with the workload, or correct the policy if it is yours",
            ));
        }
    }
}
