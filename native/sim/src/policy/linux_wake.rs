//! Where Linux 6.x puts a thread that wakes or is born.
//!
//! Modelled on select_task_rq_fair of 6.6 to 6.17: wake_affine between the
//! waker's CPU and the old one, then an idle CPU that shares its cache, as far as
//! utilisation lets it look (`linux_util`); for a new thread the idlest group of CPUs, from the
//! widest domain down (`idlest_cpu`). Loads are decaying averages (`linux_load`).
//!
//! Who often wakes another thread than the time before brings none to its CPU, if those that it
//! wakes do so a little, too (wake_wide). These numbers (wakee_flips) a new thread has from its
//! parent, and a wake by an interrupt counts for the thread that it interrupts. Left out: energy
//! awareness, asymmetric capacity, per-CPU kernel threads, NUMA's tolerated imbalance, what the
//! idle thread of a CPU has woken, that exec chooses a CPU as a new thread does (sched_exec).
use super::super::machine::Cpu;
use super::super::workload::Tid;
use super::super::world::World;
use super::linux_domains::{Domain, Level, fallback_cpu};
use super::linux_fair::NICE_0;
use super::linux_queues::Queues;
use super::linux_room::{Crowd, Room};
use super::linux_util::Reach;
use super::tunables::int;
use super::{Tunable, Wake};

/// How often a thread that is there from the beginning has switched between wakees, which no trace
/// shows. In five recordings of 6.1 and 6.12 as many threads as came to their waker's CPU do with 2
/// to 7.
pub(super) const FLIPS: Tunable = int(
    "wakee_flips",
    "6",
    "",
    (0.0, 1e6),
    "how often a thread that is there from the beginning has woken another one than the time before; who did often does not bring threads to its CPU",
);

const SECOND: i64 = 1_000_000_000;

#[derive(Debug, Clone, Default)]
struct Habit {
    /// How often it switched between wakees, halved every second.
    flips: u32,
    last_wakee: Option<Tid>,
    decayed_at: i64,
    recent: Option<Cpu>,
}

pub(super) struct Placer {
    habits: Vec<Habit>,
    imbalance_pct: i64,
    /// Whether the loads of two busy CPUs may bring a thread to its waker (WA_WEIGHT).
    by_load: bool,
}

impl Placer {
    /// Threads begin with so many `flips`, but for those that are born of others.
    pub(super) fn new(nthreads: usize, flips: i64, imbalance_pct: i64, by_load: bool) -> Self {
        let habit = Habit {
            flips: flips as u32,
            ..Habit::default()
        };
        Self {
            habits: vec![habit; nthreads],
            imbalance_pct,
            by_load,
        }
    }

    /// A new thread is a copy of its parent (dup_task_struct), whose habits it has.
    pub(super) fn born(&mut self, parent: Option<Tid>, child: Tid) {
        if let Some(p) = parent {
            self.habits[child as usize] = self.habits[p as usize].clone();
        }
    }

    fn note_wakee(&mut self, w: &World, waker: Tid, t: Tid) {
        let h = &mut self.habits[waker as usize];
        if w.now() > h.decayed_at + SECOND {
            h.flips /= 2;
            h.decayed_at = w.now();
        }
        if h.last_wakee != Some(t) {
            h.last_wakee = Some(t);
            h.flips += 1;
        }
    }

    /// One waker of many wakees: they had better not all come to it.
    fn is_wide(&self, w: &World, waker: Tid, t: Tid) -> bool {
        let cache = w.machine.llc(w.thread(waker).cpu).len() as u64;
        let (a, b) = (
            u64::from(self.habits[waker as usize].flips),
            u64::from(self.habits[t as usize].flips),
        );
        let (master, slave) = (a.max(b), a.min(b));
        slave >= cache && master >= slave * cache
    }

    /// `reach`: how far wakes look for an idle CPU, where that is not everywhere.
    pub(super) fn wake(
        &mut self,
        w: &World,
        q: &impl Queues,
        weights: (i64, i64),
        t: Tid,
        wake: Wake,
        reach: Option<&Reach>,
    ) -> Cpu {
        let (prev, this) = (w.thread(t).cpu, wake.cpu);
        let mut target = prev;
        // An interrupt wakes in the name of the thread that it interrupts. Where a thread can go
        // to one CPU only, none is looked for (select_task_rq).
        if let Some(p) = wake.waker.or(w.cpu(this).curr)
            && w.machine
                .cpus()
                .filter(|c| w.allowed(t, *c))
                .nth(1)
                .is_some()
        {
            self.note_wakee(w, p, t);
        }
        if !w.is_online(prev) {
            // Of no domain and idle, it is what is chosen, and then not allowed (select_task_rq).
            return fallback_cpu(w, t);
        }
        if let Some(p) = wake.waker
            && this != prev
            && w.allowed(t, this)
            && !self.is_wide(w, p, t)
        {
            target = self.affine(w, q, weights, prev, wake);
        }
        if !w.allowed(t, target) {
            return super::idle_or_previous(w, t);
        }
        self.idle_sibling(w, reach, t, prev, target)
    }

