"""Every table of the trace model, column by column.

Twin of `native/model/src/tables.rs`, which fills these tables; a test compares the two.
docs/trace-model.md explains the terms.

Times (`ts`, `ts_*`) are ns on the capture's own monotonic clock, durations are ns,
CPUs are the host's logical numbers, and null means "not known".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import polars as pl

from schedscope.errors import FormatError, UsageError
from schedscope.units import several

SCHEMA_VERSION = 13
"""Bumped whenever a table changes; caches of another version are rebuilt."""

STATE = pl.Enum(
    ["running", "runnable", "sleeping", "blocked", "stopped", "parked", "dead", "unknown"]
)
WAKE_KIND = pl.Enum(["waking", "enqueued", "new"])
LOSS_REASON = pl.Enum(
    [
        "overrun",
        "chain_break",
        "late_start",
        "early_end",
        "truncated",
        "exit_hole",
        "absent",
        "unrecorded",
    ]
)
CAUSE = pl.Enum(["wake", "new", "preempt", "yield", "unknown"])
END = pl.Enum(["switched", "woken", "preempted", "exited", "lost", "window"])
CENSORED = pl.Enum(["none", "right", "left", "both"])
SCHED_CLASS = pl.Enum(
    [
        "stop",
        "deadline",
        "realtime",
        "fair",
        "batch",
        "idle",
        "interrupt",
        "kernel",
        "timeshare",
        "unknown",
    ]
)
SLEEP_KIND = pl.Enum(["sleep", "lock", "interrupt", "suspended"])
PRIORITY_CAUSE = pl.Enum(["change-pri", "lend-pri", "pi_setprio", "unknown"])
IRQ_KIND = pl.Enum(["hard", "soft"])
CALL_STEP = pl.Enum(["enter", "exit"])
LOCK_STEP = pl.Enum(["begin", "end"])
LOCK_KIND = pl.Enum(["spinlock", "rwlock", "mutex", "rwsem", "percpu-rwsem", "rt-mutex", "other"])
TOLD_BY = pl.Enum(["event", "stack"])
DISK_STEP = pl.Enum(["start", "issue", "complete"])
QUEUE_STEP = pl.Enum(["insert", "remove"])
QUEUE_KIND = pl.Enum(["local", "global", "bypass", "user", "other"])

_CPU = pl.UInt16()
_UTID = pl.UInt32()
_TID = pl.UInt32()
_TIME = pl.Int64()
_PRIO = pl.Int16()
_TEXT = pl.String()
_BOOL = pl.Boolean()


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, Polars type, whether it may be null, and what it says."""

    name: str
    dtype: pl.DataType
    nullable: bool
    doc: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its name, what a row of it is, and its columns in order."""

    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pl.Schema:
        """Column names and Polars types, in order."""
        return pl.Schema({column.name: column.dtype for column in self.columns})


def _always(name: str, dtype: pl.DataType, doc: str) -> Column:
    return Column(name, dtype, False, doc)


def _maybe(name: str, dtype: pl.DataType, doc: str) -> Column:
    return Column(name, dtype, True, doc)


_SWITCHES = Table(
    "switches",
    "One context switch.",
    (
        _always("ts", _TIME, "When, ns."),
        _always("cpu", _CPU, "CPU that switched."),
        _always("prev_utid", _UTID, "Thread that left the CPU."),
        _always("prev_state", STATE, "State it left in; `runnable`: it still wanted the CPU."),
        _maybe("prev_prio", _PRIO, "Its priority, the operating system's own number."),
        _maybe(
            "preempted",
            _BOOL,
            "It left against its will; null where the source cannot say, "
            "as with Linux's plain R without recorded yields.",
        ),
        _always("next_utid", _UTID, "Thread that came onto the CPU."),
        _maybe("next_prio", _PRIO, "Its priority, the operating system's own number."),
    ),
)

_WAKEUPS = Table(
    "wakeups",
    "One step of a wakeup.",
    (
        _always("ts", _TIME, "When, ns."),
        _always("cpu", _CPU, "CPU on which the step was recorded."),
        _maybe(
            "waker_utid",
            _UTID,
            "Thread that ran there; null if the source says that it was an interrupt.",
        ),
        _maybe(
            "current_utid",
            _UTID,
            "Thread that the event itself names as running on `cpu`, interrupt or not; evidence "
            "against switches that were not recorded. Null if the source does not say.",
        ),
        _always("utid", _UTID, "Thread that was woken."),
        _always(
            "kind",
            WAKE_KIND,
            "`waking`: the decision, on the waker's CPU; `enqueued`: on the target's queue; "
            "`new`: first enqueue of a new thread.",
        ),
        _maybe("target_cpu", _CPU, "CPU whose queue was chosen at this step."),
        _maybe("prio", _PRIO, "Priority of the woken thread, the operating system's own number."),
    ),
)

_MIGRATIONS = Table(
    "migrations",
    "One move of a thread from one CPU to another, as the kernel reported it.",
    (
        _always("ts", _TIME, "When, ns."),
        _always("cpu", _CPU, "CPU on which the move was recorded."),
        _always("utid", _UTID, "Thread that was moved."),
        _maybe("from_cpu", _CPU, "CPU it belonged to before."),
        _maybe("to_cpu", _CPU, "CPU it belongs to from now on."),
    ),
)

_THREADS = Table(
    "threads",
    "One thread incarnation; rows 0 to ncpu-1 are the idle threads in CPU order.",
    (
        _always("utid", _UTID, "Its number, unique in the trace and never reused."),
        _maybe("tid", _TID, "The kernel's thread id, which other rows may share."),
        _maybe("pid", _TID, "The kernel's process id."),
        _always("comm", _TEXT, "Its last name; empty if no event carried one."),
        _always("comm_first", _TEXT, "Its first name; empty if no event carried one."),
        _maybe("kernel", _BOOL, "It is a kernel thread."),
        _maybe("sched_class", SCHED_CLASS, "Its last known scheduling class."),
        _maybe("prio", _PRIO, "Its last known priority, the operating system's own number."),
        _maybe("affinity", _TEXT, 'CPUs it may run on, as a list ("0-3,8").'),
        _maybe("recorder", _BOOL, "It is part of the recorder that made the capture."),
        _maybe("start_ts", _TIME, "When it was created, ns; null if that was not seen."),
        _maybe("end_ts", _TIME, "Its last event, ns."),
        _maybe("parent_utid", _UTID, "Thread that created it."),
        _maybe("exit_ts", _TIME, "When it began to exit, ns; null if that was not seen."),
        _maybe("ppid", _TID, "The process that created its process."),
        _maybe("process_name", _TEXT, "Its process's name: that of the thread whose tid is `pid`."),
        _maybe("cgroup", _TEXT, "Control group of its process, the last one known (Linux)."),
        _maybe("cmdline", _TEXT, "Command line of its process, as far as the recorder saw it."),
    ),
)

_RENAMES = Table(
    "renames",
    "One change of a thread's name.",
    (
        _always("ts", _TIME, "When, ns."),
        _always("utid", _UTID, "Thread that was renamed."),
        _always("comm", _TEXT, "Its name from now on."),
    ),
)

_SLEEPS = Table(
    "sleeps",
    "One reason for which a thread left its CPU to wait, where the source has it (FreeBSD).",
    (
        _always("ts", _TIME, "When the thread left its CPU, ns."),
        _always("cpu", _CPU, "CPU that it left."),
        _always("utid", _UTID, "The thread."),
        _always(
            "kind",
            SLEEP_KIND,
            "`sleep`: on a sleep queue; `lock`: for a contested lock; `interrupt`: an interrupt "
            "thread with nothing to do; `suspended`: by a signal or a debugger.",
        ),
        _always("reason", _TEXT, "The kernel's wait message or the lock's name; empty if none."),
    ),
)

_YIELDS = Table(
    "yields",
    "One call of sched_yield.",
    (
        _always("ts", _TIME, "When, ns."),
        _always("utid", _UTID, "Thread that called."),
    ),
)

_PRIORITIES = Table(
    "priorities",
    "One change of a thread's priority.",
    (
        _always("ts", _TIME, "When, ns."),
        _always("utid", _UTID, "Thread whose priority changed."),
        _always("prio", _PRIO, "Its priority from now on, the operating system's own number."),
        _always("cause", PRIORITY_CAUSE, "Why it changed."),
    ),
)

_QUEUE_LOAD = Table(
    "queue_load",
    "One run queue length, as the kernel itself reported it; a cross-check, never an input.",
    (
        _always("ts", _TIME, "When, ns."),
        _maybe("cpu", _CPU, "CPU of the queue; null for a queue all CPUs share."),
        _always("load", pl.Int32(), "Threads on the queue, the running one included."),
    ),
)

_IRQS = Table(
    "irqs",
    "One interrupt handler's run.",
    (
        _always("ts", _TIME, "When it began, ns."),
        _always("cpu", _CPU, "CPU that was interrupted."),
        _always("kind", IRQ_KIND, "`hard`: a device's interrupt; `soft`: deferred work."),
        _always("id", pl.UInt32(), "The interrupt's or softirq vector's number."),
        _always("dur", _TIME, "How long it ran, ns."),
    ),
)

_QUOTA_REFILLS = Table(
    "quota_refills",
    "One moment at which a control group's CPU quota was refilled.",
    (
        _always("ts", _TIME, "When, ns."),
        _always("cpu", _CPU, "CPU on which the period timer fired."),
        _always("timer", pl.UInt32(), "Number of the timer; each group with a quota has one."),
    ),
)

_SYSTEM_CALLS = Table(
    "system_calls",
    "One end of a system call, where recorded (Linux).",
    (
        _always("ts", _TIME, "When, ns."),
        _always("cpu", _CPU, "CPU on which the thread ran."),
        _always("utid", _UTID, "The thread."),
        _always("step", CALL_STEP, "`enter`: it entered the kernel; `exit`: it came back."),
        _always(
            "number",
            pl.Int32(),
            "The kernel's number of the call, which depends on the architecture; -1: refused.",
        ),
        _maybe("value", pl.Int64(), "What the call returned; null when it is entered."),
        _maybe(
            "arg0",
            pl.UInt64(),
            "First argument, as the registers have it: a descriptor, an address; null when it "
            "returns.",
        ),
        _maybe("arg1", pl.UInt64(), "Second argument, likewise."),
        _maybe("arg2", pl.UInt64(), "Third argument, likewise."),
    ),
)

_LOCKS = Table(
    "locks",
    "One end of a thread's waiting for a lock of the kernel, where recorded (Linux).",
    (
        _always("ts", _TIME, "When, ns."),
        _always("cpu", _CPU, "CPU on which the thread ran."),
        _always("utid", _UTID, "The thread."),
        _always("step", LOCK_STEP, "`begin`: it found the lock taken; `end`: it waits no more."),
        _maybe(
            "address",
            pl.UInt64(),
            "Where the lock is in memory, as the source tells; null where that names no lock.",
        ),
        _maybe("kind", LOCK_KIND, "What kind of lock; null when the waiting ends."),
        _maybe(
            "value",
            pl.Int32(),
            "0 if it got the lock, else a negative error; null when the waiting begins.",
        ),
    ),
)

_DISK_REQUESTS = Table(
    "disk_requests",
    "One step of a request to a disk, where recorded (Linux).",
    (
        _always("ts", _TIME, "When, ns."),
        _always("cpu", _CPU, "CPU on which that was done."),
        _maybe(
            "utid",
            _UTID,
            "Thread that did it; null when the request is complete, and if an interrupt's handler "
            "did it.",
        ),
        _always(
            "step",
            DISK_STEP,
            "`start`: it was made; `issue`: given to the disk; `complete`: the disk is done.",
        ),
        _always("device", pl.UInt32(), "The kernel's number of the disk, as the source tells."),
        _always("sector", pl.UInt64(), "First sector, of 512 bytes."),
        _always("sectors", pl.UInt32(), "How many."),
    ),
)

_SLEEP_REASONS = Table(
    "sleep_reasons",
    "What the kernel said of one sleep of a thread, where recorded (Linux).",
    (
        _always("ts", _TIME, "When it said so: the thread fell asleep then, or was woken, ns."),
        _always("cpu", _CPU, "CPU on which that was said."),
        _always("utid", _UTID, "The thread that sleeps."),
        _maybe("io_wait", _BOOL, "It waits for I/O, as the kernel counts it."),
        _maybe(
            "function",
            _TEXT,
            "The kernel's function that put it to sleep; null where the source has no name for it.",
        ),
        _maybe(
            "entry",
            _TEXT,
            "The system call in which it sleeps, or `page fault`; null where no stack shows it.",
        ),
        _always(
            "told_by",
            TOLD_BY,
            "`event`: an event of the kernel tells it; `stack`: read from the kernel's stack when "
            "the thread left its CPU.",
        ),
    ),
)

_DISPATCH_QUEUES = Table(
    "dispatch_queues",
    "One time that a thread was put into a dispatch queue of sched_ext or taken out, where "
    "recorded (Linux 6.12 and later).",
    (
        _always("ts", _TIME, "When, ns."),
        _always("cpu", _CPU, "CPU that did it."),
        _always("utid", _UTID, "The thread."),
        _always("step", QUEUE_STEP, "`insert`: it was put in; `remove`: taken out."),
        _always(
            "kind",
            QUEUE_KIND,
            "`local`: of one CPU; `global`; `bypass`: where threads wait while the scheduler is "
            "bypassed; `user`: made by the scheduler; `other`: another one of the kernel's.",
        ),
        _maybe("queue_cpu", _CPU, "Whose queue; null where it is not of one CPU."),
        _maybe("queue_id", pl.UInt64(), "The scheduler's number of it; null for the kernel's own."),
        _always("queued", pl.UInt32(), "Threads in it just before, by the kernel's count."),
        _maybe("slice", pl.UInt64(), "How long the thread may run then, ns; null when taken out."),
        _maybe("vtime", pl.UInt64(), "The thread's virtual time; null when taken out."),
        _maybe("flags", pl.UInt64(), "The kernel's SCX_ENQ flags; null when taken out."),
        _maybe(
            "limit",
            _TIME,
            "How long the watchdog lets a thread wait before it ends the scheduler, ns; null where "
            "the source does not tell.",
        ),
    ),
)

_LOSSES = Table(
    "losses",
    "One stretch of time in which events may be missing.",
    (
        _maybe("cpu", _CPU, "CPU whose events may be missing; null: any CPU's."),
        _always("ts_begin", _TIME, "Last event before the gap, ns."),
        _always("ts_end", _TIME, "First event after the gap, ns."),
        _maybe(
            "count",
            pl.UInt64(),
            "How many events are missing, where the source counted; of a `chain_break`, how many "
            "broken chains it stands for, if for several.",
        ),
        _always(
            "reason",
            LOSS_REASON,
            "`overrun`: the source said so; `chain_break`: a switch whose outgoing thread is not "
            "the one that came in before; `late_start`, `early_end`: the CPU's recording covers "
            "less than the window; `truncated`: the file ends inside a record; `exit_hole`: "
            "FreeBSD records no switch when a thread exits; `absent`: no event of the CPU is "
            "there, though other CPUs handed it threads.",
        ),
    ),
)

_CPUS = Table(
    "cpus",
    "One logical CPU.",
    (
        _always("cpu", _CPU, "The host's logical number."),
        _maybe("core", _CPU, "Number of its core."),
        _maybe("llc", _CPU, "Number of its last-level cache."),
        _maybe("package", _CPU, "Number of its package (socket)."),
        _maybe("numa_node", _CPU, "Number of its memory node."),
        _maybe("smt_siblings", _TEXT, 'All CPUs of its core, as a list ("0-1").'),
        _maybe("capacity", pl.UInt32(), "Relative computing power; the fastest CPU has 1024."),
        _maybe(
            "online",
            _BOOL,
            "It was in use when the capture began, or, of a snapshot, when it was taken.",
        ),
    ),
)

_STATES = Table(
    "states",
    "One interval of a thread's life, in the order in which the intervals became known.",
    (
        _always("ts", _TIME, "When it began, ns."),
        _always("dur", _TIME, "How long it lasted, ns; never 0."),
        _always("utid", _UTID, "The thread."),
        _always("state", STATE, "What it was doing."),
        _maybe(
            "cpu",
            _CPU,
            "`running`: on which CPU; `runnable`: on whose queue, null between waking and queue "
            "if the source names none; null in other states.",
        ),
        _maybe("prio", _PRIO, "Its last priority in the interval, the operating system's number."),
        _maybe("waker_utid", _UTID, "`runnable` after a wakeup: the thread that woke it."),
        _always(
            "end",
            END,
            "How it ended: `switched` onto or off a CPU or to another queue; `woken`; "
            "`preempted`: off a CPU, still wanting it; `exited`; `lost`: the true end was not "
            "seen; `window`: it was still open when the trace ended.",
        ),
    ),
)

_WAITS = Table(
    "waits",
    "One wait of a thread for a CPU, in the order in which the waits ended.",
    (
        _always("utid", _UTID, "The thread."),
        _always(
            "cause",
            CAUSE,
            "Why it began: `wake`; `new` thread; `preempt`: it left the CPU still wanting it; "
            "`yield`: the same, and the source says it was voluntary; `unknown`: not seen.",
        ),
        _maybe("ts_waking", _TIME, "When its wakeup was decided, ns."),
        _maybe(
            "ts_ready",
            _TIME,
            "When the wait began, ns: the later of the waking and the thread's last switch-out.",
        ),
        _maybe("ts_enqueued", _TIME, "When it came onto a run queue, ns."),
        _maybe("ts_run", _TIME, "When it got a CPU and the wait ended, ns."),
        _maybe("waker_utid", _UTID, "Thread that woke it."),
        _maybe("waker_cpu", _CPU, "CPU on which the wakeup was raised."),
        _maybe("prev_cpu", _CPU, "CPU it ran on before."),
        _maybe("queue_cpu", _CPU, "CPU whose queue it waited on last."),
        _maybe("cpu", _CPU, "CPU that it got."),
        _maybe("prio", _PRIO, "Its last priority in the wait, the operating system's number."),
        _maybe("placement", _TIME, "ts_enqueued - ts_ready, ns: choosing a CPU and getting there."),
        _maybe("queue", _TIME, "ts_run - ts_enqueued, ns: on the queue."),
        _maybe(
            "wait",
            _TIME,
            "ts_run - ts_ready, ns; a lower bound where `censored` is `right`, "
            "null where the beginning was not seen.",
        ),
        _maybe(
            "wait_high",
            _TIME,
            "How long it was at most, ns: `wait` if it was measured; null where it was still open "
            "at the end of the window or began before the thread was first seen.",
        ),
        _always(
            "censored",
            CENSORED,
            "What the trace did not see: `none`: nothing; `right`: the end; `left`: the "
            "beginning; `both`.",
        ),
    ),
)

TABLES: Mapping[str, Table] = MappingProxyType(
    {
        table.name: table
        for table in (
            _SWITCHES,
            _WAKEUPS,
            _MIGRATIONS,
            _THREADS,
            _RENAMES,
            _SLEEPS,
            _YIELDS,
            _PRIORITIES,
            _QUEUE_LOAD,
            _IRQS,
            _QUOTA_REFILLS,
            _SYSTEM_CALLS,
            _LOCKS,
            _DISK_REQUESTS,
            _SLEEP_REASONS,
            _DISPATCH_QUEUES,
            _LOSSES,
            _CPUS,
            _STATES,
            _WAITS,
        )
    }
)
"""Every table by name: the facts, then `cpus`, then what reconstruction infers."""


def _table(name: str) -> Table:
    try:
        return TABLES[name]
    except KeyError:
        raise UsageError(
            f"there is no table {name!r}", "one of " + ", ".join(TABLES), "check the spelling"
        ) from None


def empty(name: str) -> pl.DataFrame:
    """The table `name` without rows.

    >>> empty("yields")
    shape: (0, 2)
    ┌─────┬──────┐
    │ ts  ┆ utid │
    │ --- ┆ ---  │
    │ i64 ┆ u32  │
    ╞═════╪══════╡
    └─────┴──────┘
    """
    return pl.DataFrame(schema=_table(name).schema)


def conform(name: str, frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` as the table `name`: its columns in order, with its types.

    Nullable columns may be left out and become null; types are cast where no
    value is lost. Raises `FormatError` on a column too many, on a missing or
    null value that the table needs, and on a value that does not fit its type.

    >>> conform("yields", pl.DataFrame({"utid": [7], "ts": [1_000]}))
    shape: (1, 2)
    ┌──────┬──────┐
    │ ts   ┆ utid │
    │ ---  ┆ ---  │
    │ i64  ┆ u32  │
    ╞══════╪══════╡
    │ 1000 ┆ 7    │
    └──────┴──────┘
    """
    table = _table(name)
    strange = [column for column in frame.columns if column not in table.schema]
    if strange:
        raise FormatError(
            f"table {name} has unknown columns: {', '.join(strange)}",
            ", ".join(table.schema),
            "drop or rename them",
        )
    columns: list[pl.Series] = []
    for column in table.columns:
        if column.name not in frame.columns:
            if not column.nullable and frame.height:
                doc = column.doc.rstrip(".")
                raise FormatError(
                    f"table {name} has no column {column.name}", f"{kind_of(column.dtype)}: {doc}"
                )
            columns.append(pl.repeat(None, frame.height, dtype=column.dtype, eager=True))
        else:
            columns.append(_cast(name, column, frame[column.name]))
    return pl.DataFrame(
        [values.alias(column.name) for column, values in zip(table.columns, columns, strict=True)]
    )


