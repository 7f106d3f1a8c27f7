//! One Parquet file per table, written beside the decoding by one thread.
//!
//! Encodings are chosen for speed per CPU second: times as deltas, small
//! integers packed by deltas too, categories as dictionaries, LZ4 over all.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::Store;
use crate::error::{Error, Result};
use crate::model::tables::schemas;

/// Rows of a row group: the unit that readers skip by its time statistics.
const ROW_GROUP: usize = 1 << 18;
/// Batches in flight between decoder and writer; bounds memory.
const IN_FLIGHT: usize = 16;

type Outcome = Result<BTreeMap<&'static str, u64>>;

pub struct ParquetStore {
    sender: Option<SyncSender<(&'static str, RecordBatch)>>,
    writer: Option<JoinHandle<Outcome>>,
}

impl ParquetStore {
    /// Writes every table of the model into `directory`, empty ones included.
    pub fn new(directory: &Path) -> Self {
        let (sender, receiver) = sync_channel(IN_FLIGHT);
        let directory = directory.to_owned();
        let writer = std::thread::spawn(move || write_all(&directory, &receiver));
        Self { sender: Some(sender), writer: Some(writer) }
    }

    /// Completes the files; returns the number of rows of each table.
    pub fn finish(mut self) -> Outcome {
        self.sender.take();
        self.join()
    }

    fn join(&mut self) -> Outcome {
        match self.writer.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            _ => Err(Error::usage("the Parquet writer stopped", "it to run to the end", "")),
        }
    }
}

impl Store for ParquetStore {
    /// Small enough to stay in the cache between filling and encoding.
    const CHUNK: usize = 1 << 14;

    fn write(&mut self, table: &'static str, batch: RecordBatch) -> Result<()> {
        let Some(sender) = &self.sender else { return Ok(()) };
        if sender.send((table, batch)).is_ok() {
            return Ok(());
        }
        // The writer is gone: its own error says why.
        self.sender.take();
        self.join().map(|_| ())
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

fn properties(schema: &SchemaRef) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .set_created_by(concat!("schedscope ", env!("CARGO_PKG_VERSION")).to_string());
    for field in schema.fields() {
        let path = ColumnPath::from(field.name().as_str());
        builder = match field.data_type() {
            DataType::Utf8 | DataType::Dictionary(..) => {
                builder.set_column_dictionary_enabled(path, true)
            }
            DataType::Boolean => builder,
            _ => builder.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
        };
        if field.name() == "ts" || field.name() == "ts_run" {
            builder = builder.set_column_statistics_enabled(
                ColumnPath::from(field.name().as_str()),
                EnabledStatistics::Chunk,
            );
        }
    }
    builder.build()
}

struct TableFile {
    path: PathBuf,
    writer: ArrowWriter<File>,
    rows: u64,
}

impl TableFile {
    fn create(directory: &Path, name: &str, schema: SchemaRef) -> Result<Self> {
        let path = directory.join(format!("{name}.parquet"));
        let file = File::create(&path)
            .map_err(|error| Error::io(format_args!("create {}", path.display()), &error))?;
        let properties = properties(&schema);
        let writer = ArrowWriter::try_new(file, schema, Some(properties))
            .map_err(|error| failed(&path, error))?;
        Ok(Self { path, writer, rows: 0 })
    }
}

fn write_all(directory: &Path, receiver: &Receiver<(&'static str, RecordBatch)>) -> Outcome {
    let mut files = BTreeMap::new();
    for (name, schema) in schemas() {
        files.insert(name, TableFile::create(directory, name, Arc::clone(&schema))?);
    }
    for (name, batch) in receiver {
        if let Some(file) = files.get_mut(name) {
            file.rows += batch.num_rows() as u64;
            file.writer.write(&batch).map_err(|error| failed(&file.path, error))?;
        }
    }
    let mut rows = BTreeMap::new();
    for (name, file) in files {
        rows.insert(name, file.rows);
        file.writer.close().map_err(|error| failed(&file.path, error))?;
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
