//! Windows in which a thread's service fell short of what was due to it.
//!
//! A thread's shortfall is how much its lag has risen above the lowest it ever had before
//! (Page's cumulative sum). From one lowest point to the next is an excursion; the window is
//! from its begin to where the shortfall is largest.

/// One window; ns after the begin of the trace's.
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

/// What a thread gathered up to an instant.
#[derive(Debug, Clone, Copy, Default)]
struct Point {
    t: i64,
    due: f64,
    received: i64,
    waited: i64,
}

impl Point {
    fn lag(&self) -> f64 {
        self.due - self.received as f64
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Path {
    now: Point,
    lowest: Option<Point>,
    /// Where the shortfall is largest since then, and how large.
    top: Point,
    worst: f64,
}

impl Path {
    /// An interval of its life, and what was due in it.
    pub fn pass(&mut self, runs: bool, dur: i64, due: f64) {
        self.now.due += due;
        *(if runs {
            &mut self.now.received
        } else {
            &mut self.now.waited
        }) += dur;
    }

    /// At `t` it began or ended to run or wait; an excursion that this ends, if it is one.
    pub fn point(&mut self, t: i64, bound: f64) -> Option<Shortfall> {
        self.now.t = t;
        match self.lowest {
            Some(lowest) if self.now.lag() > lowest.lag() => {
                let short = self.now.lag() - lowest.lag();
                if short > self.worst {
                    (self.worst, self.top) = (short, self.now);
                }
                None
            }
            _ => {
                let found = self.last(bound);
                (self.lowest, self.worst) = (Some(self.now), 0.0);
                found
            }
        }
    }

    /// The excursion at hand.
    pub fn last(&self, bound: f64) -> Option<Shortfall> {
        let lowest = self.lowest.filter(|_| self.worst >= bound)?;
        Some(Shortfall {
            utid: 0,
            begin: lowest.t,
            end: self.top.t,
            due: self.top.due - lowest.due,
            received: self.top.received - lowest.received,
            waited: self.top.waited - lowest.waited,
        })
    }
}
