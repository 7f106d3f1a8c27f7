//! Which event a sample belongs to, and how to read it.

use rustc_hash::FxHashMap;

use super::features::Features;
use super::header::{Attr, TYPE_TRACEPOINT};
use super::records::{COMM, EXIT, FORK, LATEST, LOST, Layout, Record, SAMPLE};
use crate::error::{Error, Result};
use crate::ftrace::format::EventFormat;
use crate::ftrace::plan::{Action, Plan};

/// One recorded event, ready to read.
pub struct EventPlan {
    /// `sched:sched_switch`; empty for what is not a tracepoint.
    pub name: String,
    pub layout: Layout,
    /// None: counted, not decoded.
    pub tracepoint: Option<Plan>,
    /// Does it say where a thread is?
    pub places: bool,
}

/// Everything that is needed to read a record.
pub struct Session {
    pub events: Vec<EventPlan>,
    ids: Ids,
    /// Where every sample has its id, when more than one event was recorded.
    id_at: Option<usize>,
    /// COMM records report renames and execs.
    pub comm_records: bool,
    pub exit_tracepoint: bool,
    pub exec_tracepoint: bool,
}

/// Sample ids run from one number on; a table beats a hash.
enum Ids {
    Table { base: u64, events: Vec<u16> },
    Map(FxHashMap<u64, u16>),
}

const NO_EVENT: u16 = u16::MAX;

impl Ids {
    fn new(attrs: &[Attr]) -> Self {
        let pairs = || {
            attrs
                .iter()
                .zip(0u16..)
                .flat_map(|(attr, event)| attr.ids.iter().map(move |&id| (id, event)))
        };
        let low = pairs().map(|(id, _)| id).min().unwrap_or(0);
        let high = pairs().map(|(id, _)| id).max().unwrap_or(0);
        if high - low >= 1 << 20 {
            return Self::Map(pairs().collect());
        }
        let mut events = vec![NO_EVENT; usize::try_from(high - low).unwrap_or(0) + 1];
        for (id, event) in pairs() {
            events[usize::try_from(id - low).unwrap_or(0)] = event;
        }
        Self::Table { base: low, events }
    }

    #[inline]
    fn get(&self, id: u64) -> Option<u16> {
        match self {
            Self::Table { base, events } => {
                let at = usize::try_from(id.checked_sub(*base)?).ok()?;
                events.get(at).copied().filter(|&event| event != NO_EVENT)
            }
            Self::Map(map) => map.get(&id).copied(),
        }
    }
}

impl Session {
    pub fn new(attrs: &[Attr], features: &Features) -> Result<Self> {
        if attrs.is_empty() || attrs.len() >= usize::from(NO_EVENT) {
            return Err(Error::format(
                format!("it describes {} recorded events", attrs.len()),
                "one or more",
                "record scheduler events: `perf sched record`",
            ));
        }
        let mut formats: FxHashMap<u64, (&str, EventFormat)> = FxHashMap::default();
        for f in &features.formats {
            let format = EventFormat::parse(&f.text, "its tracepoints")?;
            formats.insert(u64::from(format.id), (f.system.as_str(), format));
        }
        let mut events = Vec::with_capacity(attrs.len());
        let mut unnamed = 0;
        for attr in attrs {
            let mut plan = EventPlan {
                name: String::new(),
                layout: Layout::new(attr),
                tracepoint: None,
                places: false,
            };
            if attr.kind == TYPE_TRACEPOINT {
                match formats.get(&attr.config) {
                    Some((system, format)) => {
                        plan.name = format!("{system}:{}", format.name);
                        let compiled = Plan::compile(system, format, &features.release)?;
                        let wanted = !matches!(compiled.action, Action::Ignore);
                        plan.places = matches!(
                            compiled.action,
                            Action::Switch(_) | Action::Wake { .. } | Action::Migrate { .. }
                        );
                        plan.tracepoint = wanted.then_some(compiled);
                    }
                    None => unnamed += 1,
                }
            }
            if plan.tracepoint.is_some() {
                let name = &plan.name;
                if !plan.layout.has_raw() {
                    return Err(unusable(
                        name,
                        "no raw data (only a count of how often it came)",
                        "-R",
                    ));
                }
                if !plan.layout.has_time_and_cpu() {
                    return Err(unusable(
                        name,
                        "no time or no CPU number",
                        "-a -T --sample-cpu",
                    ));
                }
            }
            events.push(plan);
        }
        if unnamed > 0 && formats.is_empty() {
            return Err(Error::format(
                "the formats of its tracepoints are missing (feature TRACING_DATA)",
                "a file that carries them, as every whole file of perf record does",
                "record again and let perf finish the file",
            ));
        }
        if !events.iter().any(|event| event.tracepoint.is_some()) {
            let names: Vec<&str> = events
                .iter()
                .map(|e| e.name.as_str())
                .filter(|n| !n.is_empty())
                .collect();
            return Err(Error::format(
                format!(
                    "it holds no scheduler events (tracepoints in it: {})",
                    if names.is_empty() {
                        "none".to_owned()
                    } else {
                        names.join(", ")
                    }
                ),
                "sched:sched_switch and sched:sched_waking",
                "record them: `perf sched record -k CLOCK_MONOTONIC COMMAND`",
            ));
        }
        let id_at = if attrs.len() == 1 {
            None
        } else {
            let at = events[0].layout.id_at();
            if at.is_none() || events.iter().any(|event| event.layout.id_at() != at) {
                return Err(Error::format(
                    "its samples do not say which of the recorded events they belong to",
                    "sample ids at one place in all of them",
                    "record with a perf newer than 3.12",
                ));
            }
            at
        };
        let mut session = Self {
            ids: Ids::new(attrs),
            events,
            id_at,
            comm_records: attrs.iter().any(Attr::comm),
            exit_tracepoint: false,
            exec_tracepoint: false,
        };
        session.exit_tracepoint = session.records(|action| matches!(action, Action::Exit { .. }));
        session.exec_tracepoint = session.records(|action| matches!(action, Action::Exec { .. }));
        Ok(session)
    }

