//! What placing and balancing ask of a Linux policy's queues, and what they have moved.
use super::super::machine::Cpu;
use super::super::world::World;
use super::linux_util::Use;

/// Of the threads of a queue a pass looks at so many (sysctl_sched_nr_migrate).
pub(super) const MOST_LOOKED_AT: usize = 32;

pub(super) trait Queues {
    /// Load of `c`, the running thread included.
    fn load(&self, w: &World, c: Cpu) -> i64;
    /// The load that decisions go by; may lag behind (`idx` as in the kernel).
    fn lagged(&self, w: &World, c: Cpu, _idx: usize) -> i64 {
        self.load(w, c)
    }
    /// What of `c` is used of late, and what is wanted of it.
    fn used(&self, _: &World, _: Cpu) -> Use {
        Use::default()
    }
    /// Runnable threads of `c`, the running one included. Sleepers that are still queued count in
    /// rq->nr_running of 6.12 and later; not here.
    fn nr(&self, c: Cpu) -> u32;
    /// Move waiting threads until `want` is met; answer how many moved.
    fn pull(&mut self, w: &mut World, from: Cpu, to: Cpu, want: Want) -> u32;
}

/// What of a queue is to be moved (migration_type and imbalance).
#[derive(Debug, Clone, Copy)]
pub(super) enum Amount {
    Load(i64),
    /// CPUs that its threads use.
    Used(f64),
    Threads,
}

/// How much to pull.
#[derive(Debug, Clone, Copy)]
pub(super) struct Want {
    pub amount: Amount,
    /// So many threads at most.
    pub most: u32,
    /// A thread that is more than the amount may be moved all the same if it is not, so many times
    /// halved.
    pub halved: u32,
    /// Threads that ran a moment ago may be moved too.
    pub hot: bool,
}

impl Want {
    /// Whether a thread of such a load, which uses so much, is not too much.
    pub(super) fn fits(&self, load: impl FnOnce() -> i64, used: impl FnOnce() -> f64) -> bool {
        match self.amount {
            Amount::Load(left) => load() >> self.halved <= left,
            Amount::Used(left) => used() / f64::from(1 << self.halved) <= left,
            Amount::Threads => true,
        }
    }

    pub(super) fn is_met(&self) -> bool {
        let enough = match self.amount {
            Amount::Load(left) => left <= 0,
            Amount::Used(left) => left <= 0.0,
            Amount::Threads => false,
        };
        enough || self.most == 0
    }

    /// Such a thread was moved.
    pub(super) fn moved(&mut self, load: i64, used: f64) {
        self.most -= 1;
        match &mut self.amount {
            Amount::Load(left) => *left -= load.max(1),
            Amount::Used(left) => *left -= used,
            Amount::Threads => {}
        }
    }
}