def kind_of(dtype: pl.DataType) -> str:
    """What values of this type are, in words.

    >>> kind_of(pl.UInt16()), kind_of(WAKE_KIND)
    ('UInt16', 'waking, enqueued or new')
    """
    if isinstance(dtype, pl.Enum):
        *most, last = dtype.categories.to_list()
        return f"{', '.join(most)} or {last}"
    return str(dtype)


def _cast(name: str, column: Column, values: pl.Series) -> pl.Series:
    expected = f"{kind_of(column.dtype)} ({column.doc.rstrip('.')})"
    if values.dtype.is_float() and column.dtype.is_integer():
        # Polars would cut off fractions without a word.
        raise FormatError(
            f"table {name}, column {column.name} has floating-point values",
            expected,
            "ns as floats lose digits: use the original integers",
        )
    try:
        cast = values.cast(column.dtype)
    except pl.exceptions.PolarsError:
        raise FormatError(
            f"table {name}, column {column.name} has {_misfits(values, column.dtype)}", expected
        ) from None
    if not column.nullable and cast.has_nulls():
        row = int(cast.is_null().arg_max() or 0)
        raise FormatError(
            f"table {name}, column {column.name} has no value in "
            f"{several(cast.null_count(), 'row')}, the first is row {row}",
            "a value in every row",
        )
    return cast


def _misfits(values: pl.Series, dtype: pl.DataType) -> str:
    """What is wrong with values that cannot be cast."""
    try:
        fits = values.cast(dtype, strict=False)
    except pl.exceptions.PolarsError:
        return f"{values.dtype} values"
    wrong = fits.is_null() & values.is_not_null()
    row = int(wrong.arg_max() or 0)
    return f"{values[row]!r} in row {row}"
