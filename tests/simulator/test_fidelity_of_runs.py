"""Fidelity of several recordings: a right model is within their range, a wrong one is not."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import polars as pl
import pytest

import schedscope as ss
from schedscope.cli import main
from schedscope.errors import UsageError
from schedscope.simulator.closeness.figures import wasserstein
from schedscope.simulator.closeness.of_runs import MEASURES
from schedscope.simulator.workloads.generators import hogs, make
from schedscope.store.trace import Trace


@pytest.fixture(scope="module")
def runs() -> list[Trace]:
    """One program with different random numbers each time, under round robin."""
    short = {"quantum": "2ms"}
    return [
        ss.simulate(make(4, tasks=30, run="20ms", seed=seed), policy="rr", cpus=2, set=short)
        for seed in range(1, 6)
    ]


def _rows(frame: pl.DataFrame, policy: str) -> dict[str, dict[str, float]]:
    return {row["measure"]: row for row in frame.filter(against=policy).to_dicts()}


def test_the_right_model_is_within_the_range_and_fifo_is_not(runs: list[Trace]) -> None:
    frame = ss.fidelity_of_runs(runs, policies=["rr", "fifo"], replays=1)
    right, wrong = _rows(frame, "rr"), _rows(frame, "fifo")
    assert list(right) == list(MEASURES)
    assert all(row["inside"] for row in right.values())
    assert right["preemptions"]["ratio"] == pytest.approx(1, abs=0.05)
    assert not wrong["preemptions"]["inside"]
    assert wrong["preemptions"]["replay"] == 0
    assert wrong["wait_distance"]["ratio"] > 2 * right["wait_distance"]["ratio"]


def test_the_range_is_that_of_the_recordings(runs: list[Trace]) -> None:
    row = _rows(ss.fidelity_of_runs(runs, policies="rr", replays=1), "rr")
    waits = [trace.waits.filter(pl.col("censored") == "none").collect()["wait"] for trace in runs]
    numbers = [len(one) for one in waits]
    real = {name: row["waits"][name] for name in ("real", "real_low", "real_high")}
    assert real == {
        "real": statistics.median(numbers),
        "real_low": min(numbers),
        "real_high": max(numbers),
    }
    values = [one.sort().to_numpy() for one in waits]
    apart = [wasserstein(a, b) for i, a in enumerate(values) for b in values[i + 1 :]]
    assert row["wait_distance"]["real"] == statistics.median(x for x in apart if x is not None)
    assert row["wait_distance"]["runs"] == 5


def test_identical_recordings_give_a_range_of_zero() -> None:
    trace = ss.simulate(hogs(5, time="30ms"), policy="rr", cpus=2)
    frame = ss.fidelity_of_runs([trace] * 3, policies=["rr", "fifo"], replays=1)
    same, other = _rows(frame, "rr"), _rows(frame, "fifo")
    assert same["wait_distance"]["real_high"] == same["wait_distance"]["replay"] == 0
    assert same["wait_distance"]["inside"]
    assert same["wait_distance"]["ratio"] is None
    assert not other["wait_distance"]["inside"]


def test_selected_threads_alone_are_compared(runs: list[Trace]) -> None:
    only = ss.fidelity_of_runs(
        runs[:3], policies="rr", where=pl.col("comm").str.starts_with("make"), replays=1
    )
    every = ss.fidelity_of_runs(runs[:3], policies="rr", replays=1)
    assert 0 < _rows(only, "rr")["waits"]["real"] < _rows(every, "rr")["waits"]["real"]


def test_incomparable_recordings_are_refused(runs: list[Trace]) -> None:
    with pytest.raises(UsageError, match=r"2 recordings.*3 or more"):
        ss.fidelity_of_runs(runs[:2])
    bigger = ss.simulate(make(4, tasks=8, run="20ms", seed=1), policy="rr", cpus=4)
    with pytest.raises(UsageError, match="machines of 2 and 4 CPUs"):
        ss.fidelity_of_runs([*runs[:2], bigger])
    with pytest.raises(UsageError, match="replays=0"):
        ss.fidelity_of_runs(runs[:3], replays=0)
    with pytest.raises(UsageError, match="no policy is called 'nope'"):
        ss.fidelity_of_runs(runs[:3], policies=["nope"])
    with pytest.raises(UsageError, match="a tunable of rr, which is not replayed"):
        ss.fidelity_of_runs(runs[:3], policies=["fifo"], set={"rr": {"quantum": "1ms"}})


def test_the_command(runs: list[Trace], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = []
    for i, trace in enumerate(runs[:3]):
        saved.append(str(tmp_path / f"{i}.sched"))
        trace.to_sched(saved[-1])
    asked = ["fidelity", saved[0], "--again", saved[1], "--again", saved[2], "--replays", "1"]
    assert main([*asked, "--policy", "rr,fifo"]) == 0
    printed = capsys.readouterr().out
    assert "rr: 10 of 10 measures within the range of the captures" in printed
    assert "\n fifo" in printed or "\nfifo" in printed
    assert main([*asked, "--policy", "rr", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["measure"] for row in rows] == list(MEASURES)
    assert main(["fidelity", saved[0], "--replays", "2"]) == 2
    assert "--replays 2" in capsys.readouterr().err
