"""Selected threads in a replay of all: the answer is about these, and the others do as they did."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import schedscope as ss
from schedscope.simulator.runs.nearest_way import nearest_way, nearest_ways
from schedscope.simulator.runs.replay import replay
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.store.trace import Trace

FIXTURES = Path(__file__).parents[2] / "fixtures"
MINE = pl.col("comm") == "mine"


@pytest.fixture(scope="module")
def recorded() -> Trace:
    """A sleeper that preempts two hogs, which stand-ins of either kind make wait or never wait."""
    b = Builder()
    b.thread("mine").sleep("5ms").run("2ms").repeat(20)
    for name in ("other", "another"):
        b.thread(name).run("300ms")
    return simulate(b.workload(), policy="ule-14", cpus=1)


def test_selected_threads_have_the_figures_of_a_replay_of_all(recorded: Trace) -> None:
    everyone = ss.whatif(recorded, policy="4bsd", replays=1).filter(comm="mine")
    selected = ss.whatif(recorded, policy="4bsd", replays=1, where=MINE, others="replay")
    assert selected["comm"].unique().to_list() == ["mine"]
    exact = ["configuration", "cpu_time", "n_waits", "waiting", "wait_p99", "replay_error"]
    assert selected.select(exact).equals(everyone.select(exact))


def test_a_replay_of_all_is_taken_where_it_is_closest(recorded: Trace) -> None:
    way = nearest_way(recorded, MINE)
    assert way.workload.info["others"] == "replay"
    assert way.workload.info["threads_left_out"] == 2
    assert way.utids.null_count() == 2
    assert way.origins.null_count() == 0


def test_captures_of_one_workload_are_replayed_in_one_way(recorded: Trace) -> None:
    ways = nearest_ways([recorded] * 3, [MINE] * 3)
    assert {way.workload.info["others"] for way in ways} == {"replay"}
    ways = nearest_ways([recorded] * 2, [MINE] * 2, ("occupy", "compete"))
    assert len({way.workload.info["others"] for way in ways}) == 1


def test_unselected_per_cpu_kernel_threads_leave_with_their_cpu() -> None:
    trace = ss.open(FIXTURES / "linux-ftrace-starved.capture")
    asked = pl.col("comm").is_in(["greedy", "patient"])
    frame = ss.whatif(trace, cpus=1, replays=1, where=asked, others="replay")
    assert set(frame["comm"]) == {"greedy", "patient"}


def test_kept_replay_has_only_the_selected_threads(recorded: Trace) -> None:
    way = nearest_way(recorded, MINE, ("occupy", "compete"))
    assert "other" not in way.workload.threads["name"].to_list()
    assert replay(recorded).workload.threads.height == 3
