"""A hole of any length takes no room in a file: reading it takes neither memory nor patience."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import schedscope as ss
from schedscope.errors import FormatError, StorageError
from schedscope.parsers.files import read_small

FIXTURES = Path(__file__).parents[2] / "fixtures"
LONG = 1 << 40


def hole(path: Path, length: int = LONG) -> None:
    with path.open("ab") as file:
        file.truncate(length)


def test_a_hole_of_sub_buffers_is_refused(tmp_path: Path) -> None:
    copy = tmp_path / "t.capture"
    shutil.copytree(FIXTURES / "linux-ftrace-mixed.capture", copy)
    (copy / "raw" / "cpu0.zst").unlink()
    hole(copy / "raw" / "cpu0")
    with pytest.raises(FormatError, match="sub-buffers after each other without an event"):
        ss.open(copy, cache=tmp_path / "cache")


@pytest.mark.parametrize("name", ["linux-bpftrace.capture", "linux-dtrace.capture", "text"])
def test_a_line_without_an_end_takes_no_memory_and_ctrl_c_ends_it(
    name: str, tmp_path: Path
) -> None:
    if name == "text":
        copy = Path(shutil.copy(FIXTURES / "text-perf-script.txt", tmp_path / "t.txt"))
        hole(copy)
    else:
        copy = tmp_path / name
        shutil.copytree(FIXTURES / name, copy)
        (copy / "checksums").unlink(missing_ok=True)
        hole(copy / "events.txt")

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        signal.signal(signal.SIGINT, signal.default_int_handler)

    process = subprocess.Popen(
        [sys.executable, "-m", "schedscope", "latency", str(copy), "--refresh"],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "home")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limited,
    )
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(3)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGINT, said
    assert "Traceback" not in said


def _trace(folder: Path) -> object:
    return ss.Trace.read(folder)


def _workload(folder: Path) -> object:
    from schedscope.simulator.workloads.workload import read_workload

    return read_workload(folder)


@pytest.mark.parametrize(("name", "read"), [("trace.json", _trace), ("workload.json", _workload)])
def test_a_small_file_is_small(name: str, read: Callable[[Path], object], tmp_path: Path) -> None:
    hole(tmp_path / name)
    with pytest.raises(StorageError, match="it is longer than"):
        read(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(StorageError, match="it is not a regular file"):
        read(tmp_path)


def test_a_small_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"12345")
    assert read_small(tmp_path / "small", 5) == b"12345"
    with pytest.raises(OSError, match="it is longer than 4 bytes"):
        read_small(tmp_path / "small", 4)
