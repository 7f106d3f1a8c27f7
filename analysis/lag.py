"""How far was each thread behind what was due to it, over time?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.needs import needs
from schedscope.analysis.fairness import selected
from schedscope.analysis.recording.unknown_time import with_unknown_time_until
from schedscope.analysis.shares.sharing_groups import Per, competitors, sharing
from schedscope.analysis.threads.levels import Levels
from schedscope.errors import UsageError
from schedscope.units import nanoseconds

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_MOST_ROWS = 20_000_000


@needs("switches", "competitors")
def lag(
    trace: Trace,
    *,
    every: str | int | None = None,
    per: Per | None = None,
    where: pl.Expr | None = None,
) -> pl.DataFrame:
    """One row per thread and instant: service due to it since the start, less service received.

    Without `every`, a thread has a row whenever it started or stopped running or waiting. Between
    two rows its lag only rises, only falls, or (while it sleeps) stays the same. With `every`, all
    threads that ever competed have rows at the same instants, from the start of the window to its
    end; the lags at each instant sum to zero.

    * `utid`, `comm`, `tid`, `ts`: the thread and the instant;
    * `lag`: `due - received` (ns); positive: behind;
    * `due`, `received`: service due and CPU time received, both since the start of the window (ns),
      as far as the trace shows who competed: `fairness` bounds what is not known of that;
    * `unknown`: time since then for which the trace does not show what it did (ns): it may have
      received that much more.

    In order of `utid` and `ts`. `per`, `where` and the definition are those of `fairness`. Raises
    `UsageError` for an `every` that is not a duration above 0 ns, or gives too many rows.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 0, 60, 60], "dur": [60, 60, 40, 40], "utid": [1, 2, 2, 1], "cpu": [0] * 4,
    ...     "state": ["running", "runnable", "running", "runnable"], "prio": [120] * 4,
    ... })
    >>> threads = pl.DataFrame({"utid": [0, 1, 2], "comm": ["", "a", "b"], "tid": [0, 7, 8],
    ...     "prio": [None, 120, 120], "sched_class": ["idle", "fair", "fair"]})
    >>> trace = Trace.from_tables({"states": states, "threads": threads},
    ...     {"ncpu": 1, "window": [0, 100], "os": "Linux"})
    >>> lag(trace).filter(utid=2).drop("comm", "tid", "unknown")
    shape: (3, 5)
    ┌──────┬─────┬──────┬──────┬──────────┐
    │ utid ┆ ts  ┆ lag  ┆ due  ┆ received │
    │ ---  ┆ --- ┆ ---  ┆ ---  ┆ ---      │
    │ u32  ┆ i64 ┆ f64  ┆ f64  ┆ i64      │
    ╞══════╪═════╪══════╪══════╪══════════╡
    │ 2    ┆ 0   ┆ 0.0  ┆ 0.0  ┆ 0        │
    │ 2    ┆ 60  ┆ 30.0 ┆ 30.0 ┆ 0        │
    │ 2    ┆ 100 ┆ 10.0 ┆ 50.0 ┆ 40       │
    └──────┴─────┴──────┴──────┴──────────┘
    """
    step = None if every is None else nanoseconds(every)
    if step is not None and step <= 0:
        raise UsageError(f"every={every!r}", "a duration longer than 0 ns", "as in 10ms")
    begin, end = trace.window
    # Checked for one thread before any is read: 1 ns steps over an hour would take all memory.
    _refuse_too_many(every, 0 if step is None else (end - begin) // step)
    read, how = competitors(trace, Levels(trace), per)
    chosen = [where is None] * read.threads
    if where is not None:
        all_threads = trace.threads.select("utid").collect()
        for utid in selected(trace, all_threads, where)["utid"]:
            if utid < len(chosen):
                chosen[utid] = True
    instants = None if step is None else [*range(begin, end, step), end]
    threads, found = read.lag(sharing(trace, how), chosen, instants, _MOST_ROWS)
    _refuse_too_many(every, 0 if instants is None else len(instants) * threads)
    frame = pl.DataFrame(found).with_columns(lag=pl.col("due") - pl.col("received"))
    return _named(trace, frame)


def _refuse_too_many(every: str | int | None, rows: int) -> None:
    if rows > _MOST_ROWS:
        raise UsageError(
            f"every={every!r} gives {rows:,} rows",
            f"at most {_MOST_ROWS:,}",
            "use a longer interval, or select threads with where",
        )


def _named(trace: Trace, frame: pl.DataFrame) -> pl.DataFrame:
    names = trace.threads.select(pl.col("utid").cast(pl.UInt32), "comm", "tid").collect()
    joined = frame.join(names, on="utid", how="left", maintain_order="left")
    named = joined.select("utid", "comm", "tid", "ts", "lag", "due", "received")
    return with_unknown_time_until(trace, named)
