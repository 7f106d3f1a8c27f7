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
    length = pl.col("until") - pl.col("since")
    return _spans(trace).group_by("utid").agg(unknown=length.sum()).collect()


def with_unknown_time(trace: Trace, frame: pl.DataFrame) -> pl.DataFrame:
    """`frame`, which has a `utid`, with the column `unknown`."""
    known = pl.col("unknown").fill_null(0)
    return frame.join(
        unknown_time(trace), on="utid", how="left", maintain_order="left"
    ).with_columns(known)


def with_unknown_time_until(trace: Trace, frame: pl.DataFrame) -> pl.DataFrame:
    """`frame`, in order of `utid` and `ts`, with `unknown`: that of the window before `ts` (ns)."""
    since, until = pl.col("since"), pl.col("until")
    length = until - since
    spans = (
        _spans(trace)
        .sort("utid", "since")
        .with_columns(before=length.cum_sum().over("utid") - length)
    )
    unknown = pl.col("before") + pl.min_horizontal("ts", "until") - since
    return (
        frame.lazy()
        .join_asof(spans, left_on="ts", right_on="since", by="utid", check_sortedness=False)
        .with_columns(unknown=unknown.fill_null(0))
        .select(*frame.columns, "unknown")
        .collect()
    )


def _spans(trace: Trace) -> pl.LazyFrame:
    """Where within the window it is unknown what a thread did: `utid`, `since`, `until` (ns)."""
    begin, end = trace.window
    since, until = pl.col("ts").cast(pl.Int64), (pl.col("ts") + pl.col("dur")).cast(pl.Int64)
    return (
        trace.states.filter(pl.col("state") == "unknown")
        .select(
            pl.col("utid").cast(pl.UInt32),
            since=since.clip(lower_bound=begin),
            until=until.clip(upper_bound=end),
        )
        .filter(pl.col("until") > pl.col("since"))
    )
