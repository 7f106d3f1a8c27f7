"""Which threads lost time to preemption, and which gained it?

A thread that is made to leave its CPU loses the time until it runs again. There is one
line per pair of scheduling classes: the class that lost the time, and the class of the
thread that came onto the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS
from schedscope.analysis.asking.batches import in_batches
from schedscope.analysis.asking.by import check_where
from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.sums.folded import folded
from schedscope.analysis.threads.of_threads import threads_with
from schedscope.analysis.waits.observed import COUNTS, EXCLUDED
from schedscope.parsers.schema import SCHED_CLASS

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


COMMAND = Command(
    heading="who waited, and why?",
    help="time lost to preemption, by scheduling class",
    example="""\
  schedscope preemption-loss web.capture
  schedscope preemption-loss web.capture --comm nginx --format json
""",
    page="docs/definitions/efficiency.md",
    top="the first N rows",
    columns="sched_class by_class n lost lost_frac max n_censored? n_ambiguous? n_excluded?",
    narrow="n_censored",
)


@needs("switches")
def preemption_loss(trace: Trace, *, where: pl.Expr | None = None) -> pl.DataFrame:
    """One row per pair of classes: time that threads of one lost to threads of the other.

    A thread that is made to leave its CPU loses the time until it runs again. The row names the
    class that lost the time and the class that came onto the CPU.

    * `sched_class`, `by_class`: last known scheduling class of the thread that left, and of the one
      that came; null where that is not known, and `by_class` also where the CPU idled;
    * `n`: preemptions whose wait was seen to end; `n_censored`: those that still waited when last
      seen; `n_ambiguous`: how many of both may have been yields, because the source does not say;
      `n_excluded`: those whose wait began before the window, with `by_class` null: they are in no
      other column;
    * `lost`: time waited after all of them, censored waits counted for as long as they were
      observed (ns); `max`: the longest of these waits (ns);
    * `lost_frac`: share of all time lost to preemption by the threads selected.

    `where` selects the threads that lost, by columns of `threads`, `utid`, or `cpu`, the CPU
    that they left. Most time lost first. Definition: docs/definitions/efficiency.md.
    Raises `UsageError` for an unknown column.
    """
    check_where(where, ("utid", "cpu"))
    used = where.meta.root_names() if where is not None else []
    names = dict.fromkeys(["sched_class", *(name for name in used if name in THREAD_COLUMNS)])
    threads = threads_with(trace, used).select(pl.col("utid").cast(pl.UInt32), *names).collect()
    heir = pl.col("utid").cast(pl.UInt32).alias("heir")
    classes_of = trace.threads.filter(pl.col("utid") >= trace.ncpu)
    heirs = classes_of.select(heir, by_class="sched_class").collect()
    classes = [pl.col(name).cast(SCHED_CLASS) for name in ("sched_class", "by_class")]
    parts = (
        rows.join(threads, on="utid", how="left")
        .filter(pl.lit(True) if where is None else where)
        .join(heirs, on="heir", how="left")
        .group_by(classes)
        .agg(
            **{name: many.cast(pl.Int64) for name, many in COUNTS.items()},
            n_ambiguous=(~EXCLUDED & ~pl.col("told").fill_null(False)).sum().cast(pl.Int64),
            lost=pl.col("wait").sum(),
            max=pl.col("wait").max(),
        )
        for rows in _followed(trace)
    )
    frame = folded(
        parts,
        lambda rows: rows.group_by("sched_class", "by_class").agg(
            pl.col("n", "n_censored", "n_ambiguous", "n_excluded", "lost").sum(),
            pl.col("max").max(),
        ),
    )
    total = pl.col("lost").sum()
    return frame.with_columns(lost_frac=pl.when(total > 0).then(pl.col("lost") / total)).sort(
        "lost", "sched_class", "by_class", descending=[True, False, False]
    )


def _followed(trace: Trace) -> Iterator[pl.DataFrame]:
    """The waits of preempted threads, some at a time, each with the thread that came onto the CPU
    (`heir`).

    Both tables are read side by side, and of the switches only those are held that may still belong
    to a wait: a thread's last one, and what came later.
    """
    switches = (_outs(trace, rows) for rows in in_batches(trace.switches))
    outs, reached = next(switches)
    for rows in in_batches(trace.waits):
        waits = _preempted(rows)
        while reached is not None and (waits["ts"] >= reached).any():
            more, reached = next(switches, (outs.clear(), None))
            outs = pl.concat([outs, more])
        yield waits.join(outs, on=["utid", "ts"], how="left")
        last = waits.group_by("utid").agg(pl.col("ts").max().alias("last"))
        outs = (
            outs.join(last, on="utid", how="left")
            .filter(pl.col("last").is_null() | (pl.col("ts") >= pl.col("last")))
            .drop("last")
        )


def _outs(trace: Trace, rows: pl.LazyFrame) -> tuple[pl.DataFrame, int | None]:
    """Which thread left a CPU involuntarily, when, and which came; and up to when these rows
    reach.
    """
    frame = rows.select("ts", "prev_utid", "next_utid", "prev_state", "preempted").collect()
    return frame.filter(
        pl.col("prev_state") == "runnable", pl.col("prev_utid") >= trace.ncpu
    ).select(
        "ts",
        utid=pl.col("prev_utid").cast(pl.UInt32),
        heir=pl.col("next_utid").cast(pl.UInt32),
        told=pl.col("preempted").fill_null(False),
    ), frame.select(pl.col("ts").max()).item()


def _preempted(rows: pl.LazyFrame) -> pl.DataFrame:
    return (
        rows.filter(pl.col("cause") == "preempt")
        .select(
            "wait",
            "censored",
            utid=pl.col("utid").cast(pl.UInt32),
            ts="ts_ready",
            cpu=pl.col("prev_cpu").cast(pl.UInt16),
        )
        .collect()
    )
