//! Linux's scheduling domains, and the load balancer of 2.6 that walks them.
//!
//! A domain is a span of CPUs cut into groups: the hardware threads of a core,
//! the cores of a cache, the caches of a node, the nodes of the machine. Each
//! CPU balances each of its domains when that domain's interval has passed
//! (longer if the CPU is busy): it finds the busiest group, in it the busiest
//! queue, and pulls threads until the imbalance is gone. Idle CPUs, whose clock
//! is stopped, are balanced on behalf by a busy CPU's tick.
//!
//! Modelled on the texts of 2.6.31 and 2.6.32 (and, with other constants, what
//! 2.6.10 did). `Style::Groups` is the newer balancer (5.5 and later), which
//! classes groups as having spare CPUs, being full, or being overloaded; there a thread
//! too heavy for the imbalance is moved after enough failures, each of which halves it
//! (5.10), and a failure resets the interval.
//! Where nothing has moved for `nice_tries` + 2 passes of a CPU although threads should, or none of
//! the busiest CPU's waits, its running thread is pushed (need_active_balance, imbalanced_active_balance;
//! active_load_balance_cpu_stop, whose own few us are not there): since 5.10 only where it is
//! the number of threads that is out of balance, before always.
//! Left out: pushing because of capacity or SCHED_DEADLINE and real-time threads, power saving, asymmetric capacity, cgroups, NUMA balancing.
use super::super::machine::{Cpu, Machine};
use super::super::workload::Tid;
use super::super::world::{RescheduleReason, World};
use super::Tunable;
use super::linux_newidle::{Gate, Newidle};
use super::linux_util::Use;
use super::tunables::switch;

pub(super) const BALANCE: Tunable = switch("balance", "on", "periodic and idle load balancing");
pub(super) const BALANCE_NEWIDLE: Tunable =
    switch("balance_newidle", "on", "pull when a CPU is about to idle");

/// What the CPUs of a domain have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Smt,
    Cache,
    Package,
    Numa,
}

#[derive(Debug, Clone)]
pub(super) struct Span {
    pub cpus: Vec<Cpu>,
    pub groups: Groups,
}

/// The groups of a span, one after the other in one list: a pass over them
/// reads memory in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Groups {
    members: Vec<Cpu>,
    ends: Vec<usize>,
}

impl Groups {
    fn push(&mut self, group: &[Cpu]) {
        self.members.extend_from_slice(group);
        self.ends.push(self.members.len());
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, i: usize) -> &[Cpu] {
        let begin = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.members[begin..self.ends[i]]
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &[Cpu]> {
        (0..self.len()).map(|i| self.get(i))
    }
}

#[derive(Debug, Clone)]
pub(super) struct Domain {
    pub level: Level,
    pub spans: Vec<Span>,
    pub span_of: Vec<usize>,
    /// The group of each CPU in its span.
    pub group_of: Vec<usize>,
}

impl Domain {
    pub(super) fn span(&self, c: Cpu) -> &Span {
        &self.spans[self.span_of[c as usize]]
    }

    /// By how much one group must have more to do than another, per cent (sd_init,
    /// kernel/sched/topology.c, 5.10 to 6.18).
    pub(super) fn imbalance_pct(&self) -> i64 {
        match self.level {
            Level::Smt => 110,
            Level::Cache | Level::Package | Level::Numa => Knobs::BY_GROUPS.imbalance_pct,
        }
    }

