//! What FreeBSD's lines mean, ULE's and 4BSD's.
//!
//! An `enqueue` comes before its CPU is picked; under ULE the load-change that
//! follows on the same CPU names it. A `wakeup` is one only if an enqueue of the
//! same thread follows. A `dequeue` with two load-changes is a steal or a
//! balance; with an enqueue it is a change of priority or of the CPU set. A
//! thread that exits leaves without a switch: lwp-exit and the next on-cpu are
//! its switch. docs/freebsd-and-linux.md has the whole list.

use rustc_hash::FxHashMap;

use super::compact::{self, Names, Words};
use super::hold::{Hold, Ticket};
use super::line::{
    EnqueueLine, Fields, KIND_IDLE, KIND_INTERRUPTIBLE, KIND_KERNEL, SwitchLine, Thread,
    WakingLine, read_exit, read_ints, read_successor,
};
use crate::error::Result;
use crate::model::event::{
    Comm, Event, EventSink, IrqKind, LossReason, Party, PriorityCause, SchedClass, SleepKind,
    State, WakeKind,
};

/// enum td_states of sys/proc.h.
const TDS_INHIBITED: u32 = 1;
const TDS_CAN_RUN: u32 = 2;
const TDS_RUNQ: u32 = 3;
/// Why a thread cannot run (td_inhibitors).
const TDI_SUSPENDED: u32 = 0x1;
const TDI_SLEEPING: u32 = 0x2;
const TDI_LOCK: u32 = 0x8;
const TDI_IWAIT: u32 = 0x10;

/// An enqueue, wakeup or dequeue that the CPU's next lines complete.
enum Open {
    Nothing,
    Wakeup {
        ticket: Ticket,
        /// None in version 2, whose `E` has it.
        agent: Option<u32>,
        tid: u32,
        ts: i64,
    },
    Enqueue {
        ticket: Ticket,
    },
    /// `from`: the CPU of its first load-change; 4BSD's has none.
    Dequeue {
        ticket: Ticket,
        agent: Option<u32>,
        tid: u32,
        from: Option<Option<u16>>,
    },
}

/// What is known of one CPU.
struct Cpu {
    open: Open,
    /// A change of priority between a wakeup and its enqueue hides neither.
    priority: Option<(Ticket, u32, i16)>,
    /// The thread that `preempt` fired for, until the next switch.
    preempting: Option<u32>,
    /// Another CPU's queue that grew just before this line.
    moved_to: Option<u16>,
    /// A thread that is exiting: since when.
    leaving: Option<(i64, Party)>,
    current: Option<u32>,
    last_ts: i64,
    drops: bool,
}

#[derive(Clone, Copy)]
struct Left {
    ts: i64,
    nvcsw: i64,
    nivcsw: i64,
}

pub struct FreeBsd {
    cpus: Vec<Cpu>,
    hold: Hold,
    /// Each thread as it last left a CPU.
    left: FxHashMap<u32, Left>,
    /// Gaps on CPUs with drops that could be placed in time.
    pub placed_gaps: u64,
}

fn class(thread: &Thread) -> Option<SchedClass> {
    // td_pri_class; 8 is the FIFO bit. Threads of kernel processes are of the
    // timeshare class but have priorities of their own band.
    Some(match thread.class & !8 {
        1 => SchedClass::Interrupt,
        2 => SchedClass::Realtime,
        3 if thread.kind & KIND_KERNEL != 0 => SchedClass::Kernel,
        3 => SchedClass::Timeshare,
        4 => SchedClass::Idle,
        _ => return None,
    })
}

fn party(thread: &Thread) -> Party {
    Party {
        tid: thread.tid,
        idle: thread.kind & KIND_IDLE != 0,
        prio: Some(thread.prio),
        comm: thread.comm,
        pid: thread.pid,
        class: class(thread),
        kernel: thread.pid.map(|_| thread.kind & KIND_KERNEL != 0),
    }
}

fn known_by_tid(tid: u32) -> Party {
    Party {
        tid,
        ..Party::default()
    }
}

