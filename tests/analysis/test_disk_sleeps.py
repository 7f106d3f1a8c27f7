"""Which sleeps wait for the disk: one sleep from 100 to 200 and the requests recorded around it."""

from __future__ import annotations

import polars as pl
import pytest

import schedscope as ss
from schedscope.analysis.findings.disks import disks
from schedscope.errors import MissingEventsError
from schedscope.parsers.schema import TABLES

S, OTHER = 2, 3
Row = tuple[int, int, int | None, str, int, int]
# ts, cpu, utid, step, device, sector
START: Row = (90, 1, S, "start", 1, 8)
ISSUE: Row = (91, 1, S, "issue", 1, 8)
DONE: Row = (199, 0, None, "complete", 1, 8)


def table(name: str, rows: list[dict[str, object]]) -> pl.DataFrame:
    schema = TABLES[name].schema
    return pl.DataFrame([{column: row.get(column) for column in schema} for row in rows], schema)


def world(
    requests: list[Row],
    *,
    state: str = "blocked",
    waker: int | None = None,
    switch: int | None = None,
    lost: tuple[int, int] | None = None,
    window: int = 300,
) -> ss.Trace:
    rows = [
        {"ts": ts, "cpu": cpu, "utid": utid, "step": step, "device": device, "sector": sector,
         "sectors": 8}
        for ts, cpu, utid, step, device, sector in sorted(requests)
    ]  # fmt: skip
    states = [
        (0, 100, "running", "switched"),
        (100, 100, state, "woken"),
        (200, 5, "runnable", "switched"),
        (205, 95, "running", "open"),
    ]
    tables = {
        "states": table("states", [
            {"ts": ts, "dur": dur, "utid": S, "state": one, "end": end,
             "cpu": 1 if one == "running" else None}
            for ts, dur, one, end in states
        ]),
        "waits": table("waits", [{
            "utid": S, "cause": "wake", "ts_waking": 200, "ts_ready": 200, "ts_run": 205,
            "waker_utid": waker, "waker_cpu": 0, "cpu": 1, "wait": 5, "censored": "none",
        }]),
        "threads": table("threads", [
            {"utid": utid, "tid": 100 + utid, "comm": name, "kernel": False}
            for utid, name in ((S, "s"), (OTHER, "o"))
        ]),
        "switches": table("switches", [
            {"ts": ts, "cpu": 0, "prev_utid": 0, "next_utid": OTHER}
            for ts in (150, switch) if ts is not None
        ]),
        "disk_requests": table("disk_requests", rows),
    }  # fmt: skip
    if lost is not None:
        row = {"cpu": 0, "ts_begin": lost[0], "ts_end": lost[1], "count": 1, "reason": "overrun"}
        tables["losses"] = table("losses", [row])
    return ss.Trace.from_tables(tables, {"ncpu": 2, "window": [0, window], "os": "Linux"})


def cause(trace: ss.Trace) -> tuple[object, ...]:
    return ss.off_cpu(trace).select("cause", "evidence", "n", "total").row(0)


@pytest.mark.parametrize(
    "requests",
    [
        [START, ISSUE, DONE],
        [ISSUE, DONE],
        # A kernel worker issued the thread's request to the disk.
        [START, (95, 1, OTHER, "issue", 1, 8), DONE],
        # The request was started once more, and the earlier completion was for another one.
        [(10, 1, OTHER, "start", 1, 8), (20, 0, None, "complete", 1, 8), START, DONE],
        [START, DONE, (198, 0, None, "complete", 1, 64)],
    ],
)
def test_sleep_ended_by_its_own_request_has_cause_disk(requests: list[Row]) -> None:
    assert cause(world(requests)) == ("disk", "its request", 1, 100)


@pytest.mark.parametrize(
    "requests",
    [
        [(90, 1, OTHER, "start", 1, 8), DONE],
        [(90, 1, S, "start", 2, 8), DONE],
        [(90, 1, S, "start", 1, 16), DONE],
        [(90, 1, None, "issue", 1, 8), DONE],
        [START, (199, 1, None, "complete", 1, 8)],
        [START, (95, 0, None, "complete", 1, 8)],
        [START, (201, 0, None, "complete", 1, 8)],
        # Another request was completed after its own, and then a thread was woken.
        [START, (198, 0, None, "complete", 1, 8), (199, 0, None, "complete", 1, 64)],
        [START, DONE, (199, 0, None, "complete", 2, 8)],
        [DONE],
        [START],
    ],
)
def test_sleep_without_a_matching_request_has_unknown_cause(requests: list[Row]) -> None:
    assert cause(world(requests)) == ("unknown", "no call seen", 1, 100)


def test_cause_disk_needs_the_completing_waker_and_no_loss_between() -> None:
    usual = [START, DONE]
    no = ("unknown", "no call seen", 1, 100)
    assert cause(world(usual, waker=OTHER)) == no
    assert cause(world(usual, switch=200)) == no
    assert cause(world(usual, state="sleeping")) == no
    assert cause(world(usual, lost=(190, 199))) == no
    assert cause(world(usual, lost=(50, 60)))[0] == "disk"


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        (
            [START, ISSUE, DONE],
            "0.92 % of their total time was spent in the kernel's queue, the rest in the disk.",
        ),
        # Started at 90, issued to the disk at 190: of 109 ns 9 are the disk's.
        (
            [START, (190, 1, OTHER, "issue", 1, 8), DONE],
            "91.7 % of their total time was spent in the kernel's queue",
        ),
        ([ISSUE, DONE], "The trace does not show how long requests waited in the kernel's queue."),
        # A start before the last completion of that sector belongs to that request.
        (
            [(80, 1, S, "start", 1, 8), (85, 0, None, "complete", 1, 8), ISSUE, DONE],
            "The trace does not show how long requests waited in the kernel's queue.",
        ),
    ],
)
def test_finding_reports_where_requests_spent_their_time(requests: list[Row], said: str) -> None:
    (found,) = disks(world(requests))
    assert (found.cost, found.ts, found.dur, found.utid) == (100, 100, 100, S)
    begin = "s (102) slept 100 ns for disk 0:1 (33.3 % of the window, 1 sleep, the longest 100 ns)."
    assert found.text.startswith(begin)
    assert said in found.text


def test_short_or_other_sleeps_have_no_disk_finding() -> None:
    for trace in (
        world([(90, 1, OTHER, "start", 1, 8), DONE]),
        world([START, ISSUE, DONE], state="sleeping"),
        world([START, ISSUE, DONE], window=1_001),
    ):
        assert not list(disks(trace))
    assert len(list(disks(world([START, ISSUE, DONE], window=1_000)))) == 1


def test_grouping_by_cause_needs_requests() -> None:
    frame = ss.off_cpu(world([START, DONE]), by="cause")
    assert frame.select("cause", "total").rows() == [("disk", 100)]
    with pytest.raises(MissingEventsError, match="--with syscalls"):
        ss.off_cpu(world([]), by="cause")
