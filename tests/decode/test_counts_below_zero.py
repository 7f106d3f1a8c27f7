"""Kernel counts that went below zero are printed as numbers beyond 2^63."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from decoded import FIXTURES

import schedscope as ss

RECORDED = FIXTURES / "linux-slice-default-4.capture"


def opened(folder: Path, name: str, value: int) -> ss.Trace:
    """The fixture with another value of one count of CPU 0."""
    capture = folder / "x.capture"
    shutil.copytree(RECORDED, capture)
    stats = capture / "stats" / "cpu0"
    lines = [line for line in stats.read_text().splitlines() if not line.startswith(f"{name}:")]
    stats.write_text("\n".join([*lines, f"{name}: {value}", ""]))
    return ss.open(capture, cache=folder / "cache")


@pytest.mark.parametrize("value", [2**63, 2**64 - 128])
def test_negative_entries_are_not_a_loss(tmp_path: Path, value: int) -> None:
    """They do not prove that nothing was lost, either: there is a warning."""
    trace = opened(tmp_path, "entries", value)
    whole = ss.open(RECORDED, cache=tmp_path / "whole")
    assert trace.waits.collect().equals(whole.waits.collect())
    assert any("recorded events is below zero" in text for text in trace.info["warnings"])


@pytest.mark.parametrize("name", ["overrun", "commit overrun", "dropped events"])
def test_negative_losses_have_no_place(tmp_path: Path, name: str) -> None:
    trace = opened(tmp_path, name, 2**64 - 1)
    whole = ss.open(RECORDED, cache=tmp_path / "whole")
    assert {"cpu": 0, "count": 1, "reason": "overrun"} in trace.info["unplaced_losses"]
    assert any("lost events is below zero" in text for text in trace.info["warnings"])
    measured = [t.waits.filter(censored="none").collect().height for t in (trace, whole)]
    assert measured[0] < measured[1]


def test_counts_above_2_to_the_53_are_capped(tmp_path: Path) -> None:
    """They are in trace.json like others, so that it can be read again and summed."""
    trace = opened(tmp_path, "overrun", 2**63 - 1)
    assert [row["count"] for row in trace.info["unplaced_losses"]] == [2**53]
    trace.to_sched(tmp_path / "kept.sched")
    assert ss.check(ss.open(tmp_path / "kept.sched")).height > 10
    kept = json.loads((tmp_path / "kept.sched" / "trace.json").read_text())
    assert kept["unplaced_losses"] == trace.info["unplaced_losses"]
