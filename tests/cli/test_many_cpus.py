"""On a machine of hundreds of CPUs a text table shows the worst and says so; CSV has every row."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import polars as pl
import pytest

import schedscope as ss
from schedscope import _native
from schedscope.cli import main

CPUS = 200
MOST = {"queue-depth": "waiting", "efficiency": "busy", "work-conservation": "waited"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    source = tmp_path_factory.mktemp("many") / "many.dat"
    _native.synthesize_trace_dat(source, 40_000, CPUS, 600)
    return str(ss.convert(source, source.with_name("many.sched")).path)


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("command", MOST)
def test_table_shows_the_worst_cpus(
    command: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    every = [row for row in rows(said([command, folder, "--format", "csv"], capsys)) if row["cpu"]]
    assert len(every) == CPUS
    assert [int(row["cpu"]) for row in every] == sorted(int(row["cpu"]) for row in every)
    table = said([command, folder], capsys)
    assert len(table.splitlines()) < 45
    assert "more CPUs, less" in table
    assert "use a larger --top" in table
    worst = rows(said([command, folder, "--top", "3", "--format", "csv"], capsys))
    found = [int(row[MOST[command]]) for row in worst]
    assert found == sorted((int(row[MOST[command]]) for row in every), reverse=True)[:3]
    assert len(said([command, folder, "--top", "500"], capsys).splitlines()) > CPUS


def test_info_lists_the_worst_cpus_and_all_of_them_together(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = said(["info", folder], capsys)
    assert len(table.splitlines()) < 60
    assert f"all {CPUS} CPUs: running" in table
    assert f"({CPUS - 32} more CPUs, less unknown" in table
    assert len(json.loads(said(["info", folder, "--format", "json"], capsys))["per_cpu"]) == CPUS


def test_steps_over_time_refuse_top(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue-depth", folder, "--steps", "--top", "3"]) == 2
    assert "--steps with --top" in capsys.readouterr().err


def test_timeline_starts_with_the_worst_cpus(tmp_path: Path) -> None:
    """More lanes than one request may ask for are no error."""
    _native.synthesize_trace_dat(tmp_path / "t.dat", 20_000, 1100, 2000)
    trace = ss.open(tmp_path / "t.dat", cache=tmp_path)
    from schedscope.timelines.answer import Timeline

    first = Timeline(trace).first
    shown = [int(lane[4:]) for lane in first if lane.startswith("cpu:")]
    of_cpus = trace.waits.group_by(cpu=pl.coalesce("queue_cpu", "cpu")).agg(pl.col("wait").sum())
    worst = of_cpus.drop_nulls("cpu").sort("wait", descending=True).collect()["cpu"].head(32)
    assert shown == worst.to_list()
    window = {"first": 0, "bins": 1, "scale": trace.duration}
    head, _ = Timeline(trace).answer({"lanes": first, **window})
    assert [row["key"] for row in head["lanes"]] == first
