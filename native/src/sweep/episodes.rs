//! Stretches in which CPU time was wasted all along, and who waited in them.
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A stretch; ns after the begin of the window.
#[derive(Debug, Clone, Copy)]
pub struct Episode {
    pub begin: i64,
    pub end: i64,
    pub wasted: i64,
}

/// A wait on one queue in an episode.
#[derive(Debug, Clone, Copy)]
pub struct Participant {
    pub utid: u32,
    pub class: usize,
    pub lane: usize,
    /// When this stretch of waiting began.
    pub begin: i64,
    /// Time in the episode in which its CPU was busy and another one spare.
    pub waited: i64,
}

/// An episode, who waited in it, and how long each lane's CPU was spare.
pub struct FoundEpisode {
    pub episode: Episode,
    pub participants: Vec<Participant>,
    pub spare: Vec<(usize, i64)>,
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

/// Follows a sweep and keeps the stretches of some length, those with the most wasted.
pub struct Watch {
    least: i64,
    top: usize,
    /// The stretch at hand: its begin, and what was wasted before it.
    open: Option<(i64, i64)>,
    /// By lane and class, how long it was behind when the stretch began; by lane, spare.
    behind_from: Vec<i64>,
    spare_from: Vec<i64>,
    classes: usize,
    /// Whose wait ended in it.
    gone: Vec<Participant>,
    waiting: Vec<Waiting>,
    /// By utid: where in `waiting`.
    at: Vec<u32>,
    told: Vec<Option<FoundEpisode>>,
    /// Of those told, the one to be let go first on top.
    ranked: BinaryHeap<Reverse<(i64, Reverse<i64>, usize)>>,
    /// By class: the instants at which a usable CPU came and went.
    usable: Vec<Vec<i64>>,
}

impl Watch {
    pub fn new(least: i64, top: usize, threads: usize, classes: usize) -> Self {
        Self {
            least: least.max(1),
            top,
            open: None,
            behind_from: Vec::new(),
            spare_from: Vec::new(),
            classes,
            gone: Vec::new(),
            waiting: Vec::new(),
            at: vec![u32::MAX; threads],
            told: Vec::new(),
            ranked: BinaryHeap::new(),
            usable: vec![Vec::new(); classes],
        }
    }

    pub fn waits(&mut self, t: i64, utid: u32, lane: usize, class: usize, mark: i64) {
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
        if self.open.is_some() {
            self.gone.extend(self.participant(&waiting, reading));
        }
    }

    fn participant(&self, of: &Waiting, reading: i64) -> Option<Participant> {
        let Waiting {
            utid,
            class,
            lane,
            begin,
            mark,
        } = *of;
        // Clocks never go back: the later of two begins has the larger reading.
        let waited = reading - mark.max(self.behind_from[lane * self.classes + class]);
        (waited > 0).then_some(Participant {
            utid,
            class,
            lane,
            begin,
            waited,
        })
    }

    /// A CPU that the class may use became spare, or the last one is no more.
    pub fn usable(&mut self, t: i64, class: usize) {
        self.usable[class].push(t);
    }

    /// From `t` on something is wasted, or nothing.
    pub fn instant(&mut self, t: i64, wasting: bool, readings: &impl Readings) {
        match self.open {
            None if wasting => {
                self.open = Some((t, readings.wasted()));
                self.behind_from.clear();
                for lane in 0..readings.lanes() {
                    self.behind_from
                        .extend((0..self.classes).map(|class| readings.behind(lane, class, t)));
                }
                self.spare_from.clear();
                self.spare_from
                    .extend((0..readings.lanes()).map(|lane| readings.spare(lane, t)));
            }
            Some((begin, before)) if !wasting => {
                self.open = None;
                if t - begin >= self.least {
                    let wasted = readings.wasted() - before;
                    self.keep(
                        Episode {
                            begin,
                            end: t,
                            wasted,
                        },
                        readings,
                    );
                }
                self.gone.clear();
            }
            _ => {}
        }
    }

    fn keep(&mut self, episode: Episode, readings: &impl Readings) {
        let Episode { begin, end, wasted } = episode;
        // Of equal ones the earlier goes first.
        let rank = Reverse((wasted, Reverse(begin), self.told.len()));
        if self.ranked.len() >= self.top && self.ranked.peek().is_none_or(|last| rank >= *last) {
            return;
        }
        let mut participants = std::mem::take(&mut self.gone);
        for waiting in &self.waiting {
            let reading = readings.behind(waiting.lane, waiting.class, end);
            participants.extend(self.participant(waiting, reading));
        }
        let spare = self
            .spare_from
            .iter()
            .enumerate()
            .filter_map(|(lane, from)| {
                let time = readings.spare(lane, end) - from;
                (time > 0).then_some((lane, time))
            });
        self.told.push(Some(FoundEpisode {
            episode,
            participants,
            spare: spare.collect(),
        }));
        self.ranked.push(rank);
        if self.ranked.len() > self.top
            && let Some(Reverse((_, _, last))) = self.ranked.pop()
        {
            self.told[last] = None;
        }
    }

    /// By rank.
    pub fn take(&mut self) -> Vec<FoundEpisode> {
        let mut found: Vec<FoundEpisode> = std::mem::take(&mut self.told)
            .into_iter()
            .flatten()
            .collect();
        found.sort_by_key(|told| (-told.episode.wasted, told.episode.begin));
        found
    }

    /// Whether a CPU that the class may use was spare from `t` on.
    pub fn was_usable(&self, class: usize, t: i64) -> bool {
        self.usable[class].partition_point(|at| *at <= t) % 2 == 1
    }
}
