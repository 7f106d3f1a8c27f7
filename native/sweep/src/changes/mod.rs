//! The table of states as one list of changes in order of time.
//!
//! Rows come in order of their ends. Where a thread's next interval adjoins, its start is the
//! change at that end, so that nothing has to be sorted; a CPU's idle interval is noted with the
//! change that left the CPU. What does not adjoin (a thread's first interval, a gap) goes to a
//! short list of its own, and so do rows that come late: where events were lost, what a thread did
//! before is known only at its next event.
//!
//! The list of a long table is not held: `blocks` makes it again, a block at a time.
mod approaches;
pub mod blocks;

use arrow_array::RecordBatch;

pub use approaches::Approach;
use approaches::Approaches;

use super::CHECK_EVERY;
use super::list::{Change, List};
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::hooks::check_interrupt;
use crate::states::{NOWHERE, RUNNABLE, RUNNING, Row, UNKNOWN, Want, each};
use blocks::{Blocks, Links};

/// What a thread does, as far as CPUs are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Presence {
    /// It sleeps, or nothing is known of it.
    Away = 0,
    /// Runnable, on a queue.
    Waiting = 1,
    Running = 2,
}

/// What a thread does, where (`NOWHERE` for no known queue), and a number of
/// `TAGS` at most that the reader gave it by thread and priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub doing: Presence,
    pub cpu: u16,
    pub tag: u16,
}

pub const AWAY: Position = Position {
    doing: Presence::Away,
    cpu: NOWHERE,
    tag: 0,
};

/// Tags have 13 bits.
pub const TAGS: u16 = 1 << 13;
/// After this change the CPU that was left idles.
const IDLES: u32 = 1 << 31;

impl Position {
    fn pack(self) -> u32 {
        self.doing as u32 | u32::from(self.cpu) << 2 | u32::from(self.tag % TAGS) << 18
    }

    fn unpack(word: u32) -> Self {
        let doing = match word & 3 {
            1 => Presence::Waiting,
            2 => Presence::Running,
            _ => Presence::Away,
        };
        Self {
            doing,
            cpu: (word >> 2) as u16,
            tag: (word >> 18) as u16 % TAGS,
        }
    }
}

/// Hears of changes in order of time.
pub trait Sweep {
    /// A thread stopped one thing and began another; never an idle one.
    fn change(&mut self, t: i64, utid: u32, from: Position, to: Position);
    /// A CPU begins to idle, or stops.
    fn idle(&mut self, t: i64, cpu: u16, begins: bool);
    /// The changes of the instant `t` are complete.
    fn instant(&mut self, t: i64);
    /// Whether it needs no more of them. It may still get some, and their sender ends with
    /// `Error::enough`.
    fn ended(&self) -> bool {
        false
    }
}

/// From `t` on a thread runs and waits at this priority.
#[derive(Debug, Clone, Copy)]
pub struct Reprio {
    pub t: i64,
    pub utid: u32,
    pub prio: Option<i16>,
}

/// All changes of a table.
pub struct Changes {
    list: List,
    /// In place of the list, where that is too long to be held.
    pub(super) blocks: Option<Blocks>,
    /// Changes whose rows come after those of later ones, in order of time.
    pub(super) late: Vec<Change>,
    /// Begins that no end adjoins.
    begins: Vec<Change>,
    /// Where a thread's priority is another than before, in order of time; none is known before
    /// the first. Threads seldom change it, so it is no part of a `Change`.
    pub prios: Vec<Reprio>,
    /// When a thread of which nothing is known may be on a CPU's queue, in order of time.
    pub approaches: Vec<Approach>,
    /// One more than the highest utid.
    pub threads: usize,
    /// CPUs on which anybody ran or waited.
    pub cpus: Vec<u16>,
    /// Of the window, ns.
    pub length: i64,
    /// Idle threads have utids below.
    idle: u32,
    /// Threads' time runnable on a queue, and on no known one.
    pub placed: i64,
    pub unplaced: i64,
}

