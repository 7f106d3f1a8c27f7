//! Where finished batches go: memory, or Parquet files.
