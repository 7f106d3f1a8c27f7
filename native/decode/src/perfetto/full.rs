//! Events in full: a message for each, with a field for each of its parts.

use std::ops::RangeInclusive;

use super::bundle::{Decoder, IN_INTERRUPT, OTHER, TID_MAX, state};
use super::by_name::{self, LOCK_BEGIN, LOCK_END, STAT_IOWAIT, YIELD};
use super::rows::{Form, Row};
use super::wire::{Fields, Packed, Value};
use crate::model::event::{
    CallStep, Comm, DiskStep, Event, GroupMove, IrqKind, LockKind, LockStep, Party, PriorityCause,
    ToldBy, UNKNOWN_TID, WakeKind,
};

/// Of Linux' threads.
const PRIORITIES: RangeInclusive<i64> = -1..=139;

/// Fields of FtraceEvent that we read.
const SWITCH: u32 = 4;
const WAKEUP: u32 = 17;
const BLOCKED_REASON: u32 = 18;
const WAKING: u32 = 20;
const SOFTIRQ_ENTRY: u32 = 24;
const SOFTIRQ_EXIT: u32 = 25;
const IRQ_ENTRY: u32 = 36;
const IRQ_EXIT: u32 = 37;
const DISK_ISSUE: u32 = 45;
const ATTACH: u32 = 67;
const TRANSFER: u32 = 71;
const WAKEUP_NEW: u32 = 114;
const DISK_COMPLETE: u32 = 125;
const NEWTASK: u32 = 235;
const RENAME: u32 = 236;
const EXEC: u32 = 237;
const EXIT: u32 = 238;
const FORK: u32 = 239;
const GENERIC: u32 = 327;
const SYS_ENTER: u32 = 329;
const SYS_EXIT: u32 = 330;
const PI_SETPRIO: u32 = 353;
const MIGRATE: u32 = 491;
const DISK_START: u32 = 546;

/// Numbers and names of a small message, by field number (1 to 7).
#[derive(Default)]
struct Small<'a> {
    values: [Option<Value<'a>>; 8],
}

impl<'a> Small<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut small = Self::default();
        let mut fields = Fields::new(bytes);
        for (number, value) in &mut fields {
            if let Some(slot) = small.values.get_mut(number as usize) {
                *slot = Some(value);
            }
        }
        (!fields.damaged()).then_some(small)
    }

    /// Has it the fields that traced_probes writes of each switch?
    fn is_switch(&self) -> bool {
        let is_name = |field: usize| matches!(self.values[field], Some(Value::Bytes(_)));
        let is_number = |field: usize| matches!(self.values[field], Some(Value::Number(_)));
        let is_tid = |field: usize| self.tid(field).is_some_and(|tid| tid <= TID_MAX);
        let is_prio = |field: usize| PRIORITIES.contains(&self.number(field));
        [1, 5].into_iter().all(is_name)
            && [2, 3, 4, 6, 7].into_iter().all(is_number)
            && [2, 6].into_iter().all(is_tid)
            && [3, 7].into_iter().all(is_prio)
    }

    /// Absent numbers are zero in protobuf 2 as this writer uses it.
    fn number(&self, field: usize) -> i64 {
        self.values[field].map_or(0, Value::signed)
    }

    fn tid(&self, field: usize) -> Option<u32> {
        u32::try_from(self.number(field)).ok()
    }

    fn cpu(&self, field: usize) -> Option<u16> {
        u16::try_from(self.values[field]?.signed()).ok()
    }

    fn prio(&self, field: usize) -> Option<i16> {
        i16::try_from(self.values[field]?.signed()).ok()
    }

    fn comm(&self, field: usize) -> Comm {
        self.values[field].map_or_else(Comm::default, |value| Comm::new(value.bytes()))
    }

    /// A thread by the fields of its name, id and priority (0: it has none).
    fn party(&self, comm: usize, tid: usize, prio: usize) -> Option<Party> {
        let tid = self.tid(tid)?;
        Some(Party {
            tid,
            idle: tid == 0,
            prio: self.prio(prio),
            comm: self.comm(comm),
            ..Party::default()
        })
    }
}

