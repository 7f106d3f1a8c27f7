//! Waits as other tools would count them, from the same facts.
//!
//! One pass over switches, wakeups and births in time order; every tool's rule
//! (`rules`) keeps a few numbers per thread. What the rules are and where they come
//! from is in docs/definitions.md.

pub mod python;
mod rows;
mod rules;

use crate::error::{Error, Result};
use crate::model::event::WakeKind;
use rows::{Births, Rows, Switch, Switches, Wakeup, Wakeups};
use rules::{Left, Rule};

/// A wait that a switch-in ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub utid: u32,
    pub since: i64,
    pub ts_run: i64,
    /// Not always `ts_run - since`: Perfetto's may be an older wait's.
    pub wait: i64,
    pub cpu: u16,
    pub prio: Option<i16>,
}

/// The facts, each list in time order.
pub struct Facts {
    switches: Rows<Switches>,
    wakeups: Rows<Wakeups>,
    births: Rows<Births>,
    /// Threads below are idle threads, which never wait.
    ncpu: u32,
}

/// One event of one thread.
#[derive(Debug, Clone, Copy)]
struct Step {
    ts: i64,
    utid: u32,
    cpu: u16,
    prio: Option<i16>,
    what: What,
}

/// In the order in which a thread's events of one time are taken.
#[derive(Debug, Clone, Copy)]
enum What {
    Left(Left),
    Born,
    Woken(WakeKind),
    Ran,
}

/// Steps that all rules take in before the next ones are made: they stay in the cache.
const BLOCK: usize = 1 << 12;

/// Rows of one time.
#[derive(Default)]
struct Instant {
    switches: Vec<Switch>,
    wakeups: Vec<Wakeup>,
    births: Vec<u32>,
}

impl Instant {
    fn drain_into(&mut self, ts: i64, steps: &mut Vec<Step>) {
        let step = |utid, what| Step {
            ts,
            utid,
            cpu: 0,
            prio: None,
            what,
        };
        let left = |switch: &Switch| step(switch.prev, What::Left(switch.left));
        steps.extend(self.switches.iter().map(left));
        steps.extend(self.births.drain(..).map(|utid| step(utid, What::Born)));
        if self.wakeups.len() > 1 {
            self.wakeups.sort_by_key(|wakeup| wakeup.kind as u8);
        }
        steps.extend(
            self.wakeups
                .drain(..)
                .map(|one| step(one.utid, What::Woken(one.kind))),
        );
        steps.extend(self.switches.drain(..).map(|switch| {
            let Switch {
                next: utid,
                cpu,
                prio,
                ..
            } = switch;
            Step {
                ts,
                utid,
                cpu,
                prio,
                what: What::Ran,
            }
        }));
    }
}

/// Something that follows all events of all threads.
trait Follower: Send {
    fn block(&mut self, steps: &[Step]);
}

/// A tool's bookkeeping for every thread; `each` is told the waits it counts.
struct Following<R, F> {
    threads: Vec<R>,
    each: F,
}

impl<R: Rule, F: FnMut(Ended) + Send> Follower for Following<R, F> {
    fn block(&mut self, steps: &[Step]) {
        for step in steps {
            let at = step.utid as usize;
            if at >= self.threads.len() {
                self.threads.resize_with(at + 1, R::default);
            }
            let thread = &mut self.threads[at];
            match step.what {
                What::Left(how) => thread.left(step.ts, how),
                What::Born => thread.born(step.ts),
                What::Woken(kind) => thread.woken(step.ts, kind),
                What::Ran => {
                    if let Some((since, wait)) = thread.ran(step.ts) {
                        let Step {
                            ts: ts_run,
                            utid,
                            cpu,
                            prio,
                            ..
                        } = *step;
                        (self.each)(Ended {
                            utid,
                            since,
                            ts_run,
                            wait,
                            cpu,
                            prio,
                        });
                    }
                }
            }
        }
    }
}

