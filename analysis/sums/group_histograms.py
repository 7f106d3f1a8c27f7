"""Exact quantiles of millions of values in groups: histograms show where they lie.

A histogram for each group (`order_statistics`) takes 4 kB a group, or 516 kB of few groups. Of more
than some thirty thousand groups, the values of some neighbouring groups are held and sorted at a
time, which takes a pass over the source for each such slice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from schedscope.analysis.sums.order_statistics import (
    COARSE,
    FINE,
    bucket,
    buckets,
    order_statistics,
)
from schedscope.analysis.sums.quantiles import rank
from schedscope.analysis.sums.sorted_groups import in_order

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.analysis.sums.sorted_groups import Pairs

    Ints = npt.NDArray[np.int64]

# Groups that have a histogram each: 132 MB.
_HISTOGRAMS = 1 << 15
# Groups whose histograms are fine: 17 MB.
_FEW = 1 << 5
# Values that a later pass holds, twice while they are put in order: 268 MB.
_SLICE = 1 << 24


class GroupHistograms:
    """How many values of each group lie in each bucket; empty once there are too many groups."""

    def __init__(self) -> None:
        """No values yet."""
        # Each octave has 2**_parts buckets.
        self._parts = FINE
        self._histogram: Ints | None = np.zeros((0, buckets(FINE)), dtype=np.int64)

    def add(self, group: pl.Series, value: pl.Series, groups: int) -> None:
        """Some more values, of groups numbered below `groups`; none of them negative."""
        if groups > _HISTOGRAMS:
            self._histogram = None
        if self._histogram is None:
            return
        if groups > _FEW and self._parts == FINE:
            self._histogram, self._parts = _coarse(self._histogram), COARSE
        if (missing := groups - len(self._histogram)) > 0:
            self._histogram = np.pad(self._histogram, [(0, missing), (0, 0)])
        number, size = bucket(value.to_numpy(), self._parts), self._histogram.shape[1]
        # no further histogram over all groups for few values
        if self._histogram.size > 8 * len(value):
            np.add.at(self._histogram, (group.to_numpy(), number), 1)
        else:
            cell = group.cast(pl.Int64).to_numpy() * size + number
            cells = np.bincount(cell, minlength=self._histogram.size)
            self._histogram += cells.reshape(self._histogram.shape)

    def at(
        self, n: pl.Series, greatest: int, shares: Sequence[Fraction], pairs: Pairs
    ) -> list[pl.Series]:
        """What `GroupCounts.at` returns: `n` values of each group, none of them above `greatest`,
        which `pairs` gives again."""
        if self._histogram is None:
            return _in_slices(n, greatest, shares, pairs)
        return _of_histogram(self._histogram, n, shares, pairs, self._parts)


def _of_histogram(
    histogram: Ints, n: pl.Series, shares: Sequence[Fraction], pairs: Pairs, parts: int
) -> list[pl.Series]:
    ranks = np.empty((len(n), len(shares)), dtype=np.int64)
    for column, share in enumerate(shares):
        ranks[:, column] = rank(n.to_numpy(), share)
    found = order_statistics(histogram, ranks, lambda: _arrays(pairs()), parts)
    return [pl.Series(column).set(n == 0, None) for column in found.T]


def _in_slices(
    n: pl.Series, greatest: int, shares: Sequence[Fraction], pairs: Pairs
) -> list[pl.Series]:
    large = (n > _SLICE).arg_true()
    # Slices leave out the large groups.
    small = n.clone().scatter(large, 0)
    found: list[list[pl.Series]] = [[pl.Series(dtype=pl.Int64)] for _ in shares]
    reached = small.cum_sum().to_numpy()
    first = 0
    while first < len(n):
        before = reached[first] - small[first]
        last = int(np.searchsorted(reached, before + _SLICE, side="right"))
        some = small[first:last]
        theirs = _only(pairs(), small, first, last) if int(some.sum()) else ()
        for columns, values in zip(
            found, in_order(some, greatest, shares, theirs, first), strict=True
        ):
            columns.append(values)
        first = last
    whole = [pl.concat(columns) for columns in found]
    if len(large):
        of_large = _of_large(large, n, shares, pairs)
        whole = [c.scatter(large, values) for c, values in zip(whole, of_large, strict=True)]
    return whole


def _of_large(
    large: pl.Series, n: pl.Series, shares: Sequence[Fraction], pairs: Pairs
) -> list[pl.Series]:
    """Groups with more values than are held at a time; they are few."""
    number = pl.repeat(None, len(n), dtype=pl.Int64, eager=True)
    number.scatter(large, pl.int_range(len(large), eager=True))

    def theirs() -> Iterator[tuple[pl.Series, pl.Series]]:
        for group, value in pairs():
            of = number.gather(group)
            yield of.drop_nulls(), value.filter(of.is_not_null())

    histogram = np.zeros((len(large), buckets()), dtype=np.int64)
    for group, value in _arrays(theirs()):
        cells = np.bincount(group * buckets() + bucket(value), minlength=histogram.size)
        histogram += cells.reshape(histogram.shape)
    return _of_histogram(histogram, n.gather(large), shares, theirs, COARSE)


def _only(
    pairs: Iterable[tuple[pl.Series, pl.Series]], n: pl.Series, first: int, last: int
) -> Iterator[tuple[pl.Series, pl.Series]]:
    for group, value in pairs:
        hit = (group >= first) & (group < last) & (n.gather(group) > 0)
        yield group.filter(hit), value.filter(hit)


def _arrays(pairs: Iterable[tuple[pl.Series, pl.Series]]) -> Iterator[tuple[Ints, Ints]]:
    for group, value in pairs:
        yield group.cast(pl.Int64).to_numpy(), value.to_numpy()


def _coarse(histogram: Ints) -> Ints:
    """Adds up the fine buckets within each coarse one."""
    groups = len(histogram)
    coarse = np.zeros((groups, buckets(COARSE)), dtype=np.int64)
    coarse[:, 0] = histogram[:, 0]
    coarse[:, 1:] = histogram[:, 1:].reshape(groups, 63 << COARSE, 1 << FINE - COARSE).sum(axis=2)
    return coarse
