"""Nothing that `schedscope top` writes outlives its table."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Generator
from itertools import islice
from pathlib import Path
from typing import cast

import pytest

from schedscope.live import recorder
from schedscope.store import looked_at

FIXTURE = Path(__file__).parents[2] / "fixtures" / "linux-ftrace-mixed.capture"


class Child:
    """A recorder whose snapshots are all the same."""

    pid = 0

    def __init__(self, ring: Path) -> None:
        self.ring = ring

    def poll(self) -> None:
        """It is there."""

    def send_signal(self, _number: int) -> None:
        """A snapshot whose ring did not reach back to the one before."""
        made = shutil.copytree(FIXTURE, self.ring / "new")
        about = json.loads((made / "capture.json").read_text())
        begin = about["window"]["begin"]
        about["ring"] = {"trigger": "", "at": begin, "cpus": [{"cpu": 0, "begin": begin}]}
        (made / "capture.json").write_text(json.dumps(about))
        (made / "groups.tsv").write_text("seen\tcgroup\n")
        made.rename(self.ring / "1.capture")


def test_a_table_leaves_no_note_of_what_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note of each second would be 86,400 files a day, which each of them looked through."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (ring := tmp_path / "top.ring").mkdir()
    child = cast("subprocess.Popen[str]", Child(ring))
    found = cast("Generator[recorder.Interval]", recorder.intervals(child, tmp_path, 0.01))
    for interval in islice(found, 2):
        assert interval.trace.states.collect().height
        (made,) = tmp_path.glob("*.cache/*.sched")
        assert looked_at.known(looked_at.identity(made, "states.parquet"), made)
    found.close()
    assert not list((tmp_path / "home").rglob("*.json"))
