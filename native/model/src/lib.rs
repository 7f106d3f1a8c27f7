//! The trace model: what decoders yield, what tables hold, who is who.
//!
//! `event` is the source-neutral, tid-level event; `threads` turns tids into
//! utids; `membership` follows processes through control groups; `tables` declares every table,
//! `filling` fills its columns; `columns` reads and makes columns of Arrow tables. See docs/trace-model.md.

pub mod columns;
pub mod event;
pub mod filling;
pub mod membership;
pub mod tables;
pub mod threads;
pub mod time;

use schedscope_ground::{chores, error};
