"""Recordings of a real FreeBSD 13.2, compared with its kernel's own counts."""

from __future__ import annotations

import gzip
import re
import tarfile
from pathlib import Path

import polars as pl
import pytest
from archives import unpack

import schedscope as ss
from schedscope.simulator.recorded.extract import extract, report
from schedscope.simulator.recorded.tunables import recorded_tunables
from schedscope.simulator.runs.replay import recorded_policy

FIXTURES = Path(__file__).parents[2] / "fixtures"
GENUINE = FIXTURES / "freebsd-13.2"
COUNTED = re.compile(
    r"thread (\S+) tid (\d+) cpu_ns (\d+) rusage_us \d+ nvcsw (\d+) nivcsw (\d+) count (\d+)"
)


def unpacked(name: str, folder: Path) -> Path:
    """The capture in an archive; `mix.txt` lies beside it."""
    with tarfile.open(GENUINE / f"{name}.tar.xz") as archive:
        unpack(archive, folder)
    return folder / f"{name}.capture"


def lines(capture: Path, letter: str) -> list[list[str]]:
    text = (capture / "events.txt").read_text(errors="replace")
    return [row.split("\t") for row in text.splitlines() if row.startswith(f"{letter}\t")]


@pytest.mark.parametrize(("name", "n"), [("ule-mix", 10), ("4bsd-mix", 11)])
def test_switches_and_cpu_time_are_those_of_getrusage(name: str, n: int, tmp_path: Path) -> None:
    """A yield after which the same thread is chosen again is counted, but is not a switch."""
    trace = ss.open(unpacked(name, tmp_path))
    threads = dict(trace.threads.select("tid", "utid").collect().iter_rows())
    switches = trace.switches.collect()
    running = trace.states.filter(pl.col("state") == "running").group_by("utid")
    ran = dict(running.agg(pl.col("dur").sum()).collect().iter_rows())
    counted = COUNTED.findall((tmp_path / "mix.txt").read_text())
    assert len(counted) == n
    for role, tid, cpu_ns, voluntary, involuntary, turns in counted:
        utid = threads[int(tid)]
        left = switches.filter((pl.col("prev_utid") == utid) & (pl.col("prev_state") != "dead"))
        preempted = left["preempted"].fill_null(value=False).sum()
        if role in ("main", "yielder"):
            # The first was not recorded from its start; the other at times yields without a switch.
            assert 0 <= int(voluntary) - (left.height - preempted) <= int(turns), role
            continue
        # It may switch out once more after printing its counts; one that is woken before its
        # switch-out has yielded without a switch.
        assert abs(preempted - int(involuntary)) <= 1, role
        assert abs(left.height - preempted - int(voluntary)) <= 1, role
        if role.startswith("hog"):
            # Both count the time of the probes, but on different sides of a switch.
            assert abs(ran[utid] / int(cpu_ns) - 1) < 0.06, role


@pytest.mark.parametrize(
    "name",
    [
        "ule-mix",
        "4bsd-mix",
        "ule-with-all",
        "4bsd-lines2",
        "ule-lines2",
        "ule-lines2-all",
        "ule-storm",
    ],
)
def test_recordings_have_no_losses_or_contradictions(name: str, tmp_path: Path) -> None:
    checks = ss.check(ss.open(unpacked(name, tmp_path)))
    found = dict(checks.select("check", "found").iter_rows())
    for check in ("losses", "unplaced losses", "chain breaks", "contradictions"):
        assert not found[check], check
    assert "violated" not in checks["level"].cast(pl.String).to_list()


@pytest.mark.parametrize("name", ["ule-lines2", "4bsd-lines2"])
def test_short_lines_have_every_switch_that_the_kernel_counted(name: str, tmp_path: Path) -> None:
    """An S and a P each raise the kernel's count by one; a yield without a switch has no line."""
    capture = unpacked(name, tmp_path)
    counted = {int(row[1]): row for row in COUNTED.findall((tmp_path / "mix.txt").read_text())}
    running: dict[str, int] = {}
    left = dict.fromkeys(counted, 0)
    preempted = dict.fromkeys(counted, 0)
    last = dict.fromkeys(counted, 0)
    for row in (capture / "events.txt").read_text(errors="replace").splitlines():
        field = row.split(" ")
        if field[0] == "S":
            tid = int(field[3])
            if tid in counted:
                left[tid] += 1
                preempted[tid] += int(field[5]) // 10 % 10
                last[tid] = int(field[8])
            running[field[2]] = int(field[6])
        elif field[0] == "R":
            running[field[2]] = int(field[3])
        elif field[0] == "P" and running.get(field[2]) in counted:
            left[running[field[2]]] += 1
            preempted[running[field[2]]] += 1
    for tid, (role, _tid, _cpu, voluntary, involuntary, turns) in counted.items():
        if role == "main":
            continue
        assert 0 <= last[tid] - left[tid] <= (int(turns) if role == "yielder" else 1), role
        # After it has printed its counts a thread waits for others that print, and is preempted.
        assert 0 <= preempted[tid] - int(involuntary) <= 3, role
        assert -1 <= left[tid] - preempted[tid] - int(voluntary) <= 3, role