impl Decoder<'_> {
    /// The event's time. None: damaged.
    pub(super) fn read_event(&mut self, bytes: &[u8]) -> Option<i64> {
        let (mut ts, mut tid, mut flags) = (0, None, 0);
        let mut inner = None;
        let mut fields = Fields::new(bytes);
        for (number, value) in &mut fields {
            match number {
                1 => ts = value.number(),
                2 => tid = Some(value.number()),
                5 => flags = value.number(),
                _ => inner = Some((number, value.bytes())),
            }
        }
        let (kind, message) = inner.filter(|_| !fields.damaged())?;
        let ts = self.ts(ts)?;
        let tid = tid.and_then(|tid| u32::try_from(tid).ok());
        let rewritten = match kind {
            GENERIC => by_name::rewrite(message),
            _ if self.state.described.any(kind) => self.state.described.rewrite(kind, message),
            _ => None,
        };
        let (kind, message) = match &rewritten {
            Some((kind, rewritten)) => (*kind, rewritten.as_slice()),
            None => (kind, message),
        };
        if let WAKEUP | WAKING | WAKEUP_NEW = kind {
            self.wake(kind, message, ts, tid, flags)?;
        } else if let Some(event) = self.read(kind, message, ts, tid, flags)? {
            self.out.push_other(ts, event);
        }
        self.state.last = Some(self.state.last.map_or(ts, |last| last.max(ts)));
        Some(ts)
    }

    /// Where the flags are not written, the recorded handlers show it.
    fn in_interrupt(&self, flags: u64) -> bool {
        flags & IN_INTERRUPT != 0
            || self
                .state
                .interrupts
                .any(|kind| self.state.tells_ends(kind))
    }

    /// The most frequent of the full events. None: damaged.
    #[inline]
    fn wake(
        &mut self,
        kind: u32,
        message: &[u8],
        ts: i64,
        current: Option<u32>,
        flags: u64,
    ) -> Option<()> {
        let (count, kind) = match kind {
            WAKEUP => (1, WakeKind::Enqueued),
            WAKING => (2, WakeKind::Waking),
            _ => (3, WakeKind::New),
        };
        let (mut comm, mut woken, mut prio, mut target) = (Comm::default(), 0, None, None);
        let mut found = 0u8;
        let mut fields = Fields::new(message);
        for (number, value) in &mut fields {
            // A name has bytes, all else is a number.
            let typed = (number == 1) == matches!(value, Value::Bytes(_));
            found |= u8::from(typed) << (number & 7);
            match number {
                1 => comm = Comm::new(value.bytes()),
                2 => woken = value.signed(),
                3 => prio = i16::try_from(value.signed()).ok(),
                5 => target = u16::try_from(value.signed()).ok(),
                _ => {}
            }
        }
        let tid = u32::try_from(woken).ok().filter(|_| !fields.damaged())?;
        // What traced_probes writes of each wakeup.
        const FIELDS: u8 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 5;
        let prio_known = prio.is_some_and(|prio| PRIORITIES.contains(&i64::from(prio)));
        if self.complete && (found & FIELDS != FIELDS || !prio_known || tid > TID_MAX) {
            return None;
        }
        self.state.full_wakeups[0] += 1;
        self.state.full_wakeups[1] += u64::from(current == Some(tid));
        let (current, waker) = if self.no_wakers {
            target = None;
            (None, Some(UNKNOWN_TID))
        } else {
            (current, current.filter(|_| !self.in_interrupt(flags)))
        };
        let name = self.out.names.len() as u32;
        self.out.names.push(comm);
        let form = Form::Wake {
            kind,
            waker,
            current,
            target,
        };
        self.out.full.push(Row {
            ts,
            tid,
            prio,
            name,
            form,
        });
        self.state.counts[count] += 1;
        Some(())
    }

    /// Some(None): an event we have no use for. None: damaged.
    fn read(
        &mut self,
        kind: u32,
        message: &[u8],
        ts: i64,
        current: Option<u32>,
        flags: u64,
    ) -> Option<Option<Event>> {
        let cpu = self.cpu;
        let small = Small::read(message)?;
        let (count, event) = match kind {
            SWITCH => {
                if self.complete && !(small.is_switch() && current == small.tid(2)) {
                    return None;
                }
                let (prev_state, preempted) = state(self.states, small.number(4).cast_unsigned());
                let next = small.party(5, 6, 7)?;
                self.state.current = Some(next.tid);
                (
                    0,
                    Event::Switch {
                        ts,
                        cpu,
                        prev: small.party(1, 2, 3)?,
                        prev_state,
                        preempted,
                        next,
                    },
                )
            }
            NEWTASK => (
                4,
                Event::Fork {
                    ts,
                    parent: Party {
                        tid: current.unwrap_or(0),
                        ..Party::default()
                    },
                    child: Party {
                        tid: small.tid(1)?,
                        comm: small.comm(2),
                        ..Party::default()
                    },
                    // CLONE_THREAD
                    same_process: Some(small.number(3) & 0x1_0000 != 0),
                },
            ),
            RENAME => (
                5,
                Event::Rename {
                    ts,
                    tid: small.tid(1)?,
                    comm: small.comm(3),
                },
            ),
            EXEC => (
                6,
                Event::Exec {
                    ts,
                    tid: small.tid(2)?,
                    old_tid: small.tid(3)?,
                },
            ),
            EXIT => (
                7,
                Event::Exit {
                    ts,
                    who: small.party(1, 2, 4)?,
                },
            ),
            FORK => (
                8,
                Event::Fork {
                    ts,
                    parent: small.party(1, 2, 0)?,
                    child: small.party(3, 4, 0)?,
                    same_process: None,
                },
            ),
            PI_SETPRIO => (
                9,
                Event::Priority {
                    ts,
                    who: small.party(1, 4, 0)?,
                    prio: small.prio(2)?,
                    cause: PriorityCause::PiSetprio,
                },
            ),
            MIGRATE => (
                10,
                Event::Migrate {
                    ts,
                    cpu,
                    who: small.party(1, 2, 3)?,
                    from_cpu: small.cpu(4),
                    to_cpu: small.cpu(5),
                },
            ),
            SYS_ENTER => (
                11,
                Event::SystemCall {
                    ts,
                    cpu,
                    tid: current?,
                    step: CallStep::Enter,
                    number: small.number(1) as i32,
                    value: None,
                    args: first_three(message),
                },
            ),
            SYS_EXIT => (
                12,
                Event::SystemCall {
                    ts,
                    cpu,
                    tid: current?,
                    step: CallStep::Exit,
                    number: small.number(1) as i32,
                    value: Some(small.number(2)),
                    args: None,
                },
            ),
            IRQ_ENTRY | SOFTIRQ_ENTRY | IRQ_EXIT | SOFTIRQ_EXIT => {
                return Some(self.handler(kind, small.tid(1)?, ts));
            }
            DISK_START | DISK_ISSUE | DISK_COMPLETE => {
                let (count, step) = match kind {
                    DISK_START => (17, DiskStep::Start),
                    DISK_ISSUE => (18, DiskStep::Issue),
                    _ => (19, DiskStep::Complete),
                };
                let asked = step != DiskStep::Complete && !self.in_interrupt(flags);
                let event = Event::DiskRequest {
                    ts,
                    cpu,
                    tid: current.filter(|_| asked),
                    step,
                    device: kernel_device(small.number(1).cast_unsigned())?,
                    sector: small.number(2).cast_unsigned(),
                    sectors: u32::try_from(small.number(3)).ok()?,
                };
                (count, event)
            }
            BLOCKED_REASON => (
                20,
                Event::SleepReason {
                    ts,
                    cpu,
                    tid: small.tid(1)?,
                    io_wait: small.number(3) != 0,
                    // A number of the packets' own list of names, or an address, from a kernel that
                    // hides them.
                    function: self
                        .symbols
                        .and_then(|names| names.get(&small.number(2).cast_unsigned()).copied()),
                    entry: None,
                    told_by: ToldBy::Event,
                },
            ),
            STAT_IOWAIT => (
                21,
                Event::SleepReason {
                    ts,
                    cpu,
                    tid: small.tid(1)?,
                    io_wait: true,
                    function: None,
                    entry: None,
                    told_by: ToldBy::Event,
                },
            ),
            LOCK_BEGIN | LOCK_END => {
                let count = if kind == LOCK_BEGIN { 22 } else { 23 };
                self.state.counts[count] += 1;
                // What an interrupt's handler waits for is not the thread's.
                let waits = !self.in_interrupt(flags);
                return Some(current.filter(|_| waits).map(|tid| Event::Lock {
                    ts,
                    cpu,
                    tid,
                    step: if kind == LOCK_BEGIN {
                        LockStep::Begin
                    } else {
                        LockStep::End
                    },
                    address: kernel_address(small.number(1).cast_unsigned()),
                    kind: (kind == LOCK_BEGIN).then(|| LockKind::of_flags(small.number(2))),
                    value: (kind == LOCK_END).then(|| small.number(2) as i32),
                }));
            }
            ATTACH | TRANSFER => {
                let path = small.values[7].map(Value::bytes);
                let one = GroupMove {
                    ts,
                    tid: small.tid(3)?,
                    cgroup: String::from_utf8_lossy(path.unwrap_or_default()).into_owned(),
                };
                self.state.counts[if kind == ATTACH { 24 } else { 25 }] += 1;
                // Old kernels have only the last part of the path.
                if path.is_some() {
                    self.state.group_moves.push(Some(small.number(1)), one);
                }
                return Some(None);
            }
            YIELD => (26, Event::Yield { ts, tid: current? }),
            _ => {
                self.state.counts[OTHER] += 1;
                return Some(None);
            }
        };
        self.state.counts[count] += 1;
        Some(Some(event))
    }

    /// Number `id` was entered or left. The time in it is known when it is left.
    fn handler(&mut self, kind: u32, id: u32, ts: i64) -> Option<Event> {
        let (count, kind, enters) = match kind {
            IRQ_ENTRY => (13, IrqKind::Hard, true),
            IRQ_EXIT => (14, IrqKind::Hard, false),
            SOFTIRQ_ENTRY => (15, IrqKind::Soft, true),
            _ => (16, IrqKind::Soft, false),
        };
        self.state.counts[count] += 1;
        if enters {
            self.state.interrupts.enter(kind, id, ts);
            return None;
        }
        self.state.interrupts.leave(kind, id, ts, self.cpu)
    }
}