/// Of a place: it is one in the list of late changes.
pub const LATE: usize = 1 << (usize::BITS - 1);

/// The last row of a thread or CPU: when it ended, and where in the list.
#[derive(Clone, Copy)]
struct Last {
    until: i64,
    at: usize,
}

const NEVER: Last = Last {
    until: i64::MIN,
    at: 0,
};

/// A CPU, or `NOWHERE`: its last run, and whether anybody ran or waited there.
#[derive(Clone, Copy)]
struct Cpu {
    run: Last,
    used: bool,
}

const UNUSED: Cpu = Cpu {
    run: NEVER,
    used: false,
};

/// The priority at which a thread last ran or waited, and its tag there.
#[derive(Clone, Copy)]
struct LastPriority {
    /// `UNSEEN` before it ever did.
    prio: i32,
    tag: u16,
}

const UNSEEN: LastPriority = LastPriority {
    prio: i32::MAX,
    tag: 0,
};
/// No priority is known.
const NO_PRIO: i32 = i32::MIN;

/// Reads the table, batch by batch.
pub struct Reader {
    all: Changes,
    lives: Vec<Last>,
    /// By utid.
    known: Vec<LastPriority>,
    /// By number.
    cpus: Vec<Cpu>,
    approaches: Approaches,
    begin: i64,
    /// When the latest change is.
    latest: i64,
    /// Changes before those in the list at hand.
    base: usize,
    links: Links,
}

impl Reader {
    /// `idle`: the number of idle threads.
    pub fn new(window: (i64, i64), idle: u32) -> Result<Self> {
        let length = window
            .1
            .checked_sub(window.0)
            .filter(|length| *length >= 0)
            .ok_or_else(|| Error::internal("a window that ends before it begins"))?;
        Ok(Self {
            all: Changes {
                list: List::new(),
                blocks: None,
                late: Vec::new(),
                begins: Vec::new(),
                prios: Vec::new(),
                approaches: Vec::new(),
                threads: 0,
                cpus: Vec::new(),
                length,
                idle,
                placed: 0,
                unplaced: 0,
            },
            lives: Vec::new(),
            known: Vec::new(),
            cpus: vec![UNUSED; 1 << 16],
            approaches: Approaches::default(),
            begin: window.0,
            latest: i64::MIN,
            base: 0,
            links: Links::default(),
        })
    }

    /// The same, which is going to read so many rows and keep them all.
    pub fn with_room(mut self, rows: usize) -> Self {
        // A few more, for the gaps between changes. Memory that is not written to costs nothing,
        // and to outgrow it takes twice as much for a moment.
        self.all.list.reserve(rows + rows / 64);
        self
    }

    /// The same, of whose list only the block at hand is kept.
    pub(super) fn with_links(mut self, links: Links) -> Self {
        self.links = links;
        self
    }

    /// One more than the highest utid so far.
    pub(super) fn threads(&self) -> usize {
        self.lives.len()
    }

    pub(super) fn list(&mut self) -> &mut List {
        &mut self.all.list
    }

    /// Lets go of the list at hand; the number of changes so far.
    pub(super) fn next_block(&mut self) -> usize {
        self.base += self.all.list.len();
        self.all.list.clear();
        self.base
    }

    /// Lets go of what an earlier reading of the same rows found, too.
    pub(super) fn forget_found(&mut self) {
        self.all.late.clear();
        self.all.begins.clear();
        self.all.prios.clear();
        self.approaches = Approaches::default();
    }

    pub(super) fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    /// More rows; with `weights`, threads' classes and levels are their tags, and priorities are
    /// noted.
    pub fn read(&mut self, batch: &RecordBatch, weights: Option<&Weights>) -> Result<()> {
        self.all.list.reserve(batch.num_rows());
        let begin = self.begin;
        match weights {
            Some(weights) => {
                let want = Want {
                    prio: true,
                    ..Want::CPU
                };
                each(batch, begin, want, |row| {
                    self.cut(row, |reader, row| reader.tag(row, weights));
                    Ok(())
                })
            }
            None => each(batch, begin, Want::CPU, |row| {
                self.cut(row, |_, _| 0);
                Ok(())
            }),
        }
    }

