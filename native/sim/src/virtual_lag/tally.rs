//! What the replay knows of each thread so far.
use super::Tally;

/// Nothing is known yet.
pub const NEVER: i64 = i64::MIN;

/// What is known of one thread so far, in one cache line. The maximum lag is its entity's.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub struct LagTally {
    /// When, or `NEVER`; and the lag.
    pub last: (i64, i64),
    pub least: (i64, i64),
    pub most: i64,
    /// Since when its lag rests on nothing from before the trace, or `NEVER`.
    pub settled: i64,
    pub picks: u32,
    pub eligible: u32,
    pub n: u32,
    pub n_censored: u32,
}

pub const EMPTY: LagTally = LagTally {
    last: (NEVER, 0),
    least: (NEVER, i64::MAX),
    most: NEVER,
    settled: NEVER,
    picks: 0,
    eligible: 0,
    n: 0,
    n_censored: 0,
};

impl LagTally {
    pub fn add_to(&self, tally: &mut Tally, most: i64) {
        let known = |ts| (ts != NEVER).then_some(ts);
        tally.last = known(self.last.0).map(|ts| (ts, self.last.1));
        tally.least = known(self.least.0).map(|ts| (ts, self.least.1));
        tally.most = known(self.most).map(|ts| (ts, most));
        tally.settled = known(self.settled);
        tally.picks = self.picks;
        tally.eligible = self.eligible;
        tally.n = self.n;
        tally.n_censored = self.n_censored;
    }
}
