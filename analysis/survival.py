"""What share of waits lasts longer than t, open waits included?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from schedscope.analysis._base.by import By
from schedscope.analysis._base.grouping import Grouping
from schedscope.analysis._base.needs import needs
from schedscope.errors import UsageError

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.trace import Trace

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]


@needs("switches", "wakeups")
def survival(
    trace: Trace,
    *,
    by: By = "all",
    where: pl.Expr | None = None,
    confidence: float = 0.95,
) -> pl.DataFrame:
    """One row per distinct length of a complete wait: the share of waits that last longer.

    The product-limit estimate of Kaplan and Meier (JASA 53, 1958): waits that
    were still open when the window (or the trace before a hole) ended count
    as at risk up to the length they had reached. It assumes that the end of
    the observation had nothing to do with the length of the wait. Waits whose
    start was not recorded are left out (`latency` counts them).

    Returns the columns of `by`, and `wait` (ns), `n_at_risk` (waits at least
    this long), `n_ended` (ended at this length), `n_censored` (were cut at this
    length or after it, before the next row's), `survival` (share of waits longer than `wait`), and
    `lower`, `upper`: the pointwise confidence interval by Greenwood's variance on
    the log-minus-log scale (Kalbfleisch and Prentice, 1980). They are null where it
    is not defined (`survival` 0).
    """
    if not 0 < confidence < 1:
        raise UsageError(f"confidence {confidence}", "a number between 0 and 1", "as in 0.95")
    grouping = Grouping(trace, by, where)
    names = grouping.by
    ended, open_ = sorted_waits(grouping)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    keys = grouping.keys()
    none = np.zeros(0, dtype=np.int64)
    frames = [keys.clear().hstack(_curve(none, none, z))]
    for i, (done, cut) in enumerate(zip(ended, open_, strict=True)):
        curve = _curve(done, cut, z)
        key = [pl.lit(keys[name][i], dtype=keys.schema[name]).alias(name) for name in names]
        frames.append(curve.select(*key, pl.all()))
    return pl.concat(frames)


def sorted_waits(grouping: Grouping) -> tuple[list[Ints], list[Ints]]:
    """The complete and the open waits of each group, ascending; all in memory at once."""
    parts = list(grouping.batches())
    group = np.concatenate([batch.group for batch in parts])
    wait = np.concatenate([batch.wait for batch in parts])
    censored = np.concatenate([batch.censored for batch in parts])
    # Few groups: their numbers sort by counting, and each group's waits as plain integers.
    few = len(grouping) <= np.iinfo(np.uint16).max
    order = np.argsort(group.astype(np.uint16) if few else group, kind="stable")
    wait, censored = wait[order], censored[order]
    ends = np.cumsum(np.bincount(group, minlength=len(grouping)))
    # What is behind the last group's end is nobody's.
    groups = list(zip(np.split(wait, ends)[:-1], np.split(censored, ends)[:-1], strict=True))
    return (
        [np.sort(waits[~open_]) for waits, open_ in groups],
        [np.sort(waits[open_]) for waits, open_ in groups],
    )


def kaplan_meier_quantiles(
    ended: Ints, censored: Ints, quantiles: Sequence[float]
) -> list[int | None]:
    """The smallest waits by which the given shares have ended; None where never.

    Both arrays ascending, in ns.
    """
    wait, _, _, share = _product_limit(ended, censored)
    found: list[int | None] = []
    for q in quantiles:
        # The product of many factors is off by some ulps.
        below = np.flatnonzero(share <= 1 - q + 1e-12)
        found.append(int(wait[below[0]]) if len(below) else None)
    return found


def _product_limit(ended: Ints, censored: Ints) -> tuple[Ints, Ints, Ints, Floats]:
    """Distinct lengths, how many were at risk and ended at each, share surviving."""
    first = np.flatnonzero(np.diff(ended, prepend=-1))
    wait, count = ended[first], np.diff(first, append=len(ended))
    # At risk: what has neither ended nor been cut before. A wait cut at t was
    # still open at t.
    at_risk = len(ended) - first + len(censored) - np.searchsorted(censored, wait, side="left")
    # No cut so far: the exact fraction, without the product's rounding.
    share = np.cumprod(1 - count / at_risk)
    uncut = at_risk == len(ended) + len(censored) - first
    exact = 1 - (first + count) / (len(ended) + len(censored))
    return wait, at_risk, count, np.where(uncut, exact, share)


def _curve(ended: Ints, censored: Ints, z: float) -> pl.DataFrame:
    wait, at_risk, count, share = _product_limit(ended, censored)
    cuts = np.searchsorted(censored, wait, side="left")
    n_censored = np.diff(np.append(cuts, len(censored)))
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.cumsum(count / (at_risk * (at_risk - count).astype(np.float64)))
        spread = z * np.sqrt(variance) / np.log(share)
        lower, upper = share ** np.exp(-spread), share ** np.exp(spread)
    defined = (share > 0) & (share < 1)
    return pl.DataFrame(
        {
            "wait": pl.Series(wait, dtype=pl.Int64),
            "n_at_risk": pl.Series(at_risk, dtype=pl.UInt32),
            "n_ended": pl.Series(count, dtype=pl.UInt32),
            "n_censored": pl.Series(n_censored, dtype=pl.UInt32),
            "survival": pl.Series(share, dtype=pl.Float64),
            "lower": pl.Series(lower).set(pl.Series(~defined), None),
            "upper": pl.Series(upper).set(pl.Series(~defined), None),
        }
    )
