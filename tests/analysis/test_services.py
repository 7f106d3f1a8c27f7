"""Threads by the unit or container that their control group's path names."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from scenes import MS, scene

import schedscope as ss
from schedscope.parsers.schema import TABLES

ID = "0123456789ab" + "c" * 52


@pytest.fixture
def trace() -> ss.Trace:
    """Two workers of one unit in groups of their own, and a container."""
    return scene(
        "a running@0 0..30\nb runnable@0 0..30\nb running@0 30..60\nc runnable@0 0..60\n"
        "c running@0 60..90\na sleeping 30..90\nb sleeping 60..90",
        {
            "a": {"cgroup": "/system.slice/web.service/one"},
            "b": {"cgroup": "/system.slice/web.service/two"},
            "c": {"cgroup": f"/docker/{ID}"},
        },
        ncpu=1,
        until=90,
    )


def test_grouped_and_selected(trace: ss.Trace) -> None:
    frame = ss.latency(trace, by="service").sort("service")
    assert frame.select("service", "n", "total").rows() == [
        ("docker/0123456789ab", 1, 60 * MS),
        ("web.service", 1, 30 * MS),
    ]
    mine = pl.col("service") == "web.service"
    assert ss.latency(trace, where=mine)["n"].item() == 1
    assert ss.slowdown(trace, by="service").sort("service")["cpu"].to_list() == [30 * MS, 60 * MS]
    parts = ss.wait_breakdown(trace, by="service").filter(service="docker/0123456789ab")
    assert parts["wait"].item() == 60 * MS


def test_no_table_on_disk_has_it(trace: ss.Trace, tmp_path: Path) -> None:
    """It follows from another column, so nobody can contradict it."""
    folder = trace.to_sched(tmp_path / "x.sched").path
    assert folder is not None
    assert "service" not in pl.read_parquet(folder / "threads.parquet").columns
    assert "service" not in TABLES["threads"].schema
    again = ss.Trace.read(folder).threads.collect()
    assert again.filter(comm="a")["service"].item() == "web.service"


def test_without_groups_there_are_no_services() -> None:
    trace = scene("a running@0 0..30", ncpu=1, until=30)
    assert trace.threads.collect()["service"].null_count() == 2
