//! Linux ftrace: ring-buffer sub-buffers, event formats, records.
//!
//! Layouts come from the trace's own descriptions, never from fixed offsets.
//! `format` reads the kernel's texts, `catalogue` compiles them into a `plan` for each event,
//! `pages` says what sub-buffers are and puts them in order where a file does not, `file_pages`
//! reads them, `marks` says what was lost before each, `stream` walks one CPU's, `records` turns
//! records into events, `source` puts the CPUs together.

pub mod catalogue;
pub mod clock;
pub mod cpu_stats;
pub mod fields;
pub mod file_pages;
pub mod format;
pub mod interrupts;
pub mod marks;
pub mod pages;
pub mod plan;
pub mod read_ahead;
pub mod records;
pub mod source;
pub mod stacks;
pub mod states;
pub mod stream;

use crate::model::event::Comm;

/// The lines `tid name` of the kernel's saved_cmdlines. `<...>` is its word for
/// a name it has forgotten.
pub fn saved_cmdlines(text: &str) -> Vec<(u32, Comm)> {
    text.lines()
        .filter_map(|line| {
            let (tid, name) = line.trim_start().split_once(' ')?;
            let named = !name.is_empty() && name != "<...>";
            named.then_some((tid.parse().ok()?, Comm::new(name.as_bytes())))
        })
        .collect()
}
