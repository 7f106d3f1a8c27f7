"""`fairness`, `lag` and `weights`: round numbers, sums that must be zero, naive implementations."""

from __future__ import annotations

import io
import itertools
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, strategies as st
from matplotlib.figure import Figure
from scenes import MS, scene
from test_starvation import CAPTURES, FIXTURES, STRETCH, lines_of

import schedscope as ss
from schedscope import cli
from schedscope.analysis.threads.levels import LINUX_WEIGHTS
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.generators import hogs, nice_hogs

# One CPU: a and b (nice 0) share it from 0 to 90, and c (nice 5, weight 335) waits until 90.
WORLD = """
    a running@0  0..60
    b runnable@0 0..60
    b running@0  60..90
    a runnable@0 60..90
    c runnable@0 30..90
    c running@0  90..100
    a sleeping   90..100
    b sleeping   90..100
"""
THREADS: dict[str, dict[str, Any]] = {"c": {"prio": 125}}


@pytest.fixture
def trace() -> ss.Trace:
    return scene(WORLD, THREADS, ncpu=1, until=100)


def by_comm(frame: pl.DataFrame, column: str) -> dict[str, Any]:
    return dict(frame.select("comm", column).iter_rows())


def test_due_and_received(trace: ss.Trace) -> None:
    """30 ms for two, 60 ms for three with 1024 : 1024 : 335, and 10 ms for c alone."""
    frame = ss.fairness(trace)
    half, third, least = 15, 60 * 1024 / 2383, 60 * 335 / 2383
    due = {name: value / MS for name, value in by_comm(frame, "due").items()}
    assert due == pytest.approx({"a": half + third, "b": half + third, "c": least + 10})
    assert by_comm(frame, "running") == {"a": 60 * MS, "b": 30 * MS, "c": 10 * MS}
    assert by_comm(frame, "waiting") == {"a": 30 * MS, "b": 60 * MS, "c": 60 * MS}
    assert by_comm(frame, "served") == {"a": 90 * MS, "b": 90 * MS, "c": 70 * MS}
    assert by_comm(frame, "weight") == {"a": 1024, "b": 1024, "c": 335}
    assert frame["comm"].to_list() == ["b", "c", "a"], "the one furthest behind comes first"
    assert frame["lag"].sum() == pytest.approx(0, abs=1e-3)
    row = frame.row(0, named=True)
    assert row["share_received"] == pytest.approx(30 / 90)
    assert row["share_due"] == pytest.approx((half + third) / 90)
    assert row["ratio"] == pytest.approx(30 / (half + third))


