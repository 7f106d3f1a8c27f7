"""Which hosts stand out from the others?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from schedscope.analysis.sums.quantiles import at_share
from schedscope.fleets.intervals import CONFIDENCE, RESAMPLES, SEED, residual_means
from schedscope.fleets.measures import MEASURES, Floats, Host, comparable, hosts_of

LEAST_HOSTS = 8
"""Of fewer none can be said to stand out."""
CUT = 3.5
"""Robust scores beyond this are outliers (Iglewicz and Hoaglin, How to Detect and Handle Outliers,
1993)."""
LEAST_RATIO = 1.25
"""A host nearer to the median host than this, or its inverse, is no outlier, however alike the
others are: 0.80 to 1.25 is the range within which two averages compared by their ratio are
conventionally called equivalent (FDA, Statistical Approaches to Establishing Bioequivalence,
2001)."""
_NORMAL = 0.6744897501960817
"""The median absolute deviation of a standard normal."""

_SCHEMA = {
    "host": pl.String,
    "release": pl.String,
    "measure": pl.String,
    "n_traces": pl.Int64,
    "value": pl.Float64,
    "ratio": pl.Float64,
    "lower": pl.Float64,
    "upper": pl.Float64,
    "score": pl.Float64,
    "verdict": pl.String,
}


def outliers(
    table: pl.DataFrame,
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> pl.DataFrame:
    """One row per host and measure: how far it is from the median host.

    * `value`: the geometric mean of the measure over the host's traces; `ratio`: that over the
      median host's, with its 95 % interval from `lower` to `upper`, in which is what missing events
      may add (null where too few hosts have several traces to estimate how they vary);
    * `score`: the distance in robust standard deviations, on a logarithmic scale;
    * `verdict`: `more` or `less` where the score is beyond 3.5, the ratio above 1.25 or below 0.80,
      and the whole interval beyond both; `perhaps more` or `perhaps less` where the interval is
      not or there is none; else empty.

    Rows are in order of `score`, the largest first. Empty with fewer than eight hosts.
    """
    traces = comparable(table)
    hosts = hosts_of(traces)
    if len(hosts) < LEAST_HOSTS:
        return pl.DataFrame(schema=_SCHEMA)
    releases = dict(
        traces.group_by("host")
        .agg(pl.col("release").drop_nulls().unique().sort().str.join(", "))
        .iter_rows()
    )
    means = np.array([host.mean for host in hosts])
    centre = np.median(means, axis=0)
    # What events that are missing may add to the median host's.
    more = np.median(means + np.array([host.slack for host in hosts]), axis=0) - centre
    spread = _spread(means, centre)
    drawn = residual_means(hosts, resamples, seed)
    middle = _medians(means, resamples, seed + 1)
    rows = []
    for column, measure in enumerate(MEASURES):
        apart = means[:, column] - centre[column]
        score = apart / spread[column] if spread[column] else np.zeros(len(hosts))
        beyond = max(CUT * float(spread[column]), math.log(LEAST_RATIO))
        for number, host in enumerate(hosts):
            low, high = None, None
            if drawn is not None:
                ends = _ends(host, apart[number], column, drawn, middle[:, column] - centre[column])
                low = float(ends[0]) - more[column]
                high = float(ends[1]) + host.slack[column]
            rows.append(
                {
                    "host": host.name,
                    "release": releases[host.name] or None,
                    "measure": measure,
                    "n_traces": len(host.values),
                    "value": float(np.exp(means[number, column])),
                    "ratio": float(np.exp(apart[number])),
                    "lower": None if low is None else float(np.exp(low)),
                    "upper": None if high is None else float(np.exp(high)),
                    "score": float(score[number]),
                    "verdict": _verdict(float(apart[number]), low, high, beyond),
                }
            )
    return pl.DataFrame(rows, schema=_SCHEMA).sort(
        "score", "host", "measure", descending=[True, False, False]
    )


def by_chance(hosts: int, seed: int = SEED) -> float:
    """The share of rows that are beyond the score's limit although all hosts are alike.

    Simulated for this many hosts, whose logarithms are normal: the median and the deviation of a
    few hosts vary so much themselves that scores beyond 3.5 are far commoner than with many, of
    which 0.05 % have one. The limit of the ratio can only make it less.

    >>> 0.02 < by_chance(8) < 0.025, 0.0008 < by_chance(100) < 0.0014
    (True, True)
    """
    # As many fleets as give the share to some per cent of itself, a row for each.
    fleets = max(100, _SIMULATED // hosts)
    means = np.random.default_rng(seed).standard_normal((hosts, fleets))
    centre = np.median(means, axis=0)
    return float((np.abs(means - centre) > CUT * _spread(means, centre)).mean())


_SIMULATED = 400_000
"""Hosts that `by_chance` draws."""


def _spread(means: Floats, centre: Floats) -> Floats:
    """A robust standard deviation; by the mean deviation where over half of the hosts are equal."""
    deviation = np.abs(means - centre)
    median = np.median(deviation, axis=0) / _NORMAL
    found: Floats = np.where(median > 0, median, deviation.mean(axis=0) * np.sqrt(np.pi / 2))
    return found


def _medians(means: Floats, resamples: int, seed: int) -> Floats:
    """The median host's, in resamples of the hosts."""
    rng = np.random.default_rng(seed)
    found = np.empty((resamples, means.shape[1]))
    for number in range(resamples):
        found[number] = np.median(means[rng.integers(len(means), size=len(means))], axis=0)
    return found


def _ends(
    host: Host, apart: float, column: int, drawn: dict[int, Floats], middle: Floats
) -> Sequence[float]:
    ordered = np.sort(apart - drawn[len(host.values)][:, column] - middle)
    return [at_share(ordered, share) for share in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)]


def _verdict(apart: float, low: float | None, high: float | None, beyond: float) -> str:
    """`apart` and the ends of its interval are logarithms of ratios to the median host."""
    if abs(apart) <= beyond:
        return ""
    way = "more" if apart > 0 else "less"
    near = low if apart > 0 else high
    sure = near is not None and abs(near) > beyond and (near > 0) == (apart > 0)
    return way if sure else f"perhaps {way}"
