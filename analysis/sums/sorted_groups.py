"""Exact quantiles of values in groups, all of which are held and put in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

import polars as pl

from schedscope.analysis.sums.quantiles import rank

Pairs = Callable[[], Iterable[tuple[pl.Series, pl.Series]]]
"""Gives the groups of some values and the values, the same ones each time it is called."""


def in_order(
    n: pl.Series,
    greatest: int,
    shares: Sequence[Fraction],
    values: Iterable[tuple[pl.Series, pl.Series]],
    first: int,
) -> list[pl.Series]:
    """The quantiles of the groups from `first` on, of which there are `n` values, none of them
    above `greatest`; all are held and sorted."""
    bits = greatest.bit_length()
    if bits + len(n).bit_length() <= 63:
        # Group and value in one number: sorting it sorts the values of each group.
        packed = pl.Series(dtype=pl.Int64)
        for group, value in values:
            packed.append((group.cast(pl.Int64) - first) * (1 << bits) + value)
        # On one thread it takes half the CPU time.
        ordered = packed.sort(multithreaded=False)
        own = pl.int_range(len(n), eager=True) * (1 << bits)
    else:
        rows = pl.DataFrame(schema={"group": pl.Int64, "value": pl.Int64})
        for group, value in values:
            rows.vstack(
                pl.DataFrame({"group": group.cast(pl.Int64), "value": value}), in_place=True
            )
        ordered = rows.sort("group", "value")["value"]
        own = pl.repeat(0, len(n), dtype=pl.Int64, eager=True)
    start = n.cum_sum() - n
    places = [(start + rank(n, share)).set(n == 0, None) for share in shares]
    return [ordered.gather(place) - own for place in places]
