"""`capture --with locks`: the locks that a program's own log names are what the trace says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import polars as pl
import pytest
from collector_runs import ROOT, Run, meta

import schedscope as ss
from schedscope.analysis.causes.lock_convoys import convoys, depth_spans
from schedscope.analysis.causes.lock_waits import lock_waits

LOAD = ROOT / "fixtures" / "lock_load.c"
Turn = tuple[int, int, int, int, int]


def recorded(folder: Path, mode: str, extras: str = "locks") -> tuple[ss.Trace, list[Turn]]:
    """A recording of the load, and its log: lock, thread, asked, had, gave."""
    program = folder / "lock_load"
    subprocess.run(["cc", "-O1", "-pthread", str(LOAD), "-o", str(program)], check=True)
    run = Run(
        "--with", extras, "-o", "x.capture", "--", "sh", "-c", f"{program} {mode} 60 >log",
        cwd=folder,
    )  # fmt: skip
    assert run.wait() == 0, run.said
    assert not run.instance()
    assert not run.leftovers()
    assert meta(folder / "x.capture")["lost"] == [], run.said
    lines = (folder / "log").read_text().splitlines()
    log = [
        (int(lock, 16), int(tid), int(asked), int(had), int(gave))
        for lock, tid, asked, had, gave in map(str.split, lines)
    ]
    assert len(log) == 240
    return ss.open(folder / "x.capture", cache=folder / "cache"), log


def told(trace: ss.Trace) -> list[str]:
    """The findings of convoys; other programs on the host may have some, too."""
    found = ss.findings(trace).filter(pl.col("topic") == "lock convoy")
    return [str(text) for text in found["text"]]


def total(spans: list[tuple[int, int]]) -> int:
    return sum(end - begin for begin, end in spans)


@pytest.mark.needs("root", "tracefs", "cc")
def test_convoy_has_its_lock_and_holder(tmp_path: Path) -> None:
    trace, log = recorded(tmp_path, "convoy")
    lock, keeper = log[0][:2]
    convoy = convoys(trace, top=1)[0]
    assert convoy.address == lock
    assert convoy.kind == "futex"
    who = trace.threads.filter(pl.col("utid") == convoy.holder).select("tid", "comm").collect()
    assert who.row(0) == (keeper, "keeps")
    # By the log a wait also has the time from the wakeup to running, which is no sleep.
    asked, _ = depth_spans([(asked, had) for _, _, asked, had, _ in log if had - asked > 20_000])
    assert 0.3 * total(asked) < convoy.waited < 1.05 * total(asked)
    slept = lock_waits(trace).filter(pl.col("address") == lock)
    waited, _ = depth_spans(zip(slept["ts"], slept["ts"] + slept["dur"], strict=True))
    assert convoy.waited == total(waited)
    kept = [
        (max(begin, had), min(end, gave))
        for begin, end in waited
        for _, tid, _, had, gave in log
        if tid == keeper and min(end, gave) > max(begin, had)
    ]
    assert convoy.held / convoy.waited == pytest.approx(total(kept) / total(waited), abs=0.1)
    assert convoy.held_running + convoy.held_runnable <= convoy.held
    texts = [text for text in told(trace) if f"the futex {lock:#x} of process" in text]
    assert len(texts) == 1
    assert f"keeps ({keeper}) released it at the end of" in texts[0]
    causes = ss.off_cpu(trace, by="cause", where=pl.col("comm") == "wants")
    futex = causes.row(by_predicate=pl.col("cause") == "futex", named=True)
    assert futex["lock"].startswith(f"futex {lock:#x} (")
    assert futex["released_by"] != "unknown"
    # No call but those for futexes was recorded.
    assert trace.metadata("ftrace", "system_calls") == "locks"
    assert trace.system_calls.select("number").unique().collect().height <= 3


@pytest.mark.needs("root", "tracefs", "cc")
def test_condition_waits_and_uncontended_locks_are_not_convoys(tmp_path: Path) -> None:
    """Threads sleep in futex calls for as long as in a convoy, and no lock is to blame.

    The mutex beside the condition is one, and on a busy host a thread may wait for it: for a small
    part of that time.
    """
    trace, log = recorded(tmp_path, "apart", "locks,syscalls")
    assert trace.metadata("ftrace", "system_calls") == "all"
    waits = lock_waits(trace).join(
        trace.threads.select("utid", "comm").collect(), on="utid", how="left"
    )
    idle = waits.filter((pl.col("comm") == "idles") & ~pl.col("is_lock"))
    assert idle["dur"].sum() > 0.5 * (log[-1][4] - log[0][2])
    assert idle["releaser"].null_count() < 0.1 * idle.height
    own = {turn[0] for turn in log}
    assert waits.filter(pl.col("address").is_in(own)).is_empty()
    (pid,) = idle["pid"].unique()
    queued = sum(convoy.total for convoy in convoys(trace) if convoy.pid == pid)
    assert queued < 0.15 * idle["dur"].sum()


@pytest.mark.parametrize(
    ("machine", "events", "rc", "said"),
    [
        ("x86_64", ["lock/contention_begin", "raw_syscalls/sys_enter"], 0, "only=id == 202 ||"),
        ("riscv64", ["lock/contention_begin", "raw_syscalls/sys_enter"], 0, "only=id == 98 ||"),
        ("aarch64", ["raw_syscalls/sys_enter"], 0, "note=this kernel has no event lock/contention"),
        ("x86_64", ["lock/contention_begin"], 1, "no event raw_syscalls/sys_enter"),
        ("s390x", ["raw_syscalls/sys_enter"], 0, "only=id == 238 ||"),
        ("ppc64le", ["raw_syscalls/sys_enter"], 0, "only=id == 221 ||"),
        ("armv7l", ["raw_syscalls/sys_enter"], 0, "only=id == 240 || id == 422 ||"),
        ("i686", ["raw_syscalls/sys_enter"], 0, "only=id == 240 || id == 422 ||"),
        ("m68k", ["lock/contention_begin", "raw_syscalls/sys_enter"], 1, "futex call on m68k"),
    ],
)
def test_missing_kernel_events_are_named(
    tmp_path: Path, machine: str, events: list[str], rc: int, said: str
) -> None:
    for event in events:
        (tmp_path / "events" / event).mkdir(parents=True)
    script = f"""set -u
        note() {{ echo "note=$*"; }}
        uname() {{ echo {machine}; }}
        . {ROOT}/collectors/linux/ftrace.sh
        ftrace_root={tmp_path} recorder_extras=locks fail_text=
        ftrace_locks_wanted; echo "rc=$? only=$ftrace_calls_only locks=$ftrace_locks $fail_text"
    """
    script = "ftrace_calls_only=\n" + script
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert f"rc={rc} " in done.stdout
    assert said in done.stdout
    assert ("locks=lock/" in done.stdout) == (events[0] == "lock/contention_begin")
