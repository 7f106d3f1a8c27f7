//! All events a trace may hold, by the number records carry.

use std::fmt::Display;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::ftrace::fields::u16_at;
use crate::ftrace::format::{EventFormat, name_and_id};
use crate::ftrace::plan::{Action, Plan};
use crate::ftrace::stacks::Symbols;

/// One event of the traced kernel.
#[derive(Clone)]
pub struct KnownEvent {
    pub name: String,
    pub plan: Plan,
    /// See [`Plan::rank`].
    pub rank: u8,
    /// Yields events; the others are counted.
    pub wanted: bool,
}

/// Events by `common_type`.
#[derive(Clone)]
pub struct Catalogue {
    events: Vec<KnownEvent>,
    /// From `common_type` to a place in `events`; 0 for the unknown.
    index: Vec<u16>,
    type_at: usize,
    /// The kernel's functions, where stacks were recorded.
    symbols: Arc<Symbols>,
}

/// The name under which records of no described event are counted.
pub const UNKNOWN: &str = "unknown";

/// Builds a [`Catalogue`] format by format.
pub struct Builder {
    catalogue: Catalogue,
    type_at: Option<usize>,
    release: String,
}

impl Builder {
    /// `release` is the kernel's, or empty.
    pub fn new(release: &str) -> Self {
        let unknown = KnownEvent {
            name: UNKNOWN.to_string(),
            plan: Plan::ignore(),
            rank: 3,
            wanted: false,
        };
        Self {
            catalogue: Catalogue {
                events: vec![unknown],
                index: vec![0; 1 << 16],
                type_at: 0,
                symbols: Arc::default(),
            },
            type_at: None,
            release: release.to_string(),
        }
    }

    /// Adds the event described by the text of a `format` file.
    pub fn add(&mut self, system: &str, text: &str, place: impl Display + Copy) -> Result<()> {
        let (name, id) = name_and_id(text, place)?;
        if self.catalogue.index[usize::from(id)] != 0 {
            // Two texts for one number: a kernel describes each event once, and trace-cmd keeps the
            // first.
            return Ok(());
        }
        let plan = if Plan::wants(system, name) {
            let format = EventFormat::parse(text, place)?;
            self.check_type(&format, place)?;
            Plan::compile(system, &format, &self.release).map_err(|error| error.at(place))?
        } else {
            Plan::ignore()
        };
        let events = &mut self.catalogue.events;
        let Ok(slot) = u16::try_from(events.len()) else {
            return Err(Error::format(
                format!("{place}: more than 65535 events described"),
                "at most as many as there are event numbers",
                "record the trace again",
            ));
        };
        self.catalogue.index[usize::from(id)] = slot;
        let wanted = !matches!(plan.action, Action::Ignore);
        events.push(KnownEvent {
            name: name.to_string(),
            rank: plan.rank(),
            plan,
            wanted,
        });
        Ok(())
    }

    /// Records are distinguished before their layout is known, so the type must stand where every
    /// other event has it.
    fn check_type(&mut self, format: &EventFormat, place: impl Display) -> Result<()> {
        let found = match format.field("common_type") {
            Some(field) if field.size == 2 => field.offset,
            _ => {
                return Err(Error::format(
                    format!(
                        "{place}: the format of {} has no 2-byte `common_type`",
                        format.name
                    ),
                    "the common fields that Linux puts before every event",
                    "record the trace again",
                ));
            }
        };
        let expected = *self.type_at.get_or_insert(found);
        if found != expected {
            return Err(Error::format(
                format!("{place}: `common_type` of {} at byte {found}", format.name),
                format!("byte {expected}, as in the other events"),
                "record the trace again",
            ));
        }
        self.catalogue.type_at = found;
        Ok(())
    }

    /// The kernel's functions.
    pub fn with_symbols(mut self, symbols: Symbols) -> Self {
        self.catalogue.symbols = Arc::new(symbols);
        self
    }

    pub fn finish(self) -> Catalogue {
        self.catalogue
    }
}

impl Catalogue {
    /// The place in [`Catalogue::events`] of a record's event; None if the
    /// record is too short to tell.
    #[inline(always)]
    pub fn find<const BIG: bool>(&self, data: &[u8]) -> Option<u16> {
        if data.len() < self.type_at + 2 {
            return None;
        }
        let id = u16_at::<BIG>(data, self.type_at);
        self.index.get(usize::from(id)).copied()
    }

    pub fn symbols(&self) -> Arc<Symbols> {
        Arc::clone(&self.symbols)
    }

    /// The same, with nothing to be read from switches but their number.
    pub fn without_switches(&self) -> Self {
        let mut changed = self.clone();
        for known in &mut changed.events {
            if known.name == "sched_switch" {
                known.plan = Plan::ignore();
                known.wanted = false;
            }
        }
        changed
    }

    pub fn events(&self) -> &[KnownEvent] {
        &self.events
    }

    /// Is an event of this name described?
    pub fn describes(&self, name: &str) -> bool {
        self.events
            .iter()
            .any(|known| known.wanted && known.name == name)
    }
}
