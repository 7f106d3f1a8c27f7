//! Programs: what a thread does at the end of each burst.
use super::engine::{Engine, Waiting};
use super::error::Error;
use super::machine::Cpu;
use super::pipes::woken_by;
use super::policy::Wake;
use super::workload::{INBOX, SELF, Step, Tid};
use super::world::{RescheduleReason, State};

impl Engine<'_> {
    /// Give `t`, whose burst is over, one of `ns`, with its next step if that is a `run`.
    pub(super) fn burst(&mut self, t: Tid, ns: u32) {
        self.fetch_run(t);
        self.world.threads[t as usize].work += i64::from(ns) * 1024;
    }

    /// If the next step is a `run`, begin it: saves an event of no length.
    pub(super) fn fetch_run(&mut self, t: Tid) {
        let th = &mut self.world.threads[t as usize];
        let at = &mut self.next_step[t as usize];
        if th.work == 0
            && *at < th.end
            && let Step::Run(ns) = self.load.steps[*at as usize]
        {
            th.work = ns * 1024;
            *at += 1;
        }
    }

    /// Whether `sender` sleeps until `reader` waits for its signal.
    fn waits_to_meet(&self, sender: Tid, reader: Tid) -> bool {
        let next = self.next_step[sender as usize] as usize;
        matches!(self.load.steps.get(next), Some(Step::Signal { to, pair, meet: true, .. })
            if *to == reader && self.meeting[*pair as usize] == Some(sender))
    }

    /// The burst of the thread on `c` is over: take its next steps.
    pub(super) fn advance(&mut self, c: Cpu) {
        let Some(t) = self.world.cpus[c as usize].curr else {
            return;
        };
        loop {
            self.standstill += 1;
            if self.standstill > self.standstill_limit {
                return;
            }
            let now = self.world.now;
            let th = &mut self.world.threads[t as usize];
            let at = &mut self.next_step[t as usize];
            if *at >= th.end {
                if self.back_from_job(t) {
                    continue;
                }
                self.exit(c, t);
                return;
            }
            let step = self.load.steps[*at as usize];
            *at += 1;
            match step {
                Step::Run(ns) => {
                    th.work = ns * 1024;
                    if ns > 0 {
                        break;
                    }
                }
                Step::Sleep { ns, disk } => {
                    if ns > 0 {
                        self.live += 1;
                        self.arm_thread(t, now + ns);
                        self.block(c, t, disk);
                        return;
                    }
                }
                Step::SleepTicks(ns) => {
                    if ns > 0 {
                        self.live += 1;
                        self.arm_thread(t, self.at_tick(c, ns));
                        self.block(c, t, false);
                        return;
                    }
                }
                Step::ReadClock(at) => self.clock_shift[t as usize] = now - at,
                Step::WaitUntil(at) => {
                    let at = at + self.clock_shift[t as usize];
                    if at > now {
                        self.live += 1;
                        self.arm_thread(t, at);
                        self.block(c, t, false);
                        return;
                    }
                }
                Step::WaitFor {
                    channel,
                    count,
                    cost,
                    disk,
                } => {
                    let channel = match channel {
                        INBOX => self.load.inboxes[t as usize],
                        named => named,
                    };
                    let wait = Waiting {
                        channel,
                        count: u64::from(count),
                    };
                    if !self.receive(wait) {
                        self.waiting[t as usize] = Some(wait);
                        if let Some(sender) = self.meeting[channel as usize].take() {
                            let wake = Wake {
                                waker: Some(t),
                                cpu: c,
                                sync: true,
                            };
                            self.wake(sender, wake);
                        }
                        self.sleep_at_cost(c, t, cost, disk);
                        return;
                    }
                }
                Step::Signal {
                    to,
                    pair,
                    cost,
                    sync,
                    meet,
                } => {
                    let comes = self.waiting[to as usize].is_some_and(|w| w.channel == pair);
                    if meet && !comes && !self.waits_to_meet(to, t) {
                        // It sends when its reader has come to wait for it.
                        self.next_step[t as usize] -= 1;
                        self.meeting[pair as usize] = Some(t);
                        self.block(c, t, false);
                        return;
                    }
                    let woke = self.signal(c, t, to, pair, sync);
                    self.hears(c);
                    if woke && self.pays_for_wake(t, cost) {
                        break;
                    }
                }
                Step::Put {
                    pipe,
                    amount,
                    cost,
                    sync,
                } => {
                    let Ok(reader) = self.put(c, t, pipe, amount) else {
                        return;
                    };
                    if let Some(reader) = reader {
                        self.wake(reader, woken_by(c, t, sync));
                        if self.pays_for_wake(t, cost) {
                            break;
                        }
                    }
                }
                Step::Take {
                    pipe,
                    amount,
                    cost,
                    disk,
                } => {
                    if !self.take(c, t, pipe, amount) {
                        self.sleep_at_cost(c, t, cost, disk);
                        return;
                    }
                }
                Step::Lock { mutex, cost } => {
                    if !self.lock(t, mutex) {
                        self.sleep_at_cost(c, t, cost, false);
                        return;
                    }
                }
                Step::CondWait {
                    condition,
                    mutex,
                    cost,
                } => {
                    if !self.wait_on(c, t, condition, mutex) {
                        self.sleep_at_cost(c, t, cost, false);
                        return;
                    }
                }
                Step::Barrier {
                    barrier,
                    count,
                    cost,
                } => {
                    if !self.arrive(c, t, barrier, count) {
                        self.sleep_at_cost(c, t, cost, false);
                        return;
                    }
                    self.policy.back_from_kernel(&mut self.world, t);
                }
                Step::Unlock { mutex, cost } => {
                    if self.unlock(c, t, mutex) && self.pays_for_wake(t, cost) {
                        break;
                    }
                }
                Step::CondSignal {
                    condition,
                    all,
                    cost,
                } => {
                    if self.notify(c, t, condition, all) && self.pays_for_wake(t, cost) {
                        break;
                    }
                }
                Step::Post { queue, job, cost } => {
                    if self.post(c, t, queue, job) && self.pays_for_wake(t, cost) {
                        break;
                    }
                }
                Step::Serve { queue, cost } => {
                    if !self.serve(t, queue) {
                        self.sleep_at_cost(c, t, cost, false);
                        return;
                    }
                }
                Step::Fork(child) => {
                    if self.world.threads[child as usize].state == State::Unborn {
                        self.start(child, Some(t), c);
                        self.policy.back_from_kernel(&mut self.world, t);
                    } else {
                        self.fail_fork(t, child);
                        return;
                    }
                }
                Step::Yield => {
                    self.world.threads[t as usize].yielding = true;
                    self.world.resched(c, RescheduleReason::Yielded);
                }
                Step::SetPriority {
                    of,
                    class,
                    nice,
                    rt_prio,
                } => {
                    self.set_priority(if of == SELF { t } else { of }, class, nice, rt_prio);
                    self.policy.back_from_kernel(&mut self.world, t);
                }
                Step::SetAffinity { of, mask } => {
                    self.set_affinity(if of == SELF { t } else { of }, mask);
                    if self.world.cpus[c as usize].curr != Some(t) {
                        return;
                    }
                    self.policy.back_from_kernel(&mut self.world, t);
                }
                Step::Repeat { to, times, counter } => {
                    let number = self.counter_base[t as usize] as usize + counter as usize;
                    let done = &mut self.counters[number];
                    match times {
                        Some(n) if *done >= n => *done = 0,
                        _ => {
                            // An endless loop may go round more often than u32 counts.
                            *done = done.saturating_add(u32::from(times.is_some()));
                            *at = th.first + to;
                        }
                    }
                }
                Step::Park => {
                    self.block(c, t, false);
                    return;
                }
                Step::Exit => {
                    self.exit(c, t);
                    return;
                }
            }
            if self.world.cpus[c as usize].resched.is_some() && !self.only_ends(t) {
                // It will be put back with its next step still to come.
                self.fetch_run(t);
                break;
            }
        }
        self.arm_completion(c);
    }

    /// `t` has nothing to do but to end, and a thread that it has woken does not preempt it: between
    /// exit_notify and do_task_dead (do_exit, kernel/exit.c) nothing takes the CPU from it.
    fn only_ends(&self, t: Tid) -> bool {
        let next = self.next_step[t as usize];
        next < self.world.threads[t as usize].end
            && matches!(self.load.steps[next as usize], Step::Exit)
    }

    /// `t`, on `c`, goes to sleep, which costs it CPU time once it is back.
    fn sleep_at_cost(&mut self, c: Cpu, t: Tid, cost: u32, disk: bool) {
        if cost > 0 {
            self.burst(t, cost);
        }
        self.block(c, t, disk);
    }

    /// `t` has raised a wake; answers whether that costs it CPU time before its next step.
    fn pays_for_wake(&mut self, t: Tid, cost: u32) -> bool {
        self.policy.back_from_kernel(&mut self.world, t);
        if cost > 0 {
            self.burst(t, cost);
        }
        cost > 0
    }

    pub(super) fn fail_fork(&mut self, t: Tid, child: Tid) {
        let name = |t: Tid| self.load.threads[t as usize].name.clone();
        self.world.fault = Some(Error::usage(
            format!(
                "thread {t} ({:?}) forks thread {child} ({:?}), which has already started",
                name(t),
                name(child)
            ),
            "one fork for each thread",
            "give each fork its own thread; a fork in a loop runs only once",
        ));
    }

    pub(super) fn receive(&mut self, wait: Waiting) -> bool {
        let mailbox = &mut self.boxes[wait.channel as usize];
        if wait.count == 0 {
            let any = mailbox.sent > mailbox.taken;
            mailbox.taken += u64::from(any);
            any
        } else {
            let there = mailbox.sent >= wait.count;
            if there {
                mailbox.taken = mailbox.taken.max(wait.count);
            }
            there
        }
    }

    /// Answers whether it woke the reader.
    pub(super) fn signal(&mut self, c: Cpu, from: Tid, to: Tid, pair: u32, sync: bool) -> bool {
        let inbox = self.load.inboxes.get(to as usize).copied();
        for channel in [Some(pair), inbox].into_iter().flatten() {
            if let Some(mailbox) = self.boxes.get_mut(channel as usize) {
                mailbox.sent += 1;
            }
        }
        if let Some(wait) = self.waiting[to as usize]
            && self.receive(wait)
        {
            self.waiting[to as usize] = None;
            let wake = Wake {
                waker: Some(from),
                cpu: c,
                sync,
            };
            self.wake(to, wake);
            return true;
        }
        false
    }
}
