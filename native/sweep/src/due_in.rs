//! What was due to threads in stretches of time, of which there may be millions.
//!
//! They are handed in some at a time, in order of their ends as the waits of a trace are, and one
//! sweep answers all. Many of them began before the sweep hears of them: what was due up to then is
//! remembered of every thread, for the last time that it began to wait.
use arrow_array::{Int64Array, UInt32Array};

use super::changes::{Changes, Presence};
use super::due::SharingQuery;
use super::lag::{Accounts, Reader, swept};
use super::shortfall::Point;
use crate::error::{Error, Result};

/// Stretches of time of threads, column by column; ns on the trace's clock.
pub struct Stretches {
    pub utid: UInt32Array,
    pub ts: Int64Array,
    pub until: Int64Array,
}

/// Of each stretch what was due to the thread in it.
pub type Due = Vec<Option<f64>>;

/// Asks `more` for stretches, and hands it what was due in those that it gave last.
///
/// Their ends should come in order: nothing is known of a stretch whose end the sweep has passed
/// when it is handed in, nor of one whose start it has passed, unless the thread began to wait then
/// and has not done so again. Of those handed in first everything is known. `begin` is where the
/// window begins on the clock of the trace.
///
/// Takes 16 bytes for each stretch at hand beside their columns.
pub fn due_in(
    changes: &Changes,
    question: &SharingQuery,
    begin: i64,
    more: impl FnMut(Option<Due>) -> Result<Option<Stretches>>,
) -> Result<()> {
    let mut outcome = None;
    let reader = Asked {
        more,
        outcome: &mut outcome,
        begin,
        length: changes.length,
        next: i64::MIN,
        now: 0,
        stretches: None,
        begins: Instants::default(),
        ends: Instants::default(),
        due: Vec::new(),
        began: vec![NEVER; changes.threads],
    };
    let swept = swept(changes, question, reader).map(drop);
    outcome.unwrap_or(swept)
}

/// Instants in order of time.
struct Instants {
    /// Numbers of the stretches.
    order: Vec<u32>,
    done: usize,
    /// The next one.
    at: i64,
}

impl Default for Instants {
    fn default() -> Self {
        Self {
            order: Vec::new(),
            done: 0,
            at: i64::MAX,
        }
    }
}

impl Instants {
    fn new(mut order: Vec<u32>, time: impl Fn(u32) -> i64) -> Self {
        order.sort_by_key(|number| time(*number));
        let at = order.first().map_or(i64::MAX, |first| time(*first));
        Self { order, done: 0, at }
    }

    /// Goes on to the next one; the number of this one's stretch.
    fn pass(&mut self, time: impl Fn(u32) -> i64) -> u32 {
        let number = self.order[self.done];
        self.done += 1;
        self.at = match self.order.get(self.done) {
            Some(next) => time(*next),
            None => i64::MAX,
        };
        number
    }
}

/// When a thread began to wait, and what had been due to it by then.
#[derive(Clone, Copy)]
struct Began {
    t: i64,
    due: f64,
}

const NEVER: Began = Began {
    t: i64::MIN,
    due: 0.0,
};

struct Asked<'a, M> {
    more: M,
    /// Of `more`: that there is no more, or why there is not.
    outcome: &'a mut Option<Result<()>>,
    begin: i64,
    length: i64,
    /// When there is something to do next.
    next: i64,
    /// The latest instant at which anything changed or was asked.
    now: i64,
    /// Those at hand.
    stretches: Option<Stretches>,
    begins: Instants,
    ends: Instants,
    /// No number where nothing is known.
    due: Vec<f64>,
    /// By utid.
    began: Vec<Began>,
}

/// Since the start of the window, which is so long.
fn within(t: i64, begin: i64, length: i64) -> i64 {
    t.saturating_sub(begin).clamp(0, length)
}

