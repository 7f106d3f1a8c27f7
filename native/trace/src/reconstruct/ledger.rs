//! What enters the ledger of waits, and which of it is measured.

use super::Reconstructor;
use super::thread::OpenWait;

/// A wait whose end was not seen, until it is known by when it had ended.
#[derive(Debug)]
pub struct Cut {
    row: Wait,
    /// The earliest possible start; None if that was before the thread's first event.
    since: Option<i64>,
}
use crate::model::event::{Cause, Censored};
use crate::model::tables::Wait;

impl Reconstructor {
    /// A wait that ended with a switch-in at `ts_run`.
    pub(super) fn write_wait(&mut self, utid: u32, wait: &OpenWait, ts_run: i64) {
        let row = self.row(utid, wait, Some(ts_run), ts_run, Censored::None);
        match &mut self.apart {
            Some(apart) if row.censored == Censored::None => {
                if let Some(doubtful) = apart.hold(row) {
                    self.judge(&doubtful, false);
                }
            }
            _ => self.enter_wait(row),
        }
    }

    /// A wait that lasted until then at least. It enters the ledger when the thread is seen next,
    /// by when it had ended.
    pub(super) fn cut_wait(&mut self, utid: u32, wait: &OpenWait, until: i64) {
        let until = until.max(wait.ts_ready);
        let row = self.row(utid, wait, None, until, Censored::Right);
        let since = (!wait.before_sight).then_some(wait.ts_ready);
        if let Some(before) = self.cut.insert(utid, Cut { row, since }) {
            self.enter_wait(before.row);
        }
    }

    /// The latest end of the thread's cut wait; None if unknown.
    pub(super) fn end_cut_wait(&mut self, utid: u32, by: Option<i64>) {
        let Some(Cut { mut row, since }) = self.cut.remove(&utid) else {
            return;
        };
        row.wait_high = by.zip(since).and_then(|(by, since)| match &self.apart {
            Some(apart) => apart.most(by - since),
            None => Some(by - since),
        });
        self.enter_wait(row);
    }

    /// A wait that is still open when the window ends.
    pub(super) fn write_open_wait(&mut self, utid: u32, wait: &OpenWait, end: i64) {
        let row = self.row(utid, wait, None, end.max(wait.ts_ready), Censored::Right);
        self.enter_wait(row);
    }

    fn row(
        &mut self,
        utid: u32,
        wait: &OpenWait,
        ts_run: Option<i64>,
        until: i64,
        censored: Censored,
    ) -> Wait {
        let thread = &self.threads[utid as usize];
        if censored == Censored::Right {
            self.counters.right_censored += 1;
        }
        let censored = match censored {
            Censored::None if wait.begun_before => Censored::Left,
            Censored::Right if wait.begun_before => Censored::Both,
            seen => seen,
        };
        let ts_ready = (!wait.begun_before).then_some(wait.ts_ready);
        Wait {
            utid,
            cause: wait.cause,
            ts_waking: wait.ts_waking,
            ts_ready,
            ts_enqueued: wait.ts_enqueued,
            ts_run,
            waker_utid: wait.waker,
            waker_cpu: wait.waker_cpu,
            prev_cpu: wait.prev_cpu,
            queue_cpu: wait.queue_cpu,
            cpu: if ts_run.is_some() { thread.cpu } else { None },
            prio: thread.prio,
            placement: match (wait.ts_enqueued, ts_ready) {
                (Some(enqueued), Some(ready)) => Some(enqueued - ready),
                _ => None,
            },
            queue: match (ts_run, wait.ts_enqueued) {
                (Some(run), Some(enqueued)) => Some(run - enqueued),
                _ => None,
            },
            wait: ts_ready.map(|ready| match &self.apart {
                Some(apart) if ts_run.is_none() => apart.least(until - ready),
                _ => until - ready,
            }),
            wait_high: match &self.apart {
                _ if ts_run.is_none() || wait.before_sight => None,
                Some(apart) if wait.begun_before => apart.most(until - wait.ts_ready),
                _ => Some(until - wait.ts_ready),
            },
            censored,
        }
    }

    pub(super) fn enter_wait(&mut self, row: Wait) {
        self.counters.waits += 1;
        self.waits.push(row);
    }

    /// Rule One clock: a wait stands as measured, or what is certain of it.
    #[cold]
    fn judge(&mut self, wait: &Wait, measured: bool) {
        match &self.apart {
            Some(apart) if !measured => {
                let parts = apart.parts(wait);
                self.counters.right_censored += 1;
                parts.into_iter().for_each(|row| self.enter_wait(row));
            }
            _ => self.enter_wait(wait.clone()),
        }
    }

    /// An event of the thread, stamped by the clock of `cpu`.
    #[inline]
    pub(super) fn stamped(&mut self, utid: u32, cpu: u16, t: i64) {
        if let Some(apart) = &mut self.apart
            && utid >= self.ncpu
            && let Some((wait, measured)) = apart.seen(utid, cpu, t)
        {
            self.judge(&wait, measured);
        }
    }

    /// A switch-in whose wait has no recorded start: not before `since`, where the thread had an
    /// earlier event.
    pub(super) fn write_left_wait(&mut self, utid: u32, cpu: u16, since: i64, ts: i64) {
        let thread = &self.threads[utid as usize];
        let longest = match &self.apart {
            _ if !thread.known => None,
            Some(apart) => apart.most(ts - since),
            None => Some(ts - since),
        };
        self.counters.waits += 1;
        self.waits.push(Wait {
            utid,
            cause: Cause::Unknown,
            ts_waking: None,
            ts_ready: None,
            ts_enqueued: None,
            ts_run: Some(ts),
            waker_utid: None,
            waker_cpu: None,
            prev_cpu: thread.last_cpu,
            queue_cpu: None,
            cpu: Some(cpu),
            prio: thread.prio,
            placement: None,
            queue: None,
            wait: None,
            wait_high: longest,
            censored: Censored::Left,
        });
    }
}
