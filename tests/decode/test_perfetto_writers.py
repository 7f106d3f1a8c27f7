"""Perfetto traces of other writers and sessions: missing values are not invented."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest
from decoded import decode, switches, wakeups
from perfetto_packets import (
    IDLE,
    RELEASE,
    A,
    B,
    bundle,
    compact,
    field,
    packed,
    service_stats,
    switch,
    waking,
)

import schedscope as ss

MS = 1_000_000
SERVICE = field(1, field(45, field(1, field(3, "6.18.0")) + field(4, "Perfetto v50")))


def compact_wakings(rows: list[tuple[int, int, int]], *, interrupts: bool = False) -> bytes:
    """(time, tid, CPU) of each waking, in columns; the names are from another list."""
    times = [row[0] for row in rows]
    steps = [b - a for a, b in zip([0, *times], times, strict=False)]
    return (
        packed(7, steps)
        + packed(8, [row[1] for row in rows])
        + packed(9, [row[2] for row in rows])
        + packed(10, [120] * len(rows))
        + packed(11, [0] * len(rows))
        + packed(12, [9 if interrupts else 1] * len(rows))
    )


def runs(turns: list[tuple[int, int, int]], wakings: bytes = b"") -> bytes:
    """(time, prev_state, next tid) of each switch of a CPU, with the wakings of its bundle."""
    times = [turn[0] for turn in turns]
    steps = [b - a for a, b in zip([0, *times], times, strict=False)]
    rows = [
        (step, state, tid, 0 if tid == 0 else 1)
        for step, (_, state, tid) in zip(steps, turns, strict=True)
    ]
    whole = compact(rows, ["swapper", "x"])
    # The columns of the wakings belong to the same message.
    body = whole[whole.index(b"swapper") - 2 :]
    return field(4, body + wakings)


def saved(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "x.pftrace"
    path.write_bytes(data)
    return path


def two_cpus(head: bytes, *, apart: bool, interrupts: bool = False) -> bytes:
    """11 on CPU 0 wakes no thread; 22 on CPU 1 wakes 33 there, and another CPU wakes 22."""
    first = [(0, 0, 11), *((n * 10 * MS, n % 2, 11 if n % 2 == 0 else 0) for n in range(1, 11))]
    second, woken = [(0, 0, 22)], []
    for n in range(10):
        begin = n * 10 * MS
        woken += [(begin + MS, 33, 1), (begin + 3 * MS, 22, 1)]
        second += [(begin + 2 * MS, 1, 33), (begin + 4 * MS, 1, 22)]
    mine = (
        compact_wakings([(10 * MS, 11, 0)])
        if apart
        else compact_wakings(woken, interrupts=interrupts)
    )
    theirs = compact_wakings(woken) if apart else b""
    return head + bundle(0, runs(first, mine)) + bundle(1, runs(second, theirs))


def test_wakings_in_the_bundle_of_one_cpu_have_no_waker(tmp_path: Path) -> None:
    """The running thread of the bundle's CPU is not the waker; times and threads are right."""
    trace = decode(saved(tmp_path, two_cpus(RELEASE, apart=False)))
    found = wakeups(trace)
    assert found.height == 20
    named = trace.threads.filter(pl.col("tid") == 11).collect()["utid"].item()
    assert named not in trace.wakeups.collect()["waker_utid"].to_list()
    assert set(found["cpu"]) == {1}
    (warning,) = trace.info["warnings"]
    assert warning.startswith("all wakings are among the events of CPU 0, though 2 CPUs switch")
    waits = trace.waits.filter(pl.col("cause") == "wake").collect()
    assert set(waits["wait"].drop_nulls()) == {MS}


def test_interrupt_wakings_in_the_bundle_of_one_cpu_are_on_their_target_cpu(tmp_path: Path) -> None:
    trace = decode(saved(tmp_path, two_cpus(RELEASE, apart=False, interrupts=True)))
    found = wakeups(trace)
    assert set(found["cpu"]) == {1}
    assert trace.wakeups.collect()["waker_utid"].null_count() == 20


