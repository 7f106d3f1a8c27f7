"""Lag worked out by hand, and the lag that the simulated scheduler recorded itself."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import polars as pl
import pytest
from matplotlib.figure import Figure

import schedscope as ss
from schedscope import cli
from schedscope.simulator.workloads import generators
from schedscope.simulator.workloads.machine import grid
from schedscope.simulator.workloads.workload import Workload

FIXTURES = Path(__file__).parents[2] / "fixtures"
MS = 1_000_000

Interval = tuple[int, int, str, str]


def of_states(
    lives: dict[int, list[Interval]], prio: dict[int, int] | None = None, os: str = "Linux"
) -> ss.Trace:
    """A trace of CPU 0 from (begin, end, state, end's kind) in ms, by utid; nice 0 by default."""
    prios = dict.fromkeys(lives, 120) | (prio or {})
    rows = [
        (begin * MS, (end - begin) * MS, utid, state, how, prios[utid])
        for utid, life in lives.items()
        for begin, end, state, how in life
    ]
    rows.sort(key=lambda row: row[0] + row[1])
    states = pl.DataFrame(rows, ["ts", "dur", "utid", "state", "end", "prio"], orient="row")
    on_cpu = pl.col("state").is_in(["running", "runnable"])
    empty = ss.Trace.from_tables({}, {"ncpu": 1})
    threads = pl.DataFrame(
        [
            {"utid": utid, "tid": 100 + utid, "comm": f"t{utid}", "prio": prios[utid],
             "sched_class": "fair" if prios[utid] >= 100 else "realtime"}
            for utid in lives
        ],
        schema=empty.threads.collect_schema(),
    )  # fmt: skip
    end = max(row[0] + row[1] for row in rows)
    tables = {"states": states.with_columns(cpu=pl.when(on_cpu).then(0)), "threads": threads}
    return ss.Trace.from_tables(tables, {"ncpu": 1, "window": [0, end], "os": os})


# -- worked out by hand ----------------------------------------------------------------

TURNS: dict[int, list[Interval]] = {
    1: [(0, 6, "running", "preempted"), (6, 10, "runnable", "window")],
    2: [(0, 6, "runnable", "switched"), (6, 10, "running", "window")],
}


def test_lag_of_two_equal_threads_follows_their_turns() -> None:
    """Of 6 ms one thread got all, and half was due to each: lag 3 ms; after 4 ms more, 1 ms is
    left.
    """
    frame = ss.virtual_lag(of_states(TURNS))
    assert frame.select("lag", "lag_max", "ts_lag_max", "lag_min", "ts_lag_min").rows() == [
        (-1 * MS, 0, 0, -3 * MS, 6 * MS),
        (1 * MS, 3 * MS, 6 * MS, 0, 0),
    ]
    assert frame["weight"].to_list() == [1024, 1024]
    assert frame["basis"].cast(pl.String).to_list() == ["kernel table"] * 2
    assert frame.select("picks", "picks_eligible", "competed", "unplaced").rows() == [
        (1, 1, 10 * MS, 0)
    ] * 2  # fmt: skip
    # Neither was ever alone, nor created within the trace: their initial lag is unknown.
    assert frame["ts_settled"].to_list() == [None, None]
    assert frame.select("n", "n_censored", "n_excluded").rows() == [(1, 2, 0)] * 2
    assert ss.virtual_lag_sentences(frame) == [
        "for EEVDF, t1 101 is never behind; at the end it is 1.00 ms ahead",
        "for EEVDF, t2 102 is 3.00 ms behind at most, at 0.006000 s;"
        " at the end it is 1.00 ms behind",
    ]


def test_lag_is_divided_by_weight() -> None:
    """Nice -10 (9548) beside nice 0 (1024): of 6 ms 9548/10572 were due to the waiting thread."""
    frame = ss.virtual_lag(of_states(TURNS, {2: 110}))
    assert frame["weight"].to_list() == [1024, 9548]
    assert frame["lag_max"][1] == pytest.approx(6 * MS * 9548 / 10572, abs=1)
    assert frame["lag_min"][0] == pytest.approx(-6 * MS * 9548 / 10572, abs=1)


def test_lag_survives_a_sleep_up_to_a_bound() -> None:
    """It leaves with a lag of 4 ms and comes back with at most two slices of 0.7 ms."""
    trace = of_states(
        {
            1: [(0, 8, "running", "preempted"), (8, 9, "runnable", "switched"),
                (9, 20, "running", "preempted"), (20, 21, "runnable", "window")],
            2: [(0, 8, "runnable", "switched"), (8, 9, "running", "switched"),
                (9, 20, "sleeping", "woken"), (20, 21, "running", "window")],
        }
    )  # fmt: skip
    turns = ss.virtual_lag_series(trace, where=pl.col("utid") == 2)
    assert turns.select("turn", "lag").rows() == [
        ("joined", 0),
        ("began", 4 * MS),
        ("left", 3_500_000),
        # With HZ 250 a tick is longer than two slices: 4 ms is the bound, and 3.5 is less.
        ("joined", 3_500_000),
        ("began", 3_500_000),
        ("end", 3 * MS),
    ]
    bounded = ss.virtual_lag_series(trace, where=pl.col("utid") == 2, set={"hz": 1000})
    assert bounded.filter(pl.col("turn") == "joined")["lag"].to_list() == [0, 1_400_000]
    # In CFS a sleeper keeps its virtual time, with a bound of half the latency (2.5 ms).
    cfs = ss.virtual_lag_series(trace, "cfs", where=pl.col("utid") == 2)
    assert cfs.filter(pl.col("turn") == "joined")["lag"].to_list() == [0, 1_250_000]
    # Alone from 9 ms on, the first has no lag; but the lag that the other one brings back is
    # unknown.
    first = ss.virtual_lag_series(trace, where=pl.col("utid") == 1).select("turn", "settled")
    assert first.rows()[2:] == [("stopped", False), ("began", True), ("stopped", True),
                                ("end", False)]  # fmt: skip


def test_extremes_include_the_instant_before_a_migration() -> None:
    """In 20 ms on one CPU, 10 were due to the thread that waits until it migrates."""
    rows = [(0, 24, 2, 0, "running", "window"), (0, 20, 3, 0, "runnable", "switched"),
            (20, 4, 3, 1, "running", "window")]  # fmt: skip
    columns = ("ts", "dur", "utid", "cpu", "state", "end")
    states = pl.DataFrame(rows, schema=columns, orient="row").with_columns(
        pl.col("ts", "dur") * MS, prio=pl.lit(120)
    )
    threads = pl.DataFrame(
        {"utid": [0, 1, 2, 3], "tid": [0, 0, 8, 9], "pid": [0, 0, 8, 9], "comm": ["", "", "a", "b"],
         "prio": [None, None, 120, 120], "sched_class": ["idle", "idle", "fair", "fair"],
         "start_ts": [None] * 4, "parent_utid": [None] * 4}
    )  # fmt: skip
    info = {"ncpu": 2, "window": [0, 24 * MS], "os": "Linux"}
    frame = ss.virtual_lag(ss.Trace.from_tables({"states": states, "threads": threads}, info))
    assert frame.select("lag", "lag_max", "ts_lag_max", "lag_min", "ts_lag_min").rows() == [
        (0, 0, 0, -10 * MS, 20 * MS),
        (0, 10 * MS, 20 * MS, 0, 0),
    ]


def test_lone_thread_has_no_lag() -> None:
    life: list[Interval] = [(0, 5, "running", "switched"), (5, 6, "sleeping", "woken"),
                            (6, 9, "running", "window")]  # fmt: skip
    row = ss.virtual_lag(of_states({1: life})).row(0, named=True)
    assert (row["lag"], row["lag_max"], row["lag_min"], row["ts_settled"]) == (0, 0, 0, 0)
    assert (row["n"], row["picks"]) == (2, 2)


def test_other_classes_have_no_lag() -> None:
    """A real-time thread takes the CPU, which changes no lag within the fair class."""
    trace = of_states(
        {
            1: [(0, 2, "running", "preempted"), (2, 9, "runnable", "switched"),
                (9, 10, "running", "window")],
            2: [(0, 10, "runnable", "window")],
            3: [(0, 2, "sleeping", "woken"), (2, 9, "running", "switched"),
                (9, 10, "sleeping", "window")],
        },
        {3: 50},
    )  # fmt: skip
    frame = ss.virtual_lag(trace)
    assert frame["weight"].to_list() == [1024, 1024, None]
    assert frame["lag"].to_list() == [-1_500_000, 1_500_000, None]
    assert ss.virtual_lag_sentences(frame)[2] == (
        "EEVDF has no lag for t3 103: it never competed in the fair class"
    )


def test_weights_are_equal_where_none_are_known() -> None:
    frame = ss.virtual_lag(of_states(TURNS, {2: 130}, os="FreeBSD"))
    assert frame["lag"].to_list() == [-1 * MS, 1 * MS]
    assert frame["basis"].cast(pl.String).to_list() == ["equal"] * 2


def test_gaps_and_unknown_queues_are_counted() -> None:
    trace = of_states(
        {1: [(0, 3, "running", "lost"), (3, 6, "unknown", "switched"),
             (6, 9, "running", "window")],
         2: [(0, 9, "runnable", "window")]}
    )  # fmt: skip
    frame = ss.virtual_lag(trace)
    assert frame["n_excluded"].to_list() == [1, 0]
    assert frame["unknown"].to_list() == [3 * MS, 0]
    # Its lag from before it became unknown is dropped, and reported as unknown.
    assert frame.select("n", "n_censored").row(0) == (2, 3)
    nowhere = ss.Trace.from_tables(
        {"states": trace.states.with_columns(cpu=None), "threads": trace.threads}, trace.info
    )
    frame = ss.virtual_lag(nowhere)
    assert frame["unplaced"].to_list() == [6 * MS, 9 * MS]
    assert frame["lag"].to_list() == [None, None]


# -- against the policy's own record ---------------------------------------------------

# Switch and wakeup costs separate events that would share an instant: `states` has no row for a
# wait or run of length zero.
COSTS = {"switch": 1337, "ipi": 211, "idle_exit": 731}
# The time until an idle CPU runs the woken thread is in no state of the thread.
EXACT = {"skip_clock_update": "off"}
LOADS: dict[str, tuple[Workload, int]] = {
    "hogs": (generators.hogs(3, time="1s"), 2),
    "periodic": (generators.periodic(4, run="3ms", sleep="7.001ms", times=300), 2),
    "requests": (generators.requests(3, requests=400), 1),
    "web": (generators.web(3), 1),
    "make": (generators.make(2, tasks=20), 1),
    "hackbench": (generators.hackbench(2, fan=4), 2),
    "cascade": (generators.cascade(5), 2),
    # EEVDF migrates several of them at one instant, in an unknown order.
    "cascade of 8": (generators.cascade(8), 2),
}
EEVDF = ["eevdf-6.6", "eevdf-6.12", "eevdf-6.17", "eevdf-6.18"]


def recorded(name: str, policy: str) -> ss.Trace:
    load, ncpu = LOADS[name]
    machine = grid(1, ncpu, 1).with_costs(COSTS)
    given = {} if policy.startswith("cfs-2.6") else EXACT
    return ss.simulate(load, policy=policy, machine=machine, set=given, record=True)


def niced(policy: str) -> ss.Trace:
    """Threads of four nice values that sleep at irregular times, on one CPU."""
    load = ss.workload.Builder()
    for number, nice in enumerate((-10, 0, 5, 19)):
        thread = load.thread(f"nice{nice}", nice=nice)
        thread.run(f"{3 + number}.001ms").sleep(f"{2 + 3 * number}.037ms").repeat(150)
    machine = grid(1, 1, 1).with_costs(COSTS)
    return ss.simulate(load.workload(), policy=policy, machine=machine, set=EXACT, record=True)


def off_record(trace: ss.Trace, policy: str) -> pl.DataFrame:
    """The policy's recorded lag and ours where no other thread came or went at that instant."""
    theirs = (
        ss.policy_series(trace)
        .filter(pl.col("series") == "lag")
        .select("utid", "ts", recorded=pl.col("value").cast(pl.Int64))
    )
    turns = ss.virtual_lag_series(trace, policy)
    moves = turns.filter(pl.col("turn").is_in(["joined", "left", "moved"]))
    by_whom = moves.group_by("ts").agg(pl.col("utid").unique().alias("who"))
    own = (
        turns.filter(pl.col("turn") != "began")
        .join(by_whom, on="ts", how="left")
        .with_columns(others=pl.col("who").list.set_difference(pl.concat_list("utid")))
        .filter(pl.col("others").list.len().fill_null(0) == 0)
    )  # fmt: skip
    both = theirs.with_row_index().join(own, on=["utid", "ts"])
    # A thread may come and leave at one instant: the nearest of our rows counts.
    distance = (pl.col("recorded") - pl.col("vlag")).abs()
    return both.group_by("index").agg(off=distance.min(), recorded=pl.col("recorded").first())


@pytest.mark.parametrize("policy", EEVDF)
@pytest.mark.parametrize("name", [name for name in LOADS if name != "cascade of 8"])
def test_the_lag_is_the_one_that_eevdf_recorded(name: str, policy: str) -> None:
    """Equal to the ns where weights are 1024; and every thread that EEVDF picked was eligible."""
    trace = recorded(name, policy)
    both = off_record(trace, policy)
    assert both.height >= 20
    assert both["off"].max() == 0
    assert both["recorded"].abs().max() > 1000  # type: ignore[operator]
    frame = ss.virtual_lag(trace, policy)
    assert frame["picks"].to_list() == frame["picks_eligible"].to_list()


@pytest.mark.parametrize("policy", EEVDF)
def test_the_lag_of_nice_threads_is_right_within_rounding(policy: str) -> None:
    """Virtual time is rounded at each update, and the simulator updates more often (ticks)."""
    trace = niced(policy)
    both = off_record(trace, policy)
    assert both.height > 300
    updates = (trace.window[1] - trace.window[0]) // (4 * MS) + trace.states.collect().height
    assert both["off"].max() <= updates  # type: ignore[operator]
    assert both["recorded"].abs().max() > 100 * updates  # type: ignore[operator]
    frame = ss.virtual_lag(trace, policy)
    assert frame["weight"].to_list() == [9548, 1024, 335, 15]


@pytest.mark.parametrize("policy", ["cfs-2.6.32", "cfs-2.6.31"])
@pytest.mark.parametrize("name", ["requests", "web", "make", "hackbench", "cascade of 8"])
def test_virtual_times_are_as_far_apart_as_cfs_recorded(name: str, policy: str) -> None:
    """When a thread joins a queue, relative to the running one, except for a child of that one.

    Old CFS lets a child change places with its parent after the parent's value was recorded.
    """
    trace = recorded(name, policy)
    record = (
        ss.policy_series(trace)
        .filter(pl.col("series") == "vruntime")
        .select("utid", "ts", v=pl.col("value").cast(pl.Int64))
        .unique(["utid", "ts"], keep="last")
    )
    turns = ss.virtual_lag_series(trace, policy)
    joined = turns.filter(pl.col("turn") == "joined").join(record, on=["utid", "ts"])
    others = turns.filter(pl.col("turn").is_in(["joined", "stopped", "left"])).join(
        record, on=["utid", "ts"]
    )
    parents = trace.threads.select(pl.col("utid").cast(pl.UInt32), "parent_utid").collect()
    pairs = (
        joined.join(others, on=["ts", "cpu"], suffix="_other")
        .join(parents, on="utid")
        .filter(
            pl.col("utid") != pl.col("utid_other"),
            pl.col("utid_other") != pl.col("parent_utid").fill_null(0),
        )
        .with_columns(
            off=(pl.col("v") - pl.col("v_other") - pl.col("vlag_other") + pl.col("vlag")).abs()
        )
        .group_by("ts", "utid", "utid_other")
        .agg(pl.col("off").min())
    )
    assert pairs.height >= 20
    assert pairs["off"].max() == 0


# -- properties ------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["eevdf", "cfs"])
@pytest.mark.parametrize("name", ["linux-ftrace-mixed.capture", "freebsd-ule-synthetic.capture"])
def test_on_every_queue_lags_sum_to_zero(name: str, policy: str, tmp_path: Path) -> None:
    """At the end of the window, when every thread on a queue has a row."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    turns = ss.virtual_lag_series(trace, policy)
    # EEVDF's delayed sleepers are on a queue, too, but have no row: they are left out.
    kept = {"set": {"delay_dequeue": False}} if policy == "eevdf" else {}
    turns = ss.virtual_lag_series(trace, policy, **kept)  # type: ignore[arg-type]
    sums = (
        turns.filter(pl.col("turn") == "end")
        .group_by("cpu")
        .agg(total=pl.col("lag").sum(), n=pl.len(), most=pl.col("lag").abs().max())
    )
    assert sums.height >= 1
    assert sums.filter(pl.col("total").abs() > pl.col("n")).is_empty(), sums


@pytest.mark.parametrize(
    "name",
    ["linux-ftrace-mixed.capture", "linux-ftrace-lossy.capture", "freebsd-4bsd-synthetic.capture"],
)
def test_recordings_keep_their_time(name: str, tmp_path: Path) -> None:
    """Running and waiting time is in `competed` or `unplaced`, except that of another class."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    frame = ss.virtual_lag(trace)
    wanted = (
        trace.states.filter(pl.col("state").is_in(["running", "runnable"]))
        .group_by(pl.col("utid").cast(pl.UInt32))
        .agg(time=pl.col("dur").sum())
        .collect()
    )
    both = frame.join(wanted, on="utid").filter(pl.col("competed") + pl.col("unplaced") > 0)
    assert both.height > 10
    assert both.filter(pl.col("competed") + pl.col("unplaced") > pl.col("time")).is_empty()
    fair = both.join(trace.threads.collect().select("utid", "sched_class"), on="utid").filter(
        pl.col("sched_class").cast(pl.String).is_in(["fair", "timeshare"])
    )
    complete = fair.filter(pl.col("competed") + pl.col("unplaced") == pl.col("time"))
    # A thread may have been lent a real-time priority for a while.
    assert complete.height >= fair.height - 2
    assert frame.filter(pl.col("picks_eligible") > pl.col("picks")).is_empty()
    assert len(ss.virtual_lag_sentences(frame)) == frame.height


# -- refusals, the command, the figure -------------------------------------------------


def test_invalid_arguments_are_refused() -> None:
    trace = of_states(TURNS)
    with pytest.raises(ss.UsageError, match="keeps virtual times"):
        ss.virtual_lag(trace, "ule")
    with pytest.raises(ss.UsageError, match="no tunable"):
        ss.virtual_lag(trace, set={"base": 3})
    stranger = ss.Trace.from_tables(
        {"states": trace.states, "threads": trace.threads.filter(pl.col("utid") == 1)}, trace.info
    )
    with pytest.raises(ss.FormatError, match="thread 2, which the table of threads does not have"):
        ss.virtual_lag(stranger)


@pytest.fixture
def sched(tmp_path: Path) -> str:
    trace = ss.simulate(generators.hogs(2, time="20ms"), policy="fifo", cpus=1)
    return str(trace.to_sched(tmp_path / "hogs.sched").path)


def test_the_command(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    """FIFO lets one hog finish first: of its 20 ms 10 were due to the other."""
    assert cli.main(["virtual-lag", sched]) == 0
    out = capsys.readouterr().out
    assert "for EEVDF, hog-1 1001 is 10.0 ms behind at most, at 0.020000 s" in out
    assert "weights: those of Linux's nice levels" in out
    assert cli.main(["virtual-lag", sched, "--model", "cfs", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["lag_max"] for row in document["rows"]] == [10 * MS, 0]
    assert document["weights"]
    assert len(document["sentences"]) == 2
    words = ["--series", "--format", "csv"]
    assert cli.main(["virtual-lag", sched, *words]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["turn"] for row in rows if row["tid"] == "1001"] == ["joined", "began", "left"]


@pytest.mark.parametrize("words", [["--model", "bfs"], ["--sort", "score"], ["--set", "x=1"]])
def test_command_refuses_invalid_arguments(
    sched: str, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert cli.main(["virtual-lag", sched, *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.strip().splitlines()) == 1


def test_figure_has_a_line_for_each_thread() -> None:
    frame = ss.virtual_lag_series(of_states(TURNS))
    axes = ss.plot.virtual_lag(frame)
    assert len(axes.get_lines()) == 3  # and zero
    assert isinstance(axes.figure, Figure)
    axes.figure.savefig(io.BytesIO(), format="png")
    assert "1 with smaller lag" in ss.plot.virtual_lag(frame, top=1).get_title(loc="left")
    assert ss.plot.virtual_lag(frame.clear()) is not None
    with pytest.raises(ss.UsageError, match=r"schedscope\.virtual_lag_series returns"):
        ss.plot.virtual_lag(ss.virtual_lag(of_states(TURNS)))
