"""`capture --with syscalls`: what a program says it slept in is what the trace says."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl
import pytest
from collector_runs import ROOT, Run, meta

import schedscope as ss
from schedscope.analysis._base.sleep_causes import causes

LOAD = ROOT / "fixtures" / "sleeping_load.py"


@pytest.mark.needs("root", "tracefs")
def test_a_program_sleeps_in_the_calls_that_it_notes(tmp_path: Path) -> None:
    run = Run(
        "--with", "syscalls", "-o", "x.capture", "--",
        "sh", "-c", f"echo | {sys.executable} -I -S {LOAD} . 20 >log", cwd=tmp_path,
    )  # fmt: skip
    assert run.wait() == 0, run.said
    assert not run.instance()
    assert not run.leftovers()
    assert meta(tmp_path / "x.capture")["lost"] == [], run.said
    trace = ss.open(tmp_path / "x.capture", cache=tmp_path / "cache")
    steps = dict(trace.system_calls.group_by("step").len().collect().rows())
    assert min(steps["enter"], steps["exit"]) > 500
    off = trace.states.filter(pl.col("state").cast(pl.String).is_in(["sleeping", "blocked"]))
    slept = causes(trace, off).join(trace.threads.select("utid", "tid", "pid"), on="utid")
    found = slept.filter(pl.col("tid") == pl.col("pid")).collect()
    spans = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    # The disk may be too fast for a sleep, or the page there again.
    certain = [span for span in spans if span[0] not in ("sync", "fault")]
    assert len(certain) == 7
    for cause, begin, end in certain:
        inside = (pl.col("ts") >= int(begin)) & (pl.col("ts") + pl.col("dur") <= int(end))
        inside &= (pl.col("dur") >= (int(end) - int(begin)) // 2) & (pl.col("cause") == cause)
        assert found.filter(inside).height, (cause, begin, end)


@pytest.mark.needs("root", "tracefs")
def test_without_it_no_call_is_recorded(tmp_path: Path) -> None:
    run = Run("-o", "x.capture", "--", "true", cwd=tmp_path)
    assert run.wait() == 0, run.said
    assert not (tmp_path / "x.capture" / "events" / "raw_syscalls").exists()
    trace = ss.open(tmp_path / "x.capture", cache=tmp_path / "cache")
    assert trace.system_calls.collect().height == 0
