"""Waits and states across losses: what may have happened unrecorded is never given as measured.

Rules Doubt and Woken again of docs/trace-model.md, on traces worked out by hand; both engines give
the written answer.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from engines import Engine, by_native, by_oracle
from worlds import state_lines, wait_lines, world

from schedscope.errors import UsageError


@pytest.fixture(params=[by_oracle, by_native], ids=["oracle", "native"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


def answer(
    engine: Engine,
    text: str,
    who: str,
    *,
    ncpu: int = 2,
    allowed: str = "",
    until: int = 100,
    uncounted: bool = False,
) -> list[str]:
    """One thread's states and waits in a window of 0..`until`, in the notation of worlds.py."""
    played = replace(world(text, ncpu=ncpu, window=(0, until)), uncounted=uncounted)
    utid = ncpu + played.names.index(who)
    if allowed:
        threads = pl.DataFrame({"utid": [utid], "affinity": [allowed]})
        played = replace(played, tables=played.tables | {"threads": threads})
    result = engine(played)
    states, waits = (result[name].filter(utid=utid) for name in ("states", "waits"))
    waits = waits.sort(pl.coalesce("ts_ready", "ts_enqueued", "ts_run"))
    return [*state_lines(played, states.sort("ts")), *wait_lines(played, waits)]


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def test_sleep_across_a_loss_on_any_cpu_is_unknown(engine: Engine) -> None:
    """CPU 1 may have run it. That it slept at 60 is certain: it was woken there."""
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
        10 cpu0: A S -> idle
        20 loss cpu1 until 40 overrun
        60 cpu0: waking A on 0
        62 cpu0: enqueued A on 0
        65 cpu0: idle -> A
        """,
        "A",
    ) == lines(
        """
        A running@0 0..10 switched
        A sleeping 10..20 lost
        A unknown 20..60 woken
        A runnable@0 60..65 switched
        A running@0 65..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A wake waking=60 ready=60 enqueued=62 run=65 by ?@0 cpu 0/0/0: 2+3=5
        """
    )


def test_wait_on_one_queue_survives_losses_on_other_cpus(engine: Engine) -> None:
    """Preempted on CPU 0 and next switched in there; a migration shows that migrations are
    recorded.
    """
    facts = """
         0 cpu0: idle -> A
         5 cpu0: migrate C 0 -> 1
        10 cpu0: A R -> B
        20 loss cpu1 until 40 overrun
        60 cpu0: B S -> A
        """
    assert "A preempt ready=10 enqueued=10 run=60 cpu 0/0/0: 0+50=50" in answer(engine, facts, "A")
    # Without migrations in the trace it may have been on CPU 1 and back.
    without = facts.replace("5 cpu0: migrate C 0 -> 1", "")
    assert answer(engine, without, "A")[-2:] == lines(
        """
        A preempt ready=10 enqueued=10 cpu 0/0/-: 0+-=10 right
        A unknown run=60 cpu 0/-/0: -+-=- left
        """
    )


def test_queue_of_an_idle_cpu_is_empty(engine: Engine) -> None:
    """As above, but CPU 0 is idle at 30: A was on CPU 1, slept, and was woken, all unrecorded."""
    facts = """
         0 cpu0: idle -> A
         5 cpu0: migrate C 0 -> 1
        10 cpu0: A R -> B
        20 loss cpu1 until 50 overrun
        30 cpu0: B S -> idle
        60 cpu0: idle -> A
        """
    assert answer(engine, facts, "A")[-2:] == lines(
        """
        A preempt ready=10 enqueued=10 cpu 0/0/-: 0+-=10 right
        A unknown run=60 cpu 0/-/0: -+-=- left
        """
    )


@pytest.mark.parametrize(("begin", "end"), [(20, 40), (20, 50_019), (20, 50_020), (100, 290_000)])
def test_long_loss_may_hide_a_migration_and_its_return(
    engine: Engine, begin: int, end: int
) -> None:
    """CPU 1 pulled it, ran it, and put it back when it woke: both migrations are in CPU 1's
    records.
    """
    facts = f"""
         0 cpu0: idle -> A
         5 cpu0: migrate C 0 -> 1
        10 cpu0: A R -> B
        {begin} loss cpu1 until {end} overrun
        300000 cpu0: B S -> A
        """
    rows = answer(engine, facts, "A", until=400_000, uncounted=True)
    if end - begin < 50_000:
        assert "A preempt ready=10 enqueued=10 run=300000 cpu 0/0/0: 0+299990=299990" in rows
    else:
        assert rows[-2:] == lines(
            f"""
            A preempt ready=10 enqueued=10 cpu 0/0/-: 0+-={begin - 10} right
            A unknown run=300000 cpu 0/-/0: -+-=- left
            """
        )


def test_two_short_losses_cannot_hide_a_migration_and_its_return(engine: Engine) -> None:
    """However far apart they are: that would depend on how long the wait is."""
    facts = """
         0 cpu0: idle -> A
         5 cpu0: migrate C 0 -> 1
        10 cpu0: A R -> B
        20 loss cpu1 until 40 overrun
        280000 loss cpu1 until 280030 overrun
        300000 cpu0: B S -> A
        """
    assert "A preempt ready=10 enqueued=10 run=300000 cpu 0/0/0: 0+299990=299990" in answer(
        engine, facts, "A", until=400_000, uncounted=True
    )
    # Allowed only on its own CPU, it could not migrate.
    assert "A preempt ready=10 enqueued=10 run=300000 cpu 0/0/0: 0+299990=299990" in answer(
        engine, facts, "A", until=400_000, uncounted=True, allowed="0"
    )


def test_thread_waiting_during_a_loss_on_its_cpu_may_have_run(engine: Engine) -> None:
    """It waited for at least 10; switched in 40 later, its wait is not necessarily 50."""
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
         5 cpu0: migrate C 0 -> 1
        10 cpu0: A R -> B
        20 loss cpu0 until 40 overrun
        60 cpu0: B S -> A
        """,
        "A",
    ) == lines(
        """
        A running@0 0..10 preempted
        A runnable@0 10..20 lost
        A unknown 20..60 switched
        A running@0 60..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A preempt ready=10 enqueued=10 cpu 0/0/-: 0+-=10 right
        A unknown run=60 cpu 0/-/0: -+-=- left
        """
    )


