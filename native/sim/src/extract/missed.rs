//! Rounds of a periodic thread that it was too late to sleep before.
//!
//! A thread that works off one instant after the other (`clock_nanosleep` with
//! `TIMER_ABSTIME`) and is behind does not sleep: the instant has passed. The kernel
//! sets the timer all the same (`do_nanosleep` of kernel/time/hrtimer.c), which fires
//! at once and wakes the thread that runs, or one that slept for the moment that the
//! interrupt took. Where a replay gives the thread more CPU time it would have slept
//! there, and where such rounds are most of them its period is not seen without them.
//!
//! Between two sleeps there are as many periods as instants passed, and one: this distinguishes
//! such a wake from others that come from outside, and gives each of them its instant.
use super::median;
use super::outside::{CLOSE, ENOUGH, LATE, OutsideSleep, STEADIER};

/// An interrupt on its own CPU woke a thread that ran.
#[derive(Debug, Clone, Copy)]
pub(super) struct SelfWake {
    /// The step that it falls into, and after how much of it, ns.
    pub step: u32,
    pub after: i64,
    pub at: i64,
}

/// An instant that had passed when the thread came to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Missed {
    pub step: u32,
    /// So much of the step comes before; `None`: the step is a sleep, too short to be one.
    pub after: Option<i64>,
    pub instant: i64,
}

/// The rounds of a thread whose timer's instants it missed now and then.
#[derive(Debug)]
pub(super) struct Rounds {
    pub period: i64,
    slept: Vec<OutsideSleep>,
    late: Vec<Late>,
    /// From one sleep to the next: how far from as many periods as there were rounds.
    offs: Vec<i64>,
    fits: Vec<bool>,
}

/// A moment at which the thread came to an instant that had passed.
#[derive(Debug, Clone, Copy)]
struct Late {
    step: u32,
    after: Option<i64>,
    at: i64,
    /// So many of the sleeps were before it.
    before: usize,
}

/// Of a thread its sleeps, and when it came to instants that had passed.
fn parted(sleeps: &[OutsideSleep], wakes: &[SelfWake]) -> (Vec<OutsideSleep>, Vec<Late>) {
    let (short, slept): (Vec<OutsideSleep>, Vec<OutsideSleep>) =
        sleeps.iter().partition(|s| s.woken - s.since <= LATE);
    let woken = wakes.iter().map(|w| (w.step, Some(w.after), w.at));
    let mut late: Vec<Late> = woken
        .chain(short.iter().map(|s| (s.step, None, s.woken)))
        .map(|(step, after, at)| Late {
            step,
            after,
            at,
            before: 0,
        })
        .collect();
    late.sort_unstable_by_key(|l| l.at);
    (slept, late)
}

/// The rounds of a thread that slept so and was woken so, if a period explains both.
pub(super) fn rounds(sleeps: &[OutsideSleep], wakes: &[SelfWake]) -> Option<Rounds> {
    if wakes.is_empty() || wakes.len() + sleeps.len() < ENOUGH {
        return None;
    }
    let (slept, late) = parted(sleeps, wakes);
    // The first of the sleeps may be another one, before the thread read the clock.
    (0..slept.len().min(2)).find_map(|first| {
        let spans = Spans::of(&slept[first..], late.clone());
        let period = spans.period()?;
        spans.rounds(period).filter(Rounds::are_steady)
    })
}

/// The same of a thread that slept too seldom, if others of its kind have this period: its first
/// sleep until an instant is the one number `first`.
pub(super) fn rounds_of_period(
    sleeps: &[OutsideSleep],
    wakes: &[SelfWake],
    first: usize,
    period: i64,
) -> Option<Rounds> {
    let (slept, late) = parted(sleeps, wakes);
    let known = !late.is_empty() && first < slept.len();
    known.then(|| Spans::of(&slept[first..], late).rounds(period))?
}

/// Those of `late`, which are in order, that came after so many sleeps.
fn after_sleeps(late: &[Late], n: usize) -> &[Late] {
    let from = late.partition_point(|l| l.before < n);
    let len = late[from..].partition_point(|l| l.before == n);
    &late[from..from + len]
}

