//! Do the clocks of the CPUs agree?
//!
//! Events of one thread come in a forced order: it leaves a CPU before it is seen on the
//! next one, it is woken before it runs, and its `waking` precedes its enqueueing. Where
//! that order is broken, an offset between clocks is sought that mends it. Lost events
//! break the order too, but no offset mends what they break.
//!
//! See docs/trace-model.md, section Clocks.

use std::collections::HashMap;

use super::apart::Clocks;
use crate::error::Result;
use crate::model::event::{Event, EventSink, Party, State, UNKNOWN_TID, WakeKind};
use crate::pipeline::Progress;

/// So many events of threads that cannot follow on those before, as the reconstruction
/// counts them, and it is worth to read the trace again.
pub const SUSPICIOUS: u64 = 2;
/// Events that are looked at, over all CPUs that are tried: bounds time and memory.
const SAMPLE: usize = 1 << 20;
/// Of a pair of clocks: no offset is believed that mends fewer breaks of order.
const MENDED: u32 = 3;
/// Nor one that leaves more than one in so many.
const LEFT: u32 = 4;
/// Width of the classes that differences of times are sorted into, ns.
const CLASS: i64 = 50_000;
/// Classes that are tried: those with most differences.
const TRIED: usize = 16;
/// So many wakeups before a switch-in, and after it, are compared with it: few, which
/// find small offsets, and many.
const REACHES: [usize; 3] = [2, 16, 128];
/// Events that most offsets are tried on.
const FIRST: usize = 1 << 17;
/// Step of the search around a promising offset, ns, and steps to either side.
const STEP: i64 = 2_500;
const STEPS: i64 = 40;
/// Losses that are minded.
const LOSSES: usize = 256;
/// An offset that is not known better than this, ns, is not known.
const WIDEST: i64 = 100_000_000;
/// Rates of clocks that are too slow or too fast: the least, how many, and by how much each
/// is more than the one before.
const SLOWEST: f64 = 1e-5;
const RATES: i32 = 27;
const FASTER: f64 = 1.35;
/// Parts that a trace is cut into where no constant offset does.
const PARTS: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    In,
    Ready,
    AtRest,
    Gone,
    /// Nothing is known of the thread.
    Unborn,
    /// Nothing is known of any thread.
    Lost,
    Waking,
    Enqueued,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    ts: i64,
    /// Numbered without holes, in order of appearance.
    thread: u32,
    cpu: u16,
    kind: Kind,
}

/// How the clock of one CPU differs from those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    pub cpu: u16,
    /// It is ahead by at least and at most so many ns; None where that changes with time.
    pub ahead: Option<(i64, i64)>,
    /// Breaks of order in the trace as it stands, and those that are left.
    pub breaks: u32,
    pub left: u32,
}

/// What the offsets say of the clocks, once they are taken out; None without any.
pub fn known(offsets: &[Offset], ncpu: u16) -> Option<Clocks> {
    if offsets.is_empty() {
        return None;
    }
    let mut clock = vec![0; usize::from(ncpu)];
    let mut width = Some(0_i64);
    for (number, offset) in (1..).zip(offsets) {
        clock[usize::from(offset.cpu)] = number;
        let own = offset.ahead.map(|(least, most)| most - least);
        // Two CPUs may both be off by their own.
        width = width.zip(own).map(|(sum, own)| sum.saturating_add(own));
    }
    Some(Clocks { clock, width })
}

/// What is to be taken from the stamps of each CPU; None if nothing is.
pub fn ahead(offsets: &[Offset], ncpu: u16) -> Option<Vec<i64>> {
    let mut ahead = vec![0; usize::from(ncpu)];
    for offset in offsets {
        ahead[usize::from(offset.cpu)] = offset.middle()?;
    }
    (!offsets.is_empty()).then_some(ahead)
}

impl Offset {
    /// What is taken for the offset.
    fn middle(&self) -> Option<i64> {
        self.ahead.map(|(least, most)| least + (most - least) / 2)
    }
}

