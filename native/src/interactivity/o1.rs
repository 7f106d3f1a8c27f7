//! Linux 2.6.10's O(1) rule over recorded intervals.
use super::{Closed, Doing, Part, Rule};
use crate::sim::policy::Settings;
use crate::sim::policy::o1_bonus::{Past, Sleeping};

pub struct O1 {
    rules: Sleeping,
}

#[derive(Debug, Clone, Default)]
pub struct Memory {
    past: Past,
    /// Woken from a sleep that was not for a disk, and not run since; by a thread?
    woken: Option<bool>,
    /// Waited since, ns.
    waited: i64,
}

impl O1 {
    pub fn new(settings: &Settings) -> Self {
        Self {
            rules: Sleeping::new(settings),
        }
    }
}

impl Rule for O1 {
    type Memory = Memory;

    fn horizon(&self) -> i64 {
        i64::MAX
    }

    fn fork(&self, parent: &mut Memory, child: &mut Memory) {
        child.past.sleep_avg = self.rules.inherited(&parent.past);
    }

    fn exit(&self, child: &Memory, parent: &mut Memory) {
        self.rules.child_gone(&mut parent.past, &child.past);
    }

    fn pass(&self, memory: &mut Memory, part: &Part, changed: &mut dyn FnMut(i64, &Memory)) {
        let fixed = 120 + part.nice;
        match part.doing {
            Doing::Running => {
                if part.from == part.begin
                    && let Some(by_thread) = memory.woken.take()
                {
                    let waited = std::mem::take(&mut memory.waited);
                    let counts = if by_thread {
                        self.rules.of_wait(waited)
                    } else {
                        waited
                    };
                    self.rules
                        .credit_sleep(&mut memory.past, fixed, counts, false);
                    changed(part.from, memory);
                }
                if part.closed.is_some() {
                    self.rules
                        .charge_run(&mut memory.past, part.to - part.begin);
                    changed(part.to, memory);
                }
            }
            Doing::Runnable => {
                if part.by_thread && memory.woken.is_some() {
                    memory.woken = Some(true);
                }
                memory.waited += part.to - part.from;
            }
            doing if doing.is_asleep() && part.closed == Some(Closed::Seen) => {
                let from_disk = doing == Doing::Blocked;
                let slept = part.to - part.begin;
                self.rules
                    .credit_sleep(&mut memory.past, fixed, slept, from_disk);
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
