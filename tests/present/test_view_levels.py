"""Lanes with a height: every pixel's mean and maximum equal those of the tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from archives import under_sched_ext
from ledgers import played

import schedscope as ss
from schedscope.errors import UsageError
from schedscope.parsers.schema import TABLES
from schedscope.timelines.levels import Levels
from schedscope.timelines.questions import Questions

FIXTURE = Path(__file__).parents[2] / "fixtures/linux-ftrace-mixed.capture"
BUSY = """
    0    cpu0: idle -> a
    0    cpu1: idle -> b
    100  cpu0: waking c on 0 by a
    100  cpu0: enqueued c on 0 by a
    400  cpu0: a S -> c
    700  cpu0: c S -> idle
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> ss.Trace:
    return ss.open(FIXTURE, cache=tmp_path_factory.mktemp("cache"))


def asked(trace: ss.Trace, lane: str, first: int, bins: int, scale: int) -> dict[str, Any]:
    request = {"lanes": [lane], "first": first, "bins": bins, "scale": scale}
    answer, buffers = Questions(trace).reply(request)
    (row,) = answer["lanes"]
    assert row["kind"] == "levels"
    return {
        name: np.frombuffer(buffers[row[name][0]], f"<{row[name][1]}").astype(int).tolist()
        for name in ("sum", "known", "max")
        if name in row
    } | {"top": row["top"]}


def test_depth_and_rate_equal_hand_counted_values() -> None:
    """One thread runs; from 100 on a second is runnable; from 700 on none is."""
    world = played(BUSY, ncpu=2, window=(0, 1000))
    found = asked(world, "depth:0", 0, 4, 250)
    assert found["sum"] == [100 + 2 * 150, 2 * 150 + 100, 200, 0]
    assert found["known"] == [250] * 4
    assert found["max"] == [2, 2, 1, 0]
    assert found["top"] == 2
    assert asked(world, "depth:all", 0, 2, 500)["sum"] == [100 + 2 * 300 + 100 + 500, 200 + 500]
    at = Questions(world).reply({"kind": "slice", "lane": "depth:0", "at": 150})[0]
    assert (at["begin"], at["end"], at["text"]) == (100, 400, "2 threads want to run here")
    assert asked(world, "rate:0", 0, 2, 500)["sum"] == [2, 1]
    assert asked(world, "rate:all", 0, 1, 1000)["sum"] == [4]


@pytest.mark.parametrize(("first", "bins", "scale"), [(0, 97, 17_129_377), (311, 50, 1_000_003)])
@pytest.mark.parametrize("lane", ["depth:0", "depth:1", "depth:all"])
def test_the_depth_is_that_of_the_analysis(
    trace: ss.Trace, lane: str, first: int, bins: int, scale: int
) -> None:
    cpu = lane[6:]
    frame = ss.queue_depth(trace, by="all" if cpu == "all" else "cpu")
    if cpu != "all":
        frame = frame.filter(pl.col("cpu") == int(cpu))
    found = asked(trace, lane, first, bins, scale)
    start, end = trace.window
    for k in range(bins):
        low = min(end, start + (first + k) * scale)
        high = min(end, low + scale)
        part = frame.filter(pl.col("ts") < high, pl.col("ts") + pl.col("dur") > low)
        part = part.filter(pl.col("depth").is_not_null()).with_columns(
            time=pl.min_horizontal(pl.col("ts") + pl.col("dur"), high)
            - pl.max_horizontal("ts", low)
        )
        assert found["known"][k] == part["time"].sum()
        assert found["sum"][k] == (part["time"] * part["depth"]).sum()
        if high > low:
            assert found["max"][k] == (part["depth"].max() or 0)


def test_switches_are_counted_once(trace: ss.Trace) -> None:
    found = asked(trace, "rate:all", 0, 200, 10_000_000)
    begin, end = trace.window
    inside = trace.switches.filter(pl.col("ts").is_between(begin, end, "left"))
    assert sum(found["sum"]) == inside.select(pl.len()).collect().item()


def test_interrupts_within_interrupts_count_once() -> None:
    world = played(BUSY, ncpu=2, window=(0, 1000))
    rows = [
        (100, 0, "hard", 27, 100), (150, 0, "soft", 1, 20), (200, 0, "soft", 3, 50),
        (900, 0, "hard", 5, 500), (0, 1, "hard", 5, 10),
    ]  # fmt: skip
    irqs = pl.DataFrame(rows, TABLES["irqs"].schema, orient="row")
    tables = {name: getattr(world, name).collect() for name in ("states", "waits", "threads")}
    traced = ss.Trace.from_tables({**tables, "irqs": irqs}, world.info)
    found = asked(traced, "irq:0", 0, 4, 250)
    assert found["sum"] == [150, 0, 0, 100]
    assert found["max"] == [1, 0, 0, 1]
    names = {each["name"]: each["lanes"] for each in Questions(traced).about()["more"]}
    assert names["interrupts on each CPU"] == ["irq:0", "irq:1"]
    at = Questions(traced).reply({"kind": "slice", "lane": "irq:0", "at": 120})[0]
    assert (at["begin"], at["end"]) == (100, 250)
    assert at["text"] == "handles interrupt 27, softirq NET_RX, softirq TIMER"
    assert "interrupts on each CPU" not in {
        each["name"] for each in Questions(world).about()["more"]
    }


