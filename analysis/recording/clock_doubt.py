"""How far may the clocks of two CPUs differ without making an effect precede its cause?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from schedscope.store.native_tables import coded

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

PARTS = 128
"""Equal parts of the window that wakeups are sorted into: no duration is told more exactly."""

SHOWN = 2
"""So many threads must run before they are woken, and a difference of clocks is noticed."""

WAY = ("one", "other", "up")


@dataclass(frozen=True)
class ClockDoubt:
    """Clock differences that would go unnoticed: up to `furthest` ns, or lasting up to `longest`.

    `pairs` of CPUs wake threads both ways and can be compared; without any, `furthest` and
    `longest` mean nothing.
    """

    furthest: int
    longest: int
    pairs: int


def clock_doubt(trace: Trace) -> ClockDoubt:
    """The remaining doubt where the order of events contradicts no clock.

    A clock that is off by more than a wakeup takes makes the thread run before it is woken. So
    wakeups from one CPU to another bound the difference of their clocks from one side, those the
    other way from the other, and only while there are some (docs/trace-model.md, Clocks).
    """
    quickest = _quickest(trace)
    if quickest.is_empty():
        return ClockDoubt(0, 0, 0)
    second = quickest.group_by(WAY).agg(pl.col("took").sort().get(SHOWN - 1))
    tried = max(1, second.select(pl.col("took").max()).item())
    slowest = quickest.select(pl.col("took").max()).item()
    shortest = _longest(quickest, slowest)
    furthest, parts = tried, _longest(quickest, tried)
    # Choose the limit and duration that minimise one times the other squared.
    while (tried := 2 * tried) * shortest**2 < furthest * parts**2:
        longest = _longest(quickest, tried)
        if tried * longest**2 < furthest * parts**2:
            furthest, parts = tried, longest
    begin, end = trace.window
    pairs = quickest.select(pl.struct("one", "other").n_unique()).item()
    return ClockDoubt(furthest, -(-(end - begin) * parts // PARTS), pairs)


def _quickest(trace: Trace) -> pl.DataFrame:
    """Per pair of CPUs that can be compared, way, and part of the window: its quickest wakeups."""
    from schedscope import _native

    columns = ("waker_cpu", "cpu", "ts_waking", "ts_ready", "ts_run", "censored")
    waits = coded(trace, "waits", *columns)
    found = pl.DataFrame(_native.quickest_wakeups(waits, trace.window, PARTS, SHOWN)).lazy()
    found = found.select(
        one=pl.min_horizontal("waker_cpu", "cpu"),
        other=pl.max_horizontal("waker_cpu", "cpu"),
        up=pl.col("cpu") > pl.col("waker_cpu"),
        part=pl.col("part").cast(pl.Int64),
        took=pl.col("took"),
    )
    return (
        found.filter(pl.len().over(WAY) >= SHOWN)
        .filter(pl.col("up").n_unique().over("one", "other") == 2)
        .sort(*WAY, "part")
        .collect()
    )


def _longest(quickest: pl.DataFrame, furthest: int) -> int:
    """Parts for which a difference of more than `furthest` may last, for some pair of CPUs."""
    told = quickest.filter(pl.col("took") <= furthest)
    until = pl.col("part").shift(-SHOWN).fill_null(PARTS - 1).over(WAY)
    first = pl.col("part").get(SHOWN - 1).over(WAY) + 1
    longest = told.select(pl.max_horizontal(until - pl.col("part") + 1, first).max()).item()
    return min(PARTS, int(longest))
