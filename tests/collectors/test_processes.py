"""Processes and control groups, as `capture` writes them down and a trace shows them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from collector_runs import ROOT, eventually

import schedscope as ss
from schedscope import cli
from schedscope.analysis.causes.throttling import throttling
from schedscope.analysis.shares.group_weights import GroupWeights
from schedscope.analysis.threads.memberships import memberships

CAPTURE = ROOT / "collectors" / "capture"
# A child that changes neither name nor group, and one that calls exec; the second outlives both.
FAMILY = """
import os, subprocess, sys, time
subprocess.run([sys.executable, "-c", "pass", "short-lived"])
open(sys.argv[1], "w").write("x")
time.sleep(0.3)
"""


def capture(folder: Path, *words: str, options: tuple[str, ...] = ()) -> ss.Trace:
    target = folder / "x.capture"
    done = subprocess.run(
        ["sh", str(CAPTURE), "-q", *options, "-o", str(target), "--", *words],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return ss.open(target)


@pytest.mark.needs("root", "tracefs")
def test_the_workload_and_its_children_are_a_tree(tmp_path: Path) -> None:
    words = [sys.executable, "-c", FAMILY, str(tmp_path / "mark")]
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        trace = capture(tmp_path, *words)
    finally:
        sleeper.kill()
        sleeper.wait()
    threads = trace.threads.collect()
    mine = threads.filter(ss.of_processes(trace, workload=True))
    root = trace.metadata("workload", "pid")
    assert root in mine["pid"].to_list()
    # The shell that became COMMAND had children of its own before.
    children = mine.filter(pl.col("ppid") == root, pl.col("comm_first") == pl.col("comm"))
    assert Path(sys.executable).name in mine.filter(pid=root)["process_name"].to_list()
    names = children.filter(pl.col("comm") != "sh")["comm"].to_list()
    assert len(names) == 1, "the one that subprocess.run started"
    assert sleeper.pid not in mine["pid"].to_list()
    asleep = threads.filter(pl.col("pid") == sleeper.pid).row(0, named=True)
    assert (asleep["cmdline"], asleep["process_name"]) == ("sleep 60", "sleep")
    assert asleep["ppid"] == os.getpid()
    assert threads.filter(ss.of_processes(trace, cmdline="sleep 60"))["pid"].to_list() == [
        sleeper.pid
    ]
    here = Path("/proc/self/cgroup").read_text().splitlines()
    paths = {line.split(":")[2] for line in here if line.split(":")[1].split(",").count("cpu")}
    paths = paths or {line.split(":")[2] for line in here if line.startswith("0::")}
    assert asleep["cgroup"] in paths


def host(function: str, folder: Path) -> list[list[str]]:
    """Rows that a function of collectors/linux prints, in that folder."""
    linux = ROOT / "collectors" / "linux"
    code = f"""
        have() {{ command -v "$1" >/dev/null 2>&1; }}
        . {linux / "host.sh"}; . {linux / "processes.sh"}
        {function}"""
    done = subprocess.run(["sh", "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


@pytest.mark.needs("linux")
def test_control_groups_are_found_before_the_processes_are_listed(tmp_path: Path) -> None:
    """So that the list can be the last thing before the first event."""

    def alike() -> bool:
        before = {row[0] for row in host("host_group_paths", tmp_path)}
        return before == {row[4] for row in host("anonymous=1; host_processes start", tmp_path)}

    # A process of another group may come or go meanwhile.
    assert any(alike() for _ in range(5))
    groups = {row[1] for row in host("host_groups start", tmp_path)}
    (tmp_path / "processes.tsv").write_text("header\nstart\t1\t0\t0\t/nowhere/below\t\t\n")
    assert [row[0] for row in host("host_group_paths", tmp_path)] == ["/nowhere/below"]
    assert host("host_groups start", tmp_path) == [
        row for row in host("host_groups start", tmp_path) if row[1] == "/"
    ]
    assert groups


@pytest.mark.needs("root", "tracefs")
def test_no_command_line_of_an_anonymous_host(tmp_path: Path) -> None:
    trace = capture(tmp_path, "true", options=("--anonymous-host",))
    assert trace.threads.select(pl.col("cmdline").is_null().all()).collect().item()
    assert not trace.threads.select(pl.col("cgroup").is_null().all()).collect().item()
    with pytest.raises(ss.UsageError, match="has no cmdline of any thread"):
        ss.of_processes(trace, cmdline="python")


@pytest.fixture
def root() -> Iterator[Path]:
    """A control group of the hierarchy that shares CPU time, for groups of a test."""
    for place in ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup"):
        if any(Path(place, name).exists() for name in ("cpu.shares", "cpu.max", "cpu.stat")):
            folder = Path(place) / f"schedscope test {os.getpid()}"
            folder.mkdir()
            yield folder
            folder.rmdir()
            return
    pytest.skip("no cpu controller of control groups here")


@pytest.fixture
def group(root: Path) -> Path:
    """A control group that may use a fifth of a CPU."""
    if (root / "cpu.cfs_quota_us").exists():
        (root / "cpu.cfs_quota_us").write_text("20000")
    elif (root / "cpu.max").exists():
        (root / "cpu.max").write_text("20000 100000")
    else:
        pytest.skip("no quotas of control groups here")
    return root


@pytest.mark.needs("root", "tracefs")
def test_the_session_that_shares_cpu_time_is_recorded(tmp_path: Path) -> None:
    switch = Path("/proc/sys/kernel/sched_autogroup_enabled")
    if not switch.exists() or switch.read_text().strip() != "1":
        pytest.skip("sessions do not share CPU time as one here")
    sleeper = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        own = Path(f"/proc/{sleeper.pid}/autogroup")
        own.write_text("5")
        session = int(own.read_text().split()[0].rpartition("-")[2])
        trace = capture(tmp_path, "true")
    finally:
        sleeper.kill()
        sleeper.wait()
    rows = [row for row in trace.info["autogroups"] if row["pid"] == sleeper.pid]
    assert rows == [{"pid": sleeper.pid, "session": session, "nice": 5}]
    utid = trace.threads.filter(pl.col("pid") == sleeper.pid).collect()["utid"].item()
    assert GroupWeights(trace).path("/", utid) == (f"session {session}",)


@pytest.mark.needs("root", "tracefs", "chrt")
def test_reservation_of_a_deadline_thread_is_recorded(tmp_path: Path) -> None:
    ask = ["chrt", "-d", "-T", "1000000", "-D", "20000000", "-P", "50000000", "0", "sleep", "60"]
    sleeper = subprocess.Popen(ask)
    try:
        time.sleep(0.3)
        if sleeper.poll() is not None:
            pytest.skip("no thread of SCHED_DEADLINE is admitted here")
        trace = capture(tmp_path, "true")
    finally:
        sleeper.kill()
        sleeper.wait()
    rows = [row for row in trace.info["reservations"] if row["tid"] == sleeper.pid]
    given = {"runtime": 1_000_000, "deadline": 20_000_000, "period": 50_000_000}
    assert rows == [{"tid": sleeper.pid, **given}]


ASKER = """
import ctypes, struct, time
given = struct.pack("=IIQiIQQQ", 48, 0, 0, 0, 0, 5_000_000, 0, 0)
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 314}.get(__import__("os").uname().machine, 274)
assert libc.syscall(number, 0, given, 0) == 0, ctypes.get_errno()
print("asked", flush=True)
time.sleep(60)
"""


@pytest.mark.needs("root", "tracefs")
def test_the_slice_that_a_thread_asked_for_is_recorded(tmp_path: Path) -> None:
    """sched_setattr; of those that did not ask, as this test's own process, there is none."""
    if "se.slice" not in Path("/proc/self/sched").read_text():
        pytest.skip("the kernel does not show slices")
    asker = subprocess.Popen([sys.executable, "-c", ASKER], stdout=subprocess.PIPE)
    try:
        assert asker.stdout is not None
        asker.stdout.readline()
        if "5000000" not in Path(f"/proc/{asker.pid}/sched").read_text():
            pytest.skip("threads cannot have slices of their own here")
        trace = capture(tmp_path, "true")
    finally:
        asker.kill()
        asker.communicate()
    slices = {row["tid"]: row["slice"] for row in trace.info["slices"]}
    assert slices[asker.pid] == 5_000_000
    assert os.getpid() not in slices


