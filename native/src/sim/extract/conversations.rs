//! Whom a wait is for: one's partner in a conversation, or whoever comes.
use super::super::load::op;
use super::{Extractor, NOBODY};

/// Two threads converse if the rarer direction has at least this fraction (1 in
/// so many) of the wakes of the other.
const CONVERSATION: u64 = 20;

impl Extractor {
    fn converse(&self, a: u32, b: u32) -> bool {
        let sent = |from, to| self.sent.get(&(from, to)).copied().unwrap_or(0);
        let (there, back) = (sent(a, b), sent(b, a));
        there.min(back) * CONVERSATION >= there.max(back)
    }

    /// Signals keep `meet` only within conversations: pairs that wake each other
    /// both ways. There the sender goes on to need an answer; when it was
    /// preempted by its own wakee it found the answer ready, and the trace has no
    /// sleep and no wake to tell. Under a policy that does not preempt it, it
    /// would otherwise run ahead of answers that it has not got.
    pub(super) fn keep_conversations(&mut self) {
        for w in 0..self.threads.len() {
            let mut steps = std::mem::take(&mut self.threads[w].steps);
            for step in steps.iter_mut().filter(|s| s.meet) {
                step.meet = self.converse(w as u32, step.thread);
                self.report.meetings += u64::from(step.meet);
            }
            self.threads[w].steps = steps;
        }
    }

    /// A thread that several wake, none of them in conversation with it, waits
    /// for whoever comes: which child ends first, or which writer writes, is the
    /// scheduler's doing. It waits as often as it is woken, so that the order of
    /// the trace still is one in which every wait ends.
    pub(super) fn wait_for_whoever_comes(&mut self) {
        let mut wakers = vec![(0u32, false); self.threads.len()];
        for (from, to) in self.sent.keys() {
            let (n, converses) = &mut wakers[*to as usize];
            *n += 1;
            *converses |= self.converse(*from, *to);
        }
        for (th, (n, converses)) in self.threads.iter_mut().zip(wakers) {
            if n < 2 || converses {
                continue;
            }
            for step in th.steps.iter_mut().filter(|s| s.op == op::WAIT_FOR) {
                step.thread = NOBODY;
                self.report.waits_for_anyone += 1;
            }
        }
    }
}
