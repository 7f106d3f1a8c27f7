//! The loads of threads and queues by which Linux places and balances (PELT, kernel/sched/pelt.c
//! and fair.c, 5.7 to 6.18).
//!
//! A thread's load is a decaying average (`linux_decay`) of its weight while it is in a queue, 0
//! while it sleeps; a queue's is the sum over all that were last in it, sleepers too
//! (cfs_rq->avg.load_avg). A thread takes its average along to another CPU
//! (migrate_task_rq_fair), and a new one begins with its whole weight
//! (init_entity_runnable_average). What a group weighs in the queue above counts there in the same
//! way, at once by its new weight when that changes (reweight_entity).
//!
//! All is up to date at any moment, in the kernel at ticks and whenever something comes or goes; but
//! for the average of a thread that waits, which is that of when it was queued, or lost the CPU
//! (update_load_avg is called by enqueue_entity, set_next_entity, put_prev_entity and entity_tick).
//! Its queue's is not: threads that wait together weigh less than their queue, and the balancer,
//! which compares queues and then counts threads, moves more of them.
use super::linux_decay::Decay;

/// A thread, or what stands for a group on a CPU.
pub(super) type Entity = u32;
/// A CPU's own queue, or a group's there.
pub(super) type Queue = u32;

/// A decaying average of a load that is constant from `at` on.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    average: f64,
    now: i64,
    at: i64,
    /// It is not updated while it is in a queue: a thread that waits.
    kept: bool,
}

impl Load {
    fn settle(&mut self, decay: &Decay, now: i64) {
        if now > self.at {
            self.average = self.average_at(decay, now);
            self.at = now;
        }
    }

    fn average_at(&self, decay: &Decay, now: i64) -> f64 {
        let goal = self.now as f64;
        goal + (self.average - goal) * decay.left((now - self.at).max(0))
    }

    fn change(&mut self, decay: &Decay, now: i64, by: f64) {
        self.settle(decay, now);
        self.average = (self.average + by).max(0.0);
    }
}

/// Of all entities and queues, or of none if not needed.
#[derive(Default)]
pub(super) struct Loads {
    decay: Decay,
    /// Of each entity, and the queue that it is in or was last.
    entities: Vec<(Load, Option<Queue>)>,
    queues: Vec<Load>,
}

impl Loads {
    /// The first entities are the threads.
    pub(super) fn new(threads: usize, entities: usize, queues: usize) -> Self {
        let fresh = |e: usize| Load {
            kept: e < threads,
            ..Load::default()
        };
        Self {
            decay: Decay::default(),
            entities: (0..entities).map(|e| (fresh(e), None)).collect(),
            queues: vec![Load::default(); queues],
        }
    }

    #[inline]
    pub(super) fn are_known(&self) -> bool {
        !self.queues.is_empty()
    }

    /// `e`, of `weight`, is in `q` from now on.
    pub(super) fn comes(&mut self, now: i64, e: Entity, q: Queue, weight: i64) {
        if !self.are_known() {
            return;
        }
        let (load, home) = &mut self.entities[e as usize];
        load.settle(&self.decay, now);
        if home.is_none() {
            load.average = weight as f64;
        }
        let brings = load.average;
        load.now = weight;
        let from = home.replace(q);
        if from != Some(q) {
            if let Some(old) = from {
                self.queues[old as usize].change(&self.decay, now, -brings);
            }
            self.queues[q as usize].change(&self.decay, now, brings);
        }
        self.queues[q as usize].settle(&self.decay, now);
        self.queues[q as usize].now += weight;
    }

    /// `t`, in a queue, begins or ceases to run.
    pub(super) fn runs(&mut self, now: i64, t: Entity, running: bool) {
        if let Some((load, _)) = self.entities.get_mut(t as usize) {
            load.settle(&self.decay, now);
            load.kept = !running;
        }
    }

    /// `e` sleeps, or is on its way to another queue.
    pub(super) fn goes(&mut self, now: i64, e: Entity, q: Queue) {
        if !self.are_known() {
            return;
        }
        let load = &mut self.entities[e as usize].0;
        load.settle(&self.decay, now);
        let weight = std::mem::take(&mut load.now);
        self.queues[q as usize].settle(&self.decay, now);
        self.queues[q as usize].now -= weight;
    }

    /// `e`, in `q`, weighs something else: so does its past.
    pub(super) fn weighs(&mut self, now: i64, e: Entity, q: Queue, weight: i64) {
        if !self.are_known() {
            return;
        }
        let load = &mut self.entities[e as usize].0;
        load.settle(&self.decay, now);
        let (was, average) = (load.now, load.average);
        load.now = weight;
        if was > 0 {
            load.average *= weight as f64 / was as f64;
        }
        let more = load.average - average;
        self.queues[q as usize].change(&self.decay, now, more);
        self.queues[q as usize].now += weight - was;
    }

