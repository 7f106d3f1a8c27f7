"""Sums of many parts of a table, in the memory of some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import polars as pl

# Rows that are held before they are summed up.
_ROWS = 1 << 19


def folded(
    parts: Iterable[pl.DataFrame], sum_up: Callable[[pl.DataFrame], pl.DataFrame]
) -> pl.DataFrame:
    """What `sum_up` makes of all parts together; it must not matter if it sums up sums.

    >>> parts = (pl.DataFrame({"n": [n]}) for n in range(5))
    >>> folded(parts, lambda rows: rows.sum()).item()
    10
    """
    held: list[pl.DataFrame] = []
    rows, most = 0, _ROWS
    for part in parts:
        held.append(part)
        rows += part.height
        if rows > most:
            held = [sum_up(pl.concat(held))]
            rows = held[0].height
            most = rows + _ROWS
    return sum_up(pl.concat(held))
