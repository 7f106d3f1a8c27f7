//! What a wakeup begins, and what it says of the thread's last events.
//!
//! Rules Woken again, Woken elsewhere, Half a wake and Sleep without an end of docs/trace-model.md.

use super::thread::{OpenWait, PendingWake, Thread};
use super::unreported::HABIT;
use super::{HALF_A_WAKE, Reconstructor};
use crate::model::event::{Cause, End, State, WakeKind};
use crate::model::tables::Wakeup;

impl Reconstructor {
    pub fn wakeup(&mut self, row: &Wakeup) {
        self.enqueues |= row.kind == WakeKind::Enqueued;
        self.any_wake = true;
        // A damaged number may be of no CPU.
        let target_cpu = row
            .target_cpu
            .filter(|cpu| usize::from(*cpu) < self.cpus.len());
        let row = &Wakeup { target_cpu, ..*row };
        if let Some(current) = row.current_utid {
            self.evidence(row.cpu, current, row.ts);
        }
        if self.is_idle(row.utid) {
            return;
        }
        let (utid, t) = (row.utid, row.ts);
        self.stamped(utid, row.cpu, t);
        let left_out = self.left_out(utid);
        let thread = self.thread(utid, t);
        if row.prio.is_some() {
            thread.prio = row.prio;
        }
        if left_out {
            return;
        }
        self.rested_since(utid, row.kind, t);
        let stayed_on = self.still_queued(utid, row);
        if let Some(target) = row.target_cpu {
            self.holes.ran(utid, target);
        }
        if self.ran_unseen(utid, row) {
            self.settle_found(utid, t);
        } else if !self.in_one_call(utid, row) {
            self.settle(utid, t, stayed_on);
        }
        let queued = self.threads[utid as usize].is_queued();
        let mut awake_before = false;
        if row.kind == WakeKind::Waking && self.expects_waking {
            self.woken_elsewhere(utid, t, row.target_cpu);
            awake_before = self.woken_again(utid, t);
        } else if row.kind == WakeKind::Enqueued && self.enqueues_once && queued {
            awake_before = self.enqueued_again(utid, t);
        } else if row.kind == WakeKind::Enqueued && self.halves_of_two(utid, t) {
            self.lose_sight(utid);
        }
        let thread = &mut self.threads[utid as usize];
        awake_before |= std::mem::take(&mut thread.may_be_awake);
        thread.last_event = t;
        match (row.kind, thread.state) {
            (WakeKind::Waking, State::Running) => {
                let newer = PendingWake {
                    ts: t,
                    waker: row.waker_utid,
                    waker_cpu: Some(row.cpu),
                    target_cpu: row.target_cpu,
                };
                if thread.pending.replace(newer).is_some() {
                    self.counters.spurious_wakeups += 1;
                }
            }
            (WakeKind::Enqueued | WakeKind::New, State::Running) => {
                let expected = thread.pending.take().is_some();
                self.late_enqueues += u64::from(self.expects_waking && !expected);
                self.counters.spurious_wakeups += 1;
            }
            (WakeKind::Waking, State::Runnable) => self.counters.spurious_wakeups += 1,
            (WakeKind::Enqueued | WakeKind::New, State::Runnable) => match &mut thread.wait {
                Some(wait) if wait.ts_enqueued.is_none() => {
                    wait.ts_enqueued = Some(t);
                    wait.queue_cpu = row.target_cpu;
                    thread.cpu = row.target_cpu;
                }
                _ => self.counters.spurious_wakeups += 1,
            },
            (WakeKind::Enqueued, _) if thread.pending.is_some() => {
                if let Some(wake) = thread.pending.take() {
                    let mut wait = thread.confirm(&wake, Some(t));
                    wait.queue_cpu = row.target_cpu;
                    thread.state = State::Runnable;
                    thread.cpu = wait.queue_cpu;
                    thread.wait = Some(wait);
                    self.counters.wakes_before_switch_out += 1;
                }
            }
            (kind, _) => {
                let spurious = thread.pending.take().is_some();
                if kind == WakeKind::Enqueued && self.expects_waking {
                    // It was awake since its `waking`, which was not seen.
                    thread.forget();
                }
                let waking = kind == WakeKind::Waking;
                let begun_before =
                    awake_before || self.expects_waking && kind == WakeKind::Enqueued;
                let known = std::mem::replace(&mut thread.known, true);
                let before_sight = begun_before
                    && !known
                    && (awake_before || t.saturating_sub(thread.since) < HALF_A_WAKE);
                let wait = OpenWait {
                    cause: if kind == WakeKind::New {
                        Cause::New
                    } else {
                        Cause::Wake
                    },
                    ts_waking: (waking && !awake_before).then_some(t),
                    // An enqueue is not of an earlier wakeup than that.
                    ts_ready: match (begun_before, awake_before) {
                        (false, _) => t,
                        (true, false) => thread.since.max(t.saturating_sub(HALF_A_WAKE)),
                        (true, true) => thread.since,
                    },
                    ts_enqueued: (!waking).then_some(t),
                    waker: row.waker_utid,
                    waker_cpu: Some(row.cpu),
                    prev_cpu: thread.last_cpu,
                    // A `waking` names the CPU where the thread was.
                    queue_cpu: row.target_cpu.filter(|_| !waking),
                    begun_before,
                    before_sight,
                    may_be_woken: false,
                };
                self.counters.spurious_wakeups += u64::from(spurious);
                self.close(utid, t, End::Woken);
                let thread = &mut self.threads[utid as usize];
                thread.since = t;
                thread.state = State::Runnable;
                thread.cpu = row.target_cpu;
                thread.wait = Some(wait);
            }
        }
    }

