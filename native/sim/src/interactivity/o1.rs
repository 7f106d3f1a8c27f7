//! Linux 2.6.10's O(1) rule over recorded intervals.
use super::stat_clock::{StatClock, Uncharged};
use super::{Activity, Closed, Part, Rule};
use crate::policy::Settings;
use crate::policy::o1_bonus::{Past, Sleeping};

pub struct O1 {
    rules: Sleeping,
    clock: StatClock,
    ncpu: i64,
}

#[derive(Debug, Clone, Default)]
pub struct Memory {
    past: Past,
    /// Woken from a sleep that was not for a disk, and not run since; by a thread?
    woken: Option<bool>,
    /// Waited since, ns.
    waited: i64,
    /// Ticks of its slice that are left; a whole one if it never ran.
    slice: Option<i64>,
    left: Uncharged,
    /// It runs, and is charged up to then.
    charged: Option<i64>,
    /// Priority as last computed, by which the tick knows an interactive thread.
    prio: Option<i64>,
}

impl O1 {
    pub fn new(settings: &Settings, phase: Option<i64>, ncpu: usize) -> Self {
        Self {
            rules: Sleeping::new(settings),
            clock: StatClock {
                hz: settings.int("hz"),
                phase,
            },
            ncpu: i64::try_from(ncpu).unwrap_or(i64::MAX).clamp(1, 1 << 16),
        }
    }

    /// A tick of the clock while the thread runs: its slice may end, or its turn, and
    /// either charges what it has run.
    fn tick(&self, memory: &mut Memory, at: i64, fixed: i64) -> bool {
        let full = self.rules.full_slice(fixed);
        let slice = memory.slice.unwrap_or(full) - 1;
        memory.slice = Some(slice);
        let prio = memory
            .prio
            .unwrap_or_else(|| self.rules.priority(&memory.past, fixed));
        if slice <= 0 {
            memory.slice = Some(full);
        } else if !self.rules.is_interactive(prio, fixed)
            || !self.rules.is_turn(&memory.past, full, slice, self.ncpu)
        {
            return false;
        }
        memory.prio = Some(self.rules.priority(&memory.past, fixed));
        self.charge(memory, at);
        true
    }

    fn charge(&self, memory: &mut Memory, at: i64) {
        let since = memory.charged.replace(at).unwrap_or(at);
        self.rules.charge_run(&mut memory.past, at - since);
    }

    fn credit(&self, memory: &mut Memory, fixed: i64, slept: i64, from_disk: bool) {
        self.rules
            .credit_sleep(&mut memory.past, fixed, slept, from_disk);
        memory.prio = Some(self.rules.priority(&memory.past, fixed));
    }
}

impl Rule for O1 {
    type Memory = Memory;

    fn horizon(&self) -> i64 {
        // Nothing is left of a thread's sleep, and its credit is the least there is.
        1_000 * self.rules.max_avg
    }

    fn fork(&self, parent: &mut Memory, child: &mut Memory) {
        child.past.sleep_avg = self.rules.inherited(&parent.past);
        if let Some(slice) = parent.slice {
            child.slice = Some(((slice + 1) / 2).max(1));
            parent.slice = Some((slice / 2).max(1));
        }
    }

    fn exit(&self, child: &Memory, parent: &mut Memory) {
        self.rules.child_gone(&mut parent.past, &child.past);
    }

    fn pass(&self, memory: &mut Memory, part: &Part, changed: &mut dyn FnMut(i64, &Memory)) {
        let fixed = 120 + part.nice;
        match part.doing {
            Activity::Running => {
                let begins = memory.charged.is_none();
                memory.charged.get_or_insert(part.from);
                if begins && let Some(by_thread) = memory.woken.take() {
                    let waited = std::mem::take(&mut memory.waited);
                    let counts = if by_thread {
                        self.rules.of_wait(waited)
                    } else {
                        waited
                    };
                    self.credit(memory, fixed, counts, false);
                    changed(part.from, memory);
                }
                let mut left = memory.left;
                self.clock.ticks(&mut left, part.from, part.to, |at| {
                    if self.tick(memory, at, fixed) {
                        changed(at, memory);
                    }
                });
                memory.left = left;
                if part.closed.is_some() {
                    self.charge(memory, part.to);
                    memory.charged = None;
                    changed(part.to, memory);
                }
            }
            Activity::Runnable => {
                if part.by_thread && memory.woken.is_some() {
                    memory.woken = Some(true);
                }
                memory.waited += part.to - part.from;
            }
            doing if doing.is_asleep() && part.closed == Some(Closed::Seen) => {
                let from_disk = doing == Activity::Blocked;
                let slept = part.to - part.begin;
                self.credit(memory, fixed, slept, from_disk);
                memory.woken = (!from_disk).then_some(false);
                memory.waited = 0;
                changed(part.to, memory);
            }
            _ => {}
        }
    }

    fn score(&self, memory: &Memory, nice: i64) -> (i64, bool) {
        let fixed = 120 + nice;
        let prio = self.rules.priority(&memory.past, fixed);
        (
            self.rules.bonus(&memory.past),
            self.rules.is_interactive(prio, fixed),
        )
    }
}
