//! Which waits can be measured where the CPUs' clocks differ.
//!
//! Rule One clock of docs/trace-model.md, section Clocks.

use crate::model::event::{Cause, Censored};
use crate::model::tables::Wait;

/// What is known of the clocks of a trace's CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clocks {
    /// By CPU: the number of its clock; CPUs with the same number agree.
    pub clock: Vec<u16>,
    /// Stamps of two clocks may be off by so much; None where unknown.
    pub width: Option<i64>,
    /// Stamps of one were moved against those of another by so much. A clock that drifts, or
    /// stepped, was not always as far off.
    pub moved: i64,
}

/// What one thread's stamps show.
#[derive(Debug, Clone, Default)]
struct Story {
    clock: u16,
    last: Option<i64>,
    /// Its last event that another clock stamped.
    other: Option<i64>,
    /// A wait that nothing speaks against yet.
    held: Option<Wait>,
}

#[derive(Debug)]
pub struct Apart {
    clocks: Clocks,
    threads: Vec<Story>,
}

/// A wait, and whether one clock timed all of it.
pub type Judged = (Wait, bool);

impl Apart {
    pub fn new(clocks: Clocks) -> Self {
        Self {
            clocks,
            threads: Vec::new(),
        }
    }

    fn story(&mut self, utid: u32) -> &mut Story {
        let index = utid as usize;
        if index >= self.threads.len() {
            self.threads.resize(index + 1, Story::default());
        }
        &mut self.threads[index]
    }

    /// An event of the thread, raised on `cpu`. Returns the wait that it decides on.
    pub fn seen(&mut self, utid: u32, cpu: u16, t: i64) -> Option<Judged> {
        let clock = self.clocks.clock.get(usize::from(cpu)).copied()?;
        let width = self.clocks.width.unwrap_or(i64::MAX);
        let story = self.story(utid);
        let changed = story.last.is_some() && story.clock != clock;
        if changed {
            story.other = story.last;
        }
        story.clock = clock;
        story.last = Some(t);
        let wait = story.held.take()?;
        let near = t.saturating_sub(wait.ts_run.unwrap_or(t)) <= width;
        Some((wait, !(changed && near)))
    }

    /// A wait that ended with a switch-in. Returned at once if it is in doubt already.
    pub fn hold(&mut self, wait: Wait) -> Option<Wait> {
        let Some(width) = self.clocks.width else {
            return Some(wait);
        };
        let ready = wait.ts_ready.unwrap_or(i64::MIN);
        let story = self.story(wait.utid);
        if story
            .other
            .is_some_and(|other| ready.saturating_sub(other) <= width)
        {
            return Some(wait);
        }
        story.held = Some(wait);
        None
    }

    /// What nothing spoke against until the end.
    pub fn rest(&mut self) -> Vec<Wait> {
        let held = self.threads.iter_mut();
        held.filter_map(|story| story.held.take()).collect()
    }

    /// May the thread's last event have come before the one that another clock stamped, so that
    /// what it does since is not known?
    pub fn unsure(&self, utid: u32) -> bool {
        self.threads.get(utid as usize).is_some_and(|story| {
            match (self.clocks.width, story.last, story.other) {
                (_, _, None) | (_, None, _) => false,
                (None, ..) => true,
                (Some(width), Some(last), Some(other)) => last.saturating_sub(other) <= width,
            }
        })
    }

    /// The lower bound of a wait whose start and end two clocks may have stamped.
    pub fn least(&self, wait: i64) -> i64 {
        let off = self.clocks.width.unwrap_or(i64::MAX);
        wait.saturating_sub(off.saturating_add(self.clocks.moved))
            .max(0)
    }

    /// How long it was at most; None where unknown.
    pub fn most(&self, wait: i64) -> Option<i64> {
        let off = self.clocks.width?.saturating_add(self.clocks.moved);
        Some(wait.saturating_add(off))
    }

    /// What is certain of a wait in doubt: bounds of it, and the switch-in.
    pub fn parts(&self, wait: &Wait) -> [Wait; 2] {
        let least = wait.wait.map(|wait| self.least(wait));
        let most = wait.wait.and_then(|wait| self.most(wait));
        let begun = Wait {
            ts_run: None,
            cpu: None,
            queue: None,
            wait: least,
            wait_high: most,
            censored: Censored::Right,
            ..wait.clone()
        };
        let ended = Wait {
            cause: Cause::Unknown,
            ts_waking: None,
            ts_ready: None,
            ts_enqueued: None,
            waker_utid: None,
            waker_cpu: None,
            queue_cpu: None,
            placement: None,
            queue: None,
            wait: None,
            wait_high: None,
            censored: Censored::Left,
            ..wait.clone()
        };
        [begun, ended]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUs 0 and 2 share a clock.
    fn apart(width: Option<i64>) -> Apart {
        let clock = vec![0, 1, 0];
        let moved = 3;
        Apart::new(Clocks {
            clock,
            width,
            moved,
        })
    }

    fn wait(ready: i64, run: i64) -> Wait {
        Wait {
            utid: 7,
            cause: Cause::Wake,
            ts_waking: Some(ready),
            ts_ready: Some(ready),
            ts_enqueued: None,
            ts_run: Some(run),
            waker_utid: None,
            waker_cpu: None,
            prev_cpu: None,
            queue_cpu: None,
            cpu: Some(0),
            prio: None,
            placement: None,
            queue: Some(run - ready),
            wait: Some(run - ready),
            wait_high: Some(run - ready),
            censored: Censored::None,
        }
    }

    /// Is the wait measured, after the next event of the thread on that CPU?
    fn measured(next: (u16, i64)) -> bool {
        let mut apart = apart(Some(10));
        assert!(apart.seen(7, 2, 100).is_none());
        assert!(apart.seen(7, 0, 120).is_none());
        assert!(apart.hold(wait(100, 120)).is_none());
        apart.seen(7, next.0, next.1).unwrap().1
    }

    #[test]
    fn a_wait_stands_unless_another_clock_stamped_an_event_near_it() {
        assert!(measured((2, 121)));
        assert!(measured((1, 131)));
        assert!(!measured((1, 130)));
    }

    #[test]
    fn another_clock_shortly_before_it_speaks_against_it_at_once() {
        for (before, stands) in [(89, true), (90, false)] {
            let mut apart = apart(Some(10));
            apart.seen(7, 1, before);
            apart.seen(7, 0, 100);
            assert_eq!(apart.hold(wait(100, 120)).is_none(), stands);
        }
        // Where the difference of the clocks is unknown, no wait is measured.
        assert!(super::tests::apart(None).hold(wait(100, 120)).is_some());
    }

    #[test]
    fn what_is_certain_of_a_wait_in_doubt() {
        let bounds = |width, ready| {
            let [begun, ended] = apart(width).parts(&wait(ready, 120));
            assert_eq!((ended.ts_run, ended.wait), (Some(120), None));
            assert_eq!((ended.ts_waking, ended.ts_ready), (None, None));
            assert_eq!((ended.queue, ended.wait_high), (None, None));
            assert_eq!((begun.ts_run, begun.censored), (None, Censored::Right));
            assert_eq!((begun.queue, begun.cpu), (None, None));
            (begun.wait, begun.wait_high)
        };
        assert_eq!(bounds(Some(10), 100), (Some(7), Some(33)));
        assert_eq!(bounds(Some(30), 100), (Some(0), Some(53)));
        assert_eq!(bounds(None, 100), (Some(0), None));
    }
}
