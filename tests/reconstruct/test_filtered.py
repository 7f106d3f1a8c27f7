"""Recordings of selected threads (rule Filtered of docs/trace-model.md).

Threads that a filter kept are measured, and the rest is unknown. The fault campaign
(test_faults.py) compares every kind of filter with the truth. Here are traces worked out by hand,
and the messages of the reader.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from decoded import decode
from engines import Engine, by_native, by_oracle
from faults import campaign, comparison
from worlds import state_lines, wait_lines, world

import schedscope as ss
from schedscope.present.headline import headline

FIXTURES = Path(__file__).parents[2] / "fixtures"
COMPLETE = [
    path
    for form in ("*.capture", "*.data", "text-*.txt", "*.pftrace")
    for path in FIXTURES.glob(form)
]


@pytest.fixture(params=[by_oracle, by_native], ids=["oracle", "native"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


def test_only_selected_threads_are_measured(engine: Engine) -> None:
    """A's wait is complete. B's switch-in at 20 and C's switch-out at 52 leave the time between
    unknown.
    """
    played = world(
        """
         0 cpu0: idle -> A
        20 cpu0: A S -> B
        50 cpu0: waking A on 0
        50 cpu0: enqueued A on 0
        52 cpu0: C R -> A
        60 cpu0: A R -> B
        70 cpu0: waking C on 0 during B
        80 cpu0: idle -> A
        """,
        ncpu=1,
        window=(0, 100),
    )
    chosen = frozenset({played.ncpu + played.names.index("A")})
    result = engine(replace(played, chosen=chosen))
    known = result["states"].filter(pl.col("state") != "unknown").sort("ts")
    assert state_lines(played, known) == [
        "A running@0 0..20 switched",
        "A sleeping 20..50 woken",
        "A runnable@0 50..52 switched",
        "A running@0 52..60 preempted",
        "A runnable@0 60..80 switched",
        "A running@0 80..100 window",
    ]
    measured = result["waits"].filter(pl.col("censored") == "none").sort("ts_run")
    assert wait_lines(played, measured) == [
        "A wake waking=50 ready=50 enqueued=50 run=52 by ?@0 cpu 0/0/0: 0+2=2",
        "A preempt ready=60 enqueued=60 run=80 cpu 0/0/0: 0+20=20",
    ]
    # Each switch-in has a row, also those of which nothing else is known.
    assert result["waits"].filter(pl.col("ts_run").is_not_null()).height == 5
    assert result["losses"].is_empty()
    assert result["counters"].get("chain_breaks", 0) == 0


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> campaign.Case:
    path = FIXTURES / "linux-ftrace-placement.capture"
    return campaign.load(path, tmp_path_factory.mktemp("case"))


def warnings_of(trace: ss.Trace) -> dict[str, str]:
    return dict(ss.check(trace).select("check", "text").rows())


@pytest.mark.parametrize("kind", ["filter: one thread", "filter: four threads"])
def test_filter_by_thread_is_detected_and_its_threads_are_measured(
    kind: str, case: campaign.Case, tmp_path: Path
) -> None:
    """Of the kept threads nearly every wait is measured, and right; of the rest, none."""
    mutant = campaign.draw(case, kind, 0, 1)
    trace = campaign.opened(mutant, tmp_path)
    utids = trace.info["filtered"]["utids"]
    chosen = trace.threads.filter(pl.col("utid").is_in(utids)).collect()["tid"].to_list()
    assert mutant.what == f"threads {sorted(chosen)}"
    measured = comparison.measured(trace)
    assert set(measured["tid"]) <= set(chosen)
    true = case.truth.waits.filter(pl.col("tid").is_in(chosen))
    assert measured.height > 0.95 * true.height
    verdict = comparison.judge(trace, case.truth, mutant, comparison.Doubt())
    assert not verdict.wrong_waits
    assert not verdict.wrong_states
    assert not verdict.wrong_bounds
    text = warnings_of(trace)["filter"]
    assert f"left in only {len(chosen)} thread" in text
    assert "a filter of the recorder left in only" in headline(trace)[1]
    assert trace.states.filter(pl.col("utid") < trace.ncpu).collect().is_empty()


@pytest.mark.parametrize(
    "kind",
    [
        "filter: events that one thread raises",
        "filter: switches of those that sleep",
        "filter: switches of those that do not sleep",
    ],
)
def test_filter_that_keeps_no_thread_whole_measures_nothing(
    kind: str, case: campaign.Case, tmp_path: Path
) -> None:
    """Some switches of every thread are missing, so neither running nor waiting time is known."""
    trace = campaign.opened(campaign.draw(case, kind, 0, 1), tmp_path)
    assert trace.info["filtered"]["utids"] == []
    assert comparison.measured(trace).is_empty()
    assert "filter" in warnings_of(trace)


@pytest.fixture(scope="module")
def of_mainline(tmp_path_factory: pytest.TempPathFactory) -> campaign.Case:
    """0.7 s of Linux 6.1 on two CPUs: 445 switch-ins, half of them from the idle thread."""
    path = FIXTURES / "lab" / "amd64-6.1-sleepers.tar.xz"
    return campaign.load(path, tmp_path_factory.mktemp("mainline"))


def test_filter_without_idle_threads_measures_nothing(
    of_mainline: campaign.Case, tmp_path: Path
) -> None:
    """There are mismatches, kernel threads follow each other, and no CPU is ever idle."""
    kind = "filter: no switches of idle threads"
    trace = campaign.opened(campaign.draw(of_mainline, kind, 0, 1), tmp_path)
    assert trace.info["filtered"]["utids"] == []
    assert comparison.measured(trace).is_empty()


def test_thread_in_every_switch_is_taken_as_filtered(
    of_mainline: campaign.Case, tmp_path: Path
) -> None:
    """In so short a recording nothing else would show it."""
    noticed = 0
    for number in range(12):
        mutant = campaign.draw(of_mainline, "filter: one thread", number, 1)
        trace = campaign.opened(mutant, tmp_path)
        switches = sum(cpu["switches"] for cpu in trace.info["per_cpu"])
        if switches < 20 or "filtered" not in trace.info:
            continue
        noticed += 1
        utids = trace.info["filtered"]["utids"]
        alone = trace.threads.filter(pl.col("utid").is_in(utids)).collect()["tid"].to_list()
        assert mutant.what == f"threads {alone}"
        verdict = comparison.judge(trace, of_mainline.truth, mutant, comparison.Doubt())
        assert not verdict.wrong_waits + verdict.wrong_states + verdict.wrong_bounds
    assert noticed > 3


@pytest.mark.parametrize("path", COMPLETE, ids=lambda path: path.name)
def test_a_recording_of_all_threads_is_not_taken_for_filtered(path: Path) -> None:
    """Damaged, of one CPU or of FreeBSD: all threads were recorded."""
    assert "filtered" not in decode(path).info


def test_filter_is_kept_in_tables(case: campaign.Case, tmp_path: Path) -> None:
    """A filtered recording written as Parquet and read again reports the same."""
    trace = campaign.opened(campaign.draw(case, "filter: one thread", 0, 1), tmp_path)
    trace.to_sched(tmp_path / "kept.sched")
    again = ss.open(tmp_path / "kept.sched")
    assert headline(again)[1] == headline(trace)[1]
    assert again.waits.collect().equals(trace.waits.collect(), null_equal=True)
