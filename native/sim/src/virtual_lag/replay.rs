//! Follows recorded threads from queue to queue.
use super::queue::{Membership, Queue, Queues};
use super::rules::{Eevdf, Rules};
use super::states::{States, Turns, is_turn};
use super::tally::{EMPTY, LagTally};
use super::{FairThread, Point, QueueState, Turn};
use crate::policy::eevdf_lag::lag_limit;
use crate::policy::linux_fair::NICE_0;

// A run longer than this is charged at one blow: whose request ended when no
// longer matters, and the loop over requests must end.
const LONG_RUN: i64 = 100_000_000_000;

pub struct Replay<'a> {
    rules: Rules,
    pub(super) known: &'a [FairThread],
    pub(super) all: Queues,
    pub(super) tallies: Vec<LagTally>,
    pub(super) points: Option<Vec<Point>>,
    pub(super) now: i64,
    pub(super) states: &'a States,
    /// The starts that have been taken.
    started: usize,
}

impl<'a> Replay<'a> {
    pub fn new(rules: Rules, known: &'a [FairThread], states: &'a States, series: bool) -> Self {
        Self {
            rules,
            known,
            all: Queues::new(known.len(), states.ncpus),
            tallies: vec![EMPTY; known.len()],
            points: series.then(Vec::new),
            now: i64::MIN,
            states,
            started: 0,
        }
    }

    /// Takes these turns, and what starts meanwhile.
    pub fn run(&mut self, mut ahead: Turns<'_>) {
        let (states, known) = (self.states, self.known);
        let mut starts = states.starts[self.started..].iter().peekable();
        loop {
            let before = ahead.clone();
            let Some((end, utid, then)) = ahead.next() else {
                break;
            };
            // A thread is created by one that still runs; of others, that are only seen for the
            // first time, what ends at that instant comes first.
            while let Some(start) = starts.next_if(|start| {
                start.ts < end
                    || start.ts == end && known[start.utid as usize].start == Some(start.ts)
            }) {
                self.started += 1;
                let does = states.doing(start.does);
                self.turn(start.ts, start.utid, does, true, &before);
            }
            if is_turn(then) {
                self.turn(end, utid, states.doing(then), false, &ahead);
            }
        }
    }

    pub(super) fn tally_of(&mut self, t: u32) -> &mut LagTally {
        &mut self.tallies[t as usize]
    }

    fn eevdf(&self) -> Option<Eevdf> {
        match self.rules {
            Rules::Eevdf(k) => Some(k),
            Rules::Cfs(_) => None,
        }
    }

    /// From `at` on, thread `t` does this. `first`: nothing adjoining was known of it before;
    /// `ahead`: the turns that come next.
    fn turn(&mut self, at: i64, t: u32, to: QueueState, first: bool, ahead: &Turns<'_>) {
        self.now = self.now.max(at);
        match to {
            QueueState::Waiting { cpu, weight } => {
                self.be_on(t, (cpu, weight), first, ahead);
                if self.all.of(t).place == Membership::Running {
                    self.stop(cpu, t);
                }
            }
            QueueState::Running { cpu, weight } => {
                self.be_on(t, (cpu, weight), first, ahead);
                if self.all.of(t).place != Membership::Running {
                    self.begin(cpu, t);
                }
            }
            QueueState::Asleep => self.leave(t, true),
            QueueState::Unknown => {
                self.leave(t, false);
                let e = self.all.entity(t);
                (e.lag, e.settled) = (0, false);
            }
            QueueState::Off | QueueState::Elsewhere | QueueState::Unplaced => self.leave(t, false),
        }
    }

    /// Have `t` on the queue of `c`, with that weight.
    fn be_on(&mut self, t: u32, (c, weight): (u16, i64), first: bool, ahead: &Turns<'_>) {
        let e = self.all.of(t);
        match (e.place, e.home()) {
            (Membership::Running | Membership::Queued, Some(from)) if from == c => {
                if e.weight != weight {
                    self.reweigh(c, t, weight);
                }
            }
            (Membership::Running | Membership::Queued, Some(from)) => {
                self.transfer((from, c), t, weight, ahead)
            }
            (Membership::Delayed, Some(from)) if from == c && e.weight == weight => {
                self.reinstate(c, t);
            }
            (Membership::Delayed, Some(from)) => {
                self.update(from, self.now);
                self.finish_delayed(t);
                self.join(c, t, weight, false);
            }
            _ => self.join(c, t, weight, first),
        }
    }

