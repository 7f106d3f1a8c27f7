//! Extracted steps as a table.
use std::sync::Arc;

use arrow_array::builder::BooleanBuilder;
use arrow_array::types::{Int8Type, Int64Type, UInt8Type, UInt32Type};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, PrimitiveArray, RecordBatch, UInt8Array, UInt32Array,
};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};

use super::super::load::op;
use super::{Extractor, linux_priority};
use crate::columns::table;
use crate::error::Result;

/// A column as it grows, with places for what is missing.
struct Sparse<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    valid: BooleanBufferBuilder,
}

impl<T: ArrowPrimitiveType> Sparse<T> {
    fn with_capacity(n: usize) -> Self {
        Self {
            values: Vec::with_capacity(n),
            valid: BooleanBufferBuilder::new(n),
        }
    }

    fn push(&mut self, value: Option<T::Native>) {
        self.valid.append(value.is_some());
        self.values.push(value.unwrap_or_default());
    }

    fn finish(mut self) -> ArrayRef {
        let nulls = NullBuffer::new(self.valid.finish());
        Arc::new(PrimitiveArray::<T>::new(self.values.into(), Some(nulls)))
    }
}

/// The steps of all threads, those of one together.
pub fn steps_of(out: &Extractor) -> Result<RecordBatch> {
    let n = out.threads.iter().map(|t| t.steps.len()).sum();
    let mut program = Vec::with_capacity(n);
    let mut ops = Vec::with_capacity(n);
    let mut ns = Sparse::<Int64Type>::with_capacity(n);
    let mut thread = Sparse::<UInt32Type>::with_capacity(n);
    let mut count = Sparse::<Int64Type>::with_capacity(n);
    let mut disk = BooleanBuilder::with_capacity(n);
    let mut meet = BooleanBuilder::with_capacity(n);
    let mut sync = BooleanBuilder::with_capacity(n);
    let mut pipe = Sparse::<UInt32Type>::with_capacity(n);
    let mut mutex = Sparse::<UInt32Type>::with_capacity(n);
    let mut class = Sparse::<UInt8Type>::with_capacity(n);
    let mut nice = Sparse::<Int8Type>::with_capacity(n);
    let mut rt_prio = Sparse::<UInt8Type>::with_capacity(n);
    for (i, t) in out.threads.iter().enumerate() {
        for s in &t.steps {
            let piped = matches!(s.op, op::PUT | op::TAKE);
            let locks = matches!(s.op, op::LOCK | op::UNLOCK);
            let costs = (piped || locks || matches!(s.op, op::SIGNAL | op::WAIT_FOR)) && s.ns > 0;
            let timed = costs || matches!(s.op, op::RUN | op::SLEEP | op::WAIT_UNTIL);
            let named = (!piped && !locks && s.thread != u32::MAX).then_some(s.thread);
            let priority = (s.op == op::SET_PRIORITY).then(|| linux_priority(s.ns as i16));
            program.push(i as u32);
            ops.push(s.op);
            ns.push(timed.then_some(s.ns));
            thread.push(named);
            // Of anyone, it waits for the next signal not yet taken.
            let counts = piped || (s.op == op::WAIT_FOR && named.is_some());
            count.push(counts.then_some(s.count as i64));
            let sleeps = matches!(s.op, op::SLEEP | op::WAIT_FOR | op::TAKE);
            disk.append_option(sleeps.then_some(s.disk));
            pipe.push(piped.then_some(s.thread));
            mutex.push(locks.then_some(s.thread));
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
        ("disk", Arc::new(disk.finish())),
        ("meet", Arc::new(meet.finish())),
        ("sync", Arc::new(sync.finish())),
        ("pipe", pipe.finish()),
        ("mutex", mutex.finish()),
        ("class", class.finish()),
        ("nice", nice.finish()),
        ("rt_prio", rt_prio.finish()),
    ])
}
