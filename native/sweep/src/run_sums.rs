//! How long did each thread run on each CPU, how often, and when first and last?
use arrow_array::RecordBatch;
use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::states::{RUNNING, Want, each};

/// Runs of one thread on one CPU, within the window; ns after its start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sum {
    pub utid: u32,
    /// `NOWHERE` if the table names none.
    pub cpu: u16,
    pub running: i64,
    pub runs: u32,
    /// When the first and the last one began.
    pub first: i64,
    pub last: i64,
}

/// Goes through the rows, batch by batch.
pub struct Sums {
    begin: i64,
    length: i64,
    pub found: Vec<Sum>,
    of: FxHashMap<(u32, u16), usize>,
    /// By utid, the sum that was last in use, and one more: most runs are where the last one was.
    recent: Vec<usize>,
}

impl Sums {
    pub fn new(window: (i64, i64)) -> Self {
        Self {
            begin: window.0,
            length: window.1.saturating_sub(window.0),
            found: Vec::new(),
            of: FxHashMap::default(),
            recent: Vec::new(),
        }
    }

    pub fn read(&mut self, batch: &RecordBatch) -> Result<()> {
        let Self {
            begin,
            length,
            found,
            of,
            recent,
        } = self;
        each(batch, *begin, Want::CPU, |row| {
            let (since, until) = (row.ts.max(0), row.until.min(*length));
            if row.state != RUNNING || since >= until {
                return Ok(());
            }
            let who = row.utid as usize;
            if recent.len() <= who {
                recent.resize(who + 1, 0);
            }
            let at = match recent[who].checked_sub(1) {
                Some(at) if found[at].cpu == row.cpu => at,
                _ => *of.entry((row.utid, row.cpu)).or_insert_with(|| {
                    found.push(Sum {
                        utid: row.utid,
                        cpu: row.cpu,
                        running: 0,
                        runs: 0,
                        first: since,
                        last: since,
                    });
                    found.len() - 1
                }),
            };
            recent[who] = at + 1;
            let sum = &mut found[at];
            sum.running += until - since;
            sum.runs += 1;
            sum.first = sum.first.min(since);
            sum.last = sum.last.max(since);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_states::states;
    use crate::states::{NOWHERE, RUNNABLE};

    #[test]
    fn runs_are_cut_to_the_window_and_told_apart_by_thread_and_cpu() {
        let run = |ts, dur, utid, cpu| (ts, dur, utid, RUNNING, cpu, None);
        let mut sums = Sums::new((100, 200));
        let rows = [
            run(50, 60, 7, Some(1)),
            run(120, 10, 7, Some(2)),
            run(140, 10, 7, Some(1)),
            run(150, 20, 8, None),
            (170, 9, 7, RUNNABLE, Some(1), None),
            run(195, 10, 7, Some(1)),
            run(200, 10, 7, Some(1)),
            run(90, 10, 7, Some(1)),
        ];
        sums.read(&states(&rows)).unwrap();
        let told: Vec<_> = sums
            .found
            .iter()
            .map(|sum| {
                (
                    sum.utid,
                    sum.cpu,
                    sum.running,
                    sum.runs,
                    sum.first,
                    sum.last,
                )
            })
            .collect();
        let want = [
            (7, 1, 25, 3, 0, 95),
            (7, 2, 10, 1, 20, 20),
            (8, NOWHERE, 20, 1, 50, 50),
        ];
        assert_eq!(told, want);
    }
}
