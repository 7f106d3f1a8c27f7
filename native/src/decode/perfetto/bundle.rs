//! One bundle of ftrace events of one CPU, decoded into events in time order.

use std::ops::RangeInclusive;

use super::by_name::{Described, LOCK_BEGIN, LOCK_END, STAT_IOWAIT, YIELD};
use super::clocks::{Clocks, MONOTONIC_RAW};
use super::damage::{Misplaced, Order, Seen, agree};
use super::wire::{Fields, Packed, Value};
use rustc_hash::FxHashMap;

use crate::decode::ftrace::interrupts::OpenInterrupts;
use crate::decode::ftrace::states::StateTable;
use crate::decode::group_moves::GroupMoves;
use crate::decode::merge;
use crate::model::event::{
    CallStep, Comm, DiskStep, Event, Function, GroupMove, IrqKind, LockKind, LockStep, Party,
    PriorityCause, State, ToldBy, WakeKind,
};
use crate::model::time::FAR;

/// `common_flags`, which traced_probes does not write with full events: raised from a hard or soft
/// interrupt or an NMI.
const IN_INTERRUPT: u64 = 0x08 | 0x10 | 0x40;

/// Of Linux' threads.
const PRIORITIES: RangeInclusive<i64> = -1..=139;

/// Linux numbers no thread higher.
const TID_MAX: u32 = (1 << 22) - 1;

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

/// What our own export writes for a state that is not known: a bit that no
/// kernel has used.
const UNKNOWN_STATE: u64 = 0x8000;

/// Names by which events are counted, in the order of `Counts`.
pub const NAMES: [&str; 28] = [
    "sched:sched_switch",
    "sched:sched_wakeup",
    "sched:sched_waking",
    "sched:sched_wakeup_new",
    "task:task_newtask",
    "task:task_rename",
    "sched:sched_process_exec",
    "sched:sched_process_exit",
    "sched:sched_process_fork",
    "sched:sched_pi_setprio",
    "sched:sched_migrate_task",
    "raw_syscalls:sys_enter",
    "raw_syscalls:sys_exit",
    "irq:irq_handler_entry",
    "irq:irq_handler_exit",
    "irq:softirq_entry",
    "irq:softirq_exit",
    "block:block_io_start",
    "block:block_rq_issue",
    "block:block_rq_complete",
    "sched:sched_blocked_reason",
    "sched:sched_stat_iowait",
    "lock:contention_begin",
    "lock:contention_end",
    "cgroup:cgroup_attach_task",
    "cgroup:cgroup_transfer_tasks",
    "syscalls:sys_enter_sched_yield",
    "other",
];
const OTHER: usize = NAMES.len() - 1;

/// What one CPU's stream carries from bundle to bundle.
#[derive(Debug, Default)]
pub struct CpuState {
    /// Who runs, as far as the compact events tell, which name only the next, and the full ones.
    current: Option<u32>,
    interrupts: OpenInterrupts,
    /// Events that the file itself describes.
    described: Described,
    pub group_moves: GroupMoves,
    pub counts: [u64; NAMES.len()],
    pub malformed: u64,
    /// Bundles that contradict themselves or the ones around them.
    pub contradictions: u64,
    /// Compact switches, but the first, that do not tell who left.
    pub unknown_prev: u64,
    /// The file's own parse errors, per bundle.
    pub parse_errors: u64,
    /// Time of the last event of any kind that the bundles held.
    pub last: Option<i64>,
    /// Events at the end of the bundle are damaged.
    pub open: bool,
    order: Order,
    seen: Seen,
}

/// What is known of a bundle besides its bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// When it ended, on the clock of its events, as the next bundle says.
    pub end: Option<u64>,
    /// None of the packets until the next bundle was lost.
    pub followed: bool,
    /// Packets of its sequence were lost since the CPU's bundle before it.
    pub after_drops: bool,
    /// Names of functions by the numbers that its events have for them.
    pub symbols: Option<&'a FxHashMap<u64, Function>>,
}

impl CpuState {
    /// The bundle's events are none that happened.
    #[cold]
    fn leave_out(&mut self, out: &mut Bundle) {
        out.clear();
        self.contradictions += 1;
        self.open = true;
        self.current = None;
        self.interrupts.forget();
    }

