"""Slices that single threads asked for: recorded at the start, kept in a replay."""

from __future__ import annotations

import polars as pl

from schedscope.simulator.recorded.extract import extract, report
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.store.trace import Trace

MS = 1_000_000


def recorded(slices: dict[str, int]) -> Trace:
    """Two hogs for 40 ms, one of which starts a third; `slices` by name, as a recorder found."""
    b = Builder()
    child = b.thread("child", start=None).run(40 * MS)
    b.thread("first").fork(child).run(40 * MS)
    b.thread("second").run(40 * MS)
    trace = simulate(b.workload(), policy="eevdf-6.18", cpus=1, set={"hz": 1000})
    tids = dict(trace.threads.select("comm", "tid").collect().iter_rows())
    trace.info["slices"] = [{"tid": tids[name], "slice": ns} for name, ns in slices.items()]
    return trace


def of_threads(trace: Trace) -> dict[str, int | None]:
    threads = extract(trace).threads.filter(pl.col("name").is_in(["first", "second", "child"]))
    return dict(threads.select("name", "slice").iter_rows())


def test_slice_is_kept_and_inherited_by_children() -> None:
    trace = recorded({"first": 8 * MS})
    assert of_threads(trace) == {"first": 8 * MS, "child": 8 * MS, "second": None}
    assert report(extract(trace))["own_slices"] == 2


def test_threads_without_recorded_slices_have_none() -> None:
    trace = recorded({})
    assert of_threads(trace) == {"first": None, "child": None, "second": None}
    assert report(extract(trace))["own_slices"] == 0


def test_slice_is_clamped_like_the_kernels() -> None:
    assert of_threads(recorded({"second": 5}))["second"] == 100_000
    assert of_threads(recorded({"second": 1 << 60}))["second"] == 100 * MS


def test_replay_uses_a_longer_slice() -> None:
    """Beside two hogs of 0.75 ms; from 6.17 on theirs would end it (set_protect_slice)."""

    def longest(trace: Trace) -> int:
        again = simulate(extract(trace), policy="eevdf-6.12", cpus=1, set={"hz": 1000})
        runs = again.states.join(again.threads.select("utid", "comm"), on="utid")
        while_all = again.window[0] + 60 * MS
        mine = (pl.col("comm") == "second") & (pl.col("state") == "running")
        return int(
            runs.filter(mine, pl.col("ts") < while_all).select(pl.col("dur").max()).collect().item()
        )

    assert longest(recorded({"second": 8 * MS})) > 2 * longest(recorded({}))
