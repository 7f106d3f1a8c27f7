"""Sleeps for locks, who released them, and convoys: a hand-made queue of two for one lock."""

from __future__ import annotations

import polars as pl
import pytest
from ledgers import played

import schedscope as ss
from schedscope.analysis.causes.lock_convoys import convoys
from schedscope.analysis.causes.lock_waits import lock_waits, worded
from schedscope.parsers.schema import TABLES

# a keeps the lock from before 10 until 50, then b has it until 60, then c.
WORLD = """
    0   cpu0: idle -> a
    0   cpu1: idle -> b
    10  cpu1: b S -> c
    20  cpu1: c S -> idle
    30  cpu0: a R -> d
    40  cpu0: d S -> a
    50  cpu0: waking b on 1 by a
    50  cpu0: enqueued b on 1 by a
    52  cpu1: idle -> b
    60  cpu1: waking c on 0 by b
    60  cpu1: enqueued c on 0 by b
    65  cpu0: a S -> c
"""
A, B, C = 2, 3, 4
LOCK, OTHER = 0x1000, 0x2000
WAIT, WAKE, LOCK_PI, BITSET_REALTIME = 128, 129, 134, 393
USUAL = [
    (9, B, 202, LOCK, WAIT, 2),
    (19, C, 202, LOCK, WAIT, 2),
    (49, A, 202, LOCK, WAKE, 1),
    (51, A, None, None, None, None),
    (53, B, None, None, None, None),
    (59, B, 202, LOCK, WAKE, 1),
    (61, B, None, None, None, None),
    (66, C, None, None, None, None),
]
Call = tuple[int, int, int | None, int | None, int | None, int | None]


def traced(
    calls: list[Call] = USUAL,
    locks: list[tuple[int, int, str, int, str | None]] = [],  # noqa: B006
    losses: list[tuple[int, int]] = [],  # noqa: B006
    world: str = WORLD,
) -> ss.Trace:
    made = played(world, ncpu=2, window=(0, 100))
    tables = {name: getattr(made, name) for name in ("switches", "wakeups", "states", "waits")}
    tables["threads"] = made.threads.with_columns(pid=pl.lit(77, pl.UInt32))
    cpu_of = {A: 0, B: 1, C: 1}
    rows = [
        {"ts": ts, "cpu": cpu_of[utid], "utid": utid, "step": "exit" if number is None else "enter",
         "number": number or 202, "value": 0 if number is None else None,
         "arg0": first, "arg1": second, "arg2": third}
        for ts, utid, number, first, second, third in calls
    ]  # fmt: skip
    tables["system_calls"] = pl.DataFrame(rows, TABLES["system_calls"].schema).lazy()
    tables["locks"] = pl.DataFrame(
        [
            {"ts": ts, "cpu": cpu_of[utid], "utid": utid, "step": step, "address": address,
             "kind": kind, "value": 0 if step == "end" else None}
            for ts, utid, step, address, kind in locks
        ],
        TABLES["locks"].schema,
    ).lazy()  # fmt: skip
    holes = [
        {"cpu": 0, "ts_begin": begin, "ts_end": end, "count": 1, "reason": "overrun"}
        for begin, end in losses
    ]
    tables["losses"] = pl.DataFrame(holes, TABLES["losses"].schema).lazy()
    about = made.info | {"machine": "x86_64", "recorder": {"name": "ftrace"}}
    return ss.Trace.from_tables(tables, about)


def replaced(**changes: object) -> list[Call]:
    """The usual calls, with other commands or values for those that wait."""
    return [
        (ts, utid, number, address, changes.get("command", command), changes.get("value", value))
        if command == WAIT else (ts, utid, number, address, command, value)
        for ts, utid, number, address, command, value in USUAL
    ]  # type: ignore[misc]  # fmt: skip


def test_each_wait_has_its_lock_and_its_releaser() -> None:
    trace = traced()
    found = lock_waits(trace)
    names = ["utid", "ts", "dur", "pid", "kind", "address", "is_lock", "releaser"]
    assert found.select(names).rows() == [
        (B, 10, 40, 77, "futex", LOCK, True, A),
        (C, 20, 40, 77, "futex", LOCK, True, B),
    ]  # fmt: skip
    told = worded(trace, found).select("lock", "released_by").rows()
    assert told == [("futex 0x1000 (77)", "a (102)"), ("futex 0x1000 (77)", "b (103)")]


