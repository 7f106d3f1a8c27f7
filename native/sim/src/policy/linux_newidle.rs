//! Whether a CPU that is about to idle looks for work at all.
//!
//! A search costs time, and is lost if the CPU is woken a moment later. Each
//! release weighs the CPU's usual idling (an average over its last sleeps, each
//! counting an eighth, at most twice the migration cost) against something else:
//!
//! * 2.6.32, up to 5.16: the migration cost itself, 0.5 ms.
//! * 5.17 on: what a search of the domain costs, as measured.
//! * 6.17: the same, and a search that finds nothing raises that cost by half,
//!   up to the migration cost; it falls by about 1 % a second.
//! * 6.18.5 on (also 6.12.65 on): measured cost again, but a search is made as
//!   often as searches of this domain have succeeded of late.
//!
//! Balancing takes no time in a simulation, so its cost is a tunable.
//! Left out: what a failed search of one domain adds to the next in CPU time.
use super::super::machine::Cpu;
use super::super::world::World;

const SECOND: i64 = 1_000_000_000;
/// Calls over which the rate of success is taken.
const CALLS: u32 = 1024;

/// The rule of a release.
#[derive(Debug, Clone, Copy)]
pub(super) struct Newidle {
    pub on: bool,
    /// Idling on average shorter than this is not worth a search; 0 = no such rule.
    pub least_idle: i64,
    /// What the search of one domain costs.
    pub cost: i64,
    /// A failed search raises the cost by half.
    pub raises_cost: bool,
    /// Searches are drawn by their rate of success.
    pub by_success: bool,
    pub migration_cost: i64,
}

impl Newidle {
    /// Always, as before 2.6.32.
    pub(super) const ALWAYS: Self = Self {
        on: true,
        least_idle: 0,
        cost: 0,
        raises_cost: false,
        by_success: false,
        migration_cost: 0,
    };

    fn is_gated(&self) -> bool {
        self.least_idle > 0 || self.cost > 0 || self.by_success
    }
}

/// One CPU's view of one domain.
#[derive(Debug, Clone, Copy)]
struct Search {
    cost: i64,
    decayed_at: i64,
    calls: u32,
    successes: u32,
    /// Of `CALLS`.
    rate: u32,
}

#[derive(Debug, Clone)]
struct Idling {
    average: i64,
    since: Option<i64>,
    searches: Vec<Search>,
}

pub(super) struct Gate {
    rule: Newidle,
    cpus: Vec<Idling>,
}

impl Gate {
    pub(super) fn new(rule: Newidle, ndomains: usize, ncpu: usize) -> Self {
        let fresh = Idling {
            average: 2 * rule.migration_cost,
            since: None,
            searches: vec![Search::fresh(rule); ndomains],
        };
        Self {
            rule,
            cpus: if rule.is_gated() {
                vec![fresh; ncpu]
            } else {
                Vec::new()
            },
        }
    }

    /// The domains are new, as many as these: nothing is known of searching them.
    pub(super) fn forget(&mut self, ndomains: usize) {
        let search = Search::fresh(self.rule);
        for cpu in &mut self.cpus {
            cpu.searches = vec![search; ndomains];
        }
    }

    /// `c` runs out of work.
    pub(super) fn idles(&mut self, w: &World, c: Cpu) {
        if let Some(cpu) = self.cpus.get_mut(c as usize) {
            cpu.since = Some(w.now());
        }
    }

    /// `c` found something to run after all.
    pub(super) fn pulled(&mut self, c: Cpu) {
        if let Some(cpu) = self.cpus.get_mut(c as usize) {
            cpu.since = None;
        }
    }

    /// A thread was woken on `c`: if it idled, that is over.
    pub(super) fn woken(&mut self, w: &World, c: Cpu) {
        let most = 2 * self.rule.migration_cost;
        if let Some(cpu) = self.cpus.get_mut(c as usize)
            && let Some(since) = cpu.since.take()
        {
            let idled = w.now() - since;
            cpu.average += (idled - cpu.average) >> 3;
            cpu.average = cpu.average.min(most);
        }
    }

    /// Whether `c`, which has searched smaller domains at a cost of `spent`,
    /// searches domain `d`. `None`: no, nor any larger one. Else how much a
    /// success counts; 0 is no, but go on with the next.
    pub(super) fn allows(&mut self, w: &mut World, c: Cpu, d: usize, spent: i64) -> Option<u32> {
        let rule = self.rule;
        let Some(cpu) = self.cpus.get_mut(c as usize) else {
            return Some(1);
        };
        if cpu.average < rule.least_idle || cpu.average < spent + cpu.searches[d].cost {
            return None;
        }
        if !rule.by_success {
            return Some(1);
        }
        let weight = 1 + cpu.searches[d].rate;
        if (w.rng.next_u64() % u64::from(CALLS)) as u32 > weight {
            cpu.searches[d].count(0);
            return Some(0);
        }
        // Rarer searches count for as many more, so that the rate stays true.
        Some((CALLS + weight / 2) / weight)
    }

