//! Feeds a rule from intervals, and keeps account of what it says.
use super::{Activity, Closed, Part, Rule};
use crate::error::{Error, Result};

/// What the thread table says of one thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScoredThread {
    pub start: Option<i64>,
    pub exit: Option<i64>,
    pub parent: Option<u32>,
    pub nice: i64,
    /// The rule is one of its scheduling class.
    pub scored: bool,
    /// It is asked about.
    pub wanted: bool,
}

/// One row of `states`, as rules see it.
#[derive(Debug, Clone, Copy)]
pub struct Interval {
    pub utid: u32,
    pub ts: i64,
    pub dur: i64,
    pub doing: Activity,
    pub by_thread: bool,
    pub closed: Closed,
}

/// The result for one thread; times in ns.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub seen: bool,
    pub score: Option<i64>,
    pub min: i64,
    pub max: i64,
    pub is_interactive: bool,
    pub first: Option<i64>,
    pub transitions: u32,
    /// Not interactive, interactive.
    pub times: [i64; 2],
    pub unknown: i64,
    pub n: u32,
    pub n_censored: u32,
    pub n_excluded: u32,
    /// From when on the score rests on as much history as the rule keeps.
    pub settled: Option<i64>,
}

/// The score from `ts` on; null where the trace stops telling, and when the thread is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    pub ts: i64,
    pub utid: u32,
    pub score: Option<(i64, bool)>,
}

/// A thread's tally while it is being made.
#[derive(Clone, Default)]
struct Account {
    tally: Tally,
    /// Since when its class holds.
    mark: i64,
    /// Whether the score is known now.
    told: bool,
}

impl Account {
    /// The score is this from `ts` on; whether that is news.
    fn note(&mut self, window: (i64, i64), ts: i64, (score, is): (i64, bool)) -> bool {
        let Self { tally, mark, told } = self;
        let was = tally.is_interactive;
        let fresh = !std::mem::replace(told, true);
        if fresh {
            *mark = ts;
        }
        tally.times[usize::from(was)] += clipped(window, *mark, ts);
        *mark = ts;
        let news = fresh || tally.score != Some(score) || was != is;
        if tally.score.is_some() {
            tally.transitions += u32::from(was != is);
            (tally.min, tally.max) = (tally.min.min(score), tally.max.max(score));
        } else {
            (tally.min, tally.max) = (score, score);
        }
        if is {
            tally.first.get_or_insert(ts);
        }
        tally.score = Some(score);
        tally.is_interactive = is;
        news
    }
}

#[derive(Clone, Default)]
struct Life<M> {
    memory: M,
    account: Account,
    /// Up to where its time has passed.
    at: i64,
    gone: bool,
    /// Run and sleep followed so far.
    followed: i64,
    /// Children that are gone, and when; before its own time has come that far.
    exits: Vec<(i64, M)>,
}

pub struct Fold<'a, R: Rule> {
    rule: R,
    known: &'a [ScoredThread],
    window: (i64, i64),
    /// How much history the rule keeps, ns.
    kept: i64,
    lives: Vec<Life<R::Memory>>,
    /// Threads by their start and exit (true), latest first.
    turns: Vec<(i64, bool, u32)>,
    points: Option<Vec<Point>>,
}

impl<'a, R: Rule> Fold<'a, R> {
    pub fn new(
        rule: R,
        known: &'a [ScoredThread],
        window: (i64, i64),
        kept: i64,
        series: bool,
    ) -> Self {
        let starts = known
            .iter()
            .zip(0..)
            .filter_map(|(t, utid)| Some((t.start?, false, utid)));
        let exits = known
            .iter()
            .zip(0..)
            .filter_map(|(t, utid)| Some((t.exit?, true, utid)));
        let mut turns: Vec<(i64, bool, u32)> = starts.chain(exits).collect();
        turns.sort_unstable_by(|a, b| b.cmp(a));
        Self {
            rule,
            known,
            window,
            kept,
            lives: vec![Life::default(); known.len()],
            turns,
            points: series.then(Vec::new),
        }
    }

