"""`starvation`, `episode_interference`: round numbers, sums, naive implementations."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, strategies as st
from ledgers import played
from matplotlib.figure import Figure
from polars.testing import assert_frame_equal
from scenes import MS, scene

import schedscope as ss
from schedscope import cli, units
from schedscope.analysis.asking import batches
from schedscope.analysis.cpus.occupancy import occupancy
from schedscope.analysis.shares import due_in_waits as asking
from schedscope.analysis.shares.due_in_waits import due_in_waits
from schedscope.analysis.shares.sharing_groups import competitors, sharing
from schedscope.analysis.starvation import starvation
from schedscope.analysis.starvation.episode_interference import Account, account
from schedscope.analysis.threads.levels import Levels
from schedscope.simulator.workloads.builder import Builder

FIXTURES = Path(__file__).parents[2] / "fixtures"

# clerk, pinned to CPU 1, waits 300 ms: 240 behind bully, 30 behind hog, 20 of them idle,
# and 10 unknown. CPU 0 idles for 60 ms of that.
WORLD = """
    idle0 running@0   0..160
    other running@0   160..500
    hog   running@1   0..100
    clerk sleeping    0..100
    bully running@1   100..340
    clerk runnable@1  100..400
    hog   running@1   340..370
    idle1 running@1   370..390
    clerk running@1   400..500
"""
THREADS: dict[str, dict[str, Any]] = {
    "bully": {"prio": 49, "sched_class": "realtime"},
    "hog": {"prio": 130},
    "clerk": {"affinity": "0-1"},
}


@pytest.fixture
def trace() -> ss.Trace:
    return scene(WORLD, THREADS, until=500)


def test_episode_has_all_its_columns(trace: ss.Trace) -> None:
    """240 + 30 + 20 + 10 = 300 ms."""
    frame = ss.starvation(trace)
    assert frame.height == 1
    assert frame.drop("story", "tid", "pid", "utid").row(0, named=True) == {
        "episode": 0,
        "comm": "clerk",
        "prio": 120,
        "sched_class": "fair",
        "criterion": "wait",
        "ts": 100 * MS,
        "dur": 300 * MS,
        "wait": 300 * MS,
        "censored": "none",
        "cpu": 1,
        "cpus": "1",
        "culprit": "bully",
        "culprit_threads": 1,
        "culprit_time": 240 * MS,
        "culprit_frac": 0.8,
        "others": 30 * MS,
        "idle": 20 * MS,
        "unknown": 10 * MS,
        "idle_allowed": 60 * MS,
        "idle_cpu": 0,
        "idle_cpu_time": 60 * MS,
        "affinity": "0-1",
        "behind_worse": 30 * MS,
        "inversion": 0,
        "throttled": None,
        "throttled_high": None,
        "due": None,
        "received": None,
    }
    assert frame["story"][0] == (
        "clerk (prio 120) waited 300 ms on CPU 1 behind bully (80 %), its own CPU idle for"
        " 20.0 ms (10.0 ms of it unknown), while CPU 0 idled 60.0 ms"
    )


def test_culprits_of_an_episode(trace: ss.Trace) -> None:
    frame = ss.episode_interference(trace, ss.starvation(trace))
    assert frame.select("kind", "comm", "prio", "sched_class", "time", "worse").rows() == [
        ("thread", "bully", 49, "realtime", 240 * MS, 0),
        ("thread", "hog", 130, "fair", 30 * MS, 30 * MS),
        ("idle", None, None, None, 20 * MS, 0),
        ("unknown", None, None, None, 10 * MS, 0),
    ]
    assert frame["time_frac"].to_list() == [0.8, 0.1, 2 / 30, 1 / 30]


def test_a_pinned_thread_had_no_other_cpu() -> None:
    trace = scene(WORLD, THREADS | {"clerk": {"affinity": "1"}}, until=500)
    row = ss.starvation(trace).row(0, named=True)
    assert (row["idle_allowed"], row["idle_cpu"], row["idle_cpu_time"]) == (0, None, 0)
    assert "CPU 0" not in row["story"]


def test_a_mask_that_was_changed_is_not_known() -> None:
    """It ran on CPU 1, which its recorded mask excludes."""
    trace = scene(WORLD, THREADS | {"clerk": {"affinity": "0"}}, until=500)
    row = ss.starvation(trace).row(0, named=True)
    assert (row["affinity"], row["idle_allowed"]) == (None, 60 * MS)
    assert "while CPU 0 idled 60.0 ms (if it may run there)" in row["story"]


def test_unknown_affinity_is_reported() -> None:
    trace = scene(WORLD, THREADS | {"clerk": {}}, until=500)
    assert "while CPU 0 idled 60.0 ms (if it may run there)" in ss.starvation(trace)["story"][0]


def test_unfinished_episode_counts() -> None:
    trace = scene("a running@0 0..500\nb runnable@0 100..500", until=500)
    row = ss.starvation(trace).row(0, named=True)
    assert (row["wait"], row["censored"], row["culprit_frac"]) == (400 * MS, "right", 1.0)
    assert row["story"] == "b (prio 120) waited at least 400 ms on CPU 0 behind a (100 %)"


def test_moved_from_queue_to_queue() -> None:
    """On CPU 0 behind a for 100 ms, on CPU 1 behind b for 200: each counts while it waits there."""
    trace = scene(
        """
        a running@0  0..500
        b running@1  0..300
        x runnable@0 0..100
        x runnable@1 100..300
        x running@1  300..500
        """,
        until=500,
    )
    frame = ss.starvation(trace)
    assert frame.select("cpu", "cpus", "culprit", "culprit_time", "others").row(0) == (
        1,
        "0,1",
        "b",
        200 * MS,
        100 * MS,
    )
    assert " on CPUs 0, 1 behind b (67 %)" in frame["story"][0]


def test_a_shared_queue_divides_among_its_cpus() -> None:
    """300 ms on 4BSD's queue of two CPUs: one ran a, one ran b for 200 and idled for 100."""
    trace = scene(
        """
        a     running@0  0..300
        b     running@1  0..200
        idle1 running@1  200..300
        x     runnable@? 0..300
        x     running@0  300..400
        """,
        until=400,
    )
    frame = ss.starvation(trace)
    assert frame.select("culprit", "culprit_time", "others", "idle", "unknown").row(0) == (
        "a",
        150 * MS,
        100 * MS,
        50 * MS,
        0,
    )
    assert " on a shared queue behind a (50 %)" in frame["story"][0]


