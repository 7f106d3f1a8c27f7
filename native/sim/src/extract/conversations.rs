//! Which thread a wait is for: the partner in a conversation, or any thread.
use super::super::load::op;
use super::{Extractor, NOBODY};

/// Two threads converse if the rarer direction has at least this fraction (1 in
/// so many) of the wakes of the other.
const CONVERSATION: u64 = 20;

/// A thread has a partner if at most this fraction (1 in so many) of its wakes by
/// threads are by others.
const OTHERS: u64 = 20;

impl Extractor {
    /// For each thread the one that nearly alone wakes it and that it nearly alone
    /// wakes, both ways about as often; `NOBODY` if there is none.
    fn partners(&self) -> Vec<u32> {
        let n = self.threads.len();
        let mut wakes = vec![0u64; n];
        let mut most = vec![(0u64, NOBODY); n];
        for ((from, to), count) in &self.sent {
            wakes[*to as usize] += count;
            let best = &mut most[*to as usize];
            // Of two that wake it as often none is its partner: any rule will do.
            *best = (*best).max((*count, *from));
        }
        let waker = |t: usize| {
            let (count, from) = most[t];
            if (wakes[t] - count) * OTHERS <= wakes[t] {
                from
            } else {
                NOBODY
            }
        };
        (0..n)
            .map(|a| {
                let b = waker(a);
                if b == NOBODY || waker(b as usize) != a as u32 {
                    return NOBODY;
                }
                let (there, back) = (most[a].0, most[b as usize].0);
                if there.min(back) * CONVERSATION >= there.max(back) {
                    b
                } else {
                    NOBODY
                }
            })
            .collect()
    }

    /// Signals keep `meet` only between two threads that converse with each other and no others.
    /// There the sender goes on to need an answer; when it was preempted by its own wakee it found
    /// the answer ready, and the trace shows no sleep and no wake. Under a policy that does not
    /// preempt it, it would otherwise run ahead of answers that it has not got. Where more than two
    /// take part, a message may be answered by any of them, and a sender that waited for one of
    /// them would wait for nothing.
    ///
    /// A thread without a partner that several wake waits for any of them: which child ends first,
    /// or which writer writes, is the scheduler's doing. It waits as often as it is woken, so that
    /// the order of the trace still is one in which every wait ends.
    pub(super) fn settle_whom_waits_are_for(&mut self) {
        let partners = self.partners();
        let mut wakers = vec![0u32; self.threads.len()];
        for (_, to) in self.sent.keys() {
            wakers[*to as usize] += 1;
        }
        for (w, th) in self.threads.iter_mut().enumerate() {
            let partner = partners[w];
            let mut held = 0;
            for step in &mut th.steps {
                match step.op {
                    op::LOCK => held += 1,
                    op::UNLOCK => held -= 1,
                    _ if step.meet => {
                        // The holder of a mutex does not wait for a reader, which may need it
                        // first.
                        step.meet = held == 0 && partner == step.thread;
                        self.report.meetings += u64::from(step.meet);
                    }
                    _ => {}
                }
            }
            if wakers[w] < 2 || partner != NOBODY {
                continue;
            }
            for step in th.steps.iter_mut().filter(|s| s.op == op::WAIT_FOR) {
                step.thread = NOBODY;
                self.report.waits_for_anyone += 1;
            }
        }
    }
}
