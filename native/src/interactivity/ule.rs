//! ULE's rule over recorded intervals.
use super::{Doing, Part, Rule};
use crate::sim::policy::Settings;
use crate::sim::policy::ule_score::{History, Scale};

const SECOND: i64 = 1_000_000_000;

pub struct Ule {
    scale: Scale,
    /// Instant of a tick of the statistics clock, where one is known.
    phase: Option<i64>,
}

#[derive(Debug, Clone, Default)]
pub struct Memory {
    history: History,
    /// Run since the last tick charged, ns; not used where the phase is known.
    ran: i64,
    /// Parts of a ns, in `1 / stathz`, that the ticks so far were too early.
    rest: i64,
}

impl Ule {
    pub fn new(settings: &Settings, phase: Option<i64>) -> Self {
        Self {
            scale: Scale::new(settings),
            phase,
        }
    }

    /// The ticks in `(from, to]`: one at the instant of a switch has charged the
    /// thread that left, for often the tick is what made it leave.
    fn grid(&self, phase: i64, from: i64, to: i64) -> impl Iterator<Item = i64> + use<> {
        let (hz, second) = (i128::from(self.scale.stathz), i128::from(SECOND));
        let instant = move |k: i128| (phase as i128 + (k * second + hz - 1).div_euclid(hz)) as i64;
        let mut k = ((i128::from(from) - i128::from(phase)) * hz).div_euclid(second);
        while instant(k) <= from {
            k += 1;
        }
        (k..).map(instant).take_while(move |at| *at <= to)
    }

    fn run(&self, memory: &mut Memory, from: i64, to: i64, changed: &mut dyn FnMut(i64, &Memory)) {
        let tick = self.scale.per_stat_tick();
        if let Some(phase) = self.phase {
            for at in self.grid(phase, from, to) {
                self.scale.add_run(&mut memory.history, tick);
                changed(at, memory);
            }
            return;
        }
        let (whole, part) = (SECOND / self.scale.stathz, SECOND % self.scale.stathz);
        let mut at = from;
        loop {
            let carry = i64::from(memory.rest + part >= self.scale.stathz);
            let left = whole + carry - memory.ran;
            if left > to - at {
                memory.ran += to - at;
                return;
            }
            at += left;
            memory.ran = 0;
            memory.rest += part - carry * self.scale.stathz;
            self.scale.add_run(&mut memory.history, tick);
            changed(at, memory);
        }
    }
}

impl Rule for Ule {
    type Memory = Memory;

    fn horizon(&self) -> i64 {
        // Ticks of run turn over a history of `max` ticks every `max` ticks.
        (i128::from(self.scale.max) * 20 * i128::from(SECOND) / i128::from(self.scale.hz)) as i64
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
            Doing::Running => self.run(memory, part.from, part.to, changed),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(phase: Option<i64>) -> Ule {
        let (spec, preset) = crate::sim::policy::registry::find("ule-14").unwrap();
        let settings = Settings::new("ule-14", spec.tunables, preset.values, &[]).unwrap();
        Ule::new(&settings, phase)
    }

    /// 127 ticks in each second of run, however it is cut up.
    #[test]
    fn run_is_charged_a_tick_for_each_127th_of_a_second() {
        for piece in [SECOND, SECOND / 10, 333_333, 7_874_015] {
            let (rule, mut memory, mut ticks) = (rule(None), Memory::default(), 0);
            let mut at = 0;
            while at < 10 * SECOND {
                let to = (at + piece).min(10 * SECOND);
                rule.run(&mut memory, at, to, &mut |_, _| ticks += 1);
                at = to;
            }
            assert_eq!(ticks, 1270, "in pieces of {piece} ns");
        }
    }

    #[test]
    fn a_tick_at_the_instant_of_a_switch_is_of_the_thread_that_left() {
        let rule = rule(Some(0));
        let first = 7_874_016;
        assert_eq!(rule.grid(0, 0, first).collect::<Vec<_>>(), [first]);
        assert_eq!(rule.grid(0, first, SECOND).count(), 126);
        assert_eq!(rule.grid(5, 5, SECOND + 5).count(), 127);
        assert_eq!(rule.grid(-3, -SECOND, 0).count(), 127);
    }
}
