//! One bundle of ftrace events of one CPU, decoded into events in time order: those in `full`, and
//! those of the `compact` form.

use rustc_hash::FxHashMap;

use super::by_name::Described;
use super::clocks::{Clocks, MONOTONIC_RAW};
use super::damage::{Misplaced, Order, Seen};
use super::rows::Bundle;
use super::wire::Fields;
use crate::ftrace::interrupts::OpenInterrupts;
use crate::ftrace::states::StateTable;
use crate::group_moves::GroupMoves;
use crate::model::event::{Function, IrqKind, State};
use crate::model::time::FAR;

/// `common_flags`, which traced_probes does not write with full events: raised from a hard or soft
/// interrupt or an NMI.
pub(super) const IN_INTERRUPT: u64 = 0x08 | 0x10 | 0x40;

/// Linux numbers no thread higher.
pub(super) const TID_MAX: u32 = (1 << 22) - 1;

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
pub(super) const OTHER: usize = NAMES.len() - 1;

/// What one CPU's stream carries from bundle to bundle.
#[derive(Debug, Default)]
pub struct CpuState {
    /// The running thread, as far as known from the compact events, which name only the next one,
    /// and the full ones.
    pub(super) current: Option<u32>,
    pub(super) interrupts: OpenInterrupts,
    /// Events that the file itself describes.
    pub(super) described: Described,
    pub group_moves: GroupMoves,
    pub counts: [u64; NAMES.len()],
    pub malformed: u64,
    /// Bundles that contradict themselves or the ones around them.
    pub contradictions: u64,
    /// Compact switches, except the first, whose prev is unknown.
    pub unknown_prev: u64,
    /// When the first switch was, if it is compact and the thread that left still wanted to run.
    pub left_wanting: Option<i64>,
    /// A waking was in the compact form, which does not name who raised it.
    pub compact_wakings: bool,
    /// Wakeups in full, and those of them that name the woken thread as the one that ran.
    pub full_wakeups: [u64; 2],
    /// Events before tracing started were the last ones.
    stale: bool,
    /// A bundle whose times are on a clock that is not known.
    pub unknown_clock: bool,
    /// The file's own parse errors, per bundle.
    pub parse_errors: u64,
    /// Time of the last event of any kind that the bundles held.
    pub last: Option<i64>,
    /// Events at the end of the bundle are damaged.
    pub open: bool,
    order: Order,
    pub(super) seen: Seen,
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
    /// When tracing started.
    pub started: Option<i64>,
    /// Its clock is the one of the boot unless it says otherwise.
    pub on_boot_clock: bool,
    /// The writer put the wakings of all CPUs into the bundles of one.
    pub wakings_of_all: bool,
    /// The writer does not name the waker.
    pub no_wakers: bool,
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
    pub(super) fn tells_ends(&self, kind: IrqKind) -> bool {
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

/// Decodes the events of one bundle, whatever their form.
pub(super) struct Decoder<'a> {
    ts_offset: i64,
    pub(super) cpu: u16,
    pub(super) states: &'a StateTable,
    pub(super) state: &'a mut CpuState,
    pub(super) out: &'a mut Bundle,
    /// Time of the last event that could be read.
    good: Option<i64>,
    /// One after it could not be.
    hole: bool,
    /// The bundle's own writer is traced_probes: every field of an event is there.
    pub(super) complete: bool,
    pub(super) symbols: Option<&'a FxHashMap<u64, Function>>,
    started: i64,
    pub(super) wakings_of_all: bool,
    pub(super) no_wakers: bool,
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
    out.wakings_of_all = known.wakings_of_all;
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
    state.unknown_clock |= match clock {
        0 => !known.on_boot_clock,
        4 => clocks.to_boot(MONOTONIC_RAW).is_none(),
        _ => boot_ts.is_none() || ftrace_ts.is_none(),
    };
    head.previous_end = begin.map(|ts| ts.cast_signed().saturating_add(ts_offset));
    head.opens = begin == Some(0);
    head.gap = match (head.previous_end, state.last) {
        (Some(end), Some(last)) => end > last,
        // Before Perfetto 47 it is unknown whether bundles of this CPU were among them.
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
        started: known.started.unwrap_or(i64::MIN),
        wakings_of_all: known.wakings_of_all,
        no_wakers: known.no_wakers,
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

impl Decoder<'_> {
    /// None where it is no time: damage.
    pub(super) fn ts(&mut self, raw: u64) -> Option<i64> {
        let ts = i64::try_from(raw).ok()?.checked_add(self.ts_offset)?;
        (-FAR..=FAR).contains(&ts).then_some(ts)
    }

    /// What ran before tracing started need not run any more.
    #[inline]
    pub(super) fn start(&mut self, ts: i64) {
        if ts < self.started {
            self.state.stale = true;
        } else if self.state.stale {
            self.state.stale = false;
            self.state.current = None;
            self.state.interrupts.forget();
        }
    }

    /// An unreadable or `misplaced` event is a hole.
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
}

/// The state, and whether the switch-out was involuntary (unknown for plain R).
#[inline]
pub(super) fn state(table: &StateTable, bits: u64) -> (State, Option<bool>) {
    if bits == UNKNOWN_STATE {
        return (State::Unknown, None);
    }
    match table.decode(bits & 0xffff) {
        (State::Runnable, true) => (State::Runnable, Some(true)),
        (State::Runnable, false) => (State::Runnable, None),
        (other, _) => (other, Some(false)),
    }
}
