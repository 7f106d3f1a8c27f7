//! SCHED_DEADLINE: kernel/sched/deadline.c, 3.14 to 6.18.
//!
//! Of each period a thread has a runtime, within a deadline; of those that may run the one with the
//! earliest deadline does, before all real-time threads (EDF). One that has used up its runtime
//! waits for its next period (update_curr_dl_se, seen at clock ticks and switches, as HRTICK_DL is
//! off; dl_task_timer), one that yields does so at once (yield_task_dl). One that wakes goes on
//! with what it has left where that is no more than its part of the time to its deadline, else it
//! begins a period (update_dl_entity), or with a deadline before the period's end it has what it
//! then may (update_dl_revised_wakeup), and after it nothing until the period ends
//! (dl_check_constrained_dl).
//!
//! What a thread was given is not in a trace, unless the recorder found it. Of one of which it is
//! not known the deadline is never and the runtime without end: it runs before all real-time
//! threads and after all of known deadlines, and among its like first come, first served.
//!
//! Left out: reclaiming (SCHED_FLAG_RECLAIM), admission, inherited deadlines.
use super::super::workload::{Class, Reservation, Tid};
use super::super::world::{State, World};
use super::linux_cbs::Budget;

#[derive(Debug, Clone, Copy)]
struct Server {
    thread: Tid,
    given: Reservation,
    budget: Budget,
    held: bool,
}

#[derive(Default)]
pub(super) struct Deadlines {
    servers: Vec<Server>,
    /// By thread, the place of its server; empty if there is none.
    place: Vec<Option<u32>>,
    /// The number of the first one's timer.
    timer: u32,
}

impl Deadlines {
    pub(super) fn new(w: &World, timer: u32) -> Self {
        let known = w.reservations().iter();
        let servers: Vec<Server> = known
            .filter_map(|(thread, given)| {
                Some(Server {
                    thread: *thread,
                    given: (*given)?,
                    budget: Budget::default(),
                    held: false,
                })
            })
            .collect();
        let mut place = Vec::new();
        if !servers.is_empty() {
            place.resize(w.nthreads(), None);
        }
        for (i, s) in (0..).zip(&servers) {
            place[s.thread as usize] = Some(i);
        }
        Self {
            servers,
            place,
            timer,
        }
    }

    fn place(&self, t: Tid) -> Option<usize> {
        self.place.get(t as usize)?.map(|i| i as usize)
    }

    /// The deadline of `t`.
    pub(super) fn of(&self, t: Tid) -> i64 {
        self.place(t)
            .map_or(i64::MAX, |i| self.servers[i].budget.deadline)
    }

    /// Whether `t` waits for its next period.
    pub(super) fn is_held(&self, t: Tid) -> bool {
        self.place(t).is_some_and(|i| self.servers[i].held)
    }

    /// `t` is queued: it woke, or it ran until now.
    pub(super) fn queued(&mut self, w: &mut World, t: Tid) {
        let Some(i) = self.place(t) else { return };
        let now = w.now();
        let runs = w.cpu(w.thread(t).cpu).curr == Some(t);
        let s = &mut self.servers[i];
        if runs || s.held {
            return;
        }
        let (given, until) = (s.given, s.budget.deadline);
        let next = until.saturating_sub(given.deadline) + given.period;
        if until < now && now < next {
            self.hold(w, i, next);
            return;
        }
        let over = until < now;
        let overflows = s.budget.overflows(&given, now);
        if !over && overflows && given.deadline < given.period {
            s.budget.revise(&given, now);
        } else if over || overflows {
            s.budget.renew(&given, now);
        }
    }

    fn hold(&mut self, w: &mut World, i: usize, until: i64) {
        let s = &mut self.servers[i];
        s.held = true;
        s.budget.runtime = s.budget.runtime.min(0);
        w.arm_timer(self.timer + i as u32, until);
    }

    /// `t` ran for `ns`; whether it may go on.
    pub(super) fn ran(&mut self, w: &mut World, t: Tid, ns: i64) -> bool {
        let Some(i) = self.place(t) else { return true };
        let s = &mut self.servers[i];
        s.budget.runtime -= ns;
        if s.held || s.budget.runtime > 0 {
            return !s.held;
        }
        self.use_up(w, i);
        false
    }

    /// `t` gives up what it has left.
    pub(super) fn yields(&mut self, w: &mut World, t: Tid) {
        if let Some(i) = self.place(t).filter(|i| !self.servers[*i].held) {
            let left = &mut self.servers[i].budget.runtime;
            *left = (*left).min(0);
            self.use_up(w, i);
        }
    }

    fn use_up(&mut self, w: &mut World, i: usize) {
        let s = &self.servers[i];
        let next = s.budget.deadline - s.given.deadline + s.given.period;
        if next < w.now() {
            self.replenish(w, i);
        } else {
            self.hold(w, i, next);
        }
    }

    fn replenish(&mut self, w: &World, i: usize) {
        let s = &mut self.servers[i];
        s.budget.replenish(&s.given, w.now());
        s.held = false;
    }

    /// A timer fired: the thread whose period has started.
    pub(super) fn timer(&mut self, w: &World, id: u32) -> Option<Tid> {
        let i = id.checked_sub(self.timer)? as usize;
        let t = self.servers.get(i)?.thread;
        if w.thread(t).state == State::Dead || w.thread(t).class != Class::Deadline {
            self.servers[i].held = false;
        } else {
            self.replenish(w, i);
        }
        Some(t)
    }
}
