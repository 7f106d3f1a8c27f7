//! What is known, and what is not any more, once a thread is seen on a CPU.
//!
//! Rules Doubt, Evidence and Found of docs/trace-model.md.

use super::unreported::Break;
use super::{CpuTotals, LeftUnseen, NOBODY, Reconstructor};
use crate::model::event::{End, LossReason, State};
use crate::model::tables::Loss;

impl Reconstructor {
    /// The CPU's current thread left it unseen, some time after it was last
    /// confirmed there.
    pub(super) fn lose_current(&mut self, cpu: u16) {
        let CpuTotals {
            current, confirmed, ..
        } = self.cpus[usize::from(cpu)];
        self.release(cpu, confirmed, End::Lost);
        if current != NOBODY && current >= self.ncpu {
            self.threads[current as usize].forget();
        }
    }

    /// Rule Doubt, before an event of the thread at `t`: if it may have run unseen
    /// since its last one, it is `unknown` from the first such instant on. `stayed_on`:
    /// the CPU whose queue the event names as the one it is still on.
    #[inline]
    pub(super) fn settle(&mut self, utid: u32, t: i64, stayed_on: Option<u16>) {
        if !self.holes.none_after(self.threads[utid as usize].since) {
            self.doubt(utid, t, stayed_on);
        }
    }

    /// The same before an event which proves that the thread ran, unseen, since its last one. Where
    /// the source says what it lost, it ran there. A broken chain alone does not show where the
    /// other missing switches are: then rule Found applies.
    #[cold]
    pub(super) fn settle_found(&mut self, utid: u32, t: i64) {
        let since = self.threads[utid as usize].since;
        if self.holes.lost_from(utid, since, t).is_some() {
            self.doubt(utid, t, None);
        }
    }

    #[cold]
    fn doubt(&mut self, utid: u32, t: i64, stayed_on: Option<u16>) {
        let thread = &self.threads[utid as usize];
        let since = thread.since;
        let doubt = match (thread.state, stayed_on) {
            (State::Running | State::Unknown, _) => None,
            (State::Runnable, Some(queue))
                if thread.cpu == stayed_on
                    && !self.holes.is_unrecorded(queue)
                    && thread.wait.as_ref().is_some_and(|wait| {
                        // A CPU with a thread in its queue does not idle.
                        let idled = self.cpus[usize::from(queue)].idled;
                        let begun = !wait.begun_before || wait.ts_enqueued.is_some();
                        begun && idled <= wait.ts_enqueued.unwrap_or(since)
                    }) =>
            {
                if self.holes.moves_recorded() {
                    let anywhere = self.uncounted;
                    self.holes.doubt_of_queued(utid, queue, since, t, anywhere)
                } else {
                    self.holes.doubt_of_found_again(utid, since, t)
                }
            }
            (State::Runnable, _) => self.holes.doubt_of_runnable(utid, since, t),
            _ => self.holes.doubt_of_absent(utid, since, t),
        };
        let Some(from) = doubt else { return };
        self.close(utid, from, End::Lost);
        let thread = &mut self.threads[utid as usize];
        thread.since = from;
        thread.forget();
        if let Some(wait) = thread.wait.take() {
            thread.may_be_awake = wait.may_be_woken;
            self.cut_wait(utid, &wait, from);
        }
    }

    /// Rule Evidence: `utid` is on `cpu` at `t`. True if it was known to be.
    pub(super) fn seen_on(&mut self, cpu: u16, utid: u32, t: i64) -> bool {
        let totals = &mut self.cpus[usize::from(cpu)];
        if totals.current == utid {
            totals.confirmed = t;
            return true;
        }
        let known = totals.current != NOBODY;
        if totals.silent.take().is_some() {
            self.counters.contradictions += 1;
        }
        let mut of_habit = None;
        if known {
            let explained = self.one_switch_explains(cpu, utid, t);
            let totals = &self.cpus[usize::from(cpu)];
            let ts_begin = totals.confirmed;
            let found = Break {
                cpu,
                believed: totals.current,
                begin: ts_begin,
                end: t,
                switches: totals.switches,
                explained,
            };
            let (believed, left) = (found.believed, self.left(found.believed));
            let habit = self.breaks.add(found, self.is_idle(believed), left);
            self.clues.broken(believed, utid);
            self.lose_current(cpu);
            self.counters.chain_breaks += 1;
            if habit && self.recorded.is_none() {
                self.counters.unreported_leavings += 1;
                of_habit = Some(ts_begin);
                if !self.is_idle(believed) {
                    self.leave_unseen(cpu, believed, t);
                    if self.is_idle(utid) {
                        self.queue_is_empty(cpu, t);
                    }
                }
            } else {
                self.holes.break_chain(cpu, ts_begin, t);
            }
            if self.holes.leaks_from(cpu, ts_begin, t).is_none() {
                self.losses.push(Loss {
                    cpu: Some(cpu),
                    ts_begin,
                    ts_end: t,
                    count: None,
                    reason: LossReason::ChainBreak,
                });
            }
        }
        if !self.is_idle(utid) {
            self.thread(utid, t);
            match of_habit {
                Some(since) => {
                    self.settle(utid, t, Some(cpu));
                    self.switched_in_within(utid, since, t);
                }
                None => self.settle_found(utid, t),
            }
            self.unseat(utid, t);
        }
        false
    }

