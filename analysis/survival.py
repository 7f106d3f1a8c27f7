"""What share of waits lasts longer than t, open waits included?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


EXACT = 1 << 22
"""Waits whose lengths are all kept. Those of more are counted in steps of less than `STEP`."""
STEP = 0.001


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

    Of more than 4,194,304 waits a row is a step of lengths, less than 0.1 % wide, instead of one
    length, and `wait` is the greatest in it. `survival` is what it would be with a row for each
    length if no wait was cut within a step.
    """
    if not 0 < confidence < 1:
        raise UsageError(f"confidence {confidence}", "a number between 0 and 1", "as in 0.95")
    grouping = Grouping(trace, by, where)
    names = grouping.by
    groups = wait_lengths(grouping)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    keys = grouping.keys()
    none = np.zeros(0, dtype=np.int64)
    frames = [keys.clear().hstack(_curve(Lengths(none, none, none), z))]
    for i, lengths in enumerate(groups):
        curve = _curve(lengths, z)
        key = [pl.lit(keys[name][i], dtype=keys.schema[name]).alias(name) for name in names]
        frames.append(curve.select(*key, pl.all()))
    return pl.concat(frames)


@dataclass(frozen=True)
class Lengths:
    """Waits of one group by length: parallel arrays, lengths ascending, each once.

    `ended` and `cut` say how many waits were complete at this length, and how many were cut at it.
    """

    wait: Ints
    ended: Ints
    cut: Ints


def lengths_of(ended: Ints, cut: Ints) -> Lengths:
    """Complete waits and cut ones, in any order."""
    wait = np.concatenate([ended, cut])
    number = np.repeat([0, 1], [len(ended), len(cut)])
    return Lengths(*_each_length(np.zeros_like(wait), wait, number)[1:])


def wait_lengths(grouping: Grouping) -> list[Lengths]:
    """The lengths of each group's waits: exact of up to `EXACT` waits, and in steps of more."""
    held: list[tuple[Ints, Ints, Ints]] = []
    steps: list[tuple[Ints, Ints, Ints, Ints]] = []
    seen = waiting = 0
    for batch in grouping.batches(times=False):
        held.append((batch.group, batch.wait, batch.censored.astype(np.int64)))
        seen += len(batch.wait)
        waiting += len(batch.wait)
        if seen > EXACT and waiting > EXACT // 2:
            steps, held, waiting = [_in_steps(steps, held)], [], 0
    if seen > EXACT:
        code, *columns = _in_steps(steps, held)
        group = code >> _BITS
    else:
        group, *columns = _each_length(*_joined(held))
    ends = np.searchsorted(group, np.arange(1, len(grouping) + 1))
    parts = [np.split(column, ends)[:-1] for column in columns]
    return [Lengths(*part) for part in zip(*parts, strict=True)]


def _joined(held: Sequence[tuple[Ints, ...]]) -> list[Ints]:
    return [np.concatenate(parts) for parts in zip(*held, strict=True)]


def _each_length(group: Ints, wait: Ints, cut: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """One entry for each length of each group: both, how many ended at it, how many were cut."""
    bits = int(wait.max(initial=0)).bit_length() + 1
    if bits + int(group.max(initial=0)).bit_length() <= 63:
        # All in one number: sorting that is twice as fast as finding an order.
        packed = group << bits | wait << 1 | cut
        packed.sort()
        group, wait, cut = packed >> bits, packed >> 1 & (1 << bits - 1) - 1, packed & 1
    else:
        order = np.lexsort((wait, group))
        group, wait, cut = group[order], wait[order], cut[order]
    other = (np.diff(wait, prepend=-1) != 0) | (np.diff(group, prepend=-1) != 0)
    first = np.flatnonzero(other)
    if not len(first):
        return group, wait, cut, cut
    n = np.diff(first, append=len(wait))
    cuts = np.add.reduceat(cut, first)
    return group[first], wait[first], n - cuts, cuts


# Bits of a step's number beside its group's.
_BITS = 17


def _step(wait: Ints) -> Ints:
    """The number of each wait's step, read off a float's own bits: 1,024 to an octave."""
    bits: Ints = wait.astype(np.float64).view(np.int64) >> (52 - 10)
    number: Ints = np.maximum(bits - (1023 * 1024 - 1), 0)
    return number


def _in_steps(
    steps: Sequence[tuple[Ints, Ints, Ints, Ints]], held: Sequence[tuple[Ints, Ints, Ints]]
) -> tuple[Ints, Ints, Ints, Ints]:
    """One entry for each step of each group: a code of both, its length, how many ended and were
    cut in it.

    The length is the greatest that ended in it, and of a step in which none ended the greatest cut.
    """
    fresh = [(group << _BITS | _step(wait), wait, 1 - cut, cut) for group, wait, cut in held]
    step, wait, ended, cut = _joined([*steps, *fresh])
    order = np.argsort(step)
    step, wait, ended, cut = (column[order] for column in (step, wait, ended, cut))
    first = np.flatnonzero(np.diff(step, prepend=-1))
    greatest = np.maximum.reduceat(np.where(ended > 0, wait, -1), first)
    greatest = np.where(greatest < 0, np.maximum.reduceat(wait, first), greatest)
    return step[first], greatest, np.add.reduceat(ended, first), np.add.reduceat(cut, first)


def kaplan_meier_quantiles(lengths: Lengths, quantiles: Sequence[float]) -> list[int | None]:
    """The smallest waits by which the given shares have ended; None where never (ns)."""
    wait, _, _, _, share = _product_limit(lengths)
    found: list[int | None] = []
    for q in quantiles:
        # The product of many factors is off by some ulps.
        below = np.flatnonzero(share <= 1 - q + 1e-12)
        found.append(int(wait[below[0]]) if len(below) else None)
    return found


def _product_limit(lengths: Lengths) -> tuple[Ints, Ints, Ints, Ints, Floats]:
    """Lengths at which waits ended, how many were at risk, ended, and were cut from there to the
    next such length; and the share surviving."""
    some = np.flatnonzero(lengths.ended)
    # At risk: what has neither ended nor been cut before. A wait cut at t was still open at t.
    all_waits = int(lengths.ended.sum() + lengths.cut.sum())
    cut_before = np.cumsum(lengths.cut) - lengths.cut
    ended_before = np.cumsum(lengths.ended) - lengths.ended
    count: Ints = lengths.ended[some]
    at_risk: Ints = all_waits - ended_before[some] - cut_before[some]
    cuts: Ints = np.diff(np.append(cut_before[some], lengths.cut.sum()))
    # No cut so far: the exact fraction, without the product's rounding.
    share = np.cumprod(1 - count / at_risk)
    exact = 1 - (ended_before[some] + count) / max(all_waits, 1)
    share = np.where(cut_before[some] == 0, exact, share)
    wait: Ints = lengths.wait[some]
    surviving: Floats = share.astype(np.float64)
    return wait, at_risk, count, cuts, surviving


def _curve(lengths: Lengths, z: float) -> pl.DataFrame:
    wait, at_risk, count, n_censored, share = _product_limit(lengths)
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
