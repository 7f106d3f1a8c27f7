//! How busy Linux takes a CPU to be: PELT's util_avg and runnable_avg (kernel/sched/pelt.c and
//! fair.c, 5.7 to 6.18).
//!
//! Of a thread decaying averages (`linux_decay`) of the time in which it runs, and in which it runs
//! or waits; of a CPU the sums over all that were last on it, sleepers too. A thread takes its
//! averages along to another CPU (migrate_task_rq_fair). A new one begins with half of what is left
//! of the CPU, since 6.10 with what its weight is worth beside the others there if that is less
//! (post_init_entity_util_avg; before, that was taken times 1024). A thread asleep when the replay
//! starts was in no average. Left out: util_est, frequencies, interrupts, and that a new thread
//! looks at its control group's part of the CPU.
//!
//! `Reach` is SIS_UTIL (fair.c, 6.0 on): of the CPUs that share a cache a wake looks at a part that
//! falls with the square of their utilisation, and at none above 85 %; there an idle one would
//! rarely be found. The part is recomputed when one of them balances that cache, but not when it
//! turns idle (update_idle_cpu_scan).
use super::super::machine::{Cpu, Machine};
use super::super::workload::Tid;
use super::super::world::World;
use super::linux_decay::Decay;

/// What of a CPU something uses, and what it would use alone there.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Use {
    pub ran: f64,
    pub wanted: f64,
}

/// The whole number that the kernel has for a part of a CPU.
pub(super) fn in_1024ths(part: f64) -> i64 {
    (part * 1024.0) as i64
}

/// A `Use` that goes towards `now` from `at` on.
#[derive(Debug, Clone, Copy, Default)]
struct Average {
    of: Use,
    now: Use,
    at: i64,
}

impl Average {
    fn at(&self, decay: &Decay, now: i64) -> Use {
        if now <= self.at {
            return self.of;
        }
        let left = decay.left(now - self.at);
        let mix = |was: f64, goal: f64| goal + (was - goal) * left;
        Use {
            ran: mix(self.of.ran, self.now.ran),
            wanted: mix(self.of.wanted, self.now.wanted),
        }
    }

    fn settle(&mut self, decay: &Decay, now: i64) {
        self.of = self.at(decay, now);
        self.at = self.at.max(now);
    }

    fn gain(&mut self, more: Use, sign: f64) {
        self.of.ran = (self.of.ran + sign * more.ran).max(0.0);
        self.of.wanted = (self.of.wanted + sign * more.wanted).max(0.0);
    }
}

/// Of all threads and CPUs, or of none if not needed.
#[derive(Default)]
pub(super) struct Utilisation {
    decay: Decay,
    /// A new thread begins with what its weight is worth, if that is little.
    by_weight: bool,
    /// Of each thread, and the CPU that it is or was last on.
    threads: Vec<(Average, Option<Cpu>)>,
    cpus: Vec<Average>,
}

impl Utilisation {
    pub(super) fn new(threads: usize, cpus: usize, by_weight: bool) -> Self {
        Self {
            decay: Decay::default(),
            by_weight,
            threads: vec![Default::default(); threads],
            cpus: vec![Average::default(); cpus],
        }
    }

    fn is_known(&self) -> bool {
        !self.cpus.is_empty()
    }

    /// `t` wakes, last on `c`.
    pub(super) fn wakes(&mut self, t: Tid, c: Cpu) {
        if let Some((_, home)) = self.threads.get_mut(t as usize) {
            home.get_or_insert(c);
        }
    }

    /// `t` is queued on `c` from now on; `part`: of those there, what of their load is its.
    pub(super) fn comes(&mut self, now: i64, t: Tid, c: Cpu, part: impl FnOnce() -> f64) {
        if !self.is_known() {
            return;
        }
        let cpu = &mut self.cpus[c as usize];
        cpu.settle(&self.decay, now);
        let (own, home) = &mut self.threads[t as usize];
        own.settle(&self.decay, now);
        if home.is_none() {
            let most = ((1.0 - cpu.of.ran) / 2.0).max(0.0);
            let first = if self.by_weight && in_1024ths(cpu.of.ran) > 0 {
                (cpu.of.ran * part()).min(most)
            } else {
                most
            };
            own.of = Use {
                ran: first,
                wanted: first,
            };
        }
        own.now.wanted = 1.0;
        cpu.now.wanted += 1.0;
        let brings = own.of;
        let from = home.replace(c);
        if from != Some(c) {
            self.cpus[c as usize].gain(brings, 1.0);
            if let Some(old) = from {
                self.loses(now, old, brings);
            }
        }
    }

