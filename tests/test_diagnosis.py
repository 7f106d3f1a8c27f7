"""What is wrong with a trace, ranked by what it cost."""

from __future__ import annotations

import polars as pl
import pytest
from ledgers import played

import schedscope as ss

SECOND = 1_000_000_000
STARVED = f"""
    0                    cpu0: idle -> hog
    0                    cpu1: idle -> other
    {SECOND // 10}       cpu0: waking clerk on 0 by hog
    {SECOND // 10}       cpu0: enqueued clerk on 0 by hog
    {SECOND // 2}        cpu1: other S -> idle
    {9 * SECOND // 10}   cpu0: hog R -> clerk
"""


def test_costs_are_what_a_person_works_out() -> None:
    """The clerk waits 800 ms, the hog the last 100 ms; CPU 1 idles for 500 ms beside them."""
    trace = played(STARVED, ncpu=2, window=(0, SECOND))
    found = {row["topic"]: row for row in ss.diagnosis(trace).iter_rows(named=True)}
    assert found["starvation"]["cost"] == 900_000_000
    assert found["idle"]["cost"] == 500_000_000
    assert "clerk" in found["starvation"]["text"]
    assert "behind hog" in found["starvation"]["text"]
    assert found["idle"]["cost_frac"] == 0.25
    assert found["idle"]["level"] == "warning"


def test_the_costliest_comes_first() -> None:
    frame = ss.diagnosis(ss.open("fixtures/linux-ftrace-mixed.capture"))
    assert frame["cost"].is_sorted(descending=True)
    assert (frame["cost_frac"] >= 0.001).all()
    assert {"overload", "starvation"} <= set(frame["topic"])


def test_a_trace_that_contradicts_itself_says_so_first() -> None:
    trace = played(STARVED, ncpu=2, window=(0, SECOND))
    tables = {name: getattr(trace, name).collect() for name in ("switches", "waits", "threads")}
    tables["states"] = trace.states.with_columns(pl.col("dur") + 1).collect()
    broken = ss.Trace.from_tables(tables, trace.info)
    assert ss.diagnosis(broken)["level"][0] == "violated"


def test_a_quiet_trace_has_no_findings() -> None:
    trace = played("0 cpu0: idle -> sh\n 500 cpu0: sh S -> idle", ncpu=1, window=(0, 1000))
    assert ss.diagnosis(trace).is_empty()


@pytest.mark.parametrize("name", ["freebsd-ule-synthetic.capture", "perf-sched.data"])
def test_every_source_can_be_asked(name: str) -> None:
    frame = ss.diagnosis(ss.open(f"fixtures/{name}"))
    assert frame.columns == ["topic", "level", "cost", "cost_frac", "text", "command"]
    assert frame.height
