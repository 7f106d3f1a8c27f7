//! Jobs that a thread of a pool took while awake, which no call shows.
//!
//! Putting a job into a queue wakes one of the threads that sleep there, but a thread that is just
//! done with another may be the first to look, and the woken one finds nothing and sleeps again
//! (POSIX, rationale of pthread_cond_signal). And while no thread sleeps there a job is put without
//! a call. The recording then shows one long turn in place of two jobs: a replay in which others
//! are free would not divide it among them. Two things show such jobs:
//!
//! * a turn (from a return from the wait until the next) that took no more than a twentieth of the
//!   pool's median was futile: its job was taken by another between the wake and the look;
//! * a thread that puts one job each time it wakes, in at least 9 of 10 times that a thread sleeps
//!   at the queue, puts one when none does, too.
//!
//! Such a job is part of the turn that it leaves the longest pieces of, among those in progress. A
//! turn of several jobs is divided into equal parts, provided that each was there when its part
//! starts and no thread had found the queue empty since.
use rustc_hash::FxHashMap;

use super::cpu_clock::CpuClock;
use super::mutexes::FutexRow;
use super::queues::{Call, End, OTHERWISE, ROUNDS};
use super::{Extractor, median};
use crate::model::event::State;
use crate::model::tables::{Switch, Wakeup};
use crate::reconstruct::facts::Facts;

/// A turn was futile if it took no more than this part (1 in so many) of the pool's median.
const IN_VAIN: i64 = 20;

/// One job whose taking no call shows.
#[derive(Debug, Clone, Copy)]
struct Hidden {
    queue: u32,
    put: i64,
    /// By then it was taken.
    until: i64,
    by: By,
}

#[derive(Debug, Clone, Copy)]
enum By {
    /// Its wake, of this thread, was futile.
    Wake(u32),
    /// This thread put it without a call.
    Poster(u32),
}

/// What a thread of a pool did from its return from the wait until it waited again.
#[derive(Debug)]
struct Turn {
    queue: u32,
    from: i64,
    until: i64,
    /// CPU time that the thread had used at both.
    used: (i64, i64),
    /// It came back to the queue.
    looked: bool,
    /// It did something else than to run and to wait for mutexes.
    other: bool,
    /// When it was woken, and in which call.
    woken: Option<(i64, usize)>,
    /// The jobs found in it.
    hidden: Vec<usize>,
}

impl Turn {
    fn ran(&self) -> i64 {
        self.used.1 - self.used.0
    }
}

/// What a poster did from coming back out of a sleep until it slept again.
#[derive(Debug, Clone)]
struct Cycle {
    used: (i64, i64),
    from: i64,
    /// Its calls for the queue, and the CPU time used until each.
    calls: Vec<(usize, i64)>,
    /// Whether a thread slept at the queue at its start, and at its end.
    asleep: (bool, bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Waits(u32),
    Wakes(u32, usize),
}

#[derive(Debug, Default)]
struct Thread {
    clock: CpuClock,
    inside: Option<Inside>,
    in_futex: bool,
    /// Within its wait: when it was woken, and in which call.
    woken: Option<(i64, usize)>,
    turns: Vec<Turn>,
    /// The last of them goes on.
    at_work: bool,
    /// It puts jobs into this queue and into no other, and takes none.
    posts_to: Option<u32>,
    slept: bool,
    cycle: Option<Cycle>,
    cycles: Vec<Cycle>,
}

impl Thread {
    fn did_other(&mut self) {
        if self.at_work
            && let Some(turn) = self.turns.last_mut()
        {
            turn.other = true;
        }
    }

