//! The simulated machine: CPUs, what they share, and what moving costs.
use super::error::{Error, Result};

/// Logical CPU number.
pub type Cpu = u16;

/// A set of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CpuSet {
    words: Vec<u64>,
}

impl CpuSet {
    pub fn empty(ncpu: usize) -> Self {
        Self {
            words: vec![0; ncpu.div_ceil(64)],
        }
    }

    pub fn all(ncpu: usize) -> Self {
        let mut set = Self::empty(ncpu);
        (0..ncpu).for_each(|c| set.insert(c as Cpu));
        set
    }

    pub fn insert(&mut self, c: Cpu) {
        self.words[c as usize / 64] |= 1 << (c % 64);
    }

    pub fn remove(&mut self, c: Cpu) {
        self.words[c as usize / 64] &= !(1 << (c % 64));
    }

    /// Has `c` in it or not.
    pub fn set(&mut self, c: Cpu, there: bool) {
        if there {
            self.insert(c);
        } else {
            self.remove(c);
        }
    }

    pub fn contains(&self, c: Cpu) -> bool {
        self.words[c as usize / 64] >> (c % 64) & 1 == 1
    }

    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// The members in rising order.
    pub fn iter(&self) -> impl Iterator<Item = Cpu> + '_ {
        self.words.iter().enumerate().flat_map(|(i, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                if left == 0 {
                    return None;
                }
                let bit = left.trailing_zeros();
                left &= left - 1;
                Some((i * 64) as Cpu + bit as Cpu)
            })
        })
    }

    /// What is in both sets.
    pub fn common(&self, other: &CpuSet) -> CpuSet {
        let both = self.words.iter().zip(&other.words).map(|(a, b)| a & b);
        Self {
            words: both.collect(),
        }
    }

    /// The lowest CPU in both sets.
    pub fn first_common(&self, other: &CpuSet) -> Option<Cpu> {
        self.words
            .iter()
            .zip(&other.words)
            .enumerate()
            .find_map(|(i, (a, b))| {
                let both = a & b;
                (both != 0).then(|| (i * 64) as Cpu + both.trailing_zeros() as Cpu)
            })
    }
}

/// How far two CPUs are apart, nearest first; the order is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    Same,
    Smt,
    Llc,
    Package,
    Numa,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuInfo {
    pub core: u16,
    pub llc: u16,
    pub package: u16,
    pub node: u16,
    /// 1024 is a full-speed CPU.
    pub capacity: u16,
}

/// What the engine charges beside the program's own time; all 0 by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// Added to the incoming thread's time at each switch between two threads
    /// or from idle, in ns.
    pub switch_ns: i64,
    /// Added when a thread runs on another CPU than the last time, by distance
    /// (smt, llc, package, numa), in ns: the refill of what it had in cache.
    pub migration_ns: [i64; 4],
    /// Speed of a hardware thread while a sibling is busy, in thousandths.
    pub smt_speed_permille: i64,
    /// Delay before another CPU hears a request to reschedule, in ns.
    pub ipi_ns: i64,
    /// Time from a request to choose until an idle CPU does, in ns.
    pub idle_exit_ns: i64,
    /// Time from a request to choose until a busy CPU gives up its thread, in ns.
    pub preempt_ns: i64,
    /// Time from a wakeup until its thread is queued, of those two, in ns.
    pub enqueue_ns: i64,
    /// Time each clock tick steals from the running thread, in ns.
    pub tick_ns: i64,
    /// When a clock tick falls, in ns after the beginning.
    pub tick_phase_ns: i64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            switch_ns: 0,
            migration_ns: [0; 4],
            smt_speed_permille: 1000,
            ipi_ns: 0,
            idle_exit_ns: 0,
            preempt_ns: 0,
            enqueue_ns: 0,
            tick_ns: 0,
            tick_phase_ns: 0,
        }
    }
}

impl Costs {
    const LONGEST_NS: i64 = 1_000_000_000;

    fn check(&self) -> Result<()> {
        let times = [
            ("switch", self.switch_ns),
            ("migration_smt", self.migration_ns[0]),
            ("migration_llc", self.migration_ns[1]),
            ("migration_package", self.migration_ns[2]),
            ("migration_numa", self.migration_ns[3]),
            ("ipi", self.ipi_ns),
            ("idle_exit", self.idle_exit_ns),
            ("preempt", self.preempt_ns),
            ("enqueue", self.enqueue_ns),
            ("tick", self.tick_ns),
            ("tick_phase", self.tick_phase_ns),
        ];
        let bad = |(_, ns): &&(&str, i64)| !(0..=Self::LONGEST_NS).contains(ns);
        if let Some((name, ns)) = times.iter().find(bad) {
            return Err(Error::usage(
                format!("a cost {name} of {ns} ns"),
                "a time from 0 to 1 s",
                "leave out a cost to set it to 0",
            ));
        }
        if !(1..=1000).contains(&self.smt_speed_permille) {
            return Err(Error::usage(
                format!("smt_speed = {}", self.smt_speed_permille as f64 / 1000.0),
                "a factor from 0.001 to 1",
                "leave it out for siblings that do not disturb each other",
            ));
        }
        Ok(())
    }
}

