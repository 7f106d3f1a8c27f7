//! What enters the ledger of waits, and which of it is measured.

use super::Reconstructor;
use super::thread::OpenWait;
use crate::model::event::{Cause, Censored};
use crate::model::tables::Wait;

impl Reconstructor {
    pub(super) fn write_wait(
        &mut self,
        utid: u32,
        wait: &OpenWait,
        ts_run: Option<i64>,
        until: i64,
        censored: Censored,
    ) {
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
        let row = Wait {
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
            censored,
        };
        match &mut self.apart {
            Some(apart) if censored == Censored::None => {
                if let Some(doubtful) = apart.hold(row) {
                    self.judge(&doubtful, false);
                }
            }
            _ => self.enter_wait(row),
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

    /// A switch-in whose wait began out of sight.
    pub(super) fn write_left_wait(&mut self, utid: u32, cpu: u16, ts: i64) {
        let thread = &self.threads[utid as usize];
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
            censored: Censored::Left,
        });
    }
}
