//! Which thread held which mutex, and when, as far as futex calls show it.
//!
//! A mutex in user space makes no call while it is uncontended. A thread that finds it held calls
//! futex-wait, again and again until it gets it; from then on its word marks possible waiters, so
//! that its release is a call as well: between the last return of the one call and the other lies
//! what it held. A thread that took it without a call, and was then waited for, releases it with a
//! call, too. When it took it is not recorded: it is set so long before as the thread usually holds
//! it (the median of its other holds, of those of all threads where it has fewer than `ENOUGH`),
//! but no later than the first that found it held, and no earlier than the thread's last sleep, the
//! last call for this mutex, or its last release. What was taken and released without any call:
//! `free_takes`.
use rustc_hash::FxHashMap;

use super::super::load::op;
use super::charges::UNPAID;
use super::cpu_clock::CpuClock;
use super::free_takes::{Life, Loss, of_mutex};
use super::holds::{ENOUGH, Hold, NEVER};
use super::pipes::CallRow;
use super::{Extractor, NOBODY, Now, ThreadOut, flush, median, push};
use crate::error::Result;
use crate::model::event::State;
use crate::model::tables::{Switch, Wakeup};
use crate::reconstruct::facts::{Facts, TableIn};

/// One end of a futex call on the word of a mutex, in time order.
#[derive(Debug, Clone, Copy)]
pub struct FutexRow {
    pub ts: i64,
    pub utid: u32,
    /// Threads of one process share its addresses.
    pub process: u32,
    pub enters: bool,
    /// On entry: it waits, and does not wake.
    pub waits: bool,
    pub address: i64,
    /// The word is a mutex.
    pub mutex: bool,
    /// Threads of one service have one number: their names differ in digits only.
    pub service: u32,
    /// The word counts those that have not left a condition yet (`conditions`).
    pub leaving: bool,
}

/// The ends of calls out of the table `futexes`.
pub(super) fn rows_of(table: &TableIn) -> Result<Vec<FutexRow>> {
    if table.rows() == 0 {
        return Ok(Vec::new());
    }
    let (utid, process) = (table.whole("utid")?, table.whole("process")?);
    let (enters, waits) = (table.whole("enters")?, table.whole("waits")?);
    let (address, mutex) = (table.whole("address")?, table.whole("mutex")?);
    let service = table.whole("service")?;
    let rows = table.whole("ts")?.into_iter().enumerate();
    Ok(rows
        .map(|(i, ts)| FutexRow {
            ts,
            utid: utid[i] as u32,
            process: process[i] as u32,
            enters: enters[i] != 0,
            waits: waits[i] != 0,
            address: address[i],
            mutex: mutex[i] != 0,
            service: service[i] as u32,
            leaving: false,
        })
        .collect())
}

/// A mutex is left out if more than this part (1 in so many) of its holds contain a wait for
/// another thread, or cannot be placed: then it is not what the rules here take it for.
const STRANGE: usize = 20;

/// A moment of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Moment {
    Wanted,
    Got,
    Released,
}

/// What the main pass knows of a thread and its mutexes.
#[derive(Debug, Clone, Default)]
pub(super) struct Locking {
    wanting: Option<Wanting>,
    held: Vec<u32>,
    released: Option<Released>,
}

/// The thread has called for a mutex, in this step.
#[derive(Debug, Clone, Copy)]
struct Wanting {
    mutex: u32,
    step: u32,
    /// CPU time used since, up to its last sleep, and how often it slept.
    spent: i64,
    slept: i64,
}

/// The mutex that it last released, in this step, and when it was back from that call.
#[derive(Debug, Clone, Copy)]
struct Released {
    mutex: u32,
    step: u32,
    back: i64,
}

#[derive(Debug, Clone, Copy)]
struct Attempt {
    mutex: u32,
    wanted: i64,
    /// When it came back from its last call; `NEVER` inside one.
    got: i64,
    /// CPU time used by then.
    used: i64,
    /// It waited for another thread since.
    strange: bool,
}

#[derive(Debug, Default)]
struct Thread {
    inside: Option<(u32, bool)>,
    attempts: Vec<Attempt>,
    clock: CpuClock,
    woken: bool,
    /// It waits in a call for others to leave a condition, which it may do with a mutex.
    leaving: bool,
    /// Since when nothing is known that a hold cannot contain.
    floor: i64,
    /// It is in a futex call; CPU time used when it was back from its last one for a mutex.
    calls: bool,
    returned: i64,
    /// The threads it woke since it last came onto a CPU.
    woke: Vec<u32>,
    losing: Option<Loss>,
    lost: Vec<Loss>,
    /// When it called, or woke another thread.
    acts: Vec<i64>,
}

