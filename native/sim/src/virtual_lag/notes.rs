//! What the replay notes of threads: their lag at each turn, and its extremes.
use super::queue::Membership;
use super::replay::Replay;
use super::tally::NEVER;
use super::{Point, Tally, Turn};

impl Replay<'_> {
    /// `t` comes or goes, which shifts the lag of all on `c`. Until now that grew for waiting
    /// threads, and fell for the running one: was it the maximum or minimum so far?
    pub(super) fn look_around(&mut self, c: u16, t: u32) {
        let (now, told) = (self.now, &mut self.tallies);
        self.all.records(c, t, |m, _| told[m as usize].most = now);
        if let Some(runs) = self.all.queue(c).curr
            && runs != t
        {
            self.extremes(c, runs);
        }
    }

    /// The lag of `t`, which is counted on `c`: it may be the maximum or minimum so far.
    pub(super) fn extremes(&mut self, c: u16, t: u32) -> i64 {
        let (now, lag) = (self.now, self.all.owed(c, t));
        let e = self.all.entity(t);
        let more = lag > e.most;
        e.most = lag.max(e.most);
        let told = self.tally_of(t);
        if more {
            told.most = now;
        }
        if lag < told.least.1 {
            told.least = (now, lag);
        }
        lag
    }

    pub(super) fn note(&mut self, c: u16, t: u32, turn: Turn) {
        let lag = self.extremes(c, t);
        let clean = self.all.queue(c).clean;
        let now = self.now;
        let told = self.tally_of(t);
        told.last = (now, lag);
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

    /// The window ends: the lag of the threads still there.
    pub fn finish(mut self, end: i64) -> (Vec<Tally>, Vec<Point>) {
        self.now = self.now.max(end);
        for c in 0..self.all.queues.len() {
            let c = c as u16;
            self.update(c, self.now);
            for t in self.all.queue(c).members.clone() {
                if self.all.of(t).place != Membership::Delayed {
                    self.note(c, t, Turn::End);
                    self.tally_of(t).n_censored += 1;
                }
            }
        }
        let mut tallies = self.states.tallies();
        let told = self.tallies.iter().zip(&self.all.entities);
        for (tally, (told, entity)) in tallies.iter_mut().zip(told) {
            told.add_to(tally, entity.most);
        }
        (tallies, self.points.unwrap_or_default())
    }
}
