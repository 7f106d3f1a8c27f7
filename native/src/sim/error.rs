//! The simulator's errors are the engine's: found, expected, what to do now.
pub use crate::error::{Error, Result};
