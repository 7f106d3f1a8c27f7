//! Windows in which a thread's service fell short of what was due to it.
//!
//! A thread's shortfall is how much its lag has risen above the lowest it ever had before (Page's
//! cumulative sum). From one lowest point to the next is an excursion; the window is from its start
//! to where the shortfall is largest.

/// A thread's account at an instant, since the start of the window; times in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Point {
    pub t: i64,
    pub due: f64,
    pub received: i64,
}

/// One window; ns after the start of the trace's.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shortfall {
    pub utid: u32,
    pub begin: i64,
    pub end: i64,
    pub due: f64,
    pub received: i64,
    /// Time runnable in it.
    pub waited: i64,
}

/// A thread's account at an instant, and how long it was runnable up to then.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    account: Point,
    waited: i64,
}

/// What is known of a thread's lag so far.
#[derive(Debug, Clone, Copy)]
pub struct Path {
    /// Up to then it is known how long it was runnable.
    since: i64,
    waited: i64,
    /// The lowest lag, where it was last, and the largest shortfall since then and where.
    lowest: f64,
    worst: f64,
    bottom: Mark,
    top: Mark,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            since: 0,
            waited: 0,
            lowest: f64::INFINITY,
            worst: f64::NEG_INFINITY,
            bottom: Mark::default(),
            top: Mark::default(),
        }
    }
}

impl Path {
    /// Up to `t` it was runnable, or was not.
    #[inline]
    pub fn pass(&mut self, t: i64, waits: bool) {
        self.waited += if waits { t - self.since } else { 0 };
        self.since = t;
    }

    /// It began or ended to run or wait; an excursion that this ends, if it is one.
    #[inline]
    pub fn point(&mut self, account: &Point, bound: f64) -> Option<Shortfall> {
        let lag = account.due - account.received as f64;
        let now = Mark {
            account: *account,
            waited: self.waited,
        };
        if lag > self.lowest {
            let short = lag - self.lowest;
            if short > self.worst {
                (self.worst, self.top) = (short, now);
            }
            return None;
        }
        let found = self.last(bound);
        (self.lowest, self.bottom) = (lag, now);
        self.worst = f64::NEG_INFINITY;
        found
    }

    /// The excursion at hand.
    pub fn last(&self, bound: f64) -> Option<Shortfall> {
        let (bottom, top) = (&self.bottom, &self.top);
        (self.worst >= bound).then(|| Shortfall {
            utid: 0,
            begin: bottom.account.t,
            end: top.account.t,
            due: top.account.due - bottom.account.due,
            received: top.account.received - bottom.account.received,
            waited: top.waited - bottom.waited,
        })
    }
}
