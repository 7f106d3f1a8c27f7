//! One reading of `states`, from which any number of sweeps answer.
use super::changes::{Changes, Reader};
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::store::Source;

/// Who ran on each CPU and who waited for it.
pub struct History {
    pub changes: Changes,
    /// Of the window.
    pub begin: i64,
    weights: Option<Weights>,
}

impl History {
    /// `states` has the columns ts, dur, utid, state (codes) and cpu in the order of the table,
    /// and prio if `weights` is given. `idle`: the number of idle threads.
    pub fn read(
        states: &Source<'_>,
        window: (i64, i64),
        idle: u32,
        weights: Option<Weights>,
    ) -> Result<Self> {
        let mut reader = Reader::new(window, idle)?;
        for batch in states.batches() {
            reader.read(&batch?, weights.as_ref())?;
        }
        Ok(Self {
            changes: reader.finish(),
            begin: window.0,
            weights,
        })
    }

    pub fn weights(&self) -> Result<&Weights> {
        let given = self.weights.as_ref();
        given.ok_or_else(|| Error::internal("weights that were not given"))
    }
}
