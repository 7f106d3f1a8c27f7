"""Threads of SCHED_DEADLINE: what a trace has of them, and what a replay gives them."""

from __future__ import annotations

import polars as pl
import pytest

from schedscope.errors import UsageError
from schedscope.simulator.recorded.extract import extract, report
from schedscope.simulator.runs.rtapp import from_rtapp, to_rtapp
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.workload import Workload
from schedscope.store.trace import Trace

MS = 1_000_000
GIVEN = {"dl_runtime": "3ms", "dl_deadline": "10ms", "dl_period": "10ms"}


def beside_a_hog(**given: str) -> Workload:
    build = Builder()
    build.thread("d", sched="deadline", rt_prio=99, **given).run(30 * MS)
    build.thread("hog").run(100 * MS)
    return build.workload()


def recorded(workload: Workload) -> Trace:
    """A run as Linux would record it: priority -1, and nothing else about its class."""
    return simulate(workload, policy="eevdf-6.18", cpus=1, set={"hz": 1000})


def cpu_times(trace: Trace) -> list[tuple[int, int]]:
    """The runs of d, from and to, ms."""
    who = trace.threads.filter(pl.col("comm") == "d").collect()["utid"].item()
    ran = trace.states.filter((pl.col("utid") == who) & (pl.col("state") == "running")).collect()
    begin = trace.window[0]
    return [
        ((ts - begin) // MS, (ts + dur - begin) // MS)
        for ts, dur in ran.sort("ts").select("ts", "dur").iter_rows()
    ]


def test_a_deadline_thread_has_its_runtime_of_each_period() -> None:
    trace = recorded(beside_a_hog(**GIVEN))
    assert cpu_times(trace)[:3] == [(0, 3), (10, 13), (20, 23)]
    assert trace.switches.collect()["next_prio"].min() == -1


def test_recorded_reservation_is_replayed() -> None:
    trace = recorded(beside_a_hog(**GIVEN))
    tid = trace.threads.filter(pl.col("comm") == "d").collect()["tid"].item()
    given = {"runtime": 3 * MS, "deadline": 10 * MS, "period": 10 * MS}
    trace.info["reservations"] = [{"tid": tid, **given}]
    again = extract(trace)
    row = again.threads.filter(pl.col("name") == "d").row(0, named=True)
    assert (row["class"], row["dl_runtime"], row["dl_period"]) == ("deadline", 3 * MS, 10 * MS)
    assert report(again)["deadlines_unknown"] == 0
    for policy in ("cfs-6.1", "eevdf-6.6", "eevdf-7.2"):
        replayed = simulate(again, policy=policy, cpus=1, set={"hz": 1000})
        assert cpu_times(replayed)[:3] == [(0, 3), (10, 13), (20, 23)], policy


def test_missing_reservation_is_reported_and_the_thread_has_no_limit() -> None:
    again = extract(recorded(beside_a_hog(**GIVEN)))
    assert report(again)["deadlines_unknown"] == 1
    for policy in ("cfs-6.1", "eevdf-6.18", "bfs", "ule-14", "fifo"):
        assert cpu_times(simulate(again, policy=policy, cpus=1))[:1] == [(0, 30)], policy


def test_an_impossible_reservation_is_refused_in_one_sentence() -> None:
    wrong = {**GIVEN, "dl_runtime": "11ms"}
    with pytest.raises(UsageError, match="runtime above 0 that is no longer than the deadline"):
        simulate(beside_a_hog(**wrong), policy="eevdf-6.18", cpus=1)


def test_rtapp_keeps_the_reservation() -> None:
    document, _ = to_rtapp(beside_a_hog(**GIVEN))
    task = document["tasks"]["d"]
    assert (task["policy"], task["dl-runtime"], task["dl-period"]) == (
        "SCHED_DEADLINE",
        3000,
        10000,
    )
    row = from_rtapp(document).threads.filter(pl.col("name") == "d").row(0, named=True)
    assert (row["class"], row["dl_runtime"], row["dl_deadline"]) == ("deadline", 3 * MS, 10 * MS)
