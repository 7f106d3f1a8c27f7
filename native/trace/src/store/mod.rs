//! Where finished batches go: memory, or Parquet files. And back from those.

mod bodies;
pub mod checksum;
mod columns;
pub mod derived;
mod description;
mod file;
pub mod groups;
mod pages;
mod parquet;
pub mod plausible;
mod range;
mod scan;
mod source;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;

pub use self::parquet::ParquetStore;
pub use self::range::MOST_THREADS;
pub use self::scan::Scan;
pub use self::source::Source;
use crate::chores::Chores;
use crate::error::Result;

/// Takes the batches of each table, in order.
pub trait Store {
    /// Rows of a table that are gathered before they are passed on.
    const CHUNK: usize;

    fn write(&mut self, table: &'static str, batch: RecordBatch) -> Result<()>;

    /// A batch of `table` that was written before and is not needed any more:
    /// its memory can be filled again, which fresh memory from the system
    /// would cost a page fault for every 4 KiB of.
    fn spare(&mut self, _table: &'static str) -> Option<RecordBatch> {
        None
    }

    /// What `write` is given may be encoded by those who do these `chores`.
    fn helped_by(&mut self, _chores: &Arc<Chores>) {}
}

/// Keeps everything in memory.
#[derive(Default)]
pub struct MemoryStore {
    pub tables: BTreeMap<&'static str, Vec<RecordBatch>>,
}

impl Store for MemoryStore {
    const CHUNK: usize = 1 << 16;

    fn write(&mut self, table: &'static str, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() > 0 {
            self.tables.entry(table).or_default().push(batch);
        }
        Ok(())
    }
}