def test_an_inversion_is_where_priority_decides() -> None:
    """A real-time thread behind nice 0 is one; nice -10 behind nice 0 is only a worse priority."""
    text = """
        low   running@0  0..200
        high  runnable@0 0..200
        high  running@0  200..300
    """
    strict = scene(text, {"high": {"prio": 49, "sched_class": "realtime"}}, until=300)
    shared = scene(text, {"high": {"prio": 110}}, until=300)
    columns = ("behind_worse", "inversion")
    assert ss.starvation(strict).select(columns).row(0) == (200 * MS, 200 * MS)
    assert ss.starvation(shared).select(columns).row(0) == (200 * MS, 0)
    bsd = scene(text, {"high": {"prio": 110}}, until=300, os="FreeBSD")
    assert ss.starvation(bsd).select(columns).row(0) == (200 * MS, 200 * MS)


def test_the_share_takes_weight_into_account() -> None:
    """Both wait 120 ms. nice 0 among two of its like was due 40 ms of it, nice 10 about 6 ms."""
    threads: dict[str, dict[str, Any]] = {"nice": {"prio": 130}}
    trace = scene(
        """
        a    running@0  0..120
        b    running@1  0..120
        a2   runnable@0 0..120
        x    runnable@0 0..120
        nice runnable@1 0..120
        b2   runnable@1 0..120
        x    running@0  120..200
        a2   runnable@0 120..200
        nice running@1  120..200
        b2   runnable@1 120..200
        """,
        threads,
        until=200,
    )
    frame = ss.starvation(
        trace, threshold=None, share=2, turn="10ms", where=pl.col("comm").is_in(["x", "nice"])
    )
    assert frame.select("comm", "criterion", "received").rows() == [("x", "share", 0)]
    assert frame["due"][0] == pytest.approx(40 * MS)
    both = ss.starvation(trace, threshold="100ms", share=2, turn="10ms")
    assert dict(both.select("comm", "criterion").iter_rows())["x"] == "wait, share"
    assert dict(both.select("comm", "criterion").iter_rows())["nice"] == "wait"
    due = dict(both.select("comm", "due").iter_rows())["nice"]
    assert due == pytest.approx(120 * MS * 110 / (110 + 2 * 1024))


def test_the_share_of_a_thread_behind_another_class_is_all() -> None:
    """Alone in its class, all of the CPU's time is due to it, whichever thread ran."""
    trace = scene(WORLD, THREADS, until=500)
    frame = ss.starvation(trace, threshold=None, share=10, where=pl.col("comm") == "clerk")
    # hog (nice 10) wants the CPU for 30 of the 300 ms, too.
    assert frame["due"][0] == pytest.approx((270 + 30 * 1024 / (1024 + 110)) * MS)


def test_many_short_waits_are_an_episode_by_lag() -> None:
    """20 ms of waiting, 5 ms of running, four times: due 50, received 20."""
    lines = []
    for i in range(4):
        lines += [
            f"hog running@0 {25 * i}..{25 * i + 20}",
            f"x runnable@0 {25 * i}..{25 * i + 20}",
            f"x running@0 {25 * i + 20}..{25 * i + 25}",
            f"hog runnable@0 {25 * i + 20}..{25 * i + 25}",
        ]
    trace = scene("\n".join(lines), until=100)
    assert ss.starvation(trace, threshold="50ms").height == 0
    frame = ss.starvation(trace, threshold=None, lag="30ms")
    # After the fourth wait it is furthest behind: 95 / 2 due, 15 received.
    row = frame.row(0, named=True)
    assert (row["comm"], row["criterion"], row["ts"], row["dur"]) == ("x", "lag", 0, 95 * MS)
    assert (row["wait"], row["received"]) == (80 * MS, 15 * MS)
    assert row["due"] == pytest.approx(47.5 * MS)
    assert row["story"] == (
        "x (prio 120) got 15.0 ms of 47.5 ms due to it in 95.0 ms: it waited 80.0 ms on CPU 0"
        " behind hog (100 %)"
    )
    assert ss.starvation(trace, threshold=None, lag="33ms").height == 0
    assert frame.height == 1, "hog is ahead all the time"


