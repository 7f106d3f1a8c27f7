//! Pools of threads that sleep until there is something to do, and barriers, in futex calls.
//!
//! Threads of one service that wait on the same word, which is no mutex (the futex of a condition,
//! or of a semaphore), and wait there more often than on any other, are a pool: which of them is
//! woken depends on which was idle. Each wake is a job in a queue, and what the woken thread did
//! until it waited there again is the work for it, by whichever thread takes it; of jobs that were
//! taken by threads that were awake see takes.rs. A condition of glibc has two words side by side,
//! on which its waiters sleep in turns (`__g_signals` in nptl/pthread_cond_wait.c of glibc 2.36).
//!
//! A word is a barrier if, between two calls that wake those who sleep there, equally many
//! different threads have called for it, in at least 9 of 10 cases, and each waker has also slept
//! there (sysdeps/nptl/pthread_barrier_wait.c, `current_round`).
//!
//! Other waits of a pool's thread are for another job's step, not for another thread: the worker of
//! that job waits. Such a signal becomes a job without steps in a queue of its own.
use rustc_hash::{FxHashMap, FxHashSet};

use super::super::load::op;
use super::charges::UNPAID;
use super::mutexes::FutexRow;
use super::{Extractor, Made, NOBODY, Now, Pending, ThreadOut, push};
use crate::model::tables::Wakeup;

/// What a word of memory is that threads wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Queue(u32),
    /// Its number, and how many threads meet there.
    Barrier(u32, u32),
    Other,
}

/// The call that a thread is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inside {
    Waits(u32),
    Wakes(u32),
    /// It waits until others have left a condition.
    Leaving,
    /// Its step, and whether it sleeps there.
    Barrier {
        step: u32,
        slept: bool,
    },
}

/// One end of a call for a queue or barrier: when, whose, and which.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub ts: i64,
    pub(super) utid: u32,
    pub(super) call: Call,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    Waits(u32),
    Wakes(u32),
    /// Waits until those who were woken before have left a condition.
    Leaving,
    Arrives(u32, u32),
    Returns,
    /// No call: a job is put into a queue without a wake. The number of the hidden job.
    Posts(u32, u32),
    /// No call: a thread that is awake takes a hidden job.
    Takes(u32, u32),
}

/// So many rounds show a barrier.
pub(super) const ROUNDS: usize = 3;

/// A word is a barrier if at most this part (1 in so many) of its rounds is otherwise.
pub(super) const OTHERWISE: usize = 10;

/// The two words of a condition are so many bytes apart.
const NEXT_WORD: i64 = 4;

/// All calls for one word.
#[derive(Debug, Default)]
struct Calls {
    waiters: FxHashSet<u32>,
    wakers: FxHashSet<u32>,
    services: FxHashSet<u32>,
    /// Of each round who came: between calls that wake.
    rounds: Vec<Vec<u32>>,
    coming: Vec<u32>,
}

impl Calls {
    /// How many threads meet here, if it is a barrier.
    fn barrier(&self) -> Option<u32> {
        if self.rounds.len() < ROUNDS || !self.wakers.is_subset(&self.waiters) {
            return None;
        }
        let different = |round: &Vec<u32>| {
            let mut who = round.clone();
            who.sort_unstable();
            who.dedup();
            (who.len() == round.len()).then_some(who.len())
        };
        let sizes: Vec<_> = self.rounds.iter().map(different).collect();
        let usual = *sizes.iter().flatten().max()?;
        let other = sizes.iter().filter(|s| **s != Some(usual)).count();
        (usual >= 2 && other * OTHERWISE <= sizes.len()).then_some(usual as u32)
    }
}

/// Words by number, those of one condition being one.
fn words(rows: &[FutexRow]) -> FxHashMap<(u32, i64), u32> {
    let mut waiters: FxHashMap<(u32, i64), FxHashSet<u32>> = FxHashMap::default();
    for row in rows.iter().filter(|r| r.enters && !r.mutex) {
        let who = waiters.entry((row.process, row.address)).or_default();
        if row.waits {
            who.insert(row.utid);
        }
    }
    let mut all: Vec<_> = waiters.keys().copied().collect();
    all.sort_unstable();
    let mut number = FxHashMap::default();
    let mut next = 0;
    let mut before: Option<(u32, i64)> = None;
    for key in all {
        let first = (key.0, key.1 - NEXT_WORD);
        let pair = before == Some(first) && !waiters[&first].is_disjoint(&waiters[&key]);
        number.insert(key, if pair { next - 1 } else { next });
        next += u32::from(!pair);
        // Three words in a row are no condition.
        before = (!pair).then_some(key);
    }
    number
}

