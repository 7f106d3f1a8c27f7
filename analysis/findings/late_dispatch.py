"""Which waits passed in dispatch queues of sched_ext while a CPU idled that could run them?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.waits.queue_stays import stays

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

LEAST = 1_000_000
"""ns: a CPU that idles deeply takes up to a few hundred us until it runs a thread."""
_QUEUE = r"^(local|user) \d+$|^global$"
"""Queues from which a thread is dispatched; from that of a bypassed scheduler no CPU takes it."""


def late_dispatch(trace: Trace) -> pl.DataFrame:
    """One row per wait that was late, the longest lateness first.

    That is one that for half of its time or more, and for 1 ms or more, was in dispatch queues
    while a CPU that its thread may use was known to idle. The CPU whose local queue it was in does
    not count: it is about to run the thread.

    * `utid`, `ts`: the thread, and when the wait began; `wait`: its length as far as observed;
    * `late`: that time; `queue`: where most of it passed (ns).
    """
    # It loads NumPy, which no other finding needs.
    from schedscope.analysis.cpus.idle_beside import idle_beside

    found = stays(trace, None, [])
    waits = found.group_by("wait").agg(pl.col("dur").sum().alias("length"), pl.col("ts").min())
    queued = found.filter(pl.col("queue").str.contains(_QUEUE)).with_columns(
        until=pl.col("ts") + pl.col("dur"),
        own=pl.col("queue").str.extract(r"^local (\d+)$").cast(pl.Int64),
    )
    late = pl.col("late")
    return (
        queued.with_columns(idle_beside(trace, queued).alias("late"))
        .group_by("wait", "queue")
        .agg(pl.col("utid").first(), late.sum())
        .sort("wait", "late", "queue", descending=[False, True, False])
        .group_by("wait", maintain_order=True)
        .agg(pl.col("utid", "queue").first(), late.sum())
        .join(waits, on="wait")
        .filter(late >= LEAST, 2 * late >= pl.col("length"))
        .select("utid", "ts", "queue", "late", wait="length")
        .sort("late", "ts", "utid", descending=[True, False, False])
    )
