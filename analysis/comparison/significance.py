"""Is a difference more than noise? Between repeated runs, or within one pair of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from schedscope.analysis.comparison.t_distribution import quantile, two_sided
from schedscope.analysis.sums.quantiles import rank, shares_of

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

EXACT = 2048
"""Up to so many distinct waits a resample's quantiles are exact; beyond, waits share bins."""


@dataclass(frozen=True)
class Test:
    """A difference `b - a`, its standard error and what decides whether it is noise."""

    difference: float
    error: float
    df: float
    p: float
    p_rank: float | None = None
    hedges_g: float | None = None
    cliffs_delta: float | None = None

    def margin(self, confidence: float) -> float:
        """Half the width of the interval at this confidence, by Student's t."""
        if self.error == 0:
            return 0.0
        return quantile(confidence, self.df) * self.error


def between_runs(a: Floats, b: Floats) -> Test | None:
    """Welch's test of the means of repeated runs, and the Mann-Whitney test beside it.

    None if no test is possible: fewer than two runs on a side, or no spread on either side although
    they differ.
    """
    if len(a) < 2 or len(b) < 2:
        return None
    difference = float(b.mean() - a.mean())
    # Equal numbers have a mean that may be off by an ulp, and a spread of as much.
    spread_a = 0.0 if a.min() == a.max() else float(a.var(ddof=1))
    spread_b = 0.0 if b.min() == b.max() else float(b.var(ddof=1))
    delta = cliffs_delta(a, b)
    if spread_a == spread_b == 0:
        if a[0] != b[0]:
            return None
        return Test(0.0, 0.0, len(a) + len(b) - 2, 1.0, 1.0, None, delta)
    ranks = mann_whitney(a, b)
    df = len(a) + len(b) - 2
    pooled = math.sqrt(((len(a) - 1) * spread_a + (len(b) - 1) * spread_b) / df)
    # Hedges: what a small sample makes of Cohen's d is too large.
    hedges = difference / pooled * (1 - 3 / (4 * df - 1))
    of_a, of_b = spread_a / len(a), spread_b / len(b)
    error = math.sqrt(of_a + of_b)
    # Welch and Satterthwaite: fewer degrees of freedom, the more the spreads differ.
    freedom = (of_a + of_b) ** 2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))
    p = two_sided(difference / error, freedom)
    return Test(difference, error, freedom, p, ranks, hedges, delta)


def mann_whitney(a: Floats, b: Floats) -> float:
    """Two-sided p of the Mann-Whitney test; exact up to dozens of runs, equal values or not.

    Beyond them it is the normal approximation, corrected for equal values and for continuity. The
    approximation is too optimistic for small sets: for two sets of three it would give 0.047, where
    the smallest possible value is 0.1.

    >>> mann_whitney(np.array([1.0, 1, 1]), np.array([2.0, 2, 2]))
    0.1
    """
    both = np.concatenate([a, b])
    n, first = len(both), len(a)
    _, place, equal = np.unique(both, return_inverse=True, return_counts=True)
    # Twice the mean rank of equal values: whole numbers, so that sums of ranks are exact.
    ranks = (2 * np.cumsum(equal) - equal + 1)[place]
    found = int(ranks[:first].sum())
    if math.comb(n, first) < _WAYS:
        ways = _ways(tuple(np.sort(ranks).tolist()), first)
        below, above = int(ways[: found + 1].sum()), int(ways[found:].sum())
        return min(1.0, 2 * min(below, above) / math.comb(n, first))
    # By how much the sum of ranks is off its mean, less half a rank.
    off = abs(found - first * (n + 1)) / 2 - 0.5
    ties = float((equal**3 - equal).sum()) / (n * (n - 1))
    spread = math.sqrt(first * (n - first) / 12 * (n + 1 - ties))
    return min(1.0, 2 * NormalDist().cdf(-max(0.0, off) / spread)) if spread else 1.0


