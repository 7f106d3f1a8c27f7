//! Did a run begin with a switch-in, or was the thread found running?
//!
//! Both tables are read side by side: `switches` is in order of time, and the runs of a thread come
//! one after the other. Kept are only the switch-ins of each thread since its last run began.
use std::collections::VecDeque;

use arrow_array::RecordBatch;
use arrow_array::types::{Int64Type, UInt16Type, UInt32Type};
use arrow_buffer::ScalarBuffer;

use crate::columns::{column, full};
use crate::error::Result;
use crate::hooks::check_interrupt;
use crate::states::Row;
use crate::store::Source;

/// Of one thread: when it was switched in, and on which CPU.
#[derive(Clone)]
struct Thread {
    ins: VecDeque<(i64, u16)>,
    /// The begin of the last run that was asked about.
    asked: i64,
}

const NEW: Thread = Thread {
    ins: VecDeque::new(),
    asked: i64::MIN,
};

/// The columns of a batch, and the row that comes next.
struct Page {
    ts: ScalarBuffer<i64>,
    cpu: ScalarBuffer<u16>,
    utid: ScalarBuffer<u32>,
    next: usize,
}

pub struct SwitchIns<'a> {
    batches: Box<dyn Iterator<Item = Result<RecordBatch>> + Send + 'a>,
    page: Option<Page>,
    /// By utid.
    of: Vec<Thread>,
    /// When the last one was, of those read so far.
    latest: i64,
    /// Nothing went back in time so far.
    in_order: bool,
    /// All are kept.
    all: bool,
}

impl<'a> SwitchIns<'a> {
    /// `switches` has ts, cpu and next_utid.
    pub fn new(switches: &'a Source<'_>) -> Self {
        Self {
            batches: switches.batches(),
            page: None,
            of: Vec::new(),
            latest: i64::MIN,
            in_order: true,
            all: false,
        }
    }

    /// For tables that are not in order: keeps them all.
    pub fn all(switches: &'a Source<'_>, wanted: impl Fn(u32) -> bool) -> Result<Self> {
        let mut ins = Self::new(switches);
        ins.read(i64::MAX, wanted)?;
        for thread in &mut ins.of {
            thread.ins.make_contiguous().sort_unstable();
        }
        Ok(Self { all: true, ..ins })
    }

    /// Whether both tables were in order; else answers are wrong, except with all of them kept.
    /// Reads what is left of the switches: an early one may stand behind those not asked about.
    pub fn in_order(&mut self) -> Result<bool> {
        if !self.all {
            self.read(i64::MAX, |_| false)?;
        }
        Ok(self.in_order || self.all)
    }

    /// Whether its thread was switched in when and where the run began. `wanted`: threads whose
    /// runs are going to be asked about.
    #[inline]
    pub fn begins(&mut self, run: &Row, wanted: impl Fn(u32) -> bool) -> Result<bool> {
        if !self.all {
            self.read(run.ts, wanted)?;
        }
        let Some(thread) = self.of.get_mut(run.utid as usize) else {
            return Ok(false);
        };
        let mut at = 0;
        if self.all {
            at = thread.ins.partition_point(|(ts, _)| *ts < run.ts);
        } else {
            self.in_order &= run.ts >= thread.asked;
            thread.asked = run.ts;
            while thread.ins.front().is_some_and(|(ts, _)| *ts < run.ts) {
                thread.ins.pop_front();
            }
        }
        let ins = thread.ins.range(at..);
        let mut ins = ins.take_while(|(ts, _)| *ts == run.ts);
        Ok(ins.any(|(_, cpu)| *cpu == run.cpu))
    }

    /// Reads those up to an instant.
    #[inline]
    fn read(&mut self, to: i64, wanted: impl Fn(u32) -> bool) -> Result<()> {
        loop {
            let Some(page) = &mut self.page else {
                if !self.turn()? {
                    return Ok(());
                }
                continue;
            };
            while let Some(ts) = page.ts.get(page.next).filter(|ts| **ts <= to) {
                let (utid, cpu) = (page.utid[page.next], page.cpu[page.next]);
                page.next += 1;
                self.in_order &= *ts >= self.latest;
                self.latest = *ts;
                if wanted(utid) {
                    let who = utid as usize;
                    if self.of.len() <= who {
                        self.of.resize(who + 1, NEW);
                    }
                    self.of[who].ins.push_back((*ts, cpu));
                }
            }
            if page.next < page.ts.len() {
                return Ok(());
            }
            self.page = None;
        }
    }

