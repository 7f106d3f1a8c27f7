"""`events`: the runs in order, compared with perf's list of the same file."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from test_perfdata import TIMEHIST

import schedscope as ss
from schedscope import cli

FIXTURES = Path(__file__).parents[2] / "fixtures"
NUMBERS = re.compile(r"([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+\S\s*$")


def test_rows_are_those_of_timehist() -> None:
    """Run time of every row; off-CPU time and wait where both tools know them."""
    text = (FIXTURES / "perf-sched.timehist.txt").read_text().splitlines()
    frame = ss.events(ss.open(FIXTURES / "perf-sched.data"))
    ours = {
        ((row["ts"] + row["running"]) // 1000, row["cpu"], row["tid"]): row
        for row in frame.iter_rows(named=True)
    }
    compared = {"running": 0, "off": 0, "wait": 0}
    for line in text:
        match = TIMEHIST.match(line)
        numbers = match and re.search(r"\[(\d+)(?:/\d+)?\]$", match["task"])
        if not match or not numbers:
            continue
        key = (int(match["s"]) * 10**6 + int(match["us"]), int(match["cpu"]), int(numbers[1]))
        row = ours[key]
        printed = NUMBERS.search(line)
        assert printed
        for name, text_ms in zip(("off", "wait", "running"), printed.groups(), strict=True):
            theirs = float(text_ms) * 1e6
            # 0 in perf's output may mean "not known".
            if row[name] is None or (theirs == 0 and name != "running"):
                continue
            if name == "running" and theirs == 0:
                assert row["off"] is None, "perf does not know when its first run began"
                continue
            assert abs(row[name] - theirs) <= 1000, (line, name, row)
            compared[name] += 1
    assert compared["running"] > 300
    assert compared["off"] > 200
    assert compared["wait"] > 200


@pytest.mark.parametrize("name", ["linux-ftrace-mixed.capture", "freebsd-ule-synthetic.capture"])
def test_runs_add_up_to_the_time_that_threads_ran(name: str) -> None:
    trace = ss.open(FIXTURES / name)
    frame = ss.events(trace)
    ran = trace.states.filter(pl.col("state") == "running", pl.col("utid") >= trace.ncpu)
    assert frame["running"].sum() == ran.select(pl.col("dur").sum()).collect().item()
    waits = trace.waits.filter(pl.col("censored") == "none").select("utid", "wait", ts="ts_run")
    without = waits.collect().join(frame, on=["utid", "ts"], how="anti")
    assert frame["wait"].sum() + without["wait"].sum() == waits.collect()["wait"].sum()
    # Its length is unknown: the next event of that CPU was from another thread.
    lost = trace.states.filter(pl.col("state") == "unknown").collect()
    assert without.join(lost, on=["utid", "ts"], how="anti").is_empty()
    known = frame.drop_nulls(["off", "wait"])
    assert known.filter(pl.col("off") < pl.col("wait")).is_empty()
    cpu0 = ss.events(trace, where=pl.col("cpu") == 0)
    assert cpu0.equals(frame.filter(cpu=0))


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    mixed = str(FIXTURES / "linux-ftrace-mixed.capture")
    assert cli.main(["events", mixed, "--longer-than", "500ms"]) == 0
    lines = capsys.readouterr().out.splitlines()
    longest = ss.worst_waits(ss.open(mixed), 30, where=pl.col("censored") == "none")
    assert len(lines) - 4 == longest.filter(pl.col("wait") >= 500_000_000).height
    assert cli.main(["events", mixed, "--longer-than", "soon"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
