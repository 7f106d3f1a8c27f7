//! The order that a thread's events must have, and where it is broken.

use super::Examiner;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    In,
    Ready,
    AtRest,
    Gone,
    /// Nothing is known of the thread.
    Unborn,
    /// Nothing is known of any thread.
    Lost,
    Waking,
    Enqueued,
}

#[derive(Debug, Clone, Copy)]
pub struct Seen {
    pub ts: i64,
    /// Numbered without holes, in order of appearance.
    pub thread: u32,
    pub cpu: u16,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum LastSeen {
    #[default]
    Unknown,
    Running,
    AtRest,
    /// On a queue, or on its way to one.
    Queued,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Thread {
    pub doing: LastSeen,
    pub cpu: u16,
    /// A `waking` came while it was running.
    pub pending: bool,
    /// Its wait began with a `waking`, and no enqueueing came yet.
    pub placing: bool,
    /// Its wait began with a wakeup.
    pub woken: bool,
    /// Wakings that came while it was queued: broken order, unless it turns out that a switch-in
    /// was not seen.
    pub doubtful: u32,
}

/// Events in order of time, those of one CPU apart from all others.
pub(super) struct Sides {
    cpu: Vec<Seen>,
    others: Vec<Seen>,
}

impl Sides {
    pub(super) fn of(seen: &[Seen], cpu: u16) -> Self {
        let (cpu, others) = seen.iter().partition(|event| event.cpu == cpu);
        Self { cpu, others }
    }
}

fn doubtful(threads: &[Thread]) -> u32 {
    threads.iter().map(|thread| thread.doubtful).sum()
}

impl Examiner<'_> {
    /// Breaks of order in the events as they stand.
    pub(super) fn breaks(&self, seen: &[Seen]) -> u32 {
        let mut threads = vec![Thread::default(); self.threads.len()];
        let breaks: u32 = seen
            .iter()
            .map(|event| self.step(&mut threads, event))
            .sum();
        breaks + doubtful(&threads)
    }

    /// Of the breaks of order at least so many are left whatever the clocks say. A switch-in is
    /// one, but for a thread's first, unless something since the last one has let the thread run.
    pub(super) fn unmendable(&self, seen: &[Seen]) -> u32 {
        let mut lost = 0;
        let mut ins = vec![0_u32; self.threads.len()];
        let mut explained = vec![1_u32; self.threads.len()];
        for event in seen {
            let thread = event.thread as usize;
            match event.kind {
                Kind::In => ins[thread] += 1,
                Kind::AtRest => {}
                Kind::Lost => lost += 1,
                Kind::Ready | Kind::Gone | Kind::Unborn | Kind::Waking | Kind::Enqueued => {
                    explained[thread] += 1;
                }
            }
        }
        let threads = ins.iter().zip(explained);
        threads
            .map(|(ins, explained)| ins.saturating_sub(explained + lost))
            .sum()
    }

    /// Breaks of order if the clock of the CPU apart is `ahead` ns ahead; None if they are more
    /// than `most`, which is known before all events are looked at.
    pub(super) fn breaks_apart(&self, seen: &Sides, ahead: i64, most: u32) -> Option<u32> {
        let mut threads = vec![Thread::default(); self.threads.len()];
        let mut breaks = 0;
        let mut there = seen.cpu.iter().peekable();
        for event in &seen.others {
            while let Some(early) = there.next_if(|early| early.ts - ahead < event.ts) {
                breaks += self.step(&mut threads, early);
            }
            breaks += self.step(&mut threads, event);
            if breaks > most {
                return None;
            }
        }
        for late in there {
            breaks += self.step(&mut threads, late);
        }
        breaks += doubtful(&threads);
        (breaks <= most).then_some(breaks)
    }

    /// One event of a thread: how many turn out to be such that cannot follow on those before.
    #[inline]
    pub(super) fn step(&self, threads: &mut [Thread], event: &Seen) -> u32 {
        if event.kind == Kind::Lost {
            threads.fill(Thread::default());
        }
        let Some(thread) = threads.get_mut(event.thread as usize) else {
            return 0;
        };
        let was = *thread;
        let doubtful = match event.kind {
            Kind::In | Kind::Ready | Kind::AtRest | Kind::Gone => was.doubtful,
            _ => 0,
        };
        let broken = match event.kind {
            Kind::In => {
                *thread = Thread {
                    doing: LastSeen::Running,
                    cpu: event.cpu,
                    ..Thread::default()
                };
                match was.doing {
                    LastSeen::Unknown => false,
                    LastSeen::Running => true,
                    LastSeen::AtRest => !was.pending,
                    LastSeen::Queued => was.placing && self.both_steps,
                }
            }
            Kind::Ready | Kind::AtRest | Kind::Gone => {
                *thread = Thread {
                    doing: match event.kind {
                        Kind::Ready => LastSeen::Queued,
                        Kind::AtRest => LastSeen::AtRest,
                        _ => LastSeen::Unknown,
                    },
                    pending: was.pending && event.kind == Kind::AtRest,
                    ..Thread::default()
                };
                let there = was.doing == LastSeen::Running && was.cpu == event.cpu;
                was.doing != LastSeen::Unknown && !there
            }
            // A switch-in that was not seen: what woke the thread before may have found it
            // running, and then its enqueueing comes only after it has gone to rest.
            Kind::Unborn => {
                *thread = Thread {
                    pending: was.pending || was.placing || was.doubtful > 0,
                    ..Thread::default()
                };
                false
            }
            Kind::Lost => {
                *thread = Thread::default();
                false
            }
            Kind::Waking => match was.doing {
                LastSeen::Running => {
                    thread.pending = true;
                    false
                }
                LastSeen::Queued => {
                    thread.doubtful += u32::from(was.woken);
                    false
                }
                LastSeen::Unknown | LastSeen::AtRest => {
                    *thread = Thread {
                        doing: LastSeen::Queued,
                        placing: true,
                        woken: true,
                        ..Thread::default()
                    };
                    false
                }
            },
            Kind::Enqueued => {
                thread.pending = false;
                thread.placing = false;
                match was.doing {
                    LastSeen::Running => self.both_steps && !was.pending,
                    LastSeen::Queued => false,
                    LastSeen::Unknown | LastSeen::AtRest => {
                        thread.doing = LastSeen::Queued;
                        thread.woken = true;
                        self.both_steps && was.doing == LastSeen::AtRest && !was.pending
                    }
                }
            }
        };
        doubtful + u32::from(broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaks(events: &[(Kind, u16)]) -> u32 {
        let mut silent = |_, _| Ok(());
        let mut examiner = Examiner::new(2, true, &mut silent);
        examiner.threads.insert(7, 0);
        let seen: Vec<Seen> = (0..)
            .zip(events)
            .map(|(ts, &(kind, cpu))| Seen {
                ts,
                thread: 0,
                cpu,
                kind,
            })
            .collect();
        examiner.breaks(&seen)
    }

    /// Woken, run, woken again while it runs, asleep, and only then queued by the second waking.
    const WOKEN_TWICE: [(Kind, u16); 5] = [
        (Kind::AtRest, 1),
        (Kind::Waking, 0),
        (Kind::Enqueued, 1),
        (Kind::Waking, 0),
        (Kind::AtRest, 1),
    ];

    #[test]
    fn a_second_waking_breaks_the_order_where_no_switch_is_missing() {
        assert_eq!(breaks(&WOKEN_TWICE), 2);
    }

    #[test]
    fn a_switch_in_that_was_not_seen_explains_a_second_waking() {
        let mut events = WOKEN_TWICE.to_vec();
        // What the Examiner notes of a thread that leaves a CPU and was never switched in there.
        events.insert(4, (Kind::Unborn, 1));
        events.push((Kind::Enqueued, 1));
        assert_eq!(breaks(&events), 0);
    }

    #[test]
    fn switch_ins_that_nothing_let_happen_are_broken_in_any_order() {
        let mut silent = |_, _| Ok(());
        let mut examiner = Examiner::new(2, true, &mut silent);
        for thread in 0..2 {
            examiner.threads.insert(thread, thread);
        }
        let kinds = [
            Kind::In,
            Kind::In,
            Kind::In,
            Kind::In,
            Kind::In,
            Kind::AtRest,
            Kind::AtRest,
            Kind::AtRest,
            Kind::Ready,
            Kind::Gone,
            Kind::Unborn,
            Kind::Waking,
            Kind::Enqueued,
            Kind::Lost,
        ];
        let mut random = 1_u32;
        let mut next = |below: usize| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 16) as usize % below
        };
        let (mut unmendable, mut tight) = (0, 0);
        for _ in 0..2000 {
            // Lost events explain much: there are none in most.
            let of = kinds.len() - usize::from(next(8) > 0);
            let mut seen: Vec<Seen> = (0..next(24))
                .map(|ts| Seen {
                    ts: ts as i64,
                    thread: next(2) as u32,
                    cpu: next(2) as u16,
                    kind: kinds[next(of)],
                })
                .collect();
            let least = examiner.unmendable(&seen);
            unmendable += u32::from(least > 0);
            for _ in 0..8 {
                let breaks = examiner.breaks(&seen);
                assert!(least <= breaks, "{least} of {breaks}: {seen:?}");
                tight += u32::from(least > 0 && least == breaks);
                let (one, other) = (next(seen.len().max(1)), next(seen.len().max(1)));
                if one < seen.len() {
                    seen.swap(one, other);
                }
            }
        }
        assert!(unmendable > 500 && tight > 100, "{unmendable} {tight}");
    }

    #[test]
    fn a_thread_woken_twice_and_not_seen_again_breaks_the_order() {
        assert_eq!(breaks(&WOKEN_TWICE[..4]), 1);
    }
}
