"""What the kernel itself reported about sleeps: whether for I/O, and in which function (Linux).

Kernels say it at one of two times: when the thread falls asleep (Android from 6.12 on), or when it
is woken (`sched_stat_iowait`; Android before). Between two runs a thread sleeps once, so either
names one sleep: the last one before that time, or, if the thread ran at that time, the next one.
A stack is recorded just after the switch at which the sleep begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_ASLEEP = ("sleeping", "blocked", "parked", "stopped")


def sleep_reasons(trace: Trace, times: pl.LazyFrame) -> pl.LazyFrame:
    """Those of `times` (`utid`, `ts`) about which something was reported.

    With `io_wait`, `function`, `entry` (how the thread came into the kernel) and `from_stack`.
    """
    state = pl.col("state").cast(pl.String)
    # A thread that waits for a CPU is not asleep: the report is about the sleep before.
    lived = (
        trace.states.filter(state != "runnable")
        .select("utid", "ts", state=state)
        .sort("ts", maintain_order=True)
        .with_columns(
            began="ts",
            next_state=pl.col("state").shift(-1).over("utid"),
            next_began=pl.col("ts").shift(-1).over("utid"),
        )
    )
    slept = (
        pl.when(pl.col("state").is_in(_ASLEEP))
        .then("began")
        .when((pl.col("state") == "running") & pl.col("next_state").is_in(_ASLEEP))
        .then("next_began")
    )
    said = (
        trace.sleep_reasons.sort("ts", maintain_order=True)
        .join_asof(lived, on="ts", by="utid", strategy="backward", check_sortedness=False)
        .select(
            "utid",
            "io_wait",
            "function",
            "entry",
            from_stack=pl.col("told_by").cast(pl.String) == "stack",
            ts=slept,
        )
        .filter(pl.col("ts").is_not_null())
        .group_by("utid", "ts")
        .agg(
            pl.col("io_wait", "from_stack").any(),
            pl.col("function", "entry").drop_nulls().first(),
        )
    )
    return said.join(times.select("utid", "ts"), on=["utid", "ts"], how="semi")