def test_the_lag_over_time(trace: ss.Trace) -> None:
    frame = ss.lag(trace, where=pl.col("comm") == "a")
    assert (frame["ts"] // MS).to_list() == [0, 60, 90]
    at60 = 15 + 30 * 1024 / 2383 - 60
    assert (frame["lag"] / MS).to_list() == pytest.approx([0, at60, at60 + 30 * 1024 / 2383])
    assert frame["received"].to_list() == [0, 60 * MS, 60 * MS]
    grid = ss.lag(trace, every="10ms")
    assert grid.height == 3 * 11
    assert grid["ts"].max() == 100 * MS
    sums = grid.group_by("ts").agg(pl.col("lag").sum())["lag"]
    assert sums.to_list() == pytest.approx([0] * 11, abs=1e-3)


def test_lag_over_time_reports_unknown_time() -> None:
    """From 20 to 45 and from 70 on a is unknown; b is completely known."""
    text = """
        a running@0 0..20
        a unknown   20..45
        b running@0 20..70
        a running@0 45..45
        a sleeping  45..70
        a unknown   70..100
        b sleeping  70..100
    """
    trace = scene(text, ncpu=1, until=100)
    grid = ss.lag(trace, every="25ms")
    unknown = {name: part["unknown"].to_list() for (name,), part in grid.group_by("comm")}
    assert unknown == {"a": [0, 5 * MS, 25 * MS, 30 * MS, 55 * MS], "b": [0] * 5}
    whole = ss.fairness(trace)
    assert by_comm(grid.filter(pl.col("ts") == 100 * MS), "unknown") == by_comm(whole, "unknown")


def test_other_classes_do_not_compete() -> None:
    """While bully has the CPU no fair thread is served, and none is due anything."""
    text = """
        bully running@0  0..50
        a     runnable@0 0..50
        b     runnable@0 0..50
        a     running@0  50..100
        b     runnable@0 50..100
    """
    bully = {"bully": {"prio": 49, "sched_class": "realtime"}}
    frame = ss.fairness(scene(text, bully, ncpu=1, until=100))
    due = {name: value / MS for name, value in by_comm(frame, "due").items()}
    assert due == pytest.approx({"bully": 50, "a": 25, "b": 25})
    assert by_comm(frame, "sharing") == {"bully": "realtime", "a": "fair", "b": "fair"}
    assert by_comm(frame, "basis") == {"bully": "equal", "a": "kernel table", "b": "kernel table"}


def test_idle_time_is_not_service() -> None:
    """x waits while its CPU idles: that is wasted time, and no unfairness."""
    trace = scene("idle0 running@0 0..50\nx runnable@0 0..50\nx running@0 50..80", ncpu=1, until=80)
    row = ss.fairness(trace).row(0, named=True)
    assert (row["due"], row["running"], row["lag"]) == (30 * MS, 30 * MS, 0)


def test_changed_weight_changes_the_service_due() -> None:
    """x is reniced from 0 to 5 half-way."""
    trace = scene("y running@0 0..100\nx runnable@0 0..100", ncpu=1, until=100)
    half = pl.col("utid") == 2
    states = trace.states.collect()
    later = states.filter(half).with_columns(
        ts=pl.lit(50 * MS, pl.Int64), dur=pl.lit(50 * MS, pl.Int64), prio=pl.lit(125, pl.Int16)
    )
    states = pl.concat(
        [
            states.filter(half).with_columns(dur=pl.lit(50 * MS, pl.Int64)),
            later,
            states.filter(~half),
        ]
    ).sort(pl.col("ts") + pl.col("dur"), maintain_order=True)
    tables = {"states": states, "threads": trace.threads}
    frame = ss.fairness(ss.Trace.from_tables(tables, trace.info))
    assert by_comm(frame, "due")["x"] / MS == pytest.approx(25 + 50 * 335 / 1359)
    assert by_comm(frame, "weight") == {"x": None, "y": 1024}


def test_per_cpu_or_the_machine() -> None:
    """Two CPUs, one thread on CPU 0, two on CPU 1: due are 1, 1/2, 1/2, or 2/3 each."""
    trace = scene("a running@0 0..90\nb running@1 0..90\nc runnable@1 0..90", ncpu=2, until=90)
    one = by_comm(ss.fairness(trace), "due")
    assert one == pytest.approx({"a": 90 * MS, "b": 45 * MS, "c": 45 * MS})
    all_ = by_comm(ss.fairness(trace, per="machine"), "due")
    assert all_ == pytest.approx({"a": 60 * MS, "b": 60 * MS, "c": 60 * MS})


def test_no_thread_is_due_more_than_one_cpu() -> None:
    """nice -20 against two of nice 0 on two CPUs: one whole CPU for it, half of one for each."""
    trace = scene(
        "a running@0 0..90\nb running@1 0..90\nc runnable@1 0..90",
        {"a": {"prio": 100}},
        until=90,
    )
    due = by_comm(ss.fairness(trace, per="machine"), "due")
    assert due == pytest.approx({"a": 90 * MS, "b": 45 * MS, "c": 45 * MS})


def test_shared_queue_is_one_competition() -> None:
    """Waiting on no CPU's queue, as under 4BSD: all compete with all, unless told otherwise."""
    trace = scene("a running@0 0..90\nb running@1 0..90\nc runnable@? 0..90", until=90)
    due = by_comm(ss.fairness(trace), "due")
    assert due == pytest.approx({"a": 60 * MS, "b": 60 * MS, "c": 60 * MS})
    alone = ss.fairness(trace, per="cpu")
    assert by_comm(alone, "unplaced") == {"a": 0, "b": 0, "c": 90 * MS}
    assert by_comm(alone, "due") == {"a": 90 * MS, "b": 90 * MS, "c": 0}


def test_fairness_groups_by_process_and_by_name() -> None:
    threads: dict[str, dict[str, Any]] = {"a": {"pid": 7, "tid": 7}, "b": {"pid": 7, "tid": 8}}
    trace = scene(WORLD, THREADS | threads, ncpu=1, until=100)
    frame = ss.fairness(trace, by="process")
    assert frame.select("pid", "comm", "threads").sort("pid").rows() == [(7, "a", 2), (102, "c", 1)]
    row = frame.filter(pid=7).row(0, named=True)
    assert row["running"] == 90 * MS
    assert row["due"] == pytest.approx((30 + 120 * 1024 / 2383) * MS)
    assert frame["lag"].sum() == pytest.approx(0, abs=1e-3)
    unknown = scene(WORLD, {n: {"pid": None} for n in "abc"}, ncpu=1, until=100)
    assert ss.fairness(unknown, by="process").height == 3, "unknown is not the same process"
    assert ss.fairness(trace, by="comm").height == 3


def test_where_selects_rows_not_competitors(trace: ss.Trace) -> None:
    """A selection is about rows: c still competed with the others."""
    alone = ss.fairness(trace, where=pl.col("comm") == "c")
    assert alone.height == 1
    assert alone["due"][0] == by_comm(ss.fairness(trace), "due")["c"]
    two = scene("a running@0 0..50\nb runnable@0 0..50\na running@1 50..90", until=90, ledger=False)
    on0 = ss.fairness(two, where=pl.col("cpu") == 0)
    assert by_comm(on0, "due") == pytest.approx({"a": 25 * MS, "b": 25 * MS})
    assert by_comm(on0, "running") == {"a": 50 * MS, "b": 0}


def test_jain() -> None:
    """x of 0.5 and 1.5: (2)^2 / (2 * 2.5) = 0.8."""
    trace = scene(
        "a running@0 0..75\nb runnable@0 0..75\nb running@0 75..100\na runnable@0 75..100",
        ncpu=1,
        until=100,
    )
    row = ss.jain_index(trace).row(0, named=True)
    assert row["jain"] == pytest.approx(0.8)
    assert (row["n"], row["n_excluded"], row["comm_least"], row["comm_most"]) == (2, 0, "b", "a")
    assert (row["least"], row["most"]) == pytest.approx((0.5, 1.5))
    assert ss.jain_index(trace, min_due="60ms").row(0, named=True)["jain"] is None


def test_a_fluid_trace_has_jain_1() -> None:
    """The simulated `ps` shares as GPS does, in quanta of 100 us, by weight."""
    for load in (hogs(4, time="200ms"), nice_hogs("0 5 10", time="200ms")):
        trace = ss.simulate(load, policy="ps", until="200ms")
        row = ss.jain_index(trace).row(0, named=True)
        assert row["jain"] == pytest.approx(1, abs=1e-4)
        assert ss.lag(trace)["lag"].abs().max() < MS  # type: ignore[operator]
    unfair = ss.simulate(hogs(4, time="1s"), policy="fifo", until="200ms")
    row = ss.jain_index(unfair).row(0, named=True)
    assert row["jain"] == pytest.approx(1 / 4)


def test_eevdf_bounds_the_lag() -> None:
    """Equal threads on one CPU: none is ever off by more than a slice and a tick (V32)."""
    trace = ss.simulate(hogs(5, time="300ms"), policy="eevdf-6.12", until="300ms")
    assert ss.lag(trace)["lag"].abs().max() < 8 * MS  # type: ignore[operator]


def test_weights_are_what_is_known() -> None:
    assert len(LINUX_WEIGHTS) == 40
    assert (LINUX_WEIGHTS[0], LINUX_WEIGHTS[20], LINUX_WEIGHTS[39]) == (88761, 1024, 15)
    steps = [a / b for a, b in itertools.pairwise(LINUX_WEIGHTS)]
    assert all(1.15 < step < 1.34 for step in steps), "each nice level is about 1.25 of the next"
    threads: dict[str, dict[str, Any]] = {
        "lazy": {"sched_class": "idle"},
        "batch": {"prio": 139, "sched_class": "batch"},
        "rt": {"prio": 10, "sched_class": "realtime"},
    }
    trace = scene("\n".join(f"{name} sleeping 0..10" for name in threads), threads, until=10)
    frame = ss.weights(trace)
    assert by_comm(frame, "weight") == {"lazy": 3, "batch": 15, "rt": 1024}
    assert by_comm(frame, "sharing") == {"lazy": "fair", "batch": "fair", "rt": "realtime"}
    assert not any("SCHED_IDLE" in note for note in ss.weight_notes(trace))


def test_simulated_policies_keep_their_own_scale() -> None:
    """ULE's priority 130 is no nice level; CFS's is."""
    b = Builder()
    b.thread("a", nice=10).run("50ms").repeat()
    b.thread("b").run("50ms").repeat()
    for policy, weight in (("ule-14", 1024), ("4bsd", 1024), ("cfs-2.6.32", 110)):
        trace = ss.simulate(b.workload(), policy=policy, until="100ms")
        assert by_comm(ss.weights(trace), "weight")["a"] == weight


def test_notes_name_unknown_groups() -> None:
    on = {"name": "eevdf", "tunables": {"/proc/sys/kernel/sched_autogroup_enabled": "1"}}
    assert any("autogroup was on" in n for n in ss.weight_notes(scene("", scheduler=on)))
    assert any("cgroups" in n for n in ss.weight_notes(scene("")))


def test_an_empty_trace_has_no_rows() -> None:
    empty = scene("", until=0)
    assert ss.fairness(empty).height == ss.lag(empty).height == ss.jain_index(empty).height == 0
    assert ss.lag(empty, every="1ms").height == 0
    assert ss.starvation(empty).height == 0


@pytest.mark.parametrize(
    ("ask", "word"),
    [
        (lambda t: ss.fairness(t, by="core"), "by='core'"),
        (lambda t: ss.fairness(t, per="node"), "per='node'"),
        (lambda t: ss.lag(t, every="0ms"), "every='0ms'"),
        (lambda t: ss.lag(t, every=1), "rows"),
        (lambda t: ss.jain_index(t, min_due=-1), "min_due=-1"),
        (lambda t: ss.fairness(t, where=pl.col("colour") == 1), "no column 'colour'"),
        (lambda t: ss.fairness(t, per="machine", where=pl.col("cpu") == 0), "selection by CPU"),
    ],
)
def test_invalid_arguments_are_refused(trace: ss.Trace, ask: Any, word: str) -> None:
    with pytest.raises(ss.UsageError, match=word):
        ask(trace)


# -- the sums -------------------------------------------------------------------------

PRIOS = (100, 120, 120, 139)


def naive(
    truth: list[list[tuple[str, str | None]]], weights: list[int], machine: bool
) -> dict[int, list[Fraction]]:
    """The lag of each thread after every ns, in fractions, by looking at each ns."""
    lag = {i: [Fraction(0)] for i in range(4)}
    for t in range(len(truth[0])):
        step = dict.fromkeys(lag, Fraction(0))
        for cpu in ["*"] if machine else ["0", "1"]:
            there = [
                i
                for i in lag
                if truth[2 + i][t][0] in ("running", "runnable")
                and (machine or truth[2 + i][t][1] == cpu)
            ]
            ran = [i for i in there if truth[2 + i][t][0] == "running"]
            share: dict[int, Fraction] = {}
            rest, left = list(there), Fraction(len(ran))
            while rest:
                total = sum(weights[i] for i in rest)
                full = [i for i in rest if left * weights[i] > total]
                if not full:
                    share |= {i: left * weights[i] / total for i in rest}
                    break
                share |= dict.fromkeys(full, Fraction(1))
                left -= len(full)
                rest = [i for i in rest if i not in full]
            for i in there:
                step[i] += share[i] - (i in ran)
        for i in lag:
            lag[i].append(lag[i][-1] + step[i])
    return lag


@given(st.lists(STRETCH, min_size=1, max_size=12), st.booleans())
def test_lag_equals_a_naive_count_at_every_nanosecond(stretches: list[Any], machine: bool) -> None:
    """At every instant, and it sums to zero at every instant."""
    text, truth, total = lines_of(stretches)
    every = "\n".join(f"{name} sleeping 0..0" for name in "abcd")
    threads = {name: {"prio": prio} for name, prio in zip("abcd", PRIOS, strict=True)}
    trace = scene(every + "\n" + text, threads, until=total, unit=1, ledger=False)
    weights = [LINUX_WEIGHTS[prio - 100] for prio in PRIOS]
    want = naive(truth, weights, machine)
    per = "machine" if machine else "cpu"
    frame = ss.lag(trace, every=1, per=per)  # type: ignore[arg-type]
    for utid, ts, lag in frame.select("utid", "ts", "lag").iter_rows():
        assert lag == pytest.approx(float(want[utid - 2][ts]), abs=1e-6)
    sums = frame.group_by("ts").agg(pl.col("lag").sum())["lag"]
    assert sums.abs().max() is None or sums.abs().max() < 1e-6  # type: ignore[operator]
    # A thread on no known queue may have competed on each; a CPU may have served unseen threads.
    ends = ss.fairness(trace, per=per)  # type: ignore[arg-type]
    cpus = [cpu for _, *both, _ in stretches for cpu in both]
    known = None not in cpus and not ends["unplaced"].sum()
    for utid, low, high in ends.select("utid", "lag", "lag_high").iter_rows():
        lag = float(want[utid - 2][-1])
        assert low - 1e-6 <= lag <= high + 1e-6
        assert not known or low == pytest.approx(high, abs=1e-6)
    turns = ss.lag(trace, per=per)  # type: ignore[arg-type]
    for utid, ts, lag in turns.select("utid", "ts", "lag").iter_rows():
        assert lag == pytest.approx(float(want[utid - 2][ts]), abs=1e-6)


@pytest.mark.parametrize("by", ["thread", "process", "comm"])
def test_unknown_time_is_reported_with_service_due(by: Any) -> None:
    """Once for each thread, however many rows it has: here one for each of two CPUs."""
    trace = scene(
        "a running@0 0..30\na unknown 30..50\na running@1 50..90\n"
        "b runnable@0 0..60\nb unknown 60..90",
        until=90,
    )
    for where in (None, pl.col("cpu") >= 0):
        frame = ss.fairness(trace, by=by, where=where).sort("comm")
        assert frame["unknown"].to_list() == [20 * MS, 30 * MS]


def test_thread_that_may_have_caught_up_has_no_finding() -> None:
    """b is 45 ms behind; its last 30 ms are unknown."""
    rest = "b runnable@0 60..90\na running@0 60..90"
    gap = "b unknown 60..90\na unknown 60..90"
    start = "a running@0 0..60\nb runnable@0 0..60\n"
    known, unknown = (scene(start + end, ncpu=1, until=90) for end in (rest, gap))
    (found,) = ss.findings(known, threshold="20ms").filter(topic="fairness").iter_rows(named=True)
    assert found["cost"] == 45 * MS
    assert ss.findings(unknown, threshold="20ms").filter(topic="fairness").is_empty()


def by_utid(frame: pl.DataFrame, column: str) -> dict[int, float]:
    return dict(frame.group_by("utid").agg(pl.col(column).sum()).iter_rows())


@pytest.mark.parametrize("name", CAPTURES)
@pytest.mark.parametrize("per", [None, "cpu", "machine"])
def test_lag_sums_to_zero_on_recordings(name: str, per: Any, tmp_path: Path) -> None:
    """In every class, and at every instant; and running time is that of `states`."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    frame = ss.fairness(trace, per=per)
    sums = frame.group_by("sharing").agg(pl.col("lag", "lag_high").sum())
    assert sums.select((pl.col("lag") < 1) & (pl.col("lag_high") > -1)).to_series().all()
    ran = trace.states.filter(pl.col("state") == "running", pl.col("utid") >= trace.ncpu)
    assert frame["running"].sum() == ran.select(pl.col("dur").sum()).collect().item()
    waited = trace.states.filter(pl.col("state") == "runnable").select(pl.col("dur").sum())
    total = frame.select(pl.col("waiting", "unplaced").sum()).sum_horizontal().item()
    assert total == waited.collect().item()
    grid = ss.lag(trace, every=trace.duration // 20, per=per)
    assert grid.group_by("ts").agg(pl.col("lag").sum())["lag"].abs().max() < 1  # type: ignore[operator]
    low, high = by_utid(frame, "lag"), by_utid(frame, "lag_high")
    for utid, lag in ss.lag(trace, per=per).group_by("utid").agg(pl.col("lag").last()).iter_rows():
        assert low[utid] - 1 <= lag <= high[utid] + 1


def test_a_real_kernel_is_fair_by_weight(tmp_path: Path) -> None:
    """even-a and even-b are due the same and got the same; greedy had 98 % of its CPU."""
    trace = ss.open(FIXTURES / "linux-ftrace-starved.capture", cache=tmp_path)
    frame = ss.fairness(trace)
    rows = {row["comm"]: row for row in frame.iter_rows(named=True)}
    a, b = rows["even-a"], rows["even-b"]
    assert a["running"] == pytest.approx(b["running"], rel=0.02)
    assert a["due"] == pytest.approx(b["due"], rel=0.02)
    assert rows["greedy"]["ratio"] == pytest.approx(1, abs=0.02)
    assert rows["kworker/u8:4"]["ratio"] < 0.2


# -- figures and the command --------------------------------------------------------------


def test_the_figures(trace: ss.Trace) -> None:
    axes = ss.plot.fairness(ss.fairness(trace), top=2)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b 101", "a 100"]
    assert "1 rows closer" in axes.get_title(loc="left") or "1 row" in axes.get_title(loc="left")
    lines = ss.plot.lag(ss.lag(trace))
    legend = lines.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["b 101", "c 102", "a 100"]
    for one in (axes, lines):
        assert isinstance(one.figure, Figure)
        one.figure.savefig(io.BytesIO())
    with pytest.raises(ss.UsageError, match=r"schedscope\.lag"):
        ss.plot.lag(ss.fairness(trace))


def test_figures_of_empty_frames() -> None:
    empty = scene("", until=0)
    for axes in (ss.plot.fairness(ss.fairness(empty)), ss.plot.lag(ss.lag(empty))):
        assert isinstance(axes.figure, Figure)
        axes.figure.savefig(io.BytesIO())


def run(*words: str) -> int:
    return cli.main(["fairness", *words])


@pytest.fixture
def folder(trace: ss.Trace, tmp_path: Path) -> str:
    path = tmp_path / "scene.sched"
    trace.to_sched(path)
    return str(path)


def test_the_table(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--top", "2") == 0
    out = capsys.readouterr().out
    assert "fair: Jain's index 0.840" in out
    assert "(1 more row, with smaller lag; use a larger --top)" in out
    assert "weights: groups are unknown" in out
    assert run(folder, "--by", "process", "--per", "machine") == 0
    assert "pid" in capsys.readouterr().out
    assert run(folder, "--cpu", "0") == 0


def test_top_over_time_is_of_threads(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Their whole lines, the one that was ever furthest off first; for programs, all."""
    assert run(folder, "--every", "50ms", "--format", "csv") == 0
    frame = pl.read_csv(io.StringIO(capsys.readouterr().out))
    furthest = frame.sort(pl.col("lag").abs(), descending=True)["tid"][0]
    assert frame["tid"].n_unique() == 3
    assert run(folder, "--every", "50ms", "--top", "1", "--format", "csv") == 0
    one = pl.read_csv(io.StringIO(capsys.readouterr().out))
    assert one["tid"].unique().to_list() == [furthest]
    assert one.height == 3
    assert run(folder, "--every", "50ms", "--top", "1") == 0
    assert "(2 more threads, with smaller peak lag; use a larger --top)" in capsys.readouterr().out


def test_command_writes_json_and_csv(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["jain"][0]["n"] == 3
    assert sum(row["lag"] for row in document["rows"]) == pytest.approx(0, abs=1e-3)
    assert run(folder, "--every", "50ms", "--format", "csv") == 0
    assert pl.read_csv(io.StringIO(capsys.readouterr().out)).height == 9


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--top", "0"], "--top 0"),
        (["--every", "never"], "'never' is not a duration"),
        (["--every", "1ms", "--cpu", "0"], "--every with --cpu"),
        (["--every", "1ms", "--by", "process"], "--every with --by process"),
        (["--comm", "nobody"], "nobody"),
    ],
)
def test_invalid_options_are_reported_in_one_sentence(
    folder: str, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert run(folder, *words) == 2
    result = capsys.readouterr()
    assert said in result.err
    assert result.err.count("\n") == 1
    assert not result.out
