//! One CPU's queue of the fair class, and the threads on it.
use crate::policy::eevdf_lag::Average;
use crate::policy::linux_fair::{NICE_0, virtual_ns};
use crate::states::NOWHERE;

// Longer runs are of no trace; what is cut off keeps sums in their range.
const LONGEST: i64 = 1 << 50;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Membership {
    /// On no queue: asleep, gone, of another class.
    #[default]
    Away,
    /// Asleep, but still counted on its queue until it has worked off its lag.
    Delayed,
    Queued,
    Running,
}

/// No deadline.
const NEVER: i64 = i64::MIN;

/// A thread's scheduling entity. Those of all threads are looked at in turn: each is one line
/// of the cache, for which it has no `Option` inside.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub struct Entity {
    pub v: i64,
    pub deadline: i64,
    pub weight: i64,
    /// What it left its queue with: EEVDF's lag, in virtual time.
    pub lag: i64,
    /// The deadline it was picked with, or `NEVER`.
    protected: i64,
    /// Its maximum lag so far, in CPU time.
    pub most: i64,
    /// Since which insertion it stands where it does, and where in `Queue::members` that is.
    order: u64,
    slot: u32,
    /// See `Entity::home`.
    home: u16,
    pub place: Membership,
    /// Its lag while away rests on nothing from before the trace.
    pub settled: bool,
}

const NEW: Entity = Entity {
    v: 0,
    deadline: 0,
    weight: 0,
    lag: 0,
    protected: NEVER,
    most: i64::MIN,
    order: 0,
    slot: 0,
    home: NOWHERE,
    place: Membership::Away,
    settled: false,
};

impl Entity {
    /// The queue it is on, or was on last.
    #[inline]
    pub fn home(&self) -> Option<u16> {
        (self.home != NOWHERE).then_some(self.home)
    }

    /// It runs, by its own request.
    pub fn protect(&mut self) {
        self.protected = self.deadline;
    }
}

#[derive(Debug, Clone, Default)]
pub struct Queue {
    /// All that are counted: the running one, those who wait, and delayed sleepers.
    pub members: Vec<u32>,
    pub curr: Option<u32>,
    /// Switched in, though the one before has not been seen to leave yet.
    pub next: Option<u32>,
    /// Put back, and no thread picked since.
    pub prev: Option<u32>,
    pub sum: Average,
    /// The delayed sleepers among the members.
    pub delayed: Vec<u32>,
    /// The running one's request is done: the CPU chooses again, as soon as time passes.
    pub chooses: bool,
    /// CFS: virtual time of the queue, which never falls.
    pub min: i64,
    /// Up to when the running thread is charged.
    pub at: i64,
    /// Nothing on it rests on what was before the trace.
    pub clean: bool,
    /// While the average, from its origin on, is not above this, no thread has a new maximum lag.
    /// Virtual times and records only grow, so it holds until a thread is inserted.
    quiet: f64,
    /// The member with the least virtual time, as long as that is known.
    first: Option<u32>,
}

/// The lag of a thread of the queue, where intermediate numbers fit.
#[inline]
fn small_owed(q: &Queue, e: &Entity) -> Option<i64> {
    let ahead = (e.v - q.sum.origin).checked_mul(q.sum.weight)?;
    let behind = i64::try_from(q.sum.moment).ok()?.checked_sub(ahead)?;
    let scale = q.sum.weight.max(1).checked_mul(NICE_0)?;
    let owed = e.weight.checked_mul(behind)?.checked_add(scale / 2)?;
    Some(owed.div_euclid(scale))
}

#[cold]
#[inline(never)]
fn large_owed(q: &Queue, e: &Entity) -> i64 {
    let behind = q.sum.moment - i128::from(e.v - q.sum.origin) * i128::from(q.sum.weight);
    let scale = i128::from(q.sum.weight.max(1)) * i128::from(NICE_0);
    (i128::from(e.weight) * behind + scale / 2).div_euclid(scale) as i64
}

/// Out of line, or it would be computed always.
#[cold]
#[inline(never)]
fn wide(moment: i128) -> f64 {
    moment as f64
}

/// See `Queue::quiet`: up to which average this thread has no new maximum lag, less 1 ns for
/// rounding.
fn quiet_until(e: &Entity, origin: i64) -> f64 {
    let lag = (e.most as f64 + 0.5) * NICE_0 as f64 / e.weight as f64;
    (e.v - origin) as f64 + lag - 1.0
}

/// All queues and threads, and the sums that go with them.
#[derive(Debug, Default)]
pub struct Queues {
    pub queues: Vec<Queue>,
    pub entities: Vec<Entity>,
    inserted: u64,
}

