"""`capture --with block`: sleeps for the disk are those of a program's own log, and no others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

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
def test_perf_data_with_disk_requests_agrees(tmp_path: Path) -> None:
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
    as_logged(ss.open(tmp_path / "perf.data", cache=tmp_path / "cache"), tmp_path / "log", 0.4)


PERFETTO = """
buffers { size_kb: 65536 }
data_sources { config { name: "linux.ftrace" ftrace_config {
  ftrace_events: "sched/sched_switch" ftrace_events: "sched/sched_waking"
  ftrace_events: "sched/sched_wakeup" ftrace_events: "sched/sched_wakeup_new"
  ftrace_events: "task/task_newtask" ftrace_events: "task/task_rename"
  ftrace_events: "irq/irq_handler_entry" ftrace_events: "irq/irq_handler_exit"
  ftrace_events: "irq/softirq_entry" ftrace_events: "irq/softirq_exit"
  ftrace_events: "raw_syscalls/sys_enter" ftrace_events: "raw_syscalls/sys_exit"
  ftrace_events: "block/block_io_start" ftrace_events: "block/block_rq_issue"
  ftrace_events: "block/block_rq_complete"
  compact_sched { enabled: COMPACT }
  buffer_size_kb: 32768 drain_period_ms: 250 } } }
data_sources { config { name: "linux.system_info" } }
"""


def by_perfetto(folder: Path, compact: str) -> Path:
    """The load recorded by Perfetto, with its log beside it."""
    folder.mkdir()
    path = folder / "x.pftrace"
    environment = {
        **os.environ,
        "PERFETTO_PRODUCER_SOCK_NAME": str(folder / "producer"),
        "PERFETTO_CONSUMER_SOCK_NAME": str(folder / "consumer"),
    }
    (folder / "config").write_text(PERFETTO.replace("COMPACT", compact))
    null, started = subprocess.DEVNULL, []
    try:
        for name in ("traced", "traced_probes"):
            words = tool(name) or (name,)
            started.append(subprocess.Popen(words, env=environment, stdout=null, stderr=null))
            time.sleep(0.5)
        words = (*(tool("perfetto") or ()), "--background-wait", "--txt")
        begun = subprocess.run(
            [*words, "-c", str(folder / "config"), "-o", str(path)],
            env=environment, stdout=subprocess.PIPE, stderr=null, text=True, check=True,
        )  # fmt: skip
        load = [sys.executable, "-I", "-S", str(LOAD), str(folder), str(ROUNDS)]
        with (folder / "log").open("w") as log:
            subprocess.run(load, input=b"\n", stdout=log, check=True)
        os.kill(int(begun.stdout), signal.SIGTERM)
        while Path(f"/proc/{int(begun.stdout)}").exists():
            time.sleep(0.05)
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)
    return path


def leaks(trace: ss.Trace) -> bool:
    """Does a CPU lose switches all the time? Then nothing is known of who slept, and why."""
    chains = trace.losses.filter(pl.col("reason") == "chain_break", pl.col("count") > 1)
    return chains.collect().height > 0


@pytest.mark.needs("root", "tracefs", "traced", "traced_probes", "perfetto")
@pytest.mark.parametrize("compact", ["true", "false"])
def test_perfetto_trace_with_disk_requests_agrees(tmp_path: Path, compact: str) -> None:
    """Full events do not have an interrupt's wakeups: its recorded handlers show them."""
    if not os.major(tmp_path.stat().st_dev):
        pytest.skip(f"{tmp_path} is not on a disk")
    for number in range(4):
        folder = tmp_path / str(number)
        path = by_perfetto(folder, compact)
        trace = ss.open(path, cache=tmp_path / "cache")
        if not leaks(trace):
            break
        # Some kernels do not report, for seconds, which thread an idle CPU runs.
        time.sleep(5)
    else:
        pytest.skip("this kernel leaves out too many switches")
    pid = as_logged(trace, folder / "log", 0.4)
    mine = ss.off_cpu(trace, where=pl.col("tid") == pid).filter(cause="disk")
    assert "pread64" in mine["reason"].to_list()
    # What each handler took, and each entry's first arguments, by Google's own reader of the file.
    judge = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    file = judge.Trace()
    file.ParseFromString(path.read_bytes())
    irqs, calls = told(file)
    ours = trace.irqs.select("cpu", pl.col("kind").cast(pl.String), "id", "ts", "dur").collect()
    assert len(irqs) > 2 * ROUNDS
    assert sorted(ours.rows()) == sorted(irqs)
    entries = trace.system_calls.filter(pl.col("step").cast(pl.String) == "enter")
    found = entries.select("ts", "cpu", "number", "arg0", "arg1", "arg2").collect()
    assert sorted(found.rows()) == sorted(calls)


def told(file: Any) -> tuple[list[tuple[object, ...]], list[tuple[int, ...]]]:
    """Handlers from entry to return, and calls with three arguments, as the messages have them."""
    irqs: list[tuple[object, ...]] = []
    calls = []
    open_since: dict[tuple[int, str, int], int] = {}
    for packet in file.packet:
        bundle = packet.ftrace_events
        for one in bundle.event:
            what, at = one.WhichOneof("event"), one.timestamp
            if what == "sys_enter":
                arguments = list(one.sys_enter.args)[:3]
                calls.append((at, bundle.cpu, one.sys_enter.id, *arguments))
            kinds = {"irq_handler": ("hard", "irq"), "softirq": ("soft", "vec")}
            for prefix, (kind, field) in kinds.items():
                if what == f"{prefix}_entry":
                    number = getattr(getattr(one, what), field)
                    open_since[(bundle.cpu, kind, number)] = at
                elif what == f"{prefix}_exit":
                    number = getattr(getattr(one, what), field)
                    begin = open_since.pop((bundle.cpu, kind, number), None)
                    if begin is not None:
                        irqs.append((bundle.cpu, kind, number, begin, at - begin))
    return irqs, calls


def as_logged(trace: ss.Trace, path: Path, share: float = 0.9) -> int:
    """The program's pid; its sleeps for the disk lie in reads from the disk, and in no others.

    `share`: of those reads that have one, at least. A request that a worker of the kernel gave to
    the disk is no thread's, and some kernels omit the switch before a sleep: at worst
    21 of 40 were seen.
    """
    lines = [line.split() for line in path.read_text().splitlines()]
    pid = int(lines[0][1])
    shift = int(trace.metadata("clock", "from_mono") or 0)
    log = [(what, int(begin) + shift, int(end) + shift) for what, begin, end in lines[1:]]
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
    from schedscope.analysis.causes.disk_sleeps import disk_sleeps as found

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
def test_recorded_events_are_those_of_the_kernel(
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
