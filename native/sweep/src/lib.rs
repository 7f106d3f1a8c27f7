//! Questions about stored traces that one pass over a table answers.
//!
//! Most are sweeps over `states`: which thread ran on each CPU and which waited for it, change by
//! change.
//!
//! `rows` reads the table, `changes` brings it into one list in order of time, and
//! each sweep goes over that list once and keeps what its question asks.

pub mod accounting;
pub mod agreement;
pub mod changes;
pub mod charges;
pub mod clock;
pub mod cpu_index;
pub mod due;
pub mod due_in;
pub mod episode_interference;
pub mod episodes;
pub mod group_ranks;
pub mod group_shares;
pub mod group_times;
pub mod history;
pub mod idle;
pub mod interference;
pub mod lag;
pub mod lengths;
pub mod levels;
pub mod list;
pub mod lone_enqueues;
pub mod matching;
pub mod overview;
pub mod parts;
pub mod path;
pub mod peer_rules;
pub mod quickest;
pub mod quotas;
#[cfg(test)]
mod random_states;
pub mod ranks;
pub mod run_sums;
pub mod shortfall;
pub mod sleeps;
pub mod switch_ins;
pub mod wait_breakdown;
pub mod wait_cursor;
pub mod wait_sums;
pub mod weights;

use schedscope_ground::{error, hooks};
use schedscope_model::{self as model, columns};
use schedscope_trace::{states, store};

/// Changes between two looks at whether Ctrl-C was pressed.
const CHECK_EVERY: usize = 1 << 20;
