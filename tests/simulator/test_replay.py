"""One way to replay a trace: the model of its own kernel, its clock and slice, its length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import schedscope as ss
from schedscope.analysis.asking.policies import resolve
from schedscope.cli import main
from schedscope.errors import UsageError
from schedscope.simulator.closeness.fidelity import fidelity
from schedscope.simulator.recorded.extract import extract, report
from schedscope.simulator.recorded.scheduler import policy_asked, recorded_policy
from schedscope.simulator.runs.replay import replay
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.workload import Workload
from schedscope.store.trace import Trace

FIXTURES = Path(__file__).parents[2] / "fixtures"


def of(**info: Any) -> Trace:
    return Trace.from_tables({}, {"ncpu": 2, "window": [0, 1], **info})


def test_family_name_means_its_newest_preset() -> None:
    presets = ss.policies().filter(family="eevdf")["name"].to_list()
    newest = max(presets, key=lambda name: tuple(map(int, name.split("-")[1].split("."))))
    assert resolve("eevdf") == newest
    assert resolve("eevdf-6.12") == "eevdf-6.12"
    assert resolve("staircase") == "staircase"
    with pytest.raises(UsageError, match="one of fifo"):
        resolve("eevdf-9")


@pytest.mark.parametrize(
    ("info", "family", "policy"),
    [
        ({"release": "6.6.9", "scheduler": {"name": "eevdf"}}, "eevdf", "eevdf-6.6"),
        ({"release": "6.14.0-rc1", "scheduler": {"name": "eevdf"}}, "eevdf", "eevdf-6.12"),
        ({"release": "6.17.3-arch1-1"}, "eevdf", "eevdf-6.17"),
        ({"release": "2.6.32-5-amd64", "scheduler": {"name": "cfs"}}, "cfs", "cfs-2.6.32"),
        ({"release": "5.10.0-32-amd64"}, "cfs", None),
        ({"release": "14.2-RELEASE", "scheduler": {"name": "ULE"}}, "ule", "ule-14"),
        ({"release": "13.2-RELEASE", "scheduler": {"name": "ULE"}}, "ule", "ule-13"),
        ({"release": "14.2-RELEASE", "scheduler": {"name": "4BSD"}}, "4bsd", "4bsd"),
        (
            {"release": "13.2-RELEASE", "os": "FreeBSD", "scheduler": {"name": "4BSD"}},
            "4bsd",
            "4bsd-13",
        ),
        ({"scheduler": {"name": "bfs"}}, "bfs", "bfs"),
        ({"scheduler": {"name": "sched_ext:simple"}, "release": "6.18.2"}, "scx-simple", None),
        ({"scheduler": {"name": "eevdf-6.99"}}, "eevdf", None),
        ({"release": "2.6.22.19"}, "o1", "o1"),
        ({"release": "14.2-RELEASE", "os": "FreeBSD"}, "ule", "ule-14"),
        ({}, "eevdf", None),
    ],
)
def test_the_policy_is_that_of_the_recorded_kernel(
    info: dict[str, Any], family: str, policy: str | None
) -> None:
    found = recorded_policy(of(**info))
    assert ss.policies().filter(name=found)["family"].item() == family
    assert policy is None or found == policy


@pytest.mark.parametrize(
    "info",
    [
        {"release": "6.18.2", "scheduler": {"name": "sched_ext:tango"}},
        {"release": "6.18.2", "scheduler": {"name": "eevdf-tango"}},
        {"scheduler": {"name": "tango"}},
        {"release": "2.4.37"},
        {"os": "NetBSD", "release": "10.1"},
    ],
)
def test_a_scheduler_without_a_model_is_refused(info: dict[str, Any]) -> None:
    trace = of(**info)
    with pytest.raises(
        UsageError, match="of which there is no model; expected a scheduler that is"
    ):
        recorded_policy(trace)
    assert policy_asked(trace, "rr") == "rr"


def test_a_trace_of_a_scheduler_without_a_model_is_replayed_under_one_that_is_named() -> None:
    real = simulate(ss.workload.hogs(2, time="20ms"), policy="rr", cpus=1)
    names = ("switches", "wakeups", "threads", "states", "waits")
    trace = Trace.from_tables(
        {name: getattr(real, name).collect() for name in names},
        {"ncpu": 1, "window": list(real.window), "scheduler": {"name": "sched_ext:tango"}},
    )
    for ask in (simulate, fidelity, lambda one: ss.whatif(one, set_nice={"hog-0": 5})):
        with pytest.raises(UsageError, match="'sched_ext:tango', of which there is no model"):
            ask(trace)
    assert fidelity(trace, policies=["rr"])["wait_p50_ratio"].to_list() == [None, 1]
    assert simulate(trace, policy="rr").duration == real.duration


def test_family_name_means_the_recorded_kernels_preset() -> None:
    known = of(release="6.18.3", scheduler={"name": "eevdf"})
    assert policy_asked(known, "eevdf") == "eevdf-6.18"
    assert policy_asked(known, "eevdf-6.6") == "eevdf-6.6"
    assert policy_asked(known, "cfs") == resolve("cfs")
    assert policy_asked(of(release="6.18.3", scheduler="sched_ext:tango"), "eevdf") == "eevdf-6.18"
    # A kernel that is older than all of them has none of its own.
    assert policy_asked(of(release="5.10.0"), "eevdf") == resolve("eevdf")
    assert policy_asked(of(scheduler="eevdf-6.12"), "eevdf") == "eevdf-6.12"
    trace = ss.open(FIXTURES / "linux-slice-default-1.capture")
    assert simulate(trace, policy="eevdf").metadata("scheduler", "name") == "eevdf-6.18"
    assert fidelity(trace, policies=["eevdf"])["against"].to_list() == ["real", "eevdf-6.18"]


def test_simulate_and_fidelity_agree() -> None:
    """The same waits from both, and from the command, beside those of the recording."""
    trace = ss.open(FIXTURES / "linux-slice-default-1.capture")
    run = simulate(trace)
    row = fidelity(trace, policies=[recorded_policy(trace)]).row(1, named=True)
    ended = run.waits.filter(pl.col("censored") == "none").select(pl.len()).collect().item()
    assert row["n_waits"] == ended
    # It ends with its last thread, a little before the recording.
    assert 0.98 * trace.duration < run.duration <= trace.duration + 1


def test_whatif_replays_a_trace_as_simulate_does() -> None:
    """Figures of the recorded configuration are those of the simulation."""
    trace = ss.open(FIXTURES / "linux-slice-default-1.capture")
    run = simulate(trace, seed=1)
    told = ss.whatif(trace, cpus=4, replays=1, seed=1, by="comm")
    rows = {row["comm"]: row for row in told.filter(configuration="replayed").to_dicts()}
    ended = (
        run.waits.filter(pl.col("censored") == "none")
        .join(run.threads.select("utid", "comm"), on="utid")
        .group_by("comm")
        .agg(n_waits=pl.len())
        .collect()
    )
    same = run.states.filter(pl.col("state") == "running").join(
        run.threads.select("utid", "comm"), on="utid"
    )
    used = dict(same.group_by("comm").agg(pl.col("dur").sum()).collect().iter_rows())
    recorded = told.filter(pl.col("completion").is_null(), configuration="recorded")
    alive = recorded["comm"].to_list()
    assert len(alive) > 3
    for comm, n in ended.iter_rows():
        if comm in alive:
            assert rows[comm]["n_waits"] == n, comm
            # A simulation ends a nanosecond behind the window, to have the rows at its end.
            assert rows[comm]["cpu_time"] == pytest.approx(used.get(comm, 0), abs=1), comm


def test_the_command_shows_the_recording_beside_its_replay(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(FIXTURES / "linux-slice-default-1.capture")
    assert main(["simulate", path, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    rows = [row for row in rows if row["sched_class"] is None]
    assert [row["policy"] for row in rows] == ["as recorded", "eevdf-6.18"]
    waits = ss.latency(ss.open(path))
    assert rows[0]["n_waits"] == waits["n"].item()
    assert rows[1]["n_waits"] == pytest.approx(rows[0]["n_waits"], rel=0.1)
    assert main(["simulate", path, "--to-end", "--stop-at", "1s"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_replay_has_the_recorded_slice() -> None:
    """The kernel's number is scaled for its CPUs: 2.8 ms on 2 are 1.4 ms for one."""
    tunables = {"/sys/kernel/debug/sched/base_slice_ns": "2800000"}
    known = {"name": "eevdf", "tunables": tunables}
    real = simulate(ss.workload.hogs(3, time="10ms"), policy="rr", cpus=2)
    trace = Trace.from_tables(
        {name: getattr(real, name).collect() for name in ("switches", "wakeups", "threads")},
        {"ncpu": 2, "window": list(real.window), "release": "6.12.1", "scheduler": known},
    )
    assert replay(trace).settings("eevdf-6.12")["base_slice"] == 1_400_000
    assert replay(trace).settings("eevdf-6.12", {"base_slice": "3ms"})["base_slice"] == "3ms"
    assert "base_slice" not in replay(trace).settings("rr")


