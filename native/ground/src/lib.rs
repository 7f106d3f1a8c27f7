//! What every crate of the engine stands on.
//!
//! `error` is the one error type; `hooks` is what the engine asks of the program around it;
//! `chores` and `each` give work to other threads; `regular_file` opens files; `prefetch` brings
//! memory near.

pub mod chores;
pub mod each;
pub mod error;
pub mod hooks;
pub mod prefetch;
pub mod regular_file;