def test_a_storm_of_processes_has_the_switches_that_the_kernel_counted(tmp_path: Path) -> None:
    """FreeBSD's time(1) prints the counts of a process and its children. A preempted thread that is
    chosen again is counted, and has a P. The kernel counts an exit as voluntary.
    """
    capture = unpacked("ule-storm", tmp_path)
    said = (tmp_path / "time.txt").read_text()
    voluntary, involuntary = (
        int(number) for number in re.findall(r"(\d+) +(?:in)?voluntary context switches", said)
    )
    trace = ss.open(capture)
    pairs = set(trace.threads.select("pid", "ppid").collect().rows())
    (timing,) = trace.threads.filter(comm="time").select("pid").unique().collect()["pid"]
    # The others are of the shell that became time(1).
    mine = {max(pid for pid, parent in pairs if parent == timing)}
    while more := {pid for pid, parent in pairs if parent in mine} - mine:
        mine |= more
    threads = trace.threads.filter(pl.col("pid").is_in(sorted(mine))).collect()
    assert threads["pid"].n_unique() == 63
    switches = trace.switches.filter(pl.col("prev_utid").is_in(threads["utid"].implode()))
    left = switches.collect()
    running: dict[str, int] = {}
    process: dict[int, int] = {}
    again = 0
    for row in (capture / "events.txt").read_text(errors="replace").splitlines():
        field = row.split(" ")
        if field[0] == "N":
            process[int(field[3])] = int(field[4])
        elif field[0] in ("S", "R"):
            running[field[2]] = int(field[6 if field[0] == "S" else 3])
        elif field[0] == "P":
            again += process.get(running.get(field[2], 0), 0) in mine
    assert left["preempted"].sum() + again == involuntary == 472
    # One yield had no switch.
    assert voluntary - (left.height - left["preempted"].sum()) in (0, 1)


def test_scores_of_the_kernel_are_those_of_a_script_beside_it(tmp_path: Path) -> None:
    """Every V, in order, of the threads that the load made."""
    capture = unpacked("ule-lines2-inter", tmp_path)
    said: dict[int, list[tuple[int, int]]] = {}
    for row in (tmp_path / "inter.txt").read_text().splitlines():
        _ts, _cpu, tid, ran, slept = map(int, row.split())
        said.setdefault(tid, []).append((ran, slept))
    ours: dict[int, list[tuple[int, int]]] = {tid: [] for tid in said}
    for row in (capture / "events.txt").read_text(errors="replace").splitlines():
        field = row.split(" ")
        if field[0] == "V" and int(field[3]) in ours:
            ours[int(field[3])].append((int(field[4]), int(field[5])))
    # The first thread's number had been another's before.
    made = sorted(said)[1:]
    assert len(made) == 8
    for tid in made:
        # The end of the recording may lie between the two scripts.
        n = min(len(said[tid]), len(ours[tid]))
        assert max(len(said[tid]), len(ours[tid])) <= n + 1
        assert said[tid][:n] == ours[tid][:n], tid


def test_dtrace_that_starts_after_the_table_is_of_the_recorder(tmp_path: Path) -> None:
    trace = ss.open(unpacked("4bsd-lines2", tmp_path))
    mine = trace.threads.filter("recorder").select("comm", "pid").collect()
    assert ("dtrace", 291) in mine.rows()
    ran = ss.residency(trace, by="comm", where=pl.col("recorder"))["running"].sum()
    assert 0.4 < ran / ss.residency(trace, by="comm")["running"].sum() < 0.5


def test_children_of_the_recorded_command_are_of_its_workload(tmp_path: Path) -> None:
    """Its forks say which thread made which, and not which process."""
    trace = ss.open(unpacked("4bsd-lines2", tmp_path))
    mine = trace.threads.filter(ss.of_processes(trace, workload=True)).select("pid", "ppid")
    assert set(mine.collect().rows()) == {(374, 28), (375, 374), (376, 374)}


def test_short_lines_name_every_thread(tmp_path: Path) -> None:
    """Version 2 prints a name where it is new."""
    trace = ss.open(unpacked("ule-lines2", tmp_path))
    threads = {
        comm: (tid, utid)
        for tid, utid, comm in trace.threads.select("tid", "utid", "comm").collect().iter_rows()
    }
    running = trace.states.filter(pl.col("state") == "running").group_by("utid")
    ran = dict(running.agg(pl.col("dur").sum()).collect().iter_rows())
    counted = COUNTED.findall((tmp_path / "mix.txt").read_text())
    assert len(counted) == 10
    for role, tid, cpu_ns, _voluntary, _involuntary, _turns in counted:
        # The first began unrecorded, and this one ran on after it had printed.
        if role not in ("main", "ponger"):
            assert threads[role][0] == int(tid)
            assert abs(ran[threads[role][1]] / int(cpu_ns) - 1) < 0.02, role