/// Gathers what threads did, and where.
pub struct Examiner<'a> {
    progress: Progress<'a>,
    seen: Vec<Seen>,
    threads: HashMap<u32, u32>,
    ncpu: u16,
    most: usize,
    both_steps: bool,
    /// By CPU: who was switched in last.
    current: Vec<Option<Party>>,
    chain_breaks: u32,
    losses: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Doing {
    #[default]
    Unknown,
    Running,
    AtRest,
    /// On a queue, or on its way to one.
    Queued,
}

#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    doing: Doing,
    cpu: u16,
    /// A `waking` came while it was running.
    pending: bool,
    /// Its wait began with a `waking`, and no enqueueing came yet.
    placing: bool,
    /// Its wait began with a wakeup.
    woken: bool,
}

impl EventSink for Examiner<'_> {
    fn event(&mut self, event: &Event) -> Result<()> {
        match *event {
            Event::Switch {
                ts,
                cpu,
                ref prev,
                prev_state,
                ref next,
                ..
            } => {
                let kind = match prev_state {
                    State::Runnable => Kind::Ready,
                    State::Sleeping | State::Blocked | State::Stopped | State::Parked => {
                        Kind::AtRest
                    }
                    _ => Kind::Gone,
                };
                self.follow(ts, cpu, prev, next);
                self.note(ts, prev, cpu, kind);
                self.note(ts, next, cpu, Kind::In);
            }
            Event::Wakeup {
                ts,
                cpu,
                kind,
                ref who,
                ..
            } => {
                // A new thread has no `waking`: it is as if it had not been seen before.
                if kind == WakeKind::New {
                    self.note(ts, who, cpu, Kind::Unborn);
                }
                let kind = match kind {
                    WakeKind::Waking => Kind::Waking,
                    WakeKind::Enqueued | WakeKind::New => Kind::Enqueued,
                };
                self.note(ts, who, cpu, kind);
            }
            Event::Loss {
                cpu,
                ts_begin,
                ts_end,
                ..
            } if self.losses < LOSSES => {
                self.losses += 1;
                for ts in [ts_begin, ts_end] {
                    self.seen.push(Seen {
                        ts,
                        thread: 0,
                        cpu: cpu.unwrap_or(0),
                        kind: Kind::Lost,
                    });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn progress(&mut self, done: u64, total: u64) -> Result<()> {
        (self.progress)(done, total)
    }
}

impl<'a> Examiner<'a> {
    /// `both_steps`: the trace tells of `waking` and of `enqueued`.
    pub fn new(ncpu: u16, both_steps: bool, progress: Progress<'a>) -> Self {
        Self {
            progress,
            seen: Vec::new(),
            threads: HashMap::new(),
            ncpu,
            most: (SAMPLE / usize::from(ncpu.max(2))).max(1 << 15),
            both_steps,
            current: vec![None; usize::from(ncpu)],
            chain_breaks: 0,
            losses: 0,
        }
    }

    /// Where many switches are missing, much may be mended by chance.
    fn least(&self) -> u32 {
        MENDED.max(self.chain_breaks / LEFT)
    }

    fn full(&self) -> bool {
        self.seen.len() >= self.most
    }

    /// Who leaves a CPU was switched in there: if not, of neither thread anything is known.
    fn follow(&mut self, ts: i64, cpu: u16, prev: &Party, next: &Party) {
        let Some(current) = self.current.get_mut(usize::from(cpu)) else {
            return;
        };
        let idle = |one: &Party| one.idle || one.tid == 0;
        let believed = current.replace(*next);
        if let Some(believed) = believed
            && believed.tid != prev.tid
            && !(idle(&believed) && idle(prev))
        {
            self.chain_breaks += 1;
            self.note(ts, &believed, cpu, Kind::Unborn);
            self.note(ts, prev, cpu, Kind::Unborn);
        }
    }

    /// By tid: who is who among threads with the same one hangs on the order of events.
    fn note(&mut self, ts: i64, who: &Party, cpu: u16, kind: Kind) {
        let idle = who.idle || who.tid == 0 || who.tid == UNKNOWN_TID;
        if idle || cpu >= self.ncpu || self.full() {
            return;
        }
        let next = self.threads.len() as u32;
        let thread = *self.threads.entry(who.tid).or_insert(next);
        self.seen.push(Seen {
            ts,
            thread,
            cpu,
            kind,
        });
    }

    /// CPUs whose clocks differ from the others', by how much, the surest first.
    pub fn offsets(mut self) -> Vec<Offset> {
        // What is told of losses comes at their beginning.
        self.seen.sort_by_key(|seen| seen.ts);
        // With two CPUs it is the same whichever is moved.
        let movable: Vec<u16> = (u16::from(self.ncpu == 2)..self.ncpu).collect();
        let mut found: Vec<Offset> = Vec::new();
        while found.len() + 1 < usize::from(self.ncpu) {
            let breaks = self.breaks(&self.seen, None);
            if breaks < MENDED {
                break;
            }
            let free = |cpu: &&u16| found.iter().all(|one| one.cpu != **cpu);
            let tried = movable.iter().filter(free);
            let best = tried
                .map(|&cpu| self.best(&self.seen, cpu))
                .min_by_key(|one| one.left);
            let Some(best) = best else { break };
            let enough = best.left.saturating_mul(LEFT) <= breaks;
            let middle = match best.middle() {
                Some(middle) if enough && breaks - best.left >= self.least() => middle,
                _ => break,
            };
            found.push(best);
            for seen in &mut self.seen {
                if seen.cpu == best.cpu {
                    seen.ts -= middle;
                }
            }
            self.seen.sort_by_key(|seen| seen.ts);
        }
        // Are they constant, as was assumed? Then they explain every break.
        let left = self.breaks(&self.seen, None);
        match found.first() {
            Some(_) if left == 0 => {}
            Some(&first) => {
                let changing = Offset {
                    ahead: None,
                    left,
                    ..first
                };
                found = vec![changing];
            }
            None if left >= self.least() => {
                let each = movable.iter().filter_map(|&cpu| self.changing(cpu));
                found.extend(each.min_by_key(|one| one.left));
            }
            None => {}
        }
        found
    }

    /// Breaks of order if the clock of `moved.0` is `moved.1` ns ahead.
    fn breaks(&self, seen: &[Seen], moved: Option<(u16, i64)>) -> u32 {
        let mut threads = vec![Thread::default(); self.threads.len()];
        let mut breaks = 0;
        match moved {
            None => {
                for event in seen {
                    breaks += self.step(&mut threads, event);
                }
            }
            Some((cpu, ahead)) => {
                let mut there = seen.iter().filter(|event| event.cpu == cpu).peekable();
                for event in seen.iter().filter(|event| event.cpu != cpu) {
                    while let Some(early) = there.next_if(|early| early.ts - ahead < event.ts) {
                        breaks += self.step(&mut threads, early);
                    }
                    breaks += self.step(&mut threads, event);
                }
                for late in there {
                    breaks += self.step(&mut threads, late);
                }
            }
        }
        breaks
    }

    /// One event of a thread: 1 if it cannot follow on those before.
    #[inline]
    fn step(&self, threads: &mut [Thread], event: &Seen) -> u32 {
        if event.kind == Kind::Lost {
            threads.fill(Thread::default());
        }
        let Some(thread) = threads.get_mut(event.thread as usize) else {
            return 0;
        };
        let was = *thread;
        let broken = match event.kind {
            Kind::In => {
                *thread = Thread {
                    doing: Doing::Running,
                    cpu: event.cpu,
                    ..Thread::default()
                };
                match was.doing {
                    Doing::Unknown => false,
                    Doing::Running => true,
                    Doing::AtRest => !was.pending,
                    Doing::Queued => was.placing && self.both_steps,
                }
            }
            Kind::Ready | Kind::AtRest | Kind::Gone => {
                *thread = Thread {
                    doing: match event.kind {
                        Kind::Ready => Doing::Queued,
                        Kind::AtRest => Doing::AtRest,
                        _ => Doing::Unknown,
                    },
                    pending: was.pending && event.kind == Kind::AtRest,
                    ..Thread::default()
                };
                let there = was.doing == Doing::Running && was.cpu == event.cpu;
                was.doing != Doing::Unknown && !there
            }
            Kind::Unborn | Kind::Lost => {
                *thread = Thread::default();
                false
            }
            Kind::Waking => match was.doing {
                Doing::Running => {
                    thread.pending = true;
                    false
                }
                Doing::Queued => was.woken,
                Doing::Unknown | Doing::AtRest => {
                    *thread = Thread {
                        doing: Doing::Queued,
                        placing: true,
                        woken: true,
                        ..Thread::default()
                    };
                    false
                }
            },
            Kind::Enqueued => {
                thread.pending = false;
                thread.placing = false;
                match was.doing {
                    Doing::Running => self.both_steps && !was.pending,
                    Doing::Queued => false,
                    Doing::Unknown | Doing::AtRest => {
                        thread.doing = Doing::Queued;
                        thread.woken = true;
                        self.both_steps && was.doing == Doing::AtRest && !was.pending
                    }
                }
            }
        };
        u32::from(broken)
    }

    /// The offset of `cpu` that leaves the fewest breaks of order.
    fn best(&self, seen: &[Seen], cpu: u16) -> Offset {
        let first = &seen[..seen.len().min(FIRST)];
        let at_first = |ahead| self.breaks(first, Some((cpu, ahead)));
        let likely = self.likely(first, cpu).into_iter();
        let start = likely.map(|ahead| (at_first(ahead), ahead)).min();
        let start = start.map_or(0, |(_, ahead)| ahead);
        // The middle of the longest run of equally good ones around it.
        let around: Vec<(i64, u32)> = (-STEPS..=STEPS)
            .map(|step| start + step * STEP)
            .map(|ahead| (ahead, at_first(ahead)))
            .collect();
        let fewest = around.iter().map(|&(_, breaks)| breaks).min().unwrap_or(0);
        let runs = around.chunk_by(|one, next| (one.1 == fewest) == (next.1 == fewest));
        let run = runs
            .filter(|run| run[0].1 == fewest)
            .max_by_key(|run| run.len());
        let middle = run.map_or(start, |run| run[run.len() / 2].0);
        let left = |ahead| self.breaks(seen, Some((cpu, ahead)));
        let fewest = left(middle);
        let edge = |sign: i64| {
            let (mut good, mut step) = (0, STEP);
            while good < WIDEST && left(middle + sign * (good + step)) <= fewest {
                good += step;
                step *= 2;
            }
            while step > 500 {
                step /= 2;
                if left(middle + sign * (good + step)) <= fewest {
                    good += step;
                }
            }
            // What was not tried lies within the last step.
            middle + sign * (good + step)
        };
        let (least, most) = (edge(-1), edge(1));
        Offset {
            cpu,
            ahead: (most - least <= WIDEST).then_some((least, most)),
            breaks: self.breaks(seen, None),
            left: fewest,
        }
    }

    /// Offsets at which many wakeups on one side come just before a switch-in on the other.
    fn likely(&self, seen: &[Seen], cpu: u16) -> Vec<i64> {
        let wake = if seen.iter().any(|event| event.kind == Kind::Enqueued) {
            Kind::Enqueued
        } else {
            Kind::Waking
        };
        let mut wakes: HashMap<u32, [Vec<i64>; 2]> = HashMap::new();
        let mut ins: HashMap<u32, [Vec<i64>; 2]> = HashMap::new();
        for event in seen {
            let side = usize::from(event.cpu == cpu);
            if event.kind == wake {
                wakes.entry(event.thread).or_default()[side].push(event.ts);
            } else if event.kind == Kind::In {
                ins.entry(event.thread).or_default()[side].push(event.ts);
            }
        }
        let mut likely = vec![0];
        for reach in REACHES {
            let mut classes: HashMap<i64, u32> = HashMap::new();
            for (thread, wakes) in &wakes {
                let Some(ins) = ins.get(thread) else { continue };
                for (wakes, ins, sign) in [(&wakes[0], &ins[1], 1), (&wakes[1], &ins[0], -1)] {
                    for to in ins {
                        let at = wakes.partition_point(|from| from < to);
                        let near = at.saturating_sub(reach)..(at + reach).min(wakes.len());
                        for from in &wakes[near] {
                            let ahead = sign * (to - from);
                            *classes.entry(ahead.div_euclid(CLASS)).or_default() += 1;
                        }
                    }
                }
            }
            let mut order: Vec<(u32, i64)> = classes
                .iter()
                .map(|(&class, &count)| {
                    let next = classes.get(&(class + 1)).copied().unwrap_or(0);
                    (count + next, class)
                })
                .collect();
            order.sort_unstable_by_key(|&(count, class)| (std::cmp::Reverse(count), class));
            for (_, class) in order.into_iter().take(TRIED) {
                let at = class * CLASS;
                likely.extend([at, at + CLASS / 2, at + CLASS]);
            }
        }
        likely.sort_unstable();
        likely.dedup();
        likely
    }

    /// Does the offset of `cpu` change with time? No one offset does, but parts of the
    /// trace have each their own, or the clock has a rate of its own.
    fn changing(&self, cpu: u16) -> Option<Offset> {
        let (mut breaks, mut left) = (0, 0);
        for part in self.seen.chunks(self.seen.len().div_ceil(PARTS).max(64)) {
            let best = self.best(part, cpu);
            breaks += best.breaks;
            left += best.left;
        }
        let mut best = (breaks - left, breaks, left);
        let (breaks, left) = self.drifting(cpu);
        best = best.max((breaks.saturating_sub(left), breaks, left));
        // Of few breaks one or two can be mended by chance.
        let (mended, breaks, left) = best;
        let few = mended < 2 * MENDED;
        let changes = mended >= self.least() && left <= mended && (left == 0 || !few);
        changes.then_some(Offset {
            cpu,
            ahead: None,
            breaks,
            left,
        })
    }

    /// Breaks of order as it stands, and if the clock of `cpu` is slow or fast by the rate
    /// that leaves the fewest.
    fn drifting(&self, cpu: u16) -> (u32, u32) {
        let first = &self.seen[..self.seen.len().min(FIRST >> 2)];
        let Some(begin) = first.first().map(|event| event.ts) else {
            return (0, 0);
        };
        let left = |rate: f64| {
            let mut steady = first.to_vec();
            for event in &mut steady {
                if event.cpu == cpu {
                    event.ts -= ((event.ts - begin) as f64 * rate) as i64;
                }
            }
            let likely = self.likely(&steady, cpu).into_iter();
            let left = likely.map(|ahead| self.breaks(&steady, Some((cpu, ahead))));
            left.min().unwrap_or(0)
        };
        let rates = (0..RATES).map(|step| SLOWEST * FASTER.powi(step));
        let rates = rates.flat_map(|rate| [rate, -rate]);
        let tried = rates.map(|rate| (left(rate), rate));
        let Some(mut best) = tried.min_by_key(|one| one.0) else {
            return (0, 0);
        };
        let mut near = FASTER - 1.0;
        for _ in 0..6 {
            near /= 2.0;
            for rate in [best.1 * (1.0 + near), best.1 * (1.0 - near)] {
                let left = left(rate);
                if left < best.0 {
                    best = (left, rate);
                }
            }
        }
        (self.breaks(first, None), best.0)
    }
}