@pytest.mark.parametrize(("head", "apart"), [(SERVICE, False), (RELEASE, True)])
def test_wakings_in_bundles_of_several_cpus_have_a_waker(
    tmp_path: Path, head: bytes, apart: bool
) -> None:
    trace = decode(saved(tmp_path, two_cpus(head, apart=apart)))
    assert trace.info["warnings"] == []
    assert (22 if apart else 11) in wakeups(trace)["waker"].to_list()


def started(ts: int) -> bytes:
    return field(1, field(8, ts) + field(69, field(2, 1)))


def config(*, buffer: int = 0, preserve: bool = False, name: str = "linux.ftrace") -> bytes:
    of_ftrace = field(100, field(23, 1)) if preserve else b""
    source = field(1, field(1, name) + field(2, buffer) + of_ftrace)
    return field(1, field(33, field(2, source)))


OLD = switch(1 * MS, IDLE, 0, A) + switch(2 * MS, A, 1, B)
NEW = switch(900 * MS, A, 1, IDLE) + switch(910 * MS, IDLE, 0, B)


@pytest.mark.parametrize("together", [True, False], ids=["one bundle", "two bundles"])
def test_events_before_tracing_started_are_left_out(tmp_path: Path, together: bool) -> None:
    """They were left in the kernel's buffer, from another time."""
    bundles = bundle(0, OLD + NEW) if together else bundle(0, field(3, 1), OLD) + bundle(0, NEW)
    trace = decode(saved(tmp_path, RELEASE + started(800 * MS) + bundles))
    assert trace.window == (900 * MS, 910 * MS)
    assert switches(trace)["ts"].to_list() == [900 * MS, 910 * MS]
    assert trace.events == 2
    assert trace.info["warnings"] == [
        "CPU 0: 2 events are of before tracing started (they were left in the kernel's buffer) "
        "and were left out"
    ]
    assert trace.losses.filter(pl.col("reason") != "chain_break").collect().is_empty()


def test_a_compact_switch_after_tracing_started_does_not_continue_an_older_one(
    tmp_path: Path,
) -> None:
    turns = runs([(1 * MS, 0, 11), (2 * MS, 1, 22), (900 * MS, 0, 33), (910 * MS, 1, 11)])
    trace = decode(saved(tmp_path, RELEASE + started(800 * MS) + bundle(0, turns)))
    assert switches(trace).select("ts", "prev", "next").rows() == [
        (900 * MS, 0, 33),
        (910 * MS, 33, 11),
    ]


def test_session_preserving_the_buffer_keeps_earlier_events(tmp_path: Path) -> None:
    data = RELEASE + config(preserve=True) + started(800 * MS) + bundle(0, OLD + NEW)
    assert switches(decode(saved(tmp_path, data))).height == 4


def snapshot(boot: int, wall: int) -> bytes:
    clocks = [(6, boot), (3, boot), (1, wall)]
    return field(1, field(6, b"".join(field(1, field(1, i) + field(2, v)) for i, v in clocks)))


@pytest.mark.parametrize(
    ("preserve", "clock", "known"),
    [
        (False, b"", True),
        (True, b"", False),
        (True, field(5, 3) + field(6, 100 * MS) + field(7, 100 * MS), True),
        (False, field(5, 3), False),
    ],
    ids=["own", "preserved", "preserved, with its clock", "local, without a pair"],
)
def test_clock_of_a_preserved_buffer_must_be_in_the_file(
    tmp_path: Path, preserve: bool, clock: bytes, known: bool
) -> None:
    """Without it there is no time of day, instead of one that is wrong by days."""
    head = RELEASE + snapshot(9_000 * MS, 1_700_000_000_000 * MS) + config(preserve=preserve)
    path = saved(tmp_path, head + bundle(0, NEW, clock))
    trace = decode(path)
    assert trace.duration == 10 * MS
    assert (trace.time_of_day(trace.window[0]) is not None) == known
    assert (trace.metadata("clock", "name") == "boot") == known
    clock_warnings = [text for text in trace.info["warnings"] if "which clock" in text]
    assert bool(clock_warnings) != known
    opened = ss.open(path, cache=tmp_path / "cache")
    assert json.dumps(opened.info["clock"]) == json.dumps(trace.info["clock"])


