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
enum LastSeen {
    #[default]
    Unknown,
    Running,
    AtRest,
    /// On a queue, or on its way to one.
    Queued,
}

#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    doing: LastSeen,
    cpu: u16,
    /// A `waking` came while it was running.
    pending: bool,
    /// Its wait began with a `waking`, and no enqueueing came yet.
    placing: bool,
    /// Its wait began with a wakeup.
    woken: bool,
}

impl Examiner<'_> {
    /// Breaks of order if the clock of `moved.0` is `moved.1` ns ahead.
    pub(super) fn breaks(&self, seen: &[Seen], moved: Option<(u16, i64)>) -> u32 {
        let mut threads = vec![Thread::default(); self.threads.len()];
        let mut breaks = 0;
        match moved {
            None => {
                for event in seen {
                    breaks += self.step(&mut threads, event);
                }
            }
            Some((cpu, ahead)) => {
                let mut there = seen.iter().filter(|event| event.cpu == cpu).peekable();
                for event in seen.iter().filter(|event| event.cpu != cpu) {
                    while let Some(early) = there.next_if(|early| early.ts - ahead < event.ts) {
                        breaks += self.step(&mut threads, early);
                    }
                    breaks += self.step(&mut threads, event);
                }
                for late in there {
                    breaks += self.step(&mut threads, late);
                }
            }
        }
        breaks
    }

    /// One event of a thread: 1 if it cannot follow on those before.
    #[inline]
    fn step(&self, threads: &mut [Thread], event: &Seen) -> u32 {
        if event.kind == Kind::Lost {
            threads.fill(Thread::default());
        }
        let Some(thread) = threads.get_mut(event.thread as usize) else {
            return 0;
        };
        let was = *thread;
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
            Kind::Unborn | Kind::Lost => {
                *thread = Thread::default();
                false
            }
            Kind::Waking => match was.doing {
                LastSeen::Running => {
                    thread.pending = true;
                    false
                }
                LastSeen::Queued => was.woken,
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
        u32::from(broken)
    }
}
