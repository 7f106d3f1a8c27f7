"""Affinity: residency, returns, masks and isolated CPUs, in round numbers and on recordings."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, strategies as st
from ledgers import played
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import schedscope as ss
from schedscope import _native, cli
from schedscope.analysis.isolation import isolated_cpus
from schedscope.parsers.schema import TABLES
from schedscope.plot.style import FAINT

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDINGS = [
    *("linux-ftrace-mixed.capture", "linux-ftrace-placement.capture", "linux-ftrace-lossy.capture"),
    *("freebsd-ule-synthetic.capture", "freebsd-4bsd-synthetic.capture", "perf-sched.data"),
]

# a runs 10 on CPU 0, sleeps 20, then runs 30 on CPU 1 and, after 5 more, 40 there. b runs the rest
# of CPU 0.
WORLD = """
    0   cpu0: idle -> a
    0   cpu1: idle -> c
    10  cpu0: a S -> b
    28  cpu0: waking a on 1 by b
    28  cpu0: enqueued a on 1 by b
    30  cpu1: c S -> a
    60  cpu1: a R -> d
    65  cpu1: d S -> a
"""


@pytest.fixture
def trace() -> ss.Trace:
    return played(WORLD, window=(0, 105), source={"name": "round"})


def knowing(trace: ss.Trace, info: dict[str, Any] | None = None, **masks: str) -> ss.Trace:
    """The same with CPU masks of some threads, and more in its info."""
    known = pl.col("comm").replace_strict(masks, default=None, return_dtype=pl.String)
    threads = trace.threads.collect().with_columns(affinity=known)
    names = ("states", "waits", "migrations", "switches", "cpus")
    tables = {name: getattr(trace, name) for name in names}
    return ss.Trace.from_tables(tables | {"threads": threads}, trace.info | (info or {}))


def placed(trace: ss.Trace, **columns: list[int]) -> ss.Trace:
    """The same on CPUs that share what the columns say."""
    cpus = pl.DataFrame({"cpu": range(trace.ncpu), **columns})
    names = ("states", "waits", "threads")
    tables = {name: getattr(trace, name) for name in names}
    return ss.Trace.from_tables(tables | {"cpus": cpus}, trace.info)


def of(frame: pl.DataFrame, comm: str) -> dict[str, Any]:
    return frame.filter(comm=comm).row(0, named=True)


# -- residency ------------------------------------------------------------------------


def test_residency_is_running_time_by_cpu(trace: ss.Trace) -> None:
    frame = ss.residency(trace)
    assert frame.select("comm", "cpu", "running", "runs").rows() == [
        ("b", 0, 95, 1),
        ("a", 0, 10, 1),
        ("a", 1, 70, 2),
        ("c", 1, 30, 1),
        ("d", 1, 5, 1),
    ]
    assert frame.filter(comm="a")["running_frac"].to_list() == [1 / 8, 7 / 8]


def test_residency_over_caches(trace: ss.Trace) -> None:
    far = placed(trace, core=[0, 1], llc=[0, 1])
    assert ss.residency(far, over="llc").filter(comm="a")["running"].to_list() == [10, 70]
    near = ss.residency(placed(trace, core=[0, 1], llc=[0, 0]), over="llc")
    assert near.filter(comm="a").select("llc", "running", "runs").rows() == [(0, 80, 3)]
    unknown = ss.residency(trace, over="numa_node")
    assert unknown.filter(comm="a").select("numa_node", "running").rows() == [(None, 80)]


def test_all_threads_together(trace: ss.Trace) -> None:
    assert ss.residency(trace, []).rows() == [(0, 105, 0.5, 2), (1, 105, 0.5, 4)]
    assert ss.affinity(trace, [])["threads"].to_list() == [4]


def test_residency_is_cut_to_the_window(trace: ss.Trace) -> None:
    cut = ss.Trace.from_tables(
        {"states": trace.states, "threads": trace.threads}, {"ncpu": 2, "window": [5, 40]}
    )
    assert ss.residency(cut).filter(comm="a")["running"].to_list() == [5, 10]


def test_effective_cpus_is_exp_of_entropy(trace: ss.Trace) -> None:
    """1/8 and 7/8: exp(-(1/8 ln 1/8 + 7/8 ln 7/8)); b stayed, so 1."""
    frame = ss.affinity(trace)
    want = math.exp(-(1 / 8 * math.log(1 / 8) + 7 / 8 * math.log(7 / 8)))
    a = of(frame, "a")
    assert a["effective_cpus"] == pytest.approx(want)
    assert (a["cpus"], a["top_cpu"], a["top_frac"], a["used"]) == (2, 1, 7 / 8, "0-1")
    assert (of(frame, "b")["effective_cpus"], of(frame, "b")["used"]) == (1.0, "0")
    assert frame["effective_llcs"].null_count() == frame.height
    same = ss.affinity(placed(trace, core=[0, 1], llc=[0, 0]))
    assert of(same, "a")["effective_llcs"] == 1.0


# -- returns --------------------------------------------------------------------------


def test_returns(trace: ss.Trace) -> None:
    """a came back twice: to another CPU at 30, to the same at 65; its first run has no previous
    CPU.
    """
    a = of(ss.affinity(trace), "a")
    counts = ("n", "same_cpu_frac", "same_llc_frac", "n_excluded", "n_censored")
    assert [a[name] for name in counts] == [2, 0.5, None, 1, 0]
    near = of(ss.affinity(placed(trace, core=[0, 1], llc=[0, 0])), "a")
    assert (near["same_cpu_frac"], near["same_llc_frac"]) == (0.5, 1.0)


def test_returns_by_the_time_since_the_last_run(trace: ss.Trace) -> None:
    frame = ss.cpu_returns(placed(trace, core=[0, 1], llc=[0, 0]), bounds=[5, 20, 50])
    columns = ("since_from", "since_to", "n", "same_cpu", "same_llc", "wait_p50", "n_excluded")
    assert frame.select(columns).rows() == [
        (0, 5, 0, 0, 0, None, 0),
        (5, 20, 1, 1, 1, 5, 0),
        (20, 50, 1, 0, 1, 2, 0),
        (50, None, 0, 0, 0, None, 0),
        (None, None, 0, None, None, None, 4),
    ]
    assert frame["same_cpu_frac"].to_list() == [None, 1.0, 0.0, None, None]
    only = ss.cpu_returns(trace, where=pl.col("comm") == "b")
    assert (only["n"].sum(), only["n_excluded"].sum()) == (0, 1)


def test_order_of_the_waits_makes_no_difference(tmp_path: Path) -> None:
    """Waits are read from a file, in batches, or from memory, out of order."""
    trace = ss.open(FIXTURES / RECORDINGS[0], cache=tmp_path)
    tables = {name: getattr(trace, name) for name in TABLES}
    turned = ss.Trace.from_tables(tables | {"waits": trace.waits.reverse()}, trace.info)
    for question in (ss.cpu_returns, ss.migration_agreement):
        assert question(turned).equals(question(trace))


@pytest.mark.parametrize("bounds", [[], [0], ["1ms", "1us"], [5, 5]])
def test_cache_time_bounds_must_increase(trace: ss.Trace, bounds: list[str | int]) -> None:
    with pytest.raises(ss.UsageError, match="bounds="):
        ss.cpu_returns(trace, bounds=bounds)


def test_sleep_at_the_cut_has_no_known_start(trace: ss.Trace) -> None:
    """From 20 on, a is asleep, but when the sleep started is unknown."""
    part = trace.between("20ns", "105ns")
    assert ss.migrations(part).select("comm", "since").rows() == [("a", None)]
    assert ss.migrations(trace).select("comm", "since").rows() == [("a", 20)]


# -- masks ----------------------------------------------------------------------------


def test_affinity_reports_allowed_and_used_cpus(trace: ss.Trace) -> None:
    frame = ss.affinity(knowing(trace, a="1", b="0-1"))
    a, b, c = (of(frame, name) for name in "abc")
    assert (a["allowed"], a["used"], a["outside"], a["outside_runs"]) == ("1", "0-1", 10, 1)
    assert (b["allowed"], b["outside"], b["outside_runs"]) == ("0-1", 0, 0)
    assert (c["allowed"], c["outside"], c["outside_runs"]) == (None, None, None)


def test_group_mask_is_the_union_of_its_threads_masks(trace: ss.Trace) -> None:
    known = ss.affinity(knowing(trace, a="1", b="0", c="1", d="1"), []).row(0, named=True)
    assert (known["allowed"], known["outside"]) == ("0-1", 10)
    some = ss.affinity(knowing(trace, a="1"), []).row(0, named=True)
    assert (some["allowed"], some["outside"]) == (None, 10)


def test_runs_outside_are_named(trace: ss.Trace) -> None:
    frame = ss.runs_outside_affinity(knowing(trace, a="1", b="0-1"))
    columns = ("comm", "affinity", "cpu", "running", "runs", "ts_first", "ts_last")
    assert frame.select(columns).rows() == [("a", "1", 0, 10, 1, 0, 0)]
    with pytest.raises(ss.MissingEventsError, match="no CPU affinity"):
        ss.runs_outside_affinity(trace)


# -- isolation ------------------------------------------------------------------------


def test_isolation_leaks_exclude_threads_bound_to_the_cpu(trace: ss.Trace) -> None:
    """CPU 1 is reserved for c, which is pinned to it; a may run elsewhere; for d the mask is
    unknown.
    """
    frame = ss.isolation_leaks(knowing(trace, a="0-1", c="1"), "1")
    columns = ("cpu", "comm", "leak", "running", "runs", "ts_first", "ts_last")
    assert frame.select(columns).rows() == [
        (1, "a", True, 70, 2, 30, 65),
        (1, "c", False, 30, 1, 0, 0),
        (1, "d", None, 5, 1, 60, 60),
    ]
    assert frame["cpu_frac"].to_list() == pytest.approx([70 / 105, 30 / 105, 5 / 105])
    assert ss.isolation_leaks(trace, [0])["comm"].to_list() == ["b", "a"]
    # The mask excludes the CPU, so it has been changed since: whether a may run elsewhere is
    # unknown.
    moved = ss.isolation_leaks(knowing(trace, a="0", c="1"), "1")
    assert dict(moved.select("comm", "leak").iter_rows()) == {"a": None, "c": False, "d": None}


FILES = "/sys/devices/system/cpu/"


@pytest.mark.parametrize(
    ("tunables", "cpus"),
    [
        ({f"{FILES}isolated": "1"}, [1]),
        ({f"{FILES}isolated": ""}, []),
        ({f"{FILES}isolated": "", f"{FILES}nohz_full": "(null)"}, []),
        ({f"{FILES}isolated": "", f"{FILES}nohz_full": "  (null)"}, []),
        ({f"{FILES}isolated": "1", f"{FILES}nohz_full": "0"}, [0, 1]),
        ({"/proc/cmdline": "ro isolcpus=managed_irq,domain,0-1 quiet"}, [0, 1]),
        ({"/proc/cmdline": "ro nohz_full=1"}, [1]),
        ({"/proc/cmdline": "ro quiet"}, []),
        ({}, None),
    ],
)
def test_isolated_cpus_are_read_from_the_capture(
    trace: ss.Trace, tunables: dict[str, str], cpus: list[int] | None
) -> None:
    recorded = knowing(trace, {"scheduler": {"name": "eevdf", "tunables": tunables}})
    assert isolated_cpus(recorded) == cpus
    if cpus is None:
        with pytest.raises(ss.UsageError, match="does not report"):
            ss.isolation_leaks(recorded)
    else:
        assert set(ss.isolation_leaks(recorded)["cpu"]) == set(cpus)


def test_unknown_cpu_is_refused(trace: ss.Trace) -> None:
    with pytest.raises(ss.UsageError, match="CPU 7"):
        ss.isolation_leaks(trace, "1,7")


@pytest.mark.parametrize("options", [{"by": "cpu"}, {"by": ["comm", "comm"]}])
def test_invalid_arguments_are_refused(trace: ss.Trace, options: dict[str, Any]) -> None:
    with pytest.raises(ss.UsageError, match="by="):
        ss.affinity(trace, **options)
    with pytest.raises(ss.UsageError, match="by="):
        ss.residency(trace, **options)


def test_a_selection_by_an_unknown_column_is_refused(trace: ss.Trace) -> None:
    trace = knowing(trace, a="1")
    for call in (ss.affinity, ss.residency, ss.isolation_leaks, ss.runs_outside_affinity):
        with pytest.raises(ss.UsageError, match="colour"):
            call(trace, where=pl.col("colour") == "red", **_isolated(call))


def _isolated(call: Any) -> dict[str, Any]:
    return {"isolated": "1"} if call is ss.isolation_leaks else {}


# -- sums -----------------------------------------------------------------------------


def running_time(trace: ss.Trace) -> int:
    ran = trace.states.filter(pl.col("state") == "running", pl.col("utid") >= trace.ncpu)
    return int(ran.select(pl.col("dur").sum()).collect().item())


def check_sums(trace: ss.Trace) -> None:
    total = running_time(trace)
    for by in ("utid", "comm", ["comm", "kernel"], []):
        for over in ("cpu", "llc"):
            frame = ss.residency(trace, by, over=over)
            assert frame["running"].sum() == total
            keys = [by] if isinstance(by, str) else by
            shares = frame.group_by(keys) if keys else frame.group_by(pl.lit(0))
            for share in shares.agg(pl.col("running_frac").sum())["running_frac"]:
                assert share == pytest.approx(1)
        ours = ss.affinity(trace, by)
        assert ours["running"].sum() == total
        spread = ours["effective_cpus"].drop_nulls()
        assert spread.is_between(1 - 1e-9, trace.ncpu + 1e-9).all()
    ended = pl.col("ts_run").is_not_null()
    rows = trace.waits.select(ended=ended.sum(), open=(~ended).sum()).collect()
    sums = ss.affinity(trace, "utid").select(pl.col("n", "n_excluded", "n_censored").sum()).row(0)
    assert (sums[0] + sums[1], sums[2]) == rows.row(0)
    buckets = ss.cpu_returns(trace)
    assert buckets["n"].sum() + buckets["n_excluded"].sum() == rows["ended"].item()


@pytest.mark.parametrize("name", RECORDINGS)
def test_residency_sums_up_to_running_time(name: str, tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    check_sums(trace)
    assert running_time(trace) == sum(cpu["running"] for cpu in trace.info["per_cpu"])
    check_sums(trace.between("20ms", "30ms"))


def test_a_simulated_thread_stays_in_its_mask() -> None:
    b = ss.workload.Builder()
    for i in range(6):
        b.thread(f"t-{i}", cpus="1-2").run("5ms").sleep("2ms").run("5ms")
    trace = ss.simulate(b.workload(), policy="eevdf-6.12", cpus=4)
    check_sums(trace)
    frame = ss.affinity(trace, [])
    assert frame.select("allowed", "used", "outside", "outside_runs").rows() == [
        ("1-2", "1-2", 0, 0)
    ]
    assert ss.isolation_leaks(trace, "3").height == 0


RUNS = st.lists(
    st.tuples(st.integers(2, 5), st.integers(0, 3), st.integers(1, 50), st.integers(0, 20)),
    max_size=30,
)


@given(RUNS)
def test_shares_equal_a_naive_count_of_runs(runs: list[tuple[int, int, int, int]]) -> None:
    """Entropy and shares from plain Python."""
    now: dict[int, int] = {}
    states = []
    spent: dict[int, dict[int, int]] = {}
    for utid, cpu, dur, gap in runs:
        begin = now.get(utid, 0) + gap
        now[utid] = begin + dur
        states.append((begin, dur, utid, "running", cpu))
        spent.setdefault(utid, {}).setdefault(cpu, 0)
        spent[utid][cpu] += dur
    columns = TABLES["states"].schema
    schema = {name: columns[name] for name in ("ts", "dur", "utid", "state", "cpu")}
    frame = pl.DataFrame(states, schema, orient="row")
    end = max(now.values(), default=0)
    trace = ss.Trace.from_tables({"states": frame}, {"ncpu": 2, "window": [0, end]})
    ours = {row["utid"]: row for row in ss.affinity(trace, "utid").iter_rows(named=True)}
    assert ours.keys() == spent.keys()
    for utid, per_cpu in spent.items():
        total = sum(per_cpu.values())
        entropy = -sum(time / total * math.log(time / total) for time in per_cpu.values())
        assert ours[utid]["effective_cpus"] == pytest.approx(math.exp(entropy))
        assert ours[utid]["top_frac"] == pytest.approx(max(per_cpu.values()) / total)
        assert (ours[utid]["running"], ours[utid]["cpus"]) == (total, len(per_cpu))


def test_the_recording_of_moving_threads(tmp_path: Path) -> None:
    """`stay-N` keep to CPU 0, `roam-N` do not; CPU 1 is reserved for `reserved`."""
    trace = ss.open(FIXTURES / "linux-ftrace-placement.capture", cache=tmp_path)
    frame = ss.affinity(trace)
    for name in ("stay-1", "stay-2"):
        assert of(frame, name)["effective_cpus"] == of(frame, name)["same_cpu_frac"] == 1
        assert of(frame, name)["allowed"] == of(frame, name)["used"] == "0"
    assert of(frame, "roam-1")["effective_cpus"] > 1.3
    assert of(frame, "mover")["outside_runs"] > 50
    leaks = ss.isolation_leaks(trace, "1")
    by_name = dict(leaks.select("comm", "leak").iter_rows())
    assert by_name["hog-1"] is True
    assert by_name["reserved"] is False
    assert isolated_cpus(trace) == []


# -- the command and the figures ------------------------------------------------------


@pytest.fixture
def sched(trace: ss.Trace, tmp_path: Path) -> str:
    return str(knowing(trace, a="1", b="0-1").to_sched(tmp_path / "round.sched").path)


def test_command_prints_its_tables(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["affinity", sched]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == (
        "4 threads ran 210 ns; 50.0 % of 2 returns to the same CPU;"
        " 1 run outside the allowed CPUs (--outside); 4 runs excluded: previous CPU unknown"
    )
    assert [" ".join(line.split()) for line in lines[4:6]] == [
        "comm threads running effective CPUs most on top share returns same CPU share"
        " used CPUs allowed CPUs outside",
        "b 1 95 ns 1 0 100 % 0 - 0 0-1 0",
    ]


def test_command_writes_json_and_csv(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(["affinity", sched, "--residency", "cpu", "--comm", "a", "--format", "csv"]) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["comm,cpu,running,running_frac,runs", "a,0,10,0.125,1", "a,1,70,0.875,2"]
    assert cli.main(["affinity", sched, "--isolated", "1", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["isolated"] == "1"
    assert {row["comm"]: row["leak"] for row in document["rows"]} == {
        "a": False,
        "c": None,
        "d": None,
    }
    assert cli.main(["affinity", sched, "--outside", "--format", "json"]) == 0
    assert [row["cpu"] for row in json.loads(capsys.readouterr().out)["rows"]] == [0]
    assert cli.main(["affinity", sched, "--returns"]) == 0
    assert "under 10.0 µs" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["--by", "cpu"],
        ["--top", "0"],
        ["--isolated", "one"],
        ["--isolated", "9"],
        ["--isolated"],
        ["--by", "comm", "--returns"],
        ["--comm", "nobody"],
    ],
)
def test_command_refuses_invalid_arguments(
    sched: str, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert cli.main(["affinity", sched, *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def drawn(axes: Any) -> None:
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.savefig(io.BytesIO(), format="png")


def test_bar_spans_all_of_the_time(trace: ss.Trace) -> None:
    axes = ss.plot.residency(ss.residency(trace))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b", "a", "c", "d"]
    ends = {}
    for bar in axes.patches:
        y = round(bar.get_y() + bar.get_height() / 2)  # type: ignore[attr-defined]
        ends[y] = max(ends.get(y, 0), bar.get_x() + bar.get_width())  # type: ignore[attr-defined]
    assert list(ends.values()) == pytest.approx([1] * 4)
    drawn(axes)
    drawn(ss.plot.residency(ss.residency(trace, [], over="llc")))


def test_largest_parts_are_coloured_with_many_cpus(tmp_path: Path) -> None:
    """A bar still spans all of the time: one grey part stands for the rest."""
    _native.synthesize_trace_dat(tmp_path / "t.dat", 20_000, 300, 40)
    axes = ss.plot.residency(ss.residency(ss.open(tmp_path / "t.dat", cache=tmp_path), []))
    parts = [(bar.get_width(), to_hex(bar.get_facecolor())) for bar in axes.patches]  # type: ignore[attr-defined]
    assert sum(width for width, _ in parts) == pytest.approx(1)
    (rest,) = (width for width, color in parts if color == to_hex(FAINT))
    assert rest > 0
    assert len(parts) == 17
    assert axes.get_legend() is None
    drawn(axes)


def test_shares_of_returns_have_their_interval(trace: ss.Trace) -> None:
    axes = ss.plot.cpu_returns(ss.cpu_returns(trace, bounds=[5, 20, 50]))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["5 ns", "20 ns", "50 ns"]
    drawn(axes)


def test_figures_accept_empty_frames_and_refuse_other_frames(trace: ss.Trace) -> None:
    nothing = played("0 cpu0: idle -> idle", window=(0, 10))
    drawn(ss.plot.residency(ss.residency(nothing)))
    drawn(ss.plot.cpu_returns(ss.cpu_returns(nothing)))
    with pytest.raises(ss.UsageError, match=r"schedscope\.residency returns"):
        ss.plot.residency(ss.affinity(trace))
    with pytest.raises(ss.UsageError, match=r"schedscope\.cpu_returns returns"):
        ss.plot.cpu_returns(ss.affinity(trace))
