"""Bounds of quantiles over waits of which some, of unknown lengths, are not shown.

A group has waits that are shown, and others of which it has at most so many: `once` may each be as
long as it says, and `most` are anywhere in some stretches of time, several in each perhaps. Of a
stretch of length L at most `L // v` of them are as long as v. A quantile can be as large as v if,
together with all that may be as long, enough waits are. It is least if all of these are 0 ns long.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from schedscope.analysis.sums.quantiles import rank
from schedscope.store.losses import FASTEST

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Hidden:
    """Waits of a group that the trace may not show.

    >>> hidden = Hidden(np.array([]), np.array([30]), most=3)
    >>> shown = np.array([5, 10, 20, 40])
    >>> hidden.least(shown, Fraction(1, 2)), hidden.greatest(shown, Fraction(1, 2))
    (5, 20)
    """

    once: Ints
    stretches: Ints
    most: int

    @property
    def n(self) -> int:
        """How many these are at most."""
        return self.most + len(self.once)

    def least(self, shown: Ints, share: Fraction) -> int | None:
        """The least that a quantile of these and `shown`, in ascending order, can be."""
        if not len(shown) + self.n:
            return None
        at = rank(len(shown) + self.n, share) - self.n
        return int(shown[at]) if at >= 0 else 0

    def greatest(self, shown: Ints, share: Fraction) -> int | None:
        """The most that it can be."""
        own = rank(len(shown), share)
        low = int(shown[own]) if own >= 0 else -1
        high = max((int(values.max()) for values in (shown, self.once, self.stretches)
                    if len(values)), default=-1)  # fmt: skip
        while low < high:
            value = low + (high - low + 1) // 2
            parts = int((self.stretches // max(value, 1)).sum())
            more = min(self.most, parts) + int((self.once >= value).sum())
            if rank(len(shown) + more, share) >= np.searchsorted(shown, value):
                low = value
            else:
                high = value - 1
        return None if low < 0 else low


def hidden(once: pl.Series, stretches: pl.Series, most: int) -> Hidden:
    """Of a group; lengths in ns become those of upper bounds, which have a last bit."""
    room = int((stretches // FASTEST + 1).sum())
    return Hidden((once * 2).to_numpy(), (stretches * 2).to_numpy(), min(most, room))