    /// The next row of the table.
    pub fn row(&mut self, row: &Interval) -> Result<()> {
        let Some(known) = self.known.get(row.utid as usize) else {
            return Ok(());
        };
        let end = row.ts + row.dur;
        // Who creates a thread runs, even if that is the last it does: before its own row closes.
        let own = |child: u32| {
            row.doing == Activity::Running && self.known[child as usize].parent == Some(row.utid)
        };
        while let Some(&(at, exits, child)) = self.turns.last()
            && (at < end || at == end && !exits && own(child))
        {
            self.turns.pop();
            if !exits {
                self.fork(at, child);
            } else if self.lives[child as usize].at >= at {
                // It left without running again; else its last run decides.
                self.gone(child, at);
            }
        }
        let life = &mut self.lives[row.utid as usize];
        if life.account.tally.seen && row.ts < life.at && end < life.at && !life.gone {
            return Err(Error::format(
                format!(
                    "a state of thread {} at {} after one that ends at {}",
                    row.utid, row.ts, life.at
                ),
                "each thread's states in order of time",
                "convert the trace again",
            ));
        }
        if !life.account.tally.seen {
            life.account.tally.seen = true;
            life.at = row.ts;
        }
        if !known.scored {
            life.account.tally.unknown += clipped(self.window, row.ts, end);
            life.at = end;
            return Ok(());
        }
        self.advance(row, end, true);
        if row.closed == Closed::Exited {
            self.gone(row.utid, end);
        }
        Ok(())
    }

    /// Lets the thread's time pass up to `to`, within `row`, and its children go
    /// when their time has come.
    fn advance(&mut self, row: &Interval, to: i64, closes: bool) {
        let life = &mut self.lives[row.utid as usize];
        if !life.exits.is_empty() {
            let mut exits = std::mem::take(&mut life.exits);
            exits.retain(|(at, child)| {
                if *at >= to {
                    return true;
                }
                self.pass(row, *at, false);
                self.child_gone(row.utid, *at, child);
                false
            });
            self.lives[row.utid as usize].exits = exits;
        }
        self.pass(row, to, closes);
    }

    fn pass(&mut self, row: &Interval, to: i64, closes: bool) {
        let known = &self.known[row.utid as usize];
        let Life {
            memory,
            account,
            at,
            followed,
            ..
        } = &mut self.lives[row.utid as usize];
        let from = (*at).max(row.ts);
        if to < from {
            return;
        }
        *at = to;
        let doing = row.doing;
        let mut points = self.points.as_mut().filter(|_| known.wanted);
        if doing == Activity::Unknown {
            account.tally.unknown += clipped(self.window, from, to);
            account.tally.n_excluded += u32::from(closes);
            if std::mem::take(&mut account.told)
                && let Some(points) = &mut points
            {
                points.push(Point {
                    ts: from,
                    utid: row.utid,
                    score: None,
                });
            }
            return;
        }
        let mut note = |account: &mut Account, ts: i64, memory: &R::Memory| {
            let found = self.rule.score(memory, known.nice);
            if account.note(self.window, ts, found)
                && let Some(points) = &mut points
            {
                points.push(Point {
                    ts,
                    utid: row.utid,
                    score: Some(found),
                });
            }
        };
        if !account.told {
            note(account, from, memory);
        }
        // Of an endless run only so much can still change anything.
        let until = if doing == Activity::Running {
            to.min(from.saturating_add(self.rule.horizon()))
        } else {
            to
        };
        let part = Part {
            from,
            to: until,
            begin: row.ts,
            doing,
            by_thread: row.by_thread,
            nice: known.nice,
            closed: closes.then_some(row.closed),
        };
        self.rule
            .pass(memory, &part, &mut |ts, memory| note(account, ts, memory));
        let Account { tally, mark, .. } = account;
        tally.times[usize::from(tally.is_interactive)] += clipped(self.window, *mark, to);
        *mark = to;
        if doing == Activity::Running || doing.is_asleep() {
            *followed = followed.saturating_add(to - from);
            if *followed >= self.kept {
                tally.settled.get_or_insert(to);
            }
        }
        if closes && doing.is_asleep() {
            match row.closed {
                Closed::Seen | Closed::Exited => tally.n += 1,
                Closed::Window => tally.n_censored += 1,
                Closed::Lost => tally.n_excluded += 1,
            }
        }
    }