    /// Rule Habit: the thread had left `cpu` by `t`, to sleep or for its queue.
    fn leave_unseen(&mut self, cpu: u16, utid: u32, t: i64) {
        self.threads[utid as usize].left_unseen = true;
        let left = LeftUnseen {
            by: t,
            rested: None,
        };
        self.left_unseen.insert(utid, left);
        self.perhaps_queued.retain(|&(_, queued)| queued != utid);
        self.perhaps_queued.push((cpu, utid));
    }

    /// `cpu` idles from `t` on, so its queue is empty.
    #[cold]
    pub(super) fn queue_is_empty(&mut self, cpu: u16, t: i64) {
        let left = &mut self.left_unseen;
        self.perhaps_queued.retain(|&(queue, utid)| {
            if queue == cpu
                && let Some(left) = left.get_mut(&utid)
            {
                left.rested = Some(t);
            }
            queue != cpu
        });
    }

    /// Rule Habit: would one missing switch, to the thread that is found on `cpu` at `t`, explain
    /// that another one was believed to run there? It would if the thread was waiting there, or if
    /// nothing was known of it.
    fn one_switch_explains(&mut self, cpu: u16, utid: u32, t: i64) -> bool {
        if self.is_idle(utid) {
            return true;
        }
        let thread = self.thread(utid, t);
        match thread.state {
            State::Unknown => true,
            State::Running => false,
            State::Runnable => thread.cpu.is_none_or(|queue| queue == cpu),
            _ => thread.pending.is_some(),
        }
    }

    /// Rule Habit: the thread was switched in at some time within `[begin, end)`, and waited until
    /// then.
    fn switched_in_within(&mut self, utid: u32, begin: i64, end: i64) {
        let thread = &mut self.threads[utid as usize];
        if let Some(wake) = thread.pending.take()
            && thread.state.is_at_rest()
        {
            let wait = thread.confirm(&wake, None);
            thread.state = State::Runnable;
            thread.cpu = wake.target_cpu;
            thread.wait = Some(wait);
            self.counters.wakes_before_switch_out += 1;
        }
        let thread = &self.threads[utid as usize];
        if thread.state != State::Runnable {
            return;
        }
        let since = begin.max(thread.since).min(end);
        self.close(utid, since, End::Lost);
        let thread = &mut self.threads[utid as usize];
        thread.forget();
        if let Some(wait) = thread.wait.take() {
            self.cut_wait(utid, &wait, since);
        }
    }

    /// The thread is on a CPU and we did not see it get there: what we believed
    /// since its last event is not to be trusted. Its interval, now `unknown`,
    /// stays open; the event at hand closes it.
    pub(super) fn unseat(&mut self, utid: u32, t: i64) {
        let thread = &mut self.threads[utid as usize];
        match (thread.state, thread.cpu) {
            (State::Unknown, _) => return,
            (State::Running, Some(cpu)) => {
                self.clues.unseen(utid);
                let since = self.cpus[usize::from(cpu)].confirmed;
                if self.losses_unreported() {
                    self.holes.break_chain(cpu, since, t);
                }
                self.lose_current(cpu);
                self.cpus[usize::from(cpu)].silent = Some(since);
                return;
            }
            _ => self.counters.unseen_switch_ins += 1,
        }
        self.lose_sight(utid);
    }

    /// What the thread, on no CPU, did since its last event is not known any more.
    pub(super) fn lose_sight(&mut self, utid: u32) {
        let thread = &mut self.threads[utid as usize];
        let (wait, last_event) = (thread.wait.take(), thread.last_event);
        thread.forget();
        if let Some(wait) = wait {
            self.cut_wait(utid, &wait, last_event);
        }
    }

    /// Rule Evidence for an event raised on `cpu` while `utid` ran there.
    pub(super) fn evidence(&mut self, cpu: u16, utid: u32, t: i64) {
        if usize::from(cpu) >= self.cpus.len() || self.seen_on(cpu, utid, t) || self.left_out(utid)
        {
            return;
        }
        self.release(cpu, t, End::Lost);
        self.cpus[usize::from(cpu)].current = utid;
        if !self.is_idle(utid) {
            self.close(utid, t, End::Switched);
            self.threads[utid as usize].run(cpu, t);
            self.holes.ran(utid, cpu);
        }
    }
}
