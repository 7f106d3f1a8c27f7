//! The steps of each job of a queue, independent of its worker.
//!
//! What a thread of a pool did from one look at its queue to the next are the steps of a job. A
//! futile turn is left out: in a replay the first worker to look takes the job. The signals in such
//! a turn are left out at both ends, so that no thread waits for them forever.
use rustc_hash::FxHashSet;

use super::super::load::op;
use super::{Extractor, Made, NOBODY, push};

impl Extractor {
    /// Takes the jobs out of the programs of those that did them. The steps of job `j` are
    /// `jobs[j - 1]`.
    pub(super) fn part_jobs(&mut self) {
        self.job_steps = vec![Vec::new(); self.report.jobs as usize];
        let own_queue = self.report.queues as u32..;
        let mut alone = FxHashSet::default();
        for th in &mut self.threads {
            let Some(queue) = th.pool else { continue };
            let begins = |s: &Made| s.op == op::SERVE && s.thread == queue;
            let Some(first) = th.steps.iter().position(begins) else {
                continue;
            };
            let mut rest = th.steps.split_off(first).into_iter().peekable();
            with_own_mutexes(&mut th.steps);
            let first = th.steps.len();
            while let Some(serve) = rest.next() {
                let mut steps = Vec::new();
                while let Some(step) = rest.next_if(|s| !begins(s)) {
                    steps.push(step);
                }
                match (serve.count as usize).checked_sub(1) {
                    Some(job) => {
                        with_own_mutexes(&mut steps);
                        self.job_steps[job] = steps;
                    }
                    // Its wake was futile, or is no longer.
                    None => {
                        for step in steps {
                            if own_queue.contains(&step.thread) && is_end(&step) {
                                alone.insert(step.thread);
                            }
                            forget(&mut self.report, &step);
                        }
                    }
                }
                if th.steps.len() == first {
                    th.steps.push(Made { count: 0, ..serve });
                }
            }
            push(th, op::REPEAT, NOBODY, first as i64, 0, false);
        }
        self.drop_ends(&alone);
    }

    /// Leaves out the steps for these queues of single signals, whose other ends are gone.
    fn drop_ends(&mut self, alone: &FxHashSet<u32>) {
        if alone.is_empty() {
            return;
        }
        let of_threads = self.threads.iter_mut().map(|th| &mut th.steps);
        for steps in of_threads.chain(&mut self.job_steps) {
            steps.retain(|s| {
                let gone = is_end(s) && alone.contains(&s.thread);
                if gone {
                    self.report.signals_in_vain += 1;
                    forget(&mut self.report, s);
                }
                !gone
            });
        }
    }
}

/// Whether a step puts something into a queue, or takes it out.
fn is_end(step: &Made) -> bool {
    matches!(step.op, op::POST | op::SERVE)
}

/// A step that is left out takes its time along.
fn forget(report: &mut super::Report, step: &Made) {
    let spent = match step.op {
        op::POST => &mut report.wake_time,
        op::SERVE => &mut report.sleep_time,
        op::RUN => {
            report.cpu_time -= step.ns;
            return;
        }
        _ => return,
    };
    *spent -= step.ns;
    report.cpu_time -= step.ns;
}

/// `steps` in which each mutex taken is released by the end, and no other is: what another job had,
/// another thread may have.
fn with_own_mutexes(steps: &mut Vec<Made>) {
    let mut held: Vec<Made> = Vec::new();
    steps.retain(|s| match s.op {
        op::LOCK => {
            held.push(*s);
            true
        }
        op::UNLOCK => {
            let at = held.iter().position(|h| h.thread == s.thread);
            at.map(|at| held.swap_remove(at)).is_some()
        }
        _ => true,
    });
    let ends = |s: &Made| matches!(s.op, op::EXIT | op::PARK);
    let at = steps.len() - usize::from(steps.last().is_some_and(ends));
    let releases = held.into_iter().map(|h| Made {
        op: op::UNLOCK,
        ns: 0,
        ..h
    });
    steps.splice(at..at, releases);
}
