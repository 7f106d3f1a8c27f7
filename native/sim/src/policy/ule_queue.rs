//! ULE's queue of one CPU: real time, calendar, idle class, and what goes with them.
//!
//! The calendar's 64 lists turn: `idx` is where insertion counts from, `ridx` where
//! threads are taken out. Each tick moves `idx` on, at most one ahead of `ridx`.
use super::super::machine::Cpu;
use super::super::queue::{Levels, Links};
use super::super::workload::Tid;
use super::super::world::World;
use super::freebsd_ast::Asked;

pub(super) const LISTS: usize = 64;
const RQ_PPQ: i64 = 4;
pub(super) const MAX_TIMESHARE: i64 = 223;
/// The idle thread's priority: of a CPU that has nothing.
pub(super) const NOTHING: i64 = 255;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Row {
    #[default]
    Realtime,
    Calendar,
    Idle,
}

/// How a thread enters a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enter {
    /// By its priority, behind its equals.
    Plain,
    /// Preempted inside the kernel: at the head, in the calendar of the list in turn.
    Preempted,
    /// Its priority was raised while it waited: in the calendar the list in turn.
    Raised,
}

/// A thread's place, once it is queued.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QueuePosition {
    row: Row,
    level: u16,
}

impl QueuePosition {
    pub(super) fn level(self) -> u16 {
        self.level
    }
}

#[derive(Debug, Clone)]
pub(super) struct Tdq {
    realtime: Levels,
    calendar: Levels,
    idle: Levels,
    idx: usize,
    ridx: usize,
    pub curr: Option<Tid>,
    pub idling: bool,
    pub asked: Asked,
    /// An interrupt that asks for preemption is under way.
    pub notified: bool,
    /// Switches in this tick and the last, and their sum when the idle thread last
    /// looked for work.
    pub switches: i64,
    pub old_switches: i64,
    pub looked: i64,
    /// The idle thread was left waiting for an interrupt, not looking for work.
    pub waits: bool,
    /// Statistics ticks up to the last one handled.
    pub ticks: i64,
}

impl Tdq {
    pub(super) fn new() -> Self {
        Self {
            realtime: Levels::new(LISTS),
            calendar: Levels::new(LISTS),
            idle: Levels::new(LISTS),
            idx: 0,
            ridx: 0,
            curr: None,
            idling: true,
            asked: Asked::default(),
            notified: false,
            switches: 0,
            old_switches: 0,
            looked: 0,
            waits: true,
            ticks: 0,
        }
    }

    /// Queue `t`; `batch` is the best priority of the calendar.
    pub(super) fn insert(
        &mut self,
        links: &mut Links,
        t: Tid,
        prio: i64,
        batch: i64,
        enter: Enter,
    ) -> QueuePosition {
        let n = LISTS as i64;
        let (row, level) = if prio < batch {
            (Row::Realtime, (prio / RQ_PPQ) as usize)
        } else if prio > MAX_TIMESHARE {
            (Row::Idle, (prio / RQ_PPQ) as usize)
        } else if enter == Enter::Plain {
            let range = MAX_TIMESHARE - batch + 1;
            let slot = ((n * (prio - batch) / range + self.idx as i64) % n) as usize;
            // While the removal index lags, its slot is not for new ones.
            let full = self.ridx != self.idx && slot == self.ridx;
            (Row::Calendar, (slot + LISTS - usize::from(full)) % LISTS)
        } else {
            (Row::Calendar, self.ridx)
        };
        let list = self.row(row);
        if enter == Enter::Preempted {
            list.push_front(links, level, t);
        } else {
            list.push_back(links, level, t);
        }
        QueuePosition {
            row,
            level: level as u16,
        }
    }

    pub(super) fn remove(&mut self, links: &mut Links, t: Tid, at: QueuePosition) {
        let level = usize::from(at.level);
        self.row(at.row).remove(links, level, t);
        if at.row == Row::Calendar
            && self.idx != self.ridx
            && level == self.ridx
            && self.calendar.list(level).is_empty()
        {
            self.ridx = (self.ridx + 1) % LISTS;
        }
    }

    fn row(&mut self, row: Row) -> &mut Levels {
        match row {
            Row::Realtime => &mut self.realtime,
            Row::Calendar => &mut self.calendar,
            Row::Idle => &mut self.idle,
        }
    }

    /// The thread that would run next.
    pub(super) fn first(&self) -> Option<Tid> {
        if let Some((_, t)) = self.realtime.front() {
            return Some(t);
        }
        let slot = self
            .calendar
            .first_from(self.ridx)
            .or_else(|| self.calendar.best());
        if let Some(slot) = slot {
            return self.calendar.list(slot).front();
        }
        self.idle.front().map(|(_, t)| t)
    }

    /// The thread that `thief` may take: the first of the real-time row, else of the calendar, else
    /// of the idle row. In the calendar the very first thread is skipped in any case; where the
    /// search wraps it begins again at list 0 and finds that thread like any other.
    pub(super) fn stealable(
        &self,
        links: &Links,
        w: &World,
        thief: Cpu,
        modern: bool,
    ) -> Option<Tid> {
        let may = |t: &Tid| w.allowed(*t, thief);
        let threads = |row: &Levels| row.iter(links).map(|(_, t)| t).find(may);
        if let Some(t) = threads(&self.realtime) {
            return Some(t);
        }
        let batch = if modern {
            self.stealable_batch(links, w, thief)
        } else {
            self.stealable_batch_2011(links, w, thief)
        };
        batch.or_else(|| threads(&self.idle))
    }

    /// The calendar and where it is at.
    pub(super) fn calendar(&self) -> (&Levels, usize) {
        (&self.calendar, self.ridx)
    }

    fn stealable_batch(&self, links: &Links, w: &World, thief: Cpu) -> Option<Tid> {
        let may = |t: &Tid| w.allowed(*t, thief);
        let threads = |row: &Levels| row.iter(links).map(|(_, t)| t).find(may);
        let from = self.ridx;
        let mut turn = self.calendar.iter_from(links, from);
        let passed = turn.next();
        turn.find(may).or_else(|| {
            if from != 0 && passed.is_some() {
                threads(&self.calendar)
            } else if from != 0 {
                // Nothing from here on: the first from list 0 is the one skipped.
                let mut all = self.calendar.iter(links).map(|(_, t)| t);
                let first = all.next();
                all.find(may).or(first.filter(may))
            } else {
                passed.filter(may)
            }
        })
    }

    /// A statistics tick turns the calendar and the counts of switches.
    pub(super) fn turn(&mut self, load: u32) {
        self.old_switches = self.switches;
        self.switches = i64::from(load);
        if self.idx == self.ridx {
            self.idx = (self.idx + 1) % LISTS;
            if self.calendar.list(self.ridx).is_empty() {
                self.ridx = self.idx;
            }
        }
    }
}
