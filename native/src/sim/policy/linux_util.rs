//! How far Linux 6.x looks for an idle CPU: less far, the busier they are.
//!
//! Modelled on SIS_UTIL (kernel/sched/fair.c, 6.0 on): of the CPUs that share a cache
//! a wake looks at a part that falls with the square of their utilisation, and at none
//! above 92 %; there an idle one would rarely be found. Utilisation is an average
//! (PELT) in which the past counts half as much every 32 periods of 1024 us, here of the
//! time in which a CPU ran fair threads. The part is worked out anew once a tick. Left
//! out: that a thread takes its own utilisation with it when it moves, util_est.
use super::super::machine::{Cpu, Machine};
use super::super::world::World;
use super::linux_decay::Decay;

/// Whether a CPU runs, and for what part of the time it has.
#[derive(Debug, Clone, Copy, Default)]
struct Busy {
    running: bool,
    part: f64,
    at: i64,
}

pub(super) struct Utilisation {
    decay: Decay,
    cpus: Vec<Busy>,
    /// For each cache how many are looked at, and until when that holds.
    known: Vec<(usize, i64)>,
    jiffy: i64,
    /// The domain's imbalance_pct, as a factor.
    margin: f64,
}

impl Utilisation {
    pub(super) fn new(machine: &Machine, imbalance_pct: i64, jiffy: i64) -> Self {
        let caches = machine.cpus().map(|c| machine.info(c).llc as usize + 1);
        let caches = caches.max().unwrap_or(0);
        Self {
            decay: Decay::default(),
            cpus: vec![Busy::default(); machine.ncpu()],
            known: vec![(0, i64::MIN); caches],
            jiffy,
            margin: imbalance_pct as f64 / 100.0,
        }
    }

    /// `c` begins or ceases to run a fair thread.
    pub(super) fn runs(&mut self, now: i64, c: Cpu, running: bool) {
        let part = self.part(now, c);
        self.cpus[c as usize] = Busy {
            running,
            part,
            at: now,
        };
    }

    /// The part of the time in which `c` ran, of late.
    fn part(&self, now: i64, c: Cpu) -> f64 {
        let busy = &self.cpus[c as usize];
        let goal = f64::from(u8::from(busy.running));
        goal + (busy.part - goal) * self.decay.left(now - busy.at)
    }

    /// How many of the CPUs that share a cache with `c` a wake looks at.
    pub(super) fn reach(&mut self, w: &World, c: Cpu) -> usize {
        let at = w.machine.info(c).llc as usize;
        let (reach, until) = self.known[at];
        if w.now() < until {
            return reach;
        }
        let reach = self.anew(w, c);
        self.known[at] = (reach, w.now() + self.jiffy);
        reach
    }

    fn anew(&self, w: &World, c: Cpu) -> usize {
        let cache = w.machine.llc(c);
        let sum: f64 = cache.iter().map(|c| self.part(w.now(), *c)).sum();
        let mean = sum / cache.len() as f64;
        let share = (1.0 - mean * mean * self.margin).max(0.0);
        (share * cache.len() as f64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::machine::Machine;
    use super::super::linux_decay::PERIOD;
    use super::*;

    fn at(now: i64) -> World {
        let mut w = World::hollow();
        w.machine = Machine::flat(8).unwrap();
        w.now = now;
        w
    }

    fn of_eight() -> Utilisation {
        Utilisation::new(&Machine::flat(8).unwrap(), 117, 4_000_000)
    }

    #[test]
    fn the_part_of_an_idle_cpu_halves_every_32_periods() {
        let half = 32 * PERIOD;
        let mut u = of_eight();
        u.runs(0, 0, true);
        assert!((u.part(half, 0) - 0.5).abs() < 1e-9);
        assert!((u.part(3 * half, 0) - 0.875).abs() < 1e-9);
        u.runs(3 * half, 0, false);
        assert!((u.part(4 * half, 0) - 0.4375).abs() < 1e-9);
        assert!(u.part(1000 * half, 0) < 1e-9);
    }

    #[test]
    fn the_busier_the_cpus_the_fewer_are_looked_at() {
        let mut u = of_eight();
        let long = 1_000 * PERIOD;
        let mut reaches = vec![u.anew(&at(long), 0)];
        for c in 0..8 {
            u.runs(0, c, true);
            reaches.push(u.anew(&at(long), 0));
        }
        // floor(8 (1 - 1.17 (n / 8)^2)) for n busy CPUs.
        assert_eq!(reaches, [8, 7, 7, 6, 5, 4, 2, 0, 0]);
    }

    #[test]
    fn how_far_is_worked_out_once_a_tick() {
        let tick = 2_000 * PERIOD;
        let mut u = Utilisation::new(&Machine::flat(8).unwrap(), 117, tick);
        assert_eq!(u.reach(&at(0), 0), 8);
        (0..8).for_each(|c| u.runs(0, c, true));
        assert_eq!(u.reach(&at(tick - 1), 5), 8);
        assert_eq!(u.reach(&at(tick), 5), 0);
    }
}
