//! Who had the CPUs while some threads waited, episode by episode?
use std::ops::Range;

use arrow_array::RecordBatch;

use super::changes::{Changes, Doing, Place, Sweep};
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

/// How long somebody ran, the part of it at a worse priority than the waiting thread's, and of
/// that where the priority decides.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    pub time: i64,
    pub worse: i64,
    pub strict: i64,
    pub prio: Option<i16>,
    /// When its last run began.
    at: i64,
}

/// Who ran on the queues of an episode, or on one that `n` CPUs share.
pub struct Share {
    pub episode: u32,
    pub utid: u32,
    pub n: u32,
    pub sum: Sum,
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
    /// How many of them begin before the last row ends.
    begun: usize,
    /// By utid.
    asked: Vec<bool>,
    /// By CPU, in order of time.
    runs: Vec<Vec<Run>>,
    /// One more than the highest utid of those who ran.
    threads: usize,
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
            begun: 0,
            episodes,
            window,
            idle_threads,
            asked,
            runs: Vec::new(),
            threads: 0,
            waits: vec![Vec::new(); top],
        }
    }

    /// More rows of `states`: ts, dur, utid, state, cpu and prio.
    pub fn read(&mut self, batch: &RecordBatch) -> Result<()> {
        rows::each(batch, self.window.0, true, |row| self.take(row))
    }

    /// The rows of all `changes`, which know priorities.
    pub fn replay(&mut self, changes: &Changes) -> Result<()> {
        let mut rows = Replay {
            near: self,
            changes,
            noted: 0,
            prios: vec![None; changes.threads],
            since: vec![(0, None); changes.threads],
            idle: vec![0; changes.cpus.last().map_or(0, |cpu| usize::from(*cpu) + 1)],
        };
        changes.tell(&mut rows)
    }

    #[inline]
    fn take(&mut self, row: Row) {
        let Row {
            ts,
            until,
            utid,
            state,
            cpu,
            prio,
        } = row;
        if state == RUNNABLE && self.asked.get(utid as usize) == Some(&true) {
            let (ts, until) = (ts.max(0), until.min(self.window.1 - self.window.0));
            if ts < until {
                self.waits[utid as usize].push(Wait {
                    ts,
                    until,
                    cpu,
                    prio,
                });
            }
        } else if state == RUNNING && cpu != NOWHERE && self.in_a_span(ts, until) {
            let runs = &mut self.runs;
            if runs.len() <= usize::from(cpu) {
                runs.resize_with(usize::from(cpu) + 1, Vec::new);
            }
            self.threads = (utid as usize + 1).max(self.threads);
            runs[usize::from(cpu)].push(Run {
                ts,
                until,
                utid,
                prio,
            });
        }
    }

    /// Whether this has time in common with an episode. Rows come in about the order of their
    /// ends, so that the stretch to look at is near the last one.
    #[inline]
    fn in_a_span(&mut self, ts: i64, until: i64) -> bool {
        let (spans, begun) = (&self.spans, &mut self.begun);
        while *begun < spans.len() && spans[*begun].0 < until {
            *begun += 1;
        }
        while *begun > 0 && spans[*begun - 1].0 >= until {
            *begun -= 1;
        }
        *begun > 0 && ts < spans[*begun - 1].1
    }

    fn in_order(&mut self) {
        for runs in &mut self.runs {
            if !runs.is_sorted_by_key(|run| run.ts) {
                runs.sort_by_key(|run| run.ts);
            }
        }
        for waits in &mut self.waits {
            if !waits.is_sorted_by_key(|wait| wait.ts) {
                waits.sort_by_key(|wait| wait.ts);
            }
        }
    }

    /// Stretches of waiting in an episode.
    fn pieces(&self, number: u32, episode: &Episode) -> impl Iterator<Item = Piece> {
        let waits = &self.waits[episode.utid as usize];
        let first = waits.partition_point(|wait| wait.until <= episode.ts);
        let (ts, until) = (episode.ts, episode.until);
        let within = waits[first..]
            .iter()
            .take_while(move |wait| wait.ts < until);
        within.map(move |wait| Piece {
            episode: number,
            ts: wait.ts.max(ts),
            until: wait.until.min(until),
            cpu: wait.cpu,
            prio: wait.prio,
        })
    }
}

/// Makes rows of changes.
struct Replay<'a> {
    near: &'a mut Near,
    changes: &'a Changes,
    /// How many of the changes of priority are in `prios`.
    noted: usize,
    /// By utid, from now on.
    prios: Vec<Option<i16>>,
    /// By utid, when what it does began, and the priority since then.
    since: Vec<(i64, Option<i16>)>,
    /// By CPU, when it last began to idle.
    idle: Vec<i64>,
}

