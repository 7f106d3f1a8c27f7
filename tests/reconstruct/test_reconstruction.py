"""Reconstruction rule by rule, on hand-made traces.

Each has input and answer on one screen; the notation is in worlds.py. Both engines must give the
written answer: the oracle is tested here too.
"""

from __future__ import annotations

import polars as pl
import pytest
from engines import Engine, by_native, by_oracle
from worlds import loss_lines, state_lines, wait_lines, world

# Counters with more information than the rows.
TELLING = {
    "spurious_wakeups",
    "missing_wakeups",
    "wakes_before_switch_out",
    "contradictions",
    "chain_breaks",
    "unseen_switch_ins",
    "unseen_moves",
}


@pytest.fixture(params=[by_oracle, by_native], ids=["oracle", "native"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


def answer(
    engine: Engine, text: str, *, ncpu: int = 1, window: tuple[int, int] = (0, 100)
) -> list[str]:
    """The engine's result for a world, without idle threads, in the notation of worlds.py."""
    played = world(text, ncpu=ncpu, window=window)
    result = engine(played)
    states = result["states"].filter(pl.col("utid") >= ncpu).sort("utid", "ts")
    waits = result["waits"].sort("utid", "ts_run", nulls_last=True)
    counted = [
        f"{name} {count}"
        for name, count in sorted(result["counters"].items())
        if count and name in TELLING
    ]
    given = loss_lines(played.tables["losses"])
    found = [line for line in loss_lines(result["losses"]) if line not in given]
    return [*state_lines(played, states), *wait_lines(played, waits), *found, *counted]


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.strip().splitlines()]


# -- the plain course of things ------------------------------------------------------


def test_wakeup_has_both_steps(engine: Engine) -> None:
    """waking starts the wait, enqueued splits it, the switch-in ends it."""
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
        10 cpu0: A S -> B
        20 cpu0: waking A on 0 by B
        25 cpu0: enqueued A on 0 by B
        40 cpu0: B D -> A
        60 cpu0: A S -> idle
        """,
    ) == lines(
        """
        A running@0 0..10 switched
        A sleeping 10..20 woken
        A runnable@0 20..40 switched by B
        A running@0 40..60 switched
        A sleeping 60..100 window
        B running@0 10..40 switched
        B blocked 40..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A wake waking=20 ready=20 enqueued=25 run=40 by B@0 cpu 0/0/0: 5+15=20
        B unknown run=10 cpu -/-/0: -+-=- left
        """
    )


def test_source_with_waking_only_has_no_placement(engine: Engine) -> None:
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
        10 cpu0: A S -> idle
        20 cpu1: waking A on 1
        50 cpu1: idle -> A
        """,
        ncpu=2,
    ) == lines(
        """
        A running@0 0..10 switched
        A sleeping 10..20 woken
        A runnable@1 20..50 switched
        A running@1 50..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A wake waking=20 ready=20 run=50 by ?@1 cpu 0/1/1: -+-=30
        """
    )


