"""For how long is it unknown what each thread did?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from schedscope.trace import Trace


def unknown_time(trace: Trace) -> pl.DataFrame:
    """One row per thread with unknown time within the window: `utid`, `unknown` (ns).

    Whatever is summed up over a thread's known states may lack that much.
    """
    begin, end = trace.window
    since = pl.col("ts").clip(lower_bound=begin)
    until = (pl.col("ts") + pl.col("dur")).clip(upper_bound=end)
    return (
        trace.states.filter(pl.col("state") == "unknown")
        .select(pl.col("utid").cast(pl.UInt32), unknown=until - since)
        .filter(pl.col("unknown") > 0)
        .group_by("utid")
        .agg(pl.col("unknown").sum().cast(pl.Int64))
        .collect()
    )


def with_unknown_time(trace: Trace, frame: pl.DataFrame) -> pl.DataFrame:
    """`frame`, which has a `utid`, with the column `unknown`."""
    known = pl.col("unknown").fill_null(0)
    return frame.join(
        unknown_time(trace), on="utid", how="left", maintain_order="left"
    ).with_columns(known)
