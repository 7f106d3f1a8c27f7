//! Sleeps that something outside the workload ended, and how steady a timer is.

/// A sleep that something outside ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutsideSleep {
    /// Its step.
    pub step: u32,
    pub since: i64,
    pub woken: i64,
    /// When the thread came onto a CPU after it.
    pub came: Option<i64>,
}

/// Fewer sleeps are not conclusive.
pub(super) const ENOUGH: usize = 8;

/// What a tick wakes is woken within this time of it, ns (`LATE` of `tick_phase.py`).
pub(super) const LATE: i64 = 50_000;

/// A wake belongs to the timer if it is off by at most this fraction of the period
/// (1 in so many).
pub(super) const CLOSE: i64 = 20;

/// The distances must be steadier than the sleeps by this factor.
pub(super) const STEADIER: i64 = 2;
