//! Pipes: bounded counts that writers fill and whichever reader comes empties.
//!
//! Modelled on fs/pipe.c of Linux 6.x: a write into an empty pipe wakes one reader,
//! a read that makes room wakes one writer, and who was woken wakes the next if
//! something is left for it (pipe_write, pipe_read). A socket's writers are woken
//! at a lower level (sock_def_write_space), which `low` of a `PipeSpec` says. Left out:
//! slots that small messages share or do not, and writes longer than the pipe.

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
        let was_woken = p.woken > 0;
        p.woken -= u32::from(was_woken);
        if !p.has_room(amount) {
            p.writers.push_back(t);
            self.next_step[t as usize] -= 1;
            self.block(c, t, false);
            return Err(Asleep);
        }
        let reader = p.is_empty().then(|| p.readers.pop_front()).flatten();
        p.level += u64::from(amount);
        if was_woken && p.has_room(amount) {
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
        p.level -= got;
        *left = want - got as u32;
        let done = *left == 0;
        let room = got > 0 && p.level <= p.spec.low;
        let next = if done && p.level > 0 {
            p.readers.pop_front()
        } else {
            None
        };
        if !done {
            p.readers.push_back(t);
        }
        if room {
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
            p.woken += 1;
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