impl Sweep for Replay<'_> {
    fn change(&mut self, t: i64, utid: u32, from: Place, _: Place) {
        while let Some(now) = self.changes.prios.get(self.noted).filter(|now| now.t <= t) {
            self.prios[now.utid as usize] = now.prio;
            self.noted += 1;
        }
        let now = (t, self.prios[utid as usize]);
        let (ts, prio) = std::mem::replace(&mut self.since[utid as usize], now);
        let state = match from.doing {
            Doing::Running => RUNNING,
            Doing::Waiting => RUNNABLE,
            Doing::Away => return,
        };
        self.near.take(Row {
            ts,
            until: t,
            utid,
            state,
            cpu: from.cpu,
            prio,
        });
    }

    /// All idle threads are one here, and that has no priority.
    fn idle(&mut self, t: i64, cpu: u16, begins: bool) {
        let ts = std::mem::replace(&mut self.idle[usize::from(cpu)], t);
        if !begins {
            self.near.take(Row {
                ts,
                until: t,
                utid: 0,
                state: RUNNING,
                cpu,
                prio: None,
            });
        }
    }

    fn instant(&mut self, _: i64) {}
}

/// Where in a list in order of time an instant lies: the window is cut into about as many
/// parts of 2^`bits` ns as the list is long.
struct Index {
    bits: u32,
    /// How many are before each part.
    before: Vec<u32>,
}

impl Index {
    fn new(times: impl ExactSizeIterator<Item = i64>, length: i64) -> Self {
        let bits = (length / (times.len() as i64 + 1)).max(1).ilog2();
        let parts = (length >> bits) + 2;
        let mut before = Vec::with_capacity(parts as usize);
        let (mut count, mut times) = (0, times.peekable());
        for part in 0..parts {
            while times.next_if(|t| *t < part << bits).is_some() {
                count += 1;
            }
            before.push(count);
        }
        Self { bits, before }
    }

    /// Those in the part of `t`, which is in the window: all earlier ones are before `t`, and
    /// all later ones after it.
    #[inline]
    fn near(&self, t: i64) -> Range<usize> {
        let part = (t >> self.bits) as usize;
        self.before[part] as usize..self.before[part + 1] as usize
    }
}

/// What a CPU did, to be asked about any instant.
struct Cpu {
    runs: Vec<Run>,
    ends: Index,
    /// Begin and end of each rest, and the idle time before it.
    rests: Vec<(i64, i64, i64)>,
    begins: Index,
}

impl Cpu {
    /// `runs` in order of time, in a window of this `length`.
    fn new(runs: Vec<Run>, idle_threads: u32, length: i64) -> Self {
        let mut before = 0;
        let mut rests = Vec::new();
        for run in runs.iter().filter(|run| run.utid < idle_threads) {
            rests.push((run.ts, run.until, before));
            before += run.until - run.ts;
        }
        Self {
            ends: Index::new(runs.iter().map(|run| run.until), length),
            begins: Index::new(rests.iter().map(|rest| rest.0), length),
            runs,
            rests,
        }
    }

    /// Idle time before `t`.
    fn idle(&self, t: i64) -> i64 {
        let near = self.begins.near(t);
        let after = near.start + self.rests[near].partition_point(|rest| rest.0 < t);
        match after.checked_sub(1).map(|last| self.rests[last]) {
            Some((ts, until, before)) => before + t.min(until) - ts,
            None => 0,
        }
    }

    /// Adds to whoever ran what it has in common with a piece; the priority decides below
    /// `strict_to`.
    fn charge(&self, sums: &mut [Sum], piece: &Piece, strict_to: i16) {
        let near = self.ends.near(piece.ts);
        let first = near.start + self.runs[near].partition_point(|run| run.until <= piece.ts);
        let strict = piece.prio.is_some_and(|own| own < strict_to);
        // Of both systems a larger number is worse; one not known is neither.
        let own = piece.prio.map_or(i32::MAX, i32::from);
        let within = self.runs[first..].iter();
        for run in within.take_while(|run| run.ts < piece.until) {
            let time = run.until.min(piece.until) - run.ts.max(piece.ts);
            let sum = &mut sums[run.utid as usize];
            sum.time += time;
            if sum.at <= run.ts {
                (sum.at, sum.prio) = (run.ts, run.prio);
            }
            // Whose priority is worse is as good as random from run to run: no branch on it.
            let worse = run.prio.map_or(i32::MIN, i32::from) > own;
            let worse = if worse { time } else { 0 };
            sum.worse += worse;
            sum.strict += if strict { worse } else { 0 };
        }
    }
}

/// An episode while it is accounted for.
struct Account<'a> {
    episode: &'a Episode,
    /// Those that were not looked at.
    pieces: &'a [Piece],
    /// By utid, on queues of one CPU and on one that several share; none if nobody waited there.
    sums: [Vec<Sum>; 2],
    /// As `episode.allowed`.
    idle: Vec<i64>,
}

