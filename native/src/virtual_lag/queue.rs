//! One CPU's queue of the fair class, and the threads on it.
use crate::sim::policy::eevdf_lag::Average;
use crate::sim::policy::linux_fair::{NICE_0, virtual_ns};

// Longer runs are of no trace; what is cut off keeps sums in their range.
const LONGEST: i64 = 1 << 50;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Place {
    /// On no queue: asleep, gone, of another class.
    #[default]
    Away,
    /// Asleep, but still counted on its queue until it has worked off its lag.
    Delayed,
    Queued,
    Running,
}

/// A thread's scheduling entity.
#[derive(Debug, Clone, Default)]
pub struct Entity {
    pub v: i64,
    pub deadline: i64,
    pub weight: i64,
    /// What it left its queue with: EEVDF's lag, in virtual time.
    pub lag: i64,
    /// The rest of a request, kept over a move.
    pub rest: Option<i64>,
    /// The deadline it was picked with.
    pub protected: Option<i64>,
    pub place: Place,
    /// The queue it is on, or was on last.
    pub home: Option<u16>,
    /// Its lag while away rests on nothing from before the trace.
    pub settled: bool,
    /// Where it stands in `Queue::members`, and since which insertion.
    slot: usize,
    order: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Queue {
    /// All that are counted: the running one, those who wait, and delayed sleepers.
    pub members: Vec<u32>,
    pub curr: Option<u32>,
    /// Switched in, though the one before has not been seen to leave yet.
    pub next: Option<u32>,
    /// Put back, and nobody picked since.
    pub prev: Option<u32>,
    pub sum: Average,
    pub delayed: usize,
    /// The running one's request is done: the CPU chooses anew, as soon as time passes.
    pub chooses: bool,
    /// CFS: virtual time of the queue, which never falls.
    pub min: i64,
    /// Up to when the running thread is charged.
    pub at: i64,
    /// Nothing on it rests on what was before the trace.
    pub clean: bool,
}

/// CPU time owed to a thread of the queue, where the numbers on the way fit.
fn small_lag(q: &Queue, e: &Entity) -> Option<i64> {
    let ahead = (e.v - q.sum.origin).checked_mul(q.sum.weight)?;
    let behind = i64::try_from(q.sum.moment).ok()?.checked_sub(ahead)?;
    let scale = q.sum.weight.max(1).checked_mul(NICE_0)?;
    let owed = e.weight.checked_mul(behind)?.checked_add(scale / 2)?;
    Some(owed.div_euclid(scale))
}

/// All queues and threads, and the sums that go with them.
#[derive(Debug, Default)]
pub struct Queues {
    pub queues: Vec<Queue>,
    pub entities: Vec<Entity>,
    inserted: u64,
}

impl Queues {
    pub fn new(nthreads: usize) -> Self {
        Self {
            queues: Vec::new(),
            entities: vec![Entity::default(); nthreads],
            inserted: 0,
        }
    }

    #[inline]
    pub fn queue(&mut self, c: u16) -> &mut Queue {
        let at = usize::from(c);
        if self.queues.len() <= at {
            self.grow(at + 1);
        }
        &mut self.queues[at]
    }

    #[cold]
    fn grow(&mut self, len: usize) {
        let empty = Queue {
            clean: true,
            ..Queue::default()
        };
        self.queues.resize(len, empty);
    }

    pub fn of(&self, t: u32) -> &Entity {
        &self.entities[t as usize]
    }

    pub fn entity(&mut self, t: u32) -> &mut Entity {
        &mut self.entities[t as usize]
    }

    pub fn insert(&mut self, c: u16, t: u32) {
        self.inserted += 1;
        let order = self.inserted;
        let slot = self.queue(c).members.len();
        let e = self.entity(t);
        (e.slot, e.order, e.home) = (slot, order, Some(c));
        let (v, weight) = (e.v, e.weight);
        let q = self.queue(c);
        q.members.push(t);
        q.sum.weight += weight;
        q.sum.moment += i128::from(weight) * i128::from(v - q.sum.origin);
    }

    pub fn take_out(&mut self, c: u16, t: u32) {
        let (v, weight, slot) = {
            let e = self.of(t);
            (e.v, e.weight, e.slot)
        };
        let q = self.queue(c);
        q.sum.weight -= weight;
        q.sum.moment -= i128::from(weight) * i128::from(v - q.sum.origin);
        q.members.swap_remove(slot);
        if q.prev == Some(t) {
            q.prev = None;
        }
        if q.next == Some(t) {
            q.next = None;
        }
        if q.members.is_empty() {
            q.sum = Average {
                moment: 0,
                weight: 0,
                origin: v,
            };
            q.clean = true;
        } else if let Some(other) = q.members.get(slot).copied() {
            self.entity(other).slot = slot;
        }
    }

    /// Behind the others with the same deadline, as after an insertion.
    pub fn put_back(&mut self, t: u32) {
        self.inserted += 1;
        self.entities[t as usize].order = self.inserted;
    }

    /// The running thread of `c` has run for `ran`.
    pub fn charge(&mut self, c: u16, t: u32, ran: i64) {
        let e = &mut self.entities[t as usize];
        let dv = virtual_ns(ran.min(LONGEST), e.weight);
        e.v += dv;
        let weight = e.weight;
        self.queue(c).sum.moment += i128::from(weight) * i128::from(dv);
    }

    /// The thread takes another place in virtual time, on its queue.
    pub fn shift(&mut self, c: u16, t: u32, v: i64) {
        let e = self.entity(t);
        let by = v - e.v;
        e.v = v;
        let weight = e.weight;
        self.queue(c).sum.moment += i128::from(weight) * i128::from(by);
    }

    /// Lag of a thread that is counted on `c`: CPU time, and virtual time (ns).
    pub fn lag(&self, c: u16, t: u32) -> (i64, i64) {
        let (q, e) = (&self.queues[usize::from(c)], self.of(t));
        // Almost always small enough, and then several times as fast.
        let owed = small_lag(q, e).unwrap_or_else(|| {
            let behind = q.sum.moment - i128::from(e.v - q.sum.origin) * i128::from(q.sum.weight);
            let scale = i128::from(q.sum.weight.max(1)) * i128::from(NICE_0);
            (i128::from(e.weight) * behind + scale / 2).div_euclid(scale) as i64
        });
        (owed, q.sum.vruntime() - e.v)
    }

    pub fn is_eligible(&self, c: u16, t: u32) -> bool {
        self.queues[usize::from(c)].sum.is_eligible(self.of(t).v)
    }

    /// The least virtual time on the queue.
    pub fn least(&self, c: u16) -> Option<i64> {
        self.queues[usize::from(c)]
            .members
            .iter()
            .map(|t| self.of(*t).v)
            .min()
    }

    /// EEVDF's choice: the thread put back if it is eligible and its request not done,
    /// else of the eligible the one with the earliest deadline.
    pub fn best(&self, c: u16, parity: bool) -> Option<u32> {
        let q = &self.queues[usize::from(c)];
        if let Some(t) = q.prev
            && parity
            && self.of(t).protected == Some(self.of(t).deadline)
            && self.is_eligible(c, t)
        {
            return Some(t);
        }
        let key = |t: &u32| (self.of(*t).deadline, self.of(*t).order);
        // At or before the average is at or before the average rounded down.
        let average = q.sum.vruntime();
        let eligible = q
            .members
            .iter()
            .copied()
            .filter(|t| self.of(*t).v <= average);
        eligible
            .min_by_key(key)
            .or_else(|| q.members.iter().copied().min_by_key(key))
    }
}