/// A release whose beginning is not known.
struct Guess {
    hold: Hold,
    used: i64,
    floor: i64,
    bound: i64,
}

#[derive(Default)]
struct Finder {
    numbers: FxHashMap<(u32, i64), u32>,
    threads: FxHashMap<u32, Thread>,
    /// By mutex, when a thread first found it held since its last release, and that release.
    found_held: Vec<Option<i64>>,
    last_release: Vec<i64>,
    holds: Vec<Hold>,
    guesses: Vec<Guess>,
    /// CPU time of holds whose beginning is known, by mutex and thread.
    lengths: FxHashMap<(u32, u32), Vec<i64>>,
    strange: Vec<usize>,
    /// Releases that the main pass sees: their holds get the end of the call.
    releasing: FxHashMap<u32, (bool, usize)>,
}

impl Finder {
    fn mutex(&mut self, row: &FutexRow) -> u32 {
        let next = self.numbers.len() as u32;
        let number = *self
            .numbers
            .entry((row.process, row.address))
            .or_insert(next);
        if number == next {
            self.found_held.push(None);
            self.last_release.push(i64::MIN);
            self.strange.push(0);
        }
        number
    }

    fn futex(&mut self, row: &FutexRow) {
        if let Some(th) = self.threads.get_mut(&row.utid) {
            th.calls = row.enters;
            th.leaving = row.enters && row.leaving && row.waits;
            th.acts.push(row.ts);
        }
        if !row.enters {
            self.returns(row);
            return;
        }
        if !row.mutex {
            return;
        }
        let m = self.mutex(row);
        let th = self.threads.entry(row.utid).or_default();
        th.inside = Some((m, row.waits));
        let at = th.attempts.iter().position(|a| a.mutex == m);
        if row.waits {
            match at {
                Some(at) => th.attempts[at].got = NEVER,
                None => th.attempts.push(Attempt {
                    mutex: m,
                    wanted: row.ts,
                    got: NEVER,
                    used: 0,
                    strange: false,
                }),
            }
            self.found_held[m as usize].get_or_insert(row.ts);
            return;
        }
        let used = th.clock.now(row.ts);
        let mut hold = Hold {
            utid: row.utid,
            mutex: m,
            wanted: row.ts,
            got: row.ts,
            released: row.ts,
            back: NEVER,
        };
        let known = at.map(|at| th.attempts.swap_remove(at));
        let floor = th.floor.max(self.last_release[m as usize]);
        match known {
            Some(attempt) if attempt.got != NEVER => {
                (hold.wanted, hold.got) = (attempt.wanted, attempt.got);
                if attempt.strange {
                    self.strange[m as usize] += 1;
                } else {
                    let held = used - attempt.used;
                    self.lengths.entry((m, row.utid)).or_default().push(held);
                    self.releasing.insert(row.utid, (true, self.holds.len()));
                    self.holds.push(hold);
                }
            }
            _ => {
                let bound = self.found_held[m as usize].unwrap_or(row.ts);
                self.releasing.insert(row.utid, (false, self.guesses.len()));
                self.guesses.push(Guess {
                    hold,
                    used,
                    floor,
                    bound,
                });
            }
        }
        th.floor = row.ts;
        self.found_held[m as usize] = None;
        self.last_release[m as usize] = row.ts;
    }

    fn returns(&mut self, row: &FutexRow) {
        let Some(th) = self.threads.get_mut(&row.utid) else {
            return;
        };
        th.returned = th.clock.now(row.ts);
        match th.inside.take() {
            Some((m, true)) => {
                let used = th.clock.now(row.ts);
                if let Some(attempt) = th.attempts.iter_mut().find(|a| a.mutex == m) {
                    (attempt.got, attempt.used) = (row.ts, used);
                }
                th.floor = row.ts;
            }
            Some((_, false)) => match self.releasing.remove(&row.utid) {
                Some((true, i)) => self.holds[i].back = row.ts,
                Some((false, i)) => self.guesses[i].hold.back = row.ts,
                None => {}
            },
            None => {}
        }
    }

