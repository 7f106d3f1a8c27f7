//! Waits as other tools would count them, from the same facts.
//!
//! One pass over switches, wakeups and births in time order; every tool's rule
//! (`rules`) keeps a few numbers per thread. What the rules are and where they come
//! from is in docs/definitions.md.

mod figures;
mod rows;
mod rules;

pub use figures::{Figures, Tally};

use crate::error::{Error, Result};
use crate::model::event::WakeKind;
use crate::store::Source;
use rows::{Birth, Cursor, Switch, Wakeup};
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

/// The facts, each table in time order.
pub struct Facts<'a> {
    pub switches: Source<'a>,
    pub wakeups: Source<'a>,
    pub births: Source<'a>,
    /// Threads below are idle threads, which never wait.
    pub ncpu: u32,
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

/// Steps that are made before rules take them in: they stay in the nearest cache.
const BLOCK: usize = 1 << 10;

/// Steps of all threads but the idle ones.
struct Steps {
    list: Vec<Step>,
    ncpu: u32,
    /// The highest utid so far.
    highest: u32,
}

impl Steps {
    #[inline]
    fn push(&mut self, step: Step) {
        if step.utid >= self.ncpu {
            self.highest = self.highest.max(step.utid);
            self.list.push(step);
        }
    }
}

/// Something that follows all events of all threads.
trait Follower: Send {
    fn block(&mut self, steps: &[Step]);
}

/// Tells a tool's bookkeeping for a thread of one of its events. If a wait ended that the tool
/// counts: since when it waited, and for how long.
#[inline(always)]
fn tell(thread: &mut impl Rule, step: &Step) -> Option<(i64, i64)> {
    match step.what {
        What::Left(how) => thread.left(step.ts, how),
        What::Born => thread.born(step.ts),
        What::Woken(kind) => thread.woken(step.ts, kind),
        What::Ran => return thread.ran(step.ts),
    }
    None
}

/// What is kept for a thread.
#[inline(always)]
fn of<T: Default>(threads: &mut Vec<T>, utid: u32) -> &mut T {
    let at = utid as usize;
    if at >= threads.len() {
        threads.resize_with(at + 1, T::default);
    }
    &mut threads[at]
}

/// A tool's bookkeeping for every thread; `each` gets the waits it counts.
struct Following<R, F> {
    threads: Vec<R>,
    each: F,
}

impl<R: Rule, F: FnMut(Ended) + Send> Follower for Following<R, F> {
    fn block(&mut self, steps: &[Step]) {
        for step in steps {
            if let Some((since, wait)) = tell(of(&mut self.threads, step.utid), step) {
                (self.each)(Ended {
                    utid: step.utid,
                    since,
                    ts_run: step.ts,
                    wait,
                    cpu: step.cpu,
                    prio: step.prio,
                });
            }
        }
    }
}

