//! The offsets between clocks that leave the fewest breaks of order.

use std::cmp::Reverse;

use rustc_hash::{FxHashMap, FxHashSet};

use super::order::{Kind, Seen, Sides, Thread};
use super::{Examiner, LEFT, MENDED, Offset, THEIRS};

/// Width of the classes that differences of times are sorted into, ns.
const CLASS: i64 = 50_000;
/// Of fewer classes, to either side, each has its place in a list.
const DENSE: i64 = 1 << 16;
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
/// So many of them are one where no more is asked than whether an offset mends.
const COARSE: i64 = 4;
/// An offset that is not known better than this, ns, is not known.
const WIDEST: i64 = 100_000_000;
/// Rates of clocks that are too slow or too fast: the least, how many, and by how much each
/// is more than the one before.
const SLOWEST: f64 = 1e-5;
const RATES: i32 = 27;
const FASTER: f64 = 1.35;
/// Parts that a trace is cut into where no constant offset does.
const PARTS: usize = 8;

/// How many differences of times lie in each class.
enum Classes {
    /// From the class of the greatest negative difference on.
    Dense(Vec<u32>),
    Sparse(FxHashMap<i64, u32>),
}

impl Classes {
    /// For differences between these events, which are in order of time but for shifts.
    fn of(seen: &[Seen]) -> Self {
        let times = seen.iter().map(|event| event.ts);
        let (first, last) = times.fold((i64::MAX, i64::MIN), |(first, last), ts| {
            (first.min(ts), last.max(ts))
        });
        let half = last.saturating_sub(first) / CLASS + 1;
        if (0..DENSE).contains(&half) {
            Self::Dense(vec![0; 2 * half as usize + 1])
        } else {
            Self::Sparse(FxHashMap::default())
        }
    }

    #[inline]
    fn count(&mut self, ahead: i64) {
        let class = ahead.div_euclid(CLASS);
        match self {
            Self::Dense(counts) => {
                let middle = (counts.len() / 2) as i64;
                counts[(class + middle) as usize] += 1;
            }
            Self::Sparse(counts) => *counts.entry(class).or_default() += 1,
        }
    }

    /// The classes that have most, each with its next; of equal ones the lowest.
    fn fullest(&self, most: usize) -> Vec<i64> {
        let mut order: Vec<(Reverse<u32>, i64)> = match self {
            Self::Dense(counts) => {
                let middle = (counts.len() / 2) as i64;
                let with_next = counts.iter().zip(counts[1..].iter().chain([&0]));
                (-middle..)
                    .zip(with_next)
                    .filter(|(_, (count, _))| **count > 0)
                    .map(|(class, (count, next))| (Reverse(count + next), class))
                    .collect()
            }
            Self::Sparse(counts) => counts
                .iter()
                .map(|(&class, &count)| {
                    let next = counts.get(&(class + 1)).copied().unwrap_or(0);
                    (Reverse(count + next), class)
                })
                .collect(),
        };
        if order.len() > most {
            order.select_nth_unstable(most);
            order.truncate(most);
        }
        order.sort_unstable();
        order.into_iter().map(|(_, class)| class).collect()
    }
}

