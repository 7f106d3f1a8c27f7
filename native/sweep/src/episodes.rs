//! Stretches in which CPU time was wasted all along, and who waited in them.
//!
//! One pass of a sweep finds the stretches, and a second one who waited in those that are wanted:
//! of a long stretch that is all threads, again and again.
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rustc_hash::FxHashMap;

use super::wait_cursor::WaitCursor;
use crate::error::Result;
use crate::model::event::Cause;

/// A stretch; ns after the start of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Episode {
    pub begin: i64,
    pub end: i64,
    pub wasted: i64,
}

/// Why a thread waited although a CPU idled: see `idle_episodes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    Placed,
    Preempted,
    NotPulled,
    Unknown,
}

/// A thread's waits on one queue in an episode that began alike; in order of their starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiter {
    /// Time in the episode in which the queue's CPU was busy and another one spare.
    pub waited: Reverse<i64>,
    pub utid: u32,
    /// When the first of these stretches of waiting began.
    pub begin: i64,
    pub lane: u32,
    pub why: Why,
}

/// An episode, who waited in it, the longest time first, and how long each lane's CPU was spare.
pub struct FoundEpisode {
    pub episode: Episode,
    pub waiters: Vec<Waiter>,
    /// How long all others waited together, where there are more than are asked for.
    pub others: Option<i64>,
    pub spare: Vec<(usize, i64)>,
}

/// What the sweep has counted up to an instant.
pub trait Readings {
    fn wasted(&self) -> i64;
    /// CPUs, and one for no known queue.
    fn lanes(&self) -> usize;
    /// Time up to `t` in which this CPU was busy and another one usable by the class.
    fn behind(&self, lane: usize, class: usize, t: i64) -> i64;
    /// Time up to `t` in which this CPU was spare.
    fn spare(&self, lane: usize, t: i64) -> i64;
}

/// Follows a sweep.
pub enum Watch<'a> {
    Stretches(Stretches),
    Waiters(Box<Waiters<'a>>),
}

impl Watch<'_> {
    /// Whether it needs to know if anything is wasted.
    pub fn asks_what_is_wasted(&self) -> bool {
        matches!(self, Self::Stretches(_))
    }

    /// From `t` on something is wasted, or nothing.
    pub fn instant(&mut self, t: i64, wasting: bool, readings: &impl Readings) {
        match self {
            Self::Stretches(stretches) => stretches.instant(t, wasting, readings.wasted()),
            Self::Waiters(waiters) => waiters.instant(t, readings),
        }
    }
}

/// Keeps the stretches of some length, those with the most wasted.
pub struct Stretches {
    least: i64,
    top: usize,
    /// The current stretch: its start, and what was wasted before it.
    open: Option<(i64, i64)>,
    /// The one to be let go first on top: of equal ones the later.
    ranked: BinaryHeap<Reverse<(i64, Reverse<i64>, i64)>>,
}

impl Stretches {
    pub fn new(least: i64, top: usize) -> Self {
        Self {
            least: least.max(1),
            top,
            open: None,
            ranked: BinaryHeap::new(),
        }
    }

    fn instant(&mut self, t: i64, wasting: bool, wasted: i64) {
        match self.open {
            None if wasting => self.open = Some((t, wasted)),
            Some((begin, before)) if !wasting => {
                self.open = None;
                if t - begin >= self.least {
                    self.ranked
                        .push(Reverse((wasted - before, Reverse(begin), t)));
                    if self.ranked.len() > self.top {
                        self.ranked.pop();
                    }
                }
            }
            _ => {}
        }
    }

    /// In order of time.
    pub fn take(self) -> Vec<Episode> {
        let ranked = self.ranked.into_iter();
        let mut found: Vec<Episode> = ranked
            .map(|Reverse((wasted, Reverse(begin), end))| Episode { begin, end, wasted })
            .collect();
        found.sort_by_key(|episode| episode.begin);
        found
    }
}

/// A thread that waits now.
#[derive(Clone, Copy)]
struct Waiting {
    utid: u32,
    class: usize,
    lane: usize,
    begin: i64,
    /// The reading of its clock then.
    mark: i64,
}

