"""Scores worked out by hand, and scores that the simulated scheduler recorded itself."""

from __future__ import annotations

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
SECOND = 1_000 * MS

Interval = tuple[int, int, str, str]


def of_states(
    lives: dict[int, list[Interval]],
    *,
    threads: pl.DataFrame | None = None,
    sleeps: pl.DataFrame | None = None,
    os: str = "FreeBSD",
) -> ss.Trace:
    """A trace of 1 CPU from (begin, end, state, end's kind) in ms, by utid."""
    rows = [
        (begin * MS, (end - begin) * MS, utid, state, how)
        for utid, life in lives.items()
        for begin, end, state, how in life
    ]
    rows.sort(key=lambda row: row[0] + row[1])
    end = max(row[0] + row[1] for row in rows)
    states = pl.DataFrame(rows, ["ts", "dur", "utid", "state", "end"], orient="row")
    tables = {"states": states.with_columns(cpu=pl.lit(0))}
    tables["threads"] = (
        threads
        if threads is not None
        else pl.DataFrame(
            [{"utid": utid, "tid": 100 + utid, "comm": f"t{utid}"} for utid in lives],
            schema=ss.Trace.from_tables({}, {"ncpu": 1}).threads.collect_schema(),
        )
    )
    if sleeps is not None:
        tables["sleeps"] = sleeps
    return ss.Trace.from_tables(tables, {"ncpu": 1, "window": [0, end], "os": os})


# -- worked out by hand ----------------------------------------------------------------
#
# With hz and stathz 1000 a tick of either clock is 1 ms, and a score of 50 * run / sleep
# is a sum in the head.
ROUND = {"hz": 1000, "stathz": 1000}


def test_score_weighs_run_time_against_sleep_time() -> None:
    """50 * 100 / 400 = 12 after a sleep of 400 ms; 50 * 240 / 400 = 30 after 140 ms more of run."""
    trace = of_states(
        {
            1: [
                (0, 100, "running", "switched"),
                (100, 500, "sleeping", "woken"),
                (500, 550, "runnable", "switched"),
                (550, 750, "running", "switched"),
                (750, 800, "sleeping", "window"),
            ]
        }
    )
    row = ss.interactivity(trace, set=ROUND).row(0, named=True)
    assert row["score"] == 50 * 300 // 400 == 37
    assert (row["score_min"], row["score_max"]) == (12, 50)
    assert row["ts_interactive"] == 500 * MS
    # From the wakeup until the 240th ms of run, at 690: 50 ms of waiting and 140 of run.
    assert row["interactive"] == 190 * MS
    assert (row["observed"], row["unknown"]) == (800 * MS, 0)
    assert (row["transitions"], row["is_interactive"]) == (2, False)
    assert (row["n"], row["n_censored"], row["n_excluded"]) == (1, 1, 0)
    series = ss.interactivity_series(trace, set=ROUND)
    assert series.filter(pl.col("ts") == 500 * MS)["score"].to_list() == [12]
    assert series.filter(pl.col("score") == 30).row(0)[0] == 690 * MS
    sentence = ss.interactivity_sentences(ss.interactivity(trace, set=ROUND))[0]
    assert sentence == (
        "ULE would call t1 101 interactive 23.8 % of the time, first at 0.500000 s,"
        " changing 2 times; it is not at the end (score 37)"
    )


def test_a_threshold_may_be_set() -> None:
    life: list[Interval] = [
        (0, 100, "running", "switched"),
        (100, 500, "sleeping", "woken"),
        (500, 501, "running", "window"),
    ]
    trace = of_states({1: life})
    assert ss.interactivity(trace, set={**ROUND, "interact": 12})["is_interactive"].item() is False
    assert ss.interactivity(trace, set={**ROUND, "interact": 13})["is_interactive"].item() is True


