"""Which dispatch queues of sched_ext did waits pass through, and for how long?

Each wait for a CPU is cut into the time in each queue, and that in none: before the BPF
scheduler put the thread into one, and after it was picked. The parts add up to the wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.by import By, keys_of
from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.sums.quantiles import nearest_rank
from schedscope.analysis.waits.queue_stays import UNKNOWN, stays

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

BY = ("comm", "tid", "pid", "utid", "process_name", "cgroup", "service", "cause")


COMMAND = Command(
    heading="who waited, and why?",
    help="in which dispatch queues of sched_ext threads waited",
    example="""\
  schedscope dispatch-queues web.capture
  schedscope dispatch-queues web.capture --by comm --comm nginx
  schedscope dispatch-queues web.capture --slices --by tid
  schedscope dispatch-queues web.capture --steps --format csv
  schedscope dispatch-queues web.capture --kicks
""",
    page="docs/definitions/dispatch-queues.md",
)


@needs("switches", "dispatch_queues")
def dispatch_queues(trace: Trace, *, by: By = "all", where: pl.Expr | None = None) -> pl.DataFrame:
    """One row per dispatch queue: how long threads waited in it.

    A wait is cut into stays, each in one queue, that add up to it exactly. `queue` is
    `local 3`, of CPU 3; `global`; `bypass 3`, where threads of CPU 3 wait while the scheduler is
    bypassed; `user 7`, one that the scheduler made; or

    * `BPF scheduler`: in no queue, before it is put into the first one or between two;
    * `picked`: taken from its last queue, until it runs;
    * `other class`: the whole wait of a thread that ran without having been in any;
    * `unknown`: waits during which events may be missing, and what is not known of cut ones.

    Columns:

    * `n`: stays; `n_waits`: waits that they belong to;
    * `total`: time waited there; `total_high`: with all of the unknown time (ns);
    * `total_frac`: share of the time of all rows;
    * `p50`, `p99`, `max`: lengths of stays, and `ts_max`, when the longest began (ns).

    `by`: rows also for each of these columns of threads, or `cause`. Most time first.
    Definition: docs/definitions/dispatch-queues.md. Raises `UsageError` for another column.
    """
    keys = keys_of(by, BY)
    found = stays(trace, where, keys)
    length = pl.col("dur")
    frame = found.group_by(*keys, "queue").agg(
        n=pl.len().cast(pl.Int64),
        n_waits=pl.col("wait").n_unique().cast(pl.Int64),
        total=length.sum(),
        p50=nearest_rank(length, 0.5),
        p99=nearest_rank(length, 0.99),
        max=length.max(),
        ts_max=pl.col("ts").sort_by("dur", descending=True, maintain_order=True).first(),
    )
    unknown = pl.col("total").filter(pl.col("queue") == UNKNOWN).sum()
    own = unknown.over(keys) if keys else unknown
    known = pl.col("queue") != UNKNOWN
    total = pl.col("total").sum()
    return frame.with_columns(
        total_high=pl.col("total") + pl.when(known).then(own).otherwise(0),
        total_frac=pl.when(total > 0).then(pl.col("total") / total),
    ).select(
        *keys, "queue", "n", "n_waits", "total", "total_high", "total_frac",
        "p50", "p99", "max", "ts_max",
    ).sort(["total", "queue", *keys], descending=[True, *([False] * (1 + len(keys)))])  # fmt: skip