/// State after a switch-out, and what it waits in.
fn state(line: &SwitchLine<'_>) -> (State, Option<SleepKind>) {
    let inhibitors = line.inhibitors;
    match line.state {
        TDS_RUNQ | TDS_CAN_RUN => (State::Runnable, None),
        TDS_INHIBITED if inhibitors & TDI_LOCK != 0 => (State::Blocked, Some(SleepKind::Lock)),
        TDS_INHIBITED if inhibitors & TDI_SLEEPING != 0 => {
            let interruptible = line.prev.kind & KIND_INTERRUPTIBLE != 0;
            let state = if interruptible {
                State::Sleeping
            } else {
                State::Blocked
            };
            (state, Some(SleepKind::Sleep))
        }
        TDS_INHIBITED if inhibitors & TDI_IWAIT != 0 => (State::Parked, Some(SleepKind::Interrupt)),
        TDS_INHIBITED if inhibitors & TDI_SUSPENDED != 0 => {
            (State::Stopped, Some(SleepKind::Suspended))
        }
        // Swapped out (13 and 14): waits, and no signal ends it.
        TDS_INHIBITED => (State::Blocked, None),
        _ => (State::Unknown, None),
    }
}

impl FreeBsd {
    /// `drops`: per CPU, whether dtrace reported dropped records there.
    pub fn new(drops: &[bool]) -> Self {
        let cpu = |&drops: &bool| Cpu {
            open: Open::Nothing,
            priority: None,
            preempting: None,
            moved_to: None,
            leaving: None,
            current: None,
            last_ts: i64::MIN,
            drops,
        };
        Self {
            cpus: drops.iter().map(cpu).collect(),
            hold: Hold::default(),
            left: FxHashMap::default(),
            placed_gaps: 0,
        }
    }

    /// Takes one line; `false` if it is not of the grammar.
    pub fn line(
        &mut self,
        letter: u8,
        ts: i64,
        cpu: u16,
        fields: &mut Fields<'_>,
        sink: &mut dyn EventSink,
    ) -> Result<bool> {
        if letter != b'C' {
            self.settle_priority(cpu, sink)?;
        }
        match letter {
            b'S' => match SwitchLine::read(fields) {
                Some(line) => self.switch(ts, cpu, &line, sink)?,
                None => return Ok(false),
            },
            b'L' => match read_ints::<2>(fields) {
                Some([queue, load]) => self.load(ts, cpu, queue, load, sink)?,
                None => return Ok(false),
            },
            b'E' => match EnqueueLine::read(fields) {
                Some(line) => self.enqueue(ts, cpu, &line, sink)?,
                None => return Ok(false),
            },
            b'W' => match WakingLine::read(fields) {
                Some(line) => self.wakeup(ts, cpu, (line.tid, line.prio), Some(&line), sink)?,
                None => return Ok(false),
            },
            b'P' => match read_ints::<1>(fields) {
                Some([tid]) => {
                    self.close(cpu, sink)?;
                    // 0: the same thread was chosen again.
                    let tid = u32::try_from(tid).ok().filter(|&tid| tid != 0);
                    self.cpus[usize::from(cpu)].preempting = tid;
                }
                None => return Ok(false),
            },
            b'D' => match read_ints::<2>(fields).map(|ids| ids.map(u32::try_from)) {
                Some([Ok(agent), Ok(tid)]) => self.dequeue(ts, cpu, Some(agent), tid, sink)?,
                _ => return Ok(false),
            },
            b'X' => match read_exit(fields) {
                Some(who) => self.exit(ts, cpu, who, sink)?,
                None => return Ok(false),
            },
            b'R' => match read_successor(fields) {
                Some(next) => self.successor(ts, cpu, &next, sink)?,
                None => return Ok(false),
            },
            b'C' => match read_ints::<5>(fields) {
                Some([_, tid, old, prio, lent]) => {
                    if !self.changed(ts, cpu, [tid, old, prio, lent], sink)? {
                        return Ok(false);
                    }
                }
                None => return Ok(false),
            },
            b'I' => match irq(ts, cpu, fields) {
                Some(event) => self.hold.send(event, sink)?,
                None => return Ok(false),
            },
            _ => return Ok(false),
        }
        self.cpus[usize::from(cpu)].last_ts = ts;
        Ok(true)
    }

