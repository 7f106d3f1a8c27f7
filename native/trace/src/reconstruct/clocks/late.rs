//! Events that break the order because another CPU's come too late: no lost wakeup explains
//! them, since what was missing comes after all.
//!
//! See docs/trace-model.md, section Clocks.

use std::collections::BTreeMap;

use super::order::{Kind, LastSeen, Seen, Thread};
use super::{Examiner, Offset};

/// So many events that come too late, and more than switches that are missing: the clocks of
/// their CPUs differ.
const FEW: u32 = 2;
/// Wakings during a run without a wakeup are taken for late if so many would come by chance with no
/// more than this probability.
const BY_CHANCE: f64 = 1e-3;

/// What a run of a thread lacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Lacks {
    #[default]
    Nothing,
    Wakeup,
    Enqueueing,
}

#[derive(Debug, Clone, Copy, Default)]
struct Run {
    lacks: Lacks,
    /// Another CPU woke the thread while it ran.
    woken: bool,
    /// It ran on the first of these CPUs when it was switched in on the second, and its switch-out
    /// on the first has not come yet. If it never does, it is missing and not late.
    both: Option<(u16, u16)>,
    /// The CPU that raised its last `waking`.
    waker: u16,
}

/// How often events of two CPUs came in the wrong order.
type Pairs = BTreeMap<(u16, u16), u32>;

/// Runs, and those during which another CPU raised a `waking` of the thread.
#[derive(Debug, Default)]
struct Share {
    runs: u32,
    woken: u32,
}

#[derive(Debug, Default)]
struct Findings {
    certain: Pairs,
    /// Wakings during runs without a wakeup: late, or of the next sleep.
    perhaps: Pairs,
    /// Runs with a wakeup, and runs without one.
    begun: Share,
    lacking: Share,
}

fn note(pairs: &mut Pairs, one: u16, other: u16) {
    if one != other {
        *pairs.entry((one.min(other), one.max(other))).or_default() += 1;
    }
}

impl Examiner<'_> {
    /// CPUs whose events come too late or too early among those of others, whatever the reason.
    pub(super) fn late(&self, seen: &[Seen]) -> Vec<Offset> {
        let found = self.findings(seen);
        let mut pairs = found.certain;
        if found.begun.is_exceeded_by(&found.lacking) {
            for ((one, other), times) in found.perhaps {
                *pairs.entry((one, other)).or_default() += times;
            }
        }
        // Whichever thread left unseen.
        let chain_breaks: u32 = self.leaves.values().map(|leaves| leaves.unseen).sum();
        let mut offsets = Vec::new();
        // The CPU that is part of most pairs, and what remains without it.
        loop {
            let mut by_cpu: BTreeMap<u16, u32> = BTreeMap::new();
            for (&(one, other), times) in &pairs {
                *by_cpu.entry(one).or_default() += times;
                *by_cpu.entry(other).or_default() += times;
            }
            let most = by_cpu.into_iter().max_by_key(|&(cpu, times)| (times, cpu));
            match most {
                Some((cpu, times)) if times >= FEW && times > chain_breaks => {
                    pairs.retain(|&(one, other), _| one != cpu && other != cpu);
                    offsets.push(Offset {
                        cpu,
                        ahead: None,
                        breaks: times,
                        left: times,
                    });
                }
                _ => return offsets,
            }
        }
    }

    fn findings(&self, seen: &[Seen]) -> Findings {
        let mut threads = vec![Thread::default(); self.threads.len()];
        let mut runs = vec![Run::default(); self.threads.len()];
        let mut found = Findings::default();
        for event in seen {
            let was = threads.get(event.thread as usize).copied();
            self.step(&mut threads, event);
            if event.kind == Kind::Lost {
                runs.fill(Run::default());
                continue;
            }
            let (Some(was), Some(run)) = (was, runs.get_mut(event.thread as usize)) else {
                continue;
            };
            match event.kind {
                Kind::In => {
                    let lacks = match was.doing {
                        LastSeen::AtRest if !was.pending => Lacks::Wakeup,
                        LastSeen::Queued if was.placing && self.both_steps => Lacks::Enqueueing,
                        _ => Lacks::Nothing,
                    };
                    let mut both = run.both.filter(|&(first, _)| first != event.cpu);
                    if was.doing == LastSeen::Running {
                        both = both.or(Some((was.cpu, event.cpu)));
                    } else if was.doubtful > 0 {
                        note(&mut found.certain, run.waker, event.cpu);
                    } else if lacks == Lacks::Wakeup {
                        found.lacking.runs += 1;
                    } else if was.doing == LastSeen::Queued && was.woken {
                        found.begun.runs += 1;
                    }
                    *run = Run {
                        lacks,
                        both,
                        ..Run::default()
                    };
                }
                Kind::Waking => {
                    let elsewhere = was.doing == LastSeen::Running && was.cpu != event.cpu;
                    if elsewhere && !run.woken {
                        run.woken = true;
                        if run.lacks == Lacks::Wakeup {
                            found.lacking.woken += 1;
                            note(&mut found.perhaps, was.cpu, event.cpu);
                        } else {
                            found.begun.woken += 1;
                        }
                    }
                    run.waker = event.cpu;
                }
                Kind::Enqueued => {
                    let unasked = was.doing == LastSeen::Running && !was.pending;
                    if unasked && run.lacks == Lacks::Enqueueing {
                        note(&mut found.certain, was.cpu, event.cpu);
                        run.lacks = Lacks::Nothing;
                    }
                }
                Kind::Ready | Kind::AtRest | Kind::Gone => {
                    let both = run.both.filter(|&(first, second)| {
                        let late = first == event.cpu;
                        if late {
                            note(&mut found.certain, first, second);
                        }
                        !late
                    });
                    *run = Run {
                        both,
                        ..Run::default()
                    };
                }
                Kind::Unborn | Kind::Lost => *run = Run::default(),
            }
        }
        found
    }
}

