//! ULE's rule over recorded intervals.
use super::stat_clock::{StatClock, Uncharged};
use super::{Activity, Part, Rule};
use crate::error::Result;
use crate::policy::Settings;
use crate::policy::ule_score::{History, Scale};

const SECOND: i128 = 1_000_000_000;

pub struct Ule {
    scale: Scale,
    clock: StatClock,
}

#[derive(Debug, Clone, Default)]
pub struct Memory {
    history: History,
    left: Uncharged,
}

impl Ule {
    pub fn new(settings: &Settings, phase: Option<i64>) -> Result<Self> {
        let scale = Scale::new(settings)?;
        Ok(Self {
            clock: StatClock {
                hz: scale.stathz,
                phase,
            },
            scale,
        })
    }

    fn run(&self, memory: &mut Memory, from: i64, to: i64, changed: &mut dyn FnMut(i64, &Memory)) {
        let tick = self.scale.per_stat_tick();
        let mut left = memory.left;
        self.clock.ticks(&mut left, from, to, |at| {
            self.scale.add_run(&mut memory.history, tick);
            changed(at, memory);
        });
        memory.left = left;
    }
}

impl Rule for Ule {
    type Memory = Memory;

    fn horizon(&self) -> i64 {
        // Ticks of run turn over a history of `max` ticks every `max` ticks.
        (i128::from(self.scale.max) * 20 * SECOND / i128::from(self.scale.hz)) as i64
    }

    fn fork(&self, parent: &mut Memory, child: &mut Memory) {
        child.history = parent.history.clone();
        self.scale.inherit(&mut child.history);
        // The work of the fork is charged as one tick.
        self.scale
            .add_run(&mut parent.history, self.scale.per_stat_tick());
    }

    fn exit(&self, child: &Memory, parent: &mut Memory) {
        self.scale.add_run(&mut parent.history, child.history.run);
    }

    fn pass(&self, memory: &mut Memory, part: &Part, changed: &mut dyn FnMut(i64, &Memory)) {
        match part.doing {
            Activity::Running => self.run(memory, part.from, part.to, changed),
            doing if doing.is_asleep() && part.closed == Some(super::Closed::Seen) => {
                let slept = self.scale.ticks_at(part.to) - self.scale.ticks_at(part.begin);
                if slept > 0 {
                    self.scale.add_sleep(&mut memory.history, slept);
                    changed(part.to, memory);
                }
            }
            _ => {}
        }
    }

    fn score(&self, memory: &Memory, nice: i64) -> (i64, bool) {
        let score = self.scale.score_with_nice(&memory.history, nice);
        (score, self.scale.is_interactive(score))
    }
}
