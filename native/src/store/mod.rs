//! Where finished batches go: memory, or Parquet files.

mod columns;
mod pages;
mod parquet;

use std::collections::BTreeMap;

use arrow_array::RecordBatch;

pub use self::parquet::ParquetStore;
use crate::error::Result;

/// Takes the batches of each table, in order.
pub trait Store {
    /// Rows of a table that are gathered before they are handed on.
    const CHUNK: usize;

    fn write(&mut self, table: &'static str, batch: RecordBatch) -> Result<()>;
}

/// Keeps everything in memory.
#[derive(Default)]
pub struct MemoryStore {
    pub tables: BTreeMap<&'static str, Vec<RecordBatch>>,
}

impl Store for MemoryStore {
    const CHUNK: usize = 1 << 18;

    fn write(&mut self, table: &'static str, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() > 0 {
            self.tables.entry(table).or_default().push(batch);
        }
        Ok(())
    }
}