impl<M: FnMut(Option<Due>) -> Result<Option<Stretches>>> Asked<'_, M> {
    fn answer(&mut self, t: i64, accounts: &mut Accounts<'_>) {
        // What an account has at an instant does not depend on who asks first.
        loop {
            let at = self.begins.at.min(self.ends.at);
            let Some(stretches) = self.stretches.as_ref().filter(|_| at < i64::MAX) else {
                self.go_on();
                if self.outcome.is_some() {
                    self.next = i64::MAX;
                    return;
                }
                continue;
            };
            if at > t {
                self.next = at;
                return;
            }
            let (ends, begin, length) = (at < self.begins.at, self.begin, self.length);
            let (instants, times) = if ends {
                (&mut self.ends, &stretches.until)
            } else {
                (&mut self.begins, &stretches.ts)
            };
            let number = instants.pass(|n| within(times.value(n as usize), begin, length)) as usize;
            let due = accounts.at(stretches.utid.value(number), at).due;
            self.due[number] += if ends { due } else { -due };
            self.now = at;
        }
    }

    /// Hands out what was due in the stretches at hand, and takes the next ones.
    fn go_on(&mut self) {
        let due = std::mem::take(&mut self.due);
        let known = |due: f64| Some(due).filter(|due| !due.is_nan());
        let found = self.stretches.take();
        let found = found.map(|_| due.into_iter().map(known).collect());
        match (self.more)(found).and_then(|more| more.map(|more| self.take(more)).transpose()) {
            Ok(Some(())) => {}
            Ok(None) => *self.outcome = Some(Ok(())),
            Err(error) => *self.outcome = Some(Err(error)),
        }
    }

    fn take(&mut self, stretches: Stretches) -> Result<()> {
        let count = u32::try_from(stretches.utid.len())
            .map_err(|_| Error::internal("more stretches of time than 32 bits can number"))?;
        let time = |times: &Int64Array, number: u32| {
            within(times.value(number as usize), self.begin, self.length)
        };
        let (mut begins, mut ends) = (Vec::new(), Vec::with_capacity(count as usize));
        self.due.reserve_exact(count as usize);
        for number in 0..count {
            let from = time(&stretches.ts, number);
            let ahead = from >= self.now;
            let due = if time(&stretches.until, number) < self.now {
                f64::NAN
            } else if ahead || from == 0 {
                0.0
            } else {
                self.due_before(stretches.utid.value(number as usize), from)
            };
            if !due.is_nan() {
                ends.push(number);
                if ahead {
                    begins.push(number);
                }
            }
            self.due.push(-due);
        }
        self.begins = Instants::new(begins, |number| time(&stretches.ts, number));
        self.ends = Instants::new(ends, |number| time(&stretches.until, number));
        self.stretches = Some(stretches);
        Ok(())
    }

    /// What had been due to the thread by then; no number if that is not known any more.
    fn due_before(&self, utid: u32, t: i64) -> f64 {
        match self.began.get(utid as usize) {
            Some(began) if began.t == t => began.due,
            Some(_) => f64::NAN,
            // It never did anything.
            None => 0.0,
        }
    }
}

