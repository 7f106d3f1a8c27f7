//! The first ULE's rule (FreeBSD 5.2.1) over recorded intervals.
use super::stat_clock::{StatClock, Uncharged};
use super::{Activity, Closed, Part, Rule};
use crate::policy::Settings;
use crate::policy::ule_2003_score::{History, Scale};

const SECOND: i128 = 1_000_000_000;

pub struct Ule2003 {
    scale: Scale,
    clock: StatClock,
}

#[derive(Debug, Clone, Default)]
pub struct Memory {
    past: History,
    left: Uncharged,
}

impl Ule2003 {
    pub fn new(settings: &Settings, phase: Option<i64>) -> Self {
        let scale = Scale::new(settings);
        Self {
            clock: StatClock {
                hz: scale.stathz,
                phase,
            },
            scale,
        }
    }
}

impl Rule for Ule2003 {
    type Memory = Memory;

    fn horizon(&self) -> i64 {
        // As for the later ULE: ticks of run turn a history over, and none is shorter than 1 / hz.
        (i128::from(self.scale.max) * 20 * SECOND
            / i128::from(self.scale.hz.min(self.scale.stathz))) as i64
    }

    fn fork(&self, parent: &mut Memory, child: &mut Memory) {
        child.past = self.scale.fork(&mut parent.past);
    }

    fn exit(&self, child: &Memory, parent: &mut Memory) {
        self.scale.add_run(&mut parent.past, child.past.run);
    }

    fn pass(&self, memory: &mut Memory, part: &Part, changed: &mut dyn FnMut(i64, &Memory)) {
        match part.doing {
            Activity::Running => {
                let mut left = memory.left;
                self.clock.ticks(&mut left, part.from, part.to, |at| {
                    self.scale.charge_tick(&mut memory.past);
                    changed(at, memory);
                });
                memory.left = left;
            }
            doing if doing.is_asleep() && part.closed == Some(Closed::Seen) => {
                let slept = self.scale.ticks_at(part.to) - self.scale.ticks_at(part.begin);
                if slept > 0 {
                    self.scale.add_sleep(&mut memory.past, slept);
                    changed(part.to, memory);
                }
            }
            _ => {}
        }
    }

    /// Nice has no part in this score, only in the priority made of it.
    fn score(&self, memory: &Memory, _: i64) -> (i64, bool) {
        let score = self.scale.score(&memory.past);
        (score, self.scale.is_interactive(score))
    }
}