/// The most CPUs a machine may have (the trace model's `cpu` is 16 bits; real
/// machines stay below this).
pub const MAX_CPUS: usize = 4096;

/// A time in which a CPU is offline: from `since` on, until `until` or for good, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    pub cpu: Cpu,
    pub since: i64,
    pub until: Option<i64>,
}

/// A CPU goes offline or comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CpuChange {
    pub at: i64,
    pub cpu: Cpu,
    pub online: bool,
}

/// The sharing of CPUs is given for the online ones.
#[derive(Debug, Clone)]
pub struct Machine {
    cpus: Vec<CpuInfo>,
    online: CpuSet,
    outages: Vec<Outage>,
    siblings: Vec<Vec<Cpu>>,
    llcs: Vec<Vec<Cpu>>,
    packages: Vec<Vec<Cpu>>,
    nodes: Vec<Vec<Cpu>>,
    pub costs: Costs,
}

fn groups(cpus: &[CpuInfo], online: &CpuSet, key: impl Fn(&CpuInfo) -> u16) -> Vec<Vec<Cpu>> {
    let n = cpus.iter().map(&key).max().map_or(0, |m| m as usize + 1);
    let mut out = vec![Vec::new(); n];
    for c in online.iter() {
        out[key(&cpus[c as usize]) as usize].push(c);
    }
    out
}

impl Machine {
    pub fn new(cpus: Vec<CpuInfo>, costs: Costs) -> Result<Self> {
        if cpus.is_empty() || cpus.len() > MAX_CPUS {
            return Err(Error::usage(
                format!("a machine of {} CPUs", cpus.len()),
                format!("1 to {MAX_CPUS} CPUs"),
                "give the machine's shape, as in machine=4 or machine=\"2x8x2\"",
            ));
        }
        if let Some((c, info)) = cpus
            .iter()
            .enumerate()
            .find(|(_, i)| i.capacity == 0 || i.capacity > 1024)
        {
            return Err(Error::usage(
                format!("CPU {c} has capacity {}", info.capacity),
                "a capacity in 1..=1024, where 1024 is a full-speed CPU",
                "leave capacity out for a CPU of full speed",
            ));
        }
        costs.check()?;
        let mut machine = Self {
            online: CpuSet::all(cpus.len()),
            cpus,
            costs,
            ..Self::hollow()
        };
        machine.group();
        Ok(machine)
    }

    fn group(&mut self) {
        let by = |key: fn(&CpuInfo) -> u16| groups(&self.cpus, &self.online, key);
        let (siblings, llcs) = (by(|i| i.core), by(|i| i.llc));
        let (packages, nodes) = (by(|i| i.package), by(|i| i.node));
        (self.siblings, self.llcs) = (siblings, llcs);
        (self.packages, self.nodes) = (packages, nodes);
    }

    /// The same machine, some of whose CPUs are offline at times.
    pub fn with_outages(mut self, mut outages: Vec<Outage>) -> Result<Self> {
        outages.sort_by_key(|o| (o.cpu, o.since));
        let bad = |what: String| {
            Error::usage(
                what,
                "times in which a CPU of the machine is offline, one after the other",
                "and never all CPUs at once",
            )
        };
        for o in &outages {
            let cpu = o.cpu;
            if usize::from(cpu) >= self.cpus.len() || o.until.is_some_and(|until| until <= o.since)
            {
                let (since, until) = (o.since, o.until);
                return Err(bad(format!(
                    "CPU {cpu} offline from {since} to {until:?} ns"
                )));
            }
        }
        for pair in outages.windows(2) {
            let [a, b] = [pair[0], pair[1]];
            if a.cpu == b.cpu && a.until.is_none_or(|until| until > b.since) {
                let cpu = a.cpu;
                return Err(bad(format!("CPU {cpu} offline twice at {} ns", b.since)));
            }
        }
        self.outages = outages;
        let mut left = CpuSet::all(self.cpus.len());
        for change in self.changes() {
            left.set(change.cpu, change.online);
            if left.is_empty() {
                return Err(bad(format!("all CPUs offline at {} ns", change.at)));
            }
        }
        Ok(self)
    }

    /// When its CPUs are offline.
    pub fn outages(&self) -> &[Outage] {
        &self.outages
    }

    /// What its outages change, in the order of time; at one instant, CPUs coming back are first.
    pub(super) fn changes(&self) -> Vec<CpuChange> {
        let change = |cpu, at, online| CpuChange { at, cpu, online };
        let goes = (self.outages.iter()).map(|o| change(o.cpu, o.since, false));
        let comes = |o: &Outage| Some(change(o.cpu, o.until?, true));
        let mut all: Vec<CpuChange> = goes.chain(self.outages.iter().filter_map(comes)).collect();
        all.sort_by_key(|c| (c.at, !c.online, c.cpu));
        all
    }

