"""perf.data recorded and judged by the perf of this host."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from decoded import decode
from test_perfdata import latency_rows, our_rows
from tools import tool

pytestmark = [pytest.mark.needs("root", "linux", "perf")]


def _version(perf: tuple[str, ...]) -> float:
    text = subprocess.run([*perf, "--version"], capture_output=True, text=True, check=True).stdout
    return float(".".join(text.split()[2].split(".")[:2]))


def test_a_fresh_recording_equals_perfs_own_latency(tmp_path: Path) -> None:
    """Record half a second of this host; every thread's line is the same.

    perf before 7.0 ignores sched_waking in `sched latency`, so its verdict is no measure.
    """
    perf = tool("perf")
    assert perf is not None
    if _version(perf) < 7:
        pytest.skip("needs perf 7 or later as a judge (SCHEDSCOPE_TOOLS names a tree with one)")
    data = tmp_path / "live.data"
    record = [*perf, "sched", "record", "-o", str(data), "sleep", "0.5"]
    done = subprocess.run(record, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"perf sched record fails here: {done.stderr.strip()[-200:]}")
    latency = [*perf, "sched", "latency", "-p", "-i", str(data)]
    text = subprocess.run(latency, capture_output=True, text=True, check=True).stdout
    assert our_rows(decode(data)) == latency_rows(text)


@pytest.mark.parametrize(
    ("options", "partial"),
    [
        (["record"], True),
        (["record", "-R", "-a"], False),
        (["record", "-Ra"], False),
        (["record", "-C", "0"], False),
        (["sched", "record"], False),
    ],
)
@pytest.mark.parametrize("newest", [True, False])
def test_a_recording_of_one_program_says_so(
    tmp_path: Path, options: list[str], partial: bool, newest: bool
) -> None:
    """And one of all CPUs does not, by this host's perf as by the newer tree's."""
    perf = (tool("perf") or ()) if newest else ("perf",)
    data = tmp_path / "x.data"
    events = [] if options[0] == "sched" else ["-e", "sched:sched_switch"]
    command = [*perf, *options, *events, "-o", str(data), "sleep", "0.1"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"perf record fails here: {done.stderr.strip()[-200:]}")
    warnings = decode(data).info["warnings"]
    assert any("one program only" in text for text in warnings) == partial
