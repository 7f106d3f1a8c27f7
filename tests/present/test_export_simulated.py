"""A simulation in the formats of other tools: what of its order survives, and that it is said."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from schedscope import open as open_trace, workload as w
from schedscope.exports.write import export
from schedscope.simulator.run import simulate
from schedscope.trace import Trace

SUFFIX = {"perfetto": "pftrace", "trace.dat": "dat"}


def waits(trace: Trace) -> list[tuple[object, ...]]:
    """Whole waits by name, from the begin of the window on."""
    origin = trace.window[0]
    return (
        trace.waits.join(trace.threads.select("utid", "comm"), on="utid")
        .select("comm", pl.col("ts_ready") - origin, "wait", pl.col("cause").cast(pl.String))
        .drop_nulls("wait")
        .sort("ts_ready", "comm", "wait")
        .collect()
        .rows()
    )


@pytest.mark.parametrize("to", sorted(SUFFIX))
@pytest.mark.parametrize("policy", ["4bsd", "ule-14", "eevdf-6.17"])
def test_a_simulation_with_an_order_reads_back_as_it_was(
    to: str, policy: str, tmp_path: Path
) -> None:
    load = w.requests(4, requests=30)
    notes: list[str] = []
    ordered = simulate(load, policy=policy, cpus=2, costs={"ipi": "1ns", "idle_exit": "1ns"})
    path = export(ordered, tmp_path / f"a.{SUFFIX[to]}", to, notes=notes)
    assert not [note for note in notes if "on another CPU" in note]
    assert waits(open_trace(path)) == waits(ordered)


@pytest.mark.parametrize("to", sorted(SUFFIX))
def test_switches_whose_wake_another_cpu_has_at_that_instant_are_counted(
    to: str, tmp_path: Path
) -> None:
    load = w.requests(4, requests=30)
    trace = simulate(load, policy="ule-14", cpus=2)
    notes: list[str] = []
    path = export(trace, tmp_path / f"a.{SUFFIX[to]}", to, notes=notes)
    (note,) = [note for note in notes if "on another CPU" in note]
    n = int(note.split()[0].replace(",", ""))
    of_switches = f"of {trace.switches.select(pl.len()).collect().item():,} switches"
    assert of_switches in note
    back = open_trace(path)
    missed = back.waits.filter(pl.col("wait").is_null()).select(pl.len()).collect().item()
    # One lost order may leave the begin of several waits unseen.
    assert n > 0
    assert missed > 0
    # Tables keep the order of their rows.
    notes = []
    export(trace, tmp_path / "tables", "parquet", notes=notes)
    assert notes == []
