"""Sleeps that ended because the thread's own request to a disk completed (Linux).

A sleep counts if an interrupt handler woke the thread, on a CPU where the last disk completion
since the CPU's last switch was of a request that this thread had made. Anything less is not proof:
other threads read ahead, journals and workers write, and the kernel hands completions on to
workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.recording.lost_events import losses_of_any_event

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_REQUEST = ["device", "sector"]


def disk_sleeps(trace: Trace, times: pl.LazyFrame) -> pl.LazyFrame:
    """The sleeps of `times` (`utid`, `ts`, `dur`, `state`) that were for a disk: `utid` and `ts`.

    The request's columns: `device`, when it was `made` and `given` to the disk (null if that was
    not seen), and `done`.
    """
    requests = trace.disk_requests.with_columns(pl.col("step").cast(pl.String)).sort(
        "ts", maintain_order=True
    )
    asked = requests.filter(pl.col("utid").is_not_null())
    done = requests.filter(pl.col("step") == "complete").select("ts", "cpu", *_REQUEST)
    for step in ("start", "issue"):
        owners = asked.filter(pl.col("step") == step).select(
            "ts", *_REQUEST, pl.col("utid").alias(step), pl.col("ts").alias(f"{step}_at")
        )
        done = done.join_asof(
            owners, on="ts", by=_REQUEST, strategy="backward", check_sortedness=False
        )
    # Sector numbers recur: a start before the previous request for the sector belongs to that one.
    last = pl.col("ts").shift(1).over(*_REQUEST)
    begun = {"made": pl.col("start_at"), "given": pl.col("issue_at")}
    done = done.select(
        *("cpu", "device", "start", "issue"),
        *(
            pl.when((when > last).fill_null(value=True)).then(when).alias(name)
            for name, when in begun.items()
        ),
        at="ts",
        ts="ts",
    )
    switches = (
        trace.switches.select("cpu", "ts", switched="ts")
        .sort("ts", maintain_order=True)
        .unique(["cpu", "ts"], keep="last", maintain_order=True)
    )
    lost = losses_of_any_event(trace).select("cpu", "ts_begin", "ts_end").collect()
    woken = (
        trace.waits.filter(
            pl.col("ts_waking").is_not_null()
            & pl.col("waker_utid").is_null()
            & pl.col("waker_cpu").is_not_null()
        )
        .select("utid", cpu="waker_cpu", until="ts_waking")
        .unique(["utid", "until"], keep="first", maintain_order=True)
    )
    found = (
        times.filter(pl.col("state").cast(pl.String) == "blocked")
        .select("utid", slept="ts", until=pl.col("ts") + pl.col("dur"))
        .join(woken, on=["utid", "until"])
        .with_columns(ts="until")
        .sort("ts", maintain_order=True)
        .join_asof(done, on="ts", by="cpu", strategy="backward", check_sortedness=False)
        .join_asof(switches, on="ts", by="cpu", strategy="backward", check_sortedness=False)
        .filter(
            (pl.col("at") >= pl.col("slept"))
            & (pl.col("at") >= pl.col("switched").fill_null(pl.col("at")))
            & (
                (pl.col("start") == pl.col("utid")).fill_null(value=False)
                | (pl.col("issue") == pl.col("utid")).fill_null(value=False)
            )
        )
    )
    for cpu, begin, end in lost.rows():
        here = pl.lit(value=True) if cpu is None else pl.col("cpu") == cpu
        found = found.filter(~(here & (pl.col("at") <= end) & (pl.col("until") >= begin)))
    return found.select("utid", "device", "made", "given", done="at", ts="slept").unique(
        ["utid", "ts"], keep="first", maintain_order=True
    )
