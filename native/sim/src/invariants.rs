//! What must hold of every policy, checked on random workloads.
//!
//! The checker sees only what a reader of the trace sees: it rebuilds the running, waiting and
//! sleeping threads from the rows and compares with the workload.
use super::machine::{Cpu, Machine, Outage};
use super::output::{LeftAs, Record, Sink, Switch, WakeStep, Wakeup};
use super::policy::registry;
use super::rng::Rng;
use super::testing::{Build, MS};
use super::workload::{Class, GroupMove, GroupSpec, NO_CHANNEL, Quota, Step, Tid, Workload};
use super::{
    engine::{Engine, Limits, Progress},
    policy::Spec,
};
use std::sync::{Arc, Mutex};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Is {
    Absent,
    Asleep,
    Waiting(Cpu),
    On(Cpu),
    Gone,
}

/// Rebuilds the run and complains.
struct Checker {
    load: Workload,
    is: Vec<Is>,
    on: Vec<Option<Tid>>,
    since: Vec<i64>,
    ran: Vec<i64>,
    /// Who ran, from when to when.
    runs: Vec<(Tid, i64, i64)>,
    now: i64,
    work_conserving: bool,
    strict_classes: u8,
    outages: Vec<Outage>,
    faults: Vec<String>,
}

impl Checker {
    fn new(load: &Workload, ncpu: usize, spec: &Spec) -> Self {
        let n = load.threads.len();
        Self {
            load: load.clone(),
            is: vec![Is::Absent; n],
            on: vec![None; ncpu],
            since: vec![0; ncpu],
            ran: vec![0; n],
            runs: Vec::new(),
            now: 0,
            work_conserving: spec.work_conserving,
            // The class of a thread is known as it was at the start.
            strict_classes: if changes_classes(load) {
                0
            } else {
                spec.strict_classes
            },
            outages: Vec::new(),
            faults: Vec::new(),
        }
    }

    fn fault(&mut self, what: String) {
        if self.faults.len() < 5 {
            self.faults.push(format!("{} ns: {what}", self.now));
        }
    }

    /// Whether the thread may use the CPU at an instant, or may right before or after it, as of two
    /// things at one instant either may come first.
    fn may(&self, t: Tid, c: Cpu) -> bool {
        self.may_from(t, c, self.now) || self.may_from(t, c, self.now - 1)
    }

    /// Whether it may from then on.
    fn may_from(&self, t: Tid, c: Cpu, then: i64) -> bool {
        let covers = |o: &&Outage| o.since <= then && o.until.is_none_or(|until| until > then);
        let online = |c: Cpu| !self.outages.iter().filter(covers).any(|o| o.cpu == c);
        let mask = &self.load.masks[self.load.threads[t as usize].mask as usize];
        online(c) && (mask.contains(c) || !mask.iter().any(online))
    }

    /// Time moves on: the state between two instants must be allowed.
    fn reach(&mut self, ts: i64) {
        if ts < self.now {
            self.fault(format!("time goes back to {ts}"));
        }
        if ts <= self.now {
            return;
        }
        let waiting: Vec<(Tid, Cpu)> = self
            .is
            .iter()
            .enumerate()
            .filter_map(|(t, is)| match is {
                Is::Waiting(c) => Some((t as Tid, *c)),
                _ => None,
            })
            .collect();
        for (t, at) in waiting {
            if self.work_conserving {
                let free = |c: &usize| self.on[*c].is_none();
                let mut cpus = (0..self.on.len()).filter(free);
                let idle = cpus.find(|c| self.may_from(t, *c as Cpu, self.now));
                if let Some(c) = idle {
                    self.fault(format!("CPU {c} idles to {ts} while thread {t} waits"));
                }
            }
            if let Some(r) = self.on[at as usize] {
                let level = |t: Tid| {
                    let l = self.load.threads[t as usize].class.level();
                    l.min(self.strict_classes)
                };
                if level(t) < level(r) {
                    self.fault(format!(
                        "thread {r} runs on CPU {at} to {ts} while thread {t} of a better class waits there"
                    ));
                }
            }
        }
        self.now = ts;
    }
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Checker>>);