    // -- time passes ---------------------------------------------------------------------

    /// Charge the running thread of `c` up to `to`.
    #[inline]
    pub(super) fn update(&mut self, c: u16, to: i64) {
        let from = self.all.queue(c).at;
        if to > from {
            self.pass(c, from, to);
        }
    }

    fn pass(&mut self, c: u16, from: i64, to: i64) {
        let rules = self.rules;
        let q = self.all.queue(c);
        q.at = to;
        let Some(t) = q.curr else {
            // It looked for work before it idled.
            if !q.delayed.is_empty() && q.delayed.len() == q.members.len() {
                self.drop_delayed(c);
            }
            return;
        };
        if q.chooses {
            self.choose_again(c, t);
        }
        match rules {
            Rules::Eevdf(k) if k.delay && to - from < LONG_RUN => self.run_on(c, t, from, to, k),
            Rules::Eevdf(_) => self.all.charge(c, t, to - from),
            Rules::Cfs(_) => {
                self.all.charge(c, t, to - from);
                self.raise_min(c);
            }
        }
        self.look(c);
    }

    /// As `update`, request by request: each ends at a tick.
    fn run_on(&mut self, c: u16, t: u32, from: i64, to: i64, k: Eevdf) {
        let mut at = from;
        while at < to {
            let e = self.all.of(t);
            // What is too much for the numbers is longer than any run.
            let left = (e.deadline - e.v).saturating_mul(e.weight);
            let need = left.saturating_add(NICE_0 - 1).div_euclid(NICE_0).max(1);
            let until = if need <= to - at {
                k.clock.from(at + need).min(to)
            } else {
                to
            };
            self.all.charge(c, t, until - at);
            at = until;
            let e = self.all.entity(t);
            if e.v >= e.deadline {
                e.deadline = e.v + k.request(e.weight);
                self.all.queue(c).chooses = true;
                if at < to {
                    self.choose_again(c, t);
                }
            }
        }
    }

    /// A request is done and the CPU chooses again; there is no switch if the choice is the same.
    fn choose_again(&mut self, c: u16, t: u32) {
        let q = self.all.queue(c);
        q.chooses = false;
        if !q.delayed.is_empty() {
            q.prev = Some(t);
            self.all.put_back(t);
            self.drop_delayed(c);
            self.all.queue(c).prev = None;
        }
    }

    fn raise_min(&mut self, c: u16) {
        if let Some(least) = self.all.least(c) {
            let q = self.all.queue(c);
            q.min = q.min.max(least);
        }
    }

    /// A lone thread has no lag, whatever was before.
    fn look(&mut self, c: u16) {
        let cfs = matches!(self.rules, Rules::Cfs(_));
        let q = self.all.queue(c);
        if q.clean || q.members.len() > 1 {
            return;
        }
        let min = q.min;
        let Some(t) = q.members.first().copied() else {
            return;
        };
        // CFS's queue must have caught up with it, too.
        if !cfs || self.all.of(t).v == min {
            self.all.queue(c).clean = true;
        }
    }

    // -- CFS: virtual time of a queue -----------------------------------------------------

    /// Bring the queue's own time up to its last tick: what other CPUs see of it.
    fn refresh(&mut self, c: u16) {
        if let Rules::Cfs(k) = self.rules {
            self.update(c, k.clock.before(self.now));
        }
    }

    /// Carry the virtual time of `t` over to that of `c`.
    fn rebase(&mut self, c: u16, t: u32) {
        let Some(home) = self.all.of(t).home() else {
            return;
        };
        if home != c {
            self.refresh(home);
            let by = self.all.queue(c).min - self.all.queue(home).min;
            self.all.entity(t).v += by;
        }
    }

