//! From events to stored tables.
//!
//! Data goes one way: a `Source` of `schedscope_decode` sends events -> `pipeline` (tids to
//! utids, fact tables) -> `reconstruct` (states, waits) -> `store`; `convert` is all of it, as in
//! `examples/waits.rs`.

pub mod convert;
#[cfg(test)]
mod declared;
pub mod pipeline;
mod realign;
pub mod reconstruct;
pub mod states;
pub mod store;
pub mod summary;

use schedscope_decode as decode;
use schedscope_ground::{chores, each, error, hooks, prefetch, regular_file};
use schedscope_model::{self as model, columns};
