"""Shares that are due where control groups and sessions share a CPU first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from scenes import MS, scene

import schedscope as ss
from schedscope import cli
from schedscope.analysis.findings import unfair as rule
from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.heavier import heavier
from schedscope.analysis.findings.lower_weight import lower_weight
from schedscope.analysis.shares.group_weights import AUTOGROUP, GroupWeights
from schedscope.analysis.shares.sharing_groups import competitors, sharing
from schedscope.analysis.threads.levels import Levels

FIXTURES = Path(__file__).parents[2] / "fixtures"
SECOND = 1000


def world(
    turns: list[int],
    cgroups: list[str | None],
    weights: dict[str, int],
    **about: Any,
) -> ss.Trace:
    """One CPU; thread n runs `turns[n]` ms of each 100, and all want it all the time."""
    assert sum(turns) == 100
    lines = []
    for start in range(0, SECOND, 100):
        at = start
        for number, turn in enumerate(turns):
            lines.append(f"t{number} running@0 {at}..{at + turn}")
            if at > start:
                lines.append(f"t{number} runnable@0 {start}..{at}")
            if at + turn < start + 100:
                lines.append(f"t{number} runnable@0 {at + turn}..{start + 100}")
            at += turn
    return grouped(lines, cgroups, weights, ncpu=1, **about)


def grouped(
    lines: list[str],
    cgroups: list[str | None],
    weights: dict[str, int],
    *,
    ncpu: int,
    **about: Any,
) -> ss.Trace:
    """A scene of threads of nice 0, in order of appearance in these control groups."""
    made = scene("\n".join(lines), ncpu=ncpu)
    number = pl.int_range(pl.len()) - made.ncpu
    threads = made.threads.with_columns(
        cgroup=number.replace_strict(
            list(range(len(cgroups))), cgroups, default=None, return_dtype=pl.String
        ),
        kernel=pl.lit(value=False),
        prio=pl.lit(120, pl.Int16),
        sched_class=pl.when(number >= 0).then(pl.lit("fair")).otherwise(pl.lit("idle")),
        pid=pl.col("utid").cast(pl.UInt32),
        start_ts=pl.lit(None, pl.Int64),
        parent_utid=pl.lit(None, pl.UInt32),
    )
    groups = [{"cgroup": path, "weight": weight} for path, weight in weights.items()]
    info = made.info | {"os": "Linux", "groups": groups} | about
    states = made.states.with_columns(prio=pl.lit(120, pl.Int16))
    return ss.Trace.from_tables({"states": states, "threads": threads, "waits": made.waits}, info)


def lags(trace: ss.Trace) -> dict[str, float]:
    rows = ss.fairness(trace).filter(pl.col("comm").str.starts_with("t"))
    return {comm: round(lag / MS) for comm, lag in rows.select("comm", "lag").rows()}


def unfair(trace: ss.Trace) -> list[str]:
    """What findings say of fairness."""
    return [found.text for found in rule.unfair(Facts(trace, "100ms"))]


def test_service_due_follows_the_groups_weight() -> None:
    trace = world([25, 75], ["/a", "/b"], {"/a": 100, "/b": 300})
    assert lags(trace) == {"t0": 0, "t1": 0}
    assert ss.jain_index(trace)["jain"].to_list() == [pytest.approx(1)]
    assert unfair(trace) == []
    # The look-alike: the same times in groups of equal weight.
    trace = world([25, 75], ["/a", "/b"], {"/a": 100, "/b": 100})
    assert lags(trace) == {"t0": 250, "t1": -250}
    [text] = unfair(trace)
    assert "Weights of control groups and sessions are included" in text


def test_a_group_is_due_the_same_however_many_threads_it_has() -> None:
    trace = world([50, 25, 25], ["/a", "/b", "/b"], {"/a": 100, "/b": 100})
    assert lags(trace) == {"t0": 0, "t1": 0, "t2": 0}
    # Beside groups a thread of none counts by its own weight: 1024 is a group's 100.
    trace = world([50, 25, 25], ["/", "/b", "/b"], {"/b": 100})
    assert lags(trace) == {"t0": 0, "t1": 0, "t2": 0}
    trace = world(
        [10, 30, 60], ["/a/x", "/a/y", "/b"], {"/a": 200, "/a/x": 10, "/a/y": 30, "/b": 300}
    )
    assert lags(trace) == {"t0": 0, "t1": 0, "t2": 0}


def test_version_1_counts_in_the_kernels_own_weights() -> None:
    trace = world([50, 50], ["/", "/b"], {"/": 1024, "/b": 1024})
    assert lags(trace) == {"t0": 0, "t1": 0}
    assert GroupWeights(trace).path("/") == ()


def test_advice_names_the_files_of_the_hosts_version() -> None:
    for weights, name in (({"/b": 100}, "cpu.max"), ({"/": 1024, "/b": 1024}, "cpu.cfs_quota_us")):
        trace = world([10, 90], ["/", "/b"], weights)
        trace.info["groups"][-1] |= {"throttled": SECOND * MS, "n_throttled": 9, "n_periods": 10}
        [advice] = ss.findings(trace).filter(topic="quota")["advice"]
        assert advice == f"Raise {name}, or run fewer threads at a time."


def sessions(*rows: tuple[int, int, int]) -> dict[str, Any]:
    found = [{"pid": pid, "session": number, "nice": nice} for pid, number, nice in rows]
    return {"autogroups": found, "scheduler": {"tunables": {AUTOGROUP: "1"}}}


def test_sessions_are_groups_where_autogroup_is_on() -> None:
    # 15 is the weight of nice 19.
    about = sessions((1, 7, 0), (2, 8, 19))
    trace = world([98, 2], ["/", "/"], {"/": 1024}, **about)
    rows = lags(trace)
    assert abs(rows["t0"]) <= 10
    assert abs(rows["t1"]) <= 10
    assert unfair(trace) == []
    # Switched off, or of one session, both are due the same.
    about["scheduler"] = {"tunables": {AUTOGROUP: "0"}}
    assert lags(world([98, 2], ["/", "/"], {"/": 1024}, **about))["t1"] == 480
    about = sessions((1, 7, 0), (2, 7, 0))
    assert lags(world([98, 2], ["/", "/"], {"/": 1024}, **about))["t1"] == 480


def test_unknown_or_moved_threads_are_excluded_and_reported() -> None:
    # One thread's session is unknown: it started while it was recorded, and its parent's is, too.
    about = sessions((1, 7, 0))
    trace = world([50, 50], ["/", "/"], {"/": 1024}, **about)
    tables = {name: getattr(trace, name).collect() for name in ("states", "threads")}
    born = pl.when(pl.col("utid") == 2).then(5).cast(pl.Int64)
    tables["threads"] = tables["threads"].with_columns(start_ts=born)
    unknown = ss.Trace.from_tables(tables, dict(trace.info))
    assert GroupWeights(unknown).to_native() is None
    assert any("groups are unknown" in note for note in ss.weight_notes(unknown))
    trace = world([25, 75], ["/a", "/b"], {"/a": 100, "/b": 300})
    tables = {name: getattr(trace, name).collect() for name in ("states", "threads")}
    tables["threads"] = tables["threads"].with_columns(
        exit_ts=pl.lit(None, pl.Int64), tid=pl.col("utid")
    )
    move = {"ts": 500 * MS, "tid": 1, "from": "/b", "cgroup": "/a"}
    moved = ss.Trace.from_tables(tables, dict(trace.info) | {"group_moves": [move]})
    assert GroupWeights(trace).to_native() is not None
    assert GroupWeights(moved).to_native() is None
    # Whether anybody got too little is not known then.
    assert GroupWeights(moved).undecided()
    assert not GroupWeights(trace).undecided()
    assert unfair(moved) == []


def test_a_program_that_moved_before_it_ran_counts_in_its_group() -> None:
    """As in a container: 5 of the 1,000 ms that it wants a CPU are before the move."""
    trace = world([25, 75], ["/a", "/b"], {"/a": 50, "/b": 300})
    tables = {name: getattr(trace, name).collect() for name in ("states", "threads")}
    tables["threads"] = tables["threads"].with_columns(
        exit_ts=pl.lit(None, pl.Int64), tid=pl.col("utid")
    )
    for at, settled in ((5, True), (20, False)):
        move = {"ts": at * MS, "tid": 1, "from": "/", "cgroup": "/a"}
        moved = ss.Trace.from_tables(tables, dict(trace.info) | {"group_moves": [move]})
        assert GroupWeights(moved).undecided() != settled
        said = [one.text for one in lower_weight(moved, ())]
        assert bool(said) == settled
        assert not said or "its control group /a has weight 50, /b has 300" in said[0]


@pytest.mark.parametrize(("recorder", "known"), [("ftrace", True), ("perf", False)])
def test_thread_that_may_have_entered_a_group_is_undecided(recorder: str, known: bool) -> None:
    """t1 began while it was recorded, and no list at the end has it."""
    plain = world([25, 75], ["/a", "/b"], {"/a": 50, "/b": 300})
    tables = {name: getattr(plain, name).collect() for name in ("states", "threads")}
    tables["threads"] = tables["threads"].with_columns(
        start_ts=pl.when(pl.col("utid") == 2).then(5).cast(pl.Int64),
        cmdline=pl.lit(None, pl.String),
    )
    trace = ss.Trace.from_tables(tables, dict(plain.info) | {"recorder": {"name": recorder}})
    groups = GroupWeights(trace)
    assert (groups.path("/b", 2) == ("/b",)) == known
    assert groups.path("/a", 1) == ("/a",)
    assert groups.undecided() != known
    assert bool(list(lower_weight(trace, ()))) == known


@pytest.mark.parametrize(
    ("cgroups", "option"),
    [
        (["/a", "/b"], "--set-weight /a=300"),
        (["/b", "/a"], "--set-weight /b=600"),  # though it has the larger weight
        (["/a", "/a"], "--set-nice t0=-5"),
    ],
)
def test_advice_against_another_group_is_not_a_nice_level(cgroups: list[str], option: str) -> None:
    trace = world([25, 75], cgroups, {"/a": 100, "/b": 300})  # type: ignore[arg-type]
    assert heavier(trace, 1, "t1") == option
    assert heavier(trace, 1) == "--set-nice t0=-5"


def test_thread_weights_decide_without_groups() -> None:
    trace = world([25, 75], ["/", "/"], {"/": 1024})
    assert not GroupWeights(trace).undecided()
    [text] = unfair(trace)
    assert "are not included and may be the reason" in text


def test_the_machines_queue_has_no_groups() -> None:
    trace = world([25, 75], ["/a", "/b"], {"/a": 100, "/b": 300})
    rows = ss.fairness(trace, per="machine").filter(comm="t0")
    assert rows["lag"].to_list() == [pytest.approx(250 * MS)]


def test_a_groups_weight_follows_its_threads_to_other_cpus() -> None:
    """CPU 0 goes from one thread to the other every 10 ms; no thread joins or leaves it."""
    turns = [
        f"{name} {state}@0 {at}..{at + 10}"
        for at in range(0, SECOND, 10)
        for name, state in zip(
            ("r", "a"), ("running", "runnable")[:: 1 if at % 20 else -1], strict=True
        )
    ]
    where: list[str | None] = ["/", "/g", "/g"]
    trace = grouped([*turns, "b running@1 100..1000"], where, {"/g": 100}, ncpu=2)
    # Half of CPU 0 while the group has no thread elsewhere, then a third: half of its weight.
    due = dict(ss.fairness(trace).select("comm", "due").rows())
    assert due["a"] / MS == pytest.approx(100 / 2 + 900 / 3, abs=2)
    assert due["r"] / MS == pytest.approx(100 / 2 + 900 * 2 / 3, abs=2)


def test_a_thread_that_moves_takes_its_part_of_the_groups_weight_along() -> None:
    lines = ["r running@0 0..1000", "a runnable@0 0..1000", "b runnable@0 0..400"]
    trace = grouped([*lines, "b running@1 400..1000"], ["/", "/g", "/g"], {"/g": 100}, ncpu=2)
    due = dict(ss.fairness(trace).select("comm", "due").rows())
    assert due["a"] / MS == pytest.approx(400 / 4 + 600 / 3)
    assert due["b"] / MS == pytest.approx(400 / 4 + 600)


def test_the_lag_over_time_counts_groups_as_the_sums_do() -> None:
    for trace in (
        ss.open(FIXTURES / "linux-requests.capture"),
        world([25, 75], ["/a", "/b"], {"/a": 100, "/b": 300}),
    ):
        read, how = competitors(trace, Levels(trace), "cpu")
        seen = pl.DataFrame(read.due(sharing(trace, how))).group_by("utid").agg(
            pl.col("due").sum(), lag=(pl.col("due") - pl.col("running")).sum()
        )  # fmt: skip
        last = ss.lag(trace, per="cpu", every="100ms").group_by("utid").last()
        both = seen.join(last, on="utid", suffix="_last")
        sums = ("due", "due_high", "lag", "lag_high")
        rows = ss.fairness(trace, per="cpu").group_by("utid").agg(pl.col(sums).sum())
        assert len(both) == len(rows) > 1
        for name in ("due", "lag"):
            assert (both[name] - both[f"{name}_last"]).abs().max() < 1
        # Both are of what was seen: what is unknown makes them bounds in the sums alone.
        both = last.join(rows.rename({name: f"{name}_sum" for name in sums}), on="utid")
        for name in ("due", "lag"):
            assert (both[f"{name}_sum"] - both[name]).max() < 1
            assert (both[name] - both[f"{name}_high_sum"]).max() < 1


def test_notes_report_whether_groups_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counted, left_out = "share a CPU first, by the weights", "are not counted here"
    path = str(FIXTURES / "linux-requests.capture")
    for words, said in (
        ([], counted),
        (["--every", "300ms"], counted),
        (["--per", "machine"], left_out),
    ):
        assert cli.main(["fairness", path, "--top", "1", "--cache", str(tmp_path), *words]) == 0
        notes = [line for line in capsys.readouterr().out.splitlines() if "sessions" in line]
        assert len(notes) == 1
        assert said in notes[0]
    notes = ss.weight_notes(ss.open(path), groups=False)
    assert any(left_out in note for note in notes)
    # Where all share as one, there is nothing to say of groups.
    alike = world([50, 50], ["/a", "/a"], {"/a": 100})
    assert not any("groups" in note for note in ss.weight_notes(alike))


def test_starvation_by_share_and_by_lag_counts_groups() -> None:
    """Thread 0 waits 75 ms of each 100: too long by its own weight, not by its group's."""
    limits: dict[str, Any] = {"threshold": None, "share": 10, "turn": "3ms"}
    alike = world([25, 75], ["/a", "/b"], {"/a": 100, "/b": 100})
    light = world([25, 75], ["/a", "/b"], {"/a": 100, "/b": 300})
    found = ss.starvation(alike, **limits)
    assert set(found["comm"]) == {"t0"}
    assert found["due"].to_list() == [pytest.approx(75 * MS / 2)] * len(found)
    assert ss.starvation(light, **limits).is_empty()
    few = ss.starvation(light, threshold=None, share=6, turn="3ms").filter(comm="t0")
    assert few["due"].to_list() == [pytest.approx(75 * MS / 4)] * len(found)
    [row] = ss.starvation(alike, threshold=None, lag="100ms").to_dicts()
    assert row["comm"] == "t0"
    # Until it runs for the last time, and of 925 ms: half, less the nine turns that it had.
    assert row["due"] - row["received"] == pytest.approx(row["dur"] / 2 - 9 * 25 * MS, abs=30 * MS)
    assert ss.starvation(light, threshold=None, lag="100ms").is_empty()