    fn switch(&mut self, row: &Switch) {
        if let Some(th) = self.threads.get_mut(&row.prev_utid) {
            th.clock.leaves(row.ts);
            if row.prev_state != State::Runnable {
                th.woken |= !th.leaving;
            } else if !th.calls && !th.woke.contains(&row.next_utid) {
                th.losing = Some(Loss {
                    left: row.ts,
                    back: NEVER,
                    ran: th.clock.now(row.ts) - th.returned,
                });
            }
        }
        if let Some(th) = self.threads.get_mut(&row.next_utid) {
            th.clock.comes(row.ts);
            th.woke.clear();
            if std::mem::take(&mut th.woken) {
                th.floor = row.ts;
            }
            if let Some(loss) = th.losing.take() {
                let back = row.ts;
                th.lost.push(Loss { back, ..loss });
            }
        }
    }

    fn wake(&mut self, row: &Wakeup, ncpu: u32) {
        if let Some(waker) = row.waker_utid.and_then(|w| self.threads.get_mut(&w)) {
            waker.acts.push(row.ts);
            waker.woke.push(row.utid);
        }
        let Some(th) = self.threads.get_mut(&row.utid) else {
            return;
        };
        if th.inside.is_some() || th.leaving || row.waker_utid.is_none_or(|w| w < ncpu) {
            return;
        }
        for attempt in th.attempts.iter_mut().filter(|a| a.got != NEVER) {
            attempt.strange = true;
        }
    }

    fn acts(&mut self, utid: u32, ts: i64) {
        if let Some(th) = self.threads.get_mut(&utid) {
            th.acts.push(ts);
        }
    }

    /// Adds the holds that no call shows to those of the `sound` mutexes.
    fn add_unnoticed(
        &self,
        holds: &mut Vec<Hold>,
        lengths: &FxHashMap<u32, Vec<i64>>,
        sound: impl Fn(u32) -> bool,
        end: i64,
    ) {
        let lives: FxHashMap<u32, Life> = self
            .threads
            .iter()
            .map(|(utid, th)| {
                let (clock, lost, acts) = (&th.clock, &th.lost[..], &th.acts[..]);
                (*utid, Life { clock, lost, acts })
            })
            .collect();
        for mutex in (0..self.numbers.len() as u32).filter(|m| sound(*m)) {
            let lengths = lengths.get(&mutex).map_or(&[][..], |all| &all[..]);
            let more = of_mutex(mutex, holds, lengths, &lives, end);
            holds.extend(more);
        }
    }

    /// When a hold began whose beginning is not recorded; none if there is no such moment.
    fn began(&self, guess: &Guess, usual: &FxHashMap<u32, i64>) -> Option<i64> {
        let Guess { hold, bound, .. } = guess;
        let own = self.lengths.get(&(hold.mutex, hold.utid));
        let own = own
            .filter(|all| all.len() >= ENOUGH)
            .and_then(|all| median(all));
        let usual = own.or_else(|| usual.get(&hold.mutex).copied()).unwrap_or(0);
        let floor = guess.floor;
        let at = self.threads[&hold.utid].clock.when_used(guess.used - usual);
        (floor <= *bound).then(|| at.max(floor).min(*bound))
    }

    /// All known holds, and the numbers of mutexes found and left out.
    fn finish(mut self, end: i64) -> (Vec<Hold>, u64, u64) {
        let mut by_mutex: FxHashMap<u32, Vec<i64>> = FxHashMap::default();
        for ((mutex, _), lengths) in &self.lengths {
            by_mutex.entry(*mutex).or_default().extend(lengths);
        }
        let usual: FxHashMap<u32, i64> = by_mutex
            .iter()
            .filter_map(|(mutex, lengths)| Some((*mutex, median(lengths)?)))
            .collect();
        let mut placed = Vec::with_capacity(self.guesses.len());
        for guess in &self.guesses {
            match self.began(guess, &usual) {
                Some(at) => placed.push(Hold {
                    wanted: at,
                    got: at,
                    ..guess.hold
                }),
                None => self.strange[guess.hold.mutex as usize] += 1,
            }
        }
        self.holds.extend(placed);
        // Wanted, or held, to the end of the window.
        for (utid, th) in &self.threads {
            for a in th.attempts.iter().filter(|a| !a.strange) {
                self.holds.push(Hold {
                    utid: *utid,
                    mutex: a.mutex,
                    wanted: a.wanted,
                    got: a.got,
                    released: NEVER,
                    back: NEVER,
                });
            }
        }
        let n = self.numbers.len();
        let mut told = vec![0usize; n];
        self.holds.iter().for_each(|h| told[h.mutex as usize] += 1);
        let sound = |m: usize| told[m] > 0 && self.strange[m] * STRANGE <= told[m];
        let mut holds = std::mem::take(&mut self.holds);
        self.add_unnoticed(&mut holds, &by_mutex, |m| sound(m as usize), end);
        let mut number = vec![NOBODY; n];
        let mut next = 0;
        for (_, new) in number.iter_mut().enumerate().filter(|(m, _)| sound(*m)) {
            *new = next;
            next += 1;
        }
        holds.retain_mut(|h| {
            h.mutex = number[h.mutex as usize];
            h.mutex != NOBODY
        });
        (holds, u64::from(next), n as u64 - u64::from(next))
    }
}