/// From one sleep to the next.
struct Spans {
    slept: Vec<OutsideSleep>,
    late: Vec<Late>,
    /// How long, and how many rounds.
    spans: Vec<(i64, i64)>,
}

impl Spans {
    fn of(slept: &[OutsideSleep], mut late: Vec<Late>) -> Self {
        for l in &mut late {
            l.before = slept.partition_point(|s| s.woken <= l.at);
        }
        let missed = |i: usize| after_sleeps(&late, i + 1).len() as i64;
        let spans = slept
            .windows(2)
            .enumerate()
            .map(|(i, w)| (w[1].woken - w[0].woken, 1 + missed(i)))
            .collect();
        Self {
            slept: slept.to_vec(),
            late,
            spans,
        }
    }

    fn period(&self) -> Option<i64> {
        let lengths: Vec<i64> = self.spans.iter().map(|(d, n)| d / n).collect();
        median(&lengths).filter(|p| *p > 0)
    }

    fn rounds(self, period: i64) -> Option<Rounds> {
        let off = |(d, n): &(i64, i64)| (d - n * period).abs();
        let offs: Vec<i64> = self.spans.iter().map(off).collect();
        let fits: Vec<bool> = offs.iter().map(|off| off * CLOSE <= period).collect();
        let n_fit = fits.iter().filter(|f| **f).count();
        (n_fit * 10 >= fits.len() * 9).then_some(Rounds {
            period,
            slept: self.slept,
            late: self.late,
            offs,
            fits,
        })
    }
}

impl Rounds {
    /// Whether the instants are steadier than the sleeps, or enough was missed between sleeps: a
    /// thread that sleeps for a time misses nothing.
    fn are_steady(&self) -> bool {
        let fitting = || (0..self.fits.len()).filter(|i| self.fits[*i]);
        if fitting().count() < 2 {
            return false;
        }
        let within = |l: &&Late| l.before > 0 && self.fits.get(l.before - 1) == Some(&true);
        if self.late.iter().filter(within).count() >= ENOUGH {
            return true;
        }
        let lengths: Vec<i64> = fitting()
            .map(|i| self.slept[i + 1].woken - self.slept[i + 1].since)
            .collect();
        let usual = median(&lengths).unwrap_or(0);
        let of_instants: i64 = fitting().map(|i| self.offs[i]).sum();
        let of_lengths: i64 = lengths.iter().map(|length| (length - usual).abs()).sum();
        of_instants * STEADIER < of_lengths
    }

    /// The first of its sleeps, in which the timer may not have ended another one.
    pub(super) fn first(&self) -> Option<OutsideSleep> {
        self.slept.first().copied()
    }

    /// The sleeps that the timer ended.
    pub(super) fn timed(&self) -> Vec<OutsideSleep> {
        let fits = |i: usize| self.fits.get(i) == Some(&true);
        let on_time = |i: &usize| fits(*i) || i.checked_sub(1).is_some_and(fits);
        (0..self.slept.len())
            .filter(on_time)
            .map(|i| self.slept[i])
            .collect()
    }