    /// Some configurations ask for entries of handlers alone: then none is ever left.
    fn tells_ends(&self, kind: IrqKind) -> bool {
        let (entered, left) = match kind {
            IrqKind::Hard => (self.counts[13], self.counts[14]),
            IrqKind::Soft => (self.counts[15], self.counts[16]),
        };
        entered <= 2 * left + 2
    }
}

/// The head of a bundle.
#[derive(Debug, Default)]
pub struct Head {
    /// The kernel overwrote events before these could be read.
    pub lost: bool,
    /// When the writer's previous bundle of this CPU ended (Perfetto 47 on).
    pub previous_end: Option<i64>,
    /// It is the first that there ever was of its CPU.
    pub opens: bool,
    /// The previous bundle is not in the file.
    pub gap: bool,
    /// Events before the first one, or all, are damaged.
    pub damaged: bool,
}

/// An event as it waits for its turn, a third of an [`Event`] in size.
#[derive(Debug, Clone, Copy)]
struct Row {
    ts: i64,
    /// Who comes, or who is woken.
    tid: u32,
    prio: Option<i16>,
    /// Number of its name.
    name: u32,
    form: Form,
}

/// Where events of a bundle are damaged: from the one before to the one after.
pub type Hole = (i64, i64);

#[derive(Debug, Clone, Copy)]
enum Form {
    /// Of the compact form. `prev` None: who left is not known.
    Switch {
        prev: Option<u32>,
        state: State,
        preempted: Option<bool>,
    },
    Wake {
        kind: WakeKind,
        waker: Option<u32>,
        current: Option<u32>,
        target: Option<u16>,
    },
    /// Number of the event among the others.
    Other(u32),
}

/// The events of one bundle in time order; where both have one at a time, full
/// events come before compact ones.
#[derive(Debug, Default)]
pub struct Bundle {
    cpu: u16,
    full: Vec<Row>,
    compact: Vec<Row>,
    others: Vec<Event>,
    names: Vec<Comm>,
    /// In order of time.
    holes: Vec<Hole>,
    /// How many of each have been taken.
    full_at: usize,
    compact_at: usize,
    /// Is a full event next, and where does it stand?
    next: Option<(bool, merge::Head)>,
}

impl Bundle {
    pub fn clear(&mut self) {
        self.full.clear();
        self.compact.clear();
        self.others.clear();
        self.names.clear();
        self.holes.clear();
        (self.full_at, self.compact_at, self.next) = (0, 0, None);
    }

    /// Does a full event say that there is such a thread?
    #[cold]
    fn names_in_full(&self, tid: u32) -> bool {
        self.full.iter().any(|row| match row.form {
            Form::Wake { current, .. } => row.tid == tid || current == Some(tid),
            Form::Other(number) => match self.others.get(number as usize) {
                Some(Event::Fork { parent, child, .. }) => parent.tid == tid || child.tid == tid,
                Some(Event::Exit { who, .. } | Event::Migrate { who, .. }) => who.tid == tid,
                Some(Event::Rename { tid: renamed, .. }) => *renamed == tid,
                _ => false,
            },
            Form::Switch { .. } => false,
        })
    }

    /// `ts`: its place among the others, which is not its own of what is told at its end.
    fn push_other(&mut self, ts: i64, event: Event) {
        let form = Form::Other(self.others.len() as u32);
        self.others.push(event);
        self.full.push(Row {
            ts,
            tid: 0,
            prio: None,
            name: 0,
            form,
        });
    }

    fn begin(&mut self) {
        self.holes.sort_unstable();
        for rows in [&mut self.full, &mut self.compact] {
            // Stable: equal times keep the order of the writer.
            rows.sort_by_key(|row| row.ts);
        }
        self.find_next();
    }

    /// Passes over what is earlier than `ts`; how many that were.
    pub fn skip_before(&mut self, ts: i64) -> u64 {
        if self.next.is_none_or(|(_, head)| head.ts >= ts) {
            return 0;
        }
        self.full_at = self.full.partition_point(|row| row.ts < ts);
        self.compact_at = self.compact.partition_point(|row| row.ts < ts);
        self.find_next();
        (self.full_at + self.compact_at) as u64
    }

