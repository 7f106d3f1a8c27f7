//! What was due to each thread and what it received, up to any instant.
use super::changes::{Changes, Position, Presence, Sweep};
use super::due::{Set, SharingQuery};
use super::group_shares::Grouped;
use super::quotas;
use super::shortfall::{Path, Point, Shortfall};
use super::weights::{class_of, level_of};
use crate::error::Result;

/// Whether and how a thread competes, and its account up to then: less than a line of the
/// processor's cache.
#[derive(Clone, Copy)]
struct Thread {
    account: Point,
    /// What its set had given to a weight of its level.
    given: (f64, f64),
    /// `NO_SET` while it does not compete.
    set: u32,
    level: u8,
    runs: bool,
}

const NO_SET: u32 = u32::MAX;

const AWAY: Thread = Thread {
    account: Point {
        t: 0,
        due: 0.0,
        received: 0,
    },
    given: (0.0, 0.0),
    set: NO_SET,
    level: 0,
    runs: false,
};

/// Hears of threads' accounts, in order of time.
pub(super) trait Reader {
    /// The account at the instants up to `t` is needed now: no thread has come or gone since the
    /// last change.
    fn before(&mut self, _t: i64, _accounts: &mut Accounts<'_>) {}
    /// A thread does something else from the instant of its account on; it is a `turn` if it began
    /// or ended to compete, or goes on with it otherwise.
    fn change(
        &mut self,
        _utid: u32,
        _did: Presence,
        _does: Presence,
        _turn: bool,
        _account: &Point,
    ) {
    }
    /// Whether it needs no more of them.
    fn ended(&self) -> bool {
        false
    }
}

pub(super) struct Accounts<'a> {
    question: &'a SharingQuery,
    sets: Vec<Set>,
    threads: Vec<Thread>,
    /// Where groups share: a queue for each set.
    grouped: Option<Grouped<'a>>,
}

impl Accounts<'_> {
    /// The thread's account at `t`.
    pub(super) fn at(&mut self, utid: u32, t: i64) -> Point {
        let Some(thread) = self.threads.get_mut(utid as usize) else {
            return Point::default();
        };
        let Point {
            t: since,
            mut due,
            mut received,
        } = thread.account;
        if let Some(set) = self.sets.get_mut(thread.set as usize) {
            let level = usize::from(thread.level);
            let table = &self.question.table;
            let number = thread.set as usize;
            let giving = set.giving(self.question);
            set.advance(t, self.question);
            let now = match &mut self.grouped {
                Some(grouped) => (grouped.due(number, t, giving, utid, table[level]), 0.0),
                None => set.due(level, table),
            };
            due += (now.0 - thread.given.0) + (now.1 - thread.given.1);
            received += if thread.runs { t - since } else { 0 };
            thread.given = now;
        }
        // Not read again from where it was just written: the processor would wait for it.
        let account = Point { t, due, received };
        thread.account = account;
        account
    }

    /// From `t` on the thread is `there`; whether it competed before, or does now.
    fn place(&mut self, utid: u32, t: i64, there: Position) -> bool {
        let table = &self.question.table;
        let thread = &mut self.threads[utid as usize];
        let (level, runs) = (level_of(there.tag), there.doing == Presence::Running);
        let before = thread.set;
        let after = self.question.set(there).map_or(NO_SET, |set| set as u32);
        let old = usize::from(thread.level);
        if before == after && old == level {
            if let Some(set) = self.sets.get_mut(after as usize) {
                set.turn(thread.runs, runs);
                thread.runs = runs;
                if let Some(grouped) = &mut self.grouped {
                    grouped.divide(after as usize);
                }
            }
            return after != NO_SET;
        }
        if let Some(set) = self.sets.get_mut(before as usize) {
            set.remove(old, thread.runs, table);
            if let Some(grouped) = &mut self.grouped {
                grouped.leave(before as usize, utid, table[old]);
            }
        }
        thread.set = after;
        if let Some(set) = self.sets.get_mut(after as usize) {
            let number = after as usize;
            if let Some(grouped) = &mut self.grouped {
                let giving = set.giving(self.question);
                grouped.due(number, t, giving, utid, table[level]);
                let fair = class_of(there.tag) == self.question.fair;
                grouped.enter(number, utid, table[level], fair);
            }
            set.advance(t, self.question);
            (thread.level, thread.runs) = (level as u8, runs);
            set.add(level, runs, table);
            thread.given = match &mut self.grouped {
                // Nothing was given since it was asked above.
                Some(grouped) => (grouped.due(number, t, 0, utid, table[level]), 0.0),
                None => set.due(level, table),
            };
        }
        if let (Some(grouped), Some(_)) = (&mut self.grouped, self.sets.get(before as usize)) {
            // Its group has the thread's weight elsewhere by now.
            grouped.divide(before as usize);
        }
        before != NO_SET || after != NO_SET
    }
}

struct Lags<'a, R> {
    accounts: Accounts<'a>,
    reader: R,
}

