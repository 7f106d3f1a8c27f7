//! Whether numbers of a table can be a trace's: asked of every batch that comes in from a file
//! or from Python, so that what follows may size its memory by utids and add times up.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt16Type, UInt32Type};
use arrow_array::{Array, ArrowPrimitiveType, PrimitiveArray, RecordBatch};
use arrow_schema::DataType;

use crate::error::{Error, Result};
use crate::model::time::FAR;

/// No trace has more thread incarnations: 33 million are hours of a fork bomb.
pub const MOST_THREADS: u32 = 1 << 25;
/// No machine has more CPUs; the highest number stands for "not known" in the sweeps.
pub const MOST_CPUS: u16 = 1 << 14;

/// Columns of lengths of time. Other columns of times are instants.
const LENGTHS: [&str; 4] = ["dur", "wait", "placement", "queue"];

/// What the numbers of a trace are below, and its times between.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub threads: u32,
    pub cpus: u16,
    pub times: (i64, i64),
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            threads: MOST_THREADS,
            cpus: MOST_CPUS,
            times: (-FAR, FAR),
        }
    }
}

impl Bounds {
    fn expected_times(&self) -> String {
        match self.times {
            (begin, end) if (begin, end) != (-FAR, FAR) => {
                format!("times in the trace's window, from {begin} to {end} ns")
            }
            _ => "times no farther from 0 than 2^62 ns".to_string(),
        }
    }
}

/// Goes along with the batches of one table.
pub struct Ranges {
    /// The file or the table, as errors name it.
    name: String,
    bounds: Bounds,
    /// Rows of the batches before.
    rows: usize,
    /// Of each of `LENGTHS`, the sum so far.
    sums: [i128; LENGTHS.len()],
}

impl Ranges {
    /// `rows`: of the table before the first batch.
    pub fn new(name: impl Into<String>, bounds: Bounds, rows: usize) -> Self {
        Self {
            name: name.into(),
            bounds,
            rows,
            sums: [0; LENGTHS.len()],
        }
    }

    /// An error naming the first value of `batch`, the next of the table, that no trace holds.
    pub fn check(&mut self, batch: &RecordBatch) -> Result<()> {
        let schema = batch.schema_ref();
        for (field, array) in schema.fields().iter().zip(batch.columns()) {
            let name = field.name().as_str();
            match array.data_type() {
                DataType::UInt32 if is_utid(name) => {
                    let most = self.bounds.threads.saturating_sub(1);
                    let expected = format!("utids numbered from 0 on, below {}", most + 1);
                    self.within::<UInt32Type>(name, array.as_primitive(), 0, most, &expected)?;
                }
                DataType::UInt16 if is_cpu(name) => {
                    let most = self.bounds.cpus.saturating_sub(1);
                    let expected = format!("CPUs below {}", most + 1);
                    self.within::<UInt16Type>(name, array.as_primitive(), 0, most, &expected)?;
                }
                DataType::Int64 if is_length(name) => {
                    let expected = "times of 0 ns or more, below 2^62 ns";
                    self.within::<Int64Type>(name, array.as_primitive(), 0, FAR, expected)?;
                    self.add(name, array.as_primitive())?;
                }
                DataType::Int64 if is_instant(name) => {
                    let (least, most) = self.bounds.times;
                    let expected = self.bounds.expected_times();
                    self.within::<Int64Type>(name, array.as_primitive(), least, most, &expected)?;
                }
                _ => {}
            }
        }
        self.ends(batch)?;
        self.rows += batch.num_rows();
        Ok(())
    }

    fn within<T: ArrowPrimitiveType>(
        &self,
        column: &str,
        array: &PrimitiveArray<T>,
        least: T::Native,
        most: T::Native,
        expected: &str,
    ) -> Result<()>
    where
        T::Native: PartialOrd + std::fmt::Display,
    {
        // All values at once, without a branch on each; what stands where a null is comes next.
        let odd = |value: &T::Native| (*value < least) | (*value > most);
        if !array.values().iter().fold(false, |any, v| any | odd(v)) {
            return Ok(());
        }
        let row = (0..array.len()).find(|i| array.is_valid(*i) && odd(&array.value(*i)));
        row.map_or(Ok(()), |row| {
            Err(self.wrong(column, array.value(row), row, expected))
        })
    }

    /// The sum of a column of lengths: if all of it is a number of ns, no part of it wraps.
    fn add(&mut self, column: &str, array: &PrimitiveArray<Int64Type>) -> Result<()> {
        let Some(place) = LENGTHS.iter().position(|name| *name == column) else {
            return Ok(());
        };
        let sum: i128 = if array.null_count() == 0 {
            // Two sums of halves, which fit: a sum of 128 bits is dear.
            let (high, low) = array.values().iter().fold((0i64, 0i64), |(high, low), v| {
                (high + (v >> 32), low + (v & 0xffff_ffff))
            });
            (i128::from(high) << 32) + i128::from(low)
        } else {
            array.iter().flatten().map(i128::from).sum()
        };
        self.sums[place] += sum;
        if self.sums[place] > i128::from(i64::MAX) {
            return Err(Error::format(
                format!(
                    "{}, column {column}: its times sum up to {} ns",
                    self.name, self.sums[place]
                ),
                "less than 2^63 ns, that is 292 years, in all",
                "look at a part of the trace with --since and --until, or convert it again",
            ));
        }
        Ok(())
    }

