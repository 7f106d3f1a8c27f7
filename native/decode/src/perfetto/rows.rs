//! The events of one bundle as they wait for their turn.

use crate::merge;
use crate::model::event::{Comm, Event, Party, State, WakeKind};

/// An event as it waits for its turn, a third of an [`Event`] in size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) ts: i64,
    /// The next thread, or the woken one.
    pub(super) tid: u32,
    pub(super) prio: Option<i16>,
    /// Number of its name.
    pub(super) name: u32,
    pub(super) form: Form,
}

/// Where events of a bundle are damaged: from the one before to the one after.
pub type Hole = (i64, i64);

#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    /// From the compact form. `prev` None: unknown.
    Switch {
        prev: Option<u32>,
        state: State,
        preempted: Option<bool>,
    },
    Wake {
        kind: WakeKind,
        waker: Option<u32>,
        current: Option<u32>,
        target: Option<u16>,
    },
    /// Number of the event among the others.
    Other(u32),
}

/// The events of one bundle in time order; where both have one at a time, full
/// events come before compact ones.
#[derive(Debug, Default)]
pub struct Bundle {
    pub(super) cpu: u16,
    /// Its compact wakings are those of all CPUs.
    pub(super) wakings_of_all: bool,
    pub(super) full: Vec<Row>,
    pub(super) compact: Vec<Row>,
    others: Vec<Event>,
    pub(super) names: Vec<Comm>,
    /// In order of time.
    pub(super) holes: Vec<Hole>,
    /// How many of each have been taken.
    full_at: usize,
    compact_at: usize,
    /// Is a full event next, and where does it stand?
    next: Option<(bool, merge::Head)>,
}

impl Bundle {
    pub fn clear(&mut self) {
        self.full.clear();
        self.compact.clear();
        self.others.clear();
        self.names.clear();
        self.holes.clear();
        (self.full_at, self.compact_at, self.next) = (0, 0, None);
    }

    /// Does a full event say that there is such a thread?
    #[cold]
    pub(super) fn names_in_full(&self, tid: u32) -> bool {
        self.full.iter().any(|row| match row.form {
            Form::Wake { current, .. } => row.tid == tid || current == Some(tid),
            Form::Other(number) => match self.others.get(number as usize) {
                Some(Event::Fork { parent, child, .. }) => parent.tid == tid || child.tid == tid,
                Some(Event::Exit { who, .. } | Event::Migrate { who, .. }) => who.tid == tid,
                Some(Event::Rename { tid: renamed, .. }) => *renamed == tid,
                _ => false,
            },
            Form::Switch { .. } => false,
        })
    }

    /// `ts`: its place in the order, which is not its own time for events reported at their end.
    pub(super) fn push_other(&mut self, ts: i64, event: Event) {
        let form = Form::Other(self.others.len() as u32);
        self.others.push(event);
        self.full.push(Row {
            ts,
            tid: 0,
            prio: None,
            name: 0,
            form,
        });
    }

    pub(super) fn begin(&mut self) {
        self.holes.sort_unstable();
        for rows in [&mut self.full, &mut self.compact] {
            // Stable: equal times keep the order of the writer.
            rows.sort_by_key(|row| row.ts);
        }
        self.find_next();
    }

    /// How many switches, wakeups, wakings and wakeups of new threads are earlier than `ts`.
    pub fn kinds_before(&self, ts: i64) -> [u64; 4] {
        let mut counts = [0; 4];
        for row in self.full.iter().chain(&self.compact) {
            if row.ts < ts {
                let kind = match row.form {
                    Form::Switch { .. } => 0,
                    Form::Wake { kind, .. } => match kind {
                        WakeKind::Enqueued => 1,
                        WakeKind::Waking => 2,
                        WakeKind::New => 3,
                    },
                    Form::Other(number) => match self.others.get(number as usize) {
                        Some(Event::Switch { .. }) => 0,
                        _ => continue,
                    },
                };
                counts[kind] += 1;
            }
        }
        counts
    }

