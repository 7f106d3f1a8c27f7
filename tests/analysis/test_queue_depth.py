"""`queue_depth`: small traces in round numbers, sums that must hold, and a naive implementation."""

from __future__ import annotations

import io
import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, strategies as st
from ledgers import played
from matplotlib.figure import Figure

import schedscope as ss
from schedscope import cli
from schedscope.analysis import queue_depth as module
from schedscope.parsers.schema import TABLES

FIXTURES = Path(__file__).parents[2] / "fixtures"

# a runs from 100 to 400 on CPU 0, b waits from 200, c from 300; b runs from 400
# to the end, c never. CPU 1 is idle from 100 on, and unknown before.
WORLD = """
    100 cpu0: idle -> a
    100 cpu1: a2 S -> idle
    200 cpu0: waking b on 0 by a
    200 cpu0: enqueued b on 0 by a
    300 cpu0: waking c on 0 by a
    300 cpu0: enqueued c on 0 by a
    400 cpu0: a S -> b
"""


@pytest.fixture
def trace() -> ss.Trace:
    return played(WORLD, window=(100, 1000), source={"name": "round"})


def waiting_time(frame: pl.DataFrame) -> int:
    return int((frame["waiting"].cast(pl.Int64) * frame["dur"]).sum())


def runnable_time(trace: ss.Trace) -> int:
    chosen = trace.states.filter(pl.col("state").cast(pl.String) == "runnable")
    return int(chosen.select(pl.col("dur").sum()).collect().item())


def of_states(
    rows: list[tuple[int, int, int, str, int | None]], window: tuple[int, int]
) -> ss.Trace:
    """A trace of (ts, until, utid, state, cpu); two CPUs, so idle threads are 0 and 1."""
    columns = TABLES["states"].schema
    states = pl.DataFrame(
        [
            {"ts": ts, "dur": end - ts, "utid": utid, "state": state, "cpu": cpu, "end": "switched"}
            for ts, end, utid, state, cpu in rows
        ],
        {name: columns[name] for name in ("ts", "dur", "utid", "state", "cpu", "end")},
    )
    return ss.Trace.from_tables({"states": states}, {"ncpu": 2, "window": list(window)})


def test_the_step_function(trace: ss.Trace) -> None:
    """Each change has a row; no change (a leaves, b comes) has none."""
    frame = ss.queue_depth(trace)
    assert frame.select("cpu", "ts", "dur", "waiting", "running", "depth").rows() == [
        (0, 100, 100, 0, 1, 1),
        (0, 200, 100, 1, 1, 2),
        (0, 300, 100, 2, 1, 3),
        (0, 400, 600, 1, 1, 2),
        (1, 100, 900, 0, 0, 0),
    ]


def test_steps_of_some_cpus(trace: ss.Trace) -> None:
    every = ss.queue_depth(trace)
    assert ss.queue_depth(trace, cpus=[1, 7]).equals(every.filter(cpu=1))
    buckets = ss.queue_depth(trace, every=300)
    assert ss.queue_depth(trace, cpus=[1], every=300).equals(buckets.filter(cpu=1))
    with pytest.raises(ss.errors.UsageError, match="by='all'"):
        ss.queue_depth(trace, by="all", cpus=[1])