def test_source_with_enqueued_only_has_no_placement(engine: Engine) -> None:
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
        10 cpu0: A S -> idle
        20 cpu0: enqueued A on 0 by idle
        50 cpu0: idle -> A
        """,
    ) == lines(
        """
        A running@0 0..10 switched
        A sleeping 10..20 woken
        A runnable@0 20..50 switched by idle0
        A running@0 50..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A wake ready=20 enqueued=20 run=50 by idle0@0 cpu 0/0/0: 0+30=30
        """
    )


def test_a_new_thread_waits_with_cause_new(engine: Engine) -> None:
    assert answer(
        engine,
        """
        20 cpu0: new A on 0 by idle
        30 cpu0: idle -> A
        40 cpu0: A X -> idle
        """,
    ) == lines(
        """
        A runnable@0 20..30 switched by idle0
        A running@0 30..40 exited
        A new ready=20 enqueued=20 run=30 by idle0@0 cpu -/0/0: 0+10=10
        """
    )


@pytest.mark.parametrize(("how", "cause"), [("R", "preempt"), ("R+", "preempt"), ("RY", "yield")])
def test_a_preempted_thread_never_left_the_queue(engine: Engine, how: str, cause: str) -> None:
    assert answer(
        engine,
        f"""
         0 cpu0: idle -> A
        10 cpu0: A {how} -> B
        40 cpu0: B S -> A
        """,
    ) == lines(
        f"""
        A running@0 0..10 preempted
        A runnable@0 10..40 switched
        A running@0 40..100 window
        B running@0 10..40 switched
        B sleeping 40..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A {cause} ready=10 enqueued=10 run=40 cpu 0/0/0: 0+30=30
        B unknown run=10 cpu -/-/0: -+-=- left
        """
    )


def test_a_recorded_yield_makes_a_plain_r_voluntary(engine: Engine) -> None:
    """Only a yield since the switch-in counts: the second R is a preemption."""
    causes = [
        line
        for line in answer(
            engine,
            """
             0 cpu0: idle -> A
             9 yield A
            10 cpu0: A R -> B
            20 cpu0: B S -> A
            30 cpu0: A R -> idle
            """,
        )
        if line.startswith(("A yield", "A preempt"))
    ]
    assert causes == lines(
        """
        A yield ready=10 enqueued=10 run=20 cpu 0/0/0: 0+10=10
        A preempt ready=30 enqueued=30 cpu 0/0/-: 0+-=70 right
        """
    )


# -- races and spurious wakeups -------------------------------------------------------


def test_a_waking_before_the_switch_out_is_real_if_the_thread_runs_again(engine: Engine) -> None:
    """The wait starts at the thread's switch-out, not when the waking was raised."""
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
         8 cpu1: waking A on 0 by idle
        10 cpu0: A S -> idle
        30 cpu0: idle -> A
        """,
        ncpu=2,
    ) == lines(
        """
        A running@0 0..10 switched
        A runnable@0 10..30 switched by idle1
        A running@0 30..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A wake waking=8 ready=10 run=30 by idle1@1 cpu 0/0/0: -+-=20
        wakes_before_switch_out 1
        """
    )


def test_enqueue_confirms_a_waking_before_the_switch_out(engine: Engine) -> None:
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
         8 cpu1: waking A on 0 by idle
        10 cpu0: A S -> idle
        14 cpu1: enqueued A on 1 by idle
        30 cpu1: idle -> A
        """,
        ncpu=2,
    ) == lines(
        """
        A running@0 0..10 switched
        A runnable@1 10..30 switched by idle1
        A running@1 30..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A wake waking=8 ready=10 enqueued=14 run=30 by idle1@1 cpu 0/1/1: 4+16=20
        wakes_before_switch_out 1
        """
    )


def test_a_wake_of_a_running_thread_that_stays_is_spurious(engine: Engine) -> None:
    """The kernel found it on its CPU: enqueued comes before any switch-out."""
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
         8 cpu1: waking A on 0 by idle
         9 cpu1: enqueued A on 0 by idle
        20 cpu0: A S -> idle
        30 cpu0: idle -> A
        """,
        ncpu=2,
    ) == lines(
        """
        A running@0 0..20 switched
        A unknown 20..30 switched
        A running@0 30..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A unknown run=30 cpu 0/-/0: -+-=- left
        missing_wakeups 1
        spurious_wakeups 1
        """
    )


def test_a_later_waking_shows_that_the_pending_one_was_spurious(engine: Engine) -> None:
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
         8 cpu0: waking A on 0
        10 cpu0: A S -> idle
        50 cpu0: waking A on 0
        60 cpu0: idle -> A
        """,
    ) == lines(
        """
        A running@0 0..10 switched
        A sleeping 10..50 woken
        A runnable@0 50..60 switched
        A running@0 60..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A wake waking=50 ready=50 run=60 by ?@0 cpu 0/0/0: -+-=10
        spurious_wakeups 1
        """
    )


