//! One folder or file per input format; each ends in `model::event`.
//!
//! A decoder implements [`crate::model::event::Source`]: it reads through
//! bounded windows (no memory maps: a truncated file must be an error, not a
//! signal), merges its per-CPU streams in time order and hands events on.
