"""`capture -t perf`: perf as one more recorder of the collector."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import polars as pl
import pytest
from decoded import decode

CAPTURE = Path(__file__).parents[2] / "collectors" / "capture"

pytestmark = pytest.mark.needs("root", "linux", "perf")


def capture(folder: Path, *words: str) -> Path:
    command = ["sh", str(CAPTURE), "-q", "-t", "perf", "-o", str(folder / "x"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder / "x.capture"


def test_a_workload_is_recorded_within_its_window(tmp_path: Path) -> None:
    """Both wake events, and the host and threads of the capture; the load's forks are in it."""
    path = capture(tmp_path, "--", "sh", "-c", "/bin/true; /bin/true; sleep 0.1")
    about = json.loads((path / "capture.json").read_text())
    assert about["complete"]
    assert about["recorder"]["name"] == "perf"
    trace = decode(path)
    assert trace.info["source"]["format"] == "perf capture"
    assert (trace.info["has_waking"], trace.info["has_enqueued"]) == (True, True)
    begin, end = about["window"]["begin"], about["window"]["end"]
    assert trace.window[0] <= begin < end <= trace.window[1]
    times = trace.switches.collect()["ts"]
    # Recording is on before `begin` is read: perf's answer is polled every quarter second.
    assert times.is_between(begin - 2 * 10**9, end + 2 * 10**9).all()
    born = trace.threads.filter(pl.col("start_ts").is_not_null()).collect()
    load = born.filter(pl.col("comm").is_in(["true", "sleep"]))
    assert set(load["comm"]) == {"true", "sleep"}
    assert load.select(pl.col("start_ts").is_between(begin, end).sum()).item() >= 3
    assert trace.threads.filter(pl.col("affinity").is_not_null()).collect().height > 10


def test_perf_recorder_leaves_nothing_behind(tmp_path: Path) -> None:
    """No perf of ours, no pipes, no message file beside the data."""
    path = capture(tmp_path, "-d", "0.2")
    assert sorted(p.name for p in path.iterdir()) == [
        "capture.json",
        "checksums",
        "cpus.tsv",
        "cputime.tsv",
        "events",
        "groups.tsv",
        "perf.data",
        "processes.tsv",
        "threads.tsv",
    ]
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(tmp_path) not in running.stdout
