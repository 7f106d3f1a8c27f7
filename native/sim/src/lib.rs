//! The replay simulator: a workload under a policy on a machine.
pub mod engine;
pub mod extract;
#[cfg(test)]
mod golden;
pub mod heap;
pub mod interactivity;
#[cfg(test)]
mod invariants;
pub mod kendall;
pub mod load;
mod lock;
mod locks;
pub mod machine;
pub mod output;
mod pipe;
mod pipes;
pub mod policy;
mod program;
pub mod queue;
pub mod rng;
pub mod run;
mod running;
pub mod shared_queue;
#[cfg(test)]
mod testing;
mod timers;
pub mod trace_sink;
mod transitions;
pub mod tree;
pub mod virtual_lag;
pub mod workload;
pub mod world;

use schedscope_ground::{error, prefetch};
use schedscope_model::{self as model, columns};
use schedscope_sweep as sweep;
use schedscope_trace::{reconstruct, states, store, summary};