impl Extractor {
    /// The queues and barriers in futex calls, and the ends of calls for them in time order.
    pub(super) fn find_queues(&mut self, rows: &[FutexRow]) -> Vec<End> {
        let number = words(rows);
        let word = |row: &FutexRow| number[&(row.process, row.address)];
        let mut calls: Vec<Calls> = (0..number.values().max().map_or(0, |m| m + 1))
            .map(|_| Calls::default())
            .collect();
        // How often each thread waits for each word.
        let mut often: FxHashMap<u32, FxHashMap<u32, u32>> = FxHashMap::default();
        for row in rows.iter().filter(|r| r.enters && !r.mutex) {
            let at = word(row);
            let of = &mut calls[at as usize];
            of.coming.push(row.utid);
            if row.waits {
                of.waiters.insert(row.utid);
                of.services.insert(row.service);
                *often.entry(row.utid).or_default().entry(at).or_default() += 1;
            } else {
                of.wakers.insert(row.utid);
                of.rounds.push(std::mem::take(&mut of.coming));
            }
        }
        let mostly = |utid: &u32, at: u32| {
            let of = &often[utid];
            of.values().all(|n| *n <= of[&at])
        };
        let mut kinds = Vec::with_capacity(calls.len());
        for (at, of) in (0u32..).zip(&calls) {
            let several = of.waiters.len() > 1 && !of.wakers.is_empty();
            let pool = || {
                of.services.len() == 1
                    && of.waiters.iter().all(|u| self.counts(*u) && mostly(u, at))
            };
            kinds.push(match of.barrier() {
                Some(n) if of.waiters.iter().all(|u| self.counts(*u)) => {
                    self.report.barriers += 1;
                    Word::Barrier(self.report.barriers as u32 - 1, n)
                }
                None if several && pool() => {
                    self.report.queues += 1;
                    Word::Queue(self.report.queues as u32 - 1)
                }
                _ => {
                    self.report.queues_left_out += u64::from(several);
                    Word::Other
                }
            });
        }
        let call = |row: &FutexRow| match (kinds[word(row) as usize], row.waits) {
            (Word::Queue(q), true) => Some(Call::Waits(q)),
            (Word::Queue(q), false) => Some(Call::Wakes(q)),
            (Word::Barrier(b, n), _) => Some(Call::Arrives(b, n)),
            (Word::Other, waits) => (row.leaving && waits).then_some(Call::Leaving),
        };
        let mut ends = Vec::new();
        // Threads that are in such a call, and those that have been seen at all.
        let (mut inside, mut seen) = (FxHashSet::default(), FxHashSet::default());
        // Back from a call that the recording does not begin with, until their next.
        let mut begun = FxHashSet::default();
        let mut first = Vec::new();
        for row in rows.iter().filter(|r| self.counts(r.utid)) {
            let new = seen.insert(row.utid);
            if row.enters && !row.mutex {
                let Some(call) = call(row) else { continue };
                if begun.remove(&row.utid)
                    && let Call::Waits(_) = call
                {
                    first.push(End {
                        ts: self.begin,
                        utid: row.utid,
                        call,
                    });
                }
                inside.insert(row.utid);
                ends.push(End {
                    ts: row.ts,
                    utid: row.utid,
                    call,
                });
            } else if !row.enters && (inside.remove(&row.utid) || new) {
                if new {
                    begun.insert(row.utid);
                }
                ends.push(End {
                    ts: row.ts,
                    utid: row.utid,
                    call: Call::Returns,
                });
            } else if row.enters {
                begun.remove(&row.utid);
            }
        }
        first.extend(ends);
        first
    }

