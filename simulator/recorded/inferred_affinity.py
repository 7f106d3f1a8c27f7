"""Threads that must have been bound to a CPU, although no table shows it.

A recorder knows the masks of the threads that it found, when it found them, not
those set later. But a scheduler does not let a thread wait for milliseconds
while another CPU idles, unless the thread may not go there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from schedscope.store.trace import Trace

LONG = 1_000_000
"""Shorter waits tell nothing: an idle CPU needs time to notice, ns."""

ENOUGH = 20_000_000
"""A thread waited at least so long in all while another CPU idled, ns."""


def bound_by_waiting(trace: Trace, homes: Mapping[int, int]) -> dict[int, int]:
    """The threads of `homes` (utid to the only CPU it ran on) that waited while another CPU idled.

    They waited so for `ENOUGH` in waits of at least `LONG`, and for a quarter of the
    time of these waits.
    """
    if not homes:
        return {}
    long = (pl.col("state") == "runnable") & (pl.col("dur") >= LONG)
    idles = (pl.col("utid") < trace.ncpu) & (pl.col("state") == "running")
    rows = trace.states.filter(long | idles).select("utid", "cpu", "ts", "dur").collect()
    home = pl.DataFrame(
        {"utid": list(homes.keys()), "home": list(homes.values())},
        schema={"utid": pl.UInt32, "home": pl.Int64},
    )
    waits = (
        rows.join(home, on="utid")
        .filter(pl.col("dur").sum().over("utid") >= ENOUGH)
        .select("utid", "home", "ts", "dur")
    )
    if waits.is_empty():
        return {}
    idle = rows.filter(pl.col("utid") < trace.ncpu).sort("cpu", "ts")
    begins = waits["ts"].to_numpy()
    ends = begins + waits["dur"].to_numpy()
    # How much of each wait the idlest other CPU could have taken.
    most = np.zeros(len(begins), dtype=np.int64)
    for (cpu,), spans in idle.partition_by("cpu", as_dict=True).items():
        at = np.stack([spans["ts"], spans["ts"] + spans["dur"]], axis=1).ravel()
        gone = np.cumsum(np.stack([np.zeros(spans.height), spans["dur"]], axis=1).ravel())
        idled = np.interp(ends, at, gone) - np.interp(begins, at, gone)
        elsewhere = waits["home"].to_numpy() != cpu
        most = np.maximum(most, np.where(elsewhere, idled.astype(np.int64), 0))
    totals = (
        waits.with_columns(idle=pl.Series(most))
        .group_by("utid", "home")
        .agg(pl.col("idle").sum(), pl.col("dur").sum())
        .filter((pl.col("idle") >= ENOUGH) & (4 * pl.col("idle") >= pl.col("dur")))
    )
    return dict(totals.select("utid", "home").sort("utid").iter_rows())