def test_time_of_a_better_class_is_still_due_to_groups() -> None:
    """By share all of a CPU's time is due to the runnable threads, whichever gets it."""
    trace = grouped(
        ["rt running@0 0..1000", "a runnable@0 0..1000", "b runnable@0 0..1000"],
        [None, "/a", "/b"],
        {"/a": 100, "/b": 300},
        ncpu=1,
    )
    first = (pl.col("comm") == "rt").fill_null(value=False)
    threads = trace.threads.with_columns(
        sched_class=pl.when(first).then(pl.lit("realtime")).otherwise("sched_class"),
        cgroup=pl.when(first).then(pl.lit("/")).otherwise("cgroup"),
    ).collect()
    who = threads.filter(comm="rt")["utid"].item()
    prio = pl.when(pl.col("utid") == who).then(pl.lit(10, pl.Int16)).otherwise("prio")
    states = trace.states.with_columns(prio=prio)
    tables = {"states": states, "threads": threads, "waits": trace.waits}
    trace = ss.Trace.from_tables(tables, dict(trace.info))
    starved = ss.starvation(trace, threshold=None, share=10)
    assert dict(starved.select("comm", "due").rows()) == {
        "a": pytest.approx(250 * MS),
        "b": pytest.approx(750 * MS),
    }


@pytest.mark.parametrize(("policy", "grouped"), [("ule-14", False), ("eevdf-6.12", True)])
def test_groups_count_where_the_scheduler_knows_weights(policy: str, grouped: bool) -> None:
    """Three hogs on a CPU, two of them in one group of two."""
    load = ss.workload.Builder()
    one, two = load.group("/one"), load.group("/two")
    load.thread("a", group=one).run("1s").repeat()
    load.threads("b", 2, group=two).run("1s").repeat()
    ran = ss.simulate(load.workload(), policy=policy, machine="1x1x1", until="3s")
    due = ss.fairness(ran, per="cpu").filter(comm="a")["due"].item()
    assert due == pytest.approx(3000 * MS / (2 if grouped else 3), rel=0.02)