    /// Rule Habit: a thread that left its CPU unseen is woken at `t`, so it has slept since it left.
    fn rested_since(&mut self, utid: u32, kind: WakeKind, t: i64) {
        let thread = &mut self.threads[utid as usize];
        if !std::mem::take(&mut thread.left_unseen) {
            return;
        }
        let Some(left) = self.left_unseen.remove(&utid) else {
            return;
        };
        let of_sleepers = match kind {
            WakeKind::Waking => self.expects_waking,
            WakeKind::Enqueued => self.enqueues_once,
            WakeKind::New => false,
        };
        if of_sleepers && self.rest_from(utid, left.by, t) {
            self.woken_next += 1;
        }
    }

    /// The thread, which left its CPU by `left`, slept from then to `t`, unless it may have run in a
    /// hole.
    fn rest_from(&mut self, utid: u32, left: i64, t: i64) -> bool {
        let unknown = self.threads[utid as usize].state == State::Unknown;
        let rests = unknown && self.holes.lost_from(utid, left, t).is_none();
        if rests {
            self.close(utid, left, End::Lost);
            self.threads[utid as usize].state = State::Sleeping;
        }
        rests
    }

    /// Rule Habit, at the end of the window, for those that left unseen and were not seen again. If
    /// all others were woken next, so would they have been. Else, a thread that was not in the
    /// queue when the CPU idled, and was not moved, slept since it left: its switch-in would have
    /// been recorded.
    pub(super) fn rest_to_the_end(&mut self, end: i64) {
        let left = std::mem::take(&mut self.left_unseen);
        let all = self.woken_next >= HABIT && self.run_next == 0;
        let moves = self.holes.moves_recorded();
        let mut left: Vec<_> = left.into_iter().collect();
        left.sort_unstable_by_key(|(utid, _)| *utid);
        for (utid, left) in left {
            let thread = &self.threads[utid as usize];
            let moved = thread.last_event > left.by;
            let rested = left.rested.filter(|_| moves && !moved);
            if thread.left_unseen && (all || rested.is_some()) {
                // A hole after it left may hide a run, but not from when the CPU idled.
                let _ = self.rest_from(utid, left.by, end)
                    || rested.is_some_and(|idled| self.rest_from(utid, idled, end));
            }
        }
    }

    /// The queue that a wake of a waiting thread shows it to be on still: its
    /// `waking` named that CPU, or a migration since, and now it is enqueued there.
    fn still_queued(&self, utid: u32, row: &Wakeup) -> Option<u16> {
        let thread = &self.threads[utid as usize];
        let on_its_way = thread.wait.as_ref()?.ts_enqueued.is_none();
        let here = row.kind == WakeKind::Enqueued && on_its_way;
        row.target_cpu.filter(|_| here)
    }

    /// Rule Half a wake, on FreeBSD: a thread, or an interrupt (no waker), enqueues what it wakes in one
    /// call, so that did not run in between.
    fn in_one_call(&self, utid: u32, row: &Wakeup) -> bool {
        let thread = &self.threads[utid as usize];
        row.kind == WakeKind::Enqueued
            && !self.expects_waking
            && thread.wait.as_ref().is_some_and(|wait| {
                wait.ts_enqueued.is_none()
                    && (wait.waker, wait.waker_cpu) == (row.waker_utid, Some(row.cpu))
            })
            && !self.holes.any_on(row.cpu, thread.since, row.ts)
    }

    /// Rules Woken again and Woken elsewhere: does this wake show that the thread ran, or may have,
    /// since its last event?
    fn ran_unseen(&self, utid: u32, row: &Wakeup) -> bool {
        let thread = &self.threads[utid as usize];
        match row.kind {
            WakeKind::Waking if self.expects_waking => {
                thread.wait.is_some() || self.is_elsewhere(utid, row.target_cpu)
            }
            WakeKind::Enqueued if self.enqueues_once => thread.is_queued(),
            _ => false,
        }
    }

