//! One Parquet file per table, written beside the decoding by one thread.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::{ArrowSchemaConverter, add_encoded_arrow_schema_to_metadata};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use super::Store;
use super::columns::ColumnChunk;
use crate::error::{Error, Result};
use crate::model::tables::schemas;

/// Rows of a row group: the unit that readers skip by its time statistics.
const ROW_GROUP: usize = 1 << 18;
/// Batches in flight between decoder and writer; bounds memory.
const IN_FLIGHT: usize = 16;

type Outcome = Result<BTreeMap<&'static str, u64>>;
type Batch = (&'static str, RecordBatch);

pub struct ParquetStore {
    sender: Option<SyncSender<Batch>>,
    /// Batches that were written, and those of them that came back so far.
    returned: Receiver<Batch>,
    spares: BTreeMap<&'static str, Vec<RecordBatch>>,
    writer: Option<JoinHandle<Outcome>>,
}

impl ParquetStore {
    /// Writes every table of the model into `directory`, empty ones included.
    pub fn new(directory: &Path) -> Self {
        let (sender, receiver) = sync_channel(IN_FLIGHT);
        let (written, returned) = sync_channel(IN_FLIGHT);
        let directory = directory.to_owned();
        let writer = std::thread::spawn(move || write_all(&directory, &receiver, &written));
        Self {
            sender: Some(sender),
            returned,
            spares: BTreeMap::new(),
            writer: Some(writer),
        }
    }

    /// Completes the files; returns the number of rows of each table.
    pub fn finish(mut self) -> Outcome {
        self.sender.take();
        self.join()
    }

    fn join(&mut self) -> Outcome {
        match self.writer.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            _ => Err(Error::usage(
                "the Parquet writer stopped",
                "it to run to the end",
                "",
            )),
        }
    }
}

impl Store for ParquetStore {
    /// Small enough to stay in the cache between filling and encoding.
    const CHUNK: usize = 1 << 13;

    fn write(&mut self, table: &'static str, batch: RecordBatch) -> Result<()> {
        let Some(sender) = &self.sender else {
            return Ok(());
        };
        if sender.send((table, batch)).is_ok() {
            return Ok(());
        }
        // The writer is gone: its own error says why.
        self.sender.take();
        self.join().map(|_| ())
    }

    fn spare(&mut self, table: &'static str) -> Option<RecordBatch> {
        for (name, batch) in self.returned.try_iter() {
            self.spares.entry(name).or_default().push(batch);
        }
        self.spares.get_mut(table)?.pop()
    }
}

impl Drop for ParquetStore {
    fn drop(&mut self) {
        self.sender.take();
        if let Some(writer) = self.writer.take() {
            // An abandoned conversion: its error is not news any more.
            let _ = writer.join();
        }
    }
}

struct TableFile {
    path: PathBuf,
    writer: SerializedFileWriter<File>,
    columns: Vec<ColumnChunk>,
    /// Rows of the row group at hand, and of the file.
    group_rows: usize,
    rows: u64,
}

impl TableFile {
    fn create(directory: &Path, name: &str, schema: &SchemaRef) -> Result<Self> {
        let path = directory.join(format!("{name}.parquet"));
        let file = File::create(&path)
            .map_err(|error| Error::io(format_args!("create {}", path.display()), &error))?;
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("schedscope ", env!("CARGO_PKG_VERSION")).to_string())
            .build();
        // Readers that know Arrow learn the integers' widths and the categories.
        add_encoded_arrow_schema_to_metadata(schema, &mut properties);
        let description = ArrowSchemaConverter::new()
            .convert(schema)
            .map_err(|error| failed(&path, error))?;
        let columns = schema
            .fields()
            .iter()
            .zip(description.columns())
            .map(|(field, column)| ColumnChunk::new(field, Arc::clone(column)))
            .collect();
        let writer =
            SerializedFileWriter::new(file, description.root_schema_ptr(), Arc::new(properties))
                .map_err(|error| failed(&path, error))?;
        Ok(Self {
            path,
            writer,
            columns,
            group_rows: 0,
            rows: 0,
        })
    }

    fn write(&mut self, batch: &RecordBatch) -> std::result::Result<(), ParquetError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        for (column, array) in self.columns.iter_mut().zip(batch.columns()) {
            column.push(array)?;
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
        self.group_rows = 0;
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            let (body, close) = column.close()?;
            group.append_column(&body, close)?;
            column.refill(body);
        }
        group.close()?;
        Ok(())
    }

    fn close(mut self) -> Result<u64> {
        self.end_row_group()
            .and_then(|()| self.writer.close())
            .map_err(|error| failed(&self.path, error))?;
        Ok(self.rows)
    }
}

fn write_all(directory: &Path, receiver: &Receiver<Batch>, written: &SyncSender<Batch>) -> Outcome {
    let mut files = BTreeMap::new();
    for (name, schema) in schemas() {
        files.insert(name, TableFile::create(directory, name, &schema)?);
    }
    for (name, batch) in receiver {
        if let Some(file) = files.get_mut(name) {
            file.write(&batch)
                .map_err(|error| failed(&file.path, error))?;
        }
        // Freed where nobody takes batches back, or not as fast.
        let _ = written.try_send((name, batch));
    }
    let mut rows = BTreeMap::new();
    for (name, file) in files {
        rows.insert(name, file.close()?);
    }
    Ok(rows)
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
