//! One Parquet file per table.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::schema::types::SchemaDescPtr;

use super::columns::{ColumnChunk, PAGE, PageScratch, ROW_GROUP};
use super::{Store, description};
use crate::error::{Error, Result};
use crate::model::tables::schemas;

/// Encodes on the caller's thread: to one of its own, every batch would go from
/// one core's cache to another's, which costs up to a tenth of all CPU time.
pub struct ParquetStore {
    files: BTreeMap<&'static str, TableFile>,
    /// The last batch of each table, which is written.
    spares: BTreeMap<&'static str, RecordBatch>,
    scratch: PageScratch,
}

impl ParquetStore {
    /// Writes every table of the model into `directory`, empty ones included.
    pub fn new(directory: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        for (name, schema) in schemas() {
            files.insert(name, TableFile::create(directory, name, &schema)?);
        }
        Ok(Self {
            files,
            spares: BTreeMap::new(),
            scratch: PageScratch::default(),
        })
    }

    /// Completes the files; returns the number of rows of each table.
    pub fn finish(self) -> Result<BTreeMap<&'static str, u64>> {
        let mut rows = BTreeMap::new();
        for (name, file) in self.files {
            rows.insert(name, file.close()?);
        }
        Ok(rows)
    }
}

impl Store for ParquetStore {
    const CHUNK: usize = PAGE;

    fn write(&mut self, table: &'static str, batch: RecordBatch) -> Result<()> {
        if let Some(file) = self.files.get_mut(table) {
            file.write(&batch, &mut self.scratch)
                .map_err(|error| failed(&file.path, error))?;
        }
        self.spares.insert(table, batch);
        Ok(())
    }

    fn spare(&mut self, table: &'static str) -> Option<RecordBatch> {
        self.spares.remove(table)
    }
}

/// What a Parquet file begins with.
const MAGIC: &[u8] = b"PAR1";

struct TableFile {
    path: PathBuf,
    file: File,
    /// Bytes in the file.
    len: u64,
    description: SchemaDescPtr,
    /// The Arrow schema, for readers that know Arrow.
    about: Option<Vec<KeyValue>>,
    columns: Vec<ColumnChunk>,
    groups: Vec<RowGroupMetaData>,
    /// Rows of the row group at hand, and of the file.
    group_rows: usize,
    rows: u64,
}

impl TableFile {
    fn create(directory: &Path, name: &str, schema: &SchemaRef) -> Result<Self> {
        let path = directory.join(format!("{name}.parquet"));
        let mut file = File::create(&path)
            .map_err(|error| Error::io(format_args!("create {}", path.display()), &error))?;
        file.write_all(MAGIC)
            .map_err(|error| failed(&path, error.into()))?;
        let description = description::of(schema).map_err(|error| failed(&path, error))?;
        let columns = schema
            .fields()
            .iter()
            .zip(description.columns())
            .map(|(field, column)| ColumnChunk::new(field, Arc::clone(column)))
            .collect();
        Ok(Self {
            path,
            file,
            len: MAGIC.len() as u64,
            description: Arc::new(description),
            about: Some(vec![description::for_arrow(schema)]),
            columns,
            groups: Vec::new(),
            group_rows: 0,
            rows: 0,
        })
    }

    fn write(
        &mut self,
        batch: &RecordBatch,
        scratch: &mut PageScratch,
    ) -> std::result::Result<(), ParquetError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        for (column, array) in self.columns.iter_mut().zip(batch.columns()) {
            column.push(array, scratch)?;
        }
        self.rows += batch.num_rows() as u64;
        self.group_rows += batch.num_rows();
        if self.group_rows >= ROW_GROUP {
            self.end_row_group()
        } else {
            Ok(())
        }
    }

    fn end_row_group(&mut self) -> std::result::Result<(), ParquetError> {
        if self.group_rows == 0 {
            return Ok(());
        }
        let begin = self.len;
        let mut group = RowGroupMetaData::builder(Arc::clone(&self.description))
            .set_num_rows(self.group_rows as i64)
            .set_ordinal(self.groups.len() as i32)
            .set_file_offset(begin as i64);
        let mut uncompressed = 0;
        for column in &mut self.columns {
            let chunk = column.end(&mut self.file, self.len)?;
            self.len += chunk.compressed_size() as u64;
            uncompressed += chunk.uncompressed_size();
            group = group.add_column_metadata(chunk);
        }
        self.groups
            .push(group.set_total_byte_size(uncompressed).build()?);
        self.group_rows = 0;
        Ok(())
    }

    fn close(mut self) -> Result<u64> {
        self.end_row_group()
            .and_then(|()| self.write_footer())
            .map_err(|error| failed(&self.path, error))?;
        Ok(self.rows)
    }

    fn write_footer(&mut self) -> std::result::Result<(), ParquetError> {
        let program = concat!("schedscope ", env!("CARGO_PKG_VERSION")).to_string();
        let file = FileMetaData::new(
            1,
            self.rows as i64,
            Some(program),
            self.about.take(),
            Arc::clone(&self.description),
            None,
        );
        let footer = ParquetMetaData::new(file, std::mem::take(&mut self.groups));
        ParquetMetaDataWriter::new(&mut self.file, &footer).finish()
    }
}

fn failed(path: &Path, error: ParquetError) -> Error {
    let doing = format!("write {}", path.display());
    match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(io) => Error::io(doing, &io),
            Err(inner) => Error::io(doing, &std::io::Error::other(inner.to_string())),
        },
        other => Error::io(doing, &std::io::Error::other(other.to_string())),
    }
}