    /// A thread enters a call for a queue or barrier, or comes back from it.
    pub(super) fn futex_end(&mut self, end: &End) {
        let t = self.thread(end.utid);
        self.runs(t, end.ts);
        match end.call {
            Call::Waits(q) => {
                let th = &mut self.threads[t as usize];
                (th.inside, th.pool) = (Some(Inside::Waits(q)), Some(q));
            }
            Call::Wakes(q) => self.threads[t as usize].inside = Some(Inside::Wakes(q)),
            Call::Leaving => self.threads[t as usize].inside = Some(Inside::Leaving),
            Call::Arrives(barrier, n) => {
                self.progress(t, end.ts);
                let th = &mut self.threads[t as usize];
                push(th, op::BARRIER, barrier, UNPAID, u64::from(n), false);
                th.inside = Some(Inside::Barrier {
                    step: th.steps.len() as u32 - 1,
                    slept: false,
                });
                self.report.barrier_waits += 1;
            }
            Call::Returns => self.returns(t, end.ts),
            Call::Posts(queue, hidden) => {
                self.report.jobs_unnoticed += 1;
                let job = self.new_job();
                self.hidden[hidden as usize] = job;
                self.step_of_job(t, end.ts, op::POST, queue, job);
            }
            Call::Takes(queue, hidden) => {
                let job = self.hidden[hidden as usize];
                // The rules of wakes may have mistaken the futile one for another.
                if job > 0 {
                    self.step_of_job(t, end.ts, op::SERVE, queue, job);
                }
            }
        }
    }

    fn new_job(&mut self) -> u64 {
        self.report.jobs += 1;
        self.report.jobs
    }

    /// Thread `t` puts a job into a queue, or takes it.
    fn step_of_job(&mut self, t: u32, ts: i64, op: u8, queue: u32, job: u64) {
        self.progress(t, ts);
        push(&mut self.threads[t as usize], op, queue, UNPAID, job, false);
    }

    fn returns(&mut self, t: u32, ts: i64) {
        match self.threads[t as usize].inside.take() {
            Some(Inside::Waits(_)) => {
                // Woken on its way to sleep it did not sleep.
                let pending = self.threads[t as usize]
                    .pending
                    .take_if(|p| p.job.is_some());
                if let Some((queue, job)) = pending.and_then(|p| p.job) {
                    self.progress(t, ts);
                    let th = &mut self.threads[t as usize];
                    push(th, op::SERVE, queue, UNPAID, job, false);
                }
            }
            Some(Inside::Barrier { step, slept: true }) => {
                // What it did to come back is part of what its sleep cost.
                let th = &mut self.threads[t as usize];
                let mut more = std::mem::take(&mut th.ran);
                if let Now::Running { since } = &mut th.now {
                    let now = ts - std::mem::replace(since, ts);
                    th.used += now;
                    more += now;
                }
                th.comes = 0;
                th.steps[step as usize].ns += more;
                self.report.sleep_time += more;
                self.report.cpu_time += more;
            }
            _ => {}
        }
    }