    fn end_turn(&mut self, ts: i64, looked: bool) {
        if std::mem::take(&mut self.at_work)
            && let Some(turn) = self.turns.last_mut()
        {
            (turn.until, turn.used.1, turn.looked) = (ts, self.clock.now(ts), looked);
        }
    }
}

#[derive(Default)]
struct Finder {
    threads: FxHashMap<u32, Thread>,
    /// By queue how many sleep there, and when threads found it empty.
    sleepers: Vec<i64>,
    empty: Vec<Vec<i64>>,
    /// How many threads each call woke.
    calls: Vec<usize>,
}

impl Finder {
    fn end(&mut self, end: &End) {
        let (ts, th) = (end.ts, self.threads.entry(end.utid).or_default());
        match end.call {
            Call::Waits(q) => {
                th.end_turn(ts, true);
                (th.inside, th.woken) = (Some(Inside::Waits(q)), None);
                self.sleepers[q as usize] += 1;
                self.empty[q as usize].push(ts);
            }
            Call::Wakes(q) => {
                let call = self.calls.len();
                self.calls.push(0);
                th.inside = Some(Inside::Wakes(q, call));
                let used = th.clock.now(ts);
                if let Some(cycle) = &mut th.cycle {
                    cycle.calls.push((call, used - cycle.used.0));
                }
            }
            Call::Returns => {
                let Some(Inside::Waits(queue)) = th.inside.take() else {
                    return;
                };
                let woken = th.woken.take();
                self.sleepers[queue as usize] -= i64::from(woken.is_none());
                let used = th.clock.now(ts);
                th.at_work = true;
                th.turns.push(Turn {
                    queue,
                    from: ts,
                    until: ts,
                    used: (used, used),
                    looked: false,
                    other: false,
                    woken,
                    hidden: Vec::new(),
                });
            }
            Call::Arrives(..) => th.did_other(),
            Call::Leaving | Call::Posts(..) | Call::Takes(..) => {}
        }
    }

    fn futex(&mut self, row: &FutexRow) {
        if let Some(th) = self.threads.get_mut(&row.utid) {
            th.in_futex = row.enters;
            if row.enters && !row.mutex && !row.leaving && th.inside.is_none() {
                th.did_other();
            }
        }
    }

    fn wake(&mut self, row: &Wakeup) {
        let Some(waker) = row.waker_utid.and_then(|u| self.threads.get_mut(&u)) else {
            return;
        };
        if !waker.in_futex {
            waker.did_other();
        }
        let Some(Inside::Wakes(q, call)) = waker.inside else {
            return;
        };
        if let Some(wakee) = self.threads.get_mut(&row.utid)
            && wakee.inside == Some(Inside::Waits(q))
            && wakee.woken.is_none()
        {
            wakee.woken = Some((row.ts, call));
            self.calls[call] += 1;
            self.sleepers[q as usize] -= 1;
        }
    }

    fn switch(&mut self, row: &Switch) {
        if let Some(th) = self.threads.get_mut(&row.prev_utid) {
            th.clock.leaves(row.ts);
            if row.prev_state == State::Dead {
                th.end_turn(row.ts, false);
                th.cycle = None;
            } else if row.prev_state != State::Runnable && !th.in_futex {
                th.did_other();
                th.slept = true;
                if let (Some(mut cycle), Some(q)) = (th.cycle.take(), th.posts_to) {
                    cycle.used.1 = th.clock.now(row.ts);
                    cycle.asleep.1 = self.sleepers[q as usize] > 0;
                    th.cycles.push(cycle);
                }
            }
        }
        if let Some(th) = self.threads.get_mut(&row.next_utid) {
            th.clock.comes(row.ts);
            if std::mem::take(&mut th.slept)
                && let Some(q) = th.posts_to
            {
                let used = th.clock.now(row.ts);
                let asleep = self.sleepers[q as usize] > 0;
                th.cycle = Some(Cycle {
                    used: (used, used),
                    from: row.ts,
                    calls: Vec::new(),
                    asleep: (asleep, asleep),
                });
            }
        }
    }

    /// Jobs whose wakes were futile, `least` being the shortest other turn by queue.
    fn in_vain(&self, least: &[i64]) -> Vec<Hidden> {
        let mut found = Vec::new();
        for (utid, th) in &self.threads {
            for turn in &th.turns {
                let Some((put, _)) = turn.woken.filter(|(_, call)| self.calls[*call] == 1) else {
                    continue;
                };
                if turn.looked && !turn.other && turn.ran() <= least[turn.queue as usize] {
                    found.push(Hidden {
                        queue: turn.queue,
                        put,
                        until: turn.from,
                        by: By::Wake(*utid),
                    });
                }
            }
        }
        found
    }

