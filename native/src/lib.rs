//! The native engine of schedscope: decoders, reconstruction, simulation.
//!
//! Data goes one way: `decode` (a Source sends events) -> `pipeline` (tids to
//! utids, fact tables) -> `reconstruct` (states, waits) -> `store`; `convert` is all of it.
//! Only `python` knows of Python: without the feature of that name this is a plain Rust library,
//! as in `examples/waits.rs`.

pub mod chores;
mod columns;
pub mod convert;
pub mod decode;
mod each;
pub mod encode;
pub mod error;
pub mod hooks;
pub mod interactivity;
pub mod model;
pub mod peer_rules;
pub mod pipeline;
mod prefetch;
#[cfg(feature = "python")]
mod python;
mod ranks;
mod realign;
pub mod reconstruct;
mod regular_file;
pub mod sim;
pub mod states;
pub mod store;
pub mod summary;
pub mod sweep;
pub mod virtual_lag;
