//! Who had the CPUs while some threads waited, episode by episode?
use arrow_array::RecordBatch;

use super::pulse;
use super::rows::{self, NOWHERE, RUNNABLE, RUNNING, Row};
use crate::error::Result;

/// What a thread waited in; ns after the begin of the window.
pub struct Episode {
    pub utid: u32,
    pub ts: i64,
    pub until: i64,
    /// CPUs that the thread may run on.
    pub allowed: Vec<u16>,
}

/// A stretch of waiting on one queue in an episode.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    pub episode: u32,
    pub ts: i64,
    pub until: i64,
    pub cpu: u16,
    pub prio: Option<i16>,
}

/// Who ran on the queues of an episode (one of `n` CPUs that share it): time, the part of it at
/// a worse priority than the waiting thread's, and of that where the priority decides.
#[derive(Debug, Clone, Copy, Default)]
pub struct Share {
    pub episode: u32,
    pub utid: u32,
    pub n: u32,
    pub time: i64,
    pub worse: i64,
    pub strict: i64,
    pub prio: Option<i16>,
    /// When its last run there began.
    at: i64,
}

#[derive(Default)]
pub struct Found {
    pub pieces: Vec<Piece>,
    pub shares: Vec<Share>,
    /// Episode, another CPU that the thread may run on, and how long that one idled.
    pub idle: Vec<(u32, u16, i64)>,
}

#[derive(Clone, Copy)]
struct Run {
    ts: i64,
    until: i64,
    utid: u32,
    prio: Option<i16>,
}

/// A stretch in which a thread was runnable.
#[derive(Clone, Copy)]
struct Wait {
    ts: i64,
    until: i64,
    cpu: u16,
    prio: Option<i16>,
}

/// The time of all episodes, as stretches that do not touch, in order.
fn union(episodes: &[Episode]) -> Vec<(i64, i64)> {
    let mut spans: Vec<(i64, i64)> = episodes.iter().map(|e| (e.ts, e.until)).collect();
    spans.sort_unstable();
    let mut found: Vec<(i64, i64)> = Vec::new();
    for (ts, until) in spans {
        match found.last_mut() {
            Some(last) if ts <= last.1 => last.1 = last.1.max(until),
            _ => found.push((ts, until)),
        }
    }
    found
}

/// Runs and waits that matter for some episodes, gathered batch by batch.
pub struct Near {
    episodes: Vec<Episode>,
    window: (i64, i64),
    /// The number of idle threads.
    idle_threads: u32,
    spans: Vec<(i64, i64)>,
    /// By utid.
    asked: Vec<bool>,
    /// By CPU, in order of time.
    runs: Vec<Vec<Run>>,
    /// By CPU, the idle ones of them, each with the idle time before it.
    idle: Vec<Vec<(i64, i64, i64)>>,
    /// By utid, in order of time.
    waits: Vec<Vec<Wait>>,
}

impl Near {
    pub fn new(episodes: Vec<Episode>, window: (i64, i64), idle_threads: u32) -> Self {
        let top = episodes
            .iter()
            .map(|e| e.utid as usize + 1)
            .max()
            .unwrap_or(0);
        let mut asked = vec![false; top];
        for episode in &episodes {
            asked[episode.utid as usize] = true;
        }
        Self {
            spans: union(&episodes),
            episodes,
            window,
            idle_threads,
            asked,
            runs: Vec::new(),
            idle: Vec::new(),
            waits: vec![Vec::new(); top],
        }
    }

    /// More rows of `states`: ts, dur, utid, state, cpu and prio.
    pub fn read(&mut self, batch: &RecordBatch) -> Result<()> {
        let Self {
            window,
            spans,
            asked,
            runs: all,
            waits,
            ..
        } = self;
        let length = window.1 - window.0;
        rows::each(batch, window.0, true, |row| {
            let Row {
                ts,
                until,
                utid,
                state,
                cpu,
                prio,
            } = row;
            if state == RUNNABLE && asked.get(utid as usize) == Some(&true) {
                let (ts, until) = (ts.max(0), until.min(length));
                if ts < until {
                    waits[utid as usize].push(Wait {
                        ts,
                        until,
                        cpu,
                        prio,
                    });
                }
            } else if state == RUNNING && cpu != NOWHERE {
                // The first stretch that ends after the row begins: does it begin before that ends?
                let span = spans.partition_point(|span| span.1 <= ts);
                if spans.get(span).is_some_and(|span| span.0 < until) {
                    if all.len() <= usize::from(cpu) {
                        all.resize_with(usize::from(cpu) + 1, Vec::new);
                    }
                    all[usize::from(cpu)].push(Run {
                        ts,
                        until,
                        utid,
                        prio,
                    });
                }
            }
        })
    }

    fn in_order(&mut self) {
        for runs in &mut self.runs {
            if !runs.is_sorted_by_key(|run| run.ts) {
                runs.sort_by_key(|run| run.ts);
            }
            let mut before = 0;
            let mut here = Vec::new();
            for run in runs.iter().filter(|run| run.utid < self.idle_threads) {
                here.push((run.ts, run.until, before));
                before += run.until - run.ts;
            }
            self.idle.push(here);
        }
        for waits in &mut self.waits {
            if !waits.is_sorted_by_key(|wait| wait.ts) {
                waits.sort_by_key(|wait| wait.ts);
            }
        }
    }
}

