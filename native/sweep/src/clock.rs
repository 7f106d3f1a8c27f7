//! A clock that runs while something holds.

/// It shows `before + (t & mask)`, which needs no branch: some are read at both ends of every
/// stretch.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    before: i64,
    /// All bits while it runs.
    mask: i64,
}

impl Clock {
    #[inline]
    pub fn on(&self) -> bool {
        self.mask != 0
    }

    /// For how long it ran up to `t`.
    #[inline]
    pub fn read(&self, t: i64) -> i64 {
        self.before + (t & self.mask)
    }

    /// It runs from `t` on, or stands; whether that is news.
    #[inline]
    pub fn set(&mut self, t: i64, on: bool) -> bool {
        if self.on() == on {
            return false;
        }
        let now = self.read(t);
        self.mask = -i64::from(on);
        self.before = now - (t & self.mask);
        true
    }
}
