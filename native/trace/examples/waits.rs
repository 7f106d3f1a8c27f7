//! The longest waits of a trace, by a Rust program without Python:
//!
//! ```text
//! cargo run -p schedscope-trace --example waits -- ../fixtures/linux-ftrace-mixed.capture
//! ```

use std::error::Error;
use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{Array, RecordBatch};
use schedscope_decode::Options;
use schedscope_trace::convert::convert;
use schedscope_trace::store::MemoryStore;

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a dyn Array, String> {
    let column = batch.column_by_name(name);
    Ok(column.ok_or_else(|| format!("no column {name}"))?.as_ref())
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let path = path.ok_or("usage: waits CAPTURE")?;
    let mut quiet = |_, _| Ok(());
    let (store, _) = convert(
        &path,
        &Options::default(),
        None,
        || Ok(MemoryStore::default()),
        &mut quiet,
    )?;
    let mut waits: Vec<(i64, i64, u32)> = Vec::new();
    for batch in store.tables.get("waits").into_iter().flatten() {
        let wait = column(batch, "wait")?.as_primitive::<Int64Type>();
        let ready = column(batch, "ts_ready")?.as_primitive::<Int64Type>();
        let utid = column(batch, "utid")?.as_primitive::<UInt32Type>();
        for row in (0..batch.num_rows()).filter(|row| wait.is_valid(*row) && ready.is_valid(*row)) {
            waits.push((wait.value(row), ready.value(row), utid.value(row)));
        }
    }
    waits.sort_unstable_by(|a, b| b.cmp(a));
    println!("{} waits; the longest:", waits.len());
    for (wait, ready, utid) in waits.iter().take(10) {
        println!("{wait:>12} ns from {ready} on, thread {utid}");
    }
    Ok(())
}
