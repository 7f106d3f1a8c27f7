"""Time lost to preemption, by class."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from small_worlds import preempted_twice

import schedscope as ss
from schedscope.parsers.schema import TABLES

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture
def trace() -> ss.Trace:
    return preempted_twice()


def test_time_lost_by_class(trace: ss.Trace) -> None:
    """a lost 400-600 to b; b lost 600-700 to a, which may have been a yield."""
    classes = {"a": "fair", "b": "realtime"}
    threads = trace.threads.collect().with_columns(
        sched_class=pl.col("comm")
        .replace_strict(classes, default=None)
        .cast(TABLES["threads"].schema["sched_class"])
    )
    tables = {name: getattr(trace, name) for name in ("states", "switches", "waits")}
    classed = ss.Trace.from_tables(tables | {"threads": threads}, trace.info)
    frame = ss.preemption_loss(classed)
    assert frame.drop("lost_frac").rows() == [
        ("fair", "realtime", 1, 0, 0, 0, 200, 200),
        ("realtime", "fair", 1, 0, 1, 0, 100, 100),
    ]
    assert frame["lost_frac"].to_list() == pytest.approx([2 / 3, 1 / 3])
    mine = ss.preemption_loss(classed, where=(pl.col("comm") == "a") & (pl.col("cpu") == 0))
    assert mine.select("lost", "lost_frac").rows() == [(200, 1.0)]
    assert ss.preemption_loss(classed, where=pl.col("cpu") == 1).is_empty()


def test_a_preemption_without_its_switch_out_is_ambiguous() -> None:
    """The wait begins at 10, where no switch away from the thread was recorded."""
    waits = pl.DataFrame(
        {"utid": [1], "cause": ["preempt"], "ts_ready": [10], "ts_run": [30], "prev_cpu": [0],
         "queue_cpu": [0], "cpu": [0], "wait": [20], "censored": ["none"]}
    )  # fmt: skip
    switches = pl.DataFrame(
        {"ts": [5], "cpu": [0], "prev_utid": [0], "prev_state": ["runnable"], "preempted": [None],
         "next_utid": [1]},
        schema_overrides={"preempted": pl.Boolean},
    )  # fmt: skip
    threads = pl.DataFrame({"utid": [0, 1], "tid": [0, 7], "comm": ["idle", "a"]})
    threads = threads.with_columns(sched_class=pl.Series(["idle", "fair"]))
    tables = {"waits": waits, "switches": switches, "threads": threads}
    trace = ss.Trace.from_tables(tables, {"ncpu": 1, "window": [0, 100]})
    row = ss.preemption_loss(trace).row(0, named=True)
    assert (row["n"], row["n_ambiguous"], row["n_excluded"], row["lost"]) == (1, 1, 0, 20)


@pytest.mark.parametrize("name", ["linux-ftrace-mixed.capture", "perf-sched.data"])
def test_preemptions_of_long_traces_are_summed_up_in_parts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waits and switches are read some at a time; borders lie between any of them."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    whole = ss.preemption_loss(trace)
    assert whole["n"].sum() > 20
    for rows in (61, 640):
        monkeypatch.setattr("schedscope.analysis.asking.batches.BATCH", rows)
        assert_frame_equal(ss.preemption_loss(trace), whole)


def test_preemptions_whose_wait_began_before_the_window_are_counted(tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / "linux-ftrace-mixed.capture", cache=tmp_path).between(0.5, 1)
    cut = trace.waits.filter(pl.col("cause") == "preempt", pl.col("ts_ready").is_null())
    frame = ss.preemption_loss(trace)
    assert 0 < cut.collect().height == frame["n_excluded"].sum()
    # Nothing else is known of them.
    [row] = frame.filter(pl.col("n_excluded") > 0, pl.col("sched_class") == "fair").to_dicts()
    assert row["by_class"] is None
    assert (row["n"], row["n_censored"], row["n_ambiguous"], row["lost"]) == (0, 0, 0, 0)