    /// The instants that had passed, if the thread came to each only after it; of those before
    /// its first sleep only if they count from `read`, when it looked at the clock.
    pub(super) fn missed(&self, read: Option<i64>) -> Vec<Missed> {
        let mut found = Vec::new();
        for before in 0..=self.slept.len() {
            let here = after_sleeps(&self.late, before);
            let last = before == self.slept.len();
            let from = match (before, read) {
                (0, Some(read)) => {
                    // The first sleep is that many periods after the look at the clock, and a bit.
                    let here = here.iter().filter(|l| l.at > read).count() as i64;
                    let first = self.slept[0].woken - (here + 1) * self.period;
                    if (first - read).abs() * CLOSE > self.period {
                        continue;
                    }
                    first
                }
                (0, None) => continue,
                _ if !last && !self.fits[before - 1] => continue,
                _ => self.slept[before - 1].woken,
            };
            let counted = here
                .iter()
                .filter(|l| before > 0 || read.is_some_and(|r| l.at > r));
            for (i, late) in counted.enumerate() {
                let instant = from + (i as i64 + 1) * self.period;
                if late.at + LATE < instant {
                    break;
                }
                found.push(Missed {
                    step: late.step,
                    after: late.after,
                    instant,
                });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn sleep(step: u32, since: i64, woken: i64) -> OutsideSleep {
        OutsideSleep {
            step,
            since: since * MS,
            woken: woken * MS,
            came: Some(woken * MS),
        }
    }

    fn wake(step: u32, after: i64, at: i64) -> SelfWake {
        SelfWake {
            step,
            after: after * MS,
            at: at * MS,
        }
    }

    /// Sleeps until 10, 20, 50, 60 and 100 ms, and between them comes late to 30, 40, 70, 80, 90.
    fn late() -> (Vec<OutsideSleep>, Vec<SelfWake>) {
        let sleeps = [
            (0, 3, 10),
            (2, 11, 20),
            (4, 48, 50),
            (6, 59, 60),
            (8, 95, 100),
        ];
        let wakes = [(3, 2, 35), (3, 5, 44), (7, 1, 75), (7, 4, 84), (7, 8, 92)];
        (
            sleeps
                .map(|(step, since, woken)| sleep(step, since, woken))
                .to_vec(),
            wakes
                .map(|(step, after, at)| wake(step, after, at))
                .to_vec(),
        )
    }

    fn instants(missed: &[Missed]) -> Vec<i64> {
        missed.iter().map(|m| m.instant / MS).collect()
    }

    #[test]
    fn what_was_missed_between_two_sleeps_has_the_instants_between() {
        let (sleeps, wakes) = late();
        let rounds = rounds(&sleeps, &wakes).unwrap();
        assert_eq!((rounds.period, rounds.timed().len()), (10 * MS, 5));
        let missed = rounds.missed(None);
        assert_eq!(instants(&missed), [30, 40, 70, 80, 90]);
        assert_eq!((missed[1].step, missed[1].after), (3, Some(5 * MS)));
    }

    #[test]
    fn a_sleep_of_no_length_is_an_instant_that_had_passed() {
        let (mut sleeps, mut wakes) = late();
        wakes.remove(3);
        let at = 84 * MS;
        let short = OutsideSleep {
            step: 9,
            since: at - 20_000,
            woken: at,
            came: None,
        };
        sleeps.insert(4, short);
        let missed = rounds(&sleeps, &wakes).unwrap().missed(None);
        assert_eq!(instants(&missed), [30, 40, 70, 80, 90]);
        assert_eq!((missed[3].step, missed[3].after), (9, None));
    }

    #[test]
    fn before_the_first_sleep_they_count_from_the_look_at_the_clock() {
        let (sleeps, mut wakes) = late();
        wakes.insert(0, wake(1, 3, 15));
        let rounds = rounds(&sleeps[1..], &wakes).unwrap();
        assert_eq!(instants(&rounds.missed(Some(0))), [10, 30, 40, 70, 80, 90]);
        assert_eq!(instants(&rounds.missed(None)), [30, 40, 70, 80, 90]);
        // One more is missing.
        assert_eq!(
            instants(&rounds.missed(Some(-10 * MS))),
            [30, 40, 70, 80, 90]
        );
    }

    #[test]
    fn who_comes_before_an_instant_did_not_miss_it() {
        let (sleeps, mut wakes) = late();
        wakes.extend([wake(9, 1, 115), wake(9, 2, 116)]);
        let missed = rounds(&sleeps, &wakes).unwrap().missed(None);
        assert_eq!(instants(&missed), [30, 40, 70, 80, 90, 110]);
    }

    #[test]
    fn other_numbers_of_wakes_are_no_instants() {
        let (sleeps, wakes) = late();
        let every_other: Vec<SelfWake> = wakes.iter().step_by(2).copied().collect();
        assert!(rounds(&sleeps, &every_other).is_none());
        assert!(rounds(&sleeps, &[]).is_none());
    }

    #[test]
    fn a_known_period_needs_one_sleep() {
        let (sleeps, wakes) = late();
        let rounds = rounds_of_period(&sleeps[..2], &wakes[..2], 1, 10 * MS).unwrap();
        assert_eq!(instants(&rounds.missed(Some(10 * MS))), [30, 40]);
        assert!(rounds_of_period(&sleeps[..2], &wakes[..2], 2, 10 * MS).is_none());
    }
}