    fn loses(&mut self, now: i64, c: Cpu, what: Use) {
        let cpu = &mut self.cpus[c as usize];
        cpu.settle(&self.decay, now);
        cpu.gain(what, -1.0);
    }

    /// `t` sleeps, or is on its way to another CPU.
    pub(super) fn goes(&mut self, now: i64, t: Tid) {
        let Some((own, Some(home))) = self.threads.get_mut(t as usize) else {
            return;
        };
        own.settle(&self.decay, now);
        let was = std::mem::take(&mut own.now);
        let cpu = &mut self.cpus[*home as usize];
        cpu.settle(&self.decay, now);
        cpu.now.ran -= was.ran;
        cpu.now.wanted -= was.wanted;
    }

    /// `t` begins or ceases to run.
    pub(super) fn runs(&mut self, now: i64, t: Tid, running: bool) {
        let Some((own, Some(home))) = self.threads.get_mut(t as usize) else {
            return;
        };
        let runs = f64::from(u8::from(running));
        let change = runs - own.now.ran;
        own.settle(&self.decay, now);
        own.now.ran = runs;
        let cpu = &mut self.cpus[*home as usize];
        cpu.settle(&self.decay, now);
        cpu.now.ran += change;
    }

    /// `t`, in no queue now, has ended.
    pub(super) fn ends(&mut self, now: i64, t: Tid) {
        let Some((own, home)) = self.threads.get_mut(t as usize) else {
            return;
        };
        own.settle(&self.decay, now);
        let (had, home) = (own.of, home.take());
        if let Some(c) = home {
            self.loses(now, c, had);
        }
    }

    /// Of a thread that waits what it was when it began to (`linux_load`).
    pub(super) fn of(&self, now: i64, t: Tid) -> Use {
        let known = self.threads.get(t as usize);
        known.map_or(Use::default(), |(own, _)| {
            let waits = own.now.wanted > own.now.ran;
            own.at(&self.decay, if waits { own.at } else { now })
        })
    }

    pub(super) fn of_cpu(&self, now: i64, c: Cpu) -> Use {
        let known = self.cpus.get(c as usize);
        known.map_or(Use::default(), |cpu| cpu.at(&self.decay, now))
    }
}

/// How many of the CPUs that share a cache a wake looks at.
pub(super) struct Reach {
    /// For each cache.
    known: Vec<usize>,
    imbalance_pct: i64,
}

impl Reach {
    /// At first all: before the beginning the CPUs idled.
    pub(super) fn new(machine: &Machine, imbalance_pct: i64) -> Self {
        let caches = machine.cpus().map(|c| machine.info(c).llc as usize + 1);
        Self {
            known: vec![machine.ncpu(); caches.max().unwrap_or(0)],
            imbalance_pct,
        }
    }

    /// Of those that share a cache with `c`.
    pub(super) fn around(&self, w: &World, c: Cpu) -> usize {
        self.known[w.machine.info(c).llc as usize]
    }