def test_convoy_reports_queue_and_holder_time() -> None:
    """Until 49 a had it (it ran 29 of that and waited 10 for a CPU), then b; last none."""
    convoy = convoys(traced())[0]
    assert (convoy.threads, convoy.n, convoy.total) == (2, 2, 80)
    assert (convoy.waited, convoy.queued) == (50, 30)
    assert (convoy.holder, convoy.held, convoy.unproved) == (A, 39, 1)
    assert (convoy.held_running, convoy.held_runnable) == (29, 10)


def test_convoy_of_selected_threads_has_the_whole_queue_and_their_waiting() -> None:
    every = convoys(traced())[0]
    waited = lock_waits(traced()).filter("is_lock")
    for utid, dur in waited.select("utid", "dur").iter_rows():
        [convoy] = convoys(traced(), affected=pl.Series([utid], dtype=pl.UInt32))
        assert (convoy.own, convoy.utid, convoy.dur) == (dur, utid, dur)
        assert (convoy.total, convoy.waited, convoy.threads) == (80, every.waited, 2)
    idle = pl.Series([0], dtype=pl.UInt32)
    assert convoys(traced(), affected=idle) == []


def test_lock_wait_across_a_loss_is_unproved() -> None:
    convoy = convoys(traced(losses=[(45, 46)]))[0]
    assert (convoy.holder, convoy.held, convoy.unproved) == (B, 10, 40)


@pytest.mark.parametrize(
    ("calls", "is_lock"),
    [
        (replaced(value=0), False),
        (replaced(command=BITSET_REALTIME, value=6), False),
        (replaced(command=LOCK_PI, value=0), True),
        ([*USUAL[:1], (19, C, 202, LOCK, WAIT, 3), *USUAL[2:]], False),
    ],
)
def test_lock_is_recognised_by_its_futex_values(calls: list[Call], is_lock: bool) -> None:
    """A mutex's waiters all expect 2; a condition or semaphore counts."""
    trace = traced(calls)
    assert lock_waits(trace)["is_lock"].to_list() == [is_lock] * 2
    assert bool(convoys(trace)) == is_lock
    assert ("lock convoy" in ss.findings(trace)["topic"]) == is_lock


@pytest.mark.parametrize(
    "calls",
    [
        [call for call in USUAL if call[:2] != (49, A) and call[:2] != (51, A)],
        [(ts, who, n, OTHER if ts == 49 else at, op, v) for ts, who, n, at, op, v in USUAL],
        [(ts, who, n, at, WAIT if ts == 49 else op, 2) for ts, who, n, at, op, v in USUAL],
        [call for call in USUAL if call[:2] != (51, A)] + [(49, A, None, None, None, None)],
    ],
    ids=["no call", "another futex", "a call that wakes nobody", "back from the call"],
)
def test_unproved_releaser_is_not_named(calls: list[Call]) -> None:
    trace = traced(sorted(calls, key=lambda call: call[0]))
    found = lock_waits(trace).filter(pl.col("utid") == B)
    assert found["releaser"].to_list() == [None]
    row = ss.off_cpu(trace, by="utid").row(by_predicate=pl.col("utid") == B, named=True)
    assert (row["lock"], row["lock_time"]) == ("futex 0x1000 (77)", 40)
    assert row["released_by"] == "unknown"


@pytest.mark.parametrize(
    ("value", "said"), [(-110, "timeout"), (-516, "signal"), (-4, "signal"), (0, "unknown")]
)
def test_unfinished_lock_wait_has_no_releaser(value: int, said: str) -> None:
    """What the call returned says so; that b was woken by a, in no call, proves nothing."""
    calls = [call for call in USUAL if call[:2] not in ((49, A), (51, A))]
    trace = traced(calls)
    names = ("switches", "wakeups", "states", "waits", "threads", "locks", "losses")
    tables = {name: getattr(trace, name) for name in names}
    back = (pl.col("ts") == 53) & (pl.col("utid") == B)
    tables["system_calls"] = trace.system_calls.with_columns(
        value=pl.when(back).then(value).otherwise("value")
    )
    trace = ss.Trace.from_tables(tables, trace.info)
    row = ss.off_cpu(trace, by="utid").row(by_predicate=pl.col("utid") == B, named=True)
    assert row["released_by"] == said


