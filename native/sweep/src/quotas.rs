//! Threads of a group whose quota is used up on a CPU cannot run there: sweeps that compute who
//! could have run, or service due, see them so.
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::changes::{AWAY, Changes, Position, Presence, Sweep};
use crate::error::Result;
use crate::states::NOWHERE;

/// A group (a number) on a CPU.
type Place = (u32, u16);

/// From `t` on the group may not run there, or may again.
struct Edge {
    t: i64,
    opens: bool,
    place: Place,
}

/// When which groups may not run on which CPUs.
pub struct Quotas {
    /// In order of time; at one instant what closes goes before what opens.
    edges: Vec<Edge>,
    /// By utid: the group, where it has stretches.
    group: Vec<Option<u32>>,
}

/// A stretch of time in which a group may not run on a CPU, in ns after the start of the window.
pub struct Closed {
    pub group: u32,
    pub cpu: u16,
    pub begin: i64,
    pub end: i64,
}

/// How long a thread was on a CPU's queue while its group was not allowed to run there, ns.
pub struct Throttled {
    pub utid: u32,
    pub cpu: u16,
    pub time: i64,
}

impl Quotas {
    pub fn new(closed: impl Iterator<Item = Closed>, group: Vec<Option<u32>>) -> Self {
        let mut edges: Vec<Edge> = closed
            .filter(|one| one.begin < one.end)
            .flat_map(|one| {
                let place = (one.group, one.cpu);
                [(one.begin, false), (one.end, true)].map(|(t, opens)| Edge { t, opens, place })
            })
            .collect();
        edges.sort_by_key(|edge| (edge.t, edge.opens));
        Self { edges, group }
    }
}

/// Tells `sweep` of every change, as if throttled threads were not there.
pub fn tell(
    quotas: Option<&Quotas>,
    changes: &Changes,
    sweep: &mut impl Sweep,
) -> Result<Vec<Throttled>> {
    let Some(quotas) = quotas else {
        changes.tell(sweep)?;
        return Ok(Vec::new());
    };
    let mut within = Within {
        quotas,
        inner: sweep,
        next: 0,
        now: None,
        queues: FxHashMap::default(),
        times: BTreeMap::new(),
    };
    changes.tell(&mut within)?;
    Ok(within.finish(changes.length))
}

/// The threads of one group on one CPU's queue.
#[derive(Default)]
struct Queue {
    /// Of how many stretches it is closed.
    closed: u32,
    /// By utid: what it does there, and since when as far as that is counted.
    waiting: BTreeMap<u32, (Position, i64)>,
}

struct Within<'a, S> {
    quotas: &'a Quotas,
    inner: &'a mut S,
    /// Edges before are over.
    next: usize,
    /// The instant whose changes are being sent.
    now: Option<i64>,
    queues: FxHashMap<Place, Queue>,
    /// By utid and CPU.
    times: BTreeMap<(u32, u16), i64>,
}

