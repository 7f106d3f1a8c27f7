"""A recording agrees with threads that logged for how long they did not run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import polars as pl
import pytest
from collector_runs import CAPTURE

import schedscope as ss

PROGRAM = Path(__file__).with_name("gaps.c")
NOTES = ["tid", "begin", "end", "waited", "longest"]
CLOCKS = 1_000_000
"""Reading the clock and the kernel's file takes time, in which a thread may wait as well (ns)."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("program") / "gaps"
    subprocess.run(["cc", "-O1", "-pthread", "-o", made, PROGRAM], check=True)
    return made


def recorded(program: Path, tool: str, folder: Path) -> tuple[ss.Trace, pl.DataFrame]:
    """Three threads per CPU for a second and a half, and what they logged."""
    log, threads = folder / "notes", 3 * (os.cpu_count() or 1)
    command = [program, log, str(threads), "1.5"]
    subprocess.run(
        ["sh", CAPTURE, "-q", "-t", tool, "-o", folder / "x.capture", "--", *command],
        check=True,
        timeout=120,
    )
    rows = [[int(word) for word in line.split()] for line in log.read_text().splitlines()]
    trace = ss.open(folder / "x.capture", cache=folder / "cache")
    return trace, pl.DataFrame(rows, NOTES, orient="row")


@pytest.mark.needs("root", "cc", "tracefs")
@pytest.mark.parametrize("tool", ["ftrace", pytest.param("perf", marks=pytest.mark.needs("perf"))])
def test_bounds_of_sums_contain_the_counts_of_threads_and_kernel(
    tool: str, program: Path, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    """On any load of the host, and whatever its kernel omits."""
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel has no /proc/PID/schedstat (CONFIG_SCHED_INFO)")
    trace, notes = recorded(program, tool, tmp_path)
    low, high, measured = 0, 0, 0.0
    for tid, begin, end, waited, longest in notes.iter_rows():
        mine = pl.col("tid") == tid
        window = trace.between(f"{begin - trace.origin}ns", f"{end - trace.origin}ns")
        row = ss.latency(window, where=mine).row(0, named=True)
        slack = CLOCKS + waited // 100
        assert row["total"] - slack <= waited <= row["total_high"] + slack, (tid, waited, row)
        # A wait lies within a jump of the clock; a jump may contain several waits.
        assert row["max"] <= longest + CLOCKS, (tid, longest, row)
        assert longest <= row["total_high"] + slack, (tid, longest, row)
        low, high = low + row["total"], high + row["total_high"]
        measured += row["coverage"] * row["total_high"]
    kernel = int(notes["waited"].sum())
    assert kernel > 0.5e9, "three to a CPU: there was something to compare"
    assert 0.99 * low <= kernel <= 1.01 * high
    record_property("coverage", measured / high)
    print(f"{tool}: run_delay {kernel / 1e6:.1f} ms, {low / 1e6:.1f} to {high / 1e6:.1f} ms given")
    print(f"{tool}: {measured / high:.2%} of it measured")
