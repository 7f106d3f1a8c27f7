"""Any number of threads writes the same files, and ends as one thread does."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import schedscope as ss
from schedscope import _native
from schedscope.errors import SchedscopeError

FIXTURES = Path(__file__).parents[2] / "fixtures"


def _is_trace(path: Path) -> bool:
    try:
        _native.recognise(path)
    except SchedscopeError:
        return False
    return True


TRACES = [path for path in sorted(FIXTURES.iterdir()) if _is_trace(path)]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many batches of events of each of 6 CPUs, in compressed chunks."""
    path = tmp_path_factory.mktemp("jobs") / "large.dat"
    _native.synthesize_trace_dat(path, 400_000, 6, 300, 1, {"compression": "zstd"})
    return path


def converted(path: Path, folder: Path, jobs: int) -> dict[str, bytes]:
    """Every written file, and trace.json."""
    folder.mkdir()
    about = _native.convert(path, folder, jobs=jobs)
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    return files | {"trace.json": about.encode()}


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_converted_bytes_do_not_depend_on_jobs(path: Path, tmp_path: Path) -> None:
    one = converted(path, tmp_path / "1", 1)
    assert len(one["waits.parquet"]) > 0
    for jobs in (2, 3):
        assert converted(path, tmp_path / str(jobs), jobs) == one


def test_converted_bytes_of_a_long_trace_do_not_depend_on_jobs(large: Path, tmp_path: Path) -> None:
    one = converted(large, tmp_path / "1", 1)
    for jobs in (2, 3, 8):
        assert converted(large, tmp_path / str(jobs), jobs) == one
    tables = ss.read_tables(large, "waits", "switches", jobs=1)
    for name, frame in ss.read_tables(large, "waits", "switches", jobs=4).items():
        assert frame.equals(tables[name])


@pytest.mark.parametrize("at", [0.3, 0.7, 0.99])
def test_damage_is_reported_the_same_for_any_jobs(large: Path, tmp_path: Path, at: float) -> None:
    """The damaged chunk of one CPU is found by any of the threads."""
    damaged = bytearray(large.read_bytes())
    place = int(len(damaged) * at)
    damaged[place : place + 64] = bytes(64)
    path = tmp_path / "damaged.dat"
    path.write_bytes(damaged)
    messages = []
    for jobs in (1, 2, 4):
        with pytest.raises(ss.FormatError) as caught:
            ss.convert(path, tmp_path / "out.sched", jobs=jobs)
        messages.append(str(caught.value))
        assert [file.name for file in tmp_path.iterdir()] == ["damaged.dat"]
    assert messages[0] == messages[1] == messages[2]


@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_exception_of_the_caller_is_raised_unchanged(
    large: Path, tmp_path: Path, jobs: int
) -> None:
    calls = []

    def progress(done: int, total: int) -> None:
        calls.append(done)
        if done > total / 2:
            raise ZeroDivisionError("enough")

    with pytest.raises(ZeroDivisionError, match="enough"):
        ss.convert(large, tmp_path / "out.sched", progress=progress, jobs=jobs)
    assert len(calls) > 3
    assert calls == sorted(calls)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_ctrl_c_ends_all_threads_and_leaves_nothing(large: Path, tmp_path: Path, jobs: int) -> None:
    """Pressed while the second half is read."""
    script = f"""
import os, signal, sys
from schedscope import _native, cli
real = _native.convert
def convert(path, folder, options, progress, layout, jobs):
    def pressed(done, total):
        progress(done, total)
        if done > total / 2:
            os.kill(os.getpid(), signal.SIGINT)
    return real(path, folder, options, pressed, layout, jobs)
_native.convert = convert
words = ["convert", {os.fspath(large)!r}, "-o", {os.fspath(tmp_path / "out.sched")!r}]
sys.exit(cli.main([*words, "--jobs", "{jobs}"]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert done.returncode == 128 + signal.SIGINT
    assert b"Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_failed_write_is_reported_in_one_sentence(large: Path, tmp_path: Path, jobs: int) -> None:
    """The system refuses the second half of the largest table, in any of the threads."""
    sizes = [len(body) for body in converted(large, tmp_path / "whole", 1).values()]
    shutil.rmtree(tmp_path / "whole")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schedscope", "convert", large, "--jobs", str(jobs)),
            *("-o", tmp_path / "out.sched"),
        ],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (max(sizes) // 2,) * 2),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    *_, last = done.stderr.splitlines()
    assert "states.parquet" in last
    assert os.strerror(errno.EFBIG) in last
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("jobs", [0, -1])
def test_jobs_below_one_are_refused(tmp_path: Path, jobs: int) -> None:
    with pytest.raises(ss.UsageError, match=f"jobs: {jobs}; expected a number of threads"):
        ss.convert(TRACES[0], tmp_path / "out.sched", jobs=jobs)
    assert not list(tmp_path.iterdir())
