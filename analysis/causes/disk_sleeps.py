"""Sleeps that the disk ended: the thread's own request was done, and that woke it (Linux).

Of each sleep in which no signal counts: whether an interrupt's handler woke the thread, on a CPU
where the last thing that a disk had done, since the CPU's last switch, was a request which this
very thread had made. Anything less is no proof: what other threads read ahead, what a journal or a
worker writes, and what the kernel hands on to a worker when the disk is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.recording.lost_events import losses_of_any_event

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_REQUEST = ["device", "sector"]


def disk_sleeps(trace: Trace, times: pl.LazyFrame) -> pl.LazyFrame:
    """Of `times` (`utid`, `ts`, `dur`, `state`) the `utid` and `ts` of those for a disk.

    And of the request: `device`, when it was `made` and `given` to the disk (null if that was not
    seen), and `done`.
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
    # The number of a sector comes again: a beginning before the last request there is no other's.
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