def test_a_lag_that_is_paid_back_ends_the_episode() -> None:
    """Behind by 50 ms twice, paid back in between: two episodes, not one of 100 ms."""
    trace = scene(
        """
        a running@0  0..100
        x runnable@0 0..100
        x running@0  100..200
        a runnable@0 100..200
        a running@0  200..300
        x runnable@0 200..300
        x running@0  300..400
        a runnable@0 300..400
        """,
        until=400,
    )
    frame = ss.starvation(trace, threshold=None, lag="50ms", where=pl.col("comm") == "x")
    assert sorted(frame.select("ts", "dur").rows()) == [(0, 100 * MS), (200 * MS, 100 * MS)]


def test_the_summary_counts(trace: ss.Trace) -> None:
    row = ss.starvation_summary(trace).row(0, named=True)
    assert row == {
        "comm": "clerk",
        "threads": 1,
        "n": 1,
        "n_censored": 0,
        "n_excluded": 0,
        "total": 300 * MS,
        "longest": 300 * MS,
        "ts_longest": 100 * MS,
        "n_high": 1,
        "total_high": 300 * MS,
        "longest_high": 300 * MS,
    }
    assert ss.starvation_summary(trace, by="all", threshold="1s").row(0)[:4] == (0, 0, 0, 0)


def test_waits_in_unknown_time_bound_the_summary() -> None:
    """b waited for 10 ms and may have for 30 more; a waited for 20 ms."""
    trace = scene(
        """
        b running@0  0..20
        a runnable@0 0..20
        a running@0  20..30
        b runnable@0 20..30
        b running@0  30..40
        b unknown    40..70
        a sleeping   30..70
        b sleeping   70..71
        """,
        until=71,
    )
    columns = ["n", "n_high", "total", "total_high", "longest", "longest_high"]

    def of(**how: Any) -> dict[str | None, list[Any]]:
        rows = ss.starvation_summary(trace, **how).select("comm", *columns).rows()
        return {comm: figures for comm, *figures in rows}

    assert of(threshold="25ms")["b"] == [0, 1, 0, 30 * MS, None, 30 * MS]
    assert of(threshold="15ms") == {
        "a": [1, 1, 20 * MS, 20 * MS, 20 * MS, 20 * MS],
        "b": [0, 2, 0, 30 * MS, None, 30 * MS],
    }
    assert of(threshold="35ms") == {}
    assert of(threshold="15ms", where=pl.col("comm") == "a").keys() == {"a"}
    assert of(threshold=None, share=1)["a"][1::2] == [None, None, None]


def test_rest_of_a_wait_in_another_row_bounds_nothing() -> None:
    """d may have waited from 20 to 60: the enqueue at 21 and the run at 60 are of that wait."""
    trace = played(
        """
         0 cpu0: idle -> d
         0 cpu1: idle -> p
         5 loss cpu0 until 50
        10 cpu1: waking d on 1 by p
        20 cpu1: waking d on 1 by p
        21 cpu1: enqueued d on 1 by p
        60 cpu0: idle -> d
        """,
        window=(0, 100),
    )
    row = ss.starvation_summary(trace, threshold=30).row(0, named=True)
    assert (row["comm"], row["total_high"], row["longest_high"]) == ("d", 40, 40)


def test_where_and_top_select_episodes(trace: ss.Trace) -> None:
    assert ss.starvation(trace, where=pl.col("comm") == "hog").height == 0
    assert ss.starvation(trace, where=pl.col("cpu") == 1).height == 1
    assert ss.starvation(trace, where=pl.col("cpu") == 0).height == 0
    assert ss.starvation(trace, threshold="1us", top=1).height == 1


def test_trace_without_starvation_has_an_empty_frame(trace: ss.Trace) -> None:
    """An empty frame of the same columns, for each threshold."""
    want = ss.starvation(trace).columns
    for limits in (
        {"threshold": "1s"},
        {"threshold": None, "share": 1000},
        {"threshold": None, "lag": "1s"},
    ):
        frame = ss.starvation(trace, **limits)  # type: ignore[arg-type]
        assert (frame.height, frame.columns) == (0, want)
        assert ss.episode_interference(trace, frame).height == 0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"threshold": None}, "no threshold"),
        ({"threshold": "0ms"}, "threshold=0"),
        ({"share": -1}, "share=-1"),
        ({"lag": 0}, "lag=0"),
        ({"top": 0}, "top=0"),
        ({"threshold": "soon"}, "'soon' is not a duration"),
    ],
)
def test_invalid_arguments_are_refused(trace: ss.Trace, options: dict[str, Any], word: str) -> None:
    with pytest.raises(ss.UsageError, match=word):
        ss.starvation(trace, **options)