/// The last wait of a thread.
#[derive(Clone, Copy)]
struct Began {
    number: Option<usize>,
    ready: i64,
    why: Why,
}

/// Instants at which a CPU that a class may use came and went.
#[derive(Default, Clone)]
struct Usable {
    /// Those let go; an even number.
    past: usize,
    at: VecDeque<i64>,
}

/// Whose waits, on which lane, and why, in one number: there are many.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Here(u64);

impl Here {
    fn new(utid: u32, lane: usize, why: Why) -> Self {
        Self(u64::from(utid) << 32 | (lane as u64) << 2 | why as u64)
    }

    fn utid(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn lane(self) -> u32 {
        self.0 as u32 >> 2
    }

    fn why(self) -> Why {
        match self.0 & 3 {
            0 => Why::Placed,
            1 => Why::Preempted,
            2 => Why::NotPulled,
            _ => Why::Unknown,
        }
    }
}

/// Instants of a class that are kept, for waits that began before they are seen.
const KEPT: usize = 1 << 16;

/// Gathers who waited in some episodes.
pub struct Waiters<'a> {
    episodes: Vec<Episode>,
    ledger: WaitCursor<'a>,
    /// The next episode, and whether it has started.
    next: usize,
    open: bool,
    /// By lane and class, how long it was behind when the episode began; by lane, spare.
    behind_from: Vec<i64>,
    spare_from: Vec<i64>,
    classes: usize,
    /// By utid, lane and reason: begin and time. In an episode as long as the trace these are all
    /// threads on all CPUs.
    here: FxHashMap<Here, (i64, i64)>,
    /// The number of waiters reported for each episode.
    most: usize,
    waiting: Vec<Waiting>,
    /// By utid: where in `waiting`.
    at: Vec<u32>,
    began: Vec<Began>,
    /// Threads whose waits were first seen in this instant, with their classes.
    fresh: Vec<(u32, usize)>,
    usable: Vec<Usable>,
    kept: usize,
    /// A wait began before what is kept.
    missed: bool,
    found: Vec<FoundEpisode>,
}

impl<'a> Waiters<'a> {
    /// In `episodes`, which are in order of time; of each the `most` that waited longest. `all`:
    /// whenever the waits began.
    pub fn new(
        episodes: Vec<Episode>,
        most: usize,
        ledger: WaitCursor<'a>,
        threads: usize,
        classes: usize,
        all: bool,
    ) -> Self {
        let began = Began {
            number: None,
            ready: 0,
            why: Why::Unknown,
        };
        Self {
            episodes,
            ledger,
            next: 0,
            open: false,
            behind_from: Vec::new(),
            spare_from: Vec::new(),
            classes,
            here: FxHashMap::default(),
            most,
            waiting: Vec::new(),
            at: vec![u32::MAX; threads],
            began: vec![began; threads],
            fresh: Vec::new(),
            usable: vec![Usable::default(); classes],
            kept: if all { usize::MAX } else { KEPT },
            missed: false,
            found: Vec::new(),
        }
    }

    pub fn waits(&mut self, t: i64, utid: u32, lane: usize, class: usize, mark: i64) {
        let Some(of) = self.began.get_mut(utid as usize) else {
            return;
        };
        let wait = self.ledger.next(utid, t);
        let number = wait.map(|wait| wait.number);
        if number != of.number {
            let ready = wait.map_or(-1, |wait| wait.ready);
            let cause = wait.map_or(Cause::Unknown as u8, |wait| wait.cause);
            let why = if ready < 0 || cause >= Cause::Unknown as u8 {
                Why::Unknown
            } else if cause == Cause::Wake as u8 || cause == Cause::New as u8 {
                Why::Placed
            } else {
                Why::Preempted
            };
            *of = Began { number, ready, why };
            if why != Why::Unknown {
                self.fresh.push((utid, class));
            }
        }
        self.at[utid as usize] = self.waiting.len() as u32;
        self.waiting.push(Waiting {
            utid,
            class,
            lane,
            begin: t,
            mark,
        });
    }