    /// The same for a line of version 2.
    pub fn compact(
        &mut self,
        letter: u8,
        (ts, cpu): (i64, u16),
        words: &mut Words<'_>,
        names: &mut Names,
        sink: &mut dyn EventSink,
    ) -> Result<bool> {
        if letter != b'C' {
            self.settle_priority(cpu, sink)?;
        }
        match letter {
            b'S' => match names.freebsd_switch(words) {
                Some(line) => self.switch(ts, cpu, &line, sink)?,
                None => return Ok(false),
            },
            b'L' => match compact::load(words) {
                Some((queue, load)) => self.load(ts, cpu, queue, load, sink)?,
                None => return Ok(false),
            },
            b'E' => match names.enqueue(words, false) {
                Some(line) => self.enqueue(ts, cpu, &line, sink)?,
                None => return Ok(false),
            },
            b'W' => match compact::woken(words) {
                Some((tid, prio)) => self.wakeup(ts, cpu, (tid, prio), None, sink)?,
                None => return Ok(false),
            },
            b'N' => return Ok(names.learn(words).is_some()),
            b'V' => return Ok(words.ints::<3>().is_some()),
            b'P' => match words.end() {
                Some(()) => self.close(cpu, sink)?,
                None => return Ok(false),
            },
            b'D' => match words.ints().map(|[tid]| u32::try_from(tid)) {
                Some(Ok(tid)) => self.dequeue(ts, cpu, None, tid, sink)?,
                _ => return Ok(false),
            },
            b'X' => match compact::exit(words) {
                Some(who) => self.exit(ts, cpu, who, sink)?,
                None => return Ok(false),
            },
            b'R' => match names.successor(words) {
                Some(next) => self.successor(ts, cpu, &next, sink)?,
                None => return Ok(false),
            },
            b'C' => match words.ints() {
                Some([tid, old, prio, lent]) => {
                    if !self.changed(ts, cpu, [tid, old, prio, lent], sink)? {
                        return Ok(false);
                    }
                }
                None => return Ok(false),
            },
            b'I' => match compact_irq(ts, cpu, words) {
                Some(event) => self.hold.send(event, sink)?,
                None => return Ok(false),
            },
            _ => return Ok(false),
        }
        self.cpus[usize::from(cpu)].last_ts = ts;
        Ok(true)
    }

    fn exit(
        &mut self,
        ts: i64,
        cpu: u16,
        (tid, pid, comm): (u32, u32, Comm),
        sink: &mut dyn EventSink,
    ) -> Result<()> {
        self.close(cpu, sink)?;
        let who = Party {
            tid,
            pid: Some(pid),
            comm,
            ..Party::default()
        };
        // Its number may be given to another thread, with counts of its own.
        self.left.remove(&tid);
        self.cpus[usize::from(cpu)].leaving = Some((ts, who));
        self.hold.send(Event::Exit { ts, who }, sink)
    }

