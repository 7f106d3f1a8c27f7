"""`off_cpu`: reasons in round numbers, and the FreeBSD fixtures' wait messages and locks."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from matplotlib.figure import Figure
from scenes import MS, scene

import schedscope as ss
from schedscope import cli
from schedscope.analysis.off_cpu import longest_open
from schedscope.errors import UsageError
from schedscope.parsers.schema import TABLES
from schedscope.units import duration

FIXTURES = Path(__file__).parents[2] / "fixtures"

# cat reads a pipe twice (100 and 300 ms) and waits for a lock once; make sleeps to the end.
SCENE = """
    cat  running@0 0..100
    cat  sleeping 100..200
    cat  running@0 200..250
    cat  blocked 250..260
    cat  running@0 260..400
    cat  sleeping 400..700
    cat  running@0 700..1000
    make running@1 0..500
    make sleeping 500..1000
"""
REASONS = [(100, 2, "sleep", "piperd"), (250, 2, "lock", "pipe mutex"), (400, 2, "sleep", "piperd"),
           (500, 3, "sleep", "wait")]  # fmt: skip


@pytest.fixture
def trace() -> ss.Trace:
    world = scene(SCENE)
    sleeps = pl.DataFrame(
        [{"ts": ts * MS, "cpu": 0, "utid": utid, "kind": kind, "reason": reason}
         for ts, utid, kind, reason in REASONS],
        TABLES["sleeps"].schema,
    )  # fmt: skip
    off = pl.col("state").is_in(["sleeping", "blocked"])
    last = pl.col("ts") + pl.col("dur") == 1000 * MS
    ends = pl.when(off).then(pl.when(last).then(pl.lit("window")).otherwise(pl.lit("woken")))
    states = world.states.with_columns(end=ends.otherwise(pl.col("end").cast(pl.String)))
    return ss.Trace.from_tables(
        {"states": states, "threads": world.threads, "sleeps": sleeps, "waits": world.waits},
        world.info,
    )


def test_off_cpu_time_is_divided_by_reason(trace: ss.Trace) -> None:
    columns = ["state", "kind", "reason", "n", "total", "mean", "p50", "p99", "max"]
    assert ss.off_cpu(trace).select(*columns, "n_censored", "n_excluded").rows() == [
        ("sleeping", "sleep", "piperd",
         2, 400 * MS, 200.0 * MS, 100 * MS, 300 * MS, 300 * MS, 0, 0),
        ("blocked", "lock", "pipe mutex", 1, 10 * MS, 10.0 * MS, 10 * MS, 10 * MS, 10 * MS, 0, 0),
        ("sleeping", "sleep", "wait", 0, 0, None, None, None, None, 1, 0),
    ]  # fmt: skip


def test_off_cpu_groups_by_thread_and_selects_threads(trace: ss.Trace) -> None:
    frame = ss.off_cpu(trace, by="comm", quantiles=(1,))
    assert frame.columns[:4] == ["comm", "state", "kind", "reason"]
    assert frame["comm"].to_list() == ["cat", "cat", "make"]
    only = ss.off_cpu(trace, by=["comm", "tid"], where=pl.col("comm") == "make")
    assert only["reason"].to_list() == ["wait"]


def test_sleep_without_a_start_after_a_cut_is_excluded(trace: ss.Trace) -> None:
    frame = ss.off_cpu(trace.between("0.15s", None))
    assert frame.select("kind", "reason", "n", "n_excluded").rows() == [
        ("sleep", "piperd", 1, 0),
        ("lock", "pipe mutex", 1, 0),
        ("sleep", "wait", 0, 0),
        (None, None, 0, 1),
    ]


def test_unknown_columns_and_quantiles_are_refused(trace: ss.Trace) -> None:
    with pytest.raises(UsageError, match="by='cpu'"):
        ss.off_cpu(trace, by="cpu")
    with pytest.raises(UsageError, match="quantile"):
        ss.off_cpu(trace, quantiles=(1.5,))


@pytest.mark.parametrize("scheduler", ["ule", "4bsd"])
def test_off_cpu_has_every_freebsd_sleep_reason(tmp_path: Path, scheduler: str) -> None:
    """Every row of `sleeps` names one off-CPU interval, and they add up to the states."""
    trace = ss.open(FIXTURES / f"freebsd-{scheduler}-synthetic.capture", cache=tmp_path)
    frame = ss.off_cpu(trace)
    sleeps = trace.sleeps.collect()
    counted = frame.filter(pl.col("kind").is_not_null())
    assert (counted["n"] + counted["n_censored"]).sum() == sleeps.height
    assert set(frame.drop_nulls("reason")["reason"]) == {"piperd", "vm page free"}
    assert set(frame.drop_nulls("kind")["kind"]) == {"sleep", "lock", "interrupt"}
    off = trace.states.filter(
        pl.col("state").is_in(["sleeping", "blocked", "stopped", "parked"])
        & (pl.col("end") == "woken") & (pl.col("utid") >= trace.ncpu)
    )  # fmt: skip
    assert frame["total"].sum() == off.select(pl.col("dur").sum()).collect().item()


def test_linux_traces_have_no_sleep_reasons(tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / "linux-dtrace.capture", cache=tmp_path)
    frame = ss.off_cpu(trace)
    assert frame["kind"].null_count() == frame.height
    assert {"sleeping", "blocked"} <= set(frame["state"])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(FIXTURES / "freebsd-ule-synthetic.capture")
    assert cli.main(["off-cpu", path, "--cache", str(tmp_path), "--by", "comm", "--top", "8"]) == 0
    text = capsys.readouterr().out
    assert "lock vm page free" in text
    assert "more rows, of less time" in text
    assert cli.main(["off-cpu", path, "--cache", str(tmp_path), "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["kind"] for row in rows} >= {"sleep", "lock", "interrupt"}
    linux = str(FIXTURES / "linux-dtrace.capture")
    assert cli.main(["off-cpu", linux, "--cache", str(tmp_path)]) == 0
    assert "`capture --with syscalls` records them" in capsys.readouterr().out
    assert cli.main(["off-cpu", path, "--top", "0"]) == 2
    assert "--top 0" in capsys.readouterr().err


def test_the_longest_unfinished_time_is_found(trace: ss.Trace) -> None:
    """make sleeps for 500 ms to the end, which is in no row's `max`."""
    assert longest_open(trace) == 500 * MS
    assert longest_open(trace, where=pl.col("comm") == "cat") is None
    # What was cut at its start is not it.
    assert longest_open(trace.between("0.55s", "0.65s")) is None


