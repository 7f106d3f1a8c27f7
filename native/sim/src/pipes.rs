//! Pipes: bounded counts that writers fill and any reader empties.
//!
//! Modelled on fs/pipe.c of Linux 6.x: a write into an empty pipe wakes one reader, a read that
//! empties a page of a full pipe wakes one writer, which begins a page, and the woken one wakes the
//! next if something remains for it (pipe_write, pipe_read). What is written joins the last page if
//! it fits there. A socket has no pages: all its writers are woken by each read that leaves it at a
//! level of at most `low` of the `PipeSpec` (sock_def_write_space, unix_write_space), and those
//! that find no room sleep again. Left out: writes longer than the pipe.

use super::engine::Engine;
use super::machine::Cpu;
use super::policy::Wake;
use super::workload::Tid;

impl Engine<'_> {
    /// `t`, on `c`, puts `amount` into a pipe; answers the reader to wake, or `Err`
    /// if it went to sleep, to try again when woken.
    pub(super) fn put(
        &mut self,
        c: Cpu,
        t: Tid,
        pipe: u32,
        amount: u32,
    ) -> Result<Option<Tid>, Asleep> {
        let p = &mut self.pipes[pipe as usize];
        let slept = std::mem::take(&mut self.left[t as usize]) > 0;
        if !p.has_room(amount, slept) {
            p.writers.push_back(t);
            self.left[t as usize] = amount;
            self.next_step[t as usize] -= 1;
            self.block(c, t, false);
            return Err(Asleep);
        }
        let reader = p.is_empty().then(|| p.readers.pop_front()).flatten();
        p.fill(u64::from(amount));
        if slept && p.has_pages() && !p.is_full() {
            self.wake_writer(c, t, pipe);
        }
        Ok(reader)
    }

    /// `t`, on `c`, takes what is left for it of `amount`; false if it has to sleep
    /// for the rest, and to try again when woken.
    pub(super) fn take(&mut self, c: Cpu, t: Tid, pipe: u32, amount: u32) -> bool {
        let left = &mut self.left[t as usize];
        let want = if *left == 0 { amount } else { *left };
        let p = &mut self.pipes[pipe as usize];
        let had = p.level;
        let got = had.min(u64::from(want));
        let page_free = p.drain(got);
        *left = want - got as u32;
        let done = *left == 0;
        let to_wake = if p.has_pages() {
            usize::from(page_free)
        } else if got > 0 && p.level <= p.spec.low {
            p.writers.len()
        } else {
            0
        };
        let next = if done && p.level > 0 {
            p.readers.pop_front()
        } else {
            None
        };
        if !done {
            p.readers.push_back(t);
        }
        for _ in 0..to_wake {
            self.wake_writer(c, t, pipe);
        }
        if let Some(reader) = next {
            self.wake(reader, woken_by(c, t, true));
        }
        if !done {
            self.next_step[t as usize] -= 1;
        }
        done
    }

    fn wake_writer(&mut self, c: Cpu, by: Tid, pipe: u32) {
        let p = &mut self.pipes[pipe as usize];
        if let Some(writer) = p.writers.pop_front() {
            self.wake(writer, woken_by(c, by, true));
        }
    }

    /// The threads that sleep in pipes, each with what it sleeps for.
    pub(super) fn in_pipes(&self) -> impl Iterator<Item = String> {
        self.pipes.iter().enumerate().flat_map(move |(i, p)| {
            p.sleepers().map(move |t| {
                let name = &self.load.threads[t as usize].name;
                let what = if p.is_empty() { "something" } else { "room" };
                format!("{t} ({name:?}) for {what} in pipe {i}")
            })
        })
    }
}

/// A writer that went to sleep.
pub(super) struct Asleep;

pub(super) fn woken_by(cpu: Cpu, waker: Tid, sync: bool) -> Wake {
    Wake {
        waker: Some(waker),
        cpu,
        sync,
    }
}
