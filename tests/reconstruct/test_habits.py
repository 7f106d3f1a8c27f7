"""A kernel that never reports some threads' switch-outs omits one switch at a time.

Rule Habit of docs/trace-model.md, on traces worked out by hand; both engines give the written
answer.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from engines import Engine, assert_agree, by_native, by_oracle
from hypothesis import given, strategies as st
from streams import ANY_STREAM
from worlds import World, state_lines, wait_lines, world

import schedscope as ss

# H is switched in at 20 without a recorded switch-out; A, which waited behind it, runs at 70.
UNSEEN = """
     0 cpu0: idle -> A
    10 cpu0: A R -> B
    12 cpu0: waking H on 0 during B
    20 cpu0: B R -> H
    30 cpu0: waking C on 1 during H
    70 cpu0: A S -> B
    80 cpu1: waking H on 0
    90 cpu0: B R -> H
    """


@pytest.fixture(params=[by_oracle, by_native], ids=["oracle", "native"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


def played(text: str, habits: str, ncpu: int = 2) -> World:
    one = world(text, ncpu=ncpu, window=(0, 100))
    utids = [ncpu + one.names.index(name) if name in one.names else 0 for name in habits.split()]
    return replace(one, habits=frozenset(utids))


def answer(engine: Engine, text: str, who: str, habits: str = "H") -> list[str]:
    """One thread's states and waits, with their bounds, in the notation of worlds.py."""
    one = played(text, habits)
    result = engine(one)
    utid = one.ncpu + one.names.index(who)
    states, waits = (result[name].filter(utid=utid) for name in ("states", "waits"))
    waits = waits.sort(pl.coalesce("ts_ready", "ts_enqueued", "ts_run"))
    return [*state_lines(one, states.sort("ts")), *wait_lines(one, waits, bounds=True)]


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def test_next_thread_waited_until_the_unreported_switch(engine: Engine) -> None:
    """H's last event is at 30, and A ran by 70: A waited for at least 20 and at most 60."""
    assert answer(engine, UNSEEN, "A") == lines(
        """
        A running@0 0..10 preempted
        A runnable@0 10..30 lost
        A unknown 30..70 switched
        A sleeping 70..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A preempt ready=10 enqueued=10 cpu 0/0/-: 0+-=20 right <=60
        """
    )


def test_unreported_switch_makes_no_other_wait_doubtful(engine: Engine) -> None:
    """B waits from 20 to 70. Without the rule it may have run at the mismatch."""
    assert "B preempt ready=20 enqueued=20 run=70 cpu 0/0/0: 0+50=50" in answer(engine, UNSEEN, "B")
    assert "B preempt ready=20 enqueued=20 cpu 0/0/-: 0+-=10 right <=50" in answer(
        engine, UNSEEN, "B", habits=""
    )


def test_thread_with_an_unreported_switch_out_slept_until_woken(engine: Engine) -> None:
    """It runs until at least 30, has left by 70, and is woken at 80."""
    assert answer(engine, UNSEEN, "H")[:4] == lines(
        """
        H runnable@0 12..20 switched
        H running@0 20..30 lost
        H unknown 30..70 lost
        H sleeping 70..80 woken
        """
    )


def test_thread_off_the_queue_of_an_idle_cpu_slept_since_its_switch_out(engine: Engine) -> None:
    """H has no later event. In the queue at 90 it would have run instead of the idle thread."""
    facts = UNSEEN.partition("    80 cpu1")[0] + "    90 cpu0: B S -> idle"
    moves = "\n     5 cpu1: migrate M 0 -> 1" + facts
    assert "H sleeping 70..100 window" in answer(engine, moves, "H")
    assert "H unknown 30..100 window" in answer(engine, facts, "H")


