//! Which of the kernel's reports of a move belong to which run, and to a run on another CPU?
use std::collections::VecDeque;

use arrow_array::types::{Int64Type, UInt8Type, UInt16Type, UInt32Type};
use arrow_array::{Array, RecordBatch};
use rustc_hash::FxHashMap;

use crate::columns::{column, full};
use crate::error::Result;
use crate::hooks::check_interrupt;
use crate::model::event::Cause;

/// How many there are; `migration_agreement` in Python says of what.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts {
    pub runs_moved: u64,
    pub forks: u64,
    pub reported: u64,
    pub reported_forks: u64,
    pub events: u64,
    pub repeated: u64,
    pub returned: u64,
    pub open: u64,
    pub early: u64,
    pub idle: u64,
    pub elsewhere: u64,
    pub unseen: u64,
}

/// A move that the kernel reported.
struct Report {
    ts: i64,
    to: Option<u16>,
}

/// What is known of a thread.
#[derive(Default)]
struct Thread {
    /// Where it last began to run, and when.
    last: Option<(Option<u16>, i64)>,
    /// Reports since.
    reports: VecDeque<Report>,
}

/// Goes through runs and reports, both in order of time: what is held are the reports that no run
/// has followed yet.
pub struct Agreement<R> {
    /// Batches of `migrations`.
    reports: R,
    /// No report is later than the last one read, and none is left if it is None.
    reached: Option<i64>,
    idle: u32,
    threads: FxHashMap<u32, Thread>,
    found: Counts,
    /// So far: reports in order of time, and each thread's runs.
    ordered: bool,
}

impl<R: Iterator<Item = Result<RecordBatch>>> Agreement<R> {
    /// `reports` has ts, utid and to_cpu; `idle` is the number of idle threads.
    pub fn new(reports: R, idle: u32) -> Self {
        Self {
            reports,
            reached: Some(i64::MIN),
            idle,
            threads: FxHashMap::default(),
            found: Counts::default(),
            ordered: true,
        }
    }

    /// More waits: utid, cause, ts_run, prev_cpu, cpu, waker_utid and waker_cpu.
    pub fn read(&mut self, batch: &RecordBatch) -> Result<()> {
        check_interrupt()?;
        let utids = full::<UInt32Type>(batch, "utid")?;
        let causes = full::<UInt8Type>(batch, "cause")?;
        let runs = column::<Int64Type>(batch, "ts_run")?;
        let wakers = column::<UInt32Type>(batch, "waker_utid")?;
        let [before, cpus, waker_cpus] =
            ["prev_cpu", "cpu", "waker_cpu"].map(|name| column::<UInt16Type>(batch, name));
        let (before, cpus, waker_cpus) = (before?, cpus?, waker_cpus?);
        for row in 0..batch.num_rows() {
            if runs.is_null(row) {
                continue;
            }
            let at =
                |array: &arrow_array::UInt16Array| array.is_valid(row).then(|| array.value(row));
            let (ran, prev) = (at(cpus), at(before));
            let new = causes[row] == Cause::New as u8 && wakers.is_valid(row) && prev.is_none();
            let from = if new { at(waker_cpus) } else { prev };
            self.run(utids[row], runs.value(row), ran, prev, from, new)?;
        }
        Ok(())
    }

    fn run(
        &mut self,
        utid: u32,
        ts: i64,
        cpu: Option<u16>,
        prev: Option<u16>,
        from: Option<u16>,
        new: bool,
    ) -> Result<()> {
        while self.reached.is_some_and(|reached| reached <= ts) {
            self.read_reports()?;
        }
        let differ = |a: Option<u16>, b: Option<u16>| a.zip(b).is_some_and(|(a, b)| a != b);
        let thread = self.threads.entry(utid).or_default();
        let moved = differ(from, cpu);
        // Switched out on another CPU than its last known one: in between it ran unrecorded.
        let gap = thread.last.is_some_and(|(last, _)| differ(prev, last));
        self.ordered &= thread.last.is_none_or(|(_, last)| last <= ts);
        thread.last = Some((cpu, ts));
        let found = &mut self.found;
        found.runs_moved += u64::from(moved);
        found.forks += u64::from(moved && new);
        found.unseen += u64::from(gap);
        let (mut reports, mut to) = (0, None);
        while let Some(report) = thread.reports.pop_front_if(|report| report.ts <= ts) {
            (reports, to) = (reports + 1, report.to);
        }
        if reports == 0 {
            return Ok(());
        }
        found.elsewhere += u64::from(differ(to, cpu));
        if moved {
            found.reported += 1;
            found.reported_forks += u64::from(new);
            found.repeated += reports - 1;
        } else if from.is_none() || gap {
            found.early += reports;
        } else {
            found.returned += reports;
        }
        Ok(())
    }

    fn read_reports(&mut self) -> Result<()> {
        let Some(batch) = self.reports.next() else {
            self.reached = None;
            return Ok(());
        };
        let batch = batch?;
        let times = full::<Int64Type>(&batch, "ts")?;
        let utids = full::<UInt32Type>(&batch, "utid")?;
        let to = column::<UInt16Type>(&batch, "to_cpu")?;
        self.found.events += times.len() as u64;
        for ((&ts, &utid), to) in times.iter().zip(utids).zip(to) {
            self.ordered &= self.reached.is_none_or(|reached| reached <= ts);
            self.reached = self.reached.max(Some(ts));
            if utid < self.idle {
                self.found.idle += 1;
            } else {
                let thread = self.threads.entry(utid).or_default();
                thread.reports.push_back(Report { ts, to });
            }
        }
        Ok(())
    }

