//! Which thread leaves a CPU of ULE's for which other, and when.
//!
//! A better thread on the same CPU is served at the return to user mode, which is at once here; a
//! thread switched out that way is requeued by its user priority, one preempted in the kernel (by
//! real time, or by another CPU's interrupt) at the head.
use super::super::machine::Cpu;
use super::super::workload::Tid;
use super::super::world::{RescheduleReason, World};
use super::freebsd_ast::Asked;
use super::ule::Ule;
use super::ule_queue::{Enter, MAX_TIMESHARE};

impl Ule {
    /// A new active priority of the thread that runs on `c`.
    pub(super) fn set_active(&mut self, c: Cpu, t: Tid, prio: i64) {
        let old = std::mem::replace(&mut self.td(t).prio, prio);
        let low = self.seen.lowpri[c as usize];
        if prio < low {
            self.seen.lowpri[c as usize] = prio;
        } else if old == low && prio != old {
            self.show_exactly(c);
        }
    }

    pub(super) fn return_to_user(&mut self, c: Cpu, t: Tid) {
        let prio = self.threads[t as usize].user_prio;
        if prio != self.prio_of(t) {
            self.set_active(c, t, prio);
        }
    }

    /// Whether `new` preempts `old` inside the kernel.
    fn preempts(&self, new: i64, old: i64, remote: bool) -> bool {
        if new >= old {
            return false;
        }
        old > MAX_TIMESHARE
            || self.preempt_thresh > 0
                && (new <= self.preempt_thresh
                    || remote && self.ast && new < self.batch && old >= self.batch)
    }

    /// A thread of priority `prio` came to the queue of `c`, on which its waker runs.
    pub(super) fn preempt_here(&mut self, w: &mut World, c: Cpu, prio: i64) {
        let Some(curr) = self.cpus[c as usize].curr else {
            return;
        };
        let old = self.prio_of(curr);
        if prio >= old {
            return;
        }
        let preempt = self.preempts(prio, old, false);
        // Of timeshare threads only the Linux port leaves a better one waiting.
        let timeshare = prio >= self.scale.min_interactive && old <= MAX_TIMESHARE;
        if preempt || self.ast || !timeshare {
            let asked = &mut self.cpus[c as usize].asked;
            asked.at_return = true;
            asked.preempt |= preempt;
            w.resched(c, RescheduleReason::Preempted);
        }
    }

    /// A thread has just been queued on another CPU.
    pub(super) fn notify(&mut self, w: &mut World, c: Cpu) {
        let q = &self.cpus[c as usize];
        let Some(curr) = q.curr.filter(|_| !q.notified) else {
            return;
        };
        let (new, old) = if self.modern {
            (self.seen.lowpri[c as usize], self.before)
        } else {
            (self.came, self.prio_of(curr))
        };
        if self.preempts(new, old, true) {
            self.cpus[c as usize].notified = true;
            self.interrupt(w, c);
        }
    }

    /// Another CPU's interrupt makes `c` look whether a better thread waits there.
    pub(super) fn interrupt(&mut self, w: &mut World, c: Cpu) {
        self.cpus[c as usize].asked.interrupt = true;
        w.resched(c, RescheduleReason::Preempted);
    }

    /// Whether the running `t` is switched out now that `c` was asked to choose, and
    /// how it is queued. If it is not, it goes on as if nothing had been.
    pub(super) fn put_off(&mut self, c: Cpu, t: Tid, asked: Asked) -> Option<Enter> {
        let worse = self.prio_of(t) > self.seen.lowpri[c as usize];
        if asked.preempt || (asked.interrupt && worse) {
            return Some(if asked.slice_end {
                Enter::Plain
            } else {
                Enter::Preempted
            });
        }
        if !asked.at_return {
            self.cpus[c as usize].notified = false;
            return None;
        }
        // On its way to user mode it has its user priority already.
        self.return_to_user(c, t);
        self.td(t).in_kernel = true;
        Some(Enter::Plain)
    }
}