_WAYS = 2**53
"""Ways to divide all runs into two sets up to which each counts: a float has every number."""


@lru_cache(maxsize=64)
def _ways(ranks: tuple[int, ...], first: int) -> Floats:
    """By the sum of ranks: how many choices of `first` of these ranks have it."""
    most = sum(ranks[-first:])
    ways: Floats = np.zeros((first + 1, most + 1))
    ways[0, 0] = 1
    for rank_ in ranks:
        for chosen in range(first, 0, -1):
            ways[chosen, rank_:] += ways[chosen - 1, : most + 1 - rank_]
    of_all: Floats = ways[first]
    return of_all


def between_blocks(
    value_a: float, value_b: float, a: Floats, b: Floats, blocks: int
) -> Test | None:
    """The test of a pair of recordings, from resampled blocks of each.

    `a` and `b` have the measure of each resample. The standard errors are theirs, with the factor
    that the variance of few blocks is short of; as many degrees of freedom as there are blocks on
    both sides less two. None if all resamples of each side are the same although the sides differ:
    without spread there is no probability.
    """
    df = 2 * (blocks - 1)
    short = blocks / (blocks - 1)
    difference = value_b - value_a
    error = math.sqrt(short * (float(a.var()) + float(b.var())))
    if error == 0:
        return Test(0.0, 0.0, df, 1.0) if difference == 0 else None
    return Test(difference, error, df, two_sided(difference / error, df))


def cliffs_delta(a: Floats, b: Floats) -> float:
    """The probability that a value of `b` exceeds one of `a` minus that of the reverse: -1 to 1, 0
    if they are equal.

    >>> cliffs_delta(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    1.0
    """
    ordered = np.sort(a)
    above = np.searchsorted(ordered, b, side="left").sum()
    not_below = np.searchsorted(ordered, b, side="right").sum()
    return float(above + not_below) / (len(a) * len(b)) - 1


def multiplicities(blocks: int, resamples: int, seed: int) -> Floats:
    """How often each block is drawn: a row per resample, `blocks` draws with replacement."""
    chance = np.random.default_rng(seed)
    drawn = chance.multinomial(blocks, np.full(blocks, 1 / blocks), size=resamples)
    return drawn.astype(np.float64)


def resampled_quantiles(
    wait: Ints, block: Ints, drawn: Floats, quantiles: list[float]
) -> tuple[Floats, Floats]:
    """The nearest-rank quantiles of each resample, a column each; and their smallest waits.

    `wait` ascending with the block of each. A resample without any wait has NaN.
    """
    values, bin_of = np.unique(wait, return_inverse=True)
    if len(values) > EXACT:
        # Bins of equally many waits, and finer ones towards the longest.
        n = len(wait)
        tail = n - 1 - np.geomspace(1, n, EXACT // 2).astype(np.int64)
        marks = np.concatenate([np.linspace(0, n - 1, EXACT // 2).astype(np.int64), tail])
        values = np.unique(wait[np.clip(marks, 0, n - 1)])
        # A wait counts as the next larger mark; the last one is the maximum.
        bin_of = np.searchsorted(values, wait, side="left")
    blocks = drawn.shape[1]
    table = np.bincount(block * len(values) + bin_of, minlength=blocks * len(values))
    reached = np.cumsum(drawn @ table.reshape(blocks, -1).astype(np.float64), axis=1)
    total = reached[:, -1]
    found = np.full((len(drawn), len(quantiles)), np.nan)
    some = total > 0
    for i, q in enumerate(quantiles):
        (share,) = shares_of([q])
        wanted = rank(total.astype(np.int64), share) + 1
        at = (reached < wanted[:, None]).sum(axis=1)
        found[some, i] = values[at[some]]
    least = np.full(len(drawn), np.nan)
    least[some] = values[(reached[some] < 1).sum(axis=1)]
    return found, least