    // -- joining and leaving -----------------------------------------------------------------

    fn join(&mut self, c: u16, t: u32, weight: i64, first: bool) {
        self.update(c, self.now);
        let first = first || self.all.of(t).home().is_none();
        let known = &self.known[t as usize];
        let born = first && known.start == Some(self.now);
        let parent = known.parent.filter(|p| born && self.is_known(*p));
        let e = self.all.entity(t);
        if e.weight != weight && e.weight > 0 {
            e.lag = scaled(e.lag, e.weight, weight);
        }
        e.weight = weight;
        match self.rules {
            Rules::Eevdf(k) => {
                if first {
                    (e.lag, e.settled) = (0, born);
                }
                let request = k.request(weight);
                let half = parent.is_some() && k.initial;
                self.place(c, t, k, if half { request / 2 } else { request });
            }
            Rules::Cfs(k) => {
                if first {
                    self.inherit(c, t, parent);
                } else {
                    self.rebase(c, t);
                }
                let q = self.all.queue(c);
                let (min, others) = (q.min, (q.members.len() as i64, q.sum.weight));
                let e = self.all.entity(t);
                e.v = if first {
                    k.placing.born(e.v, min, parent.is_some(), others, weight)
                } else {
                    k.placing.woken(e.v, min)
                };
                if born && k.placing.child_first {
                    self.swap_with_parent(c, t, parent);
                }
            }
        }
        let open = !self.all.of(t).settled;
        self.counted(c, t);
        let told = self.tally_of(t);
        told.n += 1;
        told.n_censored += u32::from(open);
        self.note(c, t, Turn::Joined);
    }

    /// EEVDF: where `t`, which is counted nowhere, comes on `c`, with a request for so much
    /// virtual time.
    fn place(&mut self, c: u16, t: u32, k: Eevdf, request: i64) {
        let sum = self.all.queue(c).sum;
        let e = self.all.entity(t);
        e.v = sum.placed(if k.place_lag { e.lag } else { 0 }, e.weight);
        e.deadline = e.v + request;
    }

    /// CFS: a thread begins at its parent's distance from the parent's queue.
    fn inherit(&mut self, c: u16, t: u32, parent: Option<u32>) {
        let mut ahead = 0;
        let mut settled = false;
        if let Some(p) = parent
            && let Some(home) = self.all.of(p).home()
        {
            self.update(home, self.now);
            settled = self.is_settled(p);
            ahead = self.all.of(p).v - self.all.queue(home).min;
        }
        let min = self.all.queue(c).min;
        let e = self.all.entity(t);
        (e.v, e.settled) = (min + ahead, settled);
    }

    /// CFS of old: the child runs first, if its parent runs where it begins.
    fn swap_with_parent(&mut self, c: u16, t: u32, parent: Option<u32>) {
        let Some(p) = parent.filter(|p| self.all.queue(c).curr == Some(*p)) else {
            return;
        };
        let (pv, cv) = (self.all.of(p).v, self.all.of(t).v);
        if pv < cv {
            self.all.shift(c, p, cv);
            self.all.entity(t).v = pv;
        }
    }

    fn is_known(&self, t: u32) -> bool {
        self.known.get(t as usize).is_some_and(|known| known.listed)
    }

    fn is_settled(&self, t: u32) -> bool {
        let e = self.all.of(t);
        match (e.place, e.home()) {
            (Membership::Away, _) | (_, None) => e.settled,
            (_, Some(c)) => self.all.queues[usize::from(c)].clean,
        }
    }

    /// `t` is counted on `c` from now on.
    fn counted(&mut self, c: u16, t: u32) {
        self.look_around(c, t);
        let settled = self.all.of(t).settled;
        self.all.insert(c, t);
        self.all.entity(t).place = Membership::Queued;
        let eevdf = self.eevdf().is_some();
        let q = self.all.queue(c);
        // On an empty queue EEVDF forgets a thread's lag.
        q.clean = (q.clean && settled) || (eevdf && q.members.len() == 1);
    }