def test_the_command_says_when_an_unfinished_time_is_the_longest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(FIXTURES / "linux-ftrace-lossy.capture")
    trace = ss.open(path, cache=tmp_path)
    longest = longest_open(trace)
    assert longest is not None
    assert longest > ss.off_cpu(trace)["max"].max()
    assert cli.main(["off-cpu", path, "--cache", str(tmp_path)]) == 0
    assert f"one after {duration(longest)}, longer than any below" in capsys.readouterr().out


def test_unknown_time_may_have_been_slept(trace: ss.Trace) -> None:
    """cat may also have slept while it ran on CPU 0 from 260 to 400 ms, as far as is known."""
    unknown = (pl.col("utid") == 2) & (pl.col("ts") == 260 * MS)
    state = pl.when(unknown).then(pl.lit("unknown")).otherwise(pl.col("state").cast(pl.String))
    tables = {name: trace.table(name) for name in ("threads", "sleeps", "waits")}
    tables["states"] = trace.states.with_columns(state=state)
    lossy = ss.Trace.from_tables(tables, trace.info)
    bounded = ("reason", "total", "total_high", "max", "max_high")
    assert ss.off_cpu(trace).select(bounded).rows() == [
        ("piperd", 400 * MS, 400 * MS, 300 * MS, 300 * MS),
        ("pipe mutex", 10 * MS, 10 * MS, 10 * MS, 10 * MS),
        ("wait", 0, 0, None, None),
    ]
    assert ss.off_cpu(lossy, by="comm").select(bounded).rows() == [
        ("piperd", 400 * MS, 540 * MS, 300 * MS, 300 * MS),
        ("pipe mutex", 10 * MS, 150 * MS, 10 * MS, 140 * MS),
        ("wait", 0, 0, None, None),
    ]


def test_the_figure(trace: ss.Trace) -> None:
    axes = Figure().add_subplot()
    ss.plot.off_cpu(ss.off_cpu(trace, by="comm"), ax=axes)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["cat piperd", "cat lock pipe mutex", "make wait"]
    ss.plot.off_cpu(ss.off_cpu(trace, where=pl.col("comm") == "nobody"), ax=axes)
