"""`capture --with block`: sleeps for the disk are those of a program's own log, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from collector_runs import ROOT, Run, meta
from tools import tool

import schedscope as ss

LOAD = ROOT / "fixtures" / "disk_load.py"
ROUNDS = 40


@pytest.mark.needs("root", "tracefs")
@pytest.mark.parametrize("extras", ["block", "block,syscalls"])
def test_sleeps_for_the_disk_are_those_of_the_log(tmp_path: Path, extras: str) -> None:
    if not os.major(tmp_path.stat().st_dev):
        pytest.skip(f"{tmp_path} is not on a disk")
    run = Run(
        "--with", extras, "-o", "x.capture", "--",
        "sh", "-c", f"echo | {sys.executable} -I -S {LOAD} {tmp_path} {ROUNDS} >log", cwd=tmp_path,
    )  # fmt: skip
    assert run.wait() == 0, run.said
    assert not run.instance()
    assert not run.leftovers()
    assert meta(tmp_path / "x.capture")["lost"] == [], run.said
    trace = ss.open(tmp_path / "x.capture", cache=tmp_path / "cache")
    pid = as_logged(trace, tmp_path / "log")
    # The sleep as of vfork ends by no signal, too, and is not said to be for the disk.
    mine = ss.off_cpu(trace, where=pl.col("tid") == pid)
    disk = mine.filter(cause="disk")
    assert set(disk["evidence"]) == {"its request"}
    assert disk["n"].sum() >= 0.9 * ROUNDS
    other = mine.filter((pl.col("state") == "blocked") & (pl.col("cause") != "disk"))
    assert other["n"].sum() >= 0.5 * ROUNDS
    if extras == "block":
        assert set(other["evidence"]) == {"no call seen"}
    else:
        assert "pread64" in disk["reason"].to_list()
        assert "process" in other["cause"].to_list()
    # Nothing is counted twice or forgotten.
    assert ss.off_cpu(trace, by="cause")["total"].sum() == ss.off_cpu(trace)["total"].sum()


EVENTS = (
    *("sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup", "sched:sched_wakeup_new"),
    *("sched:sched_migrate_task", "sched:sched_process_fork", "sched:sched_process_exit"),
    *("block:block_rq_issue", "block:block_rq_complete"),
)


@pytest.mark.needs("root", "tracefs", "perf")
def test_a_perf_data_with_requests_to_disks_says_the_same(tmp_path: Path) -> None:
    if not os.major(tmp_path.stat().st_dev):
        pytest.skip(f"{tmp_path} is not on a disk")
    chosen = [word for event in EVENTS for word in ("-e", event)]
    # perf may see another root folder than we do.
    until = f"touch {tmp_path}/begun; until [ -e {tmp_path}/done ]; do sleep 0.05; done"
    perf = subprocess.Popen(
        [*(tool("perf") or ()), "record", "-q", "-k", "CLOCK_MONOTONIC", "-a", "-m", "4096",
         *chosen, "-o", str(tmp_path / "perf.data"), "--", "sh", "-c", until],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    # On some hosts perf loses nearly all events of idle CPUs: none is idle.
    spin = [sys.executable, "-c", "import os\nos.nice(19)\nwhile True: pass"]
    spinning = [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)]
    try:
        while not (tmp_path / "begun").exists():
            assert perf.poll() is None
            time.sleep(0.02)
        load = [sys.executable, "-I", "-S", str(LOAD), str(tmp_path), str(ROUNDS)]
        with (tmp_path / "log").open("w") as log:
            subprocess.run(load, input=b"\n", stdout=log, check=True)
    finally:
        for process in spinning:
            process.kill()
            process.wait()
        (tmp_path / "done").touch()
        assert perf.wait(timeout=60) == 0
    as_logged(ss.open(tmp_path / "perf.data", cache=tmp_path / "cache"), tmp_path / "log", 0.7)


def as_logged(trace: ss.Trace, path: Path, share: float = 0.9) -> int:
    """The program's pid; its sleeps for the disk lie in reads from the disk, and in no others.

    `share`: of those reads that have one, at least. Without block_io_start a request that a worker
    of the kernel gave to the disk is nobody's.
    """
    lines = [line.split() for line in path.read_text().splitlines()]
    pid = int(lines[0][1])
    log = [(what, int(begin), int(end)) for what, begin, end in lines[1:]]
    assert len(log) == 4 * ROUNDS
    (utid,) = trace.threads.filter(pl.col("tid") == pid).collect()["utid"]
    slept = disk_sleeps(trace, utid)
    inside = {what: 0 for what, _, _ in log}
    for what, begin, end in log:
        within = [(at, until) for at, until in slept if begin < at and until < end]
        inside[what] += bool(within)
        assert sum(until - at for at, until in within) < end - begin
    assert inside["disk"] >= share * ROUNDS, inside
    assert inside["cached"] + inside["vfork"] + inside["pipe"] == 0, inside
    return pid


def disk_sleeps(trace: ss.Trace, utid: int) -> list[tuple[int, int]]:
    """When each of a thread's sleeps for the disk began and ended."""
    from schedscope.analysis._base.disk_sleeps import disk_sleeps as found

    times = trace.states.filter(pl.col("utid") == utid).select("utid", "ts", "dur", "state")
    rows = found(trace, times).join(times, on=["utid", "ts"]).collect()
    return [(ts, ts + dur) for ts, dur in rows.select("ts", "dur").sort("ts").rows()]


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ([], "this kernel has no event block/block_rq_issue, which --with block records"),
        (["block_rq_issue"], "events=block/block_rq_issue block/block_rq_complete \n"),
        (
            ["block_rq_issue", "block_io_start"],
            "events=block/block_rq_issue block/block_rq_complete block/block_io_start \n",
        ),
    ],
)
def test_what_is_recorded_is_what_the_kernel_has(
    tmp_path: Path, there: list[str], said: str
) -> None:
    for event in there:
        (tmp_path / "events" / "block" / event).mkdir(parents=True)
    script = f"""
        . {ROOT}/collectors/linux/ftrace.sh
        ftrace_find() {{ ftrace_root={tmp_path}; }}
        ftrace_pick_buffer() {{ buffer_kb=1024; }}
        ftrace_chosen() {{ ftrace_of=command; }}
        host_clock() {{ clock_ns=1; }}
        guard_start() {{ return 1; }}
        capture_pid=1 ring= fail_text= recorder_extras=block ftrace_events=
        ftrace_prepare; echo "events=${{ftrace_events# }}"; echo "$fail_text"
    """
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert said in done.stdout, done.stdout + done.stderr