impl Share {
    /// Were more of the other's runs woken than chance explains, if each of them is as likely to
    /// be as one of these?
    fn is_exceeded_by(&self, other: &Self) -> bool {
        // One more, so that what was never seen is not impossible.
        let each = f64::from(self.woken + 1) / f64::from(self.runs + 1);
        other.woken > 0 && at_least(other.woken, other.runs, each.min(1.0)) <= BY_CHANCE
    }
}

/// The probability of `times` successes or more in `tries` of probability `each`.
fn at_least(times: u32, tries: u32, each: f64) -> f64 {
    if each >= 1.0 {
        return 1.0;
    }
    let odds = (each / (1.0 - each)).ln();
    let mut log = f64::from(tries) * (1.0 - each).ln();
    let mut fewer = 0.0;
    for so_many in 0..times.min(tries) {
        fewer += log.exp();
        let (done, left) = (f64::from(so_many + 1), f64::from(tries - so_many));
        log += (left / done).ln() + odds;
    }
    (1.0 - fewer).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::Leaves;
    use super::*;
    use Kind::{AtRest, Enqueued, In, Ready, Waking};

    /// Threads of which each does `events`, and the CPUs that come too late by them.
    fn late(threads: &[&[(Kind, u16)]], chain_breaks: u32) -> Vec<(u16, u32)> {
        let mut silent = |_, _| Ok(());
        let mut examiner = Examiner::new(4, true, &mut silent);
        let unseen = Leaves {
            seen: 0,
            unseen: chain_breaks,
        };
        examiner.leaves.insert((0, 0), unseen);
        let mut seen = Vec::new();
        for (thread, events) in (0..).zip(threads) {
            examiner.threads.insert(thread, thread);
            for &(kind, cpu) in *events {
                seen.push(Seen {
                    ts: seen.len() as i64,
                    thread,
                    cpu,
                    kind,
                });
            }
        }
        let found = examiner.late(&seen);
        assert!(found.iter().all(|one| one.ahead.is_none()));
        found.iter().map(|one| (one.cpu, one.breaks)).collect()
    }

    const ON_TWO_AT_ONCE: [(Kind, u16); 4] = [(In, 0), (In, 1), (AtRest, 0), (AtRest, 1)];
    const QUEUED_AFTER_IT_RAN: [(Kind, u16); 5] = [
        (AtRest, 1),
        (Waking, 0),
        (In, 1),
        (Enqueued, 0),
        (AtRest, 1),
    ];
    const RAN_BETWEEN: [(Kind, u16); 6] = [
        (AtRest, 1),
        (Waking, 0),
        (Enqueued, 0),
        (Waking, 0),
        (In, 1),
        (AtRest, 1),
    ];
    const WOKEN_AFTER_IT_RAN: [(Kind, u16); 5] = [
        (AtRest, 1),
        (In, 1),
        (Waking, 0),
        (Enqueued, 0),
        (AtRest, 1),
    ];
    const IN_ORDER: [(Kind, u16); 5] =
        [(AtRest, 1), (Waking, 0), (Enqueued, 0), (In, 1), (Ready, 1)];

    #[test]
    fn what_comes_after_all_was_not_lost() {
        for one in [&ON_TWO_AT_ONCE[..], &QUEUED_AFTER_IT_RAN, &RAN_BETWEEN] {
            assert_eq!(late(&[one, &IN_ORDER], 0), []);
            assert_eq!(late(&[one, &IN_ORDER, one], 0), [(1, 2)]);
            // A switch that is missing may explain one.
            assert_eq!(late(&[one, one], 2), []);
        }
    }

    #[test]
    fn a_cpu_that_is_not_heard_of_again_is_not_late() {
        // perf stops recording one CPU after another, and its thread goes to each of them.
        let stops = [(In, 0), (In, 1), (In, 2), (In, 3)];
        assert_eq!(late(&[&stops, &IN_ORDER, &stops], 0), []);
        let goes_on = [
            (In, 0),
            (In, 1),
            (AtRest, 1),
            (In, 1),
            (AtRest, 1),
            (AtRest, 0),
        ];
        assert_eq!(late(&[&goes_on, &goes_on], 0), [(1, 2)]);
    }

    #[test]
    fn a_thread_is_woken_for_its_next_sleep_while_it_runs() {
        let lost: [(Kind, u16); 3] = [(AtRest, 1), (In, 1), (AtRest, 1)];
        let going_to_sleep = [
            (AtRest, 1),
            (Waking, 0),
            (Enqueued, 0),
            (In, 1),
            (Waking, 0),
            (Enqueued, 0),
        ];
        let found = |usual: &[(Kind, u16)]| {
            let mut threads: Vec<&[(Kind, u16)]> = vec![usual; 200];
            threads.extend([&WOKEN_AFTER_IT_RAN[..]; 5]);
            threads.extend([&lost[..]; 2]);
            late(&threads, 0)
        };
        assert_eq!(found(&IN_ORDER), [(1, 5)]);
        assert_eq!(found(&going_to_sleep), []);
    }

    #[test]
    fn the_cpu_that_is_part_of_most_pairs_is_told_first() {
        let at_once = |one, other| [(In, one), (In, other), (AtRest, one), (AtRest, other)];
        let (a, b, c) = (at_once(0, 2), at_once(2, 1), at_once(0, 3));
        assert_eq!(late(&[&a, &b, &a, &b], 0), [(2, 4)]);
        assert_eq!(late(&[&a, &a, &a, &b, &b, &c, &c], 0), [(2, 5), (3, 2)]);
    }

    #[test]
    fn the_chance_of_so_many_successes() {
        assert!((at_least(1, 2, 0.5) - 0.75).abs() < 1e-12);
        assert!((at_least(2, 2, 0.5) - 0.25).abs() < 1e-12);
        assert!((at_least(0, 5, 0.3) - 1.0).abs() < 1e-12);
        assert!(at_least(3, 1000, 1e-3) < 0.09);
    }
}
