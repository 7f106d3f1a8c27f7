"""A simulation in the formats of other tools: which order is kept, and notes on what is not."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from schedscope import open as open_trace, workload as w
from schedscope.exports.write import export
from schedscope.parsers.schema import TABLES
from schedscope.simulator.runs.run import simulate
from schedscope.store.trace import Trace

SUFFIX = {"perfetto": "pftrace", "trace.dat": "dat"}


def waits(trace: Trace) -> list[tuple[object, ...]]:
    """Measured waits by name, from the start of the window on."""
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
def test_simulation_with_ordered_events_reads_back_unchanged(
    to: str, policy: str, tmp_path: Path
) -> None:
    load = w.requests(4, requests=30)
    notes: list[str] = []
    ordered = simulate(load, policy=policy, cpus=2, costs={"ipi": "1ns", "idle_exit": "1ns"})
    path = export(ordered, tmp_path / f"a.{SUFFIX[to]}", to, notes=notes)
    assert not [note for note in notes if "on another CPU" in note]
    back = open_trace(path)
    # A CPU without an event in the last milliseconds may have ended early, judging by the file.
    ended = back.losses.select(pl.col("ts_begin").min()).collect().item() or back.window[1]
    until = ended - back.window[0]

    def before(trace: Trace) -> list[tuple[object, ...]]:
        return [row for row in waits(trace) if row[1] + row[2] < until]  # type: ignore[operator]

    assert len(before(back)) > 300
    assert before(back) == before(ordered)


@pytest.mark.parametrize("to", sorted(SUFFIX))
def test_switches_with_a_simultaneous_wakeup_on_another_cpu_are_counted(
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
    # One lost order may remove the start of several waits.
    assert n > 0
    assert missed > 0
    # Tables keep the order of their rows.
    notes = []
    export(trace, tmp_path / "tables", "parquet", notes=notes)
    assert notes == []


@pytest.mark.parametrize("to", sorted(SUFFIX))
def test_export_without_kernel_threads_is_not_filtered(to: str, tmp_path: Path) -> None:
    """A recording of so many switches without any kernel thread would look filtered."""
    ordered = {"ipi": "1ns", "idle_exit": "1ns"}
    trace = simulate(w.hogs(17, time="1s"), policy="eevdf-6.17", cpus=4, costs=ordered)
    back = open_trace(export(trace, tmp_path / f"a.{SUFFIX[to]}", to))
    assert "filtered" not in back.info
    unknown = back.states.filter(pl.col("state") == "unknown").select(pl.col("dur").sum())
    assert unknown.collect().item() == 0


@pytest.mark.parametrize("to", sorted(SUFFIX))
def test_freebsd_export_without_kernel_threads_is_not_filtered(to: str, tmp_path: Path) -> None:
    trace = simulate(w.hogs(17, time="1s"), policy="ule-14", cpus=4)
    info = {name: value for name, value in trace.info.items() if name != "simulation"}
    tables = {name: getattr(trace, name).collect() for name in TABLES if name != "cpus"}
    other = Trace.from_tables(tables, info | {"os": "FreeBSD", "release": "14.1-RELEASE"})
    back = open_trace(export(other, tmp_path / f"a.{SUFFIX[to]}", to))
    assert "filtered" not in back.info


@pytest.mark.parametrize("to", sorted(SUFFIX))
def test_cpus_of_a_simulation_have_one_clock(to: str, tmp_path: Path) -> None:
    """Simultaneous events of two CPUs may be read in another order, without a clock offset."""
    trace = simulate(w.hogs(17, time="1s"), policy="eevdf-6.17", cpus=4)
    back = open_trace(export(trace, tmp_path / f"a.{SUFFIX[to]}", to))
    times = [one.switches.select("ts").collect().to_series().sort() for one in (trace, back)]
    assert times[0].equals(times[1])
