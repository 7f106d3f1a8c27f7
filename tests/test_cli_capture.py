"""`schedscope capture`: the real program on the real kernel, then the first summary."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("linux", "root", "tracefs")


def capture(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "schedscope", "capture", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_it_records_summarises_and_hands_on_the_exit_code(tmp_path: Path) -> None:
    """A shell that waits for its sleeping child: both are in the table."""
    done = capture(
        "-o", "x.capture", "-t", "ftrace", "--", "sh", "-c", "sleep 0.2; exit 7", cwd=tmp_path
    )
    assert done.returncode == 7, done.stderr
    assert (tmp_path / "x.capture" / "capture.json").is_file()
    assert (tmp_path / "x.sched" / "trace.json").is_file()
    assert done.stdout.startswith("x.capture · Linux")
    assert "waits" in done.stdout


def test_without_summary_nothing_is_converted(tmp_path: Path) -> None:
    done = capture("-o", "x.capture", "-q", "--no-summary", "--", "true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["x.capture"]


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.capture").mkdir()
    done = capture("-o", "x.capture", "-d", "1", "--no-summary", cwd=tmp_path)
    assert done.returncode not in (0, 1)
    assert "x.capture" in done.stderr
    assert list((tmp_path / "x.capture").iterdir()) == []


def test_an_older_capture_is_not_summarised_as_the_new_one(tmp_path: Path) -> None:
    assert capture("-o", "x", "-q", "--no-summary", "--", "true", cwd=tmp_path).returncode == 0
    for words in (["-d", "0.1"], ["--", "/no/such/command"]):
        done = capture("-o", "x", *words, cwd=tmp_path)
        assert done.returncode == 125
        assert done.stdout == ""


def test_the_summary_follows_a_name_without_its_ending(tmp_path: Path) -> None:
    done = capture("-o", "x/", "-q", "--", "true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("x.capture · Linux")


def test_a_table_without_rows_is_refused_before_recording(tmp_path: Path) -> None:
    done = capture("-o", "x", "--top", "0", "--", "true", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_recording_not_the_summary(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The capture is complete, readable, and no tracing instance is left."""
    process = subprocess.Popen(
        [sys.executable, "-m", "schedscope", "capture", "-t", "ftrace", "-o", "x.capture"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    said = process.stderr.readline()
    assert "recording with ftrace" in said
    deadline = time.monotonic() + 30
    while not (list(tmp_path.glob("*.partial/raw/cpu0"))) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert "wrote x.capture" in err
    assert out.startswith("x.capture · Linux")
    assert process.returncode in (0, 128 + number)
