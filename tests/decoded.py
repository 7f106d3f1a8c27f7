"""Foreign traces decoded in memory, and their events with tids, to compare across formats."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

import schedscope as ss
from schedscope import _native

FIXTURES = Path(__file__).parents[1] / "fixtures"


def decode(path: Path | str) -> ss.Trace:
    """The trace in `path`, not cached."""
    tables, about = _native.decode(str(path))
    return ss.Trace.from_tables(
        {name: pl.DataFrame(table) for name, table in tables.items()}, json.loads(about)
    )


def tids(trace: ss.Trace) -> pl.DataFrame:
    """utid -> tid; the idle threads and threads without one are 0."""
    idle = pl.col("utid") < trace.ncpu
    tid = pl.when(idle).then(0).otherwise(pl.col("tid").fill_null(0))
    return trace.threads.select("utid", tid=tid).collect()


def switches(trace: ss.Trace) -> pl.DataFrame:
    """ts, cpu, prev, prev_state, preempted, prev_prio, next, next_prio."""
    ids = tids(trace)
    return (
        trace.switches.collect()
        .with_columns(pl.col("prev_state").cast(pl.String))
        .join(ids.select(prev_utid="utid", prev="tid"), on="prev_utid", maintain_order="left")
        .join(ids.select(next_utid="utid", next="tid"), on="next_utid", maintain_order="left")
        .select("ts", "cpu", "prev", "prev_state", "preempted", "prev_prio", "next", "next_prio")
    )


def wakeups(trace: ss.Trace) -> pl.DataFrame:
    """ts, cpu, waker, kind, tid, prio, target_cpu."""
    ids = tids(trace)
    return (
        trace.wakeups.collect()
        .with_columns(pl.col("kind").cast(pl.String))
        .join(
            ids.select(waker_utid="utid", waker="tid"),
            on="waker_utid",
            how="left",
            maintain_order="left",
        )
        .join(ids, on="utid", maintain_order="left")
        .select("ts", "cpu", "waker", "kind", "tid", "prio", "target_cpu")
    )


def migrations(trace: ss.Trace) -> pl.DataFrame:
    """ts, cpu, tid, from_cpu, to_cpu."""
    return (
        trace.migrations.collect()
        .join(tids(trace), on="utid", maintain_order="left")
        .select("ts", "cpu", "tid", "from_cpu", "to_cpu")
    )


def lives(trace: ss.Trace) -> pl.DataFrame:
    """tid, comm, start_ts, exit_ts of every thread but the idle ones, sorted."""
    return (
        trace.threads.filter(pl.col("utid") >= trace.ncpu)
        .select("tid", "comm", "start_ts", "exit_ts")
        .collect()
        .sort("tid", "start_ts")
    )
