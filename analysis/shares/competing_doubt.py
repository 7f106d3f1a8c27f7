"""For how long may the set of threads that competed with each thread be wrong?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.batches import in_batches
from schedscope.analysis.cpus.accounting import inside_window
from schedscope.analysis.cpus.occupancy import coded_waits, occupancy
from schedscope.analysis.cpus.topology import recorded_cpus
from schedscope.analysis.recording.unknown_time import (
    unknown_spans,
    unplaced_spans,
    unseen_births,
)
from schedscope.analysis.shares.due_in_waits import due_in_waits

if TYPE_CHECKING:
    from schedscope._native import CpuHistory
    from schedscope.store.trace import Trace

MOST = 4_000_000
"""Pieces of intervals in doubt, of half a million intervals, of which it is asked what was due."""

# Code for unknown CPU activity; it follows that of the one group of all threads that ran.
_UNKNOWN = 2


def competing_doubt(
    trace: Trace, read: CpuHistory, sharing: Mapping[str, object], *, queues: bool
) -> pl.DataFrame:
    """One row per thread that ran or waited: `utid`, and in ns

    * `contested`: for how long it ran or waited while it is unknown what some other thread did, or
      (with `queues`) on which queue it waited, so that it may have competed; `contested_due`: the
      service due to it in that time, if none did;
    * `unserved`: for how long it waited for a CPU of which it is unknown what it did: it may have
      served a competitor.
    """
    spans = unknown_spans(trace).select("since", "until")
    spans = pl.concat([spans, unseen_births(trace).lazy()], how="vertical_relaxed")
    stretches = _union(pl.concat([spans, unplaced_spans(trace)]) if queues else spans)
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
            rows = batch.collect().select(
                pl.col("utid").cast(pl.UInt32),
                since=pl.col("ts").clip(begin, end),
                until=(pl.col("ts") + pl.col("dur")).clip(begin, end),
            )
            found = _overlaps(rows, stretches)
            if found.height > MOST:
                # As if it had been served alone.
                take(found.with_columns(due=pl.col("wait").cast(pl.Float64)))
            else:
                yield found

    due_in_waits(read, sharing, overlaps(), take)
    sums = pl.concat([pl.DataFrame(schema=schema), *parts])
    contested = sums.group_by("utid").agg(pl.col("contested", "contested_due").sum())
    unserved = _unserved(trace, trace.threads.select(pl.col("utid").cast(pl.UInt32)).collect())
    return contested.join(unserved, on="utid", how="full", coalesce=True).with_columns(
        pl.exclude("utid").fill_null(0)
    )


def _union(spans: pl.LazyFrame) -> pl.DataFrame:
    """The union of these intervals: stretches (`since`, `until`) that do not touch, in order."""
    known = spans.select("since", "until").sort("since")
    apart = pl.col("since") > pl.col("until").cum_max().shift(1)
    return (
        known.group_by(apart.fill_null(True).cum_sum().alias("stretch"), maintain_order=True)
        .agg(pl.col("since").first(), pl.col("until").max())
        .select("since", "until")
        .collect()
    )


def _overlaps(rows: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """One row for each part of a row's time that is in a stretch: `utid`, `ts`, `wait`."""
    begins, ends = stretches["since"], stretches["until"]
    first = ends.search_sorted(rows["since"], side="right").cast(pl.Int64)
    after = begins.search_sorted(rows["until"], side="left").cast(pl.Int64)
    parts = (
        rows.with_columns(first=first, after=after)
        .filter(pl.col("first") < pl.col("after"))
        .with_columns(stretch=pl.int_ranges("first", "after"))
        .explode("stretch")
    )
    begin = pl.max_horizontal("since", begins.gather(parts["stretch"]))
    end = pl.min_horizontal("until", ends.gather(parts["stretch"]))
    return parts.select("utid", ts=begin, wait=end - begin)


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
    known = (
        trace.states.filter(pl.col("state") == "running")
        .select(inside_window(trace).sum())
        .collect()
        .item()
    )
    return max(0, len(recorded_cpus(trace)) * (end - begin) - int(known or 0))
