"""Figures of which only bounds are known, as people read them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from schedscope import units

if TYPE_CHECKING:
    import polars as pl

WELL_COVERED = 0.99
"""With so much of its waiting time measured nothing need be said of a selection."""

BARELY_COVERED = 0.8
"""With less than this, it is the first thing to say."""


def several(low: int, high: int | None, what: str) -> str:
    """How many there are of something, or the two numbers between which that is.

    >>> several(1, 1, "wait"), several(1, 2, "wait"), several(15_250, None, "wait")
    ('1 wait', '1 to 2 waits', '>= 15,250 waits')
    """
    return f"{units.interval(low, high, units.count)} {what if low == high == 1 else what + 's'}"


def upper_bounds(names: Collection[str]) -> set[str]:
    """The columns `NAME_high` that are the upper bound of `NAME`, not the end of a range around it.

    >>> upper_bounds(["max", "max_high", "total", "total_low", "total_high"])
    {'max_high'}
    """
    return {f"{name}_high" for name in names if f"{name}_low" not in names} & set(names)


def coverage_line(coverage: float | None, of: str = "this selection") -> str:
    """How much of the waiting time of a selection is measured; empty where there is no need.

    >>> coverage_line(0.75)
    '75.0 % of the waiting time of this selection is measured'
    >>> coverage_line(0.995), coverage_line(0.0, "web")
    ('', 'none of the waiting time of web is measured')
    """
    return _measured(coverage, f"waiting time of {of}")


def _measured(coverage: float | None, what: str) -> str:
    if coverage is None or coverage >= WELL_COVERED:
        return ""
    share = units.percent(coverage) if coverage > 0 else "none"
    return f"{share} of the {what} is measured"


def coverage_of(
    low: pl.Series, high: pl.Series, what: str = "waiting time of this selection"
) -> str:
    """The same of times and their upper bounds; those that nothing bounds are left out."""
    known = high.is_not_null()
    most = int(high.filter(known).sum())
    return _measured(int(low.filter(known).sum()) / most if most else 1.0, what)