/// The first from `at` on that is not `before`: near `at`, if the answer is.
fn gallop<T>(items: &[T], at: usize, before: impl Fn(&T) -> bool) -> usize {
    let (mut low, mut step) = (at, 1);
    while low + step <= items.len() && before(&items[low + step - 1]) {
        low += step;
        step *= 2;
    }
    let high = (low + step).min(items.len());
    low + items[low..high].partition_point(before)
}

/// Idle time of a CPU before `t`; `at` is where it was last looked for.
fn idle_before(idle: &[(i64, i64, i64)], at: &mut usize, t: i64) -> i64 {
    *at = gallop(idle, *at, |(ts, _, _)| *ts < t);
    match at.checked_sub(1).map(|last| idle[last]) {
        Some((ts, until, before)) => before + t.min(until) - ts,
        None => 0,
    }
}

/// Accounts for every ns of waiting in each episode; the priority decides below `strict_to`.
pub fn culprits(mut near: Near, strict_to: i16) -> Result<Found> {
    near.in_order();
    let mut found = Found::default();
    let mut sums: Vec<Share> = Vec::new();
    for (number, episode) in (0u32..).zip(&near.episodes) {
        pulse()?;
        let waits = &near.waits[episode.utid as usize];
        let first = waits.partition_point(|wait| wait.until <= episode.ts);
        let from = found.pieces.len();
        for wait in waits[first..]
            .iter()
            .take_while(|wait| wait.ts < episode.until)
        {
            let (ts, until) = (wait.ts.max(episode.ts), wait.until.min(episode.until));
            let (cpu, prio) = (wait.cpu, wait.prio);
            found.pieces.push(Piece {
                episode: number,
                ts,
                until,
                cpu,
                prio,
            });
        }
        let pieces = &found.pieces[from..];
        let n = episode.allowed.len() as u32;
        let mut looked: Vec<usize> = vec![0; near.runs.len()];
        // Those on queues of their own, then those on one that several CPUs share.
        for shared in [false, true] {
            for piece in pieces
                .iter()
                .filter(|piece| (piece.cpu == NOWHERE) == shared)
            {
                let one = [piece.cpu];
                for cpu in if shared {
                    episode.allowed.as_slice()
                } else {
                    &one
                } {
                    let cpu = usize::from(*cpu);
                    if let Some(runs) = near.runs.get(cpu) {
                        charge(&mut sums, runs, &mut looked[cpu], piece, strict_to);
                    }
                }
            }
            looked.fill(0);
            for (utid, share) in (0..).zip(&mut sums).filter(|(_, share)| share.time > 0) {
                let n = if shared { n } else { 1 };
                found.shares.push(Share {
                    episode: number,
                    utid,
                    n,
                    ..*share
                });
                *share = Share::default();
            }
        }
        for cpu in &episode.allowed {
            let Some(rests) = near.idle.get(usize::from(*cpu)) else {
                continue;
            };
            let (mut at, mut time) = (0, 0);
            for piece in pieces
                .iter()
                .filter(|piece| piece.cpu != NOWHERE && piece.cpu != *cpu)
            {
                let before = idle_before(rests, &mut at, piece.ts);
                time += idle_before(rests, &mut at, piece.until) - before;
            }
            if time > 0 {
                found.idle.push((number, *cpu, time));
            }
        }
    }
    Ok(found)
}

/// Adds to each run what it has in common with a piece.
fn charge(sums: &mut Vec<Share>, runs: &[Run], looked: &mut usize, piece: &Piece, strict_to: i16) {
    *looked = gallop(runs, *looked, |run| run.until <= piece.ts);
    for run in runs[*looked..]
        .iter()
        .take_while(|run| run.ts < piece.until)
    {
        let time = run.until.min(piece.until) - run.ts.max(piece.ts);
        let who = run.utid as usize;
        if sums.len() <= who {
            sums.resize(who + 1, Share::default());
        }
        let sum = &mut sums[who];
        sum.time += time;
        if sum.at <= run.ts {
            (sum.at, sum.prio) = (run.ts, run.prio);
        }
        // Of both systems a larger number is worse.
        if let (Some(prio), Some(own)) = (run.prio, piece.prio)
            && prio > own
        {
            sum.worse += time;
            sum.strict += if own < strict_to { time } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn galloping_finds_what_a_search_finds() {
        let items = [1, 3, 3, 5, 8, 9, 9, 12];
        for at in 0..=items.len() {
            for wanted in 0..14 {
                let all = items.partition_point(|item| *item < wanted);
                assert_eq!(
                    gallop(&items, at, |item| *item < wanted),
                    all.max(at),
                    "{at} {wanted}"
                );
            }
        }
    }

    #[test]
    fn idle_time_is_counted_up_to_the_instant() {
        let rests = [(10, 20, 0), (30, 35, 10)];
        let mut at = 0;
        let told: Vec<i64> = [5, 10, 12, 20, 25, 31, 50]
            .iter()
            .map(|t| idle_before(&rests, &mut at, *t))
            .collect();
        assert_eq!(told, [0, 0, 2, 10, 10, 11, 15]);
    }
}
