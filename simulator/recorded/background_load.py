"""Threads that are not simulated but took CPU time: they take the same time again.

What ran beside a workload preempted it and kept CPUs busy. Replaying the
workload alone would give it CPUs that it never had; replaying all threads would
need what a trace does not show, the weights of groups. So each CPU gets a
thread `others/N`, bound there, which runs exactly when left-out threads ran on
that CPU in the trace. It runs before every thread of the workload's fair class,
and after all of its real-time threads except those of priority 1: a thread of the
fair class never took the CPU from those. Left-out threads that were real-time
ones themselves get a thread of their own, of their priority.

This is right if the left-out threads had the stronger claim, as a session of more weight has. If
not, the workload waits for threads that in reality waited for it. With `compete`, the threads that
stand for fair ones are of the fair class, nice 0 and not bound: each begins to want its CPU when
left-out threads ran, takes its time when the policy gives it, and moves as others do.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from schedscope.simulator.workloads.workload import STEPS, THREADS, Workload
from schedscope.store.trace import Trace

NAME = "others"
_PREFIX = f"{NAME}/"


def has_stand_ins(workload: Workload) -> bool:
    """Whether `workload` has background load that comes before all fair threads."""
    threads = workload.threads
    named = threads["name"].str.starts_with(_PREFIX) & threads["tid"].is_null()
    return bool((named & (threads["class"].cast(pl.String) == "fifo")).any())


def background_load(
    trace: Trace,
    left_out: Sequence[int],
    first_program: int,
    *,
    linux: bool = True,
    compete: bool = False,
    switch: int = 0,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Threads and steps that occupy each CPU while one of the utids `left_out` ran on it.

    Their programs are numbered from `first_program`. `linux`: priorities are Linux's and identify
    real-time threads; otherwise all count as of the fair class. `compete`: these are of no higher
    rank than the workload's. `switch`: what the replay charges each time they are switched in.
    """
    begin, end = trace.window
    busy = [u for u in left_out if u >= trace.ncpu]
    switches = trace.switches.select(
        "ts", "cpu", "prev_utid", "prev_prio", "next_utid", "next_prio"
    ).collect()
    # Before a CPU's first switch the thread that it takes off ran there.
    first = switches.group_by("cpu", maintain_order=True).first()
    prio = pl.col("prio").cast(pl.Int64)
    level = (99 - prio).clip(1, 99) if linux else pl.lit(1)
    held = (
        pl.concat(
            [
                first.select("cpu", ts=pl.lit(begin, pl.Int64), utid="prev_utid", prio="prev_prio"),
                switches.select("cpu", "ts", utid="next_utid", prio="next_prio"),
            ]
        )
        .with_columns(theirs=pl.col("utid").is_in(pl.Series(busy, dtype=pl.UInt32).implode()))
        .with_columns(level=pl.when("theirs").then(level.fill_null(1)).otherwise(0))
    )
    spans = (
        held.sort("cpu", "ts", maintain_order=True)
        .filter((pl.col("level") != pl.col("level").shift().over("cpu")).fill_null(True))
        .with_columns(until=pl.col("ts").shift(-1).over("cpu").fill_null(end))
        .filter(pl.col("theirs") & (pl.col("until") > pl.col("ts")))
        .select(
            "cpu",
            "level",
            at=pl.col("ts") - begin,
            ns=(pl.col("until") - pl.col("ts") - switch).clip(1),
        )
    )
    takers = spans.select("cpu", "level").unique().sort("cpu", "level")
    takers = takers.with_row_index("program", offset=first_program)
    threads = pl.DataFrame(
        [
            {
                **dict.fromkeys(THREADS),
                "name": f"{_PREFIX}{cpu}",
                "class": "fair" if compete and level == 1 else "fifo",
                "nice": 0,
                "rt_prio": 0 if compete and level == 1 else level,
                "cpus": None if compete and level == 1 else str(cpu),
                "start": 0,
                "asleep": True,
                "cpu": cpu,
                "program": program,
            }
            for program, cpu, level in takers.iter_rows()
        ],
        schema=THREADS,
    )
    numbered = spans.join(takers, on=["cpu", "level"], how="left", maintain_order="left")
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
