"""Waits cut by dispatch queues of sched_ext, on a timeline made by hand and on random ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

import schedscope as ss
from schedscope import cli
from schedscope.parsers.schema import TABLES

END = 1000


def trace(
    steps: Sequence[tuple[int, int, str, str, int | None]],
    waits: Sequence[tuple[int, int, int, str]],
    *,
    holes: Sequence[tuple[int, int]] = (),
    running: Sequence[tuple[int, int, int]] = (),
) -> ss.Trace:
    """Steps are (ts, utid, step, kind, number), waits (utid, from, to, censored)."""
    counts: dict[tuple[str, int | None], int] = {}
    rows = []
    for ts, utid, step, kind, number in steps:
        held = counts.setdefault((kind, number), int(step == "remove"))
        counts[kind, number] = held + (1 if step == "insert" else -1)
        user = kind == "user"
        put = step == "insert"
        rows.append(
            {
                "ts": ts,
                "cpu": 0,
                "utid": utid,
                "step": step,
                "kind": kind,
                "queue_cpu": None if user else number,
                "queue_id": number if user else None,
                "queued": held,
                "slice": 20 if put else None,
                "vtime": 0 if put else None,
                "flags": 0 if put else None,
                "limit": 400 if put else None,
            }
        )
    ledger = [
        {
            "utid": utid,
            "cause": "wake",
            "ts_ready": begin,
            "ts_enqueued": begin,
            "ts_run": end if censored == "none" else None,
            "wait": end - begin,
            "wait_high": end - begin if censored == "none" else END - begin,
            "censored": censored,
        }
        for utid, begin, end, censored in waits
    ]
    states = [
        {"ts": ts, "dur": dur, "utid": utid, "state": "running", "cpu": 0, "end": "switched"}
        for ts, dur, utid in running
    ]
    lost = [
        {"cpu": 0, "ts_begin": begin, "ts_end": end, "reason": "overrun"} for begin, end in holes
    ]
    tables: dict[str, list[dict[str, Any]]] = {
        "dispatch_queues": rows, "waits": ledger, "states": states, "losses": lost,
        "threads": [{"utid": utid, "tid": 100 + utid, "comm": f"t{utid}"} for utid in (1, 2, 3)],
    }  # fmt: skip
    frames = {name: pl.DataFrame(rows, TABLES[name].schema) for name, rows in tables.items()}
    return ss.Trace.from_tables(frames, {"ncpu": 1, "window": [0, END]})


def times(frame: pl.DataFrame) -> dict[str, int]:
    return dict(frame.select("queue", "total").iter_rows())


def test_a_wait_is_cut_where_its_thread_changes_queues() -> None:
    found = ss.dispatch_queues(
        trace(
            [
                (110, 1, "insert", "user", 7),
                (150, 1, "remove", "user", 7),
                (153, 1, "insert", "local", 0),
                (190, 1, "remove", "local", 0),
            ],
            [(1, 100, 200, "none")],
        )
    )
    assert times(found) == {"user 7": 40, "local 0": 37, "BPF scheduler": 13, "picked": 10}
    assert found.filter(queue="BPF scheduler").row(0, named=True)["n"] == 2
    assert found["total_frac"].sum() == 1
    assert found["total"].to_list() == found["total_high"].to_list()


def test_a_preempted_thread_is_queued_before_its_wait_begins() -> None:
    """The kernel puts it back before it switches, perhaps before the recording begins."""
    steps = [(95, 1, "insert", "global", None), (180, 1, "remove", "global", None)]
    assert times(ss.dispatch_queues(trace(steps, [(1, 100, 200, "none")]))) == {
        "global": 80,
        "picked": 20,
    }
    assert times(ss.dispatch_queues(trace(steps[1:], [(1, 100, 200, "none")]))) == {
        "global": 80,
        "picked": 20,
    }


def test_a_queue_of_an_earlier_wait_is_not_that_of_the_next() -> None:
    """A step that was lost in between leaves nothing behind: a running thread is in no queue."""
    found = ss.dispatch_queues(
        trace(
            [(100, 1, "insert", "user", 7), (520, 1, "insert", "local", 0)],
            [(1, 100, 200, "none"), (1, 500, 600, "none")],
            holes=[(150, 160)],
        )
    )
    assert times(found) == {"unknown": 100, "local 0": 80, "BPF scheduler": 20}
    high = dict(found.select("queue", "total_high").iter_rows())
    assert high == {"unknown": 100, "local 0": 180, "BPF scheduler": 120}


def test_a_thread_of_another_class_and_a_wait_that_did_not_end() -> None:
    found = ss.dispatch_queues(
        trace(
            [(905, 2, "insert", "user", 7)],
            [(1, 100, 200, "none"), (2, 900, 960, "right")],
        ),
        by="comm",
    )
    rows = found.select("comm", "queue", "total").sort("comm", "queue").rows()
    assert rows == [
        ("t1", "other class", 100),
        ("t2", "BPF scheduler", 5),
        ("t2", "unknown", 40),
        ("t2", "user 7", 55),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_stays_add_up_to_the_waits_and_depths_to_the_stays(seed: int) -> None:
    chance = random.Random(seed)
    steps, waits, inside = [], [], 0
    for utid in (1, 2, 3):
        at = chance.randrange(40)
        while at < END - 200:
            begin = at
            for _ in range(chance.randrange(4)):
                queue = ("user", chance.randrange(3)) if chance.random() < 0.5 else ("local", 0)
                put = at + chance.randrange(5)
                at = put + chance.randrange(30)
                steps += [(put, utid, "insert", *queue), (at, utid, "remove", *queue)]
                inside += at - put
            end = at + chance.randrange(1, 9)
            waits.append((utid, begin, end, "none"))
            at = end + chance.randrange(1, 60)
    made = trace(sorted(steps, key=lambda step: step[0]), waits)
    if not steps:
        pytest.skip("nobody entered a queue")
    found = ss.dispatch_queues(made, by="utid")
    waited = sum(end - begin for _, begin, end, _ in waits)
    assert found["total"].sum() == waited
    queued = found.filter(pl.col("queue").str.contains(r"\d"))
    depth = ss.dispatch_depth(made)
    assert queued["total"].sum() == inside == (depth["depth"] * depth["dur"]).sum()
    for _, rows in depth.group_by("queue"):
        assert rows["dur"].sum() == END


def test_a_wait_counts_once_for_the_queue_where_it_was_longest() -> None:
    """Its stays in one queue count together; a wait that is not known to begin counts, too."""
    made = trace(
        [
            (110, 1, "insert", "user", 7),
            (135, 1, "remove", "user", 7),
            (135, 1, "insert", "local", 0),
            (165, 1, "remove", "local", 0),
            (165, 1, "insert", "user", 7),
            (190, 1, "remove", "user", 7),
            (505, 2, "insert", "local", 0),
            (590, 2, "remove", "local", 0),
        ],
        [
            (1, 100, 200, "none"),
            (2, 500, 600, "none"),
            (3, 300, 380, "none"),
            (3, 400, 400, "none"),
        ],
    )
    whole = ss.latency(made).row(0, named=True)
    found = ss.latency(made, by="dsq")
    assert dict(found.select("dsq", "total").iter_rows()) == {
        "user 7": 100, "local 0": 100, "other class": 80, "picked": 0,
    }  # fmt: skip
    assert found["total"].sum() == whole["total"]
    assert found["n"].sum() == whole["n"] == 4
    both = ss.latency(made, by=["comm", "dsq"])
    assert both.select("comm", "dsq").sort("comm", "dsq").rows() == [
        ("t1", "user 7"), ("t2", "local 0"), ("t3", "other class"), ("t3", "picked"),
    ]  # fmt: skip


def test_latency_by_dispatch_queue_needs_them() -> None:
    with pytest.raises(ss.MissingEventsError, match="dispatch queues"):
        ss.latency(ss.open("fixtures/linux-ftrace-mixed.capture"), by="dsq")


def test_slices_given_and_used_and_the_way_to_the_watchdog() -> None:
    made = trace(
        [(100, 1, "insert", "local", 0), (300, 1, "insert", "local", 0)],
        [(1, 90, 110, "none"), (1, 250, 350, "none"), (2, 0, 390, "none")],
        running=[(110, 30, 1), (350, 5, 1), (400, 50, 2)],
    )
    row = ss.dispatch_slices(made).row(0, named=True)
    assert row == {
        "comm": "t1", "n": 2, "given": 40, "ran": 35, "ran_frac": 35 / 40, "n_whole": 1,
        "vtime": 0, "vtime_due": 0, "vtime_ratio": None, "wait_max": 100,
        "limit": 400, "limit_frac": 0.25,
    }  # fmt: skip
    assert ss.dispatch_slices(made, by="all").height == 1
    assert ss.dispatch_slices(made, where=pl.col("comm") == "t2").is_empty()


@pytest.mark.parametrize(
    ("holes", "nice", "vtimes", "row"),
    [
        ([], 0, [5, 35, 135], (130, 60, 130 / 60)),  # service, then 100 for 30
        ([], 10, [5, 278, 551], (546, 545, 1.0)),  # 30 at a weight of 11 are 272.7
        ([], 0, [2**64 - 10, 20, 50], (60, 60, 1.0)),  # past the largest number
        ([(320, 330)], 0, [5, 35, 135], (30, 30, 1.0)),  # what came after is not known
    ],
)
def test_virtual_time_advances_against_cpu_time_by_weight(
    holes: list[tuple[int, int]], nice: int, vtimes: list[int], row: tuple[int, int, float]
) -> None:
    made = trace(
        [(ts, 1, "insert", "local", 0) for ts in (100, 300, 500)],
        [(1, 90, 110, "none")],
        running=[(110, 30, 1), (350, 30, 1), (510, 30, 1)],
        holes=holes,
    )
    tables = {name: made.table(name).collect() for name in ("dispatch_queues", "states")}
    tables["dispatch_queues"] = tables["dispatch_queues"].with_columns(
        vtime=pl.Series(vtimes, dtype=pl.UInt64)
    )
    tables["states"] = tables["states"].with_columns(prio=pl.lit(120 + nice, pl.Int16))
    for name in ("waits", "losses", "threads"):
        tables[name] = made.table(name).collect()
    found = ss.dispatch_slices(ss.Trace.from_tables(tables, {"ncpu": 1, "window": [0, END]}))
    (got,) = found.select("vtime", "vtime_due", "vtime_ratio").rows()
    assert got == (*row[:2], pytest.approx(row[2], rel=0.01))


def test_a_trace_without_them_says_how_to_record_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    command = ["dispatch-queues", "fixtures/linux-ftrace-mixed.capture", "--cache", str(tmp_path)]
    assert cli.main(command) != 0
    assert "capture --with scx" in capsys.readouterr().err
