"""Traces laid out as scxtop and systing write them (read from their sources, 2026-11)."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from decoded import decode, switches
from perfetto_packets import bundle, event, field, packed

MS = 1_000_000
SWITCH, WAKEUP, WAKING, SOFTIRQ = 4, 17, 20, 24


def saved(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "x.proto"
    path.write_bytes(data)
    return path


def clocks() -> bytes:
    """A snapshot without a primary clock: monotonic, boot, real, and coarse ones."""
    times = [(3, 900 * MS), (6, 900 * MS), (1, 10**18), (2, 10**18), (4, 900 * MS), (5, 900 * MS)]
    return field(1, field(6, b"".join(field(1, field(1, i) + field(2, at)) for i, at in times)))


def queue_tracks(uuid: int) -> bytes:
    """Counters of one dispatch queue; the packet's time is of another unit than the event's."""
    described = b"".join(
        field(1, field(60, field(1, uuid + n) + field(2, name) + field(8, field(6, name))))
        for n, name in enumerate(("DSQ 7 latency ns", "DSQ 7 nr_queued"))
    )
    counted = b"".join(
        field(1, field(8, 1) + field(10, 77) + field(11, field(9, 4) + field(11, uuid + n)
                                                    + field(30, 12) + field(17, 1_001)))
        for n in (0, 1)
    )  # fmt: skip
    return described + counted


def turn(ts: int, prev: tuple[int, int] | None, following: int | None) -> bytes:
    """A switch as scxtop writes it: the idle thread has no fields; prev is (tid, state)."""
    parts = b""
    if following is not None:
        parts += field(5, f"t{following}") + field(6, following) + field(7, 120)
    if prev is not None:
        parts += field(1, f"t{prev[0]}") + field(2, prev[0]) + field(3, 120) + field(4, prev[1])
    return event(ts, prev[0] if prev else 0, SWITCH, parts)


def woken(ts: int, tid: int, cpu: int, number: int) -> bytes:
    """scxtop names the woken thread as the event's own, and the waker's CPU as the target."""
    who = field(1, f"t{tid}") + field(2, tid) + field(3, 120) + field(5, cpu)
    return event(ts, tid, number, who)


def scxtop() -> bytes:
    """11 runs on CPU 0 and wakes 22, which waits for 3 ms and then runs on CPU 1."""
    first = [
        turn(1000 * MS, None, 11),
        woken(1005 * MS, 22, 0, WAKING),
        woken(1005 * MS + 2000, 22, 0, WAKEUP),
        event(1006 * MS, 11, SOFTIRQ, field(1, 9)),
        turn(1020 * MS, (11, 1), None),
    ]
    second = [turn(1008 * MS, None, 22), turn(1012 * MS, (22, 0), 33), turn(1015 * MS, (33, 1), 22),
              turn(1018 * MS, (22, 1), None)]  # fmt: skip
    return clocks() + queue_tracks(0xDEAD) + bundle(0, *first) + bundle(1, *second)


def test_a_trace_of_scxtop_opens_with_its_waits(tmp_path: Path) -> None:
    trace = decode(saved(tmp_path, scxtop()))
    assert trace.window == (1000 * MS, 1020 * MS)
    assert switches(trace).select("ts", "prev", "next").rows() == [
        (1000 * MS, 0, 11), (1008 * MS, 0, 22), (1012 * MS, 22, 33), (1015 * MS, 33, 22),
        (1018 * MS, 22, 0), (1020 * MS, 11, 0),
    ]  # fmt: skip
    tids = dict(trace.threads.select("utid", "tid").collect().iter_rows())
    waits = trace.waits.filter(pl.col("wait").is_not_null()).collect()
    found = [
        (tids[utid], cause, wait)
        for utid, cause, wait in waits.select("utid", "cause", "wait").iter_rows()
    ]
    assert (22, "wake", 3 * MS) in found
    assert (22, "preempt", 3 * MS) in found
    (warning,) = trace.info["warnings"]
    assert warning.startswith("all 2 wakeups name the woken thread as the one that ran")
    woken_by = trace.wakeups.join(trace.threads, left_on="waker_utid", right_on="utid").collect()
    assert set(woken_by["tid"].drop_nulls()) <= {0}
    assert trace.wakeups.select("current_utid", "target_cpu").collect().null_count().row(0) == (
        2,
        2,
    )
    running = trace.states.filter(pl.col("state") == "running", pl.col("utid") >= trace.ncpu)
    assert running.select(pl.col("dur").sum()).collect().item() == (20 + 10) * MS
    assert trace.losses.collect().is_empty()


def test_wakeups_with_their_wakers_keep_them(tmp_path: Path) -> None:
    """One of them names another thread: then the writer is none that cannot."""
    named = event(
        1004 * MS, 11, WAKING, field(1, "t33") + field(2, 33) + field(3, 120) + field(5, 1)
    )
    first = bundle(0, turn(1000 * MS, None, 11), named, woken(1005 * MS, 11, 0, WAKING),
                   turn(1020 * MS, (11, 1), None))  # fmt: skip
    trace = decode(saved(tmp_path, clocks() + first))
    assert trace.info["warnings"] == []
    tids = dict(trace.threads.select("utid", "tid").collect().iter_rows())
    assert [tids[utid] for utid in trace.wakeups.collect()["waker_utid"]] == [11, 11]


def columns(turns: list[tuple[int, int, int]], wakings: list[tuple[int, int, int]]) -> bytes:
    """Columns of a CPU as systing writes them: (time, state, tid) and (time, tid, CPU)."""
    names = sorted({f"t{tid}" for _, _, tid in turns} | {f"t{tid}" for _, tid, _ in wakings})

    def steps(times: list[int]) -> list[int]:
        return [b - a for a, b in zip([0, *times], times, strict=False)]

    body = b"".join(field(5, name) for name in names)
    body += packed(1, steps([turn[0] for turn in turns])) + packed(2, [turn[1] for turn in turns])
    body += packed(3, [turn[2] for turn in turns]) + packed(4, [120] * len(turns))
    body += packed(6, [names.index(f"t{turn[2]}") for turn in turns])
    if wakings:
        body += packed(7, steps([row[0] for row in wakings])) + packed(8, [r[1] for r in wakings])
        body += packed(9, [row[2] for row in wakings]) + packed(10, [120] * len(wakings))
        body += packed(11, [names.index(f"t{row[1]}") for row in wakings])
        body += packed(12, [1] * len(wakings))
    return field(4, body)


def systing(asleep: int) -> bytes:
    """CPU 1's bundle first, as a hash table orders them; all wakings are in that of CPU 0."""
    tracks = field(1, field(60, field(1, 1) + field(2, "p") + field(3, field(1, 11))))
    tracks += field(1, field(60, field(1, 2) + field(5, 1) + field(4, field(1, 11) + field(2, 11))))
    second = [
        (1002 * MS, 0, 22),
        (1004 * MS, asleep, 0),
        (1012 * MS, 0, 22),
        (1014 * MS, asleep, 0),
    ]
    first = [(1000 * MS, 0, 11), (1020 * MS, asleep, 0)]
    wakings = [(1001 * MS, 22, 1), (1010 * MS, 22, 1)]
    return clocks() + tracks + bundle(1, columns(second, [])) + bundle(0, columns(first, wakings))


def test_a_trace_of_systing_opens_with_its_waits(tmp_path: Path) -> None:
    trace = decode(saved(tmp_path, systing(1)))
    assert trace.window == (1000 * MS, 1020 * MS)
    waits = trace.waits.filter(pl.col("cause") == "wake").collect()
    assert sorted(waits["wait"].drop_nulls()) == [1 * MS, 2 * MS]
    (warning,) = trace.info["warnings"]
    assert warning.startswith("all wakings are among the events of CPU 0")
    assert trace.waits.filter(pl.col("cause") == "preempt").collect().is_empty()


def test_waits_after_wakeups_stay_right_where_threads_leave_in_no_state(tmp_path: Path) -> None:
    """A version of systing writes 0, runnable, for all: sleeps seem to begin with preemptions."""
    trace = decode(saved(tmp_path, systing(0)))
    measured = trace.waits.filter(pl.col("censored") == "none").collect()
    assert set(measured["cause"]) == {"wake"}
    assert sorted(measured["wait"]) == [1 * MS, 2 * MS]
    between = trace.waits.filter(pl.col("cause") == "preempt", pl.col("ts_ready") == 1004 * MS)
    assert between.select("wait", "wait_high").collect().row(0) == (0, 6 * MS)
