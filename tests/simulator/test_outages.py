"""A machine whose CPUs are offline at times: what the trace of a run says of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import schedscope as ss
from schedscope import workload as w
from schedscope.analysis.cpus.offline import offline
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.machine import Outage, machine

MS = 1_000_000


@pytest.mark.parametrize("policy", ["fifo", "cfs-6.1", "eevdf-6.12", "ule-14", "bfs"])
def test_a_cpu_that_is_offline_neither_idles_nor_is_spare(policy: str, tmp_path: Path) -> None:
    """Three hogs on two CPUs, of which one is away from 20 to 60 ms: nothing is wasted."""
    away = replace(machine(2), outages=(Outage(1, 20 * MS, 60 * MS),))
    trace = simulate(w.hogs(3, time="50ms"), policy=policy, machine=away)
    assert offline(trace).rows() == [(1, 20 * MS, 40 * MS, True, False)]
    on = trace.states.filter(state="running", cpu=1).collect()
    assert not on.filter((pl.col("ts") < 60 * MS) & (pl.col("ts") + pl.col("dur") > 20 * MS)).height
    assert trace.info["per_cpu"][1]["unknown"] == 40 * MS
    found = ss.check(trace)
    assert found.filter(check="unknown time")["found"].item() == 0
    assert found.filter(check="offline")["found"].item() == 40 * MS
    assert not found.filter(pl.col("level") == "violated").height
    # One waits, or two do: as if the machine had one CPU meanwhile.
    both = ss.work_conservation(trace.between(0.02, 0.06)).row(0, named=True)
    assert both["wasted"] == both["idle"] == 0
    assert both["waiting"] >= 70 * MS
    kept = trace.to_sched(tmp_path / "kept.sched")
    assert offline(ss.open(kept.path)).rows() == offline(trace).rows()
    assert offline(trace.between(0.03, 0.05)).rows() == [(1, 30 * MS, 20 * MS, False, False)]


def test_a_cpu_may_go_for_good_and_another_may_come_late() -> None:
    away = replace(machine(3), outages=(Outage(0, 0, 10 * MS), Outage(2, 30 * MS)))
    trace = simulate(w.hogs(4, time="20ms"), policy="cfs-6.1", machine=away)
    end = trace.window[1]
    assert end > 30 * MS
    assert offline(trace).rows() == [
        (0, 0, 10 * MS, True, False),
        (2, 30 * MS, end - 30 * MS, False, False),
    ]
    assert [cpu["unknown"] for cpu in trace.info["per_cpu"]] == [10 * MS, 0, end - 30 * MS]
    first = trace.states.filter(pl.col("cpu") == 0).select(pl.col("ts").min()).collect().item()
    assert first == 10 * MS