    /// `c` has searched `d`; the answer is what that cost.
    pub(super) fn searched(
        &mut self,
        w: &World,
        c: Cpu,
        d: usize,
        weight: u32,
        found: bool,
    ) -> i64 {
        let rule = self.rule;
        let Some(cpu) = self.cpus.get_mut(c as usize) else {
            return 0;
        };
        let s = &mut cpu.searches[d];
        s.count(if found { weight } else { 0 });
        if rule.raises_cost && !found {
            // The kernel's cap, with its little extra.
            s.cost = (s.cost * 3 / 2).min(rule.migration_cost + 200);
            s.decayed_at = w.now();
        } else if w.now() - s.decayed_at > SECOND {
            s.cost = (s.cost * 253 / 256).max(rule.cost);
            s.decayed_at = w.now();
        }
        rule.cost
    }
}

impl Search {
    fn fresh(rule: Newidle) -> Self {
        Self {
            cost: rule.cost,
            decayed_at: 0,
            calls: CALLS / 2,
            successes: CALLS / 4,
            rate: CALLS / 2,
        }
    }

    fn count(&mut self, successes: u32) {
        self.calls += 1;
        self.successes += successes;
        if self.calls >= CALLS {
            self.rate = self.successes;
            self.calls /= 2;
            self.successes /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::machine::Machine;
    use super::*;

    const MS: i64 = 1_000_000;
    const OF_2_6_32: Newidle = Newidle {
        least_idle: MS / 2,
        migration_cost: MS / 2,
        ..Newidle::ALWAYS
    };

    /// A world of two CPUs at `now`.
    fn at(now: i64) -> World {
        let mut w = World::hollow();
        w.machine = Machine::flat(2).unwrap();
        w.now = now;
        w
    }

    /// `c` idles for `ns`, `times` over.
    fn idle(gate: &mut Gate, c: Cpu, ns: i64, times: usize) {
        for _ in 0..times {
            gate.idles(&at(0), c);
            gate.woken(&at(ns), c);
        }
    }

    #[test]
    fn a_cpu_that_is_woken_at_once_stops_searching() {
        let mut gate = Gate::new(OF_2_6_32, 1, 2);
        assert_eq!(gate.allows(&mut at(0), 0, 0, 0), Some(1), "at first");
        // 1 ms falls by an eighth each: below 0.5 ms after six naps of no length.
        idle(&mut gate, 0, 0, 5);
        assert_eq!(gate.allows(&mut at(0), 0, 0, 0), Some(1));
        idle(&mut gate, 0, 0, 1);
        assert_eq!(gate.allows(&mut at(0), 0, 0, 0), None);
        assert_eq!(gate.allows(&mut at(0), 1, 0, 0), Some(1), "the other CPU");
        // Long sleeps: 0.45 + (3 - 0.45) / 8 ms is above again.
        idle(&mut gate, 0, 3 * MS, 1);
        assert_eq!(gate.allows(&mut at(0), 0, 0, 0), Some(1));
    }

    #[test]
    fn one_long_sleep_counts_no_more_than_twice_the_migration_cost() {
        let mut gate = Gate::new(OF_2_6_32, 1, 1);
        idle(&mut gate, 0, 10_000 * MS, 1);
        idle(&mut gate, 0, 0, 6);
        assert_eq!(gate.allows(&mut at(0), 0, 0, 0), None);
    }

    #[test]
    fn searches_in_vain_raise_the_cost_of_6_17_to_half_a_millisecond() {
        let rule = Newidle {
            cost: 2_000,
            raises_cost: true,
            migration_cost: MS / 2,
            ..Newidle::ALWAYS
        };
        let mut gate = Gate::new(rule, 1, 1);
        idle(&mut gate, 0, 400_000, 100);
        for _ in 0..13 {
            assert_eq!(gate.allows(&mut at(0), 0, 0, 0), Some(1));
            gate.searched(&at(0), 0, 0, 1, false);
        }
        // 2 us * 1.5^13 = 389 us; once more is more than it idles.
        gate.searched(&at(0), 0, 0, 1, false);
        assert_eq!(gate.allows(&mut at(0), 0, 0, 0), None);
    }

    #[test]
    fn the_rate_of_success_settles_where_searches_succeed() {
        // One search in ten finds something: drawn searches keep that rate.
        let rule = Newidle {
            by_success: true,
            migration_cost: MS / 2,
            ..Newidle::ALWAYS
        };
        let mut gate = Gate::new(rule, 1, 1);
        let mut w = at(0);
        w.rng = super::super::super::rng::Rng::new(3);
        let (mut made, mut last) = (0, 0);
        for i in 0..200_000 {
            if let Some(weight) = gate.allows(&mut w, 0, 0, 0)
                && weight > 0
            {
                made += 1;
                last += u32::from(i >= 100_000);
                gate.searched(&w, 0, 0, weight, made % 10 == 0);
            }
        }
        // A tenth of 100,000 calls, give or take the noise of the estimate.
        assert!((5_000..20_000).contains(&last), "{last} searches");
    }
}
