//! What the replay tells of threads: their lag at each turn, and its extremes.
use super::queue::Place;
use super::replay::Replay;
use super::{Point, Tally, Turn};

impl Replay<'_> {
    /// `t` comes or goes, which shifts what is owed to all who wait on `c`: was it the most so far?
    pub(super) fn look_around(&mut self, c: u16, t: u32) {
        let (now, tallies) = (self.now, &mut self.tallies);
        self.all.records(c, t, |m, lag| {
            tallies[m as usize].most = Some((now, lag));
        });
    }

    pub(super) fn note(&mut self, c: u16, t: u32, turn: Turn) {
        let lag = self.all.owed(c, t);
        let clean = self.all.queue(c).clean;
        let now = self.now;
        let e = self.all.entity(t);
        let more = lag > e.most;
        e.most = lag.max(e.most);
        let tally = self.tally(t);
        tally.last = Some((now, lag));
        if more {
            tally.most = Some((now, lag));
        }
        if tally.least.is_none_or(|(_, least)| lag < least) {
            tally.least = Some((now, lag));
        }
        if !clean {
            tally.settled = None;
        } else if tally.settled.is_none() {
            tally.settled = Some(now);
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
                    self.tally(t).n_censored += 1;
                }
            }
        }
        (self.tallies, self.points.unwrap_or_default())
    }
}
