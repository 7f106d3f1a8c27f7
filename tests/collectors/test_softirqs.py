"""`capture --with irq`: as many softirqs of each kind as the kernel itself counted."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl
import pytest
from collector_runs import Run, meta

import schedscope as ss

LOAD = """
import socket, time
def read():
    begin = time.monotonic_ns()
    with open("/proc/softirqs") as file:
        text = file.read()
    return begin, text, time.monotonic_ns()
here, there = socket.socketpair()
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.bind(("127.0.0.1", 0))
first = read()
for _ in range(200):
    out.sendto(b"x", out.getsockname())
    time.sleep(0.005)
last = read()
print(repr((first, last)))
"""


def counted(text: str) -> dict[tuple[int, int], int]:
    """Of each vector and CPU, by its number, from the text of /proc/softirqs."""
    head, *lines = text.splitlines()
    cpus = [int(word.removeprefix("CPU")) for word in head.split()]
    found = {}
    for vector, line in enumerate(lines):
        for cpu, number in zip(cpus, line.split()[1:], strict=True):
            found[(vector, cpu)] = int(number)
    return found


@pytest.mark.needs("root", "tracefs")
def test_softirqs_of_each_kind_equal_the_kernels_count(tmp_path: Path) -> None:
    import ast

    (tmp_path / "load.py").write_text(LOAD)
    run = Run(
        "--with", "irq", "-o", "x.capture", "--",
        "sh", "-c", f"{sys.executable} -I -S load.py >log", cwd=tmp_path,
    )  # fmt: skip
    assert run.wait() == 0, run.said
    assert meta(tmp_path / "x.capture")["lost"] == [], run.said
    first, last = ast.literal_eval((tmp_path / "log").read_text())
    before, after = counted(first[1]), counted(last[1])
    trace = ss.open(tmp_path / "x.capture", cache=tmp_path / "cache")
    soft = trace.irqs.filter(pl.col("kind").cast(pl.String) == "soft").collect()

    def between(begin: int, end: int) -> dict[tuple[int, int], int]:
        rows = soft.filter(pl.col("ts").is_between(begin, end)).group_by("id", "cpu").len()
        return {(vector, cpu): n for vector, cpu, n in rows.rows()}

    # Reading the file takes microseconds: the lower bound is what lies surely within, the upper one
    # all.
    sure, possible = between(first[2], last[0]), between(first[0], last[2])
    total = 0
    for key in after:
        kernel = after[key] - before[key]
        total += kernel
        assert sure.get(key, 0) <= kernel <= possible.get(key, 0), (key, kernel)
    # Each datagram over the loopback device causes at least one network softirq.
    assert sum(n for (vector, _), n in sure.items() if vector == 3) >= 150
    assert total > 300