impl Account<'_> {
    /// Accounts for the pieces that begin before `end`.
    fn proceed(&mut self, end: i64, cpus: &[Cpu], threads: usize, strict_to: i16) {
        let count = self.pieces.partition_point(|piece| piece.ts < end);
        let pieces;
        (pieces, self.pieces) = self.pieces.split_at(count);
        for piece in pieces {
            let shared = piece.cpu == NOWHERE;
            let one = [piece.cpu];
            let queues = if shared {
                &self.episode.allowed
            } else {
                &one[..]
            };
            let sums = &mut self.sums[usize::from(shared)];
            sums.resize(threads, Sum::default());
            for cpu in queues.iter().filter_map(|cpu| cpus.get(usize::from(*cpu))) {
                cpu.charge(sums, piece, strict_to);
            }
        }
        for (number, time) in self.episode.allowed.iter().zip(&mut self.idle) {
            if let Some(cpu) = cpus.get(usize::from(*number)) {
                let elsewhere = pieces
                    .iter()
                    .filter(|piece| piece.cpu != NOWHERE && piece.cpu != *number);
                *time += elsewhere
                    .map(|piece| cpu.idle(piece.until) - cpu.idle(piece.ts))
                    .sum::<i64>();
            }
        }
    }

    fn finish(self, number: u32, found: &mut Found) {
        let n = [1, self.episode.allowed.len() as u32];
        for (sums, n) in self.sums.into_iter().zip(n) {
            let ran = (0..).zip(sums).filter(|(_, sum)| sum.time > 0);
            found.shares.extend(ran.map(|(utid, sum)| Share {
                episode: number,
                utid,
                n,
                sum,
            }));
        }
        let idle = self.episode.allowed.iter().zip(self.idle);
        let idle = idle.filter(|(_, time)| *time > 0);
        found
            .idle
            .extend(idle.map(|(cpu, time)| (number, *cpu, time)));
    }
}

/// Runs that are looked at for one episode after the other, before later ones are: as many
/// as stay in the processor's cache.
const PART: usize = 1 << 14;
/// Sums kept at a time: 64 MB.
const SUMS: usize = 64_000_000 / size_of::<Sum>();

/// Accounts for every ns of waiting in each episode; the priority decides below `strict_to`.
pub fn culprits(mut near: Near, strict_to: i16) -> Result<Found> {
    near.in_order();
    let mut found = Found::default();
    let mut ends = Vec::with_capacity(near.episodes.len());
    for (number, episode) in (0..).zip(&near.episodes) {
        found.pieces.extend(near.pieces(number, episode));
        ends.push(found.pieces.len());
    }
    let length = near.window.1 - near.window.0;
    let runs: usize = near.runs.iter().map(Vec::len).sum();
    let part = length / (runs / PART + 1) as i64 + 1;
    let cpus = near.runs.into_iter();
    let cpus: Vec<Cpu> = cpus
        .map(|runs| Cpu::new(runs, near.idle_threads, length))
        .collect();
    let pieces = std::mem::take(&mut found.pieces);
    let mut number = 0;
    for batch in near.episodes.chunks((SUMS / near.threads.max(1)).max(1)) {
        let mut accounts: Vec<Account> = batch
            .iter()
            .enumerate()
            .map(|(at, episode)| Account {
                episode,
                pieces: {
                    let at = number as usize + at;
                    let begin = at.checked_sub(1).map_or(0, |before| ends[before]);
                    &pieces[begin..ends[at]]
                },
                sums: [Vec::new(), Vec::new()],
                idle: vec![0; episode.allowed.len()],
            })
            .collect();
        let mut end = 0;
        while end < length {
            pulse()?;
            end += part;
            for account in &mut accounts {
                account.proceed(end, &cpus, near.threads, strict_to);
            }
        }
        for account in accounts {
            account.finish(number, &mut found);
            number += 1;
        }
    }
    found.pieces = pieces;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_finds_what_a_search_finds() {
        let times = [-7, 1, 3, 3, 5, 8, 9, 9, 12, 40];
        for length in [0, 12, 13, 1 << 20] {
            let index = Index::new(times.iter().copied(), length);
            for t in 0..=length.min(50) {
                let near = index.near(t);
                for found in [
                    times.partition_point(|time| *time < t),
                    times.partition_point(|time| *time <= t),
                ] {
                    assert!(near.start <= found && found <= near.end, "{length} {t}");
                }
            }
        }
    }

    #[test]
    fn idle_time_is_counted_up_to_the_instant() {
        let run = |ts, until, utid| Run {
            ts,
            until,
            utid,
            prio: None,
        };
        let runs = vec![run(-4, 3, 0), run(3, 10, 7), run(10, 20, 0), run(30, 35, 0)];
        let cpu = Cpu::new(runs, 1, 50);
        let told = [0, 1, 3, 5, 10, 12, 20, 25, 31, 50].map(|t| cpu.idle(t));
        assert_eq!(told, [4, 5, 7, 7, 7, 9, 17, 17, 18, 22]);
    }
}
