"""Inputs that would hang, fill the disk or panic end in one sentence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from schedscope import _native
from schedscope.errors import FormatError, UsageError

FIXTURES = Path(__file__).parents[2] / "fixtures"
LOSSY = FIXTURES / "linux-ftrace-lossy.capture"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("linux-trace-cmd-yield.dat", "buffer .*salvage .*tsc_hz"),
        ("linux-ftrace-lossy.capture", "salvage .*tsc_hz"),
        ("text-tracefs.txt", "hierarchy "),
        ("perf-sched.data", "hierarchy "),
    ],
)
def test_unknown_option_is_refused_with_the_known_ones(name: str, known: str) -> None:
    with pytest.raises(UsageError, match=f'no option "bufer".*{known}'):
        _native.decode(str(FIXTURES / name), {"bufer": "x"})


@pytest.mark.parametrize(
    "name", ["raw/cpu0", "stats/cpu0", "cpus.tsv", "threads.tsv", "events/header_page"]
)
def test_pipe_inside_a_capture_is_refused_without_blocking(tmp_path: Path, name: str) -> None:
    capture = Path(shutil.copytree(LOSSY, tmp_path / "copy.capture"))
    (capture / name).unlink()
    os.mkfifo(capture / name)
    with pytest.raises(FormatError, match=f"{name} is a pipe or device"):
        _native.decode(str(capture))


@pytest.mark.parametrize("to", ["pipe", "/dev/zero"])
def test_recorder_messages_must_be_a_regular_file(tmp_path: Path, to: str) -> None:
    capture = Path(shutil.copytree(FIXTURES / "linux-dtrace.capture", tmp_path / "copy.capture"))
    messages = capture / "stderr.txt"
    messages.unlink()
    if to == "pipe":
        os.mkfifo(messages)
    else:
        messages.symlink_to(to)
    with pytest.raises(FormatError, match=r"stderr\.txt is a pipe or device"):
        _native.decode(str(capture))


def test_the_engine_opens_files_of_traces_in_one_place() -> None:
    """A pipe elsewhere would block the reader, and no signal would end it."""
    engine = FIXTURES.parent / "native"
    opens = re.compile(r"\bFile::open\(|\bfs::read(_to_string)?\(")
    found = {
        str(path.relative_to(engine))
        for path in engine.glob("*/src/**/*.rs")
        if not path.is_relative_to(engine / "fuzz")
        and opens.search(path.read_text().split("#[cfg(test)]")[0])
    }
    assert found == {"ground/src/regular_file.rs"}


def test_decompression_bomb_is_refused(tmp_path: Path) -> None:
    capture = Path(shutil.copytree(LOSSY, tmp_path / "copy.capture"))
    raw = capture / "raw" / "cpu0"
    raw.unlink()
    zeros = subprocess.run(
        ["head", "-c", "300M", "/dev/zero"], check=True, capture_output=True
    ).stdout
    subprocess.run(["zstd", "-q", "-o", f"{raw}.zst"], input=zeros, check=True)
    with pytest.raises(FormatError, match=r"cpu0.zst expands to more than \d+ MB"):
        _native.decode(str(capture))


KTR = (
    '1 {cpu} 100 KTRGRAPH group:"thread", id:"a tid 100500", state:"running", '
    "attributes: prio:120\n"
)


@pytest.mark.parametrize("cpu", [65535, 8192])
def test_ktr_text_with_an_absurd_cpu_is_refused(tmp_path: Path, cpu: int) -> None:
    path = tmp_path / "ktr.txt"
    path.write_text(KTR.format(cpu=0) + KTR.format(cpu=cpu))
    with pytest.raises(FormatError, match=f"line 2: CPU {cpu}.*numbers below 8192"):
        _native.decode(str(path), {"tsc_hz": "1000000000"})


def test_text_with_an_absurd_cpu_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    line = "a-1 [{}] 1.000001: sched_wakeup: comm=b pid=2 prio=120 target_cpu=0\n"
    path.write_text(line.format("000") + line.format("9000"))
    with pytest.raises(FormatError, match=r"a CPU with the number 9000.*numbers below 8192"):
        _native.decode(str(path))


def test_a_capture_of_more_cpus_than_descriptors_opens(tmp_path: Path) -> None:
    """1,100 CPUs have 1,100 files, and the usual limit is 1,024."""
    capture = Path(shutil.copytree(LOSSY, tmp_path / "copy.capture"))
    for cpu in range(2, 1100):
        (capture / "raw" / f"cpu{cpu}").write_bytes(b"")
    code = (
        "import resource, sys; from schedscope import _native; "
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard)); "
        "print(_native.decode(sys.argv[1])[1])"
    )
    import resource
    import sys

    if 0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2000:
        pytest.skip("this host allows no more descriptors")
    done = subprocess.run(
        [sys.executable, "-c", code, str(capture)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert '"ncpu": 1100' in done.stdout
