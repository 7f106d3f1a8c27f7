//! Decoding without the pipeline, for Python: counting what a trace holds.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pyo3::prelude::*;

use crate::error::{EngineResult, Error, Result};
use schedscope_decode::{self as decode, Options};
use schedscope_ground::hooks::check_interrupt;
use schedscope_model::event::{Event, EventSink};

/// Counts events by kind; lets Ctrl-C through.
#[derive(Default)]
struct Counter {
    kinds: [u64; KINDS.len()],
    last: i64,
    unordered: u64,
}

const KINDS: [&str; 21] = [
    "switch",
    "wakeup",
    "migrate",
    "fork",
    "exec",
    "exit",
    "rename",
    "yield",
    "priority",
    "queue_load",
    "irq",
    "loss",
    "sleep",
    "quota_refill",
    "system_call",
    "lock",
    "disk_request",
    "sleep_reason",
    "dispatch_queue",
    "kick",
    "out_of_order",
];

impl EventSink for Counter {
    #[inline]
    fn event(&mut self, event: &Event) -> EngineResult<()> {
        let kind = match event {
            Event::Switch { .. } => 0,
            Event::Wakeup { .. } => 1,
            Event::Migrate { .. } => 2,
            Event::Fork { .. } => 3,
            Event::Exec { .. } => 4,
            Event::Exit { .. } => 5,
            Event::Rename { .. } => 6,
            Event::Yield { .. } => 7,
            Event::Priority { .. } => 8,
            Event::QueueLoad { .. } => 9,
            Event::Irq { .. } => 10,
            Event::Loss { .. } => 11,
            Event::Sleep { .. } => 12,
            Event::QuotaRefill { .. } => 13,
            Event::SystemCall { .. } => 14,
            Event::Lock { .. } => 15,
            Event::DiskRequest { .. } => 16,
            Event::SleepReason { .. } => 17,
            Event::DispatchQueue { .. } => 18,
            Event::Kick { .. } => 19,
        };
        let ts = match *event {
            // Sent when they end.
            Event::Irq { ts, dur, .. } => ts.saturating_add(dur),
            _ => event.ts(),
        };
        self.kinds[kind] += 1;
        self.unordered += u64::from(ts < self.last);
        self.last = self.last.max(ts);
        Ok(())
    }

    fn progress(&mut self, _: u64, _: u64) -> EngineResult<()> {
        check_interrupt()
    }
}

/// Reads the whole trace and only counts: events by kind (and how many came
/// out of order), and records by (name, CPU) as other tools count them.
#[pyfunction]
#[pyo3(signature = (path, options=None))]
#[allow(clippy::type_complexity)]
pub fn count_events(
    py: Python<'_>,
    path: PathBuf,
    options: Option<BTreeMap<String, String>>,
) -> Result<(BTreeMap<&'static str, u64>, BTreeMap<(String, u16), u64>)> {
    let given = options.unwrap_or_default();
    let options = Options {
        given,
        jobs: 1,
        ..Options::default()
    };
    let (counter, end) = py.detach(|| {
        let (_, mut source) = decode::open(&path, &options)?;
        let mut counter = Counter {
            last: i64::MIN,
            ..Counter::default()
        };
        let end = source.run(&mut counter)?;
        Ok::<_, Error>((counter, end))
    })?;
    let mut kinds: BTreeMap<_, _> = KINDS.into_iter().zip(counter.kinds).collect();
    kinds.insert("out_of_order", counter.unordered);
    let mut counts = BTreeMap::new();
    for (name, cpu, count) in end.counts {
        *counts.entry((name, cpu)).or_default() += count;
    }
    Ok((kinds, counts))
}
