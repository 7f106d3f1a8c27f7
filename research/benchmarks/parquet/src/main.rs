//! Our Parquet reader and writer beside the parquet crate's, on tables of a made-up trace.
//!
//! ```text
//! cargo run --release --manifest-path research/benchmarks/parquet/Cargo.toml [EVENTS]
//! ```
//!
//! Seconds are the least of some rounds on one thread, files in the system's cache. Both readers
//! read the same file and the same columns, and their sums are compared. The crate's writer has
//! the same encodings (deltas, dictionaries), pages and compression (LZ4) as ours.

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use schedscope_trace::convert::convert;
use schedscope_decode::Options;
use schedscope_encode::synthetic::Machine;
use schedscope_encode::tracedat::{Settings, Writer};
use schedscope_trace::store::{MemoryStore, ParquetStore, Scan, Source, Store};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ROUNDS: usize = 7;
/// What sweeps read.
const READ: [(&str, &[&str]); 2] = [
    ("states", &["ts", "dur", "utid", "state", "cpu", "prio"]),
    ("waits", &["utid", "ts_ready", "cause", "wait"]),
];

/// The least seconds of some rounds, and the last answer.
fn timed<T>(mut once: impl FnMut() -> Result<T>) -> Result<(f64, T)> {
    let mut best = f64::INFINITY;
    let mut last = None;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        last = Some(once()?);
        best = best.min(begin.elapsed().as_secs_f64());
    }
    Ok((best, last.ok_or("no rounds")?))
}

/// Rows, and the sum of all times: what both readers must agree on.
fn sums(batches: impl Iterator<Item = Result<RecordBatch>>) -> Result<(usize, i64)> {
    let (mut rows, mut sum) = (0, 0i64);
    for batch in batches {
        let batch = batch?;
        rows += batch.num_rows();
        for column in batch.columns() {
            if let Some(times) = column.as_primitive_opt::<Int64Type>() {
                let valid = (0..times.len()).filter(|row| times.is_valid(*row));
                sum = valid.fold(sum, |sum, row| sum.wrapping_add(times.value(row)));
            }
        }
    }
    Ok((rows, sum))
}

fn ours(folder: &Path, table: &str, names: &[&str]) -> Result<Vec<RecordBatch>> {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let scan = Scan::open(folder, table, &names)?.ok_or("not a file of ours")?;
    let batches = Source::Stored(&scan)
        .unchecked()
        .collect::<schedscope_ground::error::Result<_>>();
    Ok(batches?)
}

fn theirs(folder: &Path, table: &str, names: &[&str]) -> Result<Vec<RecordBatch>> {
    let file = File::open(folder.join(format!("{table}.parquet")))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
    let mask = ProjectionMask::columns(builder.parquet_schema(), names.iter().copied());
    let reader = builder
        .with_projection(mask)
        .with_batch_size(1 << 13)
        .build()?;
    Ok(reader.collect::<std::result::Result<_, _>>()?)
}

fn write_theirs(path: &Path, batches: &[RecordBatch]) -> Result<u64> {
    let schema = batches.first().ok_or("an empty table")?.schema();
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .set_data_page_row_count_limit(1 << 13)
        .set_max_row_group_row_count(Some(1 << 18))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_dictionary_enabled(false);
    for field in schema.fields() {
        let column = field.name().as_str().into();
        properties = match field.data_type() {
            kind if kind.is_integer() => {
                properties.set_column_encoding(column, Encoding::DELTA_BINARY_PACKED)
            }
            _ => properties.set_column_dictionary_enabled(column, true),
        };
    }
    let mut writer = ArrowWriter::try_new(
        File::create(path)?,
        Arc::clone(&schema),
        Some(properties.build()),
    )?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.close()?;
    Ok(path.metadata()?.len())
}

fn main() -> Result<()> {
    let events: u64 = std::env::args()
        .nth(1)
        .map_or(Ok(2_000_000), |text| text.parse())?;
    let folder: PathBuf =
        std::env::temp_dir().join(format!("parquet-benchmark-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let outcome = compare(events, &folder);
    std::fs::remove_dir_all(&folder)?;
    outcome
}

fn compare(events: u64, folder: &Path) -> Result<()> {
    let trace = folder.join("trace.dat");
    let mut writer = Writer::new(&trace, 8, Settings::default())?;
    Machine::new(8, 400, 1).run(events, &mut writer)?;
    writer.finish()?;
    let options = Options::default();
    let (store, _) = convert(
        &trace,
        &options,
        None,
        || ParquetStore::new(folder),
        &mut |_, _| Ok(()),
    )?;
    store.finish()?;
    let memory = || Ok(MemoryStore::default());
    let (held, _) = convert(&trace, &options, None, memory, &mut |_, _| Ok(()))?;
    println!("{events} events; million rows per second, least of {ROUNDS} rounds");
    println!(
        "{:<14} {:>9} {:>8} {:>8} {:>7}",
        "", "rows", "ours", "crate's", "times"
    );
    for (table, names) in READ {
        let (our, mine) = timed(|| ours(folder, table, names))?;
        let (their, other) = timed(|| theirs(folder, table, names))?;
        let (mine, other) = (
            sums(mine.into_iter().map(Ok))?,
            sums(other.into_iter().map(Ok))?,
        );
        if mine != other {
            return Err(format!("{table}: rows and sum {mine:?}, by the crate {other:?}").into());
        }
        show(&format!("read {table}"), mine.0, our, their);
    }
    for (table, _) in READ {
        let batches = &held.tables[table];
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let (our, size) = timed(|| {
            let mut store = ParquetStore::new(folder)?;
            for batch in batches {
                store.write(table, batch.clone())?;
            }
            store.finish()?;
            Ok(folder.join(format!("{table}.parquet")).metadata()?.len())
        })?;
        let path = folder.join("theirs.parquet");
        let (their, other) = timed(|| write_theirs(&path, batches))?;
        show(&format!("write {table}"), rows, our, their);
        println!(
            "{:<14} {:>9} {:>8.2} {:>8.2}",
            "  MB",
            "",
            size as f64 / 1e6,
            other as f64 / 1e6
        );
    }
    Ok(())
}

fn show(what: &str, rows: usize, ours: f64, theirs: f64) {
    let speed = |seconds: f64| rows as f64 / seconds / 1e6;
    println!(
        "{what:<14} {rows:>9} {:>8.1} {:>8.1} {:>7.1}",
        speed(ours),
        speed(theirs),
        theirs / ours
    );
}