def test_episodes_must_be_episodes(trace: ss.Trace) -> None:
    with pytest.raises(ss.UsageError, match="no column dur, wait"):
        ss.episode_interference(trace, pl.DataFrame({"episode": [0], "utid": [2], "ts": [0]}))
    with pytest.raises(ss.UsageError, match="no episode 7"):
        ss.starvation_timeline(trace, ss.starvation(trace), 7)


# -- the sums -------------------------------------------------------------------------

# Per stretch: its length, who runs on each of two CPUs (-1 idle, None not known), and what
# each of four threads does if it does not run: sleeps, or waits on 0, 1 or no known queue.
STRETCH = st.tuples(
    st.integers(1, 7),
    st.sampled_from([-1, None, 0, 1, 2, 3]),
    st.sampled_from([-1, None, 0, 1, 2, 3]),
    st.lists(st.sampled_from(["s", "0", "1", "?"]), min_size=4, max_size=4),
)


def lines_of(stretches: list[Any]) -> tuple[str, list[list[tuple[str, str | None]]], int]:
    """The scene, and what each of four threads did in each ns."""
    truth: list[list[tuple[str, str | None]]] = [
        [] for _ in range(6)
    ]  # two idle threads, four more
    for length, zero, one, others in stretches:
        runner = {0: zero, 1: one if one != zero or one in (-1, None) else -1}
        for _ in range(length):
            for cpu in (0, 1):
                idle = runner[cpu] == -1
                truth[cpu].append(("running", str(cpu)) if idle else ("", None))
            for i in range(4):
                on = [cpu for cpu in (0, 1) if runner[cpu] == i]
                state = ("sleeping", None) if others[i] == "s" else ("runnable", others[i])
                truth[2 + i].append(("running", str(on[0])) if on else state)
    total = len(truth[0])
    lines = []
    for number, name in enumerate(["idle0", "idle1", "a", "b", "c", "d"]):
        begin = 0
        for t in range(1, total + 1):
            if t == total or truth[number][t] != truth[number][begin]:
                state, cpu = truth[number][begin]
                if state:
                    at = f"@{cpu}" if cpu is not None else ""
                    lines.append(f"{name} {state}{at} {begin}..{t}")
                begin = t
    return "\n".join(lines), truth, total


@given(st.lists(STRETCH, min_size=1, max_size=12), st.integers(0, 3), st.data())
def test_culprits_and_idle_and_unknown_add_up(
    stretches: list[Any], who: int, data: st.DataObject
) -> None:
    """To the wait exactly; and against a look at every nanosecond."""
    text, truth, total = lines_of(stretches)
    begin = data.draw(st.integers(0, total - 1))
    end = data.draw(st.integers(begin + 1, total))
    # Every thread appears, so that utids are those of the truth.
    every = "\n".join(f"{name} sleeping 0..0" for name in "abcd")
    trace = scene(every + "\n" + text, until=total, unit=1, ledger=False)
    utid = 2 + who
    waited = [t for t in range(begin, end) if truth[utid][t][0] == "runnable"]
    episodes = pl.DataFrame(
        {
            "episode": [0],
            "utid": [utid],
            "ts": [begin],
            "dur": [end - begin],
            "wait": [len(waited)],
        },
        schema_overrides={"episode": pl.UInt32, "utid": pl.UInt32},
    )
    frame = ss.episode_interference(trace, episodes)
    assert int(frame["time"].sum()) == len(waited)
    assert (frame["time"] > 0).all()
    want: dict[tuple[str, int | None], int] = {}
    halves: dict[tuple[str, int | None], int] = {}
    for t in waited:
        queue = truth[utid][t][1]
        for cpu in ("0", "1") if queue == "?" else (queue,):
            ran = [n for n in range(6) if truth[n][t] == ("running", cpu)]
            key = (
                ("unknown", None)
                if not ran
                else ("idle", None)
                if ran[0] < 2
                else ("thread", ran[0])
            )
            sums = halves if queue == "?" else want
            sums[key] = sums.get(key, 0) + 1
    got = {
        (kind, utid): time for kind, utid, time in frame.select("kind", "utid", "time").iter_rows()
    }
    for key in {*want, *halves, *got}:
        # A half ns goes to either side; what the trace does not tell takes the rest.
        slack = 0.5 * len(halves) if key[0] == "unknown" else 0.5
        exact = want.get(key, 0) + halves.get(key, 0) / 2
        assert abs(got.get(key, 0) - exact) <= (slack if halves else 0)


def overlap(row: dict[str, Any], begin: int, end: int) -> int:
    return max(0, min(row["ts"] + row["dur"], end) - max(row["ts"], begin))