def test_counts_of_all_additions_match_their_lines(tmp_path: Path) -> None:
    capture = unpacked("ule-lines2-all", tmp_path)
    text = (capture / "events.txt").read_text(errors="replace").splitlines()
    kinds = [row[0] for row in text if re.match(r"[A-Z] \d", row)]
    said = {row.split("\t")[1]: int(row.split("\t")[2]) for row in text if row.startswith("#count")}
    assert {"C", "I", "V", "N", "S"} <= set(said)
    assert {kind: kinds.count(kind) for kind in said} == said


def test_priorities_interrupts_and_callbacks_are_all_read(tmp_path: Path) -> None:
    """One row per line; a lent priority, which has two lines, has one."""
    capture = unpacked("ule-with-all", tmp_path)
    trace = ss.open(capture)
    times = {
        kind: sum(int(row[5]) for row in lines(capture, "I") if row[3] == kind)
        for kind in ("irq", "callout")
    }
    rows = trace.irqs.collect()
    assert rows.height == len(lines(capture, "I")) > 500
    kinds = rows.with_columns(timer=pl.col("kind").cast(pl.String) == "soft")
    sums = dict(kinds.group_by("timer").agg(pl.col("dur").sum()).iter_rows())
    assert sums == {True: times["callout"], False: times["irq"]}
    changed = lines(capture, "C")
    loans = sum(row[7] == "1" for row in changed)
    assert trace.priorities.collect().height == len(changed) - loans > 500


def test_records_that_dtrace_discarded_count_as_lost(tmp_path: Path) -> None:
    """The capture itself reported none lost: dtrace's messages show it."""
    capture = unpacked("ule-discarded", tmp_path)
    assert "67 dynamic variable drops" in (capture / "stderr.txt").read_text()
    trace = ss.open(capture)
    assert [row["count"] for row in trace.info["unplaced_losses"]] == [67]
    assert any("dtrace discarded 67 records" in text for text in trace.info["warnings"])
    # Switches and wakeups are complete, so waits are measured.
    waits = trace.waits.select(pl.col("wait").is_not_null().mean()).collect().item()
    assert waits > 0.9


def test_late_running_line_of_ktrdump_is_not_a_clock_error(tmp_path: Path) -> None:
    """`running` is logged after the switch, when others may have queued the thread that left."""
    options = {"tsc_hz": "2599998274", "osreldate": "1302001"}
    text = tmp_path / "ktr.out"
    text.write_bytes(gzip.decompress((GENUINE / "ktr.gz").read_bytes()))
    trace = ss.open(text, options=options)
    found = dict(ss.check(trace).select("check", "level").iter_rows())
    assert found.get("clocks", "ok") == found["missing wakeups"] == found["warnings"] == "ok"
    assert found["contradictions"] == "ok"
    assert not any("not of a known kind" in text for text in trace.info["warnings"])
    waits = trace.waits.select(pl.col("wait").is_not_null().mean()).collect().item()
    assert waits > 0.9


@pytest.mark.parametrize(
    ("name", "policy"), [("freebsd-ule", "ule-13"), ("freebsd-4bsd", "4bsd-13")]
)
def test_recording_has_its_scheduler_and_settings(name: str, policy: str) -> None:
    trace = ss.open(FIXTURES / f"{name}.capture")
    assert recorded_policy(trace) == policy
    tunables = recorded_tunables(trace, policy)
    assert (tunables["stathz"], tunables["slice"]) == (127, 12)
    assert (tunables["min_timeshare"], tunables["min_realtime"]) == (120, 48)
    if policy == "ule-13":
        assert (tunables["hz"], tunables["preempt_thresh"], tunables["interact_levels"]) == (
            100,
            80,
            32,
        )
        assert tunables["interact"] == 30


@pytest.mark.parametrize("name", ["freebsd-ule", "freebsd-4bsd"])
def test_interrupt_threads_are_woken_and_have_their_own_class(name: str) -> None:
    """They are put on a queue without a `wakeup`, which is only for sleepers."""
    workload = extract(ss.open(FIXTURES / f"{name}.capture"))
    assert report(workload)["wakes_missing"] <= 5
    classes = dict(workload.threads.group_by("class").len().iter_rows())
    assert classes["interrupt"] >= 2


def test_findings_name_dtrace_and_advise_only_freebsd_commands() -> None:
    found = ss.findings(ss.open(FIXTURES / "freebsd-ule.capture"))
    advice = dict(found.select("topic", "advice").iter_rows())
    assert "dtrace" in advice["recorder"]
    assert "ftrace" not in " ".join(advice.values())
