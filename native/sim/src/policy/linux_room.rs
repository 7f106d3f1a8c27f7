//! What a group of CPUs has room for, by which Linux places new threads and balances.
//!
//! group_classify, group_has_capacity and group_is_overloaded of kernel/sched/fair.c, 5.7 to 6.18:
//! a group is overloaded if it has more threads than CPUs and they use, or want, more than it has;
//! it has spare CPUs if it has fewer, or they leave some of it. What is compared is a matter of
//! `imbalance_pct`. Left out: threads that do not fit, pinned ones, asymmetric packing, and that
//! interrupts and real-time threads make a CPU smaller.
use super::super::machine::Cpu;
use super::super::world::World;
use super::linux_queues::Queues;
use super::linux_util::{Use, in_1024ths};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Room {
    Spare,
    Full,
    Overloaded,
}

/// What the CPUs of a group have to do together.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Crowd {
    pub cpus: u32,
    /// Threads that run or want to, and CPUs without any.
    pub nr: u32,
    pub idle: u32,
    pub load: i64,
    pub used: Use,
}

impl Crowd {
    pub(super) fn of(w: &World, q: &impl Queues, group: &[Cpu]) -> Self {
        let mut s = Self::counted(w, q, group);
        // Looked at only where it decides.
        if s.nr >= s.cpus || s.cpus > 1 {
            s.look(w, q, group);
        }
        s
    }

    /// The same, what idle CPUs were used for, too.
    pub(super) fn with_use(w: &World, q: &impl Queues, group: &[Cpu]) -> Self {
        let mut s = Self::counted(w, q, group);
        s.look(w, q, group);
        s
    }

    fn counted(w: &World, q: &impl Queues, group: &[Cpu]) -> Self {
        let mut s = Self {
            cpus: group.len() as u32,
            ..Self::default()
        };
        for c in group {
            let nr = q.nr(*c);
            s.nr += nr;
            s.idle += u32::from(nr == 0 && w.is_idle(*c));
            s.load += q.load(w, *c);
        }
        s
    }

    fn look(&mut self, w: &World, q: &impl Queues, group: &[Cpu]) {
        for used in group.iter().map(|c| q.used(w, *c)) {
            self.used.ran += used.ran;
            self.used.wanted += used.wanted;
        }
    }

    /// What is used as the kernel counts it, in 1/1024 of a CPU (group_util).
    pub(super) fn util(&self) -> i64 {
        in_1024ths(self.used.ran)
    }

    /// By the domain's imbalance_pct.
    pub(super) fn room(&self, pct: i64) -> Room {
        let (has, pct) = (f64::from(self.cpus), pct as f64 / 100.0);
        let wants_more = self.used.wanted > has * pct;
        if self.nr > self.cpus && (self.used.ran * pct > has || wants_more) {
            Room::Overloaded
        } else if self.nr < self.cpus || (!wants_more && self.used.ran * pct < has) {
            Room::Spare
        } else {
            Room::Full
        }
    }

    /// Load of a CPU (avg_load).
    pub(super) fn average(&self) -> i64 {
        self.load / i64::from(self.cpus.max(1))
    }
}

/// For tests: what each CPU says of itself.
#[cfg(test)]
#[derive(Clone)]
pub(super) struct Said {
    pub nr: Vec<u32>,
    pub load: Vec<i64>,
    pub ran: Vec<f64>,
}

#[cfg(test)]
impl Queues for Said {
    fn load(&self, _: &World, c: Cpu) -> i64 {
        self.load[c as usize]
    }

    fn used(&self, _: &World, c: Cpu) -> Use {
        let ran = self.ran[c as usize];
        Use { ran, wanted: ran }
    }

    fn nr(&self, c: Cpu) -> u32 {
        self.nr[c as usize]
    }

    fn pull(&mut self, _: &mut World, _: Cpu, _: Cpu, _: super::linux_queues::Want) -> u32 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(cpus: u32, nr: u32, ran: f64, wanted: f64) -> Room {
        let used = Use { ran, wanted };
        let crowd = Crowd {
            cpus,
            nr,
            used,
            ..Crowd::default()
        };
        crowd.room(117)
    }

    #[test]
    fn fewer_threads_than_cpus_leave_a_cpu_whatever_they_use() {
        assert_eq!(room(2, 1, 2.0, 4.0), Room::Spare);
    }

    #[test]
    fn one_hog_fills_a_cpu_when_it_has_run_for_a_while() {
        // 1 / 1.17 = 0.855.
        assert_eq!(room(1, 1, 0.85, 0.85), Room::Spare);
        assert_eq!(room(1, 1, 0.86, 0.86), Room::Full);
    }

    #[test]
    fn two_threads_overload_a_cpu_if_they_use_or_want_more_than_it_has() {
        assert_eq!(room(1, 2, 0.5, 1.1), Room::Spare);
        assert_eq!(room(1, 2, 0.5, 1.2), Room::Overloaded);
        assert_eq!(room(1, 2, 0.9, 1.0), Room::Overloaded);
    }
}