/// A system call's arguments, a repeated number: written by newer writers.
fn first_three(message: &[u8]) -> Option<[u64; 3]> {
    let mut found = [0; 3];
    let mut count = 0;
    for (_, value) in Fields::new(message).filter(|&(number, _)| number == 2) {
        match value {
            Value::Number(value) => {
                *found.get_mut(count)? = value;
                count += 1;
            }
            Value::Bytes(bytes) => {
                for value in Packed(bytes).take(3 - count) {
                    found[count] = value;
                    count += 1;
                }
            }
        }
        if count == 3 {
            return Some(found);
        }
    }
    None
}

/// Where a lock is. Since Perfetto 50 the writer puts a small number in place of an address, which
/// stands for another one in the next bundle.
fn kernel_address(number: u64) -> Option<u64> {
    Some(number).filter(|&number| number > u64::from(u32::MAX))
}

/// The kernel's number of a disk, from the one of `makedev(3)` that the writer makes of it.
fn kernel_device(dev: u64) -> Option<u32> {
    let major = (dev >> 32 & 0xffff_f000) | (dev >> 8 & 0xfff);
    let minor = (dev >> 12 & 0xffff_ff00) | (dev & 0xff);
    u32::try_from(major << 20 | minor & 0xf_ffff).ok()
}
