//! How long did each thread run, as charged to one who waited?
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

/// A run on a CPU, or a part of one; ns after the start of the window.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    pub since: i64,
    pub until: i64,
    pub utid: u32,
    pub prio: Option<i16>,
}

/// Since when and at which priority a thread waits.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    pub ts: i64,
    pub prio: Option<i16>,
}

/// How long a thread ran, the part of it at a worse priority than the waiting thread's, and of that
/// where the priority decides.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Share {
    pub utid: u32,
    pub time: i64,
    pub worse: i64,
    pub strict: i64,
    /// Of the last run.
    pub prio: Option<i16>,
}

/// What all charges have in common.
pub struct Charging {
    /// One more than the highest utid.
    pub threads: usize,
    /// The priority decides below.
    pub strict_to: i16,
    /// Sums that more tables may have.
    pub left: usize,
}

/// Charges of stretches in which weights decide which thread runs, and of those where priority
/// does.
#[derive(Default)]
pub struct Charges([Sums; 2]);

impl Charges {
    /// Charges a stretch up to the end of `runs`, which are in order of their ends.
    pub fn add(&mut self, wait: &Wait, runs: &[Run], charging: &mut Charging) {
        let first = runs.partition_point(|run| run.until <= wait.ts);
        let strict = wait.prio.is_some_and(|own| own < charging.strict_to);
        self.0[usize::from(strict)].add(wait, &runs[first..], charging);
    }

    /// All threads that ran, by utid.
    pub fn told(self, charging: &mut Charging) -> Vec<Share> {
        let mut all: BTreeMap<u32, (i64, Share)> = BTreeMap::new();
        for (sums, strict) in self.0.into_iter().zip([false, true]) {
            sums.each(charging, |utid, sum| {
                let (at, share) = all.entry(utid).or_default();
                share.utid = utid;
                share.time += sum.time;
                share.worse += sum.worse;
                share.strict += if strict { sum.worse } else { 0 };
                if *at <= sum.at {
                    (*at, share.prio) = (sum.at, sum.prio);
                }
            });
        }
        all.into_values().map(|(_, share)| share).collect()
    }
}

/// Half a line of the processor's cache: there are many, and which is next is as good as random.
#[derive(Clone, Copy, Default)]
struct Sum {
    time: i64,
    worse: i64,
    /// When the last run began.
    at: i64,
    prio: Option<i16>,
}

/// By utid: a table of all threads while there is room for it, else of those that ran.
#[derive(Default)]
enum Sums {
    #[default]
    None,
    Table(Vec<Sum>),
    Few(FxHashMap<u32, Sum>),
}

impl Sums {
    fn new(charging: &mut Charging) -> Self {
        let Charging { threads, left, .. } = charging;
        if *threads <= *left {
            *left -= *threads;
            Self::Table(vec![Sum::default(); *threads])
        } else {
            Self::Few(FxHashMap::default())
        }
    }

    fn add(&mut self, wait: &Wait, runs: &[Run], charging: &mut Charging) {
        // Of both systems a larger number is worse; one not known is neither.
        let own = wait.prio.map_or(i32::MAX, i32::from);
        let part = |run: &Run| {
            let time = run.until - run.since.max(wait.ts);
            // As good as random from run to run: no branch on it.
            let worse = run.prio.map_or(i32::MIN, i32::from) > own;
            (time, if worse { time } else { 0 })
        };
        if matches!(self, Self::None) && !runs.is_empty() {
            *self = Self::new(charging);
        }
        match self {
            Self::None => {}
            Self::Table(sums) => {
                for run in runs {
                    sums[run.utid as usize].add(run, part(run));
                }
            }
            Self::Few(sums) => {
                for run in runs {
                    sums.entry(run.utid).or_default().add(run, part(run));
                }
            }
        }
    }

    /// The threads that ran, in no order.
    fn each(self, charging: &mut Charging, mut tell: impl FnMut(u32, Sum)) {
        match self {
            Self::None => {}
            Self::Table(sums) => {
                charging.left += sums.len();
                for (utid, sum) in (0..).zip(sums) {
                    if sum.time > 0 {
                        tell(utid, sum);
                    }
                }
            }
            Self::Few(sums) => sums.into_iter().for_each(|(utid, sum)| tell(utid, sum)),
        }
    }
}

impl Sum {
    #[inline]
    fn add(&mut self, run: &Run, (time, worse): (i64, i64)) {
        self.time += time;
        self.worse += worse;
        if self.at <= run.since {
            (self.at, self.prio) = (run.since, run.prio);
        }
    }
}