impl Sink for Shared {
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
    fn switch(&mut self, s: Switch) {
        let mut guard = self.0.lock().unwrap();
        let k = &mut *guard;
        k.reach(s.ts);
        let c = s.cpu as usize;
        if k.on[c] != s.prev {
            k.fault(format!("switch {s:?} but {:?} was there", k.on[c]));
        }
        if let Some(p) = s.prev {
            k.ran[p as usize] += s.ts - k.since[c];
            let since = k.since[c];
            k.runs.push((p, since, s.ts));
            k.is[p as usize] = match s.left_as {
                LeftAs::Preempted | LeftAs::Yielded => Is::Waiting(s.cpu),
                LeftAs::Dead => Is::Gone,
                _ => Is::Asleep,
            };
        }
        k.since[c] = s.ts;
        k.on[c] = s.next;
        if let Some(n) = s.next {
            if !matches!(k.is[n as usize], Is::Waiting(_)) {
                k.fault(format!("{s:?} but it was {:?}", k.is[n as usize]));
            }
            if !k.may(n, s.cpu) {
                k.fault(format!("thread {n} runs on CPU {c}, outside its mask"));
            }
            k.is[n as usize] = Is::On(s.cpu);
        }
    }

    fn wakeup(&mut self, w: Wakeup) {
        let mut guard = self.0.lock().unwrap();
        let k = &mut *guard;
        k.reach(w.ts);
        let was = k.is[w.thread as usize];
        match w.step {
            WakeStep::Waking => {
                if was != Is::Asleep {
                    k.fault(format!("{w:?} of a thread that was {was:?}"));
                }
            }
            WakeStep::Enqueued | WakeStep::New => {
                let good = match w.step {
                    WakeStep::New => was == Is::Absent,
                    _ => was == Is::Asleep,
                };
                match w.target {
                    Some(c) if good => k.is[w.thread as usize] = Is::Waiting(c),
                    _ => k.fault(format!("{w:?} of a thread that was {was:?}")),
                }
            }
        }
    }

    fn migrate(&mut self, ts: i64, _: Cpu, t: Tid, from: Cpu, to: Cpu) {
        let mut guard = self.0.lock().unwrap();
        let k = &mut *guard;
        k.reach(ts);
        match k.is[t as usize] {
            Is::Waiting(c) if c == from => k.is[t as usize] = Is::Waiting(to),
            Is::Asleep => {}
            was => k.fault(format!("thread {t} moves {from}->{to} but was {was:?}")),
        }
    }

    fn start(&mut self, ts: i64, _: Tid, _: Option<Tid>) {
        self.0.lock().unwrap().reach(ts);
    }
    fn exit(&mut self, ts: i64, _: Tid) {
        self.0.lock().unwrap().reach(ts);
    }
    fn priority(&mut self, ts: i64, _: Tid, _: i16) {
        self.0.lock().unwrap().reach(ts);
    }
    fn record(&mut self, r: Record) {
        self.0.lock().unwrap().reach(r.ts);
    }
}

/// CPU time of a program that is not cut short, `Repeat`s included.
fn cpu_time(steps: &[Step]) -> i64 {
    let (mut pc, mut total) = (0usize, 0i64);
    let mut done = [0u32; 8];
    while let Some(step) = steps.get(pc) {
        pc += 1;
        match *step {
            Step::Run(ns) => total += ns,
            Step::Repeat {
                to,
                times: Some(n),
                counter,
            } => {
                let d = &mut done[counter as usize];
                if *d >= n {
                    *d = 0;
                } else {
                    *d += 1;
                    pc = to as usize;
                }
            }
            Step::Exit | Step::Park => break,
            _ => {}
        }
    }
    total
}

fn changes_classes(load: &Workload) -> bool {
    (0..load.threads.len()).any(|t| {
        let mut steps = load.program(t as Tid).iter();
        steps.any(|s| matches!(s, Step::SetPriority { class, .. } if *class != Class::Fair))
    })
}

/// `t` takes another nice value, and perhaps another of these classes.
fn change_of_priority(rng: &mut Rng, t: Tid, classes: &[Class]) -> Step {
    let class = classes[rng.below(classes.len() as u64) as usize];
    let rt_prio = if class.is_realtime() {
        rng.between(1, 99)
    } else {
        0
    };
    Step::SetPriority {
        of: t,
        class,
        nice: rng.between(-20, 19) as i8,
        rt_prio: rt_prio as u8,
    }
}

