//! The replay simulator: a workload under a policy on a machine.
pub mod engine;
pub mod error;
pub mod extract;
#[cfg(test)]
mod golden;
pub mod heap;
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
pub mod workload;
pub mod world;
