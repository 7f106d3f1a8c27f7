"""When CPUs of a recording could not be used, because they were being taken offline or were so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.cpus.offline import offline

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_SCHEMA = {"cpu": pl.UInt16, "since": pl.Int64, "until": pl.Int64}


def recorded_outages(trace: Trace) -> pl.DataFrame:
    """One row per stretch of time in which no thread could be put on a CPU.

    * `cpu`: which;
    * `since`, `until`: from when to when, ns after the window's begin; `until` null: to its end.

    Linux puts no thread on a CPU from the moment on at which it begins to take that down
    (`sched_cpu_deactivate` of kernel/sched/core.c), some time before the CPU is offline, nor until
    it is up again (`sched_cpu_activate`). Meanwhile the thread `cpuhp/N` is at work on CPU N, as at
    no other time, and only other threads of that CPU's own run there. So the time begins when
    the last other thread has left the CPU since `cpuhp/N` first ran, and ends when another
    one first runs there.
    """
    begin, end = trace.window
    gone = offline(trace).sort("cpu", "ts")
    if gone.is_empty():
        return pl.DataFrame(schema=_SCHEMA)
    on = _runs(trace, gone["cpu"].unique().to_list())
    rows = []
    back_before: dict[int, int] = {}
    for cpu, ts, dur, back in gone.select("cpu", "ts", "dur", "back").iter_rows():
        here = on.filter(pl.col("cpu") == cpu)
        others, hotplug = here.filter(~pl.col("own")), here.filter("hotplug")
        since, until = ts, ts + dur
        works = hotplug.filter(pl.col("ts").is_between(back_before.get(cpu, begin), ts))
        if works.height:
            left = others.filter(pl.col("ts") < ts)["left"].max()
            first = int(works["ts"][0])
            since = min(ts, first if left is None else max(first, int(left)))  # type: ignore[arg-type]
        if back:
            come = others.filter(pl.col("ts") >= until)["ts"].min()
            done = hotplug.filter(pl.col("ts") >= until)
            if come is not None:
                done = done.filter(pl.col("ts") < come)
            if done.height:
                until = int(done["left"].max())  # type: ignore[arg-type]
        back_before[cpu] = until
        rows.append((cpu, max(since - begin, 0), until - begin if back and until < end else None))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _runs(trace: Trace, cpus: list[int]) -> pl.DataFrame:
    """What ran on these CPUs: `cpu`, `ts`, `left`; `own`: of a thread of that CPU alone, by the
    name that the kernel gives those; `hotplug`: of `cpuhp/N`."""
    names = trace.threads.filter("kernel").select("utid", "comm")
    number = pl.col("cpu").cast(pl.String)
    return (
        trace.states.filter(
            pl.col("state") == "running", pl.col("cpu").is_in(cpus), pl.col("utid") >= trace.ncpu
        )
        .join(names, on="utid", how="left")
        .select(
            "cpu", "ts", left=pl.col("ts") + pl.col("dur"),
            own=pl.col("comm").str.extract(r"/([0-9]+)(?::.*)?$").eq(number).fill_null(False),
            hotplug=pl.col("comm").eq(pl.concat_str(pl.lit("cpuhp/"), number)).fill_null(False),
        )
        .sort("cpu", "ts")
        .collect()
    )  # fmt: skip
