"""For how long may it be wrong who competed with each thread for its CPU?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from schedscope.analysis._base.batches import in_batches
from schedscope.analysis._base.due_in_waits import due_in_waits
from schedscope.analysis._base.occupancy import coded_waits, occupancy
from schedscope.analysis._base.topology import recorded_cpus
from schedscope.analysis._base.unknown_time import unknown_spans

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope._native import CpuHistory
    from schedscope.trace import Trace

    Ints = npt.NDArray[np.int64]

MOST = 4_000_000
"""Pieces of intervals in doubt, of half a million intervals, of which it is asked what was due."""

# What a CPU did while a thread waited for it, after the one group of all threads that ran.
_UNKNOWN = 2


def competing_doubt(trace: Trace, read: CpuHistory, sharing: Mapping[str, object]) -> pl.DataFrame:
    """One row per thread that ran or waited: `utid`, and in ns

    * `contested`: for how long it ran or waited while it is unknown what some other thread did,
      which may have competed with it; `contested_due`: the service due to it in that time, if none
      did;
    * `unserved`: for how long it waited for a CPU of which it is unknown what it did: it may have
      served a competitor.
    """
    stretches = _union(unknown_spans(trace))
    begin, end = trace.window
    parts: list[pl.DataFrame] = []
    schema = {"utid": pl.UInt32, "contested": pl.Int64, "contested_due": pl.Float64}

    def take(rows: pl.DataFrame) -> None:
        sums = rows.group_by("utid").agg(
            contested=pl.col("wait").sum(), contested_due=pl.col("due").sum()
        )
        parts.append(sums.select(pl.col(name).cast(dtype) for name, dtype in schema.items()))

    def overlaps() -> Iterator[pl.DataFrame]:
        competing = pl.col("state").is_in(["running", "runnable"]) & (pl.col("utid") >= trace.ncpu)
        for batch in in_batches(trace.states.filter(competing).select("utid", "ts", "dur")):
            rows = batch.collect()
            since = rows["ts"].to_numpy().clip(begin, end)
            until = (rows["ts"] + rows["dur"]).to_numpy().clip(begin, end)
            at, first, last = _overlaps(since, until, *stretches)
            found = {"utid": rows["utid"].cast(pl.UInt32)[at], "ts": first, "wait": last - first}
            if len(at) > MOST:
                # As if it had been served alone.
                take(pl.DataFrame(found).with_columns(due=pl.col("wait").cast(pl.Float64)))
            else:
                yield pl.DataFrame(found)

    due_in_waits(read, sharing, overlaps(), take)
    sums = pl.concat([pl.DataFrame(schema=schema), *parts])
    contested = sums.group_by("utid").agg(pl.col("contested", "contested_due").sum())
    unserved = _unserved(trace, trace.threads.select(pl.col("utid").cast(pl.UInt32)).collect())
    return contested.join(unserved, on="utid", how="full", coalesce=True).with_columns(
        pl.exclude("utid").fill_null(0)
    )


def _union(spans: pl.LazyFrame) -> tuple[Ints, Ints]:
    """Where there is one of these: starts and ends of stretches that do not touch, in order."""
    known = spans.select("since", "until").sort("since").collect()
    since, until = known["since"].to_numpy(), known["until"].to_numpy()
    if not len(since):
        return since, until
    latest = np.maximum.accumulate(until)
    first = np.flatnonzero(np.append(True, since[1:] > latest[:-1]))
    return since[first], latest[np.append(first[1:], len(since)) - 1]


def _overlaps(since: Ints, until: Ints, begins: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
    """Where intervals overlap stretches: which interval, from when, until when."""
    low = np.searchsorted(ends, since, side="right")
    n = (np.searchsorted(begins, until, side="left") - low).clip(0)
    at = np.repeat(np.arange(len(since)), n)
    stretch = np.arange(len(at)) - np.repeat(np.cumsum(n) - n, n) + low[at]
    return at, np.maximum(since[at], begins[stretch]), np.minimum(until[at], ends[stretch])


def _unserved(trace: Trace, threads: pl.DataFrame) -> pl.DataFrame:
    """By thread, its time on the queue of a CPU of which it is unknown what it did."""
    asked = threads.filter(pl.col("utid") >= trace.ncpu).with_columns(victim="utid")
    group = [0] * (int(threads["utid"].max() or 0) + 1)  # type: ignore[arg-type]
    _, found = occupancy(trace).interference(
        asked, group, 1, recorded_cpus(trace), coded_waits(trace), 1
    )
    cells = pl.DataFrame(found)
    causes = pl.sum_horizontal(pl.exclude("victim", "group", "n"))
    return (
        cells.select(pl.col("victim").cast(pl.UInt32).alias("utid"), "group", unserved=causes)
        .filter(pl.col("group") == _UNKNOWN)
        .group_by("utid")
        .agg(pl.col("unserved").sum().cast(pl.Int64))
    )


def unknown_cpu_time(trace: Trace) -> int:
    """For how long in all it is unknown what the CPUs did, ns."""
    begin, end = trace.window
    inside = pl.min_horizontal(pl.col("ts") + pl.col("dur"), end) - pl.max_horizontal("ts", begin)
    known = (
        trace.states.filter(pl.col("state") == "running")
        .select(inside.clip(0).sum())
        .collect()
        .item()
    )
    return max(0, len(recorded_cpus(trace)) * (end - begin) - int(known or 0))
