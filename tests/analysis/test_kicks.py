"""Kicks of CPUs by a scheduler of sched_ext: on a timeline made by hand, and in a recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from archives import under_sched_ext

import schedscope as ss
from schedscope import cli
from schedscope.parsers.schema import TABLES

IDLE, PREEMPT, WAIT = 1, 2, 4


def trace(
    kicks: Sequence[tuple[int, int | None, int]], holes: Sequence[tuple[int | None, int, int]] = ()
) -> ss.Trace:
    """CPU 0 runs thread 5 all along. CPU 1 idles from 0, runs thread 6 from 100, idles from 200."""
    onto = [(0, 0, 9, 5), (0, 1, 9, 1), (100, 1, 1, 6), (200, 1, 6, 1), (900, 0, 5, 6)]
    rows = {
        "switches": [
            {"ts": ts, "cpu": cpu, "prev_utid": left, "prev_state": "sleeping", "next_utid": utid}
            for ts, cpu, left, utid in onto
        ],
        "kicks": [
            {"ts": ts, "cpu": 0, "target": target, "flags": flags} for ts, target, flags in kicks
        ],
        "losses": [
            {"cpu": cpu, "ts_begin": begin, "ts_end": end, "reason": "overrun"}
            for cpu, begin, end in holes
        ],
    }
    frames = {name: pl.DataFrame(table, TABLES[name].schema) for name, table in rows.items()}
    return ss.Trace.from_tables(frames, {"ncpu": 2, "window": [0, 1000]})


def test_a_kick_counts_by_what_its_cpu_did_and_until_it_switched() -> None:
    found = ss.kicks(
        trace(
            [
                (60, 1, IDLE),  # CPU 1 runs a thread at 100
                (70, 1, IDLE),  # it has been kicked
                (150, 1, IDLE),  # it is busy: the kernel ignores that
                (300, 1, IDLE),  # it finds nothing
                (800, 0, PREEMPT),
                (850, 0, PREEMPT | WAIT),
                (910, 0, WAIT),
                (920, None, 0),
            ]
        )
    )
    rows = {row.pop("kick"): list(row.values()) for row in found.to_dicts()}
    assert rows == {
        # n, idle, busy, unknown, again, switched, p50, p99, max, ts_max
        "idle": [4, 3, 1, 0, 1, 1, 40, 40, 40, 60],
        "preempt": [2, 0, 2, 0, 1, 1, 100, 100, 100, 800],
        "plain": [1, 0, 0, 1, 0, 0, None, None, None, None],
        "wait": [1, 0, 1, 0, 0, 0, None, None, None, None],
    }


@pytest.mark.parametrize(("cpu", "unknown"), [(1, 1), (None, 1), (0, 0)])
def test_a_kick_near_lost_events_of_its_cpu_is_unknown(cpu: int | None, unknown: int) -> None:
    """Whether CPU 1 idled at 60 is unknown if events between its switches at 0 and 100 are lost."""
    found = ss.kicks(trace([(60, 1, IDLE)], holes=[(cpu, 80, 90)]))
    assert found["n_unknown"].to_list() == [unknown]
    assert found["n_switched"].to_list() == [1 - unknown]


def test_kicks_of_a_recording_reach_idle_cpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """scx_kick kicks a CPU that it has just seen idle: it switches within the time of an IPI."""
    path = under_sched_ext(tmp_path, "kick")
    (row,) = ss.kicks(ss.open(path, cache=tmp_path / "cache")).to_dicts()
    assert row["kick"] == "idle"
    assert row["n"] > 100
    assert row["n_unknown"] < 0.01 * row["n"]
    assert row["n_to_idle"] > 0.9 * row["n"]
    assert 0 < row["p50"] < 1_000_000
    assert cli.main(["dispatch-queues", str(path), "--kicks", "--cache", str(tmp_path)]) == 0
    assert "idle CPUs" in capsys.readouterr().out


@pytest.mark.parametrize("more", [["--by", "comm"], ["--comm", "sleeper0"]])
def test_kicks_have_no_threads(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    path = "fixtures/linux-ftrace-mixed.capture"
    assert cli.main(["dispatch-queues", path, "--kicks", *more]) != 0
    error = capsys.readouterr().err
    assert "--kicks with" in error
    assert error.count("\n") <= 2
