//! What is known, and what is not any more, once a thread is seen on a CPU.
//!
//! Rules Doubt, Evidence and Found of docs/trace-model.md.

use super::unreported::Break;
use super::{CpuTotals, NOBODY, Reconstructor};
use crate::model::event::{Censored, End, LossReason, State};
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
    /// the source says what it lost, it ran there. A broken chain alone does not tell where the
    /// other switches are that must be missing, too: then rule Found applies.
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
                    && self.holes.moves_recorded()
                    && thread.wait.as_ref().is_some_and(|wait| {
                        // A CPU with a thread in its queue does not idle.
                        let idled = self.cpus[usize::from(queue)].idled;
                        !wait.begun_before && idled <= wait.ts_enqueued.unwrap_or(since)
                    }) =>
            {
                let anywhere = self.uncounted;
                self.holes.doubt_of_queued(utid, queue, since, t, anywhere)
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
            let until = from.max(wait.ts_ready);
            self.write_wait(utid, &wait, None, until, Censored::Right);
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
        if known {
            let totals = &self.cpus[usize::from(cpu)];
            let ts_begin = totals.confirmed;
            let found = Break {
                cpu,
                believed: totals.current,
                begin: ts_begin,
                end: t,
                switches: totals.switches,
            };
            let (believed, left) = (found.believed, self.left(found.believed));
            self.breaks.add(found, self.is_idle(believed), left);
            self.clues.broken(believed, utid);
            self.lose_current(cpu);
            self.counters.chain_breaks += 1;
            self.holes.break_chain(cpu, ts_begin, t);
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
            self.settle_found(utid, t);
            self.unseat(utid, t);
        }
        false
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
            let until = last_event.max(wait.ts_ready);
            self.write_wait(utid, &wait, None, until, Censored::Right);
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