def test_wait_survives_a_loss_on_a_cpu_outside_its_mask(engine: Engine) -> None:
    """Its recorded affinity allows CPU 0 only; once it runs on CPU 1, that is out of date."""
    facts = """
         0 cpu0: idle -> A
        10 cpu0: A S -> idle
        20 loss cpu1 until 90 overrun
        60 cpu0: waking A on 0
        65 cpu0: idle -> A
        """
    pinned = answer(engine, facts, "A", allowed="0")
    assert "A sleeping 10..60 woken" in pinned
    assert "A wake waking=60 ready=60 run=65 by ?@0 cpu 0/0/0: -+-=5" in pinned
    free = answer(engine, facts, "A")
    assert "A wake waking=60 ready=60 by ?@0 cpu 0/-/-: -+-=0 right" in free
    moved = facts.replace("0 cpu0: idle -> A", "0 cpu1: idle -> A\n 5 cpu1: A S -> idle")
    assert "A sleeping 5..20 lost" in answer(
        engine, moved.replace("10 cpu0: A S -> idle", ""), "A", allowed="0"
    )


@pytest.mark.parametrize(
    "event", ["migrate A 0 -> 1", "migrate A 1 -> 0", "enqueued A on 1", "waking A on 1"]
)
def test_a_mask_that_forbids_a_queue_is_out_of_date(engine: Engine, event: str) -> None:
    """A has been allowed on CPU 1 since its affinity was recorded."""
    said = answer(
        engine,
        f"""
         0 cpu0: idle -> A
         5 cpu0: {event}
        10 cpu0: A S -> idle
        20 loss cpu1 until 90 overrun
        65 cpu0: idle -> A
        """,
        "A",
        allowed="0",
    )
    assert "A sleeping 10..20 lost" in said