def test_unobserved_sleep_is_not_credited() -> None:
    """A sleep whose end was not recorded, and unknown time."""
    trace = of_states(
        {
            1: [
                (0, 100, "running", "switched"),
                (100, 500, "sleeping", "lost"),
                (500, 600, "running", "lost"),
                (600, 900, "unknown", "switched"),
                (900, 1000, "running", "window"),
            ]
        }
    )
    row = ss.interactivity(trace, set=ROUND).row(0, named=True)
    assert (row["score"], row["ts_interactive"], row["interactive"]) == (50, None, 0)
    assert (row["observed"], row["unknown"]) == (700 * MS, 300 * MS)
    assert (row["n"], row["n_censored"], row["n_excluded"]) == (0, 0, 2)
    series = ss.interactivity_series(trace, set=ROUND)
    assert series.filter(pl.col("score").is_null())["ts"].to_list() == [600 * MS]
    assert ss.interactivity_sentences(ss.interactivity(trace, set=ROUND)) == [
        "ULE would never call t1 101 interactive (score 50)"
    ]


def test_lock_wait_is_not_credited_as_sleep() -> None:
    life: list[Interval] = [
        (0, 100, "running", "switched"),
        (100, 500, "blocked", "woken"),
        (500, 501, "running", "window"),
    ]
    sleeps = pl.DataFrame(
        {"ts": [100 * MS], "cpu": [0], "utid": [1], "kind": ["lock"], "reason": ["vm object"]}
    )
    queued = of_states({1: life}, sleeps=sleeps.with_columns(kind=pl.lit("sleep")))
    locked = of_states({1: life}, sleeps=sleeps)
    assert ss.interactivity(queued, set=ROUND)["score"].item() == 12
    assert ss.interactivity(locked, set=ROUND)["score"].item() == 50


def threads(*rows: dict[str, object]) -> pl.DataFrame:
    return pl.DataFrame(
        [{"comm": "", **row} for row in rows],
        schema=ss.Trace.from_tables({}, {"ncpu": 1}).threads.collect_schema(),
    )


