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
//! 2.6.10 did). `Style::Groups` is the newer balancer (5.5 and later), which classes groups as
//! having spare CPUs, being full, or being overloaded (`linux_room`), and so moves threads by their
//! number, by what they use, or by their load (find_busiest_group, calculate_imbalance,
//! detach_tasks; 5.10 to 6.18); there a thread too heavy for the imbalance is moved after enough
//! failures, each of which halves it (5.10), and a failure resets the interval. Where nothing has
//! moved for `nice_tries` + 2 passes of a CPU although threads should, or none of the busiest CPU's
//! waits, its running thread is pushed (need_active_balance, imbalanced_active_balance;
//! active_load_balance_cpu_stop, whose own few us are not there): since 5.10 only where it is the
//! number of threads that is out of balance, before always. Left out: pushing because of capacity
//! or SCHED_DEADLINE and real-time threads, power saving, asymmetric capacity, cgroups, NUMA
//! balancing.
use super::super::machine::{Cpu, Machine};
use super::super::workload::Tid;
use super::super::world::{RescheduleReason, World};
use super::Tunable;
use super::linux_newidle::{Gate, Newidle};
use super::linux_queues::{Amount, Queues, Want};
use super::linux_room::{Crowd, Room};
use super::linux_util::Reach;
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

    /// All of them with their numbers, from the `first` on: the kernel's lists are rings that begin
    /// with the group of the CPU that looks (build_sched_groups), and of equal ones the first wins.
    pub(super) fn around(&self, first: usize) -> impl Iterator<Item = (usize, &[Cpu])> {
        let order = (first..self.len()).chain(0..first);
        order.map(|i| (i, self.get(i)))
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

/// The domains of the CPUs of `m` that are online, smallest spans first, without those that add
/// nothing. One that is offline is alone.
pub(super) fn domains(m: &Machine) -> Vec<Domain> {
    let whole: Vec<Cpu> = m.online().iter().collect();
    let of = |level: Level, c: Cpu| -> Vec<Cpu> {
        match level {
            _ if !m.online().contains(c) => vec![c],
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
    /// A busy CPU with room pulls by the number of threads, too (up to 6.5; sibling_imbalance).
    pub busy_spreads: bool,
    /// Balancing a cache says how far wakes look for an idle CPU there.
    pub looks_by_use: bool,
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
        busy_spreads: true,
        looks_by_use: false,
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
const SECOND: i64 = 1_000 * MS;

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
    pub(super) reach: Option<Reach>,
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
    size: u32,
}

impl Stats {
    fn average(&self) -> i64 {
        self.load / i64::from(self.size.max(1))
    }

    fn overloaded(&self) -> bool {
        self.nr > self.size
    }
}

impl Balancer {
    pub(super) fn new(m: &Machine, knobs: Knobs, hz: i64) -> Self {
        let mut balancer = Self {
            gate: Gate::new(knobs.newidle, 0, m.ncpu()),
            domains: Vec::new(),
            knobs,
            timing: Vec::new(),
            next_nohz: 0,
            pushes: vec![None; m.ncpu()],
            next: vec![0; m.ncpu()],
            jiffy: 1_000_000_000 / hz.max(1),
            reach: knobs
                .looks_by_use
                .then(|| Reach::new(m, knobs.imbalance_pct)),
            passes: 0,
            moved: 0,
        };
        balancer.build(m, 0);
        balancer
    }

    fn build(&mut self, m: &Machine, now: i64) {
        let (within_node, style) = (self.knobs.within_node, self.knobs.style);
        self.domains = domains(m);
        self.domains
            .retain(|d| !within_node || d.level != Level::Numa);
        let fresh = |d: &Domain, c: Cpu| Timing {
            last: now,
            interval: bounds(d, c, style).0,
            failed: 0,
        };
        let of_all = |d: &Domain| m.cpus().map(|c| fresh(d, c)).collect();
        self.timing = self.domains.iter().map(of_all).collect();
        self.gate.forget(self.domains.len());
    }

    /// A CPU went offline or came back: all domains are rebuilt (partition_sched_domains,
    /// build_sched_domains and sd_init of kernel/sched/topology.c).
    pub(super) fn online_changed(&mut self, w: &World) {
        self.build(&w.machine, w.now());
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
            for i in self.idle_in_turn(w) {
                let due = !self.knobs.keeps_busy_interval || w.now() >= self.next[i as usize];
                if w.is_idle(i) && due {
                    self.rebalance(w, q, i, Idle::Yes);
                }
            }
        }
    }

    /// The idle CPUs in the order in which they are balanced: since 2.6.38 the first one does it, and
    /// itself last (_nohz_idle_balance).
    fn idle_in_turn(&self, w: &World) -> Vec<Cpu> {
        let mut idle: Vec<Cpu> = w.machine.cpus().filter(|c| w.is_idle(*c)).collect();
        if self.knobs.style == Style::Groups && !idle.is_empty() {
            idle.rotate_left(1);
        }
        idle
    }

    fn rebalance(&mut self, w: &mut World, q: &mut impl Queues, c: Cpu, idle: Idle) {
        let mut next = i64::MAX;
        for d in 0..self.domains.len() {
            let timing = self.timing[d][c as usize];
            let mut interval = self.interval(timing.interval, idle, w.n_online());
            if w.now() - timing.last >= interval {
                self.balance(w, q, c, d, idle);
                self.timing[d][c as usize].last = w.now();
                if self.knobs.style == Style::Groups {
                    let then = self.timing[d][c as usize].interval;
                    interval = self.interval(then, idle, w.n_online());
                }
            }
            next = next.min(self.timing[d][c as usize].last + interval);
        }
        self.next[c as usize] = next;
    }

    /// How long until a CPU balances again (get_sd_balance_interval).
    fn interval(&self, ns: i64, idle: Idle, ncpu: usize) -> i64 {
        let busy = idle == Idle::No;
        let ns = if busy {
            ns * self.knobs.busy_factor
        } else {
            ns
        };
        match self.knobs.style {
            Style::Load => ns.max(self.jiffy),
            Style::Groups => {
                // In jiffies; those of a busy CPU are no multiples of each other.
                let jiffies = (ns + self.jiffy - 1) / self.jiffy - i64::from(busy);
                let most = (ncpu as i64 * SECOND / self.jiffy / 10).max(1);
                // Ticks are a jiffy apart but for what is rounded away.
                jiffies.clamp(1, most) * self.jiffy - self.jiffy / 2
            }
        }
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
        let designated = self.is_designated(w, c, d, idle);
        if designated && idle != Idle::Newly {
            self.look_at_use(w, q, c, d);
        }
        let found = match self.knobs.style {
            _ if !designated => match self.knobs.style {
                Style::Load => return 0,
                Style::Groups => None,
            },
            Style::Load => self.by_load(w, q, c, d, idle),
            Style::Groups => self.by_groups(w, q, c, d, idle),
        };
        let Some((from, amount, most_threads)) = found else {
            let timing = &mut self.timing[d][c as usize];
            timing.failed = 0;
            if idle != Idle::Newly {
                timing.interval = (timing.interval * 2).min(most);
            }
            return 0;
        };
        let failed = self.timing[d][c as usize].failed;
        let want = Want {
            amount,
            most: most_threads.min(self.knobs.most),
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
        let by_number = self.knobs.style == Style::Load || matches!(amount, Amount::Threads);
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

    /// How far wakes look in the cache of `c` from now on, if domain `d` is that.
    fn look_at_use(&mut self, w: &World, q: &impl Queues, c: Cpu, d: usize) {
        let span = &self.domains[d].span(c).cpus;
        if span.len() == w.machine.llc(c).len()
            && let Some(reach) = &mut self.reach
        {
            reach.settle(w, c, |c| q.used(w, c).ran);
        }
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
        }
        s
    }

    fn busiest_queue(&self, w: &World, q: &impl Queues, group: &[Cpu]) -> Option<Cpu> {
        let rank = |c: &Cpu| (q.load(w, *c), q.nr(*c));
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
    ) -> Option<(Cpu, Amount, u32)> {
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
        for (i, group) in span.groups.around(ours) {
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
            let from = self.busiest_queue(w, q, group)?;
            return Some((from, Amount::Load(max.load / i64::from(max.nr.max(1))), 1));
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
        let from = self.busiest_queue(w, q, group)?;
        let most = if idle == Idle::Newly { 1 } else { u32::MAX };
        Some((from, Amount::Load(imbalance), most))
    }

    fn by_groups(
        &self,
        w: &World,
        q: &impl Queues,
        c: Cpu,
        d: usize,
        idle: Idle,
    ) -> Option<(Cpu, Amount, u32)> {
        let domain = &self.domains[d];
        let (span, pct) = (domain.span(c), domain.imbalance_pct());
        let mut this = Crowd::default();
        let mut busiest: Option<(Crowd, Room, &[Cpu])> = None;
        let (mut total, mut cpus) = (0, 0);
        let ours = domain.group_of[c as usize];
        for (i, group) in span.groups.around(ours) {
            let s = Crowd::of(w, q, group);
            total += s.load;
            cpus += i64::from(s.cpus);
            if i == ours {
                this = s;
                continue;
            }
            let room = s.room(pct);
            let busier = |(b, its, _): (Crowd, Room, _)| match room {
                _ if room != its => room > its,
                Room::Overloaded => s.average() > b.average(),
                Room::Full => false,
                Room::Spare => s.idle < b.idle || (s.idle == b.idle && s.nr > b.nr),
            };
            if s.nr > 0 && busiest.is_none_or(busier) {
                busiest = Some((s, room, group));
            }
        }
        let (max, its, group) = busiest?;
        let own = this.room(pct);
        if own > its {
            return None;
        }
        let (here, there, average) = (this.average(), max.average(), total / cpus.max(1));
        if own == Room::Overloaded
            && (here >= there || here >= average || 100 * there <= pct * here)
        {
            return None;
        }
        // Spread over cores that share less before doubling up on one.
        let prefers_siblings = domain.level == Level::Cache && max.cpus > 1;
        let more = if idle == Idle::No && !self.knobs.busy_spreads {
            0
        } else {
            max.nr.saturating_sub(this.nr)
        };
        let spread = prefers_siblings && own == Room::Spare && more > 1;
        let balanced =
            idle == Idle::No || (max.cpus > 1 && this.idle <= max.idle + 1) || max.nr <= 1;
        if !spread && its != Room::Overloaded && balanced {
            return None;
        }
        let within_cache = matches!(domain.level, Level::Smt | Level::Cache);
        let left = f64::from(this.cpus) - this.used.ran;
        let (amount, most) = if own == Room::Spare && its == Room::Overloaded && !within_cache {
            if left > 0.0 {
                (Amount::Used(left), u32::MAX)
            } else if idle != Idle::No {
                (Amount::Threads, 1)
            } else {
                return None;
            }
        } else if own == Room::Spare {
            let by_number = max.cpus == 1 || prefers_siblings;
            let apart = if by_number {
                more
            } else {
                this.idle.saturating_sub(max.idle)
            };
            (Amount::Threads, apart / 2)
        } else if its != Room::Overloaded || here >= there || here >= average {
            return None;
        } else {
            let much = ((there - average) * i64::from(max.cpus))
                .min((average - here) * i64::from(this.cpus));
            (Amount::Load(much), if much > 0 { u32::MAX } else { 0 })
        };
        if most == 0 {
            return None;
        }
        let from = busiest_of(w, q, group, amount)?;
        let most = if idle == Idle::Newly { 1 } else { most };
        Some((from, amount, most))
    }
}

/// The CPU of a group that has most of what is to be moved (find_busiest_queue).
fn busiest_of(w: &World, q: &impl Queues, group: &[Cpu], amount: Amount) -> Option<Cpu> {
    let mut best: Option<(f64, Cpu)> = None;
    for c in group {
        let nr = q.nr(*c);
        let much = match amount {
            Amount::Load(most) if nr > 1 || q.load(w, *c) <= most => q.load(w, *c) as f64,
            Amount::Used(_) if nr > 1 => q.used(w, *c).ran,
            Amount::Threads if nr > 0 => f64::from(nr),
            _ => continue,
        };
        if nr > 0 && best.is_none_or(|(b, _)| much > b) {
            best = Some((much, *c));
        }
    }
    best.map(|(_, c)| c)
}

/// Where a thread goes whose CPU is offline: to the first of its node that it may use, else the first
/// of all (select_fallback_rq of kernel/sched/core.c; move_task_off_dead_cpu of 2.6).
pub(super) fn fallback_cpu(w: &World, t: Tid) -> Cpu {
    let near = w.machine.node(w.thread(t).cpu).iter().copied();
    let mut all = near.chain(w.machine.online().iter());
    all.find(|c| w.allowed(t, *c)).unwrap_or(0)
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
    use super::super::super::testing::world_with_idle;
    use super::super::linux_room::Said;
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
    fn groups_are_looked_at_from_the_cpus_own_on() {
        let d = domains(&Machine::flat(4).unwrap());
        let order: Vec<usize> = d[0].span(2).groups.around(2).map(|(i, _)| i).collect();
        assert_eq!(order, [2, 3, 0, 1]);
    }

    #[test]
    fn one_cpu_has_nothing_to_balance() {
        assert!(domains(&Machine::flat(1).unwrap()).is_empty());
    }

    /// What a balancing of CPU 0 would move from CPU 1.
    fn moved(nr: [u32; 2], load: [i64; 2], ran: [f64; 2], idle: Idle, spreads: bool) -> String {
        let machine = Machine::flat(2).unwrap();
        let knobs = Knobs {
            busy_spreads: spreads,
            ..Knobs::BY_GROUPS
        };
        let balancer = Balancer::new(&machine, knobs, 250);
        let busy: Vec<Cpu> = machine.cpus().filter(|c| nr[*c as usize] > 0).collect();
        let said = Said {
            nr: nr.to_vec(),
            load: load.to_vec(),
            ran: ran.to_vec(),
        };
        let w = world_with_idle(machine, &busy);
        let found = balancer.by_groups(&w, &said, 0, 0, idle);
        found.map_or("nothing".into(), |(from, amount, most)| {
            assert_eq!(from, 1);
            format!("{amount:?} {}", i64::from(most.min(9)))
        })
    }

    #[test]
    fn an_idle_cpu_takes_half_of_how_many_more_there_are() {
        let idle = |n| moved([0, n], [0, 2048], [0.0, 1.0], Idle::Yes, false);
        assert_eq!(idle(1), "nothing");
        assert_eq!(idle(2), "Threads 1");
        assert_eq!(idle(5), "Threads 2");
    }

    #[test]
    fn a_full_cpu_takes_load_up_to_the_average() {
        // One hog beside three: the average of 1024 and 3072 is 2048.
        let full = |load| moved([1, 3], load, [1.0, 1.0], Idle::No, false);
        assert_eq!(full([1024, 3072]), "Load(1024) 9");
        // 334 and 1134: 734, of which each is 400 away. It need not be 17 % more.
        assert_eq!(full([334, 1134]), "Load(400) 9");
        assert_eq!(full([1000, 1010]), "Load(5) 9");
        assert_eq!(full([1024, 1024]), "nothing");
    }

    #[test]
    fn of_two_overloaded_cpus_one_must_have_17_per_cent_more() {
        let both = |load| moved([2, 3], load, [1.0, 1.0], Idle::No, false);
        assert_eq!(both([1800, 2100]), "nothing");
        assert_eq!(both([1800, 2200]), "Load(200) 9");
    }

    #[test]
    fn a_busy_cpu_with_room_took_by_number_up_to_6_5() {
        let room = |spreads| moved([1, 3], [500, 3072], [0.5, 1.0], Idle::No, spreads);
        assert_eq!(room(true), "Threads 1");
        assert_eq!(room(false), "nothing");
    }

    #[test]
    fn a_busy_cpu_balances_every_seven_ticks_and_then_every_fifteen() {
        let balancer = Balancer::new(&Machine::flat(2).unwrap(), Knobs::BY_GROUPS, 250);
        let ticks = |ms, idle| (balancer.interval(ms * MS, idle, 2) + 2 * MS) / (4 * MS);
        // 2 ms times 16 are 8 ticks of 4 ms, less one; the longest is twice as long.
        assert_eq!((ticks(2, Idle::No), ticks(4, Idle::No)), (7, 15));
        assert_eq!((ticks(2, Idle::Yes), ticks(4, Idle::Yes)), (1, 1));
        // At most a tenth of a second for each CPU.
        assert_eq!(ticks(64, Idle::No), 50);
    }
}
