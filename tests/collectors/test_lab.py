"""Kernels of other releases and architectures, booted and recorded: see research/lab/README.md."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest
from archives import unpack

import schedscope as ss
from research import results
from research.lab import (
    __main__ as lab,
    commands,
    guests,
    packages,
    page,
)
from research.lab.boots import ENDS_WITH_US, Cell, Run, earlier
from research.lab.judges import Verdict, judge
from schedscope import cli
from schedscope.analysis.cpus.offline import offline
from schedscope.present.headline import headline
from schedscope.simulator.changes.change import change
from schedscope.simulator.runs.replay import replay
from schedscope.simulator.workloads.machine import machine_of
from schedscope.simulator.workloads.outages import recorded_outages

ROOT = Path(__file__).parents[2]

FIXTURES = ROOT / "fixtures/lab"
KEPT = sorted(FIXTURES.glob("*.tar.xz"))
COMMANDS = [
    *("check", "latency", "migrations", "queue-depth", "work-conservation", "off-cpu", "wakers"),
    *("events", "info"),
]


@pytest.fixture
def unpacked(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name = request.param
    with tarfile.open(FIXTURES / f"{name}.tar.xz" if isinstance(name, str) else name) as archive:
        unpack(archive, tmp_path)
    return tmp_path


def test_the_commands_that_are_measured_are_those_of_the_command_line() -> None:
    asked = commands.questions()
    assert {"check", "latency", "migrations", "report"} <= set(asked) <= set(cli.commands())


def test_every_cell_names_a_kernel_of_the_matrix() -> None:
    kernels, cells = lab.matrix()
    assert {cell.kernel for cell in cells} <= kernels.keys()
    assert len({cell.name for cell in cells}) == len(cells)
    assert sum(cell.ci for cell in cells) == 2


@pytest.mark.parametrize(
    ("unpacked", "number"),
    [pytest.param(path, n, id=path.name.split(".tar")[0]) for n, path in enumerate(KEPT)],
    indirect=["unpacked"],
)
def test_a_kept_recording_is_what_its_kernel_says(
    unpacked: Path, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is also asked a third of the questions in turn."""
    verdict = judge(unpacked)
    run = json.loads((unpacked / "run.json").read_text())
    assert verdict.events > 300
    # Before Linux 5.18 each trace instance read a thread's state again (research/notes/lab.md).
    assert verdict.differing <= ("5.10" in run["kernel"]), verdict.examples
    if "bpftrace" in run["options"]:  # it misses what is raised while its programs run
        assert verdict.missing <= verdict.events // 100, verdict.examples
    else:
        assert verdict.missing == verdict.differing, verdict.examples
    assert verdict.threads >= 3
    assert verdict.migrations <= 1, verdict.examples
    # The kernel does not count those of a thread that was preempted on its way to sleep.
    assert verdict.switch_ins <= 2, verdict.examples
    if run["counted"]:  # else time is the host's, and its load counts
        # The CPUs take turns of 20 us: one of all others may lie inside each wait. The kernel's
        # wait ends before a program of sched_ext dispatches, which takes up to 80 us; ours after.
        truth = (unpacked / "truth.tsv").read_text().splitlines()
        turns = 20_000 * (int(run["smp"].split(",")[0]) - 1 + 4 * ("scx" in run["options"]))
        inside = turns * sum(int(row.split("\t")[6]) for row in truth)
        delay, room = verdict.delay - verdict.asleep, max(0.03 * verdict.delay, inside)
        assert verdict.queued - room < delay < verdict.possible + room, verdict
    for command in COMMANDS[number % 3 :: 3]:
        assert cli.main([command, str(unpacked / "lab.capture"), "--format", "json"]) == 0
        capsys.readouterr()


QUOTAS = [path for path in KEPT if "quota" in path.name]


@pytest.mark.parametrize("unpacked", QUOTAS, ids=lambda path: path.name[:10], indirect=True)
def test_waits_are_throttled_when_the_kernel_throttled(unpacked: Path) -> None:
    """By probes in the kernel, which agree with its cpu.stat; no other thread's wait is."""
    found = judge(unpacked).quota
    assert found is not None
    assert found.ours > 1_000_000_000
    assert abs(found.ours / found.kernels - 1) < 0.001
    assert found.others == 0
    assert abs(found.probed / found.counted - 1) < 0.001
    # One stretch before the thread is first seen; the kernel throttles in the tick before a switch.
    assert found.unseen < 0.05 * found.kernels


