//! The times that a trace may have.

use crate::error::{Error, Result};

/// No time of a trace is farther from 0, so that no difference of two overflows: 146 years.
pub const FAR: i64 = (1 << 62) - 1;

/// Refuses a window so long that the times of all CPUs would not add up in 64 bits.
pub fn check_length((begin, end): (i64, i64), ncpu: u16) -> Result<()> {
    let length = i128::from(end) - i128::from(begin);
    let most = i128::from(FAR) / i128::from(ncpu.max(1));
    if length <= most {
        return Ok(());
    }
    Err(Error::format(
        format!("times from {begin} to {end} ns, with {ncpu} CPUs"),
        format!("a trace of at most {most} ns"),
        "a time stamp is damaged, or its unit is another: look at the first and the last ones",
    ))
}
