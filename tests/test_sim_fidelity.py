"""Fidelity: a replay that must be perfect is, and each figure sees its own fault."""

from __future__ import annotations

import json

import numpy as np
import pytest

from schedscope.cli import main
from schedscope.simulator.builder import Builder
from schedscope.simulator.fidelity import fidelity, kendall, measured_costs, wasserstein
from schedscope.simulator.generators import hogs, make, periodic
from schedscope.simulator.machine import Costs
from schedscope.simulator.run import simulate


def test_a_replay_under_the_same_policy_is_perfect() -> None:
    real = simulate(hogs(5, time="30ms"), policy="rr", machine=2)
    frame = fidelity(real, policies=["rr", "fifo"], costs=Costs(), cut="park")
    rows = {row["against"]: row for row in frame.to_dicts()}
    same = rows["rr"]
    assert same["order"] == 1.0
    assert same["shift"] == same["wait_distance"] == 0
    assert same["cpu_time_err"] == 0
    ratios = {v for k, v in same.items() if k.endswith("_ratio") and v is not None}
    assert ratios == {1.0}
    assert rows["fifo"]["preemptions_ratio"] == 0


def test_a_second_capture_is_compared_by_name() -> None:
    """Its threads are others: the k-th of a name is the k-th of that name."""
    a, b = (simulate(make(3, tasks=8, run="20ms", seed=s), policy="rr", machine=2) for s in (1, 2))
    frame = fidelity(a, again=b, policies=[], costs=Costs())
    assert frame["against"].to_list() == ["real", "again"]
    assert frame["order"][0] is None
    assert 0 < frame["order"][1] < 1
    same = fidelity(a, again=a, policies=["fifo"], costs=Costs())
    assert same.row(1, named=True)["order"] == 1.0
    assert same.row(1, named=True)["shift"] == 0


def test_what_two_captures_do_not_keep_has_no_order() -> None:
    """Hogs that end within a millisecond of each other may end in any order."""
    a = simulate(hogs(4, time="30ms"), policy="rr", machine=4)
    b = Builder()
    for i, ns in enumerate([33_000_000, 30_000_000, 31_000_000, 30_500_000]):
        b.thread(f"hog-{i}").run(ns)
    frame = fidelity(a, again=simulate(b.workload(), policy="rr", machine=4), policies=["rr"])
    assert frame.filter(against="rr")["order"].item() is None


def test_costs_are_measured_where_the_cpu_was_idle() -> None:
    real = simulate(periodic(1, times=20), policy="fifo", machine=1, costs={"idle_exit": "7us"})
    assert measured_costs(real).idle_exit == 7000


def test_wasserstein_against_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(3)
    for n, m in ((1, 1), (5, 9), (200, 31)):
        a, b = rng.integers(0, 1000, n), rng.integers(0, 3000, m)
        assert wasserstein(a, b) == round(stats.wasserstein_distance(a, b))


def test_kendall_against_counting_pairs() -> None:
    rng = np.random.default_rng(4)
    for n in (2, 63, 64, 65, 300):
        values = rng.integers(0, n, n)
        inversions = sum(values[i] > values[j] for i in range(n) for j in range(i + 1, n))
        tau = kendall(range(n), values.tolist())
        assert tau == pytest.approx(1 - 4 * inversions / (n * (n - 1)))


def test_the_commands(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    out = str(tmp_path / "a.sched")
    assert main(["simulate", "periodic:3", "--policy", "rr", "--cpus", "2", "-o", out]) == 0
    assert "trace:" in capsys.readouterr().out
    assert main(["simulate", out, "--policy", "fifo,rr", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["policy"] for row in rows] == ["fifo", "rr"]
    figure = tmp_path / "p.svg"
    assert main(["simulate", out, "--policy", "fifo,rr", "--figure", str(figure)]) == 0
    assert figure.stat().st_size > 1000
    capsys.readouterr()
    assert main(["fidelity", out, "--policy", "rr", "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["against", "real", "rr"]
    saved = tmp_path / "w.workload"
    assert main(["simulate", out, "--save-workload", str(saved)]) == 0
    assert main(["simulate", str(saved), "--policy", "rr"]) == 0
    rtapp = tmp_path / "w.json"
    assert main(["simulate", "ping_pong:1,times=3", "--save-rtapp", str(rtapp)]) == 0
    assert main(["simulate", str(rtapp), "--policy", "rr"]) == 0
    assert main(["simulate", "--policies"]) == 0
    assert main(["simulate", "--generators"]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate"],
        ["simulate", "hogs:2", "--policy", "nope"],
        ["simulate", "hogs:2", "--set", "quantum"],
        ["simulate", "hogs:2", "--policy", "all", "--set", "quantum=1ms"],
        ["simulate", "hogs:2", "--policy", "rr", "--cost", "sloth=1ms"],
        ["simulate", "hogs:2", "--policy", "rr", "--cpus", "0"],
        ["simulate", "hogs:2", "--policy", "rr", "--max-events", "0"],
        ["fidelity", "/nonexistent.capture"],
    ],
)
def test_wrong_commands_end_with_one_sentence(arguments: list[str], capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(arguments) in (1, 2)
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("schedscope: ")