def idle_first(*, woken: bool = True, taken_over: bool = False, state: int = 0) -> bytes:
    """CPU 0 switches from the start; on CPU 1 33 runs after 5 s, and then it is idle."""
    first = [(0, 0, 11), *((n * 10 * MS, n % 2, 11 if n % 2 == 0 else 0) for n in range(1, 800))]
    wakings = [(n * 10 * MS - 50_000, 11, 0) for n in range(2, 800, 2)]
    begin = 5_000 * MS
    second = [(begin, state, 33), (begin + 4 * MS, 1, 0)]
    if woken:
        wakings += [(begin - 100_000, 33, 1)]
    if taken_over:
        first.insert(502, (begin + 5 * MS, 0, 44))
        first[503] = (begin + 10 * MS, 1, 0)
    return (
        SERVICE
        + bundle(0, runs(first, compact_wakings(sorted(wakings))))
        + bundle(1, runs([*second, (begin + 100 * MS, 0, 33), (begin + 101 * MS, 1, 0)]))
    )


def test_cpu_with_a_late_first_compact_switch_was_idle(tmp_path: Path) -> None:
    """No preempted thread appears: prev was the idle thread."""
    trace = decode(saved(tmp_path, idle_first()))
    per_cpu = {cpu["cpu"]: cpu for cpu in trace.info["per_cpu"]}
    assert per_cpu[1]["unknown"] == 0
    assert per_cpu[1]["idle"] == trace.duration - 5 * MS
    full = bundle(0, switch(0, A, 1, IDLE), switch(900 * MS, IDLE, 0, A)) + bundle(
        1, switch(500 * MS, IDLE, 0, B), switch(510 * MS, B, 1, IDLE)
    )
    of_cpu = decode(saved(tmp_path, RELEASE + full)).info["per_cpu"][1]
    assert (of_cpu["idle"], of_cpu["unknown"]) == (890 * MS, 0)
    assert trace.losses.collect().is_empty()
    assert trace.info["warnings"] == []


@pytest.mark.parametrize(
    "changed",
    [{"taken_over": True}, {"state": 1}, {"state": 256}],
    ids=["another CPU runs it", "it slept", "it was preempted in the kernel"],
)
def test_cpu_with_a_possible_runner_is_unknown_until_its_first_switch(
    tmp_path: Path, changed: dict[str, bool]
) -> None:
    trace = decode(saved(tmp_path, idle_first(**changed)))  # type: ignore[arg-type]
    per_cpu = {cpu["cpu"]: cpu for cpu in trace.info["per_cpu"]}
    assert per_cpu[1]["unknown"] == 5_000 * MS


def test_cpu_with_an_overwritten_start_is_unknown_until_its_first_event(tmp_path: Path) -> None:
    trace = decode(saved(tmp_path, idle_first() + service_stats(overwritten=7)))
    assert {cpu["cpu"]: cpu for cpu in trace.info["per_cpu"]}[1]["unknown"] == 5_000 * MS


def test_overwritten_counts_of_other_buffers_are_ignored(tmp_path: Path) -> None:
    """The ring of another data source wrapped: the scheduler's events are complete."""
    empty = field(1, field(3, 0))
    ring = field(1, field(3, 7) + field(18, 5))
    stats = field(1, field(35, empty + ring))
    events = bundle(0, switch(100, IDLE, 0, A), switch(900, A, 1, IDLE)) + bundle(
        1, switch(400, IDLE, 0, B), switch(500, B, 1, IDLE)
    )
    other = config(buffer=1, name="linux.process_stats")
    for buffer, reasons in ((0, set()), (1, {"late_start", "early_end"})):
        path = saved(tmp_path, RELEASE + config(buffer=buffer) + other + events + stats)
        assert set(decode(path).losses.collect()["reason"]) == reasons
        os.unlink(path)
    path = saved(tmp_path, RELEASE + events + service_stats(overwritten=7))
    assert set(decode(path).losses.collect()["reason"]) == {"late_start"}


def test_full_wakings_have_a_waker_with_any_writer(tmp_path: Path) -> None:
    data = (
        RELEASE
        + bundle(0, switch(100, IDLE, 0, A), waking(150, 11, B, 1), switch(300, A, 1, IDLE))
        + bundle(1, switch(200, IDLE, 0, B), switch(400, B, 1, IDLE))
    )
    assert wakeups(decode(saved(tmp_path, data)))["waker"].to_list() == [11]