    fn affine(
        &self,
        w: &World,
        q: &impl Queues,
        weights: (i64, i64),
        prev: Cpu,
        wake: Wake,
    ) -> Cpu {
        let this = wake.cpu;
        let shares = shares_cache(w, this, prev);
        if w.is_idle(this) && shares {
            return if w.is_idle(prev) { prev } else { this };
        }
        if wake.sync && q.nr(this) == 1 {
            return this;
        }
        if w.is_idle(prev) || !self.by_load {
            return prev;
        }
        let (its, wakers) = weights;
        let mut here = q.load(w, this);
        if wake.sync {
            if wakers > here {
                return this;
            }
            here -= wakers;
        }
        here = 100 * (here + its);
        let there = (q.load(w, prev) - its) * (100 + (self.imbalance_pct - 100) / 2);
        if here < there + i64::from(wake.sync) {
            this
        } else {
            prev
        }
    }

    fn idle_sibling(
        &mut self,
        w: &World,
        reach: Option<&Reach>,
        t: Tid,
        prev: Cpu,
        target: Cpu,
    ) -> Cpu {
        let good = |c: Cpu| w.is_idle(c) && w.allowed(t, c);
        if w.is_idle(target) {
            return target;
        }
        if prev != target && shares_cache(w, prev, target) && good(prev) {
            return prev;
        }
        // Noted only where neither of the two is idle (recent_used_cpu).
        let recent = self.habits[t as usize].recent.replace(prev);
        if w.n_idle() == 0 {
            return target;
        }
        if let Some(r) = recent
            && shares_cache(w, r, target)
            && good(r)
        {
            return r;
        }
        let reach = reach.map_or(usize::MAX, |r| r.around(w, target));
        if reach == 0 {
            return target;
        }
        let cache = w.machine.llc(target);
        let next = cache.iter().position(|c| *c == target).map_or(0, |c| c + 1);
        let around = || {
            let after = cache[next..].iter().chain(&cache[..next]);
            after.copied().filter(|c| w.allowed(t, *c))
        };
        let whole = |c: &Cpu| w.machine.smt(*c).iter().all(|s| w.is_idle(*s));
        if w.machine.smt(target).len() > 1
            && let Some(c) = around().find(whole)
        {
            return c;
        }
        around()
            .take(reach)
            .find(|c| w.is_idle(*c))
            .unwrap_or(target)
    }
}

fn shares_cache(w: &World, a: Cpu, b: Cpu) -> bool {
    w.machine.info(a).llc == w.machine.info(b).llc
}

/// The idlest CPU for a new thread of a parent on `here`, from the widest domain down
/// (find_idlest_cpu, kernel/sched/fair.c, 5.7 to 6.18; sched_balance_find_dst_cpu since 6.10).
pub(super) fn idlest_cpu(
    w: &World,
    q: &impl Queues,
    domains: &[Domain],
    t: Tid,
    mut here: Cpu,
) -> Cpu {
    for d in domains.iter().rev() {
        if let Some(group) = idlest_group(w, q, d, t, here) {
            here = idlest_of_group(w, q, group, t).unwrap_or(here);
        }
    }
    if w.allowed(t, here) {
        here
    } else {
        super::idle_or_previous(w, t)
    }
}

/// The group that a new thread is better off in than in that of `here` (find_idlest_group): of
/// groups with spare CPUs the one with most idle ones, and of those the least used; of full or
/// overloaded ones the least loaded, if it is so by more than imbalance_pct.
fn idlest_group<'a>(
    w: &World,
    q: &impl Queues,
    d: &'a Domain,
    t: Tid,
    here: Cpu,
) -> Option<&'a [Cpu]> {
    let pct = d.imbalance_pct();
    let own = d.group_of[here as usize];
    let mut local = None;
    let mut best: Option<(Crowd, Room, &[Cpu])> = None;
    for (i, group) in d.span(here).groups.around(own) {
        if !group.iter().any(|c| w.allowed(t, *c)) {
            continue;
        }
        let crowd = Crowd::with_use(w, q, group);
        let room = crowd.room(pct);
        if i == own {
            local = Some((crowd, room));
            continue;
        }
        let idler = |(b, its, _): (Crowd, Room, _)| match room {
            _ if room != its => room < its,
            Room::Spare => crowd.idle > b.idle || (crowd.idle == b.idle && crowd.util() < b.util()),
            Room::Full | Room::Overloaded => crowd.average() < b.average(),
        };
        if best.is_none_or(idler) {
            best = Some((crowd, room, group));
        }
    }
    let (there, its, group) = best?;
    let Some((here, ours)) = local else {
        return Some(group);
    };
    let stays = match ours {
        _ if ours != its => ours < its,
        Room::Spare => here.idle >= there.idle,
        Room::Full | Room::Overloaded => {
            let (mine, theirs) = (here.average(), there.average());
            let margin = NICE_0 * (pct - 100) / 100;
            let far = d.level == Level::Numa && theirs + margin >= mine;
            far || theirs >= mine + margin || 100 * mine <= pct * theirs
        }
    };
    (!stays).then_some(group)
}

