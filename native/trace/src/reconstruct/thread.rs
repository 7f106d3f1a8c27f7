//! What the reconstruction remembers of one thread.

use crate::model::event::{Cause, State};

/// A wait for a CPU that has not ended yet; becomes a row of `waits`.
#[derive(Debug, Clone)]
pub struct OpenWait {
    pub cause: Cause,
    pub ts_waking: Option<i64>,
    pub ts_ready: i64,
    pub ts_enqueued: Option<i64>,
    pub waker: Option<u32>,
    pub waker_cpu: Option<u16>,
    pub prev_cpu: Option<u16>,
    /// The queue that it is on: an enqueue, a migration or its run has named it.
    pub queue_cpu: Option<u16>,
    /// Its first step, the `waking`, was not seen: `ts_ready` is the earliest it can have been.
    pub begun_before: bool,
    /// But it may have been even before the thread was first seen.
    pub before_sight: bool,
    /// The thread left its CPU preempted inside the kernel, perhaps on its way to
    /// sleep: the next wake may well be raised while it is runnable.
    pub may_be_woken: bool,
}

/// A waking raised while the thread was still running: either spurious, or raised before its
/// switch-out. The next event decides.
#[derive(Debug, Clone, Copy)]
pub struct PendingWake {
    pub ts: i64,
    pub waker: Option<u32>,
    pub waker_cpu: Option<u16>,
    pub target_cpu: Option<u16>,
}

/// Two cache lines, the wait and the rest: with many threads, each is far from the
/// caches when its next event comes.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub struct Thread {
    pub wait: Option<OpenWait>,
    pub since: i64,
    pub last_event: i64,
    pub pending: Option<PendingWake>,
    /// Between its first event and its last switch-out.
    pub born: bool,
    pub state: State,
    /// Where it runs, on whose queue it waits, or where it last was.
    pub cpu: Option<u16>,
    /// Where it last ran.
    pub last_cpu: Option<u16>,
    pub prio: Option<i16>,
    /// Called sched_yield since it was switched in.
    pub yielded: bool,
    /// In doubt since it left its CPU preempted inside the kernel, perhaps on its way to sleep: the
    /// next wake may well be raised while it is runnable.
    pub may_be_awake: bool,
    /// The last of its sleeps that ended did so without a wakeup.
    pub unwoken: bool,
    /// Since it was first seen, what it did has been known at some time.
    pub known: bool,
    /// How often it was seen to leave a CPU, or more often.
    pub left: u16,
    /// Rule Habit: it left its CPU unseen, and has no event since.
    pub left_unseen: bool,
}

const _: () = assert!(size_of::<Thread>() == 128);

impl Thread {
    pub fn unborn() -> Self {
        Self {
            born: false,
            state: State::Unknown,
            since: 0,
            last_event: 0,
            cpu: None,
            last_cpu: None,
            prio: None,
            pending: None,
            wait: None,
            yielded: false,
            may_be_awake: false,
            unwoken: false,
            known: false,
            left_unseen: false,
            left: 0,
        }
    }

    pub fn first_seen(ts: i64) -> Self {
        Self {
            born: true,
            since: ts,
            last_event: ts,
            ..Self::unborn()
        }
    }

    /// What it does is not known any more, nor what its last wake or yield meant.
    pub fn forget(&mut self) {
        self.state = State::Unknown;
        self.pending = None;
        self.yielded = false;
    }

    /// Is it waiting in a queue since it was woken, or born?
    pub fn was_enqueued(&self) -> bool {
        self.wait.as_ref().is_some_and(|wait| {
            matches!(wait.cause, Cause::Wake | Cause::New) && wait.ts_enqueued.is_some()
        })
    }

    /// Does it wait on a queue, for whatever reason?
    pub fn is_queued(&self) -> bool {
        self.wait
            .as_ref()
            .is_some_and(|wait| wait.ts_enqueued.is_some())
    }

    /// Switched in, or found, on `cpu` at `ts`.
    pub fn run(&mut self, cpu: u16, ts: i64) {
        self.state = State::Running;
        self.since = ts;
        self.last_event = ts;
        self.cpu = Some(cpu);
        self.last_cpu = Some(cpu);
        self.pending = None;
        self.yielded = false;
        self.may_be_awake = false;
        self.known = true;
        self.left_unseen = false;
    }

    /// It is switched in on `cpu`: if that is where it was thought to be, its queue was there.
    pub fn confirm_queue(&mut self, cpu: u16) {
        if let Some(wait) = &mut self.wait
            && wait.queue_cpu.is_none()
            && self.cpu == Some(cpu)
        {
            wait.queue_cpu = self.cpu;
        }
    }

    /// The wait that a pending wake turns out to have begun. The thread sleeps
    /// since its switch-out, so that is `since`.
    pub fn confirm(&self, wake: &PendingWake, ts_enqueued: Option<i64>) -> OpenWait {
        OpenWait {
            cause: Cause::Wake,
            ts_waking: Some(wake.ts),
            ts_ready: wake.ts.max(self.since),
            ts_enqueued,
            waker: wake.waker,
            waker_cpu: wake.waker_cpu,
            prev_cpu: self.last_cpu,
            queue_cpu: None,
            begun_before: false,
            before_sight: false,
            may_be_woken: false,
        }
    }
}