    #[inline(always)]
    fn cut(&mut self, row: Row, tag: impl Fn(&mut Self, Row) -> u16) {
        let (ts, until) = (row.ts.max(0), row.until.min(self.all.length));
        if ts < until {
            let row = Row { ts, until, ..row };
            let tag = tag(self, row);
            self.add(row, tag);
        }
    }

    /// The row's tag; its priority is noted if it is news.
    #[inline(always)]
    fn tag(&mut self, row: Row, weights: &Weights) -> u16 {
        let who = row.utid as usize;
        let prio = row.prio.map_or(NO_PRIO, i32::from);
        let competes = row.competes();
        match self.known.get(who) {
            Some(known) if !competes | (known.prio == prio) => {
                if competes {
                    known.tag
                } else {
                    0
                }
            }
            _ => self.news(row, weights),
        }
    }

    #[cold]
    fn news(&mut self, row: Row, weights: &Weights) -> u16 {
        let Row {
            ts: t, utid, prio, ..
        } = row;
        let who = utid as usize;
        if self.known.len() <= who {
            self.known.resize(who + 1, UNSEEN);
        }
        if !row.competes() {
            return 0;
        }
        let known = &mut self.known[who];
        if prio.is_some() || known.prio != UNSEEN.prio {
            self.all.prios.push(Reprio { t, utid, prio });
        }
        *known = LastPriority {
            prio: prio.map_or(NO_PRIO, i32::from),
            tag: weights.tag(utid, prio),
        };
        known.tag
    }

    /// Whether a thread runs, waits or neither is as good as random from row to row: there
    /// is no branch on it where an assignment will do.
    #[inline(always)]
    fn add(&mut self, row: Row, tag: u16) {
        let Row { ts, until, .. } = row;
        let who = row.utid as usize;
        let runs = row.state == RUNNING;
        let cpu = if row.competes() { row.cpu } else { NOWHERE };
        let doing = match row.state {
            RUNNING => Presence::Running,
            RUNNABLE => Presence::Waiting,
            _ => Presence::Away,
        };
        let now = Position { doing, cpu, tag };
        if self.lives.len() <= who {
            self.lives.resize(who + 1, NEVER);
        }
        let here = &mut self.cpus[usize::from(cpu)];
        here.used = true;
        let left = here.run;
        let to = if row.utid < self.all.idle {
            if !runs || cpu == NOWHERE {
                return;
            }
            if left.until == ts {
                self.follow(left.at, IDLES);
            } else {
                self.all.begin(ts, row.utid, now);
            }
            Position {
                doing: Presence::Away,
                ..now
            }
        } else {
            let waited = if row.state == RUNNABLE { until - ts } else { 0 };
            self.all.unplaced += if cpu == NOWHERE { waited } else { 0 };
            self.all.placed += if cpu == NOWHERE { 0 } else { waited };
            let before = self.lives[who];
            if before.until == ts {
                self.follow(before.at, now.pack());
            } else if row.competes() {
                self.all.begin(ts, row.utid, now);
            }
            if row.state == UNKNOWN {
                self.approaches.unknown(row);
            } else if runs && self.approaches.any() {
                self.approaches.runs(row);
            }
            AWAY
        };
        let change = Change {
            t: until,
            utid: row.utid,
            to: to.pack(),
        };
        let at = if until >= self.latest {
            self.latest = until;
            self.base + self.all.list.push(change)
        } else {
            self.late(change)
        };
        let last = Last { until, at };
        self.lives[who] = last;
        // Values noted for NOWHERE are never read.
        self.cpus[usize::from(cpu)].run = if runs { last } else { left };
    }

    /// The change `at` is followed by this.
    #[inline(always)]
    fn follow(&mut self, at: usize, follows: u32) {
        match self.all.list.get_to(at.wrapping_sub(self.base)) {
            Some(to) => join(to, follows),
            None => self.follow_elsewhere(at, follows),
        }
    }