    /// Whether `c` is not offline at the beginning.
    pub fn begins_online(&self, c: Cpu) -> bool {
        let away = |o: &Outage| o.cpu == c && o.since <= 0;
        !self.outages.iter().any(away)
    }

    /// The CPUs that are online now.
    pub fn online(&self) -> &CpuSet {
        &self.online
    }

    pub(super) fn set_online(&mut self, c: Cpu, online: bool) {
        self.online.set(c, online);
        self.group();
    }

    /// No CPUs at all; allocates nothing.
    pub(super) fn hollow() -> Self {
        Self {
            cpus: Vec::new(),
            online: CpuSet::empty(0),
            outages: Vec::new(),
            siblings: Vec::new(),
            llcs: Vec::new(),
            packages: Vec::new(),
            nodes: Vec::new(),
            costs: Costs::default(),
        }
    }

    /// `n` equal CPUs, one thread a core, sharing one cache.
    pub fn flat(n: usize) -> Result<Self> {
        Self::grid(1, n, 1)
    }

    /// `packages` x `cores` x `threads`: each package is one LLC and one node.
    pub fn grid(packages: usize, cores: usize, threads: usize) -> Result<Self> {
        let total = packages.saturating_mul(cores).saturating_mul(threads);
        if total > MAX_CPUS {
            return Err(Error::usage(
                format!("a machine of {total} CPUs"),
                format!("1 to {MAX_CPUS} CPUs"),
                "give a smaller machine",
            ));
        }
        let mut cpus = Vec::with_capacity(total);
        for package in 0..packages {
            for core in 0..cores {
                for _ in 0..threads {
                    cpus.push(CpuInfo {
                        core: (package * cores + core) as u16,
                        llc: package as u16,
                        package: package as u16,
                        node: package as u16,
                        capacity: 1024,
                    });
                }
            }
        }
        Self::new(cpus, Costs::default())
    }

    pub fn ncpu(&self) -> usize {
        self.cpus.len()
    }

    /// All CPUs in rising order.
    pub fn cpus(&self) -> impl Iterator<Item = Cpu> + use<> {
        0..self.cpus.len() as Cpu
    }

    pub fn info(&self, c: Cpu) -> &CpuInfo {
        &self.cpus[c as usize]
    }

    pub fn distance(&self, a: Cpu, b: Cpu) -> Distance {
        if a == b {
            return Distance::Same;
        }
        let (x, y) = (self.info(a), self.info(b));
        if x.core == y.core {
            Distance::Smt
        } else if x.llc == y.llc {
            Distance::Llc
        } else if x.node == y.node {
            Distance::Package
        } else {
            Distance::Numa
        }
    }

    /// The hardware threads of `c`'s core, `c` among them if it is online, rising.
    pub fn smt(&self, c: Cpu) -> &[Cpu] {
        &self.siblings[self.info(c).core as usize]
    }

    /// The CPUs that share the last-level cache with `c`, `c` among them.
    pub fn llc(&self, c: Cpu) -> &[Cpu] {
        &self.llcs[self.info(c).llc as usize]
    }

    pub fn package(&self, c: Cpu) -> &[Cpu] {
        &self.packages[self.info(c).package as usize]
    }

    pub fn node(&self, c: Cpu) -> &[Cpu] {
        &self.nodes[self.info(c).node as usize]
    }

    /// LLC groups, each a rising list of CPUs; in a numbering without holes, empty ones occur only
    /// where all CPUs of a group are offline.
    pub fn llc_groups(&self) -> &[Vec<Cpu>] {
        &self.llcs
    }

    pub fn node_groups(&self) -> &[Vec<Cpu>] {
        &self.nodes
    }

    pub fn core_groups(&self) -> &[Vec<Cpu>] {
        &self.siblings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_knows_its_distances() {
        let m = Machine::grid(2, 2, 2).unwrap();
        assert_eq!(m.ncpu(), 8);
        assert_eq!(m.distance(0, 0), Distance::Same);
        assert_eq!(m.distance(0, 1), Distance::Smt);
        assert_eq!(m.distance(0, 2), Distance::Llc);
        assert_eq!(m.distance(0, 4), Distance::Numa);
        assert_eq!(m.smt(3), &[2, 3]);
        assert_eq!(m.llc(5), &[4, 5, 6, 7]);
    }

    #[test]
    fn sets_list_their_members_in_order() {
        let mut s = CpuSet::empty(130);
        for c in [129, 0, 64] {
            s.insert(c);
        }
        assert_eq!(s.iter().collect::<Vec<_>>(), [0, 64, 129]);
        s.remove(64);
        assert!(!s.contains(64));
        assert_eq!(s.len(), 2);
    }

    #[test]
    fn no_cpus_is_an_error() {
        assert!(Machine::flat(0).unwrap_err().to_string().contains("0 CPUs"));
    }
}