    /// Where both are there, an interval ends no later than times may be.
    fn ends(&self, batch: &RecordBatch) -> Result<()> {
        let column = |name| {
            let array = batch.column_by_name(name)?;
            array.as_primitive_opt::<Int64Type>()
        };
        let (Some(ts), Some(dur)) = (column("ts"), column("dur")) else {
            return Ok(());
        };
        let (begins, lengths) = (ts.values(), dur.values());
        // Neither is beyond 2^62, unless in the place of a null.
        let (_, most) = self.bounds.times;
        let late = |i: usize| begins[i].wrapping_add(lengths[i]) > most;
        if !(0..batch.num_rows()).fold(false, |any, i| any | late(i)) {
            return Ok(());
        }
        let row = (0..batch.num_rows()).find(|i| ts.is_valid(*i) && dur.is_valid(*i) && late(*i));
        row.map_or(Ok(()), |row| {
            let found = format!("{} ns from {} ns on", dur.value(row), ts.value(row));
            Err(self.wrong("dur", found, row, &self.bounds.expected_times()))
        })
    }

    fn wrong(
        &self,
        column: &str,
        value: impl std::fmt::Display,
        row: usize,
        expected: &str,
    ) -> Error {
        Error::format(
            format!(
                "{}, column {column} holds {value} in row {}",
                self.name,
                self.rows + row
            ),
            expected,
            "convert the capture again",
        )
    }
}

pub fn is_utid(name: &str) -> bool {
    name == "utid" || name.ends_with("_utid")
}

pub fn is_cpu(name: &str) -> bool {
    name == "cpu" || name.ends_with("_cpu")
}

fn is_length(name: &str) -> bool {
    LENGTHS.contains(&name)
}

fn is_instant(name: &str) -> bool {
    matches!(name, "ts" | "until") || name.starts_with("ts_") || name.ends_with("_ts")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, UInt16Array, UInt32Array};

    use super::*;

    fn told(columns: Vec<(&str, ArrayRef)>) -> String {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut ranges = Ranges::new("states.parquet", Bounds::default(), 0);
        match ranges.check(&batch) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    fn ints(values: &[Option<i64>]) -> ArrayRef {
        Arc::new(Int64Array::from(values.to_vec()))
    }

    #[test]
    fn the_first_value_out_of_range_is_named_with_its_row() {
        let utids: ArrayRef = Arc::new(UInt32Array::from(vec![7, u32::MAX]));
        assert!(told(vec![("utid", utids)]).contains("column utid holds 4294967295 in row 1"));
        let cpus: ArrayRef = Arc::new(UInt16Array::from(vec![None, Some(u16::MAX)]));
        assert!(told(vec![("queue_cpu", cpus)]).contains("queue_cpu holds 65535 in row 1"));
        let late = ints(&[Some(0), None, Some(FAR + 1)]);
        assert!(told(vec![("ts_ready", late)]).contains(&format!("ts_ready holds {}", FAR + 1)));
        assert!(told(vec![("wait", ints(&[Some(-1)]))]).contains("wait holds -1 in row 0"));
        assert_eq!(told(vec![("ts", ints(&[Some(-FAR), Some(FAR), None]))]), "");
    }

    #[test]
    fn an_interval_ends_within_range() {
        let columns = vec![("ts", ints(&[Some(FAR)])), ("dur", ints(&[Some(1)]))];
        assert!(told(columns).contains(&format!("1 ns from {FAR} ns on in row 0")));
    }

    #[test]
    fn sums_that_would_wrap_are_refused() {
        assert_eq!(told(vec![("dur", ints(&[Some(FAR), Some(FAR)]))]), "");
        let mut values = vec![Some(FAR); 3];
        let wraps = told(vec![("dur", ints(&values))]);
        assert!(wraps.contains("sum up to"), "{wraps}");
        values.insert(1, None);
        let nulls = told(vec![("wait", ints(&values))]);
        assert!(nulls.contains("column wait"), "{nulls}");
    }

    #[test]
    fn rows_are_counted_across_batches() {
        let batch = |utid: u32| {
            let column: ArrayRef = Arc::new(UInt32Array::from(vec![0, utid]));
            RecordBatch::try_from_iter(vec![("utid", column)]).unwrap()
        };
        let mut ranges = Ranges::new("t", Bounds::default(), 0);
        ranges.check(&batch(1)).unwrap();
        let error = ranges.check(&batch(MOST_THREADS)).unwrap_err().to_string();
        assert!(error.contains("in row 3"), "{error}");
    }
}
