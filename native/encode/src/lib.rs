//! The way back: events and fact tables into the files of other tools.
//!
//! `tables` plays fact tables back as events, `tracedat` writes events as a
//! trace.dat, `perfetto` writes what Python prepared (`schedscope.exports`), `synthetic`
//! makes events up for tests and benchmarks.

pub mod perfetto;
pub mod synthetic;
pub mod tables;
pub mod tracedat;

use schedscope_decode as decode;
use schedscope_ground::error;
use schedscope_model as model;
use schedscope_trace::reconstruct;
