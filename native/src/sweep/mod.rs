//! Sweeps over `states`: who ran on each CPU and who waited for it, change by change.
//!
//! `rows` reads the table, `changes` brings it into one list in order of time, and
//! each sweep goes over that list once and keeps what its question asks.

mod begun;
mod blame;
mod changes;
mod charges;
mod clock;
mod culprits;
pub mod doors;
mod due;
mod episodes;
mod idle;
mod lag;
mod lanes;
mod ledger;
mod lengths;
mod levels;
mod list;
mod matching;
mod path;
pub mod rows;
mod run_sums;
mod shortfall;
mod sleeps;
mod tiles;
pub mod weights;
#[cfg(test)]
mod worlds;

/// Changes between two looks at whether Ctrl-C was pressed.
const PULSE: usize = 1 << 20;
