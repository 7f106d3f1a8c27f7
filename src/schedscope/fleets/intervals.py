"""Intervals of what hosts do, from resamples of hosts and of their traces.

Traces of one host are alike, so many traces of few hosts say less than as many hosts would. The
hierarchical bootstrap keeps that: it draws hosts, with replacement, and of each drawn host as many
traces as it has, with replacement (Davison and Hinkley, Bootstrap Methods and their Application,
1997, section 3.8). The percentiles are widened for few hosts as Hesterberg proposes (What Teachers
Should Know About the Bootstrap, American Statistician 69, 2015, section 5.3): the spread by
sqrt(n / (n - 1)), the normal by Student's t.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from schedscope.analysis.comparison.t_distribution import quantile
from schedscope.analysis.sums.quantiles import at_share
from schedscope.fleets.measures import Floats, Host

CONFIDENCE = 0.95
RESAMPLES = 2_000
MOST_RESAMPLES = 20_000
SEED = 0


def resamples_for(comparisons: int) -> int:
    """Enough that the tail of an interval for so many comparisons at once holds ten of them.

    >>> resamples_for(1), resamples_for(12), resamples_for(1000)
    (2000, 4800, 20000)
    """
    return min(MOST_RESAMPLES, max(RESAMPLES, 400 * comparisons))


def group_means(hosts: Sequence[Host], resamples: int, seed: int) -> Floats:
    """The mean of the hosts' means in each resample: a row each, a column for each measure."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(hosts), size=(resamples, len(hosts)))
    total = np.zeros((resamples, hosts[0].values.shape[1]))
    for number, host in enumerate(hosts):
        resample, _ = np.nonzero(drawn == number)
        n = len(host.values)
        # As many traces as it has, each time it is drawn; in parts, or 1,000 traces take 1 GB.
        step = max(1, 1_000_000 // n)
        for first in range(0, len(resample), step):
            part = resample[first : first + step]
            picked = rng.integers(n, size=(len(part), n))
            np.add.at(total, part, host.values[picked].mean(axis=1))
    means: Floats = total / len(hosts)
    return means


def difference(
    a: Sequence[Host], b: Sequence[Host], drawn_a: Floats, drawn_b: Floats, confidence: float
) -> tuple[Floats, Floats, Floats]:
    """b - a and its interval, for each measure; `drawn_a` and `drawn_b` are their `group_means`.

    What events that are missing may add to either is in the interval.
    """
    centre_a, centre_b = (np.mean([host.mean for host in side], axis=0) for side in (a, b))
    wide_a, wide_b = (
        (drawn - drawn.mean(axis=0)) * np.sqrt(len(side) / (len(side) - 1))
        for side, drawn in ((a, drawn_a), (b, drawn_b))
    )
    spread_a, spread_b = wide_a.var(axis=0), wide_b.var(axis=0)
    both = spread_a + spread_b
    parts = spread_a**2 / (len(a) - 1) + spread_b**2 / (len(b) - 1)
    # Welch's degrees of freedom; where nothing varies there is nothing to widen.
    freedom = np.where(parts > 0, both**2 / np.where(parts > 0, parts, 1), np.inf)
    shares = [tail(confidence, float(df)) for df in freedom]
    centre = centre_b - centre_a
    apart = wide_b - wide_a
    ordered = np.sort(apart, axis=0).T
    low = np.array([at_share(of, share) for of, share in zip(ordered, shares, strict=True)])
    high = np.array([at_share(of, 1 - share) for of, share in zip(ordered, shares, strict=True)])
    more_a, more_b = (np.mean([host.slack for host in side], axis=0) for side in (a, b))
    return centre, centre + low - more_a, centre + high + more_b


def tail(confidence: float, freedom: float) -> float:
    """The share of resamples below an interval: a normal's where Student's t ends.

    >>> round(tail(0.95, float("inf")), 4), round(tail(0.95, 9), 4)
    (0.025, 0.0118)
    """
    if not np.isfinite(freedom):
        return (1 - confidence) / 2
    return NormalDist().cdf(-quantile(confidence, freedom))


def residual_means(hosts: Sequence[Host], resamples: int, seed: int) -> dict[int, Floats] | None:
    """How far the mean of n traces of a host may lie from the host's: a column for each measure.

    By the number of traces n. Residuals of all hosts together are drawn, widened for the mean that
    was taken off; so hosts are taken to vary alike from trace to trace. None with fewer than ten
    traces beyond each host's first.
    """
    several = [host for host in hosts if len(host.values) > 1]
    if sum(len(host.values) - 1 for host in several) < LEAST_RESIDUALS:
        return None
    residuals = np.concatenate(
        [
            (host.values - host.mean) * np.sqrt(len(host.values) / (len(host.values) - 1))
            for host in several
        ]
    )
    rng = np.random.default_rng(seed)
    found = {}
    for n in sorted({len(host.values) for host in hosts}):
        total = np.zeros((resamples, residuals.shape[1]))
        for _ in range(n):
            total += residuals[rng.integers(len(residuals), size=resamples)]
        found[n] = total / n
    return found


LEAST_RESIDUALS = 10
