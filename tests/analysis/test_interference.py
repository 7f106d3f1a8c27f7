"""`interference`: every nanosecond of a wait is a thread's, the CPU's idle time, or unknown."""

from __future__ import annotations

import io
import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, strategies as st
from ledgers import played
from matplotlib.figure import Figure
from polars.testing import assert_frame_equal
from small_worlds import Interval, of_states, small_worlds

import schedscope as ss
from schedscope import cli
from schedscope.analysis import interference as module
from schedscope.simulator.workloads.generators import make

FIXTURES = Path(__file__).parents[2] / "fixtures"

# v waits on CPU 0 from 100: a runs until 200, b until 300, then the CPU is idle until 310. At 400 v
# is preempted by a, which runs until 450.
WORLD = """
    0   cpu0: idle -> a
    100 cpu0: waking v on 0 by a
    100 cpu0: enqueued v on 0 by a
    200 cpu0: a S -> b
    300 cpu0: b S -> idle
    310 cpu0: idle -> v
    350 cpu0: waking a on 0 by v
    400 cpu0: v R+ -> a
    450 cpu0: a S -> v
"""
BY = ("thread", "comm", "process")


@pytest.fixture
def trace() -> ss.Trace:
    return played(WORLD, ncpu=1, window=(0, 500), source={"name": "round"})


def test_the_wait_is_divided(trace: ss.Trace) -> None:
    frame = ss.interference(trace, by="comm", where=pl.col("comm") == "v")
    bounds = ("wait_high", "time_high", "share_high", "coverage")
    assert frame.drop("share", *bounds).rows() == [
        # victim, wait, kind, who, time, n, n_waits; of wake, new, preempt, yield, unknown
        ("v", 260, "thread", "a", 150, 2, 2, 100, 0, 50, 0, 0),
        ("v", 260, "thread", "b", 100, 1, 2, 100, 0, 0, 0, 0),
        ("v", 260, "idle", None, 10, 1, 2, 10, 0, 0, 0, 0),
    ]
    assert frame["share"].to_list() == pytest.approx([150 / 260, 100 / 260, 10 / 260])


