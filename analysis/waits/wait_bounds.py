"""How long each wait lasted, at least and at most: for measured ones both equal the length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS
from schedscope.analysis.recording.unknown_time import possible_waits
from schedscope.analysis.threads.of_threads import threads_with

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

COLUMNS = ("utid", "wait", "wait_high", "censored", "ts_ready", "ts_run", "queue")
"""Columns of `waits` that the bounds follow from."""


def rests(trace: Trace) -> pl.DataFrame:
    """By when waits that were cut had ended, `utid` and `ts_run`.

    A switch-in at that instant may be the end of that wait, or of another.
    """
    cut = trace.waits.filter(pl.col("censored") == "right", pl.col("wait_high").is_not_null())
    ends = cut.select("utid", ts_run=(pl.col("ts_ready") + pl.col("wait_high")).cast(pl.Int64))
    return ends.unique().collect()


def hidden_waits(trace: Trace, where: pl.Expr | None = None) -> pl.LazyFrame:
    """Where it is unknown what a thread did, and the ledger has no wait: `utid`, `since`, `until`.

    There may have been one. `where` is that of `possible_spans`.
    """
    cut = trace.waits.filter(pl.col("wait_high").is_not_null())
    right = pl.col("censored") == "right"
    ended = cut.filter(right).select(
        "utid", until=(pl.col("ts_ready") + pl.col("wait_high")).cast(pl.Int64)
    )
    begun = cut.filter(~right, pl.col("censored") != "none").select("utid", until="ts_run")
    rows = pl.concat([ended, begun]).with_columns(pl.col("utid").cast(pl.UInt32))
    return possible_spans(trace, where).join(rows, on=["utid", "until"], how="anti")


def possible_spans(trace: Trace, where: pl.Expr | None = None) -> pl.LazyFrame:
    """Where it is unknown what a thread did and it may have waited: `utid`, `since`, `until`.

    `where` selects threads; by other columns it selects none of these.
    """
    spans = possible_waits(trace)
    if "definition" in trace.info:
        return spans.clear()
    names = where.meta.root_names() if where is not None else []
    if where is None or not {*names} <= {"utid", *THREAD_COLUMNS}:
        return spans
    known = threads_with(trace, names).select(
        pl.col("utid").cast(pl.UInt32), *(name for name in dict.fromkeys(names) if name != "utid")
    )
    return spans.join(known, on="utid").filter(where).select("utid", "since", "until")


def with_bounds(frame: pl.DataFrame, rest: pl.DataFrame, end: int) -> pl.DataFrame:
    """Rows of `waits` with what is known of how long each lasted, within the window up to `end`.

    * `low`, `high` (ns); `high` is null where only the end of the wait was seen, and nothing of the
      thread before;
    * `measured`: both are its length within the window;
    * `open`: it was not over when the window ended, so that it lasted longer than `high`;
    * `again`: it may be the rest of a wait that is in another row (`rest` is from `rests`).
    """
    measured, right = pl.col("censored") == "none", pl.col("censored") == "right"
    ready, wait = pl.col("ts_ready"), pl.col("wait")
    if (frame["censored"] == "none").all():
        no = pl.lit(False)
        return frame.with_columns(low=wait, high=wait, measured=~no, open=no, again=no)
    begun = measured | right & wait.is_not_null()
    return (
        frame.join(
            rest.with_columns(again=True), on=["utid", "ts_run"], how="left", maintain_order="left"
        )
        .with_columns(
            # For a wait without a start, the time on the queue is certain.
            low=pl.when(begun).then(wait).otherwise(pl.col("queue").fill_null(0)),
            open=right & pl.col("wait_high").is_null(),
            again=pl.col("again").fill_null(value=False) & ~begun,
        )
        .with_columns(
            high=pl.when(measured)
            .then(wait)
            .when(begun)
            .then(pl.coalesce("wait_high", pl.max_horizontal(end - ready, wait)))
            .otherwise("wait_high"),
            measured=measured | pl.col("open") & (ready + wait >= end),
        )
    )
