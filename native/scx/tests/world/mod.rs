//! Small workloads, and runs of them as text.
#![allow(dead_code)]
use std::sync::{Arc, Mutex};

use schedscope_scx::{Outcome, make};
use schedscope_sim::engine::{Engine, Limits, Progress};
use schedscope_sim::machine::{Cpu, CpuSet, Machine};
use schedscope_sim::output::{Record, Sink, Switch, Wakeup};
use schedscope_sim::policy::{Policy, registry};
use schedscope_sim::rng::Rng;
use schedscope_sim::workload::{Channel, Class, NO_CHANNEL, Step, ThreadSpec, Tid, Workload};

pub const MS: i64 = 1_000_000;

pub fn object(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/objects");
    std::fs::read(format!("{folder}/{name}.bpf.o")).unwrap()
}

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
        let to = self.load.threads.len() as Tid;
        self.load.channels.push(Channel { to, from: None });
        self.load.inboxes.push(to);
        let first = self.load.steps.len() as u32;
        self.load.steps.extend_from_slice(steps);
        let number = Some(100 + i64::from(to));
        self.load.threads.push(ThreadSpec {
            tid: number,
            pid: number,
            ..ThreadSpec::fair(name, first, steps.len() as u32)
        });
        self.load.threads.last_mut().unwrap()
    }

    pub fn mask(&mut self, ncpu: usize, cpus: &[Cpu]) -> u32 {
        let mut set = CpuSet::empty(ncpu);
        cpus.iter().for_each(|c| set.insert(*c));
        self.load.masks.push(set);
        self.load.masks.len() as u32 - 1
    }
}

pub fn run(ms: i64) -> Step {
    Step::Run(ms * MS)
}

pub fn sleep(ms: i64) -> Step {
    Step::Sleep {
        ns: ms * MS,
        disk: false,
    }
}

/// Threads that run, sleep, wake each other, yield, change their nice value and mask.
pub fn random(seed: u64, ncpu: usize, priorities: bool) -> Workload {
    let mut r = Rng::new(seed);
    let mut b = Build::new(ncpu);
    let pinned: Vec<u32> = (0..ncpu as Cpu).map(|c| b.mask(ncpu, &[c])).collect();
    let n = 2 + r.below(7) as Tid;
    for t in 0..n {
        let mut steps = Vec::new();
        for _ in 0..4 + r.below(20) {
            steps.push(match r.below(16) {
                0..=6 => Step::Run(r.between(1, 30_000_000)),
                7..=10 => Step::Sleep {
                    ns: r.between(1, 20_000_000),
                    disk: r.below(4) == 0,
                },
                11 | 12 => Step::Signal {
                    to: r.below(n.into()) as Tid,
                    pair: NO_CHANNEL,
                    cost: 0,
                    sync: r.below(2) == 0,
                    meet: false,
                },
                13 => Step::Yield,
                14 if priorities => Step::SetPriority {
                    of: t,
                    class: Class::Fair,
                    nice: r.between(-20, 19) as i8,
                    rt_prio: 0,
                },
                15 => Step::SetAffinity {
                    of: t,
                    mask: if r.below(2) == 0 {
                        0
                    } else {
                        pinned[r.below(ncpu as u64) as usize]
                    },
                },
                _ => Step::Run(r.between(1, 3_000_000)),
            });
        }
        let start = r.between(0, 10_000_000);
        let nice = r.between(-20, 19) as i8;
        let (nice, realtime) = (nice, r.below(8) == 0);
        let spec = b.add(&format!("t{t}"), &steps);
        spec.start = Some(start);
        spec.nice = nice;
        if realtime {
            spec.class = Class::Fifo;
            spec.rt_prio = 10;
        }
    }
    b.load
}

#[derive(Clone, Default)]
pub struct Keep(pub Arc<Mutex<Vec<String>>>);

impl Keep {
    fn row(&self, row: String) {
        self.0.lock().unwrap().push(row);
    }
}

impl Sink for Keep {
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
    fn switch(&mut self, s: Switch) {
        self.row(format!(
            "{} cpu{} {:?} -> {:?}",
            s.ts, s.cpu, s.prev, s.next
        ));
    }
    fn wakeup(&mut self, w: Wakeup) {
        self.row(format!("{} wakes {} for {:?}", w.ts, w.thread, w.target));
    }
    fn migrate(&mut self, _: i64, _: Cpu, _: Tid, _: Cpu, _: Cpu) {}
    fn start(&mut self, _: i64, _: Tid, _: Option<Tid>) {}
    fn exit(&mut self, ts: i64, t: Tid) {
        self.row(format!("{ts} ends {t}"));
    }
    fn priority(&mut self, _: i64, _: Tid, _: i16) {}
    fn record(&mut self, _: Record) {}
}

pub struct Ran {
    pub rows: Vec<String>,
    pub end: i64,
    pub outcome: Option<Outcome>,
}

fn drive(
    load: &Workload,
    machine: Machine,
    policy: Box<dyn Policy>,
    until: Option<i64>,
) -> Result<Ran, String> {
    let keep = Keep::default();
    let limits = Limits {
        until,
        max_events: 5_000_000,
    };
    let said = |error: schedscope_ground::error::Error| error.to_string();
    let sink = Box::new(keep.clone());
    let mut engine = Engine::new(load, machine, policy, sink, 1, limits, false).map_err(said)?;
    while engine.run(1_000_000).map_err(said)? == Progress::More {}
    let end = engine.world.now();
    drop(engine);
    let rows = std::mem::take(&mut *keep.0.lock().unwrap());
    Ok(Ran {
        rows,
        end,
        outcome: None,
    })
}

fn pairs(set: &[(&str, &str)]) -> Vec<(String, String)> {
    let pair = |(name, value): &(&str, &str)| ((*name).to_string(), (*value).to_string());
    set.iter().map(pair).collect()
}

/// Under an object.
pub fn under(
    bytes: &[u8],
    load: &Workload,
    machine: Machine,
    set: &[(&str, &str)],
    until: Option<i64>,
) -> Result<Ran, String> {
    let made = make("x.bpf.o", bytes, &pairs(set), &machine, load);
    let made = made.map_err(|error| error.to_string())?;
    let mut ran = drive(load, machine, made.policy, until)?;
    ran.outcome = Some(std::mem::take(&mut *made.outcome.lock().unwrap()));
    Ok(ran)
}

/// Under a policy of the simulator's own.
pub fn under_model(name: &str, load: &Workload, machine: Machine, until: Option<i64>) -> Ran {
    let made = registry::make(name, &[], &machine, load.threads.len()).unwrap();
    drive(load, machine, made.policy, until).unwrap()
}

/// Who ran where, from when to when: "cpu0 a 0..10", in ms.
pub fn drawn(ran: &Ran, load: &Workload) -> Vec<String> {
    let mut open: Vec<Option<(String, f64)>> = vec![None; 64];
    let mut found: Vec<(f64, usize, String)> = Vec::new();
    for row in ran.rows.iter().filter(|row| row.contains("->")) {
        let words: Vec<&str> = row.split(' ').collect();
        let ms = words[0].parse::<f64>().unwrap() / 1e6;
        let cpu: usize = words[1][3..].parse().unwrap();
        if let Some((name, from)) = open[cpu].take() {
            found.push((from, cpu, format!("cpu{cpu} {name} {from}..{ms}")));
        }
        let next = words[4].trim_start_matches("Some(").trim_end_matches(')');
        if let Ok(t) = next.parse::<usize>() {
            open[cpu] = Some((load.threads[t].name.clone(), ms));
        }
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    found.into_iter().map(|row| row.2).collect()
}
