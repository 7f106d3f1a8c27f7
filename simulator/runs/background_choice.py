"""What the threads outside the selection do in a replay, if the caller does not say."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from schedscope.errors import UsageError
from schedscope.simulator.runs.replay import LONGER, Replay, replay
from schedscope.simulator.runs.services import NOTHING, figures, replayed_services
from schedscope.store.trace import Trace

APART = ("occupy", "compete")
"""How other threads take the CPU time that they took without being replayed themselves."""

WAYS = ("replay", *APART)

JUDGED = ("waiting", "cpu_time")

LITTLE = 0.001
"""CPU time, or waiting, of this share of the machine's time is as good as none: here added to both
sides, in verdicts the least that is compared."""


def nearest(
    run: Callable[..., Trace],
    traces: Sequence[Trace],
    wheres: Sequence[pl.Expr | None],
    others: str | Sequence[str] | None = None,
    **options: Any,
) -> list[Replay]:
    """How captures of one workload are replayed, with the threads that `wheres` leave out as
    `others` says.

    With several ways, or None for all that take CPU time, it is the way whose replays of the
    recorded configuration are closest to the recordings, by the mean factor between the waiting,
    and the CPU time, of each service. `options` are those of `replay`, and `run` is `simulate`,
    which itself calls this for a trace.
    """
    if all(where is None for where in wheres):
        if others is not None:
            raise UsageError(
                f"others={others!r}", "some threads left out", "select some with where"
            )
        return [replay(trace, **options) for trace in traces]
    names = [others] if isinstance(others, str) else others or WAYS
    ways = [
        [
            replay(trace, where=where, others=name, **options)
            for trace, where in zip(traces, wheres, strict=True)
        ]
        for name in names
    ]
    if len(ways) == 1:
        return ways[0]
    try:
        return min(ways, key=lambda each: sum(_distance(way, run) for way in each))
    except UsageError as error:
        raise UsageError(
            error.found, error.expected, "with threads selected, say what the others do: --others"
        ) from None


def _distance(way: Replay, run: Callable[..., Trace]) -> float:
    named = replayed_services(way, "comm")
    recorded = figures(way.trace, named.drop_nulls("utid").select("utid", "service"))
    ran = run(
        way.workload,
        policy=way.policy,
        set=way.settings(way.policy),
        costs=way.costs,
        until=f"{LONGER * way.trace.duration}ns",
    )
    rows = named.select(utid=(pl.col("row") + ran.ncpu).cast(pl.UInt32), service="service")
    whole = [name for name, row in recorded.items() if row["completion"] is not None]
    replayed = figures(ran, rows, whole, way.trace.duration)
    apart, least = 0.0, LITTLE * way.trace.duration * way.trace.ncpu
    for name, own in recorded.items():
        then = replayed.get(name, NOTHING)
        apart += sum(abs(math.log((then[key] + least) / (own[key] + least))) for key in JUDGED)
    return apart
