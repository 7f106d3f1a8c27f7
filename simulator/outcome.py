"""What one run came to, in one row; and many policies side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from schedscope.errors import UsageError
from schedscope.simulator.policy import policies as _policies
from schedscope.simulator.run import Progress, simulate
from schedscope.simulator.workload import Workload
from schedscope.trace import Trace
from schedscope.units import nanoseconds

STARVED_AFTER = 1_000_000_000
"""A thread is starved if it waited longer than this at a time (1 s)."""

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


def outcome(trace: Trace, *, starved_after: int | str = STARVED_AFTER) -> dict[str, Any]:
    """One row: what a (simulated) trace came to, all scheduling classes together.

    `completion`: the last exit, or the window's length if not every thread
    ended; `wait_*`: waits for a CPU, open ones at their length so far;
    `n_starved`: threads of which one wait was longer than `starved_after`;
    `n_migrations`: runs on another CPU than the thread's last; `wasted`: the
    time integral of min(idle CPUs, waiting threads that may use any CPU);
    `fairness`: Jain's index over the fair class of the share of its wanted time
    (running and waiting) that a thread ran, 1 if all were treated alike.
    Times are ns.
    """
    threads = trace.threads.filter(pl.col("utid") >= trace.ncpu).collect()
    states = (
        trace.states.select("ts", "dur", "utid", "state", "cpu")
        .filter(pl.col("state").is_in(["running", "runnable"]))
        .collect()
    )
    own = states.filter(pl.col("utid") >= trace.ncpu)
    waits = trace.waits.filter(pl.col("wait").is_not_null()).select("utid", "wait").collect()
    begin, end = trace.window
    exits: list[int] = threads["exit_ts"].drop_nulls().sort().to_list()
    finished = len(exits) == threads.height > 0
    long_ns = nanoseconds(starved_after)
    wait = waits["wait"]

    def quantile(q: float) -> int | None:
        value = wait.quantile(q, "lower")
        return None if value is None else int(value)

    simulation = trace.info.get("simulation") or {}
    preempted = trace.switches.filter(
        (pl.col("prev_state") == "runnable")
        & (pl.col("prev_utid") >= trace.ncpu)
        & pl.col("preempted").fill_null(True)
    )
    counts = pl.collect_all(
        [trace.switches.select(pl.len()), preempted.select(pl.len())],
    )
    mean = wait.mean()
    return {
        "sched_class": None,
        "completion": (exits[-1] if finished else end) - begin,
        "n_waits": wait.len(),
        "wait_mean": round(mean) if isinstance(mean, float) else None,
        "wait_p50": quantile(0.5),
        "wait_p99": quantile(0.99),
        "wait_max": wait.max(),
        "n_starved": waits.filter(pl.col("wait") > long_ns)["utid"].n_unique(),
        "n_switches": counts[0].item(),
        "n_preemptions": counts[1].item(),
        "n_migrations": _migrations(own),
        "wasted": _wasted(trace, states, threads),
        "fairness": _fairness(own, threads),
        "ended": simulation.get("ended"),
    }


def waits_by_class(
    trace: Trace, *, starved_after: int | str = STARVED_AFTER
) -> list[dict[str, Any]]:
    """One row per scheduling class: the columns of `outcome` that are about waits.

    Empty if all threads that waited are of one class: the row of all says it.
    """
    frame = (
        trace.waits.filter(pl.col("wait").is_not_null())
        .join(
            trace.threads.select("utid", pl.col("sched_class").cast(pl.String)),
            on="utid",
        )
        .group_by("sched_class")
        .agg(
            n_waits=pl.len(),
            wait_mean=pl.col("wait").mean().round().cast(pl.Int64),
            wait_p50=pl.col("wait").quantile(0.5, "lower").cast(pl.Int64),
            wait_p99=pl.col("wait").quantile(0.99, "lower").cast(pl.Int64),
            wait_max=pl.col("wait").max(),
            n_starved=pl.col("utid").filter(pl.col("wait") > nanoseconds(starved_after)).n_unique(),
        )
        .sort("sched_class")
        .collect()
    )
    return frame.to_dicts() if frame.height > 1 else []


def simulate_all(
    workload: Workload,
    *,
    policies: Iterable[str] | None = None,
    progress: Progress | None = None,
    keep: Mapping[str, Trace] | None = None,
    by_class: bool = False,
    **options: Any,
) -> pl.DataFrame:
    """One row per policy: the workload run under each (`outcome`'s columns).

    `options` are those of `simulate` but `policy` and `set`. With `keep`, a
    dict, the traces are left there by policy. With `by_class` a row for each
    scheduling class follows (`waits_by_class`) where there are several.

    >>> from schedscope.simulator.generators import hogs
    >>> frame = simulate_all(hogs(3, time="10ms"), policies=["fifo", "rr"], machine=2)
    >>> frame.select("policy", "completion", "wait_max").rows()
    [('fifo', 20000000, 10000000), ('rr', 20000000, 10000000)]
    """
    names = list(policies) if policies is not None else _policies()["name"].to_list()
    if not names:
        raise UsageError("no policy", "at least one")
    rows = []
    for name in names:
        trace = simulate(workload, policy=name, progress=progress, **options)
        rows += rows_of(name, trace, by_class=by_class)
        if isinstance(keep, dict):
            keep[name] = trace
    return pl.DataFrame(rows, schema=SCHEMA)


def rows_of(name: str, trace: Trace, *, by_class: bool = False) -> list[dict[str, Any]]:
    """The rows of `simulate_all` for one policy's trace."""
    classes = waits_by_class(trace) if by_class else []
    return [{"policy": name, **row} for row in (outcome(trace), *classes)]


def _migrations(own: pl.DataFrame) -> int:
    runs = own.filter(pl.col("state") == "running").sort("utid", "ts")
    moved = runs.select((pl.col("cpu") != pl.col("cpu").shift().over("utid")).sum()).item()
    return int(moved or 0)


def _wasted(trace: Trace, states: pl.DataFrame, threads: pl.DataFrame) -> int:
    """Integral of min(idle CPUs, waiting unbound threads) over time, ns."""
    every = "0" if trace.ncpu == 1 else f"0-{trace.ncpu - 1}"
    unbound = threads.filter(pl.col("affinity").is_null() | (pl.col("affinity") == every))
    idle = states.filter((pl.col("utid") < trace.ncpu) & (pl.col("state") == "running"))
    waiting = states.filter(pl.col("state") == "runnable").join(
        unbound.select("utid"), on="utid", how="semi"
    )
    if idle.is_empty() or waiting.is_empty():
        return 0

    def steps(frame: pl.DataFrame, column: str) -> pl.DataFrame:
        up = frame.select("ts", pl.lit(1, pl.Int64).alias(column))
        down = frame.select(ts=pl.col("ts") + pl.col("dur"), **{column: pl.lit(-1, pl.Int64)})
        return pl.concat([up, down])

    both = pl.concat([steps(idle, "idle"), steps(waiting, "waiting")], how="diagonal")
    at = (
        both.group_by("ts")
        .agg(pl.col("idle").sum(), pl.col("waiting").sum())
        .sort("ts")
        .with_columns(pl.col("idle").cum_sum(), pl.col("waiting").cum_sum())
        .with_columns(dur=pl.col("ts").shift(-1) - pl.col("ts"))
    )
    return int(at.select((pl.min_horizontal("idle", "waiting") * pl.col("dur")).sum()).item())


def _fairness(own: pl.DataFrame, threads: pl.DataFrame) -> float | None:
    fair = threads.filter(pl.col("sched_class").cast(pl.String).is_in(["fair", "timeshare"]))
    share = (
        own.join(fair.select("utid"), on="utid", how="semi")
        .group_by("utid")
        .agg(
            ran=pl.col("dur").filter(pl.col("state") == "running").sum(),
            wanted=pl.col("dur").sum(),
        )
        .filter(pl.col("wanted") > 0)
        .select(x=pl.col("ran") / pl.col("wanted"))["x"]
    )
    squares = float((share**2).sum())
    if share.is_empty() or squares == 0:
        return None
    return float(share.sum()) ** 2 / (share.len() * squares)
