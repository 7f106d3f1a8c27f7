//! When did the sleep begin that a wakeup ended?
use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, RecordBatch};

use super::pulse;
use super::rows::{column, full};
use crate::error::{Error, Result};

const WOKEN: u8 = 1;

/// For each row of `asked` (utid, ts_ready; null where nothing is asked) the begin of the
/// interval that a wakeup ended at that instant, in the order of the rows; and the state in it.
///
/// `states` has ts, dur, utid, state and end.
pub fn sleeps(states: &[RecordBatch], asked: &[RecordBatch]) -> Result<Vec<Option<(i64, u8)>>> {
    let rows: usize = asked.iter().map(RecordBatch::num_rows).sum();
    if u32::try_from(rows).is_err() {
        return Err(Error::usage(
            format!("{rows} rows"),
            "fewer than 2^32",
            "cut the trace",
        ));
    }
    // By utid the instants asked for and the row of each, in order of time.
    let mut of: Vec<Vec<(i64, u32)>> = Vec::new();
    let mut row = 0;
    for batch in asked {
        let (utid, ready) = (
            full::<UInt32Type>(batch, "utid")?,
            column::<Int64Type>(batch, "ts_ready")?,
        );
        for (i, utid) in utid.iter().enumerate() {
            if ready.is_valid(i) {
                if of.len() <= *utid as usize {
                    of.resize_with(*utid as usize + 1, Vec::new);
                }
                of[*utid as usize].push((ready.value(i), row));
            }
            row += 1;
        }
    }
    for rows in &mut of {
        if !rows.is_sorted() {
            rows.sort_unstable();
        }
    }
    // Rows of a thread are in order of time, wherever reconstruction wrote them: the next
    // answer is at the place of the last one or behind it.
    let mut next = vec![0usize; of.len()];
    let mut found = vec![None; rows];
    for batch in states {
        pulse()?;
        let (ts, dur) = (
            full::<Int64Type>(batch, "ts")?,
            full::<Int64Type>(batch, "dur")?,
        );
        let utid = full::<UInt32Type>(batch, "utid")?;
        let (state, end) = (
            full::<UInt8Type>(batch, "state")?,
            full::<UInt8Type>(batch, "end")?,
        );
        for i in 0..ts.len() {
            if end[i] != WOKEN {
                continue;
            }
            let who = utid[i] as usize;
            let Some(rows) = of.get(who) else { continue };
            let until = ts[i].wrapping_add(dur[i]);
            let mut at = next[who];
            if at > 0 && rows[at - 1].0 >= until {
                at = rows.partition_point(|(ready, _)| *ready < until);
            }
            while rows.get(at).is_some_and(|(ready, _)| *ready < until) {
                at += 1;
            }
            while let Some((_, row)) = rows.get(at).filter(|(ready, _)| *ready == until) {
                found[*row as usize] = Some((ts[i], state[i]));
                at += 1;
            }
            next[who] = at;
        }
    }
    Ok(found)
}