/// A workload in which every signal waited for is sent: each thread signals only
/// threads of higher number, before it waits for anything beyond its due.
fn random_load(rng: &mut Rng, ncpu: usize) -> Workload {
    let mut b = Build::new(ncpu);
    for _ in 0..3 {
        let cpus: Vec<Cpu> = (0..ncpu as Cpu).filter(|_| rng.below(2) == 0).collect();
        if !cpus.is_empty() {
            b.mask(ncpu, &cpus);
        }
    }
    let classes: &[Class] = match rng.below(4) {
        0 => &[
            Class::Fair,
            Class::Fifo,
            Class::RoundRobin,
            Class::Batch,
            Class::Idle,
        ],
        _ => &[Class::Fair],
    };
    let n = 2 + rng.below(9) as u32;
    let mut owed = vec![0u64; n as usize];
    for t in 0..n {
        let mut steps = Vec::new();
        let rounds = 1 + rng.below(6);
        for _ in 0..owed[t as usize].min(3) {
            owed[t as usize] -= 1;
            steps.push(Step::WaitFor {
                channel: t,
                count: 0,
                cost: 0,
                disk: false,
            });
        }
        for _ in 0..rounds {
            let span = [100_000, 3 * MS, 40 * MS][rng.below(3) as usize];
            steps.push(Step::Run(rng.between(0, span)));
            match rng.below(6) {
                0 => steps.push(Step::Yield),
                1 | 2 => steps.push(Step::Sleep {
                    ns: rng.between(1, span),
                    disk: rng.below(2) == 0,
                }),
                3 if t + 1 < n => {
                    let to = rng.between(i64::from(t) + 1, i64::from(n) - 1) as u32;
                    owed[to as usize] += 1;
                    steps.push(Step::Signal {
                        to,
                        pair: NO_CHANNEL,
                        cost: 0,
                        sync: rng.below(2) == 0,
                        meet: false,
                    });
                }
                4 => steps.push(change_of_priority(rng, t, classes)),
                5 => steps.extend([
                    Step::Lock { mutex: 0, cost: 0 },
                    Step::Run(rng.between(1, span)),
                    Step::Unlock { mutex: 0, cost: 0 },
                ]),
                _ => {}
            }
        }
        if rng.below(3) == 0 {
            // All but the waits again: they are counted once.
            let from = steps
                .iter()
                .position(|s| !matches!(s, Step::WaitFor { .. }))
                .unwrap_or(0);
            steps.push(Step::Run(1000));
            steps.push(Step::Repeat {
                to: from as u32,
                times: Some(rng.below(4) as u32),
                counter: 0,
            });
        }
        let realtime = rng.below(8) == 0;
        let idle = rng.below(8) == 0;
        let has_nice = steps.iter().any(|s| matches!(s, Step::SetPriority { .. }));
        let masks = b.load.masks.len() as u64;
        let start = rng.between(0, 20 * MS);
        let spec = b.add(&format!("t{t}"), &steps);
        spec.start = Some(start);
        spec.mask = rng.below(masks) as u32;
        spec.nice = rng.between(-20, 19) as i8;
        if realtime && !has_nice {
            spec.class = [Class::Fifo, Class::RoundRobin][rng.below(2) as usize];
            spec.rt_prio = rng.between(1, 99) as u8;
        } else if idle && !has_nice {
            spec.class = [Class::Idle, Class::Batch][rng.below(2) as usize];
        }
    }
    for t in 0..n {
        b.inbox(t);
    }
    b.load
}

/// Groups in groups, some with a quota, and most threads in one of them.
fn add_groups(load: &mut Workload, rng: &mut Rng) {
    let n = 1 + rng.below(4) as u32;
    for g in 0..n {
        let parent = (g > 0 && rng.below(2) == 0).then(|| rng.below(u64::from(g)) as u32);
        let quota = (rng.below(2) == 0).then(|| {
            let period = rng.between(5, 100) * MS;
            Quota {
                ns: rng.between(1, period / MS) * MS,
                period,
                phase: rng.between(0, period - 1),
            }
        });
        load.groups.push(GroupSpec {
            name: format!("/g{g}"),
            parent,
            shares: rng.between(2, 10_000),
            quota,
        });
    }
    for thread in &mut load.threads {
        thread.group = (rng.below(4) > 0).then(|| rng.below(u64::from(n)) as u32);
    }
    for _ in 0..rng.below(40) {
        load.moves.push(GroupMove {
            at: rng.between(0, 200 * MS),
            thread: rng.below(load.threads.len() as u64) as Tid,
            group: (rng.below(4) > 0).then(|| rng.below(u64::from(n)) as u32),
        });
    }
    load.moves.sort_by_key(|one| one.at);
}