    /// Jobs that were put while no thread slept.
    fn unnoticed(&self) -> Vec<Hidden> {
        let mut found = Vec::new();
        for (utid, th) in &self.threads {
            let Some(queue) = th.posts_to else { continue };
            let posts = |c: &Cycle| match c.calls[..] {
                [(call, used)] if self.calls[call] <= 1 => Some(used),
                _ => None,
            };
            let seen = || th.cycles.iter().filter(|c| c.asleep.0);
            let until: Vec<i64> = seen().filter_map(posts).collect();
            let Some(usual) = median(&until) else {
                continue;
            };
            let (n, calls) = (seen().count(), |c: &Cycle| !c.calls.is_empty());
            if n < ROUNDS || (n - until.len()) * OTHERWISE > n {
                continue;
            }
            // From its first job to its signal to all of them to end.
            let ends = |c: &Cycle| c.calls.iter().any(|(call, _)| self.calls[*call] > 1);
            let first = th.cycles.iter().position(calls).unwrap_or(0);
            for cycle in th.cycles[first..].iter().take_while(|c| !ends(c)) {
                if calls(cycle) || cycle.asleep != (false, false) {
                    continue;
                }
                let length = cycle.used.1 - cycle.used.0;
                let put = th.clock.when_used(cycle.used.0 + usual.min(length));
                let put = put.max(cycle.from);
                let empty = &self.empty[queue as usize];
                let until = empty.get(empty.partition_point(|at| *at <= put));
                found.push(Hidden {
                    queue,
                    put,
                    until: until.copied().unwrap_or(i64::MAX),
                    by: By::Poster(*utid),
                });
            }
        }
        found
    }

    /// The turn that `job` was taken in: its thread, and which of its turns.
    fn taken_in(&self, job: &Hidden, members: &[u32], least: i64) -> Option<(u32, usize)> {
        let mut best = None;
        for utid in members {
            let th = &self.threads[utid];
            let first = th.turns.partition_point(|t| t.until <= job.put);
            let during = (first..th.turns.len()).take_while(|i| th.turns[*i].from < job.until);
            for i in during.filter(|i| th.turns[*i].queue == job.queue) {
                let turn = &th.turns[i];
                let (low, high) = bounds(&th.clock, turn, job);
                let piece = turn.ran() / (turn.hidden.len() as i64 + 2);
                let piece = piece.min(turn.used.1 - low);
                if low < high && piece > least && best.is_none_or(|(most, _)| piece > most) {
                    best = Some((piece, (*utid, i)));
                }
            }
        }
        best.map(|(_, at)| at)
    }
}

/// The CPU time that a thread had used when it took `job` in `turn`: no less and no more than.
fn bounds(clock: &CpuClock, turn: &Turn, job: &Hidden) -> (i64, i64) {
    let low = clock.used_at(job.put.max(turn.from));
    let high = clock.used_at(job.until.min(turn.until));
    (low.max(turn.used.0 + 1), high.min(turn.used.1 - 1))
}

impl Extractor {
    /// When and by which thread the jobs without a call were taken, and when those without a wake
    /// were put; `ends` are the calls for queues.
    pub(super) fn hidden_jobs(
        &mut self,
        facts: &Facts,
        rows: &[FutexRow],
        ends: &[End],
        end: i64,
    ) -> Vec<End> {
        let n = self.report.queues as usize;
        if n == 0 {
            return Vec::new();
        }
        let mut finder = self.turns(facts, rows, ends, end, n);
        let mut members: Vec<Vec<u32>> = vec![Vec::new(); n];
        let mut lengths: Vec<Vec<i64>> = vec![Vec::new(); n];
        for (utid, th) in &finder.threads {
            for turn in &th.turns {
                members[turn.queue as usize].push(*utid);
                if turn.looked {
                    lengths[turn.queue as usize].push(turn.ran());
                }
            }
        }
        for all in &mut members {
            all.sort_unstable();
            all.dedup();
        }
        let least: Vec<i64> = lengths
            .iter()
            .map(|all| median(all).unwrap_or(0) / IN_VAIN)
            .collect();
        let mut hidden = finder.in_vain(&least);
        hidden.extend(finder.unnoticed());
        hidden.sort_unstable_by_key(|h| (h.put, h.queue, h.until));
        let mut taken = Vec::new();
        for (i, job) in hidden.iter().enumerate() {
            let q = job.queue as usize;
            let Some((utid, turn)) = finder.taken_in(job, &members[q], least[q]) else {
                continue;
            };
            if let Some(th) = finder.threads.get_mut(&utid) {
                let found = &mut th.turns[turn].hidden;
                if found.is_empty() {
                    taken.push((utid, turn));
                }
                found.push(i);
            }
        }
        let mut made = Vec::new();
        for (utid, turn) in taken {
            let th = &finder.threads[&utid];
            let turn = &th.turns[turn];
            let mut before = turn.used.0;
            for (part, i) in (1..).zip(&turn.hidden) {
                let job = &hidden[*i];
                let (low, high) = bounds(&th.clock, turn, job);
                let parts = turn.hidden.len() as i64 + 1;
                let used = turn.used.0 + turn.ran() * part / parts;
                let used = used.min(high).max(low).max(before);
                before = used;
                let ts = th.clock.when_used(used).clamp(turn.from, turn.until);
                let token = self.hidden.len() as u32;
                self.hidden.push(0);
                let call = Call::Takes(job.queue, token);
                made.push(End { ts, utid, call });
                match job.by {
                    By::Wake(wakee) => {
                        self.in_vain.insert((wakee, job.put), token);
                    }
                    By::Poster(utid) => {
                        let call = Call::Posts(job.queue, token);
                        made.push(End {
                            ts: job.put,
                            utid,
                            call,
                        });
                    }
                }
            }
        }
        made
    }

