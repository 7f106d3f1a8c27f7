"""How the threads that are left out of a replay take their CPU time, if nobody says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from schedscope.errors import UsageError
from schedscope.simulator.replay import LONGER, Replay, replay
from schedscope.simulator.services import NOTHING, figures, replayed_services
from schedscope.store.trace import Trace


def nearest(
    run: Callable[..., Trace],
    trace: Trace,
    where: pl.Expr | None,
    others: str | None = None,
    **options: Any,
) -> Replay:
    """How `trace` is replayed, with the threads that are left out as `others` says.

    With None it is the way whose replay of the recorded configuration is closer to the recording,
    by the sum over services of the differences in waiting and in CPU time. `options` are those of
    `replay`, and `run` is `simulate`, which itself asks this of a trace.
    """
    if where is None:
        if others is not None:
            raise UsageError(
                f"others={others!r}", "some threads left out", "select some with where"
            )
        return replay(trace, **options)
    if others is not None:
        return replay(trace, where=where, others=others, **options)
    ways = [replay(trace, where=where, others=name, **options) for name in ("occupy", "compete")]
    try:
        return min(ways, key=lambda way: _distance(way, run))
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
    apart = 0.0
    for name, own in recorded.items():
        then = replayed.get(name, NOTHING)
        apart += sum(abs(own[key] - then[key]) for key in ("waiting", "cpu_time"))
    return apart
