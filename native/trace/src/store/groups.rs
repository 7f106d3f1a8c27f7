//! What is known of each row group of a table, so that a part in time reads only the groups that
//! hold some of it, and can check that those are complete.
//!
//! It stands in the file's own metadata. An interval is in the table where it ends, so that a
//! group may have rows from long before: of a thread that slept for hours, say. Those that reach
//! across whole groups are written once more, into a small file beside with their row numbers, and
//! do not count in what is said of their group. How many groups a row may reach across and still
//! count doubles when too many rows would be written twice.

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, Int64Array, RecordBatch};
use crc32fast::Hasher;
use parquet::file::metadata::{KeyValue, ParquetMetaDataReader};
use serde_json::{Value, json};

use crate::error::Result;
use crate::regular_file::open_regular;

/// The key in a file's metadata.
const KEY: &str = "schedscope:row_groups";
/// One row in so many is written twice at most, but for those of a few groups.
const TWICE: u64 = 32;

/// One row group, as readers get to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub rows: u64,
    pub offset: u64,
    pub bytes: u64,
    /// CRC-32 of those bytes.
    pub crc32: u32,
    /// The first instant of any row that is not in the file beside, and the last of any row.
    pub first: i64,
    pub last: i64,
}

/// What a file says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub groups: Vec<Group>,
    /// Rows of the file beside.
    pub long: u64,
}

/// The first and the last instant of a row.
type Span = fn(&RecordBatch) -> Option<(Vec<i64>, Vec<i64>)>;

/// Gathers what is known of the groups of a table that is being written.
pub struct Groups {
    span: Span,
    groups: Vec<Group>,
    /// Of the rows of each finished group, when the last one ended.
    ends: Vec<i64>,
    first: i64,
    last: i64,
    end: i64,
    crc: Hasher,
    /// Rows that begin before belong into the file beside.
    border: i64,
    across: usize,
    rows: u64,
    /// Rows written twice: since it was doubled how far they may reach, and in all.
    twice: u64,
    long: u64,
}

impl Groups {
    /// None for a table whose rows have no place in time, or which is always small.
    pub fn of(table: &str) -> Option<Self> {
        let span: Span = match table {
            "threads" | "cpus" | "losses" => return None,
            "states" | "irqs" => intervals,
            "waits" => waits,
            _ => instants,
        };
        Some(Self {
            span,
            groups: Vec::new(),
            ends: Vec::new(),
            first: i64::MAX,
            last: i64::MIN,
            end: i64::MIN,
            crc: Hasher::new(),
            border: i64::MIN,
            across: 1,
            rows: 0,
            twice: 0,
            long: 0,
        })
    }

    /// Notes the rows of the group at hand; returns those that belong into the file beside.
    pub fn note(&mut self, batch: &RecordBatch) -> Vec<u32> {
        let mut far = Vec::new();
        let Some((firsts, lasts)) = (self.span)(batch) else {
            (self.first, self.last) = (i64::MIN, i64::MAX);
            return far;
        };
        let all = firsts.iter().fold(i64::MAX, |low, first| low.min(*first));
        if all < self.border {
            for (row, first) in firsts.iter().enumerate() {
                if *first < self.border {
                    far.push(row as u32);
                } else {
                    self.first = self.first.min(*first);
                }
            }
        } else {
            self.first = self.first.min(all);
        }
        self.last = lasts.iter().fold(self.last, |high, last| high.max(*last));
        self.end = lasts.last().copied().unwrap_or(self.end);
        self.rows += batch.num_rows() as u64;
        self.twice += far.len() as u64;
        self.long += far.len() as u64;
        far
    }

    /// Bytes of the group at hand, in the order of the file.
    pub fn wrote(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
    }

    pub fn ended(&mut self, rows: u64, offset: u64, bytes: u64) {
        self.groups.push(Group {
            rows,
            offset,
            bytes,
            crc32: std::mem::take(&mut self.crc).finalize(),
            first: self.first,
            last: self.last,
        });
        (self.first, self.last) = (i64::MAX, i64::MIN);
        self.ends.push(self.end);
        if self.twice * TWICE > self.rows {
            self.across *= 2;
            self.twice = 0;
        }
        let before = self.ends.len().checked_sub(self.across + 1);
        self.border = before.map_or(i64::MIN, |group| self.ends[group]);
    }

    pub fn about(&self) -> KeyValue {
        let list = |get: fn(&Group) -> Value| self.groups.iter().map(get).collect::<Value>();
        let about = json!({
            "long": self.long,
            "rows": list(|group| group.rows.into()),
            "offset": list(|group| group.offset.into()),
            "bytes": list(|group| group.bytes.into()),
            "crc32": list(|group| group.crc32.into()),
            "first": list(|group| group.first.into()),
            "last": list(|group| group.last.into()),
        });
        KeyValue::new(KEY.into(), about.to_string())
    }
}

/// What the metadata of the Parquet file says of its groups; None if it says nothing, or nothing
/// that can be.
pub fn read(path: &Path) -> Result<Option<Told>> {
    let file = open_regular(path)?;
    let Ok(metadata) = ParquetMetaDataReader::new().parse_and_finish(&file) else {
        return Ok(None);
    };
    let about = metadata.file_metadata().key_value_metadata();
    let text = about
        .and_then(|all| all.iter().find(|one| one.key == KEY))
        .and_then(|one| one.value.as_ref());
    let Some(Ok(about)) = text.map(|text| serde_json::from_str::<Value>(text)) else {
        return Ok(None);
    };
    let rows = metadata.row_groups().iter().map(|group| group.num_rows());
    let said = |told: &Told| told.groups.iter().map(|group| group.rows as i64).eq(rows);
    Ok(parsed(&about).filter(said))
}