    #[inline]
    fn find_next(&mut self) {
        let head = |row: &Row| merge::Head {
            ts: row.ts,
            rank: self.rank(row.form),
        };
        let full = self.full.get(self.full_at);
        let compact = self.compact.get(self.compact_at);
        self.next = match (full, compact) {
            (Some(full), Some(compact)) if full.ts <= compact.ts => Some((true, head(full))),
            (_, Some(compact)) => Some((false, head(compact))),
            (Some(full), None) => Some((true, head(full))),
            (None, None) => None,
        };
    }

    /// Among the events of other CPUs at one time.
    #[inline]
    fn rank(&self, form: Form) -> u8 {
        match form {
            Form::Switch { .. } => 0,
            Form::Wake { .. } => 1,
            Form::Other(number) => match self.others.get(number as usize) {
                Some(Event::Switch { .. }) => 0,
                Some(Event::Migrate { .. }) => 2,
                _ => 3,
            },
        }
    }

    /// Takes the next hole, if it begins no later than `ts`.
    #[inline]
    pub fn take_hole(&mut self, ts: i64) -> Option<Hole> {
        let first = *self.holes.first()?;
        (first.0 <= ts).then(|| self.holes.remove(0))
    }

    #[inline]
    pub fn head(&self) -> Option<merge::Head> {
        self.next.map(|(_, head)| head)
    }

    /// The next event.
    #[inline]
    pub fn take(&mut self) -> Option<Event> {
        let row = if self.next?.0 {
            self.full_at += 1;
            self.full.get(self.full_at - 1)
        } else {
            self.compact_at += 1;
            self.compact.get(self.compact_at - 1)
        };
        let Row {
            ts,
            tid,
            prio,
            name,
            form,
        } = *row?;
        self.find_next();
        let comm = self.names.get(name as usize).copied().unwrap_or_default();
        let who = Party {
            tid,
            idle: tid == 0,
            prio,
            comm,
            ..Party::default()
        };
        let cpu = self.cpu;
        Some(match form {
            Form::Switch {
                prev,
                state: prev_state,
                preempted,
            } => {
                let prev = prev.map_or_else(Party::unknown, |tid| Party {
                    tid,
                    idle: tid == 0,
                    ..Party::default()
                });
                Event::Switch {
                    ts,
                    cpu,
                    prev,
                    prev_state,
                    preempted,
                    next: who,
                }
            }
            Form::Wake {
                kind,
                waker,
                current,
                target: target_cpu,
            } => Event::Wakeup {
                ts,
                cpu,
                kind,
                waker,
                current,
                who,
                target_cpu,
            },
            Form::Other(number) => self.others.get(number as usize).copied()?,
        })
    }
}

struct Decoder<'a> {
    ts_offset: i64,
    cpu: u16,
    states: &'a StateTable,
    state: &'a mut CpuState,
    out: &'a mut Bundle,
    /// Time of the last event that could be read.
    good: Option<i64>,
    /// One after it could not be.
    hole: bool,
    /// The bundle's own writer is traced_probes: every field of an event is there.
    complete: bool,
    symbols: Option<&'a FxHashMap<u64, Function>>,
}

