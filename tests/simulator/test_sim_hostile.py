"""Mistakes of users in workloads, costs and options: one sentence, before anything runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest

from schedscope import workload as w
from schedscope.cli import main
from schedscope.errors import SchedscopeError, UsageError
from schedscope.simulator.closeness.fidelity import fidelity
from schedscope.simulator.runs.rtapp import from_rtapp
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.machine import Costs, Machine
from schedscope.simulator.workloads.workload import read_workload


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The error of a refused `simulate`."""
    assert main(["simulate", *words]) in (1, 2)
    ran = capsys.readouterr()
    assert ran.out == ""
    assert len(ran.err.splitlines()) == 1
    assert "internal error" not in ran.err
    return ran.err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["hogs:1,nice=-400"], "thread 0: nice -400"),
        (["hogs:1,nice=x"], "hogs with nice=x; expected a whole number"),
        (["hogs:1,time=99999999999999h"], "is too long"),
        (["nice_hogs:0 300"], "nices '0 300'"),
        (["nice_hogs:nices="], "nices"),
        (["periodic:3,times=1.5"], "periodic with times=1.5"),
        (["ping_pong:1,times=99999999999999999999"], "expected a whole number"),
        (["make:2,seed=x"], "make with seed=x"),
        (["hogs:1", "--policy", ""], "--policy ''"),
        (["hogs:1", "--policy", "rr,"], "--policy ''"),
        (["hogs:1", "--cost", "smt_speed=abc"], "smt_speed = 'abc'"),
        (["hogs:1", "--cost", "smt_speed=nan"], "expected a factor"),
        (["hogs:1", "--cost", "switch=5s"], "a cost switch of 5000000000 ns"),
        (["hogs:1", "--stop-at", "9999999999999h"], "is too long"),
        (["hogs:1", "--max-events", "99999999999999999999999"], "--max-events"),
        (["hogs:1", "--since", "1s"], "--since with a generator"),
        (["hogs:1", "--until", "1s"], "--stop-at ends a simulation"),
        (["hogs:1", "--external", "absolute"], "--external with a generator"),
        (["hogs:1", "-O", "buffer=x"], "--option with a generator"),
        (["hogs:1", "--record"], "--record without --output and --figure"),
        (["hogs:1", "--figure", "view.foo"], "a name that ends in .png"),
        (["hogs:1", "--figure", "nowhere/view.png"], "no folder nowhere"),
        (["hogs:1", "--save-workload", "nowhere/a.workload"], "no folder nowhere"),
        (
            ["hogs:1", "--policy", "fifo", "--record", "--figure", "view.png"],
            "holds no point of any series",
        ),
    ],
)
def test_invalid_command_line_is_reported_in_one_sentence(
    words: list[str],
    found: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert found in said(capsys, *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("task", "found"),
    [
        ({"run": float("inf")}, "task t: run inf"),
        ({"run": float("nan")}, "task t: run nan"),
        ({"run": "x"}, "task t: run 'x'"),
        ({"loop": 2, "timer": "x"}, "task t: timer 'x'"),
        ({"priority": 300, "run": 1}, "thread 0: nice 300"),
        ({"instance": 10**9, "run": 1}, "task t: instance 1000000000"),
        ({"cpus": 3, "run": 1}, "task t: cpus 3"),
        ({"policy": ["x"], "run": 1}, "task t: policy ['x']"),
        ({"policy": "SCHED_WEIRD", "run": 1}, "one of SCHED_"),
        ({"policy": "SCHED_DEADLINE", "run": 1}, "task t: dl-runtime None"),
        ({"phases": []}, "task t: phases []"),
        (5, "task t: 5"),
    ],
)
def test_error_in_rtapp_json_names_the_task(task: object, found: str) -> None:
    with pytest.raises(SchedscopeError) as error:
        from_rtapp({"tasks": {"t": task}})
    assert found in str(error.value)


def test_json_in_another_encoding_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b"\xff\xfe{")
    assert "not UTF-8 at byte 0" in said(capsys, str(file))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"info": [1]}, "info [1]"),
        ({"machine": "x"}, "an invalid machine"),
        (
            {"machine": {"cpus": [dict.fromkeys(("core", "llc", "package", "numa_node"), -1)]}},
            "CPU 0: core -1; expected a number from 0 to 65535",
        ),
    ],
)
def test_damaged_workload_is_reported(
    change: dict[str, object], found: str, tmp_path: Path
) -> None:
    folder = w.hogs(1).save(tmp_path / "a.workload")
    file = folder / "workload.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(SchedscopeError) as error:
        read_workload(folder)
    assert found in str(error.value)


def test_pipe_inside_a_workload_is_refused_without_blocking(tmp_path: Path) -> None:
    folder = w.hogs(1).save(tmp_path / "a.workload")
    (folder / "steps.parquet").unlink()
    os.mkfifo(folder / "steps.parquet")
    with pytest.raises(SchedscopeError, match=r"steps\.parquet is not a regular file"):
        read_workload(folder)


def test_notes_about_rtapp_export_do_not_go_into_the_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", "spinners:2,time=10ms,unpin=1ms", "--policy", "rr", "--format", "json"]
    assert main([*words, "--save-rtapp", str(tmp_path / "a.json")]) == 0
    ran = capsys.readouterr()
    assert json.loads(ran.out)
    assert ran.err == "schedscope: rt-app cannot express: 1 wait_until, 2 set_affinity\n"


def test_tunables_of_a_policy_that_is_not_replayed_are_refused() -> None:
    trace = simulate(w.hogs(2, time="5ms"), policy="rr", cpus=1)
    with pytest.raises(UsageError, match="a tunable of rr, which is not replayed"):
        fidelity(trace, policies=["fifo"], set={"rr": {"quantum": "1ms"}})
    assert fidelity(trace, policies=["rr", "rr"], set={"rr": {"quantum": "1ms"}}).height == 2


def test_option_others_without_a_selection_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "a.sched")
    simulate(w.hogs(2, time="5ms"), policy="rr", cpus=1, output=out)
    assert main(["fidelity", out, "--policy", "rr", "--others", "drop"]) == 2
    assert "--others drop" in capsys.readouterr().err


def test_warning_counts_threads_that_never_started() -> None:
    assert repr(w.hogs(1)) == "Workload of 1 thread, 1 step"
    b = w.Builder()
    b.thread("now").run("1ms")
    b.thread("later", start="1s").run("1ms")
    trace = simulate(b.workload(), policy="rr", cpus=1, until="10ms")
    assert "1 thread has not started: not forked, or later than the end" in trace.info["warnings"]


def test_a_machine_and_costs_go_to_a_file_and_back() -> None:
    machine = Machine.from_dict(
        {"cpus": [{"core": 0, "llc": 0, "package": 0, "numa_node": 0}], "costs": {"switch": "2us"}}
    )
    assert machine.costs == Costs(switch=2000)
    assert Machine.from_dict(machine.to_dict()) == machine


def test_invalid_values_of_threads_and_steps_are_named() -> None:
    b = w.Builder()
    b.thread("a").run("1ms")
    b.thread("b", tid="seven").run("1ms")
    with pytest.raises(UsageError, match="thread 1: tid 'seven'"):
        b.workload()
    with pytest.raises(UsageError, match="is not a duration"):
        b.thread("c").run(1.5)  # type: ignore[arg-type]
    assert w.hogs(1).threads.schema["tid"] == pl.Int64