impl Extractor {
    /// The holds of mutexes, and their moments in time order.
    pub(super) fn find_mutexes(
        &mut self,
        facts: &Facts,
        rows: &[FutexRow],
        calls: &[CallRow],
        end: i64,
    ) -> Vec<(i64, u32, Moment)> {
        if !rows.iter().any(|row| row.mutex) {
            return Vec::new();
        }
        let mut finder = Finder::default();
        let of_mutexes = || rows.iter().filter(|row| row.mutex || !row.enters);
        for row in of_mutexes() {
            finder.threads.entry(row.utid).or_default();
        }
        let (mut s, mut w) = (0, 0);
        let wakeups: Vec<&Wakeup> = facts
            .wakeups
            .iter()
            .filter(|r| r.kind == self.first_kind)
            .collect();
        let rest = |finder: &mut Finder, until: i64, s: &mut usize, w: &mut usize| loop {
            let switch = facts.switches.get(*s).filter(|r| r.ts <= until);
            let wake = wakeups.get(*w).filter(|r| r.ts <= until);
            match (switch, wake) {
                (Some(a), Some(b)) if b.ts < a.ts => {
                    finder.wake(b, self.ncpu);
                    *w += 1;
                }
                (Some(a), _) => {
                    finder.switch(a);
                    *s += 1;
                }
                (None, Some(b)) => {
                    finder.wake(b, self.ncpu);
                    *w += 1;
                }
                (None, None) => return,
            }
        };
        for row in rows {
            // A thread is on its CPU at both ends of a call.
            rest(&mut finder, row.ts, &mut s, &mut w);
            finder.futex(row);
        }
        rest(&mut finder, i64::MAX, &mut s, &mut w);
        calls.iter().for_each(|row| finder.acts(row.utid, row.ts));
        for th in finder.threads.values_mut() {
            th.acts.sort_unstable();
        }
        let (mut holds, mutexes, left_out) = finder.finish(end);
        holds.retain(|h| self.counts(h.utid));
        self.report.mutexes = mutexes;
        self.report.mutexes_left_out = left_out;
        let unnoticed = holds.iter().filter(|h| h.made_no_call()).count() as u64;
        self.report.holds_unnoticed = unnoticed;
        self.report.holds = holds.len() as u64 - unnoticed;
        let slept = holds.iter().filter(|h| h.wanted < h.got);
        self.report.holds_waited_for = slept.count() as u64;
        let mut moments: Vec<(i64, u32, Moment)> = (0u32..)
            .zip(&holds)
            .flat_map(|(i, h)| {
                [
                    (h.wanted, i, Moment::Wanted),
                    (h.got, i, Moment::Got),
                    (h.released, i, Moment::Released),
                ]
            })
            .filter(|(at, ..)| *at != NEVER)
            .collect();
        // Of one thread's holds the earlier ends before the next begins.
        moments.sort_unstable_by_key(|(at, i, what)| (*at, holds[*i as usize].got, *what));
        self.holds = holds;
        moments
    }

    /// A thread wants, gets or releases a mutex.
    pub(super) fn hold(&mut self, ts: i64, hold: u32, what: Moment) {
        let h = self.holds[hold as usize];
        let t = self.thread(h.utid);
        match what {
            Moment::Wanted => {
                self.progress(t, ts);
                let th = &mut self.threads[t as usize];
                push(th, op::LOCK, h.mutex, UNPAID, 0, false);
                th.locking.wanting = Some(Wanting {
                    mutex: h.mutex,
                    step: th.steps.len() as u32 - 1,
                    spent: 0,
                    slept: 0,
                });
            }
            Moment::Got => {
                let th = &mut self.threads[t as usize];
                th.locking.held.push(h.mutex);
                let Some(wanting) = th.locking.wanting.take().filter(|w| w.slept > 0) else {
                    return;
                };
                // What it did for nothing each time that it looked.
                let ran = std::mem::take(&mut th.ran);
                let now = match &mut th.now {
                    Now::Running { since } => ts - std::mem::replace(since, ts),
                    _ => 0,
                };
                th.used += now;
                th.comes = 0;
                let cost = (wanting.spent + ran + now) / wanting.slept;
                th.steps[wanting.step as usize].ns = cost;
                self.report.sleep_time += cost;
                self.report.cpu_time += cost;
            }
            Moment::Released => {
                self.progress(t, ts);
                let th = &mut self.threads[t as usize];
                th.locking.held.retain(|m| *m != h.mutex);
                push(th, op::UNLOCK, h.mutex, UNPAID, 0, false);
                th.locking.released = Some(Released {
                    mutex: h.mutex,
                    step: th.steps.len() as u32 - 1,
                    back: h.back,
                });
            }
        }
    }