    /// A CPU of that cache balances it: each of them ran for a part `ran` of the time.
    pub(super) fn settle(&mut self, w: &World, c: Cpu, ran: impl Fn(Cpu) -> f64) {
        let cache = w.machine.llc(c);
        let n = cache.len() as i64;
        let sum: i64 = cache.iter().map(|c| in_1024ths(ran(*c)).min(1024)).sum();
        let used = sum / n * self.imbalance_pct;
        let share = 1024 - (used * used / (10_000 * 1024)).min(1024);
        self.known[w.machine.info(c).llc as usize] = (share * n / 1024) as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::machine::Machine;
    use super::super::linux_decay::PERIOD;
    use super::*;

    const HALF: i64 = 32 * PERIOD;

    fn near(a: Use, ran: f64, wanted: f64) -> bool {
        (a.ran - ran).abs() < 1e-6 && (a.wanted - wanted).abs() < 1e-6
    }

    /// Two threads on CPU 0, the first of which runs; both were nothing before.
    fn two_on_one() -> Utilisation {
        let mut u = Utilisation::new(2, 2, true);
        for t in 0..2 {
            u.comes(0, t, 0, || 0.0);
        }
        // The first was alone and began with half a CPU.
        u.threads[0].0.of = Use::default();
        u.cpus[0].of = Use::default();
        u.runs(0, 0, true);
        u
    }

    #[test]
    fn two_that_want_a_cpu_use_one_and_want_two() {
        let mut u = two_on_one();
        assert!(near(u.of_cpu(HALF, 0), 0.5, 1.0));
        assert!(near(u.of_cpu(100 * HALF, 0), 1.0, 2.0));
        // Who waits is what it was, until it gets the CPU.
        assert!(near(u.of(100 * HALF, 1), 0.0, 0.0));
        u.runs(100 * HALF, 0, false);
        u.runs(100 * HALF, 1, true);
        assert!(near(u.of(100 * HALF, 1), 0.0, 1.0));
    }

    #[test]
    fn a_sleeper_is_still_in_the_averages_of_its_cpu_until_it_wakes_elsewhere() {
        let mut u = two_on_one();
        u.runs(HALF, 0, false);
        u.goes(HALF, 0);
        assert!(near(u.of_cpu(2 * HALF, 0), 0.25, 0.25 + 0.75));
        u.comes(2 * HALF, 0, 1, || 0.0);
        assert!(near(u.of_cpu(2 * HALF, 0), 0.0, 0.75));
        assert!(near(u.of_cpu(2 * HALF, 1), 0.25, 0.25));
    }

    #[test]
    fn a_new_thread_has_its_part_of_what_is_used_and_at_most_half_of_the_rest() {
        let mut u = two_on_one();
        u.runs(0, 0, true);
        // A CPU used by half: a quarter of that is 1/8, and half of what is left 1/4.
        u.threads[1].1 = None;
        u.comes(HALF, 1, 0, || 0.25);
        assert!(near(u.of(HALF, 1), 0.125, 0.125));
        u.threads[1].1 = None;
        u.comes(HALF, 1, 0, || 0.9);
        assert!(u.of(HALF, 1).ran < 0.25);
        // Of an idle CPU it is half.
        let mut u = Utilisation::new(1, 1, true);
        u.comes(0, 0, 0, || 1.0);
        assert!(near(u.of(0, 0), 0.5, 0.5));
    }

    #[test]
    fn up_to_6_9_it_has_half_of_the_rest_whatever_its_weight() {
        let mut u = Utilisation::new(2, 1, false);
        u.wakes(0, 0);
        u.comes(0, 0, 0, || 1.0);
        u.runs(0, 0, true);
        u.comes(HALF, 1, 0, || 0.25);
        assert!(near(u.of(HALF, 1), 0.25, 0.25));
    }

    #[test]
    fn less_than_a_1024th_is_nothing() {
        let mut u = Utilisation::new(1, 1, true);
        u.cpus[0].of.ran = 0.9 / 1024.0;
        u.comes(0, 0, 0, || 0.01);
        assert!(u.of(0, 0).ran > 0.49);
    }

    #[test]
    fn who_slept_from_the_beginning_on_brings_nothing() {
        let mut u = Utilisation::new(1, 1, true);
        u.wakes(0, 0);
        u.comes(0, 0, 0, || 1.0);
        assert!(near(u.of(0, 0), 0.0, 0.0));
        assert!(near(u.of_cpu(0, 0), 0.0, 0.0));
    }

    #[test]
    fn one_that_has_ended_is_in_no_average() {
        let mut u = two_on_one();
        u.runs(HALF, 0, false);
        u.goes(HALF, 0);
        u.ends(HALF, 0);
        assert!(near(u.of_cpu(HALF, 0), 0.0, 0.5));
    }

    #[test]
    fn the_busier_the_cpus_the_fewer_are_looked_at() {
        let mut w = World::hollow();
        w.machine = Machine::flat(8).unwrap();
        let mut reach = Reach::new(&w.machine, 117);
        assert_eq!(reach.around(&w, 5), 8);
        let mut looked = |busy: Cpu| {
            reach.settle(&w, 0, |c| f64::from(u8::from(c < busy)));
            reach.around(&w, 5)
        };
        // floor(8 (1 - 1.17^2 (n / 8)^2)) for n busy CPUs.
        let reaches: Vec<usize> = (0..=8).map(&mut looked).collect();
        assert_eq!(reaches, [8, 7, 7, 6, 5, 3, 1, 0, 0]);
    }
}
