//! Worlds at random, for tests: threads that wait in parts, on several queues, or on none, and CPUs
//! that run several at once, or an unknown one.
use std::sync::Arc;

use arrow_array::{
    ArrayRef, Int16Array, Int64Array, RecordBatch, UInt8Array, UInt16Array, UInt32Array,
};

/// Threads have the utids from 1 on; that of CPU 0's idle thread is 0.
pub const THREADS: u32 = 7;
/// The window, ns.
pub const LENGTH: i64 = 400;

/// Numbers below n, the same ones for the same seed.
pub fn random(seed: u32) -> impl FnMut(u32) -> u32 {
    let mut seed = seed;
    move |n| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) % n
    }
}

/// ts, dur, utid, state, cpu and prio.
pub type Row = (i64, i64, u32, u8, Option<u16>, Option<i16>);

/// A table of `states`.
pub fn states(rows: &[Row]) -> RecordBatch {
    let cpus: UInt16Array = rows.iter().map(|row| row.4).collect();
    let prios: Int16Array = rows.iter().map(|row| row.5).collect();
    let columns: [(&str, ArrayRef); 6] = [
        ("ts", ints(rows.iter().map(|row| row.0))),
        ("dur", ints(rows.iter().map(|row| row.1))),
        ("utid", numbers(rows.iter().map(|row| row.2))),
        ("state", codes(rows.iter().map(|row| row.3))),
        ("cpu", Arc::new(cpus)),
        ("prio", Arc::new(prios)),
    ];
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

/// Some `states`, and some of the waits in them.
pub fn world(seed: u32) -> (RecordBatch, RecordBatch) {
    let (rows, waits) = rows(seed);
    (states(&rows), ledger(&waits))
}

/// A row of `waits`: utid, ts_ready, cause and the wait's length.
pub type Wait = (u32, i64, u8, i64);

/// The rows of these tables.
pub fn rows(seed: u32) -> (Vec<Row>, Vec<Wait>) {
    let mut random = random(seed);
    let mut rows = Vec::new();
    let mut waits = Vec::new();
    for utid in 0..=THREADS {
        let mut t = i64::from(random(9));
        while t < LENGTH {
            let (dur, state) = (i64::from(1 + random(12)), random(3) as u8);
            let idles = utid == 0;
            let cpu = Some(random(4) as u16).filter(|cpu| *cpu < 3 || state == 0);
            let cpu = if idles { Some(0) } else { cpu };
            let prio = [None, Some(49), Some(110), Some(120)][random(4) as usize];
            if state == 1 && !idles && random(3) > 0 {
                waits.push((utid, t, random(5) as u8, dur));
            }
            if state != 1 || !idles {
                rows.push((t + dur, (t, dur, utid, state, cpu, prio)));
            }
            t += dur;
        }
    }
    rows.sort_unstable();
    (rows.into_iter().map(|(_, row)| row).collect(), waits)
}

/// A table of `waits` (utid, ts_ready, cause and ts_run), each with its length.
pub fn ledger(rows: &[Wait]) -> RecordBatch {
    let columns: [(&str, ArrayRef); 4] = [
        ("utid", numbers(rows.iter().map(|row| row.0))),
        ("ts_ready", ints(rows.iter().map(|row| row.1))),
        ("cause", codes(rows.iter().map(|row| row.2))),
        ("ts_run", ints(rows.iter().map(|row| row.1 + row.3))),
    ];
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

fn ints(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn numbers(values: impl Iterator<Item = u32>) -> ArrayRef {
    Arc::new(UInt32Array::from_iter_values(values))
}

fn codes(values: impl Iterator<Item = u8>) -> ArrayRef {
    Arc::new(UInt8Array::from_iter_values(values))
}