    /// Was an event recorded that does this?
    pub fn records(&self, what: fn(&Action) -> bool) -> bool {
        self.events
            .iter()
            .filter_map(|event| event.tracepoint.as_ref())
            .any(|plan| what(&plan.action))
    }

    /// Number of the event that a sample belongs to.
    #[inline]
    pub fn event_of(&self, record: Record<'_>) -> Option<usize> {
        match self.id_at {
            None => Some(0),
            Some(at) => self.ids.get(record.0.u64_at(at)?).map(usize::from),
        }
    }

    /// The layout of the trailers of records that are not samples.
    fn any_layout(&self) -> &Layout {
        &self.events[0].layout
    }

    pub fn trailer(&self, record: Record<'_>) -> Option<(u64, Option<u32>)> {
        self.any_layout().trailer(record)
    }

    /// The sample id of a record that is no sample.
    pub fn trailer_id(&self, record: Record<'_>) -> Option<u64> {
        self.any_layout().trailer_id(record)
    }

    /// Time and event of a record that has its place in the order of events;
    /// None for everything else.
    #[inline]
    pub fn place(&self, record: Record<'_>) -> Option<RecordPosition> {
        match record.kind() {
            SAMPLE => {
                let event = self.event_of(record)?;
                self.events[event].place(record, event)
            }
            // FORK and EXIT: pid, ppid, tid, ptid, time.
            FORK | EXIT => RecordPosition::of_other(record.0.u64_at(24)?),
            COMM | LOST => RecordPosition::of_other(self.trailer(record)?.0),
            _ => None,
        }
    }
}

/// Where a record stands among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordPosition {
    pub ts: u64,
    pub rank: u8,
    /// The event that a sample belongs to.
    pub event: usize,
}

impl RecordPosition {
    /// Of a record that is no sample; time 0 is none, and so is one beyond all clocks.
    fn of_other(ts: u64) -> Option<Self> {
        (1..=LATEST).contains(&ts).then_some(Self {
            ts,
            rank: 3,
            event: 0,
        })
    }
}

impl EventPlan {
    pub fn switches(&self) -> bool {
        let plan = self.tracepoint.as_ref();
        plan.is_some_and(|plan| matches!(plan.action, Action::Switch(_)))
    }

    /// The place of a sample of this event, which is number `event`.
    #[inline]
    pub fn place(&self, record: Record<'_>, event: usize) -> Option<RecordPosition> {
        let rank = self.tracepoint.as_ref()?.rank();
        Some(RecordPosition {
            ts: self.layout.time(record)?,
            rank,
            event,
        })
    }
}

fn unusable(name: &str, lack: &str, options: &str) -> Error {
    Error::format(
        format!("the samples of {name} carry {lack}"),
        "raw data, time and CPU in every sample, as `perf sched record` asks for",
        format!(
            "record again with `perf record {options} -e 'sched:*' ...` or `perf sched record`"
        ),
    )
}