impl Queues {
    /// Of threads and CPUs by their numbers.
    pub fn new(nthreads: usize, ncpus: usize) -> Self {
        let empty = Queue {
            clean: true,
            quiet: f64::INFINITY,
            ..Queue::default()
        };
        Self {
            queues: vec![empty; ncpus],
            entities: vec![NEW; nthreads],
            inserted: 0,
        }
    }

    #[inline]
    pub fn queue(&mut self, c: u16) -> &mut Queue {
        &mut self.queues[usize::from(c)]
    }

    pub fn of(&self, t: u32) -> &Entity {
        &self.entities[t as usize]
    }

    pub fn entity(&mut self, t: u32) -> &mut Entity {
        &mut self.entities[t as usize]
    }

    #[inline]
    pub fn insert(&mut self, c: u16, t: u32) {
        self.inserted += 1;
        let q = &mut self.queues[usize::from(c)];
        let least = q.first.map(|first| self.entities[first as usize].v);
        let e = &mut self.entities[t as usize];
        (e.slot, e.order, e.home) = (q.members.len() as u32, self.inserted, c);
        if q.members.is_empty() || least.is_some_and(|least| e.v < least) {
            q.first = Some(t);
        }
        q.members.push(t);
        q.sum.weight += e.weight;
        q.sum.moment += i128::from(e.weight) * i128::from(e.v - q.sum.origin);
        q.quiet = q.quiet.min(quiet_until(e, q.sum.origin));
    }

    #[inline]
    pub fn take_out(&mut self, c: u16, t: u32) {
        let (v, weight, slot) = {
            let e = self.of(t);
            (e.v, e.weight, e.slot)
        };
        let q = self.queue(c);
        q.sum.weight -= weight;
        q.sum.moment -= i128::from(weight) * i128::from(v - q.sum.origin);
        q.members.swap_remove(slot as usize);
        for kept in [&mut q.prev, &mut q.next, &mut q.first] {
            if *kept == Some(t) {
                *kept = None;
            }
        }
        if q.members.is_empty() {
            q.sum = Average {
                moment: 0,
                weight: 0,
                origin: v,
            };
            q.clean = true;
            q.quiet = f64::INFINITY;
        } else if let Some(other) = q.members.get(slot as usize).copied() {
            self.entity(other).slot = slot;
        }
    }

    /// Behind the others with the same deadline, as after an insertion.
    pub fn put_back(&mut self, t: u32) {
        self.inserted += 1;
        self.entities[t as usize].order = self.inserted;
    }

    /// The running thread of `c` has run for `ran`.
    #[inline]
    pub fn charge(&mut self, c: u16, t: u32, ran: i64) {
        let e = &mut self.entities[t as usize];
        let dv = virtual_ns(ran.min(LONGEST), e.weight);
        e.v += dv;
        let weight = e.weight;
        let q = self.queue(c);
        q.sum.moment += i128::from(weight) * i128::from(dv);
        if q.first == Some(t) {
            q.first = None;
        }
    }

    /// The thread takes a later place in virtual time, on its queue.
    pub fn shift(&mut self, c: u16, t: u32, v: i64) {
        let e = self.entity(t);
        let by = v - e.v;
        e.v = v;
        let weight = e.weight;
        let q = self.queue(c);
        q.sum.moment += i128::from(weight) * i128::from(by);
        if q.first == Some(t) {
            q.first = None;
        }
    }

    /// Lag of a thread that is counted on `c`, as CPU time (ns).
    #[inline]
    pub fn owed(&self, c: u16, t: u32) -> i64 {
        let (q, e) = (&self.queues[usize::from(c)], self.of(t));
        // Almost always small enough, and then several times as fast.
        small_owed(q, e).unwrap_or_else(|| large_owed(q, e))
    }

    /// The same in virtual time (ns).
    #[inline]
    pub fn behind(&self, c: u16, t: u32) -> i64 {
        self.queues[usize::from(c)].sum.vruntime() - self.of(t).v
    }

    pub fn is_eligible(&self, c: u16, t: u32) -> bool {
        self.queues[usize::from(c)].sum.is_eligible(self.of(t).v)
    }

