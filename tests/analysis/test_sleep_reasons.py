"""What the kernel said of sleeps: which sleep a line is about, in hand-made worlds and a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from decoded import FIXTURES, decode

import schedscope as ss
from schedscope.analysis.causes.sleep_reasons import sleep_reasons
from schedscope.errors import MissingEventsError
from schedscope.parsers.schema import TABLES

S = 2
LIFE = [
    (0, 100, "running", "switched"),
    (100, 100, "blocked", "woken"),
    (200, 5, "runnable", "switched"),
    (205, 95, "running", "switched"),
    (300, 50, "sleeping", "woken"),
    (350, 10, "runnable", "switched"),
    (360, 40, "running", "window"),
]
BLOCKED, SLEEPING = (100, 100), (300, 50)


def table(name: str, rows: list[dict[str, object]]) -> pl.DataFrame:
    schema = TABLES[name].schema
    return pl.DataFrame([{column: row.get(column) for column in schema} for row in rows], schema)


def world(
    said: Sequence[tuple[int, bool, str | None] | tuple[int, bool, str | None, str | None]],
    life: list[tuple[int, int, str, str]],
    *,
    stack: bool = False,
    more: dict[str, pl.DataFrame] | None = None,
) -> ss.Trace:
    tables = {
        "states": table("states", [
            {"ts": ts, "dur": dur, "utid": S, "state": state, "end": end,
             "cpu": 1 if state == "running" else None}
            for ts, dur, state, end in life
        ]),
        "threads": table("threads", [{"utid": S, "tid": 102, "comm": "s", "kernel": False}]),
        "switches": table("switches", [{"ts": 0, "cpu": 1, "prev_utid": 0, "next_utid": S}]),
        "sleep_reasons": table("sleep_reasons", [
            {"ts": ts, "cpu": 0, "utid": S, "io_wait": io, "function": function, "entry": entry,
             "told_by": "stack" if stack else "event"}
            for ts, io, function, entry in ((*line, None)[:4] for line in said)
        ]),
    }  # fmt: skip
    tables |= more or {}
    return ss.Trace.from_tables(tables, {"ncpu": 2, "window": [0, 400], "os": "Linux"})


def rows(trace: ss.Trace) -> list[tuple[object, ...]]:
    frame = ss.off_cpu(trace).sort("total", descending=True)
    return frame.select("total", "cause", "evidence", "reason").rows()


UNSAID = (50, "unknown", "no call seen", None)


@pytest.mark.parametrize(
    "at",
    [
        # As it is woken, or on its way to the queue; as it falls asleep, at the latest with the
        # switch; while it still runs, and is woken before it has left.
        *(200, 201, 205 - 1),
        *(99, 100),
    ],
)
def test_a_line_is_about_the_one_sleep_around_it(at: int) -> None:
    said = (100, "io", "said by the kernel", "folio_wait_bit")
    assert rows(world([(at, True, "folio_wait_bit")], LIFE)) == [said, UNSAID]


def test_function_alone_is_named_but_is_not_a_cause() -> None:
    trace = world([(200, False, "rwsem_down_read_slowpath")], LIFE)
    named = (100, "unknown", "no call seen", "rwsem_down_read_slowpath")
    assert rows(trace) == [named, UNSAID]


def test_a_sleep_that_a_signal_could_end_may_be_for_io_too() -> None:
    (blocked, said) = rows(world([(355, True, None)], LIFE))
    assert blocked == (100, "unknown", "no call seen", None)
    assert said == (50, "io", "said by the kernel", None)


def test_unknown_time_or_a_thread_that_goes_on_proves_nothing() -> None:
    # The thread runs, and what comes after that is not known, or no sleep.
    hidden = [*LIFE[:1], (100, 105, "unknown", "switched"), *LIFE[3:]]
    for at in (50, 100, 150, 204):
        assert rows(world([(at, True, None)], hidden)) == [UNSAID]
    preempted = [*LIFE[:1], (100, 105, "runnable", "switched"), *LIFE[3:]]
    assert rows(world([(50, True, None)], preempted)) == [UNSAID]


@pytest.mark.parametrize(
    ("io", "function", "entry", "cause"),
    [
        (False, "futex_do_wait", "futex", "futex"),
        (False, "do_wait", "wait4", "child"),
        (False, "some_driver_wait", "ioctl", "other call"),
        (False, "userfaultfd_wait", "page fault", "fault"),
        (True, "folio_wait_bit_common", "page fault", "io"),
        (False, "some_function", None, "unknown"),
    ],
)
def test_stack_gives_the_call_and_the_function(
    io: bool, function: str, entry: str | None, cause: str
) -> None:
    trace = world([(101, io, function, entry)], LIFE, stack=True)
    assert rows(trace) == [(100, cause, "stack", function), UNSAID]


@pytest.mark.parametrize(
    ("entry", "cause", "evidence"),
    [("wait4", "other call", "in the call"), ("page fault", "fault", "stack")],
)
def test_a_recorded_call_is_better_than_a_stack(entry: str, cause: str, evidence: str) -> None:
    calls = table("system_calls", [
        {"ts": ts, "cpu": 1, "utid": S, "step": step, "number": 202}
        for ts, step in ((90, "enter"), (210, "exit"))
    ])  # fmt: skip
    more = {"system_calls": calls}
    trace = world([(101, False, "some_function", entry)], LIFE, stack=True, more=more)
    found = ss.off_cpu(trace).filter(pl.col("total") == 100)
    assert found.select("cause", "evidence").rows() == [(cause, evidence)]


def test_a_stack_of_a_thread_that_is_woken_on_its_way_out_is_about_that_sleep() -> None:
    """The wakeup is decided before the stack is written: the thread already waits for a CPU."""
    trace = world([(202, False, "pipe_read", "read")], LIFE, stack=True)
    assert rows(trace) == [(100, "read", "stack", "pipe_read"), UNSAID]


def test_grouping_by_cause_needs_calls_or_reasons() -> None:
    frame = ss.off_cpu(world([(200, True, None)], LIFE), by="cause")
    assert frame.select("cause", "total").rows() == [("io", 100), ("unknown", 50)]
    with pytest.raises(MissingEventsError, match="--with syscalls"):
        ss.off_cpu(world([], LIFE), by="cause")


def test_lines_of_android_and_of_schedstats(tmp_path: Path) -> None:
    switch = "sched_switch: prev_comm=a prev_pid=11 prev_prio=120 prev_state=D ==> next_comm="
    lines = (
        f"  a-11 [000] d..2 1.000001: {switch}b next_pid=12 next_prio=120",
        "  b-12 [000] d..2 1.000002: sched_blocked_reason: pid=11 iowait=1 "
        "caller=folio_wait_bit_common+0x2b0/0x408",
        "  b-12 [000] d..2 1.000003: sched_blocked_reason: pid=13 iowait=0 caller=ffffff80081a2b3c",
        "  b-12 [000] d..2 1.000004: sched_blocked_reason: pid=13 iowait=0 caller=0xffffff80081a2b",
        "  b-12 [000] d..2 1.000005: sched_blocked_reason: pid=14 iowait=1 caller=" + "f" * 49,
        "  b-12 [000] d..2 1.000006: sched_stat_iowait: comm=a pid=1 x pid=11 delay=42 [ns]",
        "  b-12 [000] d..2 1.000007: sched_blocked_reason: of a kernel to come",
        "  b-12 [000] d..2 1.000008: sched_blocked_reason: pid=13 iowait=0 "
        "caller=ffffff80081a2b3cS",
        "  b-12 [000] d..2 1.000009: sched_blocked_reason: pid=14 io_wait=1 delay=7 "
        "caller=f2fs_wait_on_block_writeback+0x0/0x0[f2fs]",
    )
    path = tmp_path / "trace.txt"
    path.write_text("# tracer: nop\n" + "\n".join(lines) + "\n")
    trace = decode(path)
    tids = trace.threads.select("utid", "tid")
    found = trace.sleep_reasons.join(tids, on="utid").sort("ts")
    assert found.select("tid", "io_wait", "function").collect().rows() == [
        (11, True, "folio_wait_bit_common"),
        (13, False, None),
        (13, False, None),
        (14, True, None),
        (11, True, None),
        (13, False, None),
        (14, True, "f2fs_wait_on_block_writeback"),
    ]
    said = "1 line of events other than switches and wakeups could not be read"
    assert said in trace.info["warnings"][0]


@pytest.mark.parametrize("name", ["perf-iowait.data", "perf-iowait.script.txt"])
def test_each_of_a_kernels_own_lines_is_about_a_sleep_as_long_as_it_says(name: str) -> None:
    """sched_stat_iowait says how long the sleep was: no other source than the file's text."""
    trace = decode(FIXTURES / name)
    said = [
        (int(tid), int(float(at) * 1e9), int(delay))
        for at, tid, delay in re.findall(
            r"([\d.]+):\s+sched:sched_stat_iowait: comm=.* pid=(\d+) delay=(\d+)",
            (FIXTURES / "perf-iowait.script.txt").read_text(),
        )
    ]
    asleep = pl.col("state").cast(pl.String).is_in(["sleeping", "blocked"])
    times = trace.states.filter(asleep).select("utid", "ts", "dur", "state", "end")
    found = (
        sleep_reasons(trace, times)
        .join(times, on=["utid", "ts"])
        .join(trace.threads.select("utid", "tid"), on="utid")
        .collect()
    )
    assert len(said) == len(found) == trace.sleep_reasons.collect().height == 25
    assert set(found["state"]) == {"blocked"}
    assert found["io_wait"].all()
    ends = [(tid, ts + dur, dur) for tid, ts, dur in found.select("tid", "ts", "dur").rows()]
    for tid, at, delay in said:
        near = [dur for other, end, dur in ends if other == tid and abs(end - at) < 250_000]
        # The machine is emulated: the kernel's queue clock is read up to that much later.
        assert any(abs(dur - delay) < 250_000 for dur in near), (tid, at, delay, near)
