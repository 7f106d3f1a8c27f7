"""What happened in a stretch of time: the answers of the analyses, of just that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis.interference import interference
from schedscope.analysis.latency import latency
from schedscope.errors import SchedscopeError, UsageError
from schedscope.present.columns import choose
from schedscope.timelines.tables import table

if TYPE_CHECKING:
    from schedscope.timelines.lanes import Lanes

_TOP = 15


def stretch(lanes: Lanes, begin: int, end: int) -> dict[str, Any]:
    """Threads that waited, ran and delayed others in `[begin, end)`, ns after the window's start.

    Raises `UsageError` for a stretch that lies outside.
    """
    if not 0 <= begin < end <= lanes.duration:
        raise UsageError("this range", f"a part of 0 to {lanes.duration} ns")
    trace = lanes.trace
    cut = trace.between(*(f"{lanes.begin + at - trace.origin}ns" for at in (begin, end)))
    span = ", ".join(f"{trace.seconds(lanes.begin + at):.9f}" for at in (begin, end))
    tables = [_ran(lanes, begin, end, span)]
    missing = []
    try:
        waits = latency(cut, by=["comm", "tid", "utid"])
        names = ["comm", "tid", "n", "n_censored?", "n_excluded?", "total", "p50", "p99", "max"]
        waits = waits.sort("total", descending=True, nulls_last=True)
        tables.append(
            table(
                waits,
                choose(waits, [*names, "ts_max"], question="latency", origin=trace.origin),
                title="How long threads waited for a CPU",
                python=f"ss.latency(trace.between({span}), by=['comm', 'tid', 'utid'])",
                begin=lanes.begin,
                most=_TOP,
            )
        )
        ran = interference(cut, together=True)
        words = {"idle": "(the CPU idled)", "unknown": "(unknown)", "no_queue": "(no known queue)"}
        ran = ran.with_columns(
            comm=pl.coalesce(
                "comm", pl.col("kind").cast(pl.String).replace_strict(words, default=None)
            )
        )
        tables.append(
            table(
                ran,
                choose(ran, ["comm", "tid", "time", "share"], question="interference"),
                title="Who ran while others waited for that CPU, and the share of all waiting",
                python=f"ss.interference(trace.between({span}), together=True)",
                begin=lanes.begin,
                most=_TOP,
            )
        )
    except SchedscopeError as error:
        missing.append(str(error))
    # Instants in these tables are of single waits; a row of sums leads to its thread.
    return {"begin": begin, "end": end, "tables": tables, "missing": missing}


def _ran(lanes: Lanes, begin: int, end: int, span: str) -> dict[str, Any]:
    trace = lanes.trace
    cut = trace.between(*(f"{lanes.begin + at - trace.origin}ns" for at in (begin, end)))
    frame = (
        cut.states.filter(pl.col("state") == "running", pl.col("utid") >= trace.ncpu)
        .group_by("utid")
        .agg(time=pl.col("dur").sum())
        .join(trace.threads.select("utid", "comm", "tid"), on="utid", how="left")
        .with_columns(share=pl.col("time") / ((end - begin) * trace.ncpu))
        .sort("time", "utid", descending=[True, False])
        .collect()
    )
    return table(
        frame.select("comm", "tid", "utid", "time", "share"),
        choose(frame, ["comm", "tid", "time", "share"], question="interference"),
        title="Who ran, and the share of all CPUs' time",
        python=(
            f"trace.between({span}).states.filter(pl.col('state') == 'running')"
            ".group_by('utid').agg(pl.col('dur').sum()).collect()"
        ),
        begin=lanes.begin,
        most=_TOP,
    )