def beats(*, absolute: bool, hog: str = "150ms") -> Workload:
    """Two threads that run 1 to 4 ms every 10 ms, forty times, and a hog."""
    b = Builder()
    for n in range(2):
        thread = b.thread(f"beat-{n}")
        for k in range(40):
            thread.run(f"{1 + (7 * k + 3 * n) % 4}ms")
            if absolute:
                thread.wait_until(f"{10 * (k + 1) + n}ms")
            else:
                thread.sleep("7ms")
    b.thread("hog").run(hog)
    return b.workload()


def test_periodic_timers_are_distinguished_from_sleeps() -> None:
    timed, slept = (simulate(beats(absolute=a), policy="eevdf-6.12", cpus=2) for a in (True, False))
    found = report(extract(timed))
    assert (found["periodic_threads"], found["periodic_waits"]) == (2, 2 * 39)
    assert report(extract(slept))["periodic_threads"] == 0


@pytest.mark.parametrize("hog", ["150ms", "400ms"])
@pytest.mark.parametrize("absolute", [True, False])
def test_under_another_policy_a_replay_ends_when_the_true_program_does(
    absolute: bool, hog: str
) -> None:
    """Recorded on two CPUs, asked for one: known from the program, predicted from the trace."""
    load = beats(absolute=absolute, hog=hog)
    recorded = simulate(load, policy="eevdf-6.12", cpus=2)
    for policy in ("fifo", "rr", "eevdf-6.12"):
        truth = simulate(load, policy=policy, cpus=1)
        predicted = simulate(extract(recorded), policy=policy, cpus=1)
        ends = [
            trace.threads.filter(pl.col("comm") != "hog").select("exit_ts").max().collect().item()
            for trace in (truth, predicted)
        ]
        assert ends[1] == pytest.approx(ends[0], rel=0.03), policy


