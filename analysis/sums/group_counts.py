"""Exact quantiles of values in groups, few or many, in memory that does not grow with the values.

Some four million values are held and sorted, by Polars alone: a short command ends before NumPy
would be loaded. With more values, `group_histograms` finds where the quantiles lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.sums.sorted_groups import in_order

if TYPE_CHECKING:
    from schedscope.analysis.sums.group_histograms import GroupHistograms
    from schedscope.analysis.sums.sorted_groups import Pairs


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

        `counted` has the columns `group` and `len`, if the caller has already counted them.
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
            from schedscope.analysis.sums.group_histograms import GroupHistograms

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


def longer(column: pl.Series, rows: int, value: int) -> pl.Series:
    """The column with `value` in further rows, if it has fewer than `rows`."""
    missing = rows - len(column)
    if missing <= 0:
        return column
    return pl.concat([column, pl.repeat(value, missing, dtype=column.dtype, eager=True)])