    /// A wake of a thread that wants a mutex; answers whether it was one. The mutex wakes it in
    /// a replay, too, so that nothing is written.
    pub(super) fn woken_for_mutex(&mut self, row: &Wakeup, wakee: u32) -> bool {
        let Some(Wanting { mutex, .. }) = self.threads[wakee as usize].locking.wanting else {
            return false;
        };
        let waker = self.waker(row, wakee);
        let through = waker.and_then(|w| {
            let last = self.threads[w as usize].locking.released?;
            (last.mutex == mutex && row.ts <= last.back).then_some((w, last.step))
        });
        if !self.ends_sleep(wakee, through.is_some()) {
            return false;
        }
        if let Some((w, step)) = through {
            self.progress(w, row.ts);
            self.threads[w as usize].raising = Some((wakee, row.ts, step));
        }
        self.sleep_ended(wakee, waker, row.ts);
        true
    }
}

/// Whether `th`, which goes to sleep, wants a mutex: what it used for that is no running time.
pub(super) fn sleeps_for_mutex(th: &mut ThreadOut) -> bool {
    let Some(wanting) = &mut th.locking.wanting else {
        return false;
    };
    wanting.spent += std::mem::take(&mut th.ran);
    wanting.slept += 1;
    true
}

/// The thread's program ends here: no thread may wait for what it held in the recording.
pub(super) fn release_all(th: &mut ThreadOut, report: &mut super::Report) {
    let wanted = th.locking.wanting.take().map(|wanting| wanting.mutex);
    let held = std::mem::take(&mut th.locking.held);
    if held.is_empty() && wanted.is_none() {
        return;
    }
    flush(th, report);
    for mutex in held.into_iter().chain(wanted) {
        push(th, op::UNLOCK, mutex, UNPAID, 0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::WakeKind;

    fn call(ts: i64, utid: u32, enters: bool) -> FutexRow {
        FutexRow {
            ts,
            utid,
            process: 1,
            enters,
            waits: false,
            address: 8,
            mutex: enters,
            service: 0,
            leaving: false,
        }
    }

    fn switch(ts: i64, prev: u32, next: u32) -> Switch {
        Switch {
            ts,
            cpu: 0,
            prev_utid: prev,
            prev_state: State::Runnable,
            prev_prio: None,
            preempted: None,
            next_utid: next,
            next_prio: None,
        }
    }

    fn wakeup(ts: i64, waker: u32, utid: u32) -> Wakeup {
        Wakeup {
            ts,
            cpu: 0,
            waker_utid: Some(waker),
            current_utid: Some(waker),
            utid,
            kind: WakeKind::Waking,
            target_cpu: None,
            prio: None,
        }
    }

    #[test]
    fn only_losses_that_a_thread_did_not_cause_are_samples() {
        let mut finder = Finder::default();
        finder.threads.entry(5).or_default();
        finder.switch(&switch(0, 0, 5));
        finder.switch(&switch(100, 5, 6)); // A sample.
        finder.switch(&switch(200, 6, 5));
        finder.futex(&call(250, 5, true));
        finder.switch(&switch(260, 5, 6)); // In a call.
        finder.switch(&switch(300, 6, 5));
        finder.futex(&call(310, 5, false));
        finder.wake(&wakeup(320, 5, 6), 1);
        finder.switch(&switch(330, 5, 6)); // To whom it woke,
        finder.switch(&switch(400, 6, 5));
        finder.switch(&switch(500, 5, 6)); // and not any more.
        finder.switch(&switch(600, 6, 5));
        let lost = &finder.threads[&5].lost;
        let found: Vec<_> = lost.iter().map(|l| (l.left, l.back, l.ran)).collect();
        assert_eq!(found, [(100, 200, 100), (500, 600, 120)]);
    }
}
