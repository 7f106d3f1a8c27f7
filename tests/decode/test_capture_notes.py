"""Notes of a recorder about its recording are shown with the data quality."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from decoded import FIXTURES

import schedscope as ss


@pytest.mark.parametrize(
    "fixture",
    ["linux-ftrace-mixed", "linux-bpftrace", "linux-dtrace", "freebsd-ule-synthetic", "perf"],
)
def test_notes_of_every_recorder_are_warnings(fixture: str, tmp_path: Path) -> None:
    """For example that a size limit ended the recording, or that it was interrupted."""
    capture = tmp_path / "noted.capture"
    shutil.copytree(FIXTURES / f"{fixture.replace('perf', 'linux-dtrace')}.capture", capture)
    (capture / "checksums").unlink(missing_ok=True)
    about = json.loads((capture / "capture.json").read_text())
    if fixture == "perf":
        (capture / "events.txt").unlink()
        shutil.copy(FIXTURES / "perf-sched.data", capture / "perf.data")
        about["recorder"]["name"] = "perf"
        about["window"] = {"begin": None, "end": None}
    noted = "the recording was ended after 3.57 s: the recording reached 2 MiB (--max-size)"
    about |= {"interrupted": "SIGHUP", "notes": [noted]}
    (capture / "capture.json").write_text(json.dumps(about))
    trace = ss.convert(capture, tmp_path / "noted.sched")
    assert trace.info["warnings"][:2] == ["the recording was interrupted (SIGHUP)", noted]
    found = ss.check(trace).filter(pl.col("check") == "warnings")
    assert found["level"].item() == "warning"
    assert noted in found["text"].item()
