//! What a switch changes: one thread leaves a CPU, another one comes.

use super::thread::OpenWait;
use super::{NOBODY, Reconstructor};
use crate::model::event::{Cause, End, State};
use crate::model::tables::Switch;

impl Reconstructor {
    pub fn switch(&mut self, row: &Switch) {
        if usize::from(row.cpu) >= self.cpus.len() {
            return;
        }
        let t = row.ts;
        self.stamped(row.prev_utid, row.cpu, t);
        self.stamped(row.next_utid, row.cpu, t);
        if !self.is_idle(row.prev_utid) {
            let thread = self.thread(row.prev_utid, t);
            if row.prev_prio.is_some() {
                thread.prio = row.prev_prio;
            }
        }
        let chained = self.seen_on(row.cpu, row.prev_utid, t);
        let end = match row.prev_state {
            _ if self.is_idle(row.prev_utid) => End::Switched,
            State::Dead => End::Exited,
            State::Runnable => End::Preempted,
            _ => End::Switched,
        };
        self.release(row.cpu, t, end);
        if self.is_idle(row.prev_utid) {
            self.cpus[row.prev_utid as usize].idle_left += u64::from(chained);
        } else {
            if chained {
                let thread = &mut self.threads[row.prev_utid as usize];
                thread.left = thread.left.saturating_add(1);
            } else {
                self.close(row.prev_utid, t, end);
            }
            self.switch_out(row);
            self.forget_left_out(row.prev_utid);
        }
        if !self.is_idle(row.next_utid) {
            self.switch_in(row);
            self.forget_left_out(row.next_utid);
        }
        let unseen = self.left_out(row.next_utid);
        let idles = self.is_idle(row.next_utid);
        let totals = &mut self.cpus[usize::from(row.cpu)];
        if idles {
            totals.idled = t;
        }
        let empty = idles && !self.perhaps_queued.is_empty();
        totals.switches += 1;
        totals.first_ts.get_or_insert(t);
        totals.last_ts = Some(t);
        totals.current = if unseen { NOBODY } else { row.next_utid };
        if empty {
            self.queue_is_empty(row.cpu, t);
        }
    }

    /// Rule Filtered: what a thread that was not chosen does from now on is not recorded.
    fn forget_left_out(&mut self, utid: u32) {
        if self.left_out(utid) {
            let thread = &mut self.threads[utid as usize];
            thread.forget();
            thread.wait = None;
        }
    }

    /// `prev` has closed its interval; what becomes of it?
    fn switch_out(&mut self, row: &Switch) {
        let t = row.ts;
        let thread = &mut self.threads[row.prev_utid as usize];
        thread.since = t;
        thread.last_event = t;
        thread.cpu = Some(row.cpu);
        thread.last_cpu = Some(row.cpu);
        let yielded = std::mem::take(&mut thread.yielded);
        thread.state = row.prev_state;
        thread.known = true;
        match row.prev_state {
            State::Dead => {
                thread.born = false;
                thread.pending = None;
            }
            State::Runnable => {
                if thread.pending.take().is_some() {
                    self.counters.spurious_wakeups += 1;
                }
                let cause = if row.preempted == Some(false) || yielded {
                    Cause::Yield
                } else {
                    Cause::Preempt
                };
                thread.wait = Some(OpenWait {
                    cause,
                    ts_waking: None,
                    ts_ready: t,
                    ts_enqueued: Some(t),
                    waker: None,
                    waker_cpu: None,
                    prev_cpu: Some(row.cpu),
                    queue_cpu: Some(row.cpu),
                    begun_before: false,
                    before_sight: false,
                    may_be_woken: row.preempted == Some(true),
                });
            }
            // No thread runs off a CPU; and a wake says nothing about a state that is not known.
            State::Running | State::Unknown => {
                thread.state = State::Unknown;
                thread.pending = None;
            }
            _ => {}
        }
    }

    fn switch_in(&mut self, row: &Switch) {
        let (utid, t) = (row.next_utid, row.ts);
        self.counters.switch_ins += 1;
        let thread = self.thread(utid, t);
        if row.next_prio.is_some() {
            thread.prio = row.next_prio;
        }
        self.holes.ran(utid, row.cpu);
        self.settle(utid, t, Some(row.cpu));
        let thread = &self.threads[utid as usize];
        if thread.state == State::Running {
            self.unseat(utid, t);
        }
        self.found_queued(utid, Some(row.cpu));
        let thread = &mut self.threads[utid as usize];
        match thread.state {
            State::Runnable => {
                thread.confirm_queue(row.cpu);
                self.close(utid, t, End::Switched);
                let thread = &mut self.threads[utid as usize];
                thread.cpu = Some(row.cpu);
                if let Some(wait) = thread.wait.take() {
                    thread.unwoken &= wait.cause != Cause::Wake;
                    self.write_wait(utid, &wait, t);
                }
            }
            State::Unknown => {
                self.counters.first_sights += 1;
                let since = thread.since;
                self.close(utid, t, End::Switched);
                self.write_left_wait(utid, row.cpu, since, t);
            }
            _ => {
                if let Some(wake) = thread.pending.take() {
                    // The wake was raised on the thread's way off its CPU.
                    let wait = thread.confirm(&wake, None);
                    thread.state = State::Runnable;
                    thread.cpu = wake.target_cpu;
                    thread.wait = Some(wait);
                    thread.confirm_queue(row.cpu);
                    self.counters.wakes_before_switch_out += 1;
                    self.close(utid, t, End::Switched);
                    let thread = &mut self.threads[utid as usize];
                    thread.cpu = Some(row.cpu);
                    thread.unwoken = false;
                    if let Some(wait) = thread.wait.take() {
                        self.write_wait(utid, &wait, t);
                    }
                } else {
                    // When its sleep ended is unknown.
                    self.counters.missing_wakeups += 1;
                    thread.unwoken = true;
                    thread.forget();
                    let since = thread.since;
                    self.close(utid, t, End::Switched);
                    self.write_left_wait(utid, row.cpu, since, t);
                }
            }
        }
        let thread = &mut self.threads[utid as usize];
        self.run_next += u64::from(thread.left_unseen);
        thread.run(row.cpu, t);
    }
}
