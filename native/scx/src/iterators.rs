//! Going through a DSQ, and moving threads out of it on the way (bpf_iter_scx_dsq_new and _next,
//! scx_dsq_move, scx_bpf_reenqueue_local of kernel/sched/ext.c, Linux 6.12 to 6.18).
use std::collections::VecDeque;

use super::calls::Host;
use super::core::{Context, Held, Insert};
use super::fault::Fault;
use super::kernel_types as k;
use super::memory::Memory;
use super::vm::Answer;

/// Iterators that a callback may have open: the verifier counts them by their places on the stack.
const MOST: usize = 64;
/// Words of a `struct bpf_iter_scx_dsq`.
const WORDS: u64 = 6;
const EINVAL: i64 = -22;
const ENOENT: i64 = -2;

/// What is yet to come of a DSQ; what is queued after its beginning is not seen.
#[derive(Debug, Default)]
pub struct Iterator {
    queue: Option<u32>,
    ahead: VecDeque<u32>,
    /// Threads that this one has moved: where they are now they are new.
    moved: Vec<u32>,
    pub slice: Option<u64>,
    pub vtime: Option<u64>,
}

/// Those of one callback, by the number in their first word.
#[derive(Debug, Default)]
pub struct Iterators {
    all: Vec<Option<Iterator>>,
}

impl Iterators {
    fn add(&mut self, m: &mut Memory, at: u64, one: Iterator) -> Result<(), Fault> {
        let free = self.all.iter().position(Option::is_none);
        let number = free.unwrap_or(self.all.len());
        if number >= MOST {
            return Err(Fault::new(format!("has more than {MOST} iterators open")));
        }
        if free.is_none() {
            self.all.push(None);
        }
        self.all[number] = Some(one);
        m.store(at, 8, number as u64 + 1)?;
        for word in 1..WORDS {
            m.store(at.wrapping_add(8 * word), 8, 0)?;
        }
        Ok(())
    }

    fn number(&self, m: &Memory, at: u64) -> Result<usize, Fault> {
        let number = m.load(at, 8)?.wrapping_sub(1);
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        match self.all.get(number) {
            Some(Some(_)) => Ok(number),
            _ => Err(Fault::new(format!("gives {at:#x} as an iterator of a DSQ"))),
        }
    }

    pub fn get(&mut self, m: &Memory, at: u64) -> Result<&mut Iterator, Fault> {
        let number = self.number(m, at)?;
        self.all[number]
            .as_mut()
            .ok_or_else(|| Fault::new("uses an iterator that is over"))
    }

    pub fn destroy(&mut self, m: &mut Memory, at: u64) -> Result<(), Fault> {
        let number = self.number(m, at)?;
        self.all[number] = None;
        m.store(at, 8, 0)
    }
}

fn value(number: i64) -> Result<Answer, Fault> {
    Ok(Answer::Value(number as u64))
}

impl Host<'_> {
    /// bpf_iter_scx_dsq_new
    pub(super) fn new_iterator(
        &mut self,
        m: &mut Memory,
        at: u64,
        id: u64,
        flags: u64,
    ) -> Result<Answer, Fault> {
        let found = self.core.queues.find(id);
        let known = flags & !k::DSQ_ITER_REV == 0;
        let mut one = Iterator::default();
        if let (Some(queue), true) = (found, known) {
            one.queue = found;
            one.ahead = self.core.queues.iter(queue).collect();
            if flags & k::DSQ_ITER_REV != 0 {
                one.ahead.make_contiguous().reverse();
            }
        }
        self.iterators.add(m, at, one)?;
        value(match (known, found) {
            (false, _) => EINVAL,
            (true, None) => ENOENT,
            (true, Some(_)) => 0,
        })
    }

    pub(super) fn next_of_dsq(&mut self, m: &mut Memory, at: u64) -> Result<Answer, Fault> {
        let held = &self.core.held;
        let one = self.iterators.get(m, at)?;
        let Some(queue) = one.queue else {
            return value(0);
        };
        while let Some(t) = one.ahead.pop_front() {
            if held[t as usize] == Held::Queue(queue) && !one.moved.contains(&t) {
                self.core.refresh(m, self.w, t);
                return Ok(Answer::Value(self.core.task(t)));
            }
        }
        value(0)
    }

    /// scx_dsq_move
    pub(super) fn move_from_dsq(
        &mut self,
        m: &mut Memory,
        at: u64,
        task: u64,
        id: u64,
        flags: u64,
        by_vtime: bool,
    ) -> Result<Answer, Fault> {
        if !matches!(self.core.context, Context::Dispatch | Context::Timer) {
            return Err(Fault::new(
                "moves a thread between DSQs, which only dispatch and timers may",
            ));
        }
        let t = self.core.task_at(task)?;
        if flags & (0xff << 56) != 0 {
            self.core
                .error(self.w, format!("invalid enq_flags {flags:#x}"));
            return value(0);
        }
        let held = self.core.held[t as usize];
        let one = self.iterators.get(m, at)?;
        // Both are good for one move, whether it comes about or not.
        let (slice, vtime) = (one.slice.take(), one.vtime.take());
        let there = one.queue.is_some_and(|queue| held == Held::Queue(queue));
        if !there || one.moved.contains(&t) {
            return value(0);
        }
        one.moved.push(t);
        if let Some(vtime) = vtime {
            self.core.set_vtime(m, t, vtime);
        }
        if let Some(slice) = slice {
            self.core.set_slice(m, t, slice);
        }
        let slice = self.core.slice(m, t);
        let vtime = by_vtime.then(|| self.core.vtime(m, t));
        self.core.take_out(m, t);
        self.record(t, id, slice, vtime);
        let insert = Insert {
            t,
            queue: id,
            flags,
            vtime,
        };
        let here = self.core.here;
        self.core.dispatch_to(m, self.w, here, &insert);
        value(1)
    }

    /// scx_bpf_reenqueue_local: the threads leave at once; ops.enqueue is called for each when
    /// ops.cpu_release is over (in the kernel: before it goes on).
    pub(super) fn reenqueue(&mut self, m: &mut Memory) -> Result<Answer, Fault> {
        if self.core.context != Context::Release {
            return Err(Fault::new(
                "enqueues local threads again, which only cpu_release may",
            ));
        }
        let local = self.core.queues.local(self.core.here);
        let all: Vec<u32> = self.core.queues.iter(local).collect();
        for t in &all {
            self.core.take_out(m, *t);
        }
        let n = all.len() as i64;
        self.core.again.extend(all);
        value(n)
    }
}
