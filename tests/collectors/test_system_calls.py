"""`capture --with syscalls`: what a program says it slept in is what the trace says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from collector_runs import ROOT, Run, meta

import schedscope as ss
from schedscope.analysis.causes.sleep_causes import causes

LOAD = ROOT / "fixtures" / "sleeping_load.py"


@pytest.mark.needs("root", "tracefs")
@pytest.mark.parametrize("extra", ["syscalls", "stacks"])
def test_a_program_sleeps_in_the_calls_that_it_notes(tmp_path: Path, extra: str) -> None:
    run = Run(
        "--with", extra, "-o", "x.capture", "--",
        "sh", "-c", f"echo | {sys.executable} -I -S {LOAD} . 20 >log", cwd=tmp_path,
    )  # fmt: skip
    assert run.wait() == 0, run.said
    assert not run.instance()
    assert not run.leftovers()
    assert meta(tmp_path / "x.capture")["lost"] == [], run.said
    trace = ss.open(tmp_path / "x.capture", cache=tmp_path / "cache")
    if extra == "syscalls":
        steps = dict(trace.system_calls.group_by("step").len().collect().rows())
        assert min(steps["enter"], steps["exit"]) > 500
    else:
        assert meta(tmp_path / "x.capture")["ftrace"]["stacks_of"] == "command"
        # Switches stand in both buffers, and are read from one.
        assert ss.check(trace).filter(pl.col("level") == "violated").is_empty()
    off = trace.states.filter(pl.col("state").cast(pl.String).is_in(["sleeping", "blocked"]))
    slept = causes(trace, off).join(trace.threads.select("utid", "tid", "pid"), on="utid")
    found = slept.filter(pl.col("tid") == pl.col("pid")).collect()
    spans = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    # The disk may be too fast for a sleep, or the page there again.
    certain = [span for span in spans if span[0] not in ("sync", "fault")]
    assert len(certain) == 7
    for cause, begin, end in certain:
        inside = (pl.col("ts") >= int(begin)) & (pl.col("ts") + pl.col("dur") <= int(end))
        inside &= (pl.col("dur") >= (int(end) - int(begin)) // 2) & (pl.col("cause") == cause)
        assert found.filter(inside).height, (cause, begin, end)


@pytest.mark.needs("root", "tracefs")
@pytest.mark.parametrize("of", ["all", "command"])
def test_only_kernel_functions_in_stacks_are_kept(tmp_path: Path, of: str) -> None:
    """With the whole list every stack says the same."""
    of_all = ["--of", "all"] if of == "all" else []
    run = Run(
        "--with", "stacks", *of_all, "-o", "x.capture", "--",
        "sh", "-c", f"echo | {sys.executable} -I -S {LOAD} . 5 >log", cwd=tmp_path,
    )  # fmt: skip
    assert run.wait() == 0, run.said
    assert not run.leftovers()
    place = "events/sleep/kernel_stack/symbols"
    kept = (tmp_path / "x.capture" / place).read_text().splitlines()
    functions = [line.split() for line in Path("/proc/kallsyms").read_text().splitlines()]
    all_ = [f"{at} {name}" for at, kind, name, *_ in functions if kind in "tTwW" and int(at, 16)]
    if sum(file.stat().st_size for file in (tmp_path / "x.capture").rglob("raw/cpu*")) > 2**25:
        pytest.skip("the host was so busy that all functions stay")
    assert set(kept) < set(all_)
    assert 10 < len(kept) < len(all_) / 20
    whole = shutil.copytree(tmp_path / "x.capture", tmp_path / "whole.capture")
    (whole / place).write_text("\n".join(all_) + "\n")
    (whole / "checksums").unlink()
    told = [
        ss.open(folder, cache=tmp_path / "cache").sleep_reasons.collect()
        for folder in (tmp_path / "x.capture", whole)
    ]
    assert told[0].height > 20
    assert told[0].equals(told[1], null_equal=True)


# Starts a process that is not waited for, and a thread; prints its pid.
TREE = """
import os, subprocess, threading, time
print(os.getpid(), flush=True)
child = subprocess.Popen(["sh", "-c", "sleep 0.3 & sleep 0.1"])
thread = threading.Thread(target=time.sleep, args=(0.2,))
thread.start()
thread.join()
child.wait()
time.sleep(0.5)
"""


@pytest.mark.needs("root", "tracefs")
@pytest.mark.parametrize("of", ["command", "all", "pid"])
def test_system_calls_are_recorded_of_the_selected_threads(tmp_path: Path, of: str) -> None:
    """The command's and of all that it starts, or everybody's, or those of a running program."""
    foreign = "import time\nwhile True: time.sleep(0.01)"
    other = subprocess.Popen([sys.executable, "-I", "-S", "-c", foreign])
    try:
        words = {"command": [], "all": ["--of", "all"], "pid": ["--of", str(other.pid)]}[of]
        run = Run(
            "--with", "syscalls,locks", *words, "-o", "x.capture", "--",
            sys.executable, "-I", "-S", "-c", TREE, cwd=tmp_path,
        )  # fmt: skip
        assert run.wait() == 0, run.said
    finally:
        other.kill()
        other.wait()
    assert not run.instance()
    assert not run.leftovers()
    about = meta(tmp_path / "x.capture")
    assert about["ftrace"]["calls_of"] == {"pid": str(other.pid)}.get(of, of)
    assert about["lost"] == [], run.said
    trace = ss.open(tmp_path / "x.capture", cache=tmp_path / "cache")
    called = trace.system_calls.join(trace.threads, on="utid").select("pid", "tid", "comm")
    threads = called.unique().collect()
    mine = int(run.answer)
    if of == "pid":
        assert set(threads["pid"]) == {other.pid}
        return
    assert (other.pid in threads["pid"]) == (of == "all")
    assert threads.filter(pl.col("pid") == mine)["tid"].n_unique() == 2
    assert threads.filter(pl.col("comm") == "sleep").height >= 2
    frame = ss.off_cpu(trace, by="pid").filter(pl.col("pid") == other.pid)
    causes_of_other = set(zip(frame["cause"], frame["evidence"], strict=True))
    if of == "command":
        assert threads.filter(pl.col("comm") == "sleep").height == 2
        assert causes_of_other == {("unknown", "not chosen")}
        # The scheduler's events are those of the whole host.
        assert frame["n"].sum() > 20
    else:
        assert ("timer", "in the call") in causes_of_other


@pytest.mark.needs("root", "tracefs")
def test_a_kill_leaves_neither_instance_and_the_calls_are_read(tmp_path: Path) -> None:
    run = Run("--with", "syscalls", "-o", "x.capture", "--", "sleep", "30", cwd=tmp_path)
    run.until("recording with")
    run.eventually(lambda: (tmp_path / "x.capture.partial" / ".scratch" / "adopted").exists())
    assert len(run.instance()) == 2
    time.sleep(0.5)
    run.process.kill()
    run.process.wait()
    run.eventually(lambda: not run.instance())
    # The watchdog ends, too, once they are gone: the command alone is left.
    run.eventually(lambda: all(line.startswith("sleep") for _, line in run.processes()))
    for pid, _ in run.processes():
        os.kill(pid, 9)
    trace = ss.open(tmp_path / "x.capture.partial", cache=tmp_path / "cache")
    assert trace.system_calls.collect().height > 10


@pytest.mark.needs("root", "tracefs")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--of", "all", "--", "true"], "add --with syscalls, locks or stacks"),
        (["--with", "syscalls", "--of", "command"], "needs a COMMAND"),
        (["--with", "syscalls", "--of", "12,", "--", "true"], "neither all, command nor pids"),
        (["--with", "locks", "--of", "99999999", "--", "true"], "no process 99999999"),
        (["--ring", "20s", "--with", "locks", "--of", "command"], "does not go with --ring"),
    ],
)
def test_invalid_selection_of_calls_is_refused(tmp_path: Path, words: list[str], said: str) -> None:
    run = Run("-t", "ftrace", "-o", "x.capture", *words, cwd=tmp_path)
    assert run.wait() == 125
    assert said in run.said
    assert not (tmp_path / "x.capture").exists()
    assert not run.instance()


@pytest.mark.needs("root", "tracefs")
def test_system_calls_are_not_recorded_by_default(tmp_path: Path) -> None:
    run = Run("-o", "x.capture", "--", "true", cwd=tmp_path)
    assert run.wait() == 0, run.said
    assert not (tmp_path / "x.capture" / "events" / "raw_syscalls").exists()
    trace = ss.open(tmp_path / "x.capture", cache=tmp_path / "cache")
    assert trace.system_calls.collect().height == 0
