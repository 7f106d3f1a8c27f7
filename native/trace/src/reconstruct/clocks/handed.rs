//! Do the CPUs' events belong together? Who is woken for a CPU runs there.
//!
//! See docs/trace-model.md, section Clocks.

use std::collections::HashMap;

use crate::model::event::{Event, Party, UNKNOWN_TID, WakeKind};

/// So many threads that a CPU was handed and did not run, and more than those that it did:
/// it does not belong to the CPUs that handed them.
const FEW: u32 = 4;
/// So many that it did run, and twice as many as it did not: it belongs to them.
const MANY: u32 = 4 * FEW;
/// Threads that are followed at a time.
const FOLLOWED: usize = 1 << 16;

/// Whose tid to compare: idle threads are all the same here.
fn known(who: &Party) -> u32 {
    if who.idle { 0 } else { who.tid }
}

/// Threads woken on one CPU for another, and whether they came to run there.
#[derive(Debug, Default)]
pub struct Handed {
    /// By tid: the CPU, until the thread's next event, and its `unseen` then.
    to: HashMap<u32, (u16, u32)>,
    /// By CPU: the thread that was switched in last.
    running: HashMap<u16, u32>,
    /// By CPU: how often switches there were found to be missing. Waiting threads may have run.
    unseen: HashMap<u16, u32>,
    /// By CPU: threads that ran there next, and those that were woken again instead, which only
    /// happens after a run and a sleep.
    came: HashMap<u16, (u32, u32)>,
    /// By CPU: those woken again that are not counted until the CPU's next switch shows that it
    /// recorded all the time. In a gap of its events they may have run there.
    again: HashMap<u16, u32>,
    /// The same before its first switch. Then and after its last one it may not have been recorded;
    /// that is believed of a CPU that ran some of those that it was handed.
    before: HashMap<u16, u32>,
}

impl Handed {
    pub fn event(&mut self, event: &Event) {
        match *event {
            Event::Switch {
                cpu,
                ref prev,
                ref next,
                ..
            } => {
                let believed = self.running.insert(cpu, known(next));
                if let Some(again) = self.again.remove(&cpu) {
                    if believed.is_none() {
                        self.before.insert(cpu, again);
                    } else if believed == Some(known(prev)) {
                        self.came.entry(cpu).or_default().1 += again;
                    }
                }
                self.to.remove(&prev.tid);
                if self.to.remove(&next.tid).is_some_and(|(to, _)| to == cpu) {
                    self.came.entry(cpu).or_default().0 += 1;
                }
            }
            Event::Wakeup {
                cpu,
                kind,
                ref who,
                target_cpu,
                ..
            } => {
                if kind == WakeKind::Waking
                    && let Some((to, unseen)) = self.to.remove(&who.tid)
                    && self.unseen_on(to) == unseen
                {
                    *self.again.entry(to).or_default() += 1;
                    self.came.entry(to).or_default();
                }
                if let Some(to) = target_cpu
                    && kind != WakeKind::Waking
                    && to != cpu
                    && who.tid != UNKNOWN_TID
                    // On its way to sleep and woken before it got there, it just goes on.
                    && self.running.get(&to) != Some(&who.tid)
                    && self.to.len() < FOLLOWED
                {
                    self.to.insert(who.tid, (to, self.unseen_on(to)));
                }
            }
            Event::Migrate { ref who, .. } => {
                self.to.remove(&who.tid);
            }
            // Waiting threads may have run there.
            Event::Loss { .. } => {
                self.to.clear();
                self.again.clear();
            }
            _ => {}
        }
    }

    /// The thread leaving `cpu` is not the one switched in there last.
    pub fn switches_missing(&mut self, cpu: u16) {
        *self.unseen.entry(cpu).or_default() += 1;
    }

    fn unseen_on(&self, cpu: u16) -> u32 {
        self.unseen.get(&cpu).copied().unwrap_or(0)
    }

    /// Has it been seen that these CPUs belong together? Each ran many of those that it was handed.
    pub fn all_belong(&self, cpus: &[u16]) -> bool {
        let at = |of: &HashMap<u16, u32>, cpu| of.get(cpu).copied().unwrap_or(0);
        cpus.iter().all(|cpu| {
            let (ran, not) = self.came.get(cpu).copied().unwrap_or_default();
            let not = not + at(&self.again, cpu) + at(&self.before, cpu);
            ran >= MANY.max(2 * not)
        })
    }

