"""Elapsed time against CPU time."""

from __future__ import annotations

import polars as pl
import pytest
from small_worlds import preempted_twice

import schedscope as ss
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.generators import hogs


@pytest.fixture
def trace() -> ss.Trace:
    return preempted_twice()


def test_elapsed_time_against_cpu_time(trace: ss.Trace) -> None:
    """a ran 400 of its 1000 ns and waited 200 after its preemption; b ran 300, waited 200 + 100."""
    frame = ss.slowdown(trace, by="comm", where=pl.col("comm").is_in(["a", "b"]))
    rows = {row["comm"]: row for row in frame.iter_rows(named=True)}
    assert [rows["a"][c] for c in ("wall", "cpu", "waiting", "preempted")] == [1000, 400, 200, 200]
    assert (rows["a"]["ratio"], rows["a"]["slowdown"]) == (2.5, 1.5)
    assert [rows["b"][c] for c in ("wall", "cpu", "waiting", "preempted")] == [900, 300, 300, 100]
    assert (rows["b"]["ratio"], rows["b"]["slowdown"]) == (3.0, 2.0)
    both = ss.slowdown(trace, by=[], where=pl.col("comm").is_in(["a", "b"]))
    # Two threads could have used both CPUs: 1000 * 2 / 700.
    row = both.row(0, named=True)
    assert (row["threads"], row["wall"], row["cpu"]) == (2, 1000, 700)
    assert row["ratio"] == pytest.approx(2000 / 700)
    assert row["n_censored"] == 2


@pytest.mark.parametrize(
    ("policy", "cpus", "n", "ratio"),
    [("4bsd", 4, 3, 1.0), ("fifo", 1, 2, 1.0), ("fifo", 2, 3, 4 / 3)],
)
def test_the_ratio_of_hogs(policy: str, cpus: int, n: int, ratio: float) -> None:
    """1 while each has a CPU; with FIFO, without migrations, ceil(N / CPUs) * CPUs / N."""
    trace = simulate(hogs(n, time="100ms"), policy=policy, cpus=cpus)
    row = ss.slowdown(trace, by=[]).row(0, named=True)
    assert row["threads"] == n
    assert row["cpu"] == n * 100_000_000
    assert row["ratio"] == pytest.approx(ratio, rel=0.01)
    frame = ss.efficiency(trace)
    assert frame["busy"].sum() == row["cpu"]
    assert frame["n_ambiguous"].sum() == 0
