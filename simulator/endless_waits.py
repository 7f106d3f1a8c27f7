"""Which waits of a workload can nobody end?

A thread of a pool that waits inside a job waits for another one's step, not for a thread (docs of
the native extraction, `extract/queues.rs`): the step becomes a post to a queue of its own. Where
the trace does not tell which call ended the wait, as with a lock that is taken in the way of
another, no step posts to that queue, and the replay would never get past it.
"""

from __future__ import annotations

import polars as pl


def without_endless_waits(steps: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The steps, in which such a wait takes only the CPU time of waking; and how many there were.

    A thread that serves a queue again and again may do so for nothing until the end: it has done
    what there was to do.
    """
    served = pl.col("op") == "serve"
    posted = steps.filter(pl.col("op") == "post")["queue"].unique()
    again = steps.filter(pl.col("op") == "repeat")["program"].unique()
    endless = (
        served
        & ~pl.col("queue").is_in(posted.implode())
        & ~pl.col("program").is_in(again.implode())
    )
    found = int(steps.select(endless.sum()).item())
    if not found:
        return steps, 0
    # At least 1 ns: a step that takes no time is none.
    taking = pl.max_horizontal(pl.col("ns").fill_null(0), pl.lit(1, dtype=pl.Int64))
    run = pl.lit("run").cast(steps.schema["op"])
    return (
        steps.with_columns(
            op=pl.when(endless).then(run).otherwise(pl.col("op")),
            ns=pl.when(endless).then(taking).otherwise(pl.col("ns")),
            queue=pl.when(~endless).then(pl.col("queue")),
        ),
        found,
    )
