"""Every count, bound and doubt of every answer is non-zero, and right, in some hand-made world.

These columns say how far to trust a number. A mutant that no longer counts what it should leaves
all numbers as they are, so only a world in which the count is not zero notices it. A question with
a new such column fails here until a world has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from frames import plain_questions
from ledgers import played
from scenes import scene

import schedscope as ss

DOUBT = re.compile(r"n_.*|.*_high|coverage|.*unknown.*|.*censored.*|.*ambiguous.*|unplaced")

# CPU 0 is lost from 40 to 60: B waits until then or less, and ran or waited from then on; A was
# preempted or ran meanwhile. M was moved at 8, and its state until it left at 70 is unknown. C
# leaves in an unknown state. A may have yielded at 20, as H at 95.
HOLE = """
     0 cpu0: idle -> A
     0 cpu1: idle -> H
     5 cpu0: waking B on 0 by A
     5 cpu0: enqueued B on 0 by A
     8 cpu0: migrate M 1 -> 0
    20 cpu0: A R -> B
    30 cpu0: B S -> A
    35 cpu1: waking B on 0 by H
    35 cpu1: enqueued B on 0 by H
    40 loss cpu0 until 60 overrun
    60 cpu0: B S -> A
    70 cpu0: A R+ -> M
    75 cpu0: M S -> C
    80 cpu0: C ? -> A
    85 cpu1: waking D on 0 by H
    85 cpu1: enqueued D on 0 by H
    95 cpu1: H R -> idle
"""


def hole() -> ss.Trace:
    return played(HOLE, window=(0, 100))


def unqueued() -> ss.Trace:
    """x waits 10 ms on no known queue while CPU 1 idles, w 20 ms on CPU 0; no reason is seen."""
    text = """
        x runnable@? 0..10
        x running@0 10..20
        y running@0 0..10
        w runnable@0 0..20
        idle1 running@1 0..20
    """
    return scene(text, until=20, ledger=False)


def unserved() -> ss.Trace:
    """z waits on a CPU of which nothing is known, to the end; a and b share the other one."""
    return scene(
        """
        z runnable@1 0..200
        a running@0  0..60
        b runnable@0 0..60
        b running@0  60..100
        a unknown    60..80
        a sleeping   80..200
        b sleeping   100..200
        idle0 running@0 100..200
        """,
        until=200,
    )


def over() -> ss.Trace:
    """a waited for 20 ms, b for 10 and perhaps once more for 30."""
    text = """
        b running@0 0..20
        a runnable@0 0..20
        a running@0 20..30
        b runnable@0 20..30
        b running@0 30..40
        b unknown   40..70
        a sleeping  30..70
        b sleeping  70..71
    """
    return scene(text, until=71)


# p makes c on CPU 1. Its later moves to CPU 2 are not reported, and by a report it should have run
# on CPU 1 when it ran on CPU 0. The last time it moves, it waits for h.
MOVED = """
     0 cpu0: idle -> p
     5 cpu0: new c on 1 by p
    10 cpu1: idle -> c
    20 cpu1: c S -> idle
    30 cpu0: waking c on 2 by p
    31 cpu2: enqueued c on 2 by p
    35 cpu2: idle -> c
    45 cpu2: c S -> idle
    50 cpu0: waking c on 1 by p
    51 cpu0: migrate c 2 -> 1
    60 cpu0: p R -> c
    70 cpu0: c S -> p
    80 cpu1: migrate idle0 0 -> 1
    90 cpu0: waking c on 2 by p
    91 cpu0: enqueued c on 2 by p
    95 cpu2: idle -> h
200095 cpu2: h S -> c
200100 cpu2: c S -> idle
"""


def moved() -> ss.Trace:
    return played(MOVED, ncpu=3, window=(0, 200200))


# d may have run and slept on CPU 0 between its wakeups: the enqueue may belong to either wait.
REWOKEN = """
     0 cpu0: idle -> d
     0 cpu1: idle -> p
     5 loss cpu0 until 50
    10 cpu1: waking d on 1 by p
    20 cpu1: waking d on 1 by p
    21 cpu1: enqueued d on 1 by p
    60 cpu0: idle -> d