impl Examiner<'_> {
    /// CPUs whose clocks differ from the others', by how much, the surest first.
    pub fn offsets(mut self) -> Vec<Offset> {
        self.leave_out_unwoken();
        // Losses are sent at their start.
        self.seen.sort_by_key(|seen| seen.ts);
        // With two CPUs it is the same whichever is moved.
        let threads_did = self.seen.iter().filter(|seen| seen.kind != Kind::Lost);
        let mut with_events: Vec<u16> = threads_did.map(|seen| seen.cpu).collect();
        with_events.sort_unstable();
        with_events.dedup();
        let spare = usize::from(with_events.len() == 2);
        let movable = with_events.split_off(spare);
        if self.seen.iter().all(|seen| seen.ts % 1000 == 0) {
            self.resolution = 1000;
        }
        let as_stamped = self.seen.clone();
        let breaks = self.breaks(&self.seen);
        // An offset of a clock mends none of these, and explains nothing where they are many.
        let unmendable = self.unmendable(&self.seen);
        let mut found = if unmendable.saturating_mul(LEFT) > breaks {
            Vec::new()
        } else {
            self.constant(&movable, spare)
        };
        // Are they constant, as was assumed? Then they explain every break, but for those of
        // threads that the kernel hides.
        let left = self.left(&found);
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
            let changing = if breaks < self.least() || self.few(breaks) {
                None
            } else {
                let each = movable.iter().filter_map(|&cpu| self.changing(cpu));
                each.min_by_key(|one| one.left)
            };
            return changing.map_or_else(|| self.late(&self.seen), |one| vec![one]);
        }
        let theirs = if self.hides() { breaks / THEIRS } else { 0 };
        if left > theirs && !self.few(left) {
            let changing = Offset {
                ahead: None,
                left,
                ..found[0]
            };
            found = vec![changing];
        }
        let coarse = self.resolution;
        for one in found.iter_mut().filter(|_| coarse > 1) {
            one.left = left;
            one.ahead = one
                .ahead
                .map(|(least, most)| (least - coarse, most + coarse));
        }
        found
    }

    /// Fewer than one event in a thousand is out of order: that comes from elsewhere, such as an
    /// event that is logged a little late, and is not worth every wait of the trace.
    fn few(&self, breaks: u32) -> bool {
        (breaks as usize).saturating_mul(THEIRS as usize) < self.seen.len()
    }

    /// The breaks of order that are left. Where stamps are rounded, two clocks that are moved
    /// against each other round differently: what is in order if either is moved by one more or
    /// one less is not broken.
    fn left(&self, found: &[Offset]) -> u32 {
        let coarse = self.resolution;
        if coarse <= 1 || found.is_empty() {
            return self.breaks(&self.seen);
        }
        let moves = found
            .iter()
            .flat_map(|one| [(one.cpu, -coarse), (one.cpu, coarse)]);
        let broken = moves.map(|(cpu, by)| self.broken(cpu, by));
        let always = broken.reduce(|one, other| one.intersection(&other).copied().collect());
        always.map_or(0, |always| always.len() as u32)
    }

    /// The events that cannot follow on those before if the stamps of `cpu` are moved, by their
    /// numbers; threads that end in doubt by theirs, from the greatest number down.
    fn broken(&self, cpu: u16, by: i64) -> FxHashSet<usize> {
        let moved = |&(_, event): &(usize, &Seen)| event.ts + if event.cpu == cpu { by } else { 0 };
        let mut order: Vec<(usize, &Seen)> = self.seen.iter().enumerate().collect();
        order.sort_by_key(moved);
        let mut threads = vec![Thread::default(); self.threads.len()];
        let mut broken = FxHashSet::default();
        for (number, event) in order {
            if self.step(&mut threads, event) > 0 {
                broken.insert(number);
            }
        }
        let doubtful = (0..)
            .zip(&threads)
            .filter(|(_, thread)| thread.doubtful > 0);
        broken.extend(doubtful.map(|(thread, _): (usize, _)| usize::MAX - thread));
        broken
    }

    /// Takes the offset of one CPU after the other out of the stamps, as long as that mends
    /// something.
    fn constant(&mut self, movable: &[u16], spare: usize) -> Vec<Offset> {
        let mut found: Vec<Offset> = Vec::new();
        while found.len() + 1 < movable.len() + spare {
            let breaks = self.breaks(&self.seen);
            // An offset is believed that leaves no more than so many.
            let Some(most) = breaks.checked_sub(self.least()) else {
                break;
            };
            let free = |cpu: &&u16| found.iter().all(|one| one.cpu != **cpu);
            let tried = movable.iter().filter(free);
            let best = tried.map(|&cpu| self.best(cpu, breaks, most));
            let Some(best) = best.min_by_key(|one| one.left) else {
                break;
            };
            let middle = match best.middle() {
                // Tried on the first events, it may be the worse for the others.
                Some(middle) if best.left <= most => middle,
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
            let again = self.best(one.cpu, one.breaks, u32::MAX);
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

    /// The offset of `cpu` that leaves the fewest of the `breaks` of order; how far from it others
    /// do is not asked where it leaves more than `most`.
    fn best(&self, cpu: u16, breaks: u32, most: u32) -> Offset {
        let seen = &self.seen;
        let first = &seen[..seen.len().min(FIRST)];
        let beginning = Sides::of(first, cpu);
        // No offset is one of those that are tried.
        let without = self.breaks(first).saturating_add(1);
        let (mut fewest, start) = self.fewest(&beginning, &self.likely(first, cpu), without);
        let start = start.unwrap_or(0);
        // The middle of the longest run of equally good ones around it.
        let around: Vec<(i64, u32)> = (-STEPS..=STEPS)
            .map(|step| {
                let ahead = start + step * STEP;
                let breaks = self.breaks_apart(&beginning, ahead, fewest);
                fewest = breaks.unwrap_or(fewest);
                (ahead, breaks.unwrap_or(u32::MAX))
            })
            .collect();
        let runs = around.chunk_by(|one, next| (one.1 == fewest) == (next.1 == fewest));
        let run = runs
            .filter(|run| run[0].1 == fewest)
            .max_by_key(|run| run.len());
        let middle = run.map_or(start, |run| run[run.len() / 2].0);
        let whole = Sides::of(seen, cpu);
        let fewest = self
            .breaks_apart(&whole, middle, u32::MAX)
            .unwrap_or(u32::MAX);
        let found = |ahead| Offset {
            cpu,
            ahead,
            breaks,
            left: fewest,
        };
        if fewest > most {
            return found(None);
        }
        let edge = |sign: i64| {
            let as_good = |by: i64| {
                let ahead = middle + sign * by;
                self.breaks_apart(&whole, ahead, fewest).is_some()
            };
            let (mut good, mut step) = (0, STEP);
            while good < WIDEST && as_good(good + step) {
                good += step;
                step *= 2;
            }
            while step > 500 {
                step /= 2;
                if as_good(good + step) {
                    good += step;
                }
            }
            // What was not tried lies within the last step.
            middle + sign * (good + step)
        };
        let (least, most) = (edge(-1), edge(1));
        found((most - least <= WIDEST).then_some((least, most)))
    }

    /// The fewest breaks that an offset of `cpu` leaves of those that there are: as `best`, but
    /// what matters is no more than how many.
    fn least_left(&self, seen: &[Seen], cpu: u16, breaks: u32) -> u32 {
        let sides = Sides::of(seen, cpu);
        let (mut fewest, mut at) = (breaks, 0);
        let mut attempt = |offsets: &[i64]| {
            let (fewer, first) = self.fewest(&sides, offsets, fewest);
            (fewest, at) = (fewer, first.unwrap_or(at));
            at
        };
        let start = attempt(&self.likely(seen, cpu));
        let around = |start: i64, steps: i64, step: i64| -> Vec<i64> {
            (-steps..=steps).map(|by| start + by * step).collect()
        };
        let near = attempt(&around(start, STEPS / COARSE, STEP * COARSE));
        attempt(&around(near, COARSE, STEP));
        fewest
    }

    /// The fewest breaks that one of these offsets leaves, and the first that leaves so few; None
    /// if none leaves less than `before`.
    fn fewest(&self, seen: &Sides, offsets: &[i64], before: u32) -> (u32, Option<i64>) {
        let (mut fewest, mut first) = (before, None);
        for &ahead in offsets {
            let Some(most) = fewest.checked_sub(1) else {
                break;
            };
            if let Some(breaks) = self.breaks_apart(seen, ahead, most) {
                (fewest, first) = (breaks, Some(ahead));
            }
        }
        (fewest, first)
    }

    /// Offsets at which many wakeups on one side come just before a switch-in on the other.
    fn likely(&self, seen: &[Seen], cpu: u16) -> Vec<i64> {
        let wake = if seen.iter().any(|event| event.kind == Kind::Enqueued) {
            Kind::Enqueued
        } else {
            Kind::Waking
        };
        let mut wakes: FxHashMap<u32, [Vec<i64>; 2]> = FxHashMap::default();
        let mut ins: FxHashMap<u32, [Vec<i64>; 2]> = FxHashMap::default();
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
            let mut classes = Classes::of(seen);
            for (thread, wakes) in &wakes {
                let Some(ins) = ins.get(thread) else { continue };
                for (wakes, ins, sign) in [(&wakes[0], &ins[1], 1), (&wakes[1], &ins[0], -1)] {
                    for to in ins {
                        let at = wakes.partition_point(|from| from < to);
                        let near = at.saturating_sub(reach)..(at + reach).min(wakes.len());
                        for from in &wakes[near] {
                            classes.count(sign * (to - from));
                        }
                    }
                }
            }
            for class in classes.fullest(TRIED) {
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
        let of_parts = self.apart(cpu, true);
        let of_rate = self.drifting(cpu);
        // A rate is believed only if it mends more than the parts do, which are looked at no
        // further than it takes to know that they are not.
        let of_parts = match of_parts {
            None if self.believed(of_rate) => self.apart(cpu, false),
            known => known,
        };
        let mended = |(breaks, left): (u32, u32)| (breaks.saturating_sub(left), breaks, left);
        let parts_mend_more = |parts: &(u32, u32)| mended(*parts) > mended(of_rate);
        let best = of_parts.filter(parts_mend_more).unwrap_or(of_rate);
        let (breaks, left) = best;
        self.believed(best).then_some(Offset {
            cpu,
            ahead: None,
            breaks,
            left,
        })
    }

    /// Is what leaves so many of the breaks more than chance?
    fn believed(&self, (breaks, left): (u32, u32)) -> bool {
        let mended = breaks.saturating_sub(left);
        // Of few breaks one or two can be mended by chance.
        let few = mended < 2 * MENDED;
        mended >= self.least() && left <= mended && (left == 0 || !few)
    }

    /// Breaks of order in the parts of the trace, and those that are left if the clock of `cpu` has
    /// an offset of its own in each; None, if asked, where those are too many to be believed.
    fn apart(&self, cpu: u16, believed_only: bool) -> Option<(u32, u32)> {
        let parts = self.seen.chunks(self.seen.len().div_ceil(PARTS).max(64));
        let known: Vec<(u32, u32)> = parts
            .clone()
            .map(|part| (self.breaks(part), self.unmendable(part)))
            .collect();
        let breaks: u32 = known.iter().map(|part| part.0).sum();
        // At least so many, once some parts have been looked at.
        let mut left: u32 = known.iter().map(|part| part.1).sum();
        for (part, (before, unmendable)) in parts.zip(known) {
            if believed_only && !self.believed((breaks, left)) {
                return None;
            }
            left += self.least_left(part, cpu, before) - unmendable;
        }
        Some((breaks, left))
    }

    /// Breaks of order as it stands, and if the clock of `cpu` is slow or fast by the rate
    /// that leaves the fewest.
    fn drifting(&self, cpu: u16) -> (u32, u32) {
        let first = &self.seen[..self.seen.len().min(FIRST >> 2)];
        let Some(begin) = first.first().map(|event| event.ts) else {
            return (0, 0);
        };
        let breaks = self.breaks(first);
        // To be believed it has to mend so many; a rate near it mends half of them.
        let enough = self.least().max(breaks.div_ceil(2));
        if enough > breaks - self.unmendable(first) {
            return (breaks, breaks);
        }
        // The fewest breaks that any rate leaves so far, and the first that does.
        let mut best = (breaks - enough / 2 + 1, SLOWEST);
        let mut attempt = |rate: f64| {
            let mut steady = first.to_vec();
            for event in &mut steady {
                if event.cpu == cpu {
                    event.ts -= ((event.ts - begin) as f64 * rate) as i64;
                }
            }
            let likely = self.likely(&steady, cpu);
            let (fewest, better) = self.fewest(&Sides::of(&steady, cpu), &likely, best.0);
            if better.is_some() {
                best = (fewest, rate);
            }
            best.1
        };
        let mut rate = SLOWEST;
        for step in 0..RATES {
            for sign in [1.0, -1.0] {
                rate = attempt(sign * SLOWEST * FASTER.powi(step));
            }
        }
        let mut near = FASTER - 1.0;
        for _ in 0..6 {
            near /= 2.0;
            for rate_near in [rate * (1.0 + near), rate * (1.0 - near)] {
                rate = attempt(rate_near);
            }
        }
        (breaks, best.0.min(breaks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_counted_alike_in_a_list_and_in_a_table() {
        let at = |ts| Seen {
            ts,
            thread: 0,
            cpu: 0,
            kind: Kind::In,
        };
        let seen = [at(0), at(20 * CLASS)];
        let mut list = Classes::of(&seen);
        let mut table = Classes::of(&[at(0), at(CLASS * DENSE)]);
        assert!(matches!(list, Classes::Dense(_)));
        assert!(matches!(table, Classes::Sparse(_)));
        for ahead in [-20 * CLASS, -1, 0, CLASS - 1, CLASS, 20 * CLASS, 3 * CLASS] {
            list.count(ahead);
            table.count(ahead);
        }
        for most in [1, 2, 16] {
            assert_eq!(list.fullest(most), table.fullest(most));
        }
        // Three in class 0 and its next; two in the one before, with 0; one in each other.
        assert_eq!(list.fullest(3), [-1, 0, -20]);
    }

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
