"""`schedscope top` on this host: correct, usable in a terminal, and leaving nothing behind."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

import pytest
from collector_runs import INSTANCES, eventually

from schedscope.live.recorder import _PREFIX, Interval, folder, intervals, recorder
from schedscope.live.waiting import Waiting

pytestmark = pytest.mark.needs("linux", "root", "tracefs")

WORDS = [sys.executable, "-m", "schedscope", "top"]


def left_by(pid: int) -> list[Path]:
    """Folders of that `top`."""
    return [
        place for root in ("/dev/shm", "/tmp") for place in Path(root).glob(f"{_PREFIX}{pid}-*")
    ]


def recorders_of(pid: int) -> list[int]:
    """Its children that record."""
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


@contextlib.contextmanager
def running(*words: str, columns: int = 80, **environment: str) -> Iterator[tuple[int, int]]:
    """Its pid, and the other end of its terminal of 24 lines."""
    pid, terminal = pty.fork()
    if not pid:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execve(WORDS[0], [*WORDS, *words], {**os.environ, "TERM": "xterm", **environment})
    try:
        yield pid, terminal
    finally:
        with contextlib.suppress(OSError):
            os.close(terminal)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def until(terminal: int, text: str, seconds: float = 60) -> str:
    """Its output up to and including this text."""
    shown = ""
    end = time.monotonic() + seconds
    while text not in shown:
        assert time.monotonic() < end, shown
        with contextlib.suppress(OSError):
            shown += os.read(terminal, 65536).decode(errors="replace")
    return shown


def ended(pid: int, terminal: int | None = None, seconds: float = 60) -> int:
    """Its exit code; its remaining output is read, as a terminal does."""
    end = time.monotonic() + seconds
    if terminal is not None:
        os.set_blocking(terminal, False)
    while time.monotonic() < end:
        if terminal is not None:
            with contextlib.suppress(OSError):
                os.read(terminal, 65536)
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    raise AssertionError("it does not end")


@contextlib.contextmanager
def load(code: str) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


PINNED = "import os\nos.sched_setaffinity(0, {0})\nwhile True: pass"


def test_json_table_lists_the_waiting_threads() -> None:
    """Two loops on one CPU: each waits, and their running time is at most the elapsed time."""
    with load(PINNED) as one, load(PINNED) as two:
        time.sleep(0.2)
        done = subprocess.run(
            [*WORDS, "--once", "--format", "json"], capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    length = document["end"] - document["begin"]
    rows = [row for row in document["rows"] if row["tid"] in (one, two)]
    assert len(rows) == 2
    for row in rows:
        assert row["waiting"] > length * 0.2
        assert row["waiting"] + row["running"] <= length
        assert row["longest"] >= row["p99"] > 0
    assert sum(row["running"] for row in rows) <= length
    assert 0.5e9 < length < 30e9


def test_tables_leave_no_gap_and_sums_agree_with_the_kernel() -> None:
    """A loop's running time over all tables equals the kernel's count, and so does its waiting."""

    def kernel(pid: int) -> tuple[int, int]:
        ran, waited, _ = map(int, Path(f"/proc/{pid}/schedstat").read_text().split())
        return ran, waited

    def within(pid: int, found: list[Interval]) -> tuple[int, int]:
        frames = [waiting.table(each).filter(tid=pid) for each in found]
        return (sum(int(frame["running"].sum()) for frame in frames),
                sum(int(frame["waiting"].sum()) for frame in frames))  # fmt: skip

    with load(PINNED) as pid, load(PINNED), folder() as place, recorder(place, 20) as child:
        waiting = Waiting()
        ran = waited = 0
        counts = []
        ends = []
        for number, each in enumerate(intervals(child, place, 1)):
            if ends:
                assert each.begin == ends[-1]
                assert each.gap == 0
            ends.append(each.end)
            more = within(pid, [each])
            if number:
                ran, waited = ran + more[0], waited + more[1]
            counts.append((time.monotonic_ns(), *kernel(pid)))
            if number == 4:
                break
    # The kernel is read a little after each interval's end, with the same delay each time.
    there = counts[-1][1] - counts[0][1], counts[-1][2] - counts[0][2]
    length = ends[-1] - ends[0]
    # It always wants the CPU; the rest is unknown, where switches do not match.
    unknown = length - ran - waited
    assert 0 <= unknown < 0.3 * length
    assert abs(ran - there[0]) < 0.15 * length + unknown
    assert abs(waited - there[1]) < 0.15 * length + unknown


def test_top_stays_in_place_in_a_terminal_and_ctrl_c_leaves_nothing() -> None:
    with load(PINNED), running() as (pid, terminal):
        shown = until(terminal, "\x1b[H\x1b[J", 60)
        shown += until(terminal, "\x1b[H\x1b[J", 60)
        recording = recorders_of(pid)
        assert recording
        (own,) = [each for each in INSTANCES.glob("schedscope-*") if str(recording[0]) in each.name]
        os.write(terminal, b"\x03")
        assert ended(pid, terminal) == 0
        assert not own.exists()
        assert not left_by(pid)
        assert not any(Path(f"/proc/{each}").exists() for each in recording)
    screen = shown.split("\x1b[H\x1b[J")[1]
    lines = screen.replace("\x1b[1m", "").replace("\x1b[0m", "").split("\r\n")
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "\x1b[1m" in screen, "headings are bold"


def test_no_color_and_hostile_names_print_no_escapes() -> None:
    hostile = "import ctypes, os\nctypes.CDLL(None).prctl(15, b'\\x1b[31mred', 0, 0, 0)\n" + PINNED
    with load(hostile), load(PINNED), running(NO_COLOR="1", columns=100) as (pid, terminal):
        shown = until(terminal, "\\x1b[31mred", 60)
        os.kill(pid, signal.SIGTERM)
        assert ended(pid, terminal) == 128 + signal.SIGTERM
        assert not left_by(pid)
    assert "\x1b[1m" not in shown
    assert "\x1b[31m" not in shown


def test_closed_terminal_ends_top() -> None:
    with running() as (pid, terminal):
        until(terminal, " waited ")
        recording = recorders_of(pid)
        os.close(terminal)
        assert ended(pid) != 0
        eventually(lambda: not any(Path(f"/proc/{each}").exists() for each in recording), 30)
        assert not left_by(pid)
        assert not [
            each for each in INSTANCES.glob("schedscope-*") if str(recording[0]) in each.name
        ]


def test_sigkill_ends_the_recorder_and_the_next_top_removes_the_folder(
    tmp_path: Path,
) -> None:
    process = subprocess.Popen(WORDS, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert any(" waited " in line for line in process.stdout)
    recording = recorders_of(process.pid)
    process.kill()
    process.wait()

    def gone() -> bool:
        return not [
            each for each in INSTANCES.glob("schedscope-*") if str(recording[0]) in each.name
        ]

    eventually(gone, 30)
    eventually(lambda: not any(Path(f"/proc/{each}").exists() for each in recording), 30)
    with folder():
        assert not left_by(process.pid)


def test_closed_pipe_ends_top() -> None:
    process = subprocess.Popen([*WORDS, "--every", "500ms"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.wait(60)
    assert not left_by(process.pid)


def test_duration_ends_top() -> None:
    words = [*WORDS, "--duration", "2s", "--top", "3"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert 1 <= done.stdout.count(" waited ") <= 2, "the second may come too late"
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--every", "100ms"], "0.5 to 60 seconds"),
        (["--duration", "0.5s"], "as long as one table"),
        (["--format", "csv"], "--once"),
        (["--cpu", "0"], "threads or processes of this host"),
        (["--workload"], "threads or processes of this host"),
        (["--top", "0"], "1 or more"),
    ],
)
def test_invalid_option_is_reported_in_one_sentence(words: list[str], what: str) -> None:
    done = subprocess.run([*WORDS, *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert what in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_missing_root_is_reported_in_one_sentence() -> None:
    code = "import os, sys\nos.geteuid = lambda: 1000\nfrom schedscope.cli import main\n"
    code += "sys.exit(main(['top']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert (
        done.stderr
        == "schedscope: top records this host; expected root. Hint: try sudo schedscope top\n"
    )


def test_json_has_one_line_for_each_interval() -> None:
    words = [*WORDS, "--format", "json", "--duration", "3s", "--every", "500ms"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    assert documents
    for document in documents:
        assert document["begin"] < document["end"]
        assert document["rows_in_all"] == len(document["rows"])


def test_csv_has_every_column() -> None:
    done = subprocess.run([*WORDS, "--once", "--by", "process", "--format", "csv"],
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    (head, *rows) = csv.reader(done.stdout.splitlines())
    assert head[:3] == ["process_name", "pid", "threads"]
    assert "n_wakeups" in head
    assert rows


@pytest.mark.needs("unshare")
def test_a_place_too_small_for_a_snapshot_is_reported() -> None:
    """As in a container, whose /dev/shm may have 64 MB."""
    small = 'mount -t tmpfs -o size=16m small /dev/shm && exec "$@"'
    words = ["unshare", "-m", "sh", "-c", small, "sh", *WORDS, "--once", "--every", "10s"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("schedscope: the recorder took no snapshot in /dev/shm: only ")
    assert "--every" in last
