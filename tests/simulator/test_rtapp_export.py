"""An exported recording runs in the real rt-app."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import polars as pl
import pytest
from tools import tool

from schedscope.cli import main
from schedscope.errors import UsageError
from schedscope.simulator.runs.replay import replay
from schedscope.simulator.runs.rtapp import exported, to_rtapp
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.store.trace import Trace

NS_PER_LOOP = 20
"""In place of rt-app's own calibration, which takes seconds."""


def recording() -> Trace:
    """A parent that starts two workers of one name and waits for each, with a kernel thread that
    wakes a third; names that rt-app could not take unchanged.
    """
    b = Builder()
    parent = b.thread("make -j2/all")
    for _ in range(2):
        child = b.thread("cc/1:very-long-name", start=None).run("2ms").signal(parent)
        parent.run("1ms").fork(child)
    parent.wait_for().wait_for().run("1ms")
    log = b.thread("log")
    kernel = b.thread("kworker/0:1").run("1ms").signal(log)
    log.wait_for(kernel).run("1ms").sleep("1ms").run("1ms")
    real = simulate(b.workload(), policy="eevdf-6.12", cpus=2)
    names = ("switches", "wakeups", "migrations", "states", "waits", "threads")
    tables = {name: getattr(real, name).collect() for name in names}
    of_kernel = pl.col("comm").str.starts_with("kworker")
    tables["threads"] = tables["threads"].with_columns(kernel=of_kernel)
    return Trace.from_tables(tables, real.info)


def test_export_leaves_out_kernel_threads() -> None:
    document, lost = to_rtapp(exported(replay(recording())), duration=1)
    assert lost == {}
    tasks = document["tasks"]
    assert sorted(tasks) == ["cc_1_very-l", "cc_1_very.1", "log", "make_-j2_al"]
    assert all("fork" not in phase for task in tasks.values() for phase in task["phases"].values())
    # They start when they did, 1 and 2 ms after the parent.
    assert [tasks[name].get("delay") for name in ("cc_1_very-l", "cc_1_very.1")] == [1000, 2000]
    # Its waker is not exported: the wake becomes the end of a sleep.
    assert {"sleep": 1000} in [
        {key: value for key, value in phase.items() if key != "loop"}
        for phase in tasks["log"]["phases"].values()
    ]


def test_export_has_only_the_selected_threads(tmp_path: Path) -> None:
    recording().to_sched(tmp_path / "r.sched")
    target = tmp_path / "log.json"
    asked = ["simulate", str(tmp_path / "r.sched"), "--save-rtapp", str(target)]
    assert main([*asked, "--comm", "log"]) == 0
    assert list(json.loads(target.read_text())["tasks"]) == ["log"]
    with pytest.raises(UsageError, match="threads of the kernel"):
        exported(replay(recording(), where=pl.col("comm") == "kworker/0:1"))


@pytest.mark.needs("rt-app")
def test_an_export_runs_in_the_real_rt_app(tmp_path: Path) -> None:
    recording().to_sched(tmp_path / "r.sched")
    target = tmp_path / "r.json"
    assert main(["simulate", str(tmp_path / "r.sched"), "--save-rtapp", str(target)]) == 0
    document = json.loads(target.read_text())
    document["global"]["calibration"] = NS_PER_LOOP
    target.write_text(json.dumps(document))
    words = tool("rt-app")
    assert words is not None
    run = subprocess.run(
        [*words, str(target)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    said = run.stdout + run.stderr
    assert run.returncode == 0, said
    assert said.count("Exiting.") == len(document["tasks"]) == 4
    assert "error" not in said