    /// The CPU that ran fewest of the threads it was handed, if it does not belong to the
    /// others, and how many it did not run.
    pub fn stranger(&self) -> Option<(u16, u32)> {
        let at = |edge: &HashMap<u16, u32>, cpu| edge.get(&cpu).copied().unwrap_or(0);
        // A CPU that never switches has no events that could be of another recording.
        let own = |cpu| self.running.contains_key(cpu);
        let came = self.came.iter().filter(|(cpu, _)| own(cpu));
        let came = came.map(|(&cpu, &(ran, not))| {
            let unseen = at(&self.before, cpu) + at(&self.again, cpu);
            (cpu, ran, if ran < FEW { not + unseen } else { not })
        });
        let strange = came.filter(|&(_, ran, not)| not >= FEW && not > ran);
        let (cpu, _, not) = strange.max_by_key(|&(cpu, ran, not)| (not - ran, cpu))?;
        Some((cpu, not))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{LossReason, State};

    fn wakeup(tid: u32, kind: WakeKind) -> Event {
        Event::Wakeup {
            ts: 0,
            cpu: 0,
            kind,
            waker: None,
            current: None,
            who: Party {
                tid,
                ..Party::unknown()
            },
            target_cpu: Some(1),
        }
    }

    fn runs(tid: u32, cpu: u16) -> Event {
        Event::Switch {
            ts: 0,
            cpu,
            prev: Party::unknown(),
            prev_state: State::Sleeping,
            preempted: None,
            next: Party {
                tid,
                ..Party::unknown()
            },
        }
    }

    /// The CPU switches from one thread to the next, and runs no other.
    fn goes_on(cpu: u16, prev: u32, next: u32) -> Event {
        let mut event = runs(next, cpu);
        if let Event::Switch { prev: party, .. } = &mut event {
            party.tid = prev;
        }
        event
    }

    /// What CPU 0 says of each thread, while CPU 1 records its own.
    fn stranger(each: impl Fn(u32) -> Vec<Event>) -> Option<(u16, u32)> {
        let mut handed = Handed::default();
        for tid in 10..16 {
            handed.event(&runs(5, 1));
            for event in each(tid) {
                handed.event(&event);
            }
            let on = handed.running[&1];
            handed.event(&goes_on(1, on, 5));
        }
        handed.stranger()
    }

    fn woken_twice(handed: &mut Handed) {
        use WakeKind::{Enqueued, Waking};
        for tid in 10..16 {
            for kind in [Waking, Enqueued, Waking, Enqueued] {
                handed.event(&wakeup(tid, kind));
            }
        }
    }

    #[test]
    fn before_its_first_switch_and_after_its_last_one_a_cpu_may_have_run_them() {
        let handed = |belongs: bool| {
            let mut handed = Handed::default();
            woken_twice(&mut handed);
            for tid in 20..24 {
                if belongs {
                    handed.event(&wakeup(tid, WakeKind::Enqueued));
                }
                handed.event(&runs(tid, 1));
            }
            woken_twice(&mut handed);
            handed
        };
        assert_eq!(handed(true).stranger(), None);
        // It ran no thread put on its queue: nothing shows that it belongs to the others.
        assert_eq!(handed(false).stranger(), Some((1, 18)));
        let mut goes_on_recording = handed(true);
        goes_on_recording.event(&goes_on(1, 23, 5));
        assert_eq!(goes_on_recording.stranger(), Some((1, 12)));
    }

    #[test]
    fn cpus_belong_together_once_each_ran_many_of_those_it_was_handed() {
        let mut handed = Handed::default();
        for tid in 20..20 + MANY {
            assert!(!handed.all_belong(&[1]));
            handed.event(&wakeup(tid, WakeKind::Enqueued));
            handed.event(&runs(tid, 1));
        }
        assert!(handed.all_belong(&[1]));
        // Nothing is known of the one that hands them.
        assert!(!handed.all_belong(&[0, 1]));
        woken_twice(&mut handed);
        assert!(handed.all_belong(&[1]));
        woken_twice(&mut handed);
        assert!(!handed.all_belong(&[1]));
    }

    #[test]
    fn in_a_gap_that_breaks_its_chain_a_cpu_may_have_run_them() {
        let mut handed = Handed::default();
        handed.event(&runs(5, 1));
        woken_twice(&mut handed);
        handed.event(&goes_on(1, 7, 8));
        handed.event(&goes_on(1, 8, 9));
        assert_eq!(handed.stranger(), None);
    }

    #[test]
    fn who_is_woken_before_it_got_to_sleep_need_not_be_switched_in() {
        use WakeKind::{Enqueued, Waking};
        let again = |tid| vec![runs(tid, 1), wakeup(tid, Waking), wakeup(tid, Enqueued)];
        let twice = |tid| [&again(tid)[..], &again(tid)[1..]].concat();
        assert_eq!(stranger(twice), None);
    }

    #[test]
    fn who_is_woken_again_may_have_run_where_switches_are_missing() {
        use WakeKind::{Enqueued, Waking};
        let mut handed = Handed::default();
        for tid in 10..16 {
            handed.event(&wakeup(tid, Enqueued));
            handed.switches_missing(1);
            handed.event(&wakeup(tid, Waking));
        }
        assert_eq!(handed.stranger(), None);
    }

    #[test]
    fn a_cpu_that_runs_nobody_it_is_handed_is_a_stranger() {
        use WakeKind::{Enqueued, Waking};
        let woken = |tid| vec![wakeup(tid, Waking), wakeup(tid, Enqueued)];
        let again = |tid, between: &[Event]| [&woken(tid)[..], between, &woken(tid)].concat();
        assert_eq!(stranger(|tid| again(tid, &[])), Some((1, 6)));
        assert_eq!(stranger(|tid| again(tid, &[runs(tid, 1)])), None);
        // Not woken again, they may still wait.
        assert_eq!(stranger(woken), None);
        // Three are too few.
        let some = |tid| if tid < 13 { again(tid, &[]) } else { vec![] };
        assert_eq!(stranger(some), None);
        let loss = Event::Loss {
            cpu: Some(1),
            ts_begin: 0,
            ts_end: 1,
            count: None,
            reason: LossReason::Overrun,
        };
        assert_eq!(
            stranger(|tid| again(tid, std::slice::from_ref(&loss))),
            None
        );
    }
}
