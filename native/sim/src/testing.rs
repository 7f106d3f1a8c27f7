//! Builders for tests: small workloads, and a sink that keeps the run as text.
use super::engine::{Counts, Engine, Limits, Progress};
use super::error::Result;
use super::machine::{Cpu, CpuSet, Machine, Outage};
use super::output::{LeftAs, Record, Sink, Switch, Wakeup};
use super::policy::registry;
use super::workload::{Channel, Class, NO_CHANNEL, Step, ThreadSpec, Tid, Workload};
use super::world::{CpuState, SleepKind, State, Thread, World};
use std::sync::{Arc, Mutex};

pub const MS: i64 = 1_000_000;

/// A workload under construction; thread numbers are in order of `add`.
#[derive(Default)]
pub struct Build {
    pub load: Workload,
}

impl Build {
    pub fn new(ncpu: usize) -> Self {
        let mut b = Self::default();
        b.load.masks.push(CpuSet::all(ncpu));
        b
    }

    /// A fair thread of nice 0 that starts at 0.
    pub fn add(&mut self, name: &str, steps: &[Step]) -> &mut ThreadSpec {
        self.load.inboxes.push(NO_CHANNEL);
        let first = self.load.steps.len() as u32;
        self.load.steps.extend_from_slice(steps);
        let thread = ThreadSpec::fair(name, first, steps.len() as u32);
        self.load.threads.push(thread);
        self.load.threads.last_mut().unwrap()
    }

    pub fn mask(&mut self, ncpu: usize, cpus: &[Cpu]) -> u32 {
        let mut set = CpuSet::empty(ncpu);
        cpus.iter().for_each(|c| set.insert(*c));
        self.load.masks.push(set);
        self.load.masks.len() as u32 - 1
    }

    /// The channel on which `to` hears everyone.
    pub fn inbox(&mut self, to: Tid) -> u32 {
        self.load.channels.push(Channel { to, from: None });
        let id = self.load.channels.len() as u32 - 1;
        self.load.inboxes[to as usize] = id;
        id
    }
}

/// What each CPU ran: `(cpu, name, from_ms, to_ms)`, in order of beginning.
#[derive(Debug, Default)]
pub struct Timeline {
    open: Vec<Option<(Tid, i64)>>,
    pub runs: Vec<(Cpu, Tid, i64, i64)>,
    pub rows: Vec<String>,
}

#[derive(Clone, Default)]
pub struct Keep(pub Arc<Mutex<Timeline>>);

impl Sink for Keep {
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
    fn switch(&mut self, s: Switch) {
        let mut k = self.0.lock().unwrap();
        let c = s.cpu as usize;
        if k.open.len() <= c {
            k.open.resize(c + 1, None);
        }
        if let Some((t, from)) = k.open[c].take() {
            assert_eq!(Some(t), s.prev, "the switch chain of CPU {c} breaks");
            k.runs.push((s.cpu, t, from, s.ts));
        } else {
            assert_eq!(s.prev, None);
            assert_eq!(s.left_as, LeftAs::Idle);
        }
        k.open[c] = s.next.map(|n| (n, s.ts));
        k.rows.push(format!("{s:?}"));
    }
    fn wakeup(&mut self, w: Wakeup) {
        self.0.lock().unwrap().rows.push(format!("{w:?}"));
    }
    fn migrate(&mut self, ts: i64, _: Cpu, t: Tid, from: Cpu, to: Cpu) {
        self.0
            .lock()
            .unwrap()
            .rows
            .push(format!("{ts} migrate {t} {from}->{to}"));
    }
    fn start(&mut self, _: i64, _: Tid, _: Option<Tid>) {}
    fn exit(&mut self, _: i64, _: Tid) {}
    fn priority(&mut self, _: i64, _: Tid, _: i16) {}
    fn record(&mut self, r: Record) {
        self.0.lock().unwrap().rows.push(format!("{r:?}"));
    }
}