    /// `child` starts; its creator is running.
    fn fork(&mut self, at: i64, child: u32) {
        let parent = self.known[child as usize].parent;
        let Some(parent) = parent.filter(|p| (*p as usize) < self.lives.len() && *p != child)
        else {
            // There from the start of everything: nothing of it is hidden.
            self.lives[child as usize].account.tally.settled = Some(at);
            return;
        };
        let known = &self.known[parent as usize];
        let life = &mut self.lives[parent as usize];
        if let Some(start) = known.start
            && !life.account.tally.seen
            && start <= at
        {
            // Its first interval is not over yet.
            life.account.tally.seen = true;
            life.at = start;
        }
        if !known.scored || !life.account.tally.seen {
            return;
        }
        if !self.lives[parent as usize].gone && at > self.lives[parent as usize].at {
            let since = self.lives[parent as usize].at;
            let row = Interval {
                utid: parent,
                ts: since,
                dur: at - since,
                doing: Activity::Running,
                by_thread: false,
                closed: Closed::Seen,
            };
            self.advance(&row, at, false);
        }
        let mut heir = R::Memory::default();
        self.rule
            .fork(&mut self.lives[parent as usize].memory, &mut heir);
        self.lives[child as usize].memory = heir;
        if self.lives[parent as usize].account.tally.settled.is_some() {
            self.lives[child as usize].account.tally.settled = Some(at);
        }
        self.say(parent, at);
    }

    fn gone(&mut self, utid: u32, at: i64) {
        let life = &mut self.lives[utid as usize];
        if std::mem::replace(&mut life.gone, true) {
            return;
        }
        if std::mem::take(&mut life.account.told)
            && self.known[utid as usize].wanted
            && let Some(points) = &mut self.points
        {
            points.push(Point {
                ts: at,
                utid,
                score: None,
            });
        }
        let memory = life.memory.clone();
        let parent = self.known[utid as usize].parent;
        let Some(parent) = parent.filter(|p| (*p as usize) < self.lives.len() && *p != utid) else {
            return;
        };
        let life = &mut self.lives[parent as usize];
        if life.gone || !life.account.tally.seen || !self.known[parent as usize].scored {
            return;
        }
        if life.at >= at {
            self.child_gone(parent, at, &memory);
        } else {
            life.exits.push((at, memory));
        }
    }

    fn child_gone(&mut self, parent: u32, at: i64, child: &R::Memory) {
        self.rule
            .exit(child, &mut self.lives[parent as usize].memory);
        self.say(parent, at);
    }

    /// Takes note of a score that changed from outside.
    fn say(&mut self, utid: u32, at: i64) {
        let Life {
            memory, account, ..
        } = &mut self.lives[utid as usize];
        if !account.told {
            return;
        }
        let known = &self.known[utid as usize];
        let found = self.rule.score(memory, known.nice);
        let at = at.max(account.mark);
        if account.note(self.window, at, found)
            && known.wanted
            && let Some(points) = &mut self.points
        {
            points.push(Point {
                ts: at,
                utid,
                score: Some(found),
            });
        }
    }

    pub fn finish(self) -> (Vec<Tally>, Vec<Point>) {
        let tallies = self
            .lives
            .into_iter()
            .map(|life| life.account.tally)
            .collect();
        (tallies, self.points.unwrap_or_default())
    }
}

fn clipped(window: (i64, i64), from: i64, to: i64) -> i64 {
    (to.min(window.1) - from.max(window.0)).max(0)
}