def test_steps_that_would_be_too_many_are_refused(
    trace: ss.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum over both CPUs, and one of them alone."""
    every = ss.queue_depth(trace)
    both = trace.states.filter(pl.col("state").is_in(["running", "runnable"])).collect()
    monkeypatch.setattr(module, "MOST_INTERVALS", len(both) - 1)
    with pytest.raises(ss.errors.UsageError, match=f"steps of {len(both)} intervals"):
        ss.queue_depth(trace)
    assert ss.queue_depth(trace, cpus=[1]).equals(every.filter(cpu=1))


def test_the_summary_is_weighted_by_time(trace: ss.Trace) -> None:
    """(100*1 + 100*2 + 100*3 + 600*2) / 900 = 2; the median by time is 2, not by rows."""
    row = ss.queue_depth_summary(trace).row(0, named=True)
    assert row == {
        "cpu": 0,
        "observed": 900,
        "unknown": 0,
        "mean": 2.0,
        "mean_high": 2.0,
        **dict.fromkeys(("p50", "p50_high"), 2),
        **dict.fromkeys(("p90", "p90_high", "p99", "p99_high", "max", "max_high"), 3),
        "ts_max": 300,
        "overload": 800,
        "overload_high": 800,
        "overload_frac": 800 / 900,
        "overload_frac_high": 800 / 900,
        "waiting": 900,
        "waiting_unknown": 0,
        "n": 1,
        "n_censored": 1,
        "n_excluded": 1,
    }


def test_a_quantile_holds_for_at_least_its_share() -> None:
    """Depth 1 for 70 of 100 ns: p70 is 1 and the next larger share is 2. No floats in between."""
    trace = of_states([(0, 100, 2, "running", 0), (70, 100, 3, "runnable", 0)], (0, 100))
    row = ss.queue_depth_summary(trace, quantiles=(0.7, 0.701)).row(0, named=True)
    assert (row["p70"], row["p70.1"]) == (1, 2)


def test_depth_without_the_running_thread_is_one_less(trace: ss.Trace) -> None:
    """The depth is one less while it runs; overload does not depend on the option."""
    row = ss.queue_depth_summary(trace, running=False).row(0, named=True)
    assert (row["mean"], row["p50"], row["max"], row["overload"]) == (1.0, 1, 2, 800)


def test_wait_for_an_idle_cpu_is_not_overload() -> None:
    trace = of_states([(0, 100, 0, "running", 0), (20, 80, 2, "runnable", 0)], (0, 100))
    row = ss.queue_depth_summary(trace).row(0, named=True)
    assert (row["mean"], row["max"], row["overload"]) == (0.6, 1, 0)


def test_unknown_time_is_excluded_from_statistics() -> None:
    """The CPU is known only from 40 on; waiting before that is reported separately."""
    trace = of_states([(40, 100, 2, "running", 0), (10, 70, 3, "runnable", 0)], (0, 100))
    frame = ss.queue_depth(trace).filter(cpu=0)
    assert frame.select("ts", "dur", "waiting", "running", "depth").rows() == [
        (0, 10, 0, None, None),
        (10, 30, 1, None, None),
        (40, 30, 1, 1, 2),
        (70, 30, 0, 1, 1),
    ]
    known, never = ss.queue_depth_summary(trace).iter_rows(named=True)
    assert (known["observed"], known["unknown"], known["mean"]) == (60, 40, 1.5)
    assert (known["waiting"], known["waiting_unknown"]) == (30, 30)
    assert (never["observed"], never["unknown"], never["overload"]) == (0, 100, 0)
    assert [never[c] for c in ("mean", "p50", "max", "ts_max", "overload_frac")] == [None] * 5


def test_thread_on_an_unknown_queue_is_counted() -> None:
    """It has rows of its own and counts for the machine."""
    rows = [(0, 100, 2, "running", 0), (0, 100, 1, "running", 1), (20, 60, 3, "runnable", None)]
    trace = of_states(rows, (0, 100))
    nowhere = ss.queue_depth(trace).filter(pl.col("cpu").is_null())
    assert nowhere.select("ts", "dur", "waiting", "depth").rows() == [
        (0, 20, 0, None),
        (20, 40, 1, None),
        (60, 40, 0, None),
    ]
    last = ss.queue_depth_summary(trace).row(-1, named=True)
    assert (last["cpu"], last["waiting"], last["waiting_unknown"]) == (None, 0, 40)
    machine = ss.queue_depth_summary(trace, by="all").row(0, named=True)
    assert (machine["mean"], machine["max"], machine["overload"]) == (1.4, 2, 0)
    assert machine["waiting"] == 40


def test_machine_depth_needs_every_cpu_known() -> None:
    rows = [(0, 100, 2, "running", 0), (30, 100, 3, "running", 1), (50, 60, 4, "runnable", 1)]
    frame = ss.queue_depth(of_states(rows, (0, 100)), by="all")
    assert frame.select("ts", "dur", "waiting", "running", "depth").rows() == [
        (0, 30, 0, None, None),
        (30, 20, 0, 2, 2),
        (50, 10, 1, 2, 3),
        (60, 40, 0, 2, 2),
    ]


def test_depth_is_cut_to_the_window() -> None:
    trace = of_states([(0, 100, 2, "running", 0), (40, 90, 3, "runnable", 0)], (50, 60))
    assert ss.queue_depth(trace).filter(cpu=0).rows() == [(0, 50, 10, 1, 1, 2)]


def test_an_empty_window_has_no_rows() -> None:
    trace = of_states([], (0, 0))
    assert ss.queue_depth(trace).height == 0
    assert ss.queue_depth_summary(trace).height == 0
    assert ss.queue_depth(trace, by="all").height == 0
    with pytest.raises(ss.MissingEventsError, match="no queue lengths"):
        ss.queue_load_agreement(trace)


def test_invalid_arguments_are_refused(trace: ss.Trace) -> None:
    with pytest.raises(ss.UsageError, match=r"quantile 1\.5"):
        ss.queue_depth_summary(trace, quantiles=[1.5])
    with pytest.raises(ss.UsageError, match="by='core'"):
        ss.queue_depth(trace, by="core")  # type: ignore[arg-type]
    with pytest.raises(ss.UsageError, match="tolerance=-1"):
        ss.queue_load_agreement(with_load(trace, [(350, None, 3)]), tolerance=-1)


# -- the sums -------------------------------------------------------------------------

INTERVALS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(1, 12),
        st.sampled_from(["runnable", "sleeping", "unknown"]),
        st.sampled_from([0, 1, None]),
    ),
    max_size=12,
)
RUNS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6), st.booleans()), max_size=8)


@given(INTERVALS, RUNS, st.tuples(st.integers(0, 10), st.integers(0, 40)))
def test_depth_equals_a_naive_count_at_every_nanosecond(
    intervals: list[tuple[int, int, str, int | None]],
    runs: list[tuple[int, int, bool]],
    window: tuple[int, int],
) -> None:
    """Equal to a count at each instant; and depth integrates to the waiting time exactly."""
    begin, end = window[0], window[0] + window[1]
    rows = [(ts, ts + dur, 10 + i, state, cpu) for i, (ts, dur, state, cpu) in enumerate(intervals)]
    ts = 0
    for gap, dur, idle in runs:  # one after the other on CPU 0
        rows.append((ts + gap, ts + gap + dur, 0 if idle else 9, "running", 0))
        ts += gap + dur
    trace = of_states(rows, (begin, end))
    frame = ss.queue_depth(trace)
    want: dict[tuple[int | None, int], tuple[int, int | None]] = {}
    for cpu in (0, 1, None):
        for t in range(begin, end):
            here = [row for row in rows if row[0] <= t < row[1] and row[4] == cpu]
            ran = [row[2] >= 2 for row in here if row[3] == "running"]
            waiting = sum(row[3] == "runnable" for row in here)
            want[cpu, t] = (waiting, int(ran[0]) if ran else None)
    got = {
        (row["cpu"], t): (row["waiting"], row["running"])
        for row in frame.iter_rows(named=True)
        for t in range(row["ts"], row["ts"] + row["dur"])
    }
    nowhere = any(waiting for (cpu, _), (waiting, _) in want.items() if cpu is None)
    assert got == {key: value for key, value in want.items() if key[0] is not None or nowhere}
    together = ss.queue_depth(trace, by="all")
    total = sum(waiting for waiting, _ in want.values())
    assert waiting_time(frame) == waiting_time(together) == total
    for by in ("cpu", "all"):
        summary = ss.queue_depth_summary(trace, by=by)  # type: ignore[arg-type]
        assert sum(summary["waiting"]) + sum(summary["waiting_unknown"]) == total
    for row in ss.queue_depth_summary(trace).drop_nulls("cpu").iter_rows(named=True):
        counts = {t: sum(w) for t in range(begin, end) if None not in (w := want[row["cpu"], t])}
        assert (row["observed"], row["unknown"]) == (len(counts), end - begin - len(counts))
        assert row["overload"] == sum(depth > 1 for depth in counts.values())
        if counts:
            depths = sorted(counts.values())
            assert row["mean"] == pytest.approx(sum(depths) / len(depths))
            assert row["p50"] == depths[-(-len(depths) // 2) - 1]
            assert row["max"] == depths[-1] == counts[row["ts_max"]]
            assert row["ts_max"] == min(t for t in counts if counts[t] == depths[-1])
    for row in ss.queue_depth(trace, every=(end - begin) // 6 or 1).iter_rows(named=True):
        here = [want[row["cpu"], t] for t in range(row["ts"], row["ts"] + row["dur"])]
        depths = [waiting + ran for waiting, ran in here if ran is not None]
        assert row["unknown"] == len(here) - len(depths)
        assert row["held"] == sum(waiting for waiting, _ in here)
        assert row["depth_max"] == max(depths, default=0)
        assert row["depth"] == (pytest.approx(sum(depths) / len(depths)) if depths else None)


@pytest.mark.parametrize(
    "name",
    [
        "freebsd-ule-synthetic.capture",
        "freebsd-4bsd-synthetic.capture",
        "linux-ftrace-lossy.capture",
        "linux-ftrace-mixed.capture",
        "perf-sched.data",
    ],
)
def test_depth_integrates_to_the_waiting_time(name: str, tmp_path: Path) -> None:
    """On recordings, lossy ones too; equal to the sum of waits where no switch is missing."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    frame = ss.queue_depth(trace)
    assert waiting_time(frame) == runnable_time(trace) > 0
    assert waiting_time(ss.queue_depth(trace, by="all")) == runnable_time(trace)
    ledger = trace.waits.select(pl.col("wait").sum()).collect().item()
    if trace.info["reconstruction"]["unseen_switch_ins"]:
        assert runnable_time(trace) <= ledger
    else:
        assert runnable_time(trace) == ledger
    # Observed time is what the reconstruction counted, CPU by CPU.
    summary = ss.queue_depth_summary(trace).drop_nulls("cpu")
    unknown = {cpu["cpu"]: cpu["unknown"] for cpu in trace.info["per_cpu"]}
    assert dict(summary.select("cpu", "unknown").iter_rows()) == unknown
    rows = trace.waits.select(pl.len()).collect().item()
    assert (
        ss.queue_depth_summary(trace)
        .select(pl.sum_horizontal(pl.col("n", "n_censored", "n_excluded").sum().cast(pl.Int64)))
        .item()
        == rows
    )


# -- against the kernel ---------------------------------------------------------------


def with_load(trace: ss.Trace, reports: list[tuple[int, int | None, int]]) -> ss.Trace:
    load = pl.DataFrame(reports, TABLES["queue_load"].schema, orient="row")
    tables = {"states": trace.states, "waits": trace.waits, "queue_load": load}
    return ss.Trace.from_tables(tables, trace.info)


def test_agreement_at_the_instant_and_near_it(trace: ss.Trace) -> None:
    """Depths are 1, then 2 from 200, 3 from 300, 2 from 400."""
    reports = [
        (150, 0, 1),  # agrees
        (200, 0, 1),  # just before
        (200, 0, 2),  # from then on
        (295, 0, 3),  # 5 ns early: near only
        (407, 0, 3),  # 7 ns late: near only
        (700, 0, 5),  # neither
        (1000, 0, 2),  # the window is over
    ]
    frame = ss.queue_load_agreement(with_load(trace, reports), tolerance=10)
    assert frame.rows() == [(0, 6, 1, 3, 0.5, 5, 5 / 6, (0 - 1 + 0 + 1 + 1 + 3) / 6, 3)]
    exact = ss.queue_load_agreement(with_load(trace, reports), tolerance=0)
    assert exact["near"].item() == exact["agree"].item() == 3


def test_load_of_a_shared_queue_is_compared_with_the_sum_of_depths(trace: ss.Trace) -> None:
    frame = ss.queue_load_agreement(with_load(trace, [(350, None, 3), (350, 1, 0)]))
    assert frame.select("cpu", "n", "agree").rows() == [(1, 1, 1), (None, 1, 1)]


@pytest.mark.parametrize(
    ("name", "share"),
    [("freebsd-ule-synthetic.capture", 1.0), ("freebsd-4bsd-synthetic.capture", 0.96)],
)
def test_agrees_with_the_load_of_the_freebsd_fixtures(
    name: str, share: float, tmp_path: Path
) -> None:
    frame = ss.queue_load_agreement(ss.open(FIXTURES / name, cache=tmp_path))
    assert frame["n"].sum() > 1500
    assert min(frame["near_frac"]) >= share
    assert max(frame["max_difference"]) == 1


# -- the command and the figure -------------------------------------------------------


@pytest.fixture
def sched(trace: ss.Trace, tmp_path: Path) -> str:
    return str(trace.to_sched(tmp_path / "round.sched").path)


def test_command_prints_its_table(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["queue-depth", sched]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:4] == [
        "threads waited 900 ns in total; 1 wait unfinished when last observed;"
        " 1 excluded: start not recorded",
        "",
    ]
    assert [" ".join(line.split()) for line in lines[4:]] == [
        "CPU mean p50 p90 p99 max max at overloaded waiting unknown waits unfinished excluded",
        "0 2 2 3 3 3 0.000000 s 88.9 % 900 ns 0 ns 1 1 1",
        "1 0 0 0 0 0 0.000000 s 0 % 0 ns 0 ns 0 0 0",
    ]


def test_command_writes_json_and_csv(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["queue-depth", sched, "--cpu", "0", "--waiting-only", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(row["cpu"], row["mean"]) for row in document["rows"]] == [(0, 1.0)]
    assert document["queue_load"] == []
    assert cli.main(["queue-depth", sched, "--steps", "--by", "all", "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["cpu,ts,dur,waiting,running,depth", ",100,100,0,1,1"]


@pytest.mark.parametrize(
    "words", [["--cpu", "7"], ["--cpu", "0", "--by", "all"], ["--steps", "--waiting-only"]]
)
def test_command_refuses_invalid_arguments(
    sched: str, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert cli.main(["queue-depth", sched, *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words[0] in err or words[-1] in err


def test_figure_has_a_lane_for_each_cpu(trace: ss.Trace) -> None:
    axes = ss.plot.queue_depth(ss.queue_depth(trace))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["CPU 1", "CPU 0"]
    assert "a full lane is 3" in axes.get_title(loc="left")
    assert [text.get_text() for text in axes.texts] == ["0", "3", "0", "3"]
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.savefig(io.BytesIO(), format="png")


def test_many_steps_are_drawn_as_exact_means() -> None:
    """Depth 1 and 2 in turn, 5 ns each: every pixel's mean lies between, and the total's is 1.5."""
    rows: list[tuple[int, int, int, str, int | None]] = [(0, 24000, 2, "running", 0)]
    rows += [(ts, ts + 5, 3, "runnable", 0) for ts in range(0, 24000, 10)]
    axes = ss.plot.queue_depth(ss.queue_depth(of_states(rows, (0, 24000))).filter(cpu=0))
    most, mean, _ = (patch.get_data() for patch in axes.patches)  # type: ignore[attr-defined]
    assert len(mean.values) == 1200
    assert mean.values == pytest.approx(1.5 * 0.85 / 2)
    assert most.values == pytest.approx(0.85)


def test_parts_and_steps_are_one_figure() -> None:
    """For a trace with more steps than pixels both draw the same."""
    rows: list[tuple[int, int, int, str, int | None]] = [(0, 24000, 2, "running", 0)]
    rows += [(ts, ts + 7, 3, "runnable", 0) for ts in range(0, 24000, 10)]
    rows += [(ts, ts + 3, 4, "runnable", 0) for ts in range(600, 12000, 11)]
    trace = of_states(rows, (0, 24000))
    steps, parts = (
        [patch.get_data().values for patch in ss.plot.queue_depth(frame.filter(cpu=0)).patches]  # type: ignore[attr-defined]
        for frame in (ss.queue_depth(trace), ss.queue_depth(trace, every=20))
    )
    for exact, drawn in zip(steps, parts, strict=True):
        assert drawn == pytest.approx(exact)


def test_figure_of_another_frame_is_refused(trace: ss.Trace) -> None:
    with pytest.raises(ss.UsageError, match=r"the frame that schedscope\.queue_depth returns"):
        ss.plot.queue_depth(ss.queue_depth_summary(trace))
    empty = ss.queue_depth(of_states([], (0, 0)))
    assert ss.plot.queue_depth(empty) is not None