@pytest.fixture(scope="module")
def dispatched(tmp_path_factory: pytest.TempPathFactory) -> ss.Trace:
    return ss.open(under_sched_ext(tmp_path_factory.mktemp("scx")))


@pytest.mark.parametrize(("first", "bins", "scale"), [(0, 83, 27_129_377), (311, 50, 1_000_003)])
def test_each_dispatch_queue_has_a_lane_of_its_depth(
    dispatched: ss.Trace, first: int, bins: int, scale: int
) -> None:
    (offered,) = (
        each for each in Questions(dispatched).about()["more"] if "dispatch queue" in each["name"]
    )
    names = ["local 0", "local 1", "user 1", "user 2"]
    assert offered["titles"] == [f"dispatch queue {name}" for name in names]
    start, end = dispatched.window
    for lane, name in zip(offered["lanes"], names, strict=True):
        frame = ss.dispatch_depth(dispatched).filter(queue=name)
        found = asked(dispatched, lane, first, bins, scale)
        assert found["top"] == frame["depth"].max()
        for k in range(bins):
            low = min(end, start + (first + k) * scale)
            high = min(end, low + scale)
            part = frame.filter(pl.col("ts") < high, pl.col("ts") + pl.col("dur") > low)
            time = pl.min_horizontal(pl.col("ts") + pl.col("dur"), high) - pl.max_horizontal(
                "ts", low
            )
            assert found["sum"][k] == part.select((time * pl.col("depth")).sum()).item()
            assert found["max"][k] == (part["depth"].max() or 0)
        step = frame.filter(pl.col("depth") > 0).row(0, named=True)
        at = Questions(dispatched).reply({"kind": "slice", "lane": lane, "at": step["ts"] - start})[
            0
        ]
        assert (at["begin"], at["end"]) == (step["ts"] - start, step["ts"] + step["dur"] - start)
        assert re.fullmatch(rf"{step['depth']} threads? in it", at["text"])


def test_a_selected_wait_names_the_dispatch_queues_that_it_passed(dispatched: ss.Trace) -> None:
    worst = ss.worst_waits(dispatched, n=1).row(0, named=True)
    begin = dispatched.window[0]
    found = Questions(dispatched).reply(
        {
            "kind": "slice",
            "lane": f"utid:{worst['utid']}",
            "at": worst["ts_ready"] - begin + worst["wait"] // 2,
        }
    )[0]
    passed = found["wait"]["queues"]
    assert sum(ns for _, ns in passed) == worst["wait"] == found["wait"]["wait"]
    assert {"user 2", "picked"} <= {name for name, _ in passed}


@pytest.mark.parametrize(
    "lane", ["dsq:0", "depth:9", "rate:77", "irq:3", "quota:0", "irq:all", "depth:-1"]
)
def test_unknown_lane_is_refused(trace: ss.Trace, lane: str) -> None:
    answer, _ = Questions(trace).reply({"lanes": [lane], "first": 0, "bins": 1, "scale": 1})
    assert answer["kind"] == "error"
    assert "Traceback" not in answer["text"]


def test_lanes_are_named_by_their_subject() -> None:
    assert Levels.names("depth:0")
    assert Levels.names("depth:all")
    for key in ("cpu:0", "irq:all", "rate:x", "depth:", 5, "", None):
        assert not Levels.names(key)
    with pytest.raises(UsageError):
        Levels(ss.Trace.from_tables({}, {"ncpu": 1, "window": [0, 0]}), [0]).picture(
            "depth:1", 0, 1, 1
        )


def test_a_trace_without_events_has_no_known_depth() -> None:
    empty = ss.Trace.from_tables({}, {"ncpu": 1, "window": [0, 100]})
    assert asked(empty, "depth:0", 0, 1, 100)["known"] == [0]


def test_lag_lane_shows_how_far_a_thread_is_behind() -> None:
    """The value of `virtual_lag_series` at its last turn; off the queue the lag is 0."""
    world = played(BUSY, ncpu=2, window=(0, 1_000_000))
    world = ss.Trace.from_tables(
        {
            name: getattr(world, name).collect().with_columns(pl.col(times) * 1000)
            for name, times in (("states", ("ts", "dur")), ("waits", ("ts_ready", "wait")))
        }
        | {"threads": world.threads.collect()},
        {**world.info, "window": [0, 1_000_000]},
    )
    series = ss.virtual_lag_series(world)
    (utid,) = world.threads.filter(pl.col("comm") == "c").collect()["utid"]
    mine = series.filter(pl.col("utid") == utid)
    found = asked(world, f"lag:{utid}", 0, 10, 100_000)
    begun = mine.filter(pl.col("turn").cast(pl.String) == "began")["lag"].item()
    assert begun == 150_000  # it had waited 300 us beside one other thread
    assert found["max"] == [0, 0, 0, 0, 150, 150, 150, 0, 0, 0]
    assert found["sum"][5] == 150 * 100_000
    assert found["known"] == [0, *[100_000] * 9]
    at = Questions(world).reply({"kind": "slice", "lane": f"lag:{utid}", "at": 450_000})[0]
    assert (at["begin"], at["end"], at["text"]) == (400_000, 700_000, "150 µs behind")
    refused, _ = Questions(world).reply({"lanes": ["lag:99"], "first": 0, "bins": 1, "scale": 1})
    assert refused["kind"] == "error"
