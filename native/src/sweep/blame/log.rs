//! Runs of groups on one CPU, and who waits for it.

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

#[derive(Default)]
pub struct Cpu {
    /// Groups that run here, and since when they are not in the log: one, unless the trace
    /// contradicts itself.
    pub on: Vec<(u32, i64)>,
    /// The same while nobody is known to.
    pub unknown: i64,
    pub log: Vec<Run>,
    /// By group: when the last run ended that was in the log, and how long all took.
    pub last: Vec<i64>,
    pub sums: Vec<i64>,
    /// Those who began to wait here and may be charged by the log, by utid.
    pub young: Vec<u32>,
    /// Those who are yet to be charged by it.
    pub ended: Vec<Ended>,
}

impl Cpu {
    /// What runs is in the log up to `t`; `unknown` is the group of what is not known.
    #[inline]
    pub fn settle(&mut self, t: i64, unknown: u32) {
        let Self {
            on,
            log,
            last,
            sums,
            unknown: blind,
            ..
        } = self;
        let mut ran = |group: u32, since: &mut i64| {
            if t > *since {
                log.push(Run {
                    group,
                    since: *since,
                    until: t,
                    before: last[group as usize],
                });
                last[group as usize] = t;
                sums[group as usize] += t - *since;
            }
            *since = t;
        };
        if on.is_empty() {
            ran(unknown, blind);
        }
        for (group, since) in on {
            ran(*group, since);
        }
    }

    /// Groups that ran after `t`, as far as they are in the log.
    pub fn after(&self, t: i64) -> impl Iterator<Item = u32> {
        let ran = (0..).zip(&self.last).filter(move |(_, last)| **last > t);
        ran.map(|(group, _)| group)
    }
}

/// A stretch of waiting on one queue.
#[derive(Clone, Copy)]
pub struct Waiter {
    pub begin: i64,
    pub lane: usize,
    /// Victim and cause as one number: a row of the table of cells.
    pub row: u32,
    /// Where in the log it began.
    pub from: usize,
    /// It goes by sums.
    pub summed: bool,
}

/// A wait that is over, and where in the log it ended.
pub struct Ended {
    pub waiter: Waiter,
    pub to: usize,
}
