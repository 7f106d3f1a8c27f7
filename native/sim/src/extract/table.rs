//! Extracted steps as a table.
use std::sync::Arc;

use arrow_array::builder::BooleanBuilder;
use arrow_array::types::{Int8Type, Int64Type, UInt8Type, UInt32Type};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, PrimitiveArray, RecordBatch, UInt8Array, UInt32Array,
};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};

use super::super::load::op;
use super::{Extractor, Made, linux_priority};
use crate::columns::table;
use crate::error::Result;

/// A column of so many rows, with places for what is missing: those take no memory where there are
/// many in a row.
struct Sparse<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    valid: BooleanBufferBuilder,
}

impl<T: ArrowPrimitiveType> Sparse<T> {
    fn new(n: usize) -> Self {
        Self {
            // The system gives out zeros, and a page of memory where something else is written.
            values: vec![T::Native::default(); n],
            valid: BooleanBufferBuilder::new(n),
        }
    }

    fn push(&mut self, value: Option<T::Native>) {
        if let (Some(value), Some(to)) = (value, self.values.get_mut(self.valid.len())) {
            *to = value;
        }
        self.valid.append(value.is_some());
    }

    fn finish(mut self) -> ArrayRef {
        let nulls = NullBuffer::new(self.valid.finish());
        Arc::new(PrimitiveArray::<T>::new(self.values.into(), Some(nulls)))
    }
}

/// Takes the steps of all threads, those of one together, and then those of each job.
pub fn steps_of(out: &mut Extractor) -> Result<RecordBatch> {
    let first_job = out.threads.len() as u32;
    let has_steps: Vec<bool> = out.job_steps.iter().map(|job| !job.is_empty()).collect();
    let threads = out.threads.iter_mut().map(|thread| &mut thread.steps);
    let mut programs: Vec<&mut Vec<Made>> = threads.chain(&mut out.job_steps).collect();
    let n = programs.iter().map(|steps| steps.len()).sum();
    let mut program = Vec::with_capacity(n);
    let mut ops = Vec::with_capacity(n);
    let mut ns = Sparse::<Int64Type>::new(n);
    let mut thread = Sparse::<UInt32Type>::new(n);
    let mut count = Sparse::<Int64Type>::new(n);
    let mut step = Sparse::<UInt32Type>::new(n);
    let mut disk = BooleanBuilder::with_capacity(n);
    let mut meet = BooleanBuilder::with_capacity(n);
    let mut sync = BooleanBuilder::with_capacity(n);
    let mut pipe = Sparse::<UInt32Type>::new(n);
    let mut mutex = Sparse::<UInt32Type>::new(n);
    let mut barrier = Sparse::<UInt32Type>::new(n);
    let mut queue = Sparse::<UInt32Type>::new(n);
    let mut job = Sparse::<UInt32Type>::new(n);
    let mut class = Sparse::<UInt8Type>::new(n);
    let mut nice = Sparse::<Int8Type>::new(n);
    let mut rt_prio = Sparse::<UInt8Type>::new(n);
    for (i, steps) in programs.iter_mut().enumerate() {
        for s in std::mem::take(*steps) {
            let piped = matches!(s.op, op::PUT | op::TAKE);
            let locks = matches!(s.op, op::LOCK | op::UNLOCK);
            let meets = s.op == op::BARRIER;
            let queued = matches!(s.op, op::POST | op::SERVE);
            let named = matches!(s.op, op::WAIT_FOR | op::SIGNAL | op::FORK);
            let costs =
                piped || locks || meets || queued || matches!(s.op, op::SIGNAL | op::WAIT_FOR);
            let timed = (costs && s.ns > 0)
                || matches!(
                    s.op,
                    op::RUN | op::SLEEP | op::SLEEP_TICKS | op::WAIT_UNTIL | op::READ_CLOCK
                );
            let named = (named && s.thread != u32::MAX).then_some(s.thread);
            // The number of a mask.
            let timed = timed || s.op == op::SET_AFFINITY;
            let priority = (s.op == op::SET_PRIORITY).then(|| linux_priority(s.ns as i16));
            program.push(i as u32);
            ops.push(s.op);
            ns.push(timed.then_some(s.ns));
            thread.push(named);
            // Of anyone, it waits for the next signal not yet taken.
            let counts = piped || meets || (s.op == op::WAIT_FOR && named.is_some());
            count.push(counts.then_some(s.count as i64));
            step.push((s.op == op::REPEAT).then_some(s.ns as u32));
            let sleeps = matches!(s.op, op::SLEEP | op::WAIT_FOR | op::TAKE);
            disk.append_option(sleeps.then_some(s.disk));
            pipe.push(piped.then_some(s.thread));
            mutex.push(locks.then_some(s.thread));
            barrier.push(meets.then_some(s.thread));
            queue.push(queued.then_some(s.thread));
            // A job without steps is none.
            let number = (s.count as u32).wrapping_sub(1);
            let posts = s.op == op::POST && has_steps.get(number as usize) == Some(&true);
            job.push(posts.then(|| first_job + number));
            // pipe_write and sock_def_readable say that the writer is about to sleep.
            sync.append_option((s.op == op::PUT).then_some(true));
            meet.append_option((s.op == op::SIGNAL).then_some(s.meet));
            class.push(priority.map(|p| p.0));
            nice.push(priority.map(|p| p.1));
            rt_prio.push(priority.map(|p| p.2));
        }
    }
    table(vec![
        ("program", Arc::new(UInt32Array::from(program))),
        ("op", Arc::new(UInt8Array::from(ops))),
        ("ns", ns.finish()),
        ("thread", thread.finish()),
        ("count", count.finish()),
        ("step", step.finish()),
        ("disk", Arc::new(disk.finish())),
        ("meet", Arc::new(meet.finish())),
        ("sync", Arc::new(sync.finish())),
        ("pipe", pipe.finish()),
        ("mutex", mutex.finish()),
        ("barrier", barrier.finish()),
        ("queue", queue.finish()),
        ("job", job.finish()),
        ("class", class.finish()),
        ("nice", nice.finish()),
        ("rt_prio", rt_prio.finish()),
    ])
}