impl<S: Sweep> Within<'_, S> {
    /// Edges up to `t` that may come before its changes: all of earlier instants, and of this one
    /// those that close, since a thread that stops at that instant is throttled from it on.
    fn until(&mut self, t: i64) {
        if self.now.replace(t) == Some(t) {
            return;
        }
        while let Some(at) = self.edges_at().filter(|at| *at < t) {
            self.edges(at, true);
            self.inner.instant(at);
        }
        self.edges(t, false);
    }

    fn edges_at(&self) -> Option<i64> {
        self.quotas.edges.get(self.next).map(|edge| edge.t)
    }

    /// The next edges of the instant `t`; with `opening` those that open, too.
    fn edges(&mut self, t: i64, opening: bool) {
        while let Some(edge) = self.quotas.edges.get(self.next)
            && edge.t == t
            && (opening || !edge.opens)
        {
            self.next += 1;
            let queue = self.queues.entry(edge.place).or_default();
            let was = queue.closed > 0;
            queue.closed = if edge.opens {
                queue.closed.saturating_sub(1)
            } else {
                queue.closed + 1
            };
            if was == (queue.closed > 0) {
                continue;
            }
            for (utid, (place, since)) in &mut queue.waiting {
                if edge.opens {
                    *self.times.entry((*utid, place.cpu)).or_default() += t - *since;
                    self.inner.change(t, *utid, AWAY, *place);
                } else {
                    self.inner.change(t, *utid, *place, AWAY);
                }
                *since = t;
            }
        }
    }

    /// The queue of the thread's group where it waits.
    fn queue(&mut self, utid: u32, place: Position) -> Option<&mut Queue> {
        if place.doing != Presence::Waiting || place.cpu == NOWHERE {
            return None;
        }
        let group = self.quotas.group.get(utid as usize).copied().flatten()?;
        Some(self.queues.entry((group, place.cpu)).or_default())
    }

    fn finish(mut self, length: i64) -> Vec<Throttled> {
        while let Some(at) = self.edges_at().filter(|at| *at < length) {
            self.edges(at, true);
            self.inner.instant(at);
        }
        let closed = self.queues.into_values().filter(|queue| queue.closed > 0);
        for (utid, (place, since)) in closed.flat_map(|queue| queue.waiting) {
            *self.times.entry((utid, place.cpu)).or_default() += length - since;
        }
        let times = self.times.into_iter().filter(|(_, time)| *time > 0);
        times
            .map(|((utid, cpu), time)| Throttled { utid, cpu, time })
            .collect()
    }
}

