"""What the experiments measure on a simulated trace."""

from __future__ import annotations

import polars as pl

from schedscope.store.trace import Trace


def cpu_time(trace: Trace, since: int = 0, until: int | None = None) -> dict[str, int]:
    """CPU ns of each thread by name, from `since` to `until`."""
    end = trace.window[1] if until is None else until
    runs = (
        trace.states.filter(pl.col("state") == "running")
        .filter(pl.col("utid") >= trace.ncpu)
        .select(
            "utid",
            begin=pl.col("ts").clip(since, end),
            end=(pl.col("ts") + pl.col("dur")).clip(since, end),
        )
        .join(trace.threads.select("utid", "comm"), on="utid")
        .group_by(pl.col("comm").cast(pl.String))
        .agg(pl.sum("end") - pl.sum("begin"))
        .collect()
    )
    return dict(runs.rows())


def responses(trace: Trace, comm: str = "client") -> pl.Series:
    """ns from each end of running to the next begin, of the threads named `comm`..."""
    threads = trace.threads.filter(pl.col("comm").cast(pl.String).str.starts_with(comm))
    gaps = (
        trace.states.filter(pl.col("state") == "running")
        .join(threads.select("utid"), on="utid")
        .sort("utid", "ts")
        .select(gap=pl.col("ts") - (pl.col("ts") + pl.col("dur")).shift().over("utid"))
        .drop_nulls()
        .collect()
    )
    return gaps["gap"]


def moved_from(trace: Trace, cpu: int) -> pl.Series:
    """Instants at which a thread was taken from `cpu`, ascending."""
    return trace.migrations.filter(pl.col("from_cpu") == cpu).sort("ts").collect()["ts"]