    /// Waiting threads of `c` with a new maximum lag go to `told`, with the lag; except `but`.
    pub fn records(&mut self, c: u16, but: u32, mut told: impl FnMut(u32, i64)) {
        let q = &self.queues[usize::from(c)];
        // Almost always small enough, and then several times as fast.
        let moment = match i64::try_from(q.sum.moment) {
            Ok(small) => small as f64,
            Err(_) => wide(q.sum.moment),
        };
        let weight = q.sum.weight.max(1) as f64;
        // That is, average <= quiet: a division takes several times as long.
        if moment <= q.quiet * weight {
            return;
        }
        let average = moment / weight;
        let mut quiet = f64::INFINITY;
        for at in 0..q.members.len() {
            let q = &self.queues[usize::from(c)];
            let (m, origin) = (q.members[at], q.sum.origin);
            let e = self.of(m);
            // Exactly only where it matters.
            let about = (average - (e.v - origin) as f64) * e.weight as f64 / NICE_0 as f64;
            let waits = e.place == Membership::Queued && m != but && Some(m) != q.curr;
            if waits && about > e.most as f64 + 0.5 {
                let lag = self.owed(c, m);
                self.entity(m).most = lag;
                told(m, lag);
            }
            quiet = quiet.min(quiet_until(self.of(m), origin));
        }
        self.queue(c).quiet = quiet;
    }

    /// The least virtual time on the queue.
    pub fn least(&mut self, c: u16) -> Option<i64> {
        let q = &self.queues[usize::from(c)];
        let first = match q.first {
            Some(first) => first,
            None => q.members.iter().copied().min_by_key(|t| self.of(*t).v)?,
        };
        self.queue(c).first = Some(first);
        Some(self.of(first).v)
    }

    /// The delayed sleeper that EEVDF would choose: not if the thread put back is eligible and
    /// its request not done, else if of the eligible it has the earliest deadline.
    pub fn chosen_sleeper(&self, c: u16, parity: bool) -> Option<u32> {
        let q = &self.queues[usize::from(c)];
        if q.delayed.is_empty() {
            return None;
        }
        // As `is_eligible`, for many: virtual times are whole.
        let average = q.sum.vruntime();
        let key = |t: &u32| (self.of(*t).deadline, self.of(*t).order);
        let eligible = |t: &u32| self.of(*t).v <= average;
        let sleeper = q.delayed.iter().copied().filter(eligible).min_by_key(key)?;
        if let Some(t) = q.prev
            && parity
            && self.of(t).protected == self.of(t).deadline
            && eligible(&t)
        {
            return None;
        }
        let due = key(&sleeper);
        let sooner = |t: &u32| key(t) < due && eligible(t);
        (!q.members.iter().any(sooner)).then_some(sleeper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens to one thread; and then the threads with a new maximum lag, the least virtual
    /// time, and the chosen sleeper.
    fn step(
        all: &mut Queues,
        t: u32,
        turn: u64,
        ns: i64,
        weight: i64,
    ) -> (Vec<(u32, i64)>, Option<i64>, Option<u32>) {
        let mut told = Vec::new();
        let average = all.queue(0).sum.vruntime();
        match (all.of(t).place, turn) {
            (Membership::Away, _) => {
                all.records(0, t, |m, lag| told.push((m, lag)));
                let e = all.entity(t);
                (e.v, e.weight) = (average + ns - 200_000, weight);
                e.deadline = e.v + ns;
                e.place = if turn == 0 {
                    Membership::Delayed
                } else {
                    Membership::Queued
                };
                all.insert(0, t);
                if turn == 0 {
                    all.queue(0).delayed.push(t);
                }
            }
            (_, 0) => {
                all.records(0, t, |m, lag| told.push((m, lag)));
                all.take_out(0, t);
                all.entity(t).place = Membership::Away;
                all.queue(0).delayed.retain(|other| *other != t);
            }
            (_, 1) => all.put_back(t),
            _ => all.charge(0, t, ns),
        }
        (told, all.least(0), all.chosen_sleeper(0, false))
    }

    #[test]
    fn what_a_queue_keeps_is_what_its_members_say() {
        let (mut kept, mut plain) = (Queues::new(9, 1), Queues::new(9, 1));
        let (mut seed, mut records, mut sleepers) = (1u64, 0, 0);
        let mut any = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for _ in 0..20_000 {
            let (t, turn, ns) = (any(9) as u32, any(5), any(500_000) as i64);
            let weight = [1024, 335, 3906][any(3) as usize];
            // Knows nothing from before, so it looks at all.
            let q = plain.queue(0);
            (q.quiet, q.first) = (f64::NEG_INFINITY, None);
            let found = step(&mut kept, t, turn, ns, weight);
            assert_eq!(found, step(&mut plain, t, turn, ns, weight));
            let members = kept.queues[0].members.iter().copied();
            let eligible = members.filter(|m| kept.is_eligible(0, *m));
            let best = eligible.min_by_key(|m| (kept.of(*m).deadline, kept.of(*m).order));
            assert_eq!(
                found.2,
                best.filter(|m| kept.of(*m).place == Membership::Delayed)
            );
            records += found.0.len();
            sleepers += usize::from(found.2.is_some());
        }
        assert!(records > 20 && sleepers > 1000, "{records} {sleepers}");
    }
}