def row_by_row(
    states: list[dict[str, Any]], episode: tuple[int, int, int, list[int]], strict_to: int
) -> tuple[Any, ...]:
    """One row of `CpuHistory.episode_interference`: every wait against every other row."""
    utid, begin, end, allowed = episode
    ran: dict[tuple[int, int], list[Any]] = {}
    waited: dict[int | None, int] = {}
    idle: dict[int, int] = {}
    own = None
    for wait in states:
        if wait["utid"] != utid or wait["state"] != "runnable" or not overlap(wait, begin, end):
            continue
        cut = max(wait["ts"], begin), min(wait["ts"] + wait["dur"], end)
        prio, queue = wait["prio"], wait["cpu"]
        own = prio if prio is not None else own
        waited[queue] = waited.get(queue, 0) + cut[1] - cut[0]
        for run in states:
            time = overlap(run, *cut) if run["state"] == "running" else 0
            if not time:
                continue
            cpu, who = run["cpu"], 0 if run["utid"] < 2 else run["utid"]
            if cpu == queue or (queue is None and cpu in allowed):
                known = prio is not None and run["prio"] is not None
                worse = time if known and run["prio"] > prio else 0
                key = (who, 1 if queue is not None else len(allowed))
                sums = ran.setdefault(key, [0, 0, 0, (-1, None)])
                sums[0] += time
                sums[1] += worse
                sums[2] += worse if worse and prio < strict_to else 0
                sums[3] = max(sums[3], (run["ts"], run["prio"]), key=lambda last: last[0])
            elif who == 0 and cpu in allowed:
                idle[cpu] = idle.get(cpu, 0) + (time if queue is not None else 0)
    told = {key: (*sums[:3], sums[3][1]) for key, sums in ran.items()}
    return told, waited, {cpu: time for cpu, time in idle.items() if time}, own


@given(st.lists(STRETCH, min_size=1, max_size=12), st.data())
def test_sums_equal_a_naive_computation(stretches: list[Any], data: st.DataObject) -> None:
    """Whatever the priorities, for any threads and intervals."""
    text, _, total = lines_of(stretches)
    every = "\n".join(f"{name} sleeping 0..0" for name in "abcd")
    trace = scene(every + "\n" + text, until=total, unit=1, ledger=False)
    states = trace.states.collect()
    prio = st.sampled_from([None, 49, 110, 120, 130])
    drawn = pl.Series(
        data.draw(st.lists(prio, min_size=states.height, max_size=states.height)), dtype=pl.Int16
    )
    states = states.with_columns(prio=pl.when(pl.col("utid") >= trace.ncpu).then(drawn))
    tables = {"states": states, "threads": trace.threads.collect()}
    trace = ss.Trace.from_tables(tables, trace.info)
    instant = st.integers(0, total)
    # On CPU 7 no thread ever runs.
    allowed = st.sampled_from([[0, 1], [0, 1, 7], [1, 7]])
    episode = st.tuples(st.integers(2, 5), instant, instant, allowed)
    asked = data.draw(st.lists(episode, max_size=5))
    read = occupancy(trace, weights=Levels(trace))
    *tables, prios = read.episode_interference(100, asked)
    waited, ran, idle = (pl.DataFrame(table) for table in tables)
    rows = states.to_dicts()
    for number, one in enumerate(asked):
        mine = pl.col("episode") == number
        want = row_by_row(rows, one, 100)
        told = ran.filter(mine).select("utid", "n", "time", "worse", "strict", "prio")
        assert {row[:2]: row[2:] for row in told.iter_rows()} == want[0]
        for table, expected in ((waited, want[1]), (idle, want[2])):
            assert dict(table.filter(mine).select("cpu", "time").iter_rows()) == expected
        assert prios[number] == want[3]


CAPTURES = [
    "linux-ftrace-mixed.capture",
    "linux-ftrace-starved.capture",
    "linux-ftrace-lossy.capture",
    "freebsd-ule-synthetic.capture",
    "freebsd-4bsd-synthetic.capture",
]


@pytest.mark.parametrize("name", CAPTURES)
def test_sums_hold_on_recordings(name: str, tmp_path: Path) -> None:
    """Every wait of 1 ms or more: its parts add up, and its length is the ledger's."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    frame = ss.starvation(trace, threshold="1ms")
    ledger = trace.waits.filter(pl.col("wait") >= MS).collect()
    assert frame.height == ledger.height > 0
    assert frame["wait"].sum() == ledger["wait"].sum()
    assert frame["censored"].eq("right").sum() == ledger["censored"].eq("right").sum()
    parts = frame.select(pl.sum_horizontal("culprit_time", "others", "idle", "unknown"))
    assert parts.to_series().to_list() == frame["wait"].to_list()
    sums = (
        ss.episode_interference(trace, frame)
        .group_by("episode")
        .agg(pl.col("time").sum())
        .sort("episode")
    )
    assert sums["time"].to_list() == frame["wait"].to_list()
    total = ss.starvation_summary(trace, threshold="1ms", by="all").row(0, named=True)
    assert (total["n"], total["total"]) == (frame.height, frame["wait"].sum())
    assert (
        total["n_excluded"] == trace.waits.select(pl.col("wait").is_null().sum()).collect().item()
    )
    by_comm = ss.starvation_summary(trace, threshold="1ms")
    assert by_comm["n"].sum() == frame.height


def test_episodes_do_not_depend_on_the_size_of_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many episodes, some at a time are asked who ran meanwhile."""
    trace = ss.open(FIXTURES / "linux-ftrace-mixed.capture", cache=tmp_path)
    whole = ss.starvation(trace, threshold="1ms")
    asked: list[int] = []

    def counted(trace: ss.Trace, episodes: pl.DataFrame) -> Account:
        asked.append(episodes.height)
        return account(trace, episodes)

    monkeypatch.setattr(starvation, "account", counted)
    monkeypatch.setattr(starvation, "_RAN", 2000)
    assert_frame_equal(ss.starvation(trace, threshold="1ms"), whole)
    assert len(asked) > 3
    assert sum(asked) == whole.height


