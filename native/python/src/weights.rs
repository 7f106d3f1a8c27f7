//! The weights of threads.

use std::sync::Arc;

use arrow_array::UInt8Array;
use arrow_array::types::{Int16Type, UInt8Type, UInt32Type};
use pyo3::prelude::*;

use super::arrow::{ArrowTable, read_stream};
use super::tables::table;
use crate::error::{Error, Result};
use schedscope_model::columns::{column, full};
use schedscope_sweep::weights::{CLASSES, LEVELS, Weights, class_of, level_of};

/// What Python says of weights: threads, the table, whether priorities are Linux's, and the
/// numbers of the classes fair and realtime.
pub type GivenWeights<'py> = (Bound<'py, PyAny>, Vec<i64>, bool, u8, u8);

pub fn weights_of((threads, table, linux, fair, realtime): GivenWeights<'_>) -> Result<Weights> {
    let threads = read_stream(&threads)?.1;
    let table: [i64; LEVELS] = table
        .try_into()
        .map_err(|_| Error::internal("a table of weights that has not 42 levels"))?;
    let (mut class, mut prio, mut is_idle) = (Vec::new(), Vec::new(), Vec::new());
    for batch in &threads {
        class.extend_from_slice(full::<UInt8Type>(batch, "class")?);
        prio.extend(column::<Int16Type>(batch, "prio")?.iter());
        is_idle.extend(
            full::<UInt8Type>(batch, "idle")?
                .iter()
                .map(|flag| *flag != 0),
        );
    }
    let most = class
        .iter()
        .max()
        .copied()
        .unwrap_or(0)
        .max(fair)
        .max(realtime);
    if class.is_empty() || usize::from(most) >= CLASSES {
        return Err(Error::internal(format!("scheduling class {most}, beyond the highest")).into());
    }
    Ok(Weights {
        table,
        linux,
        class,
        prio,
        is_idle,
        fair,
        realtime,
    })
}

/// Class and level of threads (utid) at their priorities (prio).
#[pyfunction]
pub fn levels_of(weights: GivenWeights<'_>, asked: &Bound<'_, PyAny>) -> Result<ArrowTable> {
    let weights = weights_of(weights)?;
    let (mut class, mut level) = (Vec::new(), Vec::new());
    for batch in &read_stream(asked)?.1 {
        let (utid, prio) = (
            full::<UInt32Type>(batch, "utid")?,
            column::<Int16Type>(batch, "prio")?,
        );
        for (utid, prio) in utid.iter().zip(prio) {
            let tag = weights.tag(*utid, prio);
            class.push(class_of(tag) as u8);
            level.push(level_of(tag) as u8);
        }
    }
    table(vec![
        ("class", Arc::new(UInt8Array::from(class))),
        ("level", Arc::new(UInt8Array::from(level))),
    ])
}
