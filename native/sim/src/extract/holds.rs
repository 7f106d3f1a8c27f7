//! A hold of a mutex, as far as it is known.

/// The number of holds of a thread that establishes their usual length.
pub(super) const ENOUGH: usize = 5;

pub(super) const NEVER: i64 = i64::MAX;

/// A thread has, or wants, a mutex.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hold {
    pub utid: u32,
    pub mutex: u32,
    /// When it began to want it, by a call; `got` if it made none.
    pub wanted: i64,
    pub got: i64,
    pub released: i64,
    /// When it was back from the call that released it.
    pub back: i64,
}

impl Hold {
    /// Neither to take the mutex nor to release it.
    pub fn made_no_call(&self) -> bool {
        self.back == self.released && self.released != NEVER
    }
}