impl<M: FnMut(Option<Due>) -> Result<Option<Stretches>>> Reader for Asked<'_, M> {
    #[inline]
    fn before(&mut self, t: i64, accounts: &mut Accounts<'_>) {
        if self.next <= t {
            self.answer(t, accounts);
        }
    }

    #[inline]
    fn change(&mut self, utid: u32, did: Presence, does: Presence, _: bool, account: &Point) {
        self.now = account.t;
        if does == Presence::Waiting && did != Presence::Waiting {
            let Point { t, due, .. } = *account;
            self.began[utid as usize] = Began { t, due };
        }
    }

    fn ended(&self) -> bool {
        self.outcome.is_some()
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};

    use super::*;
    use crate::columns::full;
    use crate::history::History;
    use crate::lag::sampled;
    use crate::random_states::{LENGTH, THREADS, random, world};
    use crate::states::RUNNABLE;
    use crate::store::Source;
    use crate::weights::Weights;

    /// Whose, from when, until when.
    type Stretch = (u32, i64, i64);

    fn history(seed: u32) -> History {
        let states = Source::Held("states", vec![world(seed).0]);
        let weights = Some(Weights::equal());
        History::read(&states, (10, LENGTH), 1, weights).expect("states")
    }

    fn question(read: &History, seed: u32) -> SharingQuery {
        SharingQuery {
            table: read.weights().expect("weights").table,
            classes: 3,
            machine: seed.is_multiple_of(2),
            capacity: Some(3).filter(|_| seed.is_multiple_of(2)),
            by_cpu: false,
            groups: None,
            fair: 0,
            quotas: None,
        }
    }

    /// What was due in them, asked so many at a time.
    fn due(read: &History, seed: u32, asked: &[Stretch], some: usize) -> Due {
        let (mut chunks, mut found) = (asked.chunks(some), Vec::new());
        due_in(&read.changes, &question(read, seed), read.begin, |due| {
            found.extend(due.into_iter().flatten());
            Ok(chunks.next().map(|some| Stretches {
                utid: some.iter().map(|one| one.0).collect(),
                ts: some.iter().map(|one| one.1).collect(),
                until: some.iter().map(|one| one.2).collect(),
            }))
        })
        .expect("changes");
        found
    }

    #[test]
    fn what_was_due_in_a_stretch_is_what_the_account_gained_whoever_else_is_asked_for() {
        let mut gained = 0;
        for seed in 0..60 {
            let read = history(seed);
            let mut random = random(seed);
            // Some begin before the window, some end after it, and some are no longer than nothing.
            let asked: Vec<Stretch> = (0..40)
                .map(|_| {
                    let ts = i64::from(random(LENGTH as u32));
                    (1 + random(THREADS), ts, ts + i64::from(random(60)))
                })
                .collect();
            let together = due(&read, seed, &asked, asked.len());
            let mut reversed = asked.clone();
            reversed.reverse();
            let mut backwards = due(&read, seed, &reversed, asked.len());
            backwards.reverse();
            assert_eq!(backwards, together, "seed {seed}");
            let within = |t: i64| within(t, read.begin, read.changes.length);
            for ((utid, ts, until), due) in asked.iter().zip(together) {
                let chosen: Vec<bool> = (0..=THREADS).map(|one| one == *utid).collect();
                let instants = [within(*ts), within(*until)];
                let (_, accounts) =
                    sampled(&read.changes, &question(&read, seed), &chosen, &instants, 2)
                        .expect("changes");
                let account = &accounts[*utid as usize];
                let expected = account.get(1).map_or(0.0, |end| end.due - account[0].due);
                let due = due.expect("all were handed in first");
                assert!(
                    (due - expected).abs() < 1e-6,
                    "seed {seed}: {due} {expected}"
                );
                gained += usize::from(due > 0.0);
            }
        }
        assert!(gained > 1000, "{gained}");
    }

    #[test]
    fn waits_in_order_of_their_ends_may_be_asked_for_some_at_a_time() {
        let mut waits = 0;
        for seed in 0..60 {
            let read = history(seed);
            let asked = waits_of(seed);
            let together = due(&read, seed, &asked, asked.len());
            for some in [1, 2, 7, 30] {
                let parts = due(&read, seed, &asked, some);
                // To the last bit.
                assert_eq!(parts, together, "seed {seed}, {some} at a time");
            }
            waits += asked.len();
        }
        assert!(waits > 3000, "{waits}");
    }

    /// Whenever a thread began to wait, until it did so no more.
    fn waits_of(seed: u32) -> Vec<Stretch> {
        let states = world(seed).0;
        let (utid, state) = (
            full::<UInt32Type>(&states, "utid").expect("utid"),
            full::<UInt8Type>(&states, "state").expect("state"),
        );
        let (ts, dur) = (
            full::<Int64Type>(&states, "ts").expect("ts"),
            full::<Int64Type>(&states, "dur").expect("dur"),
        );
        let mut found: Vec<Stretch> = Vec::new();
        for row in (0..utid.len()).filter(|row| state[*row] == RUNNABLE) {
            let (who, end) = (utid[row], ts[row] + dur[row]);
            match found.iter_mut().rev().find(|one| one.0 == who) {
                Some(last) if last.2 == ts[row] => last.2 = end,
                _ => found.push((who, ts[row], end)),
            }
        }
        found.sort_by_key(|one| one.2);
        found
    }

    #[test]
    fn nothing_is_known_of_what_the_sweep_has_passed() {
        let read = history(1);
        let (utid, ts, until) = waits_of(1)[40];
        let before = (utid, ts - 3, until);
        let found = due(&read, 1, &[(1, 20, until - 1), before, (1, 5, 8)], 1);
        assert!(found[0].is_some());
        assert_eq!(found[1..], [None, None]);
    }

    #[test]
    fn a_sweep_ends_when_nobody_asks_or_asking_fails() {
        let read = history(1);
        let mut times = 0;
        let failed = due_in(&read.changes, &question(&read, 1), read.begin, |_| {
            times += 1;
            Err(Error::internal("no more"))
        });
        assert_eq!(
            (failed.expect_err("an error").to_string(), times),
            ("no more".into(), 1)
        );
    }
}