pub struct Ran {
    pub timeline: Timeline,
    pub counts: Counts,
    pub end: i64,
    pub progress: Progress,
    names: Vec<String>,
}

impl Ran {
    /// The runs as text, in time order: `cpu0 a 0..10` (ms, fractions cut off
    /// only if whole).
    pub fn drawn(&self) -> Vec<String> {
        let ms = |ns: i64| {
            let x = ns as f64 / MS as f64;
            format!("{x}")
        };
        let mut runs = self.timeline.runs.clone();
        runs.sort_by_key(|r| (r.2, r.0));
        runs.iter()
            .map(|(c, t, a, b)| {
                format!("cpu{c} {} {}..{}", self.names[*t as usize], ms(*a), ms(*b))
            })
            .collect()
    }
}

/// Run to the end (or `until`) under `policy` with `set`.
pub fn simulate(
    load: &Workload,
    machine: Machine,
    policy: &str,
    set: &[(&str, &str)],
    until: Option<i64>,
) -> Result<Ran> {
    let given: Vec<(String, String)> = set
        .iter()
        .map(|(a, b)| ((*a).to_string(), (*b).to_string()))
        .collect();
    let made = registry::make(policy, &given, &machine, load.threads.len())?;
    let keep = Keep::default();
    let limits = Limits {
        until,
        max_events: 50_000_000,
    };
    let sink = Box::new(keep.clone());
    let mut engine = Engine::new(load, machine, made.policy, sink, 1, limits, true)?;
    let progress = loop {
        match engine.run(1_000_000)? {
            Progress::More => {}
            other => break other,
        }
    };
    let (counts, end) = (engine.counts(), engine.world.now());
    drop(engine);
    let timeline = std::mem::take(&mut *keep.0.lock().unwrap());
    Ok(Ran {
        timeline,
        counts,
        end,
        progress,
        names: load.threads.iter().map(|t| t.name.clone()).collect(),
    })
}

#[test]
fn rr_takes_turns() {
    // cpu0  a 0-10  b 10-20  a 20-25  b 25-30
    let mut b = Build::new(1);
    b.add("a", &[Step::Run(15 * MS)]);
    b.add("b", &[Step::Run(15 * MS)]);
    let ran = simulate(&b.load, Machine::flat(1).unwrap(), "rr", &[], None).unwrap();
    assert_eq!(
        ran.drawn(),
        [
            "cpu0 a 0..10",
            "cpu0 b 10..20",
            "cpu0 a 20..25",
            "cpu0 b 25..30"
        ]
    );
    assert_eq!(ran.end, 30 * MS);
}

#[test]
fn fifo_runs_to_block_and_a_signal_wakes() {
    // cpu0  a 0-5  b 5-8  c 8-12: the signal is there before c asks for it
    let mut b = Build::new(1);
    b.add("a", &[Step::Run(5 * MS)]);
    b.add(
        "b",
        &[
            Step::Run(3 * MS),
            Step::Signal {
                to: 2,
                pair: NO_CHANNEL,
                cost: 0,
                sync: false,
                meet: false,
            },
        ],
    );
    b.add(
        "c",
        &[
            Step::WaitFor {
                channel: 0,
                count: 1,
                cost: 0,
                disk: false,
            },
            Step::Run(4 * MS),
        ],
    );
    b.inbox(2);
    let ran = simulate(&b.load, Machine::flat(1).unwrap(), "fifo", &[], None).unwrap();
    assert_eq!(ran.drawn(), ["cpu0 a 0..5", "cpu0 b 5..8", "cpu0 c 8..12"]);
}

#[test]
fn a_signal_never_sent_names_the_thread() {
    let mut b = Build::new(1);
    b.add(
        "lonely",
        &[Step::WaitFor {
            channel: 0,
            count: 2,
            cost: 0,
            disk: false,
        }],
    );
    b.inbox(0);
    let err = simulate(&b.load, Machine::flat(1).unwrap(), "fifo", &[], None)
        .err()
        .unwrap();
    assert!(err.to_string().contains("lonely"), "{err}");
}