/// Decodes `bytes` into `out` (emptied first).
pub fn decode(
    bytes: &[u8],
    cpu: u16,
    known: Known<'_>,
    (states, clocks): (&StateTable, &Clocks),
    state: &mut CpuState,
    out: &mut Bundle,
) -> Head {
    out.clear();
    out.cpu = cpu;
    let mut head = Head {
        damaged: std::mem::take(&mut state.open),
        ..Head::default()
    };
    let mut compact = None;
    let mut begin = None;
    let (mut clock, mut ftrace_ts, mut boot_ts) = (0, None, None);
    state.order.clear();
    // The clock comes after the events, so it is looked up first.
    let mut fields = Fields::new(bytes);
    for (number, value) in &mut fields {
        match number {
            2 => state.order.add(value.bytes()),
            3 => head.lost = value.number() != 0,
            4 => compact = Some(value.bytes()),
            5 => clock = value.number(),
            6 => ftrace_ts = Some(value.signed()),
            7 => boot_ts = Some(value.signed()),
            8 => state.parse_errors += 1,
            10 => begin = Some(value.number()),
            11 => state.described.add(value.bytes()),
            _ => {}
        }
    }
    let cut = fields.damaged();
    state.malformed += u64::from(cut);
    let ts_offset = match clock {
        0 => 0,
        4 => clocks.to_boot(MONOTONIC_RAW).unwrap_or(0),
        _ => match (boot_ts, ftrace_ts) {
            (Some(boot), Some(ftrace)) => boot.saturating_sub(ftrace),
            _ => 0,
        },
    };
    head.previous_end = begin.map(|ts| ts.cast_signed().saturating_add(ts_offset));
    head.opens = begin == Some(0);
    head.gap = match (head.previous_end, state.last) {
        (Some(end), Some(last)) => end > last,
        // Before Perfetto 47 nothing tells whether bundles of this CPU were among them.
        (None, Some(_)) => known.after_drops,
        (_, None) => false,
    };
    let misplaced = state.order.misplaced(begin, known.end);
    // Without a word of when it began, its writer may be one that knows no order.
    if misplaced == Misplaced::Most && begin.is_some() {
        state.leave_out(out);
        return head;
    }
    if head.lost || head.gap || head.damaged {
        state.current = None;
        state.interrupts.forget();
    }
    let before = state.last;
    let mut decoder = Decoder {
        ts_offset,
        cpu,
        states,
        state,
        out,
        good: None,
        hole: false,
        complete: begin.is_some(),
        symbols: known.symbols,
    };
    let mut left_out = match &misplaced {
        Misplaced::Some(events) => events.as_slice(),
        _ => &[],
    };
    let events = Fields::new(bytes).filter(|&(number, _)| number == 2);
    for (at, (_, value)) in (0u32..).zip(events) {
        let misplaced = left_out.first() == Some(&at);
        if misplaced {
            left_out = &left_out[1..];
        }
        decoder.event(value.bytes(), misplaced, &mut head);
    }
    let whole = compact.is_none_or(|compact| decoder.compact(compact));
    state.open |= decoder.hole || cut;
    let wrong = |end: u64| {
        let (end, last) = (end.cast_signed().saturating_add(ts_offset), state.last);
        // Only the compact form's times hang together.
        let early = compact.is_some() && known.followed && last < Some(end) && !state.open;
        last > Some(end) || early
    };
    if !whole || known.end.is_some_and(wrong) {
        state.last = before;
        state.leave_out(out);
        return head;
    }
    out.begin();
    head
}

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
    /// None where it is no time: damage.
    fn ts(&mut self, raw: u64) -> Option<i64> {
        let ts = i64::try_from(raw).ok()?.checked_add(self.ts_offset)?;
        (-FAR..=FAR).contains(&ts).then_some(ts)
    }

    /// What cannot be read, or is `misplaced`, is a hole.
    #[inline]
    fn event(&mut self, bytes: &[u8], misplaced: bool, head: &mut Head) {
        let read = if misplaced {
            None
        } else {
            self.read_event(bytes)
        };
        let Some(ts) = read else {
            self.damaged();
            return;
        };
        if self.hole {
            self.hole = false;
            match self.good {
                Some(begin) => self.out.holes.push((begin, ts.max(begin))),
                None => head.damaged = true,
            }
        }
        self.good = Some(ts);
    }

    #[cold]
    fn damaged(&mut self) {
        self.state.malformed += 1;
        self.state.current = None;
        self.state.interrupts.forget();
        self.hole = true;
    }

    /// The event's time. None: damaged.
    fn read_event(&mut self, bytes: &[u8]) -> Option<i64> {
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
            GENERIC => super::by_name::rewrite(message),
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

    /// Where the flags are not written, the handlers that were recorded tell it.
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
        let waker = current.filter(|_| !self.in_interrupt(flags));
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
                    // A number of the packets' own list of names, or an address of a kernel that
                    // tells none.
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
                // Old kernels tell the last part of the path alone.
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

    /// CompactSched: one column per field, times as differences, names by index. False: damaged.
    fn compact(&mut self, bytes: &[u8]) -> bool {
        let mut columns = [Packed::default(); 13];
        // Full events have put their names there.
        let before = self.out.names.len() as u32;
        let mut fields = Fields::new(bytes);
        for (number, value) in &mut fields {
            match number {
                5 => self.out.names.push(Comm::new(value.bytes())),
                _ => {
                    if let Some(column) = columns.get_mut(number as usize) {
                        *column = Packed(value.bytes());
                    }
                }
            }
        }
        let [_, times, states, threads, prios, _, comms, wakes @ ..] =
            &columns.map(|column| column.0);
        let [wake_times, wakes @ ..] = wakes;
        if fields.damaged()
            || !agree(times, &[states, threads, prios, comms])
            || !agree(wake_times, wakes)
        {
            return false;
        }
        let names = self.out.names.len() as u32;
        let hashes: Vec<u32> = self.out.names.iter().map(hash).collect();
        // (row, the name that the thread had) of those that may be another.
        let mut strange: Vec<(usize, Option<u32>)> = Vec::new();
        let (mut wakings, mut of_current) = (0usize, 0usize);
        let name = |index: u64| {
            u32::try_from(index)
                .ok()?
                .checked_add(before)
                .filter(|&index| index < names)
        };
        let [
            _,
            switch_ts,
            switch_state,
            switch_tid,
            switch_prio,
            _,
            switch_comm,
            wake_ts,
            wake_tid,
            wake_cpu,
            wake_prio,
            wake_comm,
            wake_flags,
        ] = &mut columns;
        // Two sorted lists merged: who runs is needed for the wakers. Full events show that a
        // switch between two of these was not traced.
        self.out.full.sort_by_key(|row| row.ts);
        let mut seen_at = 0;
        let (mut switch_at, mut wake_at) = (0u64, 0u64);
        let mut next_switch = step(switch_ts, &mut switch_at);
        let mut next_wake = step(wake_ts, &mut wake_at);
        loop {
            let wake_first = match (next_switch, next_wake) {
                (None, None) => break,
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (Some(switch), Some(wake)) => wake < switch,
            };
            if wake_first {
                let (Some(ts), Some(woken), Some(name)) = (
                    next_wake.and_then(|raw| self.ts(raw)),
                    wake_tid.next(),
                    wake_comm.next().and_then(name),
                ) else {
                    return false;
                };
                self.see(&mut seen_at, ts);
                let target = wake_cpu.next().and_then(|cpu| u16::try_from(cpu).ok());
                let prio = wake_prio.next().and_then(prio);
                // Written since Perfetto 42; without it every waker counts as a thread.
                let interrupt = wake_flags
                    .next()
                    .is_some_and(|flags| flags & IN_INTERRUPT != 0);
                self.state.counts[2] += 1;
                wakings += 1;
                let woken = tid(woken);
                if self.complete && woken > TID_MAX {
                    return false;
                }
                of_current += usize::from(woken != 0 && self.state.current == Some(woken));
                self.state.seen.woken(woken, hashes[name as usize]);
                let waker = if interrupt { None } else { self.state.current };
                let form = Form::Wake {
                    kind: WakeKind::Waking,
                    waker,
                    current: None,
                    target,
                };
                self.out.compact.push(Row {
                    ts,
                    tid: woken,
                    prio,
                    name,
                    form,
                });
                next_wake = step(wake_ts, &mut wake_at);
            } else {
                let (Some(ts), Some(bits), Some(next), Some(name)) = (
                    next_switch.and_then(|raw| self.ts(raw)),
                    switch_state.next(),
                    switch_tid.next(),
                    switch_comm.next().and_then(name),
                ) else {
                    return false;
                };
                self.see(&mut seen_at, ts);
                let (next, prio) = (tid(next), switch_prio.next().and_then(prio));
                if self.complete && next > TID_MAX {
                    return false;
                }
                let prev = self.state.current.replace(next);
                self.state.counts[0] += 1;
                if let Some(prev) = prev {
                    let runnable = state(self.states, bits).0 == State::Runnable;
                    self.state.seen.left(prev, runnable);
                }
                let (had, may_be_another) = self.state.seen.came(next, hashes[name as usize]);
                if may_be_another {
                    strange.push((self.out.compact.len(), had));
                }
                let form = match prev.filter(|&prev| prev != next) {
                    Some(_) => {
                        let (state, preempted) = state(self.states, bits);
                        Form::Switch {
                            prev,
                            state,
                            preempted,
                        }
                    }
                    // Only the next thread is written, and the one before it is not
                    // who left: the first switch, one after a loss, or one after a
                    // switch that the kernel did not trace. The reconstruction takes
                    // the chain for broken and invents no running time.
                    None => {
                        // The first of each CPU is so by design.
                        self.state.unknown_prev += u64::from(self.state.counts[0] > 1);
                        Form::Switch {
                            prev: None,
                            state: State::Unknown,
                            preempted: None,
                        }
                    }
                };
                self.out.compact.push(Row {
                    ts,
                    tid: next,
                    prio,
                    name,
                    form,
                });
                next_switch = step(switch_ts, &mut switch_at);
            }
        }
        self.see(&mut seen_at, i64::MAX);
        // An interrupt may wake who has not left yet; one that comes again and again is a shift of
        // the times of one kind of event.
        if of_current > 1 && of_current * 64 > wakings {
            return false;
        }
        for (at, had) in strange {
            self.another(at, had, &hashes);
        }
        let ends = [switch_at, wake_at].map(|at| self.ts(at).filter(|_| at > 0));
        self.state.last = ends.into_iter().fold(self.state.last, Option::max);
        true
    }

    /// The thread of a compact switch has the name of one that waits, and `had` another one or
    /// none. It is that one's number, damaged, if nothing more is heard of it under this name.
    #[cold]
    fn another(&mut self, at: usize, had: Option<u32>, hashes: &[u32]) {
        let Some((row, later)) = self.out.compact.get(at..).and_then(<[Row]>::split_first) else {
            return;
        };
        let name_of = |row: &Row| hashes.get(row.name as usize).copied();
        let name = name_of(row);
        let mut names = later.iter().filter(|one| one.tid == row.tid).map(name_of);
        let damaged = match had {
            None => names.next().is_none(),
            Some(_) => {
                let mut returns = false;
                names.all(|other| {
                    returns |= other == had;
                    other != name
                }) && returns
            }
        };
        let next = later.iter().find_map(|row| match row.form {
            Form::Switch { state, .. } => Some((row.ts, state)),
            _ => None,
        });
        // A child that ends soon has its parent's name to the end, and the full events name it.
        let damaged = damaged && !self.out.names_in_full(row.tid);
        if damaged && next.is_none_or(|(_, state)| state != State::Dead) {
            self.state.malformed += 1;
            match next {
                Some((ts, _)) => self.out.holes.push((row.ts, ts)),
                None => self.state.open = true,
            }
        }
    }

    /// Passes over the full events from number `at` on that are no later than `ts`. Those that are
    /// earlier say who runs.
    fn see(&mut self, at: &mut usize, ts: i64) {
        let rest = self.out.full.get(*at..).unwrap_or_default();
        for row in rest.iter().take_while(|row| row.ts <= ts) {
            *at += 1;
            if let Form::Wake {
                current: Some(current),
                ..
            } = row.form
                && row.ts < ts
            {
                self.state.current = Some(current);
            }
        }
    }
}