    /// The turns of all threads of pools, and the cycles of those that put jobs.
    fn turns(
        &self,
        facts: &Facts,
        rows: &[FutexRow],
        ends: &[End],
        end: i64,
        queues: usize,
    ) -> Finder {
        let mut finder = Finder {
            sleepers: vec![0; queues],
            empty: vec![Vec::new(); queues],
            ..Finder::default()
        };
        let mut waits = rustc_hash::FxHashSet::default();
        let mut posts: FxHashMap<u32, Option<u32>> = FxHashMap::default();
        for e in ends {
            finder.threads.entry(e.utid).or_default();
            match e.call {
                Call::Waits(_) => {
                    waits.insert(e.utid);
                }
                Call::Wakes(q) => {
                    let to = posts.entry(e.utid).or_insert(Some(q));
                    *to = to.filter(|of| *of == q);
                }
                _ => {}
            }
        }
        for (utid, to) in posts {
            if !waits.contains(&utid) {
                finder.threads.entry(utid).or_default().posts_to = to;
            }
        }
        let (mut s, mut w, mut f, mut e) = (0, 0, 0, 0);
        loop {
            let at = [
                ends.get(e).map_or(i64::MAX, |r| r.ts),
                rows.get(f).map_or(i64::MAX, |r| r.ts),
                facts.wakeups.get(w).map_or(i64::MAX, |r| r.ts),
                facts.switches.get(s).map_or(i64::MAX, |r| r.ts),
            ];
            let next = at.iter().copied().min().unwrap_or(i64::MAX);
            if next == i64::MAX {
                break;
            }
            if at[0] == next {
                finder.end(&ends[e]);
                e += 1;
            } else if at[1] == next {
                finder.futex(&rows[f]);
                f += 1;
            } else if at[2] == next {
                if facts.wakeups[w].kind == self.first_kind {
                    finder.wake(&facts.wakeups[w]);
                }
                w += 1;
            } else {
                finder.switch(&facts.switches[s]);
                s += 1;
            }
        }
        for th in finder.threads.values_mut() {
            th.end_turn(end, false);
        }
        finder
    }
}

#[cfg(test)]
mod tests {
    use super::{By, Cycle, Finder, Hidden, Thread, Turn, bounds};

