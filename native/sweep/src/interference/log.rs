//! Runs of groups on one CPU, and the threads that wait for it.

use rustc_hash::FxHashMap;

/// A group's run on a CPU, or a part of one, that is over.
#[derive(Clone, Copy)]
pub struct Run {
    pub group: u32,
    pub since: i64,
    pub until: i64,
    /// When the group's run before this one ended.
    pub before: i64,
}

/// Never yet.
pub const EARLIEST: i64 = i64::MIN;

/// Where in a CPU's tables a group is that ran there. Where groups and CPUs are few each has its
/// place; of a thousand CPUs and half a million threads most never meet, and tables of all pairs
/// would take gigabytes.
enum Slots {
    Every(Vec<u32>),
    Some(FxHashMap<u32, u32>),
}

const NO_SLOT: u32 = u32::MAX;

/// The last runs on a CPU.
pub struct Log {
    pub runs: Vec<Run>,
    slots: Slots,
    ran: Vec<Ran>,
}

/// What a group did on a CPU.
pub struct Ran {
    pub group: u32,
    /// When the last run ended that was in the log, and how long all took.
    pub last: i64,
    pub sum: i64,
}

impl Log {
    fn new(groups: usize, places: bool) -> Self {
        Self {
            runs: Vec::new(),
            slots: if places {
                Slots::Every(vec![NO_SLOT; groups])
            } else {
                Slots::Some(FxHashMap::default())
            },
            ran: Vec::new(),
        }
    }

    #[inline]
    fn push(&mut self, group: u32, since: i64, until: i64) {
        let slot = match &mut self.slots {
            Slots::Every(slots) => &mut slots[group as usize],
            Slots::Some(slots) => slots.entry(group).or_insert(NO_SLOT),
        };
        if *slot == NO_SLOT {
            *slot = self.ran.len() as u32;
            self.ran.push(Ran {
                group,
                last: EARLIEST,
                sum: 0,
            });
        }
        let ran = &mut self.ran[*slot as usize];
        self.runs.push(Run {
            group,
            since,
            until,
            before: ran.last,
        });
        ran.last = until;
        ran.sum += until - since;
    }

    /// Every group that was in the log.
    pub fn ran(&self) -> &[Ran] {
        &self.ran
    }

    /// When the last run of a group ended that was in the log.
    pub fn last(&self, group: u32) -> i64 {
        let slot = match &self.slots {
            Slots::Every(slots) => slots.get(group as usize).copied(),
            Slots::Some(slots) => slots.get(&group).copied(),
        };
        let ran = slot.and_then(|slot| self.ran.get(slot as usize));
        ran.map_or(EARLIEST, |ran| ran.last)
    }

    /// Groups that ran after `t`, as far as they are in the log.
    pub fn after(&self, t: i64) -> impl Iterator<Item = u32> {
        let ran = self.ran.iter().filter(move |ran| ran.last > t);
        ran.map(|ran| ran.group)
    }
}

pub struct Cpu {
    /// Groups that run here, and since when they are not in the log: one, unless the trace
    /// contradicts itself.
    pub on: Vec<(u32, i64)>,
    /// The same while no thread is known to.
    unknown: i64,
    /// The most groups that ran at once.
    pub at_once: usize,
    pub log: Log,
    /// Those who began to wait here and may be charged by the log: utid, and `Waiter::number`.
    pub young: Vec<(u32, u64)>,
    /// Those who are yet to be charged by it.
    pub ended: Vec<Ended>,
}

impl Cpu {
    /// Of so many groups; whether they have a place each.
    pub fn new(groups: usize, places: bool) -> Self {
        Self {
            on: Vec::new(),
            unknown: 0,
            at_once: 1,
            log: Log::new(groups, places),
            young: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// What runs is in the log up to `t`; `unknown` is the group of what is not known.
    #[inline]
    pub fn settle(&mut self, t: i64, unknown: u32) {
        let log = &mut self.log;
        let mut ran = |group: u32, since: &mut i64| {
            if t > *since {
                log.push(group, *since, t);
            }
            *since = t;
        };
        if self.on.is_empty() {
            ran(unknown, &mut self.unknown);
        }
        for (group, since) in &mut self.on {
            ran(*group, since);
        }
    }

    /// A group runs from `t` on, or stops, and is in the log up to then.
    #[inline]
    pub fn runs(&mut self, t: i64, group: u32, begins: bool) {
        if begins {
            self.on.push((group, t));
            self.at_once = self.at_once.max(self.on.len());
        } else if let Some(at) = self.on.iter().position(|(running, _)| *running == group) {
            self.on.swap_remove(at);
            self.unknown = t;
        }
    }
}

/// A stretch of waiting on one queue.
#[derive(Clone, Copy)]
pub struct Stretch {
    pub begin: i64,
    /// Victim and cause as one number: a row of the table of cells.
    pub row: u32,
}

/// Who is in one.
#[derive(Clone, Copy)]
pub struct Waiter {
    pub stretch: Stretch,
    /// Where in the log it began.
    pub from: u32,
    /// No other has it.
    pub number: u64,
    /// It goes by sums.
    pub summed: bool,
}

/// One that is over, and where in the log it began and ended.
pub struct Ended {
    pub stretch: Stretch,
    pub from: u32,
    pub to: u32,
}
