"""Exact quantiles of groups of any size, in memory that grows with groups only.

Sorting every wait would take memory for every wait. Instead each pass over the
ledger narrows, for all groups and ranks at once, the interval in which the
wanted value lies: first to a part of an octave by a histogram, then, where many
waits share such an interval, to a 64th of that. The last pass keeps the waits of
those intervals alone and takes the ranked ones. Where groups are few their
histograms are fine, so that of the longest traces a second pass is the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Pairs = Callable[[], Iterable[tuple[Ints, Ints]]]
    """Gives (group, wait) arrays, the same ones each time it is called."""

# Parts of an octave, as powers of 2: 8, or 1024.
COARSE, FINE = 3, 10
_FINER = 64
# Groups whose histograms are summed up at a time: some 16 MB.
_ROWS = 1 << 12
# The number of waits that the last pass may keep: some 100 MB.
_KEEP = 1 << 22


def buckets(parts: int = COARSE) -> int:
    """The number of buckets with `2**parts` to an octave: one for waits of 0, and up to 2**63."""
    return 1 + (63 << parts)


def bucket(wait: Ints, parts: int = COARSE) -> Ints:
    """The number of the bucket of each wait: not falling, read off a float's own bits."""
    bits: Ints = wait.astype(np.float64).view(np.int64) >> (52 - parts)
    number: Ints = np.maximum(bits - ((1023 << parts) - 1), 0)
    return number


def bucket_start(number: Ints, parts: int = COARSE) -> Ints:
    """The smallest wait of a bucket; of an empty one, of the next that is not."""
    octave, part = number - 1 >> parts, number - 1 & (1 << parts) - 1
    # In Python's integers: the last ends at 2**63.
    starts = [
        0 if o < 0 else min(-(-((1 << parts) + p << o) >> parts), 2**63 - 1)
        for o, p in zip(octave.tolist(), part.tolist(), strict=True)
    ]
    return np.array(starts, dtype=np.int64)


def order_statistics(histogram: Ints, ranks: Ints, pairs: Pairs, parts: int = COARSE) -> Ints:
    """The waits at `ranks` (from 0) in each group's ascending order; -1 for a negative rank.

    `histogram` has a row per group: how many waits lie in each of the buckets, `2**parts` to
    an octave. `ranks` has a row per group, a column per wanted value; the result has the same
    shape.
    """
    size = buckets(parts)
    values = np.full(ranks.shape, -1, dtype=np.int64)
    which, column = np.nonzero(ranks >= 0)
    if not len(which):
        return values
    rank = ranks[which, column]
    # The bucket in which the rank falls, and how many waits of the group lie below it.
    number = np.zeros(len(which), dtype=np.int64)
    for first in range(0, len(histogram), _ROWS):
        # Some groups at a time: there may be half a million.
        reached = np.cumsum(histogram[first : first + _ROWS], axis=1)
        here = slice(*np.searchsorted(which, [first, first + _ROWS]))
        row, ranked = which[here] - first, rank[here]
        number[here] = [
            np.searchsorted(reached[g], r, side="right") for g, r in zip(row, ranked, strict=True)
        ]
        below = np.where(number[here] > 0, reached[row, number[here] - 1], 0)
        rank[here] = ranked - below

    # Ranks that fall into one bucket of one group share a cell.
    cells, cell = np.unique(which * size + number, return_inverse=True)
    table = np.full(histogram.size, -1, dtype=np.int32)
    table[cells] = np.arange(len(cells))
    low = bucket_start(cells % size, parts)
    width = np.maximum(bucket_start(cells % size + 1, parts) - low, 1)
    count = histogram.reshape(-1)[cells]

    def members() -> Iterator[tuple[Ints, Ints]]:
        for group, wait in pairs():
            found = table[group * size + bucket(wait, parts)]
            hit = found >= 0
            yield found[hit].astype(np.int64), wait[hit]

    source: Pairs = members
    if count[width > 1].sum() > _KEEP:
        source, low, width, cell, rank = _narrowed(source, low, width, cell, rank)
    # A cell one ns wide has only one value.
    exact = width[cell] == 1
    result = low[cell]
    if not exact.all():
        result[~exact] = _picked(source, cell[~exact], rank[~exact], len(low))
    values[which, column] = result
    return values


def _narrowed(
    source: Pairs, low: Ints, width: Ints, cell: Ints, rank: Ints
) -> tuple[Pairs, Ints, Ints, Ints, Ints]:
    """Cut each cell into 64 and keep the parts in which a rank falls."""
    step = -(-width // _FINER)

    def part(found: Ints, wait: Ints) -> Ints:
        # Above 2**53 a float may round up to the next bucket's start.
        number: Ints = np.clip((wait - low[found]) // step[found], 0, _FINER - 1)
        return number

    fine = np.zeros(len(low) * _FINER, dtype=np.int64)
    for found, wait in source():
        fine += np.bincount(found * _FINER + part(found, wait), minlength=len(fine))
    reached = np.cumsum(fine.reshape(-1, _FINER), axis=1)
    number = np.array(
        [np.searchsorted(reached[c], r, side="right") for c, r in zip(cell, rank, strict=True)]
    )
    rank = rank - np.where(number > 0, reached[cell, number - 1], 0)
    kept, inside = np.unique(cell * _FINER + number, return_inverse=True)
    table = np.full(len(fine), -1, dtype=np.int32)
    table[kept] = np.arange(len(kept))

    def members() -> Iterator[tuple[Ints, Ints]]:
        for found, wait in source():
            finer = table[found * _FINER + part(found, wait)]
            hit = finer >= 0
            yield finer[hit].astype(np.int64), wait[hit]

    of = kept // _FINER
    return members, low[of] + kept % _FINER * step[of], step[of], inside, rank


def _picked(source: Pairs, cell: Ints, rank: Ints, cells: int) -> Ints:
    wanted = np.zeros(cells, dtype=np.bool_)
    wanted[cell] = True
    found, wait = [], []
    for number, value in source():
        hit = wanted[number]
        found.append(number[hit].astype(np.int32))
        wait.append(value[hit])
    owner, kept = np.concatenate(found), np.concatenate(wait)
    order = np.lexsort((kept, owner))
    first = np.searchsorted(owner[order], np.arange(cells))
    picked: Ints = kept[order[first[cell] + rank]]
    return picked
