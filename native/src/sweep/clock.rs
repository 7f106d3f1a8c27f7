//! A clock that runs while something holds.

#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    on: bool,
    since: i64,
    sum: i64,
}

impl Clock {
    #[inline]
    pub fn on(&self) -> bool {
        self.on
    }

    /// For how long it ran up to `t`.
    #[inline]
    pub fn read(&self, t: i64) -> i64 {
        self.sum + if self.on { t - self.since } else { 0 }
    }

    /// It runs from `t` on, or stands; whether that is news.
    #[inline]
    pub fn set(&mut self, t: i64, on: bool) -> bool {
        if self.on == on {
            return false;
        }
        self.sum = self.read(t);
        self.since = t;
        self.on = on;
        true
    }
}