    /// It is late, or was in a block before.
    #[cold]
    fn follow_elsewhere(&mut self, at: usize, follows: u32) {
        if at & LATE == 0 {
            self.links.note(at, follows);
        } else if let Some(change) = self.all.late.get_mut(at & !LATE) {
            join(&mut change.to, follows);
        }
    }

    #[cold]
    fn late(&mut self, change: Change) -> usize {
        self.all.late.push(change);
        LATE | (self.all.late.len() - 1)
    }

    pub fn finish(self) -> Changes {
        let Self {
            mut all,
            lives,
            cpus,
            approaches,
            ..
        } = self;
        all.late.sort_by_key(|change| change.t);
        all.begins.sort_by_key(|change| change.t);
        all.prios.sort_by_key(|change| change.t);
        all.approaches = approaches.finish();
        all.threads = lives.len();
        all.cpus = (0..NOWHERE)
            .zip(cpus.iter())
            .filter_map(|(number, cpu)| cpu.used.then_some(number))
            .collect();
        all
    }
}

/// What follows a change: what its thread does from then on, or that the CPU idles.
pub(super) fn join(to: &mut u32, follows: u32) {
    *to = match follows {
        IDLES => *to | IDLES,
        doing => *to & IDLES | doing,
    };
}

impl Changes {
    /// A thread begins something at `t` where nothing of it is known before.
    #[cold]
    fn begin(&mut self, t: i64, utid: u32, now: Position) {
        let to = now.pack();
        self.begins.push(Change { t, utid, to });
    }

    /// How many changes there are, unless they are too many to be held.
    pub fn held(&self) -> Option<usize> {
        self.blocks.is_none().then(|| self.list.len())
    }

    /// Tells `sweep` of every change.
    pub fn tell(&self, sweep: &mut impl Sweep) -> Result<()> {
        let mut told = Teller {
            now: None,
            doing: vec![AWAY.pack(); self.threads],
            idle: self.idle,
        };
        let mut begins = self.begins.iter().peekable();
        let mut late = self.late.iter().peekable();
        let mut tell = |list: &List| {
            for (number, change) in list.iter().enumerate() {
                if number % CHECK_EVERY == 0 {
                    check_interrupt()?;
                    if sweep.ended() {
                        return Err(Error::enough());
                    }
                }
                while let Some(late) = late.next_if(|late| late.t < change.t) {
                    while let Some(begin) = begins.next_if(|begin| begin.t < late.t) {
                        told.one(begin, sweep);
                    }
                    told.one(late, sweep);
                }
                while let Some(begin) = begins.next_if(|begin| begin.t < change.t) {
                    told.one(begin, sweep);
                }
                told.one(&change, sweep);
            }
            Ok(())
        };
        match &self.blocks {
            None => tell(&self.list)?,
            Some(blocks) => blocks.each(self.length, self.idle, self.threads, tell)?,
        }
        for begin in begins {
            told.one(begin, sweep);
        }
        if let Some(now) = told.now {
            sweep.instant(now);
        }
        Ok(())
    }
}

struct Teller {
    now: Option<i64>,
    /// By utid, packed.
    doing: Vec<u32>,
    idle: u32,
}

impl Teller {
    #[inline]
    fn one(&mut self, change: &Change, sweep: &mut impl Sweep) {
        if self.now != Some(change.t)
            && let Some(now) = self.now.replace(change.t)
        {
            sweep.instant(now);
        }
        let to = Position::unpack(change.to);
        let mut left = to.cpu;
        if change.utid < self.idle {
            sweep.idle(change.t, to.cpu, to.doing == Presence::Running);
        } else {
            let doing = &mut self.doing[change.utid as usize];
            let from = Position::unpack(std::mem::replace(doing, change.to));
            left = from.cpu;
            if from.doing != Presence::Away || to.doing != Presence::Away {
                sweep.change(change.t, change.utid, from, to);
            }
        }
        if change.to & IDLES != 0 {
            sweep.idle(change.t, left, true);
        }
    }
}
