//! Out to other people's formats. Python prepares the rows with Polars
//! (`schedscope.export`); here they become bytes.

mod columns;
pub mod perfetto;