def test_enqueue_of_a_later_wakeup_does_not_match_the_first(engine: Engine) -> None:
    """The waking named CPU 1 without a migration away: an enqueue on CPU 0 is of a later wakeup."""
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
         5 cpu0: migrate C 0 -> 1
        10 cpu0: A S -> B
        20 loss cpu1 until 50 overrun
        30 cpu0: waking A on 1 by B
        60 cpu0: enqueued A on 0 by B
        70 cpu0: B S -> A
        """,
        "A",
    )[-2:] == lines(
        """
        A wake waking=30 ready=30 by B@0 cpu 0/-/-: -+-=0 right
        A wake enqueued=60 run=70 by B@0 cpu 0/0/0: -+10=- left
        """
    )


def test_recorded_migration_of_a_waiting_thread_is_followed(engine: Engine) -> None:
    """Placed by a migration between the two steps, and migrated once more while it waits."""
    assert (
        answer(
            engine,
            """
         0 cpu0: idle -> A
        10 cpu0: A S -> B
        20 loss cpu2 until 90 overrun
        30 cpu0: waking A on 0 by B
        31 cpu0: migrate A 0 -> 1
        35 cpu0: enqueued A on 1 by B
        50 cpu0: migrate A 1 -> 0
        70 cpu0: B S -> A
        """,
            "A",
            ncpu=3,
        )[-1]
        == "A wake waking=30 ready=30 enqueued=35 run=70 by B@0 cpu 0/0/0: 5+35=40"
    )


def test_mismatch_may_hide_a_run_of_queued_threads(engine: Engine) -> None:
    """B left CPU 0 unrecorded after 10, C ran at 40: A may have run between, D on CPU 1 not."""
    facts = """
         0 cpu1: idle -> E
         1 cpu0: migrate F 0 -> 1
         2 cpu0: waking A on 0
         3 cpu0: enqueued A on 0
         4 cpu1: waking D on 1
         5 cpu1: enqueued D on 1
        10 cpu0: idle -> B
        40 cpu0: C S -> A
        50 cpu1: E S -> D
        """
    assert answer(engine, facts, "A")[-2:] == lines(
        """
        A wake waking=2 ready=2 enqueued=3 by ?@0 cpu -/0/-: 1+-=8 right
        A unknown run=40 cpu -/-/0: -+-=- left
        """
    )
    assert (
        answer(engine, facts, "D")[-1]
        == "D wake waking=4 ready=4 enqueued=5 run=50 by ?@1 cpu -/1/1: 1+45=46"
    )


@pytest.mark.parametrize("loss", [False, True])
@pytest.mark.parametrize(
    "shown_by", ["cpu1: A S -> D", "cpu0: waking A on 0", "cpu0: waking A on 1"]
)
def test_thread_with_an_unrecorded_run_waited_until_its_last_event(
    engine: Engine, shown_by: str, loss: bool
) -> None:
    """CPU 1 has a mismatch at 10, but A may have run before, as other switches are missing, too.

    Where the source counts its losses, A ran in one of them.
    """
    facts = f"""
         0 cpu1: idle -> D
         1 cpu0: migrate F 0 -> 1
         2 cpu0: waking A on 0
         3 cpu0: enqueued A on 0
        10 cpu1: waking F on 1 during D
        20 cpu1: E S -> idle
        {"30 loss cpu1 until 40 overrun" if loss else ""}
        60 {shown_by}
    """
    waited = 8 if loss else 1
    queued = f"A wake waking=2 ready=2 enqueued=3 by ?@0 cpu -/0/-: 1+-={waited} right"
    assert queued in answer(engine, facts, "A")


def test_mismatch_is_applied_before_its_thread_is_located(engine: Engine) -> None:
    """A runs at 30 where B's last event is at 5: it may have got there before CPU 1's loss."""
    facts = """
         0 cpu0: idle -> B
         1 cpu0: migrate F 0 -> 1
         2 cpu1: waking A on 0
         3 cpu0: enqueued A on 0
         5 cpu0: waking F on 1 during B
        12 loss cpu1 until 14 overrun
        30 cpu0: A S -> C
    """
    assert "A wake waking=2 ready=2 enqueued=3 by ?@1 cpu -/0/-: 1+-=3 right" in answer(
        engine, facts, "A"
    )


def test_a_second_waking_ends_a_wait(engine: Engine) -> None:
    """A waiting thread is awake and is not woken: it ran unrecorded, and slept again."""
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
        10 cpu0: A S -> B
        20 cpu0: waking A on 0 by B
        22 cpu0: enqueued A on 0 by B
        80 cpu0: waking A on 0 by B
        81 cpu0: enqueued A on 0 by B
        90 cpu0: B S -> A
        """,
        "A",
    )[-2:] == lines(
        """
        A wake waking=20 ready=20 enqueued=22 by B@0 cpu 0/0/-: 2+-=2 right
        A wake waking=80 ready=80 enqueued=81 run=90 by B@0 cpu 0/0/0: 1+9=10
        """
    )


