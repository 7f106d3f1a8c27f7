//! What Linux's lines mean. Every line is an event of its own; nothing is held. The only state is
//! which threads called sched_yield since their CPU last switched: that call and a preemption both
//! leave a thread in state R.

use super::compact::{self, Names, Words};
use super::line::{
    EnqueueLine, Fields, KIND_IDLE, KIND_KERNEL, SwitchLine, Thread, WakingLine, read_exit,
    read_ints,
};
use crate::error::Result;
use crate::model::event::{
    Comm, Event, EventSink, Party, PriorityCause, SchedClass, State, WakeKind,
};

/// Bits of task_struct.__state (include/linux/sched.h, 5.14 and later), as
/// `prev_state` of the raw tracepoint carries them.
mod bits {
    pub const INTERRUPTIBLE: u32 = 0x1;
    pub const UNINTERRUPTIBLE: u32 = 0x2;
    pub const STOPPED: u32 = 0x4;
    pub const TRACED: u32 = 0x8;
    pub const EXIT_DEAD: u32 = 0x10;
    pub const EXIT_ZOMBIE: u32 = 0x20;
    pub const PARKED: u32 = 0x40;
    pub const DEAD: u32 = 0x80;
    pub const NOLOAD: u32 = 0x400;
    pub const RTLOCK_WAIT: u32 = 0x1000;
    pub const FROZEN: u32 = 0x8000;
}

fn state(raw: u32) -> State {
    use bits::*;
    if raw & (DEAD | EXIT_DEAD | EXIT_ZOMBIE) != 0 {
        State::Dead
    } else if raw & (STOPPED | TRACED) != 0 {
        State::Stopped
    } else if raw & PARKED != 0 || raw & (UNINTERRUPTIBLE | NOLOAD) == UNINTERRUPTIBLE | NOLOAD {
        State::Parked
    } else if raw & INTERRUPTIBLE != 0 {
        State::Sleeping
    } else if raw & (UNINTERRUPTIBLE | RTLOCK_WAIT | FROZEN) != 0 {
        State::Blocked
    } else if raw == 0 {
        State::Runnable
    } else {
        State::Unknown
    }
}

