//! When which groups' CPU quotas were used up, as Python gives it.

use arrow_array::Array;
use arrow_array::types::{Int64Type, UInt16Type, UInt32Type};
use pyo3::prelude::*;

use super::tables::source_of;
use crate::error::Result;
use schedscope_model::columns::{column, full};
use schedscope_sweep::quotas::{Closed, Quotas};

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct GivenQuotas<'py> {
    /// `ts`, `dur`, `cpu` and `group`: when which group could not run on which CPU.
    stretches: Bound<'py, PyAny>,
    /// By utid: the number of its group, where that has stretches.
    pub group: Vec<Option<u32>>,
}

impl GivenQuotas<'_> {
    /// The stretches in ns after `begin`. No thread waits on an unknown CPU.
    pub fn closed(&self, begin: i64) -> Result<Vec<Closed>> {
        let mut found = Vec::new();
        for batch in source_of(&self.stretches, "stretches")?.batches() {
            let batch = batch?;
            let [ts, dur] = ["ts", "dur"].map(|name| full::<Int64Type>(&batch, name));
            let (ts, dur) = (ts?, dur?);
            let group = full::<UInt32Type>(&batch, "group")?;
            let cpu = column::<UInt16Type>(&batch, "cpu")?;
            for i in (0..batch.num_rows()).filter(|i| !cpu.is_null(*i)) {
                let since = ts[i].saturating_sub(begin);
                found.push(Closed {
                    group: group[i],
                    cpu: cpu.value(i),
                    begin: since,
                    end: since.saturating_add(dur[i].max(0)),
                });
            }
        }
        Ok(found)
    }

    /// As sweeps want them that ask who could have run.
    pub fn into_quotas(self, begin: i64) -> Result<Quotas> {
        Ok(Quotas::new(self.closed(begin)?.into_iter(), self.group))
    }
}