impl<R: Reader> Sweep for Lags<'_, R> {
    fn change(&mut self, t: i64, utid: u32, from: Position, to: Position) {
        let Self { accounts, reader } = self;
        reader.before(t, accounts);
        let account = accounts.at(utid, t);
        let turn = accounts.place(utid, t, to);
        reader.change(utid, from.doing, to.doing, turn, &account);
    }

    fn idle(&mut self, _: i64, _: u16, _: bool) {}

    fn instant(&mut self, _: i64) {}

    fn ended(&self) -> bool {
        self.reader.ended()
    }
}

pub(super) fn swept<R: Reader>(changes: &Changes, question: &SharingQuery, reader: R) -> Result<R> {
    let count = question.sets(changes);
    let mut sweep = Lags {
        accounts: Accounts {
            question,
            sets: (0..count).map(|_| Set::default()).collect(),
            grouped: question.grouped(count, changes.threads),
            threads: vec![AWAY; changes.threads],
        },
        reader,
    };
    quotas::tell(question.quotas.as_ref(), changes, &mut sweep)?;
    let Lags {
        mut accounts,
        mut reader,
    } = sweep;
    reader.before(changes.length, &mut accounts);
    Ok(reader)
}

/// Each turn of the `chosen` threads, by thread.
pub fn turns(
    changes: &Changes,
    question: &SharingQuery,
    chosen: &[bool],
) -> Result<Vec<Vec<Point>>> {
    struct Turns<'a> {
        chosen: &'a [bool],
        of: Vec<Vec<Point>>,
    }
    impl Reader for Turns<'_> {
        fn change(&mut self, utid: u32, _: Presence, _: Presence, turn: bool, account: &Point) {
            if turn && self.chosen.get(utid as usize) == Some(&true) {
                self.of[utid as usize].push(*account);
            }
        }
    }
    let of = vec![Vec::new(); changes.threads];
    Ok(swept(changes, question, Turns { chosen, of })?.of)
}

/// The accounts of the `chosen` threads that ever compete at each of the `instants`, in order of
/// time, by thread; how many threads those are, and none of them if there are `most` or more
/// accounts.
pub fn sampled(
    changes: &Changes,
    question: &SharingQuery,
    chosen: &[bool],
    instants: &[i64],
    most: usize,
) -> Result<(usize, Vec<Vec<Point>>)> {
    struct Samples<'a> {
        chosen: &'a [bool],
        instants: &'a [i64],
        most: usize,
        next: usize,
        /// Threads that have competed.
        seen: Vec<u32>,
        of: Vec<Vec<Point>>,
    }
    impl Samples<'_> {
        fn too_many(&self) -> bool {
            self.seen.len().saturating_mul(self.instants.len()) > self.most
        }
    }
    impl Reader for Samples<'_> {
        fn before(&mut self, t: i64, accounts: &mut Accounts<'_>) {
            while let Some(at) = self.instants.get(self.next).filter(|at| **at <= t) {
                if !self.too_many() {
                    for utid in &self.seen {
                        self.of[*utid as usize][self.next] = accounts.at(*utid, *at);
                    }
                }
                self.next += 1;
            }
        }

        fn change(&mut self, utid: u32, _: Presence, _: Presence, turn: bool, _: &Point) {
            let who = utid as usize;
            if turn && self.chosen.get(who) == Some(&true) && self.of[who].is_empty() {
                self.seen.push(utid);
                // Nothing was due before.
                let none = self.instants.iter().map(|t| Point {
                    t: *t,
                    ..Point::default()
                });
                self.of[who] = if self.too_many() {
                    vec![Point::default()]
                } else {
                    none.collect()
                };
            }
        }
    }
    let reader = Samples {
        chosen,
        instants,
        most,
        next: 0,
        seen: Vec::new(),
        of: vec![Vec::new(); changes.threads],
    };
    let found = swept(changes, question, reader)?;
    let of = if found.too_many() {
        Vec::new()
    } else {
        found.of
    };
    Ok((found.seen.len(), of))
}

/// Windows in which the service of the `chosen` threads fell short of what was due by `bound` and
/// more.
pub fn shortfalls(
    changes: &Changes,
    question: &SharingQuery,
    chosen: &[bool],
    bound: f64,
) -> Result<Vec<Shortfall>> {
    struct Shortfalls<'a> {
        chosen: &'a [bool],
        bound: f64,
        paths: Vec<Path>,
        found: Vec<Shortfall>,
    }
    impl Reader for Shortfalls<'_> {
        fn change(&mut self, utid: u32, did: Presence, _: Presence, turn: bool, account: &Point) {
            let who = utid as usize;
            if self.chosen.get(who) != Some(&true) {
                return;
            }
            let path = &mut self.paths[who];
            path.pass(account.t, did == Presence::Waiting);
            if turn {
                let found = path.point(account, self.bound);
                self.found
                    .extend(found.map(|found| Shortfall { utid, ..found }));
            }
        }
    }
    let reader = Shortfalls {
        chosen,
        bound,
        paths: vec![Path::default(); changes.threads],
        found: Vec::new(),
    };
    let Shortfalls {
        paths, mut found, ..
    } = swept(changes, question, reader)?;
    for (utid, path) in (0..).zip(paths) {
        found.extend(path.last(bound).map(|found| Shortfall { utid, ..found }));
    }
    Ok(found)
}
