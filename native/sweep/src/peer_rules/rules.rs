//! One type for each tool: what it remembers of a thread, event by event.

use crate::model::event::WakeKind;

/// How a thread left its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Asleep, blocked, dead, ...
    Off,
    /// Still runnable (R).
    Runnable,
    /// Preempted inside the kernel (R+).
    Preempted,
}

/// A tool's bookkeeping for one thread.
pub trait Rule: Default + Send {
    fn left(&mut self, ts: i64, how: Left);
    fn born(&mut self, _ts: i64) {}
    fn woken(&mut self, ts: i64, kind: WakeKind);
    /// The thread runs: since when it waited and for how long, if the tool says it did.
    fn ran(&mut self, ts: i64) -> Option<(i64, i64)>;
}

fn until(ts: i64) -> impl Fn(i64) -> (i64, i64) {
    move |since| (since, ts - since)
}

/// perf has one open "atom" for each thread. A switch-out begins one: waiting
/// if the thread is still runnable, sleeping otherwise; the first wake turns
/// sleeping into waiting, and the first switch-in after that ends it. The
/// very first event of a thread begins one, too: a switch-in of delay 0.
#[derive(Debug, Clone, Copy, Default)]
pub enum Perf {
    #[default]
    Unseen,
    Sleeping,
    Waiting(i64),
    Ran,
}

impl Rule for Perf {
    #[inline]
    fn left(&mut self, ts: i64, how: Left) {
        *self = if how == Left::Off {
            Self::Sleeping
        } else {
            Self::Waiting(ts)
        };
    }

    #[inline]
    fn woken(&mut self, ts: i64, kind: WakeKind) {
        if kind != WakeKind::Enqueued && matches!(self, Self::Unseen | Self::Sleeping) {
            *self = Self::Waiting(ts);
        }
    }

    #[inline]
    fn ran(&mut self, ts: i64) -> Option<(i64, i64)> {
        let since = match *self {
            Self::Unseen => ts,
            Self::Waiting(since) => since,
            Self::Sleeping | Self::Ran => return None,
        };
        *self = Self::Ran;
        Some(until(ts)(since))
    }
}

/// A time stamp for each thread: set when it is put on a queue, or leaves a
/// CPU runnable; overwritten by the next; taken by the switch-in. `PLUS`: R+
/// is runnable, too.
#[derive(Debug, Clone, Default)]
pub struct Runqlat<const PLUS: bool>(Option<i64>);

impl<const PLUS: bool> Rule for Runqlat<PLUS> {
    #[inline]
    fn left(&mut self, ts: i64, how: Left) {
        if how == Left::Runnable || PLUS && how == Left::Preempted {
            self.0 = Some(ts);
        }
    }

    #[inline]
    fn woken(&mut self, ts: i64, kind: WakeKind) {
        if kind != WakeKind::Waking {
            self.0 = Some(ts);
        }
    }

    #[inline]
    fn ran(&mut self, ts: i64) -> Option<(i64, i64)> {
        self.0.take().map(until(ts))
    }
}

/// The same with sched_waking alone.
#[derive(Debug, Clone, Default)]
pub struct Schedscore(Option<i64>);

impl Rule for Schedscore {
    fn left(&mut self, _: i64, _: Left) {}

    #[inline]
    fn woken(&mut self, ts: i64, kind: WakeKind) {
        if kind == WakeKind::Waking {
            self.0 = Some(ts);
        }
    }

    #[inline]
    fn ran(&mut self, ts: i64) -> Option<(i64, i64)> {
        self.0.take().map(until(ts))
    }
}

/// Only neighbours in LISA's table of states count, which has no waking.
#[derive(Debug, Clone, Default)]
pub struct Lisa(Option<i64>);

impl Rule for Lisa {
    #[inline]
    fn left(&mut self, _: i64, _: Left) {
        self.0 = None;
    }

    #[inline]
    fn woken(&mut self, ts: i64, kind: WakeKind) {
        if kind != WakeKind::Waking {
            self.0 = Some(ts);
        }
    }

    #[inline]
    fn ran(&mut self, ts: i64) -> Option<(i64, i64)> {
        self.0.take().map(until(ts))
    }
}

#[derive(Debug, Clone, Default)]
pub struct LisaPreempt(Option<i64>);

impl Rule for LisaPreempt {
    #[inline]
    fn left(&mut self, ts: i64, how: Left) {
        self.0 = (how == Left::Runnable).then_some(ts);
    }

    #[inline]
    fn woken(&mut self, _: i64, kind: WakeKind) {
        if kind != WakeKind::Waking {
            self.0 = None;
        }
    }

    #[inline]
    fn ran(&mut self, ts: i64) -> Option<(i64, i64)> {
        self.0.take().map(until(ts))
    }
}

/// The first wake of a thread that is current nowhere.
#[derive(Debug, Clone, Default)]
pub struct Lttng {
    current: bool,
    stamp: Option<i64>,
}

impl Rule for Lttng {
    #[inline]
    fn left(&mut self, _: i64, _: Left) {
        self.current = false;
    }

    #[inline]
    fn woken(&mut self, ts: i64, _: WakeKind) {
        if !self.current {
            self.stamp.get_or_insert(ts);
        }
    }

    #[inline]
    fn ran(&mut self, ts: i64) -> Option<(i64, i64)> {
        self.current = true;
        self.stamp.take().map(until(ts))
    }
}

/// trace_processor's thread_state rows: a waking counts only while the last
/// row says blocked (R+ passes for that); each switch adds rows. A run gets
/// the length of its thread's last R or R+ row before it, however old.
#[derive(Debug, Clone, Default)]
pub struct Perfetto {
    row: Row,
    row_ts: i64,
    /// Begin and length of the last R or R+ row that has ended.
    wait: Option<(i64, i64)>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Row {
    #[default]
    Absent,
    Blocked,
    Runnable,
    Preempted,
    Running,
}

impl Perfetto {
    #[inline]
    fn begin(&mut self, ts: i64, row: Row) {
        if matches!(self.row, Row::Runnable | Row::Preempted) {
            self.wait = Some(until(ts)(self.row_ts));
        }
        (self.row, self.row_ts) = (row, ts);
    }
}

impl Rule for Perfetto {
    #[inline]
    fn left(&mut self, ts: i64, how: Left) {
        let row = match how {
            Left::Off => Row::Blocked,
            Left::Runnable => Row::Runnable,
            Left::Preempted => Row::Preempted,
        };
        self.begin(ts, row);
    }

    #[inline]
    fn born(&mut self, ts: i64) {
        if self.row == Row::Absent {
            self.begin(ts, Row::Runnable);
        }
    }

    #[inline]
    fn woken(&mut self, ts: i64, kind: WakeKind) {
        if kind == WakeKind::Waking && !matches!(self.row, Row::Runnable | Row::Running) {
            self.begin(ts, Row::Runnable);
        }
    }

    #[inline]
    fn ran(&mut self, ts: i64) -> Option<(i64, i64)> {
        self.begin(ts, Row::Running);
        self.wait
    }
}