"""


def rewoken() -> ss.Trace:
    return played(REWOKEN, window=(0, 100))


# The sum of each column over the rows of the answer, in ns.
WORLDS: list[tuple[Callable[[], ss.Trace], dict[str, dict[str, float]]]] = [
    (
        hole,
        {
            "affinity": {"n_censored": 3, "n_excluded": 6},
            "cpu_returns": {"n_censored": 3, "n_excluded": 6},
            "efficiency": {"unknown": 20, "n_voluntary": 3, "n_involuntary": 1, "n_ambiguous": 3},
            "fairness": {
                "running_high": 297,
                "waiting_high": 182,
                "due_high": 297.0,
                "lag_high": 122.0,
                "served_high": 352,
                "share_due_high": 5.4062,
                "share_received_high": 4.4,
                "ratio_high": 69.0343,
                "unknown": 122,
                "coverage": 3.6746,
            },
            "interactivity": {"unknown": 122, "n_censored": 2, "n_excluded": 4},
            "interference": {
                "wait_high": 342,
                "time_high": 262,
                "share_high": 8.0,
                "n_waits": 14,
                "coverage": 5.0,
            },
            "jain_index": {"n_excluded": 6},
            "lag": {"unknown": 204},
            "latency": {
                "n_censored": 3,
                "n_excluded": 5,
                "total_high": 182,
                "p90_high": 62,
                "p99_high": 62,
                "p99.9_high": 62,
                "max_high": 62,
                "max_censored": 15,
                "coverage": 0.3022,
            },
            "migration_agreement": {"n_events": 1, "n_early": 1},
            "migration_summary": {"n_excluded": 6},
            "off_cpu": {"n_censored": 2},
            "outliers": {"n_censored": 3, "unknown": 20},
            "preemption_loss": {"n_censored": 1, "n_ambiguous": 2},
            "queue_depth_summary": {
                "unknown": 20,
                "mean_high": 5.4325,
                "p50_high": 9,
                "p90_high": 9,
                "p99_high": 9,
                "max_high": 9,
                "overload_high": 162,
                "overload_frac_high": 1.82,
                "n_censored": 3,
                "n_excluded": 5,
            },
            "run_lengths": {"n_censored": 2, "total_censored": 30},
            "slowdown": {"n_censored": 6, "unknown": 122, "slowdown_high": 2.04},
            "starvation_summary": {"n_excluded": 5},
            "survival": {"n_at_risk": 6, "n_ended": 3, "n_censored": 1},
            "virtual_lag": {"n_censored": 11, "n_excluded": 4, "unknown": 122},
            "wait_breakdown": {
                "wait_high": 182,
                "behind_better_high": 177,
                "behind_same_high": 177,
                "behind_worse_high": 177,
                "cpu_idle_high": 182,
                "unknown": 55,
                "coverage": 3.0,
            },
            "wakers": {"n_censored": 2},
            "work_conservation": {"unknown": 20, "n_censored": 3, "n_excluded": 5},
        },
    ),
    (
        unqueued,
        {
            "fairness": {"unplaced": 10000000},
            "interference": {"cause_unknown": 30000000},
            "jain_index": {"jain_high": 1.0},
            "queue_depth_summary": {"waiting_unknown": 10000000},
            "virtual_lag": {"unplaced": 10000000},
        },
    ),
    (
        unserved,
        {
            "latency": {"p50_high": 60000000},
            "starvation": {"unknown": 200000000},
            "starvation_summary": {
                "n_censored": 1,
                "n_high": 1,
                "total_high": 200_000_000,
                "longest_high": 200_000_000,
            },
        },
    ),
    (
        over,
        {
            "latency": {"mean_high": 30000000.0},
        },
    ),
    (
        moved,
        {
            "migration_agreement": {"n_elsewhere": 1, "n_fork": 1, "n_idle": 1, "n_silent": 2},
            "migration_matrix": {"n_waited": 1, "unknown": 1},
            "wakers": {"n_new": 1},
        },
    ),
    (rewoken, {"wakers": {"n_censored": 2, "n_excluded": 1}}),
]

PROVEN_IN = {
    ("latency", "n_high"): "test_hidden_waits.py",
    ("wait_breakdown", "interrupted_high"): "test_wait_breakdown.py",
    ("wait_breakdown", "throttled_high"): "test_wait_breakdown.py",
    ("off_cpu", "n_excluded"): "test_off_cpu.py",
    ("off_cpu", "total_high"): "test_off_cpu.py",
    ("off_cpu", "max_high"): "test_off_cpu.py",
    ("findings", "cost_high"): "test_findings.py",
    ("worst_waits", "wait_high"): "test_wake_chain.py",
    ("preemption_loss", "n_excluded"): "test_preemption_loss.py",
    ("work_conservation", "n_pinned"): "test_work_conservation.py",
    ("work_conservation", "unplaced"): "test_work_conservation.py",
    ("work_conservation", "throttled_high"): "test_wait_breakdown.py",
    ("work_conservation", "wasted_high"): "test_wait_breakdown.py",
    ("work_conservation", "wasted_frac_high"): "test_wait_breakdown.py",
    ("work_conservation", "wasted_idle_frac_high"): "test_wait_breakdown.py",
    ("starvation", "throttled_high"): "test_wait_breakdown.py",
    ("outliers", "throttled_frac_high"): "test_wait_breakdown.py",
    ("migration_agreement", "n_reported"): "test_migrations.py",
    ("migration_agreement", "n_repeated"): "test_migrations.py",
    ("migration_agreement", "n_returned"): "test_migrations.py",
    ("migration_agreement", "n_open"): "test_migrations.py",
    ("migration_agreement", "n_unseen"): "test_migrations.py",
    ("migration_summary", "n_censored"): "test_migrations.py",
    ("migration_summary", "n_waited"): "test_migrations.py",
    ("ping_pong", "n_migrations"): "test_migrations.py",
}
"""Columns whose world is in the tests of their question, with its right value."""


@pytest.mark.parametrize(("make", "expected"), WORLDS, ids=[make.__name__ for make, _ in WORLDS])
def test_doubt_columns_have_their_expected_values(
    make: Callable[[], ss.Trace], expected: dict[str, dict[str, float]]
) -> None:
    trace = make()
    for question, sums in expected.items():
        frame = getattr(ss, question)(trace)
        assert {name: frame[name].sum() for name in sums} == pytest.approx(sums, abs=5e-5), question
        assert all(sums.values()), question


def test_every_doubt_column_has_a_world() -> None:
    found = set()
    for question in plain_questions():
        try:
            frame = getattr(ss, question)(hole())
        except ss.SchedscopeError:
            continue  # It asks for what these worlds do not have.
        numbers = (name for name, dtype in frame.schema.items() if dtype.is_numeric())
        found |= {(question, name) for name in numbers if DOUBT.fullmatch(name)}
    proven = {
        (question, name)
        for _, expected in WORLDS
        for question, sums in expected.items()
        for name in sums
    }
    assert found - proven - set(PROVEN_IN) == set()
    for (question, name), file in PROVEN_IN.items():
        text = Path(__file__).with_name(file).read_text()
        assert re.search(rf"ss\.{question}\b", text), question
        assert f'"{name}"' in text, (question, name)
