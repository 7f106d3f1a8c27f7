"""How long did threads wait for a CPU?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import polars as pl

from schedscope.analysis._base.by import By
from schedscope.analysis._base.group_counts import GroupCounts, longer
from schedscope.analysis._base.grouping import Grouping
from schedscope.analysis._base.needs import needs
from schedscope.analysis._base.quantiles import column_name, shares_of
from schedscope.errors import UsageError
from schedscope.units import nanoseconds

if TYPE_CHECKING:
    from schedscope.trace import Trace

QUANTILES = (0.5, 0.9, 0.99, 0.999)

_NEVER = (1 << 63) - 1


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
    if censored == "kaplan-meier" and (tally.censored > 0).any():
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
    total: pl.Series
    censored: pl.Series
    excluded: pl.Series
    max_censored: pl.Series
    longest: pl.Series
    ts_longest: pl.Series


def _tally(grouping: Grouping) -> _Tally:
    tally = _Tally(GroupCounts(), *(pl.Series(dtype=pl.Int64) for _ in range(6)))
    for batch in grouping.batches():
        groups = len(grouping)
        for name in ("total", "censored", "excluded"):
            setattr(tally, name, longer(getattr(tally, name), groups, 0))
        for name, value in (("max_censored", -1), ("longest", -1), ("ts_longest", _NEVER)):
            setattr(tally, name, longer(getattr(tally, name), groups, value))
        excluded = pl.DataFrame({"group": batch.excluded}).group_by("group").len()
        _add(tally.excluded, excluded["group"], excluded["len"])
        waits = pl.DataFrame({"group": batch.group, "wait": batch.wait, "ts": batch.ts})
        if batch.censored.any():
            _add_censored(tally, waits.filter(batch.censored))
            waits = waits.filter(~batch.censored)
        found = waits.group_by("group").agg(
            pl.len(), pl.col("wait").sum().alias("total"), pl.col("wait").max().alias("longest")
        )
        _add(tally.total, found["group"], found["total"])
        _keep_longest(tally, waits, found)
        tally.counts.add(waits["group"], waits["wait"], groups, found)
    return tally


def _add(to: pl.Series, group: pl.Series, numbers: pl.Series) -> None:
    """Adds to the entries of these groups, each of which is there once."""
    to.scatter(group, to.gather(group) + numbers)


def _add_censored(tally: _Tally, waits: pl.DataFrame) -> None:
    found = waits.group_by("group").agg(pl.len(), pl.col("wait").max())
    group = found["group"]
    _add(tally.censored, group, found["len"])
    so_far = found["wait"], tally.max_censored.gather(group)
    tally.max_censored.scatter(group, pl.select(pl.max_horizontal(*so_far)).to_series())


def _keep_longest(tally: _Tally, waits: pl.DataFrame, found: pl.DataFrame) -> None:
    """The longest wait of each group, and the earliest begin of one of that length."""
    beaten = found.filter(found["longest"] > tally.longest.gather(found["group"]))
    tally.longest.scatter(beaten["group"], beaten["longest"])
    tally.ts_longest.scatter(beaten["group"], _NEVER)
    first = (
        waits.filter(waits["wait"] == tally.longest.gather(waits["group"]))
        .group_by("group")
        .agg(pl.col("ts").min())
    )
    so_far = first["ts"], tally.ts_longest.gather(first["group"])
    earliest = pl.select(pl.min_horizontal(*so_far)).to_series()
    tally.ts_longest.scatter(first["group"], earliest)


def _statistics(grouping: Grouping, tally: _Tally, shares: list[Fraction]) -> pl.DataFrame:
    n = tally.counts.n

    def complete() -> Iterator[tuple[pl.Series, pl.Series]]:
        for batch in grouping.batches(times=False):
            if batch.censored.any():
                yield batch.group.filter(~batch.censored), batch.wait.filter(~batch.censored)
            else:
                yield batch.group, batch.wait

    quantiles = tally.counts.at(shares, complete)
    return pl.DataFrame(
        {
            "n": n.cast(pl.UInt32),
            "n_censored": tally.censored.cast(pl.UInt32),
            "n_excluded": tally.excluded.cast(pl.UInt32),
            "total": tally.total,
            "mean": tally.total / n.set(n == 0, None),
            **{column_name(q): values for q, values in zip(shares, quantiles, strict=True)},
            "max": tally.longest.set(n == 0, None),
            "max_censored": tally.max_censored.set(tally.censored == 0, None),
            "ts_max": tally.ts_longest.set(n == 0, None),
        }
    )


def _estimates(grouping: Grouping, shares: list[Fraction]) -> list[pl.Series]:
    """The quantiles by the product-limit estimate."""
    # It loads NumPy, which nothing else of a short trace's answer needs.
    from schedscope.analysis.survival.survival import kaplan_meier_quantiles, wait_lengths

    rows = [
        kaplan_meier_quantiles(lengths, [float(q) for q in shares])
        for lengths in wait_lengths(grouping)
    ]
    return [
        pl.Series(column_name(share), [row[i] for row in rows], dtype=pl.Int64)
        for i, share in enumerate(shares)
    ]