@pytest.mark.parametrize("preempted", [False, True])
def test_second_enqueue_ends_the_wait_of_a_woken_thread(engine: Engine, preempted: bool) -> None:
    """A preempted thread may have been about to sleep, or it ran and slept: unknown."""
    begin = "10 cpu0: A R -> B" if preempted else "10 cpu0: A S -> B\n20 cpu0: enqueued A on 0 by B"
    facts = f"""
         0 cpu0: idle -> A
        {begin}
        80 cpu0: enqueued A on 0 by B
        90 cpu0: B S -> A
    """
    waits = answer(engine, facts, "A")
    if preempted:
        assert waits[-2:] == lines(
            """
            A preempt ready=10 enqueued=10 cpu 0/0/-: 0+-=0 right
            A wake enqueued=80 run=90 by B@0 cpu 0/0/0: -+10=- left
            """
        )
    else:
        assert waits[-2:] == lines(
            """
            A wake ready=20 enqueued=20 by B@0 cpu 0/0/-: 0+-=0 right
            A wake ready=80 enqueued=80 run=90 by B@0 cpu 0/0/0: 0+10=10
            """
        )


def test_thread_preempted_before_its_sleep_may_have_slept(engine: Engine) -> None:
    """R+ hides the state that it had set, so a waking does not tell what it did before."""
    facts = """
         0 cpu0: idle -> A
        10 cpu0: A R+ -> B
        20 cpu0: waking A on 0 by B
        90 cpu0: B S -> A
        """
    assert answer(engine, facts, "A")[-2:] == lines(
        """
        A preempt ready=10 enqueued=10 cpu 0/0/-: 0+-=0 right
        A wake run=90 by B@0 cpu 0/0/0: -+-=- left
        """
    )
    # A second one is the first of a later sleep.
    twice = facts.replace("90 cpu0", "40 cpu0: waking A on 0 by B\n90 cpu0")
    assert (
        answer(engine, twice, "A")[-1]
        == "A wake waking=40 ready=40 run=90 by B@0 cpu 0/0/0: -+-=50"
    )


def test_thread_preempted_before_its_sleep_is_unknown_after_a_loss(engine: Engine) -> None:
    """As above, doubtful since 15: whether it slept, and since when it waits, is unknown."""
    facts = """
         0 cpu0: idle -> A
        10 cpu0: A R+ -> B
        15 loss cpu0 until 18 overrun
        20 cpu0: waking A on 0 by B
        90 cpu0: B S -> A
        """
    assert answer(engine, facts, "A")[-2:] == lines(
        """
        A preempt ready=10 enqueued=10 cpu 0/0/-: 0+-=5 right
        A wake run=90 by B@0 cpu 0/0/0: -+-=- left
        """
    )
    # Preempted in user mode, it was not about to sleep.
    asleep = facts.replace("R+", "R")
    assert answer(engine, asleep, "A")[-1].startswith("A wake waking=20 ready=20 run=90")


def test_waking_on_another_cpu_implies_a_run_there(engine: Engine) -> None:
    """A slept on CPU 0, and its waking has it on CPU 1: it migrated there and ran."""
    moved = """
         0 cpu1: migrate D 0 -> 1
        """
    facts = """
         1 cpu0: idle -> A
        10 cpu0: A S -> B
        50 cpu0: waking A on 1 by B
        51 cpu0: enqueued A on 1 by B
        60 cpu1: C S -> A
        """
    assert answer(engine, moved + facts, "A") != answer(engine, facts, "A")
    assert "A sleeping 10..50" not in "\n".join(answer(engine, moved + facts, "A"))
    # Where no migration is recorded, a thread's CPU is unknown.
    at_home = facts.replace("waking A on 1", "waking A on 0")
    assert [one for one in answer(engine, facts, "A") if "sleeping" in one] == [
        one for one in answer(engine, at_home, "A") if "sleeping" in one
    ]


