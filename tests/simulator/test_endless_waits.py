"""Waits that nobody would ever end."""

from __future__ import annotations

import polars as pl

from schedscope.simulator.endless_waits import without_endless_waits
from schedscope.simulator.workload import STEPS


def steps(*rows: tuple[int, str, int | None, int | None]) -> pl.DataFrame:
    """Program, op, ns and queue of each."""
    named = [dict(zip(("program", "op", "ns", "queue"), row, strict=True)) for row in rows]
    return pl.DataFrame([dict.fromkeys(STEPS) | row for row in named], schema=STEPS)


def test_a_wait_in_a_job_that_nobody_posts_for_takes_the_time_of_waking() -> None:
    made = steps(
        (7, "run", 500, None),
        (7, "serve", 20, 3),
        (7, "serve", None, 4),
        (7, "post", 10, 5),
        (7, "exit", None, None),
    )
    found, n = without_endless_waits(made)
    assert n == 2
    assert found.select("op", "ns", "queue").rows() == [
        ("run", 500, None),
        ("run", 20, None),
        ("run", 1, None),
        ("post", 10, 5),
        ("exit", None, None),
    ]


def test_what_is_posted_somewhere_and_what_is_served_again_and_again_stays() -> None:
    """A thread of a pool whose jobs are all done waits to the end of the replay."""
    made = steps(
        (1, "serve", 20, 0),
        (1, "repeat", None, None),
        (2, "serve", 20, 3),
        (4, "post", 10, 3),
    )
    found, n = without_endless_waits(made)
    assert n == 0
    assert found.equals(made)