    /// Rule Woken elsewhere: a `waking` names the CPU that the thread is on. If that is not
    /// where it was, it ran there, unseen.
    fn woken_elsewhere(&mut self, utid: u32, t: i64, target: Option<u16>) {
        if self.is_elsewhere(utid, target) {
            self.unseat(utid, t);
        }
    }

    fn is_elsewhere(&self, utid: u32, target: Option<u16>) -> bool {
        let was = self.threads[utid as usize].cpu;
        let elsewhere = was.zip(target).is_some_and(|(was, target)| was != target);
        elsewhere && self.holes.moves_recorded()
    }

    /// Rule Woken again: a thread that waits for a CPU is awake, and a kernel that reports every
    /// `waking` raises none for it; so it ran, unseen, and slept again. True if it may have been on
    /// its way to sleep instead, and awake ever since. Where nothing counts losses, it shows that
    /// switches of an unknown CPU are missing.
    fn woken_again(&mut self, utid: u32, t: i64) -> bool {
        let Some(wait) = &self.threads[utid as usize].wait else {
            return false;
        };
        let may_be_woken = wait.may_be_woken;
        if may_be_woken {
            self.lose_sight(utid);
        } else {
            if self.losses_unreported() {
                let Thread { since, cpu, .. } = self.threads[utid as usize];
                let left = |utid| self.left(utid);
                let hole = cpu.is_some_and(|cpu| self.breaks.explain(cpu, since, t, left));
                if !hole {
                    self.holes.break_chains(utid, since, t);
                }
            }
            self.unseat(utid, t);
        }
        may_be_woken
    }

    /// The same without `waking`: a thread that was woken is not put on a queue once more. One that
    /// was preempted may be, if it was about to sleep and has been awake ever since: true then.
    fn enqueued_again(&mut self, utid: u32, t: i64) -> bool {
        let thread = &self.threads[utid as usize];
        if thread.was_enqueued() {
            return self.woken_again(utid, t);
        }
        let may_be_woken = thread.is_queued();
        if may_be_woken {
            self.lose_sight(utid);
        }
        may_be_woken
    }

    /// Rule Moved unseen: a waiting thread was on the queue of `queue`. If that is not the one it
    /// was put on, it is unknown when it left that, and, where moves are recorded and losses are
    /// not counted, whether it ran in between: its events are missing.
    pub(super) fn found_queued(&mut self, utid: u32, queue: Option<u16>) {
        let thread = &mut self.threads[utid as usize];
        let Some(wait) = &mut thread.wait else { return };
        let moved = thread
            .cpu
            .zip(queue)
            .is_some_and(|(known, queue)| known != queue);
        if self.expects_waking && moved && wait.ts_enqueued.is_some() {
            self.counters.unseen_moves += 1;
            thread.cpu = None;
            wait.queue_cpu = None;
            if self.losses_unreported() && self.holes.moves_recorded() {
                self.lose_sight(utid);
            }
        }
    }

    /// Rule Half a wake, at the end of the window: of the wakeup that began the thread's wait, one
    /// step is missing for so long that it does not come any more.
    pub(super) fn half_woken(&self, utid: u32, end: i64) -> bool {
        let thread = &self.threads[utid as usize];
        self.expects_waking
            && self.enqueues
            && end.saturating_sub(thread.since) > HALF_A_WAKE
            && thread.wait.as_ref().is_some_and(|wait| {
                wait.cause == Cause::Wake
                    && (wait.begun_before || wait.ts_enqueued.is_none())
                    && thread.last_event == thread.since
            })
    }

    /// Rule Sleep without an end: it sleeps when the window ends, as far as is seen, but its wakeups
    /// are not.
    pub(super) fn perhaps_woken(&self, utid: u32) -> bool {
        let thread = &self.threads[utid as usize];
        thread.state.is_at_rest()
            && (thread.unwoken || !self.any_wake && self.counters.missing_wakeups > 0)
    }

    /// Rule Half a wake: the thread is enqueued at `t`, so long after its `waking` that it is not
    /// of the same wakeup.
    fn halves_of_two(&self, utid: u32, t: i64) -> bool {
        let thread = &self.threads[utid as usize];
        let waits = thread.wait.as_ref();
        let waking = match (&thread.pending, waits) {
            (Some(wake), _) if thread.state != State::Running => Some(wake.ts),
            (_, Some(wait)) if wait.ts_enqueued.is_none() => wait.ts_waking,
            _ => None,
        };
        waking.is_some_and(|waking| t.saturating_sub(waking) > HALF_A_WAKE)
    }
}
