"""Waits cut into stays, each in one dispatch queue of sched_ext or in none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.recording.lost_events import reach
from schedscope.analysis.waits.waits import waits

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

IN_SCHEDULER = "BPF scheduler"
"""Where a wait is that is in no queue, and may be put into one yet."""
PICKED = "picked"
"""From when it was taken from its last queue until it ran."""
OTHER_CLASS = "other class"
"""A wait that ended without a queue: sched_ext runs only what is in a CPU's local one."""
UNKNOWN = "unknown"
"""Waits during which events may be missing, and how much longer an unfinished one may be."""


def stays(trace: Trace, where: pl.Expr | None, keys: list[str]) -> pl.DataFrame:
    """One row per stay of a wait: `wait`, `utid`, `queue`, `ts`, `dur`, and the columns `keys`."""
    times = ["utid", "ts_ready", "wait", "wait_high", "censored"]
    ledger = (
        waits(trace, [*dict.fromkeys([*times, *keys])], where)
        .filter(pl.col("wait").is_not_null())
        .collect()
        .with_row_index("number")
        .with_columns(end=pl.col("ts_ready") + pl.col("wait"))
    )
    doubted = _in_doubt(trace, ledger)
    cut = _cut(trace, ledger.filter(~doubted))
    whole = ledger.filter(doubted).select("number", ts="ts_ready", dur="wait")
    longer = ledger.filter(pl.col("wait_high") > pl.col("wait")).select(
        "number", ts="end", dur=pl.col("wait_high") - pl.col("wait")
    )
    unknown = pl.concat([whole, longer]).with_columns(queue=pl.lit(UNKNOWN))
    found = pl.concat([cut, unknown.select(cut.columns)])
    of_wait = ledger.select("number", *dict.fromkeys(["utid", *keys]))
    return found.join(of_wait, on="number", how="left").rename({"number": "wait"})


def name_of_queue() -> pl.Expr:
    """The queue of a row of `dispatch_queues`, in words."""
    number = pl.coalesce(pl.col("queue_cpu").cast(pl.UInt64), "queue_id").cast(pl.String)
    kind = pl.col("kind").cast(pl.String)
    return pl.when(number.is_null()).then(kind).otherwise(kind + " " + number)


def _in_doubt(trace: Trace, ledger: pl.DataFrame) -> pl.Series:
    """Whether events of any CPU may be missing while it waited: each may put it into a queue."""
    holes = reach(trace.losses.filter(pl.col("ts_end") > pl.col("ts_begin")))
    before = ledger.select("number", "ts_ready", "end").sort("end")
    before = before.join_asof(holes, left_on="end", right_on="ts_begin", allow_exact_matches=False)
    return (
        before.sort("number")
        .select((pl.col("reaches") > pl.col("ts_ready")).fill_null(False))
        .to_series()
    )


def _cut(trace: Trace, ledger: pl.DataFrame) -> pl.DataFrame:
    """Waits cut at each step of their thread into a queue or out of one.

    A thread's queue follows from its last step; without one since its last run it is in no queue.
    Before its first step in the trace it is in the queue that this step takes it from.
    """
    steps = trace.dispatch_queues.select(
        "ts", "utid", name=name_of_queue(), put=pl.col("step") == "insert"
    ).collect()
    first = steps.unique("utid", keep="first", maintain_order=True).filter(~pl.col("put"))
    known = {"wait": pl.lit(None, pl.Int64)}
    moves = steps.select(
        "utid", "ts", queue=pl.when("put").then("name").otherwise(pl.lit("")), **known
    )
    held = first.select("utid", ts=pl.lit(trace.window[0], pl.Int64), queue="name", **known)
    begins = ledger.select(
        "utid", ts="ts_ready", queue=pl.lit(None, pl.String), wait=pl.col("number").cast(pl.Int64)
    )
    # It runs, or nothing more is known of it; this includes waits outside the selection.
    nowhere = {"queue": pl.lit(""), "wait": pl.lit(-1, pl.Int64)}
    ends = ledger.select("utid", ts="end", **nowhere)
    runs = trace.waits.select("utid", ts="ts_run", **nowhere).drop_nulls("ts").collect()
    line = (
        pl.concat([held, moves, begins, ends, runs])
        .sort("utid", "ts", maintain_order=True)
        .with_columns(
            dur=pl.col("ts").shift(-1).over("utid") - pl.col("ts"),
            queue=pl.col("queue").forward_fill().over("utid").fill_null(""),
            wait=pl.col("wait").forward_fill().over("utid"),
        )
        .filter(pl.col("wait") >= 0, pl.col("dur") > 0)
    )
    measured = ledger.select(
        wait=pl.col("number").cast(pl.Int64), seen=pl.col("censored") == "none"
    )
    last = pl.col("ts") == pl.col("ts").max().over("wait")
    queued = (pl.col("queue") != "").any().over("wait")
    unqueued = (
        pl.when(pl.col("seen") & ~queued)
        .then(pl.lit(OTHER_CLASS))
        .when(pl.col("seen") & last)
        .then(pl.lit(PICKED))
        .otherwise(pl.lit(IN_SCHEDULER))
    )
    return (
        line.join(measured, on="wait", how="left")
        .with_columns(queue=pl.when(pl.col("queue") == "").then(unqueued).otherwise("queue"))
        .select(pl.col("wait").cast(pl.UInt32).alias("number"), "ts", "dur", "queue")
    )
