"""Sleeps for a lock: which lock, and who released it (Linux, where recorded).

A program's lock is a futex. A sleep in a futex call is a wait for the futex at the address that the
call names, in the thread's process. The thread that woke it from inside a call that wakes waiters
of the same futex has released it. A lock of the kernel is named by `lock:contention_begin`; who
woke the thread has released it. Anything else is null, never guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.needs import has
from schedscope.analysis.causes.sleep_causes import causes
from schedscope.analysis.causes.system_calls import names

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

# Commands of the futex call (include/uapi/linux/futex.h), without its flags.
_COMMAND = 0x7F
_PRIVATE = 128
"""The flag of futexes that one process alone uses; the kernel finds others by what the address
means, in whatever process (`get_futex_key` in kernel/futex/core.c)."""
_WAITS = (0, 9)  # WAIT, WAIT_BITSET
_WAITS_FOR_LOCK = (6, 13)  # LOCK_PI, LOCK_PI2
_WAKES = (1, 3, 4, 5, 7, 10)  # WAKE, REQUEUE, CMP_REQUEUE, WAKE_OP, UNLOCK_PI, WAKE_BITSET

CONTENDED = 2
"""What the word of a mutex holds while threads wait for it, in glibc, Rust and Go: the value that a
waiter expects. Conditions, semaphores and barriers count, and expect changing values."""

_SLEEPING_KINDS = ("mutex", "rwsem", "percpu-rwsem", "rt-mutex", "other")

SCHEMA = {
    "utid": pl.UInt32,
    "ts": pl.Int64,
    "dur": pl.Int64,
    "pid": pl.UInt32,
    "kind": pl.String,
    "address": pl.UInt64,
    "is_lock": pl.Boolean,
    "releaser": pl.UInt32,
    "ended": pl.String,
}

_TIMED_OUT = (-110,)  # ETIMEDOUT
_INTERRUPTED = (-4, -512, -513, -514, -516)  # EINTR, and those by which a call is begun again


def lock_waits(trace: Trace, times: pl.LazyFrame | None = None) -> pl.DataFrame:
    """One row per sleep of `times` (`utid`, `ts`, `dur`, `state`) for a futex or a kernel lock.

    `times` may be what `causes` made of it; without `times`: all sleeps. `pid`: the process whose
    futex it is; null for a lock of the kernel. `kind`: `futex`, or the kind of the kernel's lock.
    `address`: null where the source gives only the kind. `is_lock`: it is one that a single thread
    holds at a time, as far as that is proved. `releaser`: who released it, or null. `ended`:
    "timeout" or "signal" where the call returned for that reason, without a release; else null.
    """
    if times is None:
        times = trace.states.filter(
            pl.col("state").cast(pl.String).is_in(["sleeping", "blocked"])
            & (pl.col("utid") >= trace.ncpu)
        ).select("utid", "ts", "dur", "state")
    parts = []
    if has(trace, "locks"):
        parts.append(_of_kernel(trace, times))
    if has(trace, "system_calls"):
        parts.append(_of_programs(trace, times))
    if not parts:
        return pl.DataFrame(schema=SCHEMA)
    # A sleep in a call and for a lock of the kernel: the lock says more.
    found: pl.DataFrame = (
        pl.concat(parts).unique(["utid", "ts"], keep="first", maintain_order=True).sort("ts")
    )
    return found


def _wakers(trace: Trace) -> pl.LazyFrame:
    return (
        trace.waits.filter(pl.col("ts_waking").is_not_null())
        .select("utid", until="ts_waking", waker="waker_utid")
        .unique(["utid", "until"], keep="first", maintain_order=True)
    )


def _of_kernel(trace: Trace, times: pl.LazyFrame) -> pl.DataFrame:
    key = ["utid", "address"]
    begins = (
        trace.locks.sort("ts", maintain_order=True)
        .with_columns(pl.col("step").cast(pl.String), pl.col("kind").cast(pl.String))
        .with_columns(done=pl.col("ts").shift(-1).over(key))
        .filter((pl.col("step") == "begin") & pl.col("kind").is_in(_SLEEPING_KINDS))
        .select("utid", "ts", "done", "address", "kind")
        .sort("ts", maintain_order=True)
    )
    return (
        times.select("utid", "ts", "dur")
        .sort("ts", maintain_order=True)
        .join_asof(begins, on="ts", by="utid", strategy="backward", check_sortedness=False)
        .with_columns(until=pl.col("ts") + pl.col("dur"))
        .filter(pl.col("until") <= pl.col("done"))
        .join(_wakers(trace), on=["utid", "until"], how="left")
        .select(
            "utid",
            "ts",
            "dur",
            pid=pl.lit(None, pl.UInt32),
            kind="kind",
            address="address",
            is_lock=pl.col("kind").is_in(["mutex", "rwsem", "rt-mutex", "percpu-rwsem"])
            & pl.col("address").is_not_null(),
            releaser="waker",
            ended=pl.lit(None, pl.String),
        )
        .collect()
    )


def futex_numbers(trace: Trace) -> dict[int, str]:
    """The names of the futex calls, by their numbers on the recorded machine."""
    known = names(trace.info.get("machine"))
    return {number: name for number, name in known.items() if name.startswith("futex")}


def futex_calls(trace: Trace, *, of_unknown: bool = False) -> pl.LazyFrame:
    """Entries into futex calls: `utid`, `pid`, `ts`, `address`, `waits`, `wakes`, `mutex`, and
    `shared`: the futex may be one of several processes.

    Those of threads whose process is not known (`pid` null) only with `of_unknown`."""
    numbers = futex_numbers(trace)
    command = pl.col("arg1") & _COMMAND
    futex, new_wait, new_wake = (
        pl.col("number").is_in([number for number, name in numbers.items() if name == call])
        for call in ("futex", "futex_wait", "futex_wake")
    )
    waits = (futex & command.is_in([*_WAITS, *_WAITS_FOR_LOCK])) | new_wait
    expected = pl.when(new_wait).then("arg1").otherwise("arg2") & 0xFFFFFFFF
    return (
        trace.system_calls.filter(
            (pl.col("step").cast(pl.String) == "enter") & pl.col("arg0").is_not_null()
        )
        .filter(futex | new_wait | new_wake)
        .with_columns(
            waits=waits,
            wakes=(futex & command.is_in(_WAKES)) | new_wake,
            mutex=(futex & command.is_in(_WAITS_FOR_LOCK)) | (expected == CONTENDED),
            shared=futex & (pl.col("arg1") & _PRIVATE == 0),
        )
        .join(trace.threads.select("utid", "pid"), on="utid", how="left")
        .filter(pl.col("pid").is_not_null() | of_unknown)
        .select("utid", "pid", "ts", "waits", "wakes", "mutex", "shared", address="arg0")
        .sort("ts", maintain_order=True)
    )


def _of_programs(trace: Trace, times: pl.LazyFrame) -> pl.DataFrame:
    calls = futex_calls(trace, of_unknown=True).collect()
    if calls.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    waiting = calls.filter("waits", pl.col("pid").is_not_null()).lazy()
    of_futex = waiting.group_by("pid", "address").agg(is_lock=pl.col("mutex").all())
    waits = waiting.select("utid", "pid", "address", "shared", called="ts")
    if "called" not in times.collect_schema():
        times = causes(trace, times)
    slept = (
        times.filter(
            (pl.col("cause").cast(pl.String) == "futex")
            & (pl.col("evidence").cast(pl.String) == "in the call")
        )
        .select("utid", "ts", "dur", "called")
        .join(waits, on=["utid", "called"])
        .with_columns(until=pl.col("ts") + pl.col("dur"))
        .join(_wakers(trace), on=["utid", "until"], how="left")
        .join(of_futex, on=["pid", "address"], how="left")
        .collect()
    )
    # The last end of a call that the waker had before it woke the thread.
    ends = (
        trace.system_calls.select("utid", "ts", entered=pl.col("step").cast(pl.String) == "enter")
        .sort("ts", maintain_order=True)
        .collect()
        .with_columns(at="ts")
    )
    wakes = calls.filter("wakes").select(
        waker="utid", at="ts", waker_pid="pid", waker_address="address", waker_shared="shared"
    )
    told = (
        slept.sort("until", maintain_order=True)
        .join_asof(
            ends,
            left_on="until",
            right_on="ts",
            by_left="waker",
            by_right="utid",
            strategy="backward",
            check_sortedness=False,
        )
        .join(wakes, on=["waker", "at"], how="left")
    )
    # In other processes the memory may be mapped elsewhere, but a wake reaches only waiters of its
    # own futex.
    same = (pl.col("waker_pid") == pl.col("pid")) & (pl.col("waker_address") == pl.col("address"))
    across = (pl.col("waker_pid") != pl.col("pid")) & pl.col("shared") & pl.col("waker_shared")
    # Only a process's own threads can wake waiters of its private futex.
    unknown = (
        pl.col("waker_pid").is_null()
        & (pl.col("waker_address") == pl.col("address"))
        & ~pl.col("shared")
        & ~pl.col("waker_shared")
    )
    sure = pl.col("entered") & (same | across | unknown)
    # What the call returned; null for an entry whose return was not recorded.
    back = (
        trace.system_calls.filter(pl.col("utid").is_in(slept["utid"].unique().implode()))
        .select("utid", "ts", "value")
        .sort("ts", maintain_order=True)
        .collect()
    )
    told = told.join_asof(
        back,
        left_on="until",
        right_on="ts",
        by="utid",
        strategy="forward",
        check_sortedness=False,
        suffix="_back",
    )
    value = pl.col("value")
    return told.select(
        "utid",
        "ts",
        "dur",
        "pid",
        kind=pl.lit("futex"),
        address="address",
        is_lock="is_lock",
        releaser=pl.when(sure).then("waker"),
        ended=pl.when(sure)
        .then(None)
        .when(value.is_in(_TIMED_OUT))
        .then(pl.lit("timeout"))
        .when(value.is_in(_INTERRUPTED))
        .then(pl.lit("signal")),
    )


def worded(trace: Trace, waits: pl.DataFrame) -> pl.DataFrame:
    """`waits` with `lock` and `released_by` in words."""
    if waits.is_empty():
        none = pl.lit(None, pl.String)
        return waits.with_columns(released_by=none, lock=none)
    who = trace.threads.select("utid", "tid", "comm").collect()
    described = pl.format("{} ({})", pl.col("comm"), pl.col("tid"))
    named = who.select(releaser="utid", released_by=described)
    address = pl.col("address").map_elements(hex, return_dtype=pl.String).fill_null("(unknown)")
    return waits.join(named, on="releaser", how="left", maintain_order="left").with_columns(
        released_by=pl.coalesce("released_by", "ended"),
        lock=pl.concat_str(
            "kind",
            pl.lit(" "),
            address,
            pl.when(pl.col("pid").is_not_null())
            .then(pl.format(" ({})", pl.col("pid")))
            .otherwise(pl.lit("")),
        ),
    )