impl Facts<'_> {
    /// Shows every event to the `follower`.
    fn follow(&self, follower: &mut dyn Follower) -> Result<()> {
        let mut switches = Cursor::<Switch>::new(&self.switches)?;
        let mut wakeups = Cursor::<Wakeup>::new(&self.wakeups)?;
        let mut births = Cursor::<Birth>::new(&self.births)?;
        let mut steps = Steps {
            list: Vec::with_capacity(2 * BLOCK),
            ncpu: self.ncpu,
            highest: 0,
        };
        // Switches of the instant at hand.
        let mut now: Vec<Switch> = Vec::new();
        loop {
            let ts = switches.ts().min(wakeups.ts()).min(births.ts());
            if ts == rows::NEVER || steps.list.len() >= BLOCK {
                self.check(steps.highest)?;
                follower.block(&steps.list);
                steps.list.clear();
            }
            if ts == rows::NEVER {
                return Ok(());
            }
            let step = |utid, what| Step {
                ts,
                utid,
                cpu: 0,
                prio: None,
                what,
            };
            // In the order of `What`.
            switches.take(ts, |switch| {
                steps.push(step(switch.prev, What::Left(switch.left)));
                now.push(switch);
            })?;
            births.take(ts, |Birth(utid)| steps.push(step(utid, What::Born)))?;
            let woken = steps.list.len();
            wakeups.take(ts, |one| steps.push(step(one.utid, What::Woken(one.kind))))?;
            if steps.list.len() > woken + 1 {
                steps.list[woken..].sort_by_key(|step| match step.what {
                    What::Woken(kind) => kind as u8,
                    _ => 0,
                });
            }
            for switch in now.drain(..) {
                steps.push(Step {
                    cpu: switch.cpu,
                    prio: switch.prio,
                    ..step(switch.next, What::Ran)
                });
            }
        }
    }

    /// Utids are numbered without holes: a number beyond what the rows can need would only
    /// ask for memory.
    fn check(&self, highest: u32) -> Result<()> {
        let rows = self.switches.rows() + self.wakeups.rows() + self.births.rows();
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

macro_rules! tools {
    ($($tool:ident: $rule:ty = $name:literal,)+) => {
        /// The names of all tools.
        const TOOLS: &[&str] = &[$($name),+];

        /// Follows by the rule of the tool called `name`.
        fn follower<'a>(
            name: &str,
            each: impl FnMut(Ended) + Send + 'a,
        ) -> Result<Box<dyn Follower + 'a>> {
            match name {
                $($name => Ok(Box::new(Following { threads: Vec::<$rule>::new(), each })),)+
                other => Err(Error::usage(
                    format!("definition {other:?}"),
                    "a tool we know",
                    "`schedscope definitions` lists them",
                )),
            }
        }

        /// All tools' bookkeeping for a thread.
        #[derive(Default)]
        struct Thread { $($tool: $rule),+ }

        /// Follows by the rules of all tools at once: what a step is, which is hard to foresee,
        /// is found out once for all of them.
        #[derive(Default)]
        struct Everything {
            threads: Vec<Thread>,
            /// The waits that each of `TOOLS` counts.
            waits: [Tally; TOOLS.len()],
        }

        impl Follower for Everything {
            fn block(&mut self, steps: &[Step]) {
                let [$($tool),+] = &mut self.waits;
                for step in steps {
                    let thread = of(&mut self.threads, step.utid);
                    $(if let Some((_, wait)) = tell(&mut thread.$tool, step) {
                        $tool.add(wait);
                    })+
                }
            }
        }
    };
}

tools! {
    perf: rules::Perf = "perf",
    runqlat: rules::Runqlat<true> = "runqlat",
    runqlat_bt: rules::Runqlat<false> = "runqlat.bt",
    lisa: rules::Lisa = "lisa",
    lisa_preempt: rules::LisaPreempt = "lisa-preempt",
    perfetto: rules::Perfetto = "perfetto",
    lttng: rules::Lttng = "lttng",
    schedscore: rules::Schedscore = "schedscore",
}

/// The figures of the waits that each tool in `names` counts.
pub fn figures_of(facts: &Facts<'_>, names: &[String]) -> Result<Vec<Figures>> {
    let mut all = Everything::default();
    loop {
        facts.follow(&mut all)?;
        all.threads.clear();
        let again = all.waits.each_mut().map(Tally::again);
        if !again.contains(&true) {
            break;
        }
    }
    names
        .iter()
        .map(|name| {
            let tool = TOOLS.iter().position(|tool| tool == name);
            let tool = tool.ok_or_else(|| {
                Error::usage(format!("definition {name:?}"), TOOLS.join(", "), "")
            })?;
            Ok(all.waits[tool].figures())
        })
        .collect()
}

/// The waits that the tool `name` counts, in order of their ends.
pub fn waits_of(facts: &Facts<'_>, name: &str) -> Result<Vec<Ended>> {
    let mut waits = Vec::new();
    facts.follow(&mut *follower(name, |ended| waits.push(ended))?)?;
    Ok(waits)
}