def test_wait_with_only_an_enqueue_started_earlier(engine: Engine) -> None:
    """The trace has wakings, so A's is missing: only its time on the queue is known."""
    facts = """
         0 cpu0: idle -> B
         5 cpu0: waking C on 0 by B
        20 cpu0: enqueued A on 0 by B
        50 cpu0: B S -> A
        """
    assert (
        answer(engine, facts, "A")[-1] == "A wake enqueued=20 run=50 by B@0 cpu -/0/0: -+30=- left"
    )
    # Where wakings are not recorded, a wait starts with the enqueue.
    without = facts.replace("5 cpu0: waking C on 0 by B", "")
    assert (
        answer(engine, without, "A")[-1]
        == "A wake ready=20 enqueued=20 run=50 by B@0 cpu -/0/0: 0+30=30"
    )


def test_unfinished_wait_counts_up_to_the_loss(engine: Engine) -> None:
    """Nothing after the loss shows that A still waits."""
    assert (
        answer(
            engine,
            """
         0 cpu0: idle -> A
         5 cpu0: migrate C 0 -> 1
        10 cpu0: A R -> B
        40 loss cpu1 until 60 overrun
        """,
            "A",
        )[-1]
        == "A preempt ready=10 enqueued=10 cpu 0/0/-: 0+-=30 right"
    )


# -- a migration that is missing ------------------------------------------------------------


