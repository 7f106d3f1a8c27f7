//! What a trace's threads would wait under another policy, by a Rust program without Python:
//!
//! ```text
//! cargo run -p schedscope-sim --example replay -- ../fixtures/linux-ftrace-mixed.capture eevdf-6.17
//! ```
//!
//! Threads have the priority at which they were first seen, and may use every CPU.
//! `schedscope.extract` finds masks, control groups, pipes and mutexes, too.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use schedscope_decode::Options;
use schedscope_model::columns::table;
use schedscope_model::event::WakeKind;
use schedscope_sim::engine::Limits;
use schedscope_sim::extract::{Enters, Extractor, Rules, ThreadOut, linux_priority, steps_of};
use schedscope_sim::load::{Input, Numbers};
use schedscope_sim::machine::Machine;
use schedscope_sim::policy::registry;
use schedscope_sim::run::{self, run};
use schedscope_trace::convert::convert;
use schedscope_trace::reconstruct::facts::{self, Facts, TableIn};
use schedscope_trace::store::MemoryStore;

/// Number of waits, and their sum and maximum (ns).
fn waits(store: &MemoryStore) -> (usize, i64, i64) {
    let (mut n, mut sum, mut most) = (0, 0, 0);
    for batch in store.tables.get("waits").into_iter().flatten() {
        let waits = batch.column_by_name("wait");
        let waits = waits.and_then(|waits| waits.as_primitive_opt::<Int64Type>());
        for wait in waits.into_iter().flatten().flatten() {
            n += 1;
            sum += wait;
            most = most.max(wait);
        }
    }
    (n, sum, most)
}

fn numbers(batch: &RecordBatch) -> Result<Numbers, Box<dyn Error>> {
    Ok(Numbers::read(&batch.schema(), std::slice::from_ref(batch))?)
}

fn threads(found: &[ThreadOut]) -> Result<RecordBatch, Box<dyn Error>> {
    let ints = |of: &dyn Fn(usize, &ThreadOut) -> Option<i64>| -> ArrayRef {
        let rows = found.iter().enumerate();
        Arc::new(
            rows.map(|(row, thread)| of(row, thread))
                .collect::<Int64Array>(),
        )
    };
    let priority = |thread: &ThreadOut| linux_priority(thread.first_prio.unwrap_or(120));
    Ok(table(vec![
        ("program", ints(&|row, _| Some(row as i64))),
        ("class", ints(&|_, thread| Some(priority(thread).0.into()))),
        ("nice", ints(&|_, thread| Some(priority(thread).1.into()))),
        (
            "rt_prio",
            ints(&|_, thread| Some(priority(thread).2.into())),
        ),
        ("mask", ints(&|_, _| Some(0))),
        ("cpu", ints(&|_, thread| thread.first_cpu.map(i64::from))),
        (
            "asleep",
            ints(&|_, thread| Some((thread.enters == Enters::Asleep).into())),
        ),
        (
            "start",
            ints(&|_, thread| match thread.enters {
                Enters::At(ns) => Some(ns),
                Enters::Asleep => Some(0),
                Enters::Forked => None,
            }),
        ),
    ])?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let path: PathBuf = words.next().ok_or("usage: replay CAPTURE [POLICY]")?.into();
    let policy = words.next().unwrap_or_else(|| "eevdf".into());
    let fresh = || Ok(MemoryStore::default());
    let (store, _) = convert(&path, &Options::default(), None, fresh, &mut |_, _| Ok(()))?;

    let rows = |name: &str| store.tables.get(name).cloned().unwrap_or_default();
    let facts = Facts {
        switches: facts::switches(TableIn::new("switches", &rows("switches")))?,
        wakeups: facts::wakeups(TableIn::new("wakeups", &rows("wakeups")))?,
        yields: facts::yields(TableIn::new("yields", &rows("yields")))?,
        ..Facts::default()
    };
    let window = facts.window().ok_or("a trace without events")?;
    let ncpu = 1 + facts.switches.iter().map(|row| row.cpu).max().unwrap_or(0);
    let has_waking = facts.wakeups.iter().any(|row| row.kind == WakeKind::Waking);
    let rules = Rules {
        absolute: false,
        extend_cut: false,
        linux_priorities: true,
        page: 4096,
        clock: None,
    };
    let extractor = Extractor::new(ncpu.into(), window.0, rules, has_waking, &[]);
    let mut found = extractor.run(facts, &[], &[], &[], window.1);

    let load = Input {
        threads: numbers(&threads(&found.threads)?)?,
        steps: numbers(&steps_of(&mut found)?)?,
        masks: vec![(0..ncpu).collect()],
        names: Vec::new(),
        pipes: Vec::new(),
        groups: Vec::new(),
        moves: Vec::new(),
    };
    let load = load.workload(ncpu.into())?;
    let machine = Machine::flat(ncpu.into())?;
    let made = registry::make(&policy, &[], &machine, load.threads.len())?;
    let options = run::Options {
        seed: 1,
        limits: Limits {
            until: Some(window.1 - window.0),
            max_events: u64::MAX,
        },
        record: false,
    };
    let replayed = MemoryStore::default();
    let mut quiet = |_, _| Ok(());
    let (replayed, ..) = run(&load, machine, made.policy, &options, replayed, &mut quiet)?;

    println!("{} threads on {ncpu} CPUs", load.threads.len());
    for (name, store) in [("recorded", &store), (policy.as_str(), &replayed)] {
        let (n, sum, most) = waits(store);
        println!("{name:>12}: {n} waits, {sum} ns in all, {most} ns the longest");
    }
    Ok(())
}
