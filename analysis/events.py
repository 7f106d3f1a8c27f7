"""Which threads ran when, and how long did each wait before it ran?

One line per run of a thread: when it came onto which CPU, how long it had been off the
CPU, how much of that time it waited for a CPU and who woke it, how long it then ran, and
in which state it left. Use --since and --until to select a part. What
`perf sched timehist` calls wait time is `off CPU` here, and its sch delay is `wait`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS
from schedscope.analysis.asking.by import check_where
from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.threads.of_threads import threads_with

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


COMMAND = Command(
    heading="who waited, and why?",
    help="every run in order of time, with the wait before it",
    example="""\
  schedscope events web.capture --since 2.5 --until 2.52 --cpu 3
  schedscope events web.capture --comm nginx --longer-than 10ms
  schedscope events web.capture --tid 4711 --format csv
""",
    page="docs/definitions/events.md",
    top="the first N runs",
    top_default=50,
    selects="runs of these threads, or on this CPU (--cpu)",
    columns="ts cpu comm tid off wait cause waker waker_tid running state end",
    narrow="waker_tid end cause off waker",
    rest=("later run", ""),
    nothing="no runs for this selection",
)


@needs("switches")
def events(trace: Trace, *, where: pl.Expr | None = None) -> pl.DataFrame:
    """One row per run of a thread, from switch-in to switch-out, in order of time.

    This is what `perf sched timehist` lists, but ordered by switch-in instead of switch-out.
    `where` selects runs by columns of `threads`, `utid`, or `cpu`.

    * `ts`, `cpu`, `comm`, `tid`, `utid`: when which thread came onto which CPU;
    * `off`: how long it had not run (timehist's "wait time", sleep included); null for its first
      run, and where the trace lost track of it meanwhile;
    * `wait`: how much of that time it waited for a CPU ("sch delay"), if the wait was measured;
      `cause`: the cause of that wait; `waker`, `waker_tid`: the thread that woke it, if any;
    * `running`: how long it ran ("run time"); `end`: what ended the run: `switched`, `preempted`,
      `exited`, or, where it was last observed then, `lost` or `window`;
    * `state`: the state in which it left the CPU; null if that was not recorded. All times are in
      ns.

    Idle threads are left out, and so are runs of which only the start was seen. Raises `UsageError`
    for an unknown column.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 10, 30], "dur": [10, 20, 5], "utid": [1, 1, 1], "cpu": [0, None, 0],
    ...     "state": ["running", "sleeping", "running"], "end": ["switched", "woken", "window"]})
    >>> threads = pl.DataFrame({"utid": [0, 1], "comm": ["idle/0", "web"], "tid": [0, 7]})
    >>> trace = Trace.from_tables({"states": states, "threads": threads},
    ...     {"ncpu": 1, "window": [0, 35]})
    >>> events(trace).select("ts", "comm", "off", "running", "end").rows()
    [(0, 'web', None, 10, 'switched'), (30, 'web', 20, 5, 'window')]
    """
    check_where(where, ("utid", "cpu"))
    used = where.meta.root_names() if where is not None else []
    threads = threads_with(trace, used).select(
        "comm",
        "tid",
        *dict.fromkeys(n for n in used if n in THREAD_COLUMNS and n not in ("comm", "tid")),
        utid=pl.col("utid").cast(pl.UInt32),
    )
    states = trace.states.select(
        "ts", "dur", "cpu", "state", "end", utid=pl.col("utid").cast(pl.UInt32)
    ).filter(pl.col("utid") >= trace.ncpu)
    doubtful = pl.col("state").is_in(["running", "unknown"]) & (
        (pl.col("end") == "lost") | (pl.col("state") == "unknown")
    )
    # Unknown time of a thread lies between two runs: it starts a new count.
    runs = (
        states.filter(pl.col("state").is_in(["running", "unknown"]))
        .sort("utid", "ts", maintain_order=True)
        .with_columns(
            out=(pl.col("ts") + pl.col("dur")).shift(1).over("utid"),
            known=~doubtful.shift(1).over("utid").fill_null(True),
        )
        .filter(pl.col("state") == "running")
        .join(threads, on="utid", how="left")
    )
    if where is not None:
        runs = runs.filter(where)
    wakers = threads.select(
        waker_utid=pl.col("utid"), waker=pl.col("comm"), waker_tid=pl.col("tid")
    )
    waits = trace.waits.filter(pl.col("censored") == "none").select(
        "wait",
        "cause",
        ts="ts_run",
        utid=pl.col("utid").cast(pl.UInt32),
        waker_utid=pl.col("waker_utid").cast(pl.UInt32),
    )
    left = trace.switches.select(
        out_ts="ts", utid=pl.col("prev_utid").cast(pl.UInt32), left="prev_state"
    )
    return (
        runs.with_columns(out_ts=pl.col("ts") + pl.col("dur"))
        .join(waits, on=["utid", "ts"], how="left")
        .join(wakers, on="waker_utid", how="left")
        .join(left, on=["utid", "out_ts"], how="left")
        .select(
            "ts",
            "cpu",
            "comm",
            "tid",
            "utid",
            pl.when("known").then(pl.col("ts") - pl.col("out")).alias("off"),
            "wait",
            "cause",
            "waker",
            "waker_tid",
            "end",
            running=pl.col("dur"),
            state="left",
        )
        .sort("ts", "cpu", "utid")
        .collect()
        .select(
            *("ts", "cpu", "comm", "tid", "utid", "off", "wait", "cause", "waker", "waker_tid"),
            *("running", "end", "state"),
        )
    )