def test_a_pending_wake_of_a_preempted_thread_was_spurious(engine: Engine) -> None:
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
         8 cpu0: waking A on 0
        10 cpu0: A R -> idle
        20 cpu0: waking A on 0
        """,
    ) == lines(
        """
        A running@0 0..10 preempted
        A unknown 10..20 woken
        A runnable 20..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A preempt ready=10 enqueued=10 cpu 0/0/-: 0+-=0 right
        A wake waking=20 ready=20 by ?@0 cpu 0/-/-: -+-=80 right
        spurious_wakeups 1
        unseen_switch_ins 1
        """
    )


# -- migrations ------------------------------------------------------------------------


def test_a_migration_before_the_enqueue_does_not_split_the_wait(engine: Engine) -> None:
    """Linux moves the wakee between waking and enqueued, when it is on no queue yet."""
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
        10 cpu0: A S -> idle
        20 cpu0: waking A on 0 by idle
        22 cpu0: migrate A 0 -> 1
        25 cpu0: enqueued A on 1 by idle
        40 cpu1: idle -> A
        """,
        ncpu=2,
    ) == lines(
        """
        A running@0 0..10 switched
        A sleeping 10..20 woken
        A runnable@1 20..40 switched by idle0
        A running@1 40..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A wake waking=20 ready=20 enqueued=25 run=40 by idle0@0 cpu 0/1/1: 5+15=20
        """
    )


def test_a_migration_of_a_queued_thread_splits_the_interval(engine: Engine) -> None:
    """The wait goes on: one row of `waits`, two of `states`."""
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
        10 cpu0: A R -> B
        25 cpu1: migrate A 0 -> 1
        40 cpu1: idle -> A
        """,
        ncpu=2,
    ) == lines(
        """
        A running@0 0..10 preempted
        A runnable@0 10..25 switched
        A runnable@1 25..40 switched
        A running@1 40..100 window
        B running@0 10..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A preempt ready=10 enqueued=10 run=40 cpu 0/1/1: 0+30=30
        B unknown run=10 cpu -/-/0: -+-=- left
        """
    )


def test_another_cpu_takes_a_thread_from_a_queue(engine: Engine) -> None:
    """Enqueues were not recorded: the waker would have chosen CPU 1 itself, on its own CPU."""
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
        10 cpu0: A S -> idle
        20 cpu0: waking A on 0 by idle
        25 cpu1: migrate A 0 -> 1
        40 cpu1: idle -> A
        """,
        ncpu=2,
    ) == lines(
        """
        A running@0 0..10 switched
        A sleeping 10..20 woken
        A runnable@0 20..25 switched by idle0
        A runnable@1 25..40 switched by idle0
        A running@1 40..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A wake waking=20 ready=20 run=40 by idle0@0 cpu 0/1/1: -+-=20
        """
    )


# -- what was not seen ------------------------------------------------------------------


def test_a_missing_wakeup_is_counted_and_not_measured(engine: Engine) -> None:
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
        10 cpu0: A S -> idle
        50 cpu0: idle -> A
        """,
    ) == lines(
        """
        A running@0 0..10 switched
        A unknown 10..50 switched
        A running@0 50..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A unknown run=50 cpu 0/-/0: -+-=- left
        missing_wakeups 1
        """
    )


def test_sleep_at_the_end_is_unknown_where_wakeups_are_missing(
    engine: Engine,
) -> None:
    """One wakeup of A is missing; none of B's, but only C was ever woken."""
    played = """
         0 cpu0: idle -> A
        10 cpu0: A S -> B
        20 cpu0: B S -> idle
        50 cpu0: idle -> A
        60 cpu0: A S -> idle
        """
    nobody_woken = answer(engine, played)
    assert "A unknown 60..100 window" in nobody_woken
    assert "B unknown 20..100 window" in nobody_woken
    some = answer(engine, played + "    70 cpu0: enqueued C on 0\n")
    assert "A unknown 60..100 window" in some
    assert "B sleeping 20..100 window" in some


def test_nothing_is_known_before_the_first_event(engine: Engine) -> None:
    """A switch-out as first event shows that it ran, not since when."""
    assert answer(
        engine,
        """
        10 cpu0: A S -> B
        20 cpu0: waking C on 0
        """,
    ) == lines(
        """
        A sleeping 10..100 window
        B running@0 10..100 window
        C runnable 20..100 window
        B unknown run=10 cpu -/-/0: -+-=- left
        C wake waking=20 ready=20 by ?@0 cpu -/-/-: -+-=80 right
        """
    )


