"""`ule-14` and `4bsd` make the runs that FreeBSD's own files make (fixtures/freebsd-schedulers.md)."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from schedscope.simulator.published import freebsd

FOLDER = Path(__file__).parents[1] / "fixtures" / "freebsd-schedulers"

CASES = freebsd.read_cases(FOLDER)

ONE_CPU = {"ule-14": 21 / 45, "4bsd": 14 / 44}
"""Least share of the cases with one CPU that are equal run for run."""

SEVERAL = {"ule-14": (7 / 46, 0.25), "4bsd": (19 / 46, 0.44)}
"""With several CPUs: least share of equal cases, and of the runs before the first that differs."""


@pytest.fixture(scope="module", params=list(freebsd.RUNS))
def compared(request: pytest.FixtureRequest) -> tuple[str, pl.DataFrame]:
    """Each policy with its comparison."""
    return request.param, freebsd.compare(CASES, request.param)


def test_on_one_cpu_the_runs_are_the_kernels(compared: tuple[str, pl.DataFrame]) -> None:
    """Who runs when, to the nanosecond, in nearly every case."""
    policy, result = compared
    one = result.filter(pl.col("cpus") == 1)
    differ = one.filter(~pl.col("equal"))
    assert one["equal"].mean() >= ONE_CPU[policy], differ


def test_on_several_cpus_most_runs_are_the_kernels(compared: tuple[str, pl.DataFrame]) -> None:
    """With chance taken out of both."""
    policy, result = compared
    several = result.filter(pl.col("cpus") > 1)
    differ = several.filter(~pl.col("equal"))
    share, prefix = SEVERAL[policy]
    assert several["equal"].mean() >= share, differ
    assert several["prefix_frac"].mean() >= prefix, differ


def test_runs_that_touch_are_one_and_a_nanosecond_counts() -> None:
    """The comparison itself: a run is equal in start, end, CPU and thread, or it is not."""
    runs = [(0, 5, 0, 1), (5, 9, 0, 2)]
    assert freebsd.equal_prefix(runs, runs) == 2
    for i in range(4):
        other = [runs[0], tuple(v + (k == i) for k, v in enumerate(runs[1]))]
        assert freebsd.equal_prefix(runs, other) == 1
    # One hog alone is put off by the end of each slice and goes on at once: one run.
    trace = freebsd.simulated(CASES, "m20-2hogs", "ule-14")
    assert freebsd.runs_of(trace).height == 2
