//! Tables that analyses read: in memory, or on disk.

use std::sync::Arc;

use arrow_array::RecordBatch;

use super::range::{Bounds, Ranges};
use super::scan::Scan;
use crate::error::Result;

/// A table: on disk, or in memory and called so.
pub enum Source<'a> {
    Stored(Arc<Scan>),
    Held(&'a str, Vec<RecordBatch>),
}

impl Source<'_> {
    /// The same table for as long as anybody wants it; none for one in memory.
    pub fn on_disk(&self) -> Option<Source<'static>> {
        match self {
            Self::Stored(scan) => Some(Source::Stored(Arc::clone(scan))),
            Self::Held(..) => None,
        }
    }

    /// Rows of the table before the first of these.
    pub fn before(&self) -> usize {
        match self {
            Self::Stored(scan) => scan.before(),
            Self::Held(..) => 0,
        }
    }

    pub fn rows(&self) -> usize {
        match self {
            Self::Stored(scan) => scan.rows(),
            Self::Held(_, batches) => batches.iter().map(RecordBatch::num_rows).sum(),
        }
    }

    /// How many parts `part` has: row groups of a file, batches in memory.
    pub fn parts(&self) -> usize {
        match self {
            Self::Stored(scan) => scan.groups(),
            Self::Held(_, batches) => batches.len(),
        }
    }

    /// The rows of a part, for a caller that reads on later; their numbers are in range.
    pub fn part(&self, number: usize) -> Result<Vec<RecordBatch>> {
        match self {
            Self::Stored(scan) => scan.group(number),
            Self::Held(name, batches) => {
                let rows = batches[..number].iter().map(RecordBatch::num_rows).sum();
                let mut ranges = Ranges::new(format!("table {name}"), Bounds::default(), rows);
                ranges.check(&batches[number])?;
                Ok(vec![batches[number].clone()])
            }
        }
    }

    /// All rows, in order; their numbers are in range, or it ends with an error that says which
    /// is not.
    pub fn batches(&self) -> Box<dyn Iterator<Item = Result<RecordBatch>> + Send + '_> {
        let mut ranges = match self {
            Self::Stored(scan) => scan.ranges(),
            Self::Held(name, _) => Ranges::new(format!("table {name}"), Bounds::default(), 0),
        };
        Box::new(self.unchecked().map(move |batch| {
            let batch = batch?;
            ranges.check(&batch)?;
            Ok(batch)
        }))
    }

    /// The same for a caller that checks them.
    pub fn unchecked(&self) -> Box<dyn Iterator<Item = Result<RecordBatch>> + Send + '_> {
        match self {
            Self::Stored(scan) => Box::new(scan.batches()),
            Self::Held(_, batches) => Box::new(batches.iter().cloned().map(Ok)),
        }
    }
}