def test_mismatch_removes_the_running_time_before_it(engine: Engine) -> None:
    """B is switched in at 10, C out at 40: B's running time is unknown, and so is C's."""
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
        10 cpu0: A S -> B
        40 cpu0: C S -> D
        60 cpu0: D S -> B
        """,
    ) == lines(
        """
        A running@0 0..10 switched
        A sleeping 10..100 window
        B unknown 10..60 switched
        B running@0 60..100 window
        C sleeping 40..100 window
        D running@0 40..60 switched
        D sleeping 60..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        B unknown run=10 cpu -/-/0: -+-=- left
        B unknown run=60 cpu 0/-/0: -+-=- left
        D unknown run=40 cpu -/-/0: -+-=- left
        cpu0 10..40 chain_break
        chain_breaks 1
        """
    )


def test_loss_ends_only_the_intervals_it_affects(engine: Engine) -> None:
    """CPU 0 loses [50, 70): A ran there, B waited there, C sleeps there; D ran elsewhere."""
    assert answer(
        engine,
        """
         0 cpu0: idle -> C
        10 cpu0: C S -> A
        20 cpu1: idle -> D
        30 cpu1: waking B on 0 by D
        40 cpu1: enqueued B on 0 by D
        50 loss cpu0 until 70
        70 cpu0: B S -> A
        """,
        ncpu=2,
    ) == lines(
        """
        C running@0 0..10 switched
        C sleeping 10..50 lost
        C unknown 50..100 window
        A running@0 10..50 lost
        A unknown 50..70 switched
        A running@0 70..100 window
        D running@1 20..100 window
        B runnable@0 30..50 lost by D
        B unknown 50..70 switched
        B sleeping 70..100 window
        C unknown run=0 cpu -/-/0: -+-=- left
        A unknown run=10 cpu -/-/0: -+-=- left
        A unknown run=70 cpu 0/-/0: -+-=- left
        D unknown run=20 cpu -/-/1: -+-=- left
        B wake waking=30 ready=30 enqueued=40 by D@1 cpu -/0/-: 10+-=20 right
        """
    )


def test_a_loss_of_any_cpu_ends_everything(engine: Engine) -> None:
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
         0 cpu1: idle -> B
        50 loss until 70
        70 cpu0: A S -> idle
        """,
        ncpu=2,
    ) == lines(
        """
        A running@0 0..50 lost
        A unknown 50..70 switched
        A sleeping 70..100 window
        B running@1 0..50 lost
        B unknown 50..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        B unknown run=0 cpu -/-/1: -+-=- left
        """
    )


def test_loss_is_ordered_after_events_at_its_start(engine: Engine) -> None:
    """ts_begin is the time of the last event before the gap: that event counts."""
    assert "A running@0 0..50 switched" in answer(
        engine,
        """
         0 cpu0: idle -> A
        50 cpu0: A S -> idle
        50 loss cpu0 until 70
        """,
    )


# -- contradictions ---------------------------------------------------------------------


