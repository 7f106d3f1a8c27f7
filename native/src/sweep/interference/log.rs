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

/// The last runs on a CPU.
#[derive(Default)]
pub struct Log {
    pub runs: Vec<Run>,
    /// By group: when the last run ended that was in the log, and how long all took.
    pub last: Vec<i64>,
    pub sums: Vec<i64>,
}

impl Log {
    #[inline]
    fn push(&mut self, group: u32, since: i64, until: i64) {
        let (last, sum) = (
            &mut self.last[group as usize],
            &mut self.sums[group as usize],
        );
        self.runs.push(Run {
            group,
            since,
            until,
            before: *last,
        });
        *last = until;
        *sum += until - since;
    }

    /// Groups that ran after `t`, as far as they are in the log.
    pub fn after(&self, t: i64) -> impl Iterator<Item = u32> {
        let ran = (0..).zip(&self.last).filter(move |(_, last)| **last > t);
        ran.map(|(group, _)| group)
    }
}

#[derive(Default)]
pub struct Cpu {
    /// Groups that run here, and since when they are not in the log: one, unless the trace
    /// contradicts itself.
    pub on: Vec<(u32, i64)>,
    /// The same while nobody is known to.
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
    /// Of so many groups.
    pub fn new(groups: usize) -> Self {
        Self {
            at_once: 1,
            log: Log {
                runs: Vec::new(),
                last: vec![EARLIEST; groups],
                sums: vec![0; groups],
            },
            ..Self::default()
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
