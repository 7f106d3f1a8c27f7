"""How far may the clocks of two CPUs differ without an effect before its cause?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from schedscope.trace import Trace


@dataclass(frozen=True)
class ClockDoubt:
    """What would not show: a difference of up to `furthest` ns, or one that begins at `since`.

    `pairs` of CPUs wake threads both ways and can be compared; without any, `furthest` and
    `since` mean nothing.
    """

    furthest: int
    since: int
    pairs: int


def clock_doubt(trace: Trace) -> ClockDoubt:
    """The doubt that is left where the order of events contradicts no clock.

    A thread woken from one CPU to another bounds the difference of their clocks from one side,
    one woken the other way from the other (docs/trace-model.md, Clocks).
    """
    across = pl.col("waker_cpu") != pl.col("cpu")
    took = pl.col("ts_run") - pl.coalesce("ts_waking", "ts_ready")
    ways = (
        trace.waits.filter(across, pl.col("censored") == "none")
        .group_by(
            one=pl.min_horizontal("waker_cpu", "cpu"),
            other=pl.max_horizontal("waker_cpu", "cpu"),
            up=pl.col("cpu") > pl.col("waker_cpu"),
        )
        .agg(took=took.min(), last=pl.col("ts_run").max())
    )
    pairs = (
        ways.group_by("one", "other")
        .agg(pl.len(), took=pl.col("took").max(), last=pl.col("last").min())
        .filter(pl.col("len") == 2)
        .select(pl.col("took").max(), pl.col("last").min(), pl.len())
        .collect()
    )
    furthest, since, number = pairs.row(0)
    return ClockDoubt(furthest or 0, since or trace.window[0], number)
