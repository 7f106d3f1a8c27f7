//! Back from an instant of a thread through those that woke it: analysis/critical_path.py
//! has the definition.
use std::collections::BTreeSet;

use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, Int64Array, PrimitiveArray, RecordBatch};

use super::CHECK_EVERY;
use crate::columns::{column, full};
use crate::error::{Error, Result};
use crate::hooks::check_interrupt;
use crate::model::event::{Cause, End, State};
use crate::states::{Columns, RUNNABLE, RUNNING};

/// What a step is, in the order of `KIND`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Run,
    Wait,
    Wake,
    Sleep,
    Unknown,
}

/// What ended a step, in the order of `ENDED`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Woke,
    Slept,
    Preempted,
    Yielded,
    Ran,
    Moved,
    Enqueued,
    Woken,
    End,
    Unknown,
}

#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub ts: i64,
    pub until: i64,
    pub kind: Kind,
    pub utid: u32,
    pub cpu: Option<u16>,
    pub ended: Ended,
    pub other: Option<u32>,
}

/// One interval of a thread.
struct Life {
    ts: i64,
    until: i64,
    state: u8,
    cpu: Option<u16>,
    lost: bool,
}

/// One wait of the ledger.
struct Wait {
    ready: i64,
    cause: u8,
    enqueued: Option<i64>,
    waker: Option<u32>,
}

const WAKE: u8 = Cause::Wake as u8;
const NEW: u8 = Cause::New as u8;
const PREEMPT: u8 = Cause::Preempt as u8;
const YIELD: u8 = Cause::Yield as u8;

/// Rows of batches by thread, those of one thread in order of time.
struct Index {
    /// The first row of each batch.
    begins: Vec<usize>,
    order: Vec<u32>,
    /// By utid, where in `order` its rows begin; one more at the end.
    first: Vec<usize>,
}

impl Index {
    fn new(utids: &[&[u32]], ts: impl Fn(usize, usize) -> Option<i64>) -> Result<Self> {
        let rows: usize = utids.iter().map(|part| part.len()).sum();
        if u32::try_from(rows).is_err() {
            return Err(Error::usage(
                format!("{rows} rows"),
                "fewer than 2^32",
                "cut the trace with --since and --until",
            ));
        }
        let top = utids
            .iter()
            .flat_map(|part| part.iter())
            .max()
            .map_or(0, |most| *most as usize + 1);
        let mut first = vec![0; top + 1];
        let mut begins = Vec::new();
        let mut row = 0;
        for (batch, part) in utids.iter().enumerate() {
            begins.push(row);
            row += part.len();
            for (at, utid) in part.iter().enumerate() {
                first[*utid as usize + 1] += usize::from(ts(batch, at).is_some());
            }
        }
        for utid in 0..top {
            first[utid + 1] += first[utid];
        }
        let mut next = first.clone();
        let mut order = vec![0u32; first[top]];
        let mut latest = vec![i64::MIN; top];
        let mut ordered = true;
        let mut row = 0;
        for (batch, part) in utids.iter().enumerate() {
            if row % CHECK_EVERY < part.len() {
                check_interrupt()?;
            }
            for (at, utid) in part.iter().enumerate() {
                let who = *utid as usize;
                if let Some(ts) = ts(batch, at) {
                    order[next[who]] = row as u32;
                    next[who] += 1;
                    ordered &= latest[who] <= ts;
                    latest[who] = ts;
                }
                row += 1;
            }
        }
        let mut index = Self {
            begins,
            order,
            first,
        };
        if !ordered {
            for who in 0..top {
                let span = index.first[who]..index.first[who + 1];
                let mut rows = index.order[span.clone()].to_vec();
                rows.sort_by_key(|row| index.place(*row).and_then(|(batch, at)| ts(batch, at)));
                index.order[span].copy_from_slice(&rows);
            }
        }
        Ok(index)
    }