    /// A wake of a thread that waits for a queue or barrier; answers whether it was one.
    pub(super) fn woken_in_queue(&mut self, row: &Wakeup, wakee: u32) -> bool {
        let Some(inside) = self.threads[wakee as usize].inside else {
            return false;
        };
        let by = row.waker_utid.filter(|u| self.counts(*u));
        let by = by.and_then(|u| self.index.get(u as usize)).copied();
        let of_waker = by
            .filter(|w| *w != NOBODY)
            .and_then(|w| self.threads[w as usize].inside);
        match (inside, of_waker) {
            (Inside::Waits(q), Some(Inside::Wakes(from))) if q == from => {
                if !self.ends_sleep(wakee, true) {
                    return false;
                }
                // It is in that call, even where the recording lacks that it came onto its CPU.
                let Some(w) = by.filter(|w| *w != wakee) else {
                    return false;
                };
                if self.threads[w as usize].now == Now::Unseen {
                    self.waker(row, wakee);
                }
                let job = self.new_job();
                self.step_of_job(w, row.ts, op::POST, q, job);
                let waker = &mut self.threads[w as usize];
                waker.raising = Some((wakee, row.ts, waker.steps.len() as u32 - 1));
                self.report.wakes_by_threads += 1;
                // A job that another took is not that of the thread which was woken for it.
                let job = match self.in_vain.get(&(row.utid, row.ts)) {
                    Some(hidden) => {
                        self.report.wakes_in_vain += 1;
                        self.hidden[*hidden as usize] = job;
                        0
                    }
                    None => job,
                };
                let th = &mut self.threads[wakee as usize];
                match th.now {
                    Now::Running { .. } => {
                        th.pending = Some(Pending {
                            waker: NOBODY,
                            count: 0,
                            at: row.ts,
                            step: 0,
                            job: Some((q, job)),
                        });
                    }
                    now => {
                        if now == Now::Unseen {
                            th.enters = super::Enters::Asleep;
                        }
                        push(th, op::SERVE, q, 0, job, false);
                        th.now = Now::Runnable;
                        th.woken = true;
                    }
                }
                true
            }
            (Inside::Leaving, _) => {
                if !self.ends_sleep(wakee, true) {
                    return false;
                }
                let waker = self.waker(row, wakee);
                self.sleep_ended(wakee, waker, row.ts);
                self.report.waits_to_signal += 1;
                true
            }
            (Inside::Barrier { .. }, Some(Inside::Barrier { .. })) => {
                if !self.ends_sleep(wakee, true) {
                    return false;
                }
                let waker = self.waker(row, wakee);
                self.sleep_ended(wakee, waker, row.ts);
                true
            }
            _ => false,
        }
    }

    /// Signals between threads of pools and others become jobs without steps, each in a queue of
    /// its own: the worker of the waiting or signalling job may be another thread.
    pub(super) fn unname_signals(&mut self) {
        let pool: Vec<bool> = self.threads.iter().map(|th| th.pool.is_some()).collect();
        if !pool.contains(&true) {
            return;
        }
        let concerns = |a: usize, b: u32| pool[a] || pool.get(b as usize) == Some(&true);
        let mut waits: FxHashMap<(u32, u32, u64), (usize, usize)> = FxHashMap::default();
        for (t, th) in self.threads.iter().enumerate() {
            for (at, step) in th.steps.iter().enumerate() {
                if step.op == op::WAIT_FOR && concerns(t, step.thread) {
                    waits.insert((step.thread, t as u32, step.count), (t, at));
                }
            }
        }
        let mut next = self.report.queues as u32;
        for w in 0..self.threads.len() {
            let mut sent: FxHashMap<u32, u64> = FxHashMap::default();
            for at in 0..self.threads[w].steps.len() {
                let Made {
                    op: what, thread, ..
                } = self.threads[w].steps[at];
                if what != op::SIGNAL {
                    continue;
                }
                let count = sent.entry(thread).or_default();
                *count += 1;
                let Some((t, wait)) = waits.remove(&(w as u32, thread, *count)) else {
                    continue;
                };
                for (t, at, what) in [(w, at, op::POST), (t, wait, op::SERVE)] {
                    let step = &mut self.threads[t].steps[at];
                    (step.op, step.thread, step.count, step.meet) = (what, next, 0, false);
                }
                next += 1;
            }
        }
    }
}

/// Whether `th`, which goes to sleep, does so at a barrier: what it used there is no running time.
pub(super) fn sleeps_at_barrier(th: &mut ThreadOut, report: &mut super::Report) -> bool {
    let Some(Inside::Barrier { step, slept }) = &mut th.inside else {
        return false;
    };
    *slept = true;
    let ran = std::mem::take(&mut th.ran);
    let cost = &mut th.steps[*step as usize].ns;
    *cost = (*cost).max(0) + ran;
    report.sleep_time += ran;
    report.cpu_time += ran;
    true
}

/// Whether `th` waits, at the end, for a job that does not come any more: it goes on waiting.
pub(super) fn waits_on(th: &mut ThreadOut) -> bool {
    let (Some(Inside::Waits(queue)), Now::Asleep { .. }) = (th.inside, th.now) else {
        return false;
    };
    if th.pool == Some(queue) {
        push(th, op::SERVE, queue, 0, 0, false);
    }
    th.pool == Some(queue)
}
