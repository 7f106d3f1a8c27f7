"""In which dispatch queue of sched_ext did each wait spend most of its time?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.needs import require_also
from schedscope.analysis.waits.queue_stays import PICKED, UNKNOWN, stays
from schedscope.parsers.schema import TABLES

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

DSQ = "dsq"
"""The column of waits that says so."""


def with_dsq(trace: Trace) -> Trace:
    """The same trace with `dsq` in `waits`: the queue, or none, in which each was longest.

    They are those of `dispatch_queues`, the first one of several as long. A wait without a known
    start is in `unknown`, and one of 0 ns `picked`. Raises `MissingEventsError` for a trace
    without dispatch queues.
    """
    from schedscope.store.trace import Trace as TraceClass

    require_also(trace, "dispatch_queues", "by='dsq'")
    longest = (
        stays(trace, None, [])
        .group_by("wait", "queue")
        .agg(pl.col("dur").sum(), pl.col("ts").min())
        .sort("wait", "dur", "ts", descending=[False, True, False])
        .unique("wait", keep="first", maintain_order=True)
        .select(number=pl.col("wait").cast(pl.Int64), dsq="queue")
    )
    known = pl.col("wait").is_not_null()
    ledger = (
        trace.waits.collect()
        .with_columns(number=pl.when(known).then(known.cum_sum().cast(pl.Int64) - 1))
        .join(longest, on="number", how="left", maintain_order="left")
        .with_columns(
            pl.col(DSQ).fill_null(pl.when(known).then(pl.lit(PICKED)).otherwise(pl.lit(UNKNOWN)))
        )
        .drop("number")
    )
    names = pl.Enum(ledger[DSQ].unique().sort())
    tables = {name: trace.table(name) for name in TABLES if name != "waits"}
    tables["waits"] = ledger.lazy().with_columns(pl.col(DSQ).cast(names))
    return TraceClass.from_tables(tables, trace.info)
