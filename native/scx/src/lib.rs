//! Compiled schedulers of sched_ext as policies: the object's programs run in an interpreter, and
//! the core of sched_ext around them is the kernel's (docs/policies/sched_ext-objects.md).
//!
//! `load` reads the object (with `btf`, `core_relocation`, `maps`), `vm` runs its programs in
//! `memory` and `arena`, `calls` is what they may call, `core` and `policy` are what the kernel does,
//! `settings` and `library` what a scheduler's user-space half would.
mod arena;
mod btf;
mod bytes;
mod calls;
mod core;
mod core_relocation;
mod fault;
mod groups;
mod iterators;
mod kernel_types;
mod library;
mod load;
mod maps;
mod masks;
mod memory;
mod operations;
mod policy;
mod queues;
mod reach;
mod rings;
mod settings;
mod text;
mod timers;
mod trees;
mod vm;

use std::sync::{Arc, Mutex};

pub use self::core::Ended;
pub use policy::{Outcome, Scheduler};
use schedscope_ground::error;
use schedscope_sim::machine::Machine;
use schedscope_sim::policy::tunables::{CLOCK_HZ, SPAN, int, time};
use schedscope_sim::policy::{RtQueues, Settings, Tunable};
use schedscope_sim::workload::Workload;

use crate::core::Core;
use crate::error::{Error, Result, plain};
use crate::operations::Callback;

/// What may be set beside the object's own variables.
pub const TUNABLES: &[Tunable] = &[
    int(
        "hz",
        "250",
        "1/s",
        CLOCK_HZ,
        "clock ticks; slices end at them",
    ),
    time("rr_timeslice", "100ms", SPAN, "slice of SCHED_RR"),
];

/// A scheduler made ready, what it is called, and what is to be said of its run afterwards.
pub struct Made {
    pub policy: Box<Scheduler>,
    pub name: String,
    pub settings: Settings,
    pub outcome: Arc<Mutex<Outcome>>,
}

/// The scheduler in the object `bytes`, called `file` in messages. `given` are values of
/// `TUNABLES` and of the object's variables.
pub fn make(
    file: &str,
    bytes: &[u8],
    given: &[(String, String)],
    machine: &Machine,
    load: &Workload,
) -> Result<Made> {
    let named = |(name, _): &&(String, String)| TUNABLES.iter().any(|t| t.name == *name);
    let own: Vec<_> = given.iter().filter(named).cloned().collect();
    let variables: Vec<_> = given.iter().filter(|one| !named(one)).cloned().collect();
    let settings = Settings::new(file, TUNABLES, &[], &own)?;
    let hz = settings.int("hz") as u32;
    let mut loaded = load::load(bytes, &variables, hz).map_err(|error| error.at(file))?;
    let too_large = |fault: fault::Fault| load::refused(format!("it {}", fault.what)).at(file);
    let entries = Callback::ALL.iter().filter_map(|which| {
        let entry = loaded.operations.entry(*which)?;
        Some((format!("ops.{}", which.name()), entry))
    });
    let library = loaded.library.iter().flat_map(library::Library::entries);
    let before = loaded.before.iter().map(|(entry, _)| *entry);
    let before = library.chain(before).map(|entry| {
        let named = loaded
            .functions
            .iter()
            .find(|(_, at)| *at == entry as usize);
        (
            named.map_or_else(String::new, |(name, _)| name.clone()),
            entry,
        )
    });
    for (called, entry) in entries.chain(before) {
        let lacks = reach::missing(&loaded.code, &loaded.memory, entry as usize);
        if let Some(what) = lacks.first().and_then(|number| loaded.missing.get(*number)) {
            let error = Error::usage(
                plain(&format!("{called} needs {what}, which is not simulated")),
                "what docs/policies/sched_ext-objects.md lists",
                "settings (rodata=, --set) may keep the scheduler from using it",
            );
            return Err(error.at(file));
        }
    }
    let (ncpu, n) = (machine.ncpu(), load.threads.len());
    let per_node = loaded.operations.flags & kernel_types::OPS_BUILTIN_IDLE_PER_NODE != 0;
    if per_node && machine.node_groups().len() > 1 {
        let error = Error::usage(
            "it has the flag SCX_OPS_BUILTIN_IDLE_PER_NODE, and the machine several NUMA nodes",
            "a machine of one node",
            "docs/policies/sched_ext-objects.md says what is simulated",
        );
        return Err(error.at(file));
    }
    loaded
        .maps
        .create(&mut loaded.memory, ncpu, (n, load.groups.len() + 1))
        .map_err(too_large)?;
    let mut core = Core::new(&mut loaded.memory, load, ncpu).map_err(too_large)?;
    let groups = groups::Groups::new(&mut loaded.memory, load, &core).map_err(too_large)?;
    core.jiffy = 1_000_000_000 / i64::from(hz);
    let machine =
        vm::Machine::new(loaded.code, loaded.memory, loaded.missing).map_err(too_large)?;
    let outcome = Arc::default();
    let name = loaded.operations.name.clone();
    let policy = Scheduler {
        file: file.into(),
        machine,
        maps: loaded.maps,
        groups,
        operations: loaded.operations,
        core,
        rt: RtQueues::unlimited(ncpu, n, &settings),
        functions: loaded.functions,
        before: loaded.before,
        library: loaded.library,
        hz,
        previous: vec![None; ncpu],
        kicked: vec![(-1, 0); ncpu],
        released: vec![false; ncpu],
        selected: vec![false; n],
        exits_after: load.threads.iter().map(|spec| spec.exits_after).collect(),
        wakes_at_start: load.threads.iter().map(|spec| spec.asleep).collect(),
        outcome: Arc::clone(&outcome),
    };
    Ok(Made {
        policy: Box::new(policy),
        name,
        settings,
        outcome,
    })
}