def test_children_inherit_and_parents_pay() -> None:
    """Forked at 500 ms by a thread that ran 100 and slept 400; the child runs 60 ms and exits."""
    lives: dict[int, list[Interval]] = {
        1: [
            (0, 100, "running", "switched"),
            (100, 500, "sleeping", "woken"),
            (500, 510, "running", "switched"),
            (510, 600, "sleeping", "window"),
        ],
        2: [(505, 510, "runnable", "switched"), (510, 570, "running", "exited")],
    }
    family = threads({"utid": 1, "tid": 1}, {"utid": 2, "start_ts": 505 * MS, "parent_utid": 1})
    trace = of_states(lives, threads=family)
    series = ss.interactivity_series(trace, set=ROUND)
    # 100 + 5 ms against 400, which is at most 500 ms together but for 5: ratio 1.
    of_child = series.drop("tid", "scheduler").filter(pl.col("utid") == 2)
    assert of_child.row(0) == (505 * MS, 2, "", 50 * 105 // 400, True)
    frame = ss.interactivity(trace, set=ROUND)
    child, parent = frame.filter(utid=2).row(0, named=True), frame.filter(utid=1).row(0, named=True)
    assert child["score"] == 50 * 165 // 400
    assert of_child.row(-1) == (570 * MS, 2, "", None, None)
    # The fork costs one tick; 10 ms are its own; at 570 the child's running time is added.
    assert parent["score"] == 50 * (100 + 1 + 10 + 165) // 400
    assert series.filter(pl.col("utid") == 1).row(-1)[0] == 570 * MS


def test_nice_counts_and_real_time_is_not_scored() -> None:
    life: list[Interval] = [(0, 100, "running", "switched"), (100, 500, "sleeping", "woken"),
                            (500, 501, "runnable", "window")]  # fmt: skip
    known = threads(
        {"utid": 1, "prio": 120, "sched_class": "fair"},
        {"utid": 2, "prio": 130, "sched_class": "fair"},
        {"utid": 3, "prio": 9, "sched_class": "realtime"},
    )
    trace = of_states({1: life, 2: life, 3: life}, threads=known, os="Linux")
    frame = ss.interactivity(trace, set=ROUND)
    assert frame["score"].to_list() == [12, 22, None]
    assert frame["unknown"].to_list() == [0, 0, 501 * MS]
    assert "would not score" in ss.interactivity_sentences(frame)[2]
    # `where` selects the threads of the rows.
    assert ss.interactivity(trace, where=pl.col("prio") == 130)["utid"].to_list() == [2]


def test_long_sleeps_settle_a_score() -> None:
    life: list[Interval] = [
        (0, 3000, "running", "switched"),
        (3000, 6000, "sleeping", "woken"),
        (6000, 6001, "running", "window"),
    ]
    row = ss.interactivity(of_states({1: life})).row(0, named=True)
    assert row["ts_settled"] == 6000 * MS


# -- against the policy's own record ---------------------------------------------------


def recorded(load: Workload, ncpu: int, policy: str = "ule-14") -> ss.Trace:
    return ss.simulate(load, policy=policy, cpus=ncpu, record=True)


def beside(trace: ss.Trace, **options: int) -> pl.DataFrame:
    """The policy's recorded score and ours, at each instant at which it recorded one."""
    theirs = (
        ss.policy_series(trace)
        .filter(pl.col("series") == "score")
        .group_by("utid", "ts", maintain_order=True)
        .last()
        .select("utid", "ts", recorded=pl.col("value").cast(pl.Int64))
        .sort("utid", "ts")
    )
    ours = ss.interactivity_series(trace, "ule-14", **options)  # type: ignore[arg-type]
    ours = ours.drop_nulls("score")  # an exit may be of the instant of the last wakeup
    parts = [
        theirs.filter(utid=utid).join_asof(
            ours.filter(utid=utid).select("ts", "score").sort("ts"), on="ts"
        )
        for utid in theirs["utid"].unique().sort()
    ]
    return pl.concat(parts)


LOADS = {
    "hogs": (generators.hogs(3, time="2s"), 2),
    "periodic": (generators.periodic(4, run="3ms", sleep="7.001ms", times=1000), 2),
    "requests": (generators.requests(3, requests=400), 1),
    "web": (generators.web(3), 2),
    "make": (generators.make(4), 2),
    "make on one CPU": (generators.make(2, tasks=20), 1),
    "hackbench": (generators.hackbench(2, fan=4), 2),
    "cascade": (generators.cascade(8), 2),
}


@pytest.mark.parametrize("name", LOADS)
def test_score_equals_the_policys_score_with_known_tick_phase(name: str) -> None:
    trace = recorded(*LOADS[name])
    both = beside(trace, tick_phase=0)
    assert both.height > 700
    off = both.filter(pl.col("recorded").ne_missing(pl.col("score")))
    assert off.is_empty(), off


@pytest.mark.parametrize("name", ["periodic", "web", "requests", "cascade", "hogs"])
def test_score_is_within_its_bound_without_tick_phase(name: str) -> None:
    """Less than a tick for each run and one more, as docs/definitions/interactivity.md says."""
    trace = recorded(*LOADS[name])
    both = beside(trace)
    tick = SECOND / 127
    states = trace.states.collect().sort("ts")
    for (utid,), part in both.partition_by("utid", as_dict=True).items():
        own = states.filter(utid=utid)
        ends = own.with_columns(end_ts=pl.col("ts") + pl.col("dur"))
        for ts, theirs, ours in part.select("ts", "recorded", "score").rows()[::25]:
            past = ends.filter(pl.col("ts") < ts)
            # The history is 5 s; older time decays in geometric steps.
            recent = past.filter(pl.col("end_ts") > ts - 10 * SECOND)
            runs = recent.filter(pl.col("state") == "running").height
            slept = past.filter(pl.col("state").is_in(["sleeping", "blocked"]))["dur"].sum()
            bound = 50 * (runs + 1) * tick / min(slept, 2.5 * SECOND) + 2 if slept else 50
            assert abs(theirs - ours) <= bound, (utid, ts)


@pytest.mark.parametrize(
    ("load", "after", "most"),
    [
        (generators.periodic(3, run="2.3ms", sleep="5.701ms", times=1200), 2, 3),
        (generators.periodic(3, run="2.3ms", sleep="5.701ms", times=1200), 5, 2),
        (LOADS["requests"][0], 1, 5),
        (LOADS["make"][0], 1, 1),
        (LOADS["web"][0], 1, 6),
    ],
)
def test_errors_cancel_over_seconds_without_tick_phase(
    load: Workload, after: int, most: int
) -> None:
    """With a history of some seconds the score is at most a few points off."""
    both = beside(recorded(load, 2)).filter(pl.col("ts") > after * SECOND)
    off = (both["recorded"] - both["score"]).abs()
    assert len(off) > 800
    assert off.max() <= most  # type: ignore[operator]


COSTS = {"switch": 1337, "ipi": 211, "idle_exit": 731}
"""What keeps two events apart that would share an instant."""


def off_record(name: str, policy: str, series: str, **options: object) -> pl.DataFrame:
    """The policy's score, ours at that instant and just before it, and whether they are `off`.

    A slice that ends at a tick is recorded before its run is charged, so the score just before is
    accepted.
    """
    load, ncpu = LOADS[name]
    machine = grid(1, ncpu, 1).with_costs(COSTS)
    trace = ss.simulate(load, policy=policy, machine=machine, record=True, **options)  # type: ignore[arg-type]
    theirs = (
        ss.policy_series(trace)
        .filter(pl.col("series") == series)
        .group_by("utid", "ts", maintain_order=True)
        .last()
        .select("utid", "ts", recorded=pl.col("value").cast(pl.Int64))
    )
    ours = ss.interactivity_series(trace, policy, tick_phase=0)
    ours = ours.drop_nulls("score").select("utid", "ts", "score")
    parts = []
    for (utid,), part in theirs.partition_by("utid", as_dict=True).items():
        own = ours.filter(utid=utid).sort("ts").drop("utid")
        parts.append(
            part.sort("ts")
            .join_asof(own, on="ts")
            .join_asof(own.with_columns(pl.col("ts") + 1), on="ts", suffix="_before")
        )
    said = pl.col("recorded")
    off = (said != pl.col("score")) & said.ne_missing(pl.col("score_before"))
    return pl.concat(parts).with_columns(off=off.fill_null(True))


@pytest.mark.parametrize("name", sorted(set(LOADS) - {"web", "make"}))
def test_bonus_of_o1_equals_the_policys_bonus(name: str) -> None:
    """Including slices and turns, at whose ends a run is charged and a new one starts."""
    both = off_record(name, "o1", "bonus")
    assert both.height > 30
    assert not both["off"].any(), both.filter("off")


@pytest.mark.parametrize("name", ["hogs", "periodic", "requests", "hackbench", "web"])
def test_score_of_ule_2003_equals_the_policys_score(name: str) -> None:
    """Its statistics clock ticks 128 times a second, also at each tick of the balancer."""
    both = off_record(name, "ule-2003", "score", set={"balance_interval": "1.003s"})
    assert both.height > 30
    assert not both["off"].any(), both.filter("off")


@pytest.mark.parametrize(("policy", "series"), [("o1", "bonus"), ("ule-2003", "score")])
@pytest.mark.parametrize("name", ["web", "make", "make on one CPU"])
def test_few_scores_are_hidden_by_events_at_the_same_instant(
    policy: str, series: str, name: str
) -> None:
    """A child may be added before or after its parent wakes, a pull before or after a thread
    blocks.
    """
    both = off_record(name, policy, series)
    assert both["off"].sum() <= 0.04 * both.height


def test_an_endless_run_is_charged_slice_by_slice() -> None:
    """O(1): a thread that slept for 2 s is no longer interactive after 0.2 s of running, nor at the
    end.
    """
    life: list[Interval] = [
        (0, 1, "running", "switched"),
        (1, 2001, "sleeping", "woken"),
        (2001, 9000, "running", "window"),
    ]
    series = ss.interactivity_series(of_states({1: life}, os="Linux"), "o1")
    assert series.filter(pl.col("ts") == 2001 * MS)["score"].to_list() == [9]
    first = series.filter(pl.col("ts") > 2001 * MS, ~pl.col("interactive"))["ts"].min()
    # 0.9 s less 0.2 s is the limit of interactive; turns at bonus 7 are 20 ms apart.
    assert 2201 * MS <= first <= 2222 * MS  # type: ignore[operator]
    assert ss.interactivity(of_states({1: life}, os="Linux"), "o1")["score"].item() == 0


# The form of 2003, with ticks of 10 ms for sleep and one such tick for each 1/128 s of run.


def test_score_of_ule_2003_equals_a_hand_computed_value() -> None:
    """Ran 10 of 1/128 s, slept over 41 ticks of 10 ms: 50 * 10 / 41. Nice has no part."""
    life: list[Interval] = [
        (0, 79, "running", "switched"),
        (79, 480, "sleeping", "woken"),
        (480, 481, "runnable", "window"),
    ]
    known = threads({"utid": 1, "prio": 130, "sched_class": "fair"})
    trace = of_states({1: life}, threads=known, os="Linux")
    row = ss.interactivity(trace, "ule-2003").row(0, named=True)
    assert (row["score"], row["score_max"]) == (50 * 10 // 41, 100)
    assert row["ts_interactive"] == 0  # as much run as sleep is 0 in 2003
    sentence = ss.interactivity_sentences(ss.interactivity(trace, "ule-2003"))[0]
    assert sentence.startswith("ULE-2003 would call")


# -- recordings ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["freebsd-ule-synthetic.capture", "linux-ftrace-lossy.capture", "linux-ftrace-mixed.capture"],
)
def test_times_add_up_on_recordings(name: str, tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    frame = ss.interactivity(trace)
    lives = (
        trace.states.filter((pl.col("utid") >= trace.ncpu) & (pl.col("state") != "dead"))
        .group_by("utid")
        .agg(seen=pl.col("dur").sum())
        .collect()
    )
    both = frame.join(lives, on="utid", how="full", coalesce=True)
    assert both.height > 10
    assert both.filter(pl.col("observed") + pl.col("unknown") != pl.col("seen")).is_empty()
    assert frame.filter(pl.col("interactive") > pl.col("observed")).is_empty()
    assert frame.filter(
        pl.col("score").is_not_null() & ~pl.col("score").is_between("score_min", "score_max")
    ).is_empty()
    # The series says the same.
    series = ss.interactivity_series(trace).drop_nulls("score")
    least = series.group_by("utid").agg(pl.col("score").min())
    joined = frame.drop_nulls("score").join(least, on="utid", suffix="_series")
    assert joined.height > 5
    assert joined["score_min"].to_list() == joined["score_series"].to_list()
    assert len(ss.interactivity_sentences(frame)) == frame.height


# ULE's score implemented again from sched_ule.c of FreeBSD 14 alone: sched_interact_update and
# sched_interact_score, with hz 1000, stathz 127 and a tick as 1 << 10.
HISTORY = 5_000 << 10


def scaled(run: int, slept: int) -> tuple[int, int]:
    """Both sums after one of them grew."""
    if run + slept < HISTORY:
        return run, slept
    if run + slept > 2 * HISTORY:
        return (HISTORY, 1) if run > slept else (1, HISTORY)
    if run + slept > HISTORY // 5 * 6:
        return run // 2, slept // 2
    return run // 5 * 4, slept // 5 * 4


def ule_score(life: pl.DataFrame, nice: int) -> int:
    """The score at the end of the states of a thread that was not forked."""
    run = slept = owed = 0
    for ts, dur, state, end in life.select("ts", "dur", "state", "end").iter_rows():
        if state == "running":
            owed += dur * 127
            for _ in range(owed // SECOND):
                run, slept = scaled(run + (1_000 << 10) // 127, slept)
            owed %= SECOND
        elif state in ("sleeping", "blocked", "stopped", "parked") and end == "woken":
            run, slept = scaled(run, slept + (((ts + dur) // MS - ts // MS) << 10))
    return max(0, nice + (50 if run >= slept else run // max(1, slept // 50)))


@pytest.mark.parametrize(
    "name",
    ["linux-bpftrace.capture", "linux-ftrace-mixed.capture", "perfetto-compact.pftrace"],
)
def test_scores_of_recordings_are_those_of_the_source(name: str, tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    threads = trace.threads.collect()
    # Without fork and exit, which pass the history on.
    alone = threads.filter(
        pl.col("start_ts").is_null(), ~pl.col("utid").is_in(threads["parent_utid"].implode())
    )
    asked = ss.interactivity(trace).drop_nulls("score").join(alone, on="utid", how="semi")
    lives = trace.states.sort("ts").collect().partition_by("utid", as_dict=True)
    prios = dict(threads.select("utid", "prio").iter_rows())
    scores = []
    for utid, score in asked.select("utid", "score").iter_rows():
        prio = prios[utid] or 0
        nice = prio - 120 if 100 <= prio < 140 and trace.info["os"] == "Linux" else 0
        assert score == ule_score(lives[utid,], nice), utid
        scores.append(score)
    assert len(scores) >= 4
    assert len(set(scores)) > 1


# -- refusals, the command, the figure -------------------------------------------------


@pytest.fixture
def trace() -> ss.Trace:
    return ss.simulate(
        generators.periodic(2, run="10ms", sleep="90ms", times=20), policy="rr", cpus=1
    )


def test_invalid_arguments_are_refused(trace: ss.Trace) -> None:
    with pytest.raises(ss.UsageError, match="one of ule"):
        ss.interactivity(trace, "cfs")
    with pytest.raises(ss.UsageError, match="no tunable"):
        ss.interactivity(trace, set={"interactt": 3})
    backwards = of_states({1: [(0, 10, "running", "switched"), (10, 20, "sleeping", "woken")]})
    turned = ss.Trace.from_tables(
        {"states": backwards.states.reverse(), "threads": backwards.threads}, backwards.info
    )
    with pytest.raises(ss.FormatError, match="in order of time"):
        ss.interactivity(turned)


@pytest.fixture
def sched(trace: ss.Trace, tmp_path: Path) -> str:
    return str(trace.to_sched(tmp_path / "periodic.sched").path)


def test_the_command(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["interactivity", sched, "--model", "ule"]) == 0
    out = capsys.readouterr().out
    assert "ULE would call periodic-0 1000 interactive from 0.100000 s on (score 5)" in out
    assert cli.main(["interactivity", sched, "--format", "json", "--tid", "1000"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(row["tid"], row["score"]) for row in document["rows"]] == [(1000, 5)]
    assert len(document["sentences"]) == 1
    assert cli.main(["interactivity", sched, "--series", "--format", "csv", "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "ts,utid,tid,comm,score,interactive,scheduler",
        "0,1,1000,periodic-0,50,false,ule",
    ]
    assert len(lines) == 3


@pytest.mark.parametrize(
    "words",
    [
        ["--model", "bfs"],
        ["--set", "interact"],
        ["--cpu", "9"],
        ["--sort", "picks"],
        ["--sort", "score", "--series"],
        ["--top", "0"],
        ["--tid", "9"],
    ],
)
def test_command_refuses_invalid_arguments(
    sched: str, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert cli.main(["interactivity", sched, *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    assert words[1] in err


def test_figure_has_a_lane_for_each_thread(trace: ss.Trace) -> None:
    frame = ss.interactivity_series(trace)
    axes = ss.plot.interactivity(frame)
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        "periodic-1 1001",
        "periodic-0 1000",
    ]
    assert isinstance(axes.figure, Figure)
    axes.figure.savefig(io.BytesIO(), format="png")
    assert axes.get_title(loc="left") == "Interactivity by ule; a full lane is 100"
    bonus = ss.plot.interactivity(ss.interactivity_series(trace, "o1"))
    assert bonus.get_title(loc="left") == "Interactivity by o1; a full lane is 10"
    one = ss.plot.interactivity(frame, top=1)
    assert "1 threads with fewer changes" in one.get_title(loc="left")
    assert ss.plot.interactivity(frame.clear()) is not None
    with pytest.raises(ss.UsageError, match=r"schedscope\.interactivity_series returns"):
        ss.plot.interactivity(ss.interactivity(trace))
