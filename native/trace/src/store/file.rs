//! The Parquet file of one table, and the file of its long rows beside it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, Int64Array, RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat;
use arrow_select::take::take_record_batch;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::schema::types::SchemaDescPtr;

use super::columns::{ColumnChunk, PAGE, PageScratch, ROW_GROUP};
use super::groups::Groups;
use super::{derived, description};
use crate::error::{Error, Result};

/// What a Parquet file begins with.
const MAGIC: &[u8] = b"PAR1";

pub struct TableFile {
    path: PathBuf,
    table: &'static str,
    file: File,
    /// Of the batches; the file may have others, which those follow from.
    schema: SchemaRef,
    /// Rows of a row group, but for the last.
    most: usize,
    /// With the columns of the batches alone.
    plain: bool,
    /// What readers of a part need; and the rows of the file beside, which is there if any are.
    part: Option<Groups>,
    beside: Option<Box<Beside>>,
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
    /// The file of `table` in `directory`, in row groups of at least so many rows.
    pub fn in_folder(
        directory: &Path,
        table: &'static str,
        schema: &SchemaRef,
        (rows, plain): (usize, bool),
    ) -> Result<Self> {
        let path = directory.join(format!("{table}.parquet"));
        // Of an earlier reading of the same capture.
        let _ = std::fs::remove_file(Beside::path(&path));
        let mut file = Self::create(path, table, schema, (rows, plain))?;
        file.part = Groups::of(table);
        Ok(file)
    }

    /// The file of `table`, or of some of its rows with a column more.
    fn create(
        path: PathBuf,
        table: &'static str,
        schema: &SchemaRef,
        (most, plain): (usize, bool),
    ) -> Result<Self> {
        let mut file = File::create(&path)
            .map_err(|error| Error::io(format_args!("create {}", path.display()), &error))?;
        file.write_all(MAGIC)
            .map_err(|error| failed(&path, error.into()))?;
        let stored = if plain {
            Arc::clone(schema)
        } else {
            derived::stored_schema(table, schema)
        };
        let description = description::of(&stored).map_err(|error| failed(&path, error))?;
        let columns = stored
            .fields()
            .iter()
            .zip(description.columns())
            .map(|(field, column)| ColumnChunk::new(field, Arc::clone(column)))
            .collect();
        Ok(Self {
            path,
            table,
            file,
            schema: Arc::clone(schema),
            most,
            plain,
            part: None,
            beside: None,
            len: MAGIC.len() as u64,
            description: Arc::new(description),
            about: Some(vec![description::for_arrow(&stored)]),
            columns,
            groups: Vec::new(),
            group_rows: 0,
            rows: 0,
        })
    }

    /// Adds the rows of `batch`, as one page of each column.
    pub fn write(&mut self, batch: &RecordBatch, scratch: &mut PageScratch) -> Result<()> {
        self.encode(batch, scratch)
            .map_err(|error| failed(&self.path, error))
    }

    fn encode(
        &mut self,
        batch: &RecordBatch,
        scratch: &mut PageScratch,
    ) -> std::result::Result<(), ParquetError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let arrays = if self.plain {
            batch.columns().to_vec()
        } else {
            derived::stored(self.table, batch)
        };
        for (column, array) in self.columns.iter_mut().zip(&arrays) {
            column.push(array, scratch)?;
        }
        let far = self.part.as_mut().map(|part| part.note(batch));
        if let Some(far) = far.filter(|far| !far.is_empty()) {
            self.set_aside(batch, far, scratch)?;
        }
        self.rows += batch.num_rows() as u64;
        self.group_rows += batch.num_rows();
        if self.group_rows >= self.most {
            self.end_row_group()
        } else {
            Ok(())
        }
    }

    /// Writes the rows `far` of `batch` into the file beside, too.
    fn set_aside(
        &mut self,
        batch: &RecordBatch,
        far: Vec<u32>,
        scratch: &mut PageScratch,
    ) -> std::result::Result<(), ParquetError> {
        let beside = match &mut self.beside {
            Some(beside) => beside,
            none => {
                let new = Beside::create(&self.path, self.table, &self.schema, self.plain)?;
                none.insert(Box::new(new))
            }
        };
        beside.push(batch, far, self.rows, scratch)
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
        let mut file = Noted {
            file: &mut self.file,
            part: self.part.as_mut(),
        };
        for column in &mut self.columns {
            let chunk = column.end(&mut file, self.len)?;
            self.len += chunk.compressed_size() as u64;
            uncompressed += chunk.uncompressed_size();
            group = group.add_column_metadata(chunk);
        }
        self.groups
            .push(group.set_total_byte_size(uncompressed).build()?);
        if let Some(part) = &mut self.part {
            part.ended(self.group_rows as u64, begin, self.len - begin);
        }
        self.group_rows = 0;
        Ok(())
    }

    /// Completes the file; returns its number of rows.
    pub fn close(mut self) -> Result<u64> {
        if let Some(beside) = self.beside.take() {
            beside.close()?;
        }
        self.end_row_group()
            .and_then(|()| self.write_footer())
            .map_err(|error| failed(&self.path, error))?;
        Ok(self.rows)
    }

    fn write_footer(&mut self) -> std::result::Result<(), ParquetError> {
        let program = concat!("schedscope ", env!("CARGO_PKG_VERSION")).to_string();
        let mut about = self.about.take().unwrap_or_default();
        about.extend(self.part.as_ref().map(Groups::about));
        let file = FileMetaData::new(
            1,
            self.rows as i64,
            Some(program),
            Some(about),
            Arc::clone(&self.description),
            None,
        );
        let footer = ParquetMetaData::new(file, std::mem::take(&mut self.groups));
        ParquetMetaDataWriter::new(&mut self.file, &footer).finish()
    }
}

