"""perf.data recorded and judged by the perf of this host."""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import polars as pl
import pytest
from decoded import decode
from test_perfdata import latency_rows, our_rows
from tools import tool

pytestmark = [pytest.mark.needs("root", "linux", "perf")]


def _version(perf: tuple[str, ...]) -> float:
    text = subprocess.run([*perf, "--version"], capture_output=True, text=True, check=True).stdout
    return float(".".join(text.split()[2].split(".")[:2]))


def test_a_fresh_recording_equals_perfs_own_latency(tmp_path: Path) -> None:
    """Record half a second of this host; every thread's line is the same, in one of three tries.

    Where switches are missing, perf says "context switch bugs", and its mean of a thread may be too
    high: its own rule, followed by hand over the events that `perf script` prints, gives ours. Then
    the means are left out; number of waits, longest wait and its time are still the same.

    perf before 7.0 ignores sched_waking in `sched latency`, so its verdict is no measure.
    """
    perf = tool("perf")
    assert perf is not None
    if _version(perf) < 7:
        pytest.skip("needs perf 7 or later as a judge (SCHEDSCOPE_TOOLS names a tree with one)")
    data = tmp_path / "live.data"
    record = [*perf, "sched", "record", "-o", str(data), "sleep", "0.5"]
    for _ in range(3):
        done = subprocess.run(record, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"perf sched record fails here: {done.stderr.strip()[-200:]}")
        latency = [*perf, "sched", "latency", "-p", "-i", str(data)]
        text = subprocess.run(latency, capture_output=True, text=True, check=True).stdout
        ours, perfs = our_rows(decode(data)), latency_rows(text)
        if "context switch bugs" in text:
            ours, perfs = ([row[:2] + row[3:] for row in rows] for rows in (ours, perfs))
        if ours == perfs:
            break
    assert ours == perfs


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


def test_counters_in_samples_tell_of_losses_as_the_records_do(tmp_path: Path) -> None:
    """PERF_FORMAT_LOST: each sample has how many of its event were lost so far.

    The LOST records of a small buffer are taken out; what the counters say is left, once.
    """
    data = tmp_path / "read.data"
    events = "{sched:sched_switch,sched:sched_waking}:S"
    load = ["perf", "bench", "-f", "simple", "sched", "pipe", "-l", "20000"]
    record = ["perf", "record", "-q", "-a", "-R", "-c", "1", "-m", "2", "-e", events]
    done = subprocess.run([*record, "-o", str(data), "--", *load], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"perf record fails here: {done.stderr.strip()[-200:]}")
    script = subprocess.run(
        ["perf", "script", "-D", "-i", str(data)], capture_output=True, text=True, errors="replace"
    )
    counted: dict[str, int] = {}
    for sample_id, lost in re.findall(r"id ([0-9a-f]{16}), value \S+, lost (\d+)", script.stdout):
        counted[sample_id] = max(counted.get(sample_id, 0), int(lost))
    if not sum(counted.values()):
        pytest.skip("this perf does not count lost samples, or lost none")
    raw = bytearray(data.read_bytes())
    at, size = struct.unpack_from("<QQ", raw, 40)
    end = at + size
    while at < end:
        kind, _, length = struct.unpack_from("<IHH", raw, at)
        if kind in (2, 13):
            # An id that nobody looks at: THROTTLE.
            struct.pack_into("<I", raw, at, 5)
        at += length
    data.write_bytes(raw)
    trace = decode(data)
    placed = trace.losses.filter(pl.col("reason") == "overrun").collect()["count"].sum()
    unplaced = sum(loss["count"] for loss in trace.info["unplaced_losses"])
    assert placed + unplaced == sum(counted.values())
