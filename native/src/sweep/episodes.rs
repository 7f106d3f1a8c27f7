//! Stretches in which CPU time was wasted all along, and who waited in them.
use super::idle::IdleSweep;

/// A stretch; ns after the begin of the window.
#[derive(Debug, Clone, Copy)]
pub struct Episode {
    pub begin: i64,
    pub end: i64,
    pub wasted: i64,
}

/// A wait on one queue in an episode (its number in the list given).
#[derive(Debug, Clone, Copy)]
pub struct Participant {
    pub episode: usize,
    pub utid: u32,
    pub class: usize,
    pub lane: usize,
    /// When this stretch of waiting began.
    pub begin: i64,
    /// Time in the episode in which its CPU was busy and another one spare.
    pub waited: i64,
}

/// What the sweep is to look for.
pub enum Watch {
    /// The stretches of some length and more.
    Find {
        least: i64,
        open: Option<(i64, i64)>,
        found: Vec<Episode>,
    },
    /// Those who took part in stretches that were found, in order of time.
    Follow(Follow),
}

#[derive(Default)]
pub struct Follow {
    pub episodes: Vec<Episode>,
    /// The first that is not over; whether it began.
    next: usize,
    open: bool,
    /// Threads that wait now: utid, class, lane, begin, reading when the episode or the wait began.
    waiting: Vec<(u32, usize, usize, i64, i64)>,
    /// By utid: where in `waiting`.
    at: Vec<u32>,
    /// By lane: time spare when the episode began.
    spare_from: Vec<i64>,
    pub participants: Vec<Participant>,
    /// Episode, lane, time spare in it.
    pub spare: Vec<(usize, usize, i64)>,
    /// By class: the instants at which a usable CPU came and went.
    pub usable: Vec<Vec<i64>>,
}

impl Watch {
    pub fn find(least: i64) -> Self {
        Self::Find {
            least: least.max(1),
            open: None,
            found: Vec::new(),
        }
    }

    pub fn follow(episodes: Vec<Episode>, threads: usize, classes: usize) -> Self {
        Self::Follow(Follow {
            episodes,
            at: vec![u32::MAX; threads],
            usable: vec![Vec::new(); classes],
            ..Follow::default()
        })
    }

    pub fn wait(
        &mut self,
        t: i64,
        utid: u32,
        lane: usize,
        class: usize,
        reading: i64,
        begins: bool,
    ) {
        let Self::Follow(follow) = self else { return };
        let slot = &mut follow.at[utid as usize];
        if begins {
            *slot = follow.waiting.len() as u32;
            follow.waiting.push((utid, class, lane, t, reading));
            return;
        }
        let at = std::mem::replace(slot, u32::MAX);
        if at == u32::MAX {
            return;
        }
        let (utid, class, lane, begin, from) = follow.waiting.swap_remove(at as usize);
        if let Some(moved) = follow.waiting.get(at as usize) {
            follow.at[moved.0 as usize] = at;
        }
        if follow.open && reading > from {
            let waited = reading - from;
            let episode = follow.next;
            follow.participants.push(Participant {
                episode,
                utid,
                class,
                lane,
                begin,
                waited,
            });
        }
    }

    /// A CPU that the class may use became spare, or the last one is no more.
    pub fn usable(&mut self, t: i64, class: usize) {
        if let Self::Follow(follow) = self {
            follow.usable[class].push(t);
        }
    }

    pub fn instant(&mut self, t: i64, wasting: bool, sweep: &IdleSweep<'_>) {
        match self {
            Self::Find { least, open, found } => match *open {
                None if wasting => *open = Some((t, sweep.sums.wasted)),
                Some((begin, before)) if !wasting => {
                    *open = None;
                    if t - begin >= *least {
                        found.push(Episode {
                            begin,
                            end: t,
                            wasted: sweep.sums.wasted - before,
                        });
                    }
                }
                _ => {}
            },
            Self::Follow(follow) => follow.instant(t, sweep),
        }
    }

    pub fn finish(&mut self, t: i64, sweep: &IdleSweep<'_>) {
        self.instant(t, false, sweep);
    }
}

impl Follow {
    fn instant(&mut self, t: i64, sweep: &IdleSweep<'_>) {
        if self.open && self.episodes[self.next].end <= t {
            let episode = self.next;
            for &(utid, class, lane, begin, from) in &self.waiting {
                let waited = sweep.behind(lane, class, t) - from;
                if waited > 0 {
                    self.participants.push(Participant {
                        episode,
                        utid,
                        class,
                        lane,
                        begin,
                        waited,
                    });
                }
            }
            for (lane, from) in self.spare_from.iter().enumerate() {
                let time = sweep.lanes[lane].spare.read(t) - from;
                if time > 0 {
                    self.spare.push((episode, lane, time));
                }
            }
            self.open = false;
            self.next += 1;
        }
        if !self.open
            && self
                .episodes
                .get(self.next)
                .is_some_and(|next| next.begin <= t)
        {
            self.open = true;
            for (_, class, lane, _, from) in &mut self.waiting {
                *from = sweep.behind(*lane, *class, t);
            }
            self.spare_from.clear();
            self.spare_from
                .extend(sweep.lanes.iter().map(|lane| lane.spare.read(t)));
        }
    }

    /// Whether a CPU that the class may use was spare from `t` on.
    pub fn was_usable(&self, class: usize, t: i64) -> bool {
        self.usable[class].partition_point(|at| *at <= t) % 2 == 1
    }
}