    /// None if rows were not in order: then they are to be sorted first.
    pub fn finish(mut self) -> Result<Option<Counts>> {
        while self.reached.is_some() {
            self.read_reports()?;
        }
        let open = self
            .threads
            .values()
            .map(|thread| thread.reports.len() as u64);
        self.found.open = open.sum();
        Ok(self.ordered.then_some(self.found))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, UInt8Array, UInt16Array, UInt32Array};

    use super::*;

    struct Run {
        utid: u32,
        cause: Cause,
        ts: Option<i64>,
        prev: Option<u16>,
        cpu: Option<u16>,
        maker: Option<u16>,
    }

    fn batch<const N: usize>(columns: [(&str, ArrayRef); N]) -> RecordBatch {
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn waits(runs: &[Run]) -> RecordBatch {
        let cpus = |get: fn(&Run) -> Option<u16>| -> ArrayRef {
            Arc::new(runs.iter().map(get).collect::<UInt16Array>())
        };
        let makers = runs.iter().map(|run| run.maker.map(u32::from));
        let causes = runs.iter().map(|run| run.cause as u8);
        batch([
            (
                "utid",
                Arc::new(UInt32Array::from_iter_values(
                    runs.iter().map(|run| run.utid),
                )),
            ),
            ("cause", Arc::new(UInt8Array::from_iter_values(causes))),
            (
                "ts_run",
                Arc::new(runs.iter().map(|run| run.ts).collect::<Int64Array>()),
            ),
            ("prev_cpu", cpus(|run| run.prev)),
            ("cpu", cpus(|run| run.cpu)),
            ("waker_utid", Arc::new(makers.collect::<UInt32Array>())),
            ("waker_cpu", cpus(|run| run.maker)),
        ])
    }

    fn reports(rows: &[(i64, u32, u16)]) -> RecordBatch {
        let times = Int64Array::from_iter_values(rows.iter().map(|row| row.0));
        batch([
            ("ts", Arc::new(times)),
            (
                "utid",
                Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.1))),
            ),
            (
                "to_cpu",
                Arc::new(UInt16Array::from_iter_values(rows.iter().map(|row| row.2))),
            ),
        ])
    }

    fn woken(utid: u32, ts: i64, prev: Option<u16>, cpu: u16) -> Run {
        Run {
            utid,
            cause: Cause::Wake,
            ts: Some(ts),
            prev,
            cpu: Some(cpu),
            maker: None,
        }
    }

    fn counted(runs: &[Run], told: &[&[(i64, u32, u16)]]) -> Option<Counts> {
        let batches: Vec<_> = told.iter().map(|rows| Ok(reports(rows))).collect();
        let mut agreement = Agreement::new(batches.into_iter(), 2);
        // In two batches.
        let (first, second) = runs.split_at(runs.len() / 2);
        agreement.read(&waits(first)).unwrap();
        agreement.read(&waits(second)).unwrap();
        agreement.finish().unwrap()
    }

    #[test]
    fn each_report_is_of_the_next_run_of_its_thread() {
        let made = Run {
            cause: Cause::New,
            maker: Some(1),
            ..woken(4, 6, None, 0)
        };
        let open = Run {
            ts: None,
            cpu: None,
            ..woken(3, 0, Some(1), 0)
        };
        let runs = [
            woken(3, 5, None, 0),     // Where it was before is not known: early.
            made,                     // Placed by a fork.
            woken(3, 10, Some(0), 1), // Told twice, the last time as it is.
            woken(4, 12, Some(0), 1), // Not told of.
            woken(3, 20, Some(1), 1), // Moved away and back.
            woken(3, 30, Some(0), 0), // It ran on CPU 0 unseen.
            woken(3, 40, Some(0), 1), // Told of another CPU.
            open,
        ];
        let told: [&[_]; 2] = [
            &[(5, 3, 0), (7, 0, 1), (8, 3, 0), (10, 3, 1)],
            &[(11, 3, 0), (19, 3, 1), (25, 3, 0), (33, 3, 0), (50, 3, 0)],
        ];
        let expected = Counts {
            runs_moved: 4,
            forks: 1,
            reported: 2,
            reported_forks: 0,
            events: 9,
            repeated: 1,
            returned: 2,
            open: 1,
            early: 2,
            idle: 1,
            elsewhere: 1,
            unseen: 1,
        };
        assert_eq!(counted(&runs, &told), Some(expected));
    }

    #[test]
    fn rows_out_of_order_are_noticed() {
        let runs = [woken(3, 5, None, 0), woken(3, 10, Some(0), 1)];
        assert!(counted(&runs, &[&[(1, 3, 1), (2, 3, 1)]]).is_some());
        assert!(counted(&runs, &[&[(2, 3, 1), (1, 3, 1)]]).is_none());
        let [first, second] = runs;
        assert!(counted(&[second, first], &[]).is_none());
    }
}
