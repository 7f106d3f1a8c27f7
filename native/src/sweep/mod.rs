//! Sweeps over `states`: who ran on each CPU and who waited for it, change by change.
//!
//! `rows` reads the table, `changes` brings it into one list in order of time, and
//! each sweep goes over that list once and keeps what its question asks.

pub mod begun;
pub mod blame;
pub mod changes;
pub mod charges;
pub mod clock;
pub mod culprits;
pub mod due;
pub mod episodes;
pub mod idle;
pub mod lag;
pub mod lanes;
pub mod ledger;
pub mod lengths;
pub mod levels;
pub mod list;
pub mod matching;
pub mod path;
pub mod rows;
pub mod run_sums;
pub mod shortfall;
pub mod sleeps;
pub mod tiles;
pub mod weights;
#[cfg(test)]
mod worlds;

/// Changes between two looks at whether Ctrl-C was pressed.
const PULSE: usize = 1 << 20;
