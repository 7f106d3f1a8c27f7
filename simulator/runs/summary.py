"""One run in one row, and many policies side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.cpus.occupancy import reading_once
from schedscope.analysis.fairness import jain_index
from schedscope.analysis.latency import latency
from schedscope.analysis.migration.migrations import migration_summary
from schedscope.analysis.starvation.starvation import starvation_summary
from schedscope.analysis.work_conservation import work_conservation
from schedscope.errors import UsageError
from schedscope.simulator.policies.policy import Policy, anew, called, policies as _policies
from schedscope.simulator.runs.run import Progress, simulate
from schedscope.simulator.workloads.workload import Workload
from schedscope.store.trace import Trace

STARVED_AFTER = 1_000_000_000
"""A thread is starved if it waited longer than this at a time (1 s)."""

QUANTILES = (0.5, 0.99)

SCHEMA = pl.Schema(
    {
        "policy": pl.String(),
        "sched_class": pl.String(),
        "completion": pl.Int64(),
        "n_waits": pl.UInt32(),
        "wait_mean": pl.Int64(),
        "wait_p50": pl.Int64(),
        "wait_p99": pl.Int64(),
        "wait_max": pl.Int64(),
        "n_starved": pl.UInt32(),
        "n_switches": pl.UInt32(),
        "n_preemptions": pl.UInt32(),
        "n_migrations": pl.UInt32(),
        "wasted": pl.Int64(),
        "fairness": pl.Float64(),
        "ended": pl.String(),
    }
)


def summary(
    trace: Trace, *, starved_after: int | str = STARVED_AFTER, utids: pl.Series | None = None
) -> dict[str, Any]:
    """One row: what a (simulated) trace came to, all scheduling classes together.

    Every figure is that of the analysis named, so that `simulate` and it say the same.

    * `completion`: the last exit, or the window's length if not every thread ended;
    * `n_waits`, `wait_mean`, `wait_p50`, `wait_p99`: of `latency`, waits seen from start to end;
      `wait_max`: the longest wait, including those still open, at their length so far;
    * `n_starved`: threads that once waited longer than `starved_after` (`starvation`);
    * `n_switches`, `n_preemptions`: switches, and those off a CPU that was still wanted;
    * `n_migrations`: moves to another CPU's queue (`migration_summary`);
    * `wasted`: idle CPU time that waiting threads could have used (`work_conservation`);
    * `fairness`: Jain's index over the fair class of the CPU time that a thread got over the time
      that was due to it (`jain_index`); null for fewer than two threads.

    Of the threads `utids` only, if they are given, but for `wasted`. Times are ns.
    """
    where = None if utids is None else pl.col("utid").is_in(utids.implode())
    mine = pl.lit(True) if utids is None else pl.col("prev_utid").is_in(utids.implode())
    whose = pl.col("utid") >= trace.ncpu if where is None else where
    threads = trace.threads.filter(whose).select("exit_ts").collect()
    begin, end = trace.window
    exits: list[int] = threads["exit_ts"].drop_nulls().sort().to_list()
    finished = len(exits) == threads.height > 0
    simulation = trace.info.get("simulation") or {}
    preempted = trace.switches.filter(
        (pl.col("prev_state") == "runnable")
        & (pl.col("prev_utid") >= trace.ncpu)
        & mine
        & pl.col("preempted").fill_null(True)
    )
    switches, preemptions = pl.collect_all(
        [trace.switches.filter(mine).select(pl.len()), preempted.select(pl.len())],
    )
    with reading_once(trace):
        if where is None:
            (waits,) = once(latency, trace, quantiles=QUANTILES).to_dicts()
        else:
            (waits,) = latency(trace, quantiles=QUANTILES, where=where).to_dicts()
        starved = starvation_summary(trace, by="all", threshold=starved_after, where=where)
        treated = jain_index(trace, where=where).filter(
            pl.col("sharing").is_in(["fair", "timeshare"])
        )
        return {
            "sched_class": None,
            "completion": (exits[-1] if finished else end) - begin,
            **_waits(waits),
            "n_starved": starved["threads"].sum(),
            "n_switches": switches.item(),
            "n_preemptions": preemptions.item(),
            "n_migrations": migration_summary(trace, [], where=where)["n"].sum(),
            "wasted": work_conservation(trace)["wasted"].item(),
            "fairness": treated["jain"].item() if treated.height == 1 else None,
            "ended": simulation.get("ended"),
        }


def waits_by_class(
    trace: Trace, *, starved_after: int | str = STARVED_AFTER, utids: pl.Series | None = None
) -> list[dict[str, Any]]:
    """One row per scheduling class: the columns of `summary` that are about waits.

    Empty if all threads that waited are of one class: the row of all says it.
    """
    where = None if utids is None else pl.col("utid").is_in(utids.implode())
    frame = latency(trace, by="sched_class", quantiles=QUANTILES, where=where)
    frame = (
        frame.filter(pl.col("n") + pl.col("n_censored") > 0)
        .with_columns(pl.col("sched_class").cast(pl.String))
        .sort("sched_class")
    )
    if frame.height < 2:
        return []
    rows = []
    for row in frame.to_dicts():
        name = row["sched_class"]
        of_class = pl.col("sched_class").cast(pl.String).eq_missing(pl.lit(name))
        of_class = of_class if where is None else of_class & where
        starved = starvation_summary(trace, by="all", threshold=starved_after, where=of_class)
        n_starved = starved["threads"].sum()
        rows.append({"sched_class": name, **_waits(row), "n_starved": n_starved})
    return rows


def _waits(row: Mapping[str, Any]) -> dict[str, Any]:
    """The wait columns from a row of `latency`."""
    longest = [row[name] for name in ("max", "max_censored") if row[name] is not None]
    return {
        "n_waits": row["n"],
        "wait_mean": None if row["mean"] is None else round(row["mean"]),
        "wait_p50": row["p50"],
        "wait_p99": row["p99"],
        "wait_max": max(longest, default=None),
    }


def simulate_all(
    workload: Workload,
    *,
    policies: Iterable[str | Policy] | None = None,
    progress: Progress | None = None,
    keep: Mapping[str, Trace] | None = None,
    by_class: bool = False,
    **options: Any,
) -> pl.DataFrame:
    """One row per policy: the workload run under each (`summary`'s columns).

    `options` are those of `simulate` except `policy` and `set`. With `keep`, a dict, the traces
    are stored there by policy. With `by_class` a row for each
    scheduling class follows (`waits_by_class`) where there are several.

    >>> from schedscope.simulator.workloads.generators import hogs
    >>> frame = simulate_all(hogs(3, time="10ms"), policies=["fifo", "rr"], cpus=2)
    >>> frame.select("policy", "completion", "wait_max").rows()
    [('fifo', 20000000, 10000000), ('rr', 20000000, 10000000)]
    """
    asked = [policies] if isinstance(policies, (str, Policy)) else policies
    names = list(asked) if asked is not None else _policies()["name"].to_list()
    if not names:
        raise UsageError("no policy", "at least one")
    rows = []
    for policy in names:
        name = called(policy)
        trace = simulate(workload, policy=anew(policy), progress=progress, **options)
        rows += rows_of(name, trace, by_class=by_class)
        if isinstance(keep, dict):
            keep[name] = trace
    return pl.DataFrame(rows, schema=SCHEMA)


def rows_of(
    name: str, trace: Trace, *, by_class: bool = False, utids: pl.Series | None = None
) -> list[dict[str, Any]]:
    """The rows of `simulate_all` for one policy's trace, of the threads `utids` or of all."""
    classes = waits_by_class(trace, utids=utids) if by_class else []
    return [{"policy": name, **row} for row in (summary(trace, utids=utids), *classes)]
