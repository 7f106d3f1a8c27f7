"""Impossible and huge workloads from the command line: one clear sentence, or an end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from schedscope.simulator.builder import Builder

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
        (never_signalled, '1 thread waits for a signal that nobody will send: 0 ("asker")'),
        (never_ending, 'thread 0 ("ever") repeats for ever and no time limit is given'),
        (spinning, "time stands still at 0 ns"),
        (nowhere, 'thread 0 ("lost") may run on no CPU of the 2 there are'),
        (sent_nowhere, 'thread 0 ("mover"), step 1: it sets a mask without any CPU'),
    ],
)
def test_what_cannot_end_is_said_in_a_sentence(
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
def test_a_limit_ends_the_run_and_says_so(words: tuple[str, str], ended: str) -> None:
    ran = simulate("hogs:4,time=10s", "--policy", "rr", "--cpus", "2", *words)
    assert ran.returncode == 0, ran.stderr
    assert f"the simulation ended at its {ended}, not with its workload" in ran.stdout


def test_a_million_threads_end() -> None:
    ran = simulate("hogs:1000000,time=1us", "--policy", "rr", "--cpus", "64")
    assert ran.returncode == 0, ran.stderr
    assert "Workload of 1,000,000 threads" in ran.stdout


def test_ctrl_c_ends_it_and_leaves_nothing(tmp_path: Path) -> None:
    """Interrupted in the middle: one word, exit 130, no output folder and no rest of one."""
    words = ["hogs:2000,time=1000s", "--policy", "rr", "--cpus", "2", "-o", "out.sched"]
    process = subprocess.Popen(
        [sys.executable, "-m", "schedscope", "simulate", *words],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in sys.path if p),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not any(tmp_path.iterdir()):  # It writes beside the target until it is done.
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
