//! Whose waits are asked for, as analysis/waits/victims.py says it.

use arrow_array::Array;
use arrow_array::types::{UInt16Type, UInt32Type};
use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::arrow::read_stream;
use crate::error::Result;
use schedscope_model::columns::{column, full};

pub struct Victims {
    /// By utid, below `threads`; none: not asked for.
    pub victim: Vec<Option<u32>>,
    /// Where given, only waits of a thread on these CPUs (none: on no known queue).
    pub only: Option<FxHashSet<(u32, Option<u16>)>>,
}

/// Reads `asked`: utid, victim; and cpu, if only some queues count.
pub fn victims_of(asked: &Bound<'_, PyAny>, threads: usize) -> Result<Victims> {
    let asked = read_stream(asked)?.1;
    let mut victim: Vec<Option<u32>> = vec![None; threads];
    let by_cpu = asked
        .iter()
        .any(|batch| batch.column_by_name("cpu").is_some());
    let mut only = by_cpu.then(FxHashSet::default);
    for batch in &asked {
        let (utid, victims) = (
            full::<UInt32Type>(batch, "utid")?,
            full::<UInt32Type>(batch, "victim")?,
        );
        let cpu = if by_cpu {
            Some(column::<UInt16Type>(batch, "cpu")?)
        } else {
            None
        };
        for i in 0..batch.num_rows() {
            if let Some(slot) = victim.get_mut(utid[i] as usize) {
                *slot = Some(victims[i]);
            }
            if let (Some(only), Some(cpu)) = (&mut only, cpu) {
                only.insert((utid[i], cpu.is_valid(i).then(|| cpu.value(i))));
            }
        }
    }
    Ok(Victims { victim, only })
}
