//! The table of states as one list of changes in order of time.
//!
//! Rows come in order of their ends. Where a thread's next interval adjoins, its begin is
//! the change at that end, so that nothing has to be sorted; a CPU's idle interval is
//! noted with the change that left the CPU. What does not adjoin (a thread's first
//! interval, a gap) goes to a short list of its own.
use arrow_array::RecordBatch;

use super::rows::{self, NOWHERE, RUNNABLE, RUNNING, Row};
use super::weights::Weights;
use super::{PULSE, pulse};
use crate::error::{Error, Result};

/// What a thread does, as far as CPUs are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It sleeps, or nothing is known of it.
    Away,
    /// Runnable, on a queue.
    Waiting,
    Running,
}

/// What a thread does, where (`NOWHERE` for no known queue), and a number of
/// `TAGS` at most that the reader gave it by thread and priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub doing: Doing,
    pub cpu: u16,
    pub tag: u16,
}

const AWAY_PLACE: Place = Place {
    doing: Doing::Away,
    cpu: NOWHERE,
    tag: 0,
};

/// Tags have 13 bits.
pub const TAGS: u16 = 1 << 13;
const AWAY: u32 = 0;
const WAITING: u32 = 1;
const RUNS: u32 = 2;
/// After this change the CPU that was left idles.
const IDLES: u32 = 1 << 31;

impl Place {
    fn pack(self) -> u32 {
        let doing = match self.doing {
            Doing::Away => AWAY,
            Doing::Waiting => WAITING,
            Doing::Running => RUNS,
        };
        doing | u32::from(self.cpu) << 2 | u32::from(self.tag % TAGS) << 18
    }

