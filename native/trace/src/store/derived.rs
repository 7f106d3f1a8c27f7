//! Columns that follow from others: a file holds what is added to those, which is nothing in most
//! rows, or takes fewer bits (docs/trace-model.md, In kept files).
//!
//! A table is in order of the ends of its rows, so that in `states` the ends take half the bits of
//! the starts. A wait has four times and three lengths, all of which follow from three numbers. A
//! null counts as 0 in the sums, so that they hold of every row whatever it is.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// One of those columns.
#[derive(Debug)]
pub struct Derived {
    pub table: &'static str,
    pub name: &'static str,
    /// What the file has instead.
    pub stored: &'static str,
    /// The column is `stored` and the sum of these, each with its sign.
    pub terms: &'static [(&'static str, i64)],
}

/// All of them; what a term is derived from stands before it.
pub const DERIVED: &[Derived] = &[
    Derived {
        table: "states",
        name: "ts",
        stored: "ts_end",
        terms: &[("dur", -1)],
    },
    Derived {
        table: "waits",
        name: "ts_ready",
        stored: "ready_shift",
        terms: &[("ts_run", 1), ("wait", -1)],
    },
    Derived {
        table: "waits",
        name: "ts_waking",
        stored: "waking_shift",
        terms: &[("ts_ready", 1)],
    },
    Derived {
        table: "waits",
        name: "ts_enqueued",
        stored: "enqueued_shift",
        terms: &[("ts_ready", 1), ("placement", 1)],
    },
    Derived {
        table: "waits",
        name: "queue",
        stored: "queue_shift",
        terms: &[("wait", 1), ("placement", -1)],
    },
    Derived {
        table: "waits",
        name: "wait_high",
        stored: "high_shift",
        terms: &[("wait", 1)],
    },
];

/// How the column `name` of `table` is derived, if it is.
pub fn of(table: &str, name: &str) -> Option<&'static Derived> {
    DERIVED
        .iter()
        .find(|one| one.table == table && one.name == name)
}

/// The columns that the file of `table` has.
pub fn stored_schema(table: &str, schema: &SchemaRef) -> SchemaRef {
    let stored = |field: &Arc<Field>| match of(table, field.name()) {
        Some(one) => Arc::new(Field::new(one.stored, DataType::Int64, field.is_nullable())),
        None => Arc::clone(field),
    };
    let fields: Vec<_> = schema.fields().iter().map(stored).collect();
    Arc::new(Schema::new(fields))
}

/// The columns of `batch` as the file of `table` has them.
pub fn stored(table: &str, batch: &RecordBatch) -> Vec<ArrayRef> {
    let mut columns = batch.columns().to_vec();
    for one in DERIVED.iter().filter(|one| one.table == table) {
        let Ok(place) = batch.schema_ref().index_of(one.name) else {
            continue;
        };
        let terms = one.terms.iter().filter_map(|(name, sign)| {
            let term = batch.column_by_name(name)?;
            Some((term, -sign))
        });
        columns[place] = sum(batch.column(place), terms);
    }
    columns
}

/// `base` and the sum of `terms`, each with its sign; null where `base` is.
pub fn sum<'a>(base: &ArrayRef, terms: impl Iterator<Item = (&'a ArrayRef, i64)>) -> ArrayRef {
    let base = base.as_primitive::<Int64Type>();
    let mut values = base.values().to_vec();
    for (term, sign) in terms {
        let term = term.as_primitive::<Int64Type>();
        let Some(valid) = term.nulls() else {
            for (value, &term) in values.iter_mut().zip(term.values()) {
                *value = value.wrapping_add(term.wrapping_mul(sign));
            }
            continue;
        };
        let rows = values.chunks_mut(64).zip(term.values().chunks(64));
        for (bits, (values, terms)) in valid.inner().bit_chunks().iter_padded().zip(rows) {
            for (at, (value, &term)) in values.iter_mut().zip(terms).enumerate() {
                // All bits or none: a branch on nulls would be foreseen badly.
                let there = ((bits >> at & 1) as i64).wrapping_neg();
                *value = value.wrapping_add((term & there).wrapping_mul(sign));
            }
        }
    }
    Arc::new(Int64Array::new(values.into(), base.nulls().cloned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tables::{States, Waits};

    /// Of any values at all, far beyond those of a trace, too.
    #[test]
    fn every_column_comes_back_from_what_is_stored() {
        let mut state = 7u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for (table, schema) in [("states", States::schema()), ("waits", Waits::schema())] {
            let times = schema.fields().iter();
            let times = times.filter(|field| field.data_type() == &DataType::Int64);
            let columns = times.map(|field| {
                let null = field.is_nullable();
                let values = (0..777).map(|_| {
                    let value = random();
                    let there = !null || value % 5 > 0;
                    there.then(|| random().cast_signed() >> (value % 64))
                });
                let column: ArrayRef = Arc::new(values.collect::<Int64Array>());
                (field.name().as_str(), column, null)
            });
            let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
            let file = stored_schema(table, &batch.schema());
            let stored = stored(table, &batch);
            let mut read = RecordBatch::try_new(file, stored).unwrap();
            for one in DERIVED.iter().filter(|one| one.table == table) {
                let terms = one.terms.iter();
                let terms = terms.map(|(name, sign)| (read.column_by_name(name).unwrap(), *sign));
                let column = sum(read.column_by_name(one.stored).unwrap(), terms);
                let fields = read.schema();
                let old = fields.fields().iter().zip(read.columns());
                let old = old.map(|(field, column)| {
                    (
                        field.name().clone(),
                        Arc::clone(column),
                        field.is_nullable(),
                    )
                });
                let made = (one.name.to_string(), column, true);
                read = RecordBatch::try_from_iter_with_nullable(old.chain([made])).unwrap();
            }
            for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
                let back = read.column_by_name(field.name()).unwrap();
                assert_eq!(back, column, "{table}.{}", field.name());
            }
        }
    }
}
