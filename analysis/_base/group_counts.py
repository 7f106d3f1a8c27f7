"""Exact quantiles of values in groups, few or many, in memory that does not grow with the values.

Some four million values are held and sorted. Of more, a histogram for each group tells where its
quantiles lie (`order_statistics`), which takes 4 kB a group, or 516 kB of few groups. Of more
values in more than some thirty thousand groups, the values of some neighbouring groups are held and
sorted at a time, which takes a pass over the source for each such slice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from schedscope.analysis._base.order_statistics import (
    COARSE,
    FINE,
    bucket,
    buckets,
    order_statistics,
)
from schedscope.analysis._base.quantiles import rank

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.analysis._base.order_statistics import Pairs

    Ints = npt.NDArray[np.int64]

# Values that are held from the first pass: 50 MB.
_HELD = 1 << 22
# Groups that have a histogram each: 132 MB.
_HISTOGRAMS = 1 << 15
# Groups whose histograms are fine: 17 MB.
_FEW = 1 << 5
# Values that a later pass holds: 268 MB.
_SLICE = 1 << 25


class GroupCounts:
    """How many values each group has (`n`), and enough about them to find any rank later."""

    def __init__(self) -> None:
        """No values yet."""
        self.n: Ints = np.zeros(0, dtype=np.int64)
        self._greatest = 0
        self._held: list[tuple[npt.NDArray[np.int32], Ints]] | None = []
        # Of each octave there are 2**_parts.
        self._parts = FINE
        self._histogram: Ints | None = np.zeros((0, buckets(FINE)), dtype=np.int64)

    def add(self, group: Ints, value: Ints, groups: int) -> None:
        """Some more values, of groups numbered below `groups`; none of them negative."""
        self.n = _longer(self.n, groups)
        self.n += np.bincount(group, minlength=groups)
        self._greatest = max(self._greatest, int(value.max(initial=0)))
        if self._held is None:
            self._count(group, value)
            return
        self._held.append((group.astype(np.int32), value))
        if self.n.sum() > _HELD:
            held, self._held = self._held, None
            for kept in held:
                self._count(*kept)

    def at(self, shares: Sequence[Fraction], pairs: Pairs) -> Ints:
        """The quantiles of each group, a column for each share; -1 for a group without values.

        `pairs` gives all values again, in any order.
        """
        ranks = np.empty((len(self.n), len(shares)), dtype=np.int64)
        for column, share in enumerate(shares):
            ranks[:, column] = rank(self.n, share)
        if self._held is not None:
            held = [(group.astype(np.int64), value) for group, value in self._held]
            return self._sorted(ranks, self.n, held, 0)
        if self._histogram is not None:
            return order_statistics(self._histogram, ranks, pairs, self._parts)
        return self._in_slices(ranks, pairs)

    def _count(self, group: npt.NDArray[np.int32] | Ints, value: Ints) -> None:
        groups = len(self.n)
        if groups > _HISTOGRAMS:
            self._histogram = None
        if self._histogram is None:
            return
        if groups > _FEW and self._parts == FINE:
            self._histogram, self._parts = _coarse(self._histogram), COARSE
        self._histogram = _longer(self._histogram, groups)
        number, size = bucket(value, self._parts), self._histogram.shape[1]
        if self._histogram.size > 8 * len(value):  # not another histogram of all for few values
            np.add.at(self._histogram, (group, number), 1)
        else:
            cell = group.astype(np.int64) * size + number
            cells = np.bincount(cell, minlength=groups * size)
            self._histogram += cells.reshape(groups, size)

    def _in_slices(self, ranks: Ints, pairs: Pairs) -> Ints:
        found = np.full(ranks.shape, -1, dtype=np.int64)
        large = np.flatnonzero(self.n > _SLICE)
        if len(large):
            found[large] = self._of_large(large, ranks[large], pairs)
        n = self.n.copy()
        n[large] = 0
        reached = np.cumsum(n)
        first = 0
        while first < len(n):
            before = reached[first] - n[first]
            last = int(np.searchsorted(reached, before + _SLICE, side="right"))
            if reached[last - 1] > before:
                some = slice(first, last)
                theirs = _only(pairs(), n, some)
                small = n[some] > 0
                sliced = self._sorted(ranks[some], n[some], theirs, first)
                found[some][small] = sliced[small]
            first = last
        return found

    def _of_large(self, large: Ints, ranks: Ints, pairs: Pairs) -> Ints:
        """Those of more values than are held at a time; they are few."""
        number = np.full(len(self.n), -1, dtype=np.int64)
        number[large] = np.arange(len(large))

        def theirs() -> Iterator[tuple[Ints, Ints]]:
            for group, value in pairs():
                hit = number[group] >= 0
                yield number[group[hit]], value[hit]

        size = buckets()
        histogram = np.zeros((len(large), size), dtype=np.int64)
        for group, value in theirs():
            cells = np.bincount(group * size + bucket(value), minlength=histogram.size)
            histogram += cells.reshape(histogram.shape)
        return order_statistics(histogram, ranks, theirs)

    def _sorted(
        self, ranks: Ints, n: Ints, values: Iterable[tuple[Ints, Ints]], first: int
    ) -> Ints:
        """All values of the groups from `first` on, held and sorted."""
        size = int(n.sum())
        if not size:
            return np.full(ranks.shape, -1, dtype=np.int64)
        bits = self._greatest.bit_length()
        if bits + len(n).bit_length() <= 63:
            # Group and value in one number: sorting it sorts the values of each group.
            packed = np.empty(size, dtype=np.int64)
            for part, (group, value) in _parts(values):
                packed[part] = (group - first) << bits | value
            packed.sort()
            packed &= (1 << bits) - 1
        else:
            of = np.empty(size, dtype=np.int64)
            packed = np.empty(size, dtype=np.int64)
            for part, (group, value) in _parts(values):
                of[part], packed[part] = group, value
            packed = packed[np.lexsort((packed, of))]
        start = np.cumsum(n) - n
        place = np.clip(start[:, None] + ranks, 0, size - 1)
        return np.where(ranks >= 0, packed[place], -1)


def _only(pairs: Iterable[tuple[Ints, Ints]], n: Ints, some: slice) -> Iterator[tuple[Ints, Ints]]:
    for group, value in pairs:
        hit = (group >= some.start) & (group < some.stop)
        hit &= n[group] > 0
        yield group[hit], value[hit]


def _parts(values: Iterable[tuple[Ints, Ints]]) -> Iterator[tuple[slice, tuple[Ints, Ints]]]:
    """Where each pair of arrays goes in one array for all."""
    at = 0
    for pair in values:
        yield slice(at, at + len(pair[0])), pair
        at += len(pair[0])


def _coarse(histogram: Ints) -> Ints:
    """Of the fine buckets those of each coarse one together."""
    groups = len(histogram)
    coarse = np.zeros((groups, buckets(COARSE)), dtype=np.int64)
    coarse[:, 0] = histogram[:, 0]
    coarse[:, 1:] = histogram[:, 1:].reshape(groups, 63 << COARSE, 1 << FINE - COARSE).sum(axis=2)
    return coarse


def _longer(counts: Ints, groups: int) -> Ints:
    """Room for groups that have appeared since."""
    missing = groups - len(counts)
    if missing <= 0:
        return counts
    return np.pad(counts, [(0, missing)] + [(0, 0)] * (counts.ndim - 1))