    /// The thread waits no longer; `reading` is its clock's.
    pub fn gone(&mut self, utid: u32, reading: i64) {
        let at = std::mem::replace(&mut self.at[utid as usize], u32::MAX) as usize;
        if at >= self.waiting.len() {
            return;
        }
        let waiting = self.waiting.swap_remove(at);
        if let Some(moved) = self.waiting.get(at) {
            self.at[moved.utid as usize] = at as u32;
        }
        if self.open {
            self.waited(&waiting, reading);
        }
    }

    /// Adds the part of a stretch of waiting that was in the episode.
    fn waited(&mut self, of: &Waiting, reading: i64) {
        // Clocks never go back: the later of two begins has the larger reading.
        let from = self.behind_from[of.lane * self.classes + of.class];
        let waited = reading - of.mark.max(from);
        if waited > 0 {
            let here = Here::new(of.utid, of.lane, self.began[of.utid as usize].why);
            let sum = self.here.entry(here).or_insert((of.begin, 0));
            sum.0 = sum.0.min(of.begin);
            sum.1 += waited;
        }
    }

    /// A CPU that the class may use became spare, or the last one is no more.
    pub fn usable(&mut self, t: i64, class: usize) {
        let Usable { past, at } = &mut self.usable[class];
        at.push_back(t);
        if at.len() > self.kept {
            at.drain(..2);
            *past += 2;
        }
    }

    fn instant(&mut self, t: i64, readings: &impl Readings) {
        while let Some((utid, class)) = self.fresh.pop() {
            let Began { ready, why, .. } = &mut self.began[utid as usize];
            let Usable { past, at } = &self.usable[class];
            // Most waits begin at the instant at hand, and so after all of them.
            let came = match at.back() {
                Some(last) if last > ready => at.partition_point(|at| at <= ready),
                _ => at.len(),
            };
            self.missed |= came == 0 && *past > 0;
            if came % 2 == 0 {
                *why = Why::NotPulled;
            }
        }
        let Some(episode) = self.episodes.get(self.next) else {
            return;
        };
        if !self.open && t == episode.begin {
            self.open = true;
            self.behind_from.clear();
            for lane in 0..readings.lanes() {
                let behind = (0..self.classes).map(|class| readings.behind(lane, class, t));
                self.behind_from.extend(behind);
            }
            self.spare_from.clear();
            self.spare_from
                .extend((0..readings.lanes()).map(|lane| readings.spare(lane, t)));
        } else if self.open && t >= episode.end {
            self.close(readings);
        }
    }

    fn close(&mut self, readings: &impl Readings) {
        let episode = self.episodes[self.next];
        let waiting = std::mem::take(&mut self.waiting);
        for of in &waiting {
            self.waited(of, readings.behind(of.lane, of.class, episode.end));
        }
        self.waiting = waiting;
        // The last of those that are reported separately.
        let mut longest = BinaryHeap::new();
        let mut others = None;
        for (here, (begin, waited)) in self.here.drain() {
            longest.push(Waiter {
                waited: Reverse(waited),
                utid: here.utid(),
                begin,
                lane: here.lane(),
                why: here.why(),
            });
            if longest.len() > self.most
                && let Some(Waiter { waited, .. }) = longest.pop()
            {
                *others.get_or_insert(0) += waited.0;
            }
        }
        let spare = self.spare_from.iter().enumerate();
        let spare = spare.map(|(lane, from)| (lane, readings.spare(lane, episode.end) - from));
        self.found.push(FoundEpisode {
            episode,
            waiters: longest.into_sorted_vec(),
            others,
            spare: spare.filter(|(_, time)| *time > 0).collect(),
        });
        self.open = false;
        self.next += 1;
    }

    /// By rank; none if it has to be done with `all`.
    pub fn take(mut self) -> Result<Option<Vec<FoundEpisode>>> {
        self.ledger.check()?;
        self.found
            .sort_by_key(|found| (-found.episode.wasted, found.episode.begin));
        Ok((!self.missed).then_some(self.found))
    }
}