@pytest.mark.parametrize("unpacked", ["amd64-newest-scx", "amd64-newest-scx-2cpu"], indirect=True)
def test_threads_are_in_the_dispatch_queues_that_their_scheduler_put_them_into(
    unpacked: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what the scheduler printed at each decision, and by the kernel's count of each queue."""
    found = judge(unpacked).queues
    assert found is not None
    assert found.decisions > 300
    assert (found.missing, found.strange) == (0, 0)
    # A shared queue is counted before it is locked, while another CPU may take from it.
    trace = ss.open(unpacked / "lab.capture")
    assert found.miscounted <= (0.01 * found.steps if trace.ncpu > 1 else 0)
    told = trace.info["scheduler"]["sched_ext"]
    assert told["begin"]["root/ops"] == told["end"]["root/ops"] == "scx_layers"
    stays = ss.dispatch_queues(trace)
    waits = trace.waits.select(pl.col("wait").sum()).collect().item()
    assert stays["total"].sum() == waits
    assert {"user 1", "user 2", "local 0", "BPF scheduler", "picked"} <= set(stays["queue"])
    whole, by_queue = ss.latency(trace), ss.latency(trace, by="dsq")
    for name in ("n", "n_censored", "n_excluded", "total"):
        assert by_queue[name].sum() == whole[name].sum(), name
    assert set(by_queue["dsq"]) <= {*stays["queue"], "unknown"}
    slices = ss.dispatch_slices(trace, by="all").row(0, named=True)
    assert slices["limit"] == 5_000_000_000
    monkeypatch.setenv("COLUMNS", "80")
    for more, word in ([], "user 2"), (["--slices"], "sleeper0"), (["--steps"], "depth"):
        command = ["dispatch-queues", str(unpacked / "lab.capture"), *more]
        assert cli.main(command) == 0
        said = capsys.readouterr().out
        assert word in said
        assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("unpacked", ["amd64-newest-scx"], indirect=True)
def test_the_judge_of_dispatch_queues_sees_what_is_wrong(unpacked: Path) -> None:
    """Every other decision says another queue."""
    lines = (unpacked / "decisions.txt").read_text().splitlines(keepends=True)
    swapped = [
        line.replace(" user 1", " user 3") if i % 2 else line for i, line in enumerate(lines)
    ]
    (unpacked / "decisions.txt").write_text("".join(swapped))
    found = judge(unpacked).queues
    assert found is not None
    assert found.missing > 50
    assert found.strange > 50


@pytest.mark.parametrize("unpacked", QUOTAS[:1], ids=["first"], indirect=True)
def test_the_judge_of_quotas_sees_what_is_wrong(unpacked: Path) -> None:
    """Every other stretch of the kernel's is taken away."""
    lines = (unpacked / "quota.txt").read_text().splitlines(keepends=True)
    kept = [line for i, line in enumerate(lines) if i // 2 % 2]
    (unpacked / "quota.txt").write_text("".join(kept))
    found = judge(unpacked).quota
    assert found is not None
    assert abs(found.ours / found.kernels - 1) > 0.5
    assert abs(found.probed / found.counted - 1) > 0.01


@pytest.mark.parametrize(("name", "share"), [("busy-neighbour", 0.5), ("neighbour-at-times", 0.3)])
def test_stolen_time_is_by_how_much_longer_the_work_took(
    name: str, share: float, tmp_path: Path
) -> None:
    """Two machines below Xen on one CPU: the other one computes all along, or at times."""
    for one in (f"arm64-6.12-{name}", "arm64-6.12-idle-neighbour"):
        with tarfile.open(FIXTURES / f"{one}.tar.xz") as archive:
            unpack(archive, tmp_path / one)
    found = judge(tmp_path / f"arm64-6.12-{name}").steal
    assert found is not None
    assert found.worked == pytest.approx(share, abs=0.02)
    assert found.told == pytest.approx(found.worked, abs=0.02)
    assert judge(tmp_path / "arm64-6.12-idle-neighbour").steal is None
    quiet = ss.findings(ss.open(tmp_path / "arm64-6.12-idle-neighbour/lab.capture"))
    assert "steal" not in quiet["topic"]


@pytest.mark.parametrize(
    ("unpacked", "rows"),
    [
        ("amd64-6.1-hotplug", [(2, True, True)]),
        ("amd64-6.12-hotplug", [(2, True, True)]),
        ("amd64-6.12-ring-hotplug", [(2, True, True)]),
        ("amd64-6.12-unplug", [(2, False, False)]),
        ("amd64-6.12-offline", [(2, False, False)]),
        ("amd64-6.12-maxcpus", [(3, True, False)]),
        ("amd64-6.12-numa", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
    indirect=["unpacked"],
)
def test_real_cpus_offline_are_found(unpacked: Path, rows: list[tuple[int, bool, bool]]) -> None:
    """One CPU of four was offline in some, and came back, or came for the first time."""
    trace = ss.open(unpacked / "lab.capture")
    found = offline(trace)
    assert found.select("cpu", "back", "broken").rows() == rows
    levels = dict(ss.check(trace).select("check", "level").iter_rows())
    unharmed = ("unknown time", "chain breaks", "missing wakeups", "missing wakings")
    assert {levels[name] for name in unharmed} <= {"ok", "note"}
    assert levels["offline"] == ("note" if rows else "ok")
    # The stopper that stopped it ran for a moment, not for the rest of the recording.
    stoppers = trace.threads.filter(pl.col("sched_class") == "stop").select("utid")
    ran = trace.states.filter(pl.col("state") == "running").join(stoppers, on="utid", how="semi")
    assert (ran.select(pl.col("dur").max()).collect().item() or 0) < 10_000_000


@pytest.mark.parametrize("unpacked", ["amd64-6.12-offline"], indirect=True)
def test_the_depth_of_all_queues_is_that_of_the_cpus_in_use(unpacked: Path) -> None:
    """It was unknown all along for the sake of CPU 2. The sum of those of the others is counted."""
    trace = ss.open(unpacked / "lab.capture")
    whole = ss.queue_depth_summary(trace, by="all").row(0, named=True)
    assert whole["observed"] > 0.99 * trace.duration
    wanted = trace.states.filter(
        pl.col("state").is_in(["running", "runnable"]), pl.col("utid") >= trace.ncpu
    ).collect()
    begin = trace.window[1] - whole["observed"]
    span = (wanted["ts"] + wanted["dur"]).clip(begin) - wanted["ts"].clip(begin)
    assert whole["mean"] == pytest.approx(span.sum() / whole["observed"], rel=1e-9)
    steps = ss.queue_depth(trace, by="all")
    assert steps.drop_nulls("depth")["dur"].sum() == whole["observed"]
    assert steps.filter(pl.col("depth") > 3)["dur"].sum() == whole["overload"] > 0
    parts = ss.queue_depth(trace, by="all", every="50ms")
    assert parts["unknown"].sum() == whole["unknown"]


@pytest.mark.parametrize("unpacked", ["amd64-6.12-offline"], indirect=True)
def test_a_replay_leaves_a_cpu_offline(unpacked: Path) -> None:
    ran = ss.simulate(ss.open(unpacked / "lab.capture"))
    threads = ran.states.filter(pl.col("state") == "running", pl.col("utid") >= ran.ncpu)
    assert set(threads.collect()["cpu"]) == {0, 1, 3}


@pytest.mark.parametrize(
    "unpacked",
    ["amd64-6.1-hotplug", "amd64-6.12-hotplug", "amd64-6.12-ring-hotplug", "amd64-6.12-unplug",
     "amd64-6.12-maxcpus"],
    indirect=True,
)  # fmt: skip
def test_a_replay_uses_a_cpu_only_while_it_was_online(unpacked: Path) -> None:
    trace = ss.open(unpacked / "lab.capture")
    (cpu, since, until), *more = recorded_outages(trace).iter_rows()
    until = trace.duration if until is None else until
    assert not more
    # It could not be used for somewhat longer than it was offline.
    gone = offline(trace).with_columns(ts=pl.col("ts") - trace.window[0])
    begin, dur, back = gone.select("ts", "dur", "back").row(0)
    assert begin - 50_000_000 < since <= begin
    assert begin + dur <= until < begin + dur + 20_000_000
    assert back == (until > begin + dur)

    def used(one: ss.Trace, own: bool) -> pl.DataFrame:
        runs = one.states.filter(pl.col("state") == "running", pl.col("utid") >= one.ncpu)
        names = one.threads.select("utid", "comm")
        other = ~pl.col("comm").str.contains(rf"/{cpu}(:.*)?$")
        here = runs.filter(pl.col("cpu") == cpu).join(names, on="utid").filter(own or other)
        began = pl.col("ts") - one.window[0]
        return here.select(since=began, until=began + pl.col("dur")).collect()

    within = (pl.col("since") < until) & (pl.col("until") > since)
    assert used(trace, own=False).filter(within).is_empty()
    replayed = used(ss.simulate(trace), own=True)
    assert replayed.filter(within).is_empty()
    assert not replayed.is_empty()  # before, or after


@pytest.mark.parametrize("unpacked", ["amd64-6.12-hotplug"], indirect=True)
def test_a_change_says_when_a_cpu_is_offline(unpacked: Path) -> None:
    trace = ss.open(unpacked / "lab.capture")
    way = replay(trace)
    pinned = change(way, pin={"worker1": "1-2", "worker2": "1"})
    assert pinned.words == ["'worker1' on CPUs 1-2 (CPU 2 offline at times)", "'worker2' on CPUs 1"]
    fewer = change(way, cpus=4)
    assert fewer.words == ["4 CPUs, online all along"]
    assert not fewer.machine.outages


@pytest.mark.parametrize("unpacked", ["amd64-6.12-hotplug-perf-8cpu"], indirect=True)
def test_the_others_keep_their_cores_and_caches(unpacked: Path) -> None:
    """Of CPU 5, which is offline, Linux tells neither core nor cache nor package."""
    found = machine_of(ss.open(unpacked / "lab.capture"))
    assert found.offline == (5,)
    assert all(found.cpus[cpu].core == found.cpus[cpu + 1].core for cpu in (0, 2, 6))
    assert found.cpus[4].core not in (found.cpus[5].core, found.cpus[6].core)
    assert found.cpus[0].llc == found.cpus[3].llc != found.cpus[4].llc == found.cpus[7].llc


@pytest.mark.parametrize("unpacked", ["amd64-6.12-isolated"], indirect=True)
def test_threads_that_went_to_an_isolated_cpu_by_themselves(unpacked: Path) -> None:
    """Both loops put themselves there, after their masks (of CPUs 0 and 1) had been recorded."""
    trace = ss.open(unpacked / "lab.capture")
    there = ss.isolation_leaks(trace)
    assert set(there["cpu"]) == {2}
    assert there.select("comm", "affinity", "leak").rows() == [
        ("hog0", "0-1", None),
        ("hog1", "0-1", None),
    ]
    found = ss.findings(trace)
    assert "isolation" not in found["topic"]
    # Nor could another CPU have run them while they waited for each other.
    waited = dict(ss.work_conservation(trace, by="comm").select("comm", "avoidable").iter_rows())
    assert waited["hog0"] == waited["hog1"] == 0
    assert waited["work"] > 2_000_000
    # CPU 3 raised no event at all, and 2 none for long: all waiting is measured all the same.
    assert ss.latency(trace)["coverage"].item() == 1
    assert "data quality" not in found["topic"]
    unknown = ss.check(trace).row(by_predicate=pl.col("check") == "unknown time", named=True)
    assert unknown["level"] == "note"
    assert unknown["found"] > trace.duration


@pytest.mark.parametrize("unpacked", ["amd64-6.12-perf"], indirect=True)
def test_a_sleep_that_the_kernel_counts_as_a_wait_is_left_out(unpacked: Path) -> None:
    """Of a thread that Linux 6.12 moved while it slept: 15.6 ms, 8 % of all delay there."""
    verdict = judge(unpacked)
    assert 15_500_000 < verdict.asleep < 15_700_000
    assert verdict.queued / verdict.delay < 0.93
    assert abs(verdict.queue_error) < 0.01


@pytest.mark.parametrize("unpacked", ["amd64-6.12-perf-4cpu"], indirect=True)
def test_perf_stops_one_cpu_after_another(unpacked: Path) -> None:
    """Its thread goes to each: the others have no further events, and their clocks agree."""
    trace = ss.open(unpacked / "lab.capture")
    ends = trace.losses.collect()
    assert ends["reason"].to_list() == ["early_end"] * 3
    assert sorted(ends["cpu"]) == [0, 1, 2]
    assert (ends["ts_end"] - ends["ts_begin"]).max() < 20_000_000
    assert "early" not in headline(trace)[1]
    # What threads did in the last 20 ms may be a part of their waiting: sums have bounds.
    checked = ss.check(trace)
    assert checked.filter(pl.col("level") == "warning").is_empty()
    censored = checked.row(by_predicate=pl.col("check") == "censored waits", named=True)
    assert (censored["level"], censored["unit"]) == ("note", "ns")
    assert 0.1 < censored["found"] / censored["total"] < 0.2
    assert trace.waits.filter(pl.col("censored") == "none").collect().height > 350


@pytest.mark.parametrize("unpacked", ["amd64-6.12-hotplug-perf"], indirect=True)
def test_perf_does_not_come_back_to_a_cpu(unpacked: Path) -> None:
    """From then on threads may run there unseen, and their waits are bounds."""
    trace = ss.open(unpacked / "lab.capture")
    span = pl.col("ts_end") - pl.col("ts_begin")
    ends = trace.losses.sort(span).select("cpu", "reason", span=span, begin="ts_begin").collect()
    assert set(ends["reason"]) == {"early_end"}
    assert ends["cpu"].to_list()[-1] == 2
    assert ends["span"].to_list()[-1] > 600_000_000
    assert "1 CPU ended early" in headline(trace)[1]
    waits = trace.waits.filter(pl.col("ts_ready").is_not_null()).collect()
    silent = ends["begin"].to_list()[-1]
    before = waits.filter(pl.col("ts_run") < silent)
    assert (before["censored"] == "none").mean() > 0.9
    assert waits.filter(pl.col("censored") == "none").height > 600
    assert (waits["wait"] <= waits["wait_high"].fill_null(2**62)).all()


@pytest.mark.parametrize("unpacked", ["amd64-6.12-extras"], indirect=True)
def test_the_last_stack_of_a_thread_is_its_own(unpacked: Path) -> None:
    """It follows the switch of the dead thread, and no other thread has that number yet."""
    trace = ss.open(unpacked / "lab.capture")
    threads = trace.threads.filter(pl.col("tid") != 0).collect()
    assert threads["tid"].is_unique().all()
    dead = trace.sleep_reasons.filter(pl.col("function") == "do_task_dead").collect()
    assert dead.height > 5
    assert dead.join(threads, on="utid")["exit_ts"].null_count() == 0


@pytest.mark.parametrize("unpacked", KEPT[:1], ids=["first"], indirect=True)
def test_the_judges_see_what_is_wrong(unpacked: Path) -> None:
    """Another priority, one doubled delay, one switch-in more."""
    text = (unpacked / "trace.txt").read_text()
    (unpacked / "trace.txt").write_text(text.replace("next_prio=120", "next_prio=119"))
    rows = [line.split("\t") for line in (unpacked / "truth.tsv").read_text().splitlines()]
    longest = max(rows, key=lambda row: int(row[5]))
    longest[5], longest[6] = str(2 * int(longest[5])), str(int(longest[6]) + 1)
    (unpacked / "truth.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    verdict = judge(unpacked)
    assert verdict.differing >= 1
    assert verdict.switch_ins >= 1
    assert verdict.worst > 0.4


def test_a_run_counts_again_only_if_nothing_changed(tmp_path: Path) -> None:
    cell = Cell("x", "amd64-6.1", "hogs 1 0")
    assert earlier(tmp_path, cell) is None
    folder = tmp_path / "runs/x"
    folder.mkdir(parents=True)
    for text in (
        "",
        "{}",
        '{"failed": "no end"}',
        '{"failed": "", "name": "x", "work": "hogs 2 0"}',
    ):
        (folder / "run.json").write_text(text)
        assert earlier(tmp_path, cell) is None


def test_absent_tools_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    kernel = guests.Kernel("6.1", "s390x", "bookworm", ("x",))
    run = lab.one(tmp_path, Cell("a", "b", "hogs 1 0"), kernel, again=True, timeout=1)
    assert run.failed == "qemu-system-s390x is not installed: apt install qemu-system-s390x"
    monkeypatch.setattr(packages.Path, "is_file", lambda _: False)
    monkeypatch.delenv("DEBIAN_MIRROR", raising=False)
    with pytest.raises(packages.Absent, match="set DEBIAN_MIRROR"):
        packages.mirror()


def test_two_runs_side_by_side_do_not_take_each_others_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each run has an archive of its own for the same folder."""
    busy, met = [], []

    def apt(self: packages.Archive, *_: str) -> str:
        met.append(len(busy))
        busy.append(self)
        time.sleep(0.02)
        busy.pop()
        return ""

    monkeypatch.setattr(packages.Archive, "_apt", apt)
    monkeypatch.setattr(packages, "mirror", lambda: "http://example.org/debian")
    with ThreadPoolExecutor(2) as pool:
        archives = list(pool.map(lambda _: packages.Archive(tmp_path, "sid", "amd64"), range(2)))
        folders = [tmp_path / "one", tmp_path / "two"]
        list(pool.map(lambda a, into: a.unpack(["x"], into), archives, folders))
    assert met == [0, 0, 0]  # one index, two downloads
    assert all(folder.is_dir() for folder in folders)


def test_an_old_index_is_fetched_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A mirror drops packages that only an older index lists."""
    asked: list[str] = []
    monkeypatch.setattr(packages.Archive, "_apt", lambda _, *words: asked.append(words[1]) or "")
    monkeypatch.setattr(packages, "mirror", lambda: "http://example.org/debian")
    for _ in range(2):
        packages.Archive(tmp_path, "sid", "amd64")
    assert asked == ["update"]
    old = time.time() - packages.INDEX_AGE_S - 1
    os.utime(tmp_path / "apt/sid-amd64/complete", (old, old))
    packages.Archive(tmp_path, "sid", "amd64")
    assert asked == ["update", "update"]


def test_a_machine_that_hangs_is_booted_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boots = [Run("a", tmp_path, failed="no end within 1 s", hung=True), Run("a", tmp_path)]
    monkeypatch.setattr(lab, "boot", lambda *_, **__: boots.pop(0))
    kernel = guests.Kernel("6.1", "amd64", "bookworm", ("x",))
    run = lab.one(tmp_path, Cell("a", "b", "hogs 1 0"), kernel, again=True, timeout=1)
    assert (run.failed, boots) == ("", [])


def test_the_table_keeps_the_rows_of_other_cells(tmp_path: Path) -> None:
    x, y = (Cell(name, "amd64-6.1", "hogs 1 0") for name in "xy")
    page.keep([(x, Run("x", tmp_path), Verdict()), (y, Run("y", tmp_path), Verdict())], tmp_path)
    before = results.read(tmp_path / "lab-cells.csv")
    failed = Run("x", tmp_path, failed="no end within 1 s")
    path = page.keep([(x, failed, None)], tmp_path)
    after = results.read(path)
    assert [row["cell"] for row in after] == ["x", "y"]
    assert after[0]["events"] == "failed: no end within 1 s"
    assert after[0]["check"] == "", "the last run counts"
    assert after[1] == before[1]


def test_table_has_the_kernels_preemption_model(tmp_path: Path) -> None:
    """Not the one that it was asked for: a kernel may know it or not."""
    (tmp_path / "lab.capture").mkdir()
    (tmp_path / "lab.capture/capture.json").write_text('{"preempt": "voluntary (dynamic)"}')
    (tmp_path / "console.log").write_text("LAB: up 6.12 x86_64, 2 CPUs, 4.20 s\n")
    cell = Cell("x", "amd64-6.12", "hogs 1 0", append="preempt=lazy", options="-t perf")
    (row,) = results.read(page.keep([(cell, Run("x", tmp_path), Verdict())], tmp_path))
    assert row["kernel"] == "6.12 x86_64, preemption voluntary (dynamic)"
    assert row["workload"] == "hogs 1 0; preempt=lazy; -t perf"


def test_program_beside_the_workload_is_in_the_recording(tmp_path: Path) -> None:
    """The recording ends when both have; its exit code is the workload's."""
    job = (guests.HERE / "guest/job.sh").read_text()
    for place in ("/collectors", "/sys/kernel/tracing", "/out"):
        job = job.replace(f"{place}/", f"{tmp_path}{place}/")
    for folder in ("collectors", "sys/kernel/tracing/instances", "out", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "collectors/capture").write_text('shift 3; "$@"; echo "capture $?"; exit 7')
    work = tmp_path / "bin/work"
    work.write_text('#!/bin/sh\nshift\necho "work $*"; exit 5\n')
    work.chmod(0o755)
    settings = "WORK='hogs 1 0'\nOPTIONS=\nBEFORE=\n"
    path = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}

    def told(during: str) -> str:
        words = ["sh", "-c", f"{settings}DURING={shlex.quote(during)}\n{job}"]
        done = subprocess.run(words, env=path, capture_output=True, text=True, check=False)
        assert done.returncode == 7
        shutil.rmtree(tmp_path / "sys/kernel/tracing/instances/judge")
        return done.stdout

    assert told("") == "work hogs 1 0\ncapture 5\n"
    beside = "sleep 0.2; echo 'beside it'"
    assert told(beside) == "work hogs 1 0\nbeside it\ncapture 5\n"


@pytest.mark.needs("mkfs.ext4", "debugfs")
def test_a_disk_with_a_distributions_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suites that keep libraries below /usr only have them where programs look for them."""

    class Suite:
        def unpack(self, names: list[str], into: Path, *, dependencies: bool) -> None:
            assert (names, dependencies) == (["perf"], True)
            (into / "usr/lib64").mkdir(parents=True)
            (into / "usr/share/doc").mkdir(parents=True)
            (into / "usr/share/doc/large").write_bytes(b"x" * 1_000_000)
            (into / "usr/lib64/ld.so").write_text("loader")

    monkeypatch.setattr(guests, "archive", lambda *_: Suite())
    kernel = guests.Kernel("6.12", "amd64", "trixie", ("x",))
    disk = guests.tools(tmp_path, kernel, ["perf"])

    def there(path: str) -> str:
        words = ["debugfs", "-R", f"stat {path}", str(disk)]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    assert 'Fast link dest: "usr/lib64"' in there("/lib64")
    assert "Type: regular" in there("/usr/lib64/ld.so")
    assert "Type:" not in there("/usr/share/doc/large")
    monkeypatch.setattr(guests, "archive", lambda *_: None)
    assert guests.tools(tmp_path, kernel, ["perf"]) == disk, "made once"


@pytest.mark.needs(
    "qemu-system-x86_64", "qemu-system-s390x", "s390x-linux-gnu-gcc", "apt-get", "dpkg-deb", "cpio"
)
@pytest.mark.parametrize("name", [cell.name for cell in lab.matrix()[1] if cell.ci])
@pytest.mark.release
def test_kernels_booted_here_and_now_are_read_rightly(name: str) -> None:
    """One amd64 and one big-endian machine: each event is what that kernel printed of it."""
    kernels, cells = lab.matrix()
    (cell,) = (cell for cell in cells if cell.name == name)
    run = lab.one(lab.default_cache(), cell, kernels[cell.kernel], again=True, timeout=240)
    if run.failed and packages.NOT_WHOLE in run.failed:
        pytest.skip(f"needs a Debian mirror that is whole for {name}")
    assert not run.failed, f"{cell.name}: {run.failed}"
    verdict = judge(run.folder)
    assert verdict.events > 500, verdict
    assert verdict.differing == 0, verdict.examples
    assert verdict.threads >= 16, verdict
    # Those that are preempted on their way to sleep: two in one run of some ten.
    assert verdict.switch_ins <= 2, verdict.examples


def test_an_emulator_ends_with_the_program_that_called_it() -> None:
    """However that ends: an abandoned machine would go on for minutes."""
    program = (
        "import subprocess, threading\n"
        f"words = [*{ENDS_WITH_US!r}, 'sh', '-c', 'echo $$; exec sleep 600']\n"
        "threading.Thread(target=subprocess.run, args=[words]).start()\n"
    )
    caller = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert caller.stdout is not None
    called = int(caller.stdout.readline())
    assert Path(f"/proc/{called}").exists()
    caller.kill()
    caller.wait()
    for _ in range(200):
        try:
            state = Path(f"/proc/{called}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    os.kill(called, 9)
    pytest.fail("it went on")