def talk(pairs: list[tuple[str, str]], times: int = 30) -> Workload:
    """Each pair in turn: the first signals the second and waits for its answer."""
    b = Builder()
    threads = {name: b.thread(name) for name in sorted({n for pair in pairs for n in pair})}
    for k in range(times):
        a, c = pairs[k % len(pairs)]
        threads[a].run("100us").signal(threads[c]).wait_for(threads[c])
        threads[c].wait_for(threads[a]).run("200us").signal(threads[a])
    return b.workload()


def test_only_pairs_of_threads_meet() -> None:
    """With three any may answer: each waits for any of them."""
    two = simulate(talk([("ask", "answer")]), policy="fifo", cpus=2)
    found = report(extract(two))
    assert found["meetings"] > 40
    assert found["waits_for_anyone"] == 0
    three = simulate(talk([("ask", "one"), ("ask", "two")]), policy="fifo", cpus=3)
    found = report(extract(three))
    assert found["meetings"] == 0
    assert found["waits_for_anyone"] > 20  # those of `ask`


def test_background_load_does_not_cut_slices_of_real_time_threads() -> None:
    """A fair thread that is not replayed never took the CPU from a real-time one."""
    b = Builder()
    for n in range(2):
        b.thread(f"rt-{n}", sched="rr", rt_prio=10).run("250ms")
    for _ in range(3):
        b.thread("fair").run("20ms")
    real = simulate(b.workload(), policy="eevdf-6.12", cpus=1)
    rows = fidelity(
        real, where=pl.col("comm").is_in(["rt-0", "rt-1"]), policies=["eevdf-6.12"]
    ).to_dicts()
    assert rows[1]["waits_ratio"] == 1
    assert rows[1]["preemptions_ratio"] == 1
    load = extract(real, where=pl.col("comm") != "fair", others="occupy")
    # Round robin shows: one of the same priority took the CPU from it.
    assert load.threads.filter(pl.col("name") != "others/0")["class"].to_list() == ["rr", "rr"]
    assert load.threads.filter(name="others/0")["rt_prio"].to_list() == [1]


def test_a_real_host_fits_on_fewer_cpus(capsys: pytest.CaptureFixture[str]) -> None:
    """What kernel threads of a CPU did others do; a thread that may run only there is named."""
    path = str(FIXTURES / "linux-ftrace-starved.capture")
    assert main(["simulate", path, "--cpus", "1", "--policy", "rr,fifo"]) == 0
    capsys.readouterr()
    assert simulate(ss.open(path), cpus=1).ncpu == 1
    pinned = str(FIXTURES / "linux-slice-default-1.capture")
    assert main(["simulate", pinned, "--cpus", "1"]) == 2
    assert "'hog-1' may run only on CPUs 1" in capsys.readouterr().err


def self_timed() -> Workload:
    """Three threads that sleep, look at the clock, and from then on run every 10 ms; two hogs."""
    b = Builder()
    for n in range(3):
        thread = b.thread(f"beat-{n}").sleep(f"{7 + 2 * n}ms").run("60us").read_clock("0ms")
        for k in range(20):
            thread.run(f"{400 + 97 * ((7 * k + 3 * n) % 8)}us").wait_until(f"{10 * (k + 1)}ms")
    b.threads("hog", 2).run("120ms")
    return b.workload()


def test_a_timer_that_a_thread_sets_when_it_runs_moves_with_it() -> None:
    def woken(trace: Trace) -> list[int]:
        beats = pl.col("comm").str.starts_with("beat")
        wakes = trace.wakeups.filter(kind="waking").join(trace.threads.filter(beats), on="utid")
        return sorted(wakes.select("ts").collect()["ts"].to_list())

    load = self_timed()
    recorded = simulate(load, policy="rr", cpus=1, set={"quantum": "2ms"})
    found = extract(recorded)
    assert report(found)["clocks_read"] == 3
    # The shortest runs first: no thread waits for the hogs before it reads the clock.
    truth = woken(simulate(load, policy="srtf", cpus=1))
    predicted = woken(simulate(found, policy="srtf", cpus=1))
    assert predicted == pytest.approx(truth, abs=1000)
    assert max(abs(a - b) for a, b in zip(woken(recorded), truth, strict=True)) > 1_000_000
