//! What the replay tells of threads: their lag at each turn, and its extremes.
use super::queue::Place;
use super::replay::Replay;
use super::{Point, Tally, Turn};

/// Nothing was told yet.
const NEVER: i64 = i64::MIN;

/// What was told of one thread so far, in one line of the cache. The most that it was owed
/// is its entity's.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub struct Told {
    /// When, or `NEVER`; and how much it was owed.
    last: (i64, i64),
    least: (i64, i64),
    most: i64,
    /// Since when its lag rests on nothing from before the trace, or `NEVER`.
    settled: i64,
    pub picks: u32,
    pub eligible: u32,
    pub n: u32,
    pub n_censored: u32,
}

pub const UNTOLD: Told = Told {
    last: (NEVER, 0),
    least: (NEVER, i64::MAX),
    most: NEVER,
    settled: NEVER,
    picks: 0,
    eligible: 0,
    n: 0,
    n_censored: 0,
};

impl Told {
    fn add_to(&self, tally: &mut Tally, most: i64) {
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

impl Replay<'_> {
    /// `t` comes or goes, which shifts what is owed to all who wait on `c`: was it the most so far?
    pub(super) fn look_around(&mut self, c: u16, t: u32) {
        let (now, told) = (self.now, &mut self.told);
        self.all.records(c, t, |m, _| told[m as usize].most = now);
    }

    pub(super) fn note(&mut self, c: u16, t: u32, turn: Turn) {
        let lag = self.all.owed(c, t);
        let clean = self.all.queue(c).clean;
        let now = self.now;
        let e = self.all.entity(t);
        let more = lag > e.most;
        e.most = lag.max(e.most);
        let told = self.told(t);
        told.last = (now, lag);
        if more {
            told.most = now;
        }
        if lag < told.least.1 {
            told.least = (now, lag);
        }
        if !clean {
            told.settled = NEVER;
        } else if told.settled == NEVER {
            told.settled = now;
        }
        if let Some(points) = &mut self.points
            && self.known[t as usize].wanted
        {
            points.push(Point {
                ts: now,
                utid: t,
                cpu: c,
                turn,
                weight: self.all.of(t).weight,
                lag,
                vlag: self.all.behind(c, t),
                eligible: self.all.is_eligible(c, t),
                settled: clean,
            });
        }
    }

    /// The window ends: what is owed to those who are still there.
    pub fn finish(mut self, end: i64) -> (Vec<Tally>, Vec<Point>) {
        self.now = self.now.max(end);
        for c in 0..self.all.queues.len() {
            let c = c as u16;
            self.update(c, self.now);
            for t in self.all.queue(c).members.clone() {
                if self.all.of(t).place != Place::Delayed {
                    self.note(c, t, Turn::End);
                    self.told(t).n_censored += 1;
                }
            }
        }
        let mut tallies = self.states.tallies();
        let told = self.told.iter().zip(&self.all.entities);
        for (tally, (told, entity)) in tallies.iter_mut().zip(told) {
            told.add_to(tally, entity.most);
        }
        (tallies, self.points.unwrap_or_default())
    }
}
