"""How long did threads wait for a CPU?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from schedscope.analysis._base.by import By
from schedscope.analysis._base.group_counts import GroupCounts
from schedscope.analysis._base.grouping import Grouping
from schedscope.analysis._base.needs import needs
from schedscope.analysis._base.quantiles import column_name, shares_of
from schedscope.analysis._base.series import series
from schedscope.analysis.survival import kaplan_meier_quantiles, wait_lengths
from schedscope.errors import UsageError
from schedscope.units import nanoseconds

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.trace import Trace

    Ints = npt.NDArray[np.int64]

QUANTILES = (0.5, 0.9, 0.99, 0.999)

_NEVER = np.iinfo(np.int64).max


@needs("switches", "wakeups")
def latency(
    trace: Trace,
    *,
    by: By = "all",
    where: pl.Expr | None = None,
    every: str | int | None = None,
    quantiles: Sequence[float] = QUANTILES,
    censored: Literal["exclude", "kaplan-meier"] = "exclude",
) -> pl.DataFrame:
    """One row per group of waits for a CPU: how many, how long, and when the longest began.

    The wait of a thread is the time from the moment it could run (woken,
    created, preempted or having yielded) to the moment it ran. Idle threads
    never wait.

    `by`: any of comm, pid, tid, utid, cpu, cause, prio, sched_class, kernel, recorder, queue_cpu,
    prev_cpu, waker_cpu, waker_utid; none: all waits in one row. `where`: which waits, an expression
    over the columns of `waits` and `threads`. `every`: group by time buckets of this length, too,
    as in "1s"; a wait belongs to the bucket in which it began.

    Returns the columns of `by` (after `ts`, the bucket's start), and

    * `n`: waits seen from start to end; `n_censored`: waits still open when the window ended, or a
      hole in the trace began; `n_excluded`: waits whose start was not recorded;
    * `total`, `mean`, `p50` ..., `max` of the `n`, in ns;
    * `max_censored`: the longest open wait so far, a lower bound;
    * `ts_max`: when the wait of length `max` began.

    Quantiles are exact order statistics: `p99` is the smallest wait such that at least 99 % of the
    `n` are not longer (nearest rank). Open waits are often the longest: with
    `censored="kaplan-meier"` the quantiles take them into account by the product-limit estimate
    (Kaplan and Meier, JASA 53, 1958), and are null where the curve never gets that far. With more
    than 4,194,304 waits these quantiles may be too long, by less than 0.1 %.

    Rows are in order of `total`, largest first; in order of time with `every`.

    Raises `UsageError` for an unknown column or a quantile outside (0, 1].
    """
    if censored not in ("exclude", "kaplan-meier"):
        raise UsageError(f"censored={censored!r}", '"exclude" or "kaplan-meier"')
    length = None if every is None else nanoseconds(every)
    grouping = Grouping(trace, by, where, length)
    names = grouping.by
    tally = _tally(grouping)
    shares = shares_of(quantiles)
    statistics = _statistics(grouping, tally, shares)
    if censored == "kaplan-meier" and tally.censored.any():
        statistics = statistics.with_columns(_estimates(grouping, shares))
    result = pl.concat([grouping.keys(), statistics], how="horizontal")
    if length is not None:
        return result.sort("ts", *names, nulls_last=True)
    if not names:
        return result
    return result.sort("total", "n", *names, descending=[True, True, *([False] * len(names))])


@dataclass
class _Tally:
    """What one pass over the ledger adds up, per group."""

    counts: GroupCounts
    total: Ints
    censored: Ints
    excluded: Ints
    max_censored: Ints
    longest: Ints
    ts_longest: Ints


def _tally(grouping: Grouping) -> _Tally:
    tally = _Tally(GroupCounts(), *(np.zeros(0, np.int64) for _ in range(6)))
    for batch in grouping.batches():
        groups = len(grouping)
        _grow(tally, groups)
        tally.excluded += np.bincount(batch.excluded, minlength=groups)
        group, wait, ts = batch.group, batch.wait, batch.ts
        if batch.censored.any():
            cut = batch.censored
            tally.censored += np.bincount(group[cut], minlength=groups)
            np.maximum.at(tally.max_censored, group[cut], wait[cut])
            group, wait, ts = group[~cut], wait[~cut], ts[~cut]
        _keep_longest(tally, group, wait, ts)
        tally.counts.add(group, wait, groups)
        if int(wait.max(initial=0)) * len(wait) < 1 << 53:  # exact in floating point
            sums = np.bincount(group, weights=wait, minlength=groups)
            tally.total += sums.astype(np.int64)
        else:
            np.add.at(tally.total, group, wait)
    return tally


def _keep_longest(tally: _Tally, group: Ints, wait: Ints, ts: Ints) -> None:
    """The longest wait of each group, and the earliest begin of one of that length."""
    candidate = np.flatnonzero(wait >= tally.longest[group])  # few, after the first batch
    group, wait, ts = group[candidate], wait[candidate], ts[candidate]
    before = tally.longest.copy()
    np.maximum.at(tally.longest, group, wait)
    tally.ts_longest[tally.longest > before] = _NEVER
    hit = wait == tally.longest[group]
    np.minimum.at(tally.ts_longest, group[hit], ts[hit])


def _grow(tally: _Tally, groups: int) -> None:
    """Room for groups that have appeared since."""
    missing = groups - len(tally.total)
    if missing:
        for name in ("total", "censored", "excluded"):
            setattr(tally, name, np.pad(getattr(tally, name), (0, missing)))
        for name, value in (("max_censored", -1), ("longest", -1), ("ts_longest", _NEVER)):
            padded = np.pad(getattr(tally, name), (0, missing), constant_values=value)
            setattr(tally, name, padded)


def _statistics(grouping: Grouping, tally: _Tally, shares: list[Fraction]) -> pl.DataFrame:
    n = tally.counts.n

    def complete() -> Iterator[tuple[Ints, Ints]]:
        for batch in grouping.batches(times=False):
            if batch.censored.any():
                ended = ~batch.censored
                yield batch.group[ended], batch.wait[ended]
            else:
                yield batch.group, batch.wait

    values = tally.counts.at(shares, complete)

    def column(numbers: npt.NDArray[Any]) -> pl.Series:
        """Null where there is nothing to take it from."""
        return series(numbers).set(series(numbers < 0), None)

    total = series(tally.total)
    return pl.DataFrame(
        {
            "n": series(n, pl.UInt32),
            "n_censored": series(tally.censored, pl.UInt32),
            "n_excluded": series(tally.excluded, pl.UInt32),
            "total": total,
            "mean": total / series(n).set(series(n == 0), None),
            **{column_name(q): column(values[:, i]) for i, q in enumerate(shares)},
            "max": column(tally.longest),
            "max_censored": column(tally.max_censored),
            "ts_max": series(tally.ts_longest).set(series(tally.ts_longest == _NEVER), None),
        }
    )


def _estimates(grouping: Grouping, shares: list[Fraction]) -> list[pl.Series]:
    """The quantiles by the product-limit estimate."""
    rows = [
        kaplan_meier_quantiles(lengths, [float(q) for q in shares])
        for lengths in wait_lengths(grouping)
    ]
    return [
        pl.Series(column_name(share), [row[i] for row in rows], dtype=pl.Int64)
        for i, share in enumerate(shares)
    ]