    /// `t` is counted on `c` no longer.
    fn uncounted(&mut self, c: u16, t: u32) {
        self.look_around(c, t);
        self.all.entity(t).settled = self.all.queue(c).clean;
        self.all.take_out(c, t);
        self.all.entity(t).place = Membership::Away;
        self.look(c);
    }

    /// The lag with which `t` would leave `c` now.
    fn keep_lag(&mut self, c: u16, t: u32) {
        if let Some(k) = self.eevdf() {
            let behind = self.all.behind(c, t);
            let e = self.all.entity(t);
            let most = lag_limit(k.slice, k.clock.jiffy(), e.weight);
            e.lag = behind.clamp(-most, most);
        }
    }

    fn leave(&mut self, t: u32, asleep: bool) {
        let e = self.all.of(t);
        let Some(c) = e.home() else { return };
        match e.place {
            Membership::Away => return,
            Membership::Delayed => {
                if !asleep {
                    self.update(c, self.now);
                    self.finish_delayed(t);
                }
                return;
            }
            Membership::Queued | Membership::Running => {}
        }
        self.update(c, self.now);
        let running = self.all.queue(c).curr == Some(t);
        self.note(c, t, Turn::Left);
        self.keep_lag(c, t);
        if running {
            let q = self.all.queue(c);
            (q.curr, q.chooses) = (None, false);
        }
        let delay = self.eevdf().is_some_and(|k| k.delay);
        if asleep && running && delay && !self.all.is_eligible(c, t) {
            self.all.put_back(t);
            self.all.entity(t).place = Membership::Delayed;
            self.all.queue(c).delayed.push(t);
        } else {
            self.uncounted(c, t);
        }
        if matches!(self.rules, Rules::Cfs(_)) {
            self.raise_min(c);
        }
        self.hand_over(c);
    }

    /// From queue to queue while runnable.
    fn transfer(&mut self, (from, to): (u16, u16), t: u32, weight: i64, ahead: &Turns<'_>) {
        // A CPU about to idle pulls: its last thread has left, though a trace has that with the
        // switch, which comes after.
        if let Some(p) = self.all.queue(to).curr
            && p != t
            && let Some(asleep) = self.states.leaves(p, self.now, ahead)
        {
            self.leave(p, asleep);
        }
        let q = self.all.queue(to);
        if q.curr.is_none() && q.delayed.len() == q.members.len() {
            self.drop_delayed(to);
        }
        self.update(from, self.now);
        self.update(to, self.now);
        self.extremes(from, t);
        self.keep_lag(from, t);
        let q = self.all.queue(from);
        if q.curr == Some(t) {
            (q.curr, q.chooses) = (None, false);
        }
        let e = self.all.of(t);
        let rest = e.deadline - e.v;
        self.uncounted(from, t);
        let e = self.all.entity(t);
        if e.weight != weight {
            e.lag = scaled(e.lag, e.weight, weight);
            e.weight = weight;
        }
        match self.rules {
            Rules::Eevdf(k) if k.relative => self.place(to, t, k, rest),
            Rules::Eevdf(k) => self.place(to, t, k, k.request(weight)),
            Rules::Cfs(_) => self.rebase(to, t),
        }
        self.counted(to, t);
        self.note(to, t, Turn::Moved);
        self.hand_over(from);
    }

    /// Its nice value changed while it was on `c`.
    fn reweigh(&mut self, c: u16, t: u32, weight: i64) {
        self.update(c, self.now);
        self.keep_lag(c, t);
        let place = self.all.of(t).place;
        let next = self.all.queue(c).next == Some(t);
        let clean = self.all.queue(c).clean;
        self.all.take_out(c, t);
        let e = self.all.entity(t);
        let old = e.weight;
        e.lag = scaled(e.lag, old, weight);
        let rest = scaled(e.deadline - e.v, old, weight);
        e.weight = weight;
        if let Rules::Eevdf(k) = self.rules {
            self.place(c, t, k, rest);
        }
        self.all.insert(c, t);
        self.all.entity(t).place = place;
        let q = self.all.queue(c);
        q.clean = clean;
        if next {
            q.next = Some(t);
        }
    }