    /// `e`, in no queue now, belongs to `to` from now on, if to any.
    pub(super) fn belongs(&mut self, now: i64, e: Entity, to: Option<Queue>) {
        if !self.are_known() {
            return;
        }
        let (load, home) = &mut self.entities[e as usize];
        load.settle(&self.decay, now);
        let average = load.average;
        let Some(old) = *home else { return };
        *home = to;
        self.queues[old as usize].change(&self.decay, now, -average);
        if let Some(q) = to {
            self.queues[q as usize].change(&self.decay, now, average);
        }
    }

    /// The average of `e`; of a sleeper that with which it went to sleep, and of a thread that waits
    /// that with which it came.
    pub(super) fn of(&self, now: i64, e: Entity) -> f64 {
        let Some((load, _)) = self.entities.get(e as usize) else {
            return 0.0;
        };
        if load.now == 0 || load.kept {
            load.average
        } else {
            load.average_at(&self.decay, now)
        }
    }

    /// The average of `q`.
    pub(super) fn of_queue(&self, now: i64, q: Queue) -> f64 {
        let load = self.queues.get(q as usize);
        load.map_or(0.0, |load| load.average_at(&self.decay, now))
    }

    /// What is in `q` at the moment.
    pub(super) fn in_queue(&self, q: Queue) -> i64 {
        self.queues[q as usize].now
    }
}

#[cfg(test)]
mod tests {
    use super::super::linux_decay::PERIOD;
    use super::*;

    const HALF: i64 = 32 * PERIOD;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn a_queue_has_the_loads_of_its_sleepers_too() {
        let mut l = Loads::new(0, 2, 2);
        l.comes(0, 0, 0, 1024);
        l.comes(0, 1, 0, 512);
        assert!(near(l.of_queue(HALF, 0), 1536.0));
        l.goes(HALF, 0, 0);
        assert_eq!(l.in_queue(0), 512);
        assert!(near(l.of_queue(2 * HALF, 0), 1024.0));
        assert!(near(l.of_queue(3 * HALF, 0), 768.0));
    }

    #[test]
    fn a_sleepers_own_load_is_that_with_which_it_went() {
        let mut l = Loads::new(0, 1, 1);
        l.comes(0, 0, 0, 1024);
        l.goes(HALF, 0, 0);
        assert!(near(l.of(3 * HALF, 0), 1024.0));
        l.comes(2 * HALF, 0, 0, 1024);
        assert!(near(l.of(2 * HALF, 0), 512.0));
        assert!(near(l.of(3 * HALF, 0), 768.0));
    }

    #[test]
    fn a_thread_takes_its_load_along() {
        let mut l = Loads::new(0, 2, 2);
        l.comes(0, 0, 0, 1024);
        l.comes(0, 1, 0, 1024);
        l.goes(0, 1, 0);
        l.comes(HALF, 1, 1, 1024);
        assert!(near(l.of_queue(HALF, 0), 1024.0));
        assert!(near(l.of_queue(HALF, 1), 512.0));
        l.goes(HALF, 1, 1);
        l.belongs(HALF, 1, None);
        assert!(near(l.of_queue(HALF, 1), 0.0));
    }

    #[test]
    fn with_another_weight_the_past_weighs_another() {
        let mut l = Loads::new(0, 1, 1);
        l.comes(0, 0, 0, 1024);
        l.weighs(HALF, 0, 0, 256);
        assert!(near(l.of(HALF, 0), 256.0));
        assert!(near(l.of_queue(2 * HALF, 0), 256.0));
        assert_eq!(l.in_queue(0), 256);
    }

    #[test]
    fn a_thread_that_waits_weighs_what_it_did_when_it_came() {
        let mut l = Loads::new(1, 1, 1);
        l.comes(0, 0, 0, 1024);
        l.goes(0, 0, 0);
        l.comes(HALF, 0, 0, 1024);
        assert!(near(l.of(2 * HALF, 0), 512.0));
        assert!(near(l.of_queue(2 * HALF, 0), 768.0));
        l.runs(2 * HALF, 0, true);
        assert!(near(l.of(2 * HALF, 0), 768.0));
        assert!(near(l.of(3 * HALF, 0), 896.0));
        l.runs(3 * HALF, 0, false);
        assert!(near(l.of(4 * HALF, 0), 896.0));
    }

    #[test]
    fn where_nobody_asks_nothing_is_kept() {
        let mut l = Loads::default();
        l.comes(0, 3, 2, 1024);
        l.goes(1, 3, 2);
        assert!(!l.are_known() && near(l.of(2, 3), 0.0) && near(l.of_queue(2, 2), 0.0));
    }
}
