"""`ule-14` and `4bsd` make the same runs as FreeBSD's own source files.

The cases and where they come from: fixtures/freebsd-schedulers.md.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from research.published import freebsd

FOLDER = Path(__file__).parents[2] / "fixtures" / "freebsd-schedulers"

CASES = freebsd.read_cases(FOLDER)


@pytest.mark.parametrize("policy", list(freebsd.RUNS))
def test_runs_equal_the_kernels(policy: str) -> None:
    """Thread, CPU and time of each run, to the nanosecond, with randomness removed from both."""
    result = freebsd.compare(CASES, policy)
    assert result.filter(~pl.col("equal")).is_empty(), freebsd.headline(result)


def test_randomised_waits_are_as_long_as_the_kernels() -> None:
    """Mean, p90 and p99 of the waits are in the range over the kernel's seeds."""
    spans = freebsd.chance_spans(CASES, 7)
    assert spans["inside"].all(), spans.filter(~pl.col("inside"))


def test_adjacent_runs_are_joined_and_gaps_of_a_nanosecond_are_kept() -> None:
    """The comparison itself: a run is equal in start, end, CPU and thread, or it differs."""
    runs = [(0, 5, 0, 1), (5, 9, 0, 2)]
    assert freebsd.equal_prefix(runs, runs) == 2
    for i in range(4):
        other = [runs[0], tuple(v + (k == i) for k, v in enumerate(runs[1]))]
        assert freebsd.equal_prefix(runs, other) == 1
    # One hog alone is requeued at the end of each slice and continues at once: one run.
    trace = freebsd.simulated(CASES, "m20-2hogs", "ule-14")
    assert freebsd.runs_of(trace).height == 2
