"""Which waits for a CPU were the longest?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.arguments import count
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.waits.waits import waits

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_COLUMNS = (
    "comm",
    "tid",
    "utid",
    "cause",
    "ts_ready",
    "ts_run",
    "wait",
    "wait_high",
    "placement",
    "queue",
    "cpu",
    "prev_cpu",
    "waker_utid",
    "prio",
    "censored",
)


@needs("switches", "wakeups")
def worst_waits(trace: Trace, n: int = 20, *, where: pl.Expr | None = None) -> pl.DataFrame:
    """One row per wait for a CPU, the `n` longest first, open ones included.

    For a wait that was still open when last observed (`censored` is
    "right") `wait` is what it had reached, at least, and `wait_high` at most (null where nothing
    bounds it); `ts_run` is null.
    Waits whose start was not recorded have no length and are left out.

    Returns `comm`, `tid` of the waiting thread, `cause`, `ts_ready` and `ts_run` (its start and
    end), `wait` and `wait_high`, its parts `placement` and `queue` (ns), `cpu` (where it ran, or
    waited), `prev_cpu`, `waker_comm`, `waker_tid`, `prio`, `censored`, `utid`, `waker_utid`.
    """
    count("n", n, "waits")
    # A table from elsewhere may give a length to a wait whose start it does not know.
    known = pl.all_horizontal(pl.col("wait", "ts_ready").is_not_null())
    frame = waits(trace, _COLUMNS, where).filter(known)
    # The lengths first: the other columns are needed for few waits only.
    least = frame.select("wait").top_k(n, by="wait").collect()["wait"].min()
    longest = (
        frame.filter(pl.col("wait") >= pl.lit(least, pl.Int64))
        .collect()
        # Among equally long ones the earliest, then the smaller utid.
        .sort("wait", "ts_ready", "utid", descending=[True, False, False])
        .head(n)
    )
    wakers = trace.threads.select(waker_utid="utid", waker_comm="comm", waker_tid="tid").collect()
    joined = longest.join(wakers, on="waker_utid", how="left", maintain_order="left")
    first = [name for name in _COLUMNS if not name.endswith("utid")]
    measured = pl.col("censored") == "none"
    joined = joined.with_columns(wait_high=pl.when(measured).then("wait").otherwise("wait_high"))
    return joined.select(*first, "waker_comm", "waker_tid", "utid", "waker_utid")