def test_a_waiting_thread_that_leaves_a_cpu_was_not_waiting(engine: Engine) -> None:
    """A's wait is known up to its last event only; its interval is not reliable."""
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
        10 cpu0: A S -> idle
        20 cpu0: waking A on 1 by idle
        25 cpu0: enqueued A on 1 by idle
        60 cpu1: A S -> idle
        """,
        ncpu=2,
    ) == lines(
        """
        A running@0 0..10 switched
        A sleeping 10..20 woken
        A unknown 20..60 switched
        A sleeping 60..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A wake waking=20 ready=20 enqueued=25 by idle0@0 cpu 0/1/-: 5+-=5 right
        unseen_switch_ins 1
        """
    )


def test_evidence_ends_a_contradicted_state(engine: Engine) -> None:
    """idle -> A is missing: idle is certain up to its last event, A from its first one."""
    assert answer(
        engine,
        """
         0 cpu0: A S -> idle
        10 cpu0: waking A on 0 during idle
        12 cpu0: enqueued A on 0 during idle
        20 cpu0: waking B on 0 by A during A
        40 cpu0: A S -> B
        """,
        ncpu=1,
    ) == lines(
        """
        A sleeping 0..10 woken
        A unknown 10..20 switched
        A running@0 20..40 switched
        A sleeping 40..100 window
        B runnable@0 20..40 switched by A
        B running@0 40..100 window
        A wake waking=10 ready=10 enqueued=12 by ?@0 cpu 0/0/-: 2+-=2 right
        B wake waking=20 ready=20 run=40 by A@0 cpu -/0/0: -+-=20
        cpu0 12..20 chain_break
        chain_breaks 1
        unseen_switch_ins 1
        """
    )


def test_evidence_shows_the_running_thread_of_an_unknown_cpu(engine: Engine) -> None:
    """A long-running thread is known as soon as anything happens on its CPU."""
    assert answer(
        engine,
        """
        30 cpu0: waking B on 1 during A
        70 cpu0: waking C on 1 during A
        """,
        ncpu=2,
    ) == lines(
        """
        B runnable 30..100 window
        A running@0 30..100 window
        C runnable 70..100 window
        B wake waking=30 ready=30 by ?@0 cpu -/-/-: -+-=70 right
        C wake waking=70 ready=70 by ?@0 cpu -/-/-: -+-=30 right
        """
    )


def test_a_running_thread_that_comes_in_elsewhere_was_not_running(engine: Engine) -> None:
    """Its old CPU is unknown from its last switch, and its next switch is no mismatch."""
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
        20 cpu1: idle -> A
        40 cpu0: B S -> idle
        """,
        ncpu=2,
    ) == lines(
        """
        A unknown 0..20 switched
        A running@1 20..100 window
        B sleeping 40..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A unknown run=20 cpu 0/-/1: -+-=- left
        contradictions 1
        """
    )


def test_cpu_without_further_events_ended_early(engine: Engine) -> None:
    """perf stops recording CPU 0, and its thread A goes on to CPU 1: B may have run since."""
    assert answer(
        engine,
        """
         0 cpu1: B S -> idle
         5 cpu0: idle -> A
        20 cpu1: idle -> A
        """,
        ncpu=2,
    ) == lines(
        """
        B sleeping 0..5 lost
        B unknown 5..100 window
        A unknown 5..20 switched
        A running@1 20..100 window
        A unknown run=5 cpu -/-/0: -+-=- left
        A unknown run=20 cpu 0/-/1: -+-=- left
        cpu0 5..100 early_end
        """
    )


# -- the end ----------------------------------------------------------------------------


def test_an_exited_thread_has_no_further_life(engine: Engine) -> None:
    """It ends with the switch-out in state dead; no row says `dead`."""
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
        40 cpu0: A X -> idle
        """,
    ) == lines(
        """
        A running@0 0..40 exited
        A unknown run=0 cpu -/-/0: -+-=- left
        """
    )


def test_a_life_may_pause_before_it_ends(engine: Engine) -> None:
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
        35 cpu0: A R -> idle
        40 cpu0: idle -> A
        50 cpu0: A X -> idle
        """,
    ) == lines(
        """
        A running@0 0..35 preempted
        A runnable@0 35..40 switched
        A running@0 40..50 exited
        A unknown run=0 cpu -/-/0: -+-=- left
        A preempt ready=35 enqueued=35 run=40 cpu 0/0/0: 0+5=5
        """
    )


def test_idle_threads_only_run(engine: Engine) -> None:
    """Known from the CPU's first switch on; a loss makes them unknown too."""
    played = world(
        """
         0 cpu0: idle -> A
        10 cpu0: A S -> idle
        20 cpu0: waking A on 0 by idle
        30 cpu0: idle -> A
        50 cpu0: A S -> idle
        70 loss cpu0 until 80
        90 cpu0: A R -> idle
        """,
        ncpu=1,
        window=(0, 100),
    )
    states = engine(played)["states"].filter(utid=0)
    assert state_lines(played, states) == lines(
        """
        idle0 running@0 10..30 switched
        idle0 running@0 50..70 lost
        idle0 running@0 90..100 window
        """
    )


def test_trace_without_events_has_no_rows(engine: Engine) -> None:
    assert answer(engine, "") == []