    /// The group of `c`.
    pub(super) fn group(&self, c: Cpu) -> &[Cpu] {
        self.span(c).groups.get(self.group_of[c as usize])
    }
}

/// The domains of `m`, smallest spans first, without those that add nothing.
pub(super) fn domains(m: &Machine) -> Vec<Domain> {
    let whole: Vec<Cpu> = m.cpus().collect();
    let of = |level: Level, c: Cpu| -> Vec<Cpu> {
        match level {
            Level::Smt => m.smt(c).to_vec(),
            Level::Cache => m.llc(c).to_vec(),
            Level::Package => m.node(c).to_vec(),
            Level::Numa => whole.clone(),
        }
    };
    let mut out: Vec<Domain> = Vec::new();
    for level in [Level::Smt, Level::Cache, Level::Package, Level::Numa] {
        let mut spans: Vec<Span> = Vec::new();
        let mut span_of = vec![usize::MAX; m.ncpu()];
        let mut group_of = vec![0; m.ncpu()];
        let mut adds = false;
        for c in m.cpus() {
            if span_of[c as usize] != usize::MAX {
                continue;
            }
            let cpus = of(level, c);
            let mut groups = Groups::default();
            for member in &cpus {
                span_of[*member as usize] = spans.len();
                if let Some(i) = groups.iter().position(|g| g.contains(member)) {
                    group_of[*member as usize] = i;
                    continue;
                }
                group_of[*member as usize] = groups.len();
                match out.last() {
                    Some(child) => groups.push(&child.span(*member).cpus),
                    None => groups.push(&[*member]),
                }
            }
            adds |= groups.len() > 1;
            spans.push(Span { cpus, groups });
        }
        if adds {
            out.push(Domain {
                level,
                spans,
                span_of,
                group_of,
            });
        }
    }
    out
}

/// What the balancer asks of a policy's queues.
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
    /// Runnable threads of `c`, the running one included.
    fn nr(&self, c: Cpu) -> u32;
    /// Move waiting threads until `want` is met; answer how many moved.
    fn pull(&mut self, w: &mut World, from: Cpu, to: Cpu, want: Want) -> u32;
}