    fn unpack(word: u32) -> Self {
        let doing = match word & 3 {
            WAITING => Doing::Waiting,
            RUNS => Doing::Running,
            _ => Doing::Away,
        };
        Self {
            doing,
            cpu: (word >> 2) as u16,
            tag: (word >> 18) as u16 % TAGS,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Change {
    t: i64,
    utid: u32,
    /// What it does from `t` on; of an idle thread, only whether its CPU begins to idle.
    to: u32,
}

/// Hears of changes in order of time.
pub trait Sweep {
    /// A thread stopped one thing and began another; never an idle one.
    fn change(&mut self, t: i64, utid: u32, from: Place, to: Place);
    /// A CPU begins to idle, or stops.
    fn idle(&mut self, t: i64, cpu: u16, begins: bool);
    /// The changes of the instant `t` are complete.
    fn instant(&mut self, t: i64);
}

/// All changes of a table.
pub struct Changes {
    list: Vec<Change>,
    /// Begins that no end adjoins.
    begins: Vec<Change>,
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

/// Reads the table, batch by batch.
pub struct Reader {
    all: Changes,
    lives: Vec<Last>,
    /// By CPU; none where nobody ran or waited.
    runs: Vec<Option<Last>>,
    begin: i64,
    latest: i64,
    ordered: bool,
}

impl Reader {
    /// `idle`: the number of idle threads.
    pub fn new(window: (i64, i64), idle: u32) -> Result<Self> {
        let length = window
            .1
            .checked_sub(window.0)
            .filter(|length| *length >= 0)
            .ok_or_else(|| Error::usage("a window that ends before it begins", "", ""))?;
        Ok(Self {
            all: Changes {
                list: Vec::new(),
                begins: Vec::new(),
                threads: 0,
                cpus: Vec::new(),
                length,
                idle,
                placed: 0,
                unplaced: 0,
            },
            lives: Vec::new(),
            runs: Vec::new(),
            begin: window.0,
            latest: i64::MIN,
            ordered: true,
        })
    }

    /// More rows; with `weights`, threads' classes and levels are their tags.
    pub fn read(&mut self, batches: &[RecordBatch], weights: Option<&Weights>) -> Result<()> {
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        self.all.list.reserve(rows);
        let length = self.all.length;
        match weights {
            Some(weights) => rows::each(batches, self.begin, true, |row| {
                let competes = row.state <= RUNNABLE;
                self.cut(
                    row,
                    length,
                    if competes {
                        weights.tag(row.utid, row.prio)
                    } else {
                        0
                    },
                );
            }),
            None => rows::each(batches, self.begin, false, |row| self.cut(row, length, 0)),
        }
    }

    #[inline]
    fn cut(&mut self, row: Row, length: i64, tag: u16) {
        let (ts, until) = (row.ts.max(0), row.until.min(length));
        if ts < until {
            self.ordered &= self.latest <= until;
            self.latest = until;
            self.all.add(
                Row { ts, until, ..row },
                tag,
                &mut self.lives,
                &mut self.runs,
            );
        }
    }

    pub fn finish(self) -> Changes {
        let Self {
            mut all,
            lives,
            runs,
            ordered,
            ..
        } = self;
        if !ordered {
            all.list.sort_by_key(|change| change.t);
        }
        all.begins.sort_by_key(|change| change.t);
        all.threads = lives.len();
        all.cpus = (0..NOWHERE)
            .zip(&runs)
            .filter_map(|(cpu, run)| run.map(|_| cpu))
            .collect();
        all
    }
}

impl Changes {
    #[inline]
    fn add(&mut self, row: Row, tag: u16, lives: &mut Vec<Last>, runs: &mut Vec<Option<Last>>) {
        let Row {
            ts,
            until,
            utid,
            state,
            cpu,
            ..
        } = row;
        let (at, who) = (self.list.len(), utid as usize);
        let runs_here = state == RUNNING;
        let doing = match state {
            RUNNING => Doing::Running,
            RUNNABLE => Doing::Waiting,
            _ => Doing::Away,
        };
        let now = Place {
            doing,
            cpu: if doing == Doing::Away { NOWHERE } else { cpu },
            tag,
        };
        if lives.len() <= who {
            lives.resize(who + 1, NEVER);
        }
        if cpu != NOWHERE && doing != Doing::Away {
            if runs.len() <= usize::from(cpu) {
                runs.resize(usize::from(cpu) + 1, None);
            }
            runs[usize::from(cpu)].get_or_insert(NEVER);
        }
        if utid < self.idle {
            if !runs_here || cpu == NOWHERE {
                return;
            }
            let before = runs[usize::from(cpu)].unwrap_or(NEVER);
            if before.until == ts {
                self.list[before.at].to |= IDLES;
            } else {
                self.begins.push(Change {
                    t: ts,
                    utid,
                    to: now.pack(),
                });
            }
            let stops = Place {
                doing: Doing::Away,
                ..now
            };
            self.list.push(Change {
                t: until,
                utid,
                to: stops.pack(),
            });
        } else {
            if doing == Doing::Waiting {
                *(if cpu == NOWHERE {
                    &mut self.unplaced
                } else {
                    &mut self.placed
                }) += until - ts;
            }
            let before = lives[who];
            if before.until == ts {
                let link = &mut self.list[before.at].to;
                *link = *link & IDLES | now.pack();
            } else if doing != Doing::Away {
                self.begins.push(Change {
                    t: ts,
                    utid,
                    to: now.pack(),
                });
            }
            self.list.push(Change {
                t: until,
                utid,
                to: AWAY_PLACE.pack(),
            });
        }
        lives[who] = Last { until, at };
        if runs_here && cpu != NOWHERE {
            runs[usize::from(cpu)] = Some(Last { until, at });
        }
    }

    /// Tells `sweep` of every change.
    pub fn tell(&self, sweep: &mut impl Sweep) -> Result<()> {
        let mut told = Told {
            now: None,
            doing: vec![AWAY_PLACE; self.threads],
            idle: self.idle,
        };
        let mut begins = self.begins.iter().peekable();
        for part in self.list.chunks(PULSE) {
            pulse()?;
            for change in part {
                while let Some(begin) = begins.next_if(|begin| begin.t < change.t) {
                    told.one(begin, sweep);
                }
                told.one(change, sweep);
            }
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

struct Told {
    now: Option<i64>,
    doing: Vec<Place>,
    idle: u32,
}

impl Told {
    #[inline]
    fn one(&mut self, change: &Change, sweep: &mut impl Sweep) {
        if self.now != Some(change.t)
            && let Some(now) = self.now.replace(change.t)
        {
            sweep.instant(now);
        }
        let to = Place::unpack(change.to);
        let mut left = to.cpu;
        if change.utid < self.idle {
            sweep.idle(change.t, to.cpu, to.doing == Doing::Running);
        } else {
            let from = std::mem::replace(&mut self.doing[change.utid as usize], to);
            left = from.cpu;
            if from.doing != Doing::Away || to.doing != Doing::Away {
                sweep.change(change.t, change.utid, from, to);
            }
        }
        if change.to & IDLES != 0 {
            sweep.idle(change.t, left, true);
        }
    }
}
