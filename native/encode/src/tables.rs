//! Fact tables played back as events, in time order: what every exporter needs.

use crate::error::Result;
use crate::model::event::{Comm, Event, EventSink, LossReason, Party, PriorityCause, SchedClass};
use crate::reconstruct::facts::{Facts, TableIn, comes_before};

/// One use of a tid by a thread, as known from events.
#[derive(Debug, Clone, Default)]
struct Thread {
    tid: u32,
    pid: Option<u32>,
    comm: Comm,
    prio: Option<i16>,
}

/// What happens to threads rather than on CPUs.
#[derive(Debug, Clone)]
enum Life {
    Fork { child: usize, parent: Option<usize> },
    Rename { thread: usize, comm: Comm },
    Priority { thread: usize, prio: i16 },
    Exit { thread: usize },
}

/// Plays fact tables, block after block of them.
pub struct Player {
    ncpu: u16,
    /// As they are called by now.
    threads: Vec<Thread>,
    /// In time order.
    lives: Vec<(i64, Life)>,
    /// How many of `lives` were sent.
    lived: usize,
    /// How many facts were sent.
    sent: usize,
}

fn small<T: TryFrom<i64>>(value: Option<i64>) -> Option<T> {
    value.and_then(|value| T::try_from(value).ok())
}

impl Player {
    /// `threads` and `renames` name the utids of the facts; utids below `ncpu`
    /// are the idle threads.
    pub fn new(
        ncpu: u16,
        threads: &TableIn<'_>,
        renames: &TableIn<'_>,
        priorities: &TableIn<'_>,
    ) -> Result<Self> {
        let mut player = Self {
            ncpu,
            threads: Vec::new(),
            lives: Vec::new(),
            lived: 0,
            sent: 0,
        };
        player.read_threads(threads)?;
        let (ts, utid, comm) = (
            renames.ints("ts")?,
            renames.ints("utid")?,
            renames.texts("comm")?,
        );
        for row in 0..renames.rows() {
            if let (Some(ts), Some(utid)) = (ts.0[row], small::<u32>(utid.0[row])) {
                let comm = Comm::new(comm[row].as_deref().unwrap_or("").as_bytes());
                player.lives.push((
                    ts,
                    Life::Rename {
                        thread: utid as usize,
                        comm,
                    },
                ));
            }
        }
        let columns = [
            priorities.ints("ts")?,
            priorities.ints("utid")?,
            priorities.ints("prio")?,
        ];
        for row in 0..priorities.rows() {
            let [ts, utid, prio] = &columns;
            let prio = small::<i16>(prio.0[row]);
            if let (Some(ts), Some(utid), Some(prio)) = (ts.0[row], small::<u32>(utid.0[row]), prio)
            {
                player.lives.push((
                    ts,
                    Life::Priority {
                        thread: utid as usize,
                        prio,
                    },
                ));
            }
        }
        player.lives.sort_by_key(|&(ts, _)| ts);
        Ok(player)
    }

    fn read_threads(&mut self, table: &TableIn<'_>) -> Result<()> {
        let int = |name| table.ints(name);
        let (utids, tids, pids) = (int("utid")?, int("tid")?, int("pid")?);
        let (starts, exits, parents) = (int("start_ts")?, int("exit_ts")?, int("parent_utid")?);
        let prios = int("prio")?;
        let (names, firsts) = (table.texts("comm")?, table.texts("comm_first")?);
        // Simulated threads may have no tid: they get an unused one.
        let mut free = tids.0.iter().flatten().copied().max().unwrap_or(0).max(0) as u32 + 1;
        for row in 0..table.rows() {
            let Some(utid) = small::<u32>(utids.0[row]).map(|utid| utid as usize) else {
                continue;
            };
            if self.threads.len() <= utid {
                self.threads.resize(utid + 1, Thread::default());
            }
            let tid = small(tids.0[row]).unwrap_or_else(|| {
                free += 1;
                free - 1
            });
            let first = firsts[row].as_deref().filter(|name| !name.is_empty());
            let name = first.or(names[row].as_deref()).unwrap_or("");
            self.threads[utid] = Thread {
                tid: if utid < usize::from(self.ncpu) {
                    0
                } else {
                    tid
                },
                pid: small(pids.0[row]),
                comm: Comm::new(name.as_bytes()),
                prio: small(prios.0[row]),
            };
            if utid < usize::from(self.ncpu) {
                continue;
            }
            if let Some(start) = starts.0[row] {
                let parent = small::<u32>(parents.0[row]).map(|parent| parent as usize);
                self.lives.push((
                    start,
                    Life::Fork {
                        child: utid,
                        parent,
                    },
                ));
            }
            if let Some(exit) = exits.0[row] {
                self.lives.push((exit, Life::Exit { thread: utid }));
            }
        }
        Ok(())
    }