    /// Reads a page; whether there was another.
    #[cold]
    fn turn(&mut self) -> Result<bool> {
        let Some(batch) = self.batches.next() else {
            return Ok(false);
        };
        check_interrupt()?;
        let batch = batch?;
        full::<Int64Type>(&batch, "ts")?;
        full::<UInt16Type>(&batch, "cpu")?;
        full::<UInt32Type>(&batch, "next_utid")?;
        self.page = Some(Page {
            ts: column::<Int64Type>(&batch, "ts")?.values().clone(),
            cpu: column::<UInt16Type>(&batch, "cpu")?.values().clone(),
            utid: column::<UInt32Type>(&batch, "next_utid")?.values().clone(),
            next: 0,
        });
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, UInt16Array, UInt32Array};

    use super::*;
    use crate::random_states::random;

    /// When, where and whose.
    type In = (i64, u16, u32);

    fn switches(ins: &[In]) -> Source<'static> {
        let page = |ins: &[In]| {
            let ts = Int64Array::from_iter_values(ins.iter().map(|of| of.0));
            let cpu = UInt16Array::from_iter_values(ins.iter().map(|of| of.1));
            let utid = UInt32Array::from_iter_values(ins.iter().map(|of| of.2));
            let columns: [(&str, ArrayRef); 3] = [
                ("ts", Arc::new(ts)),
                ("cpu", Arc::new(cpu)),
                ("next_utid", Arc::new(utid)),
            ];
            RecordBatch::try_from_iter(columns).expect("a batch")
        };
        Source::Held("switches", ins.chunks(7).map(page).collect())
    }

    fn run((ts, cpu, utid): In) -> Row {
        Row {
            ts,
            until: ts + 1,
            utid,
            state: 0,
            cpu,
            prio: None,
            end: 0,
            by_thread: false,
        }
    }

    #[test]
    fn a_run_begins_with_a_switch_in_of_its_thread_there_and_then() {
        let mut disordered = 0;
        for seed in 0..50 {
            let mut random = random(seed);
            let mut ins: Vec<In> = (0..random(200))
                .map(|_| (i64::from(random(90)), random(2) as u16, random(4)))
                .collect();
            ins.sort_unstable();
            // Some of them, and some that were none; of each thread in order of time.
            let mut runs: Vec<In> = ins.iter().copied().filter(|_| random(3) > 0).collect();
            runs.extend((0..20).map(|_| (i64::from(random(90)), random(2) as u16, random(5))));
            runs.sort_by_key(|of| of.0 + i64::from(20 * of.2));
            let wanted = |utid| utid != 1;
            runs.retain(|of| wanted(of.2));
            let expected: Vec<bool> = runs.iter().map(|run| ins.contains(run)).collect();
            let answers = |mut begins: SwitchIns<'_>, runs: &[In]| -> (Vec<bool>, bool) {
                let asked = runs.iter().map(|of| begins.begins(&run(*of), wanted));
                let found = asked.collect::<Result<_>>().expect("answers");
                (found, begins.in_order().expect("switches"))
            };
            let table = switches(&ins);
            let streamed = answers(SwitchIns::new(&table), &runs);
            assert_eq!(streamed, (expected.clone(), true), "seed {seed}");
            // In any order, all of them are kept.
            let (mut mixed, mut backwards) = (ins.clone(), runs.clone());
            mixed.reverse();
            backwards.reverse();
            let mut expected = expected;
            expected.reverse();
            for table in [switches(&ins), switches(&mixed)] {
                let (found, in_order) = answers(SwitchIns::new(&table), &backwards);
                assert!(!in_order || found == expected, "seed {seed}");
                disordered += u32::from(!in_order);
                let kept = SwitchIns::all(&table, wanted).expect("switches");
                assert_eq!(answers(kept, &backwards), (expected.clone(), true));
            }
        }
        assert!(disordered > 50, "{disordered}");
    }
}
