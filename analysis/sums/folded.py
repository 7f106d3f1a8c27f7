"""Sums of many parts of a table, in the memory of some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import polars as pl

# Rows that are held before they are summed up.
_ROWS = 1 << 19


class Fold:
    """`sum_up` applied to all parts together, which come some at a time.

    Applying it to its own sums must give the same result.
    """

    def __init__(self, sum_up: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
        """`sum_up` combines the rows of each group into one row."""
        self._sum_up = sum_up
        self._held: list[pl.DataFrame] = []
        self._rows, self._most = 0, _ROWS

    def add(self, part: pl.DataFrame) -> None:
        """Add one part."""
        self._held.append(part)
        self._rows += part.height
        if self._rows > self._most:
            self._held = [self._sum_up(pl.concat(self._held))]
            self._rows = self._held[0].height
            self._most = self._rows + _ROWS

    def result(self) -> pl.DataFrame:
        """The sums, after one part at least."""
        return self._sum_up(pl.concat(self._held))


def folded(
    parts: Iterable[pl.DataFrame], sum_up: Callable[[pl.DataFrame], pl.DataFrame]
) -> pl.DataFrame:
    """The same for parts that can be iterated over.

    >>> parts = (pl.DataFrame({"n": [n]}) for n in range(5))
    >>> folded(parts, lambda rows: rows.sum()).item()
    10
    """
    sums = Fold(sum_up)
    for part in parts:
        sums.add(part)
    return sums.result()