def test_mismatch_not_explained_by_one_switch_is_a_loss(engine: Engine) -> None:
    """D's wakeup is missing as well, so other events may be missing, too."""
    facts = UNSEEN.replace("70 cpu0: A S -> B", "70 cpu0: D S -> B").replace(
        " 0 cpu0: idle -> A", " 0 cpu1: D S -> idle\n 0 cpu0: idle -> A"
    )
    assert "B preempt ready=20 enqueued=20 cpu 0/0/-: 0+-=10 right <=50" in answer(
        engine, facts, "B"
    )


def test_switch_out_of_an_idle_thread_may_be_unreported(engine: Engine) -> None:
    """The CPU is idle at 10, A is woken at 40, and by 60 it has run: at most 20, possibly 0."""
    facts = """
         0 cpu0: idle -> A
        10 cpu0: A S -> idle
        40 cpu1: waking A on 0
        42 cpu1: enqueued A on 0
        60 cpu0: A S -> idle
        """
    assert answer(engine, facts, "A", habits="idle")[-1] == (
        "A wake waking=40 ready=40 enqueued=42 by ?@1 cpu 0/0/-: 2+-=0 right <=20"
    )


@given(ANY_STREAM, st.sets(st.integers(0, 12)), st.booleans())
def test_engines_agree_for_any_unreported_switches(
    one: World, habits: set[int], uncounted: bool
) -> None:
    one = replace(one, habits=frozenset(habits), uncounted=uncounted)
    assert_agree(by_oracle(one), by_native(one))


@given(ANY_STREAM)
def test_known_unreported_switches_only_remove_doubt(one: World) -> None:
    """No wait that is measured without the rule is lost with it; bounds are in order."""
    known = replace(one, habits=frozenset(range(13)))
    waits = by_native(known)["waits"]
    low, high = pl.col("wait"), pl.col("wait_high")
    assert waits.filter(high < low).is_empty()
    assert waits.filter(pl.col("censored") == "none", high != low).is_empty()


def recording(folder: Path) -> ss.Trace:
    """Every ms H is woken and takes CPU 0, from A and B in turn; its switch-out is never recorded.

    The other one runs 0.4 ms later, switched in at an unknown time between; then they alternate.
    """
    lines = ["# tracer: nop", "#", "#   TASK-PID  CPU#  TIMESTAMP  FUNCTION"]
    tids = {"A": 10, "B": 11, "H": 12}

    def event(us: int, who: str, what: str) -> None:
        lines.append(f"{who:>16}-{tids[who]}  [000] d..2. {100 + us / 1e6:.6f}: {what}")

    def switch(us: int, prev: str, following: str) -> None:
        left = f"prev_comm={prev} prev_pid={tids[prev]} prev_prio=120 prev_state=R"
        came = f"next_comm={following} next_pid={tids[following]} next_prio=120"
        event(us, prev, f"sched_switch: {left} ==> {came}")

    for n in range(40):
        first, second = ("AB", "BA")[n % 2]
        event(1000 * n, first, "sched_waking: comm=H pid=12 prio=120 target_cpu=000")
        switch(1000 * n + 100, first, "H")
        for turn in range(10):
            leaving, coming = ((second, first), (first, second))[turn % 2]
            switch(1000 * n + 500 + 40 * turn, leaving, coming)
    path = folder / "habit.txt"
    path.write_text("\n".join(lines) + "\n")
    return ss.open(path, cache=folder / "cache")


def test_unreported_switches_are_found_in_a_recording(tmp_path: Path) -> None:
    """Each ms the next thread after H has waited for 0.24 to 0.64 ms, and the other for 0.4.

    In the first ms its earlier state is unknown.
    """
    trace = recording(tmp_path)
    counted = trace.info["reconstruction"]
    assert counted["unreported_leavings"] == counted["chain_breaks"] == 40
    assert not trace.info.get("unreported_losses")
    row = ss.latency(trace, where=pl.col("comm").is_in(["A", "B"])).row(0, named=True)
    assert row["total_high"] - row["total"] == 39 * 400_000
    assert (row["max"], row["max_high"]) == (400_000, 640_000)
