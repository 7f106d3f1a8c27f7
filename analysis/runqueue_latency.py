"""How long did threads wait for a CPU?"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl

from schedscope.analysis.grouping import Grouped, group_waits
from schedscope.analysis.survival import kaplan_meier_quantiles
from schedscope.errors import UsageError
from schedscope.units import nanoseconds

if TYPE_CHECKING:
    from schedscope.trace import Trace

QUANTILES = (0.5, 0.9, 0.99, 0.999)


def runqueue_latency(
    trace: Trace,
    *,
    by: str | Sequence[str] | None = None,
    where: pl.Expr | None = None,
    every: str | int | None = None,
    quantiles: Sequence[float] = QUANTILES,
    censored: Literal["exclude", "kaplan-meier"] = "exclude",
) -> pl.DataFrame:
    """One row per group of threads' waits for a CPU: how many, how long, the longest when.

    The wait of a thread is the time from the moment it could run (woken,
    created, preempted or having yielded) to the moment it ran. Idle threads
    never wait.

    `by`: any of comm, pid, tid, utid, cpu, cause, prio, sched_class, kernel, recorder,
    queue_cpu, prev_cpu, waker_cpu, waker_utid; none: all waits in one row.
    `where`: which waits, an expression over the columns of `waits` and
    `threads`. `every`: also by time bucket, as in "1s"; a wait counts where it
    began.

    Returns the columns of `by` (after `ts`, the bucket's start), and

    * `n`: waits seen from begin to end; `n_censored`: waits still open when the window or a hole
      in the trace ended them; `n_excluded`: waits whose begin was not seen;
    * `total`, `mean`, `p50` ..., `max` in ns over the `n`;
    * `max_censored`: the longest open wait so far, a lower bound;
    * `ts_max`: when the wait of length `max` began.

    Quantiles are exact order statistics: `p99` is the smallest wait such that
    at least 99 % of the `n` are not longer (nearest rank). Open waits are often
    the longest: with `censored="kaplan-meier"` the quantiles take them into
    account by the product-limit estimate (Kaplan and Meier, JASA 53, 1958), and
    are null where the curve never gets that far.

    Rows are in order of `total`, largest first; in order of time with `every`.

    Raises `UsageError` for an unknown column or a quantile outside (0, 1].
    """
    names = [by] if isinstance(by, str) else list(by or [])
    for q in quantiles:
        if not 0 < q <= 1:
            raise UsageError(f"quantile {q}", "a number above 0, at most 1", "as in 0.99")
    if censored not in ("exclude", "kaplan-meier"):
        raise UsageError(f"censored={censored!r}", '"exclude" or "kaplan-meier"')
    bucket = None if every is None else nanoseconds(every)
    grouped = group_waits(trace, names, where, bucket)
    result = pl.concat([grouped.keys, _statistics(grouped, quantiles, censored)], how="horizontal")
    if not names and bucket is None:
        return result.drop("")
    seen = pl.col("n") + pl.col("n_censored") + pl.col("n_excluded") > 0
    result = result.filter(seen)
    if bucket is not None:
        return result.sort("ts", *names, nulls_last=True)
    return result.sort("total", "n", *names, descending=[True, True, *([False] * len(names))])


def _statistics(grouped: Grouped, quantiles: Sequence[float], censored: str) -> pl.DataFrame:
    groups = len(grouped.keys)
    wait, offsets = grouped.sorted_waits(censored=False)
    n = np.diff(offsets)
    some = n > 0
    first, last = offsets[:-1][some], offsets[1:][some] - 1

    def column(values: np.ndarray, present: np.ndarray = some) -> pl.Series:
        """Values of the groups that have any; null for the others."""
        full = np.zeros(groups, dtype=values.dtype)
        full[present] = values
        return pl.Series(full).set(pl.Series(~present), None)

    total = np.add.reduceat(wait, first) if len(first) else np.zeros(0, dtype=np.int64)
    longest = wait[last]
    open_wait, open_offsets = grouped.sorted_waits(censored=True)
    n_open = np.diff(open_offsets)
    has_open = n_open > 0

    columns = {
        "n": pl.Series(n, dtype=pl.UInt32),
        "n_censored": pl.Series(n_open, dtype=pl.UInt32),
        "n_excluded": pl.Series(grouped.excluded, dtype=pl.UInt32),
        "total": column(total).fill_null(0),
        "mean": column(total / n[some]),
    }
    for q in quantiles:
        # In integers: 0.07 * 100 is 7.000000000000001 in floating point.
        share = Fraction(str(q)).limit_denominator(10**9)
        rank = -(-n[some] * share.numerator // share.denominator)
        columns[_name(share)] = column(wait[first + np.maximum(rank, 1) - 1])
    if censored == "kaplan-meier":
        for i in np.flatnonzero(has_open):
            estimates = kaplan_meier_quantiles(
                wait[offsets[i] : offsets[i + 1]],
                open_wait[open_offsets[i] : open_offsets[i + 1]],
                quantiles,
            )
            for q, estimate in zip(quantiles, estimates, strict=True):
                columns[_name(Fraction(str(q)))][int(i)] = estimate
    columns["max"] = column(longest)
    columns["max_censored"] = column(open_wait[open_offsets[1:][has_open] - 1], has_open)
    columns["ts_max"] = column(_when(grouped, column(longest).fill_null(-1).to_numpy())[some])
    return pl.DataFrame(columns)


def _name(share: Fraction) -> str:
    return f"p{100 * share.numerator / share.denominator:g}"


def _when(grouped: Grouped, longest: np.ndarray) -> np.ndarray:
    """The earliest begin of a complete wait of each group's greatest length."""
    hit = np.flatnonzero((grouped.wait == longest[grouped.group]) & ~grouped.censored)
    when = np.full(len(longest), np.iinfo(np.int64).max)
    np.minimum.at(when, grouped.group[hit], grouped.ts[hit])
    return when
