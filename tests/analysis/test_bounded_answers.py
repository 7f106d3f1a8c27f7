"""Where it is unknown what a thread did, answers are bounds: small traces in round numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from scenes import MS, scene
from test_latency import CUT, REST, bounded

import schedscope as ss
from schedscope.analysis.comparison.run_digest import digest
from schedscope.analysis.comparison.setting_values import Side

# hog has CPU 0 and then CPU 1 for itself; v waits for it, runs, and is unknown for 20 ms. From 60
# to 80 it is unknown what CPU 0 does, and w waits for it.
WORLD = """
    hog   running@0  0..40
    v     runnable@0 0..40
    v     running@0  40..50
    hog   sleeping   40..50
    v     unknown    50..70
    hog   running@1  50..65
    idle0 running@0  50..60
    w     sleeping   0..60
    w     runnable@0 60..80
    v     sleeping   70..100
    hog   sleeping   65..100
    w     running@0  80..100
"""


@pytest.fixture
def trace() -> ss.Trace:
    return scene(WORLD, until=100)


def bounds(row: dict[str, Any], *names: str, unit: float = MS) -> list[tuple[float, float]]:
    return [(row[name] / unit, row[f"{name}_high"] / unit) for name in names]


def row_of(frame: pl.DataFrame, **where: Any) -> dict[str, Any]:
    return frame.filter(**where).row(0, named=True)


def test_interference_is_bounded_by_possible_overlap_of_wait_and_run(
    trace: ss.Trace,
) -> None:
    """hog ran for 55 ms, so it delayed v for 40 to 55 of its 40 to 60 ms of waiting."""
    frame = ss.interference(trace, by="comm")
    row = row_of(frame, victim_comm="v", comm="hog")
    assert bounds(row, "wait", "time") == [(40, 60), (40, 55)]
    assert bounds(row, "share", unit=1) == [(40 / 60, 1.0)]
    assert row["coverage"] == 40 / 60
    rest = row_of(frame, victim_comm="v", kind="unknown")
    assert (rest["n"], *bounds(rest, "time")) == (0, (0, 20))
    waited = row_of(frame, victim_comm="w")
    assert (waited["kind"], waited["coverage"]) == ("unknown", 1)
    assert bounds(waited, "wait", "time") == [(20, 20), (20, 20)]


def test_thread_with_unknown_time_may_have_waited() -> None:
    text = "v unknown 0..30\nv running@0 30..40\nidle0 running@0 0..30"
    frame = ss.interference(scene(text, until=40), by="comm")
    columns = ("victim_comm", "wait", "wait_high", "kind", "time", "time_high", "coverage")
    assert frame.select(columns).rows() == [("v", 0, 30 * MS, "unknown", 0, 30 * MS, 0.0)]
    row = ss.wait_breakdown(scene(text, until=40), by="comm").row(0, named=True)
    assert bounds(row, "wait", "behind_same", "cpu_idle") == [(0, 30)] * 3
    assert (row["n"], row["coverage"]) == (0, 0)


def test_unknown_time_may_belong_to_each_part_of_a_wait(trace: ss.Trace) -> None:
    frame = ss.wait_breakdown(trace, by="comm")
    v, w = row_of(frame, comm="v"), row_of(frame, comm="w")
    assert bounds(v, "wait", "behind_same", "behind_better", "cpu_idle") == [
        (40, 60), (40, 60), (0, 20), (0, 20),
    ]  # fmt: skip
    assert (v["unknown"], v["coverage"]) == (0, 40 / 60)
    assert bounds(w, "wait", "behind_same", "behind_worse", "cpu_idle") == [
        (20, 20), (0, 20), (0, 20), (0, 20),
    ]  # fmt: skip
    assert (w["unknown"], w["coverage"]) == (20 * MS, 1)


def test_service_due_is_bounded_by_possible_competitors(trace: ss.Trace) -> None:
    """While v is unknown, hog may share CPU 1 with it; from 60 to 80 CPU 0 may serve others of w's
    class.
    """
    frame = ss.fairness(trace, per="cpu")
    v, hog, w = (row_of(frame, comm=name) for name in ("v", "hog", "w"))
    assert bounds(v, "running", "waiting", "due", "lag", "served") == [
        (10, 30), (40, 60), (30, 50), (0, 40), (50, 70),
    ]  # fmt: skip
    assert bounds(v, "share_due", "share_received", "ratio", unit=1) == [
        (30 / 70, 1), (10 / 70, 30 / 70), (10 / 50, 30 / 30),
    ]  # fmt: skip
    assert (v["unknown"], v["coverage"]) == (20 * MS, 50 / 70)
    assert bounds(hog, "running", "due", "lag", "served") == [
        (55, 55), (20, 35), (-35, -20), (55, 55),
    ]  # fmt: skip
    assert bounds(w, "running", "due", "lag", "served") == [(20, 20), (20, 40), (0, 20), (20, 40)]
    assert ss.fairness(trace, per="machine").filter(comm="w")["due_high"][0] == 40 * MS


def test_jains_index_lies_between_the_extremes_of_its_ratios(trace: ss.Trace) -> None:
    frame = ss.fairness(trace, per="cpu")
    low, high = frame["ratio"].to_list(), frame["ratio_high"].to_list()
    row = ss.jain_index(trace, per="cpu").row(0, named=True)
    least = sum(low) ** 2 / (3 * sum(x * x for x in high))
    most = sum(high) ** 2 / (3 * sum(x * x for x in low))
    assert bounds(row, "jain", unit=1) == [(max(least, 1 / 3), min(most, 1))]
    assert row["jain"] < row["jain_high"]


def test_depth_has_an_upper_bound_while_a_thread_is_unknown(trace: ss.Trace) -> None:
    """CPU 0 is known for 80 ms: depth 2 for 40, 1 for 30, 0 for 10; v may add one for 20 ms."""
    row = ss.queue_depth_summary(trace).row(0, named=True)
    assert bounds(row, "mean", "p50", "p90", "max", unit=1) == [
        (110 / 80, 130 / 80), (1, 2), (2, 3), (2, 3),
    ]  # fmt: skip
    assert bounds(row, "overload") == [(40, 60)]
    assert bounds(row, "overload_frac", unit=1) == [(0.5, 0.75)]
    assert row["waiting_unknown"] == 20 * MS


def test_unknown_time_may_contain_waits(trace: ss.Trace) -> None:
    """v waited for 40 ms, and may have waited once more, for up to 20."""
    row = ss.latency(trace, where=pl.col("comm") == "v").row(0, named=True)
    assert bounds(row, "total", "mean", "p50", "max") == [(40, 60), (20, 60), (0, 40), (40, 40)]
    long = scene("v runnable@0 0..10\nv running@0 10..20\nv unknown 20..100", until=100)
    for by in ("all", "cause"):
        row = ss.latency(long, by=by).row(0, named=True)
        assert bounds(row, "total", "max") == [(10, 90), (10, 80)], by


def test_mean_of_unfinished_waits_is_a_lower_bound() -> None:
    row = ss.latency(scene("v runnable@0 20..100", until=100)).row(0, named=True)
    assert (row["mean"], row["mean_high"]) == (80 * MS, None)
    assert bounds(row, "total") == [(80, 80)]


def test_bounds_are_equal_in_a_complete_trace() -> None:
    trace = scene("a running@0 0..60\nb runnable@0 0..60\nb running@0 60..100", until=100, ncpu=1)
    for ask in (ss.interference, ss.wait_breakdown, ss.fairness, ss.jain_index, ss.latency,
                ss.queue_depth_summary, ss.slowdown, ss.starvation_summary):  # fmt: skip
        frame = ask(trace)
        for name in (name for name in frame.columns if name.endswith("_high")):
            low, high = frame[name.removesuffix("_high")], frame[name]
            assert low.equals(high.alias(low.name)), (ask, name)
        if "coverage" in frame.columns:
            assert set(frame["coverage"]) == {1.0} or ask is ss.interference


def test_unknown_time_may_contain_more_waits_than_recorded() -> None:
    """The 80 unknown ms have room for two waits of 30 ms, or eight of 10; one of 10 ms was
    recorded.
    """
    trace = scene("v runnable@0 0..10\nv running@0 10..20\nv unknown 20..100", until=100)

    def found(limit: int, where: pl.Expr | None = None) -> tuple[int, int]:
        row = ss.starvation_summary(trace, by="all", threshold=limit * MS, where=where)
        return row.select("n", "n_high").row(0)

    assert [found(limit) for limit in (10, 30, 90)] == [(1, 9), (0, 2), (0, 0)]
    assert found(30, pl.col("comm") == "w") == (0, 0)
    # On which CPU it would have waited is not known.
    assert found(30, pl.col("cpu") == 7) == (0, 2)


def test_stopper_of_an_offline_cpu_does_not_wait() -> None:
    stopper = {"m": {"sched_class": "stop"}}
    trace = scene("m running@0 0..10\nm unknown 10..100", stopper, until=100)
    assert ss.wait_breakdown(trace).is_empty()
    row = ss.slowdown(trace).row(0, named=True)
    assert (row["unknown"], row["slowdown_high"]) == (90 * MS, 1)


def test_compare_bounds_a_cut_wait_as_one_or_two_waits() -> None:
    """As latency does: waits of 30 to 100 and 0 to 70, or one of 30 to 100."""
    trace = bounded(CUT, REST, unknown=(230, 300))
    run = digest(trace, np.zeros(2, dtype=np.int64), 1)
    side = Side([run], np.ones((1, 1)), 0, None)
    assert side.bounds("wait_mean") == (15, 100)
    assert side.bounds("wait_p50") == (0, 100)
    assert side.bounds("wait_max_min") == (0, 100)
    said = ss.latency(trace).row(0, named=True)
    assert (said["mean"], said["mean_high"], said["p50"], said["p50_high"]) == (15, 100, 0, 100)
