"""Threads that are not simulated but took CPU time: they take it again, as it was.

What ran beside a workload preempted it and kept CPUs busy. To replay the
workload alone would give it CPUs that it never had; to replay everybody would
need what a trace does not tell, the weights of groups. So each CPU gets one
thread, `others/N`, of the highest real-time priority and bound there, which
runs exactly when left-out threads ran on that CPU in the trace.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from schedscope.simulator.workload import STEPS, THREADS
from schedscope.trace import Trace

NAME = "others"


def background_load(
    trace: Trace, left_out: Sequence[int], first_program: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Threads and steps that occupy each CPU while one of the utids `left_out` ran on it.

    Their programs are numbered from `first_program`.
    """
    begin, end = trace.window
    busy = [u for u in left_out if u >= trace.ncpu]
    switches = trace.switches.select("ts", "cpu", "prev_utid", "next_utid").collect()
    # Before a CPU's first switch the thread that it takes off ran there.
    first = switches.group_by("cpu", maintain_order=True).first()
    held = pl.concat(
        [
            first.select("cpu", ts=pl.lit(begin, pl.Int64), utid="prev_utid"),
            switches.select("cpu", "ts", utid="next_utid"),
        ]
    ).with_columns(theirs=pl.col("utid").is_in(pl.Series(busy, dtype=pl.UInt32).implode()))
    spans = (
        held.sort("cpu", "ts", maintain_order=True)
        .filter((pl.col("theirs") != pl.col("theirs").shift().over("cpu")).fill_null(True))
        .with_columns(until=pl.col("ts").shift(-1).over("cpu").fill_null(end))
        .filter(pl.col("theirs") & (pl.col("until") > pl.col("ts")))
        .select("cpu", at=pl.col("ts") - begin, ns=pl.col("until") - pl.col("ts"))
    )
    cpus = spans["cpu"].unique().sort().to_list()
    threads = pl.DataFrame(
        [
            {
                **dict.fromkeys(THREADS),
                "name": f"{NAME}/{cpu}",
                "class": "fifo",
                "nice": 0,
                "rt_prio": 99,
                "cpus": str(cpu),
                "start": 0,
                "asleep": True,
                "cpu": cpu,
                "program": first_program + i,
            }
            for i, cpu in enumerate(cpus)
        ],
        schema=THREADS,
    )
    numbered = spans.with_columns(
        program=pl.col("cpu").replace_strict(
            {cpu: first_program + i for i, cpu in enumerate(cpus)}, return_dtype=pl.UInt32
        )
    )
    parts = [
        numbered.select("program", "at", op=pl.lit("wait_until"), ns="at"),
        numbered.select("program", "at", op=pl.lit("run"), ns="ns"),
        threads.select("program", at=pl.lit(end, pl.Int64), op=pl.lit("park"), ns=None),
    ]
    steps = pl.concat(parts, how="vertical_relaxed").sort("program", "at", maintain_order=True)
    return threads, steps.select(
        pl.col(name).cast(dtype) if name in steps.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in STEPS.items()
    )
