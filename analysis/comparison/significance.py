"""Is a difference more than noise? Between repeated runs, or within one pair of them."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from schedscope.analysis._base.quantiles import rank, shares_of
from schedscope.extras import missing

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
        return float(_special().stdtrit(self.df, 0.5 + confidence / 2)) * self.error


def between_runs(a: Floats, b: Floats) -> Test | None:
    """Welch's test of the means of repeated runs, and the Mann-Whitney test beside it.

    None if that cannot be done: fewer than two runs on a side, or no spread on either side
    although they differ, of which no probability follows.
    """
    if len(a) < 2 or len(b) < 2:
        return None
    stats = _stats()
    difference = float(b.mean() - a.mean())
    # Equal numbers have a mean that may be off by an ulp, and a spread of as much.
    spread_a = 0.0 if a.min() == a.max() else float(a.var(ddof=1))
    spread_b = 0.0 if b.min() == b.max() else float(b.var(ddof=1))
    delta = cliffs_delta(a, b)
    if spread_a == spread_b == 0:
        if a[0] != b[0]:
            return None
        return Test(0.0, 0.0, len(a) + len(b) - 2, 1.0, 1.0, None, delta)
    with warnings.catch_warnings():
        # SciPy warns of a side without spread, for which the test is good nevertheless.
        warnings.simplefilter("ignore", RuntimeWarning)
        welch = stats.ttest_ind(b, a, equal_var=False)
        ranks = mann_whitney(a, b)
    df = len(a) + len(b) - 2
    pooled = math.sqrt(((len(a) - 1) * spread_a + (len(b) - 1) * spread_b) / df)
    # Hedges: what a small sample makes of Cohen's d is too large.
    hedges = difference / pooled * (1 - 3 / (4 * df - 1))
    error = math.sqrt(spread_a / len(a) + spread_b / len(b))
    return Test(difference, error, float(welch.df), float(welch.pvalue), ranks, hedges, delta)


def mann_whitney(a: Floats, b: Floats) -> float:
    """Two-sided p of the Mann-Whitney test; exact with few runs, equal values or not.

    SciPy is exact without equal values only, and its normal approximation is too sure of a few:
    of two sets of three it says 0.047, where the least that can happen is 0.1.

    >>> mann_whitney(np.array([1.0, 1, 1]), np.array([2.0, 2, 2]))
    0.1
    """
    both = np.concatenate([a, b])
    ways = math.comb(len(both), len(a))
    if len(np.unique(both)) == len(both) or ways > _WAYS:
        return float(_stats().mannwhitneyu(b, a).pvalue)
    # Twice the mean rank of equal values: whole numbers, so that sums of ranks are exact.
    ranks = np.rint(2 * _stats().rankdata(both)).astype(np.int64)
    sums = ranks[_divisions(len(both), len(a))].sum(axis=1)
    found = ranks[: len(a)].sum()
    return min(1.0, 2 * min(int((sums <= found).sum()), int((sums >= found).sum())) / ways)


_WAYS = math.comb(16, 8)
"""Ways to divide all runs into two sets up to which each is tried: those of eight runs a side."""


@lru_cache(maxsize=4)
def _divisions(n: int, first: int) -> Ints:
    """Each way to choose `first` of `n` runs, in rows."""
    return np.array(list(combinations(range(n), first)))


def between_blocks(
    value_a: float, value_b: float, a: Floats, b: Floats, blocks: int
) -> Test | None:
    """A pair of recordings, by what resampled blocks of each would have given.

    `a` and `b` have the measure of each resample. The standard errors are theirs, with the
    factor that the variance of few blocks is short of; as many degrees of freedom as
    there are blocks on both sides less two. None if all resamples of each side are the same
    although the sides differ: of no spread no probability follows.
    """
    df = 2 * (blocks - 1)
    short = blocks / (blocks - 1)
    difference = value_b - value_a
    error = math.sqrt(short * (float(a.var()) + float(b.var())))
    if error == 0:
        return Test(0.0, 0.0, df, 1.0) if difference == 0 else None
    p = 2 * float(_special().stdtr(df, -abs(difference) / error))
    return Test(difference, error, df, p)


def cliffs_delta(a: Floats, b: Floats) -> float:
    """How much likelier one of `b` is above one of `a` than below it: -1 to 1, 0 if equally.

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


def _stats() -> Any:
    try:
        from scipy import stats
    except ImportError as error:
        raise missing("scipy") from error
    return stats


def _special() -> Any:
    try:
        from scipy import special
    except ImportError as error:
        raise missing("scipy") from error
    return special