    /// A priority; false if the numbers cannot be.
    fn changed(
        &mut self,
        ts: i64,
        cpu: u16,
        [tid, old, prio, lent]: [i64; 4],
        sink: &mut dyn EventSink,
    ) -> Result<bool> {
        // A loan makes the priority better. 4BSD's probe fires when it gets worse, which the plain
        // line before it has already reported.
        if lent != 0 && prio >= old {
            return Ok(true);
        }
        match (u32::try_from(tid), i16::try_from(prio)) {
            (Ok(tid), Ok(prio)) => self.priority(ts, cpu, tid, prio, lent != 0, sink)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What was open on this CPU stays incomplete.
    fn close(&mut self, cpu: u16, sink: &mut dyn EventSink) -> Result<()> {
        let here = &mut self.cpus[usize::from(cpu)];
        here.moved_to = None;
        match std::mem::replace(&mut here.open, Open::Nothing) {
            Open::Nothing => Ok(()),
            Open::Enqueue { ticket } => self.hold.settle(ticket, sink, |_| true),
            Open::Wakeup { ticket, .. } | Open::Dequeue { ticket, .. } => {
                self.hold.settle(ticket, sink, |_| false)
            }
        }
    }

    fn settle_priority(&mut self, cpu: u16, sink: &mut dyn EventSink) -> Result<()> {
        match self.cpus[usize::from(cpu)].priority.take() {
            Some((ticket, _, _)) => self.hold.settle(ticket, sink, |_| true),
            None => Ok(()),
        }
    }

    fn wakeup(
        &mut self,
        ts: i64,
        cpu: u16,
        (tid, prio): (u32, i16),
        line: Option<&WakingLine>,
        sink: &mut dyn EventSink,
    ) -> Result<()> {
        self.close(cpu, sink)?;
        let agent = line.map(|line| line.waker);
        let event = Event::Wakeup {
            ts,
            cpu,
            kind: WakeKind::Waking,
            waker: agent.filter(|_| line.is_some_and(|line| line.interrupts <= 0)),
            current: agent,
            who: Party {
                prio: Some(prio),
                ..known_by_tid(tid)
            },
            target_cpu: None,
        };
        let ticket = self.hold.wait(event, false);
        self.cpus[usize::from(cpu)].open = Open::Wakeup {
            ticket,
            agent,
            tid,
            ts,
        };
        Ok(())
    }

    fn enqueue(
        &mut self,
        ts: i64,
        cpu: u16,
        line: &EnqueueLine,
        sink: &mut dyn EventSink,
    ) -> Result<()> {
        let tid = line.who.tid;
        match self.cpus[usize::from(cpu)].open {
            // One lock is held from the probe to the enqueue: a thread that left its
            // CPU in between was not asleep yet when the probe fired.
            Open::Wakeup {
                ticket,
                agent,
                tid: woken,
                ts: since,
            } if woken == tid
                && agent.is_none_or(|agent| agent == line.waker)
                && self.left.get(&tid).is_none_or(|left| left.ts <= since) =>
            {
                self.cpus[usize::from(cpu)].open = Open::Nothing;
                self.hold.settle(ticket, sink, |event| {
                    if let Event::Wakeup {
                        waker,
                        current: current @ None,
                        ..
                    } = event
                    {
                        *waker = (line.interrupts <= 0).then_some(line.waker);
                        *current = Some(line.waker);
                    }
                    true
                })?;
            }
            // Requeued by the same thread: not a wakeup. The load-change that follows shows whether
            // it changed CPUs.
            Open::Dequeue {
                agent, tid: taken, ..
            } if taken == tid && agent.is_none_or(|agent| agent == line.waker) => {
                return Ok(());
            }
            _ => {}
        }
        self.close(cpu, sink)?;
        let new = line.who.last_cpu == -1;
        let who = party(&line.who);
        let waker = (line.interrupts <= 0).then_some(line.waker);
        if new {
            let parent = known_by_tid(waker.unwrap_or(0));
            self.hold.send(
                Event::Fork {
                    ts,
                    parent,
                    child: who,
                    same_process: None,
                },
                sink,
            )?;
        }
        let event = Event::Wakeup {
            ts,
            cpu,
            kind: if new {
                WakeKind::New
            } else {
                WakeKind::Enqueued
            },
            waker,
            current: Some(line.waker),
            who,
            target_cpu: line.target_cpu,
        };
        let ticket = self.hold.wait(event, true);
        self.cpus[usize::from(cpu)].open = Open::Enqueue { ticket };
        Ok(())
    }

    fn dequeue(
        &mut self,
        ts: i64,
        cpu: u16,
        agent: Option<u32>,
        tid: u32,
        sink: &mut dyn EventSink,
    ) -> Result<()> {
        self.close(cpu, sink)?;
        let event = Event::Migrate {
            ts,
            cpu,
            who: known_by_tid(tid),
            from_cpu: None,
            to_cpu: None,
        };
        let ticket = self.hold.wait(event, false);
        self.cpus[usize::from(cpu)].open = Open::Dequeue {
            ticket,
            agent,
            tid,
            from: None,
        };
        Ok(())
    }

    fn load(
        &mut self,
        ts: i64,
        cpu: u16,
        queue: i64,
        load: i64,
        sink: &mut dyn EventSink,
    ) -> Result<()> {
        // NOCPU (-1, once 255) is 4BSD's one queue for all.
        let queue = u16::try_from(queue)
            .ok()
            .filter(|&q| usize::from(q) < self.cpus.len());
        let here = &mut self.cpus[usize::from(cpu)];
        let mut settled = None;
        match &mut here.open {
            Open::Enqueue { ticket } => settled = Some((*ticket, None)),
            Open::Dequeue {
                from: from @ None, ..
            } => *from = Some(queue),
            Open::Dequeue {
                ticket,
                from: Some(from),
                ..
            } => settled = Some((*ticket, *from)),
            _ => here.moved_to = queue.filter(|&q| q != cpu),
        }
        if let Some((ticket, from)) = settled {
            here.open = Open::Nothing;
            self.hold.settle(ticket, sink, |event| match event {
                Event::Wakeup { target_cpu, .. } => {
                    *target_cpu = target_cpu.or(queue);
                    true
                }
                Event::Migrate {
                    from_cpu, to_cpu, ..
                } => {
                    (*from_cpu, *to_cpu) = (from, queue);
                    from != queue && queue.is_some()
                }
                _ => true,
            })?;
        }
        let load = i32::try_from(load).unwrap_or(i32::MAX);
        self.hold.send(
            Event::QueueLoad {
                ts,
                cpu: queue,
                load,
            },
            sink,
        )
    }

    fn priority(
        &mut self,
        ts: i64,
        cpu: u16,
        tid: u32,
        prio: i16,
        lent: bool,
        sink: &mut dyn EventSink,
    ) -> Result<()> {
        let here = &mut self.cpus[usize::from(cpu)];
        if lent && let Some((ticket, before, to)) = here.priority.take() {
            if (before, to) == (tid, prio) {
                // One change reported twice: by change-pri, then by lend-pri.
                return self.hold.settle(ticket, sink, |event| {
                    if let Event::Priority { cause, .. } = event {
                        *cause = PriorityCause::LendPri;
                    }
                    true
                });
            }
            here.priority = Some((ticket, before, to));
        }
        self.settle_priority(cpu, sink)?;
        let event = Event::Priority {
            ts,
            who: known_by_tid(tid),
            prio,
            cause: if lent {
                PriorityCause::LendPri
            } else {
                PriorityCause::ChangePri
            },
        };
        let ticket = self.hold.wait(event, true);
        self.cpus[usize::from(cpu)].priority = Some((ticket, tid, prio));
        Ok(())
    }

    fn successor(
        &mut self,
        ts: i64,
        cpu: u16,
        next: &Thread,
        sink: &mut dyn EventSink,
    ) -> Result<()> {
        self.close(cpu, sink)?;
        let here = &mut self.cpus[usize::from(cpu)];
        here.preempting = None;
        here.current = Some(next.tid);
        let Some((_, prev)) = here.leaving.take() else {
            // Its lwp-exit was lost: the next switch shows the broken chain.
            return Ok(());
        };
        let event = Event::Switch {
            ts,
            cpu,
            prev,
            prev_state: State::Dead,
            preempted: Some(false),
            next: party(next),
        };
        self.hold.send(event, sink)
    }

    /// Was the switch-out involuntary? One of the two counters increased with this switch; after a
    /// switch that chose the same thread again both may have, and at the thread's first event
    /// neither is known: then the `preempt` just before decides.
    fn preempted(&mut self, cpu: u16, line: &SwitchLine<'_>, before: Option<Left>) -> bool {
        let here = &mut self.cpus[usize::from(cpu)];
        let fired = here.preempting.take() == Some(line.prev.tid);
        if line.how >= 0 {
            return line.how == 1;
        }
        match before.map(|b| (line.nvcsw > b.nvcsw, line.nivcsw > b.nivcsw)) {
            Some((true, false)) => false,
            Some((false, true)) => true,
            _ => fired,
        }
    }

    fn switch(
        &mut self,
        ts: i64,
        cpu: u16,
        line: &SwitchLine<'_>,
        sink: &mut dyn EventSink,
    ) -> Result<()> {
        let moved_to = self.cpus[usize::from(cpu)].moved_to.take();
        self.close(cpu, sink)?;
        let prev_idle = line.prev.kind & KIND_IDLE != 0;
        self.gap(ts, cpu, line.prev.tid, sink)?;
        let (prev_state, sleep) = state(line);
        let preempted = !prev_idle && {
            let now = Left {
                ts,
                nvcsw: line.nvcsw,
                nivcsw: line.nivcsw,
            };
            let before = self.left.insert(line.prev.tid, now);
            prev_state == State::Runnable && self.preempted(cpu, line, before)
        };
        let here = &mut self.cpus[usize::from(cpu)];
        here.preempting = None;
        here.current = Some(line.next.tid);
        let prev = party(&line.prev);
        let next = party(&line.next);
        self.hold.send(
            Event::Switch {
                ts,
                cpu,
                prev,
                prev_state,
                preempted: Some(preempted),
                next,
            },
            sink,
        )?;
        if prev_idle {
            return Ok(());
        }
        if let Some(kind) = sleep {
            let reason = if line.why == b"-" {
                Comm::default()
            } else {
                Comm::new(line.why)
            };
            self.hold.send(
                Event::Sleep {
                    ts,
                    cpu,
                    tid: line.prev.tid,
                    kind,
                    reason,
                },
                sink,
            )?;
        } else if let (State::Runnable, Some(to)) = (prev_state, moved_to) {
            // ULE's sched_switch_migrate: it goes on waiting on another queue.
            let event = Event::Migrate {
                ts,
                cpu,
                who: known_by_tid(line.prev.tid),
                from_cpu: Some(cpu),
                to_cpu: Some(to),
            };
            self.hold.send(event, sink)?;
        }
        Ok(())
    }

    /// A switch that does not start where the last one ended: an exit whose
    /// successor was not seen, or dropped records where dtrace reported some.
    fn gap(&mut self, ts: i64, cpu: u16, prev: u32, sink: &mut dyn EventSink) -> Result<()> {
        let here = &mut self.cpus[usize::from(cpu)];
        let (ts_begin, reason) = match here.leaving.take() {
            Some((_, who)) if who.tid == prev => return Ok(()),
            Some((since, _)) => (since, LossReason::ExitHole),
            None if here.drops && here.current.is_some_and(|tid| tid != prev) => {
                self.placed_gaps += 1;
                (here.last_ts, LossReason::Overrun)
            }
            None => return Ok(()),
        };
        let event = Event::Loss {
            cpu: Some(cpu),
            ts_begin,
            ts_end: ts,
            count: None,
            reason,
        };
        self.hold.send(event, sink)
    }

    /// Sends what still waits.
    pub fn finish(&mut self, sink: &mut dyn EventSink) -> Result<()> {
        self.hold.finish(sink)
    }
}

/// irq.d and callout.d: kind, number, ns, name. Printed at the end.
fn irq(ts: i64, cpu: u16, fields: &mut Fields<'_>) -> Option<Event> {
    let callout = match fields.word()? {
        b"irq" => false,
        b"callout" => true,
        _ => return None,
    };
    let id = fields.small()?;
    interrupt(ts, cpu, callout, id, fields.int()?)
}

fn compact_irq(ts: i64, cpu: u16, words: &mut Words<'_>) -> Option<Event> {
    let callout = words.int()? != 0;
    let id = words.small()?;
    let dur = words.int()?;
    words.name()?;
    interrupt(ts, cpu, callout, id, dur)
}

fn interrupt(ts: i64, cpu: u16, callout: bool, id: u32, dur: i64) -> Option<Event> {
    Some(Event::Irq {
        ts: ts.checked_sub(dur).filter(|_| dur >= 0)?,
        cpu,
        kind: if callout {
            IrqKind::Soft
        } else {
            IrqKind::Hard
        },
        id,
        dur,
    })
}
