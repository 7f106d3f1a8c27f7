//! The offsets between clocks that leave the fewest breaks of order.

use std::collections::HashMap;

use super::order::{Kind, Seen};
use super::{Examiner, LEFT, MENDED, Offset};

/// Width of the classes that differences of times are sorted into, ns.
const CLASS: i64 = 50_000;
/// Classes that are tried: those with most differences.
const TRIED: usize = 16;
/// So many wakeups before a switch-in, and after it, are compared with it: few, which
/// find small offsets, and many.
const REACHES: [usize; 3] = [2, 16, 128];
/// Events that most offsets are tried on.
const FIRST: usize = 1 << 17;
/// Step of the search around a promising offset, ns, and steps to either side.
const STEP: i64 = 2_500;
const STEPS: i64 = 40;
/// An offset that is not known better than this, ns, is not known.
const WIDEST: i64 = 100_000_000;
/// Rates of clocks that are too slow or too fast: the least, how many, and by how much each
/// is more than the one before.
const SLOWEST: f64 = 1e-5;
const RATES: i32 = 27;
const FASTER: f64 = 1.35;
/// Parts that a trace is cut into where no constant offset does.
const PARTS: usize = 8;

impl Examiner<'_> {
    /// CPUs whose clocks differ from the others', by how much, the surest first.
    pub fn offsets(mut self) -> Vec<Offset> {
        // What is told of losses comes at their beginning.
        self.seen.sort_by_key(|seen| seen.ts);
        // With two CPUs it is the same whichever is moved.
        let threads_did = self.seen.iter().filter(|seen| seen.kind != Kind::Lost);
        let mut with_events: Vec<u16> = threads_did.map(|seen| seen.cpu).collect();
        with_events.sort_unstable();
        with_events.dedup();
        let spare = usize::from(with_events.len() == 2);
        let movable = with_events.split_off(spare);
        let as_stamped = self.seen.clone();
        let breaks = self.breaks(&self.seen, None);
        let mut found = self.constant(&movable, spare);
        // Are they constant, as was assumed? Then they explain every break.
        let left = self.breaks(&self.seen, None);
        if found.is_empty() || left.saturating_mul(LEFT) > breaks {
            if let Some((cpu, not)) = self.handed.stranger() {
                return vec![Offset {
                    cpu,
                    ahead: None,
                    breaks: not,
                    left: not,
                }];
            }
            self.seen = as_stamped;
            let changing = if breaks < self.least() {
                None
            } else {
                let each = movable.iter().filter_map(|&cpu| self.changing(cpu));
                each.min_by_key(|one| one.left)
            };
            return changing.map_or_else(|| self.late(&self.seen), |one| vec![one]);
        }
        if left > 0 {
            let changing = Offset {
                ahead: None,
                left,
                ..found[0]
            };
            found = vec![changing];
        }
        found
    }

    /// Takes the offset of one CPU after the other out of the stamps, as long as that mends
    /// something.
    fn constant(&mut self, movable: &[u16], spare: usize) -> Vec<Offset> {
        let mut found: Vec<Offset> = Vec::new();
        while found.len() + 1 < movable.len() + spare {
            let breaks = self.breaks(&self.seen, None);
            if breaks < MENDED {
                break;
            }
            let free = |cpu: &&u16| found.iter().all(|one| one.cpu != **cpu);
            let tried = movable.iter().filter(free);
            let best = tried
                .map(|&cpu| self.best(&self.seen, cpu))
                .min_by_key(|one| one.left);
            let Some(best) = best else { break };
            let middle = match best.middle() {
                // Tried on the first events, it may be the worse for the others.
                Some(middle) if breaks.saturating_sub(best.left) >= self.least() => middle,
                _ => break,
            };
            found.push(best);
            self.shift(best.cpu, middle);
            if found.len() > 1 {
                self.refine(&mut found);
            }
        }
        found
    }

    /// What was found before was found among clocks that were wrong themselves.
    fn refine(&mut self, found: &mut [Offset]) {
        for one in found {
            let again = self.best(&self.seen, one.cpu);
            if let (Some((least, most)), Some(middle)) = (again.ahead, one.middle()) {
                one.ahead = Some((middle + least, middle + most));
                self.shift(one.cpu, again.middle().unwrap_or(0));
            }
        }
    }

    /// Takes `ahead` from the stamps of `cpu`.
    fn shift(&mut self, cpu: u16, ahead: i64) {
        for seen in self.seen.iter_mut().filter(|seen| seen.cpu == cpu) {
            seen.ts -= ahead;
        }
        self.seen.sort_by_key(|seen| seen.ts);
    }

    /// The offset of `cpu` that leaves the fewest breaks of order.
    fn best(&self, seen: &[Seen], cpu: u16) -> Offset {
        let first = &seen[..seen.len().min(FIRST)];
        let at_first = |ahead| self.breaks(first, Some((cpu, ahead)));
        let likely = self.likely(first, cpu).into_iter();
        let start = likely.map(|ahead| (at_first(ahead), ahead)).min();
        let start = start.map_or(0, |(_, ahead)| ahead);
        // The middle of the longest run of equally good ones around it.
        let around: Vec<(i64, u32)> = (-STEPS..=STEPS)
            .map(|step| start + step * STEP)
            .map(|ahead| (ahead, at_first(ahead)))
            .collect();
        let fewest = around.iter().map(|&(_, breaks)| breaks).min().unwrap_or(0);
        let runs = around.chunk_by(|one, next| (one.1 == fewest) == (next.1 == fewest));
        let run = runs
            .filter(|run| run[0].1 == fewest)
            .max_by_key(|run| run.len());
        let middle = run.map_or(start, |run| run[run.len() / 2].0);
        let left = |ahead| self.breaks(seen, Some((cpu, ahead)));
        let fewest = left(middle);
        let edge = |sign: i64| {
            let (mut good, mut step) = (0, STEP);
            while good < WIDEST && left(middle + sign * (good + step)) <= fewest {
                good += step;
                step *= 2;
            }
            while step > 500 {
                step /= 2;
                if left(middle + sign * (good + step)) <= fewest {
                    good += step;
                }
            }
            // What was not tried lies within the last step.
            middle + sign * (good + step)
        };
        let (least, most) = (edge(-1), edge(1));
        Offset {
            cpu,
            ahead: (most - least <= WIDEST).then_some((least, most)),
            breaks: self.breaks(seen, None),
            left: fewest,
        }
    }

    /// Offsets at which many wakeups on one side come just before a switch-in on the other.
    fn likely(&self, seen: &[Seen], cpu: u16) -> Vec<i64> {
        let wake = if seen.iter().any(|event| event.kind == Kind::Enqueued) {
            Kind::Enqueued
        } else {
            Kind::Waking
        };
        let mut wakes: HashMap<u32, [Vec<i64>; 2]> = HashMap::new();
        let mut ins: HashMap<u32, [Vec<i64>; 2]> = HashMap::new();
        for event in seen {
            let side = usize::from(event.cpu == cpu);
            if event.kind == wake {
                wakes.entry(event.thread).or_default()[side].push(event.ts);
            } else if event.kind == Kind::In {
                ins.entry(event.thread).or_default()[side].push(event.ts);
            }
        }
        let mut likely = vec![0];
        for reach in REACHES {
            let mut classes: HashMap<i64, u32> = HashMap::new();
            for (thread, wakes) in &wakes {
                let Some(ins) = ins.get(thread) else { continue };
                for (wakes, ins, sign) in [(&wakes[0], &ins[1], 1), (&wakes[1], &ins[0], -1)] {
                    for to in ins {
                        let at = wakes.partition_point(|from| from < to);
                        let near = at.saturating_sub(reach)..(at + reach).min(wakes.len());
                        for from in &wakes[near] {
                            let ahead = sign * (to - from);
                            *classes.entry(ahead.div_euclid(CLASS)).or_default() += 1;
                        }
                    }
                }
            }
            let mut order: Vec<(u32, i64)> = classes
                .iter()
                .map(|(&class, &count)| {
                    let next = classes.get(&(class + 1)).copied().unwrap_or(0);
                    (count + next, class)
                })
                .collect();
            order.sort_unstable_by_key(|&(count, class)| (std::cmp::Reverse(count), class));
            for (_, class) in order.into_iter().take(TRIED) {
                let at = class * CLASS;
                likely.extend([at, at + CLASS / 2, at + CLASS]);
            }
        }
        likely.sort_unstable();
        likely.dedup();
        likely
    }

    /// Does the offset of `cpu` change with time? No one offset does, but parts of the
    /// trace have each their own, or the clock has a rate of its own.
    fn changing(&self, cpu: u16) -> Option<Offset> {
        let (mut breaks, mut left) = (0, 0);
        for part in self.seen.chunks(self.seen.len().div_ceil(PARTS).max(64)) {
            let best = self.best(part, cpu);
            breaks += best.breaks;
            left += best.left;
        }
        let mut best = (breaks.saturating_sub(left), breaks, left);
        let (breaks, left) = self.drifting(cpu);
        best = best.max((breaks.saturating_sub(left), breaks, left));
        // Of few breaks one or two can be mended by chance.
        let (mended, breaks, left) = best;
        let few = mended < 2 * MENDED;
        let changes = mended >= self.least() && left <= mended && (left == 0 || !few);
        changes.then_some(Offset {
            cpu,
            ahead: None,
            breaks,
            left,
        })
    }

    /// Breaks of order as it stands, and if the clock of `cpu` is slow or fast by the rate
    /// that leaves the fewest.
    fn drifting(&self, cpu: u16) -> (u32, u32) {
        let first = &self.seen[..self.seen.len().min(FIRST >> 2)];
        let Some(begin) = first.first().map(|event| event.ts) else {
            return (0, 0);
        };
        let left = |rate: f64| {
            let mut steady = first.to_vec();
            for event in &mut steady {
                if event.cpu == cpu {
                    event.ts -= ((event.ts - begin) as f64 * rate) as i64;
                }
            }
            let likely = self.likely(&steady, cpu).into_iter();
            let left = likely.map(|ahead| self.breaks(&steady, Some((cpu, ahead))));
            left.min().unwrap_or(0)
        };
        let rates = (0..RATES).map(|step| SLOWEST * FASTER.powi(step));
        let rates = rates.flat_map(|rate| [rate, -rate]);
        let tried = rates.map(|rate| (left(rate), rate));
        let Some(mut best) = tried.min_by_key(|one| one.0) else {
            return (0, 0);
        };
        let mut near = FASTER - 1.0;
        for _ in 0..6 {
            near /= 2.0;
            for rate in [best.1 * (1.0 + near), best.1 * (1.0 - near)] {
                let left = left(rate);
                if left < best.0 {
                    best = (left, rate);
                }
            }
        }
        (self.breaks(first, None), best.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_that_mends_the_beginning_and_breaks_the_rest_is_not_taken_out() {
        let mut silent = |_, _| Ok(());
        let mut examiner = Examiner::new(2, true, &mut silent);
        let mut saw = |thread, cpu, ts, kind| {
            examiner.threads.entry(thread).or_insert(thread);
            examiner.seen.push(Seen {
                ts,
                thread,
                cpu,
                kind,
            });
        };
        // Woken on CPU 0, `late` by its clock, to run on CPU 1.
        let woken = |saw: &mut dyn FnMut(u32, u16, i64, Kind), begin, late| {
            saw(0, 1, begin, Kind::AtRest);
            saw(0, 0, begin + 5_000 + late, Kind::Waking);
            saw(0, 0, begin + 6_000 + late, Kind::Enqueued);
            saw(0, 1, begin + 10_000, Kind::In);
        };
        let mut now = 1_000_000;
        for _ in 0..6 {
            woken(&mut saw, now, 60_000);
            now += 120_000;
        }
        for _ in 0..FIRST / 2 {
            saw(1, 0, now, Kind::In);
            saw(1, 0, now + 10, Kind::Ready);
            now += 20;
        }
        for _ in 0..100 {
            woken(&mut saw, now, 0);
            now += 20_000;
        }
        let late = Offset {
            cpu: 1,
            ahead: None,
            breaks: 6,
            left: 6,
        };
        assert_eq!(examiner.offsets(), [late]);
    }
}
