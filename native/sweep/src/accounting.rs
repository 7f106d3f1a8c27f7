//! What the intervals of each thread and each CPU sum up to, and where they do not adjoin.
//!
//! Nothing is taken for granted here: this is what `check` asks of a table.
use std::collections::BTreeMap;

use arrow_array::RecordBatch;

use crate::error::Result;
use crate::states::{NOWHERE, RUNNING, Row, Want, each};

/// An end that the thread's next interval does not adjoin; none follows its last one.
pub struct End {
    pub utid: u32,
    pub until: i64,
    pub following: Option<i64>,
}

#[derive(Default)]
pub struct Account {
    /// Running time of threads and of idle ones, by CPU (none: no CPU named).
    pub per_cpu: BTreeMap<Option<u16>, (i64, i64)>,
    /// Running time of the threads given.
    pub own: i64,
    /// Rows about threads, idle ones left out.
    pub intervals: u64,
    pub ends: Vec<End>,
    /// The rows of each thread are in order of time.
    pub ordered: bool,
    /// All running time is on a CPU, within the window, and none overlaps another.
    pub disjoint: bool,
}

/// The last interval of a thread or CPU.
type Last = Option<(i64, i64)>;

fn slot(chains: &mut Vec<Last>, at: usize) -> &mut Last {
    if chains.len() <= at {
        chains.resize(at + 1, None);
    }
    &mut chains[at]
}

/// Looks at every interval once, batch by batch.
pub struct Tally {
    found: Account,
    window: (i64, i64),
    /// The number of idle threads.
    idle: u32,
    /// By utid.
    own: Vec<bool>,
    threads: Vec<Last>,
    cpus: Vec<Last>,
    sums: Vec<(i64, i64)>,
    nowhere: (i64, i64),
}

impl Tally {
    pub fn new(window: (i64, i64), idle: u32, own: Vec<bool>) -> Self {
        Self {
            found: Account {
                ordered: true,
                disjoint: true,
                ..Account::default()
            },
            window,
            idle,
            own,
            threads: Vec::new(),
            cpus: Vec::new(),
            sums: Vec::new(),
            nowhere: (0, 0),
        }
    }

    pub fn read(&mut self, batch: &RecordBatch) -> Result<()> {
        let Self {
            found,
            window,
            idle,
            own,
            threads,
            cpus,
            sums,
            nowhere,
        } = self;
        each(batch, 0, Want::CPU, |row| {
            let Row {
                ts: since,
                until,
                utid: who,
                ..
            } = row;
            if who >= *idle {
                found.intervals += 1;
                let last = slot(threads, who as usize);
                if let Some((earlier, ended)) = *last {
                    found.ordered &= since > earlier;
                    if since != ended {
                        let following = Some(since);
                        found.ends.push(End {
                            utid: who,
                            until: ended,
                            following,
                        });
                    }
                }
                *last = Some((since, until));
            }
            if row.state != RUNNING {
                return Ok(());
            }
            if own.get(who as usize).copied().unwrap_or(false) {
                found.own += row.dur();
            }
            let sum = if row.cpu != NOWHERE {
                let number = usize::from(row.cpu);
                let last = slot(cpus, number);
                if let Some((earlier, ended)) = *last {
                    found.disjoint &= since > earlier && since >= ended;
                }
                *last = Some((since, until));
                found.disjoint &= since >= window.0 && until <= window.1;
                if sums.len() <= number {
                    sums.resize(number + 1, (0, 0));
                }
                &mut sums[number]
            } else {
                found.disjoint = false;
                &mut *nowhere
            };
            *(if who >= *idle { &mut sum.0 } else { &mut sum.1 }) += row.dur();
            Ok(())
        })
    }

    pub fn finish(self) -> Account {
        let Self {
            mut found,
            threads,
            cpus,
            sums,
            nowhere,
            ..
        } = self;
        for (utid, last) in (0..).zip(&threads) {
            if let Some((_, until)) = *last {
                found.ends.push(End {
                    utid,
                    until,
                    following: None,
                });
            }
        }
        for (cpu, (sum, last)) in (0..).zip(sums.iter().zip(&cpus)) {
            if last.is_some() {
                found.per_cpu.insert(Some(cpu), *sum);
            }
        }
        if nowhere != (0, 0) {
            found.per_cpu.insert(None, nowhere);
        }
        found
    }
}
