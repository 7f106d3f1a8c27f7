//! Losses of which a source reports the number but not the place: they may be in any gap between
//! two events of the CPU that is long enough (docs/trace-model.md, Losses).

use std::sync::Arc;

use crate::ahead;
use crate::coverage::{Hole, with_holes};
use crate::error::Result;
use crate::hooks::check_interrupt;
use crate::model::event::{Event, EventSink, LossReason, Source};

/// No CPU records events faster than one in so many ns, over a row of them.
const FASTEST: i64 = 250;

/// Losses come in rows, a full buffer's at a time, and a long row needs long; but a row of
/// more than so many is not counted on.
const ROW: u64 = 32;

/// `source` with every gap among its losses that may hide one of those `anywhere` (CPU or,
/// if None, any of them, and how many). Reads the source once, by so many threads.
pub fn marked(
    mut source: Box<dyn Source>,
    anywhere: &[(Option<u16>, u64)],
    jobs: usize,
) -> Result<Box<dyn Source>> {
    let mut finder = Finder::new(source.info().ncpu, source.info().window, anywhere);
    ahead::run(&mut *source, &mut finder, jobs, &Arc::default())?;
    let holes = finder.holes();
    Ok(with_holes(source, holes))
}

#[derive(Debug, Clone, Default)]
struct Cpu {
    /// The shortest gap that may hide what is missing; None: nothing is.
    least: Option<i64>,
    first: Option<i64>,
    last: i64,
    /// The source reports a loss until then.
    told: i64,
}

struct Finder {
    cpus: Vec<Cpu>,
    window: (Option<i64>, Option<i64>),
    first: i64,
    last: i64,
    holes: Vec<Hole>,
}

impl Finder {
    fn new(ncpu: u16, window: (Option<i64>, Option<i64>), anywhere: &[(Option<u16>, u64)]) -> Self {
        let mut cpus = vec![Cpu::default(); usize::from(ncpu)];
        // A single event leaves its trace: a broken chain, or a wakeup that is missing.
        for &(cpu, count) in anywhere.iter().filter(|&&(_, count)| count > 1) {
            let least = count.min(ROW) as i64 * FASTEST;
            for (number, one) in (0u16..).zip(&mut cpus) {
                if cpu.is_none_or(|cpu| cpu == number) {
                    one.least = Some(one.least.map_or(least, |known| known.min(least)));
                    one.told = i64::MIN;
                }
            }
        }
        Self {
            cpus,
            window,
            first: i64::MAX,
            last: i64::MIN,
            holes: Vec::new(),
        }
    }

    fn seen(&mut self, number: u16, ts: i64) {
        let Some(cpu) = self.cpus.get_mut(usize::from(number)) else {
            return;
        };
        let Some(least) = cpu.least else { return };
        if cpu.first.is_none() {
            cpu.first = Some(ts);
        } else if ts.saturating_sub(cpu.last) >= least && cpu.told < ts {
            self.holes.push(Hole {
                cpu: number,
                begin: cpu.last,
                end: ts,
                reason: LossReason::Overrun,
            });
        }
        cpu.last = ts;
    }

    /// In order of their begins.
    fn holes(mut self) -> Vec<Hole> {
        let begin = self.window.0.map_or(self.first, |ts| ts.min(self.first));
        let end = self.window.1.map_or(self.last, |ts| ts.max(self.last));
        for (number, cpu) in (0u16..).zip(&self.cpus) {
            let Some(least) = cpu.least else { continue };
            let mut edge = |from: i64, to: i64, reason| {
                if to.saturating_sub(from) >= least {
                    self.holes.push(Hole {
                        cpu: number,
                        begin: from,
                        end: to,
                        reason,
                    });
                }
            };
            match cpu.first {
                Some(first) => {
                    edge(begin, first, LossReason::LateStart);
                    if cpu.told < end {
                        edge(cpu.last, end, LossReason::EarlyEnd);
                    }
                }
                None => edge(begin, end, LossReason::Absent),
            }
        }
        self.holes.sort_by_key(|hole| (hole.begin, hole.cpu));
        self.holes
    }
}

impl EventSink for Finder {
    fn event(&mut self, event: &Event) -> Result<()> {
        let ts = event.ts();
        if let Event::Loss { cpu, ts_end, .. } = *event {
            let told = match cpu {
                Some(cpu) => self.cpus.get_mut(usize::from(cpu)..=usize::from(cpu)),
                None => Some(self.cpus.as_mut_slice()),
            };
            for one in told.into_iter().flatten() {
                one.told = one.told.max(ts_end);
            }
            self.last = self.last.max(ts_end);
        } else if let Some(cpu) = event.recorded_on() {
            self.seen(cpu, ts);
        }
        self.first = self.first.min(ts);
        self.last = self.last.max(ts);
        Ok(())
    }

    /// Ctrl-C ends the pass, where Python runs us.
    fn progress(&mut self, _: u64, _: u64) -> Result<()> {
        check_interrupt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::WakeKind;

    fn wakeup(cpu: u16, ts: i64) -> Event {
        Event::Wakeup {
            ts,
            cpu,
            kind: WakeKind::Waking,
            waker: None,
            current: None,
            who: crate::model::event::Party::unknown(),
            target_cpu: None,
        }
    }

    fn found(anywhere: &[(Option<u16>, u64)], events: &[Event]) -> Vec<(u16, i64, i64)> {
        let mut finder = Finder::new(2, (None, Some(9_000)), anywhere);
        for event in events {
            finder.event(event).unwrap();
        }
        let holes = finder.holes().into_iter();
        holes.map(|hole| (hole.cpu, hole.begin, hole.end)).collect()
    }

    #[test]
    fn a_loss_is_in_any_gap_of_its_cpu_that_is_long_enough() {
        let events = [
            wakeup(1, 0),
            wakeup(0, 1_000),
            wakeup(0, 1_400),
            wakeup(1, 3_000),
            wakeup(0, 2_400),
            wakeup(0, 8_900),
        ];
        // Two events need 500 ns.
        let expected = [(0, 0, 1_000), (0, 1_400, 2_400), (0, 2_400, 8_900)];
        assert_eq!(found(&[(Some(0), 2)], &events), expected);
        // Twenty need 5 us, wherever they are.
        let expected = [(1, 3_000, 9_000), (0, 2_400, 8_900)];
        let mut holes = found(&[(None, 20)], &events);
        holes.sort_by_key(|hole| std::cmp::Reverse(hole.1));
        assert_eq!(holes, expected);
        // One alone cannot hide that it is missing.
        assert!(found(&[(None, 1)], &events).is_empty());
    }

    #[test]
    fn a_loss_that_the_source_places_is_told_once() {
        let loss = Event::Loss {
            cpu: Some(0),
            ts_begin: 1_000,
            ts_end: 8_000,
            count: None,
            reason: LossReason::Overrun,
        };
        let events = [wakeup(0, 1_000), loss, wakeup(0, 8_000), wakeup(0, 8_900)];
        assert_eq!(found(&[(Some(0), 2)], &events), [(0, 8_000, 8_900)]);
    }
}
