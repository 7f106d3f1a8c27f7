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
from schedscope.analysis.waits.waits import waits

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

IN_SCHEDULER = "BPF scheduler"
"""Where a wait is that is in no queue, and may be put into one yet."""
PICKED = "picked"
"""From when it was taken from its last queue until it ran."""
OTHER_CLASS = "other class"
"""A wait that ended without a queue: sched_ext runs only what is in a CPU's local one."""
UNKNOWN = "unknown"
"""Waits during which events may be missing, and how much longer an unfinished one may be."""

BY = ("comm", "tid", "pid", "utid", "process_name", "cgroup", "service", "cause")


COMMAND = Command(
    heading="who waited, and why?",
    help="in which dispatch queues of sched_ext threads waited",
    example="""\
  schedscope dispatch-queues web.capture
  schedscope dispatch-queues web.capture --by comm --comm nginx
  schedscope dispatch-queues web.capture --slices --by tid
  schedscope dispatch-queues web.capture --steps --format csv
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


def stays(trace: Trace, where: pl.Expr | None, keys: list[str]) -> pl.DataFrame:
    """One row per stay of a wait: `wait`, `utid`, `queue`, `ts`, `dur`, and the columns `keys`."""
    times = ["utid", "ts_ready", "wait", "wait_high", "censored"]
    ledger = (
        waits(trace, [*dict.fromkeys([*times, *keys])], where)
        .filter(pl.col("wait").is_not_null())
        .collect()
        .with_row_index("number")
        .with_columns(end=pl.col("ts_ready") + pl.col("wait"))
    )
    doubted = _in_doubt(trace, ledger)
    cut = _cut(trace, ledger.filter(~doubted))
    whole = ledger.filter(doubted).select("number", ts="ts_ready", dur="wait")
    longer = ledger.filter(pl.col("wait_high") > pl.col("wait")).select(
        "number", ts="end", dur=pl.col("wait_high") - pl.col("wait")
    )
    unknown = pl.concat([whole, longer]).with_columns(queue=pl.lit(UNKNOWN))
    found = pl.concat([cut, unknown.select(cut.columns)])
    of_wait = ledger.select("number", *dict.fromkeys(["utid", *keys]))
    return found.join(of_wait, on="number", how="left").rename({"number": "wait"})


def name_of_queue() -> pl.Expr:
    """The queue of a row of `dispatch_queues`, in words."""
    number = pl.coalesce(pl.col("queue_cpu").cast(pl.UInt64), "queue_id").cast(pl.String)
    kind = pl.col("kind").cast(pl.String)
    return pl.when(number.is_null()).then(kind).otherwise(kind + " " + number)


def _in_doubt(trace: Trace, ledger: pl.DataFrame) -> pl.Series:
    """Whether events of any CPU may be missing while it waited: each may put it into a queue."""
    holes = (
        trace.losses.filter(pl.col("ts_end") > pl.col("ts_begin"))
        .select("ts_begin", reaches="ts_end")
        .sort("ts_begin")
        .with_columns(pl.col("reaches").cum_max())
        .collect()
    )
    before = ledger.select("number", "ts_ready", "end").sort("end")
    before = before.join_asof(holes, left_on="end", right_on="ts_begin", allow_exact_matches=False)
    return (
        before.sort("number")
        .select((pl.col("reaches") > pl.col("ts_ready")).fill_null(False))
        .to_series()
    )


def _cut(trace: Trace, ledger: pl.DataFrame) -> pl.DataFrame:
    """Waits cut at each step of their thread into a queue or out of one.

    A thread's queue follows from its last step; without one since its last run it is in no queue.
    Before its first step in the trace it is in the queue that this step takes it from.
    """
    steps = trace.dispatch_queues.select(
        "ts", "utid", name=name_of_queue(), put=pl.col("step") == "insert"
    ).collect()
    first = steps.unique("utid", keep="first", maintain_order=True).filter(~pl.col("put"))
    known = {"wait": pl.lit(None, pl.Int64)}
    moves = steps.select(
        "utid", "ts", queue=pl.when("put").then("name").otherwise(pl.lit("")), **known
    )
    held = first.select("utid", ts=pl.lit(trace.window[0], pl.Int64), queue="name", **known)
    begins = ledger.select(
        "utid", ts="ts_ready", queue=pl.lit(None, pl.String), wait=pl.col("number").cast(pl.Int64)
    )
    # It runs, or nothing more is known of it; this includes waits outside the selection.
    nowhere = {"queue": pl.lit(""), "wait": pl.lit(-1, pl.Int64)}
    ends = ledger.select("utid", ts="end", **nowhere)
    runs = trace.waits.select("utid", ts="ts_run", **nowhere).drop_nulls("ts").collect()
    line = (
        pl.concat([held, moves, begins, ends, runs])
        .sort("utid", "ts", maintain_order=True)
        .with_columns(
            dur=pl.col("ts").shift(-1).over("utid") - pl.col("ts"),
            queue=pl.col("queue").forward_fill().over("utid").fill_null(""),
            wait=pl.col("wait").forward_fill().over("utid"),
        )
        .filter(pl.col("wait") >= 0, pl.col("dur") > 0)
    )
    measured = ledger.select(
        wait=pl.col("number").cast(pl.Int64), seen=pl.col("censored") == "none"
    )
    last = pl.col("ts") == pl.col("ts").max().over("wait")
    queued = (pl.col("queue") != "").any().over("wait")
    unqueued = (
        pl.when(pl.col("seen") & ~queued)
        .then(pl.lit(OTHER_CLASS))
        .when(pl.col("seen") & last)
        .then(pl.lit(PICKED))
        .otherwise(pl.lit(IN_SCHEDULER))
    )
    return (
        line.join(measured, on="wait", how="left")
        .with_columns(queue=pl.when(pl.col("queue") == "").then(unqueued).otherwise("queue"))
        .select(pl.col("wait").cast(pl.UInt32).alias("number"), "ts", "dur", "queue")
    )
