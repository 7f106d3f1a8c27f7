"""What share of waits lasts longer than t, open waits included?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from schedscope.analysis.asking.by import By
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.survival.interval import BLOCKS, Steps, block_variances, student
from schedscope.analysis.waits.grouping import Grouping
from schedscope.errors import UsageError

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.store.trace import Trace

    Ints = npt.NDArray[np.int64]
    Codes = npt.NDArray[np.uint32]
    Floats = npt.NDArray[np.float64]
    _Steps = tuple[Ints, Ints, Ints, Ints]


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

    Returns the columns of `by`, and `wait` (ns), `n_at_risk` (waits at least this long), `n_ended`
    (ended at this length), `n_censored` (were cut at this length or later, but before that of the
    next row), `survival` (share of waits longer than `wait`), and `lower`, `upper`: the pointwise
    confidence interval on the log-minus-log scale (Kalbfleisch and Prentice, 1980), null where it
    is not defined (`survival` 0). Waits that begin close in time are alike, so the interval is the
    wider of two: by Greenwood's variance, which takes all waits as independent, and by the
    variance between 32 blocks of time. Both are about this recording's time, not about other runs.

    With more than 4,194,304 waits, a row stands for a range of lengths less than 0.1 % wide instead
    of one length, and `wait` is the greatest in it. `survival` is the same as with a row for each
    length if no wait was cut within a range.
    """
    if not isinstance(confidence, Real) or not 0 < confidence < 1:
        raise UsageError(f"confidence {confidence!r}", "a number between 0 and 1", "as in 0.95")
    grouping = Grouping(trace, by, where)
    names = grouping.by
    groups = wait_lengths(grouping)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    keys = grouping.keys()
    none = np.zeros(0, dtype=np.int64)
    frames = [keys.clear().hstack(_curve(Lengths(none, none, none), z, np.zeros(0)))]
    steps = [Steps(one.wait, _at_risk(one), one.ended) for one in groups]
    variances = block_variances(grouping, steps, trace.window)
    for i, (lengths, variance) in enumerate(zip(groups, variances, strict=True)):
        curve = _curve(lengths, z, variance)
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
    codes = np.repeat(np.array([0, 1], np.uint32), [len(ended), len(cut)])
    return Lengths(*_each_length([codes], [ended, cut])[1:])


def wait_lengths(grouping: Grouping) -> list[Lengths]:
    """The lengths of each group's waits: exact of up to `EXACT` waits, and in steps of more."""
    codes: list[Codes] = []
    waits: list[Ints] = []
    steps: _Steps | None = None
    seen = waiting = 0
    for batch in grouping.batches(times=False):
        # Its group, and whether it was cut: with its length, 12 bytes for each wait.
        whose = batch.group.to_numpy().astype(np.uint32) << np.uint32(1)
        codes.append(whose | batch.censored.to_numpy().astype(np.uint32))
        waits.append(batch.wait.to_numpy())
        seen += len(batch.wait)
        waiting += len(batch.wait)
        # Merge only many at a time: each merge sorts all steps again.
        if seen > EXACT and waiting > (0 if steps is None else len(steps[0])):
            steps, waiting = _added(steps, codes, waits), 0
    if seen > EXACT:
        code, *columns = _added(steps, codes, waits)
        group = code >> _BITS
    else:
        group, *columns = _each_length(codes, waits)
    ends = np.searchsorted(group, np.arange(1, len(grouping) + 1))
    parts = [np.split(column, ends)[:-1] for column in columns]
    return [Lengths(*part) for part in zip(*parts, strict=True)]