/// A file, with the bytes of a row group noted.
struct Noted<'a> {
    file: &'a mut File,
    part: Option<&'a mut Groups>,
}

impl Write for Noted<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let len = self.file.write(bytes)?;
        if let Some(part) = &mut self.part {
            part.wrote(&bytes[..len]);
        }
        Ok(len)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// The file beside a table: `long_states.parquet` of `states.parquet`. It has that one's columns
/// and the number of the row.
struct Beside {
    file: TableFile,
    /// Rows that wait to fill a page.
    waiting: Vec<RecordBatch>,
    rows: usize,
}

impl Beside {
    fn create(
        beside: &Path,
        table: &'static str,
        schema: &SchemaRef,
        plain: bool,
    ) -> std::result::Result<Self, ParquetError> {
        let path = Self::path(beside);
        let mut fields: Vec<_> = schema.fields().iter().map(Arc::clone).collect();
        fields.push(Arc::new(Field::new("row", DataType::Int64, false)));
        let schema = Arc::new(Schema::new(fields));
        let file = TableFile::create(path, table, &schema, (ROW_GROUP, plain))
            .map_err(|error| ParquetError::External(Box::new(error)))?;
        Ok(Self {
            file,
            waiting: Vec::new(),
            rows: 0,
        })
    }

    fn path(table: &Path) -> PathBuf {
        let name = table.file_name().unwrap_or_default().to_string_lossy();
        table.with_file_name(format!("long_{name}"))
    }

    /// Adds the rows `far` of a batch that begins at row `at` of the table.
    fn push(
        &mut self,
        batch: &RecordBatch,
        far: Vec<u32>,
        at: u64,
        scratch: &mut PageScratch,
    ) -> std::result::Result<(), ParquetError> {
        let numbers = far.iter().map(|row| at as i64 + i64::from(*row));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        self.rows += far.len();
        let taken = take_record_batch(batch, &UInt32Array::from(far)).map_err(external)?;
        let mut columns = taken.columns().to_vec();
        columns.push(numbers);
        let rows = RecordBatch::try_new(Arc::clone(&self.file.schema), columns);
        self.waiting.push(rows.map_err(external)?);
        if self.rows >= PAGE {
            self.flush(scratch)?;
        }
        Ok(())
    }

    fn flush(&mut self, scratch: &mut PageScratch) -> std::result::Result<(), ParquetError> {
        let rows = joined(&self.file.schema, &self.waiting).map_err(external)?;
        self.waiting.clear();
        self.rows = 0;
        self.file.encode(&rows, scratch)
    }

    fn close(mut self: Box<Self>) -> Result<u64> {
        self.flush(&mut PageScratch::default())
            .map_err(|error| failed(&self.file.path, error))?;
        self.file.close()
    }
}

/// One batch of several. Categories are the same in all of them: put behind each other, as
/// dictionaries are otherwise, they would have other codes than the file's.
fn joined(
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> std::result::Result<RecordBatch, ArrowError> {
    if batches.is_empty() {
        return Ok(RecordBatch::new_empty(Arc::clone(schema)));
    }
    let columns = (0..schema.fields().len()).map(|at| {
        let parts: Vec<&dyn Array> = batches.iter().map(|batch| &**batch.column(at)).collect();
        let Some(first) = parts[0].as_dictionary_opt::<UInt8Type>() else {
            return concat(&parts);
        };
        let keys = parts.iter().map(|part| part.as_dictionary::<UInt8Type>());
        let keys: Vec<&dyn Array> = keys.map(|part| part.keys() as &dyn Array).collect();
        let keys = concat(&keys)?.as_primitive::<UInt8Type>().clone();
        let whole = DictionaryArray::try_new(keys, Arc::clone(first.values()))?;
        Ok(Arc::new(whole) as ArrayRef)
    });
    RecordBatch::try_new(
        Arc::clone(schema),
        columns.collect::<std::result::Result<_, _>>()?,
    )
}

fn external(error: ArrowError) -> ParquetError {
    ParquetError::External(Box::new(error))
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
