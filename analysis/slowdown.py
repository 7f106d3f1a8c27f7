"""How much longer did processes take than the CPU time they used?

One line per process: elapsed time, CPU time, the time that it waited for a CPU, and the
slowdown that results. Threads can be grouped by other columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS
from schedscope.analysis.asking.by import By, check_where, keys_of
from schedscope.analysis.asking.command import THREAD_GROUPS, Command
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.cpus.topology import recorded_cpus
from schedscope.analysis.recording.unknown_time import possible_waiting
from schedscope.analysis.threads.of_threads import threads_with

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


COMMAND = Command(
    heading="how well was the machine used?",
    help="elapsed time of processes against their CPU time",
    example="""\
  schedscope slowdown web.capture --by comm --comm 'make*'
  schedscope slowdown web.capture --top 10 --format json
""",
    page="docs/definitions/efficiency.md",
    by=("all", *THREAD_GROUPS),
    by_default="pid",
    top="the first N rows",
    selects="rows about these threads",
    no_cpu="a process is not on a single CPU",
    columns="*by threads wall cpu waiting preempted unknown? ratio slowdown n_censored?",
    narrow="n_censored unknown threads preempted",
)


@needs("switches")
def slowdown(trace: Trace, *, by: By = "process", where: pl.Expr | None = None) -> pl.DataFrame:
    """One row per group of threads: elapsed time against CPU time.

    `by` names columns of `threads` (`pid`, `comm`, `tid`, `kernel`, `sched_class`, `affinity`,
    `recorder`) or `utid`; `[]` makes one group of all. `where` selects threads by the same columns.
    Idle threads are left out; threads for which a column is not known form a group with a null
    there.

    * the columns of `by`;
    * `threads`: how many; `n_censored`: those whose start or exit lies outside the window or
      was not seen;
    * `wall`: time from the first to the last thing known of any of them, ns;
    * `cpu`, `waiting`, `unknown`: time in which they ran, in which they wanted a CPU and had none,
      and for which the trace does not show what they did (ns, summed over threads);
    * `preempted`: the part of the waiting that followed a preemption, from the ledger (ns; yields
      that the source does not distinguish from preemptions are included);
    * `ratio`: `wall` over CPU time per CPU, `wall * cpus / cpu`, with `cpus` the smaller of
      `threads` and the CPUs there are: 1 where the group always ran on as many CPUs as it could
      use. It shows how good the schedule was only for threads that do nothing but compute, because
      a sleep counts like a wait;
    * `slowdown`: `(cpu + waiting) / cpu`, which does not depend on sleep: 1 where no thread
      ever waited. It is a lower bound, as if they ran in all of the `unknown` time; for
      `slowdown_high` they wait in it, as far as they may have.

    Most CPU time first; both ratios are null if there is none. Definition:
    docs/definitions/efficiency.md. Raises `UsageError` for an unknown column.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 30, 0, 30],
    ...     "dur": [30, 30, 30, 30],
    ...     "utid": [1, 1, 2, 2],
    ...     "state": ["running", "runnable", "runnable", "running"],
    ... })
    >>> threads = pl.DataFrame({"utid": [0, 1, 2], "comm": ["idle", "hog", "hog"]})
    >>> tables = {"states": states, "threads": threads.with_columns(start_ts=pl.lit(0))}
    >>> trace = Trace.from_tables(tables, {"ncpu": 1, "window": [0, 60]})
    >>> rest = ["n_censored", "unknown", "preempted", "slowdown_high"]
    >>> slowdown(trace, by="comm").drop(rest)
    shape: (1, 7)
    ┌──────┬─────────┬──────┬─────┬─────────┬───────┬──────────┐
    │ comm ┆ threads ┆ wall ┆ cpu ┆ waiting ┆ ratio ┆ slowdown │
    │ ---  ┆ ---     ┆ ---  ┆ --- ┆ ---     ┆ ---   ┆ ---      │
    │ str  ┆ i64     ┆ i64  ┆ i64 ┆ i64     ┆ f64   ┆ f64      │
    ╞══════╪═════════╪══════╪═════╪═════════╪═══════╪══════════╡
    │ hog  ┆ 2       ┆ 60   ┆ 60  ┆ 60      ┆ 1.0   ┆ 2.0      │
    └──────┴─────────┴──────┴─────┴─────────┴───────┴──────────┘
    """
    keys = keys_of(by, ("utid", *THREAD_COLUMNS))
    check_where(where, ("utid",))
    begin, end = trace.window
    preempted = (
        trace.waits.filter(pl.col("cause") == "preempt")
        .group_by(pl.col("utid").cast(pl.UInt32))
        .agg(preempted=pl.col("wait").sum())
    )
    columns = list(dict.fromkeys([*keys, *(where.meta.root_names() if where is not None else ())]))
    known = threads_with(trace, columns).select(
        pl.col("utid").cast(pl.UInt32), "start_ts", *(c for c in columns if c != "utid")
    )
    lives = _lives(trace).join(known, on="utid", how="left")
    waited = possible_waiting(trace).rename({"unknown": "possible"}).lazy()
    for more in (preempted, waited):
        lives = lives.join(more, on="utid", how="left")
    if where is not None:
        lives = lives.filter(where)
    whole = (pl.col("start_ts") >= begin).fill_null(False) & (pl.col("until") < end)
    what = [
        pl.len().cast(pl.Int64).alias("threads"),
        (~whole).sum().cast(pl.Int64).alias("n_censored"),
        (pl.col("until").max() - pl.col("since").min()).alias("wall"),
        pl.col("cpu", "waiting", "unknown", "preempted", "possible").sum(),
    ]
    frame = (lives.group_by(keys).agg(what) if keys else lives.select(what)).collect()
    cpus = pl.min_horizontal("threads", pl.lit(len(recorded_cpus(trace))))
    used = pl.when(pl.col("cpu") > 0)
    return (
        frame.filter(pl.col("threads") > 0)
        .with_columns(
            ratio=used.then(pl.col("wall") * cpus / pl.col("cpu")),
            slowdown=used.then(1 + pl.col("waiting") / (pl.col("cpu") + pl.col("unknown"))),
            slowdown_high=used.then(1 + (pl.col("waiting") + pl.col("possible")) / pl.col("cpu")),
        )
        .drop("possible")
        .sort("cpu", *keys, descending=[True, *[False] * len(keys)])
    )


def _lives(trace: Trace) -> pl.LazyFrame:
    """One row per thread: when it was first and last known of, and how it spent that time."""
    begin, end = trace.window
    since = pl.col("ts").clip(lower_bound=begin)
    until = (pl.col("ts") + pl.col("dur")).clip(upper_bound=end)
    state, held = pl.col("state"), pl.col("until") - pl.col("since")
    return (
        trace.states.filter(pl.col("utid") >= trace.ncpu)
        .select(pl.col("utid").cast(pl.UInt32), "state", since=since, until=until)
        .filter(pl.col("since") < pl.col("until"))
        .group_by("utid")
        .agg(
            pl.col("since").min(),
            pl.col("until").max(),
            cpu=held.filter(state == "running").sum(),
            waiting=held.filter(state == "runnable").sum(),
            unknown=held.filter(state == "unknown").sum(),
        )
    )