@pytest.mark.parametrize("name", CAPTURES)
def test_service_due_does_not_depend_on_the_size_of_batches(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit: in order of their ends, some at a time, or in no order."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    whole = ss.starvation(trace, threshold=None, share=0.1)
    assert whole.height > 40
    waits = trace.waits.filter(pl.col("wait") > 0).select("utid", "wait", ts="ts_ready").collect()
    few = max(7, waits.height // 60)
    monkeypatch.setattr(batches, "BATCH", few)
    assert_frame_equal(ss.starvation(trace, threshold=None, share=0.1), whole, check_exact=True)

    read, how = competitors(trace, Levels(trace), None)
    found: list[pl.DataFrame] = []

    def due(rows: pl.DataFrame) -> pl.DataFrame:
        found.clear()
        due_in_waits(read, sharing(trace, how), rows.iter_slices(few), found.append)
        return pl.concat(found).sort("ts", "utid", "wait")

    in_order = due(waits)
    assert in_order.height == waits.height
    assert in_order["due"].null_count() == 0
    times = len(found)
    # Asked for again some at a time, or at once, so that in the end none are left.
    for late in (20, 1):
        monkeypatch.setattr(asking, "_LATE", late)
        shuffled = due(waits.sample(fraction=1, shuffle=True, seed=1))
        # Most were late, and asked for again.
        assert len(found) > times
        assert_frame_equal(shuffled, in_order, check_exact=True)


def test_the_bully_is_found(tmp_path: Path) -> None:
    """fixtures/linux-ftrace-starved.md names the starving and the starved threads."""
    trace = ss.open(FIXTURES / "linux-ftrace-starved.capture", cache=tmp_path)
    frame = ss.starvation(trace)
    worst = frame.row(0, named=True)
    assert (worst["comm"], worst["prio"], worst["culprit"]) == ("patient", 139, "greedy")
    # It waited for 1.2 s. A switch of its CPU is missing in between, away from a thread whose
    # leaving this kernel never reports: it was not to this thread.
    assert (worst["wait"] > 1_100 * MS, worst["censored"]) == (True, "none")
    for comm in ("even-a", "even-b", "clerk"):
        row = frame.filter(comm=comm).row(0, named=True)
        assert row["culprit"] == "bully"
        assert row["culprit_frac"] > 0.95
        assert 190 * MS < row["wait"] < 220 * MS
    # It waits longest, and is due next to nothing: nice 19 against nice -20.
    assert "patient" not in ss.starvation(trace, threshold=None, share=5)["comm"]
    assert "patient" not in ss.starvation(trace, threshold=None, lag="50ms")["comm"]
    assert "kworker/u8:4" in ss.starvation(trace, threshold=None, lag="50ms")["comm"]


def test_missing_facts_of_freebsd_are_reported(tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / "freebsd-ule-synthetic.capture", cache=tmp_path)
    frame = ss.starvation(trace, threshold="10ms")
    assert frame.height
    assert frame["affinity"].null_count() == frame.height
    assert ss.weights(trace)["basis"].cast(pl.String).unique().to_list() == ["equal"]
    assert ss.weight_notes(trace) == [
        "none are known for FreeBSD: all threads of a class count the same"
    ]


# -- policies known to starve -----------------------------------------------------------


def test_ule_starves_what_computes_and_cfs_does_not() -> None:
    """Threads that sleep a lot fill the CPU: ULE keeps them above the one that computes."""
    b = Builder()
    b.thread("fibo").run("1s").repeat()
    b.threads("interactive", 20).run("2ms").sleep("20ms").repeat()
    load = b.workload()
    who = pl.col("comm") == "fibo"
    ule = ss.simulate(load, policy="ule-14", until="5s", set={"wake_preempt": "none"})
    worst = ss.starvation(ule, threshold="1s", where=who).row(0, named=True)
    assert worst["wait"] > 3_000 * MS
    assert worst["idle"] == worst["unknown"] == 0
    assert worst["culprit_time"] + worst["others"] == worst["wait"]
    assert ss.episode_interference(ule, ss.starvation(ule, where=who, top=1)).height > 5
    cfs = ss.simulate(load, policy="cfs-2.6.32", until="5s")
    assert ss.starvation(cfs, threshold="1s", where=who).height == 0


def test_fifo_lets_the_first_one_run() -> None:
    b = Builder()
    b.threads("hog", 3).run("400ms")
    frame = ss.starvation(ss.simulate(b.workload(), policy="fifo"), threshold="300ms")
    assert frame.select("comm", "wait", "culprit").rows() == [
        ("hog-2", 800 * MS, "hog-0"),
        ("hog-1", 400 * MS, "hog-0"),
    ]
    rr = ss.simulate(b.workload(), policy="ps")
    assert ss.starvation(rr, threshold="10ms").height == 0


# -- the timeline -------------------------------------------------------------------------


def test_the_timeline_has_thread_queue_and_other_cpus(trace: ss.Trace) -> None:
    frame = ss.starvation_timeline(trace, ss.starvation(trace), margin=0)
    rows = frame.select("lane", "cpu", "comm", "ts", "dur", "waited").rows()
    assert rows == [
        ("thread", 1, "clerk", 100 * MS, 300 * MS, False),
        ("queue", 1, "bully", 100 * MS, 240 * MS, True),
        ("queue", 1, "hog", 340 * MS, 30 * MS, True),
        ("queue", 1, "", 370 * MS, 20 * MS, True),
        ("other", 0, "", 100 * MS, 60 * MS, False),
        ("other", 0, "other", 160 * MS, 240 * MS, False),
    ]
    wide = ss.starvation_timeline(trace, ss.starvation(trace), margin=0.5)
    assert (wide["ts"].min(), (wide["ts"] + wide["dur"]).max()) == (0, 500 * MS)
    with pytest.raises(ss.UsageError, match="margin=-1"):
        ss.starvation_timeline(trace, ss.starvation(trace), margin=-1)


def test_the_figure(trace: ss.Trace) -> None:
    """A lane for the thread and for each CPU; names in the legend; unknown time is named."""
    axes = ss.plot.starvation(ss.starvation_timeline(trace, ss.starvation(trace)))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["CPU 0", "CPU 1", "clerk"]
    legend = axes.get_legend()
    assert legend is not None
    words = {text.get_text() for text in legend.get_texts()}
    assert {"bully", "hog", "it waits", "unknown"} <= words
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.savefig(io.BytesIO())
    # What has no colour of its own says its name where there is room, and how much it is of all.
    shown = ss.starvation_timeline(trace, ss.starvation(trace), margin=0)
    few = ss.plot.starvation(shown, top=1)
    assert {"hog", "other"} <= {text.get_text() for text in few.texts}
    legend = few.get_legend()
    assert legend is not None
    ran = (240 + 30 + 240) * MS
    words = {text.get_text() for text in legend.get_texts()}
    assert f"2 other names, {units.percent((30 + 240) * MS / ran)} of what ran" in words
    with pytest.raises(ss.UsageError, match="starvation_timeline"):
        ss.plot.starvation(ss.starvation(trace))


def test_long_names_take_fewer_columns_of_the_legend() -> None:
    """Fifteen letters are the longest name; the legend stays above its lanes."""
    rows = [
        {
            "lane": lane,
            "cpu": 0,
            "ts": 10 * i * MS,
            "dur": 10 * MS,
            "state": "running",
            "kind": "thread",
            "comm": f"a-long-name-{i:03}",
            "waited": True,
        }
        for lane in ("thread", "queue")
        for i in range(6)
    ]
    axes = ss.plot.starvation(pl.DataFrame(rows))
    figure, legend = axes.figure, axes.get_legend()
    assert isinstance(figure, Figure)
    assert legend is not None
    figure.draw_without_rendering()
    assert legend.get_window_extent().x1 <= figure.bbox.x1


def test_figure_has_the_longest_idle_of_many_cpus() -> None:
    """CPU 7 has the queue; of the 40 others CPU 39 idled longest, then 38, and so on."""
    columns = ("lane", "cpu", "ts", "dur", "state", "kind", "comm", "waited")
    rows = [("thread", None, 0, 100, "runnable", None, "clerk", False)]
    rows += [("queue", 7, 0, 100, "running", "thread", "hog", True)]
    for cpu in (cpu for cpu in range(41) if cpu != 7):
        rows.append(("other", cpu, 0, 100 - cpu, "running", "thread", f"on-{cpu}", False))
        rows.append(("other", cpu, 100 - cpu, cpu, "running", "idle", "", False))
    frame = pl.DataFrame(rows, schema=columns, orient="row").with_columns(
        pl.col("lane").cast(pl.Enum(["thread", "queue", "other"]))
    )
    axes = ss.plot.starvation(frame)
    labels = [label.get_text() for label in axes.get_yticklabels()][::-1]
    assert labels == ["clerk", "CPU 7", *(f"CPU {cpu}" for cpu in range(25, 41))]
    assert axes.get_xlabel() == "time in s; 24 CPUs that idled less not drawn"
    assert len(ss.plot.starvation(frame, cpus=100).get_yticklabels()) == 42


# -- the command --------------------------------------------------------------------------


def run(*words: str) -> int:
    return cli.main(["starvation", *words])


@pytest.fixture
def folder(trace: ss.Trace, tmp_path: Path) -> str:
    path = tmp_path / "scene.sched"
    trace.to_sched(path)
    return str(path)


def test_summaries_come_before_tables(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder) == 0
    out = capsys.readouterr().out
    assert "1 episode of 100ms or more in 1 thread, 300 ms of waiting in total" in out
    assert out.index("clerk (prio 120) waited 300 ms") < out.index("idle elsewhere")


def test_other_tables(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--culprits") == 0
    out = capsys.readouterr().out
    assert "(idle)" in out
    assert "(unknown)" in out
    assert "bully" in out
    assert run(folder, "--by", "comm") == 0
    assert "episodes" in capsys.readouterr().out
    assert run(folder, "--share", "5", "--lag", "10ms") == 0
    out = capsys.readouterr().out
    assert "5 fair turns of 3ms" in out
    assert "weights: " in out
    assert run(folder, "--threshold", "10s") == 0
    assert "0 episodes" in capsys.readouterr().out


def test_command_writes_json_and_csv(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["all"]["n"] == 1
    assert document["limits"]["threshold"] == "100ms"
    assert document["rows"][0]["wait"] == 300 * MS
    assert run(folder, "--format", "csv", "--culprits") == 0
    rows = pl.read_csv(io.StringIO(capsys.readouterr().out))
    assert rows["time"].sum() == 300 * MS


def test_wait_for_an_idle_cpu_is_flagged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """b waits 400 ms on the queue of CPU 0, which idles for 300 of them; 2 ms may be its waking."""
    trace = scene(
        """
        a     running@0  0..100
        idle0 running@0  100..400
        b     runnable@0 0..400
        b     running@0  400..410
        idle0 running@0  410..412
        b     runnable@0 410..412
        b     running@0  412..500
        """,
        until=500,
    )
    folder = str(trace.to_sched(tmp_path / "hole.sched").path)
    assert run(folder) == 0
    assert "in 1 episode the CPU waited for was idle most" in capsys.readouterr().out
    assert run(folder, "--threshold", "1ms") == 0
    assert "in 1 episode the CPU waited for was idle most" in capsys.readouterr().out


def test_empty_result_is_reported_in_one_sentence(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ([], ["--culprits"]):
        assert run(folder, "--threshold", "100s", *words) == 0
        lines = capsys.readouterr().out.rstrip().splitlines()
        assert len(lines) == 5
        assert lines[2].startswith("0 episodes of 100s or more")
        assert lines[-1].startswith("the longest wait was ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--threshold", "soon"], "'soon' is not a duration"),
        (["--share", "0"], "share=0"),
        (["--top", "0"], "--top 0"),
        (["--turn", "5ms"], "--turn 5ms"),
        (["--comm", "nobody"], "nobody"),
        (["--cpu", "9"], "--cpu 9"),
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


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        # Three programs called python3, of a service, its client and a foreign job.
        (
            ["/system.slice/web.service", "/client", "/batch", "/batch"],
            "python3 of web.service (prio 120) waited 300 ms on CPU 0 behind python3 of /batch and"
            " 1 more (2 threads, >99 %)",
        ),
        (
            ["/system.slice/web.service", "/batch", "/batch", "/batch"],
            "python3 of web.service (prio 120) waited 300 ms on CPU 0 behind python3 of /batch"
            " (2 threads, >99 %)",
        ),
        (
            ["/system.slice/web.service", "/", "/", "/"],
            "behind python3 outside of all groups (2 threads, >99 %)",
        ),
        # All of one service, and one whose group is unknown.
        (["/batch"] * 4, "python3 (prio 120) waited 300 ms on CPU 0 behind python3 (2 threads"),
        (
            ["/a", None, "/b", "/b"],
            "python3 of /a (prio 120) waited 300 ms on CPU 0 behind python3 (2",
        ),
    ],
)
def test_programs_of_one_name_are_distinguished_by_service(
    groups: list[str | None], said: str
) -> None:
    trace = scene(
        """
        w runnable@0 100..400
        a running@0 100..200
        b running@0 200..399
        c running@0 399..400
        w running@0 400..500
        """,
        ncpu=1,
    )
    number = (pl.col("utid") - 1).cast(pl.Int64)
    threads = trace.threads.with_columns(
        comm=pl.when(pl.col("comm") == "c").then(pl.lit("cc")).otherwise(pl.lit("python3")),
        cgroup=number.replace_strict([0, 1, 2, 3], groups, default=None, return_dtype=pl.String),
    ).collect()
    tables = {"states": trace.states, "waits": trace.waits, "threads": threads}
    story = ss.starvation(ss.Trace.from_tables(tables, trace.info))["story"][0]
    assert said in story
