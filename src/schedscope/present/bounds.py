"""Figures of which only bounds are known, as people read them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from schedscope import units

if TYPE_CHECKING:
    import polars as pl

WELL_COVERED = 0.99
"""With so much of its waiting time measured nothing need be said of a selection."""

BARELY_COVERED = 0.8
"""With less than this, it is the first thing to say."""


def interval(
    low: float | None, high: float | None, text: Callable[[float], str] = units.duration
) -> str:
    """A time, or the two between which it is; or another amount, with its `text`.

    >>> interval(573_000_000, 573_000_000), interval(573_000_000, None)
    ('573 ms', '>= 573 ms')
    >>> interval(34_900_000_000, 46_600_000_000), interval(999_000, 1_000_000)
    ('34.9 to 46.6 s', '999 µs to 1.00 ms')
    >>> interval(None, None), interval(0, 20_000), interval(None, 20_000)
    ('-', '<= 20.0 µs', '<= 20.0 µs')
    """
    if low is None:
        return "-" if high is None else f"<= {text(high)}"
    least = text(low)
    if high is None:
        return f">= {least}"
    most = text(high)
    if least == most:
        return least
    if low == 0:
        return f"<= {most}"
    number, _, unit = least.partition(" ")
    return f"{number if unit == most.partition(' ')[2] else least} to {most}"


def several(low: int, high: int | None, what: str) -> str:
    """How many there are of something, or the two numbers between which that is.

    >>> several(1, 1, "wait"), several(1, 2, "wait"), several(15_250, None, "wait")
    ('1 wait', '1 to 2 waits', '>= 15,250 waits')
    """
    return f"{interval(low, high, units.count)} {what if low == high == 1 else what + 's'}"


def with_intervals(
    frame: pl.DataFrame,
    texts: Mapping[str, Callable[[float], str]] = MappingProxyType({}),
    *,
    question: str = "",
) -> pl.DataFrame:
    """The frame with each column that has a `NAME_high` beside it as text.

    A column is written as its kind is in tables of this question, or as `texts` has it. One of
    which all rows are known exactly stays as it is.
    """
    import polars as pl

    from schedscope.present.columns import conventional
    from schedscope.present.text_table import way

    upper = upper_bounds(frame.columns)
    for column in conventional(frame, question=question):
        name, high = column.name, f"{column.name}_high"
        if high not in upper or not frame.schema[name].is_numeric():
            continue
        pairs = frame.select(name, high).rows()
        text = texts.get(name) or way(column.kind)
        written = [interval(low, most, text) for low, most in pairs]
        if written != [interval(low, low, text) for low, _ in pairs]:
            frame = frame.with_columns(pl.Series(name, written, dtype=pl.String))
    return frame


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