/// Of a name, to tell it from others.
fn hash(name: &Comm) -> u32 {
    let (words, _) = name.0.as_chunks::<8>();
    let mixed = words.iter().fold(0u64, |hash, word| {
        (hash.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(0x517c_c1b7_2722_0a95)
    });
    (mixed >> 32) as u32
}

/// Of a system call's arguments, a repeated number: newer writers tell them.
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

/// The state, and whether the thread left against its will (plain R does not tell).
#[inline]
fn state(table: &StateTable, bits: u64) -> (State, Option<bool>) {
    if bits == UNKNOWN_STATE {
        return (State::Unknown, None);
    }
    match table.decode(bits & 0xffff) {
        (State::Runnable, true) => (State::Runnable, Some(true)),
        (State::Runnable, false) => (State::Runnable, None),
        (other, _) => (other, Some(false)),
    }
}

#[inline]
fn step(deltas: &mut Packed<'_>, at: &mut u64) -> Option<u64> {
    *at = at.wrapping_add(deltas.next()?);
    Some(*at)
}

/// Negative int32 numbers are sign-extended on the wire.
#[inline]
fn tid(number: u64) -> u32 {
    u32::try_from(number.cast_signed()).unwrap_or(0)
}

#[inline]
fn prio(number: u64) -> Option<i16> {
    i16::try_from(number.cast_signed()).ok()
}