/// Whether the thread is then in the group, or in one inside it.
fn is_in(load: &Workload, t: Tid, group: u32, then: i64) -> bool {
    let past = |m: &&GroupMove| m.thread == t && m.at <= then;
    let first = load.threads[t as usize].group;
    let mut at = load.moves.iter().rfind(past).map_or(first, |m| m.group);
    while let Some(g) = at {
        if g == group {
            return true;
        }
        at = load.groups[g as usize].parent;
    }
    false
}

/// The most that fair threads of a group ran in one of its periods beyond its quota.
fn beyond(load: &Workload, runs: &[(Tid, i64, i64)], group: u32, quota: Quota) -> i64 {
    let mut used = std::collections::BTreeMap::new();
    for (t, from, to) in runs {
        if load.threads[*t as usize].class.is_realtime() {
            continue;
        }
        let mut at = *from;
        while at < *to {
            let period = (at - quota.phase).div_euclid(quota.period);
            let moved = load.moves.iter().filter(|m| m.thread == *t && m.at > at);
            let end = (quota.phase + (period + 1) * quota.period).min(*to);
            let end = moved.map(|m| m.at).fold(end, i64::min);
            if is_in(load, *t, group, at) {
                *used.entry(period).or_insert(0) += end - at;
            }
            at = end;
        }
    }
    used.values().max().map_or(0, |most| most - quota.ns)
}

/// What keeps real-time threads from taking all of a CPU: off, or, with every other seed, so
/// much that it often sets in.
fn real_time_limits(spec: &Spec, seed: u64) -> Vec<(String, String)> {
    let limits = [
        ("rt_runtime", "7ms"),
        ("rt_period", "20ms"),
        ("fair_server_runtime", "3ms"),
        ("fair_server_period", "20ms"),
    ];
    let has = |name: &str| spec.tunables.iter().any(|t| t.name == name);
    let on = seed % 2 == 1;
    let set = limits
        .iter()
        .filter(|(name, _)| has(name) && (on || name.ends_with("_runtime")));
    set.map(|(name, value)| ((*name).into(), if on { *value } else { "0" }.into()))
        .collect()
}

/// All CPUs but one are offline now and then, and some from a moment on.
fn random_outages(rng: &mut Rng, ncpu: usize) -> Vec<Outage> {
    let stays = rng.below(ncpu as u64) as Cpu;
    let mut all = Vec::new();
    for cpu in (0..ncpu as Cpu).filter(|c| *c != stays) {
        let mut since = rng.between(0, 20 * MS);
        for _ in 0..rng.below(4) {
            let until = (rng.below(4) > 0).then(|| since + rng.between(1, 30 * MS));
            all.push(Outage { cpu, since, until });
            let Some(until) = until else { break };
            since = until + rng.between(0, 20 * MS);
        }
    }
    all
}

