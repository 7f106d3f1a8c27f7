"""What threads slept for, from system calls and requests to disks (Linux, where recorded).

For each time off the CPU, the thread's last entry into or return from a system call is found. An
entry says which call it slept in; a return, that it was in none. The next one must fit, and nothing
may be missing between the two: else the cause is `unknown`. A request to a disk whose end woke the
thread that had made it says more than the call; so does the kernel where it says itself that a
sleep was for I/O, or where its stack shows that it was for a page fault. Where no call is known, a
stack shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.needs import has
from schedscope.analysis.causes.disk_sleeps import disk_sleeps
from schedscope.analysis.causes.sleep_reasons import sleep_reasons
from schedscope.analysis.causes.system_calls import names
from schedscope.analysis.recording.lost_events import losses_of_any_event

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_CALLS = {
    "futex": "futex futex_waitv futex_wait futex_requeue",
    "read": "read readv pread64 preadv preadv2",
    "write": (
        "write writev pwrite64 pwritev pwritev2 sendfile sendfile64 splice tee vmsplice"
        " copy_file_range"
    ),
    "socket": (
        "recv recvfrom recvmsg recvmmsg send sendto sendmsg sendmmsg accept accept4 connect"
        " shutdown socketcall"
    ),
    "poll": (
        "epoll_wait epoll_pwait epoll_pwait2 poll ppoll select _newselect pselect6 io_getevents"
        " io_pgetevents io_uring_enter"
    ),
    "timer": "nanosleep clock_nanosleep",
    "child": "wait4 waitid waitpid",
    "signal": "pause rt_sigsuspend rt_sigtimedwait",
    "sync": "fsync fdatasync sync syncfs sync_file_range sync_file_range2 msync",
    "file": (
        "open openat openat2 creat close close_range stat stat64 fstat fstat64 lstat lstat64"
        " fstatat64 newfstatat statx statfs statfs64 fstatfs fstatfs64 access faccessat faccessat2"
        " getdents getdents64 readlink readlinkat rename renameat renameat2 unlink unlinkat link"
        " linkat symlink symlinkat mkdir mkdirat rmdir mknod mknodat truncate truncate64 ftruncate"
        " ftruncate64 fallocate flock fcntl fcntl64 chdir fchdir chmod fchmod fchmodat chown"
        " fchown lchown fchownat utimensat getxattr lgetxattr fgetxattr setxattr lsetxattr"
        " fsetxattr lseek _llseek fadvise64 fadvise64_64 readahead mount umount umount2"
    ),
    "memory": (
        "mmap mmap2 munmap mprotect mremap brk madvise process_madvise mlock mlock2 munlock"
        " mlockall munlockall mincore move_pages migrate_pages mbind"
    ),
    "process": "clone clone3 fork vfork execve execveat exit exit_group unshare setns",
}

ARGUMENTS = ("arg0", "arg1", "arg2")

SLEEP_CAUSE = pl.Enum([*_CALLS, "other call", "disk", "io", "fault", "stop", "kernel", "unknown"])
"""What a sleep was for."""

EVIDENCE = pl.Enum(
    [
        "in the call",
        "its request",
        "said by the kernel",
        "stack",
        "between calls",
        "state",
        "kernel thread",
        "no call seen",
        "events lost",
        "calls contradict",
        "locks only",
        "not chosen",
    ]
)
"""How it is known; the last five, and `between calls` of a sleep that a signal could have ended,
are why it is not."""


def causes(trace: Trace, times: pl.LazyFrame) -> pl.LazyFrame:
    """`times` (`utid`, `ts`, `state`) with `cause`, `reason` (the call) and `evidence`.

    And with the call's `called` (when it was entered) and arguments, which mean something where
    `evidence` is `in the call`.
    """
    calls = trace.system_calls.select(
        "utid", "ts", "cpu", "number", pl.col("step").cast(pl.String), *ARGUMENTS
    ).sort("ts", maintain_order=True)
    # Behind a thread's last event of all, `next_step` is null.
    calls = calls.with_columns(
        next_step=pl.col("step").shift(-1).over("utid"),
        next_number=pl.col("number").shift(-1).over("utid"),
        called=pl.col("ts"),
    )
    followed = calls.select("utid", followed=pl.lit(value=True)).unique("utid")
    found = (
        times.sort("ts", maintain_order=True)
        .join_asof(calls, on="ts", by="utid", strategy="backward", check_sortedness=False)
        .join(trace.threads.select("utid", "kernel"), on="utid", how="left")
        .join(followed, on="utid", how="left")
    )
    found = _with_doubt(trace, found)
    inside = pl.col("step") == "enter"
    fits = (
        pl.when(inside)
        .then((pl.col("next_step") == "exit") & (pl.col("next_number") == pl.col("number")))
        .otherwise(pl.col("next_step") == "enter")
    ).fill_null(value=pl.col("next_step").is_null())
    known = names(trace.info.get("machine"))
    chosen = trace.metadata("ftrace", "calls_of") not in (None, "all")
    # A thread that is not its process's first and calls execve takes the first one's number, which
    # the kernel's filter has dropped by then: its later calls are not recorded.
    execs = [number for number, name in known.items() if name.startswith("execve")]
    left = inside & pl.col("number").is_in(execs) & pl.col("next_step").is_null()
    evidence = (
        pl.when(pl.col("state") == "stopped")
        .then(pl.lit("state"))
        .when(pl.col("kernel").fill_null(value=False))
        .then(pl.lit("kernel thread"))
        .when(pl.lit(chosen) & (pl.col("followed").is_null() | left))
        .then(pl.lit("not chosen"))
        .when(pl.col("step").is_null())
        .then(pl.lit("no call seen"))
        .when(pl.col("doubt"))
        .then(pl.lit("events lost"))
        .when(~fits)
        .then(pl.lit("calls contradict"))
        .when(inside)
        .then(pl.lit("in the call"))
        .when(pl.lit(trace.metadata("ftrace", "system_calls") == "locks"))
        .then(pl.lit("locks only"))
        .otherwise(pl.lit("between calls"))
    )
    call = pl.col("number").replace_strict(
        list(known), list(known.values()), default=None, return_dtype=pl.String
    )
    groups = {name: group for group, text in _CALLS.items() for name in text.split()}
    of_call = (
        call.replace_strict(list(groups), list(groups.values()), default="other call")
        if known
        else pl.lit("other call")
    )
    cause = (
        pl.when(pl.col("evidence") == "state")
        .then(pl.lit("stop"))
        .when(pl.col("evidence") == "kernel thread")
        .then(pl.lit("kernel"))
        .when(pl.col("evidence") == "in the call")
        .then(of_call)
        .when(
            (pl.col("evidence") == "between calls")
            & (pl.col("state") == "blocked")
            & pl.lit(_all_calls(trace))
        )
        .then(pl.lit("fault"))
        .otherwise(pl.lit("unknown"))
    )
    number = pl.format("call {}", pl.col("number"))
    named = found.with_columns(evidence=evidence).with_columns(
        cause=cause.cast(SLEEP_CAUSE),
        reason=pl.when(pl.col("evidence") == "in the call").then(pl.coalesce(call, number)),
    )
    if has(trace, "sleep_reasons"):
        named = named.join(sleep_reasons(trace, times), on=["utid", "ts"], how="left")
        named = _with_reasons(named, groups)
    if has(trace, "disk_requests"):
        of_disk = disk_sleeps(trace, times).select("utid", "ts", disk=pl.lit(value=True))
        disk = pl.col("disk").is_not_null()
        named = named.join(of_disk, on=["utid", "ts"], how="left").with_columns(
            cause=pl.when(disk).then(pl.lit("disk", SLEEP_CAUSE)).otherwise("cause"),
            evidence=pl.when(disk).then(pl.lit("its request")).otherwise("evidence"),
        )
        named = named.drop("disk")
    return named.with_columns(pl.col("evidence").cast(EVIDENCE)).drop(
        "kernel", "followed", "step", "number", "next_step", "next_number", "cpu", "doubt"
    )


def _with_reasons(named: pl.LazyFrame, groups: dict[str, str]) -> pl.LazyFrame:
    """With what the kernel said itself, or its stack shows; `groups`: the causes of calls."""
    by_stack = pl.col("from_stack").fill_null(value=False)
    fault = by_stack & (pl.col("entry") == "page fault").fill_null(value=False)
    # A stack adds nothing to a sleep whose call is known, or to one outside of any call.
    settled = ("in the call", "kernel thread", "state")
    nothing_better = by_stack & ~pl.col("evidence").is_in(settled)
    of_entry = (
        pl.col("entry")
        .replace_strict(list(groups), list(groups.values()), default="other call")
        .fill_null("unknown")
        .cast(SLEEP_CAUSE)
    )
    of_entry = (
        pl.when(pl.col("entry").is_null()).then(pl.lit("unknown", SLEEP_CAUSE)).otherwise(of_entry)
    )
    return named.with_columns(
        cause=pl.when("io_wait")
        .then(pl.lit("io", SLEEP_CAUSE))
        .when(fault)
        .then(pl.lit("fault", SLEEP_CAUSE))
        .when(nothing_better)
        .then(of_entry)
        .otherwise("cause"),
        evidence=pl.when(pl.col("io_wait") & ~by_stack)
        .then(pl.lit("said by the kernel"))
        .when(((pl.col("io_wait") | fault) & by_stack) | nothing_better)
        .then(pl.lit("stack"))
        .otherwise("evidence"),
        reason=pl.coalesce("reason", "function"),
    ).drop("io_wait", "function", "entry", "from_stack")


def _all_calls(trace: Trace) -> bool:
    """Whether every call was recorded: other tracers may have been set to leave some out."""
    return bool(trace.metadata("recorder", "name") == "ftrace")


def _with_doubt(trace: Trace, found: pl.LazyFrame) -> pl.LazyFrame:
    """`doubt`: between the end of the call and the sleep, events of the thread may be missing.

    A running thread becomes `unknown` where events of its CPU are lost. A thread that already was
    `unknown` stays so; therefore losses on the CPU where the call's end was recorded are checked,
    too.
    """
    unseen = (
        trace.states.filter(pl.col("state").cast(pl.String) == "unknown")
        .select("utid", "ts", began=pl.col("ts"))
        .sort("ts", maintain_order=True)
    )
    return (
        found.join_asof(unseen, on="ts", by="utid", strategy="backward", check_sortedness=False)
        .join_asof(_holes(trace), on="ts", by="cpu", strategy="backward", check_sortedness=False)
        .with_columns(
            doubt=(pl.col("began") >= pl.col("called")).fill_null(value=False)
            | (pl.col("hole_end") >= pl.col("called")).fill_null(value=False)
        )
        .drop("began", "hole_end")
    )


def _holes(trace: Trace) -> pl.LazyFrame:
    """When any event may be missing, by CPU: `cpu`, `ts`, and `hole_end`, the latest so far."""
    losses = losses_of_any_event(trace).select("cpu", ts="ts_begin", hole_end="ts_end")
    every = pl.LazyFrame({"cpu": list(range(trace.ncpu))}, {"cpu": pl.UInt16})
    anywhere = losses.filter(pl.col("cpu").is_null()).drop("cpu").join(every, how="cross")
    return (
        pl.concat(
            [losses.filter(pl.col("cpu").is_not_null()), anywhere.select("cpu", "ts", "hole_end")]
        )
        .sort("ts", maintain_order=True)
        .with_columns(pl.col("hole_end").cum_max().over("cpu"))
    )