    /// When the first switch is, if a full event and away from the idle thread.
    pub fn first_from_idle(&self) -> Option<i64> {
        let switches = self.others.iter().filter_map(|event| match *event {
            Event::Switch { ts, ref prev, .. } => Some((ts, prev.tid)),
            _ => None,
        });
        let (ts, prev) = switches.min()?;
        let compact = |row: &Row| row.ts < ts && matches!(row.form, Form::Switch { .. });
        (prev == 0 && !self.compact.iter().any(compact)).then_some(ts)
    }

    /// Passes over what is earlier than `ts`; how many that were.
    pub fn skip_before(&mut self, ts: i64) -> u64 {
        if self.next.is_none_or(|(_, head)| head.ts >= ts) {
            return 0;
        }
        self.full_at = self.full.partition_point(|row| row.ts < ts);
        self.compact_at = self.compact.partition_point(|row| row.ts < ts);
        self.find_next();
        (self.full_at + self.compact_at) as u64
    }

    #[inline]
    fn find_next(&mut self) {
        let head = |row: &Row| merge::Head {
            ts: row.ts,
            rank: self.rank(row.form),
        };
        let full = self.full.get(self.full_at);
        let compact = self.compact.get(self.compact_at);
        self.next = match (full, compact) {
            (Some(full), Some(compact)) if full.ts <= compact.ts => Some((true, head(full))),
            (_, Some(compact)) => Some((false, head(compact))),
            (Some(full), None) => Some((true, head(full))),
            (None, None) => None,
        };
    }

    /// Among the events of other CPUs at one time.
    #[inline]
    fn rank(&self, form: Form) -> u8 {
        match form {
            Form::Switch { .. } => 0,
            Form::Wake { .. } => 1,
            Form::Other(number) => match self.others.get(number as usize) {
                Some(Event::Switch { .. }) => 0,
                Some(Event::Migrate { .. }) => 2,
                _ => 3,
            },
        }
    }

    /// Takes the next hole, if it begins no later than `ts`.
    #[inline]
    pub fn take_hole(&mut self, ts: i64) -> Option<Hole> {
        let first = *self.holes.first()?;
        (first.0 <= ts).then(|| self.holes.remove(0))
    }

    #[inline]
    pub fn head(&self) -> Option<merge::Head> {
        self.next.map(|(_, head)| head)
    }

    /// The next event.
    #[inline]
    pub fn take(&mut self) -> Option<Event> {
        let row = if self.next?.0 {
            self.full_at += 1;
            self.full.get(self.full_at - 1)
        } else {
            self.compact_at += 1;
            self.compact.get(self.compact_at - 1)
        };
        let Row {
            ts,
            tid,
            prio,
            name,
            form,
        } = *row?;
        self.find_next();
        let comm = self.names.get(name as usize).copied().unwrap_or_default();
        let who = Party {
            tid,
            idle: tid == 0,
            prio,
            comm,
            ..Party::default()
        };
        let cpu = self.cpu;
        Some(match form {
            Form::Switch {
                prev,
                state: prev_state,
                preempted,
            } => {
                let prev = prev.map_or_else(Party::unknown, |tid| Party {
                    tid,
                    idle: tid == 0,
                    ..Party::default()
                });
                Event::Switch {
                    ts,
                    cpu,
                    prev,
                    prev_state,
                    preempted,
                    next: who,
                }
            }
            Form::Wake {
                kind,
                waker,
                current,
                target: target_cpu,
            } => Event::Wakeup {
                ts,
                // Where one of all CPUs was raised is not known. (Full events name the thread that
                // ran there.)
                cpu: if self.wakings_of_all && current.is_none() {
                    target_cpu.unwrap_or(cpu)
                } else {
                    cpu
                },
                kind,
                waker,
                current,
                who,
                target_cpu,
            },
            Form::Other(number) => self.others.get(number as usize).copied()?,
        })
    }
}
