//! One Parquet file per table.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::Store;
use super::columns::{PAGE, ROW_GROUP};
use super::file::TableFile;
use super::table::Table;
use crate::chores::Chores;
use crate::each::each;
use crate::error::Result;
use crate::model::tables::declared;

/// Encodes on the caller's thread; or, where others have nothing else to do, on theirs, too: to
/// another core's cache, every batch costs up to a tenth more.
pub struct ParquetStore {
    tables: BTreeMap<&'static str, Arc<Table>>,
    /// Batches are left to those who do these.
    chores: Option<Arc<Chores>>,
}

impl ParquetStore {
    /// Writes every table of the model into `directory`, empty ones included, in row groups of so
    /// many `rows`, filled up to the next page. `plain`: with the columns of the model alone; else
    /// some are written as what is added to others.
    pub fn new(directory: &Path, rows: Option<usize>, plain: bool) -> Result<Self> {
        let rows = rows.unwrap_or(ROW_GROUP);
        let mut tables = BTreeMap::new();
        let scratches = Arc::default();
        for table in declared() {
            let file = TableFile::in_folder(directory, table.name, &table.schema, (rows, plain))?;
            tables.insert(table.name, Arc::new(Table::new(file, &scratches)));
        }
        Ok(Self {
            tables,
            chores: None,
        })
    }

    /// Completes the files by so many threads; returns the number of rows of each table.
    pub fn finish(self, jobs: usize) -> Result<BTreeMap<&'static str, u64>> {
        let tables: Vec<_> = self.tables.into_iter().collect();
        let rows = each(&tables, jobs, |(name, table)| Ok((*name, table.close()?)))?;
        Ok(rows.into_iter().collect())
    }
}

impl Store for ParquetStore {
    const CHUNK: usize = PAGE;

    fn write(&mut self, table: &'static str, batch: RecordBatch) -> Result<()> {
        match (self.tables.get(table), &self.chores) {
            (None, _) => Ok(()),
            (Some(table), None) => table.write(batch),
            (Some(table), Some(chores)) => table.leave(batch, chores),
        }
    }

    fn spare(&mut self, table: &'static str) -> Option<RecordBatch> {
        self.tables.get(table)?.spare()
    }

    fn helped_by(&mut self, chores: &Arc<Chores>) {
        self.chores = Some(Arc::clone(chores));
    }
}