MOVER = """
import os, subprocess, sys, time
time.sleep(0.2)
with open(sys.argv[1] + "/cgroup.procs", "w") as procs: procs.write(str(os.getpid()))
subprocess.run([sys.executable, "-c", "pass"])
print(os.getpid(), flush=True)
"""


@pytest.mark.needs("root", "tracefs")
def test_a_move_into_a_control_group_is_seen_with_its_time(tmp_path: Path, group: Path) -> None:
    """The process itself and a child that only its parent's group shows."""
    if not Path("/sys/kernel/tracing/events/cgroup/cgroup_attach_task").is_dir():
        pytest.skip("the kernel has no event of moves between control groups")
    words = [sys.executable, "-I", "-S", "-c", MOVER, str(group)]
    target = tmp_path / "x.capture"
    done = subprocess.run(
        ["sh", str(CAPTURE), "-q", "-o", str(target), "--", *words],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    trace = ss.open(target)
    pid = int(done.stdout)
    path = "/" + group.name
    [move] = [move for move in trace.info["group_moves"] if move["cgroup"].endswith(path)]
    assert move["tid"] == pid
    begin, end = trace.window
    threads = trace.threads.select(
        pl.col("utid").cast(pl.UInt32), "tid", "pid", "ppid", "start_ts"
    ).collect()
    rows = memberships(trace).join(threads, on="utid").sort("since")
    own = rows.filter(pl.col("tid") == pid)
    assert own.height == 2
    assert own.select("since", "until").rows()[0][1] == move["ts"]
    assert own["until"][1] == end
    assert begin + 200_000_000 < move["ts"] < end
    assert own["cgroup"][1] == move["cgroup"] != own["cgroup"][0]
    # The shell that became COMMAND had children of its own before.
    later = (pl.col("ppid") == pid) & (pl.col("pid") != pid) & (pl.col("start_ts") > move["ts"])
    of_child = rows.filter(later)
    assert set(of_child["cgroup"]) == {move["cgroup"]}
    # Both ended in it, and nothing was in it when recording began and ended.
    last = trace.threads.select("tid", "pid", "ppid", "start_ts", "cgroup").collect()
    mine = last.filter(later | (pl.col("tid") == pid))
    assert mine.height >= 2
    assert set(mine["cgroup"]) == {move["cgroup"]}
    assert move["cgroup"] in {row["cgroup"] for row in trace.info["groups"]}


@pytest.mark.needs("root", "tracefs")
def test_a_quota_is_named_with_the_kernels_own_figure(
    tmp_path: Path, group: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A loop in a group that may use 20 of 100 ms: the kernel's count, not a bystander."""

    def counter(name: str) -> int:
        lines = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
        return int(lines[name])

    def throttled() -> int:
        old = "throttled_time" in (group / "cpu.stat").read_text()
        return counter("throttled_time") if old else 1000 * counter("throttled_usec")

    script = 'echo $$ >"$1/cgroup.procs"; while :; do :; done'
    loop = subprocess.Popen(["sh", "-c", script, "sh", str(group)])
    target = tmp_path / "x.capture"
    try:
        eventually(lambda: throttled() > 0, 30)
        before = throttled()
        subprocess.run(
            ["sh", str(CAPTURE), "-q", "-d", "1.5", "-o", str(target)],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        held = throttled() - before
    finally:
        loop.kill()
        loop.wait()
    trace = ss.open(target)
    path = "/" + group.name
    [row] = [row for row in trace.info["groups"] if row["cgroup"].endswith(path)]
    assert (row["quota"], row["period"]) == (20_000_000, 100_000_000)
    assert 100_000_000 < row["throttled"] <= held
    found = ss.findings(trace).filter(topic="quota").row(0, named=True)
    assert "20.0 ms per 100 ms" in found["text"]
    assert found["cost"] == row["throttled"]
    assert cli.main(["info", str(target)]) == 0
    assert f"held back by a CPU quota: {row['cgroup']} " in capsys.readouterr().out
    mine = trace.threads.filter(ss.of_processes(trace, cgroup=row["cgroup"])).collect()
    assert mine["pid"].to_list() == [loop.pid]
    # Of its waiting, what lies in throttled periods; the kernel may hide switches (unknown).
    own = pl.col("utid") == mine["utid"].item()
    [part] = ss.wait_breakdown(trace, by="all", where=own).to_dicts()
    unknown = trace.states.filter(own, pl.col("state") == "unknown").collect()["dur"].sum()
    if trace.quota_refills.collect().height:
        assert part["evidence"] == ("quota accounting" if part["throttled"] else None)
        # The kernel's figure is of some more periods: it is read before and after.
        periods = trace.duration / row["period"]
        share = row["throttled"] * periods / row["n_periods"]
        assert part["throttled"] + unknown >= 0.6 * share
    assert part["throttled"] <= 1.1 * row["throttled"]


@pytest.mark.needs("root", "tracefs")
def test_quota_of_the_parent_group_is_the_cause(tmp_path: Path, group: Path) -> None:
    """As of a pod: the loop is in a group without a quota, inside the one that has it."""
    inner = group / "inner"
    inner.mkdir()
    if (group / "cgroup.subtree_control").exists():
        (group / "cgroup.subtree_control").write_text("+cpu")
    script = 'echo $$ >"$1/cgroup.procs"; while :; do :; done'
    loop = subprocess.Popen(["sh", "-c", script, "sh", str(inner)])
    target = tmp_path / "x.capture"
    try:
        eventually(lambda: "nr_throttled 0" not in (group / "cpu.stat").read_text(), 30)
        subprocess.run(
            ["sh", str(CAPTURE), "-q", "-d", "0.5", "-o", str(target)],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    finally:
        loop.kill()
        loop.wait()
        eventually(lambda: not (inner / "cgroup.procs").read_text(), 30)
        inner.rmdir()
    trace = ss.open(target)
    [outer] = [row for row in trace.info["groups"] if row["cgroup"].endswith(group.name)]
    assert outer["n_throttled"] > 0
    found = ss.findings(trace).filter(topic="quota")
    assert any(outer["cgroup"] in text for text in found["text"])
    mine = trace.threads.filter(pl.col("pid") == loop.pid).collect()
    assert throttling(trace).quota_of[mine["utid"].item()] == outer["cgroup"]


@pytest.mark.needs("root", "tracefs")
def test_the_kernels_account_of_cpu_time_covers_the_recording(tmp_path: Path) -> None:
    """Each CPU's parts add up to what passed, but for steps of 10 ms."""
    trace = capture(tmp_path, "sleep", "1")
    rows = trace.info["cpu_time"]
    assert {row["cpu"] for row in rows} >= {cpu["cpu"] for cpu in trace.info["per_cpu"]}
    for row in rows:
        spent = sum(value for name, value in row.items() if name != "cpu")
        # It is read just before and just after, on a host that may be busy.
        assert trace.duration - 50_000_000 <= spent <= trace.duration + 2_000_000_000, row


SERVICE = """
import os, sys, time
with open(sys.argv[1] + "/cgroup.procs", "w") as procs: procs.write(str(os.getpid()))
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
while True:
    end = time.perf_counter() + float(sys.argv[2])
    while time.perf_counter() < end: pass
    time.sleep(0.001)
"""


@pytest.mark.needs("root", "tracefs")
def test_services_of_one_command_are_distinguished(
    tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two Pythons on one CPU, in two groups as systemd and Docker make them."""
    box = "0123456789ab" + "c" * 52
    groups = [root / "web.service", root / f"docker-{box}.scope"]
    loops = []
    try:
        for group, busy in zip(groups, ("0.004", "0.012"), strict=True):
            group.mkdir()
            words = [sys.executable, "-I", "-S", "-c", SERVICE, str(group), busy]
            loops.append(subprocess.Popen(words))
            eventually(lambda: (group / "cgroup.procs").read_text().split(), 30)  # noqa: B023
        target = tmp_path / "x.capture"
        subprocess.run(
            ["sh", str(CAPTURE), "-q", "-d", "1", "-o", str(target)],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
        for group in groups:
            if group.exists():
                eventually(lambda: not (group / "cgroup.procs").read_text(), 30)  # noqa: B023
                group.rmdir()
    trace = ss.open(target)
    web, docker = "web.service", "docker-0123456789ab"
    for name, loop in zip((web, docker), loops, strict=True):
        mine = trace.threads.filter(ss.of_processes(trace, service=name)).collect()
        assert mine["pid"].to_list() == [loop.pid]
    both = pl.col("service").is_in([web, docker])
    [one] = ss.slowdown(trace, by="comm", where=both).to_dicts()
    cpu = dict(ss.slowdown(trace, by="service", where=both).select("service", "cpu").iter_rows())
    assert sum(cpu.values()) == one["cpu"]
    assert 0 < cpu[web] < cpu[docker]
    words = ["interference", str(target), "--service", web, "--by", "service", "--together"]
    assert cli.main(words) == 0
    assert docker in capsys.readouterr().out
    found = ss.interference(trace, by="service", where=pl.col("service") == web)
    [behind] = found.filter(service=docker)["time"]
    assert behind > 0.1 * found["wait"][0]
