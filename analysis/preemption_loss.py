"""Whose time was lost to preemption, and to whom?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis._base.by import check_where
from schedscope.analysis._base.needs import needs
from schedscope.analysis._base.of_threads import threads_with
from schedscope.analysis._base.waits import THREAD_COLUMNS
from schedscope.parsers.schema import SCHED_CLASS

if TYPE_CHECKING:
    from schedscope.trace import Trace


@needs("switches")
def preemption_loss(trace: Trace, *, where: pl.Expr | None = None) -> pl.DataFrame:
    """One row per pair of classes: time that threads of one lost to threads of the other.

    A thread that is made to leave its CPU loses the time until it runs again. The row names the
    class that lost the time and the class that came onto the CPU.

    * `sched_class`, `by_class`: last known scheduling class of the thread that left, and of
      the one that came; null where that is not known, `by_class` also where the CPU idled;
    * `n`: preemptions whose wait was seen to end; `n_censored`: those that still waited when last
      seen; `n_ambiguous`: of both, those that may have been yields, as the source does not say;
    * `lost`: time waited after all of them, censored ones as long as they were observed (ns);
      `max`: the longest (ns);
    * `lost_frac`: share of all time lost to preemption by the threads selected.

    `where` selects the threads that lost, by columns of `threads`, `utid`, or `cpu`, the CPU
    that they left. Most time lost first. Definition: docs/definitions/efficiency.md.
    Raises `UsageError` for an unknown column.
    """
    check_where(where, ("utid", "cpu"))
    used = where.meta.root_names() if where is not None else []
    threads = threads_with(trace, used).select(
        pl.col("utid").cast(pl.UInt32),
        *dict.fromkeys(["sched_class", *(name for name in used if name in THREAD_COLUMNS)]),
    )
    heirs = trace.threads.filter(pl.col("utid") >= trace.ncpu).select(
        pl.col("utid").cast(pl.UInt32).alias("heir"), by_class="sched_class"
    )
    outs = trace.switches.filter(
        pl.col("prev_state") == "runnable", pl.col("prev_utid") >= trace.ncpu
    ).select(
        "ts",
        utid=pl.col("prev_utid").cast(pl.UInt32),
        heir=pl.col("next_utid").cast(pl.UInt32),
        told=pl.col("preempted").fill_null(False),
    )
    lost = (
        trace.waits.filter(pl.col("cause") == "preempt", pl.col("wait").is_not_null())
        .select(
            "wait",
            "censored",
            utid=pl.col("utid").cast(pl.UInt32),
            ts="ts_ready",
            cpu=pl.col("prev_cpu").cast(pl.UInt16),
        )
        .join(threads, on="utid", how="left")
    )
    if where is not None:
        lost = lost.filter(where)
    frame = (
        lost.join(outs, on=["utid", "ts"], how="left")
        .join(heirs, on="heir", how="left")
        .group_by("sched_class", "by_class")
        .agg(
            n=(pl.col("censored") == "none").sum().cast(pl.Int64),
            n_censored=(pl.col("censored") != "none").sum().cast(pl.Int64),
            n_ambiguous=(~pl.col("told").fill_null(False)).sum().cast(pl.Int64),
            lost=pl.col("wait").sum(),
            max=pl.col("wait").max(),
        )
        .collect()
    )
    total = pl.col("lost").sum()
    return frame.with_columns(
        pl.col("sched_class", "by_class").cast(SCHED_CLASS),
        lost_frac=pl.when(total > 0).then(pl.col("lost") / total),
    ).sort("lost", "sched_class", "by_class", descending=[True, False, False])
