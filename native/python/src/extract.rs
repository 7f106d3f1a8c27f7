//! A workload out of a trace.
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrow::ArrowTable;
use super::tables::{Frames, rows_in, source_in};
use crate::error::{EngineResult, Result};
use schedscope_sim::extract::{
    Enters, Extractor, Rules, ThreadOut, call_rows, change_rows, futex_rows, steps_of,
};
use schedscope_trace::reconstruct::facts::{self, Facts, TableIn};
use schedscope_trace::store::Source;

type Pipes = Vec<(Option<u64>, u64, u64, Option<u64>)>;

type Extracted<'py> = (ArrowTable, Bound<'py, PyDict>, Pipes, Bound<'py, PyDict>);

/// A workload's steps and threads out of a trace's fact tables.
///
/// `facts`: switches and wakeups, in memory or on disk, and, where recorded, yields, `calls`, the
/// ends of reads and writes: `ts, utid, process, parent, enters, writes, value`, and `futexes`,
/// those of futex calls on the words of mutexes: `ts, utid, process, enters, waits, address`, and the threads' changes of their own
/// `masks` and `nices`.
/// Answers (steps, threads by column, pipes, report): steps in order of `program`, which is the thread's row; of
/// each pipe its capacity, the level at which writers are woken, what is in it, and the
/// size of its pages. `page` is that of the recorded machine.
#[pyfunction]
#[pyo3(signature = (facts, ncpu, window, absolute, extend_cut, linux_priorities, has_waking, drop, page, clock))]
#[allow(clippy::too_many_arguments)]
pub fn extract<'py>(
    py: Python<'py>,
    facts: Frames<'py>,
    ncpu: u32,
    window: (i64, i64),
    absolute: bool,
    extend_cut: bool,
    linux_priorities: bool,
    has_waking: bool,
    drop: Vec<u32>,
    page: u64,
    clock: Option<(i64, i64)>,
) -> Result<Extracted<'py>> {
    let read = |name| rows_in(&facts, name);
    let (calls, futexes) = (read("calls")?, read("futexes")?);
    let (masks, nices) = (read("masks")?, read("nices")?);
    let source = |name| source_in(&facts, name);
    let (switches, wakeups, yields) = (source("switches")?, source("wakeups")?, source("yields")?);
    let (out, steps) = py.detach(|| -> EngineResult<_> {
        // What is read from disk is let go where its rows are made.
        let rows = |source: Source<'_>| source.batches().collect::<EngineResult<Vec<_>>>();
        let facts = Facts {
            switches: facts::switches(TableIn::new("switches", &rows(switches)?))?,
            wakeups: facts::wakeups(TableIn::new("wakeups", &rows(wakeups)?))?,
            yields: facts::yields(TableIn::new("yields", &rows(yields)?))?,
            ..Facts::default()
        };
        let calls = call_rows(&TableIn::new("calls", &calls))?;
        let futexes = futex_rows(&TableIn::new("futexes", &futexes))?;
        let changes = change_rows(
            &TableIn::new("masks", &masks),
            &TableIn::new("nices", &nices),
        )?;
        facts.check_order()?;
        facts.check_range(u16::try_from(ncpu).unwrap_or(u16::MAX), facts.rows())?;
        let rules = Rules {
            absolute,
            extend_cut,
            linux_priorities,
            page: page.max(1),
            clock,
        };
        let mut out = Extractor::new(ncpu, window.0, rules, has_waking, &drop)
            .run(facts, &calls, &futexes, &changes, window.1);
        let steps = steps_of(&mut out)?;
        Ok((out, steps))
    })?;
    let threads = PyDict::new(py);
    let column = |f: &dyn Fn(&ThreadOut) -> Option<i64>| -> Vec<Option<i64>> {
        out.threads.iter().map(f).collect()
    };
    threads.set_item("utid", column(&|t| Some(i64::from(t.utid))))?;
    threads.set_item(
        "start",
        column(&|t| match t.enters {
            Enters::At(at) => Some(at),
            Enters::Asleep => Some(0),
            Enters::Forked => None,
        }),
    )?;
    threads.set_item(
        "asleep",
        column(&|t| Some(i64::from(t.enters == Enters::Asleep))),
    )?;
    threads.set_item("cpu", column(&|t| t.first_cpu.map(i64::from)))?;
    threads.set_item("prio", column(&|t| t.first_prio.map(i64::from)))?;
    let only = |t: &ThreadOut| {
        let all: u32 = t.ran_on.iter().map(|w| w.count_ones()).sum();
        let at = t.ran_on.iter().position(|w| *w != 0)?;
        (all == 1).then(|| at as i64 * 64 + i64::from(t.ran_on[at].trailing_zeros()))
    };
    threads.set_item("only_cpu", column(&only))?;
    let report = PyDict::new(py);
    for (name, value) in out.report.entries() {
        report.set_item(name, value)?;
    }
    let pipes = out.pipes.iter();
    let pages = |p: u64| (p > 0).then_some(p);
    let pipes = pipes.map(|p| (p.capacity, p.low, p.filled, pages(p.page)));
    let pipes = pipes.collect();
    Ok((steps.into(), threads, pipes, report))
}
