"""Quantiles of waits from counts that can be added: those of a host, of a kernel, of everything.

A DDSketch (Masson, Rim and Lee, VLDB 2019, by the package `ddsketch`) counts waits in ranges whose
ends are a constant factor apart. The counts of two sketches add up to exactly the sketch of both
sets of waits, and every quantile is within `RELATIVE_ERROR` of the exact order statistic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from ddsketch import DDSketch
from ddsketch.mapping import LogarithmicMapping

from schedscope.analysis.sums.quantiles import rank, shares_of

if TYPE_CHECKING:
    import numpy.typing as npt

RELATIVE_ERROR = 0.01
"""A quantile q of a sketch lies between 0.99 and 1.01 times the exact one."""

_MAPPING = LogarithmicMapping(RELATIVE_ERROR)
_LOG_GAMMA = float(np.log(_MAPPING.gamma))


class Sketch:
    """How many waits lie in each range; `counts` has the ranges by number, `zero` waits of 0 ns."""

    def __init__(self, counts: dict[int, int], zero: int = 0) -> None:
        """Ranges that hold a wait, by their number; `of` counts waits."""
        self.counts = counts
        self.zero = zero
        self._sketch = DDSketch(RELATIVE_ERROR)
        if zero:
            self._sketch.add(0, zero)
        for key, n in counts.items():
            # The value that stands for the range lies in it.
            self._sketch.add(_MAPPING.value(key), n)

    @classmethod
    def of(cls, waits: npt.NDArray[np.int64]) -> Sketch:
        """The sketch of waits in ns, of which none is negative."""
        positive = waits[waits > 0]
        # The package's own rule, for all waits at once.
        keys = np.ceil(np.log(positive.astype(np.float64)) / _LOG_GAMMA).astype(np.int64)
        number, n = np.unique(keys, return_counts=True)
        counts = dict(zip(number.tolist(), n.tolist(), strict=True))
        return cls(counts, int(len(waits) - len(positive)))

    @classmethod
    def merged(cls, sketches: Iterable[Sketch]) -> Sketch:
        """The sketch of all their waits together.

        >>> a, b = np.array([0, 5, 900]), np.array([7, 1_000_000])
        >>> both = Sketch.of(np.concatenate([a, b]))
        >>> Sketch.merged([Sketch.of(a), Sketch.of(b)]).counts == both.counts
        True
        """
        counts: dict[int, int] = {}
        zero = 0
        for sketch in sketches:
            zero += sketch.zero
            for key, n in sketch.counts.items():
                counts[key] = counts.get(key, 0) + n
        return cls(dict(sorted(counts.items())), zero)

    @property
    def n(self) -> int:
        """Waits counted, exactly."""
        return self.zero + sum(self.counts.values())

    def wait_at(self, share: float) -> float | None:
        """The wait that `share` of all do not exceed, by nearest rank as in `latency`; None if
        there is none.

        >>> sketch = Sketch.of(np.arange(1, 1001))
        >>> abs(sketch.wait_at(0.99) - 990) <= 0.01 * 990
        True
        """
        if not self.n:
            return None
        if self.n == 1:
            return float(self._sketch.get_quantile_value(0))
        (exact,) = shares_of([share])
        # Half a rank more, so that rounding in the package does not take the one below.
        at = (rank(self.n, exact) + 0.5) / (self.n - 1)
        return float(self._sketch.get_quantile_value(min(1.0, at)))

    def to_json(self) -> dict[str, Any]:
        """As it is kept; `from_json` reads it."""
        return {
            "relative_error": RELATIVE_ERROR,
            "zero": self.zero,
            "ranges": list(self.counts),
            "counts": list(self.counts.values()),
        }

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Sketch:
        """The sketch that `to_json` wrote."""
        return cls(dict(zip(kept["ranges"], kept["counts"], strict=True)), int(kept["zero"]))
