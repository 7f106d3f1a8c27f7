"""How long each thread ran and waited in all, and its longest wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.parsers.schema import TABLES

if TYPE_CHECKING:
    from schedscope._native import StoredTable

COLUMNS = ("ts", "dur", "utid", "state", "cpu")
"""Those of `states` that are needed."""

SCHEMA = pl.Schema(
    {
        "utid": TABLES["threads"].schema["utid"],
        "run": pl.Int64(),
        "cpu": TABLES["states"].schema["cpu"],
        "wait": pl.Int64(),
        "ready": pl.Int64(),
        "longest": pl.Int64(),
    }
)


def thread_totals(
    states: StoredTable | pl.DataFrame, waits: pl.LazyFrame, window: tuple[int, int], ncpu: int
) -> pl.DataFrame:
    """One row per thread that ran or waited, but the idle ones (utids below `ncpu`).

    `run` and `wait` are ns within the window; `cpu` is where it ran longest, the lower number of
    equals; `ready` and `longest` are its longest wait, from the window's begin on, the first of
    equals. `states` are its `COLUMNS`, with codes for states. Memory is a row per thread, however
    long the trace is.
    """
    from schedscope import _native

    ran = (
        pl.DataFrame(_native.run_sums(states, window))
        .filter(pl.col("utid") >= ncpu)
        .sort("running", "cpu", descending=[True, False])
        .group_by("utid", maintain_order=True)
        .agg(run=pl.col("running").sum(), cpu=pl.col("cpu").first())
    )
    known = waits.filter(pl.col("wait").is_not_null() & pl.col("ts_ready").is_not_null())
    # In two passes, of which each holds a row per thread.
    total = known.group_by("utid").agg(pl.col("wait").sum(), longest=pl.col("wait").max())
    total = total.collect(engine="streaming").lazy()
    first = (
        known.select("utid", "ts_ready", longest="wait")
        .join(total.select("utid", "longest"), on=["utid", "longest"], how="semi")
        .group_by("utid")
        .agg(ready=pl.col("ts_ready").min() - window[0])
    )
    waited = total.join(first, on="utid", how="left").collect(engine="streaming")
    both = ran.join(waited, on="utid", how="full", coalesce=True)
    return both.select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items()).sort("utid")
