"""How long each wait lasted, at least and at most: for measured ones both equal the length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS
from schedscope.analysis.recording.unknown_time import possible_waits
from schedscope.analysis.threads.of_threads import threads_with
from schedscope.analysis.waits.waits import waits
from schedscope.store.losses import FASTEST, IS_BREAK

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

COLUMNS = ("utid", "wait", "wait_high", "censored", "ts_ready", "ts_run", "queue")
"""Columns of `waits` that the bounds follow from."""


def rests(trace: Trace) -> pl.DataFrame:
    """Instants at which a row of `waits` may go on with the wait of another: `utid`, `at`.

    By when waits that were cut had ended: a switch-in then may be the end of that wait, or of
    another. And (`middle`) when threads were put on queues in waits of which neither end is known:
    a wait that had ended by then, or began since, may be the same.
    """
    cut = trace.waits.filter(pl.col("censored") == "right", pl.col("wait_high").is_not_null())
    ends = cut.select("utid", at=(pl.col("ts_ready") + pl.col("wait_high")).cast(pl.Int64))
    both = trace.waits.filter(
        pl.col("censored") == "both",
        pl.col("ts_enqueued").is_not_null(),
        pl.col("wait_high").is_not_null(),
    )
    middles = both.select("utid", at=pl.col("ts_enqueued").cast(pl.Int64))
    parts = (ends.with_columns(middle=False), middles.with_columns(middle=True))
    return pl.concat(parts).unique().collect()


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

    `where` selects threads; one that asks for other columns, such as `cpu`, leaves out none.
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


def begun_before(trace: Trace, where: pl.Expr | None = None) -> pl.LazyFrame:
    """Waits of which only the end was seen, and nothing of the thread before: `utid`, `since`,
    `until`.

    They may have begun when the window did, or the thread's life; or even earlier. `where` selects
    waits.
    """
    rows = waits(trace, ["utid", "ts_ready", "wait_high", "ts_run"], where).filter(
        pl.col("ts_ready").is_null(), pl.col("wait_high").is_null(), pl.col("ts_run").is_not_null()
    )
    since = pl.lit(trace.window[0], pl.Int64)
    if "start_ts" in trace.threads.collect_schema().names():
        rows = rows.join(trace.threads.select("utid", "start_ts"), on="utid", how="left")
        since = pl.max_horizontal(pl.col("start_ts").cast(pl.Int64), since)
    return rows.select(
        pl.col("utid").cast(pl.UInt32), since=since, until=pl.col("ts_run").cast(pl.Int64)
    )


_MANY = 1 << 40
"""More lost events than this are no other bound."""


def counted_losses(trace: Trace) -> tuple[int, bool]:
    """How many events were lost, as far as that was counted, and whether all were.

    No more waits than these are missing altogether: each of them ended with a switch. A CPU of
    which nothing was recorded, or whose records are cut off, may have had as many as it can have,
    and so may all where a filter left out switches.
    """
    if "filtered" in trace.info:
        return trace.duration // FASTEST * max(1, trace.ncpu), True
    silent = pl.col("reason").is_in(["absent", "unrecorded", "truncated"])
    room = (pl.col("ts_end") - pl.col("ts_begin")) // FASTEST
    number = pl.when(silent).then(room).otherwise(pl.col("count").fill_null(0).clip(0, _MANY))
    placed = number.cast(pl.Int64).filter(~IS_BREAK).sum()
    known = ~IS_BREAK & (silent | _is_counted(trace))
    row = trace.losses.select(placed, every=known.all()).collect().row(0)
    unplaced = sum(loss.get("count") or 0 for loss in trace.info.get("unplaced_losses") or [])
    return int(row[0]) + unplaced, bool(row[1])


def any_number_hidden(trace: Trace) -> bool:
    """Whether a hole may hide any number of waits: what was lost there was not counted.

    A switch that a kernel leaves out by habit hides one at most.
    """
    if "filtered" in trace.info or trace.info.get("unreported_losses"):
        return True
    holes = trace.losses.filter(~IS_BREAK, ~_is_counted(trace))
    return holes.head(1).collect().height > 0


def _is_counted(trace: Trace) -> pl.Expr:
    """Of rows of `losses`: it is known how many events they are."""
    unplaced = trace.info.get("unplaced_losses") or []
    told = pl.Series([loss.get("cpu") for loss in unplaced if loss.get("count")], dtype=pl.UInt16)
    counted = (pl.col("count") > 0) | pl.col("cpu").is_in(told.implode())
    return counted.fill_null(value=False)


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
    left = pl.col("censored") == "left"
    ends = rest.filter(~pl.col("middle")).select("utid", ts_run="at", again=True)
    middles = rest.filter("middle").select("utid", "at", part=True)
    # The other end of a wait that one end is known of.
    cut = pl.when(right).then(ready + pl.col("wait_high"))
    other = cut.when(left).then(pl.col("ts_run") - pl.col("wait_high"))
    return (
        frame.join(ends, on=["utid", "ts_run"], how="left", maintain_order="left")
        .with_columns(at=other.cast(pl.Int64))
        .join(middles, on=["utid", "at"], how="left", maintain_order="left")
        .with_columns(
            # For a wait without a start, the time on the queue is certain.
            low=pl.when(begun).then(wait).otherwise(pl.col("queue").fill_null(0)),
            open=right & pl.col("wait_high").is_null(),
            again=pl.col("again").fill_null(value=False) & ~begun
            | pl.col("part").fill_null(value=False),
        )
        .drop("part", "at")
        .with_columns(
            high=pl.when(measured)
            .then(wait)
            .when(begun)
            .then(pl.coalesce("wait_high", pl.max_horizontal(end - ready, wait)))
            .otherwise("wait_high"),
            measured=measured | pl.col("open") & (ready + wait >= end),
        )
    )
