//! Columns of Arrow tables: of those that are read, and of those that are made.
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, Int64Array, PrimitiveArray, RecordBatch, UInt32Array,
};
use arrow_schema::{Field, Schema};

use crate::error::{Error, Result};

pub fn column<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> Result<&'a PrimitiveArray<T>> {
    batch
        .column_by_name(name)
        .and_then(|array| array.as_primitive_opt::<T>())
        .ok_or_else(|| Error::internal(format!("no column {name} of type {}", T::DATA_TYPE)))
}

/// The values of a column in which every row has one.
pub fn full<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> Result<&'a [T::Native]> {
    let array = column::<T>(batch, name)?;
    if array.null_count() > 0 {
        return Err(Error::format(
            format!("column {name} holds a null"),
            "a value in every row",
            "schedscope validate lists every column of the schema",
        ));
    }
    Ok(array.values())
}

/// A table of columns of one length.
pub fn table(columns: Vec<(&str, ArrayRef)>) -> Result<RecordBatch> {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
        .map_err(|error| Error::internal(format!("a table that does not fit: {error}")))
}

/// Columns of a table with one row per thread, by what was found of each.
pub struct PerThread<'a, T>(Vec<(u32, &'a T)>);

impl<'a, T> PerThread<'a, T> {
    /// Of `all`, by utid, those that are `wanted`.
    pub fn new(all: &'a [T], wanted: impl Fn(usize, &T) -> bool) -> Self {
        let rows = (0..).zip(all);
        Self(
            rows.filter(|(utid, of)| wanted(*utid as usize, of))
                .collect(),
        )
    }

    pub fn utids(&self) -> ArrayRef {
        let utids = self.0.iter().map(|(utid, _)| *utid);
        Arc::new(UInt32Array::from_iter_values(utids))
    }

    pub fn ints(&self, get: impl Fn(&T) -> Option<i64>) -> ArrayRef {
        Arc::new(self.values(get).collect::<Int64Array>())
    }

    pub fn counts(&self, get: impl Fn(&T) -> u32) -> ArrayRef {
        Arc::new(UInt32Array::from_iter_values(self.values(get)))
    }

    pub fn values<V>(&self, get: impl Fn(&T) -> V) -> impl Iterator<Item = V> {
        self.0.iter().map(move |(_, of)| get(of))
    }
}