    fn turn(from: i64, until: i64, used: (i64, i64), woken: Option<(i64, usize)>) -> Turn {
        Turn {
            queue: 0,
            from,
            until,
            used,
            looked: true,
            other: false,
            woken,
            hidden: Vec::new(),
        }
    }

    /// Thread 5 runs from 0 to 100, thread 6 from 20 to 60; thread 7, woken at 30 in call 0, looks
    /// at 50 and sleeps again at 51.
    fn three() -> Finder {
        let mut finder = Finder::default();
        let stays = [(5, 0, 100), (6, 20, 60), (7, 50, 51)];
        for (utid, from, until) in stays {
            let mut th = Thread::default();
            th.clock.comes(from);
            th.clock.leaves(until);
            let woken = (utid == 7).then_some((30, 0));
            th.turns.push(turn(from, until, (0, until - from), woken));
            finder.threads.insert(utid, th);
        }
        finder.empty = vec![vec![51, 60, 100]];
        finder.calls = vec![1];
        finder
    }

    #[test]
    fn a_turn_of_next_to_nothing_was_in_vain_unless_its_call_woke_several() {
        let mut finder = three();
        let found = finder.in_vain(&[2]);
        let [
            Hidden {
                put: 30,
                until: 50,
                by: By::Wake(7),
                ..
            },
        ] = found[..]
        else {
            panic!("{found:?}");
        };
        assert!(finder.in_vain(&[0]).is_empty());
        finder.calls[0] = 2;
        assert!(finder.in_vain(&[2]).is_empty());
    }

    #[test]
    fn a_job_is_part_of_the_turn_with_the_longest_pieces() {
        let mut finder = three();
        let job = finder.in_vain(&[2])[0];
        // Halves of 50 or of 20.
        assert_eq!(finder.taken_in(&job, &[5, 6, 7], 2), Some((5, 0)));
        // It was put when thread 5 had used 30, and thread 7 looked when it had used 50.
        let five = &finder.threads[&5];
        assert_eq!(bounds(&five.clock, &five.turns[0], &job), (30, 50));
        // A sixth of 100 is shorter than half of 40.
        if let Some(th) = finder.threads.get_mut(&5) {
            th.turns[0].hidden = vec![8, 9, 10, 11];
        }
        assert_eq!(finder.taken_in(&job, &[5, 6, 7], 2), Some((6, 0)));
        assert_eq!(finder.taken_in(&job, &[5, 6, 7], 20), None);
        // After 100 no thread was awake.
        let late = Hidden { put: 101, ..job };
        assert_eq!(finder.taken_in(&late, &[5, 6, 7], 2), None);
    }

    /// A poster that wakes every 10 for 2 and calls after 1, `n` times, and then once without a
    /// call, with or without a thread sleeping at the queue.
    fn poster(n: usize, silent: usize, asleep: bool) -> usize {
        let mut finder = three();
        finder.calls = vec![1; n];
        let mut th = Thread {
            posts_to: Some(0),
            ..Thread::default()
        };
        for i in 0..n + silent {
            let (from, used) = (10 * i as i64, 2 * i as i64);
            th.clock.comes(from);
            th.clock.leaves(from + 2);
            th.cycles.push(Cycle {
                used: (used, used + 2),
                from,
                calls: if i < n { vec![(i, 1)] } else { Vec::new() },
                asleep: if i < n {
                    (true, true)
                } else {
                    (asleep, asleep)
                },
            });
        }
        finder.threads.insert(9, th);
        let found = finder.unnoticed();
        for (i, job) in found.iter().enumerate() {
            assert_eq!(job.put, 10 * (n + i) as i64 + 1);
        }
        found.len()
    }

    #[test]
    fn who_puts_a_job_each_time_it_wakes_puts_one_when_nobody_sleeps() {
        assert_eq!(poster(3, 2, false), 2);
        // Two are too few.
        assert_eq!(poster(2, 2, false), 0);
        // It did not while a thread slept: once in ten times is an exception, twice is not.
        assert_eq!(poster(9, 1, true), 0);
        assert_eq!(poster(8, 2, true), 0);
    }
}