/// SCHED_* of include/uapi/linux/sched.h. sched_ext reports 7.
fn class(policy: i64) -> Option<SchedClass> {
    Some(match policy {
        0 | 7 => SchedClass::Fair,
        1 | 2 => SchedClass::Realtime,
        3 => SchedClass::Batch,
        5 => SchedClass::Idle,
        6 => SchedClass::Deadline,
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
        class: class(thread.class),
        kernel: thread.pid.map(|_| thread.kind & KIND_KERNEL != 0),
    }
}

fn known_by_tid(tid: u32, prio: Option<i16>) -> Party {
    Party {
        tid,
        prio,
        ..Party::default()
    }
}

/// The reader of Linux's lines.
pub struct Linux {
    /// Per CPU, the thread that called sched_yield since the last switch.
    yielding: Vec<Option<u32>>,
    yields_recorded: bool,
}

impl Linux {
    /// `yields_recorded`: yield.d ran beside sched.d.
    pub fn new(ncpu: usize, yields_recorded: bool) -> Self {
        Self {
            yielding: vec![None; ncpu],
            yields_recorded,
        }
    }

    /// Sends the events of one line; `false` if it is not of the grammar.
    pub fn line(
        &mut self,
        letter: u8,
        ts: i64,
        cpu: u16,
        fields: &mut Fields<'_>,
        sink: &mut dyn EventSink,
    ) -> Result<bool> {
        let event = match letter {
            b'S' => SwitchLine::read(fields).map(|line| self.switch(ts, cpu, &line)),
            b'Y' => read_ints::<1>(fields)
                .and_then(|[tid]| self.yields(ts, u32::try_from(tid).ok()?, cpu)),
            _ => other(letter, ts, cpu, fields, sink)?,
        };
        match event {
            Some(event) => sink.event(&event).map(|()| true),
            None => Ok(false),
        }
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
        let event = match letter {
            b'S' => names
                .linux_switch(words, cpu)
                .map(|line| self.switch(ts, cpu, &line)),
            b'N' => return Ok(names.learn(words).is_some()),
            b'Y' => words
                .ints()
                .and_then(|[tid]| self.yields(ts, u32::try_from(tid).ok()?, cpu)),
            b'W' => words.ints().and_then(|[waker, tid, prio]| {
                waking(
                    ts,
                    cpu,
                    &WakingLine {
                        waker: u32::try_from(waker).ok()?,
                        interrupts: -1,
                        tid: u32::try_from(tid).ok()?,
                        prio: i16::try_from(prio).ok()?,
                    },
                )
            }),
            b'E' => match names.enqueue(words, true) {
                Some(line) => Some(enqueue(ts, cpu, &line, sink)?),
                None => None,
            },
            b'M' => words
                .ints()
                .and_then(|[tid, from, to]| migrate(ts, cpu, tid, from, to)),
            b'X' => compact::exit(words).map(|who| exit(ts, who)),
            b'C' => words
                .ints()
                .and_then(|[tid, _, prio, _]| priority(ts, tid, prio)),
            _ => None,
        };
        match event {
            Some(event) => sink.event(&event).map(|()| true),
            None => Ok(false),
        }
    }

    fn yields(&mut self, ts: i64, tid: u32, cpu: u16) -> Option<Event> {
        self.yielding[usize::from(cpu)] = Some(tid);
        Some(Event::Yield { ts, tid })
    }

    #[inline]
    fn switch(&mut self, ts: i64, cpu: u16, line: &SwitchLine<'_>) -> Event {
        let yielded = self.yielding[usize::from(cpu)].take() == Some(line.prev.tid);
        // Preempted in the kernel: still runnable, whatever state it was about
        // to sleep in. R without it is a preemption on the way to user mode or
        // a sched_yield.
        let prev_state = if line.how == 1 {
            State::Runnable
        } else {
            state(line.state)
        };
        let preempted = match (line.how, prev_state) {
            (1, _) => Some(true),
            // The idle thread always leaves in R, without being asked.
            (_, State::Runnable) if line.prev.kind & KIND_IDLE != 0 => None,
            (_, State::Runnable) => self.yields_recorded.then_some(!yielded),
            _ => Some(false),
        };
        let prev = Party {
            class: None,
            ..party(&line.prev)
        };
        Event::Switch {
            ts,
            cpu,
            prev,
            prev_state,
            preempted,
            next: party(&line.next),
        }
    }
}

/// The event of a line that needs no memory; None if it is not of the grammar.
fn other(
    letter: u8,
    ts: i64,
    cpu: u16,
    fields: &mut Fields<'_>,
    sink: &mut dyn EventSink,
) -> Result<Option<Event>> {
    Ok(match letter {
        b'W' => WakingLine::read(fields).and_then(|line| waking(ts, cpu, &line)),
        b'E' => match EnqueueLine::read(fields) {
            None => None,
            Some(line) => Some(enqueue(ts, cpu, &line, sink)?),
        },
        b'M' => {
            read_ints::<4>(fields).and_then(|[_, tid, from, to]| migrate(ts, cpu, tid, from, to))
        }
        b'X' => read_exit(fields).map(|who| exit(ts, who)),
        b'C' => read_ints::<5>(fields).and_then(|[_, tid, _, prio, _]| priority(ts, tid, prio)),
        _ => None,
    })
}

fn waking(ts: i64, cpu: u16, line: &WakingLine) -> Option<Event> {
    Some(Event::Wakeup {
        ts,
        cpu,
        kind: WakeKind::Waking,
        waker: (line.interrupts <= 0).then_some(line.waker),
        current: Some(line.waker),
        who: known_by_tid(line.tid, Some(line.prio)),
        target_cpu: None,
    })
}

fn enqueue(ts: i64, cpu: u16, line: &EnqueueLine, sink: &mut dyn EventSink) -> Result<Event> {
    let new = line.who.last_cpu == -1;
    let who = party(&line.who);
    if new {
        let parent = known_by_tid(line.waker, None);
        let same_process = None;
        sink.event(&Event::Fork {
            ts,
            parent,
            child: who,
            same_process,
        })?;
    }
    Ok(Event::Wakeup {
        ts,
        cpu,
        kind: if new {
            WakeKind::New
        } else {
            WakeKind::Enqueued
        },
        waker: (line.interrupts <= 0).then_some(line.waker),
        current: Some(line.waker),
        who,
        target_cpu: line.target_cpu,
    })
}

fn migrate(ts: i64, cpu: u16, tid: i64, from: i64, to: i64) -> Option<Event> {
    Some(Event::Migrate {
        ts,
        cpu,
        who: known_by_tid(u32::try_from(tid).ok()?, None),
        from_cpu: u16::try_from(from).ok(),
        to_cpu: u16::try_from(to).ok(),
    })
}

fn exit(ts: i64, (tid, pid, comm): (u32, u32, Comm)) -> Event {
    Event::Exit {
        ts,
        who: Party {
            tid,
            pid: Some(pid),
            comm,
            ..Party::default()
        },
    }
}

fn priority(ts: i64, tid: i64, prio: i64) -> Option<Event> {
    Some(Event::Priority {
        ts,
        who: known_by_tid(u32::try_from(tid).ok()?, None),
        prio: i16::try_from(prio).ok()?,
        cause: PriorityCause::PiSetprio,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_states_become_the_models() {
        for (raw, expected) in [
            (0x0, State::Runnable),
            (0x1, State::Sleeping),
            (0x2001, State::Sleeping),
            (0x2, State::Blocked),
            (0x102, State::Blocked),
            (0x402, State::Parked),
            (0x8000, State::Blocked),
            (0x40, State::Parked),
            (0x4, State::Stopped),
            (0x8, State::Stopped),
            (0x80, State::Dead),
            (0x200, State::Unknown),
        ] {
            assert_eq!(state(raw), expected, "{raw:#x}");
        }
    }
}
