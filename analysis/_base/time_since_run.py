"""How long had a thread not run when it got a CPU?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis._base.occupancy import coded_states
from schedscope.parsers.schema import STATE

if TYPE_CHECKING:
    from schedscope.trace import Trace

_UNKNOWN = STATE.categories.to_list().index("unknown")


def since_last_run(trace: Trace, begun: pl.DataFrame) -> pl.Series:
    """For each row of `begun` the time from the end of the thread's last run to `ts`, ns.

    Needs the columns `utid`, `ts`, `ts_ready` and `waiting` (the cause of the wait).
    A wait after a preemption or a yield begins where the run ended; one after a wakeup where the
    sleep ended, which began there. Null for new threads, and if the sleep's start was not recorded.
    """
    from schedscope import _native

    ready, cause = pl.col("ts_ready").cast(pl.Int64), pl.col("waiting")
    told = pl.when(~cause.is_in(["new", "unknown"])).then(ready)
    asked = begun.select(
        pl.col("utid").cast(pl.UInt32), ts_ready=pl.when(cause == "wake").then(ready)
    )
    # Only the rows that a sleep precedes: woken while it left its CPU, a thread has none.
    slept = pl.DataFrame(_native.sleeps_before(coded_states(trace, end=True), asked))
    begin = pl.col("slept")
    known = pl.col("state") != _UNKNOWN
    if trace.window[0] > trace.origin:
        # The cut made this the start of sleeps that are older.
        known = known & (begin > trace.window[0])
    left = pl.when(begin.is_null()).then(told).when(known).then(begin)
    return (
        begun.select("ts", "ts_ready", "waiting")
        .with_columns(slept=slept["ts"], state=slept["state"])
        .select(since=pl.col("ts") - left)
        .to_series()
    )