/// The CPU idle for the shortest time, whose caches are warmest, else the least loaded
/// (find_idlest_group_cpu). Idle states are not known.
fn idlest_of_group(w: &World, q: &impl Queues, group: &[Cpu], t: Tid) -> Option<Cpu> {
    let allowed = || group.iter().copied().filter(|c| w.allowed(t, *c));
    let mut best: Option<Cpu> = None;
    for c in allowed().filter(|c| w.is_idle(*c)) {
        if best.is_none_or(|b| w.cpu(c).idle_since > w.cpu(b).idle_since) {
            best = Some(c);
        }
    }
    best.or_else(|| allowed().min_by_key(|c| q.load(w, *c)))
}

#[cfg(test)]
mod tests {
    use super::super::super::machine::Machine;
    use super::super::super::testing::world_with_idle;
    use super::super::linux_domains::domains;
    use super::super::linux_room::Said;
    use super::*;

    /// Where a new thread of a parent on CPU 0 goes.
    fn placed(machine: Machine, nr: &[u32], load: &[i64], ran: &[f64]) -> Cpu {
        placed_from(0, machine, nr, load, ran)
    }

    fn placed_from(here: Cpu, machine: Machine, nr: &[u32], load: &[i64], ran: &[f64]) -> Cpu {
        let all = domains(&machine);
        let busy: Vec<Cpu> = machine.cpus().filter(|c| nr[*c as usize] > 0).collect();
        let said = Said {
            nr: nr.to_vec(),
            load: load.to_vec(),
            ran: ran.to_vec(),
        };
        idlest_cpu(&world_with_idle(machine, &busy), &said, &all, 0, here)
    }

    fn of_two(nr: [u32; 2], load: [i64; 2], ran: [f64; 2]) -> Cpu {
        placed(Machine::flat(2).unwrap(), &nr, &load, &ran)
    }

    #[test]
    fn a_new_thread_goes_to_an_idle_cpu_whatever_its_load_was() {
        assert_eq!(of_two([1, 0], [10, 900], [0.1, 0.9]), 1);
    }

    #[test]
    fn of_idle_cpus_the_least_used_wins_and_of_equal_ones_the_next() {
        let idle = |here: Cpu, ran: [f64; 4]| {
            let mut nr = [0; 4];
            nr[here as usize] = 1;
            placed_from(here, Machine::flat(4).unwrap(), &nr, &[0; 4], &ran)
        };
        assert_eq!(idle(0, [0.5, 0.3, 0.1, 0.2]), 2);
        // In 1/1024 of a CPU both are nothing.
        assert_eq!(idle(0, [0.5, 0.0009, 0.0, 0.2]), 1);
        assert_eq!(idle(2, [0.1, 0.1, 0.5, 0.1]), 3);
        assert_eq!(idle(3, [0.1, 0.1, 0.1, 0.5]), 0);
    }

    #[test]
    fn with_room_on_both_it_stays_unless_there_is_an_idle_one() {
        // The other one has less load, but none is overloaded and none idles.
        assert_eq!(of_two([2, 1], [2000, 100], [0.5, 0.3]), 0);
    }

    #[test]
    fn room_counts_before_load() {
        // CPU 0 is full: one thread that runs all the time. CPU 1 has more load, and spare time.
        assert_eq!(of_two([1, 2], [1024, 1500], [1.0, 0.6]), 1);
        // CPU 0 is full, CPU 1 overloaded, though by threads of less load.
        assert_eq!(of_two([1, 3], [1024, 45], [1.0, 1.0]), 0);
    }

    #[test]
    fn of_two_overloaded_ones_the_other_must_have_less_load_by_more_than_17_per_cent() {
        // 1.17 * 1800 = 2106, 1.17 * 1700 = 1989.
        assert_eq!(of_two([3, 3], [2048, 1800], [1.0, 1.0]), 0);
        assert_eq!(of_two([3, 3], [2048, 1700], [1.0, 1.0]), 1);
    }

    #[test]
    fn among_cores_the_one_with_most_idle_threads_then_the_least_used() {
        // Three cores of two: the parent's, one half idle, one idle.
        let cores = || Machine::grid(1, 3, 2).unwrap();
        let to = placed(cores(), &[1, 0, 1, 0, 0, 0], &[0; 6], &[0.0; 6]);
        assert_eq!(to, 4);
        let used = [0.0, 0.0, 0.0, 0.2, 0.1, 0.0];
        let to = placed(cores(), &[1, 0, 0, 0, 0, 0], &[0; 6], &used);
        assert_eq!(to, 4);
    }
}
