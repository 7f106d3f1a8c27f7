//! One input through a decoder and the whole pass, and what must hold of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use schedscope_decode::{self as decode, Options};
use schedscope_ground::error::{Error, Result};
use schedscope_model::event::{Event, EventSink};
use schedscope_model::time::FAR;
use schedscope_trace::pipeline::Pipeline;
use schedscope_trace::store::MemoryStore;
use schedscope_trace::summary::TraceJson;

use crate::case::Case;
use crate::objects;

/// A second for each 60 kB, and one to start with.
const NS_PER_BYTE: u64 = 1_000_000_000 / 60_000;
const START_NS: u64 = 1_000_000_000;
/// Ten times the input, and 200 MB.
const MEMORY_TIMES: u64 = 10;
const MEMORY_START: u64 = 200 << 20;
/// Longer sentences are not read.
const LONGEST_ERROR: usize = 4000;

/// What came of an input that broke nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Read,
    Refused,
}

/// What an input broke: a name for what it has in common with others, and the details.
#[derive(Debug, Clone)]
pub struct Finding {
    pub signature: String,
    pub details: String,
}

impl Finding {
    fn new(signature: impl Into<String>, details: impl Into<String>) -> Self {
        Self {
            signature: signature.into(),
            details: details.into(),
        }
    }
}

/// Where the last panic was.
static PANIC: Mutex<Option<(String, String)>> = Mutex::new(None);

/// Panics are kept instead of printed.
pub fn keep_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(String::new, |place| {
            let file = place.file().rsplit("src/").next().unwrap_or_default();
            format!("{}-{}", file.replace(['/', '.'], "-"), place.line())
        });
        if let Ok(mut panic) = PANIC.lock() {
            panic.get_or_insert((place, info.to_string()));
        }
    }));
}

/// Runs one case, written to `path`.
pub fn run(case: &Case, path: &Path) -> std::result::Result<Outcome, Finding> {
    reset_peak();
    let begin = processor_ns();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        if objects::is_one(path) {
            objects::simulate(path).map(|()| Checked { wrong: None })
        } else {
            convert(path, case)
        }
    }));
    let took = processor_ns() - begin;
    let outcome = match outcome {
        Err(_) => {
            let panic = PANIC.lock().ok().and_then(|mut panic| panic.take());
            let (place, text) = panic.unwrap_or_default();
            return Err(Finding::new(format!("panic-{place}"), text));
        }
        Ok(Ok(Checked { wrong: Some(wrong) })) => return Err(wrong),
        Ok(Ok(_)) => Outcome::Read,
        Ok(Err(error)) => {
            let text = error.to_string();
            if text.is_empty() || text.len() > LONGEST_ERROR || text.chars().any(char::is_control) {
                return Err(Finding::new("sentence", text));
            }
            Outcome::Refused
        }
    };
    let size = case.size() as u64;
    let (limit, peak) = (START_NS + size * NS_PER_BYTE, peak_bytes());
    if took > limit {
        let details = format!("{:.1} s for {size} bytes", took as f64 / 1e9);
        return Err(Finding::new("slow", details));
    }
    if peak > MEMORY_START + MEMORY_TIMES * size {
        let details = format!("{} MB for {size} bytes", peak >> 20);
        return Err(Finding::new("memory", details));
    }
    Ok(outcome)
}

/// The pass, with a look at every event on its way.
struct Watched<'a> {
    pipeline: Pipeline<'a, MemoryStore>,
    last: i64,
    unordered: Option<String>,
}

impl EventSink for Watched<'_> {
    fn event(&mut self, event: &Event) -> Result<()> {
        self.pipeline.event(event)?;
        let ts = match *event {
            // Sent when they end.
            Event::Irq { ts, dur, .. } => ts.saturating_add(dur),
            _ => event.ts(),
        };
        // Which records were dropped before a line is known at that line only.
        let late = matches!(event, Event::Loss { .. });
        if ts < self.last && !late && self.unordered.is_none() {
            self.unordered = Some(format!("{event:?} after {}", self.last));
        }
        self.last = self.last.max(ts);
        Ok(())
    }

    fn progress(&mut self, done: u64, total: u64) -> Result<()> {
        self.pipeline.progress(done, total)
    }
}

struct Checked {
    wrong: Option<Finding>,
}

fn convert(path: &Path, case: &Case) -> Result<Checked> {
    let mut options = Options::default();
    for (name, value) in &case.options {
        options.given.insert((*name).into(), (*value).into());
    }
    let (format, mut source) = decode::open(path, &options)?;
    let info = source.info().clone();
    let mut store = MemoryStore::default();
    let mut progress = |_, _| Ok(());
    let mut watched = Watched {
        pipeline: Pipeline::new(&info, &mut store, &mut progress),
        last: i64::MIN,
        unordered: None,
    };
    let end = source.run(&mut watched)?;
    let Watched {
        mut pipeline,
        unordered,
        ..
    } = watched;
    pipeline.last_names(&end.last_names);
    let summary = pipeline.finish(&info)?;
    let wrong = unordered
        .map(|details| Finding::new(format!("order-{}", format.replace(' ', "-")), details))
        .or_else(|| tiles(&summary))
        .or_else(|| times(&store));
    let both = summary.reconstruction.as_ref().zip(summary.window);
    let hides = both.is_some_and(|(one, (_, end))| one.unreported(end).shows_loss());
    let json = TraceJson::new(path, format, &info, &end, &summary, &[], hides);
    let json = json.text(&Default::default());
    if json.is_empty() {
        return Err(Error::usage("no trace.json", "", ""));
    }
    Ok(Checked { wrong })
}

/// Every CPU's time is running, idle or unknown, and none of it is negative.
fn tiles(summary: &schedscope_trace::pipeline::Summary) -> Option<Finding> {
    let (begin, end) = summary.window?;
    if begin < -FAR || end > FAR || begin > end {
        return Some(Finding::new("window", format!("{begin} to {end}")));
    }
    let cpus = summary.reconstruction.as_ref()?.cpus();
    cpus.iter().enumerate().find_map(|(cpu, totals)| {
        let parts = [totals.running, totals.idle, totals.unknown];
        let sum = parts.iter().map(|&part| i128::from(part)).sum::<i128>();
        (parts.iter().any(|&part| part < 0) || sum != i128::from(end - begin)).then(|| {
            let details = format!("CPU {cpu}: {parts:?} in {begin} to {end}");
            Finding::new("tiles", details)
        })
    })
}

/// No length of time is negative.
fn times(store: &MemoryStore) -> Option<Finding> {
    let lengths = [
        ("states", "dur"),
        ("waits", "wait"),
        ("waits", "placement"),
        ("waits", "queue"),
        ("irqs", "dur"),
    ];
    for (table, column) in lengths {
        for batch in store.tables.get(table).into_iter().flatten() {
            let Some(column_of) = batch.column_by_name(column) else {
                continue;
            };
            let Some(values) = column_of.as_primitive_opt::<Int64Type>() else {
                continue;
            };
            if let Some(row) = values.iter().position(|value| value.is_some_and(|v| v < 0)) {
                let details = format!("row {row}: {}", values.value(row));
                return Some(Finding::new(format!("negative-{table}-{column}"), details));
            }
        }
    }
    None
}

/// Time that this thread was on a processor: others' load does not count.
fn processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split(' ').next().and_then(|ns| ns.parse().ok());
    first.unwrap_or(0)
}

/// The peak of memory is counted from here on.
fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").ok();
}

fn peak_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
