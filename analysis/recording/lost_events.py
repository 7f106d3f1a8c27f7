"""When any event may be missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.store.losses import IS_BREAK

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


def is_short_edge(trace: Trace) -> pl.Expr:
    """Of rows of `losses`: a CPU's recording began or ended a little apart from the others'.

    Recorders start and stop one CPU after another. A little are 20 ms, from which on a silent CPU
    is suspected at all, or 1 % of the trace: a busy host takes that long to move the recorder.
    """
    edge = pl.col("reason").is_in(["late_start", "early_end"])
    short = pl.col("ts_end") - pl.col("ts_begin") < max(20_000_000, trace.duration // 100)
    return edge & short & (pl.col("count").fill_null(0) == 0)


def losses_of_any_event(trace: Trace) -> pl.LazyFrame:
    """The rows of `losses` in which any event may be missing.

    A broken chain counts unless it is a known habit of the kernel (rule *Unreported* of the trace
    model): where a kernel never reports a switch, no other event is missing.
    """
    if trace.info.get("unreported_losses"):
        return trace.losses
    return trace.losses.filter(~IS_BREAK)


def reach(losses: pl.LazyFrame) -> pl.DataFrame:
    """Of `losses`, in order of `ts_begin`: `reaches`, the latest end of all that began by then.

    The last row before some instant says since when nothing is missing.
    """
    ordered = losses.sort("ts_begin")
    return ordered.select("ts_begin", reaches=pl.col("ts_end").cum_max()).collect()