@pytest.mark.parametrize("asked", [True, False])
def test_smallest_contributors_are_summed_as_others(
    trace: ss.Trace, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a and b the one with more time has a row; idle time of the CPU always has one."""
    only = pl.col("comm") == "v"
    if not asked:
        monkeypatch.setattr(module, "MOST_ROWS", 1)
    frame = ss.interference(trace, by="comm", where=only, parts=1 if asked else None)
    assert frame.select("kind", "comm", "time", "n", "cause_wake", "cause_preempt").rows() == [
        ("thread", "a", 150, 2, 100, 50),
        ("idle", None, 10, 1, 10, 0),
        ("others", None, 100, None, 100, 0),
    ]
    assert frame["time"].sum() == frame["wait"][0]


def test_migrated_thread_is_delayed_on_its_new_cpu() -> None:
    frame = ss.interference(
        played(
            """
            0   cpu0: idle -> a
            0   cpu1: idle -> b
            100 cpu0: waking v on 0 by a
            100 cpu0: enqueued v on 0 by a
            150 cpu0: migrate v 0 -> 1
            400 cpu1: b S -> v
            """,
            window=(0, 500),
        ),
        by="comm",
    ).filter(victim_comm="v")
    assert frame.select("comm", "time", "n", "n_waits").rows() == [
        ("b", 250, 1, 1),
        ("a", 50, 1, 1),
    ]


def test_unknown_time_and_no_queue() -> None:
    rows: list[Interval] = [
        (0, 30, 20, "running", 0),
        (10, 60, 10, "runnable", 0),
        (60, 80, 10, "runnable", None),
    ]
    frame = ss.interference(of_states(rows, (0, 100)))
    assert frame.select("kind", "comm", "time").rows() == [
        ("unknown", None, 30),
        ("thread", "t20", 20),
        ("no_queue", None, 20),
    ]


@pytest.mark.parametrize("others", [0, 100])
def test_wait_in_two_intervals_is_counted_once(others: int) -> None:
    """One wait in two intervals: the hog ran in one wait, with few or with many threads."""
    states = pl.DataFrame({
        "ts": [0, 0, 20, 30, 30],
        "dur": [20, 20, 10, 20, 20],
        "utid": [2, 3, 3, 2, 3],
        "state": ["running", "runnable", "running", "running", "runnable"],
        "cpu": [0] * 5,
    })  # fmt: skip
    numbers = [*range(4 + others)]
    threads = pl.DataFrame({"utid": numbers, "comm": [f"t{n}" for n in numbers], "tid": numbers,
                            "pid": numbers})  # fmt: skip
    waits = pl.DataFrame({"utid": [3], "cause": ["wake"], "ts_ready": [0], "ts_run": [20]})
    trace = ss.Trace.from_tables(
        {"states": states, "threads": threads, "waits": waits}, {"ncpu": 1, "window": [0, 50]}
    )
    frame = ss.interference(trace)
    columns = ("victim_tid", "tid", "time", "n", "n_waits", "cause_wake")
    assert frame.select(columns).rows() == [(3, 2, 40, 1, 1, 40)]


def test_where_selects_victims(trace: ss.Trace) -> None:
    """`where` and `victims` select the waits, not the threads that ran."""
    everybody = ss.interference(trace)
    assert set(everybody["victim_comm"]) == {"v", "a"}
    assert set(ss.interference(trace, victims=1)["victim_comm"]) == {"v"}
    together = ss.interference(trace, together=True, by="comm")
    assert together.columns[0] == "wait"
    assert together["time"].sum() == together["wait"][0] == 310
    assert dict(together.select("comm", "time").drop_nulls().iter_rows()) == {
        "a": 150, "b": 100, "v": 50,
    }  # fmt: skip
    assert ss.interference(trace, where=pl.col("cpu") == 5).height == 0
    assert ss.interference(trace, where=(pl.col("cpu") == 0) & (pl.col("comm") == "v")).height == 3


def test_invalid_arguments_are_refused(trace: ss.Trace) -> None:
    with pytest.raises(ss.UsageError, match="by='cpu'"):
        ss.interference(trace, by="cpu")  # type: ignore[arg-type]
    with pytest.raises(ss.UsageError, match="victims=0"):
        ss.interference(trace, victims=0)
    with pytest.raises(ss.UsageError, match="parts=0"):
        ss.interference(trace, parts=0)


def who_ran(rows: list[Interval], cpu: int | None, t: int) -> tuple[str, int | None]:
    ran = [r[2] for r in rows if r[0] <= t < r[1] and r[3] == "running" and r[4] == cpu]
    if not ran:
        return "unknown", None
    return ("thread", ran[0]) if ran[0] >= 3 else ("idle", None)


@given(small_worlds())
def test_the_longest_wait_and_the_longest_time_come_first(
    world: tuple[list[Interval], dict[int, str]],
) -> None:
    trace = of_states(world[0], (1, 20))
    frame = ss.interference(trace)
    # Idle, unknown and no queue come after threads of the same time.
    order = ["wait", "victim_utid", "time", "kind", "utid"]
    falling = [True, False, True, False, False]
    assert frame.equals(frame.sort(order, descending=falling))
    # Some threads alone, or some queues alone, give the same rows.
    for where in (None, pl.col("cpu").is_null() | (pl.col("cpu") == 0)):
        everybody = ss.interference(trace, where=where)
        first = everybody["victim_utid"].unique(maintain_order=True)
        for few in (1, 9):
            worst = everybody.filter(pl.col("victim_utid").is_in(first[:few].to_list()))
            chosen = ss.interference(trace, where=where, victims=few)
            # Polars divides by a constant column differently: the last bit differs.
            shares = ("share", "share_high", "coverage")
            assert chosen.drop(shares).equals(worst.drop(shares))
            assert_frame_equal(chosen, worst)


@given(small_worlds(), st.sampled_from(BY))
def test_interference_equals_a_naive_computation(
    world: tuple[list[Interval], dict[int, str]], by: str
) -> None:
    """The running thread at each instant of each wait; the sums are exact."""
    rows, _ = world
    trace = of_states(rows, (1, 20))
    want: dict[tuple[int, str, int | None], int] = {}
    for t in range(1, 20):
        here = [row for row in rows if row[0] <= t < row[1]]
        for row in here:
            if row[3] != "runnable":
                continue
            ran = [r[2] for r in here if r[3] == "running" and r[4] == row[4]]
            kind = "no_queue" if row[4] is None else "unknown" if not ran else "thread"
            who = ran[0] if ran and row[4] is not None else None
            if who is not None and who < 3:
                kind, who = "idle", None
            want[row[2], kind, who] = want.get((row[2], kind, who), 0) + 1
    # A thread that may have waited has a row with bounds.
    for begin, end, utid, state, _ in rows:
        if state == "unknown" and max(begin, 1) < min(end, 20):
            want.setdefault((utid, "unknown", None), 0)
    found = ss.interference(trace)
    got = {
        (victim, kind, who): time
        for victim, kind, who, time in found.select(
            "victim_utid", "kind", "utid", "time"
        ).iter_rows()
    }
    assert got == want
    # Without the table of waits every interval is a wait of its own.
    seen = {
        (victim, kind, who): sum(
            any(
                (ran if row[4] is not None else ("no_queue", None)) == (kind, who)
                for t in range(max(row[0], 1), min(row[1], 20))
                for ran in [who_ran(rows, row[4], t)]
            )
            for row in rows
            if row[2] == victim and row[3] == "runnable"
        )
        for victim, kind, who in want
    }
    counts = found.select("victim_utid", "kind", "utid", "n").iter_rows()
    assert {(victim, kind, who): n for victim, kind, who, n in counts} == seen
    grouped = ss.interference(trace, by=by)  # type: ignore[arg-type]
    assert grouped["time"].sum() == sum(want.values())


@pytest.mark.parametrize(
    "name",
    [
        "freebsd-ule-synthetic.capture",
        "freebsd-4bsd-synthetic.capture",
        "linux-ftrace-lossy.capture",
        "linux-trace-cmd-yield.dat",
        "perfetto-deflate.pftrace",
    ],
)
@pytest.mark.parametrize("by", BY)
def test_times_of_a_victim_add_up_to_its_wait(name: str, by: str, tmp_path: Path) -> None:
    """Exactly, for every victim of a recording and every grouping."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    frame = ss.interference(trace, by=by)  # type: ignore[arg-type]
    keys = [column for column in frame.columns if column.startswith("victim_")]
    sums = frame.group_by(keys).agg(pl.col("time").sum(), pl.col("wait").first())
    assert (sums["time"] == sums["wait"]).all()
    runnable = trace.states.filter(pl.col("state").cast(pl.String) == "runnable")
    assert sums["wait"].sum() == runnable.select(pl.col("dur").sum()).collect().item() > 0
    causes = frame.select(pl.sum_horizontal(pl.col("^cause_.*$")))
    assert (causes.to_series() == frame["time"]).all()
    assert (frame["n"] <= frame["n_waits"]).all()


def test_a_simulated_run(tmp_path: Path) -> None:
    """Under fifo on one CPU no thread waits for an idle or unknown CPU."""
    frame = ss.interference(ss.simulate(make(4, tasks=8, run="20ms"), policy="fifo", cpus=1))
    assert set(frame["kind"].cast(pl.String)) == {"thread"}
    own = frame.filter(pl.col("victim_utid") == pl.col("utid"))
    assert own.height == 0


def test_interference_of_parts_adds_up_to_the_whole(tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / "linux-trace-cmd-yield.dat", cache=tmp_path)
    middle = f"{trace.duration // 2}ns"
    whole = ss.interference(trace)["time"].sum()
    parts = [ss.interference(trace.between(a, b)) for a, b in ((None, middle), (middle, None))]
    assert sum(part["time"].sum() for part in parts) == whole


# -- the command and the figure ---------------------------------------------------------


@pytest.fixture
def sched(trace: ss.Trace, tmp_path: Path) -> str:
    return str(trace.to_sched(tmp_path / "round.sched").path)


def test_the_command(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["interference", sched, "--by", "comm", "--comm", "v"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[3:] == [
        "victim wait ran time share in waits waits of wake of preempt",
        "v 260 ns a 150 ns 57.7 % 2 2 100 ns 50 ns",
        "260 ns b 100 ns 38.5 % 1 2 100 ns 0 ns",
        "260 ns (the CPU idled) 10 ns 3.8 % 1 2 10 ns 0 ns",
    ]
    assert cli.main(["interference", sched, "--top", "1", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["comm"] for row in document["rows"]] == ["a", "v"]
    assert document["rows_in_all"] == 4
    assert cli.main(["interference", sched, "--together", "--by", "comm", "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith(
        "wait,wait_high,kind,comm,time,time_high,share,share_high,n,n_waits,coverage,cause_wake"
    )


@pytest.mark.parametrize(
    "words", [["--top", "0"], ["--together", "--victims", "2"], ["--comm", "nobody"]]
)
def test_command_refuses_invalid_arguments(
    sched: str, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert cli.main(["interference", sched, *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1


def test_the_figure(trace: ss.Trace) -> None:
    axes = ss.plot.interference(ss.interference(trace, by="comm"), top=1)
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "a", "1 other", "the CPU idled", "v",
    ]  # fmt: skip
    assert sum(bar.get_width() for bar in axes.patches) == 310  # type: ignore[attr-defined]
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.savefig(io.BytesIO(), format="png")
    assert ss.plot.interference(ss.interference(trace, where=pl.col("cpu") == 5)) is not None
    assert ss.plot.interference(ss.interference(trace, together=True)) is not None
    with pytest.raises(ss.UsageError, match=r"schedscope\.interference"):
        ss.plot.interference(ss.wakers(trace))