/// How much to pull.
#[derive(Debug, Clone, Copy)]
pub(super) struct Want {
    pub load: i64,
    pub tasks: u32,
    /// A thread heavier than `load` may be moved all the same if it is not, so many times
    /// halved.
    pub halved: u32,
    /// Threads that ran a moment ago may be moved too.
    pub hot: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Idle {
    No,
    Yes,
    Newly,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// 2.6: compare weighted loads.
    Load,
    /// 5.5 and later: classify groups first.
    Groups,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Knobs {
    pub style: Style,
    pub on: bool,
    /// When a CPU that is about to idle pulls.
    pub newidle: Newidle,
    pub busy_factor: i64,
    pub imbalance_pct: i64,
    pub nice_tries: u32,
    /// A CPU that turns idle keeps the time of its next balancing, which it set
    /// while busy (2.6.31, 2.6.32).
    pub keeps_busy_interval: bool,
    /// Which of the lagging loads a busy and an idle CPU go by.
    pub busy_idx: usize,
    pub idle_idx: usize,
    /// Most threads moved in one pass.
    pub most: u32,
    /// Compare groups by their least loaded CPU, not by their average load.
    pub by_least: bool,
    /// There is no domain over the nodes: nothing moves between them.
    pub within_node: bool,
}

impl Knobs {
    /// What the releases of 2.6 have in common.
    pub(super) const OF_2_6: Self = Self {
        style: Style::Load,
        on: true,
        newidle: Newidle::ALWAYS,
        busy_factor: 64,
        imbalance_pct: 125,
        nice_tries: 1,
        keeps_busy_interval: false,
        busy_idx: 0,
        idle_idx: 0,
        most: 32,
        by_least: false,
        within_node: false,
    };

    /// What the releases from 5.10 on have in common.
    pub(super) const BY_GROUPS: Self = Self {
        style: Style::Groups,
        busy_factor: 16,
        imbalance_pct: 117,
        ..Self::OF_2_6
    };
}

const MS: i64 = 1_000_000;

#[derive(Debug, Clone, Copy)]
struct Timing {
    last: i64,
    interval: i64,
    failed: u32,
}

pub(super) struct Balancer {
    pub(super) domains: Vec<Domain>,
    knobs: Knobs,
    gate: Gate,
    /// Per domain and CPU.
    timing: Vec<Vec<Timing>>,
    next_nohz: i64,
    /// Where each CPU is to push its running thread to.
    pushes: Vec<Option<Cpu>>,
    /// When each CPU looks at its domains again.
    next: Vec<i64>,
    jiffy: i64,
    /// Passes that looked for an imbalance, and threads they moved.
    pub(super) passes: u64,
    pub(super) moved: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Stats {
    load: i64,
    /// Of its least loaded CPU.
    least: i64,
    nr: u32,
    idle: u32,
    size: u32,
}

impl Stats {
    fn average(&self) -> i64 {
        self.load / i64::from(self.size.max(1))
    }

    fn overloaded(&self) -> bool {
        self.nr > self.size
    }

    fn has_spare(&self) -> bool {
        self.nr < self.size
    }
}

impl Balancer {
    pub(super) fn new(m: &Machine, knobs: Knobs, hz: i64) -> Self {
        let mut domains = domains(m);
        if knobs.within_node {
            domains.retain(|d| d.level != Level::Numa);
        }
        let timing = domains
            .iter()
            .map(|d| {
                m.cpus()
                    .map(|c| Timing {
                        last: 0,
                        interval: bounds(d, c, knobs.style).0,
                        failed: 0,
                    })
                    .collect()
            })
            .collect();
        Self {
            gate: Gate::new(knobs.newidle, domains.len(), m.ncpu()),
            domains,
            knobs,
            timing,
            next_nohz: 0,
            pushes: vec![None; m.ncpu()],
            next: vec![0; m.ncpu()],
            jiffy: 1_000_000_000 / hz.max(1),
            passes: 0,
            moved: 0,
        }
    }

    /// The clock tick of the busy CPU `c`.
    pub(super) fn tick(&mut self, w: &mut World, q: &mut impl Queues, c: Cpu) {
        if !self.knobs.on || self.domains.is_empty() {
            return;
        }
        if w.now() >= self.next[c as usize] {
            self.rebalance(w, q, c, Idle::No);
        }
        // nohz_balancer_kick: since 5.x also where more than one CPU of the cache is busy.
        let kicks = q.nr(c) >= 2 || (self.knobs.style == Style::Groups && busy_in_cache(w, c) > 1);
        if w.n_idle() > 0 && kicks && w.now() >= self.next_nohz {
            self.next_nohz = w.now() + self.jiffy;
            for i in 0..w.ncpu() as Cpu {
                let due = !self.knobs.keeps_busy_interval || w.now() >= self.next[i as usize];
                if w.is_idle(i) && due {
                    self.rebalance(w, q, i, Idle::Yes);
                }
            }
        }
    }

    fn rebalance(&mut self, w: &mut World, q: &mut impl Queues, c: Cpu, idle: Idle) {
        let mut next = i64::MAX;
        for d in 0..self.domains.len() {
            let timing = self.timing[d][c as usize];
            let mut interval = timing.interval;
            if idle == Idle::No {
                interval *= self.knobs.busy_factor;
            }
            interval = interval.max(self.jiffy);
            if w.now() - timing.last >= interval {
                self.balance(w, q, c, d, idle);
                self.timing[d][c as usize].last = w.now();
            }
            next = next.min(self.timing[d][c as usize].last + interval);
        }
        self.next[c as usize] = next;
    }

    /// `c` is about to idle: pull one thread, from near to far.
    pub(super) fn newly_idle(&mut self, w: &mut World, q: &mut impl Queues, c: Cpu) -> bool {
        self.gate.idles(w, c);
        if !self.knobs.on || !self.knobs.newidle.on || !super::someone_waits(w) {
            return false;
        }
        let pulled = self.pull_newly_idle(w, q, c);
        if pulled {
            self.gate.pulled(c);
        }
        if pulled || w.now() > self.next[c as usize] {
            let due = |t: &Vec<Timing>| t[c as usize].last + t[c as usize].interval;
            self.next[c as usize] = self.timing.iter().map(due).min().unwrap_or(i64::MAX);
        }
        pulled
    }

    fn pull_newly_idle(&mut self, w: &mut World, q: &mut impl Queues, c: Cpu) -> bool {
        let mut spent = 0;
        for d in 0..self.domains.len() {
            let Some(weight) = self.gate.allows(w, c, d, spent) else {
                return false;
            };
            if weight == 0 {
                continue;
            }
            let found = self.balance(w, q, c, d, Idle::Newly) > 0;
            spent += self.gate.searched(w, c, d, weight, found);
            if found {
                return true;
            }
        }
        false
    }

    /// The CPU that `t`, which leaves `c` and wants to run on, is pushed to.
    pub(super) fn push(&mut self, w: &World, c: Cpu, t: Tid) -> Option<Cpu> {
        self.pushes[c as usize]
            .take()
            .filter(|to| w.allowed(t, *to))
    }

    /// Have `from` push what it runs to `c`, if that may be moved; whether it was asked to.
    fn ask_for_push(&mut self, w: &mut World, from: Cpu, c: Cpu) -> bool {
        let fair = |t: &Tid| !w.thread(*t).class.is_realtime() && w.allowed(*t, c);
        if w.cpu(from).curr.filter(fair).is_none() || self.pushes[from as usize].is_some() {
            return false;
        }
        self.pushes[from as usize] = Some(c);
        w.resched(from, RescheduleReason::Preempted);
        true
    }

    /// A thread was woken on `c`.
    pub(super) fn woken(&mut self, w: &World, c: Cpu) {
        self.gate.woken(w, c);
    }

    fn balance(&mut self, w: &mut World, q: &mut impl Queues, c: Cpu, d: usize, idle: Idle) -> u32 {
        self.passes += 1;
        let (least, most) = bounds(&self.domains[d], c, self.knobs.style);
        if !self.is_designated(w, c, d, idle) {
            return 0;
        }
        let found = match self.knobs.style {
            Style::Load => self.by_load(w, q, c, d, idle),
            Style::Groups => self.by_groups(w, q, c, d, idle),
        };
        let Some((from, load, tasks)) = found else {
            let timing = &mut self.timing[d][c as usize];
            timing.failed = 0;
            if idle != Idle::Newly {
                timing.interval = (timing.interval * 2).min(most);
            }
            return 0;
        };
        let failed = self.timing[d][c as usize].failed;
        let want = Want {
            load,
            tasks: tasks.min(self.knobs.most),
            halved: match self.knobs.style {
                Style::Load => 1,
                Style::Groups => failed.min(31),
            },
            hot: failed > self.knobs.nice_tries,
        };
        let moved = if q.nr(from) > 1 {
            q.pull(w, from, c, want)
        } else {
            0
        };
        self.moved += u64::from(moved);
        let tries = self.knobs.nice_tries;
        let failed = failed + u32::from(idle != Idle::Newly);
        let by_number = self.knobs.style == Style::Load || load == i64::MAX;
        let pushed = moved == 0 && by_number && failed > tries + 2 && self.ask_for_push(w, from, c);
        let timing = &mut self.timing[d][c as usize];
        if moved > 0 {
            timing.failed = 0;
            timing.interval = least;
        } else if pushed {
            // Up to 5.10 this leaves one failure more than makes hot threads move.
            timing.failed = match self.knobs.style {
                Style::Load => tries + 1,
                Style::Groups => 0,
            };
        } else if idle != Idle::Newly {
            timing.failed += 1;
            if self.knobs.style == Style::Groups {
                timing.interval = least;
            }
        }
        moved
    }

    /// One CPU of a group balances for all of it: an idle one, else the first.
    fn is_designated(&self, w: &World, c: Cpu, d: usize, idle: Idle) -> bool {
        if idle == Idle::Newly {
            return true;
        }
        let group = self.domains[d].group(c);
        let idle_one = group.iter().copied().find(|x| w.is_idle(*x));
        idle_one.or(group.first().copied()) == Some(c)
    }

    fn stats(&self, w: &World, q: &impl Queues, group: &[Cpu], local: bool, idx: usize) -> Stats {
        let mut s = Stats {
            size: group.len() as u32,
            least: i64::MAX,
            ..Stats::default()
        };
        for c in group {
            let now = q.load(w, *c);
            // Biased against moving: high for the local group, low for others.
            let load = match (idx, local) {
                (0, _) => now,
                (_, true) => now.max(q.lagged(w, *c, idx)),
                (_, false) => now.min(q.lagged(w, *c, idx)),
            };
            s.load += load;
            s.least = s.least.min(load);
            let nr = q.nr(*c);
            s.nr += nr;
            s.idle += u32::from(nr == 0);
        }
        s
    }

    fn busiest_queue(
        &self,
        w: &World,
        q: &impl Queues,
        group: &[Cpu],
        by_load: bool,
    ) -> Option<Cpu> {
        let rank = |c: &Cpu| {
            if by_load {
                (q.load(w, *c), i64::from(q.nr(*c)))
            } else {
                (i64::from(q.nr(*c)), q.load(w, *c))
            }
        };
        let with_waiters = group.iter().filter(|c| q.nr(**c) > 1);
        let mut best = None;
        for c in with_waiters {
            if best.is_none_or(|b| rank(c) > rank(b)) {
                best = Some(c);
            }
        }
        best.or_else(|| group.iter().max_by_key(|c| rank(c)))
            .copied()
    }

    fn by_load(
        &self,
        w: &World,
        q: &impl Queues,
        c: Cpu,
        d: usize,
        idle: Idle,
    ) -> Option<(Cpu, i64, u32)> {
        let idx = match idle {
            Idle::No => self.knobs.busy_idx,
            Idle::Yes => self.knobs.idle_idx,
            Idle::Newly => 0,
        };
        let rank = |s: &Stats| {
            if self.knobs.by_least {
                s.least
            } else {
                s.average()
            }
        };
        let span = self.domains[d].span(c);
        let (mut this, mut busiest): (Stats, Option<(Stats, &[Cpu])>) = (Stats::default(), None);
        let (mut total, mut size) = (0, 0);
        let ours = self.domains[d].group_of[c as usize];
        for (i, group) in span.groups.iter().enumerate() {
            let local = i == ours;
            let s = self.stats(w, q, group, local, idx);
            total += s.load;
            size += i64::from(s.size);
            if local {
                this = s;
            } else if s.overloaded() && busiest.is_none_or(|(b, _)| rank(&s) > rank(&b)) {
                busiest = Some((s, group));
            }
        }
        let (max, group) = busiest?;
        if self.knobs.by_least {
            if 100 * max.least <= self.knobs.imbalance_pct * this.least {
                return None;
            }
            let from = self.busiest_queue(w, q, group, true)?;
            return Some((from, max.load / i64::from(max.nr.max(1)), 1));
        }
        let average = total / size.max(1);
        let (here, there) = (this.average(), max.average());
        if here >= there || here >= average || 100 * there <= self.knobs.imbalance_pct * here {
            return None;
        }
        let per_task = max.load / i64::from(max.nr.max(1));
        if there <= per_task {
            return None;
        }
        let pull = (there - average).min(there - per_task) * i64::from(max.size);
        let mut imbalance = pull.min((average - here) * i64::from(this.size));
        if imbalance < per_task {
            // Less than a thread: one is moved if that does not swap the roles.
            let ours = if this.nr > 0 {
                this.load / i64::from(this.nr)
            } else {
                0
            };
            let threads = if this.nr > 0 && per_task > ours { 1 } else { 2 };
            if there - here + per_task < per_task * threads {
                return None;
            }
            imbalance = per_task;
        }
        let from = self.busiest_queue(w, q, group, true)?;
        let most = if idle == Idle::Newly { 1 } else { u32::MAX };
        Some((from, imbalance, most))
    }

    fn by_groups(
        &self,
        w: &World,
        q: &impl Queues,
        c: Cpu,
        d: usize,
        idle: Idle,
    ) -> Option<(Cpu, i64, u32)> {
        let domain = &self.domains[d];
        let span = domain.span(c);
        let (mut this, mut busiest): (Stats, Option<(Stats, &[Cpu])>) = (Stats::default(), None);
        let (mut total, mut size) = (0, 0);
        let kind = |s: &Stats| (s.overloaded(), !s.has_spare());
        let ours = self.domains[d].group_of[c as usize];
        for (i, group) in span.groups.iter().enumerate() {
            let local = i == ours;
            let s = self.stats(w, q, group, local, 0);
            total += s.load;
            size += i64::from(s.size);
            if local {
                this = s;
                continue;
            }
            let rank = |s: &Stats| {
                let within = if s.overloaded() {
                    s.average()
                } else {
                    i64::from(s.nr) - i64::from(s.idle)
                };
                (kind(s), within)
            };
            if s.nr > 0 && busiest.is_none_or(|(b, _)| rank(&s) > rank(&b)) {
                busiest = Some((s, group));
            }
        }
        let (max, group) = busiest?;
        if kind(&this) > kind(&max) {
            return None;
        }
        let within_cache = matches!(domain.level, Level::Smt | Level::Cache);
        if this.overloaded() {
            let average = total / size.max(1);
            let (here, there) = (this.average(), max.average());
            if here >= there || here >= average || 100 * there <= self.knobs.imbalance_pct * here {
                return None;
            }
            let imbalance = ((there - average) * i64::from(max.size))
                .min((average - here) * i64::from(this.size));
            let from = self.busiest_queue(w, q, group, true)?;
            return Some((from, imbalance, u32::MAX));
        }
        if !max.overloaded() {
            if idle == Idle::No {
                return None;
            }
            // Spread over cores that share less before doubling up on one.
            let prefers_siblings = domain.level == Level::Cache;
            let spread = prefers_siblings && this.has_spare() && max.nr > this.nr + 1;
            if !spread && max.size > 1 && this.idle <= max.idle + 1 {
                return None;
            }
            if max.nr <= 1 {
                return None;
            }
        }
        let tasks = if this.has_spare() && max.overloaded() && !within_cache {
            u32::from(this.idle > 0).max(this.size - this.nr)
        } else if max.size == 1 || domain.level == Level::Cache {
            max.nr.saturating_sub(this.nr) / 2
        } else {
            this.idle.saturating_sub(max.idle) / 2
        };
        let tasks = if tasks == 0 && idle != Idle::No && max.overloaded() {
            1
        } else {
            tasks
        };
        if tasks == 0 {
            return None;
        }
        let from = self.busiest_queue(w, q, group, false)?;
        let most = if idle == Idle::Newly { 1 } else { tasks };
        Some((from, i64::MAX, most))
    }
}

fn busy_in_cache(w: &World, c: Cpu) -> usize {
    w.machine.llc(c).iter().filter(|o| !w.is_idle(**o)).count()
}

/// Shortest and longest interval of `c` in `d`.
fn bounds(d: &Domain, c: Cpu, style: Style) -> (i64, i64) {
    match (style, d.level) {
        (Style::Groups, _) => {
            let n = d.span(c).cpus.len() as i64;
            (n * MS, 2 * n * MS)
        }
        (_, Level::Smt) => (MS, 2 * MS),
        (_, Level::Cache | Level::Package) => (MS, 4 * MS),
        (_, Level::Numa) => (8 * MS, 32 * MS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_two_node_machine_with_threads_has_three_levels() {
        let d = domains(&Machine::grid(2, 2, 2).unwrap());
        let levels: Vec<Level> = d.iter().map(|d| d.level).collect();
        assert_eq!(levels, [Level::Smt, Level::Cache, Level::Numa]);
        let groups = |d: &Domain, c: Cpu| d.span(c).groups.iter().map(<[Cpu]>::to_vec).collect();
        let (cache, numa): (Vec<_>, Vec<_>) = (groups(&d[1], 5), groups(&d[2], 0));
        assert_eq!(cache, [vec![4, 5], vec![6, 7]]);
        assert_eq!(numa, [vec![0, 1, 2, 3], vec![4, 5, 6, 7]]);
        assert_eq!(d[1].group(6), [6, 7]);
    }

    #[test]
    fn one_cpu_has_nothing_to_balance() {
        assert!(domains(&Machine::flat(1).unwrap()).is_empty());
    }
}