#[test]
fn a_loop_of_no_length_is_refused() {
    let mut b = Build::new(1);
    b.add(
        "spin",
        &[
            Step::Yield,
            Step::Repeat {
                to: 0,
                times: None,
                counter: 0,
            },
        ],
    );
    let err = simulate(&b.load, Machine::flat(1).unwrap(), "rr", &[], Some(MS))
        .err()
        .unwrap();
    assert!(err.to_string().contains("time stopped"), "{err}");
}

/// A world at 0 with one thread, unborn, that may run anywhere, in which all CPUs but `busy` idle.
pub fn world_with_idle(machine: Machine, busy: &[Cpu]) -> World {
    let mut w = World::hollow();
    let n = machine.ncpu();
    w.cpus = vec![CpuState::idle(0); n];
    w.threads = vec![Thread {
        state: State::Unborn,
        class: Class::Fair,
        nice: 0,
        rt_prio: 0,
        cpu: 0,
        last_cpu: None,
        last_ran: 0,
        since: 0,
        slept: 0,
        sleep_kind: SleepKind::Interruptible,
        mask: 0,
        work: 0,
        owed: 0,
        first: 0,
        end: 0,
        yielding: false,
    }];
    (w.masks, w.whole) = (vec![CpuSet::all(n)], vec![true]);
    w.idle = CpuSet::all(n);
    busy.iter().for_each(|c| w.idle.remove(*c));
    w.n_idle = n - busy.len();
    w.n_online = n;
    w.machine = machine;
    w
}

/// Thread `a` on CPU 1, beside `b` on CPU 0, of a machine of two whose CPU 1 is offline from 4 to
/// 10 ms.
fn beside_an_outage(policy: &str, pinned: bool) -> Vec<String> {
    let mut b = Build::new(2);
    let mask = if pinned { b.mask(2, &[1]) } else { 0 };
    b.add("b", &[Step::Run(12 * MS)]).cpu = Some(0);
    let a = b.add("a", &[Step::Run(8 * MS)]);
    (a.cpu, a.mask) = (Some(1), mask);
    let outage = Outage {
        cpu: 1,
        since: 4 * MS,
        until: Some(10 * MS),
    };
    let machine = Machine::flat(2).unwrap().with_outages(vec![outage]);
    let ran = simulate(&b.load, machine.unwrap(), policy, &[], None).unwrap();
    ran.drawn()
}

#[test]
fn a_thread_leaves_a_cpu_that_goes_offline_and_one_comes_when_it_is_back() {
    let unpinned = ["cpu0 b 0..12", "cpu1 a 0..4", "cpu1 a 10..14"];
    assert_eq!(beside_an_outage("fifo", false), unpinned);
}

#[test]
fn a_thread_whose_only_cpu_is_offline_runs_elsewhere_for_as_long() {
    // Its 4 ms that are left are not over at 10 ms: it goes back.
    let drawn = beside_an_outage("rr", true);
    assert_eq!(
        drawn.first().map(String::as_str),
        Some("cpu0 b 0..10"),
        "{drawn:?}"
    );
}

#[test]
fn outages_of_all_cpus_at_once_are_refused() {
    let out = |cpu, since, until| Outage { cpu, since, until };
    let of = |outages| Machine::flat(2).unwrap().with_outages(outages);
    assert!(of(vec![out(0, 0, Some(5)), out(1, 5, None)]).is_ok());
    for bad in [
        vec![out(0, 0, Some(6)), out(1, 5, None)],
        vec![out(0, 0, None), out(0, 5, Some(6))],
        vec![out(2, 0, None)],
        vec![out(0, 5, Some(5))],
    ] {
        assert!(of(bad.clone()).is_err(), "{bad:?}");
    }
}