def _each_length(codes: list[Codes], waits: list[Ints]) -> tuple[Ints, Ints, Ints, Ints]:
    """One entry for each length of each group: both, how many ended at it, how many were cut.

    Takes the lists' entries away, so that millions of waits are not there twice.
    """
    wait, code = _taken(waits), _taken(codes)
    bits = int(wait.max(initial=0)).bit_length() + 1
    if bits + int(code.max(initial=0)).bit_length() <= 64:
        # All in one number: sorting that is twice as fast as finding an order.
        wait <<= 1
        wait |= code & 1
        wait |= (code >> 1).astype(np.int64) << bits
        del code
        wait.sort()
        cut = wait & 1
        wait >>= 1
        first = _changes(wait)
        group, wait = wait[first] >> bits - 1, wait[first] & (1 << bits - 1) - 1
    else:
        order = np.lexsort((wait, code >> 1))
        wait, code = wait[order], code[order]
        cut = (code & 1).astype(np.int64)
        first = np.union1d(_changes(wait), _changes(code >> 1))
        group, wait = (code[first] >> 1).astype(np.int64), wait[first]
    if not len(first):
        return group, wait, wait, wait
    n = np.diff(first, append=len(cut))
    cuts = np.add.reduceat(cut, first)
    return group, wait, n - cuts, cuts


def _changes(values: npt.NDArray[Any]) -> Ints:
    """Where a value differs from the one before."""
    other = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=other[1:])
    return np.flatnonzero(other)


def _taken(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """All of the parts in one array; the list is empty afterwards."""
    joined = np.concatenate(parts)
    parts.clear()
    return joined


# Bits of a step's number beside its group's.
_BITS = 17


def _step(wait: Ints) -> Ints:
    """The number of each wait's step, read off a float's own bits: 1,024 to an octave."""
    bits: Ints = wait.astype(np.float64).view(np.int64) >> (52 - 10)
    number: Ints = np.maximum(bits - (1023 * 1024 - 1), 0)
    return number


def _added(steps: _Steps | None, codes: list[Codes], waits: list[Ints]) -> _Steps:
    """These steps with the waits in the lists, whose entries it takes away."""
    found = [] if steps is None else [steps]
    while waits:
        wait, code = waits.pop(), codes.pop()
        step = (code >> 1).astype(np.int64) << _BITS | _step(wait)
        cut = (code & 1).astype(np.int64)
        found.append(_in_steps(step, wait, 1 - cut, cut))
    return _in_steps(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _in_steps(step: Ints, wait: Ints, ended: Ints, cut: Ints) -> _Steps:
    """One entry for each step of each group: a code of both, its length, how many ended and were
    cut in it.

    The length is the greatest that ended in it, and of a step in which none ended the greatest cut.
    """
    order = np.argsort(step)
    step, wait, ended, cut = (column[order] for column in (step, wait, ended, cut))
    first = _changes(step)
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


def _at_risk(lengths: Lengths) -> Ints:
    """Waits that have neither ended nor been cut before. One cut at t was still open at t."""
    gone = lengths.ended + lengths.cut
    at_risk: Ints = gone[::-1].cumsum()[::-1]
    return at_risk


def _product_limit(lengths: Lengths) -> tuple[Ints, Ints, Ints, Ints, Floats]:
    """Lengths at which waits ended, how many were at risk, ended, and were cut from there to the
    next such length; and the share surviving."""
    some = np.flatnonzero(lengths.ended)
    all_waits = int(lengths.ended.sum() + lengths.cut.sum())
    cut_before = np.cumsum(lengths.cut) - lengths.cut
    ended_before = np.cumsum(lengths.ended) - lengths.ended
    count: Ints = lengths.ended[some]
    at_risk = _at_risk(lengths)[some]
    cuts: Ints = np.diff(np.append(cut_before[some], lengths.cut.sum()))
    # No cut so far: the exact fraction, without the product's rounding.
    share = np.cumprod(1 - count / at_risk)
    exact = 1 - (ended_before[some] + count) / max(all_waits, 1)
    share = np.where(cut_before[some] == 0, exact, share)
    wait: Ints = lengths.wait[some]
    surviving: Floats = share.astype(np.float64)
    return wait, at_risk, count, cuts, surviving


def _curve(lengths: Lengths, z: float, by_block: Floats) -> pl.DataFrame:
    """The rows of one group; `by_block` has the variance between blocks at each of its lengths."""
    wait, at_risk, count, n_censored, share = _product_limit(lengths)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.cumsum(count / (at_risk * (at_risk - count).astype(np.float64)))
        alike = student(z, BLOCKS - 1) * np.sqrt(by_block[lengths.ended > 0])
        spread = np.maximum(z * np.sqrt(variance), alike) / np.log(share)
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