fn parsed(about: &Value) -> Option<Told> {
    let list = |name| about.get(name)?.as_array();
    let (rows, offset, bytes) = (list("rows")?, list("offset")?, list("bytes")?);
    let (crc, first, last) = (list("crc32")?, list("first")?, list("last")?);
    let groups = (0..rows.len())
        .map(|i| {
            Some(Group {
                rows: rows[i].as_u64()?,
                offset: offset.get(i)?.as_u64()?,
                bytes: bytes.get(i)?.as_u64()?,
                crc32: u32::try_from(crc.get(i)?.as_u64()?).ok()?,
                first: first.get(i)?.as_i64()?,
                last: last.get(i)?.as_i64()?,
            })
        })
        .collect::<Option<_>>()?;
    let long = about.get("long")?.as_u64()?;
    Some(Told { groups, long })
}

fn times<'a>(batch: &'a RecordBatch, name: &str) -> Option<&'a Int64Array> {
    batch.column_by_name(name)?.as_primitive_opt::<Int64Type>()
}

fn instants(batch: &RecordBatch) -> Option<(Vec<i64>, Vec<i64>)> {
    let ts = times(batch, "ts")?.values().to_vec();
    Some((ts.clone(), ts))
}

fn intervals(batch: &RecordBatch) -> Option<(Vec<i64>, Vec<i64>)> {
    let (ts, dur) = (times(batch, "ts")?.values(), times(batch, "dur")?.values());
    let last = ts.iter().zip(dur).map(|(ts, dur)| ts.saturating_add(*dur));
    Some((ts.to_vec(), last.collect()))
}

/// A wait lasts from when its thread was ready to when that ran, or as far as it is known to have
/// lasted; of one without any of these times, the step of the wakeup is all that is known.
fn waits(batch: &RecordBatch) -> Option<(Vec<i64>, Vec<i64>)> {
    let (ready, run) = (times(batch, "ts_ready")?, times(batch, "ts_run")?);
    let (wait, enqueued) = (times(batch, "wait")?, times(batch, "ts_enqueued")?);
    let waking = times(batch, "ts_waking")?;
    let at = |array: &Int64Array, row| array.is_valid(row).then(|| array.value(row));
    let spans = (0..batch.num_rows()).map(|row| {
        let since = at(ready, row);
        let known = || since.and_then(|since| Some(since.saturating_add(at(wait, row)?)));
        let last = at(run, row)
            .or_else(known)
            .or_else(|| at(enqueued, row))
            .or_else(|| at(waking, row));
        // Of one without any time it is unknown when it was not.
        (since.or(last).unwrap_or(i64::MIN), last.unwrap_or(i64::MAX))
    });
    Some(spans.unzip())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::ArrayRef;

    use super::*;

    fn batch(rows: &[(i64, i64)]) -> RecordBatch {
        let ts: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
        let dur: ArrayRef = Arc::new(Int64Array::from_iter_values(
            rows.iter().map(|row| row.1 - row.0),
        ));
        RecordBatch::try_from_iter([("ts", ts), ("dur", dur)]).expect("a batch")
    }

    #[test]
    fn rows_across_whole_groups_are_set_aside() {
        let mut groups = Groups::of("states").expect("a table with times");
        let mut far = Vec::new();
        for begin in (0..500).step_by(100) {
            // The third begins in the group before, the fourth at the start of all.
            let rows = [
                (begin, begin + 40),
                (begin + 40, begin + 60),
                ((begin - 50).max(0), begin + 70),
                (0, begin + 90),
            ];
            far.push(groups.note(&batch(&rows)));
            groups.wrote(b"bytes");
            groups.ended(4, 4 + begin as u64, 100);
        }
        assert_eq!(far[..3], [vec![], vec![], vec![3]]);
        assert_eq!(groups.groups[1].first, 0);
        assert_eq!((groups.groups[2].first, groups.groups[2].last), (150, 290));
        // One row in four is too many: a row may reach across two of them, and then across four.
        assert_eq!(far[3..], [vec![3], vec![]]);
        assert_eq!((groups.groups[3].first, groups.groups[4].first), (250, 0));
        let text = groups.about().value.expect("a text");
        let told = parsed(&serde_json::from_str(&text).expect("JSON")).expect("groups");
        assert_eq!(told.groups, groups.groups);
        assert_eq!(told.long, 2);
    }

    #[test]
    fn a_wait_without_any_time_may_be_anywhere() {
        let column = |value: Option<i64>| -> ArrayRef { Arc::new(Int64Array::from(vec![value])) };
        let names = ["ts_ready", "ts_run", "wait", "ts_enqueued", "ts_waking"];
        let row = |values: [Option<i64>; 5]| {
            let columns = names.into_iter().zip(values.map(column));
            waits(&RecordBatch::try_from_iter(columns).expect("a batch")).expect("its times")
        };
        assert_eq!(row([None; 5]), (vec![i64::MIN], vec![i64::MAX]));
        assert_eq!(
            row([Some(5), None, Some(7), Some(6), None]),
            (vec![5], vec![12])
        );
        assert_eq!(
            row([None, Some(9), None, None, Some(3)]),
            (vec![9], vec![9])
        );
        assert_eq!(row([None, None, None, None, Some(3)]), (vec![3], vec![3]));
    }
}