    fn of(&self, utid: u32) -> &[u32] {
        let who = utid as usize;
        match (self.first.get(who), self.first.get(who + 1)) {
            (Some(from), Some(to)) => &self.order[*from..*to],
            _ => &[],
        }
    }

    /// Batch and row in it.
    fn place(&self, row: u32) -> Option<(usize, usize)> {
        let batch = self
            .begins
            .partition_point(|begin| *begin <= row as usize)
            .checked_sub(1)?;
        Some((batch, row as usize - self.begins[batch]))
    }
}

struct WaitColumns<'a> {
    ready: &'a Int64Array,
    run: &'a Int64Array,
    enqueued: &'a Int64Array,
    cause: &'a [u8],
    waker: &'a PrimitiveArray<UInt32Type>,
}

/// Intervals and waits of every thread, found by thread and time.
pub struct Lives<'a> {
    states: Vec<Columns<'a>>,
    of_state: Index,
    waits: Vec<WaitColumns<'a>>,
    of_wait: Index,
}

impl<'a> Lives<'a> {
    /// `states` has ts, dur, utid, state, cpu and end, `waits` utid, ts_ready, ts_run,
    /// ts_enqueued, cause and waker_utid.
    pub fn new(
        states: &'a [RecordBatch],
        waits: &'a [RecordBatch],
        (begin, end): (i64, i64),
    ) -> Result<Self> {
        let utids = |batches: &'a [RecordBatch]| -> Result<Vec<&'a [u32]>> {
            batches
                .iter()
                .map(|batch| full::<UInt32Type>(batch, "utid"))
                .collect()
        };
        let lives = states.iter().map(Columns::of).collect::<Result<Vec<_>>>()?;
        let of_waits = waits
            .iter()
            .map(|batch| {
                Ok(WaitColumns {
                    ready: column::<Int64Type>(batch, "ts_ready")?,
                    run: column::<Int64Type>(batch, "ts_run")?,
                    enqueued: column::<Int64Type>(batch, "ts_enqueued")?,
                    cause: full::<UInt8Type>(batch, "cause")?,
                    waker: column::<UInt32Type>(batch, "waker_utid")?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let of_state = Index::new(&utids(states)?, |batch, at| Some(lives[batch].ts[at]))?;
        // Those that may concern the interval.
        let of_wait = Index::new(&utids(waits)?, |batch, at| {
            let WaitColumns { ready, run, .. } = &of_waits[batch];
            let ready = value(ready, at).filter(|ready| *ready <= end)?;
            (value(run, at).unwrap_or(end) >= begin).then_some(ready)
        })?;
        Ok(Self {
            states: lives,
            of_state,
            waits: of_waits,
            of_wait,
        })
    }

    /// What the thread did just before `t`.
    fn at(&self, utid: u32, t: i64) -> Option<Life> {
        let rows = self.of_state.of(utid);
        let place = |row: u32| self.of_state.place(row).unwrap_or((0, 0));
        let begins = |row: &u32| {
            let (batch, at) = place(*row);
            self.states[batch].ts[at]
        };
        let last = rows.partition_point(|row| begins(row) < t).checked_sub(1)?;
        let (batch, at) = place(rows[last]);
        let of = &self.states[batch];
        let ts = of.ts[at];
        let until = ts.wrapping_add(of.dur[at]);
        (until >= t).then(|| Life {
            ts,
            until,
            state: of.state[at],
            cpu: of.cpu.is_valid(at).then(|| of.cpu.value(at)),
            lost: of.end[at] == End::Lost as u8,
        })
    }

    /// The last wait of the thread to begin at `t` or before.
    fn wait(&self, utid: u32, t: i64) -> Option<Wait> {
        let rows = self.of_wait.of(utid);
        let place = |row: u32| self.of_wait.place(row).unwrap_or((0, 0));
        let begins = |row: &u32| {
            let (batch, at) = place(*row);
            self.waits[batch].ready.value(at)
        };
        let last = rows
            .partition_point(|row| begins(row) <= t)
            .checked_sub(1)?;
        let (batch, at) = place(rows[last]);
        let columns = &self.waits[batch];
        Some(Wait {
            ready: columns.ready.value(at),
            cause: columns.cause[at],
            enqueued: value(columns.enqueued, at),
            waker: columns.waker.is_valid(at).then(|| columns.waker.value(at)),
        })
    }
}

fn value(array: &Int64Array, at: usize) -> Option<i64> {
    array.is_valid(at).then(|| array.value(at))
}

/// A walk back from an instant of a thread, through one part of the trace after another.
pub struct Walk<'a> {
    begin: i64,
    /// Smaller utids are no threads.
    idle: u32,
    /// By utid.
    parents: &'a [Option<u32>],
    /// The last one first.
    pub steps: Vec<Step>,
    /// The thread at hand, and the instant before which it is looked at.
    at: u32,
    t: i64,
    /// What it does then, if a later part than the next one showed it.
    held: Option<Life>,
    /// Of the step that comes next.
    ended: Ended,
    other: Option<u32>,
    /// Threads that were met at this instant already: wakeups of no duration may form a ring.
    met: BTreeSet<u32>,
    /// The path may begin in a sleep; later only an interrupt's wakeup makes it.
    external: bool,
}

impl<'a> Walk<'a> {
    /// From the end of an interval back to its start.
    pub fn new((begin, end): (i64, i64), utid: u32, idle: u32, parents: &'a [Option<u32>]) -> Self {
        Self {
            begin,
            idle,
            parents,
            steps: Vec::new(),
            at: utid,
            t: end,
            held: None,
            ended: Ended::End,
            other: None,
            met: BTreeSet::from([utid]),
            external: true,
        }
    }

    /// Goes on through what is known from `since` on; up to when what was before is needed, or
    /// none if the walk is over.
    pub fn go(&mut self, lives: &Lives<'_>, since: i64) -> Result<Option<i64>> {
        let mut turns = 0usize;
        while self.t > self.begin {
            turns += 1;
            if turns.is_multiple_of(CHECK_EVERY) {
                check_interrupt()?;
            }
            if self.t < since {
                return Ok(Some(self.t));
            }
            let Some(life) = self.held.take().or_else(|| lives.at(self.at, self.t)) else {
                if self.begins(lives) {
                    continue;
                }
                break;
            };
            let ts = life.ts.max(self.begin);
            let goes_on = if life.state == RUNNING {
                self.step(ts, self.t, Kind::Run, life.cpu);
                (self.ended, self.other, self.external) = (Ended::Ran, None, false);
                self.back_to(ts)
            } else if State::from_code(life.state).is_some_and(State::is_at_rest) {
                self.asleep(&life, lives)
            } else if life.state == RUNNABLE {
                if ts < since {
                    // Why it waited is known there.
                    self.held = Some(life);
                    return Ok(Some(ts));
                }
                self.runnable(&life, lives)
            } else {
                false
            };
            if !goes_on {
                break;
            }
        }
        if self.t > self.begin {
            (self.ended, self.other) = (Ended::Unknown, None);
            self.step(self.begin, self.t, Kind::Unknown, None);
        }
        Ok(None)
    }

    fn step(&mut self, ts: i64, until: i64, kind: Kind, cpu: Option<u16>) {
        self.steps.push(Step {
            ts,
            until,
            kind,
            utid: self.at,
            cpu,
            ended: self.ended,
            other: self.other.filter(|_| kind == Kind::Run),
        });
    }

    /// The walk goes on with the same thread at `ts`.
    fn back_to(&mut self, ts: i64) -> bool {
        if ts < self.t {
            self.met = BTreeSet::from([self.at]);
        }
        self.t = ts;
        true
    }

    /// The walk goes on at the same instant with a thread that woke this one.
    fn woken_by(&mut self, waker: u32) {
        (self.ended, self.other) = (Ended::Woke, Some(self.at));
        self.at = waker;
        self.met.insert(waker);
    }

    fn parent(&self, utid: u32) -> Option<u32> {
        self.parents.get(utid as usize).copied().flatten()
    }

    /// Whether the thread, of which nothing was before, is new and got a CPU at once.
    fn begins(&mut self, lives: &Lives<'_>) -> bool {
        let made = lives
            .wait(self.at, self.t)
            .filter(|wait| wait.ready == self.t && wait.cause == NEW);
        let by = made.and_then(|wait| wait.waker.or_else(|| self.parent(self.at)));
        let by = by.filter(|by| *by >= self.idle && !self.met.contains(by));
        by.inspect(|by| self.woken_by(*by)).is_some()
    }

    fn asleep(&mut self, life: &Life, lives: &Lives<'_>) -> bool {
        let t = self.t;
        if self.external && !(life.lost && life.until == t) {
            self.step(life.ts.max(self.begin), t, Kind::Sleep, None);
            (self.ended, self.other, self.external) = (Ended::Slept, None, false);
            return self.back_to(life.ts.max(self.begin));
        }
        // A thread woke it, and it woke the next one at once: in a simulation that may take no
        // time. Else its wakeup was not recorded.
        let wait = if life.lost || life.until > t {
            None
        } else {
            lives.wait(self.at, t).filter(|wait| wait.ready == t)
        };
        let woken = wait.map(|wait| (wait.cause, wait.waker.filter(|by| *by >= self.idle)));
        match woken {
            Some((_, Some(waker))) if !self.met.contains(&waker) => self.woken_by(waker),
            // An interrupt did, and it got a CPU at once.
            Some((WAKE, None)) => {
                (self.ended, self.other, self.external) = (Ended::Woken, None, true);
            }
            _ => return false,
        }
        true
    }

    fn runnable(&mut self, life: &Life, lives: &Lives<'_>) -> bool {
        let (t, ts) = (self.t, life.ts.max(self.begin));
        let wait = lives.wait(self.at, life.ts);
        let mut cut = t;
        let first = wait.as_ref().is_some_and(|wait| wait.ready == life.ts);
        if let Some(enqueued) = wait
            .as_ref()
            .filter(|wait| first && matches!(wait.cause, WAKE | NEW))
            .and_then(|wait| wait.enqueued)
        {
            cut = enqueued.max(ts).min(t);
        }
        if cut < t {
            self.step(cut, t, Kind::Wait, life.cpu);
            self.ended = Ended::Enqueued;
        }
        if ts < cut {
            // Without the instant of the queue, all of it is waiting. A thread that had not
            // come onto a queue by `t`, and did later, was being placed.
            let placing = wait
                .as_ref()
                .and_then(|wait| wait.enqueued)
                .is_some_and(|at| at >= t);
            let kind = if cut < t || placing {
                Kind::Wake
            } else {
                Kind::Wait
            };
            self.step(ts, cut, kind, life.cpu);
        }
        (self.other, self.external) = (None, false);
        match wait.filter(|_| first) {
            None => self.ended = Ended::Moved,
            Some(wait) if wait.cause == PREEMPT => self.ended = Ended::Preempted,
            Some(wait) if wait.cause == YIELD => self.ended = Ended::Yielded,
            Some(wait) if ts == life.ts => {
                let mut waker = wait.waker;
                if waker.is_none() && wait.cause == NEW {
                    waker = self.parent(self.at);
                }
                if lives
                    .at(self.at, ts)
                    .is_some_and(|before| before.state == RUNNING)
                {
                    self.ended = Ended::Slept; // woken again before it was off its CPU
                } else if let Some(waker) = waker.filter(|waker| *waker >= self.idle) {
                    self.met = BTreeSet::from([self.at]);
                    self.woken_by(waker);
                    self.t = ts;
                    return true;
                } else if wait.cause == WAKE {
                    (self.ended, self.external) = (Ended::Woken, true);
                } else {
                    self.t = ts;
                    return false;
                }
            }
            Some(_) => {}
        }
        self.back_to(ts)
    }
}
