"""Exact quantiles of values in groups, few or many, in memory that does not grow with the values.

Some four million values are held and sorted, by Polars alone: a short command ends before NumPy
would be loaded. Of more, `group_histograms` tells where the quantiles lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis._base.quantiles import rank

if TYPE_CHECKING:
    from schedscope.analysis._base.group_histograms import GroupHistograms

    Pairs = Callable[[], Iterable[tuple[pl.Series, pl.Series]]]
    """Gives the groups of some values and the values, the same ones each time it is called."""

# Values that are held from the first pass: 50 MB.
_HELD = 1 << 22


class GroupCounts:
    """How many values each group has (`n`), and enough about them to find any rank later."""

    def __init__(self) -> None:
        """No values yet."""
        self.n = pl.Series(dtype=pl.Int64)
        self._greatest = 0
        self._held: list[tuple[pl.Series, pl.Series]] = []
        self._histograms: GroupHistograms | None = None

    def add(
        self,
        group: pl.Series,
        value: pl.Series,
        groups: int,
        counted: pl.DataFrame | None = None,
    ) -> None:
        """Some more values, of groups numbered below `groups`; none of them negative.

        `counted` has the columns `group` and `len`, if somebody has counted them.
        """
        self.n = longer(self.n, groups, 0)
        if counted is None:
            counted = pl.DataFrame({"group": group}).group_by("group").len()
        self.n.scatter(counted["group"], self.n.gather(counted["group"]) + counted["len"])
        self._greatest = max(self._greatest, int(value.max() or 0))  # type: ignore[arg-type]
        if self._histograms is None:
            self._held.append((group.cast(pl.UInt32), value))
            if int(self.n.sum()) <= _HELD:
                return
            from schedscope.analysis._base.group_histograms import GroupHistograms

            self._histograms = GroupHistograms()
            for kept in self._held:
                self._histograms.add(*kept, groups)
            self._held = []
        else:
            self._histograms.add(group, value, groups)

    def at(self, shares: Sequence[Fraction], pairs: Pairs) -> list[pl.Series]:
        """The quantiles of each group, a column for each share; null for a group without values.

        `pairs` gives all values again, in any order.
        """
        if self._histograms is not None:
            return self._histograms.at(self.n, self._greatest, shares, pairs)
        return in_order(self.n, self._greatest, shares, self._held, 0)


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


def longer(column: pl.Series, rows: int, value: int) -> pl.Series:
    """The column with `value` in further rows, if it has fewer than `rows`."""
    missing = rows - len(column)
    if missing <= 0:
        return column
    return pl.concat([column, pl.repeat(value, missing, dtype=column.dtype, eager=True)])
