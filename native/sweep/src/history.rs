//! One reading of `states`, from which any number of sweeps answer.
use std::sync::Arc;

use super::changes::blocks;
use super::changes::{Changes, Reader};
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::store::Source;

/// Rows of `states` up to which the list of changes is held: some 200 MB. That of a longer table
/// is made again by each sweep, which takes the time to read the table.
pub const HELD: usize = 1 << 24;

/// Who ran on each CPU and who waited for it.
pub struct History {
    pub changes: Changes,
    /// Of the window.
    pub begin: i64,
    weights: Option<Arc<Weights>>,
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
        let weights = weights.map(Arc::new);
        let changes = match states.on_disk().filter(|_| states.rows() > HELD) {
            Some(table) => blocks::read(table, window, idle, weights.clone(), blocks::ROWS)?,
            None => {
                let mut reader = Reader::new(window, idle)?.with_room(states.rows());
                for batch in states.batches() {
                    reader.read(&batch?, weights.as_deref())?;
                }
                reader.finish()
            }
        };
        Ok(Self {
            changes,
            begin: window.0,
            weights,
        })
    }

    pub fn weights(&self) -> Result<&Weights> {
        let given = self.weights.as_deref();
        given.ok_or_else(|| Error::internal("weights that were not given"))
    }
}