/// Runs a random workload, with control groups or without, with CPUs that are offline at times or
/// without, and complains.
fn check_random(spec: &Spec, preset: &str, seed: u64, groups: bool, outages: bool) {
    let shapes = [(1, 1, 1), (1, 2, 1), (1, 4, 1), (2, 2, 2)];
    let mut rng = Rng::new(seed);
    let (p, c, s) = shapes[(seed % 4) as usize];
    let mut machine = Machine::grid(p, c, s).unwrap();
    let ncpu = machine.ncpu();
    let mut load = random_load(&mut rng, ncpu);
    if groups {
        add_groups(&mut load, &mut rng);
    }
    let mut outs = Vec::new();
    if outages {
        outs = random_outages(&mut rng, ncpu);
        machine = machine.with_outages(outs.clone()).unwrap();
    }
    let limits = real_time_limits(spec, seed);
    let made = registry::make(preset, &limits, &machine, load.threads.len()).unwrap();
    let enforced = made
        .settings
        .in_force()
        .any(|(name, value)| name == "bandwidth_slice" && value != "0");
    let mut checker = Checker::new(&load, ncpu, spec);
    checker.outages = outs;
    if limits.iter().any(|(_, value)| value != "0") {
        checker.strict_classes = 0;
    }
    let checker = Shared(Arc::new(Mutex::new(checker)));
    let limits = Limits {
        until: Some(3600 * 1000 * MS),
        max_events: 5_000_000,
    };
    let sink = Box::new(checker.clone());
    let mut engine = Engine::new(&load, machine, made.policy, sink, seed, limits, true).unwrap();
    let progress = engine.run(u64::MAX).unwrap();
    drop(engine);
    let k = checker.0.lock().unwrap();
    let at = format!("{preset} seed {seed}");
    assert_eq!(k.faults, Vec::<String>::new(), "{at}");
    assert_eq!(
        progress,
        Progress::Finished,
        "{at}: signals or threads lost"
    );
    for t in 0..load.threads.len() {
        assert_eq!(k.is[t], Is::Gone, "{at}: thread {t}");
        let want = cpu_time(load.program(t as Tid));
        assert_eq!(k.ran[t], want, "{at}: CPU time of thread {t}");
    }
    for (g, group) in load.groups.iter().enumerate() {
        // A quota holds for the fair class alone.
        if let Some(quota) = group.quota.filter(|_| enforced && !changes_classes(&load)) {
            // A CPU may have kept a slice, and is charged at ticks of 4 ms at the latest.
            let most = ncpu as i64 * (5 + 4) * MS;
            let more = beyond(&load, &k.runs, g as u32, quota);
            assert!(more <= most, "{at}: {} ran {more} ns beyond", group.name);
        }
    }
}

#[test]
fn every_policy_keeps_the_invariants_on_random_workloads() {
    for (spec, preset) in registry::all() {
        for seed in 0..60u64 {
            check_random(spec, preset.name, seed, false, false);
        }
    }
}

#[test]
fn control_groups_keep_the_invariants_and_their_quotas() {
    for (spec, preset) in registry::all() {
        // The others ignore them.
        for seed in 0..if spec.groups { 240u64 } else { 8 } {
            check_random(spec, preset.name, seed, true, false);
        }
    }
}

#[test]
fn cpus_that_go_offline_keep_the_invariants() {
    for (spec, preset) in registry::all() {
        for seed in 0..60u64 {
            check_random(spec, preset.name, seed, spec.groups && seed % 3 == 0, true);
        }
    }
}

/// The checker itself must be able to fail.
#[test]
fn the_checker_sees_an_idle_cpu_beside_a_waiting_thread() {
    let mut b = Build::new(2);
    b.add("a", &[Step::Run(MS)]);
    b.add("b", &[Step::Run(MS)]);
    let (spec, _) = registry::find("fifo").unwrap();
    let mut shared = Shared(Arc::new(Mutex::new(Checker::new(&b.load, 2, spec))));
    for thread in 0..2 {
        shared.wakeup(Wakeup {
            ts: 0,
            cpu: 0,
            waker: None,
            thread,
            step: WakeStep::New,
            target: Some(0),
            prio: 120,
        });
    }
    let mut row = Switch {
        ts: 0,
        cpu: 0,
        prev: None,
        left_as: LeftAs::Idle,
        prev_prio: 120,
        next: Some(0),
        next_prio: 120,
    };
    shared.switch(row);
    row = Switch {
        ts: MS,
        prev: Some(0),
        left_as: LeftAs::Dead,
        next: Some(1),
        ..row
    };
    shared.switch(row);
    let faults = shared.0.lock().unwrap().faults.clone();
    assert!(faults[0].contains("CPU 1 idles"), "{faults:?}");
}

#[test]
fn the_same_seed_gives_the_same_rows() {
    use super::testing::simulate;
    for (_, preset) in registry::all() {
        let load = random_load(&mut Rng::new(9), 4);
        let run = || {
            let machine = Machine::flat(4).unwrap();
            simulate(&load, machine, preset.name, &[], None).unwrap()
        };
        let (a, b) = (run(), run());
        assert_eq!(a.timeline.rows, b.timeline.rows, "{}", preset.name);
        assert_eq!(a.counts, b.counts);
        assert_eq!(a.progress, Progress::Finished);
    }
}