impl<S: Sweep> Sweep for Within<'_, S> {
    fn change(&mut self, t: i64, utid: u32, mut from: Position, mut to: Position) {
        self.until(t);
        if let Some(queue) = self.queue(utid, from)
            && let Some((place, since)) = queue.waiting.remove(&utid)
            && queue.closed > 0
        {
            *self.times.entry((utid, place.cpu)).or_default() += t - since;
            from = AWAY;
        }
        if let Some(queue) = self.queue(utid, to) {
            queue.waiting.insert(utid, (to, t));
            if queue.closed > 0 {
                to = AWAY;
            }
        }
        if from.doing != Presence::Away || to.doing != Presence::Away {
            self.inner.change(t, utid, from, to);
        }
    }

    fn idle(&mut self, t: i64, cpu: u16, begins: bool) {
        self.until(t);
        self.inner.idle(t, cpu, begins);
    }

    fn instant(&mut self, t: i64) {
        self.until(t);
        self.edges(t, true);
        self.inner.instant(t);
    }

    fn ended(&self) -> bool {
        self.inner.ended()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::cpu_index::CpuIndex;
    use super::super::due::{SharingQuery, due};
    use super::super::history::History;
    use super::super::idle::{IdleQuery, IdleSweep};
    use super::super::matching::Masks;
    use super::super::random_states::{LENGTH, Row, THREADS, random, rows, states};
    use super::super::weights::Weights;
    use super::*;
    use crate::store::Source;

    const BEGIN: i64 = 10;

    /// Threads 1 to 3 are of group 0, 4 and 5 of group 1, the others of none.
    fn group() -> Vec<Option<u32>> {
        (0..=THREADS)
            .map(|utid| {
                [None, Some(0), Some(0), Some(0), Some(1), Some(1)]
                    .get(utid as usize)?
                    .to_owned()
            })
            .collect()
    }

    /// Some of them overlap, or adjoin.
    fn closed(seed: u32) -> Vec<Closed> {
        let mut random = random(seed + 1000);
        (0..12)
            .map(|_| {
                let begin = i64::from(random(LENGTH as u32)) - BEGIN;
                Closed {
                    group: random(2),
                    cpu: random(3) as u16,
                    begin,
                    end: begin + i64::from(random(60)),
                }
            })
            .collect()
    }

    fn read(rows: &[Row]) -> History {
        let states = Source::Held("states", vec![states(rows)]);
        History::read(&states, (BEGIN, LENGTH), 1, Some(Weights::equal())).expect("states")
    }

    /// The same states, but throttled waiting is sleep: and how long that was.
    fn cut(rows: &[Row], closed: &[Closed]) -> (Vec<Row>, HashMap<(u32, u16), i64>) {
        let (mut all, mut times) = (Vec::new(), HashMap::new());
        for &(ts, dur, utid, state, cpu, prio) in rows {
            let group = group()[utid as usize];
            let held = |t: i64| {
                closed.iter().any(|one| {
                    group == Some(one.group)
                        && cpu == Some(one.cpu)
                        && (one.begin..one.end).contains(&(t - BEGIN))
                })
            };
            let throttled = |t: i64| state == 1 && held(t);
            let mut since = ts;
            for t in ts..ts + dur {
                if throttled(t) && (BEGIN..LENGTH).contains(&t) {
                    *times.entry((utid, cpu.expect("a queue"))).or_insert(0) += 1;
                }
                if t + 1 == ts + dur || throttled(t) != throttled(t + 1) {
                    let sleeps = throttled(t);
                    let (state, cpu) = if sleeps { (2, None) } else { (state, cpu) };
                    all.push((since, t + 1 - since, utid, state, cpu, prio));
                    since = t + 1;
                }
            }
        }
        all.sort_by_key(|row| row.0 + row.1);
        (all, times)
    }

    fn idled(read: &History, quotas: Option<Quotas>) -> (Vec<i64>, Vec<Throttled>) {
        let question = IdleQuery {
            masks: Masks {
                atoms: vec![vec![0, 1], vec![1]],
                natoms: 2,
            },
            class: (0..=THREADS as u16).map(|utid| utid % 2).collect(),
            lanes: CpuIndex::new(vec![0, 1, 2]),
            atom: vec![Some(0), Some(1), Some(1), None],
            quotas,
        };
        let mut sweep = IdleSweep::new(&question, &read.changes, None);
        let throttled = sweep.run(&read.changes).expect("changes");
        let sums = &sweep.sums;
        let mut found = vec![sums.wasted, sums.wasted_any, sums.unplaced, sums.longest];
        found.extend(
            sweep
                .of_cpus(LENGTH - BEGIN)
                .iter()
                .flat_map(|cpu| [cpu.idle, cpu.spare, cpu.available, cpu.waiting, cpu.waited]),
        );
        found.extend(
            sweep
                .threads
                .iter()
                .flat_map(|one| [one.waiting, one.avoidable]),
        );
        (found, throttled)
    }

    fn shared(read: &History, quotas: Option<Quotas>, machine: bool) -> Vec<(u32, i64, i64, i64)> {
        let question = SharingQuery {
            table: read.weights().expect("weights").table,
            classes: 3,
            machine,
            capacity: None,
            by_cpu: false,
            groups: None,
            fair: 0,
            quotas,
        };
        let rows = due(&read.changes, &question).expect("changes").into_iter();
        let mut rows: Vec<_> = rows
            .filter(|row| row.running + row.waiting > 0)
            .map(|row| {
                (
                    row.utid,
                    row.running,
                    row.waiting,
                    (row.due * 1e3).round() as i64,
                )
            })
            .collect();
        rows.sort_unstable();
        rows
    }

    #[test]
    fn throttled_threads_are_as_if_they_slept() {
        let (mut wasted, mut held) = (0, 0);
        for seed in 0..200 {
            let rows = rows(seed).0;
            let whole = read(&rows);
            let quotas = || Some(Quotas::new(closed(seed).into_iter(), group()));
            let (asleep, times) = cut(&rows, &closed(seed));
            let asleep = read(&asleep);
            let (found, throttled) = idled(&whole, quotas());
            assert_eq!(found, idled(&asleep, None).0, "seed {seed}");
            let told = throttled.iter().map(|one| ((one.utid, one.cpu), one.time));
            assert_eq!(told.collect::<HashMap<_, _>>(), times, "seed {seed}");
            for machine in [false, true] {
                let found = shared(&whole, quotas(), machine);
                assert_eq!(found, shared(&asleep, None, machine), "seed {seed}");
            }
            wasted += found[0];
            held += times.len();
        }
        assert!(wasted > 1000 && held > 1000, "{wasted} {held}");
    }
}
