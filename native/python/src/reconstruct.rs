//! States and waits of fact tables that already exist.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::open::in_memory;
use super::tables::{Frames, rows_in};
use crate::error::{Error, Result};
use schedscope_model::event::WakeKind;
use schedscope_model::tables::{self, Table};
use schedscope_model::time::{FAR, check_length};
use schedscope_trace::reconstruct::apart::Clocks;
use schedscope_trace::reconstruct::facts::{self, Facts, TableIn};
use schedscope_trace::reconstruct::{Counters, Habits, Reconstructor};
use schedscope_trace::store::{MOST_THREADS, MemoryStore, Store};
use schedscope_trace::summary;

/// States, waits and losses of fact tables that already exist.
///
/// `facts`: any of switches, wakeups, migrations, yields, losses, each an object with
/// `__arrow_c_stream__`, in order of time; and `threads`, whose `affinity` says which CPUs a thread
/// may use. `window` defaults to the first and last row. `chunk`: rows of output per batch.
/// `linux`: wakeups are Linux's, each of which begins with a `waking` where these are recorded.
/// `clocks`: the number of each CPU's clock, and by how much stamps of two clocks may be off (None:
/// unknown). `uncounted`: nothing counts the events that were lost. `chosen`: utids of the threads
/// that were recorded, where a filter left out all others. `habits`: utids of threads, idle ones
/// among them, whose leaving a CPU the kernel does not report; without it the facts say.
#[pyfunction]
#[pyo3(signature = (facts, ncpu, window=None, chunk=None, linux=true, clocks=None, uncounted=false, chosen=None, habits=None))]
#[expect(clippy::too_many_arguments, reason = "Python's keywords")]
pub fn reconstruct<'py>(
    py: Python<'py>,
    facts: Frames<'py>,
    ncpu: u16,
    window: Option<(i64, i64)>,
    chunk: Option<usize>,
    linux: bool,
    clocks: Option<(Vec<u16>, Option<i64>, i64)>,
    uncounted: bool,
    chosen: Option<Vec<u32>>,
    habits: Option<Vec<u32>>,
) -> Result<Bound<'py, PyDict>> {
    let read = |name| rows_in(&facts, name);
    let (switches, wakeups, migrations, yields, losses) = (
        read("switches")?,
        read("wakeups")?,
        read("migrations")?,
        read("yields")?,
        read("losses")?,
    );
    let threads = read("threads")?;
    let (store, counters, cpus) = py.detach(|| -> Result<_> {
        let facts = Facts {
            switches: facts::switches(TableIn::new("switches", &switches))?,
            wakeups: facts::wakeups(TableIn::new("wakeups", &wakeups))?,
            migrations: facts::migrations(TableIn::new("migrations", &migrations))?,
            yields: facts::yields(TableIn::new("yields", &yields))?,
            losses: facts::losses(TableIn::new("losses", &losses))?,
        };
        facts.check_order()?;
        facts.check_range(ncpu, facts.rows())?;
        if let Some((begin, end)) = window
            && (begin > end || begin < -FAR || end > FAR)
        {
            return Err(Error::usage(
                format!("a window from {begin} to {end}"),
                "its begin and its end in ns on the capture's clock",
                "",
            )
            .into());
        }
        let seen = facts.window();
        let (begin, end) = match (window, seen) {
            (Some(given), Some(seen)) => (given.0.min(seen.0), given.1.max(seen.1)),
            (Some(given), None) => given,
            (None, seen) => seen.unwrap_or((0, 0)),
        };
        check_length((begin, end), ncpu)?;
        let mut wakeups = facts.wakeups.iter();
        let every_waking = linux && wakeups.any(|row| row.kind == WakeKind::Waking);
        let clocks = clocks.map(|(clock, width, moved)| Clocks {
            clock,
            width,
            moved,
        });
        let affinities = facts::affinities(&TableIn::new("threads", &threads))?;
        let stoppers = facts::stoppers(&TableIn::new("threads", &threads))?;
        let pass = |habits: Habits| -> Result<_> {
            let mut store = MemoryStore::default();
            let mut reconstruction = Reconstructor::new(ncpu, begin)
                .expecting_waking(every_waking)
                .expecting_one_enqueued(!linux || !every_waking)
                .with_uncounted_losses(uncounted)
                .with_chosen_threads(chosen.is_some())
                .with_habits(habits)
                .with_clocks(clocks.clone());
            let chosen = chosen.iter().flatten();
            for &utid in chosen.filter(|&&utid| utid < MOST_THREADS) {
                reconstruction.choose(utid);
            }
            for (utid, cpus) in &affinities {
                reconstruction.allow(*utid, cpus);
            }
            facts.feed(&mut reconstruction, chunk.unwrap_or(usize::MAX), &mut store)?;
            for utid in &stoppers {
                reconstruction.stopper(*utid);
            }
            reconstruction.finish(end);
            Ok((store, reconstruction))
        };
        let known = habits.map(|utids| Habits::Of(Arc::new(utids.into_iter().collect())));
        let inferred = known.is_none() && chosen.is_none();
        let first = if inferred {
            Habits::Presumed
        } else {
            Habits::Nobodys
        };
        let (mut store, mut reconstruction) = pass(known.unwrap_or(first))?;
        if inferred {
            let found = reconstruction.unreported(end);
            if !found.as_presumed {
                (store, reconstruction) = pass(Habits::Of(found.habits))?;
            }
        }
        store.write(tables::States::NAME, reconstruction.states.take())?;
        store.write(tables::Waits::NAME, reconstruction.waits.take())?;
        store.write(tables::Losses::NAME, reconstruction.sorted_losses())?;
        Ok((
            store,
            reconstruction.counters,
            summary::cpus(&reconstruction),
        ))
    })?;
    let result = PyDict::new(py);
    for (name, (_, table)) in in_memory(store) {
        if matches!(name, "states" | "waits" | "losses") {
            result.set_item(name, table)?;
        }
    }
    let json = py.import("json")?;
    result.set_item(
        "counters",
        json.call_method1("loads", (counters_text(&counters),))?,
    )?;
    result.set_item("per_cpu", json.call_method1("loads", (cpus.to_string(),))?)?;
    Ok(result)
}

fn counters_text(counters: &Counters) -> String {
    summary::counters(counters).to_string()
}
