"""Control groups in the simulator: weights and quotas have the effects worked out by hand."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from archives import unpack

import schedscope as ss
from schedscope.analysis.shares.group_weights import AUTOGROUP
from schedscope.analysis.threads.memberships import memberships
from schedscope.cli import main
from schedscope.errors import UsageError
from schedscope.simulator.changes.groups import without_sessions
from schedscope.simulator.policies.policy import policies
from schedscope.simulator.recorded.extract import extract
from schedscope.simulator.recorded.groups import recorded_groups
from schedscope.simulator.runs.replay import replay
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.workload import read_workload
from schedscope.store.trace import Trace

MS = 1_000_000
FIXTURES = Path(__file__).parents[2] / "fixtures"
WITH_GROUPS = [
    name for name in policies()["name"].to_list() if name.split("-")[0] in ("cfs", "eevdf")
]
WITH_QUOTAS = [name for name in WITH_GROUPS if not name.startswith("cfs-2.6")]


def loops(b: Builder, name: str, n: int = 1, **options: Any) -> None:
    b.threads(name, n, **options).run("100ms").repeat(None)


def run(b: Builder, policy: str, cpus: int = 1, seconds: int = 4, **options: Any) -> Trace:
    return simulate(b.workload(), policy=policy, cpus=cpus, until=f"{seconds}s", **options)


def cpu_time(trace: Trace) -> dict[str, float]:
    """Seconds that the threads of each control group ran; "" for those in none."""
    known = trace.threads.filter(pl.col("utid") >= trace.ncpu).select("utid", "cgroup")
    found = (
        trace.states.filter(pl.col("state") == "running")
        .join(known, on="utid")
        .group_by(pl.col("cgroup").fill_null(""))
        .agg(pl.col("dur").sum() / 1e9)
        .collect()
    )
    return dict(found.iter_rows())


@pytest.mark.parametrize("policy", WITH_GROUPS)
def test_a_cpu_is_shared_by_the_weights_of_groups(policy: str) -> None:
    b = Builder()
    for group, weight in (("/a", 100), ("/b", 300)):
        loops(b, group, 2, group=b.group(group, weight=weight))
    assert cpu_time(run(b, policy)) == pytest.approx({"/a": 1, "/b": 3}, abs=0.03)


@pytest.mark.parametrize("policy", WITH_GROUPS)
def test_two_cpus_are_shared_by_the_weights_of_groups(policy: str) -> None:
    b = Builder()
    for group, weight in (("/a", 100), ("/b", 300)):
        loops(b, group, 4, group=b.group(group, weight=weight))
    # 2.6 balances by loads that lag behind, and moves whole threads.
    off = 0.15 if policy.startswith("cfs-2.6") else 0.03
    assert cpu_time(run(b, policy, cpus=2)) == pytest.approx({"/a": 2, "/b": 6}, abs=off)


@pytest.mark.parametrize("policy", WITH_GROUPS)
def test_one_thread_gets_as_much_as_four_of_another_group(policy: str) -> None:
    b = Builder()
    for group, n in (("/a", 1), ("/b", 4)):
        loops(b, group, n, group=b.group(group))
    assert cpu_time(run(b, policy)) == pytest.approx({"/a": 2, "/b": 2}, abs=0.02)


@pytest.mark.parametrize("policy", WITH_GROUPS)
def test_groups_in_groups_share_what_their_parent_gets(policy: str) -> None:
    """/a and /b half each; in /b a thread of 100 beside groups of 100 and 300."""
    b = Builder()
    for group, weight in (("/a", 100), ("/b", 100), ("/b/x", 100), ("/b/y", 300)):
        loops(b, group, group=b.group(group, weight=weight))
    wanted = {"/a": 2, "/b": 0.4, "/b/x": 0.4, "/b/y": 1.2}
    assert cpu_time(run(b, policy)) == pytest.approx(wanted, abs=0.03)


@pytest.mark.parametrize("policy", WITH_GROUPS)
def test_a_group_competes_with_threads_of_its_parent(policy: str) -> None:
    b = Builder()
    loops(b, "in", 3, group=b.group("/a", weight=200))
    loops(b, "out")
    assert cpu_time(run(b, policy, seconds=3)) == pytest.approx({"/a": 2, "": 1}, abs=0.03)


@pytest.mark.parametrize("policy", WITH_QUOTAS)
@pytest.mark.parametrize("cpus", [1, 2])
def test_a_quota_is_what_a_group_gets(policy: str, cpus: int) -> None:
    b = Builder()
    loops(b, "in", 3, group=b.group("/a", quota="20ms"))
    trace = run(b, policy, cpus=cpus)
    assert cpu_time(trace)["/a"] == pytest.approx(0.8, abs=0.01)
    mine = pl.col("utid") >= trace.ncpu
    held = trace.states.filter(mine, pl.col("state") == "runnable").collect()["dur"].sum()
    # Each thread waits whenever it does not run.
    assert held == pytest.approx(3 * 4e9 - 0.8e9, rel=0.01)


@pytest.mark.parametrize("policy", WITH_QUOTAS)
def test_a_group_is_held_back_from_the_end_of_its_quota_to_the_end_of_the_period(
    policy: str,
) -> None:
    """Ticks every 5 ms: slices of 5 ms end with them, so that nothing is overdrawn.

    |----20 ms----|.....80 ms.....|----20 ms----|.....
    """
    b = Builder()
    b.thread("in", group=b.group("/a", quota="20ms")).run("60ms")
    trace = run(b, policy, set={"hz": 200})
    own = trace.states.filter(pl.col("utid") == 1, pl.col("state") == "running").collect()
    runs = own.sort("ts").select(pl.col("ts") // MS, pl.col("dur") / MS).rows()
    assert [(ts, dur) for ts, dur in runs] == [(0, 20), (100, 20), (200, 20)]


@pytest.mark.parametrize("policy", WITH_QUOTAS)
def test_the_period_begins_at_its_phase(policy: str) -> None:
    b = Builder()
    b.thread("in", group=b.group("/a", quota="20ms", phase="30ms")).run("50ms")
    trace = run(b, policy, set={"hz": 200})
    own = trace.states.filter(pl.col("utid") == 1, pl.col("state") == "running").collect()
    assert own["ts"].sort().to_list() == [0, 30 * MS, 130 * MS]


@pytest.mark.parametrize("policy", WITH_QUOTAS)
def test_others_run_while_a_group_is_held_back(policy: str) -> None:
    b = Builder()
    loops(b, "in", group=b.group("/a", quota="20ms"))
    loops(b, "out", group=b.group("/b"))
    assert cpu_time(run(b, policy)) == pytest.approx({"/a": 0.8, "/b": 3.2}, abs=0.02)


@pytest.mark.parametrize("policy", WITH_QUOTAS)
def test_a_quota_holds_for_all_groups_inside(policy: str) -> None:
    """On one CPU both groups get the same of it; on two who comes first takes more of a period."""
    b = Builder()
    b.group("/a", quota="30ms")
    for group in ("/a/x", "/a/y"):
        loops(b, group, group=b.group(group))
    assert cpu_time(run(b, policy)) == pytest.approx({"/a/x": 0.6, "/a/y": 0.6}, abs=0.02)
    both = cpu_time(run(b, policy, cpus=2))
    assert sum(both.values()) == pytest.approx(1.2, abs=0.02)
    assert min(both.values()) > 0.4


@pytest.mark.parametrize("policy", WITH_QUOTAS)
def test_a_group_below_its_quota_is_not_held_back(policy: str) -> None:
    def waits(quota: str | None) -> int:
        b = Builder()
        b.thread("in", group=b.group("/a", quota=quota)).run("3ms").sleep("7ms").repeat(100)
        trace = run(b, policy)
        return int(trace.waits.filter(pl.col("utid") == 1).collect()["wait"].sum())

    assert waits("40ms") == waits(None)


@pytest.mark.parametrize("policy", ["ule-14", "4bsd", "bfs", "o1", "staircase", "rr", "cfs-2.6.32"])
def test_unsupported_group_features_are_reported(policy: str) -> None:
    b = Builder()
    loops(b, "in", group=b.group("/a", weight=500, quota="20ms"))
    loops(b, "out", group=b.group("/b"))
    trace = run(b, policy)
    told = [text for text in trace.info["warnings"] if "group" in text]
    if policy in WITH_GROUPS:
        assert told == [f"a quota of a control group ignored: {policy} keeps none"]
    else:
        assert told == [f"2 control groups ignored: {policy} has none"]
        assert cpu_time(trace)["/a"] == pytest.approx(2, abs=0.2)


def test_a_workload_with_groups_is_kept(tmp_path: Path) -> None:
    b = Builder()
    loops(b, "in", group=b.group("/a", weight=30, quota="20ms", period="50ms", phase="10ms"))
    path = b.workload().save(tmp_path / "x.workload")
    again = read_workload(path)
    assert again.groups.equals(b.workload().groups)
    assert again.threads["group"].to_list() == ["/a"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"path": "a"}, "a path below /"),
        ({"path": "/a", "weight": 0}, "a weight from 1 to 10000"),
        ({"path": "/a", "quota": 0}, "1 ms or more, or none"),
        ({"path": "/a", "quota": "10ms", "period": "2s"}, "a time from 1 ms to 1 s"),
    ],
)
def test_invalid_groups_are_refused(options: dict[str, Any], says: str) -> None:
    b = Builder()
    b.group(**options)
    with pytest.raises(UsageError, match=says):
        b.workload()


@pytest.mark.parametrize(
    ("thread", "group", "says"),
    [(0, "/b", "a group of the table `groups`"), (7, "/a", "the number of a thread")],
)
def test_invalid_moves_are_refused(thread: int, group: str, says: str) -> None:
    b = Builder()
    loops(b, "in", group=b.group("/a"))
    b.move(thread, group, at="1ms")
    with pytest.raises(UsageError, match=says):
        b.workload()


@pytest.fixture(scope="module")
def moved() -> Trace:
    """One CPU for 4 s: a and b in /low (100), c in /high (300); a goes to /high after 1 s.

    /low has a quarter: a and b 1/8 each, c 3/4. Then b has 1/4, and a and c 3/8 each. In all
    a 0.125 + 1.125, b 0.125 + 0.75, c 0.75 + 1.125 s.
    """
    b = Builder()
    low, high = b.group("/low", weight=100), b.group("/high", weight=300)
    a = b.thread("a", group=low).run("100ms").repeat(None)
    loops(b, "b", group=low)
    loops(b, "c", group=high)
    b.move(a, high, at="1s")
    return run(b, "eevdf-6.12")


def by_thread(trace: Trace) -> dict[str, float]:
    """Seconds that each thread ran."""
    ran = trace.states.filter(pl.col("state") == "running", pl.col("utid") >= trace.ncpu)
    named = ran.join(trace.threads.select("utid", "comm"), on="utid")
    return dict(named.group_by("comm").agg(pl.col("dur").sum() / 1e9).collect().iter_rows())


def test_trace_has_the_move(moved: Trace) -> None:
    assert by_thread(moved) == pytest.approx({"a": 1.25, "b": 0.875, "c": 1.875}, abs=0.02)
    rows = memberships(moved).filter(utid=1).drop("utid").rows()
    assert rows == [(0, 1000 * MS, "/low"), (1000 * MS, 4000 * MS, "/high")]
    assert moved.threads.filter(utid=1).collect()["cgroup"].item() == "/high"


@pytest.mark.parametrize("policy", WITH_GROUPS)
def test_a_replay_moves_threads_between_groups_when_they_moved(moved: Trace, policy: str) -> None:
    workload = replay(moved).workload
    assert workload.threads["group"].to_list() == ["/low", "/low", "/high"]
    assert workload.moves.rows() == [(1000 * MS, 0, "/high")]
    again = simulate(moved, policy=policy)
    assert by_thread(again) == pytest.approx(by_thread(moved), abs=0.03)


def test_a_replay_in_the_last_group_alone_would_be_far_off(moved: Trace) -> None:
    """What the test above would see if moves were left out: /high would hold a all along."""
    workload = replay(moved).workload
    last = workload.threads.with_columns(group=pl.Series(["/high", "/low", "/high"]))
    bare = replace(workload, threads=last, moves=workload.moves.clear())
    stays = simulate(bare, policy="eevdf-6.12", until="4s")
    assert by_thread(stays) == pytest.approx({"a": 1.5, "b": 1, "c": 1.5}, abs=0.02)


def test_a_thread_that_leaves_all_groups_competes_with_them() -> None:
    """a has a quarter as one of four in /low, and after a second half of the CPU beside /low."""
    b = Builder()
    low = b.group("/low")
    a = b.thread("a", group=low).run("100ms").repeat(None)
    loops(b, "b", 3, group=low)
    b.move(a, None, at="1s")
    trace = run(b, "eevdf-6.12", seconds=3)
    assert by_thread(trace)["a"] == pytest.approx(0.25 + 1, abs=0.02)
    assert replay(trace).workload.moves.rows() == [(1000 * MS, 0, None)]
    assert by_thread(simulate(trace))["a"] == pytest.approx(0.25 + 1, abs=0.03)


def test_a_workload_with_moves_is_kept(moved: Trace, tmp_path: Path) -> None:
    workload = replay(moved).workload
    assert read_workload(workload.save(tmp_path / "x.workload")).moves.equals(workload.moves)


def test_threads_given_a_quota_stay_in_its_group(moved: Trace) -> None:
    frame = ss.whatif(moved, quota={"a": "10%"}, replays=1)
    (time,) = frame.filter(comm="a", configuration="changed")["cpu_time"]
    assert time == pytest.approx(0.4e9, abs=0.02e9)


def test_a_thread_in_a_group_that_is_not_listed_is_refused() -> None:
    b = Builder()
    loops(b, "in", group="/a")
    with pytest.raises(UsageError, match="threads of group '/a'"):
        b.workload()


@pytest.fixture(scope="module")
def shared() -> Trace:
    """Two groups of equal weight with a loop each on one CPU, and a loop in none."""
    b = Builder()
    for group in ("/web", "/batch"):
        b.thread(group.strip("/"), group=b.group(group)).run("500ms").repeat(None)
    return simulate(b.workload(), policy="eevdf-6.12", cpus=1, until="2s")


def part(frame: pl.DataFrame, service: str, configuration: str = "changed") -> float:
    row = frame.filter(pl.col(frame.columns[0]) == service, configuration=configuration)
    return float(row["cpu_time"].item()) / 2e9


def test_a_replay_has_the_groups_of_its_trace(shared: Trace) -> None:
    groups, of_threads, _ = recorded_groups(shared, pl.Series([1, 2], dtype=pl.UInt32))
    assert groups.rows() == [
        ("/batch", 100, None, 100 * MS, 0),
        ("/web", 100, None, 100 * MS, 0),
    ]
    assert of_threads.to_list() == ["/web", "/batch"]


def test_weights_of_cgroup_1_are_shares(shared: Trace) -> None:
    rows = [{"cgroup": "/", "weight": 1024}, {"cgroup": "/web", "weight": 512, "quota": 5 * MS}]
    trace = Trace.from_tables(
        {name: getattr(shared, name).collect() for name in ("threads", "switches", "wakeups")},
        {**shared.info, "groups": rows},
    )
    groups, of_threads, _ = recorded_groups(trace, pl.Series([1, 2], dtype=pl.UInt32))
    assert groups.select("path", "weight", "quota").rows() == [("/web", 50, 5 * MS)]
    assert of_threads.to_list() == ["/web", None]


def with_sessions(told: bool = True) -> Trace:
    """A loop of nice 0 in a session of nice 5, one in a session of nice 0, one in a group."""
    b = Builder()
    for name, nice in (("low", 5), ("high", 0)):
        loops(b, name, nice=nice)
    loops(b, "web", group=b.group("/web"))
    real = simulate(b.workload(), policy="eevdf-6.12", cpus=1, until="2s")
    tables = {n: getattr(real, n).collect() for n in ("switches", "wakeups", "threads", "states")}
    root = pl.when(pl.col("utid") > 0).then(pl.coalesce("cgroup", pl.lit("/")))
    tables["threads"] = tables["threads"].with_columns(cgroup=root, kernel=pl.lit(value=False))
    pids = dict(real.threads.select("comm", "pid").collect().iter_rows())
    rows = [
        {"pid": pids[c], "session": n, "nice": k} for c, n, k in (("low", 7, 5), ("high", 8, 0))
    ]
    about = {
        **real.info,
        "os": "Linux",
        "autogroups": rows if told else None,
        "scheduler": {"name": "eevdf", "tunables": {AUTOGROUP: "1"}},
    }
    return Trace.from_tables(tables, {k: v for k, v in about.items() if v is not None})


def test_threads_in_no_group_are_in_that_of_their_session() -> None:
    trace = with_sessions()
    groups, of_threads, _ = recorded_groups(trace, pl.Series([1, 2, 3], dtype=pl.UInt32))
    assert of_threads.to_list() == ["/autogroup-7", "/autogroup-8", "/web"]
    # 335 is the kernel's number for nice 5, 1024 that of nice 0.
    weights = dict(groups.select("path", "weight").iter_rows())
    wanted = {"/web": 100, "/autogroup-8": 100, "/autogroup-7": 335 / 10.24}
    assert weights == pytest.approx(wanted)


def test_unrecorded_sessions_are_reported() -> None:
    known = extract(with_sessions()).info["extraction"]
    assert (known["groups"], known["groups_lacking"]) == (3, None)
    told = extract(with_sessions(told=False)).info["extraction"]
    assert told["groups"] == 1
    assert told["groups_lacking"].startswith("the session of 2 threads (autogroup was on")


def test_sessions_share_where_the_host_has_no_control_groups() -> None:
    """No hierarchy is mounted: the recorder found sessions, and no group of any process."""
    trace = with_sessions()
    about = {key: value for key, value in trace.info.items() if key != "groups"}
    tables = {n: getattr(trace, n).collect() for n in ("switches", "wakeups", "threads", "states")}
    tables["threads"] = tables["threads"].with_columns(cgroup=pl.lit(None, pl.String))
    bare = Trace.from_tables(tables, about)
    groups, of_threads, _ = recorded_groups(bare, pl.Series([1, 2, 3], dtype=pl.UInt32))
    assert of_threads.to_list() == ["/autogroup-7", "/autogroup-8", None]
    assert groups["path"].to_list() == ["/autogroup-7", "/autogroup-8"]
    # With autogroup off, all three are in none.
    load = extract(bare)
    off = without_sessions(load)
    assert load.groups.height == 2
    assert off.groups.is_empty()
    assert off.threads["group"].is_null().all()
    assert off.threads.drop("group").equals(load.threads.drop("group"))
    # Without sessions either, nothing says how CPU time is shared.
    told = extract(Trace.from_tables(tables, {**about, "autogroups": []})).info["extraction"]
    assert told["groups_lacking"].startswith("weights and quotas of control groups, and sessions")


@pytest.mark.parametrize(
    ("name", "policy"), [("amd64-6.1", "cfs-6.1"), ("amd64-6.12", "eevdf-6.12")]
)
def test_a_recorded_quota_is_kept(tmp_path: Path, name: str, policy: str) -> None:
    """Without its quota the group took about twice as much, by which threads share a CPU."""
    with tarfile.open(FIXTURES / "lab" / f"{name}-quota.tar.xz") as archive:
        unpack(archive, tmp_path)
    trace = ss.open(tmp_path / "lab.capture")
    frame = ss.whatif(trace, quota={"/limited": "none"}, by="cgroup", replays=1)
    own = frame.filter(pl.col("cgroup") == "/limited")
    time = dict(own.select("configuration", "cpu_time").iter_rows())
    assert replay(trace).policy == policy
    assert time["replayed"] == pytest.approx(time["recorded"], rel=0.02)
    assert time["changed"] > 1.9 * time["recorded"]


def test_changed_weight_changes_the_share(shared: Trace) -> None:
    frame = ss.whatif(shared, set_weight={"/web": 300})
    assert part(frame, "web", "replayed") == pytest.approx(0.5, abs=0.01)
    assert part(frame, "web") == pytest.approx(0.75, abs=0.01)
    assert part(frame, "batch") == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(("quota", "then"), [("20%", 0.2), ("10ms/50ms", 0.2), ("none", 0.5)])
def test_a_quota_limits_a_group(shared: Trace, quota: str, then: float) -> None:
    frame = ss.whatif(shared, quota={"batch": quota})
    assert part(frame, "batch") == pytest.approx(then, abs=0.01)
    assert part(frame, "web") == pytest.approx(1 - then, abs=0.01)


def test_threads_without_a_group_get_a_new_one() -> None:
    b = Builder()
    for name in ("web", "batch", "batch"):
        loops(b, name)
    trace = simulate(b.workload(), policy="eevdf-6.12", cpus=1, until="2s")
    frame = ss.whatif(trace, quota={"batch": "10%"})
    assert part(frame, "batch") == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (["--quota", "/nobody=50%"], "no control group '/nobody'"),
        (["--quota", "nobody=50%"], "no thread 'nobody'"),
        (["--quota", "/web=0"], "quota '0' of '/web'"),
        (["--quota", "/web=0%"], "1 ms or more in each period"),
        (["--quota", "/web=50%", "--quota", "/web=60%"], "one of them"),
        (["--quota", "/web=5ms/2s"], "a period from 1 ms to 1 s"),
        (["--set-weight", "/web=0"], "a number from 1 to 10000"),
        (["--set-weight", "/web=heavy"], "a number from 1 to 10000"),
        (["--set-weight", "/nobody=100"], "no control group '/nobody'"),
        (["--set-weight", "/web=100", "--policy", "ule-14"], "it has no groups"),
        (["--quota", "/web=50%", "--policy", "cfs-2.6.32"], "it keeps no quotas"),
    ],
)
def test_invalid_change_is_reported_in_one_sentence(
    shared: Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: list[str], says: str
) -> None:
    path = tmp_path / "x.sched"
    shared.to_sched(path)
    assert main(["whatif", str(path), *asked]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert "Traceback" not in told