    // -- delayed sleepers --------------------------------------------------------------------

    fn finish_delayed(&mut self, t: u32) {
        let e = self.all.of(t);
        let (Membership::Delayed, Some(c)) = (e.place, e.home()) else {
            return;
        };
        self.keep_lag(c, t);
        if self.eevdf().is_some_and(|k| k.zero) {
            let e = self.all.entity(t);
            e.lag = e.lag.min(0);
        }
        self.all.queue(c).delayed.retain(|other| *other != t);
        self.uncounted(c, t);
    }

    /// A delayed sleeper wakes where it is, before the running thread is charged: what that has run
    /// since its last update, at a tick or when a thread came or went, does not count yet.
    fn reinstate(&mut self, c: u16, t: u32) {
        match (self.eevdf(), self.all.queue(c).curr) {
            (Some(k), Some(runs)) => {
                self.update(c, k.clock.before(self.now));
                if self.all.queue(c).chooses {
                    self.choose_again(c, runs);
                }
            }
            _ => self.update(c, self.now),
        }
        if self.all.of(t).place != Membership::Delayed {
            // The CPU idled meanwhile, and let it go.
            let weight = self.all.of(t).weight;
            self.join(c, t, weight, false);
            return;
        }
        self.all.queue(c).delayed.retain(|other| *other != t);
        self.all.entity(t).place = Membership::Queued;
        if let Some(k) = self.eevdf()
            && k.zero
        {
            self.keep_lag(c, t);
            if self.all.of(t).lag > 0 {
                let clean = self.all.queue(c).clean;
                self.all.take_out(c, t);
                let e = self.all.entity(t);
                e.lag = 0;
                let request = k.request(e.weight);
                self.place(c, t, k, request);
                self.all.insert(c, t);
                self.all.queue(c).clean = clean;
            }
        }
        self.update(c, self.now);
        self.tally_of(t).n += 1;
        self.note(c, t, Turn::Joined);
    }

    /// The CPU chooses: delayed sleepers that would be chosen go away instead.
    fn drop_delayed(&mut self, c: u16) {
        let Some(k) = self.eevdf() else { return };
        while let Some(t) = self.all.chosen_sleeper(c, k.parity) {
            self.finish_delayed(t);
        }
    }

    // -- running -----------------------------------------------------------------------------

    /// `t`, which is queued on `c`, is switched in.
    fn begin(&mut self, c: u16, t: u32) {
        self.update(c, self.now);
        if self.all.queue(c).curr.is_some() {
            self.all.queue(c).next = Some(t);
            return;
        }
        self.drop_delayed(c);
        let eligible = self.all.is_eligible(c, t);
        self.note(c, t, Turn::Began);
        let told = self.tally_of(t);
        told.picks += 1;
        told.eligible += u32::from(eligible);
        let again = self.all.queue(c).prev == Some(t);
        let e = self.all.entity(t);
        e.place = Membership::Running;
        if !again {
            e.protect();
        }
        let q: &mut Queue = self.all.queue(c);
        (q.curr, q.prev, q.next) = (Some(t), None, None);
    }

    /// `t` is put back into the queue of `c`.
    fn stop(&mut self, c: u16, t: u32) {
        self.update(c, self.now);
        self.note(c, t, Turn::Stopped);
        self.all.put_back(t);
        self.all.entity(t).place = Membership::Queued;
        let q = self.all.queue(c);
        (q.curr, q.prev, q.chooses) = (None, Some(t), false);
        self.hand_over(c);
    }

    /// The one that was switched in at the same instant takes over.
    fn hand_over(&mut self, c: u16) {
        let q = self.all.queue(c);
        if q.curr.is_none()
            && let Some(next) = q.next.take()
        {
            self.begin(c, next);
        }
    }
}

/// Virtual time of a thread of weight `old` in terms of another.
fn scaled(x: i64, old: i64, new: i64) -> i64 {
    (i128::from(x) * i128::from(old) / i128::from(new.max(1))) as i64
}