@pytest.mark.parametrize(("address", "told"), [(LOCK, True), (OTHER, False)])
def test_releaser_with_an_unknown_process_is_unproved(address: int, told: bool) -> None:
    """A futex of one process alone is woken by none but its own threads."""
    calls = [
        (ts, who, n, address if who == A and n else at, op, v) for ts, who, n, at, op, v in USUAL
    ]
    trace = traced(calls)
    names = ("switches", "wakeups", "states", "waits", "system_calls", "locks", "losses")
    tables = {name: getattr(trace, name) for name in names}
    pid = pl.when(pl.col("utid") == A).then(None).otherwise("pid")
    tables["threads"] = trace.threads.with_columns(pid=pid)
    found = lock_waits(ss.Trace.from_tables(tables, trace.info)).filter(pl.col("utid") == B)
    assert found["releaser"].to_list() == [A if told else None]


@pytest.mark.parametrize(
    ("wait", "wake", "address", "told"),
    [
        (0, 1, OTHER, True),
        (9, 1, LOCK, True),
        (0, 129, LOCK, False),
        (128, 1, LOCK, False),
        (128, 129, LOCK, False),
    ],
)
def test_a_futex_of_several_processes(wait: int, wake: int, address: int, told: bool) -> None:
    """b and c are of other processes than a, where the futex may have another address."""
    calls = [
        (ts, who, n, address if who == A and n else at, {WAIT: wait, WAKE: wake}.get(op, op), v)
        for ts, who, n, at, op, v in USUAL
    ]
    trace = traced(calls)
    pid = pl.when(pl.col("utid") == A).then(70).otherwise(pl.col("pid")).cast(pl.UInt32)
    names = ("switches", "wakeups", "states", "waits", "system_calls", "locks", "losses")
    tables = {name: getattr(trace, name) for name in names}
    tables["threads"] = trace.threads.with_columns(pid=pid)
    found = lock_waits(ss.Trace.from_tables(tables, trace.info)).filter(pl.col("utid") == B)
    assert found["releaser"].to_list() == [A if told else None]
    assert found["pid"].to_list() == [77]


def test_a_lock_of_the_kernel_that_is_first_spun_for() -> None:
    address = 0xFFFF_8880_0000_0040
    trace = traced(
        [],
        [
            (5, B, "begin", address, "mutex"),
            (6, B, "begin", 0xFFFF_0000, "spinlock"),
            (7, B, "end", 0xFFFF_0000, None),
            (9, B, "begin", address, "mutex"),
            (15, C, "begin", 0xFFFF_0000, "spinlock"),
            (53, B, "end", address, None),
        ],
    )
    found = worded(trace, lock_waits(trace))
    assert found.select("utid", "ts", "lock", "is_lock", "released_by").rows() == [
        (B, 10, f"mutex {address:#x}", True, "a (102)")
    ]
    row = ss.off_cpu(trace, by="all").row(by_predicate=pl.col("lock").is_not_null(), named=True)
    assert row["lock_time"] == 40
    [convoy] = convoys(trace)
    assert (convoy.threads, convoy.queued) == (1, 0)
    assert "lock convoy" not in ss.findings(trace)["topic"]


@pytest.mark.parametrize(("preempted", "told"), [(15, True), (30, False)])
def test_a_lock_whose_holder_lacks_a_cpu_needs_no_queue(preempted: int, told: bool) -> None:
    """b alone waits from 10 to 50 for a, which itself waits from `preempted` to 40 for a CPU."""
    world = WORLD.replace("30  cpu0: a R", f"{preempted}  cpu0: a R")
    lines = sorted(filter(str.strip, world.splitlines()), key=lambda line: int(line.split()[0]))
    calls = [call for call in USUAL if call[1] != C]
    found = ss.findings(traced(calls, world="\n".join(lines)))
    assert ("lock convoy" in found["topic"]) == told
    if told:
        text = found.filter(topic="lock convoy")["text"][0]
        assert text.startswith("1 thread waited for the futex 0x1000 of process 77: 1 wait, 40 ns")
        assert "The holder lacks a CPU" in text
