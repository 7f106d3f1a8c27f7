"""Which CPUs were offline, and when?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis._base.lost_events import IS_BREAK
from schedscope.analysis._base.memo import once
from schedscope.analysis._base.recorded_threads import recorded_threads

if TYPE_CHECKING:
    from schedscope.trace import Trace

_SCHEMA = {"cpu": pl.UInt16, "ts": pl.Int64, "dur": pl.Int64, "broken": pl.Boolean}


def offline(trace: Trace) -> pl.DataFrame:
    """One row per stretch of time in which a CPU was offline, as far as the trace tells.

    * `cpu`, `ts`, `dur`: which, and when within the window;
    * `broken`: the CPU came back, and its chain of switches is broken there.

    It was so all along if the host said so when the recording began and the CPU has no switch. And
    a switch to a CPU's stopper that is the last thing it did before it is found idle, or before
    the window ends, took it offline (docs/trace-model.md, Taken down). Where events of a CPU are
    lost, nothing is concluded.
    """
    return once(_found, trace)


def _found(trace: Trace) -> pl.DataFrame:
    rows = [*_all_along(trace), *_taken_down(trace)]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row").sort("ts", "cpu")


def _all_along(trace: Trace) -> list[tuple[int, int, int, bool]]:
    absent = trace.cpus.filter(~pl.col("online")).collect()["cpu"].to_list()
    if not absent:
        return []
    seen = trace.switches.filter(pl.col("cpu").is_in(absent)).select("cpu").unique().collect()
    lossy = _lossy(trace)
    gone = sorted(set(absent) - {*seen["cpu"].to_list(), *lossy})
    return [(cpu, trace.window[0], trace.duration, False) for cpu in gone]


def _taken_down(trace: Trace) -> list[tuple[int, int, int, bool]]:
    if recorded_threads(trace) is not None:
        return []
    stoppers = trace.threads.filter(pl.col("sched_class") == "stop").select("utid").collect()
    if stoppers.is_empty():
        return []
    ids = pl.lit(stoppers["utid"]).implode()
    # Of a stopper's switches on its CPU, ins and outs take turns, but for those that took it down.
    into = pl.col("next_utid").is_in(ids)
    left = (
        trace.switches.filter(into | pl.col("prev_utid").is_in(ids))
        .select("cpu", "ts", into=into)
        .with_columns(followed=pl.col("into").shift(-1).over("cpu"))
        .filter("into", pl.col("followed").fill_null(True))
        .select("cpu", "ts")
        .collect()
    )
    if left.is_empty():
        return []
    lossy = _lossy(trace)
    breaks = trace.losses.filter(IS_BREAK).sort("ts_begin").collect()
    begin, end = trace.window
    found = []
    for cpu, ts in left.filter(~pl.col("cpu").is_in(lossy)).iter_rows():
        back = breaks.filter((pl.col("cpu") == cpu) & (pl.col("ts_begin") >= ts)).head(1)
        if len(back):
            first, last = back["ts_begin"].item(), back["ts_end"].item()
            found.append((cpu, first, min(last, end) - first, True))
        else:
            first = max(_confirmed(trace, cpu, ts), begin)
            found.append((cpu, first, end - first, False))
    return found


def _confirmed(trace: Trace, cpu: int, ts: int) -> int:
    """When the CPU was last heard of from then on."""
    heard = trace.wakeups.filter((pl.col("cpu") == cpu) & (pl.col("ts") >= ts))
    last = heard.select(pl.col("ts").max()).collect().item()
    return ts if last is None else int(last)


def _lossy(trace: Trace) -> list[int]:
    """CPUs with lost events; all of them if a loss names none."""
    losses = trace.losses.filter(~IS_BREAK).select("cpu").unique()
    named = losses.collect()["cpu"]
    return list(range(trace.ncpu)) if named.null_count() else named.to_list()
