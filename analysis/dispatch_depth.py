"""How many threads were in each dispatch queue of sched_ext, over time?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.needs import needs
from schedscope.analysis.waits.queue_stays import name_of_queue

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


@needs("dispatch_queues")
def dispatch_depth(trace: Trace) -> pl.DataFrame:
    """One row per queue and stretch of time in which it held the same number of threads.

    * `queue`: as `dispatch_queues` names it;
    * `ts`, `dur`: the stretch, `[ts, ts + dur)`, ns: the rows of a queue adjoin from the start to
      the end of the window;
    * `depth`: threads in it, as the kernel counted them at each step.

    The kernel's count puts right what lost events leave out, at the next step. A queue that no
    thread entered or left has no row. Definition: docs/definitions/dispatch-queues.md.
    """
    return depth_of(trace)


def depth_of(trace: Trace, queue: str | None = None) -> pl.DataFrame:
    """The rows of `dispatch_depth`; with `queue`, of that one."""
    begin, end = trace.window
    rows = trace.dispatch_queues
    if queue is not None:
        rows = rows.filter(name_of_queue() == queue)
    steps = rows.select(
        "ts",
        queue=name_of_queue(),
        before=pl.col("queued").cast(pl.Int64),
        depth=pl.when(step="insert")
        .then(pl.col("queued").cast(pl.Int64) + 1)
        .otherwise(pl.col("queued").cast(pl.Int64) - 1)
        .clip(0),
    ).collect()
    first = steps.unique("queue", keep="first", maintain_order=True).select(
        "queue", ts=pl.lit(begin, pl.Int64), depth="before"
    )
    changes = pl.concat([first, steps.select("queue", "ts", "depth")])
    return (
        changes.sort("queue", "ts", maintain_order=True)
        .filter((pl.col("depth") != pl.col("depth").shift(1).over("queue")).fill_null(True))
        .with_columns(
            dur=pl.col("ts").shift(-1).over("queue").fill_null(max(end, begin)) - pl.col("ts")
        )
        .filter(pl.col("dur") > 0)
        .select("queue", "ts", "dur", "depth")
    )
