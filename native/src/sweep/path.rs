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

/// Whether a thread neither runs nor waits, nor is dead or unknown.
fn is_asleep(state: u8) -> bool {
    matches!(
        State::from_code(state),
        Some(State::Sleeping | State::Blocked | State::Stopped | State::Parked)
    )
}

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

/// The steps, last one first; utids below `idle` are nobody, `parents` is by utid.
pub fn walk(
    lives: &Lives<'_>,
    (begin, end): (i64, i64),
    utid: u32,
    idle: u32,
    parents: &[Option<u32>],
) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut at = utid;
    let mut t = end;
    let (mut ended, mut other) = (Ended::End, None);
    // Threads that were met at this instant already: wakeups of no duration may form a ring.
    let mut met = BTreeSet::from([at]);
    // The path may begin in a sleep; later only an interrupt's wakeup makes it.
    let mut external = true;
    let parent = |utid: u32| parents.get(utid as usize).copied().flatten();
    let mut turns = 0usize;
    while t > begin {
        turns += 1;
        if turns.is_multiple_of(CHECK_EVERY) {
            check_interrupt()?;
        }
        let Some(life) = lives.at(at, t) else {
            // It is new, and got a CPU at once: nothing of it was before.
            let made = lives
                .wait(at, t)
                .filter(|wait| wait.ready == t && wait.cause == NEW);
            let by = made.and_then(|wait| wait.waker.or_else(|| parent(at)));
            let Some(by) = by.filter(|by| *by >= idle && !met.contains(by)) else {
                break;
            };
            (ended, other, at) = (Ended::Woke, Some(at), by);
            met.insert(at);
            continue;
        };
        let ts = life.ts.max(begin);
        if life.state == RUNNING {
            steps.push(Step {
                ts,
                until: t,
                kind: Kind::Run,
                utid: at,
                cpu: life.cpu,
                ended,
                other,
            });
            (ended, other, external) = (Ended::Ran, None, false);
        } else if is_asleep(life.state) {
            if !external || (life.lost && life.until == t) {
                // Somebody woke it, and it woke the next one at once: in a simulation that may
                // take no time. Else its wakeup was not recorded.
                let wait = if life.lost || life.until > t {
                    None
                } else {
                    lives.wait(at, t).filter(|wait| wait.ready == t)
                };
                match wait.map(|wait| (wait.cause, wait.waker.filter(|waker| *waker >= idle))) {
                    Some((_, Some(waker))) if !met.contains(&waker) => {
                        (ended, other, at) = (Ended::Woke, Some(at), waker);
                        met.insert(at);
                    }
                    // An interrupt did, and it got a CPU at once.
                    Some((WAKE, None)) => (ended, other, external) = (Ended::Woken, None, true),
                    _ => break,
                }
                continue;
            }
            steps.push(Step {
                ts,
                until: t,
                kind: Kind::Sleep,
                utid: at,
                cpu: None,
                ended,
                other: None,
            });
            (ended, other, external) = (Ended::Slept, None, false);
        } else if life.state == RUNNABLE {
            let wait = lives.wait(at, life.ts);
            let mut cut = t;
            let first = wait.as_ref().is_some_and(|wait| wait.ready == life.ts);
            if let Some(enqueued) = wait
                .as_ref()
                .filter(|wait| first && matches!(wait.cause, WAKE | NEW))
                .and_then(|wait| wait.enqueued)
            {
                cut = enqueued.max(ts).min(t);
            }
            let step = |ts, until, kind, ended| Step {
                ts,
                until,
                kind,
                utid: at,
                cpu: life.cpu,
                ended,
                other: None,
            };
            if cut < t {
                steps.push(step(cut, t, Kind::Wait, ended));
                ended = Ended::Enqueued;
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
                steps.push(step(ts, cut, kind, ended));
            }
            (other, external) = (None, false);
            match wait.filter(|_| first) {
                None => ended = Ended::Moved,
                Some(wait) if wait.cause == PREEMPT => ended = Ended::Preempted,
                Some(wait) if wait.cause == YIELD => ended = Ended::Yielded,
                Some(wait) if ts == life.ts => {
                    let mut waker = wait.waker;
                    if waker.is_none() && wait.cause == NEW {
                        waker = parent(at);
                    }
                    if lives
                        .at(at, ts)
                        .is_some_and(|before| before.state == RUNNING)
                    {
                        ended = Ended::Slept; // woken again before it was off its CPU
                    } else if let Some(waker) = waker.filter(|waker| *waker >= idle) {
                        (ended, other) = (Ended::Woke, Some(at));
                        met = BTreeSet::from([at, waker]);
                        (at, t) = (waker, ts);
                        continue;
                    } else if wait.cause == WAKE {
                        (ended, external) = (Ended::Woken, true);
                    } else {
                        t = ts;
                        break;
                    }
                }
                Some(_) => {}
            }
        } else {
            break;
        }
        if ts < t {
            met = BTreeSet::from([at]);
        }
        t = ts;
    }
    if t > begin {
        steps.push(Step {
            ts: begin,
            until: t,
            kind: Kind::Unknown,
            utid: at,
            cpu: None,
            ended: Ended::Unknown,
            other: None,
        });
    }
    Ok(steps)
}
