"""How long threads run, and which runs are not measured."""

from __future__ import annotations

from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given, strategies as st
from ledgers import played
from small_worlds import preempted_twice

import schedscope as ss


@pytest.fixture
def trace() -> ss.Trace:
    return preempted_twice()


def test_runs_of_each_thread(trace: ss.Trace) -> None:
    frame = ss.run_lengths(trace, by="comm", quantiles=[0.5, 1])
    assert frame.rows() == [
        ("a", 2, 0, 200.0, 100, 300, 300, 400, 0),
        ("b", 2, 0, 150.0, 100, 200, 200, 300, 0),
    ]
    assert frame.columns == [
        "comm", "n", "n_censored", "mean", "p50", "p100", "max", "total", "total_censored",
    ]  # fmt: skip
    ends = ss.run_lengths(trace, by="end", where=pl.col("comm") == "a")
    assert ends.select("end", "n", "total").rows() == [("preempted", 1, 300), ("switched", 1, 100)]


def test_a_run_of_which_an_end_was_not_seen_is_censored() -> None:
    """a: found running at 50 by its wakeup of b, cut by a loss; b: lasts beyond the window."""
    trace = played(
        """
        10 cpu1: idle -> z
        50 cpu0: waking b on 1 by a during a
        60 loss cpu0 until 70 overrun
        80 cpu1: z S -> b
        """,
        window=(10, 100),
    )
    frame = ss.run_lengths(trace, by="comm")
    assert frame.select("comm", "n", "n_censored", "max", "total_censored").rows() == [
        ("z", 1, 0, 70, 0),
        ("b", 0, 1, None, 20),
        ("a", 0, 1, None, 10),
    ]


def test_a_run_that_was_found_is_censored_though_its_end_was_seen() -> None:
    trace = played(
        """
        10 cpu1: idle -> z
        50 cpu0: waking b on 1 by a during a
        60 cpu0: a S -> idle
        """,
        window=(10, 100),
    )
    frame = ss.run_lengths(trace, by="comm", where=pl.col("comm") == "a")
    assert frame.select("n", "n_censored", "total_censored").rows() == [(0, 1, 10)]


def test_a_run_found_after_lost_events_is_censored() -> None:
    """No switch at 50: the thread was running when CPU 0 was seen again, so 50 to 80 is cut."""
    columns = {
        "ts": [0, 10, 50, 80],
        "dur": [10, 20, 30, 20],
        "utid": [1] * 4,
        "state": ["running"] * 4,
        "cpu": [0] * 4,
        "end": ["switched", "lost", "switched", "window"],
    }
    switches = pl.DataFrame({"ts": [0, 10, 80], "cpu": [0] * 3, "next_utid": [1] * 3})
    losses = pl.DataFrame(
        {"ts_begin": [30], "ts_end": [50], "cpu": [0], "count": [3], "reason": ["overrun"]},
        schema_overrides={"cpu": pl.UInt16, "count": pl.UInt64},
    )
    trace = ss.Trace.from_tables(
        {"states": pl.DataFrame(columns), "switches": switches, "losses": losses},
        {"ncpu": 1, "window": [0, 100], "reconstruction": {"contradictions": 0}},
    )
    row = ss.run_lengths(trace, quantiles=[0.5]).row(0, named=True)
    assert row == {
        "n": 1, "n_censored": 3, "mean": 10, "p50": 10, "max": 10, "total": 10,
        "total_censored": 70,
    }  # fmt: skip


def test_a_cut_in_time_censors_the_runs_across_it(trace: ss.Trace) -> None:
    """What is left from 350 to 650: a 350-400 and 600-650, b 400-600."""
    cut = trace.between("250ns", "550ns")
    frame = ss.run_lengths(cut, by="comm")
    assert frame.select("comm", "n", "n_censored", "total", "total_censored").rows() == [
        ("b", 1, 0, 200, 0),
        ("a", 0, 2, 0, 100),
    ]
    row = ss.efficiency(cut).row(0, named=True)
    assert (row["busy"], row["idle"], row["unknown"], row["switches"]) == (300, 0, 0, 2)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.sampled_from([0.1, 0.5, 0.9, 1]))
def test_quantiles_of_runs_are_exact(lengths: list[int], q: float) -> None:
    """Against counting: the shortest run that at least that share does not exceed."""
    ts = [sum(lengths[:i]) for i in range(len(lengths))]
    columns = {"ts": ts, "dur": lengths, "utid": 1, "state": "running", "cpu": 0, "end": "switched"}
    states = pl.DataFrame(columns)
    switches = pl.DataFrame({"ts": ts, "cpu": 0, "next_utid": 1})
    trace = ss.Trace.from_tables(
        {"states": states, "switches": switches}, {"ncpu": 1, "window": [0, sum(lengths)]}
    )
    row = ss.run_lengths(trace, quantiles=[q]).row(0, named=True)
    share = Fraction(str(q))
    want = min(x for x in lengths if sum(y <= x for y in lengths) >= share * len(lengths))
    assert row[f"p{100 * q:g}"] == want
    assert (row["n"], row["max"], row["total"]) == (len(lengths), max(lengths), sum(lengths))