impl Facts {
    /// Shows every event to all `followers`.
    fn follow(&self, followers: &mut [Box<dyn Follower + '_>]) -> Result<()> {
        let (mut switches, mut wakeups, mut births) = (
            self.switches.cursor(),
            self.wakeups.cursor(),
            self.births.cursor(),
        );
        let mut steps: Vec<Step> = Vec::with_capacity(2 * BLOCK);
        let mut now = Instant::default();
        loop {
            let heads = [switches.ts(), wakeups.ts(), births.ts()];
            let next = heads.into_iter().flatten().min();
            if next.is_none() || steps.len() >= BLOCK {
                self.check(&mut steps)?;
                for follower in &mut *followers {
                    follower.block(&steps);
                }
                steps.clear();
            }
            let Some(ts) = next else { return Ok(()) };
            switches.take(ts, &mut now.switches);
            wakeups.take(ts, &mut now.wakeups);
            births.take(ts, &mut now.births);
            now.drain_into(ts, &mut steps);
        }
    }

    /// Leaves out idle threads. Utids are numbered without holes: a number beyond
    /// what the rows can need would only ask for memory.
    fn check(&self, steps: &mut Vec<Step>) -> Result<()> {
        steps.retain(|step| step.utid >= self.ncpu);
        let rows = self.switches.len() + self.wakeups.len() + self.births.len();
        let highest = steps.iter().map(|step| step.utid).max().unwrap_or(0);
        if highest as usize <= 3 * rows + (1 << 20) {
            return Ok(());
        }
        Err(Error::usage(
            format!("utid {highest} in a trace of {rows} events"),
            "utids numbered from 0 without holes",
            "schedscope validate FOLDER lists what is wrong with tables from elsewhere",
        ))
    }
}

/// Follows by the rule called `name`.
fn follower<'a>(name: &str, each: impl FnMut(Ended) + Send + 'a) -> Result<Box<dyn Follower + 'a>> {
    fn with<'a, R: Rule + 'a>(each: impl FnMut(Ended) + Send + 'a) -> Box<dyn Follower + 'a> {
        Box::new(Following {
            threads: Vec::<R>::new(),
            each,
        })
    }
    Ok(match name {
        "perf" => with::<rules::Perf>(each),
        "runqlat" => with::<rules::Runqlat<true>>(each),
        "runqlat.bt" => with::<rules::Runqlat<false>>(each),
        "lisa" => with::<rules::Lisa>(each),
        "lisa-preempt" => with::<rules::LisaPreempt>(each),
        "perfetto" => with::<rules::Perfetto>(each),
        "lttng" => with::<rules::Lttng>(each),
        "schedscore" => with::<rules::Schedscore>(each),
        other => {
            return Err(Error::usage(
                format!("definition {other:?}"),
                "a tool we know",
                "`schedscope definitions` lists them",
            ));
        }
    })
}

/// How many, and how long: exact order statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    pub n: usize,
    pub total: i64,
    pub p50: Option<i64>,
    pub p99: Option<i64>,
    pub max: Option<i64>,
}

/// The figures of `waits`, whose order is lost.
fn figures(waits: &mut [i64]) -> Figures {
    let n = waits.len();
    let total = waits
        .iter()
        .fold(0i64, |sum, &wait| sum.saturating_add(wait));
    if n == 0 {
        return Figures::default();
    }
    // Nearest rank: the smallest wait such that at least the share is not longer.
    let rank = |percent: usize| (n * percent).div_ceil(100) - 1;
    let (_, &mut p99, above) = waits.select_nth_unstable(rank(99));
    let max = above.iter().copied().max().unwrap_or(p99).max(p99);
    let (_, &mut p50, _) = waits[..=rank(99)].select_nth_unstable(rank(50));
    Figures {
        n,
        total,
        p50: Some(p50),
        p99: Some(p99),
        max: Some(max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_nearest_ranks() {
        let mut waits: Vec<i64> = (1..=200).rev().collect();
        let found = figures(&mut waits);
        let expected = Figures {
            n: 200,
            total: 20_100,
            p50: Some(100),
            p99: Some(198),
            max: Some(200),
        };
        assert_eq!(found, expected);
        assert_eq!(figures(&mut [7]).p99, Some(7));
        assert_eq!(figures(&mut []), Figures::default());
    }
}
