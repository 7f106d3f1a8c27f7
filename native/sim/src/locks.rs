//! Mutexes, conditions, barriers and queues: what happens to threads that use them.
//!
//! A free mutex goes to the first thread that comes. A thread that finds it held sleeps behind
//! earlier ones, and its release wakes the first of them, which then looks again: a running thread
//! may have taken it in the meantime, and the woken one sleeps once more, at the end. Mutexes of
//! glibc, musl and Rust behave so (nptl/lowlevellock.c of glibc 2.36).
//!
//! A thread that waits on a condition lets go of the mutex, sleeps until it is signalled, and
//! takes the mutex again. A signal without a waiter is lost (POSIX, pthread_cond_signal).
//!
//! At a barrier each thread sleeps until as many have come as its step counts; the last wakes
//! the others.
//!
//! A queue holds jobs in the order in which they came. Each that comes wakes the first of the
//! threads that sleep there, which looks again: one that was awake may have taken it. The thread
//! that takes a job goes through its steps, and then continues with its own.

use super::engine::Engine;
use super::error::Error;
use super::lock::of;
use super::machine::Cpu;
use super::pipes::woken_by;
use super::workload::{NO_JOB, Step, Tid};

impl Engine<'_> {
    /// `t` takes a mutex; false if it has to sleep until that is released, and then look again.
    pub(super) fn lock(&mut self, t: Tid, mutex: u32) -> bool {
        let m = of(&mut self.locks.mutexes, mutex);
        if m.holder.is_none() {
            m.holder = Some(t);
            return true;
        }
        m.sleepers.push_back(t);
        self.next_step[t as usize] -= 1;
        false
    }

    /// `t`, on `c`, releases a mutex; answers whether it woke a sleeper.
    pub(super) fn unlock(&mut self, c: Cpu, t: Tid, mutex: u32) -> bool {
        let m = of(&mut self.locks.mutexes, mutex);
        if m.holder != Some(t) {
            let holder = m.holder;
            self.release_of_others(t, mutex, holder);
            return false;
        }
        m.holder = None;
        let next = m.sleepers.pop_front();
        if let Some(sleeper) = next {
            self.wake(sleeper, woken_by(c, t, false));
        }
        next.is_some()
    }

    /// `t`, on `c`, lets go of a mutex, sleeps until a condition is signalled, and takes the mutex
    /// again; false while it has to sleep for either, and then to look again.
    pub(super) fn wait_on(&mut self, c: Cpu, t: Tid, condition: u32, mutex: u32) -> bool {
        if std::mem::take(of(&mut self.locks.waited, t)) {
            let taken = self.lock(t, mutex);
            self.locks.waited[t as usize] = !taken;
            return taken;
        }
        self.unlock(c, t, mutex);
        self.locks.waited[t as usize] = true;
        of(&mut self.locks.conditions, condition).push_back(t);
        self.next_step[t as usize] -= 1;
        false
    }

    /// `t`, on `c`, wakes the first thread that waits on a condition, or `all`; answers whether
    /// there was one.
    pub(super) fn notify(&mut self, c: Cpu, t: Tid, condition: u32, all: bool) -> bool {
        let waiting = of(&mut self.locks.conditions, condition);
        let n = if all { waiting.len() } else { 1 };
        let woken: Vec<Tid> = waiting.drain(..n.min(waiting.len())).collect();
        for thread in &woken {
            self.wake(*thread, woken_by(c, t, false));
        }
        !woken.is_empty()
    }

    /// `t`, on `c`, comes to a barrier of `count` threads; false if it has to sleep there.
    pub(super) fn arrive(&mut self, c: Cpu, t: Tid, barrier: u32, count: u32) -> bool {
        let waiting = of(&mut self.locks.barriers, barrier);
        if (waiting.len() + 1) < count as usize {
            waiting.push(t);
            return false;
        }
        for thread in std::mem::take(waiting) {
            self.wake(thread, woken_by(c, t, false));
        }
        true
    }

    /// `t`, on `c`, puts a job into a queue; answers whether it woke a sleeper.
    pub(super) fn post(&mut self, c: Cpu, t: Tid, queue: u32, job: u32) -> bool {
        let q = of(&mut self.locks.queues, queue);
        q.jobs.push_back(job);
        let next = q.sleepers.pop_front();
        if let Some(sleeper) = next {
            self.wake(sleeper, woken_by(c, t, false));
        }
        next.is_some()
    }

    /// `t` begins the first job of a queue; false if it has to sleep until there is one.
    pub(super) fn serve(&mut self, t: Tid, queue: u32) -> bool {
        let q = of(&mut self.locks.queues, queue);
        let at = &mut self.next_step[t as usize];
        let Some(job) = q.jobs.pop_front() else {
            q.sleepers.push_back(t);
            *at -= 1;
            return false;
        };
        if job != NO_JOB {
            let (first, len) = self.load.jobs[job as usize];
            let th = &mut self.world.threads[t as usize];
            of(&mut self.locks.after, t).push((*at, th.end));
            (*at, th.end) = (first, first + len);
        }
        true
    }

    /// `t` has come to the end of a program; false if that was its own, and no job.
    pub(super) fn back_from_job(&mut self, t: Tid) -> bool {
        let Some((at, end)) = self.locks.after.get_mut(t as usize).and_then(Vec::pop) else {
            return false;
        };
        self.next_step[t as usize] = at;
        self.world.threads[t as usize].end = end;
        true
    }

    /// A thread that sleeps from the beginning for a mutex that is held, or at a queue without a
    /// job; false if there is nothing to sleep for.
    pub(super) fn asleep_at(&mut self, t: Tid, step: Step) -> bool {
        let sleepers = match step {
            Step::Lock { mutex, .. } => {
                let m = of(&mut self.locks.mutexes, mutex);
                m.holder.is_some().then_some(&mut m.sleepers)
            }
            Step::Serve { queue, .. } => {
                let q = of(&mut self.locks.queues, queue);
                q.jobs.is_empty().then_some(&mut q.sleepers)
            }
            _ => None,
        };
        sleepers.map(|them| them.push_back(t)).is_some()
    }

    /// The threads that sleep for locks, each with what it sleeps for.
    pub(super) fn in_locks(&self) -> impl Iterator<Item = String> {
        let name = |t: Tid| format!("{t} ({:?})", self.load.threads[t as usize].name);
        let mutexes = self.locks.mutexes.iter().enumerate();
        let mutexes = mutexes.flat_map(move |(i, m)| {
            let holder = m.holder.map_or("nobody".into(), name);
            let what = move |t: &Tid| format!("{} for mutex {i}, held by {holder}", name(*t));
            m.sleepers.iter().map(what)
        });
        let conditions = self.locks.conditions.iter().enumerate();
        let conditions = conditions.flat_map(move |(i, waiting)| {
            let what = move |t: &Tid| format!("{} for a signal of condition {i}", name(*t));
            waiting.iter().map(what)
        });
        let barriers = self.locks.barriers.iter().enumerate();
        let barriers = barriers.flat_map(move |(i, waiting)| {
            let what = move |t: &Tid| format!("{} for the others at barrier {i}", name(*t));
            waiting.iter().map(what)
        });
        mutexes.chain(conditions).chain(barriers)
    }

    fn release_of_others(&mut self, t: Tid, mutex: u32, holder: Option<Tid>) {
        let name = |t: Tid| format!("thread {t} ({:?})", self.load.threads[t as usize].name);
        let held = holder.map_or("nobody holds it".into(), |h| {
            format!("{} holds it", name(h))
        });
        self.world.fault = Some(Error::usage(
            format!("{} releases mutex {mutex}, and {held}", name(t)),
            "a mutex released by the thread that took it",
            "put a `lock` before each `unlock` and `cond_wait`",
        ));
    }
}
