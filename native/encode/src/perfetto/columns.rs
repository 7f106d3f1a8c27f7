//! Columns of the frames that `schedscope.export` hands over: of one exact
//! type each, without nulls.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{Array, RecordBatch};

use crate::error::{Error, Result};

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a dyn Array> {
    let array = batch
        .column_by_name(name)
        .filter(|array| array.null_count() == 0);
    array.map(|array| array.as_ref()).ok_or_else(|| wrong(name))
}

pub fn int64<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a [i64]> {
    let array = column(batch, name)?
        .as_primitive_opt::<Int64Type>()
        .ok_or_else(|| wrong(name))?;
    Ok(array.values())
}

pub fn uint32<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a [u32]> {
    let array = column(batch, name)?
        .as_primitive_opt::<UInt32Type>()
        .ok_or_else(|| wrong(name))?;
    Ok(array.values())
}

fn wrong(name: &str) -> Error {
    Error::internal(format!(
        "column {name} of an export frame is absent, of another type, or holds nulls"
    ))
}