    /// Sends every row of `facts`, which are later than those of all blocks before, and the lives
    /// up to them. At one time: lives first, so that names are known, then switch, wakeup,
    /// migration, yield, loss; but a wakeup that must have come before the switch stands before it.
    pub fn play(&mut self, facts: &Facts, sink: &mut dyn EventSink) -> Result<()> {
        self.sent += facts.rows();
        facts.check_order()?;
        facts.check_range(self.ncpu, self.sent)?;
        let mut at = [0usize; 6];
        loop {
            let heads = [
                self.lives.get(self.lived).map(|&(ts, _)| ts),
                facts.switches.get(at[1]).map(|row| row.ts),
                facts.wakeups.get(at[2]).map(|row| row.ts),
                facts.migrations.get(at[3]).map(|row| row.ts),
                facts.yields.get(at[4]).map(|row| row.ts),
                facts.losses.get(at[5]).map(|row| row.ts_begin),
            ];
            let next = heads
                .iter()
                .enumerate()
                .filter_map(|(list, ts)| Some(((*ts)?, list)))
                .min();
            let Some((ts, mut list)) = next.filter(|_| heads[1..].iter().any(Option::is_some))
            else {
                return Ok(());
            };
            if list == 1
                && heads[2] == Some(ts)
                && comes_before(&facts.wakeups[at[2]], &facts.switches[at[1]])
            {
                list = 2;
            }
            let row = at[list];
            at[list] += 1;
            match list {
                0 => self.live(sink)?,
                1 => {
                    let row = &facts.switches[row];
                    sink.event(&Event::Switch {
                        ts,
                        cpu: row.cpu,
                        prev: self.party(row.prev_utid, row.prev_prio),
                        prev_state: row.prev_state,
                        preempted: row.preempted,
                        next: self.party(row.next_utid, row.next_prio),
                    })?;
                }
                2 => {
                    let row = &facts.wakeups[row];
                    sink.event(&Event::Wakeup {
                        ts,
                        cpu: row.cpu,
                        kind: row.kind,
                        waker: row.waker_utid.map(|utid| self.party(utid, None).tid),
                        current: row.current_utid.map(|utid| self.party(utid, None).tid),
                        who: self.party(row.utid, row.prio),
                        target_cpu: row.target_cpu,
                    })?;
                }
                3 => {
                    let row = &facts.migrations[row];
                    sink.event(&Event::Migrate {
                        ts,
                        cpu: row.cpu,
                        who: self.party(row.utid, None),
                        from_cpu: row.from_cpu,
                        to_cpu: row.to_cpu,
                    })?;
                }
                4 => {
                    let tid = self.party(facts.yields[row].utid, None).tid;
                    sink.event(&Event::Yield { ts, tid })?;
                }
                _ => {
                    // Chain breaks follow from the switches and are found again.
                    let row = &facts.losses[row];
                    if row.reason != LossReason::ChainBreak {
                        sink.event(&Event::Loss {
                            cpu: row.cpu,
                            ts_begin: row.ts_begin,
                            ts_end: row.ts_end,
                            count: row.count,
                            reason: row.reason,
                        })?;
                    }
                }
            }
        }
    }

    /// Sends the lives after the last fact.
    pub fn finish(mut self, sink: &mut dyn EventSink) -> Result<()> {
        while self.lived < self.lives.len() {
            self.live(sink)?;
        }
        Ok(())
    }

    /// Sends the next life.
    fn live(&mut self, sink: &mut dyn EventSink) -> Result<()> {
        let Some(&(ts, ref life)) = self.lives.get(self.lived) else {
            return Ok(());
        };
        self.lived += 1;
        let get = |thread: usize| self.threads.get(thread).cloned().unwrap_or_default();
        let event = match *life {
            Life::Fork { child, parent } => {
                let (known, parent) = (get(child), parent.map(get));
                let same_process = match (known.pid, &parent) {
                    (Some(pid), Some(parent)) if parent.pid.is_some() => {
                        Some(parent.pid == Some(pid))
                    }
                    (Some(pid), _) if pid == known.tid => Some(false),
                    _ => None,
                };
                let who = |thread: Thread| Party {
                    tid: thread.tid,
                    comm: thread.comm,
                    ..Party::default()
                };
                let parent = parent.map(who).unwrap_or_default();
                Event::Fork {
                    ts,
                    parent,
                    child: who(known),
                    same_process,
                }
            }
            Life::Rename { thread, comm } => {
                let Some(known) = self.threads.get_mut(thread) else {
                    return Ok(());
                };
                known.comm = comm;
                Event::Rename {
                    ts,
                    tid: known.tid,
                    comm,
                }
            }
            Life::Priority { thread, prio } => {
                let who = self.party(thread as u32, None);
                Event::Priority {
                    ts,
                    who,
                    prio,
                    cause: PriorityCause::PiSetprio,
                }
            }
            Life::Exit { thread } => {
                let prio = self.threads.get(thread).and_then(|thread| thread.prio);
                Event::Exit {
                    ts,
                    who: self.party(thread as u32, prio),
                }
            }
        };
        sink.event(&event)
    }

    fn party(&self, utid: u32, prio: Option<i16>) -> Party {
        if utid < u32::from(self.ncpu) {
            let class = Some(SchedClass::Idle);
            return Party {
                tid: 0,
                idle: true,
                prio,
                class,
                ..Party::default()
            };
        }
        match self.threads.get(utid as usize) {
            Some(thread) => Party {
                tid: thread.tid,
                pid: thread.pid,
                comm: thread.comm,
                prio,
                ..Party::default()
            },
            // A utid that the thread table does not list.
            None => Party {
                tid: utid,
                prio,
                ..Party::default()
            },
        }
    }
}
