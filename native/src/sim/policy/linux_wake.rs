//! Where Linux 6.x puts a thread that wakes or is born.
//!
//! Modelled on select_task_rq_fair of 6.6 to 6.17: wake_affine between the
//! waker's CPU and the old one, then an idle CPU that shares its cache, as far as
//! utilisation lets it look (`linux_util`); for a new thread the idlest CPU down the
//! domains. Loads are decaying averages (`linux_load`).
//!
//! Who often wakes another thread than the time before brings none to its CPU, if those that it
//! wakes do so a little, too (wake_wide). These numbers (wakee_flips) a new thread has from its
//! parent, and a wake by an interrupt counts for the thread that it interrupts. Left out: energy
//! awareness, asymmetric capacity, per-CPU kernel threads, NUMA's tolerated imbalance, what the
//! idle thread of a CPU has woken.
use super::super::machine::Cpu;
use super::super::workload::Tid;
use super::super::world::World;
use super::linux_domains::{Domain, Queues};
use super::linux_util::Utilisation;
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

    pub(super) fn wake(
        &mut self,
        w: &World,
        q: &impl Queues,
        utilisation: Option<&mut Utilisation>,
        weights: (i64, i64),
        t: Tid,
        wake: Wake,
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
        self.idle_sibling(w, utilisation, t, prev, target)
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
        utilisation: Option<&mut Utilisation>,
        t: Tid,
        prev: Cpu,
        target: Cpu,
    ) -> Cpu {
        let recent = self.habits[t as usize].recent.replace(prev);
        if w.n_idle() == 0 || w.is_idle(target) {
            return target;
        }
        let good = |c: Cpu| w.is_idle(c) && w.allowed(t, c);
        if prev != target && shares_cache(w, prev, target) && good(prev) {
            return prev;
        }
        if let Some(r) = recent
            && shares_cache(w, r, target)
            && good(r)
        {
            return r;
        }
        let reach = utilisation.map_or(usize::MAX, |u| u.reach(w, target));
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

/// The idlest CPU for a new thread, down the domains from the widest.
pub(super) fn fork_cpu(
    w: &World,
    q: &impl Queues,
    domains: &[Domain],
    pct: i64,
    t: Tid,
    parent: Cpu,
) -> Cpu {
    let mut here = parent;
    for d in domains.iter().rev() {
        let span = d.span(here);
        let rank = |group: &[Cpu]| {
            let allowed = || group.iter().filter(|c| w.allowed(t, **c));
            let idle = allowed().filter(|c| w.is_idle(**c)).count();
            let load: i64 = allowed().map(|c| q.load(w, *c)).sum();
            (allowed().count(), idle, load / group.len() as i64)
        };
        let (ours, our_idle, our_load) = rank(d.group(here));
        let mut best: Option<(usize, i64, &[Cpu])> = None;
        let local = d.group_of[here as usize];
        for (i, group) in span.groups.iter().enumerate() {
            if i == local {
                continue;
            }
            let (n, idle, load) = rank(group);
            if n > 0 && best.is_none_or(|(i, l, _)| idle > i || (idle == i && load < l)) {
                best = Some((idle, load, group));
            }
        }
        let Some((idle, load, group)) = best else {
            continue;
        };
        let stay = if our_idle > 0 || idle > 0 {
            our_idle >= idle
        } else {
            100 * our_load <= pct * load || load + 174 >= our_load
        };
        if ours > 0 && stay {
            continue;
        }
        here = idlest(w, q, group, t).unwrap_or(here);
    }
    if w.allowed(t, here) {
        here
    } else {
        super::idle_or_previous(w, t)
    }
}

/// The CPU idle for the shortest time, whose caches are warmest, else the least loaded.
fn idlest(w: &World, q: &impl Queues, group: &[Cpu], t: Tid) -> Option<Cpu> {
    let allowed = || group.iter().copied().filter(|c| w.allowed(t, *c));
    let mut best: Option<Cpu> = None;
    for c in allowed().filter(|c| w.is_idle(*c)) {
        if best.is_none_or(|b| w.cpu(c).idle_since > w.cpu(b).idle_since) {
            best = Some(c);
        }
    }
    best.or_else(|| allowed().min_by_key(|c| q.load(w, *c)))
}
