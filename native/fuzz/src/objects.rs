//! Objects of sched_ext schedulers, run on a small workload.

use std::path::Path;

use schedscope_ground::error::{Error, Result};
use schedscope_sim::engine::{Engine, Limits, Progress};
use schedscope_sim::machine::{CpuSet, Machine};
use schedscope_sim::output::Discard;
use schedscope_sim::workload::{NO_CHANNEL, Step, ThreadSpec, Workload};

pub const FORMAT: &str = "sched_ext object";

pub fn is_one(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "o")
}

/// Three threads that run and sleep.
fn workload(ncpu: usize) -> Workload {
    let sleep = Step::Sleep {
        ns: 1_000_000,
        disk: false,
    };
    let program = [Step::Run(3_000_000), sleep, Step::Run(9_000_000)];
    let mut load = Workload {
        masks: vec![CpuSet::all(ncpu)],
        steps: program.to_vec(),
        ..Workload::default()
    };
    for n in 0..3 {
        load.inboxes.push(NO_CHANNEL);
        load.threads.push(ThreadSpec {
            tid: Some(n),
            pid: Some(n),
            ..ThreadSpec::fair(format!("t{n}"), 0, program.len() as u32)
        });
    }
    load
}

pub fn simulate(path: &Path) -> Result<()> {
    let bytes = std::fs::read(path).map_err(|error| Error::io("read the object", &error))?;
    let machine = Machine::flat(2)?;
    let load = workload(2);
    let made = schedscope_scx::make("input.bpf.o", &bytes, &[], &machine, &load)?;
    let limits = Limits {
        until: Some(1_000_000_000),
        max_events: 10_000,
    };
    let sink = Box::new(Discard);
    let mut engine = Engine::new(&load, machine, made.policy, sink, 1, limits, false)?;
    while engine.run(1000)? == Progress::More {}
    Ok(())
}