def test_switch_in_from_another_queue_implies_an_unrecorded_migration(engine: Engine) -> None:
    """The wait is measured: it was not on a CPU. Which CPU it waited for is unknown."""
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
        10 cpu0: A S -> idle
        20 cpu0: waking A on 0
        22 cpu0: enqueued A on 0
        30 cpu1: idle -> A
        """,
        "A",
    ) == lines(
        """
        A running@0 0..10 switched
        A sleeping 10..20 woken
        A runnable 20..30 switched
        A running@1 30..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A wake waking=20 ready=20 enqueued=22 run=30 by ?@0 cpu 0/-/1: 2+8=10
        """
    )


def test_switch_in_from_another_queue_is_doubtful_where_migrations_are_recorded(
    engine: Engine,
) -> None:
    """It was put on CPU 0, ran there, slept and migrated: all of that is missing."""
    assert answer(
        engine,
        """
         0 cpu0: idle -> A
         5 cpu0: migrate C 0 -> 1
        10 cpu0: A S -> idle
        20 cpu0: waking A on 0
        22 cpu0: enqueued A on 0
        30 cpu1: idle -> A
        """,
        "A",
        uncounted=True,
    ) == lines(
        """
        A running@0 0..10 switched
        A sleeping 10..20 woken
        A unknown 20..30 switched
        A running@1 30..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A wake waking=20 ready=20 enqueued=22 by ?@0 cpu 0/-/-: 2+-=2 right
        A unknown run=30 cpu 0/-/1: -+-=- left
        """
    )


@pytest.mark.parametrize("uncounted", [False, True])
def test_migration_from_another_queue_implies_a_missing_one(
    engine: Engine, uncounted: bool
) -> None:
    rows = answer(
        engine,
        """
         0 cpu0: idle -> A
        10 cpu0: A S -> idle
        20 cpu0: waking A on 0
        22 cpu0: enqueued A on 0
        25 cpu1: migrate A 1 -> 2
        30 cpu2: idle -> A
        """,
        "A",
        ncpu=3,
        uncounted=uncounted,
    )
    if not uncounted:
        assert "A runnable 20..25 switched" in rows
        assert "A runnable@2 25..30 switched" in rows
        return
    assert rows == lines(
        """
        A running@0 0..10 switched
        A sleeping 10..20 woken
        A unknown 20..30 switched
        A running@2 30..100 window
        A unknown run=0 cpu -/-/0: -+-=- left
        A wake waking=20 ready=20 enqueued=22 by ?@0 cpu 0/-/-: 2+-=2 right
        A unknown run=30 cpu 0/-/2: -+-=- left
        """
    )


# -- half a wake ------------------------------------------------------------------------------


@pytest.mark.parametrize("until", [20_000_100, 20_000_101])
def test_thread_with_one_of_two_wakeup_steps_is_unknown_at_the_end(
    engine: Engine, until: int
) -> None:
    """Its `enqueued` is missing, possibly with later events; or there is no such thread."""
    rows = answer(
        engine,
        """
         0 cpu0: waking B on 0
         5 cpu0: enqueued B on 0
        10 cpu0: idle -> B
       100 cpu0: waking A on 0
        """,
        "A",
        until=until,
    )
    if until - 100 > 20_000_000:
        assert rows == lines(
            f"""
            A unknown 100..{until} window
            A wake waking=100 ready=100 by ?@0 cpu -/-/-: -+-=0 right
            """
        )
    else:
        assert rows[0] == f"A runnable 100..{until} window"
        assert rows[1].endswith("=20000000 right")


def test_thread_enqueued_without_a_waking_is_unknown_at_the_end(
    engine: Engine,
) -> None:
    rows = answer(
        engine,
        """
         0 cpu0: waking B on 0
         5 cpu0: enqueued B on 0
        10 cpu0: idle -> B
       100 cpu0: enqueued A on 0
        """,
        "A",
        until=30_000_000,
    )
    assert rows[0] == "A unknown 100..30000000 window"


# -- wakeups without their first step ---------------------------------------------------------


def test_sleep_ended_by_an_enqueue_alone_is_unknown(engine: Engine) -> None:
    """Other threads have theirs: so this one's is missing, and when the sleep ended is unknown."""
    rows = answer(
        engine,
        """
         0 cpu0: idle -> A
        10 cpu0: A S -> idle
        12 cpu0: waking B on 1
        20 cpu0: enqueued A on 0
        30 cpu0: idle -> A
        """,
        "A",
    )
    assert "A unknown 10..20 woken" in rows
    assert "A wake enqueued=20 run=30 by ?@0 cpu 0/0/0: -+10=- left" in rows


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("losses", "count", pl.lit(-1, pl.Int64)),
        ("switches", "ts", pl.lit(2**63, pl.UInt64)),
    ],
)
def test_a_number_beyond_its_column_is_refused_whatever_its_type(
    table: str, column: str, value: pl.Expr
) -> None:
    """-1 events are not 2^64 - 1, and 2^63 ns is not a time before the start."""
    played = world("0 cpu0: idle -> A\n10 loss cpu0 until 20 overrun", window=(0, 100))
    wrong = played.tables[table].with_columns(value.alias(column))
    with pytest.raises(UsageError, match=f"column {column} of table {table} holds -?[0-9]+ in row"):
        by_native(replace(played, tables=played.tables | {table: wrong}))


@pytest.mark.parametrize("times", [7, 8])
def test_known_loss_explains_an_unrecorded_run(engine: Engine, times: int) -> None:
    """A ran in the loss of CPU 0, in which B left, whose switch-outs are usually reported.

    So CPU 1, of which events might be missing as well, has no loss, and D's wait there is measured.
    """
    turns = "".join(
        f"\n{2 * n} cpu0: idle -> B\n{2 * n + 1} cpu0: B S -> idle" for n in range(times)
    )
    facts = f"""{turns}
        20 cpu1: migrate C 0 -> 1
        30 cpu1: waking A on 0
        31 cpu1: enqueued A on 0
        32 cpu0: idle -> B
        40 cpu0: E S -> idle
        45 cpu1: waking D on 1
        46 cpu1: enqueued D on 1
        60 cpu1: waking A on 0
        61 cpu1: enqueued A on 0
        65 cpu1: idle -> D
        """
    measured = "D wake waking=45 ready=45 enqueued=46 run=65 by ?@1 cpu -/1/1: 1+19=20"
    assert (measured in answer(engine, facts, "D", uncounted=True)) == (times == 8)
