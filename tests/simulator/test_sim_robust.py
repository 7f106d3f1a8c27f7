"""Impossible and huge workloads from the command line: one clear sentence, or an end."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from schedscope.simulator.workloads.builder import Builder

POLICIES = ("rr", "eevdf-6.17", "ule-14")


def simulate(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "schedscope", "simulate", *words],
        capture_output=True,
        text=True,
        timeout=120,
    )


def never_signalled(b: Builder) -> None:
    b.thread("asker").run("1ms").wait_for()
    b.thread("other").run("5ms")


def never_ending(b: Builder) -> None:
    b.thread("ever").run("1ms").repeat()


def spinning(b: Builder) -> None:
    b.thread("spin").yield_().repeat(10**9)


def nowhere(b: Builder) -> None:
    b.thread("lost", cpus="7").run("1ms")


def sent_nowhere(b: Builder) -> None:
    b.thread("mover").run("1ms").set_affinity("9").run("1ms")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("build", "words"),
    [
        (never_signalled, '1 thread waits for what no thread will do: 0 ("asker")'),
        (never_ending, 'thread 0 ("ever") repeats for ever and no time limit is given'),
        (spinning, "simulated time stopped at 0 ns"),
        (nowhere, 'thread 0 ("lost") may run on none of the 2 CPUs'),
        (sent_nowhere, 'thread 0 ("mover"), step 1: it sets a mask without any CPU'),
    ],
)
def test_endless_workload_is_refused_in_one_sentence(
    build: Callable[[Builder], None], words: str, policy: str, tmp_path: Path
) -> None:
    """Exit 2, the thread by name, nothing left behind."""
    b = Builder()
    build(b)
    b.workload().save(tmp_path / "bad.workload")
    out = tmp_path / "out.sched"
    ran = simulate(
        str(tmp_path / "bad.workload"), "--policy", policy, "--cpus", "2", "-o", str(out)
    )
    assert ran.returncode == 2
    assert words in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1
    assert "expected" in ran.stderr
    assert "Hint:" in ran.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["bad.workload"]


@pytest.mark.parametrize(
    ("words", "ended"),
    [(("--stop-at", "3s"), "time limit"), (("--max-events", "100"), "event limit")],
)
def test_limit_ends_the_run_and_is_reported(words: tuple[str, str], ended: str) -> None:
    ran = simulate("hogs:4,time=10s", "--policy", "rr", "--cpus", "2", *words)
    assert ran.returncode == 0, ran.stderr
    assert f"the simulation ended at its {ended}, not with its workload" in ran.stdout


@pytest.mark.release
def test_simulation_of_a_million_threads_ends() -> None:
    ran = simulate("hogs:1000000,time=1us", "--policy", "rr", "--cpus", "64")
    assert ran.returncode == 0, ran.stderr
    assert "Workload of 1,000,000 threads" in ran.stdout


# -- progress and Ctrl-C --------------------------------------------------------------

LONG = ["hogs:2000,time=1000s", "--policy", "rr", "--cpus", "2"]
"""Would take minutes."""


def environment() -> dict[str, str]:
    """The environment for a process that imports the same package from another folder."""
    path = os.pathsep.join(os.path.abspath(p) for p in sys.path if p)
    return {**os.environ, "PYTHONPATH": path}


def in_a_pipe(folder: Path) -> subprocess.Popen[str]:
    """The long simulation in `folder`, in the middle of writing out.sched."""
    process = subprocess.Popen(
        [sys.executable, "-m", "schedscope", "simulate", *LONG, "-o", "out.sched"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not any(folder.iterdir()):  # It writes beside the target until it is complete.
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


def test_ctrl_c_ends_a_simulation_and_leaves_nothing(tmp_path: Path) -> None:
    """Interrupted while running: one word, exit 130, no output folder and no leftovers."""
    process = in_a_pipe(tmp_path)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err == "schedscope: interrupted\n"
    assert list(tmp_path.iterdir()) == []


ON_THE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(2, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "schedscope", "simulate", *sys.argv[1:]])
"""
WIPE = "\r\x1b[K"


class Terminal:
    """A simulation whose stderr and Ctrl-C are its own terminal; its results go to a pipe."""

    def __init__(self, *words: str, cwd: Path) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_THE_TERMINAL, *words],
            cwd=cwd,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""

    def read_until(self, words: str | None) -> None:
        """Reads its output until `words` came (None: until it closes the terminal)."""
        deadline = time.monotonic() + 90
        while words is None or words not in self.shown:
            assert time.monotonic() < deadline, self.shown
            if not select.select([self._ours], [], [], 1)[0]:
                continue
            try:
                some = os.read(self._ours, 4096)
            except OSError:  # Linux's error when no process has the other end open.
                some = b""
            if not some:
                assert words is None, self.shown
                return
            self.shown += some.decode()

    def press_ctrl_c(self) -> None:
        os.write(self._ours, b"\x03")

    def end(self) -> tuple[int, str]:
        """The exit code, and the results."""
        self.read_until(None)
        out, _ = self.process.communicate(timeout=60)
        os.close(self._ours)
        return self.process.returncode, out.decode()


def test_a_long_simulation_shows_progress_on_a_terminal(tmp_path: Path) -> None:
    """Simulated time and events, which grow later."""
    terminal = Terminal(*LONG, cwd=tmp_path)
    events: list[int] = []
    while len(events) < 3:
        terminal.read_until(WIPE)
        terminal.shown = terminal.shown.partition(WIPE)[2]
        terminal.read_until(" events")
        drawn = re.fullmatch(r"simulating rr [\d.,]+ m?s, ([\d,]+) events.*", terminal.shown, re.S)
        assert drawn, terminal.shown
        events.append(int(drawn[1].replace(",", "")))
    assert events == sorted(set(events))
    terminal.press_ctrl_c()
    assert terminal.end() == (130, "")


def test_progress_is_a_bar_with_a_known_end(tmp_path: Path) -> None:
    terminal = Terminal(*LONG, "--stop-at", "1000000s", cwd=tmp_path)
    terminal.read_until(" events")
    assert re.search(r"simulating rr \[#*\.*\] +\d+ %  [\d.,]+ m?s, [\d,]+ events", terminal.shown)
    terminal.press_ctrl_c()
    assert terminal.end() == (130, "")


def test_progress_is_not_written_to_a_pipe(tmp_path: Path) -> None:
    """An equally long run without a terminal: stderr has only the interruption."""
    process = in_a_pipe(tmp_path)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert err == "schedscope: interrupted\n"


def test_ctrl_c_on_the_terminal_ends_a_simulation(tmp_path: Path) -> None:
    """The key itself, while progress is shown: the line is cleared, one word, 130, nothing left."""
    terminal = Terminal(*LONG, "-o", "out.sched", cwd=tmp_path)
    terminal.read_until("simulating rr")
    assert any(tmp_path.iterdir())  # It was in the middle of writing.
    terminal.press_ctrl_c()
    code, out = terminal.end()
    assert code == 130, terminal.shown
    after = terminal.shown.rpartition(WIPE)[2]
    assert after.strip() == "schedscope: interrupted", terminal.shown
    assert out == ""
    assert list(tmp_path.iterdir()) == []
