//! The second pass: the ordered stretches of the file, merged in time order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::sync::Arc;

use super::bytes::ByteOrder;
use super::records::{Peek, Record, RecordReader};
use super::scan::{Run, trailing_len};
use super::session::{RecordPosition, Session};
use crate::error::Result;

/// Windows of all open stretches together take about this much.
const MEMORY: usize = 64 << 20;
const WINDOW_MAX: usize = 64 << 10;
const WINDOW_MIN: usize = 4 << 10;

/// (time, rank among equal times, number of the stretch, slot of its cursor).
type Key = (u64, u8, u32, u32);

/// A stretch being read, and where its next record belongs.
struct Cursor {
    reader: RecordReader,
    place: RecordPosition,
}

/// Calls `each` with every placed record, in time order.
pub fn merge(
    file: &Arc<File>,
    order: ByteOrder,
    session: &Session,
    runs: &[Run],
    each: &mut dyn FnMut(RecordPosition, Record<'_>) -> Result<()>,
) -> Result<()> {
    let window = (MEMORY / most_open(runs).max(1)).clamp(WINDOW_MIN, WINDOW_MAX);
    let mut heap: BinaryHeap<Reverse<Key>> = BinaryHeap::new();
    // A stretch that has ended leaves its window to the next one.
    let mut cursors: Vec<Cursor> = Vec::new();
    let mut free: Vec<u32> = Vec::new();
    let mut waiting = runs.iter().zip(0u32..).peekable();
    loop {
        // Open every stretch that begins before what we are about to give out.
        while let Some(&(run, number)) = waiting.peek() {
            if heap.peek().is_some_and(|Reverse(top)| top.0 < run.first) {
                break;
            }
            waiting.next();
            let slot = free.pop().unwrap_or(cursors.len() as u32);
            if slot as usize == cursors.len() {
                let reader =
                    RecordReader::new(Arc::clone(file), order, (run.begin, run.end), window);
                cursors.push(Cursor {
                    reader,
                    place: RecordPosition {
                        ts: 0,
                        rank: 0,
                        event: 0,
                    },
                });
            } else {
                cursors[slot as usize]
                    .reader
                    .restart((run.begin, run.end), window);
            }
            let cursor = &mut cursors[slot as usize];
            match advance(&mut cursor.reader, session)? {
                Some(place) => {
                    cursor.place = place;
                    heap.push(Reverse((place.ts, place.rank, number, slot)));
                }
                None => free.push(slot),
            }
        }
        let Some(Reverse(mut key)) = heap.pop() else {
            return Ok(());
        };
        let slot = key.3;
        let Cursor { reader, place } = &mut cursors[slot as usize];
        // Continue with this stretch while it is the earliest.
        let others = heap.peek().map_or((u64::MAX, 0, 0, 0), |Reverse(key)| *key);
        let unopened = waiting.peek().map_or(u64::MAX, |(run, _)| run.first);
        let done = loop {
            if let Peek::Record(record) = reader.peek()? {
                let size = record.0.len();
                each(*place, record)?;
                reader.step(size);
            }
            match advance(reader, session)? {
                Some(next) => *place = next,
                None => break true,
            }
            (key.0, key.1) = (place.ts, place.rank);
            if key > others || key.0 >= unopened {
                break false;
            }
        };
        if done {
            free.push(slot);
        } else {
            heap.push(Reverse(key));
        }
    }
}

/// The largest number of stretches that overlap in time.
fn most_open(runs: &[Run]) -> usize {
    let mut ends: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let mut most = 0;
    for run in runs {
        while ends.peek().is_some_and(|Reverse(end)| *end < run.first) {
            ends.pop();
        }
        ends.push(Reverse(run.last));
        most = most.max(ends.len());
    }
    most
}

/// Steps to the next record that has a place.
#[inline]
fn advance(cursor: &mut RecordReader, session: &Session) -> Result<Option<RecordPosition>> {
    loop {
        let Peek::Record(record) = cursor.peek()? else {
            return Ok(None);
        };
        if let Some(place) = session.place(record) {
            return Ok(Some(place));
        }
        let (size, trailing) = (record.0.len(), trailing_len(record));
        cursor.step(size);
        if trailing > 0 && !cursor.skip(trailing) {
            return Ok(None);
        }
    }
}
