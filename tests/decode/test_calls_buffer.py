"""A capture with a separate buffer of system calls: its losses are reported, too."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from decoded import FIXTURES

import schedscope as ss

RECORDED = FIXTURES / "linux-syscalls.capture"
COUNTED = "entries: 0\noverrun: {}\ncommit overrun: 0\ndropped events: 0\nread events: 0\n"


def opened(folder: Path, stats: dict[int, str]) -> ss.Trace:
    """The fixture with an empty second buffer, and what the kernel counted of it."""
    capture = folder / "x.capture"
    shutil.copytree(RECORDED, capture)
    for name in ("raw", "stats"):
        (capture / "calls" / name).mkdir(parents=True)
    for cpu in (0, 1):
        (capture / "calls" / "raw" / f"cpu{cpu}").touch()
    for cpu, text in stats.items():
        (capture / "calls" / "stats" / f"cpu{cpu}").write_text(text)
    return ss.open(capture, cache=folder / "cache")


@pytest.mark.parametrize(
    ("stats", "lost"),
    [
        ({0: COUNTED.format(0), 1: COUNTED.format(0)}, []),
        ({0: COUNTED.format(0), 1: COUNTED.format(5)}, [(1, "absent", 5)]),
        # The recorder did not read the counts of the second buffer.
        ({0: COUNTED.format(0)}, [(1, "absent", None)]),
    ],
)
def test_losses_of_the_system_call_buffer_are_recorded(
    tmp_path: Path, stats: dict[int, str], lost: list[tuple[int, str, int | None]]
) -> None:
    trace = opened(tmp_path, stats)
    rows = trace.losses.select("cpu", "reason", "count").collect().rows()
    assert [row for row in rows if row[1] != "chain_break"] == lost
    whole = ss.open(RECORDED, cache=tmp_path / "other")
    assert trace.system_calls.collect().equals(whole.system_calls.collect())
