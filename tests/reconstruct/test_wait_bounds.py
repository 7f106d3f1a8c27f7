"""A wait without a recorded start or end is still known to lie between two lengths."""

from __future__ import annotations

import polars as pl
import pytest
from engines import Engine, by_native, by_oracle
from worlds import wait_lines, world


@pytest.fixture(params=[by_oracle, by_native], ids=["oracle", "native"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


def waits_of(engine: Engine, text: str, who: str = "A") -> list[str]:
    played = world(text, ncpu=2, window=(0, 100))
    waits = engine(played)["waits"].filter(utid=2 + played.names.index(who))
    waits = waits.sort(pl.coalesce("ts_ready", "ts_enqueued", "ts_run"))
    return wait_lines(played, waits, bounds=True)


def test_wait_cut_by_a_loss_ends_by_the_threads_next_event(engine: Engine) -> None:
    """It waits from 10; from 30 it may have run; at 80 it does. The second row may be its rest."""
    assert waits_of(
        engine,
        """
         0 cpu0: idle -> A
        10 cpu0: A R -> B
        30 loss cpu0 until 50
        80 cpu0: B S -> A
        """,
    )[1:] == [
        "A preempt ready=10 enqueued=10 cpu 0/0/-: 0+-=20 right <=70",
        "A unknown run=80 cpu 0/-/0: -+-=- left <=50",
    ]


def test_migration_of_an_unknown_thread_does_not_end_its_wait(engine: Engine) -> None:
    assert (
        waits_of(
            engine,
            """
         0 cpu0: idle -> A
        10 cpu0: A R -> B
        30 loss cpu0 until 50
        60 cpu1: migrate A 0 -> 1
        80 cpu1: idle -> A
        """,
        )[1]
        == "A preempt ready=10 enqueued=10 cpu 0/0/-: 0+-=20 right <=70"
    )


def test_a_wait_open_at_the_end_of_the_window_has_no_upper_bound(engine: Engine) -> None:
    facts = """
         0 cpu0: idle -> A
        10 cpu0: A R -> B
        """
    assert waits_of(engine, facts)[1:] == ["A preempt ready=10 enqueued=10 cpu 0/0/-: 0+-=90 right"]
    # The same for one that a loss cut, of a thread without later events.
    assert waits_of(engine, facts + "30 loss cpu0 until 50")[1:] == [
        "A preempt ready=10 enqueued=10 cpu 0/0/-: 0+-=20 right"
    ]


def test_a_switch_in_without_a_wakeup_bounds_the_wait_by_the_sleep(engine: Engine) -> None:
    """A's first event is at 0, when it may have waited for long; its sleep began at 10."""
    assert waits_of(
        engine,
        """
         0 cpu0: idle -> A
        10 cpu0: A S -> B
        50 cpu0: B S -> A
        """,
    ) == [
        "A unknown run=0 cpu -/-/0: -+-=- left",
        "A unknown run=50 cpu 0/-/0: -+-=- left <=40",
    ]


def test_a_cpu_that_was_not_recorded_leaves_waits_on_the_others_measured(engine: Engine) -> None:
    """At any length. A wait that migrates from there to a recorded CPU has bounds."""
    facts = """
         0 loss cpu1 until 100 unrecorded
         0 cpu0: idle -> A
        10 cpu0: A R -> B
        80 cpu0: B R -> A
        90 cpu0: A S -> B
        """
    assert waits_of(engine, facts)[1:] == [
        "A preempt ready=10 enqueued=10 run=80 cpu 0/0/0: 0+70=70"
    ]
    moved = facts.replace("80 cpu0: B R -> A", "40 cpu0: migrate A 1 -> 0\n80 cpu0: B R -> A")
    assert waits_of(engine, moved)[1:] == [
        "A preempt ready=10 enqueued=10 cpu 0/0/-: 0+-=0 right <=70",
        "A unknown run=80 cpu 0/-/0: -+-=- left <=70",
    ]


@pytest.mark.parametrize("hole", [49_999, 50_000])
def test_doubt_depends_on_the_length_of_the_loss(engine: Engine, hole: int) -> None:
    """CPU 1 has no events for so long: it may have pulled A, run it and put it back.

    Most of the loss lies before the wait, which lasts 20.
    """
    played = world(
        f"""
             0 cpu0: idle -> A
             5 cpu0: migrate C 0 -> 1
            20 loss cpu1 until {20 + hole}
         {hole + 10} cpu0: A R -> B
         {hole + 30} cpu0: B S -> A
        """,
        ncpu=2,
        window=(0, 100_000),
    )
    waits = engine(played)["waits"].filter(pl.col("cause") == "preempt")
    measured = waits["censored"].to_list() == ["none"]
    assert measured == (hole < 50_000)
    assert waits.select("wait", "wait_high").row(0) == ((20, 20) if measured else (0, 20))
