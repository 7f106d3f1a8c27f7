"""Statistics of the times of each group: how many, their sum, exact quantiles.

Read some rows at a time, so that memory grows with the groups and not with the times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from schedscope.analysis.sums.group_counts import GroupCounts
from schedscope.analysis.sums.quantiles import column_name

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.analysis.sums.sorted_groups import Pairs

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]


# Codes up to which a table, and no search, finds their numbers: 8 MB.
_TABLE = 1 << 20


def sums_by_code(
    batches: Callable[[], Iterable[Times]], shares: Sequence[Fraction]
) -> tuple[Ints, pl.DataFrame]:
    """The codes that occur, and a row for each: `n`, `total`, `mean`, a column per share, `max`,
    and what `counts` names.

    `batches` gives the same times whenever it is called.
    """
    numbers, sums = Numbers(), GroupSums()
    for times in batches():
        group = numbers.of(times.code)
        sums.add(group, times, len(numbers))

    def whole() -> Iterator[tuple[pl.Series, pl.Series]]:
        for times in batches():
            group = numbers.of(times.code[times.whole])
            yield pl.Series(group), pl.Series(times.time[times.whole])

    return numbers.codes(), sums.frame(shares, whole)


@dataclass(frozen=True)
class Times:
    """Some times, each with a code that says whose it is: parallel arrays.

    `whole` are those seen from start to end; of the others the length is not looked at. `counts`:
    columns that say how many of each code have some mark.
    """

    code: Ints
    time: Ints
    whole: Bools
    counts: Mapping[str, Bools]


class Numbers:
    """Numbers 0, 1, ... for whole numbers of any size, in the order in which they appear."""

    def __init__(self) -> None:
        """Nothing has a number yet."""
        # Number by code while codes are small, then in order of code.
        self._table: Ints | None = np.full(_TABLE, -1)
        self._codes = np.zeros(0, dtype=np.int64)
        self._numbers = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        """How many have a number."""
        return len(self._codes)

    def of(self, codes: Ints) -> Ints:
        """The number of each value; new ones get the next numbers."""
        if self._table is not None and int(codes.max(initial=0)) < _TABLE:
            found = self._table[codes]
            if int(found.min(initial=0)) < 0:
                self._add(np.unique(codes[found < 0]))
                found = self._table[codes]
            return found
        self._table = None
        distinct, inverse = np.unique(codes, return_inverse=True)
        place = np.searchsorted(self._codes, distinct)
        known = np.zeros(len(distinct), dtype=np.bool_)
        inside = place < len(self._codes)
        known[inside] = self._codes[place[inside]] == distinct[inside]
        if not known.all():
            self._add(distinct[~known])
            place = np.searchsorted(self._codes, distinct)
        numbers: Ints = self._numbers[place][inverse]
        return numbers

    def _add(self, fresh: Ints) -> None:
        """Numbers for codes that have none, in ascending order."""
        numbers = np.arange(len(fresh)) + len(self._codes)
        if self._table is not None:
            self._table[fresh] = numbers
        place = np.searchsorted(self._codes, fresh)
        self._numbers = np.insert(self._numbers, place, numbers)
        self._codes = np.insert(self._codes, place, fresh)

    def codes(self) -> Ints:
        """The values that have a number, in order of it."""
        ordered = np.empty_like(self._codes)
        ordered[self._numbers] = self._codes
        return ordered


class GroupSums:
    """Sums, and counts for exact quantiles, of times in groups that are numbered as they appear."""

    def __init__(self) -> None:
        """No times yet."""
        self._counts = GroupCounts()
        self._total = np.zeros(0, dtype=np.int64)
        self._marked: dict[str, Ints] = {}

    def add(self, group: Ints, times: Times, groups: int) -> None:
        """Some times, and the number of each one's group, below `groups`."""
        for name, marked in times.counts.items():
            counted = np.bincount(group[marked], minlength=groups)
            before = self._marked.get(name, counted[:0])
            counted[: len(before)] += before
            self._marked[name] = counted
        group, time = group[times.whole], times.time[times.whole]
        self._counts.add(pl.Series(group), pl.Series(time), groups)
        if int(time.max(initial=0)) * len(time) < 1 << 53:  # exact in floating point
            sums = np.bincount(group, weights=time, minlength=groups).astype(np.int64)
            sums[: len(self._total)] += self._total
            self._total = sums
        else:
            self._total = np.pad(self._total, (0, groups - len(self._total)))
            np.add.at(self._total, group, time)

    def frame(self, shares: Sequence[Fraction], pairs: Pairs) -> pl.DataFrame:
        """A row per group; `pairs` gives all whole times again."""
        n = self._counts.n
        *found, most = self._counts.at([*shares, Fraction(1)], pairs)
        total = pl.Series(self._total)
        return pl.DataFrame(
            {
                "n": n.cast(pl.UInt32),
                "total": total,
                "mean": total / n.set(n == 0, None),
                **{column_name(s): values for s, values in zip(shares, found, strict=True)},
                "max": most,
                **{name: pl.Series(sums, dtype=pl.UInt32) for name, sums in self._marked.items()},
            }
        )
