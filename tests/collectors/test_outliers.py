"""`outliers` of a real recording: the second in which many threads ran is the worst."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from collector_runs import Run

import schedscope as ss

LOAD = """
import os, time
time.sleep(6)
# Ahead of all other jobs of the host, so that it is soon over.
os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
print(time.monotonic_ns())
def compute():
    while time.process_time() < 0.015:
        pass
    os._exit(0)
for _ in range(100):
    os.fork() or compute()
for _ in range(100):
    os.wait()
print(time.monotonic_ns())
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
time.sleep(6)
"""


@pytest.mark.needs("root", "tracefs")
def test_second_with_many_threads_is_the_worst_outlier(tmp_path: Path) -> None:
    (tmp_path / "load.py").write_text(LOAD)
    run = Run(
        "-o", "x.capture", "--", "sh", "-c", f"{sys.executable} -I -S load.py >log", cwd=tmp_path
    )
    assert run.wait() == 0, run.said
    begin, end = map(int, (tmp_path / "log").read_text().split())
    trace = ss.open(tmp_path / "x.capture", cache=tmp_path / "cache")
    frame = ss.outliers(trace)
    worst = frame.row(0, named=True)
    assert worst["outlier"]
    assert begin - worst["dur"] < worst["ts"] < end, (begin, end, worst)
    assert "threads waiting for a CPU" in worst["story"] or "percentile" in worst["story"]
    # What the options select has the load's threads in it, waiting.
    _, since, _, until = worst["select"].split()
    part = trace.between(since, until)
    assert part.window == (worst["ts"], worst["ts"] + worst["dur"])
    assert ss.queue_depth_summary(part, by="all")["mean"][0] > 30
